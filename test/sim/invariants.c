/*-------------------------------------------------------------------------
 *
 * invariants.c
 *	  What always holds of the state of the core.
 *
 * The core checks it after each input, in the simulator, the fuzzers and the
 * unit tests.
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>

#include "invariants.h"
#include "protocol/state.h"

static void
check_followed(const ElectionCore *core, const Election *e)
{
	const Patroni *p = &e->patroni;

	assert(e->state == ELECTION_FOLLOWING || e->state == ELECTION_LEADING);
	assert(e->own.key[0] == '\0');
	assert(p->until_ns == 0 || e->own.create_revision != 0);
	assert(!p->ttl_answer.valid || p->asked_id == 0);
	if (e->state == ELECTION_LEADING)
	{
		assert(!core->config.in_recovery && p->member_seen);
		assert(strcmp(p->system_identifier, core->config.system_identifier) == 0);
		assert(p->until_ns != 0 && strcmp(e->leader.value, core->config.node_name) == 0);
		assert(e->leader.announced_revision == e->own.create_revision);
		assert(e->leader.is_known && e->leader.key.create_revision == e->own.create_revision);
	}
}

static void
check_election(const ElectionCore *core, const Election *e)
{
	bool		leading = e->state == ELECTION_LEADING;

	assert(e->wanted || e->state == ELECTION_LEAVING);
	assert(e->state != ELECTION_UNUSED);
	assert(election_find(core, e->name) == slot_of(core, e));
	assert(e->commands.verify_ticket != 0 || e->commands.verify_id == 0);
	assert(e->transfer.stage != TRANSFER_NONE || e->transfer.ticket == 0);
	assert(e->transfer.stage != TRANSFER_SURVEYING || leading);
	assert(e->transfer.stage != TRANSFER_DRAINING || (leading && e->drain.goal == DRAIN_TRANSFER && !e->drain.is_over));
	assert(e->drain.goal == DRAIN_NONE || leading);
	assert(!transfer_is_sent(e) || !leading);
	assert(!transfer_is_sent(e) || !core->remembered);
	if (e->followed)
	{
		check_followed(core, e);
		return;
	}
	if (is_queued(e))
	{
		assert(e->own.create_revision > e->own.min_create_revision);
		assert(e->own.key[0] != '\0');
	}
	else
	{
		assert(e->state == ELECTION_LEAVING || e->own.create_revision == 0);
		assert(e->commands.proclaim_ticket == 0 && !e->own.must_put_value);
	}
	assert(e->place.ready_revision == 0 || e->state == ELECTION_WAITING);
	assert(e->place.ready_revision <= e->place.seen_revision);
	assert(e->place.first_revision == 0 || leading);
	if (leading)
	{
		assert(e->leader.announced_revision == e->own.create_revision);
		assert(e->leader.is_known && e->leader.key.create_revision == e->own.create_revision);
	}
}

static void
check_lease(const ElectionCore *core)
{
	const ElectionLease *lease = &core->lease;
	const ElectionLease *fresh = &core->fresh;
	int			nrenewals = 0;

	for_each_op(core, op)
		nrenewals += lease_is_current(core, &op->renewal);
	assert(lease->id != 0 || (lease->until_ns == 0 && !lease->must_be_replaced));
	assert(lease->id == 0 || lease->granted);
	assert(!lease->moving);
	assert(lease->term <= core->term_seen && fresh->term <= core->term_seen);
	assert(fresh->id != 0 || (!fresh->granted && !fresh->moving));
	assert(fresh->granted || !fresh->moving);
	assert(fresh->id == 0 || (fresh->id != lease->id && fresh->id != core->retired));
	assert(lease->id == 0 || lease->id != core->retired);
	assert(!fresh->moving || lease->id == 0 ||
		   lease_trusted_until_ns(core, lease) <= lease_trusted_until_ns(core, fresh));
	assert(nrenewals == 0 ||
		   (lease->id != 0 && !fresh->moving && !core->revoking && nrenewals <= MAX_RENEWALS));
	for_each_election(core, e)
	{
		assert(e->state != ELECTION_LEADING || e->followed ||
			   (lease->id != 0 && (e->own.lease == lease->id || lease_is_moved_to(core, e->own.lease))));
	}
}

/* Two requests that grant or revoke one lease are never under way. */
static void
check_requests(const ElectionCore *core)
{
	for_each_op(core, op)
	{
		for_each_op(core, other)
		{
			if (other != op && other->kind == op->kind &&
				(op->kind == OP_GRANT || op->kind == OP_REVOKE))
				assert(other->lease != op->lease);
		}
	}
}

void
check_invariants(const ElectionCore *core)
{
	check_requests(core);
	for_each_election(core, e)
		check_election(core, e);
	check_lease(core);
	assert(!core->remembered ||
		   !(lease_is_in_doubt(core) || request_is_under_way(core, OP_MOVE, ALL_SLOTS) ||
			 request_is_under_way(core, OP_ENTER, ALL_SLOTS) ||
			 request_is_under_way(core, OP_DELETE, ALL_SLOTS) ||
			 request_is_under_way(core, OP_TRANSFER, ALL_SLOTS)));
}
