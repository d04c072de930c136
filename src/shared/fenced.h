/*-------------------------------------------------------------------------
 *
 * fenced.h
 *	  Which elections the transactions that are open are fenced in.
 *
 * A leader that drains waits for these.  Each process has a place of its own,
 * with a bit for each slot of an election, see shared/state.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCED_H
#define FENCED_H

#include "lib/stringinfo.h"

#include "shared/part.h"

/*
 * Advertises the elections that the transaction of this process is fenced in, and
 * no others any more.  The process advertises them before it looks at the
 * leadership, with a full barrier in between: either this process sees that the
 * leader takes no new work, or the elector sees the transaction.
 */
extern void fenced_advertise(uint32 slots);

/* The elections that this process advertises. */
extern uint32 fenced_advertised(void);

/* The elector: the elections with open transactions, after a full barrier. */
extern uint32 fenced_slots(void);

/*
 * Who has open transactions in the election with that slot: appends PIDs, for a
 * message, and returns the number of processes.
 */
extern int	fenced_processes(int slot, StringInfo pids);

extern const SharedPart fenced_part;

#endif							/* FENCED_H */
