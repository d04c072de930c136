/*-------------------------------------------------------------------------
 *
 * checker.h
 *	  Checks what has to hold, in true time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CHECKER_H
#define CHECKER_H

#include "instance.h"
#include "store.h"

extern void checker_reset(void);

/* ---- what an instance does; called before it takes effect ------------------ */

extern void checker_sent(Instance *in, uint64_t id, const EtcdRequest *request);
extern void checker_watches(Instance *in, const EtcdWatch *watches, int nwatches);
extern void checker_published(Instance *in, int slot, const ElectionView *old);
extern void checker_announced(Instance *in, const ElectionEvent *event);
extern void checker_replied(Instance *in, const Ticket *ticket, ElectionReply reply);

/* A call of its core has returned. */
extern void checker_called(Instance *in);

/* Its core has ended, or a new one has begun. */
extern void checker_ended(Instance *in);

/* ---- what an instance receives ------------------------------------------------ */

extern void checker_answered(Instance *in, uint64_t id, const EtcdRequest *request, bool was_read,
							 const EtcdAnswer *answer);

/* The core has refused the answer that it was given last. */
extern void checker_distrusted(Instance *in);
extern void checker_watched(Instance *in, const EtcdWatchFrame *frame);
extern void checker_watched_end(Instance *in, const EtcdWatchFrame *frame, bool still_open);

/* Has anything happened that excuses the loss of leadership, or of a lease? */
extern bool checker_may_lose(const Instance *in);

/* Something has happened that excuses the loss of leadership for a while. */
extern void checker_trouble(Instance *in);

/* A command, new settings, or another reason to send requests. */
extern void checker_stimulus(Instance *in);

/* ---- what happens to etcd ------------------------------------------------------ */

extern void checker_changed(const Version *version);

/* Called before and after etcd is put back to an earlier state. */
extern void checker_history_ends(void);
extern void checker_history_begins(void);

/* ---- the end --------------------------------------------------------------------- */

/*
 * How long recovery may take after the end of the faults; and the check after
 * that time.
 */
extern int64_t checker_recovery_bound_ns(void);
extern void checker_recovered(void);

/*
 * Called before and after a time of rest, in which nothing may change; kept: a
 * fault lasts meanwhile, so there may be more requests.
 */
extern void checker_rest(void);
extern void checker_rested(void);
extern void checker_kept(void);

/* Called when every instance was stopped and a TTL has passed. */
extern void checker_all_gone(void);

#endif							/* CHECKER_H */
