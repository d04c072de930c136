/*-------------------------------------------------------------------------
 *
 * tls.c
 *	  The certificate of the HTTP server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "http.h"

#define MAX_FILE_SIZE	(1024 * 1024)

/* The text of a file, in TopMemoryContext; NULL with *error if it cannot be read. */
static char *
read_file(const char *name, const char **error)
{
	FILE	   *file = AllocateFile(name, "r");
	char	   *text;
	size_t		len;

	if (file == NULL)
	{
		*error = psprintf("could not open file \"%s\": %s", name, strerror(errno));
		return NULL;
	}
	text = MemoryContextAlloc(TopMemoryContext, MAX_FILE_SIZE + 1);
	len = fread(text, 1, MAX_FILE_SIZE, file);
	text[len] = '\0';
	if (ferror(file) || !feof(file))
	{
		*error = psprintf("could not read file \"%s\"", name);
		pfree(text);
		text = NULL;
	}
	FreeFile(file);
	return text ? repalloc(text, len + 1) : NULL;
}

/*
 * May the private key be used?  Not if others can read it: the rules are those
 * of PostgreSQL's own key (be-secure-common.c).
 */
static bool
check_key_file(const char *name, const char **error)
{
	struct stat key;

	if (stat(name, &key) != 0)
		*error = psprintf("could not access private key file \"%s\": %s", name, strerror(errno));
	else if (!S_ISREG(key.st_mode))
		*error = psprintf("private key file \"%s\" is not a regular file", name);
	else if (key.st_uid != geteuid() && key.st_uid != 0)
		*error = psprintf("private key file \"%s\" must be owned by the user that runs the server, or by root", name);
	else if ((key.st_uid == geteuid() && (key.st_mode & (S_IRWXG | S_IRWXO))) ||
			 (key.st_uid == 0 && (key.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO))))
		*error = psprintf("private key file \"%s\" has group or world access: its permissions should be u=rw (0600) or less, or u=rw,g=r (0640) if owned by root", name);
	return *error == NULL;
}

bool
http_read_certificate(HttpConfig *config, const char **error)
{
	const char *certificate = GetConfigOption("etcd_leader.http_ssl_cert_file", false, false);
	const char *key = GetConfigOption("etcd_leader.http_ssl_key_file", false, false);

	*error = NULL;
	if (certificate[0] == '\0')
	{
		if (key[0] != '\0')
			*error = "\"etcd_leader.http_ssl_key_file\" is set, and \"etcd_leader.http_ssl_cert_file\" is not";
		return *error == NULL;
	}
	if (key[0] == '\0')
		key = certificate;		/* both may be in one file */
	if (!check_key_file(key, error))
		return false;
	config->certificate = read_file(certificate, error);
	if (config->certificate != NULL)
		config->key = read_file(key, error);
	return *error == NULL;
}
