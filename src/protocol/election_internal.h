/*-------------------------------------------------------------------------
 *
 * election_internal.h
 *	  The state that the files of the core share.
 *
 * src/README.md says what each file is for.  Each changes only its own part of
 * the state, and may read all of it.  look_wanted is set by whoever wants a look.
 *
 * An Election is made of the parts' own structs.  Own key: queue.c; position and
 * leader: look.c, and queue.c at the end of a wait; commands: command.c.
 *
 * The rules (PLACE, EPOCH, BEAT, ...) are at the head of election.c.
 *
 * What the revisions, terms and times mean.  0 is "none" or "not known",
 * unless the field says something else.  "History": everything is 0 again
 * after discard_history().
 *
 *	 revision			meaning								who sets it, what holds
 *
 *	 own.create_revision
 *						of the own key that stands, or that	entry, look, delete answer.
 *						is being deleted					Queued: not 0, above
 *															abandoned_up_to_revision.
 *	 own.mod_revision	newest known write of that key		entry, look, watch, move, proclaim;
 *															raised only, while the key stands
 *	 own.written_revision
 *						newest write of that key by this	entry, move, proclaim: answers.
 *						instance, as far as known			Below mod_revision: somebody else
 *															wrote it, or an answer was lost
 *	 own.abandoned_up_to_revision
 *						no own key up to this create		leave, loss of the key (FINAL);
 *						revision is believed any more		raised only; History
 *	 own.min_create_revision
 *						the own key did not exist at this	sending of an entry, look, delete
 *						revision, so the next one is		answer; 0 when the next one is not
 *						created above it					above it: etcd was put back
 *	 position.seen_revision
 *						of the newest look that was used	look; raised only; History.
 *						and shows the present places.		Not by events: another watch of the
 *						All watches of the election begin	stream may be behind.
 *						after it.
 *	 position.ready_revision
 *						of the newest answer that shows		look; 0 with the epoch, a lost watch,
 *						the own key and exactly one			another place, or a new key of the
 *						before it (ARMED)					leader's name.  Waiting only; up to
 *															seen_revision
 *	 position.first_revision
 *						at which the wait ended (ARMED):	event; 0 with the epoch.
 *						older answers show a place that		Leading only
 *						is not the own one any more
 *	 position.ended_revision
 *						of the event that ends the wait		event; 0 with the epoch, and
 *						(ARMED)								at the end of each frame
 *	 leader.key.create_revision
 *						of the leader's key			look, end of the wait (ARMED)
 *	 leader.mod_revision
 *						that leader.value is of			look, watch, own writes; History
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
 *	 beat.term			of the keepalive's answer			the answer
 *	 position.term		of the answer that showed the		look that did not ask by name
 *						places
 *
 *	 time
 *	 lease.sent_ns		first sending of the grant			sending
 *	 lease.until_ns		the lease lives at etcd at least	grant; beat (raised); start of a
 *						until then							move to a shorter lease (lowered)
 *	 lease_until_ns		the own key lives at least until	PLACE, beat, end of a move; lowered
 *						then								with lease.until_ns.  Not 0 exactly
 *															while leading; never after
 *															lease.until_ns.
 *	 deadline			lease_until_ns minus the margin		computed, see lease_deadline_ns()
 *	 leader.until_ns	the leader's name is known until	look: its sending plus a TTL
 *						then
 *	 *_retry_ns			postponed until then				failure of what is postponed
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTION_INTERNAL_H
#define ELECTION_INTERNAL_H

#include <string.h>

#include "base/clock.h"
#include "election.h"

/*
 * The simulator, the fuzzers and the unit tests are built with
 * ELECTION_CHECKED.  The extension is not: an elector that is in doubt about
 * itself must not bring down the server.
 */
#ifdef ELECTION_CHECKED
#include <assert.h>
#define ELECTION_ASSERT(condition)	assert(condition)
#else
#define ELECTION_ASSERT(condition)	((void) 0)
#endif

#define NEVER_NS	INT64_MAX

/*
 * The back-off between two tries of a failed request.  It doubles up to the
 * last value, and has a jitter.
 */
#define BACKOFF_MIN_MS		100
#define BACKOFF_MAX_MS		1000

/*
 * Requests under way at once, at the most: a beat's two, some looks, the
 * lease's, and one of each kind per election.
 */
#define MAX_OPS				(16 + 3 * ELECTION_MAX_ELECTIONS)

/* Own key and leader of each election; of a followed one, Patroni's two. */
#define MAX_WATCHES			(2 * ELECTION_MAX_ELECTIONS)

#define ALL_SLOTS			UINT32_MAX
#define SLOT_BIT(slot)		(UINT32_C(1) << (slot))

typedef enum OpKind
{
	OP_LOOK,
	OP_PATRONI_LOOK,			/* of one followed election */
	OP_KEEPALIVE,
	OP_GRANT,
	OP_REVOKE,
	OP_MOVE,
	OP_ENTER,
	OP_DELETE,
	OP_PROCLAIM,
	OP_SURVEY,					/* the queue, for a transfer */
	OP_TRANSFER,
	OP_TIME_TO_LIVE				/* of the lease of a followed key */
} OpKind;

/* The keys that a look reads of an election, beside its leader's. */
#define LOOK_OWN			1
#define LOOK_NEIGHBOUR		2		/* the predecessor; for a leader, the last key of the queue */
#define LOOK_BY_NAME		4		/* the predecessor and the leader that are known, no others */

/* The keys that a PATRONI_LOOK reads, in the order of its ranges. */
enum
{
	PATRONI_LEADER,
	PATRONI_CONFIG,
	PATRONI_INITIALIZE,
	PATRONI_MEMBER,
	PATRONI_NRANGES
};

/*
 * The least margin of a followed election: etcd's default election timeout.  A
 * deposed leader of etcd may believe for this long that it still leads.
 */
#define PATRONI_MIN_MARGIN_NS	NS_PER_S

/*
 * A beat travels with its two requests, first with the keepalive and then with
 * the look that confirms it.  So several beats can be under way at once: where
 * etcd is slow, the next one begins before the last one is through.
 */
typedef struct Beat
{
	uint64_t	number;			/* 0: none */
	int64_t		sent_ns;		/* the keepalive was sent */
	uint64_t	term;			/* LOOK: of the keepalive's answer */
	int64_t		ttl_ns;			/* LOOK: that the answer gave */
} Beat;

/* A request under way. */
typedef struct Op
{
	uint64_t	id;				/* 0: free */
	OpKind		kind;
	int64_t		sent_ns;
	int64_t		revision_floor;
	int64_t		lease;			/* KEEPALIVE, GRANT, REVOKE, MOVE, ENTER, TIME_TO_LIVE */
	Beat		beat;			/* that it is a part of */
	uint32_t	slots;			/* elections that it is about */
	uint32_t	generation;		/* ENTER, DELETE, PROCLAIM: of the slot's use */
	uint32_t	epochs[ELECTION_MAX_ELECTIONS];
	int64_t		create_revisions[ELECTION_MAX_ELECTIONS];
	uint8_t		asked[ELECTION_MAX_ELECTIONS];	/* LOOK */
	bool		ordered;		/* LOOK, PATRONI_LOOK: raft's log is to order it (ORDERED) */
	char		value[ELECTION_VALUE_SIZE]; /* ENTER, PROCLAIM */
} Op;

/*
 * The keys of an election, as an answer shows them.  NULL: there is no such
 * key, or the request did not read it.
 */
typedef struct KeyFacts
{
	uint8_t		asked;			/* LOOK: which of them were read */
	const EtcdKeyValue *own;
	const EtcdKeyValue *neighbour;	/* the predecessor; for a leader, the last one */
	const EtcdKeyValue *leader;
} KeyFacts;

typedef enum FactsKind
{
	FACTS_ANSWER,				/* etcd did what was asked */
	FACTS_REFUSAL,				/* etcd did not, and says why */
	FACTS_MISFIT,				/* the answer is not one to this request */
	FACTS_NO_ANSWER				/* the endpoint failed */
} FactsKind;

/*
 * What an answer says.  They are facts about etcd, not about this instance:
 * what follows from them is for each part to decide.
 */
typedef struct Facts
{
	FactsKind	kind;
	const Op   *op;				/* the request */
	int			endpoint;
	const char *message;		/* REFUSAL, NO_ANSWER */
	uint64_t	cluster_id;
	int64_t		revision;
	uint64_t	term;
	bool		succeeded;		/* txn: the compares held, so it wrote */
	bool		ordered;		/* look: raft's log has ordered it (ORDERED) */
	KeyFacts	keys[ELECTION_MAX_ELECTIONS];	/* LOOK; own: MOVE, ENTER, DELETE, PROCLAIM
												 * whose compares did not hold */
	const EtcdKeyValue *patroni[PATRONI_NRANGES];	/* PATRONI_LOOK */
	const EtcdKeyValue *queue;	/* SURVEY, TRANSFER: from the own key on */
	int			nqueue;
	bool		lease_not_found;	/* REFUSAL */
	bool		lease_exists;	/* REFUSAL: of a grant */
	int64_t		ttl_s;			/* GRANT, KEEPALIVE, TIME_TO_LIVE, see EtcdAnswer */
	int64_t		granted_ttl_s;	/* TIME_TO_LIVE */
} Facts;

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
	 * The leader key.  Its value is leader_value of the election.  The revision
	 * at which that became the value is leader.create_revision; if the key names
	 * us, it is the election's create_revision, too.
	 */
	int64_t		key_revision;	/* its create revision; 0: it does not exist */
	int64_t		lease;			/* that the key is attached to; 0: none */
	int64_t		ttl_ns;			/* granted; 0: not known */
	int64_t		until_ns;		/* the key lives at least until then; 0: not known */
	int64_t		event_revision; /* of the newest event */

	/* the beat: a time to live, and a look that is sent after its answer */
	bool		beat_wanted;
	int64_t		beat_ns;		/* when it is due otherwise */
	int			beat_failures;
	int64_t		retry_ns;
	uint64_t	asked_id;		/* of the request under way; 0: none */
	uint64_t	asked_term;		/* term_seen when it was sent */
	struct
	{
		bool		valid;
		uint64_t	before_id;	/* looks with this id or a higher one were sent later */
		int64_t		sent_ns;
		uint64_t	known_term;
		uint64_t	term;
		int64_t		ttl_ns;
		int64_t		until_ns;
	}			told;

	/* the cluster */
	int64_t		config_revision;	/* of the configuration that was read */
	bool		is_paused;
	bool		has_failsafe;
	bool		has_keys;
	bool		member_seen;
	char		system_identifier[ELECTION_SYSTEM_ID_SIZE];
} Patroni;

typedef enum TransferStage
{
	TRANSFER_NONE,
	TRANSFER_SURVEYING,			/* leads; a command waits for the queue to be read */
	TRANSFER_SENT,				/* does not lead; the own key may be gone at any time */
	TRANSFER_WATCHING			/* the own key is gone; a command waits for the next leader */
} TransferStage;

/* The hand-over to a named candidate; see transfer.c. */
typedef struct Transfer
{
	TransferStage stage;
	uint64_t	ticket;			/* of the command; 0: by preference, or it was answered */
	char		to_node[ELECTION_VALUE_SIZE];	/* SURVEYING: the name in the command */
	int64_t		until_ns;		/* then it is over */
	int64_t		own_revision;	/* SENT, WATCHING: create revision of the key given up */
	int64_t		target_revision;	/* SENT, WATCHING: of the target's */
	int64_t		receipt_version;	/* SENT, WATCHING: of the target's key when it leads; 0: any */

	uint64_t	op_id;			/* survey or txn under way; 0: none */
	int			failures;		/* in a row */
	int64_t		retry_ns;

	/* while leading: a candidate that is preferred to this instance */
	int64_t		better_revision;	/* create revision of its key; 0: none */
	int64_t		better_since_ns;	/* when it was first seen in the queue */
	int64_t		survey_ns;		/* when to look for one again */
} Transfer;

/* The own key of an election, and what is wanted of it; see queue.c. */
typedef struct OwnKey
{
	char		wanted_value[ELECTION_VALUE_SIZE];
	bool		must_put_value; /* write it even if it is there: a command waits */
	char		key[ELECTION_KEY_SIZE]; /* empty: never entered on this lease */
	int64_t		named_lease;	/* the key was attached to it, or a request
								 * under way may do so; 0: none */
	int64_t		min_create_revision;
	bool		entry_unanswered;	/* one was sent, and may be executed at any time */
	int64_t		create_revision;
	int64_t		mod_revision;
	int64_t		written_revision;
	int64_t		lease;			/* as of mod_revision */
	char		value[ELECTION_VALUE_SIZE]; /* as of mod_revision */
	int64_t		abandoned_up_to_revision;
} OwnKey;

/* The position of the own key in the queue; see look.c and queue.c (ARMED). */
typedef struct Position
{
	int64_t		seen_revision;
	uint64_t	term;
	QueueKey	predecessor;
	int64_t		ready_revision;
	int64_t		first_revision;
	int64_t		ended_revision;
} Position;

/* The leader, whoever it is; see look.c, and patroni.c. */
typedef struct Leader
{
	QueueKey	key;
	char		value[ELECTION_VALUE_SIZE];
	int64_t		mod_revision;
	int64_t		version;		/* as of mod_revision, of another's key */
	bool		is_known;		/* key, or that there is none, is current */
	int64_t		until_ns;
	int64_t		announced_revision;
	char		announced_value[ELECTION_VALUE_SIZE];
} Leader;

/* Another candidate with our value. */
typedef struct Duplicate
{
	int64_t		create_revision;	/* 0: there is none */
	int64_t		since_ns;		/* when it was first seen; NEVER_NS: it was reported */
} Duplicate;

/* Tickets of the commands that wait; see command.c. */
typedef struct Commands
{
	uint64_t	resign_ticket;
	uint64_t	campaign_ticket;
	uint64_t	proclaim_ticket;
	uint64_t	verify_ticket;
	uint64_t	verify_id;		/* of the look that verifies; 0: to be sent */
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
	int64_t		lease_until_ns; /* see lease.c */

	OwnKey		own;
	Position	position;
	Leader		leader;
	Duplicate	duplicate;
	Commands	commands;
	Transfer	transfer;
	Patroni		patroni;

	/* looks, and retries of this election's own requests */
	bool		look_wanted;
	uint64_t	look_id;		/* the newest that did not ask by name */
	int			failures;		/* in a row */
	int64_t		retry_ns;
} Election;

typedef struct Lease
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
	bool		tainted;		/* a key that nobody deletes is or may become attached to it */
} Lease;

typedef enum WatchTarget
{
	WATCH_OWN,
	WATCH_LEADER,
	WATCH_WAIT,					/* for a successor: both keys, by one watch (ARMED) */
	WATCH_PATRONI,				/* a followed election: leader key, configuration */
	WATCH_ANYBODY				/* of an election without candidates */
} WatchTarget;

typedef struct Watched
{
	int			slot;
	WatchTarget target;
	QueueKey	key;			/* not of WATCH_ANYBODY */
	QueueKey	leader;			/* WAIT; key is the own one */
	char		range_end[ELECTION_KEY_SIZE + 1];	/* WAIT: behind both */
	int64_t		start_revision;
} Watched;

/* One stream watches all keys. */
typedef struct WatchStream
{
	bool		open;
	int64_t		opened_ns;
	int			failures;
	int64_t		retry_ns;
	int			nwatched;
	int			ncreated;		/* of them, etcd has confirmed so many */
	Watched		watched[MAX_WATCHES];
} WatchStream;

struct ElectionCore
{
	ElectionPort port;
	ElectionConfig config;
	int			max_elections;
	Election   *elections;
	bool		stopping;
	int			farewells_left; /* revocations that may be sent again then */

	Op			ops[MAX_OPS];
	uint64_t	next_id;
	int64_t		wakeup_ns;

	/* contact */
	bool		connected;
	uint32_t	failed_endpoints;	/* since etcd answered last */
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
	Lease		lease;
	Lease		fresh;
	int64_t		retired;		/* lease to be revoked once the keys left it */
	bool		revoking;		/* the lease is being given up, with all keys */
	int			lease_failures;
	int64_t		lease_retry_ns;
	uint64_t	next_beat;
	uint64_t	first_beat;		/* the results of earlier ones do not count */
	int64_t		beat_ns;		/* when the next one is due */
	int			beat_failures;

	/* looks */
	int64_t		look_retry_ns;
	int			look_failures;

	WatchStream stream;

	bool		remembered;		/* memory has the record that the caller was given last */
	ElectionMemory memory;
	ElectionMemory draft;
};

/* ---- helpers ------------------------------------------------------------- */

static inline EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

static inline bool
is_key(EtcdBytes bytes, const char *key)
{
	return bytes.len == strlen(key) && memcmp(bytes.data, key, bytes.len) == 0;
}

static inline bool
is_queue_key(const QueueKey *key, EtcdBytes bytes)
{
	return key->len == bytes.len && memcmp(key->data, bytes.data, bytes.len) == 0;
}

static inline void
copy_string(char *dst, const char *src, size_t size)
{
	size_t		len = strlen(src);

	if (len >= size)
		len = size - 1;
	memcpy(dst, src, len);
	dst[len] = '\0';
}

/*
 * Copies a value of etcd's as a string: up to a NUL, and if it is too long,
 * up to the end of a UTF-8 character.
 */
static inline void
copy_value(char *dst, EtcdBytes value, size_t size)
{
	size_t		len = strnlen(value.data, value.len);

	if (len >= size)
	{
		len = size - 1;
		while (len > 0 && ((unsigned char) value.data[len] & 0xC0) == 0x80)
			len--;
	}
	memcpy(dst, value.data, len);
	dst[len] = '\0';
}

static inline EtcdOp
range_of_key(const char *key)
{
	EtcdOp		op = {.kind = ETCD_OP_RANGE};

	op.key = bytes_of(key);
	return op;
}

static inline EtcdOp
put_of_key(const char *key, const char *value, int64_t lease)
{
	EtcdOp		op = {.kind = ETCD_OP_PUT};

	op.key = bytes_of(key);
	op.value = bytes_of(value);
	op.lease = lease;
	return op;
}

static inline EtcdCompare
compare_key(const char *key, EtcdCompareTarget target, int64_t value)
{
	EtcdCompare compare = {.target = target, .value = value};

	compare.key = bytes_of(key);
	return compare;
}

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

/* Waits directly behind the leader, as far as is known. */
static inline bool
is_successor(const Election *e)
{
	return e->state == ELECTION_WAITING &&
		e->position.predecessor.create_revision == e->leader.key.create_revision;
}

/* Wants to have a key. */
static inline bool
is_candidate(const Election *e)
{
	return e->state == ELECTION_JOINING || is_queued(e);
}

/* ---- requests.c ------------------------------------------------------------ */

/*
 * Returns NULL if there are too many; the request is still wanted when others
 * have ended.
 */
extern Op  *core_start_op(ElectionCore *core, int64_t now_ns, OpKind kind);
extern Op  *core_start_election_op(ElectionCore *core, int64_t now_ns, OpKind kind, Election *e);
extern bool core_is_under_way(const ElectionCore *core, OpKind kind, uint32_t slots);

/*
 * The election of a request about one; NULL if its slot belongs to another one
 * now.
 */
extern Election *core_find_election(ElectionCore *core, const Op *op);
extern void core_send_txn(ElectionCore *core, const Op *op,
						  const EtcdCompare *compares, int ncompares,
						  const EtcdOp *success, int nsuccess,
						  const EtcdOp *failure, int nfailure);

/*
 * Sends a txn of ranges.  ordered: raft's log orders it (ORDERED).  ops has room
 * for one operation more.
 */
extern void core_send_look(ElectionCore *core, Op *op, EtcdOp *ops, int nops, bool ordered);
extern void core_send_lease_request(ElectionCore *core, const Op *op, EtcdRequestKind kind,
									int64_t ttl_s);

/*
 * How long to wait after this number of failures in a row: between half and
 * all of a back-off that doubles.  It counts from the sending of the failed
 * request, because the time without an answer was waiting, too.  A leader has
 * a deadline to meet, and there is only one leader: its urgent back-off ends at
 * an 18th of the TTL.
 */
extern int64_t core_backoff_ns(ElectionCore *core, int failures);
extern int64_t core_urgent_backoff_ns(ElectionCore *core, int failures);
extern void core_wake_at(ElectionCore *core, int64_t when_ns);

/* Is it time?  If not, pursue() is called again then. */
extern bool core_is_due(ElectionCore *core, int64_t now_ns, int64_t when_ns);

/* Does somebody wait for the answer to that request? */
extern bool core_is_answer_awaited(const ElectionCore *core, uint64_t id);

/* Is the request a look of any kind?  Does its txn write nothing? */
extern bool core_is_look(const Op *op);
extern bool core_is_read(const Op *op);

/*
 * The record for the time after a crash is erased before a message is sent that
 * changes keys or leases (MEMORY).
 */
extern void core_erase_memory(ElectionCore *core);

/* ---- facts.c --------------------------------------------------------------- */

/* What the answer to the request says.  The facts point into both. */
extern void facts_take(const Op *op, const EtcdAnswer *answer, Facts *facts);

/* ---- lease_state.c --------------------------------------------------------- */

/* The safety margin of a lease with that TTL. */
extern int64_t lease_margin_ns(const ElectionCore *core, int64_t ttl_ns);

/*
 * When to stop relying on keys of the lease, if it lives until until_ns; and on
 * keys of the lease that is to replace it.
 */
extern int64_t lease_deadline_of(const ElectionCore *core, int64_t until_ns);
extern int64_t lease_fresh_deadline_ns(const ElectionCore *core);

/* Can this instance rely on a key that is attached to the lease now? */
extern bool lease_is_good(const ElectionCore *core, int64_t now_ns);

/* The own key was seen on the good lease: it lives as long as the lease. */
extern void lease_extend(ElectionCore *core, Election *e);

/* Leadership is over: the election has no deadline any more. */
extern void lease_end_deadline(Election *e);

/*
 * A key that nobody deletes is attached to this lease, or may become so.
 * Therefore the lease has to be replaced.  0: it may be any lease of ours.
 */
extern void lease_taint(ElectionCore *core, int64_t lease);

/* May our own move have put a key on that lease? */
extern bool lease_is_moved_to(const ElectionCore *core, int64_t lease);

/* Is there a lease with keys of which nobody knows whether it exists? */
extern bool lease_is_in_doubt(const ElectionCore *core);

/* See election_ttl_ns(). */
extern int64_t lease_ttl_ns(const ElectionCore *core);

/* A third of that TTL. */
extern int64_t lease_interval_ns(const ElectionCore *core);

/* ---- patroni_cluster.c ----------------------------------------------------- */

/* A slot was given to a followed election, or the settings of its keys changed. */
extern void patroni_begin(ElectionCore *core, Election *e);

/* etcd has another history: forgets everything about the keys. */
extern void patroni_discard(Election *e);

/*
 * When leadership ends.  Only for a followed election that this instance
 * leads.
 */
extern int64_t patroni_deadline_ns(const ElectionCore *core, const Election *e);

/* The TTL of the leader key's lease; ours, until that is known. */
extern int64_t patroni_ttl_ns(const ElectionCore *core, const Election *e);

/* The longest TTL of a leader key; 0: none is known. */
extern int64_t patroni_longest_ttl_ns(const ElectionCore *core);

/* Fills in the leader key, and the reason why this instance does not lead. */
extern void patroni_describe(const ElectionCore *core, const Election *e, ElectionView *view);

/* Does the cluster of the keys run this server? (OURS) */
extern bool patroni_is_ours(const ElectionCore *core, const Patroni *p);

/* What a look shows of the cluster, apart from its leader. */
extern void patroni_learn_cluster(const ElectionCore *core, Patroni *p, const Facts *facts);

/* ---- transfer_state.c ------------------------------------------------------ */

/* The deletion of the own key was sent, and its result is not known. */
static inline bool
transfer_is_sent(const Election *e)
{
	return e->transfer.stage == TRANSFER_SENT;
}

/* Ends the transfer, and answers the command that waits. */
extern void transfer_end(ElectionCore *core, Election *e, ElectionReply reply);

/* Events that transfers need to know. */
extern void transfer_leadership_won(Election *e);
extern void transfer_leadership_lost(ElectionCore *core, Election *e);
extern void transfer_key_lost(Election *e);
extern void transfer_leader_seen(ElectionCore *core, Election *e);
extern void transfer_disconnected(ElectionCore *core, Election *e);

/* The election is dropped, or etcd has another history. */
extern void transfer_dropped(ElectionCore *core, Election *e);

/* ---- watch_state.c --------------------------------------------------------- */

/*
 * Does one watch report all changes of the own key and the leader's key after
 * that revision?
 */
extern bool watch_tells_since(const ElectionCore *core, const Election *e, int64_t revision);
extern void watch_close(ElectionCore *core);

/* Closes a stream that watches less than was asked for. */
extern void watch_close_if_incomplete(ElectionCore *core, int64_t now_ns);

/* ---- publish.c ------------------------------------------------------------- */

/*
 * When leadership in this election ends.  Only for an election that this
 * instance leads.
 */
extern int64_t lease_deadline_ns(const ElectionCore *core, const Election *e);

extern void core_publish(ElectionCore *core, const Election *e);
extern void core_announce(ElectionCore *core, ElectionEventKind kind, const Election *e,
						  bool with_leader, ElectionReason reason, const char *detail);
extern void core_reply(ElectionCore *core, uint64_t *ticket, ElectionReply result);


/* ---- lease.c --------------------------------------------------------------- */

/* Does the result of this beat still count? */
extern bool lease_is_current(const ElectionCore *core, const Beat *beat);

/* An answer says that this lease does not exist. */
extern void lease_not_found(ElectionCore *core, int64_t lease);

/* The answer to a keepalive, grant, revocation or move.  It may be a refusal. */
extern void lease_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/*
 * A look was answered; standing: the elections whose own key is as PLACE and
 * BEAT require.
 */
extern void lease_receive_look(ElectionCore *core, int64_t now_ns, const Facts *facts,
							   uint32_t standing);
extern void lease_request_failed(ElectionCore *core, int64_t now_ns, const Op *op);

/*
 * Starts a beat.  False if the lease is not kept; then a look has to be sent
 * instead.
 */
extern bool lease_start_beat(ElectionCore *core, int64_t now_ns);
extern bool lease_beat_is_due(ElectionCore *core, int64_t now_ns);
extern void lease_pursue(ElectionCore *core, int64_t now_ns);

/* New settings are in force. */
extern void lease_configure(ElectionCore *core, int64_t now_ns);
extern void lease_retry_now(ElectionCore *core);

/*
 * Ends the core: revokes every lease.  May be called again for one more try.
 */
extern void lease_revoke_all(ElectionCore *core, int64_t now_ns);
extern void lease_revoke_again(ElectionCore *core, int64_t now_ns, int64_t lease);

/* etcd has another history: none of our leases exist there. */
extern void lease_discard(ElectionCore *core);
extern bool lease_resume(ElectionCore *core, int64_t now_ns, const ElectionMemory *memory);
extern void lease_remember(const ElectionCore *core, ElectionMemory *memory);

#ifdef ELECTION_CHECKED
extern void lease_check(const ElectionCore *core);
#endif

/* ---- queue.c ------------------------------------------------------------- */

/* There is a sign that etcd was put back to an earlier state. */
extern void queue_guard_against_restore(ElectionCore *core);

/*
 * The own key is attached to this lease.  It has this value, since that
 * revision.
 */
extern void queue_learn_lease(const ElectionCore *core, Election *e, int64_t lease);
extern void queue_learn_value(ElectionCore *core, Election *e, EtcdBytes value,
							  int64_t mod_revision);

/* This incarnation of the own key is never believed again (FINAL). */
extern void queue_abandon(Election *e, int64_t create_revision);

/* The own key did not exist at that revision: the next one is younger. */
extern void queue_raise_min_create_revision(Election *e, int64_t revision);

/*
 * Ends leadership, if this instance leads, for readers first (ORDER).  Answers
 * to earlier requests are ignored from then on (EPOCH).
 */
extern void queue_withdraw(ElectionCore *core, Election *e, ElectionReason reason);

/* The key is gone, and this instance did not delete it. */
extern void queue_lose_key(ElectionCore *core, Election *e, ElectionReason reason);

/* The key exists, and belongs to the lease. */
extern void queue_enter(ElectionCore *core, Election *e, int64_t create_revision,
						int64_t mod_revision, EtcdBytes value);

/*
 * Leaves an election: deletes the key, if there is one.  From now on the key
 * is not believed any more (FINAL).
 */
extern void queue_leave(ElectionCore *core, Election *e, ElectionReason reason);

/* Deletes a key that may have been entered by a request that was given up. */
extern void queue_leave_with_key(ElectionCore *core, Election *e, int64_t create_revision);

/*
 * Gives a slot to an election that has none yet; NULL if none is free.  And to
 * each election of the settings, while there are any.
 */
extern Election *queue_take_slot(ElectionCore *core, const char *name);
extern void queue_take_up_elections(ElectionCore *core);

/*
 * No key of ours exists, and none is being deleted.  Frees the slot if the
 * election is not in the settings; else it joins, stays out, or observes.
 */
extern void queue_choose_state(ElectionCore *core, Election *e);

/* First in the queue, as of a linearizable answer at that revision (PLACE). */
extern void queue_become_first(ElectionCore *core, int64_t now_ns, Election *e,
							   int64_t revision, bool ordered);
extern void queue_begin_leading(ElectionCore *core, Election *e);

/*
 * The own key in a linearizable answer of that revision (NULL: it does not
 * exist).  True if the key is as PLACE and BEAT require.
 */
extern bool queue_check_own_key(ElectionCore *core, Election *e, const EtcdKeyValue *kv,
								int64_t revision);

/*
 * The same if this instance is not in the queue, and the look asked for the
 * own key nevertheless.
 */
extern void queue_check_absence(ElectionCore *core, Election *e, const EtcdKeyValue *kv,
								int64_t revision);

/* The lease is gone at etcd, with every key that is attached to it. */
extern void queue_lease_lost(ElectionCore *core, int64_t lost);

/* The lease was revoked on purpose. */
extern void queue_lease_revoked(ElectionCore *core);

/*
 * The lease `old` was replaced by core->lease.  slots: the elections whose
 * keys were put on it, at mod_revision (0: not known).
 */
extern void queue_moved(ElectionCore *core, int64_t now_ns, int64_t old, bool by_move,
						uint32_t slots, int64_t mod_revision);

/*
 * Announces the leader, or that there is none, unless this was announced
 * already.
 */
extern void queue_tell_leader(ElectionCore *core, Election *e, ElectionReason reason);

/* Ends leadership, and forgets the leader's name, if their time is over. */
extern void queue_expire(ElectionCore *core, int64_t now_ns);
extern void queue_wake_at_expiry(ElectionCore *core);
extern void queue_retry_now(ElectionCore *core);

/* etcd has another history: forgets everything about the queue. */
extern void queue_discard(ElectionCore *core, Election *e);
extern void queue_resume(const ElectionMemory *memory, int i, Election *e);

/* ---- own_key.c ----------------------------------------------------------- */

/* The answer to an entry, delete or proclaim.  It may be a refusal. */
extern void own_key_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);
extern void own_key_request_failed(ElectionCore *core, const Op *op);

/* A move was executed, or refused with the keys as they are. */
extern void own_key_receive_move(ElectionCore *core, const Facts *facts);

/* A transfer deleted the own key, at that revision. */
extern void own_key_transferred(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision);

/* Sends what is due. */
extern void own_key_pursue(ElectionCore *core, int64_t now_ns);

/* ---- queue_events.c ------------------------------------------------------ */

/* A key that is watched has changed. */
extern void queue_see_event(ElectionCore *core, const Watched *watched,
							const EtcdWatchEvent *event);

/*
 * All events of a frame are known.  If a wait has ended, this instance may
 * lead now (ARMED).
 */
extern void queue_end_frame(ElectionCore *core, int64_t now_ns);

/* The watch may miss events: this instance is not armed any more (ARMED). */
extern void queue_watch_lost(ElectionCore *core);

/* ---- look.c -------------------------------------------------------------- */

/* Everything has to be read again.  No look of own elections is sent before that time. */
extern void look_want_all(ElectionCore *core);
extern void look_postpone(ElectionCore *core, int64_t until_ns);

/*
 * A look at the election, by look.c or patroni.c, is sent; its answer was used;
 * there is none.  A session that wants to know whether this instance still leads
 * waits for a look that is sent after it asked.
 */
extern void look_take_up(const Op *op, Election *e);
extern void look_finish(ElectionCore *core, const Op *op, Election *e);
extern void look_want_again(const Op *op, Election *e);
extern void look_retry_now(ElectionCore *core);

/*
 * Sends a look: one linearizable txn that reads, for each election that does
 * not follow Patroni, the own key, the predecessor and the leader, if there can
 * be any.  Keys that are known are read by their names (BY NAME).  beat: the
 * beat that it confirms, or NULL.  False: there is nothing to read, or no room.
 */
extern bool look_send(ElectionCore *core, int64_t now_ns, const Beat *beat);

/* etcd refuses the look, or it got no answer. */
extern void look_request_failed(ElectionCore *core, const Op *op);

/* Returns the elections whose own key is as PLACE and BEAT require. */
extern uint32_t look_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* Sends the looks that are wanted and not postponed. */
extern void look_pursue(ElectionCore *core, int64_t now_ns);

/* ---- transfer.c ---------------------------------------------------------- */

/* The command: the queue is read first.  The instance leads, and no transfer is under way. */
extern void transfer_begin(Election *e, const char *to_node, int64_t until_ns, uint64_t ticket);

/* The answer to a survey or a transfer.  It may be a refusal. */
extern void transfer_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);
extern void transfer_request_failed(ElectionCore *core, const Op *op);

/* Sends what is due. */
extern void transfer_pursue(ElectionCore *core, int64_t now_ns);

/* ---- patroni.c ------------------------------------------------------------- */

/* The answer to a look or to a request for a time to live.  It may be a refusal. */
extern void patroni_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);
extern void patroni_request_failed(ElectionCore *core, int64_t now_ns, const Op *op);

/* Sends a look of any followed election.  False: there is none, or no room. */
extern bool patroni_probe(ElectionCore *core, int64_t now_ns);

/* Sends what is due. */
extern void patroni_pursue(ElectionCore *core, int64_t now_ns);

/* Sends no look before that time. */
extern void patroni_postpone_looks(ElectionCore *core, int64_t until_ns);

/* There is contact again: postponed requests are due now. */
extern void patroni_retry_now(ElectionCore *core);

extern void patroni_watched_keys(const Election *e, QueueKey *leader, QueueKey *config);
extern void patroni_see_event(ElectionCore *core, int64_t now_ns, Election *e,
							  const EtcdWatchEvent *event);

/* New settings are in force; other_cluster: those that name the keys changed. */
extern void patroni_configure(ElectionCore *core, int64_t now_ns, Election *e, bool other_cluster);

/* ---- watch.c ------------------------------------------------------------- */

/* Opens the stream anew if something else has to be watched. */
extern void watch_pursue(ElectionCore *core, int64_t now_ns);

/* A frame of the stream.  False: the stream is of no use any more. */
extern bool watch_receive(ElectionCore *core, int64_t now_ns, const EtcdWatchFrame *frame);

extern void watch_ended(ElectionCore *core, int64_t now_ns);

/* ---- election.c ------------------------------------------------------------ */

/*
 * Sends whatever is wanted, not under way and not postponed, and sets the time
 * at which this has to be done again.  Every input ends with it.
 */
extern void core_pursue(ElectionCore *core, int64_t now_ns);

#endif							/* ELECTION_INTERNAL_H */
