/*-------------------------------------------------------------------------
 *
 * useful.c
 *	  Checks that an instance does what it is there for.
 *
 * Safety alone would be had from an instance that never leads.  So:
 *
 * - A command that is "done" has had its effect.
 * - Nobody gives up a place in the queue, or takes another name for its key, without a
 *   cause: a command, settings, a hand-over, missing rights, another primary of its
 *   system, a restore.  No lease of a place ends without need.
 * - The reason of "unelected" is what has happened in etcd.
 * - An instance that is to stay out stays out.
 * - Without faults no passing state lasts.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checker.h"
#include "plan.h"
#include "primaries.h"
#include "rights.h"
#include "useful.h"

/* Without faults no passing state lasts longer. */
#define PASSING_NS		(2500 * MS)

/* After the faults, and the longest back-off, an instance that may lead again with an old token does so by then. */
#define BACKOFF_NS		SECOND
#define RELEASE_NS		(300 * MS)

/* What an instance has of an election. */
typedef struct Place
{
	char		election[ELECTION_NAME_SIZE];
	int			key;			/* the last one that was shown; -1: none */
	int64_t		create_revision;	/* of that key; 0: none was shown */
	bool		is_shown;		/* now */
	int64_t		since_ns;		/* when it was shown first */
	int64_t		lease;			/* the last one that was shown */
	int64_t		deadline_ns;
	int64_t		given_up_ns;	/* the last cause to give up the place; -1: none */
	int			entered_key;	/* the last one that it entered with; -1: none */
	int64_t		entered_ns;		/* when it entered with that name first */
	bool		entry_in_doubt; /* an entry with that name had no answer */
	uint64_t	nstates;		/* changes of the state */
	bool		is_changed;		/* in this call */
	uint64_t	drain;			/* the number of the last drain; */
	bool		is_drain_over;	/* its work has ended */
} Place;

typedef struct Player
{
	Place		places[MAX_SLOTS];
	int64_t		bare_ns;		/* when it revoked a lease without any place last; -1: never */
	int64_t		refused_ns;		/* when it was told last that a lease is gone; -1: never */
	int64_t		doubted_ns;		/* when it did not believe an answer last; -1: never */
	int64_t		doubted_revision;	/* of etcd, when that was a stale read */
} Player;

static Player *players;
static bool is_restored;

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

static void
begin_place(Place *place, const char *election)
{
	uint64_t	nstates = place->nstates;

	memset(place, 0, sizeof(*place));
	place->nstates = nstates + 1;
	snprintf(place->election, sizeof(place->election), "%s", election);
	place->key = place->entered_key = -1;
	place->given_up_ns = -1;
}

void
useful_ended(const Instance *in)
{
	Player	   *p = &players[in->number];

	for (int slot = 0; slot < MAX_SLOTS; slot++)
		begin_place(&p->places[slot], "");
	/* the next elector may remember that it doubted a revision */
	p->bare_ns = p->refused_ns = p->doubted_ns = -1;
}

void
useful_reset(void)
{
	players = run_alloc((size_t) ninstances * sizeof(Player));
	for (int i = 0; i < ninstances; i++)
		useful_ended(&instances[i]);
	is_restored = false;
}

void
useful_restored(void)
{
	is_restored = true;
}

/*
 * It does not believe an answer.  If only such answers come for a TTL, it begins anew.
 * It takes a stale read for the sign of a restore, so no key of before counts any more.
 */
void
useful_distrusted(const Instance *in)
{
	players[in->number].doubted_ns = now_ns;
	if (plan.stale_reads > 0)
		players[in->number].doubted_revision = store_revision();
}

static bool
has_prefix(EtcdBytes name, const char *election)
{
	size_t		len = strlen(election);

	return len > 0 && name.len > len && name.data[len] == '/' && memcmp(name.data, election, len) == 0;
}

/* ---- causes ---------------------------------------------------------------- */

static bool
is_configured(const Instance *in, const char *election)
{
	for (int i = 0; i < in->config.nelections; i++)
	{
		if (strcmp(in->config.elections[i], election) == 0)
			return true;
	}
	return false;
}

/* New settings, or a command that is taken up. */
void
useful_stimulus(const Instance *in)
{
	for (int slot = 0; slot < plan.slots; slot++)
	{
		Place	   *place = &players[in->number].places[slot];

		place->is_changed = true;
		if (place->election[0] != '\0' && (!in->config.eligible || !is_configured(in, place->election)))
			place->given_up_ns = now_ns;
	}
}

/* Has something happened since then for which it gives up the place? */
static bool
has_cause(const Instance *in, int slot, int64_t since_ns)
{
	const Player *p = &players[in->number];
	const Place *place = &p->places[slot];

	/* a key on a lease that is gone, as far as is known, is deleted and entered again */
	if (place->given_up_ns >= since_ns || p->refused_ns >= since_ns || is_restored ||
		place->create_revision <= p->doubted_revision ||
		/* a denial of before may be answered late */
		rights_missed_since(election_number(place->election), since_ns - plan_longest_ttl_s() * SECOND) ||
		shared_stays_out(in, place->election) || primaries_may_yield(in))
		return true;
	for (int i = 0; i < MAX_TICKETS; i++)
	{
		const Ticket *ticket = &in->tickets[i];

		if (ticket->slot == slot && (ticket->kind == TICKET_RESIGN || ticket->kind == TICKET_TRANSFER))
			return true;
	}
	return false;
}

/* ---- passing states -------------------------------------------------------- */

/* A state that an instance was in at some time. */
typedef struct Passing
{
	Instance   *in;
	int			slot;
	uint32_t	life;
	uint64_t	nstates;
} Passing;

static void
expect_end(Instance *in, int slot, int64_t bound_ns, void (*check) (void *subject, uint64_t tag))
{
	Passing    *passing = run_alloc(sizeof(Passing));

	passing->in = in;
	passing->slot = slot;
	passing->life = in->life;
	passing->nstates = players[in->number].places[slot].nstates;
	events_after(bound_ns, check, passing, 0);
}

/* Has it been in that state all the time? */
static bool
lasts(const Passing *passing)
{
	const Instance *in = passing->in;

	return in->life == passing->life && in->running && !in->stopping &&
		players[in->number].places[passing->slot].nstates == passing->nstates;
}

static void
check_passing(void *subject, uint64_t tag)
{
	const Passing *passing = subject;
	const ElectionView *view = &passing->in->views[passing->slot];
	int64_t		since_ns = now_ns - PASSING_NS - 2 * plan_longest_ttl_s() * SECOND;

	if (!lasts(passing) || now_ns >= plan.faults_end_ns || rights_changed_since(since_ns) ||
		rights_missed_since(election_number(view->name), since_ns))
		return;
	/* one that waits for another primary may wait for ever */
	if (view->state == ELECTION_JOINING && primaries_may_yield(passing->in))
		return;
	fail_run("%s has been %s in %s for %.1f s", passing->in->name, election_state_name(view->state), view->name,
			 PASSING_NS / 1e9);
}

/* The work, or the time of a drain, has ended.  Without trouble the leader hands over. */
static void
check_drained(void *subject, uint64_t tag)
{
	const Passing *passing = subject;
	const ElectionView *view = &passing->in->views[passing->slot];

	if (lasts(passing) && !checker_may_lose(passing->in) && election_connected(passing->in->core) &&
		!rights_missed_since(election_number(view->name), now_ns - 2 * plan_longest_ttl_s() * SECOND))
		fail_run("%s drains %s, though all work has ended %.1f s ago", passing->in->name, view->name,
				 PASSING_NS / 1e9);
}

static void
check_released(void *subject, uint64_t tag)
{
	const Passing *passing = subject;

	if (lasts(passing) && passing->in->views[passing->slot].state == ELECTION_HELD_BACK)
		fail_run("%s is still held back in %s after a campaign", passing->in->name,
				 passing->in->views[passing->slot].name);
}

static bool
is_passing(const ElectionView *view)
{
	return view->state == ELECTION_JOINING || view->state == ELECTION_QUEUED ||
		view->state == ELECTION_LEAVING || view->state == ELECTION_HELD_BACK;
}

void
useful_published(Instance *in, int slot, const ElectionView *old)
{
	const ElectionView *view = &in->views[slot];
	Place	   *place = &players[in->number].places[slot];

	if (strcmp(view->name, place->election) != 0)
		begin_place(place, view->name);
	place->is_shown = view->create_revision != 0;
	if (place->is_shown && view->create_revision != old->create_revision)
	{
		place->key = store_intern(bytes_of(view->key));
		if (view->create_revision != place->create_revision)
			place->since_ns = now_ns;
		place->create_revision = view->create_revision;
	}
	if (view->lease != 0)
		place->lease = view->lease;
	if (view->deadline_ns != 0)
		place->deadline_ns = view->deadline_ns;
	if (view->state == old->state)
		return;
	place->nstates++;
	place->is_changed = true;
	/* its key goes when etcd answers again, though the cause may have ended by then */
	if (view->state == ELECTION_LEAVING && has_cause(in, slot, place->since_ns))
		place->given_up_ns = now_ns;
	if (plan.profile == PROFILE_CALM && !plan.is_slow && is_passing(view))
		expect_end(in, slot, PASSING_NS, check_passing);
}

/* ---- requests -------------------------------------------------------------- */

static void
check_entry(const Instance *in, EtcdBytes name)
{
	Player	   *p = &players[in->number];
	int			key = store_intern(name);

	for (int slot = 0; slot < plan.slots; slot++)
	{
		Place	   *place = &p->places[slot];

		if (!has_prefix(name, place->election) || place->entered_key == key)
			continue;
		if (place->entered_key >= 0 && !is_restored && p->bare_ns < place->entered_ns &&
			p->doubted_ns < place->entered_ns)
			fail_run("%s enters %s under another name", in->name, place->election);
		place->entered_key = key;
		place->entered_ns = now_ns;
		place->entry_in_doubt = false;
	}
}

static void
check_deletion(const Instance *in, const EtcdCompare *compare)
{
	int			key = store_intern(compare->key);

	for (int slot = 0; slot < plan.slots; slot++)
	{
		Place	   *place = &players[in->number].places[slot];

		if (place->key != key || place->create_revision != compare->value)
			continue;
		if (!has_cause(in, slot, place->since_ns))
			fail_run("%s gives up its place in %s without a cause", in->name, place->election);
		place->given_up_ns = now_ns;	/* a deletion that was sent is final */
	}
}

static void
check_revocation(const Instance *in, int64_t lease)
{
	Player	   *p = &players[in->number];
	bool		is_bare = true;

	for (int slot = 0; slot < plan.slots; slot++)
	{
		is_bare &= !p->places[slot].is_shown;
		if (p->places[slot].is_shown && in->views[slot].lease == lease)
			fail_run("%s revokes the lease of its place in %s", in->name, p->places[slot].election);
	}
	if (is_bare)
		p->bare_ns = now_ns;
}

static bool
is_entry(const EtcdRequest *request)
{
	return request->kind == ETCD_TXN && request->ncompares == 1 && request->compares[0].value == 0 &&
		request->success[0].kind == ETCD_OP_PUT;
}

void
useful_sent(const Instance *in, const EtcdRequest *request)
{
	if (in->stopping)
		return;
	if (request->kind == ETCD_REVOKE)
		check_revocation(in, request->lease);
	else if (is_entry(request))
		check_entry(in, request->compares[0].key);
	else if (request->kind == ETCD_TXN && request->ncompares == 1 && request->success[0].kind == ETCD_OP_DELETE)
		check_deletion(in, &request->compares[0]);
}

void
useful_answered(const Instance *in, const EtcdRequest *request, const EtcdAnswer *answer)
{
	Player	   *p = &players[in->number];

	if (answer->outcome == ETCD_ANSWERED)
	{
		if (request->kind == ETCD_KEEPALIVE && answer->ttl_s <= 0)
			p->refused_ns = now_ns;
		return;
	}
	if (answer->code == ETCD_CODE_NOT_FOUND)
		p->refused_ns = now_ns;
	for (int slot = 0; is_entry(request) && slot < plan.slots; slot++)
		p->places[slot].entry_in_doubt |= has_prefix(request->compares[0].key, p->places[slot].election);
}

/* ---- what happens to a place ------------------------------------------------- */

/* Were two keys of the election deleted, or was another one written, at that revision? */
static bool
is_hand_over(const Version *version, const char *election)
{
	for (int v = store_versions() - 1; v >= 0 && store_version(v)->revision >= version->revision; v--)
	{
		const Version *other = store_version(v);

		if (other->revision == version->revision && other->key != version->key &&
			has_prefix(store_key(other->key)->name, election))
			return true;
	}
	return false;
}

/* The key of a place that the instance has, as far as it knows, was deleted. */
static void
check_lost_place(const Instance *in, int slot, const Version *version)
{
	const Place *place = &players[in->number].places[slot];

	if (version->cause == BY_CLIENT && !has_cause(in, slot, place->since_ns) &&
		!is_hand_over(version, place->election))
		fail_run("%s has lost its place in %s by a request that is no hand-over", in->name, place->election);
	if (version->cause == BY_EXPIRY && !has_cause(in, slot, place->since_ns) && !checker_may_lose(in))
		fail_run("%s lets the lease of its place in %s end without need", in->name, place->election);
}

void
useful_changed(const Version *version)
{
	if (!version->deleted)
		return;
	for (int i = 0; i < ninstances; i++)
	{
		const Instance *in = &instances[i];

		for (int slot = 0; in->running && !in->stopping && slot < plan.slots; slot++)
		{
			const Place *place = &players[i].places[slot];

			if (place->is_shown && place->key == version->key &&
				place->create_revision == version->create_revision)
				check_lost_place(in, slot, version);
		}
	}
}

/* Is there a version of the key of the place that is a deletion, or was made by an operator? */
static bool
was_touched(const Place *place, bool deleted)
{
	for (int v = store_key(place->key)->last_version; v >= 0; v = store_version(v)->previous)
	{
		const Version *version = store_version(v);

		if (version->create_revision == place->create_revision &&
			(deleted ? version->deleted : !version->deleted && version->cause == BY_OPERATOR))
			return true;
	}
	return false;
}

/* Has etcd, or the time, ended the leadership for that reason? */
static bool
is_true(const Instance *in, const Place *place, ElectionReason reason)
{
	const StoreLease *lease;

	switch (reason)
	{
		case ELECTION_REASON_RESIGNED:
		case ELECTION_REASON_TRANSFERRED:
		case ELECTION_REASON_PERMISSION_DENIED:
		case ELECTION_REASON_NOT_ELIGIBLE:
		case ELECTION_REASON_DROPPED:
		case ELECTION_REASON_SHUTDOWN:
			return true;		/* checker.c knows */
		case ELECTION_REASON_LEASE_EXPIRED:
			lease = store_find_lease(place->lease);
			/* the margin may be greater now */
			return in->last_clock_ns >= place->deadline_ns || players[in->number].refused_ns == now_ns ||
				lease == NULL || lease->revoked_index != 0 || in->reason == ELECTION_REASON_DROPPED;
		case ELECTION_REASON_KEY_DELETED:
			return is_restored || was_touched(place, true);
		case ELECTION_REASON_KEY_CHANGED:
			return is_restored || was_touched(place, false);
		case ELECTION_REASON_HISTORY_CHANGED:
			return is_restored;
		default:
			return false;
	}
}

void
useful_announced(const Instance *in, int slot, const ElectionEvent *event)
{
	Place	   *place = &players[in->number].places[slot];

	if (event->kind != ELECTION_EVENT_UNELECTED)
		return;
	if (!is_true(in, place, event->reason))
		fail_run("%s is unelected from %s, and gives \"%s\" as the reason", in->name, place->election,
				 event->reason == ELECTION_NO_REASON ? "" : election_reason_name(event->reason));
	if (event->reason == ELECTION_REASON_TRANSFERRED)
		place->given_up_ns = now_ns;
}

/* ---- commands ---------------------------------------------------------------- */

/* Has the key stood at some time since that revision? */
static bool
has_stood(int key, int64_t create_revision, int64_t since_revision)
{
	for (int v = store_key(key)->last_version; v >= 0; v = store_version(v)->previous)
	{
		if (store_version(v)->create_revision == create_revision)
			return !store_version(v)->deleted || store_version(v)->revision > since_revision;
	}
	return false;
}

static void
check_campaign(Instance *in, const Ticket *ticket)
{
	const ElectionView *view = &in->views[ticket->slot];
	const Place *place = &players[in->number].places[ticket->slot];
	bool		is_same = ticket->create_revision != 0 && view->create_revision == ticket->create_revision;

	if (is_same && ticket->was_draining)
	{
		if (view->state != ELECTION_LEADING)
			fail_run("%s has ended a drain of %s, and does not lead it on", in->name, view->name);
	}
	else if (is_same && ticket->held_back)
	{
		if (now_ns >= plan.faults_end_ns && election_connected(in->core))
		{
			int64_t		backoff_ns = plan.faults_end_ns + BACKOFF_NS - now_ns;

			expect_end(in, ticket->slot, RELEASE_NS + (backoff_ns > 0 ? backoff_ns : 0), check_released);
		}
	}
	/* an answer to an entry that was under way at the command tells of a key that has stood */
	else if (!is_restored &&
			 (!place->is_shown ||
			  !has_stood(place->key, view->create_revision, is_same ? ticket->revision : 0)))
		fail_run("%s has entered %s, but has no key there", in->name, view->name);
}

static void
check_resignation(const Instance *in, const Ticket *ticket)
{
	const Place *place = &players[in->number].places[ticket->slot];
	const Version *version;
	const Version *old;

	/*
	 * An entry may be executed late, or twice.  Without rights to it, a key of an election
	 * that is in the settings no more is left to its lease.
	 */
	if (place->entered_key < 0 || place->entry_in_doubt || plan.repeat > 0 || is_restored ||
		rights_missed_since(election_number(place->election), now_ns - 2 * plan_longest_ttl_s() * SECOND))
		return;
	version = store_find(store_key(place->entered_key)->name);
	old = version != NULL && version->previous >= 0 ? store_version(version->previous) : NULL;
	if (version != NULL && (old == NULL || !old->deleted || old->revision <= ticket->revision))
		fail_run("%s has resigned from %s, and there is a key of it", in->name, place->election);
}

void
useful_replied(Instance *in, const Ticket *ticket, ElectionReply reply)
{
	Place	   *place = &players[in->number].places[ticket->slot];

	if ((ticket->kind == TICKET_RESIGN && reply != ELECTION_CANCELLED && reply != ELECTION_NOTHING_TO_DO) ||
		(ticket->kind == TICKET_TRANSFER && (reply == ELECTION_DONE || reply == ELECTION_FAILED ||
											 reply == ELECTION_NO_CONTACT)))
		place->given_up_ns = now_ns;
	if (reply == ELECTION_DONE && ticket->kind == TICKET_CAMPAIGN)
		check_campaign(in, ticket);
	if (reply == ELECTION_DONE && ticket->kind == TICKET_RESIGN)
		check_resignation(in, ticket);
}

/* ---- after each call ----------------------------------------------------------- */

static void
check_drain(Instance *in, int slot)
{
	const ElectionView *view = &in->views[slot];
	const Work *work = &in->work[slot];
	Place	   *place = &players[in->number].places[slot];

	if ((view->state == ELECTION_DRAINING) != work->draining)
		fail_run("%s %s %s, and has not announced it", in->name,
				 work->draining ? "does not drain any more" : "drains", view->name);
	if (plan.is_slow || !work->draining)
		return;
	if (place->drain != work->number)
	{
		place->drain = work->number;
		place->is_drain_over = false;
		/* its clock may be slower */
		expect_end(in, slot, work->greatest_ns + work->greatest_ns / 500000 * plan.drift_ppm + PASSING_NS,
				   check_drained);
	}
	if (work->is_over && !place->is_drain_over)
	{
		place->is_drain_over = true;
		expect_end(in, slot, PASSING_NS, check_drained);
	}
}

void
useful_called(Instance *in)
{
	for (int slot = 0; slot < plan.slots; slot++)
	{
		const ElectionView *view = &in->views[slot];
		Place	   *place = &players[in->number].places[slot];

		if (view->name[0] == '\0')
			continue;
		check_drain(in, slot);
		if (place->is_changed && view->state != ELECTION_RESIGNED && view->state != ELECTION_LEAVING &&
			view->state != ELECTION_DRAINING && shared_stays_out(in, view->name))
			fail_run("%s is %s in %s, though it is to stay out", in->name, election_state_name(view->state),
					 view->name);
		place->is_changed = false;
	}
}
