/*-------------------------------------------------------------------------
 *
 * fence_cases_test.c
 *	  The fence, case by case: which processes it concerns, what a session is told, what the
 *	  timer leaves alone, and what becomes of a setting that changes.
 *
 * fence_test.c has the promise in random histories.  Here a test decides what happens.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "port/atomics.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "fence/decide.h"
#include "fence/fence.h"
#include "fence/state.h"
#include "settings/settings.h"
#include "shared/fenced.h"
#include "shared/state.h"
#include "shared/stats.h"
#include "shared/status.h"
#include "small_elections.h"
#include "small_postgres.h"
#include "weak_memory.h"

/* ---- what the files need of others --------------------------------------------- */

static char setting[ELECTION_NAME_SIZE];
char	   *settings_require_leadership_of = setting;
bool		settings_requires_by_role;
bool		settings_cancel_on_loss;

static int64 counters[COUNTER_COUNT];
static const char *known_leader;

void
stats_count(SharedCounter counter, int64 n)
{
	counters[counter] += n;
}

char *
status_leader_for_message(int index)
{
	return (char *) known_leader;
}

int
status_errdetail_leader(int index)
{
	return errdetail("Nobody leads.");
}

/* ---- leadership ----------------------------------------------------------------------- */

static void
publish(int e, ElectionState state, int64 token)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	strlcpy(view.name, election_names[e], sizeof(view.name));
	view.state = state;
	if (state != ELECTION_WAITING)
	{
		view.token = token;
		view.deadline_ns = now_ns + 3600 * NSEC_PER_SEC;
	}
	shared_state_publish(e, &view);
}

static void
lead(int e, int64 token)
{
	publish(e, ELECTION_LEADING, token);
}

static void
drain(int e, int64 token)
{
	publish(e, ELECTION_DRAINING, token);
}

static void
lose(int e)
{
	publish(e, ELECTION_WAITING, 0);
}

static bool
is_waited_for(int e)
{
	weak_barrier();
	return (fenced_slots() & (UINT32_C(1) << e)) != 0;
}

/* ---- the session ------------------------------------------------------------------------ */

/* What other libraries do after the check of the commit. */
static void (*after_check) (void);

void
test_look_at_clock(void)
{
}

void
test_begin_transaction(void)
{
}

void
test_before_statement(void)
{
}

void
test_enter_statement(void)
{
}

void
test_before_commit(void)
{
}

void
test_check_commit(bool is_over)
{
	if (is_over && after_check)
		after_check();
}

void
test_commit(void)
{
}

void
test_end_transaction(bool is_committed)
{
}

static bool
run(void (*body) (const void *))
{
	PgStatement statement = {T_Invalid, 0, body, NULL};

	return pg_command(&statement);
}

static bool
run_utility(NodeTag tag, int kind, void (*body) (const void *))
{
	PgStatement statement = {tag, kind, body, NULL};

	return pg_command(&statement);
}

static void
set(const char *election)
{
	strlcpy(setting, election, sizeof(setting));
}

static void
write_something(const void *unused)
{
	pg_write();
}

static void
require_alpha(const void *unused)
{
	(void) fence_require(ALPHA);
}

static void
check_error(int sqlstate, const char *message, const char *detail, const char *hint)
{
	assert_int_equal(pg_error.sqlstate, sqlstate);
	assert_string_equal(pg_error.message, message);
	assert_string_equal(pg_error.detail, detail);
	assert_string_equal(pg_error.hint, hint);
}

static void
check_refused(const char *hint)
{
	assert_int_equal(pg_error.sqlstate, ERRCODE_READ_ONLY_SQL_TRANSACTION);
	assert_string_equal(pg_error.hint, hint);
}

static int
set_up(void **unused)
{
	static bool is_installed = false;
	static const SharedPart *const parts[] = {&shared_state_part, &shared_elections_part, &fenced_part};

	if (!is_installed)
	{
		shared_state_install(parts, lengthof(parts));
		fence_install();
	}
	is_installed = true;
	now_ns = 1000 * NSEC_PER_SEC;
	pg_start_memory(0);
	pg_be(0);
	pg_start(B_BACKEND);
	shared_state_begin_elector();
	lose(ALPHA);
	lose(BETA);
	set("");
	settings_cancel_on_loss = true;
	settings_requires_by_role = false;
	known_leader = NULL;
	after_check = NULL;
	memset(counters, 0, sizeof(counters));
	return 0;
}

/* Nothing is left of the session, or in the way of the next transaction. */
static int
tear_down(void **unused)
{
	set("");
	if (pg_is_in_block())
		(void) pg_rollback();
	after_check = NULL;
	assert_true(run(write_something));
	assert_false(is_waited_for(ALPHA));
	assert_false(is_waited_for(BETA));
	pg_exit();
	return 0;
}

/* ---- the timer -------------------------------------------------------------------------- */

static void
commit_within(const void *unused)
{
	pg_write();
	pg_commit_here(true);
	pg_commit_here(false);
}

static void
switch_on_and_commit(const void *unused)
{
	settings_cancel_on_loss = true;
	pg_commit_here(true);
	assert_false(pg_timer_is_set());
}

/* This comes first: there is no timer yet. */
static void
test_no_timer(void **unused)
{
	lead(ALPHA, 7);
	settings_cancel_on_loss = false;
	set("alpha");
	assert_true(run(write_something));
	assert_true(run_utility(T_DoStmt, 0, switch_on_and_commit));

	/* what nothing fences is not watched; nor is anything if the setting is off */
	set("");
	assert_true(run(write_something));
	assert_true(run_utility(T_DoStmt, 0, commit_within));
	settings_cancel_on_loss = false;
	assert_true(run(require_alpha));
	set("alpha");
	assert_true(run(write_something));
	assert_true(run_utility(T_DoStmt, 0, commit_within));
	assert_int_equal(pg_timer_sets, 0);
}

/* It goes on for the next transaction, and ends if there is none. */
static void
test_timer_goes_on(void **unused)
{
	int			nsets = pg_timer_sets;

	lead(ALPHA, 7);
	for (int i = 0; i < 3; i++)
	{
		assert_true(run(require_alpha));
		assert_true(pg_timer_is_set());
	}
	assert_int_equal(pg_timer_sets, nsets + 1);
	pg_tick();
	assert_false(pg_timer_is_set());
	set("alpha");
	assert_true(run_utility(T_DoStmt, 0, commit_within));
	assert_true(pg_timer_is_set());
	assert_int_equal(pg_timer_sets, nsets + 3);
	/* a procedure goes on, and is watched */
	pg_tick();
	settings_cancel_on_loss = false;
	assert_true(run_utility(T_DoStmt, 0, commit_within));
	assert_false(pg_timer_is_set());
	settings_cancel_on_loss = true;
	set("");
	assert_true(run_utility(T_DoStmt, 0, commit_within));
	assert_false(pg_timer_is_set());
}

static void
lose_and_tick(void)
{
	lose(ALPHA);
	pg_tick();
}

/* Another error comes before the cancellation. */
static void
fail_after_loss(const void *unused)
{
	(void) fence_require(ALPHA);
	lose_and_tick();
	assert_true(QueryCancelPending);
	ereport(ERROR, (errcode(ERRCODE_DIVISION_BY_ZERO), errmsg("division by zero")));
}

/* The user cancels, and leadership is not lost. */
static void
cancel(const void *unused)
{
	(void) fence_require(ALPHA);
	pg_tick();
	assert_false(QueryCancelPending);
	QueryCancelPending = InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

/* The setting is switched off while the statement runs. */
static void
switch_off_and_lose(const void *unused)
{
	(void) fence_require(ALPHA);
	settings_cancel_on_loss = false;
	lose_and_tick();
	assert_false(QueryCancelPending);
}

static void
test_other_errors(void **unused)
{
	lead(ALPHA, 7);
	assert_false(run(fail_after_loss));
	check_error(ERRCODE_DIVISION_BY_ZERO, "division by zero", "", "");
	assert_int_equal(counters[COUNTER_STATEMENTS_CANCELLED], 0);
	lead(ALPHA, 8);
	assert_false(run(cancel));
	check_error(ERRCODE_QUERY_CANCELED, "canceling statement", "", "");
	assert_int_equal(counters[COUNTER_STATEMENTS_CANCELLED], 0);
	/* outside of statements, too */
	assert_true(pg_begin(false));
	assert_true(run(require_alpha));
	assert_true(pg_rollback());

	lead(ALPHA, 9);
	assert_false(run(switch_off_and_lose));
	assert_int_equal(counters[COUNTER_STATEMENTS_CANCELLED], 0);
	assert_int_equal(counters[COUNTER_COMMITS_REFUSED], 1);
}

static bool went_on;

static void
be_cancelled(const void *unused)
{
	lose_and_tick();
	CHECK_FOR_INTERRUPTS();
	went_on = true;
}

static void
catch_others(const void *unused)
{
	PgStatement nested = {T_Invalid, 0, be_cancelled, NULL};

	(void) fence_require(ALPHA);
	(void) pg_nested_caught(&nested);
	went_on = true;
}

/* WHEN OTHERS does not catch the cancellation, and its client is told of the loss. */
static void
test_cancelled(void **unused)
{
	went_on = false;
	lead(ALPHA, 7);
	assert_false(run(catch_others));
	assert_false(went_on);
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, "this instance does not lead election \"alpha\" any more",
				"The transaction requires leadership under fencing token 7.",
				"Run the whole transaction on the leader.");
	assert_int_equal(counters[COUNTER_STATEMENTS_CANCELLED], 1);
}

static void
read_nested(const void *unused)
{
	PgStatement nested = {T_Invalid, 0, NULL, NULL};

	(void) fence_require(ALPHA);
	lose(ALPHA);
	assert_true(pg_nested_caught(&nested));
	went_on = true;
}

/* A nested statement is not refused, because WHEN OTHERS would catch that. */
static void
test_nested(void **unused)
{
	went_on = false;
	lead(ALPHA, 7);
	assert_false(run(read_nested));
	assert_true(went_on);
	check_refused("Run the whole transaction on the leader.");
}

/* A worker that executes a statement, and has no text of it. */
static void
be_cancelled_without_text(const void *unused)
{
	debug_query_string = NULL;
	(void) fence_require(ALPHA);
	be_cancelled(NULL);
}

static void
test_worker_is_cancelled(void **unused)
{
	pg_exit();
	pg_start(B_BG_WORKER);
	went_on = false;
	lead(ALPHA, 7);
	assert_false(run(be_cancelled_without_text));
	assert_false(went_on);
	check_refused("Run the whole transaction on the leader.");
}

/* Between two commands of a client. */
static void
test_idle(void **unused)
{
	lead(ALPHA, 7);
	assert_true(pg_begin(false));
	assert_true(run(require_alpha));
	lose_and_tick();
	assert_false(QueryCancelPending);
	/* it parses the next command, and waits for a lock; or runs a fast-path function */
	pg_wait(0);
	pg_tick();
	assert_true(QueryCancelPending);
	QueryCancelPending = InterruptPending = false;
	assert_false(run(NULL));
	check_refused("Run the whole transaction on the leader.");
	assert_true(pg_rollback());

	/* a walsender is a client, too; a worker has none, and does whatever it likes */
	for (int i = 0; i < 2; i++)
	{
		pg_exit();
		pg_start(i == 0 ? B_WAL_SENDER : B_BG_WORKER);
		lead(ALPHA, 8);
		assert_true(pg_begin(false));
		assert_true(run(require_alpha));
		pg_wait(0);
		lose_and_tick();
		assert_int_equal(QueryCancelPending, i == 0);
		QueryCancelPending = InterruptPending = false;
		assert_true(pg_rollback());
	}
}

/* ---- COPY --------------------------------------------------------------------------------- */

static bool has_trigger;
static bool is_held_back;

static void
wait_for_client(const void *unused)
{
	PgStatement trigger = {T_Invalid, 0, NULL, NULL};
	PgStatement utility = {T_DoStmt, 0, NULL, NULL};

	(void) fence_require(ALPHA);
	if (has_trigger)
	{
		pg_nested(&trigger);
		pg_nested(&utility);
	}
	pg_wait_for_client(is_held_back);
	lose_and_tick();
	assert_true(QueryCancelPending);
	assert_false(ProcDiePending);
	pg_tick();
	went_on = true;
	CHECK_FOR_INTERRUPTS();
	pg_wait_for_client(false);
	CHECK_FOR_INTERRUPTS();
}

/* The session ends if COPY waits for its client in a message, and for nothing else. */
static void
test_copy(void **unused)
{
	static const struct
	{
		NodeTag		tag;
		int			kind;
		bool		is_held_back;
		bool		has_trigger;
		bool		ends;
	}			cases[] = {
		{T_CopyStmt, PG_COPY_FROM_CLIENT, true, false, true},
		{T_CopyStmt, PG_COPY_FROM_CLIENT, true, true, true},
		{T_CopyStmt, PG_COPY_FROM_CLIENT, false, false, false},
		{T_CopyStmt, PG_COPY_FROM_FILE, true, false, false},
		{T_CopyStmt, PG_COPY_TO, true, false, false},
		{T_DoStmt, 0, true, false, false},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		(void) tear_down(NULL);
		(void) set_up(NULL);
		went_on = false;
		is_held_back = cases[i].is_held_back;
		has_trigger = cases[i].has_trigger;
		lead(ALPHA, 7);
		assert_false(run_utility(cases[i].tag, cases[i].kind, wait_for_client));
		assert_true(went_on);
		assert_int_equal(pg_error.level, cases[i].ends ? FATAL : ERROR);
		assert_int_equal(counters[COUNTER_STATEMENTS_CANCELLED], 1);
		if (cases[i].ends)
			check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION,
						"terminating connection because this instance does not lead election \"alpha\" any more",
						"The transaction requires leadership under fencing token 7, and COPY waits for the client.",
						"Run the whole transaction on the leader.");
		else
			check_refused("Run the whole transaction on the leader.");
	}
}

/* The data is wrong, and then the session ends. */
static void
fail_in_copy(const void *unused)
{
	(void) fence_require(ALPHA);
	pg_wait_for_client(true);
	lose_and_tick();
	pg_tick();
	assert_true(ProcDiePending);
	pg_wait_for_client(false);
	ereport(ERROR, (errcode(ERRCODE_BAD_COPY_FILE_FORMAT), errmsg("bad data")));
}

static void
test_copy_fails(void **unused)
{
	lead(ALPHA, 7);
	assert_false(run_utility(T_CopyStmt, PG_COPY_FROM_CLIENT, fail_in_copy));
	assert_int_equal(pg_error.level, FATAL);
	assert_int_equal(counters[COUNTER_STATEMENTS_CANCELLED], 1);
}

/* ---- the end of a transaction ----------------------------------------------------------------- */

/* What cannot commit any more can be undone, in part or as a whole. */
static void
test_undone(void **unused)
{
	lead(ALPHA, 7);
	assert_true(pg_begin(false));
	assert_true(run(require_alpha));
	assert_true(pg_savepoint());
	lose(ALPHA);
	assert_true(pg_rollback_to());
	assert_false(run(NULL));
	assert_true(pg_rollback_to());
	assert_true(pg_rollback());
	assert_int_equal(pg_error.level, 0);
}

/* Without cancel_on_loss only COMMIT counts. */
static void
test_not_cancelled(void **unused)
{
	settings_cancel_on_loss = false;
	lead(ALPHA, 7);
	assert_true(pg_begin(false));
	assert_true(run(require_alpha));
	lose(ALPHA);
	assert_true(run(NULL));
	assert_true(run(write_something));
	assert_false(pg_commit());
	check_refused("Run the whole transaction on the leader.");
	assert_int_equal(counters[COUNTER_COMMITS_REFUSED], 1);
}

/* Another library runs a statement after the check, which nothing watches or cancels. */
static void
run_after_check(void)
{
	PgStatement nested = {T_Invalid, 0, NULL, NULL};

	after_check = NULL;
	pg_nested(&nested);
	lose_and_tick();
	assert_false(QueryCancelPending);
	went_on = true;
}

static void
test_statement_after_check(void **unused)
{
	went_on = false;
	after_check = run_after_check;
	lead(ALPHA, 7);
	assert_true(run(require_alpha));
	assert_true(went_on);
}

/* ---- which processes ------------------------------------------------------------------------ */

static void
test_processes(void **unused)
{
	static const struct
	{
		BackendType type;
		bool		has_database;
		bool		by_role;
		bool		is_logical;
		bool		is_parallel;
		bool		is_fenced;
	}			cases[] = {
		{B_BACKEND, true, false, false, false, true},
		{B_BACKEND, true, true, false, false, true},
		{B_WAL_SENDER, true, false, false, false, true},
		{B_WAL_SENDER, false, false, false, false, false},
		{B_WAL_SENDER, false, true, false, false, false},
		{B_BG_WORKER, true, false, false, false, false},
		{B_BG_WORKER, true, true, false, false, true},
		{B_BG_WORKER, true, true, true, false, false},
		{B_BG_WORKER, true, true, false, true, false},
		{B_AUTOVAC_WORKER, true, true, false, false, false},
		{B_CHECKPOINTER, false, true, false, false, false},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		pg_exit();
		pg_start(cases[i].type);
		MyDatabaseId = cases[i].has_database ? 1 : InvalidOid;
		settings_requires_by_role = cases[i].by_role;
		pg_is_logical_worker = cases[i].is_logical;
		ParallelWorkerNumber = cases[i].is_parallel ? 0 : -1;
		set("alpha");
		assert_int_equal(run(write_something), !cases[i].is_fenced);
		set("");
		assert_true(run(write_something));
		MyDatabaseId = 1;
		pg_is_logical_worker = false;
		ParallelWorkerNumber = -1;
	}
}

static void
test_parallel_worker(void **unused)
{
	lead(ALPHA, 7);
	ParallelWorkerNumber = 0;
	assert_false(run(require_alpha));
	ParallelWorkerNumber = -1;
	check_error(ERRCODE_INVALID_TRANSACTION_STATE, "cannot require leadership in a parallel worker", "",
				"Mark the function that does so PARALLEL RESTRICTED.");
}

/* ---- what a fenced transaction sees ------------------------------------------------------------ */

static int64 expected_alpha;
static int64 expected_beta;

static void
look(const void *unused)
{
	assert_int_equal(fence_token(ALPHA), expected_alpha);
	assert_int_equal(fence_leads(ALPHA), expected_alpha != 0);
	assert_int_equal(fence_token(BETA), expected_beta);
	assert_int_equal(fence_leads(BETA), expected_beta != 0);
	assert_int_equal(fence_token(-1), 0);
	assert_false(fence_leads(-1));
}

static void
see(int64 alpha, int64 beta)
{
	expected_alpha = alpha;
	expected_beta = beta;
	assert_true(run(look));
}

static void
require_and_drain(const void *unused)
{
	(void) fence_require(ALPHA);
	drain(ALPHA, 7);
	drain(BETA, 8);
	expected_alpha = 7;
	expected_beta = 0;
	look(NULL);
	assert_int_equal(fence_require(ALPHA), 7);
	lose(ALPHA);
	expected_alpha = 0;
	look(NULL);
	lead(ALPHA, 9);
	drain(ALPHA, 9);
	look(NULL);
}

/* The setting was read when this instance did not lead; the call has found it leading. */
static void
win_and_require(const void *unused)
{
	lead(ALPHA, 7);
	(void) fence_require(ALPHA);
	drain(ALPHA, 7);
	assert_int_equal(fence_token(ALPHA), 7);
	lead(ALPHA, 7);
}

/* A hook was bound to an earlier leadership, and cannot commit; a call requires the new one. */
static void
lose_binding(const void *unused)
{
	lead(BETA, 9);
	drain(BETA, 9);
	assert_int_equal(fence_token(BETA), 0);
	lead(BETA, 9);
	assert_int_equal(fence_require(BETA), 9);
	drain(BETA, 9);
	assert_int_equal(fence_token(BETA), 9);
}

static void
test_seen_in_drain(void **unused)
{
	lead(ALPHA, 7);
	lead(BETA, 8);
	see(7, 8);
	/* by the call */
	assert_false(run(require_and_drain));
	see(0, 0);

	/* by the setting */
	lead(ALPHA, 7);
	lead(BETA, 8);
	set("alpha");
	assert_true(pg_begin(false));
	drain(ALPHA, 7);
	drain(BETA, 8);
	see(7, 0);
	assert_true(pg_rollback());
	see(0, 0);
	lose(ALPHA);
	assert_true(run(win_and_require));
	set("");

	/* by a hook */
	drain(ALPHA, 7);
	fence_bind("beta", 8);
	see(0, 8);
	assert_false(run(lose_binding));
	pg_exit();
}

static void
read_only_savepoint(const void *unused)
{
	XactReadOnly = true;
}

/* A savepoint is READ ONLY, and the transaction may write after it. */
static void
test_read_only_savepoint(void **unused)
{
	lead(ALPHA, 7);
	set("alpha");
	assert_true(pg_begin(false));
	assert_true(pg_savepoint());
	assert_true(run(read_only_savepoint));
	assert_true(run(NULL));
	assert_true(is_waited_for(ALPHA));
	assert_true(pg_rollback());
	assert_true(pg_begin(true));
	assert_true(run(NULL));
	assert_false(is_waited_for(ALPHA));
	assert_true(pg_commit());
}

/* A slot is given away between two transactions: the drain of the other election waits for none. */
static void
test_slot_moves(void **unused)
{
	ElectionView view = {.state = ELECTION_LEADING, .token = 7, .deadline_ns = now_ns + NSEC_PER_SEC};

	lead(ALPHA, 7);
	set("alpha");
	assert_true(run(write_something));
	shared_state_begin_elector();
	strlcpy(view.name, election_names[ALPHA], sizeof(view.name));
	shared_state_publish(BETA, &view);
	assert_true(pg_begin(false));
	assert_true(run(write_something));
	assert_true(is_waited_for(BETA));
	assert_false(is_waited_for(ALPHA));
	assert_true(pg_commit());
}

static void
step_aside(const void *election)
{
	fence_step_aside(election);
	assert_int_equal(is_waited_for(ALPHA), strcmp(election, "alpha") != 0);
	fence_step_back();
	assert_true(is_waited_for(ALPHA));
}

static void
step_aside_alpha(const void *unused)
{
	step_aside("alpha");
}

static void
step_aside_beta(const void *unused)
{
	step_aside("beta");
}

static void
require_and_step_aside(const void *unused)
{
	(void) fence_require(ALPHA);
	fence_step_aside("beta");
}

/* The drain that a session asks for does not wait for that session; another one does. */
static void
test_step_aside(void **unused)
{
	lead(ALPHA, 7);
	set("alpha");
	assert_true(run(step_aside_alpha));
	assert_true(run(step_aside_beta));
	set("");
	assert_false(run(require_and_step_aside));
	check_error(ERRCODE_ACTIVE_SQL_TRANSACTION,
				"cannot drain within a transaction that requires leadership",
				"The drain would wait for this transaction, which requires leadership of election \"alpha\".",
				"Call the function in a transaction of its own, or without a drain.");
}

/* ---- the setting changes -------------------------------------------------------------------- */

/* What was written under one election stays under it, unless the setting was empty meanwhile. */
static void
test_setting_changes(void **unused)
{
	lead(ALPHA, 7);
	lead(BETA, 8);
	for (int was_empty = 0; was_empty < 3; was_empty++)
	{
		lead(ALPHA, 7);
		set("alpha");
		assert_true(pg_begin(false));
		assert_true(run(write_something));
		if (was_empty > 0)
		{
			set("");
			assert_true(run(NULL));
		}
		if (was_empty < 2)
		{
			set("beta");
			assert_true(run(NULL));
		}
		lose(ALPHA);
		assert_int_equal(pg_commit(), was_empty > 0);
	}

	/* the same one again: from there on it counts */
	for (int is_lost = 0; is_lost < 2; is_lost++)
	{
		lead(ALPHA, 7);
		set("alpha");
		assert_true(pg_begin(false));
		assert_true(run(write_something));
		set("");
		assert_true(run(NULL));
		set("alpha");
		assert_true(run(NULL));
		if (is_lost)
			lose(ALPHA);
		assert_int_equal(pg_commit(), !is_lost);
	}

	/* to and fro, as often as one likes */
	lead(ALPHA, 7);
	set("alpha");
	assert_true(pg_begin(false));
	assert_true(run(require_alpha));
	assert_true(run(write_something));
	for (int i = 0; i < 3 * ELECTION_MAX_ELECTIONS; i++)
	{
		set(election_names[i % 2]);
		assert_true(run(NULL));
	}
	assert_true(pg_commit());

	/* but not among any number of elections */
	set("election 0");
	assert_true(pg_begin(false));
	for (int i = 0; i <= ELECTION_MAX_ELECTIONS; i++)
	{
		snprintf(setting, sizeof(setting), "election %d", i);
		assert_true(run(NULL));
	}
	set("one more");
	assert_false(run(NULL));
	check_error(ERRCODE_PROGRAM_LIMIT_EXCEEDED, "a transaction cannot require leadership of more than 32 elections", "", "");
	assert_true(pg_rollback());
}

static void
set_commit_and_write(const void *unused)
{
	set("beta");
	pg_commit_here(true);
	/* without a statement, as VACUUM */
	lose(ALPHA);
	pg_write();
}

static void
set_and_roll_back(const void *unused)
{
	set("beta");
	pg_commit_here(false);
	lose(ALPHA);
	pg_write();
}

/* A statement that goes on requires what the setting names then. */
static void
test_setting_changes_in_procedure(void **unused)
{
	lead(ALPHA, 7);
	lead(BETA, 8);
	set("alpha");
	assert_true(run_utility(T_DoStmt, 0, set_commit_and_write));
	lead(ALPHA, 7);
	set("alpha");
	assert_true(run_utility(T_DoStmt, 0, set_and_roll_back));
	lose(BETA);
	lead(ALPHA, 9);
	set("alpha");
	assert_false(run_utility(T_DoStmt, 0, set_commit_and_write));
	assert_string_equal(pg_error.message, "this instance did not lead election \"beta\" when the transaction began");
}

/* ---- messages -------------------------------------------------------------------------------- */

static void
test_refused_calls(void **unused)
{
	assert_false(run(require_alpha));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, "this instance does not lead election \"alpha\"", "Nobody leads.",
				"Connect to the leader, or wait until there is one.");
	assert_int_equal(counters[COUNTER_TRANSACTIONS_REFUSED], 0);
	lead(ALPHA, 7);
	drain(ALPHA, 7);
	assert_false(run(require_alpha));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, "this instance is handing over leadership of election \"alpha\"",
				"It waits for the transactions that require leadership already, and accepts no new ones.",
				"Try again on the next leader.");
	assert_int_equal(counters[COUNTER_TRANSACTIONS_REFUSED], 1);
}

static const char *const by_setting = "\"etcd_leader.require_leadership_of\" allows only the leader to write.";
static const char *const did_not_lead = "this instance did not lead election \"alpha\" when the transaction began";

static void
win_and_write(const void *unused)
{
	pg_write();
	lead(ALPHA, 9);
}

/* A write that the setting refuses. */
static void
test_refused_writes(void **unused)
{
	set("alpha");
	assert_false(run(write_something));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, did_not_lead, by_setting, "Run the whole transaction on the leader.");
	known_leader = "pg2";
	assert_false(run(write_something));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, did_not_lead, by_setting,
				"Run the whole transaction on the leader, which is \"pg2\".");
	known_leader = NULL;
	assert_false(run(win_and_write));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, did_not_lead, by_setting,
				"This instance leads now. Run the whole transaction again.");
	drain(ALPHA, 9);
	assert_false(run(write_something));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, "this instance is handing over leadership of election \"alpha\"", by_setting,
				"This instance is handing over leadership. Run the whole transaction on the next leader.");
	shared_state_end_elector();
	assert_false(run(write_something));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, did_not_lead, by_setting,
				"Run the whole transaction on the leader. On this instance the elector of etcd_leader is not running.");
	set("unknown");
	assert_false(run(write_something));
	check_error(ERRCODE_UNDEFINED_OBJECT, "election \"unknown\" does not exist",
				"It is required by \"etcd_leader.require_leadership_of\".",
				"The elections are those listed in \"etcd_leader.elections\".");
}

static void
require_and_win_again(const void *unused)
{
	(void) fence_require(ALPHA);
	lose(ALPHA);
	lead(ALPHA, 9);
}

static void
test_refused_commits(void **unused)
{
	lead(ALPHA, 7);
	assert_false(run(require_and_win_again));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, "this instance does not lead election \"alpha\" any more",
				"The transaction requires leadership under fencing token 7.",
				"This instance leads again. Run the whole transaction again.");

	/* PREPARE names the election, of whatever the transaction is fenced by */
	set("beta");
	assert_true(pg_begin(false));
	assert_false(pg_prepare());
	check_error(ERRCODE_FEATURE_NOT_SUPPORTED, "cannot PREPARE a transaction that requires leadership of election \"beta\"", "", "");
	set("");

	set("alpha");
	lose(ALPHA);
	assert_false(run_utility(T_TransactionStmt, TRANS_STMT_COMMIT_PREPARED, NULL));
	check_error(ERRCODE_READ_ONLY_SQL_TRANSACTION, "this instance does not lead election \"alpha\"",
				"\"etcd_leader.require_leadership_of\" allows only the leader to commit a prepared transaction.",
				"Commit it when this instance leads, or roll it back.");
}

/* ---- decisions -------------------------------------------------------------------------------- */

static void
test_fenced(void **unused)
{
	/* a binding and a call fence always, the setting what writes, and nothing fences nobody */
	for (int writes = 0; writes <= 1; writes++)
	{
		assert_true(decide_is_fenced(&(FenceState) {.bound = true}, writes));
		assert_true(decide_is_fenced(&(FenceState) {.nrequirements = 1}, writes));
		assert_int_equal(decide_is_fenced(&(FenceState) {.in_force = true}, writes), writes);
		assert_false(decide_is_fenced(&(FenceState) {.setting = FENCE_DEMAND}, writes));
	}
}

static void
test_token(void **unused)
{
	const int64 before = 5;

	/* of now, for new work; what is held counts during a drain, unless it was lost meanwhile */
	assert_int_equal(decide_token(0, NULL, 7, 7), 7);
	assert_int_equal(decide_token(0, NULL, 0, 7), 0);
	assert_int_equal(decide_token(7, NULL, 0, 7), 7);
	assert_int_equal(decide_token(6, NULL, 7, 7), 7);
	assert_int_equal(decide_token(6, NULL, 0, 0), 0);
	assert_int_equal(decide_token(0, NULL, 7, 0), 7);
	/* of earlier in the transaction, except that a drain does not wait for it */
	assert_int_equal(decide_token(0, &before, 7, 7), 5);
	assert_int_equal(decide_token(0, &before, 0, 0), 5);
	assert_int_equal(decide_token(0, &before, 0, 7), 0);
	assert_int_equal(decide_token(7, &before, 0, 7), 5);
}

static void
test_end_is_checked(void **unused)
{
	static const FenceStatement statements[] = {FENCE_WORK, FENCE_REST, FENCE_COMMIT, FENCE_UNDO};

	for (size_t i = 0; i < lengthof(statements); i++)
	{
		for (int cancels = 0; cancels <= 1; cancels++)
		{
			FenceState	state = {.depth = 1};

			/* a command of its own commits; in a block COMMIT does, and others may be the last */
			assert_true(decide_checks_end(&state, statements[i], false, cancels));
			assert_int_equal(decide_checks_end(&state, statements[i], true, cancels),
							 statements[i] == FENCE_COMMIT || (statements[i] != FENCE_UNDO && cancels));
			state.depth = 2;
			assert_false(decide_checks_end(&state, statements[i], false, cancels));
			assert_false(decide_checks_end(&state, statements[i], true, cancels));
		}
	}
}

static void
test_tick(void **unused)
{
	FenceState	copy = {.phase = FENCE_WATCHED, .copying = true, .depth = 1};
	FenceState	watched = {.phase = FENCE_WATCHED};

	assert_int_equal(decide_tick(&(FenceState) {.phase = FENCE_CLOSING}, true, false), FENCE_STOP);
	assert_int_equal(decide_tick(&(FenceState) {.phase = FENCE_UNWATCHED}, true, false), FENCE_STOP);
	assert_int_equal(decide_tick(&watched, false, true), FENCE_GO_ON);
	assert_int_equal(decide_tick(&watched, true, true), FENCE_CANCEL);
	watched.sent = FENCE_CANCEL_SENT;
	assert_int_equal(decide_tick(&watched, true, true), FENCE_CANCEL);
	assert_int_equal(decide_tick(&copy, true, true), FENCE_CANCEL);
	copy.sent = FENCE_CANCEL_SENT;
	assert_int_equal(decide_tick(&copy, true, false), FENCE_CANCEL);
	assert_int_equal(decide_tick(&copy, true, true), FENCE_TERMINATE);
	copy.sent = FENCE_END_SENT;
	assert_int_equal(decide_tick(&copy, true, false), FENCE_REMIND);
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		A_TEST(test_no_timer),
		A_TEST(test_timer_goes_on),
		A_TEST(test_other_errors),
		A_TEST(test_cancelled),
		A_TEST(test_nested),
		A_TEST(test_worker_is_cancelled),
		A_TEST(test_idle),
		A_TEST(test_copy),
		A_TEST(test_copy_fails),
		A_TEST(test_undone),
		A_TEST(test_not_cancelled),
		A_TEST(test_statement_after_check),
		A_TEST(test_processes),
		A_TEST(test_parallel_worker),
		A_TEST(test_seen_in_drain),
		A_TEST(test_read_only_savepoint),
		A_TEST(test_slot_moves),
		A_TEST(test_step_aside),
		A_TEST(test_setting_changes),
		A_TEST(test_setting_changes_in_procedure),
		A_TEST(test_refused_calls),
		A_TEST(test_refused_writes),
		A_TEST(test_refused_commits),
		cmocka_unit_test(test_fenced),
		cmocka_unit_test(test_token),
		cmocka_unit_test(test_end_is_checked),
		cmocka_unit_test(test_tick),
	};

	return cmocka_run_group_tests_name("fence_cases", tests, NULL, NULL);
}
