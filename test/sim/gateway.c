/*-------------------------------------------------------------------------
 *
 * gateway.c
 *	  etcd's side of the HTTP/JSON gateway.
 *
 * Written from etcd's rpc.proto and grpc-gateway, and not from the codec, so
 * that each of the two checks the other.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "gateway.h"
#include "plan.h"

/* ---- base64 ---------------------------------------------------------------- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int
value_of(char c)
{
	const char *p = c == '\0' ? NULL : strchr(alphabet, c);

	return p ? (int) (p - alphabet) : -1;
}

/* Standard base64 with padding, as Go's encoding/json requires. */
static bool
decode_base64(const char *s, size_t len, EtcdBytes *bytes)
{
	char	   *out = run_alloc(len + 1);
	size_t		n = 0;

	if (len % 4 != 0)
		return false;
	for (size_t i = 0; i < len; i += 4)
	{
		int			pad = i + 4 == len ? (s[i + 3] == '=') + (s[i + 2] == '=') : 0;
		uint32_t	bits = 0;

		for (int j = 0; j < 4; j++)
		{
			int			v = j >= 4 - pad ? 0 : value_of(s[i + j]);

			if (v < 0)
				return false;
			bits = bits << 6 | (uint32_t) v;
		}
		out[n++] = (char) (bits >> 16);
		if (pad < 2)
			out[n++] = (char) (bits >> 8);
		if (pad < 1)
			out[n++] = (char) bits;
	}
	bytes->data = out;
	bytes->len = n;
	return true;
}

/* ---- reading requests --------------------------------------------------------- */

static bool
refuse_body(const char *what)
{
	fail_run("a request that etcd would not understand: %s", what);
	return false;
}

/* Allows only these members.  A gateway ignores or refuses unknown ones. */
static bool
knows_members(json_t *object, const char *const *names)
{
	const char *name;
	json_t	   *value;

	if (!json_is_object(object))
		return refuse_body("no object");
	json_object_foreach(object, name, value)
	{
		int			i = 0;

		while (names[i] != NULL && strcmp(names[i], name) != 0)
			i++;
		if (names[i] == NULL)
			return refuse_body(name);
	}
	return true;
}

static bool
read_int(const json_t *object, const char *name, int64_t *n)
{
	const json_t *value = json_object_get(object, name);
	char	   *end;

	*n = 0;
	if (value == NULL)
		return true;
	if (json_is_integer(value))
	{
		*n = json_integer_value(value);
		return true;
	}
	if (!json_is_string(value) || json_string_length(value) == 0)
		return refuse_body(name);
	errno = 0;
	*n = strtoll(json_string_value(value), &end, 10);
	if (errno != 0 || *end != '\0')
		return refuse_body(name);
	return true;
}

static bool
read_bytes(const json_t *object, const char *name, EtcdBytes *bytes)
{
	const json_t *value = json_object_get(object, name);

	bytes->data = "";
	bytes->len = 0;
	if (value == NULL)
		return true;
	if (!json_is_string(value) ||
		!decode_base64(json_string_value(value), json_string_length(value), bytes))
		return refuse_body(name);
	return true;
}

/* Reads the name of an enum's value.  Some gateways take an unknown one for 0. */
static bool
read_enum(const json_t *object, const char *name, const char *const *names, int *n)
{
	const char *text = json_string_value(json_object_get(object, name));

	*n = 0;
	if (json_object_get(object, name) == NULL)
		return true;
	for (int i = 0; text != NULL && names[i] != NULL; i++)
	{
		if (strcmp(names[i], text) == 0)
		{
			*n = i;
			return true;
		}
	}
	return refuse_body(name);
}

static bool
read_compare(json_t *json, EtcdCompare *compare)
{
	static const char *const names[] = {"key", "result", "target", "create_revision", "mod_revision", NULL};
	static const char *const results[] = {"EQUAL", "GREATER", "LESS", "NOT_EQUAL", NULL};
	static const char *const targets[] = {"VERSION", "CREATE", "MOD", "VALUE", "LEASE", NULL};
	int			result;
	int			target;

	if (!knows_members(json, names) || !read_bytes(json, "key", &compare->key) ||
		!read_enum(json, "result", results, &result) ||
		!read_enum(json, "target", targets, &target))
		return false;
	if (result != 0 || (target != 1 && target != 2))
		return refuse_body("compare");
	compare->target = target == 1 ? ETCD_COMPARE_CREATE_REVISION : ETCD_COMPARE_MOD_REVISION;
	/* a gateway would compare the other revision with 0 */
	if (json_object_get(json, target == 1 ? "mod_revision" : "create_revision") != NULL)
		return refuse_body("compare");
	return read_int(json, target == 1 ? "create_revision" : "mod_revision", &compare->value);
}

static bool
read_op(json_t *json, EtcdOp *op)
{
	static const char *const ranges[] = {
		"key", "range_end", "limit", "sort_target", "sort_order", "min_create_revision",
		"max_create_revision", "revision", NULL
	};
	static const char *const puts[] = {"key", "value", "lease", NULL};
	static const char *const deletes[] = {"key", NULL};
	static const char *const orders[] = {"NONE", "ASCEND", "DESCEND", NULL};
	static const char *const targets[] = {"KEY", "VERSION", "CREATE", "MOD", "VALUE", NULL};
	json_t	   *body;
	int			order;
	int			target;

	if (!json_is_object(json) || json_object_size(json) != 1)
		return refuse_body("operation");
	if ((body = json_object_get(json, "request_range")) != NULL)
	{
		op->kind = ETCD_OP_RANGE;
		if (!knows_members(body, ranges) || !read_bytes(body, "range_end", &op->range_end) ||
			!read_int(body, "limit", &op->limit) ||
			!read_int(body, "min_create_revision", &op->min_create_revision) ||
			!read_int(body, "max_create_revision", &op->max_create_revision) ||
			!read_int(body, "revision", &op->revision) ||
			!read_enum(body, "sort_order", orders, &order) ||
			!read_enum(body, "sort_target", targets, &target))
			return false;
		if (op->revision != 0 || (order != 0 && target != 2))
			return refuse_body("a range of that kind is not in this model");
		op->sort = order == 0 ? ETCD_SORT_NONE :
			order == 1 ? ETCD_SORT_FIRST_CREATED : ETCD_SORT_LAST_CREATED;
	}
	else if ((body = json_object_get(json, "request_put")) != NULL)
	{
		op->kind = ETCD_OP_PUT;
		if (!knows_members(body, puts) || !read_bytes(body, "value", &op->value) ||
			!read_int(body, "lease", &op->lease))
			return false;
	}
	else if ((body = json_object_get(json, "request_delete_range")) != NULL)
	{
		op->kind = ETCD_OP_DELETE;
		if (!knows_members(body, deletes))
			return false;
	}
	else if ((body = json_object_get(json, "request_txn")) != NULL)
	{
		op->kind = ETCD_OP_EMPTY_TXN;
		return json_object_size(body) == 0 || refuse_body("a nested txn that is not empty");
	}
	else
		return refuse_body("operation");
	if (!read_bytes(body, "key", &op->key))
		return false;
	return op->key.len > 0 || refuse_body("key");
}

static bool
read_ops(const json_t *root, const char *name, const EtcdOp **ops, int *nops)
{
	const json_t *list = json_object_get(root, name);
	EtcdOp	   *read;

	*ops = NULL;
	*nops = 0;
	if (list == NULL)
		return true;
	if (!json_is_array(list))
		return refuse_body(name);
	read = run_alloc((json_array_size(list) + 1) * sizeof(EtcdOp));
	for (size_t i = 0; i < json_array_size(list); i++)
	{
		if (!read_op(json_array_get(list, i), &read[i]))
			return false;
	}
	*ops = read;
	*nops = (int) json_array_size(list);
	return true;
}

static bool
has_range(const EtcdOp *ops, int nops)
{
	for (int i = 0; i < nops; i++)
	{
		if (ops[i].kind == ETCD_OP_RANGE || ops[i].kind == ETCD_OP_EMPTY_TXN)
			return true;
	}
	return false;
}

static bool
read_txn(json_t *root, EtcdRequest *request)
{
	static const char *const names[] = {"compare", "success", "failure", NULL};
	const json_t *list = json_object_get(root, "compare");
	EtcdCompare *compares;

	if (!knows_members(root, names))
		return false;
	compares = run_alloc((json_array_size(list) + 1) * sizeof(EtcdCompare));
	for (size_t i = 0; i < json_array_size(list); i++)
	{
		if (!read_compare(json_array_get(list, i), &compares[i]))
			return false;
	}
	request->compares = compares;
	request->ncompares = (int) json_array_size(list);
	if (!read_ops(root, "success", &request->success, &request->nsuccess) ||
		!read_ops(root, "failure", &request->failure, &request->nfailure))
		return false;

	/* A member without a quorum answers a txn that only compares. */
	if (!has_range(request->success, request->nsuccess) && !has_range(request->failure, request->nfailure))
		return refuse_body("a txn that reads nothing");
	return true;
}

bool
gateway_read_request(const char *path, const char *body, size_t len, EtcdRequest *request)
{
	static const char *const lease_names[] = {"ID", "TTL", NULL};
	json_t	   *root = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
	bool		understood;

	memset(request, 0, sizeof(*request));
	if (root == NULL)
		return refuse_body("no JSON");
	if (strcmp(path, "/v3/kv/txn") == 0)
	{
		request->kind = ETCD_TXN;
		understood = read_txn(root, request);
	}
	else
	{
		if (strcmp(path, "/v3/lease/grant") == 0)
			request->kind = ETCD_GRANT;
		else if (strcmp(path, "/v3/lease/keepalive") == 0)
			request->kind = ETCD_KEEPALIVE;
		else if (strcmp(path, "/v3/lease/revoke") == 0)
			request->kind = ETCD_REVOKE;
		else if (strcmp(path, "/v3/lease/timetolive") == 0)
			request->kind = ETCD_TIME_TO_LIVE;
		else
			refuse_body(path);
		understood = knows_members(root, lease_names) &&
			read_int(root, "ID", &request->lease) && read_int(root, "TTL", &request->ttl_s);
		if (request->lease <= 0 || (request->kind == ETCD_GRANT) != (request->ttl_s > 0))
			understood = refuse_body("ID or TTL");
	}
	json_decref(root);
	return understood && !run_failed();
}

/* Reads a sequence of objects, each with a create_request. */
bool
gateway_read_watches(const char *body, size_t len, EtcdWatch **watches, int *nwatches)
{
	static const char *const outer[] = {"create_request", NULL};
	static const char *const names[] = {"key", "range_end", "watch_id", "start_revision", "fragment", "progress_notify", NULL};
	size_t		at = 0;
	int			room = 4;

	*nwatches = 0;
	*watches = run_alloc(room * sizeof(EtcdWatch));
	while (at < len)
	{
		json_error_t error;
		json_t	   *root = json_loadb(body + at, len - at, JSON_DISABLE_EOF_CHECK, &error);
		json_t	   *create = json_object_get(root, "create_request");
		EtcdWatch  *watch;
		bool		understood;

		if (root == NULL)
			return refuse_body("no JSON");
		at += (size_t) error.position;
		if (*nwatches == room)
		{
			EtcdWatch  *more = run_alloc(4 * room * sizeof(EtcdWatch));

			memcpy(more, *watches, room * sizeof(EtcdWatch));
			*watches = more;
			room *= 4;
		}
		watch = &(*watches)[(*nwatches)++];
		understood = knows_members(root, outer) && knows_members(create, names) &&
			read_bytes(create, "key", &watch->key) &&
			read_bytes(create, "range_end", &watch->range_end) &&
			read_int(create, "watch_id", &watch->watch_id) &&
			read_int(create, "start_revision", &watch->start_revision);
		watch->fragment = json_is_true(json_object_get(create, "fragment"));
		watch->progress_notify = json_is_true(json_object_get(create, "progress_notify"));
		json_decref(root);
		if (!understood)
			return false;
		if (watch->key.len == 0 || watch->watch_id <= 0 || watch->start_revision <= 0)
			return refuse_body("watch");
	}
	return true;
}

/* ---- writing -------------------------------------------------------------------- */

/*
 * A growing text.  White space and the order of members are drawn for each
 * answer, because gateways differ in these.
 */
typedef struct Text
{
	char	   *data;
	size_t		len;
	size_t		room;
	bool		spaces;
	bool		header_last;
} Text;

static void
append(Text *text, const char *data, size_t len)
{
	if (text->room - text->len < len)
	{
		text->room = 2 * text->room + len + 512;
		text->data = realloc(text->data, text->room);
		if (text->data == NULL)
			abort();
	}
	memcpy(text->data + text->len, data, len);
	text->len += len;
}

static void
put(Text *text, const char *literal)
{
	append(text, literal, strlen(literal));
}

static void
put_name(Text *text, const char *name)
{
	char		last = text->data[text->len - 1];

	if (last != '{' && last != '[')
		put(text, text->spaces ? ", " : ",");
	put(text, "\"");
	put(text, name);
	put(text, text->spaces ? "\": " : "\":");
}

/* Zeros are left out. */
static void
put_int(Text *text, const char *name, int64_t n)
{
	char		digits[32];

	if (n == 0)
		return;
	put_name(text, name);
	append(text, digits, (size_t) snprintf(digits, sizeof(digits), "\"%" PRId64 "\"", n));
}

static void
put_uint(Text *text, const char *name, uint64_t n)
{
	char		digits[32];

	if (n == 0)
		return;
	put_name(text, name);
	append(text, digits, (size_t) snprintf(digits, sizeof(digits), "\"%" PRIu64 "\"", n));
}

static void
put_bool(Text *text, const char *name, bool b)
{
	if (!b)
		return;
	put_name(text, name);
	put(text, "true");
}

static void
put_bytes(Text *text, const char *name, EtcdBytes bytes)
{
	if (bytes.len == 0)
		return;
	put_name(text, name);
	put(text, "\"");
	for (size_t i = 0; i < bytes.len; i += 3)
	{
		size_t		left = bytes.len - i;
		uint32_t	bits = (uint32_t) (unsigned char) bytes.data[i] << 16;

		if (left > 1)
			bits |= (uint32_t) (unsigned char) bytes.data[i + 1] << 8;
		if (left > 2)
			bits |= (uint32_t) (unsigned char) bytes.data[i + 2];
		append(text, (const char[]) {
			alphabet[bits >> 18], alphabet[bits >> 12 & 63],
			left > 1 ? alphabet[bits >> 6 & 63] : '=', left > 2 ? alphabet[bits & 63] : '='
		}, 4);
	}
	put(text, "\"");
}

static void
put_header(Text *text, const EtcdHeader *header)
{
	put_name(text, "header");
	put(text, "{");
	put_uint(text, "cluster_id", header->cluster_id);
	put_uint(text, "member_id", header->member_id);
	put_int(text, "revision", header->revision);
	put_uint(text, "raft_term", header->raft_term);
	put(text, "}");
}

static void
put_kv(Text *text, const EtcdKeyValue *kv)
{
	put(text, "{");
	put_bytes(text, "key", kv->key);
	put_int(text, "create_revision", kv->create_revision);
	put_int(text, "mod_revision", kv->mod_revision);
	put_int(text, "version", kv->version);
	put_bytes(text, "value", kv->value);
	put_int(text, "lease", kv->lease);
	put(text, "}");
}

static void
put_result(Text *text, const EtcdResult *result)
{
	put(text, "{");
	switch (result->kind)
	{
		case ETCD_OP_RANGE:
			put_name(text, "response_range");
			put(text, "{");
			if (result->nkvs > 0)
			{
				put_name(text, "kvs");
				put(text, "[");
				for (int i = 0; i < result->nkvs; i++)
				{
					put(text, i > 0 ? "," : "");
					put_kv(text, &result->kvs[i]);
				}
				put(text, "]");
			}
			put_int(text, "count", result->nkvs);
			put(text, "}");
			break;
		case ETCD_OP_PUT:
			put_name(text, "response_put");
			put(text, "{}");
			break;
		case ETCD_OP_DELETE:
			put_name(text, "response_delete_range");
			put(text, "{");
			put_int(text, "deleted", result->deleted);
			put(text, "}");
			break;
		case ETCD_OP_EMPTY_TXN:
			put_name(text, "response_txn");
			put(text, "{\"header\":{},\"succeeded\":true}");
			break;
	}
	put(text, "}");
}

static void
draw_layout(Text *text)
{
	memset(text, 0, sizeof(*text));
	text->spaces = random_chance(2000);
	text->header_last = random_chance(2000);
}

static void
lay_out(Text *text)
{
	draw_layout(text);
	put(text, text->spaces ? " {" : "{");
}

static void
put_error(Text *text, int code, const char *message, bool in_stream)
{
	char		error[2 * ETCD_MESSAGE_SIZE + 128];

	if (!in_stream && plan.dialect == 1)
		snprintf(error, sizeof(error), "\"error\":\"%s\",\"message\":\"%s\",\"code\":%d}", message, message, code);
	else if (!in_stream)
		snprintf(error, sizeof(error), "\"code\":%d,\"message\":\"%s\",\"details\":[]}", code, message);
	else if (plan.dialect == 1)
		snprintf(error, sizeof(error), "\"error\":{\"grpc_code\":%d,\"http_code\":503,\"message\":\"%s\",\"http_status\":\"Service Unavailable\"}}",
			code, message);
	else
		snprintf(error, sizeof(error), "\"error\":{\"code\":%d,\"message\":\"%s\",\"details\":[]}}\n", code, message);
	put(text, error);
}

static long
status_of(int code)
{
	switch (code)
	{
		case ETCD_CODE_NOT_FOUND:
			return 404;
		case ETCD_CODE_INVALID_ARGUMENT:
		case ETCD_CODE_FAILED_PRECONDITION:
		case ETCD_CODE_OUT_OF_RANGE:
			return 400;
		case ETCD_CODE_UNAVAILABLE:
			return 503;
		case ETCD_CODE_DEADLINE_EXCEEDED:
			return plan.dialect == 1 ? 408 : 504;
		default:
			return 500;
	}
}

char *
gateway_write_answer(EtcdRequestKind kind, const EtcdAnswer *answer, size_t *len, long *http_status)
{
	Text		text;

	lay_out(&text);
	*http_status = 200;
	if (answer->outcome == ETCD_REFUSED)
	{
		/* a keepalive is a stream, so an error may come after the HTTP status */
		bool		in_stream = kind == ETCD_KEEPALIVE && random_chance(5000);

		put_error(&text, answer->code, answer->message, in_stream);
		if (!in_stream)
			*http_status = status_of(answer->code);
		*len = text.len;
		return text.data;
	}
	if (kind == ETCD_KEEPALIVE)
	{
		put_name(&text, "result");
		put(&text, "{");
	}
	if (!text.header_last)
		put_header(&text, &answer->header);
	switch (kind)
	{
		case ETCD_GRANT:
		case ETCD_KEEPALIVE:
			put_int(&text, "ID", answer->lease);
			put_int(&text, "TTL", answer->ttl_s);
			break;
		case ETCD_REVOKE:
			break;
		case ETCD_AUTHENTICATE:
		case ETCD_LIST_MEMBERS:
		case ETCD_STATUS:
			abort();			/* only the transport sends these */
		case ETCD_TIME_TO_LIVE:
			put_int(&text, "ID", answer->lease);
			put_int(&text, "TTL", answer->ttl_s);
			put_int(&text, "grantedTTL", answer->granted_ttl_s);
			break;
		case ETCD_TXN:
			put_bool(&text, "succeeded", answer->succeeded);
			if (answer->nresults > 0)
			{
				put_name(&text, "responses");
				put(&text, "[");
				for (int i = 0; i < answer->nresults; i++)
				{
					put(&text, i > 0 ? "," : "");
					put_result(&text, &answer->results[i]);
				}
				put(&text, "]");
			}
			break;
	}
	if (text.header_last)
		put_header(&text, &answer->header);
	put(&text, kind == ETCD_KEEPALIVE ? "}}\n" : "}");
	*len = text.len;
	return text.data;
}

char *
gateway_write_frame(const EtcdWatchFrame *frame, size_t *len)
{
	Text		text;

	lay_out(&text);
	if (frame->outcome == ETCD_REFUSED)
	{
		put_error(&text, frame->code, frame->message, true);
		*len = text.len;
		return text.data;
	}
	put_name(&text, "result");
	put(&text, "{");
	if (!text.header_last)
		put_header(&text, &frame->header);
	put_int(&text, "watch_id", frame->watch_id);
	put_bool(&text, "created", frame->created);
	put_bool(&text, "canceled", frame->canceled);
	put_bool(&text, "fragment", frame->fragment);
	put_int(&text, "compact_revision", frame->compact_revision);
	if (frame->message[0] != '\0')
	{
		put_name(&text, "cancel_reason");
		put(&text, "\"");
		put(&text, frame->message);
		put(&text, "\"");
	}
	if (frame->nevents > 0)
	{
		put_name(&text, "events");
		put(&text, "[");
		for (int i = 0; i < frame->nevents; i++)
		{
			const EtcdWatchEvent *event = &frame->events[i];

			put(&text, i > 0 ? ",{" : "{");
			if (event->is_delete)
			{
				put_name(&text, "type");
				put(&text, "\"DELETE\"");
			}
			put_name(&text, "kv");
			put_kv(&text, &event->kv);
			put(&text, "}");
		}
		put(&text, "]");
	}
	if (text.header_last)
		put_header(&text, &frame->header);
	put(&text, "}}\n");
	*len = text.len;
	return text.data;
}

char *
gateway_write_garbage(size_t *len, long *http_status)
{
	static const char *const bodies[] = {
		"", "upstream connect error or disconnect/reset before headers\n",
		"<html><body>502 Bad Gateway</body></html>", "{\"header\":{\"cluster_id\":\"1", "null"
	};
	static const long statuses[] = {502, 503, 502, 200, 200};
	int			i = random_below(5);

	*http_status = statuses[i];
	*len = strlen(bodies[i]);
	return strdup(bodies[i]);
}

/* ---- messages that pass as structures ---------------------------------------------- */

static EtcdBytes
copy_bytes(EtcdBytes bytes)
{
	EtcdBytes	copy = {run_copy(bytes.data, bytes.len), bytes.len};

	return copy;
}

static const EtcdOp *
copy_ops(const EtcdOp *ops, int nops)
{
	EtcdOp	   *copies = run_alloc((size_t) (nops + 1) * sizeof(EtcdOp));

	for (int i = 0; i < nops; i++)
	{
		copies[i] = ops[i];
		copies[i].key = copy_bytes(ops[i].key);
		copies[i].range_end = copy_bytes(ops[i].range_end);
		copies[i].value = copy_bytes(ops[i].value);
	}
	return copies;
}

EtcdRequest *
gateway_copy_request(const EtcdRequest *request)
{
	EtcdRequest *copy = run_alloc(sizeof(EtcdRequest));
	EtcdCompare *compares = run_alloc((size_t) (request->ncompares + 1) * sizeof(EtcdCompare));

	*copy = *request;
	for (int i = 0; i < request->ncompares; i++)
	{
		compares[i] = request->compares[i];
		compares[i].key = copy_bytes(request->compares[i].key);
	}
	copy->compares = compares;
	copy->success = copy_ops(request->success, request->nsuccess);
	copy->failure = copy_ops(request->failure, request->nfailure);
	return copy;
}

EtcdWatch *
gateway_copy_watches(const EtcdWatch *watches, int nwatches)
{
	EtcdWatch  *copies = run_alloc((size_t) (nwatches + 1) * sizeof(EtcdWatch));

	for (int i = 0; i < nwatches; i++)
	{
		copies[i] = watches[i];
		copies[i].key = copy_bytes(watches[i].key);
		copies[i].range_end = copy_bytes(watches[i].range_end);
	}
	return copies;
}

/* Copies only the structure; the store keeps the rest for the whole run. */
EtcdAnswer *
gateway_copy_answer(const EtcdAnswer *answer)
{
	EtcdAnswer *copy = run_alloc(sizeof(EtcdAnswer));
	Text		text;

	draw_layout(&text);
	*copy = *answer;
	return copy;
}

EtcdWatchFrame *
gateway_copy_frame(const EtcdWatchFrame *frame)
{
	EtcdWatchFrame *copy = run_alloc(sizeof(EtcdWatchFrame));
	size_t		size = (size_t) frame->nevents * sizeof(EtcdWatchEvent);
	Text		text;

	draw_layout(&text);
	*copy = *frame;
	copy->events = run_alloc(size);
	if (size > 0)
		memcpy(copy->events, frame->events, size);
	return copy;
}
