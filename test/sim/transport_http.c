/*-------------------------------------------------------------------------
 *
 * transport_http.c
 *	  The functions of src/etcd/http.c that gRPC needs, on pipes in the
 *	  place of libcurl and sockets, and the clock.
 *
 * As there, an event only records what a connection is ready for, and the
 * client acts on it in its turn.  What the client sends is read as frames on
 * the way: rules of HTTP/2 that the server's library would forgive.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "etcd/http.h"
#include "transport.h"

/* The client's clock does not begin at 0, which means "not yet" to it. */
#define CLOCK_START_NS		(1000 * SECOND)

/* The most that the client reads from a connection in a turn. */
#define MAX_TURN_SIZE		(256 * 1024 + 16 * 1024)

/* etcd closes a connection with two PINGs in less. */
#define PING_LEAST_NS		(5 * SECOND)

#define PREFACE_SIZE		24
#define MAX_FRAME_SIZE		16384
#define FRAME_HEADERS		1
#define FRAME_PING			6
#define FLAG_ACK			1

typedef enum ExchangeEnd
{
	END_NONE,
	END_TIMED_OUT,
	END_UNMADE,
	END_CLOSED
} ExchangeEnd;

struct Exchange
{
	Exchange   *next;
	Link	   *link;
	char	   *url;
	long		timeout_ms;
	long		connect_timeout_ms;
	int64_t		connect_until_ns;
	bool		was_made;		/* what the event has recorded */
	bool		was_refused;
	bool		was_notified;
	bool		connected;
	bool		was_connected;
	bool		is_readable;
	bool		is_full;
	uint64_t	ended;
	ExchangeEnd end;
};

/* ---- the clock ------------------------------------------------------------- */

extern int	__real_clock_gettime(clockid_t clock, struct timespec *now);
extern int	__wrap_clock_gettime(clockid_t clock, struct timespec *now);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void) clock;
	now->tv_sec = (CLOCK_START_NS + now_ns) / SECOND;
	now->tv_nsec = (CLOCK_START_NS + now_ns) % SECOND;
	return 0;
}

/* ---- frames of the client -------------------------------------------------- */

static void
check_frame(Link *link)
{
	Wire	   *wire = &link->wire;
	const unsigned char *h = wire->header;
	int32_t		stream = (h[5] & 0x7F) << 24 | h[6] << 16 | h[7] << 8 | h[8];

	wire->payload = (size_t) h[0] << 16 | (size_t) h[1] << 8 | h[2];
	if (wire->payload > MAX_FRAME_SIZE)
		fail_run("link %d: a frame of %zu bytes", link->number, wire->payload);
	if (h[3] == FRAME_HEADERS)
	{
		if (stream <= wire->last_stream || stream % 2 == 0)
			fail_run("link %d: stream %d begins after stream %d", link->number, stream, wire->last_stream);
		wire->last_stream = stream;
	}
	if (h[3] == FRAME_PING && (h[4] & FLAG_ACK) == 0)
	{
		reach(REACHED_CLIENT_PING);
		if (wire->pinged_ns != 0 && now_ns - wire->pinged_ns < PING_LEAST_NS)
			fail_run("link %d: a PING after %" PRId64 " ms", link->number, (now_ns - wire->pinged_ns) / MS);
		wire->pinged_ns = now_ns;
	}
}

static void
check_frames(Link *link, const char *data, size_t len)
{
	Wire	   *wire = &link->wire;

	while (len > 0)
	{
		if (wire->preface < PREFACE_SIZE || wire->payload > 0)
		{
			size_t		left = wire->preface < PREFACE_SIZE ? PREFACE_SIZE - wire->preface : wire->payload;
			size_t		n = left < len ? left : len;

			if (wire->preface < PREFACE_SIZE)
				wire->preface += n;
			else
				wire->payload -= n;
			data += n;
			len -= n;
			continue;
		}
		wire->header[wire->nheader++] = (unsigned char) *data++;
		len--;
		if (wire->nheader == sizeof(wire->header))
		{
			wire->nheader = 0;
			check_frame(link);
		}
	}
}

/* ---- what happens ------------------------------------------------------------ */

void
client_notified(Link *link)
{
	Exchange   *exchange = link->exchange;

	if (exchange == NULL)
		return;
	exchange->was_notified = true;
	client_wake(random_between(0, random_chance(9000) ? MS / 10 : 2 * MS));
}

void
client_link_made(Link *link, bool good)
{
	Exchange   *exchange = link->exchange;

	if (exchange == NULL)
		return;
	exchange->was_made = good;
	exchange->was_refused = !good;
	client_notified(link);
}

static void
end_exchange(Http *http, Exchange *exchange, ExchangeEnd end)
{
	if (exchange->ended != 0)
		return;
	exchange->connected = false;
	exchange->end = end;
	exchange->ended = ++http->nended;
	pipe_close(&exchange->link->up);
}

/* Whole frames that bring nothing, as many as the client takes. */
static size_t
read_flood(Link *link, char *buffer, size_t size)
{
	static const char settings[] = {0, 0, 0, 4, 1, 0, 0, 0, 0};
	static const char window[] = {0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1};
	static const char pong[] = {0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
	static const char unknown[] = {0, 0, 1, 99, 0, 0, 0, 0, 0, 1};
	static const struct
	{
		const char *bytes;
		size_t		len;
	}			frames[] = {
		{settings, sizeof(settings)}, {window, sizeof(window)}, {pong, sizeof(pong)}, {unknown, sizeof(unknown)}
	};
	int			kind = link->number % 4;
	size_t		n = 0;

	if (!link->floods || bytes_left(&link->down.bytes) > 0 || link->down.is_over)
		return 0;
	if (link->flooded_since_ns == NEVER)
		link->flooded_since_ns = now_ns;
	for (; n + frames[kind].len <= size; n += frames[kind].len)
		memcpy(buffer + n, frames[kind].bytes, frames[kind].len);
	return n;
}

/* Whatever a server sends, a turn of the client reads a part of it. */
static void
count_read(Link *link, size_t n)
{
	if (link->turn != nclient_turns)
		link->turn_size = 0;
	link->turn = nclient_turns;
	link->turn_size += n;
	if (link->turn_size > MAX_TURN_SIZE)
		fail_run("link %d: a turn of the client reads %zu bytes", link->number, link->turn_size);
}

/* ---- the functions of etcd/http.c ---------------------------------------------- */

bool
etcd_http_init(Http *http)
{
	memset(http, 0, sizeof(*http));
	http->sockets.timer_ns = INT64_MAX;
	return true;
}

void
etcd_http_free(Http *http)
{
	(void) http;
}

void
etcd_http_keep_connections(Http *http, int n)
{
	(void) http;
	(void) n;
}

void
etcd_http_look_up(Http *http, const char *url)
{
	(void) http;
	(void) url;
}

/* The hosts are "etcd0" and so on. */
Exchange *
etcd_http_connect(Http *http, const Settings *settings, const Destination *destination)
{
	Exchange   *exchange = calloc(1, sizeof(Exchange));

	(void) settings;
	if (exchange == NULL)
		abort();
	exchange->url = strdup(destination->url);
	exchange->timeout_ms = destination->timeout_ms;
	exchange->connect_timeout_ms = destination->connect_timeout_ms;
	exchange->connect_until_ns = clock_monotonic_ns() + destination->connect_timeout_ms * NSEC_PER_MSEC;
	exchange->link = link_create(destination->url[strlen("http://etcd")] - '0', destination->use);
	exchange->link->exchange = exchange;
	exchange->next = http->connections;
	http->connections = exchange;
	trace("client", "link %d to %s for %d", exchange->link->number, destination->url, destination->use);
	return exchange;
}

void
etcd_http_release(Http *http, Exchange **exchange)
{
	Exchange   *released = *exchange;
	Exchange  **link = &http->connections;

	if (released == NULL)
		return;
	*exchange = NULL;
	while (*link != released)
		link = &(*link)->next;
	*link = released->next;
	trace("client", "link %d is released", released->link->number);
	released->link->exchange = NULL;
	pipe_close(&released->link->up);
	free(released->url);
	free(released);
}

void
etcd_http_socket_ready(Http *http, int fd, int events)
{
	(void) fd;
	(void) events;
	for (Exchange *e = http->connections; e != NULL; e = e->next)
	{
		if (!e->was_notified)
			continue;
		e->was_notified = false;
		if (e->was_refused)
			end_exchange(http, e, END_UNMADE);
		if (e->was_made && !e->was_connected && e->ended == 0)
			e->connected = e->was_connected = true;
		e->is_readable = true;
		e->is_full = false;
	}
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
	Link	   *link = exchange->link;
	size_t		n;

	if (!etcd_http_is_readable(exchange))
		return 0;
	n = pipe_read(&link->down, buffer, size);
	if (n == 0 && !run_failed())
		n = read_flood(link, buffer, size);
	count_read(link, n);
	if (n == 0 && link->down.is_over)
		end_exchange(http, exchange, END_CLOSED);
	else if (n == 0)
		exchange->is_readable = false;
	if (link->down.read >= link->goaway_at && link->goaway_read_ns == NEVER)
	{
		trace("client", "link %d: GOAWAY", link->number);
		link->goaway_read_ns = goaway_read_ns = now_ns;
	}
	return n;
}

size_t
etcd_http_send(Http *http, Exchange *exchange, const char *data, size_t len)
{
	Link	   *link = exchange->link;
	size_t		n;

	if (!etcd_http_is_writeable(exchange))
		return 0;
	n = pipe_write(&link->up, data, len);
	check_frames(link, data, n);
	if (n < len)
	{
		exchange->is_full = true;
		if (link->up.is_over)
			end_exchange(http, exchange, END_CLOSED);
		else if (n == 0)
			reach(REACHED_FULL_PIPE);
		else
			client_notified(link);
	}
	return n;
}

void
etcd_http_time_out(Http *http, Exchange *exchange)
{
	end_exchange(http, exchange, END_TIMED_OUT);
}

uint64_t
etcd_http_ended(const Exchange *exchange)
{
	return exchange->ended;
}

bool
etcd_http_was_connected(const Exchange *exchange)
{
	return exchange->was_connected;
}

int64_t
etcd_http_due_ns(const Http *http)
{
	int64_t		due_ns = INT64_MAX;

	for (const Exchange *e = http->connections; e != NULL; e = e->next)
	{
		if (!e->was_connected && e->ended == 0 && e->connect_until_ns < due_ns)
			due_ns = e->connect_until_ns;
	}
	return due_ns;
}

void
etcd_http_run_timer(Http *http)
{
	for (Exchange *e = http->connections; e != NULL; e = e->next)
	{
		if (!e->was_connected && e->connect_until_ns <= clock_monotonic_ns())
			end_exchange(http, e, END_TIMED_OUT);
	}
}

void
etcd_http_describe_timeout(const Exchange *exchange, long timeout_ms, char *message)
{
	etcd_format_message(message, "%s etcd at \"%s\" within %ld ms",
						exchange->was_connected ? "no answer from" : "could not connect to", exchange->url, timeout_ms);
}

bool
etcd_http_describe_failure(const Exchange *exchange, EtcdOutcome *outcome, char *message)
{
	*outcome = ETCD_NO_ANSWER;
	if (exchange->end == END_TIMED_OUT)
	{
		etcd_http_describe_timeout(exchange, exchange->timeout_ms, message);
		return true;
	}
	etcd_format_message(message, "%s etcd at \"%s\"",
						exchange->end == END_UNMADE ? "could not connect to" : "connection closed by", exchange->url);
	return false;
}

/* ---- what JSON alone needs ----------------------------------------------------- */

/* There is no JSON here. */
Exchange *
etcd_http_post(Http *http, const Settings *settings, const Destination *destination,
			   const Payload *payload, const char *const *headers, int nheaders)
{
	(void) http;
	(void) settings;
	(void) destination;
	(void) payload;
	(void) headers;
	(void) nheaders;
	fail_run("a POST");
	return NULL;
}

void
etcd_http_wait(Http *http, long timeout_ms)
{
	(void) http;
	(void) timeout_ms;
}

bool
etcd_http_failed(const Exchange *exchange)
{
	return exchange->end != END_NONE;
}

bool
etcd_http_floods(const Exchange *exchange)
{
	(void) exchange;
	return false;
}

bool
etcd_http_got_nothing(const Exchange *exchange)
{
	(void) exchange;
	return false;
}

const char *
etcd_http_url(const Exchange *exchange)
{
	return exchange->url;
}

long
etcd_http_status(const Exchange *exchange)
{
	(void) exchange;
	return 0;
}

const char *
etcd_http_data(const Exchange *exchange, size_t *len)
{
	(void) exchange;
	*len = 0;
	return "";
}

size_t
etcd_http_searched(const Exchange *exchange)
{
	(void) exchange;
	return 0;
}

void
etcd_http_take(Exchange *exchange, size_t n)
{
	(void) exchange;
	(void) n;
}

void
etcd_http_await_more(Http *http, Exchange *exchange)
{
	(void) http;
	(void) exchange;
}

bool
etcd_http_has_news(const Exchange *exchange)
{
	(void) exchange;
	return false;
}

void
etcd_http_pause(Http *http, Exchange *exchange)
{
	(void) http;
	(void) exchange;
}

void
etcd_http_resume(Http *http, Exchange *exchange)
{
	(void) http;
	(void) exchange;
}
