/*-------------------------------------------------------------------------
 *
 * rights.h
 *	  The rights that etcd's user of the instances has to the keys of each
 *	  election.
 *
 * They change at once for all members.  In etcd raft's log orders them, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RIGHTS_H
#define RIGHTS_H

#include "etcd/api.h"
#include "sim.h"

typedef enum Rights
{
	RIGHTS_ALL,
	RIGHTS_TO_READ,
	RIGHTS_NONE
} Rights;

extern void rights_reset(void);
extern void rights_set(int election, Rights rights);

/* Were rights to that election missing at that time, or later?  Have any changed since then? */
extern bool rights_missed_since(int election, int64_t since_ns);
extern bool rights_changed_since(int64_t since_ns);

/* Does etcd execute this request of an instance?  Does it let it watch these keys? */
extern bool rights_allow(const EtcdRequest *request);
extern bool rights_allow_watch(const EtcdWatch *watch);

#endif							/* RIGHTS_H */
