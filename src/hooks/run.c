/*-------------------------------------------------------------------------
 *
 * run.c
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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/ps_status.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/quiet_exit.h"
#include "base/utf8.h"
#include "fence/fence.h"
#include "hooks.h"
#include "shared/events.h"

static HookRun *run = NULL;
static const Hook *hook;		/* a copy: the file may be read again */
static char *command;			/* in the database's encoding, once it is known */

static emit_log_hook_type prev_emit_log = NULL;

/* ---- the result ------------------------------------------------------ */

/* As messages for clients are converted: client_encoding is UTF8. */
static const char *
to_utf8(const char *message)
{
	return pg_server_to_client(message, (int) strlen(message));
}

/*
 * An emit_log_hook.  An error that nobody catches, and one at the connection, is
 * the result of the run, and ends the process.  It is logged if it is not that
 * of the run before.
 */
static void
keep_error(ErrorData *edata)
{
	int			len;

	if (prev_emit_log)
		prev_emit_log(edata);
	if (edata->elevel < ERROR || edata->elevel > FATAL ||
		edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		return;
	len = snprintf(run->message, sizeof(run->message), "%s%s%s", to_utf8(edata->message),
				   edata->detail ? "\nDETAIL:  " : "", edata->detail ? to_utf8(edata->detail) : "");
	run->message[pg_encoding_mbcliplen(PG_UTF8, run->message, Min(len, HOOKS_MESSAGE_SIZE - 1),
									   HOOKS_MESSAGE_SIZE - 1)] = '\0';
	run->sqlerrcode = edata->sqlerrcode;
	run->status = HOOK_FAILED;
	edata->output_to_server = hook->sqlerrcode != run->sqlerrcode ||
		strcmp(hook->message, run->message) != 0;
}

static void
show_hook(void *arg)
{
	errcontext("hook in line %d of the hooks file, event \"%s\"", hook->line,
			   hook_event_name(hook->event));
}

/*
 * An exit callback.  After it nobody may take a crash of the server for one of
 * the hook: its transaction is over.
 */
static void
end_run(int code, Datum arg)
{
	pg_write_barrier();			/* handshake.pml: RUN_OVER */
	pg_atomic_write_u32(&run->state, RUN_OVER);
	events_wake();
}

/*
 * SIGQUIT: another process has crashed, and this one has to go for that.  If it
 * has parallel workers, that may have been one of them: it is not innocent.
 */
static void
handle_quit(SIGNAL_ARGS)
{
	uint32		expected = RUN_RUNNING;

	if (!ParallelContextActive())
		(void) pg_atomic_compare_exchange_u32(&run->state, &expected, RUN_TOLD_TO_QUIT);
	_exit(2);
}

/* ---- the session ------------------------------------------------------ */

/* Tells the hook what it is for, and fences it.  Its settings are those of hooks/settings.c. */
static void
begin_hook(void)
{
	char		number[32];

	StartTransactionCommand();
	command = MemoryContextStrdup(TopMemoryContext,
								  pg_any_to_server(command, (int) strlen(command), PG_UTF8));
	debug_query_string = command;
	pgstat_report_activity(STATE_RUNNING, command);
	snprintf(number, sizeof(number), "%dms", hook->timeout_ms);
	SetConfigOption("statement_timeout", number, PGC_SUSET, PGC_S_SESSION);
	SetConfigOption("application_name", psprintf("etcd_leader hook in line %d", hook->line),
					PGC_USERSET, PGC_S_SESSION);
	snprintf(number, sizeof(number), INT64_FORMAT, run->token);
	SetConfigOption("etcd_leader.hook_fencing_token", run->token ? number : "", PGC_SUSET,
					PGC_S_OVERRIDE);
	SetConfigOption("etcd_leader.hook_event", hook_event_name(hook->event), PGC_SUSET,
					PGC_S_OVERRIDE);
	SetConfigOption("etcd_leader.hook_election", utf8_to_server(run->election_name), PGC_SUSET,
					PGC_S_OVERRIDE);
	SetConfigOption("etcd_leader.hook_reason", utf8_to_server(run->reason), PGC_SUSET,
					PGC_S_OVERRIDE);
	if (hook->event == HOOK_ELECTED)
		fence_bind(run->election_name, run->token);
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
 * the command may set itself less.
 */
static void
begin_statement(void)
{
	int64		left_ms = hook->timeout_ms - (clock_now_ns() - run->started_ns) / NSEC_PER_MSEC;

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
	plans = pg_analyze_and_rewrite_fixedparams(parse_tree, command, NULL, 0, NULL);
	plans = pg_plan_queries(plans, command, CURSOR_OPT_PARALLEL_OK, NULL);
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
	PortalDefineQuery(portal, NULL, command, tag, plans, NULL);
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

/* The whole command is parsed first: nothing runs if a part of it cannot be. */
static void
run_command(void)
{
	MemoryContext parse_context = AllocSetContextCreate(TopMemoryContext, "hook",
														ALLOCSET_DEFAULT_SIZES);
	MemoryContext statement_context = AllocSetContextCreate(TopMemoryContext, "hook statement",
															ALLOCSET_DEFAULT_SIZES);
	List	   *parse_trees;
	ListCell   *cell;

	StartTransactionCommand();
	MemoryContextSwitchTo(parse_context);
	parse_trees = pg_parse_query(command);
	CommitTransactionCommand();
	foreach(cell, parse_trees)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
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

/* ---- the process ----------------------------------------------------- */

/* Makes this process that of the run.  False if it must not begin. */
static bool
begin_run(void)
{
	uint32		expected = RUN_STARTING;
	HookSet    *set;

	if (memcmp(MyBgworkerEntry->bgw_extra, &run->started_ns, sizeof(run->started_ns)) != 0)
		return false;
	pg_atomic_write_u32(&run->pid, (uint32) MyProcPid);
	if (!pg_atomic_compare_exchange_u32(&run->state, &expected, RUN_RUNNING))
		return false;
	before_shmem_exit(end_run, (Datum) 0);

	/* the line may have gone meanwhile */
	set = hooks_copy();
	hook = hooks_find(set, run->hook_id);
	if (hook == NULL || hooks_is_held(hook->database))
		return false;
	command = set->commands + hook->command;
	run->status = HOOK_RUNNING;
	return true;
}

void
etcd_leader_hook_main(Datum main_arg)
{
	ErrorContextCallback context = {.callback = show_hook};

	run = &hooks_memory->runs[DatumGetInt32(main_arg)];
	pqsignal(SIGQUIT, handle_quit);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	quiet_exit_install();
	quiet_exit_always(true);
	if (!begin_run())
		proc_exit(0);
	prev_emit_log = emit_log_hook;
	emit_log_hook = keep_error;
	context.previous = error_context_stack;
	error_context_stack = &context;
	BackgroundWorkerUnblockSignals();

	hook_settings_pin();
	BackgroundWorkerInitializeConnection(hook->database, hook->role, 0);
	hook_settings_forget();
	begin_hook();
	run_command();
	run->status = HOOK_SUCCEEDED;
	proc_exit(0);
}
