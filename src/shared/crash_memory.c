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

	/* the same for the history, which is kept without a lease, too */
	pg_atomic_uint32 current_history;
	ElectionHistory histories[2];

	/* elections resigned from for good; empty: unused */
	char		stay_out[ELECTION_MAX_ELECTIONS][ELECTION_NAME_SIZE];

	/* an empty name: unused */
	struct
	{
		char		election[ELECTION_NAME_SIZE];
		ElectionTimelines timelines;
	}			timelines[CRASH_MEMORY_TIMELINES];
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
crash_memory_set_timelines(const char *election, const ElectionTimelines *timelines)
{
	int			place = -1;

	for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
	{
		const char *name = memory_kept->timelines[i].election;

		if (strcmp(name, election) == 0)
		{
			place = i;
			break;
		}
		if (name[0] == '\0')
			place = i;
	}
	if (place < 0)
		return;
	memory_kept->timelines[place].timelines = *timelines;
	strlcpy(memory_kept->timelines[place].election, election, ELECTION_NAME_SIZE);
}

ElectionTimelines
crash_memory_timelines(const char *election)
{
	ElectionTimelines none = {0};

	for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
	{
		if (strcmp(memory_kept->timelines[i].election, election) == 0)
			return memory_kept->timelines[i].timelines;
	}
	return none;
}

bool
crash_memory_get_timelines(int index, const char **election, ElectionTimelines *timelines)
{
	*election = memory_kept->timelines[index].election;
	*timelines = memory_kept->timelines[index].timelines;
	return (*election)[0] != '\0';
}

/* Puts a record, of which `used` bytes are used, in force; NULL: none is in force. */
static void
keep(pg_atomic_uint32 *current, void *first, void *second, const void *record, size_t used)
{
	uint32		next = pg_atomic_read_u32(current) == 1 ? 2 : 1;

	if (record == NULL)
		next = 0;
	else
	{
		memcpy(next == 1 ? first : second, record, used);
		pg_write_barrier();		/* handshake.pml: MEMORY_WRITTEN */
	}
	pg_atomic_write_u32(current, next);
	/* must take effect before the next message is sent */
	pg_memory_barrier();		/* handshake.pml: MEMORY_KEPT */
}

void
crash_memory_remember(const ElectionMemory *memory)
{
	keep(&memory_kept->current, &memory_kept->copies[0], &memory_kept->copies[1], memory,
		 memory ? election_memory_size(memory) : 0);
}

void
crash_memory_remember_history(const ElectionHistory *history)
{
	keep(&memory_kept->current_history, &memory_kept->histories[0], &memory_kept->histories[1],
		 history, sizeof(*history));
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

bool
crash_memory_recall_history(ElectionHistory *history)
{
	uint32		current = pg_atomic_read_u32(&memory_kept->current_history);

	if (current == 0)
		return false;
	*history = memory_kept->histories[current - 1];
	return true;
}
