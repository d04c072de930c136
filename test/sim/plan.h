/*-------------------------------------------------------------------------
 *
 * plan.h
 *	  What a run is made of: drawn from its seed before it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PLAN_H
#define PLAN_H

#include "sim.h"

typedef enum Profile
{
	PROFILE_CALM,				/* hand-overs and compactions, no faults: all is quick */
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

/* What faults.c does, each so many times in 10,000 tenths of a second. */
typedef enum Fault
{
	FAULT_CUT_INSTANCE,			/* from every member */
	FAULT_CUT_LINK,				/* from one member */
	FAULT_CUT_MEMBER,
	FAULT_SLOW_MEMBER,			/* applies late */
	FAULT_CRASH_MEMBER,
	FAULT_PAUSE_MEMBER,
	FAULT_ELECT,				/* etcd's leader changes without need */
	FAULT_PAUSE_INSTANCE,
	FAULT_CRASH_INSTANCE,
	FAULT_STOP_INSTANCE,
	FAULT_RESIGN,
	FAULT_CAMPAIGN,
	FAULT_PROCLAIM,
	FAULT_CONFIGURE,
	FAULT_DELETE_KEY,
	FAULT_RELEASE_KEY,			/* put on another lease, or on none */
	FAULT_REVOKE_LEASE,
	FAULT_ROGUE_KEY,			/* under the prefix, without a lease */
	FAULT_OTHER_WRITE,			/* the revision goes on */
	FAULT_COMPACT,
	FAULT_FOREIGN,				/* a candidate of etcdctl comes or goes */
	FAULT_STORM_OF_LOSS,		/* for a while most messages are lost */
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
	int			slots;			/* max_elections of an instance */

	/* etcd's version and settings */
	int			dialect;		/* of the gateway: 1 or 2 */
	bool		ensures_leadership; /* before a keepalive is answered */
	bool		early_lessor;	/* a new leader does not wait for its log */
	bool		pre_vote;
	bool		late_revokes;	/* a woken leader's are forwarded */
	bool		compaction_hides;	/* a deletion, from a watch that begins there */
	bool		syncs_in_batches;	/* watches of a stream catch up one after the other */
	int			stale_reads;	/* of 10,000: by a member that has just woken up */
	int64_t		election_timeout_ns;
	int			late_expiry;	/* of 10,000: a lease that has run out is not revoked at once */
	int64_t		expiry_lateness_ns;
	int			late_writes;	/* of 10,000: proposed only after a while */
	int			granted_part;	/* of the TTL that is asked for, one in so many; 0: all of it */

	/* the network */
	int64_t		link_delay_ns;
	int64_t		link_jitter_ns;
	int64_t		apply_delay_ns;
	int			loss;			/* of 10,000, of each message */
	int			slow;			/* much slower than usual */
	int64_t		slow_ns;
	int			repeat;			/* executed twice */
	int			garbage;

	/* instances */
	int			ttl_s[2];		/* one of these */
	int			margin_ms;		/* -1: a tenth */
	int64_t		request_timeout_ms; /* -1: a ninth of the TTL */
	int			drift_ppm;		/* clocks run at most so much faster or slower */

	int			fault[NFAULTS];
	int			about_ttl;		/* of 10,000: a fault lasts for about as long as a lease */
	int			preferred;		/* 0: nobody; 1: all have one list; 2: each has its own */
	int			preferred_delay_ms;
	int			haste;			/* of 10,000: a command is followed by another at once */
	int			stop_at_renewal;	/* of 10,000: etcd's leader, when a keepalive comes */
	int			stop_at_grant;	/* the same, when it has granted a lease */
	int			proclaim_at_grant;	/* an instance proclaims, when a lease was granted */
	int			touch_at_look;	/* an operator, what a client has just read */
	int64_t		faults_end_ns;
	int64_t		calm_ns;		/* what is left for recovery */
	int64_t		restore_ns;		/* PROFILE_RESTORE: when */
} Plan;

extern Plan plan;

extern void plan_draw(uint64_t seed);
extern const char *profile_name(Profile profile);

/* The least TTL that etcd grants, and the highest in use. */
extern int	plan_least_ttl_s(void);
extern int	plan_longest_ttl_s(void);

/* What etcd grants to who asks for that much. */
extern int	plan_granted_ttl_s(int asked_s);

#endif							/* PLAN_H */
