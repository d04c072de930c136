/*-------------------------------------------------------------------------
 *
 * quiet_exit.c
 *	  Background workers that end without a message in the log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"

#include "quiet_exit.h"

static bool is_always_quiet = false;

/* SIGTERM ends the process. */
static bool is_terminated = false;

static emit_log_hook_type prev_emit_log = NULL;

/* An emit_log_hook.  PostgreSQL reports the end by SIGTERM as FATAL. */
static void
filter_log(ErrorData *edata)
{
	if (edata->elevel == FATAL && edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		is_terminated = true;
	if ((is_always_quiet && edata->elevel == FATAL) || is_terminated)
		edata->output_to_server = false;
	else if (prev_emit_log)
		prev_emit_log(edata);
}

/*
 * An exit callback.  The postmaster would log each exit with a code other than 0.
 * The code matters for nothing else, since the postmaster does not restart the worker.
 */
static void
exit_quietly(int code, Datum arg)
{
	if ((is_always_quiet || is_terminated) && code != 0)
		proc_exit(0);
}

void
quiet_exit_install(void)
{
	prev_emit_log = emit_log_hook;
	emit_log_hook = filter_log;
	before_shmem_exit(exit_quietly, (Datum) 0);
}

void
quiet_exit_always(bool always)
{
	is_always_quiet = always;
}
