/*-------------------------------------------------------------------------
 *
 * discovery.h
 *	  Endpoints from the SRV records of a DNS domain, as etcdctl's
 *	  --discovery-srv finds them, without blocking.
 *
 * Like client.h this knows nothing of PostgreSQL and owns no event loop.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_DISCOVERY_H
#define ETCD_DISCOVERY_H

#include <stdbool.h>

#include "client.h"

typedef struct EtcdDiscovery EtcdDiscovery;

/* The endpoints that a lookup found, in the order in which to try them. */
typedef struct EtcdDiscovered
{
	char		domain[256];
	char		urls[ETCD_CLIENT_MAX_ENDPOINTS][ETCD_CLIENT_MAX_URL_LEN + 1];
	int			nurls;			/* 0: none, see error */
	long		ttl_s;			/* of the records: the least */
	char		error[ETCD_MESSAGE_SIZE];
} EtcdDiscovered;

/* NULL if memory or file descriptors are out. */
extern EtcdDiscovery *etcd_discovery_create(void);

/*
 * Starts to look up _etcd-client-ssl._tcp.DOMAIN and, if that has no records
 * and tls_only is false, _etcd-client._tcp.DOMAIN.  In a thread
 * (etcd_start_thread()) that runs no longer than the resolver's own time-outs let
 * it.  False if one is under way already, or
 * none can be started.
 */
extern bool etcd_discovery_start(EtcdDiscovery *discovery, const char *domain, bool tls_only);

/* Readable when a lookup has ended. */
extern int	etcd_discovery_fd(const EtcdDiscovery *discovery);

/*
 * The result of the lookup that has ended; NULL if none has ended.  It is
 * valid until the next one is started.
 */
extern const EtcdDiscovered *etcd_discovery_finish(EtcdDiscovery *discovery);

#endif							/* ETCD_DISCOVERY_H */
