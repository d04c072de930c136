/*-------------------------------------------------------------------------
 *
 * leadership.h
 *	  Leadership in an election: it begins, drains and ends, and its readers see it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERSHIP_H
#define LEADERSHIP_H

#include "state.h"

/*
 * Announces the leader, or that there is none, unless this was announced
 * already.
 */
extern void leadership_announce_leader(ElectionCore *core, Election *e, ElectionReason reason);

/* The leader is known; it may be the one that a command waits for. */
extern void transfer_see_leader(ElectionCore *core, Election *e);

/* Only while it leads, and does not drain. */
extern void drain_begin(ElectionCore *core, int64_t now_ns, Election *e, DrainGoal goal,
						int64_t drain_ns);

/* It leads on.  The commands that have asked for the drain are answered. */
extern void drain_cancel(ElectionCore *core, Election *e);

/* Ends the transfer, and answers the command that waits. */
extern void transfer_end(ElectionCore *core, Election *e, ElectionReply reply);

/*
 * Answers to earlier requests are ignored from now on (EPOCH), and a wait goes on (READY).
 */
extern void leadership_begin_epoch(Election *e);

extern void leadership_begin(ElectionCore *core, Election *e);

/*
 * Ends leadership, if this instance leads, for readers first (ORDER).  Answers
 * to earlier requests are ignored from then on (EPOCH).
 */
extern void leadership_withdraw(ElectionCore *core, Election *e, ElectionReason reason);

/* Ends leadership, and forgets the leader's name, if their time is over. */
extern void leadership_expire(ElectionCore *core, int64_t now_ns);
extern void leadership_wake_at_end(ElectionCore *core);

#endif							/* LEADERSHIP_H */
