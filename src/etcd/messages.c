/*-------------------------------------------------------------------------
 *
 * messages.c
 *	  What etcd's answers are made of, and the memory that they lie in.
 *
 * The numbers are those of etcd's api/etcdserverpb/rpc.proto and
 * api/mvccpb/kv.proto.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <limits.h>

#include "mb/pg_wchar.h"

#include "messages.h"

/* ---- the tables ------------------------------------------------------ */

#define MESSAGE(fields, structure) \
	{fields, lengthof(fields), sizeof(structure), false}
#define MEMBER(name, number, type, required, structure, member, message) \
	{name, number, type, required, offsetof(structure, member), message, 0}
/* the number of the items is in a member with an n before the name */
#define LIST(name, number, structure, member, message) \
	{name, number, FIELD_LIST, false, offsetof(structure, member), message, \
	 offsetof(structure, n##member)}

static const Field header_fields[] = {
	MEMBER("cluster_id", 1, FIELD_UINT64, false, EtcdHeader, cluster_id, NULL),
	MEMBER("member_id", 2, FIELD_UINT64, false, EtcdHeader, member_id, NULL),
	MEMBER("revision", 3, FIELD_INT64, false, EtcdHeader, revision, NULL),
	MEMBER("raft_term", 4, FIELD_UINT64, false, EtcdHeader, raft_term, NULL),
};
static const Message header_message = MESSAGE(header_fields, EtcdHeader);

static const Field kv_fields[] = {
	MEMBER("key", 1, FIELD_BYTES, true, EtcdKeyValue, key, NULL),
	MEMBER("value", 5, FIELD_BYTES, false, EtcdKeyValue, value, NULL),
	MEMBER("create_revision", 2, FIELD_INT64, false, EtcdKeyValue, create_revision, NULL),
	MEMBER("mod_revision", 3, FIELD_INT64, true, EtcdKeyValue, mod_revision, NULL),
	MEMBER("version", 4, FIELD_INT64, false, EtcdKeyValue, version, NULL),
	MEMBER("lease", 6, FIELD_INT64, false, EtcdKeyValue, lease, NULL),
};
static const Message kv_message = MESSAGE(kv_fields, EtcdKeyValue);

/* The three below are all read into an EtcdResult. */
static const Field range_fields[] = {
	LIST("kvs", 2, EtcdResult, kvs, &kv_message),
};
static const Message range_message = MESSAGE(range_fields, EtcdResult);

/* of a put, and of an empty txn */
static const Message empty_message = {NULL, 0, sizeof(EtcdResult), false};

static const Field delete_fields[] = {
	MEMBER("deleted", 2, FIELD_INT64, false, EtcdResult, deleted, NULL),
};
static const Message delete_message = MESSAGE(delete_fields, EtcdResult);

/* in the order of EtcdOpKind */
static const Field result_fields[] = {
	{"response_range", 1, FIELD_MESSAGE, false, 0, &range_message, 0},
	{"response_put", 2, FIELD_MESSAGE, false, 0, &empty_message, 0},
	{"response_delete_range", 3, FIELD_MESSAGE, false, 0, &delete_message, 0},
	{"response_txn", 4, FIELD_MESSAGE, false, 0, &empty_message, 0},
};
static const Message result_message =
{result_fields, lengthof(result_fields), sizeof(EtcdResult), true};

/* grantedTTL: of TIME_TO_LIVE alone */
static const Field lease_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("ID", 2, FIELD_INT64, true, EtcdAnswer, lease, NULL),
	MEMBER("TTL", 3, FIELD_INT64, false, EtcdAnswer, ttl_s, NULL),
	MEMBER("grantedTTL", 4, FIELD_INT64, false, EtcdAnswer, granted_ttl_s, NULL),
};
static const Message lease_message = MESSAGE(lease_fields, EtcdAnswer);

static const Field revoke_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
};
static const Message revoke_message = MESSAGE(revoke_fields, EtcdAnswer);

static const Field txn_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("succeeded", 2, FIELD_BOOL, false, EtcdAnswer, succeeded, NULL),
	LIST("responses", 3, EtcdAnswer, results, &result_message),
};
static const Message txn_message = MESSAGE(txn_fields, EtcdAnswer);

static const Field authenticate_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("token", 2, FIELD_STRING, true, EtcdAnswer, token, NULL),
};
static const Message authenticate_message = MESSAGE(authenticate_fields, EtcdAnswer);

static const Field member_fields[] = {
	MEMBER("ID", 1, FIELD_UINT64, false, EtcdMember, id, NULL),
	MEMBER("name", 2, FIELD_STRING, false, EtcdMember, name, NULL),
	LIST("clientURLs", 4, EtcdMember, client_urls, NULL),
	MEMBER("isLearner", 5, FIELD_BOOL, false, EtcdMember, is_learner, NULL),
};
static const Message member_message = MESSAGE(member_fields, EtcdMember);

static const Field members_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	LIST("members", 2, EtcdAnswer, members, &member_message),
};
static const Message members_message = MESSAGE(members_fields, EtcdAnswer);

static const Field status_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdAnswer, header, &header_message),
	MEMBER("version", 2, FIELD_STRING, true, EtcdAnswer, version, NULL),
	LIST("errors", 8, EtcdAnswer, errors, NULL),
	MEMBER("isLearner", 10, FIELD_BOOL, false, EtcdAnswer, is_learner, NULL),
};
static const Message status_message = MESSAGE(status_fields, EtcdAnswer);

static const Field event_fields[] = {
	MEMBER("type", 1, FIELD_EVENT_TYPE, false, EtcdWatchEvent, is_delete, NULL),
	MEMBER("kv", 2, FIELD_MESSAGE, true, EtcdWatchEvent, kv, &kv_message),
};
static const Message event_message = MESSAGE(event_fields, EtcdWatchEvent);

static const Field frame_fields[] = {
	MEMBER("header", 1, FIELD_MESSAGE, true, EtcdWatchFrame, header, &header_message),
	MEMBER("watch_id", 2, FIELD_INT64, false, EtcdWatchFrame, watch_id, NULL),
	MEMBER("created", 3, FIELD_BOOL, false, EtcdWatchFrame, created, NULL),
	MEMBER("canceled", 4, FIELD_BOOL, false, EtcdWatchFrame, canceled, NULL),
	MEMBER("fragment", 7, FIELD_BOOL, false, EtcdWatchFrame, fragment, NULL),
	MEMBER("cancel_reason", 6, FIELD_TEXT, false, EtcdWatchFrame, message, NULL),
	MEMBER("compact_revision", 5, FIELD_INT64, false, EtcdWatchFrame, compact_revision, NULL),
	LIST("events", 11, EtcdWatchFrame, events, &event_message),
};
const Message etcd_frame_message = MESSAGE(frame_fields, EtcdWatchFrame);

const Message *const etcd_answer_messages[ETCD_NREQUEST_KINDS] = {
	[ETCD_GRANT] = &lease_message,
	[ETCD_KEEPALIVE] = &lease_message,
	[ETCD_REVOKE] = &revoke_message,
	[ETCD_TXN] = &txn_message,
	[ETCD_AUTHENTICATE] = &authenticate_message,
	[ETCD_LIST_MEMBERS] = &members_message,
	[ETCD_TIME_TO_LIVE] = &lease_message,
	[ETCD_STATUS] = &status_message
};

/* ---- memory ---------------------------------------------------------- */

/*
 * The maximum memory of an answer.  Answers of etcd take several times the size of
 * their bytes.  A list of empty messages of two bytes would take 36 times as much.
 */
#define MAX_ANSWER_MEMORY	(32 * 1024 * 1024)

/* A piece of memory; an answer owns a list of them. */
typedef union Chunk
{
	union Chunk *next;
	int64_t		alignment;
} Chunk;

void
etcd_fail_reading(Reader *reader, const char *problem, const char *name)
{
	if (!reader->failed)
		etcd_format_message(reader->problem, "%s: %s", problem, name);
	reader->failed = true;
}

void *
etcd_allocate(Reader *reader, size_t n, size_t size)
{
	Chunk	   *chunk = NULL;

	if (n > (MAX_ANSWER_MEMORY - reader->size) / size)
	{
		etcd_fail_reading(reader, "could not be read", "it takes too much memory");
		return NULL;
	}
	reader->size += n * size;
	if (MAX_ANSWER_MEMORY - reader->size >= sizeof(Chunk))
		chunk = calloc(1, sizeof(Chunk) + n * size);
	if (chunk == NULL)
	{
		etcd_fail_reading(reader, "could not be read", "out of memory");
		return NULL;
	}
	reader->size += sizeof(Chunk);
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

void
etcd_free_answer(EtcdAnswer *answer)
{
	free_memory(&answer->memory);
	answer->results = NULL;
	answer->nresults = 0;
	answer->token = NULL;
	answer->version = NULL;
	answer->errors = NULL;
	answer->nerrors = 0;
	answer->members = NULL;
	answer->nmembers = 0;
}

void
etcd_free_frame(EtcdWatchFrame *frame)
{
	free_memory(&frame->memory);
	frame->events = NULL;
	frame->nevents = 0;
}

/* ---- members --------------------------------------------------------- */

bool
etcd_copy_string(Reader *reader, const char *data, size_t len, const char **string)
{
	char	   *copy;

	if (len > INT_MAX || pg_encoding_verifymbstr(PG_UTF8, data, (int) len) != (int) len)
		return false;
	copy = etcd_allocate(reader, len + 1, 1);
	if (copy == NULL)
		return false;
	memcpy(copy, data, len);
	*string = copy;
	return true;
}

static size_t
item_size(const Field *field)
{
	return field->message != NULL ? field->message->size : sizeof(char *);
}

void
etcd_allocate_list(Reader *reader, const Field *field, void *structure, size_t n)
{
	if (n > INT_MAX)
		etcd_fail_reading(reader, "list is too long", field->name);
	else
		*(void **) ((char *) structure + field->offset) =
			etcd_allocate(reader, n, item_size(field));
}

void *
etcd_next_item(const Field *field, void *structure)
{
	char	   *items = *(void **) ((char *) structure + field->offset);
	int		   *number = (int *) ((char *) structure + field->number_offset);

	return items + (*number)++ * item_size(field);
}

/* ---- the end of a message -------------------------------------------- */

void
etcd_finish_message(Reader *reader, const Message *message, void *structure, uint32_t present)
{
	for (int i = 0; i < message->nfields; i++)
	{
		const Field *field = &message->fields[i];
		bool		is_present = present & (UINT32_C(1) << i);

		if (field->required && !is_present)
			etcd_fail_reading(reader, "member is missing", field->name);
		/* empty bytes are left out, and end with a NUL all the same */
		if (field->type == FIELD_BYTES && !is_present)
			((EtcdBytes *) ((char *) structure + field->offset))->data = "";
		if (message->is_result && is_present)
			((EtcdResult *) structure)->kind = (EtcdOpKind) i;
	}
	/* one bit is set, and no other */
	if (message->is_result && (present == 0 || (present & (present - 1)) != 0))
		etcd_fail_reading(reader, "one member is expected of those like", message->fields[0].name);
}

/* Can it go into a header?  If not, no server would look at what is sent with it. */
static bool
is_token(const char *text)
{
	for (; *text != '\0'; text++)
	{
		if (*text <= ' ' || *text > '~')
			return false;
	}
	return true;
}

void
etcd_finish_answer(Reader *reader, EtcdRequestKind kind, EtcdAnswer *answer)
{
	answer->memory = reader->memory;
	if (kind == ETCD_TXN && answer->header.revision <= 0)
		etcd_fail_reading(reader, "member is missing", "revision");
	if (answer->token != NULL && !is_token(answer->token))
		etcd_fail_reading(reader, "member is not understood", "token");

	/*
	 * TTL is left out in the last second, so this field shows that the
	 * lease exists
	 */
	if (kind == ETCD_TIME_TO_LIVE && answer->ttl_s >= 0 && answer->granted_ttl_s <= 0)
		etcd_fail_reading(reader, "member is missing", "grantedTTL");
	if (reader->failed)
	{
		etcd_free_answer(answer);
		memset(answer, 0, sizeof(*answer));
		answer->outcome = ETCD_GARBAGE;
		memcpy(answer->message, reader->problem, ETCD_MESSAGE_SIZE);
	}
}

void
etcd_finish_frame(Reader *reader, EtcdWatchFrame *frame)
{
	frame->memory = reader->memory;
	frame->lost_token = frame->canceled && strstr(frame->message, "invalid auth token") != NULL;
	if (reader->failed)
	{
		etcd_free_frame(frame);
		memset(frame, 0, sizeof(*frame));
		frame->outcome = ETCD_GARBAGE;
		memcpy(frame->message, reader->problem, ETCD_MESSAGE_SIZE);
	}
}
