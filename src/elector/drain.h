/*-------------------------------------------------------------------------
 *
 * drain.h
 *	  Planned hand-overs: the transactions that they wait for, and the smart
 *	  shutdown that asks for one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_DRAIN_H
#define ELECTOR_DRAIN_H

/*
 * The drains that are under way; a smart shutdown.  Each returns when to call it
 * again, on the clock of clock_now_ns(); PG_INT64_MAX: not for that reason.
 */
extern int64 elector_serve_drains(void);
extern int64 elector_watch_shutdown(void);

/* Called once, at the start of the elector. */
extern void elector_begin_shutdown_watch(void);

/*
 * Readable when elector_look_for_shutdown() is to be called, before
 * elector_watch_shutdown(); -1: there is no such descriptor.
 */
extern int elector_shutdown_fd(void);
extern void elector_look_for_shutdown(void);

#endif							/* ELECTOR_DRAIN_H */
