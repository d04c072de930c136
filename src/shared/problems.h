/*-------------------------------------------------------------------------
 *
 * problems.h
 *	  What is wrong with the set-up: one list, which the elector writes and
 *	  everybody reads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PROBLEMS_H
#define PROBLEMS_H

#include "etcd_leader.h"
#include "shared/part.h"

/* What a problem is about.  The item decides the severity. */
typedef enum ProblemItem
{
	/* errors: this instance does not lead for it, or will not */
	PROBLEM_ELECTOR,			/* it does not run */
	PROBLEM_CONTACT,			/* with etcd */
	PROBLEM_CLUSTER,			/* an endpoint of another one */
	PROBLEM_USER,				/* of etcd */
	PROBLEM_RIGHTS,				/* of that user; subject: an election, or a watched prefix */
	PROBLEM_REQUEST,			/* etcd refuses one; subject: an election, or none */
	PROBLEM_ALARM,				/* of a member of etcd */
	PROBLEM_QUEUE,				/* a key without a lease is the first */
	PROBLEM_ELECTION,			/* an election that follows Patroni */
	PROBLEM_HELD_BACK,			/* the state of an election */
	PROBLEM_SECOND_PRIMARY,		/* the state of an election */
	PROBLEM_COPY,				/* of another server's data directory */
	PROBLEM_NODE_NAME,			/* another candidate has it; subject: the election */
	PROBLEM_CERTIFICATE,		/* of this instance or of an endpoint: it cannot be used */
	PROBLEM_FILE,				/* of a setting */
	PROBLEM_HOOKS_FILE,
	PROBLEM_DATABASE,			/* of the settings: it cannot be used */
	PROBLEM_REQUIRE_LEADERSHIP, /* a setting of a role or of a database */

	/* warnings */
	PROBLEM_ELECTIONS,			/* there are none */
	PROBLEM_ENDPOINT,			/* a spare one cannot be used */
	PROBLEM_MAJORITY,			/* of the members of etcd: it would be lost with one more */
	PROBLEM_VERSION,			/* of etcd */
	PROBLEM_EXPIRY,				/* of a certificate: soon */
	PROBLEM_ENCRYPTION,			/* a password is sent without it */
	PROBLEM_DNS,				/* of the endpoints; subject: the domain */
	PROBLEM_TTL,				/* time-outs, and the safety margin */
	PROBLEM_SETTINGS,			/* in a file, and not in force */
	PROBLEM_RESIGNED,			/* from an election, and stays out */
	PROBLEM_COMMON_NAME,		/* of the node: others are likely to have it, too */
	PROBLEM_PRELOAD,			/* another library comes first */
	PROBLEM_SQL_VERSION,
	PROBLEM_SCHEMA,				/* of the extension: who may use it, or create in it */
	PROBLEM_WORKERS,			/* some do not run */
	PROBLEM_HOOK				/* the last run of one has failed */
} ProblemItem;

#define PROBLEM_NITEMS			(PROBLEM_HOOK + 1)
#define PROBLEM_FIRST_WARNING	PROBLEM_ELECTIONS

/* As the column "item" has it. */
extern const char *problem_item_name(ProblemItem item);
extern const char *problem_severity(ProblemItem item);

/* A problem.  Text is UTF-8. */
typedef struct Problem
{
	ProblemItem item;
	char		subject[ETCD_LEADER_URL_SIZE];	/* empty: the instance */
	char		text[ETCD_LEADER_ERROR_SIZE];
	char		hint[ETCD_LEADER_ERROR_SIZE];	/* empty: none */
	TimestampTz since;
} Problem;

/* More than these are not in the list. */
#define PROBLEMS_MAX			48

/* Errors first; of one severity the newest first. */
typedef struct Problems
{
	int			n;
	Problem		problems[PROBLEMS_MAX];
} Problems;

/* The elector replaces the list.  When the elector ends, the list is empty. */
extern void problems_publish(const Problems *problems);

/*
 * Reads the list.  If there is no elector, that is the only problem in it.  Takes no
 * lock, waits for nothing, and raises no error.
 */
extern void problems_read(Problems *problems);

/*
 * The first problem of the election, else the first one of the instance; NULL: there
 * is none.  A problem of another election is neither.
 */
extern const Problem *problems_first(const Problems *problems, const char *election);

extern const SharedPart problems_part;

#endif							/* PROBLEMS_H */
