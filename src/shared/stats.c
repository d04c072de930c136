/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "settings/settings.h"
#include "stats.h"

/* How often an election was won and lost.  Written by the elector. */
typedef struct Tally
{
	char		election[ELECTION_NAME_SIZE];	/* empty: unused */
	pg_atomic_uint64 won;
	pg_atomic_uint64 lost;
	bool		leads;			/* won and not lost since */
} Tally;

typedef struct Stats
{
	pg_atomic_uint64 reset_at;	/* a TimestampTz */
	pg_atomic_uint64 counters[COUNTER_COUNT];
	Tally		tallies[ELECTION_MAX_ELECTIONS];
} Stats;

static Stats *stats = NULL;

static void
init_stats(void)
{
	pg_atomic_init_u64(&stats->reset_at, (uint64) GetCurrentTimestamp());
}

void
stats_count(SharedCounter counter, int64 n)
{
	(void) pg_atomic_fetch_add_u64(&stats->counters[counter], n);
}

int64
stats_counter(SharedCounter counter)
{
	return (int64) pg_atomic_read_u64(&stats->counters[counter]);
}

/*
 * From the time that an etcd nearby needs to the time that a request may take
 * by default.
 */
int64
stats_latency_limit_ns(int bucket)
{
	static const double limits_ms[SHARED_LATENCY_BUCKETS] = {
		0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500
	};

	return (int64) (limits_ms[bucket] * NSEC_PER_MSEC);
}

void
stats_count_latency(int64 latency_ns)
{
	int			bucket = 0;

	if (latency_ns > stats_counter(COUNTER_LATENCY_NS_MAX))
		pg_atomic_write_u64(&stats->counters[COUNTER_LATENCY_NS_MAX], (uint64) latency_ns);
	stats_count(COUNTER_LATENCY_NS_SUM, latency_ns);
	stats_count(COUNTER_ANSWERS, 1);
	while (bucket < SHARED_LATENCY_BUCKETS && latency_ns > stats_latency_limit_ns(bucket))
		bucket++;
	stats_count(COUNTER_LATENCY_BUCKETS + bucket, 1);
}

/* The tally with that name, "" for a free one; NULL if there is none. */
static Tally *
find_tally(const char *election)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (strcmp(stats->tallies[i].election, election) == 0)
			return &stats->tallies[i];
	}
	return NULL;
}

/* A tally that is free, or whose election has left the settings. */
static Tally *
find_unused_tally(void)
{
	Tally	   *tally = find_tally("");

	for (int i = 0; tally == NULL && i < ELECTION_MAX_ELECTIONS; i++)
	{
		const char *name = stats->tallies[i].election;

		if (settings_election_index(name, (int) strlen(name)) < 0)
			tally = &stats->tallies[i];
	}
	return tally;
}

void
stats_count_won(const char *election)
{
	Tally	   *tally = find_tally(election);

	stats_count(COUNTER_ELECTIONS_WON, 1);
	if (tally == NULL)
	{
		tally = find_unused_tally();
		if (tally == NULL)
			return;

		/* Readers look at the name before and after they read the numbers. */
		tally->election[0] = '\0';
		pg_write_barrier();		/* handshake.pml: TALLY_FREED */
		pg_atomic_write_u64(&tally->won, 0);
		pg_atomic_write_u64(&tally->lost, 0);
		pg_write_barrier();		/* handshake.pml: TALLY_ZEROED */
		strlcpy(tally->election, election, ELECTION_NAME_SIZE);
	}
	(void) pg_atomic_fetch_add_u64(&tally->won, 1);
	tally->leads = true;
}

void
stats_count_lost(const char *election, ElectionReason reason)
{
	Tally	   *tally = find_tally(election);

	stats_count(COUNTER_ELECTIONS_LOST + reason, 1);
	if (tally == NULL)
		return;
	(void) pg_atomic_fetch_add_u64(&tally->lost, 1);
	tally->leads = false;
}

/*
 * An elector that was killed, or that ended in a crash restart, has not
 * counted the leaderships that ended with it.
 */
static void
count_forgotten_losses(void)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		const Tally *tally = &stats->tallies[i];

		if (tally->leads)
			stats_count_lost(tally->election, ELECTION_REASON_SHUTDOWN);
	}
}

const SharedPart stats_part = {
	.name = "statistics", .size = sizeof(Stats), .memory = (void **) &stats, .init = init_stats,
	.is_lasting = true,
	.elector_begins = count_forgotten_losses
};

void
stats_tally(const char *election, int64 *won, int64 *lost)
{
	Tally	   *tally = find_tally(election);

	*won = 0;
	*lost = 0;
	if (tally == NULL)
		return;
	pg_read_barrier();			/* handshake.pml: TALLY_FOUND */
	*won = (int64) pg_atomic_read_u64(&tally->won);
	*lost = (int64) pg_atomic_read_u64(&tally->lost);
	pg_read_barrier();			/* handshake.pml: TALLY_READ */

	/* it was given to another election meanwhile */
	if (strcmp(tally->election, election) != 0)
		*won = *lost = 0;
}

void
stats_reset(void)
{
	for (int i = 0; i < COUNTER_COUNT; i++)
		pg_atomic_write_u64(&stats->counters[i], 0);
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		pg_atomic_write_u64(&stats->tallies[i].won, 0);
		pg_atomic_write_u64(&stats->tallies[i].lost, 0);
	}
	pg_atomic_write_u64(&stats->reset_at, (uint64) GetCurrentTimestamp());
}

TimestampTz
stats_reset_at(void)
{
	return (TimestampTz) pg_atomic_read_u64(&stats->reset_at);
}
