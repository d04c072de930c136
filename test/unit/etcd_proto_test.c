/*-------------------------------------------------------------------------
 *
 * etcd_proto_test.c
 *	  Unit tests of etcd/proto.c, and of etcd/encode.c for protobuf.
 *
 * Requests are compared with bytes that were written by hand from rpc.proto.
 * Answers were recorded from etcd 3.4.23 and 3.5.30, whose bytes are the same
 * but for the numbers of the cluster and the member.  Each is decoded in a
 * buffer of exactly its length, so that a sanitizer detects every read beyond
 * it, and must be what its JSON is.
 *
 *-------------------------------------------------------------------------
 */
#include <malloc.h>
#include <time.h>

#include "etcd/api.h"
#include "unit.h"

#define BYTES(literal)	{literal, sizeof(literal) - 1}

/* ---- helpers --------------------------------------------------------- */

/* Bytes from hexadecimal digits, with spaces between them; to be free()d. */
static char *
unhex(const char *hex, size_t *len)
{
	char	   *bytes = malloc(strlen(hex) / 2 + 1);
	char	   *end = bytes;
	int			n = 0;

	for (unsigned int byte; sscanf(hex, " %2x%n", &byte, &n) == 1; hex += n)
		*end++ = (char) byte;
	*len = end - bytes;
	return bytes;
}

/* A copy in a buffer of exactly its length. */
static char *
copy(const char *body, size_t len)
{
	return memcpy(malloc(len > 0 ? len : 1), body, len);
}

static void
assert_bytes(char *got, size_t len, const char *hex)
{
	size_t		expected_len;
	char	   *expected = unhex(hex, &expected_len);

	assert_non_null(got);
	assert_int_equal(len, expected_len);
	assert_memory_equal(got, expected, len);
	assert_int_equal(got[len], '\0');
	free(expected);
	free(got);
}

static void
assert_encodes(const EtcdRequest *request, const char *hex)
{
	size_t		len = 0;
	char	   *got = etcd_encode_request(ETCD_GRPC, request, &len);

	assert_bytes(got, len, hex);
}

static void
assert_presentable(const char *message)
{
	size_t		len = strnlen(message, ETCD_MESSAGE_SIZE);

	assert_true(len > 0 && len < ETCD_MESSAGE_SIZE);
	for (size_t i = 0; i < len; i++)
		assert_true((unsigned char) message[i] >= 0x20 && message[i] != 0x7F);
}

static EtcdOutcome
decode(EtcdRequestKind kind, const char *body, size_t len, EtcdAnswer *answer)
{
	char	   *exact = copy(body, len);

	memset(answer, 0x5A, sizeof(*answer));
	etcd_proto_decode_answer(kind, exact, len, answer);
	free(exact);
	if (answer->outcome == ETCD_ANSWERED)
		assert_string_equal(answer->message, "");
	else
	{
		assert_int_equal(answer->outcome, ETCD_GARBAGE);
		assert_presentable(answer->message);
		assert_null(answer->memory);
		assert_null(answer->results);
	}
	return answer->outcome;
}

static EtcdOutcome
decode_frame(const char *body, size_t len, EtcdWatchFrame *frame)
{
	char	   *exact = copy(body, len);

	memset(frame, 0x5A, sizeof(*frame));
	etcd_proto_decode_frame(exact, len, frame);
	free(exact);
	if (frame->outcome != ETCD_ANSWERED)
	{
		assert_int_equal(frame->outcome, ETCD_GARBAGE);
		assert_presentable(frame->message);
		assert_null(frame->memory);
		assert_null(frame->events);
	}
	return frame->outcome;
}

static void
decode_hex(EtcdRequestKind kind, const char *hex, EtcdAnswer *answer)
{
	size_t		len;
	char	   *bytes = unhex(hex, &len);

	if (decode(kind, bytes, len, answer) != ETCD_ANSWERED)
		fail_msg("%s: %s", hex, answer->message);
	free(bytes);
}

static void
assert_garbage(EtcdRequestKind kind, const char *hex, const char *says)
{
	EtcdAnswer	answer;
	size_t		len;
	char	   *bytes = unhex(hex, &len);

	if (decode(kind, bytes, len, &answer) != ETCD_GARBAGE || strstr(answer.message, says) == NULL)
		fail_msg("%s: outcome %d: %s", hex, answer.outcome, answer.message);
	free(bytes);
}

/* ---- requests -------------------------------------------------------- */

static void
test_paths(void **state)
{
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_GRANT), "/etcdserverpb.Lease/LeaseGrant");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_KEEPALIVE), "/etcdserverpb.Lease/LeaseKeepAlive");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_REVOKE), "/etcdserverpb.Lease/LeaseRevoke");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_TXN), "/etcdserverpb.KV/Txn");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_AUTHENTICATE), "/etcdserverpb.Auth/Authenticate");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_LIST_MEMBERS), "/etcdserverpb.Cluster/MemberList");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_TIME_TO_LIVE), "/etcdserverpb.Lease/LeaseTimeToLive");
	assert_string_equal(etcd_request_path(ETCD_GRPC, ETCD_STATUS), "/etcdserverpb.Maintenance/Status");
}

static void
test_encode_requests(void **state)
{
	EtcdRequest grant = {.kind = ETCD_GRANT,.lease = 777,.ttl_s = 5};
	EtcdRequest keepalive = {.kind = ETCD_KEEPALIVE,.lease = INT64_MAX};
	EtcdRequest revoke = {.kind = ETCD_REVOKE,.lease = INT64_MIN};
	EtcdRequest time_to_live = {.kind = ETCD_TIME_TO_LIVE,.lease = -1};
	EtcdRequest list = {.kind = ETCD_LIST_MEMBERS};
	EtcdRequest status = {.kind = ETCD_STATUS};
	EtcdRequest authenticate = {.kind = ETCD_AUTHENTICATE,.username = "r\xC3\xB6t",.password = "\"\x01"};

	assert_encodes(&grant, "08 05  10 8906");
	assert_encodes(&keepalive, "08 ffffffffffffffff7f");
	assert_encodes(&revoke, "08 80808080808080808001");
	assert_encodes(&time_to_live, "08 ffffffffffffffffff01");
	assert_encodes(&list, "");
	assert_encodes(&status, "");
	assert_encodes(&authenticate, "0a04 72c3b674  1202 2201");
}

static const EtcdCompare compares[] = {
	{BYTES("a/k"), ETCD_COMPARE_CREATE_REVISION, 0},
	{BYTES("a/k"), ETCD_COMPARE_MOD_REVISION, 300},
};
static const EtcdOp success[] = {
	{.kind = ETCD_OP_PUT,.key = BYTES("a/k"),.value = BYTES("v\0w"),.lease = 777},
	{.kind = ETCD_OP_PUT,.key = BYTES("a/k"),.value = BYTES("")},
	{.kind = ETCD_OP_DELETE,.key = BYTES("a/k")},
	{.kind = ETCD_OP_RANGE,.key = BYTES("a/k")},
	{.kind = ETCD_OP_EMPTY_TXN},
};
static const EtcdOp failure[] = {
	{.kind = ETCD_OP_RANGE,.key = BYTES("a/"),.range_end = BYTES("a0"),.limit = 1,
	.sort = ETCD_SORT_LAST_CREATED,.max_create_revision = 9},
	{.kind = ETCD_OP_RANGE,.key = BYTES("a/"),.range_end = BYTES("a0"),.limit = 2,
	.sort = ETCD_SORT_FIRST_CREATED,.min_create_revision = 3,.revision = 8},
};
static const EtcdRequest txn = {
	.kind = ETCD_TXN,.compares = compares,.ncompares = 2,
	.success = success,.nsuccess = 5,.failure = failure,.nfailure = 2,
};

/* The revision of a compare is there even if it is 0: it is one of several. */
#define TXN_HEX \
	"0a0b  1a03 612f6b  08 00  10 01  28 00" \
	"0a0c  1a03 612f6b  08 00  10 02  30 ac02" \
	"120f 120d  0a03 612f6b  1203 760077  18 8906" \
	"1207 1205  0a03 612f6b" \
	"1207 1a05  0a03 612f6b" \
	"1207 0a05  0a03 612f6b" \
	"1202 2200" \
	"1a12 0a10  0a02 612f  1202 6130  18 01  30 02  28 02  68 09" \
	"1a14 0a12  0a02 612f  1202 6130  18 02  30 02  28 01  60 03  20 08"

static void
test_encode_txn(void **state)
{
	EtcdRequest empty = {.kind = ETCD_TXN};

	assert_encodes(&txn, TXN_HEX);
	assert_encodes(&empty, "");
}

/* The lengths of messages inside have as many bytes as they need. */
static void
test_encode_lengths(void **state)
{
	static const struct
	{
		size_t		value;
		const char *head;
	}			lengths[] = {
		{117, "127c 127a 0a016b 1275"},
		{121, "128001 127e 0a016b 1279"},
		{122, "128101 127f 0a016b 127a"},
		{123, "12830112 8001 0a016b 127b"},
		{100000, "12ab8d06 12a78d06 0a016b 12a08d06"},
	};

	for (size_t i = 0; i < lengthof(lengths); i++)
	{
		char	   *value = calloc(1, lengths[i].value);
		EtcdOp		op = {.kind = ETCD_OP_PUT,.key = BYTES("k"),.value = {value, lengths[i].value}};
		EtcdRequest request = {.kind = ETCD_TXN,.success = &op,.nsuccess = 1};
		size_t		head_len;
		char	   *head = unhex(lengths[i].head, &head_len);
		size_t		len;
		char	   *got = etcd_encode_request(ETCD_GRPC, &request, &len);

		assert_int_equal(len, head_len + lengths[i].value);
		assert_memory_equal(got, head, head_len);
		assert_memory_equal(got + head_len, value, lengths[i].value);
		free(got);
		free(head);
		free(value);
	}
}

static void
test_encode_watches(void **state)
{
	EtcdWatch	plain = {.watch_id = 11,.key = BYTES("a/k"),.start_revision = 8};
	EtcdWatch	full = {.watch_id = 300,.key = BYTES("a/"),.range_end = BYTES("a0"),.start_revision = 9,
	.fragment = true,.progress_notify = true};
	size_t		len;
	char	   *got = etcd_proto_encode_create(&plain, &len);

	assert_bytes(got, len, "0a09  0a03 612f6b  38 0b  18 08");
	got = etcd_proto_encode_create(&full, &len);
	assert_bytes(got, len, "0a11  0a02 612f  1202 6130  38 ac02  18 09  40 01  20 01");
	got = etcd_proto_encode_cancel(300, &len);
	assert_bytes(got, len, "1203  08 ac02");
}

/* ---- copies ---------------------------------------------------------- */

static const char *secret;

extern void __real_free(void *memory);
extern void __wrap_free(void *memory);

void
__wrap_free(void *memory)
{
	if (secret != NULL && memory != NULL)
		assert_null(memmem(memory, malloc_usable_size(memory), secret, strlen(secret)));
	__real_free(memory);
}

/* A copy owes nothing to the request that it was made of. */
static void
test_copy(void **state)
{
	EtcdCompare *own_compares = (EtcdCompare *) copy((const char *) compares, sizeof(compares));
	EtcdOp	   *own_success = (EtcdOp *) copy((const char *) success, sizeof(success));
	EtcdOp	   *own_failure = (EtcdOp *) copy((const char *) failure, sizeof(failure));
	char	   *key = copy("a/k", 3);
	char	   *value = copy("v\0w", 3);
	char	   *range_end = copy("a0", 2);
	EtcdRequest own = txn;
	EtcdRequest grant = {.kind = ETCD_GRANT,.lease = 777,.ttl_s = 5,.is_large = true};
	EtcdRequest *copied;

	own.compares = own_compares;
	own.success = own_success;
	own.failure = own_failure;
	own_compares[1].key.data = key;
	own_success[0].key.data = key;
	own_success[2].key.data = key;
	own_success[0].value.data = value;
	own_failure[1].range_end.data = range_end;
	copied = etcd_copy_request(&own);
	memset(key, 'x', 3);
	memset(value, 'x', 3);
	memset(range_end, 'x', 2);
	memset(own_compares, 0x5A, sizeof(compares));
	memset(own_success, 0x5A, sizeof(success));
	memset(own_failure, 0x5A, sizeof(failure));
	memset(&own, 0x5A, sizeof(own));
	free(key);
	free(value);
	free(range_end);
	free(own_compares);
	free(own_success);
	free(own_failure);
	assert_encodes(copied, TXN_HEX);
	etcd_free_request(copied);

	copied = etcd_copy_request(&grant);
	assert_encodes(copied, "08 05  10 8906");
	assert_true(copied->is_large);
	etcd_free_request(copied);
	etcd_free_request(NULL);
}

static void
test_copy_of_password(void **state)
{
	char		username[] = "someone";
	char		password[] = "correct horse";
	EtcdRequest request = {.kind = ETCD_AUTHENTICATE,.username = username,.password = password};
	EtcdRequest *copied = etcd_copy_request(&request);

	memset(username, 'x', sizeof(username));
	memset(password, 'x', sizeof(password));
	assert_string_equal(copied->username, "someone");
	assert_string_equal(copied->password, "correct horse");
	secret = "orrect horse";
	etcd_free_request(copied);
	secret = NULL;
}

/* ---- answers of real etcds ------------------------------------------- */

#define HEADER(revision) \
	"0a1a 08a59581d9a0c1f69fac01 10e6efc797c1e491bda801 18" revision " 2002"
#define HEADER_WITHOUT_REVISION \
	"0a18 08a59581d9a0c1f69fac01 10e6efc797c1e491bda801 2002"
#define JSON_IDS \
	"\"header\":{\"cluster_id\":\"12411878834727570085\",\"member_id\":\"12140093965792835558\"," \
	"\"raft_term\":\"2\""
#define JSON_HEADER(revision) JSON_IDS ",\"revision\":\"" revision "\"}"
#define KV_HEX	"0a03 612f6b  10 02  18 02  20 01  2a01 76  30 8906"
#define KV_JSON \
	"{\"key\":\"YS9r\",\"create_revision\":\"2\",\"mod_revision\":\"2\",\"version\":\"1\"," \
	"\"value\":\"dg==\",\"lease\":\"777\"}"

/* The same message in both dialects. */
typedef struct Recorded
{
	EtcdRequestKind kind;
	const char *hex;
	const char *json;
} Recorded;

static const Recorded answers[] = {
	{ETCD_GRANT, HEADER("01") "10 8906  18 1e",
	"{" JSON_HEADER("1") ",\"ID\":\"777\",\"TTL\":\"30\"}"},
	{ETCD_GRANT, HEADER("01") "10 fbffffffffffffffff01  18 1e",
	"{" JSON_HEADER("1") ",\"ID\":\"-5\",\"TTL\":\"30\"}"},
	{ETCD_KEEPALIVE, HEADER("01") "10 8906  18 1e",
	"{\"result\":{" JSON_HEADER("1") ",\"ID\":\"777\",\"TTL\":\"30\"}}"},
	/* there is no such lease */
	{ETCD_KEEPALIVE, HEADER("01") "10 01",
	"{\"result\":{" JSON_HEADER("1") ",\"ID\":\"1\"}}"},
	{ETCD_REVOKE, HEADER("04"),
	"{" JSON_HEADER("4") "}"},
	{ETCD_TIME_TO_LIVE, HEADER("01") "10 8906  18 1d  20 1e",
	"{" JSON_HEADER("1") ",\"ID\":\"777\",\"TTL\":\"29\",\"grantedTTL\":\"30\"}"},
	{ETCD_TIME_TO_LIVE, HEADER("01") "10 8906  20 02",
	"{" JSON_HEADER("1") ",\"ID\":\"777\",\"grantedTTL\":\"2\"}"},
	{ETCD_TIME_TO_LIVE, HEADER("01") "10 01  18 ffffffffffffffffff01",
	"{" JSON_HEADER("1") ",\"ID\":\"1\",\"TTL\":\"-1\"}"},
	/* a put; a compare that did not hold, and a range; an empty txn */
	{ETCD_TXN, HEADER("02") "10 01  1a06 1204 0a02 1802",
	"{" JSON_HEADER("2") ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":{\"revision\":\"2\"}}}]}"},
	{ETCD_TXN, HEADER("02") "1a1b 0a19 0a02 1802  1211" KV_HEX "20 01",
	"{" JSON_HEADER("2") ",\"responses\":[{\"response_range\":{\"kvs\":[" KV_JSON "],\"count\":\"1\"}}]}"},
	{ETCD_TXN, HEADER("04") "10 01",
	"{" JSON_HEADER("4") ",\"succeeded\":true}"},
	/* two ranges, a put, a delete that found nothing, and an empty txn */
	{ETCD_TXN, HEADER("03") "10 01  1a1b 0a19 0a02 1802  1211" KV_HEX "20 01  1a1b 0a19 0a02 1802  1211" KV_HEX "20 01"
		"1a06 1204 0a02 1803  1a06 1a04 0a02 1803  1a06 2204 0a00 1001",
		"{" JSON_HEADER("3") ",\"succeeded\":true,\"responses\":["
		"{\"response_range\":{\"kvs\":[" KV_JSON "]}},{\"response_range\":{\"kvs\":[" KV_JSON "]}},"
	"{\"response_put\":{}},{\"response_delete_range\":{}},{\"response_txn\":{}}]}"},
	{ETCD_TXN, HEADER("04") "10 01  1a08 1a06 0a02 1804 1001",
	"{" JSON_HEADER("4") ",\"succeeded\":true,\"responses\":[{\"response_delete_range\":{\"deleted\":\"1\"}}]}"},
	{ETCD_AUTHENTICATE, HEADER("04") "1213 7a517a4a6d6152716566734d53505a612e3230",
	"{" JSON_HEADER("4") ",\"token\":\"zQzJmaRqefsMSPZa.20\"}"},
	{ETCD_STATUS, HEADER("02") "1206 332e342e3233  18 80a001  20 e6efc797c1e491bda801  28 0a  30 02  38 0a  48 808001",
	"{" JSON_HEADER("2") ",\"version\":\"3.4.23\"}"},
	{ETCD_STATUS, HEADER("01") "1206 332e342e3233  18 80a001  20 e6efc797c1e491bda801  28 0a  30 02  38 0a  48 808001  50 01",
	"{" JSON_HEADER("1") ",\"version\":\"3.4.23\",\"isLearner\":true}"},
	/* two URLs, a learner and a member that has not started: not recorded so */
	{ETCD_LIST_MEMBERS, HEADER_WITHOUT_REVISION
		"1233 08 e6efc797c1e491bda801  1204 73656564  1a0d 687474703a2f2f613a32333830"
		"220a 687474703a2f2f613a31  2203 623a32  28 01"
		"1205 08 01  1a01 63",
		"{" JSON_IDS "},\"members\":[{\"name\":\"seed\",\"clientURLs\":[\"http://a:1\",\"b:2\"],\"isLearner\":true},"
	"{\"peerURLs\":[\"c\"]}]}"},
};

static const Recorded frames[] = {
	{0, HEADER("04") "10 01  18 01",
	"{" JSON_HEADER("4") ",\"watch_id\":\"1\",\"created\":true}"},
	{0, HEADER("04") "10 ffffffffffffffffff01  18 01  20 01"
		"3234 6d7663633a206475706c69636174652077617463682049442070726f7669646564206f6e20746865205761746368537472"
		"65616d",
		"{" JSON_HEADER("4") ",\"watch_id\":\"-1\",\"created\":true,\"canceled\":true,"
	"\"cancel_reason\":\"mvcc: duplicate watch ID provided on the WatchStream\"}"},
	{0, HEADER("04") "10 02  20 01",
	"{" JSON_HEADER("4") ",\"watch_id\":\"2\",\"canceled\":true}"},
	{0, HEADER("04") "10 01  5a13 1211" KV_HEX "5a0b 08 01  1207 0a03 612f6b 1804",
		"{" JSON_HEADER("4") ",\"watch_id\":\"1\",\"events\":[{\"kv\":" KV_JSON "},"
	"{\"type\":\"DELETE\",\"kv\":{\"key\":\"YS9r\",\"mod_revision\":\"4\"}}]}"},
	/* a fragment: not recorded so */
	{0, HEADER("04") "10 01  38 01  5a13 1211" KV_HEX,
	"{" JSON_HEADER("4") ",\"watch_id\":\"1\",\"fragment\":true,\"events\":[{\"kv\":" KV_JSON "}]}"},
	{0, HEADER_WITHOUT_REVISION "10 01  20 01  28 05",
	"{" JSON_IDS "},\"watch_id\":\"1\",\"canceled\":true,\"compact_revision\":\"5\"}"},
	{0, HEADER("04") "10 ffffffffffffffffff01  18 01  20 01"
		"3247 727063206572726f723a20636f6465203d20556e61757468656e746963617465642064657363203d206574636473657276"
		"65723a20696e76616c6964206175746820746f6b656e",
		"{" JSON_HEADER("4") ",\"watch_id\":\"-1\",\"created\":true,\"canceled\":true,\"cancel_reason\":"
	"\"rpc error: code = Unauthenticated desc = etcdserver: invalid auth token\"}"},
};

static void
assert_same_kv(const EtcdKeyValue *a, const EtcdKeyValue *b)
{
	assert_int_equal(a->key.len, b->key.len);
	assert_memory_equal(a->key.data, b->key.data, a->key.len + 1);
	assert_int_equal(a->value.len, b->value.len);
	assert_memory_equal(a->value.data, b->value.data, a->value.len + 1);
	assert_int_equal(a->create_revision, b->create_revision);
	assert_int_equal(a->mod_revision, b->mod_revision);
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->lease, b->lease);
}

static void
assert_same_text(const char *a, const char *b)
{
	assert_true((a == NULL) == (b == NULL));
	if (a != NULL)
		assert_string_equal(a, b);
}

static void
assert_same_answer(const EtcdAnswer *a, const EtcdAnswer *b)
{
	assert_memory_equal(&a->header, &b->header, sizeof(a->header));
	assert_int_equal(a->lease, b->lease);
	assert_int_equal(a->ttl_s, b->ttl_s);
	assert_int_equal(a->granted_ttl_s, b->granted_ttl_s);
	assert_int_equal(a->succeeded, b->succeeded);
	assert_int_equal(a->nresults, b->nresults);
	for (int i = 0; i < a->nresults; i++)
	{
		assert_int_equal(a->results[i].kind, b->results[i].kind);
		assert_int_equal(a->results[i].deleted, b->results[i].deleted);
		assert_int_equal(a->results[i].nkvs, b->results[i].nkvs);
		for (int j = 0; j < a->results[i].nkvs; j++)
			assert_same_kv(&a->results[i].kvs[j], &b->results[i].kvs[j]);
	}
	assert_same_text(a->token, b->token);
	assert_same_text(a->version, b->version);
	assert_int_equal(a->is_learner, b->is_learner);
	assert_int_equal(a->nmembers, b->nmembers);
	for (int i = 0; i < a->nmembers; i++)
	{
		assert_int_equal(a->members[i].is_learner, b->members[i].is_learner);
		assert_int_equal(a->members[i].nclient_urls, b->members[i].nclient_urls);
		for (int j = 0; j < a->members[i].nclient_urls; j++)
			assert_string_equal(a->members[i].client_urls[j], b->members[i].client_urls[j]);
	}
}

static void
assert_same_frame(const EtcdWatchFrame *a, const EtcdWatchFrame *b)
{
	assert_memory_equal(&a->header, &b->header, sizeof(a->header));
	assert_string_equal(a->message, b->message);
	assert_int_equal(a->watch_id, b->watch_id);
	assert_int_equal(a->created, b->created);
	assert_int_equal(a->canceled, b->canceled);
	assert_int_equal(a->lost_token, b->lost_token);
	assert_int_equal(a->fragment, b->fragment);
	assert_int_equal(a->compact_revision, b->compact_revision);
	assert_int_equal(a->nevents, b->nevents);
	for (int i = 0; i < a->nevents; i++)
	{
		assert_int_equal(a->events[i].is_delete, b->events[i].is_delete);
		assert_same_kv(&a->events[i].kv, &b->events[i].kv);
	}
}

static void
test_same_answers(void **state)
{
	for (size_t i = 0; i < lengthof(answers); i++)
	{
		const Recorded *recorded = &answers[i];
		EtcdAnswer	proto;
		EtcdAnswer	json;

		decode_hex(recorded->kind, recorded->hex, &proto);
		etcd_decode_answer(recorded->kind, 200, recorded->json, strlen(recorded->json), &json);
		if (json.outcome != ETCD_ANSWERED)
			fail_msg("%s: %s", recorded->json, json.message);
		assert_true(proto.header.cluster_id == UINT64_C(12411878834727570085));
		assert_same_answer(&proto, &json);
		etcd_free_answer(&proto);
		etcd_free_answer(&proto);	/* a second call does no harm */
		etcd_free_answer(&json);
	}
}

static void
test_same_frames(void **state)
{
	for (size_t i = 0; i < lengthof(frames); i++)
	{
		char		text[1024];
		size_t		len;
		char	   *bytes = unhex(frames[i].hex, &len);
		EtcdWatchFrame proto;
		EtcdWatchFrame json;

		snprintf(text, sizeof(text), "{\"result\":%s}", frames[i].json);
		if (decode_frame(bytes, len, &proto) != ETCD_ANSWERED)
			fail_msg("%s: %s", frames[i].hex, proto.message);
		assert_int_equal(etcd_decode_frame(text, strlen(text), &json), strlen(text));
		assert_same_frame(&proto, &json);
		assert_int_equal(proto.lost_token, i == lengthof(frames) - 1);
		etcd_free_frame(&proto);
		etcd_free_frame(&proto);
		etcd_free_frame(&json);
		free(bytes);
	}
}

/* ---- the rules of protobuf ------------------------------------------- */

/* What a newer etcd may add is skipped, at each level and of each type. */
static void
test_unknown_fields(void **state)
{
	EtcdAnswer	answer;

	decode_hex(ETCD_TXN, "f801 05  f901 0102030405060708  fa01 03 0a0b0c  fd01 01020304"
			   "0a08 1801 fd01 01020304  fa01 00"
			   "1a1a 0a10 fa01 01 ff  120a fa01 00 0a01 6b 1801 3801  fa01 05 1200000000", &answer);
	assert_int_equal(answer.header.revision, 1);
	assert_int_equal(answer.nresults, 1);
	assert_int_equal(answer.results[0].nkvs, 1);
	assert_string_equal(answer.results[0].kvs[0].key.data, "k");
	etcd_free_answer(&answer);

	/* the largest number of a field */
	decode_hex(ETCD_REVOKE, "0a00 f8ffffff0f 01", &answer);
	etcd_free_answer(&answer);
}

static void
test_scalars(void **state)
{
	EtcdAnswer	answer;

	/* the last one counts, also if it is zero */
	decode_hex(ETCD_GRANT, "0a00  10 01  10 02  18 05  18 00", &answer);
	assert_int_equal(answer.lease, 2);
	assert_int_equal(answer.ttl_s, 0);
	etcd_free_answer(&answer);
	decode_hex(ETCD_AUTHENTICATE, "0a00  1201 61  1202 6262", &answer);
	assert_string_equal(answer.token, "bb");
	etcd_free_answer(&answer);
	decode_hex(ETCD_TXN, "0a02 1801  1a0e 0a0c 120a 0a01 6b 0a01 6c 1801 2a00", &answer);
	assert_string_equal(answer.results[0].kvs[0].key.data, "l");
	assert_string_equal(answer.results[0].kvs[0].value.data, "");
	etcd_free_answer(&answer);

	/* a varint may be longer than it need be, and a bool may be any number */
	decode_hex(ETCD_TXN, "0a05 18 81808000  10 8080808010", &answer);
	assert_int_equal(answer.header.revision, 1);
	assert_true(answer.succeeded);
	etcd_free_answer(&answer);
	decode_hex(ETCD_GRANT, "0a0b 20 ffffffffffffffffff01  10 80808080808080808001", &answer);
	assert_true(answer.header.raft_term == UINT64_MAX);
	assert_true(answer.lease == INT64_MIN);
	etcd_free_answer(&answer);
}

#define TXN_OF(result)	"0a02 1801 " result

static void
test_garbage(void **state)
{
	static const struct
	{
		EtcdRequestKind kind;
		const char *hex;
		const char *says;
	}			garbage[] = {
		/* what must be there */
		{ETCD_REVOKE, "", "missing: header"},
		{ETCD_GRANT, "0a00", "missing: ID"},
		{ETCD_GRANT, "0a00 10 00", "missing: ID"},
		{ETCD_GRANT, "0a00 10 01 10 00", "missing: ID"},
		{ETCD_GRANT, "10 01", "missing: header"},
		{ETCD_AUTHENTICATE, "0a00", "missing: token"},
		{ETCD_AUTHENTICATE, "0a00 1200", "missing: token"},
		{ETCD_STATUS, "0a00", "missing: version"},
		{ETCD_TIME_TO_LIVE, "0a00 10 01", "missing: grantedTTL"},
		{ETCD_TIME_TO_LIVE, "0a00 10 01 18 05", "missing: grantedTTL"},
		{ETCD_TXN, "0a00", "missing: revision"},
		{ETCD_TXN, "0a02 1800", "missing: revision"},
		{ETCD_TXN, "0a0b 18 ffffffffffffffffff01", "missing: revision"},
		{ETCD_TXN, TXN_OF("1a00"), "one member is expected"},
		{ETCD_TXN, TXN_OF("1a02 2a00"), "one member is expected"},
		{ETCD_TXN, TXN_OF("1a04 0a00 1200"), "one member is expected"},
		{ETCD_TXN, TXN_OF("1a04 0a02 1200"), "missing: key"},
		{ETCD_TXN, TXN_OF("1a06 0a04 1202 1801"), "missing: key"},
		{ETCD_TXN, TXN_OF("1a08 0a06 1204 0a00 1801"), "missing: key"},
		{ETCD_TXN, TXN_OF("1a07 0a05 1203 0a01 6b"), "missing: mod_revision"},
		{ETCD_TXN, TXN_OF("1a09 0a07 1205 0a01 6b 1800"), "missing: mod_revision"},
		/* messages that are there twice */
		{ETCD_REVOKE, "0a00 0a00", "twice: header"},
		{ETCD_TXN, TXN_OF("1a04 0a00 0a00"), "twice: response_range"},
		/* wrong types */
		{ETCD_GRANT, "08 00 10 01", "not understood: header"},
		{ETCD_GRANT, "0a00 1200", "not understood: ID"},
		{ETCD_GRANT, "0a00 11 0000000000000001", "not understood: ID"},
		{ETCD_GRANT, "0a00 15 00000001", "not understood: ID"},
		{ETCD_TXN, "0a02 1801 12 01 01", "not understood: succeeded"},
		{ETCD_TXN, "0a02 1801 18 01", "not understood: responses"},
		{ETCD_LIST_MEMBERS, "0a00 1202 20 01", "not understood: clientURLs"},
		{ETCD_AUTHENTICATE, "0a00 1202 6100", "not understood: token"},
		{ETCD_AUTHENTICATE, "0a00 1202 c328", "not understood: token"},
		/* what cannot be in a header */
		{ETCD_AUTHENTICATE, "0a00 1203 610a62", "not understood: token"},
		{ETCD_AUTHENTICATE, "0a00 1202 c3a4", "not understood: token"},
		{ETCD_AUTHENTICATE, "0a00 1202 617f", "not understood: token"},
		{ETCD_LIST_MEMBERS, "0a00 1204 2202 61ff", "not understood: clientURLs"},
		/* not protobuf */
		{ETCD_REVOKE, "0a", "malformed"},
		{ETCD_REVOKE, "0a01", "malformed"},
		{ETCD_REVOKE, "0a00 80", "malformed"},
		{ETCD_REVOKE, "0a00 00 00", "malformed"},
		{ETCD_REVOKE, "0a00 0200", "malformed"},
		{ETCD_REVOKE, "0a00 13 14", "malformed"},
		{ETCD_REVOKE, "0a00 14", "malformed"},
		{ETCD_REVOKE, "0a00 16", "malformed"},
		{ETCD_REVOKE, "0a00 17", "malformed"},
		{ETCD_REVOKE, "0a00 8080808010 01", "malformed"},
		{ETCD_REVOKE, "0a00 09 01020304050607", "malformed"},
		{ETCD_REVOKE, "0a00 15 010203", "malformed"},
		{ETCD_REVOKE, "0a00 10 ffffffffffffffffff02", "malformed"},
		{ETCD_REVOKE, "0a00 10 80808080808080808080 00", "malformed"},
		{ETCD_REVOKE, "0a00 12 ffffffffffffffffff01", "malformed"},
		{ETCD_REVOKE, "0a00 12 ffffffff0f", "malformed"},
		/* lengths beyond the message around them */
		{ETCD_TXN, "0a03 1801 1001", "malformed"},
		{ETCD_TXN, TXN_OF("1a02 0a01 00"), "malformed"},
		{ETCD_TXN, TXN_OF("1a04 0a02 1201 0000"), "malformed"},
		{ETCD_REVOKE, "3c68746d6c3e", "malformed"},
		{ETCD_REVOKE, "7b226865616465", "malformed"},
	};

	for (size_t i = 0; i < lengthof(garbage); i++)
		assert_garbage(garbage[i].kind, garbage[i].hex, garbage[i].says);
}

static void
test_garbage_frames(void **state)
{
	static const char *const garbage[] = {
		"", "10 01", "0a00 5a00", "0a00 5a02 0800", "0a00 5a02 1200", "0a00 5a05 1203 0a01 6b",
		/* an unknown type of an event */
		"0a00 5a09 08 02 1205 0a01 6b 1801",
		"0a00 5a0a 0a00 1206 0a01 6b 1801",
		"0a00 5801", "0a00 3001", "0a00 0a00", "0a00 5a0e 1205 0a01 6b 1801 1205 0a01 6b 1801",
	};
	static const char unreadable[] = "\x0a\x00\x20\x01\x32\x06" "a\0\xff\n\xc3(";
	EtcdWatchFrame frame;
	char		long_reason[5000] = "\x0a\x00\x32\x84\x27";

	for (size_t i = 0; i < lengthof(garbage); i++)
	{
		size_t		len;
		char	   *bytes = unhex(garbage[i], &len);

		if (decode_frame(bytes, len, &frame) != ETCD_GARBAGE)
			fail_msg("%s", garbage[i]);
		free(bytes);
	}

	/* a reason that cannot be shown is no reason to refuse the frame */
	assert_int_equal(decode_frame(unreadable, sizeof(unreadable) - 1, &frame), ETCD_ANSWERED);
	assert_string_equal(frame.message, "a");
	etcd_free_frame(&frame);
	memset(long_reason + 5, 0xff, 4995);
	long_reason[3] = (char) 0x83;
	assert_int_equal(decode_frame(long_reason, 5000, &frame), ETCD_ANSWERED);
	assert_presentable(frame.message);
	etcd_free_frame(&frame);
}

/* ---- many, cut, changed ---------------------------------------------- */

/* Time and memory grow as the message does. */
static void
test_long_lists(void **state)
{
	size_t		n = 300000;
	char	   *body = malloc(9 * n + 4);
	size_t		len = 4;
	clock_t		start = clock();
	EtcdAnswer	answer;

	memcpy(body, "\x0a\x02\x18\x01", 4);
	/* with an unknown field between each two */
	for (size_t i = 0; i < n; i++, len += 6)
		memcpy(body + len, "\x1a\x02\x12\x00\x30\x01", 6);
	assert_int_equal(decode(ETCD_TXN, body, len, &answer), ETCD_ANSWERED);
	assert_int_equal(answer.nresults, n);
	assert_int_equal(answer.results[n - 1].kind, ETCD_OP_PUT);
	etcd_free_answer(&answer);

	len = 2;
	body[1] = 0;
	for (size_t i = 0; i < n; i++, len += 7)
		memcpy(body + len, "\x12\x05\x22\x01" "a\x22\x00", 7);
	assert_int_equal(decode(ETCD_LIST_MEMBERS, body, len, &answer), ETCD_ANSWERED);
	assert_int_equal(answer.nmembers, n);
	assert_int_equal(answer.members[n - 1].nclient_urls, 2);
	assert_string_equal(answer.members[n - 1].client_urls[0], "a");
	assert_string_equal(answer.members[n - 1].client_urls[1], "");
	etcd_free_answer(&answer);

	/* the same scalar again and again, and messages as deep as bytes allow */
	len = 2;
	for (size_t i = 0; i < n; i++, len += 3)
		memcpy(body + len, "\x12\x01" "a", 3);
	assert_int_equal(decode(ETCD_AUTHENTICATE, body, len, &answer), ETCD_ANSWERED);
	assert_string_equal(answer.token, "a");
	etcd_free_answer(&answer);
	memset(body, 0x0a, 9 * n);
	decode(ETCD_TXN, body, 9 * n, &answer);
	etcd_free_answer(&answer);
	assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
	free(body);
}

/* Does a field of the message end there?  (Its tags have one byte.) */
static bool
ends_field(const char *bytes, size_t cut)
{
	size_t		pos = 0;

	while (pos < cut)
	{
		bool		is_varint = (bytes[pos++] & 7) == 0;
		uint64_t	value = 0;
		int			shift = 0;

		do
			value |= (uint64_t) (bytes[pos] & 0x7F) << shift;
		while (shift += 7, (bytes[pos++] & 0x80) != 0);
		if (!is_varint)
			pos += value;
	}
	return pos == cut;
}

/* A message that is cut within a field is garbage. */
static void
test_cuts(void **state)
{
	for (size_t i = 0; i < lengthof(answers) + lengthof(frames); i++)
	{
		bool		is_frame = i >= lengthof(answers);
		const Recorded *recorded = is_frame ? &frames[i - lengthof(answers)] : &answers[i];
		size_t		len;
		char	   *bytes = unhex(recorded->hex, &len);

		for (size_t cut = 0; cut < len; cut++)
		{
			EtcdAnswer	answer;
			EtcdWatchFrame frame;
			EtcdOutcome outcome = is_frame ? decode_frame(bytes, cut, &frame) :
				decode(recorded->kind, bytes, cut, &answer);

			assert_true(outcome == ETCD_GARBAGE || ends_field(bytes, cut));
			if (is_frame)
				etcd_free_frame(&frame);
			else
				etcd_free_answer(&answer);
		}
		free(bytes);
	}
}

static uint32_t
next_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

/* Decodes any bytes without harm, and checks that a result is complete. */
static void
decode_anything(const char *body, size_t len)
{
	EtcdWatchFrame frame;

	for (int kind = 0; kind < ETCD_NREQUEST_KINDS; kind++)
	{
		EtcdAnswer	answer;

		if (decode(kind, body, len, &answer) == ETCD_ANSWERED)
			assert_true(kind != ETCD_TXN || answer.header.revision > 0);
		for (int i = 0; i < answer.nresults; i++)
		{
			for (int j = 0; j < answer.results[i].nkvs; j++)
			{
				const EtcdKeyValue *kv = &answer.results[i].kvs[j];

				assert_true(kv->key.len > 0 && kv->mod_revision != 0);
				assert_int_equal(kv->key.data[kv->key.len], '\0');
				assert_int_equal(kv->value.data[kv->value.len], '\0');
			}
		}
		etcd_free_answer(&answer);
	}
	decode_frame(body, len, &frame);
	for (int i = 0; i < frame.nevents; i++)
		assert_true(frame.events[i].kv.key.len > 0);
	etcd_free_frame(&frame);
}

static void
test_changed_bytes(void **state)
{
	static const char alphabet[] = "\x00\x01\x02\x05\x08\x0a\x10\x12\x18\x1a\x22\x5a\x7f\x80\xff";
	uint32_t	seed = 20240229;

	for (int round = 0; round < 20000; round++)
	{
		size_t		which = next_random(&seed) % (lengthof(answers) + lengthof(frames));
		size_t		len;
		char	   *bytes = unhex(which < lengthof(answers) ? answers[which].hex :
								  frames[which - lengthof(answers)].hex, &len);

		for (int changes = next_random(&seed) % 4 + 1; changes > 0; changes--)
			bytes[next_random(&seed) % len] = next_random(&seed) % 2 == 0 ? (char) next_random(&seed) :
				alphabet[next_random(&seed) % (sizeof(alphabet) - 1)];
		decode_anything(bytes, len - next_random(&seed) % 2 * (next_random(&seed) % len));
		free(bytes);
	}
}

/* Empty events of two bytes each would take 36 times as much memory. */
static void
test_memory(void **state)
{
	size_t		n = 4 * 1024 * 1024;
	char	   *body = malloc(2 * n);
	EtcdWatchFrame frame;

	for (size_t i = 0; i < n; i++)
		memcpy(body + 2 * i, "\x5a\x00", 2);
	assert_int_equal(decode_frame(body, 2 * n, &frame), ETCD_GARBAGE);
	assert_non_null(strstr(frame.message, "it takes too much memory"));
	free(body);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_encode_requests),
		cmocka_unit_test(test_encode_txn),
		cmocka_unit_test(test_encode_lengths),
		cmocka_unit_test(test_encode_watches),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_copy_of_password),
		cmocka_unit_test(test_same_answers),
		cmocka_unit_test(test_same_frames),
		cmocka_unit_test(test_unknown_fields),
		cmocka_unit_test(test_scalars),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_garbage_frames),
		cmocka_unit_test(test_long_lists),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_changed_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
