/*-------------------------------------------------------------------------
 *
 * fenced.c
 *	  Which elections the transactions that are open are fenced in.
 *
 * A place belongs to the number of a process, which another process gets later.
 * So a process clears its place when it ends, whatever it was doing.  After a
 * crash the postmaster makes all of this memory anew.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "base/compat.h"
#include "fenced.h"

/* How many processes a message names. */
#define MAX_LISTED	20

/* A cache line for each process, because it writes there at each fenced transaction. */
typedef union FencedPlace
{
	pg_atomic_uint32 slots;
	char		pad[PG_CACHE_LINE_SIZE];
} FencedPlace;

static FencedPlace *places = NULL;
static uint32 advertised = 0;	/* in the place of this process */

const SharedPart fenced_part = {
	.name = "etcd_leader fenced transactions", .size_per_backend = sizeof(FencedPlace),
	.memory = (void **) &places
};

static pg_atomic_uint32 *
own_place(void)
{
	return &places[compat_my_proc_number()].slots;
}

static void
clear_place(int code, Datum arg)
{
	advertised = 0;
	pg_atomic_write_u32(own_place(), 0);
}

void
fenced_advertise(uint32 slots)
{
	static bool is_clean = false;

	if (slots == advertised)
		return;
	if (!is_clean)
		on_shmem_exit(clear_place, (Datum) 0);	/* after the abort of a transaction */
	is_clean = true;
	advertised = slots;
	pg_atomic_write_u32(own_place(), slots);
	/* nobody waits for the end of a transaction within nanoseconds */
	if (slots != 0)
		pg_memory_barrier();	/* drain.pml: FENCED_SHOWN */
}

uint32
fenced_advertised(void)
{
	return advertised;
}

uint32
fenced_slots(void)
{
	uint32		slots = 0;

	pg_memory_barrier();		/* drain.pml: OPEN_WITHDRAWN */
	for (int i = 0; i < MaxBackends; i++)
		slots |= pg_atomic_read_u32(&places[i].slots);
	return slots;
}

int
fenced_processes(int slot, StringInfo pids)
{
	int			n = 0;

	for (int i = 0; i < MaxBackends; i++)
	{
		int			pid = GetPGProcByNumber(i)->pid;

		if ((pg_atomic_read_u32(&places[i].slots) & (UINT32_C(1) << slot)) == 0 || pid == 0)
			continue;
		n++;
		if (n <= MAX_LISTED)
			appendStringInfo(pids, n == 1 ? "%d" : ", %d", pid);
		else if (n == MAX_LISTED + 1)
			appendStringInfoString(pids, ", ...");
	}
	return n;
}
