/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  The functions and procedures that wait for leadership or for events, and
 *	  the list of events.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/utf8.h"
#include "fence/fence.h"
#include "get.h"
#include "rows.h"
#include "shared/events.h"

PG_FUNCTION_INFO_V1(etcd_wait_for_leadership);
PG_FUNCTION_INFO_V1(etcd_leader_events);
PG_FUNCTION_INFO_V1(etcd_wait_for_event);
PG_FUNCTION_INFO_V1(etcd_await_leadership);
PG_FUNCTION_INFO_V1(etcd_await_event);

static const Oid event_columns[] = {
	INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TEXTOID,
	TEXTOID, TEXTOID, INT8OID
};

/*
 * Sleeps until something is published, or until the time is over; false if it
 * was over already.  until_us: see arguments_get_timeout().
 */
static bool
sleep_until(int64 until_us)
{
	static uint32 wait_event = 0;
	long		left_ms = clock_remaining_ms(until_us);

	if (wait_event == 0)
		wait_event = compat_wait_event("EtcdLeaderWait");
	if (left_ms != 0)
		(void) events_sleep(left_ms, wait_event);
	return left_ms != 0;
}

/* Waits until this instance leads, or until the time is over; does it lead? */
static bool
wait_for_leadership(int index, int64 until_us)
{
	bool		leading;

	events_prepare_to_sleep();
	do
		leading = fence_leads(index);
	while (!leading && sleep_until(until_us));
	events_cancel_sleep();
	return leading;
}

/* Waits until there is an event after that one, or until the time is over. */
static void
wait_for_event(int64 after, int64 until_us)
{
	SharedEvent event;

	events_prepare_to_sleep();
	while (!events_next(after, &event) && sleep_until(until_us))
		;
	events_cancel_sleep();
}

/* ---- functions ------------------------------------------------------------ */

/*
 * Returns the events after that one as rows of etcd_leader_event.  Who may not
 * read keys by etcd_get() learns only that there are changes.
 */
static void
put_events(FunctionCallInfo fcinfo, int64 after)
{
	bool		shows_keys = get_is_allowed(fcinfo);
	SharedEvent event;
	Row			row = {0};

	while (events_next(after, &event))
	{
		row_add_value(&row, Int64GetDatum(event.seq));
		row_add_value(&row, TimestampTzGetDatum(event.at));
		row_add_text(&row, event.election);
		row_add_value(&row, CStringGetTextDatum(events_kind_name(&event)));
		row_add_text(&row, event.node);
		row_add_text(&row, event.has_leader ? event.leader : NULL);
		row_add_number(&row, event.leader_revision);
		row_add_text(&row, event.reason);
		row_add(&row, CStringGetTextDatum(utf8_data_to_server(event.key)),
				event.key[0] == '\0' || !shows_keys);
		row_add(&row, CStringGetTextDatum(utf8_data_to_server(event.value)),
				!event.has_value || !shows_keys);
		row_add_number(&row, event.revision);
		row_put(fcinfo, &row);
		after = event.seq;
	}
}

/*
 * etcd_wait_for_leadership(election text, timeout interval) returns boolean
 */
Datum
etcd_wait_for_leadership(PG_FUNCTION_ARGS)
{
	int			index = arguments_get_election(fcinfo, 0);

	PG_RETURN_BOOL(wait_for_leadership(index, arguments_get_timeout(fcinfo, 1)));
}

/*
 * etcd_leader_events(after bigint) returns setof etcd_leader_event
 */
Datum
etcd_leader_events(PG_FUNCTION_ARGS)
{
	arguments_require_preloaded();
	ROWS_BEGIN(event_columns);
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

	arguments_require_preloaded();
	ROWS_BEGIN(event_columns);
	after = PG_ARGISNULL(0) ? events_last() : PG_GETARG_INT64(0);
	wait_for_event(after, arguments_get_timeout(fcinfo, 1));
	put_events(fcinfo, after);
	return (Datum) 0;
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
				 errdetail("The isolation level is higher than READ COMMITTED, or a query or a "
						   "cursor is open."),
				 errhint("COMMIT before the call, and call it in a transaction of the isolation "
						 "level READ COMMITTED.")));
}

/*
 * etcd_await_leadership(election text, timeout interval, INOUT leads boolean)
 */
Datum
etcd_await_leadership(PG_FUNCTION_ARGS)
{
	int			index = arguments_get_election(fcinfo, 0);
	int64		until_us = arguments_get_timeout(fcinfo, 1);
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

	arguments_require_preloaded();
	after = PG_ARGISNULL(0) ? events_last() : PG_GETARG_INT64(0);
	until_us = arguments_get_timeout(fcinfo, 1);
	desc = result_row(fcinfo);

	release_snapshots(fcinfo, "CALL etcd_await_event");
	wait_for_event(after, until_us);
	return return_row(desc, Int64GetDatum(events_last()));
}
