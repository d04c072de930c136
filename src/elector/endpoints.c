/*-------------------------------------------------------------------------
 *
 * endpoints.c
 *	  The endpoints, for the log and for a view.
 *
 * An endpoint of another etcd cluster is a mistake in the settings.  A spare
 * endpoint that does not work is not missed before it is needed.  Each is a WARNING,
 * once until it is over or the configuration is reloaded.  So is a version of
 * etcd that is too old for an election that follows Patroni.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/endpoints.h"
#include "settings/settings.h"

/* What the log has, a bit for each endpoint. */
static uint32 logged_foreign;
static uint32 logged_down;
static bool logged_version;

static void
warn_of_cluster(int endpoint)
{
	char		why[ETCD_MESSAGE_SIZE];

	etcd_client_describe_foreign(elector_client, endpoint, why);
	ereport(WARNING,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("etcd at \"%s\" is not used, as it belongs to another cluster",
					etcd_client_endpoint_url(elector_client, endpoint)),
			 errdetail_internal("%s.", why),
			 errhint("The endpoints must name members of one cluster. Correct \"%s\", or set "
					 "\"%s\".",
					 settings_discovery_srv[0] != '\0' ? "etcd_leader.discovery_srv" :
					 "etcd_leader.endpoints",
					 "etcd_leader.cluster_id")));
}

static void
warn_of_failure(int endpoint)
{
	const char *error = etcd_client_endpoint_state(elector_client, endpoint)->error;
	const char *hint = etcd_hint(error);
	char		gone[ETCD_MESSAGE_SIZE];

	if (etcd_client_describe_unannounced(elector_client, endpoint, gone))
		hint = psprintf("%s.", gone);
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("etcd at \"%s\" cannot be used",
					etcd_client_endpoint_url(elector_client, endpoint)),
			 errdetail_internal("%s.", error),
			 errhint("Another endpoint is in use. This one could not replace it.%s%s",
					 hint != NULL ? " " : "", hint != NULL ? hint : "")));
}

static void
warn_of_version(int endpoint)
{
	const char *version = etcd_client_endpoint_state(elector_client, endpoint)->version;

	if (logged_version || version[0] == '\0' || !settings_follow_patroni() ||
		!election_is_etcd_old(version))
		return;
	logged_version = true;
	ereport(WARNING,
			(errmsg("etcd at \"%s\" has version %s, in which a pause of etcd's leader may end "
					"Patroni's lease",
					etcd_client_endpoint_url(elector_client, endpoint), version),
			 errdetail("A leader of etcd before 3.4.31 or 3.5.13 that was stopped and wakes up may "
					   "revoke leases that its successor has renewed."),
			 errhint("Update etcd to 3.4.31, 3.5.13 or later.")));
}

/* Remembers what is so of an endpoint; is that a change? */
static bool
is_change(uint32 *told, int endpoint, bool is_so)
{
	uint32		bit = UINT32_C(1) << endpoint;
	bool		was_so = (*told & bit) != 0;

	*told = is_so ? *told | bit : *told & ~bit;
	return is_so != was_so;
}

void
elector_check_endpoints(void)
{
	uint32		foreign = etcd_client_foreign_endpoints(elector_client);

	/* without contact, the loss of it is what the log has */
	if (!elector_contact()->connected)
		return;
	for (int i = 0; i < etcd_client_endpoint_count(elector_client); i++)
	{
		const EtcdEndpointState *state = etcd_client_endpoint_state(elector_client, i);
		bool		is_foreign = (foreign & (UINT32_C(1) << i)) != 0;
		bool		is_spare = i != etcd_client_endpoint(elector_client);
		bool		is_told = (logged_down & (UINT32_C(1) << i)) != 0;

		/* a spare endpoint that fails is tried in its turn: that does not make it usable */
		bool		is_down = !is_foreign && state->down && (is_spare || is_told);

		warn_of_version(i);
		if (!etcd_client_endpoint_is_configured(elector_client, i))
			continue;
		if (is_change(&logged_foreign, i, is_foreign) && is_foreign)
			warn_of_cluster(i);
		if (!is_change(&logged_down, i, is_down))
			continue;
		if (is_down)
			warn_of_failure(i);
		else if (!is_foreign)
			ereport(LOG,
					(errmsg("etcd at \"%s\" can be used again",
							etcd_client_endpoint_url(elector_client, i))));
	}
}

void
elector_check_endpoints_anew(void)
{
	logged_foreign = 0;
	logged_down = 0;
	logged_version = false;
}

/* ---- for the view ---------------------------------------------------- */

static void
describe(int endpoint, bool is_foreign, const SharedEndpoints *before, SharedEndpoint *row)
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

	if (is_foreign)
		etcd_client_describe_foreign(elector_client, endpoint, row->last_error);
	else
		strlcpy(row->last_error, state->error, sizeof(row->last_error));
}

void
elector_publish_endpoints(void)
{
	static SharedEndpoints published;
	static SharedEndpoints current;
	uint32		foreign = etcd_client_foreign_endpoints(elector_client);

	memset(&current, 0, sizeof(current));
	current.nendpoints = etcd_client_endpoint_count(elector_client);
	for (int i = 0; i < current.nendpoints; i++)
		describe(i, (foreign & (UINT32_C(1) << i)) != 0, &published, &current.endpoints[i]);
	if (memcmp(&current, &published, sizeof(SharedEndpoints)) == 0)
		return;
	published = current;
	shared_state_publish_endpoints(&published);
}
