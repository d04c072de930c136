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

typedef struct Link
{
	bool		is_cut;
	bool		answers_are_cut;
	int64_t		extra_ns;
} Link;

static Link *links;
static bool storm;

void
network_reset(int nclients)
{
	links = run_alloc((size_t) nclients * MAX_MEMBERS * sizeof(Link));
	storm = false;
}

static Link *
find_link(int client, int m)
{
	return &links[client * MAX_MEMBERS + m];
}

bool
link_is_cut(int client, int m)
{
	return find_link(client, m)->is_cut;
}

void
link_cut(int client, int m, bool cut)
{
	find_link(client, m)->is_cut = cut;
}

bool
link_answers(int client, int m)
{
	return !find_link(client, m)->is_cut && !find_link(client, m)->answers_are_cut;
}

void
link_cut_answers(int client, int m)
{
	find_link(client, m)->answers_are_cut = true;
}

void
link_slow_down(int client, int m, int64_t extra_ns)
{
	find_link(client, m)->extra_ns = extra_ns;
}

void
network_storm(bool on)
{
	storm = on;
}

int64_t
network_delay(int client, int m)
{
	int64_t		delay = find_link(client, m)->extra_ns + plan.link_delay_ns + random_between(0, plan.link_jitter_ns);

	if (random_chance(plan.slow))
		delay += random_between(0, plan.slow_ns);
	return delay;
}

bool
network_loses(void)
{
	return random_chance(storm ? 6000 : plan.loss);
}
