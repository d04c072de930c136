/*-------------------------------------------------------------------------
 *
 * election_fuzzer.c
 *	  Fuzzes election.c with an etcd that gives any answers.
 *
 * The input is a program.  Its bytes choose the next event of one instance, and
 * its details.  The simulator's store executes requests, so that states are
 * reached that need dozens of correct answers in a row.  But any
 * request may be lost.  Any answer may be lost, refused, late, or wrong in each
 * of its parts, as long as some etcd could have sent it.  Watches report
 * anything.  Commands and new settings come at any time.  One leader at a time
 * needs a correct etcd, and is checked by the simulator.  The following has to
 * hold even with wrong answers:
 *
 * - no deadline is later than the sending of the lease's first grant, or of an
 *	 answered keepalive, plus the TTL, minus the margin; none that has passed
 *	 is extended; the core is due at the deadline;
 * - leadership is withdrawn before a delete of its key, or a revocation of its
 *	 lease, is sent; a key whose delete was sent never leads again;
 * - every txn has a range, or an empty txn, and every write of an own key is guarded;
 * - an election that follows Patroni is led no longer than the last answer about
 *	 the lease of its key allows, minus the margin, and never in recovery;
 * - the number of requests is limited, by time and by the number of events,
 *	 without correct answers; the core is not due again and again at one time;
 * - a command is answered once;
 * - at the end, with correct answers, every command was answered, and in every
 *	 election the instance leads, waits, or has a reason not to.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "protocol/election.h"
#include "fuzz.h"
#include "store.h"

#define MAX_SLOTS		3
#define MAX_KEYS		32		/* of which others change one */
#define MAX_PENDING		128		/* the core has fewer under way */
#define MAX_WATCHES		(2 * MAX_SLOTS)
#define MAX_STEPS		1000
#define MAX_TICKETS		64
#define MEMORY			64		/* number of leases, and of deletes, that are kept */

/* etcd's own limits. */
#define MAX_REVISION	(INT64_MAX / 2)
#define MAX_TTL_S		INT64_C(9000000000)

/* The lease of Patroni's leader key. */
#define PATRONI_TTL_S	30
#define PATRONI_LEASE	12

/* The least time that a request and its answer take. */
#define ROUND_TRIP_NS	MS

/* The time-out of a request. */
#define TIMEOUT_NS		(2 * SECOND)

/*
 * Allowed requests: at the beginning, in addition in each second, in each second
 * for each endpoint (a request that fails is tried at the others at once), and
 * for each event that is no correct answer.
 */
#define AT_FIRST		100
#define PER_SECOND		60
#define PER_ENDPOINT	20
#define PER_INPUT		(4 + 3 * MAX_SLOTS)

/* How often the core may be due again at the same time. */
#define MAX_TICKS_AT_ONCE	8

/* A request under way, with the correct answer. */
typedef struct Pending
{
	uint64_t	id;				/* 0: free */
	int64_t		sent_ns;
	EtcdRequestKind kind;
	int64_t		lease;
	bool		lost;			/* did not reach etcd */
	EtcdAnswer	answer;			/* the store's, which live as long as the run */
} Pending;

/* What requests and answers have shown of a lease. */
typedef struct Lease
{
	int64_t		id;
	int64_t		ttl_ns;
	int64_t		until_ns;		/* latest end according to all answers */
	bool		revoked;		/* a revocation was sent */
} Lease;

typedef struct Deleted
{
	char		election[ELECTION_NAME_SIZE];
	int64_t		create_revision;
} Deleted;

/* The state of a run. */
static struct
{
	uint64_t	random;
	int64_t		now;
	bool		stopped;
	bool		calm;			/* all answers are correct */

	ElectionCore *core;
	ElectionConfig config;
	int64_t		longest_ttl_s;	/* of all configurations */
	bool		remembers;
	ElectionMemory memory;
	ElectionHistory history;
	ElectionTimelines timelines;
	ElectionView views[MAX_SLOTS];
	EtcdWatch	watches[MAX_WATCHES];
	char		watched[MAX_WATCHES][ELECTION_KEY_SIZE];
	int			nwatches;
	bool		open[MAX_TICKETS];	/* commands without a reply */
	uint64_t	next_ticket;

	int			endpoint;		/* the endpoint in use, as in etcd/client.c */
	uint64_t	last_id;
	int64_t		credit;			/* requests that are still allowed, times SECOND */
	Lease		leases[MEMORY];
	int			nleases;
	Deleted		deleted[MEMORY];
	int			ndeleted;
	int64_t		told_ns;		/* latest end of Patroni's lease according to all answers */

	EtcdHeader	header;			/* of the next answer, but for the revision */
	int			npending;		/* number of entries that were ever used */
	Pending		pending[MAX_PENDING];
}			run;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the input and the time ------------------------------------------ */

/*
 * Chooses from n old and nnew new things.  Few bytes choose a new one, so that
 * most older inputs keep their meaning.
 */
static int
choose_or_new(int n, int nnew)
{
	uint8_t		byte = take();

	return byte < 250 ? byte % n : n + byte % nnew;
}

/* Takes a number: special values, or a number near the given one. */
static int64_t
take_number(int64_t near)
{
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
			return (int64_t) ((uint64_t) take() << 56);
		default:
			return (int64_t) ((uint64_t) near + (uint64_t) (int8_t) take());
	}
}

static void
earn(int64_t requests)
{
	run.credit += requests * SECOND;
}

static void
pass_time(int64_t ns)
{
	int64_t		counted = ns < 10 * SECOND ? ns : 10 * SECOND;

	run.now += ns;
	run.credit += counted * (PER_SECOND + PER_ENDPOINT * run.config.nendpoints);
	/* time without events does not allow more and more requests */
	if (run.credit > AT_FIRST * SECOND)
		run.credit = AT_FIRST * SECOND;
}

/* ---- leases ------------------------------------------------------------ */

static Lease *
find_lease(int64_t id)
{
	for (int i = run.nleases - 1; i >= 0 && i >= run.nleases - MEMORY; i--)
	{
		if (run.leases[i % MEMORY].id == id)
			return &run.leases[i % MEMORY];
	}
	return NULL;
}

static void
learn_grant(int64_t id, int64_t ttl_s)
{
	Lease	   *lease = find_lease(id);

	if (lease != NULL)
		return;					/* tried again; the time counts from the first try */
	lease = &run.leases[run.nleases++ % MEMORY];
	lease->id = id;
	lease->ttl_ns = ttl_s * SECOND;
	lease->until_ns = run.now + lease->ttl_ns;
	lease->revoked = false;
}

/* Learns about a lease from an answer, before the core receives it. */
static void
learn_answer(const Pending *p, const EtcdAnswer *answer)
{
	Lease	   *lease = find_lease(p->lease);
	int64_t		ttl_ns;

	if (p->kind == ETCD_TIME_TO_LIVE && answer->outcome == ETCD_ANSWERED)
	{
		int64_t		left_s = answer->ttl_s < answer->granted_ttl_s ? answer->ttl_s : answer->granted_ttl_s;

		if (left_s > 0 && p->sent_ns + left_s * SECOND > run.told_ns)
			run.told_ns = p->sent_ns + left_s * SECOND;
		return;
	}
	if (p->kind != ETCD_KEEPALIVE || answer->outcome != ETCD_ANSWERED ||
		answer->lease != p->lease || answer->ttl_s <= 0 || lease == NULL)
		return;
	ttl_ns = answer->ttl_s < lease->ttl_ns / SECOND ? answer->ttl_s * SECOND : lease->ttl_ns;
	if (p->sent_ns + ttl_ns > lease->until_ns)
		lease->until_ns = p->sent_ns + ttl_ns;
}

static int64_t
latest_deadline(const Lease *lease)
{
	int64_t		margin = run.config.safety_margin_ms * MS;

	if (run.config.safety_margin_ms < 0)
		margin = lease->ttl_ns / 10;
	else if (margin > lease->ttl_ns / 2)
		margin = lease->ttl_ns / 2;
	return lease->until_ns - margin;
}

/* ---- etcd ------------------------------------------------------------- */

static EtcdHeader
header(void)
{
	EtcdHeader	present = run.header;

	present.revision = store_revision();
	return present;
}

static void
write_as_other(const EtcdRequest *request)
{
	EtcdAnswer	answer;

	store_write(run.header.raft_term, request, BY_FOREIGN, &answer);
}

/* Puts a key for others, on a lease that exists then. */
static void
put_key(EtcdBytes key, EtcdBytes value, int64_t lease)
{
	EtcdRequest grant = {.kind = ETCD_GRANT,.lease = lease,.ttl_s = PATRONI_TTL_S};
	EtcdOp		op = {.kind = ETCD_OP_PUT,.key = key,.value = value,.lease = lease};
	EtcdRequest put = {.kind = ETCD_TXN,.success = &op,.nsuccess = 1};

	if (lease != 0)
		write_as_other(&grant);
	write_as_other(&put);
}

static void
delete_key(EtcdBytes key)
{
	EtcdOp		op = {.kind = ETCD_OP_DELETE,.key = key};
	EtcdRequest request = {.kind = ETCD_TXN,.success = &op,.nsuccess = 1};

	write_as_other(&request);
}

/* Puts etcd back to a state of before n revisions. */
static void
put_back(int n)
{
	int64_t		index = store_index();

	while (index > 0 && store_entry(index)->revision > store_revision() - n)
		index--;
	store_restore(index);
}

/* Executes a request, and keeps the answer. */
static void
execute(Pending *p, const EtcdRequest *request)
{
	memset(&p->answer, 0, sizeof(p->answer));
	if (request->kind == ETCD_TIME_TO_LIVE)
	{
		p->answer.granted_ttl_s = PATRONI_TTL_S;
		p->answer.ttl_s = PATRONI_TTL_S - 1;
	}
	else if (request->kind != ETCD_KEEPALIVE)
		store_write(run.header.raft_term, request, BY_CLIENT, &p->answer);
	else if (store_find_lease(request->lease) != NULL)
		p->answer.ttl_s = store_find_lease(request->lease)->ttl_s;
	p->answer.lease = request->lease;
	if (p->answer.outcome == ETCD_ANSWERED)
		p->answer.header = header();
}

/* ---- outputs of the core ---------------------------------------------- */

/* Is the key below the election's prefix? */
static bool
is_below(EtcdBytes key, const char *name)
{
	size_t		len = strlen(name);

	return key.len > len + 1 && memcmp(key.data, name, len) == 0 && key.data[len] == '/';
}

/* Checks that a delete is guarded and comes after the withdrawal, and remembers it. */
static void
check_delete(const EtcdRequest *request)
{
	CHECK(request->ncompares == 1 && request->nsuccess == 1);
	CHECK(request->compares[0].target == ETCD_COMPARE_CREATE_REVISION);
	CHECK(request->compares[0].value != 0);
	for (int i = 0; i < MAX_SLOTS; i++)
	{
		const ElectionView *view = &run.views[i];
		Deleted    *deleted;

		if (view->name[0] == '\0' || !is_below(request->success[0].key, view->name))
			continue;
		CHECK(view->deadline_ns == 0);
		deleted = &run.deleted[run.ndeleted++ % MEMORY];
		memcpy(deleted->election, view->name, sizeof(deleted->election));
		deleted->create_revision = request->compares[0].value;
	}
}

/*
 * Checks that a transfer comes after the withdrawal.  Each of its deletes is
 * guarded, and deletes a key of this extension; the first deletes the own key.
 */
static void
check_transfer(const EtcdRequest *request)
{
	static const size_t suffix_len = sizeof(ELECTION_KEY_SUFFIX) - 1;

	for (int i = 0; i < request->nsuccess; i++)
	{
		EtcdBytes	key = request->success[i].key;
		const EtcdCompare *c = &request->compares[i];

		CHECK(c->key.len == key.len && memcmp(c->key.data, key.data, key.len) == 0);
		CHECK(c->target == ETCD_COMPARE_CREATE_REVISION && c->value != 0);
		if (request->success[i].kind == ETCD_OP_PUT || i > 0)
			CHECK(key.len > suffix_len &&
				  memcmp(key.data + key.len - suffix_len, ELECTION_KEY_SUFFIX, suffix_len) == 0);
		CHECK(request->success[i].kind == ETCD_OP_DELETE || i == request->nsuccess - 1);
	}
	for (int i = 0; i < MAX_SLOTS; i++)
	{
		const ElectionView *view = &run.views[i];

		CHECK(view->create_revision != request->compares[0].value || view->deadline_ns == 0 ||
			  !is_below(request->success[0].key, view->name));
	}
}

/* Checks that a put requires a new key, or compares both revisions of the key. */
static void
check_put(const EtcdRequest *request, const EtcdOp *op)
{
	bool		by_create = false;
	bool		by_mod = false;
	bool		is_new = false;

	/* a transfer writes the target's key without changing its lease */
	CHECK(op->lease != 0 || request->success[0].kind == ETCD_OP_DELETE);
	for (int i = 0; i < request->ncompares; i++)
	{
		const EtcdCompare *c = &request->compares[i];

		if (c->key.len != op->key.len || memcmp(c->key.data, op->key.data, op->key.len) != 0)
			continue;
		by_create |= c->target == ETCD_COMPARE_CREATE_REVISION && c->value != 0;
		by_mod |= c->target == ETCD_COMPARE_MOD_REVISION;
		is_new |= c->target == ETCD_COMPARE_CREATE_REVISION && c->value == 0;
	}
	CHECK(is_new || (by_create && by_mod));
}

static void
check_txn(const EtcdRequest *request)
{
	bool		is_ordered = false;

	/* etcd's limit of a txn (--max-txn-ops) */
	CHECK(request->nsuccess > 0 && request->nsuccess <= 128 && request->nfailure <= 128);
	if (request->success[0].kind == ETCD_OP_DELETE && request->ncompares > 1)
		check_transfer(request);
	for (int i = 0; i < request->nsuccess; i++)
	{
		is_ordered |= request->success[i].kind == ETCD_OP_RANGE ||
			request->success[i].kind == ETCD_OP_EMPTY_TXN;
		if (request->success[i].kind == ETCD_OP_DELETE && request->ncompares == 1)
			check_delete(request);
		if (request->success[i].kind == ETCD_OP_PUT)
			check_put(request, &request->success[i]);
	}
	/*
	 * With neither, etcd would answer a txn that writes nothing without its quorum.  A
	 * renewal while nothing may be read has an empty txn alone.
	 */
	for (int i = 0; i < request->nfailure; i++)
		is_ordered |= request->failure[i].kind == ETCD_OP_RANGE;
	CHECK(is_ordered);
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Pending    *p = NULL;

	CHECK(id > run.last_id);
	run.last_id = id;
	run.credit -= SECOND;
	CHECK(run.credit >= 0 || run.stopped);	/* else too many requests */

	switch (request->kind)
	{
		case ETCD_GRANT:
			CHECK(request->lease != 0);
			CHECK(request->ttl_s >= ELECTION_MIN_TTL_S && request->ttl_s <= ELECTION_MAX_TTL_S);
			learn_grant(request->lease, request->ttl_s);
			break;
		case ETCD_KEEPALIVE:
			CHECK(find_lease(request->lease) != NULL && !find_lease(request->lease)->revoked);
			break;
		case ETCD_REVOKE:
			CHECK(find_lease(request->lease) != NULL);
			find_lease(request->lease)->revoked = true;
			for (int i = 0; i < MAX_SLOTS; i++)
				CHECK(run.views[i].deadline_ns == 0 || run.views[i].lease != request->lease);
			break;
		case ETCD_TXN:
			check_txn(request);
			break;
		case ETCD_AUTHENTICATE:
		case ETCD_LIST_MEMBERS:
		case ETCD_STATUS:
			CHECK(!"a request of the transport's own");
			break;
		case ETCD_TIME_TO_LIVE:
			CHECK(request->lease != 0);
			break;
	}

	for (int i = 0; i < run.npending && p == NULL; i++)
	{
		if (run.pending[i].id == 0)
			p = &run.pending[i];
	}
	if (p == NULL)
	{
		CHECK(run.npending < MAX_PENDING);
		p = &run.pending[run.npending++];
	}
	p->id = id;
	p->sent_ns = run.now;
	p->kind = request->kind;
	p->lease = request->lease;
	p->lost = !run.calm && choose(8) == 1;
	if (!p->lost)
		execute(p, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	CHECK(nwatches >= 0 && nwatches <= MAX_WATCHES);
	run.nwatches = nwatches;
	for (int i = 0; i < nwatches; i++)
	{
		CHECK(watches[i].watch_id == i + 1);
		CHECK(watches[i].key.len > 0 && watches[i].key.len < ELECTION_KEY_SIZE);
		/* 0 would begin the watch at the present revision */
		CHECK(watches[i].start_revision != 0);
		memcpy(run.watched[i], watches[i].key.data, watches[i].key.len);
		run.watches[i] = watches[i];
		run.watches[i].key.data = run.watched[i];
	}
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	fuzz_check_message(why);
	if (endpoint == run.endpoint)
		run.endpoint = (run.endpoint + 1) % run.config.nendpoints;
}

/* It holds the leadership, which a drain does not end. */
static bool
leads(const ElectionView *view)
{
	return view->state == ELECTION_LEADING || view->state == ELECTION_DRAINING;
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	CHECK(slot >= 0 && slot < MAX_SLOTS);
	CHECK(memchr(view->name, '\0', sizeof(view->name)) != NULL);
	CHECK(memchr(view->leader, '\0', sizeof(view->leader)) != NULL);
	CHECK(memchr(view->key, '\0', sizeof(view->key)) != NULL);
	CHECK((view->state == ELECTION_UNUSED) == (view->name[0] == '\0'));
	CHECK(leads(view) == (view->role == ELECTION_LEADER));
	CHECK(leads(view) == (view->deadline_ns != 0));
	CHECK(view->token == (leads(view) ? view->create_revision : 0));
	CHECK((view->key[0] != '\0') == (view->create_revision != 0));

	if (leads(view) && election_is_followed(view->name))
	{
		CHECK(!run.stopped && !run.config.in_recovery);
		CHECK(view->deadline_ns <= run.told_ns - SECOND);
	}
	else if (leads(view))
	{
		/* the lease on which the key was seen last */
		const Lease *lease = find_lease(view->lease);
		const ElectionView *before = &run.views[slot];

		CHECK(!run.stopped);
		CHECK(lease != NULL && !lease->revoked);
		CHECK(view->deadline_ns <= latest_deadline(lease));
		if (leads(before) && before->deadline_ns <= run.now)
			CHECK(view->deadline_ns <= run.now);
		for (int i = 0; i < MEMORY && i < run.ndeleted; i++)
			CHECK(run.deleted[i].create_revision != view->token ||
				  strcmp(run.deleted[i].election, view->name) != 0);
	}
	run.views[slot] = *view;
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
	CHECK((event->election != NULL) == (event->kind < ELECTION_EVENT_CONNECTED || event->kind >= ELECTION_EVENT_DRAINING));
	CHECK(event->reason >= ELECTION_NO_REASON && event->reason < ELECTION_NREASONS);
	CHECK(event->kind != ELECTION_EVENT_ELECTED || event->leader != NULL);
	CHECK(event->kind != ELECTION_EVENT_UNELECTED || event->reason != ELECTION_NO_REASON);
	CHECK(event->leader == NULL || strlen(event->leader) < ELECTION_VALUE_SIZE);
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply reply)
{
	CHECK(ticket > 0 && ticket < MAX_TICKETS);
	CHECK(run.open[ticket]);
	run.open[ticket] = false;
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	run.remembers = memory != NULL;
	if (memory != NULL)
		run.memory = *memory;
}

static void
port_remember_history(void *ctx, const ElectionHistory *history)
{
	run.history = *history;
}

static void
port_remember_timelines(void *ctx, const char *election, const ElectionTimelines *timelines)
{
	run.timelines = *timelines;
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
}

/* splitmix64 */
static uint64_t
port_random(void *ctx)
{
	uint64_t	z = (run.random += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* ---- answers --------------------------------------------------------- */

static int64_t
between(int64_t n, int64_t low, int64_t high)
{
	return n < low ? low : n > high ? high : n;
}

static void
spoil_header(EtcdHeader *header)
{
	switch (choose(4))
	{
		case 0:
			header->cluster_id = (uint64_t) take_number((int64_t) header->cluster_id);
			break;
		case 1:
			header->revision = between(take_number(header->revision), 1, MAX_REVISION);
			break;
		default:
			header->raft_term = (uint64_t) take_number((int64_t) header->raft_term);
			break;
	}
}

static void
spoil_kv(EtcdKeyValue *kv, int64_t revision)
{
	static const char too_long[ELECTION_VALUE_SIZE + 8] = {
		[0 ... ELECTION_VALUE_SIZE + 6] = '\xC3'
	};

	switch (choose(6))
	{
		case 0:
			kv->create_revision = between(take_number(kv->create_revision), 1, kv->mod_revision);
			break;
		case 1:
			kv->mod_revision = between(take_number(kv->mod_revision), kv->create_revision, revision);
			break;
		case 2:
			kv->lease = take_number(kv->lease);
			break;
		case 3:
			kv->value.len = 0;
			break;
		case 4:
			kv->value.data = too_long;
			kv->value.len = sizeof(too_long) - 1 - choose(10);
			break;
		case 5:
			kv->key.data = too_long;
			kv->key.len = choose(2) ? sizeof(too_long) - 1 : 3;
			break;
	}
}

/* No key of an answer is newer than the answer. */
static void
limit_revisions(EtcdKeyValue *kv, int64_t revision)
{
	if (kv->mod_revision > revision)
		kv->mod_revision = revision;
	if (kv->create_revision > kv->mod_revision)
		kv->create_revision = kv->mod_revision;
}

static void
spoil_answer(EtcdAnswer *answer)
{
	int			i = answer->nresults > 0 ? choose(answer->nresults) : 0;
	EtcdResult *result = answer->nresults > 0 ? &answer->results[i] : NULL;

	switch (choose(7))
	{
		case 0:
			answer->lease = take_number(answer->lease);
			break;
		case 1:
			answer->ttl_s = between(take_number(answer->ttl_s), -1, MAX_TTL_S);
			break;
		case 2:
			answer->succeeded = !answer->succeeded;
			break;
		case 3:
			answer->nresults = i;
			break;
		case 4:
			if (result != NULL)
				result->nkvs = 0;
			break;
		case 5:
			if (result != NULL && result->nkvs > 0)
				spoil_kv(result->kvs, answer->header.revision);
			break;
		case 6:
			spoil_header(&answer->header);
			for (int j = 0; j < answer->nresults; j++)
			{
				for (int k = 0; k < (int) answer->results[j].nkvs; k++)
					limit_revisions(&answer->results[j].kvs[k], answer->header.revision);
			}
			break;
	}
}

static void
refuse(EtcdAnswer *answer)
{
	static const struct
	{
		int			code;
		const char *message;
	}			errors[] = {
		{ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found"},
		{ETCD_CODE_FAILED_PRECONDITION, "etcdserver: lease already exists"},
		{ETCD_CODE_UNAVAILABLE, "etcdserver: no leader"},
		{ETCD_CODE_UNKNOWN, "not a primary lessor"},
		{ETCD_CODE_PERMISSION_DENIED, "etcdserver: permission denied"},
		{ETCD_CODE_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"},
	};
	int			i = choose(lengthof(errors));

	answer->outcome = ETCD_REFUSED;
	answer->code = errors[i].code;
	etcd_format_message(answer->message, "%s", errors[i].message);
}

static void
receive(Pending *p, const EtcdAnswer *answer)
{
	uint64_t	id = p->id;

	if (answer->outcome == ETCD_NO_ANSWER && answer->endpoint == run.endpoint)
		run.endpoint = (run.endpoint + 1) % run.config.nendpoints;
	learn_answer(p, answer);
	p->id = 0;
	election_receive(run.core, run.now, id, answer);
}

static void
answer_request(Pending *p)
{
	EtcdAnswer	answer = {0};
	int			how = choose(8);

	if (run.now < p->sent_ns + ROUND_TRIP_NS)
		pass_time(p->sent_ns + ROUND_TRIP_NS - run.now);
	if (how > 1 && !p->lost)
		answer = p->answer;
	answer.endpoint = run.endpoint;
	if (how == 0 || p->lost)
	{
		answer.outcome = ETCD_NO_ANSWER;
		etcd_format_message(answer.message, "lost");
	}
	else if (how == 1)
	{
		earn(PER_INPUT);
		refuse(&answer);
	}
	else if (how <= 3)
	{
		earn(PER_INPUT);
		for (int n = how == 3 ? 3 : 1; n > 0; n--)
			spoil_answer(&answer);
	}
	receive(p, &answer);
}

/* The request with that number among those under way. */
static Pending *
some_request(int number)
{
	int			n = 0;

	for (int i = 0; i < run.npending; i++)
		n += run.pending[i].id != 0;
	for (int i = 0; i < run.npending; i++)
	{
		if (run.pending[i].id != 0 && number-- % n == 0)
			return &run.pending[i];
	}
	return NULL;
}

/* ---- other events ------------------------------------------------------ */

static void
put_string(const char *key, const char *value, int64_t lease)
{
	EtcdBytes	k = {key, strlen(key)};
	EtcdBytes	v = {value, strlen(value)};

	put_key(k, v, lease);
}

/* Writes or deletes a key of a Patroni cluster, as its members do. */
static void
write_as_patroni(void)
{
	static const char *const names[] = {"pg0", "pg1", "pg2"};
	static const char *const configs[] = {"{\"ttl\":30}", "{\"pause\":true}", "{\"failsafe_mode\":\"on\"}", "no JSON"};
	static const char *const deleted[] = {
		"/service/p/leader", "/service/p/config", "/service/p/initialize", "/service/p/members/pg1"
	};
	int			what = choose(6);
	EtcdBytes	key;

	switch (what)
	{
		case 0:
			put_string("/service/p/leader", names[choose(3)], PATRONI_LEASE + choose(2));
			break;
		case 1:
			put_string("/service/p/initialize", choose(4) == 1 ? "8" : "7", 0);
			break;
		case 2:
			for (int i = 0; i < 3; i++)
			{
				char		member[] = "/service/p/members/pg0";

				member[sizeof(member) - 2] += i;
				put_string(member, "{}", PATRONI_LEASE);
			}
			break;
		case 3:
			put_string("/service/p/config", configs[choose(4)], 0);
			break;
		case 4:
			put_string("/service/p/initialize", "7", 0);
			put_string("/service/p/members/pg0", "{}", PATRONI_LEASE);
			put_string("/service/p/leader", "pg0", PATRONI_LEASE);
			break;
		case 5:
			key.data = deleted[choose(lengthof(deleted))];
			key.len = strlen(key.data);
			delete_key(key);
			break;
	}
}

/* Writes of other clients or of an operator, or a change of etcd itself. */
static void
meddle(void)
{
	static const char *const foreign[] = {"a/1", "a/ffff", "a/", "b/b/c", "a/2.pg"};
	static const EtcdBytes them = {"them", 4};
	static const EtcdBytes pg9 = {"pg9", 3};
	int			which = choose(MAX_KEYS);
	const Version *version = which < store_live_count() ? store_live(which) : NULL;
	EtcdBytes	key;

	earn(PER_INPUT);
	switch (choose(6))
	{
		case 0:
			if (version != NULL)
				delete_key(store_key(version->key)->name);
			break;
		case 5:
			write_as_patroni();
			break;
		case 1:
			which = choose(4);
			if (version != NULL)
				put_key(store_key(version->key)->name, version->value, which);
			break;
		case 2:
			key.data = foreign[choose_or_new(lengthof(foreign) - 1, 1)];
			key.len = strlen(key.data);
			put_key(key, strcmp(key.data, "a/2.pg") == 0 ? pg9 : them, 9);
			break;
		case 3:
			run.header.raft_term++;
			break;
		case 4:
			/* etcd is put back to an earlier state, or replaced */
			run.header.cluster_id += choose(2);
			run.header.raft_term = 1 + choose(4);
			put_back(choose(8));
			break;
	}
}

static void
tell_frame(void)
{
	EtcdWatchFrame frame = {.header = header()};
	EtcdWatchEvent events[3];
	const EtcdWatch *watch;
	const Version *version;

	if (run.nwatches == 0)
		return;
	watch = &run.watches[choose(run.nwatches)];
	version = store_find(watch->key);
	memset(events, 0, sizeof(events));
	frame.watch_id = watch->watch_id;
	frame.events = events;
	frame.nevents = choose(lengthof(events) + 1);
	for (int i = 0; i < frame.nevents; i++)
	{
		EtcdKeyValue *kv = &events[i].kv;

		kv->key = watch->key;
		kv->value.data = "";
		kv->mod_revision = store_revision();
		if (version != NULL)
			store_set_kv(kv, version);
		events[i].is_delete = (version == NULL) ^ (choose(4) == 1);
		if (choose(4) == 1)
			spoil_kv(kv, store_revision());
	}
	switch (choose(8))
	{
		case 1:
			frame.canceled = true;
			frame.compact_revision = between(take_number(store_revision()), 0, MAX_REVISION);
			break;
		case 2:
			frame.watch_id = take_number(frame.watch_id);
			break;
		case 3:
			frame.outcome = ETCD_REFUSED;
			frame.code = ETCD_CODE_UNAVAILABLE;
			etcd_format_message(frame.message, "etcdserver: no leader");
			frame.nevents = 0;
			break;
		case 4:
			spoil_header(&frame.header);
			for (int i = 0; i < frame.nevents; i++)
				limit_revisions(&events[i].kv, frame.header.revision);
			break;
	}
	earn(PER_INPUT);
	election_watched(run.core, run.now, &frame);
}

static void
command(void)
{
	uint64_t	ticket = run.next_ticket;
	int			slot = choose(MAX_SLOTS);
	char		value[8];
	bool		taken = false;

	/* a command needs an election that exists */
	if (ticket >= MAX_TICKETS || run.views[slot].name[0] == '\0')
		return;
	run.open[ticket] = true;
	earn(PER_INPUT);
	switch (choose_or_new(5, 6))
	{
		case 0:
			taken = election_resign(run.core, run.now, slot, true, 0, ticket);
			break;
		case 1:
			taken = election_resign(run.core, run.now, slot, false, 0, ticket);
			break;
		case 2:
			/* with this command the operator accepts that tokens may decrease */
			if (run.views[slot].state == ELECTION_HELD_BACK)
				run.ndeleted = 0;
			taken = election_campaign(run.core, run.now, slot, ticket);
			break;
		case 3:
			snprintf(value, sizeof(value), "v%d", take());
			taken = election_proclaim(run.core, run.now, slot, value, ticket);
			break;
		case 4:
			taken = election_verify(run.core, run.now, slot, ticket);
			break;
		case 5:
			taken = election_transfer(run.core, run.now, slot, "pg9",
									  run.now + choose(8) * SECOND, 0, ticket);
			break;
		case 6:
			taken = election_resign(run.core, run.now, slot, choose(2) == 0, choose(8) * SECOND, ticket);
			break;
		case 7:
			taken = election_transfer(run.core, run.now, slot, "pg9",
									  run.now + choose(8) * SECOND, choose(8) * SECOND, ticket);
			break;
		case 8:
			election_drained(run.core, run.now, slot);
			break;
		case 9:
		case 10:
			/* also one that is done */
			election_cancel(run.core, run.now, 1 + (uint64_t) choose(MAX_TICKETS - 1));
			break;
	}
	if (taken)
		run.next_ticket++;
	else
		run.open[ticket] = false;
}

static void
configure(void)
{
	static const char *const names[] = {"a", "b", "a-b", "c", "patroni:p"};
	static const int ttls[] = {5, 2, 3, 10, 300};
	static const int margins[] = {-1, 0, 500, 100000};
	ElectionConfig *c = &run.config;
	int			chosen = 1 ^ choose(32);
	/* a server is promoted, and never goes back */
	bool		was_promoted = c->nendpoints > 0 && !c->in_recovery;

	memset(c, 0, sizeof(*c));
	c->in_recovery = choose(4) == 1 && !was_promoted;
	strcpy(c->system_identifier, "7");
	c->timeline = c->in_recovery ? 0 : 2;
	c->refuses_second = (chosen & 2) != 0;
	strcpy(c->patroni_namespace, "/service/");
	c->ttl_s = ttls[choose(lengthof(ttls))];
	if (run.longest_ttl_s < c->ttl_s)
		run.longest_ttl_s = c->ttl_s;
	c->safety_margin_ms = margins[choose(lengthof(margins))];
	c->eligible = choose(4) != 1;
	c->nendpoints = 1 + choose(3);
	run.endpoint = 0;
	for (size_t i = 0; i < lengthof(names); i++)
	{
		if ((chosen & (1 << i)) == 0)
			continue;
		c->stay_out[c->nelections] = choose(8) == 1;
		c->timelines[c->nelections] = run.timelines;
		memcpy(c->elections[c->nelections++], names[i], strlen(names[i]) + 1);
	}
	snprintf(c->node_name, sizeof(c->node_name), "pg%d", choose(3));
	earn(2 * PER_INPUT);
	election_configure(run.core, run.now, c);
}

/* Makes a new core, which resumes from the memory of an earlier one. */
static void
start(void)
{
	ElectionPort port = {
		.send = port_send,
		.watch = port_watch,
		.change_endpoint = port_change_endpoint,
		.publish = port_publish,
		.announce = port_announce,
		.reply = port_reply,
		.remember = port_remember,
		.remember_history = port_remember_history,
		.remember_timelines = port_remember_timelines,
		.report_duplicate_name = port_report_duplicate_name,
		.random = port_random,
	};

	run.core = election_create(&port, MAX_SLOTS);
	CHECK(run.core != NULL);
	(void) election_resume(run.core, run.now, &run.history, run.remembers ? &run.memory : NULL);
	configure();
}

/* The elector crashes, with all requests and commands, and is started again. */
static void
crash(void)
{
	election_free(run.core);
	run.last_id = 0;
	run.nwatches = 0;
	memset(run.open, 0, sizeof(run.open));
	memset(run.views, 0, sizeof(run.views));
	for (int i = 0; i < run.npending; i++)
		run.pending[i].id = 0;
	earn(AT_FIRST);
	start();
}

/* The core is due at its deadline at the latest, so that it withdraws leadership. */
static void
check_wakeup(void)
{
	for (int i = 0; i < MAX_SLOTS; i++)
		CHECK(run.views[i].deadline_ns == 0 ||
			  election_wakeup_ns(run.core) <= run.views[i].deadline_ns);
}

/* The time at which a request under way ends without another event. */
static int64_t
end_of_request(const Pending *p)
{
	return p->id == 0 ? INT64_MAX : p->sent_ns + (run.calm ? ROUND_TRIP_NS : TIMEOUT_NS);
}

static void
end_request(Pending *p)
{
	EtcdAnswer	answer = {.outcome = ETCD_NO_ANSWER, .message = "timed out"};

	if (run.calm && !p->lost)
		answer = p->answer;
	answer.endpoint = run.endpoint;
	receive(p, &answer);
}

/* Lets time pass, and calls the core whenever it is due. */
static void
tick_until(int64_t until)
{
	int			at_once = 0;

	for (;;)
	{
		int64_t		next = election_wakeup_ns(run.core);

		for (int i = 0; i < run.npending; i++)
		{
			if (end_of_request(&run.pending[i]) < next)
				next = end_of_request(&run.pending[i]);
		}
		if (next > until)
			break;
		if (next > run.now)
		{
			pass_time(next - run.now);
			at_once = 0;
		}
		for (int i = 0; i < run.npending; i++)
		{
			if (end_of_request(&run.pending[i]) <= run.now)
				end_request(&run.pending[i]);
		}
		if (election_wakeup_ns(run.core) <= run.now)
		{
			CHECK(++at_once <= MAX_TICKS_AT_ONCE);
			election_tick(run.core, run.now);
		}
		check_wakeup();
	}
	if (until > run.now)
		pass_time(until - run.now);
}

static void
step(void)
{
	static const int64_t times[] = {
		MS, 50 * MS, 200 * MS, 700 * MS, 2 * SECOND, 6 * SECOND, 20 * SECOND, 400 * SECOND
	};
	int			what = choose(16);
	Pending    *p = some_request(what == 7 ? take() : 0);

	switch (what)
	{
		default:
			if (p != NULL)
				answer_request(p);
			break;
		case 8:
		case 9:
			tick_until(run.now + times[choose(lengthof(times) - 1)]);
			break;
		case 10:
			/* the process was stopped, and was not called */
			pass_time(times[choose(lengthof(times))]);
			break;
		case 11:
			tell_frame();
			break;
		case 12:
			meddle();
			break;
		case 13:
			command();
			break;
		case 14:
			configure();
			break;
		case 15:
			earn(PER_INPUT);
			if (choose(4) == 1)
				crash();
			else if (run.nwatches > 0)
				election_watch_ended(run.core, run.now);
			break;
	}
	check_wakeup();
}

/*
 * From now on all answers are correct.  The core needs a TTL to detect earlier
 * wrong answers: the TTL of its lease, which may be from an earlier
 * configuration, or the TTL of a followed election if it is longer.  It needs
 * some more time to complete all commands.
 */
static void
calm_down(void)
{
	int64_t		ttl_s = run.longest_ttl_s;

	for (int i = 0; i < MAX_SLOTS; i++)
	{
		if (ttl_s < PATRONI_TTL_S && election_is_followed(run.views[i].name))
			ttl_s = PATRONI_TTL_S;
	}
	run.calm = true;
	tick_until(run.now + (3 * ttl_s + 10) * SECOND);
	for (int i = 0; i < MAX_TICKETS; i++)
		CHECK(!run.open[i]);
	for (int i = 0; i < MAX_SLOTS; i++)
	{
		const ElectionView *view = &run.views[i];

		switch (view->state)
		{
			case ELECTION_UNUSED:
			case ELECTION_RESIGNED:
			case ELECTION_HELD_BACK:
				break;
			case ELECTION_FOLLOWING:
				CHECK(election_is_followed(view->name));
				break;
			case ELECTION_OBSERVING:
				CHECK(!run.config.eligible);
				break;
			case ELECTION_WAITING:
			case ELECTION_LEADING:
				{
					char		prefix[ELECTION_NAME_SIZE + 1];
					const Version *first;

					if (election_is_followed(view->name))
						break;
					CHECK(run.config.eligible);
					snprintf(prefix, sizeof(prefix), "%s/", view->name);
					first = store_first(prefix);
					CHECK(first != NULL);
					CHECK((strcmp(store_key(first->key)->name.data, view->key) == 0) == (view->state == ELECTION_LEADING));
					CHECK(view->state != ELECTION_LEADING || view->deadline_ns > run.now);
					break;
				}
			case ELECTION_SECOND_PRIMARY:
				CHECK(run.config.eligible && run.config.refuses_second && run.config.timeline != 0);
				break;
			case ELECTION_JOINING:
				/* before the queue, while another primary leads */
				CHECK(run.config.refuses_second && view->has_leader);
				break;
			case ELECTION_QUEUED:
			case ELECTION_LEAVING:
			case ELECTION_DRAINING:
				CHECK(false);
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool		waits;

	/* the requests are large, and are cleared when they are used */
	memset(&run, 0, offsetof(typeof(run), pending));
	set_input(data, size);
	run.random = size;
	run.now = 1000 * SECOND;
	run.next_ticket = 1;
	earn(AT_FIRST);
	run.header.cluster_id = 7;
	run.header.member_id = 1;
	run.header.raft_term = 2;

	store_reset();
	start();
	for (int i = 0; i < MAX_STEPS && has_input(); i++)
		step();
	calm_down();

	waits = election_stop(run.core, run.now, ELECTION_REASON_SHUTDOWN);
	run.stopped = true;
	for (int i = 0; i < MAX_SLOTS; i++)
		CHECK(run.views[i].deadline_ns == 0);
	CHECK(waits == !election_stopped(run.core));
	for (int i = 0; i < run.npending; i++)
	{
		if (run.pending[i].id != 0)
			end_request(&run.pending[i]);
	}
	CHECK(election_stopped(run.core));
	CHECK(election_wakeup_ns(run.core) == INT64_MAX);
	election_free(run.core);
	run_free_all();
	return 0;
}
