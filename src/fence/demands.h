/*-------------------------------------------------------------------------
 *
 * demands.h
 *	  The requirements of the open transaction, and whether they hold.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DEMANDS_H
#define DEMANDS_H

#include "requirement.h"

/* Does etcd_leader.require_leadership_of hold for this process? */
extern bool demands_is_role_fenced(void);

/*
 * Records the requirement of etcd_leader.require_leadership_of, at the first call in a
 * transaction and when the setting has changed.  Needs a transaction.
 */
extern void demands_record_setting(void);

/* See fence_require(), fence_bind() and fence_step_aside(). */
extern int64 demands_require(int election_index);
extern void demands_bind(const char *election, int64 token);
extern void demands_step_aside(const char *election);

/* Has the transaction written?  Safe in a signal handler. */
extern bool demands_has_written(void);

/* Does this transaction require leadership?  The setting counts if it is in force. */
extern bool demands_exist(void);

/* A requirement of a fenced transaction. */
extern const Requirement *demands_any(void);

/*
 * The requirement by which this transaction is fenced in that election; NULL: there
 * is none, or it does not hold.
 */
extern const Requirement *demands_held(const char *election);

/*
 * The first requirement that does not hold; NULL if all hold.  The requirement of
 * the setting counts only if "writes".  Safe in a signal handler.
 */
extern const Requirement *demands_broken(bool writes);

/* The requirement because of which the timer has acted.  It may hold again meanwhile. */
extern const Requirement *demands_lost(void);

/*
 * Advertises the elections in which a drain has to wait for this transaction.  The
 * second function only withdraws elections in which that is no longer so.
 */
extern void demands_advertise(void);
extern void demands_withdraw_unneeded(void);

/*
 * The statement goes on in the next transaction.  By the setting, that transaction
 * requires the current leadership.
 */
extern void demands_continue(void);

#endif							/* DEMANDS_H */
