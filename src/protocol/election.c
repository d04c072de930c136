/*-------------------------------------------------------------------------
 *
 * election.c
 *	  The election protocol of one instance, as a pure state machine.
 *
 * The instance holds one lease.  In each election it puts one key on that
 * lease.  The key with the lowest create revision below "<election>/" leads.
 * That much is etcd's own election (etcdctl elect, Go's concurrency.Election),
 * and its clients take part in ours.  The rules beyond it:
 *
 * PLACE	An instance concludes that it leads from one linearizable answer
 *			alone.  It shows the own key, with the known create revision, on
 *			the lease, as the first of the queue.  Go's Campaign does not read
 *			its own key again after waiting, and elects a waiting candidate
 *			whose lease is gone (etcd #19597).  READY is the other way to leadership.
 * EPOCH	An answer is ignored if leadership was withdrawn after its request
 *			was sent.  A ready instance is not ready any more then.
 * RENEWAL	A keepalive and a confirming read move the deadline only together:
 *			both are answered in the raft term that the lease was granted in,
 *			the old deadline has not passed, and the key is found as in PLACE.
 *			A deposed leader of etcd answers keepalives with a full TTL
 *			(#15247); equal terms show that the true leader renewed.  The read
 *			is sent after the keepalive's answer, not with the keepalive.  A
 *			read that is served earlier, in the old term, would hide that the
 *			new leader of etcd renewed the lease.  The old leader does not know
 *			of that renewal.  If it wakes up, it revokes the lease.
 * BY NAME	A renewal reads the known keys by their names: the own key, the
 *			predecessor's, the leader's.  A sorted range would make etcd fetch
 *			every key of the election.  If one of the keys has changed, a read
 *			at the range follows.  So it does in a new raft term, because etcd
 *			may have been put back.  Only the leader reads the range with each
 *			renewal.
 * ORDERED	An answer that begins or extends leadership is ordered by raft's
 *			log, and not by a read index: linearizable reads of a member that
 *			was paused can be stale (#20418, #21399).  So a read that may begin
 *			leadership, and each read that confirms a renewal, also contain an
 *			empty nested txn.  Such a txn is a proposal, and is answered when it
 *			is applied.  It writes nothing, wakes no watch, makes no revision,
 *			and needs neither space nor a right but to read.
 * READY	The successor leads without reading again when its wait ends.  A
 *			read that shows the own key, and exactly one before it, makes it ready:
 *			create revisions only increase, so no other key can come before.
 *			The wait ends when the watch reports the deletion of that key, at a
 *			later revision than the answer that made it ready.  One watch reports all
 *			changes of both keys after that answer, and a frame is used as a
 *			whole, because a transfer deletes both keys at one revision.  So the
 *			read may be stale, and need not be ORDERED.  A write of the leader's
 *			name with another create revision ends that: the deletion before it
 *			was missed (#19179).  When the wait ends, the instance leads if the
 *			lease is good, the own key is attached to it as far as is known, and
 *			the answers are not in doubt (HISTORY).  A read follows at once, and
 *			ends leadership if it disagrees.  Go's client checks neither its
 *			lease nor its key (etcd #19597).
 * FRESH	In a new raft term, or after the deadline, a fresh lease replaces
 *			the old one, and the keys are put on it.  An etcd leader that was
 *			stopped and wakes up revokes leases that its successor renewed.
 * GUARD	Every write of an own key compares create and mod revision.  So a
 *			write that was sent earlier and given up cannot take effect after
 *			it: a stopped member executes its pending requests when it wakes up.
 * FINAL	A delete that was sent is final: that incarnation of the key is
 *			never believed again.  The same holds for a revocation.
 * ORDER	Leadership is withdrawn from readers before the key is deleted or
 *			the lease revoked.
 * TRANSFER	The leader hands over to a named candidate by one txn, which deletes
 *			the own key and those of ours up to the target's, and does nothing
 *			unless each of them and the target's is still as it was read.  A
 *			key of another program is never deleted: Go's client would lead
 *			without it (#19597).  A candidate whose key was deleted enters the
 *			queue again.  It sees the deletion of its own key and of the
 *			leader's together: they have one revision, and one watch reports
 *			both (READY).
 * SECOND	A primary does not enter while another primary of its database system has
 *			the first key.  Two extensions of the lease of that key in one raft term
 *			show that the other one lives.  Then, or after a primary of its system has
 *			led on a later timeline, it stays out until it is on another timeline, or
 *			until etcd_campaign().
 * RIGHTS	etcd denies a whole txn or watch stream if the user has no rights to one
 *			of its keys, and a renewal for one key on the lease.  So each election of
 *			a request that was denied is read alone, until that is answered.  One
 *			whose reads are denied again and again is left, or not led any more if it
 *			is followed, and no key of it is watched.  Its commands are answered, and if
 *			it was dropped from the settings, it does not wait for the rights.  A key that
 *			cannot be deleted, or that may exist, ends with its lease, which is replaced.
 * MEMORY	The record for the time after a crash of the elector is erased
 *			before a message is sent that changes keys or leases, until that
 *			message is answered.  The next elector would not know that the
 *			message may still be executed.  The revisions that were seen are never
 *			erased: the next elector may have no lease, but uses no token again.
 * HISTORY	An answer is dropped if it comes from another cluster, has a lower
 *			raft term, or a lower revision than a linearizable answer can have.
 *			If only such answers come for a TTL, etcd was replaced or restored.
 *			Which cluster may be entered, the caller decides (etcd/clusters.c).
 *
 * lease.c keeps the lease (RENEWAL, FRESH), queue.c the own keys (FINAL, READY),
 * own_key.c writes them (GUARD), leadership.c withdraws leadership (ORDER), reads.c
 * reads the keys and their places (PLACE, EPOCH, BY NAME, ORDERED), hand_over.c hands
 * over (TRANSFER), watch.c has the watch stream, patroni.c the elections that follow
 * Patroni and have rules of their own, command.c the settings and commands, remember.c
 * what is remembered (MEMORY), rival.c the other primaries and rival_lease.c whether
 * they live (SECOND), key_name.c the names of keys.  This file has the answers and where
 * they go, contact with etcd, and its history (HISTORY).
 *
 * Inputs change the state and mark the wanted work.  reconcile() then sends
 * each request that is wanted, not under way and not postponed.  So a lost
 * answer needs no handler of its own: its request is still wanted.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "facts.h"
#include "hand_over.h"
#include "leadership.h"
#include "lease.h"
#include "own_key.h"
#include "patroni.h"
#include "publish.h"
#include "queue.h"
#include "reads.h"
#include "reconcile.h"
#include "remember.h"
#include "requests.h"
#include "rival_lease.h"
#include "watch.h"

/* Of 16 tries of a denied put, four read the other elections, too. */
#define TRIES				16
#define TRIES_WITH_OTHERS	4

/* ---- contact ------------------------------------------------------------- */

/* etcd has answered. */
static void
set_connected(ElectionCore *core, const Op *answered)
{
	core->failed_endpoints = 0;
	core->first_failure_ns = 0;
	core->contact_failures = 0;
	if (core->connected)
		return;
	core->connected = true;
	core->probe_id = 0;			/* it may hang; the next loss of contact has its own */
	/* Work that was postponed because nobody answered is due now. */
	core->stream.retry_ns = 0;
	core->lease_retry_ns = 0;
	core->read_retry_ns = 0;
	for_each_election(core, e)
	{
		e->retry_ns = 0;
		e->patroni.retry_ns = 0;
		e->patroni.renewal_failures = 0;
		e->patroni.renewal_wanted = true;
	}
	publish_event(core, ELECTION_EVENT_CONNECTED, NULL, false, ELECTION_NO_REASON, NULL);
	if (!request_is_read(answered) && !request_is_under_way(core, OP_READ, ALL_SLOTS))
	{
		for_each_election(core, e)
			e->read_wanted = true;
	}
}

/* Commands that wait are answered; the work that they asked for goes on. */
static void
set_disconnected(ElectionCore *core, const char *why)
{
	if (core->connected)
	{
		core->connected = false;
		publish_event(core, ELECTION_EVENT_DISCONNECTED, NULL, false, ELECTION_NO_REASON, why);
	}
	for_each_election(core, e)
	{
		/* a drain needs no contact */
		if (!is_draining(e))
			publish_reply(core, &e->commands.resign_ticket, ELECTION_NO_CONTACT);
		publish_reply(core, &e->commands.campaign_ticket, ELECTION_NO_CONTACT);
		publish_reply(core, &e->commands.proclaim_ticket, ELECTION_NO_CONTACT);
		if (transfer_is_sent(e))
			publish_reply(core, &e->transfer.ticket, ELECTION_NO_CONTACT);
		else
			transfer_end(core, e, ELECTION_NO_CONTACT);
	}
}

/*
 * An endpoint gave no useful answer.  Contact is lost when every endpoint that is
 * used has failed since etcd answered last, and a request that was sent after the first
 * failure has failed, too.  So a single failure is not enough if there is only
 * one endpoint, which may be the address of several members.
 *
 * Without contact, the next endpoint is tried at once.  But the client may stay at the
 * same one.  So an endpoint that fails again is as good as all of them.
 */
static void
fail_endpoint(ElectionCore *core, int64_t now_ns, const Facts *facts, const char *why)
{
	int64_t		sent_ns = facts->op->sent_ns;
	int			endpoint = facts->endpoint;
	uint32_t	all = core->config.nendpoints >= 32 ? ALL_SLOTS :
		SLOT_BIT(core->config.nendpoints) - 1;
	bool		fails_again = false;
	bool		is_retry;
	bool		all_failed;

	/* A request that was not even sent says nothing about an endpoint. */
	if (endpoint >= 0 && endpoint < core->config.nendpoints)
	{
		fails_again = (core->failed_endpoints & SLOT_BIT(endpoint)) != 0;
		core->failed_endpoints |= SLOT_BIT(endpoint);
	}
	else
		core->contact_retry_ns = sent_ns + BACKOFF_MIN_MS * NSEC_PER_MSEC;
	is_retry = core->first_failure_ns != 0 && sent_ns >= core->first_failure_ns;
	if (core->first_failure_ns == 0)
		core->first_failure_ns = now_ns;
	all_failed = ((core->failed_endpoints | core->ignored_endpoints) & all) == all;
	if (core->connected ? !all_failed || !is_retry : !all_failed && !(fails_again && is_retry))
		return;
	core->contact_retry_ns = sent_ns + request_urgent_backoff_ns(core, ++core->contact_failures);
	set_disconnected(core, why);
}

/* ---- etcd's history ------------------------------------------------------ */

/*
 * etcd was replaced by another one, or put back to an earlier state.  Nothing
 * that is known of keys, leases and terms holds any more (HISTORY).
 */
static void
discard_history(ElectionCore *core)
{
	queue_guard_against_restore(core);
	core->cluster_id = 0;
	for_each_election(core, e)
		queue_discard(core, e);
	memset(core->ops, 0, sizeof(core->ops));
	lease_discard(core);
	core->term_seen = 0;
	core->max_revision = 0;
	core->stale_since_ns = 0;
	watch_close(core);
}

/*
 * A txn is executed after it was sent.  So it cannot show a lower revision
 * than was known by then, and one that wrote shows a higher one, unless etcd
 * was put back to an earlier state, or an endpoint leads to a copy of it.
 */
static bool
revision_went_back(const Facts *facts)
{
	const Op   *op = facts->op;
	bool		wrote = !request_writes_nothing(op) && facts->succeeded;

	return (op->slots != 0 || op->kind == OP_READ) && facts->revision < op->revision_floor + wrote;
}

/*
 * May this answer be believed?  Returns NULL, or a text that says what is
 * wrong with it.  A committed write is true, no matter which member reports
 * it, as long as it is the same cluster.
 */
static const char *
doubt_answer(const ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;
	bool		tells_now = request_writes_nothing(op) || op->kind == OP_KEEPALIVE ||
		op->kind == OP_TIME_TO_LIVE;

	if (facts->kind == FACTS_MISFIT)
		return "the answer does not fit the request";
	if (facts->cluster_id == 0)
		return "the answer carries no cluster id";
	if (core->cluster_id != 0 && facts->cluster_id != core->cluster_id)
		return "it is of another cluster than the one that this instance has entered";
	if (tells_now && facts->term == 0)
		return "the answer carries no raft term";
	if (tells_now && facts->term < core->term_seen)
		return "the member is behind its cluster, or etcd was put back to an earlier state";
	if (revision_went_back(facts))
		return "etcd's revision went back";
	return NULL;
}

/* The next elector must know the revision before readers see a token of it. */
static void
learn_header(ElectionCore *core, uint64_t cluster_id, uint64_t term, int64_t revision)
{
	core->cluster_id = cluster_id;
	if (term > core->term_seen)
		core->term_seen = term;
	if (revision > core->max_revision)
		core->max_revision = revision;
	remember_history(core);
}

/* ---- inputs ---------------------------------------------------------------- */

/*
 * A put of an own key was denied.  If it was denied before, and a read of the election
 * alone was answered since, the right to another key on the lease may be missing.  The
 * other elections are not read at each try, as the missing right may be another one.
 */
static uint32_t
find_others_on_lease(const ElectionCore *core, const Op *op)
{
	uint32_t	others = 0;
	bool		is_denied_again = false;

	if ((op->kind != OP_ENTER && op->kind != OP_PROCLAIM) || core->lease.must_be_replaced)
		return 0;
	for_each_election(core, e)
	{
		if ((op->slots & slot_bit(core, e)) != 0)
			is_denied_again = e->failures > 0 && e->failures % TRIES < TRIES_WITH_OTHERS &&
				!e->is_read_alone;
		else if (is_queued(e))
			others |= slot_bit(core, e);
	}
	return is_denied_again ? others : 0;
}

/*
 * The elections to whose keys a right may be missing.  etcd denies the renewal of a
 * lease, and a new key on it, if the user may not write each key on it.  A lease that
 * is to be replaced may have such a key.
 */
static uint32_t
find_denied(const ElectionCore *core, const Facts *facts)
{
	if (!facts->permission_denied)
		return 0;
	if (facts->op->kind == OP_KEEPALIVE)
		return core->lease.must_be_replaced ? 0 : ALL_SLOTS;
	return facts->op->slots | find_others_on_lease(core, facts->op);
}

/*
 * Passes the facts to the part that they concern.  If there is no answer, or a
 * refusal, the request stays wanted, so it is sent again.
 */
static void
dispatch_facts(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	read_each_alone(core, find_denied(core, facts));
	switch (facts->op->kind)
	{
		case OP_READ:
			lease_receive_read(core, now_ns, facts, read_receive(core, now_ns, facts));
			break;
		case OP_KEEPALIVE:
		case OP_GRANT:
		case OP_REVOKE:
		case OP_MOVE:
			lease_receive(core, now_ns, facts);
			break;
		case OP_ENTER:
			if (facts->lease_not_found)
				lease_not_found(core, facts->op);
			own_key_receive(core, now_ns, facts);
			break;
		case OP_DELETE:
		case OP_PROCLAIM:
			own_key_receive(core, now_ns, facts);
			break;
		case OP_SURVEY:
		case OP_TRANSFER:
			transfer_receive(core, now_ns, facts);
			break;
		case OP_PATRONI_READ:
			patroni_receive(core, now_ns, facts);
			break;
		case OP_TIME_TO_LIVE:
			patroni_receive(core, now_ns, facts);
			rival_receive(core, now_ns, facts);
			break;
	}
}

/* An answer that is not believed. */
static void
receive_doubtful(ElectionCore *core, int64_t now_ns, Facts *facts, const char *doubt)
{
	int64_t		patience_ns;

	request_drop_answer(core, facts->op->id, NULL, doubt);
	core->port.change_endpoint(core->port.ctx, facts->endpoint, doubt);
	if (core->stale_since_ns == 0)
		core->stale_since_ns = now_ns;
	if (revision_went_back(facts) && facts->cluster_id == core->cluster_id)
	{
		queue_guard_against_restore(core);
		patroni_guard_against_restore(core);
	}
	fail_endpoint(core, now_ns, facts, doubt);
	/* An instance that led by the other history has stopped by then. */
	patience_ns = core->config.ttl_s * NSEC_PER_SEC;
	if (patience_ns < patroni_longest_ttl_ns(core))
		patience_ns = patroni_longest_ttl_ns(core);
	/* The lease may be from before the TTL was shortened. */
	if (patience_ns < core->lease.ttl_ns)
		patience_ns = core->lease.ttl_ns;
	if (now_ns - core->stale_since_ns > patience_ns)
		discard_history(core);
	else
	{
		facts->kind = FACTS_NO_ANSWER;
		dispatch_facts(core, now_ns, facts);
	}
}

static void
receive_believed(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	if (request_is_read(facts->op))
		core->stale_since_ns = 0;
	set_connected(core, facts->op);
	learn_header(core, facts->cluster_id, facts->term, facts->revision);
	dispatch_facts(core, now_ns, facts);
}

/* After election_stop(): only revocations are under way. */
static void
receive_shutdown_revocation(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	if (core->shutdown_revocations_left > 0 && facts->kind == FACTS_NO_ANSWER)
	{
		core->shutdown_revocations_left--;
		lease_revoke(core, now_ns, facts->op->lease);
	}
}

void
election_receive(ElectionCore *core, int64_t now_ns, uint64_t id, const EtcdAnswer *answer)
{
	Op			op;
	Facts		facts;
	Op		   *awaited = request_find(core, id);
	const char *doubt;

	if (awaited == NULL)
	{
		request_drop_answer(core, id, NULL, "it is of a history of etcd that was discarded");
		return;
	}
	op = *awaited;
	awaited->id = 0;
	facts_extract(&op, answer, &facts);
	if (core->stopping)
	{
		receive_shutdown_revocation(core, now_ns, &facts);
		return;
	}

	/*
	 * Leadership that has run out meanwhile must be withdrawn before the
	 * answer is used.
	 */
	leadership_expire(core, now_ns);
	if (facts.kind == FACTS_NO_ANSWER)
	{
		fail_endpoint(core, now_ns, &facts, facts.message);
		dispatch_facts(core, now_ns, &facts);
	}
	else if (facts.kind == FACTS_REFUSAL)
	{
		set_connected(core, &op);	/* but there is no result */
		dispatch_facts(core, now_ns, &facts);
	}
	else if ((doubt = doubt_answer(core, &facts)) != NULL)
		receive_doubtful(core, now_ns, &facts, doubt);
	else
		receive_believed(core, now_ns, &facts);
	reconcile(core, now_ns);
}

/* Passes the events of a frame on.  False: the stream is of no use any more. */
static bool
receive_frame(ElectionCore *core, int64_t now_ns, const EtcdWatchFrame *frame)
{
	WatchStream *stream = &core->stream;

	if (frame->watch_id >= 1 && frame->watch_id <= stream->nwatched)
	{
		/* Handlers may change the wanted watches, but not the watched keys. */
		const Watched *watched = &stream->watched[frame->watch_id - 1];

		if (frame->created)
			stream->ncreated++;
		for (int i = 0; i < frame->nevents; i++)
		{
			if (watched->target == WATCH_PATRONI)
				patroni_see_event(core, now_ns, &core->elections[watched->slot], &frame->events[i]);
			else
				queue_see_event(core, watched, &frame->events[i]);
		}
		queue_end_frame(core, now_ns);
	}
	return !frame->canceled && frame->watch_id >= 0;
}

void
election_watched(ElectionCore *core, int64_t now_ns, const EtcdWatchFrame *frame)
{
	/* of another cluster: a read shows the rest */
	bool		usable = frame->outcome == ETCD_ANSWERED &&
		frame->header.cluster_id == core->cluster_id;

	if (core->stopping || core->stream.nwatched == 0)
		return;
	leadership_expire(core, now_ns);
	if (usable)
	{
		learn_header(core, frame->header.cluster_id, frame->header.raft_term,
					 frame->header.revision);
		usable = receive_frame(core, now_ns, frame);
	}
	if (!usable)
	{
		request_drop_answer(core, 0, NULL, "it ends the stream, or is of another etcd cluster");
		/* A stream stays open after a cancellation, and would be silent. */
		core->port.watch(core->port.ctx, NULL, 0);
		watch_ended(core, now_ns);
	}
	reconcile(core, now_ns);
}

void
election_watch_ended(ElectionCore *core, int64_t now_ns)
{
	if (core->stopping || core->stream.nwatched == 0)
		return;
	watch_ended(core, now_ns);
	reconcile(core, now_ns);
}

void
election_tick(ElectionCore *core, int64_t now_ns)
{
	if (!core->stopping)
		reconcile(core, now_ns);
}

int64_t
election_wakeup_ns(const ElectionCore *core)
{
	return core->stopping ? NEVER_NS : core->wakeup_ns;
}

/* ---- life, and what can be asked --------------------------------------------------- */

ElectionCore *
election_create(const ElectionPort *port, int max_elections)
{
	ElectionCore *core = calloc(1, sizeof(ElectionCore) + max_elections * sizeof(Election));

	if (core == NULL)
		return NULL;
	core->elections = (Election *) (core + 1);
	core->port = *port;
	core->max_elections = max_elections;
	core->next_id = 1;
	core->next_renewal = 1;
	core->wakeup_ns = NEVER_NS;
	return core;
}

void
election_free(ElectionCore *core)
{
	free(core);
}

bool
election_connected(const ElectionCore *core)
{
	return core->connected;
}

void
election_ignore_endpoints(ElectionCore *core, uint32_t endpoints)
{
	core->ignored_endpoints = endpoints;
}

uint64_t
election_cluster_id(const ElectionCore *core)
{
	return core->cluster_id;
}

int64_t
election_ttl_ns(const ElectionCore *core, int64_t now_ns)
{
	/* Without contact a lapsed lease stays the last one, and must not keep contact away. */
	return lease_is_good(core, now_ns) ? lease_ttl_ns(core) : core->config.ttl_s * NSEC_PER_SEC;
}
