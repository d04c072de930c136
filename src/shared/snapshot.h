/*-------------------------------------------------------------------------
 *
 * snapshot.h
 *	  Data that one process replaces as a whole, and others copy without a
 *	  lock.
 *
 * There are two copies and a generation.  The writer writes the copy that is
 * not in use and then advances the generation, so that there is always a whole
 * copy to read, wherever the writer was stopped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHARED_SNAPSHOT_H
#define SHARED_SNAPSHOT_H

#include "port/atomics.h"

/* Replaces the snapshot in copies[2], each of that size.  Only one process may do so. */
static inline void
shared_snapshot_write(pg_atomic_uint64 *generation, void *copies, Size size, const void *value)
{
	uint64		next = pg_atomic_read_u64(generation) + 1;

	/*
	 * The first barrier keeps the writes below behind the generation that took
	 * this copy out of use.  The second one keeps them before the generation
	 * that puts it into use.
	 */
	pg_write_barrier();			/* leadership.pml: COPY_FREE */
	memcpy((char *) copies + (next & 1) * size, value, size);
	pg_write_barrier();			/* leadership.pml: COPY_WHOLE */
	pg_atomic_write_u64(generation, next);
}

/* Copies the snapshot out, again if it was replaced meanwhile. */
static inline void
shared_snapshot_read(pg_atomic_uint64 *generation, const void *copies, Size size, void *value)
{
	uint64		seen;

	do
	{
		seen = pg_atomic_read_u64(generation);
		pg_read_barrier();		/* leadership.pml: GENERATION_READ */
		memcpy(value, (const char *) copies + (seen & 1) * size, size);
		pg_read_barrier();		/* leadership.pml: COPY_READ */
	} while (pg_atomic_read_u64(generation) != seen);
}

#endif							/* SHARED_SNAPSHOT_H */
