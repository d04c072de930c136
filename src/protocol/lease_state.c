/*-------------------------------------------------------------------------
 *
 * lease_state.c
 *	  What the state of the leases says to the other parts: deadlines, and
 *	  whether a key on them may be relied on.
 *
 * Sends nothing.  lease.c keeps the leases.
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

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
lease_deadline_of(const ElectionCore *core, const ElectionLease *lease)
{
	return lease->until_ns - lease_margin_ns(core, lease->ttl_ns);
}

bool
lease_is_good(const ElectionCore *core, int64_t now_ns)
{
	return core->lease.id != 0 && lease_deadline_of(core, &core->lease) > now_ns;
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

void
lease_taint(ElectionCore *core, int64_t lease)
{
	if (core->lease.id != 0 && (lease == 0 || lease == core->lease.id))
		core->lease.tainted = true;
	if (core->fresh.moving && (lease == 0 || lease == core->fresh.id))
		core->fresh.tainted = true;
}

bool
lease_is_moved_to(const ElectionCore *core, int64_t lease)
{
	return core->fresh.moving && lease == core->fresh.id;
}

bool
lease_is_in_doubt(const ElectionCore *core)
{
	return core->lease.id == 0 || core->lease.tainted || core->fresh.moving || core->revoking;
}
