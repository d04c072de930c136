/*-------------------------------------------------------------------------
 *
 * elector_endpoints.c
 *	  Endpoints that are not used, for the log.
 *
 * An endpoint of another etcd cluster is a mistake in the settings.  A spare
 * endpoint that does not work is not missed before it is needed.  Each is a WARNING,
 * once until it is over or the configuration is reloaded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "elector_internal.h"
#include "settings/settings.h"

/* Of what the log has been told, a bit for each endpoint. */
static uint32 told_foreign;
static uint32 told_down;

static void
warn_of_cluster(int endpoint)
{
	char		why[ETCD_MESSAGE_SIZE];

	etcd_client_describe_foreign(elector.client, endpoint, why);
	ereport(WARNING,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("etcd at \"%s\" is not used, as it belongs to another cluster",
					etcd_client_endpoint_url(elector.client, endpoint)),
			 errdetail_internal("%s.", why),
			 errhint("The endpoints must name members of one cluster. Correct \"%s\", or set \"%s\".",
					 settings_discovery_srv[0] != '\0' ? "etcd_leader.discovery_srv" : "etcd_leader.endpoints",
					 "etcd_leader.cluster_id")));
}

static void
warn_of_failure(int endpoint)
{
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("etcd at \"%s\" cannot be used", etcd_client_endpoint_url(elector.client, endpoint)),
			 errdetail_internal("%s.", etcd_client_endpoint_state(elector.client, endpoint)->error),
			 errhint("Another endpoint is in use. This one could not replace it.")));
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
	uint32		foreign = etcd_client_foreign_endpoints(elector.client);

	/* without contact, the loss of it is what the log has */
	if (!elector.contact.connected)
		return;
	for (int i = 0; i < etcd_client_endpoint_count(elector.client); i++)
	{
		const EtcdEndpointState *state = etcd_client_endpoint_state(elector.client, i);
		bool		is_foreign = (foreign & (UINT32_C(1) << i)) != 0;
		bool		is_down = !is_foreign && i != etcd_client_endpoint(elector.client) && state->down;

		if (!etcd_client_endpoint_is_configured(elector.client, i))
			continue;
		if (is_change(&told_foreign, i, is_foreign) && is_foreign)
			warn_of_cluster(i);
		if (!is_change(&told_down, i, is_down))
			continue;
		if (is_down)
			warn_of_failure(i);
		else if (!is_foreign)
			ereport(LOG,
					(errmsg("etcd at \"%s\" can be used again", etcd_client_endpoint_url(elector.client, i))));
	}
}

void
elector_check_endpoints_anew(void)
{
	told_foreign = 0;
	told_down = 0;
}
