/*-------------------------------------------------------------------------
 *
 * faults.c
 *	  The faults of instances, network and etcd, and the commands.  Each kind
 *	  of fault can begin every tenth of a second, with the probability of the
 *	  plan.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checker.h"
#include "cluster.h"
#include "faults.h"
#include "foreign.h"
#include "network.h"
#include "plan.h"
#include "primaries.h"
#include "rights.h"

#define TICK_NS		(100 * MS)

/* The number of settings that reconfigure() can change. */
#define NSETTINGS	6
#define SETTING_ELIGIBLE	1
#define SETTING_MARGIN	4

static bool over;
static int64_t undone_revision;	/* the revision of etcd before it was put back */
static Instance *doomed;		/* loses contact at its next read */
static uint64_t choices;		/* numbers of its own: see choose() */

static void command_again(void *subject, uint64_t tag);

/* 0 to n - 1.  A run without these choices draws the same other numbers. */
static int
choose(int n)
{
	choices = choices * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int) ((choices >> 33) % (uint64_t) n);
}

/* ---- durations --------------------------------------------------------------- */

/* Draws a duration: much shorter than a TTL, about a TTL, or several TTLs. */
static int64_t
draw_duration(void)
{
	int64_t		ttl_ns = plan.ttl_s[0] * SECOND;

	if (random_chance(plan.about_ttl))
		return random_between(ttl_ns * 4 / 5, ttl_ns + SECOND);
	switch (random_below(4))
	{
		case 0:
			return random_between(10 * MS, 500 * MS);
		case 1:
			return random_between(100 * MS, ttl_ns / 2);
		case 2:
			return random_between(ttl_ns / 2, ttl_ns * 3 / 2);
		default:
			return random_between(ttl_ns, 3 * ttl_ns);
	}
}

/* ---- network and members --------------------------------------------------------- */

static void
join_instance(void *subject, uint64_t m)
{
	Instance   *in = subject;

	for (int i = 0; i < cluster.nmembers; i++)
	{
		if (m == MAX_MEMBERS || i == (int) m)
			link_cut(in->number, i, false);
	}
	trace(in->name, "reaches etcd again");
	checker_stimulus(in);
}

static void
join_member(void *subject, uint64_t m)
{
	member_cut((int) m, false);
}

static void
wake_member(void *subject, uint64_t m)
{
	member_pause((int) m, false);
}

static void
start_member(void *subject, uint64_t m)
{
	member_start((int) m);
}

static void
speed_up_member(void *subject, uint64_t m)
{
	cluster.members[m].lag_ns = 0;
}

static void
elect_member(void *subject, uint64_t m)
{
	if (!over && cluster_works() && members_connected((int) m, cluster.leader))
		cluster_elect((int) m);
}

static void
calm_down(void *subject, uint64_t tag)
{
	network_storm(false);
}

static void
cut_off_instance(Instance *in, bool from_all)
{
	int			m = from_all ? MAX_MEMBERS : random_below(cluster.nmembers);

	trace(in->name, "is cut off from %s", from_all ? "etcd" : cluster.members[m].name);
	for (int i = 0; i < cluster.nmembers; i++)
	{
		if (from_all || i == m)
			link_cut(in->number, i, true);
	}
	events_after(draw_duration(), join_instance, in, m);
	/* the deadline comes nearer, and sometimes the margin is changed meanwhile */
	if (plan.changes_margins)
		events_after(random_between(0, plan.ttl_s[0] * SECOND), command_again, in,
					 FAULT_CONFIGURE * NSETTINGS + SETTING_MARGIN);
}

/* Draws a member, most often the leader. */
static int
draw_member(void)
{
	if (cluster.leader >= 0 && random_chance(5000))
		return cluster.leader;
	return random_below(cluster.nmembers);
}

/* ---- instances ---------------------------------------------------------------------- */

static void
restart(void *subject, uint64_t tag)
{
	Instance   *in = subject;

	if (!in->running)
		instance_start(in);
}

static void
resume(void *subject, uint64_t life)
{
	Instance   *in = subject;

	if (in->running && in->paused && in->life == life)
		instance_resume(in);
}

/*
 * A standby is promoted, and etcd's leader changes, while the lease of the dead primary
 * lasts.
 */
static void
fail_over(void)
{
	for (int i = 0; i < ninstances; i++)
	{
		if (instances[i].config.in_recovery)
		{
			events_after(choose(SECOND), command_again, &instances[i],
						 FAULT_CONFIGURE * NSETTINGS + SETTING_ELIGIBLE);
			events_after(choose(plan.ttl_s[0]) * SECOND + choose(SECOND), elect_member, NULL,
						 choose(cluster.nmembers));
			return;
		}
	}
}

/* The elector crashes.  Mostly it is soon back if the postmaster lives. */
static void
crash(Instance *in, bool keeps_memory, int64_t latest_ns)
{
	instance_crash(in, random_chance(5000), keeps_memory);
	if (!keeps_memory && choose(2) == 0)
		fail_over();
	events_after(keeps_memory && random_chance(8000) ? random_between(5 * MS, latest_ns) : draw_duration(),
				 restart, in, 0);
}

void
faults_died(Instance *in)
{
	crash(in, random_chance(8000), 2 * SECOND);
}

static bool
is_usable(const Instance *in)
{
	return in->running && !in->paused && !in->stopping;
}

/* Draws a slot that is in use; -1 if there is none. */
static int
draw_slot(const Instance *in)
{
	int			slot = random_below(plan.slots);

	return in->views[slot].name[0] != '\0' ? slot : -1;
}

/* The margin of the plan, or a greater one: it must cover the drift of the clocks. */
static int
draw_margin_ms(void)
{
	int			least_ms = plan.margin_ms >= 0 ? plan.margin_ms : plan_longest_ttl_s() * 100;

	return random_chance(5000) ? plan.margin_ms : least_ms + random_below(4 * least_ms + 1);
}

static void
reconfigure(Instance *in, int setting)
{
	ElectionConfig *config = &in->config;
	int			e;

	switch (setting)
	{
		case 0:
			config->ttl_s = plan.ttl_s[config->ttl_s == plan.ttl_s[0]];
			break;
		case SETTING_ELIGIBLE:
			config->eligible = !config->eligible;
			break;
		case 2:
			/* removes or adds an election */
			if (config->nelections > 1 && random_chance(5000))
			{
				e = random_below(config->nelections);
				memmove(config->elections[e], config->elections[config->nelections - 1],
						sizeof(config->elections[0]));
				config->nelections--;
				break;
			}
			for (e = 0; e < plan.nelections; e++)
			{
				bool		there = false;

				for (int i = 0; i < config->nelections; i++)
					there |= strcmp(config->elections[i], election_name(e)) == 0;
				if (!there)
				{
					strcpy(config->elections[config->nelections++], election_name(e));
					break;
				}
			}
			break;
		case 3:
			if (plan.has_twins && random_chance(3000))
				snprintf(config->node_name, sizeof(config->node_name), "twin");
			else
				snprintf(config->node_name, sizeof(config->node_name), "%s-%d", in->name, random_below(3));
			break;
		case SETTING_MARGIN:
			if (plan.changes_margins)
			{
				config->safety_margin_ms = draw_margin_ms();
				checker_trouble(in);
				break;
			}
			/* FALLTHROUGH */
		default:
			config->nendpoints = 1 + random_below(3);
			break;
	}
	instance_configure(in);
}

/*
 * Sets the preferred nodes.  Either all instances have the same list, or each
 * has a list of the others, which begins behind its own number.
 */
static void
prefer(Instance *in)
{
	ElectionConfig *config = &in->config;

	for (int i = 0; plan.preferred != 0 && i < ninstances - 1; i++)
	{
		int			who = plan.preferred == 1 ? i : (in->number + 1 + i) % ninstances;

		snprintf(config->preferred_nodes[config->npreferred++], ELECTION_VALUE_SIZE, "%s", instances[who].name);
	}
	config->preferred_delay_ms = plan.preferred_delay_ms;
	config->preferred_drain_ms = plan.preferred_drain_ms;
}

static void
begin_instance(void *subject, uint64_t tag)
{
	Instance   *in = subject;
	ElectionConfig *config = &in->config;

	if (in->running || over)
		return;
	snprintf(config->node_name, sizeof(config->node_name), "%s", in->name);
	config->ttl_s = plan.ttl_s[0];
	config->safety_margin_ms = plan.margin_ms;
	config->eligible = random_chance(9000);
	config->nendpoints = plan.nendpoints;
	config->nelections = plan.nelections;
	for (int e = 0; e < plan.nelections; e++)
		strcpy(config->elections[e], election_name(e));
	prefer(in);
	primaries_begin(in);
	instance_start(in);
}

/* ---- writes of an operator ----------------------------------------------------------------- */

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

static void
operate(EtcdRequestKind kind, int64_t lease, EtcdOpKind op_kind, EtcdBytes key, int64_t key_lease,
		const char *value)
{
	EtcdOp		op = {.kind = op_kind, .key = key, .lease = key_lease};
	EtcdRequest request = {.kind = kind, .lease = lease, .ttl_s = 2};
	EtcdAnswer	answer;

	op.value = bytes_of(value);
	request.success = &op;
	request.nsuccess = kind == ETCD_TXN;
	(void) cluster_write(&request, BY_OPERATOR, &answer);
}

/* Draws a key of a queue; NULL if there is none. */
static const Version *
draw_key(void)
{
	const Version *version;

	if (store_live_count() == 0)
		return NULL;
	version = store_live(random_below(store_live_count()));
	return memchr(store_key(version->key)->name.data, '/', store_key(version->key)->name.len) != NULL ?
		version : NULL;
}

/* The owner of that key is asked whether it leads, just now or soon. */
static void
verify_owner(EtcdBytes key)
{
	for (int i = 0; i < ninstances; i++)
	{
		for (int slot = 0; slot < plan.slots; slot++)
		{
			if (is_usable(&instances[i]) && choose(2) == 0 &&
				bytes_equal(bytes_of(instances[i].views[slot].key), key))
				instance_verify(&instances[i], slot);
		}
	}
}

static void
touch_key(Fault fault, const Version *version)
{
	EtcdBytes	key;
	int64_t		lease;

	if (version == NULL || !cluster_works())
		return;
	key = store_key(version->key)->name;
	trace("operator", "%s %.*s", fault == FAULT_DELETE_KEY ? "deletes" : fault == FAULT_REVOKE_LEASE ?
		  "revokes the lease of" : "hangs up elsewhere", (int) key.len, key.data);
	switch (fault)
	{
		case FAULT_DELETE_KEY:
			operate(ETCD_TXN, 0, ETCD_OP_DELETE, key, 0, "");
			break;
		case FAULT_REVOKE_LEASE:
			if (version->lease != 0)
				operate(ETCD_REVOKE, version->lease, ETCD_OP_RANGE, key, 0, "");
			break;
		default:
			lease = random_chance(3000) ? 0 : (int64_t) (random_next() >> 2) + 1;
			if (lease != 0)
				operate(ETCD_GRANT, lease, ETCD_OP_RANGE, key, 0, "");
			operate(ETCD_TXN, 0, ETCD_OP_PUT, key, lease, "operator");
			break;
	}
	verify_owner(key);	/* the version may have moved in memory */
}

/* A rogue key is under a prefix and has no lease.  It blocks all behind it. */
static void
remove_rogue(void *subject, uint64_t tag)
{
	operate(ETCD_TXN, 0, ETCD_OP_DELETE, bytes_of(subject), 0, "");
}

static void
put_rogue(void)
{
	char		key[ELECTION_NAME_SIZE + 8];

	snprintf(key, sizeof(key), "%s/rogue", election_name(random_below(plan.nelections)));
	operate(ETCD_TXN, 0, ETCD_OP_PUT, bytes_of(key), 0, "rogue");
	events_after(random_between(0, 3 * SECOND), remove_rogue, run_copy(key, strlen(key)), 0);
}

static void
write_other(void)
{
	EtcdOp		op = {.kind = ETCD_OP_PUT};
	EtcdRequest request = {.kind = ETCD_TXN, .success = &op, .nsuccess = 1};
	EtcdAnswer	answer;

	op.key = bytes_of("other");
	op.value = bytes_of("x");
	(void) cluster_write(&request, BY_FOREIGN, &answer);
}

/*
 * Replaces etcd's data by an older copy, as the same cluster or as another one.
 * The raft terms begin again at 2, or continue above the term of the copy.
 */
static void
restore(void *subject, uint64_t tag)
{
	int64_t		index = random_between(store_index() / 3, store_index() - 1);
	bool		other = random_chance(3000);
	uint64_t	term = random_chance(5000) ? 2 : store_entry(index)->term + 1 + (uint64_t) random_below(4);

	if (over || index < 1)
		return;
	checker_history_ends();
	undone_revision = store_revision();
	cluster_restore(index, term, other);
	checker_history_begins();
}

/* ---- commands ----------------------------------------------------------------------------- */

static void command(Instance *in, Fault fault, int setting);

/* For how long a hand-over may drain. */
static int64_t
draw_drain(void)
{
	return random_chance(plan.drains) ? random_between(MS, 2 * plan_longest_ttl_s() * SECOND) : 0;
}

/*
 * Commands a transfer to a candidate that is in the queue now, mostly on the
 * leader.
 */
static void
transfer(Instance *in, int slot)
{
	char		election[ELECTION_NAME_SIZE];
	char		node[ELECTION_VALUE_SIZE] = "nobody";
	int			n = 0;

	snprintf(election, sizeof(election), "%s", in->views[slot].name);
	for (int i = 0; i < ninstances && random_chance(9000); i++)
	{
		for (int s = 0; s < plan.slots; s++)
		{
			if (is_usable(&instances[i]) && instance_leads(&instances[i], s) &&
				strcmp(instances[i].views[s].name, election) == 0)
			{
				in = &instances[i];
				slot = s;
			}
		}
	}
	for (int i = 0; i < store_live_count(); i++)
	{
		const Version *version = store_live(i);
		EtcdBytes	key = store_key(version->key)->name;
		size_t		len = strlen(election);

		if (key.len > len && memcmp(key.data, election, len) == 0 && key.data[len] == '/' &&
			version->value.len < sizeof(node) && random_below(++n) == 0)
			snprintf(node, sizeof(node), "%.*s", (int) version->value.len, version->value.data);
	}
	instance_transfer(in, slot, node, random_between(10 * MS, 2 * plan_longest_ttl_s() * SECOND), draw_drain());
}

static void
command_again(void *subject, uint64_t tag)
{
	if (!over)
		command(subject, (Fault) (tag / NSETTINGS), tag % NSETTINGS);
}

/*
 * Gives a command.  With the probability plan.haste another one follows before
 * the first can be done, and often reverses it.
 */
static void
command(Instance *in, Fault fault, int setting)
{
	int			slot = draw_slot(in);
	Fault		next = FAULT_RESIGN + random_below(4);
	char		value[32];

	if (!is_usable(in))
		return;
	if (fault == FAULT_CONFIGURE)
		reconfigure(in, setting);
	else if (slot >= 0 && in->views[slot].state == ELECTION_DRAINING && random_chance(4000))
		instance_cancel(in, slot);
	else if (slot >= 0 && in->views[slot].state == ELECTION_DRAINING && random_chance(2000))
		instance_campaign(in, slot);
	else if (slot >= 0 && fault == FAULT_RESIGN)
		instance_resign(in, slot, random_chance(7000), draw_drain());
	else if (slot >= 0 && fault == FAULT_CAMPAIGN)
		instance_campaign(in, slot);
	else if (slot >= 0 && fault == FAULT_TRANSFER)
		transfer(in, slot);
	else if (slot >= 0)
	{
		snprintf(value, sizeof(value), "value %d", random_below(30));
		instance_proclaim(in, slot, value);
	}
	if (!random_chance(plan.haste))
		return;
	if (fault == FAULT_TRANSFER && random_chance(7000))
		next = random_chance(5000) ? FAULT_TRANSFER : FAULT_RESIGN;
	else if (random_chance(5000))
		next = fault == FAULT_RESIGN ? FAULT_CAMPAIGN : fault == FAULT_CAMPAIGN ? FAULT_RESIGN : fault;
	else
		setting = random_below(NSETTINGS);
	events_after(random_between(0, random_chance(5000) ? 20 * MS : SECOND), command_again, in,
				 next * NSETTINGS + setting);
}

/* Stops etcd's leader.  False if no successor would be elected at once. */
static bool
stop_leader(int leader, int64_t ns)
{
	for (int m = 0; m < cluster.nmembers; m++)
	{
		if (!member_runs(m))
			return false;
	}
	member_pause(leader, true);
	events_after(ns, wake_member, NULL, leader);
	return true;
}

static void
stop_known(void *subject, uint64_t tag)
{
	if (!over && cluster.leader == 0)
		(void) stop_leader(0, random_between(plan.ttl_s[0] * SECOND / 3, plan.ttl_s[0] * SECOND));
}

/*
 * Stops the only member that clients know, while it leads etcd.  Sometimes an
 * instance resigns just before, and again while it enters.  It then leaves the
 * queue during the stop, and its entry may still come.
 */
static void
pause_known(Instance *in)
{
	int			nresigns = random_chance(10 * plan.fault[FAULT_RESIGN]) ? random_between(1, 4) : 0;

	if (cluster.leader != 0)
	{
		elect_member(NULL, 0);
		return;
	}
	for (int i = 0; i < nresigns; i++)
		events_after(random_between(0, SECOND / 2), command_again, in, FAULT_RESIGN * NSETTINGS);
	events_after(random_between(0, SECOND / 2), stop_known, NULL, 0);
}

/* ---- rights ------------------------------------------------------------------------------- */

static void
set_rights(int e, Rights new_rights)
{
	trace("operator", "%s %s", new_rights == RIGHTS_ALL ? "gives the rights to" :
		  new_rights == RIGHTS_NONE ? "takes the rights to" : "takes the right to write", election_name(e));
	rights_set(e, new_rights);
	for (int i = 0; i < ninstances; i++)
		checker_stimulus(&instances[i]);
}

static void
give_rights(void *subject, uint64_t e)
{
	set_rights((int) e, RIGHTS_ALL);
}

static void
take_rights(void *subject, uint64_t tag)
{
	int			e = random_below(plan.nelections);
	int64_t		duration_ns = random_chance(3000) ? random_between(0, 200 * MS) : 2 * draw_duration();

	if (over)
		return;
	set_rights(e, random_chance(7000) ? RIGHTS_NONE : RIGHTS_TO_READ);
	events_after(duration_ns, give_rights, NULL, e);
	events_after(duration_ns + draw_duration(), take_rights, subject, tag);
}

/* ---- the draw ----------------------------------------------------------------------------- */

static void
happen(Fault fault)
{
	Instance   *in = &instances[random_below(ninstances)];
	int			m = draw_member();

	switch (fault)
	{
		case FAULT_CUT_INSTANCE:
		case FAULT_CUT_LINK:
			cut_off_instance(in, fault == FAULT_CUT_INSTANCE);
			break;
		case FAULT_CUT_MEMBER:
			member_cut(m, true);
			events_after(draw_duration(), join_member, NULL, m);
			break;
		case FAULT_SLOW_MEMBER:
			cluster.members[m].lag_ns = random_between(10 * MS, 3 * SECOND);
			events_after(draw_duration(), speed_up_member, NULL, m);
			break;
		case FAULT_CRASH_MEMBER:
			member_crash(m);
			events_after(draw_duration(), start_member, NULL, m);
			break;
		case FAULT_PAUSE_MEMBER:
			member_pause(m, true);
			events_after(draw_duration(), wake_member, NULL, m);
			break;
		case FAULT_PAUSE_KNOWN:
			pause_known(in);
			break;
		case FAULT_ELECT:
			elect_member(NULL, m);
			if (random_chance(3000))
				events_after(random_between(0, SECOND), elect_member, NULL, draw_member());
			break;
		case FAULT_PAUSE_INSTANCE:
			if (is_usable(in))
			{
				instance_pause(in);
				events_after(draw_duration(), resume, in, in->life);
			}
			break;
		case FAULT_CRASH_INSTANCE:
			if (in->running && !in->stopping)
			{
				bool		keeps_memory = random_chance(6000);
				int			slot = draw_slot(in);
				bool		resigns = is_usable(in) && slot >= 0 && random_chance(5000);

				/* these requests are under way at the crash, and mostly at the restart, too */
				if (resigns)
					instance_resign(in, slot, true, draw_drain());
				if (in->running)
					crash(in, keeps_memory, resigns ? 50 * MS : 2 * SECOND);
			}
			break;
		case FAULT_DIE:
			if (in->running && !in->stopping)
				in->outputs_left = 1 + random_below(40);
			break;
		case FAULT_STOP_INSTANCE:
			if (is_usable(in))
			{
				instance_stop(in);
				events_after(SECOND + draw_duration(), restart, in, 0);
			}
			break;
		case FAULT_RESIGN:
		case FAULT_CAMPAIGN:
		case FAULT_PROCLAIM:
		case FAULT_CONFIGURE:
		case FAULT_TRANSFER:
			command(in, fault, random_below(NSETTINGS));
			break;
		case FAULT_DELETE_KEY:
		case FAULT_RELEASE_KEY:
		case FAULT_REVOKE_LEASE:
			touch_key(fault, draw_key());
			break;
		case FAULT_ROGUE_KEY:
			put_rogue();
			break;
		case FAULT_OTHER_WRITE:
			write_other();
			break;
		case FAULT_COMPACT:
			(void) cluster_compact(random_between(store_revision() * 2 / 3, store_revision()));
			break;
		case FAULT_FOREIGN:
			foreign_begin(random_below(plan.nelections));
			break;
		case FAULT_STORM_OF_LOSS:
			network_storm(true);
			events_after(draw_duration(), calm_down, NULL, 0);
			break;
		case NFAULTS:
			break;
	}
}

static void
lose_contact(void *subject, uint64_t ns)
{
	Instance   *in = subject;

	if (over)
		return;
	trace(in->name, "is cut off from etcd");
	for (int m = 0; m < cluster.nmembers; m++)
		link_cut(in->number, m, true);
	events_after((int64_t) ns, join_instance, in, MAX_MEMBERS);
}

/* The instance that leads on that lease; NULL if there is none. */
static Instance *
leader_on(int64_t lease)
{
	for (int i = 0; i < ninstances; i++)
	{
		for (int slot = 0; slot < plan.slots; slot++)
		{
			if (instances[i].views[slot].deadline_ns != 0 && instances[i].views[slot].lease == lease)
				return &instances[i];
		}
	}
	return NULL;
}

/*
 * A keepalive and its confirming read can now fall into two terms.  Stops
 * etcd's leader until leases begin to expire in its own view.  Then either most
 * instances lose contact, before they learn of the new leader of etcd; or one
 * instance loses contact just after its read.
 */
void
faults_at_renewal(int leader, int64_t lease)
{
	int64_t		ttl_ns = plan.ttl_s[0] * SECOND;

	if (over || !random_chance(plan.stop_at_renewal) ||
		!stop_leader(leader, random_between(ttl_ns * 2 / 3, ttl_ns)))
		return;
	doomed = random_chance(5000) ? leader_on(lease) : NULL;
	for (int i = 0; i < ninstances && doomed == NULL; i++)
	{
		if (random_chance(7000))
			events_after(random_between(0, plan.request_timeout_ms * MS), lose_contact, &instances[i], 2 * ttl_ns);
	}
}

static void
stop_granter(void *subject, uint64_t index)
{
	Member	   *leader = subject;
	int64_t		ttl_ns = plan.ttl_s[0] * SECOND;

	if (leader->applied < (int64_t) index && !over)
		events_after(MS / 20, stop_granter, subject, index);
	else if (!over)
		(void) stop_leader((int) (leader - cluster.members), ttl_ns + random_between(0, ttl_ns / 2));
}

/*
 * The answer to a grant can now come in another term than the grant.  The
 * leader knows the lease, and the other members have not applied it.  Stops the
 * leader until the lease has expired in its own view.
 */
void
faults_at_grant(int leader, int member)
{
	/* the instances are about to move their keys to that lease */
	for (int i = 0; i < ninstances && !over && random_chance(plan.proclaim_at_grant); i++)
		command(&instances[i], FAULT_PROCLAIM, 0);
	for (int i = 0; i < ninstances && plan.changes_margins && !over; i++)
		events_after(random_between(0, 4 * (plan.link_delay_ns + plan.link_jitter_ns)), command_again,
					 &instances[i], FAULT_CONFIGURE * NSETTINGS + SETTING_MARGIN);
	if (leader != member && random_chance(plan.stop_at_grant))
		stop_granter(&cluster.members[leader], store_index());
}

/* The answer can now come in the term of the next leader of etcd. */
void
faults_at_time_to_live(void)
{
	if (!over && choose(3) == 0)
		elect_member(NULL, choose(cluster.nmembers));
}

/* Changes a key after it was read, and before the answer arrives. */
void
faults_at_read(const EtcdRequest *request)
{
	const Version *version = store_find(request->success[0].key);

	if (over || version == NULL)
		return;
	if (doomed != NULL && leader_on(version->lease) == doomed)
	{
		events_after(random_between(0, 4 * plan.link_delay_ns), lose_contact, doomed,
					 2 * plan.ttl_s[0] * SECOND);
		doomed = NULL;
	}
	if (random_chance(plan.touch_at_read))
		touch_key(random_chance(5000) ? FAULT_RELEASE_KEY : FAULT_DELETE_KEY, version);
}

static void
tick(void *subject, uint64_t tag)
{
	Instance   *in = &instances[choose(ninstances)];
	int			slot = choose(plan.slots);

	if (over)
		return;
	if (choose(60) == 0 && is_usable(in) && in->views[slot].name[0] != '\0')
		instance_verify(in, slot);
	for (int fault = 0; fault < NFAULTS; fault++)
	{
		if (random_chance(plan.fault[fault]))
			happen((Fault) fault);
	}
	events_after(TICK_NS - random_between(0, MS), tick, subject, tag);
}

void
faults_begin(void)
{
	over = false;
	undone_revision = 0;
	doomed = NULL;
	choices = (plan.seed + 3) * UINT64_C(0x9E3779B97F4A7C15);
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];
		int64_t		drift_ppb = plan.drift_ppm * INT64_C(1000);

		/* most clocks differ by as much as the margin allows */
		switch (random_below(3))
		{
			case 0:
				in->clock_ppb = SECOND - drift_ppb;
				break;
			case 1:
				in->clock_ppb = SECOND + drift_ppb;
				break;
			default:
				in->clock_ppb = random_between(SECOND - drift_ppb, SECOND + drift_ppb);
				break;
		}
		events_after(random_between(0, random_chance(5000) ? 20 * MS : 3 * SECOND), begin_instance, in, 0);
	}
	if (plan.restore_ns != 0)
		events_at(plan.restore_ns, restore, NULL, 0);
	/* two faults may last at once; a loss just after the start is excused */
	for (int i = 0; plan.takes_rights && i < 2; i++)
		events_after((plan.profile == PROFILE_CALM ? 2 * plan.ttl_s[0] * SECOND : 0) + draw_duration(),
					 take_rights, NULL, 0);
	events_after(TICK_NS, tick, NULL, 0);
}

/*
 * Removes what would prevent recovery for ever: foreign candidates, and keys
 * without a lease.  If etcd was put back, either an operator commands a
 * campaign on the instances that hold back, or etcd's revision goes on to where
 * it was.
 */
static void
sweep(void *subject, uint64_t round)
{
	if (!cluster_works())
	{
		events_after(100 * MS, sweep, subject, round);
		return;
	}
	foreign_end_all();
	for (int i = store_live_count() - 1; i >= 0; i--)
	{
		const Version *version = store_live(i);
		EtcdBytes	key = store_key(version->key)->name;

		if (version->lease == 0 && memchr(key.data, '/', key.len) != NULL)
			operate(ETCD_TXN, 0, ETCD_OP_DELETE, key, 0, "");
	}
	if (undone_revision == 0)
		return;
	if (plan.seed % 2 == 0)
	{
		while (store_revision() <= undone_revision)
			write_other();
		return;
	}
	for (int i = 0; i < ninstances; i++)
	{
		for (int slot = 0; slot < plan.slots; slot++)
		{
			if (is_usable(&instances[i]) && instances[i].views[slot].state == ELECTION_HELD_BACK)
				instance_campaign(&instances[i], slot);
		}
	}
	if (round < 20)
		events_after(SECOND, sweep, subject, round + 1);
}

void
faults_end(void)
{
	trace("", "---- faults end ----");
	over = true;
	plan.loss = plan.slow = plan.repeat = plan.garbage = plan.late_writes = plan.dead_streams = 0;
	plan.link_delay_ns = MS;
	plan.link_jitter_ns = 5 * MS;
	plan.compaction_hides = false;
	plan.latest_expiry_ns = SECOND;
	network_storm(false);
	for (int e = 0; plan.takes_rights && e < plan.nelections; e++)
		give_rights(NULL, e);
	for (int m = 0; m < cluster.nmembers; m++)
	{
		cluster.members[m].lag_ns = 0;
		member_start(m);
		member_pause(m, false);
		member_cut(m, false);
	}
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];

		in->outputs_left = 0;
		for (int m = 0; m < cluster.nmembers; m++)
			link_cut(i, m, false);
		if (in->stopping)
			continue;
		/* its inbox was sent under the old settings, so they change afterwards */
		if (in->running && in->paused)
			instance_resume(in);
		in->config.npreferred = 0;
		if (!in->running && in->life > 0)
			instance_start(in);
	}
	for (int i = 0; plan.preferred != 0 && i < ninstances; i++)
	{
		if (is_usable(&instances[i]))
			instance_configure(&instances[i]);
	}
	events_after(plan.election_timeout_ns, sweep, NULL, 0);
}
