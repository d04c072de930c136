/*-------------------------------------------------------------------------
 *
 * etcd_encode.c
 *	  etcd's v3 requests as the JSON of its HTTP gateway.
 *
 * Requests are written as text.  Except for a user name and a password, they
 * contain nothing but names from here, numbers and base64.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <inttypes.h>
#include <limits.h>

#include "common/base64.h"

#include "etcd_api.h"

/* Text that grows.  If memory runs out, nothing more is added. */
typedef struct Text
{
	char	   *data;
	size_t		len;
	size_t		size;
	bool		failed;
} Text;

/* Makes room for that many more bytes and a NUL. */
static bool
reserve(Text *text, size_t more)
{
	if (!text->failed && text->size - text->len <= more)
	{
		size_t		size = 2 * text->size + more + 256;
		char	   *data = realloc(text->data, size);

		if (data == NULL)
			text->failed = true;
		else
		{
			text->data = data;
			text->size = size;
		}
	}
	return !text->failed;
}

static void
put(Text *text, const char *s)
{
	size_t		len = strlen(s);

	if (!reserve(text, len))
		return;
	memcpy(text->data + text->len, s, len + 1);
	text->len += len;
}

/* A comma, unless this is the first in its object or array. */
static void
put_comma(Text *text)
{
	if (text->len > 0 && strchr("{[", text->data[text->len - 1]) == NULL)
		put(text, ",");
}

static void
put_name(Text *text, const char *name)
{
	put_comma(text);
	put(text, "\"");
	put(text, name);
	put(text, "\":");
}

static void
put_text(Text *text, const char *name, const char *value)
{
	put_name(text, name);
	put(text, "\"");
	put(text, value);
	put(text, "\"");
}

/* UTF-8 of any kind.  Only control characters must be escaped. */
static void
put_escaped(Text *text, const char *name, const char *utf8)
{
	put_name(text, name);
	put(text, "\"");
	for (; *utf8 != '\0'; utf8++)
	{
		unsigned char c = (unsigned char) *utf8;
		char		escaped[8];

		if (c < 0x20 || c == '"' || c == '\\')
			snprintf(escaped, sizeof(escaped), "\\u%04x", c);
		else
			snprintf(escaped, sizeof(escaped), "%c", c);
		put(text, escaped);
	}
	put(text, "\"");
}

static void
put_int64(Text *text, const char *name, int64_t value)
{
	char		digits[32];

	snprintf(digits, sizeof(digits), "%" PRId64, value);
	put_text(text, name, digits);
}

static void
put_bytes(Text *text, const char *name, EtcdBytes bytes)
{
	int			room;
	int			n;

	/* the library counts in int, and answers with a third more */
	if (bytes.len > INT_MAX / 2)
	{
		text->failed = true;
		return;
	}
	put_name(text, name);
	put(text, "\"");
	room = pg_b64_enc_len((int) bytes.len);
	if (!reserve(text, room))
		return;
	n = pg_b64_encode((const void *) bytes.data, (int) bytes.len,
					  text->data + text->len, room);
	if (n < 0)
	{
		text->failed = true;
		return;
	}
	text->len += n;
	put(text, "\"");
}

static void
put_compare(Text *text, const EtcdCompare *compare)
{
	put_comma(text);
	put(text, "{");
	put_bytes(text, "key", compare->key);
	put_text(text, "result", "EQUAL");
	switch (compare->target)
	{
		case ETCD_COMPARE_CREATE_REVISION:
			put_text(text, "target", "CREATE");
			put_int64(text, "create_revision", compare->value);
			break;
		case ETCD_COMPARE_MOD_REVISION:
			put_text(text, "target", "MOD");
			put_int64(text, "mod_revision", compare->value);
			break;
	}
	put(text, "}");
}

static void
put_op(Text *text, const EtcdOp *op)
{
	put_comma(text);
	put(text, "{");
	switch (op->kind)
	{
		case ETCD_OP_RANGE:
			put_name(text, "request_range");
			put(text, "{");
			put_bytes(text, "key", op->key);
			if (op->range_end.len > 0)
				put_bytes(text, "range_end", op->range_end);
			if (op->limit != 0)
				put_int64(text, "limit", op->limit);
			if (op->sort != ETCD_SORT_NONE)
			{
				put_text(text, "sort_target", "CREATE");
				put_text(text, "sort_order",
						 op->sort == ETCD_SORT_FIRST_CREATED ? "ASCEND" : "DESCEND");
			}
			if (op->min_create_revision != 0)
				put_int64(text, "min_create_revision", op->min_create_revision);
			if (op->max_create_revision != 0)
				put_int64(text, "max_create_revision", op->max_create_revision);
			if (op->revision != 0)
				put_int64(text, "revision", op->revision);
			break;
		case ETCD_OP_PUT:
			put_name(text, "request_put");
			put(text, "{");
			put_bytes(text, "key", op->key);
			put_bytes(text, "value", op->value);
			if (op->lease != 0)
				put_int64(text, "lease", op->lease);
			break;
		case ETCD_OP_DELETE:
			put_name(text, "request_delete_range");
			put(text, "{");
			put_bytes(text, "key", op->key);
			break;
		case ETCD_OP_EMPTY_TXN:
			put_name(text, "request_txn");
			put(text, "{");
			break;
	}
	put(text, "}}");
}

static void
put_ops(Text *text, const char *name, const EtcdOp *ops, int nops)
{
	if (nops == 0)
		return;
	put_name(text, name);
	put(text, "[");
	for (int i = 0; i < nops; i++)
		put_op(text, &ops[i]);
	put(text, "]");
}

/* The finished text, or NULL if memory was out on the way. */
static char *
finish(Text *text, size_t *len)
{
	if (text->failed)
	{
		free(text->data);
		return NULL;
	}
	*len = text->len;
	return text->data;
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
etcd_request_path(EtcdRequestKind kind)
{
	static const char *const paths[ETCD_NREQUEST_KINDS] = {
		[ETCD_GRANT] = "/v3/lease/grant",
		[ETCD_KEEPALIVE] = "/v3/lease/keepalive",
		[ETCD_REVOKE] = "/v3/lease/revoke",
		[ETCD_TXN] = "/v3/kv/txn",
		[ETCD_AUTHENTICATE] = "/v3/auth/authenticate",
		[ETCD_LIST_MEMBERS] = "/v3/cluster/member/list",
		[ETCD_TIME_TO_LIVE] = "/v3/lease/timetolive",
		[ETCD_STATUS] = "/v3/maintenance/status"
	};

	return paths[kind];
}

char *
etcd_encode_request(const EtcdRequest *request, size_t *len)
{
	Text		text = {0};

	put(&text, "{");
	switch (request->kind)
	{
		case ETCD_GRANT:
			put_int64(&text, "TTL", request->ttl_s);
			put_int64(&text, "ID", request->lease);
			break;
		case ETCD_KEEPALIVE:
		case ETCD_REVOKE:
		case ETCD_TIME_TO_LIVE:
			put_int64(&text, "ID", request->lease);
			break;
		case ETCD_TXN:
			if (request->ncompares > 0)
			{
				put_name(&text, "compare");
				put(&text, "[");
				for (int i = 0; i < request->ncompares; i++)
					put_compare(&text, &request->compares[i]);
				put(&text, "]");
			}
			put_ops(&text, "success", request->success, request->nsuccess);
			put_ops(&text, "failure", request->failure, request->nfailure);
			break;
		case ETCD_AUTHENTICATE:
			put_escaped(&text, "name", request->username);
			put_escaped(&text, "password", request->password);
			break;
		case ETCD_LIST_MEMBERS:
		case ETCD_STATUS:
			break;
	}
	put(&text, "}");
	return finish(&text, len);
}

char *
etcd_encode_watches(const EtcdWatch *watches, int nwatches, size_t *len)
{
	Text		text = {0};

	/* an empty body still is a string */
	put(&text, "");
	for (int i = 0; i < nwatches; i++)
	{
		/* objects one after the other: no comma between them */
		put(&text, "{\"create_request\":{");
		put_bytes(&text, "key", watches[i].key);
		if (watches[i].range_end.len > 0)
			put_bytes(&text, "range_end", watches[i].range_end);
		put_int64(&text, "watch_id", watches[i].watch_id);
		put_int64(&text, "start_revision", watches[i].start_revision);
		if (watches[i].fragment)
			put(&text, ",\"fragment\":true");
		if (watches[i].progress_notify)
			put(&text, ",\"progress_notify\":true");
		put(&text, "}}");
	}
	return finish(&text, len);
}
