/*-------------------------------------------------------------------------
 *
 * at_barrier.h
 *	  A read barrier of the sources is a moment at which a test can let others run.
 *
 * The compiler reads this before files of src/shared whose readers take no lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef AT_BARRIER_H
#define AT_BARRIER_H

#include "postgres.h"

#include "port/atomics.h"

/* Calls pg_at_barrier(), see small_server.h. */
extern void pass_read_barrier(void);

#undef pg_read_barrier
#define pg_read_barrier()		pass_read_barrier()

#endif							/* AT_BARRIER_H */
