/*-------------------------------------------------------------------------
 *
 * hand_over.c
 *	  How a leader gives up its leadership as planned: it drains, and then resigns or
 *	  hands over to a named candidate, by command or by preference (DRAIN, TRANSFER).
 *
 * A leader that drains has the leadership as before: the same key, token and
 * deadline, renewed as before.  It only takes no new work, which its readers
 * look after.  So nothing of the exclusion depends on the drain.  It is over when
 * no work is open, or its time is over.  If the leadership is lost meanwhile, the
 * wish to resign is carried out all the same.
 *
 * For a hand-over the leader reads the queue.  If the target is there, it
 * withdraws, and sends one txn: delete the own key and the keys of ours that stand
 * between it and the target's.  The compares name all of these and the target's,
 * with their create revisions, so that the txn does all of that or nothing.  The
 * txn also writes the target's key anew, as it is.  The target sees that somebody
 * else wrote it, and writes it once more when it leads: that is the receipt.
 *
 * Until the result of the txn is known, the instance does not lead, although
 * its key may stand.  It may lead again when another compare than that of the
 * own key has failed: create revisions do not come back, so that txn is never
 * executed.
 *
 * test/model/transfer.pml is the model of the hand-over.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "hand_over.h"
#include "key_name.h"
#include "leadership.h"
#include "own_key.h"
#include "publish.h"
#include "queue.h"
#include "requests.h"

/* The maximum number of keys of the queue that are read. */
#define SURVEY_LIMIT	1000

/* A txn of etcd has at most 128 compares (--max-txn-ops). */
#define MAX_BETWEEN		120

/* ---- the drain ---------------------------------------------------------- */

/* Gives up the own key, also if the leadership has been lost. */
static void
resign(ElectionCore *core, Election *e)
{
	e->drain.goal = DRAIN_NONE;
	queue_leave(core, e, ELECTION_REASON_RESIGNED);
	if (!core->connected)
		publish_reply(core, &e->commands.resign_ticket, ELECTION_NO_CONTACT);
}

void
drain_carry_out_resignation(ElectionCore *core, Election *e)
{
	if (e->drain.goal == DRAIN_RESIGN && e->state != ELECTION_LEADING)
		resign(core, e);
}

void
drain_finish(ElectionCore *core, int64_t now_ns, Election *e)
{
	Transfer   *t = &e->transfer;

	e->drain.is_over = true;
	switch (e->drain.goal)
	{
		case DRAIN_RESIGN:
			resign(core, e);
			break;
		case DRAIN_TRANSFER:
			t->stage = TRANSFER_SURVEYING;
			if (t->until_ns != NEVER_NS)
				t->until_ns += now_ns - e->drain.began_ns;
			t->op_id = 0;
			t->retry_ns = 0;
			break;
		case DRAIN_NONE:
			break;
	}
}

void
drain_reconcile(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		drain_carry_out_resignation(core, e);
		if (is_draining(e) && !e->drain.is_over &&
			due_or_wake_at(core, now_ns, e->drain.until_ns))
			drain_finish(core, now_ns, e);
	}
}

bool
drain_cancel_command(ElectionCore *core, Election *e, uint64_t ticket)
{
	if (e->commands.resign_ticket == ticket)
		drain_cancel(core, e);
	else if (e->transfer.ticket == ticket)
		transfer_end(core, e, ELECTION_CANCELLED);
	else
		return false;
	return true;
}

/* ---- sending ------------------------------------------------------------------- */

static EtcdOp
survey_range(const Election *e)
{
	EtcdOp		range = {.kind = ETCD_OP_RANGE, .limit = SURVEY_LIMIT,
		.sort = ETCD_SORT_FIRST_CREATED};

	range.key = bytes_of(e->prefix);
	range.range_end = bytes_of(e->prefix_end);
	range.min_create_revision = e->own.create_revision;
	return range;
}

static void
send_survey(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = request_start_for(core, now_ns, OP_SURVEY, e);
	EtcdOp		range = survey_range(e);

	if (op == NULL)
		return;
	e->transfer.op_id = op->id;
	request_send_txn(core, op, NULL, 0, &range, 1, NULL, 0);
}

static EtcdCompare
compare_kv(const EtcdKeyValue *kv, EtcdCompareTarget target)
{
	return (EtcdCompare) {.key = kv->key, .target = target,
		.value = target == ETCD_COMPARE_MOD_REVISION ? kv->mod_revision : kv->create_revision};
}

/*
 * The txn.  The own key is the first that is deleted, see READY.  If a compare
 * fails, the queue is read again instead.
 */
static void
send_transfer(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts, int target)
{
	EtcdCompare compares[MAX_BETWEEN + 3];
	EtcdOp		ops[MAX_BETWEEN + 2];
	EtcdOp		range = survey_range(e);
	const EtcdKeyValue *to = &facts->queue[target];
	int			ncompares = 0;
	int			nops = 0;
	Op		   *op = request_start_for(core, now_ns, OP_TRANSFER, e);

	if (op == NULL)
		return;
	for (int i = 0; i < target; i++)
	{
		EtcdOp		delete = {.kind = ETCD_OP_DELETE, .key = facts->queue[i].key};

		compares[ncompares++] = compare_kv(&facts->queue[i], ETCD_COMPARE_CREATE_REVISION);
		ops[nops++] = delete;
	}
	compares[ncompares++] = compare_kv(to, ETCD_COMPARE_CREATE_REVISION);
	if (key_name_parse(e, to->key).is_ours)
	{
		EtcdOp		put = {.kind = ETCD_OP_PUT, .key = to->key, .value = to->value,
			.lease = to->lease};

		compares[ncompares++] = compare_kv(to, ETCD_COMPARE_MOD_REVISION);
		ops[nops++] = put;
	}
	/* The txn's write is the next one, the target's own the one after it. */
	e->transfer.receipt_version =
		key_name_parse(e, to->key).is_ours ? to->version + 2 : 0;
	e->transfer.op_id = op->id;
	request_send_txn(core, op, compares, ncompares, ops, nops, &range, 1);
}

/*
 * The reason why the leader cannot hand over to that candidate; DONE: it can.
 */
static ElectionReply
check_target(const Election *e, const Facts *facts, int target)
{
	for (int i = 1; i < target; i++)
	{
		if (!key_name_parse(e, facts->queue[i].key).is_ours)
			return ELECTION_FOREIGN_CANDIDATE;
	}
	return target - 1 > MAX_BETWEEN ? ELECTION_TOO_MANY_CANDIDATES : ELECTION_DONE;
}

/* Withdraws, and hands over. */
static void
hand_over(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts, int target)
{
	Transfer   *t = &e->transfer;

	t->stage = TRANSFER_SENT;
	t->own_revision = e->own.create_revision;
	t->target_revision = facts->queue[target].create_revision;
	leadership_withdraw(core, e, ELECTION_REASON_TRANSFERRED);
	send_transfer(core, now_ns, e, facts, target);
}

/* ---- who is meant ----------------------------------------------------------------- */

/* The candidate of that name; -1: there is none, -2: there is more than one. */
static int
find_candidate(const Facts *facts, const char *node)
{
	int			found = -1;

	for (int i = 1; i < facts->nqueue; i++)
	{
		if (!is_key(facts->queue[i].value, node))
			continue;
		if (found != -1)
			return -2;
		found = i;
	}
	return found;
}

void
transfer_begin(Election *e, const char *to_node, int64_t until_ns, int64_t drain_ns,
			   uint64_t ticket)
{
	Transfer   *t = &e->transfer;

	t->stage = TRANSFER_SURVEYING;
	t->ticket = ticket;
	copy_string(t->to_node, to_node, sizeof(t->to_node));
	t->until_ns = until_ns;
	t->drain_ns = drain_ns;
	t->op_id = 0;				/* a survey that is under way was sent before */
	t->retry_ns = 0;
	t->failures = 0;
}

/*
 * The place of a name in preferred_nodes.  A name that is not there gets the
 * place behind the last one.
 */
static int
rank(const ElectionConfig *config, EtcdBytes node)
{
	int			i = 0;

	while (i < config->npreferred && !is_key(node, config->preferred_nodes[i]))
		i++;
	return i;
}

/*
 * The best candidate that leadership can be handed to; -1: none is better than
 * this instance.
 */
static int
find_better(const ElectionCore *core, const Election *e, const Facts *facts)
{
	int			best_rank = rank(&core->config, bytes_of(e->own.value));
	int			best = -1;

	for (int i = 1; i < facts->nqueue; i++)
	{
		int			r = rank(&core->config, facts->queue[i].value);

		if (r < best_rank && check_target(e, facts, i) == ELECTION_DONE)
		{
			best_rank = r;
			best = i;
		}
	}
	return best;
}

/* The queue was read: drains, or hands over, if the target is there. */
static void
seek_target(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	/* Without a command it is the best one now: the settings or the queue may have changed. */
	int			target = e->transfer.ticket == 0 ? find_better(core, e, facts) :
		find_candidate(facts, e->transfer.to_node);
	ElectionReply reply;

	if (target < 0)
		reply = target == -1 ? ELECTION_NO_SUCH_CANDIDATE : ELECTION_AMBIGUOUS_CANDIDATE;
	else
		reply = check_target(e, facts, target);
	if (reply != ELECTION_DONE)
		transfer_end(core, e, reply);
	else if (e->transfer.drain_ns > 0)
	{
		e->transfer.stage = TRANSFER_DRAINING;
		drain_begin(core, now_ns, e, DRAIN_TRANSFER, e->transfer.drain_ns);
		e->transfer.drain_ns = 0;
	}
	else
		hand_over(core, now_ns, e, facts, target);
}

/*
 * How long one that is preferred has to wait.  A drain has refused work for
 * nothing if it could not take over then, so that happens less and less often.  A node
 * that dies again and again costs a TTL each time: from its second failure on it waits
 * longer, too.
 */
static int64_t
preferred_delay_ns(const ElectionCore *core, const Election *e, EtcdBytes node)
{
	const Transfer *t = &e->transfer;
	int			nfailed = t->nbrief > 1 && is_key(node, t->brief_node) ? t->nbrief - 1 : 0;
	int			doubled = t->nfailed_drains + nfailed < 8 ? t->nfailed_drains + nfailed : 8;

	return core->config.preferred_delay_ms * NSEC_PER_MSEC << doubled;
}

/*
 * Notes when the leader changes.  A node that is preferred to this one, and has led for
 * less than the time that it had to wait, and two TTLs, has failed.
 */
static void
note_leader(const ElectionCore *core, int64_t now_ns, Election *e)
{
	Transfer   *t = &e->transfer;
	int64_t		revision = e->leader.is_known ? e->leader.key.create_revision : t->leader_revision;
	int64_t		brief_ns = core->config.preferred_delay_ms * NSEC_PER_MSEC + 2 * lease_ttl_ns(core);
	bool		was_same = strcmp(t->leader_node, t->brief_node) == 0;

	if (revision == t->leader_revision)
		return;
	if (rank(&core->config, bytes_of(t->leader_node)) < rank(&core->config, bytes_of(e->own.value)))
	{
		if (now_ns - t->leader_since_ns < brief_ns)
		{
			t->nbrief = was_same ? t->nbrief + 1 : 1;
			copy_string(t->brief_node, t->leader_node, sizeof(t->brief_node));
		}
		else if (was_same)
			t->nbrief = 0;
	}
	t->leader_revision = revision;
	t->leader_since_ns = now_ns;
	copy_string(t->leader_node, e->leader.value, sizeof(t->leader_node));
}

/*
 * Hands over to a candidate that is preferred, as by a command for which nobody waits.
 * The create revision shows whether a key was in the queue all the time.
 */
static void
receive_preferred(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	Transfer   *t = &e->transfer;
	int			better = find_better(core, e, facts);
	int64_t		revision = better < 0 ? 0 : facts->queue[better].create_revision;
	int64_t		due_ns;

	if (revision != t->better_revision)
		t->better_since_ns = now_ns;
	t->better_revision = revision;
	if (better < 0)
	{
		transfer_end(core, e, ELECTION_NO_SUCH_CANDIDATE);	/* if it drains for one */
		return;
	}
	if (is_draining(e))
		return;
	due_ns = t->better_since_ns + preferred_delay_ns(core, e, facts->queue[better].value);
	if (now_ns >= due_ns)
	{
		transfer_begin(e, "", now_ns + lease_ttl_ns(core),
					   core->config.preferred_drain_ms * NSEC_PER_MSEC, 0);
		seek_target(core, now_ns, e, facts);
	}
	else if (t->survey_ns > due_ns)
		t->survey_ns = due_ns;
}

/* The txn was sent and its result is not known, or a compare failed. */
static void
resolve(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	Transfer   *t = &e->transfer;

	for (int i = 1; i < facts->nqueue; i++)
	{
		if (facts->queue[i].create_revision == t->target_revision &&
			check_target(e, facts, i) == ELECTION_DONE)
		{
			send_transfer(core, now_ns, e, facts, i);
			return;
		}
	}
	/* The target is gone: the txn is never executed, and the own key counts again. */
	transfer_end(core, e, ELECTION_FAILED);
	e->read_wanted = true;
}

static void
receive_survey(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	if (facts->nqueue == 0 || !is_queued(e) || !is_key(facts->queue[0].key, e->own.key) ||
		facts->queue[0].create_revision != e->own.create_revision)
	{
		/* The own key is gone, or not ours any more: a read shows the rest, and ends this. */
		e->read_wanted = true;
		e->transfer.retry_ns = now_ns + request_urgent_backoff_ns(core, ++e->transfer.failures);
		return;
	}
	if (e->transfer.stage == TRANSFER_SENT)
	{
		resolve(core, now_ns, e, facts);	/* the txn may fail again */
		return;
	}
	e->transfer.failures = 0;
	if (e->transfer.stage == TRANSFER_SURVEYING)
		seek_target(core, now_ns, e, facts);
	else if (e->state == ELECTION_LEADING)
		receive_preferred(core, now_ns, e, facts);
}

/* ---- answers ------------------------------------------------------------------------- */

/* The election that the request is about; NULL: nobody waits for it any more. */
static Election *
take_answer(ElectionCore *core, const Op *op)
{
	Election   *e = request_find_election(core, op);

	if (e == NULL)
		return NULL;
	if (e->transfer.op_id != op->id)
	{
		request_drop_answer(core, op->id, e, "nobody waits for that transfer any more");
		return NULL;
	}
	e->transfer.op_id = 0;
	return e;
}

void
transfer_receive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	const Op   *op = facts->op;
	Election   *e = take_answer(core, op);

	if (e == NULL)
		return;
	if (facts->kind != FACTS_ANSWER)
	{
		e->transfer.failures++;
		e->transfer.retry_ns = op->sent_ns +
			(facts->permission_denied ? request_backoff_ns(core, e->transfer.failures) :
			 request_urgent_backoff_ns(core, e->transfer.failures));
		return;
	}
	if (op->kind == OP_SURVEY || !facts->succeeded)
	{
		receive_survey(core, now_ns, e, facts);
		return;
	}
	if (e->own.create_revision == e->transfer.own_revision)
		own_key_finish_leaving(core, now_ns, e, facts->revision);
	transfer_see_leader(core, e);
}

/* ---- what is due ------------------------------------------------------------------------ */

/* Is the queue to be read for somebody better? */
static bool
seeks_better(const ElectionCore *core, const Election *e)
{
	return e->state == ELECTION_LEADING && !e->followed &&
		rank(&core->config, bytes_of(e->own.value)) > 0;
}

static void
reconcile_one(ElectionCore *core, int64_t now_ns, Election *e)
{
	Transfer   *t = &e->transfer;
	bool		is_preferred = t->ticket == 0 &&
		(t->stage == TRANSFER_SURVEYING || t->stage == TRANSFER_DRAINING);

	note_leader(core, now_ns, e);
	if (t->stage == TRANSFER_DRAINING && t->ticket != 0)
		return;					/* the drain goes on */
	if (is_preferred && !seeks_better(core, e))
		transfer_end(core, e, ELECTION_CANCELLED);	/* the settings have changed */
	else if (t->stage != TRANSFER_NONE && t->stage != TRANSFER_DRAINING &&
			 due_or_wake_at(core, now_ns, t->until_ns))
	{
		bool		in_doubt = t->stage == TRANSFER_SENT;

		transfer_end(core, e, ELECTION_FAILED);
		/* A deletion that is sent now ends the doubt. */
		if (in_doubt)
			queue_leave(core, e, ELECTION_NO_REASON);
		return;
	}
	if (t->op_id != 0)
		return;
	if (t->stage == TRANSFER_SURVEYING || (t->stage == TRANSFER_SENT && is_queued(e)))
	{
		if (due_or_wake_at(core, now_ns, t->retry_ns))
			send_survey(core, now_ns, e);
	}
	else if ((t->stage == TRANSFER_NONE || t->stage == TRANSFER_DRAINING) &&
			 seeks_better(core, e) && due_or_wake_at(core, now_ns, t->survey_ns))
	{
		/* It is not urgent: one that fails is not sent again before the next. */
		t->survey_ns = now_ns + lease_interval_ns(core);
		send_survey(core, now_ns, e);
	}
}

void
transfer_reconcile(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
		reconcile_one(core, now_ns, e);
}
