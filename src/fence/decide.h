/*-------------------------------------------------------------------------
 *
 * decide.h
 *	  The decisions of the fence: facts in, verdict out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_DECIDE_H
#define FENCE_DECIDE_H

#include "state.h"

typedef enum FenceStatement
{
	FENCE_WORK,
	FENCE_REST,					/* of a statement that has begun in this transaction */
	FENCE_COMMIT,				/* of a transaction that can commit */
	FENCE_UNDO					/* a COMMIT that rolls back, PREPARE, ROLLBACK, ROLLBACK TO */
} FenceStatement;

typedef enum FenceTick
{
	FENCE_STOP,					/* the timer: there is nothing to watch */
	FENCE_GO_ON,
	FENCE_CANCEL,				/* the statement */
	FENCE_TERMINATE,			/* the session */
	FENCE_REMIND				/* the session, which has to end already */
} FenceTick;

/* Does the transaction require leadership?  writes: the setting counts. */
extern bool decide_is_fenced(const FenceState *state, bool writes);

/*
 * The token of a new requirement.  held: of a requirement in that election that held
 * before the transaction was advertised, or 0.  before: what the setting required in
 * that election earlier in this transaction, or NULL.  open: the token for new work, which
 * is 0 while the instance drains.
 */
extern int64 decide_token(int64 held, const int64 *before, int64 open, int64 current);

/* Does a drain wait for the transaction because of the setting, with that token? */
extern bool decide_is_waited_for(const FenceState *state, int64 token, bool has_written,
								 bool is_read_only);

/* May a commit follow the statement, so that leadership is checked at its end? */
extern bool decide_checks_end(const FenceState *state, FenceStatement statement, bool in_block,
							  bool cancels);

/* What the timer does.  is_lost: to be cancelled.  is_held_back: cancellations wait. */
extern FenceTick decide_tick(const FenceState *state, bool is_lost, bool is_held_back);

#endif							/* FENCE_DECIDE_H */
