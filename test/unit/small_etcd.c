/*-------------------------------------------------------------------------
 *
 * small_etcd.c
 *	  The keys of an etcd in memory, for the unit tests of the core.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "small_etcd.h"

#define SURVEY_LIMIT	1000		/* the limit of the read that begins a transfer */

SmallEtcd	etcd;

/* ---- requests ------------------------------------------------------------------ */

const char *
describe(const EtcdRequest *request)
{
	if (request->kind == ETCD_GRANT)
		return "grant";
	if (request->kind == ETCD_KEEPALIVE)
		return "keepalive";
	if (request->kind == ETCD_REVOKE)
		return "revoke";
	/* The other kinds belong to the transport. */
	assert_int_equal(request->kind, ETCD_TXN);
	if (request->success[0].kind == ETCD_OP_RANGE)
		return request->success[0].limit == SURVEY_LIMIT ? "survey" : "read";
	if (request->success[0].kind == ETCD_OP_DELETE)
		return request->ncompares > 1 ? "transfer" : "delete";
	return request->compares[0].value == 0 ? "enter" : "put";
}

typedef struct Room
{
	char	   *next;
	char	   *end;
} Room;

static void *
keep(Room *room, const void *data, size_t len)
{
	char	   *copy = room->next;

	assert_true(len <= (size_t) (room->end - room->next));
	if (len > 0)
		memcpy(copy, data, len);
	room->next += len;
	return copy;
}

static void
keep_bytes(Room *room, EtcdBytes *b)
{
	b->data = keep(room, b->data, b->len);
}

static void
keep_bytes_of_ops(Room *room, EtcdOp *ops, int n)
{
	for (int i = 0; i < n; i++)
	{
		keep_bytes(room, &ops[i].key);
		keep_bytes(room, &ops[i].range_end);
		keep_bytes(room, &ops[i].value);
	}
}

EtcdRequest
keep_request(void *room, size_t size, const EtcdRequest *request)
{
	Room		r = {room, (char *) room + size};
	EtcdRequest copy = *request;
	EtcdCompare *compares = keep(&r, request->compares, request->ncompares * sizeof(EtcdCompare));
	EtcdOp	   *success = keep(&r, request->success, request->nsuccess * sizeof(EtcdOp));
	EtcdOp	   *failure = keep(&r, request->failure, request->nfailure * sizeof(EtcdOp));

	for (int i = 0; i < request->ncompares; i++)
		keep_bytes(&r, &compares[i].key);
	keep_bytes_of_ops(&r, success, request->nsuccess);
	keep_bytes_of_ops(&r, failure, request->nfailure);
	copy.compares = compares;
	copy.success = success;
	copy.failure = failure;
	return copy;
}

/* ---- keys ---------------------------------------------------------------------- */

EtcdBytes
bytes(const char *s)
{
	return (EtcdBytes) {s, strlen(s)};
}

EtcdHeader
etcd_header(void)
{
	return (EtcdHeader) {.cluster_id = etcd.cluster_id, .revision = etcd.revision, .raft_term = etcd.term};
}

static int
compare_bytes(EtcdBytes a, EtcdBytes b)
{
	int			order = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);

	return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

bool
in_range(const char *key, EtcdBytes from, EtcdBytes end)
{
	int			order = compare_bytes(bytes(key), from);

	if (end.len == 0)
		return order == 0;
	return order >= 0 && compare_bytes(bytes(key), end) < 0;
}

Key *
find_key(EtcdBytes name)
{
	for (int i = 0; i < etcd.nkeys; i++)
	{
		if (compare_bytes(bytes(etcd.keys[i].key), name) == 0)
			return &etcd.keys[i];
	}
	return NULL;
}

bool
holds(const EtcdCompare *compare)
{
	const Key  *key = find_key(compare->key);

	if (key == NULL)
		return compare->value == 0;
	return compare->value == (compare->target == ETCD_COMPARE_CREATE_REVISION ?
							  key->create_revision : key->mod_revision);
}

Key *
write_key(EtcdBytes name, EtcdBytes value, int64_t lease)
{
	Key		   *key = find_key(name);

	if (key == NULL)
	{
		assert_true(etcd.nkeys < MAX_KEYS);
		key = &etcd.keys[etcd.nkeys++];
		memset(key, 0, sizeof(*key));
		memcpy(key->key, name.data, name.len);
		key->create_revision = etcd.revision;
	}
	memset(key->value, 0, sizeof(key->value));
	memcpy(key->value, value.data, value.len);
	key->mod_revision = etcd.revision;
	key->version++;
	key->lease = lease;
	return key;
}

void
remove_key(Key *key)
{
	memmove(key, key + 1, (etcd.keys + --etcd.nkeys - key) * sizeof(Key));
}

static EtcdKeyValue
kv_of(const Key *key)
{
	return (EtcdKeyValue) {bytes(key->key), bytes(key->value), key->create_revision,
		key->mod_revision, key->version, key->lease};
}

int
read_keys(const EtcdOp *op, Key *copies, EtcdKeyValue *kvs, int n)
{
	int			nread = 0;

	if (op->limit != 0 && op->limit < n)
		n = op->limit;
	for (int i = 0; i < etcd.nkeys && nread < n; i++)
	{
		const Key  *key = &etcd.keys[op->sort == ETCD_SORT_LAST_CREATED ? etcd.nkeys - 1 - i : i];

		if (!in_range(key->key, op->key, op->range_end) ||
			key->create_revision < op->min_create_revision ||
			(op->max_create_revision != 0 && key->create_revision > op->max_create_revision))
			continue;
		copies[nread] = *key;
		kvs[nread] = kv_of(&copies[nread]);
		nread++;
	}
	return nread;
}

EtcdWatchEvent
event_of(const Key *key, bool is_delete, int64_t revision)
{
	EtcdWatchEvent event = {.is_delete = is_delete};

	if (is_delete)
		event.kv.key = bytes(key->key);
	else
		event.kv = kv_of(key);
	event.kv.mod_revision = revision;
	return event;
}
