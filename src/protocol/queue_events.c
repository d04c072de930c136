/*-------------------------------------------------------------------------
 *
 * queue_events.c
 *	  What the watch tells of the keys of a queue, and the end of a wait
 *	  (READY).
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

/* ---- events -------------------------------------------------------------------- */

/* The key that an event of this watch is about; NULL: another key of the watched range. */
static const QueueKey *
watched_key(const Watched *watched, const EtcdWatchEvent *event)
{
	if (watched->target != WATCH_WAIT || is_queue_key(&watched->key, event->kv.key))
		return &watched->key;
	return is_queue_key(&watched->leader, event->kv.key) ? &watched->leader : NULL;
}

/* Is this the end of the wait for the only key before the own one (READY)? */
static bool
ends_wait(const ElectionCore *core, const Election *e, const EtcdWatchEvent *event)
{
	return e->position.ready_revision != 0 && is_successor(e) && event->is_delete &&
		is_queue_key(&e->leader.key, event->kv.key) &&
		event->kv.mod_revision > e->position.ready_revision &&
		watch_tells_since(core, e, e->position.ready_revision);
}

/* A write of the own key.  Returns whether it leaves places as they are. */
static bool
see_own_write(ElectionCore *core, Election *e, const EtcdKeyValue *kv)
{
	/* The answer of a move reports it. */
	if (kv->lease != e->own.lease && !lease_is_moved_to(core, kv->lease))
	{
		queue_withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
		return false;
	}
	queue_learn_lease(core, e, kv->lease);
	queue_learn_value(core, e, kv->value, kv->mod_revision);
	return true;
}

/*
 * A PUT of the watched incarnation of a key does not change places; anything
 * else needs a read.
 */
void
queue_see_event(ElectionCore *core, const Watched *watched, const EtcdWatchEvent *event)
{
	Election   *e = &core->elections[watched->slot];
	const EtcdKeyValue *kv = &event->kv;
	const QueueKey *key = watched_key(watched, event);
	bool		known;

	if (key == NULL)
		return;
	known = !event->is_delete && kv->create_revision == key->create_revision;

	/*
	 * An event of the own key.  The stream may have been opened for an earlier
	 * incarnation of the key, which led then.  An event counts if it is newer
	 * than the known state of this incarnation.
	 */
	if (e->own.create_revision != 0 && is_key(kv->key, e->own.key))
	{
		if (kv->mod_revision <= e->own.mod_revision)
			return;
		if (e->state == ELECTION_LEAVING || (event->is_delete && transfer_is_sent(e)))
		{
			/*
			 * The answer of our deletion reports it.  But it may be somebody
			 * else's, so an older answer does not show that the key exists.
			 */
			e->own.mod_revision = kv->mod_revision;
			return;
		}
		if (event->is_delete || kv->create_revision != e->own.create_revision)
		{
			queue_lose_key(core, e, ELECTION_REASON_KEY_DELETED);
			return;
		}
		known = see_own_write(core, e, kv);
	}
	if (known && e->leader.is_known && kv->create_revision == e->leader.key.create_revision &&
		kv->mod_revision > e->leader.mod_revision)
	{
		copy_value(e->leader.value, kv->value, sizeof(e->leader.value));
		e->leader.mod_revision = kv->mod_revision;
		e->leader.version = kv->version;
		if (e->state == ELECTION_LEADING || e->own.create_revision != kv->create_revision)
			queue_tell_leader(core, e, ELECTION_NO_REASON);
		transfer_leader_seen(core, e);
		core_publish(core, e);
	}
	if (!known)
		e->read_wanted = true;
	if (!known && !event->is_delete)
		e->position.ready_revision = 0;	/* the deletion of the leader's key was missed */
	if (ends_wait(core, e, event))
		e->position.ended_revision = kv->mod_revision;
}

/* ---- the end of a wait ---------------------------------------------------------- */

/* May this instance lead if its wait is over (READY)? */
static bool
may_lead_ready(const ElectionCore *core, int64_t now_ns, const Election *e)
{
	return lease_is_good(core, now_ns) && e->own.lease == core->lease.id &&
		core->stale_since_ns == 0 && e->own.create_revision > core->min_token_exclusive;
}

/* The only key before the own one was deleted at that revision (READY). */
static void
end_wait(ElectionCore *core, Election *e, int64_t revision)
{
	e->leader.key = make_queue_key(bytes_of(e->own.key), e->own.create_revision);
	copy_string(e->leader.value, e->own.value, sizeof(e->leader.value));
	e->leader.mod_revision = e->own.mod_revision;
	e->leader.is_known = true;
	e->leader.until_ns = 0;		/* beyond the deadline only if it is read */
	e->position.ready_revision = 0;
	e->position.first_revision = revision;
	queue_begin_leading(core, e);
}

void
queue_end_frame(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		if (e->position.ended_revision != 0 && is_successor(e) && may_lead_ready(core, now_ns, e))
			end_wait(core, e, e->position.ended_revision);
		e->position.ended_revision = 0;
	}
}
