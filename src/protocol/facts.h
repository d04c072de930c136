/*-------------------------------------------------------------------------
 *
 * facts.h
 *	  What an answer of etcd says, in the terms of elections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FACTS_H
#define FACTS_H

#include "state.h"

/* The keys of an election that a read asks for, beside its leader's. */
#define READ_OWN			1
#define READ_ADJACENT		2		/* the predecessor; for a leader, the last key of the queue */
#define READ_BY_NAME		4		/* the predecessor and the leader that are known, no others */

/* The keys that a PATRONI_READ reads, in the order of its ranges. */
enum
{
	PATRONI_LEADER,
	PATRONI_CONFIG,
	PATRONI_INITIALIZE,
	PATRONI_MEMBER,
	PATRONI_NRANGES
};

/*
 * The keys of an election, as an answer shows them.  NULL: there is no such
 * key, or the request did not read it.
 */
typedef struct KeyFacts
{
	uint8_t		asked;			/* READ: which of them were read */
	const EtcdKeyValue *own;
	const EtcdKeyValue *adjacent;	/* the predecessor; for a leader, the last one */
	const EtcdKeyValue *leader;
} KeyFacts;

typedef enum FactsKind
{
	FACTS_ANSWER,				/* etcd did what was asked */
	FACTS_REFUSAL,				/* etcd did not, and says why */
	FACTS_MISFIT,				/* the answer is not one to this request */
	FACTS_NO_ANSWER				/* the endpoint failed, or its answer is not believed */
} FactsKind;

/*
 * What an answer says.  They are facts about etcd, not about this instance:
 * what follows from them is for each part to decide.
 */
typedef struct Facts
{
	FactsKind	kind;
	const Op   *op;				/* the request */
	int			endpoint;
	const char *message;		/* REFUSAL, NO_ANSWER */
	uint64_t	cluster_id;
	int64_t		revision;
	uint64_t	term;
	bool		succeeded;		/* txn: the compares held, so it wrote */
	bool		ordered;		/* read: raft's log has ordered it (ORDERED) */
	KeyFacts	keys[ELECTION_MAX_ELECTIONS];	/* READ; own: MOVE, ENTER, DELETE, PROCLAIM
												 * whose compares did not hold */
	const EtcdKeyValue *patroni[PATRONI_NRANGES];	/* PATRONI_READ */
	const EtcdKeyValue *queue;	/* SURVEY, TRANSFER: from the own key on */
	int			nqueue;
	bool		lease_not_found;	/* REFUSAL */
	bool		lease_exists;	/* REFUSAL: of a grant */
	bool		permission_denied;	/* REFUSAL: of rights to a key, or to one on the lease */
	int64_t		ttl_s;			/* GRANT, KEEPALIVE, TIME_TO_LIVE, see EtcdAnswer */
	int64_t		granted_ttl_s;	/* TIME_TO_LIVE */
} Facts;

/* What the answer to the request says.  The facts point into both. */
extern void facts_extract(const Op *op, const EtcdAnswer *answer, Facts *facts);

#endif							/* FACTS_H */
