/*-------------------------------------------------------------------------
 *
 * cluster.h
 *	  etcd's members and their abstract raft.
 *
 * There is at most one true leader, that of the highest term.  While it has a
 * majority, its entries are committed as soon as it appends them.  Each member
 * applies the log later.  A member that was cut off or stopped may think for a
 * while that it still leads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "store.h"

typedef struct Member
{
	char		name[8];
	uint64_t	id;
	bool		up;
	bool		paused;
	bool		cut;			/* cut off from the other members */
	uint32_t	boot;			/* number of its process */
	int64_t		applied;		/* log index of the last entry it has applied */
	bool		applying;
	int64_t		lag_ns;			/* additional delay of applying */
	int64_t		stale_until_ns; /* until then it may read by an old read index (#20418) */
	bool		thinks_leader;
	int64_t		thinks_until_ns;
	uint64_t	lead_epoch;		/* how often it became leader */
	int			believes;		/* the leader it knows; -1: none */
	int64_t		leaderless_ns;	/* when it has lost, or will lose, its leader */
	int			lie;			/* the next header has a raft term that is so much higher */
} Member;

typedef struct Cluster
{
	int			nmembers;
	Member		members[MAX_MEMBERS];
	uint64_t	cluster_id;
	uint64_t	term;
	int			leader;			/* -1: none */
	bool		electing;
	uint32_t	history;		/* how often it was put back to an earlier state */
} Cluster;

extern Cluster cluster;

extern void cluster_start(void);

/* Does the true leader run, with a majority? */
extern bool cluster_works(void);

/* Do two members reach each other? */
extern bool members_connected(int a, int b);

/* Does it run?  It may be cut off. */
extern bool member_runs(int m);

/* Does it know of a leader? */
extern bool member_has_leader(int m);

/* Does it believe to be the leader? */
extern bool member_thinks_leader(int m);

extern uint64_t member_term(int m);
extern void member_header(int m, EtcdHeader *header);

/* Faults. */
extern void member_pause(int m, bool pause);
extern void member_cut(int m, bool cut);
extern void member_crash(int m);
extern void member_start(int m);
extern void cluster_elect(int m);
extern void cluster_restore(int64_t index, uint64_t term, bool other_cluster);

/*
 * Commits a write now.  False if there is no true leader with a majority.
 */
extern bool cluster_write(const EtcdRequest *request, Cause cause, EtcdAnswer *answer);
extern bool cluster_compact(int64_t revision);

/* ---- lessor.c: the expiry times that each leader keeps of leases ---------- */

extern void lessor_promote(int m);
extern void lessor_granted(StoreLease *lease);
extern void lessor_woken(int m);

/*
 * Renews a lease at a member that thinks it leads.  Returns the TTL of the
 * answer, 0 if it knows no such lease.
 */
extern int64_t lessor_renew(int m, int64_t id);

/*
 * Returns the remaining whole seconds of a lease, as a member knows them that
 * thinks it leads.  If it knows no such lease, returns -1, with granted_s 0.
 */
extern int64_t lessor_time_to_live(int m, int64_t id, int64_t *granted_s);

/* ---- called by cluster.c ------------------------------------------------------ */

/* server.c: the member has applied more, or something about leaders changed. */
extern void server_wake(int m);
extern void server_crashed(int m);

/* streams.c */
extern void streams_advance(int m);
extern void streams_crashed(int m);
extern void streams_leaderless(int m);

#endif							/* CLUSTER_H */
