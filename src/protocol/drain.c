/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  The end of a drain, and what follows it (DRAIN).
 *
 * A leader that drains has the leadership as before: the same key, token and
 * deadline, renewed as before.  It only takes no new work, which its readers
 * look after.  So nothing of the exclusion depends on this file.
 *
 * It is over when no work is open, or its time is over.  If the leadership is
 * lost meanwhile, the wish to resign is carried out all the same.
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

/* Gives up the own key, also if the leadership has been lost. */
static void
resign(ElectionCore *core, Election *e)
{
	e->drain.goal = DRAIN_NONE;
	queue_leave(core, e, ELECTION_REASON_RESIGNED);
	if (core->connected)
		return;
	core_reply(core, &e->commands.resign_ticket, ELECTION_NO_CONTACT);
	core_reply(core, &e->drain.ticket, ELECTION_NO_CONTACT);
}

void
drain_finish(ElectionCore *core, int64_t now_ns, Election *e)
{
	Transfer   *t = &e->transfer;

	e->drain.is_over = true;
	switch (e->drain.goal)
	{
		case DRAIN_RESIGN:
			resign(core, e);
			break;
		case DRAIN_TRANSFER:
			t->stage = TRANSFER_SURVEYING;
			if (t->until_ns != NEVER_NS)
				t->until_ns += now_ns - e->drain.began_ns;
			t->op_id = 0;
			t->retry_ns = 0;
			break;
		case DRAIN_PREFERRED:
			e->drain.until_ns = now_ns + lease_ttl_ns(core);
			t->survey_ns = now_ns;
			break;
		case DRAIN_NONE:
			break;
	}
}

void
drain_reconcile(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		if (e->drain.goal == DRAIN_RESIGN && e->state != ELECTION_LEADING)
			resign(core, e);
		else if (is_draining(e) && !e->drain.is_over && core_is_due(core, now_ns, e->drain.until_ns))
			drain_finish(core, now_ns, e);
		else if (e->drain.goal == DRAIN_PREFERRED && e->drain.is_over && core_is_due(core, now_ns, e->drain.until_ns))
			drain_cancel(core, e);
	}
}

/* One of the commands that wait for the resignation is cancelled. */
static bool
cancel_resignation(ElectionCore *core, Election *e, uint64_t ticket)
{
	uint64_t   *other = e->commands.resign_ticket == ticket ? &e->drain.ticket : &e->commands.resign_ticket;
	uint64_t	kept = *other;

	if (e->commands.resign_ticket != ticket && e->drain.ticket != ticket)
		return false;
	if (kept == 0)
	{
		drain_cancel(core, e);
		return true;
	}
	e->commands.resign_ticket = kept;
	e->drain.ticket = 0;
	core_reply(core, &ticket, ELECTION_CANCELLED);
	return false;
}

bool
drain_cancel_command(ElectionCore *core, Election *e, uint64_t ticket)
{
	if (e->drain.goal == DRAIN_RESIGN)
		return cancel_resignation(core, e, ticket);
	if (e->drain.goal != DRAIN_TRANSFER || e->transfer.ticket != ticket)
		return false;
	transfer_end(core, e, ELECTION_CANCELLED);
	return true;
}
