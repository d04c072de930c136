/*-------------------------------------------------------------------------
 *
 * etcd_leader.h
 *	  The C API of etcd_leader, for other extensions.
 *
 * An extension needs this header alone to be built, and no library to be
 * linked with:
 *
 *		#include "etcd_leader/etcd_leader.h"
 *
 *		const EtcdLeaderApi *api = etcd_leader_api();
 *
 *		if (api != NULL && api->is_leader(NULL))
 *			do_the_work_of_the_leader();
 *
 * Compatibility.  Within one ETCD_LEADER_API_VERSION members are only ever
 * appended, to EtcdLeaderApi as well as to the structs that it fills in, and
 * no member changes its meaning.  Another version number means that the API
 * is another one; etcd_leader_api() then returns NULL.  So an extension works
 * with every library of its version that is as new as its header, or newer;
 * with an older one etcd_leader_api() returns NULL.
 *
 * Conventions.  An election is given by its name, in UTF-8; NULL stands for
 * the first one in etcd_leader.elections.  Text that is filled in is UTF-8,
 * whatever the encoding of the database, and is empty where SQL has NULL; a
 * number or a time is 0 there.  The functions are for the processes of a
 * server with etcd_leader in shared_preload_libraries: backends and background
 * workers with BGWORKER_SHMEM_ACCESS.  None of them may be called in the
 * postmaster, or by another thread than the main one.  Where a function may be
 * called is said with each.
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
	char		node_name[ETCD_LEADER_NODE_SIZE];
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
	const char *protocol;		/* of static lifetime; empty: not known yet */
	bool		connected;
	TimestampTz last_contact;
	char		last_error[ETCD_LEADER_ERROR_SIZE];
	TimestampTz last_error_at;
	int64		won;			/* how often, since stats_reset */
	int64		lost;
	bool		is_draining;	/* leads, but for no new work: not is_leader */
	uint64		cluster_id;		/* of etcd; 0: none was entered yet */
	int64		ttl_ms;			/* of the lease in use, or of the settings */
} EtcdLeaderStatus;

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
	/* of a change */
	char		key[ETCD_LEADER_CHANGE_SIZE];
	bool		has_value;		/* false: SQL has NULL; an empty value is none */
	char		value[ETCD_LEADER_CHANGE_SIZE];
	int64		revision;
} EtcdLeaderEvent;

/* The counters of the whole instance, since stats_reset. */
typedef struct EtcdLeaderStats
{
	TimestampTz stats_reset;
	int64		requests;		/* sent to etcd */
	int64		failures;		/* of these, without a good answer */
	int64		elections_won;
	int			nreasons;
	struct
	{
		const char *reason;		/* of static lifetime */
		int64		count;
	}			elections_lost[ETCD_LEADER_REASONS];
	int64		notifications_sent;

	/* How long etcd's good answers took. */
	int64		answers;
	int64		latency_sum_ns;
	int			nbuckets;
	struct
	{
		int64		limit_ns;
		int64		count;		/* the number of answers that took at most this long */
	}			latency_buckets[ETCD_LEADER_BUCKETS];

	/* Runs of hooks that have ended. */
	int			nhook_statuses;
	struct
	{
		const char *status;		/* of static lifetime */
		int64		count;
	}			hook_runs[ETCD_LEADER_HOOK_STATUSES];

	int64		endpoint_switches;

	int64		timeouts;		/* of the failures */
	int64		commits_refused;
	int64		statements_cancelled;
	int64		transactions_refused;	/* while this instance drained */
	int64		drains;
	int			notifiers_expected; /* now */
	int			notifiers_running;
	/* days until the certificate for etcd expires, negative if it has */
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
	int			position;		/* from 1, the leader; 0: a member of Patroni's that does not lead */
	bool		is_self;
} EtcdLeaderCandidate;

typedef struct EtcdLeaderApi
{
	uint32		version;		/* ETCD_LEADER_API_VERSION of the library */
	uint32		size;			/* sizeof(EtcdLeaderApi) there */
	const char *library_version;	/* of etcd_leader, such as "1.0" */

	/*
	 * Does this instance lead, now?  As etcd_is_leader() of SQL, but false for
	 * an election that is not in etcd_leader.elections, and for NULL if that
	 * is empty.  The answer is about the moment at which it reads shared
	 * memory.  No error, no lock, no wait: may be called anywhere but in a
	 * signal handler, also in a critical section, without a transaction, and
	 * after an error.
	 */
	bool		(*is_leader) (const char *election);

	/*
	 * The fencing token while this instance leads, else 0.  For the rest as
	 * is_leader().
	 */
	int64		(*fencing_token) (const char *election);

	/*
	 * Fences the transaction of the caller, as etcd_require_leader() of SQL: it
	 * commits only if this instance still leads under the same token then.
	 * Returns the token.  ERROR 25006 if the instance does not lead, 42704 if
	 * there is no such election, 55000 for NULL if there is none at all.  To
	 * be called in a transaction, by a backend or a background worker that is
	 * connected to a database.  Calls no network, and takes no lock that it
	 * would have to wait for.
	 */
	int64		(*require_leader) (const char *election);

	/*
	 * Fills in the status of election number `index`, from 0, in the order of
	 * etcd_leader.elections.  `size` is the caller's sizeof(EtcdLeaderStatus).
	 * False if there are fewer elections; then nothing is filled in.
	 * No error, no lock, no wait; not in a signal handler.
	 */
	bool		(*get_status) (int index, EtcdLeaderStatus *status, Size size);

	/*
	 * Fills in the first event with a seq greater than `after` that is still
	 * there; at least the last 256 are.  `size` is the caller's
	 * sizeof(EtcdLeaderEvent).  False if there is none; then nothing is filled
	 * in.  It looks at no privileges: keys and values of changes are for roles
	 * that may call etcd_get().  No error, no lock, no wait; not in a signal
	 * handler.
	 */
	bool		(*get_event) (int64 after, EtcdLeaderEvent *event, Size size);

	/*
	 * A number that changes whenever something is published: an event, or
	 * whether this instance leads an election.  Read it before you read the
	 * state, and pass it to wait_for_change().  No error, no lock, no wait.
	 */
	uint64		(*change_number) (void);

	/*
	 * Waits until change_number() is not `seen` any more, or the deadline
	 * passes that a leadership of this instance has when the wait begins; or
	 * until the latch of the process is set, or `timeout_ms` milliseconds are
	 * over (-1: no limit).  Returns at once if change_number() is another one
	 * already.  `wait_event` is shown in pg_stat_activity, such as
	 * PG_WAIT_EXTENSION.
	 *
	 * The latch is reset, and interrupts are served, so that it may raise an
	 * ERROR; the death of the postmaster ends the process.  True if something
	 * was published, or the deadline passed.  In either case look at the flags
	 * of your signal handlers, and ask again who leads: the leadership may
	 * have been renewed meanwhile.  To be called where CHECK_FOR_INTERRUPTS()
	 * may be, and not while the process is in the wait list of a condition
	 * variable.
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
	 * `size` is the caller's sizeof(EtcdLeaderCandidate).  The number of
	 * places, -1 if there was no answer within `timeout_ms` milliseconds (-1:
	 * no limit) or there is no such election.  Waits; interrupts are served,
	 * so that it may raise an ERROR.  To be called where
	 * CHECK_FOR_INTERRUPTS() may be.
	 */
	int			(*get_candidates) (int index, EtcdLeaderCandidate *candidates, int max, Size size, long timeout_ms);
} EtcdLeaderApi;

/*
 * The API, NULL if etcd_leader was not preloaded, or its library is of another
 * version of the API or older than this header.  Each process asks for itself,
 * at first use or later: not in _PG_init() of a library that is preloaded, as
 * that may come first.
 */
static inline const EtcdLeaderApi *
etcd_leader_api(void)
{
	const EtcdLeaderApi *api = *(const EtcdLeaderApi **) find_rendezvous_variable(ETCD_LEADER_API_NAME);

	return api != NULL && api->version == ETCD_LEADER_API_VERSION &&
		api->size >= sizeof(EtcdLeaderApi) ? api : NULL;
}

#endif							/* ETCD_LEADER_H */
