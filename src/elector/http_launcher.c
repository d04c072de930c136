/*-------------------------------------------------------------------------
 *
 * http_launcher.c
 *	  The start of the HTTP worker: when it is needed, and its library.
 *
 * What the worker does is in a library of its own, etcd_leader_http, so that
 * no other process loads what that needs.  The elector registers the worker,
 * because a reload of the settings can want it at any time.  If the elector
 * ends, the worker goes on, and the next elector finds it there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/worker.h"
#include "http_launcher.h"
#include "settings/settings.h"

/* Between two starts of the worker: doubled up to the last. */
#define BACKOFF_MIN_MS	1000
#define BACKOFF_MAX_MS	60000

/* Is there a worker?  One at most. */
static pg_atomic_uint32 *claimed = NULL;

static void
init_launcher(void)
{
	pg_atomic_init_u32(claimed, 0);
}

const SharedPart http_launcher_part = {
	.name = "etcd_leader http", .size = sizeof(pg_atomic_uint32), .memory = (void **) &claimed, .init = init_launcher
};

/* ---- in the elector ----------------------------------------------------- */

static bool
is_wanted(void)
{
	return settings_http_listen[0] != '\0' || settings_agent_listen[0] != '\0';
}

/* False if there is no room for it. */
static bool
register_worker(void)
{
	BackgroundWorker worker;

	worker_init(&worker, "etcd_leader http", "etcd_leader_http_worker_main", BgWorkerStart_ConsistentState);
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

long
http_launcher_supervise(void)
{
	static int64 due_ns = 0;
	static int	backoff_ms = BACKOFF_MIN_MS;
	static bool reported = false;
	int64		now_ns;

	if (!is_wanted())
	{
		due_ns = 0;
		backoff_ms = BACKOFF_MIN_MS;
		return -1;
	}
	if (pg_atomic_read_u32(claimed) != 0)
		return -1;
	now_ns = clock_now_ns();
	if (now_ns < due_ns)
		return (long) ((due_ns - now_ns) / NS_PER_MS + 1);

	/* a worker that ran for a while is restarted at once */
	if (now_ns - due_ns > BACKOFF_MAX_MS * NS_PER_MS)
		backoff_ms = BACKOFF_MIN_MS;
	due_ns = now_ns + backoff_ms * NS_PER_MS;
	backoff_ms = Min(backoff_ms * 2, BACKOFF_MAX_MS);

	if (register_worker())
		reported = false;
	else if (!reported)
	{
		reported = true;
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start the HTTP worker of etcd_leader"),
				 errdetail("There is no free background worker slot."),
				 errhint("Consider increasing the configuration parameter \"max_worker_processes\".")));
	}
	return (long) ((due_ns - now_ns) / NS_PER_MS + 1);
}

/* ---- in the worker -------------------------------------------------------- */

static void
release(int code, Datum arg)
{
	pg_atomic_write_u32(claimed, 0);
}

/*
 * Makes this process the HTTP worker, until it ends.  False if there is one.
 */
static bool
claim(void)
{
	uint32		expected = 0;

	if (!pg_atomic_compare_exchange_u32(claimed, &expected, 1))
		return false;
	before_shmem_exit(release, (Datum) 0);
	return true;
}

typedef void (*HttpMain) (void);

/*
 * The main function of the library; NULL if it cannot be loaded, which has
 * been logged then.
 */
static HttpMain
load_library(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile HttpMain main_function = NULL;

	PG_TRY();
	{
		main_function = (HttpMain) load_external_function("etcd_leader_http", "etcd_leader_http_main", true, NULL);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg("could not load the HTTP library of etcd_leader"),
				 errdetail_internal("%s%s%s", edata->message, edata->detail ? "\n" : "", edata->detail ? edata->detail : ""),
				 errhint("It is built where libmicrohttpd is installed. Install it and reload the settings, or reset \"etcd_leader.http_listen\" and \"etcd_leader.agent_listen\".")));
		FreeErrorData(edata);
	}
	PG_END_TRY();
	return main_function;
}

void
etcd_leader_http_worker_main(Datum main_arg)
{
	HttpMain	main_function;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	/* to no database, but pg_stat_activity shows it so */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/* a second worker was registered before the first one got here */
	if (!claim())
		proc_exit(0);
	main_function = load_library();
	if (main_function != NULL)
		main_function();

	/*
	 * it could not be loaded: after a reload this process ends, and the
	 * elector tries again
	 */
	while (!ShutdownRequestPending && !ConfigReloadPending)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1,
						 compat_wait_event("EtcdLeaderHttpLoad"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	proc_exit(0);
}
