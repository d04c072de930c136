/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  What happens to instances, network and etcd.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAULTS_H
#define FAULTS_H

/* Instances are started, faults begin. */
extern void faults_begin(void);

/* All is mended: what was stopped runs, what was cut is joined. */
extern void faults_end(void);

/* A keepalive has arrived at the true leader, by way of another member. */
extern void faults_at_renewal(int leader);

#endif							/* FAULTS_H */
