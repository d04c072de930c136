/*-------------------------------------------------------------------------
 *
 * fence_state_test.c
 *	  Tests of src/fence/state.c: every event in every state of a transaction.
 *
 * Counters have no bound there.  Here they have one: a counter of 2 differs from
 * 1 only in what is left after one event.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "fence/state.h"

#define MAX_DEPTH			2
#define MAX_REQUIREMENTS	2
#define NPHASES				(FENCE_CLOSING + 1)
#define NSIGNALS			(FENCE_END_SENT + 1)
#define NSETTINGS			(FENCE_CONTINUED_DEMAND + 1)
#define NSTATES				(NPHASES * NSIGNALS * NSETTINGS * 2 * \
							 (MAX_REQUIREMENTS + 1) * 2 * (MAX_DEPTH + 1) * 2)

/* A failed Assert() of the file. */
#if PG_VERSION_NUM >= 160000
void
ExceptionalCondition(const char *condition, const char *file, int line)
#else
void
ExceptionalCondition(const char *condition, const char *type, const char *file, int line)
#endif
{
#if PG_VERSION_NUM < 160000
	(void) type;
#endif
	mock_assert(0, condition, file, line);
	abort();
}

/* The state with that number, of all combinations. */
static FenceState
state_of(int number)
{
	FenceState	state;

	state.phase = number % NPHASES;
	number /= NPHASES;
	state.sent = number % NSIGNALS;
	number /= NSIGNALS;
	state.setting = number % NSETTINGS;
	number /= NSETTINGS;
	state.in_force = number % 2;
	number /= 2;
	state.nrequirements = number % (MAX_REQUIREMENTS + 1);
	number /= MAX_REQUIREMENTS + 1;
	state.bound = number % 2;
	number /= 2;
	state.copying = number % 2;
	number /= 2;
	state.depth = number;
	return state;
}

static int
number_of(const FenceState *state)
{
	int			number = state->depth;

	number = 2 * number + state->copying;
	number = 2 * number + state->bound;
	number = (MAX_REQUIREMENTS + 1) * number + state->nrequirements;
	number = 2 * number + state->in_force;
	number = NSETTINGS * number + state->setting;
	number = NSIGNALS * number + state->sent;
	return NPHASES * number + state->phase;
}

static bool
is_within_bounds(const FenceState *state)
{
	return state->depth <= MAX_DEPTH && state->nrequirements <= MAX_REQUIREMENTS;
}

/*
 * The table of legal combinations is exact: a process that begins with an empty state
 * reaches each of them by allowed events, and reaches nothing else.
 */
static void
test_legal_states_are_those_reached(void **unused)
{
	static bool reached[NSTATES];
	int			unvisited[NSTATES];
	int			nunvisited = 1;
	int			nreached = 0;

	(void) unused;
	reached[0] = true;
	unvisited[0] = 0;
	while (nunvisited > 0)
	{
		FenceState	state = state_of(unvisited[--nunvisited]);

		for (FenceEvent event = 0; event < FENCE_NEVENTS; event++)
		{
			FenceState	next = state;

			if (!fence_is_allowed(&state, event))
				continue;
			fence_apply(&next, event);
			assert_true(fence_is_legal(&next));
			if (is_within_bounds(&next) && !reached[number_of(&next)])
			{
				reached[number_of(&next)] = true;
				unvisited[nunvisited++] = number_of(&next);
			}
		}
	}
	for (int i = 0; i < NSTATES; i++)
	{
		FenceState	state = state_of(i);

		assert_int_equal(number_of(&state), i);
		assert_int_equal(reached[i], fence_is_legal(&state));
		nreached += reached[i];
	}
	assert_int_equal(NSTATES, 1944);
	assert_int_equal(nreached, 972);
}

/* How one event may change a state. */
static void
check_event(const FenceState *state, FenceEvent event)
{
	bool		is_allowed = fence_is_allowed(state, event);
	FenceState	next = *state;

	fence_apply(&next, event);
	if (!is_allowed)
	{
		/* nothing in the way of a statement, of a transaction that ends, or of a demand */
		assert_true(event != FENCE_BEGIN_STATEMENT && event != FENCE_CLOSE && event != FENCE_END_COPY);
		assert_true(event != FENCE_BIND && event != FENCE_REQUIRE && event != FENCE_WITHDRAW);
		assert_true(event != FENCE_END || state->phase != FENCE_CLOSING);
		assert_true(event != FENCE_WATCH || state->phase == FENCE_CLOSING);
		assert_true(event != FENCE_MAKE_DEMAND || state->in_force);
		return;
	}

	/* the timer: nothing during a commit or an abort, nor without a requirement */
	if (event == FENCE_SEND_CANCEL || event == FENCE_SEND_END)
	{
		assert_int_equal(state->phase, FENCE_WATCHED);
		assert_true(state->bound || state->nrequirements > 0 || state->setting != FENCE_NO_DEMAND);
		assert_true(next.sent >= state->sent && next.sent != FENCE_NO_SIGNAL);
		assert_true(next.sent != FENCE_END_SENT || state->sent == FENCE_END_SENT || state->copying);
	}
	else
		assert_true(next.sent == state->sent || next.sent == FENCE_NO_SIGNAL);
	assert_true(event != FENCE_FORGET_CANCEL || next.sent == FENCE_NO_SIGNAL);
	/* a session that ends does not go on */
	assert_true(state->sent != FENCE_END_SENT || next.sent == FENCE_END_SENT || event == FENCE_END);
	/* a commit is not watched again before its end */
	assert_true(state->phase != FENCE_CLOSING || next.phase == FENCE_CLOSING || event == FENCE_END);
	/* the timer does not see a demand while it is replaced */
	assert_false(state->in_force && event == FENCE_MAKE_DEMAND);
	/* a demand lasts until the end of the transaction, a binding as long as the process */
	assert_true(state->setting == FENCE_NO_DEMAND || next.setting != FENCE_NO_DEMAND || event == FENCE_END);
	assert_true(next.nrequirements >= state->nrequirements || event == FENCE_END);
	assert_true(next.bound >= state->bound);
	/* the next transaction begins without demands, in the same statement */
	if (event == FENCE_END)
	{
		FenceState	begin = {.bound = state->bound, .depth = state->depth, .copying = state->copying};

		assert_int_equal(number_of(&next), number_of(&begin));
	}
}

static void
test_every_event_in_every_state(void **unused)
{
	(void) unused;
	for (int i = 0; i < NSTATES; i++)
	{
		FenceState	state = state_of(i);

		for (FenceEvent event = 0; event < FENCE_NEVENTS && fence_is_legal(&state); event++)
			check_event(&state, event);
	}
}

/* Notes events in the state of this process, which is empty before. */
#define note(...) \
	do { \
		const FenceEvent events[] = {__VA_ARGS__}; \
		fence_state = (FenceState) {0}; \
		for (size_t i = 0; i < lengthof(events); i++) \
			fence_note(events[i]); \
	} while (0)

/* The transactions of a session. */
static void
test_transactions(void **unused)
{
	(void) unused;
	/* a cancelled statement, whose error comes */
	note(FENCE_REQUIRE, FENCE_WATCH, FENCE_BEGIN_STATEMENT, FENCE_SEND_CANCEL, FENCE_SEND_CANCEL,
		 FENCE_END_STATEMENT, FENCE_FORGET_CANCEL, FENCE_CLOSE, FENCE_END);
	assert_int_equal(fence_state.phase, FENCE_UNWATCHED);

	/* a cancellation that comes after the last statement, and meets the commit */
	note(FENCE_REQUIRE, FENCE_WATCH, FENCE_SEND_CANCEL, FENCE_CLOSE);
	assert_int_equal(fence_state.sent, FENCE_CANCEL_SENT);

	/* a procedure that commits: the setting goes on, and is read anew */
	note(FENCE_BEGIN_STATEMENT, FENCE_MAKE_DEMAND, FENCE_WATCH, FENCE_CLOSE, FENCE_END,
		 FENCE_CONTINUE_DEMAND, FENCE_WATCH, FENCE_BEGIN_STATEMENT, FENCE_WITHDRAW);
	assert_true(fence_state.setting == FENCE_CONTINUED_DEMAND && !fence_state.in_force);
	fence_note(FENCE_MAKE_DEMAND);
	assert_true(fence_state.setting == FENCE_DEMAND && fence_state.in_force);

	/* COPY that waits for its client */
	note(FENCE_REQUIRE, FENCE_WATCH, FENCE_BEGIN_STATEMENT, FENCE_BEGIN_COPY, FENCE_SEND_CANCEL,
		 FENCE_SEND_END, FENCE_SEND_END, FENCE_CLOSE, FENCE_END);
	assert_true(fence_state.copying);

	/* COPY within other statements: in the script of an extension that a function creates */
	note(FENCE_BEGIN_STATEMENT, FENCE_BEGIN_STATEMENT, FENCE_BEGIN_STATEMENT, FENCE_BEGIN_COPY,
		 FENCE_END_COPY, FENCE_END_STATEMENT, FENCE_END_STATEMENT, FENCE_END_STATEMENT);
	assert_int_equal(fence_state.depth, 0);
}

/* Builds with assertions find an event that is not allowed. */
static void
test_assertions(void **unused)
{
	(void) unused;
	/* the timer during a commit, or without a requirement */
	note(FENCE_REQUIRE, FENCE_WATCH, FENCE_CLOSE);
	expect_assert_failure(fence_note(FENCE_SEND_CANCEL));
	expect_assert_failure(fence_note(FENCE_WATCH));
	note(FENCE_WATCH);
	expect_assert_failure(fence_note(FENCE_SEND_CANCEL));

	/* the end of the session without COPY, or without a cancellation before */
	note(FENCE_REQUIRE, FENCE_WATCH, FENCE_BEGIN_STATEMENT, FENCE_SEND_CANCEL);
	expect_assert_failure(fence_note(FENCE_SEND_END));
	note(FENCE_REQUIRE, FENCE_WATCH, FENCE_BEGIN_STATEMENT, FENCE_BEGIN_COPY);
	expect_assert_failure(fence_note(FENCE_SEND_END));

	/* statements */
	note(FENCE_REQUIRE);
	expect_assert_failure(fence_note(FENCE_END_STATEMENT));
	expect_assert_failure(fence_note(FENCE_BEGIN_COPY));
	expect_assert_failure(fence_note(FENCE_FORGET_CANCEL));
	expect_assert_failure(fence_note(FENCE_END));

	/* a demand that the timer sees while it is replaced */
	note(FENCE_MAKE_DEMAND);
	expect_assert_failure(fence_note(FENCE_MAKE_DEMAND));
	expect_assert_failure(fence_note(FENCE_CONTINUE_DEMAND));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_legal_states_are_those_reached),
		cmocka_unit_test(test_every_event_in_every_state),
		cmocka_unit_test(test_transactions),
		cmocka_unit_test(test_assertions),
	};

	return cmocka_run_group_tests_name("fence_state", tests, NULL, NULL);
}
