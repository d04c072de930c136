/*-------------------------------------------------------------------------
 *
 * foreign.c
 *	  Candidates that follow Go's concurrency.Election, including its faults: a
 *	  waiter does not read its own key again.  Nothing is checked of them,
 *	  but their keys are in the queue.
 *
 * They run on the host of a member, so no network is between.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "foreign.h"
#include "instance.h"
#include "plan.h"
#include "server.h"

#define MAX_FOREIGN		8

typedef enum Step
{
	STEP_GRANT,
	STEP_ENTER,
	STEP_ASK,					/* asks for the predecessor */
	STEP_WAIT,					/* waits until the predecessor is gone */
	STEP_LEAD,
	STEP_RESIGN,
	STEP_REVOKE,
	STEP_GONE
} Step;

typedef struct Foreign
{
	char		name[16];
	char		value[400];
	char		prefix[ELECTION_NAME_SIZE + 1];
	char		prefix_end[ELECTION_NAME_SIZE + 1];
	char		key[ELECTION_KEY_SIZE];
	int64_t		lease;
	int64_t		ttl_s;
	int			member;
	Step		step;
	bool		dies;			/* it will not resign */
	int64_t		create_revision;
	EtcdBytes	predecessor;
	int64_t		predecessor_revision;
	uint64_t	number;			/* of the request that it waits for */
} Foreign;

static Foreign *foreign[MAX_FOREIGN];
static int	nforeign;

static void take_step(void *subject, uint64_t number);
static EtcdOp *make_op(EtcdOpKind kind, const char *key);
static EtcdCompare *make_compare(Foreign *f);

void
foreign_reset(void)
{
	nforeign = 0;
}

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

static void
step_later(Foreign *f, int64_t delay_ns)
{
	events_after(delay_ns, take_step, f, ++f->number);
}

static void
done(void *owner, const EtcdAnswer *answer)
{
	Foreign    *f = owner;
	const EtcdKeyValue *kv;

	if (answer == NULL || answer->outcome != ETCD_ANSWERED)
	{
		/* tries another member; ends if the lease is lost */
		f->member = random_below(cluster.nmembers);
		if (answer != NULL && answer->outcome == ETCD_REFUSED && answer->code == ETCD_CODE_NOT_FOUND)
			f->step = STEP_GONE;
		step_later(f, random_between(100 * MS, SECOND));
		return;
	}
	switch (f->step)
	{
		case STEP_GRANT:
			f->step = STEP_ENTER;
			break;
		case STEP_ENTER:
			f->create_revision = answer->succeeded ? answer->header.revision :
				answer->results[0].kvs[0].create_revision;
			f->step = STEP_ASK;
			break;
		case STEP_ASK:
			kv = answer->results[0].nkvs > 0 ? &answer->results[0].kvs[0] : NULL;
			f->step = kv != NULL ? STEP_WAIT : STEP_LEAD;
			if (kv != NULL)
			{
				f->predecessor = kv->key;
				f->predecessor_revision = kv->create_revision;
			}
			else
				trace(f->name, "leads");
			break;
		case STEP_RESIGN:
			f->step = STEP_REVOKE;
			break;
		default:
			f->step = STEP_GONE;
			break;
	}
	step_later(f, f->step == STEP_LEAD ? random_between(0, 8 * SECOND) : random_between(0, 5 * MS));
}

static void
ask(Foreign *f, EtcdRequestKind kind, EtcdCompare *compare, EtcdOp *success, EtcdOp *failure, CallDone answered)
{
	EtcdRequest *request = run_alloc(sizeof(EtcdRequest));

	request->kind = kind;
	request->lease = f->lease;
	request->ttl_s = f->ttl_s;
	request->compares = compare;
	request->ncompares = compare != NULL;
	request->success = success;
	request->nsuccess = success != NULL;
	request->failure = failure;
	request->nfailure = failure != NULL;
	if (!cluster.members[f->member].up)
	{
		f->member = random_below(cluster.nmembers);
		if (answered == done)
			step_later(f, random_between(100 * MS, SECOND));
		return;
	}
	server_call(f->member, request, 3 * SECOND, BY_FOREIGN, NULL, answered, f);
}

static void
kept_alive(void *owner, const EtcdAnswer *answer)
{
}

/* Writes its key again, with another value. */
static void
proclaim(Foreign *f)
{
	EtcdOp	   *op = make_op(ETCD_OP_PUT, f->key);
	char	   *value = run_alloc(32);

	snprintf(value, 32, "again %d", random_below(1000));
	op->value = bytes_of(value);
	op->lease = f->lease;
	ask(f, ETCD_TXN, make_compare(f), op, NULL, kept_alive);
}

static void
keep_alive(void *subject, uint64_t tag)
{
	Foreign    *f = subject;

	if (f->step == STEP_GONE || f->step == STEP_REVOKE)
		return;
	ask(f, ETCD_KEEPALIVE, NULL, NULL, NULL, kept_alive);
	if (plan.foreign_proclaims && f->create_revision != 0 &&
		(f->step == STEP_ASK || f->step == STEP_WAIT || f->step == STEP_LEAD))
		proclaim(f);
	events_after(f->ttl_s * SECOND / 3, keep_alive, f, tag);
}

static EtcdOp *
make_op(EtcdOpKind kind, const char *key)
{
	EtcdOp	   *op = run_alloc(sizeof(EtcdOp));

	op->kind = kind;
	op->key = bytes_of(key);
	return op;
}

static EtcdCompare *
make_compare(Foreign *f)
{
	EtcdCompare *compare = run_alloc(sizeof(EtcdCompare));

	compare->key = bytes_of(f->key);
	compare->value = f->create_revision;
	return compare;
}

static void
take_step(void *subject, uint64_t number)
{
	Foreign    *f = subject;
	EtcdOp	   *op;
	const Version *version;

	if (number != f->number)
		return;
	switch (f->step)
	{
		case STEP_GRANT:
			ask(f, ETCD_GRANT, NULL, NULL, NULL, done);
			break;
		case STEP_ENTER:
			op = make_op(ETCD_OP_PUT, f->key);
			op->value = bytes_of(f->value);
			op->lease = f->lease;
			ask(f, ETCD_TXN, make_compare(f), op, make_op(ETCD_OP_RANGE, f->key), done);
			break;
		case STEP_ASK:
			op = make_op(ETCD_OP_RANGE, f->prefix);
			op->range_end = bytes_of(f->prefix_end);
			op->sort = ETCD_SORT_LAST_CREATED;
			op->limit = 1;
			op->max_create_revision = f->create_revision - 1;
			ask(f, ETCD_TXN, NULL, op, NULL, done);
			break;
		case STEP_WAIT:
			version = store_find(f->predecessor);
			if (version == NULL || version->create_revision != f->predecessor_revision)
				f->step = STEP_ASK;
			step_later(f, f->step == STEP_ASK ? random_between(0, 5 * MS) : 50 * MS);
			break;
		case STEP_LEAD:
			if (f->dies)
				f->step = STEP_GONE;
			else
				f->step = STEP_RESIGN;
			step_later(f, 0);
			break;
		case STEP_RESIGN:
			ask(f, ETCD_TXN, make_compare(f), make_op(ETCD_OP_DELETE, f->key), NULL, done);
			break;
		case STEP_REVOKE:
			ask(f, ETCD_REVOKE, NULL, NULL, NULL, done);
			break;
		case STEP_GONE:
			trace(f->name, "is gone");
			break;
	}
}

void
foreign_begin(int e)
{
	Foreign    *f = run_alloc(sizeof(Foreign));
	const char *election = election_name(e);

	if (nforeign == MAX_FOREIGN)
		return;
	foreign[nforeign++] = f;
	snprintf(f->name, sizeof(f->name), "go%d", nforeign);
	/* now and then a value that is longer than the limit of shown values */
	memset(f->value, 'x', random_chance(2000) ? sizeof(f->value) - 1 : 8);
	memcpy(f->value, f->name, strlen(f->name));
	snprintf(f->prefix, sizeof(f->prefix), "%s/", election);
	snprintf(f->prefix_end, sizeof(f->prefix_end), "%s0", election);
	f->lease = (int64_t) (random_next() >> 2) + 1;
	snprintf(f->key, sizeof(f->key), "%s/%" PRIx64, election, f->lease);
	f->ttl_s = random_between(2, 6);
	f->member = random_below(cluster.nmembers);
	f->dies = random_chance(3000);
	trace(f->name, "enters %s", election);
	step_later(f, 0);
	events_after(f->ttl_s * SECOND / 3, keep_alive, f, 0);
}

void
foreign_end_all(void)
{
	for (int i = 0; i < nforeign; i++)
	{
		EtcdRequest request = {.kind = ETCD_REVOKE, .lease = foreign[i]->lease};
		EtcdAnswer	answer;

		foreign[i]->step = STEP_GONE;
		foreign[i]->number++;
		(void) cluster_write(&request, BY_FOREIGN, &answer);
	}
}
