/*-------------------------------------------------------------------------
 *
 * events.c
 *	  What has happened, and waiting for it.
 *
 * A ring.  Each place says which event is in it; a reader looks at that before
 * and after it copies the event.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "events.h"

typedef struct EventPlace
{
	pg_atomic_uint64 seq;		/* 0: being written */
	SharedEvent event;
} EventPlace;

typedef struct Events
{
	/*
	 * Who waits for anything to be published; and the notifiers, which wait
	 * for events alone, and are not to be in the way of those who wait to
	 * lead.
	 */
	ConditionVariable published;
	ConditionVariable notifiers_wanted;
	pg_atomic_uint64 change_number; /* advanced before `published` is broadcast */

	int64		start;			/* the last event when this was made */
	EventPlace	ring[SHARED_EVENTS];
} Events;

static Events *events = NULL;

/* The number of the last event: outlives a crash restart. */
static pg_atomic_uint64 *last_event = NULL;

/* ---- life ------------------------------------------------------------ */

static Size
events_size(void)
{
	return sizeof(Events);
}

static void
init_events(void)
{
	ConditionVariableInit(&events->published);
	ConditionVariableInit(&events->notifiers_wanted);
	pg_atomic_init_u64(&events->change_number, 0);
	events->start = events_last();
	for (int i = 0; i < SHARED_EVENTS; i++)
		pg_atomic_init_u64(&events->ring[i].seq, 0);
}

const SharedPart events_part = {"etcd_leader events", events_size, (void **) &events, init_events};

static Size
event_number_size(void)
{
	return sizeof(pg_atomic_uint64);
}

static void
init_event_number(void)
{
	pg_atomic_init_u64(last_event, (uint64) Max(GetCurrentTimestamp(), 0));
}

const SharedPart event_number_part = {"number of events", event_number_size, (void **) &last_event, init_event_number};

ConditionVariable *
events_for_notifiers(void)
{
	return &events->notifiers_wanted;
}

/* ---- events ----------------------------------------------------------- */

void
events_wake(void)
{
	pg_atomic_fetch_add_u64(&events->change_number, 1);
	ConditionVariableBroadcast(&events->published);
}

void
events_wake_all(void)
{
	events_wake();
	ConditionVariableBroadcast(&events->notifiers_wanted);
}

static EventPlace *
event_place(int64 seq)
{
	return &events->ring[seq % SHARED_EVENTS];
}

void
events_append(SharedEvent *event)
{
	EventPlace *place;

	event->seq = events_last() + 1;
	place = event_place(event->seq);

	pg_atomic_write_u64(&place->seq, 0);
	pg_write_barrier();
	place->event = *event;
	pg_write_barrier();
	pg_atomic_write_u64(&place->seq, (uint64) event->seq);
	pg_write_barrier();
	pg_atomic_write_u64(last_event, (uint64) event->seq);

	events_wake_all();
}

int64
events_last(void)
{
	return (int64) pg_atomic_read_u64(last_event);
}

int64
events_start(void)
{
	return events->start;
}

/* Copies an event out; false if it was overwritten, or is being so. */
static bool
read_event(int64 seq, SharedEvent *event)
{
	EventPlace *place = event_place(seq);

	if (pg_atomic_read_u64(&place->seq) != (uint64) seq)
		return false;
	pg_read_barrier();
	*event = place->event;
	pg_read_barrier();
	return pg_atomic_read_u64(&place->seq) == (uint64) seq;
}

bool
events_next(int64 after, SharedEvent *event)
{
	int64		last = events_last();
	int64		seq;

	if (after < 0 || after > last)
		after = 0;

	for (seq = after + 1; seq <= last; seq++)
	{
		pg_read_barrier();
		seq = Max(seq, last - SHARED_EVENTS + 1);
		if (read_event(seq, event))
			return true;
		last = events_last();
	}
	return false;
}

void
events_prepare_to_sleep(void)
{
	ConditionVariablePrepareToSleep(&events->published);
}

bool
events_sleep(long timeout_ms, uint32 wait_event)
{
	return !ConditionVariableTimedSleep(&events->published, timeout_ms, wait_event);
}

void
events_cancel_sleep(void)
{
	ConditionVariableCancelSleep();
}

uint64
events_change_number(void)
{
	uint64		number = pg_atomic_read_u64(&events->change_number);

	/* what is read afterwards is not older */
	pg_read_barrier();
	return number;
}

bool
events_wait_for_change(uint64 seen, long timeout_ms, uint32 wait_event)
{
	int			wake_events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (timeout_ms >= 0)
		wake_events |= WL_TIMEOUT;

	/*
	 * On the list of those who are woken, this waits for its latch itself: a
	 * sleep on the condition variable would not end for anybody else who sets
	 * it.
	 */
	ConditionVariablePrepareToSleep(&events->published);
	if (events_change_number() == seen &&
		(WaitLatch(MyLatch, wake_events, timeout_ms, wait_event) & WL_LATCH_SET) != 0)
		ResetLatch(MyLatch);
	ConditionVariableCancelSleep();
	CHECK_FOR_INTERRUPTS();
	return events_change_number() != seen;
}
