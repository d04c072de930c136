/*-------------------------------------------------------------------------
 *
 * primaries.c
 *	  Instances of one database system, of which several may be primaries.
 *
 * In some runs the instances belong to one or two database systems.  They become
 * standbys, and are promoted on the next timeline, while others are primaries, too.
 * What has to hold:
 *
 * - A second primary never leads.
 * - An instance becomes one only if a primary of its system has led on a later
 *   timeline, or leads and its process lives.
 * - Two primaries of a system are never both second ones, unless a key has led whose
 *	 process had ended.
 *
 * Its choices come from numbers of their own: a seed is the same run with and
 * without them, as long as there is only one system and one primary of it.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "primaries.h"

#define MAX_PRIMARIES	16
#define NSYSTEMS		2
#define MAX_GRANTS		4096

/* A keepalive of a process that has ended may still be executed. */
#define LAST_WORDS_NS	(3 * SECOND)

typedef struct Primary
{
	int			system;			/* from 1; 0: none, so the rule is not in force */
	uint32_t	timeline;		/* of its data */
	ElectionTimelines known[MAX_ELECTIONS];
} Primary;

static Primary primaries[MAX_PRIMARIES];
static bool has_systems;
static uint32_t newest[NSYSTEMS + 1];
static int	first_system[MAX_ELECTIONS];	/* of the primary that has the first key; 0: none has */
static uint32_t led[NSYSTEMS + 1][MAX_ELECTIONS];	/* the latest timeline that has led */
static bool abandoned_led[MAX_ELECTIONS];	/* an abandoned key has been the first */
static struct
{
	int64_t		lease;
	int			instance;
	int64_t		ended_ns;		/* its process, and nobody remembers the lease; 0: it lives */
	int64_t		asked_ns[MAX_PRIMARIES];	/* when others have asked about it first; 0: never */
}			grants[MAX_GRANTS];
static int	ngrants;
static uint64_t choices;

/* 0 to n - 1 */
static int
choose(int n)
{
	choices = choices * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int) ((choices >> 33) % (uint64_t) n);
}

void
primaries_reset(void)
{
	memset(primaries, 0, sizeof(primaries));
	memset(newest, 0, sizeof(newest));
	memset(led, 0, sizeof(led));
	memset(abandoned_led, 0, sizeof(abandoned_led));
	memset(first_system, 0, sizeof(first_system));
	ngrants = 0;
	choices = (plan.seed + 7) * UINT64_C(0x9E3779B97F4A7C15);
	has_systems = choose(3) == 0;
}

/* ---- what they are --------------------------------------------------------- */

void
primaries_configure(Instance *in)
{
	Primary    *p = &primaries[in->number];
	ElectionConfig *config = &in->config;

	if (p->system == 0)
		return;
	if (config->eligible && (config->in_recovery || p->timeline == 0))
	{
		p->timeline = ++newest[p->system];	/* it is promoted */
		config->in_recovery = false;
	}
	else if (!config->eligible && !config->in_recovery && choose(3) != 0)
		config->in_recovery = true;
	if (choose(20) == 0)
		config->refuses_second = !config->refuses_second;
	config->timeline = config->in_recovery ? 0 : p->timeline;
	trace(in->name, "is a %s of system %d, timeline %" PRIu32 "%s", config->timeline ? "primary" : "standby",
		  p->system, p->timeline, config->refuses_second ? "" : ", and waits");
}

void
primaries_begin(Instance *in)
{
	Primary    *p = &primaries[in->number];

	if (!has_systems || in->number >= MAX_PRIMARIES)
		return;
	if (p->system == 0)
	{
		p->system = 1 + (choose(4) == 0);
		in->config.refuses_second = choose(8) != 0;
		in->config.in_recovery = !in->config.eligible;
		snprintf(in->config.system_identifier, sizeof(in->config.system_identifier), "%d", p->system);
	}
}

void
primaries_started(const Instance *in)
{
	Primary    *p = &primaries[in->number];

	if (in->number >= MAX_PRIMARIES)
		return;
	/* a crash of the whole server forgets */
	if (in->next_start == SHARED_NEW)
		memset(p->known, 0, sizeof(p->known));
}

/* ---- what they do ---------------------------------------------------------- */

void
primaries_sent(const Instance *in, const EtcdRequest *request)
{
	if (!has_systems || in->number >= MAX_PRIMARIES)
		return;
	if (request->kind == ETCD_GRANT && ngrants < MAX_GRANTS)
	{
		memset(&grants[ngrants], 0, sizeof(grants[0]));
		grants[ngrants].lease = request->lease;
		grants[ngrants++].instance = in->number;
	}
	for (int i = 0; request->kind == ETCD_TIME_TO_LIVE && i < ngrants; i++)
	{
		if (grants[i].lease == request->lease && grants[i].asked_ns[in->number] == 0)
			grants[i].asked_ns[in->number] = now_ns;
	}
}

void
primaries_ended(const Instance *in)
{
	for (int i = 0; i < ngrants; i++)
	{
		if (grants[i].instance == in->number && grants[i].ended_ns == 0 && !in->remembers)
			grants[i].ended_ns = now_ns;
	}
}

static bool
is_second(const Instance *in, const ElectionTimelines *known)
{
	return in->config.refuses_second && in->config.timeline != 0 && known->accepted != in->config.timeline &&
		(known->refused == in->config.timeline || known->leading > in->config.timeline);
}

bool
primaries_stay_out(const Instance *in, const char *election)
{
	if (!has_systems || !is_second(in, &primaries[in->number].known[election_number(election)]))
		return false;
	/* one that leads goes on, whatever the settings are now */
	for (int slot = 0; slot < plan.slots; slot++)
	{
		if (strcmp(in->views[slot].name, election) == 0 && in->views[slot].token != 0)
			return false;
	}
	return true;
}

bool
primaries_may_yield(const Instance *in)
{
	return has_systems && in->number < MAX_PRIMARIES && primaries[in->number].system != 0 &&
		in->config.refuses_second && in->config.timeline != 0;
}

bool
primaries_ask_long(const Instance *in)
{
	int			part = plan.granted_part > 1 ? plan.granted_part : 1;

	return primaries_may_yield(in) && (plan.ttl_s[0] / part <= 1 || plan.ttl_s[1] / part <= 1);
}

/* Has the instance asked about that lease while its owner lived, or shortly after? */
static bool
has_asked(const Instance *in, int64_t lease)
{
	for (int i = 0; i < ngrants; i++)
	{
		int64_t		asked_ns = grants[i].asked_ns[in->number];

		if (grants[i].lease == lease && asked_ns != 0 &&
			primaries[grants[i].instance].system == primaries[in->number].system &&
			(grants[i].ended_ns == 0 || grants[i].ended_ns >= asked_ns - LAST_WORDS_NS))
			return true;
	}
	return false;
}

/* An instance may find itself a second primary by the lease of one that lives. */
static void
check_life(const Instance *in, const char *election)
{
	int64_t		leader = 0;
	bool		is_undone = plan.profile == PROFILE_RESTORE;

	for (int slot = 0; slot < plan.slots; slot++)
	{
		if (strcmp(in->views[slot].name, election) == 0)
			leader = in->views[slot].leader_revision;
	}
	/* its key may be on another lease by now */
	for (int v = store_versions() - 1; v >= 0; v--)
	{
		if (store_version(v)->create_revision == leader && has_asked(in, store_version(v)->lease))
			return;
		is_undone &= store_version(v)->create_revision != leader;
	}
	/* etcd was put back to a time before that key */
	if (!is_undone)
		fail_run("%s is a second primary in %s, but the other one had ended when it asked first", in->name, election);
}

void
primaries_remembered(const Instance *in, const char *election, const ElectionTimelines *timelines)
{
	Primary    *p = &primaries[in->number];
	int			e = election_number(election);

	if (p->system == 0)
		return;
	if (timelines->leading > led[p->system][e])
		fail_run("%s believes that timeline %" PRIu32 " has led %s", in->name, timelines->leading, election);
	if (timelines->refused != 0 && timelines->refused != p->known[e].refused)
		check_life(in, election);
	p->known[e] = *timelines;
}

void
primaries_published(const Instance *in, int slot, const ElectionView *old)
{
	const ElectionView *view = &in->views[slot];
	Primary    *p = &primaries[in->number];
	int			e = election_number(view->name);

	if (p->system == 0 || e < 0)
		return;
	if (view->state == ELECTION_SECOND_PRIMARY && old->state != view->state && !is_second(in, &p->known[e]))
		fail_run("%s stays out of %s as a second primary, and would not know why after a restart", in->name,
				 view->name);
	if (view->token != 0 && view->token != old->token && is_second(in, &p->known[e]))
		fail_run("%s leads %s, though it is a second primary", in->name, view->name);
}

/* Does the instance delete its key of that election?  Without rights, it cannot. */
static bool
is_leaving(const Instance *in, int e)
{
	for (int slot = 0; slot < plan.slots; slot++)
	{
		if (strcmp(in->views[slot].name, election_name(e)) == 0)
			return in->views[slot].state == ELECTION_LEAVING;
	}
	return false;
}

/*
 * Has the process ended that has made this key, or does it leave the election?  The name of
 * the key has the lease that it began on.
 */
static bool
is_abandoned(int e, const char *name)
{
	const char *lease = strrchr(name, '/');

	for (int i = 0; lease != NULL && i < ngrants; i++)
	{
		if (strtoll(lease + 1, NULL, 16) == grants[i].lease)
			return grants[i].ended_ns != 0 || is_leaving(&instances[grants[i].instance], e);
	}
	return false;
}

void
primaries_first(int e, EtcdBytes key)
{
	char		name[ELECTION_KEY_SIZE];
	const char *owner;
	int			system;
	uint32_t	timeline;

	first_system[e] = 0;
	if (!has_systems || key.len >= sizeof(name))
		return;
	memcpy(name, key.data, key.len);
	name[key.len] = '\0';
	owner = strchr(name, '.');
	if (owner == NULL || sscanf(owner, ".%d.%" SCNu32 ".pg", &system, &timeline) != 2 || timeline == 0)
		return;
	first_system[e] = system;
	abandoned_led[e] |= is_abandoned(e, name);
	if (timeline > led[system][e])
		led[system][e] = timeline;
}

/* ---- the end --------------------------------------------------------------- */

/* An instance that would take the leadership from another primary of its system. */
static bool
lies_in_wait(const Instance *in, int e)
{
	const Primary *p = &primaries[in->number];

	for (int slot = 0; slot < plan.slots; slot++)
	{
		if (strcmp(in->views[slot].name, election_name(e)) == 0 && in->views[slot].state == ELECTION_WAITING)
			return p->system != 0 && p->system == first_system[e] && in->config.refuses_second &&
				in->config.timeline != 0 && p->known[e].accepted != in->config.timeline;
	}
	return false;
}

void
primaries_recovered(int e)
{
	for (int i = 0; has_systems && i < ninstances; i++)
	{
		if (instances[i].running && lies_in_wait(&instances[i], e))
			fail_run("%s waits in %s behind another primary of its system", instances[i].name, election_name(e));
	}
	for (int system = 1; has_systems && system <= NSYSTEMS; system++)
	{
		int			n = 0;
		int			nsecond = 0;

		for (int i = 0; i < ninstances; i++)
		{
			if (primaries[i].system != system)
				continue;
			n++;
			nsecond += instances[i].running && instances[i].config.eligible &&
				primaries_stay_out(&instances[i], election_name(e));
		}
		if (n == 2 && nsecond == 2 && !abandoned_led[e] && plan.profile != PROFILE_RESTORE && plan.stale_reads == 0)
			fail_run("both primaries of system %d are second ones in %s", system, election_name(e));
	}
}
