/*-------------------------------------------------------------------------
 *
 * secret_file.h
 *	  Who may have access to the file of a private key or of a password.
 *
 * Plain C, because the client of etcd uses this header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SECRET_FILE_H
#define SECRET_FILE_H

#include <sys/stat.h>
#include <unistd.h>

/*
 * The fault of such a file, as the end of a sentence about the file; NULL: it has
 * none.  PostgreSQL has the same rules for the private key of the server
 * (be-secure-common.c).
 */
static inline const char *
secret_file_fault(const struct stat *file)
{
	if (!S_ISREG(file->st_mode))
		return "is not a regular file";
	if (file->st_uid != geteuid() && file->st_uid != 0)
		return "must be owned by the user that runs the server, or by root";
	if ((file->st_uid == geteuid() && (file->st_mode & (S_IRWXG | S_IRWXO))) ||
		(file->st_uid == 0 && (file->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO))))
		return "has group or world access: its permissions should be u=rw (0600) or less, "
			"or u=rw,g=r (0640) if owned by root";
	return NULL;
}

#endif							/* SECRET_FILE_H */
