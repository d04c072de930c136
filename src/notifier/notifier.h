/*-------------------------------------------------------------------------
 *
 * notifier.h
 *	  A worker for each notified database: events to NOTIFY.
 *
 *-------------------------------------------------------------------------
 */
#ifndef NOTIFIER_H
#define NOTIFIER_H

/*
 * In the elector: the databases of etcd_leader.notify_databases get a notifier
 * each, others lose theirs.
 */
extern void notifier_configure(void);

/*
 * In the elector: starts notifiers that are not running and are due.  To be
 * called after each wakeup by the latch; returns when it must be called again,
 * on the clock of clock_now_ns(), PG_INT64_MAX if not before.  Notifiers are registered while
 * the server is in recovery too: the postmaster starts them at its end, and
 * signals the elector, which is how it learns of a promotion without polling.
 */
extern int64 notifier_supervise(void);

/* Is a notifier waiting for the end of recovery? */
extern bool notifier_awaits_promotion(void);

extern PGDLLEXPORT void etcd_leader_notifier_main(Datum main_arg);

#endif							/* NOTIFIER_H */
