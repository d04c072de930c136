/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  The lease of an instance: grant, renewal, fresh lease, move, revocation,
 *	  and every deadline that follows from it (RENEWAL, FRESH).
 *
 * No other file changes a Lease.  An election that this instance leads has the
 * deadline of the lease.
 * test/model/lease.pml is the model of this file.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "lease.h"
#include "own_key.h"
#include "publish.h"
#include "queue.h"
#include "reads.h"
#include "requests.h"

/* ---- deadlines ----------------------------------------------------------- */

/* The deadline is another one. */
static void
publish_deadline(ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (e->state == ELECTION_LEADING)
			publish_view(core, e);
	}
}

/* This lease is trusted no longer than the other one.  Each has the margin of its own TTL. */
static void
cap_lease(const ElectionCore *core, ElectionLease *lease, const ElectionLease *other)
{
	int64_t		until_ns = lease_trusted_until_ns(core, other) +
		lease_margin_ns(core, lease->ttl_ns);

	if (lease->until_ns > until_ns)
		lease->until_ns = until_ns;
}

/*
 * Once a move to the fresh lease is sent, the keys may be attached to it.
 * From then on they live no longer than the fresh lease.
 */
static void
cap_deadlines(ElectionCore *core)
{
	cap_lease(core, &core->lease, &core->fresh);
}

/* ---- what the others ask --------------------------------------------------- */

/* May the lease be kept?  Otherwise a fresh one is needed (FRESH). */
static bool
needs_fresh(const ElectionCore *core, int64_t now_ns)
{
	return !lease_is_good(core, now_ns) || core->lease.term < core->term_seen ||
		core->lease.must_be_replaced || core->lease.asked_ttl_s != core->config.ttl_s;
}

static bool
is_request_under_way(const ElectionCore *core, OpKind kind, int64_t lease)
{
	for_each_op(core, op)
	{
		if (op->kind == kind && op->lease == lease)
			return true;
	}
	return false;
}

/* A grant, or the question how much TTL it gave. */
static bool
is_grant_under_way(const ElectionCore *core)
{
	return request_is_under_way(core, OP_GRANT, ALL_SLOTS) ||
		is_request_under_way(core, OP_KEEPALIVE, core->fresh.id);
}

/* ---- the end of a lease ---------------------------------------------------- */

static void
postpone(ElectionCore *core, const Op *failed)
{
	core->lease_retry_ns = failed->sent_ns +
		request_urgent_backoff_ns(core, ++core->lease_failures);
}

bool
lease_revoke(ElectionCore *core, int64_t now_ns, int64_t lease)
{
	Op		   *op;

	if (is_request_under_way(core, OP_REVOKE, lease))
		return true;
	if (lease == 0 || (op = request_start(core, now_ns, OP_REVOKE)) == NULL)
		return false;
	op->lease = lease;
	request_send_lease(core, op, ETCD_REVOKE, 0);
	return true;
}

void
lease_revoke_all(ElectionCore *core, int64_t now_ns)
{
	lease_revoke(core, now_ns, core->lease.id);
	lease_revoke(core, now_ns, core->fresh.id);
	lease_revoke(core, now_ns, core->retired);
}

/* The results of the renewals under way do not count any more. */
static void
void_renewals(ElectionCore *core)
{
	core->first_renewal = core->next_renewal;
}

/*
 * etcd says that the lease, in use or fresh, does not exist: every key on it is
 * gone, or is going.  It is never believed again, even if a key is still seen.
 * This counts as a failure: a member that applies its log late does not know any
 * lease that was just granted (#13675), and would be asked for one after another.
 */
void
lease_not_found(ElectionCore *core, const Op *op)
{
	int64_t		lease = op->lease;

	if (lease == core->lease.id)
	{
		memset(&core->lease, 0, sizeof(core->lease));
		void_renewals(core);
	}
	else if (lease == core->fresh.id)
		memset(&core->fresh, 0, sizeof(core->fresh));
	else
		return;
	queue_lease_lost(core, lease);
	postpone(core, op);
}

static void
receive_revoke(ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;
	bool		is_gone = facts->kind == FACTS_ANSWER || facts->lease_not_found;

	if (is_gone)
		queue_lease_revoked(core, op->lease);
	/* the retired one, or one that was given up before */
	if (op->lease != core->lease.id && op->lease != core->fresh.id)
		return;
	if (!is_gone)
	{
		postpone(core, op);
		return;
	}
	/* lease_reconcile() goes on when both are gone */
	memset(op->lease == core->lease.id ? &core->lease : &core->fresh, 0, sizeof(ElectionLease));
}

/* ---- the fresh lease ------------------------------------------------------- */

static void
send_grant(ElectionCore *core, int64_t now_ns)
{
	ElectionLease *fresh = &core->fresh;
	Op		   *op = request_start(core, now_ns, OP_GRANT);

	if (op == NULL)
		return;
	if (fresh->id == 0)
	{
		fresh->id = (int64_t) (core->port.random(core->port.ctx) & INT64_MAX);
		if (fresh->id == 0)
			fresh->id = 1;
		fresh->asked_ttl_s = core->config.ttl_s;
		fresh->ttl_ns = fresh->asked_ttl_s * NSEC_PER_SEC;
		fresh->term = core->term_seen;
		fresh->sent_ns = now_ns;
	}
	fresh->tries++;
	op->lease = fresh->id;
	request_send_lease(core, op, ETCD_GRANT, fresh->asked_ttl_s);
}

/* etcd has granted the fresh lease, with this TTL. */
static void
finish_grant(ElectionCore *core, int64_t ttl_s)
{
	ElectionLease *fresh = &core->fresh;

	fresh->granted = true;
	if (ttl_s > 0 && ttl_s < fresh->asked_ttl_s)
		fresh->ttl_ns = ttl_s * NSEC_PER_SEC;
	fresh->until_ns = fresh->sent_ns + fresh->ttl_ns;
}

/*
 * An earlier try, whose answer was lost, has granted the lease.  A keepalive
 * shows which TTL etcd gave it.
 */
static void
ask_granted_ttl(ElectionCore *core, int64_t now_ns)
{
	Op		   *op = request_start(core, now_ns, OP_KEEPALIVE);

	if (op == NULL)
		return;					/* the grant is tried again */
	op->lease = core->fresh.id;
	request_send_lease(core, op, ETCD_KEEPALIVE, 0);
}

/* The answer to a grant, or to the question how much TTL it gave. */
static void
receive_grant(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	const Op   *op = facts->op;
	bool		is_grant = op->kind == OP_GRANT;

	/* one that is being revoked is of no use, whatever was granted */
	if (op->lease != core->fresh.id || core->revoking)
	{
		request_drop_answer(core, op->id, NULL, "that lease is not wanted any more");
		return;
	}
	if (facts->kind == FACTS_ANSWER && (is_grant || facts->ttl_s > 0))
		finish_grant(core, facts->ttl_s);
	else if (facts->lease_exists && core->fresh.tries > 1)
		ask_granted_ttl(core, now_ns);
	else
	{
		/* Another ID is taken: if this lease exists, it may be somebody else's. */
		memset(&core->fresh, 0, sizeof(core->fresh));
		postpone(core, op);
	}
}

/*
 * Puts the keys of these elections on a lease of ours, all or none, guarded
 * by their create and mod revisions (GUARD).
 */
static void
send_move(ElectionCore *core, int64_t now_ns, uint32_t slots, int64_t lease)
{
	EtcdCompare compares[2 * ELECTION_MAX_ELECTIONS];
	EtcdOp		puts[ELECTION_MAX_ELECTIONS];
	EtcdOp		ranges[ELECTION_MAX_ELECTIONS];
	int			n = 0;
	Op		   *op = request_start(core, now_ns, OP_MOVE);

	if (op == NULL)
		return;
	op->lease = lease;
	op->slots = slots;
	for_each_election(core, e)
	{
		if ((slots & slot_bit(core, e)) == 0)
			continue;
		op->create_revisions[slot_of(core, e)] = e->own.create_revision;
		compares[2 * n] =
			compare_key(e->own.key, ETCD_COMPARE_CREATE_REVISION, e->own.create_revision);
		compares[2 * n + 1] =
			compare_key(e->own.key, ETCD_COMPARE_MOD_REVISION, e->own.mod_revision);
		puts[n] = put_of_key(e->own.key, e->own.value, lease);
		ranges[n++] = range_of_key(e->own.key);
	}
	request_send_txn(core, op, compares, 2 * n, puts, n, ranges, n);
}

static bool
leads_any(const ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (e->state == ELECTION_LEADING)
			return true;
	}
	return false;
}

/* The fresh lease replaces the old one.  No key is on the old one any more. */
static void
commit_fresh(ElectionCore *core)
{
	int64_t		latest_renewal_ns;

	/*
	 * A move does not show that the key is the first.  While etcd's history is in doubt,
	 * it makes no leadership longer (HISTORY): a renewal does, whose read is believed.
	 */
	if (core->stale_since_ns != 0 && leads_any(core))
	{
		cap_lease(core, &core->fresh, &core->lease);
		core->renewal_ns = 0;
	}
	if (core->lease.id != 0)
		core->retired = core->lease.id;
	core->lease = core->fresh;
	memset(&core->fresh, 0, sizeof(core->fresh));
	core->lease.moving = false;
	core->lease_retry_ns = 0;	/* of a move whose answer was lost, and that a read has shown */
	void_renewals(core);
	/*
	 * A renewal that is due earlier stays due, since the elections may have
	 * waited for it.
	 */
	latest_renewal_ns = core->lease.sent_ns + lease_interval_ns(core);
	if (core->renewal_ns > latest_renewal_ns)
		core->renewal_ns = latest_renewal_ns;
	queue_moved(core);
}

/*
 * The keys were put on another lease, or one of them was not as we knew it;
 * then all of them were read instead.
 */
static void
receive_move(ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;

	if (facts->kind != FACTS_ANSWER)
	{
		if (facts->lease_not_found)
			lease_not_found(core, op);
		else
			postpone(core, op);
		return;
	}
	own_key_receive_move(core, facts);
	if (facts->succeeded && op->lease == core->fresh.id)
		commit_fresh(core);
}

/* A move whose answer was lost shows as every key on the fresh lease. */
static bool
move_has_shown(const ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (is_queued(e) && e->own.lease != core->fresh.id)
			return false;
	}
	return core->fresh.moving && !core->revoking;
}

/*
 * The old lease is not needed any more when a read shows that no key is
 * attached to it.  The read must have been sent after the lease in use was
 * granted.
 */
static void
revoke_retired(ElectionCore *core, int64_t now_ns, const Op *read, uint32_t confirmed)
{
	if (read->sent_ns <= core->lease.sent_ns)
		return;
	for_each_election(core, e)
	{
		if (is_queued(e) && (confirmed & slot_bit(core, e)) == 0)
			return;
	}
	if (lease_revoke(core, now_ns, core->retired))
		core->retired = 0;
}

/*
 * A fresh lease that is too old is of no use.  A grant without an answer is
 * tried again for a third of the TTL, as its time counts from the first try.
 * A granted one is kept for as long as it gives anything.
 */
static void
drop_outdated_fresh(ElectionCore *core, int64_t now_ns)
{
	ElectionLease *fresh = &core->fresh;
	int64_t		end_ns = fresh->granted ? lease_trusted_until_ns(core, fresh) :
		fresh->sent_ns + fresh->ttl_ns / 3;

	if (now_ns < end_ns || is_grant_under_way(core))
		return;
	/* The lease in use ends with it: a smaller margin must not revive what a late move undoes. */
	if (fresh->moving && core->lease.until_ns > now_ns)
		core->lease.until_ns = now_ns;
	memset(fresh, 0, sizeof(*fresh));
}

/* The fresh lease: granted, the keys moved, and it takes over. */
static void
reconcile_fresh(ElectionCore *core, int64_t now_ns)
{
	ElectionLease *fresh = &core->fresh;
	uint32_t	slots = 0;

	drop_outdated_fresh(core, now_ns);
	if (!fresh->granted)
	{
		if ((fresh->id != 0 || needs_fresh(core, now_ns)) &&
			!is_grant_under_way(core) &&
			due_or_wake_at(core, now_ns, core->lease_retry_ns))
			send_grant(core, now_ns);
		return;
	}

	/* Writes of single keys change the revisions that guard the move. */
	wake_at(core, lease_trusted_until_ns(core, fresh));
	if (request_is_under_way(core, OP_MOVE, ALL_SLOTS) ||
		request_is_under_way(core, OP_ENTER, ALL_SLOTS) ||
		request_is_under_way(core, OP_PROCLAIM, ALL_SLOTS))
		return;
	for_each_election(core, e)
	{
		if (is_queued(e))
			slots |= slot_bit(core, e);
	}
	if (slots == 0)
		commit_fresh(core);
	else if (due_or_wake_at(core, now_ns, core->lease_retry_ns))
	{
		fresh->moving = true;
		void_renewals(core);
		cap_deadlines(core);
		publish_deadline(core);
		send_move(core, now_ns, slots, fresh->id);
	}
}

/* Is there an election that needs a lease? */
static bool
is_lease_wanted(const ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (is_candidate(e))
			return true;
		/* an election that is left in order to join again */
		if (e->state == ELECTION_LEAVING && e->wanted && !e->stay_out && core->config.eligible)
			return true;
	}
	return false;
}

/* The elections whose keys are attached to another lease than ours. */
static uint32_t
find_astray(const ElectionCore *core)
{
	uint32_t	slots = 0;

	for_each_election(core, e)
	{
		if (is_queued(e) && e->own.lease != core->lease.id)
			slots |= slot_bit(core, e);
	}
	return slots;
}

void
lease_reconcile(ElectionCore *core, int64_t now_ns)
{
	bool		wanted = is_lease_wanted(core);
	uint32_t	astray;

	if (!wanted && !core->revoking && (core->lease.id != 0 || core->fresh.id != 0))
	{
		core->revoking = true;
		core->lease_retry_ns = 0;	/* others wait for it, whatever has failed before */
		void_renewals(core);
	}
	if (core->revoking && core->lease.id == 0 && core->fresh.id == 0)
	{
		/* given up for good, and every key with it */
		lease_discard(core);
		queue_leases_given_up(core);
	}
	if (core->revoking)
	{
		if (due_or_wake_at(core, now_ns, core->lease_retry_ns))
		{
			lease_revoke(core, now_ns, core->lease.id);
			lease_revoke(core, now_ns, core->fresh.id);
		}
		return;
	}
	if (!wanted || core->term_seen == 0)
		return;
	astray = find_astray(core);
	if (core->fresh.id != 0 || needs_fresh(core, now_ns))
		reconcile_fresh(core, now_ns);
	else if (astray != 0 && !request_is_under_way(core, OP_MOVE, ALL_SLOTS) &&
			 !request_is_under_way(core, OP_PROCLAIM, ALL_SLOTS) &&
			 due_or_wake_at(core, now_ns, core->lease_retry_ns))
		send_move(core, now_ns, astray, core->lease.id);
}

/* ---- the renewal ------------------------------------------------------------ */

void
lease_configure(ElectionCore *core, int64_t now_ns)
{
	/* the margin may be another one */
	if (core->fresh.moving)
		cap_deadlines(core);
	if (core->renewal_ns > now_ns + lease_interval_ns(core))
		core->renewal_ns = now_ns + lease_interval_ns(core);
}

static int
count_renewals(const ElectionCore *core)
{
	int			n = 0;

	for_each_op(core, op)
		n += lease_is_current(core, &op->renewal);
	return n;
}

bool
lease_start_renewal(ElectionCore *core, int64_t now_ns)
{
	bool		keep = lease_is_good(core, now_ns) && !core->fresh.moving && !core->revoking;
	Op		   *op;

	core->renewal_ns = now_ns + lease_interval_ns(core);
	if (!keep)
		return false;
	if (count_renewals(core) >= MAX_RENEWALS)
		return true;			/* another one would have to wait as long */
	op = request_start(core, now_ns, OP_KEEPALIVE);
	if (op == NULL)
		return false;
	op->renewal.number = core->next_renewal++;
	op->renewal.sent_ns = now_ns;
	op->lease = core->lease.id;
	request_send_lease(core, op, ETCD_KEEPALIVE, 0);
	return true;
}

/* Another renewal is wanted soon, unless there is one that was sent later. */
static void
fail_renewal(ElectionCore *core, int64_t now_ns, const Renewal *renewal)
{
	if (!lease_is_current(core, renewal) || renewal->number + 1 != core->next_renewal)
		return;
	core->renewal_failures++;
	/* The other endpoints are tried at once, then with a back-off. */
	core->renewal_ns = now_ns;
	if (core->renewal_failures >= core->config.nendpoints)
		core->renewal_ns = renewal->sent_ns +
			request_urgent_backoff_ns(core, core->renewal_failures - core->config.nendpoints + 1);
}

static void
receive_keepalive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	Renewal		renewal = facts->op->renewal;

	if (!lease_is_current(core, &renewal))
	{
		request_drop_answer(core, facts->op->id, NULL,
							"the renewal is of another lease, or a newer one has ended");
		return;
	}
	if (facts->kind == FACTS_ANSWER ? facts->ttl_s <= 0 : facts->lease_not_found)
	{
		/*
		 * This proves less than the answer to a write: a member that has not
		 * applied the grant yet does not know the lease either (#13675).  We
		 * give the lease up in any case.  If it lives, it must not keep our old
		 * key first in the queue, so it is revoked.
		 */
		lease_not_found(core, facts->op);
		lease_revoke(core, now_ns, facts->op->lease);
		return;
	}
	renewal.term = facts->term;
	renewal.ttl_ns = facts->ttl_s * NSEC_PER_SEC;
	if (renewal.ttl_ns > core->lease.ttl_ns)
		renewal.ttl_ns = core->lease.ttl_ns;
	if (facts->kind != FACTS_ANSWER || !read_send(core, now_ns, true, &renewal))
		fail_renewal(core, now_ns, &renewal);
}

/*
 * Both answers of the renewal have come: the deadline moves forward, or a fresh
 * lease is needed (RENEWAL, ORDERED).  An election whose own key is not as PLACE
 * requires does not lead any more: the read, or a newer state, has shown that.
 */
static void
finish_renewal(ElectionCore *core, int64_t now_ns, const Facts *read)
{
	const Renewal *renewal = &read->op->renewal;
	int64_t		until_ns = renewal->sent_ns + renewal->ttl_ns;

	if (!read->ordered || renewal->term != core->lease.term || read->term != core->lease.term)
	{
		/*
		 * A newer term requires a fresh lease, see needs_fresh().  If the term
		 * is not newer than the last one that was seen, one of the answers
		 * came from a member that lags behind: renewal again soon.
		 */
		request_drop_answer(core, read->op->id, NULL,
							"it renews nothing: its term is not that of the lease");
		fail_renewal(core, now_ns, renewal);
		return;
	}
	if (!lease_is_good(core, now_ns))
	{
		/* a renewal never revives a lapsed lease */
		request_drop_answer(core, read->op->id, NULL, "it renews nothing: the lease has lapsed");
		return;
	}
	core->renewal_failures = 0;
	core->lease_failures = 0;
	if (until_ns > core->lease.until_ns)
		core->lease.until_ns = until_ns;
	publish_deadline(core);
}

/* ---- answers --------------------------------------------------------------- */

void
lease_receive_read(ElectionCore *core, int64_t now_ns, const Facts *facts, uint32_t confirmed)
{
	if (facts->kind != FACTS_ANSWER)
	{
		fail_renewal(core, now_ns, &facts->op->renewal);
		return;
	}
	if (move_has_shown(core))
		commit_fresh(core);
	revoke_retired(core, now_ns, facts->op, confirmed);
	if (lease_is_current(core, &facts->op->renewal))
		finish_renewal(core, now_ns, facts);
}

void
lease_receive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	const Op   *op = facts->op;

	if (op->renewal.number != 0)
		receive_keepalive(core, now_ns, facts);
	else if (op->kind == OP_REVOKE)
		receive_revoke(core, facts);
	else if (facts->kind == FACTS_NO_ANSWER)
		postpone(core, op);
	else if (op->kind == OP_MOVE)
		receive_move(core, facts);
	else
		receive_grant(core, now_ns, facts);
}

/* ---- other histories, other electors --------------------------------------- */

void
lease_discard(ElectionCore *core)
{
	memset(&core->lease, 0, sizeof(core->lease));
	memset(&core->fresh, 0, sizeof(core->fresh));
	core->retired = 0;
	core->revoking = false;
	void_renewals(core);
}

bool
lease_resume(ElectionCore *core, int64_t now_ns, const ElectionMemory *memory)
{
	if (lease_trusted_until_ns(core, &memory->lease) <= now_ns)
		return false;
	core->lease = memory->lease;
	return true;
}
