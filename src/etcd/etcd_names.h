/*-------------------------------------------------------------------------
 *
 * etcd_names.h
 *	  The addresses of hosts, looked up without blocking.
 *
 * Like etcd_client.h this knows nothing of PostgreSQL and owns no event loop.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_NAMES_H
#define ETCD_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "etcd_api.h"
#include "etcd_url.h"

/* Room for 16 IPv6 addresses. */
#define ETCD_MAX_ADDRESSES_LEN	(16 * 48)

typedef struct EtcdNames EtcdNames;

/* What is known about a name. */
typedef struct EtcdName
{
	char		host[ETCD_MAX_HOST_LEN + 1];
	char		addresses[ETCD_MAX_ADDRESSES_LEN];	/* separated by commas, in the order in which
													 * to try them; empty: none is known */
	char		error[ETCD_MESSAGE_SIZE];	/* of the last lookup; empty: none */
	bool		is_pending;		/* a lookup is under way */
	int64_t		due_ns;			/* when it is looked up again if it is wanted */
	int64_t		began_ns;		/* the last lookup */
	uint64_t	wanted;			/* the number of the last etcd_names_want() */
} EtcdName;

/* NULL if memory or file descriptors are out. */
extern EtcdNames *etcd_names_create(void);

/* Does not wait for lookups; their threads end by themselves. */
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
extern bool etcd_run_aside(void *(*run) (void *arg), void *arg);

#endif							/* ETCD_NAMES_H */
