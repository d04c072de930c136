/*-------------------------------------------------------------------------
 *
 * follow.c
 *	  Simulates elections that follow Patroni: the plan of a run, its faults
 *	  and its checks.  A Patroni (agent.c) runs beside each instance.  The other
 *	  parts are those of the main simulator.
 *
 * What has to hold:
 *
 * - An instance leads only while, in true time, Patroni's leader key names it,
 *   under the key's create revision, and while its server is not in recovery.
 * - After the faults, if no message is lost or late, the instance that the key
 *   names leads, if its server is a primary.
 * - Then it announces nothing, and sends at most two requests in a third of
 *   Patroni's TTL.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "agent.h"
#include "checker.h"
#include "faults.h"
#include "network.h"
#include "plan.h"
#include "run.h"

#define TICK_NS		(100 * MS)
#define RECOVERY_NS	(60 * SECOND)
#define REST_NS		(60 * SECOND)

#define ONE_OF(...) \
	((const int[]) {__VA_ARGS__}[random_below((int) (sizeof((const int[]) {__VA_ARGS__}) / sizeof(int)))])

Plan		plan;

static bool at_rest;
static bool over;				/* the faults have ended */
static int	fault_rate;
static int	nrequests[16];
static int	nevents[16];

/* ---- the plan of a run --------------------------------------------------------- */

const char *
profile_name(Profile profile)
{
	(void) profile;
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

void
plan_draw(uint64_t seed)
{
	memset(&plan, 0, sizeof(plan));
	random_seed(seed);
	plan.seed = seed;
	plan.ninstances = ONE_OF(1, 2, 2, 3, 3);
	plan.slots = 1;
	plan.nelections = 1;
	plan.nmembers = random_chance(6000) ? 3 : 1;
	plan.nendpoints = ONE_OF(1, 2, 3);
	plan.dialect = 1 + random_below(2);
	plan.granted_part = 1;
	plan.ensures_leadership = random_chance(5000);
	plan.early_lessor = random_chance(3000);
	plan.pre_vote = random_chance(5000);
	plan.election_timeout_ns = ONE_OF(200, 1000) * MS;
	plan.late_expiry = 2000;
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
	/* the margin of a second has to cover this drift and deposed leaders of etcd */
	plan.drift_ppm = plan.election_timeout_ns < SECOND && random_chance(5000) ? 20000 : 0;
	plan.faults_end_ns = random_between(40, 80) * SECOND;
	agents_ttl_s = ONE_OF(8, 8, 10, 20);
	agents_loop_ns = ONE_OF(1, 1, 2) * SECOND;
	fault_rate = ONE_OF(0, 20, 60, 150);
}

/* ---- what has to hold ------------------------------------------------------------- */

static void
check_leaders(void)
{
	EtcdBytes	name = {PATRONI_LEADER, strlen(PATRONI_LEADER)};
	const Version *key = store_find(name);

	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];
		EtcdBytes	node = {in->name, strlen(in->name)};

		if (!instance_leads(in, 0))
			continue;
		if (key == NULL)
			fail_run("%s leads, but there is no leader key", in->name);
		else if (!bytes_equal(key->value, node))
			fail_run("%s leads, but the leader key names %.*s", in->name, (int) key->value.len, key->value.data);
		else if (key->create_revision != in->views[0].token)
			fail_run("%s leads with token %" PRId64 ", the leader key has %" PRId64, in->name,
					 in->views[0].token, key->create_revision);
		if (in->config.in_recovery)
			fail_run("%s leads in recovery", in->name);
	}
}

/* The faults have ended, and the time for recovery is over. */
static void
check_recovery(void)
{
	EtcdBytes	name = {PATRONI_LEADER, strlen(PATRONI_LEADER)};
	const Version *key = store_find(name);

	if (key == NULL)
	{
		fail_run("Patroni has no leader");
		return;
	}
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];
		EtcdBytes	node = {in->name, strlen(in->name)};
		bool		named = bytes_equal(key->value, node);

		if (!in->running)
			fail_run("%s does not run", in->name);
		else if (named && !in->config.in_recovery && !instance_leads(in, 0))
			fail_run("the leader key names %s, which does not lead: %s", in->name, in->views[0].problem);
		else if (!in->views[0].has_leader || strncmp(in->views[0].leader, key->value.data, key->value.len) != 0)
			fail_run("%s does not know that %.*s leads", in->name, (int) key->value.len, key->value.data);
	}
}

static bool
is_calm(void)
{
	return plan.loss == 0 && plan.slow == 0 && plan.garbage == 0 && plan.link_jitter_ns <= 5 * MS;
}

static void
check_rest(void)
{
	int64_t		thirds = REST_NS / (agents_ttl_s * SECOND / 3);

	for (int i = 0; i < ninstances; i++)
	{
		if (nevents[i] > 0)
			fail_run("%s announces %d events at rest", instances[i].name, nevents[i]);
		if (nrequests[i] > 2 * thirds + 2)
			fail_run("%s sends %d requests at rest, in %" PRId64 " thirds of the TTL", instances[i].name,
					 nrequests[i], thirds);
	}
}

void
checker_reset(void)
{
	at_rest = false;
	memset(nrequests, 0, sizeof(nrequests));
	memset(nevents, 0, sizeof(nevents));
}

void
checker_sent(Instance *in, uint64_t id, const EtcdRequest *request)
{
	(void) id;
	if (at_rest)
		nrequests[in->number]++;
	if ((request->kind != ETCD_TXN && request->kind != ETCD_TIME_TO_LIVE) ||
		etcd_writes(request->success, request->nsuccess))
		fail_run("%s writes to etcd", in->name);
}

void
checker_watches(Instance *in, const EtcdWatch *watches, int nwatches)
{
	(void) in;
	(void) watches;
	(void) nwatches;
}

void
checker_published(Instance *in, int slot, const ElectionView *old)
{
	(void) in;
	(void) slot;
	(void) old;
	check_leaders();
}

void
checker_announced(Instance *in, const ElectionEvent *event)
{
	if (at_rest && event->kind != ELECTION_EVENT_CONNECTED && event->kind != ELECTION_EVENT_DISCONNECTED)
		nevents[in->number]++;
}

void
checker_replied(Instance *in, const Ticket *ticket, ElectionReply reply)
{
	(void) in;
	(void) ticket;
	(void) reply;
}

void
checker_called(Instance *in)
{
	(void) in;
	check_leaders();
}

void
checker_ended(Instance *in)
{
	(void) in;
}

void
checker_answered(Instance *in, uint64_t id, const EtcdRequest *request, bool was_read, const EtcdAnswer *answer)
{
	(void) in;
	(void) id;
	(void) request;
	(void) was_read;
	(void) answer;
}

void
checker_distrusted(Instance *in)
{
	(void) in;
}

void
checker_watched(Instance *in, const EtcdWatchFrame *frame)
{
	(void) in;
	(void) frame;
}

void
checker_watched_end(Instance *in, const EtcdWatchFrame *frame, bool still_open)
{
	(void) in;
	(void) frame;
	(void) still_open;
}

void
checker_trouble(Instance *in)
{
	(void) in;
}

void
checker_stimulus(Instance *in)
{
	(void) in;
}

void
checker_changed(const Version *version)
{
	(void) version;
	check_leaders();
}

/* ---- faults ------------------------------------------------------------------------ */

void
faults_at_renewal(int leader, int64_t lease)
{
	(void) leader;
	(void) lease;
}

void
faults_at_grant(int leader, int member)
{
	(void) leader;
	(void) member;
}

void
faults_at_look(const EtcdRequest *request)
{
	(void) request;
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
	NENDS
} End;

static void
end_fault(void *subject, uint64_t tag)
{
	int			n = (int) (tag / NENDS);
	Agent	   *agent = &agents[n];

	(void) subject;
	switch ((End) (tag % NENDS))
	{
		case END_MEMBER_PAUSE:
			member_pause(n, false);
			break;
		case END_MEMBER_CRASH:
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
			trace(in->name, "is cut off");
			for (int m = 0; m < cluster.nmembers; m++)
				link_cut(n, m, true);
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

static void
tick(void *subject, uint64_t tag)
{
	(void) subject;
	(void) tag;
	if (over)
		return;
	if (random_chance(fault_rate))
		fault_member();
	if (random_chance(2 * fault_rate))
		fault_host();
	if (random_chance(20))
		(void) cluster_compact(store_revision() - random_below(5));
	events_after(TICK_NS, tick, NULL, 0);
}

static void
end_faults(void)
{
	over = true;
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
		agent_start(&agents[i]);
	}
}

/* ---- a run --------------------------------------------------------------------------- */

/* Writes a key before the run, as the setup of the cluster does. */
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
		fail_run("etcd does not work at the beginning");
}

static void
begin(void *subject, uint64_t tag)
{
	(void) subject;
	(void) tag;
	put("/service/p/initialize", PATRONI_SYSTEM_ID);
	put("/service/p/config", "{\"ttl\":8}");
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];
		char		key[64];

		snprintf(key, sizeof(key), "/service/p/members/%s", in->name);
		put(key, "{}");
		if (plan.drift_ppm != 0)
			in->clock_ppb = SECOND + random_between(-1, 1) * plan.drift_ppm * 1000;
		memset(&in->config, 0, sizeof(in->config));
		strcpy(in->config.node_name, in->name);
		strcpy(in->config.system_identifier, PATRONI_SYSTEM_ID);
		strcpy(in->config.patroni_namespace, "/service");
		strcpy(in->config.elections[0], "patroni:p");
		in->config.nelections = 1;
		in->config.nendpoints = plan.nendpoints;
		in->config.ttl_s = plan.ttl_s[0];
		in->config.safety_margin_ms = plan.margin_ms;
		in->config.eligible = random_chance(5000);
		in->config.in_recovery = true;
		agent_start(&agents[i]);
	}
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
	network_reset(plan.ninstances);
	store_changed = NULL;
	cluster_start();
	checker_reset();
	agents_reset();
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

bool
scale_write_table(void)
{
	return false;
}
