/*-------------------------------------------------------------------------
 *
 * hook_run.h
 *	  A run of a hook: what its launcher and its worker tell each other.
 *
 * It lies in a dynamic shared memory segment that these two have, so that it
 * is gone when both are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_RUN_H
#define HOOK_RUN_H

#include "election.h"
#include "port/atomics.h"

#define HOOK_MESSAGE_SIZE	2048

typedef enum HookResult
{
	HOOK_UNFINISHED,			/* it runs, or ended without a word */
	HOOK_SUCCEEDED,
	HOOK_FAILED
} HookResult;

typedef struct HookRun
{
	/* by the launcher, before the worker is there */
	char		database[NAMEDATALEN];
	char		role[NAMEDATALEN];
	char		name[NAMEDATALEN];	/* of the hook */
	char		election[ELECTION_NAME_SIZE];	/* in UTF-8 */
	int64		token;			/* armed under it; 0: not */
	int			timeout_ms;

	/* by the launcher: the record of the run is there, it may begin */
	pg_atomic_uint32 may_begin;

	/* by the worker: it has begun; the message is complete when the result is set */
	pg_atomic_uint32 has_begun;
	pg_atomic_uint32 result;	/* a HookResult */
	char		message[HOOK_MESSAGE_SIZE]; /* in the database's encoding */

	char		command[FLEXIBLE_ARRAY_MEMBER];
} HookRun;

/* The arguments of a worker in bgw_extra, beside the segment. */
typedef struct HookRunStart
{
	uint64		ticket;
} HookRunStart;

/* Runs the hook, in a process of its own.  main_arg: handle of the segment. */
extern PGDLLEXPORT void etcd_leader_hook_main(Datum main_arg);

#endif							/* HOOK_RUN_H */
