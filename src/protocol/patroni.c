/*-------------------------------------------------------------------------
 *
 * patroni.c
 *	  A followed election: its leader is the member that Patroni's leader key
 *	  names.
 *
 * Patroni (with its etcd3 DCS) keeps "/<namespace>/<scope>/leader" in etcd.
 * The value is the name of a member.  The key hangs on a lease of that
 * member, which each HA loop renews.  We write nothing.  We read the key,
 * watch it, and ask how long its lease lives.  This instance leads exactly
 * while these hold:
 *
 * NAMED	A linearizable read has shown our node name as the value, and no
 *			newer read or event has shown anything else.
 * LIVES	The deadline has not passed: the sending of a question for the
 *			lease's time to live, plus the answer, minus a margin.
 * ORDERED	While the key names us, as far as is known, a read is ordered by
 *			raft's log, as the reads of candidates are (see election.c).  Only
 *			such a read moves the deadline.  It needs the right to read.
 * PRIMARY	This server is not in recovery.  Patroni takes the key before it
 *			promotes, and the leader of a standby cluster is never promoted.
 * OURS		The cluster is the one that runs this server: it has our system
 *			identifier, and a member of our node name on our timeline; and this
 *			server was not started from a copy of the member's data directory.
 *
 * The renewal, which moves the deadline: first the time to live of the lease on
 * which the key was seen, then, sent after that answer, an ordered read.  They
 * count together, if the read shows the key with our name on that same lease,
 * and both answers are of the raft term that was known when the first one was
 * sent.  Why this order, and these terms:
 *
 * - Patroni's demotion deletes the key and keeps the lease, which its
 *   member's key hangs on, too.  Had the read come first, a time to live
 *   answered after the deletion would move the deadline of a key that is
 *   gone.  This way the key stood after the time to live was answered.
 * - etcd's leader answers a time to live from its own books.  It does not
 *   make sure first that it still leads.  A deposed one may have renewed the
 *   lease in its books alone, and say more than is true.  A linearizable
 *   answer in the same term, to what was asked later, shows that no newer
 *   leader had been elected when the time to live was answered.
 * - The member that passes the answer on puts its term into it afterwards.
 *   So a deposed leader's answer could come with the new term, if that was
 *   learned in between.  A term that was known at the sending cannot be learned
 *   in between.  What remains is another member that still believes in the
 *   deposed leader; etcd's leaders step down an election timeout after they
 *   lost their quorum, and the margin is no less than that.
 *
 * The deadline is that of the last renewal, even if it is earlier than before,
 * because the newer answer is the better one.  A renewal also begins anew after
 * the deadline has passed, without a new create revision.  Nobody else can
 * have led meanwhile: a member that takes the key over deletes it, or waits
 * until it is gone, and creates it with another create revision.  A lease of
 * our own is different: it is never revived (rule FRESH of election.c),
 * because a leader of etcd that wakes up might revoke it, and because a fresh
 * lease can be granted.
 *
 * The token is the key's create revision.  Patroni before 3.0.3 can put its
 * name over that of another member, which leaves the create revision as it is: a
 * Patroni that was stopped and wakes up does so.  Then the token is the
 * revision of that put.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "leadership.h"
#include "patroni.h"
#include "patroni_cluster.h"
#include "publish.h"
#include "queue.h"
#include "reads.h"
#include "requests.h"
#include "watch.h"

/*
 * How often to read the keys while our member leads, and its key tells another timeline.
 * After a promotion Patroni tells the new one in its next loop, which follows at once.
 */
#define TIMELINE_POLL_NS	(200 * NSEC_PER_MSEC)

/* ---- leading ------------------------------------------------------------------------ */

/* Begins or ends leadership, by whether all conditions hold. */
static void
conclude(ElectionCore *core, int64_t now_ns, Election *e)
{
	const Patroni *p = &e->patroni;
	bool		lives = patroni_deadline_ns(core, e) > now_ns;
	bool		leads = e->own.create_revision != 0 && e->leader.is_known && lives &&
		patroni_is_ours(core, p) && !core->config.in_recovery;

	if (e->state == ELECTION_LEADING && !leads)
		leadership_withdraw(core, e, lives ? ELECTION_REASON_NOT_ELIGIBLE :
							ELECTION_REASON_LEASE_EXPIRED);
	else if (leads && e->state != ELECTION_LEADING)
		leadership_begin(core, e);
}

/* The key does not name us any more, or is another one. */
static void
lose_key(ElectionCore *core, Election *e, ElectionReason reason)
{
	leadership_withdraw(core, e, reason);
	e->own.create_revision = 0;
	e->patroni.until_ns = 0;
}

/*
 * The key is attached to another lease, and nothing is known of that lease yet.
 * No lease of etcd is shorter than an election timeout and a half.
 */
static void
cap_deadline(const ElectionCore *core, int64_t now_ns, Election *e)
{
	int64_t		excess_ns = patroni_deadline_ns(core, e) - (now_ns + PATRONI_MIN_MARGIN_NS);

	if (excess_ns > 0)
		e->patroni.until_ns -= excess_ns;
}

/*
 * The leader key as it is now (NULL: it does not exist).  Returns whether it
 * names us.
 */
static bool
learn_key(ElectionCore *core, int64_t now_ns, Election *e, const EtcdKeyValue *kv)
{
	Patroni    *p = &e->patroni;
	bool		named = kv != NULL && is_key(kv->value, core->config.node_name);
	bool		same_key = p->key_revision == (kv ? kv->create_revision : 0);
	bool		same_holder = same_key && (kv == NULL || is_key(kv->value, e->leader.value));

	if (e->own.create_revision != 0 && !same_holder)
		lose_key(core, e, same_key ? ELECTION_REASON_KEY_CHANGED : ELECTION_REASON_KEY_DELETED);
	if (!same_holder || (kv != NULL && kv->lease != p->lease))
	{
		/* The key has changed hands; or Patroni was restarted. */
		cap_deadline(core, now_ns, e);
		p->ttl_answer.valid = false;
		p->renewal_wanted = true;
		p->retry_ns = 0;
	}
	if (!same_holder)
	{
		copy_value(e->leader.value, kv ? kv->value : bytes_of(""), sizeof(e->leader.value));
		e->leader.key.create_revision = kv == NULL ? 0 :
			same_key ? kv->mod_revision : kv->create_revision;
	}
	p->key_revision = kv ? kv->create_revision : 0;
	p->lease = kv ? kv->lease : 0;
	if (named)
		e->own.create_revision = e->leader.key.create_revision;
	return named;
}

/*
 * A key of another history may have the same create revision, and another
 * holder.  It is not the known key with another name put over it.
 */
void
patroni_guard_against_restore(ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (e->followed && e->own.create_revision == 0)
			e->patroni.key_revision = -1;
	}
}

/* ---- reads ---------------------------------------------------------------------------- */

/*
 * Sends a read of this election alone: a right that is missing for the keys of
 * one cluster must not cost another election anything.
 */
static bool
send_read(ElectionCore *core, int64_t now_ns, Election *e)
{
	const Patroni *p = &e->patroni;
	EtcdOp		ops[PATRONI_NRANGES + 1];
	Op		   *op = request_start_for(core, now_ns, OP_PATRONI_READ, e);

	if (op == NULL)
		return false;
	read_take_up(op, e);
	e->read_id = op->id;
	ops[PATRONI_LEADER] = range_of_key(p->leader_key);
	ops[PATRONI_CONFIG] = range_of_key(p->config_key);
	ops[PATRONI_INITIALIZE] = range_of_key(p->initialize_key);
	ops[PATRONI_MEMBER] = range_of_key(p->member_key);
	request_send_read(core, op, ops, PATRONI_NRANGES, e->own.create_revision != 0);
	return true;
}

bool
patroni_probe(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		if (e->followed)
			return send_read(core, now_ns, e);
	}
	return false;
}

static void
fail_renewal(ElectionCore *core, Election *e, int64_t sent_ns)
{
	Patroni    *p = &e->patroni;

	/* The other endpoints are tried at once, then with a back-off. */
	p->renewal_wanted = true;
	if (++p->renewal_failures > core->config.nendpoints)
		p->retry_ns = sent_ns +
			request_urgent_backoff_ns(core, p->renewal_failures - core->config.nendpoints);
}

/* Both answers of a renewal have come: moves the deadline, or tries again. */
static void
finish_renewal(ElectionCore *core, Election *e, const Facts *read, bool named)
{
	Patroni    *p = &e->patroni;

	if (!p->ttl_answer.valid || read->op->id < p->ttl_answer.before_id)
		return;
	p->ttl_answer.valid = false;
	if (p->ttl_answer.term != p->asked_term || p->ttl_answer.term != read->term)
	{
		fail_renewal(core, e, p->ttl_answer.sent_ns);
		return;
	}
	p->renewal_failures = 0;
	p->ttl_ns = p->ttl_answer.ttl_ns;
	if (named && read->ordered)
		p->until_ns = p->ttl_answer.until_ns;
}

static void
receive_read(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	const Op   *op = facts->op;
	Patroni    *p = &e->patroni;
	int64_t		revision = facts->revision;
	bool		named;

	e->failures = 0;
	e->denials = 0;
	e->retry_ns = 0;
	if (op->epochs[slot_of(core, e)] != e->epoch || revision < e->place.seen_revision ||
		revision < p->event_revision)
	{
		/* ignored (EPOCH), or older than the known state */
		e->read_wanted = true;
		return;
	}
	e->place.seen_revision = revision;
	patroni_learn_cluster(core, p, facts->patroni);
	named = learn_key(core, now_ns, e, facts->patroni[PATRONI_LEADER]);
	e->leader.is_known = true;
	finish_renewal(core, e, facts, named);
	e->leader.until_ns = op->sent_ns + patroni_ttl_ns(core, e);
	if (patroni_watch_timeline(core, now_ns, e) && named &&
		p->renewal_ns > now_ns + TIMELINE_POLL_NS)
		p->renewal_ns = now_ns + TIMELINE_POLL_NS;
	conclude(core, now_ns, e);
	/* leadership was withdrawn by this answer, which also shows the leader */
	e->leader.is_known = true;
	leadership_announce_leader(core, e, ELECTION_NO_REASON);
	publish_view(core, e);
}

/* ---- renewals ------------------------------------------------------------------------------ */

/* The election that asked; NULL: it was dropped, or another cluster is set. */
static Election *
find_asker(ElectionCore *core, const Op *op)
{
	for_each_election(core, e)
	{
		if (e->patroni.asked_id == op->id)
			return e;
	}
	return NULL;
}

static void
receive_time_to_live(ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;
	Election   *e = find_asker(core, op);
	Patroni    *p;
	int64_t		left_s = facts->ttl_s;

	if (e == NULL)
		return;
	p = &e->patroni;
	p->asked_id = 0;
	if (facts->kind != FACTS_ANSWER || left_s < 0)
	{
		fail_renewal(core, e, op->sent_ns);
		if (facts->kind == FACTS_NO_ANSWER)
			return;
		/*
		 * The lease is gone.  So the key is gone, or attached to another lease
		 * by now.
		 */
		e->read_wanted = true;
		p->renewal_wanted = false;
		return;
	}
	if (op->lease != p->lease)
		return;					/* another renewal is wanted already */
	/* A leader of etcd that has just been elected knows no end of any lease. */
	if (left_s > facts->granted_ttl_s)
		left_s = facts->granted_ttl_s;
	p->ttl_answer.valid = true;
	p->ttl_answer.before_id = core->next_id;
	p->ttl_answer.sent_ns = op->sent_ns;
	p->ttl_answer.term = facts->term;
	p->ttl_answer.ttl_ns = facts->granted_ttl_s * NSEC_PER_SEC;
	p->ttl_answer.until_ns = op->sent_ns + left_s * NSEC_PER_SEC;
	e->read_wanted = true;
}

/* There is no answer to a read, or it was refused. */
static void
fail_read(ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;
	Election   *e = request_find_election(core, op);

	if (e == NULL)
		return;
	read_want_again(op, e);
	if (facts->permission_denied)
	{
		e->retry_ns = op->sent_ns + request_backoff_ns(core, ++e->denials);
		if (e->denials >= MAX_DENIALS)
			queue_deny(core, e);
		return;
	}
	if (++e->failures >= core->config.nendpoints)
		e->retry_ns = op->sent_ns +
			request_urgent_backoff_ns(core, e->failures - core->config.nendpoints + 1);
}

void
patroni_receive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	const Op   *op = facts->op;
	Election   *e = request_find_election(core, op);

	if (op->kind == OP_TIME_TO_LIVE)
		receive_time_to_live(core, facts);
	else if (facts->kind != FACTS_ANSWER)
		fail_read(core, facts);
	else if (e != NULL)
	{
		receive_read(core, now_ns, e, facts);
		read_finish(core, op, e);
	}
}

static void
send_renewal(ElectionCore *core, int64_t now_ns, Election *e)
{
	Patroni    *p = &e->patroni;
	Op		   *op;

	p->renewal_wanted = false;
	p->renewal_ns = now_ns + patroni_ttl_ns(core, e) / 3;
	wake_at(core, p->renewal_ns);
	watch_close_if_incomplete(core, now_ns);
	if (p->lease == 0)
	{
		e->read_wanted = true;	/* nobody has the key */
		return;
	}
	op = request_start(core, now_ns, OP_TIME_TO_LIVE);
	if (op == NULL)
	{
		e->read_wanted = true;
		return;
	}
	op->lease = p->lease;
	p->asked_id = op->id;
	p->asked_term = core->term_seen;
	request_send_lease(core, op, ETCD_TIME_TO_LIVE, 0);
}

static void
reconcile_renewal(ElectionCore *core, int64_t now_ns, Election *e)
{
	Patroni    *p = &e->patroni;

	if (e->place.seen_revision == 0 || p->asked_id != 0 || p->ttl_answer.valid)
		return;
	if (!p->renewal_wanted && !due_or_wake_at(core, now_ns, p->renewal_ns))
		return;
	if (due_or_wake_at(core, now_ns, p->retry_ns))
		send_renewal(core, now_ns, e);
}

void
patroni_reconcile(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		if (!e->followed)
			continue;
		reconcile_renewal(core, now_ns, e);
		if (e->read_wanted && due_or_wake_at(core, now_ns, e->retry_ns))
			(void) send_read(core, now_ns, e);
	}
}

/* ---- the watch, and settings ------------------------------------------------------------- */

void
patroni_see_event(ElectionCore *core, int64_t now_ns, Election *e, const EtcdWatchEvent *event)
{
	Patroni    *p = &e->patroni;
	const EtcdKeyValue *kv = &event->kv;

	if (kv->mod_revision <= e->place.seen_revision)
		return;
	/*
	 * A read shows the rest: who leads now, whether it is this instance,
	 * whether Patroni is paused.
	 */
	e->read_wanted = true;
	if (!is_key(kv->key, p->leader_key) || kv->mod_revision <= p->event_revision)
		return;
	p->event_revision = kv->mod_revision;
	(void) learn_key(core, now_ns, e, event->is_delete ? NULL : kv);
	publish_view(core, e);
}

void
patroni_configure(ElectionCore *core, int64_t now_ns, Election *e, bool other_cluster)
{
	if (other_cluster)
	{
		leadership_withdraw(core, e, ELECTION_REASON_NOT_ELIGIBLE);
		patroni_begin(core, e);
		e->read_wanted = true;
	}
	conclude(core, now_ns, e);
	e->patroni.renewal_wanted = true;
	publish_view(core, e);
}
