/*-------------------------------------------------------------------------
 *
 * notifier_register_test.c
 *	  Tests of shared/notifier_register.c: one notifier for each database, which leaves when
 *	  it is told, and knows how far it has come.
 *
 * Process 0 is the elector, 1 and 2 are notifiers, and 3 is a backend.  What others do
 * happens while a process sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/notifier_register.h"
#include "small_server.h"

static const SharedPart *const parts[] = {
	&event_number_part, &events_part, &elections_ring_part, &changes_ring_part,
	&notifier_register_part
};

#define START_NS	(1000 * NSEC_PER_SEC)
#define NO_CHANGES	PG_INT64_MAX

/* ---- what the files need of others --------------------------------------------- */

char	   *settings_notify_databases = "app,other,third";
static bool in_recovery;

bool
RecoveryInProgress(void)
{
	return in_recovery;
}

List *
settings_split(const char *value)
{
	static List list = {.type = T_List, .length = 3};

	assert_string_equal(value, settings_notify_databases);
	return &list;
}

const char *
election_event_name(ElectionEventKind kind)
{
	return NULL;
}

/* What the elector does between two steps of a claim. */
static void (*at_claim) (void);

extern void __real_before_shmem_exit(pg_on_exit_callback function, Datum arg);
extern void __wrap_before_shmem_exit(pg_on_exit_callback function, Datum arg);

void
__wrap_before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	if (at_claim)
		at_claim();
	__real_before_shmem_exit(function, arg);
}

/* ---- the world ---------------------------------------------------------------------- */

static uint64 ticket;			/* of the slot that was given last */
static int	slot;

static int
set_up(void **unused)
{
	for (size_t i = 0; i < lengthof(parts); i++)
	{
		if (*parts[i]->memory == NULL)
			*parts[i]->memory = malloc(parts[i]->size);
		memset(*parts[i]->memory, 0, parts[i]->size);
		if (parts[i]->init)
			parts[i]->init();
	}
	pg_others = NULL;
	at_claim = NULL;
	now_ns = START_NS;
	pg_wall_clock = INT64CONST(820454400000000);
	pg_nsleeps = 0;
	pg_be(0);
	slot = notifier_register_slot("app", events_last(), &ticket);
	assert_int_equal(slot, 0);
	return 0;
}

static int
tear_down(void **unused)
{
	for (int i = 0; i < PG_PROCESSES; i++)
		assert_false(pg_is_on_wait_list(i));
	pg_others = NULL;
	pg_end(0);
	return 0;
}

static void
append(int kind)
{
	SharedEvent event;

	memset(&event, 0, sizeof(event));
	event.kind = kind;
	events_append(&event);
	events_wake_all();
}

static void
forget(void)
{
	pg_be(0);
	notifier_register_forget(slot);
}

static void
bar(void)
{
	pg_be(3);
	notifier_register_bar(slot);
}

static void
give_anew(void)
{
	uint64		next;

	pg_be(0);
	assert_int_equal(notifier_register_slot("app", 0, &next), slot);
	assert_true(next != ticket);
	events_wake_all();
}

static void
end_notifier(void)
{
	pg_be(2);
	pg_end(0);
}

/* ---- slots -------------------------------------------------------------------------- */

static void
test_slots(void **unused)
{
	uint64		tickets[SETTINGS_MAX_DATABASES];
	uint64		another;
	char		name[NAMEDATALEN];

	assert_string_equal(notifier_register_database(0), "app");
	assert_null(notifier_register_database(1));
	assert_int_equal(notifier_register_find("other"), -1);
	for (int i = 1; i < SETTINGS_MAX_DATABASES; i++)
	{
		snprintf(name, sizeof(name), "database %d", i);
		assert_int_equal(notifier_register_slot(name, 100 + i, &tickets[i]), i);
		assert_int_equal(notifier_register_find(name), i);
		assert_string_equal(notifier_register_database(i), name);
		assert_int_equal(notifier_register_announced(i), 100 + i);
	}
	assert_int_equal(notifier_register_slot("one more", 0, &another), -1);
	assert_int_equal(notifier_register_find("one more"), -1);

	/* a database keeps its mark, and its notifier gets another ticket */
	notifier_register_set_announced(5, 400);
	assert_int_equal(notifier_register_slot("database 5", 1, &another), 5);
	assert_int_equal(notifier_register_announced(5), 400);
	assert_int_not_equal(another, tickets[5]);
	pg_be(1);
	assert_false(notifier_register_claim(5, tickets[5]));
	assert_true(notifier_register_claim(5, another));

	/* a place is given away after its notifier has left, and begins anew */
	notifier_register_forget(5);
	assert_null(notifier_register_database(5));
	assert_int_equal(notifier_register_find("database 5"), -1);
	assert_int_equal(notifier_register_slot("one more", 7, &another), -1);
	pg_end(0);
	assert_int_equal(notifier_register_slot("one more", 7, &another), 5);
	assert_int_equal(notifier_register_announced(5), 7);
}

static void
test_numbers(void **unused)
{
	uint64		other;

	assert_int_equal(notifier_register_expected(), 3);
	in_recovery = true;
	assert_int_equal(notifier_register_expected(), 0);
	in_recovery = false;

	assert_int_equal(notifier_register_running(), 0);
	(void) notifier_register_slot("other", 0, &other);
	assert_int_equal(notifier_register_running(), 0);
	pg_be(1);
	assert_true(notifier_register_claim(0, ticket));
	assert_int_equal(notifier_register_running(), 1);
	assert_true(notifier_register_claim(1, other));
	assert_int_equal(notifier_register_running(), 2);
	/* one that is dismissed, and has not left yet, does not count */
	notifier_register_forget(1);
	assert_int_equal(notifier_register_running(), 1);
	pg_end(0);
	assert_int_equal(notifier_register_running(), 0);
}

/* ---- the life of a notifier ------------------------------------------------------------ */

/* One waits until the one before has left. */
static void
test_one_at_a_time(void **unused)
{
	pg_be(2);
	assert_true(notifier_register_claim(slot, ticket));
	assert_int_equal(notifier_register_slot("app", 0, &ticket), slot);
	pg_be(1);
	pg_others = end_notifier;
	assert_true(notifier_register_claim(slot, ticket));
	assert_int_equal(pg_nsleeps, 1);
	assert_int_equal(notifier_register_running(), 1);
}

static void
begin_elector(void)
{
	pg_be(0);
	notifier_register_part.elector_begins();
	events_wake_all();
}

/* It gives up when it is dismissed, or barred, before, in and after its wait. */
static void
test_not_admitted(void **unused)
{
	void		(*const ways[]) (void) = {forget, bar, give_anew, begin_elector};

	for (size_t i = 0; i < lengthof(ways); i++)
	{
		for (int moment = 0; moment < 3; moment++)
		{
			(void) set_up(NULL);
			if (moment == 0)
				ways[i]();
			else if (moment == 1)
			{
				pg_be(2);
				assert_true(notifier_register_claim(slot, ticket));
				pg_others = ways[i];
			}
			else
				at_claim = ways[i];
			pg_be(1);
			assert_false(notifier_register_claim(slot, ticket));
			/* what it has claimed ends with it */
			pg_end(0);
			pg_be(0);
			assert_int_equal(notifier_register_running(), 0);
		}
	}
}

/* Several sessions bar it, until each of them has had its way. */
static void
test_bars(void **unused)
{
	assert_int_equal(notifier_register_bars(slot), 0);
	assert_false(notifier_register_is_barred(slot));
	notifier_register_bar(slot);
	notifier_register_bar(slot);
	notifier_register_unbar(slot);
	assert_true(notifier_register_is_barred(slot));
	assert_int_equal(notifier_register_bars(slot), 2);
	pg_be(1);
	assert_false(notifier_register_claim(slot, ticket));
	notifier_register_unbar(slot);
	assert_false(notifier_register_is_barred(slot));
	assert_int_equal(notifier_register_bars(slot), 2);
	assert_true(notifier_register_claim(slot, ticket));
}

static void
test_wait_for_leave(void **unused)
{
	pg_be(3);
	assert_true(notifier_register_wait_for_leave(slot, 0));
	pg_be(2);
	assert_true(notifier_register_claim(slot, ticket));
	pg_be(3);
	assert_false(notifier_register_wait_for_leave(slot, 0));
	assert_int_equal(pg_nsleeps, 0);
	assert_false(notifier_register_wait_for_leave(slot, 5000));
	assert_true(now_ns >= START_NS + 5 * NSEC_PER_SEC && now_ns < START_NS + 6 * NSEC_PER_SEC);
	pg_others = end_notifier;
	assert_true(notifier_register_wait_for_leave(slot, 5000));
	assert_true(now_ns < START_NS + 6 * NSEC_PER_SEC);
}

/* ---- waiting for events -------------------------------------------------------------- */

static int
waited_ms(void)
{
	return (int) ((now_ns - START_NS) / NSEC_PER_MSEC);
}

static bool
wait(int pause_ms, int64 changes_due_us)
{
	now_ns = START_NS;
	pg_be(1);
	return notifier_register_wait(slot, ticket, pause_ms, changes_due_us, PG_WAIT_EXTENSION);
}

static void
append_election(void)
{
	pg_be(0);
	now_ns += 70 * NSEC_PER_MSEC;
	append(ELECTION_EVENT_LEADER);
	pg_others = NULL;
}

static void
append_change(void)
{
	pg_be(0);
	now_ns += 70 * NSEC_PER_MSEC;
	append(EVENT_CHANGE);
	pg_others = NULL;
}

static void
announce_all(void)
{
	notifier_register_set_announced(slot, events_last());
}

static void
test_wait(void **unused)
{
	int64		due_us = START_NS / 1000 + 500000;

	pg_be(1);
	assert_true(notifier_register_claim(slot, ticket));

	/* until an event comes */
	pg_others = append_election;
	assert_true(wait(0, NO_CHANGES));
	assert_int_equal(waited_ms(), 70);
	/* it is there already; but the pause counts */
	assert_true(wait(0, NO_CHANGES));
	assert_int_equal(waited_ms(), 0);
	assert_true(wait(300, NO_CHANGES));
	assert_true(waited_ms() >= 300 && waited_ms() <= 301);
	announce_all();
	pg_others = append_election;
	assert_true(wait(300, NO_CHANGES));
	assert_true(waited_ms() >= 300 && waited_ms() <= 301);
	announce_all();

	/* changes wait for their time, and other events do not */
	pg_others = append_change;
	assert_true(wait(0, due_us));
	assert_true(waited_ms() >= 500 && waited_ms() <= 501);
	assert_true(wait(0, due_us));
	assert_true(waited_ms() >= 500 && waited_ms() <= 501);
	pg_others = append_election;
	assert_true(wait(0, due_us));
	assert_int_equal(waited_ms(), 70);
	announce_all();
	append(EVENT_CHANGE);
	assert_true(wait(0, START_NS / 1000));
	assert_int_equal(waited_ms(), 0);
	announce_all();
	pg_others = append_election;
	assert_true(wait(0, START_NS / 1000));
	assert_int_equal(waited_ms(), 70);
}

/* It leaves at once when it is told, whether there are events or not. */
static void
test_dismissed_in_wait(void **unused)
{
	void		(*const ways[]) (void) = {forget, bar, give_anew, begin_elector};

	for (size_t i = 0; i < lengthof(ways); i++)
	{
		(void) set_up(NULL);
		pg_be(1);
		assert_true(notifier_register_claim(slot, ticket));
		pg_others = ways[i];
		assert_false(wait(i % 2 ? 1000 : 0, NO_CHANGES));
		assert_int_equal(waited_ms(), 0);
		append(ELECTION_EVENT_LEADER);
		assert_false(wait(0, NO_CHANGES));
		pg_end(0);
	}
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		A_TEST(test_slots),
		A_TEST(test_numbers),
		A_TEST(test_one_at_a_time),
		A_TEST(test_not_admitted),
		A_TEST(test_bars),
		A_TEST(test_wait_for_leave),
		A_TEST(test_wait),
		A_TEST(test_dismissed_in_wait),
	};

	return cmocka_run_group_tests_name("notifier_register", tests, NULL, NULL);
}
