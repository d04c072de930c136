/*-------------------------------------------------------------------------
 *
 * names.h
 *	  The addresses of hosts, looked up without blocking.
 *
 * Like client.h this knows nothing of PostgreSQL and owns no event loop.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_NAMES_H
#define ETCD_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "api.h"
#include "url.h"

#define ETCD_MAX_ADDRESSES	16

/* Room for an IPv6 address in brackets. */
#define ETCD_ADDRESS_SIZE	48

typedef struct EtcdNames EtcdNames;

/* In the order of the resolver. */
typedef struct EtcdAddresses
{
	int			n;
	char		text[ETCD_MAX_ADDRESSES][ETCD_ADDRESS_SIZE];	/* IPv6 in brackets */
} EtcdAddresses;

/* What is known about a name. */
typedef struct EtcdName
{
	char		host[ETCD_MAX_HOST_LEN + 1];
	EtcdAddresses addresses;
	int			good;			/* the address that has connected last; -1: none */
	uint64_t	failed[ETCD_MAX_ADDRESSES]; /* the number of the failure of each; 0: it
											 * has not failed since it connected */
	uint64_t	nfailed;		/* numbers failures */
	char		error[ETCD_MESSAGE_SIZE];	/* of the last lookup; empty: none */
	bool		is_pending;		/* a lookup is under way */
	int64_t		due_ns;			/* when it is looked up again if it is wanted */
	int64_t		began_ns;		/* the last lookup */
	uint64_t	wanted;			/* the number of the last etcd_names_want() */
} EtcdName;

/*
 * The addresses of a name in the order in which one connection tries them: the
 * one that has connected last, those that have not failed, then those that
 * have, beginning with the oldest failure.
 */
typedef struct EtcdRoute
{
	char		host[ETCD_MAX_HOST_LEN + 1];
	EtcdAddresses addresses;	/* none: there is no name */
	int			nfresh;			/* the number of those that have not failed */
	int			current;		/* the one that is tried; -1: none yet */
	int64_t		began_ns;		/* to try it */
	int64_t		until_ns;
} EtcdRoute;

/* NULL if memory or file descriptors are out. */
extern EtcdNames *etcd_names_create(void);

/*
 * Does not wait for lookups: their threads end by themselves, and touch nothing
 * of the process but the memory of their lookup.
 */
extern void etcd_names_free(EtcdNames *names);

/*
 * What is known about a host.  A lookup is begun, unless the addresses are
 * fresh or one is under way.  It lasts as long as the resolver's own time-outs
 * let it.  Addresses that were found once are kept while a lookup hangs or
 * fails.  If there are none and is_pending is false, `error` says why.  The
 * result stays valid while the lookup is under way, and then until the next
 * call.  NULL if too many lookups are under way.
 */
extern const EtcdName *etcd_names_want(EtcdNames *names, const char *host);

/* A route to a host whose addresses are known. */
extern void etcd_names_plan(const EtcdName *name, EtcdRoute *route);

/*
 * Goes on to the next address of a route.  Addresses that have not failed share
 * the time that is left until end_ns; each other one may use all of it, so that
 * every address gets the whole time now and then.  False if there is none, or no
 * time.
 */
extern bool etcd_route_next(EtcdRoute *route, int64_t end_ns);

/* The current address of a route has connected, or has failed. */
extern void etcd_names_note(EtcdNames *names, const EtcdRoute *route, bool connected);

/* The addresses of a host may be wrong: they are looked up again. */
extern void etcd_names_doubt(EtcdNames *names, const char *host);

/* Readable when a lookup has ended. */
extern int	etcd_names_fd(const EtcdNames *names);

/* Takes the results of all lookups that have ended. */
extern void etcd_names_finish(EtcdNames *names);

/*
 * Runs a function in a thread that receives no signal, and that the end of the
 * process does not wait for.  False if there can be none.
 */
extern bool etcd_start_thread(void *(*run) (void *arg), void *arg);

#endif							/* ETCD_NAMES_H */
