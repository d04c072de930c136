/*-------------------------------------------------------------------------
 *
 * mailbox.h
 *	  Requests of backends on their way to the protocol and to etcd.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_MAILBOX_H
#define ELECTOR_MAILBOX_H

#include "protocol/election.h"

/* Takes the requests of backends. */
extern void elector_serve_mailbox(void);

/* The commands of backends that do not wait any more, if a drain waits for them. */
extern void elector_cancel_abandoned(void);

/* A command of the protocol has ended: ElectionPort.reply. */
extern void elector_reply(void *ctx, uint64_t ticket, ElectionReply outcome);

#endif							/* ELECTOR_MAILBOX_H */
