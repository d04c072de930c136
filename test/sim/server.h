/*-------------------------------------------------------------------------
 *
 * server.h
 *	  A member of etcd answers: calls, and watch streams.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_H
#define SERVER_H

#include "cluster.h"

/* NULL: the connection is closed without an answer. */
typedef void (*CallDone) (void *owner, const EtcdAnswer *answer);

/*
 * A unary call has arrived at a member that is up; timeout_ns is what its
 * client asks the server to keep to.  done() is called once, never from here.
 */
extern void server_call(int m, const EtcdRequest *request, int64_t timeout_ns, Cause cause,
						CallDone done, void *owner);

/* How many calls were executed, by kind: for the scale table. */
extern int64_t server_calls;

typedef struct Stream Stream;

/* Bytes for the client, malloc'd; NULL: the member ends the stream. */
typedef void (*StreamWrite) (void *owner, char *bytes, size_t len);

extern Stream *stream_open(int m, const EtcdWatch *watches, int nwatches,
						   StreamWrite write, void *owner);
extern void stream_close(Stream *stream);

extern int64_t streams_events;
extern int64_t streams_opened;

extern void streams_reset(void);
extern void server_reset(void);

#endif							/* SERVER_H */
