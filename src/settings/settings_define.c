/*-------------------------------------------------------------------------
 *
 * settings_define.c
 *	  Every GUC of etcd_leader.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "base/compat.h"
#include "settings.h"
#include "settings_check.h"

/* Leaves at least half of the greatest TTL. */
#define MAX_SAFETY_MARGIN_MS	(ELECTION_MAX_TTL_S * 1000 / 2)

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

typedef struct IntSetting
{
	const char *name;
	GucContext	context;
	int			flags;
	const char *short_desc;
	const char *long_desc;
	int		   *variable;
	int			boot_value;
	int			min;
	int			max;
	GucIntCheckHook check;
} IntSetting;

typedef struct StringSetting
{
	const char *name;
	GucContext	context;
	int			flags;
	const char *short_desc;
	const char *long_desc;
	char	  **variable;
	const char *boot_value;
	GucStringCheckHook check;
	GucStringAssignHook assign;
} StringSetting;

static const IntSetting int_settings[] = {
	{"etcd_leader.max_elections", PGC_POSTMASTER, 0,
		"Sets the maximum number of elections.",
		NULL,
		&settings_max_elections, 16, 1, ELECTION_MAX_ELECTIONS, NULL},
	{"etcd_leader.preferred_delay", PGC_SIGHUP, GUC_UNIT_MS,
		"Sets for how long a preferred node has to wait before the leader hands over to it.",
		NULL,
		&settings_preferred_delay_ms, 30000, 100, INT_MAX, NULL},
	{"etcd_leader.ttl", PGC_SIGHUP, GUC_UNIT_S,
		"Sets the time to live of the lease in etcd.",
		"A leader that disappears is replaced after this time.",
		&settings_ttl_s, 10, ELECTION_MIN_TTL_S, ELECTION_MAX_TTL_S, NULL},
	{"etcd_leader.safety_margin", PGC_SIGHUP, GUC_UNIT_MS,
		"Sets how long before the end of the lease leadership ends.",
		"-1 means a tenth of \"etcd_leader.ttl\".",
		&settings_safety_margin_ms, -1, -1, MAX_SAFETY_MARGIN_MS, NULL},
	{"etcd_leader.request_timeout", PGC_SIGHUP, GUC_UNIT_MS,
		"Sets the maximum time of one request to one endpoint.",
		"-1 means a ninth of \"etcd_leader.ttl\".",
		&settings_request_timeout_ms, -1, -1, INT_MAX, settings_check_timeout},
	{"etcd_leader.connect_timeout", PGC_SIGHUP, GUC_UNIT_MS,
		"Sets the maximum time of connecting to one endpoint.",
		"-1 means a ninth of \"etcd_leader.ttl\".",
		&settings_connect_timeout_ms, -1, -1, INT_MAX, settings_check_timeout},
	{"etcd_leader.max_hook_workers", PGC_SIGHUP, 0,
		"Sets how many hooks can run at the same time.",
		"Each takes a background worker. One of them is never for changes. 0 means that none run.",
		&settings_max_hook_workers, 2, 0, SETTINGS_MAX_HOOK_WORKERS, NULL},
};

static void
assign_elections(const char *newval, void *extra)
{
	settings_set_elections(extra);
}

static void
assign_require_leadership(const char *newval, void *extra)
{
	settings_requires_by_role = extra != NULL && *(bool *) extra;
}

static char *hook_facts[4];

/* etcd_leader.watched_prefixes is checked against the elections before it. */
static const StringSetting string_settings[] = {
	{"etcd_leader.elections", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the names of the elections to take part in.",
		"A name is the prefix of the candidates' keys in etcd. Functions use the first one by default. If empty, this instance takes part in none.",
		&settings_elections, "", settings_check_elections, assign_elections},
	{"etcd_leader.watched_prefixes", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the prefixes of other keys in etcd whose changes are events.",
		"If empty, no other keys are watched.",
		&settings_watched_prefixes, "", settings_check_watched_prefixes, NULL},
	{"etcd_leader.patroni_namespace", PGC_SIGHUP, 0,
		"Sets the namespace of the Patroni clusters whose leader keys are followed.",
		"It is Patroni's own setting \"namespace\".",
		&settings_patroni_namespace, "/service", settings_check_name, NULL},
	{"etcd_leader.node_name", PGC_SIGHUP, 0,
		"Sets the name under which this instance is a candidate.",
		"If empty, it is \"cluster_name\", or else the host name and the port.",
		&settings_node_name, "", settings_check_node_name, NULL},
	{"etcd_leader.preferred_nodes", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the nodes that shall lead, the best first.",
		"A leader hands over to a better one that has waited for \"etcd_leader.preferred_delay\".",
		&settings_preferred_nodes, "", settings_check_preferred_nodes, NULL},
	{"etcd_leader.endpoints", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the endpoints of the etcd cluster's members.",
		"Each is a URL, or a host and a port. They are tried in turn.",
		&settings_endpoints, "http://127.0.0.1:2379", settings_check_endpoints, NULL},
	{"etcd_leader.discovery_srv", PGC_SIGHUP, 0,
		"Sets the DNS domain whose SRV records name the etcd cluster's members.",
		"If set, \"etcd_leader.endpoints\" is ignored.",
		&settings_discovery_srv, "", settings_check_discovery_srv, NULL},
	{"etcd_leader.username", PGC_SIGHUP, 0,
		"Sets the user of etcd to authenticate as.",
		"If empty, there is no authentication.",
		&settings_username, "", settings_check_name, NULL},
	{"etcd_leader.password_file", PGC_SIGHUP, 0,
		"Sets the file that holds the password of \"etcd_leader.username\".",
		"Only its owner may be able to read it. It is read when a token is needed.",
		&settings_password_file, "", settings_check_file, NULL},
	{"etcd_leader.ssl_ca_file", PGC_SIGHUP, 0,
		"Sets the file of the certificate authorities that may have signed etcd's certificates.",
		"If empty, those of the system are trusted.",
		&settings_ssl_ca_file, "", settings_check_file, NULL},
	{"etcd_leader.ssl_cert_file", PGC_SIGHUP, 0,
		"Sets the file of the client certificate to show to etcd.",
		NULL,
		&settings_ssl_cert_file, "", settings_check_file, NULL},
	{"etcd_leader.ssl_key_file", PGC_SIGHUP, 0,
		"Sets the file of the private key of \"etcd_leader.ssl_cert_file\".",
		NULL,
		&settings_ssl_key_file, "", settings_check_file, NULL},
	{"etcd_leader.databases", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the databases in which events are announced by NOTIFY.",
		"If empty, there are no notifications.",
		&settings_databases, "postgres", settings_check_databases, NULL},
	{"etcd_leader.channel", PGC_SIGHUP, 0,
		"Sets the channel of NOTIFY on which events are announced.",
		NULL,
		&settings_channel, "etcd_leader", settings_check_channel, NULL},
	{"etcd_leader.require_leadership", PGC_SUSET, 0,
		"Sets the election that this instance must lead for a transaction that writes to commit.",
		"If empty, there is no such requirement. To be set for roles and databases.",
		&settings_require_leadership, "", settings_check_require_leadership, assign_require_leadership},
	{"etcd_leader.http_listen", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the addresses at which status and metrics are served by HTTP.",
		"If empty, they are not served.",
		&settings_http_listen, "", settings_check_listen, NULL},
	{"etcd_leader.http_ssl_cert_file", PGC_SIGHUP, 0,
		"Sets the file of the certificate of the HTTP server.",
		"If set, it speaks HTTPS.",
		&settings_http_ssl_cert_file, "", settings_check_file, NULL},
	{"etcd_leader.http_ssl_key_file", PGC_SIGHUP, 0,
		"Sets the file of the private key of \"etcd_leader.http_ssl_cert_file\".",
		NULL,
		&settings_http_ssl_key_file, "", settings_check_file, NULL},
	{"etcd_leader.agent_listen", PGC_SIGHUP, GUC_LIST_INPUT,
		"Sets the addresses at which HAProxy's agent checks are answered.",
		"If empty, they are not answered.",
		&settings_agent_listen, "", settings_check_listen, NULL},
	{"etcd_leader.hooks_file", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
		"Sets the file whose lines are hooks: SQL that runs when leadership comes and goes, or keys change.",
		"A relative path is relative to the data directory. If empty, there are no hooks.",
		&settings_hooks_file, "", NULL, NULL},

	/*
	 * What a hook is told.  These are for reading, and no harm is done by
	 * whoever sets them.  They are not PGC_INTERNAL, so that each process of a
	 * hook can be given its own.
	 */
	{"etcd_leader.hook_election", PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
		"In a hook, tells the election, or the prefix of the keys that have changed.",
		"Empty elsewhere.",
		&hook_facts[0], "", NULL, NULL},
	{"etcd_leader.hook_event", PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
		"In a hook, tells its event.",
		"Empty elsewhere.",
		&hook_facts[1], "", NULL, NULL},
	{"etcd_leader.hook_token", PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
		"In a hook, tells the fencing token that was won or lost.",
		"Empty elsewhere.",
		&hook_facts[2], "", NULL, NULL},
	{"etcd_leader.hook_reason", PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
		"In a hook, tells the reason of the event.",
		"Empty elsewhere.",
		&hook_facts[3], "", NULL, NULL},
};

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

/* Numbers first: one of them is the limit of etcd_leader.elections. */
void
settings_define(void)
{
	List	   *given = find_given_settings();

	for (Size i = 0; i < lengthof(int_settings); i++)
	{
		const IntSetting *setting = &int_settings[i];

		DefineCustomIntVariable(setting->name, setting->short_desc, setting->long_desc, setting->variable,
								setting->boot_value, setting->min, setting->max, setting->context, setting->flags,
								setting->check, NULL, NULL);
	}
	for (Size i = 0; i < lengthof(string_settings); i++)
	{
		const StringSetting *setting = &string_settings[i];

		DefineCustomStringVariable(setting->name, setting->short_desc, setting->long_desc, setting->variable,
								   setting->boot_value, setting->context, setting->flags,
								   setting->check, setting->assign, NULL);
	}
	DefineCustomEnumVariable("etcd_leader.candidate", "Sets when this instance is a candidate.",
							 NULL, &settings_candidate, CANDIDATE_PRIMARY,
							 candidate_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("etcd_leader.ssl_min_protocol_version",
							 "Sets the minimum TLS protocol version of connections to etcd.",
							 "If empty, it is TLSv1.2.", &settings_ssl_min_protocol_version, SSL_MIN_DEFAULT,
							 ssl_min_protocol_version_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("etcd_leader.cancel_on_loss",
							 "Cancels a running statement of a transaction that requires leadership when it is lost.",
							 NULL, &settings_cancel_on_loss, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	check_given_settings(given);
	MarkGUCPrefixReserved(SETTINGS_PREFIX);
}
