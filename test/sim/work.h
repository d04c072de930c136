/*-------------------------------------------------------------------------
 *
 * work.h
 *	  The work that a leader waits for before a planned hand-over.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WORK_H
#define WORK_H

#include "instance.h"

/* A command allows the leader to drain for so long. */
extern void work_asked(Instance *in, int slot, int64_t drain_ns);

/* The instance announces something of the election in that slot. */
extern void work_announced(Instance *in, int slot, const ElectionEvent *event);

#endif							/* WORK_H */
