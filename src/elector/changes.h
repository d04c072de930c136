/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Changes of keys below etcd_leader.watched_prefixes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_CHANGES_H
#define ELECTOR_CHANGES_H

#include "etcd/api.h"

/* Called once, at the start of the elector; and at its end. */
extern void elector_begin_changes(void);
extern void elector_end_changes(void);

/* Applies the settings of the changes. */
extern void elector_configure_changes(void);

/*
 * Does the work that is due, and returns when there is more (PG_INT64_MAX:
 * never).
 */
extern int64 elector_tick_changes(void);

/* Frames of etcd, and the end of their stream. */
extern void elector_watched_changes(const EtcdWatchFrame *frame);
extern void elector_changes_ended(EtcdOutcome outcome, const char *why);

/* Wakes the processes that wait for events, if there are new ones. */
extern void elector_wake_for_changes(void);

/* Is the key below a watched prefix? */
extern bool elector_watches_key(const char *key, size_t len);

#endif							/* ELECTOR_CHANGES_H */
