/*-------------------------------------------------------------------------
 *
 * requirement.h
 *	  Leadership that a transaction needs, and the errors for one that does
 *	  not hold.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REQUIREMENT_H
#define REQUIREMENT_H

#include "mb/pg_wchar.h"

#include "base/compat.h"
#include "protocol/election.h"

/*
 * Leadership that a transaction needs.  Complete before the timer of the fence
 * can see it, and not changed afterwards.
 */
typedef struct Requirement
{
	char		election[ELECTION_NAME_SIZE];
	char		shown[ELECTION_NAME_SIZE * MAX_CONVERSION_GROWTH];	/* in the database's encoding */
	int64		token;			/* 0: this instance did not lead */
	int			slot;			/* where the election was when this was made */
	uint64		layout;
} Requirement;

/* Of that election, at its place now.  The token is not set.  Needs a transaction. */
extern void requirement_init(Requirement *requirement, const char *election);

/* The bit of a requirement's election in fenced.h; 0: it has no slot. */
static inline uint32
requirement_bit(const Requirement *requirement)
{
	return requirement->slot >= 0 ? UINT32_C(1) << requirement->slot : 0;
}

/*
 * The token under which this instance leads now, also while it drains; else 0.
 * Safe in a signal handler.
 */
extern int64 requirement_current_token(const Requirement *requirement);

/* A token that was 0 does not hold either.  Safe in a signal handler. */
extern bool requirement_is_broken(const Requirement *requirement);

/* The leader of that election for a message, see status_leader_for_message(). */
extern const char *requirement_known_leader(const char *name);

/*
 * For ereport(), or for a callback of its context: everything that the client is
 * told of a requirement that does not hold, 25006.  leader: the name of another
 * instance, or NULL.  The second one says that the session ends.
 */
extern int	requirement_errbroken(const Requirement *requirement, const char *leader);
extern int	requirement_errended(const Requirement *requirement);

/* ERROR 42704 if etcd_leader.require_leadership named none of the elections. */
extern void requirement_check_election(const Requirement *requirement);

/* The ERROR for a requirement that does not hold: requirement_errbroken(). */
pg_noreturn extern void requirement_report_broken(const Requirement *requirement, const char *leader);

/* ERROR 25006 for one that cannot be made, because this instance takes no new work. */
pg_noreturn extern void requirement_refuse_new_work(const Requirement *requirement, int election_index);

#endif							/* REQUIREMENT_H */
