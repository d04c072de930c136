/*-------------------------------------------------------------------------
 *
 * check.c
 *	  What etcd_leader_check() cannot find out by SQL.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"

#include "catalog/pg_type.h"

#include "session/arguments.h"
#include "session/rows.h"

PG_FUNCTION_INFO_V1(etcd_leader_check_server);

static const Oid check_columns[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID};

/*
 * etcd_leader_check_server(timeout interval) returns table (item, subject,
 * status, detail, hint)
 */
Datum
etcd_leader_check_server(PG_FUNCTION_ARGS)
{
	arguments_require_preloaded();
	ROWS_BEGIN(check_columns);
	check_etcd(fcinfo, arguments_get_timeout(fcinfo, 0));
	check_host(fcinfo);
	return (Datum) 0;
}
