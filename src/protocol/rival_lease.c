/*-------------------------------------------------------------------------
 *
 * rival_lease.c
 *	  Whether another primary of the same database system, which leads, is alive (SECOND).
 *
 * A time is no evidence: a lease outlives its owner, and by another TTL with each new
 * leader of etcd.  An owner that is alive extends its lease again and again.  So the lease
 * is asked for its time to live.  If it lives longer than the answers before said, somebody
 * has extended it.  In one raft term etcd's leader does that once, when its term begins
 * (Promote() in etcd's lessor.go).  So two extensions in one term show that the owner is
 * alive.
 *
 * The term in an answer is the term of the entry that the member has applied last (setTerm()
 * in etcd's server.go), and the time to live is that of etcd's leader.  A member that lags
 * tells an old term.  So a read has to follow, which raft's log orders: the member answers
 * it when it has applied what was committed, and then the term is still the same.  (A read
 * that is not ordered may be stale, etcd #20418.)
 *
 *-------------------------------------------------------------------------
 */
#include "publish.h"
#include "queue.h"
#include "requests.h"
#include "rival.h"
#include "rival_lease.h"

/*
 * The least time between two questions.  etcd tells whole seconds, so a shorter time
 * shows nothing.
 */
#define MIN_INTERVAL_NS		(1200 * NSEC_PER_MSEC)

/* Evidence: see above. */
#define MIN_EXTENSIONS		2

/* So often a lease is asked six times in a TTL; then once in a TTL. */
#define NQUICK				12

/* ---- answers --------------------------------------------------------------- */

/*
 * The most that the lease has left at that time, unless somebody has extended it.  etcd's
 * clock may run slower than that of this instance: within a TTL by the safety margin.
 */
static int64_t
most_left_ns(const ElectionCore *core, const Rival *r, int64_t at_ns)
{
	int64_t		ttl_ms = core->config.ttl_s * INT64_C(1000);
	int64_t		margin_ms = lease_margin_ns(core, ttl_ms * NSEC_PER_MSEC) / NSEC_PER_MSEC;

	return r->left_ns - (at_ns - r->answered_ns) / ttl_ms * (ttl_ms - margin_ms);
}

/*
 * Has somebody extended the lease?  etcd cuts off the fraction of a second.  So 0 is also
 * the answer for a second after the end, until etcd revokes the lease.
 */
static bool
is_extended(const ElectionCore *core, const Rival *r, const Facts *facts)
{
	int64_t		least_ttl_s = facts->ttl_s > 0 ? facts->ttl_s : -1;

	return least_ttl_s * NSEC_PER_SEC >= most_left_ns(core, r, facts->op->sent_ns);
}

static void
learn_time_to_live(const ElectionCore *core, Rival *r, int64_t now_ns, const Facts *facts)
{
	int64_t		left_ns = (facts->ttl_s + 1) * NSEC_PER_SEC;

	if (r->term != facts->term)
	{
		r->term = facts->term;
		r->nextensions = 0;
		r->left_ns = NEVER_NS;
	}
	if (is_extended(core, r, facts))
	{
		r->nextensions++;
		r->left_ns = NEVER_NS;
	}
	if (left_ns < most_left_ns(core, r, now_ns))
	{
		r->left_ns = left_ns;
		r->answered_ns = now_ns;
	}
}

static int64_t
ask_interval_ns(const ElectionCore *core, const Rival *r)
{
	int64_t		ttl_ns = core->config.ttl_s * NSEC_PER_SEC;
	int64_t		interval_ns = r->nasked <= NQUICK ? ttl_ns / 6 : ttl_ns;

	return interval_ns > MIN_INTERVAL_NS ? interval_ns : MIN_INTERVAL_NS;
}

static void
receive(ElectionCore *core, int64_t now_ns, const Facts *facts, Election *e)
{
	e->rival.nasked++;
	e->rival.ask_ns = now_ns + ask_interval_ns(core, &e->rival);
	/* a leader of etcd that has just been elected knows no end of any lease */
	if (facts->kind != FACTS_ANSWER || facts->ttl_s < 0 || facts->ttl_s > facts->granted_ttl_s)
		return;
	learn_time_to_live(core, &e->rival, now_ns, facts);
	e->read_wanted |= rival_awaits_read(e);
}

void
rival_receive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	for_each_election(core, e)
	{
		if (e->rival.lease == facts->op->lease)
			receive(core, now_ns, facts, e);
	}
}

bool
rival_awaits_read(const Election *e)
{
	return e->rival.nextensions >= MIN_EXTENSIONS;
}

void
rival_confirm(ElectionCore *core, const Facts *facts, Election *e)
{
	const Rival *r = &e->rival;

	if (rival_awaits_read(e) && facts->ordered && facts->op->sent_ns >= r->answered_ns &&
		facts->term == r->term && rival_leads(core, e) && e->leader.lease == r->lease)
		rival_refuse(core, e);
}

/* ---- what is due ------------------------------------------------------------ */

/* The other primary may lead several elections.  No other request is about its lease. */
static bool
is_asked(const ElectionCore *core, int64_t lease)
{
	for_each_op(core, op)
	{
		if (op->lease == lease)
			return true;
	}
	return false;
}

static void
ask(ElectionCore *core, int64_t now_ns, Election *e)
{
	Rival	   *r = &e->rival;
	Op		   *op;

	if (r->lease != e->leader.lease)
	{
		r->lease = e->leader.lease;
		r->nasked = r->nextensions = 0;
		r->left_ns = NEVER_NS;
		r->ask_ns = now_ns;
	}
	if (r->lease == 0 || is_asked(core, r->lease) || !due_or_wake_at(core, now_ns, r->ask_ns))
		return;
	op = request_start(core, now_ns, OP_TIME_TO_LIVE);
	if (op == NULL)
		return;
	op->lease = r->lease;
	request_send_lease(core, op, ETCD_TIME_TO_LIVE, 0);
}

/*
 * What follows for an election.  A second primary has no key: as long as it had one, it
 * would be the next to lead when the other primary is restarted.
 */
static void
reconcile_election(ElectionCore *core, Election *e)
{
	rival_learn_leader(core, e);
	if (e->state == ELECTION_LEADING)
		rival_note_leading(core, e);
	if (rival_refuses(core, e) || rival_leads(core, e))
	{
		publish_reply(core, &e->commands.campaign_ticket, ELECTION_REFUSED);
		if (is_queued(e) && e->state != ELECTION_LEADING)
			queue_leave(core, e, ELECTION_NO_REASON);
		else if (e->state == ELECTION_JOINING && rival_refuses(core, e))
			queue_leave(core, e, ELECTION_NO_REASON);
	}
	if (e->state == ELECTION_SECOND_PRIMARY && !(core->config.eligible && rival_refuses(core, e)))
		queue_begin_without_key(core, e);
}

void
rival_reconcile(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		reconcile_election(core, e);
		if (core->connected && e->state == ELECTION_JOINING && rival_leads(core, e))
			ask(core, now_ns, e);
	}
}
