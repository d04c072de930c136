/*-------------------------------------------------------------------------
 *
 * call.c
 *	  Calls: a request or a watch stream at one endpoint, in the dialect of the
 *	  settings.
 *
 * A call that waits for a token begins when the endpoint has one.  An endpoint
 * that floods a connection is left alone for a while.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "call.h"
#include "client_state.h"
#include "gateway.h"

/*
 * The time for which an endpoint that has flooded a connection is left alone.  The time
 * doubles with each flood.  After SHUN_MEMORY_MS without a flood it begins anew.
 */
#define SHUN_LEAST_MS		3000
#define SHUN_MOST_MS		60000
#define SHUN_MEMORY_MS		600000

struct Call
{
	Call	   *next;
	char	   *url;
	Destination destination;
	const EtcdRequest *request; /* NULL: a watch stream */
	EtcdWatch  *watches;		/* copies, until the call begins */
	int			nwatches;
	/* once it has begun: one of them */
	GrpcCall   *grpc;
	Exchange   *exchange;
	Payload		payload;
	int64_t		begun_ns;
	bool		was_refused;	/* and was sent again */
	/* if it ended before it began */
	uint64_t	ended;
	EtcdOutcome outcome;
	int			code;
	bool		timed_out;
	char		message[ETCD_MESSAGE_SIZE];
};

static Endpoint *
find_endpoint(EtcdClient *client, const char *url)
{
	int			i = etcd_find_endpoint(client->endpoints, client->nendpoints, url);

	return i >= 0 ? &client->endpoints[i] : NULL;
}

/* ---- endpoints that flood -------------------------------------------- */

static bool
is_shunned(const Endpoint *endpoint)
{
	return endpoint != NULL && endpoint->shunned_until_ns > clock_monotonic_ns();
}

void
etcd_call_shun(EtcdClient *client, const char *url)
{
	Endpoint   *endpoint = find_endpoint(client, url);
	int64_t		now = clock_monotonic_ns();
	int64_t		shun_ms = SHUN_LEAST_MS;

	if (endpoint == NULL || is_shunned(endpoint))
		return;
	if (now - endpoint->shunned_until_ns > SHUN_MEMORY_MS * NSEC_PER_MSEC)
		endpoint->nfloods = 0;
	for (int i = 0; i < endpoint->nfloods && shun_ms < SHUN_MOST_MS; i++)
		shun_ms *= 2;
	endpoint->nfloods++;
	if (shun_ms > SHUN_MOST_MS)
		shun_ms = SHUN_MOST_MS;
	endpoint->shunned_until_ns = now + shun_ms * NSEC_PER_MSEC;
}

/* ---- calls ----------------------------------------------------------- */

static void
fail(EtcdClient *client, Call *call, EtcdOutcome outcome, const char *why, bool timed_out)
{
	call->ended = ++client->http.nended;
	call->outcome = outcome;
	call->timed_out = timed_out;
	etcd_format_message(call->message, "%s", why);
}

static bool
is_waiting(const Call *call)
{
	return call->grpc == NULL && call->exchange == NULL && call->ended == 0;
}

/*
 * With the name of a user, nothing is said in gRPC before there is a token: etcd
 * would take the name in the certificate.  A request is refused, which asks for
 * a token, and a watch waits.
 */
static bool
lacks_token(const EtcdClient *client, const Call *call)
{
	return client->settings.username != NULL && call->destination.token_number == 0 &&
		(call->request == NULL || call->request->kind != ETCD_AUTHENTICATE);
}

/* False if memory is out. */
static bool
begin_grpc(EtcdClient *client, Call *call)
{
	if (call->request == NULL)
	{
		if (lacks_token(client, call))
			return true;
		call->grpc = etcd_grpc_watch(&client->grpc, call->watches, call->nwatches,
									 &call->destination);
		return call->grpc != NULL;
	}
	if (lacks_token(client, call))
	{
		fail(client, call, ETCD_REFUSED, "there is no token yet", false);
		call->code = ETCD_CODE_UNAUTHENTICATED;
		return true;
	}
	call->grpc = etcd_grpc_start(&client->grpc, call->request, &call->destination);
	return call->grpc != NULL;
}

/* False if memory is out. */
static bool
begin_json(EtcdClient *client, Call *call)
{
	bool		good = call->request != NULL ?
		etcd_gateway_encode_request(call->request, &call->payload) :
		etcd_gateway_encode_watches(call->watches, call->nwatches, &call->payload);

	if (good)
		call->exchange = etcd_gateway_start(&client->http, &client->settings, &call->payload,
											&call->destination);
	return call->exchange != NULL;
}

/* With the token that the endpoint has now. */
static void
give_token(EtcdClient *client, Destination *destination, const EtcdRequest *request)
{
	const Endpoint *endpoint = find_endpoint(client, destination->url);

	if (endpoint == NULL || (request != NULL && request->kind == ETCD_AUTHENTICATE))
		return;
	destination->token = endpoint->token;
	destination->token_number = endpoint->token_number;
}

static void
fail_shunned(EtcdClient *client, Call *call)
{
	char		why[ETCD_MESSAGE_SIZE];

	etcd_format_message(why, "etcd at \"%s\" flooded the connection with bytes that nobody waits "
							 "for, and is left alone for a while",
						call->url);
	fail(client, call, ETCD_NO_ANSWER, why, false);
}

/* Begins a call if it can.  False if memory is out. */
static bool
begin(EtcdClient *client, Call *call)
{
	if (is_shunned(find_endpoint(client, call->url)))
	{
		fail_shunned(client, call);
		return true;
	}
	call->begun_ns = clock_monotonic_ns();
	give_token(client, &call->destination, call->request);
	return client->settings.dialect == ETCD_GRPC ?
		begin_grpc(client, call) : begin_json(client, call);
}

/* Copies of the watches, in one piece.  False if memory is out. */
static bool
copy_watches(Call *call, const EtcdWatch *watches, int nwatches)
{
	size_t		size = nwatches * sizeof(EtcdWatch);
	char	   *bytes;

	for (int i = 0; i < nwatches; i++)
		size += watches[i].key.len + watches[i].range_end.len;
	call->watches = malloc(size);
	if (call->watches == NULL)
		return false;
	memcpy(call->watches, watches, nwatches * sizeof(EtcdWatch));
	call->nwatches = nwatches;
	bytes = (char *) (call->watches + nwatches);
	for (int i = 0; i < nwatches; i++)
	{
		EtcdBytes  *copied[] = {&call->watches[i].key, &call->watches[i].range_end};

		for (int j = 0; j < 2; j++)
		{
			if (copied[j]->len > 0)
				memcpy(bytes, copied[j]->data, copied[j]->len);
			copied[j]->data = bytes;
			bytes += copied[j]->len;
		}
	}
	return true;
}

/* NULL if memory is out. */
static Call *
create_call(const Destination *destination)
{
	Call	   *call = calloc(1, sizeof(Call));

	if (call == NULL)
		return NULL;
	call->destination = *destination;
	call->url = strdup(destination->url);
	call->destination.url = call->url;
	if (call->url == NULL)
	{
		free(call);
		return NULL;
	}
	return call;
}

static Call *
start(EtcdClient *client, Call *call)
{
	call->next = client->calls;
	client->calls = call;
	if (!begin(client, call))
		etcd_call_release(client, &call);
	return call;
}

Call *
etcd_call_send(EtcdClient *client, const EtcdRequest *request, const Destination *destination)
{
	Call	   *call = create_call(destination);

	if (call == NULL)
		return NULL;
	call->request = request;
	return start(client, call);
}

Call *
etcd_call_watch(EtcdClient *client, const EtcdWatch *watches, int nwatches,
				const Destination *destination)
{
	Call	   *call = create_call(destination);

	if (call != NULL && !copy_watches(call, watches, nwatches))
		etcd_call_release(client, &call);
	return call != NULL ? start(client, call) : NULL;
}

bool
etcd_call_replace_watches(EtcdClient *client, Call *call, const EtcdWatch *watches, int nwatches,
						  const Destination *destination)
{
	Destination copy = *destination;

	give_token(client, &copy, NULL);
	return call->grpc != NULL && etcd_grpc_replace_watches(call->grpc, watches, nwatches, &copy);
}

void
etcd_call_release(EtcdClient *client, Call **call)
{
	Call	   *released = *call;
	Call	  **link = &client->calls;

	if (released == NULL)
		return;
	*call = NULL;
	while (*link != NULL && *link != released)
		link = &(*link)->next;
	if (*link != NULL)
		*link = released->next;
	etcd_grpc_release(&client->grpc, &released->grpc);
	etcd_http_release(&client->http, &released->exchange);
	etcd_gateway_free_payload(&released->payload);
	free(released->watches);
	free(released->url);
	free(released);
}

void
etcd_call_time_out(EtcdClient *client, Call *call)
{
	if (call->grpc != NULL)
		etcd_grpc_time_out(&client->grpc, call->grpc);
	else if (call->exchange != NULL)
		etcd_http_time_out(&client->http, call->exchange);
	else if (call->ended == 0)
	{
		char		why[ETCD_MESSAGE_SIZE];

		etcd_format_message(why, "no answer from etcd at \"%s\" within %ld ms", call->url,
							call->destination.timeout_ms);
		fail(client, call, ETCD_NO_ANSWER, why, true);
	}
}

uint64_t
etcd_call_ended(const Call *call)
{
	return call->grpc != NULL ? etcd_grpc_ended(call->grpc) :
		call->exchange != NULL ? etcd_http_ended(call->exchange) : call->ended;
}

const char *
etcd_call_url(const Call *call)
{
	return call->url;
}

bool
etcd_call_was_connected(const Call *call)
{
	return call->grpc != NULL ? etcd_grpc_was_connected(call->grpc) :
		call->exchange != NULL && etcd_http_was_connected(call->exchange);
}

bool
etcd_call_got_nothing(const Call *call)
{
	return call->exchange != NULL && etcd_http_got_nothing(call->exchange);
}

bool
etcd_call_read_answer(Call *call, EtcdAnswer *answer)
{
	if (call->grpc != NULL)
		return etcd_grpc_read_answer(call->grpc, answer);
	if (call->exchange != NULL)
		return etcd_gateway_read_answer(call->exchange, call->request->kind, answer);
	memset(answer, 0, sizeof(*answer));
	answer->outcome = call->outcome;
	answer->code = call->code;
	memcpy(answer->message, call->message, ETCD_MESSAGE_SIZE);
	return call->timed_out;
}

bool
etcd_call_has_news(const Call *call)
{
	return call->grpc != NULL ? etcd_grpc_has_news(call->grpc) :
		call->exchange != NULL && etcd_http_has_news(call->exchange);
}

FrameResult
etcd_call_read_frame(EtcdClient *client, Call *call, EtcdWatchFrame *frame)
{
	if (call->grpc != NULL)
		return etcd_grpc_read_frame(call->grpc, frame);
	return call->exchange != NULL ?
		etcd_gateway_read_frame(&client->http, call->exchange, frame) : FRAME_INCOMPLETE;
}

void
etcd_call_pause(EtcdClient *client, Call *call, bool paused)
{
	if (call->grpc != NULL)
		etcd_grpc_pause(call->grpc, paused);
	else if (call->exchange != NULL && paused)
		etcd_http_pause(&client->http, call->exchange);
	else if (call->exchange != NULL)
		etcd_http_resume(&client->http, call->exchange);
}

EtcdOutcome
etcd_call_describe_end(const Call *call, char *message)
{
	if (call->grpc != NULL)
		return etcd_grpc_describe_end(call->grpc, message);
	if (call->exchange != NULL)
		return etcd_gateway_describe_end(call->exchange, message);
	memcpy(message, call->message, ETCD_MESSAGE_SIZE);
	return call->outcome;
}

/* ---- running --------------------------------------------------------- */

/*
 * The server has not looked at the request: it allows fewer streams at a time
 * than were begun before it could say so, or it goes away.
 */
static void
send_again(EtcdClient *client, Call *call)
{
	long		elapsed_ms = (long) ((clock_monotonic_ns() - call->begun_ns) / NSEC_PER_MSEC);

	call->was_refused = true;
	if (elapsed_ms >= call->destination.timeout_ms)
		return;
	call->destination.timeout_ms -= elapsed_ms;
	etcd_grpc_release(&client->grpc, &call->grpc);
	if (!begin(client, call))
		fail(client, call, ETCD_NO_ANSWER, "out of memory", false);
}

int64_t
etcd_call_due_ns(const EtcdClient *client)
{
	int64_t		due_ns = etcd_grpc_due_ns(&client->grpc);

	return etcd_http_due_ns(&client->http) < due_ns ? etcd_http_due_ns(&client->http) : due_ns;
}

/* Does the server send without end what nobody waits for? */
static bool
is_flooded(const Call *call)
{
	return call->grpc != NULL ? etcd_grpc_floods(call->grpc) :
		call->exchange != NULL && etcd_http_floods(call->exchange);
}

/*
 * One connection to each endpoint is kept, for requests and for its status, and at the
 * endpoint in use those of watches.  In JSON none is kept: it would take the place of
 * one that JSON keeps.
 */
static bool
keeps(const void *ctx, const char *url, int use)
{
	const EtcdClient *client = ctx;
	int			i = etcd_find_endpoint(client->endpoints, client->nendpoints, url);

	return client->settings.dialect == ETCD_GRPC && i >= 0 &&
		(use == 0 || i == client->endpoint);
}

static void
run_grpc(EtcdClient *client)
{
	etcd_grpc_run(&client->grpc, client->turn, keeps, client);
}

void
etcd_call_run(EtcdClient *client)
{
	etcd_http_run_timer(&client->http);
	run_grpc(client);
	for (Call *call = client->calls; call != NULL; call = call->next)
	{
		if (is_waiting(call) && !begin(client, call))
			fail(client, call, ETCD_NO_ANSWER, "out of memory", false);
		else if (is_flooded(call))
			etcd_call_shun(client, call->url);
		else if (call->grpc != NULL && call->request != NULL && !call->was_refused &&
				 etcd_grpc_is_refused(call->grpc))
			send_again(client, call);
	}
	run_grpc(client);
	etcd_http_run_timer(&client->http);
}

void
etcd_call_free(EtcdClient *client)
{
	etcd_grpc_free(&client->grpc);
}
