/*-------------------------------------------------------------------------
 *
 * functions.h
 *	  What the functions that SQL calls have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "base/compat.h"

#include "fmgr.h"

/* ERROR 55000 unless the library was preloaded: there is nothing to work with. */
extern void functions_require_preloaded(void);

/*
 * The index of the election that argument number argno names, NULL being the
 * first one.  First of all, checks that the library was preloaded.  ERROR 42704
 * if there is no such election, 55000 if there is none at all.
 */
extern int	functions_election_argument(FunctionCallInfo fcinfo, int argno);

/*
 * A text argument, in UTF-8, palloc'd.  ERROR 22004 if it is null, which names
 * its meaning, such as "the key to read".
 */
extern char *functions_text_argument(FunctionCallInfo fcinfo, int argno, const char *meaning);

/*
 * The length of an interval argument, in microseconds; PG_INT64_MAX if it is
 * NULL, or longer than 100 years.  Months and days are counted from today.
 */
extern int64 functions_duration_argument(FunctionCallInfo fcinfo, int argno);

/*
 * When a timeout argument will be over, on the clock of clock_now_ns() but in
 * microseconds; PG_INT64_MAX if it has no end.  A negative interval is over now.
 */
extern int64 functions_timeout_argument(FunctionCallInfo fcinfo, int argno);

/*
 * May the current user call etcd_get()?  The function that asks is of the same
 * extension, and so of the same schema.
 */
extern bool functions_may_get(FunctionCallInfo fcinfo);

/* ERROR 55000: there is nobody to ask. */
pg_noreturn extern void functions_report_no_elector(void);

#endif							/* FUNCTIONS_H */
