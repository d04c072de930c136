/*-------------------------------------------------------------------------
 *
 * own_key.h
 *	  The writes of an own key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OWN_KEY_H
#define OWN_KEY_H

#include "facts.h"

/* The answer to an entry, delete or proclaim.  There may be none, or a refusal. */
extern void own_key_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* A move was executed, or refused with the keys as they are. */
extern void own_key_receive_move(ElectionCore *core, const Facts *facts);

/* The own key is gone, as of that revision: we, or a transfer, deleted it. */
extern void own_key_finish_leaving(ElectionCore *core, int64_t now_ns, Election *e,
								   int64_t revision);

/* Sends what is due. */
extern void own_key_reconcile(ElectionCore *core, int64_t now_ns);

#endif							/* OWN_KEY_H */
