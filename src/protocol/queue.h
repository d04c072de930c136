/*-------------------------------------------------------------------------
 *
 * queue.h
 *	  The own keys in their queues, and what becomes of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef QUEUE_H
#define QUEUE_H

#include "state.h"

/* There is a sign that etcd was put back to an earlier state. */
extern void queue_guard_against_restore(ElectionCore *core);

/* The own key has this value, since that revision. */
extern void queue_learn_value(ElectionCore *core, Election *e, EtcdBytes value,
							  int64_t mod_revision);

/* No other candidate is known any more that has the value of the own key. */
extern void queue_forget_duplicate(ElectionCore *core, Election *e);

/* The own key is attached to this lease, which may be somebody else's. */
extern void queue_learn_lease(ElectionCore *core, Election *e, int64_t lease);

/* The own key did not exist at that revision: the next one is younger. */
extern void queue_raise_min_create_revision(Election *e, int64_t revision);

/* The key is gone, and this instance did not delete it. */
extern void queue_lose_key(ElectionCore *core, Election *e, ElectionReason reason);

/* The key exists, and belongs to the lease. */
extern void queue_learn_entry(ElectionCore *core, Election *e, int64_t create_revision,
							  int64_t mod_revision, EtcdBytes value);

/*
 * Leaves an election: deletes the key, if there is one.  From now on the key
 * is not believed any more (FINAL).
 */
extern void queue_leave(ElectionCore *core, Election *e, ElectionReason reason);

/* Deletes a key, which is on that lease, and which a request that was given up may have entered. */
extern void queue_leave_with_key(ElectionCore *core, Election *e, int64_t create_revision,
								 int64_t lease);

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

/* Gives a slot to each election of the settings that has none, while there are any. */
extern void queue_take_up_elections(ElectionCore *core);

/*
 * No key of ours exists, and none is being deleted.  Frees the slot if the
 * election is not in the settings; else it joins, stays out, or observes.
 */
extern void queue_begin_without_key(ElectionCore *core, Election *e);

/* First in the queue, as of a linearizable answer at that revision (PLACE). */
extern void queue_become_first(ElectionCore *core, int64_t now_ns, Election *e,
							   int64_t revision, bool ordered);

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

/* etcd has revoked that lease for us.  A key that is on another lease still stands. */
extern void queue_lease_revoked(ElectionCore *core, int64_t lease);

/* No lease is left, because no election needs one. */
extern void queue_leases_given_up(ElectionCore *core);

/* core->lease has replaced another lease.  What is known of the keys stays as it is. */
extern void queue_moved(ElectionCore *core);

/* etcd has another history: forgets everything about the queue. */
extern void queue_discard(ElectionCore *core, Election *e);

/* Takes up an election of the memory. */
extern void queue_resume(ElectionCore *core, const ElectionMemory *memory, int i);

/* A key that is watched has changed. */
extern void queue_see_event(ElectionCore *core, const Watched *watched,
							const EtcdWatchEvent *event);

/*
 * All events of a frame are known.  If a wait has ended, this instance may
 * lead now (READY).
 */
extern void queue_end_frame(ElectionCore *core, int64_t now_ns);

#endif							/* QUEUE_H */
