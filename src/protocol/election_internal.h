/*-------------------------------------------------------------------------
 *
 * election_internal.h
 *	  What the files of the core offer each other.
 *
 * A section for each file, from the bottom to the top.  No file calls one above
 * it, or beside it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTION_INTERNAL_H
#define ELECTION_INTERNAL_H

#include <string.h>

#include "election_state.h"

/* ---- helpers ------------------------------------------------------------- */

static inline EtcdBytes
bytes_of(const char *s)
{
	return (EtcdBytes) {s, strlen(s)};
}

static inline bool
is_key(EtcdBytes bytes, const char *key)
{
	return bytes.len == strlen(key) && memcmp(bytes.data, key, bytes.len) == 0;
}

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
	return (EtcdOp) {.kind = ETCD_OP_RANGE, .key = bytes_of(key)};
}

static inline EtcdOp
put_of_key(const char *key, const char *value, int64_t lease)
{
	return (EtcdOp) {.kind = ETCD_OP_PUT, .key = bytes_of(key), .value = bytes_of(value), .lease = lease};
}

static inline EtcdCompare
compare_key(const char *key, EtcdCompareTarget target, int64_t value)
{
	return (EtcdCompare) {.key = bytes_of(key), .target = target, .value = value};
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
 * The back-off between two tries of a failed request.  It doubles up to the
 * last value, and has a jitter.
 */
#define BACKOFF_MIN_MS		100
#define BACKOFF_MAX_MS		1000

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

/* For the log: that answer is not used; see ElectionPort.drop. */
extern void core_drop(const ElectionCore *core, uint64_t id, const Election *e, const char *why);
extern void core_send_txn(ElectionCore *core, const Op *op,
						  const EtcdCompare *compares, int ncompares,
						  const EtcdOp *success, int nsuccess,
						  const EtcdOp *failure, int nfailure);

/*
 * Sends a txn of ranges.  ordered: raft's log orders it (ORDERED).  ops has room
 * for one operation more.
 */
extern void core_send_read(ElectionCore *core, Op *op, EtcdOp *ops, int nops, bool ordered);
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

/* Is it time?  If not, reconcile() is called again then. */
extern bool core_is_due(ElectionCore *core, int64_t now_ns, int64_t when_ns);

/* Is the request a read of any kind?  Does its txn write nothing? */
extern bool core_is_read(const Op *op);
extern bool core_writes_nothing(const Op *op);

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

/* When to stop relying on keys of a lease of ours. */
extern int64_t lease_deadline_of(const ElectionCore *core, const ElectionLease *lease);

/* Can this instance rely on a key that is attached to the lease now? */
extern bool lease_is_good(const ElectionCore *core, int64_t now_ns);

/*
 * A key that nobody deletes is attached to this lease, or may become so.
 * Therefore the lease has to be replaced.  0: it may be any lease of ours.
 */
extern void lease_taint(ElectionCore *core, int64_t lease);

/* May our own move have put a key on that lease? */
extern bool lease_is_moved_to(const ElectionCore *core, int64_t lease);

/* Is there a lease with keys of which nobody knows whether it exists? */
extern bool lease_is_in_doubt(const ElectionCore *core);

/* The TTL of the settings, or the TTL of the last lease if that is less. */
extern int64_t lease_ttl_ns(const ElectionCore *core);

/* A third of that TTL. */
extern int64_t lease_interval_ns(const ElectionCore *core);

/* ---- patroni_cluster.c ----------------------------------------------------- */

/*
 * A slot was given to a followed election, the settings of its keys changed, or
 * etcd has another history: nothing is known of the keys.
 */
extern void patroni_begin(ElectionCore *core, Election *e);

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

/* What a read shows of the cluster, apart from its leader. */
extern void patroni_learn_cluster(const ElectionCore *core, Patroni *p, const Facts *facts);

/* ---- drain_state.c ---------------------------------------------------------- */

/* Does it lead without taking new work? */
static inline bool
is_draining(const Election *e)
{
	return e->state == ELECTION_LEADING && e->drain.goal != DRAIN_NONE;
}

/* Only while it leads, and does not drain. */
extern void drain_begin(ElectionCore *core, int64_t now_ns, Election *e, DrainGoal goal, int64_t drain_ns);

/* It leads on.  The commands that have asked for the drain are answered. */
extern void drain_cancel(ElectionCore *core, Election *e);

/* The leadership was lost, or given up. */
extern void drain_lost(Election *e);

/* ---- transfer_state.c ------------------------------------------------------ */

/* The deletion of the own key was sent, and its result is not known. */
static inline bool
transfer_is_sent(const Election *e)
{
	return e->transfer.stage == TRANSFER_SENT;
}

/* Ends the transfer, and answers the command that waits. */
extern void transfer_end(ElectionCore *core, Election *e, ElectionReply reply);

/* The leader is known; it may be the one that a command waits for. */
extern void transfer_leader_seen(ElectionCore *core, Election *e);

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

/* Renewals under way at once, where etcd is slow. */
#define MAX_RENEWALS	4

/* Does the result of this renewal still count? */
extern bool lease_is_current(const ElectionCore *core, const Renewal *renewal);

/* The answer to this request says that its lease does not exist. */
extern void lease_not_found(ElectionCore *core, const Op *op);

/* The answer to a keepalive, grant, revocation or move.  There may be none, or a refusal. */
extern void lease_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/*
 * The answer to a read, or that there is none; standing: the elections whose own key is as PLACE and
 * RENEWAL require.
 */
extern void lease_receive_read(ElectionCore *core, int64_t now_ns, const Facts *facts,
							   uint32_t standing);

/*
 * Starts a renewal.  False if the lease is not kept; then a read has to be sent
 * instead.
 */
extern bool lease_start_renewal(ElectionCore *core, int64_t now_ns);
extern void lease_reconcile(ElectionCore *core, int64_t now_ns);

/* New settings are in force. */
extern void lease_configure(ElectionCore *core, int64_t now_ns);

/* Revokes a lease, unless that is under way (0: none), or each of ours. */
extern void lease_revoke(ElectionCore *core, int64_t now_ns, int64_t lease);
extern void lease_revoke_all(ElectionCore *core, int64_t now_ns);

/* etcd has another history: none of our leases exist there. */
extern void lease_discard(ElectionCore *core);
extern bool lease_resume(ElectionCore *core, int64_t now_ns, const ElectionMemory *memory);


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

/* No other candidate is known any more that has the value of the own key. */
extern void queue_forget_duplicate(ElectionCore *core, Election *e);

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
 * The own key may exist, and etcd denies its deletion.  It ends with its lease, so that
 * lease is replaced (RIGHTS).
 */
extern void queue_abandon_key(ElectionCore *core, Election *e);

/*
 * After this number of denials in a row, within some tenths of a second, a right is
 * gone, and not just being replaced by another right.
 */
#define MAX_DENIALS			3

/*
 * etcd denies the reads of the election (RIGHTS): what is known of its keys cannot be
 * confirmed.  So the election is left, or not led any more if it is followed.  No key
 * of it is watched.
 */
extern void queue_deny(ElectionCore *core, Election *e);

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
 * exist).  True if the key is as PLACE and RENEWAL require.
 */
extern bool queue_check_own_key(ElectionCore *core, Election *e, const EtcdKeyValue *kv,
								int64_t revision);

/*
 * The same if this instance is not in the queue, and the read asked for the
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
extern void queue_moved(ElectionCore *core, int64_t old, bool by_move, uint32_t slots,
						int64_t mod_revision);

/*
 * Announces the leader, or that there is none, unless this was announced
 * already.
 */
extern void queue_tell_leader(ElectionCore *core, Election *e, ElectionReason reason);

/* Ends leadership, and forgets the leader's name, if their time is over. */
extern void queue_expire(ElectionCore *core, int64_t now_ns);
extern void queue_wake_at_expiry(ElectionCore *core);

/* etcd has another history: forgets everything about the queue. */
extern void queue_discard(ElectionCore *core, Election *e);
extern void queue_resume(ElectionCore *core, const ElectionMemory *memory, int i, Election *e);

/* ---- own_key.c ----------------------------------------------------------- */

/* The answer to an entry, delete or proclaim.  There may be none, or a refusal. */
extern void own_key_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* A move was executed, or refused with the keys as they are. */
extern void own_key_receive_move(ElectionCore *core, const Facts *facts);

/* The own key is gone, as of that revision: we, or a transfer, deleted it. */
extern void own_key_finish_leaving(ElectionCore *core, int64_t now_ns, Election *e, int64_t revision);

/* Sends what is due. */
extern void own_key_reconcile(ElectionCore *core, int64_t now_ns);

/* ---- queue_events.c ------------------------------------------------------ */

/* A key that is watched has changed. */
extern void queue_see_event(ElectionCore *core, const Watched *watched,
							const EtcdWatchEvent *event);

/*
 * All events of a frame are known.  If a wait has ended, this instance may
 * lead now (READY).
 */
extern void queue_end_frame(ElectionCore *core, int64_t now_ns);

/* ---- reads.c -------------------------------------------------------------- */

/*
 * A read of the election, by reads.c or patroni.c, is sent; its answer was used;
 * there is none.  A session that wants to know whether this instance still leads
 * waits for a read that is sent after it asked.
 */
extern void read_take_up(const Op *op, Election *e);
extern void read_finish(ElectionCore *core, const Op *op, Election *e);
extern void read_want_again(const Op *op, Election *e);

/*
 * Sends a read: one linearizable txn that reads, for each election that does
 * not follow Patroni, the own key, the predecessor and the leader, if there can
 * be any; all: also if no read of it is wanted.  Keys that are known are read by
 * their names (BY NAME).  renewal: the renewal that it confirms, or NULL.  False:
 * there is nothing to read, or no room.
 *
 * An election that is to be read alone has reads of its own.  The renewal leaves
 * it out, unless it has an own key that the renewal must show (RIGHTS).
 */
extern bool read_send(ElectionCore *core, int64_t now_ns, bool all, const Renewal *renewal);

/*
 * A request about these elections was denied, so the user has no rights to the keys
 * of at least one.  Each is read alone, until etcd answers that read (RIGHTS).
 */
extern void read_each_alone(ElectionCore *core, uint32_t slots);

/* The answer to a read.  Returns the elections whose own key is as PLACE and RENEWAL require. */
extern uint32_t read_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* Sends the reads that are wanted and not postponed. */
extern void read_reconcile(ElectionCore *core, int64_t now_ns);

/* ---- transfer.c ---------------------------------------------------------- */

/* The command: the queue is read first.  The instance leads, and no transfer is under way. */
extern void transfer_begin(Election *e, const char *to_node, int64_t until_ns, int64_t drain_ns,
						   uint64_t ticket);

/* The answer to a survey or a transfer.  There may be none, or a refusal. */
extern void transfer_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* Sends what is due. */
extern void transfer_reconcile(ElectionCore *core, int64_t now_ns);

/* ---- drain.c --------------------------------------------------------------- */

/* No work is waited for any more.  Only while it is waited for. */
extern void drain_finish(ElectionCore *core, int64_t now_ns, Election *e);

/* Ends what is due, and carries out a resignation that a loss has overtaken. */
extern void drain_reconcile(ElectionCore *core, int64_t now_ns);

/* See election_cancel().  Only while it drains. */
extern bool drain_cancel_command(ElectionCore *core, Election *e, uint64_t ticket);

/* ---- patroni.c ------------------------------------------------------------- */

/* The answer to a read or to a request for a time to live.  There may be none, or a refusal. */
extern void patroni_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/* There is a sign that etcd was put back to an earlier state. */
extern void patroni_guard_against_restore(ElectionCore *core);

/* Sends a read of any followed election.  False: there is none, or no room. */
extern bool patroni_probe(ElectionCore *core, int64_t now_ns);

/* Sends what is due. */
extern void patroni_reconcile(ElectionCore *core, int64_t now_ns);

extern void patroni_see_event(ElectionCore *core, int64_t now_ns, Election *e,
							  const EtcdWatchEvent *event);

/* New settings are in force; other_cluster: those that name the keys changed. */
extern void patroni_configure(ElectionCore *core, int64_t now_ns, Election *e, bool other_cluster);

/* ---- watch.c ------------------------------------------------------------- */

/* Opens the stream anew if something else has to be watched. */
extern void watch_reconcile(ElectionCore *core, int64_t now_ns);

/* A frame of the stream.  False: the stream is of no use any more. */
extern bool watch_receive(ElectionCore *core, int64_t now_ns, const EtcdWatchFrame *frame);

extern void watch_ended(ElectionCore *core, int64_t now_ns);

/* ---- election.c ------------------------------------------------------------ */

/*
 * Sends whatever is wanted, not under way and not postponed, and sets the time
 * at which this has to be done again.  Every input ends with it.
 */
extern void core_reconcile(ElectionCore *core, int64_t now_ns);

#endif							/* ELECTION_INTERNAL_H */
