/*-------------------------------------------------------------------------
 *
 * stats_test.c
 *	  Tests of shared/stats.c: the counters.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "base/clock.h"
#include "settings/settings.h"
#include "shared/stats.h"
#include "small_server.h"

/* ---- the settings -------------------------------------------------------------------- */

static const char *dropped;		/* the settings list all elections but these */
static bool all_are_dropped;

int
settings_election_index(const char *name, int len)
{
	assert_int_equal(strlen(name), len);
	assert_true(len > 0);		/* not of what lies behind the tallies */
	return all_are_dropped || strcmp(name, dropped) == 0 ? -1 : 0;
}

/* ---- the memory ------------------------------------------------------------------------ */

static int
set_up(void **unused)
{
	dropped = "";
	all_are_dropped = false;
	pg_at_moment = NULL;
	pg_wall_clock = 5000;
	if (*stats_part.memory == NULL)
		*stats_part.memory = calloc(2, stats_part.size);
	memset(*stats_part.memory, 0, stats_part.size);
	stats_part.init();
	return 0;
}

static void
check_tally(const char *election, int64 expected_won, int64 expected_lost)
{
	int64		won = -1;
	int64		lost = -1;

	stats_tally(election, &won, &lost);
	assert_int_equal(won, expected_won);
	assert_int_equal(lost, expected_lost);
}

/* ---- tests ----------------------------------------------------------------------------- */

static void
test_counters(void **unused)
{
	assert_int_equal(stats_reset_at(), 5000);
	for (int i = 0; i < COUNTER_COUNT; i++)
		assert_int_equal(stats_counter(i), 0);
	for (int i = 0; i < COUNTER_COUNT; i++)
	{
		stats_count(i, i + 1);
		stats_count(i, 1);
	}
	for (int i = 0; i < COUNTER_COUNT; i++)
		assert_int_equal(stats_counter(i), i + 2);
	stats_count_won("jobs");
	pg_wall_clock = 6000;
	stats_reset();
	assert_int_equal(stats_reset_at(), 6000);
	for (int i = 0; i < COUNTER_COUNT; i++)
		assert_int_equal(stats_counter(i), 0);
	check_tally("jobs", 0, 0);
	/* it leads, and what it loses now counts */
	stats_count_lost("jobs", ELECTION_REASON_RESIGNED);
	check_tally("jobs", 0, 1);
}

static void
test_latencies(void **unused)
{
	int64		sum = 0;

	for (int bucket = 0; bucket < SHARED_LATENCY_BUCKETS; bucket++)
	{
		int64		limit_ns = stats_latency_limit_ns(bucket);

		assert_true(limit_ns > 0);
		assert_true(bucket == 0 || limit_ns > stats_latency_limit_ns(bucket - 1));
		/* the limit is in its bucket, and what is above in the next */
		stats_count_latency(limit_ns);
		assert_int_equal(stats_counter(COUNTER_LATENCY_BUCKETS + bucket), bucket == 0 ? 1 : 2);
		stats_count_latency(limit_ns + 1);
		assert_int_equal(stats_counter(COUNTER_LATENCY_BUCKETS + bucket + 1), 1);
		sum += 2 * limit_ns + 1;
		assert_int_equal(stats_counter(COUNTER_LATENCY_NS_SUM), sum);
		assert_int_equal(stats_counter(COUNTER_ANSWERS), 2 * bucket + 2);
		assert_int_equal(stats_counter(COUNTER_LATENCY_NS_MAX), limit_ns + 1);
	}
	assert_int_equal(stats_latency_limit_ns(0), NSEC_PER_MSEC / 2);
	assert_int_equal(stats_latency_limit_ns(SHARED_LATENCY_BUCKETS - 1), 2500 * NSEC_PER_MSEC);
	stats_count_latency(1000);
	assert_int_equal(stats_counter(COUNTER_LATENCY_NS_MAX), 2500 * NSEC_PER_MSEC + 1);
	/* none is far above all limits */
	stats_count_latency(3600 * NSEC_PER_SEC);
	assert_int_equal(stats_counter(COUNTER_LATENCY_BUCKETS + SHARED_LATENCY_BUCKETS), 2);
}

static void
test_tallies(void **unused)
{
	check_tally("jobs", 0, 0);
	stats_count_lost("jobs", ELECTION_REASON_RESIGNED);
	check_tally("jobs", 0, 0);
	stats_count_won("jobs");
	stats_count_won("mail");
	stats_count_lost("jobs", ELECTION_REASON_RESIGNED);
	stats_count_won("jobs");
	check_tally("jobs", 2, 1);
	check_tally("mail", 1, 0);
	assert_int_equal(stats_counter(COUNTER_ELECTIONS_WON), 3);
	assert_int_equal(stats_counter(COUNTER_ELECTIONS_LOST + ELECTION_REASON_RESIGNED), 2);
	assert_int_equal(stats_counter(COUNTER_ELECTIONS_LOST + ELECTION_REASON_SHUTDOWN), 0);
}

static void
win_all(void)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		char		name[ELECTION_NAME_SIZE];

		snprintf(name, sizeof(name), "election %d", i);
		stats_count_won(name);
		stats_count_won(name);
		stats_count_lost(name, ELECTION_REASON_RESIGNED);
	}
}

/* An election that has left the settings makes room for another one. */
static void
test_room_for_tallies(void **unused)
{
	win_all();
	stats_count_won("one more");
	check_tally("one more", 0, 0);
	assert_int_equal(stats_counter(COUNTER_ELECTIONS_WON), 2 * ELECTION_MAX_ELECTIONS + 1);
	stats_count_lost("one more", ELECTION_REASON_RESIGNED);
	dropped = "election 7";
	stats_count_won("one more");
	check_tally("one more", 1, 0);
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		char		name[ELECTION_NAME_SIZE];

		snprintf(name, sizeof(name), "election %d", i);
		check_tally(name, i == 7 ? 0 : 2, i == 7 ? 0 : 1);
	}

	/* a free place is taken before that of an election that may come back */
	(void) set_up(NULL);
	stats_count_won("jobs");
	all_are_dropped = true;
	stats_count_won("mail");
	check_tally("jobs", 1, 0);
	check_tally("mail", 1, 0);
}

/* A leadership that ended with its elector is counted as lost by the next one. */
static void
test_forgotten_losses(void **unused)
{
	stats_count_won("jobs");
	stats_count_won("mail");
	stats_count_lost("mail", ELECTION_REASON_RESIGNED);
	stats_part.elector_begins();
	check_tally("jobs", 1, 1);
	check_tally("mail", 1, 1);
	assert_int_equal(stats_counter(COUNTER_ELECTIONS_LOST + ELECTION_REASON_SHUTDOWN), 1);
	stats_part.elector_begins();
	check_tally("jobs", 1, 1);
	stats_count_won("jobs");
	stats_part.elector_begins();
	check_tally("jobs", 2, 2);
	assert_int_equal(stats_counter(COUNTER_ELECTIONS_LOST + ELECTION_REASON_SHUTDOWN), 2);
}

/* The tally of an election is given to another one, while somebody reads it. */
static int	nmoments;
static int	stop_at;
static const char *read_name;

static void
give_away(void)
{
	if (++nmoments != stop_at)
		return;
	pg_at_moment = NULL;
	dropped = "election 7";
	stats_count_won("one more");
}

static void
read_within(void)
{
	int64		won;
	int64		lost;

	if (++nmoments != stop_at)
		return;
	pg_at_moment = NULL;
	stats_tally(read_name, &won, &lost);
	assert_true((won == 0 && lost == 0) || (strcmp(read_name, "election 7") == 0 && won == 2 && lost == 1));
}

static void
test_tally_is_given_away(void **unused)
{
	for (stop_at = 1; stop_at < 12; stop_at++)
	{
		int64		won;
		int64		lost;

		(void) set_up(NULL);
		win_all();
		nmoments = 0;
		pg_at_moment = give_away;
		stats_tally("election 7", &won, &lost);
		pg_at_moment = NULL;
		assert_true((won == 0 && lost == 0) || (won == 2 && lost == 1));
	}
	for (int i = 0; i < 24; i++)
	{
		(void) set_up(NULL);
		win_all();
		dropped = "election 7";
		read_name = i % 2 ? "election 7" : "one more";
		stop_at = i / 2 + 1;
		nmoments = 0;
		pg_at_moment = read_within;
		stats_count_won("one more");
		pg_at_moment = NULL;
		check_tally("one more", 1, 0);
		check_tally("election 7", 0, 0);
	}
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		A_TEST(test_counters),
		A_TEST(test_latencies),
		A_TEST(test_tallies),
		A_TEST(test_room_for_tallies),
		A_TEST(test_forgotten_losses),
		A_TEST(test_tally_is_given_away),
	};

	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
