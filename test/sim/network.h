/*-------------------------------------------------------------------------
 *
 * network.h
 *	  What is between clients and members.
 *
 *-------------------------------------------------------------------------
 */
#ifndef NETWORK_H
#define NETWORK_H

#include "store.h"

extern void network_reset(int nclients);

/* Does nothing get through between a client and a member? */
extern bool link_is_cut(int client, int m);
extern void link_cut(int client, int m, bool cut);

/* For a while most messages are lost. */
extern void network_storm(bool on);

/* How long the next message takes, and whether it is lost. */
extern int64_t network_delay(void);
extern bool network_loses(void);

#endif							/* NETWORK_H */
