/*-------------------------------------------------------------------------
 *
 * hook_worker.c
 *	  Runs a hook: one command, as one role, in a process of its own.
 *
 * The statements are executed as those of a client that sends them one by one,
 * as psql does with a file: each is a transaction of its own, unless BEGIN has
 * opened a block.  So what cannot run in a function (ALTER SYSTEM, VACUUM, a
 * procedure that commits) runs here.  The first error ends the run.
 *
 * The process begins as the role, and never becomes another one.  So the hook
 * can do nothing that the role may not do.
 *
 * A hook of changes runs for one change after the other, as in a session that
 * is new each time.  The process waits for more of them for a second.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "commands/discard.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/ps_status.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/quiet_exit.h"
#include "fence/fence.h"
#include "hook_register.h"
#include "hook_run.h"
#include "shared/events.h"
#include "shared/shared_state.h"

#define NS_PER_MS	INT64CONST(1000000)

/* In the segment that the launcher made. */
static HookRun *run = NULL;

/* For how long a process works off changes.  It keeps a place for so long. */
#define CHANGES_NS	(1000 * NS_PER_MS)

/* When the timeout will be over, in ns of shared_state_clock_ns(). */
static int64 deadline_ns;

static emit_log_hook_type prev_emit_log = NULL;

/* ---- the result ------------------------------------------------------ */

/* Tells the launcher how the run has ended. */
static void
set_result(HookResult result, int sqlerrcode, const char *message, const char *detail)
{
	char		text[HOOK_MESSAGE_SIZE];
	int			len;

	if (pg_atomic_read_u32(&run->result) != HOOK_UNFINISHED)
		return;
	len = snprintf(text, sizeof(text), "%s%s%s", message ? message : "",
				   detail ? "\nDETAIL:  " : "", detail ? detail : "");
	len = pg_mbcliplen(text, Min(len, (int) sizeof(text) - 1), HOOK_MESSAGE_SIZE - 1);
	memcpy(run->message, text, len);
	run->message[len] = '\0';
	run->sqlerrcode = sqlerrcode;
	pg_write_barrier();
	pg_atomic_write_u32(&run->result, result);
}

/*
 * An emit_log_hook.  An error that ends the process, for example at the
 * connection, is the result of the run.  The launcher logs it, and not each
 * time.
 */
static void
keep_message(ErrorData *edata)
{
	if (edata->elevel == FATAL && run != NULL && edata->sqlerrcode != ERRCODE_ADMIN_SHUTDOWN)
		set_result(HOOK_FAILED, edata->sqlerrcode, edata->message, edata->detail);
	if (prev_emit_log)
		prev_emit_log(edata);
}

static void
release_place(int code, Datum ticket)
{
	hook_register_release(DatumGetUInt64(ticket));
}

/* ---- the role -------------------------------------------------------- */

/*
 * The server does not count background workers against the limit of a role.  A
 * client of the role would be one more.
 */
static void
check_connection_limit(void)
{
	HeapTuple	tuple;
	int			limit = -1;

	StartTransactionCommand();
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetSessionUserId()));
	if (HeapTupleIsValid(tuple))
	{
		limit = ((Form_pg_authid) GETSTRUCT(tuple))->rolconnlimit;
		ReleaseSysCache(tuple);
	}
	if (limit >= 0 && !superuser() && CountUserBackends(GetSessionUserId()) >= limit)
		ereport(FATAL,
				(errcode(ERRCODE_TOO_MANY_CONNECTIONS),
				 errmsg("too many connections for role \"%s\"", run->role)));
	CommitTransactionCommand();
}

/* ---- statements ------------------------------------------------------ */

/* ERROR for what would read or write the files that the server was started with. */
static void
check_statement(const Node *statement)
{
	if (IsA(statement, CopyStmt) && ((const CopyStmt *) statement)->filename == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("COPY FROM STDIN and COPY TO STDOUT are not possible in a hook"),
				 errdetail("A hook has no client.")));
}

/*
 * Begins a transaction, or goes on in the block, with what is left of the time;
 * the role may set itself less.
 */
static void
begin_statement(void)
{
	int64		left_ms = (deadline_ns - shared_state_clock_ns()) / NS_PER_MS;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (StatementTimeout > 0)
		left_ms = Min(left_ms, StatementTimeout);
	enable_timeout_after(STATEMENT_TIMEOUT, (int) Max(left_ms, 1));
}

/* Parse analysis, rewriting and planning. */
static List *
plan_statement(RawStmt *parse_tree)
{
	bool		needs_snapshot = analyze_requires_snapshot(parse_tree);
	List	   *plans;

	if (needs_snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	plans = pg_analyze_and_rewrite_fixedparams(parse_tree, run->command, NULL, 0, NULL);
	plans = pg_plan_queries(plans, run->command, CURSOR_OPT_PARALLEL_OK, NULL);
	if (needs_snapshot)
		PopActiveSnapshot();
	CHECK_FOR_INTERRUPTS();
	return plans;
}

/*
 * Runs one statement and ends its transaction, as exec_simple_query() does with
 * a message of one statement (postgres.c).  The result goes nowhere.
 */
static void
run_statement(RawStmt *parse_tree)
{
	CommandTag	tag = CreateCommandTag(parse_tree->stmt);
	MemoryContext context = CurrentMemoryContext;
	DestReceiver *receiver;
	Portal		portal;
	List	   *plans;

	set_ps_display(GetCommandTagName(tag));
	begin_statement();
	check_statement(parse_tree->stmt);

	/* what is made here outlives the commits of a procedure */
	MemoryContextSwitchTo(context);
	plans = plan_statement(parse_tree);
	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, run->command, tag, plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	receiver = CreateDestReceiver(DestNone);
	compat_portal_run(portal, receiver);
	receiver->rDestroy(receiver);
	PortalDrop(portal, false);

	disable_timeout(STATEMENT_TIMEOUT, false);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	if (!IsTransactionBlock())
		pgstat_report_stat(false);
}

static void
reload_settings(void)
{
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

/* The whole command is parsed first: nothing runs if a part of it cannot be. */
static void
run_command(void)
{
	MemoryContext parse_context = AllocSetContextCreate(TopMemoryContext, "hook", ALLOCSET_DEFAULT_SIZES);
	MemoryContext statement_context = AllocSetContextCreate(TopMemoryContext, "hook statement", ALLOCSET_DEFAULT_SIZES);
	List	   *parse_trees;
	ListCell   *cell;

	StartTransactionCommand();
	MemoryContextSwitchTo(parse_context);
	parse_trees = pg_parse_query(run->command);
	CommitTransactionCommand();
	foreach(cell, parse_trees)
	{
		CHECK_FOR_INTERRUPTS();
		reload_settings();
		MemoryContextSwitchTo(statement_context);
		run_statement(lfirst_node(RawStmt, cell));
		MemoryContextReset(statement_context);
	}

	/* psql would end its connection here, and so roll back */
	if (IsTransactionBlock())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("the command ended within a transaction block"),
				 errdetail("The block was rolled back."),
				 errhint("End the block with COMMIT.")));
}

/*
 * Runs the command.  False if it has failed, which is told.  An error is not
 * logged here, as it may be that of the run before.
 */
static bool
try_command(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool has_succeeded = false;

	deadline_ns = shared_state_clock_ns() + run->timeout_ms * NS_PER_MS;
	pg_atomic_write_u64(&run->began_ns, (uint64) shared_state_clock_ns());
	debug_query_string = run->command;
	pgstat_report_activity(STATE_RUNNING, run->command);
	PG_TRY();
	{
		run_command();
		has_succeeded = true;
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		HOLD_INTERRUPTS();
		disable_all_timeouts(false);
		QueryCancelPending = false;
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		set_result(HOOK_FAILED, edata->sqlerrcode, edata->message, edata->detail);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	return has_succeeded;
}

/* ---- changes --------------------------------------------------------- */

/* Makes the session as good as new, and tells it of the change. */
static void
begin_change(const SharedEvent *event)
{
	DiscardStmt all = {.type = T_DiscardStmt,.target = DISCARD_ALL};
	bool		is_gap = event->key[0] == '\0';
	char		revision[32] = "";
	struct
	{
		const char *name;
		const char *value;
	}			settings[] = {
		{"etcd_leader.change_type", is_gap ? "gap" : event->has_value ? "put" : "delete"},
		{"etcd_leader.change_key", event->key},
		{"etcd_leader.change_value", event->value},
		{"etcd_leader.change_revision", revision},
		{"etcd_leader.change_reason", event->reason}
	};

	if (!is_gap)
		snprintf(revision, sizeof(revision), INT64_FORMAT, event->revision);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	DiscardCommand(&all, true);
	for (Size i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i].name, shared_state_text(settings[i].value), PGC_USERSET, PGC_S_CLIENT);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Runs the command for one change.  False if it has failed. */
static bool
run_change(const SharedEvent *event)
{
	uint32		n = pg_atomic_read_u32(&run->nsucceeded);
	HookChange *change = &hook_run_changes(run)[n];

	begin_change(event);
	change->seq = event->seq;
	change->revision = event->revision;
	change->started_at = GetCurrentTimestamp();
	change->ended_at = DT_NOEND;
	pg_write_barrier();
	pg_atomic_write_u32(&run->nbegun, n + 1);
	if (!try_command())
		return false;
	change->ended_at = GetCurrentTimestamp();
	pg_write_barrier();
	pg_atomic_write_u32(&run->nsucceeded, n + 1);
	pgstat_report_activity(STATE_IDLE, NULL);
	return true;
}

/*
 * The next change, if it comes in time, and nobody wants the place meanwhile.  A
 * request to cancel is for a command, and none is running.
 */
static bool
wait_for_change(int64 after, int64 until_ns, SharedEvent *event)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderHookChange");
	int64		left_ns;
	bool		found;

	HOLD_CANCEL_INTERRUPTS();
	events_prepare_to_sleep();
	while ((left_ns = until_ns - shared_state_clock_ns()) > 0 && !(found = events_next_change(after, event)) &&
		   hook_register_refusals() == run->refusals)
		(void) events_sleep(left_ns / NS_PER_MS + 1, wait_event);
	events_cancel_sleep();
	QueryCancelPending = false;
	RESUME_CANCEL_INTERRUPTS();
	return left_ns > 0 && found;
}

/* Runs the command for each change that comes within some time. */
static bool
run_changes(void)
{
	int64		until_ns = shared_state_clock_ns() + CHANGES_NS;
	SharedEvent event = {.seq = run->after,.reason = EVENT_REASON_GAP};

	if (run->begins_with_gap && !run_change(&event))
		return false;
	while (pg_atomic_read_u32(&run->nsucceeded) < HOOK_MAX_CHANGES && wait_for_change(event.seq, until_ns, &event))
	{
		if (!run_change(&event))
			return false;
	}
	return true;
}

/* ---- the process ----------------------------------------------------- */

/* The segment of the launcher; the process ends if that has gone. */
static HookRun *
attach_run(dsm_handle handle)
{
	dsm_segment *segment;

	/* without an owner it belongs to this process until it ends */
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "etcd_leader hook");
	segment = dsm_attach(handle);
	if (segment == NULL)
		proc_exit(0);
	dsm_pin_mapping(segment);
	ResourceOwnerDelete(CurrentResourceOwner);
	CurrentResourceOwner = NULL;
	return dsm_segment_address(segment);
}

/* The record of a run is there before the run begins. */
static void
wait_for_record(uint64 ticket)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderHookRecord");

	events_prepare_to_sleep();
	while (pg_atomic_read_u32(&run->may_begin) == 0)
	{
		if (!hook_register_is_reserved(ticket))
			proc_exit(0);
		(void) events_sleep(-1, wait_event);
	}
	events_cancel_sleep();
}

/* Has each transaction of this process require the leadership of the run. */
static void
bind_to_leadership(void)
{
	if (run->token == 0)
		return;
	StartTransactionCommand();
	fence_bind(run->election, run->token);
	AbortCurrentTransaction();
}

void
etcd_leader_hook_main(Datum main_arg)
{
	HookRunStart start;
	char		timeout[32];

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	hook_register_set_mine(start.ticket);
	before_shmem_exit(release_place, UInt64GetDatum(start.ticket));
	if (!hook_register_is_reserved(start.ticket))
		proc_exit(0);

	quiet_exit_install();
	quiet_exit_always(true);
	prev_emit_log = emit_log_hook;
	emit_log_hook = keep_message;
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	run = attach_run(DatumGetUInt32(main_arg));
	BackgroundWorkerInitializeConnection(run->database, run->role, 0);
	check_connection_limit();
	SetConfigOption("application_name", psprintf("etcd_leader hook %s", run->name), PGC_USERSET, PGC_S_CLIENT);
	snprintf(timeout, sizeof(timeout), "%dms", run->timeout_ms);
	SetConfigOption("statement_timeout", timeout, PGC_USERSET, PGC_S_CLIENT);

	wait_for_record(start.ticket);
	bind_to_leadership();
	if (run->is_of_changes ? run_changes() : try_command())
		set_result(HOOK_SUCCEEDED, 0, NULL, NULL);
	proc_exit(0);
}
