/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  The arguments of the functions that SQL calls.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "base/clock.h"
#include "base/compat.h"
#include "settings/settings.h"
#include "shared/state.h"
#include "shared/status.h"

void
arguments_require_preloaded(void)
{
	if (unlikely(!shared_state_is_attached()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("etcd_leader must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"etcd_leader\" to \"shared_preload_libraries\" in postgresql.conf "
						 "and restart the server.")));
}

static int
find_election(const text *name)
{
	int			len = (int) VARSIZE_ANY_EXHDR(name);
	char	   *utf8 = pg_server_to_any(VARDATA_ANY(name), len, PG_UTF8);
	int			index;

	/* without a conversion it was not copied, and has no NUL */
	if (utf8 != VARDATA_ANY(name))
		len = (int) strlen(utf8);
	index = settings_election_index(utf8, len);
	if (index < 0)
		status_raise_no_election(text_to_cstring(name));
	return index;
}

int
arguments_get_election(FunctionCallInfo fcinfo, int argno)
{
	int			index;

	arguments_require_preloaded();
	if (!PG_ARGISNULL(argno))
		return find_election(PG_GETARG_TEXT_PP(argno));
	index = settings_first_election();
	if (unlikely(index < 0))
		status_raise_no_election(NULL);
	return index;
}

char *
arguments_get_text(FunctionCallInfo fcinfo, int argno, const char *meaning)
{
	char	   *value;

	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", meaning)));
	value = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	return pg_server_to_any(value, (int) strlen(value), PG_UTF8);
}

/*
 * An interval that is longer than this has no end: nobody waits for it, and
 * nanoseconds, which count to 292 years, never overflow.
 */
#define ENDLESS_YEARS	100

int64
arguments_get_duration(FunctionCallInfo fcinfo, int argno)
{
	Interval	endless = {.month = ENDLESS_YEARS * MONTHS_PER_YEAR};
	Interval	over = {.month = -ENDLESS_YEARS * MONTHS_PER_YEAR};
	TimestampTz now = GetCurrentTimestamp();
	Datum		interval;

	if (PG_ARGISNULL(argno))
		return PG_INT64_MAX;
	interval = PG_GETARG_DATUM(argno);
	if (DatumGetBool(DirectFunctionCall2(interval_gt, interval, IntervalPGetDatum(&endless))))
		return PG_INT64_MAX;
	if (DatumGetBool(DirectFunctionCall2(interval_lt, interval, IntervalPGetDatum(&over))))
		return PG_INT64_MIN;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(now), interval)) - now;
}

int64
arguments_get_timeout(FunctionCallInfo fcinfo, int argno)
{
	int64		duration_us = arguments_get_duration(fcinfo, argno);

	if (duration_us == PG_INT64_MAX)
		return PG_INT64_MAX;
	return clock_now_ns() / NSEC_PER_USEC + Max(duration_us, 0);
}
