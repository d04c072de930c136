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
 * election (an index in etcd_leader.elections) at pre-commit, under the same
 * token, which is returned.  ERROR 25006 if this instance does not lead, or
 * leads under another token than when the transaction was fenced first; ERROR
 * 25000 in a parallel worker; ERROR 53000 if the timer of cancel_on_loss cannot
 * be created.  After an ERROR the transaction is fenced as it was before.
 */
extern int64 fence_require(int election_index);

/*
 * Does this instance lead, and under which token (0: it does not), as this
 * transaction sees it?  While the instance drains, only a transaction that was
 * fenced before sees the leadership.
 */
extern bool fence_leads(int election_index);
extern int64 fence_token(int election_index);

/*
 * A drain is not to wait for this transaction, which asks for it.  ERROR 25001
 * if the transaction requires leadership by a call, or by the setting after it
 * has written.
 */
extern void fence_step_aside(const char *election);

/* After the call, however it has ended: the next drain waits for this transaction. */
extern void fence_step_back(void);

/*
 * Fences every transaction of this process from here on, until it ends, under
 * that token.  Needs a transaction.
 */
extern void fence_bind(const char *election, int64 token);

#endif							/* FENCE_H */
