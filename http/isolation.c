/*-------------------------------------------------------------------------
 *
 * isolation.c
 *	  The server's process, apart from PostgreSQL's.
 *
 * PostgreSQL restarts all backends if a background worker dies, because the
 * worker might have left shared memory in disorder (and since PostgreSQL 15
 * there are no workers without access to shared memory). The process that
 * speaks with clients is therefore a child of a worker, and not a process of
 * PostgreSQL, and its shared memory is read-only.  It only needs to read: the
 * state of the elections is read without locks.  Whatever happens to this
 * process, shared memory stays in order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "utils/ps_status.h"

#include "base/compat.h"
#include "http.h"

/*
 * Takes away the right to write to memory that is shared with other processes.
 * Where 64-bit atomics are emulated, reading one is writing.
 */
static void
protect_shared_memory(void)
{
#ifdef PG_HAVE_8BYTE_SINGLE_COPY_ATOMICITY
	FILE	   *maps = fopen("/proc/self/maps", "r");
	char		line[PATH_MAX + 128];

	if (maps == NULL)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", "/proc/self/maps")));
	while (fgets(line, sizeof(line), maps) != NULL)
	{
		unsigned long start;
		unsigned long end;
		char		rights[5];

		if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 &&
			rights[1] == 'w' && rights[3] == 's' &&
			mprotect((void *) start, end - start, PROT_READ) != 0)
			ereport(FATAL,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("could not make shared memory read-only for the HTTP server: %m")));
	}
	fclose(maps);
#endif
}

void
http_isolate(pid_t worker)
{
	/* the exit callbacks of the worker are not for this process */
	on_exit_reset();
	PG_exception_stack = NULL;
	error_context_stack = NULL;
	MyProcPid = getpid();

	pqsignal(SIGHUP, PG_SIG_IGN);
	pqsignal(SIGINT, PG_SIG_IGN);
	pqsignal(SIGUSR1, PG_SIG_IGN);
	pqsignal(SIGPIPE, PG_SIG_IGN);
	pqsignal(SIGTERM, PG_SIG_DFL);
	pqsignal(SIGQUIT, PG_SIG_DFL);
	pqsignal(SIGCHLD, PG_SIG_DFL);

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		ereport(FATAL,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not set the parent-death signal of the HTTP server: %m")));
	/* no program that it executes may gain privileges */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		ereport(FATAL,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not deny the HTTP server new privileges: %m")));
	if (getppid() != worker)
		_exit(1);
	set_ps_display("server");
	protect_shared_memory();
}
