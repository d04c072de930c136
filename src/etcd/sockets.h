/*-------------------------------------------------------------------------
 *
 * sockets.h
 *	  The sockets and the timer for which the client has to be called.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_SOCKETS_H
#define ETCD_SOCKETS_H

#include "client.h"

/* All zero at the beginning, but for the timer. */
typedef struct EtcdSockets
{
	EtcdSocket *sockets;
	int			n;
	int			size;			/* of the array */
	uint64_t	changes;		/* of the set */
	int64_t		timer_ns;		/* when libcurl wants to be called; INT64_MAX: not */
} EtcdSockets;

/* Records from now on what libcurl wants; multi is a CURLM. */
extern void etcd_sockets_record(EtcdSockets *sockets, void *multi);

/*
 * Has a socket waited for; no events: not any more.  Every call counts as a
 * change: a socket that is closed is taken out first, so that its number can
 * only come back as a change.  If there is no memory for one, its exchange runs
 * into a time-out.
 */
extern void etcd_sockets_set(EtcdSockets *sockets, int fd, int events);

#endif							/* ETCD_SOCKETS_H */
