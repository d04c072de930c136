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

/* Does the cluster of the keys run this server? (OURS) */
extern bool patroni_is_ours(const ElectionCore *core, const Patroni *p);

/* What the keys of a PATRONI_READ show of the cluster, apart from its leader. */
extern void patroni_learn_cluster(const ElectionCore *core, Patroni *p,
								  const EtcdKeyValue *const *keys);

#endif							/* PATRONI_CLUSTER_H */
