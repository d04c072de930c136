/*-------------------------------------------------------------------------
 *
 * etcd_decode.c
 *	  etcd's v3 answers and watch frames from the JSON of its HTTP gateway.
 *
 * They are parsed by jansson and then read by tables, one for each message of
 * rpc.proto, that say which member goes where.
 *
 * An answer is taken as a whole or not at all: one member of the wrong type
 * makes it garbage.  A member that is not there is zero, as in protobuf,
 * except where etcd always sends it and a zero could be mistaken for news.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include <jansson.h>

#include "common/base64.h"

#include "etcd_api.h"

/*
 * A string may hold a NUL (an escaped one), which ends a message for people
 * and is no base64. If two members have the same name, nobody knows which one
 * is meant.  A NUL that is not escaped is never JSON, but jansson skips one
 * behind a number or a literal, so that is looked for here.
 */
#define JSON_FLAGS	(JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES)

/* How much is shown of a body that could not be understood. */
#define EXCERPT_SIZE	100

/* ---- what answers are made of ---------------------------------------- */

typedef enum FieldType
{
	FIELD_INT64,				/* a string of digits, or a number */
	FIELD_UINT64,
	FIELD_BOOL,
	FIELD_BYTES,				/* base64; EtcdBytes */
	FIELD_TEXT,					/* a message for people, ETCD_MESSAGE_SIZE */
	FIELD_STRING,				/* const char *, without a NUL in it */
	FIELD_STRINGS,				/* a list of them, as FIELD_LIST */
	FIELD_EVENT_TYPE,			/* bool: is it DELETE? */
	FIELD_MESSAGE,				/* a message inside */
	FIELD_LIST,					/* messages; pointer, and an int with their
								 * number at offset `extra` */
	FIELD_RESULT				/* one of the kinds of EtcdResult, `extra` */
} FieldType;

typedef struct Message Message;

typedef struct Field
{
	const char *name;
	FieldType	type;
	bool		required;
	size_t		offset;			/* in the structure of the message */
	const Message *message;
	size_t		extra;
} Field;

struct Message
{
	const Field *fields;
	int			nfields;
	size_t		size;			/* of the structure */
	bool		one_of;			/* exactly one of the fields is there */
};

#define MESSAGE(fields, structure) \
	{fields, lengthof(fields), sizeof(structure), false}
#define MEMBER(name, type, required, structure, member, message) \
	{name, type, required, offsetof(structure, member), message, 0}
/* the number of the items is in a member with an n before the name */
#define LIST(name, type, structure, member, message) \
	{name, type, false, offsetof(structure, member), message, offsetof(structure, n##member)}

static const Field header_fields[] = {
	MEMBER("cluster_id", FIELD_UINT64, false, EtcdHeader, cluster_id, NULL),
	MEMBER("member_id", FIELD_UINT64, false, EtcdHeader, member_id, NULL),
	MEMBER("revision", FIELD_INT64, false, EtcdHeader, revision, NULL),
	MEMBER("raft_term", FIELD_UINT64, false, EtcdHeader, raft_term, NULL),
};
static const Message header_message = MESSAGE(header_fields, EtcdHeader);

static const Field kv_fields[] = {
	MEMBER("key", FIELD_BYTES, true, EtcdKeyValue, key, NULL),
	MEMBER("value", FIELD_BYTES, false, EtcdKeyValue, value, NULL),
	MEMBER("create_revision", FIELD_INT64, false, EtcdKeyValue, create_revision, NULL),
	MEMBER("mod_revision", FIELD_INT64, true, EtcdKeyValue, mod_revision, NULL),
	MEMBER("version", FIELD_INT64, false, EtcdKeyValue, version, NULL),
	MEMBER("lease", FIELD_INT64, false, EtcdKeyValue, lease, NULL),
};
static const Message kv_message = MESSAGE(kv_fields, EtcdKeyValue);

/* The three below are all read into an EtcdResult. */
static const Field range_fields[] = {
	LIST("kvs", FIELD_LIST, EtcdResult, kvs, &kv_message),
};
static const Message range_message = MESSAGE(range_fields, EtcdResult);

/* of a put, and of an empty txn */
static const Message empty_message = {NULL, 0, sizeof(EtcdResult), false};

static const Field delete_fields[] = {
	MEMBER("deleted", FIELD_INT64, false, EtcdResult, deleted, NULL),
};
static const Message delete_message = MESSAGE(delete_fields, EtcdResult);

static const Field result_fields[] = {
	{"response_range", FIELD_RESULT, false, 0, &range_message, ETCD_OP_RANGE},
	{"response_put", FIELD_RESULT, false, 0, &empty_message, ETCD_OP_PUT},
	{"response_delete_range", FIELD_RESULT, false, 0, &delete_message, ETCD_OP_DELETE},
	{"response_txn", FIELD_RESULT, false, 0, &empty_message, ETCD_OP_EMPTY_TXN},
};
static const Message result_message =
{result_fields, lengthof(result_fields), sizeof(EtcdResult), true};

/* grantedTTL: of TIME_TO_LIVE alone */
static const Field lease_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("ID", FIELD_INT64, true, EtcdAnswer, lease, NULL),
	MEMBER("TTL", FIELD_INT64, false, EtcdAnswer, ttl_s, NULL),
	MEMBER("grantedTTL", FIELD_INT64, false, EtcdAnswer, granted_ttl_s, NULL),
};
static const Message lease_message = MESSAGE(lease_fields, EtcdAnswer);

static const Field revoke_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
};
static const Message revoke_message = MESSAGE(revoke_fields, EtcdAnswer);

static const Field txn_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("succeeded", FIELD_BOOL, false, EtcdAnswer, succeeded, NULL),
	LIST("responses", FIELD_LIST, EtcdAnswer, results, &result_message),
};
static const Message txn_message = MESSAGE(txn_fields, EtcdAnswer);

static const Field authenticate_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("token", FIELD_STRING, true, EtcdAnswer, token, NULL),
};
static const Message authenticate_message = MESSAGE(authenticate_fields, EtcdAnswer);

static const Field member_fields[] = {
	LIST("clientURLs", FIELD_STRINGS, EtcdMember, client_urls, NULL),
	MEMBER("isLearner", FIELD_BOOL, false, EtcdMember, is_learner, NULL),
};
static const Message member_message = MESSAGE(member_fields, EtcdMember);

static const Field members_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	LIST("members", FIELD_LIST, EtcdAnswer, members, &member_message),
};
static const Message members_message = MESSAGE(members_fields, EtcdAnswer);

static const Field status_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("version", FIELD_STRING, true, EtcdAnswer, version, NULL),
};
static const Message status_message = MESSAGE(status_fields, EtcdAnswer);

static const Field event_fields[] = {
	MEMBER("type", FIELD_EVENT_TYPE, false, EtcdWatchEvent, is_delete, NULL),
	MEMBER("kv", FIELD_MESSAGE, true, EtcdWatchEvent, kv, &kv_message),
};
static const Message event_message = MESSAGE(event_fields, EtcdWatchEvent);

static const Field frame_fields[] = {
	MEMBER("header", FIELD_MESSAGE, true, EtcdWatchFrame, header, &header_message),
	MEMBER("watch_id", FIELD_INT64, false, EtcdWatchFrame, watch_id, NULL),
	MEMBER("created", FIELD_BOOL, false, EtcdWatchFrame, created, NULL),
	MEMBER("canceled", FIELD_BOOL, false, EtcdWatchFrame, canceled, NULL),
	MEMBER("fragment", FIELD_BOOL, false, EtcdWatchFrame, fragment, NULL),
	MEMBER("cancel_reason", FIELD_TEXT, false, EtcdWatchFrame, message, NULL),
	MEMBER("compact_revision", FIELD_INT64, false, EtcdWatchFrame, compact_revision, NULL),
	LIST("events", FIELD_LIST, EtcdWatchFrame, events, &event_message),
};
static const Message frame_message = MESSAGE(frame_fields, EtcdWatchFrame);

/* ---- reading --------------------------------------------------------- */

/* A piece of memory; an answer owns a list of them. */
typedef union Chunk
{
	union Chunk *next;
	int64_t		alignment;
} Chunk;

/* Records the first problem, which makes the answer useless. */
typedef struct Reader
{
	void	   *memory;
	bool		failed;
	char		problem[ETCD_MESSAGE_SIZE];
} Reader;

static void
fail(Reader *reader, const char *problem, const char *name)
{
	if (!reader->failed)
		etcd_format_message(reader->problem, "%s: %s", problem, name);
	reader->failed = true;
}

/* Zeroed memory that lives as long as the answer; NULL if memory is out. */
static void *
allocate(Reader *reader, size_t n, size_t size)
{
	Chunk	   *chunk = NULL;

	if (n <= (SIZE_MAX - sizeof(Chunk)) / size)
		chunk = calloc(1, sizeof(Chunk) + n * size);
	if (chunk == NULL)
	{
		fail(reader, "could not be read", "out of memory");
		return NULL;
	}
	chunk->next = reader->memory;
	reader->memory = chunk;
	return chunk + 1;
}

static void
free_memory(void **memory)
{
	Chunk	   *chunk = *memory;

	while (chunk != NULL)
	{
		Chunk	   *next = chunk->next;

		free(chunk);
		chunk = next;
	}
	*memory = NULL;
}

/*
 * A 64-bit integer.  (A number above 2^63 that is not in a string is no JSON
 * for jansson; no gateway writes them so.)
 */
static bool
parse_int(const json_t *value, bool is_signed, void *target)
{
	if (json_is_integer(value))
	{
		json_int_t	n = json_integer_value(value);

		if (n < 0 && !is_signed)
			return false;
		if (is_signed)
			*(int64_t *) target = n;
		else
			*(uint64_t *) target = n;
		return true;
	}
	if (json_is_string(value))
	{
		const char *s = json_string_value(value);
		const char *digits = s + (is_signed && s[0] == '-');
		size_t		ndigits = strspn(digits, "0123456789");

		/* nothing but digits: strtol() would take white space, too */
		if (ndigits == 0 || digits + ndigits != s + json_string_length(value))
			return false;
		errno = 0;
		if (is_signed)
			*(int64_t *) target = strtoimax(s, NULL, 10);
		else
			*(uint64_t *) target = strtoumax(s, NULL, 10);
		return errno == 0;
	}
	return false;
}

static bool
parse_bytes(Reader *reader, const json_t *value, EtcdBytes *bytes)
{
	size_t		len;
	int			room;
	int			n;
	char	   *data;

	if (!json_is_string(value))
		return false;
	len = json_string_length(value);
	if (len > INT_MAX / 2)
		return false;
	room = pg_b64_dec_len((int) len);
	data = allocate(reader, room + 1, 1);
	if (data == NULL)
		return false;
	n = pg_b64_decode(json_string_value(value), (int) len, (void *) data, room);
	if (n < 0)
		return false;
	data[n] = '\0';
	bytes->data = data;
	bytes->len = n;
	return true;
}

static bool
parse_string(Reader *reader, const json_t *value, const char **string)
{
	size_t		len;
	char	   *copy;

	if (!json_is_string(value))
		return false;
	len = json_string_length(value);
	if (strlen(json_string_value(value)) != len)
		return false;
	copy = allocate(reader, len + 1, 1);
	if (copy == NULL)
		return false;
	memcpy(copy, json_string_value(value), len);
	*string = copy;
	return true;
}

/* The name of the enum value, or its number; PUT is 0 and DELETE is 1. */
static bool
parse_event_type(const json_t *value, bool *is_delete)
{
	if (json_is_string(value))
	{
		*is_delete = strcmp(json_string_value(value), "DELETE") == 0;
		return *is_delete || strcmp(json_string_value(value), "PUT") == 0;
	}
	*is_delete = json_integer_value(value) == 1;
	return json_is_integer(value) &&
		(*is_delete || json_integer_value(value) == 0);
}

static bool
read_strings(Reader *reader, const json_t *json, const char ***strings, int *nstrings)
{
	size_t		n = json_array_size(json);
	bool		good = json_is_array(json) && n <= INT_MAX;

	if (!good || n == 0)
		return good;
	*strings = allocate(reader, n, sizeof(char *));
	for (size_t i = 0; i < n && good && !reader->failed; i++)
		good = parse_string(reader, json_array_get(json, i), &(*strings)[i]);
	*nstrings = (int) n;
	return good;
}

static void read_message(Reader *reader, const json_t *json, const Message *message, void *structure);

/* Reads the messages of a list into an array. */
static bool
read_list(Reader *reader, const json_t *json, const Field *field, void **items, int *nitems)
{
	size_t		n = json_array_size(json);

	if (!json_is_array(json) || n > INT_MAX)
		return false;
	if (n == 0)
		return true;
	*items = allocate(reader, n, field->message->size);
	for (size_t i = 0; i < n && !reader->failed; i++)
	{
		const json_t *item = json_array_get(json, i);

		if (!json_is_object(item))
			fail(reader, "member is not understood", field->name);
		read_message(reader, item, field->message, (char *) *items + i * field->message->size);
	}
	*nitems = (int) n;
	return true;
}

/* Reads a member of a message.  False if it is of the wrong type. */
static bool
read_member(Reader *reader, const json_t *value, const Field *field, void *structure)
{
	void	   *target = (char *) structure + field->offset;
	int		   *number = (int *) ((char *) structure + field->extra);

	switch (field->type)
	{
		case FIELD_INT64:
			return parse_int(value, true, target);
		case FIELD_UINT64:
			return parse_int(value, false, target);
		case FIELD_BOOL:
			*(bool *) target = json_is_true(value);
			return json_is_boolean(value);
		case FIELD_BYTES:
			return parse_bytes(reader, value, target);
		case FIELD_TEXT:
			if (json_is_string(value))
				etcd_format_message(target, "%s", json_string_value(value));
			return json_is_string(value);
		case FIELD_STRING:
			return parse_string(reader, value, target);
		case FIELD_STRINGS:
			return read_strings(reader, value, target, number);
		case FIELD_EVENT_TYPE:
			return parse_event_type(value, target);
		case FIELD_RESULT:
		case FIELD_MESSAGE:
			if (field->type == FIELD_RESULT)
				((EtcdResult *) structure)->kind = (EtcdOpKind) field->extra;
			read_message(reader, value, field->message, target);
			return json_is_object(value);
		case FIELD_LIST:
			return read_list(reader, value, field, target, number);
	}
	return false;
}

/*
 * Reads a message into its structure, which is zeroed.  The recursion is as
 * deep as the tables are, whatever came.
 */
static void
read_message(Reader *reader, const json_t *json, const Message *message, void *structure)
{
	int			present = 0;

	for (int i = 0; i < message->nfields && !reader->failed; i++)
	{
		const Field *field = &message->fields[i];
		const json_t *value = json_object_get(json, field->name);

		if (value != NULL && !json_is_null(value))
		{
			present++;
			if (!read_member(reader, value, field, structure))
				fail(reader, "member is not understood", field->name);
			continue;
		}
		if (field->required)
			fail(reader, "member is missing", field->name);
		/* empty bytes are left out, and end with a NUL all the same */
		if (field->type == FIELD_BYTES)
			((EtcdBytes *) ((char *) structure + field->offset))->data = "";
	}
	if (message->one_of && present != 1)
		fail(reader, "one member is expected of those like", message->fields[0].name);
}

/*
 * Is it an error of etcd or of its gateway?  All forms of both dialects:
 *	  {"error":"m","message":"m","code":n}			v1
 *	  {"code":n,"message":"m"}						v2
 *	  {"error":{"grpc_code":n,"message":"m",...}}	v1, in a stream
 *	  {"error":{"code":n,"message":"m"}}			v2, in a stream
 */
static bool
read_error(const json_t *root, int *code, char *message)
{
	const json_t *error = json_object_get(root, "error");
	const json_t *number;
	const json_t *text;

	if (json_is_object(error))
		root = error;
	else if (json_string_length(error) == 0 && json_object_get(root, "code") == NULL)
		return false;

	number = json_object_get(root, "grpc_code");
	if (number == NULL)
		number = json_object_get(root, "code");
	*code = ETCD_CODE_UNKNOWN;
	if (json_integer_value(number) > 0 && json_integer_value(number) <= INT_MAX)
		*code = (int) json_integer_value(number);

	text = json_object_get(root, "message");
	if (!json_is_string(text))
		text = error;
	message[0] = '\0';
	if (json_is_string(text))
		etcd_format_message(message, "%s", json_string_value(text));
	if (message[0] == '\0')
		etcd_format_message(message, "error code %d without a message", *code);
	return true;
}

/* ---- answers --------------------------------------------------------- */

/* Why the body of a unary answer does not come from etcd. */
static void
describe_garbage(char *message, long http_status, const char *body, size_t len)
{
	const char *hint = "";
	int			excerpt = (int) Min(len, EXCERPT_SIZE);

	if (http_status == 404)
		hint = " (no etcd, or its JSON gateway is not enabled)";
	if (http_status / 100 != 2 && len == 0)
		etcd_format_message(message, "HTTP status %ld%s", http_status, hint);
	else if (http_status / 100 != 2)
		etcd_format_message(message, "HTTP status %ld%s: %.*s", http_status, hint,
							excerpt, body);
	else if (len == 0)
		etcd_format_message(message, "empty answer");
	else
		etcd_format_message(message, "not a JSON answer of etcd: %.*s", excerpt, body);
}

/* What the answer to a request of each kind is. */
static const Message *const answer_messages[] = {
	[ETCD_GRANT] = &lease_message,
	[ETCD_KEEPALIVE] = &lease_message,
	[ETCD_REVOKE] = &revoke_message,
	[ETCD_TXN] = &txn_message,
	[ETCD_AUTHENTICATE] = &authenticate_message,
	[ETCD_LIST_MEMBERS] = &members_message,
	[ETCD_TIME_TO_LIVE] = &lease_message,
	[ETCD_STATUS] = &status_message
};

void
etcd_decode_answer(EtcdRequestKind kind, long http_status,
				   const char *body, size_t len, EtcdAnswer *answer)
{
	json_t	   *root = NULL;
	const json_t *json;
	Reader		reader = {0};

	memset(answer, 0, sizeof(*answer));
	if (memchr(body, '\0', len) == NULL)
		root = json_loadb(body, len, JSON_FLAGS, NULL);
	json = root;
	if (read_error(root, &answer->code, answer->message))
	{
		answer->outcome = ETCD_REFUSED;
		json_decref(root);
		return;
	}

	if (kind == ETCD_KEEPALIVE)
		json = json_object_get(root, "result");	/* the first and only message of a stream */
	if (http_status / 100 == 2 && json_is_object(json))
	{
		read_message(&reader, json, answer_messages[kind], answer);
		answer->memory = reader.memory;
		if (kind == ETCD_TXN && answer->header.revision <= 0)
			fail(&reader, "member is missing", "revision");
		/*
		 * TTL is left out in the last second, so this field shows that the
		 * lease exists
		 */
		if (kind == ETCD_TIME_TO_LIVE && answer->ttl_s >= 0 && answer->granted_ttl_s <= 0)
			fail(&reader, "member is missing", "grantedTTL");
		if (reader.failed)
		{
			etcd_free_answer(answer);
			memset(answer, 0, sizeof(*answer));
			answer->outcome = ETCD_GARBAGE;
			memcpy(answer->message, reader.problem, ETCD_MESSAGE_SIZE);
		}
	}
	else
	{
		answer->outcome = ETCD_GARBAGE;
		describe_garbage(answer->message, http_status, body, len);
	}
	json_decref(root);
}

void
etcd_free_answer(EtcdAnswer *answer)
{
	free_memory(&answer->memory);
	answer->results = NULL;
	answer->nresults = 0;
	answer->token = NULL;
	answer->version = NULL;
	answer->members = NULL;
	answer->nmembers = 0;
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/*
 * Parses the object at the front of a buffer; its length goes into *taken.
 * NULL if there is none; *incomplete: more bytes may make it one.
 *
 * The buffer ends anywhere, so jansson's complaint about its end may be about
 * the cut alone, also where it does not call it premature: at a literal, an
 * escape or a character of up to 4 bytes that is not there in full.
 */
static json_t *
parse_frame(const char *buf, size_t len, size_t *taken, bool *incomplete)
{
	json_error_t error;
	json_t	   *root;

	*incomplete = false;
	if (buf[0] != '{')
		return NULL;
	root = json_loadb(buf, len, JSON_FLAGS | JSON_DISABLE_EOF_CHECK, &error);
	*taken = (size_t) error.position;
	if (memchr(buf, '\0', root != NULL ? *taken : len) != NULL)
	{
		json_decref(root);
		return NULL;
	}
	*incomplete = root == NULL &&
		(json_error_code(&error) == json_error_premature_end_of_input || *taken >= len ||
		 (json_error_code(&error) == json_error_invalid_utf8 && *taken + 4 > len));
	return root;
}

/* There is no frame any more, for this reason. */
static ssize_t
refuse_frame(EtcdWatchFrame *frame, const char *why)
{
	etcd_free_frame(frame);
	memset(frame, 0, sizeof(*frame));
	frame->outcome = ETCD_GARBAGE;
	memcpy(frame->message, why, ETCD_MESSAGE_SIZE);
	return -1;
}

ssize_t
etcd_decode_frame(const char *buf, size_t len, EtcdWatchFrame *frame)
{
	size_t		start = 0;
	size_t		end;
	bool		incomplete;
	json_t	   *root;
	json_t	   *result;
	Reader		reader = {0};

	memset(frame, 0, sizeof(*frame));
	while (start < len && is_space(buf[start]))
		start++;
	if (start == len)
		return 0;
	root = parse_frame(buf + start, len - start, &end, &incomplete);
	if (incomplete)
		return 0;
	if (root == NULL)
	{
		describe_garbage(reader.problem, 200, buf + start, len - start);
		return refuse_frame(frame, reader.problem);
	}

	result = json_object_get(root, "result");
	if (read_error(root, &frame->code, frame->message))
		frame->outcome = ETCD_REFUSED;
	else if (json_is_object(result))
	{
		read_message(&reader, result, &frame_message, frame);
		frame->memory = reader.memory;
		frame->lost_token = frame->canceled && strstr(frame->message, "invalid auth token") != NULL;
	}
	else
		fail(&reader, "member is missing", "result");
	json_decref(root);
	if (reader.failed)
		return refuse_frame(frame, reader.problem);

	end += start;
	while (end < len && is_space(buf[end]))
		end++;
	return (ssize_t) end;
}

void
etcd_free_frame(EtcdWatchFrame *frame)
{
	free_memory(&frame->memory);
	frame->events = NULL;
	frame->nevents = 0;
}
