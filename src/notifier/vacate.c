/*-------------------------------------------------------------------------
 *
 * vacate.c
 *	  Ends the workers in a database for a statement that needs it for itself:
 *	  DROP DATABASE and its like.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "hooks/hooks.h"
#include "shared/notifier_register.h"
#include "vacate.h"

/* How long a statement waits for a notifier that hangs in its commit. */
#define LEAVE_TIMEOUT_MS	2000

static ProcessUtility_hook_type prev_process_utility = NULL;

static const char *
find_string_option(const List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}

/*
 * The database to which nobody else may be connected while a statement runs
 * (since 19 the server sees to that itself).  NULL: none.
 */
static pg_noinline const char *
vacated_database(Node *statement)
{
	const char *template;

	if (COMPAT_BGWORKER_INTERRUPTIBLE != 0)
		return NULL;
	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			return ((DropdbStmt *) statement)->dbname;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				return ((RenameStmt *) statement)->subname;
			return NULL;
		case T_CreatedbStmt:
			template = find_string_option(((CreatedbStmt *) statement)->options, "template");
			return template ? template : "template1";
		case T_AlterDatabaseStmt:
			if (find_string_option(((AlterDatabaseStmt *) statement)->options, "tablespace"))
				return ((AlterDatabaseStmt *) statement)->dbname;
			return NULL;
		default:
			return NULL;
	}
}

/*
 * May this user run that statement?  A user who may not gets an error, and is
 * no reason to stop a notifier or a hook.
 */
static bool
may_vacate(const Node *statement, const char *database)
{
	Oid			database_id = get_database_oid(database, true);
	bool		allowed = false;
	HeapTuple	tuple;

	if (!OidIsValid(database_id))
		return false;
	/* in its own database a statement fails; but a copy can be made of it */
	if (database_id == MyDatabaseId && !IsA(statement, CreatedbStmt))
		return false;
	if (compat_is_database_owner(database_id, GetUserId()))
		return true;

	/* who may create databases may copy one that is a template */
	if (!IsA(statement, CreatedbStmt))
		return false;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		allowed = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database_id));
	if (HeapTupleIsValid(tuple))
	{
		allowed = allowed && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	return allowed;
}

/* -1 is no notifier. */
static void
unbar_notifier(int code, Datum notifier_slot)
{
	if (DatumGetInt32(notifier_slot) >= 0)
		notifier_register_unbar(DatumGetInt32(notifier_slot));
}

/* If somebody does not leave in time, the statement says that he is connected. */
static void
vacate(const char *database, int notifier_slot)
{
	if (notifier_slot >= 0)
		(void) notifier_register_wait_for_leave(notifier_slot, LEAVE_TIMEOUT_MS);
	hooks_vacate(database);
}

static void
run_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo params,
			QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_process_utility)
		prev_process_utility(pstmt, query_string, read_only_tree, context, params,
							 query_env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
								query_env, dest, qc);
}

/*
 * Without this, a statement about a database would wait for five seconds and
 * fail, because the notifier or a hook is connected to it.  They are back a
 * second or so after the statement, if there is a database to be back in.
 */
static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	const char *database = vacated_database(pstmt->utilityStmt);
	int			slot = database ? notifier_register_find(database) : -1;

	if (database == NULL || !may_vacate(pstmt->utilityStmt, database))
	{
		run_utility(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc);
		return;
	}
	if (slot >= 0)
		notifier_register_bar(slot);
	PG_ENSURE_ERROR_CLEANUP(unbar_notifier, Int32GetDatum(slot));
	{
		vacate(database, slot);
		run_utility(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc);
	}
	PG_END_ENSURE_ERROR_CLEANUP(unbar_notifier, Int32GetDatum(slot));
	unbar_notifier(0, Int32GetDatum(slot));
}

void
vacate_install(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
