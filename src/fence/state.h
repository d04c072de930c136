/*-------------------------------------------------------------------------
 *
 * state.h
 *	  The state of the open transaction, as the fence sees it.
 *
 * The state is five fields and two counters.  state.c has the table of the events
 * that change them, and of the combinations that are legal.
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
	FENCE_CLOSING,				/* the transaction commits or aborts: the timer does nothing */
	FENCE_NPHASES
} FencePhase;

/* What the timer has sent to this process. */
typedef enum FenceSignal
{
	FENCE_NO_SIGNAL,
	FENCE_CANCEL_SENT,			/* a cancellation, and no error has come of it yet */
	FENCE_END_SENT,				/* the end of the session */
	FENCE_NSIGNALS
} FenceSignal;

/*
 * What etcd_leader.require_leadership demands of the transaction.  A demand is
 * made at the first statement.  It is withdrawn while the setting is empty, or
 * while the demand is replaced.  A continued demand was made by
 * demands_continue(), and no statement has begun since.
 */
typedef enum FenceSetting
{
	SETTING_UNREAD,				/* no demand was made yet */
	SETTING_WITHDRAWN,
	SETTING_IN_FORCE,
	SETTING_CONTINUED_WITHDRAWN,
	SETTING_CONTINUED,			/* in force */
	FENCE_NSETTINGS
} FenceSetting;

/* The timer's signal handler reads all fields, and changes the field "sent". */
typedef struct FenceState
{
	volatile sig_atomic_t phase;	/* FencePhase */
	volatile sig_atomic_t sent; /* FenceSignal */
	volatile sig_atomic_t setting;	/* FenceSetting */
	volatile sig_atomic_t nrequirements;	/* by etcd_require_leader() */
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
	FENCE_WITHDRAW_SETTING,
	FENCE_DEMAND_SETTING,
	FENCE_CONTINUE_SETTING,
	/* the timer */
	FENCE_WATCH,
	FENCE_SEND_CANCEL,
	FENCE_SEND_END,
	FENCE_FORGET_CANCEL,		/* an error has come of it, or PostgreSQL has dropped it */
	/* the transaction */
	FENCE_CLOSE,
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

static inline bool
fence_setting_is_in_force(void)
{
	return fence_state.setting == SETTING_IN_FORCE || fence_state.setting == SETTING_CONTINUED;
}

static inline bool
fence_setting_is_continued(void)
{
	return fence_state.setting == SETTING_CONTINUED ||
		fence_state.setting == SETTING_CONTINUED_WITHDRAWN;
}

#endif							/* FENCE_STATE_H */
