/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock for all deadlines, and units of time.
 *
 * Plain C, because the protocol uses the units.  It reads no clock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

#define NSEC_PER_USEC	INT64_C(1000)
#define NSEC_PER_MSEC	INT64_C(1000000)
#define NSEC_PER_SEC	INT64_C(1000000000)

/* CLOCK_BOOTTIME, in nanoseconds.  This clock goes on while the host sleeps. */
extern int64_t clock_now_ns(void);

/*
 * CLOCK_MONOTONIC, in nanoseconds.  This clock stops while the host sleeps, as the
 * timers of sockets do.
 */
static inline int64_t
clock_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

/*
 * The time until clock_now_ns() reaches `until_us` (in microseconds), in
 * milliseconds, for a sleep.  The result is -1 for INT64_MAX, which means no limit,
 * and 0 if the time is over.
 */
extern long clock_remaining_ms(int64_t until_us);

#endif							/* CLOCK_H */
