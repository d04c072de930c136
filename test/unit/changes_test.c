/*-------------------------------------------------------------------------
 *
 * changes_test.c
 *	  Unit tests of changes.c: its reads, watches and events after each input.
 *	  test/sim/changes_sim.c tests random orders of faults.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>

#include "protocol/changes.h"
#include "unit.h"

#define MS			INT64_C(1000000)
#define SECOND		(1000 * MS)
#define CLUSTER		7

/* The outputs since the last assert_out(), as text. */
static char out[4096];
static uint64_t read_id;
static Changes *core;
static int64_t now;
static int	nallocations;

extern void *__real_calloc(size_t n, size_t size);
extern void *__wrap_calloc(size_t n, size_t size);

void *
__wrap_calloc(size_t n, size_t size)
{
	nallocations++;
	assert_in_range(n * size, 1, 64 * 1024);
	return __real_calloc(n, size);
}

static void
note(const char *format,...)
{
	va_list		args;
	size_t		len = strlen(out);

	va_start(args, format);
	vsnprintf(out + len, sizeof(out) - len, format, args);
	va_end(args);
}

#define assert_out(expected) \
	do { \
		assert_string_equal(out, expected); \
		out[0] = '\0'; \
	} while (0)

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	read_id = id;
	note("read %d; ", request->nsuccess);
	assert_int_equal(request->kind, ETCD_TXN);
	assert_int_equal(request->ncompares + request->nfailure, 0);
	for (int i = 0; i < request->nsuccess; i++)
	{
		const EtcdOp *range = &request->success[i];

		/* the prefix itself, with a filter that no key passes */
		assert_int_equal(range->kind, ETCD_OP_RANGE);
		assert_int_equal(range->key.len, 2);
		assert_int_equal(range->key.data[1], '/');
		assert_int_equal(range->max_create_revision, 1);
	}
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int n)
{
	note("watch");
	for (int i = 0; i < n; i++)
		note(" %.*s-%.*s from %" PRId64, (int) watches[i].key.len, watches[i].key.data,
			 (int) watches[i].range_end.len, watches[i].range_end.data, watches[i].start_revision);
	note("; ");
}

static void
port_announce(void *ctx, const EtcdWatchEvent *event)
{
	if (event == NULL)
		note("gap; ");
	else
		note("%.*s@%" PRId64 "; ", (int) event->kv.key.len, event->kv.key.data, event->kv.mod_revision);
}

static uint64_t
port_random(void *ctx)
{
	return 0;
}

static int
begin(void **state)
{
	static const ChangesPort port = {
		.send = port_send,.watch = port_watch,.announce = port_announce,.random = port_random
	};

	out[0] = '\0';
	now = 0;
	nallocations = 0;
	core = changes_create(&port);
	return core == NULL;
}

static int
end(void **state)
{
	changes_free(core);
	/* it never needs more memory than at first */
	assert_int_equal(nallocations, 1);
	return 0;
}

static void
answer(EtcdOutcome outcome, uint64_t cluster, int64_t revision, uint64_t term)
{
	EtcdAnswer	a = {.outcome = outcome,.header = {.cluster_id = cluster,.revision = revision,.raft_term = term}};

	changes_receive(core, now, read_id, &a);
}

/* A frame of watch 1 or 2 with events "key@revision key@revision". */
static void
frame(int64_t watch_id, const char *events, bool fragment)
{
	EtcdWatchEvent list[8];
	EtcdWatchFrame f = {.watch_id = watch_id,.events = list,.fragment = fragment,.header = {.cluster_id = CLUSTER,.revision = 1000}};
	char		text[256];

	memset(list, 0, sizeof(list));
	snprintf(text, sizeof(text), "%s", events);
	for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
	{
		char	   *at = strchr(word, '@');

		list[f.nevents].kv.key = (EtcdBytes) {word, (size_t) (at - word)};
		list[f.nevents++].kv.mod_revision = atoi(at + 1);
	}
	changes_watched(core, now, &f);
}

static void
frame_created(int64_t watch_id)
{
	EtcdWatchFrame f = {.watch_id = watch_id,.created = true,.header = {.cluster_id = CLUSTER,.revision = 1000}};

	changes_watched(core, now, &f);
}

/* Begins to watch two prefixes at revision 100. */
static void
start(void)
{
	const char *prefixes[] = {"a/", "b/"};

	changes_configure(core, now, prefixes, 2, SECOND);
	changes_tick(core, now);
	assert_out("read 2; ");
	answer(ETCD_ANSWERED, CLUSTER, 100, 3);
	assert_out("gap; watch a/-a0 from 100 b/-b0 from 100; ");
	frame_created(1);
	assert_false(changes_is_watching(core));
	frame_created(2);
	assert_true(changes_is_watching(core));
	assert_int_equal(changes_wakeup_ns(core), now + SECOND);
}

/* Ends the stream, and answers the read after which the next one is opened. */
static void
reopen(const char *expected)
{
	changes_watch_ended(core, now, ETCD_NO_ANSWER);
	now += 10 * SECOND;
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 1000, 3);
	assert_out(expected);
	assert_false(changes_is_watching(core));
}

static void
test_nothing_to_watch(void **state)
{
	changes_tick(core, now);
	assert_out("");
	assert_int_equal(changes_wakeup_ns(core), INT64_MAX);
	assert_false(changes_is_watching(core));
}

static void
test_once(void **state)
{
	start();
	frame(1, "a/x@101 a/y@103 other@104", false);
	frame(2, "b/x@102 b/y@102", false);
	frame(1, "a/x@101 a/y@103 a/z@105", false);
	frame(3, "a/q@200", false);
	assert_out("a/x@101; a/y@103; b/x@102; b/y@102; a/z@105; ");
	reopen("read 2; watch a/-a0 from 105 b/-b0 from 102; ");
}

static void
test_fragments(void **state)
{
	start();
	frame(1, "a/1@101 a/1@102 a/2@102", true);
	assert_out("a/1@101; a/1@102; a/2@102; ");
	/* revision 102 is not complete, so the next stream sends it again */
	reopen("read 2; watch a/-a0 from 101 b/-b0 from 100; ");
	frame(1, "a/1@101", false);
	frame(1, "a/1@102 a/2@102 a/3@102", true);
	frame(1, "a/4@102 a/1@103", false);
	assert_out("a/3@102; a/4@102; a/1@103; ");
	reopen("read 2; watch a/-a0 from 103 b/-b0 from 100; ");
}

/* A fragment shows etcd's revision, too, so a lower one shows that etcd was put back. */
static void
test_put_back_to_before_a_fragment(void **state)
{
	start();
	frame(1, "a/1@102", true);
	assert_out("a/1@102; ");
	changes_watch_ended(core, now, ETCD_NO_ANSWER);
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 101, 3);
	assert_out("read 2; gap; watch a/-a0 from 101 b/-b0 from 101; ");
	/* this revision 102 is another one, of the new history */
	frame(1, "a/other@102", false);
	assert_out("a/other@102; ");
}

static void
test_progress(void **state)
{
	start();
	frame(2, "", false);
	reopen("read 2; watch a/-a0 from 100 b/-b0 from 1000; ");
}

static void
test_compacted(void **state)
{
	EtcdWatchFrame f = {.watch_id = 2,.canceled = true,.compact_revision = 500,.header = {.cluster_id = CLUSTER}};

	start();
	frame(1, "a/x@101", false);
	assert_out("a/x@101; ");
	changes_watched(core, now, &f);
	assert_out("watch; ");
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 600, 3);
	assert_out("read 2; gap; watch a/-a0 from 101 b/-b0 from 600; ");
}

/* Another cluster id, a lower revision or a lower term shows that etcd has changed. */
static void
test_other_etcd(void **state)
{
	static const struct
	{
		uint64_t	cluster;
		int64_t		revision;
		uint64_t	term;
		bool		same;
	}			cases[] = {
		{CLUSTER, 100, 3, true}, {CLUSTER, 200, 0, true},
		{CLUSTER + 1, 200, 3, false}, {CLUSTER, 99, 3, false}, {CLUSTER, 200, 2, false},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		end(state);
		assert_int_equal(begin(state), 0);
		start();
		now += SECOND;
		changes_tick(core, now);
		assert_out("read 2; ");
		answer(ETCD_ANSWERED, cases[i].cluster, cases[i].revision, cases[i].term);
		assert_out(cases[i].same ? "" : "watch; ");
		assert_int_equal(changes_is_watching(core), cases[i].same);
	}
}

static void
test_too_large(void **state)
{
	start();
	changes_watch_ended(core, now, ETCD_GARBAGE);
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 300, 3);
	assert_out("read 2; gap; watch a/-a0 from 300 b/-b0 from 300; ");
}

/*
 * What fails is tried again: at once, and then with delays that double up to 5 s.  Of each
 * delay at least the half is kept.
 */
static void
test_back_off(void **state)
{
	static const int delays_ms[] = {0, 100, 200, 400, 800, 1600, 2500};

	start();
	changes_watch_ended(core, now, ETCD_NO_ANSWER);
	for (size_t i = 0; i < 100; i++)
	{
		int			delay_ms = delays_ms[i < lengthof(delays_ms) ? i : lengthof(delays_ms) - 1];

		assert_int_equal(changes_wakeup_ns(core), now + delay_ms * MS);
		now = changes_wakeup_ns(core);
		changes_tick(core, now);
		assert_out("read 2; ");
		answer(ETCD_REFUSED, 0, 0, 0);
	}
	now = changes_wakeup_ns(core);
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 200, 3);
	assert_out("read 2; watch a/-a0 from 100 b/-b0 from 100; ");
}

static void
test_configure(void **state)
{
	const char *prefixes[] = {"b/", "c/"};

	start();
	frame(2, "b/x@110", false);
	assert_out("b/x@110; ");
	changes_configure(core, now, prefixes, 2, SECOND);
	assert_out("watch; ");
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 200, 3);
	assert_out("read 2; gap; watch b/-b0 from 110 c/-c0 from 200; ");
	changes_configure(core, now, NULL, 0, SECOND);
	assert_out("watch; ");
	assert_int_equal(changes_wakeup_ns(core), INT64_MAX);
}

/* A stream that does not begin in time is closed. */
static void
test_silent_stream(void **state)
{
	const char *prefixes[] = {"a/"};

	changes_configure(core, now, prefixes, 1, SECOND);
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 100, 3);
	assert_out("read 1; gap; watch a/-a0 from 100; ");
	now += SECOND;
	changes_tick(core, now);
	assert_out("watch; read 1; ");
}

/* One read is under way at a time.  Its answer is awaited, and nothing is due until then. */
static void
test_one_read(void **state)
{
	const char *prefixes[] = {"a/"};

	changes_configure(core, now, prefixes, 1, SECOND);
	changes_tick(core, now);
	assert_int_equal(changes_wakeup_ns(core), INT64_MAX);
	now += SECOND;
	changes_tick(core, now);
	assert_out("read 1; ");
}

/* After a stream that has worked, the next one is opened at once, whatever failed before it. */
static void
test_back_off_ends(void **state)
{
	static const struct
	{
		int64_t		interval_ns;
		int64_t		lived_ns;
		int64_t		delay_ns;
	}			cases[] = {
		/* it ended at once, or lived for five seconds, or a read was answered meanwhile */
		{60 * SECOND, 0, 200 * MS}, {60 * SECOND, 5 * SECOND - 1, 200 * MS},
		{60 * SECOND, 5 * SECOND, 0}, {SECOND, SECOND, 0},
	};
	const char *prefixes[] = {"a/"};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		end(state);
		assert_int_equal(begin(state), 0);
		changes_configure(core, now, prefixes, 1, cases[i].interval_ns);
		for (int stream = 0; stream < 3; stream++)
		{
			if (stream > 0)
				changes_watch_ended(core, now, ETCD_NO_ANSWER);
			now = changes_wakeup_ns(core);
			changes_tick(core, now);
			answer(ETCD_ANSWERED, CLUSTER, 100, 3);
			frame_created(1);
		}
		now += cases[i].lived_ns;
		changes_tick(core, now);
		answer(ETCD_ANSWERED, CLUSTER, 100, 3);
		changes_watch_ended(core, now, ETCD_NO_ANSWER);
		assert_int_equal(changes_wakeup_ns(core), now + cases[i].delay_ns);
	}
}

/* Other prefixes are read at once, and whatever failed before does not delay their retry. */
static void
test_configure_after_failures(void **state)
{
	const char *prefixes[] = {"c/"};

	start();
	changes_watch_ended(core, now, ETCD_NO_ANSWER);
	for (int i = 0; i < 3; i++)
	{
		now = changes_wakeup_ns(core);
		changes_tick(core, now);
		answer(ETCD_REFUSED, 0, 0, 0);
	}
	assert_out("read 2; read 2; read 2; ");
	assert_true(changes_wakeup_ns(core) > now);
	changes_configure(core, now, prefixes, 1, SECOND);
	changes_tick(core, now);
	answer(ETCD_REFUSED, 0, 0, 0);
	changes_tick(core, now);
	assert_out("read 1; read 1; ");
}

/* The answer to a read of other prefixes does not open the stream: theirs may be denied. */
static void
test_configure_while_reading(void **state)
{
	const char *prefixes[] = {"a/", "c/"};
	uint64_t	of_new;

	start();
	changes_watch_ended(core, now, ETCD_NO_ANSWER);
	changes_tick(core, now);
	changes_configure(core, now, prefixes, 2, SECOND);
	of_new = read_id + 1;
	answer(ETCD_ANSWERED, CLUSTER, 200, 3);
	changes_tick(core, now);
	assert_out("read 2; read 2; ");
	assert_int_equal(read_id, of_new);
	answer(ETCD_ANSWERED, CLUSTER, 300, 3);
	assert_out("gap; watch a/-a0 from 100 c/-c0 from 300; ");
}

/* A shorter interval counts for a stream that is open and has not begun. */
static void
test_shorter_interval(void **state)
{
	const char *prefixes[] = {"a/"};

	changes_configure(core, now, prefixes, 1, 10 * SECOND);
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 100, 3);
	assert_out("read 1; gap; watch a/-a0 from 100; ");
	changes_configure(core, now, prefixes, 1, SECOND);
	assert_int_equal(changes_wakeup_ns(core), now + SECOND);
	now += SECOND;
	changes_tick(core, now);
	assert_out("watch; read 1; ");
}

/* What cannot be read before etcd has begun to answer is no change: nothing is missing. */
static void
test_garbage_at_first(void **state)
{
	start();
	reopen("read 2; watch a/-a0 from 100 b/-b0 from 100; ");
	changes_watch_ended(core, now, ETCD_GARBAGE);
	now = changes_wakeup_ns(core);
	changes_tick(core, now);
	answer(ETCD_ANSWERED, CLUSTER, 1000, 3);
	assert_out("read 2; watch a/-a0 from 100 b/-b0 from 100; ");
}

/* A key that is shorter than the prefix is not below it, whatever stands in memory behind it. */
static void
test_short_key(void **state)
{
	EtcdWatchEvent event = {.kv = {.key = {"a/x", 1},.mod_revision = 101}};
	EtcdWatchFrame f = {.watch_id = 1,.events = &event,.nevents = 1,.header = {.cluster_id = CLUSTER}};

	start();
	changes_watched(core, now, &f);
	assert_out("");
	event.kv.key.len = 2;
	changes_watched(core, now, &f);
	assert_out("a/@101; ");
}

/* A frame without events within a revision that is not complete is no progress. */
static void
test_no_progress_within_fragments(void **state)
{
	start();
	frame(1, "a/1@102", true);
	frame(1, "", false);
	reopen("a/1@102; read 2; watch a/-a0 from 101 b/-b0 from 100; ");
	frame(1, "a/1@102 a/2@102", false);
	assert_out("a/2@102; ");
}

/* A stream that was closed announces nothing more: a change would come before its gap. */
static void
test_frame_after_close(void **state)
{
	EtcdWatchFrame f = {.watch_id = 1,.canceled = true,.compact_revision = 500,.header = {.cluster_id = CLUSTER}};

	start();
	changes_watched(core, now, &f);
	assert_out("watch; ");
	frame(1, "a/x@600", false);
	frame(2, "b/x@600", false);
	changes_watched(core, now, &f);
	assert_out("");
}

/* Without a compaction a watch that is refused or canceled goes on where it was. */
static void
test_canceled(void **state)
{
	EtcdWatchFrame frames[] = {
		{.watch_id = 1,.canceled = true,.header = {.cluster_id = CLUSTER}},
		{.watch_id = -1,.created = true,.header = {.cluster_id = CLUSTER}},
	};

	start();
	frame(1, "a/x@101", false);
	frame(0, "a/y@102", false);
	assert_out("a/x@101; ");
	for (size_t i = 0; i < lengthof(frames); i++)
	{
		changes_watched(core, now, &frames[i]);
		now = changes_wakeup_ns(core);
		changes_tick(core, now);
		answer(ETCD_ANSWERED, CLUSTER, 200, 3);
		assert_out("watch; read 2; watch a/-a0 from 101 b/-b0 from 100; ");
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_to_watch, begin, end),
		cmocka_unit_test_setup_teardown(test_once, begin, end),
		cmocka_unit_test_setup_teardown(test_fragments, begin, end),
		cmocka_unit_test_setup_teardown(test_put_back_to_before_a_fragment, begin, end),
		cmocka_unit_test_setup_teardown(test_progress, begin, end),
		cmocka_unit_test_setup_teardown(test_compacted, begin, end),
		cmocka_unit_test_setup_teardown(test_other_etcd, begin, end),
		cmocka_unit_test_setup_teardown(test_too_large, begin, end),
		cmocka_unit_test_setup_teardown(test_back_off, begin, end),
		cmocka_unit_test_setup_teardown(test_configure, begin, end),
		cmocka_unit_test_setup_teardown(test_silent_stream, begin, end),
		cmocka_unit_test_setup_teardown(test_one_read, begin, end),
		cmocka_unit_test_setup_teardown(test_back_off_ends, begin, end),
		cmocka_unit_test_setup_teardown(test_configure_after_failures, begin, end),
		cmocka_unit_test_setup_teardown(test_configure_while_reading, begin, end),
		cmocka_unit_test_setup_teardown(test_shorter_interval, begin, end),
		cmocka_unit_test_setup_teardown(test_garbage_at_first, begin, end),
		cmocka_unit_test_setup_teardown(test_short_key, begin, end),
		cmocka_unit_test_setup_teardown(test_no_progress_within_fragments, begin, end),
		cmocka_unit_test_setup_teardown(test_frame_after_close, begin, end),
		cmocka_unit_test_setup_teardown(test_canceled, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
