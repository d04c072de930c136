/*-------------------------------------------------------------------------
 *
 * patroni_cluster.h
 *	  What is known of the Patroni cluster that an election follows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PATRONI_CLUSTER_H
#define PATRONI_CLUSTER_H

#include "state.h"

/*
 * A slot was given to a followed election, the settings of its keys changed, or
 * etcd has another history: nothing is known of the keys.
 */
extern void patroni_begin(ElectionCore *core, Election *e);

/* Fills in the leader key, and the reason why this instance does not lead. */
extern void patroni_describe(const ElectionCore *core, const Election *e, ElectionView *view);

/* Is this the server that the cluster of the keys runs as our member? (OURS) */
extern bool patroni_is_ours(const ElectionCore *core, const Patroni *p);

/*
 * Does the key of our member tell another timeline than that of this server, so that it may
 * be about to tell ours?  After a TTL it is another server.
 */
extern bool patroni_watch_timeline(const ElectionCore *core, int64_t now_ns, Election *e);

/* What the keys of a PATRONI_READ show of the cluster, apart from its leader. */
extern void patroni_learn_cluster(const ElectionCore *core, Patroni *p,
								  const EtcdKeyValue *const *keys);

#endif							/* PATRONI_CLUSTER_H */
