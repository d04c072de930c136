/*
 * Functions that end their process: by a PANIC, or by exit().
 */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(test_panic);
PG_FUNCTION_INFO_V1(test_exit);

Datum
test_panic(PG_FUNCTION_ARGS)
{
	ereport(PANIC,
			(errmsg("this is the PANIC of the test")));
	PG_RETURN_VOID();
}

Datum
test_exit(PG_FUNCTION_ARGS)
{
	exit(PG_GETARG_INT32(0));
}
