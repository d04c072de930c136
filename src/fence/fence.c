/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Transactions that only the leader can commit.
 *
 * A transaction is fenced by etcd_require_leader(), by
 * etcd_leader.require_leadership if it writes, or as one of a hook.  Fenced, it
 * remembers the fencing token, and must find this instance leading under the
 * same token when it is about to commit.  The PRE_COMMIT callback checks that.
 * What follows the callback (ON COMMIT actions, the NOTIFY lock, WAL flush,
 * the wait for a synchronous standby) is not covered.  The outermost statement
 * checks at its end as well, since callbacks of other libraries can come before
 * ours.
 *
 * While a statement of a fenced transaction runs, a timer of this backend
 * checks, too, and cancels the statement after a loss.  Only the backend
 * itself may do so.  A signal from another process could arrive while the
 * commit waits for a synchronous standby, and end that wait (syncrep.c).  The client
 * would then see the commit succeed although no standby has confirmed it.  So the
 * timer does nothing from PRE_COMMIT on.
 *
 * The cancellation is QUERY_CANCELED until it leaves the outermost statement,
 * and only there becomes 25006: WHEN OTHERS of PL/pgSQL does not catch the
 * former.  A session can wait outside of statements, too, where there is no hook:
 * for the lock of a table that it parses, plans or binds, or in a fast-path
 * function call.  There a callback of the error's context makes it 25006.
 *
 * A leader that is about to hand over drains first: it takes no new work, and
 * waits for the transactions that are fenced already.  A transaction shows that
 * it is (fenced.h) before it looks whether the leader takes new work.  Once
 * fenced, it sees the leadership as before.  A transaction that is READ ONLY is
 * not waited for.  A statement that goes on in another transaction, such as
 * VACUUM, hands its place on.
 *
 * A COPY that waits for data from the client cannot be cancelled: the client
 * and the server would disagree about where the next message begins.  The
 * session ends then, as PostgreSQL ends one for pg_terminate_backend().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "demands.h"
#include "fence.h"
#include "requirement.h"
#include "settings/settings.h"
#include "shared/stats.h"
#include "shared/status.h"
#include "state.h"

/*
 * How often the timer checks: a loss ends the statement well within a second.
 */
#define WATCH_INTERVAL_MS	250

/* The timer's; PostgreSQL has no use for it. */
#define WATCH_SIGNAL		SIGVTALRM

/* Older releases of glibc have the field without its name. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id	_sigev_un._tid
#endif

/* The timer.  It belongs to the process, and goes on after a transaction. */
static struct
{
	timer_t		id;
	bool		is_created;
	volatile sig_atomic_t is_running;
}			timer;

/* What these hooks were before, or PostgreSQL's own function. */
static post_parse_analyze_hook_type prev_post_parse_analyze;
static ExecutorRun_hook_type prev_executor_run;
static ExecutorFinish_hook_type prev_executor_finish;
static ProcessUtility_hook_type prev_process_utility;

/* ---- errors ---------------------------------------------------------------- */

/* ERROR if a requirement does not hold, that of the setting if it writes. */
static void
check_requirements(bool writes)
{
	const Requirement *broken = demands_broken(writes);

	if (broken)
		requirement_report_broken(broken, requirement_known_leader(broken->election));
}

pg_noreturn static void
refuse_commit(const Requirement *broken)
{
	stats_count(COUNTER_COMMITS_REFUSED, 1);
	requirement_report_broken(broken, requirement_known_leader(broken->election));
}

/* Does this process execute what a client sends? */
static bool
is_client(void)
{
	return MyBackendType == B_BACKEND || MyBackendType == B_WAL_SENDER;
}

/* ---- the timer's cancellation outside of statements ---------------------------- */

/*
 * Is the error that is raised, or handled, the cancellation that the timer has
 * sent?  True once.
 */
static bool
take_cancellation(void)
{
	if (fence_state.sent != FENCE_CANCEL_SENT || geterrcode() != ERRCODE_QUERY_CANCELED)
		return false;
	fence_note(FENCE_FORGET_CANCEL);
	stats_count(COUNTER_STATEMENTS_CANCELLED, 1);
	return true;
}

/*
 * An error context callback.  Outside of statements there is no hook that sees an
 * error, and hardly any PL/pgSQL that could catch it.  So it becomes 25006 at once.
 */
static void
explain_cancellation(void *arg)
{
	if (fence_state.depth == 0 && take_cancellation())
		requirement_errbroken(demands_lost(), NULL);
}

/*
 * Puts the callback on the stack, for as long as the session lasts.  An error that
 * reaches the session's loop empties the stack, so this is called again and
 * again, and not by the hooks of statements: these run within PG_TRY(), whose end
 * restores the stack.  Others take their callbacks off the top, so this one goes
 * to the bottom.
 */
static void
keep_explaining(void)
{
	static ErrorContextCallback explanation = {NULL, explain_cancellation, NULL};
	ErrorContextCallback **bottom = &error_context_stack;

	while (*bottom != NULL && *bottom != &explanation)
		bottom = &(*bottom)->previous;
	*bottom = &explanation;
}

/* Each statement that a client sends comes by here, before anything runs it. */
static void
post_parse_analyze(ParseState *pstate, Query *query, CompatJumbleState *jstate)
{
	if (fence_state.depth == 0)
		keep_explaining();
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
}

/* ---- the timer --------------------------------------------------------------- */

/*
 * Does COPY still wait for its client, although it has been cancelled?  While
 * PostgreSQL reads a message, it holds cancellations back.
 */
static bool
is_stuck_in_copy(void)
{
	return fence_state.sent != FENCE_NO_SIGNAL && fence_state.copying &&
		QueryCancelHoldoffCount > 0;
}

/*
 * Sets the timer's interval; 0 stops it.  The timer's handler calls this, too.
 */
static bool
set_watch(long interval_ms)
{
	struct itimerspec spec = {0};

	spec.it_interval.tv_nsec = spec.it_value.tv_nsec = interval_ms * NSEC_PER_MSEC;
	if (timer_settime(timer.id, 0, &spec, NULL) != 0)
		return false;
	timer.is_running = interval_ms > 0;
	return true;
}

/*
 * Does the session do anything that the client waits for?  A fast-path function
 * call has no text.  If this is wrong for once, nothing is cancelled: PostgreSQL
 * drops a cancellation that comes between two commands.
 */
static bool
is_busy(void)
{
	if (fence_state.depth > 0 || debug_query_string != NULL)
		return true;
	return is_client() && *my_wait_event_info != WAIT_EVENT_CLIENT_READ;
}

/*
 * The timer's handler.  It reads atomics and the clock, and cancels as
 * StatementCancelHandler() does (postgres.c), or ends the session as die()
 * does.  A session that waits for its client between commands is not
 * disturbed; its next command will fail.
 */
static void
watch_leadership(SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (fence_state.phase != FENCE_WATCHED)
		(void) set_watch(0);
	else if (settings_cancel_on_loss && is_busy() &&
			 demands_broken(demands_has_written()) != NULL)
	{
		if (is_stuck_in_copy())
		{
			fence_note(FENCE_SEND_END);
			ProcDiePending = true;
		}
		else
			fence_note(FENCE_SEND_CANCEL);
		InterruptPending = true;
		QueryCancelPending = true;
		SetLatch(MyLatch);
	}
	errno = save_errno;
}

/*
 * Starts the timer.  It is not one of PostgreSQL's timeouts, because these use
 * the wall clock: if that is set back by an hour, they come an hour late.
 *
 * Setting a timer costs microseconds, a percent of a short transaction.  So it
 * goes on after the transaction, for the next one, and the first tick that
 * finds none stops it.
 */
static void
start_watching(void)
{
	if (!settings_cancel_on_loss || fence_state.phase == FENCE_CLOSING)
		return;
	/* before the look: from now on no tick stops it; both are volatile */
	fence_note(FENCE_WATCH);
	if (timer.is_running)
		return;
	if (!timer.is_created)
	{
		struct sigevent event = {0};

		/* Other libraries may have threads, and PostgreSQL's are not for them. */
		event.sigev_notify = SIGEV_THREAD_ID;
		event.sigev_notify_thread_id = MyProcPid;
		event.sigev_signo = WATCH_SIGNAL;
		pqsignal(WATCH_SIGNAL, watch_leadership);
		if (timer_create(CLOCK_MONOTONIC, &event, &timer.id) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not create a timer: %m")));
		timer.is_created = true;
	}
	if (!set_watch(WATCH_INTERVAL_MS))
		ereport(FATAL,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not set a timer: %m")));
}

/* ---- fencing -------------------------------------------------------------------- */

int64
fence_require(int election_index)
{
	/*
	 * A requirement of a parallel worker would end with the worker.  This
	 * function is marked PARALLEL RESTRICTED, but a function that calls it may
	 * be marked wrongly.
	 */
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot require leadership in a parallel worker"),
				 errhint("Mark the function that does so PARALLEL RESTRICTED.")));

	/* This may fail.  A call that fails must not leave the transaction fenced. */
	start_watching();
	return demands_require(election_index);
}

bool
fence_leads(int election_index)
{
	return status_leads(election_index) ||
		(election_index >= 0 && demands_held(settings_election_name(election_index)) != NULL);
}

int64
fence_token(int election_index)
{
	int64		token = status_token(election_index);
	const Requirement *held;

	if (likely(token != 0) || election_index < 0)
		return token;
	held = demands_held(settings_election_name(election_index));
	return held ? held->token : 0;
}

void
fence_bind(const char *election, int64 token)
{
	demands_bind(election, token);
}

void
fence_step_aside(const char *election)
{
	demands_step_aside(election);
}

void
fence_step_back(void)
{
	demands_advertise();
}

/* ---- statements ---------------------------------------------------------------- */

/* The kind of a command that controls transactions; -1: it is none, or NULL. */
static int
transaction_kind(const Node *statement)
{
	return statement != NULL && IsA(statement, TransactionStmt) ?
		(int) castNode(TransactionStmt, statement)->kind : -1;
}

/*
 * May a transaction that cannot commit any more still run this?  Only commands
 * that end it.
 */
static bool
ends_transaction(const Node *statement)
{
	switch (transaction_kind(statement))
	{
		case TRANS_STMT_COMMIT:
		case TRANS_STMT_PREPARE:
		case TRANS_STMT_ROLLBACK:
		case TRANS_STMT_ROLLBACK_TO:
			return true;
		default:
			return false;
	}
}

/*
 * Called before each statement, also before nested ones, since procedures
 * begin new transactions.  utility: NULL for a statement that the executor
 * runs.
 */
static void
begin_statement(const Node *utility)
{
	/* PostgreSQL has dropped it between two commands */
	if (fence_state.depth == 0 && fence_state.sent == FENCE_CANCEL_SENT && !QueryCancelPending)
		fence_note(FENCE_FORGET_CANCEL);
	/* an aborted transaction can only be ended */
	if (IsTransactionState())
	{
		demands_record_setting();
		if (demands_exist() && settings_cancel_on_loss)
		{
			if (fence_state.depth == 0 && !ends_transaction(utility))
				check_requirements(demands_has_written());
			start_watching();
		}
	}
	fence_note(FENCE_BEGIN_STATEMENT);
}

/*
 * After an error in a statement, in its memory context.  If it is the timer's
 * cancellation, and this is the outermost statement, the error becomes the one
 * that says so.  (PL/pgSQL that runs outside of statements, as in a deferred
 * trigger, can catch it then; its next statement is refused.)
 */
static void
abandon_statement(MemoryContext context)
{
	fence_note(FENCE_END_STATEMENT);
	if (fence_state.depth > 0 || !take_cancellation())
		return;
	MemoryContextSwitchTo(context);
	FlushErrorState();
	requirement_report_broken(demands_lost(), NULL);
}

/*
 * May a commit follow this statement in a transaction block?  A block may be
 * the implicit one of a query string, and this its last statement.  It may as
 * well go on; so without cancel_on_loss only COMMIT counts.  utility: NULL for
 * a statement that the executor runs.
 */
static bool
may_end_block(const Node *utility)
{
	/* a transaction that has failed does not commit */
	if (transaction_kind(utility) == TRANS_STMT_COMMIT)
		return IsTransactionState();
	return settings_cancel_on_loss && !ends_transaction(utility);
}

/*
 * Called when a statement has succeeded.  The callback below comes too late if
 * libraries that were loaded after this one act in theirs: postgres_fdw commits
 * on the other servers there.  An ERROR here ends the transaction.  in_block:
 * what may_end_block() said.
 */
static void
check_end(bool in_block)
{
	const Requirement *broken;

	if (fence_state.depth == 1 && (in_block || !IsTransactionBlock()) &&
		(broken = demands_broken(demands_has_written())) != NULL)
		refuse_commit(broken);
}

static void
executor_run(COMPAT_EXECUTOR_RUN_PARAMS)
{
	MemoryContext context = CurrentMemoryContext;

	begin_statement(NULL);
	PG_TRY();
	{
		prev_executor_run(COMPAT_EXECUTOR_RUN_ARGS);
	}
	PG_CATCH();
	{
		abandon_statement(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	fence_note(FENCE_END_STATEMENT);
}

/* AFTER triggers run here. */
static void
executor_finish(QueryDesc *query_desc)
{
	MemoryContext context = CurrentMemoryContext;

	begin_statement(NULL);
	PG_TRY();
	{
		prev_executor_finish(query_desc);
		check_end(may_end_block(NULL));
	}
	PG_CATCH();
	{
		abandon_statement(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	fence_note(FENCE_END_STATEMENT);
}

/*
 * COMMIT PREPARED commits a prepared transaction without the callback below.
 */
static void
check_commit_prepared(const Node *statement)
{
	Requirement requirement;

	if (transaction_kind(statement) != TRANS_STMT_COMMIT_PREPARED || !demands_is_role_fenced())
		return;
	requirement_init(&requirement, settings_require_leadership);
	requirement.token = requirement_current_token(&requirement);	/* a drain allows it */
	if (requirement.token != 0)
		return;
	stats_count(COUNTER_COMMITS_REFUSED, 1);
	requirement_check_election(&requirement);
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("this instance does not lead election \"%s\"", requirement.shown),
			 errdetail("\"%s\" allows only the leader to commit a prepared transaction.",
					   "etcd_leader.require_leadership"),
			 errhint("Commit it when this instance leads, or roll it back.")));
}

/*
 * These statements change files or another server before their transaction
 * commits.  A refusal at the commit would come too late.
 */
static bool
acts_before_commit(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_AlterDatabaseStmt:
		case T_CreateTableSpaceStmt:
		case T_DropTableSpaceStmt:
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
		case T_DropSubscriptionStmt:
			return true;
		default:
			return false;
	}
}

/* Does it read data from the client? */
static bool
is_copy_from_client(const Node *statement)
{
	return IsA(statement, CopyStmt) && castNode(CopyStmt, statement)->is_from &&
		castNode(CopyStmt, statement)->filename == NULL;
}

/*
 * Called at the end of a statement.  COPY FROM STDIN is always the outermost
 * one.  If the timer has ordered the end of the session, that must not come
 * later, when the callback below is gone.
 */
static void
end_copy(void)
{
	if (fence_state.depth > 1)
		return;
	fence_note(FENCE_END_COPY);
	if (fence_state.sent == FENCE_END_SENT)
		CHECK_FOR_INTERRUPTS();
}

/*
 * An error context callback: the end of the session was ordered by the timer,
 * and not by an administrator, as PostgreSQL says.
 */
static void
explain_end(void *arg)
{
	if (fence_state.sent != FENCE_END_SENT || geterrcode() != ERRCODE_ADMIN_SHUTDOWN)
		return;
	stats_count(COUNTER_STATEMENTS_CANCELLED, 1);
	requirement_errended(demands_lost());
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext utility_context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	MemoryContext context = CurrentMemoryContext;
	Node	   *statement = pstmt->utilityStmt;	/* may be freed by a ROLLBACK */
	bool		in_block = may_end_block(statement);
	ErrorContextCallback explanation = {error_context_stack, explain_end, NULL};

	begin_statement(statement);
	if (is_copy_from_client(statement))
	{
		error_context_stack = &explanation;
		fence_note(FENCE_BEGIN_COPY);
	}
	PG_TRY();
	{
		check_commit_prepared(statement);
		if (acts_before_commit(statement))
			check_requirements(true);
		prev_process_utility(pstmt, query_string, read_only_tree, utility_context, params,
							 query_env, dest, qc);
		check_end(in_block);
	}
	PG_CATCH();
	{
		end_copy();
		abandon_statement(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_copy();
	error_context_stack = explanation.previous;
	fence_note(FENCE_END_STATEMENT);
	/* the hook of BEGIN READ ONLY ran before the transaction became read-only */
	demands_withdraw_unneeded();
}

/* ---- the end of the transaction -------------------------------------------------- */

/*
 * May the transaction commit?  ERROR if not.  From here on the timer does
 * nothing, also if another callback runs statements.  A cancellation that it
 * has requested must not reach the wait for a synchronous standby.
 */
static void
check_commit(void)
{
	const Requirement *broken;

	fence_note(FENCE_CLOSE);
	demands_record_setting();	/* in case no statement has done so */
	broken = fence_state.sent != FENCE_NO_SIGNAL ? demands_lost() :
		demands_broken(demands_has_written());
	if (broken)
		refuse_commit(broken);
}

/*
 * At COMMIT PREPARED, the token is not known under which the transaction was
 * fenced.
 */
static void
check_prepare(void)
{
	demands_record_setting();
	if (demands_exist())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that requires leadership of election \"%s\"",
						demands_any()->shown)));
}

static void
end_transaction(void)
{
	fence_note(FENCE_CLOSE);	/* from here on the timer sends nothing */
	/* a cancellation that nothing has met is not for the next transaction */
	if (fence_state.sent != FENCE_NO_SIGNAL)
		QueryCancelPending = false;
	fence_note(FENCE_END);
}

/*
 * A statement that commits during its work, as CREATE INDEX CONCURRENTLY does,
 * goes on in another transaction.  No hook is called when that one begins, so
 * it requires the current leadership.  Nothing here may fail, because the
 * transaction before is committed.
 */
static void
continue_statement(void)
{
	demands_continue();
	if (demands_exist() && timer.is_created && settings_cancel_on_loss)
	{
		fence_note(FENCE_WATCH);
		if (!timer.is_running)
			(void) set_watch(WATCH_INTERVAL_MS);
	}
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			check_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			check_prepare();
			break;
		case XACT_EVENT_COMMIT:
			keep_explaining();
			end_transaction();
			if (fence_state.depth > 0)
				continue_statement();
			demands_advertise();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			keep_explaining();
			end_transaction();
			if (fence_state.depth > 0 && event == XACT_EVENT_ABORT && !proc_exit_inprogress)
				continue_statement();	/* ROLLBACK in a procedure */
			demands_advertise();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* the leader of the parallel query is asked */
	}
}

void
fence_install(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = post_parse_analyze;
	prev_executor_run = ExecutorRun_hook ? ExecutorRun_hook : standard_ExecutorRun;
	ExecutorRun_hook = executor_run;
	prev_executor_finish = ExecutorFinish_hook ? ExecutorFinish_hook : standard_ExecutorFinish;
	ExecutorFinish_hook = executor_finish;
	prev_process_utility = ProcessUtility_hook ? ProcessUtility_hook : standard_ProcessUtility;
	ProcessUtility_hook = process_utility;
	RegisterXactCallback(xact_callback, NULL);
}
