/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  What processes know of hooks: shared memory, and the views.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "hooks.h"
#include "session/arguments.h"
#include "session/rows.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/snapshot.h"
#include "shared/supervised_worker.h"

/* No run begins in a database that somebody wants for himself. */
#define HOLD_NS			(1000 * NSEC_PER_MSEC)

PG_FUNCTION_INFO_V1(etcd_leader_hooks);
PG_FUNCTION_INFO_V1(etcd_leader_hooks_file);

/* Is there a process of hooks?  A crash of the server forgets it. */
static pg_atomic_uint32 *claimed = NULL;
HookMemory *hooks_memory = NULL;

/*
 * After a crash of the server, while no process is there: who ran, and was not
 * told to quit, is the one.
 */
static void
judge_crash(void)
{
	for (int i = 0; i < HOOKS_MAX_RUNS; i++)
	{
		HookRun    *run = &hooks_memory->runs[i];
		HookRunState state = pg_atomic_read_u32(&run->state);

		if (state == RUN_FREE || state == RUN_OVER)
			continue;
		run->status = state == RUN_RUNNING ? HOOK_CRASHED : HOOK_CANCELLED;
		strlcpy(run->message, state == RUN_RUNNING ? "the server crashed while the hook ran" :
				"another process crashed", sizeof(run->message));
		run->sqlerrcode = ERRCODE_CRASH_SHUTDOWN;
		pg_atomic_write_u32(&run->state, RUN_OVER);
	}
}

/* The first call is that of the start.  No page is touched if there never was a hook. */
static void
init_process(void)
{
	static bool is_restart = false;

	if (is_restart && pg_atomic_read_u64(&hooks_memory->generation) > 0)
		judge_crash();
	is_restart = true;
}

const SharedPart hooks_part = {
	.name = "etcd_leader hooks", .size = sizeof(pg_atomic_uint32), .memory = (void **) &claimed,
	.init = init_process
};
const SharedPart hooks_memory_part = {
	.name = "memory of hooks", .size = sizeof(HookMemory), .memory = (void **) &hooks_memory,
	.is_lasting = true
};

/* ---- sets ---------------------------------------------------------------- */

HookSet *
hooks_copy(void)
{
	HookSet    *set = palloc(sizeof(HookSet));

	shared_snapshot_read(&hooks_memory->generation, hooks_memory->sets, sizeof(HookSet), set);
	return set;
}

/*
 * The new set is complete when the generation changes.  A process that is killed
 * before that leaves the old one.
 */
static void
put_in_force(HookSet *set)
{
	for (int i = 0; i < set->nhooks; i++)
	{
		Hook	   *hook = &set->hooks[i];
		const Hook *known = hooks_find(hooks_current(), hook->id);

		if (known != NULL)
			memcpy(hook->tasks, known->tasks, sizeof(Hook) - offsetof(Hook, tasks));
	}
	set->read_at = GetCurrentTimestamp();
	hooks_memory->error[0] = '\0';
	shared_snapshot_write(&hooks_memory->generation, hooks_memory->sets, sizeof(HookSet), set);
}

void
hooks_load(int elevel)
{
	HookSet    *set = palloc0(sizeof(HookSet));
	const char *error = hooks_file_read(settings_hooks_file, set);

	hooks_memory->reload_time = PgReloadTime;
	if (error == NULL)
		put_in_force(set);
	else
	{
		/* the log comes first: whoever sees the error in the view finds it there */
		ereport(elevel,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("%s", error),
				 elevel < ERROR ? errdetail("The hooks that were in force before stay in force.") :
				 0));
		strlcpy(hooks_memory->error, error, sizeof(hooks_memory->error));
		hooks_memory->error_at = GetCurrentTimestamp();
	}
	pfree(set);
}

void
hooks_install(void)
{
	if (settings_hooks_file[0] != '\0')
		hooks_load(FATAL);
}

/* ---- the process of hooks -------------------------------------------------- */

int64
hooks_supervise(void)
{
	static SupervisedWorker worker = {
		.type = "etcd_leader hooks",
		.function = "etcd_leader_hooks_main",
		.start_time = BgWorkerStart_RecoveryFinished
	};

	return worker_supervise(&worker, settings_hooks_file[0] != '\0', claimed);
}

bool
hooks_claim(void)
{
	return worker_claim(claimed);
}

/* ---- databases that somebody wants for himself ----------------------------- */

/* Tells the runs in that database to end.  False: there is none. */
static bool
end_runs(const char *database)
{
	bool		found = false;

	for (int i = 0; i < HOOKS_MAX_RUNS; i++)
	{
		HookRun    *run = &hooks_memory->runs[i];
		HookRunState state = pg_atomic_read_u32(&run->state);

		/* database and process are not older than the state */
		pg_read_barrier();		/* handshake.pml: RUN_SEEN */
		if ((state != RUN_STARTING && state != RUN_RUNNING) || strcmp(run->database, database) != 0)
			continue;
		found = true;
		if (state == RUN_RUNNING)
			(void) kill((pid_t) pg_atomic_read_u32(&run->pid), SIGTERM);
	}
	return found;
}

/* The end of the hold on a database. */
static pg_atomic_uint64 *
hold_of(const char *database)
{
	int			len = (int) strnlen(database, NAMEDATALEN);
	uint32		hash = hash_bytes((const unsigned char *) database, len);

	return &hooks_memory->held_until_ns[hash % HOOKS_HOLDS];
}

bool
hooks_is_held(const char *database)
{
	return (int64) pg_atomic_read_u64(hold_of(database)) > clock_now_ns();
}

void
hooks_vacate(const char *database)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderHookLeave");
	int64		until_ns = clock_now_ns() + HOLD_NS;
	long		left_ms;

	if (settings_hooks_file[0] == '\0')
		return;
	pg_atomic_write_u64(hold_of(database), (uint64) until_ns);
	/* a run begins first, and looks at this then */
	pg_memory_barrier();		/* handshake.pml: HOLD_BEGUN */
	events_prepare_to_sleep();
	while (end_runs(database) && (left_ms = clock_remaining_ms(until_ns / NSEC_PER_USEC)) > 0)
		(void) events_sleep(Min(left_ms, 100), wait_event);
	events_cancel_sleep();
}

/* ---- views ----------------------------------------------------------------- */

static const Oid hook_columns[] = {
	INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INTERVALOID, TEXTOID, BOOLOID,
	INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT4OID
};
static const Oid file_columns[] = {TEXTOID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID,
								   TIMESTAMPTZOID};

static void
put_hook(FunctionCallInfo fcinfo, const HookSet *set, const Hook *hook)
{
	static const char *const statuses[] = {"", "waiting", "running", "succeeded", "failed",
										   "cancelled", "crashed"};
	bool		is_over = hook->status != HOOK_RUNNING;
	Row			row = {0};

	row_add_value(&row, Int32GetDatum(hook->line));
	row_add_text(&row, hook_event_name(hook->event));
	row_add_text(&row, hook->election[0] ? hook->election : "all");
	row_add_text(&row, hook->database);
	row_add_text(&row, hook->role);
	row_add_interval(&row, hook->timeout_ms * INT64CONST(1000));
	row_add_text(&row, set->commands + hook->command);
	row_add_value(&row, BoolGetDatum(hook->crashes >= HOOKS_MAX_CRASHES));
	row_add_number(&row, hook->token);
	row_add_time(&row, hook->started_at);
	row_add_time(&row, hook->ended_at);
	row_add_text(&row, statuses[hook->status]);
	row_add_text(&row, is_over && hook->sqlerrcode ? unpack_sql_state(hook->sqlerrcode) : NULL);
	row_add_text(&row, is_over ? hook->message : NULL);
	row_add_value(&row, Int64GetDatum(hook->runs));
	row_add_value(&row, Int64GetDatum(hook->failures));
	row_add_value(&row, Int32GetDatum(hook->crashes));
	row_put(fcinfo, &row);
}

/*
 * etcd_leader_hooks() returns setof record: the rows of the view
 */
Datum
etcd_leader_hooks(PG_FUNCTION_ARGS)
{
	const HookSet *set;

	arguments_require_preloaded();
	ROWS_BEGIN(hook_columns);
	set = hooks_copy();
	for (int i = 0; i < set->nhooks; i++)
		put_hook(fcinfo, set, &set->hooks[i]);
	return (Datum) 0;
}

/*
 * etcd_leader_hooks_file() returns setof record: the row of the view
 */
Datum
etcd_leader_hooks_file(PG_FUNCTION_ARGS)
{
	const HookSet *set;
	uint64		hash = 0;
	Row			row = {0};

	arguments_require_preloaded();
	ROWS_BEGIN(file_columns);
	set = hooks_copy();
	for (int i = 0; i < set->nhooks; i++)
		hash += set->hooks[i].id;	/* their order does not count */
	row_add_text(&row, set->path);
	row_add_time(&row, set->read_at);
	row_add_value(&row, Int32GetDatum(set->nhooks));
	row_add_text(&row, psprintf("%016llx", (unsigned long long) hash));
	row_add_text(&row, hooks_memory->error);
	row_add_time(&row, hooks_memory->error[0] ? hooks_memory->error_at : 0);
	row_put(fcinfo, &row);
	return (Datum) 0;
}
