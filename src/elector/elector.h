/*-------------------------------------------------------------------------
 *
 * elector.h
 *	  The process that talks to etcd on behalf of the instance.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_H
#define ELECTOR_H

/* Called once, at library load in the postmaster: registers the worker. */
extern void elector_register(void);

extern PGDLLEXPORT void etcd_leader_elector_main(Datum main_arg);

#endif							/* ELECTOR_H */
