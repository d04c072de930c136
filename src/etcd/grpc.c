/*-------------------------------------------------------------------------
 *
 * grpc.c
 *	  etcd's gRPC: requests and watches as streams of HTTP/2 connections.
 *
 * A connection carries any number of calls.  The requests to an endpoint share
 * one, and each watch stream has one of its own, so that a flood of changes
 * holds up nothing else (etcd #15402).  A connection that no call uses is
 * closed, unless its owner keeps it.
 *
 * Keepalives are messages on a stream that stays open.  Their answers carry no
 * number, so one keepalive at a time is on a stream, and a stream whose answer
 * nobody waits for any more is reset: a late answer would count for a later
 * keepalive.
 *
 * Watches are added and canceled on a stream that stays open, too.  Each gets
 * a new number of the stream, since late events of a canceled watch come under
 * its old one.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grpc.h"
#include "h2.h"
#include "url.h"

/*
 * After this time of silence, the connection of a watch gets a PING.  etcd closes a
 * connection that gets one more often than every 5 s, or without an open stream.
 */
#define PING_INTERVAL_MS	10000

/*
 * The number of bytes that a turn of the client reads from a connection.  Shutdown, reload,
 * deadlines and other connections do not wait for a server that sends without
 * end.
 */
#define MAX_TURN_SIZE		(256 * 1024)

/*
 * A server that sends more frames in a second that nobody waits for is left.
 * One that works sends a few with each answer.
 */
#define MAX_IDLE_FRAMES		1000

/* The number of bytes that may come for watches that were replaced. */
#define LATE_SIZE			(4 * 1024 * 1024)

typedef struct Connection
{
	struct Connection *next;
	char	   *url;			/* of the endpoint */
	char	   *authority;
	int			use;			/* see Destination */
	Exchange   *exchange;
	H2		   *h2;
	bool		is_proven;		/* it has answered in gRPC */
	bool		is_left;		/* no call begins any more */
	int			ncalls;
	int64_t		heard_ns;		/* when bytes came last */
	int64_t		pinged_ns;
	uint64_t	turn;			/* of the client, and how much may still be read in it */
	size_t		room;
	int64_t		counts_since_ns;	/* idle frames */
	bool		floods;
	H2Stream   *keepalive;		/* a stream that waits for a keepalive; NULL: none */
	uint64_t	keepalive_token_number;
} Connection;

/* A watch, and its number on the stream. */
typedef struct WatchNumber
{
	int64_t		watch_id;		/* the caller's */
	int64_t		number;
} WatchNumber;

struct GrpcCall
{
	GrpcCall   *next;
	Connection *connection;
	H2Stream   *stream;
	EtcdRequestKind kind;		/* not of a watch */
	bool		is_watch;
	int64_t		lease;			/* of a keepalive */
	long		timeout_ms;
	size_t		max_size;
	uint64_t	token_number;
	int64_t		sent_ns;
	uint64_t	ended;			/* see etcd_http_ended() */
	bool		timed_out;
	/* of a watch */
	int64_t		last_number;
	WatchNumber *watches;
	int			nwatches;
	size_t		late_room;		/* the number of bytes that may still come for old watches */
	bool		is_spoiled;		/* it takes no more watches */
	bool		refusal_read;
};

void
etcd_grpc_init(Grpc *grpc, Http *http, const Settings *settings)
{
	memset(grpc, 0, sizeof(*grpc));
	grpc->http = http;
	grpc->settings = settings;
}

/* ---- connections ----------------------------------------------------- */

/*
 * Who is asked at an endpoint, as libcurl says it in JSON; to be free()d.  NULL
 * if memory is out.
 */
static char *
copy_authority(const Settings *settings, const char *url)
{
	EtcdUrl		parts;
	char		authority[ETCD_AUTHORITY_SIZE];

	if (!etcd_split_url(url, &parts))
		return strdup("localhost");	/* a Unix socket */
	etcd_format_authority(&parts, settings->server_name, authority);
	return strdup(authority);
}

static void
free_connection(Grpc *grpc, Connection *connection)
{
	Connection **link = &grpc->connections;

	while (*link != NULL && *link != connection)
		link = &(*link)->next;
	if (*link != NULL)
		*link = connection->next;
	etcd_http_release(grpc->http, &connection->exchange);
	etcd_h2_free(connection->h2);
	free(connection->url);
	free(connection->authority);
	free(connection);
}

/* NULL if memory is out. */
static Connection *
create_connection(Grpc *grpc, const Destination *destination)
{
	Connection *connection = calloc(1, sizeof(Connection));

	if (connection == NULL)
		return NULL;
	connection->url = strdup(destination->url);
	connection->authority = copy_authority(grpc->settings, destination->url);
	connection->use = destination->use;
	connection->heard_ns = clock_monotonic_ns();
	connection->h2 = etcd_h2_create();
	if (connection->url != NULL && connection->authority != NULL && connection->h2 != NULL)
	{
		Destination fresh = *destination;

		fresh.connects = true;
		connection->exchange = etcd_http_connect(grpc->http, grpc->settings, &fresh);
	}
	if (connection->exchange == NULL)
	{
		free_connection(grpc, connection);
		return NULL;
	}
	connection->next = grpc->connections;
	grpc->connections = connection;
	return connection;
}

static bool
is_usable(const Connection *connection)
{
	return !connection->is_left && etcd_http_ended(connection->exchange) == 0 &&
		!etcd_h2_is_going_away(connection->h2) && etcd_h2_fault(connection->h2) == NULL;
}

/*
 * The connection to use for a call: one that has answered comes before a newer
 * one that has not, as that may have been made with files that are wrong.  NULL
 * if memory is out.
 */
static Connection *
find_connection(Grpc *grpc, const Destination *destination)
{
	bool		connects = destination->connects && !destination->is_stream;
	Connection *found = NULL;

	for (Connection *c = grpc->connections; c != NULL && !connects; c = c->next)
	{
		if (c->use == destination->use && strcmp(c->url, destination->url) == 0 && is_usable(c) &&
			(found == NULL || (c->is_proven && !found->is_proven)))
			found = c;
	}
	return found != NULL ? found : create_connection(grpc, destination);
}

/*
 * It has answered in gRPC.  Older connections to the same endpoint were made
 * with older settings, so no call begins on them any more.
 */
static void
prove(Connection *connection)
{
	if (connection->is_proven)
		return;
	connection->is_proven = true;
	/* the newest come first */
	for (Connection *c = connection->next; c != NULL; c = c->next)
	{
		if (c->use == connection->use && strcmp(c->url, connection->url) == 0)
			c->is_left = true;
	}
}

/* Frames that nobody waits for count against the endpoint. */
static void
check_flood(Connection *connection)
{
	int64_t		now = clock_monotonic_ns();

	if (etcd_h2_idle_frames(connection->h2) > MAX_IDLE_FRAMES)
	{
		connection->floods = true;
		etcd_h2_fail(connection->h2, "it floods the connection with bytes that nobody waits for");
	}
	else if (now - connection->counts_since_ns >= NSEC_PER_SEC)
	{
		connection->counts_since_ns = now;
		etcd_h2_clear_idle_frames(connection->h2);
	}
}

static void
receive_bytes(Grpc *grpc, Connection *connection)
{
	char		buffer[16 * 1024];
	size_t		n;

	if (connection->turn != grpc->turn)
	{
		connection->turn = grpc->turn;
		connection->room = MAX_TURN_SIZE;
	}
	while (connection->room > 0 && etcd_h2_fault(connection->h2) == NULL &&
		   (n = etcd_http_recv(grpc->http, connection->exchange, buffer, sizeof(buffer))) > 0)
	{
		connection->room -= n < connection->room ? n : connection->room;
		connection->heard_ns = clock_monotonic_ns();
		etcd_h2_receive(connection->h2, buffer, n);
		check_flood(connection);
	}
}

static void
send_bytes(Grpc *grpc, Connection *connection)
{
	const char *data;
	size_t		len;

	while (etcd_http_is_writeable(connection->exchange) &&
		   (data = etcd_h2_output(connection->h2, &len), len > 0))
	{
		etcd_h2_sent(connection->h2, etcd_http_send(grpc->http, connection->exchange, data, len));
	}
}

/* The time of the next PING, or of the end if there is no answer to one. */
static int64_t
ping_due_ns(const Grpc *grpc, const Connection *connection)
{
	if (connection->use == 0 || connection->ncalls == 0 ||
		!etcd_http_is_connected(connection->exchange))
		return INT64_MAX;
	if (etcd_h2_awaits_pong(connection->h2))
		return connection->pinged_ns + grpc->settings->request_timeout_ms * NSEC_PER_MSEC;
	return connection->heard_ns + PING_INTERVAL_MS * NSEC_PER_MSEC;
}

/* When the PING needs a turn of its own. */
static int64_t
ping_wakeup_ns(const Grpc *grpc, const Connection *connection)
{
	int64_t		due_ns = ping_due_ns(grpc, connection);

	return due_ns == INT64_MAX || etcd_h2_awaits_pong(connection->h2) ? due_ns :
		due_ns + SLACK_MS * NSEC_PER_MSEC;
}

static void
run_ping(Grpc *grpc, Connection *connection)
{
	int64_t		now = clock_monotonic_ns();

	if (ping_due_ns(grpc, connection) > now)
		return;
	if (etcd_h2_awaits_pong(connection->h2))
		etcd_http_time_out(grpc->http, connection->exchange);
	else
	{
		connection->pinged_ns = now;
		etcd_h2_ping(connection->h2);
	}
}

/* ---- calls ----------------------------------------------------------- */

/* NULL if memory is out. */
static GrpcCall *
create_call(Grpc *grpc, const Destination *destination)
{
	GrpcCall   *call = calloc(1, sizeof(GrpcCall));
	GrpcCall  **last = &grpc->calls;

	if (call == NULL)
		return NULL;
	call->connection = find_connection(grpc, destination);
	if (call->connection == NULL)
	{
		free(call);
		return NULL;
	}
	call->connection->ncalls++;
	call->timeout_ms = destination->timeout_ms;
	call->max_size = destination->max_size;
	call->token_number = destination->token_number;
	call->sent_ns = clock_monotonic_ns();
	while (*last != NULL)
		last = &(*last)->next;
	*last = call;
	return call;
}

/* False if memory is out. */
static bool
open_stream(GrpcCall *call, const Destination *destination, const char *path, bool is_unary)
{
	Connection *connection = call->connection;
	H2Request	request = {
		.is_tls = strncmp(connection->url, "https:", 6) == 0 ||
			strncmp(connection->url, "unixs:", 6) == 0,
		.authority = connection->authority,
		.path = path,
		.token = destination->token,
		.timeout_ms = is_unary ? destination->timeout_ms : 0,
		.max_size = destination->max_size
	};

	call->stream = etcd_h2_open(connection->h2, &request);
	return call->stream != NULL;
}

/* Is the stream open, without messages that nobody has asked for? */
static bool
is_idle(const H2Stream *stream)
{
	size_t		len;

	return stream != NULL && etcd_h2_state(stream) == H2_OPEN &&
		etcd_h2_message(stream, &len) == NULL;
}

/* The stream for a keepalive.  False if memory is out. */
static bool
take_keepalive_stream(GrpcCall *call, const Destination *destination)
{
	Connection *connection = call->connection;

	if (is_idle(connection->keepalive) &&
		connection->keepalive_token_number == destination->token_number)
	{
		call->stream = connection->keepalive;
		connection->keepalive = NULL;
		return true;
	}
	return open_stream(call, destination, etcd_request_path(ETCD_GRPC, ETCD_KEEPALIVE), false);
}

/* The stream may serve the next keepalive, unless another stream does already. */
static void
give_back_keepalive_stream(GrpcCall *call)
{
	Connection *connection = call->connection;

	if (!is_idle(connection->keepalive) || connection->keepalive_token_number != call->token_number)
		etcd_h2_close(connection->h2, &connection->keepalive);
	/* where one stream is allowed at a time, it would hold up all other requests */
	if (connection->keepalive != NULL || etcd_h2_max_streams(connection->h2) <= 1)
		return;
	connection->keepalive = call->stream;
	connection->keepalive_token_number = call->token_number;
	call->stream = NULL;
}

GrpcCall *
etcd_grpc_start(Grpc *grpc, const EtcdRequest *request, const Destination *destination)
{
	GrpcCall   *call = create_call(grpc, destination);
	bool		is_unary = request->kind != ETCD_KEEPALIVE;
	char	   *message = NULL;
	size_t		len = 0;

	if (call == NULL)
		return NULL;
	call->kind = request->kind;
	call->lease = request->lease;
	message = etcd_encode_request(ETCD_GRPC, request, &len);
	if (message == NULL ||
		!(is_unary ? open_stream(call, destination, etcd_request_path(ETCD_GRPC, request->kind),
								 true) :
		  take_keepalive_stream(call, destination)) ||
		!etcd_h2_send(call->connection->h2, call->stream, message, len, is_unary))
		etcd_grpc_release(grpc, &call);
	/* there may be a password in it */
	if (message != NULL)
		explicit_bzero(message, len);
	free(message);
	return call;
}

void
etcd_grpc_release(Grpc *grpc, GrpcCall **call)
{
	GrpcCall   *released = *call;
	GrpcCall  **link = &grpc->calls;

	if (released == NULL)
		return;
	*call = NULL;
	while (*link != released)
		link = &(*link)->next;
	*link = released->next;
	etcd_h2_close(released->connection->h2, &released->stream);
	released->connection->ncalls--;
	free(released->watches);
	free(released);
}

void
etcd_grpc_time_out(Grpc *grpc, GrpcCall *call)
{
	if (call->ended != 0)
		return;
	call->timed_out = true;
	call->ended = ++grpc->http->nended;
	/* whatever comes next is not sent into the same silence */
	if (call->connection->heard_ns < call->sent_ns)
		call->connection->is_left = true;
}

uint64_t
etcd_grpc_ended(const GrpcCall *call)
{
	return call->ended;
}

bool
etcd_grpc_was_connected(const GrpcCall *call)
{
	return etcd_http_was_connected(call->connection->exchange);
}

/* Is the call complete? */
static bool
is_complete(const GrpcCall *call)
{
	size_t		len;

	if (etcd_http_ended(call->connection->exchange) != 0 ||
		etcd_h2_fault(call->connection->h2) != NULL ||
		etcd_h2_state(call->stream) != H2_OPEN)
		return true;
	if (call->is_watch)
		return etcd_h2_is_going_away(call->connection->h2);
	return call->kind == ETCD_KEEPALIVE && etcd_h2_message(call->stream, &len) != NULL;
}

/* ---- how calls end --------------------------------------------------- */

/*
 * An endpoint that answers in HTTP, but not in gRPC, may be a proxy of HTTP/1: the setting
 * is named.  It is named before the URL, as a long message is cut.
 */
static void
describe_no_grpc(const GrpcCall *call, const char *fault, char *message)
{
	bool		is_page = etcd_h2_state(call->stream) == H2_NOT_GRPC &&
		etcd_h2_http_status(call->stream) < 500;

	etcd_format_message(message, "no answer in gRPC%s from etcd at \"%s\": %s",
						is_page || etcd_h2_is_http1(call->connection->h2) ?
						" (\"etcd_leader.protocol\")" : "",
						call->connection->url, fault);
}

/* Why there is no answer; true if it is a time-out. */
static bool
describe_failure(const GrpcCall *call, EtcdOutcome *outcome, char *message)
{
	const Connection *connection = call->connection;
	const char *url = connection->url;
	const char *fault;
	char		status[32];

	*outcome = ETCD_NO_ANSWER;
	if (call->timed_out)
	{
		etcd_http_describe_timeout(connection->exchange, call->timeout_ms, message);
		return true;
	}
	if ((fault = etcd_h2_fault(connection->h2)) != NULL)
	{
		/* a flood is the fault of the endpoint, whatever the call was about */
		*outcome = connection->floods ? ETCD_NO_ANSWER : ETCD_GARBAGE;
		describe_no_grpc(call, fault, message);
		return false;
	}
	if (etcd_http_ended(connection->exchange) != 0)
		return etcd_http_describe_failure(connection->exchange, outcome, message);
	switch (etcd_h2_state(call->stream))
	{
		case H2_TOO_LARGE:
			*outcome = call->max_size > ETCD_MAX_ANSWER_SIZE && !call->is_watch ?
				ETCD_REFUSED : ETCD_GARBAGE;
			etcd_format_message(message, "answer of etcd at \"%s\" is larger than %zu bytes", url,
								call->max_size);
			break;
		case H2_NOT_GRPC:
			*outcome = ETCD_GARBAGE;
			snprintf(status, sizeof(status), "HTTP status %d", etcd_h2_http_status(call->stream));
			describe_no_grpc(call, status, message);
			break;
		case H2_REFUSED:
			etcd_format_message(message, "etcd at \"%s\" refused the stream", url);
			break;
		case H2_BROKEN:
			etcd_format_message(message, "etcd at \"%s\" ended the stream: %s", url,
								etcd_h2_error(call->stream));
			break;
		case H2_OPEN:
		case H2_ENDED:
			etcd_format_message(message, "etcd at \"%s\" is shutting down", url);
			break;
	}
	return false;
}

/* What is not gRPC's is said with the endpoint. */
static void
explain_garbage(const GrpcCall *call, char *message)
{
	char		why[ETCD_MESSAGE_SIZE];

	memcpy(why, message, sizeof(why));
	etcd_format_message(message, "could not understand the answer of etcd at \"%s\": %s",
						call->connection->url, why);
}

bool
etcd_grpc_read_answer(GrpcCall *call, EtcdAnswer *answer)
{
	const char *message = NULL;
	size_t		len;

	memset(answer, 0, sizeof(*answer));
	if (!call->timed_out)
		message = etcd_h2_message(call->stream, &len);
	if (message != NULL && (call->kind == ETCD_KEEPALIVE ||
							(etcd_h2_state(call->stream) == H2_ENDED &&
							 etcd_h2_status(call->stream, answer->message) == 0)))
	{
		etcd_proto_decode_answer(call->kind, message, len, answer);
		etcd_h2_take(call->connection->h2, call->stream, true);
		if (answer->outcome == ETCD_GARBAGE)
			explain_garbage(call, answer->message);
		else if (call->kind == ETCD_KEEPALIVE && answer->lease == call->lease)
			give_back_keepalive_stream(call);
	}
	else if (!call->timed_out && etcd_h2_state(call->stream) == H2_ENDED)
	{
		answer->code = etcd_h2_status(call->stream, answer->message);
		answer->outcome = answer->code != 0 ? ETCD_REFUSED : ETCD_GARBAGE;
		if (answer->code == 0)
			etcd_format_message(answer->message, "no message in the answer of etcd at \"%s\"",
								call->connection->url);
	}
	else
	{
		bool		timed_out = describe_failure(call, &answer->outcome, answer->message);

		if (answer->outcome == ETCD_REFUSED)
			answer->code = ETCD_CODE_RESOURCE_EXHAUSTED;
		return timed_out;
	}
	return false;
}

/* ---- watches --------------------------------------------------------- */

/* Sends a request of a watch, which is freed.  False if memory is out. */
static bool
send_message(GrpcCall *call, char *message, const size_t *len)
{
	bool		good = message != NULL &&
		etcd_h2_send(call->connection->h2, call->stream, message, *len, false);

	free(message);
	return good;
}

/* Adds the watches to the stream.  False if memory is out. */
static bool
add_watches(GrpcCall *call, const EtcdWatch *watches, int nwatches)
{
	bool		good;

	free(call->watches);
	call->watches = calloc(nwatches, sizeof(WatchNumber));
	good = call->watches != NULL;
	call->nwatches = good ? nwatches : 0;
	for (int i = 0; good && i < nwatches; i++)
	{
		EtcdWatch	watch = watches[i];
		size_t		len = 0;

		call->watches[i] = (WatchNumber) {watch.watch_id, ++call->last_number};
		watch.watch_id = call->last_number;
		good = send_message(call, etcd_proto_encode_create(&watch, &len), &len);
	}
	return good;
}

GrpcCall *
etcd_grpc_watch(Grpc *grpc, const EtcdWatch *watches, int nwatches, const Destination *destination)
{
	GrpcCall   *call = create_call(grpc, destination);

	if (call == NULL)
		return NULL;
	call->is_watch = true;
	if (!open_stream(call, destination, ETCD_GRPC_WATCH_PATH, false) ||
		!add_watches(call, watches, nwatches))
		etcd_grpc_release(grpc, &call);
	return call;
}

bool
etcd_grpc_replace_watches(GrpcCall *call, const EtcdWatch *watches, int nwatches,
						  const Destination *destination)
{
	if (call->ended != 0 || call->is_spoiled || call->token_number != destination->token_number ||
		call->max_size != destination->max_size ||
		strcmp(call->connection->url, destination->url) != 0)
		return false;
	for (int i = 0; i < call->nwatches; i++)
	{
		size_t		len = 0;

		if (!send_message(call, etcd_proto_encode_cancel(call->watches[i].number, &len), &len))
			return false;
	}
	call->late_room = LATE_SIZE;
	return add_watches(call, watches, nwatches);
}

/* Finds the watch of a frame.  False: there is none. */
static bool
find_watch(GrpcCall *call, EtcdWatchFrame *frame)
{
	/* a watch that was refused has no number */
	if (frame->canceled && frame->watch_id == -1)
	{
		call->is_spoiled = true;
		return true;
	}
	for (int i = 0; i < call->nwatches; i++)
	{
		if (call->watches[i].number != frame->watch_id)
			continue;
		frame->watch_id = call->watches[i].watch_id;
		call->is_spoiled |= frame->canceled;
		return true;
	}
	return false;
}

bool
etcd_grpc_has_news(const GrpcCall *call)
{
	size_t		len;

	return etcd_h2_message(call->stream, &len) != NULL;
}

/* It is of no watch that is there: of a replaced one, or nobody has asked for it. */
static void
drop_frame(GrpcCall *call, EtcdWatchFrame *frame, size_t len)
{
	bool		is_late = len <= call->late_room;

	call->late_room -= is_late ? len : call->late_room;
	etcd_h2_take(call->connection->h2, call->stream, is_late);
	if (!is_late)
		check_flood(call->connection);
	etcd_free_frame(frame);
}

/* A status of gRPC ends a watch like a frame that says so. */
static FrameResult
read_refusal(GrpcCall *call, EtcdWatchFrame *frame)
{
	memset(frame, 0, sizeof(*frame));
	if (call->refusal_read || etcd_h2_state(call->stream) != H2_ENDED)
		return FRAME_INCOMPLETE;
	call->refusal_read = true;
	frame->code = etcd_h2_status(call->stream, frame->message);
	frame->outcome = ETCD_REFUSED;
	return frame->code != 0 ? FRAME_READ : FRAME_INCOMPLETE;
}

FrameResult
etcd_grpc_read_frame(GrpcCall *call, EtcdWatchFrame *frame)
{
	const char *message;
	size_t		len;

	while ((message = etcd_h2_message(call->stream, &len)) != NULL)
	{
		etcd_proto_decode_frame(message, len, frame);
		if (frame->outcome == ETCD_ANSWERED && !find_watch(call, frame))
		{
			drop_frame(call, frame, len);
			continue;
		}
		etcd_h2_take(call->connection->h2, call->stream, true);
		return frame->outcome == ETCD_ANSWERED ? FRAME_READ : FRAME_UNREADABLE;
	}
	return read_refusal(call, frame);
}

void
etcd_grpc_pause(GrpcCall *call, bool paused)
{
	etcd_h2_pause(call->connection->h2, call->stream, paused);
}

EtcdOutcome
etcd_grpc_describe_end(const GrpcCall *call, char *message)
{
	EtcdOutcome outcome;

	(void) describe_failure(call, &outcome, message);
	return outcome;
}

/* ---- what has become of a call --------------------------------------- */

bool
etcd_grpc_floods(const GrpcCall *call)
{
	return call->connection->floods;
}

bool
etcd_grpc_is_refused(const GrpcCall *call)
{
	return call->ended != 0 && !call->timed_out && etcd_h2_fault(call->connection->h2) == NULL &&
		etcd_h2_state(call->stream) == H2_REFUSED;
}

/* ---- running --------------------------------------------------------- */

int64_t
etcd_grpc_due_ns(const Grpc *grpc)
{
	int64_t		due_ns = INT64_MAX;

	for (const Connection *c = grpc->connections; c != NULL; c = c->next)
	{
		if (etcd_http_is_readable(c->exchange) ||
			(etcd_http_is_writeable(c->exchange) && etcd_h2_has_output(c->h2)))
			return 0;
		if (ping_wakeup_ns(grpc, c) < due_ns)
			due_ns = ping_wakeup_ns(grpc, c);
	}
	return due_ns;
}

/* Closes the connections that nobody needs. */
static void
close_connections(Grpc *grpc, GrpcKeeps keeps, const void *ctx)
{
	Connection *next;

	for (Connection *c = grpc->connections; c != NULL; c = next)
	{
		next = c->next;
		if (c->ncalls > 0)
			continue;
		if (!is_usable(c) || etcd_h2_fault(c->h2) != NULL || !keeps(ctx, c->url, c->use))
			free_connection(grpc, c);
	}
}

void
etcd_grpc_run(Grpc *grpc, uint64_t turn, GrpcKeeps keeps, const void *ctx)
{
	grpc->turn = turn;
	for (Connection *c = grpc->connections; c != NULL; c = c->next)
	{
		run_ping(grpc, c);
		receive_bytes(grpc, c);
		send_bytes(grpc, c);
		/* nothing more is read of it or sent to it */
		if (etcd_h2_fault(c->h2) != NULL)
			etcd_http_time_out(grpc->http, c->exchange);
	}
	for (GrpcCall *call = grpc->calls; call != NULL; call = call->next)
	{
		if (etcd_h2_is_answered(call->stream))
			prove(call->connection);
		if (call->ended == 0 && is_complete(call))
			call->ended = ++grpc->http->nended;
	}
	close_connections(grpc, keeps, ctx);
}

void
etcd_grpc_answer_pings(Grpc *grpc)
{
	for (Connection *c = grpc->connections; c != NULL; c = c->next)
		etcd_h2_answer_ping(c->h2);
}

void
etcd_grpc_free(Grpc *grpc)
{
	while (grpc->connections != NULL)
		free_connection(grpc, grpc->connections);
}
