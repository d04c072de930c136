/*-------------------------------------------------------------------------
 *
 * patroni.c
 *	  A followed election: its leader is the member that Patroni's leader key
 *	  names.
 *
 * Patroni (with its etcd3 DCS) keeps "/<namespace>/<scope>/leader" in etcd.
 * The value is the name of a member.  The key hangs on a lease of that
 * member, which each HA loop renews.  We write nothing.  We read the key,
 * watch it, and ask how long its lease lives.  This instance leads exactly
 * while these hold:
 *
 * NAMED	A linearizable look has shown our node name as the value, and no
 *			newer look or event has shown anything else.
 * LIVES	The deadline has not passed: the sending of a question for the
 *			lease's time to live, plus the answer, minus a margin.
 * ORDERED	While the key names us, as far as is known, a look is ordered by
 *			raft's log, as the looks of candidates are (see election.c).  Only
 *			such a look moves the deadline.  It needs the right to read.
 * PRIMARY	This server is not in recovery.  Patroni takes the key before it
 *			promotes, and the leader of a standby cluster is never promoted.
 * OURS		The cluster is the one that runs this server: it has a member of
 *			our node name, and our system identifier.
 *
 * The beat, which moves the deadline: first the time to live of the lease on
 * which the key was seen, then, sent after that answer, an ordered look.  They
 * count together, if the look shows the key with our name on that same lease,
 * and both answers are of the raft term that was known when the first one was
 * sent.  Why this order, and these terms:
 *
 * - Patroni's demotion deletes the key and keeps the lease, which its
 *   member's key hangs on, too.  Had the look come first, a time to live
 *   answered after the deletion would move the deadline of a key that is
 *   gone.  This way the key stood after the time to live was answered.
 * - etcd's leader answers a time to live from its own books.  It does not
 *   make sure first that it still leads.  A deposed one may have renewed the
 *   lease in its books alone, and say more than is true.  A linearizable
 *   answer in the same term, to what was asked later, shows that no newer
 *   leader had been elected when the time to live was answered.
 * - The member that passes the answer on puts its term into it afterwards.
 *   So a deposed leader's answer could come with the new term, if that was
 *   learned in between.  A term that was known at the sending cannot be learned
 *   in between.  What remains is another member that still believes in the
 *   deposed leader; etcd's leaders step down an election timeout after they
 *   lost their quorum, and the margin is no less than that.
 *
 * The deadline is that of the last beat, even if it is earlier than before,
 * because the newer answer is the better one.  A beat also begins anew after
 * the deadline has passed, without a new create revision.  Nobody else can
 * have led meanwhile: a member that takes the key over deletes it, or waits
 * until it is gone, and creates it with another create revision.  A lease of
 * our own is different: it is never revived (rule FRESH of election.c),
 * because a leader of etcd that wakes up might revoke it, and because a fresh
 * lease can be granted.
 *
 * The token is the key's create revision.  Patroni before 3.0.3 can put its
 * name over that of another member, which leaves the create revision as it is: a
 * Patroni that was stopped and wakes up does so.  Then the token is the
 * revision of that put.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "election_internal.h"

/*
 * The least margin: etcd's default election timeout.  A deposed leader of etcd
 * may believe for this long that it still leads.
 */
#define MIN_MARGIN_NS		NS_PER_S

/* The keys that a look reads, in the order of its ranges. */
enum
{
	RANGE_LEADER,
	RANGE_CONFIG,
	RANGE_INITIALIZE,
	RANGE_MEMBER
};

/* ---- what is set -------------------------------------------------------------- */

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
	if (major != 3 || minor > 5)
		return major < 3;
	return minor < 4 || (minor == 4 && patch < 31) || (minor == 5 && patch < 13);
}

/* Forgets everything, which has to be learned again. */
static void
forget_cluster(Election *e)
{
	Patroni    *p = &e->patroni;

	e->seen_revision = 0;
	e->create_revision = 0;
	e->leader.create_revision = 0;
	e->leader_value[0] = '\0';
	e->leader_known = false;
	p->lease = 0;
	p->ttl_ns = 0;
	p->until_ns = 0;
	p->event_revision = 0;
	p->key_revision = 0;
	p->asked_id = 0;
	p->told.valid = false;
	p->beat_wanted = false;
	p->beat_failures = 0;
	p->retry_ns = 0;
	p->config_revision = 0;
	p->is_paused = false;
	p->has_failsafe = false;
	p->has_keys = false;
	p->member_seen = false;
	p->system_identifier[0] = '\0';
}

void
patroni_begin(ElectionCore *core, Election *e)
{
	Patroni    *p = &e->patroni;
	const ElectionConfig *config = &core->config;

	e->followed = true;
	forget_cluster(e);
	election_patroni_prefix(p->prefix, config->patroni_namespace, e->name);
	snprintf(p->leader_key, sizeof(p->leader_key), "%sleader", p->prefix);
	snprintf(p->config_key, sizeof(p->config_key), "%sconfig", p->prefix);
	snprintf(p->initialize_key, sizeof(p->initialize_key), "%sinitialize", p->prefix);
	snprintf(p->member_key, sizeof(p->member_key), "%smembers/%s", p->prefix, config->node_name);
}

void
patroni_discard(Election *e)
{
	forget_cluster(e);
}

/* ---- times ---------------------------------------------------------------------- */

/* The TTL of the leader key's lease; ours, until that is known. */
static int64_t
ttl_ns(const ElectionCore *core, const Election *e)
{
	return e->patroni.ttl_ns != 0 ? e->patroni.ttl_ns : core->config.ttl_s * NS_PER_S;
}

int64_t
patroni_deadline_ns(const ElectionCore *core, const Election *e)
{
	int64_t		margin_ns = lease_margin_ns(core, ttl_ns(core, e));

	if (margin_ns < MIN_MARGIN_NS)
		margin_ns = MIN_MARGIN_NS;
	return e->patroni.until_ns - margin_ns;
}

int64_t
patroni_longest_ttl_ns(const ElectionCore *core)
{
	int64_t		longest_ns = 0;

	for (int i = 0; i < core->max_elections; i++)
	{
		const Election *e = &core->elections[i];

		if (is_used(e) && e->followed && e->patroni.ttl_ns > longest_ns)
			longest_ns = e->patroni.ttl_ns;
	}
	return longest_ns;
}

/* ---- what is wrong ---------------------------------------------------------------- */

static bool
is_other_cluster(const ElectionCore *core, const Patroni *p)
{
	return strcmp(p->system_identifier, core->config.system_identifier) != 0;
}

/* Does the cluster of the keys run this server? (OURS) */
static bool
is_ours(const ElectionCore *core, const Patroni *p)
{
	return p->member_seen && !is_other_cluster(core, p);
}

/* Why this server is no member of the cluster. */
static void
explain_stranger(const ElectionCore *core, const Election *e, char *problem)
{
	const Patroni *p = &e->patroni;
	const char *node = core->config.node_name;

	if (!p->has_keys)
		etcd_format_message(problem, "etcd has no keys of a Patroni cluster below \"%s\": check its scope in \"etcd_leader.elections\", and \"etcd_leader.patroni_namespace\"",
							p->prefix);
	else if (p->system_identifier[0] == '\0')
		etcd_format_message(problem, "Patroni has not initialized the cluster below \"%s\" yet", p->prefix);
	else if (is_other_cluster(core, p))
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has the system identifier %s, and this server %s: check \"etcd_leader.elections\" and \"etcd_leader.patroni_namespace\"",
							p->prefix, p->system_identifier, core->config.system_identifier);
	else if (strcmp(node, scope_of(e)) == 0)
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has no member \"%s\": that is its scope; set \"etcd_leader.node_name\" to the name of this member, in the node's own configuration",
							p->prefix, node);
	else
		etcd_format_message(problem, "the Patroni cluster below \"%s\" has no member \"%s\": set \"etcd_leader.node_name\" to the name of this member",
							p->prefix, node);
}

/* Why a server that is a member, and not in recovery, does not lead. */
static void
explain_follower(const Election *e, char *problem)
{
	const Patroni *p = &e->patroni;

	if (p->is_paused)
		etcd_format_message(problem, "Patroni is paused and keeps this server a primary, but its leader key does not name this server, or cannot be confirmed");
	else if (p->has_failsafe)
		etcd_format_message(problem, "Patroni's failsafe_mode may keep this server a primary, but its leader key does not name this server, or cannot be confirmed");
	else if (e->create_revision != 0)
		problem[0] = '\0';		/* a beat shows it soon, or why it cannot */
	else if (e->leader.create_revision != 0)
		etcd_format_message(problem, "this server is not in recovery, but Patroni's leader key names \"%s\": is Patroni running here?", e->leader_value);
	else
		etcd_format_message(problem, "this server is not in recovery, but there is no leader key of Patroni: is Patroni running here?");
}

void
patroni_describe(const ElectionCore *core, const Election *e, ElectionView *view)
{
	const Patroni *p = &e->patroni;

	if (e->create_revision != 0)
	{
		copy_string(view->key, p->leader_key, sizeof(view->key));
		view->create_revision = e->create_revision;
		view->lease = p->lease;
	}
	if (e->seen_revision == 0 || e->state == ELECTION_LEADING)
		return;
	if (!is_ours(core, p))
		explain_stranger(core, e, view->problem);
	else if (!core->config.in_recovery)
		explain_follower(e, view->problem);
}

/* ---- leading ------------------------------------------------------------------------ */

/* Begins or ends leadership, by whether all conditions hold. */
static void
conclude(ElectionCore *core, int64_t now_ns, Election *e)
{
	const Patroni *p = &e->patroni;
	bool		lives = p->until_ns != 0 && patroni_deadline_ns(core, e) > now_ns;
	bool		leads = e->create_revision != 0 && e->leader_known && lives && is_ours(core, p) &&
		!core->config.in_recovery;

	if (e->state == ELECTION_LEADING && !leads)
		queue_withdraw(core, e, lives ? ELECTION_REASON_NOT_ELIGIBLE : ELECTION_REASON_LEASE_EXPIRED);
	else if (leads && e->state != ELECTION_LEADING)
	{
		e->state = ELECTION_LEADING;
		e->told_revision = e->create_revision;
		copy_string(e->told_value, e->leader_value, sizeof(e->told_value));
		core_publish(core, e);
		core_announce(core, ELECTION_EVENT_ELECTED, e, true, ELECTION_NO_REASON, NULL);
	}
}

/* The key does not name us any more, or is another one. */
static void
lose_key(ElectionCore *core, Election *e, ElectionReason reason)
{
	queue_withdraw(core, e, reason);
	e->create_revision = 0;
	e->patroni.until_ns = 0;
	e->patroni.told.valid = false;
}

/*
 * The key is attached to another lease, and nothing is known of that lease yet.
 * No lease of etcd is shorter than an election timeout and a half.
 */
static void
cap_deadline(const ElectionCore *core, int64_t now_ns, Election *e)
{
	int64_t		excess_ns = patroni_deadline_ns(core, e) - (now_ns + MIN_MARGIN_NS);

	if (e->patroni.until_ns != 0 && excess_ns > 0)
		e->patroni.until_ns -= excess_ns;
}

/*
 * The leader key as it is now (NULL: it does not exist).  Returns whether it
 * names us.
 */
static bool
learn_key(ElectionCore *core, int64_t now_ns, Election *e, const EtcdKeyValue *kv)
{
	Patroni    *p = &e->patroni;
	bool		named = kv != NULL && is_key(kv->value, core->config.node_name);
	bool		same_key = p->key_revision == (kv ? kv->create_revision : 0);
	bool		same_holder = same_key && (kv == NULL || is_key(kv->value, e->leader_value));

	if (e->create_revision != 0 && !same_holder)
		lose_key(core, e, same_key ? ELECTION_REASON_KEY_CHANGED : ELECTION_REASON_KEY_DELETED);
	if (!same_holder || (kv != NULL && kv->lease != p->lease))
	{
		/* The key has changed hands; or Patroni was restarted. */
		cap_deadline(core, now_ns, e);
		p->told.valid = false;
		p->beat_wanted = true;
		p->retry_ns = 0;
	}
	if (!same_holder)
	{
		copy_value(e->leader_value, kv ? kv->value : bytes_of(""), sizeof(e->leader_value));
		e->leader.create_revision = kv == NULL ? 0 : same_key ? kv->mod_revision : kv->create_revision;
	}
	p->key_revision = kv ? kv->create_revision : 0;
	p->lease = kv ? kv->lease : 0;
	if (named)
		e->create_revision = e->leader.create_revision;
	return named;
}

/* ---- looks ---------------------------------------------------------------------------- */

/*
 * Sends a look of this election alone: a right that is missing for the keys of
 * one cluster must not cost another election anything.
 */
static bool
send_look(ElectionCore *core, int64_t now_ns, Election *e)
{
	const Patroni *p = &e->patroni;
	EtcdOp		ops[PATRONI_NRANGES + 1];
	Op		   *op = core_start_election_op(core, now_ns, OP_PATRONI_LOOK, e);

	if (op == NULL)
		return false;
	look_take_up(op, e);
	e->look_id = op->id;
	ops[RANGE_LEADER] = range_of_key(p->leader_key);
	ops[RANGE_CONFIG] = range_of_key(p->config_key);
	ops[RANGE_INITIALIZE] = range_of_key(p->initialize_key);
	ops[RANGE_MEMBER] = range_of_key(p->member_key);
	core_send_look(core, op, ops, PATRONI_NRANGES, e->create_revision != 0);
	return true;
}

bool
patroni_probe(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (is_used(e) && e->followed)
			return send_look(core, now_ns, e);
	}
	return false;
}

void
patroni_postpone_looks(ElectionCore *core, int64_t until_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (is_used(e) && e->followed && e->retry_ns < until_ns)
			e->retry_ns = until_ns;
	}
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
	return json_is_true(value) || (json_is_integer(value) && json_integer_value(value) != 0);
}

static void
learn_config(Patroni *p, const EtcdKeyValue *kv)
{
	json_t	   *config;

	if (kv != NULL && kv->mod_revision == p->config_revision)
		return;
	p->config_revision = kv != NULL ? kv->mod_revision : 0;
	config = kv != NULL ? json_loadb(kv->value.data, kv->value.len, 0, NULL) : NULL;
	p->is_paused = is_true(json_object_get(config, "pause"));
	p->has_failsafe = is_true(json_object_get(config, "failsafe_mode"));
	json_decref(config);
}

/*
 * A member whose Patroni has been away for a TTL has no key, and is still the
 * member.  So it is remembered that the key was there once.
 */
static void
learn_cluster(const ElectionCore *core, Patroni *p, const EtcdAnswer *answer)
{
	const EtcdKeyValue *config = first_kv(answer, RANGE_CONFIG);
	const EtcdKeyValue *initialize = first_kv(answer, RANGE_INITIALIZE);
	const EtcdKeyValue *member = first_kv(answer, RANGE_MEMBER);
	bool		has_leader = first_kv(answer, RANGE_LEADER) != NULL;

	p->has_keys = has_leader || config != NULL || initialize != NULL || member != NULL;
	p->system_identifier[0] = '\0';
	if (initialize != NULL)
		copy_value(p->system_identifier, initialize->value, sizeof(p->system_identifier));
	p->member_seen = !is_other_cluster(core, p) && (p->member_seen || member != NULL);
	learn_config(p, config);
}

static void
fail_beat(ElectionCore *core, int64_t now_ns, Election *e, int64_t sent_ns)
{
	Patroni    *p = &e->patroni;

	/* The other endpoints are tried at once, then with a back-off. */
	p->beat_wanted = true;
	p->retry_ns = now_ns;
	if (++p->beat_failures > core->config.nendpoints)
		p->retry_ns = sent_ns + core_urgent_backoff_ns(core, p->beat_failures - core->config.nendpoints);
}

/* Both answers of a beat have come: moves the deadline, or tries again. */
static void
finish_beat(ElectionCore *core, int64_t now_ns, const Op *op, Election *e, uint64_t term, bool named)
{
	Patroni    *p = &e->patroni;

	if (!p->told.valid || op->id < p->told.before_id)
		return;
	p->told.valid = false;
	if (p->told.term != p->told.known_term || p->told.term != term)
	{
		fail_beat(core, now_ns, e, p->told.sent_ns);
		return;
	}
	p->beat_failures = 0;
	p->retry_ns = 0;
	p->ttl_ns = p->told.ttl_ns;
	if (named && op->ordered)
		p->until_ns = p->told.until_ns;
}

static void
receive_look(ElectionCore *core, int64_t now_ns, const Op *op, Election *e, const EtcdAnswer *answer)
{
	Patroni    *p = &e->patroni;
	int64_t		revision = answer->header.revision;
	bool		named;

	e->failures = 0;
	e->retry_ns = 0;
	if (op->epochs[slot_of(core, e)] != e->epoch || revision < e->seen_revision ||
		revision < p->event_revision)
	{
		/* ignored (EPOCH), or older than the known state */
		e->look_wanted = true;
		return;
	}
	e->seen_revision = revision;
	learn_cluster(core, p, answer);
	named = learn_key(core, now_ns, e, first_kv(answer, RANGE_LEADER));
	e->leader_known = true;
	finish_beat(core, now_ns, op, e, answer->header.raft_term, named);
	e->leader_until_ns = op->sent_ns + ttl_ns(core, e);
	conclude(core, now_ns, e);
	/* leadership was withdrawn by this answer, which also shows the leader */
	e->leader_known = true;
	queue_tell_leader(core, e, ELECTION_NO_REASON);
	core_publish(core, e);
}

/* ---- beats ------------------------------------------------------------------------------ */

/* The election that asked; NULL: it was dropped, or another cluster is set. */
static Election *
find_asker(ElectionCore *core, const Op *op)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (is_used(e) && e->followed && e->patroni.asked_id == op->id)
			return e;
	}
	return NULL;
}

static void
receive_time_to_live(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	Election   *e = find_asker(core, op);
	Patroni    *p;
	int64_t		left_s = answer->ttl_s;

	if (e == NULL)
		return;
	p = &e->patroni;
	p->asked_id = 0;
	if (answer->outcome != ETCD_ANSWERED || left_s < 0)
	{
		/*
		 * The lease is gone.  So the key is gone, or attached to another lease
		 * by now.
		 */
		e->look_wanted = true;
		fail_beat(core, now_ns, e, op->sent_ns);
		p->beat_wanted = false;
		return;
	}
	if (op->lease != p->lease)
		return;					/* another beat is wanted already */
	/* A leader of etcd that has just been elected knows no end of any lease. */
	if (left_s > answer->granted_ttl_s)
		left_s = answer->granted_ttl_s;
	p->told.valid = true;
	p->told.before_id = core->next_id;
	p->told.sent_ns = op->sent_ns;
	p->told.known_term = p->asked_term;
	p->told.term = answer->header.raft_term;
	p->told.ttl_ns = answer->granted_ttl_s * NS_PER_S;
	p->told.until_ns = op->sent_ns + left_s * NS_PER_S;
	e->look_wanted = true;
}

/* There is no answer to a look, or it was refused. */
static void
fail_look(ElectionCore *core, const Op *op)
{
	Election   *e = core_find_election(core, op);

	if (e == NULL)
		return;
	look_want_again(op, e);
	if (++e->failures >= core->config.nendpoints)
		e->retry_ns = op->sent_ns +
			core_urgent_backoff_ns(core, e->failures - core->config.nendpoints + 1);
}

void
patroni_receive(ElectionCore *core, int64_t now_ns, const Op *op, const EtcdAnswer *answer)
{
	Election   *e = core_find_election(core, op);

	if (op->kind == OP_TIME_TO_LIVE)
		receive_time_to_live(core, now_ns, op, answer);
	else if (answer->outcome != ETCD_ANSWERED)
		fail_look(core, op);
	else if (e != NULL)
	{
		receive_look(core, now_ns, op, e, answer);
		look_finish(core, op, e);
	}
}

void
patroni_request_failed(ElectionCore *core, int64_t now_ns, const Op *op)
{
	Election   *e = op->kind == OP_TIME_TO_LIVE ? find_asker(core, op) : NULL;

	if (op->kind == OP_PATRONI_LOOK)
		fail_look(core, op);
	if (e == NULL)
		return;
	e->patroni.asked_id = 0;
	fail_beat(core, now_ns, e, op->sent_ns);
}

static void
send_beat(ElectionCore *core, int64_t now_ns, Election *e)
{
	Patroni    *p = &e->patroni;
	Op		   *op;

	p->beat_wanted = false;
	p->beat_ns = now_ns + ttl_ns(core, e) / 3;
	core_wake_at(core, p->beat_ns);
	watch_close_if_incomplete(core, now_ns);
	if (p->lease == 0)
	{
		e->look_wanted = true;	/* nobody has the key */
		return;
	}
	op = core_start_op(core, now_ns, OP_TIME_TO_LIVE);
	if (op == NULL)
	{
		e->look_wanted = true;
		return;
	}
	op->lease = p->lease;
	p->asked_id = op->id;
	p->asked_term = core->term_seen;
	p->told.valid = false;
	core_send_lease_request(core, op, ETCD_TIME_TO_LIVE, 0);
}

static void
pursue_beat(ElectionCore *core, int64_t now_ns, Election *e)
{
	Patroni    *p = &e->patroni;

	if (e->seen_revision == 0 || p->asked_id != 0 || p->told.valid)
		return;
	if (!p->beat_wanted && !core_is_due(core, now_ns, p->beat_ns))
		return;
	if (core_is_due(core, now_ns, p->retry_ns))
		send_beat(core, now_ns, e);
}

void
patroni_pursue(ElectionCore *core, int64_t now_ns)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (!is_used(e) || !e->followed)
			continue;
		pursue_beat(core, now_ns, e);
		if (e->look_wanted && core_is_due(core, now_ns, e->retry_ns))
			(void) send_look(core, now_ns, e);
	}
}

void
patroni_retry_now(ElectionCore *core)
{
	for (int i = 0; i < core->max_elections; i++)
	{
		Election   *e = &core->elections[i];

		if (!is_used(e) || !e->followed)
			continue;
		e->patroni.retry_ns = 0;
		e->patroni.beat_failures = 0;
		e->patroni.beat_wanted = true;
	}
}

/* ---- the watch, and settings ------------------------------------------------------------- */

static void
make_watched_key(QueueKey *key, const char *name)
{
	memset(key, 0, sizeof(*key));
	key->len = strlen(name);
	memcpy(key->data, name, key->len);
}

void
patroni_watched_keys(const Election *e, QueueKey *leader, QueueKey *config)
{
	make_watched_key(leader, e->patroni.leader_key);
	make_watched_key(config, e->patroni.config_key);
}

void
patroni_see_event(ElectionCore *core, int64_t now_ns, Election *e, const EtcdWatchEvent *event)
{
	Patroni    *p = &e->patroni;
	const EtcdKeyValue *kv = &event->kv;

	if (kv->mod_revision <= e->seen_revision)
		return;
	/*
	 * A look shows the rest: who leads now, whether it is this instance,
	 * whether Patroni is paused.
	 */
	e->look_wanted = true;
	if (!is_key(kv->key, p->leader_key) || kv->mod_revision <= p->event_revision)
		return;
	p->event_revision = kv->mod_revision;
	(void) learn_key(core, now_ns, e, event->is_delete ? NULL : kv);
	core_publish(core, e);
}

void
patroni_configure(ElectionCore *core, int64_t now_ns, Election *e, bool other_cluster)
{
	if (other_cluster)
	{
		queue_withdraw(core, e, ELECTION_REASON_NOT_ELIGIBLE);
		patroni_begin(core, e);
		e->look_wanted = true;
	}
	conclude(core, now_ns, e);
	e->patroni.beat_wanted = true;
	core_publish(core, e);
}
