/*-------------------------------------------------------------------------
 *
 * mailbox_test.c
 *	  Tests of shared/mailbox.c: how backends ask the elector.
 *
 * Process 0 is the elector, the others are backends.  What the elector and other backends
 * do happens while a backend sleeps, or at a look whether there is an elector.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "miscadmin.h"

#include "base/clock.h"
#include "shared/events.h"
#include "shared/mailbox.h"
#include "shared/state.h"
#include "small_server.h"

#define NORMAL_PLACES	MAILBOX_PAGE_PLACE
/* The first places are for commands that end soon. */
#define RESERVED_PLACES	4

static const SharedPart *const parts[] = {
	&event_number_part, &shared_state_part, &shared_elections_part, &events_part,
	&mailbox_part, &mailbox_page_part
};


/* ---- the world ---------------------------------------------------------------------- */

static SharedReply answer;
static SharedRequest request;
static SharedReply reply;
static char page[SHARED_PAGE_SIZE];
static jmp_buf end_of_process;

/* What happens before or after the look for an elector with that number, from 1 on. */
static int	nlooks;
static int	act_before;
static int	act_after;
static void (*act) (void);

static void
do_act(void)
{
	int			looker = MyProcPid - 100;

	act();
	pg_be(looker);
}

extern bool __real_shared_state_has_elector(void);
extern bool __wrap_shared_state_has_elector(void);

bool
__wrap_shared_state_has_elector(void)
{
	bool		result;

	if (++nlooks == act_before)
		do_act();
	result = __real_shared_state_has_elector();
	if (nlooks == act_after)
		do_act();
	return result;
}

static int
set_up(void **unused)
{
	memset(&pg_error, 0, sizeof(pg_error));
	pg_others = NULL;
	act_before = act_after = 0;
	pg_nsleeps = 0;
	shmem_request_hook = NULL;
	shmem_startup_hook = NULL;
	now_ns = 1000 * NSEC_PER_SEC;
	shared_state_install(parts, lengthof(parts));
	pg_start_memory(0);
	pg_be(0);
	shared_state_begin_elector();
	memset(&answer, 0, sizeof(answer));
	memset(&request, 0, sizeof(request));
	memset(&reply, 0x5a, sizeof(reply));
	pg_be(1);
	return 0;
}

/* Nobody is left on a wait list or with something to do at its end. */
static int
tear_down(void **unused)
{
	for (int i = 0; i < PG_PROCESSES; i++)
		assert_false(pg_is_on_wait_list(i));
	assert_int_equal(pg_exit_callbacks(), 0);
	return 0;
}

static int64
in_ms(int ms)
{
	return now_ns / 1000 + ms * INT64CONST(1000);
}

/* The backend asks, and has so many milliseconds (-1: no limit). */
static bool
ask(SharedCommand command, int ms)
{
	request.command = command;
	return mailbox_ask(&request, ms < 0 ? PG_INT64_MAX : in_ms(ms), &reply);
}

/* ---- the elector -------------------------------------------------------------------- */

/* The place of the one request that waits; -1: there is none. */
static int
take(SharedRequest *taken)
{
	int			found = -1;

	pg_be(0);
	for (int i = 0; i < MAILBOX_SIZE; i++)
	{
		SharedRequest other;

		if (!mailbox_take(i, found < 0 ? taken : &other))
			continue;
		assert_int_equal(found, -1);
		found = i;
		assert_true(mailbox_is_taken(i));
		assert_false(mailbox_is_abandoned(i));
	}
	return found;
}

static int	taken_place;
static SharedRequest taken;

static void
take_one(void)
{
	taken_place = take(&taken);
	assert_true(taken_place >= 0);
}

static void
take_and_reply(void)
{
	assert_true(pg_was_woken(0));
	take_one();
	mailbox_reply(taken_place, &answer);
	assert_false(mailbox_is_taken(taken_place));
}

static void
end_elector(void)
{
	pg_be(0);
	shared_state_end_elector();
}

static void
take_and_end(void)
{
	take_one();
	end_elector();
}

/* The elector was killed, and the next one begins. */
static void
take_and_begin_anew(void)
{
	take_one();
	pg_be(2);
	shared_state_begin_elector();
}

/* ---- requests and replies ------------------------------------------------------------ */

static void
test_reply(void **unused)
{
	pg_others = take_and_reply;
	for (int i = 0; i < 3 * MAILBOX_SIZE; i++)
	{
		request.drain_ms = 70 + i;
		snprintf(request.election, sizeof(request.election), "election %d", i);
		answer.revision = 90 + i;
		assert_true(ask(i % 2 ? COMMAND_RESIGN : COMMAND_VERIFY, -1));
		assert_int_equal(reply.revision, 90 + i);
		assert_memory_equal(&taken, &request, sizeof(request));
		/* the place is free again */
		assert_int_equal(taken_place, i % 2 ? 0 : RESERVED_PLACES);
	}
	assert_int_equal(pg_nsleeps, 3 * MAILBOX_SIZE);
	assert_int_equal(take(&taken), -1);
}

static void
take_and_fail(void)
{
	take_one();
	mailbox_reply_failure(taken_place, REPLY_FAILED, "etcd is away");
}

static void
test_failure(void **unused)
{
	pg_others = take_and_fail;
	assert_true(ask(COMMAND_CAMPAIGN, 1000));
	assert_int_equal(reply.kind, REPLY_FAILED);
	assert_string_equal(reply.error, "etcd is away");
	assert_int_equal(reply.revision, 0);
}

/* The elector cannot do it now, and takes it again later. */
static void
put_back_first(void)
{
	take_one();
	if (pg_nsleeps == 1)
	{
		mailbox_put_back(taken_place);
		assert_false(mailbox_is_taken(taken_place));
	}
	else
		mailbox_reply(taken_place, &answer);
	now_ns -= 5 * NSEC_PER_MSEC;	/* time is left after the time-out of this sleep */
}

static void
test_put_back(void **unused)
{
	pg_others = put_back_first;
	answer.revision = 3;
	assert_true(ask(COMMAND_PROCLAIM, 1000));
	assert_int_equal(pg_nsleeps, 2);
	assert_int_equal(reply.revision, 3);
}

/* ---- no elector ------------------------------------------------------------------------ */

static void
check_no_elector(void)
{
	assert_true(ask(COMMAND_RESIGN, -1));
	assert_int_equal(reply.kind, REPLY_NO_ELECTOR);
	pg_others = NULL;
	act_after = 0;
	pg_be(0);
	shared_state_begin_elector();
	pg_be(1);
	/* the place is free */
	for (int i = 0; i < MAILBOX_SIZE; i++)
	{
		assert_false(mailbox_is_taken(i));
		assert_false(mailbox_take(i, &taken));
	}
	assert_false(ask(COMMAND_RESIGN, 1));
}

static void
test_no_elector(void **unused)
{
	end_elector();
	pg_be(1);
	assert_true(ask(COMMAND_RESIGN, -1));
	assert_int_equal(reply.kind, REPLY_NO_ELECTOR);
	assert_string_equal(reply.error, "");
	assert_int_equal(pg_nsleeps, 0);
}

static void
test_elector_ends(void **unused)
{
	void		(*const ends[]) (void) = {end_elector, take_and_end, take_and_begin_anew};

	for (size_t i = 0; i < lengthof(ends); i++)
	{
		/* a reply of before is not taken for the one to this request */
		answer.kind = REPLY_CHECKED;
		pg_others = take_and_reply;
		assert_true(ask(COMMAND_RESIGN, -1));
		assert_int_equal(reply.kind, REPLY_CHECKED);
		/* it has ended just before the request was there, and does not see it */
		nlooks = 0;
		act_after = 1;
		act = end_elector;
		pg_others = NULL;
		check_no_elector();
		pg_others = ends[i];
		check_no_elector();
	}
}

/* The reply counts, although the elector has ended before the backend has seen it. */
static void
reply_and_end(void)
{
	take_and_reply();
	end_elector();
}

static void
test_reply_and_end(void **unused)
{
	nlooks = 0;
	act_before = 2;
	act = reply_and_end;
	answer.kind = REPLY_CHECKED;
	assert_true(ask(COMMAND_RESIGN, -1));
	assert_int_equal(reply.kind, REPLY_CHECKED);
}

/* A place that was given up is free when the elector ends. */
static void
test_end_frees_places(void **unused)
{
	pg_others = take_one;
	assert_false(ask(COMMAND_RESIGN, 1));
	assert_true(mailbox_is_abandoned(0));
	end_elector();
	assert_false(mailbox_is_taken(0));
}

/* An elector that has ended, and still has the reply to give, changes nothing. */
static void
reply_late(void)
{
	take_one();
	shared_state_end_elector();
	answer.kind = REPLY_CHECKED;
	mailbox_reply(taken_place, &answer);
	mailbox_reply(5, &answer);
}

static void
test_late_reply(void **unused)
{
	pg_others = reply_late;
	check_no_elector();
	/* nor is a request that waits answered before it was taken */
	pg_others = NULL;
	mailbox_reply(0, &answer);
	assert_false(ask(COMMAND_RESIGN, 1));
}

/* ---- backends that give up -------------------------------------------------------------- */

/* The place is given up, and the elector, which has it, says what comes of it. */
static void
check_abandoned(void)
{
	assert_true(mailbox_is_abandoned(taken_place));
	assert_true(mailbox_is_taken(taken_place));
	pg_be(0);
	mailbox_reply(taken_place, &answer);
	assert_false(mailbox_is_abandoned(taken_place));
	assert_false(mailbox_is_taken(taken_place));
	pg_be(1);
	pg_others = take_and_reply;
	(void) pg_was_woken(0);
	assert_true(ask(COMMAND_RESIGN, 1000));
	assert_int_equal(taken_place, 0);
}

static void
test_timeout(void **unused)
{
	int64		began_ns = now_ns;
	SharedReply before = reply;

	assert_false(ask(COMMAND_RESIGN, 500));
	assert_true(now_ns - began_ns >= 500 * NSEC_PER_MSEC && now_ns - began_ns < 502 * NSEC_PER_MSEC);
	assert_memory_equal(&reply, &before, sizeof(reply));
	assert_int_equal(take(&taken), -1);
	pg_be(1);

	pg_others = take_one;
	assert_false(ask(COMMAND_RESIGN, 500));
	check_abandoned();

	/* the elector puts it back, and so frees the place */
	pg_others = take_one;
	assert_false(ask(COMMAND_RESIGN, 500));
	assert_true(mailbox_is_abandoned(taken_place));
	mailbox_put_back(taken_place);
	assert_false(mailbox_is_taken(taken_place));
	assert_int_equal(take(&taken), -1);
	pg_be(1);

	/* the time is over before it sleeps */
	pg_nsleeps = 0;
	assert_false(ask(COMMAND_RESIGN, 0));
	assert_int_equal(pg_nsleeps, 0);
	assert_int_equal(take(&taken), -1);
}

static void
cancel(void)
{
	pg_is_cancelled = true;
}

static void
take_and_cancel(void)
{
	take_one();
	pg_is_cancelled = true;
}

static void
reply_and_cancel(void)
{
	take_and_reply();
	pg_is_cancelled = true;
}

static void
ask_without_limit(void)
{
	(void) ask(COMMAND_RESIGN, -1);
}

static void
test_cancelled(void **unused)
{
	pg_others = cancel;
	assert_false(pg_try(ask_without_limit));
	assert_int_equal(pg_error.sqlstate, ERRCODE_QUERY_CANCELED);
	assert_int_equal(pg_exit_callbacks(), 0);
	assert_int_equal(take(&taken), -1);
	pg_be(1);

	/* the reply is in the place */
	pg_others = reply_and_cancel;
	(void) pg_was_woken(0);
	pg_be(1);
	assert_false(pg_try(ask_without_limit));
	pg_be(1);
	pg_others = take_and_cancel;
	assert_false(pg_try(ask_without_limit));
	assert_int_equal(taken_place, 0);
	check_abandoned();
}

/* pg_terminate_backend() */
static void
take_and_terminate(void)
{
	take_one();
	pg_be(1);
	PG_exception_stack = NULL;
	pg_end(1);
	longjmp(end_of_process, 1);
}

static void
test_terminated(void **unused)
{
	pg_others = take_and_terminate;
	if (setjmp(end_of_process) == 0)
	{
		ask_without_limit();
		fail();
	}
	check_abandoned();
}

/* ---- places ----------------------------------------------------------------------------- */

static void
take_any(void)
{
	taken_place = take(&taken);
}

/*
 * Backends ask, the elector takes their requests, and they give up, until one finds no
 * place.  How many have found one.
 */
static int
fill(SharedCommand command)
{
	pg_others = take_any;
	for (int n = 0;; n++)
	{
		assert_false(ask(command, 1));
		if (taken_place < 0)
			return n;
	}
}

static void
free_all(void)
{
	pg_be(0);
	for (int i = 0; i < MAILBOX_SIZE; i++)
		mailbox_reply(i, &answer);
	pg_be(1);
}

/* Requests that the elector may keep for long leave places for others. */
static void
test_places(void **unused)
{
	static const SharedCommand slow[] = {COMMAND_VERIFY, COMMAND_TRANSFER, COMMAND_CHECK};
	static const SharedCommand fast[] = {COMMAND_RESIGN, COMMAND_CAMPAIGN, COMMAND_PROCLAIM, COMMAND_CANDIDATES};

	for (size_t i = 0; i < lengthof(slow); i++)
	{
		assert_int_equal(fill(slow[i]), NORMAL_PLACES - RESERVED_PLACES);
		assert_int_equal(fill(fast[i]), RESERVED_PLACES);
		assert_int_equal(fill(COMMAND_GET), 1);
		free_all();
	}
	for (size_t i = 0; i < lengthof(fast); i++)
	{
		assert_int_equal(fill(fast[i]), NORMAL_PLACES);
		assert_int_equal(fill(slow[0]), 0);
		assert_int_equal(fill(COMMAND_GET), 1);
		free_all();
	}
}

/* A backend that waits for a place gets the one that becomes free. */
static void
free_place(void)
{
	if (pg_nsleeps > 1)
	{
		take_and_reply();
		return;
	}
	pg_be(0);
	mailbox_reply(7, &answer);
	(void) pg_was_woken(0);
}

/* Another backend gives up, whose request nobody has taken. */
static void
wake_first(void)
{
	if (pg_nsleeps > 1)
		take_and_reply();
	else
	{
		SharedRequest other = {.command = COMMAND_RESIGN};
		SharedReply none;

		pg_be(0);
		mailbox_reply(7, &answer);
		pg_be(2);
		pg_others = NULL;
		assert_false(mailbox_ask(&other, in_ms(1), &none));
		pg_others = wake_first;
		(void) pg_was_woken(0);
		pg_nsleeps = 1;
	}
}

static void
test_wait_for_place(void **unused)
{
	void		(*const others[]) (void) = {free_place, wake_first};

	for (size_t i = 0; i < lengthof(others); i++)
	{
		assert_int_equal(fill(COMMAND_RESIGN), NORMAL_PLACES);
		pg_others = others[i];
		pg_nsleeps = 0;
		answer.revision = 8;
		assert_true(ask(COMMAND_VERIFY, -1));
		assert_int_equal(reply.revision, 8);
		assert_int_equal(taken_place, 7);
		assert_int_equal(pg_nsleeps, 2);
		free_all();
	}

	/* none becomes free */
	assert_int_equal(fill(COMMAND_RESIGN), NORMAL_PLACES);
	pg_others = NULL;
	assert_false(ask(COMMAND_RESIGN, 1000));
	assert_int_equal(reply.kind, REPLY_NO_ELECTOR);
	pg_others = end_elector;
	assert_true(ask(COMMAND_RESIGN, -1));
	assert_int_equal(reply.kind, REPLY_NO_ELECTOR);
}

/* ---- pages ------------------------------------------------------------------------------ */

static void
write_page(void)
{
	take_one();
	assert_int_equal(taken_place, MAILBOX_PAGE_PLACE);
	assert_memory_equal(mailbox_page, "the key", 7);
	assert_int_equal(mailbox_page[7], 0);
	strcpy(mailbox_page, "key and value");
	mailbox_reply(taken_place, &answer);
}

static void
test_page(void **unused)
{
	pg_others = write_page;
	for (int len = 3; len >= 0; len--)
	{
		memset(mailbox_page, 0, 16);
		memset(page, '!', sizeof(page));
		memcpy(page, "the key", 7);
		request.command = COMMAND_GET;
		answer.kind = len > 0 ? REPLY_PAGE : REPLY_TOO_LARGE;
		answer.page_len = 3 + len;
		assert_true(mailbox_ask_page(&request, PG_INT64_MAX, &reply, page, 7));
		assert_int_equal(reply.kind, answer.kind);
		assert_memory_equal(page, len > 0 ? "key and" : "the key", len > 0 ? 3 + len : 7);
		assert_int_equal(page[7], '!');
	}
	/* it was not replied to in time, and the page stays as it is */
	memcpy(page, "the key", 7);
	pg_others = take_one;
	reply.kind = REPLY_PAGE;
	reply.page_len = 7;
	strcpy(mailbox_page, "another");
	assert_false(mailbox_ask_page(&request, in_ms(1), &reply, page, 0));
	assert_memory_equal(page, "the key", 7);
	assert_memory_equal(mailbox_page, "another", 7);
	free_all();
	/* a request without a page gets none */
	pg_others = take_and_reply;
	answer.kind = REPLY_PAGE;
	assert_true(ask(COMMAND_GET, 1000));
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		A_TEST(test_reply),
		A_TEST(test_failure),
		A_TEST(test_put_back),
		A_TEST(test_no_elector),
		A_TEST(test_elector_ends),
		A_TEST(test_reply_and_end),
		A_TEST(test_end_frees_places),
		A_TEST(test_late_reply),
		A_TEST(test_timeout),
		A_TEST(test_cancelled),
		A_TEST(test_terminated),
		A_TEST(test_places),
		A_TEST(test_wait_for_place),
		A_TEST(test_page),
	};

	return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}
