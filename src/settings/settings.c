/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Every GUC of etcd_leader: definitions, and values as they are used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <unistd.h>

#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#include "base/compat.h"
#include "etcd/endpoint_url.h"
#include "hooks/hooks.h"
#include "settings.h"
#include "settings_check.h"

/* Leaves at least half of the greatest TTL. */
#define MAX_SAFETY_MARGIN_MS	(ELECTION_MAX_TTL_S * 1000 / 2)

/* GUCs */
char	   *settings_endpoints;
char	   *settings_discovery_srv;
char	   *settings_username;
char	   *settings_password_file;
char	   *settings_ssl_ca_file;
char	   *settings_ssl_cert_file;
char	   *settings_ssl_key_file;
int			settings_ssl_min_protocol_version;
char	   *settings_elections;
char	   *settings_watched_prefixes;
char	   *settings_node_name;
char	   *settings_patroni_namespace;
int			settings_ttl_s;
int			settings_safety_margin_ms;
char	   *settings_preferred_nodes;
int			settings_preferred_delay_ms;
int			settings_candidate;
char	   *settings_databases;
char	   *settings_channel;
int			settings_request_timeout_ms;
int			settings_connect_timeout_ms;
int			settings_max_elections;
char	   *settings_require_leadership;
bool		settings_cancel_on_loss;
char	   *settings_http_listen;
char	   *settings_http_ssl_cert_file;
char	   *settings_http_ssl_key_file;
char	   *settings_agent_listen;
int			settings_max_hook_workers;
char	   *settings_hooks_file;
static char *hook_facts[4];
bool		settings_requires_by_role = false;

uint64		settings_elections_generation = 0;

/*
 * In the memory of etcd_leader.elections.  Never NULL once that is defined,
 * but the list is empty until somebody names an election.
 */
static const ElectionList *election_list;

static const struct config_enum_entry candidate_options[] = {
	{"primary", CANDIDATE_PRIMARY, false},
	{"always", CANDIDATE_ALWAYS, false},
	{"never", CANDIDATE_NEVER, false},
	{NULL, 0, false}
};

/* Older versions are refused by etcd. */
static const struct config_enum_entry ssl_min_protocol_version_options[] = {
	{"", SSL_MIN_DEFAULT, false},
	{"TLSv1.2", SSL_MIN_TLS_1_2, false},
	{"TLSv1.3", SSL_MIN_TLS_1_3, false},
	{NULL, 0, false}
};

/* ---- definitions ------------------------------------------------------- */

#define SETTINGS_PREFIX "etcd_leader"

/* The value that somebody has given to a setting before it was defined. */
typedef struct GivenSetting
{
	char	   *name;
	char	   *value;
} GivenSetting;

/*
 * The settings under our prefix that somebody has set, by whatever way.  Until
 * they are defined, PostgreSQL keeps them as text that it has not checked.
 */
static List *
find_given_settings(void)
{
	static const char prefix[] = SETTINGS_PREFIX ".";
	List	   *given = NIL;
	int			count;
	struct config_generic **variables = compat_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		const char *name = variables[i]->name;
		GivenSetting *setting;

		if ((variables[i]->flags & GUC_CUSTOM_PLACEHOLDER) == 0 ||
			pg_strncasecmp(name, prefix, strlen(prefix)) != 0)
			continue;
		setting = palloc(sizeof(GivenSetting));
		setting->name = pstrdup(name);
		setting->value = pstrdup(GetConfigOption(name, false, false));
		given = lappend(given, setting);
	}
	return given;
}

/*
 * FATAL unless each of these settings exists and may have its value.
 *
 * PostgreSQL makes a WARNING of a value that a library's setting may not have,
 * and takes the default; it also makes a WARNING of a setting that does not
 * exist.  An instance would campaign in spite of a misspelt "never".  So each
 * value is offered again, to be checked only, with an error level that ends
 * the start of the server.
 */
static void
check_given_settings(const List *given)
{
	ListCell   *cell;

	foreach(cell, given)
	{
		const GivenSetting *setting = lfirst(cell);

		if (GetConfigOptionFlags(setting->name, false) & GUC_CUSTOM_PLACEHOLDER)
			ereport(FATAL,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("unrecognized configuration parameter \"%s\"", setting->name),
					 errdetail("The loaded version of etcd_leader, %s, has no such setting.", ETCD_LEADER_VERSION),
					 errhint("Check how the name is spelt, or remove the setting.")));
		(void) set_config_option(setting->name, setting->value, PGC_POSTMASTER, PGC_S_FILE,
								 GUC_ACTION_SET, false, FATAL, false);
	}
}

static bool
check_elections(char **newval, void **extra, GucSource source)
{
	return settings_check_elections(*newval, settings_max_elections, extra);
}

static void
assign_elections(const char *newval, void *extra)
{
	election_list = extra;
	settings_elections_generation++;
}

static bool
check_watched_prefixes(char **newval, void **extra, GucSource source)
{
	return settings_check_watched_prefixes(*newval, election_list);
}

/* Elections. */
static void
define_election_settings(void)
{
	/* first, since it limits etcd_leader.elections */
	DefineCustomIntVariable("etcd_leader.max_elections",
							"Sets the maximum number of elections.",
							NULL,
							&settings_max_elections,
							16, 1, ELECTION_MAX_ELECTIONS,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.elections",
							   "Sets the names of the elections to take part in.",
							   "A name is the prefix of the candidates' keys in etcd. Functions use the first one by default. If empty, this instance takes part in none.",
							   &settings_elections,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_elections, assign_elections, NULL);

	/* after etcd_leader.elections, which it is checked against */
	DefineCustomStringVariable("etcd_leader.watched_prefixes",
							   "Sets the prefixes of other keys in etcd whose changes are events.",
							   "If empty, no other keys are watched.",
							   &settings_watched_prefixes,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_watched_prefixes, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.patroni_namespace",
							   "Sets the namespace of the Patroni clusters whose leader keys are followed.",
							   "It is Patroni's own setting \"namespace\".",
							   &settings_patroni_namespace,
							   "/service",
							   PGC_SIGHUP,
							   0,
							   settings_check_patroni_namespace, NULL, NULL);
}

/* The candidate. */
static void
define_candidate_settings(void)
{
	DefineCustomStringVariable("etcd_leader.node_name",
							   "Sets the name under which this instance is a candidate.",
							   "If empty, it is \"cluster_name\", or else the host name and the port.",
							   &settings_node_name,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_node_name, NULL, NULL);

	DefineCustomEnumVariable("etcd_leader.candidate",
							 "Sets when this instance is a candidate.",
							 NULL,
							 &settings_candidate,
							 CANDIDATE_PRIMARY,
							 candidate_options,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.preferred_nodes",
							   "Sets the nodes that shall lead, the best first.",
							   "A leader hands over to a better one that has waited for \"etcd_leader.preferred_delay\".",
							   &settings_preferred_nodes,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   settings_check_preferred_nodes, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.preferred_delay",
							"Sets for how long a preferred node has to wait before the leader hands over to it.",
							NULL,
							&settings_preferred_delay_ms,
							30000,
							100, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/* The lease. */
static void
define_lease_settings(void)
{
	DefineCustomIntVariable("etcd_leader.ttl",
							"Sets the time to live of the lease in etcd.",
							"A leader that disappears is replaced after this time.",
							&settings_ttl_s,
							10, ELECTION_MIN_TTL_S, ELECTION_MAX_TTL_S,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.safety_margin",
							"Sets how long before the end of the lease leadership ends.",
							"-1 means a tenth of \"etcd_leader.ttl\".",
							&settings_safety_margin_ms,
							-1, -1, MAX_SAFETY_MARGIN_MS,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/* The connection to etcd. */
static void
define_connection_settings(void)
{
	DefineCustomStringVariable("etcd_leader.endpoints",
							   "Sets the endpoints of the etcd cluster's members.",
							   "Each is a URL, or a host and a port. They are tried in turn.",
							   &settings_endpoints,
							   "http://127.0.0.1:2379",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   settings_check_endpoints, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.discovery_srv",
							   "Sets the DNS domain whose SRV records name the etcd cluster's members.",
							   "If set, \"etcd_leader.endpoints\" is ignored.",
							   &settings_discovery_srv,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_discovery_srv, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.request_timeout",
							"Sets the maximum time of one request to one endpoint.",
							"-1 means a ninth of \"etcd_leader.ttl\".",
							&settings_request_timeout_ms,
							-1, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							settings_check_timeout, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.connect_timeout",
							"Sets the maximum time of connecting to one endpoint.",
							"-1 means a ninth of \"etcd_leader.ttl\".",
							&settings_connect_timeout_ms,
							-1, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							settings_check_timeout, NULL, NULL);
}

/* The connection of this instance to etcd. */
static void
define_authentication_settings(void)
{
	DefineCustomStringVariable("etcd_leader.username",
							   "Sets the user of etcd to authenticate as.",
							   "If empty, there is no authentication.",
							   &settings_username,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_username, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.password_file",
							   "Sets the file that holds the password of \"etcd_leader.username\".",
							   "Only its owner may be able to read it. It is read when a token is needed.",
							   &settings_password_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.ssl_ca_file",
							   "Sets the file of the certificate authorities that may have signed etcd's certificates.",
							   "If empty, those of the system are trusted.",
							   &settings_ssl_ca_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.ssl_cert_file",
							   "Sets the file of the client certificate to show to etcd.",
							   NULL,
							   &settings_ssl_cert_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.ssl_key_file",
							   "Sets the file of the private key of \"etcd_leader.ssl_cert_file\".",
							   NULL,
							   &settings_ssl_key_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_file, NULL, NULL);

	DefineCustomEnumVariable("etcd_leader.ssl_min_protocol_version",
							 "Sets the minimum TLS protocol version of connections to etcd.",
							 "If empty, it is TLSv1.2.",
							 &settings_ssl_min_protocol_version,
							 SSL_MIN_DEFAULT,
							 ssl_min_protocol_version_options,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
}

/* NOTIFY. */
static void
define_notification_settings(void)
{
	DefineCustomStringVariable("etcd_leader.databases",
							   "Sets the databases in which events are announced by NOTIFY.",
							   "If empty, there are no notifications.",
							   &settings_databases,
							   "postgres",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   settings_check_databases, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.channel",
							   "Sets the channel of NOTIFY on which events are announced.",
							   NULL,
							   &settings_channel,
							   "etcd_leader",
							   PGC_SIGHUP,
							   0,
							   settings_check_channel, NULL, NULL);
}

static void
assign_require_leadership(const char *newval, void *extra)
{
	settings_requires_by_role = extra != NULL && *(bool *) extra;
}

/* Transactions that only the leader can commit. */
static void
define_fence_settings(void)
{
	DefineCustomStringVariable("etcd_leader.require_leadership",
							   "Sets the election that this instance must lead for a transaction that writes to commit.",
							   "If empty, there is no such requirement. To be set for roles and databases.",
							   &settings_require_leadership,
							   "",
							   PGC_SUSET,
							   0,
							   settings_check_require_leadership, assign_require_leadership, NULL);

	DefineCustomBoolVariable("etcd_leader.cancel_on_loss",
							 "Cancels a running statement of a transaction that requires leadership when it is lost.",
							 NULL,
							 &settings_cancel_on_loss,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
}

/* HTTP and agent checks. */
static void
define_http_settings(void)
{
	DefineCustomStringVariable("etcd_leader.http_listen",
							   "Sets the addresses at which status and metrics are served by HTTP.",
							   "If empty, they are not served.",
							   &settings_http_listen,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   settings_check_listen, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.http_ssl_cert_file",
							   "Sets the file of the certificate of the HTTP server.",
							   "If set, it speaks HTTPS.",
							   &settings_http_ssl_cert_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.http_ssl_key_file",
							   "Sets the file of the private key of \"etcd_leader.http_ssl_cert_file\".",
							   NULL,
							   &settings_http_ssl_key_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   settings_check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.agent_listen",
							   "Sets the addresses at which HAProxy's agent checks are answered.",
							   "If empty, they are not answered.",
							   &settings_agent_listen,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   settings_check_listen, NULL, NULL);
}

static void
define_hook_settings(void)
{
	DefineCustomStringVariable("etcd_leader.hooks_file",
							   "Sets the file whose lines are hooks: SQL that runs when leadership comes and goes, or keys change.",
							   "A relative path is relative to the data directory. If empty, there are no hooks.",
							   &settings_hooks_file,
							   "",
							   PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.max_hook_workers",
							"Sets how many hooks can run at the same time.",
							"Each takes a background worker. One of them is never for changes. 0 means that none run.",
							&settings_max_hook_workers,
							2, 0, HOOKS_MAX_RUNS,
							PGC_SIGHUP,
							0,
							NULL, NULL, NULL);
}

/*
 * What a hook is told.  These are for reading, and no harm is done by whoever
 * sets them.  They are not PGC_INTERNAL, so that each process of a hook can be
 * given its own.
 */
static void
define_hook_facts(void)
{
	static const struct
	{
		const char *name;
		const char *description;
	}			facts[lengthof(hook_facts)] = {
		{"etcd_leader.hook_election", "In a hook, tells the election, or the prefix of the keys that have changed."},
		{"etcd_leader.hook_event", "In a hook, tells its event."},
		{"etcd_leader.hook_token", "In a hook, tells the fencing token that was won or lost."},
		{"etcd_leader.hook_reason", "In a hook, tells the reason of the event."}
	};

	for (Size i = 0; i < lengthof(facts); i++)
		DefineCustomStringVariable(facts[i].name, facts[i].description, "Empty elsewhere.", &hook_facts[i], "",
								   PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL, NULL);
}

void
settings_define(void)
{
	List	   *given = find_given_settings();

	define_election_settings();
	define_candidate_settings();
	define_lease_settings();
	define_connection_settings();
	define_authentication_settings();
	define_notification_settings();
	define_fence_settings();
	define_http_settings();
	define_hook_settings();
	define_hook_facts();
	check_given_settings(given);
	MarkGUCPrefixReserved(SETTINGS_PREFIX);
}

/* ---- values ------------------------------------------------------------ */

List *
settings_split(const char *value)
{
	List	   *elements;

	/* the elements live in the copy */
	if (!SplitGUCList(pstrdup(value), ',', &elements))
		elog(ERROR, "invalid list in a setting of etcd_leader: %s", value);
	return elements;
}

List *
settings_endpoint_urls(void)
{
	List	   *urls = settings_split(settings_endpoints);
	ListCell   *cell;

	foreach(cell, urls)
		lfirst(cell) = endpoint_url(lfirst(cell));
	return urls;
}

/*
 * There is no default for etcd_leader.elections because every cluster that
 * uses an etcd shares its keys: no name is right for all of them.
 */
void
settings_warn(void)
{
	ListCell   *cell;

	if (election_list->count == 0)
		ereport(WARNING,
				(errmsg("\"%s\" is not set, so this instance takes part in no election", "etcd_leader.elections"),
				 errhint("Set \"%s\" to the name of the cluster, the same on all of its instances, and reload the configuration.",
						 "etcd_leader.elections")));

	/* records of DNS without TLS are not used where there is a password */
	if (settings_discovery_srv[0] != '\0')
		return;
	foreach(cell, settings_endpoint_urls())
	{
		if (settings_exposes_password(lfirst(cell)))
			ereport(WARNING,
					(errmsg("the password of etcd's user \"%s\" is sent to \"%s\" without encryption",
							settings_username, (const char *) lfirst(cell)),
					 errhint("Use a URL that begins with \"https://\" in \"%s\", or a Unix socket.",
							 "etcd_leader.endpoints")));
	}
}

bool
settings_exposes_password(const char *url)
{
	return settings_username[0] != '\0' && endpoint_is_open(url);
}

int
settings_election_index(const char *name, int len)
{
	if (name == NULL)
		return election_list->count > 0 ? 0 : -1;

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
	return settings_check_election_within(election_list, prefix);
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

/* A timeout GUC: -1 becomes a ninth of the TTL. */
static int
resolve_timeout_ms(int timeout_ms, int ttl_ms)
{
	return timeout_ms < 0 ? ttl_ms / 9 : timeout_ms;
}

int
settings_resolve_request_timeout_ms(int ttl_ms)
{
	return resolve_timeout_ms(settings_request_timeout_ms, ttl_ms);
}

int
settings_resolve_connect_timeout_ms(int ttl_ms)
{
	return resolve_timeout_ms(settings_connect_timeout_ms, ttl_ms);
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
