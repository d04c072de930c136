/*-------------------------------------------------------------------------
 *
 * lessor.c
 *	  The expiry times that each leader of etcd keeps of leases.
 *
 * Expiry times are not replicated.  Each leader counts them from its own
 * promotion, and proposes a revocation when a lease has expired.  A proposal
 * carries no term.  A leader that was stopped, and does not know yet that it was
 * replaced, forwards its proposal to its successor, and it is committed.
 *
 *-------------------------------------------------------------------------
 */
#include "cluster.h"
#include "plan.h"

static void check(void *subject, uint64_t tag);

/* Schedules the member's check of a lease at its expiry time. */
static void
arm(int m, StoreLease *lease)
{
	if (lease->ready[m] || lease->expires_ns[m] == 0)
		return;					/* a check is scheduled, or the member has no expiry time */
	lease->ready[m] = true;
	events_at(lease->expires_ns[m] + random_between(0, plan.expiry_lateness_ns), check, lease,
			  cluster.members[m].lead_epoch * MAX_MEMBERS + m);
}

static void
revoke(void *subject, uint64_t tag)
{
	StoreLease *lease = subject;
	Cause		cause = (Cause) tag;
	EtcdRequest request = {.kind = ETCD_REVOKE, .lease = lease->id};
	EtcdAnswer	answer;

	lease->revoking = false;
	if (lease->revoked_index != 0)
		return;
	if (store_find_lease(lease->id) != lease)
		return;					/* etcd was put back, and has no such lease */
	if (!cluster_works())
		return;
	trace("etcd", "lease %llx %s", (unsigned long long) lease->id,
		  cause == BY_EXPIRY ? "has expired" : "is revoked by a leader that was deposed");
	(void) cluster_write(&request, cause, &answer);
}

static void
check(void *subject, uint64_t tag)
{
	StoreLease *lease = subject;
	int			m = (int) (tag % MAX_MEMBERS);
	Member	   *member = &cluster.members[m];

	if (tag / MAX_MEMBERS != member->lead_epoch)
		return;					/* scheduled under an earlier promotion */
	lease->ready[m] = false;
	if (lease->revoked_index != 0 || !member->up || !member_thinks_leader(m))
		return;
	if (member->paused)
		return;					/* see lessor_woken() */
	if (lease->expires_ns[m] > now_ns)
	{
		arm(m, lease);
		return;
	}
	if (m == cluster.leader)
	{
		if (!lease->revoking && cluster_works())
		{
			lease->revoking = true;
			events_after(random_between(0, !random_chance(plan.late_expiry) ? MS : random_chance(5000) ? 50 * MS : plan.latest_expiry_ns),
						 revoke, lease, BY_EXPIRY);
		}
		/* checks again until the lease is gone, because a proposal may be lost */
		lease->ready[m] = true;
		events_after(500 * MS, check, lease, tag);
	}
	else if (plan.late_revokes && !member->cut && cluster.leader >= 0 && !lease->revoking)
	{
		lease->revoking = true;
		events_after(random_between(10 * MS, 70 * MS), revoke, lease, BY_WOKEN_LEADER);
	}
}

/* A new leader of etcd extends every lease to its TTL and an election timeout. */
void
lessor_promote(int m)
{
	for (int i = 0; i < store_leases(); i++)
	{
		StoreLease *lease = store_lease(i);

		lease->ready[m] = false;
		if (lease->revoked_index != 0)
			continue;
		lease->expires_ns[m] = now_ns + lease->ttl_s * SECOND + plan.election_timeout_ns;
		if (random_chance(8000))
			lease->revoking = false;	/* the proposal was lost with the old leader */
		arm(m, lease);
	}
}

void
lessor_granted(StoreLease *lease)
{
	lease->expires_ns[cluster.leader] = now_ns + lease->ttl_s * SECOND;
	arm(cluster.leader, lease);
}

/*
 * A member that was stopped checks its leases as soon as it runs.  It may do so
 * before or after it learns of the new leader.
 */
void
lessor_woken(int m)
{
	Member	   *member = &cluster.members[m];

	if (!member->thinks_leader)
		return;
	for (int i = 0; i < store_leases(); i++)
	{
		StoreLease *lease = store_lease(i);

		if (lease->revoked_index == 0 &&
			(m == cluster.leader || lease->granted_index <= member->applied))
			arm(m, lease);
	}
}

int64_t
lessor_renew(int m, int64_t id)
{
	StoreLease *lease = store_find_lease(id);
	const Member *member = &cluster.members[m];

	/*
	 * This member may not have applied the revocation of a lease.  Then it
	 * still renews the lease.
	 */
	for (int i = 0; lease == NULL && i < store_leases(); i++)
	{
		if (store_lease(i)->id == id && store_lease(i)->revoked_index > member->applied)
			lease = store_lease(i);
	}
	if (lease == NULL)
		return 0;
	if (lease->granted_index > member->applied && (plan.early_lessor || m != cluster.leader))
		return 0;
	if (lease->revoked_index != 0 && lease->revoked_index <= member->applied)
		return 0;
	if (lease->expires_ns[m] <= now_ns || lease->revoking)
	{
		/*
		 * The lease has expired, and its revocation is on the way.  etcd waits
		 * for the revocation, but may answer a renewal before it.
		 */
		if (random_chance(5000))
			return 0;
		if (lease->revoking)
			return lease->ttl_s;
	}
	lease->expires_ns[m] = now_ns + lease->ttl_s * SECOND;
	arm(m, lease);
	return lease->ttl_s;
}

int64_t
lessor_time_to_live(int m, int64_t id, int64_t *granted_s)
{
	StoreLease *lease = store_find_lease(id);
	const Member *member = &cluster.members[m];

	for (int i = 0; lease == NULL && i < store_leases(); i++)
	{
		if (store_lease(i)->id == id && store_lease(i)->revoked_index > member->applied)
			lease = store_lease(i);
	}
	*granted_s = 0;
	if (lease == NULL || lease->granted_index > member->applied ||
		(lease->revoked_index != 0 && lease->revoked_index <= member->applied))
		return -1;
	*granted_s = lease->ttl_s;
	/* a new leader may not have set the expiry time yet */
	if (lease->expires_ns[m] == 0)
		return INT64_C(9223372036);
	return (lease->expires_ns[m] - now_ns) / SECOND;
}
