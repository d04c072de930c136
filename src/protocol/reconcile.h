/*-------------------------------------------------------------------------
 *
 * reconcile.h
 *	  What is due is sent.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RECONCILE_H
#define RECONCILE_H

#include "state.h"

/*
 * Sends whatever is wanted, not under way and not postponed, and sets the time
 * at which this has to be done again.  Every input ends with it.
 */
extern void reconcile(ElectionCore *core, int64_t now_ns);

#endif							/* RECONCILE_H */
