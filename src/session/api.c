/*-------------------------------------------------------------------------
 *
 * api.c
 *	  The C API for other extensions.
 *
 * include/etcd_leader.h is its contract.  An extension may have been built
 * with an older header.  Structs are therefore filled in only up to the size
 * that the caller passes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/certificate.h"
#include "base/clock.h"
#include "api.h"
#include "etcd_leader.h"
#include "shared/events.h"
#include "fence/fence.h"
#include "shared/mailbox.h"
#include "shared/notifier_register.h"
#include "shared/problems.h"
#include "settings/settings.h"
#include "shared/stats.h"
#include "shared/status.h"

StaticAssertDecl(ETCD_LEADER_NAME_SIZE >= ELECTION_NAME_SIZE &&
				 ETCD_LEADER_NODE_SIZE >= ELECTION_VALUE_SIZE &&
				 ETCD_LEADER_KEY_SIZE >= ELECTION_KEY_SIZE &&
				 ETCD_LEADER_URL_SIZE >= SHARED_ENDPOINT_SIZE &&
				 ETCD_LEADER_REASON_SIZE >= ELECTION_REASON_SIZE &&
				 ETCD_LEADER_CHANGE_SIZE >= EVENT_TEXT_SIZE &&
				 ETCD_LEADER_ERROR_SIZE >= sizeof(((Problem *) 0)->text),
				 "text of the C API would be cut");
StaticAssertDecl(ETCD_LEADER_REASONS >= ELECTION_NREASONS &&
				 ETCD_LEADER_BUCKETS >= SHARED_LATENCY_BUCKETS,
				 "counters do not fit into the C API");

/* The index of a named election, of the first one for NULL; -1 if there is none. */
static int
find_election(const char *name)
{
	return name ? settings_election_index(name, (int) strlen(name)) : settings_first_election();
}

static bool
api_is_leader(const char *election)
{
	return fence_leads(find_election(election));
}

static int64
api_fencing_token(const char *election)
{
	return fence_token(find_election(election));
}

static int64
api_require_leader(const char *election)
{
	int			index = find_election(election);

	if (index < 0)
		status_raise_no_election(election);
	return fence_require(index);
}

static bool
api_get_status(int index, EtcdLeaderStatus *status, Size size)
{
	EtcdLeaderStatus full;

	if (index < 0 || index >= settings_election_count())
		return false;
	status_read_row(index, &full);
	memcpy(status, &full, Min(size, sizeof(full)));
	return true;
}

static bool
api_get_event(int64 after, EtcdLeaderEvent *event, Size size)
{
	EtcdLeaderEvent full = {0};
	SharedEvent shared;

	if (!events_next(after, &shared))
		return false;
	full.seq = shared.seq;
	full.at = shared.at;
	strlcpy(full.election, shared.election, sizeof(full.election));
	full.event = events_kind_name(&shared);
	strlcpy(full.node, shared.node, sizeof(full.node));
	if (shared.has_leader)
		strlcpy(full.leader, shared.leader, sizeof(full.leader));
	full.fencing_token = shared.leader_revision;
	strlcpy(full.reason, shared.reason, sizeof(full.reason));
	strlcpy(full.key, shared.key, sizeof(full.key));
	full.has_value = shared.has_value;
	strlcpy(full.value, shared.value, sizeof(full.value));
	full.revision = shared.revision;

	memcpy(event, &full, Min(size, sizeof(full)));
	return true;
}

static bool
api_get_problem(int index, EtcdLeaderProblem *problem, Size size)
{
	static Problems problems;
	EtcdLeaderProblem full = {0};
	const Problem *row;

	if (index == 0)
		problems_read(&problems);
	if (index < 0 || index >= problems.n)
		return false;
	row = &problems.problems[index];
	full.item = problem_item_name(row->item);
	full.severity = problem_severity(row->item);
	strlcpy(full.subject, row->subject, sizeof(full.subject));
	strlcpy(full.problem, row->text, sizeof(full.problem));
	strlcpy(full.hint, row->hint, sizeof(full.hint));
	full.since = row->since;
	memcpy(problem, &full, Min(size, sizeof(full)));
	return true;
}

/* Nobody publishes that a deadline has passed, so the sleep ends there. */
static bool
api_wait_for_change(uint64 seen, long timeout_ms, uint32 wait_event)
{
	int64		deadline_ns = shared_state_next_deadline_ns();

	if (deadline_ns != PG_INT64_MAX)
	{
		long		left_ms = clock_remaining_ms(deadline_ns / NSEC_PER_USEC);

		timeout_ms = timeout_ms < 0 ? left_ms : Min(timeout_ms, left_ms);
	}
	return events_wait_for_change(seen, timeout_ms, wait_event) ||
		deadline_ns <= clock_now_ns();
}

static void
api_get_stats(EtcdLeaderStats *stats, Size size)
{
	static const char *const hook_statuses[] = {"succeeded", "failed", "cancelled", "crashed"};
	EtcdLeaderStats full = {0};

	full.stats_reset = stats_reset_at();
	full.requests = stats_counter(COUNTER_REQUESTS);
	full.failures = stats_counter(COUNTER_FAILURES);
	full.elections_won = stats_counter(COUNTER_ELECTIONS_WON);
	for (int reason = ELECTION_REASON_RESIGNED; reason <= ELECTION_REASON_HISTORY_CHANGED; reason++)
	{
		full.elections_lost[full.nreasons].reason = election_reason_name(reason);
		full.elections_lost[full.nreasons++].count = stats_counter(COUNTER_ELECTIONS_LOST + reason);
	}
	full.notifications_sent = stats_counter(COUNTER_NOTIFICATIONS_SENT);

	/* the last bucket has no limit: it makes the number of answers */
	full.nbuckets = SHARED_LATENCY_BUCKETS;
	for (int i = 0; i < full.nbuckets; i++)
	{
		full.answers += stats_counter(COUNTER_LATENCY_BUCKETS + i);
		full.latency_buckets[i].limit_ns = stats_latency_limit_ns(i);
		full.latency_buckets[i].count = full.answers;
	}
	full.answers += stats_counter(COUNTER_LATENCY_BUCKETS + full.nbuckets);
	full.latency_sum_ns = stats_counter(COUNTER_LATENCY_NS_SUM);

	full.endpoint_switches = stats_counter(COUNTER_ENDPOINT_SWITCHES);
	full.nhook_statuses = lengthof(hook_statuses);
	for (int i = 0; i < full.nhook_statuses; i++)
	{
		full.hook_runs[i].status = hook_statuses[i];
		full.hook_runs[i].count = stats_counter(COUNTER_HOOKS_SUCCEEDED + i);
	}

	full.timeouts = stats_counter(COUNTER_TIMEOUTS);
	full.commits_refused = stats_counter(COUNTER_COMMITS_REFUSED);
	full.statements_cancelled = stats_counter(COUNTER_STATEMENTS_CANCELLED);
	full.transactions_refused = stats_counter(COUNTER_TRANSACTIONS_REFUSED);
	full.drains = stats_counter(COUNTER_DRAINS);
	full.notifiers_expected = notifier_register_expected();
	full.notifiers_running = notifier_register_running();
	full.has_certificate = settings_ssl_cert_file[0] != '\0' &&
		certificate_read_expiry(settings_ssl_cert_file, &full.certificate_days);

	memcpy(stats, &full, Min(size, sizeof(full)));
}

static int
api_get_candidates(int index, EtcdLeaderCandidate *candidates, int max, Size size, long timeout_ms)
{
	int64		until_us = timeout_ms < 0 ? PG_INT64_MAX :
		clock_now_ns() / NSEC_PER_USEC + timeout_ms * INT64CONST(1000);
	SharedRequest request = {.command = COMMAND_CANDIDATES};
	SharedReply *reply;
	EtcdLeaderStatus row;
	int			n = -1;

	if (index < 0 || index >= settings_election_count())
		return -1;
	status_read_row(index, &row);
	strlcpy(request.election, row.election, sizeof(request.election));
	reply = palloc(sizeof(SharedReply));
	if (mailbox_ask(&request, until_us, reply) && reply->kind == REPLY_CANDIDATES)
		n = Min(reply->ncandidates, max);
	for (int i = 0; i < n; i++)
	{
		const SharedCandidate *candidate = &reply->candidates[i];
		EtcdLeaderCandidate full = {0};

		strlcpy(full.node, candidate->node, sizeof(full.node));
		strlcpy(full.key, candidate->key, sizeof(full.key));
		full.lease_id = candidate->lease;
		full.create_revision = candidate->create_revision;
		full.position = candidate->has_position ? i + 1 : 0;
		full.is_self = status_is_self(&row, candidate->key, candidate->node);
		memcpy((char *) candidates + i * size, &full, Min(size, sizeof(full)));
	}
	pfree(reply);
	return n;
}

static const EtcdLeaderApi api = {
	.version = ETCD_LEADER_API_VERSION,
	.size = sizeof(EtcdLeaderApi),
	.library_version = ETCD_LEADER_VERSION,
	.is_leader = api_is_leader,
	.fencing_token = api_fencing_token,
	.require_leader = api_require_leader,
	.get_status = api_get_status,
	.get_event = api_get_event,
	.change_number = events_change_number,
	.wait_for_change = api_wait_for_change,
	.get_stats = api_get_stats,
	.get_candidates = api_get_candidates,
	.get_problem = api_get_problem
};

void
api_install(void)
{
	*(const EtcdLeaderApi **) find_rendezvous_variable(ETCD_LEADER_API_NAME) = &api;
}
