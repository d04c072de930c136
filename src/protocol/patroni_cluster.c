/*-------------------------------------------------------------------------
 *
 * patroni_cluster.c
 *	  What is known of a Patroni cluster that an election follows: its keys,
 *	  its settings, and whether it runs this server (OURS).
 *
 * Sends nothing.  patroni.c reads the keys, and decides who leads.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "bytes.h"
#include "facts.h"
#include "patroni_cluster.h"

/* ---- what is set ----------------------------------------------------------- */

/* "patroni:SCOPE" or "patroni:SCOPE/GROUP" */
static const char *
scope_of(const Election *e)
{
	return e->name + strlen(ELECTION_PATRONI_PREFIX);
}

/* Patroni's own rule: slashes around the parts, never two in a row. */
void
election_patroni_prefix(char *prefix, const char *namespace, const char *election)
{
	const char *parts[] = {"/", namespace, "/", election + strlen(ELECTION_PATRONI_PREFIX), "/"};
	size_t		len = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
	{
		for (const char *c = parts[i]; *c != '\0'; c++)
		{
			if (*c != '/' || len == 0 || prefix[len - 1] != '/')
				prefix[len++] = *c;
		}
	}
	prefix[len] = '\0';
}

bool
election_is_etcd_old(const char *version)
{
	int			major;
	int			minor;
	int			patch;

	if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) != 3)
		return false;
	if (major != 3)
		return major < 3;
	return minor < 4 || (minor == 4 && patch < 31) || (minor == 5 && patch < 13);
}

void
patroni_begin(ElectionCore *core, Election *e)
{
	Patroni    *p = &e->patroni;
	const ElectionConfig *config = &core->config;
	Patroni		unknown = {.renewal_ns = p->renewal_ns};

	e->followed = true;
	e->place.seen_revision = 0;
	e->own.create_revision = 0;
	e->leader.key.create_revision = 0;
	e->leader.is_known = false;
	*p = unknown;
	election_patroni_prefix(p->prefix, config->patroni_namespace, e->name);
	snprintf(p->leader_key, sizeof(p->leader_key), "%sleader", p->prefix);
	snprintf(p->config_key, sizeof(p->config_key), "%sconfig", p->prefix);
	snprintf(p->initialize_key, sizeof(p->initialize_key), "%sinitialize", p->prefix);
	snprintf(p->member_key, sizeof(p->member_key), "%smembers/%s", p->prefix, config->node_name);
}

/* ---- what the keys say ----------------------------------------------------- */

static bool
is_other_cluster(const ElectionCore *core, const Patroni *p)
{
	return strcmp(p->system_identifier, core->config.system_identifier) != 0;
}

/* A standby is on no timeline of its own, and does not lead, either. */
static bool
is_on_timeline(const ElectionCore *core, const Patroni *p)
{
	return core->config.timeline == 0 || p->member_timeline == core->config.timeline;
}

bool
patroni_watch_timeline(const ElectionCore *core, int64_t now_ns, Election *e)
{
	Patroni    *p = &e->patroni;

	if (is_on_timeline(core, p))
		p->strange_ns = 0;
	else if (p->strange_ns == 0)
		p->strange_ns = now_ns;
	p->is_stranger = p->strange_ns != 0 && now_ns - p->strange_ns > patroni_ttl_ns(core, e);
	return p->strange_ns != 0 && !p->is_stranger;
}

bool
patroni_is_ours(const ElectionCore *core, const Patroni *p)
{
	return p->member_seen && !is_other_cluster(core, p) && !core->config.is_copy &&
		is_on_timeline(core, p);
}

/* Patroni takes these for true in its configuration, beside a number. */
static bool
is_true(const json_t *value)
{
	static const char *const words[] = {"on", "true", "yes", "1"};

	if (json_is_string(value))
	{
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		{
			if (strcmp(json_string_value(value), words[i]) == 0)
				return true;
		}
		return false;
	}
	return json_is_true(value) || json_integer_value(value) != 0;
}

static void
learn_config(Patroni *p, const EtcdKeyValue *kv)
{
	json_t	   *config = kv != NULL ? json_loadb(kv->value.data, kv->value.len, 0, NULL) : NULL;

	p->is_paused = is_true(json_object_get(config, "pause"));
	p->has_failsafe = is_true(json_object_get(config, "failsafe_mode"));
	json_decref(config);
}

/*
 * Patroni leaves the timeline out while it restarts the server, or cannot ask it
 * (touch_member() in Patroni's ha.py).  What the key said before is true until then.
 */
static void
learn_member(Patroni *p, const EtcdKeyValue *kv)
{
	json_t	   *member;
	json_int_t	timeline;

	if (kv == NULL)
		return;
	member = json_loadb(kv->value.data, kv->value.len, 0, NULL);
	timeline = json_integer_value(json_object_get(member, "timeline"));
	if (timeline > 0 && timeline <= UINT32_MAX)
		p->member_timeline = (uint32_t) timeline;
	json_decref(member);
}

/*
 * A member whose Patroni has been away for a TTL has no key, and is still the
 * member.  So it is remembered that the key was there once.
 */
void
patroni_learn_cluster(const ElectionCore *core, Patroni *p, const EtcdKeyValue *const *keys)
{
	const EtcdKeyValue *config = keys[PATRONI_CONFIG];
	const EtcdKeyValue *initialize = keys[PATRONI_INITIALIZE];
	const EtcdKeyValue *member = keys[PATRONI_MEMBER];
	bool		has_leader = keys[PATRONI_LEADER] != NULL;

	p->has_keys = has_leader || config != NULL || initialize != NULL || member != NULL;
	p->system_identifier[0] = '\0';
	if (initialize != NULL)
		copy_value(p->system_identifier, initialize->value, sizeof(p->system_identifier));
	p->member_seen = !is_other_cluster(core, p) && (p->member_seen || member != NULL);
	learn_member(p, member);
	learn_config(p, config);
}

/* ---- what is wrong --------------------------------------------------------- */

/* Why this server is no member of the cluster. */
static void
explain_stranger(const ElectionCore *core, const Election *e, char *problem)
{
	const Patroni *p = &e->patroni;
	const char *node = core->config.node_name;

	if (!p->has_keys)
		etcd_format_message(problem, "etcd has no keys of a Patroni cluster below \"%s\": "
							"check its scope in \"etcd_leader.elections\", "
							"and \"etcd_leader.patroni_namespace\"", p->prefix);
	else if (p->system_identifier[0] == '\0')
		etcd_format_message(problem, "Patroni has not initialized the cluster below \"%s\" yet",
							p->prefix);
	else if (is_other_cluster(core, p))
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has the system identifier "
							"%s, and this server %s: check \"etcd_leader.elections\" "
							"and \"etcd_leader.patroni_namespace\"",
							p->prefix, p->system_identifier, core->config.system_identifier);
	else if (core->config.is_copy)
		etcd_format_message(problem, "this server was started from a copy of a data directory, so "
							"it need not be the member \"%s\" of the Patroni cluster below \"%s\"",
							node, p->prefix);
	else if (p->member_seen && !p->is_stranger)
		problem[0] = '\0';		/* Patroni tells of a promotion in its next loop */
	else if (p->member_seen && p->member_timeline == 0)
		etcd_format_message(problem, "the Patroni cluster below \"%s\" does not say on which "
							"timeline its member \"%s\" is", p->prefix, node);
	else if (p->member_seen)
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has its member \"%s\" on "
							"timeline %" PRIu32 ", and this server is on timeline %" PRIu32
							": is it a copy of that member?",
							p->prefix, node, p->member_timeline, core->config.timeline);
	else if (strcmp(node, scope_of(e)) == 0)
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has no member \"%s\": "
							"that is its scope; set \"etcd_leader.node_name\" to the name of "
							"this member, in the node's own configuration", p->prefix, node);
	else
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has no member \"%s\": "
							"set \"etcd_leader.node_name\" to the name of this member",
							p->prefix, node);
}

/* Why a server that is a member, and not in recovery, does not lead. */
static void
explain_follower(const Election *e, char *problem)
{
	const Patroni *p = &e->patroni;

	if (p->is_paused)
		etcd_format_message(problem, "Patroni is paused and keeps this server a primary, but its "
							"leader key does not name this server, or cannot be confirmed");
	else if (p->has_failsafe)
		etcd_format_message(problem, "Patroni's failsafe_mode may keep this server a primary, but "
							"its leader key does not name this server, or cannot be confirmed");
	else if (e->own.create_revision != 0)
		problem[0] = '\0';		/* a renewal shows it soon, or why it cannot */
	else if (e->leader.key.create_revision != 0)
		etcd_format_message(problem, "this server is not in recovery, but Patroni's leader key "
							"names \"%s\": is Patroni running here?", e->leader.value);
	else
		etcd_format_message(problem, "this server is not in recovery, but there is no leader key "
							"of Patroni: is Patroni running here?");
}

void
patroni_describe(const ElectionCore *core, const Election *e, ElectionView *view)
{
	const Patroni *p = &e->patroni;

	if (e->own.create_revision != 0)
	{
		copy_string(view->key, p->leader_key, sizeof(view->key));
		view->create_revision = e->own.create_revision;
		view->lease = p->lease;
	}
	if (e->place.seen_revision == 0 || e->state == ELECTION_LEADING)
		return;
	if (!patroni_is_ours(core, p))
		explain_stranger(core, e, view->problem);
	else if (!core->config.in_recovery)
		explain_follower(e, view->problem);
}
