/*-------------------------------------------------------------------------
 *
 * leadership.c
 *	  Leadership in an election: it begins, drains and ends, and its readers see it
 *	  (EPOCH, ORDER, DRAIN).
 *
 * Sends nothing.  queue.c and patroni.c know when this instance leads; hand_over.c
 * gives leadership up as planned.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "leadership.h"
#include "publish.h"

/* ---- the leader --------------------------------------------------------- */

void
leadership_announce_leader(ElectionCore *core, Election *e, ElectionReason reason)
{
	int64_t		revision = e->leader.is_known ? e->leader.key.create_revision : 0;

	if (revision == e->leader.announced_revision &&
		(revision == 0 || strcmp(e->leader.value, e->leader.announced_value) == 0))
		return;
	if (revision == e->leader.announced_revision)
		reason = ELECTION_REASON_PROCLAIMED;
	e->leader.announced_revision = revision;
	copy_string(e->leader.announced_value, revision != 0 ? e->leader.value : "",
				sizeof(e->leader.announced_value));
	publish_event(core, ELECTION_EVENT_LEADER, e, revision != 0, reason, NULL);
}

void
transfer_see_leader(ElectionCore *core, Election *e)
{
	Transfer   *t = &e->transfer;

	/* the own key may still be the one that was seen last */
	if (t->stage != TRANSFER_WATCHING || e->leader.key.create_revision == t->own_revision)
		return;
	if (e->leader.key.create_revision != t->target_revision)
		transfer_end(core, e, ELECTION_FAILED);
	else if (e->leader.version >= t->receipt_version)
		transfer_end(core, e, ELECTION_DONE);
}

/* ---- the drain, and the transfer ---------------------------------------- */

void
drain_begin(ElectionCore *core, int64_t now_ns, Election *e, DrainGoal goal, int64_t drain_ns)
{
	e->drain.goal = goal;
	e->drain.is_over = false;
	e->drain.began_ns = now_ns;
	e->drain.until_ns = now_ns + drain_ns;
	publish_view(core, e);
	publish_event(core, ELECTION_EVENT_DRAINING, e, true, ELECTION_NO_REASON, NULL);
}

void
drain_cancel(ElectionCore *core, Election *e)
{
	e->stay_out = false;		/* of a resignation */
	e->drain.goal = DRAIN_NONE;
	publish_reply(core, &e->commands.resign_ticket, ELECTION_CANCELLED);
	publish_view(core, e);
	publish_event(core, ELECTION_EVENT_DRAIN_CANCELLED, e, true, ELECTION_NO_REASON, NULL);
}

static void
drain_lost(Election *e)
{
	if (e->drain.goal != DRAIN_RESIGN)
		e->drain.goal = DRAIN_NONE;
}

void
transfer_end(ElectionCore *core, Election *e, ElectionReply reply)
{
	bool		is_preferred = e->transfer.ticket == 0;

	e->transfer.stage = TRANSFER_NONE;
	e->transfer.op_id = 0;
	publish_reply(core, &e->transfer.ticket, reply);
	if (e->drain.goal != DRAIN_TRANSFER)
		return;
	e->transfer.nfailed_drains += is_preferred;
	drain_cancel(core, e);
}

/* ---- begin and end ------------------------------------------------------ */

/*
 * Answers to earlier requests are ignored (EPOCH), and the wait goes on
 * (READY).
 */
void
leadership_begin_epoch(Election *e)
{
	e->epoch++;
	e->place.ready_revision = 0;
	e->place.first_revision = 0;
	e->place.ended_revision = 0;
}

void
leadership_begin(ElectionCore *core, Election *e)
{
	e->state = ELECTION_LEADING;
	/* A leader has a deadline, so what failed before is tried at once, without its back-off. */
	core->lease_retry_ns = 0;
	if (core->renewal_failures > 0)
		core->renewal_ns = 0;
	e->transfer.better_revision = 0;
	e->transfer.nfailed_drains = 0;
	e->transfer.survey_ns = 0;
	/* Another instance handed over to this one: this write confirms it. */
	if (e->own.mod_revision > e->own.written_revision)
		e->own.must_put_value = true;
	e->leader.announced_revision = e->own.create_revision;
	copy_string(e->leader.announced_value, e->leader.value, sizeof(e->leader.announced_value));
	publish_view(core, e);
	publish_event(core, ELECTION_EVENT_ELECTED, e, true, ELECTION_NO_REASON, NULL);
}

void
leadership_withdraw(ElectionCore *core, Election *e, ElectionReason reason)
{
	leadership_begin_epoch(e);
	if (e->state != ELECTION_LEADING)
		return;
	e->state = e->followed ? ELECTION_FOLLOWING : ELECTION_QUEUED;
	drain_lost(e);
	if (e->transfer.stage == TRANSFER_SURVEYING || e->transfer.stage == TRANSFER_DRAINING)
		transfer_end(core, e, ELECTION_FAILED);

	/*
	 * Until something newer is read, no leader is known.  Except after the
	 * deadline: the key outlives it, and still names the leader.
	 */
	if (reason != ELECTION_REASON_LEASE_EXPIRED)
		e->leader.is_known = false;
	publish_view(core, e);
	publish_event(core, ELECTION_EVENT_UNELECTED, e, false, reason, NULL);
}

/* ---- time --------------------------------------------------------------- */

void
leadership_expire(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		if (e->state == ELECTION_LEADING && now_ns >= leadership_deadline_ns(core, e))
		{
			leadership_withdraw(core, e, ELECTION_REASON_LEASE_EXPIRED);
			e->read_wanted = true;
		}
		if (e->leader.is_known && e->state != ELECTION_LEADING && now_ns >= e->leader.until_ns)
		{
			e->leader.is_known = false;
			leadership_announce_leader(core, e, ELECTION_REASON_NO_CONTACT);
			publish_view(core, e);
		}
	}
}

void
leadership_wake_at_end(ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (e->state == ELECTION_LEADING)
			wake_at(core, leadership_deadline_ns(core, e));
		else if (e->leader.is_known)
			wake_at(core, e->leader.until_ns);
	}
}
