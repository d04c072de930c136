/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The clock for all deadlines.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "clock.h"

#ifndef CLOCK_BOOTTIME
#error "etcd_leader needs a clock that goes on while the host sleeps (CLOCK_BOOTTIME)"
#endif

int64_t
clock_now_ns(void)
{
	struct timespec now;

	if (unlikely(clock_gettime(CLOCK_BOOTTIME, &now) != 0))
		elog(ERROR, "could not read the clock: %m");
	return (int64_t) now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

long
clock_remaining_ms(int64_t until_us)
{
	int64_t		left_us;

	if (until_us == INT64_MAX)
		return -1;
	left_us = until_us - clock_now_ns() / NSEC_PER_USEC;
	if (left_us <= 0)
		return 0;
	return (long) Min(left_us / 1000 + 1, INT_MAX);
}
