/*-------------------------------------------------------------------------
 *
 * tls.c
 *	  The certificate of the HTTP server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/fd.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "http.h"
#include "base/secret_file.h"

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

/* May the private key be used?  Not if others can read it. */
static bool
check_key_file(const char *name, const char **error)
{
	const char *fault;
	struct stat key;

	if (stat(name, &key) != 0)
		*error = psprintf("could not access private key file \"%s\": %s", name, strerror(errno));
	else if ((fault = secret_file_fault(&key)) != NULL)
		*error = psprintf("private key file \"%s\" %s", name, fault);
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
			*error = "\"etcd_leader.http_ssl_key_file\" is set, and "
				"\"etcd_leader.http_ssl_cert_file\" is not";
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
