/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  The functions that add and drop hooks, and their privileges.
 *
 * A hook runs as a role.  A user must not gain privileges by it: the user must
 * be able to SET ROLE to that role, and must be a superuser if the role is
 * one.  The table belongs to the owner of the extension.  These functions
 * check that, and then write the table as its owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "hook_register.h"
#include "session/functions.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/notifier_register.h"
#include "shared/shared_state.h"

PG_FUNCTION_INFO_V1(etcd_add_hook);
PG_FUNCTION_INFO_V1(etcd_drop_hook);
PG_FUNCTION_INFO_V1(etcd_leader_hook_changed);

/* ---- telling the launcher ---------------------------------------------- */

/* The slot of this database in the notifier register, once hooks have changed. */
static int	changed_slot = -1;

static void
tell_at_commit(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && changed_slot >= 0)
		hook_register_change(changed_slot);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		changed_slot = -1;
}

/*
 * Trigger of etcd_leader_hook, after each statement that changes it.  In a
 * server that has not preloaded the library there is no launcher to wake.
 */
Datum
etcd_leader_hook_changed(PG_FUNCTION_ARGS)
{
	static bool is_registered = false;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager", "etcd_leader_hook_changed")));
	if (shared_state_is_attached())
	{
		if (!is_registered)
			RegisterXactCallback(tell_at_commit, NULL);
		is_registered = true;
		changed_slot = notifier_register_find(get_database_name(MyDatabaseId));
	}
	return PointerGetDatum(NULL);
}

/* ---- privileges --------------------------------------------------------- */

/* ERROR unless the caller has all privileges of that role. */
static void
check_may_run_as(Oid role)
{
	if (superuser_arg(role) && !superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for a hook of role \"%s\"", GetUserNameFromId(role, false)),
				 errdetail("Only superusers can add and drop hooks of a superuser.")));
	if (!compat_can_set_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for a hook of role \"%s\"", GetUserNameFromId(role, false)),
				 errdetail("The current user must be able to SET ROLE \"%s\".", GetUserNameFromId(role, false))));
}

/* ---- the table ----------------------------------------------------------- */

/* The schema of the extension, quoted; its owner becomes the current user. */
static char *
become_owner(const FmgrInfo *function)
{
	Oid			schema = get_func_namespace(function->fn_oid);
	char	   *name = get_namespace_name(schema);
	Oid			table = get_relname_relid("etcd_leader_hook", schema);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "there is no table etcd_leader_hook in schema %s", name);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	SetUserIdAndSecContext(owner, SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
	return pstrdup(quote_identifier(name));
}

/*
 * Executes a statement about the tables of hooks as their owner, in which @
 * stands for their schema.  How many rows it has processed; the first column of
 * the first row, NULL for none, in *value (in the caller's memory context).
 */
static uint64
execute_as_owner(FunctionCallInfo fcinfo, const char *statement, int nargs, Oid *types, Datum *values, const char *nulls,
				 char **value)
{
	MemoryContext context = CurrentMemoryContext;
	int			nest_level = NewGUCNestLevel();
	Oid			user;
	int			security_context;
	StringInfoData sql;
	char	   *schema;
	uint64		processed;

	GetUserIdAndSecContext(&user, &security_context);
	schema = become_owner(fcinfo->flinfo);
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	initStringInfo(&sql);
	for (const char *c = statement; *c != '\0'; c++)
	{
		if (*c == '@')
			appendStringInfo(&sql, "%s.", schema);
		else
			appendStringInfoChar(&sql, *c);
	}
	SPI_connect();
	if (SPI_execute_with_args(sql.data, nargs, types, values, nulls, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql.data);
	processed = SPI_processed;
	if (value != NULL)
	{
		*value = NULL;
		if (SPI_tuptable != NULL && processed > 0)
			*value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
		if (*value != NULL)
			*value = MemoryContextStrdup(context, *value);
	}
	SPI_finish();
	AtEOXact_GUC(true, nest_level);
	SetUserIdAndSecContext(user, security_context);
	return processed;
}

/* ---- arguments ------------------------------------------------------------ */

static const char *const argument_names[] = {"name", "event", "command", "election", "timeout", "run_as"};

/* ERROR if an argument is NULL. */
static void
check_not_null(FunctionCallInfo fcinfo, int argno)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL", argument_names[argno])));
}

static char *
name_argument(FunctionCallInfo fcinfo, int argno)
{
	char	   *name;

	check_not_null(fcinfo, argno);
	name = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of a hook: \"%s\"", name),
				 errdetail("The name must be 1 to %d bytes long.", NAMEDATALEN - 1)));
	return name;
}

static char *
event_argument(FunctionCallInfo fcinfo, int argno)
{
	char	   *event;

	check_not_null(fcinfo, argno);
	event = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	if (strcmp(event, "elected") != 0 && strcmp(event, "unelected") != 0 && strcmp(event, EVENT_CHANGE_NAME) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid event of a hook: \"%s\"", event),
				 errhint("The event is \"elected\", \"unelected\" or \"change\".")));
	return event;
}

/*
 * The name of the election; of changes there is none, and NULL is the only
 * argument.
 */
static Datum
election_argument(FunctionCallInfo fcinfo, int argno, const char *event, bool *isnull)
{
	*isnull = strcmp(event, EVENT_CHANGE_NAME) == 0;
	if (!*isnull)
	{
		int			election = functions_election_argument(fcinfo, argno);

		return CStringGetTextDatum(shared_state_text(settings_election_name(election)));
	}
	functions_require_preloaded();
	if (!PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("election must be NULL for a hook of the event \"%s\"", EVENT_CHANGE_NAME),
				 errdetail("Changes of other keys are of no election.")));
	return (Datum) 0;
}

/* ERROR if the command is empty, or cannot be parsed. */
static Datum
command_argument(FunctionCallInfo fcinfo, int argno)
{
	check_not_null(fcinfo, argno);
	if (raw_parser(text_to_cstring(PG_GETARG_TEXT_PP(argno)), RAW_PARSE_DEFAULT) == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the command of a hook must not be empty"),
				 errhint("Write one SQL statement or several, separated by semicolons.")));
	return PG_GETARG_DATUM(argno);
}

/* Months and days are of 30 days and 24 hours, as in comparisons. */
static Datum
timeout_argument(FunctionCallInfo fcinfo, int argno)
{
	static const Interval min = {.time = USECS_PER_SEC};
	static const Interval max = {.day = 1};

	check_not_null(fcinfo, argno);
	if (DatumGetBool(DirectFunctionCall2(interval_lt, PG_GETARG_DATUM(argno), IntervalPGetDatum(&min))) ||
		DatumGetBool(DirectFunctionCall2(interval_gt, PG_GETARG_DATUM(argno), IntervalPGetDatum(&max))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid timeout of a hook: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(argno)))),
				 errhint("The timeout must be 1 s to 1 day.")));
	return PG_GETARG_DATUM(argno);
}

/* ---- the functions ---------------------------------------------------------- */

/* Nobody runs the hooks of a database that is not notified. */
static void
warn_if_not_notified(void)
{
	const char *database = get_database_name(MyDatabaseId);
	ListCell   *cell;

	foreach(cell, settings_split(settings_databases))
	{
		if (strcmp(lfirst(cell), database) == 0)
			return;
	}
	ereport(WARNING,
			(errmsg("hooks do not run in database \"%s\"", database),
			 errhint("Add it to \"%s\" and reload the configuration.", "etcd_leader.databases")));
}

/* There are no changes for which a hook could run. */
static void
warn_if_not_watching(void)
{
	if (settings_watched_prefixes[0] == '\0')
		ereport(WARNING,
				(errmsg("no changes are watched"),
				 errhint("Add prefixes of keys to \"%s\" and reload the configuration.", "etcd_leader.watched_prefixes")));
}

/*
 * etcd_add_hook(name text, event text, command text, election text,
 *				 timeout interval, run_as name) returns void
 */
Datum
etcd_add_hook(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INTERVALOID, NAMEOID};
	Datum		values[6];
	char		nulls[] = "      ";
	bool		no_election;
	char	   *event;
	char	   *name;

	functions_require_preloaded();
	event = event_argument(fcinfo, 1);
	values[3] = election_argument(fcinfo, 3, event, &no_election);
	if (no_election)
		nulls[3] = 'n';
	name = name_argument(fcinfo, 0);
	values[0] = CStringGetTextDatum(name);
	values[1] = CStringGetTextDatum(event);
	values[2] = command_argument(fcinfo, 2);
	values[4] = timeout_argument(fcinfo, 4);
	check_not_null(fcinfo, 5);
	values[5] = PG_GETARG_DATUM(5);
	check_may_run_as(get_role_oid(NameStr(*PG_GETARG_NAME(5)), false));

	if (execute_as_owner(fcinfo,
						 "INSERT INTO @etcd_leader_hook (name, event, command, election, timeout, run_as) "
						 "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO NOTHING",
						 lengthof(values), types, values, nulls, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("hook \"%s\" already exists", name),
				 errhint("Drop it first: etcd_drop_hook().")));
	warn_if_not_notified();
	if (no_election)
		warn_if_not_watching();
	PG_RETURN_VOID();
}

/*
 * etcd_drop_hook(name text) returns void
 *
 * A user who could have added a hook can drop it.  If the role is gone, a
 * superuser can.
 */
Datum
etcd_drop_hook(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID};
	Datum		values[1];
	char	   *name;
	char	   *role_name;
	Oid			role;

	functions_require_preloaded();
	name = name_argument(fcinfo, 0);
	values[0] = CStringGetTextDatum(name);
	if (execute_as_owner(fcinfo, "SELECT run_as FROM @etcd_leader_hook WHERE name = $1 FOR UPDATE",
						 1, types, values, NULL, &role_name) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("hook \"%s\" does not exist", name)));
	role = get_role_oid(role_name, true);
	if (OidIsValid(role))
		check_may_run_as(role);
	else if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for a hook of role \"%s\"", role_name),
				 errdetail("The role does not exist, and only superusers can drop such a hook.")));
	(void) execute_as_owner(fcinfo, "DELETE FROM @etcd_leader_hook WHERE name = $1", 1, types, values, NULL, NULL);
	(void) execute_as_owner(fcinfo, "DELETE FROM @etcd_leader_hook_run WHERE hook = $1", 1, types, values, NULL, NULL);
	PG_RETURN_VOID();
}
