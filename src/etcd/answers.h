/*-------------------------------------------------------------------------
 *
 * answers.h
 *	  The requests of the caller, and what follows from their ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_ANSWERS_H
#define ETCD_ANSWERS_H

#include "client.h"

/* Makes the callbacks for requests that were not sent, and for answers. */
extern void etcd_answers_deliver(EtcdClient *client);

#endif							/* ETCD_ANSWERS_H */
