/*-------------------------------------------------------------------------
 *
 * hook_launcher.c
 *	  Starts the hooks of a database when they are due.
 *
 * A process for each notified database that has hooks.  It is not the notifier,
 * since it reads and writes tables, for which it may have to wait, and NOTIFY
 * must not.  It is not the hooks' either: each run has a process, and a role,
 * of its own.
 *
 * Due work follows from the current state, and not from events: for each
 * election, the token under which this instance leads; the tokens that it has
 * lost and whose unelected hooks have not run; and the records of runs.  So a
 * launcher that was killed, and the next one, start what is missing.  For one
 * election, only one of these phases runs at a time, in the order of what has
 * happened: the last word is always that of the state which holds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "events.h"
#include "hook_launcher.h"
#include "hook_records.h"
#include "hook_register.h"
#include "hook_run.h"
#include "notifier_register.h"
#include "quiet_exit.h"
#include "settings.h"
#include "shared_state.h"
#include "stats.h"
#include "status.h"
#include "worker.h"

#define NS_PER_MS	INT64CONST(1000000)

/* Between tries of what failed: doubled up to the last. */
#define BACKOFF_MIN_MS	1000
#define BACKOFF_MAX_MS	60000

/* How often to check, while hooks run, whether they still may. */
#define LOOK_INTERVAL_MS	500

/*
 * After a loss the fence has this time to end an elected hook.  Then its
 * process is ended.
 */
#define LOSS_GRACE_NS		(500 * NS_PER_MS)

/* The same for a hook that does not end at its timeout. */
#define TIMEOUT_GRACE_NS	(2000 * NS_PER_MS)

/* How long after its start an instance that does not lead may still be about to lead. */
#define START_GRACE_NS		(1000 * NS_PER_MS)

/* Waits for the locks of tables are given up after this time. */
#define LAUNCHER_LOCK_TIMEOUT	"500ms"

/* The arguments of a launcher, in bgw_extra. */
typedef struct LauncherStart
{
	char		database[NAMEDATALEN];
	int			slot;			/* in the notifier register */
} LauncherStart;

/* A leadership that has ended. */
typedef struct Loss
{
	int64		token;			/* 0: unknown */
	int64		seq;			/* of the event that tells; 0: it has not come yet */
} Loss;

typedef struct Election
{
	char		name[ELECTION_NAME_SIZE];
	char	   *shown;			/* in the database's encoding */
	int64		event_token;	/* by the events: under which it leads; 0: not */
	int64		token;			/* by the state */
	int64		last_lost;
	int64		lost_at_ns;		/* when that was seen */
	bool		starting;		/* the server has started: unelected hooks run once */
	List	   *losses;			/* Loss *, whose hooks have not all run */
} Election;

/* A run whose end is not recorded. */
typedef struct ActiveRun
{
	char		name[NAMEDATALEN];
	Election   *election;
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
	bool		is_over;		/* there is no worker; then these are set: */
	const char *status;
	const char *message;
} ActiveRun;

/* A hook whose last run did not succeed. */
typedef struct Failure
{
	char		name[NAMEDATALEN];	/* the key */
	int64		token;
	int64		due_ns;			/* when it is tried again */
	int			backoff_ms;
	char		message[128];	/* that was logged last */
} Failure;

static LauncherStart me;
static List *elections = NIL;	/* Election * */
static List *active = NIL;		/* ActiveRun * */
static HTAB *failures = NULL;
static int64 events_seen = 0;	/* the last event that was looked at */
static int64 events_before;		/* what came up to this is dealt with */
static int64 began_ns;
static TimestampTz start_mark;	/* runs that began later are of this start */
static TimestampTz last_start;	/* of a run */
static bool is_first = true;	/* the tables have not been looked at */
static bool has_hooks = true;
static bool no_place = false;	/* for a run */
static bool no_worker = false;	/* for a run, which is recorded as waiting */
static bool was_reported = false;	/* that there is none */
static int64 no_worker_until_ns;	/* then it is tried again */
static int	no_worker_ms = BACKOFF_MIN_MS;

/* ---- in the notifier --------------------------------------------------- */

/* False if there is no room for it. */
static bool
register_launcher(const char *database, int notifier_slot)
{
	BackgroundWorker worker;
	LauncherStart start;

	memset(&start, 0, sizeof(start));
	strlcpy(start.database, database, NAMEDATALEN);
	start.slot = notifier_slot;

	worker_init(&worker, "etcd_leader hook launcher", "etcd_leader_hook_launcher_main", BgWorkerStart_RecoveryFinished);
	worker.bgw_flags |= COMPAT_BGWORKER_INTERRUPTIBLE;
	snprintf(worker.bgw_name, BGW_MAXLEN, "etcd_leader hook launcher for database %s", database);
	memcpy(worker.bgw_extra, &start, sizeof(start));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

long
hook_launcher_supervise(const char *database, int notifier_slot)
{
	static int64 due_ns = 0;
	static int	backoff_ms = BACKOFF_MIN_MS;
	static bool reported = false;
	int64		now_ns = shared_state_clock_ns();

	if (!hook_register_wants_launcher(notifier_slot))
		return -1;
	if (hook_register_was_dismissed(notifier_slot))
		due_ns = 0;
	if (now_ns < due_ns)
		return (long) ((due_ns - now_ns) / NS_PER_MS + 1);

	/* a launcher that ran for a while is restarted at once */
	if (now_ns - due_ns > BACKOFF_MAX_MS * NS_PER_MS)
		backoff_ms = BACKOFF_MIN_MS;
	due_ns = now_ns + backoff_ms * NS_PER_MS;
	backoff_ms = Min(backoff_ms * 2, BACKOFF_MAX_MS);

	if (register_launcher(database, notifier_slot))
		reported = false;
	else if (!reported)
	{
		reported = true;
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start the hook launcher for database \"%s\"", database),
				 errdetail("There is no free background worker slot."),
				 errhint("Consider increasing the configuration parameter \"max_worker_processes\".")));
	}
	return (long) ((due_ns - now_ns) / NS_PER_MS + 1);
}

/* ---- elections --------------------------------------------------------- */

/* The election of that name, in UTF-8; made if there is none.  Needs a transaction. */
static Election *
find_election(const char *name)
{
	MemoryContext context;
	Election   *election;
	ListCell   *cell;

	foreach(cell, elections)
	{
		election = lfirst(cell);
		if (strcmp(election->name, name) == 0)
			return election;
	}
	context = MemoryContextSwitchTo(TopMemoryContext);
	election = palloc0(sizeof(Election));
	strlcpy(election->name, name, ELECTION_NAME_SIZE);
	election->shown = shared_state_text(name);
	election->starting = hook_register_handled(me.slot) == 0;
	elections = lappend(elections, election);
	MemoryContextSwitchTo(context);
	return election;
}

/*
 * A leadership has ended, by the state or by an event.  A later report of the
 * same loss is ignored, since tokens increase.
 */
static void
note_loss(Election *election, int64 token, int64 seq)
{
	MemoryContext context;
	Loss	   *loss;
	ListCell   *cell;

	if (token <= election->last_lost && token != 0)
	{
		foreach(cell, election->losses)
		{
			loss = lfirst(cell);
			if (loss->token == token && loss->seq == 0)
				loss->seq = seq;
		}
		return;
	}
	context = MemoryContextSwitchTo(TopMemoryContext);
	loss = palloc(sizeof(Loss));
	loss->token = token;
	loss->seq = seq;
	election->losses = lappend(election->losses, loss);
	MemoryContextSwitchTo(context);
	election->last_lost = Max(election->last_lost, token);
	election->lost_at_ns = shared_state_clock_ns();
	election->starting = false;
}

static void
look_at_event(const SharedEvent *event, bool is_handled)
{
	Election   *election;

	if (event->kind != ELECTION_EVENT_ELECTED && event->kind != ELECTION_EVENT_UNELECTED)
		return;
	election = find_election(event->election);
	if (event->kind == ELECTION_EVENT_ELECTED)
		election->event_token = event->leader_revision;
	else
	{
		if (is_handled)
			election->last_lost = Max(election->last_lost, election->event_token);
		else
			note_loss(election, election->event_token, event->seq);
		election->event_token = 0;
	}
}

static int64
current_token(const Election *election)
{
	return status_token(settings_election_index(election->name, (int) strlen(election->name)));
}

/*
 * Brings the elections up to date.  The state is read after the events.  A
 * loss that the state shows and no event reports yet is noted at once, since
 * the deadline ends a leadership also if there is no elector to report it.
 * Needs a transaction.
 */
static void
look_at_elections(void)
{
	SharedEvent event;
	ListCell   *cell;

	while (events_next(events_seen, &event))
	{
		look_at_event(&event, event.seq <= events_before);
		events_seen = event.seq;
	}
	foreach(cell, elections)
	{
		Election   *election = lfirst(cell);
		int64		token = current_token(election);

		if (token == election->token)
			continue;
		if (election->token != 0)
			note_loss(election, election->token, 0);
		if (token != 0)
		{
			election->starting = false;
			if (token <= election->last_lost)	/* it was not lost after all */
				election->last_lost = token - 1;
		}
		election->token = token;
	}
}

/* Is there anything that look_at_elections() does not know? */
static bool
has_news(void)
{
	ListCell   *cell;

	if (events_last() != events_seen)
		return true;
	foreach(cell, elections)
	{
		const Election *election = lfirst(cell);

		if (current_token(election) != election->token)
			return true;
	}
	return false;
}

/* Is it clear, after the start of the server, that this instance does not lead? */
static bool
does_not_lead(const Election *election)
{
	SharedElection shared;
	int			index = settings_election_index(election->name, (int) strlen(election->name));

	return shared_state_clock_ns() - began_ns > START_GRACE_NS ||
		(status_read(index, &shared) && shared.view.has_leader && shared.view.role != ELECTION_LEADER &&
		 shared.view.leader_revision != shared.view.create_revision);
}

/* Stores the last event up to which all events have been dealt with. */
static void
store_handled(void)
{
	int64		handled = events_seen;
	ListCell   *cell;
	ListCell   *loss_cell;

	foreach(cell, elections)
	{
		Election   *election = lfirst(cell);

		if (election->starting)
			return;
		foreach(loss_cell, election->losses)
		{
			const Loss *loss = lfirst(loss_cell);

			if (loss->seq != 0)
				handled = Min(handled, loss->seq - 1);
		}
	}
	hook_register_set_handled(me.slot, Max(handled, 1));
}

/* ---- failures ---------------------------------------------------------- */

static Failure *
find_failure(const char *name)
{
	return hash_search(failures, name, HASH_FIND, NULL);
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

	if (!found)
	{
		failure->token = 0;
		failure->message[0] = '\0';
	}
	if (failure->token != active_run->phase.token)
		failure->backoff_ms = BACKOFF_MIN_MS;
	failure->token = active_run->phase.token;
	failure->due_ns = active_run->started_ns + failure->backoff_ms * NS_PER_MS;
	failure->due_ns = Max(failure->due_ns, shared_state_clock_ns());
	failure->backoff_ms = Min(failure->backoff_ms * 2, BACKOFF_MAX_MS);

	if (strcmp(active_run->status, "failed") != 0 ||
		strncmp(failure->message, active_run->message, sizeof(failure->message) - 1) == 0)
		return;
	strlcpy(failure->message, active_run->message, sizeof(failure->message));
	ereport(WARNING,
			(errmsg("hook \"%s\" in database \"%s\" failed: %s",
					active_run->name, me.database, active_run->message)));
}

static void
note_success(const ActiveRun *active_run)
{
	const Failure *failure = find_failure(active_run->name);

	if (failure == NULL)
		return;
	if (failure->message[0] != '\0')
		ereport(LOG,
				(errmsg("hook \"%s\" in database \"%s\" has succeeded again", active_run->name, me.database)));
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
end_all_runs(int code, Datum arg)
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

/*
 * A run is over: how it has ended, for its record, the log and the counters.
 */
static void
judge_run(ActiveRun *active_run)
{
	HookResult	result = pg_atomic_read_u32(&active_run->run->result);
	bool		is_outdated = active_run->phase.event == HOOK_ELECTED &&
		active_run->phase.token != current_token(active_run->election);

	pg_read_barrier();
	active_run->is_over = true;
	active_run->message = active_run->run->message;
	if (result == HOOK_SUCCEEDED)
	{
		active_run->status = "succeeded";
		stats_count(COUNTER_HOOKS_SUCCEEDED, 1);
		note_success(active_run);
		return;
	}
	if (result == HOOK_UNFINISHED)
	{
		active_run->is_cancelled |= pg_atomic_read_u32(&active_run->run->has_begun) == 0;
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
	note_failure(active_run);
}

/*
 * Sees which runs are over, and ends those that must not go on.  True if one is
 * over.
 */
static bool
look_at_runs(void)
{
	int64		now_ns = shared_state_clock_ns();
	ListCell   *cell;
	bool		news = false;

	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);
		const Election *election = active_run->election;
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
		else if (now_ns - active_run->started_ns > active_run->run->timeout_ms * NS_PER_MS + TIMEOUT_GRACE_NS)
			end_run(active_run, "the run did not end at its timeout", false);
	}
	return news;
}

/* A segment of this process, with what the worker needs.  Needs a transaction. */
static dsm_segment *
make_segment(const Election *election, const HookPhase *phase, const DueHook *hook)
{
	dsm_segment *segment = dsm_create(offsetof(HookRun, command) + strlen(hook->command) + 1, 0);
	HookRun    *run = dsm_segment_address(segment);

	dsm_pin_mapping(segment);
	strlcpy(run->database, me.database, sizeof(run->database));
	strlcpy(run->role, hook->role, sizeof(run->role));
	strlcpy(run->name, hook->name, sizeof(run->name));
	strlcpy(run->election, election->name, sizeof(run->election));
	run->token = phase->event == HOOK_ELECTED ? phase->token : 0;
	run->timeout_ms = hook->timeout_ms;
	pg_atomic_init_u32(&run->may_begin, 0);
	pg_atomic_init_u32(&run->has_begun, 0);
	pg_atomic_init_u32(&run->result, HOOK_UNFINISHED);
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
 * Reports once that no worker is free, in the log and in a record of the run.
 */
static void
report_no_worker(const Election *election, const HookPhase *phase, const DueHook *hook)
{
	static const char message[] = "no background worker is free: consider increasing \"max_worker_processes\"";

	last_start = Max(GetCurrentTimestamp(), last_start + 1);
	hook_records_insert(hook->name, election->shown, phase, last_start, "waiting", message);
	no_worker = true;
	no_worker_until_ns = shared_state_clock_ns() + no_worker_ms * NS_PER_MS;
	no_worker_ms = Min(no_worker_ms * 2, BACKOFF_MAX_MS);
	if (!was_reported)
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start hook \"%s\" in database \"%s\"", hook->name, me.database),
				 errdetail("There is no free background worker slot."),
				 errhint("Consider increasing the configuration parameter \"max_worker_processes\".")));
	was_reported = true;
}

/*
 * Starts a run and records it; it waits until the record is committed.  False
 * if there is no room for it.
 */
static bool
start_run(Election *election, const HookPhase *phase, const DueHook *hook)
{
	ActiveRun  *active_run;
	MemoryContext context;
	uint64		ticket;

	if (no_worker)
		return false;
	ticket = hook_register_reserve(me.slot, settings_max_hook_workers);
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
	no_worker_ms = BACKOFF_MIN_MS;
	last_start = active_run->started_at = Max(GetCurrentTimestamp(), last_start + 1);
	hook_records_insert(active_run->name, election->shown, phase, last_start, "running", NULL);
	return true;
}

/* ---- what is due --------------------------------------------------------- */

/* The phase in which an election is; false: in none, nothing is due. */
static bool
find_phase(const Election *election, HookPhase *phase)
{
	memset(phase, 0, sizeof(HookPhase));
	phase->after = start_mark;
	phase->event = HOOK_UNELECTED;
	if (election->losses != NIL)
		phase->token = ((const Loss *) linitial(election->losses))->token;
	else if (election->token != 0)
	{
		phase->event = HOOK_ELECTED;
		phase->token = election->token;
	}
	else
		return election->starting && does_not_lead(election);
	return true;
}

/* All hooks of an unelected phase have run. */
static void
end_phase(Election *election)
{
	if (election->losses != NIL)
	{
		pfree(linitial(election->losses));
		election->losses = list_delete_first(election->losses);
	}
	else
		election->starting = false;
}

/* Is a run of this election under way?  other: of another phase than this. */
static bool
is_busy(const Election *election, const HookPhase *other)
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

/*
 * Starts what is due in an election.  next_ns: lowered to when the next try of
 * what has failed is due.
 */
static void
start_due_hooks(Election *election, int64 *next_ns)
{
	int64		now_ns = shared_state_clock_ns();
	HookPhase	phase;
	List	   *due;
	ListCell   *cell;

	while (find_phase(election, &phase) && !is_busy(election, &phase))
	{
		due = hook_records_due(election->shown, &phase);
		foreach(cell, due)
		{
			const DueHook *hook = lfirst(cell);
			const Failure *failure = find_failure(hook->name);

			if (failure != NULL && failure->due_ns > now_ns)
				*next_ns = Min(*next_ns, failure->due_ns);
			else if (!start_run(election, &phase, hook))
				return;
		}
		if (due != NIL || phase.event == HOOK_ELECTED || is_busy(election, NULL))
			return;
		end_phase(election);
	}
}

/* At the first look at the tables. */
static void
begin_records(void)
{
	hook_records_close_unfinished();
	last_start = start_mark = hook_records_last_start();
	is_first = false;
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

/* The elections that hooks name; one that is not in the settings, too. */
static void
note_elections(void)
{
	List	   *names = hook_records_elections();
	ListCell   *cell;

	foreach(cell, names)
	{
		const char *name = lfirst(cell);

		(void) find_election(pg_server_to_any(name, (int) strlen(name), PG_UTF8));
	}
	has_hooks = names != NIL;
}

/*
 * Records what has ended and starts what is due, in one transaction.  Returns
 * when there is more to do, in ns of shared_state_clock_ns().
 */
static int64
work_in_transaction(void)
{
	int64		next_ns = PG_INT64_MAX;
	ListCell   *cell;

	no_place = false;
	look_at_elections();
	has_hooks = hook_records_find();
	if (!has_hooks)
	{
		foreach(cell, active)
			end_run(lfirst(cell), "the extension was dropped", true);
		return next_ns;
	}
	if (is_first)
		begin_records();
	if (no_worker && shared_state_clock_ns() >= no_worker_until_ns)
	{
		hook_records_delete_waiting();
		no_worker = false;
	}
	foreach(cell, active)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (active_run->is_over)
			hook_records_end(active_run->name, active_run->started_at, active_run->status, active_run->message);
	}
	end_disabled_runs();
	note_elections();
	look_at_elections();
	foreach(cell, elections)
	{
		Election   *election = lfirst(cell);

		start_due_hooks(election, &next_ns);
		if (election->starting)
			next_ns = Min(next_ns, Max(began_ns + START_GRACE_NS, shared_state_clock_ns() + NS_PER_MS));
	}
	if (no_worker)
		next_ns = Min(next_ns, no_worker_until_ns);
	if (active != NIL)			/* the extension may go by DROP SCHEMA, too */
		next_ns = Min(next_ns, shared_state_clock_ns() + LOOK_INTERVAL_MS * NS_PER_MS);
	hook_records_prune();
	return next_ns;
}

/* The transaction is committed, and its records are valid. */
static void
finish_work(void)
{
	List	   *runs = list_copy(active);
	ListCell   *cell;

	foreach(cell, runs)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (active_run->is_over)
			forget_run(active_run);
		else if (!active_run->is_recorded && active_run->ended_for == NULL)
		{
			active_run->is_recorded = true;
			pg_atomic_write_u32(&active_run->run->may_begin, 1);
			events_wake();
		}
	}
	list_free(runs);
	store_handled();
}

/* It is not committed: a run without a record must not go on. */
static void
abandon_work(void)
{
	List	   *runs = list_copy(active);
	ListCell   *cell;

	foreach(cell, runs)
	{
		ActiveRun  *active_run = lfirst(cell);

		if (active_run->handle == NULL)
			forget_run(active_run);
		else if (!active_run->is_recorded)
			end_run(active_run, "its beginning could not be recorded", true);
	}
	list_free(runs);
}

/*
 * Records what has ended and starts what is due.  When there is more to do, in
 * ns of shared_state_clock_ns().
 */
static int64
work(void)
{
	int64		next_ns;

	pgstat_report_activity(STATE_RUNNING, "starting hooks");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	next_ns = work_in_transaction();
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	finish_work();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return next_ns;
}

/*
 * As work(), but tried again later after an ERROR.  That is logged if it is
 * another one than the last time; the end of a series is logged, too.
 */
static int64
try_to_work(void)
{
	static char last_error[256] = "";
	static int	backoff_ms = BACKOFF_MIN_MS;
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile edata = NULL;
	volatile int64 next_ns = 0;

	PG_TRY();
	{
		next_ns = work();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		pgstat_report_activity(STATE_IDLE, NULL);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);

	if (edata == NULL)
	{
		if (last_error[0] != '\0')
			ereport(LOG,
					(errmsg("hooks are started in database \"%s\" again", me.database)));
		last_error[0] = '\0';
		backoff_ms = BACKOFF_MIN_MS;
		return next_ns;
	}
	abandon_work();
	if (strncmp(last_error, edata->message, sizeof(last_error) - 1) != 0)
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg("could not start hooks in database \"%s\": %s", me.database, edata->message),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 errhint("It will be tried again until it succeeds.")));
	strlcpy(last_error, edata->message, sizeof(last_error));
	FreeErrorData(edata);
	next_ns = shared_state_clock_ns() + backoff_ms * NS_PER_MS;
	backoff_ms = Min(backoff_ms * 2, BACKOFF_MAX_MS);
	return next_ns;
}

/* ---- the process ---------------------------------------------------------- */

static void
connect_to_database(void)
{
	HASHCTL		info = {.keysize = NAMEDATALEN,.entrysize = sizeof(Failure)};

	BackgroundWorkerInitializeConnection(me.database, NULL, 0);
	SetConfigOption("application_name", "etcd_leader hook launcher", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", LAUNCHER_LOCK_TIMEOUT, PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("etcd_leader.require_leadership", "", PGC_SUSET, PGC_S_OVERRIDE);
	pgstat_report_activity(STATE_IDLE, NULL);
	failures = hash_create("hooks that failed", 64, &info, HASH_ELEM | HASH_STRINGS);
}

/* How long the launcher may sleep, in ms; -1: until it is woken. */
static long
sleep_ms(int64 next_ns)
{
	int64		now_ns = shared_state_clock_ns();

	/* nobody publishes that a deadline has passed */
	next_ns = Min(next_ns, shared_state_next_deadline_ns());
	if (active != NIL)
		next_ns = Min(next_ns, now_ns + LOOK_INTERVAL_MS * NS_PER_MS);
	if (next_ns == PG_INT64_MAX)
		return -1;
	return next_ns <= now_ns ? 0 : (long) Min((next_ns - now_ns) / NS_PER_MS + 1, INT_MAX);
}

static void
serve_settings(void)
{
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	no_place = true;			/* there may be room for more now */
}

void
etcd_leader_hook_launcher_main(Datum main_arg)
{
	uint32		wait_event;
	int64		next_ns = 0;
	uint64		changes_seen = 0;

	memcpy(&me, MyBgworkerEntry->bgw_extra, sizeof(me));
	quiet_exit_install();
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (!hook_register_claim(me.slot))
		proc_exit(0);
	connect_to_database();
	before_shmem_exit(end_all_runs, (Datum) 0);
	wait_event = compat_wait_event("EtcdLeaderHookLauncher");
	began_ns = shared_state_clock_ns();
	events_before = hook_register_handled(me.slot);
	if (events_before == 0)
		events_before = events_last();

	while (notifier_register_serves(me.slot, me.database))
	{
		uint64		change = events_change_number();
		uint64		changes = hook_register_changes(me.slot);
		bool		is_over = look_at_runs();

		serve_settings();
		if (is_over || has_news() || changes != changes_seen || no_place ||
			shared_state_clock_ns() >= next_ns)
			next_ns = try_to_work();
		changes_seen = changes;
		if (!has_hooks && active == NIL)
		{
			hook_register_dismiss(me.slot, changes);
			break;
		}
		(void) events_wait_for_change(change, sleep_ms(next_ns), wait_event);
	}
	proc_exit(0);
}
