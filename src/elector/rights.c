/*-------------------------------------------------------------------------
 *
 * rights.c
 *	  What etcd's user may do with the keys of the settings, and whether a key without
 *	  a lease is in the way.
 *
 * Nothing is written, and of watched prefixes nothing is read: the txns have a compare that is
 * never true, but etcd checks the rights of both branches.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/problems.h"
#include "elector/rights.h"
#include "protocol/changes.h"
#include "settings/settings.h"
#include "shared/stats.h"

/* How often to try again what was denied. */
#define RETRY_INTERVAL_MS	10000

/* How old the success of a try may be when another request is denied. */
#define DOUBT_INTERVAL_MS	1000

/* The keys of an election, or of a watched prefix. */
typedef struct Right
{
	char		subject[CHANGES_PREFIX_SIZE];	/* the election, or the prefix */
	bool		writes;			/* the elector writes there, too */
	char		prefix[ELECTION_KEY_SIZE];
	bool		is_denied;
	int64		allowed_ns;		/* when a try has succeeded last; 0: none has */
	char		bare_key[ETCD_MESSAGE_SIZE];	/* the first key, without a lease; empty: none */
} Right;

#define MAX_RIGHTS	(ELECTION_MAX_ELECTIONS + CHANGES_MAX_PREFIXES)

static Right rights[MAX_RIGHTS];
static int	nrights;
static uint32 settings_number;	/* counts the settings, so that late answers are known */
static int	ntries;				/* requests under way */
static bool is_due;				/* the settings are new */
static int64 retry_ns;			/* when to try again; 0: nothing is wrong */

/* ---- the settings -------------------------------------------------------- */

static void
add_right(const char *subject, const char *prefix, bool writes)
{
	Right	   *right = &rights[nrights++];

	memset(right, 0, sizeof(*right));
	strlcpy(right->subject, subject, sizeof(right->subject));
	strlcpy(right->prefix, prefix, sizeof(right->prefix));
	right->writes = writes;
}

void
elector_configure_rights(void)
{
	static Right old[MAX_RIGHTS];
	int			nold = nrights;
	char		prefix[ELECTION_KEY_SIZE];
	ListCell   *cell;

	memcpy(old, rights, sizeof(rights));
	nrights = 0;
	for (int i = 0; i < settings_election_count(); i++)
	{
		const char *name = settings_election_name(i);
		bool		is_followed = election_is_followed(name);

		if (is_followed)
			election_patroni_prefix(prefix, settings_patroni_namespace, name);
		else
			snprintf(prefix, sizeof(prefix), "%s/", name);
		add_right(name, prefix, !is_followed && settings_candidate != CANDIDATE_NEVER);
	}
	foreach(cell, settings_split(settings_watched_prefixes))
	{
		/* else it is ignored (changes.c) */
		if (settings_find_election_within(lfirst(cell)) == NULL)
			add_right(lfirst(cell), lfirst(cell), false);
	}

	/* what was denied stays so until it is tried again */
	for (int i = 0; i < nrights; i++)
	{
		for (int j = 0; j < nold; j++)
		{
			if (strcmp(rights[i].subject, old[j].subject) == 0 &&
				strcmp(rights[i].prefix, old[j].prefix) == 0 && rights[i].writes == old[j].writes)
				rights[i] = old[j];
		}
	}
	settings_number++;
	ntries = 0;
	is_due = true;
}

/* ---- tries ----------------------------------------------------------------- */

/*
 * The first key of an election is the leader's.  A key without a lease is no
 * candidate's, and stays there until somebody deletes it.
 */
static void
note_first_key(Right *right, const EtcdAnswer *answer)
{
	const EtcdResult *keys = answer->nresults == 1 ? &answer->results[0] : NULL;

	right->bare_key[0] = '\0';
	if (right->writes && keys != NULL && keys->nkvs == 1 && keys->kvs[0].lease == 0)
		etcd_format_message(right->bare_key, "%s", keys->kvs[0].key.data);
}

static void
receive(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	Right	   *right = &rights[id & 0xffff];

	/* a refusal is judged here, and no reason for anything else */
	if (answer->outcome == ETCD_REFUSED)
		stats_count(COUNTER_FAILURES, 1);
	else
		elector_count_answer(answer, timing);
	if (id >> 16 != settings_number)
		return;
	ntries--;
	if (answer->outcome == ETCD_ANSWERED)
	{
		right->is_denied = false;
		right->allowed_ns = clock_now_ns();
		note_first_key(right, answer);
	}
	else if (etcd_says_permission_denied(answer))
		right->is_denied = true;
}

static EtcdBytes
bytes_of(const char *text)
{
	return (EtcdBytes) {text, strlen(text)};
}

static void
try(int i)
{
	const Right *right = &rights[i];
	char		key[ELECTION_KEY_SIZE + 16];
	char		prefix_end[ELECTION_KEY_SIZE];
	EtcdOp		range = {.kind = ETCD_OP_RANGE, .limit = 1, .sort = ETCD_SORT_FIRST_CREATED};
	EtcdOp		writes[2] = {{.kind = ETCD_OP_PUT}, {.kind = ETCD_OP_DELETE}};
	EtcdCompare never = {.target = ETCD_COMPARE_CREATE_REVISION, .value = 1};
	EtcdRequest request = {.kind = ETCD_TXN};

	changes_prefix_end(right->prefix, prefix_end);
	range.key = bytes_of(right->prefix);
	range.range_end = bytes_of(prefix_end);
	/* no key has the create revision 1: the first write makes revision 2 */
	snprintf(key, sizeof(key), "%setcd_leader", right->prefix);
	never.key = writes[0].key = bytes_of(key);
	writes[1].key = bytes_of(right->prefix);
	request.compares = &never;
	request.ncompares = 1;
	if (right->writes)
	{
		request.success = writes;
		request.nsuccess = lengthof(writes);
		request.failure = &range;
		request.nfailure = 1;
	}
	else
	{
		request.success = &range;
		request.nsuccess = 1;
	}
	ntries++;
	stats_count(COUNTER_REQUESTS, 1);
	etcd_client_send(elector_client, receive, (uint64) settings_number << 16 | i, &request);
}

void
elector_try_rights(void)
{
	settings_number++;
	ntries = 0;
	for (int i = 0; i < nrights; i++)
		try(i);
	is_due = false;
	retry_ns = 0;
}

bool
elector_is_trying_rights(void)
{
	return ntries > 0 || (is_due && elector_contact()->connected);
}

bool
elector_doubt_rights(const char *key)
{
	int64		now_ns = clock_now_ns();

	for (int i = 0; i < nrights; i++)
	{
		if (strncmp(key, rights[i].prefix, strlen(rights[i].prefix)) != 0)
			continue;
		if (rights[i].is_denied ||
			now_ns - rights[i].allowed_ns >= DOUBT_INTERVAL_MS * NSEC_PER_MSEC)
		{
			is_due |= !rights[i].is_denied;
			return true;
		}
	}
	return false;
}

/* ---- problems ---------------------------------------------------------------- */

static void
begin_denied(const Right *right)
{
	problem_begin(PROBLEM_RIGHTS, right->subject, PROBLEM_THIS_TURN,
				  psprintf("With a role of that user, run: etcdctl role grant-permission ROLE "
						   "--prefix=true %s %s",
						   right->writes ? "readwrite" : "read", right->prefix),
				  "etcd's user may not %s keys that begin with \"%s\"",
				  right->writes ? "read and write" : "read", right->prefix);
}

static void
begin_bare_key(const Right *right)
{
	problem_begin(PROBLEM_QUEUE, right->subject, PROBLEM_THIS_TURN,
				  "No candidate wrote it. If nothing else needs it, delete it by \"etcdctl del\".",
				  "the first key of election \"%s\", \"%s\", has no lease, so no instance can lead "
				  "while it exists",
				  right->subject, right->bare_key);
}

/* Does nobody lead an election that this instance could lead?  A key may be in the way. */
static bool
is_without_leader(const Right *right)
{
	SharedElection election;
	uint64		layout;
	int			slot = shared_state_find(right->subject, &layout);

	return right->writes && shared_state_read(slot, layout, &election) &&
		shared_state_leader(&election, clock_now_ns()) == NULL;
}

int64
elector_find_rights_problems(void)
{
	int64		now_ns = clock_now_ns();
	bool		is_wrong = false;

	for (int i = 0; i < nrights; i++)
	{
		if (rights[i].is_denied)
			begin_denied(&rights[i]);
		if (rights[i].bare_key[0] != '\0')
			begin_bare_key(&rights[i]);
		is_wrong |= rights[i].is_denied || rights[i].bare_key[0] != '\0' ||
			is_without_leader(&rights[i]);
	}
	if (!is_wrong)
		retry_ns = 0;
	else if (retry_ns == 0)
		retry_ns = now_ns + RETRY_INTERVAL_MS * NSEC_PER_MSEC;

	/* without contact there is nothing to learn */
	if (!elector_contact()->connected || ntries > 0)
		return PG_INT64_MAX;
	if (is_due || (retry_ns != 0 && retry_ns <= now_ns))
		elector_try_rights();
	return retry_ns != 0 ? retry_ns : PG_INT64_MAX;
}
