/*-------------------------------------------------------------------------
 *
 * http_limits.h
 *	  How much a server may send in HTTP/1 that is no part of the body.
 *
 * libcurl reads headers and the extensions of chunks without end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_LIMITS_H
#define ETCD_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

/* What has come in a transfer; all zero at the beginning. */
typedef struct EtcdLimits
{
	CURL	   *easy;
	size_t		headers_size;
	uint64_t	nmoved;			/* bytes in both directions, when libcurl ran last */
	int			nidle;			/* runs of libcurl in a second that moved none */
	int64_t		counts_since_ns;
} EtcdLimits;

/* Has libcurl end the transfer when a limit is exceeded.  False if memory is out. */
extern bool etcd_limits_set(CURL *easy, EtcdLimits *limits);

extern bool etcd_limits_are_exceeded(const EtcdLimits *limits);

/* Says in a buffer of ETCD_MESSAGE_SIZE which one was.  False if none was. */
extern bool etcd_limits_describe(const EtcdLimits *limits, const char *url, char *message);

#endif							/* ETCD_LIMITS_H */
