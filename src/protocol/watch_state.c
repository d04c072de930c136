/*-------------------------------------------------------------------------
 *
 * watch_state.c
 *	  What the state of the watch stream says to the other parts.
 *
 * Opens nothing.  watch.c keeps the stream.
 *
 *-------------------------------------------------------------------------
 */
#include "election_internal.h"

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

bool
watch_tells_since(const ElectionCore *core, const Election *e, int64_t revision)
{
	for (int i = 0; i < core->stream.nwatched; i++)
	{
		const Watched *watched = &core->stream.watched[i];

		if (watched->target == WATCH_WAIT && watched->slot == slot_of(core, e) &&
			watched->key.create_revision == e->own.create_revision &&
			watched->leader.create_revision == e->leader.key.create_revision)
			return watched->start_revision <= revision + 1;
	}
	return false;
}
