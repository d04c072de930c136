/*-------------------------------------------------------------------------
 *
 * backoff.h
 *	  How long background workers wait between tries of what failed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BACKOFF_H
#define BACKOFF_H

#define BACKOFF_MIN_MS	1000
#define BACKOFF_MAX_MS	60000

/*
 * The time until the next try, in milliseconds: the first one, doubled from
 * failure to failure up to the last.  *backoff_ms keeps it; 0 begins anew.
 */
static inline int
backoff_next_ms(int *backoff_ms)
{
	*backoff_ms = Max(BACKOFF_MIN_MS, Min(*backoff_ms * 2, BACKOFF_MAX_MS));
	return *backoff_ms;
}

#endif							/* BACKOFF_H */
