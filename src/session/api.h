/*-------------------------------------------------------------------------
 *
 * api.h
 *	  The C API for other extensions; see include/etcd_leader.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef API_H
#define API_H

/* Called once, at library load in the postmaster: offers the API. */
extern void api_install(void);

#endif							/* API_H */
