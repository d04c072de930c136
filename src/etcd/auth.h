/*-------------------------------------------------------------------------
 *
 * auth.h
 *	  Users of etcd: the password, and the token of each endpoint.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_AUTH_H
#define ETCD_AUTH_H

#include "client.h"

/*
 * Requests a token of the endpoint, unless that is under way.  False if that
 * is not possible; then `why` is set.
 */
extern bool etcd_auth_ask(EtcdClient *client, int endpoint, char *why);

/* New settings; same_user: with the user name of those before. */
extern void etcd_auth_configure(EtcdClient *client, bool same_user);

#endif							/* ETCD_AUTH_H */
