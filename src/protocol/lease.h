/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  The leases of an instance.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_H
#define LEASE_H

#include "facts.h"

/* The answer to this request says that its lease does not exist. */
extern void lease_not_found(ElectionCore *core, const Op *op);

/* The answer to a keepalive, grant, revocation or move.  There may be none, or a refusal. */
extern void lease_receive(ElectionCore *core, int64_t now_ns, const Facts *facts);

/*
 * The answer to a read, or that there is none; confirmed: the elections whose own key is
 * as PLACE and RENEWAL require.
 */
extern void lease_receive_read(ElectionCore *core, int64_t now_ns, const Facts *facts,
							   uint32_t confirmed);

/*
 * Starts a renewal.  False if the lease is not kept; then a read has to be sent
 * instead.
 */
extern bool lease_start_renewal(ElectionCore *core, int64_t now_ns);
extern void lease_reconcile(ElectionCore *core, int64_t now_ns);

/* New settings are in force. */
extern void lease_configure(ElectionCore *core, int64_t now_ns);

/* Revokes a lease (0: none), or each of ours.  True: its request is under way. */
extern bool lease_revoke(ElectionCore *core, int64_t now_ns, int64_t lease);
extern void lease_revoke_all(ElectionCore *core, int64_t now_ns);

/* etcd has another history: none of our leases exist there. */
extern void lease_discard(ElectionCore *core);
extern bool lease_resume(ElectionCore *core, int64_t now_ns, const ElectionMemory *memory);

#endif							/* LEASE_H */
