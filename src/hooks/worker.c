/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that decides which hooks are due, and starts their runs.
 *
 * Due work follows from the state: for each election, the phase in which its
 * hooks are, and what of that is done.  That is kept in memory that outlives
 * this process and a crash of the server, so whoever comes next starts what is
 * missing.  An election goes from one phase to the next only when no run of the
 * phase before is left: the last word is always that of the state which holds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/quiet_exit.h"
#include "base/worker.h"
#include "hooks.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/mailbox.h"
#include "shared/state.h"
#include "shared/stats.h"
#include "shared/status.h"

/* After a crash of the server the hook that ran then waits for so long. */
#define CRASH_HOLD_NS		(60000 * NSEC_PER_MSEC)

/* How long after its start an instance that does not lead may still be about to lead. */
#define START_GRACE_NS		(1000 * NSEC_PER_MSEC)

/* How often to check, while hooks run, whether they still may. */
#define LOOK_INTERVAL_NS	(500 * NSEC_PER_MSEC)

/*
 * After a loss the fence has this time to end an elected hook.  Then its
 * process is ended.
 */
#define LOSS_GRACE_NS		(500 * NSEC_PER_MSEC)

/* The same for a hook that does not end at its timeout. */
#define TIMEOUT_GRACE_NS	(2000 * NSEC_PER_MSEC)

/* How long to wait for the event of a loss: an elector that hangs says nothing. */
#define EVENT_GRACE_NS		(100 * NSEC_PER_MSEC)

/* How long to wait for the answer to a resignation. */
#define RESIGN_TIMEOUT_US	INT64CONST(2000000)

static BackgroundWorkerHandle *handles[HOOKS_MAX_RUNS]; /* the processes of the runs */

static int64 began_ns;			/* of this process */
static int64 changes_seen = 0;	/* the last event of a change that was looked at */
static int64 next_ns;			/* when there is more to do */

static void
wake_at(int64 at_ns)
{
	next_ns = Min(next_ns, at_ns);
}

/* ---- elections of the settings --------------------------------------------- */

/* Its index there; -1: it is not there. */
static int
index_of(const char *election)
{
	return settings_election_index(election, (int) strlen(election));
}

static int64
token_of(const char *election)
{
	return status_held_token(index_of(election));
}

/* ---- runs that are over ---------------------------------------------------- */

static HookRunState
run_state(int i)
{
	return (HookRunState) pg_atomic_read_u32(&hooks_memory->runs[i].state);
}

static void
free_run(int i)
{
	if (handles[i] != NULL)
		pfree(handles[i]);
	handles[i] = NULL;
	pg_atomic_write_u32(&hooks_memory->runs[i].state, RUN_FREE);
}

static void
note_success(Hook *hook, HookTask *task, const HookRun *run)
{
	if (task->backoff_ms != 0)
		ereport(LOG,
				(errmsg("hook in line %d of the hooks file has succeeded again", hook->line)));
	*task = (HookTask) {.is_done = true};
	if (hook->event == HOOK_CHANGE)
		task->due_ns = run->started_ns + EVENTS_CHANGES_PAUSE_MS * NSEC_PER_MSEC;
	hook->done_seq = run->seq;
	hook->crashes = 0;
	stats_count(COUNTER_HOOKS_SUCCEEDED, 1);
}

static void
note_crash(Hook *hook, const HookRun *run)
{
	bool		is_off = ++hook->crashes >= HOOKS_MAX_CRASHES;

	hook->token = run->token;
	hook->held_until_ns = clock_now_ns() + CRASH_HOLD_NS;
	stats_count(COUNTER_HOOKS_CRASHED, 1);
	ereport(WARNING,
			(errmsg("the server crashed while the hook in line %d of the hooks file ran",
					hook->line),
			 is_off ? errdetail("It has crashed %d times without a success in between. The hook is "
								"off.", hook->crashes) :
			 errdetail("The hook does not run for a minute."),
			 is_off ? errhint("The hook is on again when its line has changed or the server has "
							  "been started.") : 0));
}

static void
note_end(Hook *hook, const HookRun *run)
{
	HookTask   *task = &hook->tasks[run->election];

	hook->status = run->status;
	hook->ended_at = GetCurrentTimestamp();
	hook->sqlerrcode = run->sqlerrcode;
	strlcpy(hook->message, run->message, sizeof(hook->message));
	if (run->status == HOOK_SUCCEEDED)
	{
		note_success(hook, task, run);
		return;
	}
	task->due_ns = clock_now_ns() + BACKOFF_MIN_MS * NSEC_PER_MSEC;
	if (run->status == HOOK_CANCELLED)
	{
		stats_count(COUNTER_HOOKS_CANCELLED, 1);
		return;
	}
	hook->failures++;
	/* it runs once for each loss, also if it fails */
	task->is_done = hook->event == HOOK_UNELECTED;
	if (run->status == HOOK_CRASHED)
	{
		note_crash(hook, run);
		return;
	}
	task->due_ns = clock_now_ns() + backoff_next_ms(&task->backoff_ms) * NSEC_PER_MSEC;
	stats_count(COUNTER_HOOKS_FAILED, 1);
}

/* A run is over.  What was told to end, or was ended by the fence, is nobody's fault. */
static void
end_run(int i)
{
	HookRun    *run = &hooks_memory->runs[i];
	Hook	   *hook = hooks_find(hooks_current(), run->hook_id);

	/* the status is not older than the state, by which the run is over */
	pg_read_barrier();			/* handshake.pml: RUN_ENDED */
	if (run->status == HOOK_RUNNING)
	{
		run->sqlerrcode = ERRCODE_ADMIN_SHUTDOWN;
		strlcpy(run->message, "its process was ended", sizeof(run->message));
	}
	if (run->status == HOOK_RUNNING ||
		(run->status == HOOK_FAILED && run->event == HOOK_ELECTED &&
		 run->token != token_of(run->election_name)))
		run->status = HOOK_CANCELLED;
	if (hook != NULL)
		note_end(hook, run);
	free_run(i);
}

/* ---- runs that must not go on -------------------------------------------------- */

/* Ends its process.  False if that was done before.  The run may have another end meanwhile. */
static bool
stop_run(int i, HookStatus status, const char *reason)
{
	HookRun    *run = &hooks_memory->runs[i];

	if (run->status != HOOK_RUNNING || handles[i] == NULL)
		return false;
	run->sqlerrcode = ERRCODE_ADMIN_SHUTDOWN;
	strlcpy(run->message, reason, sizeof(run->message));
	run->status = status;
	TerminateBackgroundWorker(handles[i]);
	return true;
}

static void
check_run(int i)
{
	HookRun    *run = &hooks_memory->runs[i];
	const HookElection *election = &hooks_memory->elections[run->election];
	const Hook *hook = hooks_find(hooks_current(), run->hook_id);
	int64		now_ns = clock_now_ns();
	pid_t		pid;

	if (run_state(i) == RUN_OVER ||
		(handles[i] != NULL && GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED))
		end_run(i);
	else if (hook == NULL)
		(void) stop_run(i, HOOK_CANCELLED, "its line has gone");
	else if (run->event == HOOK_ELECTED && election->phase != HOOKS_LEADING &&
			 now_ns - election->since_ns > LOSS_GRACE_NS)
		(void) stop_run(i, HOOK_CANCELLED, "this instance does not lead any more");
	else if (now_ns - run->started_ns > hook->timeout_ms * NSEC_PER_MSEC + TIMEOUT_GRACE_NS &&
			 stop_run(i, HOOK_FAILED, "the run did not end at its timeout"))
		ereport(WARNING,
				(errmsg("hook in line %d of the hooks file failed: %s", hook->line, run->message)));
	if (run_state(i) != RUN_FREE)
		wake_at(now_ns + LOOK_INTERVAL_NS);
}

/* At the end of this process: ends the runs, and those that have not begun never will. */
static void
stop_all(int code, Datum arg)
{
	for (int i = 0; i < HOOKS_MAX_RUNS; i++)
	{
		uint32		expected = RUN_STARTING;

		if (handles[i] == NULL || run_state(i) == RUN_FREE)
			continue;
		TerminateBackgroundWorker(handles[i]);
		(void) pg_atomic_compare_exchange_u32(&hooks_memory->runs[i].state, &expected, RUN_FREE);
	}
}

/* How many runs there are: of an event, in an election, of a hook; -1, 0: of any. */
static int
count_runs(int event, int election, uint64 hook_id)
{
	int			n = 0;

	for (int i = 0; i < HOOKS_MAX_RUNS; i++)
	{
		const HookRun *run = &hooks_memory->runs[i];

		if (run_state(i) != RUN_FREE && (event < 0 || run->event == (HookEvent) event) &&
			(election < 0 || (run->event != HOOK_CHANGE && run->election == election)) &&
			(hook_id == 0 || run->hook_id == hook_id))
			n++;
	}
	return n;
}

/* ---- starts ------------------------------------------------------------------ */

/* Is there a place for a run?  The last one is never for a change. */
static bool
has_place(HookEvent event)
{
	return count_runs(-1, -1, 0) < settings_hooks_max_workers &&
		(event != HOOK_CHANGE || count_runs(HOOK_CHANGE, -1, 0) < settings_hooks_max_workers - 1);
}

/* Asks the postmaster for the process of a run.  False if there is no room for it. */
static bool
register_run(int i, const Hook *hook)
{
	HookRun    *run = &hooks_memory->runs[i];
	BackgroundWorker worker;

	worker_init(&worker, "etcd_leader hook", "etcd_leader_hook_main",
				BgWorkerStart_RecoveryFinished);
	snprintf(worker.bgw_name, BGW_MAXLEN, "etcd_leader hook in line %d", hook->line);
	worker.bgw_flags |= COMPAT_BGWORKER_INTERRUPTIBLE;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = Int32GetDatum(i);
	memcpy(worker.bgw_extra, &run->started_ns, sizeof(run->started_ns));
	return worker_register(&worker, &handles[i]);
}

/* No worker is free: the next try is in a second. */
static void
wait_for_worker(Hook *hook, HookTask *task)
{
	if (hook->status != HOOK_WAITING)
		ereport(WARNING,
				(errmsg("could not start the hook in line %d of the hooks file", hook->line),
				 err_no_worker_slot()));
	hook->status = HOOK_WAITING;
	strlcpy(hook->message, "no background worker is free", sizeof(hook->message));
	task->due_ns = clock_now_ns() + BACKOFF_MIN_MS * NSEC_PER_MSEC;
	wake_at(task->due_ns);
}

static void
start_run(Hook *hook, int election_position)
{
	const HookElection *election = &hooks_memory->elections[election_position];
	bool		is_of_change = hook->event == HOOK_CHANGE;
	int			i = 0;
	HookRun    *run;

	while (run_state(i) != RUN_FREE)
		i++;
	run = &hooks_memory->runs[i];
	run->hook_id = hook->id;
	run->event = hook->event;
	run->election = election_position;
	strlcpy(run->election_name, is_of_change ? hook->election : election->name,
			sizeof(run->election_name));
	strlcpy(run->database, hook->database, sizeof(run->database));
	strlcpy(run->reason, is_of_change ?
			(hook->changed_by_gap ? EVENT_REASON_GAP : EVENT_CHANGE_NAME) : election->reason,
			sizeof(run->reason));
	run->token = is_of_change ? 0 : election->token;
	run->seq = hook->changed_seq;
	run->started_ns = clock_now_ns();
	run->status = HOOK_CANCELLED;
	run->sqlerrcode = 0;
	run->message[0] = '\0';
	pg_write_barrier();			/* handshake.pml: RUN_WRITTEN */
	pg_atomic_write_u32(&run->state, RUN_STARTING);
	if (!register_run(i, hook))
	{
		free_run(i);
		wait_for_worker(hook, &hook->tasks[election_position]);
		return;
	}
	hook->changed_by_gap = false;
	hook->status = HOOK_RUNNING;
	hook->token = run->token;
	hook->started_at = GetCurrentTimestamp();
	hook->ended_at = 0;
	hook->runs++;
	wake_at(run->started_ns + LOOK_INTERVAL_NS);
}

/* Starts a hook if it is time and there is a place for it. */
static void
start_if_due(Hook *hook, int election_position)
{
	const HookTask *task = &hook->tasks[election_position];
	int64		due_ns = Max(task->due_ns, hook->held_until_ns);

	if (due_ns > clock_now_ns())
		wake_at(due_ns);
	else if (has_place(hook->event))
		start_run(hook, election_position);
}

/* ---- elections ------------------------------------------------------------------ */

static bool
is_of_election(const Hook *hook, HookEvent event, const HookElection *election)
{
	return hook->event == event &&
		(hook->election[0] == '\0' || strcmp(hook->election, election->name) == 0);
}

static void
enter_phase(HookElection *election, HookPhase phase, int64 token, const char *reason)
{
	int			position = election - hooks_memory->elections;
	HookSet    *set = hooks_current();

	/*
	 * A hook that makes its instance lose leads to another election and runs
	 * again.  It waits a second, and no longer.
	 */
	for (int i = 0; phase != HOOKS_IDLE && i < set->nhooks; i++)
	{
		HookTask   *task = &set->hooks[i].tasks[position];

		if (!is_of_election(&set->hooks[i], phase == HOOKS_LOST ? HOOK_UNELECTED : HOOK_ELECTED,
							election))
			continue;
		task->is_done = false;
		task->due_ns = Min(task->due_ns, clock_now_ns() + BACKOFF_MIN_MS * NSEC_PER_MSEC);
		task->backoff_ms = 0;
	}
	election->token = token;
	strlcpy(election->reason, reason, sizeof(election->reason));
	election->since_ns = clock_now_ns();
	election->phase = phase;
}

/*
 * Is it clear that this instance does not lead?  After the start of this process
 * the elector may be about to go on where one before it was.
 */
static bool
is_settled(int index)
{
	SharedElection shared;

	if (clock_now_ns() - began_ns > START_GRACE_NS)
		return true;
	wake_at(began_ns + START_GRACE_NS + NSEC_PER_MSEC);
	return status_read(index, &shared) && shared.view.has_leader &&
		shared.view.role != ELECTION_LEADER &&
		shared.view.leader_revision != shared.view.create_revision;
}

/*
 * The next event of that kind behind *seq, which goes on to it, and of a later
 * leadership than `after`.  Its token; 0: there is none.
 */
static int64
next_event(const char *election, int64 *seq, int kind, int64 after, char *reason)
{
	SharedEvent event;

	while (events_next_of(EVENTS_BUT_CHANGES, *seq, &event))
	{
		*seq = event.seq;
		if (event.kind != kind || strcmp(event.election, election) != 0 ||
			event.leader_revision <= after)
			continue;
		strlcpy(reason, event.reason, ELECTION_REASON_SIZE);
		return event.leader_revision;
	}
	return 0;
}

/* Is it known why leadership was lost?  The event comes a moment after the loss. */
static bool
has_reason(HookElection *election)
{
	int64		until_ns = election->since_ns + EVENT_GRACE_NS;
	int64		seq = election->seq;

	if (election->reason[0] == '\0')
		(void) next_event(election->name, &seq, ELECTION_EVENT_UNELECTED, -1, election->reason);
	if (election->reason[0] == '\0' && clock_now_ns() >= until_ns)
		strlcpy(election->reason, "lost", sizeof(election->reason));
	if (election->reason[0] == '\0')
		wake_at(until_ns);
	return election->reason[0] != '\0';
}

/*
 * Starts the hooks of that event that are due.  False: none is left to run.  One
 * that waits for a minute after a crash does not hold up the next leadership.
 */
static bool
serve_hooks(const HookElection *election, HookEvent event)
{
	HookSet    *set = hooks_current();
	int			position = election - hooks_memory->elections;
	bool		leads_again = event == HOOK_UNELECTED && token_of(election->name) != 0;
	bool		is_left = false;

	for (int i = 0; i < set->nhooks; i++)
	{
		Hook	   *hook = &set->hooks[i];

		if (!is_of_election(hook, event, election) || hook->tasks[position].is_done ||
			hook->crashes >= HOOKS_MAX_CRASHES)
			continue;
		is_left |= !leads_again || hook->held_until_ns <= clock_now_ns();
		if (count_runs(event, position, hook->id) == 0)
			start_if_due(hook, position);
	}
	return is_left;
}

/* One step of an election to its next phase.  False if it stays where it is. */
static bool
advance(HookElection *election)
{
	int			position = election - hooks_memory->elections;
	int			index = index_of(election->name);
	char		reason[ELECTION_REASON_SIZE] = "elected";
	int64		token;
	int64		current;

	switch (election->phase)
	{
		case HOOKS_AT_START:
			current = status_held_token(index);
			if (current != 0)
				enter_phase(election, HOOKS_LEADING, current, reason);
			else if (is_settled(index))
				enter_phase(election, HOOKS_LOST, 0, "start");
			break;
		case HOOKS_LEADING:
			current = status_held_token(index);
			if (current == election->token || (current == 0 && !is_settled(index)))
			{
				(void) serve_hooks(election, HOOK_ELECTED);
				return false;
			}
			enter_phase(election, HOOKS_LOST, election->token, "");
			break;
		case HOOKS_LOST:
			if (!has_reason(election) || count_runs(HOOK_ELECTED, position, 0) > 0 ||
				serve_hooks(election, HOOK_UNELECTED) || count_runs(-1, position, 0) > 0)
				return false;
			enter_phase(election, HOOKS_IDLE, election->token, "");
			break;
		case HOOKS_IDLE:

			/* a leadership that is over by now is lost, too; the state is read after the events */
			token = next_event(election->name, &election->seq, ELECTION_EVENT_ELECTED,
							   election->token, reason);
			current = status_held_token(index);
			if (token == 0)
				token = current;
			if (token == 0)
				return false;
			enter_phase(election, HOOKS_LEADING, token, reason);
			break;
	}
	return true;
}

/* Has a hook that is off crashed the server under this leadership? */
static bool
is_harmed(const HookElection *election)
{
	HookSet    *set = hooks_current();

	for (int i = 0; i < set->nhooks; i++)
	{
		const Hook *hook = &set->hooks[i];

		if (hook->event == HOOK_ELECTED && hook->crashes >= HOOKS_MAX_CRASHES &&
			hook->token == election->token)
			return true;
	}
	return false;
}

/* Then it resigns.  True: nothing must be started meanwhile. */
static bool
resign_if_harmed(const HookElection *election)
{
	static SharedReply reply;
	SharedRequest request = {.command = COMMAND_RESIGN, .rejoin = true};
	int			index = index_of(election->name);

	if (election->phase != HOOKS_LEADING || !is_harmed(election))
		return false;
	if (status_held_token(index) == election->token)
	{
		strlcpy(request.election, election->name, sizeof(request.election));
		(void) mailbox_ask(&request, clock_now_ns() / NSEC_PER_USEC + RESIGN_TIMEOUT_US, &reply);
	}
	wake_at(clock_now_ns() + LOOK_INTERVAL_NS);
	return status_held_token(index) == election->token ||
		(status_held_token(index) == 0 && !is_settled(index));
}

static HookElection *
find_election(const char *name)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (strcmp(hooks_memory->elections[i].name, name) == 0)
			return &hooks_memory->elections[i];
	}
	return NULL;
}

/* Takes up the elections of the settings, and lets others go when nothing is left to do. */
static void
take_up_elections(void)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		HookElection *election = &hooks_memory->elections[i];

		if (election->name[0] != '\0' && election->phase == HOOKS_IDLE &&
			count_runs(-1, i, 0) == 0 &&
			index_of(election->name) < 0)
			election->name[0] = '\0';
	}
	for (int i = 0; i < settings_election_count(); i++)
	{
		HookElection *election;

		if (find_election(settings_election_name(i)) != NULL ||
			(election = find_election("")) == NULL)
			continue;
		for (int j = 0; j < hooks_current()->nhooks; j++)
			memset(&hooks_current()->hooks[j].tasks[election - hooks_memory->elections], 0,
				   sizeof(HookTask));
		*election = (HookElection) {.phase = HOOKS_AT_START, .seq = events_last()};
		strlcpy(election->name, settings_election_name(i), ELECTION_NAME_SIZE);
	}
}

/* ---- changes ------------------------------------------------------------------------ */

static void
look_at_changes(void)
{
	HookSet    *set = hooks_current();
	SharedEvent event;

	while (events_next_of(EVENTS_OF_CHANGES, changes_seen, &event))
	{
		changes_seen = event.seq;
		for (int i = 0; i < set->nhooks; i++)
		{
			Hook	   *hook = &set->hooks[i];
			bool		is_gap = event.key[0] == '\0';

			if (hook->event != HOOK_CHANGE || hook->changed_seq >= event.seq ||
				(!is_gap && strncmp(event.key, hook->election, strlen(hook->election)) != 0))
				continue;
			hook->changed_seq = event.seq;
			hook->changed_by_gap |= is_gap;
		}
	}
}

/* The one that has waited longest comes first. */
static void
serve_changes(void)
{
	static int	first = 0;
	HookSet    *set = hooks_current();

	look_at_changes();
	for (int n = 0; n < set->nhooks; n++)
	{
		int			i = (first + n) % set->nhooks;
		Hook	   *hook = &set->hooks[i];

		if (hook->event != HOOK_CHANGE || hook->crashes >= HOOKS_MAX_CRASHES ||
			hook->changed_seq <= hook->done_seq || count_runs(HOOK_CHANGE, -1, hook->id) > 0)
			continue;
		start_if_due(hook, 0);
		if (hook->status == HOOK_RUNNING)
			first = i + 1;
	}
}

/* ---- the file -------------------------------------------------------------------------- */

/*
 * After each reload, also one while no such process was there; not after a mere
 * restart.
 */
static void
read_file(void)
{
	if (PgReloadTime <= hooks_memory->reload_time)
		return;
	changes_seen = 0;
	hooks_load(LOG);
}

/* ---- the process ----------------------------------------------------------------------- */

static void
serve_settings(void)
{
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	read_file();
}

static void
take_turn(void)
{
	/* nobody publishes that a deadline has passed */
	next_ns = shared_state_next_deadline_ns();
	for (int i = 0; i < HOOKS_MAX_RUNS; i++)
	{
		if (run_state(i) != RUN_FREE)
			check_run(i);
	}
	take_up_elections();
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		HookElection *election = &hooks_memory->elections[i];

		if (election->name[0] == '\0' || resign_if_harmed(election))
			continue;
		while (advance(election))
			;
	}
	serve_changes();
}

void
etcd_leader_hooks_main(Datum main_arg)
{
	uint32		wait_event;
	MemoryContext turn_context;

	quiet_exit_install();
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	if (!hooks_claim())
		proc_exit(0);
	wait_event = compat_wait_event("EtcdLeaderHooks");
	began_ns = clock_now_ns();
	turn_context = AllocSetContextCreate(TopMemoryContext, "etcd_leader hooks turn",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(turn_context);
	before_shmem_exit(stop_all, (Datum) 0);
	read_file();

	while (settings_hooks_file[0] != '\0')
	{
		uint64		change = events_change_number();
		int64		now_ns;

		take_turn();
		now_ns = clock_now_ns();
		(void) events_wait_for_change(change, next_ns == PG_INT64_MAX ? -1 :
									  next_ns <= now_ns ? 0 :
									  (long) Min((next_ns - now_ns) / NSEC_PER_MSEC + 1, INT_MAX),
									  wait_event);
		serve_settings();
		MemoryContextReset(turn_context);
	}
	proc_exit(0);
}
