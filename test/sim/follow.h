/*-------------------------------------------------------------------------
 *
 * follow.h
 *	  The run of elections that follow Patroni, and its checker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FOLLOW_H
#define FOLLOW_H

#include "instance.h"

/* The slots of the elections. */
#define FOLLOWED		0
#define OWN				1

/* Another cluster of Patroni.  No instance is its leader. */
#define NAMESPACE		"/service"
#define OTHER_NAMESPACE "/other"
#define OTHER_LEADER	"/other/p/leader"

#define REST_NS			(60 * SECOND)

/* What can happen while a request is under way. */
typedef enum Strike
{
	STRIKE_CUT,					/* the host loses contact */
	STRIKE_HAND_OVER,			/* Patroni's leader hands over */
	STRIKE_RESTART,				/* Patroni is restarted, and the key goes to another lease */
	STRIKE_CONFIGURE,			/* the instance follows another cluster */
	STRIKE_DELETE,				/* an operator deletes the key */
	STRIKE_EVENT,				/* Patroni's configuration is written */
	NSTRIKES
} Strike;

extern bool over;				/* the faults have ended */
extern bool at_rest;			/* nothing may happen any more */
extern bool put_back;			/* etcd was put back to an earlier state */

/* Something happens to the instance within that time. */
extern void strike_soon(Strike kind, Instance *in, int64_t within_ns);

/* Perhaps something happens while the request of this instance is under way. */
extern void strike_at_request(Instance *in, EtcdRequestKind kind);

/* ---- follow_checker.c --------------------------------------------------------- */

/* Is no message lost or late? */
extern bool is_calm(void);

/* The instance is set to follow another cluster. */
extern void checker_follows(Instance *in);

/* Has the instance asked for a time to live, without an answer yet? */
extern bool checker_is_asking(const Instance *in);

/* The time for recovery is over. */
extern void check_recovery(void);

/* The time of rest is over. */
extern void check_rest(void);

#endif							/* FOLLOW_H */
