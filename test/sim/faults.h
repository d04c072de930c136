/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  The faults of instances, network and etcd, and the commands.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAULTS_H
#define FAULTS_H

#include "instance.h"

/* Starts the instances, and the faults. */
extern void faults_begin(void);

/* Ends all faults: starts what is stopped, and joins what is cut. */
extern void faults_end(void);

/* A keepalive has come to the true leader from another member. */
extern void faults_at_renewal(int leader, int64_t lease);

/* The true leader has granted a lease; `member` received the request. */
extern void faults_at_grant(int leader, int member);

/* A time to live was read at etcd's leader, for another member. */
extern void faults_at_time_to_live(void);

/* A client's read was executed, and is not answered yet. */
extern void faults_at_read(const EtcdRequest *request);

/* The process has died in the middle of a call of its core. */
extern void faults_died(Instance *in);

#endif							/* FAULTS_H */
