/*-------------------------------------------------------------------------
 *
 * supervised_worker_test.c
 *	  Tests of shared/supervised_worker.c: a background worker runs as long as the settings
 *	  want it, and there is one.
 *
 * Process 0 is the elector.  The test is the postmaster, and the worker with the PID 200.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "shared/state.h"
#include "shared/supervised_worker.h"
#include "small_server.h"

#define START_NS	(1000 * NSEC_PER_SEC)
#define PID			200

TimestampTz PgReloadTime;

/* ---- the postmaster -------------------------------------------------------------------- */

struct BackgroundWorkerHandle
{
	int			number;
};

static int	nregistered;
static int	nhandles;
static bool has_room;
static BgwHandleStatus status;
static int	nsignals;
static int	nwakes;

bool
RegisterDynamicBackgroundWorker(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	nregistered++;
	assert_string_equal(worker->bgw_type, "etcd_leader hooks");
	assert_string_equal(worker->bgw_name, "etcd_leader hooks");
	assert_string_equal(worker->bgw_function_name, "hooks_main");
	assert_string_equal(worker->bgw_library_name, "etcd_leader");
	assert_int_equal(worker->bgw_start_time, BgWorkerStart_RecoveryFinished);
	assert_int_equal(worker->bgw_restart_time, BGW_NEVER_RESTART);
	if (!has_room)
		return false;
	*handle = palloc(sizeof(BackgroundWorkerHandle));
	(*handle)->number = nregistered;
	nhandles++;
	return true;
}

BgwHandleStatus
GetBackgroundWorkerPid(BackgroundWorkerHandle *handle, pid_t *pid)
{
	assert_non_null(handle);
	*pid = status == BGWH_STARTED ? PID : 0;
	return status;
}

extern int	__wrap_kill(pid_t pid, int signal);
extern void __real_pfree(void *pointer);
extern void __wrap_pfree(void *pointer);

int
__wrap_kill(pid_t pid, int signal)
{
	assert_int_equal(pid, PID);
	assert_int_equal(signal, SIGHUP);
	nsignals++;
	return 0;
}

void
__wrap_pfree(void *pointer)
{
	assert_non_null(pointer);
	nhandles--;
	__real_pfree(pointer);
}

void
shared_state_wake_elector(void)
{
	nwakes++;
}

/* ---- the worker -------------------------------------------------------------------------- */

static SupervisedWorker worker;
static pg_atomic_uint32 claimed;

static int
set_up(void **unused)
{
	memset(&worker, 0, sizeof(worker));
	worker.type = "etcd_leader hooks";
	worker.function = "hooks_main";
	worker.start_time = BgWorkerStart_RecoveryFinished;
	pg_atomic_init_u32(&claimed, 0);
	nregistered = nhandles = nsignals = nwakes = 0;
	has_room = true;
	status = BGWH_NOT_YET_STARTED;
	now_ns = START_NS;
	pg_wall_clock = 5000;
	PgReloadTime = 4000;
	memset(&pg_error, 0, sizeof(pg_error));
	pg_be(0);
	return 0;
}

static int64
supervise(bool is_wanted)
{
	return worker_supervise(&worker, is_wanted, &claimed);
}

static void
begin_worker(void)
{
	status = BGWH_STARTED;
	assert_true(worker_claim(&claimed));
}

static void
end_worker(void)
{
	pg_end(0);
	status = BGWH_STOPPED;
}

static int
after_ms(int64 due_ns)
{
	return (int) ((due_ns - now_ns) / NSEC_PER_MSEC);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void
test_claim(void **unused)
{
	begin_worker();
	assert_int_equal(nwakes, 1);
	assert_int_equal(pg_atomic_read_u32(&claimed), 1);
	/* another one has to end */
	assert_false(worker_claim(&claimed));
	assert_int_equal(nwakes, 1);
	assert_int_equal(pg_exit_callbacks(), 1);
	end_worker();
	assert_int_equal(pg_atomic_read_u32(&claimed), 0);
	assert_int_equal(nwakes, 2);
	assert_true(worker_claim(&claimed));
	pg_end(0);
}

/* It is started when it is wanted, and not twice. */
static void
test_start(void **unused)
{
	assert_int_equal(supervise(false), PG_INT64_MAX);
	assert_int_equal(nregistered, 0);
	assert_true(supervise(true) < PG_INT64_MAX);
	assert_int_equal(nregistered, 1);
	/* recovery may take longer than any back-off */
	now_ns += 3600 * NSEC_PER_SEC;
	assert_int_equal(supervise(true), PG_INT64_MAX);
	assert_int_equal(nregistered, 1);
	begin_worker();
	now_ns += 3600 * NSEC_PER_SEC;
	assert_int_equal(supervise(true), PG_INT64_MAX);
	assert_int_equal(nregistered, 1);
	/* the next elector finds it, and has no handle of it */
	memset(&worker.handle, 0, sizeof(worker.handle));
	worker.due_ns = 0;
	worker.registered_at = 0;
	assert_int_equal(supervise(true), PG_INT64_MAX);
	assert_int_equal(nregistered, 1);
	assert_int_equal(nsignals, 0);
	end_worker();
}

/* One that ends at once is started again after a pause that doubles; one that has run, at once. */
static void
test_back_off(void **unused)
{
	static const int pauses_s[] = {1, 2, 4, 8, 16, 32, 60, 60};
	int64		due_ns = 0;

	for (size_t i = 0; i < lengthof(pauses_s); i++)
	{
		due_ns = supervise(true);
		assert_int_equal(nregistered, i + 1);
		assert_int_equal(nhandles, 1);
		assert_int_equal(after_ms(due_ns), pauses_s[i] * 1000);
		begin_worker();
		end_worker();
		now_ns = due_ns - 1;
		assert_int_equal(supervise(true), due_ns);
		assert_int_equal(nregistered, i + 1);
		now_ns = due_ns;
	}
	/* it ran for a second after the pause */
	begin_worker();
	now_ns = due_ns + NSEC_PER_SEC + 1;
	end_worker();
	due_ns = supervise(true);
	assert_int_equal(nregistered, lengthof(pauses_s) + 1);
	assert_int_equal(after_ms(due_ns), 1000);
	now_ns = due_ns + NSEC_PER_SEC;
	status = BGWH_STOPPED;
	assert_int_equal(after_ms(supervise(true)), 2000);

	/* who does not want it, and then wants it again, waits for nothing */
	assert_int_equal(supervise(false), PG_INT64_MAX);
	assert_int_equal(after_ms(supervise(true)), 1000);
	assert_int_equal(nregistered, lengthof(pauses_s) + 3);
}

/* There is no free slot, which is reported once. */
static void
test_no_room(void **unused)
{
	has_room = false;
	for (int i = 0; i < 3; i++)
	{
		int64		due_ns = supervise(true);

		assert_int_equal(nregistered, i + 1);
		assert_int_equal(pg_has_reported(WARNING, "could not start the background worker \"etcd_leader hooks\""), i == 0);
		now_ns = due_ns;
	}
	has_room = true;
	now_ns = supervise(true);
	assert_int_equal(pg_error.level, 0);
	begin_worker();
	(void) supervise(true);
	end_worker();
	has_room = false;
	(void) supervise(true);
	assert_int_equal(nhandles, 0);
	assert_true(pg_has_reported(WARNING, "could not start the background worker \"etcd_leader hooks\""));
	assert_int_equal(nsignals, 0);
	/* another elector has started it meanwhile: this one has no handle of it */
	PgReloadTime = 6000;
	begin_worker();
	(void) supervise(true);
	assert_int_equal(nsignals, 0);
	end_worker();
}

/* A reload that came while it began, and that it may have dropped, is repeated once. */
static void
test_reload_while_it_begins(void **unused)
{
	static const struct
	{
		TimestampTz reloaded_at;
		bool		has_ended;
		int			nsignals;
	}			cases[] = {
		{4999, false, 0}, {5000, false, 1}, {5001, false, 1}, {5001, true, 0}
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		(void) set_up(NULL);
		(void) supervise(true);
		pg_wall_clock += 1000;
		PgReloadTime = cases[i].reloaded_at;
		begin_worker();
		if (cases[i].has_ended)
			status = BGWH_STOPPED;
		(void) supervise(true);
		assert_int_equal(nsignals, cases[i].nsignals);
		/* it gets the next one itself */
		PgReloadTime = 7000;
		status = BGWH_STARTED;
		(void) supervise(true);
		assert_int_equal(nsignals, cases[i].nsignals);
		end_worker();
	}
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		A_TEST(test_claim),
		A_TEST(test_start),
		A_TEST(test_back_off),
		A_TEST(test_no_room),
		A_TEST(test_reload_while_it_begins),
	};

	return cmocka_run_group_tests_name("supervised_worker", tests, NULL, NULL);
}
