/*-------------------------------------------------------------------------
 *
 * call.h
 *	  Calls: a request or a watch stream at one endpoint, in the dialect of the
 *	  settings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CALL_H
#define ETCD_CALL_H

#include "http.h"

/* A request or a watch stream at one endpoint, in the dialect of the settings. */
typedef struct Call Call;

/*
 * Begins a call.  A watch stream that lacks a token waits for one.  The call uses the
 * token that the endpoint has when it begins.  The request must outlive the call.
 * NULL if memory is out.
 */
extern Call *etcd_call_send(EtcdClient *client, const EtcdRequest *request,
							const Destination *destination);
extern Call *etcd_call_watch(EtcdClient *client, const EtcdWatch *watches, int nwatches,
							 const Destination *destination);

/* Replaces the watches of an open stream.  False: that is not possible. */
extern bool etcd_call_replace_watches(EtcdClient *client, Call *call, const EtcdWatch *watches,
									  int nwatches, const Destination *destination);

/* Ends a call that takes too long, unless it has ended. */
extern void etcd_call_time_out(EtcdClient *client, Call *call);

/* Frees a call, under way or not.  *call may be NULL, and becomes NULL. */
extern void etcd_call_release(EtcdClient *client, Call **call);

/* 0 until the call has ended; then its place in the order of the ends. */
extern uint64_t etcd_call_ended(const Call *call);

extern const char *etcd_call_url(const Call *call);

/* Is a connection up, or was it, through which the message could go? */
extern bool etcd_call_was_connected(const Call *call);

/* Did the peer hang up without a byte? */
extern bool etcd_call_got_nothing(const Call *call);

/*
 * Reads the answer of a call that has ended.  True if there is none because of
 * a time-out.  etcd_free_answer() must follow.
 */
extern bool etcd_call_read_answer(Call *call, EtcdAnswer *answer);

/* Takes the next frame of a stream.  After READ, etcd_free_frame() must follow. */
extern FrameResult etcd_call_read_frame(EtcdClient *client, Call *call, EtcdWatchFrame *frame);

/* Has anything come of a stream since etcd_call_read_frame() found no frame? */
extern bool etcd_call_has_news(const Call *call);

/* Stops reading a stream, or goes on. */
extern void etcd_call_pause(EtcdClient *client, Call *call, bool paused);

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE why a stream has ended, and returns
 * what kind of failure that was.
 */
extern EtcdOutcome etcd_call_describe_end(const Call *call, char *message);

/* The endpoint sends without end what nobody waits for: no call begins there for a while. */
extern void etcd_call_shun(EtcdClient *client, const char *url);

/* When etcd_call_run() is due, which sends and receives; INT64_MAX: no time is known. */
extern int64_t etcd_call_due_ns(const EtcdClient *client);
extern void etcd_call_run(EtcdClient *client);

/* All calls must have been released. */
extern void etcd_call_free(EtcdClient *client);

#endif							/* ETCD_CALL_H */
