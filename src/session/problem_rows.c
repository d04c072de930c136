/*-------------------------------------------------------------------------
 *
 * problem_rows.c
 *	  Problems as rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"

#include "arguments.h"
#include "problem_rows.h"
#include "rows.h"
#include "settings/settings.h"

PG_FUNCTION_INFO_V1(etcd_leader_problems);

static const Oid problems_columns[] = {
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID
};

void
problem_rows_begin(FunctionCallInfo fcinfo)
{
	ROWS_BEGIN(problems_columns);
}

void
problem_rows_put(FunctionCallInfo fcinfo, ProblemItem item, const char *subject,
				 TimestampTz since, const char *text, const char *hint)
{
	Row			row = {0};

	row_add_text(&row, problem_item_name(item));
	row_add_text(&row, subject);
	row_add_text(&row, problem_severity(item));
	row_add_text(&row, text);
	row_add_text(&row, hint);
	row_add_time(&row, since);
	row_put(fcinfo, &row);
}

void
problem_rows_put_list(FunctionCallInfo fcinfo, const List *except)
{
	Problems   *problems = palloc(sizeof(Problems));

	problems_read(problems);
	for (int i = 0; i < problems->n; i++)
	{
		const Problem *problem = &problems->problems[i];

		if (problem->item == PROBLEM_SETTINGS && settings_is_listed(except, problem->subject))
			continue;
		problem_rows_put(fcinfo, problem->item, problem->subject, problem->since, problem->text,
						 problem->hint);
	}
	pfree(problems);
}

/*
 * etcd_leader_problems() returns setof record: a row per problem
 */
Datum
etcd_leader_problems(PG_FUNCTION_ARGS)
{
	arguments_require_preloaded();
	problem_rows_begin(fcinfo);
	problem_rows_put_list(fcinfo, NIL);
	return (Datum) 0;
}
