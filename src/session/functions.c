/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  The functions that SQL calls, and those behind the views.
 *
 * Functions that only read use shared memory and wait for nothing.  Functions
 * that ask etcd do so through the elector's mailbox.
 *
 * The SQL objects can be of an older version than the library, until ALTER
 * EXTENSION UPDATE: a function whose arguments change gets a new name here,
 * and the old one stays.  That its columns change is noticed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "nodes/parsenodes.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/compat.h"
#include "fence/fence.h"
#include "functions.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/mailbox.h"
#include "shared/notifier_register.h"
#include "shared/shared_state.h"
#include "shared/stats.h"
#include "shared/status.h"

#define MAX_COLUMNS 32

/*
 * How long to ask etcd after a resignation whether there is another candidate.
 */
#define SUCCESSOR_TIMEOUT_US	INT64CONST(500000)

PG_FUNCTION_INFO_V1(etcd_is_leader);
PG_FUNCTION_INFO_V1(etcd_current_leader);
PG_FUNCTION_INFO_V1(etcd_fencing_token);
PG_FUNCTION_INFO_V1(etcd_require_leader);
PG_FUNCTION_INFO_V1(etcd_verify_leader);
PG_FUNCTION_INFO_V1(etcd_wait_for_leadership);
PG_FUNCTION_INFO_V1(etcd_leader_events);
PG_FUNCTION_INFO_V1(etcd_wait_for_event);
PG_FUNCTION_INFO_V1(etcd_await_leadership);
PG_FUNCTION_INFO_V1(etcd_await_event);
PG_FUNCTION_INFO_V1(etcd_resign);
PG_FUNCTION_INFO_V1(etcd_campaign);
PG_FUNCTION_INFO_V1(etcd_proclaim);
PG_FUNCTION_INFO_V1(etcd_transfer);
PG_FUNCTION_INFO_V1(etcd_candidates);
PG_FUNCTION_INFO_V1(etcd_leader_status);
PG_FUNCTION_INFO_V1(etcd_leader_stats);
PG_FUNCTION_INFO_V1(etcd_leader_stats_reset);
PG_FUNCTION_INFO_V1(etcd_leader_check_version);

/* The columns of the functions that return rows, as the SQL script has them. */
static const Oid event_columns[] = {
	INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TEXTOID,
	TEXTOID, TEXTOID, INT8OID
};
static const Oid status_columns[] = {
	TEXTOID, TEXTOID, TEXTOID, BOOLOID, TEXTOID, INT8OID, TIMESTAMPTZOID, INTERVALOID,
	TEXTOID, TEXTOID, INT8OID, TEXTOID, TEXTOID, BOOLOID, TIMESTAMPTZOID, TEXTOID,
	TIMESTAMPTZOID, INT8OID, INT8OID
};
static const Oid stats_columns[] = {
	INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
	INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
	INT8OID, INT8OID, INT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID, INT8OID, INT8OID,
	INT8OID, INT4OID, INT4OID, TEXTOID, TIMESTAMPTZOID
};
static const Oid candidate_columns[] = {
	INT4OID, TEXTOID, BOOLOID, BOOLOID, TEXTOID, TEXTOID, INT8OID
};

/* A row under construction. */
typedef struct Row
{
	int			ncolumns;
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
} Row;

/* ---- arguments --------------------------------------------------------- */

static inline void
require_preloaded(void)
{
	if (unlikely(!shared_state_is_attached()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("etcd_leader must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"etcd_leader\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));
}

void
functions_require_preloaded(void)
{
	require_preloaded();
}

/* The index of a named election; ERROR if this session's settings lack it. */
static int
named_election(text *name)
{
	char	   *str = VARDATA_ANY(name);
	int			len = (int) VARSIZE_ANY_EXHDR(name);
	char	   *utf8 = pg_server_to_any(str, len, PG_UTF8);
	int			index;

	/* without a conversion it was not copied, and has no NUL */
	if (utf8 != str)
		len = (int) strlen(utf8);
	index = settings_election_index(utf8, len);
	if (index < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("election \"%s\" does not exist", text_to_cstring(name)),
				 errhint("The elections are those listed in \"%s\".", "etcd_leader.elections")));
	if (utf8 != str)
		pfree(utf8);
	return index;
}

/* The index of the first election; ERROR if the settings name none. */
static inline int
first_election(void)
{
	int			index = settings_election_index(NULL, 0);

	if (unlikely(index < 0))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance takes part in no election"),
				 errhint("Set \"%s\" to the name of the cluster, the same on all of its instances, and reload the configuration.",
						 "etcd_leader.elections")));
	return index;
}

static inline int
election_argument(FunctionCallInfo fcinfo, int argno)
{
	require_preloaded();
	return PG_ARGISNULL(argno) ? first_election() : named_election(PG_GETARG_TEXT_PP(argno));
}

int
functions_election_argument(FunctionCallInfo fcinfo, int argno)
{
	return election_argument(fcinfo, argno);
}

/*
 * When a timeout argument will be over, on the clock of
 * clock_now_ns() but in microseconds, which have room for all that
 * an interval can say; PG_INT64_MAX if it is NULL or infinite.  Months and
 * days are counted from today.
 */
static int64
timeout_argument(FunctionCallInfo fcinfo, int argno)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz end;

	if (PG_ARGISNULL(argno))
		return PG_INT64_MAX;

	end = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												  TimestampTzGetDatum(now),
												  PG_GETARG_DATUM(argno)));
	if (TIMESTAMP_IS_NOEND(end))
		return PG_INT64_MAX;
	if (TIMESTAMP_IS_NOBEGIN(end))
		return 0;
	return clock_now_ns() / NS_PER_US + (end - now);
}

/* The wait event of sessions that wait for something to be published. */
static uint32
published_wait_event(void)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("EtcdLeaderWait");
	return wait_event;
}

/*
 * Waits until this instance leads, or until the time is over; does it lead?
 * until_us: see timeout_argument().
 */
static bool
wait_for_leadership(int index, int64 until_us)
{
	bool		leading;
	long		left_ms;

	events_prepare_to_sleep();
	while (!(leading = status_leads(index)) && (left_ms = clock_remaining_ms(until_us)) != 0)
		(void) events_sleep(left_ms, published_wait_event());
	events_cancel_sleep();
	return leading;
}

/* Waits until there is an event after that one, or until the time is over. */
static void
wait_for_event(int64 after, int64 until_us)
{
	SharedEvent event;
	long		left_ms;

	events_prepare_to_sleep();
	while (!events_next(after, &event) &&
		   (left_ms = clock_remaining_ms(until_us)) != 0)
		(void) events_sleep(left_ms, published_wait_event());
	events_cancel_sleep();
}

/* ---- rows -------------------------------------------------------------- */

void
functions_begin_rows(FunctionCallInfo fcinfo, const Oid *columns, int ncolumns)
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
				 errmsg("SQL objects of extension \"etcd_leader\" belong to another version than the loaded library"),
				 errdetail("The library, of version %s, fills in other columns than \"%s\" returns.",
						   ETCD_LEADER_VERSION, get_func_name(fcinfo->flinfo->fn_oid)),
				 errhint("If the library is the newer one, run ALTER EXTENSION etcd_leader UPDATE. Otherwise restart the server to load the library that is installed now.")));
}

#define BEGIN_ROWS(columns) functions_begin_rows(fcinfo, (columns), lengthof(columns))

static void
add_value(Row *row, Datum value)
{
	Assert(row->ncolumns < MAX_COLUMNS);
	row->values[row->ncolumns] = value;
	row->nulls[row->ncolumns++] = false;
}

static void
add_null(Row *row)
{
	Assert(row->ncolumns < MAX_COLUMNS);
	row->values[row->ncolumns] = (Datum) 0;
	row->nulls[row->ncolumns++] = true;
}

/* Text that came from etcd; NULL or empty is null. */
static void
add_text(Row *row, const char *utf8)
{
	if (utf8 == NULL || utf8[0] == '\0')
		add_null(row);
	else
		add_value(row, CStringGetTextDatum(shared_state_text(utf8)));
}

/* A number; 0 becomes NULL. */
static void
add_number(Row *row, int64 number)
{
	if (number == 0)
		add_null(row);
	else
		add_value(row, Int64GetDatum(number));
}

/* A time; 0 becomes NULL. */
static void
add_time(Row *row, TimestampTz at)
{
	if (at == 0)
		add_null(row);
	else
		add_value(row, TimestampTzGetDatum(at));
}

/* An interval; 0 becomes NULL. */
static void
add_interval(Row *row, int64 us)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = us;
	if (us == 0)
		add_null(row);
	else
		add_value(row, IntervalPGetDatum(interval));
}

/* A lease ID as etcdctl shows it. */
static void
add_lease(Row *row, int64 lease)
{
	char		hex[17];

	snprintf(hex, sizeof(hex), "%llx", (unsigned long long) lease);
	add_text(row, lease == 0 ? NULL : hex);
}

/* Hands a row over to the result of a function; it is empty afterwards. */
static void
put_row(FunctionCallInfo fcinfo, Row *row)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(row->ncolumns == rsinfo->setDesc->natts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
	row->ncolumns = 0;
}

/* ---- functions that read ------------------------------------------------ */

/*
 * etcd_is_leader(election text) returns boolean
 */
Datum
etcd_is_leader(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(status_leads(election_argument(fcinfo, 0)));
}

/*
 * etcd_current_leader(election text) returns text
 */
Datum
etcd_current_leader(PG_FUNCTION_ARGS)
{
	const char *leader = status_current_leader(election_argument(fcinfo, 0));

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
	int64		token = status_token(election_argument(fcinfo, 0));

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
	PG_RETURN_INT64(fence_require(election_argument(fcinfo, 0)));
}

/*
 * etcd_wait_for_leadership(timeout interval, election text) returns boolean
 */
Datum
etcd_wait_for_leadership(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 1);

	PG_RETURN_BOOL(wait_for_leadership(index, timeout_argument(fcinfo, 0)));
}

/* Returns the events after that one as rows of etcd_leader_event. */
static void
put_events(FunctionCallInfo fcinfo, int64 after)
{
	SharedEvent event;
	Row			row = {0};

	while (events_next(after, &event))
	{
		add_value(&row, Int64GetDatum(event.seq));
		add_value(&row, TimestampTzGetDatum(event.at));
		add_text(&row, event.election);
		add_value(&row, CStringGetTextDatum(events_kind_name(&event)));
		add_text(&row, event.node);
		add_text(&row, event.has_leader ? event.leader : NULL);
		add_number(&row, event.leader_revision);
		add_text(&row, event.reason);
		add_text(&row, event.key);
		if (event.has_value)
			add_value(&row, CStringGetTextDatum(shared_state_text(event.value)));
		else
			add_null(&row);
		add_number(&row, event.revision);
		put_row(fcinfo, &row);
		after = event.seq;
	}
}

/*
 * etcd_leader_events(after bigint) returns setof etcd_leader_event
 */
Datum
etcd_leader_events(PG_FUNCTION_ARGS)
{
	require_preloaded();
	BEGIN_ROWS(event_columns);
	put_events(fcinfo, PG_ARGISNULL(0) ? 0 : PG_GETARG_INT64(0));
	return (Datum) 0;
}

/*
 * etcd_wait_for_event(after bigint, timeout interval) returns setof etcd_leader_event
 */
Datum
etcd_wait_for_event(PG_FUNCTION_ARGS)
{
	int64		after;

	require_preloaded();
	BEGIN_ROWS(event_columns);
	after = PG_ARGISNULL(0) ? events_last() : PG_GETARG_INT64(0);
	wait_for_event(after, timeout_argument(fcinfo, 1));
	put_events(fcinfo, after);
	return (Datum) 0;
}

/*
 * etcd_leader_status() returns setof record: a row per election
 */
Datum
etcd_leader_status(PG_FUNCTION_ARGS)
{
	Row			row = {0};

	require_preloaded();
	BEGIN_ROWS(status_columns);
	for (int i = 0; i < settings_election_count(); i++)
	{
		StatusRow	status;
		const ElectionView *view = &status.shared.view;

		status_read_row(i, &status);
		add_text(&row, status.election);
		add_text(&row, status.contact.node_name);
		add_text(&row, status.role);
		add_value(&row, BoolGetDatum(status.is_leader));
		if (status.has_leader)
			add_value(&row, CStringGetTextDatum(shared_state_text(view->leader)));
		else
			add_null(&row);
		add_number(&row, status.has_leader ? view->leader_revision : 0);
		add_time(&row, status.has_leader ? status.shared.leader_since : 0);
		add_interval(&row, status.valid_for_us);
		add_lease(&row, view->lease);
		add_text(&row, view->key);
		add_number(&row, view->create_revision);
		add_text(&row, status.state);
		add_text(&row, status.contact.endpoint);
		add_value(&row, BoolGetDatum(status.contact.connected));
		add_time(&row, status.contact.last_contact);
		add_text(&row, status.contact.last_error);
		add_time(&row, status.contact.last_error_at);
		add_value(&row, Int64GetDatum(status.won));
		add_value(&row, Int64GetDatum(status.lost));
		put_row(fcinfo, &row);
	}
	return (Datum) 0;
}

/* The latencies of etcd's answers: least, mean, greatest, sum and number. */
static void
add_latencies(Row *row)
{
	int64		answers = stats_counter(COUNTER_ANSWERS);
	double		sum_ms = (double) stats_counter(COUNTER_LATENCY_NS_SUM) / NS_PER_MS;

	if (answers > 0)
	{
		add_value(row, Float8GetDatum((double) stats_counter(COUNTER_LATENCY_NS_MIN) / NS_PER_MS));
		add_value(row, Float8GetDatum(sum_ms / answers));
		add_value(row, Float8GetDatum((double) stats_counter(COUNTER_LATENCY_NS_MAX) / NS_PER_MS));
	}
	else
	{
		add_null(row);
		add_null(row);
		add_null(row);
	}
	add_value(row, Float8GetDatum(sum_ms));
	add_value(row, Int64GetDatum(answers));
}

/*
 * How many notifiers there should be, and how many are at work.  A standby has
 * none, as it cannot NOTIFY.
 */
static void
add_notifiers(Row *row)
{
	int			expected = RecoveryInProgress() ? 0 : list_length(settings_split(settings_databases));

	add_value(row, Int32GetDatum(expected));
	add_value(row, Int32GetDatum(notifier_register_running()));
}

/*
 * etcd_leader_stats() returns setof record: one row
 */
Datum
etcd_leader_stats(PG_FUNCTION_ARGS)
{
	static const SharedCounter before_lost[] = {
		COUNTER_REQUESTS,
		COUNTER_FAILURES,
		COUNTER_TIMEOUTS,
		COUNTER_ENDPOINT_SWITCHES,
		COUNTER_LEASES_GRANTED,
		COUNTER_KEEPALIVES,
		COUNTER_WATCH_RESTARTS,
		COUNTER_ELECTIONS_WON
	};
	Row			row = {0};

	require_preloaded();
	BEGIN_ROWS(stats_columns);

	for (Size i = 0; i < lengthof(before_lost); i++)
		add_value(&row, Int64GetDatum(stats_counter(before_lost[i])));
	for (int reason = ELECTION_REASON_RESIGNED; reason <= ELECTION_REASON_HISTORY_CHANGED; reason++)
		add_value(&row, Int64GetDatum(stats_counter(COUNTER_ELECTIONS_LOST + reason)));
	add_value(&row, Int64GetDatum(stats_counter(COUNTER_NOTIFICATIONS_SENT)));
	add_value(&row, Int64GetDatum(stats_counter(COUNTER_NOTIFICATIONS_FAILED)));

	add_latencies(&row);
	add_value(&row, Int64GetDatum(stats_counter(COUNTER_COMMITS_REFUSED)));
	add_value(&row, Int64GetDatum(stats_counter(COUNTER_STATEMENTS_CANCELLED)));
	add_notifiers(&row);
	add_text(&row, ETCD_LEADER_VERSION);
	add_time(&row, stats_reset_at());
	put_row(fcinfo, &row);
	return (Datum) 0;
}

/*
 * etcd_leader_stats_reset() returns void
 */
Datum
etcd_leader_stats_reset(PG_FUNCTION_ARGS)
{
	require_preloaded();
	stats_reset();
	PG_RETURN_VOID();
}

/* ---- procedures that wait ----------------------------------------------- */

/* The row that a procedure with one INOUT argument returns. */
static TupleDesc
result_row(FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != 1)
		elog(ERROR, "procedure %u does not return a row of one column", fcinfo->flinfo->fn_oid);
	return BlessTupleDesc(desc);
}

static Datum
return_row(TupleDesc desc, Datum value)
{
	bool		is_null = false;

	return HeapTupleGetDatum(heap_form_tuple(desc, &value, &is_null));
}

/*
 * Releases every snapshot, so that a procedure that waits does not hold back
 * VACUUM or recovery.  ERROR 25001 where that is impossible: in a transaction
 * block, in a function, in a transaction that has written or that keeps its
 * snapshot.  Nothing may look into the catalogs afterwards.
 *
 * A CALL that is not in an atomic context has no active snapshot but those of
 * portals, and ends well without them: it may as well have committed, see
 * SPI_commit().  As it returns a row, its portal has registered one more
 * (FillPortalStore()), which a commit would drop too (PreCommit_Portals()).
 * ExecuteCallStmt() makes a new one before it returns the row.
 */
static void
release_snapshots(FunctionCallInfo fcinfo, const char *call)
{
	CallContext *context = (CallContext *) fcinfo->context;
	bool		is_atomic = context == NULL || !IsA(context, CallContext) || context->atomic;
	Portal		portal = ActivePortal;

	PreventInTransactionBlock(!is_atomic, call);
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run in a transaction that has written", call),
				 errhint("COMMIT before the call.")));

	ForgetPortalSnapshots();
	if (portal != NULL && portal->holdSnapshot != NULL)
	{
		UnregisterSnapshotFromOwner(portal->holdSnapshot, portal->resowner);
		portal->holdSnapshot = NULL;
	}
	InvalidateCatalogSnapshot();

	if (TransactionIdIsValid(MyProc->xmin))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run in a transaction that keeps a snapshot", call),
				 errdetail("The isolation level is higher than READ COMMITTED, or a query or a cursor is open."),
				 errhint("COMMIT before the call, and call it in a transaction of the isolation level READ COMMITTED.")));
}

/*
 * etcd_await_leadership(INOUT leads boolean, timeout interval, election text)
 */
Datum
etcd_await_leadership(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 2);
	int64		until_us = timeout_argument(fcinfo, 1);
	TupleDesc	desc = result_row(fcinfo);

	release_snapshots(fcinfo, "CALL etcd_await_leadership");
	return return_row(desc, BoolGetDatum(wait_for_leadership(index, until_us)));
}

/*
 * etcd_await_event(INOUT newest bigint, timeout interval)
 */
Datum
etcd_await_event(PG_FUNCTION_ARGS)
{
	int64		after;
	int64		until_us;
	TupleDesc	desc;

	require_preloaded();
	after = PG_ARGISNULL(0) ? events_last() : PG_GETARG_INT64(0);
	until_us = timeout_argument(fcinfo, 1);
	desc = result_row(fcinfo);

	release_snapshots(fcinfo, "CALL etcd_await_event");
	wait_for_event(after, until_us);
	return return_row(desc, Int64GetDatum(events_last()));
}

/* ---- functions that ask the elector ------------------------------------- */

/* ERROR if Patroni decides who leads. */
static void
refuse_followed(int index)
{
	const char *election = settings_election_name(index);

	if (election_is_followed(election))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("Patroni decides who leads election \"%s\"", shared_state_text(election)),
				 errhint("Use \"patronictl switchover\" or \"patronictl failover\".")));
}

/* A request about the election with that index. */
static void
init_request(SharedRequest *request, SharedCommand command, int index)
{
	memset(request, 0, sizeof(SharedRequest));
	request->command = command;
	strlcpy(request->election, settings_election_name(index), ELECTION_NAME_SIZE);
}

void
functions_report_no_elector(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the elector of etcd_leader is not running"),
			 shared_state_lacks_elector ?
			 errdetail("No background worker slot was free for it when the server started.") :
			 errdetail("It has not been started, or it ended before it could reply."),
			 shared_state_lacks_elector ?
			 errhint("Increase \"%s\" and restart the server.", "max_worker_processes") :
			 errhint("The server log says why.")));
}

/*
 * Sends the command, and turns every reply that is not a result into an ERROR.
 * consequence is a sentence that describes the effect of the command if etcd
 * does not answer; NULL: it has none.  Returns NULL if there was no reply
 * until then, see mailbox_ask().
 */
static SharedReply *
ask_until(const SharedRequest *request, int64 until_us, const char *consequence)
{
	SharedReply *reply = palloc(sizeof(SharedReply));
	const char *election;
	bool		no_contact;

	if (!mailbox_ask(request, until_us, reply))
		return NULL;

	election = shared_state_text(request->election);
	no_contact = reply->kind == REPLY_FAILED ||
		(reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_NO_CONTACT);

	if (reply->kind == REPLY_NO_ELECTOR)
		functions_report_no_elector();
	if (reply->kind == REPLY_UNKNOWN_ELECTION)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("elector does not handle election \"%s\" yet", election),
				 errhint("Try again when its state in \"%s\" has changed.", "etcd_leader_status")));
	if (no_contact)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 reply->error[0] != '\0' ?
				 errmsg("etcd did not confirm the command for election \"%s\": %s",
						election, shared_state_text(reply->error)) :
				 errmsg("etcd did not confirm the command for election \"%s\"", election),
				 consequence != NULL ? errdetail_internal("%s", consequence) : 0));
	if (reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_NOT_ELIGIBLE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance must not be a candidate of election \"%s\"", election),
				 settings_candidate == CANDIDATE_PRIMARY ?
				 errdetail("\"%s\" is \"primary\", and the server is in recovery.", "etcd_leader.candidate") :
				 errdetail("\"%s\" is \"never\".", "etcd_leader.candidate")));
	if (reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_NOT_CANDIDATE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance is not a candidate of election \"%s\"", election),
				 errhint("\"%s\" shows its state; etcd_campaign() enters the election.", "etcd_leader_status")));
	return reply;
}

static SharedReply *
ask(const SharedRequest *request, const char *consequence)
{
	return ask_until(request, PG_INT64_MAX, consequence);
}

/*
 * etcd_verify_leader(election text, timeout interval) returns bigint
 */
Datum
etcd_verify_leader(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 0);
	int64		until_us = timeout_argument(fcinfo, 1);
	SharedRequest request;
	SharedReply *reply = palloc(sizeof(SharedReply));

	init_request(&request, COMMAND_VERIFY, index);
	if (!mailbox_ask(&request, until_us, reply))
	{
		SharedContact contact;

		shared_state_read_contact(&contact);
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("leadership of election \"%s\" could not be verified in time",
						shared_state_text(request.election)),
				 contact.connected ? errdetail("etcd has not answered.") :
				 errdetail("There is no contact with etcd: %s", shared_state_text(contact.last_error)),
				 errhint("Try again, or connect to the leader.")));
	}
	PG_RETURN_INT64(fence_require(index));
}

/* The lease of this instance's key in that election; 0: there is none. */
static int64
own_lease(int index)
{
	SharedElection election;

	return status_read(index, &election) ? election.view.lease : 0;
}

/*
 * After a resignation: raises a NOTICE if the queue is empty except for this
 * instance, whose keys are on the previous or the current lease.  Does nothing
 * if etcd does not answer soon, since the resignation is done.
 */
static void
notice_no_successor(int index, bool rejoin, int64 lease_before)
{
	SharedRequest request;
	SharedReply *reply = palloc(sizeof(SharedReply));
	int64		until_us = clock_now_ns() / NS_PER_US + SUCCESSOR_TIMEOUT_US;

	init_request(&request, COMMAND_CANDIDATES, index);
	if (!mailbox_ask(&request, until_us, reply) || reply->kind != REPLY_CANDIDATES)
		return;
	for (int i = 0; i < reply->ncandidates; i++)
	{
		int64		lease = reply->candidates[i].lease;

		if (lease == 0 || (lease != lease_before && lease != own_lease(index)))
			return;
	}
	ereport(NOTICE,
			(errmsg("election \"%s\" has no other candidate", shared_state_text(request.election)),
			 rejoin ? errdetail("This instance will lead again.") :
			 errdetail("Nobody will lead until a candidate enters the election.")));
}

/*
 * etcd_resign(election text, rejoin boolean) returns boolean
 */
Datum
etcd_resign(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 0);
	int64		lease = own_lease(index);
	SharedRequest request;
	SharedReply *reply;

	refuse_followed(index);
	init_request(&request, COMMAND_RESIGN, index);
	request.rejoin = PG_ARGISNULL(1) ? true : PG_GETARG_BOOL(1);
	reply = ask(&request,
				"Leadership has been withdrawn here. The key will be deleted as soon as etcd answers, or expire with its lease.");
	if (reply->outcome == ELECTION_DONE)
		notice_no_successor(index, request.rejoin, lease);
	PG_RETURN_BOOL(reply->outcome == ELECTION_DONE);
}

/*
 * etcd_campaign(election text) returns boolean
 */
Datum
etcd_campaign(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 0);
	SharedRequest request;
	SharedReply *reply;

	refuse_followed(index);
	init_request(&request, COMMAND_CAMPAIGN, index);
	reply = ask(&request, "The instance will enter the election as soon as etcd answers.");
	PG_RETURN_BOOL(reply->outcome == ELECTION_DONE);
}

/*
 * etcd_proclaim(value text, election text) returns void
 */
Datum
etcd_proclaim(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 1);
	SharedRequest request;
	char	   *value;

	refuse_followed(index);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the value to proclaim must not be null")));

	value = text_to_cstring(PG_GETARG_TEXT_PP(0));
	value = pg_server_to_any(value, strlen(value), PG_UTF8);
	if (value[0] == '\0' || strlen(value) >= ELECTION_VALUE_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the value to proclaim must be 1 to %d bytes long", ELECTION_VALUE_SIZE - 1)));
	for (const char *c = value; *c != '\0'; c++)
	{
		if ((unsigned char) *c < ' ' || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("the value to proclaim must not contain control characters")));
	}

	init_request(&request, COMMAND_PROCLAIM, index);
	strlcpy(request.value, value, ELECTION_VALUE_SIZE);
	(void) ask(&request, "The value will be put as soon as etcd answers.");
	PG_RETURN_VOID();
}

/* Raises an ERROR that says why the leader cannot hand over. */
static void
refuse_transfer(const SharedRequest *request, int index, ElectionReply outcome)
{
	const char *election = shared_state_text(request->election);
	const char *node = shared_state_text(request->value);
	char	   *leader;

	switch (outcome)
	{
		case ELECTION_NOT_LEADER:
			leader = status_leader_for_message(index);
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("this instance does not lead election \"%s\"", election),
					 leader != NULL ? errdetail("The leader is \"%s\".", leader) :
					 errdetail("No leader is known."),
					 errhint("Call etcd_transfer() on the leader.")));
			break;
		case ELECTION_NO_SUCH_CANDIDATE:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("there is no candidate \"%s\" in election \"%s\"", node, election),
					 errhint("etcd_candidates() shows the queue.")));
			break;
		case ELECTION_AMBIGUOUS_CANDIDATE:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("more than one candidate of election \"%s\" has the name \"%s\"", election, node),
					 errhint("Set \"%s\" of a copied instance.", "etcd_leader.node_name")));
			break;
		case ELECTION_FOREIGN_CANDIDATE:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a candidate of another program is before \"%s\" in election \"%s\"", node, election),
					 errdetail("Its key must not be deleted by others: it could lead without one."),
					 errhint("etcd_candidates() shows the queue. Its key does not end with \"%s\".", ELECTION_KEY_SUFFIX)));
			break;
		case ELECTION_TOO_MANY_CANDIDATES:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many candidates are before \"%s\" in election \"%s\"", node, election)));
			break;
		default:
			break;
	}
}

/*
 * etcd_transfer(to_node text, election text, timeout interval) returns boolean
 */
Datum
etcd_transfer(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 1);
	int64		until_us = timeout_argument(fcinfo, 2);
	SharedRequest request;
	SharedReply *reply;
	char	   *node;

	refuse_followed(index);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the node to hand over to must not be null")));
	node = text_to_cstring(PG_GETARG_TEXT_PP(0));
	node = pg_server_to_any(node, strlen(node), PG_UTF8);

	init_request(&request, COMMAND_TRANSFER, index);
	request.until_ns = until_us == PG_INT64_MAX ? PG_INT64_MAX : until_us * NS_PER_US;
	if (strlen(node) >= ELECTION_VALUE_SIZE)
	{
		strlcpy(request.value, node, pg_encoding_mbcliplen(PG_UTF8, node, strlen(node), ELECTION_VALUE_SIZE - 1) + 1);
		refuse_transfer(&request, index, ELECTION_NO_SUCH_CANDIDATE);
	}
	strlcpy(request.value, node, ELECTION_VALUE_SIZE);
	reply = ask_until(&request, until_us,
					  "If leadership has ended here, the hand-over goes on as soon as etcd answers.");
	if (reply == NULL)
		PG_RETURN_BOOL(false);
	refuse_transfer(&request, index, reply->outcome);
	PG_RETURN_BOOL(reply->outcome == ELECTION_DONE);
}

/*
 * etcd_candidates(election text) returns table (...): the queue, in order
 */
Datum
etcd_candidates(PG_FUNCTION_ARGS)
{
	int			index = election_argument(fcinfo, 0);
	SharedRequest request;
	SharedReply *reply;
	int32		position = 0;
	Row			row = {0};

	BEGIN_ROWS(candidate_columns);
	init_request(&request, COMMAND_CANDIDATES, index);

	/* page by page, all as of the revision at which the first one was read */
	do
	{
		SharedElection election;
		SharedContact contact;
		bool		followed = election_is_followed(request.election);

		reply = ask(&request, NULL);
		if (!status_read(index, &election))
			election.view.key[0] = '\0';
		shared_state_read_contact(&contact);

		for (int i = 0; i < reply->ncandidates; i++)
		{
			const SharedCandidate *candidate = &reply->candidates[i];
			bool		is_self = followed ?
				strcmp(candidate->node, contact.node_name) == 0 :
				strcmp(candidate->key, election.view.key) == 0;

			if (candidate->has_position)
				add_value(&row, Int32GetDatum(++position));
			else
				add_null(&row);
			add_value(&row, CStringGetTextDatum(shared_state_text(candidate->node)));
			add_value(&row, BoolGetDatum(candidate->has_position && position == 1));
			add_value(&row, BoolGetDatum(is_self));
			add_text(&row, candidate->key);
			add_lease(&row, candidate->lease);
			add_number(&row, candidate->create_revision);
			put_row(fcinfo, &row);
			request.after_revision = candidate->create_revision;
		}
		request.at_revision = reply->revision;
	} while (reply->more && reply->ncandidates > 0);
	return (Datum) 0;
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
				 errmsg("the etcd_leader library that is loaded is version %s, but the script requires version %s",
						ETCD_LEADER_VERSION, version),
				 errhint("Make sure that etcd_leader %s is installed, and restart the server to load its library.",
						 version)));
	PG_RETURN_VOID();
}
