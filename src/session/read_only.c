/*-------------------------------------------------------------------------
 *
 * read_only.c
 *	  Sessions that are read-only by default while this instance does not
 *	  lead.
 *
 * Drivers that have a list of hosts look for the one whose sessions are not
 * read-only.  With etcd_leader.read_only_unless_leader this one is the leader.
 * It is a help to find the leader, and protects nothing: a session may change
 * its default, and a transaction may say READ WRITE.
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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
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
	const char *election = settings_read_only_unless_leader;

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

static void
xact_callback(XactEvent event, void *arg)
{
	if (likely(settings_read_only_unless_leader[0] == '\0' && !is_read_only))
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
}
