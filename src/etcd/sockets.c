/*-------------------------------------------------------------------------
 *
 * sockets.c
 *	  The sockets and the timer for which the client has to be called.
 *
 * libcurl tells both by callbacks, and http.c adds the sockets that it
 * drives itself.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "sockets.h"

void
etcd_sockets_set(EtcdSockets *sockets, int fd, int events)
{
	int			i = 0;

	sockets->changes++;
	while (i < sockets->n && sockets->sockets[i].fd != fd)
		i++;

	if (events == 0)
	{
		if (i < sockets->n)
			sockets->sockets[i] = sockets->sockets[--sockets->n];
		return;
	}

	if (i == sockets->size)
	{
		int			size = 2 * sockets->size + 8;
		EtcdSocket *larger = realloc(sockets->sockets, size * sizeof(EtcdSocket));

		if (larger == NULL)
			return;
		sockets->sockets = larger;
		sockets->size = size;
	}
	if (i == sockets->n)
		sockets->n++;
	sockets->sockets[i].fd = fd;
	sockets->sockets[i].events = events;
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
	EtcdSockets *sockets = arg;

	(void) multi;
	sockets->timer_ns = timeout_ms < 0 ? INT64_MAX :
		clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC;
	return 0;
}

void
etcd_sockets_record(EtcdSockets *sockets, void *multi)
{
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, record_socket);
	curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, sockets);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, record_timer);
	curl_multi_setopt(multi, CURLMOPT_TIMERDATA, sockets);
}
