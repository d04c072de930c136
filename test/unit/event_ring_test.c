/*-------------------------------------------------------------------------
 *
 * event_ring_test.c
 *	  Tests of event_ring.c: one writer, many readers, no lock.
 *
 * The writer or a reader can be stopped anywhere, and the other one goes on.
 * `stepped` is a copy of event_ring.c in which every access to shared memory is
 * a step.  A step copies only a few bytes.  For each step there is a run in which
 * one side stops before it, and the other side does all that it can.  Each side
 * has its own copy of the ring.  So the test chooses the order in which a reader
 * sees the writes: in the order of execution, or in an order as different as the
 * barriers allow.  The last tests use the unchanged file, also in concurrent processes.
 *
 * A reader copies bytes while they may be overwritten, and detects that
 * afterwards.  ThreadSanitizer would report these intended races, and does not
 * know PostgreSQL's atomics.  So it is of no use here.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "datatype/timestamp.h"
#include "port/atomics.h"

/* ---- steps ------------------------------------------------------------- */

/* The order in which readers see writes. */
static enum
{
	AS_DONE,
	DATA_LATE,					/* places and bytes become visible at the next barrier */
	DATA_EARLY					/* the other numbers do, in reverse order */
}			order;
/* A reader loads these parts right after a barrier, and the others when it uses them. */
static int	reads_early;
#define NPARTS		5

static int	nsteps;				/* in this run */
static int	stop_at;			/* before this step the other side runs */
static void (*other_side) (void);
static bool writing;			/* the writer runs now */

static void show_data(void);
static void show_numbers(void);
static void show_number(pg_atomic_uint64 *number);
static void look(int parts);

static void
step(void)
{
	bool		was_writing = writing;

	if (writing && order != DATA_LATE)
		show_data();
	if (++nsteps == stop_at)
		other_side();
	writing = was_writing;
	if (!writing)
		look(~reads_early);
}

static void
barrier(void)
{
	step();
	if (writing)
	{
		show_data();
		show_numbers();
	}
	else
		look(~0);
}

static void
copy_in_steps(void *to, const void *from, size_t len)
{
	for (size_t done = 0; done < len; done += 5)
	{
		step();
		memcpy((char *) to + done, (const char *) from + done, Min(5, len - done));
	}
}

static uint64
read_step(pg_atomic_uint64 *from)
{
	step();
	return pg_atomic_read_u64(from);
}

static void
write_step(pg_atomic_uint64 *to, uint64 value)
{
	step();
	pg_atomic_write_u64(to, value);
	show_number(to);
}

#undef pg_read_barrier
#undef pg_write_barrier
#define pg_read_barrier()	barrier()
#define pg_write_barrier()	barrier()
#define pg_atomic_read_u64	read_step
#define pg_atomic_write_u64	write_step
#define memcpy				copy_in_steps
#define event_ring_init		stepped_init
#define event_ring_append	stepped_append
#define event_ring_next		stepped_next
#include "../../src/shared/event_ring.c"
#undef memcpy
#undef event_ring_init
#undef event_ring_append
#undef event_ring_next

/* the unchanged file */
extern void event_ring_init(EventRing *ring, int nplaces, Size nbytes);
extern void event_ring_append(EventRing *ring, int64 seq, TimestampTz at, const void *record, Size len);
extern RingResult event_ring_next(EventRing *ring, int64 after, int64 *seq, TimestampTz *at, void *record, Size size);

/* ---- records ------------------------------------------------------------- */

#define NPLACES		5
#define NBYTES		61
#define MAX_LEN		(NBYTES - 1)

/*
 * The length of a record, which follows from its number: from 0 to one that fills
 * the ring alone.
 */
static Size
length_of(int64 seq)
{
	static const Size lengths[] = {7, 0, 20, MAX_LEN, 11, 3, 3, 3, 3, 3, 3, 30, 32, MAX_LEN, MAX_LEN, 1};

	return lengths[seq % lengthof(lengths)];
}

static char
byte_of(int64 seq, Size i)
{
	return (char) (seq * 31 + i);
}

static Size
make_record(int64 seq, char *record)
{
	Size		len = length_of(seq);

	for (Size i = 0; i < len; i++)
		record[i] = byte_of(seq, i);
	return len;
}

static bool
is_record(int64 seq, const char *record)
{
	for (Size i = 0; i < length_of(seq); i++)
	{
		if (record[i] != byte_of(seq, i))
			return false;
	}
	return true;
}

/* The time of a loss may be that of a record that was lost just after it. */
static bool
is_time(RingResult result, int64 seq, TimestampTz at, int64 last)
{
	return result == RING_FOUND ? at == seq * 1000 : at >= seq * 1000 && at <= last * 1000;
}

/* ---- one side stops --------------------------------------------------------- */

static EventRing *shared;
static EventRing *made;			/* the writer's copy */
static EventRing *seen;			/* the reader's copy */
static pg_atomic_uint64 *hidden[16];	/* numbers that become visible at the next barrier */
static int	nhidden;
static int64 newest;			/* seq of the record that was appended last */
static int	nappends;			/* number of records that are appended at a time */
static int64 reads_after;
static int64 whole;				/* a reader has to read at least up to this record */

static void
look(int parts)
{
	static const Size starts[NPARTS] = {
		offsetof(EventRing, newest), offsetof(EventRing, oldest), offsetof(EventRing, lost_seq), offsetof(EventRing, lost_at),
		offsetof(EventRing, places)
	};

	for (int i = 0; i < NPARTS; i++)
	{
		Size		end = i < NPARTS - 1 ? starts[i] + sizeof(pg_atomic_uint64) : EVENT_RING_SIZE(NPLACES, NBYTES);

		if (parts & 1 << i)
			memcpy((char *) seen + starts[i], (char *) shared + starts[i], end - starts[i]);
	}
}

static void
show(void *what, Size len)
{
	memcpy((char *) shared + ((char *) what - (char *) made), what, len);
}

static void
show_data(void)
{
	show(made->places, EVENT_RING_SIZE(NPLACES, NBYTES) - offsetof(EventRing, places));
}

static void
show_numbers(void)
{
	while (nhidden > 0)
	{
		pg_atomic_uint64 *number = hidden[--nhidden];

		show(number, sizeof(*number));
		if (nhidden > 0)
			step();
	}
}

static void
show_number(pg_atomic_uint64 *number)
{
	if (order != DATA_EARLY)
		show(number, sizeof(*number));
	else
	{
		assert_true(nhidden < (int) lengthof(hidden));
		hidden[nhidden++] = number;
	}
}

static void
append(void)
{
	char		record[MAX_LEN];
	Size		len = make_record(newest + 1, record);

	newest++;
	writing = true;
	stepped_append(made, newest, newest * 1000, record, len);
	step();
	show_data();
	show_numbers();
}

static void
append_some(void)
{
	for (int i = 0; i < nappends; i++)
		append();
}

/* Reads on to the end.  Each record is read once and whole, or reported as lost. */
static void
read_all(void)
{
	int64		after = reads_after;
	int64		seq;
	TimestampTz at;
	char		record[MAX_LEN];
	RingResult	result;

	for (;;)
	{
		writing = false;
		look(~0);
		result = stepped_next(seen, after, &seq, &at, record, sizeof(record));
		if (result == RING_NONE)
			break;
		assert_true(seq > after && seq <= newest);
		assert_true(is_time(result, seq, at, newest));
		if (result == RING_FOUND)
		{
			assert_int_equal(seq, after + 1);
			assert_true(is_record(seq, record));
		}
		after = seq;
	}
	assert_true(after >= whole);
}

static void
begin(int nrecords)
{
	static union
	{
		int64		align;
		char		bytes[1024];
	}			memory[3];

	assert_true(EVENT_RING_SIZE(NPLACES, NBYTES) <= sizeof(memory[0]));
	shared = memset(&memory[0], 0x5a, sizeof(memory[0]));
	made = memset(&memory[1], 0x5a, sizeof(memory[0]));
	seen = memset(&memory[2], 0x5a, sizeof(memory[0]));
	stepped_init(shared, NPLACES, NBYTES);
	stepped_init(made, NPLACES, NBYTES);
	stepped_init(seen, NPLACES, NBYTES);
	stop_at = 0;
	newest = 0;
	for (int i = 0; i < nrecords; i++)
		append();
	whole = newest;
	nsteps = 0;
}

/* A reader stops, and the writer goes on for up to twice the ring's size. */
static void
stop_reader(void)
{
	for (int nrecords = 0; nrecords < 20; nrecords++)
	{
		for (nappends = 1; nappends <= 2 * NPLACES; nappends++)
		{
			bool		more = true;

			for (int at = 1; more; at++)
			{
				begin(nrecords);
				reads_after = Max(newest - 3, 0);
				other_side = append_some;
				stop_at = at;
				read_all();
				more = nsteps >= at;
			}
		}
	}
}

static void
test_stopped_reader(void **state)
{
	order = AS_DONE;
	reads_early = 0;
	stop_reader();
	for (int i = 0; i < NPARTS; i++)
	{
		reads_early = 1 << i;
		stop_reader();
	}
}

/* The writer stops until a reader has read all. */
static void
stop_writer(void)
{
	for (int nrecords = 0; nrecords < 40; nrecords++)
	{
		for (int behind = 0; behind <= NPLACES + 1; behind++)
		{
			bool		more = true;

			for (int at = 1; more; at++)
			{
				begin(nrecords);
				reads_after = Max(newest - behind, 0);
				other_side = read_all;
				stop_at = at;
				append();
				more = nsteps >= at;
				whole = newest;
				read_all();
			}
		}
	}
}

static void
test_stopped_writer(void **state)
{
	reads_early = 0;
	for (order = AS_DONE; order <= DATA_EARLY; order++)
		stop_writer();
}

/* ---- the unchanged file --------------------------------------------------------- */

/* The records before that number were lost, and the others are whole. */
static void
check_kept(EventRing *ring, int64 oldest, int64 last)
{
	int64		seq;
	TimestampTz at;
	char		record[MAX_LEN];

	assert_int_equal(event_ring_next(ring, 0, &seq, &at, record, sizeof(record)), oldest > 1 ? RING_LOST : RING_FOUND);
	assert_int_equal(seq, oldest > 1 ? oldest - 1 : 1);
	for (int64 i = oldest; i <= last; i++)
	{
		int			len = i % 2 ? 30 : NBYTES - 30;

		/* there is no more room than for this record */
		memset(record, 0, sizeof(record));
		assert_int_equal(event_ring_next(ring, i - 1, &seq, &at, record, len), RING_FOUND);
		assert_int_equal(seq, i);
		for (int n = 0; n < len; n++)
			assert_int_equal(record[n], 'a' + i);
		assert_int_equal(record[len], 0);
	}
	assert_int_equal(event_ring_next(ring, last, &seq, &at, record, sizeof(record)), RING_NONE);
}

/* A ring is full to its last byte, whatever was in its memory before. */
static void
test_full_ring(void **state)
{
	static const int before[] = {0, 0x5a, 0xff};

	for (size_t i = 0; i < lengthof(before); i++)
	{
		EventRing  *ring = malloc(EVENT_RING_SIZE(NPLACES, NBYTES));

		memset(ring, before[i], EVENT_RING_SIZE(NPLACES, NBYTES));
		event_ring_init(ring, NPLACES, NBYTES);
		for (int64 seq = 1; seq <= 7; seq++)
		{
			char		record[MAX_LEN];

			memset(record, 'a' + seq, sizeof(record));
			event_ring_append(ring, seq, seq, record, seq % 2 ? 30 : NBYTES - 30);
			check_kept(ring, Max(seq - 1, 1), seq);
		}
		free(ring);
	}
}

/* ---- processes -------------------------------------------------------------- */

#define NREADERS	3
#define RUN_MS		1200

static int64
clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64CONST(1000) + now.tv_nsec / 1000000;
}

/* Reads up to that record; returns a description of a fault, or NULL. */
static const char *
read_on(EventRing *ring, const volatile int64 *last)
{
	int64		after = 0;
	int64		seq;
	TimestampTz at;
	char		record[MAX_LEN];

	for (uint64 n = 0; *last == 0 || after < *last; n++)
	{
		RingResult	result = event_ring_next(ring, after, &seq, &at, record, sizeof(record));

		if (result == RING_NONE)
			continue;
		if (seq <= after || !is_time(result, seq, at, INT_MAX))
			return "a wrong number";
		if (result == RING_FOUND && seq != after + 1)
			return "records are missing";
		if (result == RING_FOUND && !is_record(seq, record))
			return "a torn record";
		after = seq;
		if (n % 1000 == 0)
			usleep(100);		/* the writer overtakes it */
	}
	return after == *last ? NULL : "no end";
}

/* A writer and readers, which it overtakes, run as concurrent processes. */
static void
test_processes(void **state)
{
	Size		size = EVENT_RING_SIZE(NPLACES, NBYTES);
	/* the last number is in the memory before the ring */
	volatile int64 *last = mmap(NULL, PG_CACHE_LINE_SIZE + size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EventRing  *ring = (EventRing *) ((char *) last + PG_CACHE_LINE_SIZE);
	int64		end_ms = clock_ms() + RUN_MS;
	int64		seq = 0;

	assert_true(last != MAP_FAILED);
	event_ring_init(ring, NPLACES, NBYTES);
	for (int i = 0; i < NREADERS; i++)
	{
		pid_t		pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
		{
			const char *wrong = read_on(ring, last);

			if (wrong != NULL)
				dprintf(STDERR_FILENO, "a reader has seen %s\n", wrong);
			_exit(wrong != NULL);
		}
	}
	while (clock_ms() < end_ms)
	{
		char		record[MAX_LEN];
		Size		len = make_record(++seq, record);

		event_ring_append(ring, seq, seq * 1000, record, len);
		if (seq % 5000 == 0)
			usleep(50);			/* lets readers catch up now and then */
	}
	*last = seq;
	for (int i = 0; i < NREADERS; i++)
	{
		int			status;

		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_true(seq > 1000);
	munmap((void *) last, PG_CACHE_LINE_SIZE + size);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped_reader),
		cmocka_unit_test(test_stopped_writer),
		cmocka_unit_test(test_full_ring),
		cmocka_unit_test(test_processes),
	};

	return cmocka_run_group_tests_name("event_ring", tests, NULL, NULL);
}
