/*-------------------------------------------------------------------------
 *
 * scale.c
 *	  Counts what etcd has to serve for elections with many candidates or
 *	  observers: at a hand-over, at a crash, and at rest.
 *
 * The simulated members of etcd count what they execute, for each instance.  A
 * hand-over or a crash is put between two renewals, so that no renewals have to be
 * subtracted.  Network and members have no limits here, so times are not
 * measured.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"
#include "cluster.h"
#include "plan.h"
#include "run.h"

#define TTL_S			10
#define RENEWAL_NS			(TTL_S * SECOND / 3)

/*
 * All instances start within the first half second.  So they renew in the first
 * half second of each RENEWAL_NS, or a little later, because timers are late.
 */
#define CROWD_NS		(500 * MS)
#define QUIET_NS		(1500 * MS)
#define MAX_LATE_NS		(100 * MS)

/* An instance with many elections. */
#define USUAL_ELECTIONS	16

/* Room for all rows of one kind. */
#define MAX_ROWS		8192

typedef struct Rows
{
	char		text[MAX_ROWS];
	size_t		len;
} Rows;

static Rows handovers;
static Rows leader_crashes;
static Rows waiter_crashes;
static Rows idle;

static int	ncandidates;
static int	nobservers;
static int64_t renewal;			/* the number of the next renewal */

/* The counters when the measurement began. */
static Served *served_before;
static int64_t index_before;

/* ---- time ------------------------------------------------------------------ */

/* Lets nrenewals renewals pass, and goes on to that time after the begin of the next. */
static void
pass_renewals(int nrenewals, int64_t offset_ns)
{
	renewal += nrenewals;
	(void) run_until(renewal * RENEWAL_NS + offset_ns);
}

/* ---- the queue --------------------------------------------------------------- */

/* The instance at that place of the queue. */
static Instance *
instance_at(int place)
{
	EtcdBytes	name = store_key(store_live(place)->key)->name;

	for (int i = 0; i < ninstances; i++)
	{
		const char *key = instances[i].views[0].key;

		if (strlen(key) == name.len && memcmp(key, name.data, name.len) == 0)
			return &instances[i];
	}
	fail_run("nobody has the key at place %d", place);
	return &instances[0];
}

/* ---- counters ------------------------------------------------------------------ */

static void
begin_measure(void)
{
	for (int i = 0; i < ninstances; i++)
		served_before[i] = instances[i].served;
	index_before = store_index();
}

static void
add(Served *sum, int i)
{
	const Served *now = &instances[i].served;
	const Served *before = &served_before[i];

	sum->reads += now->reads - before->reads;
	sum->ordered += now->ordered - before->ordered;
	sum->writes += now->writes - before->writes;
	sum->keepalives += now->keepalives - before->keepalives;
	sum->streams += now->streams - before->streams;
	sum->events += now->events - before->events;
	sum->fetched += now->fetched - before->fetched;
}

static int64_t
requests(const Served *served)
{
	return served->reads + served->ordered + served->writes + served->keepalives + served->streams;
}

static void
write_row(Rows *rows, const char *format,...)
__attribute__((format(printf, 2, 3)));

static void
write_row(Rows *rows, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	rows->len += (size_t) vsnprintf(rows->text + rows->len, MAX_ROWS - rows->len, format, args);
	va_end(args);
	if (rows->len >= MAX_ROWS)
		abort();
}

/*
 * Writes a row.  The queue's part is that of the two instances that change
 * places.  The queue does not need the requests of the others.
 */
static void
end_measure(Rows *rows, const char *what, const Instance *first, const Instance *second)
{
	Served		queue = {0};
	Served		others = {0};

	for (int i = 0; i < ninstances; i++)
		add(&instances[i] == first || &instances[i] == second ? &queue : &others, i);
	if (queue.keepalives + others.keepalives > 0)
		fail_run("somebody renewals while a %s is measured", what);
	write_row(rows, "| %s | %d | %d | %" PRId64 " | %" PRId64, what, ncandidates, nobservers, store_index() - index_before,
			  requests(&queue) + requests(&others));
	write_row(rows, " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64,
			  queue.writes, queue.ordered, queue.reads, queue.streams, queue.events, queue.fetched);
	write_row(rows, " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64 " |\n",
			  others.ordered, others.reads, others.streams, others.events, others.fetched);
	if (others.writes > 0)
		fail_run("somebody writes who has no part in a %s", what);
}

/* ---- what is measured ------------------------------------------------------------ */

static void
begin_instance(void *subject, uint64_t eligible)
{
	Instance   *in = subject;
	ElectionConfig *config = &in->config;

	snprintf(config->node_name, sizeof(config->node_name), "%s", in->name);
	config->ttl_s = TTL_S;
	config->safety_margin_ms = -1;
	config->eligible = eligible != 0;
	config->nendpoints = plan.nendpoints;
	config->nelections = 1;
	strcpy(config->elections[0], election_name(0));
	instance_start(in);
}

static void
measure_idle(void)
{
	Served		all = {0};

	begin_measure();
	pass_renewals(3, QUIET_NS);
	for (int i = 0; i < ninstances; i++)
		add(&all, i);
	write_row(&idle, "| %d | %d | %.10g | %.10g | %.10g | %.10g | %.10g | %.10g | %.10g |\n", ncandidates, nobservers,
			  (double) all.keepalives / TTL_S, (double) all.ordered / TTL_S, (double) all.reads / TTL_S, (double) all.writes / TTL_S,
			  (double) all.streams / TTL_S, (double) all.events / TTL_S, (double) all.fetched / TTL_S);
}

/* The leader resigns, and goes to the end of the queue. */
static void
measure_handover(void)
{
	Instance   *leader = instance_at(0);
	Instance   *next = instance_at(1);

	begin_measure();
	instance_resign(leader, 0, true, 0);
	(void) run_until(now_ns + SECOND);
	if (!instance_leads(next, 0))
		fail_run("%s has not taken over", next->name);
	end_measure(&handovers, "hand-over", leader, next);
	pass_renewals(1, QUIET_NS);
}

/*
 * The instance at that place crashes, and its lease expires.  It is stopped for
 * a while before, so that its renewals come at another time than the others'.  Then
 * its lease expires between the renewals of the others.
 */
static void
measure_crash(int place, Rows *rows, const char *what)
{
	Instance   *victim = instance_at(place);
	Instance   *next = instance_at(place + 1);

	instance_pause(victim);
	pass_renewals(1, QUIET_NS);
	instance_resume(victim);
	(void) run_until(now_ns + 100 * MS);
	instance_crash(victim, false, false);
	pass_renewals(3, QUIET_NS - 100 * MS);
	begin_measure();
	(void) run_until(renewal * RENEWAL_NS + QUIET_NS + SECOND);
	end_measure(rows, what, next, next);

	/* it starts again, at a time that makes it renew with the others */
	pass_renewals(1, CROWD_NS / 2);
	instance_start(victim);
	pass_renewals(0, QUIET_NS);
}

/* ---- a run ------------------------------------------------------------------------- */

static void
make_plan(int n)
{
	memset(&plan, 0, sizeof(plan));
	random_seed((uint64_t) n);
	/* in this profile the checker requires that all know the leader soon */
	plan.profile = PROFILE_CALM;
	plan.faults_end_ns = NEVER;
	plan.ninstances = n;
	plan.nelections = 1;
	plan.slots = 1;
	plan.nmembers = 3;
	plan.nendpoints = 3;
	plan.balanced = true;
	plan.dialect = 2;
	plan.pre_vote = true;
	plan.election_timeout_ns = SECOND;
	plan.expiry_lateness_ns = 500 * MS;
	plan.link_delay_ns = MS;
	plan.link_jitter_ns = 2 * MS;
	plan.apply_delay_ns = 2 * MS;
	plan.ttl_s[0] = plan.ttl_s[1] = TTL_S;
	plan.margin_ms = -1;
	plan.request_timeout_ms = -1;
}

static bool
measure(int candidates, int observers)
{
	ncandidates = candidates;
	nobservers = observers;
	verdict_reset();
	events_reset();
	make_plan(candidates + observers);
	run_begin();
	served_before = run_alloc((size_t) ninstances * sizeof(Served));
	for (int i = 0; i < ninstances; i++)
		events_at(random_between(0, CROWD_NS - MAX_LATE_NS), begin_instance, &instances[i], i < candidates);

	renewal = 0;
	pass_renewals(1, QUIET_NS);
	measure_idle();
	measure_handover();
	if (observers == 0)
		measure_crash(candidates / 2, &waiter_crashes, "crash of a waiter");
	measure_crash(0, &leader_crashes, "crash of the leader");
	checker_recovered();
	run_end();
	if (run_failed())
		printf("%d candidates, %d observers: fails %s\n", candidates, observers, run_verdict());
	return !run_failed();
}

/* The memory of a core.  It allocates all of it when it is made. */
static size_t
core_size(void)
{
	ElectionPort port = {0};
	ElectionCore *core = election_create(&port, USUAL_ELECTIONS);
	size_t		size = malloc_usable_size(core);

	election_free(core);
	return size;
}

bool
scale_write_table(void)
{
	bool		good = true;

	store_counts = true;
	for (int n = 10; n <= 10000 && good; n *= 10)
		good = measure(n, 0);
	for (int n = 10; n <= 10000 && good; n *= 10)
		good = measure(2, n);
	store_counts = false;
	if (!good)
		return false;

	printf("| what happens | candidates | observers | log | requests | queue: writes | ordered | reads | streams | events | keys"
		   " | the others: ordered | reads | streams | events | keys |\n"
		   "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n%s%s%s\n",
		   handovers.text, leader_crashes.text, waiter_crashes.text);
	printf("Per second in which nothing happens:\n\n"
		   "| candidates | observers | keepalives | ordered | reads | writes | streams | events | keys |\n"
		   "|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n%s\n", idle.text);
	printf("The core of an instance takes %zu kB for %d elections, in each of these.\n",
		   (core_size() + 1023) / 1024, USUAL_ELECTIONS);
	return true;
}
