/*-------------------------------------------------------------------------
 *
 * h2.c
 *	  One HTTP/2 connection for gRPC: bytes in, bytes out.
 *
 * nghttp2's callbacks only record what came in the stream.  They allocate by
 * realloc() alone, and a failure of memory ends the stream.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#if !__has_include(<nghttp2/nghttp2.h>)
#error "nghttp2 is required (Debian: libnghttp2-dev)"
#endif
#include <nghttp2/nghttp2.h>

#include "api.h"
#include "h2.h"

/*
 * How much the server may send before this side has looked at it.  An answer
 * of elections fits into the window of a stream; larger ones come in pieces.
 */
#define STREAM_WINDOW		(1024 * 1024)
#define CONNECTION_WINDOW	(4 * STREAM_WINDOW)

/* All headers of a stream.  The messages of etcd's errors are short. */
#define MAX_HEADERS_SIZE	(16 * 1024)

/* The number of bytes that are collected before they are sent. */
#define OUTPUT_SIZE			(64 * 1024)

/* In front of each message: whether it is compressed, and its length. */
#define PREFIX_SIZE			5

/* A buffer that is larger than this is not kept when it is empty. */
#define MAX_IDLE_SIZE		(64 * 1024)

/* The number of bytes that are received before the messages in them are looked at. */
#define MAX_BURST_SIZE		(64 * 1024)

#define HTTP1_START			"HTTP/"

/* In front of each frame of HTTP/2: its length in 3 bytes, type, flags, stream. */
#define FRAME_HEADER_SIZE	9

/* The payload of a PING and of its answer. */
#define PING_SIZE			8

/* The number of frames that nobody waits for, for each message that was taken. */
#define FRAMES_PER_MESSAGE	8

typedef struct Buffer
{
	char	   *data;
	size_t		start;			/* bytes before it were taken */
	size_t		end;
	size_t		size;
} Buffer;

struct H2Stream
{
	H2Stream   *next;
	int32_t		id;
	size_t		max_size;
	Buffer		out;			/* messages with their prefixes */
	bool		is_last_sent;	/* out has the last message */
	Buffer		in;
	size_t		unconsumed;		/* received bytes that do not open the window yet */
	bool		paused;
	size_t		headers_size;
	bool		has_headers;	/* the first ones are there in full */
	int			http_status;
	bool		is_grpc;
	int			status;			/* of gRPC; -1: none */
	char		message[ETCD_MESSAGE_SIZE];
	bool		too_large;
	bool		has_news;		/* DATA has brought a byte since its last frame */
	bool		is_over;		/* the server has ended its half */
	bool		closed;
	uint32_t	error;			/* of HTTP/2 */
};

struct H2
{
	nghttp2_session *session;
	H2Stream   *streams;
	Buffer		out;
	char		start[sizeof(HTTP1_START) - 1]; /* the first bytes of the server */
	size_t		nstart;
	bool		is_going_away;
	bool		awaits_pong;
	bool		owes_pong;		/* see etcd_h2_answer_ping() */
	uint8_t		pong[PING_SIZE];
	/* the frame that is being received */
	unsigned char frame_header[FRAME_HEADER_SIZE];
	size_t		nframe_header;
	size_t		frame_left;		/* bytes of its payload that are to come */
	int			idle_frames;	/* see etcd_h2_idle_frames() */
	size_t		late_room;		/* so much DATA may still come for streams that were reset */
	char		fault[ETCD_MESSAGE_SIZE];
};

/* ---- buffers --------------------------------------------------------- */

static bool
append(Buffer *buffer, const void *data, size_t len)
{
	if (buffer->start > 0)
	{
		memmove(buffer->data, buffer->data + buffer->start, buffer->end - buffer->start);
		buffer->end -= buffer->start;
		buffer->start = 0;
	}
	if (len > buffer->size - buffer->end)
	{
		size_t		size = 2 * buffer->end + len + 256;
		char	   *grown = realloc(buffer->data, size);

		if (grown == NULL)
			return false;
		buffer->data = grown;
		buffer->size = size;
	}
	memcpy(buffer->data + buffer->end, data, len);
	buffer->end += len;
	return true;
}

static size_t
length(const Buffer *buffer)
{
	return buffer->end - buffer->start;
}

static void
take(Buffer *buffer, size_t n)
{
	buffer->start += n;
	if (buffer->start < buffer->end)
		return;
	/* a password or a token may have passed */
	if (buffer->end > 0)
		explicit_bzero(buffer->data, buffer->end);
	buffer->start = buffer->end = 0;
	if (buffer->size > MAX_IDLE_SIZE)
	{
		free(buffer->data);
		memset(buffer, 0, sizeof(*buffer));
	}
}

/* ---- headers --------------------------------------------------------- */

/* A number of at most four digits; -1 if it is none. */
static int
parse_status(const char *value, size_t len)
{
	int			number = 0;

	for (size_t i = 0; i < len; i++)
	{
		if (value[i] < '0' || value[i] > '9' || i == 4)
			return -1;
		number = 10 * number + (value[i] - '0');
	}
	return len > 0 ? number : -1;
}

/* application/grpc, alone or with something like "+proto" behind it */
static bool
is_grpc_type(const char *value, size_t len)
{
	const char *type = "application/grpc";
	size_t		n = strlen(type);

	return len >= n && strncasecmp(value, type, n) == 0 &&
		(len == n || value[n] == '+' || value[n] == ';');
}

static int
on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		  size_t name_len, const uint8_t *value_bytes, size_t len, uint8_t flags, void *arg)
{
	H2Stream   *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	const char *value = (const char *) value_bytes;

	(void) flags;
	(void) arg;
	if (stream == NULL)
		return 0;
	stream->headers_size += name_len + len;
	if (stream->headers_size > MAX_HEADERS_SIZE)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
#define IS_NAME(text) (name_len == strlen(text) && memcmp(name, text, name_len) == 0)
	if (IS_NAME(":status"))
		stream->http_status = parse_status(value, len);
	else if (IS_NAME("content-type"))
		stream->is_grpc = is_grpc_type(value, len);
	else if (IS_NAME("grpc-status"))
		stream->status = parse_status(value, len);
	else if (IS_NAME("grpc-message"))
		etcd_decode_message(stream->message, value, len);
	return 0;
}

/* ---- what comes ------------------------------------------------------ */

/* The frame that is being received is one that somebody waits for. */
static void
excuse_frame(H2 *h2)
{
	if (h2->idle_frames > 0)
		h2->idle_frames--;
}

static uint32_t
message_length(const H2Stream *stream)
{
	const unsigned char *prefix = (const unsigned char *) stream->in.data + stream->in.start;

	return (uint32_t) prefix[1] << 24 | (uint32_t) prefix[2] << 16 |
		(uint32_t) prefix[3] << 8 | prefix[4];
}

/* Is the first message there in full? */
static bool
has_message(const H2Stream *stream)
{
	return length(&stream->in) >= PREFIX_SIZE &&
		length(&stream->in) - PREFIX_SIZE >= message_length(stream);
}

/* Can the first message be read?  This side asks for no compression. */
static void
check_message(H2Stream *stream)
{
	if (length(&stream->in) < PREFIX_SIZE)
		return;
	if (stream->in.data[stream->in.start] != 0)
		stream->is_grpc = false;
	else if (message_length(stream) > stream->max_size)
		stream->too_large = true;
}

/*
 * Lets the server send as much again as was received, unless enough is here to
 * be looked at.
 */
static int
consume(nghttp2_session *session, H2Stream *stream)
{
	size_t		n = stream->unconsumed;

	if (n == 0 || stream->paused || (length(&stream->in) > MAX_BURST_SIZE && has_message(stream)))
		return 0;
	stream->unconsumed = 0;
	return nghttp2_session_consume(session, stream->id, n) != 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
		void *arg)
{
	H2Stream   *stream = nghttp2_session_get_stream_user_data(session, id);

	(void) flags;
	(void) arg;
	/* what comes for a stream that was closed must not close the window of all */
	if (stream == NULL)
		return nghttp2_session_consume_connection(session, len) != 0 ?
			NGHTTP2_ERR_CALLBACK_FAILURE : 0;
	if (!append(&stream->in, data, len))
		return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_INTERNAL_ERROR);
	stream->unconsumed += len;
	stream->has_news = true;
	check_message(stream);
	return stream->too_large ? 0 : consume(session, stream);
}

/*
 * An informational answer (100 to 199) comes before the real one, and says
 * nothing about it.  False if these are headers of one.
 */
static bool
note_headers(H2Stream *stream)
{
	if (stream->has_headers || stream->http_status < 100 || stream->http_status > 199)
	{
		stream->has_headers = true;
		return true;
	}
	stream->http_status = 0;
	stream->is_grpc = false;
	stream->status = -1;
	stream->message[0] = '\0';
	return false;
}

/* nghttp2 does not close a stream that the server alone has ended. */
static void
note_frame(H2 *h2, H2Stream *stream, const nghttp2_frame_hd *frame)
{
	bool		brings = false;

	if (frame->type == NGHTTP2_HEADERS)
		brings = note_headers(stream);
	else if (frame->type == NGHTTP2_DATA)
	{
		brings = stream->has_news;
		stream->has_news = false;
	}
	if (frame->type == NGHTTP2_HEADERS || frame->type == NGHTTP2_DATA)
		stream->is_over |= (frame->flags & NGHTTP2_FLAG_END_STREAM) != 0;
	if (brings)
		excuse_frame(h2);
}

/* False: that fails the connection, as if the server does not read the answers. */
static bool
send_pong(H2 *h2)
{
	int			error;

	if (!h2->owes_pong)
		return true;
	h2->owes_pong = false;
	error = nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_ACK, h2->pong);
	if (error != 0)
		etcd_h2_fail(h2, nghttp2_strerror(error));
	return error == 0;
}

/* Of several PINGs the last one waits for etcd_h2_answer_ping(). */
static int
note_ping(H2 *h2, const nghttp2_ping *ping)
{
	if (!send_pong(h2))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(h2->pong, ping->opaque_data, PING_SIZE);
	h2->owes_pong = true;
	return 0;
}

static int
on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	H2		   *h2 = arg;
	H2Stream   *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	if (stream != NULL)
		note_frame(h2, stream, &frame->hd);
	else if (frame->hd.type == NGHTTP2_GOAWAY)
		h2->is_going_away = true;
	else if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0)
		return note_ping(h2, &frame->ping);
	else if (frame->hd.type == NGHTTP2_PING && h2->awaits_pong)
	{
		h2->awaits_pong = false;
		excuse_frame(h2);
	}
	return 0;
}

/* Gives back to the connection what a stream holds of its window. */
static int
release_window(nghttp2_session *session, H2Stream *stream)
{
	size_t		n = stream->unconsumed;

	stream->unconsumed = 0;
	return nghttp2_session_consume_connection(session, n) != 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int
on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
	H2Stream   *stream = nghttp2_session_get_stream_user_data(session, id);

	(void) arg;
	if (stream == NULL)
		return 0;
	stream->closed = true;
	stream->error = error;
	return release_window(session, stream);
}

/* ---- what is sent ---------------------------------------------------- */

/* A stream that the server does not take any more is refused here. */
static int
on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
	H2		   *h2 = arg;

	(void) session;
	(void) error;
	for (H2Stream *stream = h2->streams; stream != NULL; stream = stream->next)
	{
		if (frame->hd.type != NGHTTP2_HEADERS || stream->id != frame->hd.stream_id ||
			stream->closed)
			continue;
		stream->closed = true;
		stream->error = NGHTTP2_REFUSED_STREAM;
	}
	return 0;
}

static ssize_t
read_out(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
		 nghttp2_data_source *source, void *arg)
{
	H2Stream   *stream = nghttp2_session_get_stream_user_data(session, id);
	size_t		n;

	(void) source;
	(void) arg;
	if (stream == NULL)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	n = length(&stream->out);
	if (n == 0 && !stream->is_last_sent)
		return NGHTTP2_ERR_DEFERRED;
	if (n > len)
		n = len;
	if (n > 0)
		memcpy(buf, stream->out.data + stream->out.start, n);
	take(&stream->out, n);
	if (stream->is_last_sent && length(&stream->out) == 0)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t) n;
}

/* ---- the session ----------------------------------------------------- */

/* False if memory is out. */
static bool
create_session(H2 *h2)
{
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = NULL;
	bool		good = false;

	if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0)
	{
		nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
		nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
		nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
		nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_not_sent);
		nghttp2_option_set_no_auto_window_update(option, 1);
		nghttp2_option_set_no_auto_ping_ack(option, 1);
		good = nghttp2_session_client_new2(&h2->session, callbacks, h2, option) == 0;
	}
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_option_del(option);
	return good;
}

H2 *
etcd_h2_create(void)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MAX_HEADERS_SIZE},
	};
	H2		   *h2 = calloc(1, sizeof(H2));

	if (h2 == NULL)
		return NULL;
	if (!create_session(h2) ||
		nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings,
								sizeof(settings) / sizeof(settings[0])) != 0 ||
		nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
											  CONNECTION_WINDOW) != 0)
	{
		etcd_h2_free(h2);
		return NULL;
	}
	return h2;
}

static void
free_buffer(Buffer *buffer)
{
	take(buffer, length(buffer));
	free(buffer->data);
}

static void
free_stream(H2Stream *stream)
{
	free_buffer(&stream->in);
	free_buffer(&stream->out);
	free(stream);
}

void
etcd_h2_free(H2 *h2)
{
	if (h2 == NULL)
		return;
	while (h2->streams != NULL)
	{
		H2Stream   *stream = h2->streams;

		h2->streams = stream->next;
		free_stream(stream);
	}
	nghttp2_session_del(h2->session);
	free_buffer(&h2->out);
	free(h2);
}

/* The connection is at its end, and all streams with it. */
static void
fail(H2 *h2, const char *why)
{
	for (H2Stream *stream = h2->streams; stream != NULL; stream = stream->next)
	{
		if (!stream->closed)
			stream->error = NGHTTP2_INTERNAL_ERROR;
		stream->closed = true;
	}
	etcd_format_message(h2->fault, "%s", why);
}

void
etcd_h2_fail(H2 *h2, const char *why)
{
	if (h2->fault[0] == '\0')
		fail(h2, why);
}

/*
 * A frame begins.  nghttp2 reports no frame that it ignores, so each one counts
 * as idle here, and those that bring something are excused.
 */
static void
begin_frame(H2 *h2)
{
	const unsigned char *h = h2->frame_header;
	uint32_t	high = (uint32_t) (h[5] & 0x7F) << 24 | (uint32_t) h[6] << 16;
	int32_t		id = (int32_t) (high | (uint32_t) h[7] << 8 | h[8]);
	size_t		len = (size_t) h[0] << 16 | (size_t) h[1] << 8 | h[2];
	bool		is_late = h[3] == NGHTTP2_DATA && len > 0 && len <= h2->late_room &&
		nghttp2_session_get_stream_user_data(h2->session, id) == NULL;

	h2->frame_left = len;
	if (is_late)
		h2->late_room -= len;
	else
		h2->idle_frames++;
}

static void
count_frames(H2 *h2, const char *data, size_t len)
{
	while (len > 0)
	{
		size_t		n = h2->frame_left < len ? h2->frame_left : len;

		if (n == 0)
		{
			h2->frame_header[h2->nframe_header++] = (unsigned char) *data;
			n = 1;
		}
		else
			h2->frame_left -= n;
		if (h2->nframe_header == FRAME_HEADER_SIZE)
		{
			h2->nframe_header = 0;
			begin_frame(h2);
		}
		data += n;
		len -= n;
	}
}

void
etcd_h2_receive(H2 *h2, const char *data, size_t len)
{
	ssize_t		taken;

	/* nghttp2 must not be called again after it has failed */
	if (h2->fault[0] != '\0')
		return;
	for (size_t i = 0; i < len && h2->nstart < sizeof(h2->start); i++)
		h2->start[h2->nstart++] = data[i];
	count_frames(h2, data, len);
	taken = nghttp2_session_mem_recv(h2->session, (const uint8_t *) data, len);
	if (etcd_h2_is_http1(h2))
		fail(h2, "it answers in HTTP/1");
	else if (taken < 0)
		etcd_h2_fail(h2, nghttp2_strerror((int) taken));
}

int
etcd_h2_idle_frames(const H2 *h2)
{
	return h2->idle_frames;
}

void
etcd_h2_clear_idle_frames(H2 *h2)
{
	h2->idle_frames = 0;
}

uint32_t
etcd_h2_max_streams(H2 *h2)
{
	return nghttp2_session_get_remote_settings(h2->session,
											   NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

/* Has the server gone away when nothing was left to do?  That is no fault. */
static bool
is_left(const H2 *h2)
{
	for (const H2Stream *stream = h2->streams; stream != NULL; stream = stream->next)
	{
		if (!stream->closed)
			return false;
	}
	return h2->is_going_away;
}

const char *
etcd_h2_fault(H2 *h2)
{
	if (h2->fault[0] == '\0' && !nghttp2_session_want_read(h2->session) &&
		!nghttp2_session_want_write(h2->session) &&
		!is_left(h2))
		fail(h2, "it violates HTTP/2");
	return h2->fault[0] != '\0' ? h2->fault : NULL;
}

bool
etcd_h2_is_http1(const H2 *h2)
{
	return h2->nstart == sizeof(h2->start) && memcmp(h2->start, HTTP1_START, h2->nstart) == 0;
}

bool
etcd_h2_is_going_away(const H2 *h2)
{
	return h2->is_going_away;
}

/*
 * One write for all: nghttp2 hands out a frame at a time, and only once.  Without a
 * frame that is lost, the server would not know the stream.
 */
static void
collect_output(H2 *h2)
{
	const uint8_t *data;
	ssize_t		n;

	while (h2->fault[0] == '\0' && length(&h2->out) < OUTPUT_SIZE &&
		   (n = nghttp2_session_mem_send(h2->session, &data)) != 0)
	{
		if (n < 0)
			fail(h2, nghttp2_strerror((int) n));
		else if (!append(&h2->out, data, (size_t) n))
			fail(h2, nghttp2_strerror(NGHTTP2_ERR_NOMEM));
	}
}

void
etcd_h2_answer_ping(H2 *h2)
{
	/* nghttp2 would put the answer before what it has not handed out */
	if (h2->owes_pong)
		collect_output(h2);
	if (h2->fault[0] == '\0')
		(void) send_pong(h2);
}

const char *
etcd_h2_output(H2 *h2, size_t *len)
{
	collect_output(h2);
	*len = h2->fault[0] == '\0' ? length(&h2->out) : 0;
	return h2->out.data + h2->out.start;
}

bool
etcd_h2_has_output(H2 *h2)
{
	return h2->fault[0] == '\0' &&
		(length(&h2->out) > 0 || h2->owes_pong || nghttp2_session_want_write(h2->session));
}

void
etcd_h2_sent(H2 *h2, size_t n)
{
	take(&h2->out, n);
}

void
etcd_h2_ping(H2 *h2)
{
	h2->awaits_pong = nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, NULL) == 0;
}

bool
etcd_h2_awaits_pong(const H2 *h2)
{
	return h2->awaits_pong;
}

/* ---- streams --------------------------------------------------------- */

static nghttp2_nv
header(const char *name, const char *value)
{
	return (nghttp2_nv) {
		(uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE
	};
}

H2Stream *
etcd_h2_open(H2 *h2, const H2Request *request)
{
	H2Stream   *stream = calloc(1, sizeof(H2Stream));
	nghttp2_data_provider provider = {.read_callback = read_out};
	nghttp2_nv	headers[10];
	char		timeout[32];
	size_t		n = 0;

	if (stream == NULL)
		return NULL;
	headers[n++] = header(":method", "POST");
	headers[n++] = header(":scheme", request->is_tls ? "https" : "http");
	headers[n++] = header(":path", request->path);
	headers[n++] = header(":authority", request->authority);
	headers[n++] = header("content-type", "application/grpc");
	headers[n++] = header("te", "trailers");
	/* refuse without a leader of etcd */
	headers[n++] = header("hasleader", "true");
	if (request->timeout_ms > 0)
	{
		/* a member that hangs must not execute later what this side has given up */
		snprintf(timeout, sizeof(timeout), "%ldm", request->timeout_ms);
		headers[n++] = header("grpc-timeout", timeout);
	}
	if (request->token != NULL)
	{
		headers[n] = header("token", request->token);
		headers[n++].flags = NGHTTP2_NV_FLAG_NO_INDEX;
	}
	stream->max_size = request->max_size;
	stream->status = -1;
	stream->id = nghttp2_submit_request(h2->session, NULL, headers, n, &provider, stream);
	if (stream->id < 0)
	{
		free_stream(stream);
		return NULL;
	}
	stream->next = h2->streams;
	h2->streams = stream;
	return stream;
}

bool
etcd_h2_send(H2 *h2, H2Stream *stream, const char *message, size_t len, bool is_last)
{
	unsigned char prefix[PREFIX_SIZE] = {0, len >> 24, len >> 16, len >> 8, len};

	if (len > INT32_MAX || !append(&stream->out, prefix, sizeof(prefix)) ||
		!append(&stream->out, message, len))
		return false;
	stream->is_last_sent = is_last;
	/* it fails if the stream waits for nothing yet, or has ended */
	(void) nghttp2_session_resume_data(h2->session, stream->id);
	return true;
}

void
etcd_h2_close(H2 *h2, H2Stream **stream)
{
	H2Stream   *closed = *stream;
	H2Stream  **link = &h2->streams;

	if (closed == NULL)
		return;
	*stream = NULL;
	while (*link != closed)
		link = &(*link)->next;
	*link = closed->next;
	if (!closed->closed)
	{
		h2->late_room += STREAM_WINDOW;
		if (h2->late_room > CONNECTION_WINDOW)
			h2->late_room = CONNECTION_WINDOW;
		(void) release_window(h2->session, closed);
		/* its bytes are freed here: nghttp2 must not ask for them any more */
		(void) nghttp2_session_set_stream_user_data(h2->session, closed->id, NULL);
		(void) nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, closed->id,
										 NGHTTP2_CANCEL);
	}
	free_stream(closed);
}

H2State
etcd_h2_state(const H2Stream *stream)
{
	if (stream->too_large)
		return H2_TOO_LARGE;
	if (stream->has_headers && !stream->is_grpc)
		return H2_NOT_GRPC;
	if (!stream->closed && !stream->is_over)
		return H2_OPEN;
	if (stream->status >= 0)
		return H2_ENDED;
	return stream->error == NGHTTP2_REFUSED_STREAM ? H2_REFUSED : H2_BROKEN;
}

bool
etcd_h2_is_answered(const H2Stream *stream)
{
	return stream->has_headers && stream->is_grpc;
}

int
etcd_h2_status(const H2Stream *stream, char *message)
{
	memcpy(message, stream->message, ETCD_MESSAGE_SIZE);
	return stream->status;
}

int
etcd_h2_http_status(const H2Stream *stream)
{
	return stream->http_status;
}

const char *
etcd_h2_error(const H2Stream *stream)
{
	return nghttp2_http2_strerror(stream->error);
}

const char *
etcd_h2_message(const H2Stream *stream, size_t *len)
{
	if (!stream->is_grpc || stream->too_large || !has_message(stream))
		return NULL;
	*len = message_length(stream);
	return stream->in.data + stream->in.start + PREFIX_SIZE;
}

void
etcd_h2_take(H2 *h2, H2Stream *stream, bool awaited)
{
	take(&stream->in, PREFIX_SIZE + message_length(stream));
	if (!awaited)
		h2->idle_frames++;
	else
		h2->idle_frames -= h2->idle_frames < FRAMES_PER_MESSAGE ?
			h2->idle_frames : FRAMES_PER_MESSAGE;
	check_message(stream);
	if (h2->fault[0] == '\0')
		(void) consume(h2->session, stream);
}

void
etcd_h2_pause(H2 *h2, H2Stream *stream, bool paused)
{
	stream->paused = paused;
	if (h2->fault[0] == '\0')
		(void) consume(h2->session, stream);
}
