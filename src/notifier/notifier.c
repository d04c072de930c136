/*-------------------------------------------------------------------------
 *
 * notifier.c
 *	  A worker for each notified database: events to NOTIFY.
 *
 * NOTIFY takes a lock of the whole server at commit, which another session may
 * hold for as long as a synchronous standby does not answer.  That must not
 * cost the lease, so separate processes do it, which do nothing else.  Shared
 * memory records how far the events are announced; it outlives the notifier
 * and the elector.
 *
 * Other programs can change their keys thousands of times a second, and a session
 * that listens and stays in a transaction keeps all the notifications in the
 * queue.  So one notification tells of all the changes up to its number, and
 * there are few of these.  Their order among the others is that of the numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/quiet_exit.h"
#include "base/utf8.h"
#include "base/worker.h"
#include "notifier.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/notifier_register.h"
#include "shared/state.h"
#include "shared/stats.h"

/* A notifier that ran for so long had connected to its database. */
#define STABLE_NS	(1000 * NSEC_PER_MSEC)

/* Waits for the lock that NOTIFY takes are given up after this time. */
#define NOTIFY_LOCK_TIMEOUT	"10s"

/*
 * The greatest payload of NOTIFY, as in async.c.  Ours stay below: of the
 * strings, a byte becomes 5 at most ("\\x1f"), or the third part of a
 * character 4/3 (EUC_TW), and names, numbers and time are less than 512.
 */
#define PAYLOAD_SIZE	(BLCKSZ - NAMEDATALEN - 128)

StaticAssertDecl(5 * (ELECTION_NAME_SIZE + 2 * ELECTION_VALUE_SIZE + ELECTION_REASON_SIZE) +
				 512 < PAYLOAD_SIZE,
				 "an event may not fit into the payload of a notification");

/* A notifier as its elector sees it. */
typedef struct Notifier
{
	char		database[NAMEDATALEN];	/* empty: unused */
	int64		from;			/* begins after this event */
	BackgroundWorkerHandle *handle; /* NULL: not registered */
	int64		up_since_ns;	/* 0: not seen running */
	int64		due_ns;			/* not registered: when it shall be */
	int			backoff_ms;
	bool		failed;			/* and somebody was told */
	bool		refused;		/* the last one did not get so far as to run */
	int			slot;			/* in shared memory, of the one that was started */
	uint64		bars;			/* notifier_register_bars() then */
} Notifier;

static Notifier notifiers[SETTINGS_MAX_DATABASES];

/* What a notifier gets along: in bgw_extra. */
typedef struct NotifierStart
{
	char		database[NAMEDATALEN];
	int			slot;
	uint64		ticket;
	bool		failed;			/* the log says that there is none */
	bool		refused;		/* and why it could not connect */
} NotifierStart;

StaticAssertDecl(sizeof(NotifierStart) <= BGW_EXTRALEN,
				 "the start of a notifier does not fit into bgw_extra");

/* ---- in the elector ----------------------------------------------------- */

static Notifier *
find_notifier(const char *database)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		if (strcmp(notifiers[i].database, database) == 0)
			return &notifiers[i];
	}
	return NULL;
}

/*
 * At the end of the elector: workers that the postmaster has not started yet
 * must not keep a slot.  The others go on announcing, until the next elector
 * begins and dismisses them.
 */
static void
stop_unstarted(int code, Datum arg)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		pid_t		pid;

		if (notifiers[i].handle != NULL &&
			GetBackgroundWorkerPid(notifiers[i].handle, &pid) == BGWH_NOT_YET_STARTED)
			TerminateBackgroundWorker(notifiers[i].handle);
	}
}

void
notifier_configure(void)
{
	static bool configured = false;
	List	   *databases = settings_split(settings_notify_databases);
	ListCell   *cell;
	int64		from;

	/*
	 * A database that has been in the settings from the start gets all the
	 * events, another one what comes from now on.
	 */
	from = !configured && shared_state_is_first_elector() ? events_start() :
		events_last();
	if (!configured)
		before_shmem_exit(stop_unstarted, (Datum) 0);
	configured = true;

	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		Notifier   *notifier = &notifiers[i];
		const char *database = notifier_register_database(i);

		/* of an earlier elector, too */
		if (database != NULL && !settings_is_listed(databases, database))
			notifier_register_forget(i);

		if (notifier->database[0] != '\0' && !settings_is_listed(databases, notifier->database))
		{
			/* never wait for it: it may hang in its commit */
			if (notifier->handle != NULL)
			{
				TerminateBackgroundWorker(notifier->handle);
				pfree(notifier->handle);
			}
			memset(notifier, 0, sizeof(Notifier));
		}
	}

	foreach(cell, databases)
	{
		const char *database = lfirst(cell);
		Notifier   *notifier = find_notifier(database);

		if (notifier == NULL)
		{
			notifier = find_notifier("");
			strlcpy(notifier->database, database, NAMEDATALEN);
			notifier->from = from;
		}

		/* a reload may mean that the database is there now */
		notifier->due_ns = 0;
		notifier->backoff_ms = 0;
	}
	list_free(databases);
}

/*
 * Registers the worker of a notifier.  False if that cannot be now, with a
 * WARNING unless there was one before.
 */
static bool
start_notifier(Notifier *notifier)
{
	BackgroundWorker worker;
	NotifierStart start;

	memset(&start, 0, sizeof(start));
	strlcpy(start.database, notifier->database, NAMEDATALEN);
	start.failed = notifier->failed;
	start.refused = notifier->refused;
	start.slot = notifier_register_slot(notifier->database, notifier->from, &start.ticket);

	/* one that was dismissed has not left yet, or a statement needs the database */
	if (start.slot < 0 || notifier_register_is_barred(start.slot))
	{
		notifier->backoff_ms = 0;
		return false;
	}
	notifier->slot = start.slot;
	notifier->bars = notifier_register_bars(start.slot);

	worker_init(&worker, "etcd_leader notifier", "etcd_leader_notifier_main",
				BgWorkerStart_RecoveryFinished);
	worker.bgw_flags |= COMPAT_BGWORKER_INTERRUPTIBLE;
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_name, BGW_MAXLEN, "etcd_leader notifier for database %s",
			 notifier->database);
	memcpy(worker.bgw_extra, &start, sizeof(start));

	if (worker_register(&worker, &notifier->handle))
		return true;
	if (!notifier->failed)
		ereport(WARNING,
				(errmsg("could not start the notifier for database \"%s\"", notifier->database),
				 err_no_worker_slot()));
	notifier->failed = true;
	return false;
}

/* The worker of a notifier is gone. */
static void
notifier_ended(Notifier *notifier, int64 now_ns)
{
	bool		was_stable = notifier->up_since_ns != 0 &&
		now_ns - notifier->up_since_ns >= STABLE_NS;
	bool		was_barred = notifier_register_bars(notifier->slot) != notifier->bars;

	if (was_stable)
		notifier->failed = false;
	if (was_stable || was_barred)
		notifier->backoff_ms = 0;
	if (!was_barred && !notifier->failed)
		ereport(WARNING,
				(errmsg("the notifier for database \"%s\" ended", notifier->database),
				 errdetail("Events are not announced in this database until it runs again."),
				 errhint("The reason is in the log before this, unless the notifier was terminated "
						 "by a signal. It will be tried again until it succeeds.")));
	notifier->failed = !was_barred;
	notifier->refused = !was_barred && !was_stable;

	pfree(notifier->handle);
	notifier->handle = NULL;
	notifier->up_since_ns = 0;
	notifier->due_ns = now_ns + backoff_next_ms(&notifier->backoff_ms) * NSEC_PER_MSEC;
}

int64
notifier_supervise(void)
{
	int64		now_ns = clock_now_ns();
	int64		next_ns = PG_INT64_MAX;

	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		Notifier   *notifier = &notifiers[i];
		pid_t		pid;

		if (notifier->database[0] == '\0')
			continue;

		if (notifier->handle != NULL)
		{
			switch (GetBackgroundWorkerPid(notifier->handle, &pid))
			{
				case BGWH_NOT_YET_STARTED:
					break;
				case BGWH_STARTED:
					if (notifier->up_since_ns == 0)
						notifier->up_since_ns = now_ns;
					break;
				case BGWH_STOPPED:
				case BGWH_POSTMASTER_DIED:
					notifier_ended(notifier, now_ns);
					break;
			}
		}
		else if (notifier->due_ns <= now_ns && !start_notifier(notifier))
			notifier->due_ns = now_ns + backoff_next_ms(&notifier->backoff_ms) * NSEC_PER_MSEC;

		if (notifier->handle == NULL)
			next_ns = Min(next_ns, notifier->due_ns);
	}
	return next_ns;
}

bool
notifier_awaits_promotion(void)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		pid_t		pid;

		if (notifiers[i].handle != NULL &&
			GetBackgroundWorkerPid(notifiers[i].handle, &pid) == BGWH_NOT_YET_STARTED)
			return true;
	}
	return false;
}

/* ---- in the notifier ------------------------------------------------------ */

/*
 * Connects to the database, or ends the process.  Why it cannot connect is
 * logged the first time only.
 */
static void
connect_to_database(const NotifierStart *start)
{
	quiet_exit_always(start->refused);
	BackgroundWorkerInitializeConnection(start->database, NULL, 0);
	quiet_exit_always(false);
	if (start->failed)
		ereport(LOG,
				(errmsg("the notifier for database \"%s\" is running again", start->database)));
}

/* Appends a member of a JSON object; NULL or empty is null. */
static void
append_member(StringInfo json, const char *key, const char *utf8)
{
	appendStringInfo(json, ",\"%s\":", key);
	if (utf8 == NULL || utf8[0] == '\0')
		appendStringInfoString(json, "null");
	else
		escape_json(json, utf8_to_server(utf8));
}

/*
 * The payload that announces an event.  That of a change has the same members
 * as the others, but no key and no value: it stands for all changes before it.
 */
static char *
event_payload(const SharedEvent *event)
{
	StringInfoData json;
	char		at[MAXDATELEN + 1];

	JsonEncodeDateTime(at, TimestampTzGetDatum(event->at), TIMESTAMPTZOID, NULL);

	initStringInfo(&json);
	appendStringInfo(&json, "{\"seq\":" INT64_FORMAT ",\"at\":\"%s\"", event->seq, at);
	append_member(&json, "election", event->election);
	append_member(&json, "event", events_kind_name(event));
	append_member(&json, "node", event->node);
	append_member(&json, "leader", event->has_leader ? event->leader : NULL);
	if (event->leader_revision != 0)
		appendStringInfo(&json, ",\"fencing_token\":" INT64_FORMAT, event->leader_revision);
	else
		appendStringInfoString(&json, ",\"fencing_token\":null");
	append_member(&json, "reason", event->kind == EVENT_CHANGE ? NULL : event->reason);
	appendStringInfoString(&json, ",\"key\":null,\"value\":null,\"revision\":null}");
	return json.data;
}

/* Announces the changes up to that one, or up to a later one that took its place in the ring. */
static void
notify_changes(const char *channel, int64 seq)
{
	SharedEvent event;

	if (events_next_of(EVENTS_OF_CHANGES, seq - 1, &event))
	{
		event.seq = seq;
		Async_Notify(channel, event_payload(&event));
	}
}

/* The last attempt to announce failed with this message; empty: it succeeded. */
static char last_error[256];

/* When changes may be announced again, on the clock of clock_remaining_ms(). */
static int64 changes_due_us = 0;

/* What an attempt announces. */
typedef struct Announcement
{
	int64		announced;		/* all events up to this one */
	int64		sent;
	bool		has_changes;
	/* events of elections between these are lost; 0: none */
	int64		lost_after;
	int64		lost_before;
} Announcement;

/*
 * NOTIFY for all events after the mark.  Changes that are not due are left,
 * unless an event of an election follows them: their number comes before its own.
 */
static void
notify_events(const char *channel, Announcement *announcement)
{
	bool		changes_due = clock_remaining_ms(changes_due_us) == 0;

	for (;;)
	{
		int64		change = events_last_change();
		SharedEvent event;
		bool		found = events_next_of(EVENTS_BUT_CHANGES, announcement->announced, &event);

		/* a change that is read now is not older than any before the event */
		if (found)
			change = events_last_change();
		if (found && event.follows_loss)
		{
			announcement->lost_after = announcement->announced;
			announcement->lost_before = event.seq;
		}
		if (change > announcement->announced && (found ? change < event.seq : changes_due))
		{
			notify_changes(channel, change);
			announcement->sent++;
			announcement->announced = change;
			announcement->has_changes = true;
			changes_due = false;
		}
		if (!found)
			break;
		Async_Notify(channel, event_payload(&event));
		announcement->sent++;
		announcement->announced = event.seq;
	}
}

/*
 * Announces, in one transaction, the events after the mark, and advances it.
 * ERROR if that cannot be; then the mark has not moved.
 */
static void
announce_events(const NotifierStart *start)
{
	Announcement announcement = {.announced = notifier_register_announced(start->slot)};

	pgstat_report_activity(STATE_RUNNING, "announcing events");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();

	/*
	 * Room that has become free in a full queue is found by a NOTIFY that
	 * succeeds, and by a query of the usage.  Nothing else would end it.
	 */
	if (last_error[0] != '\0')
		OidFunctionCall0(F_PG_NOTIFICATION_QUEUE_USAGE);

	notify_events(utf8_to_server(settings_notify_channel), &announcement);
	CommitTransactionCommand();

	/*
	 * Between the commit and this no interrupt is served, so that an event is
	 * not announced again by the next notifier.
	 */
	notifier_register_set_announced(start->slot, announcement.announced);
	if (announcement.has_changes)
		changes_due_us = clock_now_ns() / 1000 + EVENTS_CHANGES_PAUSE_MS * INT64CONST(1000);
	stats_count(COUNTER_NOTIFICATIONS_SENT, announcement.sent);
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);

	if (announcement.lost_before > 0)
		ereport(WARNING,
				(errmsg("events were not announced in database \"%s\"", start->database),
				 errdetail("They are the events of elections with numbers above %lld and below "
						   "%lld. Only the last %d are kept.",
						   (long long) announcement.lost_after,
						   (long long) announcement.lost_before, SHARED_EVENTS)));
}

/* The ERROR of an attempt, after which its transaction is rolled back; NULL: none. */
static ErrorData *
catch_error(const NotifierStart *start)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		announce_events(start);
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
	return edata;
}

/*
 * False after an ERROR.  It is logged if it is another one than the last time;
 * the end of a series is logged, too.
 */
static bool
try_to_announce(const NotifierStart *start)
{
	ErrorData  *edata = catch_error(start);

	if (edata == NULL)
	{
		if (last_error[0] != '\0')
			ereport(LOG,
					(errmsg("events are announced in database \"%s\" again", start->database)));
		last_error[0] = '\0';
		return true;
	}
	if (strncmp(last_error, edata->message, sizeof(last_error) - 1) != 0)
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg("could not announce events in database \"%s\": %s", start->database,
						edata->message),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 errhint("%s%sIt will be tried again until it succeeds.",
						 edata->hint ? edata->hint : "", edata->hint ? " " : ""),
				 edata->context ? errcontext("%s", edata->context) : 0));
	strlcpy(last_error, edata->message, sizeof(last_error));
	FreeErrorData(edata);
	return false;
}

/*
 * An exit callback, for releases in which the server itself ends a notifier
 * that is in the way of a statement.  The elector must not take that for a
 * failure: it sees a notifier that was barred for a moment.  Any other end of a
 * notifier that has begun to work looks the same to it.
 */
static void
count_as_barred(int code, Datum notifier_slot)
{
	notifier_register_bar(DatumGetInt32(notifier_slot));
	notifier_register_unbar(DatumGetInt32(notifier_slot));
}

void
etcd_leader_notifier_main(Datum main_arg)
{
	NotifierStart start;
	uint32		wait_event;
	int			backoff_ms = 0; /* after a failure */

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));

	quiet_exit_install();
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	connect_to_database(&start);
	SetConfigOption("application_name", "etcd_leader notifier", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", NOTIFY_LOCK_TIMEOUT, PGC_USERSET, PGC_S_OVERRIDE);
	pgstat_report_activity(STATE_IDLE, NULL);
	wait_event = compat_wait_event("EtcdLeaderNotifier");

	if (!notifier_register_claim(start.slot, start.ticket))
		proc_exit(0);
	if (COMPAT_BGWORKER_INTERRUPTIBLE != 0)
		before_shmem_exit(count_as_barred, Int32GetDatum(start.slot));

	while (notifier_register_wait(start.slot, start.ticket, backoff_ms, changes_due_us, wait_event))
	{
		/* the settings matter here only, so a reload need not wake anybody */
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		if (try_to_announce(&start))
			backoff_ms = 0;
		else
		{
			stats_count(COUNTER_NOTIFICATIONS_FAILED, 1);
			(void) backoff_next_ms(&backoff_ms);
		}
	}
	proc_exit(0);
}
