/*-------------------------------------------------------------------------
 *
 * check.h
 *	  etcd_leader_check(): everything is tried anew for the sessions that wait.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_CHECK_H
#define ELECTOR_CHECK_H

/* A session waits at that place of the mailbox. */
extern void elector_request_check(int place);

/*
 * Begins the tries, and replies when they have ended.  To be called once in each turn, when the
 * list of problems is published.  True: there is something to send at once.
 */
extern bool elector_serve_checks(void);

#endif							/* ELECTOR_CHECK_H */
