/*-------------------------------------------------------------------------
 *
 * arguments.h
 *	  The arguments of the functions that SQL calls.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "base/compat.h"

#include "fmgr.h"

/* ERROR 55000 unless the library was preloaded: there is nothing to work with. */
extern void arguments_require_preloaded(void);

/*
 * The index of the election that argument number argno names, NULL being the
 * first one.  First of all, checks that the library was preloaded.  ERROR 42704
 * if there is no such election, 55000 if there is none at all.
 */
extern int	arguments_get_election(FunctionCallInfo fcinfo, int argno);

/*
 * A text argument, in UTF-8, palloc'd.  ERROR 22004 if it is null, which names
 * its meaning, such as "the key to read".
 */
extern char *arguments_get_text(FunctionCallInfo fcinfo, int argno, const char *meaning);

/*
 * The length of an interval argument, in microseconds; PG_INT64_MAX if it is
 * NULL, or longer than 100 years.  Months and days are counted from today.
 */
extern int64 arguments_get_duration(FunctionCallInfo fcinfo, int argno);

/*
 * When a timeout argument will be over, on the clock of clock_now_ns() but in
 * microseconds; PG_INT64_MAX if it has no end.  A negative interval is over now.
 */
extern int64 arguments_get_timeout(FunctionCallInfo fcinfo, int argno);

#endif							/* ARGUMENTS_H */
