/*-------------------------------------------------------------------------
 *
 * state.h
 *	  What the elector publishes and backends read: elections and contact.
 *
 * The elector is the only writer.  Readers take no lock and never wait for it:
 * it may be stopped at any instruction.  Nothing process-local (pointer, fd) is
 * in here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHARED_STATE_H
#define SHARED_STATE_H

#include "datatype/timestamp.h"

#include "protocol/election.h"
#include "shared/part.h"

/* ---- life ------------------------------------------------------------ */

/*
 * Called once, at library load in the postmaster: makes the lasting parts, and
 * installs the hooks that make the others.  A part comes after those that its
 * initialization reads.
 */
extern void shared_state_install(const SharedPart *const *parts, int nparts);

extern const SharedPart shared_state_part;
extern const SharedPart shared_elections_part;

/* False in a server that has not preloaded the library. */
extern bool shared_state_is_attached(void);

/*
 * The elector begins (withdraws the leaderships that an earlier one left, and
 * fails the commands of its callers) and ends (withdraws everything).  begin
 * stores the number of this process, so that backends can set its latch.
 */
extern void shared_state_begin_elector(void);
extern void shared_state_end_elector(void);

/*
 * For an elector that ends at once: withdraws everything, by plain stores, and
 * leaves shared memory.  All functions can still be called; they read and write
 * memory of this process, take no lock of another, and wake nobody.  False if
 * there is no memory for that: then everything is withdrawn, and the process
 * has to end without touching shared memory.
 */
extern bool shared_state_leave(void);
extern bool shared_state_has_elector(void);

/*
 * Was there no free background worker slot (max_worker_processes) for the
 * elector, so that there is none until the server is restarted?  Set in the
 * postmaster, and inherited by all of its processes.
 */
extern bool shared_state_lacks_elector;

/* Is this the first elector since the server started, or restarted itself? */
extern bool shared_state_is_first_elector(void);

/* Wakes the elector, if there is one. */
extern void shared_state_wake_elector(void);

/* ---- elections ------------------------------------------------------- */

/*
 * Publishes one slot.  If view->deadline_ns is 0, no reader sees leadership
 * any more when this returns.
 */
extern void shared_state_publish(int slot, const ElectionView *view);

/*
 * The slot of an election, -1 if the elector has not taken it up.  Slots can
 * be given to another election: `layout` (out) has to be passed to the
 * functions below, which say "not leading" when it is out of date.
 */
extern int	shared_state_find(const char *election, uint64 *layout);
extern uint64 shared_state_layout(void);

/*
 * Does this instance lead, now, and take new work?  One atomic load and one
 * clock read.
 */
extern bool shared_state_is_leader(int slot, uint64 layout);

/*
 * The token while this instance leads, else 0.  Deadline and token belong
 * together.  The first one is for new work: it is 0 while the instance drains.
 */
extern int64 shared_state_token(int slot, uint64 layout);
extern int64 shared_state_held_token(int slot, uint64 layout);

typedef struct SharedElection
{
	ElectionView view;			/* as published */
	TimestampTz leader_since;	/* when this leader was first seen; 0: none */
	int64		deadline_ns;	/* that readers go by now, 0 if withdrawn; this
								 * instance leads if the clock is below it */
} SharedElection;

/* A consistent copy; false if the slot is free or the layout out of date. */
extern bool shared_state_read(int slot, uint64 layout, SharedElection *election);

/* The leader's name at that time, in UTF-8; NULL: none is known. */
static inline const char *
shared_state_leader(const SharedElection *election, int64 now_ns)
{
	return election->view.has_leader && election->view.leader_until_ns > now_ns ?
		election->view.leader : NULL;
}

/*
 * When the next leadership of this instance ends if it is not renewed;
 * PG_INT64_MAX if there is none.
 */
extern int64 shared_state_next_deadline_ns(void);

/* ---- contact with etcd ------------------------------------------------ */

#define SHARED_ENDPOINT_SIZE 256

typedef struct SharedContact
{
	char		node_name[ELECTION_VALUE_SIZE];
	char		endpoint[SHARED_ENDPOINT_SIZE];
	EtcdDialect dialect;		/* of the requests */
	uint64		cluster_id;		/* 0: none was entered */
	int64		ttl_ms;
	bool		connected;
	TimestampTz last_contact;	/* 0: never */
	char		last_failure[ETCD_MESSAGE_SIZE];	/* of a request, or of a watch; empty: none */
} SharedContact;

extern void shared_state_publish_contact(const SharedContact *contact);
extern void shared_state_read_contact(SharedContact *contact);

/* An endpoint of etcd; texts are empty if there is nothing to say. */
typedef struct SharedEndpoint
{
	char		url[SHARED_ENDPOINT_SIZE];
	bool		in_use;
	char		version[ETCD_MESSAGE_SIZE];
	uint64		cluster_id;		/* 0: it has not told */
	char		member_name[ETCD_MESSAGE_SIZE];
	int64		answered_ns;	/* when it answered last, on the monotonic clock */
	TimestampTz last_contact;	/* the same on the wall clock; 0: never */
	int64		latency_ns;		/* of that answer */
	char		last_error[ETCD_MESSAGE_SIZE];	/* why it cannot be used */
} SharedEndpoint;

typedef struct SharedEndpoints
{
	int			nendpoints;
	SharedEndpoint endpoints[ELECTION_MAX_ENDPOINTS];
} SharedEndpoints;

extern void shared_state_publish_endpoints(const SharedEndpoints *endpoints);
extern void shared_state_read_endpoints(SharedEndpoints *endpoints);

#endif							/* SHARED_STATE_H */
