/*-------------------------------------------------------------------------
 *
 * foreign.h
 *	  Candidates of etcd's own clients: etcdctl elect, Go's
 *	  concurrency.Election.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FOREIGN_H
#define FOREIGN_H

extern void foreign_reset(void);

/* A new one enters an election. */
extern void foreign_begin(int e);

/* They all leave at once, without asking the network. */
extern void foreign_end_all(void);

#endif							/* FOREIGN_H */
