/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  Work of a background worker that is tried again until it succeeds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "pgstat.h"

#include "attempt.h"

/* The ERROR of the work, after which its transaction is rolled back; NULL: none. */
static ErrorData *
catch_error(const Attempt *attempt, void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		attempt->work(arg);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		pgstat_report_activity(STATE_IDLE, NULL);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return edata;
}

bool
attempt_run(Attempt *attempt, const char *database, void *arg)
{
	ErrorData  *edata = catch_error(attempt, arg);

	if (edata == NULL)
	{
		if (attempt->last_error[0] != '\0')
			ereport(LOG, (errmsg(attempt->succeeded, database)));
		attempt->last_error[0] = '\0';
		return true;
	}
	if (strncmp(attempt->last_error, edata->message, sizeof(attempt->last_error) - 1) != 0)
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg(attempt->failed, database, edata->message),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 errhint("%s%sIt will be tried again until it succeeds.",
						 edata->hint ? edata->hint : "", edata->hint ? " " : ""),
				 edata->context ? errcontext("%s", edata->context) : 0));
	strlcpy(attempt->last_error, edata->message, sizeof(attempt->last_error));
	FreeErrorData(edata);
	return false;
}
