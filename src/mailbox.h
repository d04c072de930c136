/*-------------------------------------------------------------------------
 *
 * mailbox.h
 *	  How backends ask the elector.
 *
 * A backend puts a request into a place, wakes the elector and sleeps until it
 * has replied.  The elector never waits for a backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef MAILBOX_H
#define MAILBOX_H

#include "election.h"
#include "etcd_api.h"
#include "shared_part.h"

typedef enum SharedCommand
{
	COMMAND_RESIGN,
	COMMAND_CAMPAIGN,
	COMMAND_PROCLAIM,
	COMMAND_VERIFY,
	COMMAND_CANDIDATES,
	COMMAND_TRANSFER
} SharedCommand;

typedef struct SharedRequest
{
	SharedCommand command;
	char		election[ELECTION_NAME_SIZE];
	bool		rejoin;			/* RESIGN */
	char		value[ELECTION_VALUE_SIZE]; /* PROCLAIM; TRANSFER: to which node */
	int64		until_ns;		/* TRANSFER: of shared_state_clock_ns()'s clock */
	int64		after_revision; /* CANDIDATES: create revision of the last row */
	int64		at_revision;	/* CANDIDATES: 0, or what the first page was read at */
} SharedRequest;

#define SHARED_CANDIDATES_PER_PAGE 32

typedef struct SharedCandidate
{
	int64		create_revision;
	int64		lease;
	bool		has_position;	/* false: a member of Patroni's that does not lead */
	char		key[ELECTION_KEY_SIZE];
	char		node[ELECTION_VALUE_SIZE];
} SharedCandidate;

typedef enum SharedReplyKind
{
	REPLY_ELECTION,				/* see outcome */
	REPLY_CANDIDATES,
	REPLY_FAILED,				/* etcd did not answer, or refused: see error */
	REPLY_UNKNOWN_ELECTION,		/* the elector has not taken it up (yet) */
	REPLY_NO_ELECTOR			/* it is not running, or was restarted meanwhile */
} SharedReplyKind;

typedef struct SharedReply
{
	SharedReplyKind kind;
	ElectionReply outcome;
	char		error[ETCD_MESSAGE_SIZE];
	int64		revision;		/* CANDIDATES: that they were read at */
	bool		more;			/* CANDIDATES: there is a next page */
	int			ncandidates;
	SharedCandidate candidates[SHARED_CANDIDATES_PER_PAGE];
} SharedReply;

/*
 * Backends: puts the request into the mailbox, wakes the elector and waits
 * for its reply.  Waits for a free place too.  Serves interrupts; leaving by
 * an ERROR or by the end of the process frees the place.  False: there was no
 * reply until then, in microseconds of shared_state_clock_ns()'s clock
 * (PG_INT64_MAX: no limit).
 */
extern bool mailbox_ask(const SharedRequest *request, int64 until_us, SharedReply *reply);

/*
 * The elector: goes through the places from 0 to mailbox_size()
 * - 1.  take: true if a request is waiting in it; it is taken then, and must
 * be replied to, or put back to be taken again later.
 */
extern int	mailbox_size(void);
extern bool mailbox_take(int place, SharedRequest *request);
extern void mailbox_put_back(int place);
extern void mailbox_reply(int place, const SharedReply *reply);

/* There is no elector any more: fails all requests in the mailbox. */
extern void mailbox_fail_all(void);

extern const SharedPart mailbox_part;

#endif							/* MAILBOX_H */
