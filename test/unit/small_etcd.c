/*-------------------------------------------------------------------------
 *
 * small_etcd.c
 *	  The simulator's store as an etcd of one member that applies at once.
 *
 *-------------------------------------------------------------------------
 */
#include "small_etcd.h"
#include "unit.h"

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
	if (request->kind == ETCD_TIME_TO_LIVE)
		return "time to live";
	/* The other kinds belong to the transport. */
	assert_int_equal(request->kind, ETCD_TXN);
	if (request->success[0].kind == ETCD_OP_RANGE)
		return request->success[0].limit == SURVEY_LIMIT ? "survey" : "read";
	if (request->success[0].kind == ETCD_OP_DELETE)
		return request->ncompares > 1 ? "transfer" : "delete";
	if (request->ncompares == 0)
		return "write without a guard";
	return request->compares[0].value == 0 ? "enter" : "put";
}

static EtcdBytes
keep_bytes(EtcdBytes b)
{
	return (EtcdBytes) {run_copy(b.data, b.len), b.len};
}

static EtcdOp *
keep_ops(const EtcdOp *ops, int n)
{
	EtcdOp	   *copies = run_alloc((n + 1) * sizeof(EtcdOp));

	for (int i = 0; i < n; i++)
	{
		copies[i] = ops[i];
		copies[i].key = keep_bytes(ops[i].key);
		copies[i].range_end = keep_bytes(ops[i].range_end);
		copies[i].value = keep_bytes(ops[i].value);
	}
	return copies;
}

EtcdRequest
keep_request(const EtcdRequest *request)
{
	EtcdRequest copy = *request;
	EtcdCompare *compares = run_alloc((request->ncompares + 1) * sizeof(EtcdCompare));

	for (int i = 0; i < request->ncompares; i++)
	{
		compares[i] = request->compares[i];
		compares[i].key = keep_bytes(compares[i].key);
	}
	copy.compares = compares;
	copy.success = keep_ops(request->success, request->nsuccess);
	copy.failure = keep_ops(request->failure, request->nfailure);
	return copy;
}

/* ---- etcd ----------------------------------------------------------------------- */

void
small_etcd_begin(uint64_t cluster_id, uint64_t term, int64_t revision)
{
	memset(&etcd, 0, sizeof(etcd));
	etcd.cluster_id = cluster_id;
	etcd.term = term;
	store_reset();
	store_changed = NULL;
	set_revision(revision);
}

void
small_etcd_end(void)
{
	run_free_all();
}

EtcdBytes
bytes(const char *s)
{
	return (EtcdBytes) {s, strlen(s)};
}

EtcdHeader
etcd_header(void)
{
	return (EtcdHeader) {.cluster_id = etcd.cluster_id, .revision = store_revision(), .raft_term = etcd.term};
}

void
set_revision(int64_t revision)
{
	store_set_revision(etcd.term, revision);
}

void
lose_all(int64_t revision)
{
	store_restore(0);
	set_revision(revision);
}

int
count_keys(void)
{
	return store_live_count();
}

const Version *
key_at(int i)
{
	assert_true(i < store_live_count());
	return store_live(i);
}

const char *
name_of(const Version *key)
{
	return store_key(key->key)->name.data;
}

const char *
value_of(const Version *key)
{
	return key->value.data;
}

int
count_leases(void)
{
	int			n = 0;

	for (int i = 0; i < store_leases(); i++)
		n += store_lease(i)->revoked_index == 0;
	return n;
}

static void
write_request(const EtcdRequest *request)
{
	EtcdAnswer	answer;

	store_write(etcd.term, request, BY_OPERATOR, &answer);
	assert_int_equal(answer.outcome, ETCD_ANSWERED);
}

void
grant_lease(int64_t at_ns, int64_t id, int64_t ttl_s)
{
	EtcdRequest request = {.kind = ETCD_GRANT, .lease = id, .ttl_s = ttl_s};

	write_request(&request);
	store_find_lease(id)->expires_ns[0] = at_ns + ttl_s * SECOND;
}

void
end_lease(int64_t id)
{
	EtcdRequest request = {.kind = ETCD_REVOKE, .lease = id};

	write_request(&request);
}

void
expire_leases(int64_t at_ns)
{
	for (int i = 0; i < store_leases(); i++)
	{
		if (store_lease(i)->revoked_index == 0 && store_lease(i)->expires_ns[0] <= at_ns)
			end_lease(store_lease(i)->id);
	}
}

void
write_ops(const EtcdOp *ops, int n)
{
	EtcdRequest request = {.kind = ETCD_TXN, .success = ops, .nsuccess = n};

	write_request(&request);
}

void
put_key(EtcdBytes name, EtcdBytes value, int64_t lease)
{
	EtcdOp		op = {.kind = ETCD_OP_PUT, .key = name, .value = value, .lease = lease};

	write_ops(&op, 1);
}

void
delete_key(const Version *key)
{
	EtcdOp		op = {.kind = ETCD_OP_DELETE};

	assert_non_null(key);
	op.key = store_key(key->key)->name;
	write_ops(&op, 1);
}

EtcdWatchEvent
event_of(const Version *key, bool is_delete, int64_t revision)
{
	EtcdWatchEvent event = {.is_delete = is_delete, .kv = {.key = store_key(key->key)->name}};

	if (!is_delete)
		store_set_kv(&event.kv, key);
	event.kv.mod_revision = revision;
	return event;
}

/* ---- what it refuses ------------------------------------------------------------------ */

static bool
is_denied_key(EtcdBytes key)
{
	return etcd.denied && key.len >= strlen(etcd.denied) &&
		memcmp(key.data, etcd.denied, strlen(etcd.denied)) == 0;
}

static bool
is_denied_lease(int64_t id)
{
	for (int i = 0; i < store_live_count(); i++)
	{
		if (store_live(i)->lease == id && is_denied_key(store_key(store_live(i)->key)->name))
			return true;
	}
	return false;
}

static bool
is_denied(const EtcdOp *ops, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (is_denied_key(ops[i].key) && !(etcd.denies_writes_only && ops[i].kind == ETCD_OP_RANGE))
			return true;
		if ((etcd.denies_leases || etcd.denies_new_keys) && ops[i].kind == ETCD_OP_PUT && is_denied_lease(ops[i].lease))
			return true;
	}
	return false;
}

static void
refuse(EtcdAnswer *answer, int code, const char *message)
{
	*answer = (EtcdAnswer) {.outcome = ETCD_REFUSED, .code = code};
	strcpy(answer->message, message);
}

/* Refuses a request with the error that the test wants; false: it does not. */
static bool
refuses(const EtcdRequest *request, EtcdAnswer *answer)
{
	bool		denied = false;

	switch (request->kind)
	{
		case ETCD_GRANT:
			if (!etcd.is_full || store_find_lease(request->lease) != NULL)
				return false;
			refuse(answer, ETCD_CODE_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded");
			return true;
		case ETCD_KEEPALIVE:
		case ETCD_TIME_TO_LIVE:
			denied = etcd.denies_leases && is_denied_lease(request->lease);
			break;
		case ETCD_REVOKE:
			denied = store_find_lease(request->lease) != NULL && is_denied_lease(request->lease);
			break;
		case ETCD_TXN:
			if (etcd.is_busy)
			{
				refuse(answer, ETCD_CODE_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
				return true;
			}
			denied = is_denied(request->success, request->nsuccess) || is_denied(request->failure, request->nfailure);
			break;
		default:
			fail();
	}
	if (denied)
		refuse(answer, ETCD_CODE_PERMISSION_DENIED, "etcdserver: permission denied");
	return denied;
}

void
small_etcd_execute(int64_t at_ns, const EtcdRequest *request, EtcdAnswer *answer)
{
	EtcdRequest granted = *request;
	StoreLease *lease;

	if (refuses(request, answer))
		return;
	if (request->kind == ETCD_GRANT && etcd.most_ttl_s != 0 && granted.ttl_s > etcd.most_ttl_s)
		granted.ttl_s = etcd.most_ttl_s;
	if (request->kind == ETCD_TIME_TO_LIVE)
	{
		lease = store_find_lease(request->lease);
		*answer = (EtcdAnswer) {.outcome = ETCD_ANSWERED, .lease = request->lease, .ttl_s = -1};
		if (lease != NULL)
		{
			answer->ttl_s = (lease->expires_ns[0] - at_ns) / SECOND;
			answer->granted_ttl_s = lease->ttl_s;
		}
		answer->header = etcd_header();
		return;
	}
	if (request->kind != ETCD_KEEPALIVE)
	{
		store_write(etcd.term, &granted, BY_CLIENT, answer);
		if (answer->outcome != ETCD_ANSWERED)
			return;
	}
	else
		*answer = (EtcdAnswer) {.outcome = ETCD_ANSWERED, .lease = request->lease};
	lease = store_find_lease(request->lease);
	if (lease != NULL && !(request->kind == ETCD_KEEPALIVE && etcd.is_late))
	{
		lease->expires_ns[0] = at_ns + lease->ttl_s * SECOND;
		answer->ttl_s = lease->ttl_s;
	}
	answer->header = etcd_header();
}
