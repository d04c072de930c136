/*-------------------------------------------------------------------------
 *
 * shared_state_test.c
 *	  Tests of shared/state.c: the shared memory is made, the elector publishes, and others
 *	  read at any time.
 *
 * Process 0 is the elector, and publishes also between any two accesses of a reader to
 * shared memory.  Readers read between any two accesses of the elector.
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

#include "miscadmin.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "shared/events.h"
#include "shared/state.h"
#include "small_server.h"

#define START_NS	(1000 * NSEC_PER_SEC)
#define NSLOTS		3


/* ---- parts of the memory ----------------------------------------------------------- */

static char *plain;
static char *per_backend;
static char *large;
static char *lasting;
static char *lasting_plain;
static int	nbegun;
static int	nended;
static int	ninits;

static void
init_large(void)
{
	assert_non_null(plain);		/* parts are made in their order */
	large[0] = 'L';
	ninits++;
}

static void
init_lasting(void)
{
	lasting[0] = 'l';
	ninits++;
}

static void
begin_elector(void)
{
	nbegun++;
}

static void
end_elector(void)
{
	assert_false(shared_state_has_elector());
	nended++;
}

static const SharedPart plain_part = {.name = "plain", .size = 1000, .memory = (void **) &plain};
static const SharedPart per_backend_part = {
	.name = "per backend", .size = 10, .size_per_backend = 100, .memory = (void **) &per_backend,
	.elector_begins = begin_elector
};
static const SharedPart large_part = {
	.name = "large", .size = 5000, .memory = (void **) &large, .init = init_large, .is_large = true,
	.elector_ends = end_elector
};
static const SharedPart lasting_part = {
	.name = "lasting", .size = 300, .memory = (void **) &lasting, .init = init_lasting, .is_lasting = true
};
static const SharedPart lasting_plain_part = {
	.name = "lasting, too", .size = 300, .memory = (void **) &lasting_plain, .is_lasting = true
};

static const SharedPart *const parts[] = {
	&event_number_part, &lasting_part, &lasting_plain_part,
	&shared_state_part, &shared_elections_part, &events_part,
	&plain_part, &per_backend_part, &large_part
};

static bool is_out_of_mappings;

extern void *__real_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
extern void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);

void *
__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
	errno = ENOMEM;
	return is_out_of_mappings ? MAP_FAILED : __real_mmap(address, size, protection, flags, file, offset);
}

static int	nrequests;
static int	nstartups;

static void
request_of_other_library(void)
{
	nrequests++;
	RequestAddinShmemSpace(1);
}

static void
startup_of_other_library(void)
{
	nstartups++;
}

static void
install(void)
{
	shmem_request_hook = request_of_other_library;
	shmem_startup_hook = startup_of_other_library;
	shared_state_install(parts, lengthof(parts));
}

static int
set_up(void **unused)
{
	pg_at_moment = NULL;
	now_ns = START_NS;
	pg_wall_clock = 5000;
	nrequests = nstartups = ninits = nbegun = nended = 0;
	is_out_of_mappings = false;
	memset(&pg_error, 0, sizeof(pg_error));
	install();
	pg_start_memory('!');
	pg_be(0);
	(void) pg_was_woken(0);
	return 0;
}

static void
test_memory_is_made(void **unused)
{
	Size		size = 1;

	assert_true(shared_state_is_attached());
	assert_int_equal(nrequests, 1);
	assert_int_equal(nstartups, 1);
	assert_int_equal(ninits, 2);
	for (size_t i = 0; i < lengthof(parts); i++)
	{
		if (!parts[i]->is_lasting)
			size += TYPEALIGN(PG_CACHE_LINE_SIZE, parts[i]->size + parts[i]->size_per_backend * MaxBackends);
	}
	assert_int_equal(pg_requested_memory, size);
	/* all is zero, but what is large, which is not touched */
	for (int i = 0; i < 1000; i++)
		assert_int_equal(plain[i], 0);
	for (int i = 0; i < 10 + 100 * MaxBackends; i++)
		assert_int_equal(per_backend[i], 0);
	assert_int_equal(large[0], 'L');
	for (int i = 1; i < 5000; i++)
		assert_int_equal(large[i], '!');
	assert_int_equal(lasting[0], 'l');
	assert_int_equal(lasting[1], 0);
	assert_int_equal(lasting_plain[0], 0);

	/* a crash restart makes all anew but what is lasting */
	plain[0] = lasting[0] = lasting_plain[0] = large[0] = 'x';
	pg_start_memory('?');
	assert_true(plain[0] == 0 && large[0] == 'L' && large[1] == '?');
	assert_true(lasting[0] == 'x' && lasting_plain[0] == 'x');

	/* memory that is there already is left alone */
	plain[0] = large[0] = 'x';
	shmem_startup_hook();
	assert_true(plain[0] == 'x' && large[0] == 'x');
}

static void
test_no_mapping(void **unused)
{
	is_out_of_mappings = true;
	assert_false(pg_try(install));
	assert_int_equal(pg_error.level, FATAL);
	assert_int_equal(pg_error.sqlstate, ERRCODE_OUT_OF_MEMORY);
	assert_string_equal(pg_error.message, "could not map 8 bytes of shared memory for etcd_leader: Cannot allocate memory");
}

/* ---- what is published --------------------------------------------------------------- */

static const char *const names[NSLOTS] = {"alpha", "beta", "gamma"};

static ElectionView
view_of(const char *name, ElectionState state, int64 token)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	strlcpy(view.name, name, sizeof(view.name));
	view.state = state;
	if (state == ELECTION_LEADING || state == ELECTION_DRAINING)
	{
		view.token = token;
		view.deadline_ns = START_NS + token * NSEC_PER_SEC;
	}
	return view;
}

static void
publish(int slot, const char *name, ElectionState state, int64 token)
{
	ElectionView view = view_of(name, state, token);

	shared_state_publish(slot, &view);
}

static int64
token_of(const char *name)
{
	uint64		layout;
	int			slot = shared_state_find(name, &layout);
	int64		token = shared_state_token(slot, layout);

	assert_int_equal(shared_state_is_leader(slot, layout), token != 0);
	return token;
}

static int64
held_token_of(const char *name)
{
	uint64		layout;
	int			slot = shared_state_find(name, &layout);

	return shared_state_held_token(slot, layout);
}

static void
check_nothing(void)
{
	SharedElection election;

	for (int i = 0; i < NSLOTS; i++)
	{
		uint64		layout;

		assert_int_equal(shared_state_find(names[i], &layout), -1);
		assert_false(shared_state_read(i, shared_state_layout(), &election));
		assert_false(shared_state_is_leader(i, shared_state_layout()));
		assert_int_equal(shared_state_held_token(i, shared_state_layout()), 0);
	}
	assert_int_equal(shared_state_next_deadline_ns(), PG_INT64_MAX);
}

static void
test_electors(void **unused)
{
	uint64		change;

	/* there is none */
	assert_false(shared_state_has_elector());
	shared_state_wake_elector();
	for (int i = 0; i < PG_PROCESSES; i++)
		assert_false(pg_was_woken(i));
	check_nothing();

	pg_be(3);
	change = events_change_number();
	shared_state_begin_elector();
	assert_true(events_change_number() > change);
	assert_true(shared_state_has_elector());
	assert_true(shared_state_is_first_elector());
	assert_true(nbegun == 1 && nended == 0);
	pg_be(5);
	shared_state_wake_elector();
	for (int i = 0; i < PG_PROCESSES; i++)
		assert_int_equal(pg_was_woken(i), i == 3);
	publish(0, "alpha", ELECTION_LEADING, 7);
	publish(1, "beta", ELECTION_DRAINING, 8);
	assert_int_equal(token_of("alpha"), 7);

	shared_state_end_elector();
	assert_false(shared_state_has_elector());
	assert_true(nbegun == 1 && nended == 1);
	check_nothing();

	/* the next one, after one that was killed and has withdrawn nothing */
	shared_state_begin_elector();
	publish(0, "alpha", ELECTION_LEADING, 7);
	pg_be(4);
	shared_state_begin_elector();
	assert_false(shared_state_is_first_elector());
	check_nothing();
	shared_state_wake_elector();
	assert_true(pg_was_woken(4));
	assert_int_equal(nbegun, 3);

	/* a crash restart */
	pg_start_memory('!');
	check_nothing();
	shared_state_begin_elector();
	assert_true(shared_state_is_first_elector());
}

/* An elector that ends at once withdraws everything, and changes nothing that others see after that. */
static void
test_leave(void **unused)
{
	char	   *shared_plain = plain;
	char	   *shared_lasting = lasting;
	char	   *own_plain;

	shared_state_begin_elector();
	publish(0, "alpha", ELECTION_LEADING, 7);
	publish(2, "gamma", ELECTION_LEADING, 8);
	plain[1] = lasting[1] = lasting_plain[1] = large[1] = 'x';
	ninits = 0;
	pg_is_out_of_memory = true;
	assert_false(shared_state_leave());
	pg_is_out_of_memory = false;
	assert_int_equal(held_token_of("alpha"), 0);
	assert_int_equal(held_token_of("gamma"), 0);
	assert_true(plain == shared_plain && lasting == shared_lasting);
	assert_true(shared_state_has_elector());

	publish(0, "alpha", ELECTION_LEADING, 7);
	assert_int_equal(held_token_of("alpha"), 7);
	assert_true(shared_state_leave());
	/* its own memory is new, but for what is lasting */
	own_plain = plain;
	assert_true(plain != shared_plain && lasting != shared_lasting);
	assert_int_equal(plain[1], 0);
	assert_int_equal(large[0], 'L');
	assert_int_equal(large[1], 0);
	assert_int_equal(per_backend[10 + 100 * MaxBackends - 1], 0);
	assert_true(lasting[1] == 'x' && lasting_plain[1] == 'x');
	assert_int_equal(ninits, 1);
	assert_false(shared_state_has_elector());
	publish(0, "alpha", ELECTION_LEADING, 9);
	shared_state_end_elector();

	/* another process */
	shmem_startup_hook();
	assert_true(plain == shared_plain && plain != own_plain);
	assert_int_equal(held_token_of("alpha"), 0);
}

/* ---- readers --------------------------------------------------------------------------- */

/* The deadline, the token and the state. */
static void
test_leads(void **unused)
{
	uint64		layout;
	int			slot;
	SharedElection election;

	shared_state_begin_elector();
	publish(1, "beta", ELECTION_WAITING, 0);
	assert_int_equal(token_of("beta"), 0);
	publish(1, "beta", ELECTION_LEADING, 7);
	assert_int_equal(token_of("beta"), 7);
	assert_int_equal(held_token_of("beta"), 7);
	assert_int_equal(token_of("alpha"), 0);
	assert_int_equal(shared_state_find("beta", &layout), 1);
	assert_int_equal(layout, shared_state_layout());
	assert_true(shared_state_read(1, layout, &election));
	assert_int_equal(election.deadline_ns, START_NS + 7 * NSEC_PER_SEC);
	assert_string_equal(election.view.name, "beta");
	assert_int_equal(election.view.token, 7);

	publish(1, "beta", ELECTION_DRAINING, 7);
	assert_int_equal(token_of("beta"), 0);
	assert_int_equal(held_token_of("beta"), 7);
	assert_true(shared_state_read(1, layout, &election));
	assert_int_equal(election.deadline_ns, START_NS + 7 * NSEC_PER_SEC);
	publish(1, "beta", ELECTION_LEADING, 7);
	assert_int_equal(token_of("beta"), 7);

	/* the last nanosecond */
	now_ns = START_NS + 7 * NSEC_PER_SEC - 1;
	assert_int_equal(token_of("beta"), 7);
	now_ns++;
	assert_int_equal(token_of("beta"), 0);
	assert_int_equal(held_token_of("beta"), 0);
	now_ns = START_NS;

	publish(1, "beta", ELECTION_WAITING, 0);
	assert_int_equal(held_token_of("beta"), 0);
	assert_true(shared_state_read(1, layout, &election));
	assert_int_equal(election.deadline_ns, 0);

	/* no slot, and a layout of before */
	assert_false(shared_state_read(-1, layout, &election));
	assert_false(shared_state_is_leader(-1, layout));
	assert_int_equal(shared_state_token(-1, layout), 0);
	assert_int_equal(shared_state_held_token(-1, layout), 0);
	publish(0, "alpha", ELECTION_LEADING, 9);
	slot = shared_state_find("alpha", &layout);
	assert_int_equal(slot, 0);
	assert_true(shared_state_is_leader(slot, layout));
	publish(2, "gamma", ELECTION_WAITING, 0);
	assert_false(shared_state_is_leader(slot, layout));
	assert_int_equal(shared_state_held_token(slot, layout), 0);
	assert_false(shared_state_read(slot, layout, &election));
	assert_int_equal(token_of("alpha"), 9);
}

static void
test_next_deadline(void **unused)
{
	shared_state_begin_elector();
	publish(0, "alpha", ELECTION_LEADING, 9);
	publish(1, "beta", ELECTION_DRAINING, 7);
	publish(2, "gamma", ELECTION_LEADING, 8);
	assert_int_equal(shared_state_next_deadline_ns(), START_NS + 7 * NSEC_PER_SEC);
	now_ns = START_NS + 7 * NSEC_PER_SEC - 1;
	assert_int_equal(shared_state_next_deadline_ns(), START_NS + 7 * NSEC_PER_SEC);
	now_ns++;
	assert_int_equal(shared_state_next_deadline_ns(), START_NS + 8 * NSEC_PER_SEC);
	publish(2, "gamma", ELECTION_WAITING, 0);
	assert_int_equal(shared_state_next_deadline_ns(), START_NS + 9 * NSEC_PER_SEC);
}

/* Since when this leader is seen. */
static void
test_leader_since(void **unused)
{
	static const struct
	{
		const char *name;
		bool		has_leader;
		int64		revision;
		TimestampTz since;
	}			steps[] = {
		{"alpha", false, 0, 0},
		{"alpha", true, 5, 5002},
		{"alpha", true, 5, 5002},
		{"alpha", true, 6, 5004},
		{"alpha", false, 6, 0},
		{"alpha", true, 6, 5006},
		{"beta", true, 6, 5007},
		{"beta", true, 6, 5007},
	};

	shared_state_begin_elector();
	for (size_t i = 0; i < lengthof(steps); i++)
	{
		ElectionView view = view_of(steps[i].name, ELECTION_WAITING, 0);
		SharedElection election;

		pg_wall_clock = 5001 + i;
		view.has_leader = steps[i].has_leader;
		view.leader_revision = steps[i].revision;
		shared_state_publish(0, &view);
		assert_true(shared_state_read(0, shared_state_layout(), &election));
		assert_int_equal(election.leader_since, steps[i].since);
	}
}

/* Sessions that wait are woken for a leadership that begins, drains or ends, and for a name. */
static void
test_wakes(void **unused)
{
	static const struct
	{
		const char *name;
		ElectionState state;
		int64		token;
		bool		wakes;
	}			steps[] = {
		{"alpha", ELECTION_JOINING, 0, true},
		{"alpha", ELECTION_WAITING, 0, false},
		{"alpha", ELECTION_LEADING, 7, true},
		{"alpha", ELECTION_LEADING, 7, false},
		{"alpha", ELECTION_DRAINING, 7, true},
		{"alpha", ELECTION_DRAINING, 7, false},
		{"alpha", ELECTION_LEADING, 7, true},
		{"alpha", ELECTION_DRAINING, 7, true},
		{"alpha", ELECTION_WAITING, 0, true},
		{"alpha", ELECTION_WAITING, 0, false},
		{"beta", ELECTION_WAITING, 0, true},
	};

	shared_state_begin_elector();
	for (size_t i = 0; i < lengthof(steps); i++)
	{
		uint64		change = events_change_number();

		publish(0, steps[i].name, steps[i].state, steps[i].token);
		assert_int_equal(events_change_number() != change, steps[i].wakes);
	}
}

static void
test_contact(void **unused)
{
	static SharedContact contact;
	static SharedContact read;
	static SharedEndpoints endpoints;
	static SharedEndpoints read_endpoints;

	for (int i = 1; i < 4; i++)
	{
		contact.ttl_ms = i;
		endpoints.nendpoints = i;
		shared_state_publish_contact(&contact);
		shared_state_publish_endpoints(&endpoints);
		shared_state_read_contact(&read);
		shared_state_read_endpoints(&read_endpoints);
		assert_int_equal(read.ttl_ms, i);
		assert_int_equal(read_endpoints.nendpoints, i);
	}
}

/* ---- readers while the elector publishes ---------------------------------------------------- */

/* What is in slot 1; in slot 0 is another election. */
static const struct
{
	const char *name;
	ElectionState state;
	int64		token;
	int			deadline_s;
}			worlds[] = {
	{"beta", ELECTION_WAITING, 0, 0},
	{"beta", ELECTION_LEADING, 7, 7},
	{"beta", ELECTION_DRAINING, 7, 7},
	{"beta", ELECTION_LEADING, 8, 8},
	{"beta", ELECTION_DRAINING, 8, 8},
	{"gamma", ELECTION_WAITING, 0, 0},
	{"gamma", ELECTION_LEADING, 9, 9},
	{"gamma", ELECTION_DRAINING, 9, 9},
	{"gamma", ELECTION_LEADING, 7, 9},
	{"", ELECTION_UNUSED, 0, 0},
};

static int	next_world;
static int	publish_at;			/* the moment with that number */
static int	nmoments;

static void
publish_world(int world)
{
	ElectionView view = view_of(worlds[world].name, worlds[world].state, worlds[world].token);

	if (view.token != 0)
		view.deadline_ns = START_NS + worlds[world].deadline_s * NSEC_PER_SEC;
	shared_state_publish(1, &view);
}

static void
publish_next(void)
{
	if (++nmoments != publish_at)
		return;
	pg_at_moment = NULL;
	publish_world(next_world);
}

static bool
leads(int world, const char *name)
{
	return strcmp(worlds[world].name, name) == 0 && worlds[world].token != 0 &&
		START_NS + worlds[world].deadline_s * NSEC_PER_SEC > now_ns;
}

static bool
is_open(int world, const char *name)
{
	return leads(world, name) && worlds[world].state == ELECTION_LEADING;
}

/* May a reader of "beta" get that token? */
static bool
may_get(int64 token, int from, int to, bool (*is) (int world, const char *name))
{
	if (token == 0)				/* unless nothing that it reads has changed */
		return !(is(from, "beta") && is(to, "beta") && worlds[from].token == worlds[to].token);
	return (is(from, "beta") && worlds[from].token == token) || (is(to, "beta") && worlds[to].token == token);
}

/* What a reader gets that has looked for "beta" before. */
static void
read_all(int kind, int from, int to, int slot, uint64 layout)
{
	SharedElection election;
	uint64		new_layout;

	switch (kind)
	{
		case 0:
			assert_true(may_get(shared_state_token(slot, layout), from, to, is_open));
			break;
		case 1:
			assert_true(may_get(shared_state_held_token(slot, layout), from, to, leads));
			break;
		case 2:
			if (shared_state_is_leader(slot, layout))
				assert_true(is_open(from, "beta") || is_open(to, "beta"));
			else
				assert_false(is_open(from, "beta") && is_open(to, "beta") && worlds[from].token == worlds[to].token);
			break;
		case 3:
			if (shared_state_read(slot, layout, &election))
			{
				int			world = election.view.token == worlds[from].token && election.view.state == worlds[from].state ? from : to;

				assert_string_equal(election.view.name, "beta");
				assert_string_equal(worlds[world].name, "beta");
				assert_int_equal(election.view.state, worlds[world].state);
				assert_int_equal(election.view.token, worlds[world].token);
				if (election.deadline_ns != 0)
				{
					assert_true(worlds[world].token != 0);
					assert_int_equal(election.deadline_ns, START_NS + worlds[world].deadline_s * NSEC_PER_SEC);
				}
			}
			else
				assert_false(strcmp(worlds[from].name, "beta") == 0 && strcmp(worlds[to].name, "beta") == 0);
			break;
		default:
			slot = shared_state_find("beta", &new_layout);
			pg_at_moment = NULL;
			if (slot >= 0)
			{
				assert_int_equal(slot, 1);
				assert_true(strcmp(worlds[from].name, "beta") == 0 || strcmp(worlds[to].name, "beta") == 0);
				/* a layout that is in force is that of the name */
				if (new_layout == shared_state_layout())
					assert_true(shared_state_read(slot, new_layout, &election) && strcmp(election.view.name, "beta") == 0);
			}
			else if (new_layout == shared_state_layout())
				assert_string_not_equal(worlds[nmoments >= publish_at ? to : from].name, "beta");
	}
}

static void
test_publish_while_reading(void **unused)
{
	int			nruns = 0;

	shared_state_begin_elector();
	publish(0, "alpha", ELECTION_LEADING, 4);
	for (size_t i = 0; i < 5 * lengthof(worlds) * lengthof(worlds); i++)
	{
		int			from = i / 5 % lengthof(worlds);
		int			to = i / 5 / lengthof(worlds);

		nmoments = 0;
		for (publish_at = 1; nmoments >= publish_at - 1; publish_at++)
		{
			uint64		layout;
			int			slot;

			publish_world(from);
			slot = shared_state_find("beta", &layout);
			nmoments = 0;
			next_world = to;
			pg_at_moment = publish_next;
			read_all(i % 5, from, to, slot, layout);
			pg_at_moment = NULL;
			nruns++;
		}
	}
	assert_true(nruns > 2000);
}

/* What readers see at each moment of the elector. */
static int	old_world;
static int	nreads;

static void
read_between(void)
{
	void		(*again) (void) = pg_at_moment;

	pg_at_moment = NULL;
	nreads++;
	for (int i = 1; i < NSLOTS; i++)
	{
		const char *name = names[i];
		SharedElection election;
		uint64		layout;
		int			slot = shared_state_find(name, &layout);
		bool		was_led = leads(old_world, name);
		int64		token = shared_state_held_token(slot, layout);

		/* it does not lead under a token and a deadline of two leaderships */
		if (token != 0)
			assert_true((was_led && token == worlds[old_world].token) ||
						(leads(next_world, name) && token == worlds[next_world].token));
		else
			assert_false(was_led && leads(next_world, name) && worlds[old_world].token == worlds[next_world].token);
		token = shared_state_token(slot, layout);
		assert_int_equal(shared_state_is_leader(slot, layout), token != 0);
		if (token != 0)
			assert_true((is_open(old_world, name) && token == worlds[old_world].token) ||
						(is_open(next_world, name) && token == worlds[next_world].token));
		else
			assert_false(is_open(old_world, name) && is_open(next_world, name) &&
						 worlds[old_world].token == worlds[next_world].token);
		if (shared_state_read(slot, layout, &election) && election.deadline_ns > now_ns)
			assert_true((leads(old_world, name) && election.view.token == worlds[old_world].token) ||
						(leads(next_world, name) && election.view.token == worlds[next_world].token));
		/* another election keeps its leadership */
		slot = shared_state_find("alpha", &layout);
		if (slot >= 0)
			assert_true(shared_state_token(slot, layout) == 40);
	}
	pg_at_moment = again;
}

static void
test_read_while_publishing(void **unused)
{
	shared_state_begin_elector();
	publish(0, "alpha", ELECTION_LEADING, 40);
	for (int ms = 0; ms <= 9500; ms += ms == 0 ? 7500 : 1000)
	{
		for (size_t i = 0; i < lengthof(worlds) * lengthof(worlds); i++)
		{
			old_world = i % lengthof(worlds);
			next_world = i / lengthof(worlds);
			publish_world(old_world);
			now_ns = START_NS + ms * NSEC_PER_MSEC;
			pg_at_moment = read_between;
			publish_world(next_world);
			pg_at_moment = NULL;
			now_ns = START_NS;
		}
	}
	assert_true(nreads > 2000);
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		A_TEST(test_memory_is_made),
		A_TEST(test_no_mapping),
		A_TEST(test_electors),
		A_TEST(test_leave),
		A_TEST(test_leads),
		A_TEST(test_next_deadline),
		A_TEST(test_leader_since),
		A_TEST(test_wakes),
		A_TEST(test_contact),
		A_TEST(test_publish_while_reading),
		A_TEST(test_read_while_publishing),
	};

	return cmocka_run_group_tests_name("shared_state", tests, NULL, NULL);
}
