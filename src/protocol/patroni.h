/*-------------------------------------------------------------------------
 *
 * patroni.h
 *	  An election that follows the leader key of Patroni.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PATRONI_H
#define PATRONI_H

#include "facts.h"

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

#endif							/* PATRONI_H */
