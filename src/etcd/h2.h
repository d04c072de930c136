/*-------------------------------------------------------------------------
 *
 * h2.h
 *	  One HTTP/2 connection for gRPC: bytes in, bytes out.
 *
 * Pure: no socket, no clock, no postgres.h.  nghttp2 does the framing, the
 * compression of headers and the flow control.  The caller carries the bytes
 * between the session and the server, and looks at the streams afterwards:
 * nothing calls back.
 *
 * A stream is one call of gRPC.  It sends messages and receives messages;
 * headers and trailers are read as gRPC defines them (the document
 * PROTOCOL-HTTP2 of grpc).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_H2_H
#define ETCD_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct H2 H2;
typedef struct H2Stream H2Stream;

/* What a stream tells at its beginning. */
typedef struct H2Request
{
	bool		is_tls;
	const char *authority;		/* host and port of the server */
	const char *path;
	const char *token;			/* NULL: none */
	long		timeout_ms;		/* that the server has; 0: no limit */
	size_t		max_size;		/* of a message that is received */
} H2Request;

/* How a stream stands. */
typedef enum H2State
{
	H2_OPEN,					/* more may come */
	H2_ENDED,					/* by a status of gRPC: see etcd_h2_status() */
	H2_REFUSED,					/* by the server before it looked at it: nothing was executed */
	H2_BROKEN,					/* without a status: it may have been executed */
	H2_TOO_LARGE,				/* a message was larger than max_size */
	H2_NOT_GRPC					/* the answer is not of gRPC: see etcd_h2_http_status() */
} H2State;

/* NULL if memory is out. */
extern H2  *etcd_h2_create(void);

/* Frees its streams, too. */
extern void etcd_h2_free(H2 *h2);

/* Takes bytes of the server.  After a fault they are dropped. */
extern void etcd_h2_receive(H2 *h2, const char *data, size_t len);

/*
 * Why the connection cannot go on; NULL: it can.  All streams have ended with
 * it.
 */
extern const char *etcd_h2_fault(H2 *h2);

/*
 * How many idle frames, for which nobody waits, have come since the count was
 * cleared.  A message that somebody waits for makes up for some of them, because
 * a server sends some control frames with each of its answers.
 */
extern int	etcd_h2_idle_frames(const H2 *h2);
extern void etcd_h2_clear_idle_frames(H2 *h2);

/* Ends the connection: the server violates what the caller asks of it. */
extern void etcd_h2_fail(H2 *h2, const char *why);

/* How many streams the server allows at a time. */
extern uint32_t etcd_h2_max_streams(H2 *h2);

/* Did the server answer in HTTP/1? */
extern bool etcd_h2_is_http1(const H2 *h2);

/* Has the server asked to leave the connection (GOAWAY)?  No stream can begin. */
extern bool etcd_h2_is_going_away(const H2 *h2);

/*
 * The bytes that wait to be sent; *len is 0 if there are none, or memory is
 * out.  They are valid until the next call of any function but
 * etcd_h2_sent(), which says how many were sent.
 */
extern const char *etcd_h2_output(H2 *h2, size_t *len);
extern bool etcd_h2_has_output(H2 *h2);
extern void etcd_h2_sent(H2 *h2, size_t n);

/* Sends a PING; true while its answer is missing. */
extern void etcd_h2_ping(H2 *h2);
extern bool etcd_h2_awaits_pong(const H2 *h2);

/* Sends the answer to the last PING of the server, behind all that is to be sent. */
extern void etcd_h2_answer_ping(H2 *h2);

/* Begins a stream.  NULL if memory is out. */
extern H2Stream *etcd_h2_open(H2 *h2, const H2Request *request);

/*
 * Sends a message of protobuf.  is_last: no other one will follow.  False if
 * memory is out.
 */
extern bool etcd_h2_send(H2 *h2, H2Stream *stream, const char *message, size_t len, bool is_last);

/* Ends a stream, unless it has ended, and frees it.  *stream may be NULL, and becomes NULL. */
extern void etcd_h2_close(H2 *h2, H2Stream **stream);

extern H2State etcd_h2_state(const H2Stream *stream);

/* Has the server begun to answer in gRPC? */
extern bool etcd_h2_is_answered(const H2Stream *stream);

/* ENDED: the status of gRPC, and its message in a buffer of ETCD_MESSAGE_SIZE. */
extern int	etcd_h2_status(const H2Stream *stream, char *message);

/* NOT_GRPC: the status of HTTP. */
extern int	etcd_h2_http_status(const H2Stream *stream);

/* BROKEN: the code of the error in HTTP/2, for people. */
extern const char *etcd_h2_error(const H2Stream *stream);

/*
 * The next whole message that was received; NULL if there is none.  It is
 * valid until etcd_h2_take(), which removes it.  awaited: somebody waits for
 * it.  If not, it counts as an idle frame.
 */
extern const char *etcd_h2_message(const H2Stream *stream, size_t *len);
extern void etcd_h2_take(H2 *h2, H2Stream *stream, bool awaited);

/*
 * While a stream is paused, the server may send no more than a window of it,
 * which goes for all streams of the connection.
 */
extern void etcd_h2_pause(H2 *h2, H2Stream *stream, bool paused);

#endif							/* ETCD_H2_H */
