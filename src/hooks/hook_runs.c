/*-------------------------------------------------------------------------
 *
 * hook_runs.c
 *	  The runs of hooks that a hook launcher has started.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/worker.h"
#include "hook_changes.h"
#include "hook_register.h"
#include "hook_run.h"
#include "hook_runs.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/shared_state.h"
#include "shared/stats.h"

#define NS_PER_MS	INT64CONST(1000000)

/* Between tries of what failed: doubled up to the last. */
#define BACKOFF_MIN_MS	1000
#define BACKOFF_MAX_MS	60000

/* How often to check, while hooks run, whether they still may. */
#define LOOK_INTERVAL_NS	(500 * NS_PER_MS)

/*
 * After a loss the fence has this time to end an elected hook.  Then its
 * process is ended.
 */
#define LOSS_GRACE_NS		(500 * NS_PER_MS)

/* The same for a hook that does not end at its timeout. */
#define TIMEOUT_GRACE_NS	(2000 * NS_PER_MS)

/* A run whose end is not recorded. */
typedef struct ActiveRun
{
	char		name[NAMEDATALEN];
	HookElection *election;
	HookPhase	phase;
	TimestampTz started_at;
	int64		started_ns;
	BackgroundWorkerHandle *handle;
	dsm_segment *segment;
	HookRun    *run;
	uint64		ticket;
	const char *ended_for;		/* why it was ended; NULL: it was not */
	bool		is_cancelled;	/* ended for no fault of its own, or not begun */
	bool		is_recorded;	/* that it began */
	uint32		nrecorded;		/* of its changes */
	uint32		nrecorded_next; /* when the transaction is committed */
	bool		is_end_recorded;	/* when the transaction is committed */
	bool		is_over;		/* there is no worker; then these are set: */
	const char *status;
	const char *message;
} ActiveRun;

/* A hook whose last run did not succeed. */
typedef struct Failure
{
	char		name[NAMEDATALEN];	/* the key */
	uint32		version;		/* of the hook */
	int64		token;			/* of an elected hook */
	int64		due_ns;			/* when it is tried again */
	int			backoff_ms;
	char		message[128];	/* that was logged last */
} Failure;

/* No worker is free for a run, which is recorded as waiting. */
typedef struct Shortage
{
	bool		is_on;
	int64		until_ns;		/* then it is tried again */
	int			backoff_ms;
} Shortage;

/*
 * A hook of changes leaves the next free worker to the others, and they do not
 * wait for as long as it does.
 */
static Shortage shortage = {.backoff_ms = BACKOFF_MIN_MS};
static Shortage shortage_for_changes = {.backoff_ms = BACKOFF_MIN_MS};

static const char *database;
static int	slot;				/* of the database, in the notifier register */
static List *active = NIL;		/* ActiveRun * */
static HTAB *failures = NULL;
static TimestampTz last_start;	/* of a run */
static TimestampTz last_change_start;	/* of a run for a change */
static bool no_place = false;	/* for a run */
static uint64 releases_seen;	/* before that was found */
static bool was_reported = false;	/* that no worker is free */

/* ---- failures ---------------------------------------------------------- */

static Failure *
find_failure(const char *name)
{
	return hash_search(failures, name, HASH_FIND, NULL);
}

/*
 * What the log says of a failure.  The message of an error may hold the value of
 * a change, which is not for everybody who reads the log.
 */
static const char *
shown_message(const ActiveRun *active_run)
{
	int			sqlerrcode = active_run->run->sqlerrcode;

	if (active_run->phase.event != HOOK_CHANGE || sqlerrcode == 0)
		return active_run->message;
	return psprintf("SQLSTATE %s", unpack_sql_state(sqlerrcode));
}

/*
 * A run has not succeeded, and the hook will be tried later.  A hook that makes
 * its instance lose leads to another election, and runs again: the wait is
 * kept from token to token, though it begins small again.
 */
static void
note_failure(const ActiveRun *active_run)
{
	bool		found;
	Failure    *failure = hash_search(failures, active_run->name, HASH_ENTER, &found);
	const char *shown = shown_message(active_run);

	if (!found || failure->version != active_run->run->hook_version)
	{
		failure->version = active_run->run->hook_version;
		failure->token = 0;
		failure->backoff_ms = BACKOFF_MIN_MS;
		failure->message[0] = '\0';
	}
	if (failure->token != active_run->phase.token)
		failure->backoff_ms = BACKOFF_MIN_MS;
	failure->token = active_run->phase.token;
	failure->due_ns = Max(active_run->started_ns, (int64) pg_atomic_read_u64(&active_run->run->began_ns)) +
		failure->backoff_ms * NS_PER_MS;
	failure->due_ns = Max(failure->due_ns, shared_state_clock_ns());
	failure->backoff_ms = Min(failure->backoff_ms * 2, BACKOFF_MAX_MS);

	if (strcmp(active_run->status, "failed") != 0 ||
		strncmp(failure->message, shown, sizeof(failure->message) - 1) == 0)
		return;
	strlcpy(failure->message, shown, sizeof(failure->message));
	ereport(WARNING,
			(errmsg("hook \"%s\" in database \"%s\" failed: %s", active_run->name, database, shown),
			 shown != active_run->message ? errhint("The message is in etcd_leader_hook_run.") : 0));
}

static void
note_success(const ActiveRun *active_run)
{
	const Failure *failure = find_failure(active_run->name);

	if (failure == NULL)
		return;
	if (failure->message[0] != '\0')
		ereport(LOG,
				(errmsg("hook \"%s\" in database \"%s\" has succeeded again", active_run->name, database)));
	(void) hash_search(failures, active_run->name, HASH_REMOVE, NULL);
}

/* ---- runs: their processes ---------------------------------------------- */

static void
end_run(ActiveRun *active_run, const char *reason, bool is_cancelled)
{
	if (active_run->ended_for != NULL || active_run->is_over)
		return;
	active_run->ended_for = reason;
	active_run->is_cancelled = is_cancelled;
	TerminateBackgroundWorker(active_run->handle);
}

/* At the end of the launcher: ends the hooks that it has started. */
static void
end_all_processes(int code, Datum arg)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);
		pid_t		pid;

		if (active_run->is_over)
			continue;
		TerminateBackgroundWorker(active_run->handle);
		if (GetBackgroundWorkerPid(active_run->handle, &pid) == BGWH_NOT_YET_STARTED)
			hook_register_release(active_run->ticket);
	}
}

/* Has its process ended in the middle of a command? */
static bool
is_command_running(HookRun *run)
{
	if (run->is_of_changes)
		return pg_atomic_read_u32(&run->nbegun) > pg_atomic_read_u32(&run->nsucceeded);
	return pg_atomic_read_u64(&run->began_ns) != 0;
}

/*
 * A process of a hook of changes has not ended well.  A success before that ends
 * a series of failures.  The gap that stands for what is given up is due at once.
 */
static void
note_end_of_changes(const ActiveRun *active_run)
{
	HookChangesEnd end = hook_changes_ended(active_run->run);
	Failure    *failure = find_failure(active_run->name);

	if (end == HOOK_CHANGES_OUTDATED)
		return;
	if (failure != NULL && pg_atomic_read_u32(&active_run->run->nsucceeded) > 0)
		failure->backoff_ms = BACKOFF_MIN_MS;
	note_failure(active_run);
	if (end != HOOK_CHANGES_GIVEN_UP)
		return;
	find_failure(active_run->name)->due_ns = 0;
	ereport(WARNING,
			(errmsg("hook \"%s\" in database \"%s\" gave up a change", active_run->name, database),
			 errdetail("Its command has failed %d times. A run for a gap follows.", HOOK_MAX_TRIES)));
}

/*
 * A run is over: how it has ended, for its record, the log and the counters.
 */
static void
judge_run(ActiveRun *active_run)
{
	HookResult	result = pg_atomic_read_u32(&active_run->run->result);
	bool		is_outdated = active_run->phase.event == HOOK_ELECTED &&
		active_run->phase.token != hook_elections_token(active_run->election);

	pg_read_barrier();
	active_run->is_over = true;
	active_run->message = active_run->run->message;
	if (active_run->phase.event == HOOK_CHANGE)
		stats_count(COUNTER_HOOKS_SUCCEEDED, pg_atomic_read_u32(&active_run->run->nsucceeded));
	if (result == HOOK_SUCCEEDED)
	{
		active_run->status = "succeeded";
		if (active_run->phase.event == HOOK_CHANGE)
			(void) hook_changes_ended(active_run->run);
		else
			stats_count(COUNTER_HOOKS_SUCCEEDED, 1);
		note_success(active_run);
		return;
	}
	if (result == HOOK_UNFINISHED)
	{
		active_run->is_cancelled |= !is_command_running(active_run->run);
		active_run->message = active_run->ended_for ? active_run->ended_for : "its process was ended";
	}
	if (is_outdated || (result == HOOK_UNFINISHED && active_run->is_cancelled))
	{
		active_run->status = "cancelled";
		stats_count(COUNTER_HOOKS_CANCELLED, 1);
	}
	else
	{
		active_run->status = "failed";
		stats_count(COUNTER_HOOKS_FAILED, 1);
	}
	if (active_run->phase.event == HOOK_CHANGE)
		note_end_of_changes(active_run);
	else
		note_failure(active_run);
}

bool
hook_runs_look(void)
{
	int64		now_ns = shared_state_clock_ns();
	ListCell   *cell;
	bool		news = false;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);
		const HookElection *election = active_run->election;
		BgwHandleStatus status;
		pid_t		pid;

		if (active_run->is_over)
			continue;
		status = GetBackgroundWorkerPid(active_run->handle, &pid);
		if (status == BGWH_STOPPED || status == BGWH_POSTMASTER_DIED)
		{
			judge_run(active_run);
			news = true;
		}
		else if (active_run->phase.event == HOOK_ELECTED && active_run->phase.token != election->token &&
				 now_ns - election->lost_at_ns > LOSS_GRACE_NS)
			end_run(active_run, "this instance does not lead any more", true);
		else if (now_ns - Max(active_run->started_ns, (int64) pg_atomic_read_u64(&active_run->run->began_ns)) >
				 active_run->run->timeout_ms * NS_PER_MS + TIMEOUT_GRACE_NS)
			end_run(active_run, "the run did not end at its timeout", false);
	}
	return news;
}

/* A segment of this process, with what the worker needs.  Needs a transaction. */
static dsm_segment *
make_segment(const HookElection *election, const HookPhase *phase, const DueHook *hook)
{
	bool		is_of_changes = phase->event == HOOK_CHANGE;
	dsm_segment *segment = dsm_create(hook_run_size(hook->command, is_of_changes), 0);
	HookRun    *run = dsm_segment_address(segment);

	dsm_pin_mapping(segment);
	strlcpy(run->database, database, sizeof(run->database));
	strlcpy(run->role, hook->role, sizeof(run->role));
	strlcpy(run->name, hook->name, sizeof(run->name));
	strlcpy(run->election, election ? election->name : "", sizeof(run->election));
	run->token = phase->event == HOOK_ELECTED ? phase->token : 0;
	run->timeout_ms = hook->timeout_ms;
	pg_atomic_init_u32(&run->may_begin, 0);
	run->is_of_changes = is_of_changes;
	run->begins_with_gap = hook->begins_with_gap;
	run->after = hook->after;
	run->hook_version = hook->version;
	run->refusals = hook_register_refusals();
	pg_atomic_init_u64(&run->began_ns, 0);
	pg_atomic_init_u32(&run->nbegun, 0);
	pg_atomic_init_u32(&run->nsucceeded, 0);
	pg_atomic_init_u32(&run->result, HOOK_UNFINISHED);
	run->sqlerrcode = 0;
	run->message[0] = '\0';
	strcpy(run->command, hook->command);
	return segment;
}

/* False if no worker is free. */
static bool
register_worker(ActiveRun *active_run)
{
	BackgroundWorker worker;
	HookRunStart start = {active_run->ticket};
	MemoryContext context;
	bool		registered;

	worker_init(&worker, "etcd_leader hook", "etcd_leader_hook_main", BgWorkerStart_RecoveryFinished);
	worker.bgw_flags |= COMPAT_BGWORKER_INTERRUPTIBLE;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(active_run->segment));
	snprintf(worker.bgw_name, BGW_MAXLEN, "etcd_leader hook %s", active_run->name);
	memcpy(worker.bgw_extra, &start, sizeof(start));

	context = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&worker, &active_run->handle);
	MemoryContextSwitchTo(context);
	return registered;
}

/* Forgets a run; its worker is gone, or was never there. */
static void
forget_run(ActiveRun *active_run)
{
	active = list_delete_ptr(active, active_run);
	hook_register_release(active_run->ticket);
	if (active_run->segment)
		dsm_detach(active_run->segment);
	if (active_run->handle)
		pfree(active_run->handle);
	pfree(active_run);
}

/* ---- runs: their records ------------------------------------------------ */

/*
 * Records the changes that a process has worked off since the last time, and the
 * one at which it is, or at which it has ended.
 */
static void
record_changes(ActiveRun *active_run)
{
	HookRun    *run = active_run->run;
	uint32		nsucceeded = pg_atomic_read_u32(&run->nsucceeded);
	uint32		nbegun = pg_atomic_read_u32(&run->nbegun);
	int			n = nsucceeded - active_run->nrecorded;
	HookChange *changes = palloc((n + 1) * sizeof(HookChange));
	HookChange *last = &changes[n];
	bool		has_failed = active_run->is_over && strcmp(active_run->status, "succeeded") != 0;

	pg_read_barrier();
	memcpy(changes, hook_run_changes(run) + active_run->nrecorded, n * sizeof(HookChange));
	for (int i = 0; i < n; i++)
	{
		last_change_start = changes[i].started_at = Max(changes[i].started_at, last_change_start + 1);
		changes[i].ended_at = Max(changes[i].ended_at, changes[i].started_at);
	}
	hook_records_delete_running(active_run->name);
	if (n > 0)
		hook_records_insert_changes(active_run->name, changes, n, "succeeded", NULL);
	active_run->nrecorded_next = nsucceeded;
	if (nbegun == nsucceeded && !has_failed)
		return;

	/* a process may fail without a change: if the role may not log in, for example */
	memset(last, 0, sizeof(HookChange));
	last->started_at = GetCurrentTimestamp();
	if (nbegun > nsucceeded)
		*last = hook_run_changes(run)[nsucceeded];
	last->started_at = Max(last->started_at, last_change_start + 1);
	last->ended_at = DT_NOEND;
	if (has_failed)
	{
		last->ended_at = Max(GetCurrentTimestamp(), last->started_at);
		last_change_start = last->started_at;
	}
	hook_records_insert_changes(active_run->name, last, 1, has_failed ? active_run->status : "running",
								has_failed ? active_run->message : NULL);
}

/*
 * How many hooks may run at once, before this one begins.  A flood of changes must
 * not keep elected and unelected hooks waiting: one place is theirs alone, if there
 * are two.
 */
static int
max_places(const HookPhase *phase)
{
	if (phase->event == HOOK_CHANGE && settings_max_hook_workers > 1)
		return settings_max_hook_workers - 1;
	return settings_max_hook_workers;
}

/*
 * Reports once that no worker is free, in the log and in a record of the run.
 */
static void
report_no_worker(const HookElection *election, const HookPhase *phase, const DueHook *hook)
{
	static const char message[] = "no background worker is free: consider increasing \"max_worker_processes\"";
	Shortage   *which = phase->event == HOOK_CHANGE ? &shortage_for_changes : &shortage;

	last_start = Max(GetCurrentTimestamp(), last_start + 1);
	hook_records_insert(hook->name, election ? election->shown : NULL, phase, last_start, "waiting", message);
	which->is_on = true;
	which->until_ns = shared_state_clock_ns() + which->backoff_ms * NS_PER_MS;
	which->backoff_ms = Min(which->backoff_ms * 2, BACKOFF_MAX_MS);
	if (!was_reported)
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start hook \"%s\" in database \"%s\"", hook->name, database),
				 errdetail("There is no free background worker slot."),
				 errhint("Consider increasing the configuration parameter \"max_worker_processes\".")));
	was_reported = true;
}

bool
hook_runs_start(HookElection *election, const HookPhase *phase, const DueHook *hook)
{
	ActiveRun  *active_run;
	MemoryContext context;
	uint64		ticket;

	if (shortage.is_on || (phase->event == HOOK_CHANGE && shortage_for_changes.is_on))
		return false;
	ticket = hook_register_reserve(slot, max_places(phase));
	if (ticket == 0)
	{
		no_place = true;
		return false;
	}
	context = MemoryContextSwitchTo(TopMemoryContext);
	active_run = palloc0(sizeof(ActiveRun));
	strlcpy(active_run->name, hook->name, sizeof(active_run->name));
	active_run->election = election;
	active_run->phase = *phase;
	active_run->ticket = ticket;
	active_run->started_ns = shared_state_clock_ns();
	active = lappend(active, active_run);
	MemoryContextSwitchTo(context);

	active_run->segment = make_segment(election, phase, hook);
	active_run->run = dsm_segment_address(active_run->segment);
	if (!register_worker(active_run))
	{
		forget_run(active_run);
		report_no_worker(election, phase, hook);
		return false;
	}
	was_reported = false;
	shortage_for_changes.backoff_ms = BACKOFF_MIN_MS;
	if (phase->event == HOOK_CHANGE)
		return true;			/* its changes are recorded later */
	shortage.backoff_ms = BACKOFF_MIN_MS;
	last_start = active_run->started_at = Max(GetCurrentTimestamp(), last_start + 1);
	hook_records_insert(active_run->name, election->shown, phase, last_start, "running", NULL);
	return true;
}

static void
end_disabled_runs(void)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (!hook_records_is_enabled(active_run->name))
			end_run(active_run, "the hook was dropped or disabled", true);
	}
}

void
hook_runs_prepare(void)
{
	ListCell   *cell;

	no_place = false;
	releases_seen = hook_register_releases();
	if (hook_runs_retry_ns() <= shared_state_clock_ns())
	{
		hook_records_delete_waiting();
		shortage.is_on = shortage_for_changes.is_on = false;
	}
	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (active_run->phase.event == HOOK_CHANGE || !active_run->is_over)
			continue;
		hook_records_end(active_run->name, active_run->started_at, active_run->status, active_run->message);
		active_run->is_end_recorded = true;
	}
	end_disabled_runs();
}

bool
hook_runs_wait_for_commit(void)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		const ActiveRun *active_run = lfirst(cell);

		if (active_run->phase.event != HOOK_CHANGE && !active_run->is_recorded && active_run->ended_for == NULL)
			return true;
	}
	return false;
}

void
hook_runs_record_changes(void)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (active_run->phase.event != HOOK_CHANGE)
			continue;
		record_changes(active_run);
		active_run->is_end_recorded = active_run->is_over;
	}
}

void
hook_runs_commit(void)
{
	List	   *runs = list_copy(active);
	ListCell   *cell;

	foreach(cell, runs)
	{
		ActiveRun  *active_run = lfirst(cell);

		active_run->nrecorded = active_run->nrecorded_next;
		if (active_run->is_end_recorded)
			forget_run(active_run);
		else if (!active_run->is_recorded && active_run->ended_for == NULL)
		{
			active_run->is_recorded = true;
			pg_atomic_write_u32(&active_run->run->may_begin, 1);
			events_wake();
		}
	}
	list_free(runs);
}

void
hook_runs_abort(void)
{
	List	   *runs = list_copy(active);
	ListCell   *cell;

	foreach(cell, runs)
	{
		ActiveRun  *active_run = lfirst(cell);

		active_run->nrecorded_next = active_run->nrecorded;
		active_run->is_end_recorded = false;
		if (active_run->handle == NULL)
			forget_run(active_run);
		else if (!active_run->is_recorded)
			end_run(active_run, "its beginning could not be recorded", true);
	}
	list_free(runs);
}

/* ---- for the launcher ----------------------------------------------------- */

void
hook_runs_begin(const char *launcher_database, int notifier_slot)
{
	HASHCTL		info = {.keysize = NAMEDATALEN,.entrysize = sizeof(Failure)};

	database = launcher_database;
	slot = notifier_slot;
	failures = hash_create("hooks that failed", 64, &info, HASH_ELEM | HASH_STRINGS);
	before_shmem_exit(end_all_processes, (Datum) 0);
}

void
hook_runs_begin_after(TimestampTz last)
{
	last_start = last_change_start = last;
}

bool
hook_runs_exist(void)
{
	return active != NIL;
}

bool
hook_runs_are_busy(const HookElection *election, const HookPhase *other)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		const ActiveRun *active_run = lfirst(cell);

		if (active_run->election == election && !active_run->is_over &&
			(other == NULL || active_run->phase.event != other->event || active_run->phase.token != other->token))
			return true;
	}
	return false;
}

bool
hook_runs_is_running(const char *hook)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		const ActiveRun *active_run = lfirst(cell);

		if (!active_run->is_over && strcmp(active_run->name, hook) == 0)
			return true;
	}
	return false;
}

void
hook_runs_end(const char *hook, const char *reason)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (strcmp(active_run->name, hook) == 0)
			end_run(active_run, reason, true);
	}
}

void
hook_runs_end_all(const char *reason)
{
	ListCell   *cell;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);

		end_run(active_run, reason, true);
		active_run->is_end_recorded = active_run->is_over;	/* as far as it can be */
	}
}

int64
hook_runs_due_ns(const char *hook, uint32 version)
{
	const Failure *failure = find_failure(hook);

	return failure && failure->version == version ? failure->due_ns : 0;
}

bool
hook_runs_want_place(void)
{
	return no_place && hook_register_releases() != releases_seen;
}

int64
hook_runs_retry_ns(void)
{
	return Min(shortage.is_on ? shortage.until_ns : PG_INT64_MAX,
			   shortage_for_changes.is_on ? shortage_for_changes.until_ns : PG_INT64_MAX);
}

int64
hook_runs_look_again_ns(void)
{
	return active != NIL ? shared_state_clock_ns() + LOOK_INTERVAL_NS : PG_INT64_MAX;
}
