/*-------------------------------------------------------------------------
 *
 * election_fuzzer.c
 *	  election.c against an etcd that answers whatever it likes.
 *
 * The input is a program: its bytes say what happens next to one instance,
 * and how.  Behind it stands a small etcd that does what is asked; so states
 * are reached that need dozens of good answers in a row.  Any answer may be
 * lost, refused, late, or have its parts changed on the way, watches tell
 * what they like, and commands and settings come at any time.  Messages are
 * well-formed: etcd_api.c lets no other pass.
 *
 * What is checked does not rest on a good etcd:
 *
 * - no deadline is published beyond what the first send of the lease's grant
 *   or the send of an answered keepalive gives, less the margin;
 * - leadership is withdrawn before a delete of its key, or a revocation of
 *   its lease, is sent; and a key whose delete was sent never leads again;
 * - every txn holds a range, every write of an own key is guarded;
 * - a command is answered once, a request sent with an id of its own;
 * - requests are bounded: by time where nobody answers, by what comes from
 *   etcd and the operator otherwise; the core never asks to be called again
 *   and again at one time.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "election.h"
#include "fuzz.h"

#define MS			INT64_C(1000000)
#define SECOND		(1000 * MS)

#define MAX_SLOTS		3
#define MAX_KEYS		32
#define MAX_LEASES		4096
#define MAX_REQUESTS	256
#define MAX_STEPS		2000
#define MAX_RESULTS		(3 * ELECTION_MAX_ELECTIONS)
#define MAX_FINAL		1024
#define MAX_TICKETS		64

/* The time that a request and its answer take at the least. */
#define ROUND_TRIP_NS	MS

/*
 * Requests that may be sent for a second that passes, with one endpoint more,
 * and for each thing that etcd or the operator tells; and at the beginning.
 * A beat is two requests, tried again at once at each other endpoint.
 */
#define PER_SECOND		60
#define PER_ENDPOINT	20
#define PER_INPUT		(4 + 3 * MAX_SLOTS)
#define AT_FIRST		100

/* How often tick() may ask to be called again without time having passed. */
#define MAX_TICKS_AT_ONCE	8

typedef struct Key
{
	char		key[ELECTION_KEY_SIZE];
	char		value[ELECTION_VALUE_SIZE];
	int64_t		create_revision;	/* 0: does not stand */
	int64_t		mod_revision;
	int64_t		lease;
} Key;

typedef struct Request
{
	uint64_t	id;				/* 0: free */
	int64_t		sent_ns;
	bool		executed;
	EtcdRequestKind kind;
	int64_t		lease;
	int64_t		ttl_s;
	int			ncompares;
	EtcdCompare compares[2 * ELECTION_MAX_ELECTIONS];
	int			nsuccess;
	EtcdOp		success[MAX_RESULTS];
	int			nfailure;
	EtcdOp		failure[ELECTION_MAX_ELECTIONS];
	char		bytes[24 * 1024];
	size_t		nbytes;
	/* its answer, as of when it was executed */
	EtcdAnswer	answer;
	EtcdResult	results[MAX_RESULTS + 1];
	EtcdKeyValue kvs[MAX_RESULTS + 1];
	Key			copies[MAX_RESULTS];
} Request;

/* What is known of a lease from what was sent and answered. */
typedef struct KnownLease
{
	int64_t		id;
	int64_t		ttl_ns;
	int64_t		since_ns;		/* first send of the grant, or a keepalive's */
	int64_t		revoked;		/* a revocation was sent */
} KnownLease;

typedef struct FinalKey
{
	char		election[ELECTION_NAME_SIZE];
	int64_t		create_revision;
} FinalKey;

/* Everything of one run. */
static struct
{
	const uint8_t *data;
	size_t		left;
	uint64_t	random;

	ElectionCore *core;
	ElectionConfig config;
	ElectionView views[MAX_SLOTS];
	int64_t		now;
	bool		stopped;
	bool		inside;			/* a callback may be called */
	bool		configuring;

	uint64_t	cluster_id;
	uint64_t	term;
	int64_t		revision;
	Key			keys[MAX_KEYS];

	Request		requests[MAX_REQUESTS];
	uint64_t	last_id;
	int64_t		credit;			/* requests that may still be sent, in ns */

	KnownLease	leases[MAX_LEASES];
	int			nleases;
	FinalKey	final[MAX_FINAL];
	int			nfinal;

	EtcdWatch	watches[3 * ELECTION_MAX_ELECTIONS];
	char		watched[3 * ELECTION_MAX_ELECTIONS][ELECTION_KEY_SIZE];
	int			nwatches;

	bool		open[MAX_TICKETS];	/* commands without a reply */
	uint64_t	next_ticket;
}			run;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the input --------------------------------------------------------- */

static uint8_t
take(void)
{
	if (run.left == 0)
		return 0;
	run.left--;
	return *run.data++;
}

static int
choose(int n)
{
	return take() % n;
}

/* Numbers that mean something somewhere, and any others. */
static int64_t
take_number(int64_t near)
{
	int64_t		n = 0;

	switch (choose(8))
	{
		case 0:
			return 0;
		case 1:
			return -1;
		case 2:
			return INT64_MAX;
		case 3:
			return INT64_MIN;
		case 4:
			return (int64_t) ((uint64_t) near + 1);
		case 5:
			return (int64_t) ((uint64_t) near - 1);
		case 6:
			return (int64_t) ((uint64_t) near + (uint64_t) (int8_t) take());
		default:
			for (int i = 0; i < 8; i++)
				n = (int64_t) ((uint64_t) n << 8 | take());
			return n;
	}
}

/* ---- what may be sent --------------------------------------------------- */

/* Credit is counted in billionths of a request, so that time gives it. */
static void
earn(int64_t requests)
{
	run.credit += requests * SECOND;
}

static void
pass_time(int64_t ns)
{
	int64_t		most = AT_FIRST * SECOND;

	run.now += ns;
	if (ns > 10 * SECOND)
		ns = 10 * SECOND;
	run.credit += ns * (PER_SECOND + PER_ENDPOINT * run.config.nendpoints);
	/* calm times are no licence for a storm */
	if (run.credit > most)
		run.credit = most;
}

/* ---- leases ---------------------------------------------------------------- */

static KnownLease *
find_lease(int64_t id)
{
	for (int i = run.nleases - 1; i >= 0; i--)
	{
		if (run.leases[i].id == id)
			return &run.leases[i];
	}
	return NULL;
}

static int64_t
latest_deadline(const KnownLease *lease)
{
	int64_t		margin = run.config.safety_margin_ms * MS;

	if (run.config.safety_margin_ms < 0)
		margin = lease->ttl_ns / 10;
	else if (margin > lease->ttl_ns / 2)
		margin = lease->ttl_ns / 2;
	return lease->since_ns + lease->ttl_ns - margin;
}

/* What an answer that the core is about to be given says of a lease. */
static void
learn_lease(const Request *r, const EtcdAnswer *answer)
{
	KnownLease *lease = find_lease(r->lease);

	if (answer->outcome != ETCD_ANSWERED || answer->lease != r->lease || lease == NULL)
		return;
	if (r->kind == ETCD_GRANT && answer->ttl_s > 0 && answer->ttl_s < lease->ttl_ns / SECOND)
		lease->ttl_ns = answer->ttl_s * SECOND;
	if (r->kind == ETCD_KEEPALIVE && answer->ttl_s > 0 && r->sent_ns > lease->since_ns)
		lease->since_ns = r->sent_ns;
}

/* ---- the way out of the core -------------------------------------------------- */

static EtcdBytes
keep(Request *r, EtcdBytes b)
{
	EtcdBytes	copy = {r->bytes + r->nbytes, b.len};

	CHECK(b.len == 0 || b.data != NULL);
	CHECK(r->nbytes + b.len < sizeof(r->bytes));
	if (b.len > 0)
		memcpy(r->bytes + r->nbytes, b.data, b.len);
	r->nbytes += b.len;
	return copy;
}

static void
keep_ops(Request *r, EtcdOp *copies, const EtcdOp *ops, int n)
{
	for (int i = 0; i < n; i++)
	{
		copies[i] = ops[i];
		copies[i].key = keep(r, ops[i].key);
		copies[i].range_end = keep(r, ops[i].range_end);
		copies[i].value = keep(r, ops[i].value);
		CHECK(copies[i].key.len > 0);
	}
}

/* Does the key lie below the election's name? */
static bool
is_below(EtcdBytes key, const char *name)
{
	size_t		len = strlen(name);

	return key.len > len + 1 && memcmp(key.data, name, len) == 0 && key.data[len] == '/';
}

/* A delete is guarded, comes after the withdrawal, and is remembered. */
static void
check_delete(const Request *r)
{
	CHECK(r->ncompares == 1 && r->nsuccess == 1);
	CHECK(r->compares[0].target == ETCD_COMPARE_CREATE_REVISION && r->compares[0].value != 0);
	for (int i = 0; i < MAX_SLOTS; i++)
	{
		const ElectionView *view = &run.views[i];

		if (view->name[0] == '\0' || !is_below(r->success[0].key, view->name))
			continue;
		CHECK(view->deadline_ns == 0 && view->token == 0);
		if (run.nfinal < MAX_FINAL)
		{
			FinalKey   *f = &run.final[run.nfinal++];

			memcpy(f->election, view->name, sizeof(f->election));
			f->create_revision = r->compares[0].value;
		}
	}
}

/* Each put is of a key that must be new, or as it was known in both ways. */
static void
check_put(const Request *r, const EtcdOp *op)
{
	bool		by_create = false;
	bool		by_mod = false;
	bool		is_new = false;

	for (int i = 0; i < r->ncompares; i++)
	{
		const EtcdCompare *c = &r->compares[i];

		if (c->key.len != op->key.len || memcmp(c->key.data, op->key.data, op->key.len) != 0)
			continue;
		by_create |= c->target == ETCD_COMPARE_CREATE_REVISION && c->value != 0;
		by_mod |= c->target == ETCD_COMPARE_MOD_REVISION;
		is_new |= c->target == ETCD_COMPARE_CREATE_REVISION && c->value == 0;
	}
	CHECK(is_new || (by_create && by_mod));
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Request    *r = NULL;
	bool		has_range = false;

	(void) ctx;
	CHECK(run.inside);
	CHECK(id > run.last_id);
	run.last_id = id;
	for (int i = 0; i < MAX_REQUESTS && r == NULL; i++)
	{
		if (run.requests[i].id == 0)
			r = &run.requests[i];
	}
	CHECK(r != NULL);
	if (!run.stopped)
	{
		run.credit -= SECOND;
		CHECK(run.credit >= 0);	/* a storm */
	}

	memset(r, 0, offsetof(Request, compares));
	r->nbytes = 0;
	r->id = id;
	r->sent_ns = run.now;
	r->kind = request->kind;
	r->lease = request->lease;
	r->ttl_s = request->ttl_s;
	CHECK(request->ncompares <= (int) lengthof(r->compares));
	CHECK(request->nsuccess <= (int) lengthof(r->success));
	CHECK(request->nfailure <= (int) lengthof(r->failure));
	r->ncompares = request->ncompares;
	for (int i = 0; i < r->ncompares; i++)
	{
		r->compares[i] = request->compares[i];
		r->compares[i].key = keep(r, request->compares[i].key);
	}
	r->nsuccess = request->nsuccess;
	r->nfailure = request->nfailure;
	keep_ops(r, r->success, request->success, request->nsuccess);
	keep_ops(r, r->failure, request->failure, request->nfailure);

	switch (r->kind)
	{
		case ETCD_GRANT:
			CHECK(r->lease != 0 && r->ttl_s >= ELECTION_MIN_TTL_S && r->ttl_s <= ELECTION_MAX_TTL_S);
			if (find_lease(r->lease) == NULL)
			{
				KnownLease *lease = &run.leases[run.nleases++];

				CHECK(run.nleases < MAX_LEASES);
				lease->id = r->lease;
				lease->since_ns = run.now;
				lease->ttl_ns = r->ttl_s * SECOND;
				lease->revoked = false;
			}
			break;
		case ETCD_KEEPALIVE:
			CHECK(find_lease(r->lease) != NULL);
			CHECK(!find_lease(r->lease)->revoked);
			break;
		case ETCD_REVOKE:
			CHECK(find_lease(r->lease) != NULL);
			find_lease(r->lease)->revoked = true;
			for (int i = 0; i < MAX_SLOTS; i++)
				CHECK(run.views[i].deadline_ns == 0 || run.views[i].lease != r->lease);
			break;
		case ETCD_TXN:
			CHECK(r->nsuccess > 0 && r->nsuccess <= 128);
			for (int i = 0; i < r->nsuccess; i++)
			{
				has_range |= r->success[i].kind == ETCD_OP_RANGE;
				if (r->success[i].kind == ETCD_OP_DELETE)
					check_delete(r);
				if (r->success[i].kind == ETCD_OP_PUT)
					check_put(r, &r->success[i]);
			}
			/* without one, etcd would not ask its quorum if nothing is written */
			for (int i = 0; i < r->nfailure; i++)
				has_range |= r->failure[i].kind == ETCD_OP_RANGE;
			CHECK(has_range);
			break;
	}
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	(void) ctx;
	CHECK(run.inside);
	CHECK(nwatches >= 0 && nwatches <= (int) lengthof(run.watches));
	run.nwatches = nwatches;
	for (int i = 0; i < nwatches; i++)
	{
		CHECK(watches[i].watch_id == i + 1);
		CHECK(watches[i].key.len > 0 && watches[i].key.len < ELECTION_KEY_SIZE);
		/* 0 would mean: from now on */
		CHECK(watches[i].start_revision != 0);
		run.watches[i] = watches[i];
		memcpy(run.watched[i], watches[i].key.data, watches[i].key.len);
		run.watches[i].key.data = run.watched[i];
	}
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	(void) ctx;
	(void) endpoint;
	CHECK(run.inside);
	fuzz_check_message(why);
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	const KnownLease *lease;

	(void) ctx;
	CHECK(run.inside);
	CHECK(slot >= 0 && slot < MAX_SLOTS);
	CHECK(memchr(view->name, '\0', sizeof(view->name)) != NULL);
	CHECK(memchr(view->leader, '\0', sizeof(view->leader)) != NULL);
	CHECK(memchr(view->key, '\0', sizeof(view->key)) != NULL);
	CHECK((view->state == ELECTION_UNUSED) == (view->name[0] == '\0'));
	CHECK((view->state == ELECTION_LEADING) == (view->role == ELECTION_LEADER));
	CHECK((view->deadline_ns != 0) == (view->state == ELECTION_LEADING));
	CHECK(view->token == (view->state == ELECTION_LEADING ? view->create_revision : 0));
	CHECK((view->key[0] != '\0') == (view->create_revision != 0));
	(void) election_state_name(view->state);

	if (view->deadline_ns != 0)
	{
		CHECK(!run.stopped);

		/* that of the lease on which the key was seen last */
		lease = find_lease(view->lease);
		CHECK(lease != NULL && !lease->revoked);
		CHECK(view->deadline_ns <= latest_deadline(lease));

		/* Nothing begins, or is extended, that has passed already; unless the margin is another. */
		CHECK(view->deadline_ns > run.now || run.configuring ||
			  (run.views[slot].deadline_ns != 0 &&
			   view->deadline_ns <= run.views[slot].deadline_ns));

		for (int i = 0; i < run.nfinal; i++)
			CHECK(run.final[i].create_revision != view->token ||
				  strcmp(run.final[i].election, view->name) != 0);
	}
	run.views[slot] = *view;
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
	(void) ctx;
	CHECK(run.inside);
	CHECK((event->election != NULL) == (event->kind < ELECTION_EVENT_CONNECTED));
	CHECK(event->reason >= ELECTION_NO_REASON && event->reason < ELECTION_NREASONS);
	CHECK(event->kind != ELECTION_EVENT_ELECTED || event->leader != NULL);
	CHECK(event->kind != ELECTION_EVENT_UNELECTED || event->reason != ELECTION_NO_REASON);
	(void) election_event_name(event->kind);
	if (event->leader != NULL)
		CHECK(strlen(event->leader) < ELECTION_VALUE_SIZE);
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply reply)
{
	(void) ctx;
	(void) reply;
	CHECK(run.inside);
	CHECK(ticket > 0 && ticket < MAX_TICKETS);
	CHECK(run.open[ticket]);
	run.open[ticket] = false;
}

static uint64_t
port_random(void *ctx)
{
	/* splitmix64 */
	uint64_t	z = (run.random += UINT64_C(0x9E3779B97F4A7C15));

	(void) ctx;
	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* ---- etcd ------------------------------------------------------------------------ */

static Key *
find_key(EtcdBytes key)
{
	for (int i = 0; i < MAX_KEYS; i++)
	{
		if (run.keys[i].create_revision != 0 && strlen(run.keys[i].key) == key.len &&
			memcmp(run.keys[i].key, key.data, key.len) == 0)
			return &run.keys[i];
	}
	return NULL;
}

static void
put_key(EtcdBytes key, EtcdBytes value, int64_t lease)
{
	Key		   *k = find_key(key);
	size_t		len = value.len < ELECTION_VALUE_SIZE ? value.len : ELECTION_VALUE_SIZE - 1;

	for (int i = 0; i < MAX_KEYS && k == NULL; i++)
	{
		if (run.keys[i].create_revision == 0)
		{
			k = &run.keys[i];
			memset(k, 0, sizeof(*k));
			memcpy(k->key, key.data, key.len);
			k->create_revision = run.revision;
		}
	}
	if (k == NULL)
		return;
	memset(k->value, 0, sizeof(k->value));
	if (len > 0)
		memcpy(k->value, value.data, len);
	k->mod_revision = run.revision;
	k->lease = lease;
}

static void
range_keys(Request *r, const EtcdOp *op, int i)
{
	const Key  *found = NULL;

	for (int j = 0; j < MAX_KEYS; j++)
	{
		const Key  *k = &run.keys[j];
		size_t		len = strlen(k->key);
		int64_t		c = k->create_revision;

		if (c == 0 || (op->max_create_revision != 0 && c > op->max_create_revision))
			continue;
		if (op->range_end.len == 0 ?
			len != op->key.len || memcmp(k->key, op->key.data, len) != 0 :
			len <= op->key.len || memcmp(k->key, op->key.data, op->key.len) != 0)
			continue;
		if (found == NULL ||
			(op->sort == ETCD_SORT_LAST_CREATED ? c > found->create_revision : c < found->create_revision))
			found = k;
	}
	r->results[i].kind = ETCD_OP_RANGE;
	if (found == NULL)
		return;
	r->copies[i] = *found;
	r->kvs[i].key.data = r->copies[i].key;
	r->kvs[i].key.len = strlen(r->copies[i].key);
	/* an empty value is left out of the JSON */
	r->kvs[i].value.len = strlen(r->copies[i].value);
	r->kvs[i].value.data = r->kvs[i].value.len > 0 ? r->copies[i].value : NULL;
	r->kvs[i].create_revision = found->create_revision;
	r->kvs[i].mod_revision = found->mod_revision;
	r->kvs[i].lease = found->lease;
	r->results[i].kvs = &r->kvs[i];
	r->results[i].nkvs = 1;
}

/* Does what is asked, and keeps the answer. */
static void
execute(Request *r)
{
	EtcdAnswer *a = &r->answer;
	const EtcdOp *ops = r->success;
	int			n = r->nsuccess;
	bool		writes = false;

	if (r->executed)
		return;
	r->executed = true;
	memset(a, 0, sizeof(*a));
	memset(r->results, 0, sizeof(r->results));
	memset(r->kvs, 0, sizeof(r->kvs));
	a->lease = r->lease;
	a->ttl_s = r->ttl_s;
	if (r->kind == ETCD_KEEPALIVE)
		a->ttl_s = find_lease(r->lease)->ttl_ns / SECOND;
	if (r->kind == ETCD_REVOKE)
	{
		for (int i = 0; i < MAX_KEYS; i++)
		{
			if (run.keys[i].lease == r->lease)
				run.keys[i].create_revision = 0;
		}
		run.revision++;
	}
	if (r->kind == ETCD_TXN)
	{
		a->succeeded = true;
		for (int i = 0; i < r->ncompares; i++)
		{
			const Key  *k = find_key(r->compares[i].key);
			int64_t		value = k == NULL ? 0 :
				r->compares[i].target == ETCD_COMPARE_MOD_REVISION ? k->mod_revision : k->create_revision;

			a->succeeded &= value == r->compares[i].value;
		}
		if (!a->succeeded)
		{
			ops = r->failure;
			n = r->nfailure;
		}
		for (int i = 0; i < n; i++)
			writes |= ops[i].kind != ETCD_OP_RANGE;
		run.revision += writes;
		for (int i = 0; i < n; i++)
		{
			Key		   *k;

			r->results[i].kind = ops[i].kind;
			switch (ops[i].kind)
			{
				case ETCD_OP_RANGE:
					range_keys(r, &ops[i], i);
					break;
				case ETCD_OP_PUT:
					put_key(ops[i].key, ops[i].value, ops[i].lease);
					break;
				case ETCD_OP_DELETE:
					k = find_key(ops[i].key);
					r->results[i].deleted = k != NULL;
					if (k != NULL)
						k->create_revision = 0;
					break;
			}
		}
		a->results = r->results;
		a->nresults = n;
	}
	a->header.cluster_id = run.cluster_id;
	a->header.member_id = 1;
	a->header.revision = run.revision;
	a->header.raft_term = run.term;
}

/* Somebody else's doing. */
static void
meddle(void)
{
	static const char *const foreign[] = {"a/1", "a/ffff", "a/", "b/b/c", "a/2"};
	Key		   *k = &run.keys[choose(MAX_KEYS)];
	EtcdBytes	key = {foreign[choose(lengthof(foreign))], 0};
	EtcdBytes	value = {"them", 4};

	key.len = strlen(key.data);
	switch (choose(6))
	{
		case 0:
			run.revision++;
			k->create_revision = 0;
			break;
		case 1:
			run.revision++;
			if (k->create_revision != 0)
			{
				k->mod_revision = run.revision;
				k->lease = choose(2) ? 0 : 1 + choose(3);
			}
			break;
		case 2:
			run.revision++;
			value.len = choose(5);
			put_key(key, value, 9);
			break;
		case 3:
			run.term++;
			break;
		case 4:
			/* put back to an earlier state, or replaced */
			run.cluster_id += choose(2);
			run.revision -= choose(8);
			if (run.revision < 1)
				run.revision = 1;
			run.term = 1 + choose(4);
			for (int i = 0; i < MAX_KEYS; i++)
			{
				if (run.keys[i].create_revision > run.revision)
					run.keys[i].create_revision = 0;
				if (run.keys[i].mod_revision > run.revision)
					run.keys[i].mod_revision = run.revision;
			}
			break;
		case 5:
			run.revision += 1 + choose(4);
			break;
	}
}

/* ---- answers --------------------------------------------------------------------------- */

static void
spoil_header(EtcdHeader *header)
{
	switch (choose(4))
	{
		case 0:
			header->cluster_id = (uint64_t) take_number((int64_t) header->cluster_id);
			break;
		case 1:
			header->revision = take_number(header->revision);
			break;
		default:
			header->raft_term = (uint64_t) take_number((int64_t) header->raft_term);
			break;
	}
}

static void
spoil_kv(EtcdKeyValue *kv)
{
	static const char long_text[ELECTION_VALUE_SIZE + 8] = {
		[0 ... ELECTION_VALUE_SIZE + 6] = '\xC3'
	};

	switch (choose(6))
	{
		case 0:
			kv->create_revision = take_number(kv->create_revision);
			break;
		case 1:
			kv->mod_revision = take_number(kv->mod_revision);
			break;
		case 2:
			kv->lease = take_number(kv->lease);
			break;
		case 3:
			kv->value.data = NULL;
			kv->value.len = 0;
			break;
		case 4:
			kv->value.data = long_text;
			kv->value.len = sizeof(long_text) - 1 - choose(10);
			break;
		case 5:
			kv->key.data = long_text;
			kv->key.len = choose(2) ? sizeof(long_text) - 1 : 3;
			break;
	}
}

static void
spoil_answer(Request *r, EtcdAnswer *a)
{
	int			i = a->nresults > 0 ? choose(a->nresults) : 0;
	int			j;

	switch (choose(8))
	{
		case 0:
			a->lease = take_number(a->lease);
			break;
		case 1:
			a->ttl_s = take_number(a->ttl_s);
			break;
		case 2:
			a->succeeded = !a->succeeded;
			break;
		case 3:
			if (a->nresults > 0)
				a->nresults--;
			break;
		case 4:
			if (a->nresults > 0)
			{
				r->results[i].kvs = NULL;
				r->results[i].nkvs = 0;
			}
			break;
		case 5:
			/* one key where another was asked for */
			j = a->nresults > 0 ? choose(a->nresults) : 0;
			if (a->nresults > 0 && r->kvs[j].key.data != NULL)
			{
				r->kvs[i] = r->kvs[j];
				r->results[i].kvs = &r->kvs[i];
				r->results[i].nkvs = 1;
			}
			break;
		case 6:
			if (a->nresults > 0 && r->results[i].nkvs > 0)
				spoil_kv(&r->kvs[i]);
			break;
		case 7:
			spoil_header(&a->header);
			/* etcd_api.c lets no txn pass without a revision */
			if (r->kind == ETCD_TXN && a->header.revision <= 0)
				a->header.revision = 1;
			break;
	}
}

static void
answer_request(Request *r)
{
	static const struct
	{
		int			code;
		const char *message;
	}			errors[] = {
		{5, "etcdserver: requested lease not found"},
		{9, "etcdserver: lease already exists"},
		{14, "etcdserver: no leader"},
		{2, "not a primary lessor"},
		{7, "etcdserver: permission denied"},
		{3, "etcdserver: user name is empty"},
		{8, "etcdserver: mvcc: database space exceeded"},
		{16, "etcdserver: invalid auth token"},
		{11, "etcdserver: mvcc: required revision has been compacted"},
		{4, "context deadline exceeded"},
	};
	EtcdAnswer	failure = {0};
	EtcdAnswer	answer;
	uint64_t	id = r->id;
	int			how = choose(16);

	if (run.now < r->sent_ns + ROUND_TRIP_NS)
		pass_time(r->sent_ns + ROUND_TRIP_NS - run.now);
	failure.endpoint = choose(4) - 1;
	if (how < 2)
	{
		/* executed or not, nobody knows */
		if (how == 0)
			execute(r);
		failure.outcome = choose(2) ? ETCD_NO_ANSWER : ETCD_GARBAGE;
		memcpy(failure.message, "lost", 5);
		answer = failure;
	}
	else if (how == 2)
	{
		const int	i = choose(lengthof(errors));

		failure.outcome = ETCD_REFUSED;
		failure.code = errors[i].code;
		memcpy(failure.message, errors[i].message, strlen(errors[i].message) + 1);
		answer = failure;
		/* etcd is there, and says so */
		if (!etcd_blames_endpoint(answer.outcome, answer.code, answer.message))
			earn(PER_INPUT);
	}
	else
	{
		execute(r);
		answer = r->answer;
		answer.endpoint = failure.endpoint;
		for (; how >= 12 && how < 16; how++)
			spoil_answer(r, &answer);
		earn(PER_INPUT);
	}
	learn_lease(r, &answer);
	r->id = 0;
	run.inside = true;
	election_receive(run.core, run.now, id, &answer);
	run.inside = false;
}

static Request *
some_request(int nth)
{
	int			n = 0;

	for (int i = 0; i < MAX_REQUESTS; i++)
		n += run.requests[i].id != 0;
	if (n == 0)
		return NULL;
	nth %= n;
	for (int i = 0; i < MAX_REQUESTS; i++)
	{
		if (run.requests[i].id != 0 && nth-- == 0)
			return &run.requests[i];
	}
	return NULL;
}

/* ---- what else happens ------------------------------------------------------------------- */

static void
tell_frame(void)
{
	EtcdWatchFrame frame = {0};
	EtcdWatchEvent events[4];
	int			w;

	if (run.nwatches == 0)
		return;
	memset(events, 0, sizeof(events));
	w = choose(run.nwatches);
	frame.watch_id = w + 1;
	frame.header.cluster_id = run.cluster_id;
	frame.header.revision = run.revision;
	frame.header.raft_term = run.term;
	frame.events = events;
	frame.nevents = choose(lengthof(events) + 1);
	for (int i = 0; i < frame.nevents; i++)
	{
		EtcdKeyValue *kv = &events[i].kv;
		const Key  *k = find_key(run.watches[w].key);

		kv->key = run.watches[w].key;
		kv->mod_revision = run.revision;
		events[i].is_delete = k == NULL;
		if (k != NULL)
		{
			kv->value.data = k->value;
			kv->value.len = strlen(k->value);
			kv->create_revision = k->create_revision;
			kv->mod_revision = k->mod_revision;
			kv->lease = k->lease;
		}
		if (choose(4) == 0)
			events[i].is_delete = !events[i].is_delete;
		if (choose(4) == 0)
			spoil_kv(kv);
	}
	switch (choose(12))
	{
		case 0:
			frame.canceled = true;
			frame.compact_revision = take_number(run.revision);
			break;
		case 1:
			frame.watch_id = take_number(frame.watch_id);
			break;
		case 2:
			frame.created = true;
			break;
		case 3:
			frame.outcome = ETCD_REFUSED;
			frame.code = 14;
			memcpy(frame.message, "etcdserver: no leader", 22);
			frame.events = NULL;
			frame.nevents = 0;
			break;
		case 4:
			spoil_header(&frame.header);
			break;
	}
	earn(PER_INPUT);
	run.inside = true;
	election_watched(run.core, run.now, &frame);
	run.inside = false;
}

static void
command(void)
{
	uint64_t	ticket = run.next_ticket;
	int			slot = choose(MAX_SLOTS);
	bool		held_back = run.views[slot].state == ELECTION_HELD_BACK;
	char		value[16];
	bool		taken = false;

	/* only elections that are there can be named */
	if (ticket >= MAX_TICKETS || run.views[slot].name[0] == '\0')
		return;
	run.open[ticket] = true;
	earn(PER_INPUT);
	run.inside = true;
	switch (choose(4))
	{
		case 0:
			taken = election_resign(run.core, run.now, slot, true, ticket);
			break;
		case 1:
			taken = election_resign(run.core, run.now, slot, false, ticket);
			break;
		case 2:
			/* where tokens may go back, so may what was deleted */
			if (held_back)
				run.nfinal = 0;
			taken = election_campaign(run.core, run.now, slot, ticket);
			break;
		case 3:
			snprintf(value, sizeof(value), "v%d", take());
			if (choose(4) == 0)
				value[0] = '\0';
			taken = election_proclaim(run.core, run.now, slot, value, ticket);
			break;
	}
	run.inside = false;
	if (taken)
		run.next_ticket++;
	else
		run.open[ticket] = false;
}

static void
configure(void)
{
	static const char *const names[] = {"a", "b", "a-b", "c"};
	static const int ttls[] = {2, 3, 5, 10, 300};
	static const int margins[] = {-1, 0, 500, 100000};
	ElectionConfig *c = &run.config;
	int			chosen = choose(16);

	c->ttl_s = ttls[choose(lengthof(ttls))];
	c->safety_margin_ms = margins[choose(lengthof(margins))];
	c->eligible = choose(4) != 0;
	c->nendpoints = 1 + choose(3);
	c->nelections = 0;
	memset(c->elections, 0, sizeof(c->elections));
	memset(c->stay_out, 0, sizeof(c->stay_out));
	for (size_t i = 0; i < lengthof(names); i++)
	{
		if (chosen & (1 << i))
		{
			c->stay_out[c->nelections] = choose(8) == 1;
			memcpy(c->elections[c->nelections++], names[i], strlen(names[i]) + 1);
		}
	}
	snprintf(c->node_name, sizeof(c->node_name), "pg%d", choose(3));
	earn(2 * PER_INPUT);
	run.inside = run.configuring = true;
	election_configure(run.core, run.now, c);
	run.inside = run.configuring = false;
}

/* Calls the core when it asks for it, up to that time. */
static void
tick_until(int64_t until)
{
	int			at_once = 0;

	for (int i = 0; i < 10000; i++)
	{
		int64_t		wakeup = election_wakeup_ns(run.core);

		if (wakeup > until)
			break;
		if (wakeup > run.now)
		{
			pass_time(wakeup - run.now);
			at_once = 0;
		}
		else
			CHECK(++at_once <= MAX_TICKS_AT_ONCE);

		/* every request ends within a bounded time */
		for (int j = 0; j < MAX_REQUESTS; j++)
		{
			Request    *r = &run.requests[j];
			EtcdAnswer	lost = {.outcome = ETCD_NO_ANSWER};

			if (r->id != 0 && run.now - r->sent_ns > 2 * SECOND)
			{
				uint64_t	id = r->id;

				memcpy(lost.message, "timed out", 10);
				lost.endpoint = (int) (id % (uint64_t) run.config.nendpoints);
				r->id = 0;
				run.inside = true;
				election_receive(run.core, run.now, id, &lost);
				run.inside = false;
			}
		}
		run.inside = true;
		election_tick(run.core, run.now);
		run.inside = false;
	}
	if (until > run.now)
		pass_time(until - run.now);
}

static void
step(void)
{
	static const int64_t times[] = {
		MS, 10 * MS, 50 * MS, 200 * MS, SECOND, 3 * SECOND, 20 * SECOND, 400 * SECOND
	};
	Request    *r;

	switch (choose(16))
	{
		case 0:
		case 1:
		case 2:
		case 3:
		case 4:
		case 5:
		case 6:
			r = some_request(0);
			if (r != NULL)
				answer_request(r);
			break;
		case 7:
			r = some_request(take());
			if (r != NULL)
				answer_request(r);
			break;
		case 8:
			/* executed now, told later */
			r = some_request(take());
			if (r != NULL)
				execute(r);
			break;
		case 9:
		case 10:
			tick_until(run.now + times[choose(lengthof(times))]);
			break;
		case 11:
			/* the process stood still, and knows nothing of it */
			pass_time(times[choose(lengthof(times))]);
			break;
		case 12:
			tell_frame();
			break;
		case 13:
			meddle();
			break;
		case 14:
			command();
			break;
		case 15:
			if (choose(4) == 0)
				configure();
			else if (run.nwatches > 0)
			{
				earn(PER_INPUT);
				run.inside = true;
				election_watch_ended(run.core, run.now);
				run.inside = false;
			}
			break;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ElectionPort port = {
		.send = port_send,
		.watch = port_watch,
		.change_endpoint = port_change_endpoint,
		.publish = port_publish,
		.announce = port_announce,
		.reply = port_reply,
		.random = port_random,
	};
	bool		waits;

	/* what is large is not cleared: it is as good as its count */
	run.data = data;
	run.left = size;
	run.random = size;
	run.now = 1000 * SECOND;
	run.stopped = false;
	run.cluster_id = 7;
	run.term = 2;
	run.revision = 5;
	run.last_id = 0;
	run.credit = AT_FIRST * SECOND;
	run.nleases = 0;
	run.nfinal = 0;
	run.nwatches = 0;
	run.next_ticket = 1;
	memset(&run.config, 0, sizeof(run.config));
	memset(run.views, 0, sizeof(run.views));
	memset(run.keys, 0, sizeof(run.keys));
	memset(run.open, 0, sizeof(run.open));
	for (int i = 0; i < MAX_REQUESTS; i++)
		run.requests[i].id = 0;

	run.core = election_create(&port, MAX_SLOTS);
	CHECK(run.core != NULL);
	configure();
	for (int i = 0; i < MAX_STEPS && run.left > 0; i++)
		step();

	run.inside = true;
	waits = election_stop(run.core, run.now, ELECTION_REASON_SHUTDOWN);
	run.inside = false;
	run.stopped = true;
	for (int i = 0; i < MAX_SLOTS; i++)
		CHECK(run.views[i].deadline_ns == 0);
	CHECK(waits == !election_stopped(run.core));
	for (int i = 0; i < MAX_REQUESTS; i++)
	{
		if (run.requests[i].id != 0)
			answer_request(&run.requests[i]);
	}
	CHECK(election_stopped(run.core));
	CHECK(election_wakeup_ns(run.core) == INT64_MAX);
	election_free(run.core);
	return 0;
}
