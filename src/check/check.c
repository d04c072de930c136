/*-------------------------------------------------------------------------
 *
 * check.c
 *	  etcd_leader_check(): the list of problems, after the elector has tried
 *	  everything anew; and what only a session can see.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "catalogs.h"
#include "session/arguments.h"
#include "session/problem_rows.h"
#include "settings/settings.h"
#include "shared/mailbox.h"
#include "shared/state.h"

PG_FUNCTION_INFO_V1(etcd_leader_check);

/* ---- the elector ----------------------------------------------------------- */

static void
ask_elector(FunctionCallInfo fcinfo, int64 until_us)
{
	SharedRequest request = {.command = COMMAND_CHECK};
	SharedReply *reply = palloc(sizeof(SharedReply));
	bool		is_done = mailbox_ask(&request, until_us, reply);

	/* a new value that waits for a restart is no mistake in a file */
	problem_rows_put_list(fcinfo, catalogs_pending_settings());
	if (!is_done && shared_state_has_elector())
		problem_rows_put(fcinfo, PROBLEM_ELECTOR, "", 0,
						 "the elector has not tried everything within the time-out, so the list "
						 "may be old",
						 "Call etcd_leader_check() with a longer time-out. If that does not help, "
						 "see the server log.");
}

/* ---- what only a session can see -------------------------------------------- */

static void
check_database(FunctionCallInfo fcinfo, const char *name)
{
	Oid			oid = get_database_oid(name, true);
	HeapTuple	tuple = OidIsValid(oid) ? SearchSysCache1(DATABASEOID, ObjectIdGetDatum(oid)) :
		NULL;
	bool		accepts = false;

	if (HeapTupleIsValid(tuple))
	{
		accepts = ((Form_pg_database) GETSTRUCT(tuple))->datallowconn;
		ReleaseSysCache(tuple);
	}
	if (!accepts)
		problem_rows_put(fcinfo, PROBLEM_DATABASE, name, 0,
						 psprintf(HeapTupleIsValid(tuple) ?
								  "database \"%s\" does not accept connections" :
								  "database \"%s\" does not exist", name),
						 HeapTupleIsValid(tuple) ?
						 "Allow connections to it, or remove it from "
						 "\"etcd_leader.notify_databases\"." :
						 "Create it, or remove it from \"etcd_leader.notify_databases\".");
}

/* Libraries that come before this one do things at the commit after the last check. */
static void
check_preload(FunctionCallInfo fcinfo)
{
	List	   *libraries;
	const char *first;

	if (!SplitDirectoriesString(pstrdup(shared_preload_libraries_string), ',', &libraries) ||
		libraries == NIL)
		return;
	first = last_dir_separator(linitial(libraries));
	first = first != NULL ? first + 1 : linitial(libraries);
	if (strcmp(first, "etcd_leader") != 0 && strcmp(first, "etcd_leader" DLSUFFIX) != 0)
		problem_rows_put(fcinfo, PROBLEM_PRELOAD, "", 0,
						 "etcd_leader is not the first library in \"shared_preload_libraries\"",
						 "Put etcd_leader first: libraries before it do things at commit after its "
						 "last check.");
}

/* Names that instances get if nobody gives them one. */
static void
check_node_name(FunctionCallInfo fcinfo)
{
	static const char *const common[] = {
		"main", "postgres", "postgresql", "localhost", "localhost.localdomain"
	};
	char		name[ELECTION_VALUE_SIZE];
	size_t		len;
	bool		is_common = false;

	settings_resolve_node_name(name, sizeof(name));
	len = strcspn(name, ":");
	for (int i = 0; i < (int) lengthof(common); i++)
		is_common |= strlen(common[i]) == len && strncmp(name, common[i], len) == 0;
	/* Debian's name of a cluster */
	is_common |= strspn(name, "0123456789") > 0 &&
		strcmp(name + strspn(name, "0123456789"), "/main") == 0;
	if (is_common)
		problem_rows_put(fcinfo, PROBLEM_COMMON_NAME, name, 0,
						 psprintf("other instances are likely to be named \"%s\", too", name),
						 "Set \"etcd_leader.node_name\" to a name that no other instance has.");
}

/*
 * etcd_leader_check(timeout interval) returns table (item, subject, severity,
 * problem, hint, since)
 */
Datum
etcd_leader_check(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	arguments_require_preloaded();
	problem_rows_begin(fcinfo);
	ask_elector(fcinfo, arguments_get_timeout(fcinfo, 0));
	foreach(cell, settings_split(settings_notify_databases))
		check_database(fcinfo, lfirst(cell));
	check_preload(fcinfo);
	check_node_name(fcinfo);
	catalogs_put_problems(fcinfo);
	return (Datum) 0;
}
