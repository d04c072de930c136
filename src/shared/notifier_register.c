/*-------------------------------------------------------------------------
 *
 * notifier_register.c
 *	  Which databases have a notifier, and how far each has come.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"

#include "base/clock.h"
#include "base/compat.h"
#include "events.h"
#include "notifier_register.h"
#include "settings/settings.h"

typedef struct NotifierSlot
{
	/* written by the elector */
	char		database[NAMEDATALEN];	/* empty: free, unless claimed */
	pg_atomic_uint64 ticket;	/* 0: nobody is admitted */
	/* written by backends */
	pg_atomic_uint32 barred;	/* by so many, now */
	pg_atomic_uint64 bars;		/* how often, ever */
	/* written by the notifier; announced by the elector while it is free */
	pg_atomic_uint32 claimed;
	pg_atomic_uint64 announced;
} NotifierSlot;

typedef struct NotifierRegister
{
	uint64		last_ticket;	/* the elector's own */
	NotifierSlot slots[SETTINGS_MAX_DATABASES];
} NotifierRegister;

static NotifierRegister *notifiers = NULL;

/* Those that an earlier elector admitted. */
static void
dismiss_all(void)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
		pg_atomic_write_u64(&notifiers->slots[i].ticket, 0);
}

const SharedPart notifier_register_part = {
	.name = "etcd_leader notifiers", .size = sizeof(NotifierRegister),
	.memory = (void **) &notifiers,
	.elector_begins = dismiss_all
};

int
notifier_register_slot(const char *database, int64 from, uint64 *ticket)
{
	int			found = notifier_register_find(database);
	NotifierSlot *notifier;

	/* a notifier that was dismissed may still store its mark */
	for (int i = 0; found < 0 && i < SETTINGS_MAX_DATABASES; i++)
	{
		if (notifiers->slots[i].database[0] == '\0' &&
			pg_atomic_read_u32(&notifiers->slots[i].claimed) == 0)
			found = i;
	}
	if (found < 0)
		return -1;

	notifier = &notifiers->slots[found];
	if (notifier->database[0] == '\0')
	{
		strlcpy(notifier->database, database, NAMEDATALEN);
		pg_atomic_write_u64(&notifier->announced, (uint64) from);
	}
	*ticket = ++notifiers->last_ticket;
	pg_atomic_write_u64(&notifier->ticket, *ticket);
	return found;
}

const char *
notifier_register_database(int notifier_slot)
{
	const char *database = notifiers->slots[notifier_slot].database;

	return database[0] == '\0' ? NULL : database;
}

void
notifier_register_forget(int notifier_slot)
{
	NotifierSlot *notifier = &notifiers->slots[notifier_slot];

	/*
	 * Here the ticket becomes invalid first, and whether the slot is claimed
	 * is checked later, when it is given away.  In notifier_register_claim()
	 * the order is reversed.  So no notifier works on a slot that belongs to
	 * another database by now.
	 */
	pg_atomic_write_u64(&notifier->ticket, 0);
	pg_memory_barrier();		/* handshake.pml: NOTIFIER_FORGOTTEN */
	notifier->database[0] = '\0';
	events_wake_all();
}

/* At the end of a notifier. */
static void
release_notifier(int code, Datum notifier_slot)
{
	NotifierSlot *notifier = &notifiers->slots[DatumGetInt32(notifier_slot)];

	pg_memory_barrier();		/* handshake.pml: NOTIFIER_RELEASED */
	pg_atomic_write_u32(&notifier->claimed, 0);
	events_wake();
}

/* False: the notifier that holds this ticket is dismissed, or barred. */
static bool
is_admitted(int notifier_slot, uint64 ticket)
{
	return pg_atomic_read_u64(&notifiers->slots[notifier_slot].ticket) == ticket &&
		!notifier_register_is_barred(notifier_slot);
}

bool
notifier_register_claim(int notifier_slot, uint64 ticket)
{
	NotifierSlot *notifier = &notifiers->slots[notifier_slot];
	uint32		wait_event = compat_wait_event("EtcdLeaderNotifierStart");
	bool		claimed = false;

	events_prepare_to_sleep();
	while (is_admitted(notifier_slot, ticket))
	{
		uint32		expected = 0;

		claimed = pg_atomic_compare_exchange_u32(&notifier->claimed, &expected, 1);
		if (claimed)
			break;
		(void) events_sleep(-1, wait_event);
	}
	events_cancel_sleep();

	if (!claimed)
		return false;
	before_shmem_exit(release_notifier, Int32GetDatum(notifier_slot));
	/* the exchange alone does not keep loads behind it, see mailbox.c */
	pg_memory_barrier();		/* handshake.pml: NOTIFIER_CLAIMED */
	return is_admitted(notifier_slot, ticket);
}

/* How long there is nothing to announce, -1: until an event. */
static long
remaining_ms(int notifier_slot, int64 changes_due_us)
{
	int64		announced = notifier_register_announced(notifier_slot);
	SharedEvent event;

	if (events_last() <= announced)
		return -1;
	if (events_next_of(EVENTS_BUT_CHANGES, announced, &event))
		return 0;
	return clock_remaining_ms(changes_due_us);
}

bool
notifier_register_wait(int notifier_slot, uint64 ticket, int pause_ms, int64 changes_due_us,
					   uint32 wait_event)
{
	int64		until_us = clock_now_ns() / 1000 + pause_ms * INT64CONST(1000);
	long		left_ms;
	bool		admitted;

	ConditionVariablePrepareToSleep(events_for_notifiers());
	while ((admitted = is_admitted(notifier_slot, ticket)) &&
		   ((left_ms = clock_remaining_ms(until_us)) > 0 ||
			(left_ms = remaining_ms(notifier_slot, changes_due_us)) != 0))
		(void) ConditionVariableTimedSleep(events_for_notifiers(), left_ms, wait_event);
	ConditionVariableCancelSleep();
	return admitted;
}

int
notifier_register_find(const char *database)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		if (strncmp(notifiers->slots[i].database, database, NAMEDATALEN) == 0)
			return i;
	}
	return -1;
}

void
notifier_register_bar(int notifier_slot)
{
	pg_atomic_fetch_add_u64(&notifiers->slots[notifier_slot].bars, 1);
	pg_atomic_fetch_add_u32(&notifiers->slots[notifier_slot].barred, 1);
	events_wake_all();
}

void
notifier_register_unbar(int notifier_slot)
{
	pg_atomic_fetch_sub_u32(&notifiers->slots[notifier_slot].barred, 1);
}

bool
notifier_register_wait_for_leave(int notifier_slot, long timeout_ms)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderNotifierLeave");
	int64		until_us = clock_now_ns() / 1000 + timeout_ms * INT64CONST(1000);
	bool		left = false;
	long		left_ms;

	/* The end of a notifier broadcasts, too. */
	events_prepare_to_sleep();
	while (!(left = pg_atomic_read_u32(&notifiers->slots[notifier_slot].claimed) == 0) &&
		   (left_ms = clock_remaining_ms(until_us)) > 0)
		(void) events_sleep(left_ms, wait_event);
	events_cancel_sleep();
	return left;
}

uint64
notifier_register_bars(int notifier_slot)
{
	return pg_atomic_read_u64(&notifiers->slots[notifier_slot].bars);
}

bool
notifier_register_is_barred(int notifier_slot)
{
	return pg_atomic_read_u32(&notifiers->slots[notifier_slot].barred) != 0;
}

int
notifier_register_expected(void)
{
	return RecoveryInProgress() ? 0 : list_length(settings_split(settings_notify_databases));
}

int
notifier_register_running(void)
{
	int			running = 0;

	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		if (notifiers->slots[i].database[0] != '\0' &&
			pg_atomic_read_u32(&notifiers->slots[i].claimed) != 0)
			running++;
	}
	return running;
}

int64
notifier_register_announced(int notifier_slot)
{
	return (int64) pg_atomic_read_u64(&notifiers->slots[notifier_slot].announced);
}

void
notifier_register_set_announced(int notifier_slot, int64 seq)
{
	pg_atomic_write_u64(&notifiers->slots[notifier_slot].announced, (uint64) seq);
}
