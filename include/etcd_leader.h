/*-------------------------------------------------------------------------
 *
 * etcd_leader.h
 *	  The C API of etcd_leader, for other extensions.
 *
 * To build an extension you need no other header of etcd_leader, and no library
 * to link with:
 *
 *		#include "etcd_leader/etcd_leader.h"
 *
 *		const EtcdLeaderApi *api = etcd_leader_api();
 *
 *		if (api != NULL && api->is_leader(NULL))
 *			do_the_work_of_the_leader();
 *
 * Compatibility.  As long as ETCD_LEADER_API_VERSION stays the same, releases
 * only append members to EtcdLeaderApi and to the structs that it fills in, and
 * no member changes its meaning.  A different version number means an incompatible
 * API; etcd_leader_api() then returns NULL.  So an extension works with every
 * library of its API version that is as new as the header of the extension, or
 * newer.  With an older library etcd_leader_api() returns NULL.
 *
 * Conventions.  The caller names an election in UTF-8; NULL stands for the first
 * election in etcd_leader.elections.  The functions fill in text in UTF-8,
 * whatever the encoding of the database.  Where SQL has NULL, a text is empty, and
 * a number or a time is 0.  The functions are for the processes of a server with
 * etcd_leader in shared_preload_libraries: backends and background workers with
 * BGWORKER_SHMEM_ACCESS.  Do not call them in the postmaster, and call them in the
 * main thread only.  The comment of each function says where you may call it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_LEADER_H
#define ETCD_LEADER_H

#include "datatype/timestamp.h"
#include "fmgr.h"

#define ETCD_LEADER_API_NAME		"etcd_leader_api"
#define ETCD_LEADER_API_VERSION		1

/* Sizes of text, with the terminating NUL. */
#define ETCD_LEADER_NAME_SIZE		128
#define ETCD_LEADER_NODE_SIZE		256
#define ETCD_LEADER_KEY_SIZE		512
#define ETCD_LEADER_URL_SIZE		256
#define ETCD_LEADER_REASON_SIZE		256
#define ETCD_LEADER_ERROR_SIZE		512
#define ETCD_LEADER_CHANGE_SIZE		1001

#define ETCD_LEADER_REASONS			16
#define ETCD_LEADER_BUCKETS			16
#define ETCD_LEADER_HOOK_STATUSES	8

/* A row of the view etcd_leader_status. */
typedef struct EtcdLeaderStatus
{
	char		election[ETCD_LEADER_NAME_SIZE];
	char		node[ETCD_LEADER_NODE_SIZE];
	const char *role;			/* of static lifetime */
	bool		is_leader;
	char		leader[ETCD_LEADER_NODE_SIZE];
	int64		fencing_token;	/* of the leader */
	TimestampTz leader_since;
	int64		valid_for_us;	/* microseconds; 0 unless is_leader */
	int64		lease_id;
	char		key[ETCD_LEADER_KEY_SIZE];
	int64		create_revision;
	const char *state;			/* of static lifetime */
	char		endpoint[ETCD_LEADER_URL_SIZE];
	const char *protocol;		/* of static lifetime; empty before the settings are read */
	bool		connected;
	TimestampTz last_contact;
	char		last_error[ETCD_LEADER_ERROR_SIZE];
	TimestampTz last_error_at;
	int64		won;			/* number of elections won, since stats_reset */
	int64		lost;			/* number of elections lost, since stats_reset */
	bool		is_draining;	/* leads, but refuses new work; is_leader is false */
	uint64		cluster_id;		/* of etcd; 0: still unknown */
	int64		ttl_ms;			/* of the lease in use, or of the settings */
} EtcdLeaderStatus;

/* A row of the view etcd_leader_problems. */
typedef struct EtcdLeaderProblem
{
	const char *item;			/* of static lifetime */
	char		subject[ETCD_LEADER_URL_SIZE];
	const char *severity;		/* "error" or "warning", of static lifetime */
	char		problem[ETCD_LEADER_ERROR_SIZE];
	char		hint[ETCD_LEADER_ERROR_SIZE];
	TimestampTz since;
} EtcdLeaderProblem;

/* A row of etcd_leader_events(). */
typedef struct EtcdLeaderEvent
{
	int64		seq;
	TimestampTz at;
	char		election[ETCD_LEADER_NAME_SIZE];
	const char *event;			/* of static lifetime */
	char		node[ETCD_LEADER_NODE_SIZE];
	char		leader[ETCD_LEADER_NODE_SIZE];
	int64		fencing_token;
	char		reason[ETCD_LEADER_REASON_SIZE];
	/* of a change of a key */
	char		key[ETCD_LEADER_CHANGE_SIZE];
	bool		has_value;		/* false: SQL has NULL; true: the value may be empty */
	char		value[ETCD_LEADER_CHANGE_SIZE];
	int64		revision;
} EtcdLeaderEvent;

/* The counters of the whole instance, since stats_reset. */
typedef struct EtcdLeaderStats
{
	TimestampTz stats_reset;
	int64		requests;		/* sent to etcd */
	int64		failures;		/* requests without a good answer */
	int64		elections_won;
	int			nreasons;
	struct
	{
		const char *reason;		/* of static lifetime */
		int64		count;
	}			elections_lost[ETCD_LEADER_REASONS];
	int64		notifications_sent;

	/* How long etcd took for good answers. */
	int64		answers;
	int64		latency_sum_ns;
	int			nbuckets;
	struct
	{
		int64		limit_ns;
		int64		count;		/* of the answers that took limit_ns or less */
	}			latency_buckets[ETCD_LEADER_BUCKETS];

	/* Runs of hooks that have ended. */
	int			nhook_statuses;
	struct
	{
		const char *status;		/* of static lifetime */
		int64		count;
	}			hook_runs[ETCD_LEADER_HOOK_STATUSES];

	int64		endpoint_switches;

	int64		timeouts;		/* failures by a timeout */
	int64		commits_refused;
	int64		statements_cancelled;
	int64		transactions_refused;	/* while this instance drained */
	int64		drains;
	int			notifiers_expected; /* at the time of the call */
	int			notifiers_running;	/* at the time of the call */
	/* days until the certificate for etcd expires; negative: it has expired */
	bool		has_certificate;
	double		certificate_days;
} EtcdLeaderStats;

/* A place in the queue of an election, as etcd has it. */
typedef struct EtcdLeaderCandidate
{
	char		node[ETCD_LEADER_NODE_SIZE];
	char		key[ETCD_LEADER_KEY_SIZE];
	int64		lease_id;
	int64		create_revision;
	int			position;		/* 1 is the leader; 0: a member of Patroni that does not lead */
	bool		is_self;
} EtcdLeaderCandidate;

typedef struct EtcdLeaderApi
{
	uint32		version;		/* ETCD_LEADER_API_VERSION of the library */
	uint32		size;			/* sizeof(EtcdLeaderApi) in the library */
	const char *library_version;	/* of etcd_leader, such as "1.0" */

	/*
	 * Does this instance lead the election at this moment?  As etcd_is_leader()
	 * of SQL.  But the result is false if etcd_leader.elections does not list the
	 * election, or is empty and the argument is NULL.  The answer is about the
	 * moment at which the function reads shared memory.  No error, no lock, no
	 * wait: call it anywhere but in a signal handler, also in a critical section,
	 * without a transaction, and after an error.
	 */
	bool		(*is_leader) (const char *election);

	/*
	 * The fencing token while this instance leads, else 0.  Everything else is as
	 * for is_leader().
	 */
	int64		(*fencing_token) (const char *election);

	/*
	 * Fences the transaction of the caller, as etcd_require_leader() of SQL: the
	 * transaction commits only if this instance still leads under the same token
	 * at the commit.  Returns the token.  ERROR 25006 if the instance does not
	 * lead, 42704 if there is no such election, 55000 for NULL if there is no
	 * election at all.  Call it in a transaction, in a backend or in a background
	 * worker that is connected to a database.  The function neither uses the
	 * network nor waits for a lock.
	 */
	int64		(*require_leader) (const char *election);

	/*
	 * Fills in the status of election number `index`, from 0, in the order of
	 * etcd_leader.elections.  `size` is the caller's sizeof(EtcdLeaderStatus).
	 * False if there are fewer elections; *status is then unchanged.
	 * No error, no lock, no wait.  Do not call it in a signal handler.
	 */
	bool		(*get_status) (int index, EtcdLeaderStatus *status, Size size);

	/*
	 * Fills in the first event in memory with a seq greater than `after`; the
	 * memory holds at least the last 256 events.  `size` is the caller's
	 * sizeof(EtcdLeaderEvent).  False if there is no such event; *event is then
	 * unchanged.  The function checks no privileges: show keys and values of
	 * changes only to roles that may call etcd_get().  No error, no lock, no wait.
	 * Do not call it in a signal handler.
	 */
	bool		(*get_event) (int64 after, EtcdLeaderEvent *event, Size size);

	/*
	 * A number that changes whenever the elector publishes an event, or that this
	 * instance wins or loses an election.  Read the number before you read the
	 * state, and pass it to wait_for_change().  No error, no lock, no wait.
	 */
	uint64		(*change_number) (void);

	/*
	 * Waits until change_number() differs from `seen`, or until a deadline passes
	 * that a leadership of this instance had at the beginning of the wait.  Also
	 * returns when the latch of the process is set, or after `timeout_ms`
	 * milliseconds (-1: no limit).  Returns at once if change_number() already
	 * differs.  pg_stat_activity shows `wait_event`, such as PG_WAIT_EXTENSION.
	 *
	 * The function resets the latch, and serves interrupts, so it may raise an
	 * ERROR; the death of the postmaster ends the process.  True if the number has
	 * changed, or the deadline has passed.  In either case look at the flags of
	 * your signal handlers, and ask again who leads: the elector may have renewed
	 * the leadership meanwhile.  Call it where you may call
	 * CHECK_FOR_INTERRUPTS(), and not while the process is in the wait list of a
	 * condition variable.
	 */
	bool		(*wait_for_change) (uint64 seen, long timeout_ms, uint32 wait_event);

	/*
	 * Fills in the counters.  `size` is the caller's sizeof(EtcdLeaderStats).
	 * No error, no lock, no wait.
	 */
	void		(*get_stats) (EtcdLeaderStats *stats, Size size);

	/*
	 * Asks etcd, through the elector, for the queue of election number
	 * `index`, and fills in its first places, at most `max`, in order;
	 * `size` is the caller's sizeof(EtcdLeaderCandidate).  Returns the number of
	 * places, or -1 if no answer came within `timeout_ms` milliseconds (-1: no
	 * limit) or there is no such election.  The function waits and serves
	 * interrupts, so it may raise an ERROR.  Call it where you may call
	 * CHECK_FOR_INTERRUPTS().
	 */
	int			(*get_candidates) (int index, EtcdLeaderCandidate *candidates, int max,
								   Size size, long timeout_ms);

	/*
	 * Fills in row number `index`, from 0, of the view etcd_leader_problems.  `size` is
	 * the caller's sizeof(EtcdLeaderProblem).  False if there are fewer rows;
	 * *problem is then unchanged.  Index 0 reads the list, and the calls for the
	 * others go through what it has read.  No error, no lock, no wait.  Do not call it in
	 * a signal handler.
	 */
	bool		(*get_problem) (int index, EtcdLeaderProblem *problem, Size size);
} EtcdLeaderApi;

/*
 * The API.  NULL if the server has not preloaded etcd_leader, or if the library
 * has a different version of the API, or is older than this header.  Each process
 * calls this function, at the first use of the API or later.  Do not call it in
 * _PG_init() of a preloaded library, because the server may load etcd_leader later.
 */
static inline const EtcdLeaderApi *
etcd_leader_api(void)
{
	void	  **variable = find_rendezvous_variable(ETCD_LEADER_API_NAME);
	const EtcdLeaderApi *api = (const EtcdLeaderApi *) *variable;

	return api != NULL && api->version == ETCD_LEADER_API_VERSION &&
		api->size >= sizeof(EtcdLeaderApi) ? api : NULL;
}

#endif							/* ETCD_LEADER_H */
