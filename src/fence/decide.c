/*-------------------------------------------------------------------------
 *
 * decide.c
 *	  The decisions of the fence: facts in, verdict out.  It uses nothing of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "decide.h"

bool
decide_is_fenced(const FenceState *state, bool writes)
{
	return state->bound || state->nrequirements > 0 || (state->in_force && writes);
}

/*
 * A fenced transaction sees the leadership as before, also during a drain.  The token of
 * earlier in the transaction remains, except that a drain does not wait for it.
 */
int64
decide_token(int64 held, const int64 *before, int64 open, int64 current)
{
	int64		token = held != 0 && held == current ? held : open;

	return before != NULL && (token != 0 || current == 0) ? *before : token;
}

/* The setting does not matter in a READ ONLY transaction, unless it has written before. */
bool
decide_is_waited_for(const FenceState *state, int64 token, bool has_written, bool is_read_only)
{
	return state->setting != FENCE_NO_DEMAND && token != 0 && (has_written || !is_read_only);
}

/*
 * The block may be the implicit block of a query string, and this statement the last in
 * it.  But the block may also go on; so without cancel_on_loss only COMMIT counts.
 */
bool
decide_checks_end(const FenceState *state, FenceStatement statement, bool in_block, bool cancels)
{
	return state->depth == 1 &&
		(!in_block || statement == FENCE_COMMIT || (statement != FENCE_UNDO && cancels));
}

/* A cancellation alone does not end a COPY that waits for its client. */
FenceTick
decide_tick(const FenceState *state, bool is_lost, bool is_held_back)
{
	if (state->phase != FENCE_WATCHED)
		return FENCE_STOP;
	if (!is_lost)
		return FENCE_GO_ON;
	if (state->sent != FENCE_NO_SIGNAL && state->copying && is_held_back)
		return FENCE_TERMINATE;
	return state->sent == FENCE_END_SENT ? FENCE_REMIND : FENCE_CANCEL;
}
