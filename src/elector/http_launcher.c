/*-------------------------------------------------------------------------
 *
 * http_launcher.c
 *	  The start of the HTTP worker: when it is needed, and its library.
 *
 * What the worker does is in a library of its own, etcd_leader_http, so that
 * no other process loads what that needs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "http_launcher.h"
#include "settings/settings.h"
#include "shared/supervised_worker.h"

/* Is there a worker?  One at most. */
static pg_atomic_uint32 *claimed = NULL;

const SharedPart http_launcher_part = {
	.name = "etcd_leader http", .size = sizeof(pg_atomic_uint32), .memory = (void **) &claimed
};

/* ---- in the elector ----------------------------------------------------- */

static bool
is_wanted(void)
{
	return settings_http_listen[0] != '\0' || settings_http_agent_listen[0] != '\0';
}

int64
http_launcher_supervise(void)
{
	static SupervisedWorker worker = {
		.type = "etcd_leader http",
		.function = "etcd_leader_http_worker_main",
		.start_time = BgWorkerStart_ConsistentState
	};

	return worker_supervise(&worker, is_wanted(), claimed);
}

/* ---- in the worker -------------------------------------------------------- */

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
		main_function = (HttpMain) load_external_function("etcd_leader_http",
														  "etcd_leader_http_main", true, NULL);
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
				 errdetail_internal("%s%s%s", edata->message, edata->detail ? "\n" : "",
									edata->detail ? edata->detail : ""),
				 errhint("It is built where libmicrohttpd is installed. Install it and "
						 "reload the settings, or reset \"etcd_leader.http_listen\" and "
						 "\"etcd_leader.http_agent_listen\".")));
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
	if (!worker_claim(claimed))
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
