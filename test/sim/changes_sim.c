/*-------------------------------------------------------------------------
 *
 * changes_sim.c
 *	  Simulates the changes of keys of other programs: src/protocol/changes.c with a
 *	  model of etcd's watches, under faults.
 *
 * etcd's keys are those of store.c.  This file adds:
 *
 * - transactions that make several changes at one revision, some of them too
 *	 large to be read
 * - linearizable reads, which take time and fail
 * - one watch stream; each watch catches up by itself, and the member may lag
 *	 behind; a response has whole revisions, or is sent in fragments
 * - progress notifications of quiet watches
 * - the header of a response has the revision of the member, which may be above
 *	 that of its events
 * - compaction, and an etcd that is put back to an earlier state or replaced
 * - a stream that leads to a member of another cluster
 * - frames and answers that no etcd would send
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
 * After a wrong frame or answer less holds: the changes that are announced of a
 * prefix belong to it, their revisions do not decrease between two gaps, and after
 * the faults new changes are announced.
 *
 * Always: only reads are sent; the number of reads and streams is limited, by time
 * and by the number of faults; the core is not due again and again at one time.
 *
 * The random numbers come from a seed, or from the input of a fuzzer
 * (test/fuzz/changes_fuzzer.c).
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "protocol/changes.h"
#include "changes_sim.h"
#include "plan.h"
#include "run.h"
#include "store.h"

#define NPREFIXES		4
#define MAX_EVENTS		64		/* of a frame */
#define INTERVAL_NS		SECOND
#define FAULTS_END_NS	(40 * SECOND)
#define RECOVERY_NS		(60 * SECOND)
#define REST_NS			(20 * SECOND)

/* The difference of the cluster's IDs. */
#define OTHER_CLUSTER	1000

/* Allowed reads and streams: at first, in addition in each second, and for each fault. */
#define AT_FIRST		8
#define PER_SECOND		4
#define PER_FAULT		4

/* How often the core may be due again at the same time. */
#define MAX_TICKS_AT_ONCE	8

#define MAX_REVISION	(INT64_MAX / 2) /* etcd's own limit */

static const char *const prefix_names[NPREFIXES] = {"a/", "b/", "flags/c/", "a0"};

/* etcd; see store.c for the keys, and a change is a version there */
static uint64_t cluster_id;
static uint64_t term;
static bool refuses;			/* etcd answers "permission denied" */
static bool lies;				/* it also sends what no etcd would send */
static bool lied;
static bool over;				/* the faults have ended */
static bool quiet;				/* no key is written any more */
static bool at_rest;			/* every change must have been announced */

/* the client */
static Changes *core;
static bool configured[NPREFIXES];
static int	failure_rate;
static int	nreads;
static int64_t credit;			/* reads and streams that are still allowed, times SECOND */

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
static int64_t lag;				/* the member is that many entries of the log behind */
static bool astray;				/* the member belongs to another cluster */

/* what was announced of each prefix */
static struct
{
	int			last;			/* the newest change that was announced; -1: none */
	int			floor;			/* changes up to this one may be left out */
	bool		needs_gap;
	int64_t		revision;		/* of the last change since the gap */
	bool		heard;			/* a change was announced since the faults */
}			told[NPREFIXES];
static bool restored;			/* etcd was put back, and no gap was announced since */
static int	nrestores;
static bool gap_is_due;			/* something has happened that may cost changes */

/* ---- the checker ------------------------------------------------------------- */

static void
earn(int64_t n)
{
	credit += n * SECOND;
	if (credit > 100 * SECOND)
		credit = 100 * SECOND;
}

static void
spend(const char *what)
{
	credit -= SECOND;
	if (credit < 0)
		fail_run("too many %s", what);
}

/* The prefix of a key; -1: none. */
static int
prefix_of(EtcdBytes key)
{
	for (int p = 0; p < NPREFIXES; p++)
	{
		size_t		len = strlen(prefix_names[p]);

		if (key.len >= len && memcmp(key.data, prefix_names[p], len) == 0)
			return p;
	}
	return -1;
}

static EtcdBytes
name_of(const Version *version)
{
	return store_key(version->key)->name;
}

static int
next_of_prefix(int prefix, int after)
{
	for (int i = after + 1; i < store_versions(); i++)
	{
		if (prefix_of(name_of(store_version(i))) == prefix)
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
	if (!gap_is_due && !lied)
		fail_run("a gap without need");
	gap_is_due = false;
	restored = false;
	for (int p = 0; p < NPREFIXES; p++)
	{
		told[p].floor = store_versions() - 1;
		told[p].revision = 0;
		told[p].needs_gap = false;
	}
}

/* Checks that the event is the next change of its prefix, or another allowed one. */
static void
check_next(int p, const EtcdWatchEvent *event)
{
	int			owed = next_of_prefix(p, told[p].last < told[p].floor ? told[p].floor : told[p].last);
	int			found = -1;

	for (int i = store_first_version(event->kv.mod_revision);
		 i < store_versions() && store_version(i)->revision == event->kv.mod_revision; i++)
	{
		if (bytes_equal(name_of(store_version(i)), event->kv.key))
			found = i;
	}
	if (found < 0)
		fail_run("%.*s at %" PRId64 " is no change", (int) event->kv.key.len, event->kv.key.data,
				 event->kv.mod_revision);
	else if (store_version(found)->deleted != event->is_delete)
		fail_run("%s: a put for a deletion", prefix_names[p]);
	else if (found <= told[p].last)
		fail_run("%s: change %d after change %d", prefix_names[p], found, told[p].last);
	else if (owed >= 0 && owed < found)
		fail_run("%s: change %d is missing before %d", prefix_names[p], owed, found);
	told[p].last = found;
	if (told[p].floor < found)
		told[p].floor = found;
}

static void
check_change(const EtcdWatchEvent *event)
{
	int			p = prefix_of(event->kv.key);

	trace("", "%.*s at %" PRId64, (int) event->kv.key.len, event->kv.key.data, event->kv.mod_revision);
	if (p < 0 || !configured[p] || stream == 0)
	{
		fail_run("a change that nobody watches");
		return;
	}
	told[p].heard = true;
	if (event->kv.mod_revision < told[p].revision)
		fail_run("%s: revision %" PRId64 " after %" PRId64, prefix_names[p], event->kv.mod_revision,
				 told[p].revision);
	told[p].revision = event->kv.mod_revision;
	if (told[p].needs_gap)
		fail_run("%s: a change without a gap before", prefix_names[p]);
	else if (at_rest)
		fail_run("%s: a change at rest", prefix_names[p]);
	/* after etcd was put back, the core learns of that only with its next read */
	else if (!restored && !lied)
		check_next(p, event);
}

static void
check_all_told(void)
{
	if (restored && !lied)
		fail_run("etcd was put back, and there was no gap");
	for (int p = 0; p < NPREFIXES; p++)
	{
		int			missing = next_of_prefix(p, told[p].last < told[p].floor ? told[p].floor : told[p].last);

		if (told[p].needs_gap)
			fail_run("%s: there was no gap", prefix_names[p]);
		else if (!told[p].heard)
			fail_run("%s: nothing is told after the faults", prefix_names[p]);
		else if (missing >= 0 && !lied)
			fail_run("%s: change %d is never told", prefix_names[p], missing);
	}
}

/* ---- etcd ---------------------------------------------------------------------- */

/* The revision up to which etcd has compacted. */
static int64_t
compacted(void)
{
	return store_entry(store_index())->compacted;
}

/* A transaction of n changes.  It writes each key once. */
static void
write_keys(const EtcdOp *ops, int n)
{
	EtcdRequest request = {.kind = ETCD_TXN,.success = ops,.nsuccess = n};
	EtcdAnswer	answer;

	store_write(term, &request, BY_FOREIGN, &answer);
}

static void
write_changes(void)
{
	EtcdOp		ops[12] = {0};
	char		names[12][16];
	int			n = random_chance(2000) ? 1 + random_below(12) : 1;

	for (int i = 0; i < n; i++)
	{
		int			len = snprintf(names[i], sizeof(names[i]), "%s%d", prefix_names[random_below(NPREFIXES)], i);

		ops[i].kind = random_chance(3000) ? ETCD_OP_DELETE : ETCD_OP_PUT;
		ops[i].key = (EtcdBytes) {names[i], len};
		/* a value stands for one that is too large to be read */
		if (ops[i].kind == ETCD_OP_PUT && !over && random_chance(30))
			ops[i].value = (EtcdBytes) {"large", 5};
	}
	write_keys(ops, n);
}

/* Writes a key of each prefix, after the faults. */
static void
write_each(void)
{
	for (int p = 0; p < NPREFIXES; p++)
	{
		EtcdOp		put = {.kind = ETCD_OP_PUT,.key = {prefix_names[p], strlen(prefix_names[p])}};

		write_keys(&put, 1);
		told[p].heard = false;
	}
}

static void
end_stream(EtcdOutcome outcome)
{
	if (stream == 0)
		return;
	trace("", "the stream ends%s", outcome == ETCD_GARBAGE ? ": too large" : "");
	stream = 0;
	earn(PER_FAULT);
	changes_watch_ended(core, now_ns, outcome);
}

/* Puts etcd back, or replaces it.  Then it may get keys that nobody watches. */
static void
restore(void)
{
	EtcdOp		other = {.kind = ETCD_OP_PUT,.key = {"other", 5}};
	int64_t		first = store_index() > 10 ? store_index() - 10 : 0;

	store_restore(random_between(first, store_index()));
	/* a restored etcd has another cluster id, or starts with a lower term */
	if (term == 1 || random_chance(3000))
		cluster_id++;
	else
		term--;
	for (int n = random_chance(5000) ? random_below(100) : 0; n > 0; n--)
		write_keys(&other, 1);
	trace("", "etcd is put back to revision %" PRId64 ", cluster %" PRIu64 ", term %" PRIu64,
		  store_revision(), cluster_id, term);
	restored = gap_is_due = true;
	nrestores++;
	earn(PER_FAULT);
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
		earn(PER_FAULT);
	}
	changes_watched(core, now_ns, frame);
}

/* Sends a response or a fragment of one; false if there is no change to send. */
static bool
tell_changes(Watcher *watcher, int64_t applied)
{
	EtcdWatchEvent events[MAX_EVENTS];
	EtcdWatchFrame frame = {.events = events};
	int64_t		end = watcher->next_change >= 0 ? watcher->response_end :
		random_chance(5000) ? applied :
		random_chance(3000) ? watcher->next_revision : random_between(watcher->next_revision, applied);
	int			room = random_chance(4000) ? 1 + random_below(4) : MAX_EVENTS;
	int			i = watcher->next_change >= 0 ? watcher->next_change : store_first_version(watcher->next_revision);

	for (; i < store_versions() && store_version(i)->revision <= end; i++)
	{
		const Version *version = store_version(i);

		if (prefix_of(name_of(version)) != watcher->prefix || version->revision < watcher->next_revision ||
			(version->deleted && version->revision == watcher->dropped))
			continue;
		if (frame.nevents == room)
			break;
		if (version->value.len > 0)
		{
			gap_is_due = true;
			end_stream(ETCD_GARBAGE);
			return true;
		}
		events[frame.nevents++] = (EtcdWatchEvent) {.is_delete = version->deleted,
		.kv = {.key = name_of(version),.mod_revision = version->revision}};
	}
	frame.fragment = i < store_versions() && store_version(i)->revision <= end;
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
	EtcdWatchEvent event = {.kv.mod_revision = store_revision() + 1};
	EtcdWatchFrame frame = {.events = &event,.nevents = 1};
	char		key[16];

	snprintf(key, sizeof(key), "%sstray", prefix_names[watcher->prefix]);
	event.kv.key = (EtcdBytes) {key, strlen(key)};
	tell(watcher, &frame, store_revision() + 1);
}

/* A revision near the present one, or far from it. */
static int64_t
some_revision(void)
{
	int64_t		revision = random_chance(2500) ? (int64_t) random_below(256) << random_below(54) :
		store_revision() + random_below(256) - 128;

	return revision < 1 ? 1 : revision > MAX_REVISION ? MAX_REVISION : revision;
}

/* Sends a frame that no etcd would send. */
static void
tell_a_lie(void)
{
	EtcdWatchEvent events[4] = {0};
	EtcdWatchFrame frame = {.events = events,.nevents = random_below(5)};
	int			flags = random_below(256);
	char		keys[4][16];

	lied = true;
	earn(PER_FAULT);
	frame.header = (EtcdHeader) {.cluster_id = cluster_id + (flags % 8 == 7),.revision = some_revision(),.raft_term = term};
	frame.created = (flags & 8) != 0;
	frame.fragment = (flags & 16) != 0;
	frame.canceled = (flags & 96) == 96;
	frame.compact_revision = flags & 128 ? some_revision() : 0;
	for (int i = 0; i < frame.nevents; i++)
	{
		int			len = snprintf(keys[i], sizeof(keys[i]), "%s%d", prefix_names[random_below(NPREFIXES)], i);

		events[i].kv.key = (EtcdBytes) {keys[i], random_chance(2500) ? random_below(3) : len};
		events[i].kv.mod_revision = some_revision();
	}
	frame.watch_id = random_below(NPREFIXES + 2) - 1;
	if (stream != 0)
		changes_watched(core, now_ns, &frame);
}

static void
advance_watcher(Watcher *watcher)
{
	EtcdWatchFrame frame = {0};
	int64_t		index = over ? store_index() : lag > store_index() ? 0 : store_index() - lag;
	int64_t		applied = store_entry(index)->revision;

	if (!watcher->created)
	{
		watcher->created = true;
		frame.created = true;

		/*
		 * A compaction drops the deletions of its own revision, too, and yet
		 * etcd accepts a watch from there (etcd #18089).
		 */
		watcher->dropped = compacted();
		tell(watcher, &frame, applied);
	}
	else if (astray)
		tell_stray_change(watcher);
	else if (watcher->next_change < 0 && watcher->next_revision < compacted())
	{
		gap_is_due = true;
		earn(PER_FAULT);
		frame.canceled = true;
		frame.compact_revision = compacted();
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
	if (n > 0)
		spend("streams");
	/* the read before it has shown that etcd is another one */
	if (n > 0 && restored && !lied)
		fail_run("etcd was put back, and a stream is opened without a gap");
	stream = n > 0 ? ++streams_opened : 0;
	nwatchers = n;
	lag = random_chance(2000) ? random_below(20) : 0;
	astray = !over && random_chance(200);
	for (int i = 0; i < n; i++)
	{
		watchers[i] = (Watcher) {.prefix = prefix_of(watches[i].key),.next_revision = watches[i].start_revision,.next_change = -1};
		if (watchers[i].prefix < 0 || !configured[watchers[i].prefix])
		{
			fail_run("a watch that nobody wants");
			return;
		}
		if (watches[i].watch_id != i + 1 || watches[i].start_revision < 1 || !watches[i].fragment || !watches[i].progress_notify)
			fail_run("a watch without fragments, progress, or a revision");
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
	if (answer->outcome != ETCD_ANSWERED)
		earn(PER_FAULT);
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
		answer->header = make_header(store_revision());
	if (lies && !over && random_chance(500))
	{
		lied = true;
		answer->header = make_header(some_revision());
		answer->header.raft_term += random_below(8);
	}
	events_after(random_between(MS, random_chance(2000) ? 2 * SECOND : 20 * MS), arrive, answer, id);
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	nreads++;
	spend("reads");
	if (request->kind != ETCD_TXN || request->nsuccess == 0 || request->nfailure > 0)
		fail_run("a request that is no read");
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
	bool		turned = random_chance(3000);

	for (int i = 0; i < NPREFIXES; i++)
	{
		int			p = turned ? NPREFIXES - 1 - i : i;
		bool		wanted = over || random_chance(8000);

		if (wanted)
			names[n++] = prefix_names[p];
		if (wanted && !configured[p])
			told[p].needs_gap = gap_is_due = true;
		configured[p] = wanted;
	}
	trace("", "%d prefixes", n);
	earn(PER_FAULT);
	changes_configure(core, now_ns, names, n, INTERVAL_NS);
}

/* One fault, or a write, or neither.  Returns the time until the next. */
static int64_t
disturb(void)
{
	int			what = random_below(10000);

	if (what < 4000)
		write_changes();
	else if (what < 4100)
		store_compact(term, random_between(store_revision() - compacted() > 3 && random_chance(7000) ?
										   store_revision() - 3 : compacted(), store_revision()));
	else if (what < 4120)
		restore();
	else if (what < 4140)
		configure();
	else if (what < 4160)
		refuses = !refuses;
	else if (lies && what < 4200)
		tell_a_lie();
	else if (what < 4200 + failure_rate / 4)
		end_stream(ETCD_NO_ANSWER);
	else if (what >= 9995)
		return random_between(SECOND, 10 * SECOND); /* the process is stopped */
	return 20 * MS;
}

static void
tick(void *subject, uint64_t tag)
{
	int64_t		pause_ns = 20 * MS;

	for (int i = 0; changes_wakeup_ns(core) <= now_ns; i++)
	{
		if (i == MAX_TICKS_AT_ONCE)
		{
			fail_run("the core is due again and again");
			return;
		}
		changes_tick(core, now_ns);
	}
	if (!over)
		pause_ns = disturb();
	else if (!quiet && random_chance(500))
		write_changes();
	credit += pause_ns * PER_SECOND;
	events_after(pause_ns, tick, NULL, 0);
}

static bool
run_on(int64_t duration_ns)
{
	int64_t		until_ns = now_ns + duration_ns;

	while (!run_failed() && (over || !random_is_exhausted()) && events_step(until_ns))
		;
	return !run_failed();
}

static void
reset(void)
{
	verdict_reset();
	events_reset();
	store_reset();
	store_changed = NULL;
	nreads = nrestores = 0;
	cluster_id = 7;
	credit = 0;
	refuses = lied = over = quiet = at_rest = restored = gap_is_due = false;
	stream = 0;
	for (int p = 0; p < NPREFIXES; p++)
	{
		configured[p] = false;
		told[p].last = told[p].floor = -1;
		told[p].revision = 0;
		told[p].needs_gap = false;
	}
	earn(AT_FIRST);
}

static bool
run_changes(void)
{
	static const ChangesPort port = {
		.send = port_send,.watch = port_watch,.announce = port_announce,.random = port_random
	};

	reset();
	term = 2 + random_below(5);
	failure_rate = random_chance(3000) ? 0 : random_below(1500);
	lies = random_chance(1000);
	core = changes_create(&port);
	configure();
	events_after(0, tick, NULL, 0);

	(void) run_on(FAULTS_END_NS);
	over = true;
	refuses = false;
	configure();
	(void) run_on(RECOVERY_NS);
	quiet = true;
	write_each();
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

bool
run_seed(uint64_t seed)
{
	random_seed(seed);
	return run_changes();
}

bool
run_input(const uint8_t *data, size_t size)
{
	random_seed(0);
	random_from(data, size);
	return run_changes();
}

const char *
profile_name(Profile profile)
{
	return "changes";
}
