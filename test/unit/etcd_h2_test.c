/*-------------------------------------------------------------------------
 *
 * etcd_h2_test.c
 *	  Unit tests of etcd/h2.c, against a server of nghttp2 in the same process.
 *
 * Bytes go from one to the other in memory, whole or one at a time.
 *
 *-------------------------------------------------------------------------
 */
#include <nghttp2/nghttp2.h>

#include "etcd/api.h"
#include "etcd/h2.h"
#include "unit.h"

#define MAX_SIZE	(1024 * 1024)
#define MAX_STREAMS	16

#define PING_TEXT	"12345678"

/* What the server answers to a message. */
typedef struct Reply
{
	const char *content_type;	/* NULL: that of gRPC */
	const char *status;			/* of HTTP; NULL: 200 */
	const char *body;
	size_t		len;
	const char *grpc_status;	/* in the trailers; NULL: there are none */
	const char *grpc_message;
	bool		headers_only;	/* the trailers are the headers */
	bool		stays_open;		/* the stream does not end */
	int			reset;			/* RST_STREAM with that code; 0: none */
	bool		silent;
	size_t		large_header;	/* of so many bytes */
	int			ninformational; /* answers of 103 before it */
} Reply;

typedef struct Server
{
	nghttp2_session *session;
	H2		   *h2;
	Reply		reply;
	size_t		sent;			/* of the body */
	char		received[256];	/* the messages, with their prefixes */
	size_t		nreceived;
	char		path[64];
	char		token[64];
	char		timeout[64];
	int			nrequests;
	int			nresets;
	char		frames[64];		/* of DATA and answers to PINGs, the first ones in order: d, p */
	bool		one_by_one;		/* bytes to the client */
	size_t		cut_after;		/* so many bytes reach the client, and no more; 0: all */
	size_t		delivered;
	unsigned	noise;			/* one byte in so many is changed; 0: none */
} Server;

/* ---- out of memory --------------------------------------------------- */

extern void *__wrap_realloc(void *p, size_t size);
extern void *__real_realloc(void *p, size_t size);

static bool is_memory_out;

void *
__wrap_realloc(void *p, size_t size)
{
	return is_memory_out ? NULL : __real_realloc(p, size);
}

/* ---- nghttp2 --------------------------------------------------------- */

extern ssize_t __real_nghttp2_session_mem_recv(nghttp2_session *session, const uint8_t *data, size_t len);
extern ssize_t __wrap_nghttp2_session_mem_recv(nghttp2_session *session, const uint8_t *data, size_t len);
extern ssize_t __real_nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data);
extern ssize_t __wrap_nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data);

/* After a failure only nghttp2_session_del() may follow. */
static const nghttp2_session *failed_session;

ssize_t
__wrap_nghttp2_session_mem_recv(nghttp2_session *session, const uint8_t *data, size_t len)
{
	ssize_t		n;

	assert_ptr_not_equal(session, failed_session);
	n = __real_nghttp2_session_mem_recv(session, data, len);
	if (n < 0)
		failed_session = session;
	return n;
}

ssize_t
__wrap_nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data)
{
	assert_ptr_not_equal(session, failed_session);
	return __real_nghttp2_session_mem_send(session, data);
}

/* ---- the server ------------------------------------------------------ */

static nghttp2_nv
header(const char *name, const char *value)
{
	return (nghttp2_nv) {(uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), 0};
}

static ssize_t
read_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
		  nghttp2_data_source *source, void *arg)
{
	Server	   *server = arg;
	size_t		left = server->reply.len - server->sent;
	nghttp2_nv	trailers[2];
	size_t		n = 0;

	if (left == 0 && server->reply.stays_open)
		return NGHTTP2_ERR_DEFERRED;
	if (left > len)
		left = len;
	if (left > 0)
		memcpy(buf, server->reply.body + server->sent, left);
	server->sent += left;
	if (server->sent == server->reply.len && !server->reply.stays_open)
	{
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (server->reply.grpc_status != NULL)
		{
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			trailers[n++] = header("grpc-status", server->reply.grpc_status);
			if (server->reply.grpc_message != NULL)
				trailers[n++] = header("grpc-message", server->reply.grpc_message);
			assert_int_equal(nghttp2_submit_trailer(session, id, trailers, n), 0);
		}
	}
	return (ssize_t) left;
}

static void
answer(Server *server, int32_t id)
{
	const Reply *reply = &server->reply;
	nghttp2_data_provider provider = {.read_callback = read_body};
	nghttp2_nv	headers[5];
	size_t		n = 0;
	char	   *large = NULL;

	if (reply->silent)
		return;
	if (reply->reset != 0)
	{
		nghttp2_submit_rst_stream(server->session, 0, id, reply->reset);
		return;
	}
	server->sent = 0;
	headers[0] = header(":status", "103");
	for (int i = 0; i < reply->ninformational; i++)
		assert_int_equal(nghttp2_submit_headers(server->session, 0, id, NULL, headers, 1, NULL), 0);
	headers[n++] = header(":status", reply->status != NULL ? reply->status : "200");
	headers[n++] = header("content-type", reply->content_type != NULL ? reply->content_type : "application/grpc");
	if (reply->headers_only)
	{
		headers[n++] = header("grpc-status", reply->grpc_status);
		if (reply->grpc_message != NULL)
			headers[n++] = header("grpc-message", reply->grpc_message);
	}
	if (reply->large_header > 0)
	{
		large = calloc(1, reply->large_header + 1);
		memset(large, 'a', reply->large_header);
		headers[n++] = header("large", large);
	}
	assert_int_equal(nghttp2_submit_response(server->session, id, headers, n, reply->headers_only ? NULL : &provider), 0);
	free(large);
}

static int
on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
		  const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
	Server	   *server = arg;

	if (strcmp((const char *) name, ":path") == 0)
		snprintf(server->path, sizeof(server->path), "%.*s", (int) len, value);
	if (strcmp((const char *) name, "token") == 0)
		snprintf(server->token, sizeof(server->token), "%.*s", (int) len, value);
	if (strcmp((const char *) name, "grpc-timeout") == 0)
		snprintf(server->timeout, sizeof(server->timeout), "%.*s", (int) len, value);
	return 0;
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
	Server	   *server = arg;

	assert_true(server->nreceived + len <= sizeof(server->received));
	memcpy(server->received + server->nreceived, data, len);
	server->nreceived += len;
	return 0;
}

static void
note_frame(Server *server, char type)
{
	size_t		n = strlen(server->frames);

	if (n < sizeof(server->frames) - 1)
		server->frames[n] = type;
}

static int
on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	Server	   *server = arg;

	if (frame->hd.type == NGHTTP2_RST_STREAM)
		server->nresets++;
	if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
	{
		assert_memory_equal(frame->ping.opaque_data, PING_TEXT, 8);
		note_frame(server, 'p');
	}
	if (frame->hd.type == NGHTTP2_DATA)
		note_frame(server, 'd');
	if (frame->hd.type != NGHTTP2_DATA)
		return 0;
	server->nrequests++;
	if (nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) == NULL)
	{
		nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, server);
		answer(server, frame->hd.stream_id);
	}
	else if (server->reply.stays_open)
	{
		server->sent = 0;
		nghttp2_session_resume_data(session, frame->hd.stream_id);
	}
	return 0;
}

static Server *
start(Reply reply)
{
	Server	   *server = calloc(1, sizeof(Server));
	nghttp2_session_callbacks *callbacks;

	server->reply = reply;
	server->h2 = etcd_h2_create();
	nghttp2_session_callbacks_new(&callbacks);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_server_new(&server->session, callbacks, server);
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_submit_settings(server->session, 0, NULL, 0);
	return server;
}

static void
stop(Server *server)
{
	etcd_h2_free(server->h2);
	nghttp2_session_del(server->session);
	free(server);
	failed_session = NULL;
}

static void
deliver(Server *server, const uint8_t *data, size_t n)
{
	char	   *copy = malloc(n);

	if (server->cut_after > 0 && server->delivered + n > server->cut_after)
		n = server->cut_after - server->delivered;
	server->delivered += n;
	memcpy(copy, data, n);
	for (size_t i = 0; server->noise > 0 && i < n; i++)
	{
		if (rand() % server->noise == 0)
			copy[i] = rand();
	}
	if (!server->one_by_one)
		etcd_h2_receive(server->h2, copy, n);
	for (size_t i = 0; server->one_by_one && i < n; i++)
	{
		char		byte = copy[i];

		etcd_h2_receive(server->h2, &byte, 1);
	}
	free(copy);
}

/* Until both have nothing more to say. */
static void
exchange(Server *server)
{
	for (bool busy = true; busy;)
	{
		const uint8_t *data;
		const char *out;
		ssize_t		n;
		size_t		len;

		busy = false;
		while (out = etcd_h2_output(server->h2, &len), len > 0)
		{
			/* a full socket takes a part */
			if (len > 7)
				len = 7;
			n = nghttp2_session_mem_recv(server->session, (const uint8_t *) out, len);
			etcd_h2_sent(server->h2, len);
			if (n < 0)
				return;
			busy = true;
		}
		while ((n = nghttp2_session_mem_send(server->session, &data)) > 0)
		{
			deliver(server, data, n);
			busy = true;
		}
		if (etcd_h2_fault(server->h2) != NULL)
			return;
	}
}

static H2Stream *
open_stream(Server *server, bool is_unary)
{
	H2Request	request = {.authority = "127.0.0.1:2379",.path = "/etcdserverpb.KV/Txn",.max_size = MAX_SIZE,.timeout_ms = is_unary ? 1234 : 0};
	H2Stream   *stream = etcd_h2_open(server->h2, &request);

	assert_non_null(stream);
	assert_true(etcd_h2_send(server->h2, stream, "hello", 5, is_unary));
	return stream;
}

/* ---- tests ----------------------------------------------------------- */

#define BODY		"\0\0\0\0\3abc"
#define BODY_LEN	8

static void
assert_message(const H2Stream *stream, const char *text)
{
	size_t		len = 0;
	const char *message = etcd_h2_message(stream, &len);

	assert_non_null(message);
	assert_int_equal(len, strlen(text));
	assert_memory_equal(message, text, len);
}

static void
test_unary(void **state)
{
	for (int one_by_one = 0; one_by_one < 2; one_by_one++)
	{
		Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0"});
		H2Request	request = {.is_tls = true,.authority = "a",.path = "/x/Y",.token = "secret",.timeout_ms = 77,.max_size = 3};
		H2Stream   *stream = etcd_h2_open(server->h2, &request);
		char		why[ETCD_MESSAGE_SIZE];
		size_t		len;

		server->one_by_one = one_by_one;
		assert_true(etcd_h2_send(server->h2, stream, "hello", 5, true));
		assert_true(etcd_h2_has_output(server->h2));
		exchange(server);
		assert_false(etcd_h2_has_output(server->h2));
		assert_string_equal(server->path, "/x/Y");
		assert_string_equal(server->token, "secret");
		assert_string_equal(server->timeout, "77m");
		assert_int_equal(server->nreceived, 10);
		assert_memory_equal(server->received, "\0\0\0\0\5hello", 10);
		assert_int_equal(etcd_h2_state(stream), H2_ENDED);
		assert_true(etcd_h2_is_answered(stream));
		assert_int_equal(etcd_h2_status(stream, why), 0);
		assert_message(stream, "abc");
		etcd_h2_take(server->h2, stream, true);
		assert_null(etcd_h2_message(stream, &len));
		etcd_h2_close(server->h2, &stream);
		assert_null(stream);
		assert_null(etcd_h2_fault(server->h2));
		stop(server);
	}
}

/* Errors come as trailers, or as headers alone; their texts are percent-encoded. */
static void
test_errors(void **state)
{
	static const struct
	{
		const char *sent;
		const char *read;
	}			texts[] = {
		{"etcdserver: no leader", "etcdserver: no leader"},
		{"a%20b%C3%A4", "a b\xc3\xa4"},
		{"100%", "100%"}, {"%4", "%4"}, {"%zz", "%zz"}, {"%00x", ""}, {"%0a", ""},
	};

	for (size_t i = 0; i < 2 * lengthof(texts); i++)
	{
		Server	   *server = start((Reply) {.grpc_status = "14",.grpc_message = texts[i / 2].sent,.headers_only = i % 2});
		H2Stream   *stream = open_stream(server, true);
		char		why[ETCD_MESSAGE_SIZE];

		exchange(server);
		assert_int_equal(etcd_h2_state(stream), H2_ENDED);
		assert_int_equal(etcd_h2_status(stream, why), 14);
		assert_string_equal(why, texts[i / 2].read);
		stop(server);
	}
}

static void
test_bad_ends(void **state)
{
	const struct
	{
		Reply		reply;
		H2State		state;
	}			cases[] = {
		{{.body = BODY,.len = BODY_LEN}, H2_BROKEN},	/* no trailers */
		{{.body = BODY,.len = BODY_LEN,.grpc_status = "x"}, H2_BROKEN},
		{{.body = BODY,.len = BODY_LEN,.grpc_status = ""}, H2_BROKEN},
		{{.body = BODY,.len = BODY_LEN,.grpc_status = "12345"}, H2_BROKEN},
		{{.reset = NGHTTP2_REFUSED_STREAM}, H2_REFUSED},
		{{.reset = NGHTTP2_CANCEL}, H2_BROKEN},
		{{.reset = NGHTTP2_INTERNAL_ERROR}, H2_BROKEN},
		{{.reset = NGHTTP2_ENHANCE_YOUR_CALM}, H2_BROKEN},
		{{.content_type = "text/html",.status = "502",.body = "x",.len = 1}, H2_NOT_GRPC},
		{{.content_type = "application/json",.status = "404",.body = "{}",.len = 2}, H2_NOT_GRPC},
		{{.content_type = "application/grpcx",.body = BODY,.len = BODY_LEN,.grpc_status = "0"}, H2_NOT_GRPC},
		{{.content_type = "application/grpc+proto",.body = BODY,.len = BODY_LEN,.grpc_status = "0"}, H2_ENDED},
		{{.body = "\1\0\0\0\3abc",.len = BODY_LEN,.grpc_status = "0"}, H2_NOT_GRPC},	/* compressed */
		{{.body = "\0\377\377\377\377abc",.len = BODY_LEN,.grpc_status = "0"}, H2_TOO_LARGE},
		{{.body = "\0\0\20\0\1abc",.len = BODY_LEN,.grpc_status = "0"}, H2_TOO_LARGE},	/* MAX_SIZE + 1 */
		{{.body = BODY,.len = BODY_LEN,.grpc_status = "0",.large_header = 20000}, H2_BROKEN},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Server	   *server = start(cases[i].reply);
		H2Stream   *stream = open_stream(server, true);

		exchange(server);
		if (etcd_h2_state(stream) != cases[i].state)
			fail_msg("case %zu: state %d", i, etcd_h2_state(stream));
		assert_true(etcd_h2_error(stream)[0] != '\0');
		etcd_h2_close(server->h2, &stream);
		exchange(server);
		/* the connection serves the next one */
		if (etcd_h2_fault(server->h2) == NULL)
		{
			server->reply = (Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0"};
			stream = open_stream(server, true);
			exchange(server);
			assert_int_equal(etcd_h2_state(stream), H2_ENDED);
			assert_message(stream, "abc");
		}
		stop(server);
	}
}

/* An answer that is cut is none: at each byte that the server sends. */
static void
test_cut(void **state)
{
	size_t		whole;
	size_t		nended = 0;
	Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0"});

	(void) open_stream(server, true);
	exchange(server);
	whole = server->delivered;
	stop(server);
	assert_true(whole > 50);
	for (size_t cut = 1; cut < whole; cut++)
	{
		H2Stream   *stream;

		server = start((Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0"});
		server->cut_after = cut;
		stream = open_stream(server, true);
		exchange(server);
		/* frames that follow the end may be cut */
		if (etcd_h2_state(stream) == H2_ENDED)
			assert_message(stream, "abc");
		else
			assert_int_equal(etcd_h2_state(stream), H2_OPEN);
		nended += etcd_h2_state(stream) == H2_ENDED;
		stop(server);
	}
	assert_true(nended < whole / 4);
}

/* Messages go to and fro on a stream that stays open. */
static void
test_stays_open(void **state)
{
	Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.stays_open = true});
	H2Stream   *stream = open_stream(server, false);

	for (int i = 0; i < 5; i++)
	{
		exchange(server);
		assert_int_equal(server->nrequests, i + 1);
		assert_int_equal(etcd_h2_state(stream), H2_OPEN);
		assert_message(stream, "abc");
		etcd_h2_take(server->h2, stream, true);
		assert_true(etcd_h2_send(server->h2, stream, "again", 5, false));
	}
	exchange(server);
	etcd_h2_close(server->h2, &stream);
	exchange(server);
	assert_int_equal(server->nresets, 1);
	stop(server);
}

/* The server ends a stream that this side would go on with, and does not reset it. */
static void
test_ended_by_server(void **state)
{
	const Reply replies[] = {
		{.body = BODY,.len = BODY_LEN,.grpc_status = "14",.grpc_message = "no leader"},
		{.grpc_status = "14",.grpc_message = "no leader",.headers_only = true},
		{.body = BODY,.len = BODY_LEN},
	};

	for (size_t i = 0; i < lengthof(replies); i++)
	{
		Server	   *server = start(replies[i]);
		H2Stream   *stream = open_stream(server, false);
		char		why[ETCD_MESSAGE_SIZE];

		exchange(server);
		if (replies[i].grpc_status == NULL)
			assert_int_equal(etcd_h2_state(stream), H2_BROKEN);
		else
		{
			assert_int_equal(etcd_h2_state(stream), H2_ENDED);
			assert_int_equal(etcd_h2_status(stream, why), 14);
			assert_string_equal(why, "no leader");
		}
		etcd_h2_close(server->h2, &stream);
		exchange(server);
		assert_int_equal(server->nresets, 1);
		assert_null(etcd_h2_fault(server->h2));
		stop(server);
	}
}

/* A stream may be closed at any moment, also before it was sent. */
static void
test_close_early(void **state)
{
	Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.stays_open = true});
	H2Stream   *early = open_stream(server, true);
	H2Stream   *stream = open_stream(server, false);

	etcd_h2_close(server->h2, &early);
	exchange(server);
	assert_int_equal(server->nrequests, 1);
	assert_int_equal(etcd_h2_state(stream), H2_OPEN);
	etcd_h2_close(server->h2, &stream);
	etcd_h2_close(server->h2, &stream);
	exchange(server);
	assert_null(etcd_h2_fault(server->h2));
	stop(server);
}

static void
test_going_away(void **state)
{
	Server	   *server = start((Reply) {.silent = true});
	H2Stream   *served = open_stream(server, true);
	H2Stream   *refused;
	size_t		len;

	exchange(server);
	assert_false(etcd_h2_is_going_away(server->h2));
	/* the second one is on its way when the server says that it goes */
	refused = open_stream(server, true);
	nghttp2_submit_goaway(server->session, 0, 1, NGHTTP2_NO_ERROR, NULL, 0);
	server->reply = (Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0"};
	{
		const uint8_t *data;
		ssize_t		n;

		while ((n = nghttp2_session_mem_send(server->session, &data)) > 0)
			deliver(server, data, n);
	}
	assert_true(etcd_h2_is_going_away(server->h2));
	assert_true(etcd_h2_output(server->h2, &len) != NULL || len == 0);
	assert_int_equal(etcd_h2_state(refused), H2_REFUSED);
	assert_int_equal(etcd_h2_state(served), H2_OPEN);
	answer(server, 1);
	exchange(server);
	assert_int_equal(etcd_h2_state(served), H2_ENDED);
	assert_message(served, "abc");
	/* nothing is left to do, which is no fault of the server */
	assert_null(etcd_h2_fault(server->h2));
	assert_int_equal(etcd_h2_state(refused), H2_REFUSED);
	stop(server);
}

/* An informational answer says nothing; without end, they end the stream. */
static void
test_informational(void **state)
{
	for (int i = 0; i < 2; i++)
	{
		Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0",.ninformational = i == 0 ? 2 : 5000});
		H2Stream   *stream = open_stream(server, true);

		exchange(server);
		assert_int_equal(etcd_h2_state(stream), i == 0 ? H2_ENDED : H2_BROKEN);
		if (i == 0)
			assert_message(stream, "abc");
		assert_null(etcd_h2_fault(server->h2));
		stop(server);
	}
}

/* Frames that nobody waits for are counted, and no others. */
static void
test_idle_frames(void **state)
{
	static const struct
	{
		const char *name;
		const char *bytes;
		size_t		len;
	}			cases[] = {
#define FRAME(name, bytes) {name, bytes, sizeof(bytes) - 1}
		FRAME("WINDOW_UPDATE of the connection", "\0\0\4\10\0\0\0\0\0\0\0\0\1"),
		FRAME("WINDOW_UPDATE of a stream", "\0\0\4\10\0\0\0\0\1\0\0\0\1"),
		FRAME("PRIORITY", "\0\0\5\2\0\0\0\0\1\0\0\0\0\20"),
		FRAME("RST_STREAM", "\0\0\4\3\0\0\0\0\1\0\0\0\10"),
		FRAME("GOAWAY", "\0\0\10\7\0\0\0\0\0\177\377\377\377\0\0\0\0"),
		FRAME("informational HEADERS", "\0\0\5\1\4\0\0\0\1\10\003103"),
		FRAME("DATA of length 0", "\0\0\0\0\0\0\0\0\1"),
		FRAME("DATA with padding alone", "\0\0\3\0\10\0\0\0\1\2\0\0"),
		FRAME("answer to no PING", "\0\0\10\6\1\0\0\0\0\0\0\0\0\0\0\0\0"),
		FRAME("PING", "\0\0\10\6\0\0\0\0\0\0\0\0\0\0\0\0\0"),
		FRAME("SETTINGS", "\0\0\0\4\0\0\0\0\0"),
		FRAME("PRIORITY_UPDATE", "\0\0\4\20\0\0\0\0\0\0\0\0\1"),
		FRAME("frame of an unknown type", "\0\0\1\372\0\0\0\0\0x"),
#undef FRAME
	};

	for (size_t i = 0; i < 2 * lengthof(cases); i++)
	{
		Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.stays_open = true});
		H2Stream   *stream;
		int			before;

		/* informational ones come before the headers of the answer */
		server->reply.silent = strncmp(cases[i / 2].name, "informational", 13) == 0;
		server->one_by_one = i % 2;
		stream = open_stream(server, false);
		exchange(server);
		before = etcd_h2_idle_frames(server->h2);
		for (int j = 0; j < 20; j++)
			deliver(server, (const uint8_t *) cases[i / 2].bytes, cases[i / 2].len);
		if (etcd_h2_idle_frames(server->h2) != before + 20)
			fail_msg("%s: %d idle frames for 20", cases[i / 2].name, etcd_h2_idle_frames(server->h2) - before);
		etcd_h2_clear_idle_frames(server->h2);
		assert_int_equal(etcd_h2_idle_frames(server->h2), 0);
		etcd_h2_close(server->h2, &stream);
		stop(server);
	}
}

/* A message makes up for some idle frames, if somebody waits for it. */
static void
test_useful_frames(void **state)
{
	Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.stays_open = true});
	H2Stream   *stream = open_stream(server, false);
	int			before;

	exchange(server);
	etcd_h2_clear_idle_frames(server->h2);
	etcd_h2_ping(server->h2);
	exchange(server);
	assert_int_equal(etcd_h2_idle_frames(server->h2), 0);
	for (int i = 0; i < 100; i++)
	{
		etcd_h2_take(server->h2, stream, true);
		assert_true(etcd_h2_send(server->h2, stream, "", 0, false));
		server->nreceived = 0;
		exchange(server);
		assert_message(stream, "abc");
		/* at most one for the window */
		assert_in_range(etcd_h2_idle_frames(server->h2), 0, 1);
	}
	for (int i = 0; i < 20; i++)
		deliver(server, (const uint8_t *) "\0\0\0\4\1\0\0\0\0", 9);
	before = etcd_h2_idle_frames(server->h2);
	etcd_h2_take(server->h2, stream, true);
	assert_in_range(etcd_h2_idle_frames(server->h2), 1, before - 1);

	/* what comes late for a stream that was reset is not counted, up to its window */
	etcd_h2_close(server->h2, &stream);
	etcd_h2_clear_idle_frames(server->h2);
	for (int i = 0; i < 100; i++)
		deliver(server, (const uint8_t *) "\0\0\1\0\0\0\0\0\1x", 10);
	assert_int_equal(etcd_h2_idle_frames(server->h2), 0);
	stop(server);
}

/* After a fault nothing is received or sent. */
static void
test_fault(void **state)
{
	Server	   *server = start((Reply) {.silent = true});
	H2Stream   *stream = open_stream(server, true);
	size_t		len;

	exchange(server);
	etcd_h2_fail(server->h2, "enough");
	assert_string_equal(etcd_h2_fault(server->h2), "enough");
	assert_int_equal(etcd_h2_state(stream), H2_BROKEN);
	failed_session = NULL;
	deliver(server, (const uint8_t *) "\0\0\10\6\0\0\0\0\0\0\0\0\0\0\0\0\0", 17);
	assert_false(etcd_h2_has_output(server->h2));
	(void) etcd_h2_output(server->h2, &len);
	assert_int_equal(len, 0);
	stop(server);

	/* answers to PINGs that nobody reads make nghttp2 fail */
	server = start((Reply) {.silent = true});
	stream = open_stream(server, true);
	exchange(server);
	for (int i = 0; i < 3000; i++)
		deliver(server, (const uint8_t *) "\0\0\10\6\0\0\0\0\0\0\0\0\0\0\0\0\0", 17);
	assert_non_null(failed_session);
	assert_non_null(etcd_h2_fault(server->h2));
	(void) etcd_h2_output(server->h2, &len);
	assert_int_equal(len, 0);
	stop(server);
}

static void
test_ping(void **state)
{
	Server	   *server = start((Reply) {.silent = true});

	exchange(server);
	etcd_h2_ping(server->h2);
	assert_true(etcd_h2_awaits_pong(server->h2));
	exchange(server);
	assert_false(etcd_h2_awaits_pong(server->h2));
	stop(server);
}

/* A PING is answered when that is asked for, in one write with what is sent, and behind it. */
static void
test_pong(void **state)
{
	for (int npings = 1; npings <= 2; npings++)
	{
		Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.stays_open = true});
		H2Stream   *stream = open_stream(server, false);
		const char *out;
		size_t		len;

		exchange(server);
		memset(server->frames, 0, sizeof(server->frames));
		for (int i = 0; i < npings; i++)
			assert_int_equal(nghttp2_submit_ping(server->session, 0, (const uint8_t *) PING_TEXT), 0);
		exchange(server);
		assert_true(etcd_h2_has_output(server->h2));
		/* of several PINGs the last one alone waits */
		assert_string_equal(server->frames, npings == 1 ? "" : "p");
		assert_true(etcd_h2_send(server->h2, stream, "hello", 5, false));
		etcd_h2_answer_ping(server->h2);
		out = etcd_h2_output(server->h2, &len);
		memset(server->frames, 0, sizeof(server->frames));
		server->nreceived = 0;
		assert_int_equal(nghttp2_session_mem_recv(server->session, (const uint8_t *) out, len), len);
		etcd_h2_sent(server->h2, len);
		assert_string_equal(server->frames, "dp");
		assert_false(etcd_h2_has_output(server->h2));

		/* each is answered once */
		etcd_h2_answer_ping(server->h2);
		assert_false(etcd_h2_has_output(server->h2));
		stop(server);
	}
}

/* Messages of several windows arrive; those of a paused stream wait. */
static void
test_windows(void **state)
{
	size_t		size = 700 * 1024;
	size_t		nmessages = 20;
	char	   *body = calloc(nmessages, size);
	Server	   *server;
	H2Stream   *stream;
	size_t		seen = 0;
	size_t		len;

	for (size_t i = 0; i < nmessages; i++)
	{
		size_t		n = size - 5;

		memcpy(body + i * size, (char[]) {0, n >> 24, n >> 16, n >> 8, n}, 5);
	}
	server = start((Reply) {.body = body,.len = nmessages * size,.grpc_status = "0"});
	stream = open_stream(server, true);
	exchange(server);
	/* so much comes without a look at it, and no more */
	assert_true(server->sent < 3 * MAX_SIZE);
	etcd_h2_pause(server->h2, stream, true);
	for (; etcd_h2_message(stream, &len) != NULL; seen++)
		etcd_h2_take(server->h2, stream, true);
	exchange(server);
	assert_true(server->sent < 4 * MAX_SIZE);
	etcd_h2_pause(server->h2, stream, false);
	for (exchange(server); etcd_h2_message(stream, &len) != NULL; exchange(server))
	{
		assert_int_equal(len, size - 5);
		etcd_h2_take(server->h2, stream, true);
		seen++;
	}
	assert_int_equal(seen, nmessages);
	assert_int_equal(etcd_h2_state(stream), H2_ENDED);
	etcd_h2_close(server->h2, &stream);

	/* a stream that is closed with much in its window does not take it from the others */
	for (int i = 0; i < 10; i++)
	{
		stream = open_stream(server, true);
		exchange(server);
		etcd_h2_close(server->h2, &stream);
		exchange(server);
	}
	server->reply = (Reply) {.body = body,.len = size,.grpc_status = "0"};
	stream = open_stream(server, true);
	exchange(server);
	assert_int_equal(etcd_h2_state(stream), H2_ENDED);
	stop(server);
	free(body);
}

static void
test_no_http2(void **state)
{
	static const struct
	{
		const char *bytes;
		bool		is_http1;
	}			cases[] = {
		{"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", true},
		{"HTTP/1.0 505 no\r\n\r\n", true},
		{"SSH-2.0-OpenSSH_9.2\r\n", false},
		{"\025\003\003\001\002\002\050 and more of it", false},
		{"+OK ready, and some more words\r\n", false},
	};

	for (size_t i = 0; i < 2 * lengthof(cases); i++)
	{
		Server	   *server = start((Reply) {.silent = true});
		H2Stream   *stream = open_stream(server, true);
		size_t		len;

		server->one_by_one = i % 2;
		deliver(server, (const uint8_t *) cases[i / 2].bytes, strlen(cases[i / 2].bytes));
		while (etcd_h2_output(server->h2, &len), len > 0)
			etcd_h2_sent(server->h2, len);
		assert_non_null(etcd_h2_fault(server->h2));
		assert_int_equal(etcd_h2_is_http1(server->h2), cases[i / 2].is_http1);
		/* refused: its request was not sent */
		assert_true(etcd_h2_state(stream) == H2_BROKEN || etcd_h2_state(stream) == H2_REFUSED);
		etcd_h2_close(server->h2, &stream);
		stop(server);
	}
}

/* Whatever comes, it ends, and nothing is read that is not there.  SESSIONS: how many. */
static void
test_noise(void **state)
{
	const char *sessions = getenv("SESSIONS");
	int			nsessions = sessions != NULL ? atoi(sessions) : 20000;
	int			nfaults = 0;

	for (int i = 0; i < nsessions; i++)
	{
		Server	   *server = start((Reply) {.body = BODY BODY,.len = BODY_LEN,.grpc_status = "0",.grpc_message = "ok",.stays_open = i % 3 == 0,.headers_only = i % 7 == 0});
		H2Stream   *streams[3];
		size_t		len;
		char		why[ETCD_MESSAGE_SIZE];

		server->noise = 5 + i % 300;
		server->one_by_one = i % 5 == 0;
		for (int j = 0; j < 3; j++)
			streams[j] = open_stream(server, j != 1);
		exchange(server);
		nfaults += etcd_h2_fault(server->h2) != NULL;
		for (int j = 0; j < 3; j++)
		{
			if (etcd_h2_message(streams[j], &len) != NULL)
				etcd_h2_take(server->h2, streams[j], true);
			(void) etcd_h2_state(streams[j]);
			(void) etcd_h2_status(streams[j], why);
			etcd_h2_close(server->h2, &streams[j]);
		}
		stop(server);
	}
	assert_in_range(nfaults, nsessions / 4, nsessions - 1);
}

/* A frame that cannot be kept is lost: nothing can be sent any more. */
static void
test_no_memory(void **state)
{
	Server	   *server = start((Reply) {.body = BODY,.len = BODY_LEN,.grpc_status = "0"});
	H2Stream   *stream = open_stream(server, true);
	size_t		len;

	is_memory_out = true;
	(void) etcd_h2_output(server->h2, &len);
	is_memory_out = false;
	assert_int_equal(len, 0);
	assert_non_null(etcd_h2_fault(server->h2));
	assert_string_equal(etcd_h2_fault(server->h2), "Out of memory");
	assert_int_equal(etcd_h2_state(stream), H2_BROKEN);
	etcd_h2_close(server->h2, &stream);
	stop(server);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unary),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_bad_ends),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_stays_open),
		cmocka_unit_test(test_ended_by_server),
		cmocka_unit_test(test_close_early),
		cmocka_unit_test(test_going_away),
		cmocka_unit_test(test_informational),
		cmocka_unit_test(test_idle_frames),
		cmocka_unit_test(test_useful_frames),
		cmocka_unit_test(test_fault),
		cmocka_unit_test(test_ping),
		cmocka_unit_test(test_pong),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_no_http2),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
