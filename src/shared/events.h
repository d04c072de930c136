/*-------------------------------------------------------------------------
 *
 * events.h
 *	  Events, and waiting for them.
 *
 * The elector appends events; everybody else reads them, and sleeps until
 * something is published.  Readers take no lock, and the elector may be stopped
 * at any instruction.  An exit callback may call all but what sleeps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef EVENTS_H
#define EVENTS_H

#include "protocol/election.h"
#include "shared/part.h"
#include "storage/condition_variable.h"

/*
 * The number of events of elections and of the contact with etcd that are kept.  Changes of
 * other keys have a ring of their own: however many there are, the others stay.
 */
#ifndef SHARED_EVENTS			/* the simulator has less */
#define SHARED_EVENTS 512
#endif

/* A change of a key below a watched prefix, beside the kinds of the protocol. */
#define EVENT_CHANGE	(ELECTION_EVENT_DRAIN_CANCELLED + 1)

/* Between two notifications of changes, and between two begins of a hook for them. */
#define EVENTS_CHANGES_PAUSE_MS	100

/* What SQL calls it. */
#define EVENT_CHANGE_NAME	"change"

/*
 * The maximum number of bytes that are kept of a key and of a value, and a
 * NUL.
 */
#define EVENT_TEXT_SIZE	1001

typedef struct SharedEvent
{
	int64		seq;			/* see below */
	TimestampTz at;
	int			kind;			/* ElectionEventKind or EVENT_CHANGE */
	bool		follows_loss;	/* for readers: events of elections before it
								 * have made room */
	char		election[ELECTION_NAME_SIZE];	/* empty: of the instance */
	char		node[ELECTION_VALUE_SIZE];
	bool		has_leader;
	char		leader[ELECTION_VALUE_SIZE];
	int64		leader_revision;
	char		reason[ELECTION_REASON_SIZE];	/* empty: none */
	/* CHANGE */
	char		key[EVENT_TEXT_SIZE];	/* empty: changes were lost */
	bool		has_value;		/* false: the key was deleted, or changes were lost */
	char		value[EVENT_TEXT_SIZE];
	int64		revision;		/* 0: none */
} SharedEvent;

/* The reason of a CHANGE without a key. */
#define EVENT_REASON_GAP	"gap"

/* The name of its kind in SQL. */
extern const char *events_kind_name(const SharedEvent *event);

/*
 * Events are numbered by ones, also over a crash restart, and over a clean one
 * (event_file.h).  Any other start of the server begins above every number of
 * the starts before it: at the wall clock, in microseconds since 2000.  So a reader that
 * continues after the last number that it saw can see by the first number that it gets
 * whether it has missed any.  The numbers stay below 2^53 until the year 2285: a double holds
 * them.
 */

/* Sets event->seq and stores the event.  events_wake_all() must follow. */
extern void events_append(SharedEvent *event);

/*
 * At the start, before others see any: events of elections from before a clean
 * shutdown, in the order of their numbers, and the number after which the
 * events of this start begin.
 */
extern void events_restore(const SharedEvent *event);
extern void events_continue_after(int64 last);

/* The newest seq, or, before the first event, that from which numbers go on. */
extern int64 events_last(void);

/* The seq of the newest change; 0: there was none since the start. */
extern int64 events_last_change(void);

/*
 * The newest seq when this server started, or restarted after a crash: events
 * up to it are of an earlier start.
 */
extern int64 events_start(void);

typedef enum EventSources
{
	EVENTS_ALL,
	EVENTS_OF_CHANGES,			/* the changes alone, */
	EVENTS_BUT_CHANGES			/* or all others */
} EventSources;

/*
 * The first event with a seq above `after` that is still there.  False: none
 * such.  Changes that have made room for newer ones become one event without a
 * key, at their place.  An `after` above the newest seq is of another server, or of a start
 * before the wall clock was set back, and counts as 0: better an event twice
 * than none.
 */
extern bool events_next_of(EventSources sources, int64 after, SharedEvent *event);

static inline bool
events_next(int64 after, SharedEvent *event)
{
	return events_next_of(EVENTS_ALL, after, event);
}

/*
 * Waiting for anything that is published: an event, a leadership.  prepare,
 * then check, then sleep, and cancel at the end, as for a condition variable.
 * sleep: false when timeout_ms (-1: none) is over.  Interrupts are served.
 */
extern void events_prepare_to_sleep(void);
extern bool events_sleep(long timeout_ms, uint32 wait_event);
extern void events_cancel_sleep(void);

/*
 * A number that changes whenever something is published that a sleeper may
 * wait for.  wait_for_change returns when it is not `seen` any more, which is
 * true, or when the latch of this process is set (it is reset), or when
 * timeout_ms (-1: none) is over.  Interrupts are served.
 */
extern uint64 events_change_number(void);
extern bool events_wait_for_change(uint64 seen, long timeout_ms, uint32 wait_event);

/*
 * Something was published: wakes the processes that sleep for it, or the
 * notifiers as well.  These sleep on a condition variable of their own, so
 * that they do not delay sessions that wait for leadership.
 */
extern void events_wake(void);
extern void events_wake_all(void);
extern ConditionVariable *events_for_notifiers(void);

extern const SharedPart events_part;
extern const SharedPart elections_ring_part;
extern const SharedPart changes_ring_part;
extern const SharedPart event_number_part;

#endif							/* EVENTS_H */
