/*-------------------------------------------------------------------------
 *
 * plan.h
 *	  The plan of a run, drawn from its seed before it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PLAN_H
#define PLAN_H

#include "sim.h"

typedef enum Profile
{
	PROFILE_CALM,				/* hand-overs and compactions, no faults, short delays */
	PROFILE_NETWORK,			/* loss, delay, repetition, garbage */
	PROFILE_PARTITION,			/* instances and members are cut off */
	PROFILE_ETCD,				/* members stop and start, etcd's leader changes */
	PROFILE_WOKEN,				/* etcd's leader is stopped, and wakes up */
	PROFILE_INSTANCE,			/* instances are stopped, killed, restarted */
	PROFILE_OPERATOR,			/* keys and leases are touched by others */
	PROFILE_RESTORE,			/* etcd is put back to an earlier state */
	PROFILE_ALL,				/* everything but a restore */
	NPROFILES
} Profile;

/* The faults and commands of faults.c.  Rates are per 10,000 tenths of a second. */
typedef enum Fault
{
	FAULT_CUT_INSTANCE,			/* from every member */
	FAULT_CUT_LINK,				/* from one member */
	FAULT_CUT_MEMBER,
	FAULT_SLOW_MEMBER,			/* applies late */
	FAULT_CRASH_MEMBER,
	FAULT_PAUSE_MEMBER,
	FAULT_PAUSE_KNOWN,			/* etcd's leader, which is the only member that clients know */
	FAULT_ELECT,				/* etcd's leader changes without need */
	FAULT_PAUSE_INSTANCE,
	FAULT_CRASH_INSTANCE,
	FAULT_DIE,					/* an instance crashes between any two outputs of its core */
	FAULT_STOP_INSTANCE,
	FAULT_RESIGN,
	FAULT_CAMPAIGN,
	FAULT_PROCLAIM,
	FAULT_CONFIGURE,
	FAULT_DELETE_KEY,
	FAULT_RELEASE_KEY,			/* puts a key on another lease, or on none */
	FAULT_REVOKE_LEASE,
	FAULT_ROGUE_KEY,			/* puts a key without a lease under the prefix */
	FAULT_OTHER_WRITE,			/* writes another key, so that the revision grows */
	FAULT_COMPACT,
	FAULT_FOREIGN,				/* a candidate of etcdctl comes or goes */
	FAULT_STORM_OF_LOSS,		/* most messages are lost for a while */
	FAULT_TRANSFER,
	NFAULTS
} Fault;

typedef struct Plan
{
	uint64_t	seed;
	Profile		profile;
	int			ninstances;
	int			nelections;
	int			nmembers;
	int			nendpoints;
	bool		balanced;		/* an endpoint leads to any member */
	bool		is_slow;		/* everything is answered, but late */
	int			slots;			/* places for elections in an instance */

	/* etcd's version and settings */
	int			dialect;		/* of the gateway: 1 or 2 */
	bool		ensures_leadership; /* a member makes sure that it leads before it answers a keepalive */
	bool		early_lessor;	/* a new leader answers keepalives before it has applied its log */
	bool		pre_vote;
	bool		late_revokes;	/* revocations of a woken leader are forwarded */
	bool		compaction_hides;	/* a watch that begins at the compact revision misses a deletion there */
	bool		syncs_in_batches;	/* watches of a stream catch up one after the other */
	int			stale_reads;	/* of 10,000 reads at a member that was just woken */
	int64_t		election_timeout_ns;
	int			late_expiry;	/* of 10,000 expired leases; they are not revoked at once */
	int64_t		expiry_lateness_ns;
	int64_t		latest_expiry_ns;	/* at the most so much later */
	int			late_writes;	/* of 10,000 writes; they are proposed only after a while */
	int			granted_part;	/* etcd grants the requested TTL divided by this; 0: all of it */

	/* the network */
	int64_t		link_delay_ns;
	int64_t		link_jitter_ns;
	int64_t		apply_delay_ns;
	int			loss;			/* of 10,000 messages */
	int			slow;			/* of 10,000; delayed by up to slow_ns */
	int64_t		slow_ns;
	int			repeat;			/* of 10,000; executed twice */
	int			dead_streams;	/* of 10,000; they end without an answer, at once */
	int			garbage;

	/* instances */
	int			ttl_s[2];		/* one of these */
	int			margin_ms;		/* -1: a tenth of the TTL */
	int64_t		request_timeout_ms; /* -1: a ninth of the TTL */
	int			drift_ppm;		/* the greatest difference of a clock's rate */
	bool		changes_margins;	/* new settings may have a greater margin */
	bool		has_twins;		/* new names may be those of other instances */
	bool		foreign_proclaims;	/* candidates of other programs write their keys again */
	bool		is_harsh;		/* leadership may be lost without any of the known reasons */

	int			fault[NFAULTS];
	bool		takes_rights;	/* rights to the keys of elections are taken away, and given back */
	bool		denies_renewals;	/* etcd denies keepalives of leases with keys that the user may not write */
	int			about_ttl;		/* of 10,000 faults; they last about a TTL */
	int			preferred;		/* lists of preferred nodes: 0: none; 1: one for all; 2: one for each */
	int			preferred_delay_ms;
	int			preferred_drain_ms;
	int			drains;			/* of 10,000 hand-overs; they drain */
	int			haste;			/* of 10,000 commands; another one follows at once */
	int			stop_at_renewal;	/* of 10,000 keepalives; etcd's leader is stopped */
	int			stop_at_grant;	/* of 10,000 grants; etcd's leader is stopped */
	int			proclaim_at_grant;	/* of 10,000 grants; an instance proclaims */
	int			touch_at_read;	/* of 10,000 reads; an operator changes a key that was read */
	int64_t		faults_end_ns;
	int64_t		calm_ns;		/* the time for recovery */
	int64_t		restore_ns;		/* PROFILE_RESTORE: when etcd is put back */
} Plan;

extern Plan plan;

extern void plan_draw(uint64_t seed);
extern const char *profile_name(Profile profile);

/* The least TTL that etcd grants, and the highest in use. */
extern int	plan_least_ttl_s(void);
extern int	plan_longest_ttl_s(void);

/* The TTL that etcd grants when asked for that one. */
extern int	plan_granted_ttl_s(int asked_s);

#endif							/* PLAN_H */
