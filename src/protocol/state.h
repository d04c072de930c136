/*-------------------------------------------------------------------------
 *
 * state.h
 *	  The state of the elections.
 *
 * Each file changes only its own part of the state, and may read all of it.  The
 * exceptions: a transfer ends or goes on with the leadership, key or contact that
 * another file ends; a key that nobody can delete asks for another lease; and what was
 * postponed is due, or postponed, with contact, with the watch, and when leadership
 * begins.  read_wanted is set by whoever wants a read.  An Election is made of the
 * parts' own structs.  Own key: queue.c; place and leader: reads.c, and queue.c at
 * the end of a wait; drain: leadership.c and hand_over.c; commands: command.c.
 *
 * The rules (PLACE, EPOCH, RENEWAL, ...) are at the head of election.c.
 *
 * What the revisions, terms and times mean.  0 is "none" or "not known",
 * unless the field says something else.  "History": everything is 0 again
 * after discard_history().
 *
 *	 revision			meaning								who sets it, what holds
 *
 *	 own.create_revision
 *						of the own key that stands, or that	entry, read, delete answer.
 *						is being deleted					Queued: not 0, above
 *															min_create_revision.
 *	 own.mod_revision	newest known write of that key		entry, read, watch, move, proclaim;
 *															raised only, while the key stands
 *	 own.written_revision
 *						newest write of that key by this	entry, move, proclaim: answers.
 *						instance, as far as known			Below mod_revision: somebody else
 *															wrote it, an answer was lost, or
 *															the elector has died since
 *	 own.min_create_revision
 *						the own key did not exist at this	sending of an entry, read, delete
 *						revision, so the next one is		answer
 *						created above it.  An earlier one
 *						is never believed again (FINAL).
 *	 place.seen_revision
 *						of the newest read that was used	read; raised only; History; 0 with
 *						and shows the present places.		denied reads (RIGHTS).  Not by
 *						All watches of the election begin	events: another watch of the stream
 *						after it.							may be behind.
 *	 place.ready_revision
 *						of the newest answer that shows		read; 0 with the epoch, a lost watch,
 *						the own key and exactly one			another place, or a new key of the
 *						before it (READY)					leader's name.  Waiting only; up to
 *															seen_revision
 *	 place.first_revision
 *						at which the wait ended (READY):	event; 0 with the epoch.
 *						older answers show a place that		Leading only
 *						is not the own one any more
 *	 place.ended_revision
 *						of the event that ends the wait		event; 0 with the epoch, and
 *						(READY)								at the end of each frame
 *	 leader.key.create_revision
 *						of the leader's key			read, end of the wait (READY)
 *	 leader.mod_revision
 *						that leader.value is of			read, watch, own writes; History
 *	 leader.announced_revision
 *						of the leader announced last		announcement.
 *															Leading: that of the own key.
 *	 op.revision_floor	max_revision at the sending: no		sending
 *						linearizable answer is older
 *	 max_revision		highest seen						any good answer or frame;
 *															raised only; History
 *	 min_token_exclusive	tokens up to this may have been	a sign that etcd was put back;
 *						handed out in another history		etcd_campaign() of a held-back
 *						(HISTORY)							candidate sets it to 0.
 *															Leadership begins above it only.
 *
 *	 term
 *	 term_seen			highest seen						any good answer or frame; History
 *	 lease.term			term_seen when its grant was sent	first sending of the grant;
 *						first								never above term_seen
 *	 renewal.term		of the keepalive's answer			the answer
 *	 place.term			of the answer that showed the		read that did not ask by name
 *						places
 *
 *	 time
 *	 lease.sent_ns		first sending of the grant			sending
 *	 lease.until_ns		the lease lives at etcd at least	grant; renewal (raised); start of a
 *						until then							move to a shorter lease (lowered)
 *	 deadline			lease.until_ns minus the margin		computed, see leadership_deadline_ns()
 *	 leader.until_ns	the leader's name is known until	read: its sending plus a TTL
 *						then
 *	 *_retry_ns			postponed until then				failure of what is postponed
 *
 *-------------------------------------------------------------------------
 */
#ifndef STATE_H
#define STATE_H

#include <string.h>

#include "base/clock.h"
#include "election.h"

#define NEVER_NS	INT64_MAX

/*
 * Requests under way at once, at the most: a renewal's two, some reads, the
 * lease's, and one of each kind per election.
 */
#define MAX_OPS				(16 + 3 * ELECTION_MAX_ELECTIONS)

/* Renewals under way at once, where etcd is slow. */
#define MAX_RENEWALS	4

/* Own key and leader of each election; of a followed one, Patroni's two. */
#define MAX_WATCHES			(2 * ELECTION_MAX_ELECTIONS)

#define ALL_SLOTS			UINT32_MAX
#define SLOT_BIT(slot)		(UINT32_C(1) << (slot))

typedef enum OpKind
{
	OP_READ,
	OP_PATRONI_READ,			/* of one followed election */
	OP_KEEPALIVE,
	OP_GRANT,
	OP_REVOKE,
	OP_MOVE,
	OP_ENTER,
	OP_DELETE,
	OP_PROCLAIM,
	OP_SURVEY,					/* the queue, for a transfer */
	OP_TRANSFER,
	OP_TIME_TO_LIVE				/* of the lease of a followed key, or of a rival */
} OpKind;

/*
 * The least margin of a followed election: etcd's default election timeout.  A
 * deposed leader of etcd may believe for this long that it still leads.
 */
#define PATRONI_MIN_MARGIN_NS	NSEC_PER_SEC

/*
 * A renewal travels with its two requests, first with the keepalive and then with
 * the read that confirms it.  So several renewals can be under way at once: where
 * etcd is slow, the next one begins before the last one is through.
 */
typedef struct Renewal
{
	uint64_t	number;			/* 0: none */
	int64_t		sent_ns;		/* the keepalive was sent */
	uint64_t	term;			/* READ: of the keepalive's answer */
	int64_t		ttl_ns;			/* READ: that the answer gave */
} Renewal;

/* A request under way. */
typedef struct Op
{
	uint64_t	id;				/* 0: free */
	OpKind		kind;
	int64_t		sent_ns;
	int64_t		revision_floor;
	int64_t		lease;			/* KEEPALIVE, GRANT, REVOKE, MOVE, ENTER, TIME_TO_LIVE */
	Renewal		renewal;		/* that it is a part of */
	uint32_t	slots;			/* elections that it is about */
	uint32_t	generation;		/* ENTER, DELETE, PROCLAIM: of the slot's use */
	uint32_t	epochs[ELECTION_MAX_ELECTIONS];
	int64_t		create_revisions[ELECTION_MAX_ELECTIONS];
	uint8_t		asked[ELECTION_MAX_ELECTIONS];	/* READ */
	bool		ordered;		/* READ, PATRONI_READ: raft's log is to order it (ORDERED) */
	char		value[ELECTION_VALUE_SIZE]; /* ENTER, PROCLAIM */
} Op;

/* A key of the queue that is watched.  len 0: none, or too long to be kept. */
typedef struct QueueKey
{
	char		data[ELECTION_KEY_SIZE];
	size_t		len;
	int64_t		create_revision;	/* 0: there is no such key */
} QueueKey;

/* The additional state of a followed election; see patroni.c. */
typedef struct Patroni
{
	char		prefix[ELECTION_KEY_SIZE];
	char		leader_key[ELECTION_KEY_SIZE + 8];
	char		config_key[ELECTION_KEY_SIZE + 8];
	char		initialize_key[ELECTION_KEY_SIZE + 16];
	char		member_key[ELECTION_KEY_SIZE + 16 + ELECTION_VALUE_SIZE];

	/*
	 * The leader key.  Its value is leader.value of the election.  The revision
	 * at which that became the value is leader.create_revision; if the key names
	 * us, it is the election's create_revision, too.
	 */
	int64_t		key_revision;	/* its create revision; 0: it does not exist, -1: not known */
	int64_t		lease;			/* that the key is attached to; 0: none */
	int64_t		ttl_ns;			/* granted; 0: not known */
	int64_t		until_ns;		/* the key lives at least until then; 0: not known */
	int64_t		event_revision; /* of the newest event */

	/* the renewal: a time to live, and a read that is sent after its answer */
	bool		renewal_wanted;
	int64_t		renewal_ns;		/* when it is due otherwise */
	int			renewal_failures;
	int64_t		retry_ns;
	uint64_t	asked_id;		/* of the request under way; 0: none */
	uint64_t	asked_term;		/* term_seen when it was sent */
	struct
	{
		bool		valid;
		uint64_t	before_id;	/* reads with this id or a higher one were sent later */
		int64_t		sent_ns;
		uint64_t	term;
		int64_t		ttl_ns;
		int64_t		until_ns;
	}			ttl_answer;

	/* the cluster */
	bool		is_paused;
	bool		has_failsafe;
	bool		has_keys;
	char		system_identifier[ELECTION_SYSTEM_ID_SIZE];

	/* what the key of our member says of the server that Patroni runs under that name */
	bool		member_seen;
	uint32_t	member_timeline;	/* 0: not told */
	int64_t		strange_ns;		/* since when that is not ours; 0: it is */
	bool		is_stranger;	/* for longer than a promotion explains */
} Patroni;

typedef enum TransferStage
{
	TRANSFER_NONE,
	TRANSFER_SURVEYING,			/* leads; a command waits for the queue to be read */
	TRANSFER_DRAINING,			/* leads; the target was there, and is looked for again */
	TRANSFER_SENT,				/* does not lead; the own key may be gone at any time */
	TRANSFER_WATCHING			/* the own key is gone; a command waits for the next leader */
} TransferStage;

/* The hand-over to a named candidate; see hand_over.c. */
typedef struct Transfer
{
	TransferStage stage;
	uint64_t	ticket;			/* of the command; 0: by preference, or it was answered */
	char		to_node[ELECTION_VALUE_SIZE];	/* SURVEYING: the name in the command, if any */
	int64_t		until_ns;		/* then it is over */
	int64_t		drain_ns;		/* SURVEYING: for so long it is to drain; 0: not, or not again */
	int64_t		own_revision;	/* SENT, WATCHING: create revision of the key given up */
	int64_t		target_revision;	/* SENT, WATCHING: of the target's */
	int64_t		receipt_version;	/* SENT, WATCHING: of the target's key when it leads; 0: any */

	uint64_t	op_id;			/* survey or txn under way; 0: none */
	int			failures;		/* in a row */
	int64_t		retry_ns;

	/* while leading: a candidate that is preferred to this instance */
	int64_t		better_revision;	/* create revision of its key; 0: none */
	int64_t		better_since_ns;	/* when it was first seen in the queue */
	int			nfailed_drains;		/* so many drains for one ended without a hand-over */
	int64_t		survey_ns;		/* when to look for one again */

	/* the leader that was seen last, and the preferred node that was it for a short time */
	int64_t		leader_revision;	/* create revision of its key; 0: none */
	int64_t		leader_since_ns;
	char		leader_node[ELECTION_VALUE_SIZE];
	char		brief_node[ELECTION_VALUE_SIZE];
	int			nbrief;			/* so many times in a row */
} Transfer;

typedef enum DrainGoal
{
	DRAIN_NONE,					/* it does not drain */
	DRAIN_RESIGN,
	DRAIN_TRANSFER				/* by command, or to a node that is preferred */
} DrainGoal;

/*
 * Leadership that takes no new work, before it is given up as planned; see
 * hand_over.c.  When the leadership is lost, only the wish to resign remains.
 */
typedef struct Drain
{
	DrainGoal	goal;
	bool		is_over;		/* no work is waited for any more */
	int64_t		began_ns;
	int64_t		until_ns;		/* then it is over */
} Drain;

/* The own key of an election, and what is wanted of it; see queue.c. */
typedef struct OwnKey
{
	char		wanted_value[ELECTION_VALUE_SIZE];
	bool		must_put_value; /* write it even if it is there: a command waits */
	char		key[ELECTION_KEY_SIZE]; /* empty: it was not entered in this history */
	int64_t		min_create_revision;
	bool		entry_unanswered;	/* one was sent, and may be executed at any time */
	bool		is_abandoned;	/* it cannot be deleted, if it exists: it ends with its
								 * lease, which is being replaced (RIGHTS) */
	int64_t		create_revision;
	int64_t		mod_revision;
	int64_t		written_revision;
	int64_t		lease;			/* as of mod_revision */
	char		value[ELECTION_VALUE_SIZE]; /* as of mod_revision */
} OwnKey;

/* The place of the own key in the queue; see reads.c and queue.c (READY). */
typedef struct Place
{
	int64_t		seen_revision;
	uint64_t	term;
	QueueKey	predecessor;
	int64_t		predecessor_mod_revision;	/* 0: there is none */
	int64_t		ready_revision;
	int64_t		first_revision;
	int64_t		ended_revision;
} Place;

/* The leader, whoever it is; see reads.c, and patroni.c. */
typedef struct Leader
{
	QueueKey	key;
	int64_t		lease;			/* that the key is attached to; 0: none, or the own one */
	char		value[ELECTION_VALUE_SIZE];
	int64_t		mod_revision;
	int64_t		version;		/* as of mod_revision, of another's key */
	bool		is_known;		/* key, or that there is none, is current */
	int64_t		until_ns;
	int64_t		announced_revision;
	char		announced_value[ELECTION_VALUE_SIZE];
} Leader;

/* Another candidate with our value.  A leader reads its key in the place of the last one. */
typedef struct Duplicate
{
	QueueKey	key;			/* create revision 0: there is none */
	int64_t		since_ns;		/* when it was first seen; NEVER_NS: it was reported */
} Duplicate;

/*
 * Other primaries of the database system, and the questions whether the one that leads
 * is alive; see rival.c.
 */
typedef struct Rival
{
	ElectionTimelines timelines;
	int			nasked;			/* questions about this lease that have ended */
	int64_t		ask_ns;			/* when the next question is due */
	int64_t		lease;			/* that the questions are about */
	/* what the answers tell */
	uint64_t	term;
	int64_t		left_ns;		/* at the most; NEVER_NS: not known */
	int64_t		answered_ns;	/* when it had that left */
	int			nextensions;	/* of the lease, seen in this term */
} Rival;

/* Tickets of the commands that wait; see command.c. */
typedef struct Commands
{
	uint64_t	resign_ticket;
	uint64_t	campaign_ticket;
	uint64_t	proclaim_ticket;
	uint64_t	proclaim_from_id;	/* the put that carries it out has this id, or a later one */
	uint64_t	verify_ticket;
	uint64_t	verify_id;		/* of the read that verifies; 0: to be sent */
} Commands;

typedef struct Election
{
	char		name[ELECTION_NAME_SIZE];	/* empty: the slot is free */
	char		prefix[ELECTION_NAME_SIZE + 1]; /* "name/" */
	char		prefix_end[ELECTION_NAME_SIZE + 1]; /* "name0" */
	bool		wanted;			/* in the settings */
	bool		stay_out;		/* resigned without rejoin */
	ElectionState state;
	uint32_t	generation;		/* how often the slot was taken */
	uint32_t	epoch;			/* answers to requests of another epoch are ignored */
	bool		followed;		/* Patroni decides; of the own key nothing is used but
								 * the create revision, while the leader key names us */

	OwnKey		own;
	Place		place;
	Leader		leader;
	Duplicate	duplicate;
	Rival		rival;
	Commands	commands;
	Transfer	transfer;
	Drain		drain;
	Patroni		patroni;

	/* reads, and retries of this election's own requests */
	bool		read_wanted;
	uint64_t	read_id;		/* the newest that did not ask by name */
	bool		is_read_alone;	/* a request that named it was denied (RIGHTS) */
	int			denials;		/* of reads of it alone, in a row */
	int64_t		denied_retry_ns;
	int			failures;		/* in a row */
	int64_t		retry_ns;
} Election;

typedef enum WatchTarget
{
	WATCH_OWN,
	WATCH_LEADER,
	WATCH_WAIT,					/* for a successor: both keys, by one watch (READY) */
	WATCH_PATRONI,				/* a followed election: leader key, configuration */
	WATCH_ANYBODY				/* of an election without candidates */
} WatchTarget;

typedef struct Watched
{
	int			slot;
	WatchTarget target;
	QueueKey	key;			/* WATCH_ANYBODY: the prefix of all keys */
	QueueKey	leader;			/* WAIT; key is the own one */
	char		range_end[ELECTION_KEY_SIZE + 1];	/* WAIT: behind both */
	int64_t		start_revision;
} Watched;

/* One stream watches all keys. */
typedef struct WatchStream
{
	int64_t		opened_ns;
	int			failures;
	int64_t		retry_ns;
	int			nwatched;		/* 0: there is no stream */
	int			ncreated;		/* of them, etcd has confirmed so many */
	Watched		watched[MAX_WATCHES];
} WatchStream;

struct ElectionCore
{
	ElectionPort port;
	ElectionConfig config;
	int			max_elections;
	Election   *elections;		/* behind this struct */
	bool		stopping;
	int			shutdown_revocations_left; /* revocations that may be sent again then */

	Op			ops[MAX_OPS];
	uint64_t	next_id;
	int64_t		wakeup_ns;

	/* contact */
	bool		connected;
	uint32_t	failed_endpoints;	/* since etcd answered last */
	uint32_t	ignored_endpoints;	/* see election_ignore_endpoints() */
	int64_t		first_failure_ns;	/* since then; 0: none */
	int			contact_failures;
	int64_t		contact_retry_ns;
	uint64_t	probe_id;		/* the last request that was sent without contact */

	/* etcd's history */
	uint64_t	cluster_id;
	uint64_t	term_seen;
	int64_t		max_revision;
	int64_t		min_token_exclusive;
	int64_t		stale_since_ns; /* 0: the last answer was good */

	/* the lease and the one that is to replace it */
	ElectionLease lease;
	ElectionLease fresh;
	int64_t		retired;		/* lease to be revoked once the keys left it */
	bool		revoking;		/* the lease is being given up, with all keys */
	int			lease_failures;
	int64_t		lease_retry_ns;
	uint64_t	next_renewal;
	uint64_t	first_renewal;	/* the results of earlier ones do not count */
	int64_t		renewal_ns;		/* when the next one is due */
	int			renewal_failures;

	/* reads */
	int64_t		read_retry_ns;
	int			read_failures;

	WatchStream stream;

	ElectionHistory history;	/* that the caller was given last */
	bool		remembered;		/* memory has the record that the caller was given last */
	ElectionMemory memory;
	ElectionMemory draft;
};

/* ---- keys of a queue --------------------------------------------------------- */

static inline EtcdBytes
bytes_of_key(const QueueKey *key)
{
	return (EtcdBytes) {key->data, key->len};
}

static inline bool
is_queue_key(const QueueKey *key, EtcdBytes bytes)
{
	return key->len == bytes.len && memcmp(key->data, bytes.data, bytes.len) == 0;
}

static inline QueueKey
make_queue_key(EtcdBytes name, int64_t create_revision)
{
	QueueKey	key = {.create_revision = create_revision};

	if (name.len < sizeof(key.data))
	{
		memcpy(key.data, name.data, name.len);
		key.len = name.len;
	}
	return key;
}

/* ---- slots, elections, requests ---------------------------------------------- */

static inline int
slot_of(const ElectionCore *core, const Election *e)
{
	return (int) (e - core->elections);
}

static inline bool
is_used(const Election *e)
{
	return e->name[0] != '\0';
}

/* Each election that has a slot.  Must not stand before an "else". */
#define for_each_election(core, e) \
	for (Election *e = (core)->elections; e < (core)->elections + (core)->max_elections; e++) \
		if (is_used(e))

/* Each request under way. */
#define for_each_op(core, op) \
	for (const Op *op = (core)->ops; op < (core)->ops + MAX_OPS; op++) \
		if (op->id != 0)

static inline uint32_t
slot_bit(const ElectionCore *core, const Election *e)
{
	return SLOT_BIT(slot_of(core, e));
}

/*
 * The key exists, as far as is known, and this instance has not given it up.
 */
static inline bool
is_queued(const Election *e)
{
	return !e->followed &&
		(e->state == ELECTION_QUEUED || e->state == ELECTION_WAITING ||
		 e->state == ELECTION_LEADING || e->state == ELECTION_HELD_BACK);
}

/* May an own key exist that is not left to its lease (RIGHTS)?  An entry may have had no answer. */
static inline bool
may_have_key(const Election *e)
{
	return !e->followed && e->own.key[0] != '\0' && !e->own.is_abandoned &&
		(e->own.create_revision != 0 || e->own.entry_unanswered);
}

/* Waits directly behind the leader, as far as is known. */
static inline bool
is_successor(const Election *e)
{
	return e->state == ELECTION_WAITING &&
		e->place.predecessor.create_revision == e->leader.key.create_revision;
}

/* Wants to have a key. */
static inline bool
is_candidate(const Election *e)
{
	return e->state == ELECTION_JOINING || is_queued(e);
}

/* Does it lead without taking new work? */
static inline bool
is_draining(const Election *e)
{
	return e->state == ELECTION_LEADING && e->drain.goal != DRAIN_NONE;
}

/* The deletion of the own key was sent, and its result is not known. */
static inline bool
transfer_is_sent(const Election *e)
{
	return e->transfer.stage == TRANSFER_SENT;
}

/* The request under way with that id; NULL: there is none. */
extern Op  *request_find(ElectionCore *core, uint64_t id);
extern bool request_is_under_way(const ElectionCore *core, OpKind kind, uint32_t slots);

/* ---- time ---------------------------------------------------------------------- */

extern void wake_at(ElectionCore *core, int64_t when_ns);

/* Is it time?  If not, reconcile() is called again then. */
extern bool due_or_wake_at(ElectionCore *core, int64_t now_ns, int64_t when_ns);

/* ---- leases -------------------------------------------------------------------- */

/* Does the result of this renewal still count? */
static inline bool
lease_is_current(const ElectionCore *core, const Renewal *renewal)
{
	return renewal->number != 0 && renewal->number >= core->first_renewal;
}

/* May our own move have put a key on that lease? */
static inline bool
lease_is_moved_to(const ElectionCore *core, int64_t lease)
{
	return core->fresh.moving && lease == core->fresh.id;
}

/* Is there a lease with keys of which nobody knows whether it exists? */
static inline bool
lease_is_in_doubt(const ElectionCore *core)
{
	return core->lease.id == 0 || core->fresh.moving || core->revoking;
}

/* The safety margin of a lease with that TTL. */
extern int64_t lease_margin_ns(const ElectionCore *core, int64_t ttl_ns);

/* When to stop relying on keys of a lease of ours. */
extern int64_t lease_trusted_until_ns(const ElectionCore *core, const ElectionLease *lease);

/* Can this instance rely on a key that is attached to the lease now? */
extern bool lease_is_good(const ElectionCore *core, int64_t now_ns);

/* The TTL of the settings, or the TTL of the last lease if that is less. */
extern int64_t lease_ttl_ns(const ElectionCore *core);

/* A third of that TTL. */
extern int64_t lease_interval_ns(const ElectionCore *core);

/* ---- leadership ---------------------------------------------------------------- */

/*
 * When leadership in this election ends.  Only for an election that this
 * instance leads.
 */
extern int64_t leadership_deadline_ns(const ElectionCore *core, const Election *e);

/*
 * When leadership ends.  Only for a followed election that this instance
 * leads.
 */
extern int64_t patroni_deadline_ns(const ElectionCore *core, const Election *e);

/* The TTL of the leader key's lease; ours, until that is known. */
extern int64_t patroni_ttl_ns(const ElectionCore *core, const Election *e);

/* The longest TTL of a leader key; 0: none is known. */
extern int64_t patroni_longest_ttl_ns(const ElectionCore *core);

#endif							/* STATE_H */
