/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  What all background workers of this library have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WORKER_H
#define WORKER_H

#include "port/atomics.h"
#include "postmaster/bgworker.h"

/*
 * Fills in a worker of that type, which runs a function of this library.  It
 * may connect to a database; it is not restarted; its name is its type.  The
 * caller changes the fields that differ, and registers it.
 */
static inline void
worker_init(BackgroundWorker *worker, const char *type, const char *function, BgWorkerStartTime start_time)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = start_time;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker->bgw_name, type, BGW_MAXLEN);
	strlcpy(worker->bgw_type, type, BGW_MAXLEN);
	strlcpy(worker->bgw_library_name, "etcd_leader", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
}

/*
 * A worker that runs as long as the settings want it.  `claimed` tells whether
 * there is one: the worker sets it when it begins, and resets it when it ends.
 */
typedef struct SupervisedWorker
{
	const char *type;
	const char *function;
	BgWorkerStartTime start_time;
	BackgroundWorkerHandle *handle; /* of the last one; the rest begins as 0 */
	int64		due_ns;
	int			backoff_ms;
	bool		is_reported;	/* that there is no room */
} SupervisedWorker;

/*
 * In the elector: starts the worker if it is wanted and not there.  Returns the
 * milliseconds until this must be called again, -1 if not before a reload.
 */
extern long worker_supervise(SupervisedWorker *worker, bool is_wanted, const pg_atomic_uint32 *claimed);

/* Makes this process the worker, until it ends.  False if there is one. */
extern bool worker_claim(pg_atomic_uint32 *claimed);

#endif							/* WORKER_H */
