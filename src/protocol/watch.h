/*-------------------------------------------------------------------------
 *
 * watch.h
 *	  The watch stream.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WATCH_H
#define WATCH_H

#include "state.h"

/* Opens the stream anew if something else has to be watched. */
extern void watch_reconcile(ElectionCore *core, int64_t now_ns);

/* The stream has ended. */
extern void watch_ended(ElectionCore *core, int64_t now_ns);

/*
 * Does one watch report all changes of the own key and the leader's key after
 * that revision?
 */
extern bool watch_reports_since(const ElectionCore *core, const Election *e, int64_t revision);
extern void watch_close(ElectionCore *core);

/* Closes a stream that watches less than was asked for. */
extern void watch_close_if_incomplete(ElectionCore *core, int64_t now_ns);

#endif							/* WATCH_H */
