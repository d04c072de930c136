/*-------------------------------------------------------------------------
 *
 * connections.h
 *	  The connections of HTTP clients, and how many there may be.
 *
 * No client can keep others from being served: a connection that completes no
 * request for some seconds is closed, and where there are too many, of one
 * address or of all, the one that has completed none for the longest time
 * makes room for the next.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CONNECTIONS_H
#define CONNECTIONS_H

#include <sys/socket.h>

#define CONNECTIONS_MAX				256
#define CONNECTIONS_PER_ADDRESS		64
#define CONNECTIONS_TIMEOUT_MS		5000

/*
 * Makes room for a connection from that address.  True if there were too many
 * of it, so that one is shut down: it is there until libmicrohttpd closes it.
 */
extern bool connections_make_room(const struct sockaddr_storage *address);

/*
 * Makes room for any connection.  This takes effect when libmicrohttpd has
 * closed the connection that is shut down.  False if there is no connection.
 */
extern bool connections_make_any_room(void);

/* A connection is there; has completed a request; is gone. */
extern void connections_add(int fd, const struct sockaddr_storage *address);
extern void connections_completed(int fd);
extern void connections_remove(int fd);

extern int	connections_count(void);

/*
 * Shuts down connections that have taken too long.  Returns the milliseconds
 * until this must be called again, -1 if there are no connections.
 */
extern int	connections_expire(void);

#endif							/* CONNECTIONS_H */
