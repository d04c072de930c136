/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  The watch streams.
 *
 * A stream is opened by etcd_client_watch() and open until the caller replaces
 * or closes it, or until it ends: by etcd, by a failure, or with the use of
 * its endpoint.  Its end is recorded at once, and the callback is made later
 * by etcd_client_process().
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "call.h"
#include "client_state.h"
#include "clusters.h"
#include "watch.h"

/*
 * For this time after its frames were passed on, a stream other than 0 is not
 * read.  A flood of changes then comes in few large reads in the place of many
 * small ones, which would take the processor from a hand-over.
 */
#define REST_NS		(5 * NSEC_PER_MSEC)

/*
 * A server that sends more frames in a second that tell nothing is left.  etcd
 * sends one in ten minutes.
 */
#define MAX_IDLE_FRAMES		1000

/*
 * One connection to each endpoint stays open, for requests such as those of a renewal, and
 * for its status; and one for each stream.  More are used for a moment, such as when many
 * elections are entered at once; those to an endpoint that was left are the first to go.
 */
void
etcd_watch_keep_connections(EtcdClient *client)
{
	int			nopen = 0;

	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
		nopen += client->streams[i].call != NULL;
	etcd_http_keep_connections(&client->http, client->nendpoints + (nopen > 0 ? nopen : 1));
}

/* Frees a stream, whether it is open or not. */
static void
free_stream(EtcdClient *client, Stream *stream)
{
	etcd_call_release(client, &stream->call);
	etcd_watch_keep_connections(client);
}

/* Closes a stream, or gives it up; watch_ended() will be called. */
static void
end_stream(EtcdClient *client, Stream *stream, EtcdOutcome outcome, const char *why)
{
	stream->end_outcome = outcome;
	etcd_format_message(stream->end_why, "%s", why);
	stream->end_due = true;
	free_stream(client, stream);
}

void
etcd_watch_end_all(EtcdClient *client, const char *why)
{
	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		if (client->streams[i].call != NULL)
			end_stream(client, &client->streams[i], ETCD_NO_ANSWER, why);
	}
}

/* Opens a stream, or gives other watches to an open one.  False if memory is out. */
static bool
open_stream(EtcdClient *client, Stream *stream, const EtcdWatch *watches, int nwatches)
{
	long		timeout_ms = client->settings.connect_timeout_ms;
	Destination destination = {
		.url = client->endpoints[client->endpoint].url,
		.use = 1 + (int) (stream - client->streams),
		.timeout_ms = timeout_ms,
		.connect_timeout_ms = timeout_ms,
		.is_stream = true,
		.max_size = nwatches > 0 && watches[0].fragment ?
			ETCD_MAX_LARGE_SIZE : ETCD_MAX_ANSWER_SIZE,
		/* the requests keep the open connection, which is warm */
		.connects = true
	};

	if (stream->call != NULL &&
		etcd_call_replace_watches(client, stream->call, watches, nwatches, &destination))
	{
		stream->ncreations += nwatches;
		return true;
	}
	free_stream(client, stream);
	stream->call = etcd_call_watch(client, watches, nwatches, &destination);
	if (stream->call == NULL)
		return false;
	stream->deadline_ns = clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC;
	stream->has_connected = false;
	stream->ncreations = nwatches;
	stream->has_delivered = false;
	stream->rests_until_ns = INT64_MAX;
	etcd_watch_keep_connections(client);
	return true;
}

void
etcd_client_watch(EtcdClient *client, int number, const EtcdWatch *watches, int nwatches)
{
	Stream	   *stream = &client->streams[number];

	ETCD_CLIENT_ASSERT(number >= 0 && number < ETCD_CLIENT_STREAMS);
	stream->end_due = false;
	if (nwatches == 0)
		free_stream(client, stream);
	else if (client->nendpoints == 0)
		end_stream(client, stream, ETCD_NO_ANSWER, "there is no endpoint");
	else if (!open_stream(client, stream, watches, nwatches))
		end_stream(client, stream, ETCD_NO_ANSWER, "out of memory");
}

void
etcd_watch_free(EtcdClient *client)
{
	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
		free_stream(client, &client->streams[i]);
}

/* When etcd_watch_run() or one of the functions that make callbacks is due. */
int64_t
etcd_watch_due_ns(const EtcdClient *client)
{
	int64_t		due_ns = INT64_MAX;

	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		const Stream *stream = &client->streams[i];

		if (stream->end_due)
			return 0;
		if (stream->call == NULL)
			continue;
		if (etcd_call_has_news(stream->call) || etcd_call_ended(stream->call) != 0)
			return 0;
		if (stream->deadline_ns < due_ns)
			due_ns = stream->deadline_ns;
		if (stream->rests_until_ns < due_ns)
			due_ns = stream->rests_until_ns;
	}
	return due_ns;
}

/*
 * etcd tells at once that it has created a watch, so that is to come within the
 * time of a request.
 */
static void
note_connection(EtcdClient *client, Stream *stream, int64_t now)
{
	if (stream->has_connected || !etcd_call_was_connected(stream->call))
		return;
	stream->has_connected = true;
	stream->deadline_ns = now + client->settings.request_timeout_ms * NSEC_PER_MSEC;
}

/* Reads the streams that have rested; ends those that have not connected in time. */
void
etcd_watch_run(EtcdClient *client)
{
	int64_t		now = clock_monotonic_ns();

	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		Stream	   *stream = &client->streams[i];

		if (stream->call == NULL || etcd_call_ended(stream->call) != 0)
			continue;
		if (stream->rests_until_ns <= now)
		{
			stream->rests_until_ns = INT64_MAX;
			etcd_call_pause(client, stream->call, false);
		}
		note_connection(client, stream, now);
		if (!stream->has_connected && stream->deadline_ns <= now)
			etcd_call_time_out(client, stream->call);
	}
}

/*
 * A frame that is too large, or cannot be read for another reason, counts
 * against the endpoint only on stream 0.  The other streams carry values of
 * other programs, and must not make stream 0 change its endpoint repeatedly.
 */
static bool
may_blame_endpoint(int number, EtcdOutcome outcome)
{
	return number == 0 || outcome != ETCD_GARBAGE;
}

/* Does a frame come from a cluster that may not be used? */
static bool
is_foreign(EtcdClient *client, const Stream *stream, const EtcdWatchFrame *frame)
{
	uint64_t	cluster_id = frame->header.cluster_id;
	int			endpoint = etcd_find_endpoint(client->endpoints, client->nendpoints,
											  etcd_call_url(stream->call));

	if (cluster_id == 0)
		return false;
	if (endpoint >= 0)
		etcd_cluster_note(client, &client->endpoints[endpoint], cluster_id);
	return !etcd_cluster_is_usable(client, cluster_id);
}

/* Has a server sent too many frames that tell nothing? */
static bool
is_flooded(Stream *stream, const EtcdWatchFrame *frame)
{
	int64_t		now = clock_monotonic_ns();

	if (frame->nevents > 0 || frame->canceled)
		return false;
	if (frame->created && stream->ncreations > 0)
	{
		stream->ncreations--;
		return false;
	}
	if (now - stream->counts_since_ns >= NSEC_PER_SEC)
	{
		stream->counts_since_ns = now;
		stream->nidle = 0;
	}
	return ++stream->nidle > MAX_IDLE_FRAMES;
}

/* Ends the stream; the endpoint is left, and not asked again for a while. */
static void
end_flood(EtcdClient *client, Stream *stream)
{
	char		why[ETCD_MESSAGE_SIZE];

	etcd_format_message(why, "etcd at \"%s\" floods the watch with bytes that nobody waits for",
						etcd_call_url(stream->call));
	etcd_call_shun(client, etcd_call_url(stream->call));
	end_stream(client, stream, ETCD_NO_ANSWER, why);
}

/*
 * Makes the callbacks for the frames of a stream that have arrived.  A
 * callback may replace or close the stream, and drop the remaining frames with
 * it, so check the stream again after each one.  True if the stream has ended
 * by a fault of its endpoint.
 */
static bool
deliver_frames(EtcdClient *client, int number)
{
	Stream	   *stream = &client->streams[number];
	bool		blames = false;

	while (stream->call != NULL)
	{
		EtcdWatchFrame frame;
		FrameResult result = etcd_call_read_frame(client, stream->call, &frame);

		if (result == FRAME_INCOMPLETE)
			break;
		if (frame.outcome != ETCD_ANSWERED)
		{
			char		why[ETCD_MESSAGE_SIZE];

			etcd_format_message(why, "etcd at \"%s\" ended the watch: %s",
								etcd_call_url(stream->call), frame.message);
			end_stream(client, stream, frame.outcome, why);
			blames = may_blame_endpoint(number, frame.outcome) &&
				etcd_blames_endpoint(frame.outcome, frame.code, frame.message);
		}
		else if (is_foreign(client, stream, &frame))
		{
			char		why[ETCD_MESSAGE_SIZE];

			etcd_cluster_describe(client, etcd_call_url(stream->call), frame.header.cluster_id,
								  why);
			end_stream(client, stream, ETCD_NO_ANSWER, why);
			blames = true;
		}
		else if (is_flooded(stream, &frame))
		{
			end_flood(client, stream);
			blames = true;
		}
		else
		{
			stream->has_delivered = true;
			stream->deadline_ns = INT64_MAX;
			client->callbacks.watched(client->callbacks.ctx, number, &frame);
		}
		if (result == FRAME_READ)
			etcd_free_frame(&frame);
	}
	return blames;
}

/* Stops reading a stream for a while whose frames were all passed on. */
static void
rest(EtcdClient *client, Stream *stream)
{
	if (stream->call == NULL || !stream->has_delivered ||
		etcd_call_has_news(stream->call) || etcd_call_ended(stream->call) != 0)
		return;
	stream->has_delivered = false;
	stream->rests_until_ns = clock_monotonic_ns() + REST_NS;
	etcd_call_pause(client, stream->call, true);
}

/*
 * Is the stream at its end?  Whatever the reason is, another endpoint may keep
 * one open.
 */
static bool
notice_end(EtcdClient *client, int number)
{
	Stream	   *stream = &client->streams[number];
	EtcdOutcome outcome = ETCD_NO_ANSWER;
	char		why[ETCD_MESSAGE_SIZE];

	if (stream->call == NULL)
		return false;
	if (etcd_call_ended(stream->call) != 0)
		outcome = etcd_call_describe_end(stream->call, why);
	else if (stream->has_connected && stream->deadline_ns <= clock_monotonic_ns())
		etcd_format_message(why, "etcd at \"%s\" has not created the watch within %ld ms",
							etcd_call_url(stream->call), client->settings.request_timeout_ms);
	else
		return false;
	end_stream(client, stream, outcome, why);
	return may_blame_endpoint(number, outcome);
}

bool
etcd_watch_deliver_frames(EtcdClient *client, int stream)
{
	bool		blames = deliver_frames(client, stream);

	if (stream > 0)
		rest(client, &client->streams[stream]);
	return notice_end(client, stream) || blames;
}

void
etcd_watch_deliver_ends(EtcdClient *client)
{
	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		Stream	   *stream = &client->streams[i];
		char		why[ETCD_MESSAGE_SIZE];

		if (!stream->end_due)
			continue;
		/* the callback may open a stream that fails at once, with another reason */
		stream->end_due = false;
		memcpy(why, stream->end_why, sizeof(why));
		client->callbacks.watch_ended(client->callbacks.ctx, i, stream->end_outcome, why);
	}
}
