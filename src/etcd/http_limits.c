/*-------------------------------------------------------------------------
 *
 * http_limits.c
 *	  How much a server may send in HTTP/1 that is no part of the body.
 *
 *-------------------------------------------------------------------------
 */
#include "base/clock.h"
#include "api.h"
#include "http_limits.h"

/* All headers of an answer, those of informational ones and trailers included. */
#define MAX_HEADERS_SIZE	(64 * 1024)

/*
 * libcurl reads up to 1.6 MB at a time, and counts each time about twice.  A
 * server is left if more runs than this in a second brought no header and no byte
 * of the body.
 */
#define MAX_IDLE_RUNS		100

/* libcurl ends the transfer if the result is less than the number of given bytes. */
static size_t
count_header(char *data, size_t size, size_t n, void *arg)
{
	EtcdLimits *limits = arg;

	(void) data;
	limits->headers_size += n * size;
	return limits->headers_size <= MAX_HEADERS_SIZE ? n * size : 0;
}

/* libcurl has run.  It ends the transfer if the result is not 0. */
static int
count_run(void *arg, curl_off_t total, curl_off_t received, curl_off_t to_send, curl_off_t sent)
{
	EtcdLimits *limits = arg;
	uint64_t	nmoved = limits->headers_size + (uint64_t) received + (uint64_t) sent;
	int64_t		now = clock_monotonic_ns();
	curl_off_t	connected_us = 0;

	(void) total;
	(void) to_send;
	/* it runs often while it makes the connection */
	curl_easy_getinfo(limits->easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
	if (connected_us > 0 && nmoved == limits->nmoved &&
		now - limits->counts_since_ns < NSEC_PER_SEC)
		limits->nidle++;
	else
	{
		limits->nmoved = nmoved;
		limits->counts_since_ns = now;
		limits->nidle = 0;
	}
	return limits->nidle > MAX_IDLE_RUNS;
}

bool
etcd_limits_set(CURL *easy, EtcdLimits *limits)
{
	limits->easy = easy;
	return curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, count_header) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_HEADERDATA, limits) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, count_run) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_XFERINFODATA, limits) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK;
}

bool
etcd_limits_are_exceeded(const EtcdLimits *limits)
{
	return limits->headers_size > MAX_HEADERS_SIZE || limits->nidle > MAX_IDLE_RUNS;
}

bool
etcd_limits_describe(const EtcdLimits *limits, const char *url, char *message)
{
	if (!etcd_limits_are_exceeded(limits))
		return false;
	if (limits->headers_size > MAX_HEADERS_SIZE)
		etcd_format_message(message, "headers of the answer of etcd at \"%s\" are larger than %d "
									 "bytes",
							url, MAX_HEADERS_SIZE);
	else
		etcd_format_message(message, "etcd at \"%s\" floods the connection with bytes that nobody "
									 "waits for", url);
	return true;
}
