/*-------------------------------------------------------------------------
 *
 * events_test.c
 *	  Tests of shared/events.c: readers get the events in order, and are told of
 *	  those that are lost, also if the elector appends while they read, and over
 *	  restarts.  And who waits for something that is published is woken.
 *
 * The two rings are small, so that they overrun.  The test is the elector, and
 * appends before any look of a reader into a ring.  event_ring_test.c stops both sides
 * within such a look.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "shared/event_ring.h"
#include "shared/events.h"
#include "small_server.h"

#define MAX_EVENTS	64
#define WALL_CLOCK	INT64CONST(820454400000000)

static const SharedPart *const parts[] = {
	&event_number_part, &events_part, &elections_ring_part, &changes_ring_part
};

/* What was appended. */
static int64 base;				/* the number before the first event */
static bool is_change[MAX_EVENTS];

/* What the elector appends, and before which look of the reader. */
static int	nlooks;
static int	append_at;			/* 0: never */
static int	nappends;
static int	pattern;

/* ---- the elector ------------------------------------------------------------------ */

static void
append(bool change)
{
	int64		number = events_last() - base;
	SharedEvent event = {.kind = change ? EVENT_CHANGE : ELECTION_EVENT_LEADER, .at = pg_wall_clock++};

	assert_true(number >= 0 && number < MAX_EVENTS);
	is_change[number] = change;
	snprintf(change ? event.key : event.election, ELECTION_NAME_SIZE, "number " INT64_FORMAT, number);
	events_append(&event);
	assert_int_equal(event.seq, base + number + 1);
	assert_int_equal(events_last(), event.seq);
}

/* Each bit of the pattern, from the lowest on and again and again, is a change or not. */
static void
append_some(int n)
{
	for (int i = 0; i < n; i++)
		append((pattern >> i % 4 & 1) != 0);
}

extern RingResult __real_event_ring_next(EventRing *ring, int64 after, int64 *seq, TimestampTz *at, void *record, Size size);
extern RingResult __wrap_event_ring_next(EventRing *ring, int64 after, int64 *seq, TimestampTz *at, void *record, Size size);

/* A look of the reader into a ring. */
RingResult
__wrap_event_ring_next(EventRing *ring, int64 after, int64 *seq, TimestampTz *at, void *record, Size size)
{
	if (++nlooks == append_at)
		append_some(nappends);
	return __real_event_ring_next(ring, after, seq, at, record, size);
}

/* ---- life ------------------------------------------------------------------------- */

/* A server starts, or starts again after a crash.  Memory that is large may hold anything. */
static void
start(bool after_crash)
{
	for (size_t i = 0; i < lengthof(parts); i++)
	{
		const SharedPart *part = parts[i];

		if (after_crash && part->is_lasting)
			continue;
		if (*part->memory == NULL)
			*part->memory = memset(malloc(part->size), 0x5a, part->size);
		if (!part->is_large)
			memset(*part->memory, 0, part->size);
		part->init();
	}
}

/* A new server, whose reader has seen nothing. */
static void
begin(void)
{
	pg_wall_clock = WALL_CLOCK;
	append_at = nlooks = 0;
	start(false);
	base = events_last();
}

/* A clean restart.  The file of events does the same. */
static void
restart(void)
{
	SharedEvent kept[SHARED_EVENTS + 1];
	int			n = 0;
	int64		next_after = events_last() + (events_last_change() > 0 ? 1 : 0);

	while (events_next_of(EVENTS_BUT_CHANGES, n == 0 ? 0 : kept[n - 1].seq, &kept[n]))
		assert_true(++n <= SHARED_EVENTS);
	pg_wall_clock += 1000000;
	start(false);
	for (int i = 0; i < n; i++)
		events_restore(&kept[i]);
	events_continue_after(next_after);
}

static int
tear_down(void **state)
{
	for (size_t i = 0; i < lengthof(parts); i++)
	{
		free(*parts[i]->memory);
		*parts[i]->memory = NULL;
	}
	return 0;
}

/* ---- the reader ------------------------------------------------------------------- */

static bool
is_gap(const SharedEvent *event)
{
	return event->kind == EVENT_CHANGE && event->key[0] == '\0';
}

/* Does a reader of these sources want that one? */
static bool
is_of(EventSources sources, int64 seq)
{
	return sources == EVENTS_ALL || (sources == EVENTS_OF_CHANGES) == is_change[seq - base - 1];
}

/* Have later events taken the place of that one? */
static bool
has_made_room(int64 seq)
{
	int			nlater = 0;

	for (int64 i = seq - base; i < events_last() - base; i++)
		nlater += is_change[i] == is_change[seq - base - 1];
	return nlater >= (is_change[seq - base - 1] ? CHANGES_PLACES : SHARED_EVENTS);
}

/* Changes were passed over, and the reader has not been told of that yet. */
static bool gap_is_due;

/*
 * A reader that has read up to `after` gets that event.  What is passed over has made
 * room.  The event tells of that; of changes a gap does, before the next change.
 */
static void
check_event(EventSources sources, int64 after, const SharedEvent *event)
{
	bool		change = is_change[event->seq - base - 1];
	bool		lost_change = false;
	bool		lost_other = false;
	char		text[ELECTION_NAME_SIZE];

	assert_true(event->seq > after && event->seq <= events_last());
	assert_int_equal(event->kind == EVENT_CHANGE, change);
	for (int64 seq = after + 1; seq < event->seq; seq++)
	{
		if (!is_of(sources, seq))
			continue;
		assert_true(has_made_room(seq));
		lost_change |= is_change[seq - base - 1];
		lost_other |= !is_change[seq - base - 1];
	}
	gap_is_due |= lost_change;
	if (is_gap(event))
	{
		assert_string_equal(event->reason, EVENT_REASON_GAP);
		assert_true(has_made_room(event->seq));
		assert_false(event->follows_loss);
		gap_is_due = false;
		return;
	}
	assert_false(change && gap_is_due);
	assert_int_equal(event->follows_loss, lost_other && !change);
	snprintf(text, sizeof(text), "number " INT64_FORMAT, event->seq - base - 1);
	assert_string_equal(change ? event->key : event->election, text);
	assert_int_equal(event->at, WALL_CLOCK + event->seq - base - 1);
}

/*
 * Reads on to the end.  A reader may leave only what is appended meanwhile for the next
 * time.
 */
static void
read_all(EventSources sources)
{
	int64		after = base;
	int64		last;

	gap_is_due = false;
	do
	{
		SharedEvent event;

		last = events_last();
		if (events_next_of(sources, after, &event))
		{
			check_event(sources, after, &event);
			after = event.seq;
			continue;
		}
		for (int64 seq = after + 1; seq <= last; seq++)
			assert_false(is_of(sources, seq));
		after = last;
	} while (after < events_last());
	assert_false(gap_is_due);
}

/* ---- tests ------------------------------------------------------------------------ */

/* The elector appends before each look of the reader, up to two rounds of a ring. */
static void
test_elector_appends(void **state)
{
	static const int patterns[] = {0x0, 0x5, 0x7, 0xe, 0xf};
	int			nruns = 0;

	for (size_t i = 0; i < 3 * lengthof(patterns) * lengthof(patterns); i++)
	{
		for (int n = 0; n < 13 * 17; n++)
		{
			bool		more = true;

			for (int at = 1; more; at++)
			{
				begin();
				pattern = patterns[i / 3 % lengthof(patterns)];
				append_some(n % 13);
				pattern = patterns[i / 3 / lengthof(patterns)];
				nappends = n / 13;
				append_at = at;
				read_all(i % 3);
				more = nappends > 0 && nlooks >= at;
				nruns++;
			}
		}
	}
	assert_true(nruns > 100000);
}

/* The notifier announces the changes up to this one. */
static void
test_last_change(void **state)
{
	begin();
	append(false);
	assert_int_equal(events_last_change(), 0);
	append(true);
	append(true);
	assert_int_equal(events_last_change(), base + 3);
	append(false);
	assert_int_equal(events_last_change(), base + 3);
	assert_int_equal(events_last(), base + 4);
}

/*
 * After a clean restart the kept events and the next ones have the numbers that follow
 * each other.  A notifier begins after events_start(), and misses none.
 */
static void
test_clean_restart(void **state)
{
	SharedEvent event;

	begin();
	append(false);
	append(false);
	restart();
	assert_int_equal(events_start(), base + 2);
	assert_false(events_next(events_start(), &event));
	read_all(EVENTS_ALL);
	append(false);
	assert_true(events_next(events_start(), &event));
	assert_int_equal(event.seq, base + 3);
	assert_false(event.follows_loss);

	/* changes are not kept, and a number that is skipped tells of that */
	append(true);
	restart();
	assert_int_equal(events_start(), base + 5);
	assert_int_equal(events_last_change(), 0);
	append(false);
	assert_true(events_next(base + 3, &event));
	assert_int_equal(event.seq, base + 6);
}

/* After a crash no event is there, and a reader sees by the next number that it may have missed some. */
static void
test_crash(void **state)
{
	SharedEvent event;

	begin();
	append(false);
	append(true);
	start(true);
	assert_false(events_next(base, &event));
	assert_int_equal(events_last_change(), 0);
	assert_int_equal(events_start(), base + 3);
	append(false);
	assert_true(events_next(base + 2, &event));
	assert_int_equal(event.seq, base + 4);
	assert_true(events_next(events_start(), &event));
	assert_int_equal(event.seq, base + 4);
}

/*
 * The wall clock was set back before an unclean start.  A client whose number is of before
 * that gets all events anew, and does not wait for that number.
 */
static void
test_clock_set_back(void **state)
{
	SharedEvent event;
	int64		before;

	begin();
	append(false);
	append(true);
	before = events_last();
	pg_wall_clock -= 3600 * INT64CONST(1000000);
	start(false);
	base = events_last();
	assert_true(base < before);
	assert_false(events_next(before, &event));
	append(true);
	append(false);
	for (int sources = EVENTS_ALL; sources <= EVENTS_BUT_CHANGES; sources++)
	{
		assert_true(events_next_of(sources, before, &event));
		assert_int_equal(event.seq, base + (sources == EVENTS_BUT_CHANGES ? 2 : 1));
	}
	/* nor does a number that no server has given out hide any */
	assert_true(events_next(PG_INT64_MIN, &event));
	assert_int_equal(event.seq, base + 1);
	assert_true(events_next(PG_INT64_MAX, &event));
	assert_int_equal(event.seq, base + 1);
	assert_false(events_next(events_last(), &event));
}

/* Each field of an event is there when it is read. */
static void
test_fields(void **state)
{
	SharedEvent event;
	SharedEvent read;

	begin();
	for (int i = 0; i < 4; i++)
	{
		memset(&event, 0, sizeof(event));
		event.kind = i < 2 ? EVENT_CHANGE : ELECTION_EVENT_UNELECTED;
		event.at = 77 + i;
		event.has_leader = i == 2;
		event.has_value = i == 1;
		event.leader_revision = 5 + i;
		event.revision = 9 + i;
		snprintf(event.election, sizeof(event.election), "election %d", i);
		snprintf(event.node, sizeof(event.node), "node %d", i);
		snprintf(event.leader, sizeof(event.leader), "leader %d", i);
		snprintf(event.reason, sizeof(event.reason), "reason %d", i);
		snprintf(event.key, sizeof(event.key), "key %d", i);
		memset(event.value, 'v', i * (sizeof(event.value) - 1) / 3);
		events_append(&event);
		assert_true(events_next(event.seq - 1, &read));
		assert_memory_equal(&read, &event, sizeof(event));
	}
}

/* ---- waiting ---------------------------------------------------------------------------- */

static void
publish(void)
{
	now_ns += 20000000;
	events_wake();
}

static void
set_latch(void)
{
	now_ns += 20000000;
	SetLatch(MyLatch);
}

static void
cancel(void)
{
	pg_is_cancelled = true;
	SetLatch(MyLatch);
}

static void
wait_without_limit(void)
{
	(void) events_wait_for_change(events_change_number(), -1, PG_WAIT_EXTENSION);
}

static int
waited_ms(void)
{
	int			ms = (int) (now_ns / 1000000);

	now_ns = 0;
	return ms;
}

/* Something is published, or the latch is set, or the time is over. */
static void
test_wait_for_change(void **state)
{
	uint64		seen;

	begin();
	pg_be(1);
	(void) waited_ms();
	pg_others = publish;
	seen = events_change_number();
	assert_true(events_wait_for_change(seen, -1, PG_WAIT_EXTENSION));
	assert_int_equal(waited_ms(), 20);
	/* that was before */
	assert_true(events_wait_for_change(seen, -1, PG_WAIT_EXTENSION));
	assert_true(events_wait_for_change(seen, 1000, PG_WAIT_EXTENSION));
	assert_int_equal(waited_ms(), 0);
	assert_int_equal(events_change_number(), seen + 1);

	/* the latch, also from before, ends one wait */
	(void) pg_was_woken(1);
	pg_others = set_latch;
	for (int timeout_ms = -1; timeout_ms <= 1000; timeout_ms += 1001)
	{
		assert_false(events_wait_for_change(seen + 1, timeout_ms, PG_WAIT_EXTENSION));
		assert_int_equal(waited_ms(), 20);
		assert_false(pg_was_woken(1));
		SetLatch(MyLatch);
		assert_false(events_wait_for_change(seen + 1, timeout_ms, PG_WAIT_EXTENSION));
		assert_int_equal(waited_ms(), 0);
		assert_false(pg_was_woken(1));
	}
	/* a latch that was set for something else stays so */
	SetLatch(MyLatch);
	assert_true(events_wait_for_change(seen, -1, PG_WAIT_EXTENSION));
	assert_true(pg_was_woken(1));

	pg_others = NULL;
	assert_false(events_wait_for_change(seen + 1, 70, PG_WAIT_EXTENSION));
	assert_int_equal(waited_ms(), 70);
	assert_false(events_wait_for_change(seen + 1, 0, PG_WAIT_EXTENSION));
	assert_int_equal(waited_ms(), 0);
	pg_others = cancel;
	assert_false(pg_try(wait_without_limit));
	assert_false(pg_is_on_wait_list(1));
}

/* Sessions and notifiers wait apart. */
static void
test_sleep(void **state)
{
	begin();
	pg_be(2);
	ConditionVariablePrepareToSleep(events_for_notifiers());
	pg_be(1);
	(void) pg_was_woken(1);
	(void) pg_was_woken(2);
	events_prepare_to_sleep();
	events_wake();
	assert_false(pg_was_woken(2));
	assert_true(events_sleep(-1, PG_WAIT_EXTENSION));
	pg_others = NULL;
	(void) waited_ms();
	assert_false(events_sleep(50, PG_WAIT_EXTENSION));
	assert_int_equal(waited_ms(), 50);
	events_wake_all();
	assert_true(pg_was_woken(2));
	assert_true(events_sleep(-1, PG_WAIT_EXTENSION));
	events_cancel_sleep();
	assert_false(pg_is_on_wait_list(1));
	events_wake();
	pg_be(2);
	ConditionVariableCancelSleep();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_elector_appends, tear_down),
		cmocka_unit_test_teardown(test_last_change, tear_down),
		cmocka_unit_test_teardown(test_clean_restart, tear_down),
		cmocka_unit_test_teardown(test_crash, tear_down),
		cmocka_unit_test_teardown(test_clock_set_back, tear_down),
		cmocka_unit_test_teardown(test_fields, tear_down),
		cmocka_unit_test_teardown(test_wait_for_change, tear_down),
		cmocka_unit_test_teardown(test_sleep, tear_down),
	};

	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
