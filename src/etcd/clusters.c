/*-------------------------------------------------------------------------
 *
 * clusters.c
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
 * clusters name belongs to neither.  An ID that was not told is unknown: it
 * does not mean another cluster.
 *
 * The caller stays in its cluster (etcd_client_keep_cluster()), whatever is
 * told, until another one may be entered.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "clusters.h"
#include "url.h"

/*
 * The least time between two looks at all endpoints, when something about one of
 * them has changed.
 */
#define LOOK_INTERVAL_MS	3000

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

	/* until a cluster may be used, none is foreign */
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

/*
 * Appends why each endpoint of the settings that does not belong to a cluster
 * does not.
 */
static void
describe_rest(const EtcdClient *client, uint64_t cluster_id, char *text, size_t size)
{
	for (int i = 0; i < client->nendpoints; i++)
	{
		const Endpoint *endpoint = &client->endpoints[i];
		size_t		len = strlen(text);

		if (endpoint->learned || cluster_of(endpoint) == cluster_id)
			continue;
		if (endpoint->state.error[0] != '\0')
			snprintf(text + len, size - len, "%s%s", len > 0 ? "; " : "", endpoint->state.error);
		else
			snprintf(text + len, size - len, "%setcd at \"%s\" %s", len > 0 ? "; " : "",
					 endpoint->url,
					 endpoint->named_twice ? "is named by two clusters" :
					 "has not told its cluster");
	}
}

void
etcd_cluster_describe(const EtcdClient *client, const char *url, uint64_t cluster_id, char *message)
{
	int			nmembers = count_members(client, cluster_id);
	char		rest[2 * ETCD_MESSAGE_SIZE] = "";

	if (client->settings.cluster_id != 0)
	{
		etcd_format_message(message, "etcd at \"%s\" is of cluster %" PRIx64 ", and not of the "
							"one in \"etcd_leader.cluster_id\", %" PRIx64,
							url, cluster_id, client->settings.cluster_id);
		return;
	}
	for (int i = 0; i < client->nendpoints; i++)
	{
		uint64_t	other = client->endpoints[i].state.cluster_id;

		if (other == 0 || other == cluster_id)
			continue;
		etcd_format_message(message, "etcd at \"%s\" is of cluster %" PRIx64
							", etcd at \"%s\" of cluster %" PRIx64,
							url, cluster_id, client->endpoints[i].url, other);
		return;
	}
	describe_rest(client, cluster_id, rest, sizeof(rest));
	etcd_format_message(message, "etcd at \"%s\" is of cluster %" PRIx64
						", but %d of %d endpoints %s to it, and more than half must: %s",
						url, cluster_id, nmembers, count_configured(client),
						nmembers == 1 ? "belongs" : "belong", rest);
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

/* Which endpoints of the settings does no member announce, though one announces another? */
static void
note_unannounced(EtcdClient *client, const EtcdAnswer *answer)
{
	bool		any = false;
	size_t		len = 0;

	for (int i = 0; i < client->nendpoints; i++)
		any |= !client->endpoints[i].learned && has_url(answer, client->endpoints[i].url);
	for (int i = 0; i < client->nendpoints; i++)
		client->endpoints[i].unannounced = any && !has_url(answer, client->endpoints[i].url);
	client->announced[0] = '\0';
	for (int i = 0; i < answer->nmembers; i++)
	{
		for (int j = 0; j < answer->members[i].nclient_urls && len < sizeof(client->announced); j++)
			len += snprintf(client->announced + len, sizeof(client->announced) - len, "%s%s",
							len > 0 ? ", " : "", answer->members[i].client_urls[j]);
	}
}

bool
etcd_client_describe_unannounced(const EtcdClient *client, int endpoint, char *message)
{
	if (!client->endpoints[endpoint].unannounced || client->endpoints[endpoint].learned)
		return false;
	etcd_format_message(message, "No member of the cluster announces this URL any more. Remove it "
								 "from the settings. The members announce %s",
						client->announced);
	return true;
}

void
etcd_cluster_look_soon(EtcdClient *client)
{
	client->look_due_ns = client->looked_ns + LOOK_INTERVAL_MS * NSEC_PER_MSEC;
}

void
etcd_cluster_note(EtcdClient *client, Endpoint *endpoint, uint64_t cluster_id)
{
	uint64_t	before = endpoint->state.cluster_id;

	endpoint->state.cluster_id = cluster_id;
	if (before != 0 && before != cluster_id)
		etcd_cluster_look_soon(client);
}

void
etcd_cluster_learn_members(EtcdClient *client, const EtcdAnswer *answer)
{
	uint64_t	cluster_id = answer->header.cluster_id;

	if (etcd_cluster_is_usable(client, cluster_id))
		note_unannounced(client, answer);
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
		client->endpoints[i].unannounced = false;
		client->endpoints[i].is_asked = false;
	}
}

void
etcd_client_keep_cluster(EtcdClient *client, uint64_t cluster_id)
{
	client->kept_cluster_id = cluster_id;
}
