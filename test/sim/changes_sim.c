/*-------------------------------------------------------------------------
 *
 * changes_sim.c
 *	  Simulates the changes of keys of other programs: src/protocol/changes.c with a
 *	  model of etcd's watches, under faults.
 *
 * This model of etcd is small, and separate from that of the other runs:
 *
 * - a list of changes of three prefixes; a transaction makes several changes at
 *   one revision, and some changes are too large to be read
 * - linearizable reads, which take time and fail
 * - one watch stream; each watch catches up by itself, and the member may lag
 *   behind; a response has whole revisions, or is sent in fragments
 * - progress notifications of quiet watches
 * - the header of a response has the revision of the member, which may be above
 *   that of its events
 * - compaction, and an etcd that is put back to an earlier state or replaced
 * - a stream that leads to a member of another cluster
 *
 * What has to hold for each prefix:
 *
 * - Changes are announced in etcd's order, and none is left out or announced
 *   twice.  There are two exceptions: after a gap, changes from before the gap
 *   may be left out; after etcd was put back, a change may come again.
 * - A gap is announced before the first change, and after etcd was put back or
 *   replaced.  There is no other gap, unless changes were compacted away or
 *   cannot be read, or another cluster has answered.
 * - After the faults every change is announced, and then nothing more.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "protocol/changes.h"
#include "plan.h"
#include "reached.h"
#include "run.h"

#define NPREFIXES		3
#define MAX_CHANGES		4000
#define INTERVAL_NS		SECOND
#define FAULTS_END_NS	(40 * SECOND)
#define RECOVERY_NS		(60 * SECOND)
#define REST_NS			(20 * SECOND)

/* The difference of the cluster's IDs. */
#define OTHER_CLUSTER	1000

static const char *const prefix_names[NPREFIXES] = {"a/", "b/", "flags/c/"};

typedef struct Change
{
	int			prefix;
	int64_t		revision;
	bool		is_delete;
	bool		poison;			/* too large to be read */
	char		key[16];
} Change;

/* This simulator has no bytes; client.c of the others reads this variable. */
bool		passes_structures;

/* etcd */
static Change changes[MAX_CHANGES];
static int	nchanges;
static int64_t revision;
static int64_t compacted;
static uint64_t cluster_id;
static uint64_t term;
static bool refuses;			/* etcd answers "permission denied" */
static bool over;				/* the faults have ended */
static bool quiet;				/* no key is written any more */
static bool at_rest;			/* every change must have been announced */

/* the client */
static Changes *core;
static bool configured[NPREFIXES];
static int	failure_rate;
static int	nreads;

/* A watch of the stream that is open. */
typedef struct Watcher
{
	int			prefix;
	int64_t		next_revision;	/* of the next event to send */
	int			next_change;	/* the next change of a split response; -1: none is split */
	int64_t		response_end;	/* the last revision of a split response */
	int64_t		dropped;		/* deletions of this revision are not sent */
	bool		created;
} Watcher;

static uint64_t stream;			/* number of the stream that is open; 0: none */
static uint64_t streams_opened;
static Watcher watchers[NPREFIXES];
static int	nwatchers;
static int64_t lag;				/* the member is that many revisions behind */
static bool astray;				/* the member belongs to another cluster */

/* what was announced of each prefix */
static struct
{
	int			last;			/* the newest change that was announced; -1: none */
	int			floor;			/* changes up to this one may be left out */
	bool		needs_gap;
}			told[NPREFIXES];
static bool restored;			/* etcd was put back, and no gap was announced since */
static int	nrestores;
static bool gap_is_due;			/* something has happened that may cost changes */

/* ---- the checker ------------------------------------------------------------- */

static int
next_of_prefix(int prefix, int after)
{
	for (int i = after + 1; i < nchanges; i++)
	{
		if (changes[i].prefix == prefix)
			return i;
	}
	return -1;
}

static void
check_gap(void)
{
	trace("", "gap");
	if (at_rest)
		fail_run("a gap at rest");
	if (!gap_is_due)
		fail_run("a gap without need");
	gap_is_due = false;
	restored = false;
	for (int p = 0; p < NPREFIXES; p++)
	{
		told[p].floor = nchanges - 1;
		told[p].needs_gap = false;
	}
}

static void
check_change(const EtcdWatchEvent *event)
{
	int			found = -1;
	int			p;

	trace("", "%.*s at %" PRId64, (int) event->kv.key.len, event->kv.key.data, event->kv.mod_revision);
	/* etcd was put back, and the core has not learned of that yet */
	if (restored)
		return;
	for (int i = 0; i < nchanges && found < 0; i++)
	{
		if (changes[i].revision == event->kv.mod_revision && strlen(changes[i].key) == event->kv.key.len &&
			memcmp(changes[i].key, event->kv.key.data, event->kv.key.len) == 0)
			found = i;
	}
	if (found < 0)
	{
		fail_run("%.*s at %" PRId64 " is no change", (int) event->kv.key.len, event->kv.key.data,
				 event->kv.mod_revision);
		return;
	}
	p = changes[found].prefix;
	if (!configured[p] || told[p].needs_gap)
		fail_run("%s: a change without a gap before", prefix_names[p]);
	else if (at_rest)
		fail_run("%s: a change at rest", prefix_names[p]);
	else if (changes[found].is_delete != event->is_delete)
		fail_run("%s: a put for a deletion", prefix_names[p]);
	else if (found <= told[p].last)
		fail_run("%s: change %d after change %d", prefix_names[p], found, told[p].last);
	else
	{
		/* changes above the floor must not be missing */
		int			missing = next_of_prefix(p, told[p].last < told[p].floor ? told[p].floor : told[p].last);

		if (missing >= 0 && missing < found)
			fail_run("%s: change %d is missing before %d", prefix_names[p], missing, found);
	}
	told[p].last = found;
	if (told[p].floor < found)
		told[p].floor = found;
}

static void
check_all_told(void)
{
	if (restored)
		fail_run("etcd was put back, and there was no gap");
	for (int p = 0; p < NPREFIXES; p++)
	{
		int			from = told[p].last < told[p].floor ? told[p].floor : told[p].last;
		int			missing = next_of_prefix(p, from);

		if (!configured[p])
			continue;
		if (told[p].needs_gap)
			fail_run("%s: there was no gap", prefix_names[p]);
		else if (missing >= 0)
			fail_run("%s: change %d is never told", prefix_names[p], missing);
	}
}

/* ---- etcd ---------------------------------------------------------------------- */

static void
write_changes(void)
{
	int			n = random_chance(2000) ? 1 + random_below(12) : 1;

	if (nchanges + n > MAX_CHANGES)
		return;
	revision++;
	for (int i = 0; i < n; i++)
	{
		Change	   *change = &changes[nchanges++];

		/* one key is written once in a transaction */
		change->prefix = random_below(NPREFIXES);
		change->revision = revision;
		change->is_delete = random_chance(3000);
		change->poison = !over && random_chance(30);
		snprintf(change->key, sizeof(change->key), "%s%d", prefix_names[change->prefix], i);
	}
}

static void
end_stream(EtcdOutcome outcome)
{
	if (stream == 0)
		return;
	trace("", "the stream ends%s", outcome == ETCD_GARBAGE ? ": too large" : "");
	stream = 0;
	changes_watch_ended(core, now_ns, outcome);
}

/* Puts etcd back, or replaces it. */
static void
restore(void)
{
	int64_t		back = random_between(compacted, revision);

	revision = back < 2 ? 2 : back;
	while (nchanges > 0 && changes[nchanges - 1].revision > revision)
		nchanges--;
	/* a restored etcd has another cluster id, or starts with a lower term */
	if (term == 1 || random_chance(5000))
		cluster_id++;
	else
		term--;
	if (random_chance(5000))
		revision += random_below(100);
	trace("", "etcd is put back to revision %" PRId64 ", cluster %" PRIu64 ", term %" PRIu64,
		  revision, cluster_id, term);
	restored = gap_is_due = true;
	nrestores++;
	for (int p = 0; p < NPREFIXES; p++)
		told[p].last = told[p].floor = -1;
	end_stream(ETCD_NO_ANSWER);
}

static EtcdHeader
make_header(int64_t header_revision)
{
	return (EtcdHeader) {.cluster_id = cluster_id,.member_id = 1,.revision = header_revision,.raft_term = term};
}

/* ---- the stream ------------------------------------------------------------------ */

static void
tell(const Watcher *watcher, EtcdWatchFrame *frame, int64_t header_revision)
{
	frame->outcome = ETCD_ANSWERED;
	frame->watch_id = watcher - watchers + 1;
	frame->header = make_header(header_revision);
	if (astray)
	{
		frame->header.cluster_id += OTHER_CLUSTER;
		gap_is_due = true;
	}
	changes_watched(core, now_ns, frame);
}

/* Sends a response or a fragment of one; false if there is no change to send. */
static bool
tell_changes(Watcher *watcher, int64_t applied)
{
	EtcdWatchEvent events[64];
	EtcdWatchFrame frame = {.events = events};
	int64_t		end = watcher->next_change >= 0 ? watcher->response_end :
		random_chance(5000) ? applied :
		random_chance(3000) ? watcher->next_revision : random_between(watcher->next_revision, applied);
	int			room = random_chance(4000) ? 1 + random_below(4) : 64;
	int			i = watcher->next_change >= 0 ? watcher->next_change : 0;

	for (; i < nchanges && changes[i].revision <= end; i++)
	{
		EtcdWatchEvent *event = &events[frame.nevents];

		if (changes[i].prefix != watcher->prefix || changes[i].revision < watcher->next_revision ||
			(changes[i].is_delete && changes[i].revision == watcher->dropped))
			continue;
		if (frame.nevents == room)
			break;
		if (changes[i].poison)
		{
			gap_is_due = true;
			end_stream(ETCD_GARBAGE);
			return true;
		}
		memset(event, 0, sizeof(*event));
		event->is_delete = changes[i].is_delete;
		event->kv.key = (EtcdBytes) {changes[i].key, strlen(changes[i].key)};
		event->kv.mod_revision = changes[i].revision;
		frame.nevents++;
	}
	frame.fragment = i < nchanges && changes[i].revision <= end;
	watcher->next_change = frame.fragment ? i : -1;
	watcher->response_end = end;
	if (!frame.fragment)
		watcher->next_revision = end + 1;
	if (frame.nevents == 0)
		return false;
	tell(watcher, &frame, applied);
	return true;
}

/* Sends a change that was never made here. */
static void
tell_stray_change(Watcher *watcher)
{
	EtcdWatchEvent event = {.kv.mod_revision = revision + 1};
	EtcdWatchFrame frame = {.events = &event,.nevents = 1};
	char		key[16];

	snprintf(key, sizeof(key), "%sstray", prefix_names[watcher->prefix]);
	event.kv.key = (EtcdBytes) {key, strlen(key)};
	tell(watcher, &frame, revision + 1);
}

static void
advance_watcher(Watcher *watcher)
{
	EtcdWatchFrame frame = {0};
	int64_t		applied = over || lag > revision ? revision : revision - lag;

	if (!watcher->created)
	{
		watcher->created = true;
		frame.created = true;

		/*
		 * A compaction drops the deletions of its own revision, too, and yet
		 * etcd accepts a watch from there (etcd #18089).
		 */
		watcher->dropped = compacted;
		tell(watcher, &frame, applied);
	}
	else if (astray)
		tell_stray_change(watcher);
	else if (watcher->next_change < 0 && watcher->next_revision < compacted)
	{
		gap_is_due = true;
		frame.canceled = true;
		frame.compact_revision = compacted;
		trace("", "%s is compacted away", prefix_names[watcher->prefix]);
		tell(watcher, &frame, 0);
	}
	else if (watcher->next_change < 0 && watcher->next_revision > applied)
	{
		/* without events, etcd sends a progress notification now and then */
		if (random_chance(500))
			tell(watcher, &frame, applied);
	}
	else
		(void) tell_changes(watcher, applied);
}

static void
advance_stream(void *subject, uint64_t number)
{
	if (number != stream)
		return;
	for (int i = 0; i < nwatchers && number == stream; i++)
	{
		if (random_chance(6000))
			advance_watcher(&watchers[i]);
	}
	events_after(random_between(MS, 100 * MS), advance_stream, NULL, number);
}

/* ---- outputs of the core ------------------------------------------------------------ */

static void
port_watch(void *ctx, const EtcdWatch *watches, int n)
{
	stream = n > 0 ? ++streams_opened : 0;
	nwatchers = n;
	lag = random_chance(2000) ? random_below(20) : 0;
	astray = !over && random_chance(200);
	for (int i = 0; i < n; i++)
	{
		watchers[i] = (Watcher) {.next_revision = watches[i].start_revision,.next_change = -1};
		for (int p = 0; p < NPREFIXES; p++)
		{
			if (strlen(prefix_names[p]) == watches[i].key.len &&
				memcmp(prefix_names[p], watches[i].key.data, watches[i].key.len) == 0)
				watchers[i].prefix = p;
		}
		if (!watches[i].fragment || !watches[i].progress_notify)
			fail_run("a watch without fragments, or progress");
		trace("", "watches %s from %" PRId64, prefix_names[watchers[i].prefix], watches[i].start_revision);
	}
	if (n > 0)
		events_after(random_between(MS, 50 * MS), advance_stream, NULL, stream);
}

static void
port_announce(void *ctx, const EtcdWatchEvent *event)
{
	if (event == NULL)
		check_gap();
	else
		check_change(event);
}

static uint64_t
port_random(void *ctx)
{
	return random_next();
}

/*
 * All members are stopped before etcd is put back.  This closes all
 * connections, so that an answer from before does not arrive.
 */
static void
arrive(void *subject, uint64_t id)
{
	EtcdAnswer *answer = subject;

	if (answer->endpoint != nrestores)
		answer->outcome = ETCD_NO_ANSWER;
	changes_receive(core, now_ns, id, answer);
}

static void
serve(void *subject, uint64_t id)
{
	EtcdAnswer *answer = subject;

	answer->endpoint = nrestores;
	if (!over && random_chance(failure_rate))
		answer->outcome = ETCD_NO_ANSWER;
	else if (refuses)
	{
		answer->outcome = ETCD_REFUSED;
		answer->code = ETCD_CODE_PERMISSION_DENIED;
	}
	else
		answer->header = make_header(revision);
	events_after(random_between(MS, random_chance(2000) ? 2 * SECOND : 20 * MS), arrive, answer, id);
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	nreads++;
	for (int i = 0; i < request->nsuccess; i++)
	{
		if (request->success[i].kind != ETCD_OP_RANGE)
			fail_run("a write");
	}
	events_after(random_between(MS, random_chance(2000) ? 2 * SECOND : 20 * MS), serve,
				 run_alloc(sizeof(EtcdAnswer)), id);
}

/* ---- writes and faults ------------------------------------------------------------------ */

static void
configure(void)
{
	const char *names[NPREFIXES];
	int			n = 0;

	for (int p = 0; p < NPREFIXES; p++)
	{
		bool		wanted = over || random_chance(8000);

		if (wanted)
			names[n++] = prefix_names[p];
		if (wanted && !configured[p])
			told[p].needs_gap = gap_is_due = true;
		configured[p] = wanted;
	}
	trace("", "%d prefixes", n);
	changes_configure(core, now_ns, names, n, INTERVAL_NS);
}

static void
tick(void *subject, uint64_t tag)
{
	changes_tick(core, now_ns);
	if (!over)
	{
		if (random_chance(4000))
			write_changes();
		if (random_chance(failure_rate / 4))
			end_stream(ETCD_NO_ANSWER);
		if (random_chance(100))
			compacted = random_between(revision - compacted > 3 && random_chance(7000) ? revision - 3 : compacted, revision);
		if (random_chance(20))
			restore();
		if (random_chance(20))
			configure();
		if (random_chance(20))
			refuses = !refuses;
	}
	else if (!quiet && random_chance(500))
		write_changes();
	events_after(20 * MS, tick, NULL, 0);
}

static bool
run_on(int64_t duration_ns)
{
	int64_t		until_ns = now_ns + duration_ns;

	while (!run_failed() && events_step(until_ns))
		;
	return !run_failed();
}

bool
run_seed(uint64_t seed)
{
	static const ChangesPort port = {
		.send = port_send,.watch = port_watch,.announce = port_announce,.random = port_random
	};

	verdict_reset();
	events_reset();
	random_seed(seed);
	nchanges = nreads = nrestores = 0;
	revision = compacted = 1;
	cluster_id = 7;
	term = 2 + random_below(5);
	refuses = over = quiet = at_rest = restored = false;
	failure_rate = random_chance(3000) ? 0 : random_below(1500);
	stream = 0;
	gap_is_due = false;
	for (int p = 0; p < NPREFIXES; p++)
	{
		configured[p] = false;
		told[p].last = told[p].floor = -1;
	}
	core = changes_create(&port);
	configure();
	events_after(0, tick, NULL, 0);

	(void) run_on(FAULTS_END_NS);
	over = true;
	refuses = false;
	configure();
	(void) run_on(RECOVERY_NS);
	quiet = true;
	if (run_on(5 * SECOND))
		check_all_told();
	at_rest = true;
	nreads = 0;
	if (run_on(REST_NS) && nreads > REST_NS / INTERVAL_NS + 1)
		fail_run("%d reads at rest", nreads);
	changes_free(core);
	run_free_all();
	return !run_failed();
}

const char *
profile_name(Profile profile)
{
	return "changes";
}

bool
scale_write_table(void)
{
	return false;
}

bool
run_frozen(uint64_t seed)
{
	return run_seed(seed);
}

/* It has no list of states. */
void
reached_begin(void)
{
}

int
reached_report(void)
{
	return 0;
}
