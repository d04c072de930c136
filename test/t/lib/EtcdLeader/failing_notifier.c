/*
 * A library with which no notifier can commit, after it has connected.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "postmaster/bgworker.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static void
refuse_commit(XactEvent event, void *arg)
{
	static int	ncommits = 0;

	if (event == XACT_EVENT_PRE_COMMIT && MyBgworkerEntry != NULL &&
		strstr(MyBgworkerEntry->bgw_type, "notifier") != NULL && ncommits++ > 0)
		ereport(ERROR,
				(errmsg("no commit, for a test"),
				 errdetail("This is a test."),
				 errhint("Unload the library."),
				 errcontext("commit of a notifier")));
}

void
_PG_init(void)
{
	RegisterXactCallback(refuse_commit, NULL);
}
