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
#include "port/atomics.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "base/compat.h"
#include "elector/elector.h"
#include "elector/http_launcher.h"
#include "fence/fence.h"
#include "hooks/hooks.h"
#include "notifier/vacate.h"
#include "session/api.h"
#include "session/read_only.h"
#include "settings/define.h"
#include "shared/crash_memory.h"
#include "shared/event_file.h"
#include "shared/events.h"
#include "shared/fenced.h"
#include "shared/identity_file.h"
#include "shared/mailbox.h"
#include "shared/notifier_register.h"
#include "shared/problems.h"
#include "shared/state.h"
#include "shared/stats.h"

/*
 * What survives a crash lies in memory that each process inherits by fork()
 * (crash_memory.c).
 */
#ifdef EXEC_BACKEND
#error "etcd_leader needs a PostgreSQL whose processes are made by fork(), without EXEC_BACKEND"
#endif

/*
 * The handler of the fence's timer reads deadlines and tokens (fence.c).  Where
 * PostgreSQL simulates 64-bit atomics, each read takes a spinlock.  The process
 * may hold that lock when the signal arrives, and would wait for itself.
 */
#ifdef PG_HAVE_ATOMIC_U64_SIMULATION
#error "etcd_leader needs an architecture on which PostgreSQL has 64-bit atomics without a lock"
#endif

COMPAT_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* The lasting parts come first: others read them when they are made. */
static const SharedPart *const shared_parts[] = {
	&crash_memory_part, &event_number_part, &stats_part, &hooks_memory_part,
	&shared_state_part, &shared_elections_part, &fenced_part, &events_part, &elections_ring_part,
	&changes_ring_part,
	&identity_part, &problems_part, &mailbox_part, &mailbox_page_part, &notifier_register_part,
	&hooks_part, &http_launcher_part
};

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
 * etcd_leader.require_leadership_of.  With session_preload_libraries this ERROR
 * keeps the session from starting.  The value of the setting must not matter
 * then: a server that does not know it lets everybody change it by an option
 * of the connection.
 */
static void
check_not_fenced(void)
{
	const char *election = GetConfigOption("etcd_leader.require_leadership_of", true, false);

	if ((election != NULL && election[0] != '\0') || is_session_preloaded())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" cannot be enforced", "etcd_leader.require_leadership_of"),
				 errdetail("The server has not loaded etcd_leader via "
						   "\"shared_preload_libraries\"."),
				 errhint("Add \"etcd_leader\" to \"shared_preload_libraries\" in postgresql.conf "
						 "and restart the server.")));
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
	shared_state_install(shared_parts, lengthof(shared_parts));
	event_file_install();
	identity_file_install();
	api_install();
	vacate_install();
	fence_install();
	read_only_install();
	hooks_install();
	elector_register();
}
