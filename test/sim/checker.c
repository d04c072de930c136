/*-------------------------------------------------------------------------
 *
 * checker.c
 *	  Checks what has to hold, in true time.
 *
 * SQL reports the last published state, and compares its deadline with the
 * instance's own clock.  Leadership can only begin when an instance publishes
 * a state, and its key can only go when etcd changes.  So it is enough to
 * check at these two moments.
 *
 * Exclusion is checked in two ways.  No two instances lead at once.  And an
 * instance that leads has the first key in etcd, on a lease that etcd keeps
 * until the instance's deadline.  The second check finds a mistake even when no
 * other instance begins to lead in that time.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checker.h"
#include "cluster.h"
#include "plan.h"
#include "primaries.h"
#include "reached.h"
#include "rights.h"
#include "useful.h"
#include "work.h"

/* Without faults, every instance knows of a change after that time. */
#define PROMPT_NS		(2500 * MS)

/* The greatest delay until a process is scheduled; see instance.c. */
#define TICK_LATENESS_NS	(60 * MS)

/* A time during which one key, with one value, was the first. */
typedef struct Span
{
	struct Span *older;
	int64_t		from_ns;
	int64_t		to_ns;
	int64_t		create_revision;	/* 0: there was no key */
	int			key;
	EtcdBytes	value;
} Span;

/*
 * An operator has changed a key.  Its owner may lead on until its watch has
 * reported the change.
 */
typedef struct Excuse
{
	struct Excuse *next;
	int			key;
	int64_t		create_revision;
	int64_t		revision;
	int64_t		since_ns;
	bool		told;
	int64_t		overlap_ns;		/* another leads, too, since then; 0: none does */
} Excuse;

/* What an instance has announced of an election. */
typedef struct Told
{
	char		election[ELECTION_NAME_SIZE];
	int64_t		since_ns;		/* when the slot was given to the election */
	bool		elected;
	int64_t		elected_ns;		/* by the instance's clock, as its core read it */
	int64_t		transferred_ns; /* true time of the last hand-over */
	bool		unelected_last;
	int64_t		leader_revision;	/* 0: none */
	char		leader[ELECTION_VALUE_SIZE];
	int64_t		ttl_ns;			/* the TTL in leader_until_ns */
} Told;

/* A request that is not answered yet. */
typedef struct Pending
{
	uint64_t	id;				/* 0: none */
	EtcdRequestKind kind;
	bool		renews;			/* renews a lease, or replaces it */
	bool		writes;			/* writes a key with which it may lead */
	bool		enters;			/* an election */
	int64_t		lease;
	int64_t		sent_ns;		/* by the instance's clock */
} Pending;

#define MAX_PENDING	256
#define MAX_FAILED	8
#define MAX_RECENT	1024
#define OWN_KEYS	256

typedef struct Watchman
{
	Told		told[MAX_SLOTS];
	int			own_keys[OWN_KEYS]; /* the last keys that it entered with, a ring */
	int			nown;
	bool		connected;
	int64_t		looked_revision[MAX_ELECTIONS]; /* revision of the newest read */
	int64_t		watched_revision[MAX_ELECTIONS];	/* where its newest watch begins */
	int64_t		seen_revision;
	int64_t		kept_revision;	/* that the next elector has to know after a crash */
	int64_t		old_revision;	/* highest revision seen before etcd was put back */
	int			ttl_s;			/* in force, and since when */
	int64_t		ttl_since_ns;
	int64_t		sent_ns[MAX_RECENT];	/* times of requests, a ring */
	int			nsent;
	int64_t		stimulus_ns[MAX_RECENT];
	int			nstimuli;

	/* to find losses without need; by the instance's clock */
	Pending		pending[MAX_PENDING];
	Pending		answered;		/* the request that was answered last */
	int64_t		first_failure_ns;	/* first failure since etcd answered last; NEVER: none */
	int64_t		kept_failure_ns;	/* the same, before the last answer */
	bool		retry_failed;
	int64_t		trouble_ns;
	int64_t		failed_ns[MAX_FAILED];	/* renewals and reads that failed, a ring */
	int			nfailed;
	uint64_t	term;
	int64_t		refused_lease;	/* a keepalive's answer said that it is gone */
	uint64_t	newest_id;		/* the newest request */
	uint64_t	renewal_id;		/* the newest request that renews a lease */
	int64_t		distrust_ns;	/* when the core has refused an answer */
} Watchman;

static Watchman *watchmen;
static Span *spans[MAX_ELECTIONS];
static Excuse *excuses;
static int64_t last_token[MAX_ELECTIONS];
static int	last_leader[MAX_ELECTIONS];
static uint32_t last_lineage[MAX_ELECTIONS];
static int64_t highest_announced[MAX_ELECTIONS];
static int64_t (*elected_ns)[MAX_ELECTIONS];	/* when each instance was elected last */
static int64_t restored_revision;	/* the revision that etcd was put back to */
static int64_t undone_revision; /* the last one of before that */
static int64_t restored_ns;
static bool resting;
static int	rest_events;
static int64_t *rest_ns;			/* begin of the rest, by each instance's clock */

static void
make_prefix(char *prefix, int e)
{
	snprintf(prefix, ELECTION_NAME_SIZE + 1, "%s/", election_name(e));
}

void
checker_reset(void)
{
	watchmen = run_alloc((size_t) ninstances * sizeof(Watchman));
	elected_ns = run_alloc((size_t) ninstances * sizeof(*elected_ns));
	memset(spans, 0, sizeof(spans));
	excuses = NULL;
	memset(last_token, 0, sizeof(last_token));
	memset(last_leader, -1, sizeof(last_leader));
	memset(highest_announced, 0, sizeof(highest_announced));
	restored_revision = INT64_MAX;
	undone_revision = 0;
	restored_ns = NEVER;
	resting = false;
	useful_reset();
	for (int e = 0; e < MAX_ELECTIONS; e++)
	{
		spans[e] = run_alloc(sizeof(Span));
		spans[e]->to_ns = NEVER;
	}
}

/* ---- exclusion ------------------------------------------------------------------ */

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

/*
 * An operator has deleted the key, revoked its lease, or put it on another
 * lease.  Its owner leads on until its watch reports that, or until its
 * deadline.  A renewal that was sent before may still move the deadline, by less
 * than a TTL.
 */
static Excuse *
find_excuse(const Instance *in, const ElectionView *view)
{
	int			key = store_intern(bytes_of(view->key));

	for (Excuse *excuse = excuses; excuse != NULL; excuse = excuse->next)
	{
		if (excuse->key == key && excuse->create_revision == view->token && !excuse->told)
		{
			int64_t		then_ns = in->clock_base_ns +
				(int64_t) ((__int128) excuse->since_ns * in->clock_ppb / SECOND);

			if (instance_clock(in) < then_ns + plan_longest_ttl_s() * SECOND)
				return excuse;
		}
	}
	return NULL;
}

static bool
is_excused(const Instance *in, const ElectionView *view)
{
	return find_excuse(in, view) != NULL;
}

static void
check_leader(const Instance *in, int slot)
{
	const ElectionView *view = &in->views[slot];
	const Version *own = store_find(bytes_of(view->key));
	char		prefix[ELECTION_NAME_SIZE + 1];
	const StoreLease *lease;
	int64_t		end_ns;

	if (!instance_leads(in, slot) || is_excused(in, view))
		return;
	snprintf(prefix, sizeof(prefix), "%s/", view->name);
	if (own == NULL || own->create_revision != view->token)
		fail_run("%s leads %s with token %" PRId64 ", but its key is gone from etcd",
				 in->name, view->name, view->token);
	else if (store_first(prefix) != own)
		fail_run("%s leads %s, but its key is not the first", in->name, view->name);
	if (own == NULL || own->lease == 0)
		return;
	lease = store_find_lease(own->lease);
	end_ns = instance_true_time(in, view->deadline_ns);
	if (lease != NULL && cluster.leader >= 0 && lease->expires_ns[cluster.leader] != 0 &&
		lease->expires_ns[cluster.leader] < end_ns)
		fail_run("%s believes for %.6f s more that it leads %s, its lease lives for %.6f s",
				 in->name, (end_ns - now_ns) / 1e9, view->name,
				 (lease->expires_ns[cluster.leader] - now_ns) / 1e9);
}

static void
check_exclusion(const Instance *in, int slot)
{
	const ElectionView *view = &in->views[slot];
	Excuse	   *excuse;

	for (int i = 0; i < ninstances; i++)
	{
		const Instance *other = &instances[i];

		for (int j = 0; other != in && j < plan.slots; j++)
		{
			const ElectionView *its = &other->views[j];

			if (!instance_leads(other, j) || strcmp(its->name, view->name) != 0)
				continue;
			/* the older leader may be excused; after a restore, either of the two */
			excuse = restored_ns != NEVER || its->token < view->token ? find_excuse(other, its) : NULL;
			if (excuse == NULL && (restored_ns != NEVER || its->token >= view->token))
				excuse = find_excuse(in, view);
			if (excuse == NULL)
				fail_run("%s and %s both lead %s", in->name, other->name, view->name);
			else if (excuse->overlap_ns == 0)
				excuse->overlap_ns = now_ns;
		}
	}
}

/* Leadership under that token has ended: how long did another lead, too? */
static void
end_overlap(const Instance *in, const ElectionView *old)
{
	int			key = store_intern(bytes_of(old->key));
	int64_t		end_ns = instance_true_time(in, old->deadline_ns);

	for (Excuse *excuse = excuses; excuse != NULL; excuse = excuse->next)
	{
		if (excuse->key != key || excuse->create_revision != old->token || excuse->overlap_ns == 0)
			continue;
		reached_overlap(restored_ns != NEVER, (end_ns < now_ns ? end_ns : now_ns) - excuse->overlap_ns);
		excuse->overlap_ns = 0;
	}
}

/*
 * Tokens increase from leader to leader.  This does not hold after etcd was put
 * back to an earlier state.  But then no instance leads with a token that it may
 * have seen in use.
 */
static void
check_token(const Instance *in, int slot)
{
	const ElectionView *view = &in->views[slot];
	const Watchman *w = &watchmen[in->number];
	int			e = election_number(view->name);

	/*
	 * Such an answer may have been sent before an operator took the key, or
	 * before etcd was put back.
	 */
	if (is_excused(in, view))
		return;
	if (view->token < last_token[e] ||
		(view->token == last_token[e] && (last_leader[e] != in->number || last_lineage[e] != in->lineage)))
		fail_run("token of %s goes from %" PRId64 " to %" PRId64, view->name, last_token[e], view->token);
	if (view->token <= w->old_revision && view->token > restored_revision)
		fail_run("%s leads %s with token %" PRId64 ", though it has seen revision %" PRId64
				 " of the history that was undone", in->name, view->name, view->token, w->old_revision);
	last_token[e] = view->token;
	last_leader[e] = in->number;
	last_lineage[e] = in->lineage;
}

/* ---- the leader that is shown ------------------------------------------------------ */

/* Compares a key's value with the value that is shown, which may be truncated. */
static bool
is_value(EtcdBytes value, const char *shown)
{
	size_t		len = strlen(shown);

	return len <= value.len && memcmp(value.data, shown, len) == 0 &&
		(len == value.len || value.len >= ELECTION_VALUE_SIZE);
}

static bool
leads(const ElectionView *view)
{
	return view->state == ELECTION_LEADING || view->state == ELECTION_DRAINING;
}

/* The leader that is shown was the leader at some time within the last TTL. */
static void
check_shown_leader(const Instance *in, int slot)
{
	const ElectionView *view = &in->views[slot];
	/* the lease of a leader may have been granted with an older, longer TTL */
	int64_t		ttl_ns = leads(view) ? plan_longest_ttl_s() * SECOND :
		watchmen[in->number].told[slot].ttl_ns;
	int64_t		since_ns = instance_true_time(in, view->leader_until_ns - ttl_ns);

	/* reads of the other instances may be stale */
	if (plan.stale_reads > 0 && !leads(view))
		return;
	/*
	 * When etcd was put back, a deleted key may exist again, and be the first.  An
	 * instance that asks for the key of the leader it knows does not see that.
	 */
	if (!leads(view) && restored_ns != NEVER &&
		now_ns < restored_ns + 2 * plan_longest_ttl_s() * SECOND)
		return;
	/* an instance that led when etcd was put back shows itself until its deadline */
	if (leads(view) && restored_ns != NEVER && is_excused(in, view))
		return;
	for (const Span *span = spans[election_number(view->name)];
		 span != NULL && span->to_ns >= since_ns; span = span->older)
	{
		/* a watch may report a value of the new history before that is detected */
		if (span->create_revision == view->leader_revision &&
			(is_value(span->value, view->leader) || restored_ns != NEVER))
			return;
	}
	fail_run("%s shows \"%s\" (%" PRId64 ") as leader of %s, which it was not within the TTL",
			 in->name, view->leader, view->leader_revision, view->name);
}

/* Readers see these revisions, so an elector after a crash must know them. */
static void
check_known(const Instance *in, const ElectionView *view)
{
	Watchman   *w = &watchmen[in->number];
	int64_t		shown = view->token > view->leader_revision ? view->token : view->leader_revision;

	if (shown > shared_known_revision(in))
		fail_run("%s shows revision %" PRId64 " of %s, which it would not know after a crash", in->name,
				 shown, view->name);
	if (shown > w->kept_revision)
		w->kept_revision = shown;
}

void
checker_published(Instance *in, int slot, const ElectionView *old)
{
	const ElectionView *view = &in->views[slot];
	Told	   *told = &watchmen[in->number].told[slot];

	check_known(in, view);
	useful_published(in, slot, old);
	if (strcmp(view->name, told->election) != 0)
	{
		if (told->elected)
			fail_run("%s left %s without an event", in->name, told->election);
		memset(told, 0, sizeof(*told));
		strcpy(told->election, view->name);
		told->since_ns = now_ns;
	}
	if ((view->deadline_ns != 0) != leads(view) || (view->role == ELECTION_LEADER) != leads(view) ||
		(view->token != 0) != leads(view) || (leads(view) && view->deadline_ns <= in->last_clock_ns))
		fail_run("%s: state, role, deadline and token of %s do not agree", in->name, view->name);
	if (view->deadline_ns > instance_clock(in) + plan_longest_ttl_s() * SECOND)
		fail_run("%s: the deadline is further away than a TTL", in->name);
	if (leads(view) &&
		(view->create_revision != view->token ||
		 (view->has_leader && view->leader_revision != view->token)))
		fail_run("%s: leads %s, but key and leader say something else", in->name, view->name);
	if (instance_leads(in, slot) &&
		watchmen[in->number].looked_revision[election_number(view->name)] == 0)
		fail_run("%s leads %s, but has not read the queue yet", in->name, view->name);
	if (instance_leads(in, slot) && (!view->has_leader || view->leader_until_ns < view->deadline_ns))
		fail_run("%s leads %s, but does not show itself as the leader until its deadline", in->name,
				 view->name);
	if (instance_leads(in, slot))
	{
		check_leader(in, slot);
		check_exclusion(in, slot);
		if (old->token != view->token)
			check_token(in, slot);
	}
	if (old->token != 0 && old->token != view->token)
		end_overlap(in, old);
	if (view->has_leader)
	{
		/* what it saw while it led may be from before the TTL was shortened */
		if (view->leader_until_ns != old->leader_until_ns)
			told->ttl_ns = (leads(old) ? plan_longest_ttl_s() : in->config.ttl_s) * SECOND;
		if (view->leader_until_ns != old->leader_until_ns || !old->has_leader ||
			view->leader_revision != old->leader_revision || strcmp(view->leader, old->leader) != 0)
			check_shown_leader(in, slot);
	}
}

/* ---- requests ---------------------------------------------------------------------------- */

/*
 * An instance withdraws leadership from its readers before it sends a request
 * that deletes its key or revokes its lease.
 */
static void
check_order(const Instance *in, const EtcdRequest *request)
{
	for (int slot = 0; slot < plan.slots; slot++)
	{
		const ElectionView *view = &in->views[slot];

		if (!instance_leads(in, slot))
			continue;
		if (request->kind == ETCD_REVOKE && request->lease == view->lease)
			fail_run("%s revokes its lease while it leads %s", in->name, view->name);
		for (int i = 0; i < request->nsuccess; i++)
		{
			if (request->kind == ETCD_TXN && request->success[i].kind == ETCD_OP_DELETE &&
				bytes_equal(request->success[i].key, bytes_of(view->key)))
				fail_run("%s deletes its key while it leads %s", in->name, view->name);
		}
	}
}

static int
count_since(const int64_t *times, int n, int64_t since_ns)
{
	int			count = 0;

	for (int i = n - 1; i >= 0 && i >= n - MAX_RECENT && times[i % MAX_RECENT] > since_ns; i--)
		count++;
	return count;
}

/*
 * Limits the requests in a TTL: two for each renewal, some for each stimulus, and
 * three for each second of failures.  Each kind of request that fails is
 * postponed by up to a second.  A leader is in more haste.  It tries again after
 * an 18th of the TTL: a keepalive and a read, a watch and a read.
 */
static void
check_storm(Instance *in)
{
	Watchman   *w = &watchmen[in->number];
	int			ttl_s = (int) (election_ttl_ns(in->core, in->last_clock_ns) / SECOND);
	int64_t		since_ns = now_ns - ttl_s * SECOND;
	int			of_failures = 14 * ttl_s > 4 * 18 - 26 ? 14 * ttl_s : 4 * 18 - 26;
	int			allowed = 26 + 4 * plan.nelections + of_failures;
	int			nmissing = 0;
	int			nsent;
	int			nstimuli;

	/* a shorter TTL that was in force before has more renewals */
	if (ttl_s > w->ttl_s)
		w->ttl_since_ns = now_ns;
	w->ttl_s = ttl_s;
	if (since_ns < w->ttl_since_ns)
		since_ns = w->ttl_since_ns;

	/*
	 * It is read alone, and deleted or entered, twice a second each, and so is each at
	 * first.  A hand-over to an instance whose lease has such a key is denied, too.  After
	 * etcd was put back, no answer is believed: each is read alone at each try.  The same
	 * holds for a leader's tries to renew, if etcd denies these and answers are spoiled.
	 */
	for (int e = 0; e < plan.nelections; e++)
		nmissing += rights_missed_since(e, since_ns);
	if (nmissing > 0)
		allowed += nmissing * (4 * ttl_s + 4 * plan.nelections) +
			(plan.preferred != 0 || plan.fault[FAULT_TRANSFER] > 0 ? 4 * ttl_s * plan.nelections : 0) +
			(restored_ns != NEVER && restored_ns >= since_ns ? 18 * plan.nelections : 0) +
			(plan.denies_renewals && plan.garbage > 0 ? 18 * plan.nelections : 0);

	w->sent_ns[w->nsent++ % MAX_RECENT] = now_ns;
	nsent = count_since(w->sent_ns, w->nsent, since_ns);
	if (nsent < allowed)
		return;
	nstimuli = count_since(w->stimulus_ns, w->nstimuli, since_ns);
	if (nsent > allowed + 8 * nstimuli)
		fail_run("%s: %d requests and watches within a TTL of %d s, for %d reasons", in->name, nsent,
				 ttl_s, nstimuli);
}

void
checker_stimulus(Instance *in)
{
	Watchman   *w = &watchmen[in->number];

	w->stimulus_ns[w->nstimuli++ % MAX_RECENT] = now_ns;
	useful_stimulus(in);
}

/* ---- losses without need ----------------------------------------------------------------- */

void
checker_trouble(Instance *in)
{
	watchmen[in->number].trouble_ns = instance_clock(in);
}

/* The least TTL of a lease in this run. */
static int64_t
least_ttl_ns(void)
{
	int64_t		a = plan_granted_ttl_s(plan.ttl_s[0]);
	int64_t		b = plan_granted_ttl_s(plan.ttl_s[1]);

	a = a < plan.ttl_s[0] ? a : plan.ttl_s[0];
	b = b < plan.ttl_s[1] ? b : plan.ttl_s[1];
	return (a < b ? a : b) * SECOND;
}

static int64_t
margin_ns(const Instance *in, int64_t ttl_ns)
{
	int			margin_ms = in->config.safety_margin_ms;

	return margin_ms < 0 ? ttl_ns / 10 : margin_ms * MS < ttl_ns / 2 ? margin_ms * MS : ttl_ns / 2;
}

/*
 * The longest time that answers may take without a loss of leadership.  A renewal
 * that begins a third of a TTL after the last one still ends before the
 * deadline.  So do the grant of a lease, the move to it, and its first renewal.
 * A leader's write of its key may cost the renewal under way: a move voids it, and
 * its read may be older than the write.  Then the next renewal must end in time.
 * Without rights to some elections, each of them is found out after a renewal, by
 * three reads with a back-off.  Its key cannot be deleted, so a fresh lease follows.
 */
static int64_t
harmless_delay_ns(const Instance *in, bool writes)
{
	int			nmissing = 0;

	int64_t		ttl_ns = least_ttl_ns();
	int64_t		renewal_ns = (ttl_ns * 2 / 3 - margin_ns(in, ttl_ns)) / 2;
	int64_t		fresh_ns = (ttl_ns - margin_ns(in, ttl_ns)) / 4;
	int64_t		next_renewal_ns = (ttl_ns / 3 - margin_ns(in, ttl_ns)) / 2;

	for (int e = 0; e < plan.nelections; e++)
		nmissing += rights_missed_since(e, now_ns - 2 * ttl_ns);
	if (nmissing > 0)
		return (ttl_ns * 2 / 3 - margin_ns(in, ttl_ns)) / (8 * nmissing) - 50 * MS;
	if (writes)
		return next_renewal_ns - 150 * MS;
	return (renewal_ns < fresh_ns ? renewal_ns : fresh_ns) - 150 * MS;
}

/* Does the request renew a lease, or help to replace it? */
static bool
renews_lease(const Instance *in, const EtcdRequest *request)
{
	bool		moves = request->kind == ETCD_TXN && request->ncompares > 1;

	/* a proclamation leaves the key on its lease */
	for (int slot = 0; slot < plan.slots && moves; slot++)
		moves = request->success[0].lease != in->views[slot].lease;
	return moves || request->kind == ETCD_KEEPALIVE || request->kind == ETCD_GRANT;
}

/* A leader's move or proclamation; an entry creates its key. */
static bool
is_write_of_leader(const Instance *in, const EtcdRequest *request)
{
	bool		leads = false;

	for (int slot = 0; slot < plan.slots; slot++)
		leads |= instance_leads(in, slot);
	return leads && request->kind == ETCD_TXN && request->ncompares > 0 &&
		request->compares[0].value != 0 && request->success[0].kind == ETCD_OP_PUT;
}

static void
add_pending(Instance *in, uint64_t id, const EtcdRequest *request)
{
	Watchman   *w = &watchmen[in->number];

	w->newest_id = id;
	for (int i = 0; i < MAX_PENDING; i++)
	{
		if (w->pending[i].id == 0)
		{
			w->pending[i].id = id;
			w->pending[i].kind = request->kind;
			w->pending[i].lease = request->lease;
			w->pending[i].renews = renews_lease(in, request);
			w->pending[i].writes = is_write_of_leader(in, request);
			w->pending[i].enters = request->kind == ETCD_TXN && request->ncompares == 1 &&
				request->compares[0].value == 0;
			if (w->pending[i].renews)
				w->renewal_id = id;
			w->pending[i].sent_ns = instance_clock(in);
			return;
		}
	}
	fail_run("%s has more than %d requests under way", in->name, MAX_PENDING);
}

/* The request that was answered last has failed. */
static void
note_failure(Instance *in)
{
	Watchman   *w = &watchmen[in->number];

	if (w->first_failure_ns == NEVER)
		w->first_failure_ns = instance_clock(in);
	else if (w->answered.sent_ns >= w->first_failure_ns)
		w->retry_failed = true;
}

/* A failed keepalive of a lease on which an instance leads. */
typedef struct Failed
{
	Instance   *in;
	int			slot;
	uint32_t	life;
	int64_t		lease;
} Failed;

/* By now the leader must have tried again, unless the situation has changed. */
static void
check_retry(void *subject, uint64_t id)
{
	const Failed *failed = subject;
	const Instance *in = failed->in;
	const ElectionView *view = &in->views[failed->slot];
	const Watchman *w = &watchmen[in->number];

	if (in->life != failed->life || in->paused || in->stopping ||
		!instance_leads(in, failed->slot) || view->lease != failed->lease || w->renewal_id > id)
		return;
	/* without contact, a lease is not replaced; a read is tried first */
	if (!w->connected && w->newest_id > id)
		return;
	for (int i = 0; i < MAX_PENDING; i++)
	{
		const Pending *pending = &w->pending[i];

		/*
		 * Another lease replaces this one.  An instance writes its keys one after
		 * the other, so a proclamation or an entry without an answer holds up the
		 * move.
		 */
		if (pending->id != 0 && (pending->renews || pending->writes || pending->enters) &&
			(pending->kind != ETCD_KEEPALIVE || pending->lease != failed->lease))
			return;
	}
	fail_run("%s leads %s, but has not tried again to renew its lease", in->name, view->name);
}

/*
 * A leader has to renew its lease before the deadline.  When a keepalive fails,
 * the next one is sent at once, but not earlier than an eighteenth of the TTL
 * after the failed one.  None is sent if another lease replaces this one.
 */
static void
expect_retry(Instance *in)
{
	const Watchman *w = &watchmen[in->number];
	int64_t		due_ns = w->answered.sent_ns + election_ttl_ns(in->core, in->last_clock_ns) / 18;

	if (due_ns < instance_clock(in))
		due_ns = instance_clock(in);
	for (int slot = 0; slot < plan.slots; slot++)
	{
		Failed	   *failed;

		if (!instance_leads(in, slot) || in->views[slot].lease != w->answered.lease)
			continue;
		failed = run_alloc(sizeof(Failed));
		failed->in = in;
		failed->slot = slot;
		failed->life = in->life;
		failed->lease = w->answered.lease;
		events_at(instance_true_time(in, due_ns) + TICK_LATENESS_NS, check_retry, failed, w->answered.id);
		return;
	}
}

static void
note_answer(Instance *in, uint64_t id, const EtcdRequest *request, const EtcdAnswer *answer)
{
	Watchman   *w = &watchmen[in->number];
	int64_t		delay_ns = 0;

	for (int i = 0; i < MAX_PENDING; i++)
	{
		if (w->pending[i].id == id)
		{
			w->answered = w->pending[i];
			w->pending[i].id = 0;
			delay_ns = instance_clock(in) - w->answered.sent_ns;
		}
	}
	w->kept_failure_ns = w->first_failure_ns;
	/* after a denial it is first found out which key was meant */
	if (w->answered.kind == ETCD_KEEPALIVE && answer->outcome != ETCD_ANSWERED &&
		answer->code != ETCD_CODE_PERMISSION_DENIED)
		expect_retry(in);
	if (etcd_blames_endpoint(answer->outcome, answer->code, answer->message))
		note_failure(in);
	/* an answer to a request from before etcd was put back, or seemed to be, does not count */
	else if (w->answered.sent_ns >= w->distrust_ns)
	{
		w->first_failure_ns = NEVER;
		w->retry_failed = false;
	}
	if (delay_ns > harmless_delay_ns(in, w->answered.writes) ||
		(answer->outcome == ETCD_ANSWERED ? answer->header.raft_term != w->term && w->term != 0 :
		 answer->code != ETCD_CODE_PERMISSION_DENIED) ||
		(answer->outcome == ETCD_ANSWERED && request->kind == ETCD_KEEPALIVE && answer->ttl_s <= 0))
		checker_trouble(in);
	if (answer->outcome == ETCD_ANSWERED)
		w->term = answer->header.raft_term;
	if (request->kind == ETCD_KEEPALIVE && answer->outcome == ETCD_ANSWERED && answer->ttl_s <= 0)
	{
		for (int slot = 0; slot < plan.slots; slot++)
		{
			if (in->views[slot].lease == request->lease)
				w->refused_lease = request->lease;
		}
	}
}

void
checker_distrusted(Instance *in)
{
	Watchman   *w = &watchmen[in->number];

	w->first_failure_ns = w->kept_failure_ns;
	w->refused_lease = 0;
	w->distrust_ns = instance_clock(in);
	note_failure(in);
	checker_trouble(in);
	useful_distrusted(in);
}

/*
 * A lease that is given up because of a keepalive's answer has to be revoked.
 * It may still live, if the member has not applied its grant.
 */
static void
check_refused_lease(Instance *in)
{
	Watchman   *w = &watchmen[in->number];
	bool		shown = false;

	for (int slot = 0; slot < plan.slots; slot++)
		shown |= w->refused_lease != 0 && in->views[slot].lease == w->refused_lease;
	if (w->refused_lease != 0 && !shown)
		fail_run("%s has given up lease %" PRIx64 ", and not revoked it", in->name, w->refused_lease);
	w->refused_lease = 0;
}

/*
 * A hand-over needs a command, or a preferred node and that this instance has
 * led for preferred_delay.
 */
static void
check_hand_over(const Instance *in, const ElectionEvent *event, int slot)
{
	int64_t		delay_ns = in->config.preferred_delay_ms * MS;

	for (int i = 0; i < MAX_TICKETS; i++)
	{
		if (in->tickets[i].kind == TICKET_TRANSFER && in->tickets[i].slot == slot)
			return;
	}
	if (in->config.npreferred == 0 ||
		in->last_clock_ns - watchmen[in->number].told[slot].elected_ns < delay_ns)
		fail_run("%s hands over %s too soon", in->name, event->election);
}

/*
 * For two TTLs after any trouble a loss is excused, because new leases may have been on
 * their way.
 */
bool
checker_may_lose(const Instance *in)
{
	const Watchman *w = &watchmen[in->number];
	int64_t		clock_ns = instance_clock(in);

	if (in->reason != ELECTION_NO_REASON || restored_ns != NEVER || in->paused || plan.is_harsh ||
		w->trouble_ns >= clock_ns - 2 * plan_longest_ttl_s() * SECOND)
		return true;
	for (int i = 0; i < MAX_PENDING; i++)
	{
		const Pending *pending = &w->pending[i];

		if (pending->id != 0 && pending->sent_ns < clock_ns - harmless_delay_ns(in, pending->writes))
			return true;
	}
	for (const Excuse *excuse = excuses; excuse != NULL; excuse = excuse->next)
	{
		if (excuse->since_ns > now_ns - 3 * plan_longest_ttl_s() * SECOND)
			return true;
	}
	return false;
}

/* Leadership was lost, and there must be a reason. */
static void
check_loss(const Instance *in, const ElectionEvent *event, int slot)
{
	const Watchman *w = &watchmen[in->number];
	int64_t		since_ns = instance_clock(in) - 2 * plan_longest_ttl_s() * SECOND;

	if (event->reason == ELECTION_REASON_TRANSFERRED)
	{
		check_hand_over(in, event, slot);
		return;
	}
	if (event->reason == ELECTION_REASON_RESIGNED && in->work[slot].draining)
		return;
	if (event->reason == ELECTION_REASON_PERMISSION_DENIED)
	{
		/* one that was stopped reads an old denial late */
		if (!rights_missed_since(election_number(event->election), now_ns - plan.ttl_s[0] * SECOND) &&
			w->trouble_ns < since_ns)
			fail_run("%s gives up %s, though it has the rights", in->name, event->election);
		return;
	}
	if (event->reason != in->reason && !(event->reason == ELECTION_REASON_NOT_ELIGIBLE &&
										 in->reason == ELECTION_REASON_DROPPED) &&
		(in->reason != ELECTION_NO_REASON || event->reason == ELECTION_REASON_RESIGNED ||
		 event->reason == ELECTION_REASON_DROPPED || event->reason == ELECTION_REASON_NOT_ELIGIBLE ||
		 event->reason == ELECTION_REASON_SHUTDOWN))
	{
		/* the deadline may have passed before the call */
		if (event->reason != ELECTION_REASON_LEASE_EXPIRED)
			fail_run("%s is unelected from %s: %s, which is not the reason", in->name, event->election,
					 election_reason_name(event->reason));
	}
	if (!checker_may_lose(in))
		fail_run("%s lost %s without need: %s", in->name, event->election, election_reason_name(event->reason));
}

static void
note_own_key(Watchman *w, int key)
{
	for (int i = 0; i < w->nown && i < OWN_KEYS; i++)
	{
		if (w->own_keys[i] == key)
			return;
	}
	w->own_keys[w->nown++ % OWN_KEYS] = key;
}

void
checker_sent(Instance *in, uint64_t id, const EtcdRequest *request)
{
	Watchman   *w = &watchmen[in->number];

	add_pending(in, id, request);
	if (request->kind == ETCD_REVOKE && request->lease == w->refused_lease)
		w->refused_lease = 0;
	if (request->kind == ETCD_TXN && request->ncompares == 1 && request->compares[0].value == 0)
		note_own_key(w, store_intern(request->compares[0].key));
	check_order(in, request);
	check_storm(in);
	useful_sent(in, request);
}

/*
 * A watch begins no later than after the revision of the newest read, so that
 * it misses no event.  Only a read shows all keys of an election.  An event of
 * one watch does not show that another watch has sent everything before it.
 */
void
checker_watches(Instance *in, const EtcdWatch *watches, int nwatches)
{
	if (nwatches > 0)
		check_storm(in);
	for (int i = 0; i < nwatches; i++)
	{
		for (int e = 0; e < plan.nelections; e++)
		{
			char		prefix[ELECTION_NAME_SIZE + 1];
			size_t		len;

			make_prefix(prefix, e);
			len = strlen(prefix);
			if (watches[i].key.len < len || memcmp(watches[i].key.data, prefix, len) != 0)
				continue;
			watchmen[in->number].watched_revision[e] = watches[i].start_revision;
			if (watches[i].start_revision > watchmen[in->number].looked_revision[e] + 1)
				fail_run("%s watches %s from revision %" PRId64 ", but knows it up to %" PRId64 " only",
						 in->name, election_name(e), watches[i].start_revision,
						 watchmen[in->number].looked_revision[e]);
		}
	}
}

/* ---- what an instance receives -------------------------------------------------------------- */

void
checker_answered(Instance *in, uint64_t id, const EtcdRequest *request, bool was_read,
				 const EtcdAnswer *answer)
{
	Watchman   *w = &watchmen[in->number];

	if (tracing)
	{
		if (answer->outcome == ETCD_ANSWERED)
			trace_line(in->name, "is answered %" PRIu64 ": revision %" PRId64 ", term %" PRIu64 "%s", id,
					   answer->header.revision, answer->header.raft_term,
					   request->kind == ETCD_KEEPALIVE && answer->ttl_s <= 0 ? ", no such lease" :
					   request->kind == ETCD_TXN && !answer->succeeded ? ", compares failed" : "");
		else
			trace_line(in->name, "is answered %" PRIu64 ": %s", id, answer->message);
	}
	note_answer(in, id, request, answer);
	useful_answered(in, request, answer);
	if (!was_read || answer->outcome != ETCD_ANSWERED)
		return;
	if (answer->header.revision > w->seen_revision)
		w->seen_revision = answer->header.revision;
	if (request->kind != ETCD_TXN)
		return;
	/* Its key was written meanwhile, so a move to another lease takes twice as long. */
	if (!answer->succeeded)
		checker_trouble(in);
	for (int i = 0; i < request->nsuccess; i++)
	{
		const EtcdOp *op = &request->success[i];

		for (int e = 0; e < plan.nelections && op->kind == ETCD_OP_RANGE; e++)
		{
			char		prefix[ELECTION_NAME_SIZE + 1];

			make_prefix(prefix, e);
			if (op->key.len >= strlen(prefix) && memcmp(op->key.data, prefix, strlen(prefix)) == 0 &&
				answer->header.revision > w->looked_revision[e])
				w->looked_revision[e] = answer->header.revision;
		}
	}
}

void
checker_watched(Instance *in, const EtcdWatchFrame *frame)
{
	Watchman   *w = &watchmen[in->number];

	if (frame->canceled || frame->nevents > 0)
		checker_stimulus(in);
	if (frame->header.revision > w->seen_revision)
		w->seen_revision = frame->header.revision;
	for (int i = 0; i < frame->nevents; i++)
	{
		const EtcdKeyValue *kv = &frame->events[i].kv;

		if (tracing)
			trace_line(in->name, "is told: %s of %.*s at %" PRId64,
					   frame->events[i].is_delete ? "DELETE" : "PUT", (int) kv->key.len, kv->key.data,
					   kv->mod_revision);
	}
	if (frame->canceled)
		trace(in->name, "is told: watch %" PRId64 " is canceled", frame->watch_id);
}

/*
 * A change by an operator excuses the owner only until its watch has reported
 * it.  A watch that was opened for an earlier key may happen to cover the key,
 * as it is one of a range; the instance ignores what it reports.
 */
void
checker_watched_end(Instance *in, const EtcdWatchFrame *frame, bool still_open)
{
	if (in->is_dead)
		return;
	if (frame->canceled && still_open)
		fail_run("%s keeps a stream open on which a watch was canceled", in->name);
	for (int i = 0; i < frame->nevents; i++)
	{
		int			key = store_intern(frame->events[i].kv.key);

		for (Excuse *excuse = excuses; excuse != NULL; excuse = excuse->next)
		{
			if (excuse->told || excuse->key != key ||
				excuse->revision > frame->events[i].kv.mod_revision)
				continue;
			for (int slot = 0; slot < plan.slots; slot++)
			{
				const ElectionView *view = &in->views[slot];

				if (!bytes_equal(bytes_of(view->key), frame->events[i].kv.key) ||
					view->create_revision != excuse->create_revision ||
					watchmen[in->number].watched_revision[election_number(view->name)] < view->create_revision)
					continue;
				excuse->told = true;
				check_leader(in, slot);
			}
		}
	}
}

/* ---- events ------------------------------------------------------------------------------------ */

static Told *
find_told(Instance *in, const char *election, int *slot)
{
	for (*slot = 0; *slot < plan.slots; (*slot)++)
	{
		Told	   *told = &watchmen[in->number].told[*slot];

		if (strcmp(told->election, election) == 0)
			return told;
	}
	fail_run("%s announces something about %s, which it does not show", in->name, election);
	return NULL;
}

void
checker_announced(Instance *in, const ElectionEvent *event)
{
	Watchman   *w = &watchmen[in->number];
	const char *leader = event->leader ? event->leader : "";
	Told	   *told;
	int			slot;

	rest_events += resting;
	if (event->election == NULL)
	{
		if (w->connected == (event->kind == ELECTION_EVENT_CONNECTED))
			fail_run("%s announces its contact twice", in->name);
		if (w->connected && !w->retry_failed)
			fail_run("%s gives up contact, though nothing has failed twice", in->name);
		w->connected = event->kind == ELECTION_EVENT_CONNECTED;
		checker_stimulus(in);
		return;
	}
	told = find_told(in, event->election, &slot);
	if (told == NULL)
		return;
	checker_stimulus(in);
	if (event->kind == ELECTION_EVENT_DRAINING || event->kind == ELECTION_EVENT_DRAIN_CANCELLED)
	{
		if (!told->elected || in->views[slot].token != event->leader_revision)
			fail_run("%s drains %s, or leads it on, but not as it was elected", in->name, told->election);
		work_announced(in, slot, event);
		return;
	}
	if (event->kind == ELECTION_EVENT_UNELECTED)
	{
		if (!told->elected || in->views[slot].deadline_ns != 0)
			fail_run("%s is unelected from %s without having led, or before readers know",
					 in->name, told->election);
		told->elected = false;
		told->unelected_last = true;
		useful_announced(in, slot, event);
		check_loss(in, event, slot);
		work_announced(in, slot, event);
		if (event->reason == ELECTION_REASON_TRANSFERRED)
			told->transferred_ns = now_ns;
		return;
	}
	if (event->kind == ELECTION_EVENT_ELECTED)
	{
		if (told->elected || in->views[slot].token != event->leader_revision)
			fail_run("%s is elected in %s twice, or with another token than published",
					 in->name, told->election);
		told->elected = true;
		told->elected_ns = in->last_clock_ns;
		elected_ns[in->number][election_number(told->election)] = now_ns;
	}
	else
	{
		if (!told->unelected_last && told->leader_revision == event->leader_revision &&
			strcmp(told->leader, leader) == 0)
			fail_run("%s announces the same leader of %s twice", in->name, told->election);
		if (told->leader_revision == event->leader_revision && event->leader_revision != 0 &&
			event->reason != ELECTION_REASON_PROCLAIMED && !told->unelected_last)
			fail_run("%s announces a new value of the leader of %s as something else",
					 in->name, told->election);
	}
	if (event->leader != NULL)
	{
		int			e = election_number(told->election);

		if (event->leader_revision < told->leader_revision && restored_ns == NEVER)
			fail_run("%s announces leaders of %s out of order", in->name, told->election);
		if (event->leader_revision > highest_announced[e])
			highest_announced[e] = event->leader_revision;
	}
	told->unelected_last = false;
	told->leader_revision = event->leader_revision;
	snprintf(told->leader, sizeof(told->leader), "%s", leader);
}

/*
 * Has the instance itself made the leader's key?  It may not know that yet.  Such
 * a key is announced by "elected" only.
 */
static bool
is_own_key(const Watchman *w, const ElectionView *view)
{
	const Span *span = spans[election_number(view->name)];

	while (span != NULL && span->create_revision != view->leader_revision)
		span = span->older;
	for (int i = 0; span != NULL && i < w->nown && i < OWN_KEYS; i++)
	{
		if (w->own_keys[i] == span->key)
			return true;
	}
	return false;
}

/* The events agree with the published state. */
void
checker_called(Instance *in)
{
	Watchman   *w = &watchmen[in->number];

	check_refused_lease(in);
	w->kept_revision = w->seen_revision;
	for (int slot = 0; in->stopping && slot < plan.slots; slot++)
	{
		if (w->told[slot].elected)
			fail_run("%s shuts down, and has not announced the end of %s", in->name, w->told[slot].election);
	}
	if (in->stopping)
		return;
	useful_called(in);
	if (w->connected != election_connected(in->core))
		fail_run("%s has %s contact, and has not announced it", in->name, w->connected ? "lost" : "made");
	for (int slot = 0; slot < plan.slots; slot++)
	{
		const ElectionView *view = &in->views[slot];
		const Told *told = &w->told[slot];
		bool		own = view->has_leader && is_own_key(w, view);
		/* its key is from before etcd was put back, and the revision of that key was given again */
		bool		was_own = view->leader_revision <= undone_revision &&
			(view->state == ELECTION_LEAVING || view->create_revision == view->leader_revision);

		if (view->name[0] == '\0')
			continue;
		if (told->elected != (view->deadline_ns != 0))
			fail_run("%s: %s was announced, but that is not what is shown of %s", in->name,
					 told->elected ? "elected" : "unelected", view->name);
		if (view->has_leader && (!(own || was_own) || leads(view)) &&
			(told->leader_revision != view->leader_revision || strcmp(told->leader, view->leader) != 0))
			fail_run("%s shows \"%s\" as leader of %s, but has announced \"%s\"", in->name, view->leader,
					 view->name, told->leader);
		if (!view->has_leader && told->leader_revision != 0 && !told->unelected_last)
			fail_run("%s shows no leader of %s, but has announced \"%s\"", in->name, view->name, told->leader);
	}
}

void
checker_ended(Instance *in)
{
	Watchman   *w = &watchmen[in->number];

	useful_ended(in);
	memset(w->told, 0, sizeof(w->told));
	memset(w->looked_revision, 0, sizeof(w->looked_revision));
	w->connected = false;
	memset(w->pending, 0, sizeof(w->pending));
	w->first_failure_ns = w->kept_failure_ns = NEVER;
	w->retry_failed = false;
	w->term = 0;
	checker_trouble(in);
	w->refused_lease = 0;
	w->newest_id = w->renewal_id = 0;
	/*
	 * What is known of etcd's history lives as long as the postmaster.  A process that
	 * died in the middle of a call may not have used the last answer.
	 */
	if (in->next_start != SHARED_AFTER_CRASH)
		w->kept_revision = w->old_revision = 0;
	w->seen_revision = w->kept_revision;
}

/* Checks that a reply other than "done" is true. */
static void
check_reply(const Instance *in, const Ticket *ticket, ElectionReply reply)
{
	const ElectionView *view = &in->views[ticket->slot];
	bool		wrong = false;

	switch (reply)
	{
		case ELECTION_DONE:
			break;
		case ELECTION_NOTHING_TO_DO:
			/* its deadline may have passed in the drain of a resignation before */
			wrong = ticket->kind == TICKET_PROCLAIM ||
				(ticket->kind == TICKET_RESIGN && ticket->create_revision != 0 &&
				 view->state != ELECTION_LEAVING);
			break;
		case ELECTION_NOT_ELIGIBLE:
			wrong = ticket->kind != TICKET_CAMPAIGN || in->config.eligible;
			break;
		case ELECTION_REFUSED:
			wrong = ticket->kind != TICKET_CAMPAIGN || in->config.timeline == 0;
			break;
		case ELECTION_NOT_CANDIDATE:
			wrong = ticket->kind != TICKET_PROCLAIM ||
				(ticket->create_revision != 0 && view->create_revision == ticket->create_revision &&
				 in->reason == ELECTION_NO_REASON && store_find(bytes_of(ticket->key)) != NULL &&
				 leads(view));
			break;
		case ELECTION_CANCELLED:
			wrong = (ticket->kind != TICKET_RESIGN && ticket->kind != TICKET_TRANSFER) || view->deadline_ns == 0;
			break;
		case ELECTION_NO_CONTACT:
			/*
			 * or the history has changed, or the rights were missing while it waited; the
			 * instance may have been stopped since
			 */
			wrong = ticket->kind == TICKET_VERIFY ||
				(watchmen[in->number].connected && election_cluster_id(in->core) != 0 &&
				 !rights_missed_since(election_number(view->name),
									  ticket->since_ns - 2 * plan_longest_ttl_s() * SECOND));
			break;
		case ELECTION_FAILED:
		case ELECTION_NOT_LEADER:
		case ELECTION_NO_SUCH_CANDIDATE:
		case ELECTION_AMBIGUOUS_CANDIDATE:
		case ELECTION_FOREIGN_CANDIDATE:
		case ELECTION_TOO_MANY_CANDIDATES:
			wrong = ticket->kind != TICKET_TRANSFER;
			break;
	}
	if (wrong)
		fail_run("%s gives a reply that is not so", in->name);
}

/* The instance that has made the key; NULL: another program has. */
static const Instance *
find_owner(int key)
{
	for (int i = 0; i < ninstances; i++)
	{
		const Watchman *w = &watchmen[i];

		for (int k = 0; k < w->nown && k < OWN_KEYS; k++)
		{
			if (w->own_keys[k] == key)
				return &instances[i];
		}
	}
	return NULL;
}

/* Has the key had that value at some time since that revision? */
static bool
has_had_value(int key, const char *value, int64_t since_revision)
{
	for (int v = store_key(key)->last_version; v >= 0; v = store_version(v)->previous)
	{
		if (!store_version(v)->deleted && is_value(store_version(v)->value, value))
			return true;
		if (store_version(v)->revision <= since_revision)
			return false;
	}
	return false;
}

/* A target that has its key at the head of the queue, and has not led since a command. */
typedef struct Target
{
	const Instance *in;
	uint32_t	life;
	int			e;
	int64_t		since_ns;
} Target;

static void
check_target_leads(void *subject, uint64_t tag)
{
	const Target *target = subject;
	const Instance *in = target->in;

	if (in->life == target->life && !in->stopping && elected_ns[in->number][target->e] < target->since_ns &&
		!checker_may_lose(in) && !rights_missed_since(target->e, target->since_ns))
		fail_run("%s was to lead %s by a hand-over that is done, and has not led since", in->name,
				 election_name(target->e));
}

/*
 * The key of the target was the first since the command, and its owner led.  It may
 * first write its key for another reason, and then lead.
 */
static void
check_target(const Instance *in, const Ticket *ticket)
{
	int			e = election_number(in->views[ticket->slot].name);
	const Instance *late = NULL;

	/* the target may have been the instance itself */
	if (e < 0 || instance_leads(in, ticket->slot))
		return;
	for (const Span *span = spans[e]; span != NULL && span->to_ns >= ticket->since_ns; span = span->older)
	{
		const Instance *owner;

		if (span->create_revision == 0 || !has_had_value(span->key, ticket->value, ticket->revision))
			continue;
		owner = find_owner(span->key);
		if (owner == NULL || owner == in || elected_ns[owner->number][e] >= ticket->since_ns)
			return;
		late = owner;
	}
	if (late == NULL)
		fail_run("%s has transferred %s to %s, whose key was not the first", in->name, election_name(e),
				 ticket->value);
	else
	{
		Target	   *target = run_alloc(sizeof(Target));

		target->in = late;
		target->life = late->life;
		target->e = e;
		target->since_ns = ticket->since_ns;
		events_after(plan_longest_ttl_s() * SECOND, check_target_leads, target, 0);
	}
}

/* What is shown after etcd_verify_leader() has been true at some time since it was called. */
static void
check_verified(const Instance *in, const Ticket *ticket)
{
	const ElectionView *view = &in->views[ticket->slot];
	int			e = election_number(view->name);
	bool		is_leader = instance_leads(in, ticket->slot);

	/* reads of the other instances may be stale */
	if (e < 0 || !(is_leader || (view->has_leader && plan.stale_reads == 0)))
		return;
	for (const Span *span = spans[e]; span != NULL && span->to_ns >= ticket->since_ns; span = span->older)
	{
		if (span->create_revision == (is_leader ? view->token : view->leader_revision))
			return;
	}
	fail_run("%s has verified that %s leads %s, which has not led since the call", in->name,
			 is_leader ? "it" : view->leader, view->name);
}

/* The key had that value at some time since the command. */
static void
check_proclaimed(const Instance *in, const Ticket *ticket)
{
	if (!has_had_value(store_intern(bytes_of(ticket->key)), ticket->value, ticket->revision))
		fail_run("%s has proclaimed \"%s\", but its key has not had that value since", in->name, ticket->value);
}

/* If the target's key is the first, the target has written it since the hand-over. */
static void
check_transferred(const Instance *in, const Ticket *ticket)
{
	int			e = election_number(in->views[ticket->slot].name);
	char		prefix[ELECTION_NAME_SIZE + 1];
	const Version *first;

	if (e < 0)
		return;
	make_prefix(prefix, e);
	first = store_first(prefix);
	for (int i = 0; first != NULL && i < ninstances; i++)
	{
		/* skips foreign candidates, and a target that was elected since the command */
		if (&instances[i] == in || strcmp(ticket->value, instances[i].name) != 0 ||
			!is_value(first->value, ticket->value) || elected_ns[i][e] >= ticket->since_ns)
			continue;
		for (int v = store_versions() - 1; v >= 0 && store_version(v)->revision >= first->revision; v--)
		{
			if (store_version(v)->revision == first->revision && store_version(v)->deleted)
				fail_run("%s has transferred %s to %s, which does not know it yet", in->name,
						 election_name(e), ticket->value);
		}
	}
}

void
checker_replied(Instance *in, const Ticket *ticket, ElectionReply reply)
{
	const Version *own = store_find(bytes_of(ticket->key));

	if (ticket->kind == TICKET_CAMPAIGN && ticket->held_back && reply == ELECTION_DONE)
		watchmen[in->number].old_revision = 0;	/* an operator may allow an older token */
	check_reply(in, ticket, reply);
	useful_replied(in, ticket, reply);
	if (reply != ELECTION_DONE || restored_ns != NEVER)
		return;
	if (ticket->kind == TICKET_RESIGN && ticket->create_revision != 0 && own != NULL &&
		own->create_revision == ticket->create_revision)
		fail_run("%s has resigned, but its key stands", in->name);
	if (ticket->kind == TICKET_TRANSFER)
	{
		check_transferred(in, ticket);
		check_target(in, ticket);
	}
	if (ticket->kind == TICKET_PROCLAIM)
		check_proclaimed(in, ticket);
	if (ticket->kind == TICKET_VERIFY)
		check_verified(in, ticket);
}

/* ---- what happens to etcd ------------------------------------------------------------------------- */

/* By now every instance must know of the change, and the first must lead. */
static void
check_prompt(void *subject, uint64_t e)
{
	const Span *span = subject;
	char		prefix[ELECTION_NAME_SIZE + 1];
	const Version *first;

	if (spans[e] != span || now_ns >= plan.faults_end_ns)
		return;
	/*
	 * A key that may not be deleted is gone after a TTL.  No other one can be entered on
	 * its lease, until the next renewal has shown that this lease has to be replaced.
	 */
	if (rights_missed_since((int) e, now_ns - 2 * plan_longest_ttl_s() * SECOND) ||
		rights_changed_since(now_ns - PROMPT_NS - plan_longest_ttl_s() * SECOND * 2 / 3))
		return;
	make_prefix(prefix, (int) e);
	first = store_first(prefix);
	for (int i = 0; i < ninstances; i++)
	{
		const Instance *in = &instances[i];

		if (!in->running || in->stopping)
			continue;
		for (int slot = 0; slot < plan.slots; slot++)
		{
			const ElectionView *view = &in->views[slot];

			if (strcmp(view->name, election_name((int) e)) != 0 || view->state == ELECTION_LEAVING ||
				watchmen[i].told[slot].since_ns + PROMPT_NS > now_ns ||
				(watchmen[i].told[slot].transferred_ns != 0 &&
				 watchmen[i].told[slot].transferred_ns + PROMPT_NS > now_ns))
				continue;
			if (first == NULL ? view->has_leader :
				(!view->has_leader || view->leader_revision != first->create_revision ||
				 !is_value(first->value, view->leader)))
				fail_run("%s does not know of the leader of %s since %.6f", in->name, view->name,
						 span->from_ns / 1e9);
			if (first != NULL && bytes_equal(store_key(first->key)->name, bytes_of(view->key)) &&
				!instance_leads(in, slot))
				fail_run("%s is the first in %s since %.6f, but does not lead", in->name, view->name,
						 span->from_ns / 1e9);
		}
	}
}

static void
begin_span(int e, const Version *first)
{
	Span	   *span = spans[e];

	if (first == NULL ? span->create_revision == 0 :
		(span->create_revision == first->create_revision && bytes_equal(span->value, first->value)))
		return;
	span->to_ns = now_ns;
	span = run_alloc(sizeof(Span));
	span->older = spans[e];
	span->from_ns = now_ns;
	span->to_ns = NEVER;
	if (first != NULL)
	{
		span->create_revision = first->create_revision;
		span->value = first->value;
		span->key = first->key;
		primaries_first(e, store_key(first->key)->name);
	}
	spans[e] = span;
	if (plan.profile == PROFILE_CALM && !plan.is_slow)
		events_after(PROMPT_NS, check_prompt, span, (uint64_t) e);
}

static void
begin_spans(void)
{
	for (int e = 0; e < plan.nelections; e++)
	{
		char		prefix[ELECTION_NAME_SIZE + 1];

		make_prefix(prefix, e);
		begin_span(e, store_first(prefix));
	}
}

static const char *
cause_name(Cause cause)
{
	static const char *const names[] = {
		"by a client", "by a foreign candidate", "for its lease has expired",
		"by a woken leader", "by an operator"
	};

	return names[cause];
}

/*
 * A hand-over changes keys of other instances.  It deletes only keys of this
 * extension.  After it the target's key is the first, and no key behind it was
 * deleted.
 */
static void
check_other_key(const Version *version)
{
	EtcdBytes	name = store_key(version->key)->name;
	size_t		suffix = strlen(ELECTION_KEY_SUFFIX);
	char		prefix[ELECTION_NAME_SIZE + 1];
	const Version *first;

	if (version->deleted)
	{
		if (name.len < suffix || memcmp(name.data + name.len - suffix, ELECTION_KEY_SUFFIX, suffix) != 0)
			fail_run("a key of another program is deleted");
		return;
	}
	/* a hand-over deletes the own key first, and writes the target's last */
	for (int e = 0; e < plan.nelections; e++)
	{
		make_prefix(prefix, e);
		if (name.len < strlen(prefix) || memcmp(name.data, prefix, strlen(prefix)) != 0)
			continue;
		first = store_first(prefix);
		for (int v = store_versions() - 1; v >= 0 && store_version(v)->revision == version->revision; v--)
		{
			const Version *other = store_version(v);

			if (!other->deleted || store_key(other->key)->name.len < strlen(prefix) ||
				memcmp(store_key(other->key)->name.data, prefix, strlen(prefix)) != 0)
				continue;
			/* etcd has put back a key that was deleted when the hand-over was prepared */
			if (first != NULL && first->key != version->key && first->create_revision <= undone_revision)
				continue;
			if (first == NULL || first->key != version->key)
				fail_run("after a hand-over in %s its target is not the first", election_name(e));
			else if (other->create_revision > version->create_revision)
				fail_run("a hand-over in %s deletes a key that is behind its target's", election_name(e));
		}
	}
}

/*
 * A key that is put on another lease keeps its value.  A revision that etcd gives a second
 * time, after it was put back, may be taken for the first one.
 */
static void
check_move(const Version *version, EtcdBytes name)
{
	const Version *old = version->previous >= 0 ? store_version(version->previous) : NULL;

	if (version->cause == BY_CLIENT && !version->deleted && old != NULL && !old->deleted &&
		old->revision > undone_revision && old->lease != version->lease && !bytes_equal(old->value, version->value))
		fail_run("%.*s was put on another lease with another value", (int) name.len, name.data);
}

void
checker_changed(const Version *version)
{
	EtcdBytes	name = store_key(version->key)->name;

	trace("etcd", "revision %" PRId64 ": %s %.*s %s, lease %" PRIx64, version->revision,
		  version->deleted ? "DELETE" : "PUT", (int) name.len, name.data, cause_name(version->cause),
		  version->lease);
	if (version->cause == BY_CLIENT)
		check_other_key(version);
	if (version->cause == BY_OPERATOR)
	{
		Excuse	   *excuse = run_alloc(sizeof(Excuse));

		excuse->key = version->key;
		excuse->create_revision = version->create_revision;
		excuse->revision = version->revision;
		excuse->since_ns = now_ns;
		excuse->next = excuses;
		excuses = excuse;
	}
	check_move(version, name);
	useful_changed(version);
	begin_spans();
	for (int i = 0; i < ninstances; i++)
	{
		for (int slot = 0; slot < plan.slots; slot++)
		{
			if (instances[i].views[slot].deadline_ns != 0 && instance_leads(&instances[i], slot) &&
				bytes_equal(bytes_of(instances[i].views[slot].key), name))
				check_leader(&instances[i], slot);
		}
	}
}

/*
 * Exclusion has an exception: an instance that leads when etcd is put back may
 * lead until its deadline.
 */
void
checker_history_ends(void)
{
	for (int i = 0; i < ninstances; i++)
	{
		Watchman   *w = &watchmen[i];
		int64_t		seen_revision = instances[i].running ? w->seen_revision : w->kept_revision;

		if (seen_revision > w->old_revision)
			w->old_revision = seen_revision;
		for (int slot = 0; slot < plan.slots; slot++)
		{
			const ElectionView *view = &instances[i].views[slot];
			Excuse	   *excuse;

			if (view->key[0] == '\0')
				continue;
			excuse = run_alloc(sizeof(Excuse));
			excuse->key = store_intern(bytes_of(view->key));
			excuse->create_revision = view->create_revision;
			excuse->revision = INT64_MAX;
			excuse->since_ns = now_ns;
			excuse->next = excuses;
			excuses = excuse;
		}
	}
	undone_revision = store_revision();
	memset(last_token, 0, sizeof(last_token));
	memset(highest_announced, 0, sizeof(highest_announced));
}

void
checker_history_begins(void)
{
	restored_revision = store_revision();
	restored_ns = now_ns;
	useful_restored();
	begin_spans();
}

/* ---- the end -------------------------------------------------------------------------------------- */

/*
 * The time that recovery may take after the faults.  It covers leases that
 * etcd's new leader extends (a TTL and an election timeout) and revokes late, an
 * instance that believes an old history (a TTL), a silent watch until the next
 * renewal (a third of a TTL), elections of etcd, and postponements of a second.
 */
int64_t
checker_recovery_bound_ns(void)
{
	int64_t		ttl_ns = plan_longest_ttl_s() * SECOND;

	return 3 * ttl_ns + ttl_ns / 3 + 4 * plan.election_timeout_ns + plan.expiry_lateness_ns + 5 * SECOND;
}

static bool
wants_to_lead(const Instance *in, int e)
{
	if (!in->running || !in->config.eligible || shared_stays_out(in, election_name(e)) ||
		primaries_stay_out(in, election_name(e)))
		return false;
	for (int i = 0; i < in->config.nelections; i++)
	{
		if (strcmp(in->config.elections[i], election_name(e)) == 0)
			return true;
	}
	return false;
}

static void
check_settled(const Instance *in, const Version *first, int e)
{
	for (int slot = 0; slot < plan.slots; slot++)
	{
		const ElectionView *view = &in->views[slot];

		if (strcmp(view->name, election_name(e)) != 0)
			continue;
		if (view->state != ELECTION_LEADING && view->state != ELECTION_WAITING &&
			view->state != ELECTION_OBSERVING && view->state != ELECTION_RESIGNED &&
			view->state != ELECTION_SECOND_PRIMARY &&
			!(view->state == ELECTION_JOINING && primaries_ask_long(in)))
			fail_run("%s is still %s in %s", in->name, election_state_name(view->state), view->name);
		if (wants_to_lead(in, e) != (view->role != ELECTION_OBSERVER))
			fail_run("%s is %s in %s, against its settings", in->name, election_state_name(view->state), view->name);
		if (view->has_leader != (first != NULL) ||
			(first != NULL && (view->leader_revision != first->create_revision ||
							   !is_value(first->value, view->leader))))
			fail_run("%s does not know the leader of %s", in->name, view->name);
		return;
	}
	fail_run("%s has not taken up %s", in->name, election_name(e));
}

void
checker_recovered(void)
{
	for (int e = 0; e < plan.nelections; e++)
	{
		char		prefix[ELECTION_NAME_SIZE + 1];
		int			nwilling = 0;
		int			nleaders = 0;

		make_prefix(prefix, e);
		for (int i = 0; i < ninstances; i++)
		{
			nwilling += wants_to_lead(&instances[i], e);
			for (int slot = 0; slot < plan.slots; slot++)
				nleaders += strcmp(instances[i].views[slot].name, election_name(e)) == 0 &&
					instance_leads(&instances[i], slot);
		}
		if (nleaders != (nwilling > 0))
			fail_run("%d leaders of %s, %d willing, though faults have ended long ago", nleaders,
					 election_name(e), nwilling);
		for (int i = 0; i < ninstances; i++)
		{
			for (int k = 0; k < instances[i].config.nelections; k++)
			{
				if (instances[i].running && strcmp(instances[i].config.elections[k], election_name(e)) == 0)
					check_settled(&instances[i], store_first(prefix), e);
			}
		}
	}
	for (int e = 0; e < plan.nelections; e++)
		primaries_recovered(e);
	for (int i = 0; i < ninstances; i++)
	{
		for (int t = 0; t < MAX_TICKETS; t++)
		{
			if (instances[i].tickets[t].kind != TICKET_NONE)
				fail_run("%s has not answered a command", instances[i].name);
		}
	}
}

void
checker_rest(void)
{
	resting = true;
	rest_events = 0;
	rest_ns = run_alloc((size_t) ninstances * sizeof(int64_t));
	for (int i = 0; i < ninstances; i++)
	{
		watchmen[i].nsent = 0;
		rest_ns[i] = instance_clock(&instances[i]);
	}
}

void
checker_kept(void)
{
	resting = false;
	if (rest_events > 0)
		fail_run("%d events were announced though nothing happened", rest_events);
}

/*
 * Every key and every lease belongs to an instance that shows it.  No event was
 * announced, and no requests were sent except those of the renewals.
 */
void
checker_rested(void)
{
	checker_kept();
	for (int i = 0; i < store_live_count(); i++)
	{
		const Version *version = store_live(i);
		EtcdBytes	name = store_key(version->key)->name;
		bool		known = memchr(name.data, '/', name.len) == NULL;

		for (int j = 0; j < ninstances; j++)
		{
			for (int slot = 0; slot < plan.slots; slot++)
				known |= bytes_equal(bytes_of(instances[j].views[slot].key), name) &&
					instances[j].views[slot].create_revision == version->create_revision;
		}
		if (!known)
			fail_run("the key %.*s is left over", (int) name.len, name.data);
	}
	for (int i = 0; i < store_leases(); i++)
	{
		const StoreLease *lease = store_lease(i);
		bool		known = lease->revoked_index != 0;

		for (int j = 0; j < ninstances; j++)
		{
			for (int slot = 0; slot < plan.slots; slot++)
				known |= instances[j].views[slot].lease == lease->id ||
					(instances[j].views[slot].state == ELECTION_JOINING && primaries_ask_long(&instances[j]));
		}
		if (!known)
			fail_run("the lease %" PRIx64 " is left over", lease->id);
	}
	for (int i = 0; i < ninstances; i++)
	{
		int64_t		nrenewals;
		int			per_renewal;

		if (!instances[i].running)
			continue;
		nrenewals = 3 * (instance_clock(&instances[i]) - rest_ns[i]) / election_ttl_ns(instances[i].core, instances[i].last_clock_ns) + 2;
		/* a leader with a list of preferred nodes reads the queue of each election with each renewal */
		per_renewal = 2 + (instances[i].config.npreferred > 0 ? plan.slots : 0);
		/* a primary may find now that another one lives: a question, and the reads that follow */
		if (watchmen[i].nsent > per_renewal * nrenewals + (primaries_may_yield(&instances[i]) ? 6 : 2))
			fail_run("%s sent %d requests at rest, for %" PRId64 " renewals", instances[i].name,
					 watchmen[i].nsent, nrenewals);
	}
}

void
checker_all_gone(void)
{
	for (int i = 0; i < store_leases(); i++)
	{
		if (store_lease(i)->revoked_index == 0)
			fail_run("the lease %" PRIx64 " outlives every instance", store_lease(i)->id);
	}
	for (int i = 0; i < ninstances; i++)
	{
		if (instances[i].running)
			fail_run("%s has not stopped", instances[i].name);
	}
}
