/*-------------------------------------------------------------------------
 *
 * http.h
 *	  POST requests and bare connections over TCP and TLS, without blocking.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_HTTP_H
#define ETCD_HTTP_H

#include "connections.h"
#include "names.h"
#include "settings.h"
#include "sockets.h"

/* One POST to one endpoint, and its answer; or a connection. */
typedef struct Exchange Exchange;

/* libcurl, and what is under way. */
typedef struct Http
{
	void	   *multi;			/* CURLM */
	EtcdSockets sockets;
	EtcdConnections facts;
	EtcdNames  *names;
	uint64_t	nended;			/* numbers exchanges in the order of their ends */
	Exchange   *idle;			/* to be used again */
	Exchange   *waiting;		/* for the addresses of their hosts, or to connect */
	Exchange   *connections;	/* that are open, see etcd_http_connect() */
} Http;

/*
 * A message, encoded once.  It may be sent several times, and at the same
 * time.  Its owner frees it after the exchanges that carry it.
 */
typedef struct Payload
{
	EtcdRequestKind kind;		/* not of a watch */
	const char *path;
	char	   *body;
	size_t		len;
} Payload;

/*
 * Upper limit of an answer, and of the incomplete frame at the end of a
 * stream.  The largest answer that elections need is a list of candidates or
 * their keys, some hundred bytes for each.  Values of some hundred kilobytes
 * are no names of nodes; whoever writes them only stops the election, and a
 * server that sends without end only loses its connection.
 *
 * Where values of others are asked for, the other one holds.  A value may be as
 * large as etcd takes it in one request, 1.5 MB by default, and a fragment of a
 * watch response, too; in JSON a value becomes a third more, and an event of
 * 60 bytes up to four times as much.
 */
#define ETCD_MAX_ANSWER_SIZE	(1024 * 1024)
#define ETCD_MAX_LARGE_SIZE		(8 * 1024 * 1024)

/*
 * The minimum time-out of a large answer, whose slowness alone must not be
 * the endpoint's fault.
 */
#define ETCD_LARGE_TIMEOUT_MS	5000


/* Where an exchange goes, and how. */
typedef struct Destination
{
	const char *url;			/* of the endpoint */
	const char *token;			/* NULL: none */
	uint64_t	token_number;	/* see Endpoint */
	int			use;			/* which connection of gRPC: 0: that of requests, or
								 * 1 + the number of the watch stream */
	long		timeout_ms;		/* of a stream: to connect */
	long		connect_timeout_ms;
	bool		is_stream;
	bool		connects;		/* uses no connection that is open already */
	size_t		max_size;		/* of an answer, of a frame */
} Destination;

extern bool etcd_http_init(Http *http);
/* All exchanges must have been released. */
extern void etcd_http_free(Http *http);

/* How many connections may stay open. */
extern void etcd_http_keep_connections(Http *http, int n);

/*
 * Begins an exchange.  Nothing happens before the timer is run, which is due
 * at once.  NULL if memory is out.  Only the payload must outlive it.
 */
extern Exchange *etcd_http_post(Http *http, const Settings *settings,
								const Destination *destination,
								const Payload *payload, const char *const *headers, int nheaders);

/* Looks up the host of an endpoint, unless its addresses are fresh. */
extern void etcd_http_look_up(Http *http, const char *url);
/*
 * Makes a connection for bytes of the caller's.  It is an exchange that ends
 * with the connection.  destination->timeout_ms is the time to make it.  NULL
 * if memory is out.
 */
extern Exchange *etcd_http_connect(Http *http, const Settings *settings,
								   const Destination *destination);
extern bool etcd_http_is_connected(const Exchange *exchange);

/* May there be bytes to receive, or room for bytes to send? */
extern bool etcd_http_is_readable(const Exchange *exchange);
extern bool etcd_http_is_writeable(const Exchange *exchange);

/* Receives or sends some bytes, and returns how many; 0 also if the connection has ended. */
extern size_t etcd_http_recv(Http *http, Exchange *exchange, char *buffer, size_t size);
extern size_t etcd_http_send(Http *http, Exchange *exchange, const char *data, size_t len);

/* Ends an exchange that takes too long, unless it has ended. */
extern void etcd_http_time_out(Http *http, Exchange *exchange);

/* Frees an exchange, under way or not.  *exchange may be NULL, and becomes NULL. */
extern void etcd_http_release(Http *http, Exchange **exchange);

/* 0 until the exchange has ended; then its place in the order of the ends. */
extern uint64_t etcd_http_ended(const Exchange *exchange);

/* Is a connection up, or was it, through which the message could go? */
extern bool etcd_http_was_connected(const Exchange *exchange);

/* How it ended: without success; because the peer hung up without a byte. */
extern bool etcd_http_failed(const Exchange *exchange);
extern bool etcd_http_got_nothing(const Exchange *exchange);

/* Did it end because the peer sent bytes without end that are no part of an answer? */
extern bool etcd_http_floods(const Exchange *exchange);

/*
 * Returns the kind of failure, and its text in a buffer of ETCD_MESSAGE_SIZE.
 * True if it was a time-out.
 * REFUSED: the answer to a request for values of others is too large, which is
 * not the endpoint's fault.
 */
extern bool etcd_http_describe_failure(const Exchange *exchange, EtcdOutcome *outcome,
									   char *message);

/* The text of a time-out alone, for something that takes that time at most. */
extern void etcd_http_describe_timeout(const Exchange *exchange, long timeout_ms, char *message);

extern const char *etcd_http_url(const Exchange *exchange);
extern long etcd_http_status(const Exchange *exchange);

/* The bytes that have arrived and are not taken yet; never NULL. */
extern const char *etcd_http_data(const Exchange *exchange, size_t *len);

/*
 * Of a stream: the number of leading bytes in which no frame ends.
 */
extern size_t etcd_http_searched(const Exchange *exchange);

/*
 * Of a stream: removes that number of bytes; reports that the rest is not a whole
 * frame.
 */
extern void etcd_http_take(Exchange *exchange, size_t n);
extern void etcd_http_await_more(Http *http, Exchange *exchange);

/* Has anything come since etcd_http_await_more()? */
extern bool etcd_http_has_news(const Exchange *exchange);

/* Stops reading a stream until it is resumed. */
extern void etcd_http_pause(Http *http, Exchange *exchange);
extern void etcd_http_resume(Http *http, Exchange *exchange);

/* When the timer has to be run; INT64_MAX: not. */
extern int64_t etcd_http_due_ns(const Http *http);
extern void etcd_http_run_timer(Http *http);
extern void etcd_http_socket_ready(Http *http, int fd, int events);
/* Waits for any socket, and runs libcurl for all of them. */
extern void etcd_http_wait(Http *http, long timeout_ms);

#endif							/* ETCD_HTTP_H */
