/*-------------------------------------------------------------------------
 *
 * crash_memory.c
 *	  What the elector remembers over a crash restart of the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"

#include "crash_memory.h"

/*
 * `current` is changed last.  An elector that is killed during a change leaves
 * the copy that was in force before.
 */
typedef struct CrashMemory
{
	pg_atomic_uint32 current;	/* 1 + the copy in force; 0: none */
	ElectionMemory copies[2];

	/* elections resigned from for good; empty: unused */
	char		stay_out[ELECTION_MAX_ELECTIONS][ELECTION_NAME_SIZE];
} CrashMemory;

static CrashMemory *memory_kept = NULL;

const SharedPart crash_memory_part = {
	.name = "memory of the elector", .size = sizeof(CrashMemory), .memory = (void **) &memory_kept,
	.is_lasting = true
};

/* The entry with that name, "" for a free one; NULL if there is none. */
static char *
find_stay_out(const char *election)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		if (strcmp(memory_kept->stay_out[i], election) == 0)
			return memory_kept->stay_out[i];
	}
	return NULL;
}

void
crash_memory_set_stay_out(const char *election, bool stay_out)
{
	char	   *entry = find_stay_out(election);

	if (entry && !stay_out)
		entry[0] = '\0';
	else if (entry == NULL && stay_out && (entry = find_stay_out("")) != NULL)
		strlcpy(entry, election, ELECTION_NAME_SIZE);
}

bool
crash_memory_stays_out(const char *election)
{
	return find_stay_out(election) != NULL;
}

void
crash_memory_remember(const ElectionMemory *memory)
{
	uint32		current = pg_atomic_read_u32(&memory_kept->current);
	uint32		next = current == 1 ? 2 : 1;

	if (memory == NULL)
		next = 0;
	else
	{
		memcpy(&memory_kept->copies[next - 1], memory, election_memory_size(memory));
		pg_write_barrier();		/* handshake.pml: MEMORY_WRITTEN */
	}
	pg_atomic_write_u32(&memory_kept->current, next);
	/* must take effect before the next message is sent */
	pg_memory_barrier();		/* handshake.pml: MEMORY_KEPT */
}

bool
crash_memory_recall(ElectionMemory *memory)
{
	uint32		current = pg_atomic_read_u32(&memory_kept->current);

	if (current == 0)
		return false;
	*memory = memory_kept->copies[current - 1];
	return true;
}
