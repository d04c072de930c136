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
#include "utils/varlena.h"

#include "api.h"
#include "compat.h"
#include "elector.h"
#include "fence.h"
#include "hooks.h"
#include "notifier.h"
#include "settings.h"
#include "shared_state.h"

COMPAT_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* Does session_preload_libraries list this library? */
static bool
is_session_preloaded(void)
{
	List	   *libraries;
	ListCell   *lc;

	if (!SplitDirectoriesString(pstrdup(session_preload_libraries_string), ',', &libraries))
		return false;
	foreach(lc, libraries)
	{
		const char *name = last_dir_separator(lfirst(lc));

		name = name ? name + 1 : lfirst(lc);
		if (strcmp(name, "etcd_leader") == 0 || strcmp(name, "etcd_leader" DLSUFFIX) == 0)
			return true;
	}
	return false;
}

/*
 * A library that is loaded into a session cannot enforce
 * etcd_leader.require_leadership.  With session_preload_libraries this ERROR
 * keeps the session from starting.  The value of the setting must not matter
 * then: a server that does not know it lets everybody change it by an option
 * of the connection.
 */
static void
check_not_fenced(void)
{
	const char *election = GetConfigOption("etcd_leader.require_leadership", true, false);

	if ((election != NULL && election[0] != '\0') || is_session_preloaded())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" cannot be enforced", "etcd_leader.require_leadership"),
				 errdetail("The server has not loaded etcd_leader via \"shared_preload_libraries\"."),
				 errhint("Add \"etcd_leader\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));
}

/*
 * In the postmaster everything is set up.  A library that is loaded later, by
 * a function call in a server that has not preloaded it, sets up nothing, and
 * its functions raise an error with a hint.  The servers of pg_upgrade hold no
 * elections.
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
	api_install();
	notifier_install();
	fence_install();
	hooks_install();
	elector_register();
}
