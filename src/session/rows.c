/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  The rows that functions return.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/utf8.h"
#include "rows.h"

void
rows_begin(FunctionCallInfo fcinfo, const Oid *columns, int ncolumns)
{
	TupleDesc	desc;
	bool		matches;

	InitMaterializedSRF(fcinfo, 0);
	desc = ((ReturnSetInfo *) fcinfo->resultinfo)->setDesc;
	matches = desc->natts == ncolumns;
	for (int i = 0; matches && i < ncolumns; i++)
		matches = TupleDescAttr(desc, i)->atttypid == columns[i];
	if (!matches)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("SQL objects of extension \"etcd_leader\" do not match the loaded library"),
				 errdetail("The library, of version %s, fills in other columns than \"%s\" "
						   "returns.",
						   ETCD_LEADER_VERSION, get_func_name(fcinfo->flinfo->fn_oid)),
				 errhint("If the library is the newer one, run ALTER EXTENSION etcd_leader UPDATE. "
						 "Otherwise restart the server to load the library that is installed "
						 "now.")));
}

void
row_add(Row *row, Datum value, bool is_null)
{
	Assert(row->ncolumns < ROW_MAX_COLUMNS);
	row->values[row->ncolumns] = value;
	row->nulls[row->ncolumns++] = is_null;
}

void
row_add_value(Row *row, Datum value)
{
	row_add(row, value, false);
}

void
row_add_text(Row *row, const char *utf8)
{
	bool		is_null = utf8 == NULL || utf8[0] == '\0';

	row_add(row, is_null ? (Datum) 0 : CStringGetTextDatum(utf8_to_server(utf8)), is_null);
}

void
row_add_number(Row *row, int64 number)
{
	row_add(row, Int64GetDatum(number), number == 0);
}

void
row_add_time(Row *row, TimestampTz at)
{
	row_add(row, TimestampTzGetDatum(at), at == 0);
}

void
row_add_interval(Row *row, int64 us)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = us;
	row_add(row, IntervalPGetDatum(interval), us == 0);
}

void
row_add_id(Row *row, uint64 id)
{
	char		hex[17];

	snprintf(hex, sizeof(hex), "%llx", (unsigned long long) id);
	row_add_text(row, id == 0 ? NULL : hex);
}

void
row_put(FunctionCallInfo fcinfo, Row *row)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(row->ncolumns == rsinfo->setDesc->natts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
	row->ncolumns = 0;
}
