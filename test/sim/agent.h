/*-------------------------------------------------------------------------
 *
 * agent.h
 *	  Patroni, as far as it uses the leader key: one beside each instance.
 *
 *-------------------------------------------------------------------------
 */
#ifndef AGENT_H
#define AGENT_H

#include "instance.h"

#define PATRONI_LEADER		"/service/p/leader"
#define PATRONI_SYSTEM_ID	"4711"

typedef enum AgentStep
{
	STEP_REFRESH,				/* its lease: kept alive, or granted */
	STEP_READ,					/* the leader key */
	STEP_TAKE,					/* creates the key */
	STEP_MOVE,					/* puts its key on its lease */
	STEP_RELEASE				/* deletes its key, after the server has stopped */
} AgentStep;

typedef struct Agent
{
	Instance   *in;
	bool		runs;			/* the process of Patroni */
	bool		frozen;
	bool		server_runs;	/* PostgreSQL; in recovery if in->config says so */
	int64_t		lease;
	AgentStep	step;
	uint64_t	number;			/* of what it waits for */
	uint64_t	server_number;	/* of what its server waits for */
	int64_t		cycle_ns;		/* this HA loop began then */
	int64_t		refreshed_ns;	/* its lease was renewed, for a loop that had begun then */
	/* the key, as it was read */
	bool		key_stands;
	bool		key_is_mine;
	int64_t		key_lease;
	int64_t		key_mod_revision;
} Agent;

/* Of the cluster, as its configuration says. */
extern bool agents_paused;
extern bool agents_failsafe;
extern int	agents_ttl_s;
extern int64_t agents_loop_ns;

extern Agent *agents;

extern void agents_reset(void);

/* Patroni begins beside a server that is down, or runs. */
extern void agent_start(Agent *agent);
extern void agent_kill(Agent *agent);
extern void agent_freeze(Agent *agent, bool frozen);

/* The server is killed, and nobody but Patroni starts it again. */
extern void agent_kill_server(Agent *agent);

/* Gives the key up after a clean shutdown of the server, as for a switchover. */
extern void agent_switch_over(Agent *agent);

extern bool agent_is_primary(const Agent *agent);

#endif							/* AGENT_H */
