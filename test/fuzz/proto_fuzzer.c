/*-------------------------------------------------------------------------
 *
 * proto_fuzzer.c
 *	  Fuzzes the decoding of protobuf, for answers and for frames of a watch.
 *
 * Input: a byte for what it is ('0' to '7' are those of EtcdRequestKind, '8' is
 * a frame), and the message.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "fuzz.h"

#define FRAME	ETCD_NREQUEST_KINDS

/* A field that no table knows: number 1000, a varint. */
static const char unknown_field[] = {(char) 0xC0, 0x3E, 0x01};

/* Messages of this size make less JSON than etcd/json.c takes without a look at its density. */
#define MAX_COMPARED_SIZE	(16 * 1024)

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the same message as JSON ---------------------------------------- */

static void
set(json_t *object, const char *name, json_t *value)
{
	CHECK(value != NULL);
	CHECK(json_object_set_new(object, name, value) == 0);
}

static void
set_int64(json_t *object, const char *name, int64_t value)
{
	set(object, name, json_sprintf("%" PRId64, value));
}

static void
set_uint64(json_t *object, const char *name, uint64_t value)
{
	set(object, name, json_sprintf("%" PRIu64, value));
}

static void
set_bytes(json_t *object, const char *name, EtcdBytes bytes)
{
	char	   *digits = fuzz_base64(bytes);

	set(object, name, json_string(digits));
	fuzz_drop(digits);
}

static json_t *
make_header(const EtcdHeader *header)
{
	json_t	   *json = json_object();

	set_uint64(json, "cluster_id", header->cluster_id);
	set_uint64(json, "member_id", header->member_id);
	set_int64(json, "revision", header->revision);
	set_uint64(json, "raft_term", header->raft_term);
	return json;
}

static json_t *
make_kv(const EtcdKeyValue *kv)
{
	json_t	   *json = json_object();

	set_bytes(json, "key", kv->key);
	set_bytes(json, "value", kv->value);
	set_int64(json, "create_revision", kv->create_revision);
	set_int64(json, "mod_revision", kv->mod_revision);
	set_int64(json, "version", kv->version);
	set_int64(json, "lease", kv->lease);
	return json;
}

static json_t *
make_result(const EtcdResult *result)
{
	static const char *const names[] = {
		[ETCD_OP_RANGE] = "response_range",
		[ETCD_OP_PUT] = "response_put",
		[ETCD_OP_DELETE] = "response_delete_range",
		[ETCD_OP_EMPTY_TXN] = "response_txn"
	};
	json_t	   *json = json_object();
	json_t	   *body = json_object();
	json_t	   *kvs = json_array();

	for (int i = 0; i < result->nkvs; i++)
		json_array_append_new(kvs, make_kv(&result->kvs[i]));
	set(body, "kvs", kvs);
	set_int64(body, "deleted", result->deleted);
	set(json, names[result->kind], body);
	return json;
}

static json_t *
make_member(const EtcdMember *member)
{
	json_t	   *json = json_object();
	json_t	   *urls = json_array();

	for (int i = 0; i < member->nclient_urls; i++)
		json_array_append_new(urls, json_string(member->client_urls[i]));
	set(json, "clientURLs", urls);
	set(json, "isLearner", json_boolean(member->is_learner));
	return json;
}

/* The members of every answer; those of other kinds are not read. */
static json_t *
make_answer(EtcdRequestKind kind, const EtcdAnswer *answer)
{
	json_t	   *json = json_object();
	json_t	   *results = json_array();
	json_t	   *members = json_array();
	json_t	   *wrapped;

	set(json, "header", make_header(&answer->header));
	set_int64(json, "ID", answer->lease);
	set_int64(json, "TTL", answer->ttl_s);
	set_int64(json, "grantedTTL", answer->granted_ttl_s);
	set(json, "succeeded", json_boolean(answer->succeeded));
	for (int i = 0; i < answer->nresults; i++)
		json_array_append_new(results, make_result(&answer->results[i]));
	set(json, "responses", results);
	for (int i = 0; i < answer->nmembers; i++)
		json_array_append_new(members, make_member(&answer->members[i]));
	set(json, "members", members);
	if (answer->token != NULL)
		set(json, "token", json_string(answer->token));
	if (answer->version != NULL)
		set(json, "version", json_string(answer->version));
	if (kind != ETCD_KEEPALIVE)
		return json;
	wrapped = json_object();
	set(wrapped, "result", json);
	return wrapped;
}

static json_t *
make_frame(const EtcdWatchFrame *frame)
{
	json_t	   *json = json_object();
	json_t	   *wrapped = json_object();
	json_t	   *events = json_array();

	set(json, "header", make_header(&frame->header));
	set_int64(json, "watch_id", frame->watch_id);
	set(json, "created", json_boolean(frame->created));
	set(json, "canceled", json_boolean(frame->canceled));
	set(json, "fragment", json_boolean(frame->fragment));
	set(json, "cancel_reason", json_string(frame->message));
	set_int64(json, "compact_revision", frame->compact_revision);
	for (int i = 0; i < frame->nevents; i++)
	{
		json_t	   *event = json_object();

		set(event, "type", json_string(frame->events[i].is_delete ? "DELETE" : "PUT"));
		set(event, "kv", make_kv(&frame->events[i].kv));
		json_array_append_new(events, event);
	}
	set(json, "events", events);
	set(wrapped, "result", json);
	return wrapped;
}

/* Decodes that JSON.  Returns the hash of what it says. */
static uint64_t
decode_json(int kind, json_t *json)
{
	char	   *text = json_dumps(json, 0);
	uint64_t	hash;
	EtcdAnswer	answer;
	EtcdWatchFrame frame;

	json_decref(json);
	if (kind == FRAME)
	{
		CHECK(etcd_decode_frame(text, strlen(text), &frame) == (ssize_t) strlen(text));
		hash = fuzz_check_frame(&frame);
		etcd_free_frame(&frame);
	}
	else
	{
		etcd_decode_answer(kind, 200, text, strlen(text), &answer);
		hash = fuzz_check_answer(&answer);
		etcd_free_answer(&answer);
	}
	fuzz_drop(text);
	return hash;
}

/* ---- protobuf -------------------------------------------------------- */

/*
 * Decodes a message in a buffer of exactly its length, with memory that runs
 * out at that allocation (0: never).  Returns a hash of what it says, and its
 * JSON if *json is not NULL and it was understood.
 */
static uint64_t
decode(int kind, const uint8_t *data, size_t size, size_t fail_at, EtcdOutcome *outcome,
	   size_t *allocations, json_t **json)
{
	char	   *body = fuzz_copy(data, size);
	uint64_t	hash;
	EtcdAnswer	answer;
	EtcdWatchFrame frame;

	memset(&answer, 0x5A, sizeof(answer));
	memset(&frame, 0x5A, sizeof(frame));
	fuzz_watch_memory(fail_at);
	if (kind == FRAME)
		etcd_proto_decode_frame(body, size, &frame);
	else
		etcd_proto_decode_answer(kind, body, size, &answer);
	*allocations = fuzz_allocations();
	fuzz_drop(body);

	hash = kind == FRAME ? fuzz_check_frame(&frame) : fuzz_check_answer(&answer);
	*outcome = kind == FRAME ? frame.outcome : answer.outcome;
	CHECK(*outcome == ETCD_ANSWERED || *outcome == ETCD_GARBAGE);
	if (json != NULL && *outcome == ETCD_ANSWERED)
		*json = kind == FRAME ? make_frame(&frame) : make_answer(kind, &answer);
	if (kind == FRAME)
		etcd_free_frame(&frame);
	else
		etcd_free_answer(&answer);
	if (json == NULL)
		fuzz_check_memory(MAX_MEMORY(size));
	return hash;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int			kind;
	EtcdOutcome outcome;
	EtcdOutcome ignored_outcome;
	size_t		allocations;
	size_t		ignored;
	size_t		step;
	uint64_t	hash;

	if (size < 1 || size - 1 > MAX_ANSWER_SIZE)
		return -1;
	kind = (data[0] & 15) % (ETCD_NREQUEST_KINDS + 1);
	data++;
	size--;

	hash = decode(kind, data, size, 0, &outcome, &allocations, NULL);

	/* cut anywhere: it may be another message, but no harm is done */
	step = 1 + size * size / (2 * fuzz_max_work);
	for (size_t cut = hash % step; cut < size; cut += step)
		(void) decode(kind, data, cut, 0, &ignored_outcome, &ignored, NULL);

	if (outcome == ETCD_ANSWERED)
	{
		static uint8_t longer[MAX_ANSWER_SIZE + sizeof(unknown_field)];
		json_t	   *json = NULL;

		/* an unknown field behind it changes nothing */
		memcpy(longer, data, size);
		memcpy(longer + size, unknown_field, sizeof(unknown_field));
		CHECK(decode(kind, longer, size + sizeof(unknown_field), 0, &outcome, &ignored, &json) == hash);
		/* both dialects say the same; a large JSON may be too dense to be read */
		CHECK(decode_json(kind, json) == hash || size > MAX_COMPARED_SIZE);
	}

	/* Without memory the result is the same, or garbage. */
	if (allocations > 0 &&
		decode(kind, data, size, 1 + hash % allocations, &outcome, &ignored, NULL) != hash)
		CHECK(outcome == ETCD_GARBAGE);
	return 0;
}
