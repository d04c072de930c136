/*-------------------------------------------------------------------------
 *
 * grpc.h
 *	  etcd's gRPC: requests and watches as streams of HTTP/2 connections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_GRPC_H
#define ETCD_GRPC_H

#include "http.h"

/* A request or a watch stream in gRPC. */
typedef struct GrpcCall GrpcCall;

/* The connections and calls in gRPC. */
typedef struct Grpc
{
	Http	   *http;			/* by which connections are made */
	const Settings *settings;	/* in force */
	uint64_t	turn;			/* see etcd_grpc_run() */
	struct Connection *connections; /* newest first */
	GrpcCall   *calls;			/* oldest first */
} Grpc;

/* Http and settings must outlive it. */
extern void etcd_grpc_init(Grpc *grpc, Http *http, const Settings *settings);

/* Begins a call.  NULL if memory is out. */
extern GrpcCall *etcd_grpc_start(Grpc *grpc, const EtcdRequest *request,
								 const Destination *destination);
extern GrpcCall *etcd_grpc_watch(Grpc *grpc, const EtcdWatch *watches, int nwatches,
								 const Destination *destination);

/*
 * Replaces the watches of a stream.  What the old ones still tell is dropped.
 * False: it takes another stream.
 */
extern bool etcd_grpc_replace_watches(GrpcCall *call, const EtcdWatch *watches, int nwatches,
									  const Destination *destination);

/* As the functions of http.c for an Exchange. */
extern void etcd_grpc_release(Grpc *grpc, GrpcCall **call);
extern void etcd_grpc_time_out(Grpc *grpc, GrpcCall *call);
extern uint64_t etcd_grpc_ended(const GrpcCall *call);
extern bool etcd_grpc_was_connected(const GrpcCall *call);

/* Did it send more frames than it may that nobody waits for? */
extern bool etcd_grpc_floods(const GrpcCall *call);

/* Has the call ended without being looked at?  It may be sent again. */
extern bool etcd_grpc_is_refused(const GrpcCall *call);

/* As the functions of gateway.c. */
extern bool etcd_grpc_read_answer(GrpcCall *call, EtcdAnswer *answer);
extern FrameResult etcd_grpc_read_frame(GrpcCall *call, EtcdWatchFrame *frame);
extern EtcdOutcome etcd_grpc_describe_end(const GrpcCall *call, char *message);

/* Is there a frame to read? */
extern bool etcd_grpc_has_news(const GrpcCall *call);

/* Stops receiving much more of a watch stream, or goes on. */
extern void etcd_grpc_pause(GrpcCall *call, bool paused);

/* Is a connection kept that no call uses?  See Destination. */
typedef bool (*GrpcKeeps) (const void *ctx, const char *url, int use);

/*
 * When etcd_grpc_run() is due, which moves the bytes; INT64_MAX: no time is known.  In a
 * turn with the same number, a part of what a server sends is read.
 */
extern int64_t etcd_grpc_due_ns(const Grpc *grpc);
extern void etcd_grpc_run(Grpc *grpc, uint64_t turn, GrpcKeeps keeps, const void *ctx);

/*
 * Answers the PINGs that have come.  It is called once in a turn, when the requests are
 * made: etcd sends no PING for a request that comes before the answer to the last one.
 */
extern void etcd_grpc_answer_pings(Grpc *grpc);

/* All calls must have been released. */
extern void etcd_grpc_free(Grpc *grpc);

#endif							/* ETCD_GRPC_H */
