/*-------------------------------------------------------------------------
 *
 * demands.h
 *	  What the transaction that is open requires of the leadership, and
 *	  whether that holds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DEMANDS_H
#define DEMANDS_H

#include "requirement.h"

/* Does etcd_leader.require_leadership hold for this process? */
extern bool demands_is_role_fenced(void);

/*
 * Remembers what etcd_leader.require_leadership demands of this transaction,
 * when it is called first.  Needs a transaction.
 */
extern void demands_record_setting(void);

/* See fence_require(), fence_bind() and fence_step_aside(). */
extern int64 demands_require(int election_index);
extern void demands_bind(const char *election, int64 token);
extern void demands_step_aside(const char *election);

/* Has the transaction written?  Safe in a signal handler. */
extern bool demands_has_written(void);

/* Does this transaction require anything?  The setting counts, if it is in force. */
extern bool demands_exist(void);

/* A requirement of a transaction that is fenced. */
extern const Requirement *demands_any(void);

/*
 * The requirement by which this transaction is fenced in that election, and
 * that holds; NULL: there is none.
 */
extern const Requirement *demands_held(const char *election);

/*
 * The first requirement that does not hold; NULL if all do.  That of the
 * setting counts only if the transaction writes.  Safe in a signal handler.
 */
extern const Requirement *demands_broken(bool writes);

/* The requirement for which the timer has acted.  It may hold again meanwhile. */
extern const Requirement *demands_lost(void);

/*
 * Shows a drain what it has to wait for because of this transaction; only what
 * it does not have to wait for any more.
 */
extern void demands_advertise(void);
extern void demands_withdraw_unneeded(void);

/*
 * The statement goes on in another transaction, which requires the current
 * leadership by the setting.
 */
extern void demands_continue(void);

#endif							/* DEMANDS_H */
