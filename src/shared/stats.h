/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  Counters.
 *
 * The counters outlive a crash restart of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef STATS_H
#define STATS_H

#include "datatype/timestamp.h"
#include "protocol/election.h"
#include "shared/part.h"

/* Latencies are counted by buckets; the last one has no limit. */
#define SHARED_LATENCY_BUCKETS 12

typedef enum SharedCounter
{
	/* the first columns of etcd_leader_stats, in their order */
	COUNTER_REQUESTS,
	COUNTER_FAILURES,
	COUNTER_TIMEOUTS,
	COUNTER_ENDPOINT_SWITCHES,
	COUNTER_LEASES_GRANTED,
	COUNTER_KEEPALIVES,
	COUNTER_WATCH_RESTARTS,
	COUNTER_ELECTIONS_WON,
	/* in any order */
	COUNTER_NOTIFICATIONS_SENT,
	COUNTER_NOTIFICATIONS_FAILED,
	COUNTER_COMMITS_REFUSED,
	COUNTER_STATEMENTS_CANCELLED,
	COUNTER_DRAINS,
	COUNTER_TRANSACTIONS_REFUSED,	/* by a drain */
	COUNTER_HOOKS_SUCCEEDED,	/* runs */
	COUNTER_HOOKS_FAILED,
	COUNTER_HOOKS_CANCELLED,
	COUNTER_HOOKS_CRASHED,
	COUNTER_LATENCY_NS_SUM,
	COUNTER_LATENCY_NS_MAX,		/* set, not added to */
	COUNTER_ANSWERS,			/* how many went into the latencies */
	COUNTER_LATENCY_BUCKETS,	/* + bucket */
	/* + ElectionReason */
	COUNTER_ELECTIONS_LOST = COUNTER_LATENCY_BUCKETS + SHARED_LATENCY_BUCKETS + 1,
	COUNTER_COUNT = COUNTER_ELECTIONS_LOST + ELECTION_NREASONS
} SharedCounter;

/*
 * The counters live as long as the postmaster: a crash restart does not reset
 * them.  Every process may count, also in a signal handler.
 */
extern void stats_count(SharedCounter counter, int64 n);
extern int64 stats_counter(SharedCounter counter);
extern int64 stats_latency_limit_ns(int bucket);

/* For the elector alone. */
extern void stats_count_latency(int64 latency_ns);
extern void stats_count_won(const char *election);
extern void stats_count_lost(const char *election, ElectionReason reason);

/* How often this instance won and lost that election. */
extern void stats_tally(const char *election, int64 *won, int64 *lost);

/* Sets all of these to 0, and when that was. */
extern void stats_reset(void);
extern TimestampTz stats_reset_at(void);

extern const SharedPart stats_part;

#endif							/* STATS_H */
