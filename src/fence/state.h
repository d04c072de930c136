/*-------------------------------------------------------------------------
 *
 * state.h
 *	  The state of the open transaction, as the fence sees it.
 *
 * state.c has the rules: which events change the state, and which combinations are
 * legal.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_STATE_H
#define FENCE_STATE_H

#include <signal.h>
#include <stdbool.h>

typedef enum FencePhase
{
	FENCE_UNWATCHED,			/* no transaction, or the timer need not check it */
	FENCE_WATCHED,				/* the timer checks the requirements, and cancels statements */
	FENCE_CLOSING				/* the transaction commits or aborts: the timer does nothing */
} FencePhase;

/* What the timer has sent to this process. */
typedef enum FenceSignal
{
	FENCE_NO_SIGNAL,
	FENCE_CANCEL_SENT,			/* a cancellation, and no error has come of it yet */
	FENCE_END_SENT				/* the end of the session */
} FenceSignal;

/* The demand of etcd_leader.require_leadership_of. */
typedef enum FenceSetting
{
	FENCE_NO_DEMAND,			/* no statement of this transaction has read the setting */
	FENCE_DEMAND,				/* a statement has read it */
	FENCE_CONTINUED_DEMAND		/* demands_continue() has read it, and no statement since */
} FenceSetting;

/* The signal handler of the timer reads all fields, and changes the field "sent". */
typedef struct FenceState
{
	volatile sig_atomic_t phase;	/* FencePhase */
	volatile sig_atomic_t sent; /* FenceSignal */
	volatile sig_atomic_t setting;	/* FenceSetting */
	volatile sig_atomic_t in_force; /* the demand, but not while it is replaced */
	volatile sig_atomic_t nrequirements;	/* by etcd_require_leader(), and keep_setting() */
	volatile sig_atomic_t bound;	/* by fence_bind(), until the process ends */
	volatile sig_atomic_t depth;	/* how many statements run, one within the other */
	volatile sig_atomic_t copying;	/* COPY FROM STDIN runs */
} FenceState;

typedef enum FenceEvent
{
	/* statements */
	FENCE_BEGIN_STATEMENT,
	FENCE_END_STATEMENT,
	FENCE_BEGIN_COPY,
	FENCE_END_COPY,
	/* demands */
	FENCE_BIND,
	FENCE_REQUIRE,
	FENCE_WITHDRAW,				/* the demand of the setting, also if there is none */
	FENCE_MAKE_DEMAND,
	FENCE_CONTINUE_DEMAND,
	/* the timer */
	FENCE_WATCH,
	FENCE_SEND_CANCEL,
	FENCE_SEND_END,
	FENCE_FORGET_CANCEL,		/* an error has come of it, or PostgreSQL has dropped it */
	/* the transaction */
	FENCE_CLOSE,				/* at PRE_COMMIT, and at the commit or the abort itself */
	FENCE_END,
	FENCE_NEVENTS
} FenceEvent;

/* The state of this process. */
extern FenceState fence_state;

/*
 * Changes the state of this process.  Builds with assertions check whether the
 * event is allowed.  Safe in a signal handler.
 */
extern void fence_note(FenceEvent event);

/*
 * What an event does to a state; whether it is allowed there; and whether the
 * combination of all fields is legal.
 */
extern void fence_apply(FenceState *state, FenceEvent event);
extern bool fence_is_allowed(const FenceState *state, FenceEvent event);
extern bool fence_is_legal(const FenceState *state);

#endif							/* FENCE_STATE_H */
