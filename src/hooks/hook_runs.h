/*-------------------------------------------------------------------------
 *
 * hook_runs.h
 *	  The runs of hooks that a hook launcher has started.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_RUNS_H
#define HOOK_RUNS_H

#include "hook_elections.h"
#include "hook_records.h"

/* Called once, by the launcher of a database. */
extern void hook_runs_begin(const char *database, int notifier_slot);

/*
 * Sees which runs are over, and ends those that must not go on.  True if one is
 * over.
 */
extern bool hook_runs_look(void);

/* Is there a run whose end is not recorded? */
extern bool hook_runs_exist(void);

/* Is a run of this election under way?  other: of another phase than this. */
extern bool hook_runs_are_busy(const HookElection *election, const HookPhase *other);

/*
 * First in each transaction: runs that have ended are recorded, but for those of
 * changes, and those of hooks that are gone are ended.
 */
extern void hook_runs_prepare(void);

/*
 * Does a run of an election, which has been started, wait for hook_runs_commit()?
 * Then that must not wait for the records of changes.
 */
extern bool hook_runs_wait_for_commit(void);
extern void hook_runs_record_changes(void);

/* Ends that of a hook, or all of them, whose ends are not recorded. */
extern void hook_runs_end(const char *hook, const char *reason);
extern void hook_runs_end_all(const char *reason);

/* Does a process run this hook? */
extern bool hook_runs_is_running(const char *hook);

/* When a hook that has failed is to be tried again; 0: this version of it has not failed. */
extern int64 hook_runs_due_ns(const char *hook, uint32 version);

/*
 * Starts a run and records it; it waits until hook_runs_commit().  False if
 * there is no room for it.  want_place: was that so since hook_runs_prepare(),
 * and may there be room now?  election: NULL for a hook of changes.
 */
extern bool hook_runs_start(HookElection *election, const HookPhase *phase, const DueHook *hook);
extern bool hook_runs_want_place(void);

/*
 * When a run that waits for a worker is tried again, and when hook_runs_look()
 * must be called again, in ns of shared_state_clock_ns(); PG_INT64_MAX: not.
 */
extern int64 hook_runs_retry_ns(void);
extern int64 hook_runs_look_again_ns(void);

/* The transaction is committed, or not: a run without a record must not go on. */
extern void hook_runs_commit(void);
extern void hook_runs_abort(void);

/* At the first look at the tables: the last run of earlier launchers. */
extern void hook_runs_begin_after(TimestampTz last);

#endif							/* HOOK_RUNS_H */
