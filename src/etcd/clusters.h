/*-------------------------------------------------------------------------
 *
 * clusters.h
 *	  The etcd clusters of the endpoints, and which of them may be used.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CLUSTERS_H
#define ETCD_CLUSTERS_H

#include "client_state.h"

/* May that cluster be used? */
extern bool etcd_cluster_is_usable(const EtcdClient *client, uint64_t cluster_id);

/* Is it known which cluster may be used? */
extern bool etcd_cluster_is_known(const EtcdClient *client);

/*
 * The first endpoint, beginning with that one, that is not foreign; that one if
 * all are.
 */
extern int	etcd_find_usable_endpoint(const EtcdClient *client, int first);

/* Says why the cluster that an endpoint belongs to is not used. */
extern void etcd_cluster_describe(const EtcdClient *client, const char *url, uint64_t cluster_id,
								  char *message);

/* An answer of an endpoint has the ID of its cluster. */
extern void etcd_cluster_note(EtcdClient *client, Endpoint *endpoint, uint64_t cluster_id);

/*
 * All endpoints are asked for their cluster soon: another one is in use, or one
 * has told another cluster than before.  So the members that were rebuilt as
 * another cluster are noticed together.
 */
extern void etcd_cluster_look_soon(EtcdClient *client);

/* An answer has the list of members. */
extern void etcd_cluster_learn_members(EtcdClient *client, const EtcdAnswer *answer);

#endif							/* ETCD_CLUSTERS_H */
