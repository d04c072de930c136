/*-------------------------------------------------------------------------
 *
 * moments.h
 *	  Before each atomic access of the sources, and at each barrier, is a moment at which a
 *	  test can let others run.
 *
 * The compiler reads this before files of src/shared that share memory without a lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef MOMENTS_H
#define MOMENTS_H

#include "postgres.h"

#include "port/atomics.h"

/* Calls pg_at_moment(), see small_server.h. */
extern void pass_moment(void);

static inline uint64
read_at_moment(volatile pg_atomic_uint64 *from)
{
	pass_moment();
	return pg_atomic_read_u64(from);
}

static inline void
write_at_moment(volatile pg_atomic_uint64 *to, uint64 value)
{
	pass_moment();
	pg_atomic_write_u64(to, value);
}

#undef pg_read_barrier
#undef pg_write_barrier
#undef pg_memory_barrier
#define pg_read_barrier()		pass_moment()
#define pg_write_barrier()		pass_moment()
#define pg_memory_barrier()		pass_moment()
#define pg_atomic_read_u64		read_at_moment
#define pg_atomic_write_u64		write_at_moment

#endif							/* MOMENTS_H */
