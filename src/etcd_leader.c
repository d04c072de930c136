/*-------------------------------------------------------------------------
 *
 * etcd_leader.c
 *	  Entry: what happens when the library is loaded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "elector.h"
#include "notifier.h"
#include "settings.h"
#include "shared_state.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/*
 * In the postmaster everything is set up; a library that is loaded later, by
 * a function call in a server that has not preloaded it, gets nothing, and
 * its functions say what to do.  pg_upgrade's servers hold no elections.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	settings_define();
	if (IsBinaryUpgrade)
		return;
	shared_state_install();
	notifier_install();
	elector_register();
}
