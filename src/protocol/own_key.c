/*-------------------------------------------------------------------------
 *
 * own_key.c
 *	  The writes of an own key: it is entered, deleted, proclaimed and moved
 *	  (FINAL, GUARD, RIGHTS).
 *
 * queue.c knows what they mean.  test/model/queue.pml is the model of both.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "key_name.h"
#include "own_key.h"
#include "publish.h"
#include "queue.h"
#include "requests.h"
#include "rival.h"

/*
 * After a resignation we enter again a little later.  The next candidate may
 * have to read its place before it leads; its read must not wait for our read,
 * and still less for our write.
 */
#define REJOIN_DELAY_NS		(50 * NSEC_PER_MSEC)

static void
postpone(ElectionCore *core, const Op *failed, Election *e)
{
	e->retry_ns = failed->sent_ns + request_backoff_ns(core, ++e->failures);
}

/* ---- entry, deletion, proclamation -------------------------------------------- */

/*
 * Writes the own key, if its create revision is the known one, and its mod
 * revision, too, if there are two compares (GUARD).  Else the key is read.
 */
static void
send_write(ElectionCore *core, const Op *op, const Election *e, int ncompares, EtcdOp write)
{
	EtcdCompare compares[] = {
		compare_key(e->own.key, ETCD_COMPARE_CREATE_REVISION, e->own.create_revision),
		compare_key(e->own.key, ETCD_COMPARE_MOD_REVISION, e->own.mod_revision)
	};
	EtcdOp		range = range_of_key(e->own.key);

	request_send_txn(core, op, compares, ncompares, &write, 1, &range, 1);
}

static void
send_enter(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = request_start_for(core, now_ns, OP_ENTER, e);

	if (op == NULL)
		return;
	op->lease = core->lease.id;
	copy_string(op->value, e->own.wanted_value, sizeof(op->value));
	rival_note_entry(core, e);

	/*
	 * The key keeps its name on other leases.  So an earlier key that exists again,
	 * because an entry is executed late or etcd was put back, is seen.
	 */
	if (e->own.key[0] == '\0')
	{
		key_name_make(core, e, core->lease.id, e->own.key);
		e->own.entry_unanswered = false;
	}
	if (!e->own.entry_unanswered)
		e->own.min_create_revision = core->max_revision;
	e->own.entry_unanswered = true;
	send_write(core, op, e, 1, put_of_key(e->own.key, e->own.wanted_value, core->lease.id));
}

static void
fail_enter(ElectionCore *core, const Facts *facts, Election *e)
{
	postpone(core, facts->op, e);
	e->read_wanted |= e->state == ELECTION_LEAVING;
	if (facts->kind == FACTS_NO_ANSWER)
		e->own.is_abandoned = false;	/* there may be a key again */
}

static void
receive_enter(ElectionCore *core, Election *e, const Facts *facts)
{
	const Op   *op = facts->op;
	int64_t		create_revision = facts->revision;
	int64_t		mod_revision = facts->revision;
	int64_t		lease = op->lease;
	EtcdBytes	value = bytes_of(op->value);
	bool		adopt = true;

	if (facts->kind != FACTS_ANSWER)
	{
		fail_enter(core, facts, e);
		return;
	}
	e->own.entry_unanswered = false;
	if (!facts->succeeded)
	{
		const EtcdKeyValue *kv = facts->keys[slot_of(core, e)].own;

		if (kv == NULL)
			return;				/* gone between compare and read: cannot be */
		create_revision = kv->create_revision;
		mod_revision = kv->mod_revision;
		value = kv->value;
		lease = kv->lease;
		adopt = lease == op->lease;
	}
	/* an earlier key: the answer is late (FINAL), or etcd was put back */
	adopt &= create_revision > e->own.min_create_revision;
	if (op->lease != core->lease.id || (core->revoking && e->state == ELECTION_JOINING))
	{
		/* The lease is gone or going, and the key with it (FINAL). */
		e->read_wanted = true;
		return;
	}
	/* Left meanwhile, or a key that is not to be believed (FINAL). */
	if (e->state != ELECTION_JOINING || !adopt)
		queue_leave_with_key(core, e, create_revision, lease);
	else
		queue_learn_entry(core, e, create_revision, mod_revision, value);
}

static void
send_delete(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = request_start_for(core, now_ns, OP_DELETE, e);
	EtcdOp		delete = {.kind = ETCD_OP_DELETE, .key = bytes_of(e->own.key)};

	if (op)
		send_write(core, op, e, 1, delete);
}

void
own_key_finish_leaving(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision)
{
	uint32_t	generation = e->generation;

	e->failures = 0;
	queue_raise_min_create_revision(e, revision);
	queue_begin_without_key(core, e);
	if (e->state == ELECTION_JOINING && e->generation == generation)
	{
		/* the read that follows the entry also shows the leader */
		e->retry_ns = now_ns + REJOIN_DELAY_NS;
		e->read_wanted = e->commands.verify_ticket != 0;
	}
}

static void
receive_delete(ElectionCore *core, int64_t now_ns, Election *e, const Facts *facts)
{
	const Op   *op = facts->op;
	const EtcdKeyValue *kv;

	if (facts->kind != FACTS_ANSWER)
	{
		if (facts->permission_denied && e->state == ELECTION_LEAVING)
			queue_abandon_key(core, e);
		postpone(core, op, e);
		return;
	}
	/*
	 * of an earlier incarnation: the existing key is deleted by another
	 * request
	 */
	if (op->create_revisions[slot_of(core, e)] != e->own.create_revision)
		return;
	kv = facts->succeeded ? NULL : facts->keys[slot_of(core, e)].own;
	if (kv)
	{
		/* It was created again, by an entry that we had given up. */
		queue_leave_with_key(core, e, kv->create_revision, kv->lease);
		e->failures = 0;
		return;
	}
	own_key_finish_leaving(core, now_ns, e, facts->revision);
}

static void
send_proclaim(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = request_start_for(core, now_ns, OP_PROCLAIM, e);

	if (op == NULL)
		return;
	copy_string(op->value, e->own.wanted_value, sizeof(op->value));
	send_write(core, op, e, 2, put_of_key(e->own.key, e->own.wanted_value, e->own.lease));
}

static void
receive_proclaim(ElectionCore *core, Election *e, const Facts *facts)
{
	const Op   *op = facts->op;

	if (facts->kind != FACTS_ANSWER)
	{
		postpone(core, op, e);
		return;
	}
	if (!is_queued(e) || op->create_revisions[slot_of(core, e)] != e->own.create_revision)
		return;
	if (!facts->succeeded)
	{
		(void) queue_check_own_key(core, e, facts->keys[slot_of(core, e)].own, facts->revision);
		return;
	}
	e->failures = 0;
	if (facts->revision > e->own.written_revision)
		e->own.written_revision = facts->revision;
	if (facts->revision > e->own.mod_revision)
		queue_learn_value(core, e, bytes_of(op->value), facts->revision);
	if (op->id >= e->commands.proclaim_from_id)
	{
		e->own.must_put_value = false;
		publish_reply(core, &e->commands.proclaim_ticket, ELECTION_DONE);
	}
}

void
own_key_receive_move(ElectionCore *core, const Facts *facts)
{
	const Op   *op = facts->op;

	for_each_election(core, e)
	{
		int			slot = slot_of(core, e);

		if (!is_queued(e) || op->create_revisions[slot] != e->own.create_revision)
			continue;
		if (facts->succeeded)
		{
			/* a read or the watch may have told of a newer write (READY) */
			if (facts->revision >= e->own.mod_revision)
			{
				queue_learn_lease(core, e, op->lease);
				e->own.mod_revision = facts->revision;
			}
			if (facts->revision > e->own.written_revision)
				e->own.written_revision = facts->revision;
			e->read_wanted |= e->state != ELECTION_LEADING;
		}
		else
			(void) queue_check_own_key(core, e, facts->keys[slot].own, facts->revision);
	}
}

void
own_key_receive(ElectionCore *core, int64_t now_ns, const Facts *facts)
{
	const Op   *op = facts->op;
	Election   *e = request_find_election(core, op);

	if (e == NULL)
		return;
	if (op->kind == OP_ENTER)
		receive_enter(core, e, facts);
	else if (op->kind == OP_DELETE)
		receive_delete(core, now_ns, e, facts);
	else
		receive_proclaim(core, e, facts);
}

/* ---- what is due -------------------------------------------------------------- */

/* Is there nothing to proclaim? */
static bool
has_value(const Election *e)
{
	return !e->own.must_put_value && strcmp(e->own.value, e->own.wanted_value) == 0;
}

/* Enters, deletes or writes each own key, if that is wanted and possible now. */
void
own_key_reconcile(ElectionCore *core, int64_t now_ns)
{
	for_each_election(core, e)
	{
		uint32_t	slot = SLOT_BIT(slot_of(core, e));

		if (e->state == ELECTION_JOINING)
		{
			if (!rival_leads(core, e) && core->fresh.id == 0 && !core->revoking &&
				lease_is_good(core, now_ns) &&
				!request_is_under_way(core, OP_ENTER, slot) &&
				due_or_wake_at(core, now_ns, e->retry_ns))
				send_enter(core, now_ns, e);
		}
		else if (e->state == ELECTION_LEAVING)
		{
			if (!core->revoking && e->own.create_revision != 0 &&
				!request_is_under_way(core, OP_DELETE, slot) &&
				due_or_wake_at(core, now_ns, e->retry_ns))
				send_delete(core, now_ns, e);
		}
		else if (is_queued(e) && !has_value(e))
		{
			if (core->fresh.id == 0 && core->lease.id != 0 && e->own.lease == core->lease.id &&
				!request_is_under_way(core, OP_PROCLAIM, slot) &&
				due_or_wake_at(core, now_ns, e->retry_ns))
				send_proclaim(core, now_ns, e);
		}
	}
}
