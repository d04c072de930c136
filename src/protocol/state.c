/*-------------------------------------------------------------------------
 *
 * state.c
 *	  What the state says: who has a slot, what is under way, and how long a lease and
 *	  leadership last.
 *
 * Sends nothing, and changes nothing but the time of the next turn.
 *
 *-------------------------------------------------------------------------
 */
#include "state.h"

/* ---- slots and requests ------------------------------------------------- */

int
election_find(const ElectionCore *core, const char *name)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_used(&core->elections[i]) && strcmp(core->elections[i].name, name) == 0)
			return i;
	}
	return -1;
}

/* The request under way with that id; NULL: there is none. */
Op *
request_find(ElectionCore *core, uint64_t id)
{
	for (int i = 0; i < MAX_OPS; i++)
	{
		if (id != 0 && core->ops[i].id == id)
			return &core->ops[i];
	}
	return NULL;
}

bool
request_is_under_way(const ElectionCore *core, OpKind kind, uint32_t slots)
{
	for_each_op(core, op)
	{
		if (op->kind == kind && (slots == ALL_SLOTS || (op->slots & slots) != 0))
			return true;
	}
	return false;
}

/* ---- time --------------------------------------------------------------- */

void
wake_at(ElectionCore *core, int64_t when_ns)
{
	if (when_ns < core->wakeup_ns)
		core->wakeup_ns = when_ns;
}

bool
due_or_wake_at(ElectionCore *core, int64_t now_ns, int64_t when_ns)
{
	if (now_ns >= when_ns)
		return true;
	wake_at(core, when_ns);
	return false;
}

/* ---- leases ------------------------------------------------------------- */

int64_t
lease_margin_ns(const ElectionCore *core, int64_t ttl_ns)
{
	int64_t		margin = core->config.safety_margin_ms * NSEC_PER_MSEC;

	if (core->config.safety_margin_ms < 0)
		return ttl_ns / 10;
	/* With less than half a TTL no renewal would be in time. */
	return margin < ttl_ns / 2 ? margin : ttl_ns / 2;
}

int64_t
lease_trusted_until_ns(const ElectionCore *core, const ElectionLease *lease)
{
	return lease->until_ns - lease_margin_ns(core, lease->ttl_ns);
}

bool
lease_is_good(const ElectionCore *core, int64_t now_ns)
{
	return core->lease.id != 0 && lease_trusted_until_ns(core, &core->lease) > now_ns;
}

int64_t
lease_ttl_ns(const ElectionCore *core)
{
	int64_t		ttl_ns = core->config.ttl_s * NSEC_PER_SEC;

	return core->lease.id != 0 && core->lease.ttl_ns < ttl_ns ? core->lease.ttl_ns : ttl_ns;
}

int64_t
lease_interval_ns(const ElectionCore *core)
{
	return lease_ttl_ns(core) / 3;
}

/* ---- leadership --------------------------------------------------------- */

/* The TTL of the leader key's lease; ours, until that is known. */
int64_t
patroni_ttl_ns(const ElectionCore *core, const Election *e)
{
	return e->patroni.ttl_ns != 0 ? e->patroni.ttl_ns : core->config.ttl_s * NSEC_PER_SEC;
}

int64_t
patroni_deadline_ns(const ElectionCore *core, const Election *e)
{
	int64_t		margin_ns = lease_margin_ns(core, patroni_ttl_ns(core, e));

	if (margin_ns < PATRONI_MIN_MARGIN_NS)
		margin_ns = PATRONI_MIN_MARGIN_NS;
	return e->patroni.until_ns - margin_ns;
}

int64_t
patroni_longest_ttl_ns(const ElectionCore *core)
{
	int64_t		longest_ns = 0;

	for_each_election(core, e)
	{
		if (e->followed && e->patroni.ttl_ns > longest_ns)
			longest_ns = e->patroni.ttl_ns;
	}
	return longest_ns;
}

int64_t
leadership_deadline_ns(const ElectionCore *core, const Election *e)
{
	return e->followed ? patroni_deadline_ns(core, e) : lease_trusted_until_ns(core, &core->lease);
}
