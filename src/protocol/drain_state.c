/*-------------------------------------------------------------------------
 *
 * drain_state.c
 *	  What the other parts do to a drain: its begin, and its end without a
 *	  hand-over.
 *
 * drain.c has the other end.
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

void
drain_begin(ElectionCore *core, int64_t now_ns, Election *e, DrainGoal goal, int64_t drain_ns)
{
	e->drain.goal = goal;
	e->drain.is_over = false;
	e->drain.began_ns = now_ns;
	e->drain.until_ns = now_ns + drain_ns;
	core_publish(core, e);
	core_announce(core, ELECTION_EVENT_DRAINING, e, true, ELECTION_NO_REASON, NULL);
}

void
drain_cancel(ElectionCore *core, Election *e)
{
	e->stay_out = false;		/* of a resignation */
	if (e->drain.goal == DRAIN_PREFERRED)
		e->transfer.nspared++;
	e->drain.goal = DRAIN_NONE;
	core_reply(core, &e->commands.resign_ticket, ELECTION_CANCELLED);
	core_reply(core, &e->drain.ticket, ELECTION_CANCELLED);
	core_publish(core, e);
	core_announce(core, ELECTION_EVENT_ELECTED, e, true, ELECTION_REASON_DRAIN_CANCELLED, NULL);
}

void
drain_lost(Election *e)
{
	if (e->drain.goal != DRAIN_RESIGN)
		e->drain.goal = DRAIN_NONE;
}
