/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings on their way to the protocol and to the client of etcd, and
 *	  the endpoints that DNS names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"

#include "base/clock.h"
#include "base/secret_file.h"
#include "elector/changes.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/problems.h"
#include "elector/rights.h"
#include "elector/set_up.h"
#include "elector/settings.h"
#include "etcd/discovery.h"
#include "notifier/notifier.h"
#include "settings/settings.h"
#include "shared/crash_memory.h"
#include "shared/identity_file.h"

/*
 * How often to check for a promotion, in recovery.  Needed only if no notifier
 * waits for the end of recovery; otherwise the postmaster's signal for its
 * start reports the promotion.
 */
#define PROMOTION_POLL_MS	500

/* How often to look whether the file of the private key may be used. */
#define KEY_FILE_POLL_MS	5000

/* Between lookups of the endpoints in DNS: their TTL, within these bounds. */
#define MIN_DISCOVERY_MS	5000
#define MAX_DISCOVERY_MS	3600000

/* And after one that failed. */
#define DISCOVERY_RETRY_MS	10000

StaticAssertDecl(ETCD_CLIENT_MAX_ENDPOINTS <= ELECTION_MAX_ENDPOINTS &&
				 ETCD_CLIENT_MAX_URL_LEN < SHARED_ENDPOINT_SIZE,
				 "endpoints that are learned do not fit");

/* as they were passed to the protocol */
static bool eligible;
static bool in_recovery;

static EtcdDiscovery *discovery;
static EtcdDiscovered discovered;	/* the last that was any good */
static char failed_domain[sizeof(discovered.domain)];	/* the last that DNS had no answer for */
static int64 discovery_due_ns;
static int64 timed_ttl_ns;		/* by which the client's time-outs were set */
static bool uses_key_file;		/* the client may use it */

/* May this instance be a candidate now, if it is no copy? */
static bool
would_be_candidate(void)
{
	switch ((CandidateMode) settings_candidate)
	{
		case CANDIDATE_NEVER:
			return false;
		case CANDIDATE_ALWAYS:
			return true;
		case CANDIDATE_PRIMARY:
			break;
	}
	return !RecoveryInProgress();
}

static bool
may_be_candidate(void)
{
	return would_be_candidate() && !identity_is_copy();
}

bool
elector_is_eligible(void)
{
	return eligible;
}

/* May the private key be used?  Not if others can read it. */
static bool
has_key_file(void)
{
	struct stat key;

	return stat(settings_key_file(), &key) == 0 && access(settings_key_file(), R_OK) == 0 &&
		secret_file_fault(&key) == NULL;
}

/* The records of a domain are all with TLS, or all without. */
static bool
has_tls(const EtcdDiscovered *discovered)
{
	return strncmp(discovered->urls[0], "https:", 6) == 0;
}

/* The endpoints to use, in *urls; their number, 0 if none are known yet. */
static int
resolve_endpoints(const char **urls, const char **server_name)
{
	ListCell   *lc;
	int			nurls = 0;

	*server_name = NULL;
	if (settings_discovery_srv[0] == '\0')
	{
		foreach(lc, settings_endpoint_urls())
			urls[nurls++] = lfirst(lc);
		return nurls;
	}
	if (strcmp(discovered.domain, settings_discovery_srv) != 0 ||
		(settings_require_tls() && !has_tls(&discovered)))
		return 0;

	/*
	 * DNS can be forged, so it is the domain that a certificate has to be for,
	 * as for etcdctl, and not the host that DNS named.
	 */
	if (has_tls(&discovered))
		*server_name = discovered.domain;
	while (nurls < discovered.nurls)
	{
		urls[nurls] = discovered.urls[nurls];
		nurls++;
	}
	return nurls;
}

static void
configure_client(void)
{
	EtcdClientSettings settings = {0};
	const char *endpoints[ELECTION_MAX_ENDPOINTS];
	int			ttl_ms = settings_ttl_s * 1000;

	/* before the core has settings, it has no TTL */
	timed_ttl_ns = election_ttl_ns(elector_core, clock_now_ns());
	if (timed_ttl_ns != 0)
		ttl_ms = (int) (timed_ttl_ns / NSEC_PER_MSEC);

	settings.endpoints = endpoints;
	settings.nendpoints = resolve_endpoints(endpoints, &settings.server_name);
	if (settings.nendpoints == 0)
		return;					/* those before stay in use meanwhile */
	settings_fill_client(&settings, ttl_ms);
	uses_key_file = has_key_file();
	if (!uses_key_file)
		settings.cert_file = settings.key_file = NULL;
	etcd_client_configure(elector_client, &settings);
	elector_note_endpoint();
}

static void
configure_preferred(ElectionConfig *config)
{
	List	   *nodes = settings_split(settings_preferred_nodes);
	ListCell   *lc;

	foreach(lc, nodes)
		strlcpy(config->preferred_nodes[config->npreferred++], lfirst(lc), ELECTION_VALUE_SIZE);
	config->preferred_delay_ms = settings_preferred_delay_ms;
	config->preferred_drain_ms = settings_drain_timeout_ms;
}

void
elector_configure_core(void)
{
	ElectionConfig *config = palloc0(sizeof(ElectionConfig));

	if (identity_is_copy() && settings_second_primary == SECOND_PRIMARY_WAIT)
		identity_claim();
	settings_resolve_node_name(config->node_name, sizeof(config->node_name));
	config->ttl_s = settings_ttl_s;
	config->safety_margin_ms = settings_safety_margin_ms;
	config->eligible = eligible = may_be_candidate();
	config->is_copy = identity_is_copy();
	config->in_recovery = in_recovery = RecoveryInProgress();
	config->timeline = in_recovery ? 0 : GetWALInsertionTimeLine();
	config->refuses_second = settings_second_primary == SECOND_PRIMARY_REFUSE;
	snprintf(config->system_identifier, sizeof(config->system_identifier), UINT64_FORMAT,
			 GetSystemIdentifier());
	strlcpy(config->patroni_namespace, settings_patroni_namespace,
			sizeof(config->patroni_namespace));
	configure_preferred(config);
	config->nendpoints = etcd_client_endpoint_count(elector_client);
	config->nelections = settings_election_count();
	for (int i = 0; i < config->nelections; i++)
	{
		strlcpy(config->elections[i], settings_election_name(i), ELECTION_NAME_SIZE);
		config->stay_out[i] = crash_memory_stays_out(config->elections[i]);
		config->timelines[i] = crash_memory_timelines(config->elections[i]);
	}

	elector_note_node_name(config->node_name);
	election_configure(elector_core, clock_now_ns(), config);
	pfree(config);
}

bool
elector_claim(const char *election)
{
	if (!identity_is_copy() || !(would_be_candidate() || election_is_followed(election)))
		return false;
	identity_claim();
	elector_configure_core();
	return true;
}

void
elector_follow_promotion(void)
{
	if (may_be_candidate() != eligible || RecoveryInProgress() != in_recovery)
		elector_configure_core();
}

int64
elector_promotion_wakeup_ns(void)
{
	if (in_recovery && !notifier_awaits_promotion() &&
		(settings_candidate != CANDIDATE_NEVER || settings_follow_patroni()))
		return clock_now_ns() + PROMOTION_POLL_MS * NSEC_PER_MSEC;
	return PG_INT64_MAX;
}

void
elector_follow_client_settings(void)
{
	static int64 looked_ns = 0;
	int64		now_ns = clock_now_ns();
	bool		is_changed = timed_ttl_ns != election_ttl_ns(elector_core, now_ns);

	if (now_ns - looked_ns >= KEY_FILE_POLL_MS * NSEC_PER_MSEC)
	{
		looked_ns = now_ns;
		is_changed |= uses_key_file != has_key_file();
	}
	if (is_changed)
		configure_client();
}

void
elector_configure(void)
{
	discovery_due_ns = 0;
	if (strcmp(failed_domain, settings_discovery_srv) != 0)
		problem_end(PROBLEM_DNS, failed_domain);
	problems_note_reload();
	elector_look_at_files();
	configure_client();
	etcd_client_forget_clusters(elector_client);
	elector_configure_core();
	elector_configure_changes();
	elector_configure_rights();
	notifier_configure();
}

/* ---- endpoints from DNS ----------------------------------------------------------------- */

void
elector_begin_discovery(void)
{
	discovery = etcd_discovery_create();
	if (discovery == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
}

int
elector_discovery_fd(void)
{
	return etcd_discovery_fd(discovery);
}

int64
elector_discover(void)
{
	int64		now_ns = clock_now_ns();
	bool		tls_only;

	if (settings_discovery_srv[0] == '\0')
		return PG_INT64_MAX;

	/*
	 * once a domain has had records with TLS, records without TLS are ignored
	 */
	tls_only = settings_require_tls() ||
		(strcmp(discovered.domain, settings_discovery_srv) == 0 && has_tls(&discovered));
	if (discovery_due_ns <= now_ns)
	{
		(void) etcd_discovery_start(discovery, settings_discovery_srv, tls_only);
		discovery_due_ns = now_ns + DISCOVERY_RETRY_MS * NSEC_PER_MSEC;
	}
	return discovery_due_ns;
}

static bool
is_same_discovered(const EtcdDiscovered *a, const EtcdDiscovered *b)
{
	if (strcmp(a->domain, b->domain) != 0 || a->nurls != b->nurls)
		return false;
	for (int i = 0; i < a->nurls; i++)
	{
		if (strcmp(a->urls[i], b->urls[i]) != 0)
			return false;
	}
	return true;
}

void
elector_finish_discovery(void)
{
	const EtcdDiscovered *found = etcd_discovery_finish(discovery);
	int64		now_ns = clock_now_ns();

	if (found == NULL || strcmp(found->domain, settings_discovery_srv) != 0)
		return;
	if (found->nurls == 0)
	{
		strlcpy(failed_domain, found->domain, sizeof(failed_domain));
		problem_begin(PROBLEM_DNS, failed_domain, PROBLEM_LASTS, NULL, "%s", found->error);
		discovery_due_ns = now_ns + DISCOVERY_RETRY_MS * NSEC_PER_MSEC;
		return;
	}
	problem_end(PROBLEM_DNS, found->domain);

	/* it began before a setting asked for TLS */
	if (settings_require_tls() && !has_tls(found))
	{
		discovery_due_ns = now_ns;
		return;
	}
	discovery_due_ns = now_ns +
		NSEC_PER_MSEC * Min(Max(found->ttl_s * INT64CONST(1000), MIN_DISCOVERY_MS),
							MAX_DISCOVERY_MS);

	/*
	 * A new configuration makes the core and the client count failed endpoints
	 * from 0, ask for members and tokens, and so on.  That must not happen at
	 * each lookup.
	 */
	if (is_same_discovered(found, &discovered))
		return;
	discovered = *found;
	configure_client();
	elector_configure_core();
}
