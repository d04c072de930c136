/*-------------------------------------------------------------------------
 *
 * ring.pml
 *	  Events in shared memory: one process appends, others read without a lock,
 *	  in weak memory (memory.pml).
 *
 * There are two rings.  That of elections has one place here or two, so that older
 * events make room.  That of changes is a single number: what happens within a
 * ring is the same in both.  An event of an election has a place and bytes,
 * whole if both are its number.  Its time is its number.
 *
 * The notifier asks for the events of elections alone.  Of the changes it tells the
 * newest number.
 *
 * Checked, for a reader that asks for the first event after some number:
 *	- an event that it gets is whole, and is not the one asked for or older;
 *	- it gets "none" only if there is none, up to the number of the last event
 *	  that it has loaded;
 *	- of the events before the one that it gets, all have been read or have made
 *	  room;
 *	- a loss has the time of an event that is lost;
 *
 * and for the notifier:
 *	- it does not tell a change while an event of an election before it is left;
 *	- when it tells an event of an election, it knows the changes before it.
 *
 * What this models: event_ring.c, events.c without the sleep, and notify_events() of
 * notifier.c.  Each barrier there has the label of one here.
 *
 *-------------------------------------------------------------------------
 */
#define LAST		0				/* last_event */
#define NEWEST		1				/* of the ring of elections, in events of it */
#define OLDEST		2
#define LOST_SEQ	3
#define LOST_AT		4
#define CHANGED		5				/* the newest event of the ring of changes */
#ifndef PLACES
#define PLACES		1
#endif
#define COUNTED		6				/* last_change */
#define PLACE		7				/* PLACES of them */
#define BYTES		(PLACE + PLACES)	/* of each */

#if PLACES == 1
#define LOCATIONS	9
#else
#define LOCATIONS	11
#endif
#define CORES		2
#define DEPTH		6

#define ELECTOR		0
#define READER		1

/* Each is found: that barrier is missing, or two stores or loads are swapped. */
#define MISTAKES(X) \
	X(LOST_TIMED)				/* a loss is seen before its time */ \
	X(LOST_COUNTED)				/* a record is seen to have gone before its loss */ \
	X(ROOM_MADE)				/* a record is overwritten before it is seen to have gone */ \
	X(RECORD_WRITTEN)			/* a record counts as appended before it is written */ \
	X(RECORD_APPENDED)			/* the number of an event is seen before the event */ \
	X(CHANGE_COUNTED)			/* a change counts before its number is that of the last event */ \
	X(CHANGE_READ)				/* the events of elections are read before the newest change */ \
	X(LAST_READ)				/* the rings are read before the number of the last event */ \
	X(OLDEST_READ)				/* a loss is looked for before the oldest record */ \
	X(LOST_READ)				/* the time of a loss is older than the loss */ \
	X(RECORD_READ)				/* the oldest record is looked at again before the copy is made */ \
	X(TIME_LATE)				/* the time of a loss is stored after the loss */ \
	X(LOSS_LATE)				/* a loss is stored after the oldest record */ \
	X(ROOM_LATE)				/* the oldest record is stored after it is overwritten */ \
	X(NEWEST_FIRST)				/* the newest record is stored before it is written */ \
	X(LAST_FIRST)				/* the number of an event is stored before the event */ \
	X(COUNTED_FIRST)			/* a change counts before the event is there */ \
	X(COUNTED_ONCE)				/* the newest change is not read again after an event was found */

#include "memory.pml"

#ifndef EVENTS
#define EVENTS	3
#endif

/* What is true: the numbers of the events of elections. */
byte seq_of[EVENTS + 2];			/* by their number in the ring */
bit is_change[EVENTS + 1];

/* make_room(), and what follows in event_ring_append() */
#define append(n, seq) \
	if \
	:: n > PLACES -> \
		HERE(TIME_LATE, store(LOST_AT, seq_of[n - PLACES])); \
		write_barrier(LOST_TIMED); \
		HERE(LOSS_LATE, store(LOST_SEQ, seq_of[n - PLACES])); \
		LATER(TIME_LATE, write_barrier(LOST_TIMED); store(LOST_AT, seq_of[n - PLACES])); \
		write_barrier(LOST_COUNTED); \
		HERE(ROOM_LATE, store(OLDEST, n - PLACES + 1)); \
		LATER(LOSS_LATE, write_barrier(LOST_COUNTED); store(LOST_SEQ, seq_of[n - PLACES])) \
	:: else \
	fi; \
	write_barrier(ROOM_MADE); \
	HERE(NEWEST_FIRST, store(PLACE + n % PLACES, seq); store(BYTES + n % PLACES, seq)); \
	if \
	:: n > PLACES -> LATER(ROOM_LATE, write_barrier(ROOM_MADE); store(OLDEST, n - PLACES + 1)) \
	:: else \
	fi; \
	write_barrier(RECORD_WRITTEN); \
	store(NEWEST, n); \
	LATER(NEWEST_FIRST, write_barrier(RECORD_WRITTEN); store(PLACE + n % PLACES, seq); store(BYTES + n % PLACES, seq))

#define count_change() \
	if \
	:: change -> write_barrier(CHANGE_COUNTED); store(COUNTED, seq) \
	:: else \
	fi

proctype elector()
{
	byte me = ELECTOR;
	byte seq, n;
	bit change;

	do
	:: atomic {
			seq < EVENTS ->
			seq++;
			if
			:: change = 0; n++
			:: change = 1
			fi;
			HERE(LAST_FIRST, true);
			LATER(LAST_FIRST, store(LAST, seq); write_barrier(RECORD_APPENDED));
			if
			:: change ->
				is_change[seq] = 1;
				printf("event %d is a change\n", seq);
				store(CHANGED, seq)
			:: else ->
				seq_of[n] = seq;
				printf("event %d is the %d. of an election\n", seq, n);
				append(n, seq)
			fi;
			HERE(LAST_FIRST, LATER(COUNTED_FIRST, count_change()); write_barrier(RECORD_APPENDED); store(LAST, seq));
			HERE(COUNTED_FIRST, count_change());
			change = 0
		}
	:: else -> break
	od
}

#define IN_RING	(BIT(NEWEST) | BIT(OLDEST) | BIT(LOST_SEQ) | BIT(LOST_AT) | BIT(PLACE) | BIT(PLACE + PLACES - 1) | BIT(BYTES) | BIT(BYTES + PLACES - 1))

/* event_ring_next(): found, the number that was found, or 0; or lost */
inline search()
{
	/* the first one above `after`, from the oldest to the newest */
	found = 0;
	n = oldest;
	do
	:: n <= newest && found == 0 ->
		if
		:: n % PLACES == 0 -> load_first(PLACE, found)
		:: else -> load_first(PLACE + PLACES - 1, found)
		fi;
		if
		:: found > after -> skip
		:: else -> found = 0; n++
		fi
	:: else -> break
	od;
	if
	:: found == 0 -> bytes = 0
	:: found != 0 && n % PLACES == 0 -> load_first(BYTES, bytes)
	:: else -> load_first(BYTES + PLACES - 1, bytes)
	fi
}

/*
 * One call of events_next_of(), by the notifier within a round of notify_events().
 * A round that must be tried again is given up.
 */
proctype reader(bit notifies)
{
	byte me = READER;
	byte start, after, last, newest, oldest, again, found, bytes, change, counted, n, at;
	byte gone;						/* up to this one, events have made room */
	bit lost, outrun;

	do
	:: atomic {
			if
			:: notifies -> begin_call(BIT(COUNTED) | BIT(LAST) | IN_RING)
			:: else -> begin_call(BIT(LAST) | IN_RING | BIT(CHANGED))
			fi;
			after = start
		};
		if
		:: atomic { notifies -> load_first(COUNTED, counted); read_barrier(CHANGE_READ) }
		:: !notifies
		fi;
		atomic {
			load(LAST, last);
			assert(after <= last);
			if
			:: !notifies && after >= last -> goto over
			:: else
			fi;
			read_barrier(LAST_READ)
		};
next_round:
		atomic {
			load_first(NEWEST, newest);
			load_first(OLDEST, oldest);
			read_barrier(OLDEST_READ)
		};
		atomic { load_first(LOST_SEQ, n); read_barrier(LOST_READ) };
		atomic {
			load_first(LOST_AT, at);
			if
			:: n > after ->
				/* the time of that one, or of one that has made room right after it */
				assert(at >= n);
				assert(!is_change[at]);
				lost = 1;
				gone = n;
				after = n;
				n = 0; newest = 0; oldest = 0; at = 0;
				goto next_round
			:: else
			fi;
			search();
			read_barrier(RECORD_READ)
		};
		atomic {
			load_first(OLDEST, again);
			if
			:: again != oldest -> n = 0; newest = 0; oldest = 0; at = 0; found = 0; bytes = 0; again = 0; goto next_round
			:: else
			fi;
			assert(found == bytes);			/* whole */
			if
			:: notifies
			:: else -> load(CHANGED, change)
			fi;
			if
			:: found > last -> found = 0; outrun = lost
			:: found == 0 -> outrun = lost
			:: else
			fi;
			if
			:: outrun -> goto over				/* tried again with a newer `last` */
			:: !notifies && change > start && change <= last && (found == 0 || change < found) ->
				found = change
			:: notifies && found != 0 -> HERE(COUNTED_ONCE, load(COUNTED, counted))
			:: else
			fi;
			/* what is between the one asked for and the one found */
			n = start + 1;
			do
			:: n <= (notifies && found == 0 -> counted : last) && (found == 0 || n < found) ->
				/* an event that was passed over has made room; older changes are lost here */
				assert(is_change[n] || n <= gone);
				assert(!notifies || !is_change[n] || n <= counted);
				n++
			:: else -> break
			od;
			assert(found == 0 || found > start);
			if
			:: found != 0 -> start = found
			:: found == 0 && counted > start -> start = counted		/* if changes are due */
			:: found == 0
			fi
		};
over:
		atomic {
			end_call();
			after = 0; last = 0; newest = 0; oldest = 0; again = 0; found = 0; bytes = 0; change = 0; counted = 0; n = 0; at = 0;
			lost = 0; outrun = 0
		}
	od
}

init
{
	atomic {
		c_code { choose_mistake(); };
		memory[OLDEST] = 1;
		run elector();
		run late_stores(ELECTOR);
		if
		:: run reader(0)
		:: run reader(1)
		fi;
		run early_loads(READER)
	}
}
