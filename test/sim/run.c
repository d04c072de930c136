/*-------------------------------------------------------------------------
 *
 * run.c
 *	  One run, from its seed to its verdict: faults, recovery, rest, the end.
 *
 *-------------------------------------------------------------------------
 */
#include "checker.h"
#include "cluster.h"
#include "faults.h"
#include "foreign.h"
#include "network.h"
#include "plan.h"
#include "primaries.h"
#include "reached.h"
#include "run.h"
#include "server.h"

void
run_begin(void)
{
	server_reset();
	streams_reset();
	foreign_reset();
	instances_reset(plan.ninstances);
	shared_reset();
	primaries_reset();
	network_reset(plan.ninstances);
	store_changed = NULL;
	cluster_start();
	checker_reset();
	store_changed = checker_changed;
}

void
run_end(void)
{
	for (int i = 0; i < ninstances && !run_failed(); i++)
	{
		if (instances[i].running && !instances[i].stopping)
			instance_stop(&instances[i]);
	}
	if (run_until(now_ns + 2 * SECOND))
		checker_all_gone();
	instances_reset(0);
	run_free_all();
}

bool
run_until(int64_t until_ns)
{
	while (!run_failed() && events_step(until_ns))
		;
	return !run_failed();
}

bool
run_seed(uint64_t seed)
{
	int64_t		end_ns;

	verdict_reset();
	reached_reset();
	events_reset();
	plan_draw(seed);
	trace("", "seed %llu, profile %s: %d instances, %d elections, %d members of etcd, %d endpoints%s, "
		  "TTL %d and %d s, margin %d ms, clocks %d ppm, request timeout %lld ms",
		  (unsigned long long) seed, profile_name(plan.profile), plan.ninstances, plan.nelections,
		  plan.nmembers, plan.nendpoints, plan.balanced ? " balanced" : "", plan.ttl_s[0], plan.ttl_s[1],
		  plan.margin_ms, plan.drift_ppm, (long long) plan.request_timeout_ms);
	run_begin();
	faults_begin();

	if (run_until(plan.faults_end_ns))
		faults_end();
	end_ns = plan.faults_end_ns + checker_recovery_bound_ns();
	if (run_until(end_ns))
		checker_recovered();

	/* After another TTL unused keys and leases are gone, and nothing happens. */
	checker_rest();
	end_ns += plan_longest_ttl_s() * SECOND + plan_least_ttl_s() * SECOND + 2 * plan.election_timeout_ns;
	if (run_until(end_ns))
	{
		checker_recovered();
		checker_rested();
	}
	run_end();
	reached_count();
	return !run_failed();
}
