/*-------------------------------------------------------------------------
 *
 * etcd_clusters.c
 *	  The etcd clusters of the endpoints, and which of them may be used.
 *
 * If the settings name endpoints of two clusters, two instances must not use
 * different ones: each cluster would elect a leader.  So a cluster is entered
 * only if the settings name it, or if more than half of the configured
 * endpoints belong to it.  Two such halves share an endpoint.  So instances
 * with the same list agree, in whatever order it is, and whatever is down.
 *
 * An endpoint belongs to the cluster whose ID it has told, or else to the one
 * whose list of members has its URL.  A URL of the loopback does not count in
 * such a list: it is another endpoint on each host.  An endpoint that two
 * clusters name belongs to neither.  An ID that was not told is unknown, and
 * not another one.
 *
 * The caller stays in its cluster (etcd_client_keep_cluster()), whatever is
 * told, until another one may be entered.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "etcd_client_internal.h"
#include "etcd_url.h"

/* ---- the rule -------------------------------------------------------- */

/* The cluster of an endpoint; 0: unknown. */
static uint64_t
cluster_of(const Endpoint *endpoint)
{
	if (endpoint->state.cluster_id != 0)
		return endpoint->state.cluster_id;
	return endpoint->named_twice ? 0 : endpoint->named_by;
}

static int
count_configured(const EtcdClient *client)
{
	int			n = 0;

	for (int i = 0; i < client->nendpoints; i++)
		n += !client->endpoints[i].learned;
	return n;
}

/* How many of the configured endpoints belong to that cluster? */
static int
count_members(const EtcdClient *client, uint64_t cluster_id)
{
	int			n = 0;

	for (int i = 0; i < client->nendpoints; i++)
		n += !client->endpoints[i].learned && cluster_of(&client->endpoints[i]) == cluster_id;
	return n;
}

/* The cluster that may be entered; 0: none is known. */
static uint64_t
enterable_cluster(const EtcdClient *client)
{
	if (client->settings.cluster_id != 0)
		return client->settings.cluster_id;
	for (int i = 0; i < client->nendpoints; i++)
	{
		uint64_t	cluster_id = cluster_of(&client->endpoints[i]);

		if (cluster_id != 0 && 2 * count_members(client, cluster_id) > count_configured(client))
			return cluster_id;
	}
	return 0;
}

uint64_t
etcd_client_usable_cluster(const EtcdClient *client)
{
	uint64_t	enterable = enterable_cluster(client);

	return enterable != 0 ? enterable : client->kept_cluster_id;
}

bool
etcd_cluster_is_usable(const EtcdClient *client, uint64_t cluster_id)
{
	return cluster_id != 0 && cluster_id == etcd_client_usable_cluster(client);
}

bool
etcd_cluster_is_known(const EtcdClient *client)
{
	return etcd_client_usable_cluster(client) != 0;
}

uint32_t
etcd_client_foreign_endpoints(const EtcdClient *client)
{
	uint64_t	usable = etcd_client_usable_cluster(client);
	uint32_t	foreign = 0;

	/* before any cluster may be used, none is another one */
	for (int i = 0; i < client->nendpoints && usable != 0; i++)
	{
		uint64_t	cluster_id = client->endpoints[i].state.cluster_id;

		if (cluster_id != 0 && cluster_id != usable)
			foreign |= UINT32_C(1) << i;
	}
	return foreign;
}

bool
etcd_client_awaits_cluster(const EtcdClient *client)
{
	bool		asking = false;

	for (int i = 0; i < client->nendpoints; i++)
		asking |= client->endpoints[i].is_asked;
	return asking && !etcd_cluster_is_known(client);
}

int
etcd_find_usable_endpoint(const EtcdClient *client, int first)
{
	uint32_t	foreign = etcd_client_foreign_endpoints(client);

	for (int i = 0; i < client->nendpoints; i++)
	{
		int			endpoint = (first + i) % client->nendpoints;

		if ((foreign & (UINT32_C(1) << endpoint)) == 0)
			return endpoint;
	}
	return first % client->nendpoints;
}

void
etcd_cluster_describe(const EtcdClient *client, const char *url, uint64_t cluster_id, char *message)
{
	if (client->settings.cluster_id != 0)
	{
		etcd_format_message(message, "etcd at \"%s\" is of cluster %" PRIx64 ", and not of the one in \"etcd_leader.cluster_id\", %" PRIx64,
							url, cluster_id, client->settings.cluster_id);
		return;
	}
	for (int i = 0; i < client->nendpoints; i++)
	{
		uint64_t	other = client->endpoints[i].state.cluster_id;

		if (other == 0 || other == cluster_id)
			continue;
		etcd_format_message(message, "etcd at \"%s\" is of cluster %" PRIx64 ", etcd at \"%s\" of cluster %" PRIx64,
							url, cluster_id, client->endpoints[i].url, other);
		return;
	}
	etcd_format_message(message, "etcd at \"%s\" is of cluster %" PRIx64 ", but no more than %d of the %d endpoints are known to be",
						url, cluster_id, count_members(client, cluster_id), count_configured(client));
}

void
etcd_client_describe_foreign(const EtcdClient *client, int endpoint, char *message)
{
	etcd_cluster_describe(client, client->endpoints[endpoint].url,
						  client->endpoints[endpoint].state.cluster_id, message);
}

/* ---- what endpoints and members tell --------------------------------- */

/* A socket is one of this host, too. */
static bool
is_loopback(const char *url)
{
	EtcdUrl		parts;

	return !etcd_split_url(url, &parts) || etcd_is_loopback(&parts);
}

static bool
has_url(const EtcdAnswer *answer, const char *url)
{
	for (int i = 0; i < answer->nmembers; i++)
	{
		for (int j = 0; j < answer->members[i].nclient_urls; j++)
		{
			if (etcd_is_same_url(answer->members[i].client_urls[j], url))
				return true;
		}
	}
	return false;
}

void
etcd_cluster_learn_members(EtcdClient *client, const EtcdAnswer *answer)
{
	uint64_t	cluster_id = answer->header.cluster_id;

	for (int i = 0; i < client->nendpoints; i++)
	{
		Endpoint   *endpoint = &client->endpoints[i];

		if (is_loopback(endpoint->url))
			continue;
		if (!has_url(answer, endpoint->url))
		{
			if (endpoint->named_by == cluster_id)
			{
				endpoint->named_by = 0;
				endpoint->named_twice = false;
			}
		}
		else if (endpoint->named_by == 0)
			endpoint->named_by = cluster_id;
		else if (endpoint->named_by != cluster_id)
			endpoint->named_twice = true;
	}
}

void
etcd_client_forget_clusters(EtcdClient *client)
{
	client->probe_due_ns = 0;
	for (int i = 0; i < client->nendpoints; i++)
	{
		client->endpoints[i].state.cluster_id = 0;
		client->endpoints[i].named_by = 0;
		client->endpoints[i].named_twice = false;
		client->endpoints[i].is_asked = false;
	}
}

void
etcd_client_keep_cluster(EtcdClient *client, uint64_t cluster_id)
{
	client->kept_cluster_id = cluster_id;
}
