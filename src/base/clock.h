/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock that deadlines are times of, and units of time.
 *
 * Plain C: the protocol, which reads no clock, uses the units.
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

/* CLOCK_BOOTTIME, in nanoseconds: goes on while the host sleeps. */
extern int64_t clock_now_ns(void);

/* CLOCK_MONOTONIC, in nanoseconds: stops then, as the timers of sockets do. */
static inline int64_t
clock_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

/*
 * The time left until `until_us` of that clock, in milliseconds, for a sleep.
 * INT64_MAX means no limit: the result is -1.  It is 0 if the time is over.
 */
extern long clock_remaining_ms(int64_t until_us);

#endif							/* CLOCK_H */
