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

/* Begins or ends a time in which most messages are lost. */
extern void network_storm(bool on);

/* The delay of the next message, and whether it is lost. */
extern int64_t network_delay(void);
extern bool network_loses(void);

#endif							/* NETWORK_H */
