/*-------------------------------------------------------------------------
 *
 * useful.h
 *	  Checks that an instance does what it is there for: its commands have their
 *	  effect, it keeps its places, and it does not stay in a passing state.
 *
 *-------------------------------------------------------------------------
 */
#ifndef USEFUL_H
#define USEFUL_H

#include "instance.h"
#include "store.h"

/* checker.c calls each of these at the moment that its name says. */
extern void useful_reset(void);
extern void useful_ended(const Instance *in);
extern void useful_published(Instance *in, int slot, const ElectionView *old);
extern void useful_sent(const Instance *in, const EtcdRequest *request);
extern void useful_answered(const Instance *in, const EtcdRequest *request, const EtcdAnswer *answer);
extern void useful_announced(const Instance *in, int slot, const ElectionEvent *event);
extern void useful_replied(Instance *in, const Ticket *ticket, ElectionReply reply);
extern void useful_called(Instance *in);
extern void useful_stimulus(const Instance *in);
extern void useful_changed(const Version *version);
extern void useful_distrusted(const Instance *in);
extern void useful_restored(void);

#endif							/* USEFUL_H */
