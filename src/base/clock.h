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

#define NS_PER_US	INT64_C(1000)
#define NS_PER_MS	INT64_C(1000000)
#define NS_PER_S	INT64_C(1000000000)

/* CLOCK_BOOTTIME, in nanoseconds: goes on while the host sleeps. */
extern int64_t clock_now_ns(void);

/*
 * The time left until `until_us` of that clock, in milliseconds, for a sleep.
 * INT64_MAX means no limit: the result is -1.  It is 0 if the time is over.
 */
extern long clock_remaining_ms(int64_t until_us);

#endif							/* CLOCK_H */
