/*-------------------------------------------------------------------------
 *
 * file_settings.c
 *	  Mistakes in the files of settings that would stop the next start.
 *
 * PostgreSQL's function behind the view pg_file_settings finds them.  The view is for
 * superusers, as it shows values.  The rows here show none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/tuplestore.h"

#include "check/file_settings.h"
#include "session/problem_rows.h"

/* Columns of pg_file_settings. */
enum
{
	SOURCE_FILE = 1,
	SOURCE_LINE = 2,
	NAME = 4,
	ERROR_TEXT = 7
};

static const char *
get_text(TupleTableSlot *slot, int column)
{
	bool		is_null;
	Datum		value = slot_getattr(slot, column, &is_null);

	return is_null ? "" : TextDatumGetCString(value);
}

static void
put_line(FunctionCallInfo fcinfo, TupleTableSlot *slot)
{
	const char *error = get_text(slot, ERROR_TEXT);
	bool		has_no_line;
	int			line = DatumGetInt32(slot_getattr(slot, SOURCE_LINE, &has_no_line));

	if (error[0] != '\0')
		problem_rows_put(fcinfo, PROBLEM_SETTINGS, get_text(slot, NAME), 0,
						 psprintf("line %d of \"%s\": %s", has_no_line ? 0 : line,
								  get_text(slot, SOURCE_FILE), error),
						 "Correct the line: the next start of the server may fail by it.");
}

void
check_file_settings(FunctionCallInfo fcinfo)
{
	ExprContext *econtext = CreateStandaloneExprContext();
	ReturnSetInfo result = {.type = T_ReturnSetInfo, .econtext = econtext,
	.allowedModes = SFRM_Materialize};
	FmgrInfo	function;
	TupleTableSlot *slot;

	LOCAL_FCINFO(call, 0);
	fmgr_info(F_PG_SHOW_ALL_FILE_SETTINGS, &function);
	InitFunctionCallInfoData(*call, &function, 0, InvalidOid, NULL, (Node *) &result);
	(void) FunctionCallInvoke(call);
	slot = MakeSingleTupleTableSlot(result.setDesc, &TTSOpsMinimalTuple);
	while (tuplestore_gettupleslot(result.setResult, true, false, slot))
		put_line(fcinfo, slot);
	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(result.setResult);
	FreeExprContext(econtext, true);
}
