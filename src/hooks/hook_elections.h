/*-------------------------------------------------------------------------
 *
 * hook_elections.h
 *	  The elections that have hooks, as a hook launcher sees them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_ELECTIONS_H
#define HOOK_ELECTIONS_H

#include "hook_records.h"
#include "protocol/election.h"

/* A leadership that has ended. */
typedef struct HookLoss
{
	int64		token;			/* 0: unknown */
	int64		seq;			/* of the event that tells; 0: it has not come yet */
} HookLoss;

typedef struct HookElection
{
	char		name[ELECTION_NAME_SIZE];
	char	   *shown;			/* in the database's encoding */
	int64		event_token;	/* by the events: under which it leads; 0: not */
	int64		token;			/* by the state */
	int64		last_lost;
	int64		lost_at_ns;		/* when that was seen */
	bool		starting;		/* the server has started: unelected hooks run once */
	List	   *losses;			/* HookLoss *, whose hooks have not all run */
} HookElection;

/* HookElection * */
extern List *hook_elections;

/* Called once, by the launcher of the database with that slot. */
extern void hook_elections_begin(int notifier_slot);

/* The election of that name, in UTF-8; made if there is none.  Needs a transaction. */
extern HookElection *hook_elections_find(const char *name);

/*
 * Brings the elections up to date.  Needs a transaction.  have_news: is there
 * anything that this does not know?
 */
extern void hook_elections_look(void);
extern bool hook_elections_have_news(void);

/* The token under which this instance leads; 0: it does not. */
extern int64 hook_elections_token(const HookElection *election);

/*
 * The phase in which an election is; false: in none, nothing is due.  start: runs
 * that began later are of this start of the server.  end_phase: all hooks of an
 * unelected phase have run.
 */
extern bool hook_elections_phase(const HookElection *election, TimestampTz start, HookPhase *phase);
extern void hook_elections_end_phase(HookElection *election);

/* When an instance that does not lead is not about to lead any more, after the start. */
extern int64 hook_elections_settled_ns(void);

/* Stores the last event up to which all events have been dealt with. */
extern void hook_elections_store_handled(void);

#endif							/* HOOK_ELECTIONS_H */
