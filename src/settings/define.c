/*-------------------------------------------------------------------------
 *
 * define.c
 *	  Every GUC of etcd_leader, and what is allowed in it.
 *
 * A bad value is refused when it is set, so that nobody has to look at it
 * again.  Check hooks run in the postmaster too: no catalog access.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>

#include "mb/pg_wchar.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "base/compat.h"
#include "base/hidden.h"
#include "etcd/endpoint_url.h"
#include "etcd/client.h"
#include "etcd/text.h"
#include "protocol/changes.h"
#include "settings.h"
#include "settings/define.h"

/* ---- what is allowed --------------------------------------------------------- */

/* Refuses element number n of a list if it is equal to an earlier one. */
static bool
check_once(const List *elements, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(list_nth(elements, i), list_nth(elements, n)) == 0)
		{
			GUC_check_errdetail("\"%s\" is listed more than once.",
								(const char *) list_nth(elements, n));
			return false;
		}
	}
	return true;
}

/* Checks element number n of a list, which is not empty, against all the others. */
typedef bool (*ElementCheck) (const List *elements, int n);

/*
 * Checks a list of at least `min` and at most `max` elements, and each of
 * them.  `miscounted` is the message about another number.
 */
static bool
check_list(const char *value, int min, int max, const char *miscounted, ElementCheck check)
{
	char	   *raw = pstrdup(value);	/* the elements point into it */
	List	   *elements;
	bool		valid = SplitGUCList(raw, ',', &elements);

	if (!valid)
	{
		GUC_check_errdetail("List syntax is invalid.");
		GUC_check_errhint("Separate the elements by commas, and put one that contains commas or "
						  "spaces into double quotes.");
	}
	else if (list_length(elements) < min || list_length(elements) > max)
	{
		GUC_check_errdetail(miscounted, max);
		valid = false;
	}
	for (int i = 0; valid && i < list_length(elements); i++)
	{
		const char *element = list_nth(elements, i);

		if (element[0] == '\0')
			GUC_check_errdetail("An element of the list must not be empty.");
		valid = element[0] != '\0' && check(elements, i);
	}
	list_free(elements);
	pfree(raw);
	return valid;
}

/*
 * Checks text that is sent to etcd, or shown to people: UTF-8 without hidden
 * characters, shorter than `size`.
 */
static bool
check_text(const char *value, size_t size)
{
	size_t		len = strlen(value);
	pg_wchar	hidden;

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
	if (!hidden_find(value, &hidden))
		return true;
	if (hidden_is_control(hidden))
		GUC_check_errdetail("\"%s\" must not contain control characters.", value);
	else
		GUC_check_errdetail("\"%s\" must not contain the format character U+%04X.",
							etcd_escape_text(value), hidden);
	return false;
}

static bool
check_endpoint(const List *endpoints, int n)
{
	const char *endpoint = list_nth(endpoints, n);

	if (!check_text(endpoint_url(endpoint), ETCD_CLIENT_MAX_URL_LEN + 1))
		return false;
	if (endpoint_is_valid(endpoint))
		return true;
	if (endpoint_has_path(endpoint))
	{
		GUC_check_errdetail("\"%s\" has a path, and an endpoint of etcd has none.", endpoint);
		GUC_check_errhint("Have the proxy serve etcd at the root of a host name or of a port.");
		return false;
	}
	GUC_check_errdetail("\"%s\" is not an endpoint of etcd.", endpoint);
	GUC_check_errhint("Write a URL such as \"http://10.0.0.1:2379\" "
					  "or \"https://etcd1.example.com:2379\", a host and a port such as "
					  "\"10.0.0.1:2379\", or a socket such as \"unix:///run/etcd.sock\".");
	return false;
}

static bool
check_endpoints(char **newval, void **extra, GucSource source)
{
	/*
	 * A URL of a host needs an @ only for a user or a password before it.
	 * This is checked first, with a message of our own, so that the secret
	 * does not get into the server log.
	 */
	if (strchr(*newval, '@') != NULL)
	{
		GUC_check_errmsg("invalid value for parameter \"%s\"", "etcd_leader.endpoints");
		GUC_check_errdetail("An endpoint must not contain a user name or a password.");
		GUC_check_errhint("Settings are shown to everybody. Never put a secret into a URL.");
		return false;
	}

	return check_list(*newval, 1, ELECTION_MAX_ENDPOINTS,
					  "There must be at least 1 endpoint and at most %d.",
					  check_endpoint);
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
		GUC_check_errdetail("In \"%s\" the scope of the Patroni cluster is missing.", name);
	else if (group && (*group == '\0' || group[strspn(group, "0123456789")] != '\0'))
		GUC_check_errdetail("In \"%s\" the group of the Citus cluster is not a number.", name);
	else
		return true;
	GUC_check_errhint("The name is \"patroni:SCOPE\", or for a Citus cluster "
					  "\"patroni:SCOPE/GROUP\".");
	return false;
}

/*
 * Election number n of the list, against all the others.
 */
static bool
check_election(const List *elections, int n)
{
	const char *name = list_nth(elections, n);
	ListCell   *cell;

	if (!check_text(name, ELECTION_NAME_SIZE) || !check_once(elections, n))
		return false;
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
			GUC_check_errdetail("The keys of election \"%s\" would count as candidates of election "
								"\"%s\".",
								name, other);
			GUC_check_errhint("The name of an election must not be that of another one followed by "
							  "a slash.");
			return false;
		}
	}
	return true;
}

static bool
check_elections(char **newval, void **extra, GucSource source)
{
	List	   *names;
	ElectionList *list;

	if (!check_list(*newval, 0, ELECTION_MAX_ELECTIONS, "There must be at most %d elections.",
					check_election))
		return false;
	list = compat_guc_malloc(sizeof(ElectionList));
	if (list == NULL)
		return false;
	names = settings_split(*newval);
	list->count = list_length(names);
	for (int i = 0; i < list->count; i++)
	{
		strlcpy(list->elections[i].name, list_nth(names, i), ELECTION_NAME_SIZE);
		list->elections[i].len = (int) strlen(list->elections[i].name);
	}
	list_free(names);
	*extra = list;
	return true;
}

/* Prefix number n of the list, against all the others and the elections. */
static bool
check_watched_prefix(const List *prefixes, int n)
{
	const char *prefix = list_nth(prefixes, n);
	const char *election;

	if (!check_text(prefix, CHANGES_PREFIX_SIZE))
		return false;
	for (int i = 0; i < list_length(prefixes); i++)
	{
		const char *other = list_nth(prefixes, i);

		/* of two equal ones, the second */
		if (i != n && strncmp(prefix, other, strlen(other)) == 0 &&
			(i < n || strcmp(prefix, other) != 0))
		{
			GUC_check_errdetail("The keys below prefix \"%s\" would be watched twice, as they are "
								"below \"%s\", too.",
								prefix, other);
			return false;
		}
	}
	election = settings_find_election_within(prefix);
	if (election != NULL)
	{
		GUC_check_errdetail("Prefix \"%s\" has keys of election \"%s\".", prefix, election);
		GUC_check_errhint("The changes of an election are the events \"elected\", \"unelected\" "
						  "and \"leader\".");
		return false;
	}
	return true;
}

static bool
check_watched_prefixes(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, CHANGES_MAX_PREFIXES, "There must be at most %d prefixes.",
					  check_watched_prefix);
}

static bool
check_discovery_srv(char **newval, void **extra, GucSource source)
{
	const char *domain = *newval;

	if (strlen(domain) > 200 ||
		domain[strspn(domain,
					  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")] != '\0')
	{
		GUC_check_errdetail("\"%s\" is not the name of a DNS domain.", domain);
		return false;
	}
	return true;
}

static bool
check_name(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_NAME_SIZE);
}

static bool
check_file(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, MAXPGPATH);
}

/*
 * The ID of an etcd cluster: hexadecimal, as etcd writes it to its log, and
 * etcdctl with --hex.  A decimal one is mostly too long for it.
 */
static bool
check_cluster_id(char **newval, void **extra, GucSource source)
{
	const char *digits = *newval + (strncmp(*newval, "0x", 2) == 0 ? 2 : 0);
	size_t		len = strlen(digits);
	uint64		cluster_id = strtou64(digits, NULL, 16);

	if ((*newval)[0] != '\0' &&
		(len < 1 || len > 16 || strspn(digits, "0123456789abcdefABCDEF") != len || cluster_id == 0))
	{
		GUC_check_errdetail("The ID of an etcd cluster has 1 to 16 hexadecimal digits.");
		GUC_check_errhint("See \"cluster_id\" in the view \"etcd_leader_status\", or \"ClusterID\" "
						  "of \"etcdctl endpoint status --hex -w fields\".");
		return false;
	}
	*extra = compat_guc_malloc(sizeof(uint64));
	if (*extra == NULL)
		return false;
	*(uint64 *) *extra = cluster_id;
	return true;
}

static void
assign_cluster_id(const char *newval, void *extra)
{
	settings_cluster_id = *(uint64 *) extra;
}

static bool
check_node_name(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_VALUE_SIZE);
}

static bool
check_node(const List *nodes, int n)
{
	return check_text(list_nth(nodes, n), ELECTION_VALUE_SIZE) && check_once(nodes, n);
}

static bool
check_preferred_nodes(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, ELECTION_MAX_PREFERRED, "There must be at most %d nodes.",
					  check_node);
}

static bool
check_database(const List *databases, int n)
{
	if (strlen(list_nth(databases, n)) >= NAMEDATALEN)
	{
		GUC_check_errdetail("The name of a database must be 1 to %d bytes long.", NAMEDATALEN - 1);
		return false;
	}
	return check_once(databases, n);
}

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, SETTINGS_MAX_DATABASES, "There must be at most %d databases.",
					  check_database);
}

static bool
check_channel(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] != '\0')
		return check_text(*newval, NAMEDATALEN);
	GUC_check_errdetail("The name of the channel must not be empty.");
	return false;
}

/*
 * The source of the value decides which sessions it applies to.  The assign
 * hook does not get the source, so it is kept in `extra`.
 *
 * When a session begins, no value of its role or database is refused:
 * PostgreSQL would continue without the value, and the session would not be
 * fenced.  The value can be any text if it was set before the server had
 * loaded this library.  A value that cannot be the name of an election fences
 * as well, since no instance leads it.
 *
 * The names of elections may change before the value is used.  So ALTER ROLE
 * and ALTER DATABASE only give notice of an unknown one, as they do for
 * default_tablespace.
 */
static bool
check_require_leadership_of(char **newval, void **extra, GucSource source)
{
	bool		is_stored = source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER;
	bool	   *by_role;

	if (!is_stored && !check_text(*newval, ELECTION_NAME_SIZE))
		return false;
	if (source == PGC_S_TEST && (*newval)[0] != '\0' &&
		settings_election_index(*newval, (int) strlen(*newval)) < 0)
		ereport(NOTICE,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("election \"%s\" does not exist", *newval)));
	by_role = compat_guc_malloc(sizeof(bool));
	if (by_role == NULL)
		return false;
	*by_role = source == PGC_S_USER || source == PGC_S_DATABASE_USER || source == PGC_S_SESSION;
	*extra = by_role;
	return true;
}

static bool
check_timeout(int *newval, void **extra, GucSource source)
{
	if (*newval == 0)
	{
		GUC_check_errdetail("The timeout must be at least 1 ms, or -1 for a ninth of \"%s\".",
							"etcd_leader.ttl");
		return false;
	}
	return true;
}

/*
 * "host:port" of this machine.  No name but localhost is allowed: another one
 * would need DNS, which may hang.
 */
static bool
is_listen_address(const char *address)
{
	const char *colon = strrchr(address, ':');
	char		host[INET6_ADDRSTRLEN + 2];
	struct in6_addr ip;
	long		port;
	char	   *end;

	if (colon == NULL || colon - address >= (ptrdiff_t) sizeof(host) ||
		!isdigit((unsigned char) colon[1]))
		return false;
	port = strtol(colon + 1, &end, 10);
	if (*end != '\0' || end - colon > 6 || port < 1 || port > 65535)
		return false;
	strlcpy(host, address, colon - address + 1);
	if (host[0] == '[' && host[strlen(host) - 1] == ']')
	{
		host[strlen(host) - 1] = '\0';
		return inet_pton(AF_INET6, host + 1, &ip) == 1;
	}
	return strcmp(host, "*") == 0 || strcmp(host, "localhost") == 0 ||
		inet_pton(AF_INET, host, &ip) == 1;
}

static bool
check_listen_address(const List *addresses, int n)
{
	const char *address = list_nth(addresses, n);

	if (is_listen_address(address))
		return check_once(addresses, n);
	GUC_check_errdetail("\"%s\" is not an address to listen at.", address);
	GUC_check_errhint("An address is an IPv4 address, [IPv6 address], \"localhost\" or \"*\", a "
					  "colon and a port, such as \"127.0.0.1:8010\".");
	return false;
}

static bool
check_listen(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, SETTINGS_MAX_LISTEN, "There must be at most %d addresses.",
					  check_listen_address);
}

/* ---- definitions ------------------------------------------------------------- */

/* Leaves at least half of the greatest TTL. */
#define MAX_SAFETY_MARGIN_MS	(ELECTION_MAX_TTL_S * 1000 / 2)

static const struct config_enum_entry candidate_options[] = {
	{"primary", CANDIDATE_PRIMARY, false},
	{"always", CANDIDATE_ALWAYS, false},
	{"never", CANDIDATE_NEVER, false},
	{NULL, 0, false}
};

static const struct config_enum_entry second_primary_options[] = {
	{"refuse", SECOND_PRIMARY_REFUSE, false},
	{"wait", SECOND_PRIMARY_WAIT, false},
	{NULL, 0, false}
};

/* Older versions are refused by etcd. */
static const struct config_enum_entry ssl_min_protocol_version_options[] = {
	{"", SSL_MIN_DEFAULT, false},
	{"TLSv1.2", SSL_MIN_TLS_1_2, false},
	{"TLSv1.3", SSL_MIN_TLS_1_3, false},
	{NULL, 0, false}
};

static const struct config_enum_entry protocol_options[] = {
	{"grpc", ETCD_GRPC, false},
	{"json", ETCD_JSON, false},
	{NULL, 0, false}
};

static void
assign_elections(const char *newval, void *extra)
{
	settings_set_elections(extra);
}

static void
assign_require_leadership_of(const char *newval, void *extra)
{
	settings_requires_by_role = extra != NULL && *(bool *) extra;
}

typedef struct StringSetting
{
	const char *name;
	char	  **variable;
	const char *boot_value;
	GucContext	context;
	int			flags;
	GucStringCheckHook check;
	GucStringAssignHook assign;
	const char *short_desc;
	const char *long_desc;
} StringSetting;

static char *cluster_id_text;	/* see settings_cluster_id */
static char *hook_facts[4];

/* etcd_leader.watched_prefixes is checked against the elections before it. */
static const StringSetting string_settings[] = {
	{"etcd_leader.elections", &settings_elections, "", PGC_SIGHUP, GUC_LIST_INPUT, check_elections,
		assign_elections,
		"Sets the names of the elections to take part in.",
		"A name is the prefix of the candidates' keys in etcd. Functions use the first one by "
		"default. If empty, this instance takes part in none."},
	{"etcd_leader.watched_prefixes", &settings_watched_prefixes, "", PGC_SIGHUP, GUC_LIST_INPUT,
		check_watched_prefixes, NULL,
		"Sets the prefixes of other keys in etcd whose changes are events.",
		"If empty, no other keys are watched."},
	{"etcd_leader.patroni_namespace", &settings_patroni_namespace, "/service", PGC_SIGHUP, 0,
		check_name, NULL,
		"Sets the namespace of the Patroni clusters whose leader keys are followed.",
		"It is Patroni's own setting \"namespace\"."},
	{"etcd_leader.node_name", &settings_node_name, "", PGC_SIGHUP, 0, check_node_name, NULL,
		"Sets the name under which this instance is a candidate.",
		"If empty, it is \"cluster_name\", or else the host name and the port."},
	{"etcd_leader.preferred_nodes", &settings_preferred_nodes, "", PGC_SIGHUP, GUC_LIST_INPUT,
		check_preferred_nodes, NULL,
		"Sets the nodes that shall lead, the best first.",
		"A leader hands over to a better one that has waited for \"etcd_leader.preferred_delay\"."},
	{"etcd_leader.endpoints", &settings_endpoints, "http://127.0.0.1:2379", PGC_SIGHUP,
		GUC_LIST_INPUT, check_endpoints, NULL,
		"Sets the endpoints of the etcd cluster's members.",
		"Each is a URL, or a host and a port. They are tried in turn."},
	{"etcd_leader.discovery_srv", &settings_discovery_srv, "", PGC_SIGHUP, 0, check_discovery_srv,
		NULL,
		"Sets the DNS domain whose SRV records name the etcd cluster's members.",
		"If set, \"etcd_leader.endpoints\" is ignored."},
	{"etcd_leader.cluster_id", &cluster_id_text, "", PGC_SIGHUP, 0, check_cluster_id,
		assign_cluster_id,
		"Sets the ID of the only etcd cluster that may be used.",
		"It is hexadecimal. If empty, it is the cluster of more than half of the endpoints."},
	{"etcd_leader.username", &settings_username, "", PGC_SIGHUP, 0, check_name, NULL,
		"Sets the user of etcd to authenticate as.",
		"If empty, there is no authentication."},
	{"etcd_leader.password_file", &settings_password_file, "", PGC_SIGHUP, 0, check_file, NULL,
		"Sets the file that holds the password of \"etcd_leader.username\".",
		"Only its owner may be able to read it. It is read when a token is needed."},
	{"etcd_leader.ssl_ca_file", &settings_ssl_ca_file, "", PGC_SIGHUP, 0, check_file, NULL,
		"Sets the file of the certificate authorities that may have signed etcd's certificates.",
		"If empty, those of the system are trusted."},
	{"etcd_leader.ssl_cert_file", &settings_ssl_cert_file, "", PGC_SIGHUP, 0, check_file, NULL,
		"Sets the file of the client certificate to show to etcd.", NULL},
	{"etcd_leader.ssl_key_file", &settings_ssl_key_file, "", PGC_SIGHUP, 0, check_file, NULL,
		"Sets the file of the private key of \"etcd_leader.ssl_cert_file\".", NULL},
	{"etcd_leader.notify_databases", &settings_notify_databases, "postgres", PGC_SIGHUP,
		GUC_LIST_INPUT, check_databases, NULL,
		"Sets the databases in which events are announced by NOTIFY.",
		"If empty, there are no notifications."},
	{"etcd_leader.notify_channel", &settings_notify_channel, "etcd_leader", PGC_SIGHUP, 0,
		check_channel, NULL,
		"Sets the channel of NOTIFY on which events are announced.", NULL},
	{"etcd_leader.require_leadership_of", &settings_require_leadership_of, "", PGC_SUSET, 0,
		check_require_leadership_of, assign_require_leadership_of,
		"Sets the election that this instance must lead for a transaction that writes to commit.",
		"If empty, there is no such requirement. To be set for roles and databases."},
	{"etcd_leader.read_only_unless_leader_of", &settings_read_only_unless_leader_of, "",
		PGC_SIGHUP, 0, check_name, NULL,
		"Sets the election that this instance must lead, or else sessions are read-only by "
		"default.",
		"If empty, there is no such requirement. Drivers with a list of hosts find the leader by "
		"it."},
	{"etcd_leader.http_listen", &settings_http_listen, "", PGC_SIGHUP, GUC_LIST_INPUT, check_listen,
		NULL,
		"Sets the addresses at which status and metrics are served by HTTP.",
		"If empty, they are not served."},
	{"etcd_leader.http_ssl_cert_file", &settings_http_ssl_cert_file, "", PGC_SIGHUP, 0, check_file,
		NULL,
		"Sets the file of the certificate of the HTTP server.",
		"If set, it speaks HTTPS."},
	{"etcd_leader.http_ssl_key_file", &settings_http_ssl_key_file, "", PGC_SIGHUP, 0, check_file,
		NULL,
		"Sets the file of the private key of \"etcd_leader.http_ssl_cert_file\".", NULL},
	{"etcd_leader.http_agent_listen", &settings_http_agent_listen, "", PGC_SIGHUP, GUC_LIST_INPUT,
		check_listen, NULL,
		"Sets the addresses at which HAProxy's agent checks are answered.",
		"If empty, they are not answered."},
	{"etcd_leader.hooks_file", &settings_hooks_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL,
		"Sets the file whose lines are hooks: SQL that runs when leadership comes and goes, or "
		"keys change.",
		"A relative path is relative to the data directory. If empty, there are no hooks."},

	/*
	 * What a hook is told.  These are for reading, and no harm is done by
	 * whoever sets them.  They are not PGC_INTERNAL, so that each process of a
	 * hook can be given its own.
	 */
	{"etcd_leader.hook_election", &hook_facts[0], "", PGC_USERSET,
		GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL,
		"In a hook, tells the election, or the prefix of the keys that have changed.",
		"Empty elsewhere."},
	{"etcd_leader.hook_event", &hook_facts[1], "", PGC_USERSET,
		GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL,
		"In a hook, tells its event.",
		"Empty elsewhere."},
	{"etcd_leader.hook_fencing_token", &hook_facts[2], "", PGC_USERSET,
		GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL,
		"In a hook, tells the fencing token that was won or lost.",
		"Empty elsewhere."},
	{"etcd_leader.hook_reason", &hook_facts[3], "", PGC_USERSET,
		GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL,
		"In a hook, tells the reason of the event.",
		"Empty elsewhere."},
};

/* Settings that are no strings: of the elections. */
static void
define_election_numbers(void)
{
	DefineCustomEnumVariable("etcd_leader.candidate",
							 "Sets when this instance is a candidate.",
							 NULL, &settings_candidate, CANDIDATE_PRIMARY, candidate_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("etcd_leader.second_primary",
							 "Sets what a primary does while another primary of its database "
							 "system leads.",
							 "\"refuse\" keeps it out of the election; \"wait\" lets it wait to be "
							 "the next leader.",
							 &settings_second_primary, SECOND_PRIMARY_REFUSE,
							 second_primary_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.preferred_delay",
							"Sets for how long a preferred node has to wait before the leader "
							"hands over to it.",
							NULL, &settings_preferred_delay_ms, 30000, 100, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.drain_timeout",
							"Sets for how long a planned hand-over waits for transactions that "
							"require leadership.",
							"0 does not wait: these transactions are refused.",
							&settings_drain_timeout_ms, 0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.ttl",
							"Sets the time to live of the lease in etcd.",
							"A leader that disappears is replaced after this time.",
							&settings_ttl_s, 10, ELECTION_MIN_TTL_S, ELECTION_MAX_TTL_S,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.safety_margin",
							"Sets how long before the end of the lease leadership ends.",
							"-1 means a tenth of \"etcd_leader.ttl\".",
							&settings_safety_margin_ms, -1, -1, MAX_SAFETY_MARGIN_MS,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

/* Settings that are no strings: of the connections, and of what follows from an election. */
static void
define_other_numbers(void)
{
	DefineCustomEnumVariable("etcd_leader.protocol",
							 "Sets the wire protocol of requests to etcd.",
							 "\"grpc\" is etcd's own; \"json\" is that of its HTTP gateway, "
							 "for a proxy that passes HTTP/1 alone.",
							 &settings_protocol, ETCD_GRPC, protocol_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("etcd_leader.ssl_min_protocol_version",
							 "Sets the minimum TLS protocol version of connections to etcd.",
							 "If empty, it is TLSv1.2.",
							 &settings_ssl_min_protocol_version, SSL_MIN_DEFAULT,
							 ssl_min_protocol_version_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.request_timeout",
							"Sets the maximum time of one request to one endpoint.",
							"-1 means a ninth of \"etcd_leader.ttl\".",
							&settings_request_timeout_ms, -1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, check_timeout, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.connect_timeout",
							"Sets the maximum time of connecting to one endpoint.",
							"-1 means a ninth of \"etcd_leader.ttl\".",
							&settings_connect_timeout_ms, -1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, check_timeout, NULL, NULL);
	DefineCustomBoolVariable("etcd_leader.cancel_on_loss",
							 "Cancels a running statement of a transaction that requires "
							 "leadership when it is lost.",
							 NULL, &settings_cancel_on_loss, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("etcd_leader.hooks_max_workers",
							"Sets how many hooks can run at the same time.",
							"Each takes a background worker. One of them is never for changes. 0 "
							"means that none run.",
							&settings_hooks_max_workers, 2, 0, SETTINGS_HOOKS_MAX_WORKERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/* ---- values that were given before --------------------------------------------- */

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
					 errdetail("The loaded version of etcd_leader, %s, has no such setting.",
							   ETCD_LEADER_VERSION),
					 errhint("Check how the name is spelt, or remove the setting.")));
		(void) set_config_option(setting->name, setting->value, PGC_POSTMASTER, PGC_S_FILE,
								 GUC_ACTION_SET, false, FATAL, false);
	}
}

/* Numbers first: one of them is the limit of etcd_leader.elections. */
void
settings_define(void)
{
	List	   *given = find_given_settings();

	define_election_numbers();
	define_other_numbers();
	for (Size i = 0; i < lengthof(string_settings); i++)
	{
		const StringSetting *setting = &string_settings[i];

		DefineCustomStringVariable(setting->name, setting->short_desc, setting->long_desc,
								   setting->variable,
								   setting->boot_value, setting->context, setting->flags,
								   setting->check, setting->assign, NULL);
	}
	check_given_settings(given);
	MarkGUCPrefixReserved(SETTINGS_PREFIX);
}
