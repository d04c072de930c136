/*-------------------------------------------------------------------------
 *
 * state.c
 *	  The state of the open transaction, as the fence sees it.
 *
 * An event is allowed if the table of rules says so, and if it leads to a legal
 * combination:
 *
 *	- The timer has sent nothing to an unwatched transaction.
 *	- If the timer has sent anything, the transaction requires leadership of an
 *	  election, which the error names.
 *	- Only a demand that was made is in force.
 *	- While COPY FROM STDIN runs, and while the session is about to end, a
 *	  statement runs.
 *
 * A statement can outlive its transaction: a procedure or a DO block commits, and
 * VACUUM goes on in the next transaction.  So the end of a transaction leaves depth
 * and copying.  The rollback of a subtransaction changes nothing here.
 *
 * Of PostgreSQL, this file needs Assert() alone, so that a unit test can try every
 * event in every state.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "state.h"

#define IN(value)	(1 << (value))
#define TO(value)	(1 + (value))

FenceState	fence_state;

static const struct
{
	/* the values in which the event is allowed; 0: all */
	int			phases;
	int			signals;
	int			in_force;
	int			copying;
	/* the new values; 0: unchanged */
	int			to_phase;
	int			to_signal;
	int			to_setting;
	int			to_force;
	int			to_bound;
	int			to_copying;
	/* added to the counter */
	int			depth;
}			rules[FENCE_NEVENTS] = {
	[FENCE_BEGIN_STATEMENT] = {.depth = +1},
	[FENCE_END_STATEMENT] = {.depth = -1},
	[FENCE_BEGIN_COPY] = {.to_copying = TO(true)},
	[FENCE_END_COPY] = {.to_copying = TO(false)},

	[FENCE_BIND] = {.to_bound = TO(true)},
	[FENCE_REQUIRE] = {0},		/* see fence_apply() */
	/* the handler of the timer must not see a demand while it is replaced */
	[FENCE_WITHDRAW] = {.to_force = TO(false)},
	[FENCE_MAKE_DEMAND] = {.in_force = IN(false), .to_setting = TO(FENCE_DEMAND),
	.to_force = TO(true)},
	[FENCE_CONTINUE_DEMAND] = {.in_force = IN(false), .to_setting = TO(FENCE_CONTINUED_DEMAND),
	.to_force = TO(true)},

	/* nothing watches a commit */
	[FENCE_WATCH] = {.phases = IN(FENCE_UNWATCHED) | IN(FENCE_WATCHED),
	.to_phase = TO(FENCE_WATCHED)},
	[FENCE_SEND_CANCEL] = {.phases = IN(FENCE_WATCHED), .signals = IN(FENCE_NO_SIGNAL) |
	IN(FENCE_CANCEL_SENT), .to_signal = TO(FENCE_CANCEL_SENT)},
	[FENCE_SEND_END] = {.phases = IN(FENCE_WATCHED), .signals = IN(FENCE_CANCEL_SENT) |
	IN(FENCE_END_SENT), .copying = IN(true), .to_signal = TO(FENCE_END_SENT)},
	[FENCE_FORGET_CANCEL] = {.signals = IN(FENCE_CANCEL_SENT), .to_signal = TO(FENCE_NO_SIGNAL)},

	[FENCE_CLOSE] = {.to_phase = TO(FENCE_CLOSING)},
	[FENCE_END] = {.phases = IN(FENCE_CLOSING), .to_phase = TO(FENCE_UNWATCHED),
	.to_signal = TO(FENCE_NO_SIGNAL), .to_setting = TO(FENCE_NO_DEMAND), .to_force = TO(false)}
};

static void
change(volatile sig_atomic_t *field, int to)
{
	if (to != 0)
		*field = to - 1;
}

void
fence_apply(FenceState *state, FenceEvent event)
{
	change(&state->phase, rules[event].to_phase);
	change(&state->sent, rules[event].to_signal);
	change(&state->setting, rules[event].to_setting);
	change(&state->in_force, rules[event].to_force);
	change(&state->bound, rules[event].to_bound);
	change(&state->copying, rules[event].to_copying);
	state->depth += rules[event].depth;
	if (event == FENCE_REQUIRE)
		state->nrequirements++;
	else if (event == FENCE_END)
		state->nrequirements = 0;
}

bool
fence_is_legal(const FenceState *state)
{
	bool		requires_any = state->bound || state->nrequirements > 0 ||
		state->setting != FENCE_NO_DEMAND;

	if (state->depth < 0 || (state->copying && state->depth == 0) ||
		(state->in_force && state->setting == FENCE_NO_DEMAND))
		return false;
	if (state->sent == FENCE_NO_SIGNAL)
		return true;
	return state->phase != FENCE_UNWATCHED && requires_any &&
		(state->sent == FENCE_CANCEL_SENT || state->depth > 0);
}

static bool
is_in(int value, int allowed)
{
	return allowed == 0 || (allowed & IN(value)) != 0;
}

bool
fence_is_allowed(const FenceState *state, FenceEvent event)
{
	FenceState	next = *state;

	fence_apply(&next, event);
	return is_in(state->phase, rules[event].phases) && is_in(state->sent, rules[event].signals) &&
		is_in(state->in_force, rules[event].in_force) &&
		is_in(state->copying, rules[event].copying) && fence_is_legal(&next);
}

void
fence_note(FenceEvent event)
{
	Assert(fence_is_allowed(&fence_state, event));
	fence_apply(&fence_state, event);
}
