/*-------------------------------------------------------------------------
 *
 * settings_check.c
 *	  What is allowed in each GUC.
 *
 * A bad value is refused when it is set, so that nobody has to look at it
 * again.  Check hooks run in the postmaster too: no catalog access.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "mb/pg_wchar.h"
#include "utils/varlena.h"

#include "base/compat.h"
#include "etcd/endpoint_url.h"
#include "etcd/etcd_client.h"
#include "protocol/changes.h"
#include "settings.h"
#include "settings_check.h"

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

/* Checks element number n of a list, against all the others. */
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
		GUC_check_errhint("Separate the elements by commas, and put one that contains commas or spaces into double quotes.");
	}
	else if (list_length(elements) < min || list_length(elements) > max)
	{
		GUC_check_errdetail(miscounted, max);
		valid = false;
	}
	for (int i = 0; valid && i < list_length(elements); i++)
		valid = check(elements, i);
	list_free(elements);
	pfree(raw);
	return valid;
}

/*
 * Checks text that is sent to etcd, or shown to people: UTF-8 without control
 * characters, shorter than `size`.
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

static bool
check_endpoint(const List *endpoints, int n)
{
	const char *endpoint = list_nth(endpoints, n);

	if (!check_text(endpoint_url(endpoint), ETCD_CLIENT_MAX_URL_LEN + 1))
		return false;
	if (endpoint_is_valid(endpoint))
		return true;
	GUC_check_errdetail("\"%s\" is not an endpoint of etcd.", endpoint);
	GUC_check_errhint("Write a URL such as \"http://10.0.0.1:2379\" or \"https://etcd1.example.com:2379\", a host and a port such as \"10.0.0.1:2379\", or a socket such as \"unix:///run/etcd.sock\".");
	return false;
}

bool
settings_check_endpoints(char **newval, void **extra, GucSource source)
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

	return check_list(*newval, 1, ELECTION_MAX_ENDPOINTS, "There must be at least 1 endpoint and at most %d.",
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

bool
settings_check_elections(char **newval, void **extra, GucSource source)
{
	List	   *names;
	ElectionList *list;

	if (!check_list(*newval, 0, settings_max_elections, "There must be at most %d elections, the value of \"etcd_leader.max_elections\".", check_election))
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

	if (prefix[0] == '\0')
	{
		GUC_check_errdetail("A watched prefix must not be empty.");
		return false;
	}
	if (!check_text(prefix, CHANGES_PREFIX_SIZE))
		return false;
	for (int i = 0; i < list_length(prefixes); i++)
	{
		const char *other = list_nth(prefixes, i);

		/* of two equal ones, the second */
		if (i != n && strncmp(prefix, other, strlen(other)) == 0 &&
			(i < n || strcmp(prefix, other) != 0))
		{
			GUC_check_errdetail("The keys below prefix \"%s\" would be watched twice, as they are below \"%s\", too.",
								prefix, other);
			return false;
		}
	}
	election = settings_find_election_within(prefix);
	if (election != NULL)
	{
		GUC_check_errdetail("Prefix \"%s\" has keys of election \"%s\".", prefix, election);
		GUC_check_errhint("The changes of an election are the events \"elected\", \"unelected\" and \"leader\".");
		return false;
	}
	return true;
}

bool
settings_check_watched_prefixes(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, CHANGES_MAX_PREFIXES, "There must be at most %d prefixes.",
					  check_watched_prefix);
}

bool
settings_check_discovery_srv(char **newval, void **extra, GucSource source)
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

bool
settings_check_name(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_NAME_SIZE);
}

bool
settings_check_file(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, MAXPGPATH);
}

bool
settings_check_node_name(char **newval, void **extra, GucSource source)
{
	return check_text(*newval, ELECTION_VALUE_SIZE);
}

static bool
check_node(const List *nodes, int n)
{
	const char *node = list_nth(nodes, n);

	if (node[0] == '\0')
		GUC_check_errdetail("The name of a node must not be empty.");
	else if (is_repeated(nodes, n))
		GUC_check_errdetail("Node \"%s\" is listed more than once.", node);
	else
		return check_text(node, ELECTION_VALUE_SIZE);
	return false;
}

bool
settings_check_preferred_nodes(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, ELECTION_MAX_PREFERRED, "There must be at most %d nodes.", check_node);
}

static bool
check_database(const List *databases, int n)
{
	const char *database = list_nth(databases, n);

	if (database[0] == '\0' || strlen(database) >= NAMEDATALEN)
		GUC_check_errdetail("The name of a database must be 1 to %d bytes long.", NAMEDATALEN - 1);
	else if (is_repeated(databases, n))
		GUC_check_errdetail("Database \"%s\" is listed more than once.", database);
	else
		return true;
	return false;
}

bool
settings_check_databases(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, SETTINGS_MAX_DATABASES, "There must be at most %d databases.", check_database);
}

bool
settings_check_channel(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] == '\0')
	{
		GUC_check_errdetail("The name of the channel must not be empty.");
		return false;
	}
	return check_text(*newval, NAMEDATALEN);
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
bool
settings_check_require_leadership(char **newval, void **extra, GucSource source)
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

bool
settings_check_timeout(int *newval, void **extra, GucSource source)
{
	if (*newval == 0)
	{
		GUC_check_errdetail("The timeout must be at least 1 ms, or -1 for a ninth of \"%s\".", "etcd_leader.ttl");
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

	if (colon == NULL || colon - address >= (ptrdiff_t) sizeof(host) || !isdigit((unsigned char) colon[1]))
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
	return strcmp(host, "*") == 0 || strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &ip) == 1;
}

static bool
check_listen_address(const List *addresses, int n)
{
	const char *address = list_nth(addresses, n);

	if (!is_listen_address(address))
	{
		GUC_check_errdetail("\"%s\" is not an address to listen at.", address);
		GUC_check_errhint("An address is an IPv4 address, [IPv6 address], \"localhost\" or \"*\", a colon and a port, such as \"127.0.0.1:8010\".");
	}
	else if (is_repeated(addresses, n))
		GUC_check_errdetail("Address \"%s\" is listed more than once.", address);
	else
		return true;
	return false;
}

bool
settings_check_listen(char **newval, void **extra, GucSource source)
{
	return check_list(*newval, 0, SETTINGS_MAX_LISTEN, "There must be at most %d addresses.", check_listen_address);
}
