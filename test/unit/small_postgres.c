/*-------------------------------------------------------------------------
 *
 * small_postgres.c
 *	  The part of a backend that the fence meets, on top of small_server.c.
 *
 * The order of events is that of xact.c, postgres.c and elog.c: when hooks and callbacks
 * run, what they see, and what becomes of interrupts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>

#include "executor/executor.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "fence/state.h"
#include "small_postgres.h"
#include "weak_memory.h"

/* ---- variables of PostgreSQL ------------------------------------------------- */

BackendType MyBackendType;
Oid			MyDatabaseId = 1;
int			ParallelWorkerNumber = -1;
bool		XactReadOnly;
bool		proc_exit_inprogress;
volatile sig_atomic_t QueryCancelPending;
volatile sig_atomic_t ProcDiePending;
const char *debug_query_string;
post_parse_analyze_hook_type post_parse_analyze_hook;
ExecutorRun_hook_type ExecutorRun_hook;
ExecutorFinish_hook_type ExecutorFinish_hook;
ProcessUtility_hook_type ProcessUtility_hook;

static uint32 wait_event;
uint32	   *my_wait_event_info = &wait_event;

/* ---- the transaction ----------------------------------------------------------- */

typedef enum Block
{
	NO_TRANSACTION,
	SINGLE,						/* a command without a block */
	BLOCK,
	FAILED_BLOCK
} Block;

static struct
{
	Block		block;
	bool		in_progress;
	bool		is_failed;		/* its innermost savepoint */
	bool		has_id;
	int			nsavepoints;
	/* what a statement asks for */
	bool		begins;
	bool		commits;
	bool		prepares;
	bool		rolls_back;
}			xact;

static XactCallback xact_callback;

bool
IsTransactionState(void)
{
	return xact.in_progress && !xact.is_failed;
}

bool
IsTransactionBlock(void)
{
	return xact.block == BLOCK || xact.block == FAILED_BLOCK;
}

bool
IsSubTransaction(void)
{
	return xact.nsavepoints > 0;
}

TransactionId
GetTopTransactionIdIfAny(void)
{
	return xact.has_id ? FirstNormalTransactionId : InvalidTransactionId;
}

void
RegisterXactCallback(XactCallback callback, void *arg)
{
	xact_callback = callback;
}

static void
start_transaction(Block block)
{
	memset(&xact, 0, sizeof(xact));
	xact.block = block;
	xact.in_progress = true;
	XactReadOnly = false;
	test_begin_transaction();
}

static void
abort_transaction(Block block)
{
	xact.in_progress = false;
	xact_callback(XACT_EVENT_ABORT, NULL);
	test_end_transaction(false);
	memset(&xact, 0, sizeof(xact));
	xact.block = block;
}

static void
commit_transaction(void)
{
	test_before_commit();
	test_check_commit(false);
	xact_callback(XACT_EVENT_PRE_COMMIT, NULL);
	test_check_commit(true);
	xact.in_progress = false;
	test_commit();
	xact_callback(XACT_EVENT_COMMIT, NULL);
	test_end_transaction(true);
	memset(&xact, 0, sizeof(xact));
}

static void
prepare_transaction(void)
{
	xact_callback(XACT_EVENT_PRE_PREPARE, NULL);
	xact.in_progress = false;
	xact_callback(XACT_EVENT_PREPARE, NULL);
	test_end_transaction(true);
	memset(&xact, 0, sizeof(xact));
}

/* CommitTransactionCommand() */
static void
finish_command(void)
{
	if (xact.begins)
	{
		xact.block = BLOCK;
		xact.begins = false;
	}
	else if (xact.block == FAILED_BLOCK)
	{
		if (xact.commits || xact.rolls_back || xact.prepares)
			memset(&xact, 0, sizeof(xact));
	}
	else if (xact.rolls_back || ((xact.commits || xact.prepares) && xact.is_failed))
		abort_transaction(NO_TRANSACTION);
	else if (xact.prepares)
		prepare_transaction();
	else if (xact.commits || xact.block == SINGLE)
		commit_transaction();
}

/* AbortCurrentTransaction() */
static void
abort_command(void)
{
	if (xact.block == FAILED_BLOCK || xact.block == NO_TRANSACTION)
		return;
	if (xact.block == SINGLE || xact.commits || xact.prepares || xact.rolls_back)
		abort_transaction(NO_TRANSACTION);
	else if (xact.nsavepoints > 0)
		xact.is_failed = true;
	else
		abort_transaction(FAILED_BLOCK);
}

bool
pg_is_open(void)
{
	return xact.block == SINGLE || xact.block == BLOCK;
}

bool
pg_is_in_block(void)
{
	return IsTransactionBlock();
}

bool
pg_is_failed(void)
{
	return xact.block == FAILED_BLOCK || xact.is_failed;
}

int
pg_savepoints(void)
{
	return xact.nsavepoints;
}

bool
pg_has_written(void)
{
	return xact.has_id;
}

void
pg_write(void)
{
	if (XactReadOnly)
		ereport(ERROR, (errcode(ERRCODE_IN_FAILED_SQL_TRANSACTION), errmsg("READ ONLY")));
	xact.has_id = true;
}

/* ---- errors and interrupts ------------------------------------------------------ */

static sigjmp_buf *command_stack;

/* The end of the process does not go through the handlers of its statements. */
static void
end_process(void)
{
	pg_exit();
	siglongjmp(*command_stack, 1);
}

void
ProcessInterrupts(void)
{
	InterruptPending = false;
	if (ProcDiePending)
	{
		ProcDiePending = QueryCancelPending = false;
		ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("terminating connection")));
	}
	if (QueryCancelPending && QueryCancelHoldoffCount > 0)
		InterruptPending = true;
	else if (QueryCancelPending)
	{
		QueryCancelPending = false;
		ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("canceling statement")));
	}
}

/* ---- statements ----------------------------------------------------------------- */

void
standard_ExecutorRun(COMPAT_EXECUTOR_RUN_PARAMS)
{
	const PgStatement *statement = (const PgStatement *) query_desc;

	test_enter_statement();
	if (statement->body)
		statement->body(statement->argument);
}

void
standard_ExecutorFinish(QueryDesc *query_desc)
{
}

void
standard_ProcessUtility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
						ProcessUtilityContext context, ParamListInfo params,
						QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	const PgStatement *statement = (const PgStatement *) params;

	test_enter_statement();
	if (statement->body)
		statement->body(statement->argument);
}

void
pg_nested(const PgStatement *statement)
{
	union
	{
		Node		node;
		TransactionStmt transaction;
		CopyStmt	copy;
		CreatedbStmt createdb;
	}			utility;
	PlannedStmt planned = {.type = T_PlannedStmt, .utilityStmt = &utility.node};

	test_before_statement();
	memset(&utility, 0, sizeof(utility));
	utility.node.type = statement->tag;
	if (statement->tag == T_TransactionStmt)
		utility.transaction.kind = statement->kind;
	/* other statements have anything at that place */
	if (statement->tag != T_TransactionStmt)
		utility.copy.is_from = statement->tag != T_CopyStmt || statement->kind != PG_COPY_TO;
	if (statement->tag == T_CopyStmt && statement->kind == PG_COPY_FROM_FILE)
		utility.copy.filename = "file";
	if (statement->tag != T_Invalid)
		ProcessUtility_hook(&planned, "", false, PROCESS_UTILITY_TOPLEVEL, (ParamListInfo) statement,
							NULL, NULL, NULL);
	else
	{
#if PG_VERSION_NUM >= 180000
		ExecutorRun_hook((QueryDesc *) statement, ForwardScanDirection, 0);
#else
		ExecutorRun_hook((QueryDesc *) statement, ForwardScanDirection, 0, true);
#endif
		ExecutorFinish_hook((QueryDesc *) statement);
	}
}

bool
pg_nested_caught(const PgStatement *statement)
{
	volatile bool done = false;
	int			nsavepoints = xact.nsavepoints;

	xact.nsavepoints++;
	PG_TRY();
	{
		pg_nested(statement);
		done = true;
	}
	PG_CATCH();
	{
		if (pg_error.sqlstate == ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	xact.nsavepoints = nsavepoints;
	return done;
}

void
pg_commit_here(bool commit)
{
	if (commit)
		commit_transaction();
	else
		abort_transaction(NO_TRANSACTION);
	start_transaction(SINGLE);
}

static bool
may_run_after_failure(const PgStatement *statement)
{
	return statement->tag == T_TransactionStmt &&
		(statement->kind == TRANS_STMT_COMMIT || statement->kind == TRANS_STMT_ROLLBACK ||
		 statement->kind == TRANS_STMT_PREPARE || statement->kind == TRANS_STMT_ROLLBACK_TO);
}

static void
run_command(const PgStatement *statement)
{
	if (xact.block == NO_TRANSACTION)
		start_transaction(SINGLE);
	if (pg_is_failed() && !may_run_after_failure(statement))
		ereport(ERROR, (errcode(ERRCODE_IN_FAILED_SQL_TRANSACTION), errmsg("failed")));
	post_parse_analyze_hook(NULL, NULL, NULL);
	pg_nested(statement);
	finish_command();
}

bool
pg_command(const PgStatement *statement)
{
	sigjmp_buf	stack;
	volatile bool done = false;

	memset(&pg_error, 0, sizeof(pg_error));
	debug_query_string = "a command";
	wait_event = 0;
	command_stack = PG_exception_stack = &stack;
	pg_end_process = end_process;
	if (sigsetjmp(stack, 0) == 0)
	{
		run_command(statement);
		done = true;
	}
	else
	{
		error_context_stack = NULL;
		QueryCancelPending = false;
		abort_command();
	}
	PG_exception_stack = NULL;
	debug_query_string = NULL;
	/* a cancellation that comes while it reads the next command is dropped */
	InterruptPending = QueryCancelPending = false;
	wait_event = WAIT_EVENT_CLIENT_READ;
	return done;
}

void
pg_wait(uint32 event)
{
	wait_event = event;
}

void
pg_wait_for_client(bool waits)
{
	pg_wait(waits ? WAIT_EVENT_CLIENT_READ : 0);
	QueryCancelHoldoffCount = waits ? 1 : 0;
}

static void
control_transaction(const void *argument)
{
	switch (*(const TransactionStmtKind *) argument)
	{
		case TRANS_STMT_BEGIN:
			xact.begins = true;
			break;
		case TRANS_STMT_COMMIT:
			xact.commits = true;
			break;
		case TRANS_STMT_PREPARE:
			xact.prepares = true;
			break;
		case TRANS_STMT_ROLLBACK:
			xact.rolls_back = true;
			break;
		case TRANS_STMT_SAVEPOINT:
			xact.nsavepoints++;
			break;
		case TRANS_STMT_ROLLBACK_TO:
			xact.is_failed = false;
			break;
		default:
			abort();
	}
}

static bool
control(TransactionStmtKind kind)
{
	PgStatement statement = {T_TransactionStmt, kind, control_transaction, &kind};

	return pg_command(&statement);
}

static void
begin_read_only(const void *argument)
{
	xact.begins = true;
	XactReadOnly = true;
}

bool
pg_begin(bool read_only)
{
	PgStatement statement = {T_TransactionStmt, TRANS_STMT_BEGIN, begin_read_only, NULL};

	return read_only ? pg_command(&statement) : control(TRANS_STMT_BEGIN);
}

bool
pg_commit(void)
{
	return control(TRANS_STMT_COMMIT);
}

bool
pg_prepare(void)
{
	return control(TRANS_STMT_PREPARE);
}

bool
pg_rollback(void)
{
	return control(TRANS_STMT_ROLLBACK);
}

bool
pg_savepoint(void)
{
	return control(TRANS_STMT_SAVEPOINT);
}

bool
pg_rollback_to(void)
{
	return control(TRANS_STMT_ROLLBACK_TO);
}

static void
set_read_only(const void *argument)
{
	XactReadOnly = *(const bool *) argument;
}

bool
pg_set_read_only(bool read_only)
{
	PgStatement statement = {T_VariableSetStmt, 0, set_read_only, &read_only};

	return pg_command(&statement);
}

/* ---- processes and memory --------------------------------------------------------- */

void
pg_start(BackendType type)
{
	MyBackendType = type;
	wait_event = WAIT_EVENT_CLIENT_READ;
	pg_tick();					/* which stops the timer of the process before */
}

void
pg_exit(void)
{
	proc_exit_inprogress = true;
	InterruptPending = ProcDiePending = QueryCancelPending = false;
	if (pg_is_open())
		abort_transaction(NO_TRANSACTION);
	/* the files of the fence go on with what they have registered */
	pg_run_exit_callbacks(0);
	weak_barrier();
	proc_exit_inprogress = false;
	error_context_stack = NULL;
	memset(&xact, 0, sizeof(xact));
	memset(&fence_state, 0, sizeof(fence_state));
}

/* The store of the one process, which others do not see yet. */
static struct
{
	volatile pg_atomic_uint32 *at;
	uint32		value;
}			late;

bool		is_another_process;

void
weak_barrier(void)
{
	if (is_another_process)
		return;
	if (late.at)
		late.at->value = late.value;
	late.at = NULL;
}

void
weak_store(volatile pg_atomic_uint32 *at, uint32 value)
{
	weak_barrier();
	late.at = at;
	late.value = value;
}

/* ---- the clock and the timer ------------------------------------------------------ */

static pqsigfunc timer_handler;
static int	timer_signal;
static int64 timer_interval_ns;
static int64 next_tick_ns;
static bool in_handler;
static bool has_timer;
int			pg_timer_sets;

int64_t
clock_now_ns(void)
{
	if (!in_handler)
		test_look_at_clock();
	return now_ns;
}

#if PG_VERSION_NUM >= 180000
void
pqsignal(int signo, pqsigfunc func)
{
	timer_handler = func;
	timer_signal = signo;
}
#else
pqsigfunc
pqsignal(int signo, pqsigfunc func)
{
	timer_handler = func;
	timer_signal = signo;
	return NULL;
}
#endif

extern int	__wrap_timer_create(clockid_t clock, struct sigevent *event, timer_t *id);
extern int	__wrap_timer_settime(timer_t id, int flags, const struct itimerspec *spec,
								 struct itimerspec *old);

int
__wrap_timer_create(clockid_t clock, struct sigevent *event, timer_t *id)
{
	/* one thread gets the signal, which has a handler */
	if (event->sigev_notify != SIGEV_THREAD_ID || event->_sigev_un._tid != MyProcPid ||
		event->sigev_signo != timer_signal || has_timer)
		abort();
	has_timer = true;
	return 0;
}

int
__wrap_timer_settime(timer_t id, int flags, const struct itimerspec *spec, struct itimerspec *old)
{
	if (!has_timer)
		abort();
	pg_timer_sets++;
	timer_interval_ns = spec->it_interval.tv_nsec;
	next_tick_ns = now_ns + timer_interval_ns;
	return 0;
}

bool
pg_timer_is_set(void)
{
	return timer_interval_ns != 0;
}

void
pg_tick(void)
{
	if (timer_interval_ns == 0 || in_handler)
		return;
	next_tick_ns = now_ns + timer_interval_ns;
	in_handler = true;
#if PG_VERSION_NUM >= 190000
	timer_handler(SIGVTALRM, NULL);
#else
	timer_handler(SIGVTALRM);
#endif
	in_handler = false;
}

void
pg_run_timer(void)
{
	if (now_ns >= next_tick_ns)
		pg_tick();
}

/* ---- what nobody looks at ----------------------------------------------------------- */

bool		pg_is_logical_worker;

bool
IsLogicalWorker(void)
{
	return pg_is_logical_worker;
}
