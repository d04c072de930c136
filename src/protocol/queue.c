/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  The own keys: how they enter the queue, lead, and leave it (ARMED,
 *	  FINAL, GUARD, ORDER).
 *
 * test/model/queue.pml is the model of this file.
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

/*
 * After a resignation we enter again a little later.  The next candidate may
 * have to read its place before it leads; its read must not wait for our read,
 * and still less for our write.
 */
#define REJOIN_DELAY_NS		(50 * NS_PER_MS)

/*
 * key = name "/" lease ".pg", the lease in lower-case hex without leading
 * zeros, as Go's %x.  The suffix marks the keys that are ours.
 */
static void
make_key(char *key, const char *name, int64_t lease)
{
	static const char digits[] = "0123456789abcdef";
	size_t		len = strlen(name);
	int			shift = 60;

	memcpy(key, name, len);
	key[len++] = '/';
	while (shift > 0 && ((lease >> shift) & 0xF) == 0)
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		key[len++] = digits[(lease >> shift) & 0xF];
	memcpy(key + len, ELECTION_KEY_SUFFIX, sizeof(ELECTION_KEY_SUFFIX));
}

static void
postpone(ElectionCore *core, const Op *failed, Election *e)
{
	e->retry_ns = failed->sent_ns + core_backoff_ns(core, ++e->failures);
}

void
queue_retry_now(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
		core->elections[i].retry_ns = 0;
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
	if (core->max_revision <= core->lead_above_revision)
		return;
	core->lead_above_revision = core->max_revision;
	lease_taint(core, 0);
}

/* ---- the leader ------------------------------------------------------------ */

void
queue_tell_leader(ElectionCore *core, Election *e, ElectionReason reason)
{
	int64_t		revision = e->leader_known ? e->leader.create_revision : 0;

	if (revision == e->told_revision &&
		(revision == 0 || strcmp(e->leader_value, e->told_value) == 0))
		return;
	if (revision != 0 && revision == e->told_revision)
		reason = ELECTION_REASON_PROCLAIMED;
	e->told_revision = revision;
	copy_string(e->told_value, revision != 0 ? e->leader_value : "", sizeof(e->told_value));
	core_announce(core, ELECTION_EVENT_LEADER, e, revision != 0, reason, NULL);
}

void
queue_expire(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (e->state == ELECTION_LEADING && now_ns >= lease_deadline_ns(core, e))
		{
			queue_withdraw(core, e, ELECTION_REASON_LEASE_EXPIRED);
			e->look_wanted = true;
		}
		if (e->leader_known && e->state != ELECTION_LEADING && now_ns >= e->leader_until_ns)
		{
			e->leader_known = false;
			queue_tell_leader(core, e, ELECTION_REASON_NO_CONTACT);
			core_publish(core, e);
		}
	}
}

void
queue_wake_at_expiry(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];

		if (e->state == ELECTION_LEADING)
			core_wake_at(core, lease_deadline_ns(core, e));
		else if (e->leader_known)
			core_wake_at(core, e->leader_until_ns);
	}
}

/* ---- the own key: what is known of it -------------------------------------- */

/* Is there nothing to proclaim? */
static bool
has_value(const Election *e)
{
	return !e->must_put_value && strcmp(e->key_value, e->value) == 0;
}

/*
 * The own key is attached to this lease.  If the lease is ours, the key keeps
 * its name there.
 */
static void
learn_own_lease(const ElectionCore *core, Election *e, int64_t lease)
{
	e->key_lease = lease;
	if (lease != 0 && lease == core->lease.id)
		e->named_lease = lease;
}

/* The own key has this value, since that revision. */
static void
learn_own_value(ElectionCore *core, Election *e, EtcdBytes value, int64_t mod_revision)
{
	e->mod_revision = mod_revision;
	copy_value(e->key_value, value, sizeof(e->key_value));
	if (e->leader_known && e->leader.create_revision == e->create_revision &&
		mod_revision > e->leader_mod_revision)
	{
		copy_string(e->leader_value, e->key_value, sizeof(e->leader_value));
		e->leader_mod_revision = mod_revision;
		if (e->state == ELECTION_LEADING)
			queue_tell_leader(core, e, ELECTION_NO_REASON);
		core_publish(core, e);
	}
}

/* The own key did not exist at that revision: the next one is younger. */
static void
raise_entry_floor(Election *e, int64_t revision)
{
	if (e->entry_floor < revision)
		e->entry_floor = revision;
}

/* No key of ours exists any more, or we must not use it. */
static void
clear_own_key(ElectionCore *core, Election *e)
{
	transfer_key_lost(e);
	e->create_revision = 0;
	e->mod_revision = 0;
	e->written_revision = 0;
	e->key_lease = 0;
	e->must_put_value = false;
	core_reply(core, &e->proclaim_ticket, ELECTION_NOT_CANDIDATE);
}

/* ---- the own key: won and lost ----------------------------------------------- */

/*
 * Answers to earlier requests are ignored (EPOCH), and the wait goes on
 * (ARMED).
 */
static void
begin_epoch(Election *e)
{
	e->epoch++;
	e->armed_revision = 0;
	e->first_revision = 0;
	e->ended_revision = 0;
}

void
queue_withdraw(ElectionCore *core, Election *e, ElectionReason reason)
{
	begin_epoch(e);
	if (e->state != ELECTION_LEADING)
		return;
	e->state = e->followed ? ELECTION_FOLLOWING : ELECTION_QUEUED;
	lease_end_deadline(e);
	transfer_leadership_lost(core, e);

	/*
	 * Until something newer is read, no leader is known.  Except after the
	 * deadline: the key outlives it, and still names the leader.
	 */
	if (reason != ELECTION_REASON_LEASE_EXPIRED)
		e->leader_known = false;
	core_publish(core, e);
	core_announce(core, ELECTION_EVENT_UNELECTED, e, false, reason, NULL);
}

/*
 * The key is gone, and this instance did not delete it: enters again, at the
 * end of the queue.
 */
static void
lose_key(ElectionCore *core, Election *e, ElectionReason reason)
{
	queue_withdraw(core, e, reason);
	clear_own_key(core, e);
	e->state = ELECTION_JOINING;
	core_publish(core, e);
}

/* The key exists, and belongs to the lease. */
static void
enter_queue(ElectionCore *core, Election *e, int64_t create_revision, int64_t mod_revision,
			EtcdBytes value)
{
	begin_epoch(e);
	e->create_revision = create_revision;
	e->written_revision = create_revision;
	learn_own_lease(core, e, core->lease.id);
	learn_own_value(core, e, value, mod_revision);
	e->state = ELECTION_QUEUED;
	e->look_wanted = true;
	e->failures = 0;
	e->retry_ns = 0;
	core_publish(core, e);
	core_reply(core, &e->campaign_ticket, ELECTION_DONE);
}

void
queue_leave(ElectionCore *core, Election *e, ElectionReason reason)
{
	if (e->state == ELECTION_LEAVING)
		return;
	queue_withdraw(core, e, reason);
	if (is_candidate(e) && e->key[0] != '\0')
	{
		core_reply(core, &e->proclaim_ticket, ELECTION_NOT_CANDIDATE);
		e->must_put_value = false;
		/*
		 * An entry that is under way, or whose answer was lost, may leave a
		 * key.
		 */
		e->state = ELECTION_LEAVING;
		e->look_wanted = e->create_revision == 0;
		e->retry_ns = 0;
		core_publish(core, e);
	}
	else
		queue_choose_state(core, e);
}

/* Deletes a key that may have been entered by a request that was given up. */
static void
leave_with_key(ElectionCore *core, Election *e, int64_t create_revision)
{
	e->create_revision = create_revision;
	e->state = ELECTION_LEAVING;
	core_publish(core, e);
}

int
election_find(const ElectionCore *core, const char *name)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_used(&core->elections[i]) && strcmp(core->elections[i].name, name) == 0)
			return i;
	}
	return -1;
}

/* Gives a slot to an election that has none yet; NULL if none is free. */
Election *
queue_take_slot(ElectionCore *core, const char *name)
{
	size_t		len = strlen(name);

	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (is_used(e))
			continue;
		copy_string(e->name, name, sizeof(e->name));
		memcpy(e->prefix, name, len);
		memcpy(e->prefix + len, "/", 2);
		memcpy(e->prefix_end, name, len);
		memcpy(e->prefix_end + len, "0", 2);	/* '/' + 1 */
		e->wanted = true;
		e->generation++;
		e->epoch++;
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
		e = queue_take_slot(core, name);
		if (e == NULL)
			return;				/* until a key is known to be deleted */
		copy_string(e->value, core->config.node_name, sizeof(e->value));
		e->stay_out = core->config.stay_out[i];
		queue_choose_state(core, e);
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
	if (e->named_lease != 0)
		lease_taint(core, 0);
	core_reply(core, &e->campaign_ticket, ELECTION_NOTHING_TO_DO);
	core_reply(core, &e->verify_ticket, ELECTION_NOTHING_TO_DO);
	transfer_dropped(core, e);
	*e = unused;
	core_publish(core, e);
	queue_take_up_elections(core);
}

void
queue_choose_state(ElectionCore *core, Election *e)
{
	begin_epoch(e);
	clear_own_key(core, e);
	core_reply(core, &e->resign_ticket, ELECTION_DONE);
	if (!e->wanted)
	{
		free_slot(core, e);
		return;
	}
	if (e->followed)
		e->state = ELECTION_FOLLOWING;
	else if (e->stay_out)
		e->state = ELECTION_RESIGNED;
	else if (core->config.eligible)
		e->state = ELECTION_JOINING;
	else
		e->state = ELECTION_OBSERVING;
	if (e->state != ELECTION_JOINING)
		core_reply(core, &e->campaign_ticket, ELECTION_NOTHING_TO_DO);
	e->look_wanted = true;
	core_publish(core, e);
}

static void
begin_leading(ElectionCore *core, Election *e)
{
	e->state = ELECTION_LEADING;
	transfer_leadership_won(e);
	lease_extend(core, e);
	e->told_revision = e->create_revision;
	copy_string(e->told_value, e->leader_value, sizeof(e->told_value));
	core_publish(core, e);
	core_announce(core, ELECTION_EVENT_ELECTED, e, true, ELECTION_NO_REASON, NULL);
}

void
queue_become_first(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision, bool ordered)
{
	if (e->state == ELECTION_LEADING)
		return;
	e->state = ELECTION_QUEUED;
	if (!ordered)
	{
		e->look_wanted = true;	/* an ordered one */
		return;
	}
	if (transfer_is_sent(e))
		return;					/* the key may be gone already (TRANSFER) */
	if (!lease_is_good(core, now_ns))
		return;					/* a lapsed lease is replaced first (FRESH) */
	if (e->create_revision <= core->lead_above_revision)
	{
		/*
		 * The token was, or may have been, handed out before.  Another key
		 * gets another one, once etcd's revision is there.
		 */
		if (revision <= core->lead_above_revision)
			e->state = ELECTION_HELD_BACK;
		else
			queue_leave(core, e, ELECTION_NO_REASON);
		return;
	}
	begin_leading(core, e);
}

/* May this instance lead if its wait is over (ARMED)? */
static bool
may_lead_armed(const ElectionCore *core, int64_t now_ns, const Election *e)
{
	return lease_is_good(core, now_ns) && e->key_lease == core->lease.id &&
		core->stale_since_ns == 0 && e->create_revision > core->lead_above_revision;
}

/* The only key before the own one was deleted at that revision (ARMED). */
static void
end_wait(ElectionCore *core, Election *e, int64_t revision)
{
	memset(&e->leader, 0, sizeof(e->leader));
	e->leader.create_revision = e->create_revision;
	e->leader.len = strlen(e->key);
	memcpy(e->leader.data, e->key, e->leader.len);
	copy_string(e->leader_value, e->key_value, sizeof(e->leader_value));
	e->leader_mod_revision = e->mod_revision;
	e->leader_known = true;
	e->leader_until_ns = 0;		/* beyond the deadline only if it is read */
	e->armed_revision = 0;
	e->first_revision = revision;
	begin_leading(core, e);
}

/* ---- the own key, as an answer shows it ---------------------------------------- */

bool
queue_check_own_key(ElectionCore *core, Election *e, const EtcdKeyValue *kv, int64_t revision)
{
	if (kv == NULL)
		raise_entry_floor(e, revision);
	if (kv == NULL || kv->create_revision != e->create_revision)
	{
		lose_key(core, e, ELECTION_REASON_KEY_DELETED);
		return false;
	}

	/*
	 * Answers come in any order, and the newer state of the key counts.  An
	 * older answer may still have news about places, so ask again.  (An answer
	 * that is not older and does not show the last write means that etcd was
	 * put back.)
	 */
	if (kv->mod_revision < e->mod_revision && revision < e->mod_revision)
	{
		e->look_wanted = true;
		return false;
	}
	learn_own_value(core, e, kv->value, kv->mod_revision);
	learn_own_lease(core, e, kv->lease);
	if (kv->lease == 0 || kv->lease != core->lease.id)
	{
		/*
		 * Somebody put the own key on another lease, or a move took effect
		 * although its answer was lost.  How long the key lives is not known
		 * here.  lease_pursue() puts it back.
		 */
		if (e->state == ELECTION_LEADING && !lease_is_moved_to(core, kv->lease))
			queue_withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
		return false;
	}
	return true;
}

void
queue_check_absence(ElectionCore *core, Election *e, const EtcdKeyValue *kv, int64_t revision)
{
	/*
	 * This key should not exist: an entry whose answer was lost took effect,
	 * perhaps after a deletion (FINAL).
	 */
	if (kv)
		leave_with_key(core, e, kv->create_revision);
	else if (e->state == ELECTION_LEAVING && e->create_revision == 0 &&
			 !core_is_under_way(core, OP_ENTER, SLOT_BIT(slot_of(core, e))))
	{
		raise_entry_floor(e, revision);
		queue_choose_state(core, e);
	}
}

/* ---- what the lease does to the keys ------------------------------------------ */

void
queue_lease_lost(ElectionCore *core, int64_t lost)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		/* the answer to a delete shows the state of its key */
		if (!is_queued(e))
			continue;
		/*
		 * It may be on the fresh lease already; the answer of the move will
		 * show.  If the fresh one is lost, keys on the other one stay.
		 */
		if (e->key_lease == lost && !core->fresh.moving)
			lose_key(core, e, ELECTION_REASON_LEASE_EXPIRED);
		else if (core->lease.id == 0)
			queue_withdraw(core, e, ELECTION_REASON_LEASE_EXPIRED);
	}
}

void
queue_lease_revoked(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		/*
		 * Its key should be gone, unless somebody put it on another lease:
		 * look.
		 */
		if (e->state == ELECTION_LEAVING)
		{
			e->create_revision = 0;
			e->look_wanted = true;
		}
		else if (!core_is_under_way(core, OP_LOOK, SLOT_BIT(i)))
			e->key[0] = '\0';	/* otherwise an answer may still show it */
	}
}

void
queue_moved(ElectionCore *core, int64_t now_ns, int64_t old, bool by_move,
			uint32_t slots, int64_t mod_revision)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		/* also of one that was left meanwhile, by a move whose answer was lost */
		if (by_move && e->named_lease != 0 && e->named_lease == old)
			e->named_lease = core->lease.id;
		if ((slots & SLOT_BIT(i)) == 0 || !is_queued(e))
			continue;
		if (mod_revision == 0 || mod_revision >= e->mod_revision)
			learn_own_lease(core, e, core->lease.id);
		if (mod_revision > e->mod_revision)
			e->mod_revision = e->written_revision = mod_revision;
		if (e->state == ELECTION_LEADING && lease_is_good(core, now_ns))
			lease_extend(core, e);
		else if (e->state != ELECTION_LEADING)
			e->look_wanted = true;
		core_publish(core, e);
	}
}

/* ---- writes of the own key ------------------------------------------------------ */

static void
send_enter(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = core_start_election_op(core, now_ns, OP_ENTER, e);
	EtcdCompare compare;
	EtcdOp		put;
	EtcdOp		range;

	if (op == NULL)
		return;
	op->lease = core->lease.id;
	copy_string(op->value, e->value, sizeof(op->value));

	/*
	 * A key that was moved to this lease keeps its name when it is entered
	 * again.  So a lease has one name only, and an earlier key that exists
	 * again, because etcd was put back, is seen.
	 */
	if (e->named_lease != core->lease.id || e->key[0] == '\0')
	{
		make_key(e->key, e->name, core->lease.id);
		e->named_lease = core->lease.id;
		e->entry_unanswered = false;
	}
	if (!e->entry_unanswered)
		e->entry_floor = core->max_revision;
	e->entry_unanswered = true;
	compare = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, 0);
	put = put_of_key(e->key, e->value, core->lease.id);
	range = range_of_key(e->key);
	core_send_txn(core, op, &compare, 1, &put, 1, &range, 1);
}

static void
refuse_enter(ElectionCore *core, const Op *op, Election *e)
{
	/* A lost lease is replaced at once; but not again and again. */
	if (core->lease.id != 0 || e->failures > 0)
		postpone(core, op, e);
	else
		e->failures++;
	e->look_wanted |= e->state == ELECTION_LEAVING;
}

static void
receive_enter(ElectionCore *core, const Op *op, Election *e, const EtcdAnswer *answer)
{
	int64_t		create_revision = answer->header.revision;
	int64_t		mod_revision = answer->header.revision;
	EtcdBytes	value = bytes_of(op->value);
	bool		adopt = true;

	if (answer->outcome != ETCD_ANSWERED)
	{
		refuse_enter(core, op, e);
		return;
	}
	e->entry_unanswered = false;
	if (!answer->succeeded)
	{
		const EtcdKeyValue *kv = first_kv(answer, 0);

		if (kv == NULL)
			return;				/* gone between compare and read: cannot be */
		create_revision = kv->create_revision;
		mod_revision = kv->mod_revision;
		value = kv->value;
		adopt = kv->lease == op->lease;
	}
	/* an earlier key: the answer is late (FINAL), or etcd was put back */
	adopt &= create_revision > e->entry_floor;
	if (op->lease != core->lease.id || (core->revoking && e->state == ELECTION_JOINING))
	{
		/* The lease is gone or going, and the key with it (FINAL). */
		e->look_wanted = true;
		return;
	}
	/* Left meanwhile, or a key that is not to be believed (FINAL). */
	if (e->state != ELECTION_JOINING || !adopt)
		leave_with_key(core, e, create_revision);
	else
		enter_queue(core, e, create_revision, mod_revision, value);
}

static void
send_delete(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = core_start_election_op(core, now_ns, OP_DELETE, e);
	EtcdCompare compare;
	EtcdOp		delete = {.kind = ETCD_OP_DELETE};
	EtcdOp		range;

	if (op == NULL)
		return;
	delete.key = bytes_of(e->key);
	compare = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, e->create_revision);
	range = range_of_key(e->key);
	core_send_txn(core, op, &compare, 1, &delete, 1, &range, 1);
}

/* The own key is gone, as of that revision. */
static void
finish_leaving(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision)
{
	uint32_t	generation = e->generation;

	raise_entry_floor(e, revision);
	queue_choose_state(core, e);
	if (e->state == ELECTION_JOINING && e->generation == generation)
	{
		/* the look that follows the entry also shows the leader */
		e->retry_ns = now_ns + REJOIN_DELAY_NS;
		e->look_wanted = false;
	}
}

void
queue_transferred(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision)
{
	e->failures = 0;
	finish_leaving(core, now_ns, e, revision);
}

static void
receive_delete(ElectionCore *core, int64_t now_ns, const Op *op, Election *e, const EtcdAnswer *answer)
{
	const EtcdKeyValue *kv;

	if (answer->outcome != ETCD_ANSWERED)
	{
		postpone(core, op, e);
		return;
	}
	/*
	 * of an earlier incarnation: the existing key is deleted by another
	 * request
	 */
	if (e->state != ELECTION_LEAVING ||
		op->create_revisions[slot_of(core, e)] != e->create_revision)
		return;
	e->failures = 0;
	kv = answer->succeeded ? NULL : first_kv(answer, 0);
	if (kv && kv->create_revision != e->create_revision)
	{
		/* It was created again, by an entry that we had given up. */
		e->create_revision = kv->create_revision;
		return;
	}
	finish_leaving(core, now_ns, e, answer->header.revision);
}

static void
send_proclaim(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = core_start_election_op(core, now_ns, OP_PROCLAIM, e);
	EtcdCompare compares[2];
	EtcdOp		put;
	EtcdOp		range;

	if (op == NULL)
		return;
	copy_string(op->value, e->value, sizeof(op->value));
	compares[0] = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, e->create_revision);
	compares[1] = compare_key(e->key, ETCD_COMPARE_MOD_REVISION, e->mod_revision);
	put = put_of_key(e->key, e->value, e->key_lease);
	range = range_of_key(e->key);
	core_send_txn(core, op, compares, 2, &put, 1, &range, 1);
}

static void
receive_proclaim(ElectionCore *core, const Op *op, Election *e, const EtcdAnswer *answer)
{
	if (answer->outcome != ETCD_ANSWERED)
	{
		postpone(core, op, e);
		return;
	}
	if (!is_queued(e) || op->create_revisions[slot_of(core, e)] != e->create_revision)
		return;
	if (!answer->succeeded)
	{
		(void) queue_check_own_key(core, e, first_kv(answer, 0), answer->header.revision);
		return;
	}
	e->failures = 0;
	if (answer->header.revision > e->written_revision)
		e->written_revision = answer->header.revision;
	if (answer->header.revision > e->mod_revision)
		learn_own_value(core, e, bytes_of(op->value), answer->header.revision);
	if (strcmp(op->value, e->value) == 0)
	{
		e->must_put_value = false;
		core_reply(core, &e->proclaim_ticket, ELECTION_DONE);
	}
}

void
queue_receive_move(ElectionCore *core, const Op *op, const EtcdAnswer *answer)
{
	int			next = 0;

	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];
		const EtcdKeyValue *kv;

		if ((op->slots & SLOT_BIT(i)) == 0)
			continue;
		kv = answer->succeeded ? NULL : first_kv(answer, next++);
		if (!is_queued(e) || op->create_revisions[i] != e->create_revision)
			continue;
		if (answer->succeeded)
		{
			/* a look or the watch may have told of a newer write (ARMED) */
			if (answer->header.revision >= e->mod_revision)
			{
				learn_own_lease(core, e, op->lease);
				e->mod_revision = answer->header.revision;
			}
			if (answer->header.revision > e->written_revision)
				e->written_revision = answer->header.revision;
			e->look_wanted |= e->state != ELECTION_LEADING;
		}
		else
			(void) queue_check_own_key(core, e, kv, answer->header.revision);
	}
}

void
queue_receive(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	Election   *e = core_find_election(core, op);

	if (e == NULL)
		return;
	if (op->kind == OP_ENTER)
		receive_enter(core, op, e, answer);
	else if (op->kind == OP_DELETE)
		receive_delete(core, now_ns, op, e, answer);
	else
		receive_proclaim(core, op, e, answer);
}

void
queue_request_failed(ElectionCore *core, const Op *op)
{
	Election   *e;

	if ((op->kind == OP_ENTER || op->kind == OP_DELETE || op->kind == OP_PROCLAIM) &&
		(e = core_find_election(core, op)) != NULL)
	{
		postpone(core, op, e);
		e->look_wanted |= op->kind == OP_ENTER && e->state == ELECTION_LEAVING;
	}
}

/* Enters, deletes or writes the own key, if that is wanted and possible now. */
static void
pursue_key(ElectionCore *core, int64_t now_ns, Election *e)
{
	uint32_t	slot = SLOT_BIT(slot_of(core, e));

	if (e->state == ELECTION_JOINING)
	{
		if (core->fresh.id == 0 && !core->revoking && lease_is_good(core, now_ns) &&
			!core_is_under_way(core, OP_ENTER, slot) && core_is_due(core, now_ns, e->retry_ns))
			send_enter(core, now_ns, e);
	}
	else if (e->state == ELECTION_LEAVING)
	{
		if (!core->revoking && e->create_revision != 0 &&
			!core_is_under_way(core, OP_DELETE, slot) && core_is_due(core, now_ns, e->retry_ns))
			send_delete(core, now_ns, e);
	}
	else if (is_queued(e) && !has_value(e))
	{
		if (core->fresh.id == 0 && core->lease.id != 0 && e->key_lease == core->lease.id &&
			!core_is_under_way(core, OP_MOVE, ALL_SLOTS) &&
			!core_is_under_way(core, OP_PROCLAIM, slot) && core_is_due(core, now_ns, e->retry_ns))
			send_proclaim(core, now_ns, e);
	}
}

void
queue_pursue_keys(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_used(&core->elections[i]))
			pursue_key(core, now_ns, &core->elections[i]);
	}
}

/* ---- what the watch tells ------------------------------------------------------- */

void
queue_watch_lost(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
		core->elections[i].armed_revision = 0;
}

/* The key that an event of this watch is about; NULL: one that lies between two. */
static const QueueKey *
watched_key(const Watched *watched, const EtcdWatchEvent *event)
{
	if (watched->target != WATCH_WAIT || is_queue_key(&watched->key, event->kv.key))
		return &watched->key;
	return is_queue_key(&watched->leader, event->kv.key) ? &watched->leader : NULL;
}

/* Is this the end of the wait for the only key before the own one (ARMED)? */
static bool
ends_wait(const ElectionCore *core, const Election *e, const EtcdWatchEvent *event)
{
	return e->armed_revision != 0 && is_successor(e) && event->is_delete &&
		is_queue_key(&e->leader, event->kv.key) &&
		event->kv.mod_revision > e->armed_revision &&
		watch_tells_since(core, e, e->armed_revision);
}

/* A write of the own key.  Returns whether it leaves places as they are. */
static bool
see_own_write(ElectionCore *core, Election *e, const EtcdKeyValue *kv)
{
	/* The answer of a move reports it. */
	if (kv->lease != e->key_lease && !lease_is_moved_to(core, kv->lease))
	{
		queue_withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
		return false;
	}
	learn_own_lease(core, e, kv->lease);
	learn_own_value(core, e, kv->value, kv->mod_revision);
	return true;
}

/*
 * A PUT of the watched incarnation of a key does not change places; anything
 * else needs a look.
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
	if (e->create_revision != 0 && is_key(kv->key, e->key))
	{
		if (kv->mod_revision <= e->mod_revision)
			return;
		if (e->state == ELECTION_LEAVING || (event->is_delete && transfer_is_sent(e)))
			return;				/* the answer of a deletion reports it */
		if (event->is_delete || kv->create_revision != e->create_revision)
		{
			lose_key(core, e, ELECTION_REASON_KEY_DELETED);
			return;
		}
		known = see_own_write(core, e, kv);
	}
	if (known && e->leader_known && kv->create_revision == e->leader.create_revision &&
		kv->mod_revision > e->leader_mod_revision)
	{
		copy_value(e->leader_value, kv->value, sizeof(e->leader_value));
		e->leader_mod_revision = kv->mod_revision;
		e->leader_version = kv->version;
		if (e->state == ELECTION_LEADING || e->create_revision != kv->create_revision)
			queue_tell_leader(core, e, ELECTION_NO_REASON);
		transfer_leader_seen(core, e);
		core_publish(core, e);
	}
	if (!known)
		e->look_wanted = true;
	if (!known && !event->is_delete)
		e->armed_revision = 0;	/* the deletion of the leader's key was missed */
	if (ends_wait(core, e, event))
		e->ended_revision = kv->mod_revision;
}

void
queue_end_frame(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (e->ended_revision != 0 && is_successor(e) && may_lead_armed(core, now_ns, e))
			end_wait(core, e, e->ended_revision);
		e->ended_revision = 0;
	}
}

/* ---- other histories, other electors --------------------------------------- */

void
queue_discard(ElectionCore *core, Election *e)
{
	queue_withdraw(core, e, ELECTION_REASON_HISTORY_CHANGED);
	transfer_dropped(core, e);
	e->seen_revision = 0;
	e->leader_mod_revision = 0;
	e->key[0] = '\0';
	e->look_wanted = true;
	e->verify_id = 0;
	if (e->followed)
		patroni_discard(e);
	queue_choose_state(core, e);
}

/*
 * A remembered place in the queue needs a look.  Of an election without a
 * place only that is restored which must be known before it is entered again.
 */
void
queue_resume(const ElectionMemory *memory, int i, Election *e)
{
	copy_string(e->value, memory->elections[i].value, sizeof(e->value));
	copy_string(e->key, memory->elections[i].key, sizeof(e->key));
	if (memory->elections[i].named)
		e->named_lease = memory->lease;
	/* a key that should have been deleted may still exist: look first */
	e->state = ELECTION_LEAVING;
	if (memory->elections[i].create_revision != 0)
	{
		e->state = ELECTION_QUEUED;
		e->create_revision = memory->elections[i].create_revision;
		e->mod_revision = memory->elections[i].mod_revision;
		e->written_revision = memory->elections[i].written_revision;
		e->key_lease = memory->lease;
		copy_string(e->key_value, memory->elections[i].key_value, sizeof(e->key_value));
	}
	else
		e->entry_floor = memory->max_revision;
	e->look_wanted = true;
}
