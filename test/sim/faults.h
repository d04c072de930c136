/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  What happens to instances, network and etcd.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAULTS_H
#define FAULTS_H

#include "etcd_api.h"

/* Instances are started, faults begin. */
extern void faults_begin(void);

/* All is mended: what was stopped runs, what was cut is joined. */
extern void faults_end(void);

/* By way of another member a keepalive has come to the true leader. */
extern void faults_at_renewal(int leader, int64_t lease);

/* The true leader has granted a lease, for which that member was asked. */
extern void faults_at_grant(int leader, int member);

/* A client's read was served, and is not answered yet. */
extern void faults_at_look(const EtcdRequest *request);

#endif							/* FAULTS_H */
