/*-------------------------------------------------------------------------
 *
 * hook_records.h
 *	  The tables of hooks and of their runs, for the hook launcher.
 *
 * All of these need a transaction with a snapshot, connected to SPI, of a
 * superuser, and raise ERRORs.  What they return lives until SPI_finish().
 * Text is in the database's encoding.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_RECORDS_H
#define HOOK_RECORDS_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "hook_run.h"

typedef enum HookEvent
{
	HOOK_UNELECTED,
	HOOK_ELECTED,
	HOOK_CHANGE
} HookEvent;

/* Why a hook runs; what runs for the same reason is one phase. */
typedef struct HookPhase
{
	HookEvent	event;
	int64		token;			/* ELECTED: the one that leads; UNELECTED: the lost one, or 0 */
	TimestampTz after;			/* UNELECTED without a token: runs up to then do not count */
} HookPhase;

/* A hook that is to run. */
typedef struct DueHook
{
	char	   *name;
	char	   *command;
	char	   *role;
	int			timeout_ms;
	uint32		version;		/* another one after each change of the hook */
	/* CHANGE */
	bool		begins_with_gap;
	int64		after;			/* the event after which it goes on */
} DueHook;

/*
 * To be called first in each transaction: finds the tables.  False if this
 * database has none.
 */
extern bool hook_records_find(void);

/* Are there hooks? */
extern bool hook_records_have_hooks(void);

/* The elections that hooks name, char *. */
extern List *hook_records_elections(void);

/* The hooks of changes that are enabled, DueHook *, in order. */
extern List *hook_records_of_changes(void);

/* Is there still such a hook, and is it enabled? */
extern bool hook_records_is_enabled(const char *name);

/* The hooks that are to run in a phase and have not, DueHook *, in order. */
extern List *hook_records_due(const char *election, const HookPhase *phase);

/* When the last run began; 0: there is none. */
extern TimestampTz hook_records_last_start(void);

/*
 * Runs are recorded when they begin (or wait for a worker, status "waiting")
 * and when they end.  close_unfinished: closes records of runs whose launcher
 * is gone.
 */
extern void hook_records_insert(const char *hook, const char *election, const HookPhase *phase,
								TimestampTz started_at, const char *status, const char *message);
extern void hook_records_end(const char *hook, TimestampTz started_at, const char *status, const char *message);
extern void hook_records_close_unfinished(void);

/*
 * The same for runs of a hook of changes, which are recorded when they have ended;
 * those that take long, too, while they run.
 */
extern void hook_records_insert_changes(const char *hook, const HookChange *changes, int nchanges,
										const char *status, const char *message);
extern void hook_records_delete_running(const char *hook);
extern void hook_records_delete_waiting(void);

/*
 * Keeps the last 1,000 runs of either kind, of changes and others, and the
 * records which show that a hook is done.
 */
extern void hook_records_prune(void);

#endif							/* HOOK_RECORDS_H */
