/*-------------------------------------------------------------------------
 *
 * read_only.c
 *	  Sessions that are read-only by default while this instance does not
 *	  lead.
 *
 * Drivers that have a list of hosts look for the one whose sessions are not
 * read-only.  With etcd_leader.read_only_unless_leader_of this one is the leader.
 * It is a help to find the leader, and protects nothing: a transaction may say
 * READ WRITE.
 *
 * The value is set as one that the client has sent (PGC_S_CLIENT).  So it is
 * above the settings of roles and databases, and below a SET of the session.
 * It is also what RESET and DISCARD ALL return to.  A default that the client
 * did send stays.
 *
 * It is set at the end of a transaction, for the next one.  The first one of a
 * session is PostgreSQL's own, in InitPostgres().  It ends when the options of
 * the connection and the settings of role and database have been applied, and
 * before the client is told the values.  (ClientAuthentication_hook comes too
 * early to see these options.)
 *
 * The default alone is no place for the answer.  A pooler that tracks it gives a
 * session the value that its next client was told before, by a SET.  So each
 * transaction is made read-only, too, at its first statement, if the instance
 * does not lead by then.  Only a transaction that says READ WRITE is not.  And
 * a SET in the words of PgBouncer is a RESET: otherwise a client that was told
 * "on" before an election could not write after it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "read_only.h"
#include "settings/settings.h"
#include "shared/status.h"

#define DEFAULT_READ_ONLY	"default_transaction_read_only"

typedef enum Following
{
	FOLLOWING_UNKNOWN,			/* not looked at yet */
	FOLLOWING_LEADERSHIP,
	FOLLOWING_NOTHING			/* this process, or session, is left alone */
} Following;

static Following following = FOLLOWING_UNKNOWN;

/* Has the first statement of this transaction been seen? */
static bool has_begun = false;

static ProcessUtility_hook_type prev_process_utility = NULL;
static ExecutorStart_hook_type prev_executor_start = NULL;

/* PostgreSQL's record of the default. */
static const struct config_generic *record;

/* Have we made this session read-only, and what was its default otherwise? */
static bool is_read_only = false;
static bool otherwise;

/*
 * Does the default of this session follow the leadership?  Only that of a
 * client does, if the client has not sent it with the connection.  Superusers,
 * such as Patroni and administrators, also work on instances that do not lead.
 * Needs a transaction.
 */
static bool
is_concerned(void)
{
	return MyBackendType == B_BACKEND &&
		record->reset_source < PGC_S_CLIENT &&
		!superuser_arg(GetAuthenticatedUserId());
}

/*
 * Is the session to be read-only?  Nobody leads an election that does not
 * exist.  In recovery PostgreSQL itself says that it is, until the moment of
 * the promotion.
 */
static bool
wants_read_only(void)
{
	const char *election = settings_read_only_unless_leader_of;

	return election[0] != '\0' && !RecoveryInProgress() &&
		!status_leads(settings_election_index(election, (int) strlen(election)));
}

/*
 * Sets the default for the next transaction.  Called when the outcome of the
 * last one is settled, so nothing here may fail.
 */
static void
follow_leadership(void)
{
	bool		read_only = wants_read_only();

	if (likely(read_only == is_read_only))
		return;

	/* until it is set for the first time, a reload may change it */
	if (record->reset_source < PGC_S_CLIENT)
		otherwise = strcmp(GetConfigOptionResetString(DEFAULT_READ_ONLY), "on") == 0;
	(void) set_config_option(DEFAULT_READ_ONLY, read_only || otherwise ? "on" : "off",
							 PGC_USERSET, PGC_S_CLIENT, GUC_ACTION_SET, true, WARNING, false);
	is_read_only = read_only;
}

/*
 * At each statement, before it is executed: makes the transaction of the first
 * one read-only where the instance does not lead.  A transaction that differs
 * from the default then has got that by COMMIT AND CHAIN, and stays as it is.
 */
static void
begin_statement(void)
{
	if (likely(has_begun || settings_read_only_unless_leader_of[0] == '\0') ||
		!IsTransactionState())
		return;
	has_begun = true;
	if (following == FOLLOWING_UNKNOWN)
		following = is_concerned() ? FOLLOWING_LEADERSHIP : FOLLOWING_NOTHING;
	if (following == FOLLOWING_LEADERSHIP && !DefaultXactReadOnly && wants_read_only())
		XactReadOnly = true;
}

/*
 * Is it a SET of the default as PgBouncer writes it: without blanks, with quotes,
 * and with a semicolon?  People and drivers write it in other ways, and theirs
 * takes effect.
 */
static bool
is_replay(const PlannedStmt *pstmt, const char *query_string)
{
	static const char *const replays[] = {"SET " DEFAULT_READ_ONLY "='on'",
										  "SET " DEFAULT_READ_ONLY "='off'"};
	const char *statement = query_string + Max(pstmt->stmt_location, 0);

	if (likely(settings_read_only_unless_leader_of[0] == '\0') ||
		!IsA(pstmt->utilityStmt, VariableSetStmt))
		return false;
	for (Size i = 0; i < lengthof(replays); i++)
	{
		/* without a semicolon the length is 0 */
		if (pstmt->stmt_len == (int) strlen(replays[i]) &&
			pg_strncasecmp(statement, replays[i], strlen(replays[i])) == 0)
			return true;
	}
	return false;
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	begin_statement();
	if (is_replay(pstmt, query_string) && following == FOLLOWING_LEADERSHIP)
	{
		ereport(NOTICE,
				(errmsg("\"" DEFAULT_READ_ONLY "\" follows the leadership in this session"),
				 errdetail("A pooler such as PgBouncer sends this SET to repeat an earlier value."),
				 errhint("Use BEGIN READ ONLY, BEGIN READ WRITE, or \"SET " DEFAULT_READ_ONLY " TO "
						 "...\".")));
		(void) set_config_option(DEFAULT_READ_ONLY, NULL, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SET, true, 0, false);
		if (qc)
			SetQueryCompletion(qc, CMDTAG_SET, 0);
		return;
	}
	if (prev_process_utility)
		prev_process_utility(pstmt, query_string, read_only_tree, context, params,
							 query_env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
								query_env, dest, qc);
}

static void
executor_start(QueryDesc *query_desc, int eflags)
{
	begin_statement();
	if (prev_executor_start)
		prev_executor_start(query_desc, eflags);
	else
		standard_ExecutorStart(query_desc, eflags);
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		has_begun = false;
	if (likely(settings_read_only_unless_leader_of[0] == '\0' && !is_read_only))
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (unlikely(following == FOLLOWING_UNKNOWN))
				following = is_concerned() ? FOLLOWING_LEADERSHIP : FOLLOWING_NOTHING;
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			if (following == FOLLOWING_LEADERSHIP)
				follow_leadership();
			break;
		default:
			break;
	}
}

static const struct config_generic *
find_record(const char *name)
{
	int			count;
	struct config_generic **variables = compat_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		if (strcmp(variables[i]->name, name) == 0)
			return variables[i];
	}
	elog(FATAL, "there is no setting \"%s\"", name);
}

void
read_only_install(void)
{
	record = find_record(DEFAULT_READ_ONLY);
	RegisterXactCallback(xact_callback, NULL);
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
