/*-------------------------------------------------------------------------
 *
 * events.c
 *	  Events, and waiting for them.
 *
 * Two rings: one of changes of other keys, which may come in a flood, and one
 * of all other events.  Readers put them together by their numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "event_ring.h"
#include "events.h"

/*
 * The changes that are kept: some seconds of a flood.  More than 256 of the
 * longest ones fit in.
 */
#ifndef CHANGES_PLACES			/* the simulator has less */
#define CHANGES_PLACES	16384
#endif
#define CHANGES_BYTES	(4 * 1024 * 1024)

/* The strings of an event.  A record holds only the used part of each. */
static const struct
{
	Size		offset;
	Size		size;
}			event_strings[] = {
#define EVENT_STRING(member) \
	{offsetof(SharedEvent, member), sizeof(((SharedEvent *) NULL)->member)}
	EVENT_STRING(election), EVENT_STRING(node), EVENT_STRING(leader), EVENT_STRING(reason),
	EVENT_STRING(key), EVENT_STRING(value)
};

/* An event in a ring; the strings follow, each with its NUL. */
typedef struct EventRecord
{
	int			kind;
	bool		has_leader;
	bool		has_value;
	int64		leader_revision;
	int64		revision;
	char		strings[FLEXIBLE_ARRAY_MEMBER];
} EventRecord;

/* No record is larger: an event is its strings, and more than the rest. */
typedef union EventBuffer
{
	EventRecord record;
	char		bytes[sizeof(SharedEvent)];
} EventBuffer;

StaticAssertDecl(CHANGES_BYTES / sizeof(SharedEvent) >= 256, "too few changes are kept");

typedef struct Events
{
	/*
	 * Processes that wait for anything to be published, and the notifiers,
	 * which wait for events only, and must not delay sessions that wait for
	 * leadership.
	 */
	ConditionVariable published;
	ConditionVariable notifiers_wanted;
	pg_atomic_uint64 change_number; /* advanced before `published` is broadcast */

	pg_atomic_uint64 last_change;	/* the number of the newest change; 0: none */
	int64		start;			/* the last event when this was made */
} Events;

static Events *events = NULL;
static EventRing *elections_ring = NULL;
static EventRing *changes_ring = NULL;

/* The number of the last event: outlives a crash restart. */
static pg_atomic_uint64 *last_event = NULL;

/* ---- life ------------------------------------------------------------ */

static void
init_events(void)
{
	ConditionVariableInit(&events->published);
	ConditionVariableInit(&events->notifiers_wanted);
	pg_atomic_init_u64(&events->change_number, 0);
	pg_atomic_init_u64(&events->last_change, 0);

	/*
	 * A crash restart loses events that nobody has read, and the end of a
	 * leadership is not announced.  So a number is skipped, which readers notice.
	 */
	events->start = events_last() + 1;
	pg_atomic_write_u64(last_event, (uint64) events->start);
}

const SharedPart events_part = {
	.name = "etcd_leader events", .size = sizeof(Events), .memory = (void **) &events,
	.init = init_events
};

static void
init_elections_ring(void)
{
	event_ring_init(elections_ring, SHARED_EVENTS, SHARED_EVENTS * sizeof(EventBuffer));
}

const SharedPart elections_ring_part = {
	.name = "etcd_leader events of elections",
	.size = EVENT_RING_SIZE(SHARED_EVENTS, SHARED_EVENTS * sizeof(EventBuffer)),
	.memory = (void **) &elections_ring, .init = init_elections_ring
};

static void
init_changes_ring(void)
{
	event_ring_init(changes_ring, CHANGES_PLACES, CHANGES_BYTES);
}

const SharedPart changes_ring_part = {
	.name = "etcd_leader changes", .size = EVENT_RING_SIZE(CHANGES_PLACES, CHANGES_BYTES),
	.memory = (void **) &changes_ring, .init = init_changes_ring,
	.is_large = true
};

static void
init_event_number(void)
{
	pg_atomic_init_u64(last_event, (uint64) Max(GetCurrentTimestamp(), 0));
}

const SharedPart event_number_part = {
	.name = "number of events", .size = sizeof(pg_atomic_uint64), .memory = (void **) &last_event,
	.init = init_event_number,
	.is_lasting = true
};

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

const char *
events_kind_name(const SharedEvent *event)
{
	return event->kind == EVENT_CHANGE ? EVENT_CHANGE_NAME : election_event_name(event->kind);
}

/* Writes an event as a record; its length. */
static Size
write_record(const SharedEvent *event, EventRecord *record)
{
	char	   *end = record->strings;

	record->kind = event->kind;
	record->has_leader = event->has_leader;
	record->has_value = event->has_value;
	record->leader_revision = event->leader_revision;
	record->revision = event->revision;
	for (Size i = 0; i < lengthof(event_strings); i++)
		end += strlcpy(end, (const char *) event + event_strings[i].offset,
					   event_strings[i].size) + 1;
	return end - (char *) record;
}

static void
read_record(const EventRecord *record, SharedEvent *event)
{
	const char *string = record->strings;

	memset(event, 0, sizeof(SharedEvent));
	event->kind = record->kind;
	event->has_leader = record->has_leader;
	event->has_value = record->has_value;
	event->leader_revision = record->leader_revision;
	event->revision = record->revision;
	for (Size i = 0; i < lengthof(event_strings); i++)
		string += strlcpy((char *) event + event_strings[i].offset, string,
						  event_strings[i].size) + 1;
}

void
events_append(SharedEvent *event)
{
	EventBuffer buffer;
	Size		len = write_record(event, &buffer.record);

	event->seq = events_last() + 1;
	event_ring_append(event->kind == EVENT_CHANGE ? changes_ring : elections_ring,
					  event->seq, event->at, &buffer, len);
	pg_write_barrier();			/* ring.pml: RECORD_APPENDED */
	pg_atomic_write_u64(last_event, (uint64) event->seq);
	if (event->kind == EVENT_CHANGE)
	{
		pg_write_barrier();		/* ring.pml: CHANGE_COUNTED */
		pg_atomic_write_u64(&events->last_change, (uint64) event->seq);
	}
}

void
events_restore(const SharedEvent *event)
{
	EventBuffer buffer;
	Size		len = write_record(event, &buffer.record);

	event_ring_append(elections_ring, event->seq, event->at, &buffer, len);
}

void
events_continue_after(int64 last)
{
	events->start = last;
	pg_atomic_write_u64(last_event, (uint64) last);
}

int64
events_last(void)
{
	return (int64) pg_atomic_read_u64(last_event);
}

int64
events_last_change(void)
{
	int64		seq = (int64) pg_atomic_read_u64(&events->last_change);

	/* the events that are read afterwards are there up to this one */
	pg_read_barrier();			/* ring.pml: CHANGE_READ */
	return seq;
}

int64
events_start(void)
{
	return events->start;
}

/* The event that reports a loss of changes. */
static void
make_gap(SharedEvent *event)
{
	memset(event, 0, sizeof(SharedEvent));
	event->kind = EVENT_CHANGE;
	strlcpy(event->reason, EVENT_REASON_GAP, sizeof(event->reason));
}

/*
 * The first event of one ring, up to `last`.  A loss of changes is an event,
 * too, with the number of the last one that is lost.  False: none such.
 * *outrun: there was a loss, and the events that follow are above `last`.
 */
static bool
next_of_ring(EventRing *ring, int64 after, int64 last, SharedEvent *event, bool *outrun)
{
	EventBuffer buffer;
	int64		seq;
	TimestampTz at;
	RingResult	result = event_ring_next(ring, after, &seq, &at, &buffer, sizeof(buffer));
	bool		lost = result == RING_LOST;

	while (result == RING_LOST && ring == elections_ring)
		result = event_ring_next(ring, seq, &seq, &at, &buffer, sizeof(buffer));
	if (result == RING_NONE || seq > last)
	{
		*outrun |= lost;
		return false;
	}
	if (result == RING_LOST)
		make_gap(event);
	else
		read_record(&buffer.record, event);
	event->seq = seq;
	event->at = at;
	event->follows_loss = lost && ring == elections_ring;
	return true;
}

/*
 * Events that were appended after `last` was read are left for the next call:
 * an event in one ring can be newer than an event that was not in the other
 * ring yet.
 */
bool
events_next_of(EventSources sources, int64 after, SharedEvent *event)
{
	int64		last = events_last();
	bool		outrun;

	if (after < 0 || after > last)
		after = 0;
	do
	{
		SharedEvent change;
		bool		found = false;

		pg_read_barrier();		/* ring.pml: LAST_READ */
		outrun = false;
		if (sources != EVENTS_OF_CHANGES)
			found = next_of_ring(elections_ring, after, last, event, &outrun);
		if (sources != EVENTS_BUT_CHANGES &&
			next_of_ring(changes_ring, after, last, &change, &outrun) &&
			(!found || change.seq < event->seq))
		{
			*event = change;
			found = true;
		}
		if (found && !outrun)
			return true;
		last = events_last();
	} while (outrun);
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

	/* the values that are read afterwards are not older */
	pg_read_barrier();			/* handshake.pml: CHANGE_SEEN */
	return number;
}

bool
events_wait_for_change(uint64 seen, long timeout_ms, uint32 wait_event)
{
	int			wake_events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (timeout_ms >= 0)
		wake_events |= WL_TIMEOUT;

	/*
	 * This process is on the list of those that are woken, but waits for its
	 * latch itself.  A sleep on the condition variable would not end when
	 * somebody else sets the latch.
	 */
	ConditionVariablePrepareToSleep(&events->published);
	if (events_change_number() == seen &&
		(WaitLatch(MyLatch, wake_events, timeout_ms, wait_event) & WL_LATCH_SET) != 0)
		ResetLatch(MyLatch);
	ConditionVariableCancelSleep();
	CHECK_FOR_INTERRUPTS();
	return events_change_number() != seen;
}
