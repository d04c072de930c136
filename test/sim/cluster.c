/*-------------------------------------------------------------------------
 *
 * cluster.c
 *	  etcd's members and their abstract raft.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "cluster.h"
#include "plan.h"

Cluster		cluster;

static void reconsider(void);

static int64_t
election_delay(void)
{
	return random_between(plan.election_timeout_ns, 2 * plan.election_timeout_ns);
}

/* ---- who reaches whom --------------------------------------------------- */

bool
member_runs(int m)
{
	return cluster.members[m].up && !cluster.members[m].paused;
}

bool
members_connected(int a, int b)
{
	return member_runs(a) && member_runs(b) &&
		(a == b || (!cluster.members[a].cut && !cluster.members[b].cut));
}

static bool
has_majority(int m)
{
	int			n = 0;

	for (int i = 0; i < cluster.nmembers; i++)
		n += members_connected(m, i);
	return n > cluster.nmembers / 2;
}

bool
cluster_works(void)
{
	return cluster.leader >= 0 && has_majority(cluster.leader) &&
		member_thinks_leader(cluster.leader);
}

bool
member_has_leader(int m)
{
	return now_ns < cluster.members[m].leaderless_ns;
}

bool
member_thinks_leader(int m)
{
	const Member *member = &cluster.members[m];

	return member->thinks_leader && now_ns < member->thinks_until_ns;
}

uint64_t
member_term(int m)
{
	return store_entry(cluster.members[m].applied)->term;
}

void
member_header(int m, EtcdHeader *header)
{
	header->cluster_id = cluster.cluster_id;
	header->member_id = cluster.members[m].id;
	header->revision = store_entry(cluster.members[m].applied)->revision;
	header->raft_term = member_term(m) + (uint64_t) cluster.members[m].lie;
	cluster.members[m].lie = 0;
}

/* ---- the log reaches the members ------------------------------------------- */

static void schedule_apply(int m);

static void
apply(void *subject, uint64_t boot)
{
	Member	   *member = subject;
	int			m = (int) (member - cluster.members);
	int64_t		behind = store_index() - member->applied;

	if (boot != member->boot)
		return;
	member->applying = false;
	if (!member_runs(m) || behind <= 0)
		return;
	/* A member that is cut off receives no entries. */
	if (cluster.leader < 0 || !members_connected(m, cluster.leader))
		return;
	/* A member that receives entries of a leader knows that it is not the leader. */
	if (m != cluster.leader)
		member->thinks_leader = false;
	if (behind > 1 && random_chance(2000))
		behind = random_between(1, behind);
	member->applied += behind;
	server_wake(m);
	streams_advance(m);
	schedule_apply(m);
}

static void
schedule_apply(int m)
{
	Member	   *member = &cluster.members[m];
	int64_t		delay;

	if (member->applying || !member_runs(m) || member->applied >= store_index() ||
		cluster.leader < 0 || !members_connected(m, cluster.leader))
		return;
	delay = random_between(0, plan.apply_delay_ns) + member->lag_ns;
	if (m != cluster.leader)
		delay += random_between(MS / 10, MS);
	member->applying = true;
	events_after(delay, apply, member, member->boot);
}

static void
schedule_applies(void)
{
	for (int m = 0; m < cluster.nmembers; m++)
		schedule_apply(m);
}

bool
cluster_write(const EtcdRequest *request, Cause cause, EtcdAnswer *answer)
{
	if (!cluster_works())
		return false;
	if (request->kind == ETCD_GRANT && cause == BY_CLIENT)
	{
		EtcdRequest granted = *request;

		granted.ttl_s = plan_granted_ttl_s((int) request->ttl_s);
		store_write(cluster.term, &granted, cause, answer);
	}
	else
		store_write(cluster.term, request, cause, answer);
	if (request->kind == ETCD_GRANT && answer->outcome == ETCD_ANSWERED)
		lessor_granted(store_find_lease(request->lease));
	schedule_applies();
	return true;
}

bool
cluster_compact(int64_t revision)
{
	if (!cluster_works())
		return false;
	store_compact(cluster.term, revision);
	schedule_applies();
	return true;
}

/* ---- leaders ------------------------------------------------------------------ */

/* A follower learns of the new leader a little later, or with its next entry. */
static void
learn_leader(void *subject, uint64_t leader)
{
	Member	   *member = subject;
	int			m = (int) (member - cluster.members);

	if (!member_runs(m) || cluster.leader != (int) leader || !members_connected(m, cluster.leader))
		return;
	member->believes = cluster.leader;
	member->leaderless_ns = NEVER;
	if (member->thinks_leader && m != cluster.leader)
	{
		member->thinks_leader = false;
		trace(member->name, "knows that it does not lead any more");
	}
	schedule_apply(m);
	server_wake(m);
}

/*
 * Begins a new term.  The new leader has all committed entries in its log, but
 * may not have applied them yet.
 */
void
cluster_elect(int m)
{
	Member	   *member = &cluster.members[m];
	int			old = cluster.leader;

	cluster.term++;
	cluster.leader = m;
	cluster.electing = false;
	trace(member->name, "leads etcd in term %llu", (unsigned long long) cluster.term);
	store_append(cluster.term);
	if (old >= 0 && old != m && cluster.members[old].thinks_leader && members_connected(old, m))
		cluster.members[old].thinks_until_ns = now_ns + random_between(0, 50 * MS);
	member->thinks_leader = true;
	member->thinks_until_ns = NEVER;
	member->lead_epoch++;
	member->believes = m;
	member->leaderless_ns = NEVER;
	lessor_promote(m);
	for (int i = 0; i < cluster.nmembers; i++)
	{
		if (i != m)
			events_after(random_between(0, 50 * MS), learn_leader, &cluster.members[i], m);
	}
	schedule_applies();
	for (int i = 0; i < cluster.nmembers; i++)
		server_wake(i);
	reconsider();
}

static void
try_election(void *subject, uint64_t term)
{
	int			first = random_below(cluster.nmembers);

	if (!cluster.electing || term != cluster.term)
		return;
	cluster.electing = false;
	if (cluster_works())
		return;
	for (int i = 0; i < cluster.nmembers; i++)
	{
		int			m = (first + i) % cluster.nmembers;

		if (has_majority(m))
		{
			cluster_elect(m);
			return;
		}
	}
}

static void
become_leaderless(void *subject, uint64_t boot)
{
	Member	   *member = subject;
	int			m = (int) (member - cluster.members);

	if (boot == member->boot && !member_has_leader(m) && member_runs(m))
	{
		member->believes = -1;
		server_wake(m);
		streams_leaderless(m);
	}
}

/* Called when a member was started or stopped, or a link has changed. */
static void
reconsider(void)
{
	int			leader = cluster.leader;

	/* A leader without a majority steps down after an election timeout. */
	if (leader >= 0 && member_runs(leader))
	{
		Member	   *member = &cluster.members[leader];

		if (!has_majority(leader))
		{
			if (member->thinks_until_ns == NEVER)
				member->thinks_until_ns = now_ns + election_delay();
		}
		else if (member_thinks_leader(leader))
			member->thinks_until_ns = NEVER;
		else
			cluster.leader = -1;
	}
	for (int m = 0; m < cluster.nmembers; m++)
	{
		Member	   *member = &cluster.members[m];

		if (!member_runs(m))
			continue;
		if (cluster_works() && members_connected(m, cluster.leader))
		{
			if (member->leaderless_ns != NEVER || member->believes != cluster.leader)
				events_after(random_between(0, 50 * MS), learn_leader, member, cluster.leader);
		}
		else if (member->leaderless_ns == NEVER)
		{
			member->leaderless_ns = now_ns + election_delay();
			events_at(member->leaderless_ns, become_leaderless, member, member->boot);
		}
	}
	if (!cluster_works() && !cluster.electing)
	{
		for (int m = 0; m < cluster.nmembers; m++)
		{
			if (has_majority(m))
			{
				cluster.electing = true;
				events_after(cluster.nmembers == 1 ? random_between(10 * MS, SECOND) : election_delay(),
							 try_election, NULL, cluster.term);
				break;
			}
		}
	}
	schedule_applies();
	for (int m = 0; m < cluster.nmembers; m++)
		server_wake(m);
}

/* ---- faults --------------------------------------------------------------------- */

static void
end_staleness(void *subject, uint64_t boot)
{
	Member	   *member = subject;

	if (member->boot == boot)
		member->lag_ns = 0;
}

/* The member was woken.  It has to catch up, and answers old reads meanwhile. */
static void
begin_staleness(Member *member)
{
	int64_t		ns = random_between(50 * MS, SECOND);

	member->lag_ns = ns;
	member->stale_until_ns = now_ns + ns;
	member->thinks_until_ns = now_ns + ns;
	events_after(ns, end_staleness, member, member->boot);
}

void
member_pause(int m, bool pause)
{
	Member	   *member = &cluster.members[m];

	if (!member->up || member->paused == pause)
		return;
	member->paused = pause;
	trace(member->name, pause ? "is stopped" : "runs again");
	if (pause)
	{
		/* until it runs again and hears from the other members */
		member->thinks_until_ns = NEVER;
		member->applying = false;
	}
	else
	{
		member->thinks_until_ns = now_ns + random_between(0, 100 * MS);
		if (plan.stale_reads > 0)
			begin_staleness(member);
		lessor_woken(m);
	}
	reconsider();
	if (!pause)
		streams_advance(m);
}

void
member_cut(int m, bool cut)
{
	Member	   *member = &cluster.members[m];

	if (member->cut == cut)
		return;
	member->cut = cut;
	trace(member->name, cut ? "is cut off from the other members" : "reaches the other members again");

	/* Without pre-vote it comes back with a higher term, and causes an election. */
	if (!cut && !plan.pre_vote && member_runs(m) && m != cluster.leader && random_chance(5000))
	{
		int			next = random_below(cluster.nmembers);

		if (has_majority(next))
			cluster_elect(next);
	}
	reconsider();
}

void
member_crash(int m)
{
	Member	   *member = &cluster.members[m];

	if (!member->up)
		return;
	trace(member->name, "crashes");
	member->up = false;
	member->paused = false;
	member->applying = false;
	member->thinks_leader = false;
	member->lag_ns = 0;
	member->boot++;
	if (cluster.leader == m)
		cluster.leader = -1;
	server_crashed(m);
	streams_crashed(m);
	reconsider();
}

void
member_start(int m)
{
	Member	   *member = &cluster.members[m];

	if (member->up)
		return;
	trace(member->name, "starts");
	member->up = true;
	member->boot++;
	member->believes = -1;
	member->leaderless_ns = now_ns;
	reconsider();
}

void
cluster_start(void)
{
	memset(&cluster, 0, sizeof(cluster));
	store_reset();
	cluster.nmembers = plan.nmembers;
	cluster.cluster_id = random_next() | 1;
	cluster.term = (uint64_t) random_between(1, 5);
	cluster.leader = -1;
	for (int m = 0; m < cluster.nmembers; m++)
	{
		Member	   *member = &cluster.members[m];

		snprintf(member->name, sizeof(member->name), "etcd%d", m + 1);
		member->id = random_next() | 1;
		member->up = true;
		member->boot = 1;
		member->believes = -1;
		member->leaderless_ns = NEVER;
	}
	cluster_elect(random_below(cluster.nmembers));
}

/*
 * All members are stopped, their data is replaced by an older copy, and they
 * are started again.
 */
void
cluster_restore(int64_t index, uint64_t term, bool other_cluster)
{
	for (int m = 0; m < cluster.nmembers; m++)
	{
		cluster.members[m].paused = false;
		cluster.members[m].cut = false;
		member_crash(m);
	}
	trace("etcd", "is put back from revision %lld to %lld%s", (long long) store_revision(),
		  (long long) store_entry(index)->revision, other_cluster ? ", as another cluster" : "");
	store_restore(index);
	cluster.history++;
	cluster.term = term - 1;
	cluster.electing = false;
	if (other_cluster)
		cluster.cluster_id = random_next() | 1;
	for (int m = 0; m < cluster.nmembers; m++)
	{
		Member	   *member = &cluster.members[m];

		member->applied = index;
		member->up = true;
		member->boot++;
		member->believes = -1;
		member->leaderless_ns = now_ns;
	}
	cluster_elect(random_below(cluster.nmembers));
}
