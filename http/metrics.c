/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  Metrics for Prometheus.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "http.h"

/* The lines before the samples of a metric. */
static void
begin_metric(StringInfo out, const char *name, const char *type, const char *help)
{
	appendStringInfo(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Text within the quotes of a label. */
static void
append_label(StringInfo out, const char *text)
{
	for (const char *c = http_valid_text(text); *c != '\0'; c++)
	{
		if (*c == '"' || *c == '\\')
			appendStringInfo(out, "\\%c", *c);
		else
			appendStringInfoChar(out, *c);
	}
}

/* name{label="value"} number */
static void
append_sample(StringInfo out, const char *name, const char *label, const char *value, double number)
{
	appendStringInfo(out, "%s{%s=\"", name, label);
	append_label(out, value);
	appendStringInfo(out, "\"} %.15g\n", number);
}

/* A metric that has one sample, without a label. */
static void
append_metric(StringInfo out, const char *name, const char *type, const char *help, int64 number)
{
	begin_metric(out, name, type, help);
	appendStringInfo(out, "%s " INT64_FORMAT "\n", name, number);
}

static double
unix_seconds(TimestampTz at)
{
	return at == 0 ? 0 : (double) at / USECS_PER_SEC +
		(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (double) SECS_PER_DAY;
}

/* ---- of each election ------------------------------------------------------------ */

static double
is_leader(const EtcdLeaderStatus *status)
{
	return status->is_leader;
}

static double
is_draining(const EtcdLeaderStatus *status)
{
	return status->is_draining;
}

static double
is_candidate(const EtcdLeaderStatus *status)
{
	return status->create_revision != 0;
}

static double
valid_for(const EtcdLeaderStatus *status)
{
	return (double) status->valid_for_us / USECS_PER_SEC;
}

static double
fencing_token(const EtcdLeaderStatus *status)
{
	return status->is_leader ? status->fencing_token : 0;
}

static const struct
{
	const char *name;
	const char *label;
	const char *help;
	double		(*value) (const EtcdLeaderStatus *status);
}			gauges[] = {
	{"etcd_leader_is_leader", "election", "Whether this instance leads the election.", is_leader},
	{"etcd_leader_draining", "election",
	 "Whether this instance hands over leadership, and waits for transactions before.",
	 is_draining},
	{"etcd_leader_is_candidate", "election",
	 "Whether this instance is in the queue of the election, as its leader or behind it.",
	 is_candidate},
	{"etcd_leader_valid_for_seconds", "election",
	 "How long this instance leads at least, without another renewal; 0 if it does not lead.",
	 valid_for},
	{"etcd_leader_fencing_token", "election",
	 "The fencing token under which this instance leads; 0 if it does not lead.", fencing_token},
	{"leader_election_master_status", "name",
	 "Whether this instance leads the election, by the name that client-go uses.", is_leader}
};

static void
append_elections(StringInfo out)
{
	EtcdLeaderStatus status;

	for (Size g = 0; g < lengthof(gauges); g++)
	{
		begin_metric(out, gauges[g].name, "gauge", gauges[g].help);
		for (int i = 0; http_api->get_status(i, &status, sizeof(status)); i++)
			append_sample(out, gauges[g].name, gauges[g].label, status.election,
						  gauges[g].value(&status));
	}
}

/* ---- of the instance --------------------------------------------------------------- */

static void
append_contact(StringInfo out, const EtcdLeaderStatus *status)
{
	append_metric(out, "etcd_leader_connected", "gauge",
				  "Whether the elector runs and has contact with etcd.", status->connected);
	begin_metric(out, "etcd_leader_last_contact_timestamp_seconds", "gauge",
				 "When etcd answered last, in Unix time; 0 if it never did.");
	appendStringInfo(out, "etcd_leader_last_contact_timestamp_seconds %.6f\n",
					 unix_seconds(status->last_contact));
	begin_metric(out, "etcd_leader_info", "gauge",
				 "The name of this instance, who leads the first election, the ID of the etcd "
				 "cluster in hex, and the version of etcd_leader.");
	appendStringInfoString(out, "etcd_leader_info{node=\"");
	append_label(out, status->node);
	appendStringInfoString(out, "\",leader=\"");
	append_label(out, status->leader);
	appendStringInfoString(out, "\",cluster_id=\"");
	if (status->cluster_id != 0)
		appendStringInfo(out, "%llx", (unsigned long long) status->cluster_id);
	appendStringInfo(out, "\",version=\"%s\"} 1\n", http_api->library_version);
	begin_metric(out, "etcd_leader_ttl_seconds", "gauge",
				 "The TTL in force: of the lease in use, or of the settings if that is less.");
	appendStringInfo(out, "etcd_leader_ttl_seconds %g\n", (double) status->ttl_ms / 1000);
}

/* A sample for each severity, and for each problem. */
static void
append_problems(StringInfo out)
{
	const char *counts = "etcd_leader_problems";
	const char *each = "etcd_leader_problem";
	EtcdLeaderProblem problem;
	int			nerrors = 0;
	int			n = 0;

	begin_metric(out, each, "gauge", "A row of the view etcd_leader_problems.");
	for (; http_api->get_problem(n, &problem, sizeof(problem)); n++)
	{
		nerrors += strcmp(problem.severity, "error") == 0;
		appendStringInfo(out, "%s{item=\"%s\",subject=\"", each, problem.item);
		append_label(out, problem.subject);
		appendStringInfo(out, "\",severity=\"%s\"} 1\n", problem.severity);
	}
	begin_metric(out, counts, "gauge", "The number of rows of that view, by severity.");
	append_sample(out, counts, "severity", "error", nerrors);
	append_sample(out, counts, "severity", "warning", n - nerrors);
}

static void
append_durations(StringInfo out, const EtcdLeaderStats *stats)
{
	const char *name = "etcd_leader_request_duration_seconds";

	begin_metric(out, name, "histogram", "How long etcd's answers took.");
	for (int i = 0; i < stats->nbuckets; i++)
		appendStringInfo(out, "%s_bucket{le=\"%g\"} " INT64_FORMAT "\n", name,
						 (double) stats->latency_buckets[i].limit_ns / 1e9,
						 stats->latency_buckets[i].count);
	appendStringInfo(out, "%s_bucket{le=\"+Inf\"} " INT64_FORMAT "\n", name, stats->answers);
	appendStringInfo(out, "%s_sum %.9f\n", name, (double) stats->latency_sum_ns / 1e9);
	appendStringInfo(out, "%s_count " INT64_FORMAT "\n", name, stats->answers);
}

static void
append_stats(StringInfo out, const EtcdLeaderStats *stats)
{
	const char *lost = "etcd_leader_elections_lost_total";
	const char *hooks = "etcd_leader_hook_runs_total";

	append_metric(out, "etcd_leader_elections_won_total", "counter",
				  "How often this instance was elected.", stats->elections_won);
	begin_metric(out, lost, "counter", "How often this instance ceased to lead, by reason.");
	for (int i = 0; i < stats->nreasons; i++)
		append_sample(out, lost, "reason", stats->elections_lost[i].reason,
					  stats->elections_lost[i].count);
	append_metric(out, "etcd_leader_requests_total", "counter", "Requests that were sent to etcd.",
				  stats->requests);
	append_metric(out, "etcd_leader_request_failures_total", "counter",
				  "Requests that etcd did not answer, or refused.", stats->failures);
	append_metric(out, "etcd_leader_endpoint_switches_total", "counter",
				  "How often another endpoint of etcd was taken into use.",
				  stats->endpoint_switches);
	append_durations(out, stats);
	append_metric(out, "etcd_leader_notifications_total", "counter",
				  "Notifications that were sent, in all databases.", stats->notifications_sent);
	append_metric(out, "etcd_leader_request_timeouts_total", "counter",
				  "Requests that etcd did not answer in time.", stats->timeouts);
	append_metric(out, "etcd_leader_notifiers_expected", "gauge",
				  "Notifiers that should run now; 0 on a standby.", stats->notifiers_expected);
	append_metric(out, "etcd_leader_notifiers_running", "gauge", "Notifiers that run now.",
				  stats->notifiers_running);
	append_metric(out, "etcd_leader_commits_refused_total", "counter",
				  "Commits that were refused because this instance did not lead.",
				  stats->commits_refused);
	append_metric(out, "etcd_leader_statements_cancelled_total", "counter",
				  "Running statements that were cancelled after a loss of leadership.",
				  stats->statements_cancelled);
	append_metric(out, "etcd_leader_drains_total", "counter",
				  "Hand-overs that waited for transactions.", stats->drains);
	append_metric(out, "etcd_leader_transactions_refused_total", "counter",
				  "Calls that required leadership while the instance drained.",
				  stats->transactions_refused);
	begin_metric(out, "etcd_leader_certificate_expires_seconds", "gauge",
				 "Seconds until the client certificate for etcd expires; negative if it has "
				 "expired.");
	if (stats->has_certificate)
		appendStringInfo(out, "etcd_leader_certificate_expires_seconds %.0f\n",
						 stats->certificate_days * SECS_PER_DAY);
	begin_metric(out, hooks, "counter", "Runs of hooks that have ended, by status.");
	for (int i = 0; i < stats->nhook_statuses; i++)
		append_sample(out, hooks, "status", stats->hook_runs[i].status, stats->hook_runs[i].count);
}

void
http_append_metrics(StringInfo out)
{
	EtcdLeaderStatus status = {0};
	EtcdLeaderStats stats = {0};

	append_elections(out);
	if (http_api->get_status(0, &status, sizeof(status)))
		append_contact(out, &status);
	append_problems(out);
	http_api->get_stats(&stats, sizeof(stats));
	append_stats(out, &stats);
}
