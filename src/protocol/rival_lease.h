/*-------------------------------------------------------------------------
 *
 * rival_lease.h
 *	  Whether another primary of the same database system, which leads, is alive (SECOND).
 *
 *-------------------------------------------------------------------------
 */
#ifndef RIVAL_LEASE_H
#define RIVAL_LEASE_H

#include "facts.h"

/* The answer to a question about a leader's lease.  There may be none, or a refusal. */
extern void rival_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* Were extensions of the lease seen that an ordered read has to confirm? */
extern bool rival_awaits_read(const Election *e);

/*
 * The answer to a read of an election.  If it is ordered, and has the term of the
 * extensions that were seen, the other primary is alive.
 */
extern void rival_confirm(ElectionCore *core, const Facts *facts, Election *e);

/* Leaves what must be left, enters what may be entered again, and asks what is due. */
extern void rival_reconcile(ElectionCore *core, int64_t now_ns);

#endif							/* RIVAL_LEASE_H */
