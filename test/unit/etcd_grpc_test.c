/*-------------------------------------------------------------------------
 *
 * etcd_grpc_test.c
 *	  The rules of etcd/call.c and etcd/grpc.c, and the health of endpoints and
 *	  users that the client knows, against servers that do what a real etcd does
 *	  seldom or never.
 *
 * A server is a session of nghttp2 for each connection, or speaks HTTP/1.  It
 * runs in the thread of the client, which takes turns with it, so a test says
 * in which order things happen.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>

#include "base/clock.h"
#include "etcd/client.h"
#include "etcd/http.h"
#include "unit.h"

#define BYTES(text) {(text), sizeof(text) - 1}

#define REQUEST_TIMEOUT_MS	1000
#define PATIENCE_MS			20000

#define MAX_REQUESTS		128
#define MAX_CONNECTIONS		32
#define MAX_STREAMS			128
#define MAX_ENDPOINTS		2

#define STATUS_PATH			"/etcdserverpb.Maintenance/Status"
#define GRANT_PATH			"/etcdserverpb.Lease/LeaseGrant"
#define KEEPALIVE_PATH		"/etcdserverpb.Lease/LeaseKeepAlive"
#define WATCH_PATH			"/etcdserverpb.Watch/Watch"
#define MEMBERS_PATH		"/etcdserverpb.Cluster/MemberList"
#define TOKEN_PATH			"/etcdserverpb.Auth/Authenticate"

/* ---- the clock ------------------------------------------------------- */

/*
 * The clocks stand still between the turns, so a busy machine that stops the process for a
 * while changes nothing.
 */
static int64_t turned_ms;
static int64_t advanced_s;

extern int	__real_clock_gettime(clockid_t clock, struct timespec *now);
extern int	__wrap_clock_gettime(clockid_t clock, struct timespec *now);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	static struct timespec began[CLOCK_MONOTONIC_COARSE];
	int64_t		ns;

	assert_true(clock < (clockid_t) lengthof(began));
	if (began[clock].tv_sec == 0)
		__real_clock_gettime(clock, &began[clock]);
	ns = began[clock].tv_nsec + turned_ms * NSEC_PER_MSEC;
	now->tv_sec = began[clock].tv_sec + advanced_s + ns / NSEC_PER_SEC;
	now->tv_nsec = ns % NSEC_PER_SEC;
	return 0;
}

extern void __real_etcd_http_wait(Http *http, long timeout_ms);
extern void __wrap_etcd_http_wait(Http *http, long timeout_ms);

void
__wrap_etcd_http_wait(Http *http, long timeout_ms)
{
	__real_etcd_http_wait(http, timeout_ms > 0);
	turned_ms++;
}

/* ---- TLS ------------------------------------------------------------- */

static long tls_mode;			/* of the last context */

extern int	__real_SSL_CTX_set_alpn_protos(SSL_CTX *context, const unsigned char *protocols, unsigned len);
extern int	__wrap_SSL_CTX_set_alpn_protos(SSL_CTX *context, const unsigned char *protocols, unsigned len);

int
__wrap_SSL_CTX_set_alpn_protos(SSL_CTX *context, const unsigned char *protocols, unsigned len)
{
	tls_mode = SSL_CTX_get_mode(context);
	return __real_SSL_CTX_set_alpn_protos(context, protocols, len);
}

/* ---- protobuf -------------------------------------------------------- */

typedef struct Message
{
	char		data[256];
	size_t		len;
} Message;

static void
put_varint(Message *message, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		message->data[message->len++] = (char) (value | 0x80);
	message->data[message->len++] = (char) value;
}

static void
put_number(Message *message, int field, uint64_t value)
{
	put_varint(message, field << 3);
	put_varint(message, value);
}

static void
put_bytes(Message *message, int field, const char *data, size_t len)
{
	put_varint(message, field << 3 | 2);
	put_varint(message, len);
	memcpy(message->data + message->len, data, len);
	message->len += len;
}

/* An answer with a header, as all answers have. */
static Message
answer_of(void)
{
	Message		header = {.len = 0};
	Message		message = {.len = 0};

	put_number(&header, 1, 4711);
	put_number(&header, 3, 5);
	put_number(&header, 4, 2);
	put_bytes(&message, 1, header.data, header.len);
	return message;
}

static Message
lease_answer(int64_t lease)
{
	Message		message = answer_of();

	put_number(&message, 2, lease);
	put_number(&message, 3, 9);
	return message;
}

static Message
status_answer(bool is_cut_off)
{
	Message		message = answer_of();

	put_bytes(&message, 2, "3.5.13", 6);
	for (int i = 0; i < 2 && is_cut_off; i++)
		put_bytes(&message, 8, i == 0 ? "no leader" : "memberID:1 alarm:NOSPACE ", i == 0 ? 9 : 25);
	return message;
}

static Message
token_answer(const char *token)
{
	Message		message = answer_of();

	put_bytes(&message, 2, token, strlen(token));
	return message;
}

static Message
frame_of(int64_t number, bool created, bool canceled)
{
	Message		message = answer_of();

	put_number(&message, 2, number);
	put_number(&message, 3, created);
	put_number(&message, 4, canceled);
	return message;
}

/* The first field of that number in a message: a number, or where its bytes begin. */
static uint64_t
find_field(const char *data, size_t len, int field, const char **bytes, size_t *nbytes)
{
	for (size_t i = 0; i < len;)
	{
		uint64_t	tag = (unsigned char) data[i++];
		uint64_t	value = 0;

		for (int shift = 0;; shift += 7)
		{
			value |= (uint64_t) (data[i] & 0x7F) << shift;
			if ((data[i++] & 0x80) == 0)
				break;
		}
		if (bytes != NULL)
		{
			*bytes = data + i;
			*nbytes = value;
		}
		if (tag >> 3 == (uint64_t) field)
			return value;
		if ((tag & 7) == 2)
			i += value;
	}
	return 0;
}

/* ---- servers --------------------------------------------------------- */

typedef struct Server Server;

typedef struct Connection
{
	Server	   *server;
	int			number;
	int			fd;				/* -1: closed */
	nghttp2_session *session;	/* NULL: nothing has come */
	bool		awaits_pong;
} Connection;

/* A message of a client, in the order in which they came. */
typedef struct Request
{
	Connection *connection;
	int32_t		stream;
	char		path[64];
	char		token[16];
	char		body[512];
	size_t		len;
	bool		is_answered;
} Request;

typedef enum Speech
{
	SPEAKS_GRPC,
	SPEAKS_HTTP1,				/* as a proxy that knows no more */
	SPEAKS_NONSENSE,
	SPEAKS_WEB,					/* HTTP/2, but not gRPC */
	SPEAKS_503,
	IS_SILENT,
	RESETS						/* after the preface */
} Speech;

/* What a stream has got, and what is still to be sent on it. */
typedef struct Stream
{
	char		path[64];
	char		authority[64];
	char		token[16];
	Message		pending[8];
	int			npending;
	bool		has_begun;		/* the headers of the answer were sent */
	bool		ends;
	const char *status;			/* in the trailers */
} Stream;

struct Server
{
	char		url[64];
	int			fd;
	Speech		speech;
	bool		keeps_answers;	/* the answers to all but the next two are up to the test */
	bool		keeps_members;
	int			nrefused;		/* so many grants are refused before anything is looked at */
	uint32_t	max_streams;	/* at a time; 0: any number */
	const char *flood;			/* bytes that are sent for a request, without end; NULL: none */
	size_t		flood_len;
	const char *token;			/* the next one to give; NULL: there are no users */
	bool		is_cut_off;		/* from the other members */
	bool		refuses_connections;
	int			nrefused_connections;
	const char *members_status; /* of the refusal of members; NULL: they are told */
	bool		rejects_password;
	bool		pings;			/* for each message that comes while no answer is missing */
	int			npings;
	Connection	connections[MAX_CONNECTIONS];
	int			nconnections;
	Request		requests[MAX_REQUESTS];
	int			nrequests;
	Stream		streams[MAX_STREAMS];
	int			nstreams;
	int			nresets;
};

static nghttp2_nv
header(const char *name, const char *value)
{
	return (nghttp2_nv) {(uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), 0};
}

static ssize_t
read_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
		  nghttp2_data_source *source, void *arg)
{
	Stream	   *stream = source->ptr;
	size_t		n = 0;

	(void) arg;
	while (stream->npending > 0)
	{
		const Message *message = &stream->pending[0];

		if (n + message->len > len)
			break;
		memcpy(buf + n, message->data, message->len);
		n += message->len;
		memmove(stream->pending, stream->pending + 1, --stream->npending * sizeof(Message));
	}
	if (stream->npending == 0 && stream->ends)
	{
		nghttp2_nv	trailers[] = {header("grpc-status", stream->status), header("grpc-message", "for a reason")};

		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		nghttp2_submit_trailer(session, id, trailers, lengthof(trailers));
	}
	else if (n == 0)
		return NGHTTP2_ERR_DEFERRED;
	return (ssize_t) n;
}

/* Sends a message on the stream of a request; status: its end, too. */
static void
send_message(Request *request, Message message, const char *status)
{
	nghttp2_session *session = request->connection->session;
	Stream	   *stream = session != NULL ? nghttp2_session_get_stream_user_data(session, request->stream) : NULL;
	nghttp2_nv	headers[] = {header(":status", "200"), header("content-type", "application/grpc")};
	nghttp2_data_provider provider = {.source.ptr = stream,.read_callback = read_body};
	char		prefix[5] = {0, 0, 0, (char) (message.len >> 8), (char) message.len};

	request->is_answered = true;
	if (stream == NULL)
		return;					/* it was reset, or the connection closed */
	if (message.len > 0)
	{
		memmove(message.data + 5, message.data, message.len);
		memcpy(message.data, prefix, 5);
		message.len += 5;
		stream->pending[stream->npending++] = message;
	}
	stream->ends |= status != NULL;
	stream->status = status;
	if (stream->has_begun)
		nghttp2_session_resume_data(session, request->stream);
	else
		assert_int_equal(nghttp2_submit_response(session, request->stream, headers, 2, &provider), 0);
	stream->has_begun = true;
}

/* A page for people. */
static void
show_page(const Request *request)
{
	nghttp2_nv	headers[] = {header(":status", "404"), header("content-type", "text/html")};

	(void) nghttp2_submit_response(request->connection->session, request->stream, headers, lengthof(headers), NULL);
}

/* What a real one would answer. */
static void
answer(Server *server, Request *request)
{
	const char *path = request->path;

	if (server->speech == SPEAKS_WEB)
	{
		show_page(request);
		return;
	}
	if (strcmp(path, GRANT_PATH) == 0 && server->nrefused > 0)
	{
		server->nrefused--;
		nghttp2_submit_rst_stream(request->connection->session, 0, request->stream, NGHTTP2_REFUSED_STREAM);
		return;
	}
	if (strcmp(path, MEMBERS_PATH) == 0 ? server->keeps_members :
		strcmp(path, TOKEN_PATH) != 0 && server->keeps_answers)
		return;
	if (strcmp(path, MEMBERS_PATH) == 0 && server->members_status != NULL)
		send_message(request, (Message) {.len = 0}, server->members_status);
	else if (strcmp(path, STATUS_PATH) == 0)
		send_message(request, status_answer(server->is_cut_off), "0");
	else if (server->is_cut_off && strcmp(path, MEMBERS_PATH) != 0)
		send_message(request, (Message) {.len = 0}, "14");
	else if (strcmp(path, TOKEN_PATH) == 0 && server->rejects_password)
		send_message(request, (Message) {.len = 0}, "3");
	else if (strcmp(path, TOKEN_PATH) == 0 && server->token != NULL)
		send_message(request, token_answer(server->token), "0");
	else if (strcmp(path, KEEPALIVE_PATH) == 0)
		send_message(request, lease_answer(find_field(request->body, request->len, 1, NULL, NULL)), NULL);
	else if (strcmp(path, GRANT_PATH) == 0)
		send_message(request, lease_answer(find_field(request->body, request->len, 2, NULL, NULL)), "0");
	else if (strcmp(path, WATCH_PATH) != 0)
		send_message(request, answer_of(), "0");
}

static int
on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
		  const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
	Server	   *server = ((Connection *) arg)->server;
	Stream	   *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void) name_len;
	(void) flags;
	if (stream == NULL)
	{
		assert_true(server->nstreams < MAX_STREAMS);
		stream = &server->streams[server->nstreams++];
		nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
	}
	if (strcmp((const char *) name, ":path") == 0)
		snprintf(stream->path, sizeof(stream->path), "%.*s", (int) len, value);
	if (strcmp((const char *) name, ":authority") == 0)
		snprintf(stream->authority, sizeof(stream->authority), "%.*s", (int) len, value);
	if (strcmp((const char *) name, "token") == 0)
		snprintf(stream->token, sizeof(stream->token), "%.*s", (int) len, value);
	return 0;
}

/* Each message of the client is in a DATA frame of its own. */
static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
	Connection *connection = arg;
	Server	   *server = connection->server;
	const Stream *stream = nghttp2_session_get_stream_user_data(session, id);

	(void) flags;
	while (len >= 5)
	{
		size_t		n = (size_t) data[3] << 8 | data[4];
		Request    *request = &server->requests[server->nrequests++];

		assert_true(server->nrequests < MAX_REQUESTS && n <= len - 5 && n <= sizeof(request->body));
		request->connection = connection;
		request->stream = id;
		strcpy(request->path, stream->path);
		strcpy(request->token, stream->token);
		memcpy(request->body, data + 5, n);
		request->len = n;
		data += 5 + n;
		len -= 5 + n;
		if (server->pings && !connection->awaits_pong)
		{
			assert_int_equal(nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, NULL), 0);
			connection->awaits_pong = true;
			server->npings++;
		}
		answer(server, request);
	}
	assert_int_equal(len, 0);
	return 0;
}

static int
on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	Connection *connection = arg;

	(void) session;
	if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
		connection->awaits_pong = false;
	return 0;
}

static int
on_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
	Connection *connection = arg;

	(void) session;
	(void) id;
	connection->server->nresets += error != 0;
	return 0;
}

static void
begin_session(Connection *connection)
{
	nghttp2_session_callbacks *callbacks;

	nghttp2_session_callbacks_new(&callbacks);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	nghttp2_session_server_new(&connection->session, callbacks, connection);
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_submit_settings(connection->session, 0, &(nghttp2_settings_entry) {
		NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, connection->server->max_streams
	}, connection->server->max_streams > 0);
}

static void
close_connection(Connection *connection)
{
	if (connection->session != NULL)
		nghttp2_session_del(connection->session);
	connection->session = NULL;
	if (connection->fd >= 0)
		close(connection->fd);
	connection->fd = -1;
}

/* An answer in HTTP/1 to bytes that have come in full. */
static const char *
http1_answer(Server *server, char *data, size_t len)
{
	Request    *request;

	if (len >= 3 && memcmp(data, "PRI", 3) == 0)
		return server->speech == SPEAKS_503 ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n" :
			server->speech == SPEAKS_NONSENSE ? "+OK ready, and some more words\r\n" :
			"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
	request = &server->requests[server->nrequests++];
	assert_int_equal(sscanf(data, "POST %63s", request->path), 1);
	return server->speech != SPEAKS_HTTP1 ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" :
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
		"{\"header\":{\"cluster_id\":\"4711\",\"revision\":\"5\",\"raft_term\":\"2\"},\"version\":\"3.4.0\",\"ID\":\"5\",\"TTL\":\"9\",\"grantedTTL\":\"9\"}";
}

static void
take_bytes(Connection *connection, char *data, size_t len)
{
	Server	   *server = connection->server;
	const char *text;

	if (server->speech == IS_SILENT)
		return;
	if (server->speech == RESETS)
	{
		struct linger reset = {.l_onoff = 1};

		setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close_connection(connection);
		return;
	}
	if (server->speech != SPEAKS_GRPC && server->speech != SPEAKS_WEB)
	{
		data[len] = '\0';
		text = http1_answer(server, data, len);
		(void) send(connection->fd, text, strlen(text), MSG_NOSIGNAL);
		close_connection(connection);
		return;
	}
	if (len >= 4 && memcmp(data, "POST", 4) == 0)
	{
		close_connection(connection);
		return;
	}
	if (connection->session == NULL)
		begin_session(connection);
	if (nghttp2_session_mem_recv(connection->session, (uint8_t *) data, len) < 0)
		close_connection(connection);
}

static void
run_connection(Connection *connection)
{
	static char buffer[65536];
	const uint8_t *out;
	ssize_t		n;

	while (connection->fd >= 0 && (n = recv(connection->fd, buffer, sizeof(buffer) - 1, 0)) >= 0)
	{
		if (n == 0)
			close_connection(connection);
		else
			take_bytes(connection, buffer, n);
	}
	while (connection->session != NULL && (n = nghttp2_session_mem_send(connection->session, &out)) > 0)
		(void) send(connection->fd, out, n, MSG_NOSIGNAL);
	/* as much as the socket takes, and whole frames */
	while (connection->session != NULL && connection->server->flood != NULL &&
		   send(connection->fd, connection->server->flood, connection->server->flood_len, MSG_NOSIGNAL) == (ssize_t) connection->server->flood_len)
		;
}

static void
run_server(Server *server)
{
	int			fd;

	while ((fd = accept4(server->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0)
	{
		if (server->refuses_connections)
		{
			server->nrefused_connections++;
			close(fd);
			continue;
		}
		assert_true(server->nconnections < MAX_CONNECTIONS);
		/* as in Go, what is sent in a turn arrives in that turn */
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int) {1}, sizeof(int));
		server->connections[server->nconnections] = (Connection) {.server = server,.number = server->nconnections,.fd = fd};
		server->nconnections++;
	}
	for (int i = 0; i < server->nconnections; i++)
		run_connection(&server->connections[i]);
}

/* A socket at that port; 0: at any. */
static int
bind_to(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	address.sin_port = htons(port);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int) {1}, sizeof(int)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
	return fd;
}

static Server *
start_server(Speech speech)
{
	Server	   *server = calloc(1, sizeof(Server));
	struct sockaddr_in address;
	socklen_t	len = sizeof(address);

	server->speech = speech;
	server->fd = bind_to(0);
	assert_int_equal(listen(server->fd, MAX_CONNECTIONS), 0);
	assert_int_equal(getsockname(server->fd, (struct sockaddr *) &address, &len), 0);
	snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
	return server;
}

/* Nobody listens at its port any more, but it stays its own. */
static void
kill_server(Server *server)
{
	for (int i = 0; i < server->nconnections; i++)
		close_connection(&server->connections[i]);
	close(server->fd);
	server->fd = bind_to(atoi(strrchr(server->url, ':') + 1));
}

static void
revive_server(Server *server)
{
	assert_int_equal(listen(server->fd, MAX_CONNECTIONS), 0);
}

static void
stop_server(Server *server)
{
	for (int i = 0; i < server->nconnections; i++)
		close_connection(&server->connections[i]);
	close(server->fd);
	free(server);
}

/* ---- the client ------------------------------------------------------ */

typedef struct Record
{
	uint64_t	id;
	EtcdOutcome outcome;
	int64_t		lease;
	char		message[ETCD_MESSAGE_SIZE];
} Record;

typedef struct Caller
{
	EtcdClient *client;
	Server	   *servers[MAX_ENDPOINTS];
	Record		answers[MAX_REQUESTS];
	int			nanswers;
	int64_t		frames[MAX_REQUESTS];	/* the watches that they are of */
	int			nframes;
	int			nends;
	char		why[ETCD_MESSAGE_SIZE]; /* of the last end */
	jmp_buf    *leaves;			/* callbacks end there, as by an ERROR; NULL: they return */
	bool		asks_on;		/* the next callback makes another request */
	bool		runs_until;			/* callbacks run the client, as the exit of a process does */
	EtcdDialect dialect;
	const char *server_name;
	uint64_t	cluster_id;
	const char *username;
	const char *password_file;
	long		probe_interval_ms;
} Caller;

static bool
never(void *ctx)
{
	(void) ctx;
	return false;
}

static void send_lease(Caller *caller, EtcdRequestKind kind, int64_t lease);

static void
answered(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	Caller	   *caller = ctx;
	Record	   *record = &caller->answers[caller->nanswers++];

	(void) timing;
	assert_true(caller->nanswers < MAX_REQUESTS);
	*record = (Record) {.id = id,.outcome = answer->outcome,.lease = answer->lease};
	strcpy(record->message, answer->message);
	if (caller->asks_on)
	{
		caller->asks_on = false;
		send_lease(caller, ETCD_GRANT, 6);
	}
	if (caller->runs_until)
		etcd_client_run_until(caller->client, 100, never, caller);
	if (caller->leaves != NULL)
		longjmp(*caller->leaves, 1);
}

static void
watched(void *ctx, int stream, const EtcdWatchFrame *frame)
{
	Caller	   *caller = ctx;

	(void) stream;
	assert_true(caller->nframes < MAX_REQUESTS);
	caller->frames[caller->nframes++] = frame->watch_id;
}

static void
watch_ended(void *ctx, int stream, EtcdOutcome outcome, const char *why)
{
	Caller	   *caller = ctx;

	(void) stream;
	(void) outcome;
	strcpy(caller->why, why);
	caller->nends++;
}

static void
noticed(void *ctx, const char *why)
{
	(void) ctx;
	(void) why;
}

static void
endpoints_changed(void *ctx)
{
	(void) ctx;
}

static void
configure(Caller *caller)
{
	const char *endpoints[MAX_ENDPOINTS];
	EtcdClientSettings settings = {
		.endpoints = endpoints,
		.request_timeout_ms = REQUEST_TIMEOUT_MS,
		.connect_timeout_ms = REQUEST_TIMEOUT_MS,
		.dialect = caller->dialect,
		.cluster_id = caller->cluster_id,
		.username = caller->username,
		.server_name = caller->server_name,
		.password_file = caller->password_file,
		.probe_interval_ms = caller->probe_interval_ms
	};

	while (settings.nendpoints < MAX_ENDPOINTS && caller->servers[settings.nendpoints] != NULL)
	{
		endpoints[settings.nendpoints] = caller->servers[settings.nendpoints]->url;
		settings.nendpoints++;
	}
	etcd_client_configure(caller->client, &settings);
}

static Caller *
start_caller(Server *first, Server *second)
{
	Caller	   *caller = calloc(1, sizeof(Caller));
	EtcdClientCallbacks callbacks = {watched, watch_ended, noticed, endpoints_changed, caller};

	caller->client = etcd_client_create(&callbacks);
	assert_non_null(caller->client);
	caller->servers[0] = first;
	caller->servers[1] = second;
	caller->dialect = ETCD_GRPC;
	configure(caller);
	return caller;
}

static void
stop_caller(Caller *caller)
{
	for (int i = 0; i < MAX_ENDPOINTS && caller->servers[i] != NULL; i++)
		stop_server(caller->servers[i]);
	etcd_client_free(caller->client);
	free(caller);
}

/* A turn of the client, and of the servers. */
static void
turn(Caller *caller)
{
	struct pollfd pollfds[64];
	int			nsockets;
	uint64_t	changes;
	const EtcdSocket *sockets = etcd_client_sockets(caller->client, &nsockets, &changes);

	assert_true(nsockets <= (int) lengthof(pollfds));
	for (int i = 0; i < nsockets; i++)
	{
		pollfds[i].fd = sockets[i].fd;
		pollfds[i].events = (sockets[i].events & ETCD_SOCKET_READABLE ? POLLIN : 0) |
			(sockets[i].events & ETCD_SOCKET_WRITEABLE ? POLLOUT : 0);
		pollfds[i].revents = 0;
	}
	poll(pollfds, nsockets, 1);
	turned_ms++;
	for (int i = 0; i < nsockets; i++)
	{
		short		got = pollfds[i].revents;

		if (got != 0)
			etcd_client_socket_ready(caller->client, pollfds[i].fd,
									 (got & POLLIN ? ETCD_SOCKET_READABLE : 0) |
									 (got & POLLOUT ? ETCD_SOCKET_WRITEABLE : 0) |
									 (got & ~(POLLIN | POLLOUT) ? ETCD_SOCKET_ERROR : 0));
	}
	etcd_client_process(caller->client);
	for (int i = 0; i < MAX_ENDPOINTS && caller->servers[i] != NULL; i++)
		run_server(caller->servers[i]);
}

static int64_t
now_ms(void)
{
	return advanced_s * 1000 + turned_ms;
}

#define WAIT_UNTIL(caller, condition) \
	do { \
		int64_t		end_ms_ = now_ms() + PATIENCE_MS; \
		while (!(condition)) \
		{ \
			if (now_ms() > end_ms_) \
				fail_msg("%s did not happen", #condition); \
			turn(caller); \
		} \
	} while (0)

static void
run_for(Caller *caller, int64_t ms)
{
	int64_t		end_ms = now_ms() + ms;

	while (now_ms() < end_ms)
		turn(caller);
}

static void
send_lease(Caller *caller, EtcdRequestKind kind, int64_t lease)
{
	EtcdRequest request = {.kind = kind,.lease = lease,.ttl_s = 9};

	etcd_client_send(caller->client, answered, lease, &request);
}

/* Sends it and waits. */
static const Record *
ask(Caller *caller, EtcdRequestKind kind, int64_t lease)
{
	int			before = caller->nanswers;

	send_lease(caller, kind, lease);
	WAIT_UNTIL(caller, caller->nanswers > before);
	return &caller->answers[before];
}

static void
watch(Caller *caller, int64_t watch_id)
{
	EtcdWatch	watches[] = {{.watch_id = watch_id,.key = BYTES("a")}, {.watch_id = watch_id + 1,.key = BYTES("b")}};

	etcd_client_watch(caller->client, 0, watches, 2);
}

/* How many requests with that path a server has got. */
static int
count(const Server *server, const char *path)
{
	int			n = 0;

	for (int i = 0; i < server->nrequests; i++)
		n += strcmp(server->requests[i].path, path) == 0;
	return n;
}

/* The i'th request with that path. */
static Request *
find(Server *server, const char *path, int n)
{
	for (int i = 0; i < server->nrequests; i++)
	{
		if (strcmp(server->requests[i].path, path) == 0 && n-- == 0)
			return &server->requests[i];
	}
	fail_msg("there is no such request for %s", path);
	return NULL;
}

/* The number that a request to create or to cancel a watch names; 0: it is the other one. */
static int64_t
created_number(const Request *request)
{
	const char *bytes;
	size_t		len;

	return find_field(request->body, request->len, 1, &bytes, &len) > 0 ? (int64_t) find_field(bytes, len, 7, NULL, NULL) : 0;
}

static int64_t
canceled_number(const Request *request)
{
	const char *bytes;
	size_t		len;

	return find_field(request->body, request->len, 2, &bytes, &len) > 0 ? (int64_t) find_field(bytes, len, 1, NULL, NULL) : 0;
}

/* ---- connections ----------------------------------------------------- */

/* Requests share a connection, and a watch stream has one of its own, so that a flood of changes holds up nothing. */
static void
test_connections(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	send_lease(caller, ETCD_GRANT, 7);
	send_lease(caller, ETCD_GRANT, 8);
	watch(caller, 11);
	WAIT_UNTIL(caller, caller->nanswers == 2 && count(server, WATCH_PATH) == 2);
	assert_int_equal(caller->answers[0].outcome, ETCD_ANSWERED);
	assert_ptr_equal(find(server, GRANT_PATH, 0)->connection, find(server, GRANT_PATH, 1)->connection);
	assert_ptr_not_equal(find(server, WATCH_PATH, 0)->connection, find(server, GRANT_PATH, 0)->connection);
	stop_caller(caller);
}

/* Another endpoint comes into use: all are asked for their cluster again, but not more often than every 3 s. */
static void
test_look_after_change(void **state)
{
	Server	   *first = start_server(SPEAKS_GRPC);
	Server	   *second = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(first, second);
	int			asked;

	(void) state;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, count(second, MEMBERS_PATH) > 0);
	run_for(caller, 200);
	asked = count(second, MEMBERS_PATH);
	etcd_client_change_endpoint(caller->client, 0);
	run_for(caller, 200);
	assert_int_equal(count(second, MEMBERS_PATH), asked);
	advanced_s += 4;
	WAIT_UNTIL(caller, count(second, MEMBERS_PATH) == asked + 1);
	run_for(caller, 200);
	assert_int_equal(count(second, MEMBERS_PATH), asked + 1);
	stop_caller(caller);
}

/* Who is asked: the host and the port of the URL, or the name of the server in the settings. */
static void
test_authority(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	const char *port = strrchr(server->url, ':');
	char		authority[64];

	(void) state;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	snprintf(authority, sizeof(authority), "127.0.0.1%s", port);
	assert_string_equal(server->streams[0].authority, authority);
	stop_caller(caller);

	server = start_server(SPEAKS_GRPC);
	caller = start_caller(server, NULL);
	port = strrchr(server->url, ':');
	caller->server_name = "example.com";
	configure(caller);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	snprintf(authority, sizeof(authority), "example.com%s", port);
	assert_string_equal(server->streams[0].authority, authority);
	stop_caller(caller);
}

/*
 * A server that does not speak gRPC is an error, and nothing is sent to it in JSON.  The
 * error names the setting if a proxy of HTTP/1 may be the reason.
 */
static void
test_no_grpc(void **state)
{
	static const struct
	{
		Speech		speech;
		EtcdOutcome outcome;
		bool		names_setting;
	}			cases[] = {
		{SPEAKS_HTTP1, ETCD_GARBAGE, true},
		{SPEAKS_503, ETCD_GARBAGE, true},
		{SPEAKS_WEB, ETCD_GARBAGE, true},
		{SPEAKS_NONSENSE, ETCD_NO_ANSWER, false},
		{IS_SILENT, ETCD_NO_ANSWER, false},
		{RESETS, ETCD_NO_ANSWER, false}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Server	   *server = start_server(cases[i].speech);
		Caller	   *caller = start_caller(server, NULL);
		const Record *record = ask(caller, ETCD_GRANT, 5);

		if (record->outcome != cases[i].outcome || count(server, "/v3/lease/grant") > 0 ||
			(strstr(record->message, "etcd_leader.protocol") != NULL) != cases[i].names_setting)
			fail_msg("case %zu: outcome %d, %s", i, record->outcome, record->message);
		stop_caller(caller);
	}
}

/* A watch tells the same. */
static void
test_watch_no_grpc(void **state)
{
	Server	   *server = start_server(SPEAKS_HTTP1);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	watch(caller, 11);
	WAIT_UNTIL(caller, caller->nends > 0);
	assert_non_null(strstr(caller->why, "etcd_leader.protocol"));
	stop_caller(caller);
}

/* The dialect is that of the settings, from a reload on. */
static void
test_dialects(void **state)
{
	Server	   *server = start_server(SPEAKS_HTTP1);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	assert_int_equal(etcd_client_dialect(caller->client), ETCD_GRPC);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_GARBAGE);
	caller->dialect = ETCD_JSON;
	configure(caller);
	assert_int_equal(etcd_client_dialect(caller->client), ETCD_JSON);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	assert_int_equal(count(server, "/v3/lease/grant"), 1);

	server->speech = SPEAKS_GRPC;
	caller->dialect = ETCD_GRPC;
	configure(caller);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	assert_int_equal(count(server, GRANT_PATH), 1);
	assert_int_equal(count(server, "/v3/lease/grant"), 1);
	stop_caller(caller);
}

/* A change whose answer is missing is not repeated, at no endpoint. */
static void
test_no_repetition(void **state)
{
	Server	   *first = start_server(SPEAKS_GRPC);
	Server	   *second = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(first, second);

	(void) state;
	first->keeps_answers = true;
	send_lease(caller, ETCD_GRANT, 5);
	WAIT_UNTIL(caller, count(first, GRANT_PATH) == 1);
	close_connection(find(first, GRANT_PATH, 0)->connection);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_int_equal(caller->answers[0].outcome, ETCD_NO_ANSWER);
	run_for(caller, 2 * REQUEST_TIMEOUT_MS);
	assert_int_equal(count(first, GRANT_PATH), 1);
	assert_int_equal(count(second, GRANT_PATH), 0);
	stop_caller(caller);
}

/* ---- keepalives ------------------------------------------------------ */

/*
 * Until the members are known: they are asked for on a new connection, which
 * serves from then on.
 */
static void
settle(Caller *caller)
{
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->lease, 5);
	WAIT_UNTIL(caller, count(caller->servers[0], MEMBERS_PATH) == 1);
	run_for(caller, 50);
}

static bool
share_stream(const Request *one, const Request *other)
{
	return one->connection == other->connection && one->stream == other->stream;
}

/* One at a time is on a stream, which serves the next one if all was well. */
static void
test_keepalives(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	settle(caller);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->lease, 5);
	assert_true(share_stream(find(server, KEEPALIVE_PATH, 1), find(server, KEEPALIVE_PATH, 2)));
	assert_int_equal(server->nresets, 0);

	/* two at once */
	server->keeps_answers = true;
	send_lease(caller, ETCD_KEEPALIVE, 6);
	send_lease(caller, ETCD_KEEPALIVE, 7);
	WAIT_UNTIL(caller, count(server, KEEPALIVE_PATH) == 5);
	assert_false(share_stream(find(server, KEEPALIVE_PATH, 3), find(server, KEEPALIVE_PATH, 4)));
	send_message(find(server, KEEPALIVE_PATH, 4), lease_answer(7), NULL);
	WAIT_UNTIL(caller, caller->nanswers == 4);
	assert_int_equal(caller->answers[3].id, 7);
	stop_caller(caller);
}

/* The stream of one that was given up is reset: its late answer counts for no other one. */
static void
test_late_keepalive(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	Request    *given_up;

	(void) state;
	settle(caller);
	server->keeps_answers = true;
	send_lease(caller, ETCD_KEEPALIVE, 5);
	/* the connection is not silent, so it stays */
	for (int i = 0; i < 6; i++)
	{
		send_lease(caller, ETCD_TIME_TO_LIVE, 100 + i);
		run_for(caller, REQUEST_TIMEOUT_MS / 10);
		send_message(find(server, "/etcdserverpb.Lease/LeaseTimeToLive", i), answer_of(), "0");
	}
	WAIT_UNTIL(caller, caller->nanswers == 8);
	assert_int_equal(caller->answers[7].outcome, ETCD_NO_ANSWER);
	given_up = find(server, KEEPALIVE_PATH, 1);

	send_lease(caller, ETCD_KEEPALIVE, 5);
	WAIT_UNTIL(caller, count(server, KEEPALIVE_PATH) == 3);
	assert_false(share_stream(given_up, find(server, KEEPALIVE_PATH, 2)));
	send_message(given_up, lease_answer(5), NULL);
	run_for(caller, 50);
	assert_int_equal(caller->nanswers, 8);
	send_message(find(server, KEEPALIVE_PATH, 2), lease_answer(5), NULL);
	WAIT_UNTIL(caller, caller->nanswers == 9);
	assert_int_equal(caller->answers[8].outcome, ETCD_ANSWERED);
	assert_true(server->nresets > 0);
	stop_caller(caller);
}

/* An answer that names another lease is one to another keepalive: the stream is not used again. */
static void
test_other_lease(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	settle(caller);
	server->keeps_answers = true;
	send_lease(caller, ETCD_KEEPALIVE, 5);
	WAIT_UNTIL(caller, count(server, KEEPALIVE_PATH) == 2);
	send_message(find(server, KEEPALIVE_PATH, 1), lease_answer(4), NULL);
	WAIT_UNTIL(caller, caller->nanswers == 2);
	send_lease(caller, ETCD_KEEPALIVE, 5);
	WAIT_UNTIL(caller, count(server, KEEPALIVE_PATH) == 3);
	assert_false(share_stream(find(server, KEEPALIVE_PATH, 1), find(server, KEEPALIVE_PATH, 2)));

	/* so is a second answer to one keepalive */
	send_message(find(server, KEEPALIVE_PATH, 2), lease_answer(5), NULL);
	send_message(find(server, KEEPALIVE_PATH, 2), lease_answer(5), NULL);
	WAIT_UNTIL(caller, caller->nanswers == 3);
	run_for(caller, 20);
	send_lease(caller, ETCD_KEEPALIVE, 5);
	WAIT_UNTIL(caller, count(server, KEEPALIVE_PATH) == 4);
	assert_false(share_stream(find(server, KEEPALIVE_PATH, 2), find(server, KEEPALIVE_PATH, 3)));
	run_for(caller, 20);
	assert_int_equal(caller->nanswers, 3);
	stop_caller(caller);
}

/* Where one stream is allowed at a time, a keepalive leaves it to others. */
static void
test_one_stream(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	server->max_streams = 1;
	settle(caller);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	}
	/* several at once wait for each other */
	send_lease(caller, ETCD_KEEPALIVE, 6);
	send_lease(caller, ETCD_GRANT, 7);
	send_lease(caller, ETCD_KEEPALIVE, 8);
	WAIT_UNTIL(caller, caller->nanswers == 10);
	for (int i = 7; i < 10; i++)
		assert_int_equal(caller->answers[i].outcome, ETCD_ANSWERED);
	stop_caller(caller);
}

/* A request that was refused before it was looked at is sent again, once. */
static void
test_refused(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	settle(caller);
	server->nrefused = 1;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	assert_int_equal(count(server, GRANT_PATH), 2);
	server->nrefused = 2;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_NO_ANSWER);
	assert_int_equal(count(server, GRANT_PATH), 4);
	stop_caller(caller);
}

/* ---- floods ---------------------------------------------------------- */

/* An endpoint that floods is left, and is not asked again for some seconds. */
static void
test_flood(void **state)
{
	Server	   *flood = start_server(SPEAKS_GRPC);
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(flood, server);
	static const char pong[17] = {[2] = 8, [3] = 6, [4] = 1};
	static char pongs[2000 * sizeof(pong)];
	int			nconnections;

	(void) state;
	/* answers to PINGs of which nobody knows */
	for (size_t i = 0; i < sizeof(pongs); i += sizeof(pong))
		memcpy(pongs + i, pong, sizeof(pong));
	flood->flood = pongs;
	flood->flood_len = sizeof(pongs);
	flood->keeps_answers = flood->keeps_members = true;
	/* one endpoint of two is not more than half of them */
	caller->cluster_id = 4711;
	configure(caller);
	send_lease(caller, ETCD_GRANT, 5);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	if (caller->answers[0].outcome != ETCD_ANSWERED)
		assert_non_null(strstr(caller->answers[0].message, "flood"));
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	assert_int_equal(etcd_client_endpoint(caller->client), 1);
	assert_non_null(strstr(etcd_client_endpoint_state(caller->client, 0)->error, "flood"));

	/* twice as long each time */
	for (int seconds = 3; seconds <= 12; seconds *= 2)
	{
		WAIT_UNTIL(caller, flood->connections[flood->nconnections - 1].fd < 0);
		run_for(caller, 50);
		nconnections = flood->nconnections;
		advanced_s += seconds - 1;
		assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
		run_for(caller, 50);
		assert_int_equal(flood->nconnections, nconnections);
		/* a spare endpoint is asked when it is due, and not before */
		advanced_s += 4;
		WAIT_UNTIL(caller, flood->nconnections > nconnections);
	}
	stop_caller(caller);
}

/* Messages of no watch, and those that tell nothing, count like frames. */
static void
test_idle_messages(void **state)
{
	for (int is_known = 0; is_known < 2; is_known++)
	{
		Server	   *server = start_server(SPEAKS_GRPC);
		Caller	   *caller = start_caller(server, NULL);
		Request    *request;

		(void) state;
		server->keeps_members = true;
		watch(caller, 11);
		WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2);
		request = find(server, WATCH_PATH, 1);
		send_message(request, frame_of(created_number(request), true, false), NULL);
		WAIT_UNTIL(caller, caller->nframes == 1);
		for (int i = 0; i < 400; i++)
		{
			send_message(request, frame_of(is_known ? created_number(request) : 77, false, false), NULL);
			turn(caller);
			caller->nframes = 0;
		}
		assert_int_equal(caller->nends, 0);
		for (int i = 0; i < 20000 && caller->nends == 0; i++)
		{
			send_message(request, frame_of(is_known ? created_number(request) : 77, false, false), NULL);
			if (i % 8 == 7)
				turn(caller);
			caller->nframes = 0;
		}
		assert_int_equal(caller->nends, 1);
		assert_non_null(strstr(caller->why, "flood"));
		stop_caller(caller);
	}
}

/* ---- the client itself ----------------------------------------------- */

/* An ERROR in a callback: the exit of the process makes no other callback. */
static void
test_no_reentry(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	jmp_buf		error;

	(void) state;
	settle(caller);
	caller->runs_until = true;
	send_lease(caller, ETCD_GRANT, 5);
	send_lease(caller, ETCD_GRANT, 6);
	WAIT_UNTIL(caller, caller->nanswers == 3);
	caller->runs_until = false;

	caller->leaves = &error;
	send_lease(caller, ETCD_GRANT, 7);
	send_lease(caller, ETCD_GRANT, 8);
	if (setjmp(error) == 0)
	{
		WAIT_UNTIL(caller, caller->nanswers == 5);
		fail_msg("the callback has returned");
	}
	assert_int_equal(caller->nanswers, 4);
	caller->leaves = NULL;
	etcd_client_run_until(caller->client, 100, never, caller);
	run_for(caller, 50);
	assert_int_equal(caller->nanswers, 4);
	stop_caller(caller);
}

/* Without a descriptor for a socket, the limit is told. */
static void
test_no_descriptor(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	struct rlimit limit;
	struct rlimit low;
	int			next = dup(0);

	(void) state;
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = (struct rlimit) {next, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_NO_ANSWER);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_non_null(strstr(caller->answers[0].message, "this process may open no more files than"));
	assert_non_null(etcd_hint(caller->answers[0].message));
	stop_caller(caller);
}

/* OpenSSL must not insist that bytes stay where they were. */
static void
test_moving_buffer(void **state)
{
	Server	   *server = start_server(IS_SILENT);
	Caller	   *caller;

	(void) state;
	memmove(server->url + 5, server->url + 4, strlen(server->url + 4) + 1);
	server->url[4] = 's';
	caller = start_caller(server, NULL);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_NO_ANSWER);
	assert_true(tls_mode & SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	stop_caller(caller);
}

/* ---- watches --------------------------------------------------------- */

/* etcd tells at once that a watch was created; if that does not come, the stream ends. */
static void
test_not_created(void **state)
{
	for (int is_created = 0; is_created < 2; is_created++)
	{
		Server	   *server = start_server(SPEAKS_GRPC);
		Caller	   *caller = start_caller(server, NULL);

		(void) state;
		watch(caller, 11);
		WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2);
		if (is_created)
			send_message(find(server, WATCH_PATH, 1), frame_of(created_number(find(server, WATCH_PATH, 1)), true, false), NULL);
		run_for(caller, REQUEST_TIMEOUT_MS / 2);
		assert_int_equal(caller->nends, 0);
		run_for(caller, REQUEST_TIMEOUT_MS);
		assert_int_equal(caller->nends, !is_created);
		if (!is_created)
		{
			assert_non_null(strstr(caller->why, "has not created the watch"));
			assert_non_null(strstr(etcd_hint(caller->why), "buffering"));
		}
		stop_caller(caller);
	}
}

/* A number is never used twice on a stream, and what comes under an old one is dropped. */
static void
test_watch_numbers(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	int64_t		last = 0;

	(void) state;
	for (int i = 0; i < 5; i++)
	{
		watch(caller, 11 + 10 * i);
		WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2 + 4 * i);
	}
	for (int i = 0; i < 18; i++)
	{
		const Request *request = find(server, WATCH_PATH, i);

		assert_true(share_stream(request, find(server, WATCH_PATH, 0)));
		if (created_number(request) != 0)
		{
			assert_true(created_number(request) > last);
			last = created_number(request);
		}
		else
			assert_in_range(canceled_number(request), last - 1, last);
	}
	send_message(find(server, WATCH_PATH, 17), frame_of(last - 2, false, false), NULL);
	send_message(find(server, WATCH_PATH, 17), frame_of(11, false, false), NULL);
	send_message(find(server, WATCH_PATH, 17), frame_of(last - 2, false, true), NULL);
	send_message(find(server, WATCH_PATH, 17), frame_of(last, false, false), NULL);
	WAIT_UNTIL(caller, caller->nframes > 0);
	run_for(caller, 20);
	assert_int_equal(caller->nframes, 1);
	assert_int_equal(caller->frames[0], 52);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
}

/* A cancellation that nobody asked for, or of a watch without a number, is told; the stream takes no more watches. */
static void
test_canceled(void **state)
{
	for (int is_refusal = 0; is_refusal < 2; is_refusal++)
	{
		Server	   *server = start_server(SPEAKS_GRPC);
		Caller	   *caller = start_caller(server, NULL);

		(void) state;
		watch(caller, 11);
		WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2);
		send_message(find(server, WATCH_PATH, 1), frame_of(is_refusal ? -1 : created_number(find(server, WATCH_PATH, 1)), is_refusal, true), NULL);
		WAIT_UNTIL(caller, caller->nframes == 1);
		watch(caller, 21);
		WAIT_UNTIL(caller, count(server, WATCH_PATH) == 4);
		assert_false(share_stream(find(server, WATCH_PATH, 0), find(server, WATCH_PATH, 2)));
		stop_caller(caller);
	}
}

/*
 * On GOAWAY the connection is left, for streams that are open, too: the server
 * would serve them on, but a watch never ends by itself.
 */
static void
test_going_away(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	int			nconnections;

	(void) state;
	settle(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	watch(caller, 11);
	WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2);
	nconnections = server->nconnections;
	for (int i = 0; i < nconnections; i++)
	{
		if (server->connections[i].session != NULL)
			nghttp2_submit_goaway(server->connections[i].session, 0, INT32_MAX, NGHTTP2_NO_ERROR, NULL, 0);
	}
	WAIT_UNTIL(caller, caller->nends == 1);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	assert_true(find(server, KEEPALIVE_PATH, 2)->connection->number >= nconnections);
	stop_caller(caller);
}

/* After a reload the new connection has answered before the old one is closed. */
static void
test_reload(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	Connection *old;

	(void) state;
	settle(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	old = find(server, KEEPALIVE_PATH, 1)->connection;
	server->keeps_members = true;
	configure(caller);
	/* the new one is opened after an answer; meanwhile the old one serves */
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, count(server, MEMBERS_PATH) == 2);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	assert_ptr_equal(find(server, KEEPALIVE_PATH, 3)->connection, old);
	send_message(find(server, MEMBERS_PATH, 1), answer_of(), "0");
	run_for(caller, 50);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	assert_ptr_not_equal(find(server, KEEPALIVE_PATH, 4)->connection, old);
	WAIT_UNTIL(caller, old->fd < 0);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
}

/* ---- users ----------------------------------------------------------- */

static const char *
write_password(void)
{
	static char file[] = "/tmp/etcd_grpc_test.XXXXXX";
	int			fd;

	strcpy(file + strlen(file) - 6, "XXXXXX");
	fd = mkstemp(file);
	assert_int_equal(write(fd, "secret\n", 7), 7);
	close(fd);
	return file;
}

/* With a user nothing is asked of etcd before there is a token, and a stream has that of its opening. */
static void
test_tokens(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);
	int			first;

	(void) state;
	caller->username = "somebody";
	caller->password_file = write_password();
	server->token = "one";
	configure(caller);
	watch(caller, 11);
	settle(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2);
	for (int i = 0; i < server->nrequests; i++)
	{
		const Request *request = &server->requests[i];
		/* what asks for the token */
		bool		is_free = strcmp(request->path, STATUS_PATH) == 0 || strcmp(request->path, TOKEN_PATH) == 0;

		if (!is_free || request->token[0] != '\0')
			assert_string_equal(request->token, "one");
	}

	/* the token is refused, so there is another one, and streams are opened anew with it */
	server->keeps_answers = true;
	server->token = "two";
	send_lease(caller, ETCD_GRANT, 6);
	WAIT_UNTIL(caller, count(server, GRANT_PATH) == 1);
	send_message(find(server, GRANT_PATH, 0), (Message) {.len = 0}, "16");
	server->keeps_answers = false;
	WAIT_UNTIL(caller, caller->nanswers == 3);
	assert_int_equal(caller->answers[2].outcome, ETCD_ANSWERED);
	assert_string_equal(find(server, GRANT_PATH, 1)->token, "two");
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	assert_string_equal(find(server, KEEPALIVE_PATH, 2)->token, "two");
	first = count(server, WATCH_PATH);
	watch(caller, 21);
	WAIT_UNTIL(caller, count(server, WATCH_PATH) >= first + 2);
	assert_string_equal(find(server, WATCH_PATH, first)->token, "two");
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	unlink(caller->password_file);
	stop_caller(caller);
}

/* ---- health ---------------------------------------------------------- */

static const EtcdEndpointState *
state_of(const Caller *caller, int endpoint)
{
	return etcd_client_endpoint_state(caller->client, endpoint);
}

static bool
fails(const Caller *caller, int endpoint)
{
	return state_of(caller, endpoint)->error[0] != '\0';
}

/* A client that has asked both endpoints for all that it asks at the start. */
static Caller *
start_healthy(long probe_interval_ms)
{
	Caller	   *caller = start_caller(start_server(SPEAKS_GRPC), start_server(SPEAKS_GRPC));

	caller->probe_interval_ms = probe_interval_ms;
	configure(caller);
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	for (int i = 0; i < 2; i++)
		WAIT_UNTIL(caller, state_of(caller, i)->version[0] != '\0');
	etcd_client_keep_cluster(caller->client, 4711);
	run_for(caller, 50);
	return caller;
}

static void
create_watch(Caller *caller)
{
	Server	   *server = caller->servers[0];

	watch(caller, 11);
	WAIT_UNTIL(caller, count(server, WATCH_PATH) == 2);
	send_message(find(server, WATCH_PATH, 1), frame_of(created_number(find(server, WATCH_PATH, 1)), true, false), NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
}

/* How many connections to it are open. */
static int
count_open(const Server *server)
{
	int			n = 0;

	for (int i = 0; i < server->nconnections; i++)
		n += server->connections[i].fd >= 0;
	return n;
}

/* Each endpoint is asked for its status once in an interval, on a connection that stays open. */
static void
test_status_interval(void **state)
{
	Caller	   *caller = start_healthy(5000);
	Server	  **servers = caller->servers;
	Server	   *second;
	int			nconnections[2] = {servers[0]->nconnections, servers[1]->nconnections};
	int			nmembers = count(servers[1], MEMBERS_PATH);

	(void) state;
	for (int n = 1; n < 4; n++)
	{
		for (int seconds = 0; seconds < 4; seconds += 2)
		{
			advanced_s += seconds;
			assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
			run_for(caller, 30);
			assert_int_equal(count(servers[0], STATUS_PATH), n);
			assert_int_equal(count(servers[1], STATUS_PATH), n);
		}
		advanced_s += 3;
		WAIT_UNTIL(caller, count(servers[0], STATUS_PATH) == n + 1 && count(servers[1], STATUS_PATH) == n + 1);
	}
	for (int i = 0; i < 2; i++)
	{
		assert_int_equal(servers[i]->nconnections, nconnections[i]);
		assert_int_equal(count_open(servers[i]), 1);
	}
	assert_int_equal(count(servers[1], MEMBERS_PATH), nmembers);

	/* in use, it has one for a watch, too; the endpoint that was left keeps one */
	create_watch(caller);
	etcd_client_change_endpoint(caller->client, 0);
	WAIT_UNTIL(caller, count_open(servers[0]) == 1);
	/* without being in the settings, it has none */
	second = servers[1];
	servers[1] = NULL;
	configure(caller);
	for (int i = 0; i < 100 && count_open(second) > 0; i++)
	{
		turn(caller);
		run_server(second);
	}
	assert_int_equal(count_open(second), 0);
	stop_server(second);
	stop_caller(caller);
}

/*
 * What is due regularly is done in a turn that comes anyway.  It asks for a turn of its own
 * only half a second later.
 */
static void
test_slack(void **state)
{
	Caller	   *caller = start_healthy(5000);
	int64_t		tried_ns = state_of(caller, 1)->tried_ns;
	long		timeout_ms = etcd_client_timeout_ms(caller->client);

	(void) state;
	assert_true(state_of(caller, 0)->tried_ns <= tried_ns);
	assert_in_range(timeout_ms, 5000, 5500);
	assert_true(clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC <= tried_ns + 5500 * NSEC_PER_MSEC);
	advanced_s += 5;
	etcd_client_process(caller->client);
	assert_true(state_of(caller, 0)->tried_ns >= tried_ns + 5000 * NSEC_PER_MSEC);
	assert_true(state_of(caller, 1)->tried_ns >= tried_ns + 5000 * NSEC_PER_MSEC);
	stop_caller(caller);

	/* the PING of a watch, and then its end, which is due at once */
	caller = start_healthy(60000);
	create_watch(caller);
	timeout_ms = etcd_client_timeout_ms(caller->client);
	assert_in_range(timeout_ms, 10400, 10500);
	advanced_s += 10;
	etcd_client_process(caller->client);
	assert_in_range(etcd_client_timeout_ms(caller->client), REQUEST_TIMEOUT_MS - 100, REQUEST_TIMEOUT_MS);
	stop_caller(caller);
}

/*
 * A renewal is a keepalive, and a read when it is answered.  etcd sends a PING for a request
 * that comes while no answer to a PING is missing, and the read wakes the client for none.
 */
static void
test_one_ping(void **state)
{
	Caller	   *caller = start_healthy(60000);
	Server	   *server = caller->servers[0];

	(void) state;
	server->pings = true;
	for (int n = 1; n < 4; n++)
	{
		caller->asks_on = true;
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		WAIT_UNTIL(caller, caller->nanswers == 1 + 2 * n);
		run_for(caller, 30);
		assert_int_equal(server->npings, n);
		assert_false(find(server, GRANT_PATH, 0)->connection->awaits_pong);
	}
	stop_caller(caller);
}

/* No second status is asked for while one is under way. */
static void
test_one_status(void **state)
{
	Caller	   *caller = start_healthy(200);
	Server	   *spare = caller->servers[1];
	int			n = count(spare, STATUS_PATH);

	(void) state;
	spare->keeps_answers = true;
	WAIT_UNTIL(caller, count(spare, STATUS_PATH) == n + 1);
	run_for(caller, REQUEST_TIMEOUT_MS / 2);
	configure(caller);
	run_for(caller, REQUEST_TIMEOUT_MS / 4);
	assert_int_equal(count(spare, STATUS_PATH), n + 1);
	WAIT_UNTIL(caller, count(spare, STATUS_PATH) == n + 2);
	stop_caller(caller);
}

/* A spare endpoint dies: it is down soon, without another event.  It comes back. */
static void
test_spare_dies(void **state)
{
	Caller	   *caller = start_healthy(5000);
	int64_t		answered_ns = state_of(caller, 1)->answered_ns;

	(void) state;
	create_watch(caller);
	kill_server(caller->servers[1]);
	run_for(caller, 50);
	assert_false(fails(caller, 1));
	/* an interval, and 5 s */
	advanced_s += 5;
	run_for(caller, 200);
	assert_non_null(strstr(state_of(caller, 1)->error, "could not connect"));
	assert_false(state_of(caller, 1)->down);
	advanced_s += 4;
	run_for(caller, 200);
	assert_true(state_of(caller, 1)->down);
	assert_true(state_of(caller, 1)->answered_ns == answered_ns);
	assert_true(state_of(caller, 1)->tried_ns > answered_ns);

	/* nothing has become of the other one */
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	assert_int_equal(caller->nends, 0);
	assert_false(fails(caller, 0));

	revive_server(caller->servers[1]);
	advanced_s += 4;
	WAIT_UNTIL(caller, !fails(caller, 1));
	assert_false(state_of(caller, 1)->down);
	stop_caller(caller);
}

/* A spare endpoint hangs: requests and watches do not know of it. */
static void
test_spare_hangs(void **state)
{
	Caller	   *caller = start_healthy(5000);

	(void) state;
	create_watch(caller);
	caller->servers[1]->speech = IS_SILENT;
	advanced_s += 5;
	for (int i = 0; !fails(caller, 1); i++)
	{
		int64_t		began_ms = now_ms();

		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		assert_true(now_ms() - began_ms < REQUEST_TIMEOUT_MS / 2);
		assert_int_equal(etcd_client_endpoint(caller->client), 0);
		/* room for the next ones */
		caller->nanswers = 0;
		if (i % 10 == 9)
			caller->servers[0]->nrequests = 0;
		run_for(caller, 20);
	}
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
}

/* Nobody asks for anything: that the endpoint in use dies, and comes back, is noticed all the same. */
static void
test_used_dies(void **state)
{
	Caller	   *caller = start_healthy(5000);

	(void) state;
	kill_server(caller->servers[0]);
	advanced_s += 5;
	run_for(caller, 200);
	assert_true(fails(caller, 0));
	advanced_s += 4;
	run_for(caller, 200);
	assert_true(state_of(caller, 0)->down);
	revive_server(caller->servers[0]);
	advanced_s += 5;
	run_for(caller, 200);
	assert_false(fails(caller, 0));
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	stop_caller(caller);
}

/*
 * A member that is cut off from the others tells its status, and the members.  That does not
 * hide that requests fail there.
 */
static void
test_cut_off(void **state)
{
	Server	   *server = start_server(SPEAKS_GRPC);
	Caller	   *caller = start_caller(server, NULL);

	(void) state;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, state_of(caller, 0)->version[0] != '\0');
	assert_string_equal(state_of(caller, 0)->version, "3.5.13");
	assert_string_equal(state_of(caller, 0)->alarms, "");
	server->is_cut_off = true;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_REFUSED);
	assert_true(fails(caller, 0));
	for (int i = 0; i < 3; i++)
	{
		advanced_s += 11;
		WAIT_UNTIL(caller, count(server, STATUS_PATH) == 2 + i);
		WAIT_UNTIL(caller, state_of(caller, 0)->answered_ns > state_of(caller, 0)->tried_ns);
		assert_true(fails(caller, 0));
		assert_string_equal(state_of(caller, 0)->alarms, "no leader; memberID:1 alarm:NOSPACE");
	}
	server->is_cut_off = false;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	assert_false(fails(caller, 0));
	advanced_s += 11;
	WAIT_UNTIL(caller, state_of(caller, 0)->alarms[0] == '\0');
	stop_caller(caller);
}

/* So it is when the endpoint was left meanwhile.  There, the members show that it is over. */
static void
test_cut_off_and_left(void **state)
{
	Caller	   *caller = start_healthy(5000);
	Server	   *server = caller->servers[0];
	int			n = count(server, STATUS_PATH);

	(void) state;
	server->keeps_answers = true;
	advanced_s += 6;
	WAIT_UNTIL(caller, count(server, STATUS_PATH) == n + 1);
	server->keeps_answers = false;
	server->is_cut_off = true;
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_REFUSED);
	assert_int_equal(etcd_client_endpoint(caller->client), 1);
	/* the client asks an endpoint that it has left for its members */
	server->keeps_members = true;
	send_message(find(server, STATUS_PATH, n), status_answer(true), "0");
	WAIT_UNTIL(caller, state_of(caller, 0)->alarms[0] != '\0');
	assert_true(fails(caller, 0));
	server->keeps_members = false;
	advanced_s += 4;
	WAIT_UNTIL(caller, !fails(caller, 0));
	stop_caller(caller);
}

static bool
cannot_connect(const Caller *caller, int endpoint)
{
	return state_of(caller, endpoint)->connect_error[0] != '\0';
}

/*
 * New connections to both endpoints fail after a reload, while the old one serves.  That stays
 * an error until a new connection works.  They are tried again and again.
 */
static void
test_connect_error(void **state)
{
	Caller	   *caller = start_healthy(5000);
	Server	  **servers = caller->servers;

	(void) state;
	create_watch(caller);
	servers[0]->refuses_connections = servers[1]->refuses_connections = true;
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, cannot_connect(caller, 0) && cannot_connect(caller, 1));
	for (int i = 0; i < 6; i++)
	{
		int			before[2];
		int			nstatus = count(servers[0], STATUS_PATH);

		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		assert_false(fails(caller, 0));
		assert_true(cannot_connect(caller, 0) && cannot_connect(caller, 1));
		run_for(caller, 50);
		for (int j = 0; j < 2; j++)
			before[j] = servers[j]->nrefused_connections;
		advanced_s += 6;
		run_for(caller, 200);
		assert_int_equal(servers[0]->nrefused_connections, before[0] + 1);
		assert_int_equal(servers[1]->nrefused_connections, before[1] + 1);
		assert_int_equal(count(servers[0], STATUS_PATH), nstatus + 1);
		/* another reload */
		if (i == 3)
			configure(caller);
	}
	assert_int_equal(caller->nends, 0);
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	servers[0]->refuses_connections = servers[1]->refuses_connections = false;
	assert_true(cannot_connect(caller, 0) && cannot_connect(caller, 1));
	advanced_s += 6;
	run_for(caller, 200);
	assert_false(cannot_connect(caller, 0) || cannot_connect(caller, 1));
	assert_false(fails(caller, 0) || fails(caller, 1));
	stop_caller(caller);
}

/* Who refuses to tell the members has been connected to. */
static void
test_members_refused(void **state)
{
	static const char *const codes[] = {"7", "14"};

	(void) state;
	for (size_t i = 0; i < lengthof(codes); i++)
	{
		Caller	   *caller = start_healthy(5000);
		Server	   *spare = caller->servers[1];
		int			nstatus;

		spare->refuses_connections = true;
		configure(caller);
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		WAIT_UNTIL(caller, cannot_connect(caller, 1));
		spare->refuses_connections = false;
		spare->members_status = codes[i];
		nstatus = count(spare, STATUS_PATH);
		advanced_s += 6;
		WAIT_UNTIL(caller, !cannot_connect(caller, 1));
		/* a learner refuses it, too; its status does not hide that */
		WAIT_UNTIL(caller, count(spare, STATUS_PATH) == nstatus + 1);
		run_for(caller, 100);
		assert_int_equal(fails(caller, 1), i == 1);
		stop_caller(caller);
	}
}

/* A try that began before a reload says nothing of the new settings, which are tried at once. */
static void
test_old_try(void **state)
{
	Caller	   *caller = start_healthy(60000);
	Server	  **servers = caller->servers;
	int			nmembers[2];

	(void) state;
	servers[0]->keeps_members = servers[1]->keeps_members = true;
	for (int i = 0; i < 2; i++)
		nmembers[i] = count(servers[i], MEMBERS_PATH);
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, count(servers[0], MEMBERS_PATH) > nmembers[0] && count(servers[1], MEMBERS_PATH) > nmembers[1]);
	servers[0]->keeps_members = servers[1]->keeps_members = false;
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	run_for(caller, 200);
	for (int i = 0; i < 2; i++)
		assert_int_equal(count(servers[i], MEMBERS_PATH), nmembers[i] + 2);
	run_for(caller, 2 * REQUEST_TIMEOUT_MS);
	for (int i = 0; i < 2; i++)
		assert_false(fails(caller, i) || cannot_connect(caller, i));
	stop_caller(caller);
}

static bool
has_user_error(const Caller *caller, const char *text)
{
	return strstr(etcd_client_user_error(caller->client), text) != NULL;
}

/* A client with a user that has got a token. */
static Caller *
start_with_user(void)
{
	Caller	   *caller = start_caller(start_server(SPEAKS_GRPC), NULL);

	caller->probe_interval_ms = 5000;
	caller->username = "somebody";
	caller->password_file = write_password();
	caller->servers[0]->token = "one";
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	run_for(caller, 100);
	assert_string_equal(etcd_client_user_error(caller->client), "");
	return caller;
}

static void
end_with_user(Caller *caller)
{
	unlink(caller->password_file);
	stop_caller(caller);
}

/* Another password is in the file, of another length; or the file is open to others. */
static void
change_password(const Caller *caller, const char *password, mode_t mode)
{
	FILE	   *file = fopen(caller->password_file, "w");

	fputs(password, file);
	fclose(file);
	assert_int_equal(chmod(caller->password_file, mode), 0);
}

/*
 * A wrong password is an error from its first try until it is corrected, although the older
 * token is good.
 */
static void
test_wrong_password(void **state)
{
	Caller	   *caller = start_with_user();
	Server	   *server = caller->servers[0];
	int			ntries;

	(void) state;
	server->rejects_password = true;
	configure(caller);
	assert_string_equal(etcd_client_user_error(caller->client), "");
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		run_for(caller, 100);
		assert_true(has_user_error(caller, "did not give user \"somebody\" a token"));
		/* a reload leaves it */
		configure(caller);
		assert_true(has_user_error(caller, "did not give user \"somebody\" a token"));
	}
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	run_for(caller, 100);

	/* it is tried again, but not often */
	ntries = count(server, TOKEN_PATH);
	for (int seconds = 0; seconds < 24; seconds += 6)
	{
		run_for(caller, 50);
		assert_int_equal(count(server, TOKEN_PATH), ntries);
		advanced_s += 6;
	}
	advanced_s += 12;
	run_for(caller, 100);
	assert_int_equal(count(server, TOKEN_PATH), ntries + 1);
	assert_true(has_user_error(caller, "did not give"));

	/* what else goes wrong is not the user's fault, and does not hide it */
	advanced_s += 36;
	server->is_cut_off = true;
	run_for(caller, 100);
	assert_int_equal(count(server, TOKEN_PATH), ntries + 2);
	assert_true(has_user_error(caller, "did not give"));
	server->is_cut_off = false;

	/* the file is corrected, and soon tried */
	change_password(caller, "another secret", 0600);
	server->rejects_password = false;
	server->token = "two";
	advanced_s += 6;
	run_for(caller, 100);
	assert_string_equal(etcd_client_user_error(caller->client), "");
	assert_int_equal(ask(caller, ETCD_GRANT, 5)->outcome, ETCD_ANSWERED);
	assert_string_equal(find(server, GRANT_PATH, 0)->token, "two");
	end_with_user(caller);
}

/* So is a file that cannot be used. */
static void
test_password_file(void **state)
{
	Caller	   *caller = start_with_user();

	(void) state;
	change_password(caller, "secret", 0644);
	configure(caller);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		run_for(caller, 100);
		assert_true(has_user_error(caller, "group or world access"));
		advanced_s += 6;
	}
	assert_int_equal(chmod(caller->password_file, 0600), 0);
	assert_true(has_user_error(caller, "group or world access"));
	advanced_s += 6;
	run_for(caller, 100);
	assert_string_equal(etcd_client_user_error(caller->client), "");

	/* without a user there is no error */
	assert_int_equal(chmod(caller->password_file, 0644), 0);
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	assert_true(has_user_error(caller, "group or world access"));
	caller->username = NULL;
	configure(caller);
	assert_string_equal(etcd_client_user_error(caller->client), "");
	end_with_user(caller);
}

/* An endpoint that does not answer says nothing of the user. */
static void
test_user_without_answer(void **state)
{
	Caller	   *caller = start_with_user();

	(void) state;
	kill_server(caller->servers[0]);
	caller->username = "another";
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_NO_ANSWER);
	assert_true(fails(caller, 0));
	assert_string_equal(etcd_client_user_error(caller->client), "");
	end_with_user(caller);
}

/*
 * The first try of a new password gets no answer.  It is tried again, although the older
 * token is good; once it is answered, no more.
 */
static void
test_password_without_answer(void **state)
{
	for (int is_wrong = 0; is_wrong < 2; is_wrong++)
	{
		Caller	   *caller = start_with_user();
		Server	   *server = caller->servers[0];
		int			ntries;

		server->is_cut_off = true;
		configure(caller);
		etcd_client_probe(caller->client);
		run_for(caller, 2 * REQUEST_TIMEOUT_MS);
		assert_string_equal(etcd_client_user_error(caller->client), "");
		server->is_cut_off = false;
		server->rejects_password = is_wrong;
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
		run_for(caller, 100);
		ntries = count(server, TOKEN_PATH);
		advanced_s += 6;
		WAIT_UNTIL(caller, count(server, TOKEN_PATH) > ntries);
		run_for(caller, 100);
		assert_int_equal(has_user_error(caller, "did not give user"), is_wrong);
		ntries = count(server, TOKEN_PATH);
		advanced_s += 6;
		run_for(caller, 100);
		assert_int_equal(count(server, TOKEN_PATH), ntries);
		end_with_user(caller);
	}
	(void) state;
}

/* Without a token the members are not asked for: a new connection has not worked yet. */
static void
test_connect_error_without_token(void **state)
{
	Caller	   *caller = start_with_user();
	Server	   *server = caller->servers[0];

	(void) state;
	server->refuses_connections = true;
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	WAIT_UNTIL(caller, cannot_connect(caller, 0));
	caller->username = "another";
	server->rejects_password = true;
	configure(caller);
	for (int i = 0; i < 4; i++)
	{
		assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_REFUSED);
		assert_true(cannot_connect(caller, 0));
		assert_true(has_user_error(caller, "did not give user \"another\""));
		advanced_s += 6;
	}
	server->rejects_password = server->refuses_connections = false;
	advanced_s += 30;
	run_for(caller, 200);
	assert_string_equal(etcd_client_user_error(caller->client), "");
	advanced_s += 6;
	run_for(caller, 200);
	assert_false(cannot_connect(caller, 0));
	end_with_user(caller);
}

/* Begins a probe, and waits for its end.  Returns how long it took. */
static int64_t
probe(Caller *caller)
{
	int64_t		began_ms = now_ms();

	etcd_client_probe(caller->client);
	assert_true(etcd_client_is_probing(caller->client));
	WAIT_UNTIL(caller, !etcd_client_is_probing(caller->client));
	return now_ms() - began_ms;
}

/* A probe asks each endpoint by a new connection, and then for its status; and for a token. */
static void
test_probe(void **state)
{
	Caller	   *caller = start_healthy(60000);
	Server	  **servers = caller->servers;
	int			nconnections[2];
	int			nstatus[2];
	int			ntries;

	(void) state;
	assert_false(etcd_client_is_probing(caller->client));
	caller->username = "somebody";
	caller->password_file = write_password();
	servers[0]->token = servers[1]->token = "one";
	configure(caller);
	assert_int_equal(ask(caller, ETCD_KEEPALIVE, 5)->outcome, ETCD_ANSWERED);
	run_for(caller, 100);
	for (int round = 0; round < 3; round++)
	{
		for (int i = 0; i < 2; i++)
		{
			nconnections[i] = servers[i]->nconnections;
			nstatus[i] = count(servers[i], STATUS_PATH);
		}
		ntries = count(servers[0], TOKEN_PATH);
		/* the password is tried again although its file is the same */
		servers[0]->rejects_password = round < 2;
		assert_true(probe(caller) < REQUEST_TIMEOUT_MS);
		for (int i = 0; i < 2; i++)
		{
			assert_int_equal(servers[i]->nconnections, nconnections[i] + 1);
			assert_int_equal(count(servers[i], STATUS_PATH), nstatus[i] + 1);
			assert_false(fails(caller, i) || cannot_connect(caller, i));
		}
		assert_int_equal(count(servers[0], TOKEN_PATH), ntries + 1);
		assert_int_equal(has_user_error(caller, "did not give"), round < 2);
	}
	end_with_user(caller);
}

/* It ends in time, also where endpoints hang, and asks anew what hangs already. */
static void
test_probe_of_hung(void **state)
{
	Caller	   *caller = start_healthy(5000);
	Server	  **servers = caller->servers;
	int			nmembers = count(servers[1], MEMBERS_PATH);

	(void) state;
	servers[1]->keeps_members = true;
	etcd_client_probe(caller->client);
	WAIT_UNTIL(caller, count(servers[1], MEMBERS_PATH) == nmembers + 1);
	assert_in_range(probe(caller), REQUEST_TIMEOUT_MS / 2, 3 * REQUEST_TIMEOUT_MS);
	assert_int_equal(count(servers[1], MEMBERS_PATH), nmembers + 2);
	/* once may be by chance */
	assert_false(cannot_connect(caller, 1));
	assert_in_range(probe(caller), REQUEST_TIMEOUT_MS / 2, 3 * REQUEST_TIMEOUT_MS);
	assert_true(cannot_connect(caller, 1));
	assert_false(cannot_connect(caller, 0));

	/* the status hangs */
	servers[1]->keeps_members = false;
	servers[1]->keeps_answers = true;
	assert_in_range(probe(caller), REQUEST_TIMEOUT_MS / 2, 3 * REQUEST_TIMEOUT_MS);
	assert_false(cannot_connect(caller, 1));
	assert_true(fails(caller, 1));

	for (int i = 0; i < 2; i++)
		servers[i]->speech = IS_SILENT;
	for (int i = 0; i < 2; i++)
		assert_in_range(probe(caller), REQUEST_TIMEOUT_MS / 2, 3 * REQUEST_TIMEOUT_MS);
	assert_true(cannot_connect(caller, 0) && cannot_connect(caller, 1));
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	stop_caller(caller);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_look_after_change),
		cmocka_unit_test(test_authority),
		cmocka_unit_test(test_no_grpc),
		cmocka_unit_test(test_watch_no_grpc),
		cmocka_unit_test(test_dialects),
		cmocka_unit_test(test_no_repetition),
		cmocka_unit_test(test_keepalives),
		cmocka_unit_test(test_late_keepalive),
		cmocka_unit_test(test_other_lease),
		cmocka_unit_test(test_one_stream),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_idle_messages),
		cmocka_unit_test(test_no_reentry),
		cmocka_unit_test(test_no_descriptor),
		cmocka_unit_test(test_moving_buffer),
		cmocka_unit_test(test_not_created),
		cmocka_unit_test(test_watch_numbers),
		cmocka_unit_test(test_canceled),
		cmocka_unit_test(test_going_away),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_status_interval),
		cmocka_unit_test(test_slack),
		cmocka_unit_test(test_one_ping),
		cmocka_unit_test(test_one_status),
		cmocka_unit_test(test_spare_dies),
		cmocka_unit_test(test_spare_hangs),
		cmocka_unit_test(test_used_dies),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_cut_off_and_left),
		cmocka_unit_test(test_connect_error),
		cmocka_unit_test(test_members_refused),
		cmocka_unit_test(test_old_try),
		cmocka_unit_test(test_wrong_password),
		cmocka_unit_test(test_password_file),
		cmocka_unit_test(test_user_without_answer),
		cmocka_unit_test(test_password_without_answer),
		cmocka_unit_test(test_connect_error_without_token),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_probe_of_hung),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
