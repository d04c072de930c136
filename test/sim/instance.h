/*-------------------------------------------------------------------------
 *
 * instance.h
 *	  An instance: the election core, its clock, and the client between it
 *	  and etcd.
 *
 *-------------------------------------------------------------------------
 */
#ifndef INSTANCE_H
#define INSTANCE_H

#include "protocol/election.h"
#include "server.h"
#include "shared.h"

#define MAX_ELECTIONS	16
#define MAX_SLOTS		(MAX_ELECTIONS + 1)
#define MAX_TICKETS		256

typedef struct ClientStream ClientStream;

/* The client of an instance, as src/etcd/client.h describes it. */
typedef struct Client
{
	int			endpoint;		/* the endpoint in use */
	int			nendpoints;
	int64_t		request_timeout_ns;
	ClientStream *stream;
	bool		stream_end_due;
} Client;

/* An input that arrived while the instance was stopped. */
typedef struct Item
{
	void		(*handler) (void *subject);
	void	   *subject;
	bool		is_timeout;
	int64_t		arrived_ns;
} Item;

typedef enum TicketKind
{
	TICKET_NONE,
	TICKET_RESIGN,
	TICKET_CAMPAIGN,
	TICKET_PROCLAIM,
	TICKET_TRANSFER,
	TICKET_VERIFY
} TicketKind;

/* A command that is not answered yet. */
typedef struct Ticket
{
	TicketKind	kind;
	int64_t		create_revision;	/* RESIGN: of the key to delete */
	char	   *key;
	char	   *value;			/* PROCLAIM: the value; TRANSFER: the target */
	bool		held_back;		/* CAMPAIGN: it held back after a restore of etcd */
	bool		was_draining;	/* CAMPAIGN */
	int			slot;
	int64_t		since_ns;
	int64_t		revision;		/* of etcd at the time of the command */
} Ticket;

/* A drain, and the work that it waits for; see work.c. */
typedef struct Work
{
	bool		draining;
	uint64_t	number;			/* of the drain */
	int64_t		began_ns;		/* on the clock of the instance */
	int64_t		least_ns;		/* commands have allowed it to last so long; */
	int64_t		greatest_ns;	/* 0: none has */
	bool		is_over;		/* all work has ended */
	bool		was_paused;
} Work;

struct Instance
{
	int			number;
	char		name[16];
	uint32_t	life;			/* number of its elector's process */
	uint32_t	lineage;		/* number of its postmaster's life */
	SharedStart next_start;
	bool		remembers;
	int64_t		started_ns;
	bool		running;
	bool		stopping;		/* waits for its leases to be revoked */
	bool		paused;
	int			outputs_left;	/* of the core, until the process dies; 0: it does not */
	bool		is_dead;		/* it has died in a call of the core that goes on */
	ElectionCore *core;
	ElectionConfig config;

	/* clock_ns = base + true time * rate */
	int64_t		clock_base_ns;
	int64_t		clock_ppb;
	int64_t		stale_clock_ns; /* NEVER: the elector reads its clock now */
	int64_t		last_clock_ns;

	Client		client;
	Served		served;			/* the requests that etcd has executed for it */
	Item	   *inbox;
	int			nitems;
	int			items_room;
	int64_t		timer_ns;
	uint64_t	timer_number;
	int			idle_ticks;		/* calls at the same time that changed nothing */
	ElectionReason reason;		/* the reason that an "unelected" of this call must have */
	int			reason_slot;	/* the slot that it is for; -1: any */

	/* what SQL reads */
	ElectionView views[MAX_SLOTS];

	Work		work[MAX_SLOTS];
	Ticket		tickets[MAX_TICKETS];
	uint64_t	next_ticket;
	uint64_t	ndrains;
};

extern Instance *instances;
extern int	ninstances;

/* Names of elections, by number. */
extern const char *election_name(int e);
extern int	election_number(const char *name);

/* Makes n instances that do not run yet. */
extern void instances_reset(int n);

extern int64_t instance_clock(const Instance *in);

/* The true time at which its clock shows clock_ns. */
extern int64_t instance_true_time(const Instance *in, int64_t clock_ns);

/* Would SQL report now that it leads? */
extern bool instance_leads(const Instance *in, int slot);

extern void instance_start(Instance *in);
extern void instance_stop(Instance *in);
extern void instance_crash(Instance *in, bool readers_survive, bool keeps_memory);
extern void instance_pause(Instance *in);
extern void instance_resume(Instance *in);
extern void instance_configure(Instance *in);

extern void instance_resign(Instance *in, int slot, bool rejoin, int64_t drain_ns);
extern void instance_campaign(Instance *in, int slot);
extern void instance_transfer(Instance *in, int slot, const char *to_node, int64_t timeout_ns, int64_t drain_ns);

/* The caller of the command that drains gives up; does nothing if none does. */
extern void instance_cancel(Instance *in, int slot);

/* No work is open any more, if it still drains. */
extern void instance_drained(Instance *in, int slot);
extern void instance_proclaim(Instance *in, int slot, const char *value);
extern void instance_verify(Instance *in, int slot);

/* Passes an input to the elector, now or when it runs again. */
extern void instance_deliver(Instance *in, uint32_t life, void (*handler) (void *subject),
							 void *subject, bool is_timeout);

/* The time that the elector has read from its clock. */
extern int64_t instance_now(Instance *in);

/* ---- client.c --------------------------------------------------------------- */

extern void client_reset(Instance *in);
extern void client_configure(Instance *in, int nendpoints, int64_t request_timeout_ns);
extern void client_send(Instance *in, uint64_t id, const EtcdRequest *request);
extern void client_watch(Instance *in, const EtcdWatch *watches, int nwatches);
extern void client_change_endpoint(Instance *in, int endpoint);

#endif							/* INSTANCE_H */
