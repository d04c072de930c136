/*-------------------------------------------------------------------------
 *
 * hook_register.c
 *	  Which databases have a hook launcher, and which hooks are running.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "hook_register.h"
#include "settings/settings.h"
#include "shared/events.h"

typedef struct HookDatabase
{
	pg_atomic_uint32 launchers; /* 1: there is one */
	pg_atomic_uint64 changes;	/* of the hooks, from 1 */
	pg_atomic_uint64 seen;		/* of them, by a launcher that has ended for want of work; else 0 */
	pg_atomic_uint64 handled;
} HookDatabase;

typedef struct HookRegister
{
	HookDatabase databases[SETTINGS_MAX_DATABASES];
	pg_atomic_uint64 tickets;	/* how many were given out */
	pg_atomic_uint64 releases;	/* how many were given back */
	pg_atomic_uint64 refusals;	/* how often there was none */
	pg_atomic_uint64 runs[HOOK_REGISTER_MAX_RUNS];	/* the ticket; 0: free */
} HookRegister;

/*
 * A ticket says where it holds, and for which database: its number, the
 * database and the place.
 */
#define TICKET(number, notifier_slot, place) \
	((number) * HOOK_REGISTER_MAX_RUNS * SETTINGS_MAX_DATABASES + \
	 (notifier_slot) * HOOK_REGISTER_MAX_RUNS + (place))
#define TICKET_PLACE(ticket)	((ticket) % HOOK_REGISTER_MAX_RUNS)
#define TICKET_DATABASE(ticket) \
	((int) ((ticket) / HOOK_REGISTER_MAX_RUNS % SETTINGS_MAX_DATABASES))

static HookRegister *hooks = NULL;

/* Of the run that this process is. */
static uint64 my_ticket = 0;

static void
init_database(HookDatabase *database)
{
	pg_atomic_write_u64(&database->changes, 1);
	pg_atomic_write_u64(&database->seen, 0);
	pg_atomic_write_u64(&database->handled, 0);
}

static void
init_register(void)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		HookDatabase *database = &hooks->databases[i];

		pg_atomic_init_u32(&database->launchers, 0);
		pg_atomic_init_u64(&database->changes, 0);
		pg_atomic_init_u64(&database->seen, 0);
		pg_atomic_init_u64(&database->handled, 0);
		init_database(database);
	}
	pg_atomic_init_u64(&hooks->tickets, 0);
	pg_atomic_init_u64(&hooks->releases, 0);
	pg_atomic_init_u64(&hooks->refusals, 0);
	for (int i = 0; i < HOOK_REGISTER_MAX_RUNS; i++)
		pg_atomic_init_u64(&hooks->runs[i], 0);
}

const SharedPart hook_register_part = {
	.name = "etcd_leader hooks", .size = sizeof(HookRegister), .memory = (void **) &hooks, .init = init_register
};

/* ---- launchers ------------------------------------------------------- */

/* At the end of a launcher. */
static void
release_launcher(int code, Datum notifier_slot)
{
	pg_atomic_write_u32(&hooks->databases[DatumGetInt32(notifier_slot)].launchers, 0);
	pg_memory_barrier();
	events_wake_all();
}

bool
hook_register_claim(int notifier_slot)
{
	uint32		expected = 0;

	if (!pg_atomic_compare_exchange_u32(&hooks->databases[notifier_slot].launchers, &expected, 1))
		return false;
	before_shmem_exit(release_launcher, Int32GetDatum(notifier_slot));
	return true;
}

bool
hook_register_wants_launcher(int notifier_slot)
{
	HookDatabase *database = &hooks->databases[notifier_slot];

	return pg_atomic_read_u32(&database->launchers) == 0 &&
		pg_atomic_read_u64(&database->seen) != pg_atomic_read_u64(&database->changes);
}

bool
hook_register_was_dismissed(int notifier_slot)
{
	return pg_atomic_read_u64(&hooks->databases[notifier_slot].seen) != 0;
}

void
hook_register_recall(int notifier_slot)
{
	pg_atomic_write_u64(&hooks->databases[notifier_slot].seen, 0);
}

void
hook_register_change(int notifier_slot)
{
	HookDatabase *database = &hooks->databases[notifier_slot];
	uint64		changes = pg_atomic_fetch_add_u64(&database->changes, 1);

	/* there was no launcher for earlier events, and new hooks do not need them */
	if (pg_atomic_read_u64(&database->seen) == changes)
		hook_register_set_handled(notifier_slot, events_last());
	events_wake_all();
}

uint64
hook_register_changes(int notifier_slot)
{
	uint64		changes = pg_atomic_read_u64(&hooks->databases[notifier_slot].changes);

	/* what is read afterwards is not older */
	pg_read_barrier();
	return changes;
}

void
hook_register_dismiss(int notifier_slot, uint64 changes)
{
	pg_atomic_write_u64(&hooks->databases[notifier_slot].seen, changes);
}

int64
hook_register_handled(int notifier_slot)
{
	return (int64) pg_atomic_read_u64(&hooks->databases[notifier_slot].handled);
}

void
hook_register_set_handled(int notifier_slot, int64 seq)
{
	pg_atomic_write_u64(&hooks->databases[notifier_slot].handled, (uint64) seq);
}

void
hook_register_forget(int notifier_slot)
{
	init_database(&hooks->databases[notifier_slot]);
}

/* ---- runs ------------------------------------------------------------ */

uint64
hook_register_reserve(int notifier_slot, int max)
{
	uint64		number = pg_atomic_add_fetch_u64(&hooks->tickets, 1);

	for (int i = 0; i < max; i++)
	{
		uint64		expected = 0;
		uint64		ticket = TICKET(number, notifier_slot, i);

		if (pg_atomic_compare_exchange_u64(&hooks->runs[i], &expected, ticket))
			return ticket;
	}
	pg_atomic_fetch_add_u64(&hooks->refusals, 1);
	events_wake();
	return 0;
}

void
hook_register_release(uint64 ticket)
{
	uint64		expected = ticket;

	if (!pg_atomic_compare_exchange_u64(&hooks->runs[TICKET_PLACE(ticket)], &expected, 0))
		return;
	pg_atomic_fetch_add_u64(&hooks->releases, 1);
	events_wake();
}

uint64
hook_register_releases(void)
{
	uint64		releases = pg_atomic_read_u64(&hooks->releases);

	/* what is read afterwards is not older */
	pg_read_barrier();
	return releases;
}

uint64
hook_register_refusals(void)
{
	return pg_atomic_read_u64(&hooks->refusals);
}

bool
hook_register_is_reserved(uint64 ticket)
{
	return pg_atomic_read_u64(&hooks->runs[TICKET_PLACE(ticket)]) == ticket;
}

bool
hook_register_occupies(int notifier_slot)
{
	if (pg_atomic_read_u32(&hooks->databases[notifier_slot].launchers) != 0)
		return true;
	for (int i = 0; i < HOOK_REGISTER_MAX_RUNS; i++)
	{
		uint64		ticket = pg_atomic_read_u64(&hooks->runs[i]);

		if (ticket != 0 && ticket != my_ticket && TICKET_DATABASE(ticket) == notifier_slot)
			return true;
	}
	return false;
}

void
hook_register_set_mine(uint64 ticket)
{
	my_ticket = ticket;
}
