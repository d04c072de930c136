/*-------------------------------------------------------------------------
 *
 * reached.c
 *	  Rare states that the seeds must reach, a line for each.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plan.h"
#include "protocol/rival.h"
#include "protocol/state.h"
#include "reached.h"

/* ---- what a state is made of --------------------------------------------- */

static int
count_ops(const ElectionCore *core, OpKind kind)
{
	int			n = 0;

	for_each_op(core, op)
		n += op->kind == kind;
	return n;
}

/* Renewals under way in that stage: their keepalive, or the read that confirms it. */
static int
count_renewals(const ElectionCore *core, OpKind stage)
{
	int			n = 0;

	for_each_op(core, op)
		n += op->kind == stage && lease_is_current(core, &op->renewal);
	return n;
}

/* Is a renewal confirmed by raft's log alone, without any key? */
static bool
has_empty_renewal(const ElectionCore *core)
{
	for_each_op(core, op)
	{
		if (op->kind == OP_READ && op->slots == 0 && lease_is_current(core, &op->renewal))
			return true;
	}
	return false;
}

static int
count_leading(const ElectionCore *core)
{
	int			n = 0;

	for_each_election(core, e)
		n += e->state == ELECTION_LEADING;
	return n;
}

/* Are the rights to several elections missing? */
static bool
is_denied_twice(const ElectionCore *core)
{
	int			n = 0;

	for_each_election(core, e)
		n += e->denials > 0;
	return n > 1;
}

/* Has the instance crashed that owns the key of that create revision? */
static bool
has_crashed(const Election *e, int64_t create_revision)
{
	for (int i = 0; i < ninstances; i++)
	{
		for (int slot = 0; slot < plan.slots; slot++)
		{
			const ElectionView *view = &instances[i].views[slot];

			if (create_revision != 0 && view->create_revision == create_revision && strcmp(view->name, e->name) == 0)
				return !instances[i].running;
		}
	}
	return false;
}

static bool
watches(const ElectionCore *core, const Election *e, WatchTarget target)
{
	for (int i = 0; i < core->stream.nwatched; i++)
	{
		if (core->stream.watched[i].slot == slot_of(core, e) && core->stream.watched[i].target == target)
			return true;
	}
	return false;
}

/* ---- the states ---------------------------------------------------------- */

#define STATES_OF_INSTANCE(STATE) \
	STATE("contact: none", !core->connected) \
	STATE("contact: none, and it leads", !core->connected && count_leading(core) > 0) \
	STATE("contact: a request has failed, and no later one", core->connected && core->first_failure_ns != 0) \
	STATE("contact: several endpoints have failed in a row", (core->failed_endpoints & (core->failed_endpoints - 1)) != 0) \
	STATE("history: an answer is not believed", core->stale_since_ns != 0) \
	STATE("history: tokens up to a revision are not used", core->min_token_exclusive != 0) \
	STATE("lease: none, and contact", core->connected && core->lease.id == 0) \
	STATE("lease: of an earlier raft term", core->lease.id != 0 && core->lease.term < core->term_seen) \
	STATE("lease: with less TTL than it was asked for", core->lease.granted && core->lease.ttl_ns < core->lease.asked_ttl_s * NSEC_PER_SEC) \
	STATE("lease: of an earlier TTL of the settings", core->lease.id != 0 && core->lease.asked_ttl_s != core->config.ttl_s) \
	STATE("lease: granted at the second try", core->lease.tries > 1) \
	STATE("lease: to be replaced", core->lease.must_be_replaced) \
	STATE("lease: to be replaced, and it leads", core->lease.must_be_replaced && count_leading(core) > 0) \
	STATE("lease: a fresh one is asked for a second time", !core->fresh.granted && core->fresh.tries > 1) \
	STATE("lease: a fresh one is granted, and no key moved", core->fresh.granted && !core->fresh.moving && core->lease.id != 0) \
	STATE("lease: the keys are moved to a fresh one", core->fresh.moving && count_ops(core, OP_MOVE) > 0) \
	STATE("lease: a move had no answer", core->fresh.moving && count_ops(core, OP_MOVE) == 0) \
	STATE("lease: the keys are moved, and it leads", core->fresh.moving && count_leading(core) > 0) \
	STATE("lease: an old one is kept until no key is on it", core->retired != 0) \
	STATE("lease: it is given up with all keys", core->revoking) \
	STATE("lease: it is given up, and a fresh one is not granted yet", core->revoking && core->fresh.id != 0 && !core->fresh.granted) \
	STATE("renewal: two under way", count_renewals(core, OP_KEEPALIVE) + count_renewals(core, OP_READ) == 2) \
	STATE("renewal: four under way", count_renewals(core, OP_KEEPALIVE) + count_renewals(core, OP_READ) == MAX_RENEWALS) \
	STATE("renewal: one is sent while another is confirmed", count_renewals(core, OP_KEEPALIVE) > 0 && count_renewals(core, OP_READ) > 0) \
	STATE("renewal: the last one failed, and it leads", core->renewal_failures > 0 && count_leading(core) > 0) \
	STATE("renewal: several have failed in a row", core->renewal_failures > 1) \
	STATE("watch: no stream, and contact", core->connected && core->stream.nwatched == 0 && core->stream.failures > 0) \
	STATE("watch: etcd has confirmed a part of them", core->stream.ncreated > 0 && core->stream.ncreated < core->stream.nwatched) \
	STATE("watch: the stream has failed several times", core->stream.failures > 1) \
	STATE("memory: it leads, and a crash would be survived", core->remembered && count_leading(core) > 0) \
	STATE("memory: it leads, and nothing is remembered", !core->remembered && count_leading(core) > 0) \
	STATE("shutdown: a revocation is tried again", core->stopping && core->shutdown_revocations_left == 0 && !election_stopped(core)) \
	STATE("elections: it leads several", count_leading(core) > 1) \
	STATE("renewal: nothing can be read with it", has_empty_renewal(core)) \
	STATE("reads: several under way", count_ops(core, OP_READ) > 2) \
	STATE("rights: none to several elections", is_denied_twice(core)) \
	STATE("settings: it leads with another margin than at the start", count_leading(core) > 0 && core->config.safety_margin_ms != plan.margin_ms) \
	STATE("settings: it leads with another number of endpoints than at the start", count_leading(core) > 0 && core->config.nendpoints != plan.nendpoints)

#define STATES_OF_ELECTION(STATE) \
	STATE("observing", e->state == ELECTION_OBSERVING) \
	STATE("observing, and the leader is known", e->state == ELECTION_OBSERVING && e->leader.is_known) \
	STATE("resigned", e->state == ELECTION_RESIGNED) \
	STATE("joining", e->state == ELECTION_JOINING) \
	STATE("joining: an entry had no answer", e->state == ELECTION_JOINING && e->own.entry_unanswered && !request_is_under_way(core, OP_ENTER, slot_bit(core, e))) \
	STATE("joining: an earlier key must not come back", e->state == ELECTION_JOINING && e->own.min_create_revision != 0) \
	STATE("queued", e->state == ELECTION_QUEUED) \
	STATE("queued, and the key is on another lease", e->state == ELECTION_QUEUED && e->own.lease != core->lease.id) \
	STATE("waiting", e->state == ELECTION_WAITING) \
	STATE("waiting directly behind the leader", e->state == ELECTION_WAITING && e->place.predecessor.create_revision == e->leader.key.create_revision) \
	STATE("waiting behind another waiter", e->state == ELECTION_WAITING && e->place.predecessor.create_revision != e->leader.key.create_revision) \
	STATE("waiting, ready", e->place.ready_revision != 0) \
	STATE("waiting, ready, on a lease that is replaced", e->place.ready_revision != 0 && core->fresh.id != 0) \
	STATE("waiting, ready, without contact", e->place.ready_revision != 0 && !core->connected) \
	STATE("waiting, and the leader is not known", e->state == ELECTION_WAITING && !e->leader.is_known) \
	STATE("leading", e->state == ELECTION_LEADING) \
	STATE("leading by an event, not read since", e->place.first_revision != 0) \
	STATE("leading, and somebody else has written the key", e->state == ELECTION_LEADING && e->own.mod_revision > e->own.written_revision) \
	STATE("leading, with a value that is to be written", e->state == ELECTION_LEADING && strcmp(e->own.value, e->own.wanted_value) != 0) \
	STATE("leading, and its key is on the lease that is to come", e->state == ELECTION_LEADING && lease_is_moved_to(core, e->own.lease)) \
	STATE("held back", e->state == ELECTION_HELD_BACK) \
	STATE("held back, in a server that has crashed", e->state == ELECTION_HELD_BACK && in->next_start == SHARED_AFTER_CRASH) \
	STATE("leaving", e->state == ELECTION_LEAVING) \
	STATE("leaving, and it is to enter again", e->state == ELECTION_LEAVING && e->wanted && !e->stay_out) \
	STATE("leaving an election that is not in the settings", e->state == ELECTION_LEAVING && !e->wanted) \
	STATE("leaving: a delete had no answer", e->state == ELECTION_LEAVING && e->own.create_revision != 0 && e->failures > 0) \
	STATE("leaving: the key ends with its lease", e->state == ELECTION_LEAVING && e->own.is_abandoned) \
	STATE("rights: it is read alone", e->is_read_alone) \
	STATE("rights: it leads, and a read was denied", e->state == ELECTION_LEADING && e->denials > 0) \
	STATE("rights: none, and another one is led", e->denials > 3 && count_leading(core) > 0) \
	STATE("rights: none, and it has no key", e->denials > 3 && e->state == ELECTION_JOINING) \
	STATE("a slot is used for the second time", e->generation > 1) \
	STATE("leading, in a slot that is used for the second time", e->state == ELECTION_LEADING && e->generation > 1) \
	STATE("another candidate has the same name", e->duplicate.key.create_revision != 0) \
	STATE("another candidate has the same name, and it was reported", e->duplicate.key.create_revision != 0 && e->duplicate.since_ns == NEVER_NS) \
	STATE("nobody leads", e->leader.is_known && e->leader.key.create_revision == 0) \
	STATE("the name of the leader has run out", !e->leader.is_known && e->leader.announced_revision != 0) \
	STATE("command: resign waits without contact", e->commands.resign_ticket != 0 && !core->connected) \
	STATE("command: campaign waits", e->commands.campaign_ticket != 0) \
	STATE("command: proclaim waits", e->commands.proclaim_ticket != 0) \
	STATE("command: proclaim waits, and the key must be written though it has the value", e->own.must_put_value) \
	STATE("joining: another primary leads", e->state == ELECTION_JOINING && rival_leads(core, e)) \
	STATE("joining: its lease was extended once", e->state == ELECTION_JOINING && e->rival.nextensions == 1) \
	STATE("second primary: the other one led and lived", e->state == ELECTION_SECOND_PRIMARY && \
		  e->rival.timelines.refused == core->config.timeline) \
	STATE("second primary: a later timeline has led", e->state == ELECTION_SECOND_PRIMARY && \
		  e->rival.timelines.leading > core->config.timeline) \
	STATE("candidate beside another primary, by command", is_candidate(e) && core->config.timeline != 0 && \
		  e->rival.timelines.accepted == core->config.timeline) \
	STATE("transfer: the queue is read", e->transfer.stage == TRANSFER_SURVEYING) \
	STATE("transfer: it drains", e->transfer.stage == TRANSFER_DRAINING) \
	STATE("transfer: sent", e->transfer.stage == TRANSFER_SENT) \
	STATE("transfer: had no answer", e->transfer.stage == TRANSFER_SENT && e->transfer.op_id == 0) \
	STATE("transfer: the next leader is waited for", e->transfer.stage == TRANSFER_WATCHING) \
	STATE("transfer: a preferred candidate is in the queue", e->transfer.better_revision != 0) \
	STATE("transfer: by preference", e->transfer.stage == TRANSFER_SENT && e->transfer.ticket == 0) \
	STATE("transfer: by preference, and the next leader has crashed", e->transfer.ticket == 0 && has_crashed(e, e->transfer.target_revision)) \
	STATE("transfer: a preferred node has led for a short time, twice", e->transfer.nbrief > 1) \
	STATE("drain: before a resignation", e->drain.goal == DRAIN_RESIGN) \
	STATE("drain: before a transfer", e->drain.goal == DRAIN_TRANSFER) \
	STATE("drain: for a preferred node", e->drain.goal == DRAIN_TRANSFER && e->transfer.ticket == 0) \
	STATE("drain: over, and the hand-over is not sent", e->drain.goal != DRAIN_NONE && e->drain.is_over) \
	STATE("drain: without contact", e->drain.goal != DRAIN_NONE && !core->connected) \
	STATE("drain: of one that stays out", e->drain.goal == DRAIN_RESIGN && e->stay_out) \
	STATE("drain: several for one preferred node were in vain", e->transfer.nfailed_drains > 1) \
	STATE("watched: the own key", watches(core, e, WATCH_OWN)) \
	STATE("watched: the leader's key", watches(core, e, WATCH_LEADER)) \
	STATE("watched: both keys of a wait", watches(core, e, WATCH_WAIT)) \
	STATE("watched: any candidate", watches(core, e, WATCH_ANYBODY))

#define IS(kind_, reason_)	(event->kind == ELECTION_EVENT_##kind_ && event->reason == ELECTION_##reason_)

#define EVENTS(STATE) \
	STATE("elected", IS(ELECTED, NO_REASON)) \
	STATE("draining", IS(DRAINING, NO_REASON)) \
	STATE("drain cancelled", IS(DRAIN_CANCELLED, NO_REASON)) \
	STATE("unelected: resigned", IS(UNELECTED, REASON_RESIGNED)) \
	STATE("unelected: transferred", IS(UNELECTED, REASON_TRANSFERRED)) \
	STATE("unelected: lease expired", IS(UNELECTED, REASON_LEASE_EXPIRED)) \
	STATE("unelected: key deleted", IS(UNELECTED, REASON_KEY_DELETED)) \
	STATE("unelected: key changed", IS(UNELECTED, REASON_KEY_CHANGED)) \
	STATE("unelected: permission denied", IS(UNELECTED, REASON_PERMISSION_DENIED)) \
	STATE("unelected: not eligible", IS(UNELECTED, REASON_NOT_ELIGIBLE)) \
	STATE("unelected: dropped", IS(UNELECTED, REASON_DROPPED)) \
	STATE("unelected: shutdown", IS(UNELECTED, REASON_SHUTDOWN)) \
	STATE("unelected: history changed", IS(UNELECTED, REASON_HISTORY_CHANGED)) \
	STATE("leader: another one", IS(LEADER, NO_REASON) && event->leader != NULL) \
	STATE("leader: nobody", IS(LEADER, NO_REASON) && event->leader == NULL) \
	STATE("leader: a new value", IS(LEADER, REASON_PROCLAIMED)) \
	STATE("leader: not known without contact", IS(LEADER, REASON_NO_CONTACT)) \
	STATE("connected", event->kind == ELECTION_EVENT_CONNECTED) \
	STATE("disconnected", event->kind == ELECTION_EVENT_DISCONNECTED)

#define REPLY(kind_, reply_)	(kind == TICKET_##kind_ && reply == ELECTION_##reply_)

#define REPLIES(STATE) \
	STATE("resign: done", REPLY(RESIGN, DONE)) \
	STATE("resign: nothing to do", REPLY(RESIGN, NOTHING_TO_DO)) \
	STATE("resign: no contact", REPLY(RESIGN, NO_CONTACT)) \
	STATE("resign: cancelled", REPLY(RESIGN, CANCELLED)) \
	STATE("campaign: done", REPLY(CAMPAIGN, DONE)) \
	STATE("campaign: nothing to do", REPLY(CAMPAIGN, NOTHING_TO_DO)) \
	STATE("campaign: not eligible", REPLY(CAMPAIGN, NOT_ELIGIBLE)) \
	STATE("campaign: refused", REPLY(CAMPAIGN, REFUSED)) \
	STATE("campaign: no contact", REPLY(CAMPAIGN, NO_CONTACT)) \
	STATE("proclaim: done", REPLY(PROCLAIM, DONE)) \
	STATE("proclaim: not a candidate", REPLY(PROCLAIM, NOT_CANDIDATE)) \
	STATE("proclaim: no contact", REPLY(PROCLAIM, NO_CONTACT)) \
	STATE("transfer: done", REPLY(TRANSFER, DONE)) \
	STATE("transfer: no contact", REPLY(TRANSFER, NO_CONTACT)) \
	STATE("transfer: failed", REPLY(TRANSFER, FAILED)) \
	STATE("transfer: not the leader", REPLY(TRANSFER, NOT_LEADER)) \
	STATE("transfer: no such candidate", REPLY(TRANSFER, NO_SUCH_CANDIDATE)) \
	STATE("transfer: more than one has that name", REPLY(TRANSFER, AMBIGUOUS_CANDIDATE)) \
	STATE("transfer: a foreign candidate is in between", REPLY(TRANSFER, FOREIGN_CANDIDATE)) \
	STATE("transfer: cancelled", REPLY(TRANSFER, CANCELLED)) \
	STATE("verify: done", REPLY(VERIFY, DONE)) \
	STATE("verify: nothing to do", REPLY(VERIFY, NOTHING_TO_DO))

/* An event that a client reads, see shared.c. */
#define READS(STATE) \
	STATE("the next one", follows) \
	STATE("after a number that was skipped for nothing", !follows && nmissed == 0) \
	STATE("after some that it has missed", !follows && nmissed > 0) \
	STATE("of before a clean restart", is_older) \
	STATE("that changes were lost", is_gap) \
	STATE("with a lower number, as the clock was set back", is_set_back)

/* ---- the counts ---------------------------------------------------------- */

#define COUNT(description, condition)	+ 1
#define DESCRIPTION(description, condition)	description,

enum
{
	OF_INSTANCE = 0,
	OF_ELECTION = OF_INSTANCE STATES_OF_INSTANCE(COUNT),
	OF_EVENT = OF_ELECTION STATES_OF_ELECTION(COUNT),
	OF_REPLY = OF_EVENT EVENTS(COUNT),
	OF_READ = OF_REPLY REPLIES(COUNT),
	NSTATES = OF_READ READS(COUNT)
};

static const char *const descriptions[NSTATES] = {
	STATES_OF_INSTANCE(DESCRIPTION)
	STATES_OF_ELECTION(DESCRIPTION)
	EVENTS(DESCRIPTION)
	REPLIES(DESCRIPTION)
	READS(DESCRIPTION)
};

static bool reached[NSTATES];	/* by this seed */

static struct
{
	uint64_t	nseeds[NSTATES];
	struct
	{
		uint64_t	n;
		int64_t		longest_ns;
	}			overlaps[2];		/* by was_restored */
}		   *counts = NULL;		/* shared; NULL: not wanted */

#define LOOK(description, condition)	reached[state++] |= (condition);

void
reached_begin(void)
{
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
	{
		perror("mmap");
		exit(2);
	}
}

void
reached_reset(void)
{
	memset(reached, 0, sizeof(reached));
}

void
reached_count(void)
{
	for (int i = 0; counts != NULL && i < NSTATES; i++)
		__atomic_fetch_add(&counts->nseeds[i], reached[i], __ATOMIC_RELAXED);
}

void
reached_look(const Instance *in)
{
	const ElectionCore *core = in->core;
	int			state = OF_INSTANCE;

	if (counts == NULL)
		return;
	STATES_OF_INSTANCE(LOOK)
	for_each_election(core, e)
	{
		state = OF_ELECTION;
		STATES_OF_ELECTION(LOOK)
	}
}

void
reached_announced(const ElectionEvent *event)
{
	int			state = OF_EVENT;

	EVENTS(LOOK)
}

void
reached_replied(TicketKind kind, ElectionReply reply)
{
	int			state = OF_REPLY;

	REPLIES(LOOK)
}

void
reached_event(bool follows, int nmissed, bool is_older, bool is_gap, bool is_set_back)
{
	int			state = OF_READ;

	READS(LOOK)
}

void
reached_overlap(bool was_restored, int64_t ns)
{
	int64_t    *longest_ns;
	int64_t		known_ns;

	if (counts == NULL)
		return;
	__atomic_fetch_add(&counts->overlaps[was_restored].n, 1, __ATOMIC_RELAXED);
	longest_ns = &counts->overlaps[was_restored].longest_ns;
	known_ns = __atomic_load_n(longest_ns, __ATOMIC_RELAXED);
	while (known_ns < ns &&
		   !__atomic_compare_exchange_n(longest_ns, &known_ns, ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

int
reached_report(void)
{
	static const struct
	{
		const char *what;
		int			begin;
		int			end;
	}			groups[] = {
		{"instance", OF_INSTANCE, OF_ELECTION},
		{"election", OF_ELECTION, OF_EVENT},
		{"event", OF_EVENT, OF_REPLY},
		{"reply", OF_REPLY, OF_READ},
		{"client: reads an event", OF_READ, NSTATES}
	};
	int			nmissed = 0;

	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
	{
		for (int i = groups[g].begin; i < groups[g].end; i++)
		{
			printf("%6" PRIu64 "  %s  %s%s\n", counts->nseeds[i], groups[g].what, descriptions[i],
				   counts->nseeds[i] == 0 ? "  NOT REACHED" : "");
			nmissed += counts->nseeds[i] == 0;
		}
	}
	printf("%d states, %d not reached\n", NSTATES, nmissed);
	for (int i = 0; i < 2; i++)
		printf("two led at once %s: %" PRIu64 " times, for %.3f s at the longest\n",
			   i == 0 ? "after an operator took a key" : "after etcd was put back",
			   counts->overlaps[i].n, counts->overlaps[i].longest_ns / 1e9);
	return nmissed;
}
