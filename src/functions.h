/*-------------------------------------------------------------------------
 *
 * functions.h
 *	  What the functions that SQL calls have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "fmgr.h"

/* ERROR 55000 unless the library was preloaded: there is nothing to work with. */
extern void functions_require_preloaded(void);

/*
 * The index of the election that argument number argno names, NULL being the
 * first one.  First of all, checks that the library was preloaded.  ERROR 42704
 * if there is no such election, 55000 if there is none at all.
 */
extern int	functions_election_argument(FunctionCallInfo fcinfo, int argno);

#endif							/* FUNCTIONS_H */
