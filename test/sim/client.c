/*-------------------------------------------------------------------------
 *
 * client.c
 *	  The transport of an instance, as src/etcd/client.h describes it.
 *
 * Messages pass as bytes.  etcd_encode_request() encodes a request, gateway.c
 * decodes it at a member and encodes the answer, and etcd_decode_answer()
 * decodes that.  etcd_decode_frame() decodes the frames of a watch stream,
 * which arrive in pieces of any size.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"
#include "gateway.h"
#include "instance.h"
#include "network.h"
#include "plan.h"
#include "server.h"

/* The client closes a connection that is silent for that long. */
#define DEAD_CONNECTION_NS	(25 * SECOND)

/* etcd's --max-txn-ops, the limit of each of the three lists. */
#define MAX_TXN_OPS		128

bool		passes_structures;

/* How the stream of a request ends. */
typedef enum Fate
{
	FATE_TRAILERS,				/* as it should */
	FATE_DIES,					/* without an answer, after the request was executed */
	FATE_REFUSED				/* before that */
} Fate;

/* A unary request that is sent to one endpoint. */
typedef struct Exchange
{
	Instance   *in;
	uint32_t	life;
	uint64_t	id;
	EtcdRequestKind kind;
	int			endpoint;
	int			member;
	uint32_t	boot;			/* process of the member that it was sent to */
	int64_t		timeout_ns;
	int64_t		deadline_ns;	/* by the instance's clock */
	bool		held;			/* is kept while the link is cut, and not lost */
	Fate		fate;
	int64_t		sent_ns;
	const EtcdRequest *sent;	/* as the core has sent it */
	char	   *body;			/* NULL: it passes as a structure */
	size_t		len;
	EtcdRequest request;		/* as the gateway has decoded it, if it has come there */
	bool		read;
	bool		reads_only;
	bool		is_second;		/* the second of two that were sent for one request */
	struct Exchange *twin;		/* the other one of two, until one is answered */
	bool		told;			/* an answer or a time-out was passed on */
} Exchange;

typedef struct Reply
{
	Exchange   *exchange;
	const EtcdAnswer *unwritten;
	char	   *bytes;			/* no answer and no bytes: the connection was closed */
	size_t		len;
	long		http_status;
} Reply;

typedef struct Piece
{
	struct Piece *next;
	ClientStream *stream;
	bool		is_end;			/* the end of the stream */
	const EtcdWatchFrame *unwritten;
	char	   *bytes;
	size_t		len;
	int64_t		arrives_ns;
} Piece;

struct ClientStream
{
	Instance   *in;
	uint32_t	life;
	int			endpoint;
	int			member;
	uint32_t	boot;
	bool		ended;
	bool		connected;
	EtcdWatch  *watches;
	int			nwatches;
	Stream	   *server;
	Piece	   *first;			/* pieces on the way, in order */
	Piece	   *last;
	char	   *buffer;			/* bytes that arrived and are not decoded yet */
	size_t		nbuffered;
	size_t		room;
};

/* ---- endpoints ---------------------------------------------------------------- */

static int
member_of(int endpoint)
{
	return plan.balanced ? random_below(plan.nmembers) : endpoint % plan.nmembers;
}

static void
end_stream(Instance *in)
{
	ClientStream *stream = in->client.stream;

	if (stream == NULL)
		return;
	in->client.stream = NULL;
	in->client.stream_end_due = true;
	stream->ended = true;
	if (stream->server)
		stream_close(stream->server);
	free(stream->buffer);
	stream->buffer = NULL;
}

static void
use_endpoint(Instance *in, int endpoint)
{
	if (endpoint == in->client.endpoint)
		return;
	in->client.endpoint = endpoint;
	trace(in->name, "goes on to endpoint %d", endpoint);
	end_stream(in);
}

/* Changes to the next endpoint if this one is in use. */
static void
leave_endpoint(Instance *in, int endpoint)
{
	if (endpoint == in->client.endpoint)
		use_endpoint(in, (endpoint + 1) % in->client.nendpoints);
}

void
client_change_endpoint(Instance *in, int endpoint)
{
	leave_endpoint(in, endpoint);
}

void
client_reset(Instance *in)
{
	end_stream(in);
	memset(&in->client, 0, sizeof(in->client));
}

void
client_configure(Instance *in, int nendpoints, int64_t request_timeout_ns)
{
	in->client.nendpoints = nendpoints;
	in->client.request_timeout_ns = request_timeout_ns;
	if (in->client.endpoint >= nendpoints)
	{
		end_stream(in);
		in->client.endpoint = 0;
	}
}

/* ---- unary requests ------------------------------------------------------------ */

/* If two were sent for one request, the first answer counts. */
static void
take_answer(Exchange *exchange, EtcdAnswer *answer)
{
	Instance   *in = exchange->in;
	Exchange   *twin = exchange->twin;
	bool		blames = etcd_blames_endpoint(answer->outcome, answer->code, answer->message);

	exchange->told = true;
	answer->endpoint = exchange->endpoint < in->client.nendpoints ? exchange->endpoint : -1;
	if (blames)
		leave_endpoint(in, exchange->endpoint);
	if (twin != NULL && blames)
	{
		twin->twin = NULL;		/* its answer may be better */
		trace(in->name, "goes on with the second try of %" PRIu64, exchange->id);
		etcd_free_answer(answer);
		return;
	}
	if (twin != NULL)
		twin->told = true;
	if (twin != NULL && exchange->is_second && answer->endpoint >= 0)
		use_endpoint(in, answer->endpoint);
	checker_answered(in, exchange->id, exchange->sent, exchange->read, answer);
	election_receive(in->core, instance_now(in), exchange->id, answer);
	etcd_free_answer(answer);
}

static void
take_reply(void *subject)
{
	Reply	   *reply = subject;
	Exchange   *exchange = reply->exchange;
	EtcdAnswer	answer;

	if (exchange->told || exchange->life != exchange->in->life)
	{
		free(reply->bytes);
		return;
	}
	if (reply->unwritten != NULL)
		answer = *reply->unwritten;
	else if (reply->bytes != NULL)
		etcd_decode_answer(exchange->kind, reply->http_status, reply->bytes, reply->len, &answer);
	else
	{
		memset(&answer, 0, sizeof(answer));
		answer.outcome = ETCD_NO_ANSWER;
		strcpy(answer.message, "the connection was closed");
	}
	free(reply->bytes);
	take_answer(exchange, &answer);
}

static void
take_timeout(void *subject)
{
	Exchange   *exchange = subject;
	EtcdAnswer	answer = {.outcome = ETCD_NO_ANSWER};

	if (exchange->told || exchange->life != exchange->in->life)
		return;
	strcpy(answer.message, "no answer in time");
	take_answer(exchange, &answer);
}

static void start_exchange(Exchange *exchange);

/* Half of the time-out is over: sends a read to another endpoint, too. */
static void
take_lateness(void *subject)
{
	Exchange   *late = subject;
	Instance   *in = late->in;
	Exchange   *twin;

	if (late->told || late->life != in->life || late->is_second || late->twin != NULL ||
		!late->reads_only || instance_clock(in) >= late->deadline_ns ||
		late->endpoint >= in->client.nendpoints || in->client.nendpoints < 2)
		return;
	twin = run_alloc(sizeof(Exchange));
	twin->in = in;
	twin->life = late->life;
	twin->id = late->id;
	twin->kind = late->kind;
	twin->endpoint = (late->endpoint + 1) % in->client.nendpoints;
	twin->sent = late->sent;
	twin->body = late->body;
	twin->len = late->len;
	twin->reads_only = true;
	twin->is_second = true;
	twin->twin = late;
	late->twin = twin;
	trace(in->name, "sends %" PRIu64 " to endpoint %d, too", late->id, twin->endpoint);
	start_exchange(twin);
}

typedef enum Timer
{
	TIMER_LATE,
	TIMER_OVER
} Timer;

static void
time_out(void *subject, uint64_t timer)
{
	Exchange   *exchange = subject;

	if (!exchange->told)
		instance_deliver(exchange->in, exchange->life, timer == TIMER_LATE ? take_lateness : take_timeout,
						 exchange, true);
}

/* A reply has come over the network. */
static void
reply_arrives(void *subject, uint64_t tag)
{
	Reply	   *reply = subject;
	Exchange   *exchange = reply->exchange;

	if (exchange->told || exchange->life != exchange->in->life ||
		!link_answers(exchange->in->number, exchange->member))
	{
		free(reply->bytes);
		return;
	}
	instance_deliver(exchange->in, exchange->life, take_reply, reply, false);
}

/* A member has answered, or closed the connection. */
static void
member_answers(void *owner, const EtcdAnswer *answer)
{
	Exchange   *exchange = owner;
	Reply	   *reply = run_alloc(sizeof(Reply));

	if (exchange->told || network_loses())
		return;
	reply->exchange = exchange;
	if (exchange->fate == FATE_DIES)
		answer = NULL;
	if (answer != NULL && random_chance(plan.garbage))
		reply->bytes = gateway_write_garbage(&reply->len, &reply->http_status);
	else if (answer != NULL && passes_structures && answer->outcome == ETCD_ANSWERED)
		reply->unwritten = gateway_copy_answer(answer);
	else if (answer != NULL)
		reply->bytes = gateway_write_answer(exchange->kind, answer, &reply->len, &reply->http_status);
	events_after(network_delay(exchange->in->number, exchange->member), reply_arrives, reply, 0);
}

/* A request has come over the network. */
static void
request_arrives(void *subject, uint64_t tag)
{
	Exchange   *exchange = subject;
	int			m = exchange->member;

	if (link_is_cut(exchange->in->number, m))
	{
		/* TCP sends it again, until the client closes the connection */
		if (exchange->held && now_ns - exchange->sent_ns < 10 * SECOND)
			events_after(random_between(50 * MS, 300 * MS), request_arrives, exchange, tag);
		return;
	}
	if (!cluster.members[m].up || cluster.members[m].boot != exchange->boot || exchange->fate == FATE_REFUSED)
	{
		member_answers(exchange, NULL);
		return;
	}
	if (!exchange->read)
	{
		exchange->read = true;
		if (exchange->body == NULL)
			exchange->request = *exchange->sent;
		else if (!gateway_read_request(etcd_request_path(ETCD_JSON, exchange->kind), exchange->body,
									   exchange->len, &exchange->request))
			return;
	}
	if (exchange->request.ncompares > MAX_TXN_OPS || exchange->request.nsuccess > MAX_TXN_OPS ||
		exchange->request.nfailure > MAX_TXN_OPS)
		fail_run("%s sends a txn that etcd refuses: too many operations", exchange->in->name);
	server_call(m, &exchange->request, exchange->timeout_ns, BY_CLIENT,
				&exchange->in->served, member_answers, exchange);
}

/* Sends a request to its endpoint. */
static void
start_exchange(Exchange *exchange)
{
	Instance   *in = exchange->in;
	int64_t		timeout_ns = in->client.request_timeout_ns;
	int64_t		clock_ns = instance_clock(in);

	exchange->member = member_of(exchange->endpoint);
	exchange->boot = cluster.members[exchange->member].boot;
	exchange->timeout_ns = timeout_ns;
	exchange->deadline_ns = clock_ns + timeout_ns;
	exchange->held = random_chance(3000);
	exchange->sent_ns = now_ns;
	if (random_chance(plan.dead_streams))
		exchange->fate = random_chance(5000) ? FATE_DIES : FATE_REFUSED;
	if (exchange->reads_only && !exchange->is_second)
		events_at(instance_true_time(in, clock_ns + timeout_ns / 2), time_out, exchange, TIMER_LATE);
	events_at(instance_true_time(in, clock_ns + timeout_ns), time_out, exchange, TIMER_OVER);
	if (network_loses())
		return;
	events_after(network_delay(in->number, exchange->member), request_arrives, exchange, 0);
	if (random_chance(plan.repeat))
		events_after(network_delay(in->number, exchange->member) + random_between(0, 500 * MS), request_arrives, exchange, 1);
}

/* May it be sent to two endpoints at once? */
static bool
reads_only(const EtcdRequest *request)
{
	return request->kind == ETCD_KEEPALIVE || request->kind == ETCD_TIME_TO_LIVE ||
		(request->kind == ETCD_TXN && !etcd_writes(request->success, request->nsuccess));
}

void
client_send(Instance *in, uint64_t id, const EtcdRequest *request)
{
	Exchange   *exchange = run_alloc(sizeof(Exchange));

	exchange->in = in;
	exchange->life = in->life;
	exchange->id = id;
	exchange->kind = request->kind;
	exchange->endpoint = in->client.endpoint;
	exchange->reads_only = reads_only(request);
	exchange->sent = gateway_copy_request(request);
	if (!passes_structures)
	{
		char	   *body = etcd_encode_request(ETCD_JSON, request, &exchange->len);

		exchange->body = run_copy(body, exchange->len);
		free(body);
	}
	start_exchange(exchange);
}

/* ---- the watch stream ------------------------------------------------------------ */

/* The stream has failed; the core has not closed it. */
static void
take_failure(void *subject)
{
	ClientStream *stream = subject;
	Instance   *in = stream->in;

	if (stream->ended || stream->life != in->life)
		return;
	end_stream(in);
	leave_endpoint(in, stream->endpoint);
}

static void
take_frame(ClientStream *stream, const EtcdWatchFrame *frame)
{
	Instance   *in = stream->in;

	checker_watched(in, frame);
	election_watched(in->core, instance_now(in), frame);
	checker_watched_end(in, frame, in->client.stream == stream);
}

static void
take_piece(void *subject)
{
	Piece	   *piece = subject;
	ClientStream *stream = piece->stream;
	Instance   *in = stream->in;
	size_t		taken = 0;

	if (stream->ended || stream->life != in->life)
	{
		free(piece->bytes);
		return;
	}
	if (piece->is_end)
	{
		take_failure(stream);
		return;
	}
	if (piece->unwritten != NULL)
		take_frame(stream, piece->unwritten);
	if (piece->bytes == NULL)
		return;
	if (stream->nbuffered + piece->len > stream->room)
	{
		stream->room = 2 * stream->room + piece->len;
		stream->buffer = realloc(stream->buffer, stream->room);
		if (stream->buffer == NULL)
			abort();
	}
	memcpy(stream->buffer + stream->nbuffered, piece->bytes, piece->len);
	stream->nbuffered += piece->len;
	free(piece->bytes);

	while (!stream->ended)
	{
		EtcdWatchFrame frame;
		ssize_t		n = etcd_decode_frame(stream->buffer + taken, stream->nbuffered - taken, &frame);

		if (n == 0)
			break;
		if (n < 0)
			fail_run("a frame of the watch stream was not understood: %s", frame.message);
		if (n < 0 || frame.outcome != ETCD_ANSWERED)
		{
			end_stream(in);
			if (etcd_blames_endpoint(frame.outcome, frame.code, frame.message))
				leave_endpoint(in, stream->endpoint);
			if (n > 0)
				etcd_free_frame(&frame);
			return;
		}
		taken += (size_t) n;
		take_frame(stream, &frame);
		etcd_free_frame(&frame);
	}
	if (stream->ended)
		return;
	stream->nbuffered -= taken;
	memmove(stream->buffer, stream->buffer + taken, stream->nbuffered);
}

/* Passes on the pieces that have arrived, in order. */
static void
pump(void *subject, uint64_t tag)
{
	ClientStream *stream = subject;
	Instance   *in = stream->in;

	if (stream->life == in->life && !stream->ended && stream->first != NULL &&
		!link_answers(in->number, stream->member))
	{
		if (now_ns - stream->first->arrives_ns > DEAD_CONNECTION_NS)
			instance_deliver(in, stream->life, take_failure, stream, false);
		else
			events_after(random_between(100 * MS, 300 * MS), pump, stream, 0);
		return;
	}
	while (stream->first != NULL && stream->first->arrives_ns <= now_ns)
	{
		Piece	   *piece = stream->first;

		stream->first = piece->next;
		if (stream->first == NULL)
			stream->last = NULL;
		if (stream->ended || stream->life != in->life)
			free(piece->bytes);
		else
			instance_deliver(in, stream->life, take_piece, piece, false);
	}
}

static void
send_piece(ClientStream *stream, Piece content)
{
	Piece	   *piece = run_alloc(sizeof(Piece));
	int64_t		arrives_ns = now_ns + network_delay(stream->in->number, stream->member);

	if (content.is_end && random_chance(2000))
		arrives_ns += DEAD_CONNECTION_NS;	/* its host is down, too, and closes no connection */
	if (stream->last != NULL && stream->last->arrives_ns > arrives_ns)
		arrives_ns = stream->last->arrives_ns;
	*piece = content;
	piece->stream = stream;
	piece->arrives_ns = arrives_ns;
	if (stream->last != NULL)
		stream->last->next = piece;
	else
		stream->first = piece;
	stream->last = piece;
	events_at(arrives_ns, pump, stream, 0);
}

/*
 * Sends the first part of a frame that comes in two pieces, and returns its
 * length.  The second part has more than the end of the line.
 */
static size_t
send_first_piece(ClientStream *stream, const Piece *whole)
{
	Piece		first = {.len = 1 + random_next() % (whole->bytes ? whole->len - 2 : 1)};

	if (whole->bytes != NULL)
	{
		first.bytes = malloc(first.len);
		if (first.bytes == NULL)
			abort();
		memcpy(first.bytes, whole->bytes, first.len);
	}
	send_piece(stream, first);
	return first.len;
}

static void
member_writes(void *owner, const EtcdWatchFrame *frame)
{
	ClientStream *stream = owner;
	Piece		piece = {.is_end = frame == NULL};

	if (stream->ended || stream->life != stream->in->life)
		return;
	if (frame != NULL && passes_structures && frame->outcome == ETCD_ANSWERED)
		piece.unwritten = gateway_copy_frame(frame);
	else if (frame != NULL)
		piece.bytes = gateway_write_frame(frame, &piece.len);
	if (frame != NULL && random_chance(1000))
	{
		size_t		sent = send_first_piece(stream, &piece);

		if (piece.bytes != NULL)
		{
			piece.len -= sent;
			memmove(piece.bytes, piece.bytes + sent, piece.len);
		}
	}
	send_piece(stream, piece);
}

static void
connect_times_out(void *subject, uint64_t tag)
{
	ClientStream *stream = subject;

	if (!stream->connected && !stream->ended)
		instance_deliver(stream->in, stream->life, take_failure, stream, true);
}

static void
stream_arrives(void *subject, uint64_t tag)
{
	ClientStream *stream = subject;
	int			m = stream->member;

	if (stream->ended || stream->life != stream->in->life || link_is_cut(stream->in->number, m))
		return;
	stream->connected = true;
	if (!cluster.members[m].up || cluster.members[m].boot != stream->boot)
		send_piece(stream, (Piece) {.is_end = true});
	else
		stream->server = stream_open(m, stream->watches, stream->nwatches, &stream->in->served,
									 member_writes, stream);
}

void
client_watch(Instance *in, const EtcdWatch *watches, int nwatches)
{
	ClientStream *stream;

	end_stream(in);
	in->client.stream_end_due = false;
	if (nwatches == 0)
		return;
	stream = run_alloc(sizeof(ClientStream));
	stream->in = in;
	stream->life = in->life;
	stream->endpoint = in->client.endpoint;
	stream->member = member_of(stream->endpoint);
	stream->boot = cluster.members[stream->member].boot;
	if (passes_structures)
	{
		stream->watches = gateway_copy_watches(watches, nwatches);
		stream->nwatches = nwatches;
	}
	else
	{
		size_t		len;
		char	   *body = etcd_encode_watches(watches, nwatches, &len);

		(void) gateway_read_watches(body, len, &stream->watches, &stream->nwatches);
		free(body);
	}
	if (stream->nwatches != nwatches)
		fail_run("%d watches were asked for, %d arrived", nwatches, stream->nwatches);
	in->client.stream = stream;
	events_at(instance_true_time(in, instance_clock(in) + in->client.request_timeout_ns),
			  connect_times_out, stream, 0);
	if (!network_loses())
		events_after(network_delay(in->number, stream->member), stream_arrives, stream, 0);
}
