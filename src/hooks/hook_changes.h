/*-------------------------------------------------------------------------
 *
 * hook_changes.h
 *	  The hooks of changes, as a hook launcher sees them.
 *
 * A hook of changes runs for one change after the other.  How far it has come
 * is known to its launcher alone.  Where that does not know, a run for a gap
 * comes first, which tells the hook to read what is there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_CHANGES_H
#define HOOK_CHANGES_H

#include "hook_run.h"
#include "nodes/pg_list.h"

/*
 * A change is given up when it has failed so many times.  With the waits in
 * between that is 15 seconds: one that can never succeed must not hold up those
 * after it, which may be its correction.
 */
#define HOOK_MAX_TRIES	5

/* In each transaction, first of all: which of these hooks there are, DueHook *. */
extern List *hook_changes_look(void);

/*
 * Starts those of them that are due.  Returns when the next try of what has failed is
 * due, in ns of shared_state_clock_ns().  have_news: is one due that was not?
 */
extern int64 hook_changes_start_due(List *hooks);
extern bool hook_changes_have_news(void);

/* The transaction is not committed: until the next one, there is no news. */
extern void hook_changes_hold_up(void);

typedef enum HookChangesEnd
{
	HOOK_CHANGES_GO_ON,			/* the change that has failed is tried again */
	HOOK_CHANGES_GIVEN_UP,		/* a run for a gap stands for it */
	HOOK_CHANGES_OUTDATED		/* the hook is gone, or another one */
} HookChangesEnd;

/* A process of such a hook has ended. */
extern HookChangesEnd hook_changes_ended(HookRun *run);

#endif							/* HOOK_CHANGES_H */
