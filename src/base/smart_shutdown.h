/*-------------------------------------------------------------------------
 *
 * smart_shutdown.h
 *	  Is the server in a smart shutdown?
 *
 * The postmaster signals a smart shutdown to no other process: sessions and
 * background workers go on until the last session has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SMART_SHUTDOWN_H
#define SMART_SHUTDOWN_H

#include <sys/stat.h>
#include <time.h>

#include "utils/pidfile.h"

#define POSTMASTER_PID_FILE	"postmaster.pid"

/*
 * Reads postmaster.pid, if the file has changed since the last call.  The postmaster
 * writes its state into this file (AddToDataDirLockFile() in miscinit.c).  The data
 * directory is the current directory of each process of the server.  Raises no error.
 */
static inline bool
is_in_smart_shutdown(void)
{
	static bool is_stopping = false;
	static struct timespec seen;
	struct stat st;
	char		line[1024];
	FILE	   *file;

	if (stat(POSTMASTER_PID_FILE, &st) != 0 ||
		(st.st_mtim.tv_sec == seen.tv_sec && st.st_mtim.tv_nsec == seen.tv_nsec) ||
		(file = fopen(POSTMASTER_PID_FILE, "r")) == NULL)
		return is_stopping;
	/* within a tick of the clock, the file can change once more under the same time */
	if (time(NULL) - st.st_mtim.tv_sec > 1)
		seen = st.st_mtim;
	is_stopping = false;
	for (int n = 1; fgets(line, sizeof(line), file) != NULL; n++)
	{
		if (n == LOCK_FILE_LINE_PM_STATUS)
			is_stopping = strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
	}
	fclose(file);
	return is_stopping;
}

#endif							/* SMART_SHUTDOWN_H */
