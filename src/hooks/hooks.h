/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  Hooks: SQL that runs when leadership comes and goes, or keys change.
 *
 * A line of etcd_leader.hooks_file is a hook.  One process decides which hooks
 * are due, and each run has a process of its own.  What they know lies in memory
 * that outlives a crash restart, so that a hook that crashes the server is
 * found out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOKS_H
#define HOOKS_H

#include "protocol/changes.h"
#include "datatype/timestamp.h"
#include "protocol/election.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/part.h"

#define HOOKS_MAX			32
#define HOOKS_MAX_RUNS		SETTINGS_HOOKS_MAX_WORKERS
#define HOOKS_FILE_SIZE		(64 * 1024)
#define HOOKS_MESSAGE_SIZE	1024
#define HOOKS_HOLDS			1024

/* A hook is off after this number of crashes without a success in between. */
#define HOOKS_MAX_CRASHES	3

typedef enum HookEvent
{
	HOOK_ELECTED,
	HOOK_UNELECTED,
	HOOK_CHANGE
} HookEvent;

#define HOOK_NEVENTS		3

typedef enum HookStatus
{
	HOOK_NEVER_RUN,
	HOOK_WAITING,				/* no background worker is free */
	HOOK_RUNNING,
	HOOK_SUCCEEDED,
	HOOK_FAILED,
	HOOK_CANCELLED,				/* it was told to end, or has not begun: nobody's fault */
	HOOK_CRASHED				/* the server, while it ran */
} HookStatus;

/* What is due of a hook in an election. */
typedef struct HookTask
{
	bool		is_done;
	int64		due_ns;			/* not before */
	int			backoff_ms;		/* until the next try; 0: it has not failed */
} HookTask;

/* The first part is the line; the second part is kept when the file is read again. */
typedef struct Hook
{
	uint64		id;				/* event, election, database, role and command */
	int			line;
	HookEvent	event;
	char		election[CHANGES_PREFIX_SIZE];	/* empty: all; CHANGE: the prefix */
	char		database[NAMEDATALEN];
	char		role[NAMEDATALEN];
	int			timeout_ms;
	uint32		command;		/* where it begins in HookSet.commands */

	HookTask	tasks[ELECTION_MAX_ELECTIONS];	/* for each HookElection; CHANGE: the first */
	int64		changed_seq;	/* CHANGE: the last event that it is for */
	bool		changed_by_gap;
	int64		done_seq;		/* CHANGE: up to this one all is done */
	int			crashes;		/* since the last success */
	int64		held_until_ns;	/* after a crash */
	int64		token;			/* of the last run, as are the next five */
	TimestampTz started_at;
	TimestampTz ended_at;
	HookStatus	status;
	int			sqlerrcode;
	char		message[HOOKS_MESSAGE_SIZE];	/* in UTF-8 */
	int64		runs;
	int64		failures;
} Hook;

/* What a file says. */
typedef struct HookSet
{
	TimestampTz read_at;
	char		path[MAXPGPATH];
	int			nhooks;
	Hook		hooks[HOOKS_MAX];
	char		commands[HOOKS_FILE_SIZE + HOOKS_MAX];
} HookSet;

typedef enum HookPhase
{
	HOOKS_AT_START,				/* it is not known yet whether this instance leads */
	HOOKS_LEADING,
	HOOKS_LOST,					/* the unelected hooks run */
	HOOKS_IDLE
} HookPhase;

/* An election as hooks see it: they may be behind. */
typedef struct HookElection
{
	char		name[ELECTION_NAME_SIZE];	/* empty: unused */
	HookPhase	phase;
	int64		token;			/* LEADING: under this; then: lost; 0: none yet */
	char		reason[ELECTION_REASON_SIZE];	/* of the phase */
	int64		seq;			/* the last event that was looked at */
	int64		since_ns;		/* of the phase */
} HookElection;

typedef enum HookRunState
{
	RUN_FREE,
	RUN_STARTING,				/* the postmaster was asked for a process */
	RUN_RUNNING,
	RUN_TOLD_TO_QUIT,			/* somebody else has crashed */
	RUN_OVER
} HookRunState;

typedef struct HookRun
{
	pg_atomic_uint32 state;		/* a HookRunState */
	pg_atomic_uint32 pid;		/* RUNNING */

	/* by the process of hooks, before it asks for a process */
	int64		started_ns;		/* also the ticket that admits one process */
	uint64		hook_id;
	HookEvent	event;
	int			election;		/* position of the HookElection; CHANGE: 0 */
	char		election_name[CHANGES_PREFIX_SIZE];
	char		database[NAMEDATALEN];
	char		reason[ELECTION_REASON_SIZE];
	int64		token;			/* 0: none */
	int64		seq;			/* CHANGE: of the last event before the run */

	/* CANCELLED at first; by the process of the run, before it is OVER */
	HookStatus	status;			/* RUNNING: it ended without a word */
	int			sqlerrcode;
	char		message[HOOKS_MESSAGE_SIZE];
} HookRun;

typedef struct HookMemory
{
	pg_atomic_uint64 generation;	/* sets[generation % 2] is in force */
	HookSet		sets[2];
	TimestampTz reload_time;	/* PgReloadTime of the last reading */
	char		error[HOOKS_MESSAGE_SIZE];	/* of the last reading; empty: none */
	TimestampTz error_at;
	HookElection elections[ELECTION_MAX_ELECTIONS];
	HookRun		runs[HOOKS_MAX_RUNS];

	/*
	 * By backends: no run begins in the databases of this place until then.  Two
	 * backends may want two databases at once.  Which place a database has
	 * follows from its name, and it does no harm if another has the same.
	 */
	pg_atomic_uint64 held_until_ns[HOOKS_HOLDS];
} HookMemory;

extern HookMemory *hooks_memory;

/* The event as it is written in the file and in the view. */
static inline const char *
hook_event_name(HookEvent event)
{
	static const char *const names[] = {
		[HOOK_ELECTED] = "elected",
		[HOOK_UNELECTED] = "unelected",
		[HOOK_CHANGE] = EVENT_CHANGE_NAME
	};

	return names[event];
}

static inline HookSet *
hooks_current(void)
{
	return &hooks_memory->sets[pg_atomic_read_u64(&hooks_memory->generation) % 2];
}

/* The hook with that id; NULL: there is none. */
static inline Hook *
hooks_find(HookSet *set, uint64 id)
{
	for (int i = 0; i < set->nhooks; i++)
	{
		if (set->hooks[i].id == id)
			return &set->hooks[i];
	}
	return NULL;
}

/* A copy of the set in force, palloc'd; what runs change in it may be half written. */
extern HookSet *hooks_copy(void);

/*
 * Called once, at library load in the postmaster: reads the file, if one is
 * set.  FATAL if it is wrong.
 */
extern void hooks_install(void);

/*
 * In the elector: starts the process of hooks if a file is set and it is not
 * there.  Returns when it must be called again, on the clock of clock_now_ns(),
 * PG_INT64_MAX if not before a reload.
 */
extern int64 hooks_supervise(void);

/*
 * In the process of hooks: makes this process the one, until it ends.  False if
 * there is another.
 */
extern bool hooks_claim(void);

/*
 * In backends, for who needs a database for himself: ends the runs there, lets
 * none begin for a second, and waits at most so long until they have left.
 * Serves interrupts.  is_held: may none begin there now?
 */
extern void hooks_vacate(const char *database);
extern bool hooks_is_held(const char *database);

/*
 * Reads a file into a set, which is zero; no path: no hooks.  What is wrong, and
 * in which line; NULL: nothing.
 */
extern const char *hooks_file_read(const char *path, HookSet *set);

/*
 * Reads the file of the settings and puts it in force.  Hooks that were there
 * before keep what is known of them.  If the file is wrong, it reports why at
 * that level (LOG or FATAL), and the hooks that were in force stay.
 */
extern void hooks_load(int elevel);

/*
 * In the process of a run: the settings of the database and of the role do not
 * take effect.  Pin before the process connects, forget at once after it.
 */
extern void hook_settings_pin(void);
extern void hook_settings_forget(void);

extern PGDLLEXPORT void etcd_leader_hooks_main(Datum main_arg);
extern PGDLLEXPORT void etcd_leader_hook_main(Datum main_arg);

extern const SharedPart hooks_part;
extern const SharedPart hooks_memory_part;	/* outlives a crash restart */

#endif							/* HOOKS_H */
