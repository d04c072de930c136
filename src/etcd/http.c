/*-------------------------------------------------------------------------
 *
 * http.c
 *	  POSTs by libcurl, without blocking.
 *
 * An exchange is one POST to one endpoint and its answer.  It is under way
 * until it ends: with an answer, with a failure, or because its time is up.  A
 * stream is an exchange whose answer arrives piece by piece.
 *
 * libcurl's callbacks only record: which sockets it waits on and when its timer
 * is due (sockets.c), and what bytes came.  They allocate by realloc()
 * alone, and no error leaves them.  The ends of exchanges are recorded, too.
 * No callback of the caller is made from here; the other files of the client
 * look at the records.
 *
 * libcurl resolves no names: its resolver blocks when it is given up, unless
 * libcurl is a new one.  An exchange waits until names.c knows addresses
 * of its host.  libcurl gets them one after the other, until one connects.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "curl.h"
#include "http.h"
#include "http_limits.h"
#include "tls.h"
#include "url.h"

#if LIBCURL_VERSION_NUM < 0x074a00
#error "libcurl 7.74.0 or later is required"
#endif

/* How much of a stream is read before its frames are looked at. */
#define MAX_BURST_SIZE		(64 * 1024)

/* The maximum number of sockets that are polled at the end of the process. */
#define MAX_CONNECTIONS		16

/* A buffer of a stream that is larger than this is not kept when it is empty. */
#define MAX_IDLE_SIZE		(1024 * 1024)

struct Exchange
{
	Exchange   *next;			/* idle, waiting, or among the connections */
	CURL	   *easy;
	struct curl_slist *headers;
	CurlTarget	target;
	bool		is_waiting;		/* for its addresses, or for a connection */
	const EtcdName *name;		/* while it waits for its addresses */
	EtcdRoute	route;
	int64_t		connect_until_ns;
	char	   *url;			/* of the endpoint */
	long		timeout_ms;
	long		connect_timeout_ms;
	size_t		max_size;		/* of the received bytes, see Destination */
	bool		is_stream;

	/* of a connection: see etcd_http_connect() */
	bool		is_connection;
	bool		connected;
	bool		is_readable;
	bool		is_full;		/* the socket takes no more for now */
	curl_socket_t fd;

	uint64_t	ended;			/* see etcd_http_ended() */
	CURLcode	result;			/* once it has ended */
	bool		unresolved;		/* it waited for the addresses to the last */
	bool		too_large;
	EtcdLimits	limits;
	bool		has_news;		/* stream: bytes came since the last look */
	bool		paused;			/* stream: libcurl holds bytes back until a look */
	char	   *data;			/* the received bytes */
	size_t		len;
	size_t		size;
	size_t		taken;			/* stream: bytes that were taken */
	size_t		searched;		/* stream: bytes in which no frame ends */
	char		error[CURL_ERROR_SIZE];
};

/* ---- libcurl's callbacks --------------------------------------------- */

/*
 * libcurl ends the exchange if the result is less than the number of given
 * bytes.
 */
static size_t
record_data(char *data, size_t size, size_t n, void *arg)
{
	Exchange   *exchange = arg;

	n *= size;
	if (n == 0)
		return 0;

	/*
	 * The limit is one of a frame, and not of a burst of frames, which libcurl
	 * would read as long as it lasts.
	 */
	if (exchange->is_stream && exchange->has_news &&
		exchange->len - exchange->searched > MAX_BURST_SIZE)
	{
		exchange->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	if (n > exchange->max_size - exchange->len)
	{
		exchange->too_large = true;
		return 0;
	}
	if (n > exchange->size - exchange->len)
	{
		size_t		new_size = 2 * exchange->size + n;
		char	   *new_data = realloc(exchange->data, new_size);

		if (new_data == NULL)
			return 0;
		exchange->data = new_data;
		exchange->size = new_size;
	}
	memcpy(exchange->data + exchange->len, data, n);
	exchange->len += n;
	exchange->has_news = true;
	return n;
}

/* ---- libcurl ----------------------------------------------------- */

bool
etcd_http_init(Http *http)
{
	memset(http, 0, sizeof(*http));
	http->sockets.timer_ns = INT64_MAX;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return false;
	http->multi = curl_multi_init();
	http->names = etcd_names_create();
	if (http->names != NULL)
		etcd_sockets_set(&http->sockets, etcd_names_fd(http->names), ETCD_SOCKET_READABLE);
	if (http->multi == NULL || http->sockets.n == 0)
	{
		etcd_http_free(http);
		return false;
	}
	etcd_sockets_record(&http->sockets, http->multi);
	return true;
}

void
etcd_http_free(Http *http)
{
	while (http->idle != NULL)
	{
		Exchange   *exchange = http->idle;

		http->idle = exchange->next;
		curl_easy_cleanup(exchange->easy);
		free(exchange);
	}
	curl_multi_cleanup(http->multi);
	curl_global_cleanup();
	etcd_names_free(http->names);
	free(http->sockets.sockets);
	memset(http, 0, sizeof(*http));
}

void
etcd_http_keep_connections(Http *http, int n)
{
	curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long) n);
}

/* ---- exchanges ------------------------------------------------------- */

/* NULL if memory is out. */
static Exchange *
take_idle(Http *http)
{
	Exchange   *exchange = http->idle;

	if (exchange != NULL)
	{
		http->idle = exchange->next;
		exchange->next = NULL;
		return exchange;
	}
	exchange = calloc(1, sizeof(Exchange));
	if (exchange == NULL)
		return NULL;
	exchange->easy = curl_easy_init();
	if (exchange->easy == NULL)
	{
		free(exchange);
		return NULL;
	}
	return exchange;
}

/* No one waits for the socket of a connection any more. */
static void
close_connection(Http *http, Exchange *exchange)
{
	Exchange  **link = &http->connections;

	if (!exchange->connected)
		return;
	etcd_sockets_set(&http->sockets, exchange->fd, 0);
	while (*link != exchange)
		link = &(*link)->next;
	*link = exchange->next;
	exchange->next = NULL;
	exchange->connected = false;
#if LIBCURL_VERSION_NUM < 0x075800
	(void) shutdown(exchange->fd, SHUT_RDWR);	/* 7.74 leaves it open when the handle is removed */
#endif
}

static void
begin_waiting(Http *http, Exchange *exchange)
{
	if (exchange->is_waiting)
		return;
	exchange->is_waiting = true;
	exchange->next = http->waiting;
	http->waiting = exchange;
}

/* When it has waited long enough, for its addresses or for the current one. */
static int64_t
waits_until_ns(const Exchange *exchange)
{
	return exchange->route.addresses.n > 0 ? exchange->route.until_ns : exchange->connect_until_ns;
}

/*
 * It has connected, or has failed, or is given up.  In the last case an address
 * that took most of its time counts as failed.
 */
static void
stop_waiting(Http *http, Exchange *exchange)
{
	const EtcdRoute *route = &exchange->route;
	Exchange  **link = &http->waiting;

	if (!exchange->is_waiting)
		return;
	while (*link != exchange)
		link = &(*link)->next;
	*link = exchange->next;
	exchange->next = NULL;
	exchange->is_waiting = false;
	exchange->name = NULL;
	if (route->addresses.n > 0 && etcd_http_was_connected(exchange))
		etcd_names_note(http->names, route, true);
	else if (route->addresses.n > 0 &&
			 clock_monotonic_ns() - route->began_ns > (route->until_ns - route->began_ns) / 2)
		etcd_names_note(http->names, route, false);
}

/* When there was no connection, the addresses may belong to another host by now. */
static void
end_exchange(Http *http, Exchange *exchange, CURLcode result)
{
	if (exchange->ended != 0)
		return;
	exchange->unresolved = exchange->name != NULL;
	stop_waiting(http, exchange);
	close_connection(http, exchange);
	curl_multi_remove_handle(http->multi, exchange->easy);
	exchange->result = result;
	exchange->ended = ++http->nended;
	if (result != CURLE_OK && etcd_is_name(exchange->target.host) &&
		!etcd_http_was_connected(exchange))
		etcd_names_doubt(http->names, exchange->target.host);
}

/*
 * Hands an exchange to libcurl.  Time is not left to it, see
 * etcd_http_time_out().
 */
static void
connect_exchange(Http *http, Exchange *exchange)
{
	const EtcdRoute *route = &exchange->route;

	begin_waiting(http, exchange);
	exchange->error[0] = '\0';
	if ((route->addresses.n > 0 &&
		 !etcd_curl_set_address(exchange->easy, &exchange->target,
								route->addresses.text[route->current])) ||
		curl_multi_add_handle(http->multi, exchange->easy) != CURLM_OK)
		end_exchange(http, exchange, CURLE_OUT_OF_MEMORY);
}

/* There is no connection: goes on to the next address, or ends. */
static void
fail_to_connect(Http *http, Exchange *exchange, CURLcode result)
{
	EtcdRoute  *route = &exchange->route;

	if (route->addresses.n > 0)
		etcd_names_note(http->names, route, false);
	if (!etcd_route_next(route, exchange->connect_until_ns))
	{
		end_exchange(http, exchange, result);
		return;
	}
	curl_multi_remove_handle(http->multi, exchange->easy);
	connect_exchange(http, exchange);
}

/* An exchange whose host is being looked up no more. */
static void
take_addresses(Http *http, Exchange *exchange, const EtcdName *name)
{
	exchange->name = NULL;
	if (name->addresses.n == 0)
	{
		snprintf(exchange->error, sizeof(exchange->error), "%s", name->error);
		end_exchange(http, exchange, CURLE_COULDNT_RESOLVE_HOST);
		return;
	}
	etcd_names_plan(name, &exchange->route);
	if (etcd_route_next(&exchange->route, exchange->connect_until_ns))
		connect_exchange(http, exchange);
	else
		end_exchange(http, exchange, CURLE_OPERATION_TIMEDOUT);
}

/* Begins an exchange, or has it wait for the addresses of its host. */
static void
begin_exchange(Http *http, Exchange *exchange)
{
	const EtcdName *name;

	if (!exchange->target.has_url)
		end_exchange(http, exchange, CURLE_URL_MALFORMAT);
	else if (!etcd_is_name(exchange->target.host))
		connect_exchange(http, exchange);
	else if ((name = etcd_names_want(http->names, exchange->target.host)) == NULL)
	{
		snprintf(exchange->error, sizeof(exchange->error), "too many names are being resolved");
		end_exchange(http, exchange, CURLE_COULDNT_RESOLVE_HOST);
	}
	else if (name->addresses.n > 0 || !name->is_pending)
		take_addresses(http, exchange, name);
	else
	{
		exchange->name = name;
		begin_waiting(http, exchange);
	}
}

/* An exchange that is not begun yet.  NULL if memory is out. */
static Exchange *
create_exchange(Http *http, const Settings *settings, const Destination *destination,
				const char *path)
{
	Exchange   *exchange = take_idle(http);

	if (exchange == NULL)
		return NULL;
	exchange->fd = CURL_SOCKET_BAD;
	exchange->url = strdup(destination->url);
	exchange->timeout_ms = destination->timeout_ms;
	exchange->connect_timeout_ms = destination->connect_timeout_ms < destination->timeout_ms ?
		destination->connect_timeout_ms : destination->timeout_ms;
	exchange->connect_until_ns = clock_monotonic_ns() +
		exchange->connect_timeout_ms * NSEC_PER_MSEC;
	exchange->is_stream = destination->is_stream;
	exchange->max_size = destination->max_size;
	if (exchange->url == NULL ||
		!etcd_curl_set_url(exchange->easy, settings, exchange->url, path, &exchange->target) ||
		!etcd_curl_set_tls(exchange->easy, settings) ||
		!etcd_curl_set_records(exchange->easy, exchange, exchange->error, &exchange->target) ||
		!etcd_curl_set_options(exchange->easy, destination->connects, destination->is_stream))
		etcd_http_release(http, &exchange);
	return exchange;
}

Exchange *
etcd_http_post(Http *http, const Settings *settings, const Destination *destination,
			   const Payload *payload, const char *const *headers, int nheaders)
{
	Exchange   *exchange = create_exchange(http, settings, destination, payload->path);

	if (exchange == NULL)
		return NULL;
	if (etcd_curl_set_headers(exchange->easy, headers, nheaders, &exchange->headers) &&
		etcd_curl_set_post(exchange->easy, payload->body, payload->len, record_data, exchange) &&
		etcd_limits_set(exchange->easy, &exchange->limits))
		begin_exchange(http, exchange);
	else
		etcd_http_release(http, &exchange);
	return exchange;
}

Exchange *
etcd_http_connect(Http *http, const Settings *settings, const Destination *destination)
{
	Exchange   *exchange = create_exchange(http, settings, destination, "/");

	if (exchange == NULL)
		return NULL;
	exchange->is_connection = true;
	if (etcd_curl_connect_only(exchange->easy))
		begin_exchange(http, exchange);
	else
		etcd_http_release(http, &exchange);
	return exchange;
}

void
etcd_http_release(Http *http, Exchange **exchange)
{
	Exchange   *released = *exchange;
	CURL	   *easy;

	if (released == NULL)
		return;
	*exchange = NULL;
	easy = released->easy;
	stop_waiting(http, released);
	close_connection(http, released);
	curl_multi_remove_handle(http->multi, easy);
	/* it points to the headers, to the payload and into the exchange */
	curl_easy_reset(easy);
	curl_slist_free_all(released->headers);
	etcd_curl_free_target(&released->target);
	free(released->url);
	free(released->data);
	memset(released, 0, sizeof(*released));
	released->easy = easy;
	released->next = http->idle;
	http->idle = released;
}

void
etcd_http_look_up(Http *http, const char *url)
{
	EtcdUrl		parts;

	if (etcd_split_url(url, &parts) && etcd_is_name(parts.host))
		(void) etcd_names_want(http->names, parts.host);
}

/*
 * This is not left to CURLOPT_TIMEOUT_MS.  If its timer is called at the very
 * microsecond, libcurl 7.88 finds that a fraction of a millisecond is left,
 * but has forgotten the timer by then, and the request never ends.  The timer
 * to connect has the same fault, and is not used, either.
 */
void
etcd_http_time_out(Http *http, Exchange *exchange)
{
	end_exchange(http, exchange, CURLE_OPERATION_TIMEDOUT);
}

uint64_t
etcd_http_ended(const Exchange *exchange)
{
	return exchange->ended;
}

/*
 * Before a name is resolved there is no address, while libcurl 8 may have a
 * time by then.  A Unix socket has no address at all.
 */
bool
etcd_http_was_connected(const Exchange *exchange)
{
	curl_off_t	ready_us = 0;
	char	   *address = NULL;

	if (exchange->is_connection)
		return exchange->fd != CURL_SOCKET_BAD;
	curl_easy_getinfo(exchange->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
	curl_easy_getinfo(exchange->easy, CURLINFO_PRIMARY_IP, &address);
	return ready_us > 0 &&
		((address != NULL && address[0] != '\0') ||
		 strncmp(exchange->url, "unix", 4) == 0);
}

bool
etcd_http_floods(const Exchange *exchange)
{
	return etcd_limits_are_exceeded(&exchange->limits);
}

bool
etcd_http_got_nothing(const Exchange *exchange)
{
	return exchange->result == CURLE_GOT_NOTHING;
}

/* ---- connections ----------------------------------------------------- */

/* libcurl has made a connection, and leaves its socket to this side. */
static void
open_connection(Http *http, Exchange *exchange)
{
	if (curl_easy_getinfo(exchange->easy, CURLINFO_ACTIVESOCKET, &exchange->fd) != CURLE_OK ||
		exchange->fd == CURL_SOCKET_BAD)
	{
		end_exchange(http, exchange, CURLE_COULDNT_CONNECT);
		return;
	}
	stop_waiting(http, exchange);
	exchange->connected = true;
	exchange->is_readable = true;
	exchange->next = http->connections;
	http->connections = exchange;
	etcd_sockets_set(&http->sockets, exchange->fd, ETCD_SOCKET_READABLE);
}

bool
etcd_http_is_connected(const Exchange *exchange)
{
	return exchange->connected;
}

bool
etcd_http_is_readable(const Exchange *exchange)
{
	return exchange->connected && exchange->is_readable;
}

bool
etcd_http_is_writeable(const Exchange *exchange)
{
	return exchange->connected && !exchange->is_full;
}

size_t
etcd_http_recv(Http *http, Exchange *exchange, char *buffer, size_t size)
{
	size_t		n = 0;
	CURLcode	result;

	if (!etcd_http_is_readable(exchange))
		return 0;
	result = curl_easy_recv(exchange->easy, buffer, size, &n);
	if (result == CURLE_AGAIN)
		exchange->is_readable = false;
	else if (result != CURLE_OK || n == 0)
		end_exchange(http, exchange, result == CURLE_OK ? CURLE_GOT_NOTHING : result);
	return n;
}

size_t
etcd_http_send(Http *http, Exchange *exchange, const char *data, size_t len)
{
	size_t		n = 0;
	CURLcode	result;

	if (!etcd_http_is_writeable(exchange))
		return 0;
	result = curl_easy_send(exchange->easy, data, len, &n);
	if (result != CURLE_OK && result != CURLE_AGAIN)
		end_exchange(http, exchange, result);
	else if (n < len)
	{
		exchange->is_full = true;
		etcd_sockets_set(&http->sockets, exchange->fd,
						 ETCD_SOCKET_READABLE | ETCD_SOCKET_WRITEABLE);
	}
	return n;
}

/* ---- running libcurl ------------------------------------------------- */

/* Lets libcurl act on a socket or its timer. */
static void
run_curl(Http *http, curl_socket_t fd, int events)
{
	int			running;
	CURLMsg    *info;

	curl_multi_socket_action(http->multi, fd, events, &running);
	while ((info = curl_multi_info_read(http->multi, &running)) != NULL)
	{
		char	   *private = NULL;
		Exchange   *exchange;

		if (info->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(info->easy_handle, CURLINFO_PRIVATE, &private);
		exchange = (Exchange *) private;
		etcd_connections_note(&http->facts, info->easy_handle, exchange->url);
		if (exchange->is_connection && info->data.result == CURLE_OK)
			open_connection(http, exchange);
		else if (info->data.result != CURLE_OK && !etcd_http_was_connected(exchange))
			fail_to_connect(http, exchange, info->data.result);
		else
			end_exchange(http, exchange, info->data.result);
	}
}

/* Lets the exchanges go on whose hosts are not looked up any more. */
static void
finish_lookups(Http *http)
{
	Exchange   *next;

	etcd_names_finish(http->names);
	for (Exchange *e = http->waiting; e != NULL; e = next)
	{
		next = e->next;
		if (e->name != NULL && !e->name->is_pending)
			take_addresses(http, e, e->name);
	}
}

int64_t
etcd_http_due_ns(const Http *http)
{
	int64_t		due_ns = http->sockets.timer_ns;

	for (const Exchange *e = http->waiting; e != NULL; e = e->next)
	{
		if (waits_until_ns(e) < due_ns)
			due_ns = waits_until_ns(e);
	}
	return due_ns;
}

/* The exchanges that have waited long enough.  The sign that a lookup has ended may be lost. */
static void
run_waiting(Http *http, int64_t now)
{
	Exchange   *next;

	for (Exchange *e = http->waiting; e != NULL; e = e->next)
	{
		if (e->name != NULL && waits_until_ns(e) <= now)
		{
			finish_lookups(http);
			break;
		}
	}
	for (Exchange *e = http->waiting; e != NULL; e = next)
	{
		next = e->next;
		if (waits_until_ns(e) > now)
			continue;
		if (e->name != NULL)
			end_exchange(http, e, CURLE_OPERATION_TIMEDOUT);
		else if (etcd_http_was_connected(e))
			stop_waiting(http, e);
		else
			fail_to_connect(http, e, CURLE_OPERATION_TIMEDOUT);
	}
}

void
etcd_http_run_timer(Http *http)
{
	int64_t		now = clock_monotonic_ns();

	run_waiting(http, now);
	if (http->sockets.timer_ns > now)
		return;
	http->sockets.timer_ns = INT64_MAX;
	run_curl(http, CURL_SOCKET_TIMEOUT, 0);
}

void
etcd_http_socket_ready(Http *http, int fd, int events)
{
	int			mask = 0;

	if (fd == etcd_names_fd(http->names))
	{
		finish_lookups(http);
		return;
	}
	for (Exchange *exchange = http->connections; exchange != NULL; exchange = exchange->next)
	{
		if (exchange->fd == fd)
		{
			exchange->is_readable = true;
			if (exchange->is_full)
				etcd_sockets_set(&http->sockets, fd, ETCD_SOCKET_READABLE);
			exchange->is_full = false;
			return;
		}
	}
	if (events & ETCD_SOCKET_READABLE)
		mask |= CURL_CSELECT_IN;
	if (events & ETCD_SOCKET_WRITEABLE)
		mask |= CURL_CSELECT_OUT;
	if (events & ETCD_SOCKET_ERROR)
		mask |= CURL_CSELECT_ERR;
	run_curl(http, fd, mask);
}

void
etcd_http_wait(Http *http, long timeout_ms)
{
	struct curl_waitfd others[MAX_CONNECTIONS];
	unsigned	nothers = 0;

	others[nothers++] = (struct curl_waitfd) {
		.fd = etcd_names_fd(http->names),
		.events = CURL_WAIT_POLLIN
	};
	for (Exchange *e = http->connections; e != NULL && nothers < MAX_CONNECTIONS; e = e->next)
		others[nothers++] = (struct curl_waitfd) {
			.fd = e->fd,
			.events = CURL_WAIT_POLLIN | (e->is_full ? CURL_WAIT_POLLOUT : 0)
		};
	curl_multi_wait(http->multi, others, nothers, (int) timeout_ms, NULL);

	/*
	 * libcurl finds out itself what each socket is ready for.  If a socket
	 * moves within the list meanwhile, it is handled in the next round.
	 */
	for (int i = 0; i < http->sockets.n; i++)
		etcd_http_socket_ready(http, http->sockets.sockets[i].fd, 0);
}

/* ---- the received bytes ---------------------------------------------- */

bool
etcd_http_failed(const Exchange *exchange)
{
	return exchange->result != CURLE_OK;
}

long
etcd_http_status(const Exchange *exchange)
{
	long		status = 0;

	curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

const char *
etcd_http_url(const Exchange *exchange)
{
	return exchange->url;
}

const char *
etcd_http_data(const Exchange *exchange, size_t *len)
{
	*len = exchange->len - exchange->taken;
	return exchange->data != NULL ? exchange->data + exchange->taken : "";
}

size_t
etcd_http_searched(const Exchange *exchange)
{
	return exchange->searched;
}

bool
etcd_http_has_news(const Exchange *exchange)
{
	return exchange->has_news;
}

void
etcd_http_take(Exchange *exchange, size_t n)
{
	exchange->taken += n;
	exchange->searched = 0;
}

void
etcd_http_await_more(Http *http, Exchange *exchange)
{
	exchange->len -= exchange->taken;
	if (exchange->taken > 0)
		memmove(exchange->data, exchange->data + exchange->taken, exchange->len);
	exchange->taken = 0;
	exchange->searched = exchange->len;
	exchange->has_news = false;
	if (exchange->len == 0 && exchange->size > MAX_IDLE_SIZE)
	{
		free(exchange->data);
		exchange->data = NULL;
		exchange->size = 0;
	}
	if (exchange->paused)
	{
		exchange->paused = false;
		etcd_http_resume(http, exchange);
	}
}

void
etcd_http_pause(Http *http, Exchange *exchange)
{
	if (curl_easy_pause(exchange->easy, CURLPAUSE_RECV) != CURLE_OK)
		end_exchange(http, exchange, CURLE_WRITE_ERROR);
}

void
etcd_http_resume(Http *http, Exchange *exchange)
{
	/* calls record_data(); nothing else learns of its failure */
	if (curl_easy_pause(exchange->easy, CURLPAUSE_CONT) != CURLE_OK)
		end_exchange(http, exchange, CURLE_WRITE_ERROR);
}

void
etcd_http_describe_timeout(const Exchange *exchange, long whole_ms, char *message)
{
	long		connect_ms = exchange->connect_timeout_ms;

	if (exchange->unresolved)
		etcd_format_message(message,
							"could not resolve host \"%s\" of etcd at \"%s\" within %ld ms",
							exchange->target.host, exchange->url,
							connect_ms < whole_ms ? connect_ms : whole_ms);
	else if (etcd_http_was_connected(exchange))
		etcd_format_message(message, "no answer from etcd at \"%s\" within %ld ms",
							exchange->url, whole_ms);
	else
		etcd_format_message(message, "could not connect to etcd at \"%s\" within %ld ms",
							exchange->url, connect_ms < whole_ms ? connect_ms : whole_ms);
}

bool
etcd_http_describe_failure(const Exchange *exchange, EtcdOutcome *outcome, char *message)
{
	const char *url = exchange->url;
	const char *detail = exchange->error;
	CURLcode	result;
	long		os_errno = 0;

	*outcome = ETCD_NO_ANSWER;
	if (curl_easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &os_errno) != CURLE_OK ||
		os_errno == 0)
		os_errno = exchange->target.socket_errno;
	if (detail[0] == '\0')
		detail = curl_easy_strerror(exchange->result);

	if (exchange->too_large)
	{
		/* a read of values of others can be too large, from any endpoint */
		*outcome = exchange->max_size > ETCD_MAX_ANSWER_SIZE && !exchange->is_stream ?
			ETCD_REFUSED : ETCD_GARBAGE;
		etcd_format_message(message, "answer of etcd at \"%s\" is larger than %zu bytes",
							url, exchange->max_size);
		return false;
	}
	if (etcd_limits_describe(&exchange->limits, url, message))
		return false;

	result = etcd_curl_classify(exchange->result, detail);
	switch (result)
	{
		case CURLE_OPERATION_TIMEDOUT:
			etcd_http_describe_timeout(exchange, exchange->timeout_ms, message);
			return true;
		case CURLE_COULDNT_RESOLVE_HOST:
		case CURLE_COULDNT_CONNECT:
			if (etcd_curl_describe_socket(message, url, &exchange->target))
				break;
			if (os_errno != 0)
				detail = strerror((int) os_errno);
			etcd_format_message(message, "could not connect to etcd at \"%s\": %s", url, detail);
			break;
		case CURLE_GOT_NOTHING:
			etcd_format_message(message, "etcd at \"%s\" closed the connection without an answer",
								url);
			break;
		default:
			if (etcd_tls_describe(message, exchange->easy, result, &exchange->target, url, detail))
				break;
			if (exchange->result == CURLE_UNSUPPORTED_PROTOCOL ||
				exchange->result == CURLE_WEIRD_SERVER_REPLY)
				*outcome = ETCD_GARBAGE;
			etcd_format_message(message, "no answer from etcd at \"%s\": %s", url, detail);
			break;
	}
	return false;
}
