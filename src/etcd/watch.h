/*-------------------------------------------------------------------------
 *
 * watch.h
 *	  The watch streams.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_WATCH_H
#define ETCD_WATCH_H

#include "client.h"

/* How many connections stay open.  To be called at the beginning. */
extern void etcd_watch_keep_connections(EtcdClient *client);

/* Ends all streams that are open; watch_ended() is called later. */
extern void etcd_watch_end_all(EtcdClient *client, const char *why);

extern int64_t etcd_watch_due_ns(const EtcdClient *client);
extern void etcd_watch_run(EtcdClient *client);
/* True if the stream has ended, and that is the fault of its endpoint. */
extern bool etcd_watch_deliver_frames(EtcdClient *client, int stream);
extern void etcd_watch_deliver_ends(EtcdClient *client);
extern void etcd_watch_free(EtcdClient *client);

#endif							/* ETCD_WATCH_H */
