/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Transactions that only the leader can commit.
 *
 * Three things fence a transaction: etcd_require_leader(); the setting
 * etcd_leader.require_leadership_of, if the transaction writes; and fence_bind(), if
 * the process runs a hook.  A fenced transaction remembers the fencing token, and
 * commits only if this instance still leads under the same token.  The PRE_COMMIT
 * callback checks that.  The steps after the callback (ON COMMIT actions, the
 * NOTIFY lock, WAL flush, the wait for a synchronous standby) have no check.  The
 * outermost statement checks at its end as well, since callbacks of other
 * libraries can run before the PRE_COMMIT callback of this library.
 *
 * While a statement of a fenced transaction runs, a timer of this backend checks
 * as well, and cancels the statement after a loss of leadership.  Only the backend
 * itself may do so.  A signal from another process could arrive while the commit
 * waits for a synchronous standby, and end that wait (syncrep.c).  The client
 * would then see the commit succeed although no standby has confirmed it.  So the
 * timer does nothing from PRE_COMMIT on.
 *
 * The error of the cancellation is QUERY_CANCELED inside statements, since WHEN
 * OTHERS of PL/pgSQL does not catch that.  The hook of the outermost statement
 * turns it into 25006.  A session can also wait outside of statements, where there
 * is no hook: for the lock of a table that it parses, plans or binds, or in a
 * fast-path function call.  There an error context callback turns it into 25006.
 *
 * A leader that is about to hand over drains first: it refuses new work, and waits
 * for the transactions that are fenced already.  So a transaction advertises its
 * elections (fenced.h) before it looks whether the leader accepts new work.  Once
 * fenced, a transaction sees the leadership as before.  A drain does not wait for
 * a READ ONLY transaction.  A statement that goes on in the next transaction, such
 * as VACUUM, advertises its elections for that one, too.
 *
 * The timer cannot cancel a COPY that waits for data from the client: the client
 * and the server would disagree about where the next message begins.  The session
 * ends instead, as PostgreSQL ends a session for pg_terminate_backend().
 *
 * state.c has the state of the transaction, and the rules for its changes.
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
#include "decide.h"
#include "demands.h"
#include "fence.h"
#include "requirement.h"
#include "settings/settings.h"
#include "shared/stats.h"
#include "shared/status.h"
#include "state.h"

/*
 * The interval of the timer.  A loss of leadership ends the statement well within a
 * second.
 */
#define WATCH_INTERVAL_MS	250

/* The signal of the timer; PostgreSQL does not use it. */
#define WATCH_SIGNAL		SIGVTALRM

/* Older releases of glibc have no name for this field. */
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

/* The previous hooks, or the functions of PostgreSQL. */
static post_parse_analyze_hook_type prev_post_parse_analyze;
static ExecutorRun_hook_type prev_executor_run;
static ExecutorFinish_hook_type prev_executor_finish;
static ProcessUtility_hook_type prev_process_utility;

/* ---- errors ---------------------------------------------------------------- */

/*
 * ERROR if a requirement of the transaction does not hold.  writes: the
 * requirement of the setting counts.
 */
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
 * Is the current error the cancellation that the timer has sent?  True once for
 * each cancellation.
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
 * An error context callback.  Outside of statements no hook sees the error of the
 * cancellation, and hardly any PL/pgSQL could catch it.  So this callback turns it
 * into 25006 at once.
 */
static void
explain_cancellation(void *arg)
{
	if (fence_state.depth == 0 && take_cancellation())
		requirement_errbroken(demands_lost(), NULL);
}

/*
 * Puts the callback on the stack, for as long as the session lasts.  An error that
 * reaches the main loop of the session empties the stack, so each statement and
 * each end of a transaction calls this function.  The hooks of statements do not
 * call it, since they run within PG_TRY(), whose end restores the stack.  The
 * callback goes to the bottom of the stack, because other callbacks leave from the
 * top.
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

/* PostgreSQL calls this hook for each statement of a client, before it runs. */
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
 * Sets the interval of the timer; 0 stops the timer.  The signal handler calls this,
 * too.
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
 * Does the client wait for this session?  A fast-path function call has no text.
 * A wrong result cancels nothing, since PostgreSQL drops a cancellation that comes
 * between two commands.
 */
static bool
is_busy(void)
{
	if (fence_state.depth > 0 || debug_query_string != NULL)
		return true;
	return is_client() && *my_wait_event_info != WAIT_EVENT_CLIENT_READ;
}

/*
 * The signal handler of the timer.  It reads atomics and the clock.  It cancels the
 * statement as StatementCancelHandler() does (postgres.c), or ends the session as
 * die() does.  It leaves a session alone that waits for its client between
 * commands; the next command of that session will fail.
 */
static void
watch_leadership(SIGNAL_ARGS)
{
	int			save_errno = errno;
	bool		is_lost = fence_state.phase == FENCE_WATCHED && settings_cancel_on_loss &&
		is_busy() && demands_broken(demands_has_written()) != NULL;
	FenceTick	tick = decide_tick(&fence_state, is_lost, QueryCancelHoldoffCount > 0);

	if (tick == FENCE_STOP)
		(void) set_watch(0);
	if (tick == FENCE_CANCEL)
		fence_note(FENCE_SEND_CANCEL);
	if (tick == FENCE_TERMINATE)
	{
		fence_note(FENCE_SEND_END);
		ProcDiePending = true;
	}
	if (tick >= FENCE_CANCEL)
	{
		InterruptPending = true;
		QueryCancelPending = true;
		SetLatch(MyLatch);
	}
	errno = save_errno;
}

/*
 * Starts the timer.  A timeout of PostgreSQL would not do, because it uses the wall
 * clock: if somebody sets the clock back by an hour, the timeout comes an hour late.
 *
 * Setting a timer costs microseconds, a percent of a short transaction.  So the
 * timer goes on after the transaction, for the next transaction.  The first tick
 * that finds no transaction to watch stops the timer.
 */
static void
start_watching(void)
{
	if (!settings_cancel_on_loss || fence_state.phase == FENCE_CLOSING)
		return;
	/* from here on no tick stops the timer; so look only now whether it runs */
	if (fence_state.phase != FENCE_WATCHED)
		fence_note(FENCE_WATCH);
	if (timer.is_running)
		return;
	if (!timer.is_created)
	{
		struct sigevent event = {0};

		/* threads of other libraries must not run a signal handler of PostgreSQL */
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
	 * A requirement of a parallel worker would end with the worker.  The SQL
	 * function is PARALLEL RESTRICTED, but the mark of a function that calls it may
	 * be wrong.
	 */
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot require leadership in a parallel worker"),
				 errhint("Mark the function that does so PARALLEL RESTRICTED.")));

	/* the timer first, since an ERROR here must not leave the transaction fenced */
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

/* The kind of a statement that controls transactions; -1 for others. */
static int
transaction_kind(const Node *statement)
{
	return IsA(statement, TransactionStmt) ?
		(int) castNode(TransactionStmt, statement)->kind : -1;
}

static FenceStatement
kind_of(const Node *utility)
{
	switch (transaction_kind(utility))
	{
		case TRANS_STMT_COMMIT:
			return IsTransactionState() ? FENCE_COMMIT : FENCE_UNDO;
		case TRANS_STMT_PREPARE:
		case TRANS_STMT_ROLLBACK:
		case TRANS_STMT_ROLLBACK_TO:
			return FENCE_UNDO;
		default:
			return FENCE_WORK;
	}
}

/*
 * Called before each statement, also before each nested statement, since
 * procedures begin new transactions.
 */
static void
begin_statement(FenceStatement statement)
{
	/* PostgreSQL has dropped the cancellation between two commands */
	if (fence_state.depth == 0 && fence_state.sent == FENCE_CANCEL_SENT && !QueryCancelPending)
		fence_note(FENCE_FORGET_CANCEL);
	/* the client can only end an aborted transaction */
	if (IsTransactionState())
	{
		demands_record_setting();
		if (demands_exist() && settings_cancel_on_loss)
		{
			/* one that cannot commit any more can only be undone, in part or as a whole */
			if (fence_state.depth == 0 && statement == FENCE_WORK)
				check_requirements(demands_has_written());
			start_watching();
		}
	}
	fence_note(FENCE_BEGIN_STATEMENT);
}

/*
 * Called after an error in a statement.  context: the memory context of the
 * statement.  If the error is the cancellation of the timer, and this is the
 * outermost statement, raises 25006 instead.  (PL/pgSQL that runs outside of
 * statements, as in a deferred trigger, can catch that error; its next statement
 * fails.)
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
 * Called when a statement has succeeded.  The PRE_COMMIT callback runs too late for
 * libraries that were loaded after this library and act in their own callback:
 * postgres_fdw commits on the other servers there.  An ERROR here ends the
 * transaction.
 */
static void
check_end(FenceStatement statement)
{
	const Requirement *broken;

	if (decide_checks_end(&fence_state, statement, IsTransactionBlock(),
						  settings_cancel_on_loss) &&
		(broken = demands_broken(demands_has_written())) != NULL)
		refuse_commit(broken);
}

static void
executor_run(COMPAT_EXECUTOR_RUN_PARAMS)
{
	MemoryContext context = CurrentMemoryContext;

	begin_statement(FENCE_WORK);
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

	begin_statement(FENCE_REST);
	PG_TRY();
	{
		prev_executor_finish(query_desc);
		check_end(FENCE_REST);
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
 * COMMIT PREPARED commits a prepared transaction without a PRE_COMMIT callback.
 */
static void
check_commit_prepared(const Node *statement)
{
	static Requirement requirement; /* zeroed at first, see requirement_init() */

	if (transaction_kind(statement) != TRANS_STMT_COMMIT_PREPARED || !demands_is_role_fenced())
		return;
	requirement_init(&requirement, settings_require_leadership_of);
	/* a leader that drains may still commit a prepared transaction */
	requirement.token = requirement_current_token(&requirement);
	if (requirement.token != 0)
		return;
	stats_count(COUNTER_COMMITS_REFUSED, 1);
	requirement_check_election(&requirement);
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("this instance does not lead election \"%s\"", requirement.shown),
			 errdetail("\"%s\" allows only the leader to commit a prepared transaction.",
					   "etcd_leader.require_leadership_of"),
			 errhint("Commit it when this instance leads, or roll it back.")));
}

/*
 * Does the statement change files or another server before its transaction
 * commits?  A refusal at the commit would come too late for it.
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

/* Does the statement read data from the client? */
static bool
is_copy_from_client(const Node *statement)
{
	return IsA(statement, CopyStmt) && castNode(CopyStmt, statement)->is_from &&
		castNode(CopyStmt, statement)->filename == NULL;
}

/*
 * Called at the end of a statement.  was_copying: of the state before the statement.
 * COPY FROM STDIN may be within other statements: in the script of an extension
 * that a function creates.  Triggers run statements within COPY FROM STDIN.  If the
 * timer has ordered the end of the session, the session ends here, as long as
 * explain_end() is on the stack.
 */
static void
end_copy(bool was_copying)
{
	if (was_copying || !fence_state.copying)
		return;
	fence_note(FENCE_END_COPY);
	if (fence_state.sent == FENCE_END_SENT)
		CHECK_FOR_INTERRUPTS();
}

/*
 * An error context callback.  PostgreSQL reports that an administrator has ended
 * the session; this says that the timer has.
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
	Node	   *statement = pstmt->utilityStmt;	/* a ROLLBACK may free it */
	FenceStatement kind = kind_of(statement);
	bool		was_copying = fence_state.copying;
	ErrorContextCallback explanation = {error_context_stack, explain_end, NULL};

	begin_statement(kind);
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
		check_end(kind);
	}
	PG_CATCH();
	{
		end_copy(was_copying);
		abandon_statement(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_copy(was_copying);
	error_context_stack = explanation.previous;
	fence_note(FENCE_END_STATEMENT);
	/* the hook of BEGIN READ ONLY ran before the transaction became read-only */
	demands_withdraw_unneeded();
}

/* ---- the end of the transaction -------------------------------------------------- */

/*
 * May the transaction commit?  ERROR if not.  From here on the timer does nothing,
 * also if another callback runs statements.  A cancellation that the timer has sent
 * before must not reach the wait for a synchronous standby.
 */
static void
check_commit(void)
{
	const Requirement *broken;

	fence_note(FENCE_CLOSE);
	demands_record_setting();	/* there may have been no statement */
	broken = fence_state.sent != FENCE_NO_SIGNAL ? demands_lost() :
		demands_broken(demands_has_written());
	if (broken)
		refuse_commit(broken);
}

/*
 * ERROR for PREPARE TRANSACTION.  COMMIT PREPARED would not know the token under
 * which the transaction was fenced.
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
	/* no error has come of the cancellation; it is not for the next transaction */
	if (fence_state.sent != FENCE_NO_SIGNAL)
		QueryCancelPending = false;
	fence_note(FENCE_END);
}

/*
 * A statement that commits during its work, as CREATE INDEX CONCURRENTLY does,
 * goes on in the next transaction.  PostgreSQL calls no hook at the beginning of
 * that transaction.  So it requires the current leadership from here on.  Nothing
 * here may fail, because the previous transaction is committed.
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
			if (fence_state.depth > 0 && !proc_exit_inprogress)
				continue_statement();	/* after ROLLBACK in a procedure */
			demands_advertise();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* the leader of the parallel query checks */
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
