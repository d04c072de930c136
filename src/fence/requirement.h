/*-------------------------------------------------------------------------
 *
 * requirement.h
 *	  A requirement: the leadership that a transaction needs.  And the errors
 *	  for a requirement that does not hold.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REQUIREMENT_H
#define REQUIREMENT_H

#include "mb/pg_wchar.h"

#include "base/compat.h"
#include "protocol/election.h"

/*
 * Leadership that a transaction needs.  The fields are complete before the timer of
 * the fence can see them, and do not change afterwards.
 */
typedef struct Requirement
{
	char		election[ELECTION_NAME_SIZE];
	char		shown[ELECTION_NAME_SIZE * MAX_CONVERSION_GROWTH];	/* the name, for messages */
	int64		token;			/* 0: this instance did not lead */
	int			slot;			/* the slot of the election under that layout */
	uint64		layout;
} Requirement;

/*
 * Sets all fields but the token.  Needs a transaction.  The caller zeroes a requirement
 * before the first call.  Later calls may leave it as it is.
 */
extern void requirement_init(Requirement *requirement, const char *election);

/* The bit of the election in fenced.h; 0: the election has no slot. */
static inline uint32
requirement_bit(const Requirement *requirement)
{
	return requirement->slot >= 0 ? UINT32_C(1) << requirement->slot : 0;
}

/*
 * The token under which this instance leads now, also while it drains; 0: it does
 * not lead.  Safe in a signal handler.
 */
extern int64 requirement_current_token(const Requirement *requirement);

/* The same for new work: 0 while this instance drains. */
extern int64 requirement_open_token(const Requirement *requirement);

/* Does the requirement not hold?  A token of 0 never holds.  Safe in a signal handler. */
extern bool requirement_is_broken(const Requirement *requirement);

/* The leader of that election for a message, see status_leader_for_message(). */
extern const char *requirement_known_leader(const char *name);

/*
 * For ereport(), or for an error context callback: SQLSTATE 25006, and all fields of
 * the message for a requirement that does not hold.  leader: the leading instance, or
 * NULL.  The second function says that the session ends.
 */
extern int	requirement_errbroken(const Requirement *requirement, const char *leader);
extern int	requirement_errended(const Requirement *requirement);

/* ERROR 42704 if etcd_leader.require_leadership_of named none of the elections. */
extern void requirement_check_election(const Requirement *requirement);

/* The ERROR for a requirement that does not hold: requirement_errbroken(). */
pg_noreturn extern void requirement_report_broken(const Requirement *requirement,
												  const char *leader);

/* ERROR 25006: no new requirement, because this instance does not lead or drains. */
pg_noreturn extern void requirement_refuse_new_work(const Requirement *requirement,
													int election_index);

#endif							/* REQUIREMENT_H */
