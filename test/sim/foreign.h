/*-------------------------------------------------------------------------
 *
 * foreign.h
 *	  Candidates that use etcd's own clients: etcdctl elect, and Go's
 *	  concurrency.Election.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FOREIGN_H
#define FOREIGN_H

extern void foreign_reset(void);

/* A new candidate enters an election. */
extern void foreign_begin(int e);

/* Removes all of them at once, without messages. */
extern void foreign_end_all(void);

#endif							/* FOREIGN_H */
