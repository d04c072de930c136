/*-------------------------------------------------------------------------
 *
 * catalogs.c
 *	  The problems that the catalogs of this database show.
 *
 * A superuser may run these queries, and other roles may create objects in the
 * schemas of search_path.  An operator or a function there that fits the types better
 * would run as the superuser.  So each query runs with pg_catalog alone in the path.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "catalogs.h"
#include "session/problem_rows.h"
#include "settings/settings.h"

/* Reads a row of a query.  The columns are text in UTF-8; NULL is null. */
typedef void (*RowReader) (void *arg, char **columns);

#define MAX_COLUMNS	3

static void
read_rows(const char *query, RowReader read, void *arg)
{
	char	   *columns[MAX_COLUMNS];
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "a query of the catalogs returned no rows");
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		for (int i = 0; i < Min(SPI_tuptable->tupdesc->natts, MAX_COLUMNS); i++)
		{
			char	   *value = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, i + 1);

			columns[i] = value == NULL ? NULL :
				pg_server_to_any(value, (int) strlen(value), PG_UTF8);
		}
		read(arg, columns);
	}
	SPI_finish();
	AtEOXact_GUC(true, nest_level);
}

/* ---- the version of the SQL objects ------------------------------------------ */

static const char version_query[] =
	"SELECT extversion FROM pg_extension WHERE extname = 'etcd_leader'";

static void
put_version(void *arg, char **columns)
{
	if (strcmp(columns[0], ETCD_LEADER_VERSION) != 0)
		problem_rows_put(arg, PROBLEM_SQL_VERSION, NULL, 0,
						 psprintf("the library has version %s, and the SQL objects %s",
								  ETCD_LEADER_VERSION, columns[0]),
						 "If the library is the newer one, run ALTER EXTENSION etcd_leader UPDATE. "
						 "Otherwise restart the server.");
}

/* ---- the schema of the extension ----------------------------------------------- */

/*
 * The schema; the roles that may create in it, apart from superusers and owners; and
 * whether any such role may use it.
 */
static const char schema_query[] =
	"SELECT nspname,"
	" CASE WHEN has_schema_privilege('public', n.oid, 'create') THEN 'PUBLIC' ELSE"
	"  (SELECT string_agg(CASE WHEN i > 5 THEN '...' ELSE rolname::text END, ', ' ORDER BY i) FROM"
	"   (SELECT rolname, row_number() OVER (ORDER BY rolname) AS i FROM pg_roles"
	"    WHERE NOT rolsuper AND oid <> extowner AND rolname !~ '^pg_'"
	"     AND has_schema_privilege(oid, n.oid, 'create') LIMIT 6) AS few) END,"
	" CASE WHEN has_schema_privilege('public', n.oid, 'usage') OR EXISTS"
	"  (SELECT FROM pg_roles WHERE NOT rolsuper AND oid <> extowner AND rolname !~ '^pg_'"
	"   AND has_schema_privilege(oid, n.oid, 'usage')) THEN 'usable' END"
	" FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace"
	" WHERE extname = 'etcd_leader'";

static void
put_schema(void *arg, char **columns)
{
	const char *schema = columns[0];
	const char *creators = columns[1];
	bool		is_usable = columns[2] != NULL;

	if (creators != NULL)
		problem_rows_put(arg, PROBLEM_SCHEMA, schema, 0,
						 psprintf("%s may create functions in the schema, and calls that mean "
								  "those of the extension can reach these", creators),
						 "Move the extension to a schema of its own by ALTER EXTENSION etcd_leader "
						 "SET SCHEMA, or revoke CREATE on the schema.");
	if (!is_usable)
		problem_rows_put(arg, PROBLEM_SCHEMA, schema, 0,
						 "only superusers and owners may use the schema: for all others the "
						 "functions do not exist",
						 psprintf("Run: GRANT USAGE ON SCHEMA %s TO PUBLIC",
								  quote_identifier(schema)));
}

/* ---- elections of roles and databases --------------------------------------------- */

/* Each role and database that has the setting, and the election that it names. */
static const char required_query[] =
	"SELECT concat_ws(' in ',"
	"  CASE WHEN setrole <> 0 THEN format('role %s', coalesce(rolname::text, setrole::text)) END,"
	"  CASE WHEN setdatabase <> 0"
	"   THEN format('database %s', coalesce(datname::text, setdatabase::text)) END),"
	" regexp_replace(config, '^[^=]*=', '')"
	" FROM (SELECT setrole, setdatabase, unnest(setconfig) AS config FROM pg_db_role_setting) AS s"
	"  LEFT JOIN pg_roles AS r ON r.oid = setrole LEFT JOIN pg_database AS d ON d.oid = setdatabase"
	" WHERE config ~ '^etcd_leader[.]require_leadership_of=.'";

static void
put_required(void *arg, char **columns)
{
	if (settings_election_index(columns[1], (int) strlen(columns[1])) < 0)
		problem_rows_put(arg, PROBLEM_REQUIRE_LEADERSHIP, columns[0], 0,
						 psprintf("election \"%s\" is not in etcd_leader.elections, so every "
								  "write fails", columns[1]),
						 "Correct the setting by ALTER ROLE or ALTER DATABASE, or add the election "
						 "to etcd_leader.elections.");
}

void
catalogs_put_problems(FunctionCallInfo fcinfo)
{
	read_rows(version_query, put_version, fcinfo);
	read_rows(schema_query, put_schema, fcinfo);
	read_rows(required_query, put_required, fcinfo);
}

/* ---- settings that wait for a restart ------------------------------------------------ */

typedef struct SettingList
{
	MemoryContext context;		/* outlives the query */
	List	   *names;
} SettingList;

static void
add_setting(void *arg, char **columns)
{
	SettingList *list = arg;
	MemoryContext old = MemoryContextSwitchTo(list->context);

	list->names = lappend(list->names, pstrdup(columns[0]));
	MemoryContextSwitchTo(old);
}

List *
catalogs_pending_settings(void)
{
	SettingList list = {.context = CurrentMemoryContext};

	read_rows("SELECT name FROM pg_settings WHERE pending_restart", add_setting, &list);
	return list.names;
}
