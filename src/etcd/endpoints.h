/*-------------------------------------------------------------------------
 *
 * endpoints.h
 *	  The endpoints: those of the settings, and those learned from the cluster.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_ENDPOINTS_H
#define ETCD_ENDPOINTS_H

#include "client.h"

extern void etcd_endpoints_free(EtcdClient *client);

/* From now on everything goes to that endpoint; all watch streams end. */
extern void etcd_endpoints_use(EtcdClient *client, int endpoint, const char *why);

/* Goes on to the next endpoint that may be used, if this one is in use. */
extern void etcd_endpoints_leave(EtcdClient *client, int endpoint, const char *why);

/* Those of new settings.  False if memory is out: then nothing has changed. */
extern bool etcd_endpoints_configure(EtcdClient *client, const EtcdClientSettings *settings);

/*
 * Asks the endpoints for their cluster and its members, and for a token, if it
 * is time to.
 */
extern void etcd_endpoints_probe(EtcdClient *client);

/* Asks all endpoints, if it is not known which cluster may be used. */
extern void etcd_endpoints_identify(EtcdClient *client);

/*
 * Leaves an endpoint of another cluster, and asks those again that have failed.
 */
extern int64_t etcd_endpoints_due_ns(const EtcdClient *client);
extern void etcd_endpoints_run(EtcdClient *client);

#endif							/* ETCD_ENDPOINTS_H */
