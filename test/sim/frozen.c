/*-------------------------------------------------------------------------
 *
 * frozen.c
 *	  A fault of a minority that never ends: one member of three hangs, is cut
 *	  off, is slow, or tells a wrong raft term, for good.
 *
 * Everything else works.  So somebody leads each election within three TTLs and
 * two seconds, and leads it for a hundred TTLs, in which nothing happens at all.  Of the faults of
 * the other runs, which all end, an instance may recover by the end of the fault
 * alone.  Here it cannot.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "checker.h"
#include "cluster.h"
#include "network.h"
#include "plan.h"
#include "run.h"

/* A lease that nobody renews may be revoked late, see plan.latest_expiry_ns. */
#define BOUND_TTLS	3
#define BOUND_NS	(2 * SECOND)
#define KEPT_TTLS	100

typedef enum Freeze
{
	FREEZE_HANGS,				/* accepts everything, and does nothing */
	FREEZE_IS_DOWN,
	FREEZE_WITHOUT_MEMBERS,		/* clients reach it, the other members do not */
	FREEZE_WITHOUT_CLIENTS,		/* some clients do not reach it, the other members do */
	FREEZE_ONE_WAY,				/* executes requests of these, and its answers are lost */
	FREEZE_IS_SLOW,				/* its messages to and from clients take longer */
	FREEZE_APPLIES_LATE,
	FREEZE_LIES,				/* tells a wrong raft term, once */
	NFREEZES
} Freeze;

static const char *const freezes[NFREEZES] = {
	"hangs", "is down", "is cut off from the other members", "is cut off from clients",
	"answers into the void", "is slow", "applies late", "lies about its raft term"
};

static void
draw_plan(uint64_t seed)
{
	static const int ttls_s[] = {2, 3, 5, 10, 30, 60};

	memset(&plan, 0, sizeof(plan));
	random_seed(seed);
	plan.seed = seed;
	plan.profile = PROFILE_ETCD;
	plan.faults_end_ns = NEVER;
	plan.ninstances = (int) random_between(2, 4);
	plan.nelections = plan.slots = (int) random_between(1, 2);
	plan.nmembers = plan.nendpoints = 3;
	plan.dialect = 2;
	plan.pre_vote = random_chance(5000);
	plan.ensures_leadership = random_chance(4000);
	plan.syncs_in_batches = random_chance(5000);
	plan.election_timeout_ns = SECOND;
	plan.expiry_lateness_ns = 500 * MS;
	plan.late_expiry = 2000;
	plan.latest_expiry_ns = SECOND;
	plan.link_delay_ns = random_between(MS / 10, 3 * MS);
	plan.link_jitter_ns = random_between(0, 5 * MS);
	plan.apply_delay_ns = random_between(0, 5 * MS);
	plan.ttl_s[0] = plan.ttl_s[1] = ttls_s[random_below(sizeof(ttls_s) / sizeof(ttls_s[0]))];
	plan.margin_ms = -1;
	plan.request_timeout_ms = -1;
	plan.drift_ppm = random_chance(5000) ? 0 : 50000;
}

static void
begin_instance(void *subject, uint64_t tag)
{
	Instance   *in = subject;
	ElectionConfig *config = &in->config;

	snprintf(config->node_name, sizeof(config->node_name), "%s", in->name);
	config->ttl_s = plan.ttl_s[0];
	config->safety_margin_ms = plan.margin_ms;
	config->eligible = true;
	config->nendpoints = plan.nendpoints;
	config->nelections = plan.nelections;
	for (int e = 0; e < plan.nelections; e++)
		strcpy(config->elections[e], election_name(e));
	instance_start(in);
}

static void
freeze(Freeze how, int m)
{
	int64_t		extra_ns = random_between(50 * MS, plan.ttl_s[0] * SECOND / 4);
	bool		of_all = random_chance(5000);

	trace(cluster.members[m].name, "%s from now on", freezes[how]);
	for (int i = 0; i < ninstances; i++)
	{
		if (!of_all && random_chance(5000))
			continue;
		if (how == FREEZE_WITHOUT_CLIENTS)
			link_cut(i, m, true);
		else if (how == FREEZE_ONE_WAY)
			link_cut_answers(i, m);
		else if (how == FREEZE_IS_SLOW)
			link_slow_down(i, m, extra_ns);
	}
	if (how == FREEZE_HANGS)
		member_pause(m, true);
	else if (how == FREEZE_IS_DOWN)
		member_crash(m);
	else if (how == FREEZE_WITHOUT_MEMBERS)
		member_cut(m, true);
	else if (how == FREEZE_APPLIES_LATE)
		cluster.members[m].lag_ns = extra_ns;
	else if (how == FREEZE_LIES)
		cluster.members[m].lie = 1 + random_below(3);
	for (int i = 0; i < ninstances; i++)
		checker_trouble(&instances[i]);
}

/* Mostly the first in every list of endpoints, or the leader of etcd. */
static int
draw_member(void)
{
	if (random_chance(4000))
		return 0;
	return cluster.leader >= 0 && random_chance(5000) ? cluster.leader : random_below(plan.nmembers);
}

bool
run_frozen(uint64_t seed)
{
	Freeze		how = (Freeze) (seed % NFREEZES);
	int64_t		ttl_ns;

	verdict_reset();
	events_reset();
	draw_plan(seed);
	ttl_ns = plan.ttl_s[0] * SECOND;
	run_begin();
	for (int i = 0; i < ninstances; i++)
		events_at(random_between(0, ttl_ns), begin_instance, &instances[i], 0);

	/* it may be frozen from the beginning, and may lead etcd */
	if (run_until(random_chance(3000) ? 0 : 2 * ttl_ns + random_between(0, ttl_ns)))
		freeze(how, draw_member());
	if (run_until(now_ns + BOUND_TTLS * ttl_ns + BOUND_NS))
		checker_recovered();
	checker_rest();
	if (run_until(now_ns + KEPT_TTLS * ttl_ns))
	{
		checker_recovered();
		checker_kept();
	}
	run_end();
	return !run_failed();
}
