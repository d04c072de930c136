/*-------------------------------------------------------------------------
 *
 * follow.c
 *	  Simulates elections that follow Patroni: the plan of a run, its faults
 *	  and what happens in it.  A Patroni (agent.c) runs beside each instance.
 *	  In half of the runs the instances have an election of their own, too.
 *	  follow_checker.c has what must hold.  The other parts are those of the
 *	  main simulator.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "agent.h"
#include "checker.h"
#include "faults.h"
#include "follow.h"
#include "network.h"
#include "plan.h"
#include "primaries.h"
#include "run.h"

#define TICK_NS		(100 * MS)
#define RECOVERY_NS	(60 * SECOND)

#define ONE_OF(...) \
	((const int[]) {__VA_ARGS__}[random_below((int) (sizeof((const int[]) {__VA_ARGS__}) / sizeof(int)))])

Plan		plan;

bool		over;
bool		at_rest;
bool		put_back;

static bool away;				/* all members of etcd are down */
static int64_t next_deletion_ns;
static int64_t begin_index;		/* etcd's state at the beginning of the run */
static int	fault_rate;

/* ---- the plan of a run --------------------------------------------------------- */

const char *
profile_name(Profile profile)
{
	return "patroni";
}

int
plan_granted_ttl_s(int asked_s)
{
	int			least_s = plan_least_ttl_s();

	return asked_s < least_s ? least_s : asked_s;
}

int
plan_least_ttl_s(void)
{
	return (int) ((3 * plan.election_timeout_ns / 2 + SECOND - 1) / SECOND);
}

int
plan_longest_ttl_s(void)
{
	return agents_ttl_s;
}

/*
 * The margin, at least a second, has to cover this drift and deposed leaders of
 * etcd.  That of the own election has no least.
 */
static void
draw_clocks(void)
{
	int			margin_s = 1;

	if (random_chance(plan.touch_at_read > 0 ? 7000 : 3000))
		plan.margin_ms = 0;
	else if (agents_ttl_s > 10)
		margin_s = agents_ttl_s / 10;
	if (plan.election_timeout_ns < SECOND && random_chance(5000) && (plan.margin_ms != 0 || plan.slots == 1))
		plan.drift_ppm = 500000 * margin_s / agents_ttl_s;
}

/* Draws faults that only some runs have. */
static void
draw_more(void)
{
	plan.fault[FAULT_RESIGN] = random_chance(5000) ? 50 : 0;
	plan.fault[FAULT_CONFIGURE] = random_chance(3000) ? 50 : 0;
	plan.fault[FAULT_DELETE_KEY] = random_chance(2000) ? 100 : 0;
	if (random_chance(5000))
	{
		plan.stale_reads = (int) random_between(3000, 10000);
		plan.nmembers = 3;
		if (random_chance(5000))
		{
			plan.nendpoints = 1;
			plan.fault[FAULT_PAUSE_KNOWN] = (int) random_between(50, 300);
			plan.stop_at_renewal = (int) random_between(0, 5000);
		}
	}
	if (random_chance(4000))
	{
		/* requests are answered in any order, while something happens */
		plan.touch_at_read = (int) random_between(500, 5000);
		plan.link_jitter_ns = random_between(50 * MS, 400 * MS);
		/* leases differ much, by age or by TTL */
		agents_ttl_s = 20;
		agents_loop_ns = ONE_OF(1, 8) * SECOND;
	}
	if (plan.stop_at_renewal == 0 && random_chance(3000))
		plan.stop_at_renewal = (int) random_between(300, 1500);
	if (random_chance(3000))
		plan.restore_ns = random_between(plan.faults_end_ns / 4, plan.faults_end_ns / 2);
}

void
plan_draw(uint64_t seed)
{
	memset(&plan, 0, sizeof(plan));
	random_seed(seed);
	plan.seed = seed;
	plan.ninstances = ONE_OF(1, 2, 2, 3, 3);
	plan.nelections = 1;
	plan.slots = random_chance(5000) ? 2 : 1;
	plan.nmembers = random_chance(6000) ? 3 : 1;
	plan.nendpoints = ONE_OF(1, 2, 3);
	plan.dialect = 1 + random_below(2);
	plan.granted_part = 1;
	plan.ensures_leadership = random_chance(5000);
	plan.early_lessor = random_chance(3000);
	plan.pre_vote = random_chance(5000);
	plan.election_timeout_ns = ONE_OF(200, 1000) * MS;
	plan.late_expiry = 2000;
	plan.latest_expiry_ns = SECOND;
	plan.expiry_lateness_ns = random_chance(5000) ? 500 * MS : 0;
	plan.link_delay_ns = random_between(MS / 10, 3 * MS);
	plan.link_jitter_ns = random_between(0, random_chance(2000) ? 200 * MS : 5 * MS);
	plan.apply_delay_ns = random_between(0, 5 * MS);
	plan.ttl_s[0] = plan.ttl_s[1] = ONE_OF(2, 5, 10);
	plan.margin_ms = -1;
	plan.request_timeout_ms = random_between(300, 3000);
	if (random_chance(5000))
	{
		plan.loss = random_below(500);
		plan.slow = random_below(500);
		plan.slow_ns = random_between(100 * MS, 8 * SECOND);
		plan.repeat = random_below(500);
		plan.garbage = random_below(200);
	}
	plan.faults_end_ns = random_between(40, 80) * SECOND;
	agents_ttl_s = ONE_OF(8, 8, 10, 20, 20);
	agents_loop_ns = ONE_OF(1, 1, 2, agents_ttl_s * 2 / 5) * SECOND;
	fault_rate = ONE_OF(0, 20, 60, 150);
	draw_more();
	draw_clocks();
}

/* ---- faults ------------------------------------------------------------------------ */

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

void
faults_at_renewal(int leader, int64_t lease)
{
}

void
faults_at_time_to_live(void)
{
}

void
faults_at_grant(int leader, int member)
{
}

/* Here no instance dies in the middle of a call. */
void
faults_died(Instance *in)
{
}

/* The kinds of end of a fault; the tag has the kind and the subject. */
typedef enum End
{
	END_MEMBER_PAUSE,
	END_MEMBER_CRASH,
	END_MEMBER_CUT,
	END_HOST_CUT,
	END_HOST_PAUSE,
	END_HOST_CRASH,
	END_AGENT_KILL,
	END_AGENT_FREEZE,
	END_CLUSTER_PAUSE,
	END_AWAY,
	END_OTHER,
	NENDS
} End;

/*
 * etcd comes back, in half of the runs in an earlier state.  No instance leads
 * any more then.
 */
static void
end_absence(void)
{
	away = false;
	if (over)
		return;
	if (random_chance(5000))
	{
		for (int m = 0; m < cluster.nmembers; m++)
			member_start(m);
		return;
	}
	put_back = true;
	cluster_restore(random_between(begin_index, store_index()),
					random_chance(5000) ? 2 : cluster.term + 1, random_chance(3000));
}

/* Sets the cluster of Patroni that an instance follows. */
static void
follow(Instance *in, const char *namespace)
{
	if (!in->running || in->paused || in->stopping)
		return;
	checker_follows(in);
	strcpy(in->config.patroni_namespace, namespace);
	instance_configure(in);
}

static void
end_fault(void *subject, uint64_t tag)
{
	int			n = (int) (tag / NENDS);
	Agent	   *agent = &agents[n];

	switch ((End) (tag % NENDS))
	{
		case END_MEMBER_PAUSE:
			member_pause(n, false);
			break;
		case END_MEMBER_CRASH:
			if (!away)
				member_start(n);
			break;
		case END_MEMBER_CUT:
			member_cut(n, false);
			break;
		case END_HOST_CUT:
			for (int m = 0; m < cluster.nmembers; m++)
				link_cut(n, m, false);
			break;
		case END_HOST_PAUSE:
			agent_freeze(agent, false);
			if (agent->in->running && agent->in->paused)
				instance_resume(agent->in);
			break;
		case END_HOST_CRASH:
		case END_AGENT_KILL:
			agent_start(agent);
			break;
		case END_AGENT_FREEZE:
			agent_freeze(agent, false);
			break;
		case END_CLUSTER_PAUSE:
			agents_paused = false;
			break;
		case END_AWAY:
			end_absence();
			break;
		case END_OTHER:
			follow(agent->in, NAMESPACE);
			break;
		case NENDS:
			break;
	}
}

static void
end_later(End end, int n)
{
	events_after(random_chance(5000) ? random_between(0, 2 * SECOND) : random_between(0, 2 * agents_ttl_s * SECOND),
				 end_fault, NULL, (uint64_t) n * NENDS + end);
}

static void
leave(void *subject, uint64_t tag)
{
	int			ttl_s = agents_ttl_s > plan.ttl_s[0] ? agents_ttl_s : plan.ttl_s[0];

	trace("", "etcd is away");
	away = true;
	for (int m = 0; m < cluster.nmembers; m++)
		member_crash(m);
	events_after(random_between(2 * ttl_s, 3 * ttl_s) * SECOND, end_fault, NULL, END_AWAY);
}

static void
cut_host(int n)
{
	trace(instances[n].name, "is cut off");
	for (int m = 0; m < cluster.nmembers; m++)
		link_cut(n, m, true);
}

static void
follow_other(Instance *in)
{
	if (strcmp(in->config.patroni_namespace, OTHER_NAMESPACE) == 0)
		return;
	follow(in, OTHER_NAMESPACE);
	end_later(END_OTHER, in->number);
}

/*
 * Deletes the leader key, whose lease lives on.  The next deletion comes after
 * nobody can lead by this key.
 */
static void
delete_key(void)
{
	EtcdOp		op = {.kind = ETCD_OP_DELETE, .key = bytes_of(PATRONI_LEADER)};
	EtcdRequest request = {.kind = ETCD_TXN, .success = &op, .nsuccess = 1};
	EtcdAnswer	answer;

	if (now_ns < next_deletion_ns)
		return;
	next_deletion_ns = now_ns + agents_ttl_s * SECOND + 3 * plan.election_timeout_ns;
	trace("operator", "deletes the leader key");
	(void) cluster_write(&request, BY_OPERATOR, &answer);
}

/* Stops the only member that clients know, while it leads etcd. */
static void
pause_known(void)
{
	if (!member_runs(0) || !cluster_works())
		return;
	if (cluster.leader != 0)
	{
		cluster_elect(0);
		return;
	}
	member_pause(0, true);
	events_after(random_between(SECOND, agents_ttl_s * SECOND), end_fault, NULL, END_MEMBER_PAUSE);
}

static void
fault_member(void)
{
	int			m = random_below(cluster.nmembers);

	if (!cluster.members[m].up)
		return;
	switch (random_below(4))
	{
		case 0:
			member_pause(m, true);
			end_later(END_MEMBER_PAUSE, m);
			break;
		case 1:
			member_crash(m);
			end_later(END_MEMBER_CRASH, m);
			break;
		case 2:
			member_cut(m, true);
			end_later(END_MEMBER_CUT, m);
			break;
		default:
			cluster_elect(m);
			break;
	}
}

static void
fault_host(void)
{
	int			n = random_below(ninstances);
	Agent	   *agent = &agents[n];
	Instance   *in = agent->in;

	switch (random_below(9))
	{
		case 0:
			cut_host(n);
			end_later(END_HOST_CUT, n);
			break;
		case 1:
			if (!in->running || in->stopping || in->paused)
				break;
			agent_freeze(agent, true);
			instance_pause(in);
			end_later(END_HOST_PAUSE, n);
			break;
		case 2:
			agent_kill(agent);
			agent_kill_server(agent);
			end_later(END_HOST_CRASH, n);
			break;
		case 3:
		case 4:
			agent_kill(agent);
			end_later(END_AGENT_KILL, n);
			break;
		case 5:
			agent_freeze(agent, true);
			end_later(END_AGENT_FREEZE, n);
			break;
		case 6:
			/* kills only the server; Patroni starts it again */
			if (in->running && !in->stopping && !in->paused)
				agent_kill_server(agent);
			break;
		case 7:
			agent_switch_over(agent);
			break;
		default:
			agents_failsafe = random_chance(5000);
			agents_paused = random_chance(3000);
			trace("", "Patroni: pause %d, failsafe_mode %d", agents_paused, agents_failsafe);
			if (agents_paused)
				end_later(END_CLUSTER_PAUSE, 0);
			break;
	}
}

/* Faults that only some runs have. */
static void
fault_more(void)
{
	Instance   *in = &instances[random_below(ninstances)];

	if (random_chance(fault_rate))
		agent_restart(&agents[in->number]);
	if (random_chance(plan.fault[FAULT_PAUSE_KNOWN]))
		pause_known();
	if (random_chance(plan.fault[FAULT_DELETE_KEY]))
		delete_key();
	if (random_chance(plan.fault[FAULT_CONFIGURE]))
		follow_other(in);
	if (plan.slots > 1 && in->running && !in->paused && !in->stopping && random_chance(plan.fault[FAULT_RESIGN]))
		instance_resign(in, OWN, true, 0);
}

static void
tick(void *subject, uint64_t tag)
{
	if (over)
		return;
	if (random_chance(fault_rate))
		fault_member();
	if (random_chance(2 * fault_rate))
		fault_host();
	fault_more();
	if (random_chance(20))
		(void) cluster_compact(store_revision() - random_below(5));
	events_after(TICK_NS, tick, NULL, 0);
}

/* After etcd was put back, an operator commands the campaign. */
static void
campaign(void *subject, uint64_t round)
{
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];

		if (in->running && !in->stopping && in->views[OWN].state == ELECTION_HELD_BACK)
			instance_campaign(in, OWN);
	}
	if (round < 20)
		events_after(SECOND, campaign, subject, round + 1);
}

static void
end_faults(void)
{
	over = true;
	away = false;
	agents_paused = agents_failsafe = false;
	for (int m = 0; m < cluster.nmembers; m++)
	{
		if (!cluster.members[m].up)
			member_start(m);
		member_pause(m, false);
		member_cut(m, false);
		for (int i = 0; i < ninstances; i++)
			link_cut(i, m, false);
	}
	for (int i = 0; i < ninstances; i++)
	{
		agents[i].frozen = false;
		if (instances[i].running && instances[i].paused)
			instance_resume(&instances[i]);
		strcpy(instances[i].config.patroni_namespace, NAMESPACE);
		checker_follows(&instances[i]);
		if (instances[i].running && !instances[i].stopping)
			instance_configure(&instances[i]);
		agent_start(&agents[i]);
	}
	if (put_back && plan.slots > 1)
		campaign(NULL, 0);
}

/* Writes a key that has no lease. */
static void
put(const char *key, const char *value)
{
	EtcdOp	   *op = run_alloc(sizeof(EtcdOp));
	EtcdRequest request = {.kind = ETCD_TXN, .success = op, .nsuccess = 1};
	EtcdAnswer	answer;

	op->kind = ETCD_OP_PUT;
	op->key = (EtcdBytes) {run_copy(key, strlen(key)), strlen(key)};
	op->value = (EtcdBytes) {run_copy(value, strlen(value)), strlen(value)};
	if (!cluster_write(&request, BY_OPERATOR, &answer))
		fail_run("etcd does not work");
}

/* ---- what happens while requests are under way --------------------------------------- */

static void
strike(void *subject, uint64_t kind)
{
	Instance   *in = subject;
	const Version *key = store_find(bytes_of(PATRONI_LEADER));

	if (over)
		return;
	switch ((Strike) kind)
	{
		case STRIKE_CUT:
			cut_host(in->number);
			events_after(random_between(agents_ttl_s, 2 * agents_ttl_s) * SECOND, end_fault, NULL,
						 (uint64_t) in->number * NENDS + END_HOST_CUT);
			break;
		case STRIKE_HAND_OVER:
			for (int i = 0; i < ninstances && key != NULL; i++)
			{
				if (bytes_equal(key->value, bytes_of(instances[i].name)))
					agent_switch_over(&agents[i]);
			}
			break;
		case STRIKE_RESTART:
			agent_restart(&agents[in->number]);
			break;
		case STRIKE_CONFIGURE:
			follow_other(in);
			break;
		case STRIKE_DELETE:
			delete_key();
			break;
		case STRIKE_EVENT:
			if (cluster_works())
				put(NAMESPACE "/p/config", "{\"ttl\":8}");
			break;
		case NSTRIKES:
			break;
	}
}

void
strike_soon(Strike kind, Instance *in, int64_t within_ns)
{
	events_after(random_between(0, within_ns), strike, in, kind);
}

/* Up to three things happen while the request is under way. */
void
strike_at_request(Instance *in, EtcdRequestKind kind)
{
	int64_t		within_ns = 2 * (plan.link_delay_ns + plan.link_jitter_ns);

	if (!random_chance(plan.touch_at_read))
		return;
	/* causes a read, so that both are under way */
	if (kind == ETCD_TIME_TO_LIVE)
		strike_soon(STRIKE_EVENT, in, 10 * MS);
	if (random_chance(5000))
		strike_soon(STRIKE_HAND_OVER, in, within_ns);
	else if (random_chance(5000))
		strike_soon((Strike) random_below(NSTRIKES), in, within_ns);
}

/* Deletes the key after it was read, if its leader asks for its time to live meanwhile. */
void
faults_at_read(const EtcdRequest *request)
{
	const Version *key = store_find(bytes_of(PATRONI_LEADER));

	if (over || plan.touch_at_read == 0 || key == NULL ||
		!bytes_equal(request->success[0].key, bytes_of(PATRONI_LEADER)))
		return;
	for (int i = 0; i < ninstances; i++)
	{
		if (checker_is_asking(&instances[i]) && bytes_equal(key->value, bytes_of(instances[i].name)))
			strike_soon(STRIKE_DELETE, &instances[i], 5 * MS);
	}
}

/* ---- a run --------------------------------------------------------------------------- */

static void
begin(void *subject, uint64_t tag)
{
	bool		has_copy = random_chance(3000);

	put("/service/p/initialize", PATRONI_SYSTEM_ID);
	put("/service/p/config", "{\"ttl\":8}");
	put("/other/p/initialize", PATRONI_SYSTEM_ID);
	put(OTHER_LEADER, "nobody");
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];
		char		key[64];

		snprintf(key, sizeof(key), "/service/p/members/%s", in->name);
		put(key, "{}");
		snprintf(key, sizeof(key), "/other/p/members/%s", in->name);
		put(key, "{}");
		if (plan.drift_ppm != 0)
			in->clock_ppb = SECOND + random_between(-1, 1) * plan.drift_ppm * 1000;
		memset(&in->config, 0, sizeof(in->config));
		strcpy(in->config.node_name, in->name);
		strcpy(in->config.system_identifier, PATRONI_SYSTEM_ID);
		strcpy(in->config.patroni_namespace, NAMESPACE);
		strcpy(in->config.elections[FOLLOWED], "patroni:p");
		strcpy(in->config.elections[OWN], election_name(0));
		in->config.nelections = plan.slots;
		in->config.nendpoints = plan.nendpoints;
		in->config.ttl_s = plan.ttl_s[0];
		in->config.safety_margin_ms = plan.margin_ms;
		in->config.eligible = i == 0 || random_chance(5000);
		in->config.in_recovery = true;
		if (has_copy && i > 0 && i == ninstances - 1)
			agent_start_copy(&agents[i]);
		else
			agent_start(&agents[i]);
	}
	begin_index = store_index();
	if (plan.restore_ns != 0)
		events_at(plan.restore_ns, leave, NULL, 0);
	events_after(TICK_NS, tick, NULL, 0);
}

static bool
run_on(int64_t duration_ns)
{
	int64_t		until_ns = now_ns + duration_ns;

	while (!run_failed() && events_step(until_ns))
		;
	return !run_failed();
}

bool
run_seed(uint64_t seed)
{
	verdict_reset();
	events_reset();
	plan_draw(seed);
	trace("", "seed %" PRIu64 ": %d instances, %d members of etcd, Patroni's TTL %d s",
		  seed, plan.ninstances, plan.nmembers, agents_ttl_s);
	server_reset();
	streams_reset();
	instances_reset(plan.ninstances);
	shared_reset();
	primaries_reset();
	network_reset(plan.ninstances);
	store_changed = NULL;
	cluster_start();
	checker_reset();
	at_rest = put_back = away = false;
	next_deletion_ns = 0;
	agents_reset();
	if (agents_loop_ns <= 2 * SECOND && random_chance(6000))
		agents[random_below(ninstances)].ttl_s = 8;
	over = false;
	store_changed = checker_changed;
	/* etcd elects a leader, and Patroni's members come up */
	events_after(5 * SECOND, begin, NULL, 0);

	if (run_on(plan.faults_end_ns))
		end_faults();
	(void) run_on(RECOVERY_NS + 3 * agents_ttl_s * SECOND);
	/* runs that lose or delay messages to the end do not come to rest */
	if (is_calm())
		check_recovery();
	at_rest = true;
	if (run_on(REST_NS) && is_calm())
	{
		check_recovery();
		check_rest();
	}
	at_rest = false;
	for (int i = 0; i < ninstances && !run_failed(); i++)
	{
		agent_kill(&agents[i]);
		if (instances[i].running && !instances[i].stopping)
			instance_stop(&instances[i]);
	}
	/* messages that are under way arrive */
	(void) run_on(20 * SECOND);
	instances_reset(0);
	run_free_all();
	return !run_failed();
}
