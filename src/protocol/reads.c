/*-------------------------------------------------------------------------
 *
 * reads.c
 *	  Reads: one txn that reads, for several elections, the own key, the
 *	  predecessor and the leader; and what its answer shows (PLACE, EPOCH,
 *	  BY NAME, ORDERED, RIGHTS).
 *
 * queue.c decides what follows for the own key.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "leadership.h"
#include "publish.h"
#include "queue.h"
#include "reads.h"
#include "requests.h"
#include "rival_lease.h"

/* The most ranges of an election: own key, predecessor or last key, leader. */
#define OWN_NRANGES			3

/* ---- what is wanted ---------------------------------------------------------- */

void
read_take_up(const Op *op, Election *e)
{
	e->read_wanted = false;
	if (e->commands.verify_ticket != 0 && e->commands.verify_id == 0)
		e->commands.verify_id = op->id;
}

void
read_finish(ElectionCore *core, const Op *op, Election *e)
{
	if (e->commands.verify_id != op->id)
		return;
	e->commands.verify_id = 0;
	publish_reply(core, &e->commands.verify_ticket, ELECTION_DONE);
}

/* This read has shown nothing: another one has to. */
static void
verify_again(const Op *op, Election *e)
{
	if (e->commands.verify_id != op->id)
		return;
	e->commands.verify_id = 0;
	e->read_wanted = true;
}

void
read_want_again(const Op *op, Election *e)
{
	/* a newer read shows the same; the next renewal asks by names again */
	e->read_wanted |= op->id == e->read_id;
	verify_again(op, e);
}

/* ---- sending ----------------------------------------------------------- */

/* Are leader and, if we wait, predecessor known by their names? */
static bool
has_names(const Election *e)
{
	if (e->leader.key.len == 0)
		return false;
	return !is_queued(e) || (e->state == ELECTION_WAITING && e->place.predecessor.len > 0);
}

static EtcdOp
range_of_queue_key(const QueueKey *key)
{
	return (EtcdOp) {.kind = ETCD_OP_RANGE, .key = bytes_of_key(key)};
}

/* Leader and predecessor as they are known. */
static int
add_names(Op *op, const Election *e, int slot, EtcdOp *ranges, int n)
{
	op->asked[slot] |= READ_BY_NAME;
	if (is_queued(e) && e->place.predecessor.create_revision != e->leader.key.create_revision)
	{
		op->asked[slot] |= READ_ADJACENT;
		ranges[n++] = range_of_queue_key(&e->place.predecessor);
	}
	ranges[n++] = range_of_queue_key(&e->leader.key);
	return n;
}

/* The leader's and the predecessor's key, without knowing their names. */
static int
add_places(Op *op, const Election *e, int slot, EtcdOp *ranges, int n)
{
	EtcdOp		range = {.kind = ETCD_OP_RANGE, .limit = 1};

	range.key = bytes_of(e->prefix);
	range.range_end = bytes_of(e->prefix_end);
	if (is_queued(e))
	{
		op->asked[slot] |= READ_ADJACENT;
		range.sort = ETCD_SORT_LAST_CREATED;
		/* of a predecessor never 0, no filter: etcd's first revision is 1 */
		if (e->state != ELECTION_LEADING)
			range.max_create_revision = e->own.create_revision - 1;
		/* others may have come behind it */
		if (e->state == ELECTION_LEADING && e->duplicate.key.len > 0)
			ranges[n++] = range_of_queue_key(&e->duplicate.key);
		else
			ranges[n++] = range;
		range.max_create_revision = 0;
	}
	range.sort = ETCD_SORT_FIRST_CREATED;
	ranges[n++] = range;
	return n;
}

/* Adds the ranges of one election; returns how many there are then. */
static int
add_ranges(Op *op, Election *e, int slot, bool by_name, EtcdOp *ranges, int n)
{
	op->slots |= SLOT_BIT(slot);
	op->epochs[slot] = e->epoch;

	/*
	 * An instance that is entering need not ask for its own key: the answer to
	 * the entry shows it.  An instance that has left must ask, because an
	 * earlier entry may still take effect.
	 */
	if (e->own.key[0] != '\0' && e->state != ELECTION_JOINING)
	{
		op->asked[slot] |= READ_OWN;
		ranges[n++] = range_of_key(e->own.key);
	}
	if (by_name)
		return add_names(op, e, slot, ranges, n);
	return add_places(op, e, slot, ranges, n);
}

/*
 * May a read conclude that the instance leads (ORDERED)?  The read of a
 * candidate behind another waiter need not be ordered: if it shows the
 * candidate as the first, the candidate reads again.
 */
static bool
may_lead(const Election *e)
{
	return is_queued(e) && (e->state != ELECTION_WAITING || is_successor(e));
}

/*
 * Sends a read of one election alone.  If there may be an own key, its branch that is
 * never executed deletes that key, because etcd then denies it without the right to
 * write, too (checkTxnAuth() in etcd).
 */
static void
send_alone(ElectionCore *core, Op *op, const Election *e, EtcdOp *ops, int n)
{
	EtcdOp		delete = {.kind = ETCD_OP_DELETE, .key = bytes_of(e->own.key)};

	request_send_txn(core, op, NULL, 0, ops, n, &delete, may_have_key(e) ? 1 : 0);
}

/*
 * Sends a read of these elections; renewal: as for read_send().  A renewal is confirmed
 * by raft's log even if nothing can be read.
 */
static bool
send_read(ElectionCore *core, int64_t now_ns, uint32_t slots, const Renewal *renewal)
{
	EtcdOp		ops[OWN_NRANGES * ELECTION_MAX_ELECTIONS + 1];
	bool		ordered = renewal != NULL;
	const Election *alone = NULL;
	int			n = 0;
	Op		   *op = slots != 0 || renewal ? request_start(core, now_ns, OP_READ) : NULL;

	if (op == NULL)
		return false;
	if (renewal)
		op->renewal = *renewal;
	for_each_election(core, e)
	{
		bool		names_do = !e->read_wanted && has_names(e);

		if ((slots & slot_bit(core, e)) == 0)
			continue;
		ordered |= may_lead(e) || rival_awaits_read(e);
		if (e->is_read_alone)
			alone = e;
		read_take_up(op, e);
		if (!names_do)
			e->read_id = op->id;
		n = add_ranges(op, e, slot_of(core, e), names_do, ops, n);
	}
	if (alone && !renewal)
		send_alone(core, op, alone, ops, n);
	else
		request_send_read(core, op, ops, n, ordered);
	return true;
}

bool
read_send(ElectionCore *core, int64_t now_ns, bool all, const Renewal *renewal)
{
	uint32_t	together = 0;
	bool		is_sent = false;

	for_each_election(core, e)
	{
		if (e->followed || !(all || e->read_wanted))
			continue;
		if (!e->is_read_alone || (renewal && is_queued(e)))
			together |= slot_bit(core, e);
		else if (due_or_wake_at(core, now_ns, e->denied_retry_ns))
			is_sent |= send_read(core, now_ns, slot_bit(core, e), NULL);
	}
	if (renewal)
		return send_read(core, now_ns, together, renewal);
	return send_read(core, now_ns, together, NULL) || is_sent;
}

void
read_reconcile(ElectionCore *core, int64_t now_ns)
{
	if (due_or_wake_at(core, now_ns, core->read_retry_ns))
		(void) read_send(core, now_ns, false, NULL);
}

/* ---- what an answer shows ---------------------------------------------------- */

/* A place in the queue, as a read showed it. */
static QueueKey
place_of(const EtcdKeyValue *kv)
{
	return kv ? make_queue_key(kv->key, kv->create_revision) : make_queue_key(bytes_of(""), 0);
}

/* The leader, as a read shows it. */
static void
learn_leader(ElectionCore *core, Election *e, const Facts *facts, const KeyFacts *keys)
{
	const EtcdKeyValue *leader = keys->leader;

	/*
	 * A value that we wrote, or that the watch reported, may be newer than
	 * this answer.
	 */
	if (facts->revision >= e->leader.mod_revision)
	{
		copy_value(e->leader.value, leader ? leader->value : bytes_of(""), sizeof(e->leader.value));
		e->leader.mod_revision = leader ? leader->mod_revision : 0;
		e->leader.version = leader ? leader->version : 0;
	}
	e->leader.key = place_of(leader);
	e->leader.lease = leader ? leader->lease : 0;
	e->leader.is_known = true;
	e->leader.until_ns = facts->op->sent_ns + core->config.ttl_s * NSEC_PER_SEC;
}

/*
 * Two instances with one name: a copy of a data directory, mostly.  The key of
 * an earlier life of this instance is gone after a TTL.
 */
static void
check_duplicate_name(ElectionCore *core, int64_t now_ns, Election *e, const KeyFacts *keys)
{
	const EtcdKeyValue *others[] = {keys->leader, keys->adjacent};
	const EtcdKeyValue *found = NULL;
	char		text[ELECTION_VALUE_SIZE > ELECTION_KEY_SIZE ?
					 ELECTION_VALUE_SIZE : ELECTION_KEY_SIZE];

	for (int i = 0; i < 2; i++)
	{
		if (others[i] == NULL || others[i]->create_revision == e->own.create_revision)
			continue;
		copy_value(text, others[i]->value, ELECTION_VALUE_SIZE);
		if (strcmp(text, e->own.value) == 0)
			found = others[i];
	}
	if (found == NULL || found->create_revision != e->duplicate.key.create_revision)
		queue_forget_duplicate(core, e);
	if (found == NULL)
		return;
	if (e->duplicate.key.create_revision == 0)
	{
		e->duplicate.key = place_of(found);
		e->duplicate.since_ns = now_ns;
	}
	/* it was reported, or is too young */
	if (now_ns - e->duplicate.since_ns < 2 * core->config.ttl_s * NSEC_PER_SEC)
		return;
	e->duplicate.since_ns = NEVER_NS;
	copy_value(text, found->key, ELECTION_KEY_SIZE);
	core->port.report_duplicate_name(core->port.ctx, e->name, text);
}

/*
 * This instance is in the queue: finds its place.  True if the own key is as
 * PLACE and RENEWAL require.
 */
static bool
learn_place(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts,
			const KeyFacts *keys)
{
	bool		own_is_confirmed = queue_check_own_key(core, e, keys->own, facts->revision);

	/*
	 * A lower create revision than that of a leader can only come from
	 * another history.
	 */
	if (e->state == ELECTION_LEADING && e->leader.key.create_revision != e->own.create_revision)
	{
		leadership_withdraw(core, e, ELECTION_REASON_HISTORY_CHANGED);
		e->leader.is_known = true;
		e->read_wanted = true;
	}
	else if (own_is_confirmed)
	{
		e->place.ready_revision = 0;
		check_duplicate_name(core, now_ns, e, keys);
		if (e->leader.key.create_revision == e->own.create_revision)
			queue_become_first(core, now_ns, e, facts->revision, facts->ordered);
		else
		{
			e->state = ELECTION_WAITING;
			e->place.predecessor = place_of(keys->adjacent);
			e->place.predecessor_mod_revision =
				keys->adjacent != NULL ? keys->adjacent->mod_revision : 0;
			/* the first key is the one before ours: there is no other (READY) */
			if (is_successor(e))
				e->place.ready_revision = facts->revision;
		}
	}
	return own_is_confirmed;
}

static bool
is_unchanged(const QueueKey *key, int64_t mod_revision, const Facts *facts, const EtcdKeyValue *kv)
{
	/* the watch may know of a later write than the answer */
	return kv != NULL && kv->create_revision == key->create_revision &&
		(kv->mod_revision == mod_revision || facts->revision < mod_revision);
}

/*
 * Do the keys that were read by name show that the known places have not
 * changed?  Create revisions only increase, so no key can come before one that
 * exists, unless etcd was put back.  Mostly that begins a new raft term, or
 * the owner of a key writes it again.
 */
static bool
are_places_unchanged(const Election *e, const Facts *facts, const KeyFacts *keys)
{
	return facts->term == e->place.term &&
		is_unchanged(&e->leader.key, e->leader.mod_revision, facts, keys->leader) &&
		(!(keys->asked & READ_ADJACENT) ||
		 is_unchanged(&e->place.predecessor, e->place.predecessor_mod_revision, facts,
					  keys->adjacent));
}

/*
 * Uses the keys that were read by name.  True if the own key is as PLACE and
 * RENEWAL require.
 */
static bool
learn_names(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts,
			const KeyFacts *keys, bool unchanged)
{
	bool		own_is_confirmed = false;

	if (unchanged)
		learn_leader(core, e, facts, keys);
	else
	{
		e->read_wanted = true;
		verify_again(facts->op, e);
	}
	if (is_queued(e))
		own_is_confirmed = queue_check_own_key(core, e, keys->own, facts->revision);
	else
		queue_check_absence(core, e, keys->own, facts->revision);
	if (own_is_confirmed)
		check_duplicate_name(core, now_ns, e, keys);
	if (unchanged && e->place.ready_revision != 0)
		e->place.ready_revision = facts->revision;
	return own_is_confirmed;
}

/* True if the own key is as PLACE and RENEWAL require. */
static bool
learn_places(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts,
			 const KeyFacts *keys)
{
	bool		own_is_confirmed = false;

	e->place.term = facts->term;
	learn_leader(core, e, facts, keys);
	if (is_queued(e))
		/* the epoch is the same, so the key is, too */
		own_is_confirmed = learn_place(core, now_ns, e, facts, keys);
	else
		queue_check_absence(core, e, keys->own, facts->revision);
	return own_is_confirmed;
}

/* True if the own key is as PLACE and RENEWAL require. */
static bool
learn_facts(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	int			slot = slot_of(core, e);
	const KeyFacts *keys = &facts->keys[slot];
	bool		by_name = (keys->asked & READ_BY_NAME) != 0;
	bool		unchanged = !by_name || are_places_unchanged(e, facts, keys);
	bool		own_is_confirmed = false;

	if (facts->revision < e->place.seen_revision || facts->op->epochs[slot] != e->epoch)
	{
		/* answered out of order, or void (EPOCH) */
		request_drop_answer(core, facts->op->id, e, facts->op->epochs[slot] != e->epoch ?
							"what it asked for has changed since it was sent" :
							"a newer state is known");
		return false;
	}

	/*
	 * A read of keys that are not the places any more does not show whether
	 * the present ones still exist.  The watch must report that.
	 */
	if (unchanged)
		e->place.seen_revision = facts->revision;
	if (facts->revision < e->place.first_revision)
	{
		/* from before the end of the wait (READY): it does not show the place */
		own_is_confirmed = queue_check_own_key(core, e, keys->own, facts->revision);
	}
	else if (by_name)
		own_is_confirmed = learn_names(core, now_ns, e, facts, keys, unchanged);
	else
		own_is_confirmed = learn_places(core, now_ns, e, facts, keys);
	if (is_used(e))
	{
		/*
		 * If the own key leads, only "elected" is announced.  The key may have
		 * been entered by a request whose answer is not there yet.  A read of
		 * keys by their old names does not show who leads after a hand-over, or
		 * when the key is gone.
		 */
		if (e->leader.is_known && unchanged &&
			(keys->leader == NULL || !is_key(keys->leader->key, e->own.key) ||
			 e->state == ELECTION_LEADING))
			leadership_announce_leader(core, e, ELECTION_NO_REASON);
		transfer_see_leader(core, e);
		publish_view(core, e);
	}
	return own_is_confirmed;
}

void
read_each_alone(ElectionCore *core, uint32_t slots)
{
	for_each_election(core, e)
	{
		if (e->followed || (slots & slot_bit(core, e)) == 0)
			continue;
		e->is_read_alone = true;
		e->read_wanted |= !request_is_under_way(core, OP_READ, slot_bit(core, e));
	}
}

/* A read of this election alone was denied: it waits, and in the end it is given up (RIGHTS). */
static void
deny_read(ElectionCore *core, const Op *op, Election *e)
{
	e->denied_retry_ns = op->sent_ns + request_backoff_ns(core, ++e->denials);
	if (e->denials >= MAX_DENIALS)
		queue_deny(core, e);
}

/* There is no answer to the read, or it was refused. */
static void
fail_read(ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;

	for_each_election(core, e)
	{
		read_want_again(op, e);
		if (facts->permission_denied && op->renewal.number == 0 && op->slots == slot_bit(core, e))
			deny_read(core, op, e);
	}
	if (op->renewal.number == 0 && !facts->permission_denied &&
		++core->read_failures >= core->config.nendpoints)
		core->read_retry_ns = op->sent_ns +
			request_urgent_backoff_ns(core, core->read_failures - core->config.nendpoints + 1);
}

uint32_t
read_receive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	uint32_t	confirmed = 0;

	if (facts->kind != FACTS_ANSWER)
	{
		fail_read(core, facts);
		return 0;
	}
	core->read_failures = 0;
	core->read_retry_ns = 0;
	for_each_election(core, e)
	{
		if ((facts->op->slots & slot_bit(core, e)) == 0)
			continue;
		e->is_read_alone = false;
		e->denials = 0;
		e->denied_retry_ns = 0;
		if (facts->op->epochs[slot_of(core, e)] != e->epoch)
			verify_again(facts->op, e);	/* it is void (EPOCH) */
		if (learn_facts(core, now_ns, e, facts))
			confirmed |= slot_bit(core, e);
		rival_confirm(core, facts, e);
		read_finish(core, facts->op, e);
	}
	return confirmed;
}
