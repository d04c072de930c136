/*-------------------------------------------------------------------------
 *
 * supervised_worker.c
 *	  Background workers that run as long as the settings want them.
 *
 * The elector registers them, because a reload can want one at any time.  If the
 * elector ends, the worker goes on, and the next elector finds it there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/worker.h"
#include "shared/state.h"
#include "supervised_worker.h"

/* A worker that ran for so long after its back-off is restarted at once. */
#define STABLE_NS		(1000 * NSEC_PER_MSEC)

/* Asks the postmaster for it. */
static void
register_worker(SupervisedWorker *worker)
{
	BackgroundWorker registration;

	worker_init(&registration, worker->type, worker->function, worker->start_time);
	if (worker->handle != NULL)
		pfree(worker->handle);
	worker->registered_at = GetCurrentTimestamp();
	if (worker_register(&registration, &worker->handle))
		worker->is_reported = false;
	else if (!worker->is_reported)
	{
		worker->is_reported = true;
		ereport(WARNING,
				(errmsg("could not start the background worker \"%s\"", worker->type),
				 err_no_worker_slot()));
	}
}

/*
 * A worker that begins ignores SIGHUP for a moment (bgworker.c), and so drops
 * the one that is pending.  The elector has seen that reload, and tells the
 * worker again.
 */
static void
repeat_reload(SupervisedWorker *worker)
{
	pid_t		pid;

	if (worker->registered_at != 0 && worker->handle != NULL &&
		PgReloadTime >= worker->registered_at &&
		GetBackgroundWorkerPid(worker->handle, &pid) == BGWH_STARTED)
		(void) kill(pid, SIGHUP);
	worker->registered_at = 0;
}

int64
worker_supervise(SupervisedWorker *worker, bool is_wanted, const pg_atomic_uint32 *claimed)
{
	int64		now_ns;
	pid_t		pid;

	if (!is_wanted)
	{
		worker->due_ns = 0;		/* long ago, hence no back-off when it is wanted again */
		return PG_INT64_MAX;
	}
	if (pg_atomic_read_u32((pg_atomic_uint32 *) claimed) != 0)
	{
		repeat_reload(worker);
		return PG_INT64_MAX;
	}
	/* one that was registered in recovery may wait for its end */
	if (worker->handle != NULL &&
		GetBackgroundWorkerPid(worker->handle, &pid) == BGWH_NOT_YET_STARTED)
		return PG_INT64_MAX;
	now_ns = clock_now_ns();
	if (now_ns >= worker->due_ns)
	{
		if (now_ns - worker->due_ns > STABLE_NS)
			worker->backoff_ms = 0;
		worker->due_ns = now_ns + backoff_next_ms(&worker->backoff_ms) * NSEC_PER_MSEC;
		register_worker(worker);
	}
	return worker->due_ns;
}

static void
release(int code, Datum claimed)
{
	pg_atomic_write_u32((pg_atomic_uint32 *) DatumGetPointer(claimed), 0);
	shared_state_wake_elector();
}

bool
worker_claim(pg_atomic_uint32 *claimed)
{
	uint32		expected = 0;

	if (!pg_atomic_compare_exchange_u32(claimed, &expected, 1))
		return false;
	before_shmem_exit(release, PointerGetDatum(claimed));
	shared_state_wake_elector();
	return true;
}
