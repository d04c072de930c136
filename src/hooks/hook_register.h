/*-------------------------------------------------------------------------
 *
 * hook_register.h
 *	  Which databases have a hook launcher, and which hooks are running.
 *
 * Databases are given by their slot in the notifier register.  Nothing here
 * waits, takes a lock or raises an error, except hook_register_claim().
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_REGISTER_H
#define HOOK_REGISTER_H

#include "shared/shared_part.h"

/* The maximum of etcd_leader.max_hook_workers. */
#define HOOK_REGISTER_MAX_RUNS	64

/* ---- launchers ------------------------------------------------------- */

/*
 * A launcher makes itself the one of its database until it ends; false if
 * there is one.
 */
extern bool hook_register_claim(int notifier_slot);

/*
 * Is there no launcher, and something that the last one has not seen?  That is
 * so at first, and after each change of the hooks.
 */
extern bool hook_register_wants_launcher(int notifier_slot);

/*
 * Did the last launcher end because it had no work?  Then the next one starts
 * without a wait.  recall: the next one is started.
 */
extern bool hook_register_was_dismissed(int notifier_slot);
extern void hook_register_recall(int notifier_slot);

/*
 * The hooks of a database have changed: wakes its launcher, and its notifier,
 * which starts one.  changes: a number that says which changes the caller has
 * seen when it reads the hooks afterwards.  dismiss: the launcher that has seen
 * these has nothing to do; it ends.
 */
extern void hook_register_change(int notifier_slot);
extern uint64 hook_register_changes(int notifier_slot);
extern void hook_register_dismiss(int notifier_slot, uint64 changes);

/*
 * What outlives a launcher: the last event whose consequences are dealt with;
 * 0: none, this server has just started, or the database is new in the
 * settings.
 */
extern int64 hook_register_handled(int notifier_slot);
extern void hook_register_set_handled(int notifier_slot, int64 seq);

/* The elector gives a slot to another database. */
extern void hook_register_forget(int notifier_slot);

/* ---- runs ------------------------------------------------------------ */

/*
 * Takes a place for a run of a hook, among the first `max` ones.  Returns 0 if
 * all are taken.  The returned ticket frees the place; a second attempt to
 * free it does nothing.
 */
extern uint64 hook_register_reserve(int notifier_slot, int max);
extern void hook_register_release(uint64 ticket);
extern bool hook_register_is_reserved(uint64 ticket);

/*
 * How many places have been freed, and how often none was free: numbers that only
 * grow.
 */
extern uint64 hook_register_releases(void);
extern uint64 hook_register_refusals(void);

/*
 * Is a launcher of this database at work, or a hook other than that which this
 * process runs?
 */
extern bool hook_register_occupies(int notifier_slot);

/* For a hook: the place that this process runs in. */
extern void hook_register_set_mine(uint64 ticket);

extern const SharedPart hook_register_part;

#endif							/* HOOK_REGISTER_H */
