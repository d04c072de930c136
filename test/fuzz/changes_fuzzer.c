/*-------------------------------------------------------------------------
 *
 * changes_fuzzer.c
 *	  Fuzzes changes.c with an etcd whose faults the input chooses.
 *
 * The input is a program, like that of election_fuzzer.c.  Its bytes choose the
 * next event.  A model of etcd keeps a list of changes.  The events are: writes
 * of several keys at one revision, watches that catch up one by one and in
 * fragments, members that lag behind, progress, compaction, responses that are
 * too large, an etcd that is put back or replaced, reads that are late, lost or
 * refused, new settings, and time.  With these events the following holds:
 *
 * - each change of a prefix is announced once and in order; only after a gap,
 *	 changes from before the gap may be left out;
 * - a gap is announced before the first change of a prefix, and after etcd was
 *	 put back;
 * - in the end everything was announced, and then nothing more is.
 *
 * An input may also have frames and answers that no etcd would send.  From then
 * on the announced changes of a prefix still belong to the prefix, and their
 * revisions do not decrease between two gaps.  After the last wrong frame, new
 * changes are announced, with or without a gap.
 *
 * The following always holds: only reads are sent; the number of reads and
 * streams is limited, by time and by the number of events; the core is not due
 * again and again at one time; it allocates memory only once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "protocol/changes.h"
#include "fuzz.h"

#define MS			INT64_C(1000000)
#define SECOND		(1000 * MS)
#define INTERVAL_NS	SECOND

#define NPREFIXES		4
#define MAX_CHANGES		256
#define MAX_PENDING		8
#define MAX_STEPS		1000
#define MAX_REVISION	(INT64_MAX / 2)	/* etcd's own limit */

/* Allowed reads and streams: at first, in addition in each second, and for each fault. */
#define AT_FIRST		8
#define PER_SECOND		4
#define PER_INPUT		4

/* How often the core may be due again at the same time. */
#define MAX_TICKS_AT_ONCE	8

static const char *const names[NPREFIXES] = {"a/", "b/", "flags/c/", "a0"};

typedef struct Change
{
	int			prefix;			/* -1: it was lost when etcd was put back */
	int64_t		revision;
	bool		is_delete;
	bool		is_large;		/* too large to be read */
	char		key[16];
} Change;

/* A watch of the stream that is open. */
typedef struct Watcher
{
	int			prefix;
	bool		created;
	int64_t		next_revision;	/* of the next event to send */
	int			split;			/* the next change of a split response; -1: none is split */
	int64_t		response_end;	/* the last revision of a split response */
} Watcher;

/* A read under way. */
typedef struct Pending
{
	uint64_t	id;				/* 0: free */
	bool		served;
	EtcdAnswer	answer;
} Pending;

/* What was announced of a prefix. */
typedef struct Told
{
	bool		configured;
	bool		needs_gap;
	int			last;			/* the newest change that was announced; -1: none */
	int			floor;			/* changes up to this one may be left out */
	int64_t		revision;		/* of the last change since the gap */
	bool		heard;			/* a change was announced since the last wrong frame */
} Told;

static struct
{
	int64_t		now;
	int64_t		credit;			/* reads and streams that are still allowed, times SECOND */
	bool		lied;
	bool		put_back;		/* etcd was put back, and no gap was announced since */
	bool		calm;			/* there are no more faults */
	bool		at_rest;		/* there are no more writes, and all changes were announced */

	Changes    *core;
	Change		changes[MAX_CHANGES];
	int			nchanges;
	EtcdHeader	header;
	int64_t		compacted;
	Watcher		watchers[NPREFIXES];
	int			nwatchers;		/* 0: no stream is open */
	int64_t		lag;			/* how far the member is behind, in revisions */
	Pending		pending[MAX_PENDING];
	Told		told[NPREFIXES];
}			run;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the input -------------------------------------------------------- */

/* Takes a revision near the given one, or far from it. */
static int64_t
take_revision(int64_t near)
{
	int64_t		revision = near;

	if (choose(4) == 0)
	{
		revision = take();
		revision <<= choose(54);
	}
	else
		revision += (int8_t) take();
	return revision < 1 ? 1 : revision > MAX_REVISION ? MAX_REVISION : revision;
}

static void
earn(int64_t n)
{
	run.credit += n * SECOND;
	if (run.credit > 100 * SECOND)
		run.credit = 100 * SECOND;
}

static void
spend(void)
{
	CHECK(run.credit >= SECOND);
	run.credit -= SECOND;
}

/* ---- checks of the announced changes ----------------------------------- */

static int
next_change(int prefix, int after)
{
	for (int i = after + 1; i < run.nchanges; i++)
	{
		if (run.changes[i].prefix == prefix)
			return i;
	}
	return -1;
}

static void
hear_gap(void)
{
	CHECK(!run.at_rest);
	run.put_back = false;
	for (int p = 0; p < NPREFIXES; p++)
	{
		run.told[p].floor = run.nchanges - 1;
		run.told[p].revision = 0;
		run.told[p].needs_gap = false;
		run.told[p].heard = true;
	}
}

static bool
is_change(const Change *change, const EtcdWatchEvent *event)
{
	return change->revision == event->kv.mod_revision && change->is_delete == event->is_delete &&
		strlen(change->key) == event->kv.key.len &&
		memcmp(change->key, event->kv.key.data, event->kv.key.len) == 0;
}

/* The first change that must not be left out; -1: none. */
static int
first_owed(const Told *told, int p)
{
	return next_change(p, told->last > told->floor ? told->last : told->floor);
}

/* Checks that the event is the next change of its prefix, or another allowed one. */
static void
check_next(Told *told, int p, const EtcdWatchEvent *event)
{
	int			owed = first_owed(told, p);
	int			found = next_change(p, told->last);

	while (found >= 0 && !is_change(&run.changes[found], event))
		found = next_change(p, found);
	CHECK(found >= 0);
	CHECK(owed < 0 || found <= owed);
	told->last = found;
}

static void
port_announce(void *ctx, const EtcdWatchEvent *event)
{
	int			p;
	Told	   *told;

	if (event == NULL)
	{
		hear_gap();
		return;
	}
	for (p = 0; p < NPREFIXES; p++)
	{
		if (event->kv.key.len >= strlen(names[p]) && memcmp(event->kv.key.data, names[p], strlen(names[p])) == 0)
			break;
	}
	CHECK(p < NPREFIXES);
	told = &run.told[p];
	CHECK(told->configured && !told->needs_gap && run.nwatchers > 0 && !run.at_rest);
	CHECK(event->kv.mod_revision >= told->revision);
	told->revision = event->kv.mod_revision;
	told->heard = true;
	/* after etcd was put back, the core learns of that only with its next read */
	if (!run.lied && !run.put_back)
		check_next(told, p, event);
}

/* ---- etcd ---------------------------------------------------------------- */

/* Writes several keys of several prefixes at one revision.  The bits of a byte choose. */
static void
write_changes(int which)
{
	int			deletes = choose(16);

	run.header.revision++;
	for (int i = 0; i < 8; i++)
	{
		Change	   *change = &run.changes[run.nchanges];

		if (!(which & 1 << i) || run.nchanges == MAX_CHANGES - (run.calm ? 0 : 8))
			continue;
		change->prefix = i % NPREFIXES;
		change->revision = run.header.revision;
		change->is_delete = (deletes & 1 << i / 2) != 0;
		change->is_large = deletes == 15 && !run.calm;
		snprintf(change->key, sizeof(change->key), "%s%d", names[change->prefix], i);
		run.nchanges++;
	}
}

static void
end_stream(EtcdOutcome outcome)
{
	if (run.nwatchers == 0)
		return;
	earn(PER_INPUT);
	run.nwatchers = 0;
	changes_watch_ended(run.core, run.now, outcome);
}

/* Puts etcd back.  All members are stopped for that, which closes all connections. */
static void
put_back(void)
{
	int64_t		revision = run.header.revision - take() % 32;

	earn(PER_INPUT);
	if (revision < 2)
		revision = 2;
	for (int i = 0; i < run.nchanges; i++)
	{
		if (run.changes[i].revision > revision)
			run.changes[i] = (Change) {.prefix = -1};
	}
	run.header.revision = revision;
	if (run.compacted > revision)
		run.compacted = revision;
	if (choose(2) == 0 || run.header.raft_term == 1)
		run.header.cluster_id++;
	else
		run.header.raft_term--;
	if (choose(2) == 1)
		run.header.revision += take();
	run.put_back = true;
	for (int p = 0; p < NPREFIXES; p++)
		run.told[p].last = run.told[p].floor = -1;
	for (int i = 0; i < MAX_PENDING; i++)
	{
		run.pending[i].served = true;
		run.pending[i].answer.outcome = ETCD_NO_ANSWER;
	}
	end_stream(ETCD_NO_ANSWER);
}

/* ---- the stream ---------------------------------------------------------- */

static void
tell(int64_t watch_id, EtcdWatchFrame *frame)
{
	frame->watch_id = watch_id;
	frame->header.cluster_id = run.header.cluster_id;
	changes_watched(run.core, run.now, frame);
}

/* Sends the next response of a watch, or the next fragment, of at most `room` events. */
static void
tell_changes(int w, int64_t applied, int room)
{
	Watcher    *watcher = &run.watchers[w];
	EtcdWatchEvent events[MAX_CHANGES];
	EtcdWatchFrame frame = {.events = events};
	int64_t		end = watcher->split >= 0 ? watcher->response_end : applied;
	int			i = watcher->split >= 0 ? watcher->split : 0;

	for (; i < run.nchanges && run.changes[i].revision <= end; i++)
	{
		const Change *change = &run.changes[i];

		if (change->prefix != watcher->prefix || change->revision < watcher->next_revision)
			continue;
		if (frame.nevents == room)
			break;
		if (change->is_large)
		{
			end_stream(ETCD_GARBAGE);
			return;
		}
		events[frame.nevents++] = (EtcdWatchEvent) {.is_delete = change->is_delete,
		.kv = {.key = {change->key, strlen(change->key)},.mod_revision = change->revision}};
	}
	frame.fragment = i < run.nchanges && run.changes[i].revision <= end;
	watcher->split = frame.fragment ? i : -1;
	watcher->response_end = end;
	if (!frame.fragment)
		watcher->next_revision = end + 1;
	frame.header.revision = end;
	if (frame.nevents > 0)
		tell(w + 1, &frame);
}

static void
advance_watcher(int w, int how)
{
	Watcher    *watcher = &run.watchers[w];
	EtcdWatchFrame frame = {0};
	int64_t		applied = run.header.revision - run.lag;

	frame.header.revision = applied < 1 ? 1 : applied;
	if (!watcher->created)
	{
		watcher->created = frame.created = true;
		tell(w + 1, &frame);
	}
	else if (watcher->split < 0 && watcher->next_revision < run.compacted)
	{
		frame.canceled = true;
		frame.compact_revision = run.compacted;
		earn(PER_INPUT);
		tell(w + 1, &frame);
	}
	else if (watcher->split < 0 && watcher->next_revision > applied)
	{
		if (how % 2 == 1)
			tell(w + 1, &frame);	/* progress of a watch without events */
	}
	else
		tell_changes(w, how % 3 == 2 && watcher->next_revision < applied ? watcher->next_revision : applied,
					 how < 128 ? MAX_CHANGES : 1 + how % 4);
}

/* Sends a frame that no etcd would send. */
static void
tell_a_lie(void)
{
	EtcdWatchEvent events[4] = {0};
	EtcdWatchFrame frame = {.events = events,.nevents = choose(5)};
	int			flags = take();
	char		keys[4][16];

	run.lied = true;
	earn(PER_INPUT);
	frame.header = run.header;
	frame.header.revision = take_revision(run.header.revision);
	frame.header.cluster_id += flags % 8 == 7;
	frame.created = (flags & 8) != 0;
	frame.fragment = (flags & 16) != 0;
	frame.canceled = (flags & 96) == 96;
	frame.compact_revision = flags & 128 ? take_revision(run.compacted) : 0;
	for (int i = 0; i < frame.nevents; i++)
	{
		events[i].kv.key = (EtcdBytes) {keys[i], snprintf(keys[i], sizeof(keys[i]), "%s%d", names[choose(NPREFIXES)], i)};
		if (choose(4) == 0)
			events[i].kv.key.len = choose(3);
		events[i].kv.mod_revision = take_revision(run.header.revision);
	}
	frame.watch_id = choose(NPREFIXES + 2) - 1;
	if (run.nwatchers > 0)
		changes_watched(run.core, run.now, &frame);
}

/* ---- reads ---------------------------------------------------------------- */

static void
serve(Pending *p)
{
	if (p->id == 0 || p->served)
		return;
	p->served = true;
	p->answer.outcome = ETCD_ANSWERED;
	p->answer.header = run.header;
}

static void
arrive(Pending *p)
{
	uint64_t	id = p->id;

	if (id == 0)
		return;
	serve(p);
	p->id = 0;
	changes_receive(run.core, run.now, id, &p->answer);
}

static void
fail(Pending *p)
{
	earn(PER_INPUT);
	p->served = true;
	p->answer.outcome = choose(2) ? ETCD_NO_ANSWER : ETCD_REFUSED;
	p->answer.code = ETCD_CODE_PERMISSION_DENIED;
	if (choose(8) == 7 && p->id != 0)
	{
		run.lied = true;
		p->answer.outcome = ETCD_ANSWERED;
		p->answer.header = run.header;
		p->answer.header.revision = take_revision(run.header.revision);
		p->answer.header.raft_term += choose(8);
	}
}

/* ---- outputs of the core ----------------------------------------------------- */

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Pending    *p = NULL;

	spend();
	CHECK(request->kind == ETCD_TXN && request->nsuccess > 0 && request->nfailure == 0);
	for (int i = 0; i < request->nsuccess; i++)
		CHECK(request->success[i].kind == ETCD_OP_RANGE);
	for (int i = 0; i < MAX_PENDING && p == NULL; i++)
	{
		if (run.pending[i].id == 0)
			p = &run.pending[i];
	}
	CHECK(p != NULL);
	memset(p, 0, sizeof(*p));
	p->id = id;
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int n)
{
	if (n > 0)
		spend();
	run.nwatchers = n;
	run.lag = 0;
	for (int i = 0; i < n; i++)
	{
		int			p = 0;

		while (p < NPREFIXES && (strlen(names[p]) != watches[i].key.len || memcmp(names[p], watches[i].key.data, watches[i].key.len) != 0))
			p++;
		CHECK(p < NPREFIXES && run.told[p].configured);
		CHECK(watches[i].watch_id == i + 1 && watches[i].start_revision > 0 && watches[i].fragment && watches[i].progress_notify);
		run.watchers[i] = (Watcher) {.prefix = p,.next_revision = watches[i].start_revision,.split = -1};
	}
}

static uint64_t
port_random(void *ctx)
{
	return take();
}

/* ---- events ------------------------------------------------------------------- */

/* The prefixes, in one of two orders. */
static void
configure(int which, bool turned)
{
	const char *list[NPREFIXES];
	int			n = 0;

	earn(PER_INPUT);
	for (int i = 0; i < NPREFIXES; i++)
	{
		int			p = turned ? NPREFIXES - 1 - i : i;
		bool		wanted = (which & 1 << p) != 0;

		if (wanted)
			list[n++] = names[p];
		if (wanted && !run.told[p].configured)
			run.told[p].needs_gap = true;
		run.told[p].configured = wanted;
	}
	changes_configure(run.core, run.now, list, n, INTERVAL_NS);
}

static void
tick(void)
{
	for (int i = 0; changes_wakeup_ns(run.core) <= run.now; i++)
	{
		CHECK(i < MAX_TICKS_AT_ONCE);
		changes_tick(run.core, run.now);
	}
	for (int i = MAX_PENDING - 1; i >= 0; i--)
	{
		/* each read is answered, at the latest when there are too many */
		if (run.pending[MAX_PENDING - 2].id != 0 || run.calm)
			arrive(&run.pending[i]);
	}
}

static void
pass_time(int64_t ns)
{
	run.now += ns;
	run.credit += (ns < 10 * SECOND ? ns : 10 * SECOND) * PER_SECOND;
	earn(0);
	tick();
}

/* Lets time pass, while reads are answered and watches advance at once. */
static void
go_on(int64_t ns)
{
	for (int64_t end = run.now + ns; run.now < end;)
	{
		for (int i = 0; i < MAX_PENDING; i++)
			arrive(&run.pending[i]);
		for (int i = 0; i < run.nwatchers; i++)
			advance_watcher(i, 1);
		pass_time(200 * MS);
	}
}

static void
step(void)
{
	static const int64_t times[] = {MS, 50 * MS, 500 * MS, SECOND, 6 * SECOND, 60 * SECOND};
	int			what = choose(16);
	int			which;

	switch (what)
	{
		case 0:
		case 1:
			write_changes(take());
			break;
		case 2:
		case 3:
		case 4:
			if (run.nwatchers == 0)
				break;
			which = choose(run.nwatchers);
			advance_watcher(which, take());
			break;
		case 5:
			end_stream(choose(8) == 7 ? ETCD_GARBAGE : ETCD_NO_ANSWER);
			break;
		case 6:
			serve(&run.pending[choose(MAX_PENDING)]);
			break;
		case 7:
		case 8:
			arrive(&run.pending[what == 7 ? 0 : choose(MAX_PENDING)]);
			break;
		case 9:
			fail(&run.pending[choose(MAX_PENDING)]);
			break;
		case 10:
			pass_time(times[choose(lengthof(times))]);
			break;
		case 11:
			if (run.compacted < run.header.revision)
				run.compacted += 1 + take() % (run.header.revision - run.compacted);
			break;
		case 12:
			put_back();
			break;
		case 13:
			which = take();
			configure(which, choose(2) == 1);
			break;
		case 14:
			run.lag = choose(8);
			break;
		case 15:
			if (choose(2) == 1)
				tell_a_lie();
			else
				go_on(SECOND);
			break;
	}
	tick();
}

/* Ends the faults.  All changes are announced, and then nothing more. */
static void
calm_down(void)
{
	int			which = 0;

	run.calm = true;
	run.lag = 0;
	for (int p = 0; p < NPREFIXES; p++)
		which |= run.told[p].configured << p;
	configure(which ? which : 1, false);
	go_on(20 * SECOND);
	for (int p = 0; p < NPREFIXES; p++)
		run.told[p].heard = false;
	write_changes(255);
	go_on(20 * SECOND);
	CHECK(changes_is_watching(run.core));
	CHECK(!run.put_back || run.lied);
	for (int p = 0; p < NPREFIXES; p++)
	{
		if (!run.told[p].configured)
			continue;
		CHECK(run.told[p].heard && !run.told[p].needs_gap);
		CHECK(run.lied || first_owed(&run.told[p], p) < 0);
	}
	run.at_rest = true;
	go_on(5 * SECOND);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const ChangesPort port = {
		.send = port_send,.watch = port_watch,.announce = port_announce,.random = port_random
	};

	memset(&run, 0, sizeof(run));
	set_input(data, size);
	run.now = 1000 * SECOND;
	run.header = (EtcdHeader) {.cluster_id = 7,.member_id = 1,.revision = 5,.raft_term = 3};
	run.compacted = 1;
	for (int p = 0; p < NPREFIXES; p++)
		run.told[p].last = run.told[p].floor = -1;
	earn(AT_FIRST);

	fuzz_watch_memory(0);
	run.core = changes_create(&port);
	configure(1 + choose(15), false);
	for (int i = 0; i < MAX_STEPS && has_input(); i++)
		step();
	calm_down();
	CHECK(fuzz_allocations() == 1);
	changes_free(run.core);
	fuzz_check_memory(64 * 1024);
	return 0;
}
