/*-------------------------------------------------------------------------
 *
 * trace.h
 *	  What the protocol decides and sends, at DEBUG1 and DEBUG2.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_TRACE_H
#define ELECTOR_TRACE_H

#include "etcd/api.h"
#include "protocol/election.h"

/* For the log: what was published of a slot.  Call it afterwards. */
extern void elector_trace_state(int slot, const ElectionView *view);

/* An answer that is not used: ElectionPort.drop. */
extern void elector_trace_drop(void *ctx, uint64_t id, const char *election, const char *why);

/* The messages of the protocol. */
extern void elector_trace_request(uint64 id, const EtcdRequest *request);
extern void elector_trace_answer(uint64 id, const EtcdAnswer *answer);
extern void elector_trace_watches(const EtcdWatch *watches, int nwatches);
extern void elector_trace_frame(const EtcdWatchFrame *frame);

#endif							/* ELECTOR_TRACE_H */
