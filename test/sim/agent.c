/*-------------------------------------------------------------------------
 *
 * agent.c
 *	  A model of Patroni: its HA loop with the leader key, the promotion and
 *	  the demotion of its server, pause and failsafe.
 *
 * It runs on the host of its instance.  A fault that cuts the instance off cuts
 * Patroni off, too.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "network.h"
#include "plan.h"

#define RETRY_TIMEOUT_NS	(3 * SECOND)

#define PATRONI_MEMBERS		"/service/p/members/"

/* No run gets to it. */
#define COPY_TIMELINE		1000000

bool		agents_paused;
bool		agents_failsafe;
int			agents_ttl_s;
int64_t		agents_loop_ns;
Agent	   *agents;
uint32_t	agents_timeline;

/* A request of Patroni, and its answer. */
typedef struct Question
{
	Agent	   *agent;
	uint64_t	number;
	bool		answered;
	EtcdAnswer	answer;
} Question;

static void take_step(void *subject, uint64_t number);

void
agents_reset(void)
{
	agents = run_alloc((size_t) ninstances * sizeof(Agent));
	for (int i = 0; i < ninstances; i++)
	{
		agents[i].in = &instances[i];
		agents[i].ttl_s = agents_ttl_s;
	}
	agents_paused = false;
	agents_failsafe = false;
	agents_timeline = 1;
}

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

static bool
in_recovery(const Agent *agent)
{
	return agent->in->config.in_recovery;
}

bool
agent_is_primary(const Agent *agent)
{
	return agent->server_runs && !in_recovery(agent);
}

static void
step_later(Agent *agent, AgentStep step, int64_t delay_ns)
{
	agent->step = step;
	events_after(delay_ns, take_step, agent, ++agent->number);
}

/* Remembers what the server says at the beginning of a loop. */
static void
begin_cycle(Agent *agent)
{
	agent->cycle_ns = now_ns;
	agent->cycle_timeline = !agent->server_runs ? 0 :
		in_recovery(agent) ? agents_timeline : agent->in->config.timeline;
}

/* At the end of a loop the role may be newer than the timeline. */
static void
touch_member(Agent *agent)
{
	const char *role = !agent->server_runs ? "demoted" : in_recovery(agent) ? "replica" : "primary";
	char		key[64];
	char		value[64];
	EtcdOp		op = {.kind = ETCD_OP_PUT};
	EtcdRequest request = {.kind = ETCD_TXN, .success = &op, .nsuccess = 1};
	EtcdAnswer	answer;

	if (link_is_cut(agent->in->number, cluster.leader < 0 ? 0 : cluster.leader))
		return;
	snprintf(key, sizeof(key), PATRONI_MEMBERS "%s", agent->in->name);
	if (agent->cycle_timeline == 0)
		snprintf(value, sizeof(value), "{\"role\":\"%s\"}", role);
	else
		snprintf(value, sizeof(value), "{\"role\":\"%s\",\"timeline\":%" PRIu32 "}", role, agent->cycle_timeline);
	op.key = (EtcdBytes) {run_copy(key, strlen(key)), strlen(key)};
	op.value = (EtcdBytes) {run_copy(value, strlen(value)), strlen(value)};
	(void) cluster_write(&request, BY_CLIENT, &answer);
}

static void
next_cycle(Agent *agent)
{
	int64_t		due_ns = agent->cycle_ns + agents_loop_ns;

	touch_member(agent);
	step_later(agent, STEP_REFRESH, due_ns > now_ns ? due_ns - now_ns : random_between(0, 10 * MS));
}

/* ---- the server ----------------------------------------------------------------- */

static void
start_server(void *subject, uint64_t number)
{
	Agent	   *agent = subject;

	if (number != agent->server_number || agent->server_runs || agent->in->running)
		return;
	agent->server_runs = true;
	instance_start(agent->in);
}

static void
start_server_later(Agent *agent, bool as_replica)
{
	agent->in->config.in_recovery |= as_replica;
	if (in_recovery(agent))
		agent->in->config.timeline = 0;
	events_after(random_between(100 * MS, 3 * SECOND), start_server, agent, ++agent->server_number);
}

static void
promote_now(void *subject, uint64_t number)
{
	Agent	   *agent = subject;

	if (number != agent->server_number || !agent->server_runs || agent->in->paused)
		return;
	trace(agent->in->name, "is promoted");
	agent->in->config.in_recovery = false;
	agent->in->config.timeline = ++agents_timeline;
	instance_configure(agent->in);
}

static void
promote(Agent *agent)
{
	if (agent->server_runs && in_recovery(agent))
		events_after(random_between(0, random_chance(5000) ? 50 * MS : 2 * SECOND), promote_now, agent, ++agent->server_number);
}

static void
stop_server(Agent *agent, bool clean)
{
	agent->server_number++;
	agent->server_runs = false;
	if (!agent->in->running || agent->in->stopping)
		return;
	if (clean && !agent->in->paused)
		instance_stop(agent->in);
	else
		instance_crash(agent->in, false, false);
}

static void
demote(Agent *agent)
{
	if (!agent_is_primary(agent))
		return;
	trace(agent->in->name, "is demoted");
	stop_server(agent, false);
	start_server_later(agent, true);
}

void
agent_kill_server(Agent *agent)
{
	if (agent->is_absent)
		return;
	stop_server(agent, false);
}

/* ---- the HA loop ------------------------------------------------------------------ */

/* etcd cannot be reached, or does not answer in time. */
static void
miss_etcd(Agent *agent)
{
	if (now_ns - agent->cycle_ns < RETRY_TIMEOUT_NS)
	{
		step_later(agent, agent->step, random_between(100 * MS, SECOND));
		return;
	}
	if (!agents_paused && !agents_failsafe)
		demote(agent);
	next_cycle(agent);
}

/* The lease is renewed and the key is read: promotes, demotes or goes on. */
static void
decide(Agent *agent)
{
	if (!agent->server_runs && !agent->in->running)
		start_server_later(agent, !agent->key_is_mine);
	if (!agent->key_stands)
	{
		if (agent->server_runs && (!agents_paused || agent_is_primary(agent)))
			step_later(agent, STEP_TAKE, random_between(0, 50 * MS));
		else
			next_cycle(agent);
		return;
	}
	if (!agent->key_is_mine)
	{
		if (!agents_paused)
			demote(agent);
		next_cycle(agent);
		return;
	}
	if (agent->key_lease != agent->lease)
	{
		step_later(agent, STEP_MOVE, 0);
		return;
	}
	promote(agent);
	next_cycle(agent);
}

static void
use_answer(Agent *agent, const EtcdAnswer *answer)
{
	const EtcdKeyValue *kv;

	if (answer->outcome != ETCD_ANSWERED)
	{
		if (answer->outcome == ETCD_REFUSED && answer->code == ETCD_CODE_NOT_FOUND)
			agent->lease = 0;
		miss_etcd(agent);
		return;
	}
	switch (agent->step)
	{
		case STEP_REFRESH:
			if (answer->ttl_s <= 0)
			{
				agent->lease = 0;
				step_later(agent, STEP_REFRESH, 0);
				break;
			}
			agent->refreshed_ns = agent->cycle_ns;
			step_later(agent, STEP_READ, 0);
			break;
		case STEP_READ:
			kv = answer->results[0].nkvs > 0 ? &answer->results[0].kvs[0] : NULL;
			agent->key_stands = kv != NULL;
			agent->key_is_mine = kv != NULL && bytes_equal(kv->value, bytes_of(agent->in->name));
			agent->key_lease = kv ? kv->lease : 0;
			agent->key_mod_revision = kv ? kv->mod_revision : 0;
			decide(agent);
			break;
		case STEP_TAKE:
			if (answer->succeeded)
				promote(agent);
			next_cycle(agent);
			break;
		case STEP_MOVE:
			next_cycle(agent);
			break;
		case STEP_RELEASE:
			break;
	}
}

/* A frozen Patroni sees the answer when it runs again. */
static void
read_at_answer(void *subject, uint64_t tag)
{
	Question   *question = subject;
	Agent	   *agent = question->agent;

	if (question->number != agent->number || !agent->runs)
		return;
	if (agent->frozen)
		events_after(100 * MS, read_at_answer, question, 0);
	else
		use_answer(agent, &question->answer);
}

static void
answered(void *owner, const EtcdAnswer *answer)
{
	Question   *question = owner;

	if (question->answered)
		return;
	question->answered = true;
	if (answer)
		question->answer = *answer;
	else
		question->answer.outcome = ETCD_NO_ANSWER;
	read_at_answer(question, 0);
}

static void
unanswered(void *subject, uint64_t tag)
{
	answered(subject, NULL);
}

static void
ask(Agent *agent, const EtcdRequest *request)
{
	Question   *question = run_alloc(sizeof(Question));
	int			m = random_below(cluster.nmembers);

	question->agent = agent;
	question->number = agent->number;
	if (!cluster.members[m].up || link_is_cut(agent->in->number, m))
		events_after(random_between(MS, SECOND), unanswered, question, 0);
	else
	{
		server_call(m, request, SECOND, BY_CLIENT, NULL, answered, question);
		events_after(SECOND + 500 * MS, unanswered, question, 0);
	}
}

static void
ask_about_lease(Agent *agent)
{
	EtcdRequest *request = run_alloc(sizeof(EtcdRequest));

	request->kind = agent->lease == 0 ? ETCD_GRANT : ETCD_KEEPALIVE;
	if (agent->lease == 0)
		agent->lease = (int64_t) (random_next() >> 2) + 1;
	request->lease = agent->lease;
	request->ttl_s = request->kind == ETCD_GRANT ? agent->ttl_s : 0;
	ask(agent, request);
}

static void
ask_about_key(Agent *agent, EtcdOpKind kind, bool compares, int64_t mod_revision)
{
	EtcdRequest *request = run_alloc(sizeof(EtcdRequest));
	EtcdOp	   *op = run_alloc(sizeof(EtcdOp));
	EtcdCompare *compare = run_alloc(sizeof(EtcdCompare));

	op->kind = kind;
	op->key = bytes_of(PATRONI_LEADER);
	op->value = bytes_of(agent->in->name);
	op->lease = kind == ETCD_OP_PUT ? agent->lease : 0;
	compare->key = op->key;
	compare->target = mod_revision == 0 ? ETCD_COMPARE_CREATE_REVISION : ETCD_COMPARE_MOD_REVISION;
	compare->value = mod_revision;
	request->kind = ETCD_TXN;
	request->success = op;
	request->nsuccess = 1;
	request->compares = compare;
	request->ncompares = compares;
	ask(agent, request);
}

/*
 * The deletion is executed at once, or not at all.  A real one may be executed
 * late, when Patroni does not wait for it any more and has promoted the server
 * again.  It then takes the key away from a leader, and only the watch reports
 * that.
 */
static void
release(Agent *agent)
{
	EtcdOp		op = {.kind = ETCD_OP_DELETE, .key = bytes_of(PATRONI_LEADER)};
	EtcdCompare compare = {.key = bytes_of(PATRONI_LEADER), .target = ETCD_COMPARE_MOD_REVISION};
	EtcdRequest request = {.kind = ETCD_TXN, .success = &op, .nsuccess = 1, .compares = &compare, .ncompares = 1};
	EtcdAnswer	answer;

	compare.value = agent->key_mod_revision;
	if (!link_is_cut(agent->in->number, cluster.leader < 0 ? 0 : cluster.leader))
		(void) cluster_write(&request, BY_CLIENT, &answer);
	start_server_later(agent, true);
	next_cycle(agent);
}

static void
take_step(void *subject, uint64_t number)
{
	Agent	   *agent = subject;

	if (number != agent->number || !agent->runs)
		return;
	if (agent->frozen)
	{
		events_after(100 * MS, take_step, agent, number);
		return;
	}
	switch (agent->step)
	{
		case STEP_REFRESH:
			if (now_ns - agent->cycle_ns >= agents_loop_ns)
				begin_cycle(agent);
			ask_about_lease(agent);
			break;
		case STEP_READ:
			ask_about_key(agent, ETCD_OP_RANGE, false, 0);
			break;
		case STEP_TAKE:
			ask_about_key(agent, ETCD_OP_PUT, true, 0);
			break;
		case STEP_MOVE:
			ask_about_key(agent, ETCD_OP_PUT, true, agent->key_mod_revision);
			break;
		case STEP_RELEASE:
			release(agent);
			break;
	}
}

/* ---- what can happen to it ----------------------------------------------------------- */

void
agent_start(Agent *agent)
{
	if (agent->runs || agent->is_absent)
		return;
	trace(agent->in->name, "Patroni starts");
	agent->runs = true;
	agent->frozen = false;
	agent->lease = 0;
	begin_cycle(agent);
	step_later(agent, STEP_REFRESH, random_between(0, SECOND));
}

void
agent_restart(Agent *agent)
{
	if (!agent->runs || agent->frozen || agent->step == STEP_RELEASE)
		return;
	trace(agent->in->name, "Patroni is restarted");
	agent->lease = 0;
	begin_cycle(agent);
	step_later(agent, STEP_REFRESH, 0);
}

void
agents_wake(void)
{
	for (int i = 0; i < ninstances; i++)
	{
		Agent	   *agent = &agents[i];

		if (agent->runs && !agent->frozen && agent->lease != 0 && agent->step == STEP_REFRESH &&
			!link_is_cut(i, cluster.leader < 0 ? 0 : cluster.leader))
			step_later(agent, STEP_REFRESH, random_between(MS, 50 * MS));
	}
}

void
agent_kill(Agent *agent)
{
	trace(agent->in->name, "Patroni is killed");
	agent->runs = false;
	agent->number++;
}

void
agent_freeze(Agent *agent, bool frozen)
{
	trace(agent->in->name, "Patroni %s", frozen ? "is stopped" : "runs again");
	agent->frozen = frozen;
}

void
agent_switch_over(Agent *agent)
{
	if (!agent->runs || agent->frozen || !agent_is_primary(agent) || !agent->key_is_mine ||
		agent->in->paused)
		return;
	trace(agent->in->name, "hands over");
	stop_server(agent, true);
	begin_cycle(agent);
	step_later(agent, STEP_RELEASE, random_between(10 * MS, random_chance(5000) ? 50 * MS : SECOND));
}

/* ---- a copy -------------------------------------------------------------------------- */

/* Somebody promotes the copy, to a timeline that the cluster does not get to. */
static void
promote_copy(void *subject, uint64_t tag)
{
	Agent	   *agent = subject;

	if (!agent->in->running || agent->in->stopping || !in_recovery(agent))
		return;
	if (agent->in->paused)
	{
		events_after(SECOND, promote_copy, subject, tag);
		return;
	}
	trace(agent->in->name, "is promoted, a copy");
	agent->in->config.in_recovery = false;
	agent->in->config.timeline = COPY_TIMELINE;
	instance_configure(agent->in);
}

void
agent_start_copy(Agent *agent)
{
	ElectionConfig *config = &agent->in->config;

	agent->is_absent = true;
	agent->server_runs = true;
	strcpy(config->node_name, instances[0].name);
	config->is_copy = random_chance(3000);
	if (config->is_copy)
	{
		config->eligible = config->in_recovery = false;
		config->timeline = 1 + random_below(3);
	}
	else
		events_after(random_between(0, 60 * SECOND), promote_copy, agent, 0);
	trace(agent->in->name, "is a copy of %s", instances[0].name);
	instance_start(agent->in);
}
