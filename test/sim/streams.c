/*-------------------------------------------------------------------------
 *
 * streams.c
 *	  The watch streams of a member of etcd.
 *
 * A watch from an old revision has to catch up.  Until then it may be canceled
 * because of a compaction.  etcd lets such watches catch up each tenth of a
 * second, any number at a time.  So one watch of a stream may send a change
 * before another watch of it has sent an earlier one.  A member that is cut off
 * applies nothing, so its streams are silent.  After a while they end with "no
 * leader".
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "rights.h"
#include "server.h"

typedef struct Watcher
{
	int64_t		id;
	int			key;			/* -1: watches a range */
	EtcdBytes	from;
	EtcdBytes	end;
	int64_t		start_revision;
	int			next_version;	/* the next version to examine */
	int64_t		synced_ns;		/* when it catches up */
	bool		synced;
	bool		canceled;
	bool		denied;
} Watcher;

struct Stream
{
	Stream	   *next;			/* next stream at the same member */
	int			member;
	uint32_t	boot;
	bool		closed;
	Watcher    *watchers;
	int			nwatchers;
	Served	   *account;
	StreamWrite write;
	void	   *owner;
};

static Stream *streams[MAX_MEMBERS];

void
streams_reset(void)
{
	memset(streams, 0, sizeof(streams));
}

static void
write_frame(Stream *stream, const EtcdWatchFrame *frame)
{
	stream->write(stream->owner, frame);
}

static void
cancel(Stream *stream, Watcher *watcher, int64_t compacted)
{
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .watch_id = watcher->id};

	watcher->canceled = true;
	member_header(stream->member, &frame.header);
	frame.canceled = true;
	frame.compact_revision = compacted;
	if (random_chance(5000))
		strcpy(frame.message, "etcdserver: mvcc: required revision has been compacted");
	write_frame(stream, &frame);
}

static void
deny(Stream *stream, Watcher *watcher, EtcdWatchFrame *frame)
{
	watcher->canceled = true;
	frame->watch_id = -1;
	frame->canceled = true;
	strcpy(frame->message, "etcdserver: permission denied");
	write_frame(stream, frame);
}

/* Sends a watcher the events that its member has applied. */
static void
advance(Stream *stream, Watcher *watcher)
{
	const LogEntry *applied = store_entry(cluster.members[stream->member].applied);
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .watch_id = watcher->id};
	EtcdWatchEvent events[64];
	bool		catching_up = !watcher->synced;
	bool		cut = false;	/* the frame ends after this revision */

	if (watcher->canceled)
		return;
	if (catching_up)
	{
		if (now_ns < watcher->synced_ns)
			return;
		watcher->synced = true;
		if (watcher->start_revision < applied->compacted)
		{
			cancel(stream, watcher, applied->compacted);
			return;
		}
	}
	frame.events = events;
	for (; watcher->next_version < store_versions(); watcher->next_version++)
	{
		const Version *version = store_version(watcher->next_version);
		EtcdWatchEvent *event;

		if (version->index > cluster.members[stream->member].applied)
			break;
		if (watcher->key >= 0 ? version->key != watcher->key :
			!bytes_in_range(store_key(version->key)->name, watcher->from, watcher->end))
			continue;
		if (version->revision < watcher->start_revision)
			continue;
		if (plan.compaction_hides && catching_up && version->deleted &&
			version->revision == applied->compacted)
			continue;
		/* the events of one revision are in one frame (etcd's API guarantees) */
		if (cut && events[frame.nevents - 1].kv.mod_revision != version->revision)
		{
			member_header(stream->member, &frame.header);
			write_frame(stream, &frame);
			frame.nevents = 0;
			cut = false;
		}
		event = &events[frame.nevents++];
		memset(event, 0, sizeof(*event));
		event->is_delete = version->deleted;
		event->kv.key = store_key(version->key)->name;
		event->kv.mod_revision = version->revision;
		if (!version->deleted)
			store_set_kv(&event->kv, version);
		stream->account->events++;
		cut |= frame.nevents >= 32 || random_chance(3000);
	}
	if (frame.nevents > 0)
	{
		member_header(stream->member, &frame.header);
		write_frame(stream, &frame);
	}
}

static void
advance_all(Stream *stream)
{
	for (int i = 0; i < stream->nwatchers && !stream->closed; i++)
		advance(stream, &stream->watchers[i]);
}

static void
catch_up(void *subject, uint64_t boot)
{
	Stream	   *stream = subject;

	if (!stream->closed && cluster.members[stream->member].boot == boot &&
		member_runs(stream->member))
		advance_all(stream);
}

/* At a stopped member, a stream begins when it runs again. */
static void
begin(void *subject, uint64_t boot)
{
	Stream	   *stream = subject;
	int			m = stream->member;
	int64_t		together_ns;

	if (stream->closed || cluster.members[m].boot != boot)
		return;
	if (cluster.members[m].paused)
	{
		events_after(100 * MS, begin, stream, boot);
		return;
	}
	if (!member_has_leader(m))
	{
		EtcdWatchFrame frame = {.outcome = ETCD_REFUSED, .code = ETCD_CODE_UNAVAILABLE};

		strcpy(frame.message, "etcdserver: no leader");
		write_frame(stream, &frame);
		stream->closed = true;
		return;
	}
	together_ns = now_ns + random_between(0, 100 * MS);
	for (int i = 0; i < stream->nwatchers; i++)
	{
		EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .created = true};
		Watcher    *watcher = &stream->watchers[i];

		member_header(m, &frame.header);
		if (watcher->denied)
		{
			deny(stream, watcher, &frame);
			continue;
		}
		frame.watch_id = watcher->id;
		write_frame(stream, &frame);
		watcher->synced_ns = now_ns;
		if (watcher->start_revision <= frame.header.revision)
			watcher->synced_ns = !plan.syncs_in_batches ? together_ns :
				together_ns + random_between(0, 2) * 100 * MS;
		events_at(watcher->synced_ns, catch_up, stream, boot);
	}
	stream->next = streams[m];
	streams[m] = stream;
}

Stream *
stream_open(int m, const EtcdWatch *watches, int nwatches, Served *account,
			StreamWrite write, void *owner)
{
	Stream	   *stream = run_alloc(sizeof(Stream));

	stream->member = m;
	stream->boot = cluster.members[m].boot;
	stream->watchers = run_alloc((nwatches + 1) * sizeof(Watcher));
	stream->nwatchers = nwatches;
	stream->account = account;
	stream->write = write;
	stream->owner = owner;
	for (int i = 0; i < nwatches; i++)
	{
		Watcher    *watcher = &stream->watchers[i];

		watcher->id = watches[i].watch_id;
		watcher->denied = !rights_allow_watch(&watches[i]);
		watcher->from = watches[i].key;
		watcher->end = watches[i].range_end;
		watcher->start_revision = watches[i].start_revision;
		watcher->key = watcher->end.len > 0 ? -1 : store_intern(watcher->from);
		watcher->next_version = store_first_version(watcher->start_revision);
	}
	account->streams++;
	begin(stream, stream->boot);
	return stream;
}

void
stream_close(Stream *stream)
{
	stream->closed = true;
}

/* ---- called by cluster.c ---------------------------------------------------------- */

void
streams_advance(int m)
{
	Stream	  **link = &streams[m];

	while (*link != NULL)
	{
		Stream	   *stream = *link;

		if (stream->closed)
		{
			*link = stream->next;
			continue;
		}
		advance_all(stream);
		link = &stream->next;
	}
}

void
streams_crashed(int m)
{
	for (Stream *stream = streams[m]; stream != NULL; stream = stream->next)
	{
		if (!stream->closed)
		{
			stream->closed = true;
			stream->write(stream->owner, NULL);
		}
	}
	streams[m] = NULL;
}

static void
end_leaderless(void *subject, uint64_t boot)
{
	Stream	   *stream = subject;
	EtcdWatchFrame frame = {.outcome = ETCD_REFUSED, .code = ETCD_CODE_UNAVAILABLE};

	if (stream->closed || cluster.members[stream->member].boot != boot ||
		member_has_leader(stream->member) || !member_runs(stream->member))
		return;
	strcpy(frame.message, "etcdserver: no leader");
	stream->closed = true;
	write_frame(stream, &frame);
}

/* A stream ends with "no leader" three election timeouts after the member has lost it. */
void
streams_leaderless(int m)
{
	for (Stream *stream = streams[m]; stream != NULL; stream = stream->next)
		events_after(3 * plan.election_timeout_ns + random_between(0, plan.election_timeout_ns),
					 end_leaderless, stream, stream->boot);
}
