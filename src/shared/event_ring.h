/*-------------------------------------------------------------------------
 *
 * event_ring.h
 *	  A ring of numbered records in shared memory: one process appends, any
 *	  number read.
 *
 * Records differ in length.  The oldest ones make room for a new one.  Readers
 * take no lock, and the writer may be stopped at any instruction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef EVENT_RING_H
#define EVENT_RING_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

/* Written before the record counts as appended. */
typedef struct RingPlace
{
	int64		seq;
	TimestampTz at;
	uint64		start;			/* number of its first byte */
	uint64		len;
} RingPlace;

/* Only event_ring.c looks into it. */
typedef struct EventRing
{
	int			nplaces;
	Size		nbytes;
	uint64		end;			/* the writer's own: bytes written, ever */
	pg_atomic_uint64 newest;	/* number of the newest record; 0: none */
	pg_atomic_uint64 oldest;	/* number of the oldest one that is whole */
	/* of the newest record that has made room; 0: none has */
	pg_atomic_uint64 lost_seq;
	pg_atomic_uint64 lost_at;
	RingPlace	places[FLEXIBLE_ARRAY_MEMBER];
} EventRing;

/* The memory of a ring for at most nplaces records of together at most nbytes. */
#define EVENT_RING_SIZE(nplaces, nbytes) \
	(offsetof(EventRing, places) + (nplaces) * sizeof(RingPlace) + (nbytes))

/* Of memory that may hold anything, before others see it. */
extern void event_ring_init(EventRing *ring, int nplaces, Size nbytes);

/* For the writer.  seq increases from record to record; len is below nbytes. */
extern void event_ring_append(EventRing *ring, int64 seq, TimestampTz at, const void *record,
							  Size len);

typedef enum RingResult
{
	RING_NONE,					/* there is no record after that one */
	RING_FOUND,
	RING_LOST					/* records after that one have made room */
} RingResult;

/*
 * The first record with a seq above `after`. FOUND: it is copied into
 * `record`, of `size` bytes, which is room for every record of the ring.
 * LOST: *seq is that of a record that has made room, as all before it have;
 * *at is its time, or that of one that made room right after it.  A reader
 * that asks again with that seq continues after the loss.
 */
extern RingResult event_ring_next(EventRing *ring, int64 after, int64 *seq, TimestampTz *at,
								  void *record, Size size);

#endif							/* EVENT_RING_H */
