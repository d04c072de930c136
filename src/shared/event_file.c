/*-------------------------------------------------------------------------
 *
 * event_file.c
 *	  The events of elections, and what is known of other primaries, over a restart
 *	  of the server.
 *
 * The postmaster writes them into a file at the end of a clean shutdown, and
 * reads and removes the file when it starts, as pg_stat_statements does.  After
 * a crash there is none.  A file that cannot be used is left where it is, until
 * the next clean shutdown replaces it.
 *
 * Events of another server must not be taken for own ones.  So the file says
 * which shutdown it belongs to, by the control file, and that it is no copy, by
 * its own inode.  A clone of a whole file system has the same inodes, but as a
 * rule another node name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/ipc.h"

#include "crash_memory.h"
#include "event_file.h"
#include "events.h"
#include "file_mark.h"
#include "settings/settings.h"

#define EVENT_FILE			PGSTAT_STAT_PERMANENT_DIRECTORY "/etcd_leader.events"
#define EVENT_FILE_TEMP		EVENT_FILE ".tmp"

/* To be changed with the layout of the file. */
#define EVENT_FILE_MAGIC	UINT64CONST(0x45544c4500000002)

/* What is behind this concerns changes, which are not kept. */
#define EVENT_SIZE	offsetof(SharedEvent, key)

/* What is known of the primaries of this database system; an empty name: nothing. */
typedef struct EventFileTimelines
{
	char		election[ELECTION_NAME_SIZE];
	ElectionTimelines timelines;
} EventFileTimelines;

/* The events follow, each of EVENT_SIZE bytes, and the CRC of all that. */
typedef struct EventFileHeader
{
	uint64		magic;
	uint64		event_size;
	FileMark	mark;
	int64		next_after;		/* the events of the next start follow this number */
	int64		nevents;
	char		node[ELECTION_VALUE_SIZE];
	EventFileTimelines timelines[CRASH_MEMORY_TIMELINES];
} EventFileHeader;

static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/*
 * The header of a file that belongs to this server as it is now.  False: it was
 * not shut down cleanly.
 */
static bool
describe(FILE *file, EventFileHeader *header)
{
	memset(header, 0, sizeof(EventFileHeader));
	header->magic = EVENT_FILE_MAGIC;
	header->event_size = EVENT_SIZE;
	settings_resolve_node_name(header->node, sizeof(header->node));
	return file_mark_make(file, &header->mark) && header->mark.checkpoint != 0;
}

/* ---- at the end ------------------------------------------------------- */

static bool
write_bytes(FILE *file, const void *bytes, Size len, pg_crc32c *crc)
{
	COMP_CRC32C(*crc, bytes, len);
	return fwrite(bytes, len, 1, file) == 1;
}

static void
add_timelines(EventFileHeader *header)
{
	for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
	{
		EventFileTimelines *kept = &header->timelines[i];
		const char *election;

		if (crash_memory_get_timelines(i, &election, &kept->timelines))
			strlcpy(kept->election, election, sizeof(kept->election));
	}
}

static bool
write_events(FILE *file, EventFileHeader *header)
{
	SharedEvent event;
	pg_crc32c	crc;
	bool		ok;

	add_timelines(header);

	/*
	 * Changes are not kept.  If there were any, a number is skipped, which
	 * readers notice.
	 */
	header->next_after = events_last() + (events_last_change() > 0 ? 1 : 0);
	for (int64 after = 0; events_next_of(EVENTS_BUT_CHANGES, after, &event); after = event.seq)
		header->nevents++;

	INIT_CRC32C(crc);
	ok = write_bytes(file, header, sizeof(EventFileHeader), &crc);
	for (int64 after = 0; ok && events_next_of(EVENTS_BUT_CHANGES, after, &event);
		 after = event.seq)
		ok = write_bytes(file, &event, EVENT_SIZE, &crc);
	FIN_CRC32C(crc);
	return ok && fwrite(&crc, sizeof(crc), 1, file) == 1;
}

/* An exit callback of the postmaster: nobody else is there. */
static void
save_events(int code, Datum arg)
{
	EventFileHeader header;
	FILE	   *file;
	bool		ok;

	/* a crash, also one that the server recovers from by itself */
	if (code != 0)
		return;

	file = AllocateFile(EVENT_FILE_TEMP, PG_BINARY_W);
	if (file == NULL)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", EVENT_FILE_TEMP)));
		return;
	}
	if (!describe(file, &header))
	{
		/* an immediate shutdown ends with code 0, too */
		FreeFile(file);
		unlink(EVENT_FILE_TEMP);
		return;
	}
	ok = write_events(file, &header);
	if (FreeFile(file) == 0 && ok)
		(void) durable_rename(EVENT_FILE_TEMP, EVENT_FILE, LOG);
	else
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", EVENT_FILE_TEMP)));
		unlink(EVENT_FILE_TEMP);
	}
}

/* ---- at the start ----------------------------------------------------- */

/* Why the file cannot be used; NULL: it can, and its events are at *events. */
static const char *
read_events(FILE *file, EventFileHeader *header, char **events)
{
	EventFileHeader own;
	pg_crc32c	crc;
	pg_crc32c	stored;
	Size		len;

	if (fread(header, sizeof(EventFileHeader), 1, file) != 1)
		return "It is too short.";
	if (header->magic != EVENT_FILE_MAGIC || header->event_size != EVENT_SIZE)
		return "It has another format.";
	if (header->nevents < 0 || header->nevents > SHARED_EVENTS)
		return "It is damaged.";

	len = header->nevents * EVENT_SIZE;
	*events = palloc(len + 1);
	if ((len > 0 && fread(*events, len, 1, file) != 1) ||
		fread(&stored, sizeof(stored), 1, file) != 1)
		return "It is too short.";
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, header, sizeof(EventFileHeader));
	COMP_CRC32C(crc, *events, len);
	FIN_CRC32C(crc);
	if (!EQ_CRC32C(crc, stored) || fgetc(file) != EOF)
		return "It is damaged.";

	if (!describe(file, &own) ||
		!file_mark_is_same_shutdown(&header->mark, &own.mark) ||
		header->mark.inode != own.mark.inode || strcmp(header->node, own.node) != 0)
		return "It does not belong to the last shutdown of this server.";
	return NULL;
}

static void
restore_events(const EventFileHeader *header, const char *events)
{
	for (int64 i = 0; i < header->nevents; i++)
	{
		SharedEvent event;

		memset(&event, 0, sizeof(SharedEvent));
		memcpy(&event, events + i * EVENT_SIZE, EVENT_SIZE);
		events_restore(&event);
	}
	events_continue_after(header->next_after);
	for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
	{
		if (header->timelines[i].election[0] != '\0')
			crash_memory_set_timelines(header->timelines[i].election,
									   &header->timelines[i].timelines);
	}
}

static void
load_events(void)
{
	EventFileHeader header;
	const char *problem;
	char	   *events = NULL;
	FILE	   *file;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	on_shmem_exit(save_events, (Datum) 0);

	file = AllocateFile(EVENT_FILE, PG_BINARY_R);
	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", EVENT_FILE)));
		return;
	}
	problem = read_events(file, &header, &events);
	FreeFile(file);
	if (problem == NULL)
	{
		restore_events(&header, events);
		/* a crash must not find it */
		(void) durable_unlink(EVENT_FILE, LOG);
	}
	else
		ereport(LOG,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ignoring the events in file \"%s\"", EVENT_FILE),
				 errdetail_internal("%s", problem)));
	if (events)
		pfree(events);
}

void
event_file_install(void)
{
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = load_events;
}
