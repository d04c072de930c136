/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The values of the GUCs, as they are used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "etcd/endpoint_url.h"
#include "settings.h"

/* How often each endpoint is asked for its status: once in a TTL, within these bounds. */
#define MIN_PROBE_INTERVAL_MS	5000
#define MAX_PROBE_INTERVAL_MS	20000

/* GUCs */
char	   *settings_endpoints;
char	   *settings_discovery_srv;
uint64		settings_cluster_id;
char	   *settings_username;
char	   *settings_password_file;
char	   *settings_ssl_ca_file;
char	   *settings_ssl_cert_file;
char	   *settings_ssl_key_file;
int			settings_ssl_min_protocol_version;
int			settings_protocol;
char	   *settings_elections;
char	   *settings_watched_prefixes;
char	   *settings_node_name;
char	   *settings_patroni_namespace;
int			settings_ttl_s;
int			settings_safety_margin_ms;
char	   *settings_preferred_nodes;
int			settings_preferred_delay_ms;
int			settings_drain_timeout_ms;
int			settings_candidate;
int			settings_second_primary;
char	   *settings_notify_databases;
char	   *settings_notify_channel;
int			settings_request_timeout_ms;
int			settings_connect_timeout_ms;
char	   *settings_require_leadership_of;
bool		settings_cancel_on_loss;
char	   *settings_read_only_unless_leader_of;
char	   *settings_http_listen;
char	   *settings_http_ssl_cert_file;
char	   *settings_http_ssl_key_file;
char	   *settings_http_agent_listen;
int			settings_hooks_max_workers;
char	   *settings_hooks_file;
bool		settings_requires_by_role = false;

uint64		settings_elections_generation = 0;

/*
 * In the memory of etcd_leader.elections.  Never NULL once that is defined,
 * but the list is empty until somebody names an election.
 */
static const ElectionList *election_list;

List *
settings_split(const char *value)
{
	List	   *elements;

	/* the elements live in the copy */
	if (!SplitGUCList(pstrdup(value), ',', &elements))
		elog(ERROR, "invalid list in a setting of etcd_leader: %s", value);
	return elements;
}

bool
settings_is_listed(const List *strings, const char *string)
{
	ListCell   *cell;

	foreach(cell, strings)
	{
		if (strcmp(lfirst(cell), string) == 0)
			return true;
	}
	return false;
}

List *
settings_endpoint_urls(void)
{
	List	   *urls = NIL;
	ListCell   *cell;

	foreach(cell, settings_split(settings_endpoints))
	{
		char	   *url = endpoint_url(lfirst(cell));
		ListCell   *other;

		foreach(other, urls)
		{
			if (endpoint_is_same(lfirst(other), url))
				break;
		}
		if (other == NULL)
			urls = lappend(urls, url);
	}
	return urls;
}

/*
 * There is no default for etcd_leader.elections because every cluster that
 * uses an etcd shares its keys: no name is right for all of them.
 */
bool
settings_exposes_password(const char *url)
{
	return settings_username[0] != '\0' && endpoint_is_open(url);
}

void
settings_set_elections(const ElectionList *elections)
{
	election_list = elections;
	settings_elections_generation++;
}

int
settings_first_election(void)
{
	return election_list->count > 0 ? 0 : -1;
}

int
settings_election_index(const char *name, int len)
{
	for (int i = 0; i < election_list->count; i++)
	{
		if (election_list->elections[i].len == len &&
			memcmp(election_list->elections[i].name, name, len) == 0)
			return i;
	}
	return -1;
}

const char *
settings_election_name(int index)
{
	return election_list->elections[index].name;
}

int
settings_election_count(void)
{
	return election_list->count;
}

const char *
settings_find_election_within(const char *prefix)
{
	for (int i = 0; i < election_list->count; i++)
	{
		const char *name = election_list->elections[i].name;
		size_t		len = election_list->elections[i].len;

		/* the keys begin with the name and a slash */
		if (!election_is_followed(name) &&
			(strncmp(prefix, name, strlen(prefix)) == 0 ||
			 (strncmp(prefix, name, len) == 0 && (prefix[len] == '\0' || prefix[len] == '/'))))
			return name;
	}
	return NULL;
}

bool
settings_follow_patroni(void)
{
	for (int i = 0; i < election_list->count; i++)
	{
		if (election_is_followed(election_list->elections[i].name))
			return true;
	}
	return false;
}

void
settings_resolve_node_name(char *buf, size_t size)
{
	char		host[256];

	if (settings_node_name[0] != '\0')
		strlcpy(buf, settings_node_name, size);
	else if (cluster_name[0] != '\0')
		strlcpy(buf, cluster_name, size);	/* ASCII: may be cut anywhere */
	else
	{
		/* a name that is cut need not be terminated */
		if (gethostname(host, sizeof(host)) != 0)
			strlcpy(host, "localhost", sizeof(host));
		host[sizeof(host) - 1] = '\0';
		snprintf(buf, size, "%.*s:%d", (int) size - 8, host, PostPortNumber);
	}
}

int
settings_resolve_timeout_ms(int timeout_ms, int ttl_ms)
{
	return timeout_ms < 0 ? ttl_ms / 9 : timeout_ms;
}

const char *
settings_key_file(void)
{
	return settings_ssl_key_file[0] != '\0' ? settings_ssl_key_file : settings_ssl_cert_file;
}

bool
settings_require_tls(void)
{
	return settings_ssl_ca_file[0] != '\0' || settings_ssl_cert_file[0] != '\0' ||
		settings_username[0] != '\0';
}

void
settings_fill_client(EtcdClientSettings *client, int ttl_ms)
{
	client->request_timeout_ms = settings_resolve_timeout_ms(settings_request_timeout_ms, ttl_ms);
	client->connect_timeout_ms = settings_resolve_timeout_ms(settings_connect_timeout_ms, ttl_ms);
	client->probe_interval_ms = Min(Max(ttl_ms, MIN_PROBE_INTERVAL_MS), MAX_PROBE_INTERVAL_MS);
	client->ca_file = settings_ssl_ca_file;
	client->cert_file = settings_ssl_cert_file;
	client->key_file = settings_key_file();
	client->dialect = (EtcdDialect) settings_protocol;
	client->tls_1_3 = settings_ssl_min_protocol_version == SSL_MIN_TLS_1_3;
	client->cluster_id = settings_cluster_id;
	client->username = settings_username;
	client->password_file = settings_password_file;
}

int
settings_resolve_safety_margin_ms(bool *cut)
{
	int			half_ms = settings_ttl_s * 1000 / 2;

	*cut = settings_safety_margin_ms > half_ms;
	if (settings_safety_margin_ms < 0)
		return settings_ttl_s * 1000 / 10;
	return *cut ? half_ms : settings_safety_margin_ms;
}
