/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The registration of the background workers of this library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WORKER_H
#define WORKER_H

#include "postmaster/bgworker.h"
#include "utils/memutils.h"

/*
 * Fills in a worker of that type, which runs a function of this library.  The
 * worker may connect to a database, the postmaster does not restart it, and its
 * name is its type.  The caller changes the fields that differ, and registers the
 * worker.
 */
static inline void
worker_init(BackgroundWorker *worker, const char *type, const char *function,
			BgWorkerStartTime start_time)
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
 * Asks the postmaster for a worker.  The caller frees *handle.  If there is no free
 * slot, the result is false, and *handle is NULL.
 */
static inline bool
worker_register(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	MemoryContext caller_context = MemoryContextSwitchTo(TopMemoryContext);

	*handle = NULL;
	if (!RegisterDynamicBackgroundWorker(worker, handle))
		*handle = NULL;
	MemoryContextSwitchTo(caller_context);
	return *handle != NULL;
}

/* For ereport(): there is no free slot for a worker. */
static inline int
err_no_worker_slot(void)
{
	errcode(ERRCODE_INSUFFICIENT_RESOURCES);
	errdetail("There is no free background worker slot.");
	return errhint("Consider increasing the configuration parameter \"max_worker_processes\".");
}

/* The pause between two tries after failures: it begins with 1 s, and doubles up to 1 min. */
#define BACKOFF_MIN_MS	1000
#define BACKOFF_MAX_MS	60000

/*
 * The pause until the next try, in milliseconds.  Each failure doubles it.
 * *backoff_ms keeps the pause; the caller sets it to 0 after a success.
 */
static inline int
backoff_next_ms(int *backoff_ms)
{
	*backoff_ms = Max(BACKOFF_MIN_MS, Min(*backoff_ms * 2, BACKOFF_MAX_MS));
	return *backoff_ms;
}

#endif							/* WORKER_H */
