/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  The requests under way: how they are numbered, sent, and tried again.
 *
 * Every other file that sends something uses this one.
 *
 *-------------------------------------------------------------------------
 */
#include "remember.h"
#include "requests.h"

/* ---- time ------------------------------------------------------------------ */

static int64_t
lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
backoff_ns(ElectionCore *core, int failures, int64_t max_ms)
{
	int64_t		ms = BACKOFF_MIN_MS;
	uint64_t	jitter = core->port.random(core->port.ctx) % 512;

	while (--failures > 0 && ms < max_ms)
		ms *= 2;
	return lesser(ms, max_ms) * NSEC_PER_MSEC * (int64_t) (512 + jitter) / 1024;
}

int64_t
request_backoff_ns(ElectionCore *core, int failures)
{
	return backoff_ns(core, failures, BACKOFF_MAX_MS);
}

int64_t
request_urgent_backoff_ns(ElectionCore *core, int failures)
{
	int64_t		max_ms = BACKOFF_MAX_MS;

	for_each_election(core, e)
	{
		if (e->state == ELECTION_LEADING)
			max_ms = lesser(max_ms, lease_ttl_ns(core) / NSEC_PER_MSEC / 18);
	}
	return backoff_ns(core, failures, max_ms);
}

/* ---- requests under way ---------------------------------------------------- */

Op *
request_start(ElectionCore *core, int64_t now_ns, OpKind kind)
{
	for (int i = 0; i < MAX_OPS; i++)
	{
		Op		   *op = &core->ops[i];

		if (op->id == 0)
		{
			memset(op, 0, sizeof(*op));
			op->id = core->next_id++;
			op->kind = kind;
			op->sent_ns = now_ns;
			op->revision_floor = core->max_revision;
			return op;
		}
	}
	return NULL;
}

Op *
request_start_for(ElectionCore *core, int64_t now_ns, OpKind kind, Election *e)
{
	Op		   *op = request_start(core, now_ns, kind);
	int			slot = slot_of(core, e);

	if (op)
	{
		op->slots = SLOT_BIT(slot);
		op->epochs[slot] = e->epoch;
		op->create_revisions[slot] = e->own.create_revision;
		op->generation = e->generation;
	}
	return op;
}

Election *
request_find_election(ElectionCore *core, const Op *op)
{
	for_each_election(core, e)
	{
		if ((op->slots & slot_bit(core, e)) == 0)
			continue;
		if (e->generation == op->generation)
			return e;
		request_drop_answer(core, op->id, NULL, "its election is not in the settings any more");
	}
	return NULL;
}

void
request_drop_answer(const ElectionCore *core, uint64_t id, const Election *e, const char *why)
{
	if (core->port.drop)
		core->port.drop(core->port.ctx, id, e ? e->name : NULL, why);
}

bool
request_is_read(const Op *op)
{
	return op->kind == OP_READ || op->kind == OP_PATRONI_READ;
}

/* Does the txn write nothing? */
bool
request_writes_nothing(const Op *op)
{
	return request_is_read(op) || op->kind == OP_SURVEY;
}

/* ---- sending --------------------------------------------------------------- */

void
request_send_txn(ElectionCore *core, const Op *op,
				 const EtcdCompare *compares, int ncompares,
				 const EtcdOp *success, int nsuccess,
				 const EtcdOp *failure, int nfailure)
{
	EtcdRequest request = {.kind = ETCD_TXN, .compares = compares, .ncompares = ncompares,
		.success = success, .nsuccess = nsuccess, .failure = failure, .nfailure = nfailure};

	/* the queue may have large values of other programs */
	request.is_large = op->kind == OP_SURVEY || op->kind == OP_TRANSFER;
	if (!request_writes_nothing(op))
		remember_nothing(core);
	core->port.send(core->port.ctx, op->id, &request);
}

void
request_send_read(ElectionCore *core, Op *op, EtcdOp *ops, int nops, bool ordered)
{
	static const EtcdOp order = {.kind = ETCD_OP_EMPTY_TXN};

	op->ordered = ordered;
	if (ordered)
		ops[nops++] = order;
	request_send_txn(core, op, NULL, 0, ops, nops, NULL, 0);
}

void
request_send_lease(ElectionCore *core, const Op *op, EtcdRequestKind kind, int64_t ttl_s)
{
	EtcdRequest request = {.kind = kind, .lease = op->lease, .ttl_s = ttl_s};

	if (kind == ETCD_REVOKE)
		remember_nothing(core);
	core->port.send(core->port.ctx, op->id, &request);
}
