/*-------------------------------------------------------------------------
 *
 * reached.h
 *	  Rare states that the seeds must reach.
 *
 * A simulator that does not reach a state any more finds no mistake there, and
 * passes.  So the states are listed, and the seeds that reach each are counted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REACHED_H
#define REACHED_H

#include "instance.h"

/* Before the first seed: the processes that run seeds share the counts. */
extern void reached_begin(void);

/* Before each seed, and after it. */
extern void reached_reset(void);
extern void reached_count(void);

/* After each call of the core; at an event; at the answer to a command. */
extern void reached_look(const Instance *in);
extern void reached_announced(const ElectionEvent *event);
extern void reached_replied(TicketKind kind, ElectionReply reply);
extern void reached_event(bool follows, int nmissed, bool is_older, bool is_gap, bool is_set_back);

/*
 * Two instances led an election at once for that time, which the checker excuses:
 * an operator took the older leader's key, or etcd was put back to an earlier state.
 */
extern void reached_overlap(bool was_restored, int64_t ns);

/*
 * Prints how many seeds have reached each state, and the overlaps that were excused;
 * returns how many states were not reached.
 */
extern int	reached_report(void);

#endif							/* REACHED_H */
