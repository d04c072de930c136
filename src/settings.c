/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Every GUC of etcd_leader, and what is allowed in each.
 *
 * A bad value is refused when it is set, so that nobody has to look at it
 * again.  Check hooks run in the postmaster too: no catalog access, and
 * nothing of libcurl but its URL parser, which needs no curl_global_init().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <unistd.h>

#include <curl/curl.h>

#include "mb/pg_wchar.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "compat.h"
#include "settings.h"
#include "shared_state.h"

/* Leaves at least half of the greatest TTL. */
#define MAX_SAFETY_MARGIN_MS	(ELECTION_MAX_TTL_S * 1000 / 2)

/* The value of etcd_leader.elections, split: what its check hook leaves. */
typedef struct ElectionList
{
	int			count;
	struct
	{
		int			len;
		char		name[ELECTION_NAME_SIZE];
	}			elections[ELECTION_MAX_ELECTIONS];
} ElectionList;

/* Parts of the URL of a host, palloc'd. */
typedef struct HostUrl
{
	char	   *scheme;			/* "http" or "https" */
	char	   *host;			/* an IPv6 address in brackets */
	char	   *port;			/* NULL: not given */
} HostUrl;

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
char	   *settings_node_name;
char	   *settings_patroni_namespace;
int			settings_ttl_s;
int			settings_safety_margin_ms;
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

/* What is older is refused by etcd, and should be. */
static const struct config_enum_entry ssl_min_protocol_version_options[] = {
	{"", SSL_MIN_DEFAULT, false},
	{"TLSv1.2", SSL_MIN_TLS_1_2, false},
	{"TLSv1.3", SSL_MIN_TLS_1_3, false},
	{NULL, 0, false}
};

/* ---- checks ------------------------------------------------------------ */

/*
 * Splits a list GUC in a check hook.  The elements point into *raw, which has
 * to be freed with the list.
 */
static bool
split_list(const char *value, char **raw, List **elements)
{
	*raw = pstrdup(value);
	if (SplitGUCList(*raw, ',', elements))
		return true;

	GUC_check_errdetail("List syntax is invalid.");
	GUC_check_errhint("Separate the elements by commas, and put one that contains commas or spaces into double quotes.");
	list_free(*elements);
	pfree(*raw);
	return false;
}

/* Is element number n of a list equal to an earlier one? */
static bool
is_repeated(const List *elements, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(list_nth(elements, i), list_nth(elements, n)) == 0)
			return true;
	}
	return false;
}

/*
 * What is sent to etcd, or shown to people on its behalf: UTF-8 without
 * control characters, shorter than size.
 */
static bool
check_text(const char *value, size_t size)
{
	size_t		len = strlen(value);

	if (len >= size)
	{
		GUC_check_errdetail("\"%s\" must be at most %zu bytes long.", value, size - 1);
		return false;
	}
	if (pg_encoding_verifymbstr(PG_UTF8, value, (int) len) != (int) len)
	{
		GUC_check_errdetail("\"%s\" must be valid UTF-8.", value);
		return false;
	}
	for (const char *c = value; *c != '\0'; c++)
	{
		if ((unsigned char) *c < ' ' || *c == 0x7f)
		{
			GUC_check_errdetail("\"%s\" must not contain control characters.", value);
			return false;
		}
	}
	return true;
}

/* Does an endpoint begin with a scheme?  If not, it is a host and a port. */
static bool
has_scheme(const char *endpoint)
{
	return strstr(endpoint, "://") != NULL;
}

/* The URL of an endpoint, palloc'd. */
static char *
endpoint_url(const char *endpoint)
{
	return has_scheme(endpoint) ? pstrdup(endpoint) : psprintf("http://%s", endpoint);
}

/* A part of a URL, palloc'd; NULL if there is none. */
static char *
url_part(CURLU *url, CURLUPart what)
{
	char	   *part = NULL;
	char	   *copy;

	if (curl_url_get(url, what, &part, 0) != CURLUE_OK)
		return NULL;
	copy = pstrdup(part);
	curl_free(part);
	return copy;
}

/*
 * Splits the URL of a host; false if it is none, or has anything behind the
 * path.  libcurl is asked, since it is libcurl that has to understand it later.
 */
static bool
split_host_url(const char *endpoint, HostUrl *parts)
{
	CURLU	   *url = curl_url();
	bool		valid = url != NULL && curl_url_set(url, CURLUPART_URL, endpoint, 0) == CURLUE_OK;

	if (valid)
	{
		parts->scheme = url_part(url, CURLUPART_SCHEME);
		parts->host = url_part(url, CURLUPART_HOST);
		parts->port = url_part(url, CURLUPART_PORT);
		valid = parts->scheme != NULL &&
			(strcmp(parts->scheme, "http") == 0 || strcmp(parts->scheme, "https") == 0) &&
			parts->host != NULL && parts->host[0] != '\0' &&
			strpbrk(endpoint, "?#") == NULL;
	}
	curl_url_cleanup(url);
	return valid;
}

/* unix:///path/of/socket, or with TLS unixs:///path/of/socket */
static bool
is_socket_url(const char *endpoint)
{
	return (strncmp(endpoint, "unix:///", 8) == 0 && endpoint[8] != '\0') ||
		(strncmp(endpoint, "unixs:///", 9) == 0 && endpoint[9] != '\0');
}

static bool
check_endpoint(const char *endpoint)
{
	const char *url = endpoint_url(endpoint);
	HostUrl		parts;

	if (!check_text(url, SHARED_ENDPOINT_SIZE))
		return false;
	if (is_socket_url(url))
		return true;
	if (split_host_url(url, &parts) &&
		(has_scheme(endpoint) || (parts.port != NULL && strchr(endpoint, '/') == NULL)))
		return true;
	GUC_check_errdetail("\"%s\" is not an endpoint of etcd.", endpoint);
	GUC_check_errhint("Write a URL such as \"http://10.0.0.1:2379\" or \"https://etcd1.example.com:2379\", a host and a port such as \"10.0.0.1:2379\", or a socket such as \"unix:///run/etcd.sock\".");
	return false;
}

static bool
check_endpoints(char **newval, void **extra, GucSource source)
{
	char	   *raw;
	List	   *endpoints;
	bool		valid = true;

	/*
	 * No URL of a host needs an @ but for what is before it.  Looked for
	 * first, and with a message of our own, so that the server log does not
	 * get to see the secret.
	 */
	if (strchr(*newval, '@') != NULL)
	{
		GUC_check_errmsg("invalid value for parameter \"%s\"", "etcd_leader.endpoints");
		GUC_check_errdetail("An endpoint must not contain a user name or a password.");
		GUC_check_errhint("Settings are shown to everybody. Never put a secret into a URL.");
		return false;
	}

	if (!split_list(*newval, &raw, &endpoints))
		return false;

	if (list_length(endpoints) < 1 || list_length(endpoints) > ELECTION_MAX_ENDPOINTS)
	{
		GUC_check_errdetail("There must be at least 1 endpoint and at most %d.", ELECTION_MAX_ENDPOINTS);
		valid = false;
	}
	for (int i = 0; valid && i < list_length(endpoints); i++)
		valid = check_endpoint(list_nth(endpoints, i));

	list_free(endpoints);
	pfree(raw);
	return valid;
}

/*
 * The name of an election that follows Patroni's leader key: behind
 * "patroni:" the scope, and for Citus a slash and the group.
 */
static bool
check_followed_election(const char *name)
{
	const char *scope = name + strlen(ELECTION_PATRONI_PREFIX);
	const char *slash = strchr(scope, '/');
	const char *group = slash ? slash + 1 : NULL;

	if (*scope == '\0' || scope == slash)
	{
		GUC_check_errdetail("In \"%s\" the scope of the Patroni cluster is missing.", name);
		GUC_check_errhint("The name is \"patroni:SCOPE\", or for a Citus cluster \"patroni:SCOPE/GROUP\".");
		return false;
	}
	if (group && (*group == '\0' || group[strspn(group, "0123456789")] != '\0'))
	{
		GUC_check_errdetail("In \"%s\" the group of the Citus cluster is not a number.", name);
		GUC_check_errhint("The name is \"patroni:SCOPE\", or for a Citus cluster \"patroni:SCOPE/GROUP\".");
		return false;
	}
	return true;
}

/*
 * Election number n of the list, against all the others.
 */
static bool
check_election(const List *elections, int n)
{
	const char *name = list_nth(elections, n);
	ListCell   *cell;

	if (name[0] == '\0')
	{
		GUC_check_errdetail("The name of an election must not be empty.");
		return false;
	}
	if (!check_text(name, ELECTION_NAME_SIZE))
		return false;
	if (is_repeated(elections, n))
	{
		GUC_check_errdetail("Election \"%s\" is listed more than once.", name);
		return false;
	}
	if (election_is_followed(name))
		return check_followed_election(name);

	/*
	 * etcd's clients count every key below "<name>/" as a candidate, and this
	 * would be the other election's keys.
	 */
	foreach(cell, elections)
	{
		const char *other = lfirst(cell);
		size_t		len = strlen(other);

		if (strncmp(name, other, len) == 0 && name[len] == '/')
		{
			GUC_check_errdetail("The keys of election \"%s\" would count as candidates of election \"%s\".",
								name, other);
			GUC_check_errhint("The name of an election must not be that of another one followed by a slash.");
			return false;
		}
	}
	return true;
}

static bool
check_elections(char **newval, void **extra, GucSource source)
{
	char	   *raw;
	List	   *names;
	bool		valid = true;

	if (!split_list(*newval, &raw, &names))
		return false;

	if (list_length(names) > settings_max_elections)
	{
		GUC_check_errdetail("There must be at most %d elections.", settings_max_elections);
		GUC_check_errhint("The limit is \"%s\".", "etcd_leader.max_elections");
		valid = false;
	}
	for (int i = 0; valid && i < list_length(names); i++)
		valid = check_election(names, i);

	if (valid)
	{
		ElectionList *list = compat_guc_malloc(sizeof(ElectionList));

		if (list == NULL)
			valid = false;
		else
		{
			list->count = list_length(names);
			for (int i = 0; i < list->count; i++)
			{
				strlcpy(list->elections[i].name, list_nth(names, i), ELECTION_NAME_SIZE);
				list->elections[i].len = (int) strlen(list->elections[i].name);
			}
			*extra = list;
		}
	}

	list_free(names);
	pfree(raw);
	return valid;
}

static void
assign_elections(const char *newval, void *extra)
{
	election_list = extra;
	settings_elections_generation++;
}

static bool
check_discovery_srv(char **newval, void **extra, GucSource source)
{
	const char *domain = *newval;

	if (strlen(domain) > 200 ||
		domain[strspn(domain, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")] != '\0')
	{
		GUC_check_errdetail("\"%s\" is not the name of a DNS domain.", domain);
		return false;
	}
	return true;
}

static bool
check_username(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_NAME_SIZE);
}

static bool
check_file(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, MAXPGPATH);
}

static bool
check_node_name(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_VALUE_SIZE);
}

static bool
check_patroni_namespace(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_NAME_SIZE);
}

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char	   *raw;
	List	   *databases;
	bool		valid = true;

	if (!split_list(*newval, &raw, &databases))
		return false;

	if (list_length(databases) > SETTINGS_MAX_DATABASES)
	{
		GUC_check_errdetail("There must be at most %d databases.", SETTINGS_MAX_DATABASES);
		valid = false;
	}
	for (int i = 0; valid && i < list_length(databases); i++)
	{
		const char *database = list_nth(databases, i);

		if (database[0] == '\0' || strlen(database) >= NAMEDATALEN)
		{
			GUC_check_errdetail("The name of a database must be 1 to %d bytes long.", NAMEDATALEN - 1);
			valid = false;
		}
		else if (is_repeated(databases, i))
		{
			GUC_check_errdetail("Database \"%s\" is listed more than once.", database);
			valid = false;
		}
	}

	list_free(databases);
	pfree(raw);
	return valid;
}

static bool
check_channel(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] == '\0')
	{
		GUC_check_errdetail("The name of the channel must not be empty.");
		return false;
	}
	return check_text(*newval, NAMEDATALEN);
}

/*
 * Where the value comes from decides for whom it holds; its assign hook is
 * not told, so that it is left here.
 *
 * When a session begins, nothing that its role or database sets is refused:
 * PostgreSQL would go on without it, and the session would not be fenced.  It
 * can be anything if it was set before the server had loaded this library.  A
 * value that is no name of an election fences as well: no instance leads it.
 */
static bool
check_require_leadership(char **newval, void **extra, GucSource source)
{
	bool		is_stored = source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER;
	bool	   *by_role;

	if (!is_stored && !check_text(*newval, ELECTION_NAME_SIZE))
		return false;
	by_role = compat_guc_malloc(sizeof(bool));
	if (by_role == NULL)
		return false;
	*by_role = source == PGC_S_USER || source == PGC_S_DATABASE_USER || source == PGC_S_SESSION;
	*extra = by_role;
	return true;
}

static void
assign_require_leadership(const char *newval, void *extra)
{
	settings_requires_by_role = extra != NULL && *(bool *) extra;
}

static bool
check_timeout(int *newval, void **extra, GucSource source)
{
	if (*newval == 0)
	{
		GUC_check_errdetail("The timeout must be at least 1 ms, or -1 for a ninth of \"%s\".", "etcd_leader.ttl");
		return false;
	}
	return true;
}

/*
 * "host:port" of this machine.  No other name than localhost: it would have to
 * be looked up in DNS, which may hang.
 */
static bool
is_listen_address(const char *address)
{
	const char *colon = strrchr(address, ':');
	char		host[INET6_ADDRSTRLEN + 2];
	struct in6_addr ip;
	long		port;
	char	   *end;

	if (colon == NULL || colon - address >= (ptrdiff_t) sizeof(host) || !isdigit((unsigned char) colon[1]))
		return false;
	port = strtol(colon + 1, &end, 10);
	if (*end != '\0' || port < 1 || port > 65535)
		return false;
	strlcpy(host, address, colon - address + 1);
	if (host[0] == '[' && host[strlen(host) - 1] == ']')
	{
		host[strlen(host) - 1] = '\0';
		return inet_pton(AF_INET6, host + 1, &ip) == 1;
	}
	return strcmp(host, "*") == 0 || strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &ip) == 1;
}

static bool
check_listen(char **newval, void **extra, GucSource source)
{
	char	   *raw;
	List	   *addresses;
	bool		valid = true;

	if (!split_list(*newval, &raw, &addresses))
		return false;

	if (list_length(addresses) > SETTINGS_MAX_LISTEN)
	{
		GUC_check_errdetail("There must be at most %d addresses.", SETTINGS_MAX_LISTEN);
		valid = false;
	}
	for (int i = 0; valid && i < list_length(addresses); i++)
	{
		const char *address = list_nth(addresses, i);

		if (!is_listen_address(address))
		{
			GUC_check_errdetail("\"%s\" is not an address to listen at.", address);
			GUC_check_errhint("An address is an IPv4 address, [IPv6 address], \"localhost\" or \"*\", a colon and a port, such as \"127.0.0.1:8010\".");
			valid = false;
		}
		else if (is_repeated(addresses, i))
		{
			GUC_check_errdetail("Address \"%s\" is listed more than once.", address);
			valid = false;
		}
	}

	list_free(addresses);
	pfree(raw);
	return valid;
}

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

void
settings_define(void)
{
	List	   *given = find_given_settings();

	/* first, since it limits etcd_leader.elections */
	DefineCustomIntVariable("etcd_leader.max_elections",
							"Sets the maximum number of elections.",
							NULL,
							&settings_max_elections,
							16, 1, ELECTION_MAX_ELECTIONS,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.endpoints",
							   "Sets the endpoints of the etcd cluster's members.",
							   "Each is a URL, or a host and a port. They are tried in turn.",
							   &settings_endpoints,
							   "http://127.0.0.1:2379",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_endpoints, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.discovery_srv",
							   "Sets the DNS domain whose SRV records name the etcd cluster's members.",
							   "If set, \"etcd_leader.endpoints\" is ignored.",
							   &settings_discovery_srv,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_discovery_srv, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.username",
							   "Sets the user to be authenticated as by etcd.",
							   "If empty, there is no authentication.",
							   &settings_username,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_username, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.password_file",
							   "Sets the file that holds the password of \"etcd_leader.username\".",
							   "It must be readable by its owner alone, and is read when a token is needed.",
							   &settings_password_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.ssl_ca_file",
							   "Sets the file of the certificate authorities to trust in etcd's certificates.",
							   "If empty, those of the system are trusted.",
							   &settings_ssl_ca_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.ssl_cert_file",
							   "Sets the file of the client certificate to show to etcd.",
							   NULL,
							   &settings_ssl_cert_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.ssl_key_file",
							   "Sets the file of the private key of \"etcd_leader.ssl_cert_file\".",
							   NULL,
							   &settings_ssl_key_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_file, NULL, NULL);

	DefineCustomEnumVariable("etcd_leader.ssl_min_protocol_version",
							 "Sets the minimum TLS protocol version of connections to etcd.",
							 "If empty, it is TLSv1.2.",
							 &settings_ssl_min_protocol_version,
							 SSL_MIN_DEFAULT,
							 ssl_min_protocol_version_options,
							 PGC_SIGHUP,
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

	DefineCustomStringVariable("etcd_leader.patroni_namespace",
							   "Sets the namespace of the Patroni clusters whose leader keys are followed.",
							   "It is Patroni's own setting \"namespace\".",
							   &settings_patroni_namespace,
							   "/service",
							   PGC_SIGHUP,
							   0,
							   check_patroni_namespace, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.node_name",
							   "Sets the name under which this instance is a candidate.",
							   "If empty, it is \"cluster_name\", or else the host name and the port.",
							   &settings_node_name,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_node_name, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.ttl",
							"Sets the time to live of the lease in etcd.",
							"A leader that is lost without a word is replaced after this time.",
							&settings_ttl_s,
							10, ELECTION_MIN_TTL_S, ELECTION_MAX_TTL_S,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.safety_margin",
							"Sets by how much leadership ends before the lease does.",
							"-1 means a tenth of \"etcd_leader.ttl\".",
							&settings_safety_margin_ms,
							-1, -1, MAX_SAFETY_MARGIN_MS,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("etcd_leader.candidate",
							 "Sets when this instance is a candidate.",
							 NULL,
							 &settings_candidate,
							 CANDIDATE_PRIMARY,
							 candidate_options,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.databases",
							   "Sets the databases in which events are notified.",
							   "If empty, there are no notifications.",
							   &settings_databases,
							   "postgres",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_databases, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.channel",
							   "Sets the channel on which events are notified.",
							   NULL,
							   &settings_channel,
							   "etcd_leader",
							   PGC_SIGHUP,
							   0,
							   check_channel, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.request_timeout",
							"Sets the maximum time of one request to one endpoint.",
							"-1 means a ninth of \"etcd_leader.ttl\".",
							&settings_request_timeout_ms,
							-1, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							check_timeout, NULL, NULL);

	DefineCustomIntVariable("etcd_leader.connect_timeout",
							"Sets the maximum time of connecting to one endpoint.",
							"-1 means a ninth of \"etcd_leader.ttl\".",
							&settings_connect_timeout_ms,
							-1, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							check_timeout, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.require_leadership",
							   "Sets the election that this instance must lead for a transaction that writes to commit.",
							   "If empty, there is no such requirement. To be set for roles and databases.",
							   &settings_require_leadership,
							   "",
							   PGC_SUSET,
							   0,
							   check_require_leadership, assign_require_leadership, NULL);

	DefineCustomBoolVariable("etcd_leader.cancel_on_loss",
							 "Cancels a running statement of a transaction that requires leadership when it is lost.",
							 NULL,
							 &settings_cancel_on_loss,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.http_listen",
							   "Sets the addresses at which status and metrics are served by HTTP.",
							   "If empty, they are not served.",
							   &settings_http_listen,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_listen, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.http_ssl_cert_file",
							   "Sets the file of the certificate of the HTTP server.",
							   "If set, it speaks HTTPS.",
							   &settings_http_ssl_cert_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.http_ssl_key_file",
							   "Sets the file of the private key of \"etcd_leader.http_ssl_cert_file\".",
							   NULL,
							   &settings_http_ssl_key_file,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_file, NULL, NULL);

	DefineCustomStringVariable("etcd_leader.agent_listen",
							   "Sets the addresses at which HAProxy's agent checks are answered.",
							   "If empty, they are not answered.",
							   &settings_agent_listen,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_listen, NULL, NULL);

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

/* Does a URL lead to another host, without TLS? */
static bool
is_open_to_network(const char *url)
{
	HostUrl		parts;
	struct in_addr ip4;

	if (is_socket_url(url) || !split_host_url(url, &parts) || strcmp(parts.scheme, "http") != 0)
		return false;
	if (pg_strcasecmp(parts.host, "localhost") == 0 || strcmp(parts.host, "[::1]") == 0)
		return false;
	return inet_pton(AF_INET, parts.host, &ip4) != 1 || ntohl(ip4.s_addr) >> 24 != IN_LOOPBACKNET;
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
	if (settings_username[0] == '\0' || settings_discovery_srv[0] != '\0')
		return;
	foreach(cell, settings_endpoint_urls())
	{
		if (is_open_to_network(lfirst(cell)))
			ereport(WARNING,
					(errmsg("the password of etcd's user \"%s\" is sent to \"%s\" without encryption",
							settings_username, (const char *) lfirst(cell)),
					 errhint("Use a URL that begins with \"https://\" in \"%s\", or a Unix socket.",
							 "etcd_leader.endpoints")));
	}
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
