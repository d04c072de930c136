/*-------------------------------------------------------------------------
 *
 * network.c
 *	  The network between clients and members.  Only the bytes of one stream
 *	  keep their order; any two other messages may overtake each other.
 *
 *-------------------------------------------------------------------------
 */
#include "network.h"
#include "plan.h"

static bool *cuts;
static bool storm;

void
network_reset(int nclients)
{
	cuts = run_alloc((size_t) nclients * MAX_MEMBERS * sizeof(bool));
	storm = false;
}

bool
link_is_cut(int client, int m)
{
	return cuts[client * MAX_MEMBERS + m];
}

void
link_cut(int client, int m, bool cut)
{
	cuts[client * MAX_MEMBERS + m] = cut;
}

void
network_storm(bool on)
{
	storm = on;
}

int64_t
network_delay(void)
{
	int64_t		delay = plan.link_delay_ns + random_between(0, plan.link_jitter_ns);

	if (random_chance(plan.slow))
		delay += random_between(0, plan.slow_ns);
	return delay;
}

bool
network_loses(void)
{
	return random_chance(storm ? 6000 : plan.loss);
}
