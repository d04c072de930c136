/*
 * A library that writes in its pre-commit callback: a large object for each
 * statement of a client.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/large_object.h"
#include "tcop/tcopprot.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static void
write_late(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && MyBackendType == B_BACKEND && debug_query_string != NULL)
		(void) inv_create(InvalidOid);
}

void
_PG_init(void)
{
	RegisterXactCallback(write_late, NULL);
}
