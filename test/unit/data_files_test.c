/*-------------------------------------------------------------------------
 *
 * data_files_test.c
 *	  Tests of the files in the data directory: shared/event_file.c, identity_file.c and
 *	  file_mark.c.
 *
 * The test is the postmaster.  It starts, is shut down, crashes, and is copied to another
 * directory, another host or another disk.  The files are real; the control file is a
 * variable of the test.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"

#include "settings/settings.h"
#include "shared/crash_memory.h"
#include "shared/event_file.h"
#include "shared/events.h"
#include "shared/identity_file.h"
#include "shared/state.h"
#include "small_server.h"

#define IDENTITY	"pg_stat/etcd_leader.identity"
#define EVENTS		"pg_stat/etcd_leader.events"

static const SharedPart *const parts[] = {
	&crash_memory_part, &event_number_part, &shared_state_part, &shared_elections_part,
	&events_part, &elections_ring_part, &changes_ring_part, &identity_part
};

/* ---- what the files need of others --------------------------------------------- */

int			settings_second_primary = SECOND_PRIMARY_REFUSE;
bool		IsPostmasterEnvironment = true;
char	   *DataDir = "/data";

static char host[256];
static char node[64];
static ControlFileData control;
static bool control_file_is_whole;

void
settings_resolve_node_name(char *buf, size_t size)
{
	strlcpy(buf, node, size);
}

ControlFileData *
get_controlfile(const char *directory, bool *crc_ok)
{
	ControlFileData *copy = palloc(sizeof(ControlFileData));

	assert_string_equal(directory, DataDir);
	*copy = control;
	*crc_ok = control_file_is_whole;
	return copy;
}

extern int	__wrap_gethostname(char *name, size_t len);

int
__wrap_gethostname(char *name, size_t len)
{
	assert_true(len >= 255);
	strlcpy(name, host, len);
	return host[0] == '\0' ? -1 : 0;
}

/* Memory that is freed, and that is not. */
static int	nallocated;

extern void *__real_palloc(Size size);
extern void *__wrap_palloc(Size size);
extern void __real_pfree(void *pointer);
extern void __wrap_pfree(void *pointer);

void *
__wrap_palloc(Size size)
{
	nallocated++;
	return __real_palloc(size);
}

void
__wrap_pfree(void *pointer)
{
	assert_non_null(pointer);
	nallocated--;
	__real_pfree(pointer);
}

/* ---- the postmaster ------------------------------------------------------------- */

static int	nstartup_hooks;

static void
other_library(void)
{
	nstartup_hooks++;
}

/* The postmaster has loaded its libraries, and makes the shared memory. */
static void
start(void)
{
	memset(&pg_error, 0, sizeof(pg_error));
	pg_wall_clock += 1000000;
	shmem_request_hook = NULL;
	shmem_startup_hook = other_library;
	nstartup_hooks = 0;
	shared_state_install(parts, lengthof(parts));
	event_file_install();
	identity_file_install();
	pg_start_memory(0);
	assert_int_equal(nstartup_hooks, 1);
	assert_int_equal(pg_open_files, 0);
	assert_int_equal(nallocated, 0);
	control.state = DB_IN_PRODUCTION;
}

static void
end(int code, DBState state)
{
	control.state = state;
	pg_end(code);
	assert_int_equal(pg_open_files, 0);
}

static void
shut_down(void)
{
	control.checkPoint += 100;
	control.time++;
	end(0, DB_SHUTDOWNED);
}

static bool
exists(const char *file)
{
	return access(file, F_OK) == 0;
}

static Size
read_whole(const char *name, char *bytes, Size size)
{
	FILE	   *file = fopen(name, "r");
	Size		len;

	assert_non_null(file);
	len = fread(bytes, 1, size, file);
	assert_true(len < size);
	fclose(file);
	return len;
}

static void
write_whole(const char *name, const char *bytes, Size len)
{
	FILE	   *file = fopen(name, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

static char bytes[100 * 1024];

/* The file gets another inode, as on another disk. */
static void
copy_file(const char *name)
{
	Size		len = read_whole(name, bytes, sizeof(bytes));

	write_whole("copy", bytes, len);
	assert_int_equal(rename("copy", name), 0);
}

/* Changes a byte, and the checksum at the end if it is to fit. */
static void
change_byte(const char *name, Size at, Size crc_len, bool fits)
{
	Size		len = read_whole(name, bytes, sizeof(bytes));
	pg_crc32c	crc;

	bytes[at] ^= 1;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, len - crc_len);
	FIN_CRC32C(crc);
	if (fits)
		memcpy(bytes + len - crc_len, &crc, sizeof(crc));
	write_whole(name, bytes, len);
}

static int
set_up(void **unused)
{
	static char directory[] = "/tmp/data_files_test.XXXXXX";

	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	assert_non_null(mkdtemp(directory));
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("pg_stat", 0700), 0);
	memset(&control, 0, sizeof(control));
	memset(&pg_file_errors, 0, sizeof(pg_file_errors));
	control.system_identifier = 7;
	control.checkPoint = 1000;
	control.time = 5;
	control_file_is_whole = true;
	strcpy(host, "home");
	strcpy(node, "pg1");
	DataDir = "/data";
	settings_second_primary = SECOND_PRIMARY_REFUSE;
	pg_be(0);
	pg_wall_clock = INT64CONST(820454400000000);
	return 0;
}

static int
tear_down(void **unused)
{
	char		directory[MAXPGPATH];

	assert_non_null(getcwd(directory, sizeof(directory)));
	(void) unlink(IDENTITY);
	(void) unlink(EVENTS);
	(void) unlink("standby.signal");
	/* nothing else is left */
	assert_int_equal(rmdir("pg_stat"), 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(directory), 0);
	return 0;
}

/* ---- the identity ---------------------------------------------------------------- */

/* The server starts.  Is it a copy, and does it say of whom?  Then it ends. */
static bool
starts_as_copy(void)
{
	bool		is_copy;

	start();
	is_copy = identity_is_copy();
	assert_string_equal(identity_copied_host(), is_copy ? "home" : "");
	if (is_copy)
	{
		assert_int_equal(pg_error.level, LOG);
		assert_string_equal(pg_error.message, "the data directory of this server is a copy");
		assert_string_equal(pg_error.detail, "The copied server ran on host \"home\" in directory \"/data\".");
	}
	else
		assert_int_equal(pg_error.level, 0);
	end(2, DB_IN_PRODUCTION);
	return is_copy;
}

/* A server that was shut down, or has crashed. */
static void
make_server(bool cleanly)
{
	start();
	assert_false(identity_is_copy());
	assert_int_equal(pg_error.level, 0);
	if (cleanly)
		shut_down();
	else
		end(2, DB_IN_PRODUCTION);
	(void) unlink(EVENTS);
}

static void
test_same_server(void **unused)
{
	for (int cleanly = 0; cleanly <= 1; cleanly++)
	{
		make_server(cleanly);
		assert_true(exists(IDENTITY));
		assert_false(starts_as_copy());
		assert_false(starts_as_copy());
		/* the directory got another name */
		DataDir = "/data2";
		assert_false(starts_as_copy());
		DataDir = "/data";
		make_server(cleanly);
	}
	/* a name that cannot be found out is the same each time */
	host[0] = '\0';
	make_server(false);
	assert_false(starts_as_copy());
}

/* What is left of the disk, the host and the path, and whether that is the same server. */
static void
test_moved_and_copied(void **unused)
{
	for (int kind = 0; kind < 32; kind++)
	{
		bool		cleanly = kind & 1;
		bool		same_disk = kind & 2;
		bool		same_host = kind & 4;
		bool		same_path = kind & 8;
		bool		ran_since = kind & 16;
		bool		is_same = (same_disk && same_host) ||
			(cleanly && !ran_since && (same_disk || (same_host && same_path)));

		(void) unlink(IDENTITY);
		make_server(cleanly);
		/* the original went on */
		if (ran_since)
			control.checkPoint += 10;
		if (!same_disk)
			copy_file(IDENTITY);
		if (!same_host)
			strcpy(host, "away");
		if (!same_path)
			DataDir = "/data2";
		assert_int_equal(starts_as_copy(), !is_same);
		strcpy(host, "home");
		DataDir = "/data";
	}
}

/* The last shutdown is not the one that the file knows of. */
static void
test_other_shutdown(void **unused)
{
	make_server(true);
	copy_file(IDENTITY);
	control.time++;
	assert_true(starts_as_copy());

	(void) unlink(IDENTITY);
	make_server(true);
	copy_file(IDENTITY);
	/* the shutdown of a standby counts, too; a start that was killed does not */
	control.state = DB_SHUTDOWNED_IN_RECOVERY;
	assert_false(starts_as_copy());
	make_server(true);
	copy_file(IDENTITY);
	control.state = DB_IN_CRASH_RECOVERY;
	assert_true(starts_as_copy());
}

static ino_t
inode(const char *file)
{
	struct stat st;

	assert_int_equal(stat(file, &st), 0);
	return st.st_ino;
}

/* A shutdown writes the file, a crash does not. */
static void
test_crash_writes_nothing(void **unused)
{
	ino_t		before;

	start();
	before = inode(IDENTITY);
	end(1, DB_IN_PRODUCTION);
	assert_int_equal(inode(IDENTITY), before);
	start();
	before = inode(IDENTITY);
	shut_down();
	assert_int_not_equal(inode(IDENTITY), before);
}

/* Neither is a copy, and says so in a new file. */
static void
test_no_copies(void **unused)
{
	FILE	   *file;

	make_server(false);
	copy_file(IDENTITY);
	file = fopen("standby.signal", "w");
	assert_int_equal(fclose(file), 0);
	assert_false(starts_as_copy());
	(void) unlink("standby.signal");
	assert_false(starts_as_copy());

	copy_file(IDENTITY);
	settings_second_primary = SECOND_PRIMARY_WAIT;
	assert_false(starts_as_copy());
	settings_second_primary = SECOND_PRIMARY_REFUSE;
	assert_false(starts_as_copy());

	/* pg_createsubscriber */
	copy_file(IDENTITY);
	control.system_identifier = 8;
	assert_false(starts_as_copy());
	copy_file(IDENTITY);
	assert_true(starts_as_copy());

	/* a single user */
	IsPostmasterEnvironment = false;
	assert_false(starts_as_copy());
	(void) unlink(IDENTITY);
	make_server(true);
	assert_false(exists(IDENTITY));
	IsPostmasterEnvironment = true;
}

/* A copy remains one until it is claimed. */
static void
test_claimed(void **unused)
{
	make_server(false);
	copy_file(IDENTITY);
	start();
	assert_true(identity_is_copy());
	/* a crash restart */
	end(1, DB_IN_PRODUCTION);
	pg_start_memory(0);
	assert_true(identity_is_copy());
	shut_down();
	start();
	assert_true(identity_is_copy());
	identity_claim();
	assert_false(identity_is_copy());
	end(1, DB_IN_PRODUCTION);
	assert_false(starts_as_copy());
}

/* Such a file is replaced, and the server is none that it tells of. */
static void
test_bad_identity(void **unused)
{
	for (int kind = 0; kind < 4; kind++)
	{
		make_server(false);
		copy_file(IDENTITY);
		switch (kind)
		{
			case 0:
				write_whole(IDENTITY, bytes, read_whole(IDENTITY, bytes, sizeof(bytes)) - 1);
				break;
			case 1:
				change_byte(IDENTITY, 0, 8, true);	/* the magic number */
				break;
			case 2:
				change_byte(IDENTITY, 60, 8, false);
				break;
			case 3:
				pg_file_errors.open_to_read = EACCES;
				break;
		}
		start();
		assert_true(pg_has_reported(LOG, kind == 3 ? "could not read file \"" IDENTITY "\": Permission denied" :
									"ignoring file \"" IDENTITY "\", which is damaged or of another version"));
		assert_false(identity_is_copy());
		end(2, DB_IN_PRODUCTION);
		pg_file_errors.open_to_read = 0;
		assert_false(starts_as_copy());
	}
	/* the checksum that change_byte() makes fits */
	copy_file(IDENTITY);
	change_byte(IDENTITY, 60, 8, true);
	start();
	assert_true(pg_has_reported(LOG, "the data directory of this server is a copy"));
	end(2, DB_IN_PRODUCTION);
}

static void
check_not_written(const char *message)
{
	(void) unlink(IDENTITY);
	start();
	assert_true(pg_has_reported(LOG, message));
	assert_false(identity_is_copy());
	assert_false(exists(IDENTITY));
	end(2, DB_IN_PRODUCTION);
}

static void
test_identity_not_written(void **unused)
{
	pg_file_errors.open_to_write = ENOSPC;
	check_not_written("could not write file \"" IDENTITY ".tmp\": No space left on device");
	pg_file_errors.open_to_write = 0;
	pg_file_errors.write = 1;
	check_not_written("could not write file \"" IDENTITY ".tmp\": No space left on device");
	pg_file_errors.close = EIO;
	check_not_written("could not write file \"" IDENTITY ".tmp\": Input/output error");
	pg_file_errors.close = 0;
	control_file_is_whole = false;
	start();
	assert_int_equal(pg_error.level, LOG);
	assert_false(exists(IDENTITY));
	end(2, DB_IN_PRODUCTION);
	control_file_is_whole = true;
	make_server(false);
	assert_true(exists(IDENTITY));
}

/* ---- the events ------------------------------------------------------------------ */

static void
append(int kind, int number)
{
	SharedEvent event;

	memset(&event, 0, sizeof(event));
	event.kind = kind;
	event.at = 1000 + number;
	snprintf(event.election, sizeof(event.election), "election %d", number);
	snprintf(event.node, sizeof(event.node), "node %d", number);
	snprintf(event.leader, sizeof(event.leader), "leader %d", number);
	snprintf(event.reason, sizeof(event.reason), "reason %d", number);
	event.has_leader = true;
	event.leader_revision = 100 + number;
	if (kind == EVENT_CHANGE)
		snprintf(event.key, sizeof(event.key), "key %d", number);
	events_append(&event);
}

/* The next event after that number is this one; its number. */
static int64
check_event(int64 after, int number)
{
	SharedEvent event;
	char		text[32];

	assert_true(events_next(after, &event));
	snprintf(text, sizeof(text), "election %d", number);
	assert_string_equal(event.election, text);
	snprintf(text, sizeof(text), "node %d", number);
	assert_string_equal(event.node, text);
	snprintf(text, sizeof(text), "leader %d", number);
	assert_string_equal(event.leader, text);
	snprintf(text, sizeof(text), "reason %d", number);
	assert_string_equal(event.reason, text);
	assert_int_equal(event.kind, ELECTION_EVENT_LEADER);
	assert_int_equal(event.at, 1000 + number);
	assert_int_equal(event.leader_revision, 100 + number);
	assert_true(event.has_leader);
	assert_string_equal(event.key, "");
	return event.seq;
}

static bool
has_events(void)
{
	SharedEvent event;

	return events_next(0, &event);
}

/* Events go on over a clean restart, with their numbers, and the file is gone. */
static void
test_events_go_on(void **unused)
{
	int64		last;
	SharedEvent event;

	start();
	last = events_last();
	/* as many as are kept, or more, or none */
	for (int n = 0; n <= SHARED_EVENTS + 1; n++)
	{
		for (int i = 0; i < n; i++)
			append(ELECTION_EVENT_LEADER, i);
		last += n;
		assert_int_equal(events_last(), last);
		shut_down();
		assert_int_equal(pg_error.level, 0);
		assert_true(exists(EVENTS));
		start();
		assert_int_equal(pg_error.level, 0);
		assert_false(exists(EVENTS));
		assert_int_equal(events_last(), last);
		assert_int_equal(events_start(), last);
		for (int i = Max(n - SHARED_EVENTS, 0); i < n; i++)
			assert_int_equal(check_event(last - n + i, i), last - n + i + 1);
		assert_false(events_next(last, &event));
	}
	/* changes are not kept, which a number that is skipped tells */
	append(EVENT_CHANGE, 1);
	append(ELECTION_EVENT_LEADER, 2);
	append(EVENT_CHANGE, 3);
	shut_down();
	start();
	assert_int_equal(check_event(last, 2), last + 2);
	assert_false(events_next(last + 2, &event));
	append(ELECTION_EVENT_LEADER, 4);
	assert_int_equal(check_event(last + 2, 4), last + 5);
	end(2, DB_IN_PRODUCTION);
}

static void
test_timelines_go_on(void **unused)
{
	ElectionTimelines timelines = {.leading = 3, .refused = 2, .accepted = 1};
	ElectionTimelines found;
	int			n = 0;

	start();
	crash_memory_set_timelines("one", &timelines);
	timelines.leading = 4;
	crash_memory_set_timelines("two", &timelines);
	shut_down();
	start();
	found = crash_memory_timelines("one");
	assert_true(found.leading == 3 && found.refused == 2 && found.accepted == 1);
	assert_int_equal(crash_memory_timelines("two").leading, 4);
	assert_int_equal(crash_memory_timelines("three").leading, 0);
	/* no more elections than these */
	shut_down();
	start();
	for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
	{
		const char *election;

		n += crash_memory_get_timelines(i, &election, &found);
	}
	assert_int_equal(n, 2);
	end(2, DB_IN_PRODUCTION);
}

/* There is room for so many elections. */
static void
test_room_for_timelines(void **unused)
{
	char		name[ELECTION_NAME_SIZE];

	start();
	for (int i = 0; i <= CRASH_MEMORY_TIMELINES; i++)
	{
		ElectionTimelines timelines = {.leading = 100 + i};

		snprintf(name, sizeof(name), "election %d", i);
		crash_memory_set_timelines(name, &timelines);
		crash_memory_set_timelines(name, &timelines);
	}
	shut_down();
	start();
	for (int i = 0; i <= CRASH_MEMORY_TIMELINES; i++)
	{
		snprintf(name, sizeof(name), "election %d", i);
		assert_int_equal(crash_memory_timelines(name).leading, i < CRASH_MEMORY_TIMELINES ? 100 + i : 0);
	}
	end(2, DB_IN_PRODUCTION);
}

/* After a crash, and after an immediate shutdown, there are no events, and no file. */
static void
test_crashes(void **unused)
{
	static const struct
	{
		int			code;
		DBState		state;
	}			ends[] = {
		{1, DB_IN_PRODUCTION}, {0, DB_IN_PRODUCTION}, {1, DB_SHUTDOWNED}
	};

	for (size_t i = 0; i < lengthof(ends); i++)
	{
		start();
		append(ELECTION_EVENT_LEADER, 1);
		end(ends[i].code, ends[i].state);
		assert_false(exists(EVENTS));
		assert_false(exists(EVENTS ".tmp"));
		assert_int_equal(pg_error.level, 0);
		start();
		assert_int_equal(pg_error.level, 0);
		assert_false(has_events());
		end(1, DB_IN_PRODUCTION);
	}
}

/* A server with one event and a file, which is not started. */
static void
make_events(void)
{
	(void) unlink(EVENTS);
	(void) unlink(IDENTITY);
	start();
	append(ELECTION_EVENT_LEADER, 1);
	shut_down();
	assert_true(exists(EVENTS));
}

/* The server starts without these events, says why, and leaves the file. */
static void
check_ignored(const char *why)
{
	settings_second_primary = SECOND_PRIMARY_WAIT;
	start();
	assert_int_equal(pg_error.level, LOG);
	assert_string_equal(pg_error.message, "ignoring the events in file \"" EVENTS "\"");
	assert_string_equal(pg_error.detail, why);
	assert_false(has_events());
	assert_true(exists(EVENTS));
	append(ELECTION_EVENT_LEADER, 2);
	/* the next shutdown replaces it */
	shut_down();
	start();
	assert_int_equal(pg_error.level, 0);
	(void) check_event(0, 2);
	end(2, DB_IN_PRODUCTION);
}

/* Where the parts of the file are. */
#define AT_MAGIC		0
#define AT_EVENT_SIZE	8
#define AT_NEVENTS		56
#define AT_NODE			64

static void
set_nevents(int64 n)
{
	Size		len = read_whole(EVENTS, bytes, sizeof(bytes));

	memcpy(bytes + AT_NEVENTS, &n, sizeof(n));
	write_whole(EVENTS, bytes, len);
	change_byte(EVENTS, AT_NODE + 60, 4, true);
}

static void
test_bad_events(void **unused)
{
	static const char *const short_file = "It is too short.";
	static const char *const damaged = "It is damaged.";
	Size		len;

	make_events();
	len = read_whole(EVENTS, bytes, sizeof(bytes));
	for (Size cut = 1; cut <= len; cut += cut < 8 ? 1 : cut == 8 ? 200 : len - cut > 700 ? 700 : 1 + (len - cut) / 2)
	{
		make_events();
		(void) read_whole(EVENTS, bytes, sizeof(bytes));
		write_whole(EVENTS, bytes, len - cut);
		check_ignored(short_file);
	}
	make_events();
	write_whole(EVENTS, bytes, read_whole(EVENTS, bytes, sizeof(bytes) - 1) + 1);
	check_ignored(damaged);
	make_events();
	change_byte(EVENTS, AT_MAGIC, 4, true);
	check_ignored("It has another format.");
	make_events();
	change_byte(EVENTS, AT_EVENT_SIZE, 4, true);
	check_ignored("It has another format.");
	make_events();
	change_byte(EVENTS, len - 40, 4, false);
	check_ignored(damaged);
	make_events();
	change_byte(EVENTS, AT_NODE + 60, 4, false);
	check_ignored(damaged);
	make_events();
	set_nevents(-1);
	check_ignored(damaged);
	make_events();
	set_nevents(SHARED_EVENTS + 1);
	check_ignored(damaged);
}

/* A file of another server, or of another time. */
static void
test_foreign_events(void **unused)
{
	static const char *const foreign = "It does not belong to the last shutdown of this server.";

	for (int kind = 0; kind < 7; kind++)
	{
		make_events();
		switch (kind)
		{
			case 0:
				control.checkPoint++;
				break;
			case 1:
				control.time++;
				break;
			case 2:
				control.system_identifier++;
				break;
			case 3:
				strcpy(node, "pg2");
				break;
			case 4:
				copy_file(EVENTS);
				break;
			case 5:
				control.state = DB_IN_PRODUCTION;	/* it ran since, and crashed */
				break;
			case 6:
				control_file_is_whole = false;
				settings_second_primary = SECOND_PRIMARY_REFUSE;
				start();
				assert_false(has_events());
				assert_true(exists(EVENTS));
				end(1, DB_IN_PRODUCTION);
				control_file_is_whole = true;
				strcpy(node, "pg1");
				continue;
		}
		check_ignored(foreign);
		strcpy(node, "pg1");
	}
}

static void
test_events_not_read(void **unused)
{
	make_events();
	settings_second_primary = SECOND_PRIMARY_WAIT;	/* the other file is not read */
	pg_file_errors.open_to_read = EACCES;
	start();
	assert_true(pg_has_reported(LOG, "could not read file \"" EVENTS "\": Permission denied"));
	assert_false(has_events());
	pg_file_errors.open_to_read = 0;
	end(2, DB_IN_PRODUCTION);
}

static void
test_events_not_written(void **unused)
{
	settings_second_primary = SECOND_PRIMARY_WAIT;
	start();
	for (int kind = 0; kind < 6; kind++)
	{
		append(ELECTION_EVENT_LEADER, 1);
		append(ELECTION_EVENT_LEADER, 2);
		if (kind == 0)
			pg_file_errors.open_to_write = ENOSPC;
		else if (kind == 1)
			pg_file_errors.close = EIO;
		else
			pg_file_errors.write = kind - 1;	/* the head, an event, another one, the checksum */
		IsPostmasterEnvironment = false;	/* the other file is not written */
		shut_down();
		assert_int_equal(pg_error.level, LOG);
		assert_int_equal(strncmp(pg_error.message, "could not write file \"" EVENTS ".tmp\"", 30), 0);
		memset(&pg_file_errors, 0, sizeof(pg_file_errors));
		assert_false(exists(EVENTS));
		assert_false(exists(EVENTS ".tmp"));
		start();
		assert_false(has_events());
	}
	end(2, DB_IN_PRODUCTION);
	IsPostmasterEnvironment = true;
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		A_TEST(test_same_server),
		A_TEST(test_moved_and_copied),
		A_TEST(test_other_shutdown),
		A_TEST(test_crash_writes_nothing),
		A_TEST(test_no_copies),
		A_TEST(test_claimed),
		A_TEST(test_bad_identity),
		A_TEST(test_identity_not_written),
		A_TEST(test_events_go_on),
		A_TEST(test_timelines_go_on),
		A_TEST(test_room_for_timelines),
		A_TEST(test_crashes),
		A_TEST(test_bad_events),
		A_TEST(test_foreign_events),
		A_TEST(test_events_not_read),
		A_TEST(test_events_not_written),
	};

	return cmocka_run_group_tests_name("data_files", tests, NULL, NULL);
}
