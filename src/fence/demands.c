/*-------------------------------------------------------------------------
 *
 * demands.c
 *	  The requirements of the open transaction, and whether they hold.
 *
 * fence.c decides when to look at them, and what follows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"

#include "base/compat.h"
#include "decide.h"
#include "demands.h"
#include "settings/settings.h"
#include "shared/fenced.h"
#include "state.h"

/*
 * By etcd_require_leader(), and by keep_setting().  The first
 * fence_state.nrequirements are in force.
 */
static Requirement requirements[ELECTION_MAX_ELECTIONS];

/*
 * By etcd_leader.require_leadership_of, as of the first statement.  Its state is
 * fence_state.setting.  The requirement counts once the transaction writes.
 */
static Requirement setting_requirement;

/*
 * The requirements that setting_requirement had before in this transaction.  If the
 * setting names such an election again, it requires the same token as before.
 */
static Requirement earlier[ELECTION_MAX_ELECTIONS];
static int	nearlier;

/* By fence_bind().  In force if fence_state.bound. */
static Requirement binding;

/*
 * Does etcd_leader.require_leadership_of hold for this process?  In a background
 * worker it holds only if the role of the worker has the setting; the role of a
 * pg_cron job may have it.  Otherwise the setting in postgresql.conf would also
 * fence apply workers of logical replication, and launchers.  It never holds for
 * autovacuum.  It holds for a walsender with a database, because such a walsender
 * executes any SQL of its client.  Streaming writes nothing.
 */
bool
demands_is_role_fenced(void)
{
	if (likely(settings_require_leadership_of[0] == '\0'))
		return false;
	if (MyBackendType == B_BACKEND || (MyBackendType == B_WAL_SENDER && OidIsValid(MyDatabaseId)))
		return true;
	return MyBackendType == B_BG_WORKER && settings_requires_by_role &&
		!IsLogicalWorker() && !IsParallelWorker();
}

/*
 * The elections in which a drain has to wait for this transaction.  A subtransaction
 * may be READ ONLY in a transaction that is READ WRITE.
 */
static uint32
waited_for(void)
{
	uint32		slots = fence_state.bound ? requirement_bit(&binding) : 0;

	for (int i = 0; i < fence_state.nrequirements; i++)
		slots |= requirement_bit(&requirements[i]);
	if (decide_is_waited_for(&fence_state, setting_requirement.token, demands_has_written(),
							 XactReadOnly && !IsSubTransaction()))
		slots |= requirement_bit(&setting_requirement);
	return slots;
}

/* The requirement for that election in an array; NULL: there is none. */
static const Requirement *
find_requirement(const Requirement *array, int n, const char *election)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(array[i].election, election) == 0)
			return &array[i];
	}
	return NULL;
}

const Requirement *
demands_held(const char *election)
{
	const Requirement *found = find_requirement(requirements, fence_state.nrequirements, election);

	if (found == NULL && fence_state.bound && strcmp(binding.election, election) == 0)
		found = &binding;
	if (found == NULL && fence_state.setting != FENCE_NO_DEMAND &&
		strcmp(setting_requirement.election, election) == 0)
		found = &setting_requirement;
	return found != NULL && !requirement_is_broken(found) ? found : NULL;
}

/*
 * Makes a requirement.  "before": the requirement of the setting for that election,
 * earlier in this transaction, or NULL.  Needs a transaction.
 */
static void
make_requirement(Requirement *requirement, const char *election, const Requirement *before)
{
	const Requirement *held = demands_held(election);
	int64		held_token = held ? held->token : 0;
	int64		open;

	requirement_init(requirement, election);
	/* before the look at the leadership; otherwise a drain could miss this transaction */
	if (!XactReadOnly || requirement != &setting_requirement)
		fenced_advertise(fenced_advertised() | requirement_bit(requirement));
	open = requirement_open_token(requirement);
	requirement->token = decide_token(held_token, before ? &before->token : NULL, open,
									  requirement_current_token(requirement));
}

/*
 * Has the transaction written?  A transaction that only reads may commit on any
 * instance, as far as the setting is concerned.  Safe in a signal handler.
 */
bool
demands_has_written(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

bool
demands_exist(void)
{
	return decide_is_fenced(&fence_state, true);
}

const Requirement *
demands_any(void)
{
	if (fence_state.bound)
		return &binding;
	return fence_state.nrequirements > 0 ? &requirements[0] : &setting_requirement;
}

const Requirement *
demands_broken(bool writes)
{
	if (fence_state.bound && requirement_is_broken(&binding))
		return &binding;
	for (int i = 0; i < fence_state.nrequirements; i++)
	{
		if (requirement_is_broken(&requirements[i]))
			return &requirements[i];
	}
	if (fence_state.in_force && writes && requirement_is_broken(&setting_requirement))
		return &setting_requirement;
	return NULL;
}

const Requirement *
demands_lost(void)
{
	const Requirement *broken = demands_broken(demands_has_written());

	return broken ? broken : demands_any();
}

/* The next requirement in requirements[] is complete.  It counts from here on. */
static void
put_in_force(void)
{
	pg_compiler_barrier();		/* handshake.pml: REQUIREMENT_RECORDED */
	fence_note(FENCE_REQUIRE);
}

pg_noreturn static void
report_too_many(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a transaction cannot require leadership of more than %d elections",
					ELECTION_MAX_ELECTIONS)));
}

/*
 * The setting is about to name another election.  What this transaction has written
 * until now commits only under the token that it had, whatever the setting names
 * later.  was_in_force: the setting was not empty meanwhile.  To make it empty takes a
 * privilege, and switches the fence off.
 */
static void
keep_setting(bool was_in_force)
{
	const char *election = setting_requirement.election;

	if (find_requirement(earlier, nearlier, election) == NULL)
	{
		if (nearlier == ELECTION_MAX_ELECTIONS)
			report_too_many();
		earlier[nearlier++] = setting_requirement;
	}
	if (!was_in_force || !demands_has_written() || setting_requirement.token == 0 ||
		find_requirement(requirements, fence_state.nrequirements, election) != NULL)
		return;
	if (fence_state.nrequirements == ELECTION_MAX_ELECTIONS)
		report_too_many();
	requirements[fence_state.nrequirements] = setting_requirement;
	put_in_force();
}

/*
 * Records the requirement of etcd_leader.require_leadership_of at the first call in a
 * transaction.  Later calls keep the requirement while the setting stays the same.
 * SET LOCAL, and functions with a SET clause, can change the setting within the
 * transaction.
 */
void
demands_record_setting(void)
{
	bool		is_first = fence_state.setting == FENCE_NO_DEMAND ||
		(fence_state.setting == FENCE_CONTINUED_DEMAND && !demands_has_written());
	bool		is_fenced = demands_is_role_fenced();
	bool		is_other = is_fenced &&
		strcmp(setting_requirement.election, settings_require_leadership_of) != 0;

	if (fence_state.in_force && is_fenced && !is_first && !is_other)
	{
		/* the transaction may have become READ ONLY or READ WRITE; the check comes later */
		if (XactReadOnly || (fenced_advertised() & requirement_bit(&setting_requirement)) == 0)
			fenced_advertise(waited_for());
		return;
	}
	if (fence_state.setting != FENCE_DEMAND)
		nearlier = 0;			/* they are of another transaction */
	if (is_other && !is_first)
		keep_setting(fence_state.in_force);
	fence_note(FENCE_WITHDRAW);
	if (!is_fenced)
		return;
	pg_compiler_barrier();		/* handshake.pml: DEMAND_WITHDRAWN */
	if (is_first || is_other)
		make_requirement(&setting_requirement, settings_require_leadership_of,
						 find_requirement(earlier, nearlier, settings_require_leadership_of));
	pg_compiler_barrier();		/* handshake.pml: DEMAND_RECORDED */
	fence_note(FENCE_MAKE_DEMAND);
	/* the transaction may have been READ ONLY until now; the check comes later */
	fenced_advertise(waited_for());
}

/* ---- fencing -------------------------------------------------------- */

int64
demands_require(int election_index)
{
	const char *election = settings_election_name(election_index);
	Requirement *requirement;
	int64		token;
	bool		is_new;
	int			i = 0;

	while (i < fence_state.nrequirements && strcmp(requirements[i].election, election) != 0)
		i++;
	if (i == ELECTION_MAX_ELECTIONS)
		report_too_many();
	requirement = &requirements[i];
	is_new = i == fence_state.nrequirements;
	if (is_new)
		make_requirement(requirement, election, NULL);

	token = is_new ? requirement->token : requirement_current_token(requirement);
	if (token == 0)
	{
		fenced_advertise(waited_for());
		requirement_refuse_new_work(requirement, election_index);
	}
	if (!is_new)
	{
		if (token != requirement->token)
			requirement_report_broken(requirement, requirement_known_leader(election));
		return token;
	}

	put_in_force();
	fenced_advertise(waited_for());
	return token;
}

void
demands_bind(const char *election, int64 token)
{
	requirement_init(&binding, election);
	binding.token = token;
	pg_compiler_barrier();		/* handshake.pml: BINDING_RECORDED */
	fence_note(FENCE_BIND);
	fenced_advertise(waited_for());
}

void
demands_step_aside(const char *election)
{
	if (decide_is_fenced(&fence_state, demands_has_written()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot drain within a transaction that requires leadership"),
				 errdetail("The drain would wait for this transaction, "
						   "which requires leadership of election \"%s\".",
						   demands_any()->shown),
				 errhint("Call the function in a transaction of its own, or without a drain.")));
	/* what remains is by the setting */
	if (strcmp(setting_requirement.election, election) == 0)
		fenced_advertise(0);
}

void
demands_advertise(void)
{
	fenced_advertise(waited_for());
}

void
demands_withdraw_unneeded(void)
{
	/* add no bits: a process must advertise new bits before it looks at the leadership */
	if (fence_state.in_force)
		fenced_advertise(fenced_advertised() & waited_for());
}

void
demands_continue(void)
{
	Requirement *requirement = &setting_requirement;

	if (!demands_is_role_fenced() ||
		strcmp(requirement->election, settings_require_leadership_of) != 0)
		return;
	/* if a drain waited for the previous transaction, it waits for this one */
	requirement->token = (fenced_advertised() & requirement_bit(requirement)) != 0 ?
		requirement_current_token(requirement) : requirement_open_token(requirement);
	pg_compiler_barrier();		/* handshake.pml: DEMAND_CONTINUED */
	fence_note(FENCE_CONTINUE_DEMAND);
}
