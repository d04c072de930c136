/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  The own keys in their queues: what is known of them, the states of elections,
 *	  and the end of a wait (FINAL, READY).
 *
 * Sends nothing.  own_key.c writes the keys.  test/model/queue.pml is the model
 * of both.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "bytes.h"
#include "leadership.h"
#include "patroni_cluster.h"
#include "publish.h"
#include "queue.h"
#include "rival.h"
#include "watch.h"

/*
 * A key that nobody deletes is attached to one of our leases, or may become so.
 * Therefore the lease has to be replaced.
 */
static void
require_fresh_lease(ElectionCore *core)
{
	if (core->lease.id != 0)
		core->lease.must_be_replaced = true;
	if (core->fresh.moving)
		core->fresh.must_be_replaced = true;
}

/*
 * etcd was put back to an earlier state.  From now on it may hand out a create
 * revision a second time.  So this instance leads only with a create revision
 * above every token that may have been seen.  A deleted key may exist again,
 * on a lease that is kept alive.  A new lease gets rid of it.
 */
void
queue_guard_against_restore(ElectionCore *core)
{
	/* Only once: every answer shows it until etcd is believed again. */
	if (core->max_revision <= core->min_token_exclusive)
		return;
	core->min_token_exclusive = core->max_revision;
	require_fresh_lease(core);
}

/* ---- the own key: what is known of it -------------------------------------- */

/* The own key has this value, since that revision. */
void
queue_learn_value(ElectionCore *core, Election *e, EtcdBytes value, int64_t mod_revision)
{
	e->own.mod_revision = mod_revision;
	copy_value(e->own.value, value, sizeof(e->own.value));
	if (e->leader.key.create_revision == e->own.create_revision &&
		mod_revision > e->leader.mod_revision)
	{
		copy_string(e->leader.value, e->own.value, sizeof(e->leader.value));
		e->leader.mod_revision = mod_revision;
		if (e->state == ELECTION_LEADING)
			leadership_announce_leader(core, e, ELECTION_NO_REASON);
		publish_view(core, e);
	}
}

/* The own key did not exist at that revision: the next one is younger. */
void
queue_raise_min_create_revision(Election *e, int64_t revision)
{
	if (e->own.min_create_revision < revision)
		e->own.min_create_revision = revision;
}

void
queue_forget_duplicate(ElectionCore *core, Election *e)
{
	bool		was_reported = e->duplicate.since_ns == NEVER_NS;

	memset(&e->duplicate, 0, sizeof(e->duplicate));
	if (was_reported)
		core->port.report_duplicate_name(core->port.ctx, e->name, NULL);
}

/* No key of ours exists any more, or we must not use it. */
static void
clear_own_key(ElectionCore *core, Election *e)
{
	if (transfer_is_sent(e))
		e->transfer.stage = e->transfer.ticket != 0 ? TRANSFER_WATCHING : TRANSFER_NONE;
	e->own.create_revision = 0; /* so nothing else that is known of the key counts */
	e->own.is_abandoned = false;
	e->own.must_put_value = false;
	e->denials = 0;				/* they were about that key, too */
	e->denied_retry_ns = 0;
	publish_reply(core, &e->commands.proclaim_ticket, ELECTION_NOT_CANDIDATE);
	queue_forget_duplicate(core, e);
}

/* ---- the own key: won and lost ----------------------------------------------- */

/*
 * The key is gone, and this instance did not delete it: enters again, at the
 * end of the queue.
 */
void
queue_lose_key(ElectionCore *core, Election *e, ElectionReason reason)
{
	leadership_withdraw(core, e, reason);
	clear_own_key(core, e);
	e->state = ELECTION_JOINING;
	publish_view(core, e);
}

void
queue_learn_lease(ElectionCore *core, Election *e, int64_t lease)
{
	if (e->own.lease == lease)
		return;
	e->own.lease = lease;
	/* A leader's view follows with the end of the move, or with that of leadership. */
	if (e->state != ELECTION_LEADING)
		publish_view(core, e);
}

/* The key exists, and belongs to the lease. */
void
queue_learn_entry(ElectionCore *core, Election *e, int64_t create_revision, int64_t mod_revision,
				  EtcdBytes value)
{
	leadership_begin_epoch(e);
	e->own.create_revision = create_revision;
	e->own.written_revision = create_revision;
	e->own.is_abandoned = false;
	e->own.lease = core->lease.id;
	queue_learn_value(core, e, value, mod_revision);
	e->state = ELECTION_QUEUED;
	e->read_wanted = true;
	e->failures = 0;
	e->retry_ns = 0;			/* a write of an earlier key may have failed meanwhile */
	publish_view(core, e);
	publish_reply(core, &e->commands.campaign_ticket, ELECTION_DONE);
}

void
queue_leave(ElectionCore *core, Election *e, ElectionReason reason)
{
	if (e->state == ELECTION_LEAVING)
		return;
	leadership_withdraw(core, e, reason);
	if (is_candidate(e) && e->own.key[0] != '\0')
	{
		publish_reply(core, &e->commands.proclaim_ticket, ELECTION_NOT_CANDIDATE);
		e->own.must_put_value = false;
		/*
		 * An entry that is under way, or whose answer was lost, may leave a
		 * key.
		 */
		e->state = ELECTION_LEAVING;
		e->read_wanted = e->own.create_revision == 0;
		e->retry_ns = 0;
		publish_view(core, e);
	}
	else
		queue_begin_without_key(core, e);
}

/* Deletes a key that may have been entered by a request that was given up. */
void
queue_leave_with_key(ElectionCore *core, Election *e, int64_t create_revision, int64_t lease)
{
	if (e->own.create_revision != create_revision)
		e->own.is_abandoned = false;
	e->own.create_revision = create_revision;
	e->own.lease = lease;
	e->state = ELECTION_LEAVING;
	publish_view(core, e);
}

void
queue_abandon_key(ElectionCore *core, Election *e)
{
	if (e->own.is_abandoned)
		return;
	e->own.is_abandoned = true;
	require_fresh_lease(core);
}

void
queue_deny(ElectionCore *core, Election *e)
{
	if (is_queued(e))
		queue_leave(core, e, ELECTION_REASON_PERMISSION_DENIED);
	else
	{
		leadership_withdraw(core, e, ELECTION_REASON_PERMISSION_DENIED);
		if (may_have_key(e) && !request_is_under_way(core, OP_ENTER, slot_bit(core, e)))
			queue_abandon_key(core, e);
	}
	e->place.seen_revision = 0;

	/*
	 * No command waits for the rights.  What it asked for goes on.  No read has shown that
	 * the key is gone: somebody may have put it on another lease.
	 */
	publish_reply(core, &e->commands.resign_ticket, ELECTION_NO_CONTACT);
	if (e->wanted || request_is_under_way(core, OP_ENTER, slot_bit(core, e)))
	{
		publish_reply(core, &e->commands.campaign_ticket, ELECTION_NO_CONTACT);
		return;
	}

	/*
	 * Nobody waits for the rights to an election that is not in the settings any more.
	 * What may stand there ends with its lease, see free_slot().
	 */
	queue_begin_without_key(core, e);
}

/* Gives a slot to an election that has none yet; NULL if none is free. */
static Election *
take_slot(ElectionCore *core, const char *name)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (is_used(e))
			continue;
		copy_string(e->name, name, sizeof(e->name));
		snprintf(e->prefix, sizeof(e->prefix), "%s/", e->name);
		snprintf(e->prefix_end, sizeof(e->prefix_end), "%s0", e->name);	/* '/' + 1 */
		e->wanted = true;
		e->generation++;
		if (election_is_followed(name))
			patroni_begin(core, e);
		return e;
	}
	return NULL;
}

void
queue_take_up_elections(ElectionCore *core)
{
	for (int i = 0; i < core->config.nelections; i++)
	{
		const char *name = core->config.elections[i];
		Election   *e;

		if (election_find(core, name) >= 0)
			continue;
		e = take_slot(core, name);
		if (e == NULL)
			return;				/* until a key is known to be deleted */
		copy_string(e->own.wanted_value, core->config.node_name, sizeof(e->own.wanted_value));
		e->stay_out = core->config.stay_out[i];
		e->rival.timelines = core->config.timelines[i];
		queue_begin_without_key(core, e);
	}
}

/* The election is not in the settings any more, and is left. */
static void
free_slot(ElectionCore *core, Election *e)
{
	Election	unused = {.generation = e->generation, .epoch = e->epoch};

	/*
	 * Nobody searches for a key of this election any more, so none may remain.
	 * But the entry may be executed late.  It may be executed twice, because
	 * libcurl repeats a request when a connection ends without an answer.  Or
	 * etcd is put back to a time when the key existed, on any of our leases.
	 */
	if (e->own.key[0] != '\0')
		require_fresh_lease(core);
	publish_reply(core, &e->commands.campaign_ticket, ELECTION_NOTHING_TO_DO);
	publish_reply(core, &e->commands.verify_ticket, ELECTION_NOTHING_TO_DO);
	transfer_end(core, e, ELECTION_FAILED);
	*e = unused;
	publish_view(core, e);
	queue_take_up_elections(core);
}

void
queue_begin_without_key(ElectionCore *core, Election *e)
{
	leadership_begin_epoch(e);
	clear_own_key(core, e);
	publish_reply(core, &e->commands.resign_ticket, ELECTION_DONE);
	if (!e->wanted)
	{
		free_slot(core, e);
		return;
	}
	if (e->followed)
		e->state = ELECTION_FOLLOWING;
	else if (e->stay_out)
		e->state = ELECTION_RESIGNED;
	else if (!core->config.eligible)
		e->state = ELECTION_OBSERVING;
	else if (rival_refuses(core, e))
		e->state = ELECTION_SECOND_PRIMARY;
	else
		e->state = ELECTION_JOINING;
	if (e->state != ELECTION_JOINING)
		publish_reply(core, &e->commands.campaign_ticket,
					  e->state == ELECTION_SECOND_PRIMARY ? ELECTION_REFUSED :
					  ELECTION_NOTHING_TO_DO);
	e->read_wanted = true;
	publish_view(core, e);
}

void
queue_become_first(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision, bool ordered)
{
	if (e->state == ELECTION_LEADING)
		return;
	e->state = ELECTION_QUEUED;
	if (!ordered)
	{
		e->read_wanted = true;	/* an ordered one */
		return;
	}
	if (transfer_is_sent(e))
		return;					/* the key may be gone already (TRANSFER) */
	if (!lease_is_good(core, now_ns))
		return;					/* a lapsed lease is replaced first (FRESH) */
	if (e->own.create_revision <= core->min_token_exclusive)
	{
		/*
		 * The token was, or may have been, handed out before.  Another key
		 * gets another one, once etcd's revision is there.
		 */
		if (revision <= core->min_token_exclusive)
			e->state = ELECTION_HELD_BACK;
		else
			queue_leave(core, e, ELECTION_NO_REASON);
		return;
	}
	leadership_begin(core, e);
}

/* ---- the own key, as an answer shows it ---------------------------------------- */

bool
queue_check_own_key(ElectionCore *core, Election *e, const EtcdKeyValue *kv, int64_t revision)
{
	if (kv == NULL)
		queue_raise_min_create_revision(e, revision);
	if (kv == NULL || kv->create_revision != e->own.create_revision)
	{
		queue_lose_key(core, e, ELECTION_REASON_KEY_DELETED);
		return false;
	}

	/*
	 * Answers come in any order, and the newer state of the key counts.  An
	 * older answer may still have news about places, so ask again.  (An answer
	 * that is not older and does not show the last write means that etcd was
	 * put back.)
	 */
	if (revision < e->own.mod_revision)
	{
		e->read_wanted = true;
		return false;
	}
	queue_learn_value(core, e, kv->value, kv->mod_revision);

	/*
	 * Somebody put the own key on another lease, or a move took effect
	 * although its answer was lost.  How long the key lives is not known here.
	 * lease_reconcile() puts it back.
	 */
	if (kv->lease != core->lease.id && e->state == ELECTION_LEADING &&
		!lease_is_moved_to(core, kv->lease))
		leadership_withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
	queue_learn_lease(core, e, kv->lease);
	return kv->lease == core->lease.id;
}

void
queue_check_absence(ElectionCore *core, Election *e, const EtcdKeyValue *kv, int64_t revision)
{
	/*
	 * This key should not exist: an entry whose answer was lost took effect,
	 * perhaps after a deletion (FINAL).
	 */
	if (kv)
		queue_leave_with_key(core, e, kv->create_revision, kv->lease);
	else if (e->state == ELECTION_LEAVING &&
			 (e->own.create_revision == 0 ||
			  (e->own.is_abandoned && revision >= e->own.create_revision)) &&
			 !request_is_under_way(core, OP_ENTER, SLOT_BIT(slot_of(core, e))))
	{
		queue_raise_min_create_revision(e, revision);
		queue_begin_without_key(core, e);
	}
}

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
	return e->place.ready_revision != 0 && is_successor(e) && event->is_delete &&
		is_queue_key(&e->leader.key, event->kv.key) &&
		event->kv.mod_revision > e->place.ready_revision &&
		watch_reports_since(core, e, e->place.ready_revision);
}

/* A write of the own key.  Returns whether it leaves places as they are. */
static bool
see_own_write(ElectionCore *core, Election *e, const EtcdKeyValue *kv)
{
	/* The answer of a move reports it. */
	if (kv->lease != e->own.lease && !lease_is_moved_to(core, kv->lease))
	{
		leadership_withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
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
		/* whatever create revision a deletion tells: etcd tells none */
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
		leadership_announce_leader(core, e, ELECTION_NO_REASON);
		transfer_see_leader(core, e);
		publish_view(core, e);
	}
	if (!known)
		e->read_wanted = true;
	if (!known && !event->is_delete)
		e->place.ready_revision = 0;	/* the deletion of the leader's key was missed */
	if (ends_wait(core, e, event))
		e->place.ended_revision = kv->mod_revision;
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
	e->leader.lease = 0;
	copy_string(e->leader.value, e->own.value, sizeof(e->leader.value));
	e->leader.mod_revision = e->own.mod_revision;
	e->leader.is_known = true;
	e->leader.until_ns = 0;		/* beyond the deadline only if it is read */
	e->place.ready_revision = 0;
	e->place.first_revision = revision;
	leadership_begin(core, e);
}

void
queue_end_frame(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		if (e->place.ended_revision != 0 && may_lead_ready(core, now_ns, e))
			end_wait(core, e, e->place.ended_revision);
		e->place.ended_revision = 0;
	}
}

/* ---- what the lease does to the keys ------------------------------------------ */

void
queue_lease_lost(ElectionCore *core, int64_t lost)
{
	for_each_election(core, e)
	{
		/* the answer to a delete shows the state of its key */
		if (!is_queued(e))
			continue;
		/* If the fresh one is lost, keys on the other one stay. */
		if (e->own.lease == lost)
			queue_lose_key(core, e, ELECTION_REASON_LEASE_EXPIRED);
		else if (core->lease.id == 0)
			leadership_withdraw(core, e, ELECTION_REASON_LEASE_EXPIRED);
	}
}

void
queue_lease_revoked(ElectionCore *core, int64_t lease)
{
	for_each_election(core, e)
	{
		/*
		 * Its key should be gone, unless somebody put it on another lease:
		 * read.
		 */
		if (e->state == ELECTION_LEAVING && e->own.lease == lease)
		{
			e->own.create_revision = 0;
			e->read_wanted = true;
		}
	}
}

void
queue_leases_given_up(ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (e->state != ELECTION_LEAVING && !request_is_under_way(core, OP_READ, slot_bit(core, e)))
			e->own.key[0] = '\0';	/* otherwise an answer may still show it */
	}
}

void
queue_moved(ElectionCore *core)
{
	for_each_election(core, e)
	{
		e->read_wanted |= is_queued(e) && e->state != ELECTION_LEADING;
		publish_view(core, e);
	}
}

/* ---- other histories, other electors --------------------------------------- */

void
queue_discard(ElectionCore *core, Election *e)
{
	leadership_withdraw(core, e, ELECTION_REASON_HISTORY_CHANGED);
	transfer_end(core, e, ELECTION_FAILED);
	/* No answer has shown that the key is gone. */
	publish_reply(core, &e->commands.resign_ticket, ELECTION_NO_CONTACT);
	e->place.seen_revision = 0;
	e->leader.mod_revision = 0;
	e->own.key[0] = '\0';
	e->commands.verify_id = 0;
	if (e->followed)
		patroni_begin(core, e);
	queue_begin_without_key(core, e);
}

/*
 * A remembered place in the queue needs a read.  Of an election without a
 * place only that is restored which must be known before it is entered again.
 */
void
queue_resume(ElectionCore *core, const ElectionMemory *memory, int i)
{
	Election   *e = take_slot(core, memory->elections[i].name);

	copy_string(e->own.wanted_value, memory->elections[i].value, sizeof(e->own.wanted_value));
	copy_string(e->own.key, memory->elections[i].key, sizeof(e->own.key));
	/* a key that should have been deleted may still exist: read first */
	e->state = ELECTION_LEAVING;
	if (memory->elections[i].create_revision != 0)
	{
		e->state = ELECTION_QUEUED;
		e->own.create_revision = memory->elections[i].create_revision;
		e->own.mod_revision = memory->elections[i].mod_revision;
		e->own.lease = memory->elections[i].lease;
		copy_string(e->own.value, memory->elections[i].key_value, sizeof(e->own.value));
	}
	e->read_wanted = true;
}
