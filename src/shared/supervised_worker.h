/*-------------------------------------------------------------------------
 *
 * supervised_worker.h
 *	  Background workers that run as long as the settings want them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SUPERVISED_WORKER_H
#define SUPERVISED_WORKER_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"

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
	TimestampTz registered_at;	/* 0: it has begun since */
	int64		due_ns;
	int			backoff_ms;
	bool		is_reported;	/* that there is no room */
} SupervisedWorker;

/*
 * In the elector: starts the worker if it is wanted and not there.  Returns when
 * this must be called again, on the clock of clock_now_ns(), PG_INT64_MAX if not
 * before a reload.
 */
extern int64 worker_supervise(SupervisedWorker *worker, bool is_wanted,
							  const pg_atomic_uint32 *claimed);

/*
 * Makes this process the worker, until it ends.  False if there is one.  Its
 * handler of SIGHUP must be there.
 */
extern bool worker_claim(pg_atomic_uint32 *claimed);

#endif							/* SUPERVISED_WORKER_H */
