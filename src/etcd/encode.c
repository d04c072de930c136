/*-------------------------------------------------------------------------
 *
 * encode.c
 *	  etcd's v3 requests, as the JSON of its HTTP gateway and as protobuf.
 *
 * There is one walk over a request for both: each member is put with its name,
 * which JSON needs, and its number, which protobuf needs.  The numbers are those
 * of rpc.proto.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <inttypes.h>
#include <limits.h>

#include "common/base64.h"

#include "messages.h"

/* Text or bytes that grow.  If memory runs out, nothing more is added. */
typedef struct Writer
{
	EtcdDialect dialect;
	char	   *data;
	size_t		len;
	size_t		size;
	bool		failed;
} Writer;

/* ---- bytes ----------------------------------------------------------- */

/* Makes room for that many more bytes and a NUL. */
static bool
reserve(Writer *writer, size_t more)
{
	if (!writer->failed && writer->size - writer->len <= more)
	{
		size_t		size = 2 * writer->size + more + 256;
		char	   *data = realloc(writer->data, size);

		if (data == NULL)
			writer->failed = true;
		else
		{
			writer->data = data;
			writer->size = size;
		}
	}
	return !writer->failed;
}

static void
put_data(Writer *writer, const char *data, size_t len)
{
	if (!reserve(writer, len))
		return;
	memcpy(writer->data + writer->len, data, len);
	writer->len += len;
}

/* The finished message and a NUL, or NULL if memory was out on the way. */
static char *
finish(Writer *writer, size_t *len)
{
	if (!reserve(writer, 0))
	{
		free(writer->data);
		return NULL;
	}
	writer->data[writer->len] = '\0';
	*len = writer->len;
	return writer->data;
}

/* ---- what one dialect has, and the other one not --------------------- */

static void
put_json(Writer *writer, const char *text)
{
	if (writer->dialect == ETCD_JSON)
		put_data(writer, text, strlen(text));
}

static int
format_varint(char *bytes, uint64_t value)
{
	int			n = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[n++] = (char) (value | 0x80);
	bytes[n++] = (char) value;
	return n;
}

static void
put_varint(Writer *writer, uint64_t value)
{
	char		bytes[MAX_VARINT_SIZE];

	if (writer->dialect == ETCD_GRPC)
		put_data(writer, bytes, format_varint(bytes, value));
}

/* UTF-8 of any kind.  Only control characters must be escaped. */
static void
put_escaped(Writer *writer, const char *utf8)
{
	for (; *utf8 != '\0'; utf8++)
	{
		unsigned char c = (unsigned char) *utf8;
		char		escaped[8];

		if (c < 0x20 || c == '"' || c == '\\')
			snprintf(escaped, sizeof(escaped), "\\u%04x", c);
		else
			snprintf(escaped, sizeof(escaped), "%c", c);
		put_json(writer, escaped);
	}
}

static void
put_base64(Writer *writer, EtcdBytes bytes)
{
	int			room;
	int			n;

	/* the library counts in int, and answers with a third more */
	if (bytes.len > INT_MAX / 2)
	{
		writer->failed = true;
		return;
	}
	room = pg_b64_enc_len((int) bytes.len);
	if (!reserve(writer, room))
		return;
	n = pg_b64_encode((const void *) bytes.data, (int) bytes.len,
					  writer->data + writer->len, room);
	if (n < 0)
		writer->failed = true;
	else
		writer->len += n;
}

/* ---- members --------------------------------------------------------- */

/*
 * What a member begins with: in JSON a comma, unless it is the first one, and
 * its name, which is NULL in a list.
 */
static void
put_key(Writer *writer, const char *name, int number, WireType type)
{
	put_varint(writer, (uint64_t) number << 3 | type);
	if (writer->len > 0 && strchr("{[", writer->data[writer->len - 1]) == NULL)
		put_json(writer, ",");
	if (name != NULL)
	{
		put_json(writer, "\"");
		put_json(writer, name);
		put_json(writer, "\":");
	}
}

/* A number that is put even if it is zero. */
static void
put_number(Writer *writer, const char *name, int number, int64_t value)
{
	char		digits[32];

	snprintf(digits, sizeof(digits), "\"%" PRId64 "\"", value);
	put_key(writer, name, number, WIRE_VARINT);
	put_json(writer, digits);
	put_varint(writer, (uint64_t) value);
}

/* What is zero, false or empty is left out: etcd takes it so. */
static void
put_int64(Writer *writer, const char *name, int number, int64_t value)
{
	if (value != 0)
		put_number(writer, name, number, value);
}

static void
put_bool(Writer *writer, const char *name, int number, bool value)
{
	if (!value)
		return;
	put_key(writer, name, number, WIRE_VARINT);
	put_json(writer, "true");
	put_varint(writer, 1);
}

static void
put_enum(Writer *writer, const char *name, int number, const char *text, int value)
{
	put_key(writer, name, number, WIRE_VARINT);
	put_json(writer, "\"");
	put_json(writer, text);
	put_json(writer, "\"");
	put_varint(writer, value);
}

/* Text is UTF-8; what is not text is base64 in JSON. */
static void
put_string(Writer *writer, const char *name, int number, EtcdBytes bytes, bool is_text)
{
	if (bytes.len == 0)
		return;
	put_key(writer, name, number, WIRE_BYTES);
	put_json(writer, "\"");
	if (writer->dialect == ETCD_GRPC)
	{
		put_varint(writer, bytes.len);
		put_data(writer, bytes.data, bytes.len);
	}
	else if (is_text)
		put_escaped(writer, bytes.data);
	else
		put_base64(writer, bytes);
	put_json(writer, "\"");
}

static void
put_bytes(Writer *writer, const char *name, int number, EtcdBytes bytes)
{
	put_string(writer, name, number, bytes, false);
}

static void
put_text(Writer *writer, const char *name, int number, const char *text)
{
	put_string(writer, name, number, (EtcdBytes) {text, strlen(text)}, true);
}

/* Begins a message inside.  Returns where it starts, for end(). */
static size_t
begin(Writer *writer, const char *name, int number)
{
	put_key(writer, name, number, WIRE_BYTES);
	put_json(writer, "{");
	return writer->len;
}

/* Ends it.  Its length, in protobuf, goes before it, as it was not known. */
static void
end(Writer *writer, size_t start)
{
	char		bytes[MAX_VARINT_SIZE];
	size_t		len = writer->len - start;
	int			n = format_varint(bytes, len);

	put_json(writer, "}");
	if (writer->dialect == ETCD_GRPC && reserve(writer, n))
	{
		memmove(writer->data + start + n, writer->data + start, len);
		memcpy(writer->data + start, bytes, n);
		writer->len += n;
	}
}

static void
begin_list(Writer *writer, const char *name)
{
	if (writer->dialect == ETCD_JSON)
	{
		put_key(writer, name, 0, WIRE_BYTES);
		put_json(writer, "[");
	}
}

/* ---- requests -------------------------------------------------------- */

static void
put_compares(Writer *writer, const EtcdCompare *compares, int ncompares)
{
	if (ncompares == 0)
		return;
	begin_list(writer, "compare");
	for (int i = 0; i < ncompares; i++)
	{
		size_t		start = begin(writer, NULL, 1);

		put_bytes(writer, "key", 3, compares[i].key);
		put_enum(writer, "result", 1, "EQUAL", 0);
		switch (compares[i].target)
		{
			case ETCD_COMPARE_CREATE_REVISION:
				put_enum(writer, "target", 2, "CREATE", 1);
				put_number(writer, "create_revision", 5, compares[i].value);
				break;
			case ETCD_COMPARE_MOD_REVISION:
				put_enum(writer, "target", 2, "MOD", 2);
				put_number(writer, "mod_revision", 6, compares[i].value);
				break;
		}
		end(writer, start);
	}
	put_json(writer, "]");
}

static void
put_range(Writer *writer, const EtcdOp *op)
{
	bool		ascending = op->sort == ETCD_SORT_FIRST_CREATED;

	put_bytes(writer, "key", 1, op->key);
	put_bytes(writer, "range_end", 2, op->range_end);
	put_int64(writer, "limit", 3, op->limit);
	if (op->sort != ETCD_SORT_NONE)
	{
		put_enum(writer, "sort_target", 6, "CREATE", 2);
		put_enum(writer, "sort_order", 5, ascending ? "ASCEND" : "DESCEND", ascending ? 1 : 2);
	}
	put_int64(writer, "min_create_revision", 12, op->min_create_revision);
	put_int64(writer, "max_create_revision", 13, op->max_create_revision);
	put_int64(writer, "revision", 4, op->revision);
}

static void
put_op(Writer *writer, const EtcdOp *op)
{
	static const char *const names[] = {
		[ETCD_OP_RANGE] = "request_range",
		[ETCD_OP_PUT] = "request_put",
		[ETCD_OP_DELETE] = "request_delete_range",
		[ETCD_OP_EMPTY_TXN] = "request_txn"
	};
	/* the kinds have the numbers of RequestOp, from 0 */
	size_t		start = begin(writer, names[op->kind], op->kind + 1);

	switch (op->kind)
	{
		case ETCD_OP_RANGE:
			put_range(writer, op);
			break;
		case ETCD_OP_PUT:
			put_bytes(writer, "key", 1, op->key);
			put_bytes(writer, "value", 2, op->value);
			put_int64(writer, "lease", 3, op->lease);
			break;
		case ETCD_OP_DELETE:
			put_bytes(writer, "key", 1, op->key);
			break;
		case ETCD_OP_EMPTY_TXN:
			break;
	}
	end(writer, start);
}

static void
put_ops(Writer *writer, const char *name, int number, const EtcdOp *ops, int nops)
{
	if (nops == 0)
		return;
	begin_list(writer, name);
	for (int i = 0; i < nops; i++)
	{
		size_t		start = begin(writer, NULL, number);

		put_op(writer, &ops[i]);
		end(writer, start);
	}
	put_json(writer, "]");
}

bool
etcd_writes(const EtcdOp *ops, int nops)
{
	for (int i = 0; i < nops; i++)
	{
		if (ops[i].kind == ETCD_OP_PUT || ops[i].kind == ETCD_OP_DELETE)
			return true;
	}
	return false;
}

const char *
etcd_request_path(EtcdDialect dialect, EtcdRequestKind kind)
{
	static const char *const paths[ETCD_NREQUEST_KINDS][2] = {
		[ETCD_GRANT] = {"/v3/lease/grant", "/etcdserverpb.Lease/LeaseGrant"},
		[ETCD_KEEPALIVE] = {"/v3/lease/keepalive", "/etcdserverpb.Lease/LeaseKeepAlive"},
		[ETCD_REVOKE] = {"/v3/lease/revoke", "/etcdserverpb.Lease/LeaseRevoke"},
		[ETCD_TXN] = {"/v3/kv/txn", "/etcdserverpb.KV/Txn"},
		[ETCD_AUTHENTICATE] = {"/v3/auth/authenticate", "/etcdserverpb.Auth/Authenticate"},
		[ETCD_LIST_MEMBERS] = {"/v3/cluster/member/list", "/etcdserverpb.Cluster/MemberList"},
		[ETCD_TIME_TO_LIVE] = {"/v3/lease/timetolive", "/etcdserverpb.Lease/LeaseTimeToLive"},
		[ETCD_STATUS] = {"/v3/maintenance/status", "/etcdserverpb.Maintenance/Status"}
	};

	return paths[kind][dialect == ETCD_GRPC];
}

const char *
etcd_dialect_name(EtcdDialect dialect)
{
	return dialect == ETCD_GRPC ? "grpc" : dialect == ETCD_JSON ? "json" : "";
}

char *
etcd_encode_request(EtcdDialect dialect, const EtcdRequest *request, size_t *len)
{
	Writer		writer = {.dialect = dialect};

	put_json(&writer, "{");
	switch (request->kind)
	{
		case ETCD_GRANT:
			put_int64(&writer, "TTL", 1, request->ttl_s);
			put_int64(&writer, "ID", 2, request->lease);
			break;
		case ETCD_KEEPALIVE:
		case ETCD_REVOKE:
		case ETCD_TIME_TO_LIVE:
			put_int64(&writer, "ID", 1, request->lease);
			break;
		case ETCD_TXN:
			put_compares(&writer, request->compares, request->ncompares);
			put_ops(&writer, "success", 2, request->success, request->nsuccess);
			put_ops(&writer, "failure", 3, request->failure, request->nfailure);
			break;
		case ETCD_AUTHENTICATE:
			put_text(&writer, "name", 1, request->username);
			put_text(&writer, "password", 2, request->password);
			break;
		case ETCD_LIST_MEMBERS:
		case ETCD_STATUS:
			break;
	}
	put_json(&writer, "}");
	return finish(&writer, len);
}

/* ---- watches --------------------------------------------------------- */

static void
put_create(Writer *writer, const EtcdWatch *watch)
{
	size_t		start = begin(writer, "create_request", 1);

	put_bytes(writer, "key", 1, watch->key);
	put_bytes(writer, "range_end", 2, watch->range_end);
	put_int64(writer, "watch_id", 7, watch->watch_id);
	put_int64(writer, "start_revision", 3, watch->start_revision);
	put_bool(writer, "fragment", 8, watch->fragment);
	put_bool(writer, "progress_notify", 4, watch->progress_notify);
	end(writer, start);
}

char *
etcd_encode_watches(const EtcdWatch *watches, int nwatches, size_t *len)
{
	Writer		writer = {.dialect = ETCD_JSON};

	for (int i = 0; i < nwatches; i++)
	{
		/* objects one after the other: no comma between them */
		put_json(&writer, "{");
		put_create(&writer, &watches[i]);
		put_json(&writer, "}");
	}
	return finish(&writer, len);
}

char *
etcd_proto_encode_create(const EtcdWatch *watch, size_t *len)
{
	Writer		writer = {.dialect = ETCD_GRPC};

	put_create(&writer, watch);
	return finish(&writer, len);
}

char *
etcd_proto_encode_cancel(int64_t watch_id, size_t *len)
{
	Writer		writer = {.dialect = ETCD_GRPC};
	size_t		start = begin(&writer, "cancel_request", 2);

	put_int64(&writer, "watch_id", 1, watch_id);
	end(&writer, start);
	return finish(&writer, len);
}

/* ---- copies ---------------------------------------------------------- */

/* The memory of a copy; NULL in the first pass, which only computes its size. */
typedef struct Arena
{
	char	   *memory;
	size_t		used;
} Arena;

/* Replaces a pointer by one to a copy of its bytes. */
static void
place(Arena *arena, void *pointer, size_t len)
{
	const void **data = pointer;

	if (arena->memory != NULL && len > 0)
		*data = memcpy(arena->memory + arena->used, *data, len);
	arena->used += MAXALIGN(len);
}

static void
place_ops(Arena *arena, const EtcdOp **ops, int nops)
{
	place(arena, ops, nops * sizeof(EtcdOp));
	for (int i = 0; i < nops; i++)
	{
		EtcdOp	   *op = unconstify(EtcdOp *, &(*ops)[i]);

		place(arena, &op->key.data, op->key.len);
		place(arena, &op->range_end.data, op->range_end.len);
		place(arena, &op->value.data, op->value.len);
	}
}

/* Everything that a request points to. */
static void
place_request(Arena *arena, EtcdRequest *request)
{
	place(arena, &request->compares, request->ncompares * sizeof(EtcdCompare));
	for (int i = 0; i < request->ncompares; i++)
	{
		EtcdCompare *compare = unconstify(EtcdCompare *, &request->compares[i]);

		place(arena, &compare->key.data, compare->key.len);
	}
	place_ops(arena, &request->success, request->nsuccess);
	place_ops(arena, &request->failure, request->nfailure);
	if (request->kind == ETCD_AUTHENTICATE)
	{
		place(arena, &request->username, strlen(request->username) + 1);
		place(arena, &request->password, strlen(request->password) + 1);
	}
}

EtcdRequest *
etcd_copy_request(const EtcdRequest *request)
{
	Arena		arena = {NULL, MAXALIGN(sizeof(EtcdRequest))};
	EtcdRequest *copy;

	place_request(&arena, unconstify(EtcdRequest *, request));
	copy = calloc(1, arena.used);
	if (copy == NULL)
		return NULL;
	*copy = *request;
	arena.memory = (char *) copy;
	arena.used = MAXALIGN(sizeof(EtcdRequest));
	place_request(&arena, copy);
	return copy;
}

void
etcd_free_request(EtcdRequest *request)
{
	if (request != NULL && request->kind == ETCD_AUTHENTICATE)
		explicit_bzero(unconstify(char *, request->password), strlen(request->password));
	free(request);
}
