/*-------------------------------------------------------------------------
 *
 * http.h
 *	  Status and metrics by HTTP: what the files of this library share.
 *
 * Two processes have this library loaded.  The worker is a background worker
 * of PostgreSQL: it opens the sockets, reads the certificate, and starts the
 * server.  The server is a child of the worker: it alone speaks with clients,
 * and it cannot write to shared memory.  See worker.c.
 *
 * This library uses nothing of etcd_leader but the C API.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HTTP_H
#define HTTP_H

#include <microhttpd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/compat.h"
#include "etcd_leader.h"
#include "lib/stringinfo.h"

#if MHD_VERSION < 0x00097200
#error "libmicrohttpd 0.9.72 or later is required"
#endif

/* Milliseconds of a clock that nobody can step. */
static inline int64
http_clock_ms(void)
{
	return clock_monotonic_ns() / NSEC_PER_MSEC;
}

/* ---- api.c ------------------------------------------------------------- */

/* In both processes, once it is loaded. */
extern const EtcdLeaderApi *http_api;

/* FATAL if the loaded library of etcd_leader is of another version. */
extern void http_load_api(void);

/*
 * Text of the API may come from anybody.  This makes it valid UTF-8: a palloc'd
 * copy, in which each byte that is none is a question mark.
 */
extern char *http_valid_text(const char *text);

/* ---- settings of the server -------------------------------------------- */

/* Where connections come from: listen addresses of the settings. */
#define HTTP_MAX_LISTENERS	16

typedef struct HttpListener
{
	char		address[64];	/* as in the settings */
	bool		is_agent;		/* HAProxy's agent checks, not HTTP */
	int			fd;				/* -1: could not be opened yet */
	int64		failed_ms;		/* since when; 0: it did not fail */
	bool		reported;		/* the log says so */
} HttpListener;

typedef struct HttpConfig
{
	int			nlisteners;
	HttpListener listeners[HTTP_MAX_LISTENERS];
	char	   *certificate;	/* PEM, in TopMemoryContext; NULL: no TLS */
	char	   *key;
} HttpConfig;

/* ---- listeners.c ------------------------------------------------------- */

/*
 * Opens the addresses of the settings.  Sockets that are open in `old` are
 * taken over, or closed.  An address that cannot be opened has fd -1
 * afterwards, which is logged once.
 */
extern void http_open_listeners(const HttpConfig *old, HttpConfig *new);

/* ---- tls.c ------------------------------------------------------------- */

/*
 * Reads the files of the certificate and its key, if the settings name any.
 * False if that cannot be; *error says why, then.  What it has read is in
 * *config in either case.
 */
extern bool http_read_certificate(HttpConfig *config, const char **error);

/* ---- server.c ---------------------------------------------------------- */

/* Between the worker and the server, in packets of a socket. */
typedef enum HttpMessageKind
{
	HTTP_READY,					/* the server serves */
	HTTP_WANT_QUEUES,			/* somebody looks at /status */
	HTTP_QUEUE					/* from the worker: an HttpQueue follows */
} HttpMessageKind;

#define HTTP_QUEUE_PLACES	16
#define HTTP_MAX_QUEUES		32

typedef struct HttpQueue
{
	HttpMessageKind kind;
	int			election;		/* index */
	int			nplaces;		/* -1: etcd did not answer */
	TimestampTz at;
	EtcdLeaderCandidate places[HTTP_QUEUE_PLACES];
} HttpQueue;

/*
 * The server: serves until the control socket is closed on the other side.
 * Never returns.
 */
pg_noreturn extern void http_serve(const HttpConfig *config, int control);

/* What answers are made of, beside the C API. */
typedef struct HttpSource
{
	bool		draining;		/* no connection is kept for another request */
	bool		queues_wanted;	/* set for the page: the worker is to be asked for them */
	HttpQueue  *queues[HTTP_MAX_QUEUES];	/* the newest of each election; NULL: none yet */
} HttpSource;

/* ---- connections.c ------------------------------------------------------- */

/*
 * No client can keep others from being served: a connection that completes no
 * request for some seconds is closed, and where there are too many, of one
 * address or of all, the one that has completed none for the longest time
 * makes room for the next.
 */
#define CONNECTIONS_MAX				256
#define CONNECTIONS_PER_ADDRESS		64
#define CONNECTIONS_TIMEOUT_MS		5000

/*
 * Makes room for a connection from that address.  True if there were too many
 * of it, so that one is shut down: it is there until libmicrohttpd closes it.
 */
extern bool connections_make_room(const struct sockaddr_storage *address);

/*
 * Makes room for any connection.  This takes effect when libmicrohttpd has
 * closed the connection that is shut down.  False if there is no connection.
 */
extern bool connections_make_any_room(void);

/* A connection is there; has completed a request; is gone. */
extern void connections_add(int fd, const struct sockaddr_storage *address);
extern void connections_completed(int fd);
extern void connections_remove(int fd);

extern int	connections_count(void);

/*
 * Shuts down connections that have taken too long.  Returns the milliseconds
 * until this must be called again, -1 if there are no connections.
 */
extern int	connections_expire(void);

/* ---- isolation.c ------------------------------------------------------- */

/*
 * Separates this process, a child of the worker, from PostgreSQL: it ends with
 * the worker, runs none of its exit callbacks, and cannot write to shared
 * memory.
 */
extern void http_isolate(pid_t worker);

/* ---- routes.c, metrics.c, status_page.c ---------------------------------- */

/* Answers a request, when it is complete; a handler of libmicrohttpd. */
extern enum MHD_Result http_answer(void *source, struct MHD_Connection *connection, const char *url,
								   const char *method, const char *version, const char *upload_data,
								   size_t *upload_data_size, void **request);

extern void http_append_metrics(StringInfo out);
extern void http_append_status_page(StringInfo out, HttpSource *source);

#endif							/* HTTP_H */
