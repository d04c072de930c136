/*-------------------------------------------------------------------------
 *
 * status_test.c
 *	  Tests of shared/status.c and shared/problems.c: what readers are told of elections and
 *	  of problems, whatever the elector publishes meanwhile.
 *
 * Process 0 is the elector, with the real shared memory of elections and counters.
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
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/problems.h"
#include "shared/stats.h"
#include "shared/status.h"
#include "small_server.h"

#define START_NS	(1000 * NSEC_PER_SEC)

static const SharedPart *const parts[] = {
	&event_number_part, &stats_part, &shared_state_part, &shared_elections_part, &events_part, &problems_part
};

/* ---- what the files need of others --------------------------------------------- */

uint64		settings_elections_generation;
TimestampTz PgStartTime = 77;

/* The settings of this session. */
static const char *elections[3];

const char *
settings_election_name(int index)
{
	assert_true(index >= 0 && index < (int) lengthof(elections));
	return elections[index];
}

int
settings_election_index(const char *name, int len)
{
	assert_int_equal(strlen(name), len);
	for (size_t i = 0; i < lengthof(elections); i++)
	{
		if (strcmp(elections[i], name) == 0)
			return i;
	}
	return -1;
}

void
settings_resolve_node_name(char *buf, size_t size)
{
	strlcpy(buf, "by the settings", size);
}

char *
utf8_to_server(const char *utf8)
{
	return psprintf("server's %s", utf8);
}

/* ---- the world ---------------------------------------------------------------------- */

static EtcdLeaderStatus row;
static SharedElection election;

static void
set_elections(const char *first, const char *second, const char *third)
{
	elections[0] = first;
	elections[1] = second;
	elections[2] = third;
	settings_elections_generation++;
}

static int
set_up(void **unused)
{
	pg_at_moment = NULL;
	now_ns = START_NS;
	pg_wall_clock = 5000;
	shared_state_lacks_elector = false;
	shmem_request_hook = NULL;
	shmem_startup_hook = NULL;
	shared_state_install(parts, lengthof(parts));
	pg_start_memory(0);
	pg_be(0);
	shared_state_begin_elector();
	set_elections("jobs", "mail", "patroni:main");
	memset(&row, 0x5a, sizeof(row));
	return 0;
}

static ElectionView
view_of(const char *name, ElectionState state, int64 token)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	strlcpy(view.name, name, sizeof(view.name));
	view.state = state;
	view.role = state == ELECTION_LEADING || state == ELECTION_DRAINING ? ELECTION_LEADER : ELECTION_CANDIDATE;
	snprintf(view.key, sizeof(view.key), "%s/key", name);
	view.create_revision = 40;
	view.lease = 17;
	if (view.role == ELECTION_LEADER)
	{
		view.token = view.create_revision = token;
		view.deadline_ns = START_NS + NSEC_PER_SEC;
		view.has_leader = true;
		strlcpy(view.leader, "pg1", sizeof(view.leader));
		view.leader_revision = token;
		view.leader_until_ns = view.deadline_ns;
	}
	return view;
}

static void
publish(int slot, const char *name, ElectionState state, int64 token)
{
	ElectionView view = view_of(name, state, token);

	shared_state_publish(slot, &view);
}

static void
publish_leader(int slot, const char *name, const char *leader, int64 revision)
{
	ElectionView view = view_of(name, ELECTION_WAITING, 0);

	view.has_leader = true;
	strlcpy(view.leader, leader, sizeof(view.leader));
	view.leader_revision = revision;
	view.leader_until_ns = START_NS + NSEC_PER_SEC;
	shared_state_publish(slot, &view);
}

static void
publish_contact(bool connected)
{
	SharedContact contact;

	memset(&contact, 0, sizeof(contact));
	strlcpy(contact.node_name, "pg1", sizeof(contact.node_name));
	strlcpy(contact.endpoint, "http://etcd1:2379", sizeof(contact.endpoint));
	contact.dialect = ETCD_GRPC;
	contact.cluster_id = 11;
	contact.ttl_ms = 5000;
	contact.connected = connected;
	contact.last_contact = 4000;
	shared_state_publish_contact(&contact);
}

static void
check_leads(int index, int64 token, int64 held_token)
{
	assert_int_equal(status_leads(index), token != 0);
	assert_int_equal(status_token(index), token);
	assert_int_equal(status_held_token(index), held_token);
}

/* ---- who leads ------------------------------------------------------------------------ */

static void
test_leads(void **unused)
{
	check_leads(-1, 0, 0);
	check_leads(0, 0, 0);
	assert_false(status_read(-1, &election));
	assert_false(status_read(0, &election));

	/* it is taken up, in any slot, after somebody has asked for it */
	publish(2, "jobs", ELECTION_LEADING, 7);
	check_leads(0, 7, 7);
	check_leads(1, 0, 0);
	assert_true(status_read(0, &election));
	assert_int_equal(election.view.token, 7);
	publish(1, "mail", ELECTION_DRAINING, 8);
	check_leads(0, 7, 7);
	check_leads(1, 0, 8);

	/* the settings have another order, or another election */
	set_elections("mail", "jobs", "other");
	check_leads(0, 0, 8);
	check_leads(1, 7, 7);
	check_leads(2, 0, 0);
	assert_true(status_read(0, &election));
	assert_string_equal(election.view.name, "mail");
	set_elections("jobs", "mail", "other");
	check_leads(0, 7, 7);
	set_elections("mail", "jobs", "other");
	assert_false(status_leads(0));
	assert_true(status_leads(1));

	/* the slots are given to others */
	publish(2, "mail", ELECTION_LEADING, 9);
	publish(1, "jobs", ELECTION_DRAINING, 10);
	check_leads(0, 9, 9);
	check_leads(1, 0, 10);
	publish(0, "jobs", ELECTION_UNUSED, 0);
	publish(1, "other", ELECTION_WAITING, 0);
	publish(0, "", ELECTION_UNUSED, 0);
	assert_false(status_read(1, &election));
	check_leads(1, 0, 0);
	shared_state_end_elector();
	check_leads(0, 0, 0);
	assert_false(status_read(0, &election));
}

/* The layout changes while somebody looks: the leadership of an election is seen all the time. */
static int	nmoments;
static int	change_at;

static void
change_layout(void)
{
	if (++nmoments != change_at)
		return;
	pg_at_moment = NULL;
	publish(1, change_at % 2 ? "mail" : "other", ELECTION_WAITING, 0);
}

static void
test_layout_changes(void **unused)
{
	publish(2, "jobs", ELECTION_LEADING, 7);
	for (int kind = 0; kind < 8; kind++)
	{
		nmoments = 1000;
		for (change_at = 1; nmoments >= change_at - 1; change_at++)
		{
			/* the place is known, or is to be searched for */
			publish(1, change_at % 2 ? "other" : "mail", ELECTION_WAITING, 0);
			if (kind < 4)
				assert_true(status_leads(0));
			else
				settings_elections_generation++;	/* a reload */
			nmoments = 0;
			pg_at_moment = change_layout;
			switch (kind % 4)
			{
				case 0:
					assert_true(status_leads(0));
					break;
				case 1:
					assert_int_equal(status_token(0), 7);
					break;
				case 2:
					assert_int_equal(status_held_token(0), 7);
					break;
				case 3:
					assert_true(status_read(0, &election));
					assert_string_equal(election.view.name, "jobs");
					break;
			}
			pg_at_moment = NULL;
		}
		assert_true(change_at > 3);
	}
}

static void
raise_for_jobs(void)
{
	status_raise_no_election("jobs");
}

static void
raise_for_none(void)
{
	status_raise_no_election(NULL);
}

static void
test_no_election(void **unused)
{
	assert_false(pg_try(raise_for_jobs));
	assert_int_equal(pg_error.sqlstate, ERRCODE_UNDEFINED_OBJECT);
	assert_string_equal(pg_error.message, "election \"jobs\" does not exist");
	assert_false(pg_try(raise_for_none));
	assert_int_equal(pg_error.sqlstate, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE);
	assert_string_equal(pg_error.message, "this instance takes part in no election");
}

/* ---- the leader's name ------------------------------------------------------------------ */

static void
check_detail(const char *detail)
{
	memset(&pg_error, 0, sizeof(pg_error));
	(void) status_errdetail_leader(0);
	assert_string_equal(pg_error.detail, detail);
}

static void
test_leader_name(void **unused)
{
	publish_contact(true);
	assert_null(status_current_leader(0));
	assert_null(status_leader_for_message(-1));
	check_detail("No leader is known at present.");
	publish_contact(false);
	check_detail("No leader is known at present, as there is no contact with etcd. See the view \"etcd_leader_problems\".");

	publish_leader(0, "jobs", "pg\a2", 50);
	assert_string_equal(status_current_leader(0), "server's pg\a2");
	assert_string_equal(status_leader_for_message(0), "server's pg\\x072");
	check_detail("The leader is \"server's pg\\x072\".");
	assert_null(status_current_leader(1));

	/* nobody is sent to this instance, by whichever sign it is known */
	publish_leader(0, "jobs", "pg1", 50);
	assert_string_equal(status_current_leader(0), "server's pg1");
	assert_null(status_leader_for_message(0));
	publish_leader(0, "jobs", "earlier name", 40);
	assert_null(status_leader_for_message(0));
	publish_leader(0, "jobs", "pg2", 50);
	assert_non_null(status_leader_for_message(0));

	/* it is not known for longer than it is sure */
	now_ns = START_NS + NSEC_PER_SEC;
	assert_null(status_current_leader(0));
	now_ns--;
	assert_non_null(status_current_leader(0));
	shared_state_end_elector();
	publish_leader(0, "jobs", "pg2", 50);
	assert_null(status_leader_for_message(0));
	check_detail("The elector of etcd_leader is not running.");
}

/* ---- rows ------------------------------------------------------------------------------- */

static void
test_row(void **unused)
{
	publish_contact(true);
	stats_count_won("jobs");
	stats_count_won("jobs");
	stats_count_lost("jobs", ELECTION_REASON_RESIGNED);
	status_read_row(0, &row);
	assert_string_equal(row.election, "jobs");
	assert_string_equal(row.node, "pg1");
	assert_string_equal(row.endpoint, "http://etcd1:2379");
	assert_string_equal(row.protocol, "grpc");
	assert_int_equal(row.cluster_id, 11);
	assert_int_equal(row.ttl_ms, 5000);
	assert_true(row.connected);
	assert_int_equal(row.last_contact, 4000);
	assert_int_equal(row.won, 2);
	assert_int_equal(row.lost, 1);
	/* the elector has not taken it up */
	assert_string_equal(row.state, "starting");
	assert_string_equal(row.role, "observer");
	assert_false(row.is_leader);

	publish(1, "jobs", ELECTION_LEADING, 7);
	now_ns = START_NS + NSEC_PER_SEC / 4;
	status_read_row(0, &row);
	assert_true(row.is_leader && !row.is_draining);
	assert_string_equal(row.role, "leader");
	assert_string_equal(row.state, "leading");
	assert_int_equal(row.valid_for_us, 750000);
	assert_string_equal(row.leader, "pg1");
	assert_int_equal(row.fencing_token, 7);
	assert_int_equal(row.leader_since, 5000);
	assert_int_equal(row.lease_id, 17);
	assert_string_equal(row.key, "jobs/key");
	assert_int_equal(row.create_revision, 7);

	publish(1, "jobs", ELECTION_DRAINING, 7);
	status_read_row(0, &row);
	assert_true(!row.is_leader && row.is_draining);
	assert_string_equal(row.role, "leader");
	assert_string_equal(row.state, "draining");
	assert_int_equal(row.valid_for_us, 0);

	/* the deadline is over, and nobody has withdrawn it */
	now_ns = START_NS + NSEC_PER_SEC;
	status_read_row(0, &row);
	assert_true(!row.is_leader && !row.is_draining);
	assert_string_equal(row.role, "candidate");
	assert_string_equal(row.leader, "");
	assert_int_equal(row.fencing_token, 0);
	assert_int_equal(row.leader_since, 0);
	publish(1, "jobs", ELECTION_LEADING, 7);
	status_read_row(0, &row);
	assert_false(row.is_leader);
	assert_int_equal(row.valid_for_us, 0);
	now_ns = START_NS;

	publish_leader(1, "jobs", "pg2", 50);
	status_read_row(0, &row);
	assert_string_equal(row.role, "candidate");
	assert_string_equal(row.state, "waiting");
	assert_string_equal(row.leader, "pg2");
	assert_int_equal(row.fencing_token, 50);
	assert_int_equal(row.create_revision, 40);
	publish_contact(false);
	status_read_row(0, &row);
	assert_false(row.connected);

	/* there is no elector */
	publish_contact(true);
	shared_state_end_elector();
	status_read_row(0, &row);
	assert_false(row.connected);
	assert_string_equal(row.state, "elector_not_running");
	assert_string_equal(row.role, "observer");
	assert_string_equal(row.last_error, "the elector is not running");
	assert_string_equal(row.node, "pg1");
	pg_start_memory(0);
	status_read_row(0, &row);
	assert_string_equal(row.node, "by the settings");
}

static void
test_is_self(void **unused)
{
	strcpy(row.election, "jobs");
	strcpy(row.node, "pg1");
	strcpy(row.key, "jobs/key");
	assert_true(status_is_self(&row, "jobs/key", "another name"));
	assert_false(status_is_self(&row, "jobs/another", "pg1"));
	strcpy(row.election, "patroni:main");
	assert_true(status_is_self(&row, "jobs/another", "pg1"));
	assert_false(status_is_self(&row, "jobs/key", "another name"));
}

/* ---- problems ---------------------------------------------------------------------------- */

static Problems problems;

static void
add_problem(ProblemItem item, const char *subject, const char *text)
{
	Problem    *problem = &problems.problems[problems.n++];

	problem->item = item;
	strcpy(problem->subject, subject);
	strcpy(problem->text, text);
	problem->since = 100 + problems.n;
}

static void
check_first(int index, const char *text, TimestampTz since)
{
	problems_publish(&problems);
	status_read_row(index, &row);
	assert_string_equal(row.last_error, text);
	assert_int_equal(row.last_error_at, since);
}

/* A problem of the election comes before one of the instance, and one of another election is none. */
static void
test_problems_of_elections(void **unused)
{
	memset(&problems, 0, sizeof(problems));
	check_first(0, "", 0);
	add_problem(PROBLEM_HELD_BACK, "mail", "of mail");
	check_first(0, "", 0);
	check_first(1, "of mail", 101);
	add_problem(PROBLEM_ENDPOINT, "http://etcd3", "of an endpoint");
	check_first(0, "of an endpoint", 102);
	add_problem(PROBLEM_CONTACT, "", "of the instance");
	add_problem(PROBLEM_HELD_BACK, "jobs", "of jobs");
	check_first(0, "of jobs", 104);
	check_first(1, "of mail", 101);
	check_first(2, "of an endpoint", 102);
	memset(&problems, 0, sizeof(problems));
	add_problem(PROBLEM_CONTACT, "", "of the instance");
	add_problem(PROBLEM_ENDPOINT, "http://etcd3", "of an endpoint");
	check_first(2, "of the instance", 101);
	memset(&problems, 0, sizeof(problems));
	add_problem(PROBLEM_HELD_BACK, "jobs", "of jobs");
	check_first(1, "", 0);
}

/* The list ends with its elector. */
static void
test_problems(void **unused)
{
	static Problems read;
	const Problem *first = &read.problems[0];

	memset(&problems, 0, sizeof(problems));
	problems_read(&read);
	assert_int_equal(read.n, 0);
	add_problem(PROBLEM_ALARM, "", "an alarm");
	problems_publish(&problems);
	problems_read(&read);
	assert_int_equal(read.n, 1);
	assert_string_equal(first->text, "an alarm");

	for (int lacks = 0; lacks <= 1; lacks++)
	{
		shared_state_end_elector();
		shared_state_lacks_elector = lacks;
		strcpy(read.problems[0].subject, "of before");
		problems_read(&read);
		assert_int_equal(read.n, 1);
		assert_int_equal(first->item, PROBLEM_ELECTOR);
		assert_string_equal(first->subject, "");
		assert_non_null(strstr(first->text, lacks ? "max_worker_processes" : "the elector is not running"));
		assert_non_null(strstr(first->hint, lacks ? "max_worker_processes" : "server log"));
		assert_int_equal(first->since, lacks ? 77 : 0);
		shared_state_begin_elector();
		problems_read(&read);
		assert_int_equal(read.n, 0);
	}
}

/* Each item has a name of its own, and a severity. */
static void
test_problem_items(void **unused)
{
	for (ProblemItem item = 0; item < PROBLEM_NITEMS; item++)
	{
		assert_non_null(problem_item_name(item));
		for (ProblemItem other = 0; other < item; other++)
			assert_string_not_equal(problem_item_name(item), problem_item_name(other));
	}
	assert_string_equal(problem_severity(PROBLEM_REQUIRE_LEADERSHIP), "error");
	assert_string_equal(problem_severity(PROBLEM_ELECTIONS), "warning");
	assert_string_equal(problem_severity(PROBLEM_HOOK), "warning");
}

int
main(void)
{
#define A_TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		A_TEST(test_leads),
		A_TEST(test_layout_changes),
		A_TEST(test_no_election),
		A_TEST(test_leader_name),
		A_TEST(test_row),
		A_TEST(test_is_self),
		A_TEST(test_problems_of_elections),
		A_TEST(test_problems),
		A_TEST(test_problem_items),
	};

	return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
