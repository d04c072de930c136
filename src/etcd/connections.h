/*-------------------------------------------------------------------------
 *
 * connections.h
 *	  What the connections to the endpoints show: when certificates expire.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CONNECTIONS_H
#define ETCD_CONNECTIONS_H

#include "client.h"

/* What is known by the connections to an endpoint. */
typedef struct EtcdConnectionFacts
{
	char		url[ETCD_CLIENT_MAX_URL_LEN + 1];
	int64_t		certificate_end_s;	/* in Unix time; 0: there is none */
} EtcdConnectionFacts;

/* All zero at the beginning. */
typedef struct EtcdConnections
{
	int			n;
	EtcdConnectionFacts facts[ETCD_CLIENT_MAX_ENDPOINTS];
} EtcdConnections;

/* A handle of libcurl (CURL) has ended its transfer, or made its connection, to that URL. */
extern void etcd_connections_note(EtcdConnections *connections, void *easy, const char *url);

/* NULL: nothing is known. */
extern const EtcdConnectionFacts *etcd_connections_find(const EtcdConnections *connections,
														const char *url);

#endif							/* ETCD_CONNECTIONS_H */
