/*-------------------------------------------------------------------------
 *
 * transfer_state.c
 *	  What the other parts tell a transfer: its end, and the leader that is seen.
 *
 * Sends nothing.  transfer.c hands over.
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

void
transfer_end(ElectionCore *core, Election *e, ElectionReply reply)
{
	e->transfer.stage = TRANSFER_NONE;
	e->transfer.op_id = 0;
	core_reply(core, &e->transfer.ticket, reply);
	if (is_draining(e) && e->drain.goal == DRAIN_TRANSFER)
		drain_cancel(core, e);
}

void
transfer_leader_seen(ElectionCore *core, Election *e)
{
	Transfer   *t = &e->transfer;

	/* the own key may still be the one that was seen last */
	if (t->stage != TRANSFER_WATCHING || !e->leader.is_known ||
		e->leader.key.create_revision == t->own_revision)
		return;
	if (e->leader.key.create_revision != t->target_revision)
		transfer_end(core, e, ELECTION_FAILED);
	else if (e->leader.version >= t->receipt_version)
		transfer_end(core, e, ELECTION_DONE);
}
