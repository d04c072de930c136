/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  Transactions that only the leader can commit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_H
#define FENCE_H

/* Called once, at library load in the postmaster: installs the hooks. */
extern void fence_install(void);

/*
 * Fences the transaction: it commits only if this instance still leads that
 * election (an index in etcd_leader.elections) at pre-commit, under the same token.
 * Returns the token.  ERROR 25006 if this instance does not lead, or if its token
 * differs from the token under which the transaction was fenced first; ERROR 25000
 * in a parallel worker; ERROR 53000 if the system has no timer for cancel_on_loss.
 * An ERROR does not change which requirements the transaction has.
 */
extern int64 fence_require(int election_index);

/*
 * Does this instance lead, and under which token (0: it does not lead), in the view
 * of this transaction?  While the instance drains, only a transaction that was fenced
 * before sees the leadership.
 */
extern bool fence_leads(int election_index);
extern int64 fence_token(int election_index);

/*
 * This transaction is about to ask for a drain: the drain must not wait for it.
 * ERROR 25001 if the transaction requires leadership by a call, or by the setting
 * after it has written.
 */
extern void fence_step_aside(const char *election);

/* After the request for a drain, also after an ERROR: the next drain waits again. */
extern void fence_step_back(void);

/*
 * Fences every transaction of this process under that token, from here on until the
 * process ends.  Needs a transaction.
 */
extern void fence_bind(const char *election, int64 token);

#endif							/* FENCE_H */
