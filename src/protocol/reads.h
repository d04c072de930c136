/*-------------------------------------------------------------------------
 *
 * reads.h
 *	  The reads of own key, predecessor and leader.
 *
 *-------------------------------------------------------------------------
 */
#ifndef READS_H
#define READS_H

#include "facts.h"

/*
 * A read of the election, by reads.c or patroni.c, is sent; its answer was used;
 * there is none.  A session that wants to know whether this instance still leads
 * waits for a read that is sent after it asked.
 */
extern void read_take_up(const Op *op, Election *e);
extern void read_finish(ElectionCore *core, const Op *op, Election *e);
extern void read_want_again(const Op *op, Election *e);

/*
 * Sends a read: one linearizable txn that reads, for each election that does
 * not follow Patroni, the own key, the predecessor and the leader, if there can
 * be any; all: also if no read of it is wanted.  Keys that are known are read by
 * their names (BY NAME).  renewal: the renewal that it confirms, or NULL.  False:
 * there is nothing to read, or no room.
 *
 * An election that is to be read alone has reads of its own.  The renewal leaves
 * it out, unless it has an own key that the renewal must show (RIGHTS).
 */
extern bool read_send(ElectionCore *core, int64_t now_ns, bool all, const Renewal *renewal);

/*
 * A request about these elections was denied, so the user has no rights to the keys
 * of at least one.  Each is read alone, until etcd answers that read (RIGHTS).
 */
extern void read_each_alone(ElectionCore *core, uint32_t slots);

/* The answer to a read.  Returns the elections whose own key is as PLACE and RENEWAL require. */
extern uint32_t read_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* Sends the reads that are wanted and not postponed. */
extern void read_reconcile(ElectionCore *core, int64_t now_ns);

#endif							/* READS_H */
