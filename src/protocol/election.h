/*-------------------------------------------------------------------------
 *
 * election.h
 *	  The election protocol of one instance, as a pure state machine.
 *
 * What goes in: the time, etcd's answers, watch frames, settings, commands.
 * What comes out, through ElectionPort: requests, the set of watches,
 * publications, events, replies.  No I/O, no clock, no postgres.h: the
 * caller owns the sockets and the time, and may as well be a simulator.
 *
 * The protocol is etcd's own election (etcdctl elect, Go's
 * concurrency.Election), hardened; election.c cites the rules.
 *
 * All times are nanoseconds of one clock that never stops and never jumps
 * (CLOCK_BOOTTIME).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTION_H
#define ELECTION_H

#include <stddef.h>
#include <string.h>

#include "etcd/api.h"

/*
 * Sizes include the terminating NUL.  A key has a name as key_name.h describes it, or
 * is Patroni's "/<namespace>/<scope>/leader".
 * Values of foreign candidates may be longer than ELECTION_VALUE_SIZE; they
 * are cut, at a character's end.
 */
#define ELECTION_NAME_SIZE		128
#define ELECTION_VALUE_SIZE		256
#define ELECTION_KEY_SIZE		(2 * ELECTION_NAME_SIZE)
#define ELECTION_SYSTEM_ID_SIZE	24
#define ELECTION_REASON_SIZE	ETCD_MESSAGE_SIZE

/*
 * The suffix of the keys of etcd_leader's candidates.  etcdctl and Go's
 * concurrency.Election treat any key below the prefix as a candidate's; theirs
 * are "<election>/<lease in hex>".
 */
#define ELECTION_KEY_SUFFIX		".pg"

/*
 * An election "patroni:SCOPE", or "patroni:SCOPE/GROUP", is not held by us: it
 * follows Patroni's leader key, see patroni.c.
 */
#define ELECTION_PATRONI_PREFIX "patroni:"

static inline bool
election_is_followed(const char *name)
{
	return strncmp(name, ELECTION_PATRONI_PREFIX, sizeof(ELECTION_PATRONI_PREFIX) - 1) == 0;
}

/*
 * A txn of etcd has at most 128 operations (--max-txn-ops), and a read asks
 * for three keys of each election.
 */
#define ELECTION_MAX_ELECTIONS	32
#define ELECTION_MAX_ENDPOINTS	32
#define ELECTION_MAX_PREFERRED	32

/*
 * What an instance knows of the primaries of its database system, in one election
 * (SECOND).  It is kept over a clean restart of the server.  0: none.
 */
typedef struct ElectionTimelines
{
	uint32_t	leading;		/* the highest that was seen to lead */
	uint32_t	refused;		/* the own one, while another primary led and lived */
	uint32_t	accepted;		/* the own one, for which etcd_campaign() was called then */
} ElectionTimelines;

#define ELECTION_MIN_TTL_S		2
/* Above, etcd's lease checkpoints may shorten a lease at a change of leader. */
#define ELECTION_MAX_TTL_S		300

typedef struct ElectionConfig
{
	char		node_name[ELECTION_VALUE_SIZE];
	int			ttl_s;
	int			safety_margin_ms;	/* -1: a tenth of the TTL */
	bool		eligible;		/* may this instance campaign now? */
	bool		in_recovery;	/* then it leads no followed election, */
	bool		is_copy;		/* nor as a copy of another server; it is not eligible, either */
	char		system_identifier[ELECTION_SYSTEM_ID_SIZE];	/* in decimal */
	uint32_t	timeline;		/* of the database system; 0: in recovery */
	bool		refuses_second;	/* a second primary of a database system stays out */
	char		patroni_namespace[ELECTION_NAME_SIZE];
	/* the nodes that should lead, the best first, and for how long one waits */
	int			npreferred;
	char		preferred_nodes[ELECTION_MAX_PREFERRED][ELECTION_VALUE_SIZE];
	int			preferred_delay_ms;
	int			preferred_drain_ms;	/* how long a hand-over to them may drain; 0: not at all */
	int			nendpoints;
	int			nelections;
	char		elections[ELECTION_MAX_ELECTIONS][ELECTION_NAME_SIZE];
	/* read when an election gets a slot: whether it begins as resigned, what is known */
	bool		stay_out[ELECTION_MAX_ELECTIONS];
	ElectionTimelines timelines[ELECTION_MAX_ELECTIONS];
} ElectionConfig;

typedef enum ElectionRole
{
	ELECTION_OBSERVER,			/* does not want to lead */
	ELECTION_CANDIDATE,			/* in the queue, or on its way there */
	ELECTION_LEADER
} ElectionRole;

typedef enum ElectionState
{
	ELECTION_UNUSED,			/* the slot is free */
	ELECTION_OBSERVING,			/* not a candidate: settings or recovery */
	ELECTION_RESIGNED,			/* not a candidate: etcd_resign(rejoin => false) */
	ELECTION_SECOND_PRIMARY,	/* not a candidate: see SECOND */
	ELECTION_JOINING,			/* wants a lease and a key */
	ELECTION_QUEUED,			/* the key exists, its place is being read */
	ELECTION_WAITING,			/* the key exists, behind another one */
	ELECTION_LEADING,			/* first in the queue, and the lease is good */
	ELECTION_DRAINING,			/* of a view: leading, but for no new work */
	ELECTION_HELD_BACK,			/* first, but etcd's revision went back */
	ELECTION_LEAVING,			/* the key is being deleted */
	ELECTION_FOLLOWING			/* Patroni decides, and does not let us lead */
} ElectionState;

/*
 * The state of one election, as SQL sees it.  deadline_ns and token are
 * non-zero only while this instance leads.  Leadership ends at deadline_ns,
 * even if nobody withdraws it.  The leader's name is valid until
 * leader_until_ns.
 */
typedef struct ElectionView
{
	char		name[ELECTION_NAME_SIZE];	/* empty: the slot is free */
	ElectionState state;
	ElectionRole role;
	int64_t		deadline_ns;
	int64_t		token;			/* create revision of the own key */
	bool		has_leader;
	char		leader[ELECTION_VALUE_SIZE];
	int64_t		leader_revision;	/* create revision of the leader's key */
	int64_t		leader_until_ns;
	char		key[ELECTION_KEY_SIZE]; /* empty: there is no own key */
	int64_t		create_revision;	/* of the own key; 0: there is none */
	int64_t		lease;			/* that the own key is attached to; 0: none */
	char		problem[ELECTION_REASON_SIZE];	/* why this instance does not lead a followed
												 * election, or is a second primary;
												 * empty: no reason */
} ElectionView;

typedef enum ElectionEventKind
{
	ELECTION_EVENT_ELECTED,
	ELECTION_EVENT_UNELECTED,
	ELECTION_EVENT_LEADER,
	ELECTION_EVENT_CONNECTED,
	ELECTION_EVENT_DISCONNECTED,
	ELECTION_EVENT_DRAINING,
	ELECTION_EVENT_DRAIN_CANCELLED	/* it leads on, under the same token */
} ElectionEventKind;

typedef enum ElectionReason
{
	ELECTION_NO_REASON,
	/* of UNELECTED */
	ELECTION_REASON_RESIGNED,
	ELECTION_REASON_TRANSFERRED,	/* handed over, by command or by preference */
	ELECTION_REASON_LEASE_EXPIRED,
	ELECTION_REASON_KEY_DELETED,
	ELECTION_REASON_KEY_CHANGED,	/* the key was put on another lease */
	ELECTION_REASON_PERMISSION_DENIED,	/* etcd denies the reads of the keys (RIGHTS) */
	ELECTION_REASON_NOT_ELIGIBLE,
	ELECTION_REASON_DROPPED,	/* from the settings */
	ELECTION_REASON_SHUTDOWN,
	ELECTION_REASON_HISTORY_CHANGED,	/* etcd was replaced or restored */
	/* of LEADER */
	ELECTION_REASON_PROCLAIMED, /* same leader, new value */
	ELECTION_REASON_NO_CONTACT, /* no answer for a TTL: no leader is known */
	ELECTION_NREASONS
} ElectionReason;

typedef struct ElectionEvent
{
	ElectionEventKind kind;
	const char *election;		/* NULL: of the instance */
	const char *leader;			/* NULL: none */
	int64_t		leader_revision;
	ElectionReason reason;
	const char *detail;			/* DISCONNECTED: the error; else NULL */
} ElectionEvent;

/* How a command ended. */
typedef enum ElectionReply
{
	ELECTION_DONE,				/* true */
	ELECTION_NOTHING_TO_DO,		/* false: it was not in the queue, or was in it already */
	ELECTION_NOT_ELIGIBLE,		/* settings or recovery forbid */
	ELECTION_NOT_CANDIDATE,		/* proclaim: there is no own key */
	ELECTION_REFUSED,			/* campaign: another primary of the database system leads or
								 * has led (SECOND); the next campaign is for all that */
	ELECTION_NO_CONTACT,		/* etcd cannot be reached; see the command */
	/* transfer: */
	ELECTION_FAILED,			/* false: the target did not lead in time, see the command */
	ELECTION_NOT_LEADER,
	ELECTION_NO_SUCH_CANDIDATE,
	ELECTION_AMBIGUOUS_CANDIDATE,	/* more than one has that name */
	ELECTION_FOREIGN_CANDIDATE, /* another program's key is in between */
	ELECTION_TOO_MANY_CANDIDATES,	/* in between, for one txn */
	/* resign, transfer: */
	ELECTION_CANCELLED			/* false: the drain was, and it leads on */
} ElectionReply;

/* A lease of this instance; see lease.c. */
typedef struct ElectionLease
{
	int64_t		id;				/* 0: none */
	bool		granted;
	int			asked_ttl_s;
	int64_t		ttl_ns;
	uint64_t	term;
	int64_t		sent_ns;
	int64_t		until_ns;
	int			tries;
	bool		moving;			/* keys may be attached to it: a move was sent */
	bool		must_be_replaced;	/* a key that nobody deletes is or may become
									 * attached to it */
} ElectionLease;

/*
 * The revisions of etcd's history that were seen (HISTORY).  An elector leaves them to
 * the next one while the postmaster lives, with or without a lease.  So no token that
 * was shown is handed out again.
 */
typedef struct ElectionHistory
{
	int64_t		max_revision;
	int64_t		min_token_exclusive;
} ElectionHistory;

/*
 * The memory of an elector that dies while the postmaster lives.  With it, and with
 * the history, the next elector continues with the same lease and the same places in
 * the queues.  It contains no pointers.
 */
typedef struct ElectionMemory
{
	char		node_name[ELECTION_VALUE_SIZE];
	int			safety_margin_ms;
	uint64_t	cluster_id;
	uint64_t	term_seen;
	ElectionLease lease;
	int			nelections;
	struct							/* the rest of the array is undefined */
	{
		char		name[ELECTION_NAME_SIZE];
		char		value[ELECTION_VALUE_SIZE];
		char		key[ELECTION_KEY_SIZE];
		char		key_value[ELECTION_VALUE_SIZE];
		int64_t		create_revision;	/* 0: not in the queue */
		int64_t		mod_revision;
		int64_t		lease;		/* that the key is attached to: not ours if somebody moved it */
	}			elections[ELECTION_MAX_ELECTIONS];
} ElectionMemory;

/* The number of bytes of it that are in use. */
static inline size_t
election_memory_size(const ElectionMemory *memory)
{
	return offsetof(ElectionMemory, elections) + memory->nelections * sizeof(memory->elections[0]);
}

/*
 * The output of the core.  None of these may call back into the core.
 * publish() and send() are called in the order in which they must take effect:
 * a withdrawal is published before a deletion is sent.
 *
 * Every send() must be followed by exactly one election_receive() of its id,
 * within a bounded time, even if the network fails.
 *
 * remember() replaces what is remembered; NULL erases it.  Only the last call
 * counts, and it must have taken effect before the next send().
 *
 * remember_timelines() replaces what is kept for that election.
 *
 * remember_history() replaces the history.  It is never erased.  It is called before
 * anything that follows from that history is published.
 */
typedef struct ElectionPort
{
	void		(*send) (void *ctx, uint64_t id, const EtcdRequest *request);
	/* replaces the watch stream by one with these watches; none: closes it */
	void		(*watch) (void *ctx, const EtcdWatch *watches, int nwatches);
	/* this endpoint does not answer, or its answers cannot be trusted */
	void		(*change_endpoint) (void *ctx, int endpoint, const char *why);
	void		(*publish) (void *ctx, int slot, const ElectionView *view);
	void		(*announce) (void *ctx, const ElectionEvent *event);
	void		(*reply) (void *ctx, uint64_t ticket, ElectionReply reply);
	void		(*remember) (void *ctx, const ElectionMemory *memory);
	void		(*remember_history) (void *ctx, const ElectionHistory *history);
	void		(*remember_timelines) (void *ctx, const char *election,
									   const ElectionTimelines *timelines);
	/*
	 * The candidate of that key has had the value of this instance for some time.
	 * key NULL: it has not any more, or is gone, or this instance is no candidate.
	 */
	void		(*report_duplicate_name) (void *ctx, const char *election, const char *key);
	/*
	 * For the log: the answer to that request is not used, or only in part; 0:
	 * a frame of the watch.  election: it concerns that one alone, or NULL.
	 * NULL: nobody wants to know.
	 */
	void		(*drop) (void *ctx, uint64_t id, const char *election, const char *why);
	uint64_t	(*random) (void *ctx);
	void	   *ctx;
} ElectionPort;

typedef struct ElectionCore ElectionCore;

/*
 * A core with room for max_elections (1 to ELECTION_MAX_ELECTIONS), without
 * settings: election_configure() starts it.  Slots are numbered from 0.
 * NULL if memory is out.
 */
extern ElectionCore *election_create(const ElectionPort *port, int max_elections);
extern void election_free(ElectionCore *core);

/*
 * Call it before the first election_configure().  Takes over the history, and
 * continues at the point at which the core that remembered this has stopped.  False
 * if it does not continue: there is no memory (NULL), it is too late for that, or there
 * are more elections than slots.  This alone does not make the instance the leader: a
 * linearizable answer is still needed.
 */
extern bool election_resume(ElectionCore *core, int64_t now_ns, const ElectionHistory *history,
							const ElectionMemory *memory);

/*
 * Applies new settings at once.  Leaves the elections that are not in them any
 * more, and enters new ones while slots are free.  (A slot is free when its
 * key is known to be deleted.)  Call it also when eligible changes.
 */
extern void election_configure(ElectionCore *core, int64_t now_ns, const ElectionConfig *config);

/* Passes the answer to the request of that id, or the failure to get one. */
extern void election_receive(ElectionCore *core, int64_t now_ns, uint64_t id,
							 const EtcdAnswer *answer);

/* Passes a frame of the watch stream that was opened last. */
extern void election_watched(ElectionCore *core, int64_t now_ns, const EtcdWatchFrame *frame);

/* Tells the core that the watch stream that was opened last has ended. */
extern void election_watch_ended(ElectionCore *core, int64_t now_ns);

/* Does the work that is due.  Call it at election_wakeup_ns() or before. */
extern void election_tick(ElectionCore *core, int64_t now_ns);

/* When election_tick() has to be called at the latest. */
extern int64_t election_wakeup_ns(const ElectionCore *core);

/*
 * Commands.  Each is answered by one reply() with its ticket (not 0), maybe
 * before the call returns.  False: a command of the same kind is under way for
 * the slot; ask again later, no reply will come.
 *
 * resign: leadership is withdrawn before this returns, or after a drain.  DONE
 * when the key is known to be deleted; NO_CONTACT: the delete goes on, and is
 * final, or the key ends with its lease (RIGHTS).  CANCELLED: election_cancel() or a
 * campaign has cancelled the drain.
 *
 * campaign: DONE when the key exists, and when it has ended a drain.  A second
 * primary that stays out enters, and is none any more on this timeline (SECOND).  One
 * that is found to be one after the call is REFUSED.
 *
 * proclaim: DONE when the key has the value.  The value is remembered for as
 * long as the core lives, and until the node name changes.
 *
 * transfer: DONE when the candidate whose key has the value to_node is seen to
 * lead, or at once if that is this instance.  FAILED: it did not lead until
 * until_ns, another one leads, or leadership was lost before the hand-over.
 * The time of a drain does not count.  NO_CONTACT: the result is not known.
 * After the other replies the instance leads on; a drain that the command has replaced is over.
 *
 * A leader that is to resign or to hand over drains first if drain_ns is not 0:
 * for so long at most it leads on, but takes no new work.  election_drained()
 * ends that earlier.  A later resign or transfer takes the place of one that drains, and
 * of a transfer that has not been sent: the earlier command is CANCELLED.
 *
 * verify: DONE when a linearizable read that was sent after the call has been
 * answered, and its result is published.  Without contact it goes on waiting.
 * NOTHING_TO_DO: the election was dropped from the settings.
 */
extern bool election_resign(ElectionCore *core, int64_t now_ns, int slot, bool rejoin,
							int64_t drain_ns, uint64_t ticket);
extern bool election_campaign(ElectionCore *core, int64_t now_ns, int slot, uint64_t ticket);
extern bool election_proclaim(ElectionCore *core, int64_t now_ns, int slot, const char *value,
							  uint64_t ticket);
extern bool election_transfer(ElectionCore *core, int64_t now_ns, int slot, const char *to_node,
							  int64_t until_ns, int64_t drain_ns, uint64_t ticket);
extern bool election_verify(ElectionCore *core, int64_t now_ns, int slot, uint64_t ticket);

/*
 * The elections that drain, also those whose work has ended: a bit for each slot.
 * Between the publication of that state and a look at the work the caller needs
 * a full barrier.
 */
extern uint32_t election_draining(const ElectionCore *core);

/* No work of that election is open any more. */
extern void election_drained(ElectionCore *core, int64_t now_ns, int slot);

/*
 * Nobody waits for this command any more.  If it is draining for that alone, the
 * instance leads on.  True if it does.  The command is answered in any case.
 */
extern bool election_cancel(ElectionCore *core, int64_t now_ns, uint64_t ticket);

/*
 * Withdraws everything and sends the revocation of each lease.  True if
 * there is an answer to wait for: election_stopped() tells when it is there.
 * Nothing but election_receive() may be called afterwards.
 */
extern bool election_stop(ElectionCore *core, int64_t now_ns, ElectionReason reason);
extern bool election_stopped(const ElectionCore *core);

/*
 * Is an etcd of that version ("3.5.13") too old to follow an election in it?
 * Before 3.4.31 and 3.5.13 a leader of etcd that was stopped and wakes up may
 * revoke leases that its successor has renewed (etcd #15247), and Patroni's
 * leader key is deleted with its lease.  False for a text that is no version.
 */
extern bool election_is_etcd_old(const char *version);

/*
 * The prefix of the keys of a followed Patroni cluster, such as
 * "/service/batman/"; prefix has room for ELECTION_KEY_SIZE.
 */
extern void election_patroni_prefix(char *prefix, const char *namespace, const char *election);

/* The slot of an election, -1 if it has none (yet). */
extern int	election_find(const ElectionCore *core, const char *name);

/* Has etcd answered since the last time that every endpoint failed? */
extern bool election_connected(const ElectionCore *core);

/*
 * Endpoints that are not used, a bit each: contact is lost without them, too.
 */
extern void election_ignore_endpoints(ElectionCore *core, uint32_t endpoints);

/* The etcd cluster that this is about; 0: none was entered, or it was left (HISTORY). */
extern uint64_t election_cluster_id(const ElectionCore *core);

/*
 * The TTL for the time-outs of requests: the TTL of the settings, or the TTL
 * of the lease in use while it is less.  A lease with the old TTL is in use
 * until the keys are on another one, or until it lapses.  etcd may also grant less
 * than was requested.
 */
extern int64_t election_ttl_ns(const ElectionCore *core, int64_t now_ns);

/* Names for SQL, explained in doc/reference.md. */
extern const char *election_role_name(ElectionRole role);
extern const char *election_state_name(ElectionState state);
extern const char *election_event_name(ElectionEventKind kind);
extern const char *election_reason_name(ElectionReason reason);	/* NULL: none */

#endif							/* ELECTION_H */
