/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock that deadlines are times of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CLOCK_H
#define CLOCK_H

#define NS_PER_US	INT64CONST(1000)
#define NS_PER_MS	INT64CONST(1000000)

/* CLOCK_BOOTTIME, in nanoseconds: goes on while the host sleeps. */
extern int64 clock_now_ns(void);

/*
 * The time left until `until_us` of that clock, in milliseconds, for a sleep.
 * PG_INT64_MAX means no limit: the result is -1.  It is 0 if the time is over.
 */
extern long clock_remaining_ms(int64 until_us);

#endif							/* CLOCK_H */
