/*-------------------------------------------------------------------------
 *
 * events.h
 *	  Events of elections on their way to the log and to shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_EVENTS_H
#define ELECTOR_EVENTS_H

#include "protocol/election.h"

/* An event of the protocol: ElectionPort.announce. */
extern void elector_announce(void *ctx, const ElectionEvent *event);

/* Announces what has happened since the last time; is there anything? */
extern void elector_announce_events(void);
extern bool elector_has_events(void);

#endif							/* ELECTOR_EVENTS_H */
