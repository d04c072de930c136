/*-------------------------------------------------------------------------
 *
 * requirement.c
 *	  A requirement: the leadership that a transaction needs.  And the errors
 *	  for a requirement that does not hold.
 *
 * fence.c decides which requirements a transaction has.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/utf8.h"
#include "requirement.h"
#include "settings/settings.h"
#include "shared/state.h"
#include "shared/stats.h"
#include "shared/status.h"

/*
 * Reads a token by a function of shared/state.h, in the slot that the election has
 * now.  Safe in a signal handler.
 */
static int64
read_token(const Requirement *requirement, int64 (*token_of) (int slot, uint64 layout))
{
	uint64		layout = requirement->layout;
	int			slot = requirement->slot;

	for (;;)
	{
		int64		token = token_of(slot, layout);

		/* a reload may give out slots, also during the look */
		if (token != 0 || likely(layout == shared_state_layout()))
			return token;
		slot = shared_state_find(requirement->election, &layout);
	}
}

/* The token under which this instance leads now; 0: it does not lead.  Safe in a signal handler. */
int64
requirement_current_token(const Requirement *requirement)
{
	return read_token(requirement, shared_state_held_token);
}

int64
requirement_open_token(const Requirement *requirement)
{
	return read_token(requirement, shared_state_token);
}

/* Does this instance lead, but refuse new work? */
static bool
is_draining(const Requirement *requirement)
{
	return requirement_current_token(requirement) != 0 && requirement_open_token(requirement) == 0;
}

/*
 * The name in a setting may be too long.  The search takes the whole name, and does
 * not find it; the requirement stores a part of the name.  Mostly the requirement was
 * for the same election in an earlier transaction, and its slot is still right.
 */
void
requirement_init(Requirement *requirement, const char *election)
{
	char		name[sizeof(requirement->election)];

	if (requirement->slot >= 0 && requirement->layout == shared_state_layout() &&
		strcmp(requirement->election, election) == 0)
		return;
	/* The conversion may raise an ERROR, which leaves the requirement unchanged. */
	strlcpy(name, election, sizeof(name));
	strlcpy(requirement->shown, utf8_to_server(name), sizeof(requirement->shown));
	strlcpy(requirement->election, name, sizeof(requirement->election));
	requirement->slot = shared_state_find(election, &requirement->layout);
}

/* Does the requirement not hold?  A token of 0 never holds.  Safe in a signal handler. */
bool
requirement_is_broken(const Requirement *requirement)
{
	return requirement->token == 0 || requirement_current_token(requirement) != requirement->token;
}

/* See status_leader_for_message(). */
const char *
requirement_known_leader(const char *name)
{
	return status_leader_for_message(settings_election_index(name, (int) strlen(name)));
}

/* For ereport(): where to run the transaction.  leader: the leading instance, or NULL. */
static int
errhint_where(const Requirement *requirement, const char *leader)
{
	if (is_draining(requirement))
		return errhint("This instance is handing over leadership. "
					   "Run the whole transaction on the next leader.");
	if (requirement_current_token(requirement) != 0)
		return requirement->token == 0 ?
			errhint("This instance leads now. Run the whole transaction again.") :
			errhint("This instance leads again. Run the whole transaction again.");
	if (leader)
		return errhint("Run the whole transaction on the leader, which is \"%s\".", leader);
	if (!shared_state_has_elector())
		return errhint("Run the whole transaction on the leader. "
					   "On this instance the elector of etcd_leader is not running.");
	return errhint("Run the whole transaction on the leader.");
}

/* ERROR if etcd_leader.require_leadership_of named none of the elections. */
void
requirement_check_election(const Requirement *requirement)
{
	if (settings_election_index(requirement->election, (int) strlen(requirement->election)) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("election \"%s\" does not exist", requirement->shown),
				 errdetail("It is required by \"%s\".", "etcd_leader.require_leadership_of"),
				 errhint("The elections are those listed in \"%s\".", "etcd_leader.elections")));
}

int
requirement_errbroken(const Requirement *requirement, const char *leader)
{
	errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION);
	if (requirement->token != 0)
	{
		errmsg("this instance does not lead election \"%s\" any more", requirement->shown);
		errdetail("The transaction requires leadership under fencing token %lld.",
				  (long long) requirement->token);
	}
	else
	{
		/* by a setting, since etcd_require_leader() fences nothing without a token */
		if (is_draining(requirement))
			errmsg("this instance is handing over leadership of election \"%s\"",
				   requirement->shown);
		else
			errmsg("this instance did not lead election \"%s\" when the transaction began",
				   requirement->shown);
		errdetail("\"%s\" allows only the leader to write.", "etcd_leader.require_leadership_of");
	}
	return errhint_where(requirement, leader);
}

void
requirement_report_broken(const Requirement *requirement, const char *leader)
{
	if (requirement->token == 0)
		requirement_check_election(requirement);
	ereport(ERROR, (requirement_errbroken(requirement, leader)));
}

int
requirement_errended(const Requirement *requirement)
{
	errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION);
	errmsg("terminating connection because this instance does not lead election \"%s\" any more",
		   requirement->shown);
	errdetail("The transaction requires leadership under fencing token %lld, "
			  "and COPY waits for the client.",
			  (long long) requirement->token);
	return errhint_where(requirement, NULL);
}

void
requirement_refuse_new_work(const Requirement *requirement, int election_index)
{
	if (requirement_current_token(requirement) != 0)
	{
		stats_count(COUNTER_TRANSACTIONS_REFUSED, 1);
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("this instance is handing over leadership of election \"%s\"",
						requirement->shown),
				 errdetail("It waits for the transactions that require leadership already, "
						   "and accepts no new ones."),
				 errhint("Try again on the next leader.")));
	}
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("this instance does not lead election \"%s\"", requirement->shown),
			 status_errdetail_leader(election_index),
			 errhint("Connect to the leader, or wait until there is one.")));
}
