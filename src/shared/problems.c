/*-------------------------------------------------------------------------
 *
 * problems.c
 *	  What is wrong with the set-up: the list in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "settings/settings.h"
#include "shared/problems.h"
#include "shared/snapshot.h"
#include "shared/state.h"

typedef struct SharedProblems
{
	pg_atomic_uint64 generation;
	Problems	copies[2];
} SharedProblems;

static SharedProblems *shared_problems = NULL;

static void
clear(void)
{
	static const Problems none = {0};

	problems_publish(&none);
}

const SharedPart problems_part = {
	.name = "etcd_leader problems", .size = sizeof(SharedProblems),
	.memory = (void **) &shared_problems, .elector_begins = clear, .elector_ends = clear
};

const char *
problem_item_name(ProblemItem item)
{
	static const char *const names[PROBLEM_NITEMS] = {
		[PROBLEM_ELECTOR] = "elector",
		[PROBLEM_CONTACT] = "contact",
		[PROBLEM_CLUSTER] = "cluster",
		[PROBLEM_USER] = "user",
		[PROBLEM_RIGHTS] = "rights",
		[PROBLEM_REQUEST] = "request",
		[PROBLEM_ALARM] = "alarm",
		[PROBLEM_QUEUE] = "queue",
		[PROBLEM_ELECTION] = "election",
		[PROBLEM_HELD_BACK] = "held_back",
		[PROBLEM_SECOND_PRIMARY] = "second_primary",
		[PROBLEM_COPY] = "copy",
		[PROBLEM_NODE_NAME] = "node_name",
		[PROBLEM_CERTIFICATE] = "certificate",
		[PROBLEM_FILE] = "file",
		[PROBLEM_HOOKS_FILE] = "hooks_file",
		[PROBLEM_DATABASE] = "database",
		[PROBLEM_REQUIRE_LEADERSHIP] = "require_leadership_of",
		[PROBLEM_ELECTIONS] = "elections",
		[PROBLEM_ENDPOINT] = "endpoint",
		[PROBLEM_MAJORITY] = "majority",
		[PROBLEM_VERSION] = "version",
		[PROBLEM_EXPIRY] = "expiry",
		[PROBLEM_ENCRYPTION] = "encryption",
		[PROBLEM_DNS] = "dns",
		[PROBLEM_TTL] = "ttl",
		[PROBLEM_SETTINGS] = "settings",
		[PROBLEM_RESIGNED] = "resigned",
		[PROBLEM_COMMON_NAME] = "common_name",
		[PROBLEM_PRELOAD] = "preload",
		[PROBLEM_SQL_VERSION] = "sql_version",
		[PROBLEM_SCHEMA] = "schema",
		[PROBLEM_WORKERS] = "workers",
		[PROBLEM_HOOK] = "hook"
	};

	return names[item];
}

const char *
problem_severity(ProblemItem item)
{
	return item < PROBLEM_FIRST_WARNING ? "error" : "warning";
}

void
problems_publish(const Problems *problems)
{
	shared_snapshot_write(&shared_problems->generation, shared_problems->copies,
						  sizeof(Problems), problems);
}

static void
note_missing_elector(Problems *problems)
{
	Problem    *problem = &problems->problems[0];

	memset(problem, 0, sizeof(*problem));
	problems->n = 1;
	problem->item = PROBLEM_ELECTOR;
	strlcpy(problem->text, shared_state_lacks_elector ?
			"no background worker slot was free for the elector when the server started: "
			"\"max_worker_processes\" is too small" : "the elector is not running",
			sizeof(problem->text));
	strlcpy(problem->hint, shared_state_lacks_elector ?
			"Increase \"max_worker_processes\", and restart the server." : "See the server log.",
			sizeof(problem->hint));
	problem->since = shared_state_lacks_elector ? PgStartTime : 0;
}

void
problems_read(Problems *problems)
{
	if (shared_state_has_elector())
		shared_snapshot_read(&shared_problems->generation, shared_problems->copies,
							 sizeof(Problems), problems);
	else
		note_missing_elector(problems);
}

const Problem *
problems_first(const Problems *problems, const char *election)
{
	const Problem *of_instance = NULL;

	for (int i = 0; i < problems->n; i++)
	{
		const Problem *problem = &problems->problems[i];

		if (strcmp(problem->subject, election) == 0)
			return problem;
		if (of_instance == NULL &&
			settings_election_index(problem->subject, (int) strlen(problem->subject)) < 0)
			of_instance = problem;
	}
	return of_instance;
}
