/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  The watch stream: which keys it watches, when it is opened anew, and
 *	  when it is useless.
 *
 * One stream watches the keys of all elections.  Its events are for queue.c and
 * patroni.c.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "requests.h"
#include "watch.h"

/* A stream that lived for this long did not fail at once. */
#define WATCH_STABLE_NS		(5 * NSEC_PER_SEC)

/* How long an answer is awaited that changes the set of watched keys. */
#define WATCH_PATIENCE_NS	(100 * NSEC_PER_MSEC)

/* ---- what is to be watched --------------------------------------------------- */

/* The keys tell targets apart, as far as they are watched in another way. */
static bool
is_same_watch(const Watched *a, const Watched *b)
{
	return a->slot == b->slot &&
		a->leader.create_revision == b->leader.create_revision &&
		a->key.create_revision == b->key.create_revision &&
		is_queue_key(&a->key, bytes_of_key(&b->key));
}

static bool
are_same_watches(const Watched *a, int na, const Watched *b, int nb)
{
	if (na != nb)
		return false;
	for (int i = 0; i < na; i++)
	{
		if (!is_same_watch(&a[i], &b[i]))
			return false;
	}
	return true;
}

static void
add_watch(Watched *list, int *n, int slot, WatchTarget target, QueueKey key)
{
	Watched    *watched = &list[(*n)++];

	memset(watched, 0, sizeof(*watched));
	watched->slot = slot;
	watched->target = target;
	watched->key = key;
}

/*
 * The keys that a candidate watches.  A candidate behind another waiting one
 * learns of changes of both keys with its next renewal, which is soon enough.
 * When the leader's key is gone, every instance sends a read, to show who
 * leads.
 */
static void
add_own_watch(Watched *list, int *n, int slot, const Election *e)
{
	QueueKey	own = make_queue_key(bytes_of(e->own.key), e->own.create_revision);

	if (is_successor(e) && e->leader.key.len > 0)
	{
		add_watch(list, n, slot, WATCH_WAIT, own);
		list[*n - 1].leader = e->leader.key;
	}
	else if (e->state != ELECTION_WAITING)
		add_watch(list, n, slot, WATCH_OWN, own);
}

static int
list_watches(const ElectionCore *core, Watched *list)
{
	int			n = 0;

	for_each_election(core, e)
	{
		int			i = slot_of(core, e);

		if (e->place.seen_revision == 0)
			continue;
		if (e->followed)
		{
			add_watch(list, &n, i, WATCH_PATRONI,
					  make_queue_key(bytes_of(e->patroni.leader_key), 0));
			add_watch(list, &n, i, WATCH_PATRONI,
					  make_queue_key(bytes_of(e->patroni.config_key), 0));
			continue;
		}
		if (is_queued(e))
			add_own_watch(list, &n, i, e);
		/* one's own key, which is being deleted or gone, needs no watch */
		if (e->leader.key.len > 0 && !is_successor(e) &&
			!is_queue_key(&e->leader.key, bytes_of(e->own.key)))
			add_watch(list, &n, i, WATCH_LEADER, e->leader.key);

		/*
		 * An observer of an election without candidates waits for the first
		 * one.  Nobody else watches the whole prefix, so that a candidate that
		 * leaves wakes one waiter, and not all.
		 */
		if (e->leader.key.create_revision == 0 && !is_candidate(e))
			add_watch(list, &n, i, WATCH_ANYBODY, make_queue_key(bytes_of(e->prefix), 0));
	}
	return n;
}

/* ---- the stream ---------------------------------------------------------------- */

/*
 * One watch covers the own key and the leader's key.  On one watch, etcd
 * reports each revision as a whole, and one after the other.  Two watches can
 * report them at different times.  Events of other keys between the two names
 * come, too.
 */
static void
set_wait_range(Watched *watched, EtcdWatch *watch)
{
	const QueueKey *low = &watched->key;
	const QueueKey *high = &watched->leader;
	size_t		len = low->len < high->len ? low->len : high->len;
	int			order = memcmp(low->data, high->data, len);

	if (order > 0 || (order == 0 && low->len > high->len))
	{
		low = &watched->leader;
		high = &watched->key;
	}
	memcpy(watched->range_end, high->data, high->len);
	watched->range_end[high->len] = '\0';
	watch->key = bytes_of_key(low);
	watch->range_end.data = watched->range_end;
	watch->range_end.len = high->len + 1;
}

/* Opens the stream with these watches; none: there is no stream. */
static void
open_stream(ElectionCore *core, int64_t now_ns, const Watched *list, int n)
{
	WatchStream *stream = &core->stream;
	EtcdWatch	watches[MAX_WATCHES];

	memset(watches, 0, sizeof(watches));
	for (int i = 0; i < n; i++)
	{
		Election   *e = &core->elections[list[i].slot];

		stream->watched[i] = list[i];
		stream->watched[i].start_revision = e->place.seen_revision + 1;
		watches[i].watch_id = i + 1;
		watches[i].start_revision = stream->watched[i].start_revision;
		watches[i].key = bytes_of_key(&stream->watched[i].key);
		if (list[i].target == WATCH_ANYBODY)
			watches[i].range_end = bytes_of(e->prefix_end);
		else if (list[i].target == WATCH_WAIT)
			set_wait_range(&stream->watched[i], &watches[i]);
	}
	stream->nwatched = n;
	stream->ncreated = 0;
	stream->opened_ns = now_ns;
	core->port.watch(core->port.ctx, watches, n);
}

/* Is a request under way whose answer will change what is to be watched? */
static bool
is_change_expected(ElectionCore *core, int64_t now_ns)
{
	for_each_op(core, op)
	{
		if ((op->kind == OP_ENTER || op->kind == OP_DELETE || op->kind == OP_TRANSFER ||
			 op->kind == OP_PATRONI_READ || (op->kind == OP_READ && op->renewal.number == 0)) &&
			!due_or_wake_at(core, now_ns, op->sent_ns + WATCH_PATIENCE_NS))
			return true;
	}
	return false;
}

/*
 * Watches cannot be added to a stream or taken from it (etcd #12333). So it is
 * opened anew when the set of watches changes.  Each watch begins after the
 * newest read of its election: the state up to then is known.
 */
void
watch_reconcile(ElectionCore *core, int64_t now_ns)
{
	const WatchStream *stream = &core->stream;
	Watched		list[MAX_WATCHES];
	int			n;

	if (is_change_expected(core, now_ns))
		return;
	n = list_watches(core, list);
	if (are_same_watches(list, n, stream->watched, stream->nwatched))
		return;
	if (due_or_wake_at(core, now_ns, stream->retry_ns))
		open_stream(core, now_ns, list, n);
}

bool
watch_reports_since(const ElectionCore *core, const Election *e, int64_t revision)
{
	for (int i = 0; i < core->stream.nwatched; i++)
	{
		const Watched *watched = &core->stream.watched[i];

		/* only a watch of both keys has a leader */
		if (watched->key.create_revision == e->own.create_revision &&
			watched->leader.create_revision == e->leader.key.create_revision)
			return watched->start_revision <= revision + 1;
	}
	return false;
}

void
watch_close(ElectionCore *core)
{
	core->stream.nwatched = 0;
	core->port.watch(core->port.ctx, NULL, 0);
}

void
watch_close_if_incomplete(ElectionCore *core, int64_t now_ns)
{
	const WatchStream *stream = &core->stream;

	if (stream->ncreated < stream->nwatched &&
		now_ns - stream->opened_ns >= lease_interval_ns(core))
		watch_close(core);
}

void
watch_ended(ElectionCore *core, int64_t now_ns)
{
	WatchStream *stream = &core->stream;

	stream->nwatched = 0;
	if (now_ns - stream->opened_ns >= WATCH_STABLE_NS)
		stream->failures = 0;
	stream->retry_ns = now_ns;
	if (stream->failures++ > 0)
		stream->retry_ns += request_urgent_backoff_ns(core, stream->failures);

	/*
	 * A read shows the changes of the meantime; the next stream continues from
	 * there.  So it waits for as long as that.
	 */
	if (core->read_retry_ns < stream->retry_ns)
		core->read_retry_ns = stream->retry_ns;
	for_each_election(core, e)
	{
		e->place.ready_revision = 0;
		e->read_wanted = true;
		if (e->followed && e->retry_ns < stream->retry_ns)
			e->retry_ns = stream->retry_ns;
	}
}
