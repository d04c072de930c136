/*-------------------------------------------------------------------------
 *
 * agent.h
 *	  A model of Patroni: its use of the leader key and of its member's key.  One runs
 *	  beside each instance, unless that is a copy of another member's server.
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
	STEP_REFRESH,				/* keeps its lease alive, or asks for one */
	STEP_READ,					/* reads the leader key */
	STEP_TAKE,					/* creates the key */
	STEP_MOVE,					/* puts its key on its lease */
	STEP_RELEASE				/* deletes its key, after the server has stopped */
} AgentStep;

typedef struct Agent
{
	Instance   *in;
	bool		runs;			/* the process of Patroni */
	bool		is_absent;		/* a copy: nobody starts Patroni there */
	bool		frozen;
	bool		server_runs;	/* PostgreSQL; in->config tells if it is in recovery */
	int			ttl_s;			/* of its leases */
	int64_t		lease;
	AgentStep	step;
	uint64_t	number;			/* of the question that is not answered yet */
	uint64_t	server_number;	/* of the next change of the server's state */
	int64_t		cycle_ns;		/* when this HA loop began */
	uint32_t	cycle_timeline; /* and what the server said then; 0: it did not run */
	int64_t		refreshed_ns;	/* when the last HA loop began that renewed the lease */
	/* the key as Patroni has read it */
	bool		key_stands;
	bool		key_is_mine;
	int64_t		key_lease;
	int64_t		key_mod_revision;
} Agent;

/* The configuration of the Patroni cluster. */
extern bool agents_paused;
extern bool agents_failsafe;
extern int	agents_ttl_s;		/* the longest */
extern int64_t agents_loop_ns;

extern Agent *agents;

/* The newest timeline of the cluster. */
extern uint32_t agents_timeline;

extern void agents_reset(void);

/* Starts Patroni.  Its server may be down, or run already. */
extern void agent_start(Agent *agent);
extern void agent_kill(Agent *agent);

/* Restarts Patroni at once: the key goes to another lease. */
extern void agent_restart(Agent *agent);
extern void agent_freeze(Agent *agent, bool frozen);

/* Kills the server.  Only Patroni starts it again. */
extern void agent_kill_server(Agent *agent);

/* Shuts the server down cleanly and deletes the key, as for a switchover. */
extern void agent_switch_over(Agent *agent);

/* The leader key was deleted: every Patroni's watch tells it. */
extern void agents_wake(void);

/* The server of this instance is a copy of another member's. */
extern void agent_start_copy(Agent *agent);

extern bool agent_is_primary(const Agent *agent);

#endif							/* AGENT_H */
