/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Changes of keys of other programs, below some prefixes.
 *
 * The promises about announced changes:
 *
 * ONCE		Between two gaps each change of a key below a prefix is announced,
 *			and only once.
 * ORDER	Changes below one prefix are in the order of their revisions, and
 *			those of one revision in etcd's order.
 * GAP		Where changes may be missing, a gap is announced.  It comes before
 *			the first change after the ones that are missing.  So whoever reads
 *			the keys after it has seen a gap misses nothing.
 *
 * How:
 *
 * - A position of each prefix: the revision up to which everything is
 *   announced.  etcd keeps the order of revisions within one watch, and splits
 *   no revision over two responses (etcd's documentation, "Watch streams").  So
 *   what is at or below the position was announced, and is not again.
 * - A watch begins with the position, not after it.  A compaction drops the
 *   deletions of its own revision, and etcd still accepts a watch that begins
 *   there (etcd #18089).  It refuses one that begins before.
 * - There is no such promise between watches, also not of one stream: a watch
 *   that cannot take an event at once is served by itself later ("victims" in
 *   mvcc/watchable_store.go), and each watch catches up by itself.  Hence no
 *   order between prefixes.
 * - A large response comes in fragments: etcd sends at once as much as it
 *   accepts in one request.  One revision may then be split.  If the stream
 *   ends within it, the next one sends that revision again, and as many of its
 *   events are left out as were announced.  The order of the events of one
 *   revision is that of the transaction, at each member.
 * - Before a stream is opened, and while it is open, linearizable reads check
 *   whether etcd is still the same: the cluster's id is the same, and neither
 *   revision nor raft term is below what was known when the read was sent.
 *   Else etcd was put back or replaced, and no position means anything.  All
 *   members stop for that, so that no connection outlives it.  The same read gives a
 *   position to a prefix that has none.
 * - A position is lost if it was compacted away, if etcd is another one, and if
 *   something cannot be read, such as a response that is too large.  A prefix
 *   that gets a new position has a gap.  So the start is a gap, too.
 * - The position of a quiet prefix would be compacted away.  etcd reports the
 *   progress of such a watch every ten minutes (progress_notify).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "changes.h"

/* Before the first retry that is not at once; doubled up to the last. */
#define BACKOFF_MIN_NS		(100 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS		(5000 * NSEC_PER_MSEC)

/* A stream that lived for this long did not fail at once. */
#define STREAM_STABLE_NS	(5000 * NSEC_PER_MSEC)

typedef struct Prefix
{
	char		text[CHANGES_PREFIX_SIZE];
	char		end[CHANGES_PREFIX_SIZE];	/* of its range of keys */
	int64_t		position;		/* 0: none */
	int64_t		split;			/* only the first events of this revision are announced; 0: none */
	int			nannounced;		/* so many */
	int			nseen;			/* so many of them came on this stream */
} Prefix;

struct Changes
{
	ChangesPort port;
	Prefix		prefixes[CHANGES_MAX_PREFIXES];
	int			nprefixes;
	int64_t		interval_ns;
	EtcdHeader	history;		/* as far as answers have shown it; cluster_id 0: not at all */

	uint64_t	asked_id;		/* of the read that is under way; 0: none */
	EtcdHeader	asked;			/* the state when it was sent */
	uint64_t	last_id;
	int64_t		read_due_ns;

	bool		open;			/* the stream */
	int64_t		opened_ns;
	int			ncreated;		/* so many of its watches */
	int			failures;		/* of reads and streams, in a row */
};

Changes *
changes_create(const ChangesPort *port)
{
	Changes    *changes = calloc(1, sizeof(Changes));

	if (changes != NULL)
		changes->port = *port;
	return changes;
}

void
changes_free(Changes *changes)
{
	free(changes);
}

/* ---- positions --------------------------------------------------------------- */

static void
forget_position(Prefix *prefix)
{
	prefix->position = 0;
	prefix->split = 0;
}

static void
forget_all(Changes *changes)
{
	for (int i = 0; i < changes->nprefixes; i++)
		forget_position(&changes->prefixes[i]);
	memset(&changes->history, 0, sizeof(changes->history));
}

/* etcd has come to this revision. */
static void
learn_revision(Changes *changes, int64_t revision)
{
	if (changes->history.revision < revision)
		changes->history.revision = revision;
}

/* All events of the revisions up to this one are announced. */
static void
advance(Changes *changes, Prefix *prefix, int64_t revision)
{
	if (prefix->position < revision)
		prefix->position = revision;
	learn_revision(changes, revision);
}

/* A watch begins one revision before what is needed. */
static int64_t
start_revision(const Prefix *prefix)
{
	return prefix->split != 0 ? prefix->split - 1 : prefix->position;
}

/* ---- the stream ---------------------------------------------------------------- */

/* Tries again after a failure: at once, and then with a back-off. */
static void
retry(Changes *changes, int64_t now_ns)
{
	int64_t		backoff_ns = BACKOFF_MIN_NS;

	changes->read_due_ns = now_ns;
	if (changes->failures++ == 0)
		return;
	for (int i = 1; i < changes->failures && backoff_ns < BACKOFF_MAX_NS; i++)
		backoff_ns *= 2;
	if (backoff_ns > BACKOFF_MAX_NS)
		backoff_ns = BACKOFF_MAX_NS;
	backoff_ns = backoff_ns / 2 +
		(int64_t) (changes->port.random(changes->port.ctx) % (uint64_t) (backoff_ns / 2));
	changes->read_due_ns += backoff_ns;
}

/*
 * An answer on its way may be older than the events of the stream.  So it
 * gives no position to the next one.
 */
static void
stream_ended(Changes *changes, int64_t now_ns)
{
	changes->open = false;
	changes->asked_id = 0;
	if (now_ns - changes->opened_ns >= STREAM_STABLE_NS)
		changes->failures = 0;
	retry(changes, now_ns);
}

static void
close_stream(Changes *changes, int64_t now_ns)
{
	changes->port.watch(changes->port.ctx, NULL, 0);
	stream_ended(changes, now_ns);
}

/*
 * After a read.  A prefix without a position begins at the highest revision
 * that is known.
 */
static void
open_stream(Changes *changes, int64_t now_ns)
{
	EtcdWatch	watches[CHANGES_MAX_PREFIXES];
	bool		gap = false;

	memset(watches, 0, sizeof(watches));
	for (int i = 0; i < changes->nprefixes; i++)
	{
		Prefix	   *prefix = &changes->prefixes[i];

		if (prefix->position == 0)
		{
			prefix->position = changes->history.revision;
			gap = true;
		}
		prefix->nseen = 0;
		watches[i].watch_id = i + 1;
		watches[i].key.data = prefix->text;
		watches[i].key.len = strlen(prefix->text);
		watches[i].range_end.data = prefix->end;
		watches[i].range_end.len = strlen(prefix->end);
		watches[i].start_revision = start_revision(prefix);
		watches[i].fragment = true;
		watches[i].progress_notify = true;
	}
	changes->open = true;
	changes->opened_ns = now_ns;
	changes->ncreated = 0;
	changes->read_due_ns = now_ns + changes->interval_ns;
	if (gap)
		changes->port.announce(changes->port.ctx, NULL);
	changes->port.watch(changes->port.ctx, watches, changes->nprefixes);
}

void
changes_watch_ended(Changes *changes, int64_t now_ns, EtcdOutcome outcome)
{
	if (!changes->open)
		return;

	/*
	 * If etcd had begun to answer, it would send the same again from the same
	 * position.
	 */
	if (outcome == ETCD_GARBAGE && changes->ncreated > 0)
		forget_all(changes);
	stream_ended(changes, now_ns);
}

static bool
is_below(const Prefix *prefix, EtcdBytes key)
{
	size_t		len = strlen(prefix->text);

	return key.len >= len && memcmp(key.data, prefix->text, len) == 0;
}

static void
see_event(Changes *changes, Prefix *prefix, const EtcdWatchEvent *event)
{
	int64_t		revision = event->kv.mod_revision;

	if (!is_below(prefix, event->kv.key) || revision <= prefix->position ||
		revision < prefix->split)
		return;
	if (revision > prefix->split)
	{
		learn_revision(changes, revision);
		prefix->split = revision;
		prefix->nannounced = 0;
		prefix->nseen = 0;
	}
	if (++prefix->nseen <= prefix->nannounced)
		return;
	prefix->nannounced = prefix->nseen;
	changes->port.announce(changes->port.ctx, event);
}

static void
see_events(Changes *changes, Prefix *prefix, const EtcdWatchFrame *frame)
{
	int64_t		newest = frame->nevents > 0 ? frame->events[frame->nevents - 1].kv.mod_revision : 0;

	for (int i = 0; i < frame->nevents; i++)
		see_event(changes, prefix, &frame->events[i]);
	if (frame->fragment)
		return;
	if (newest >= prefix->split)
	{
		advance(changes, prefix, prefix->split);
		prefix->split = 0;
	}

	/* no event, and nothing else either: the progress of a quiet watch */
	if (frame->nevents == 0 && !frame->created && prefix->split == 0)
		advance(changes, prefix, frame->header.revision);
}

void
changes_watched(Changes *changes, int64_t now_ns, const EtcdWatchFrame *frame)
{
	bool		is_known = frame->watch_id >= 1 && frame->watch_id <= changes->nprefixes;

	if (!changes->open)
		return;
	if (frame->header.cluster_id != changes->history.cluster_id)
	{
		forget_all(changes);
		close_stream(changes, now_ns);
		return;
	}
	if (frame->canceled || frame->watch_id < 0)
	{
		if (is_known && frame->compact_revision > 0)
			forget_position(&changes->prefixes[frame->watch_id - 1]);
		close_stream(changes, now_ns);
		return;
	}
	if (!is_known)
		return;
	if (frame->created)
		changes->ncreated++;
	see_events(changes, &changes->prefixes[frame->watch_id - 1], frame);
}

/* ---- reads ----------------------------------------------------------------------- */

/*
 * Reads a range of each prefix, with a filter that no key passes, so that the
 * answer is empty.  etcd refuses this read if it would refuse a watch of one
 * of the prefixes.
 */
static void
send_read(Changes *changes)
{
	EtcdOp		ranges[CHANGES_MAX_PREFIXES];
	EtcdRequest request = {.kind = ETCD_TXN, .success = ranges, .nsuccess = changes->nprefixes};

	memset(ranges, 0, sizeof(ranges));
	for (int i = 0; i < changes->nprefixes; i++)
	{
		ranges[i].kind = ETCD_OP_RANGE;
		ranges[i].key.data = changes->prefixes[i].text;
		ranges[i].key.len = strlen(changes->prefixes[i].text);
		ranges[i].max_create_revision = 1;
	}
	changes->asked_id = ++changes->last_id;
	changes->asked = changes->history;
	changes->port.send(changes->port.ctx, changes->asked_id, &request);
}

/* Is etcd still the same as when the read was sent? */
static bool
is_same_history(const EtcdHeader *asked, const EtcdHeader *header)
{
	return asked->cluster_id == 0 ||
		(header->cluster_id == asked->cluster_id && header->revision >= asked->revision &&
		 (header->raft_term == 0 || header->raft_term >= asked->raft_term));
}

void
changes_receive(Changes *changes, int64_t now_ns, uint64_t id, const EtcdAnswer *answer)
{
	EtcdHeader *history = &changes->history;

	if (id != changes->asked_id)
		return;
	changes->asked_id = 0;
	if (answer->outcome != ETCD_ANSWERED)
	{
		retry(changes, now_ns);
		return;
	}
	if (!is_same_history(&changes->asked, &answer->header))
	{
		forget_all(changes);
		if (changes->open)
		{
			close_stream(changes, now_ns);
			return;
		}
	}
	history->cluster_id = answer->header.cluster_id;
	if (history->raft_term < answer->header.raft_term)
		history->raft_term = answer->header.raft_term;
	learn_revision(changes, answer->header.revision);
	if (!changes->open)
		open_stream(changes, now_ns);
	else
	{
		changes->read_due_ns = now_ns + changes->interval_ns;
		changes->failures = 0;
	}
}

/* ---- settings and time -------------------------------------------------------------- */

void
changes_prefix_end(const char *prefix, char *end)
{
	size_t		len = strlen(prefix);

	memcpy(end, prefix, len + 1);
	end[len - 1]++;
}

/* A prefix that was there before keeps its position. */
static void
take_up(const Changes *changes, const char *text, Prefix *prefix)
{
	for (int i = 0; i < changes->nprefixes; i++)
	{
		if (strcmp(changes->prefixes[i].text, text) == 0)
		{
			memcpy(prefix, &changes->prefixes[i], sizeof(*prefix));
			return;
		}
	}
	memset(prefix, 0, sizeof(*prefix));
	memcpy(prefix->text, text, strlen(text) + 1);
	changes_prefix_end(text, prefix->end);
}

void
changes_configure(Changes *changes, int64_t now_ns, const char *const *prefixes, int nprefixes,
				  int64_t interval_ns)
{
	Prefix		taken[CHANGES_MAX_PREFIXES];

	changes->interval_ns = interval_ns;
	for (int i = 0; i < nprefixes; i++)
		take_up(changes, prefixes[i], &taken[i]);
	if (nprefixes == changes->nprefixes &&
		memcmp(taken, changes->prefixes, nprefixes * sizeof(Prefix)) == 0)
		return;
	memcpy(changes->prefixes, taken, nprefixes * sizeof(Prefix));
	changes->nprefixes = nprefixes;

	/* an answer on its way is about the previous prefixes */
	changes->asked_id = 0;
	if (changes->open)
		changes->port.watch(changes->port.ctx, NULL, 0);
	changes->open = false;
	changes->failures = 0;
	changes->read_due_ns = now_ns;
}

bool
changes_is_watching(const Changes *changes)
{
	return changes->open && changes->ncreated >= changes->nprefixes;
}

/* When a stream is given up that has not begun. */
static int64_t
patience_ends_ns(const Changes *changes)
{
	return changes->open && !changes_is_watching(changes) ?
		changes->opened_ns + changes->interval_ns : INT64_MAX;
}

void
changes_tick(Changes *changes, int64_t now_ns)
{
	if (changes->nprefixes == 0)
		return;
	if (patience_ends_ns(changes) <= now_ns)
		close_stream(changes, now_ns);
	if (changes->asked_id == 0 && changes->read_due_ns <= now_ns)
		send_read(changes);
}

int64_t
changes_wakeup_ns(const Changes *changes)
{
	int64_t		wakeup_ns = patience_ends_ns(changes);

	if (changes->nprefixes == 0)
		return INT64_MAX;
	if (changes->asked_id == 0 && changes->read_due_ns < wakeup_ns)
		wakeup_ns = changes->read_due_ns;
	return wakeup_ns;
}
