/*-------------------------------------------------------------------------
 *
 * contact.c
 *	  The contact with etcd: answers and failures.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/problems.h"
#include "settings/settings.h"
#include "shared/stats.h"

/* Without contact for so long after the start, something is wrong. */
#define CONTACT_PATIENCE_MS	3000

/* So many slow answers within that time are a problem, for so long. */
#define SLOW_ANSWERS		5
#define SLOW_WINDOW_MS		60000
#define SLOW_LASTS_MS		600000

static SharedContact contact;
static bool contact_changed;	/* since it was published */
static int64 failed_ns;			/* when a request failed last */
static int64 patient_until_ns;	/* the lack of contact is no problem before */

const SharedContact *
elector_contact(void)
{
	return &contact;
}

void
elector_note_failure(const char *message)
{
	failed_ns = clock_now_ns();
	strlcpy(contact.last_failure, message, sizeof(contact.last_failure));
	contact_changed = true;
}

const char *
elector_recent_failure(void)
{
	return clock_now_ns() - failed_ns < settings_ttl_s * NSEC_PER_SEC ? contact.last_failure : NULL;
}

void
elector_note_endpoint(void)
{
	int			endpoint = etcd_client_endpoint(elector_client);
	const char *url = etcd_client_endpoint_url(elector_client, endpoint);
	EtcdDialect dialect = etcd_client_dialect(elector_client);

	contact_changed |= dialect != contact.dialect;
	contact.dialect = dialect;
	if (strcmp(url, contact.endpoint) == 0)
		return;
	if (contact.endpoint[0] != '\0')
		stats_count(COUNTER_ENDPOINT_SWITCHES, 1);
	strlcpy(contact.endpoint, url, sizeof(contact.endpoint));
	contact_changed = true;
}

/* A request that takes more than half of its time is near to failing. */
void
elector_note_latency(int64 latency_ns)
{
	static int64 slow_since_ns = 0;
	static int	nslow = 0;
	int64		now_ns = clock_now_ns();
	int			timeout_ms = settings_resolve_timeout_ms(settings_request_timeout_ms,
														 settings_ttl_s * 1000);

	if (latency_ns * 2 <= timeout_ms * NSEC_PER_MSEC)
		return;
	if (now_ns - slow_since_ns > SLOW_WINDOW_MS * NSEC_PER_MSEC)
	{
		slow_since_ns = now_ns;
		nslow = 0;
	}
	if (++nslow < SLOW_ANSWERS)
		return;
	problem_begin(PROBLEM_TTL, "latency", now_ns + SLOW_LASTS_MS * NSEC_PER_MSEC,
				  "Find out why etcd or the network is slow, or raise \"etcd_leader.ttl\".",
				  "answers of etcd took more than half of the request time-out, which is %d ms, in "
				  "the last ten minutes",
				  timeout_ms);
}

void
elector_count_answer(const EtcdAnswer *answer, const EtcdTiming *timing)
{
	if (answer->outcome == ETCD_ANSWERED)
	{
		stats_count_latency(timing->latency_ns);
		contact.last_contact = GetCurrentTimestamp();
		contact_changed = true;
	}
	else
	{
		stats_count(COUNTER_FAILURES, 1);
		if (timing->timed_out)
			stats_count(COUNTER_TIMEOUTS, 1);
		/* The failure of an endpoint that a reload has removed explains nothing. */
		if (!timing->endpoint_gone)
			elector_note_failure(answer->message);
	}
	elector_note_endpoint();
}

int64
elector_judge_contact(void)
{
	int64		now_ns = clock_now_ns();

	if (patient_until_ns == 0)
		patient_until_ns = now_ns + CONTACT_PATIENCE_MS * NSEC_PER_MSEC;
	/* without an election nothing is asked */
	if (contact.connected || settings_election_count() == 0)
	{
		problem_end(PROBLEM_CONTACT, "");
		return PG_INT64_MAX;
	}
	if (now_ns < patient_until_ns)
		return patient_until_ns;
	if (contact.last_failure[0] == '\0')
		problem_begin(PROBLEM_CONTACT, "", PROBLEM_LASTS, NULL,
					  "no contact with etcd, so this instance cannot become or stay leader");
	else
		problem_begin(PROBLEM_CONTACT, "", PROBLEM_LASTS, NULL,
					  "no contact with etcd, so this instance cannot become or stay leader: %s",
					  contact.last_failure);
	return PG_INT64_MAX;
}

void
elector_note_connected(bool connected)
{
	contact.connected = connected;
	contact_changed = true;
}

void
elector_note_node_name(const char *name)
{
	strlcpy(contact.node_name, name, sizeof(contact.node_name));
	shared_state_publish_contact(&contact);
}

void
elector_publish_contact(void)
{
	uint64		cluster_id = election_cluster_id(elector_core);
	int64		ttl_ms = election_ttl_ns(elector_core, clock_now_ns()) / NSEC_PER_MSEC;

	contact_changed |= cluster_id != contact.cluster_id || ttl_ms != contact.ttl_ms;
	contact.cluster_id = cluster_id;
	contact.ttl_ms = ttl_ms;
	if (!contact_changed)
		return;
	shared_state_publish_contact(&contact);
	contact_changed = false;
}
