/*-------------------------------------------------------------------------
 *
 * election.c
 *	  The election protocol of one instance, as a pure state machine.
 *
 * The instance holds one lease.  In each election it puts one key on that
 * lease; the key with the lowest create revision below "<election>/" leads.
 * That much is etcd's own election (etcdctl elect, Go's concurrency.Election)
 * and its clients take part in ours.  The rules beyond it:
 *
 * PLACE	Leading is concluded from one linearizable answer alone, in which
 *			the own key stands, with its create revision and on the lease, and
 *			is the first.  Go's Campaign does not look at its own key again
 *			after waiting, and elects a waiter whose lease is gone (etcd
 *			#19597).
 * EPOCH	An answer to what was asked before a withdrawal is not looked at.
 * BEAT		A keepalive and a confirming read move the deadline only together:
 *			both answered in the raft term that the lease was granted in, the
 *			old deadline not passed, the key found as in PLACE.  A deposed
 *			leader of etcd answers keepalives with a full TTL (#15247); equal
 *			terms show that the true one renewed.  The read is sent when the
 *			keepalive is answered, not with it: served before it, in the old
 *			term, it would hide that the keepalive was the new leader's, of
 *			which the old one's books, should it wake, know nothing.
 * FRESH	In a new raft term, or after the deadline, the lease is replaced
 *			and the keys are put on the new one.  An etcd leader that was
 *			stopped and wakes up revokes what its successor renewed.
 * GUARD	Every write of an own key compares create and mod revision, so
 *			that whatever was sent earlier and given up cannot take effect
 *			after it: a stopped member executes what it has when it wakes.
 * FINAL	A delete that was sent is final: that incarnation of the key is
 *			never believed again.  So is a revocation.
 * ORDER	Leadership is withdrawn from readers before the key is deleted or
 *			the lease revoked.
 * MEMORY	What is remembered over a crash of the elector is erased before a
 *			message is sent that changes keys or leases, until it is answered:
 *			whoever resumes would not know that it may yet be executed.
 * HISTORY	An answer of another cluster, of a lower raft term, or of a lower
 *			revision than a linearizable answer can have is dropped.  If
 *			nothing better comes for a TTL, etcd was replaced or restored.
 *
 * The shape: inputs change the state and mark what is wanted; pursue() then
 * sends whatever is wanted, not under way and not postponed.  So a lost
 * answer needs no handler of its own: what it should have brought about is
 * still wanted.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "election.h"

#define NS_PER_MS	INT64_C(1000000)
#define NS_PER_S	INT64_C(1000000000)
#define NEVER_NS	INT64_MAX

/* Back-off between tries of what failed: doubled up to the last, jittered. */
#define BACKOFF_MIN_MS		100
#define BACKOFF_MAX_MS		1000

/*
 * Who resigned enters again a little later: the next one's reading, which
 * makes it the leader, shall not wait for ours, and still less for our
 * writing.
 */
#define REJOIN_DELAY_NS		(50 * NS_PER_MS)

/* A watch stream that lived for so long did not fail at once. */
#define WATCH_STABLE_NS		(5 * NS_PER_S)

/* An answer that changes what is to be watched is waited for so long. */
#define WATCH_PATIENCE_NS	(100 * NS_PER_MS)

/*
 * Requests under way at once, at the most: a beat's two, some looks, the
 * lease's, and one of each kind per election.
 */
#define MAX_OPS				(16 + 3 * ELECTION_MAX_ELECTIONS)

/* Own key, predecessor and leader of each election. */
#define MAX_WATCHES			(3 * ELECTION_MAX_ELECTIONS)

#define ALL_SLOTS			UINT32_MAX
#define SLOT_BIT(slot)		(UINT32_C(1) << (slot))

typedef enum OpKind
{
	OP_LOOK,
	OP_KEEPALIVE,
	OP_GRANT,
	OP_REVOKE,
	OP_MOVE,
	OP_ENTER,
	OP_DELETE,
	OP_PROCLAIM
} OpKind;

/* What a look asks of an election, beside its leader. */
#define LOOK_OWN			1
#define LOOK_NEIGHBOUR		2		/* the predecessor; a leader's is the last in the queue */

/* A request under way. */
typedef struct Op
{
	uint64_t	id;				/* 0: free */
	OpKind		kind;
	int64_t		sent_ns;
	int64_t		revision_floor; /* no linearizable answer can be older */
	int64_t		lease;			/* KEEPALIVE, GRANT, REVOKE, MOVE, ENTER */
	uint64_t	beat;			/* of which it is a part; 0: none */
	uint32_t	slots;			/* elections that it is about */
	uint32_t	generation;		/* ENTER, DELETE, PROCLAIM: of the slot's use */
	uint32_t	epochs[ELECTION_MAX_ELECTIONS];
	int64_t		create_revisions[ELECTION_MAX_ELECTIONS];
	uint8_t		asked[ELECTION_MAX_ELECTIONS];	/* LOOK */
	char		value[ELECTION_VALUE_SIZE]; /* ENTER, PROCLAIM */
} Op;

/* A key of the queue that is watched.  len 0: none, or too long to be kept. */
typedef struct QueueKey
{
	char		data[ELECTION_KEY_SIZE];
	size_t		len;
	int64_t		create_revision;	/* 0: there is no such key */
} QueueKey;

typedef struct Election
{
	char		name[ELECTION_NAME_SIZE];	/* empty: the slot is free */
	char		prefix[ELECTION_NAME_SIZE + 1]; /* "name/" */
	char		prefix_end[ELECTION_NAME_SIZE + 1]; /* "name0" */
	bool		wanted;			/* in the settings */
	bool		stay_out;		/* resigned without rejoin */
	ElectionState state;
	uint32_t	generation;		/* how often the slot was taken */
	uint32_t	epoch;			/* answers to what was asked in another are void */

	char		value[ELECTION_VALUE_SIZE]; /* that the key shall have */
	bool		must_put_value;	/* even if it has, for a command waits for etcd's word */

	char		key[ELECTION_KEY_SIZE]; /* empty: never entered on this lease */
	int64_t		named_lease;	/* the key hung on it, or may come to; 0: on none */
	int64_t		entry_floor;	/* a revision at which the key did not stand yet */
	bool		entry_unanswered;	/* one was sent, and may be executed at any time */
	int64_t		create_revision;	/* of the key that stands; 0: none known */
	int64_t		mod_revision;	/* newest known of that key */
	int64_t		key_lease;		/* as of mod_revision */
	char		key_value[ELECTION_VALUE_SIZE]; /* as of mod_revision */
	int64_t		final_revision; /* incarnations up to this are not believed */
	int64_t		lease_until_ns; /* LEADING: the lease lives at least so long */

	int64_t		seen_revision;	/* of the newest answer that was looked at */
	QueueKey	predecessor;
	QueueKey	leader;
	char		leader_value[ELECTION_VALUE_SIZE];
	int64_t		leader_mod_revision;	/* that the value is of */
	bool		leader_known;	/* leader, or that there is none, is current */
	int64_t		leader_until_ns;	/* leader_known: no longer than until then */
	int64_t		told_revision;	/* leader that was announced last; 0: none */
	char		told_value[ELECTION_VALUE_SIZE];
	int64_t		namesake_revision;	/* of a candidate with our value; 0: none */
	int64_t		namesake_ns;	/* it is there since then; NEVER_NS: and was told of */

	bool		look_wanted;
	uint64_t	look_id;		/* the newest look but those of beats */
	int64_t		watch_revision; /* the watch has to tell from here on; 0: not looked yet */
	int			failures;		/* of this election's own requests, in a row */
	int64_t		retry_ns;

	uint64_t	resign_ticket;
	uint64_t	campaign_ticket;
	uint64_t	proclaim_ticket;
	uint64_t	verify_ticket;
	uint64_t	verify_id;		/* of the look that verifies; 0: to be sent */
} Election;

typedef struct Lease
{
	int64_t		id;				/* 0: none */
	bool		granted;
	int			asked_ttl_s;
	int64_t		ttl_ns;
	uint64_t	term;			/* highest seen before the grant was sent */
	int64_t		sent_ns;		/* first send of the grant */
	int64_t		until_ns;		/* lives at least so long at etcd */
	int			tries;
	bool		moving;			/* keys may hang on it: a move was sent */
	bool		tainted;		/* a key that nobody deletes hangs on it, or may come to */
} Lease;

/* The beat under way: both halves must come back. */
typedef struct Beat
{
	uint64_t	number;			/* 0: none under way */
	int64_t		sent_ns;
	bool		kept;
	uint64_t	keep_term;
	int64_t		ttl_ns;
	bool		confirmed;
	uint64_t	confirm_term;
	uint32_t	slots;			/* whose own key the confirming read showed */
	uint32_t	epochs[ELECTION_MAX_ELECTIONS];
} Beat;

typedef enum WatchTarget
{
	WATCH_OWN,
	WATCH_PREDECESSOR,
	WATCH_LEADER,
	WATCH_ANYBODY				/* of an election without candidates */
} WatchTarget;

typedef struct Watched
{
	int			slot;
	WatchTarget target;
	QueueKey	key;			/* not of WATCH_ANYBODY */
} Watched;

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
	int			contact_failures;
	int64_t		contact_retry_ns;

	/* etcd's history */
	uint64_t	cluster_id;		/* 0: not learned */
	uint64_t	term_seen;		/* 0: not learned */
	int64_t		max_revision;	/* highest seen */
	int64_t		lead_above_revision;	/* of an earlier history */
	int64_t		stale_since_ns; /* 0: the last answer was good */

	/* the lease and the one that is to replace it */
	Lease		lease;
	Lease		fresh;
	int64_t		retired;		/* lease to be revoked once the keys left it */
	bool		revoking;		/* the lease is being given up, with all keys */
	int			lease_failures;
	int64_t		lease_retry_ns;

	Beat		beat;
	uint64_t	next_beat;
	int64_t		beat_ns;		/* when the next one is due */
	int			beat_failures;
	int64_t		look_retry_ns;
	int			look_failures;

	bool		watch_open;
	int64_t		watch_opened_ns;
	int			watch_failures;
	int64_t		watch_retry_ns;
	int			nwatched;
	int			ncreated;		/* of them, etcd has confirmed so many */
	Watched		watched[MAX_WATCHES];

	bool		remembered;		/* memory is what the caller was given last */
	ElectionMemory memory;
	ElectionMemory draft;
};

static void expire(ElectionCore *core, int64_t now_ns);
static void guard_against_restore(ElectionCore *core);
static void pursue(ElectionCore *core, int64_t now_ns);
static void send_revoke(ElectionCore *core, int64_t now_ns, int64_t lease);
static bool send_look(ElectionCore *core, int64_t now_ns, uint32_t slots, uint64_t beat);
static void settle(ElectionCore *core, Election *e);
static void take_up_elections(ElectionCore *core);

/* ---- small helpers --------------------------------------------------- */

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

static void
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
static void
copy_value(char *dst, EtcdBytes value)
{
	size_t		len = strnlen(value.data, value.len);

	if (len >= ELECTION_VALUE_SIZE)
	{
		len = ELECTION_VALUE_SIZE - 1;
		while (len > 0 && ((unsigned char) value.data[len] & 0xC0) == 0x80)
			len--;
	}
	memcpy(dst, value.data, len);
	dst[len] = '\0';
}

static bool
is_key(EtcdBytes bytes, const char *key)
{
	return bytes.len == strlen(key) && memcmp(bytes.data, key, bytes.len) == 0;
}

/* key = name "/" lease, in lower-case hex without leading zeros, as Go's %x */
static void
make_key(char *key, const char *name, int64_t lease)
{
	static const char digits[] = "0123456789abcdef";
	size_t		len = strlen(name);
	int			shift = 60;

	memcpy(key, name, len);
	key[len++] = '/';
	while (shift > 0 && ((lease >> shift) & 0xF) == 0)
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		key[len++] = digits[(lease >> shift) & 0xF];
	key[len] = '\0';
}

static int
slot_of(const ElectionCore *core, const Election *e)
{
	return (int) (e - core->elections);
}

static bool
is_used(const Election *e)
{
	return e->name[0] != '\0';
}

/* The key stands, as far as known, and is meant to. */
static bool
is_queued(const Election *e)
{
	return e->state == ELECTION_QUEUED || e->state == ELECTION_WAITING ||
		e->state == ELECTION_LEADING || e->state == ELECTION_HELD_BACK;
}

/* Wants to have a key. */
static bool
is_candidate(const Election *e)
{
	return e->state == ELECTION_JOINING || is_queued(e);
}

static int64_t
margin_ns(const ElectionCore *core, int64_t ttl_ns)
{
	int64_t		margin = core->config.safety_margin_ms * NS_PER_MS;

	if (core->config.safety_margin_ms < 0)
		return ttl_ns / 10;
	/* Less than half a TTL would never be renewed in time. */
	return margin < ttl_ns / 2 ? margin : ttl_ns / 2;
}

/* Until when an election on this lease may be led. */
static int64_t
deadline_ns(const ElectionCore *core, int64_t until_ns)
{
	int64_t		ttl_ns = core->lease.ttl_ns;

	/* the keys may hang on either */
	if (core->fresh.moving && core->fresh.ttl_ns > ttl_ns)
		ttl_ns = core->fresh.ttl_ns;
	return until_ns - margin_ns(core, ttl_ns);
}

static int64_t
fresh_deadline_ns(const ElectionCore *core)
{
	return core->fresh.until_ns - margin_ns(core, core->fresh.ttl_ns);
}

static bool
lease_is_good(const ElectionCore *core, int64_t now_ns)
{
	return core->lease.id != 0 && deadline_ns(core, core->lease.until_ns) > now_ns;
}

static int64_t
interval_ns(const ElectionCore *core)
{
	return core->config.ttl_s * NS_PER_S / 3;
}

/*
 * How long to wait after so many failures in a row: between half and all of
 * it.  Counted from the sending of what failed: waiting for an answer in vain
 * was waiting enough.
 */
static int64_t
backoff_ns(ElectionCore *core, int failures)
{
	int64_t		ms = BACKOFF_MIN_MS;
	int64_t		max_ms = BACKOFF_MAX_MS;
	uint64_t	jitter = core->port.random(core->port.ctx) % 512;

	/* who leads has a deadline to meet, and is one alone */
	for (int i = 0; i < core->max_elections; i++)
	{
		if (core->elections[i].state == ELECTION_LEADING && max_ms > core->config.ttl_s * 1000 / 18)
			max_ms = core->config.ttl_s * 1000 / 18;
	}
	while (--failures > 0 && ms < max_ms)
		ms *= 2;
	if (ms > max_ms)
		ms = max_ms;
	return ms * NS_PER_MS * (int64_t) (512 + jitter) / 1024;
}

/* pursue() has to be called again at that time. */
static void
wake_at(ElectionCore *core, int64_t when_ns)
{
	if (when_ns < core->wakeup_ns)
		core->wakeup_ns = when_ns;
}

/* Is it time?  If not, pursue() comes back when it is. */
static bool
is_due(ElectionCore *core, int64_t now_ns, int64_t when_ns)
{
	if (now_ns >= when_ns)
		return true;
	wake_at(core, when_ns);
	return false;
}

/* ---- requests under way ------------------------------------------------ */

/* NULL: too many; what was wanted is still wanted when others have ended. */
static Op *
start_op(ElectionCore *core, int64_t now_ns, OpKind kind)
{
	for (int i = 0; i < MAX_OPS; i++)
	{
		Op		   *op = &core->ops[i];

		if (op->id == 0)
		{
			memset(op, 0, sizeof(*op));
			op->id = core->next_id++;
			op->kind = kind;
			op->sent_ns = now_ns;
			op->revision_floor = core->max_revision;
			return op;
		}
	}
	return NULL;
}

static Op *
start_election_op(ElectionCore *core, int64_t now_ns, OpKind kind, Election *e)
{
	Op		   *op = start_op(core, now_ns, kind);
	int			slot = slot_of(core, e);

	if (op)
	{
		op->slots = SLOT_BIT(slot);
		op->epochs[slot] = e->epoch;
		op->create_revisions[slot] = e->create_revision;
		op->generation = e->generation;
	}
	return op;
}

static bool
under_way(const ElectionCore *core, OpKind kind, uint32_t slots)
{
	for (int i = 0; i < MAX_OPS; i++)
	{
		const Op   *op = &core->ops[i];

		if (op->id != 0 && op->kind == kind &&
			(slots == ALL_SLOTS || (op->slots & slots) != 0))
			return true;
	}
	return false;
}

/* Before a message is sent that changes keys or leases (MEMORY). */
static void
forget(ElectionCore *core)
{
	if (core->remembered)
		core->port.remember(core->port.ctx, NULL);
	core->remembered = false;
}

static void
send_txn(ElectionCore *core, const Op *op,
		 const EtcdCompare *compares, int ncompares,
		 const EtcdOp *success, int nsuccess,
		 const EtcdOp *failure, int nfailure)
{
	EtcdRequest request = {.kind = ETCD_TXN};

	request.compares = compares;
	request.ncompares = ncompares;
	request.success = success;
	request.nsuccess = nsuccess;
	request.failure = failure;
	request.nfailure = nfailure;
	/* a proclamation leaves alone what is remembered */
	if (op->kind != OP_LOOK && op->kind != OP_PROCLAIM)
		forget(core);
	core->port.send(core->port.ctx, op->id, &request);
}

static void
send_lease_request(ElectionCore *core, const Op *op, EtcdRequestKind kind, int64_t ttl_s)
{
	EtcdRequest request = {.kind = kind, .lease = op->lease, .ttl_s = ttl_s};

	if (kind == ETCD_REVOKE)
		forget(core);
	core->port.send(core->port.ctx, op->id, &request);
}

static EtcdOp
range_of_key(const char *key)
{
	EtcdOp		op = {.kind = ETCD_OP_RANGE};

	op.key = bytes_of(key);
	return op;
}

static EtcdOp
put_of_key(const char *key, const char *value, int64_t lease)
{
	EtcdOp		op = {.kind = ETCD_OP_PUT};

	op.key = bytes_of(key);
	op.value = bytes_of(value);
	op.lease = lease;
	return op;
}

static EtcdCompare
compare_key(const char *key, EtcdCompareTarget target, int64_t value)
{
	EtcdCompare compare = {.target = target, .value = value};

	compare.key = bytes_of(key);
	return compare;
}

/* ---- what is published and announced ----------------------------------- */

static void
publish(ElectionCore *core, const Election *e)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	copy_string(view.name, e->name, sizeof(view.name));
	view.state = is_used(e) ? e->state : ELECTION_UNUSED;
	view.role = e->state == ELECTION_LEADING ? ELECTION_LEADER :
		is_candidate(e) ? ELECTION_CANDIDATE : ELECTION_OBSERVER;
	if (e->state == ELECTION_LEADING)
	{
		view.deadline_ns = deadline_ns(core, e->lease_until_ns);
		view.token = e->create_revision;
	}
	if (e->leader_known && e->leader.create_revision != 0)
	{
		view.has_leader = true;
		copy_string(view.leader, e->leader_value, sizeof(view.leader));
		view.leader_revision = e->leader.create_revision;
		view.leader_until_ns = e->leader_until_ns;
		/* who leads knows the leader */
		if (view.leader_until_ns < view.deadline_ns)
			view.leader_until_ns = view.deadline_ns;
	}
	if (is_queued(e))
	{
		copy_string(view.key, e->key, sizeof(view.key));
		view.create_revision = e->create_revision;
		view.lease = e->key_lease;
	}
	core->port.publish(core->port.ctx, slot_of(core, e), &view);
}

static void
announce(ElectionCore *core, ElectionEventKind kind, const Election *e,
		 bool with_leader, ElectionReason reason, const char *detail)
{
	ElectionEvent event = {.kind = kind, .reason = reason, .detail = detail};

	if (e)
		event.election = e->name;
	if (with_leader)
	{
		event.leader = e->leader_value;
		event.leader_revision = e->leader.create_revision;
	}
	core->port.announce(core->port.ctx, &event);
}

static void
reply(ElectionCore *core, uint64_t *ticket, ElectionReply result)
{
	uint64_t	t = *ticket;

	*ticket = 0;
	if (t != 0)
		core->port.reply(core->port.ctx, t, result);
}

/* The leader, or that there is none, is announced unless it was already. */
static void
tell_leader(ElectionCore *core, Election *e, ElectionReason reason)
{
	int64_t		revision = e->leader_known ? e->leader.create_revision : 0;

	if (revision == e->told_revision &&
		(revision == 0 || strcmp(e->leader_value, e->told_value) == 0))
		return;
	if (revision != 0 && revision == e->told_revision)
		reason = ELECTION_REASON_PROCLAIMED;
	e->told_revision = revision;
	copy_string(e->told_value, revision != 0 ? e->leader_value : "", sizeof(e->told_value));
	announce(core, ELECTION_EVENT_LEADER, e, revision != 0, reason, NULL);
}

/* Is there nothing to proclaim? */
static bool
has_value(const Election *e)
{
	return !e->must_put_value && strcmp(e->key_value, e->value) == 0;
}

/* The own key hangs on this lease, and on ours keeps its name from now on. */
static void
see_own_lease(const ElectionCore *core, Election *e, int64_t lease)
{
	e->key_lease = lease;
	if (lease != 0 && lease == core->lease.id)
		e->named_lease = lease;
}

/* The own key has this value, since that revision. */
static void
see_own_value(ElectionCore *core, Election *e, EtcdBytes value, int64_t mod_revision)
{
	e->mod_revision = mod_revision;
	copy_value(e->key_value, value);
	if (e->leader_known && e->leader.create_revision == e->create_revision &&
		mod_revision > e->leader_mod_revision)
	{
		copy_string(e->leader_value, e->key_value, sizeof(e->leader_value));
		e->leader_mod_revision = mod_revision;
		if (e->state == ELECTION_LEADING)
			tell_leader(core, e, ELECTION_NO_REASON);
		publish(core, e);
	}
}

/*
 * Ends leadership, if there is one, for readers first (ORDER), and makes what
 * was asked before void (EPOCH).
 */
static void
withdraw(ElectionCore *core, Election *e, ElectionReason reason)
{
	e->epoch++;
	if (e->state != ELECTION_LEADING)
		return;
	e->state = ELECTION_QUEUED;
	e->lease_until_ns = 0;

	/*
	 * Until something newer is read, nobody is known to lead; except that a
	 * key outlives the deadline, and its name is still that of the leader.
	 */
	if (reason != ELECTION_REASON_LEASE_EXPIRED)
		e->leader_known = false;
	publish(core, e);
	announce(core, ELECTION_EVENT_UNELECTED, e, false, reason, NULL);
}

/* ---- own key and lease: gained and lost --------------------------------- */

/* No key of ours stands any more, or it is not ours to use. */
static void
forget_key(ElectionCore *core, Election *e)
{
	e->create_revision = 0;
	e->mod_revision = 0;
	e->key_lease = 0;
	e->must_put_value = false;
	reply(core, &e->proclaim_ticket, ELECTION_NOT_CANDIDATE);
}

/* The key is gone without our doing: enter again, last in the queue. */
static void
lose_key(ElectionCore *core, Election *e, ElectionReason reason)
{
	withdraw(core, e, reason);
	if (e->create_revision > e->final_revision)
		e->final_revision = e->create_revision;
	forget_key(core, e);
	e->state = ELECTION_JOINING;
	publish(core, e);
}

/* The key stands, and belongs to the lease. */
static void
enter_queue(ElectionCore *core, Election *e, int64_t create_revision, int64_t mod_revision,
			EtcdBytes value)
{
	e->epoch++;
	e->create_revision = create_revision;
	see_own_lease(core, e, core->lease.id);
	see_own_value(core, e, value, mod_revision);
	e->state = ELECTION_QUEUED;
	e->look_wanted = true;
	e->failures = 0;
	e->retry_ns = 0;
	publish(core, e);
	reply(core, &e->campaign_ticket, ELECTION_DONE);
}

/*
 * etcd says that the lease does not exist: every key on it is gone, or is
 * going.  It is never believed again, also if a key should still be seen.
 */
static void
lose_lease(ElectionCore *core)
{
	int64_t		lost = core->lease.id;

	memset(&core->lease, 0, sizeof(core->lease));
	core->beat.number = 0;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		/* a key that is being deleted is settled by the answer to that */
		if (!is_queued(e))
			continue;
		/* It may be on the fresh lease already: the move's answer will tell. */
		if (core->fresh.moving || e->key_lease != lost)
			withdraw(core, e, ELECTION_REASON_LEASE_EXPIRED);
		else
			lose_key(core, e, ELECTION_REASON_LEASE_EXPIRED);
	}
}

/*
 * The fresh lease takes the place of the old one.  slots: the elections whose
 * keys were put on it, at mod_revision.
 */
static void
commit_fresh(ElectionCore *core, int64_t now_ns, uint32_t slots, int64_t mod_revision)
{
	int64_t		old = core->lease.id;
	bool		moved = core->fresh.moving;

	if (old != 0)
		core->retired = old;
	core->lease = core->fresh;
	memset(&core->fresh, 0, sizeof(core->fresh));
	core->lease.moving = false;
	core->lease_failures = 0;
	core->lease_retry_ns = 0;
	core->beat.number = 0;
	/* one that is due before stays so: others may have waited for it for long */
	if (core->beat_ns <= now_ns || core->beat_ns > core->lease.sent_ns + interval_ns(core))
		core->beat_ns = core->lease.sent_ns + interval_ns(core);

	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		/* also of one that was left meanwhile, by a move whose answer was lost */
		if (moved && e->named_lease != 0 && e->named_lease == old)
			e->named_lease = core->lease.id;
		if ((slots & SLOT_BIT(i)) == 0 || !is_queued(e))
			continue;
		see_own_lease(core, e, core->lease.id);
		if (mod_revision > e->mod_revision)
			e->mod_revision = mod_revision;
		if (e->state == ELECTION_LEADING && lease_is_good(core, now_ns))
			e->lease_until_ns = core->lease.until_ns;
		else if (e->state != ELECTION_LEADING)
			e->look_wanted = true;
		publish(core, e);
	}
}

/* The lease is given up for good, and every key with it. */
static void
finish_revoking(ElectionCore *core)
{
	core->revoking = false;
	memset(&core->lease, 0, sizeof(core->lease));
	memset(&core->fresh, 0, sizeof(core->fresh));
	core->retired = 0;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		/* Its key should be gone, unless somebody hung it up elsewhere: look. */
		if (e->state == ELECTION_LEAVING)
		{
			e->create_revision = 0;
			e->look_wanted = true;
		}
		else if (!under_way(core, OP_LOOK, SLOT_BIT(i)))
			e->key[0] = '\0';	/* else: an answer may show it yet */
	}
}

/*
 * Leaves an election: the key, should one stand, is to be deleted, and is
 * not believed any more from here on (FINAL).
 */
static void
leave(ElectionCore *core, Election *e, ElectionReason reason)
{
	if (e->state == ELECTION_LEAVING)
		return;
	withdraw(core, e, reason);
	if (e->create_revision > e->final_revision)
		e->final_revision = e->create_revision;
	reply(core, &e->proclaim_ticket, ELECTION_NOT_CANDIDATE);
	if (is_candidate(e) && e->key[0] != '\0')
	{
		/* With an entry under way, or lost, a key may stand unknown to us. */
		e->state = ELECTION_LEAVING;
		e->look_wanted = e->create_revision == 0;
		e->retry_ns = 0;
		publish(core, e);
	}
	else
		settle(core, e);
}

/* The own key did not stand at that revision: the next one is younger. */
static void
raise_entry_floor(Election *e, int64_t revision)
{
	if (e->entry_floor < revision)
		e->entry_floor = revision;
}

/* No key of ours stands and none is being deleted: what next? */
static void
settle(ElectionCore *core, Election *e)
{
	e->epoch++;
	forget_key(core, e);
	reply(core, &e->resign_ticket, ELECTION_DONE);
	if (!e->wanted)
	{
		Election	unused = {.generation = e->generation, .epoch = e->epoch};

		/*
		 * A key that nobody looks for any more must not come to stay: the
		 * entry may be executed late, or twice, as libcurl repeats a request
		 * when a connection ends without a word; or etcd is put back to a time
		 * when the key was there, on whichever lease.
		 */
		if (e->named_lease != 0)
		{
			core->lease.tainted = true;
			core->fresh.tainted |= core->fresh.moving;
		}
		reply(core, &e->campaign_ticket, ELECTION_NOTHING_TO_DO);
		reply(core, &e->verify_ticket, ELECTION_NOTHING_TO_DO);
		*e = unused;
		publish(core, e);
		take_up_elections(core);
		return;
	}
	if (e->stay_out)
		e->state = ELECTION_RESIGNED;
	else if (core->config.eligible)
		e->state = ELECTION_JOINING;
	else
		e->state = ELECTION_OBSERVING;
	if (e->state != ELECTION_JOINING)
		reply(core, &e->campaign_ticket, ELECTION_NOTHING_TO_DO);
	e->look_wanted = true;
	publish(core, e);
}

/* ---- what a look shows -------------------------------------------------- */

static void
set_queue_key(QueueKey *key, const EtcdKeyValue *kv)
{
	memset(key, 0, sizeof(*key));
	if (kv == NULL)
		return;
	key->create_revision = kv->create_revision;
	if (kv->key.len < sizeof(key->data))
	{
		memcpy(key->data, kv->key.data, kv->key.len);
		key->len = kv->key.len;
	}
}

/*
 * The own key in a linearizable answer of that revision (NULL: it does not
 * stand).  True if it stands as it must for PLACE and BEAT.
 */
static bool
check_own_key(ElectionCore *core, Election *e, const EtcdKeyValue *kv, int64_t revision)
{
	if (kv == NULL)
		raise_entry_floor(e, revision);
	if (kv == NULL || kv->create_revision != e->create_revision)
	{
		lose_key(core, e, ELECTION_REASON_KEY_DELETED);
		return false;
	}

	/*
	 * Answers come in any order; the newer state of the key is the truth.
	 * What an older one says of places may be news all the same: ask again.
	 * (Not older, and yet without our last write: etcd was put back.)
	 */
	if (kv->mod_revision < e->mod_revision && revision < e->mod_revision)
	{
		e->look_wanted = true;
		return false;
	}
	see_own_value(core, e, kv->value, kv->mod_revision);
	see_own_lease(core, e, kv->lease);
	if (kv->lease == 0 || kv->lease != core->lease.id)
	{
		/*
		 * Somebody hung our key on another lease, or a move of ours took
		 * effect though its answer was lost; how long the key lives is not
		 * known here.  pursue_lease() puts it back.
		 */
		if (e->state == ELECTION_LEADING && !(core->fresh.moving && kv->lease == core->fresh.id))
			withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
		return false;
	}
	return true;
}

/* First in the queue, as of a linearizable answer at that revision (PLACE). */
static void
become_first(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision)
{
	if (e->state == ELECTION_LEADING)
		return;
	e->state = ELECTION_QUEUED;
	if (!lease_is_good(core, now_ns))
		return;					/* a lapsed lease is replaced first (FRESH) */
	if (e->create_revision <= e->entry_floor)
	{
		/* etcd was put back meanwhile, and is beyond that revision again */
		e->entry_floor = 0;
		guard_against_restore(core);
	}
	if (e->create_revision <= core->lead_above_revision)
	{
		/*
		 * The token was, or may have been, handed out before.  Another key
		 * gets another one, once etcd's revision is there.
		 */
		if (revision <= core->lead_above_revision)
			e->state = ELECTION_HELD_BACK;
		else
			leave(core, e, ELECTION_NO_REASON);
		return;
	}
	e->state = ELECTION_LEADING;
	e->lease_until_ns = core->lease.until_ns;
	e->told_revision = e->create_revision;
	copy_string(e->told_value, e->leader_value, sizeof(e->told_value));
	publish(core, e);
	announce(core, ELECTION_EVENT_ELECTED, e, true, ELECTION_NO_REASON, NULL);
}

/*
 * A key that was ours, and was deleted, stands again on the lease that is kept
 * alive: etcd was put back.  It would never go; another lease rids us of it.
 */
static bool
is_stray(const ElectionCore *core, const Election *e, const EtcdKeyValue *kv)
{
	return kv != NULL && kv->lease != 0 && kv->lease == core->lease.id && !is_key(kv->key, e->key);
}

/*
 * Two instances with one name: a copy of a data directory, mostly.  The key of
 * an earlier life of this instance is gone after a TTL.
 */
static void
look_for_namesake(ElectionCore *core, int64_t now_ns, Election *e,
				  const EtcdKeyValue *leader, const EtcdKeyValue *neighbour)
{
	const EtcdKeyValue *others[] = {leader, neighbour};
	int64_t		found = 0;
	char		value[ELECTION_VALUE_SIZE];

	for (int i = 0; i < 2; i++)
	{
		if (others[i] == NULL || others[i]->create_revision == e->create_revision)
			continue;
		copy_value(value, others[i]->value);
		if (strcmp(value, e->key_value) == 0)
			found = others[i]->create_revision;
	}
	if (found != e->namesake_revision)
		e->namesake_ns = now_ns;
	e->namesake_revision = found;
	if (found == 0 || e->namesake_ns == NEVER_NS ||
		now_ns - e->namesake_ns < 2 * core->config.ttl_s * NS_PER_S)
		return;
	e->namesake_ns = NEVER_NS;
	core->port.find_namesake(core->port.ctx, e->name, e->key_value);
}

/*
 * What a look showed of one election.  own and neighbour may be NULL, as
 * may leader; `asked` says which of the two were asked for.  True if the own
 * key stands as it must.
 */
static bool
see_election(ElectionCore *core, int64_t now_ns, const Op *op, Election *e, int64_t revision,
			 const EtcdKeyValue *own, const EtcdKeyValue *neighbour, const EtcdKeyValue *leader)
{
	int			slot = slot_of(core, e);
	int			asked = op->asked[slot];
	bool		own_stands = false;

	if (revision < e->seen_revision || op->epochs[slot] != e->epoch)
		return false;			/* answered out of order, or void (EPOCH) */
	e->seen_revision = revision;
	e->watch_revision = revision + 1;
	if (is_stray(core, e, leader) || is_stray(core, e, neighbour))
		core->lease.tainted = true;

	/* A value of ours, or one that the watch told, may be newer than this answer. */
	if (leader == NULL || leader->create_revision != e->leader.create_revision ||
		revision >= e->leader_mod_revision)
	{
		copy_value(e->leader_value, leader ? leader->value : bytes_of(""));
		e->leader_mod_revision = leader ? leader->mod_revision : 0;
	}
	set_queue_key(&e->leader, leader);
	e->leader_known = true;
	e->leader_until_ns = op->sent_ns + core->config.ttl_s * NS_PER_S;

	if ((asked & LOOK_OWN) && !is_candidate(e))
	{
		/*
		 * A key that should not be there: an entry whose answer was lost took
		 * effect, perhaps only after a deletion (FINAL).
		 */
		if (own)
		{
			e->create_revision = own->create_revision;
			e->final_revision = own->create_revision;
			e->state = ELECTION_LEAVING;
			publish(core, e);
		}
		else if (e->state == ELECTION_LEAVING && e->create_revision == 0 &&
				 !under_way(core, OP_ENTER, SLOT_BIT(slot)))
		{
			raise_entry_floor(e, revision);
			settle(core, e);
		}
	}
	else if ((asked & LOOK_OWN) && op->create_revisions[slot] == e->create_revision)
	{
		own_stands = check_own_key(core, e, own, revision);

		/*
		 * A lower create revision than that of a leader can only come from
		 * another history.
		 */
		if (e->state == ELECTION_LEADING && e->leader.create_revision != e->create_revision)
		{
			withdraw(core, e, ELECTION_REASON_HISTORY_CHANGED);
			e->leader_known = true;
			e->look_wanted = true;
		}
		else if (own_stands)
		{
			look_for_namesake(core, now_ns, e, leader, neighbour);
			if (e->leader.create_revision == e->create_revision)
				become_first(core, now_ns, e, revision);
			else
			{
				e->state = ELECTION_WAITING;
				set_queue_key(&e->predecessor, neighbour);
			}
		}
	}

	if (is_used(e))
	{
		/*
		 * The own key, which may have been entered without our knowing yet,
		 * is announced by "elected" alone, when it leads.
		 */
		if (leader == NULL || !is_key(leader->key, e->key) || e->state == ELECTION_LEADING)
			tell_leader(core, e, ELECTION_NO_REASON);
		publish(core, e);
	}
	return own_stands;
}

static const EtcdKeyValue *
first_kv(const EtcdAnswer *answer, int i)
{
	return answer->results[i].nkvs > 0 ? &answer->results[i].kvs[0] : NULL;
}

static void
receive_look(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	int			next = 0;
	uint32_t	standing = 0;
	bool		moved = true;

	core->look_failures = 0;
	core->look_retry_ns = 0;
	for (int i = 0; i < core->max_elections; i++)
	{
		const EtcdKeyValue *own = NULL;
		const EtcdKeyValue *neighbour = NULL;

		if ((op->slots & SLOT_BIT(i)) == 0)
			continue;
		if (op->asked[i] & LOOK_OWN)
			own = first_kv(answer, next++);
		if (op->asked[i] & LOOK_NEIGHBOUR)
			neighbour = first_kv(answer, next++);
		if (see_election(core, now_ns, op, &core->elections[i], answer->header.revision,
						 own, neighbour, first_kv(answer, next)))
			standing |= SLOT_BIT(i);
		if (core->elections[i].verify_id == op->id)
		{
			core->elections[i].verify_id = 0;
			reply(core, &core->elections[i].verify_ticket, ELECTION_DONE);
		}
		next++;
	}

	/* A move whose answer was lost shows as every key on the fresh lease. */
	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];

		if (is_queued(e) && e->key_lease != core->fresh.id)
			moved = false;
	}
	if (core->fresh.moving && moved && !core->revoking)
		commit_fresh(core, now_ns, ALL_SLOTS, 0);

	if (op->beat != 0 && op->beat == core->beat.number)
	{
		core->beat.confirmed = true;
		core->beat.confirm_term = answer->header.raft_term;
		core->beat.slots = standing;
		memcpy(core->beat.epochs, op->epochs, sizeof(core->beat.epochs));
	}

	/* The old lease is not needed when no key hangs on it any more. */
	if (core->retired != 0 && op->sent_ns > core->lease.sent_ns)
	{
		Op		   *revoke;

		for (int i = 0; i < core->max_elections; i++)
		{
			if (is_queued(&core->elections[i]) && (standing & SLOT_BIT(i)) == 0)
				return;
		}
		revoke = start_op(core, now_ns, OP_REVOKE);
		if (revoke)
		{
			revoke->lease = core->retired;
			core->retired = 0;
			send_lease_request(core, revoke, ETCD_REVOKE, 0);
		}
	}
}

/* ---- the beat ----------------------------------------------------------- */

static void
fail_beat(ElectionCore *core, int64_t now_ns)
{
	core->beat.number = 0;
	core->beat_failures++;
	/* The other endpoints are tried at once, then with a back-off. */
	core->beat_ns = now_ns;
	if (core->beat_failures >= core->config.nendpoints)
		core->beat_ns = core->beat.sent_ns +
			backoff_ns(core, core->beat_failures - core->config.nendpoints + 1);
}

/* Both halves are there: the deadline moves, or the lease has to (BEAT). */
static void
finish_beat(ElectionCore *core, int64_t now_ns)
{
	Beat	   *beat = &core->beat;
	int64_t		until_ns = beat->sent_ns + beat->ttl_ns;

	if (!beat->kept || !beat->confirmed)
		return;
	beat->number = 0;
	if (beat->keep_term != core->lease.term || beat->confirm_term != core->lease.term)
	{
		/*
		 * A newer term calls for a fresh lease, see needs_fresh().  If it is
		 * not newer than what was seen, one of the two came from a member
		 * that lags behind: beat again soon.
		 */
		fail_beat(core, now_ns);
		return;
	}
	if (!lease_is_good(core, now_ns))
		return;					/* a beat never revives a lapsed lease */
	core->beat_failures = 0;
	if (until_ns > core->lease.until_ns)
		core->lease.until_ns = until_ns;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (e->state == ELECTION_LEADING && (beat->slots & SLOT_BIT(i)) != 0 &&
			beat->epochs[i] == e->epoch && deadline_ns(core, e->lease_until_ns) > now_ns)
		{
			e->lease_until_ns = core->lease.until_ns;
			publish(core, e);
		}
	}
}

static void
receive_keepalive(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	if (op->beat != core->beat.number || op->lease != core->lease.id)
		return;
	if (answer->ttl_s <= 0)
	{
		lose_lease(core);
		return;
	}
	core->beat.kept = true;
	core->beat.keep_term = answer->header.raft_term;
	core->beat.ttl_ns = answer->ttl_s * NS_PER_S;
	if (core->beat.ttl_ns > core->lease.ttl_ns)
		core->beat.ttl_ns = core->lease.ttl_ns;
	if (!send_look(core, now_ns, ALL_SLOTS, core->beat.number))
		fail_beat(core, now_ns);
}

/* ---- answers to writes --------------------------------------------------- */

static void
postpone_lease(ElectionCore *core, const Op *failed)
{
	core->lease_retry_ns = failed->sent_ns + backoff_ns(core, ++core->lease_failures);
}

static void
postpone_election(ElectionCore *core, const Op *failed, Election *e)
{
	e->retry_ns = failed->sent_ns + backoff_ns(core, ++e->failures);
}

static void
receive_grant(ElectionCore *core, const Op *op, const EtcdAnswer *answer)
{
	Lease	   *fresh = &core->fresh;

	if (op->lease != fresh->id || fresh->granted)
		return;
	if (answer->outcome == ETCD_ANSWERED)
	{
		fresh->granted = true;
		if (answer->ttl_s > 0 && answer->ttl_s < fresh->asked_ttl_s)
			fresh->ttl_ns = answer->ttl_s * NS_PER_S;
	}
	else if (etcd_says_lease_exists(answer) && fresh->tries > 1)
		fresh->granted = true;	/* by an earlier try, whose answer was lost */
	else
	{
		/* Refused; if it exists, it is somebody else's: take another ID. */
		memset(fresh, 0, sizeof(*fresh));
		postpone_lease(core, op);
		return;
	}
	fresh->until_ns = fresh->sent_ns + fresh->ttl_ns;
}

static void
receive_revoke(ElectionCore *core, const Op *op, const EtcdAnswer *answer)
{
	if (!core->revoking || (op->lease != core->lease.id && op->lease != core->fresh.id))
		return;
	if (answer->outcome != ETCD_ANSWERED && !etcd_says_lease_not_found(answer))
	{
		postpone_lease(core, op);
		return;
	}
	/* pursue_lease() goes on when both are gone */
	if (op->lease == core->lease.id)
		memset(&core->lease, 0, sizeof(core->lease));
	else
		memset(&core->fresh, 0, sizeof(core->fresh));
}

/*
 * The fresh lease is gone, and no key can hang on it: the margin is that of the
 * old one again, for what has not come to its end by the greater of the two.
 */
static void
drop_fresh(ElectionCore *core, int64_t now_ns)
{
	expire(core, now_ns);
	memset(&core->fresh, 0, sizeof(core->fresh));
	for (int i = 0; i < core->max_elections; i++)
	{
		if (core->elections[i].state == ELECTION_LEADING)
			publish(core, &core->elections[i]);
	}
}

/*
 * The keys were put on another lease, or one of them was not as we knew it;
 * then all of them were read instead.
 */
static void
receive_move(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	int			next = 0;

	if (answer->outcome != ETCD_ANSWERED)
	{
		if (etcd_says_lease_not_found(answer))
		{
			if (op->lease == core->fresh.id)
				drop_fresh(core, now_ns);
			else if (op->lease == core->lease.id)
				lose_lease(core);
		}
		postpone_lease(core, op);
		return;
	}
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];
		const EtcdKeyValue *kv;

		if ((op->slots & SLOT_BIT(i)) == 0)
			continue;
		kv = answer->succeeded ? NULL : first_kv(answer, next++);
		if (!is_queued(e) || op->create_revisions[i] != e->create_revision)
			continue;
		if (answer->succeeded)
		{
			see_own_lease(core, e, op->lease);
			e->mod_revision = answer->header.revision;
			e->look_wanted |= e->state != ELECTION_LEADING;
		}
		else
			(void) check_own_key(core, e, kv, answer->header.revision);
	}
	if (answer->succeeded && op->lease == core->fresh.id)
		commit_fresh(core, now_ns, op->slots, answer->header.revision);
}

static void
receive_enter(ElectionCore *core, const Op *op, Election *e, const EtcdAnswer *answer)
{
	int64_t		create_revision = answer->header.revision;
	int64_t		mod_revision = answer->header.revision;
	EtcdBytes	value = bytes_of(op->value);
	bool		adopt = true;

	if (answer->outcome != ETCD_ANSWERED)
	{
		/* A lost lease is replaced at once; but not again and again. */
		if (etcd_says_lease_not_found(answer) && op->lease == core->lease.id)
			lose_lease(core);
		if (core->lease.id != 0 || e->failures > 0)
			postpone_election(core, op, e);
		else
			e->failures++;
		e->look_wanted |= e->state == ELECTION_LEAVING;
		return;
	}
	e->entry_unanswered = false;
	if (!answer->succeeded)
	{
		const EtcdKeyValue *kv = first_kv(answer, 0);

		if (kv == NULL)
			return;				/* gone between compare and read: cannot be */
		create_revision = kv->create_revision;
		mod_revision = kv->mod_revision;
		value = kv->value;
		adopt = kv->lease == op->lease;
	}
	adopt &= create_revision > e->final_revision;
	if (op->lease != core->lease.id || (core->revoking && e->state == ELECTION_JOINING))
	{
		/* The lease is gone or going, and the key with it (FINAL). */
		e->look_wanted = true;
		return;
	}
	if (e->state != ELECTION_JOINING || !adopt)
	{
		/* Left meanwhile, or a key that is not to be believed (FINAL). */
		e->create_revision = create_revision;
		if (create_revision > e->final_revision)
			e->final_revision = create_revision;
		e->state = ELECTION_LEAVING;
		publish(core, e);
		return;
	}
	enter_queue(core, e, create_revision, mod_revision, value);
}

static void
receive_delete(ElectionCore *core, int64_t now_ns, const Op *op, Election *e, const EtcdAnswer *answer)
{
	const EtcdKeyValue *kv;

	if (answer->outcome != ETCD_ANSWERED)
	{
		postpone_election(core, op, e);
		return;
	}
	/* of an earlier incarnation: the one that stands is deleted by another */
	if (e->state != ELECTION_LEAVING ||
		op->create_revisions[slot_of(core, e)] != e->create_revision)
		return;
	e->failures = 0;
	kv = answer->succeeded ? NULL : first_kv(answer, 0);
	if (kv && kv->create_revision != e->create_revision)
	{
		/* It was created again, by an entry that we had given up. */
		e->create_revision = kv->create_revision;
		e->final_revision = kv->create_revision;
		return;
	}
	raise_entry_floor(e, answer->header.revision);
	settle(core, e);
	if (e->state == ELECTION_JOINING && e->generation == op->generation)
	{
		/* then it is looked who leads, too */
		e->retry_ns = now_ns + REJOIN_DELAY_NS;
		e->look_wanted = false;
	}
}

static void
receive_proclaim(ElectionCore *core, const Op *op, Election *e, const EtcdAnswer *answer)
{
	if (answer->outcome != ETCD_ANSWERED)
	{
		postpone_election(core, op, e);
		return;
	}
	if (!is_queued(e) || op->create_revisions[slot_of(core, e)] != e->create_revision)
		return;
	if (!answer->succeeded)
	{
		(void) check_own_key(core, e, first_kv(answer, 0), answer->header.revision);
		return;
	}
	e->failures = 0;
	if (answer->header.revision > e->mod_revision)
		see_own_value(core, e, bytes_of(op->value), answer->header.revision);
	if (strcmp(op->value, e->value) == 0)
	{
		e->must_put_value = false;
		reply(core, &e->proclaim_ticket, ELECTION_DONE);
	}
}

/* ---- contact and history -------------------------------------------------- */

/* All is to be read again. */
static void
want_looks(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
		core->elections[i].look_wanted = is_used(&core->elections[i]);
}

static void
set_connected(ElectionCore *core, const Op *answered)
{
	core->failed_endpoints = 0;
	core->contact_failures = 0;
	if (core->connected)
		return;
	core->connected = true;
	/* What was postponed because nobody answered is due now. */
	core->look_retry_ns = core->lease_retry_ns = core->watch_retry_ns = 0;
	for (int i = 0; i < core->max_elections; i++)
		core->elections[i].retry_ns = 0;
	announce(core, ELECTION_EVENT_CONNECTED, NULL, false, ELECTION_NO_REASON, NULL);
	if (answered->kind != OP_LOOK && !under_way(core, OP_LOOK, ALL_SLOTS))
		want_looks(core);
}

/* Those who wait for a command are told; what they asked for goes on. */
static void
set_disconnected(ElectionCore *core, const char *why)
{
	if (core->connected)
	{
		core->connected = false;
		announce(core, ELECTION_EVENT_DISCONNECTED, NULL, false, ELECTION_NO_REASON, why);
	}
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		reply(core, &e->resign_ticket, ELECTION_NO_CONTACT);
		reply(core, &e->campaign_ticket, ELECTION_NO_CONTACT);
		reply(core, &e->proclaim_ticket, ELECTION_NO_CONTACT);
	}
}

/*
 * Nothing useful came from that endpoint.  When every one has failed since
 * etcd answered last, contact is lost.
 */
static void
fail_endpoint(ElectionCore *core, const Op *failed, int endpoint, const char *why)
{
	uint32_t	all = core->config.nendpoints >= 32 ? ALL_SLOTS : SLOT_BIT(core->config.nendpoints) - 1;

	/* what was not even sent is no endpoint's fault, and no reason for haste */
	if (endpoint >= 0 && endpoint < core->config.nendpoints)
		core->failed_endpoints |= SLOT_BIT(endpoint);
	else
		core->contact_retry_ns = failed->sent_ns + BACKOFF_MIN_MS * NS_PER_MS;
	if ((core->failed_endpoints & all) != all)
		return;
	core->contact_retry_ns = failed->sent_ns + backoff_ns(core, ++core->contact_failures);
	set_disconnected(core, why);
}

/*
 * etcd was put back to an earlier state.  A create revision may be handed out a
 * second time from now on, so nobody leads here with one that is not above
 * every token that may have been seen.  And a key that was deleted may stand
 * again on a lease that is kept alive: another lease rids us of it.
 */
static void
guard_against_restore(ElectionCore *core)
{
	/* once for each time: until it is believed, every answer says so */
	if (core->max_revision <= core->lead_above_revision)
		return;
	core->lead_above_revision = core->max_revision;
	core->lease.tainted = core->lease.id != 0;
	core->fresh.tainted = core->fresh.moving;
}

/*
 * etcd was replaced by another one, or put back to an earlier state: nothing
 * that we know of keys, leases and terms holds (HISTORY).
 */
static void
forget_history(ElectionCore *core)
{
	guard_against_restore(core);
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (!is_used(e))
			continue;
		withdraw(core, e, ELECTION_REASON_HISTORY_CHANGED);
		e->final_revision = 0;
		e->seen_revision = 0;
		e->leader_mod_revision = 0;
		e->watch_revision = 0;
		e->key[0] = '\0';
		e->look_wanted = true;
		e->verify_id = 0;
		settle(core, e);
	}
	memset(core->ops, 0, sizeof(core->ops));
	memset(&core->lease, 0, sizeof(core->lease));
	memset(&core->fresh, 0, sizeof(core->fresh));
	core->retired = 0;
	core->revoking = false;
	core->beat.number = 0;
	core->cluster_id = 0;
	core->term_seen = 0;
	core->max_revision = 0;
	core->stale_since_ns = 0;
	if (core->watch_open)
	{
		core->watch_open = false;
		core->port.watch(core->port.ctx, NULL, 0);
	}
}

/*
 * A txn is executed after it was sent, so it cannot show less than was known
 * by then, and one that wrote shows more; unless etcd was put back to an
 * earlier state, or an endpoint leads to a copy of it.
 */
static bool
revision_went_back(const Op *op, const EtcdAnswer *answer)
{
	bool		wrote = op->kind != OP_LOOK && answer->succeeded;

	return op->slots != 0 && answer->header.revision < op->revision_floor + wrote;
}

/*
 * May this answer be believed?  NULL, or what is wrong with it.  A committed
 * write is true whoever tells it, as long as it is the same cluster.
 */
static const char *
doubt_answer(const ElectionCore *core, const Op *op, const EtcdAnswer *answer)
{
	const EtcdHeader *header = &answer->header;
	bool		is_read = op->kind == OP_LOOK || op->kind == OP_KEEPALIVE;

	if (header->cluster_id == 0)
		return "the answer carries no cluster id";
	if (core->cluster_id != 0 && header->cluster_id != core->cluster_id)
		return "the endpoint belongs to another etcd cluster";
	if (is_read && header->raft_term == 0)
		return "the answer carries no raft term";
	if (is_read && header->raft_term < core->term_seen)
		return "the member is behind its cluster, or etcd was put back to an earlier state";
	if (revision_went_back(op, answer))
		return "etcd's revision went back";
	return NULL;
}

static void
learn_header(ElectionCore *core, const EtcdHeader *header)
{
	core->cluster_id = header->cluster_id;
	if (header->raft_term > core->term_seen)
		core->term_seen = header->raft_term;
	if (header->revision > core->max_revision)
		core->max_revision = header->revision;
}

/* ---- inputs ---------------------------------------------------------------- */

/* Does the answer have what its request asked for? */
static bool
is_complete(const Op *op, const EtcdAnswer *answer)
{
	int			expected = 0;

	if (op->kind == OP_GRANT || op->kind == OP_KEEPALIVE)
		return answer->lease == op->lease;
	if (op->kind == OP_REVOKE)
		return true;
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (op->slots & SLOT_BIT(i))
			expected += 1 + ((op->asked[i] & LOOK_OWN) != 0) + ((op->asked[i] & LOOK_NEIGHBOUR) != 0);
	}
	return answer->nresults == expected;
}

/* A request came to nothing: it stays wanted, see who sends it again. */
static void
receive_failure(ElectionCore *core, int64_t now_ns, const Op *op)
{
	if (op->beat != 0 && op->beat == core->beat.number)
		fail_beat(core, now_ns);
	switch (op->kind)
	{
		case OP_LOOK:
			for (int i = 0; i < core->max_elections; i++)
			{
				Election   *e = &core->elections[i];

				if ((op->slots & SLOT_BIT(i)) == 0 || !is_used(e))
					continue;
				/* a newer one will tell as much; after a beat's, the next beat will */
				e->look_wanted |= op->id == e->look_id;
				if (e->verify_id == op->id)
				{
					e->verify_id = 0;
					e->look_wanted = true;
				}
			}
			if (op->beat != 0)
				break;
			if (++core->look_failures >= core->config.nendpoints)
				core->look_retry_ns = op->sent_ns +
					backoff_ns(core, core->look_failures - core->config.nendpoints + 1);
			break;
		case OP_GRANT:
		case OP_MOVE:
			postpone_lease(core, op);
			break;
		case OP_REVOKE:
			if (core->revoking)
				postpone_lease(core, op);
			break;
		case OP_ENTER:
		case OP_DELETE:
		case OP_PROCLAIM:
			for (int i = 0; i < core->max_elections; i++)
			{
				Election   *e = &core->elections[i];

				if ((op->slots & SLOT_BIT(i)) && is_used(e) && e->generation == op->generation)
				{
					postpone_election(core, op, e);
					e->look_wanted |= op->kind == OP_ENTER && e->state == ELECTION_LEAVING;
				}
			}
			break;
		case OP_KEEPALIVE:
			break;
	}
}

static void
receive_success(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	Election   *e = NULL;

	for (int i = 0; i < core->max_elections; i++)
	{
		if (op->slots & SLOT_BIT(i))
		{
			e = &core->elections[i];
			break;
		}
	}
	switch (op->kind)
	{
		case OP_LOOK:
			receive_look(core, now_ns, op, answer);
			if (op->beat != 0 && op->beat == core->beat.number)
				finish_beat(core, now_ns);
			break;
		case OP_KEEPALIVE:
			receive_keepalive(core, now_ns, op, answer);
			break;
		case OP_GRANT:
			receive_grant(core, op, answer);
			break;
		case OP_REVOKE:
			receive_revoke(core, op, answer);
			break;
		case OP_MOVE:
			receive_move(core, now_ns, op, answer);
			break;
		case OP_ENTER:
			if (is_used(e) && e->generation == op->generation)
				receive_enter(core, op, e, answer);
			break;
		case OP_DELETE:
			if (is_used(e) && e->generation == op->generation)
				receive_delete(core, now_ns, op, e, answer);
			break;
		case OP_PROCLAIM:
			if (is_used(e) && e->generation == op->generation)
				receive_proclaim(core, op, e, answer);
			break;
	}
}

void
election_receive(ElectionCore *core, int64_t now_ns, uint64_t id, const EtcdAnswer *answer)
{
	Op			op;
	int			i;
	const char *doubt = NULL;

	for (i = 0; i < MAX_OPS && core->ops[i].id != id; i++)
		;
	if (i == MAX_OPS || id == 0)
		return;					/* of a history that was forgotten */
	op = core->ops[i];
	core->ops[i].id = 0;
	if (core->stopping)
	{
		if (core->farewells_left > 0 &&
			etcd_blames_endpoint(answer->outcome, answer->code, answer->message))
		{
			core->farewells_left--;
			send_revoke(core, now_ns, op.lease);
		}
		return;
	}

	/*
	 * Time passed since it was waited for: what has lapsed meanwhile must be
	 * seen to have lapsed before this answer is.
	 */
	expire(core, now_ns);

	if (answer->outcome == ETCD_ANSWERED)
	{
		doubt = is_complete(&op, answer) ? doubt_answer(core, &op, answer) :
			"the answer is not what was asked for";
		if (doubt)
			core->port.change_endpoint(core->port.ctx, answer->endpoint, doubt);
	}

	if (doubt)
	{
		if (core->stale_since_ns == 0)
			core->stale_since_ns = now_ns;
		if (revision_went_back(&op, answer) &&
			answer->header.cluster_id == core->cluster_id)
			guard_against_restore(core);
		fail_endpoint(core, &op, answer->endpoint, doubt);
		if (now_ns - core->stale_since_ns > core->config.ttl_s * NS_PER_S)
			forget_history(core);
		else
			receive_failure(core, now_ns, &op);
	}
	else if (answer->outcome == ETCD_ANSWERED)
	{
		if (op.kind == OP_LOOK)
			core->stale_since_ns = 0;
		set_connected(core, &op);
		learn_header(core, &answer->header);
		receive_success(core, now_ns, &op, answer);
	}
	else if (etcd_blames_endpoint(answer->outcome, answer->code, answer->message))
	{
		fail_endpoint(core, &op, answer->endpoint, answer->message);
		receive_failure(core, now_ns, &op);
	}
	else
	{
		/* etcd refuses: there is contact, but what was asked cannot be had. */
		set_connected(core, &op);
		if (op.kind == OP_KEEPALIVE && etcd_says_lease_not_found(answer) &&
			op.lease == core->lease.id)
			lose_lease(core);
		else if (op.kind == OP_LOOK || op.kind == OP_KEEPALIVE)
			receive_failure(core, now_ns, &op);
		else
			receive_success(core, now_ns, &op, answer);
	}
	pursue(core, now_ns);
}

/*
 * A key that is watched has changed.  A PUT of the known incarnation leaves
 * places as they are; anything else has to be looked at.
 */
static void
see_event(ElectionCore *core, const Watched *watched, const EtcdWatchEvent *event)
{
	Election   *e = &core->elections[watched->slot];
	const EtcdKeyValue *kv = &event->kv;
	bool		known = !event->is_delete && kv->create_revision == watched->key.create_revision;

	if (kv->mod_revision >= e->watch_revision)
		e->watch_revision = kv->mod_revision + 1;

	/*
	 * Whatever it was watched for: the stream may have been opened for an
	 * earlier incarnation of the key, which led then.  What it tells counts
	 * if it is newer than what is known of this one.
	 */
	if (e->create_revision != 0 && is_key(kv->key, e->key))
	{
		if (kv->mod_revision <= e->mod_revision)
			return;
		if (e->state == ELECTION_LEAVING)
			return;				/* our deletion is told by its own answer */
		known = !event->is_delete && kv->create_revision == e->create_revision;
		if (!known)
		{
			lose_key(core, e, ELECTION_REASON_KEY_DELETED);
			return;
		}
		/* A move of ours is told by its own answer. */
		if (kv->lease != e->key_lease && !(core->fresh.moving && kv->lease == core->fresh.id))
		{
			withdraw(core, e, ELECTION_REASON_KEY_CHANGED);
			known = false;
		}
		else
		{
			see_own_lease(core, e, kv->lease);
			see_own_value(core, e, kv->value, kv->mod_revision);
		}
	}
	if (known && e->leader_known && kv->create_revision == e->leader.create_revision &&
		kv->mod_revision > e->leader_mod_revision)
	{
		copy_value(e->leader_value, kv->value);
		e->leader_mod_revision = kv->mod_revision;
		if (e->state == ELECTION_LEADING || e->create_revision != kv->create_revision)
			tell_leader(core, e, ELECTION_NO_REASON);
		publish(core, e);
	}
	if (!known)
		e->look_wanted = true;
}

void
election_watched(ElectionCore *core, int64_t now_ns, const EtcdWatchFrame *frame)
{
	bool		end = frame->outcome != ETCD_ANSWERED || frame->canceled || frame->watch_id < 0;

	if (core->stopping || !core->watch_open)
		return;
	expire(core, now_ns);
	if (frame->outcome == ETCD_ANSWERED && frame->header.cluster_id != 0 &&
		frame->header.cluster_id != core->cluster_id)
		end = true;				/* a look will tell what to think of it */
	else if (frame->outcome == ETCD_ANSWERED)
	{
		if (frame->header.cluster_id != 0)
			learn_header(core, &frame->header);
		if (frame->watch_id >= 1 && frame->watch_id <= core->nwatched)
		{
			if (frame->created)
				core->ncreated++;
			/* Handlers may change what is wanted, not what is watched. */
			for (int i = 0; i < frame->nevents; i++)
				see_event(core, &core->watched[frame->watch_id - 1], &frame->events[i]);
		}
	}
	if (end)
	{
		/* A stream stays open after a cancellation, and would be silent. */
		core->port.watch(core->port.ctx, NULL, 0);
		election_watch_ended(core, now_ns);
		return;
	}
	pursue(core, now_ns);
}

void
election_watch_ended(ElectionCore *core, int64_t now_ns)
{
	if (core->stopping || !core->watch_open)
		return;
	core->watch_open = false;
	if (now_ns - core->watch_opened_ns >= WATCH_STABLE_NS)
		core->watch_failures = 0;
	core->watch_retry_ns = now_ns;
	if (core->watch_failures++ > 0)
		core->watch_retry_ns += backoff_ns(core, core->watch_failures);

	/* What it would have told meanwhile is read; it goes on from there. */
	want_looks(core);
	if (core->look_retry_ns < core->watch_retry_ns)
		core->look_retry_ns = core->watch_retry_ns;
	pursue(core, now_ns);
}

void
election_tick(ElectionCore *core, int64_t now_ns)
{
	if (!core->stopping)
		pursue(core, now_ns);
}

int64_t
election_wakeup_ns(const ElectionCore *core)
{
	return core->stopping ? NEVER_NS : core->wakeup_ns;
}

/* ---- settings ---------------------------------------------------------------- */

/* Where an election stands in the settings; -1: it is not there. */
static int
find_configured(const ElectionConfig *config, const char *name)
{
	for (int i = 0; i < config->nelections; i++)
	{
		if (strcmp(config->elections[i], name) == 0)
			return i;
	}
	return -1;
}

/* Gives a slot to an election that has none yet; NULL if none is free. */
static Election *
take_slot(ElectionCore *core, const char *name)
{
	size_t		len = strlen(name);

	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (is_used(e))
			continue;
		copy_string(e->name, name, sizeof(e->name));
		memcpy(e->prefix, name, len);
		memcpy(e->prefix + len, "/", 2);
		memcpy(e->prefix_end, name, len);
		memcpy(e->prefix_end + len, "0", 2);	/* '/' + 1 */
		e->wanted = true;
		e->generation++;
		e->epoch++;
		return e;
	}
	return NULL;
}

/* Gives a slot to each election of the settings that has none, while there are any. */
static void
take_up_elections(ElectionCore *core)
{
	for (int i = 0; i < core->config.nelections; i++)
	{
		const char *name = core->config.elections[i];
		Election   *e;

		if (election_find(core, name) >= 0)
			continue;
		e = take_slot(core, name);
		if (e == NULL)
			return;				/* until a key is known to be deleted */
		copy_string(e->value, core->config.node_name, sizeof(e->value));
		e->stay_out = core->config.stay_out[i];
		settle(core, e);
	}
}

/*
 * Places in the queue are taken up as places that have to be looked at; of
 * the other elections what must be known before they are entered again.
 */
bool
election_resume(ElectionCore *core, int64_t now_ns, const ElectionMemory *memory)
{
	core->config.safety_margin_ms = memory->safety_margin_ms;
	if (memory->nelections > core->max_elections ||
		memory->until_ns - margin_ns(core, memory->ttl_ns) <= now_ns)
		return false;
	copy_string(core->config.node_name, memory->node_name, sizeof(core->config.node_name));
	core->cluster_id = memory->cluster_id;
	core->term_seen = memory->term_seen;
	core->max_revision = memory->max_revision;
	core->lead_above_revision = memory->lead_above_revision;
	core->lease.id = memory->lease;
	core->lease.granted = true;
	core->lease.asked_ttl_s = memory->asked_ttl_s;
	core->lease.ttl_ns = memory->ttl_ns;
	core->lease.term = memory->term;
	core->lease.until_ns = memory->until_ns;
	for (int i = 0; i < memory->nelections; i++)
	{
		Election   *e = take_slot(core, memory->elections[i].name);

		copy_string(e->value, memory->elections[i].value, sizeof(e->value));
		copy_string(e->key, memory->elections[i].key, sizeof(e->key));
		e->final_revision = memory->elections[i].final_revision;
		if (memory->elections[i].named)
			e->named_lease = memory->lease;
		/* a key that was to be deleted may stand: that is looked at first */
		e->state = ELECTION_LEAVING;
		if (memory->elections[i].create_revision != 0)
		{
			e->state = ELECTION_QUEUED;
			e->create_revision = memory->elections[i].create_revision;
			e->mod_revision = memory->elections[i].mod_revision;
			e->key_lease = memory->lease;
			copy_string(e->key_value, memory->elections[i].key_value, sizeof(e->key_value));
		}
		else
			e->entry_floor = memory->max_revision;
		e->look_wanted = true;
	}
	return true;
}

void
election_configure(ElectionCore *core, int64_t now_ns, const ElectionConfig *config)
{
	bool		renamed = strcmp(core->config.node_name, config->node_name) != 0;
	bool		first = core->config.nendpoints == 0;

	if (core->stopping)
		return;
	/* by the margin that was in force: another one revives nothing */
	expire(core, now_ns);
	core->config = *config;
	if (core->beat_ns > now_ns + interval_ns(core))
		core->beat_ns = now_ns + interval_ns(core);
	/* They may be other endpoints now. */
	core->failed_endpoints = 0;
	core->contact_failures = 0;
	core->contact_retry_ns = now_ns;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		int			configured;

		if (!is_used(e))
			continue;
		configured = find_configured(config, e->name);
		e->wanted = configured >= 0;
		/* one that was resumed does not know yet */
		if (first)
			e->stay_out = e->wanted && config->stay_out[configured];
		if (renamed && e->proclaim_ticket == 0)
			copy_string(e->value, config->node_name, sizeof(e->value));
		if (!e->wanted)
			leave(core, e, ELECTION_REASON_DROPPED);
		else if (!config->eligible && is_candidate(e))
			leave(core, e, ELECTION_REASON_NOT_ELIGIBLE);
		else if (config->eligible && e->state == ELECTION_OBSERVING)
			settle(core, e);
		else
			publish(core, e);	/* the margin may have changed */
	}
	take_up_elections(core);
	pursue(core, now_ns);
}

/* ---- commands ------------------------------------------------------------------ */

bool
election_resign(ElectionCore *core, int64_t now_ns, int slot, bool rejoin, uint64_t ticket)
{
	Election   *e = &core->elections[slot];
	bool		was_in = is_queued(e);

	if (e->resign_ticket != 0)
		return false;
	if (!rejoin)
	{
		was_in |= e->state == ELECTION_JOINING || e->state == ELECTION_LEAVING;
		e->stay_out = true;
		if (e->state == ELECTION_OBSERVING)
			settle(core, e);
	}
	if (!was_in)
	{
		reply(core, &ticket, ELECTION_NOTHING_TO_DO);
		return true;
	}
	e->resign_ticket = ticket;
	leave(core, e, ELECTION_REASON_RESIGNED);
	if (!core->connected)
		reply(core, &e->resign_ticket, ELECTION_NO_CONTACT);
	pursue(core, now_ns);
	return true;
}

bool
election_campaign(ElectionCore *core, int64_t now_ns, int slot, uint64_t ticket)
{
	Election   *e = &core->elections[slot];

	if (e->campaign_ticket != 0)
		return false;
	if (!core->config.eligible)
	{
		reply(core, &ticket, ELECTION_NOT_ELIGIBLE);
		return true;
	}
	if (core->lead_above_revision != 0 && e->state == ELECTION_HELD_BACK)
	{
		/* The operator takes it upon himself that tokens may go back. */
		core->lead_above_revision = 0;
		e->look_wanted = true;
		reply(core, &ticket, ELECTION_DONE);
	}
	else if (is_candidate(e) || (e->state == ELECTION_LEAVING && !e->stay_out))
		reply(core, &ticket, ELECTION_NOTHING_TO_DO);
	else
	{
		e->campaign_ticket = ticket;
		e->stay_out = false;
		if (e->state != ELECTION_LEAVING)
			settle(core, e);
		if (!core->connected)
			reply(core, &e->campaign_ticket, ELECTION_NO_CONTACT);
	}
	pursue(core, now_ns);
	return true;
}

bool
election_proclaim(ElectionCore *core, int64_t now_ns, int slot, const char *value, uint64_t ticket)
{
	Election   *e = &core->elections[slot];

	if (e->proclaim_ticket != 0)
		return false;
	if (!is_queued(e))
	{
		reply(core, &ticket, ELECTION_NOT_CANDIDATE);
		return true;
	}
	e->proclaim_ticket = ticket;
	copy_string(e->value, value, sizeof(e->value));
	e->must_put_value = true;
	e->retry_ns = 0;
	if (!core->connected)
		reply(core, &e->proclaim_ticket, ELECTION_NO_CONTACT);
	pursue(core, now_ns);
	return true;
}

bool
election_verify(ElectionCore *core, int64_t now_ns, int slot, uint64_t ticket)
{
	Election   *e = &core->elections[slot];

	if (e->verify_ticket != 0)
		return false;
	if (!is_used(e))
	{
		reply(core, &ticket, ELECTION_NOTHING_TO_DO);
		return true;
	}
	e->verify_ticket = ticket;
	e->verify_id = 0;			/* what is under way was sent before */
	e->look_wanted = true;
	pursue(core, now_ns);
	return true;
}

bool
election_stop(ElectionCore *core, int64_t now_ns, ElectionReason reason)
{
	int64_t		leases[3];

	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_used(&core->elections[i]))
			withdraw(core, &core->elections[i], reason);
	}
	core->stopping = true;
	/* a try at each other endpoint for each of the leases */
	core->farewells_left = 3 * (core->config.nendpoints - 1);
	core->port.watch(core->port.ctx, NULL, 0);

	/* Nothing that is still under way matters: the keys go with the leases. */
	memset(core->ops, 0, sizeof(core->ops));
	leases[0] = core->lease.id;
	leases[1] = core->fresh.id;
	leases[2] = core->retired;
	for (int i = 0; i < 3; i++)
		send_revoke(core, now_ns, leases[i]);
	return !election_stopped(core);
}

bool
election_stopped(const ElectionCore *core)
{
	return core->stopping && !under_way(core, OP_REVOKE, ALL_SLOTS);
}

/* ---- what is wanted ------------------------------------------------------------ */

/*
 * Is all that was sent about keys and leases known to have been done, or not?
 * A lease that is to be granted is no matter: nothing hangs on it yet.
 */
static bool
is_settled(const ElectionCore *core)
{
	return core->lease.id != 0 && !core->lease.tainted && !core->fresh.moving && !core->revoking &&
		!under_way(core, OP_MOVE, ALL_SLOTS) && !under_way(core, OP_ENTER, ALL_SLOTS) &&
		!under_way(core, OP_DELETE, ALL_SLOTS);
}

/* Has the caller remember the state as it is now. */
static void
remember(ElectionCore *core)
{
	ElectionMemory *draft = &core->draft;

	/* they are compared byte by byte */
	memset(draft, 0, offsetof(ElectionMemory, elections));
	copy_string(draft->node_name, core->config.node_name, sizeof(draft->node_name));
	draft->safety_margin_ms = core->config.safety_margin_ms;
	draft->cluster_id = core->cluster_id;
	draft->term_seen = core->term_seen;
	draft->max_revision = core->max_revision;
	draft->lead_above_revision = core->lead_above_revision;
	draft->lease = core->lease.id;
	draft->term = core->lease.term;
	draft->asked_ttl_s = core->lease.asked_ttl_s;
	draft->ttl_ns = core->lease.ttl_ns;
	draft->until_ns = core->lease.until_ns;
	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];
		int			n = draft->nelections;

		if (!is_used(e) || e->key[0] == '\0')
			continue;
		memset(&draft->elections[n], 0, sizeof(draft->elections[n]));
		copy_string(draft->elections[n].name, e->name, ELECTION_NAME_SIZE);
		copy_string(draft->elections[n].value, e->value, ELECTION_VALUE_SIZE);
		copy_string(draft->elections[n].key, e->key, ELECTION_KEY_SIZE);
		draft->elections[n].named = e->named_lease == core->lease.id;
		draft->elections[n].final_revision = e->final_revision;
		if (is_queued(e) && e->key_lease == core->lease.id)
		{
			copy_string(draft->elections[n].key_value, e->key_value, ELECTION_VALUE_SIZE);
			draft->elections[n].create_revision = e->create_revision;
			draft->elections[n].mod_revision = e->mod_revision;
		}
		draft->nelections++;
	}
	if (core->remembered && memcmp(draft, &core->memory, election_memory_size(draft)) == 0)
		return;
	memcpy(&core->memory, draft, election_memory_size(draft));
	core->remembered = true;
	core->port.remember(core->port.ctx, &core->memory);
}

/* Leadership and knowledge that have come to their end. */
static void
expire(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (e->state == ELECTION_LEADING &&
			now_ns >= deadline_ns(core, e->lease_until_ns))
		{
			withdraw(core, e, ELECTION_REASON_LEASE_EXPIRED);
			e->look_wanted = true;
		}
		if (e->leader_known && e->state != ELECTION_LEADING && now_ns >= e->leader_until_ns)
		{
			e->leader_known = false;
			tell_leader(core, e, ELECTION_REASON_NO_CONTACT);
			publish(core, e);
		}
	}
}

static void
wake_at_expiry(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];

		if (e->state == ELECTION_LEADING)
			wake_at(core, deadline_ns(core, e->lease_until_ns));
		else if (e->leader_known)
			wake_at(core, e->leader_until_ns);
	}
}

/*
 * Reads, for each of these elections, the own key, the predecessor and the
 * leader, as far as there can be any: one linearizable txn for all.
 */
static bool
send_look(ElectionCore *core, int64_t now_ns, uint32_t slots, uint64_t beat)
{
	EtcdOp		ranges[3 * ELECTION_MAX_ELECTIONS];
	int			nranges = 0;
	Op		   *op = start_op(core, now_ns, OP_LOOK);

	if (op == NULL)
		return false;
	op->beat = beat;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];
		EtcdOp		range = {.kind = ETCD_OP_RANGE, .limit = 1};

		if ((slots & SLOT_BIT(i)) == 0 || !is_used(e))
			continue;
		e->look_wanted = false;
		if (beat == 0)
			e->look_id = op->id;
		if (e->verify_ticket != 0 && e->verify_id == 0)
			e->verify_id = op->id;
		op->slots |= SLOT_BIT(i);
		op->epochs[i] = e->epoch;
		op->create_revisions[i] = e->create_revision;

		/*
		 * A candidate on its way in need not ask for its own key: entering
		 * tells.  One that has left must: an entry may yet take effect.
		 */
		if (e->key[0] != '\0' && e->state != ELECTION_JOINING)
		{
			op->asked[i] |= LOOK_OWN;
			ranges[nranges++] = range_of_key(e->key);
		}
		range.key = bytes_of(e->prefix);
		range.range_end = bytes_of(e->prefix_end);
		if (is_queued(e))
		{
			op->asked[i] |= LOOK_NEIGHBOUR;
			range.sort = ETCD_SORT_LAST_CREATED;
			/* of a predecessor never 0, no filter: etcd's first revision is 1 */
			if (e->state != ELECTION_LEADING)
				range.max_create_revision = e->create_revision - 1;
			ranges[nranges++] = range;
			range.max_create_revision = 0;
		}
		range.sort = ETCD_SORT_FIRST_CREATED;
		ranges[nranges++] = range;
	}
	if (nranges == 0)
	{
		op->id = 0;
		return false;
	}
	send_txn(core, op, NULL, 0, ranges, nranges, NULL, 0);
	return true;
}

static void
pursue_looks(ElectionCore *core, int64_t now_ns)
{
	uint32_t	slots = 0;

	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_used(&core->elections[i]) && core->elections[i].look_wanted)
			slots |= SLOT_BIT(i);
	}
	if (slots != 0 && is_due(core, now_ns, core->look_retry_ns))
		(void) send_look(core, now_ns, slots, 0);
}

/* May the lease be kept as it is?  Otherwise only a fresh one helps (FRESH). */
static bool
needs_fresh(const ElectionCore *core, int64_t now_ns)
{
	return !lease_is_good(core, now_ns) || core->lease.term < core->term_seen ||
		core->lease.tainted || core->lease.asked_ttl_s != core->config.ttl_s;
}

/*
 * A beat is a keepalive, whose answer sends the confirming look.  Where the
 * lease cannot be kept, or there is none, it is a look alone: the same news
 * for those who only observe, and a sign of life from etcd.
 */
static void
send_beat(ElectionCore *core, int64_t now_ns)
{
	bool		keep = lease_is_good(core, now_ns) && core->lease.term >= core->term_seen &&
		!core->fresh.moving && !core->revoking;
	Op		   *op = NULL;

	core->beat_ns = now_ns + interval_ns(core);
	core->beat.number = 0;

	/* A stream that tells of less than was asked for is opened anew. */
	if (core->watch_open && core->ncreated < core->nwatched &&
		now_ns - core->watch_opened_ns >= interval_ns(core))
	{
		core->watch_open = false;
		core->port.watch(core->port.ctx, NULL, 0);
	}
	if (keep && (op = start_op(core, now_ns, OP_KEEPALIVE)) != NULL)
	{
		memset(&core->beat, 0, sizeof(core->beat));
		core->beat.number = core->next_beat++;
		core->beat.sent_ns = now_ns;
		op->beat = core->beat.number;
		op->lease = core->lease.id;
		send_lease_request(core, op, ETCD_KEEPALIVE, 0);
	}
	else
		(void) send_look(core, now_ns, ALL_SLOTS, 0);
}

/* Without contact one probe at a time is all that is sent. */
static void
pursue_contact(ElectionCore *core, int64_t now_ns)
{
	if (under_way(core, OP_LOOK, ALL_SLOTS) || under_way(core, OP_KEEPALIVE, ALL_SLOTS))
		return;
	if (is_due(core, now_ns, core->contact_retry_ns))
		send_beat(core, now_ns);
}

static void
pursue_beat(ElectionCore *core, int64_t now_ns)
{
	if (is_due(core, now_ns, core->beat_ns))
		send_beat(core, now_ns);
}

static bool
lease_request_under_way(const ElectionCore *core, OpKind kind, int64_t lease)
{
	for (int i = 0; i < MAX_OPS; i++)
	{
		if (core->ops[i].id != 0 && core->ops[i].kind == kind && core->ops[i].lease == lease)
			return true;
	}
	return false;
}

static void
send_revoke(ElectionCore *core, int64_t now_ns, int64_t lease)
{
	Op		   *op;

	if (lease == 0 || lease_request_under_way(core, OP_REVOKE, lease) ||
		(op = start_op(core, now_ns, OP_REVOKE)) == NULL)
		return;
	op->lease = lease;
	send_lease_request(core, op, ETCD_REVOKE, 0);
}

static void
send_grant(ElectionCore *core, int64_t now_ns)
{
	Lease	   *fresh = &core->fresh;
	Op		   *op = start_op(core, now_ns, OP_GRANT);

	if (op == NULL)
		return;
	if (fresh->id == 0)
	{
		fresh->id = (int64_t) (core->port.random(core->port.ctx) & INT64_MAX);
		if (fresh->id == 0)
			fresh->id = 1;
		fresh->asked_ttl_s = core->config.ttl_s;
		fresh->ttl_ns = fresh->asked_ttl_s * NS_PER_S;
		fresh->term = core->term_seen;
		fresh->sent_ns = now_ns;
	}
	fresh->tries++;
	op->lease = fresh->id;
	send_lease_request(core, op, ETCD_GRANT, fresh->asked_ttl_s);
}

/*
 * Puts the keys of these elections on a lease of ours, all or none, guarded
 * by their create and mod revisions (GUARD).
 */
static void
send_move(ElectionCore *core, int64_t now_ns, uint32_t slots, int64_t lease)
{
	EtcdCompare compares[2 * ELECTION_MAX_ELECTIONS];
	EtcdOp		puts[ELECTION_MAX_ELECTIONS];
	EtcdOp		ranges[ELECTION_MAX_ELECTIONS];
	int			n = 0;
	Op		   *op = start_op(core, now_ns, OP_MOVE);

	if (op == NULL)
		return;
	op->lease = lease;
	op->slots = slots;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if ((slots & SLOT_BIT(i)) == 0)
			continue;
		op->create_revisions[i] = e->create_revision;
		compares[2 * n] = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, e->create_revision);
		compares[2 * n + 1] = compare_key(e->key, ETCD_COMPARE_MOD_REVISION, e->mod_revision);
		puts[n] = put_of_key(e->key, e->key_value, lease);
		ranges[n++] = range_of_key(e->key);
	}
	send_txn(core, op, compares, 2 * n, puts, n, ranges, n);
}

/*
 * Once a move to the fresh lease is sent, the keys may hang on it: nobody may
 * believe in more than it gives, with the greater margin of the two.
 */
static void
lower_deadlines(ElectionCore *core)
{
	int64_t		until_ns = core->fresh.until_ns;

	if (core->lease.until_ns > until_ns)
		core->lease.until_ns = until_ns;
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (e->state != ELECTION_LEADING)
			continue;
		if (e->lease_until_ns > until_ns)
			e->lease_until_ns = until_ns;
		publish(core, e);
	}
}

/* The fresh lease: granted, the keys moved, and it takes over. */
static void
pursue_fresh(ElectionCore *core, int64_t now_ns)
{
	Lease	   *fresh = &core->fresh;
	uint32_t	slots = 0;

	/*
	 * Too old to be of use: a grant whose answer does not come is tried again
	 * for a third of the TTL (its time counts from the first try), a granted
	 * one for as long as it gives anything.
	 */
	if (fresh->id != 0 &&
		now_ns >= (fresh->granted ? fresh_deadline_ns(core) : fresh->sent_ns + interval_ns(core)) &&
		!lease_request_under_way(core, OP_GRANT, fresh->id))
		memset(fresh, 0, sizeof(*fresh));

	if (!fresh->granted)
	{
		if ((fresh->id != 0 || needs_fresh(core, now_ns)) &&
			!under_way(core, OP_GRANT, ALL_SLOTS) &&
			is_due(core, now_ns, core->lease_retry_ns))
			send_grant(core, now_ns);
		return;
	}

	/* Writes of single keys change what the move is guarded by. */
	wake_at(core, fresh_deadline_ns(core));
	if (under_way(core, OP_MOVE, ALL_SLOTS) || under_way(core, OP_ENTER, ALL_SLOTS) ||
		under_way(core, OP_PROCLAIM, ALL_SLOTS))
		return;
	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_queued(&core->elections[i]))
			slots |= SLOT_BIT(i);
	}
	if (slots == 0)
		commit_fresh(core, now_ns, 0, 0);
	else if (is_due(core, now_ns, core->lease_retry_ns))
	{
		fresh->moving = true;
		core->beat.number = 0;
		lower_deadlines(core);
		send_move(core, now_ns, slots, fresh->id);
	}
}

static void
pursue_lease(ElectionCore *core, int64_t now_ns)
{
	bool		wanted = false;
	uint32_t	astray = 0;

	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];

		wanted |= is_candidate(e);
		/* LEAVING to join again */
		wanted |= e->state == ELECTION_LEAVING && e->wanted && !e->stay_out && core->config.eligible;
		if (is_queued(e) && e->key_lease != core->lease.id)
			astray |= SLOT_BIT(i);
	}
	if (!wanted && (core->lease.id != 0 || core->fresh.id != 0))
		core->revoking = true;
	if (core->revoking && core->lease.id == 0 && core->fresh.id == 0)
		finish_revoking(core);
	if (core->revoking)
	{
		if (is_due(core, now_ns, core->lease_retry_ns))
		{
			send_revoke(core, now_ns, core->lease.id);
			send_revoke(core, now_ns, core->fresh.id);
		}
		return;
	}
	if (!wanted || core->term_seen == 0)
		return;
	if (core->fresh.id != 0 || needs_fresh(core, now_ns))
		pursue_fresh(core, now_ns);
	else if (astray != 0 && !under_way(core, OP_MOVE, ALL_SLOTS) &&
			 !under_way(core, OP_PROCLAIM, ALL_SLOTS) &&
			 is_due(core, now_ns, core->lease_retry_ns))
		send_move(core, now_ns, astray, core->lease.id);
}

static void
send_enter(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = start_election_op(core, now_ns, OP_ENTER, e);
	EtcdCompare compare;
	EtcdOp		put;
	EtcdOp		range;

	if (op == NULL)
		return;
	op->lease = core->lease.id;
	copy_string(op->value, e->value, sizeof(op->value));

	/*
	 * One name on one lease, also for a key that was moved to it: should an
	 * earlier key stand again, for etcd was put back, it is seen.
	 */
	if (e->named_lease != core->lease.id || e->key[0] == '\0')
	{
		make_key(e->key, e->name, core->lease.id);
		e->named_lease = core->lease.id;
		e->entry_unanswered = false;
	}
	if (!e->entry_unanswered)
		e->entry_floor = core->max_revision;
	e->entry_unanswered = true;
	compare = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, 0);
	put = put_of_key(e->key, e->value, core->lease.id);
	range = range_of_key(e->key);
	send_txn(core, op, &compare, 1, &put, 1, &range, 1);
}

static void
send_delete(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = start_election_op(core, now_ns, OP_DELETE, e);
	EtcdCompare compare;
	EtcdOp		delete = {.kind = ETCD_OP_DELETE};
	EtcdOp		range;

	if (op == NULL)
		return;
	delete.key = bytes_of(e->key);
	compare = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, e->create_revision);
	range = range_of_key(e->key);
	send_txn(core, op, &compare, 1, &delete, 1, &range, 1);
}

static void
send_proclaim(ElectionCore *core, int64_t now_ns, Election *e)
{
	Op		   *op = start_election_op(core, now_ns, OP_PROCLAIM, e);
	EtcdCompare compares[2];
	EtcdOp		put;
	EtcdOp		range;

	if (op == NULL)
		return;
	copy_string(op->value, e->value, sizeof(op->value));
	compares[0] = compare_key(e->key, ETCD_COMPARE_CREATE_REVISION, e->create_revision);
	compares[1] = compare_key(e->key, ETCD_COMPARE_MOD_REVISION, e->mod_revision);
	put = put_of_key(e->key, e->value, e->key_lease);
	range = range_of_key(e->key);
	send_txn(core, op, compares, 2, &put, 1, &range, 1);
}

static void
pursue_elections(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];
		uint32_t	slot = SLOT_BIT(i);

		if (!is_used(e))
			continue;
		if (e->state == ELECTION_JOINING)
		{
			if (core->fresh.id == 0 && !core->revoking && lease_is_good(core, now_ns) &&
				!under_way(core, OP_ENTER, slot) && is_due(core, now_ns, e->retry_ns))
				send_enter(core, now_ns, e);
		}
		else if (e->state == ELECTION_LEAVING)
		{
			if (!core->revoking && e->create_revision != 0 &&
				!under_way(core, OP_DELETE, slot) && is_due(core, now_ns, e->retry_ns))
				send_delete(core, now_ns, e);
		}
		else if (is_queued(e) && !has_value(e))
		{
			if (core->fresh.id == 0 && core->lease.id != 0 && e->key_lease == core->lease.id &&
				!under_way(core, OP_MOVE, ALL_SLOTS) &&
				!under_way(core, OP_PROCLAIM, slot) && is_due(core, now_ns, e->retry_ns))
				send_proclaim(core, now_ns, e);
		}
	}
}

/* ---- the watch ------------------------------------------------------------------- */

static void
want_watch(Watched *list, int *n, int slot, WatchTarget target, const QueueKey *key)
{
	/* they are compared byte by byte */
	memset(&list[*n], 0, sizeof(Watched));
	list[*n].slot = slot;
	list[*n].target = target;
	list[*n].key = *key;
	(*n)++;
}

static int
list_watches(const ElectionCore *core, Watched *list)
{
	int			n = 0;

	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];
		bool		waits = e->state == ELECTION_WAITING && e->predecessor.len > 0;

		if (!is_used(e) || e->watch_revision == 0)
			continue;
		if (is_queued(e))
		{
			QueueKey	own = {.create_revision = e->create_revision};

			own.len = strlen(e->key);
			memcpy(own.data, e->key, own.len);
			want_watch(list, &n, i, WATCH_OWN, &own);
		}
		if (waits)
			want_watch(list, &n, i, WATCH_PREDECESSOR, &e->predecessor);
		if (e->leader.len > 0 && e->leader.create_revision != e->create_revision &&
			!(waits && e->predecessor.create_revision == e->leader.create_revision))
			want_watch(list, &n, i, WATCH_LEADER, &e->leader);

		/*
		 * Who only observes an election without candidates waits for the
		 * first one.  Nobody else watches the whole prefix: a candidate that
		 * leaves shall wake one waiter, not all.
		 */
		if (e->leader.create_revision == 0 && !is_candidate(e))
			want_watch(list, &n, i, WATCH_ANYBODY, &e->leader);
	}
	return n;
}

/*
 * One stream tells of all keys.  Watches cannot be added to a stream or taken
 * from it (etcd #12333), so when others are wanted it is opened anew, each
 * watch from the revision up to which is known what happened.
 */
static void
pursue_watch(ElectionCore *core, int64_t now_ns)
{
	Watched		list[MAX_WATCHES];
	EtcdWatch	watches[MAX_WATCHES];
	int			n;

	/* What these bring will change what is to be watched. */
	for (int i = 0; i < MAX_OPS; i++)
	{
		const Op   *op = &core->ops[i];

		if (op->id != 0 &&
			(op->kind == OP_ENTER || op->kind == OP_DELETE ||
			 (op->kind == OP_LOOK && op->beat == 0)) &&
			!is_due(core, now_ns, op->sent_ns + WATCH_PATIENCE_NS))
			return;
	}

	n = list_watches(core, list);
	if (n == (core->watch_open ? core->nwatched : 0) &&
		memcmp(list, core->watched, n * sizeof(Watched)) == 0)
		return;
	if (!core->watch_open && !is_due(core, now_ns, core->watch_retry_ns))
		return;

	memset(watches, 0, sizeof(watches));
	for (int i = 0; i < n; i++)
	{
		Election   *e = &core->elections[list[i].slot];

		core->watched[i] = list[i];
		watches[i].watch_id = i + 1;
		watches[i].start_revision = e->watch_revision;
		if (list[i].target == WATCH_ANYBODY)
		{
			watches[i].key = bytes_of(e->prefix);
			watches[i].range_end = bytes_of(e->prefix_end);
		}
		else
		{
			watches[i].key.data = core->watched[i].key.data;
			watches[i].key.len = core->watched[i].key.len;
		}
	}
	core->nwatched = n;
	core->ncreated = 0;
	core->watch_open = n > 0;
	core->watch_opened_ns = now_ns;
	core->port.watch(core->port.ctx, watches, n);
}

/*
 * Sends whatever is wanted, not under way and not postponed, and sets the
 * time at which this has to be done again.
 */
static void
pursue(ElectionCore *core, int64_t now_ns)
{
	if (core->config.nendpoints == 0)
		return;					/* not configured yet */
	core->wakeup_ns = NEVER_NS;
	expire(core, now_ns);
	if (!core->connected)
		pursue_contact(core, now_ns);
	else
	{
		pursue_lease(core, now_ns);
		pursue_elections(core, now_ns);
		pursue_looks(core, now_ns);
		pursue_beat(core, now_ns);
		pursue_watch(core, now_ns);
	}
	wake_at_expiry(core);
	if (is_settled(core))
		remember(core);
	else
		forget(core);
}

/* ---- life, and what can be asked --------------------------------------------------- */

ElectionCore *
election_create(const ElectionPort *port, int max_elections)
{
	ElectionCore *core = calloc(1, sizeof(ElectionCore));

	if (core == NULL)
		return NULL;
	core->elections = calloc(max_elections, sizeof(Election));
	if (core->elections == NULL)
	{
		free(core);
		return NULL;
	}
	core->port = *port;
	core->max_elections = max_elections;
	core->next_id = 1;
	core->next_beat = 1;
	core->wakeup_ns = NEVER_NS;
	return core;
}

void
election_free(ElectionCore *core)
{
	if (core)
		free(core->elections);
	free(core);
}

int
election_find(const ElectionCore *core, const char *name)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		if (is_used(&core->elections[i]) && strcmp(core->elections[i].name, name) == 0)
			return i;
	}
	return -1;
}

bool
election_connected(const ElectionCore *core)
{
	return core->connected;
}

const char *
election_role_name(ElectionRole role)
{
	static const char *const names[] = {"observer", "candidate", "leader"};

	return names[role];
}

const char *
election_state_name(ElectionState state)
{
	static const char *const names[] = {
		"unused", "observing", "resigned", "joining", "queued", "waiting",
		"leading", "held back", "leaving"
	};

	return names[state];
}

const char *
election_event_name(ElectionEventKind kind)
{
	static const char *const names[] = {
		"elected", "unelected", "leader", "connected", "disconnected"
	};

	return names[kind];
}

const char *
election_reason_name(ElectionReason reason)
{
	static const char *const names[] = {
		NULL, "resigned", "lease_expired", "key_deleted", "key_changed",
		"not_eligible", "dropped", "shutdown", "history_changed",
		"proclaimed", "no_contact"
	};

	return names[reason];
}
