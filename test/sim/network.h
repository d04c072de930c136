/*-------------------------------------------------------------------------
 *
 * network.h
 *	  The network between clients and members.
 *
 *-------------------------------------------------------------------------
 */
#ifndef NETWORK_H
#define NETWORK_H

#include "store.h"

extern void network_reset(int nclients);

/* Is a client cut off from a member? */
extern bool link_is_cut(int client, int m);
extern void link_cut(int client, int m, bool cut);

/* Does what the member sends reach the client?  A link may be cut in that direction alone. */
extern bool link_answers(int client, int m);
extern void link_cut_answers(int client, int m);

/* Every message of that link takes so much longer. */
extern void link_slow_down(int client, int m, int64_t extra_ns);

/* Begins or ends a time in which most messages are lost. */
extern void network_storm(bool on);

/* The delay of the next message of a link, and whether a message is lost. */
extern int64_t network_delay(int client, int m);
extern bool network_loses(void);

#endif							/* NETWORK_H */
