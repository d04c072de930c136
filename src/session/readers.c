/*-------------------------------------------------------------------------
 *
 * readers.c
 *	  The SQL functions that read shared memory.
 *
 * They wait for nothing.  wait.c has the functions that wait, commands.c those
 * that ask the elector.
 *
 * The SQL objects can be of an older version than the library, until ALTER
 * EXTENSION UPDATE: a function whose arguments change gets a new name here,
 * and the old one stays.  That its columns change is noticed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/utf8.h"
#include "fence/fence.h"
#include "rows.h"
#include "settings/settings.h"
#include "shared/notifier_register.h"
#include "shared/state.h"
#include "shared/stats.h"
#include "shared/status.h"

PG_FUNCTION_INFO_V1(etcd_is_leader);
PG_FUNCTION_INFO_V1(etcd_current_leader);
PG_FUNCTION_INFO_V1(etcd_fencing_token);
PG_FUNCTION_INFO_V1(etcd_require_leader);
PG_FUNCTION_INFO_V1(etcd_leader_status);
PG_FUNCTION_INFO_V1(etcd_leader_endpoints);
PG_FUNCTION_INFO_V1(etcd_leader_stats);
PG_FUNCTION_INFO_V1(etcd_leader_losses);
PG_FUNCTION_INFO_V1(etcd_leader_stats_reset);
PG_FUNCTION_INFO_V1(etcd_leader_check_version);

/* The columns of the functions that return rows, as the SQL script has them. */
static const Oid status_columns[] = {
	TEXTOID, TEXTOID, TEXTOID, BOOLOID, TEXTOID, INT8OID, TIMESTAMPTZOID, INTERVALOID,
	TEXTOID, TEXTOID, INT8OID, TEXTOID, INTERVALOID, TEXTOID, TEXTOID, TEXTOID, BOOLOID,
	TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID
};
static const Oid endpoints_columns[] = {
	TEXTOID, BOOLOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, FLOAT8OID, TEXTOID
};
static const Oid stats_columns[] = {
	INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
	INT8OID, INT8OID, INT8OID, FLOAT8OID, FLOAT8OID, INT8OID,
	INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, INT4OID, TEXTOID, TIMESTAMPTZOID
};
static const Oid losses_columns[] = {TEXTOID, INT8OID};

StaticAssertDecl(lengthof(stats_columns) <= ROW_MAX_COLUMNS, "statistics do not fit into a row");

/*
 * etcd_is_leader(election text) returns boolean
 */
Datum
etcd_is_leader(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(fence_leads(arguments_get_election(fcinfo, 0)));
}

/*
 * etcd_current_leader(election text) returns text
 */
Datum
etcd_current_leader(PG_FUNCTION_ARGS)
{
	const char *leader = status_current_leader(arguments_get_election(fcinfo, 0));

	if (leader == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(leader));
}

/*
 * etcd_fencing_token(election text) returns bigint
 */
Datum
etcd_fencing_token(PG_FUNCTION_ARGS)
{
	int64		token = fence_token(arguments_get_election(fcinfo, 0));

	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

/*
 * etcd_require_leader(election text) returns bigint
 */
Datum
etcd_require_leader(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(fence_require(arguments_get_election(fcinfo, 0)));
}

/*
 * etcd_leader_status() returns setof record: a row per election
 */
Datum
etcd_leader_status(PG_FUNCTION_ARGS)
{
	Row			row = {0};

	arguments_require_preloaded();
	ROWS_BEGIN(status_columns);
	for (int i = 0; i < settings_election_count(); i++)
	{
		EtcdLeaderStatus status;

		status_read_row(i, &status);
		row_add_text(&row, status.election);
		row_add_text(&row, status.node);
		row_add_text(&row, status.role);
		row_add_value(&row, BoolGetDatum(status.is_leader));
		/* the name of a leader may be empty */
		row_add(&row, CStringGetTextDatum(utf8_to_server(status.leader)),
				status.fencing_token == 0);
		row_add_number(&row, status.fencing_token);
		row_add_time(&row, status.leader_since);
		row_add_interval(&row, status.valid_for_us);
		row_add_id(&row, status.lease_id);
		row_add_text(&row, status.key);
		row_add_number(&row, status.create_revision);
		row_add_text(&row, status.state);
		row_add_interval(&row, status.ttl_ms * INT64CONST(1000));
		row_add_text(&row, status.endpoint);
		row_add_text(&row, status.protocol);
		row_add_id(&row, status.cluster_id);
		row_add_value(&row, BoolGetDatum(status.connected));
		row_add_time(&row, status.last_contact);
		row_add_text(&row, status.last_error);
		row_add_time(&row, status.last_error_at);
		row_add_value(&row, Int64GetDatum(status.won));
		row_add_value(&row, Int64GetDatum(status.lost));
		row_put(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * etcd_leader_endpoints() returns setof record: a row per endpoint
 */
Datum
etcd_leader_endpoints(PG_FUNCTION_ARGS)
{
	Row			row = {0};
	SharedEndpoints *shared = palloc(sizeof(SharedEndpoints));

	arguments_require_preloaded();
	ROWS_BEGIN(endpoints_columns);
	shared_state_read_endpoints(shared);
	for (int i = 0; i < shared->nendpoints; i++)
	{
		const SharedEndpoint *endpoint = &shared->endpoints[i];

		row_add_text(&row, endpoint->url);
		row_add_value(&row, BoolGetDatum(endpoint->in_use && shared_state_has_elector()));
		row_add_text(&row, endpoint->version);
		row_add_id(&row, endpoint->cluster_id);
		row_add_text(&row, endpoint->member_name);
		row_add_time(&row, endpoint->last_contact);
		row_add(&row, Float8GetDatum((double) endpoint->latency_ns / NSEC_PER_MSEC),
				endpoint->last_contact == 0);
		row_add_text(&row, endpoint->last_error);
		row_put(fcinfo, &row);
	}
	return (Datum) 0;
}

/* The latencies of etcd's answers: greatest, sum and number. */
static void
add_latencies(Row *row)
{
	int64		answers = stats_counter(COUNTER_ANSWERS);

	row_add(row, Float8GetDatum((double) stats_counter(COUNTER_LATENCY_NS_MAX) / NSEC_PER_MSEC),
			answers == 0);
	row_add_value(row, Float8GetDatum((double) stats_counter(COUNTER_LATENCY_NS_SUM) /
									  NSEC_PER_MSEC));
	row_add_value(row, Int64GetDatum(answers));
}

/*
 * etcd_leader_stats() returns setof record: one row
 */
Datum
etcd_leader_stats(PG_FUNCTION_ARGS)
{
	Row			row = {0};
	int64		losses = 0;

	arguments_require_preloaded();
	ROWS_BEGIN(stats_columns);

	for (SharedCounter counter = COUNTER_REQUESTS; counter <= COUNTER_ELECTIONS_WON; counter++)
		row_add_value(&row, Int64GetDatum(stats_counter(counter)));
	for (int reason = ELECTION_REASON_RESIGNED; reason <= ELECTION_REASON_HISTORY_CHANGED; reason++)
		losses += stats_counter(COUNTER_ELECTIONS_LOST + reason);
	row_add_value(&row, Int64GetDatum(losses));
	row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_NOTIFICATIONS_SENT)));
	row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_NOTIFICATIONS_FAILED)));

	add_latencies(&row);
	row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_COMMITS_REFUSED)));
	row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_STATEMENTS_CANCELLED)));
	row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_DRAINS)));
	row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_TRANSACTIONS_REFUSED)));
	row_add_value(&row, Int32GetDatum(notifier_register_expected()));
	row_add_value(&row, Int32GetDatum(notifier_register_running()));
	row_add_text(&row, ETCD_LEADER_VERSION);
	row_add_time(&row, stats_reset_at());
	row_put(fcinfo, &row);
	return (Datum) 0;
}

/*
 * etcd_leader_losses() returns setof record: a row per reason
 */
Datum
etcd_leader_losses(PG_FUNCTION_ARGS)
{
	Row			row = {0};

	arguments_require_preloaded();
	ROWS_BEGIN(losses_columns);

	for (int reason = ELECTION_REASON_RESIGNED; reason <= ELECTION_REASON_HISTORY_CHANGED; reason++)
	{
		row_add_text(&row, election_reason_name(reason));
		row_add_value(&row, Int64GetDatum(stats_counter(COUNTER_ELECTIONS_LOST + reason)));
		row_put(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * etcd_leader_stats_reset() returns void
 */
Datum
etcd_leader_stats_reset(PG_FUNCTION_ARGS)
{
	arguments_require_preloaded();
	stats_reset();
	PG_RETURN_VOID();
}

/* ---- versions ------------------------------------------------------------ */

/* "major.minor" as a number to compare. */
static int
version_number(const char *version)
{
	int			major = 0;
	int			minor = 0;

	(void) sscanf(version, "%d.%d", &major, &minor);
	return major * 1000 + minor;
}

/*
 * etcd_leader_check_version(version text) returns void: called first by every
 * script of the extension.  ERROR if the library is too old for the SQL
 * objects of the script.  After an upgrade of the package the old library
 * stays loaded until the server is restarted.
 */
Datum
etcd_leader_check_version(PG_FUNCTION_ARGS)
{
	const char *version = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if (version_number(ETCD_LEADER_VERSION) < version_number(version))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the etcd_leader library that is loaded is version %s, but the script "
						"requires version %s",
						ETCD_LEADER_VERSION, version),
				 errhint("Make sure that etcd_leader %s is installed, and restart the server to "
						 "load its library.",
						 version)));
	PG_RETURN_VOID();
}
