/*-------------------------------------------------------------------------
 *
 * status.h
 *	  Answers for readers: who leads, under which token, in which state.
 *
 * Elections are given by their index in etcd_leader.elections; -1 is none, and
 * nobody leads it.  The functions that read use shared memory alone, take no
 * lock and raise no error.  They must not be called in signal handlers, since they
 * cache where an election was found.
 *
 *-------------------------------------------------------------------------
 */
#ifndef STATUS_H
#define STATUS_H

#include "base/compat.h"
#include "etcd_leader.h"
#include "shared/state.h"

/*
 * ERROR 42704: the settings of this session do not list that election; 55000 if
 * name is NULL: they list none.
 */
pg_noreturn extern void status_raise_no_election(const char *name);

/* Does this instance lead, now, and take new work? */
extern bool status_leads(int index);

/*
 * The token while this instance leads, else 0.  The first one is for new work: it
 * is 0 while the instance drains.
 */
extern int64 status_token(int index);
extern int64 status_held_token(int index);

/*
 * The published state of an election; false if the elector does not handle it
 * yet.
 */
extern bool status_read(int index, SharedElection *election);

/*
 * The leader's name in the database's encoding, palloc'd; NULL if it is not
 * known.  Needs a transaction that has not failed.
 */
extern char *status_current_leader(int index);

/*
 * The same for a message to somebody who is to go elsewhere: without control
 * characters.  NULL, too, if the elector is not running, and if the leader is
 * this instance: its key outlasts its deadline, and even its server.
 */
extern char *status_leader_for_message(int index);

/* For ereport(): a detail that names that leader, or says why it cannot. */
extern int	status_errdetail_leader(int index);

/* Fills in the row of etcd_leader_status for an election that exists. */
extern void status_read_row(int index, EtcdLeaderStatus *row);

/* Is the candidate of that key and node in the election of the row this instance? */
extern bool status_is_self(const EtcdLeaderStatus *row, const char *key, const char *node);

#endif							/* STATUS_H */
