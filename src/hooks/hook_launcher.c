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
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/attempt.h"
#include "base/compat.h"
#include "base/quiet_exit.h"
#include "base/worker.h"
#include "hook_changes.h"
#include "hook_elections.h"
#include "hook_launcher.h"
#include "hook_records.h"
#include "hook_register.h"
#include "hook_runs.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/notifier_register.h"
#include "shared/shared_state.h"

#define NS_PER_MS	INT64CONST(1000000)

/* Between tries of what failed: doubled up to the last. */
#define BACKOFF_MIN_MS	1000
#define BACKOFF_MAX_MS	60000

/* Old records go at most so often, since that reads the whole table. */
#define PRUNE_INTERVAL_NS	(1000 * NS_PER_MS)

/* Waits for the locks of tables are given up after this time. */
#define LAUNCHER_LOCK_TIMEOUT	"500ms"

/* The arguments of a launcher, in bgw_extra. */
typedef struct LauncherStart
{
	char		database[NAMEDATALEN];
	int			slot;			/* in the notifier register */
} LauncherStart;

static LauncherStart me;
static TimestampTz start_mark;	/* runs that began later are of this start */
static bool is_first = true;	/* the tables have not been looked at */
static bool has_hooks = true;
static bool is_reloaded = false;	/* there may be room for more runs */

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
	{
		due_ns = 0;
		hook_register_recall(notifier_slot);
	}
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

/* ---- what is due --------------------------------------------------------- */

/*
 * Starts what is due in an election.  next_ns: lowered to when the next try of
 * what has failed is due.
 */
static void
start_due_hooks(HookElection *election, int64 *next_ns)
{
	int64		now_ns = shared_state_clock_ns();
	HookPhase	phase;
	List	   *due;
	ListCell   *cell;

	while (hook_elections_phase(election, start_mark, &phase) && !hook_runs_are_busy(election, &phase))
	{
		due = hook_records_due(election->shown, &phase);
		foreach(cell, due)
		{
			const DueHook *hook = lfirst(cell);
			int64		due_ns = hook_runs_due_ns(hook->name, hook->version);

			if (due_ns > now_ns)
				*next_ns = Min(*next_ns, due_ns);
			else if (!hook_runs_start(election, &phase, hook))
				return;
		}
		if (due != NIL || phase.event == HOOK_ELECTED || hook_runs_are_busy(election, NULL))
			return;
		hook_elections_end_phase(election);
	}
}

/* At the first look at the tables. */
static void
begin_records(void)
{
	hook_records_close_unfinished();
	start_mark = hook_records_last_start();
	hook_runs_begin_after(start_mark);
	is_first = false;
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

		(void) hook_elections_find(pg_server_to_any(name, (int) strlen(name), PG_UTF8));
	}
	has_hooks = hook_records_have_hooks();
}

/* Returns when it must be called again, if it has not pruned. */
static int64
prune_sometimes(void)
{
	static int64 due_ns = 0;
	int64		now_ns = shared_state_clock_ns();

	if (now_ns < due_ns)
		return due_ns;
	hook_records_prune();
	due_ns = now_ns + PRUNE_INTERVAL_NS;
	return PG_INT64_MAX;
}

/*
 * Records what has ended and starts what is due, in one transaction.  Returns
 * when there is more to do, in ns of shared_state_clock_ns().
 */
static int64
work_in_transaction(void)
{
	int64		next_ns = PG_INT64_MAX;
	List	   *hooks_of_changes;
	ListCell   *cell;

	is_reloaded = false;
	hook_elections_look();
	has_hooks = hook_records_find();
	if (!has_hooks)
	{
		hook_runs_end_all("the extension was dropped");
		return next_ns;
	}
	if (is_first)
		begin_records();
	hooks_of_changes = hook_changes_look();
	hook_runs_prepare();
	note_elections();
	hook_elections_look();
	foreach(cell, hook_elections)
	{
		HookElection *election = lfirst(cell);

		start_due_hooks(election, &next_ns);
		if (election->starting)
			next_ns = Min(next_ns, Max(hook_elections_settled_ns(), shared_state_clock_ns() + NS_PER_MS));
	}
	if (hook_runs_wait_for_commit())
		return 0;				/* they begin now, before the work for changes */
	hook_runs_record_changes();
	next_ns = Min(next_ns, hook_changes_start_due(hooks_of_changes));
	next_ns = Min(next_ns, prune_sometimes());
	next_ns = Min(next_ns, hook_runs_retry_ns());
	next_ns = Min(next_ns, hook_runs_look_again_ns());	/* the extension may go by DROP SCHEMA, too */
	return next_ns;
}

/*
 * Records what has ended and starts what is due.  next_ns: when there is more to
 * do, in ns of shared_state_clock_ns().
 */
static void
work(void *next_ns)
{
	pgstat_report_activity(STATE_RUNNING, "starting hooks");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	*(int64 *) next_ns = work_in_transaction();
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	hook_runs_commit();
	hook_elections_store_handled();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* As work(), but tried again later after an ERROR.  Returns next_ns. */
static int64
try_to_work(void)
{
	static Attempt starting = {
		.work = work,
		.failed = gettext_noop("could not start hooks in database \"%s\": %s"),
		.succeeded = gettext_noop("hooks are started in database \"%s\" again")
	};
	static int	backoff_ms = BACKOFF_MIN_MS;
	int64		next_ns;

	if (attempt_run(&starting, me.database, &next_ns))
	{
		backoff_ms = BACKOFF_MIN_MS;
		return next_ns;
	}
	hook_runs_abort();
	hook_changes_hold_up();
	next_ns = shared_state_clock_ns() + backoff_ms * NS_PER_MS;
	backoff_ms = Min(backoff_ms * 2, BACKOFF_MAX_MS);
	return next_ns;
}

/* ---- the process ---------------------------------------------------------- */

static void
connect_to_database(void)
{
	BackgroundWorkerInitializeConnection(me.database, NULL, 0);
	SetConfigOption("application_name", "etcd_leader hook launcher", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", LAUNCHER_LOCK_TIMEOUT, PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("etcd_leader.require_leadership", "", PGC_SUSET, PGC_S_OVERRIDE);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* How long the launcher may sleep, in ms; -1: until it is woken. */
static long
sleep_ms(int64 next_ns)
{
	int64		now_ns = shared_state_clock_ns();

	/* nobody publishes that a deadline has passed */
	next_ns = Min(next_ns, shared_state_next_deadline_ns());
	next_ns = Min(next_ns, hook_runs_look_again_ns());
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
	is_reloaded = true;
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
	hook_runs_begin(me.database, me.slot);
	hook_elections_begin(me.slot);
	wait_event = compat_wait_event("EtcdLeaderHookLauncher");

	while (notifier_register_serves(me.slot, me.database))
	{
		uint64		change = events_change_number();
		uint64		changes = hook_register_changes(me.slot);
		bool		is_over = hook_runs_look();

		serve_settings();
		if (is_over || hook_elections_have_news() || hook_changes_have_news() || changes != changes_seen || is_reloaded || hook_runs_want_place() ||
			shared_state_clock_ns() >= next_ns)
			next_ns = try_to_work();
		changes_seen = changes;
		if (!has_hooks && !hook_runs_exist())
		{
			hook_register_dismiss(me.slot, changes);
			break;
		}
		(void) events_wait_for_change(change, sleep_ms(next_ns), wait_event);
	}
	proc_exit(0);
}
