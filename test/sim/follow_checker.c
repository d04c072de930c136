/*-------------------------------------------------------------------------
 *
 * follow_checker.c
 *    Checks what has to hold of elections that follow Patroni.
 *
 * - An instance leads only while, in true time, Patroni's leader key names it,
 *   under the key's create revision, and while its server is not in recovery.
 *   There is one exception.  If an operator deletes the key, an instance that
 *   cannot know of it leads no longer than the key's lease would have lived
 *   from then.
 * - An instance does not believe that it leads for longer than etcd's leader
 *   keeps the key's lease, if nobody renews it any more.
 * - A leader that is shown was named by the key, under the revision that is
 *   shown.  No event has told the instance of the end of that leadership.
 * - At most one instance leads the own election.  Its key is the first, and the
 *   token is that key's create revision.
 * - Nothing of Patroni's is written.
 * - After the faults, if no message is lost or late, the instance that the key
 *   names leads, if its server is a primary.  One instance leads the own
 *   election.
 * - Then they announce nothing.  In a third of a TTL an instance sends at most
 *   two requests for each election.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "agent.h"
#include "checker.h"
#include "follow.h"
#include "plan.h"
#include "run.h"

static int	nrequests[16];
static int	nevents[16];
static int64_t asked_ns[16];	/* for the time to live that is not answered yet; 0: none */
static int64_t announced_revision[16]; /* of the newest event of the leader key */

/* The last key that an operator has deleted while it named this instance. */
static int64_t deleted_revision[16];
static int64_t deleted_until_ns[16];	/* when its lease would have ended */

static EtcdBytes
bytes_of(const char *s)
{
	EtcdBytes	b = {s, strlen(s)};

	return b;
}

/* The leader key of the cluster that this instance is set to follow. */
static EtcdBytes
leader_key(const Instance *in)
{
	return bytes_of(strcmp(in->config.patroni_namespace, NAMESPACE) == 0 ? PATRONI_LEADER : OTHER_LEADER);
}

static void
check_follower(Instance *in)
{
	const Version *key = store_find(leader_key(in));
	int64_t		token = in->views[FOLLOWED].token;

	if (!instance_leads(in, FOLLOWED))
		return;
	if (in->config.in_recovery)
		fail_run("%s leads in recovery", in->name);
	if (token == deleted_revision[in->number] && now_ns < deleted_until_ns[in->number])
		return;
	if (key == NULL)
		fail_run("%s leads, but there is no leader key", in->name);
	else if (!bytes_equal(key->value, bytes_of(in->name)))
		fail_run("%s leads, but the leader key names %.*s", in->name, (int) key->value.len, key->value.data);
	else if (key->create_revision != token)
		fail_run("%s leads with token %" PRId64 ", the leader key has %" PRId64, in->name,
				 token, key->create_revision);
}

/* Does the instance believe in its leadership for no longer than the lease lives? */
static void
check_deadline(const Instance *in)
{
	const ElectionView *view = &in->views[FOLLOWED];
	const Version *key = store_find(leader_key(in));
	const StoreLease *lease = key != NULL ? store_find_lease(key->lease) : NULL;
	int64_t		deadline_ns = instance_true_time(in, view->deadline_ns);
	int64_t		end_ns = NEVER;

	if (lease != NULL && key->create_revision == view->token)
		end_ns = cluster.leader >= 0 ? lease->expires_ns[cluster.leader] : NEVER;
	else if (view->token == deleted_revision[in->number])
		end_ns = deleted_until_ns[in->number];
	if (deadline_ns > now_ns && deadline_ns > end_ns)
		fail_run("%s believes for %.6f s more that it leads, the lease of the key lives for %.6f s", in->name,
				 (deadline_ns - now_ns) / 1e9, (end_ns - now_ns) / 1e9);
}

static void
check_own_leader(const Instance *in, const Instance *other)
{
	char		prefix[ELECTION_NAME_SIZE + 1];
	const Version *first;

	if (other != NULL)
		fail_run("%s and %s both lead the own election", other->name, in->name);
	snprintf(prefix, sizeof(prefix), "%s/", election_name(0));
	first = store_first(prefix);
	if (first == NULL || first->create_revision != in->views[OWN].token)
		fail_run("%s leads the own election, but its key is not the first", in->name);
}

static void
check_leaders(void)
{
	const Instance *leader = NULL;

	for (int i = 0; i < ninstances; i++)
	{
		check_follower(&instances[i]);
		if (plan.slots == 1 || !instance_leads(&instances[i], OWN))
			continue;
		check_own_leader(&instances[i], leader);
		leader = &instances[i];
	}
}

/* Did the leader key name the leader that is shown, and since when not any more? */
static void
check_shown_leader(const Instance *in)
{
	const ElectionView *view = &in->views[FOLLOWED];
	const StoreKey *key = store_key(store_intern(leader_key(in)));
	int64_t		ended_revision = 0;

	if (!view->has_leader || put_back)
		return;
	for (int v = key->last_version; v >= 0; v = store_version(v)->previous)
	{
		const Version *version = store_version(v);

		if (!version->deleted && version->create_revision == view->leader_revision &&
			bytes_equal(version->value, bytes_of(view->leader)))
		{
			if (ended_revision != 0 && ended_revision <= announced_revision[in->number])
				fail_run("%s shows the leader %s (%" PRId64 "), and was told of its end at %" PRId64,
						 in->name, view->leader, view->leader_revision, ended_revision);
			return;
		}
		ended_revision = version->revision;
	}
	fail_run("%s shows \"%s\" (%" PRId64 "), which never led", in->name, view->leader, view->leader_revision);
}

/* The faults have ended, and the time for recovery is over. */
void
check_recovery(void)
{
	const Version *key = store_find(bytes_of(PATRONI_LEADER));
	int			nleaders = 0;

	if (key == NULL)
	{
		fail_run("Patroni has no leader");
		return;
	}
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];
		ElectionView *view = &in->views[FOLLOWED];

		nleaders += instance_leads(in, OWN);
		if (!in->running)
			fail_run("%s does not run", in->name);
		else if (bytes_equal(key->value, bytes_of(in->name)) && !in->config.in_recovery && !instance_leads(in, FOLLOWED))
			fail_run("the leader key names %s, which does not lead: %s", in->name, view->problem);
		else if (!view->has_leader || !bytes_equal(key->value, bytes_of(view->leader)))
			fail_run("%s does not know that %.*s leads", in->name, (int) key->value.len, key->value.data);
	}
	if (plan.slots > 1 && nleaders != 1)
		fail_run("%d instances lead the own election", nleaders);
}

bool
is_calm(void)
{
	return plan.loss == 0 && plan.slow == 0 && plan.garbage == 0 && plan.link_jitter_ns <= 5 * MS;
}

/* The most requests that an instance needs for an election with this TTL, by a fast clock. */
static int64_t
requests_at_rest(int ttl_s)
{
	int64_t		rest_ns = REST_NS + REST_NS / 1000000 * plan.drift_ppm;

	return 2 * (rest_ns / (ttl_s * SECOND / 3)) + 2;
}

void
check_rest(void)
{
	int			ttl_s = agents_ttl_s;
	int64_t		most;

	for (int i = 0; i < ninstances; i++)
	{
		if (agents[i].ttl_s < ttl_s)
			ttl_s = agents[i].ttl_s;
	}
	most = requests_at_rest(ttl_s) + (plan.slots > 1 ? requests_at_rest(plan.ttl_s[0]) : 0);
	for (int i = 0; i < ninstances; i++)
	{
		if (nevents[i] > 0)
			fail_run("%s announces %d events at rest", instances[i].name, nevents[i]);
		if (nrequests[i] > most)
			fail_run("%s sends %d requests at rest, more than %" PRId64, instances[i].name, nrequests[i], most);
	}
}

void
checker_reset(void)
{
	memset(deleted_revision, 0, sizeof(deleted_revision));
	memset(deleted_until_ns, 0, sizeof(deleted_until_ns));
	memset(nrequests, 0, sizeof(nrequests));
	memset(nevents, 0, sizeof(nevents));
	memset(asked_ns, 0, sizeof(asked_ns));
	memset(announced_revision, 0, sizeof(announced_revision));
}

/* An election of our own may write, but nothing of Patroni's. */
static bool
is_harmless(const EtcdRequest *request)
{
	if (plan.slots == 1)
		return request->kind == ETCD_TIME_TO_LIVE ||
			(request->kind == ETCD_TXN && !etcd_writes(request->success, request->nsuccess));
	for (int i = 0; i < request->nsuccess; i++)
	{
		const EtcdOp *op = &request->success[i];

		if ((op->kind == ETCD_OP_PUT || op->kind == ETCD_OP_DELETE) && op->key.data[0] == '/')
			return false;
	}
	return true;
}

void
checker_sent(Instance *in, uint64_t id, const EtcdRequest *request)
{
	if (at_rest)
		nrequests[in->number]++;
	if (request->kind == ETCD_TIME_TO_LIVE)
		asked_ns[in->number] = now_ns;
	if (!is_harmless(request))
		fail_run("%s writes to etcd", in->name);
	if (!over && (request->kind == ETCD_TIME_TO_LIVE ||
				  (request->kind == ETCD_TXN && bytes_equal(request->success[0].key, leader_key(in)))))
		strike_at_request(in, request->kind);
}

void
checker_watches(Instance *in, const EtcdWatch *watches, int nwatches)
{
}

void
checker_published(Instance *in, int slot, const ElectionView *old)
{
	check_leaders();
	if (slot == FOLLOWED && in->views[slot].deadline_ns != old->deadline_ns)
		check_deadline(in);
	if (slot == FOLLOWED && !over && in->views[slot].deadline_ns > old->deadline_ns && random_chance(plan.stop_at_renewal))
		strike_soon(STRIKE_CUT, in, 50 * MS);
}

void
checker_announced(Instance *in, const ElectionEvent *event)
{
	if (at_rest && event->kind != ELECTION_EVENT_CONNECTED && event->kind != ELECTION_EVENT_DISCONNECTED)
		nevents[in->number]++;
}

void
checker_replied(Instance *in, const Ticket *ticket, ElectionReply reply)
{
}

void
checker_called(Instance *in)
{
	check_leaders();
	check_shown_leader(in);
}

bool
checker_is_asking(const Instance *in)
{
	return asked_ns[in->number] != 0 && now_ns - asked_ns[in->number] < SECOND / 2;
}

void
checker_follows(Instance *in)
{
	announced_revision[in->number] = 0;
}

void
checker_ended(Instance *in)
{
	announced_revision[in->number] = 0;
}

void
checker_answered(Instance *in, uint64_t id, const EtcdRequest *request, bool was_read, const EtcdAnswer *answer)
{
	if (request->kind == ETCD_TIME_TO_LIVE)
		asked_ns[in->number] = 0;
}

void
checker_distrusted(Instance *in)
{
}

void
checker_watched(Instance *in, const EtcdWatchFrame *frame)
{
}

void
checker_watched_end(Instance *in, const EtcdWatchFrame *frame, bool still_open)
{
	for (int i = 0; i < frame->nevents; i++)
	{
		const EtcdKeyValue *kv = &frame->events[i].kv;

		if (bytes_equal(kv->key, leader_key(in)) && kv->mod_revision > announced_revision[in->number])
			announced_revision[in->number] = kv->mod_revision;
	}
}

void
checker_trouble(Instance *in)
{
}

void
checker_stimulus(Instance *in)
{
}

/* Returns when etcd would have ended the lease. */
static int64_t
lease_end_ns(int64_t id)
{
	const StoreLease *lease = store_find_lease(id);
	int64_t		end_ns = 0;

	for (int m = 0; lease != NULL && m < cluster.nmembers; m++)
	{
		if (member_thinks_leader(m) && lease->expires_ns[m] > end_ns)
			end_ns = lease->expires_ns[m];
	}
	return end_ns;
}

static void
see_deletion(const Version *version)
{
	const Version *key = store_version(version->previous);

	for (int i = 0; i < ninstances; i++)
	{
		if (!bytes_equal(key->value, bytes_of(instances[i].name)))
			continue;
		deleted_revision[i] = key->create_revision;
		deleted_until_ns[i] = lease_end_ns(key->lease);
	}
}

void
checker_changed(const Version *version)
{
	if (version->deleted && bytes_equal(store_key(version->key)->name, bytes_of(PATRONI_LEADER)))
	{
		if (version->cause == BY_OPERATOR)
			see_deletion(version);
		agents_wake();
	}
	check_leaders();
}
