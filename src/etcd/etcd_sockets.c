/*-------------------------------------------------------------------------
 *
 * etcd_sockets.c
 *	  The sockets and the timer for which the client has to be called.
 *
 * libcurl tells both by callbacks, and etcd_http.c adds the sockets that it
 * drives itself.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "etcd_client_internal.h"

void
etcd_sockets_set(Http *http, int fd, int events)
{
	int			i = 0;

	http->socket_changes++;
	while (i < http->nsockets && http->sockets[i].fd != fd)
		i++;

	if (events == 0)
	{
		if (i < http->nsockets)
			http->sockets[i] = http->sockets[--http->nsockets];
		return;
	}

	if (i == http->sockets_size)
	{
		int			size = 2 * http->sockets_size + 8;
		EtcdSocket *sockets = realloc(http->sockets, size * sizeof(EtcdSocket));

		if (sockets == NULL)
			return;
		http->sockets = sockets;
		http->sockets_size = size;
	}
	if (i == http->nsockets)
		http->nsockets++;
	http->sockets[i].fd = fd;
	http->sockets[i].events = events;
}

static int
record_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socketp)
{
	int			events = 0;

	(void) easy;
	(void) socketp;
	if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
		events |= ETCD_SOCKET_READABLE;
	if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
		events |= ETCD_SOCKET_WRITEABLE;
	etcd_sockets_set(arg, fd, events);
	return 0;
}

static int
record_timer(CURLM *multi, long timeout_ms, void *arg)
{
	Http	   *http = arg;

	(void) multi;
	http->timer_ns = timeout_ms < 0 ? INT64_MAX :
		clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC;
	return 0;
}

void
etcd_sockets_record(Http *http)
{
	curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, record_socket);
	curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
	curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, record_timer);
	curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
}
