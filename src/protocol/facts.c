/*-------------------------------------------------------------------------
 *
 * facts.c
 *	  What an answer of etcd says, in the terms of elections.
 *
 * The only file that knows where an answer has which result.  Every other file
 * acts on the facts.
 *
 *-------------------------------------------------------------------------
 */
#include "facts.h"

/* The results of a txn, in the order of its operations. */
typedef struct Results
{
	const EtcdAnswer *answer;
	int			next;			/* above nresults: one is missing */
} Results;

/* The first key that the next operation has read; NULL: it has read none. */
static const EtcdKeyValue *
take_key(Results *results)
{
	int			i = results->next++;

	if (i >= results->answer->nresults || results->answer->results[i].nkvs == 0)
		return NULL;
	return &results->answer->results[i].kvs[0];
}

static void
take_read(Results *results, const Op *op, Facts *facts)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		KeyFacts   *keys = &facts->keys[i];

		if ((op->slots & SLOT_BIT(i)) == 0)
			continue;
		keys->asked = op->asked[i];
		if (op->asked[i] & READ_OWN)
			keys->own = take_key(results);
		if (op->asked[i] & READ_ADJACENT)
			keys->adjacent = take_key(results);
		keys->leader = take_key(results);
	}
}

/* The own keys: written or deleted, or read because a compare failed. */
static void
take_own_keys(Results *results, const Op *op, Facts *facts)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (op->slots & SLOT_BIT(i))
			facts->keys[i].own = take_key(results);
	}
}

/* Takes the empty txn that orders a read (ORDERED). */
static bool
take_order(Results *results)
{
	int			i = results->next++;

	return i < results->answer->nresults && results->answer->results[i].kind == ETCD_OP_EMPTY_TXN;
}

/* The facts of a txn's results.  False: they do not fit the request. */
static bool
take_results(const Op *op, const EtcdAnswer *answer, Facts *facts)
{
	Results		results = {.answer = answer};

	switch (op->kind)
	{
		case OP_READ:
			take_read(&results, op, facts);
			break;
		case OP_PATRONI_READ:
			for (int i = 0; i < PATRONI_NRANGES; i++)
				facts->patroni[i] = take_key(&results);
			break;
		case OP_SURVEY:
		case OP_TRANSFER:
			if (op->kind == OP_TRANSFER && answer->succeeded)
				return answer->nresults > 0;	/* of its writes */
			if (take_key(&results) != NULL)
			{
				facts->queue = answer->results[0].kvs;
				facts->nqueue = answer->results[0].nkvs;
			}
			break;
		default:
			take_own_keys(&results, op, facts);
			break;
	}
	if (op->ordered)
		facts->ordered = take_order(&results);
	return results.next == answer->nresults && facts->ordered == op->ordered;
}

static FactsKind
classify(const Op *op, const EtcdAnswer *answer, Facts *facts)
{
	bool		fits;

	if (answer->outcome != ETCD_ANSWERED)
		return etcd_blames_endpoint(answer->outcome, answer->code, answer->message) ?
			FACTS_NO_ANSWER : FACTS_REFUSAL;
	if (op->kind == OP_GRANT || op->kind == OP_KEEPALIVE || op->kind == OP_TIME_TO_LIVE)
		fits = answer->lease == op->lease;
	else
		fits = take_results(op, answer, facts);
	return fits ? FACTS_ANSWER : FACTS_MISFIT;
}

void
facts_extract(const Op *op, const EtcdAnswer *answer, Facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	facts->op = op;
	facts->kind = classify(op, answer, facts);
	facts->endpoint = answer->endpoint;
	facts->message = answer->message;
	facts->cluster_id = answer->header.cluster_id;
	facts->revision = answer->header.revision;
	facts->term = answer->header.raft_term;
	facts->succeeded = answer->succeeded;
	facts->lease_not_found = etcd_says_lease_not_found(answer);
	facts->permission_denied = etcd_says_permission_denied(answer);
	facts->lease_exists = etcd_says_lease_exists(answer);
	facts->ttl_s = answer->ttl_s;
	facts->granted_ttl_s = answer->granted_ttl_s;
}
