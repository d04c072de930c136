/*-------------------------------------------------------------------------
 *
 * endpoints.c
 *	  The endpoints: what is wrong with them, and their rows for readers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/endpoints.h"
#include "elector/problems.h"
#include "settings/settings.h"

/* So long before its end, a certificate should be renewed. */
#define RENEWAL_DAYS	30

/* ---- what is wrong with them ------------------------------------------- */

static const char *
url_of(int endpoint)
{
	return etcd_client_endpoint_url(elector_client, endpoint);
}

/* Those of another cluster, a bit each, as of this turn. */
static uint32 foreign_endpoints;

static bool
is_foreign(int endpoint)
{
	return (foreign_endpoints & (UINT32_C(1) << endpoint)) != 0;
}

static void
find_foreign(int endpoint)
{
	char		why[ETCD_MESSAGE_SIZE];

	etcd_client_describe_foreign(elector_client, endpoint, why);
	problem_begin(PROBLEM_CLUSTER, url_of(endpoint), PROBLEM_THIS_TURN, NULL,
				  "etcd at \"%s\" is not used, as it belongs to another cluster: %s",
				  url_of(endpoint), why);
}

/*
 * Does an endpoint fail?  The endpoint in use may have failed for a while before another
 * one is used.  The failure of a single one is the lack of contact, and no problem
 * of its own.
 */
static bool
is_failing(int endpoint)
{
	const EtcdEndpointState *state = etcd_client_endpoint_state(elector_client, endpoint);
	bool		is_connected = elector_contact()->connected;
	bool		is_spare = endpoint != etcd_client_endpoint(elector_client);

	if (state->connect_error[0] == '\0' && !state->down)
		return false;
	if (problem_is_there(PROBLEM_ENDPOINT, url_of(endpoint)))
		return true;
	if (!is_connected)
		return etcd_client_endpoint_count(elector_client) > 1;
	return state->connect_error[0] != '\0' || is_spare;
}

static void
find_failing(int endpoint)
{
	const EtcdEndpointState *state = etcd_client_endpoint_state(elector_client, endpoint);
	const char *error = state->connect_error[0] != '\0' ? state->connect_error : state->error;
	char		gone[ETCD_MESSAGE_SIZE];
	const char *hint;

	if (state->is_learner)
	{
		problem_begin(PROBLEM_ENDPOINT, url_of(endpoint), PROBLEM_THIS_TURN,
					  etcd_hint(ETCD_LEARNER_REFUSAL),
					  "etcd at \"%s\" is a learner, which serves no requests", url_of(endpoint));
		return;
	}
	if (!is_failing(endpoint))
		return;
	hint = etcd_hint(error);
	if (etcd_client_describe_unannounced(elector_client, endpoint, gone))
		hint = psprintf("%s%s%s.", hint != NULL ? hint : "", hint != NULL ? " " : "", gone);
	problem_begin(PROBLEM_ENDPOINT, url_of(endpoint), PROBLEM_THIS_TURN, hint,
				  "etcd at \"%s\" cannot be used: %s", url_of(endpoint), error);
}

static const char *
hint_of_alarm(const char *alarms)
{
	if (strstr(alarms, "NOSPACE") != NULL)
		return "Compact and defragment etcd, then run \"etcdctl alarm disarm\".";
	if (strstr(alarms, "CORRUPT") != NULL)
		return "Remove the member whose data differ from the cluster, add it anew, then run "
			"\"etcdctl alarm disarm\".";
	return NULL;
}

/* What a member says of itself. */
static void
find_complaints(int endpoint)
{
	const EtcdEndpointState *state = etcd_client_endpoint_state(elector_client, endpoint);

	if (state->alarms[0] != '\0')
		problem_begin(PROBLEM_ALARM, url_of(endpoint), PROBLEM_THIS_TURN,
					  hint_of_alarm(state->alarms),
					  "etcd at \"%s\" reports: %s", url_of(endpoint), state->alarms);
}

static void
find_version(int endpoint)
{
	const char *version = etcd_client_endpoint_state(elector_client, endpoint)->version;
	int			major = 0;
	int			minor = 0;
	int			patch = 0;
	const char *fault;

	if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) != 3)
		return;
	if (major == 3 && minor < 4)
		fault = "is older than 3.4, which etcd_leader needs";
	else if (major == 3 && minor == 5 && patch < 3)
		fault = "may corrupt its data when a member is killed";
	else if (settings_follow_patroni() && election_is_etcd_old(version))
		fault = "may end Patroni's lease after a pause of etcd's leader";
	else
		return;
	problem_begin(PROBLEM_VERSION, url_of(endpoint), PROBLEM_THIS_TURN,
				  "Update etcd to the newest release of its line.",
				  "etcd at \"%s\" has version %s, which %s", url_of(endpoint), version, fault);
}

static void
find_expiry(int endpoint)
{
	int64		end_s = etcd_client_certificate_end_s(elector_client, endpoint);

	if (end_s != 0)
		elector_find_expiry(url_of(endpoint), "of etcd at",
							(end_s - (double) time(NULL)) / SECS_PER_DAY,
							"Renew the certificate of this member of etcd.");
}

static void
find_open(int endpoint)
{
	if (settings_exposes_password(url_of(endpoint)))
		problem_begin(PROBLEM_ENCRYPTION, url_of(endpoint), PROBLEM_THIS_TURN,
					  etcd_client_endpoint_is_configured(elector_client, endpoint) ?
					  "Use a URL that begins with \"https://\" in \"etcd_leader.endpoints\", or a "
					  "Unix socket." :
					  "A member of etcd announces this URL as its own. Have etcd announce a URL "
					  "that begins with \"https://\" (\"--advertise-client-urls\"), and use such "
					  "URLs in \"etcd_leader.endpoints\".",
					  "the password of etcd's user \"%s\" is sent to \"%s\" without encryption",
					  settings_username, url_of(endpoint));
}

/*
 * Two majorities may be in danger.  One more failure of an endpoint may cost the quorum of
 * etcd.  And an elector that starts enters a cluster only if more than half of the
 * endpoints belong to it (clusters.c).
 */
static void
find_majority(void)
{
	int			nendpoints = 0;
	int			nforeign = 0;
	int			nfailing = 0;
	bool		is_known = true;

	for (int i = 0; i < etcd_client_endpoint_count(elector_client); i++)
	{
		if (!etcd_client_endpoint_is_configured(elector_client, i))
			continue;
		nendpoints++;
		if (is_foreign(i))
			nforeign++;
		else if (problem_is_there(PROBLEM_ENDPOINT, url_of(i)))
			nfailing++;
		else if (etcd_client_endpoint_state(elector_client, i)->cluster_id == 0)
			is_known = false;
	}
	if (!elector_contact()->connected || !is_known)
	{
		problem_keep(PROBLEM_CLUSTER, "");
		problem_keep(PROBLEM_MAJORITY, "");
	}
	else if (settings_cluster_id == 0 && 2 * (nforeign + nfailing) >= nendpoints && nendpoints > 1)
		problem_begin(PROBLEM_CLUSTER, "", PROBLEM_THIS_TURN, NULL,
					  "%d of %d endpoints belong to the etcd cluster in use, and more than half "
					  "must: after a restart, this instance would not lead",
					  nendpoints - nforeign - nfailing, nendpoints);
	else if (nfailing > 0 && nendpoints - nforeign > 2 &&
			 nfailing >= (nendpoints - nforeign - 1) / 2)
		problem_begin(PROBLEM_MAJORITY, "", PROBLEM_THIS_TURN,
					  "Mend the endpoints that cannot be used, before one more fails.",
					  "%d of %d endpoints cannot be used, and etcd needs most of its members",
					  nfailing, nendpoints - nforeign);
}

void
elector_find_endpoint_problems(void)
{
	foreign_endpoints = etcd_client_foreign_endpoints(elector_client);
	for (int i = 0; i < etcd_client_endpoint_count(elector_client); i++)
	{
		find_version(i);
		find_open(i);
		if (!etcd_client_endpoint_is_configured(elector_client, i))
			continue;
		if (is_foreign(i))
		{
			find_foreign(i);
			continue;
		}
		/* after a reload, each is asked again */
		if (etcd_client_endpoint_state(elector_client, i)->cluster_id == 0)
			problem_keep(PROBLEM_CLUSTER, url_of(i));
		find_failing(i);
		find_complaints(i);
		find_expiry(i);
	}
	find_majority();
}

void
elector_find_expiry(const char *subject, const char *where, double days, const char *hint)
{
	if (days < 0)
		problem_begin(PROBLEM_CERTIFICATE, subject, PROBLEM_THIS_TURN, hint,
					  "the certificate %s \"%s\" has expired", where, subject);
	else if (days < RENEWAL_DAYS)
		problem_begin(PROBLEM_EXPIRY, subject, PROBLEM_THIS_TURN, hint,
					  "the certificate %s \"%s\" expires in %d days", where, subject, (int) days);
}

/* ---- for the view ---------------------------------------------------- */

static void
describe(int endpoint, const SharedEndpoints *before, SharedEndpoint *row)
{
	const EtcdEndpointState *state = etcd_client_endpoint_state(elector_client, endpoint);

	strlcpy(row->url, etcd_client_endpoint_url(elector_client, endpoint), sizeof(row->url));
	row->in_use = endpoint == etcd_client_endpoint(elector_client);
	strlcpy(row->version, state->version, sizeof(row->version));
	row->cluster_id = state->cluster_id;
	strlcpy(row->member_name, state->member_name, sizeof(row->member_name));
	row->answered_ns = state->answered_ns;
	row->latency_ns = state->latency_ns;

	/* the wall clock is read once for each answer, so that the row changes with answers alone */
	if (state->answered_ns == 0)
		row->last_contact = 0;
	else if (endpoint < before->nendpoints &&
			 before->endpoints[endpoint].answered_ns == state->answered_ns)
		row->last_contact = before->endpoints[endpoint].last_contact;
	else
		row->last_contact =
			GetCurrentTimestamp() - (clock_monotonic_ns() - state->answered_ns) / NSEC_PER_USEC;

	if (is_foreign(endpoint))
		etcd_client_describe_foreign(elector_client, endpoint, row->last_error);
	else
		strlcpy(row->last_error, state->connect_error[0] != '\0' ? state->connect_error :
				state->error, sizeof(row->last_error));
}

void
elector_publish_endpoints(void)
{
	static SharedEndpoints published;
	static SharedEndpoints current;

	memset(&current, 0, sizeof(current));
	current.nendpoints = etcd_client_endpoint_count(elector_client);
	for (int i = 0; i < current.nendpoints; i++)
		describe(i, &published, &current.endpoints[i]);
	if (memcmp(&current, &published, sizeof(SharedEndpoints)) == 0)
		return;
	published = current;
	shared_state_publish_endpoints(&published);
}
