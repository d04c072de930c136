/*-------------------------------------------------------------------------
 *
 * event_ring.c
 *	  A ring of numbered records in shared memory: one process appends, any
 *	  number read.
 *
 * Two rings, in fact: the bytes of the records, one after the other, and a
 * place for each record, which says where its bytes begin.  Records count from
 * 1, bytes from 0, and neither count ever goes back; place and byte number n
 * are at n modulo the size of their ring.
 *
 * Before the writer overwrites anything, it advances `oldest` past the records
 * that this concerns.  A reader looks at `oldest` after it has copied a record:
 * if the record is still in the ring, the copy is whole.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "event_ring.h"

static RingPlace *
place_of(EventRing *ring, uint64 number)
{
	return &ring->places[number % ring->nplaces];
}

static char *
bytes_of_ring(EventRing *ring)
{
	return (char *) &ring->places[ring->nplaces];
}

void
event_ring_init(EventRing *ring, int nplaces, Size nbytes)
{
	ring->nplaces = nplaces;
	ring->nbytes = nbytes;
	ring->end = 0;
	pg_atomic_init_u64(&ring->newest, 0);
	pg_atomic_init_u64(&ring->oldest, 1);
	pg_atomic_init_u64(&ring->lost_seq, 0);
	pg_atomic_init_u64(&ring->lost_at, 0);
}

/* Copies `len` bytes between the ring, from byte number start on, and a buffer. */
static void
copy_in(EventRing *ring, uint64 start, const char *record, Size len)
{
	Size		offset = start % ring->nbytes;
	Size		first = Min(len, ring->nbytes - offset);

	memcpy(bytes_of_ring(ring) + offset, record, first);
	memcpy(bytes_of_ring(ring), record + first, len - first);
}

static void
copy_out(EventRing *ring, uint64 start, char *record, Size len)
{
	Size		offset = start % ring->nbytes;
	Size		first = Min(len, ring->nbytes - offset);

	memcpy(record, bytes_of_ring(ring) + offset, first);
	memcpy(record + first, bytes_of_ring(ring), len - first);
}

/* The oldest records leave the ring, until there is room for one of that length. */
static void
make_room(EventRing *ring, uint64 number, Size len)
{
	uint64		oldest = pg_atomic_read_u64(&ring->oldest);

	while (oldest < number)
	{
		RingPlace  *place = place_of(ring, oldest);

		if (number - oldest < (uint64) ring->nplaces &&
			ring->end + len - place->start <= ring->nbytes)
			break;
		/*
		 * a reader that sees the record gone must see the loss, too, and its
		 * time
		 */
		pg_atomic_write_u64(&ring->lost_at, (uint64) place->at);
		pg_write_barrier();		/* ring.pml: LOST_TIMED */
		pg_atomic_write_u64(&ring->lost_seq, (uint64) place->seq);
		pg_write_barrier();		/* ring.pml: LOST_COUNTED */
		pg_atomic_write_u64(&ring->oldest, ++oldest);
	}
	pg_write_barrier();			/* ring.pml: ROOM_MADE */
}

void
event_ring_append(EventRing *ring, int64 seq, TimestampTz at, const void *record, Size len)
{
	uint64		number = pg_atomic_read_u64(&ring->newest) + 1;
	RingPlace  *place = place_of(ring, number);

	Assert(len < ring->nbytes);
	make_room(ring, number, len);
	place->seq = seq;
	place->at = at;
	place->start = ring->end;
	place->len = len;
	copy_in(ring, ring->end, record, len);
	ring->end += len;
	pg_write_barrier();			/* ring.pml: RECORD_WRITTEN */
	pg_atomic_write_u64(&ring->newest, number);
}

/* The number of the first record above `after`, from oldest to newest + 1. */
static uint64
search(EventRing *ring, int64 after, uint64 oldest, uint64 newest)
{
	uint64		low = oldest;
	uint64		high = newest + 1;

	while (low < high)
	{
		uint64		middle = low + (high - low) / 2;

		if (place_of(ring, middle)->seq > after)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * If a record leaves the ring while it is read, the result is arbitrary.  The
 * last check of `oldest` detects this, and the next round detects the loss.
 */
RingResult
event_ring_next(EventRing *ring, int64 after, int64 *seq, TimestampTz *at,
				void *record, Size size)
{
	for (;;)
	{
		uint64		newest = pg_atomic_read_u64(&ring->newest);
		uint64		oldest;
		uint64		number;
		RingPlace	place;

		/* either of the two may be the newer one */
		oldest = pg_atomic_read_u64(&ring->oldest);
		pg_read_barrier();		/* ring.pml: OLDEST_READ */
		*seq = (int64) pg_atomic_read_u64(&ring->lost_seq);
		pg_read_barrier();		/* ring.pml: LOST_READ */
		*at = (TimestampTz) pg_atomic_read_u64(&ring->lost_at);
		if (*seq > after)
			return RING_LOST;

		number = search(ring, after, oldest, newest);
		if (number <= newest)
		{
			place = *place_of(ring, number);
			if (place.len <= size)
				copy_out(ring, place.start, record, place.len);
		}
		pg_read_barrier();		/* ring.pml: RECORD_READ */
		if (pg_atomic_read_u64(&ring->oldest) != oldest)
			continue;
		if (number > newest)
			return RING_NONE;
		*seq = place.seq;
		*at = place.at;
		return RING_FOUND;
	}
}
