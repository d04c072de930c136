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
#include "utils/guc.h"

#include "elector.h"
#include "fence.h"
#include "notifier.h"
#include "settings.h"
#include "shared_state.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/*
 * A library that is loaded into a session cannot enforce what was set for it;
 * with session_preload_libraries this keeps the session from beginning.
 */
static void
check_not_fenced(void)
{
	const char *election = GetConfigOption("etcd_leader.require_leadership", true, false);

	if (election != NULL && election[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" cannot be enforced", "etcd_leader.require_leadership"),
				 errdetail("The server has not loaded etcd_leader via \"shared_preload_libraries\"."),
				 errhint("Add \"etcd_leader\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));
}

/*
 * In the postmaster everything is set up; a library that is loaded later, by
 * a function call in a server that has not preloaded it, gets nothing, and
 * its functions say what to do.  pg_upgrade's servers hold no elections.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		check_not_fenced();
		return;
	}
	settings_define();
	if (IsBinaryUpgrade)
		return;
	shared_state_install();
	notifier_install();
	fence_install();
	elector_register();
}
