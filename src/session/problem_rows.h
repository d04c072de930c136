/*-------------------------------------------------------------------------
 *
 * problem_rows.h
 *	  Problems as rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PROBLEM_ROWS_H
#define PROBLEM_ROWS_H

#include "fmgr.h"
#include "nodes/pg_list.h"

#include "shared/problems.h"

/* Begins the result of a function that returns problems. */
extern void problem_rows_begin(FunctionCallInfo fcinfo);

/* A row.  Text is UTF-8; empty or NULL is null.  since: 0 is null. */
extern void problem_rows_put(FunctionCallInfo fcinfo, ProblemItem item, const char *subject,
							 TimestampTz since, const char *text, const char *hint);

/* The list in shared memory, without the problems of these settings (char *). */
extern void problem_rows_put_list(FunctionCallInfo fcinfo, const List *except);

#endif							/* PROBLEM_ROWS_H */
