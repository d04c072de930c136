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

#include "etcd/api.h"
#include "protocol/election.h"
#include "shared/part.h"

typedef enum SharedCommand
{
	COMMAND_RESIGN,
	COMMAND_CAMPAIGN,
	COMMAND_PROCLAIM,
	COMMAND_VERIFY,
	COMMAND_CANDIDATES,
	COMMAND_TRANSFER,
	COMMAND_CHECK,
	COMMAND_GET
} SharedCommand;

typedef struct SharedRequest
{
	SharedCommand command;
	char		election[ELECTION_NAME_SIZE];
	bool		rejoin;			/* RESIGN */
	int			drain_ms;		/* RESIGN, TRANSFER: 0: not at all */
	char		value[ELECTION_VALUE_SIZE]; /* PROCLAIM; TRANSFER: to which node */
	int64		until_ns;		/* TRANSFER: of clock_now_ns()'s clock */
	int64		after_revision; /* CANDIDATES: create revision of the last row */
	int64		at_revision;	/* CANDIDATES, GET: 0, or the revision of the first page */
	/* GET; in the page are the key that was asked for, and that to begin with */
	Size		key_len;
	Size		first_len;
	bool		prefix;			/* all keys that begin so */
	int			limit;			/* then so many at most */
} SharedRequest;

/*
 * Of GET: keys and values are longer than a request or a reply has room for.
 * So there is one page beside the mailbox, which belongs to the one place for
 * that command.  It has room for what etcd takes in one request by default.
 */
#define SHARED_PAGE_SIZE	(2 * 1024 * 1024)

/* The places of the mailbox.  The last one is for GET, and for nothing else. */
#define MAILBOX_SIZE		17
#define MAILBOX_PAGE_PLACE	(MAILBOX_SIZE - 1)

/* In the page of a reply: this, the key, the value, for each of them. */
typedef struct SharedKeyValue
{
	int64		create_revision;
	int64		mod_revision;
	Size		key_len;
	Size		value_len;
} SharedKeyValue;

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
	REPLY_PAGE,
	REPLY_CHECKED,				/* the list of problems is new */
	REPLY_TOO_LARGE,			/* GET: the first key, or the answer */
	REPLY_NOT_WATCHED,			/* GET: the key is below no watched prefix */
	REPLY_FAILED,				/* etcd did not answer, or refused: see error */
	REPLY_UNKNOWN_ELECTION,		/* the elector has not taken it up (yet) */
	REPLY_NO_ELECTOR			/* it is not running, or was restarted meanwhile */
} SharedReplyKind;

typedef struct SharedReply
{
	SharedReplyKind kind;
	ElectionReply outcome;
	char		error[ETCD_MESSAGE_SIZE];
	int64		revision;		/* CANDIDATES, PAGE: that they were read at */
	bool		more;			/* CANDIDATES, PAGE: there is a next page */
	int			nkeys;			/* PAGE: so many are in it */
	Size		page_len;		/* PAGE: so many bytes */
	int			ncandidates;
	SharedCandidate candidates[SHARED_CANDIDATES_PER_PAGE];
} SharedReply;

/*
 * Backends: puts the request into the mailbox, wakes the elector and waits
 * for its reply.  Waits for a free place too.  Serves interrupts; leaving by
 * an ERROR or by the end of the process frees the place.  False: there was no
 * reply until then, in microseconds of clock_now_ns()'s clock
 * (PG_INT64_MAX: no limit).
 */
/*
 * For COMMAND_GET, page has SHARED_PAGE_SIZE bytes.  The given number of them is
 * sent, and the bytes of the reply come back.
 */
extern bool mailbox_ask_page(const SharedRequest *request, int64 until_us, SharedReply *reply,
							 char *page, Size len);

static inline bool
mailbox_ask(const SharedRequest *request, int64 until_us, SharedReply *reply)
{
	return mailbox_ask_page(request, until_us, reply, NULL, 0);
}

/*
 * The elector: goes through the places.  take: true if a request is waiting in
 * it; it is taken then, and must be replied to, or put back to be taken again
 * later.
 */
extern bool mailbox_take(int place, SharedRequest *request);
extern void mailbox_put_back(int place);
extern void mailbox_reply(int place, const SharedReply *reply);
extern void mailbox_reply_failure(int place, SharedReplyKind kind, const char *error);

/* The elector: the page may be touched while its place is taken. */
extern bool mailbox_is_taken(int place);

/* The elector: the backend does not wait for the reply any more, which is still due. */
extern bool mailbox_is_abandoned(int place);
extern char *mailbox_page;

extern const SharedPart mailbox_part;
extern const SharedPart mailbox_page_part;

#endif							/* MAILBOX_H */
