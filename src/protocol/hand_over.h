/*-------------------------------------------------------------------------
 *
 * hand_over.h
 *	  How a leader gives up its leadership as planned.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HAND_OVER_H
#define HAND_OVER_H

#include "facts.h"

/* No work is waited for any more.  Only while it is waited for. */
extern void drain_finish(ElectionCore *core, int64_t now_ns, Election *e);

/* Carries out a resignation whose drain the loss of leadership has ended. */
extern void drain_carry_out_resignation(ElectionCore *core, Election *e);

/* Ends what is due. */
extern void drain_reconcile(ElectionCore *core, int64_t now_ns);

/* See election_cancel().  Only while it drains. */
extern bool drain_cancel_command(ElectionCore *core, Election *e, uint64_t ticket);

/* The command: the queue is read first.  The instance leads, and no transfer is under way. */
extern void transfer_begin(Election *e, const char *to_node, int64_t until_ns, int64_t drain_ns,
						   uint64_t ticket);

/* The answer to a survey or a transfer.  There may be none, or a refusal. */
extern void transfer_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* Sends what is due. */
extern void transfer_reconcile(ElectionCore *core, int64_t now_ns);

#endif							/* HAND_OVER_H */
