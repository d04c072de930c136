/*-------------------------------------------------------------------------
 *
 * hook_run.h
 *	  A run of a hook: what its launcher and its worker tell each other.
 *
 * It lies in a dynamic shared memory segment that these two have, so that it
 * is gone when both are.  A hook of changes has one process for the changes of a
 * second, since a process costs more than most commands.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_RUN_H
#define HOOK_RUN_H

#include "protocol/election.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"

#define HOOK_MESSAGE_SIZE	2048

typedef enum HookResult
{
	HOOK_UNFINISHED,			/* it runs, or ended without a word */
	HOOK_SUCCEEDED,
	HOOK_FAILED
} HookResult;

/* At most so many changes are worked off by one process. */
#define HOOK_MAX_CHANGES	1000

/* A run of the command of a hook of changes. */
typedef struct HookChange
{
	int64		seq;			/* of the event */
	int64		revision;		/* 0: a gap */
	TimestampTz started_at;
	TimestampTz ended_at;		/* DT_NOEND: it has not ended */
} HookChange;

typedef struct HookRun
{
	/* by the launcher, before the worker is there */
	char		database[NAMEDATALEN];
	char		role[NAMEDATALEN];
	char		name[NAMEDATALEN];	/* of the hook */
	char		election[ELECTION_NAME_SIZE];	/* in UTF-8 */
	int64		token;			/* armed under it; 0: not */
	int			timeout_ms;
	bool		is_of_changes;	/* the command runs for each change; then also: */
	bool		begins_with_gap;	/* the first run is for a gap */
	int64		after;			/* then for the changes after this event */
	uint32		hook_version;
	uint64		refusals;		/* hook_register_refusals() when it was started */

	/* by the launcher: the record of the run is there, it may begin */
	pg_atomic_uint32 may_begin;

	/* by the worker: it has begun; the message is complete when the result is set */
	pg_atomic_uint64 began_ns;	/* the command, last; 0: it has not */
	pg_atomic_uint32 result;	/* a HookResult */
	int			sqlerrcode;		/* 0: the message is not of an error */
	char		message[HOOK_MESSAGE_SIZE]; /* in the database's encoding */

	/* by the worker, of changes: so many of `changes` are valid, and so many have succeeded */
	pg_atomic_uint32 nbegun;
	pg_atomic_uint32 nsucceeded;

	char		command[FLEXIBLE_ARRAY_MEMBER]; /* behind it, the HookChange */
} HookRun;

/* Where the changes are, and how large it all is. */
static inline Size
hook_run_size(const char *command, bool is_of_changes)
{
	return MAXALIGN(offsetof(HookRun, command) + strlen(command) + 1) +
		(is_of_changes ? HOOK_MAX_CHANGES * sizeof(HookChange) : 0);
}

static inline HookChange *
hook_run_changes(HookRun *run)
{
	return (HookChange *) ((char *) run + hook_run_size(run->command, false));
}

/* The arguments of a worker in bgw_extra, beside the segment. */
typedef struct HookRunStart
{
	uint64		ticket;
} HookRunStart;

/* Runs the hook, in a process of its own.  main_arg: handle of the segment. */
extern PGDLLEXPORT void etcd_leader_hook_main(Datum main_arg);

#endif							/* HOOK_RUN_H */
