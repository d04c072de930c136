/*-------------------------------------------------------------------------
 *
 * state.c
 *	  Elections and contact, as the elector publishes them and backends read
 *	  them; and the creation of all shared memory.
 *
 * There are two kinds of data here, and two ways to share them:
 *
 * - Deadline and token of an election: atomics, stored in an order that
 *	 makes any mixture of old and new say "not leading".  There is a second
 *	 deadline for new work, which is 0 while the instance drains.
 * - Election names, views and contact: two copies and a generation, see
 *	 shared/snapshot.h.
 *
 * The comment at a barrier names the barrier of a model that stands for it
 * (test/model).  What the order is for is said there, and what goes wrong
 * without it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "events.h"
#include "shared/state.h"
#include "shared/snapshot.h"

/*
 * One election.  The fields that every call of etcd_is_leader() reads have a
 * cache line of their own, which changes only with each renewal.
 */
typedef struct SharedSlot
{
	pg_atomic_uint64 deadline_ns;	/* 0: not leading */
	pg_atomic_uint64 open_ns;	/* the same, for new work: 0 while draining */
	pg_atomic_uint64 token;		/* means something while deadline_ns is not 0 */
	char		pad[PG_CACHE_LINE_SIZE - 3 * sizeof(pg_atomic_uint64)];

	/* view and leader_since; deadline_ns is filled in by the reader */
	pg_atomic_uint64 generation;
	SharedElection copies[2];
} SharedSlot;

typedef union SharedSlotPadded
{
	SharedSlot	slot;
	char		pad[TYPEALIGN(PG_CACHE_LINE_SIZE, sizeof(SharedSlot))];
} SharedSlotPadded;

typedef struct SharedState
{
	/*
	 * Advanced before and after a slot's name changes, hence odd in between;
	 * then no election has a slot.
	 */
	pg_atomic_uint64 layout;

	pg_atomic_uint32 elector;	/* number of its process, plus 1; 0: none */
	uint64		electors_begun; /* the elector's own */

	pg_atomic_uint64 contact_generation;
	SharedContact contact_copies[2];

	pg_atomic_uint64 endpoints_generation;
	SharedEndpoints endpoints_copies[2];
} SharedState;

bool		shared_state_lacks_elector = false;

static SharedState *state = NULL;
static SharedSlotPadded *slots = NULL;

static const SharedPart *const *parts;
static int	nparts;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* ---- life ------------------------------------------------------------ */

static Size
part_size(const SharedPart *part)
{
	return add_size(part->size, mul_size(part->size_per_backend, MaxBackends));
}

const SharedPart shared_state_part = {
	.name = "etcd_leader", .size = sizeof(SharedState), .memory = (void **) &state
};
const SharedPart shared_elections_part = {
	.name = "etcd_leader elections", .size = ELECTION_MAX_ELECTIONS * sizeof(SharedSlotPadded),
	.memory = (void **) &slots
};

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	/* each is aligned to a cache line */
	for (int i = 0; i < nparts; i++)
	{
		if (!parts[i]->is_lasting)
			RequestAddinShmemSpace(CACHELINEALIGN(part_size(parts[i])));
	}
}

static void
make_part(const SharedPart *part)
{
	bool		found;

	*part->memory = ShmemInitStruct(part->name, part_size(part), &found);
	if (found)
		return;
	if (!part->is_large)
		memset(*part->memory, 0, part_size(part));
	if (part->init)
		part->init();
}

static void
startup_shmem(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < nparts; i++)
	{
		if (!parts[i]->is_lasting)
			make_part(parts[i]);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * An anonymous mapping, which the postmaster creates and its children inherit.
 * It survives crash restarts, which create main shared memory again.
 */
static void
map_lasting_part(const SharedPart *part)
{
	void	   *mapping = mmap(NULL, part->size, PROT_READ | PROT_WRITE,
							   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (mapping == MAP_FAILED)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map %zu bytes of shared memory for etcd_leader: %m",
						part->size)));
	*part->memory = mapping;
	if (part->init)
		part->init();
}

void
shared_state_install(const SharedPart *const *all_parts, int n)
{
	parts = all_parts;
	nparts = n;
	for (int i = 0; i < nparts; i++)
	{
		if (parts[i]->is_lasting)
			map_lasting_part(parts[i]);
	}
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

/* The snapshot of a slot, for the elector, which is the only writer. */
static const SharedElection *
published_election(SharedSlot *slot)
{
	return &slot->copies[pg_atomic_read_u64(&slot->generation) & 1];
}

/*
 * Until the end readers that have cached a slot search again, and find none.
 * What is written next are snapshots, which begin with a barrier.
 */
static void
begin_layout_change(void)
{
	pg_atomic_write_u64(&state->layout, pg_atomic_read_u64(&state->layout) | 1);
}

/* A deadline that is stored next is behind the barrier of its token. */
static void
end_layout_change(void)
{
	pg_write_barrier();			/* leadership.pml: LAYOUT_NAMED */
	pg_atomic_write_u64(&state->layout, pg_atomic_read_u64(&state->layout) + 1);
}

/* From here on nobody reads "leading" in that slot. */
static void
withdraw(SharedSlot *slot)
{
	pg_atomic_write_u64(&slot->open_ns, 0);
	pg_atomic_write_u64(&slot->deadline_ns, 0);
	pg_memory_barrier();		/* leadership.pml: WITHDRAW */
}

/* Leadership of all elections.  Safe in an exit callback. */
static void
withdraw_all(void)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
		withdraw(&slots[i].slot);
}

/* No election has a slot. */
static void
free_slots(void)
{
	SharedElection nothing;

	memset(&nothing, 0, sizeof(nothing));
	withdraw_all();
	begin_layout_change();
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
		shared_snapshot_write(&slots[i].slot.generation, slots[i].slot.copies, sizeof(nothing),
							  &nothing);
	end_layout_change();
}

void
shared_state_begin_elector(void)
{
	free_slots();
	for (int i = 0; i < nparts; i++)
	{
		if (parts[i]->elector_begins)
			parts[i]->elector_begins();
	}

	state->electors_begun++;
	pg_atomic_write_u32(&state->elector, (uint32) compat_my_proc_number() + 1);
	events_wake_all();
}

void
shared_state_end_elector(void)
{
	free_slots();

	/*
	 * A backend writes its request first and looks for the elector then.  Here
	 * the order is reversed, so one of the two sees the other.
	 */
	pg_atomic_write_u32(&state->elector, 0);
	pg_memory_barrier();		/* handshake.pml: ELECTOR_ENDED */
	for (int i = 0; i < nparts; i++)
	{
		if (parts[i]->elector_ends)
			parts[i]->elector_ends();
	}
}

/*
 * From here on this process reads and writes memory of its own.  The plain
 * stores that withdraw the deadlines are the last ones that others see.  If
 * memory is out there is no ERROR, because its handling would use shared
 * memory.
 */
bool
shared_state_leave(void)
{
	withdraw_all();
	for (int i = 0; i < nparts; i++)
	{
		const SharedPart *part = parts[i];
		void	   *own = MemoryContextAllocExtended(TopMemoryContext, part_size(part),
													 MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);

		if (own == NULL)
			return false;
		if (part->is_lasting)
			memcpy(own, *part->memory, part->size);
		*part->memory = own;
		if (!part->is_lasting && part->init)
			part->init();
	}
	return true;
}

bool
shared_state_is_first_elector(void)
{
	return state->electors_begun == 1;
}

void
shared_state_wake_elector(void)
{
	uint32		elector = pg_atomic_read_u32(&state->elector);

	/* if it has just ended, this wakes another process for nothing */
	if (elector != 0)
		SetLatch(&GetPGProcByNumber(elector - 1)->procLatch);
}

bool
shared_state_has_elector(void)
{
	return pg_atomic_read_u32(&state->elector) != 0;
}

/* ---- elections ------------------------------------------------------- */

void
shared_state_publish(int slot_number, const ElectionView *view)
{
	SharedSlot *slot = &slots[slot_number].slot;
	const SharedElection *old = published_election(slot);
	SharedElection new;
	bool		renamed = strcmp(old->view.name, view->name) != 0;
	bool		led = pg_atomic_read_u64(&slot->deadline_ns) != 0;
	bool		leads = view->deadline_ns != 0;
	bool		is_open = leads && view->state != ELECTION_DRAINING;
	bool		was_open = pg_atomic_read_u64(&slot->open_ns) != 0;

	Assert(slot_number >= 0 && slot_number < ELECTION_MAX_ELECTIONS);

	/*
	 * This comes first.  A deadline must not be combined with the token or the
	 * name of another leadership either.
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

	if (renamed)
		begin_layout_change();
	shared_snapshot_write(&slot->generation, slot->copies, sizeof(new), &new);
	if (renamed)
		end_layout_change();

	if (leads)
	{
		pg_atomic_write_u64(&slot->token, (uint64) view->token);
		pg_write_barrier();		/* leadership.pml: TOKEN_STORED */
		pg_atomic_write_u64(&slot->deadline_ns, (uint64) view->deadline_ns);
		pg_atomic_write_u64(&slot->open_ns, is_open ? (uint64) view->deadline_ns : 0);
	}

	if (led != leads || was_open != is_open || renamed)
		events_wake();
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
		/* shared_snapshot_read() has barriers, which keep its copy between the layouts */
		for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
		{
			SharedElection election;

			shared_snapshot_read(&slots[i].slot.generation, slots[i].slot.copies,
								 sizeof(SharedElection), &election);
			if (strcmp(election.view.name, name) == 0)
			{
				found = i;
				break;
			}
		}
		if (pg_atomic_read_u64(&state->layout) == *layout)
			return found;
	}
}

/* Is that deadline of the election in the slot not over? */
static inline bool
is_before(pg_atomic_uint64 *deadline, uint64 layout)
{
	uint64		deadline_ns;

	/*
	 * The clock is read after the deadline.  The other way round, a process
	 * that is stopped in between would compare an old time with a new
	 * deadline.  The layout is read after it, too: if the slot is still that
	 * election's then, the deadline was.
	 */
	deadline_ns = pg_atomic_read_u64(deadline);
	if (deadline_ns == 0)
		return false;
	pg_read_barrier();			/* leadership.pml: DEADLINE_READ */
	return (int64) deadline_ns > clock_now_ns() &&
		pg_atomic_read_u64(&state->layout) == layout;
}

bool
shared_state_is_leader(int slot_number, uint64 layout)
{
	return slot_number >= 0 && is_before(&slots[slot_number].slot.open_ns, layout);
}

/* The token while that deadline of the slot is not over, else 0. */
static int64
read_token(SharedSlot *slot, pg_atomic_uint64 *deadline, uint64 layout)
{
	uint64		token;

	/*
	 * A token is stored while the deadline is 0, and tokens do not come back:
	 * with the same one before and after, the deadline was its own.  is_before()
	 * has the second barrier.
	 */
	token = pg_atomic_read_u64(&slot->token);
	pg_read_barrier();			/* leadership.pml: TOKEN_READ */
	if (!is_before(deadline, layout))
		return 0;
	return pg_atomic_read_u64(&slot->token) == token ? (int64) token : 0;
}

int64
shared_state_token(int slot_number, uint64 layout)
{
	return slot_number < 0 ? 0 :
		read_token(&slots[slot_number].slot, &slots[slot_number].slot.open_ns, layout);
}

int64
shared_state_held_token(int slot_number, uint64 layout)
{
	return slot_number < 0 ? 0 :
		read_token(&slots[slot_number].slot, &slots[slot_number].slot.deadline_ns, layout);
}

bool
shared_state_read(int slot_number, uint64 layout, SharedElection *election)
{
	SharedSlot *slot;

	if (slot_number < 0)
		return false;
	slot = &slots[slot_number].slot;

	shared_snapshot_read(&slot->generation, slot->copies, sizeof(SharedElection), election);

	/*
	 * The deadline in the snapshot may have been withdrawn since then.  The
	 * one in the slot is not older than the snapshot, and may belong to a newer
	 * leadership.  This instance leads only if the token is still the same.
	 */
	election->deadline_ns = (int64) pg_atomic_read_u64(&slot->deadline_ns);
	pg_read_barrier();			/* leadership.pml: VIEW_READ */
	if (election->view.deadline_ns == 0 ||
		(int64) pg_atomic_read_u64(&slot->token) != election->view.token)
		election->deadline_ns = 0;

	return election->view.name[0] != '\0' &&
		pg_atomic_read_u64(&state->layout) == layout;
}

int64
shared_state_next_deadline_ns(void)
{
	int64		now_ns = clock_now_ns();
	int64		next_ns = PG_INT64_MAX;

	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		int64		deadline_ns = (int64) pg_atomic_read_u64(&slots[i].slot.deadline_ns);

		if (deadline_ns > now_ns)
			next_ns = Min(next_ns, deadline_ns);
	}
	return next_ns;
}

/* ---- contact with etcd ------------------------------------------------ */

void
shared_state_publish_contact(const SharedContact *contact)
{
	shared_snapshot_write(&state->contact_generation, state->contact_copies,
						  sizeof(SharedContact), contact);
}

void
shared_state_read_contact(SharedContact *contact)
{
	shared_snapshot_read(&state->contact_generation, state->contact_copies,
						 sizeof(SharedContact), contact);
}

void
shared_state_publish_endpoints(const SharedEndpoints *endpoints)
{
	shared_snapshot_write(&state->endpoints_generation, state->endpoints_copies,
						  sizeof(SharedEndpoints), endpoints);
}

void
shared_state_read_endpoints(SharedEndpoints *endpoints)
{
	shared_snapshot_read(&state->endpoints_generation, state->endpoints_copies,
						 sizeof(SharedEndpoints), endpoints);
}
