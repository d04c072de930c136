/*-------------------------------------------------------------------------
 *
 * catalogs.h
 *	  The problems that the catalogs of this database show.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CATALOGS_H
#define CATALOGS_H

#include "fmgr.h"
#include "nodes/pg_list.h"

/* Adds a row for each problem; the caller has begun the rows. */
extern void catalogs_put_problems(FunctionCallInfo fcinfo);

/*
 * The names of the settings whose new value waits for a restart of the server, in
 * UTF-8: a palloc'd List of char *, in the current context.
 */
extern List *catalogs_pending_settings(void);

#endif							/* CATALOGS_H */
