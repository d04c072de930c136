/*-------------------------------------------------------------------------
 *
 * publish.h
 *	  The ways out to readers: the view, the event, the reply.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PUBLISH_H
#define PUBLISH_H

#include "state.h"

extern void publish_view(ElectionCore *core, const Election *e);
extern void publish_event(ElectionCore *core, ElectionEventKind kind, const Election *e,
						  bool with_leader, ElectionReason reason, const char *detail);
extern void publish_reply(ElectionCore *core, uint64_t *ticket, ElectionReply result);

#endif							/* PUBLISH_H */
