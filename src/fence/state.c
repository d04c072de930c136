/*-------------------------------------------------------------------------
 *
 * state.c
 *	  The state of the open transaction, as the fence sees it.
 *
 *	event				allowed in			changes
 *	------------------	------------------	-------------------------------------
 *	BEGIN_STATEMENT		any state			depth + 1
 *	END_STATEMENT		any state			depth - 1
 *	BEGIN_COPY			any state			copying
 *	END_COPY			any state			not copying
 *	BIND				any state			bound
 *	REQUIRE				any state			nrequirements + 1
 *	WITHDRAW_SETTING	any state			IN_FORCE to WITHDRAWN, CONTINUED to
 *											CONTINUED_WITHDRAWN
 *	DEMAND_SETTING		not in force		IN_FORCE: the handler of the timer must
 *											not see a demand while it is replaced
 *	CONTINUE_SETTING	UNREAD				CONTINUED
 *	WATCH				UNWATCHED, WATCHED	WATCHED: nothing watches a commit
 *	SEND_CANCEL			WATCHED				NO_SIGNAL to CANCEL_SENT
 *	SEND_END			WATCHED, copying,	END_SENT, until the process ends
 *						not NO_SIGNAL
 *	FORGET_CANCEL		CANCEL_SENT			NO_SIGNAL
 *	CLOSE				any state			CLOSING
 *	END					CLOSING				UNWATCHED, NO_SIGNAL, UNREAD,
 *											nrequirements 0
 *
 * No event may lead to another combination than these:
 *
 *	- The timer has sent nothing to an unwatched transaction.
 *	- If the timer has sent anything, the transaction requires leadership of an
 *	  election, which the error names.
 *	- While COPY FROM STDIN runs, and while the session is about to end, a
 *	  statement runs.
 *
 * A statement can outlive its transaction: a procedure or a DO block commits, and
 * VACUUM goes on in the next transaction.  So END leaves depth and copying.  The
 * rollback of a subtransaction changes nothing here.
 *
 * Of PostgreSQL, this file needs Assert() alone, so that a unit test can try every
 * event in every state.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "state.h"

#define BIT(value)	(1 << (value))

FenceState	fence_state;

void
fence_apply(FenceState *state, FenceEvent event)
{
	switch (event)
	{
		case FENCE_BEGIN_STATEMENT:
			state->depth++;
			break;
		case FENCE_END_STATEMENT:
			state->depth--;
			break;
		case FENCE_BEGIN_COPY:
		case FENCE_END_COPY:
			state->copying = event == FENCE_BEGIN_COPY;
			break;
		case FENCE_BIND:
			state->bound = true;
			break;
		case FENCE_REQUIRE:
			state->nrequirements++;
			break;
		case FENCE_WITHDRAW_SETTING:
			if (state->setting == SETTING_IN_FORCE)
				state->setting = SETTING_WITHDRAWN;
			else if (state->setting == SETTING_CONTINUED)
				state->setting = SETTING_CONTINUED_WITHDRAWN;
			break;
		case FENCE_DEMAND_SETTING:
			state->setting = SETTING_IN_FORCE;
			break;
		case FENCE_CONTINUE_SETTING:
			state->setting = SETTING_CONTINUED;
			break;
		case FENCE_WATCH:
			state->phase = FENCE_WATCHED;
			break;
		case FENCE_SEND_CANCEL:
			if (state->sent == FENCE_NO_SIGNAL)
				state->sent = FENCE_CANCEL_SENT;
			break;
		case FENCE_SEND_END:
			state->sent = FENCE_END_SENT;
			break;
		case FENCE_FORGET_CANCEL:
			state->sent = FENCE_NO_SIGNAL;
			break;
		case FENCE_CLOSE:
			state->phase = FENCE_CLOSING;
			break;
		case FENCE_END:
			state->phase = FENCE_UNWATCHED;
			state->sent = FENCE_NO_SIGNAL;
			state->setting = SETTING_UNREAD;
			state->nrequirements = 0;
			break;
		case FENCE_NEVENTS:
			break;
	}
}

bool
fence_is_legal(const FenceState *state)
{
	bool		requires_any = state->bound || state->nrequirements > 0 ||
		state->setting != SETTING_UNREAD;

	if (state->depth < 0 || (state->copying && state->depth == 0))
		return false;
	if (state->sent == FENCE_NO_SIGNAL)
		return true;
	return state->phase != FENCE_UNWATCHED && requires_any &&
		(state->sent == FENCE_CANCEL_SENT || state->depth > 0);
}

bool
fence_is_allowed(const FenceState *state, FenceEvent event)
{
	/* the values in which an event is allowed; 0: in all */
	static const struct
	{
		int			phases;
		int			sent;
		int			settings;
	}			allowed[FENCE_NEVENTS] = {
		[FENCE_DEMAND_SETTING] = {.settings = BIT(SETTING_UNREAD) | BIT(SETTING_WITHDRAWN) |
		BIT(SETTING_CONTINUED_WITHDRAWN)},
		[FENCE_CONTINUE_SETTING] = {.settings = BIT(SETTING_UNREAD)},
		[FENCE_WATCH] = {.phases = BIT(FENCE_UNWATCHED) | BIT(FENCE_WATCHED)},
		[FENCE_SEND_CANCEL] = {.phases = BIT(FENCE_WATCHED)},
		[FENCE_SEND_END] = {.phases = BIT(FENCE_WATCHED),
		.sent = BIT(FENCE_CANCEL_SENT) | BIT(FENCE_END_SENT)},
		[FENCE_FORGET_CANCEL] = {.sent = BIT(FENCE_CANCEL_SENT)},
		[FENCE_END] = {.phases = BIT(FENCE_CLOSING)}
	};
	FenceState	next = *state;

	if ((allowed[event].phases != 0 && (allowed[event].phases & BIT(state->phase)) == 0) ||
		(allowed[event].sent != 0 && (allowed[event].sent & BIT(state->sent)) == 0) ||
		(allowed[event].settings != 0 && (allowed[event].settings & BIT(state->setting)) == 0) ||
		(event == FENCE_SEND_END && !state->copying))
		return false;
	fence_apply(&next, event);
	return fence_is_legal(&next);
}

void
fence_note(FenceEvent event)
{
	Assert(fence_is_allowed(&fence_state, event));
	fence_apply(&fence_state, event);
}
