/*-------------------------------------------------------------------------
 *
 * shared_state.c
 *	  What the elector publishes and backends read; the event ring; the
 *	  mailbox.
 *
 * There are four kinds of data here, and four ways to share them:
 *
 * - Deadline and token of an election: two atomics, stored in an order that
 *	 makes any mixture of old and new say "not leading".
 * - Election names, views and contact: two copies and a generation.  The
 *	 elector writes the copy that is not in use and then advances the
 *	 generation, so that there is always a whole copy to read, wherever the
 *	 elector was stopped.
 * - Events: a ring in which each place says which event is in it.
 * - The mailbox: places whose state changes by compare-and-exchange alone.
 *
 * Condition variables are there to sleep only; nothing else has a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <sys/mman.h>
#include <time.h>

#include "catalog/namespace.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "settings.h"
#include "shared_state.h"

#ifndef CLOCK_BOOTTIME
#error "etcd_leader needs a clock that goes on while the host sleeps (CLOCK_BOOTTIME)"
#endif

#define NO_ELECTOR	PG_UINT32_MAX

#define MAILBOX_SIZE 16

/*
 * The first so many places are not for COMMAND_VERIFY: while etcd is away,
 * the elector keeps such requests, also those that nobody waits for any more.
 * They must not keep anybody from resigning.
 */
#define MAILBOX_RESERVED 4

/*
 * One election.  What every call of etcd_is_leader() reads has a cache line
 * for itself: it changes with every beat only.
 */
typedef struct SharedSlot
{
	pg_atomic_uint64 deadline_ns;	/* 0: not leading */
	pg_atomic_uint64 token;		/* means something while deadline_ns is not 0 */
	char		pad[PG_CACHE_LINE_SIZE - 2 * sizeof(pg_atomic_uint64)];

	/* view and leader_since; deadline_ns is filled in by the reader */
	pg_atomic_uint64 generation;
	SharedElection copies[2];
} SharedSlot;

typedef union SharedSlotPadded
{
	SharedSlot	slot;
	char		pad[TYPEALIGN(PG_CACHE_LINE_SIZE, sizeof(SharedSlot))];
} SharedSlotPadded;

typedef struct SharedEventPlace
{
	pg_atomic_uint64 seq;		/* 0: being written */
	SharedEvent event;
} SharedEventPlace;

typedef struct SharedNotifier
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
} SharedNotifier;

/*
 * The states of a place in the mailbox, with who may change it to what:
 *
 *	 FREE		anybody: CLAIMED
 *	 CLAIMED	its backend: WAITING, FREE
 *	 WAITING	the elector: TAKEN; its backend, giving up: FREE
 *	 TAKEN		the elector: DONE, WAITING; its backend, giving up: ABANDONED
 *	 DONE		its backend: FREE
 *	 ABANDONED	the elector: FREE
 *
 * The request is written in CLAIMED, the reply in TAKEN or ABANDONED.
 */
typedef enum PlaceState
{
	PLACE_FREE,
	PLACE_CLAIMED,
	PLACE_WAITING,
	PLACE_TAKEN,
	PLACE_DONE,
	PLACE_ABANDONED
} PlaceState;

typedef struct MailboxPlace
{
	pg_atomic_uint32 state;
	ConditionVariable replied;
	SharedRequest request;
	SharedReply reply;
} MailboxPlace;

typedef struct SharedState
{
	/*
	 * Advanced before and after a slot's name changes, hence odd in between;
	 * then no election has a slot.
	 */
	pg_atomic_uint64 layout;

	pg_atomic_uint32 elector;	/* number of its process, or NO_ELECTOR */
	uint64		electors_begun; /* the elector's own */

	pg_atomic_uint64 contact_generation;
	SharedContact contact_copies[2];

	/*
	 * Who waits for anything to be published; and the notifiers, which wait
	 * for events alone, and are not to be in the way of who waits to lead.
	 */
	ConditionVariable published;
	ConditionVariable notifiers_wanted;
	pg_atomic_uint64 change_number;	/* advanced before `published` is broadcast */

	pg_atomic_uint32 http_claimed;

	int64		start_event;	/* persistent->last_event when this was made */
	SharedEventPlace events[SHARED_EVENTS];

	uint64		last_ticket;	/* the elector's own */
	SharedNotifier notifiers[SETTINGS_MAX_DATABASES];

	/* who waits for a free place */
	ConditionVariable place_freed;
	MailboxPlace mailbox[MAILBOX_SIZE];
} SharedState;

/* How often an election was won and lost.  Written by the elector. */
typedef struct Tally
{
	char		election[ELECTION_NAME_SIZE];	/* empty: unused */
	pg_atomic_uint64 won;
	pg_atomic_uint64 lost;
	bool		leads;			/* won and not lost since */
} Tally;

/*
 * The memory over a crash restart.  An elector that is killed amid a change
 * leaves the copy that was in force: `current` is changed last.
 */
typedef struct PersistentMemory
{
	pg_atomic_uint32 current;	/* 1 + the copy in force; 0: none */
	ElectionMemory copies[2];

	/* elections resigned from for good; empty: unused */
	char		stay_out[ELECTION_MAX_ELECTIONS][ELECTION_NAME_SIZE];

	pg_atomic_uint64 last_event;

	pg_atomic_uint64 stats_reset;	/* a TimestampTz */
	pg_atomic_uint64 counters[COUNTER_COUNT];
	Tally		tallies[ELECTION_MAX_ELECTIONS];
} PersistentMemory;

static PersistentMemory *persistent = NULL;

static SharedState *state = NULL;
static SharedSlotPadded *slots = NULL;

/* The same for a process that has left, see shared_state_leave(). */
static SharedState own_state;
static SharedSlotPadded own_slots[ELECTION_MAX_ELECTIONS];
static PersistentMemory own_persistent;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static bool move_place(MailboxPlace *place, PlaceState from, PlaceState to);
static void finish_place(MailboxPlace *place);
static void count_forgotten_losses(void);

/* ---- life ------------------------------------------------------------ */

static Size
slots_size(void)
{
	return mul_size(sizeof(SharedSlotPadded), settings_max_elections);
}

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	/* each of the two is aligned to a cache line */
	RequestAddinShmemSpace(CACHELINEALIGN(sizeof(SharedState)));
	RequestAddinShmemSpace(CACHELINEALIGN(slots_size()));
}

/* Makes everything empty.  To be called before anybody else can see it. */
static void
init_state(void)
{
	memset(state, 0, sizeof(SharedState));
	pg_atomic_init_u64(&state->layout, 0);
	pg_atomic_init_u32(&state->elector, NO_ELECTOR);
	pg_atomic_init_u64(&state->contact_generation, 0);
	ConditionVariableInit(&state->published);
	ConditionVariableInit(&state->notifiers_wanted);
	pg_atomic_init_u64(&state->change_number, 0);
	pg_atomic_init_u32(&state->http_claimed, 0);
	state->start_event = shared_state_last_event();
	for (int i = 0; i < SHARED_EVENTS; i++)
		pg_atomic_init_u64(&state->events[i].seq, 0);
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		pg_atomic_init_u64(&state->notifiers[i].ticket, 0);
		pg_atomic_init_u32(&state->notifiers[i].barred, 0);
		pg_atomic_init_u64(&state->notifiers[i].bars, 0);
		pg_atomic_init_u32(&state->notifiers[i].claimed, 0);
		pg_atomic_init_u64(&state->notifiers[i].announced, 0);
	}
	ConditionVariableInit(&state->place_freed);
	for (int i = 0; i < MAILBOX_SIZE; i++)
	{
		pg_atomic_init_u32(&state->mailbox[i].state, PLACE_FREE);
		ConditionVariableInit(&state->mailbox[i].replied);
	}

	memset(slots, 0, slots_size());
	for (int i = 0; i < settings_max_elections; i++)
	{
		pg_atomic_init_u64(&slots[i].slot.deadline_ns, 0);
		pg_atomic_init_u64(&slots[i].slot.token, 0);
		pg_atomic_init_u64(&slots[i].slot.generation, 0);
	}
}

static void
startup_shmem(void)
{
	bool		found_state;
	bool		found_slots;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	state = ShmemInitStruct("etcd_leader", sizeof(SharedState), &found_state);
	slots = ShmemInitStruct("etcd_leader elections", slots_size(), &found_slots);
	if (!found_state)
		init_state();
	LWLockRelease(AddinShmemInitLock);
}

/*
 * An anonymous mapping that the postmaster makes and its children inherit,
 * over any number of crash restarts: those make main shared memory anew.
 */
static void
map_persistent_memory(void)
{
	void	   *mapping = mmap(NULL, sizeof(PersistentMemory), PROT_READ | PROT_WRITE,
							   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (mapping == MAP_FAILED)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map %zu bytes of shared memory for etcd_leader: %m",
						sizeof(PersistentMemory))));
	persistent = mapping;
	pg_atomic_init_u32(&persistent->current, 0);
	pg_atomic_init_u64(&persistent->last_event, (uint64) Max(GetCurrentTimestamp(), 0));
	pg_atomic_init_u64(&persistent->stats_reset, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < COUNTER_COUNT; i++)
		pg_atomic_init_u64(&persistent->counters[i], 0);
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		pg_atomic_init_u64(&persistent->tallies[i].won, 0);
		pg_atomic_init_u64(&persistent->tallies[i].lost, 0);
	}
}

void
shared_state_install(void)
{
	map_persistent_memory();
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

bool
shared_state_is_attached(void)
{
	return state != NULL;
}

int64
shared_state_clock_ns(void)
{
	struct timespec now;

	if (unlikely(clock_gettime(CLOCK_BOOTTIME, &now) != 0))
		elog(ERROR, "could not read the clock: %m");
	return (int64) now.tv_sec * INT64CONST(1000000000) + now.tv_nsec;
}

/*
 * Replaces the snapshot in copies[2], each of that size.  Only one process
 * may do so.
 */
static void
write_snapshot(pg_atomic_uint64 *generation, void *copies, Size size, const void *value)
{
	uint64		next = pg_atomic_read_u64(generation) + 1;

	/*
	 * The first barrier keeps what is written now behind the generation that
	 * put this copy out of use, the second one before that which puts it into
	 * use.
	 */
	pg_write_barrier();
	memcpy((char *) copies + (next & 1) * size, value, size);
	pg_write_barrier();
	pg_atomic_write_u64(generation, next);
}

/* Copies the snapshot out, again if it was replaced meanwhile. */
static void
read_snapshot(pg_atomic_uint64 *generation, const void *copies, Size size, void *value)
{
	uint64		seen;

	do
	{
		seen = pg_atomic_read_u64(generation);
		pg_read_barrier();
		memcpy(value, (const char *) copies + (seen & 1) * size, size);
		pg_read_barrier();
	} while (pg_atomic_read_u64(generation) != seen);
}

/* What a slot's snapshot says, for the elector: nobody else changes it. */
static const SharedElection *
published_election(SharedSlot *slot)
{
	return &slot->copies[pg_atomic_read_u64(&slot->generation) & 1];
}

static void
write_election(SharedSlot *slot, const SharedElection *election)
{
	write_snapshot(&slot->generation, slot->copies, sizeof(SharedElection), election);
}

/* Readers that cached a slot look again, and find none until the end. */
static void
begin_layout_change(void)
{
	pg_atomic_write_u64(&state->layout, pg_atomic_read_u64(&state->layout) | 1);
	pg_memory_barrier();
}

static void
end_layout_change(void)
{
	pg_memory_barrier();
	pg_atomic_write_u64(&state->layout, pg_atomic_read_u64(&state->layout) + 1);
	pg_memory_barrier();
}

/* No election has a slot. */
static void
free_slots(void)
{
	SharedElection nothing;

	memset(&nothing, 0, sizeof(nothing));
	shared_state_withdraw_all();
	begin_layout_change();
	for (int i = 0; i < settings_max_elections; i++)
		write_election(&slots[i].slot, &nothing);
	end_layout_change();
}

static void
wake_sleepers(void)
{
	pg_atomic_fetch_add_u64(&state->change_number, 1);
	ConditionVariableBroadcast(&state->published);
}

/* Wakes notifiers, too. */
static void
wake_all(void)
{
	wake_sleepers();
	ConditionVariableBroadcast(&state->notifiers_wanted);
}

/* Nobody will reply to what is in the mailbox.  Needs no elector registered. */
static void
fail_requests(void)
{
	for (int i = 0; i < MAILBOX_SIZE; i++)
	{
		MailboxPlace *place = &state->mailbox[i];
		uint32		found;

		(void) move_place(place, PLACE_WAITING, PLACE_TAKEN);
		found = pg_atomic_read_u32(&place->state);
		if (found == PLACE_TAKEN || found == PLACE_ABANDONED)
		{
			place->reply.kind = REPLY_NO_ELECTOR;
			finish_place(place);
		}
	}
	ConditionVariableBroadcast(&state->place_freed);
}

void
shared_state_begin_elector(void)
{
	free_slots();
	fail_requests();
	count_forgotten_losses();

	/* notifiers that an elector before this one started shall leave */
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
		pg_atomic_write_u64(&state->notifiers[i].ticket, 0);

	state->electors_begun++;
	pg_memory_barrier();
	pg_atomic_write_u32(&state->elector, (uint32) compat_my_proc_number());
	wake_all();
}

void
shared_state_end_elector(void)
{
	free_slots();

	/*
	 * A backend puts its request first and looks for the elector then, here
	 * it is the other way round: one of the two sees the other.
	 */
	pg_atomic_write_u32(&state->elector, NO_ELECTOR);
	pg_memory_barrier();
	fail_requests();
}

/*
 * What this process reads and writes from here on is its own.  The plain
 * stores that withdraw the deadlines are the last that others see of it.
 */
void
shared_state_leave(void)
{
	shared_state_withdraw_all();
	own_persistent = *persistent;
	persistent = &own_persistent;
	state = &own_state;
	slots = own_slots;
	init_state();
}

bool
shared_state_has_elector(void)
{
	return pg_atomic_read_u32(&state->elector) != NO_ELECTOR;
}

/* ---- text ------------------------------------------------------------ */

char *
shared_state_text(const char *utf8)
{
	int			encoding = GetDatabaseEncoding();
	int			left = (int) strlen(utf8);
	Oid			conversion = InvalidOid;
	StringInfoData text;

	if (encoding == PG_SQL_ASCII)
		return pstrdup(utf8);
	if (encoding != PG_UTF8)
		conversion = FindDefaultConversionProc(PG_UTF8, encoding);

	initStringInfo(&text);
	while (left > 0)
	{
		/* one character; its conversion, with room to spare */
		int			len = pg_encoding_verifymbchar(PG_UTF8, utf8, left);
		unsigned char converted[2 * MAX_CONVERSION_GROWTH * MAX_CONVERSION_GROWTH];

		if (len == 1 || (len > 1 && encoding == PG_UTF8))
			appendBinaryStringInfo(&text, utf8, len);
		else if (len > 1 && OidIsValid(conversion) &&
				 pg_do_encoding_conversion_buf(conversion, PG_UTF8, encoding,
											   (unsigned char *) unconstify(char *, utf8), len,
											   converted, sizeof(converted), true) == len)
			appendStringInfoString(&text, (char *) converted);
		else
			appendStringInfoChar(&text, '?');

		len = Max(len, 1);
		utf8 += len;
		left -= len;
	}
	return text.data;
}

/* ---- elections ------------------------------------------------------- */

/* From here on nobody reads "leading" in that slot. */
static void
withdraw(SharedSlot *slot)
{
	pg_atomic_write_u64(&slot->deadline_ns, 0);
	pg_memory_barrier();
}

void
shared_state_publish(int slot_number, const ElectionView *view)
{
	SharedSlot *slot = &slots[slot_number].slot;
	const SharedElection *old = published_election(slot);
	SharedElection new;
	bool		renamed = strcmp(old->view.name, view->name) != 0;
	bool		led = pg_atomic_read_u64(&slot->deadline_ns) != 0;
	bool		leads = view->deadline_ns != 0;

	Assert(slot_number >= 0 && slot_number < settings_max_elections);

	/*
	 * First of all.  A deadline must not meet another token or another name
	 * than its own either.
	 */
	if (led && (!leads || renamed || old->view.token != view->token))
		withdraw(slot);

	memset(&new, 0, sizeof(new));
	new.view = *view;
	if (view->has_leader)
	{
		if (!renamed && old->view.has_leader &&
			old->view.leader_revision == view->leader_revision)
			new.leader_since = old->leader_since;
		else
			new.leader_since = GetCurrentTimestamp();
	}
	if (view->problem[0] != '\0')
		new.problem_since = strcmp(old->view.problem, view->problem) == 0 ?
			old->problem_since : GetCurrentTimestamp();

	if (renamed)
		begin_layout_change();
	write_election(slot, &new);
	if (renamed)
		end_layout_change();

	if (leads)
	{
		pg_atomic_write_u64(&slot->token, (uint64) view->token);
		pg_write_barrier();
		pg_atomic_write_u64(&slot->deadline_ns, (uint64) view->deadline_ns);
	}

	if (led != leads || renamed)
		wake_sleepers();
}

void
shared_state_withdraw_all(void)
{
	for (int i = 0; i < settings_max_elections; i++)
		withdraw(&slots[i].slot);
}

uint64
shared_state_layout(void)
{
	return pg_atomic_read_u64(&state->layout);
}

int
shared_state_find(const char *name, uint64 *layout)
{
	for (;;)
	{
		int			found = -1;

		*layout = pg_atomic_read_u64(&state->layout);
		if (*layout & 1)
			return -1;
		pg_read_barrier();
		for (int i = 0; i < settings_max_elections; i++)
		{
			SharedElection election;

			read_snapshot(&slots[i].slot.generation, slots[i].slot.copies,
						  sizeof(SharedElection), &election);
			if (strcmp(election.view.name, name) == 0)
			{
				found = i;
				break;
			}
		}
		pg_read_barrier();
		if (pg_atomic_read_u64(&state->layout) == *layout)
			return found;
	}
}

bool
shared_state_is_leader(int slot_number, uint64 layout)
{
	uint64		deadline_ns;

	if (slot_number < 0)
		return false;

	/*
	 * The clock is read after the deadline.  The other way round, a process
	 * that is stopped in between would compare an old time with a new
	 * deadline.
	 */
	deadline_ns = pg_atomic_read_u64(&slots[slot_number].slot.deadline_ns);
	if (deadline_ns == 0)
		return false;
	pg_read_barrier();
	if ((int64) deadline_ns <= shared_state_clock_ns())
		return false;

	/* if the slot is still that election's now, it was so then */
	pg_read_barrier();
	return pg_atomic_read_u64(&state->layout) == layout;
}

int64
shared_state_token(int slot_number, uint64 layout)
{
	uint64		token;

	if (slot_number < 0)
		return 0;

	/*
	 * A token is stored while the deadline is 0, and tokens do not come back:
	 * with the same one before and after, the deadline was its own.
	 */
	token = pg_atomic_read_u64(&slots[slot_number].slot.token);
	pg_read_barrier();
	if (!shared_state_is_leader(slot_number, layout))
		return 0;
	pg_read_barrier();
	return pg_atomic_read_u64(&slots[slot_number].slot.token) == token ? (int64) token : 0;
}

bool
shared_state_read(int slot_number, uint64 layout, SharedElection *election)
{
	SharedSlot *slot;
	uint64		token;

	if (slot_number < 0)
		return false;
	slot = &slots[slot_number].slot;

	read_snapshot(&slot->generation, slot->copies, sizeof(SharedElection), election);

	/*
	 * The deadline in the snapshot may have been withdrawn since, and that in
	 * the slot may be of a leadership of which the snapshot does not know
	 * yet: only where they are of the same token, this is leadership.
	 */
	token = pg_atomic_read_u64(&slot->token);
	pg_read_barrier();
	election->deadline_ns = (int64) pg_atomic_read_u64(&slot->deadline_ns);
	pg_read_barrier();
	if (election->view.deadline_ns == 0 ||
		(int64) token != election->view.token ||
		token != pg_atomic_read_u64(&slot->token))
		election->deadline_ns = 0;

	pg_read_barrier();
	return election->view.name[0] != '\0' &&
		pg_atomic_read_u64(&state->layout) == layout;
}

/* The entry with that name, "" for a free one; NULL if there is none. */
static char *
find_stay_out(const char *election)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (strcmp(persistent->stay_out[i], election) == 0)
			return persistent->stay_out[i];
	}
	return NULL;
}

void
shared_state_set_stay_out(const char *election, bool stay_out)
{
	char	   *entry = find_stay_out(election);

	if (entry && !stay_out)
		entry[0] = '\0';
	else if (entry == NULL && stay_out && (entry = find_stay_out("")) != NULL)
		strlcpy(entry, election, ELECTION_NAME_SIZE);
}

bool
shared_state_stays_out(const char *election)
{
	return find_stay_out(election) != NULL;
}

void
shared_state_remember(const ElectionMemory *memory)
{
	uint32		current = pg_atomic_read_u32(&persistent->current);
	uint32		next = current == 1 ? 2 : 1;

	if (memory == NULL)
		next = 0;
	else
	{
		memcpy(&persistent->copies[next - 1], memory, election_memory_size(memory));
		pg_write_barrier();
	}
	pg_atomic_write_u32(&persistent->current, next);
	/* before whatever is sent next */
	pg_memory_barrier();
}

bool
shared_state_recall(ElectionMemory *memory)
{
	uint32		current = pg_atomic_read_u32(&persistent->current);

	if (current == 0)
		return false;
	pg_read_barrier();
	*memory = persistent->copies[current - 1];
	return true;
}

/* ---- contact with etcd ------------------------------------------------ */

void
shared_state_publish_contact(const SharedContact *contact)
{
	write_snapshot(&state->contact_generation, state->contact_copies,
				   sizeof(SharedContact), contact);
}

void
shared_state_read_contact(SharedContact *contact)
{
	read_snapshot(&state->contact_generation, state->contact_copies,
				  sizeof(SharedContact), contact);
}

/* ---- events ----------------------------------------------------------- */

static SharedEventPlace *
event_place(int64 seq)
{
	return &state->events[seq % SHARED_EVENTS];
}

void
shared_state_append_event(SharedEvent *event)
{
	SharedEventPlace *place;

	event->seq = shared_state_last_event() + 1;
	place = event_place(event->seq);

	pg_atomic_write_u64(&place->seq, 0);
	pg_write_barrier();
	place->event = *event;
	pg_write_barrier();
	pg_atomic_write_u64(&place->seq, (uint64) event->seq);
	pg_write_barrier();
	pg_atomic_write_u64(&persistent->last_event, (uint64) event->seq);

	wake_all();
}

int64
shared_state_last_event(void)
{
	return (int64) pg_atomic_read_u64(&persistent->last_event);
}

int64
shared_state_start_event(void)
{
	return state->start_event;
}

/* Copies an event out; false if it was overwritten, or is being so. */
static bool
read_event(int64 seq, SharedEvent *event)
{
	SharedEventPlace *place = event_place(seq);

	if (pg_atomic_read_u64(&place->seq) != (uint64) seq)
		return false;
	pg_read_barrier();
	*event = place->event;
	pg_read_barrier();
	return pg_atomic_read_u64(&place->seq) == (uint64) seq;
}

bool
shared_state_next_event(int64 after, SharedEvent *event)
{
	int64		last = shared_state_last_event();
	int64		seq;

	if (after < 0 || after > last)
		after = 0;

	for (seq = after + 1; seq <= last; seq++)
	{
		pg_read_barrier();
		seq = Max(seq, last - SHARED_EVENTS + 1);
		if (read_event(seq, event))
			return true;
		last = shared_state_last_event();
	}
	return false;
}

void
shared_state_prepare_to_sleep(void)
{
	ConditionVariablePrepareToSleep(&state->published);
}

bool
shared_state_sleep(long timeout_ms, uint32 wait_event)
{
	return !ConditionVariableTimedSleep(&state->published, timeout_ms, wait_event);
}

void
shared_state_cancel_sleep(void)
{
	ConditionVariableCancelSleep();
}

uint64
shared_state_change_number(void)
{
	uint64		number = pg_atomic_read_u64(&state->change_number);

	/* what is read afterwards is not older */
	pg_read_barrier();
	return number;
}

/* When the next leadership of this instance ends, PG_INT64_MAX if there is none. */
static int64
next_deadline_ns(void)
{
	int64		now_ns = shared_state_clock_ns();
	int64		next_ns = PG_INT64_MAX;

	for (int i = 0; i < settings_max_elections; i++)
	{
		int64		deadline_ns = (int64) pg_atomic_read_u64(&slots[i].slot.deadline_ns);

		if (deadline_ns > now_ns)
			next_ns = Min(next_ns, deadline_ns);
	}
	return next_ns;
}

bool
shared_state_wait_for_change(uint64 seen, long timeout_ms, uint32 wait_event)
{
	int64		deadline_ns = next_deadline_ns();
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (deadline_ns != PG_INT64_MAX)
	{
		int64		left_ns = deadline_ns - shared_state_clock_ns();
		long		left_ms = left_ns <= 0 ? 0 : (long) (left_ns / 1000000 + 1);

		timeout_ms = timeout_ms < 0 ? left_ms : Min(timeout_ms, left_ms);
	}
	if (timeout_ms >= 0)
		events |= WL_TIMEOUT;

	/*
	 * On the list of those who are woken, this waits for its latch itself: a
	 * sleep on the condition variable would not end for anybody else who sets
	 * it.
	 */
	ConditionVariablePrepareToSleep(&state->published);
	if (shared_state_change_number() == seen &&
		(WaitLatch(MyLatch, events, timeout_ms, wait_event) & WL_LATCH_SET) != 0)
		ResetLatch(MyLatch);
	ConditionVariableCancelSleep();
	CHECK_FOR_INTERRUPTS();
	return shared_state_change_number() != seen || deadline_ns <= shared_state_clock_ns();
}

/* ---- HTTP worker ------------------------------------------------------- */

static void
release_http(int code, Datum arg)
{
	pg_atomic_write_u32(&state->http_claimed, 0);
}

bool
shared_state_claim_http(void)
{
	uint32		expected = 0;

	if (!pg_atomic_compare_exchange_u32(&state->http_claimed, &expected, 1))
		return false;
	before_shmem_exit(release_http, (Datum) 0);
	return true;
}

bool
shared_state_has_http(void)
{
	return pg_atomic_read_u32(&state->http_claimed) != 0;
}

/* ---- notifiers --------------------------------------------------------- */

int
shared_state_notifier_slot(const char *database, int64 from, uint64 *ticket)
{
	int			found = -1;
	SharedNotifier *notifier;

	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		notifier = &state->notifiers[i];
		if (strcmp(notifier->database, database) == 0)
		{
			found = i;
			break;
		}

		/* a forgotten notifier may still be about to store its mark */
		if (found < 0 && notifier->database[0] == '\0' &&
			pg_atomic_read_u32(&notifier->claimed) == 0)
			found = i;
	}
	if (found < 0)
		return -1;

	notifier = &state->notifiers[found];
	if (notifier->database[0] == '\0')
	{
		strlcpy(notifier->database, database, NAMEDATALEN);
		pg_atomic_write_u64(&notifier->announced, (uint64) from);
		pg_write_barrier();
	}
	*ticket = ++state->last_ticket;
	pg_atomic_write_u64(&notifier->ticket, *ticket);
	return found;
}

const char *
shared_state_notifier_database(int notifier_slot)
{
	const char *database = state->notifiers[notifier_slot].database;

	return database[0] == '\0' ? NULL : database;
}

void
shared_state_forget_notifier(int notifier_slot)
{
	SharedNotifier *notifier = &state->notifiers[notifier_slot];

	/*
	 * Here the ticket is void before it is looked whether the slot is claimed
	 * (when it is given away), in shared_state_claim_notifier() it is the
	 * other way round: no notifier works on a slot that is another database's
	 * by now.
	 */
	pg_atomic_write_u64(&notifier->ticket, 0);
	pg_memory_barrier();
	notifier->database[0] = '\0';
	wake_all();
}

bool
shared_state_is_first_elector(void)
{
	return state->electors_begun == 1;
}

/* At the end of a notifier. */
static void
release_notifier(int code, Datum notifier_slot)
{
	SharedNotifier *notifier = &state->notifiers[DatumGetInt32(notifier_slot)];

	pg_memory_barrier();
	pg_atomic_write_u32(&notifier->claimed, 0);
	ConditionVariableBroadcast(&state->published);
}

/* False: the notifier that holds this ticket is dismissed, or barred. */
static bool
is_admitted(int notifier_slot, uint64 ticket)
{
	return pg_atomic_read_u64(&state->notifiers[notifier_slot].ticket) == ticket &&
		!shared_state_is_barred(notifier_slot);
}

bool
shared_state_claim_notifier(int notifier_slot, uint64 ticket)
{
	SharedNotifier *notifier = &state->notifiers[notifier_slot];
	uint32		wait_event = compat_wait_event("EtcdLeaderNotifierStart");
	bool		claimed = false;

	shared_state_prepare_to_sleep();
	while (is_admitted(notifier_slot, ticket))
	{
		uint32		expected = 0;

		claimed = pg_atomic_compare_exchange_u32(&notifier->claimed, &expected, 1);
		if (claimed)
			break;
		(void) shared_state_sleep(-1, wait_event);
	}
	shared_state_cancel_sleep();

	if (!claimed)
		return false;
	before_shmem_exit(release_notifier, Int32GetDatum(notifier_slot));
	return is_admitted(notifier_slot, ticket);
}

bool
shared_state_wait_for_events(int notifier_slot, uint64 ticket, uint32 wait_event)
{
	bool		admitted;

	ConditionVariablePrepareToSleep(&state->notifiers_wanted);
	while ((admitted = is_admitted(notifier_slot, ticket)) &&
		   shared_state_last_event() <= shared_state_announced(notifier_slot))
		ConditionVariableSleep(&state->notifiers_wanted, wait_event);
	ConditionVariableCancelSleep();
	return admitted;
}

void
shared_state_pause_notifier(int notifier_slot, uint64 ticket, int pause_ms, uint32 wait_event)
{
	int64		until_us = shared_state_clock_ns() / 1000 + pause_ms * INT64CONST(1000);
	long		left_ms;

	ConditionVariablePrepareToSleep(&state->notifiers_wanted);
	while (is_admitted(notifier_slot, ticket) && (left_ms = shared_state_remaining_ms(until_us)) > 0)
		(void) ConditionVariableTimedSleep(&state->notifiers_wanted, left_ms, wait_event);
	ConditionVariableCancelSleep();
}

int
shared_state_find_notifier(const char *database)
{
	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		if (strncmp(state->notifiers[i].database, database, NAMEDATALEN) == 0)
			return i;
	}
	return -1;
}

void
shared_state_bar_notifier(int notifier_slot)
{
	pg_atomic_fetch_add_u64(&state->notifiers[notifier_slot].bars, 1);
	pg_atomic_fetch_add_u32(&state->notifiers[notifier_slot].barred, 1);
	wake_all();
}

void
shared_state_unbar_notifier(int notifier_slot)
{
	pg_atomic_fetch_sub_u32(&state->notifiers[notifier_slot].barred, 1);
}

bool
shared_state_wait_for_leave(int notifier_slot, long timeout_ms)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderNotifierLeave");
	int64		until_us = shared_state_clock_ns() / 1000 + timeout_ms * INT64CONST(1000);
	bool		left = false;
	long		left_ms;

	/* Its end is a broadcast, too. */
	shared_state_prepare_to_sleep();
	while (!(left = pg_atomic_read_u32(&state->notifiers[notifier_slot].claimed) == 0) &&
		   (left_ms = shared_state_remaining_ms(until_us)) > 0)
		(void) shared_state_sleep(left_ms, wait_event);
	shared_state_cancel_sleep();
	return left;
}

uint64
shared_state_bars(int notifier_slot)
{
	return pg_atomic_read_u64(&state->notifiers[notifier_slot].bars);
}

bool
shared_state_is_barred(int notifier_slot)
{
	return pg_atomic_read_u32(&state->notifiers[notifier_slot].barred) != 0;
}

int
shared_state_notifiers_running(void)
{
	int			running = 0;

	for (int i = 0; i < SETTINGS_MAX_DATABASES; i++)
	{
		if (state->notifiers[i].database[0] != '\0' &&
			pg_atomic_read_u32(&state->notifiers[i].claimed) != 0)
			running++;
	}
	return running;
}

int64
shared_state_announced(int notifier_slot)
{
	return (int64) pg_atomic_read_u64(&state->notifiers[notifier_slot].announced);
}

void
shared_state_set_announced(int notifier_slot, int64 seq)
{
	pg_atomic_write_u64(&state->notifiers[notifier_slot].announced, (uint64) seq);
}

/* ---- counters ---------------------------------------------------------- */

void
shared_state_count(SharedCounter counter, int64 n)
{
	(void) pg_atomic_fetch_add_u64(&persistent->counters[counter], n);
}

int64
shared_state_counter(SharedCounter counter)
{
	return (int64) pg_atomic_read_u64(&persistent->counters[counter]);
}

/* From what an etcd nearby needs to what a request may take by default. */
int64
shared_state_latency_limit_ns(int bucket)
{
	static const double limits_ms[SHARED_LATENCY_BUCKETS] = {
		0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500
	};

	return (int64) (limits_ms[bucket] * 1000000);
}

/*
 * A reset can come at any point of this.  The next answer corrects what it
 * leaves then: the minimum is never 0 for longer.
 */
void
shared_state_count_latency(int64 latency_ns)
{
	int			bucket = 0;
	int64		min_ns = shared_state_counter(COUNTER_LATENCY_NS_MIN);

	if (min_ns == 0 || latency_ns < min_ns)
		pg_atomic_write_u64(&persistent->counters[COUNTER_LATENCY_NS_MIN], (uint64) latency_ns);
	if (latency_ns > shared_state_counter(COUNTER_LATENCY_NS_MAX))
		pg_atomic_write_u64(&persistent->counters[COUNTER_LATENCY_NS_MAX], (uint64) latency_ns);
	shared_state_count(COUNTER_LATENCY_NS_SUM, latency_ns);
	shared_state_count(COUNTER_ANSWERS, 1);
	while (bucket < SHARED_LATENCY_BUCKETS && latency_ns > shared_state_latency_limit_ns(bucket))
		bucket++;
	shared_state_count(COUNTER_LATENCY_BUCKETS + bucket, 1);
}

/* The tally with that name, "" for a free one; NULL if there is none. */
static Tally *
find_tally(const char *election)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (strcmp(persistent->tallies[i].election, election) == 0)
			return &persistent->tallies[i];
	}
	return NULL;
}

/* A tally that is free, or whose election has left the settings. */
static Tally *
find_unused_tally(void)
{
	Tally	   *tally = find_tally("");

	for (int i = 0; tally == NULL && i < ELECTION_MAX_ELECTIONS; i++)
	{
		const char *name = persistent->tallies[i].election;

		if (settings_election_index(name, (int) strlen(name)) < 0)
			tally = &persistent->tallies[i];
	}
	return tally;
}

void
shared_state_count_won(const char *election)
{
	Tally	   *tally = find_tally(election);

	shared_state_count(COUNTER_ELECTIONS_WON, 1);
	if (tally == NULL)
	{
		tally = find_unused_tally();
		if (tally == NULL)
			return;

		/* Readers look at the name before and after they read the numbers. */
		tally->election[0] = '\0';
		pg_write_barrier();
		pg_atomic_write_u64(&tally->won, 0);
		pg_atomic_write_u64(&tally->lost, 0);
		pg_write_barrier();
		strlcpy(tally->election, election, ELECTION_NAME_SIZE);
	}
	(void) pg_atomic_fetch_add_u64(&tally->won, 1);
	tally->leads = true;
}

void
shared_state_count_lost(const char *election, ElectionReason reason)
{
	Tally	   *tally = find_tally(election);

	shared_state_count(COUNTER_ELECTIONS_LOST + reason, 1);
	if (tally == NULL)
		return;
	(void) pg_atomic_fetch_add_u64(&tally->lost, 1);
	tally->leads = false;
}

/*
 * An elector that was killed, or that ended in a crash restart, could not
 * count the leaderships that ended with it.
 */
static void
count_forgotten_losses(void)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		const Tally *tally = &persistent->tallies[i];

		if (tally->election[0] != '\0' && tally->leads)
			shared_state_count_lost(tally->election, ELECTION_REASON_SHUTDOWN);
	}
}

void
shared_state_tally(const char *election, int64 *won, int64 *lost)
{
	*won = 0;
	*lost = 0;
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		Tally	   *tally = &persistent->tallies[i];
		int64		seen_won;
		int64		seen_lost;

		if (strcmp(tally->election, election) != 0)
			continue;
		pg_read_barrier();
		seen_won = (int64) pg_atomic_read_u64(&tally->won);
		seen_lost = (int64) pg_atomic_read_u64(&tally->lost);
		pg_read_barrier();
		if (strcmp(tally->election, election) != 0)
			continue;
		*won = seen_won;
		*lost = seen_lost;
		return;
	}
}

void
shared_state_reset_stats(void)
{
	for (int i = 0; i < COUNTER_COUNT; i++)
		pg_atomic_write_u64(&persistent->counters[i], 0);
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		pg_atomic_write_u64(&persistent->tallies[i].won, 0);
		pg_atomic_write_u64(&persistent->tallies[i].lost, 0);
	}
	pg_atomic_write_u64(&persistent->stats_reset, (uint64) GetCurrentTimestamp());
}

TimestampTz
shared_state_stats_reset(void)
{
	return (TimestampTz) pg_atomic_read_u64(&persistent->stats_reset);
}

/* ---- mailbox ------------------------------------------------------------ */

/*
 * The one way in which the state of a place changes; a full barrier.  False
 * if it was not in that state.
 */
static bool
move_place(MailboxPlace *place, PlaceState from, PlaceState to)
{
	uint32		expected = from;

	return pg_atomic_compare_exchange_u32(&place->state, &expected, to);
}

/* The reply is in the place, which the elector has taken. */
static void
finish_place(MailboxPlace *place)
{
	if (move_place(place, PLACE_TAKEN, PLACE_DONE))
		ConditionVariableBroadcast(&place->replied);
	else if (move_place(place, PLACE_ABANDONED, PLACE_FREE))
		ConditionVariableBroadcast(&state->place_freed);
}

/*
 * Claims a free place for that command, waiting for one if need be.  NULL:
 * there is no elector, or the time is over.
 */
static pg_noinline MailboxPlace *
claim_place(SharedCommand command, int64 until_us, uint32 wait_event)
{
	MailboxPlace *claimed = NULL;
	long		left_ms;

	while (shared_state_has_elector())
	{
		for (int i = command == COMMAND_VERIFY ? MAILBOX_RESERVED : 0;
			 i < MAILBOX_SIZE && claimed == NULL; i++)
		{
			if (move_place(&state->mailbox[i], PLACE_FREE, PLACE_CLAIMED))
				claimed = &state->mailbox[i];
		}
		if (claimed != NULL || (left_ms = shared_state_remaining_ms(until_us)) == 0)
			break;
		(void) ConditionVariableTimedSleep(&state->place_freed, left_ms, wait_event);
	}
	ConditionVariableCancelSleep();
	return claimed;
}

/*
 * Gives a place up, whatever has become of the request.  In the form of an
 * exit callback.
 */
static void
leave_place(int code, Datum place_pointer)
{
	MailboxPlace *place = (MailboxPlace *) DatumGetPointer(place_pointer);

	/* the elector may be faster than any one of these */
	while (!move_place(place, PLACE_CLAIMED, PLACE_FREE) &&
		   !move_place(place, PLACE_WAITING, PLACE_FREE) &&
		   !move_place(place, PLACE_DONE, PLACE_FREE))
	{
		/* then the elector frees it */
		if (move_place(place, PLACE_TAKEN, PLACE_ABANDONED))
			return;
	}
	ConditionVariableBroadcast(&state->place_freed);
}

/* Wakes the elector, if there is one. */
static void
wake_elector(void)
{
	uint32		elector = pg_atomic_read_u32(&state->elector);

	/* if it has just ended, somebody else is woken for nothing */
	if (elector != NO_ELECTOR)
		SetLatch(&GetPGProcByNumber(elector)->procLatch);
}

long
shared_state_remaining_ms(int64 until_us)
{
	int64		left_us;

	if (until_us == PG_INT64_MAX)
		return -1;
	left_us = until_us - shared_state_clock_ns() / 1000;
	if (left_us <= 0)
		return 0;
	return (long) Min(left_us / 1000 + 1, INT_MAX);
}

bool
shared_state_ask(const SharedRequest *request, int64 until_us, SharedReply *reply)
{
	static uint32 wait_event = 0;
	MailboxPlace *place;
	volatile bool done = true;

	if (wait_event == 0)
		wait_event = compat_wait_event("EtcdLeaderRequest");

	place = claim_place(request->command, until_us, wait_event);
	if (place == NULL)
	{
		memset(reply, 0, sizeof(SharedReply));
		reply->kind = REPLY_NO_ELECTOR;
		return !shared_state_has_elector();
	}

	PG_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(place));
	{
		place->request = *request;
		(void) move_place(place, PLACE_CLAIMED, PLACE_WAITING);
		wake_elector();

		ConditionVariablePrepareToSleep(&place->replied);
		while (pg_atomic_read_u32(&place->state) != PLACE_DONE)
		{
			long		left_ms;

			/* it may have ended before it could see the request */
			if (!shared_state_has_elector() &&
				move_place(place, PLACE_WAITING, PLACE_CLAIMED))
			{
				place->reply.kind = REPLY_NO_ELECTOR;
				break;
			}
			left_ms = shared_state_remaining_ms(until_us);
			if (left_ms == 0)
			{
				done = false;
				break;
			}
			(void) ConditionVariableTimedSleep(&place->replied, left_ms, wait_event);
		}
		ConditionVariableCancelSleep();
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(place));

	pg_read_barrier();
	if (done)
		*reply = place->reply;
	leave_place(0, PointerGetDatum(place));
	return done;
}

int
shared_state_mailbox_size(void)
{
	return MAILBOX_SIZE;
}

bool
shared_state_take_request(int place_number, SharedRequest *request)
{
	MailboxPlace *place = &state->mailbox[place_number];

	if (!move_place(place, PLACE_WAITING, PLACE_TAKEN))
		return false;
	*request = place->request;
	return true;
}

void
shared_state_put_back(int place_number)
{
	MailboxPlace *place = &state->mailbox[place_number];

	/* unless nobody waits for it any more */
	if (!move_place(place, PLACE_TAKEN, PLACE_WAITING))
		finish_place(place);
}

void
shared_state_reply(int place_number, const SharedReply *reply)
{
	MailboxPlace *place = &state->mailbox[place_number];
	uint32		found = pg_atomic_read_u32(&place->state);

	/* shared_state_end_elector() has replied to everything */
	if (found != PLACE_TAKEN && found != PLACE_ABANDONED)
		return;
	place->reply = *reply;
	finish_place(place);
}
