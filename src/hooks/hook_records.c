/*-------------------------------------------------------------------------
 *
 * hook_records.c
 *	  The tables of hooks and of their runs, for the hook launcher.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "hook_records.h"

/* At most so many runs are kept, of changes and of all others each. */
#define KEPT_RUNS	"1000"

static const char *const event_names[] = {
	[HOOK_UNELECTED] = "unelected",
	[HOOK_ELECTED] = "elected",
	[HOOK_CHANGE] = "change"
};

/* The schema of the extension, quoted; as of this transaction. */
static char *schema = NULL;

/* ---- SPI ------------------------------------------------------------- */

/*
 * Executes a statement, in which @ stands for the schema of the extension.
 * ERROR if it does not end as it should.
 */
static void
execute(int expected, const char *statement, int nargs, Oid *types, Datum *values, const char *nulls)
{
	StringInfoData sql;
	int			result;

	initStringInfo(&sql);
	for (const char *c = statement; *c != '\0'; c++)
	{
		if (*c == '@')
			appendStringInfo(&sql, "%s.", schema);
		else
			appendStringInfoChar(&sql, *c);
	}
	result = SPI_execute_with_args(sql.data, nargs, types, values, nulls, false, 0);
	if (result != expected)
		elog(ERROR, "unexpected result of \"%s\": %s", sql.data, SPI_result_code_string(result));
	pfree(sql.data);
}

/* A column of a row of the result, as text; NULL if it is null. */
static char *
result_text(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
}

static Datum
result_datum(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

/* ---- hooks ----------------------------------------------------------- */

/* They are the extension's own: anybody may make tables of these names. */
bool
hook_records_find(void)
{
	schema = NULL;
	execute(SPI_OK_SELECT,
			"SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
			"WHERE e.extname = 'etcd_leader' AND (SELECT count(*) FROM pg_class c JOIN pg_depend d ON d.objid = c.oid "
			"AND d.classid = 'pg_class'::regclass AND d.refobjid = e.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' "
			"WHERE c.relnamespace = n.oid AND c.relname IN ('etcd_leader_hook', 'etcd_leader_hook_run')) = 2",
			0, NULL, NULL, NULL);
	if (SPI_processed == 0)
		return false;
	schema = result_text(0, 1);
	return true;
}

bool
hook_records_have_hooks(void)
{
	execute(SPI_OK_SELECT, "SELECT FROM @etcd_leader_hook LIMIT 1", 0, NULL, NULL, NULL);
	return SPI_processed > 0;
}

List *
hook_records_elections(void)
{
	List	   *elections = NIL;

	execute(SPI_OK_SELECT, "SELECT DISTINCT election FROM @etcd_leader_hook WHERE election IS NOT NULL", 0, NULL, NULL, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
		elections = lappend(elections, result_text(i, 1));
	return elections;
}

bool
hook_records_is_enabled(const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};

	execute(SPI_OK_SELECT, "SELECT FROM @etcd_leader_hook WHERE name = $1 AND enabled", 1, types, values, NULL);
	return SPI_processed > 0;
}

#define HOOK_COLUMNS	"name, command, run_as, (extract(epoch FROM timeout) * 1000)::int, xmin"

/* The rows of these columns, DueHook *. */
static List *
result_hooks(void)
{
	List	   *hooks = NIL;

	for (uint64 i = 0; i < SPI_processed; i++)
	{
		DueHook    *hook = palloc0(sizeof(DueHook));
		bool		isnull;

		hook->name = result_text(i, 1);
		hook->command = result_text(i, 2);
		hook->role = result_text(i, 3);
		hook->timeout_ms = DatumGetInt32(result_datum(i, 4, &isnull));
		hook->version = DatumGetTransactionId(result_datum(i, 5, &isnull));
		hooks = lappend(hooks, hook);
	}
	return hooks;
}

List *
hook_records_due(const char *election, const HookPhase *phase)
{
	/*
	 * Elected: done when it has succeeded under the token since hooks that
	 * may have undone it.  Unelected: done when it was tried.
	 */
	static const char *const statements[] = {
		[HOOK_ELECTED] =
		"SELECT " HOOK_COLUMNS " FROM @etcd_leader_hook h "
		"WHERE enabled AND event = 'elected' AND election = $1 AND NOT EXISTS (SELECT FROM @etcd_leader_hook_run r "
		"WHERE r.hook = h.name AND r.event = 'elected' AND r.election = $1 AND r.fencing_token = $2 AND "
		"(r.status = 'running' OR r.status = 'succeeded' AND r.started_at > coalesce((SELECT max(u.started_at) "
		"FROM @etcd_leader_hook_run u WHERE u.event = 'unelected' AND u.election = $1 AND u.status <> 'waiting'), '-infinity'))) "
		"AND $3 IS NOT NULL ORDER BY name COLLATE \"C\"",
		[HOOK_UNELECTED] =
		"SELECT " HOOK_COLUMNS " FROM @etcd_leader_hook h "
		"WHERE enabled AND event = 'unelected' AND election = $1 AND NOT EXISTS (SELECT FROM @etcd_leader_hook_run r "
		"WHERE r.hook = h.name AND r.event = 'unelected' AND r.election = $1 AND r.fencing_token IS NOT DISTINCT FROM nullif($2, 0) "
		"AND r.started_at > $3 AND r.status IN ('running', 'succeeded', 'failed')) ORDER BY name COLLATE \"C\""
	};
	Oid			types[] = {TEXTOID, INT8OID, TIMESTAMPTZOID};
	Datum		values[] = {
		CStringGetTextDatum(election), Int64GetDatum(phase->token),
		TimestampTzGetDatum(phase->token == 0 ? phase->after : DT_NOBEGIN)
	};

	execute(SPI_OK_SELECT, statements[phase->event], 3, types, values, NULL);
	return result_hooks();
}

List *
hook_records_of_changes(void)
{
	execute(SPI_OK_SELECT, "SELECT " HOOK_COLUMNS " FROM @etcd_leader_hook "
			"WHERE enabled AND event = 'change' ORDER BY name COLLATE \"C\"", 0, NULL, NULL, NULL);
	return result_hooks();
}

/* ---- runs ------------------------------------------------------------ */

TimestampTz
hook_records_last_start(void)
{
	bool		isnull;
	Datum		last;

	execute(SPI_OK_SELECT, "SELECT max(started_at) FROM @etcd_leader_hook_run", 0, NULL, NULL, NULL);
	last = result_datum(0, 1, &isnull);
	return isnull ? 0 : DatumGetTimestampTz(last);
}

void
hook_records_insert(const char *hook, const char *election, const HookPhase *phase,
					TimestampTz started_at, const char *status, const char *message)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID};
	Datum		values[] = {
		CStringGetTextDatum(hook),
		CStringGetTextDatum(election ? election : ""),
		CStringGetTextDatum(event_names[phase->event]),
		Int64GetDatum(phase->token),
		TimestampTzGetDatum(started_at),
		CStringGetTextDatum(status),
		CStringGetTextDatum(message ? message : "")
	};

	execute(SPI_OK_INSERT,
			"INSERT INTO @etcd_leader_hook_run (hook, election, event, fencing_token, started_at, status, message) "
			"VALUES ($1, nullif($2, ''), $3, nullif($4, 0), $5, $6, nullif($7, ''))",
			7, types, values, NULL);
}

static Datum
make_array(Datum *elements, int n, Oid type)
{
	int16		len;
	bool		by_value;
	char		align;

	get_typlenbyvalalign(type, &len, &by_value, &align);
	return PointerGetDatum(construct_array(elements, n, type, len, by_value, align));
}

/* A hook that has been dropped gets no more records. */
void
hook_records_insert_changes(const char *hook, const HookChange *changes, int nchanges,
							const char *status, const char *message)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, TEXTOID, TEXTOID};
	Datum		values[lengthof(types)];
	Datum	   *started = palloc(nchanges * sizeof(Datum));
	Datum	   *ended = palloc(nchanges * sizeof(Datum));
	Datum	   *revisions = palloc(nchanges * sizeof(Datum));

	for (int i = 0; i < nchanges; i++)
	{
		started[i] = TimestampTzGetDatum(changes[i].started_at);
		ended[i] = TimestampTzGetDatum(changes[i].ended_at);
		revisions[i] = Int64GetDatum(changes[i].revision);
	}
	values[0] = CStringGetTextDatum(hook);
	values[1] = make_array(started, nchanges, TIMESTAMPTZOID);
	values[2] = make_array(ended, nchanges, TIMESTAMPTZOID);
	values[3] = make_array(revisions, nchanges, INT8OID);
	values[4] = CStringGetTextDatum(status);
	values[5] = CStringGetTextDatum(message ? message : "");
	execute(SPI_OK_INSERT,
			"INSERT INTO @etcd_leader_hook_run (hook, event, started_at, ended_at, revision, status, message) "
			"SELECT $1, 'change', s, nullif(e, 'infinity'), nullif(r, 0), $5, nullif($6, '') FROM unnest($2, $3, $4) AS u(s, e, r) "
			"WHERE EXISTS (SELECT FROM @etcd_leader_hook h WHERE h.name = $1)",
			lengthof(types), types, values, NULL);
}

void
hook_records_delete_running(const char *hook)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(hook)};

	execute(SPI_OK_DELETE, "DELETE FROM @etcd_leader_hook_run WHERE hook = $1 AND status = 'running'", 1, types, values, NULL);
}

void
hook_records_end(const char *hook, TimestampTz started_at, const char *status, const char *message)
{
	Oid			types[] = {TEXTOID, TIMESTAMPTZOID, TEXTOID, TEXTOID};
	Datum		values[] = {
		CStringGetTextDatum(hook),
		TimestampTzGetDatum(started_at),
		CStringGetTextDatum(status),
		CStringGetTextDatum(message)
	};

	execute(SPI_OK_UPDATE,
			"UPDATE @etcd_leader_hook_run SET ended_at = greatest(clock_timestamp(), started_at), status = $3, message = nullif($4, '') "
			"WHERE hook = $1 AND started_at = $2",
			4, types, values, NULL);
}

void
hook_records_close_unfinished(void)
{
	hook_records_delete_waiting();
	execute(SPI_OK_UPDATE,
			"UPDATE @etcd_leader_hook_run SET ended_at = greatest(clock_timestamp(), started_at), status = 'cancelled', "
			"message = 'the server, or the process that starts hooks, ended before the run did' WHERE ended_at IS NULL",
			0, NULL, NULL, NULL);
}

void
hook_records_delete_waiting(void)
{
	execute(SPI_OK_DELETE, "DELETE FROM @etcd_leader_hook_run WHERE status = 'waiting'", 0, NULL, NULL, NULL);
}

/* Runs of hooks that do not exist any more are all deleted, and do not count. */
#define HOOK_EXISTS		"EXISTS (SELECT FROM @etcd_leader_hook h WHERE h.name = r.hook)"
#define NEWEST_TO_GO(condition) \
	"(SELECT started_at FROM @etcd_leader_hook_run r WHERE " condition " AND " HOOK_EXISTS " ORDER BY started_at DESC OFFSET " KEPT_RUNS " LIMIT 1)"

void
hook_records_prune(void)
{
	execute(SPI_OK_DELETE,
			"DELETE FROM @etcd_leader_hook_run r WHERE ended_at IS NOT NULL AND (NOT " HOOK_EXISTS " OR "
			"started_at <= CASE WHEN event = 'change' THEN " NEWEST_TO_GO("event = 'change'") " ELSE " NEWEST_TO_GO("event <> 'change'") " END "
			"AND (hook, started_at) NOT IN (SELECT hook, max(started_at) FROM @etcd_leader_hook_run WHERE status = 'succeeded' GROUP BY hook))",
			0, NULL, NULL, NULL);
}
