/*-------------------------------------------------------------------------
 *
 * weak_memory.h
 *	  A store of the fence to shared memory is late: others see it after a barrier.
 *
 * The compiler reads this before shared/fenced.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WEAK_MEMORY_H
#define WEAK_MEMORY_H

#include "postgres.h"

#include "port/atomics.h"

extern void weak_store(volatile pg_atomic_uint32 *at, uint32 value);
extern void weak_barrier(void);

/* A barrier of another process does not make the store visible. */
extern bool is_another_process;

#undef pg_memory_barrier
#define pg_memory_barrier()		weak_barrier()
#define pg_atomic_write_u32		weak_store

#endif							/* WEAK_MEMORY_H */
