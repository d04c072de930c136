/*-------------------------------------------------------------------------
 *
 * elector.c
 *	  The process that talks to etcd on behalf of the instance: one event
 *	  loop that wires the protocol (election.c), the transport
 *	  (etcd/client.c) and shared memory together.
 *
 * It connects to the shared catalogs only, opens no transaction and takes no
 * heavyweight lock, so that nothing that happens in a database can delay a
 * renewal.  NOTIFY, which can be delayed, is the notifiers' job.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/worker.h"
#include "elector.h"
#include "elector/changes.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/drain.h"
#include "elector/endpoints.h"
#include "elector/events.h"
#include "elector/mailbox.h"
#include "elector/check.h"
#include "elector/problems.h"
#include "elector/refusals.h"
#include "elector/rights.h"
#include "elector/set_up.h"
#include "elector/settings.h"
#include "elector/trace.h"
#include "hooks/hooks.h"
#include "http_launcher.h"
#include "notifier/notifier.h"
#include "shared/crash_memory.h"
#include "shared/stats.h"

#define ELECTOR_FUNCTION	"etcd_leader_elector_main"

/* After a termination or a failure; a second is what bgworkers count in. */
#define RESTART_INTERVAL_S	1

/*
 * How long the end of the process may wait for etcd to confirm that the lease
 * is revoked: an etcd that does not answer makes a shutdown take so much
 * longer, which is to stay well below a second.
 */
#define SHUTDOWN_REVOCATION_MS			700

/*
 * The clock of the wait stops while the host sleeps.  This limits how late due
 * work is done after the host wakes up.  A look at files is at most twice as old.
 */
#define MAX_SLEEP_MS		5000

/*
 * The descriptors that are needed most of the time: for the watches, for the
 * requests under way at once, for lookups of names and of SRV records, for the
 * status of four more endpoints, as an etcd rarely has more than five members, and
 * for a smart shutdown.
 */
#define LONG_LIVED_FDS		12

/* The watch stream of the protocol. */
#define ELECTIONS_STREAM	0

static uint64 grant_id;			/* of the grant that was sent last */
static uint32 wait_event;
static WaitEventSet *wait_set;
static uint64 wait_set_changes; /* of the sockets that it was made from */

/* Set by SIGQUIT in an immediate shutdown. */
static volatile sig_atomic_t quit_pending = false;

/* ---- the protocol's way out ------------------------------------------------ */

static void
receive(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	elector_note_answer(NULL, answer, timing);
	if (answer->outcome == ETCD_ANSWERED)
		elector_note_latency(timing->latency_ns);
	elector_trace_answer(id, answer);
	if (answer->outcome == ETCD_ANSWERED && id == grant_id)
		stats_count(COUNTER_LEASES_GRANTED, 1);
	election_ignore_endpoints(elector_core, etcd_client_foreign_endpoints(elector_client));
	election_receive(elector_core, clock_now_ns(), id, answer);
	etcd_client_keep_cluster(elector_client, election_cluster_id(elector_core));
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	stats_count(COUNTER_REQUESTS, 1);
	if (request->kind == ETCD_KEEPALIVE)
		stats_count(COUNTER_KEEPALIVES, 1);
	if (request->kind == ETCD_GRANT)
		grant_id = id;
	elector_trace_request(id, request);
	etcd_client_send(elector_client, receive, id, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	if (nwatches > 0)
		stats_count(COUNTER_WATCH_RESTARTS, 1);
	elector_trace_watches(watches, nwatches);
	etcd_client_watch(elector_client, ELECTIONS_STREAM, watches, nwatches);
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	char		message[ETCD_MESSAGE_SIZE];

	etcd_format_message(message, "answer of etcd at \"%s\" cannot be used: %s",
						etcd_client_endpoint_url(elector_client, endpoint), why);
	elector_note_failure(message);
	ereport(LOG,
			(errmsg_internal("%s", message)));
	etcd_client_change_endpoint(elector_client, endpoint);
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	shared_state_publish(slot, view);
	elector_trace_state(slot, view);
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	crash_memory_remember(memory);
}

static void
port_remember_history(void *ctx, const ElectionHistory *history)
{
	crash_memory_remember_history(history);
}

static void
port_remember_timelines(void *ctx, const char *election, const ElectionTimelines *timelines)
{
	crash_memory_set_timelines(election, timelines);
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
	elector_note_duplicate_name(election, key);
}

static uint64_t
port_random(void *ctx)
{
	uint64_t	random;

	if (!pg_strong_random(&random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random lease ID")));
	return random;
}

/* ---- what comes from etcd --------------------------------------------------------- */

static void
client_noticed(void *ctx, const char *why)
{
	stats_count(COUNTER_FAILURES, 1);
	elector_note_failure(why);
	elector_note_endpoint();
}

static void
client_watched(void *ctx, int stream, const EtcdWatchFrame *frame)
{
	if (stream != ELECTIONS_STREAM)
	{
		/* those of elections do not wait for a burst of changes */
		elector_announce_events();
		elector_watched_changes(frame);
		return;
	}
	if (frame->canceled && !frame->lost_token)
		elector_note_failure(frame->message[0] != '\0' ? frame->message :
							 "etcd canceled the watch");
	elector_trace_frame(frame);
	election_watched(elector_core, clock_now_ns(), frame);
}

static void
client_watch_ended(void *ctx, int stream, EtcdOutcome outcome, const char *why)
{
	if (stream != ELECTIONS_STREAM)
	{
		elector_changes_ended(outcome, why);
		elector_note_endpoint();
		return;
	}
	elector_note_failure(why);
	elector_note_endpoint();
	election_watch_ended(elector_core, clock_now_ns());
}

static void
client_endpoints_changed(void *ctx)
{
	elector_note_endpoint();
	elector_configure_core();
}

/* ---- life ------------------------------------------------------------------------------ */

static bool
has_stopped(void *ctx)
{
	return election_stopped(elector_core);
}

/*
 * Whatever ends this process: leadership is withdrawn at once, and the leases
 * are revoked, so that another instance leads in milliseconds.
 */
static void
end_elector(int code, Datum arg)
{
	bool		revoking = election_stop(elector_core, clock_now_ns(),
										 ELECTION_REASON_SHUTDOWN);

	elector_announce_events();
	elector_end_changes();
	shared_state_end_elector();
	/* after an ERROR in a callback of the client this does nothing, and the leases expire */
	if (revoking)
		etcd_client_run_until(elector_client, SHUTDOWN_REVOCATION_MS, has_stopped, NULL);
}

/*
 * Immediate shutdown: the leases are revoked as well.  Another process may have
 * died while it held a lock in shared memory, for example that of a condition
 * variable.  An answer of etcd would have this process wait for that lock.  So
 * it leaves shared memory first.
 */
static void
quit(void)
{
	elector_end_changes();
	if (shared_state_leave() &&
		election_stop(elector_core, clock_now_ns(), ELECTION_REASON_SHUTDOWN))
		etcd_client_run_until(elector_client, SHUTDOWN_REVOCATION_MS, has_stopped, NULL);
	_exit(2);
}

/*
 * SIGQUIT.  After a crash of another process nothing in shared memory can be
 * trusted, and the instance will be back soon.  So the leases are not revoked.
 */
static void
handle_quit(SIGNAL_ARGS)
{
	if (GetQuitSignalReason() != PMQUIT_FOR_STOP)
		_exit(2);
	quit_pending = true;
	SetLatch(MyLatch);
}

/*
 * After a crash of the server: goes on with the lease and the places of the elector
 * before, if it has left any.  The revisions that it has seen are taken over in any
 * case, also if the elector alone is started again.
 */
static void
resume(void)
{
	ElectionMemory *memory = palloc(sizeof(ElectionMemory));
	ElectionHistory history;
	bool		has_memory = crash_memory_recall(memory);

	if (crash_memory_recall_history(&history))
	{
		if (election_resume(elector_core, clock_now_ns(), &history, has_memory ? memory : NULL))
			ereport(LOG,
					(errmsg("resuming the lease that was held before the restart")));
		etcd_client_keep_cluster(elector_client, election_cluster_id(elector_core));
		crash_memory_remember(NULL);
	}
	pfree(memory);
}

static void
begin_elector(void)
{
	static const EtcdClientCallbacks callbacks = {
		.watched = client_watched,
		.watch_ended = client_watch_ended,
		.noticed = client_noticed,
		.endpoints_changed = client_endpoints_changed
	};
	static const ElectionPort port = {
		.send = port_send,
		.watch = port_watch,
		.change_endpoint = port_change_endpoint,
		.publish = port_publish,
		.announce = elector_announce,
		.reply = elector_reply,
		.remember = port_remember,
		.remember_history = port_remember_history,
		.remember_timelines = port_remember_timelines,
		.report_duplicate_name = port_report_duplicate_name,
		.drop = elector_trace_drop,
		.random = port_random
	};

	for (int i = 0; i < LONG_LIVED_FDS; i++)
	{
		if (!AcquireExternalFD())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("too few file descriptors for the connections to etcd"),
					 errhint("Increase \"max_files_per_process\".")));
	}
	elector_client = etcd_client_create(&callbacks);
	elector_core = election_create(&port, ELECTION_MAX_ELECTIONS);
	if (elector_client == NULL || elector_core == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	wait_event = compat_wait_event("EtcdLeaderElectorMain");
	elector_begin_discovery();
	elector_begin_shutdown_watch();
	elector_begin_changes();
	shared_state_begin_elector();
	resume();
	before_shmem_exit(end_elector, 0);
}

/* ---- the loop ---------------------------------------------------------------------------- */

/*
 * The wait set.  It is created again when the sockets may have changed, since
 * a descriptor cannot be removed from one.
 */
static void
refresh_wait_set(void)
{
	const EtcdSocket *sockets;
	int			nsockets;
	uint64_t	changes;

	sockets = etcd_client_sockets(elector_client, &nsockets, &changes);
	if (wait_set && wait_set_changes == changes)
		return;
	if (wait_set)
		FreeWaitEventSet(wait_set);
	wait_set = compat_create_wait_event_set(nsockets + 4);
	wait_set_changes = changes;
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_POSTMASTER_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, elector_discovery_fd(), NULL, NULL);
	if (elector_shutdown_fd() >= 0)
		AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, elector_shutdown_fd(), NULL, NULL);
	for (int i = 0; i < nsockets; i++)
	{
		uint32		events = 0;

		if (sockets[i].events & ETCD_SOCKET_READABLE)
			events |= WL_SOCKET_READABLE;
		if (sockets[i].events & ETCD_SOCKET_WRITEABLE)
			events |= WL_SOCKET_WRITEABLE;
		if (events != 0)
			AddWaitEventToSet(wait_set, events, sockets[i].fd, NULL, NULL);
	}
}

/* Answers are taken, requests are sent, and only then their events are announced. */
static void
exchange(void)
{
	etcd_client_process(elector_client);
	elector_announce_events();
	elector_wake_for_changes();
}

/* Waits for something, and does it. */
static void
wait_and_exchange(long timeout_ms)
{
	WaitEvent	events[8];
	int			nevents;

	refresh_wait_set();
	nevents = WaitEventSetWait(wait_set, timeout_ms, events, lengthof(events),
							   wait_event);
	if (quit_pending)
		quit();
	/* the end of the process does not wait for what etcd has sent */
	if (ShutdownRequestPending)
		return;
	for (int i = 0; i < nevents; i++)
	{
		int			what = 0;

		if (events[i].events & WL_POSTMASTER_DEATH)
			proc_exit(1);
		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (events[i].events & WL_SOCKET_READABLE)
			what |= ETCD_SOCKET_READABLE;
		if (events[i].events & WL_SOCKET_WRITEABLE)
			what |= ETCD_SOCKET_WRITEABLE;
		if (what == 0)
			continue;
		if (events[i].fd == elector_discovery_fd())
			elector_finish_discovery();
		else if (events[i].fd == elector_shutdown_fd())
			elector_look_for_shutdown();
		else
			etcd_client_socket_ready(elector_client, events[i].fd, what);
	}
	exchange();
}

/* When the client has something to do; PG_INT64_MAX: never. */
static int64
client_wakeup_ns(void)
{
	long		timeout_ms = etcd_client_timeout_ms(elector_client);

	return timeout_ms < 0 ? PG_INT64_MAX : clock_now_ns() + timeout_ms * NSEC_PER_MSEC;
}

/* Each is evaluated once. */
static int64
earlier(int64 a_ns, int64 b_ns)
{
	return Min(a_ns, b_ns);
}

/*
 * Does what is due: first what others wait for, which goes to etcd at once, and then the
 * upkeep.  Returns the milliseconds until there is more to do.  They are rounded up,
 * because waking up too early would be useless.
 */
static long
work(void)
{
	int64		first_ns = clock_now_ns() + MAX_SLEEP_MS * NSEC_PER_MSEC;

	elector_serve_mailbox();
	first_ns = earlier(first_ns, elector_watch_shutdown());
	election_tick(elector_core, clock_now_ns());
	first_ns = earlier(first_ns, elector_serve_drains());
	first_ns = earlier(first_ns, elector_tick_changes());
	exchange();

	first_ns = earlier(first_ns, notifier_supervise());
	first_ns = earlier(first_ns, http_launcher_supervise());
	first_ns = earlier(first_ns, hooks_supervise());
	first_ns = earlier(first_ns, elector_discover());
	first_ns = earlier(first_ns, elector_judge_contact());
	first_ns = earlier(first_ns, elector_find_set_up_problems());
	first_ns = earlier(first_ns, elector_find_rights_problems());
	first_ns = earlier(first_ns, election_wakeup_ns(elector_core));
	first_ns = earlier(first_ns, client_wakeup_ns());
	first_ns = earlier(first_ns, elector_promotion_wakeup_ns());
	return (long) ((Max(first_ns - clock_now_ns(), 0) + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
}

void
etcd_leader_elector_main(Datum main_arg)
{
	MemoryContext turn_context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGQUIT, handle_quit);
	/* pg_cancel_backend() has nothing to cancel here. */
	pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	turn_context = AllocSetContextCreate(TopMemoryContext, "etcd_leader elector turn",
										 ALLOCSET_DEFAULT_SIZES);
	begin_elector();
	MemoryContextSwitchTo(turn_context);
	elector_configure();

	while (!ShutdownRequestPending)
	{
		long		timeout_ms;

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			elector_configure();
		}
		else
			elector_follow_promotion();
		elector_follow_client_settings();

		timeout_ms = work();
		elector_find_endpoint_problems();
		problems_refresh();
		elector_publish_contact();
		elector_publish_endpoints();
		if (elector_serve_checks() || elector_has_events())
			timeout_ms = 0;
		wait_and_exchange(timeout_ms);
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(turn_context);
	}

	/* Not 0: after 0 the postmaster would not start it again. */
	proc_exit(1);
}

void
elector_register(void)
{
	BackgroundWorker worker;

	worker_init(&worker, "etcd_leader elector", ELECTOR_FUNCTION, BgWorkerStart_ConsistentState);
	worker.bgw_restart_time = RESTART_INTERVAL_S;
	RegisterBackgroundWorker(&worker);

	/* there are no workers in single-user mode */
	shared_state_lacks_elector = IsPostmasterEnvironment &&
		!compat_is_worker_registered(ELECTOR_FUNCTION);
	if (shared_state_lacks_elector)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not register the elector of etcd_leader"),
				 errdetail("There is no free background worker slot. This instance takes part in "
						   "no election."),
				 errhint("Increase \"%s\" and restart the server.", "max_worker_processes")));
}
