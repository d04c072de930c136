/*-------------------------------------------------------------------------
 *
 * transport_server.c
 *	  The members of a simulated etcd at the other ends of the pipes: sessions
 *	  of nghttp2 that serve gRPC.
 *
 * They answer as etcd does, but for what the fate of a request says: they refuse
 * streams, reset them, end them without a status, are silent, or go away.  They
 * are strict: a client that breaks a rule of HTTP/2, gRPC or etcd fails the run.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "transport.h"

/* What the client lets a server send on a connection and on a stream. */
#define CONNECTION_WINDOW	(4 * 1024 * 1024)
#define STREAM_WINDOW		(1024 * 1024)

/* A watch stream with so much to send waits. */
#define MAX_BACKLOG			(2 * 1024 * 1024)

#define FRAME_HEADER_SIZE	9
#define GOAWAY_SIZE			8

/* An answer to a PING takes no longer, unless bytes are held up. */
#define PONG_NS				(3 * SECOND)

typedef struct Session Session;
typedef struct Stream Stream;

/* A watch of a stream, until the stream ends. */
typedef struct Watcher
{
	struct Watcher *next;
	int64_t		number;
	int			incarnation;
	int64_t		last_revision;	/* that it has told */
	bool		is_open;
	bool		told_created;
	bool		is_canceled;	/* by the client; it goes on for a moment */
	int64_t		goes_on_until_ns;
} Watcher;

struct Stream
{
	Stream	   *next;
	Session    *session;
	int32_t		id;
	char		path[64];
	char		token[32];
	bool		is_watch;
	bool		is_keepalive;
	int			nheaders;		/* of those that gRPC and etcd ask for */
	long		timeout_ms;		/* 0: none */
	int64_t		begun_ns;
	Bytes		in;
	Bytes		out;
	bool		has_begun;		/* to answer */
	bool		ends;
	bool		no_trailers;
	int			status;
	char		why[64];
	bool		is_closed;
	bool		has_executed;	/* something */
	int			nkeepalives;
	bool		has_keepalive;	/* that is not answered */
	Watcher    *watchers;
};

struct Session
{
	Session    *next;
	Link	   *link;
	nghttp2_session *h2;
	Bytes		out;
	uint64_t	produced;
	Stream	   *streams;
	int			nopen;
	int32_t		last_served;	/* streams beyond it are left out */
	bool		is_leaving;
	int64_t		leaves_at_ns;
	int64_t		pinged_ns;		/* 0: no PING is open */
	bool		floods;			/* and sends nothing else any more */
	bool		is_closed;
};

/* A request under way. */
typedef struct Work
{
	Stream	   *stream;
	Wanted		wanted;
	Fate		fate;
	bool		executes;
	int64_t		revision;		/* 0: it was not executed */
} Work;

#define BAD_TOKEN			"etcdserver: invalid auth token"

static Session *sessions;
static int	first_token;		/* older ones are not valid */

/* ---- what is sent ---------------------------------------------------------- */

static nghttp2_nv
header(const char *name, const char *value)
{
	return (nghttp2_nv) {(uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), 0};
}

static void
close_session(Session *session)
{
	if (session->is_closed)
		return;
	session->is_closed = true;
	session->link->session = NULL;
	pipe_close(&session->link->down);
	for (Stream *s = session->streams; s != NULL; s = s->next)
	{
		s->is_closed = true;
		bytes_free(&s->in);
		bytes_free(&s->out);
	}
	nghttp2_session_del(session->h2);
	session->h2 = NULL;
	bytes_free(&session->out);
}

/* Sends what there is, as long as the pipe takes it. */
static void
flush(Session *session)
{
	if (session->is_closed)
		return;
	for (;;)
	{
		size_t		n;

		if (bytes_left(&session->out) == 0 && session->floods)
		{
			session->link->floods = true;
			client_notified(session->link);
			return;
		}
		if (bytes_left(&session->out) == 0)
		{
			const uint8_t *data;
			ssize_t		len = nghttp2_session_mem_send(session->h2, &data);

			if (len <= 0)
				break;
			bytes_add(&session->out, data, (size_t) len);
			session->produced += (uint64_t) len;
		}
		n = pipe_write(&session->link->down, session->out.data + session->out.start, bytes_left(&session->out));
		if (n == 0)
			return;
		bytes_take(&session->out, n);
	}
	if (!nghttp2_session_want_read(session->h2) && !nghttp2_session_want_write(session->h2))
		close_session(session);
}

static ssize_t
read_out(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
		 nghttp2_data_source *source, void *arg)
{
	Stream	   *stream = source->ptr;
	size_t		n = bytes_left(&stream->out);

	(void) arg;
	if (n == 0 && !stream->ends)
		return NGHTTP2_ERR_DEFERRED;
	if (n > len)
		n = len;
	if (n > 1 && random_chance(conditions.small_frames))
		n = 1 + (size_t) random_below((int) (n < 64 ? n : 64));
	if (n > 0)
		memcpy(buf, stream->out.data + stream->out.start, n);
	bytes_take(&stream->out, n);
	if (bytes_left(&stream->out) == 0 && stream->ends)
	{
		char		status[8];
		nghttp2_nv	trailers[2];

		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (stream->no_trailers)
			return (ssize_t) n;
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		snprintf(status, sizeof(status), "%d", stream->status);
		trailers[0] = header("grpc-status", status);
		trailers[1] = header("grpc-message", stream->why);
		(void) nghttp2_submit_trailer(h2, id, trailers, 2);
	}
	return (ssize_t) n;
}

/* Sends what was put into `out`, and the end if there is to be one. */
static void
send_on(Stream *stream)
{
	nghttp2_nv	headers[] = {header(":status", "200"), header("content-type", "application/grpc")};
	nghttp2_data_provider provider = {.source.ptr = stream,.read_callback = read_out};

	if (stream->has_begun)
		(void) nghttp2_session_resume_data(stream->session->h2, stream->id);
	else
		(void) nghttp2_submit_response(stream->session->h2, stream->id, headers, 2, &provider);
	stream->has_begun = true;
	flush(stream->session);
}

static void
end_with_status(Stream *stream, int status, const char *why, int number)
{
	stream->ends = true;
	stream->status = status;
	snprintf(stream->why, sizeof(stream->why), "%s %d", why, number);
	if (!stream->has_begun && bytes_left(&stream->out) == 0 && random_chance(5000))
	{
		char		text[8];
		nghttp2_nv	headers[] = {
			header(":status", "200"), header("content-type", "application/grpc"),
			{(uint8_t *) "grpc-status", (uint8_t *) text, strlen("grpc-status"), 0, 0}, header("grpc-message", stream->why)
		};

		headers[2].valuelen = (size_t) snprintf(text, sizeof(text), "%d", status);
		stream->has_begun = true;
		(void) nghttp2_submit_response(stream->session->h2, stream->id, headers, 4, NULL);
		flush(stream->session);
	}
	else
		send_on(stream);
}

static void
reset(Stream *stream, uint32_t code)
{
	(void) nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id, code);
	flush(stream->session);
}

static void
show_page(Stream *stream)
{
	nghttp2_nv	headers[] = {header(":status", "502"), header("content-type", "text/html")};
	nghttp2_data_provider provider = {.source.ptr = stream,.read_callback = read_out};

	bytes_add(&stream->out, "<html>Bad Gateway</html>", 24);
	stream->has_begun = stream->ends = stream->no_trailers = true;
	(void) nghttp2_submit_response(stream->session->h2, stream->id, headers, 2, &provider);
	flush(stream->session);
}

/* ---- tokens ------------------------------------------------------------------ */

static bool
needs_token(const Stream *stream)
{
	return conditions.has_users && strcmp(stream->path, etcd_request_path(ETCD_GRPC, ETCD_STATUS)) != 0 &&
		strcmp(stream->path, etcd_request_path(ETCD_GRPC, ETCD_AUTHENTICATE)) != 0;
}

static bool
has_token(const Stream *stream)
{
	char		token[32];

	if (!needs_token(stream))
		return true;
	for (int i = first_token; i <= ntokens; i++)
	{
		format_token(token, sizeof(token), stream->session->link->endpoint, i);
		if (strcmp(stream->token, token) == 0)
			return true;
	}
	return false;
}

/* ---- requests ---------------------------------------------------------------- */

static Fate
draw_fate(void)
{
	int			drawn = random_below(10000);

	for (int fate = FATE_ANSWER + 1; fate < FATE_NO_TOKEN && !healed; fate++)
	{
		drawn -= conditions.fates[fate];
		if (drawn < 0)
			return fate;
	}
	return FATE_ANSWER;
}

static bool
is_executed(Fate fate)
{
	if (fate == FATE_REFUSE || fate == FATE_REFUSE_STREAM || fate == FATE_NO_TOKEN)
		return false;
	return (fate != FATE_RESET && fate != FATE_PAGE && fate != FATE_SILENCE) || random_chance(5000);
}

/* How a stream ends, whatever it was about. */
static void
end_stream(Stream *stream, Fate fate, int number)
{
	static const int refusals[] = {
		ETCD_CODE_UNAVAILABLE, ETCD_CODE_PERMISSION_DENIED, ETCD_CODE_RESOURCE_EXHAUSTED, ETCD_CODE_FAILED_PRECONDITION
	};
	static const uint32_t resets[] = {
		NGHTTP2_INTERNAL_ERROR, NGHTTP2_CANCEL, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_NO_ERROR
	};

	switch (fate)
	{
		case FATE_REFUSE:
			end_with_status(stream, refusals[random_below(4)], "refused", number);
			break;
		case FATE_FAIL:
			end_with_status(stream, random_chance(5000) ? ETCD_CODE_DEADLINE_EXCEEDED : ETCD_CODE_UNAVAILABLE, "failed", number);
			break;
		case FATE_NO_TOKEN:
			end_with_status(stream, ETCD_CODE_UNAUTHENTICATED, BAD_TOKEN, number);
			break;
		case FATE_REFUSE_STREAM:
			reset(stream, NGHTTP2_REFUSED_STREAM);
			break;
		case FATE_RESET:
			reset(stream, resets[random_below(4)]);
			break;
		case FATE_NO_TRAILERS:
		case FATE_CUT:
			stream->ends = stream->no_trailers = true;
			send_on(stream);
			break;
		case FATE_NO_MESSAGE:
			end_with_status(stream, 0, "", number);
			break;
		case FATE_GARBAGE:
			bytes_add(&stream->out, "\0\0\0\0\4\012\177ab", 9);
			if (stream->is_watch)
				send_on(stream);
			else
				end_with_status(stream, 0, "", number);
			break;
		case FATE_PAGE:
			if (stream->has_begun)
				reset(stream, NGHTTP2_INTERNAL_ERROR);
			else
				show_page(stream);
			break;
		case FATE_ANSWER:
		case FATE_SILENCE:
		case NFATES:
			break;
	}
}

static void
answer(void *subject, uint64_t tag)
{
	Work	   *work = subject;
	Stream	   *stream = work->stream;
	Asked	   *request = work->wanted.request > 0 ? &asked[work->wanted.request] : NULL;

	(void) tag;
	if (stream->is_closed || stream->id > stream->session->last_served || stream->ends)
		return;
	if (request != NULL)
		request->fates |= FATE_BIT(work->fate);
	else
		stray_fates_ns[work->fate] = now_ns;
	if (work->fate == FATE_ANSWER || work->fate == FATE_NO_TRAILERS || work->fate == FATE_CUT)
		write_answer(&stream->out, &work->wanted, stream->session->link->endpoint, work->revision);
	if (work->fate == FATE_CUT)
		stream->out.end -= 1 + (size_t) random_below((int) bytes_left(&stream->out));
	if (work->fate != FATE_ANSWER)
		end_stream(stream, work->fate, work->wanted.request);
	else if (stream->is_keepalive)
	{
		stream->has_keepalive = false;
		send_on(stream);
	}
	else
		end_with_status(stream, 0, "", 0);
}

static void
count_execution(Work *work)
{
	Stream	   *stream = work->stream;
	int			number = work->wanted.request;
	Asked	   *request = &asked[number];

	stream->has_executed = true;
	work->revision = history_add(work->wanted.kind, number, work->wanted.lease);
	trace("etcd", "%d: link %d stream %d: request %d, executed at %" PRId64, stream->session->link->endpoint,
		  stream->session->link->number, stream->id, number, work->revision);
	if (number == 0)
		return;
	request->nexecuted++;
	if (request->nexecuted == 2)
		reach(REACHED_SECOND);
	if (request->must_not_run)
		fail_rule("request %d is executed, and the client has said that it was not", number);
	if (!request->writes)
		return;
	if (request->has_ended)
		reach(REACHED_LATE_RUN);
	if (request->fates & FATE_BIT(FATE_NO_TOKEN))
		reach(REACHED_SENT_AGAIN);
	if (request->nexecuted > 1)
		fail_rule("request %d, a write, is executed twice", number);
}

/* Whoever has gone may be served all the same. */
static void
execute(void *subject, uint64_t tag)
{
	Work	   *work = subject;
	Stream	   *stream = work->stream;

	(void) tag;
	if (stream->id > stream->session->last_served)
		return;
	if (stream->is_closed && random_chance(5000))
		return;
	if (stream->timeout_ms > 0 && now_ns - stream->begun_ns > stream->timeout_ms * MS)
		work->fate = FATE_REFUSE;
	else if (work->executes)
		count_execution(work);
	events_after(random_between(0, conditions.delay_ns), answer, work, 0);
}

/* Was the request made after the client had read a GOAWAY of this connection? */
static void
check_goaway(const Session *session, const char *what, int number, int64_t made_ns)
{
	if (session->link->goaway_read_ns < made_ns)
		fail_rule("%s %d was made after a GOAWAY, and is sent on that connection", what, number);
}

static void
take_request(Stream *stream, const char *data, size_t len)
{
	Work	   *work = run_alloc(sizeof(Work));
	bool		is_late = !healed && random_chance(conditions.late);

	work->stream = stream;
	if (!read_request(stream->path, data, len, &work->wanted))
	{
		fail_rule("%s: not a request of etcd's", stream->path);
		return;
	}
	if (work->wanted.request > 0)
		check_goaway(stream->session, "request", work->wanted.request, asked[work->wanted.request].made_ns);
	if (stream->is_keepalive)
	{
		if (stream->has_keepalive)
			fail_rule("a keepalive on a stream with one that is not answered");
		stream->has_keepalive = true;
		if (stream->nkeepalives++ > 0)
			reach(REACHED_REUSED);
	}
	work->fate = has_token(stream) ? draw_fate() : FATE_NO_TOKEN;
	work->executes = is_executed(work->fate);
	events_after(is_late ? random_between(SECOND / 10, 4 * SECOND) : random_between(0, conditions.delay_ns), execute, work, 0);
}

/* ---- watches ------------------------------------------------------------------- */

static void
tell(Stream *stream, const WatchReply *reply)
{
	write_watch_reply(&stream->out, reply, stream->session->link->endpoint);
	send_on(stream);
}

static bool
tell_created(Stream *stream, Watcher *watcher)
{
	WatchReply	reply = {.number = watcher->number,.created = true};

	watcher->told_created = true;
	if (!has_token(stream))
	{
		reply.reason = BAD_TOKEN;
		reach(REACHED_WATCH_TOKEN);
	}
	if (reply.reason != NULL || (!healed && random_chance(conditions.watch_cancels)))
	{
		reply.number = -1;
		reply.canceled = true;
		watcher->is_open = false;
		refused_creates++;
	}
	tell(stream, &reply);
	return watcher->is_open;
}

static void
tell_changes(Stream *stream, Watcher *watcher)
{
	WatchReply	reply = {.number = watcher->number,.incarnation = watcher->incarnation};
	int			prefix = incarnations[watcher->incarnation].prefix;
	int			most = 1 + random_below((int) (sizeof(reply.revisions) / sizeof(reply.revisions[0])));

	for (int64_t change; reply.nrevisions < most && (change = next_change(prefix, watcher->last_revision)) > 0;)
		reply.revisions[reply.nrevisions++] = watcher->last_revision = change;
	if (reply.nrevisions == 0)
		return;
	if (watcher->is_canceled)
		reach(REACHED_LATE_EVENT);
	tell(stream, &reply);
}

static void
tell_canceled(Stream *stream, Watcher *watcher)
{
	WatchReply	reply = {.number = watcher->number,.canceled = true};

	watcher->is_open = false;
	if (!watcher->is_canceled)
	{
		reply.compact_revision = revision;
		incarnations[watcher->incarnation].canceled_by_server = true;
	}
	tell(stream, &reply);
}

static void
advance_watcher(Stream *stream, Watcher *watcher)
{
	if (!watcher->told_created && !tell_created(stream, watcher))
		return;
	if (watcher->is_canceled && watcher->goes_on_until_ns <= now_ns)
		tell_canceled(stream, watcher);
	else if (!healed && !watcher->is_canceled && random_chance(conditions.watch_cancels / 50))
		tell_canceled(stream, watcher);
	else
		tell_changes(stream, watcher);
}

static void
advance_watches(void *subject, uint64_t tag)
{
	static const Fate fates[] = {FATE_REFUSE, FATE_RESET, FATE_NO_TRAILERS, FATE_GARBAGE};
	Stream	   *stream = subject;

	(void) tag;
	for (Watcher *w = stream->watchers; w != NULL && !stream->is_closed; w = w->next)
	{
		if (w->is_open && bytes_left(&stream->out) < MAX_BACKLOG && random_chance(6000))
			advance_watcher(stream, w);
	}
	if (stream->is_closed || stream->ends)
		return;
	if (!healed && random_chance(conditions.watch_ends))
	{
		Fate		fate = fates[random_below(4)];

		trace("etcd", "a watch stream ends: %d", fate);
		stray_fates_ns[fate] = now_ns;
		end_stream(stream, fate, 0);
		return;
	}
	events_after(random_between(MS, 60 * MS), advance_watches, stream, 0);
}

static void
add_watch(Stream *stream, const WantedWatch *wanted)
{
	Watcher    *watcher = run_alloc(sizeof(Watcher));

	for (Watcher *w = stream->watchers; w != NULL; w = w->next)
	{
		if (w->number == wanted->number)
			fail_rule("link %d stream %d: number %" PRId64 " for a second watch", stream->session->link->number,
					 stream->id, wanted->number);
		else if (w->is_canceled)
			reach(REACHED_WATCH_KEPT);
	}
	check_goaway(stream->session, "watch", wanted->incarnation, incarnations[wanted->incarnation].made_ns);
	if (wanted->start_revision != incarnations[wanted->incarnation].start_revision)
		fail_rule("a watch from another revision");
	watcher->number = wanted->number;
	watcher->incarnation = wanted->incarnation;
	watcher->last_revision = wanted->start_revision - 1;
	watcher->is_open = true;
	watcher->next = stream->watchers;
	if (stream->watchers == NULL)
		events_after(random_between(MS, 20 * MS), advance_watches, stream, 0);
	stream->watchers = watcher;
}

static void
take_watch_request(Stream *stream, const char *data, size_t len)
{
	WantedWatch wanted;

	if (!read_watch_request(data, len, &wanted))
	{
		fail_rule("not a request of a watch stream");
		return;
	}
	if (!wanted.is_cancel)
	{
		add_watch(stream, &wanted);
		return;
	}
	for (Watcher *w = stream->watchers; w != NULL; w = w->next)
	{
		if (w->number != wanted.number)
			continue;
		w->is_canceled = true;
		w->goes_on_until_ns = random_chance(conditions.late_events) ? now_ns + 200 * MS : now_ns;
	}
}

/* ---- what comes ------------------------------------------------------------------ */

static int
on_begin(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
	Session    *session = arg;
	Stream	   *stream = run_alloc(sizeof(Stream));

	stream->session = session;
	stream->id = frame->hd.stream_id;
	stream->begun_ns = now_ns;
	stream->next = session->streams;
	session->streams = stream;
	if (++session->nopen == (int) conditions.max_streams)
		reach(REACHED_QUEUED);
	(void) nghttp2_session_set_stream_user_data(h2, stream->id, stream);
	return 0;
}

static int
on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name_bytes, size_t name_len,
		  const uint8_t *value_bytes, size_t len, uint8_t flags, void *arg)
{
	Stream	   *stream = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
	const char *name = (const char *) name_bytes;
	const char *value = (const char *) value_bytes;

	(void) name_len;
	(void) flags;
	(void) arg;
	if (stream == NULL)
		return 0;
	if (strcmp(name, ":path") == 0 && len < sizeof(stream->path))
		memcpy(stream->path, value, len + 1);
	else if (strcmp(name, "token") == 0 && len < sizeof(stream->token))
		memcpy(stream->token, value, len + 1);
	else if (strcmp(name, "grpc-timeout") == 0)
		stream->timeout_ms = atol(value);
	else if ((strcmp(name, "content-type") == 0 && strcmp(value, "application/grpc") == 0) ||
			 (strcmp(name, "te") == 0 && strcmp(value, "trailers") == 0) ||
			 (strcmp(name, "hasleader") == 0 && strcmp(value, "true") == 0))
		stream->nheaders++;
	return 0;
}

static void
check_headers(Stream *stream)
{
	stream->is_watch = strcmp(stream->path, ETCD_GRPC_WATCH_PATH) == 0;
	stream->is_keepalive = strcmp(stream->path, etcd_request_path(ETCD_GRPC, ETCD_KEEPALIVE)) == 0;
	if (stream->nheaders != 3)
		fail_rule("%s: %d of 3 headers", stream->path, stream->nheaders);
	/* without one, etcd would take the name in the certificate for the user */
	if (needs_token(stream) && stream->token[0] == '\0')
		fail_rule("%s: no token", stream->path);
	/* as a server with too many streams */
	if (!healed && random_chance(conditions.fates[FATE_REFUSE_STREAM]))
	{
		stray_fates_ns[FATE_REFUSE_STREAM] = now_ns;
		stream->ends = true;
		(void) nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_REFUSED_STREAM);
	}
	/* a member that hangs must not execute later what the client has given up */
	if ((stream->timeout_ms > 0) == (stream->is_watch || stream->is_keepalive))
		fail_rule("%s: a time of %ld ms", stream->path, stream->timeout_ms);
}

static int
on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
	Stream	   *stream = nghttp2_session_get_stream_user_data(h2, id);

	(void) flags;
	(void) arg;
	if (stream != NULL && !stream->ends)
		bytes_add(&stream->in, data, len);
	return 0;
}

/* Takes the messages that are there in full. */
static void
take_messages(Stream *stream, bool ended)
{
	while (bytes_left(&stream->in) >= 5)
	{
		const unsigned char *prefix = (const unsigned char *) stream->in.data + stream->in.start;
		size_t		len = (size_t) prefix[1] << 24 | (size_t) prefix[2] << 16 | (size_t) prefix[3] << 8 | prefix[4];

		if (len > bytes_left(&stream->in) - 5)
			break;
		if (stream->is_watch)
			take_watch_request(stream, (const char *) prefix + 5, len);
		else
			take_request(stream, (const char *) prefix + 5, len);
		bytes_take(&stream->in, 5 + len);
	}
	if (ended && (bytes_left(&stream->in) > 0 || stream->is_watch || stream->is_keepalive))
		fail_rule("%s: the client ends it with %zu bytes of a message", stream->path, bytes_left(&stream->in));
}

static void
take_goaway(Session *session, const nghttp2_goaway *goaway)
{
	if (goaway->error_code == NGHTTP2_NO_ERROR)
		return;
	reach(REACHED_VIOLATION);
	fail_rule("link %d: the client complains: %s", session->link->number, nghttp2_http2_strerror(goaway->error_code));
}

static int
on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
	Session    *session = arg;
	Stream	   *stream = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

	if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
	{
		session->pinged_ns = 0;
		reach(REACHED_SERVER_PING);
	}
	else if (frame->hd.type == NGHTTP2_GOAWAY)
		take_goaway(session, &frame->goaway);
	else if (frame->hd.type == NGHTTP2_RST_STREAM)
		reach(REACHED_RESET);
	else if (stream != NULL && frame->hd.type == NGHTTP2_HEADERS)
		check_headers(stream);
	else if (stream != NULL && frame->hd.type == NGHTTP2_DATA)
		take_messages(stream, frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
	return 0;
}

static int
on_invalid_frame(nghttp2_session *h2, const nghttp2_frame *frame, int error, void *arg)
{
	Session    *session = arg;

	(void) h2;
	/* more streams than are allowed at once, before the client knows how many those are */
	if (error == NGHTTP2_ERR_REFUSED_STREAM)
		stray_fates_ns[FATE_REFUSE_STREAM] = now_ns;
	else
		fail_rule("link %d: a frame of type %d: %s", session->link->number, frame->hd.type, nghttp2_strerror(error));
	return 0;
}

static int
on_close(nghttp2_session *h2, int32_t id, uint32_t error, void *arg)
{
	Session    *session = arg;
	Stream	   *stream = nghttp2_session_get_stream_user_data(h2, id);

	(void) error;
	if (stream == NULL || stream->is_closed)
		return 0;
	stream->is_closed = true;
	session->nopen--;
	bytes_free(&stream->in);
	bytes_free(&stream->out);
	return 0;
}

/* It is sent as a whole, after what was produced until now. */
static int
before_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
	Session    *session = arg;

	(void) h2;
	if (frame->hd.type != NGHTTP2_GOAWAY)
		return 0;
	if (frame->goaway.error_code != NGHTTP2_NO_ERROR)
		fail_rule("link %d: the client violates HTTP/2: %s", session->link->number,
				 nghttp2_http2_strerror(frame->goaway.error_code));
	if (session->link->goaway_at == UINT64_MAX)
		session->link->goaway_at = session->produced + FRAME_HEADER_SIZE + GOAWAY_SIZE;
	return 0;
}

/* Go's server ends the client's half of a stream after its own; others leave that to the client. */
static int
on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
	const Stream *stream = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

	(void) arg;
	if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && stream != NULL &&
		(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && (stream->is_watch || stream->is_keepalive) && random_chance(5000))
		(void) nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR);
	return 0;
}

static ssize_t
select_padding(nghttp2_session *h2, const nghttp2_frame *frame, size_t max_len, void *arg)
{
	size_t		len = frame->hd.length;

	(void) h2;
	(void) arg;
	if (frame->hd.type == NGHTTP2_DATA && random_chance(conditions.padding))
		len += (size_t) random_below(100);
	return (ssize_t) (len < max_len ? len : max_len);
}

/* ---- connections ----------------------------------------------------------------- */

void
servers_reset(void)
{
	sessions = NULL;
	ntokens = 0;
	first_token = 1;
}

void
server_accept(Link *link)
{
	Session    *session = run_alloc(sizeof(Session));
	nghttp2_session_callbacks *callbacks;
	nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, conditions.max_streams},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, conditions.upload_window}
	};

	if (link->up.is_over)
		return;
	nghttp2_session_callbacks_new(&callbacks);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	nghttp2_session_callbacks_set_before_frame_send_callback(callbacks, before_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
	nghttp2_session_callbacks_set_select_padding_callback(callbacks, select_padding);
	nghttp2_session_server_new(&session->h2, callbacks, session);
	nghttp2_session_callbacks_del(callbacks);
	session->link = link;
	session->last_served = INT32_MAX;
	session->next = sessions;
	sessions = session;
	link->session = session;
	nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings, 2);
	flush(session);
}

void
server_notified(Link *link)
{
	Session    *session = link->session;
	char		buffer[4096];
	size_t		n;

	if (session == NULL)
		return;
	while (!session->is_closed && (n = pipe_read(&link->up, buffer, sizeof(buffer))) > 0)
	{
		ssize_t		taken = nghttp2_session_mem_recv(session->h2, (const uint8_t *) buffer, n);

		if (taken < 0)
		{
			fail_rule("link %d: the client violates HTTP/2: %s", link->number, nghttp2_strerror((int) taken));
			close_session(session);
			return;
		}
	}
	flush(session);
	if (!session->is_closed && link->up.is_over && link->up.arrived == 0)
		close_session(session);
}

/* ---- faults ---------------------------------------------------------------------- */

/* Streams of which nothing was executed may be left out. */
static void
say_goaway(void *subject, uint64_t tag)
{
	Session    *session = subject;
	int32_t		last;

	(void) tag;
	if (session->is_closed)
		return;
	last = nghttp2_session_get_last_proc_stream_id(session->h2);
	for (const Stream *s = session->streams; s != NULL && random_chance(5000); s = s->next)
	{
		/* newest first */
		if (s->has_begun || s->has_executed || s->id <= 0)
			break;
		last = s->id > 2 ? s->id - 2 : 0;
		reach(REACHED_BEYOND_GOAWAY);
	}
	session->last_served = last;
	for (const Stream *s = session->streams; s != NULL; s = s->next)
	{
		if (s->is_watch && !s->is_closed)
			reach(REACHED_GOAWAY_WATCH);
	}
	(void) nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
	flush(session);
}

/* As Go's server: a GOAWAY that allows all streams, a PING's time later the other one. */
static void
leave(Session *session)
{
	trace("etcd", "link %d goes away", session->link->number);
	session->is_leaving = true;
	session->leaves_at_ns = now_ns + random_between(conditions.delay_ns, 8 * SECOND);
	if (random_chance(5000))
	{
		(void) nghttp2_submit_shutdown_notice(session->h2);
		events_after(2 * conditions.delay_ns, say_goaway, session, 0);
		flush(session);
	}
	else
		say_goaway(session, 0);
}

static void
ping(Session *session)
{
	session->pinged_ns = now_ns;
	(void) nghttp2_submit_ping(session->h2, NGHTTP2_FLAG_NONE, NULL);
	flush(session);
}

static void
check_pong(const Session *session)
{
	const Link *link = session->link;
	int64_t		due_ns = session->pinged_ns;

	if (session->pinged_ns == 0 || link->is_sick)
		return;
	if (due_ns < link->up.held_until_ns)
		due_ns = link->up.held_until_ns;
	if (due_ns < link->down.held_until_ns)
		due_ns = link->down.held_until_ns;
	if (due_ns + PONG_NS < now_ns)
		fail_rule("link %d: a PING without an answer", link->number);
}

static void
look_at_windows(const Session *session)
{
	if (nghttp2_session_get_remote_window_size(session->h2) < CONNECTION_WINDOW / 2)
		reach(REACHED_FULL_CONNECTION);
	for (const Stream *s = session->streams; s != NULL; s = s->next)
	{
		if (!s->is_closed && bytes_left(&s->out) > 0 && s->has_begun &&
			nghttp2_session_get_stream_remote_window_size(session->h2, s->id) <= 0)
			reach(REACHED_FULL_WINDOW);
	}
}

void
servers_tick(void)
{
	if (!healed && random_chance(conditions.invalidations))
		first_token = ntokens + 1;
	for (Session *session = sessions; session != NULL; session = session->next)
	{
		if (session->is_closed)
			continue;
		look_at_windows(session);
		check_pong(session);
		if (!healed && conditions.floods > 0 && random_chance(conditions.floods))
		{
			trace("etcd", "link %d is flooded", session->link->number);
			session->floods = true;
			session->pinged_ns = 0;
			flush(session);
		}
		if (!healed && !session->floods && session->pinged_ns == 0 && random_chance(conditions.pings))
			ping(session);
		if (!session->is_closed && !healed && !session->is_leaving && random_chance(conditions.goaways))
			leave(session);
		else if (session->is_leaving && session->leaves_at_ns <= now_ns)
			close_session(session);
	}
}

/* All that was sent was read: the windows must be open again, but for less than a half. */
void
servers_check_rest(void)
{
	for (const Session *session = sessions; session != NULL; session = session->next)
	{
		int32_t		left;

		if (session->is_closed || session->link->is_sick || session->link->exchange == NULL)
			continue;
		left = nghttp2_session_get_remote_window_size(session->h2);
		if (left < CONNECTION_WINDOW / 2)
			fail_rule("link %d: %d bytes are left of its window at rest", session->link->number, left);
		for (const Stream *s = session->streams; s != NULL; s = s->next)
		{
			if (s->is_closed)
				continue;
			left = nghttp2_session_get_stream_remote_window_size(session->h2, s->id);
			if (left < STREAM_WINDOW / 2)
				fail_rule("link %d stream %d: %d bytes are left of its window at rest", session->link->number, s->id, left);
		}
	}
}

void
servers_free(void)
{
	for (Session *session = sessions; session != NULL; session = session->next)
		close_session(session);
	sessions = NULL;
}
