/*-------------------------------------------------------------------------
 *
 * server.h
 *	  A member of etcd: it answers calls, and serves watch streams.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_H
#define SERVER_H

#include "cluster.h"

/* Counters of what etcd has executed for a client. */
typedef struct Served
{
	int64_t		reads;			/* txns that only read */
	int64_t		ordered;		/* txns that read, ordered by raft's log */
	int64_t		writes;			/* other txns, grants, revocations; all through the log */
	int64_t		keepalives;
	int64_t		streams;		/* opened */
	int64_t		events;			/* sent on the streams */
	int64_t		fetched;		/* keys read for ranges, see store_fetched */
} Served;

/* NULL: the connection is closed without an answer. */
typedef void (*CallDone) (void *owner, const EtcdAnswer *answer);

/*
 * A unary call has arrived at a member that is up.  timeout_ns is the time-out
 * that the client has sent with it.  done() is called once, and never before
 * this function has returned.  account may be NULL.
 */
extern void server_call(int m, const EtcdRequest *request, int64_t timeout_ns, Cause cause,
						Served *account, CallDone done, void *owner);

typedef struct Stream Stream;

/* NULL: the member ends the stream. */
typedef void (*StreamWrite) (void *owner, const EtcdWatchFrame *frame);

extern Stream *stream_open(int m, const EtcdWatch *watches, int nwatches,
						   Served *account, StreamWrite write, void *owner);
extern void stream_close(Stream *stream);

extern void streams_reset(void);
extern void server_reset(void);

#endif							/* SERVER_H */
