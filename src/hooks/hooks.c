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
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/utf8.h"
#include "base/worker.h"
#include "hooks.h"
#include "session/functions.h"
#include "session/rows.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/shared_state.h"
#include "shared/supervised_worker.h"

/* No run begins in a database that somebody wants for himself. */
#define HOLD_NS			(1000 * NSEC_PER_MSEC)

PG_FUNCTION_INFO_V1(etcd_leader_hooks);
PG_FUNCTION_INFO_V1(etcd_leader_hooks_file);

/* The process of hooks.  A crash of the server forgets it. */
typedef struct HooksProcess
{
	pg_atomic_uint32 claimed;
	pg_atomic_uint32 begun;		/* so many, since the start or the crash */
} HooksProcess;

static HooksProcess *process = NULL;
HookMemory *hooks_memory = NULL;

static void
init_process(void)
{
	pg_atomic_init_u32(&process->claimed, 0);
	pg_atomic_init_u32(&process->begun, 0);
}

/* The mapping is zero, which is right.  No page is touched before there are hooks. */
static void
init_memory(void)
{
}

const SharedPart hooks_part = {
	.name = "etcd_leader hooks", .size = sizeof(HooksProcess), .memory = (void **) &process, .init = init_process
};
const SharedPart hooks_memory_part = {
	.name = "memory of hooks", .size = sizeof(HookMemory), .memory = (void **) &hooks_memory, .init = init_memory,
	.is_lasting = true
};

/* ---- sets ---------------------------------------------------------------- */

/*
 * The new set is complete when the generation changes.  A process that is killed
 * before that leaves the old one.
 */
void
hooks_put_in_force(HookSet *set)
{
	uint64		generation = pg_atomic_read_u64(&hooks_memory->generation);

	for (int i = 0; i < set->nhooks; i++)
	{
		Hook	   *hook = &set->hooks[i];
		const Hook *known = hooks_find(hooks_current(), hook->id);

		if (known != NULL)
			memcpy(hook->tasks, known->tasks, sizeof(Hook) - offsetof(Hook, tasks));
	}
	set->read_at = GetCurrentTimestamp();
	memcpy(&hooks_memory->sets[(generation + 1) % 2], set, sizeof(HookSet));
	hooks_memory->error[0] = '\0';
	pg_write_barrier();
	pg_atomic_write_u64(&hooks_memory->generation, generation + 1);
}

void
hooks_install(void)
{
	HookSet    *set;

	if (settings_hooks_file[0] == '\0')
		return;
	set = hooks_file_read(settings_hooks_file);
	hooks_put_in_force(set);
	pfree(set);
	hooks_memory->reload_time = PgReloadTime;
	hooks_memory->is_start = true;
}

/* ---- the process of hooks -------------------------------------------------- */

int64
hooks_supervise(bool in_recovery)
{
	static SupervisedWorker worker = {
		.type = "etcd_leader hooks",
		.function = "etcd_leader_hooks_main",
		.start_time = BgWorkerStart_RecoveryFinished
	};
	bool		is_wanted = settings_hooks_file[0] != '\0';

	if (is_wanted && in_recovery)
		hooks_memory->is_start = true;
	return worker_supervise(&worker, is_wanted, &process->claimed);
}

bool
hooks_claim(bool *is_first)
{
	if (!worker_claim(&process->claimed))
		return false;
	*is_first = pg_atomic_fetch_add_u32(&process->begun, 1) == 0;
	return true;
}

/* ---- databases that somebody wants for himself ----------------------------- */

/* The state of a run in that database; FREE if it is none. */
static HookRunState
state_in_database(HookRun *run, const char *database)
{
	HookRunState state = pg_atomic_read_u32(&run->state);

	if ((state != RUN_STARTING && state != RUN_RUNNING) || strncmp(run->database, database, NAMEDATALEN) != 0)
		return RUN_FREE;
	return state;
}

static bool
is_occupied(const char *database)
{
	for (int i = 0; i < HOOKS_MAX_RUNS; i++)
	{
		if (state_in_database(&hooks_memory->runs[i], database) != RUN_FREE)
			return true;
	}
	return false;
}

bool
hooks_name_database(const char *database)
{
	const HookSet *set = hooks_current();

	for (int i = 0; i < set->nhooks; i++)
	{
		if (strncmp(set->hooks[i].database, database, NAMEDATALEN) == 0)
			return true;
	}
	return false;
}

bool
hooks_is_held(const char *database)
{
	return (int64) pg_atomic_read_u64(&hooks_memory->held_until_ns) > clock_now_ns() &&
		strncmp(hooks_memory->held_database, database, NAMEDATALEN) == 0;
}

void
hooks_vacate(const char *database, long timeout_ms)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderHookLeave");
	int64		until_us = clock_now_ns() / 1000 + timeout_ms * 1000;
	long		left_ms;

	strlcpy(hooks_memory->held_database, database, NAMEDATALEN);
	pg_write_barrier();
	pg_atomic_write_u64(&hooks_memory->held_until_ns, (uint64) (clock_now_ns() + HOLD_NS));
	events_prepare_to_sleep();
	while (is_occupied(database) && (left_ms = clock_remaining_ms(until_us)) > 0)
	{
		for (int i = 0; i < HOOKS_MAX_RUNS; i++)
		{
			HookRun    *run = &hooks_memory->runs[i];

			if (state_in_database(run, database) == RUN_RUNNING)
				(void) kill((pid_t) pg_atomic_read_u32(&run->pid), SIGTERM);
		}
		(void) events_sleep(Min(left_ms, 100), wait_event);
	}
	events_cancel_sleep();
}

/* ---- views ----------------------------------------------------------------- */

static const Oid hook_columns[] = {
	INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INTERVALOID, TEXTOID, BOOLOID,
	INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT4OID
};
static const Oid file_columns[] = {TEXTOID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID};

/* A copy of the set in force; what runs change in it may be half written. */
static HookSet *
copy_set(void)
{
	HookSet    *set = palloc(sizeof(HookSet));
	uint64		generation;

	do
	{
		generation = pg_atomic_read_u64(&hooks_memory->generation);
		pg_read_barrier();
		memcpy(set, &hooks_memory->sets[generation % 2], sizeof(HookSet));
		pg_read_barrier();
	} while (pg_atomic_read_u64(&hooks_memory->generation) != generation);
	return set;
}

static void
put_hook(FunctionCallInfo fcinfo, const HookSet *set, const Hook *hook)
{
	static const char *const statuses[] = {"", "waiting", "running", "succeeded", "failed", "cancelled", "crashed"};
	Row			row = {0};
	bool		is_over = hook->status != HOOK_RUNNING;

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

	functions_require_preloaded();
	ROWS_BEGIN(hook_columns);
	set = copy_set();
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
	Row			row = {0};
	uint64		hash = 0;
	char		hex[17];

	functions_require_preloaded();
	ROWS_BEGIN(file_columns);
	set = copy_set();
	for (int i = 0; i < set->nhooks; i++)
		hash += set->hooks[i].id;	/* their order does not count */
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long) hash);
	row_add_text(&row, set->path);
	row_add_time(&row, set->read_at);
	row_add_value(&row, Int32GetDatum(set->nhooks));
	row_add_text(&row, hex);
	row_add_text(&row, hooks_memory->error);
	row_add_time(&row, hooks_memory->error[0] ? hooks_memory->error_at : 0);
	row_put(fcinfo, &row);
	return (Datum) 0;
}
