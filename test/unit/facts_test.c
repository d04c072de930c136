/*-------------------------------------------------------------------------
 *
 * facts_test.c
 *	  Tests of src/protocol/facts.c: what an answer says, and which answer is none.
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/facts.h"

#define MAX_RESULTS 8

/* An answer with results that have read these keys; NULL: a result without a key. */
static EtcdKeyValue kvs[MAX_RESULTS];
static EtcdResult results[MAX_RESULTS];

static EtcdAnswer
answer_of(int nresults, ...)
{
	EtcdAnswer	answer = {.results = results,.nresults = nresults};
	va_list		keys;

	memset(results, 0, sizeof(results));
	va_start(keys, nresults);
	for (int i = 0; i < nresults; i++)
	{
		const char *key = va_arg(keys, const char *);

		results[i].kind = ETCD_OP_RANGE;
		if (key == NULL)
			continue;
		kvs[i] = (EtcdKeyValue) {.key = {.data = key,.len = strlen(key)}};
		results[i].kvs = &kvs[i];
		results[i].nkvs = 1;
	}
	va_end(keys);
	return answer;
}

static Facts
facts_of(const Op *op, EtcdAnswer answer)
{
	Facts		facts;

	facts_extract(op, &answer, &facts);
	return facts;
}

static FactsKind
kind_of(const Op *op, EtcdAnswer answer)
{
	return facts_of(op, answer).kind;
}

/* The results of a read lie in the order of the slots; of each: own, adjacent, leader. */
static void
test_read(void **state)
{
	Op			op = {.kind = OP_READ,.slots = SLOT_BIT(1) | SLOT_BIT(3) | SLOT_BIT(4),
	.asked = {[1] = READ_OWN,[3] = READ_OWN | READ_ADJACENT,[4] = READ_BY_NAME}};
	Facts		facts = facts_of(&op, answer_of(6, "own1", "leader1", "own3", NULL, "leader3",
												"leader4"));

	(void) state;
	assert_int_equal(facts.kind, FACTS_ANSWER);
	assert_false(facts.ordered);
	assert_ptr_equal(facts.keys[1].own, &kvs[0]);
	assert_null(facts.keys[1].adjacent);
	assert_ptr_equal(facts.keys[1].leader, &kvs[1]);
	assert_ptr_equal(facts.keys[3].own, &kvs[2]);
	assert_null(facts.keys[3].adjacent);
	assert_ptr_equal(facts.keys[3].leader, &kvs[4]);
	assert_null(facts.keys[4].own);
	assert_ptr_equal(facts.keys[4].leader, &kvs[5]);
	for (int slot = 0; slot < ELECTION_MAX_ELECTIONS; slot++)
		assert_int_equal(facts.keys[slot].asked, op.asked[slot]);
	assert_null(facts.keys[0].leader);
	assert_null(facts.keys[2].leader);
}

/* An answer with too few or too many results is none, also where nothing is read from them. */
static void
test_number_of_results(void **state)
{
	static const OpKind kinds[] = {OP_READ, OP_ENTER, OP_DELETE, OP_MOVE, OP_PROCLAIM};

	(void) state;
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		Op			op = {.kind = kinds[i],.slots = SLOT_BIT(0) | SLOT_BIT(2)};

		assert_int_equal(kind_of(&op, answer_of(2, NULL, NULL)), FACTS_ANSWER);
		assert_int_equal(kind_of(&op, answer_of(1, NULL)), FACTS_MISFIT);
		assert_int_equal(kind_of(&op, answer_of(3, NULL, NULL, NULL)), FACTS_MISFIT);
		assert_int_equal(kind_of(&op, answer_of(0)), FACTS_MISFIT);
	}
}

/* A read that raft's log has to order ends with an empty txn, or it is no answer. */
static void
test_order(void **state)
{
	Op			op = {.kind = OP_READ,.slots = SLOT_BIT(0),.ordered = true};
	EtcdAnswer	answer = answer_of(2, "leader", NULL);

	(void) state;
	assert_int_equal(kind_of(&op, answer), FACTS_MISFIT);
	results[1].kind = ETCD_OP_EMPTY_TXN;
	assert_int_equal(kind_of(&op, answer), FACTS_ANSWER);
	assert_true(facts_of(&op, answer).ordered);
	answer.nresults = 1;
	assert_int_equal(kind_of(&op, answer), FACTS_MISFIT);
	assert_null(facts_of(&op, answer).keys[1].leader);
	op.ordered = false;
	assert_int_equal(kind_of(&op, answer), FACTS_ANSWER);
}

/* The own keys of a write, of the slots that it is about. */
static void
test_own_keys(void **state)
{
	Op			op = {.kind = OP_MOVE,.slots = SLOT_BIT(2) | SLOT_BIT(5)};
	EtcdAnswer	answer = answer_of(2, NULL, "own5");
	Facts		facts;

	(void) state;
	answer.succeeded = true;
	facts = facts_of(&op, answer);
	assert_true(facts.succeeded);
	assert_null(facts.keys[2].own);
	assert_ptr_equal(facts.keys[5].own, &kvs[1]);
	assert_null(facts.keys[0].own);
}

/* Patroni's four keys. */
static void
test_patroni(void **state)
{
	Op			op = {.kind = OP_PATRONI_READ,.slots = SLOT_BIT(0)};
	Facts		facts = facts_of(&op, answer_of(4, "leader", NULL, "initialize", "member"));

	(void) state;
	assert_int_equal(facts.kind, FACTS_ANSWER);
	assert_ptr_equal(facts.patroni[PATRONI_LEADER], &kvs[0]);
	assert_null(facts.patroni[PATRONI_CONFIG]);
	assert_ptr_equal(facts.patroni[PATRONI_INITIALIZE], &kvs[2]);
	assert_ptr_equal(facts.patroni[PATRONI_MEMBER], &kvs[3]);
	assert_int_equal(kind_of(&op, answer_of(3, NULL, NULL, NULL)), FACTS_MISFIT);
}

/* A queue: of a survey, and of a transfer whose compares did not hold. */
static void
test_queue(void **state)
{
	static const OpKind kinds[] = {OP_SURVEY, OP_TRANSFER};

	(void) state;
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		Op			op = {.kind = kinds[i],.slots = SLOT_BIT(0)};
		EtcdAnswer	answer = answer_of(1, "first");
		Facts		facts;

		results[0].nkvs = 2;
		facts = facts_of(&op, answer);
		assert_int_equal(facts.kind, FACTS_ANSWER);
		assert_ptr_equal(facts.queue, &kvs[0]);
		assert_int_equal(facts.nqueue, 2);
		facts = facts_of(&op, answer_of(1, NULL));
		assert_int_equal(facts.kind, FACTS_ANSWER);
		assert_int_equal(facts.nqueue, 0);
		assert_int_equal(kind_of(&op, answer_of(2, NULL, NULL)), FACTS_MISFIT);
		assert_int_equal(kind_of(&op, answer_of(0)), FACTS_MISFIT);
	}
}

/* A transfer whose compares held has a result for each write, whatever their number. */
static void
test_transferred(void **state)
{
	Op			op = {.kind = OP_TRANSFER,.slots = SLOT_BIT(0)};
	EtcdAnswer	answer = answer_of(3, NULL, NULL, NULL);

	(void) state;
	answer.succeeded = true;
	for (answer.nresults = 3; answer.nresults > 0; answer.nresults--)
		assert_int_equal(kind_of(&op, answer), FACTS_ANSWER);
	assert_int_equal(kind_of(&op, answer), FACTS_MISFIT);
}

/* What is asked about a lease is answered about that lease. */
static void
test_leases(void **state)
{
	static const OpKind kinds[] = {OP_GRANT, OP_KEEPALIVE, OP_TIME_TO_LIVE};

	(void) state;
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		Op			op = {.kind = kinds[i],.lease = 5};
		EtcdAnswer	answer = {.lease = 5,.ttl_s = 7,.granted_ttl_s = 10};
		Facts		facts = facts_of(&op, answer);

		assert_int_equal(facts.kind, FACTS_ANSWER);
		assert_int_equal(facts.ttl_s, 7);
		assert_int_equal(facts.granted_ttl_s, 10);
		assert_int_equal(kind_of(&op, (EtcdAnswer) {.lease = 6}), FACTS_MISFIT);
		assert_int_equal(kind_of(&op, (EtcdAnswer) {.lease = 0}), FACTS_MISFIT);
	}
	/* the answer to a revocation has no lease */
	assert_int_equal(kind_of(&(Op) {.kind = OP_REVOKE,.lease = 5}, (EtcdAnswer) {.lease = 0}),
					 FACTS_ANSWER);
}

/* What an error says, and whose it is. */
static void
test_errors(void **state)
{
	static const struct
	{
		int			code;
		const char *message;
		FactsKind	kind;
		bool		lease_not_found;
		bool		lease_exists;
		bool		permission_denied;
	}			errors[] = {
		{ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found",
		FACTS_REFUSAL, .lease_not_found = true},
		{ETCD_CODE_FAILED_PRECONDITION, "etcdserver: lease already exists",
		FACTS_REFUSAL, .lease_exists = true},
		{ETCD_CODE_PERMISSION_DENIED, "etcdserver: permission denied",
		FACTS_REFUSAL, .permission_denied = true},
		{ETCD_CODE_UNAVAILABLE, "etcdserver: no leader",
		FACTS_NO_ANSWER, .lease_not_found = false},
	};

	(void) state;
	for (size_t i = 0; i < lengthof(errors); i++)
	{
		Op			op = {.kind = OP_GRANT,.lease = 5};
		EtcdAnswer	answer = {.outcome = ETCD_REFUSED,.code = errors[i].code};
		Facts		facts;

		snprintf(answer.message, sizeof(answer.message), "%s", errors[i].message);
		facts_extract(&op, &answer, &facts);
		assert_int_equal(facts.kind, errors[i].kind);
		assert_string_equal(facts.message, errors[i].message);
		assert_int_equal(facts.lease_not_found, errors[i].lease_not_found);
		assert_int_equal(facts.lease_exists, errors[i].lease_exists);
		assert_int_equal(facts.permission_denied, errors[i].permission_denied);
	}
	for (EtcdOutcome outcome = ETCD_GARBAGE; outcome <= ETCD_NO_ANSWER; outcome++)
		assert_int_equal(kind_of(&(Op) {.kind = OP_REVOKE}, (EtcdAnswer) {.outcome = outcome}),
						 FACTS_NO_ANSWER);
}

/* Who has answered, and at which point of etcd's history. */
static void
test_header(void **state)
{
	Op			op = {.kind = OP_REVOKE};
	EtcdAnswer	answer = {.endpoint = 2,
	.header = {.cluster_id = 11,.member_id = 12,.revision = 13,.raft_term = 14}};
	Facts		facts = facts_of(&op, answer);

	(void) state;
	assert_ptr_equal(facts.op, &op);
	assert_int_equal(facts.endpoint, 2);
	assert_int_equal(facts.cluster_id, 11);
	assert_int_equal(facts.revision, 13);
	assert_int_equal(facts.term, 14);
	assert_false(facts.succeeded);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_number_of_results),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_own_keys),
		cmocka_unit_test(test_patroni),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_transferred),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
