/*-------------------------------------------------------------------------
 *
 * leader_only_worker.c
 *	  A background worker that works only while its instance leads.
 *
 * Its work is a row in the table "work" of database "postgres", ten times a
 * second.  Each transaction is fenced: it commits only if the instance still
 * leads under the token that is in the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "etcd_leader/etcd_leader.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);
extern PGDLLEXPORT void leader_only_worker_main(Datum main_arg);

/* How long a transaction of the worker takes, in milliseconds. */
static int	pause_ms;

static void
work(int64 token)
{
	Oid			types[] = {INT8OID, FLOAT8OID};
	Datum		values[] = {Int64GetDatum(token), Float8GetDatum(pause_ms / 1000.0)};

	SPI_connect();
	SPI_execute_with_args("INSERT INTO work (token) SELECT $1 FROM pg_sleep($2)",
						  2, types, values, NULL, false, 0);
	SPI_finish();
}

/* One fenced transaction.  That leadership was lost meanwhile is logged. */
static void
run_transaction(const EtcdLeaderApi *api)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		work(api->require_leader(NULL));
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
}

void
leader_only_worker_main(Datum main_arg)
{
	const EtcdLeaderApi *api;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection("postgres", NULL, 0);

	api = etcd_leader_api();
	if (api == NULL)
		ereport(FATAL, (errmsg("etcd_leader is not loaded")));
	for (;;)
	{
		uint64		seen = api->change_number();	/* before what it is about */
		bool		leads = api->is_leader(NULL);

		if (leads)
			run_transaction(api);
		(void) api->wait_for_change(seen, leads ? 100 : -1, PG_WAIT_EXTENSION);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

void
_PG_init(void)
{
	BackgroundWorker worker;

	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomIntVariable("leader_only_worker.pause", "Sets how long a transaction takes.", NULL,
							&pause_ms, 0, 0, 60000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "leader_only_worker", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "leader_only_worker_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "leader only worker", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "leader only worker", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
