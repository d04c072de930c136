/*-------------------------------------------------------------------------
 *
 * etcd_call.c
 *	  Calls: a request or a watch stream at one endpoint, in the dialect that
 *	  the endpoint speaks.
 *
 * An endpoint that was not tried yet is greeted: a request that changes nothing
 * is sent in gRPC.  Calls wait until it is known which dialect to use:
 *
 *	the answer is of gRPC			gRPC
 *	it is HTTP/1, or another type	the request is sent in JSON; if that is
 *									answered by etcd: JSON
 *	anything else					none: the calls fail, and the endpoint is
 *									greeted again by the next one
 *
 * A call is never repeated in the other dialect.  An endpoint that speaks JSON
 * is greeted in gRPC from time to time, beside the calls.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "etcd_client_internal.h"

/* When an endpoint that speaks JSON alone is tried in gRPC again. */
#define RETRY_GRPC_MS		3600000

/*
 * For so long an endpoint is left alone that has flooded a connection, and twice
 * as long each time.  If it has not done so for some time, that is forgotten.
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

/* A greeting: the first request to an endpoint. */
struct Hello
{
	Hello	   *next;
	char	   *url;
	int64_t		deadline_ns;
	GrpcCall   *grpc;
	Exchange   *exchange;		/* in JSON, once it is known that there is no gRPC */
	Payload		payload;
};

static const EtcdRequest hello_request = {.kind = ETCD_STATUS};

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
	endpoint->shunned_until_ns = now + (shun_ms < SHUN_MOST_MS ? shun_ms : SHUN_MOST_MS) * NSEC_PER_MSEC;
}

/* ---- greetings ------------------------------------------------------- */

static void
free_hello(EtcdClient *client, Hello *hello)
{
	Hello	  **link = &client->hellos;

	while (*link != NULL && *link != hello)
		link = &(*link)->next;
	if (*link != NULL)
		*link = hello->next;
	etcd_grpc_release(client, &hello->grpc);
	etcd_http_release(&client->http, &hello->exchange);
	etcd_gateway_free_payload(&hello->payload);
	free(hello->url);
	free(hello);
}

/* It uses a connection of its own, which is kept if it speaks gRPC. */
static Destination
hello_destination(const EtcdClient *client, const char *url)
{
	return (Destination) {
		.url = url,
		.timeout_ms = client->settings.request_timeout_ms,
		.connect_timeout_ms = client->settings.connect_timeout_ms,
		.connects = true,
		.max_size = ETCD_MAX_ANSWER_SIZE
	};
}

/* Greets an endpoint, unless that is under way.  False if memory is out. */
static bool
greet(EtcdClient *client, const char *url)
{
	Destination destination = hello_destination(client, url);
	Hello	   *hello;

	for (hello = client->hellos; hello != NULL; hello = hello->next)
	{
		if (strcmp(hello->url, url) == 0)
			return true;
	}
	hello = calloc(1, sizeof(Hello));
	if (hello == NULL)
		return false;
	hello->url = strdup(url);
	hello->deadline_ns = clock_monotonic_ns() + destination.timeout_ms * NSEC_PER_MSEC;
	if (hello->url != NULL)
		hello->grpc = etcd_grpc_start(client, &hello_request, &destination);
	if (hello->grpc == NULL)
	{
		free_hello(client, hello);
		return false;
	}
	hello->next = client->hellos;
	client->hellos = hello;
	return true;
}

static bool
greet_in_json(EtcdClient *client, Hello *hello)
{
	Destination destination = hello_destination(client, hello->url);

	etcd_grpc_release(client, &hello->grpc);
	hello->deadline_ns = clock_monotonic_ns() + destination.timeout_ms * NSEC_PER_MSEC;
	if (etcd_gateway_encode_request(&hello_request, &hello->payload))
		hello->exchange = etcd_gateway_start(&client->http, &client->settings, &hello->payload, &destination);
	return hello->exchange != NULL;
}

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

/* The endpoint speaks none of the dialects: the calls that wait for it fail. */
static void
fail_calls(EtcdClient *client, const Hello *hello, EtcdOutcome outcome, const char *why, bool timed_out)
{
	const Endpoint *endpoint = find_endpoint(client, hello->url);

	if (endpoint != NULL && endpoint->dialect != ETCD_UNKNOWN)
		return;
	for (Call *call = client->calls; call != NULL; call = call->next)
	{
		if (is_waiting(call) && strcmp(call->destination.url, hello->url) == 0)
			fail(client, call, outcome, why, timed_out);
	}
}

static void
choose(EtcdClient *client, const Hello *hello, EtcdDialect dialect)
{
	Endpoint   *endpoint = find_endpoint(client, hello->url);

	if (endpoint != NULL)
		endpoint->dialect = dialect;
}

/* Looks at a greeting in gRPC.  False if it has ended. */
static bool
run_grpc_hello(EtcdClient *client, Hello *hello)
{
	EtcdAnswer	answer;
	bool		timed_out;

	if (etcd_grpc_floods(hello->grpc))
		etcd_call_shun(client, hello->url);
	if (etcd_grpc_is_proven(hello->grpc))
	{
		choose(client, hello, ETCD_GRPC);
		return false;
	}
	if (etcd_grpc_ended(hello->grpc) == 0)
		return true;
	if (etcd_grpc_is_denied(hello->grpc) && client->settings.protocol != ETCD_PROTOCOL_GRPC)
		return greet_in_json(client, hello);
	timed_out = etcd_grpc_read_answer(hello->grpc, &answer);
	fail_calls(client, hello, answer.outcome, answer.message, timed_out);
	etcd_free_answer(&answer);
	return false;
}

/* The same in JSON.  A path that is not known is no answer of etcd. */
static bool
run_json_hello(EtcdClient *client, Hello *hello)
{
	EtcdAnswer	answer;
	bool		timed_out;

	if (etcd_http_ended(hello->exchange) == 0)
		return true;
	if (etcd_http_floods(hello->exchange))
		etcd_call_shun(client, hello->url);
	timed_out = etcd_gateway_read_answer(hello->exchange, ETCD_STATUS, &answer);
	if (answer.outcome == ETCD_ANSWERED ||
		(answer.outcome == ETCD_REFUSED && !etcd_blames_endpoint(answer.outcome, answer.code, answer.message)))
		choose(client, hello, ETCD_JSON);
	else
		fail_calls(client, hello, answer.outcome, answer.message, timed_out);
	etcd_free_answer(&answer);
	return false;
}

static void
run_hellos(EtcdClient *client)
{
	int64_t		now = clock_monotonic_ns();
	Hello	   *next;

	for (Hello *hello = client->hellos; hello != NULL; hello = next)
	{
		next = hello->next;
		if (hello->deadline_ns <= now && hello->grpc != NULL)
			etcd_grpc_time_out(client, hello->grpc);
		else if (hello->deadline_ns <= now)
			etcd_http_time_out(&client->http, hello->exchange);
		if (!(hello->grpc != NULL ? run_grpc_hello(client, hello) : run_json_hello(client, hello)))
			free_hello(client, hello);
	}
}

/*
 * Is it known how the endpoint is spoken to?  If not, it is greeted.  One that
 * is not in the list any more is spoken to as the settings say.
 */
static bool
find_dialect(EtcdClient *client, const char *url, EtcdDialect *dialect)
{
	Endpoint   *endpoint = find_endpoint(client, url);
	int64_t		now = clock_monotonic_ns();

	*dialect = client->settings.protocol == ETCD_PROTOCOL_JSON ? ETCD_JSON : ETCD_GRPC;
	if (endpoint == NULL || client->settings.protocol == ETCD_PROTOCOL_JSON)
		return true;
	if (endpoint->dialect == ETCD_UNKNOWN || (endpoint->dialect == ETCD_JSON && endpoint->retry_ns <= now))
	{
		endpoint->retry_ns = now + RETRY_GRPC_MS * NSEC_PER_MSEC;
		(void) greet(client, url);
	}
	*dialect = endpoint->dialect;
	return *dialect != ETCD_UNKNOWN;
}

void
etcd_call_configure(EtcdClient *client, EtcdProtocol before)
{
	bool		same = before == client->settings.protocol;

	for (int i = 0; i < client->nendpoints; i++)
	{
		if (!same)
			client->endpoints[i].dialect = ETCD_UNKNOWN;
		client->endpoints[i].retry_ns = 0;
	}
}

/* ---- calls ----------------------------------------------------------- */

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
		call->grpc = etcd_grpc_watch(client, call->watches, call->nwatches, &call->destination);
		return call->grpc != NULL;
	}
	if (lacks_token(client, call))
	{
		fail(client, call, ETCD_REFUSED, "there is no token yet", false);
		call->code = ETCD_CODE_UNAUTHENTICATED;
		return true;
	}
	call->grpc = etcd_grpc_start(client, call->request, &call->destination);
	return call->grpc != NULL;
}

/* False if memory is out. */
static bool
begin_json(EtcdClient *client, Call *call)
{
	bool		good = call->request != NULL ? etcd_gateway_encode_request(call->request, &call->payload) :
		etcd_gateway_encode_watches(call->watches, call->nwatches, &call->payload);

	if (good)
		call->exchange = etcd_gateway_start(&client->http, &client->settings, &call->payload, &call->destination);
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

	etcd_format_message(why, "etcd at \"%s\" flooded the connection with bytes that nobody waits for, and is left alone for a while",
						call->url);
	fail(client, call, ETCD_NO_ANSWER, why, false);
}

/* Begins a call if it can.  False if memory is out. */
static bool
begin(EtcdClient *client, Call *call)
{
	EtcdDialect dialect;

	if (is_shunned(find_endpoint(client, call->url)))
	{
		fail_shunned(client, call);
		return true;
	}
	if (!find_dialect(client, call->destination.url, &dialect))
		return true;
	call->begun_ns = clock_monotonic_ns();
	give_token(client, &call->destination, call->request);
	return dialect == ETCD_GRPC ? begin_grpc(client, call) : begin_json(client, call);
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
etcd_call_watch(EtcdClient *client, const EtcdWatch *watches, int nwatches, const Destination *destination)
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
	etcd_grpc_release(client, &released->grpc);
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
		etcd_grpc_time_out(client, call->grpc);
	else if (call->exchange != NULL)
		etcd_http_time_out(&client->http, call->exchange);
	else if (call->ended == 0)
	{
		char		why[ETCD_MESSAGE_SIZE];

		etcd_format_message(why, "no answer from etcd at \"%s\" within %ld ms", call->url, call->destination.timeout_ms);
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
	return call->exchange != NULL ? etcd_gateway_read_frame(&client->http, call->exchange, frame) : FRAME_INCOMPLETE;
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
	etcd_grpc_release(client, &call->grpc);
	if (!begin(client, call))
		fail(client, call, ETCD_NO_ANSWER, "out of memory", false);
}

int64_t
etcd_call_due_ns(const EtcdClient *client)
{
	int64_t		due_ns = etcd_grpc_due_ns(client);

	for (const Hello *hello = client->hellos; hello != NULL; hello = hello->next)
	{
		if (hello->deadline_ns < due_ns)
			due_ns = hello->deadline_ns;
	}
	return etcd_http_due_ns(&client->http) < due_ns ? etcd_http_due_ns(&client->http) : due_ns;
}

void
etcd_call_run(EtcdClient *client)
{
	etcd_http_run_timer(&client->http);
	etcd_grpc_run(client);
	run_hellos(client);
	for (Call *call = client->calls; call != NULL; call = call->next)
	{
		Endpoint   *endpoint = find_endpoint(client, call->url);

		if (is_waiting(call) && !begin(client, call))
			fail(client, call, ETCD_NO_ANSWER, "out of memory", false);
		else if (call->grpc != NULL ? etcd_grpc_floods(call->grpc) : call->exchange != NULL && etcd_http_floods(call->exchange))
			etcd_call_shun(client, call->url);
		else if (call->grpc != NULL && call->request != NULL && !call->was_refused && etcd_grpc_is_refused(call->grpc))
			send_again(client, call);
		/* another server is there now */
		if (call->grpc != NULL && endpoint != NULL && etcd_grpc_is_denied(call->grpc))
			endpoint->dialect = ETCD_UNKNOWN;
	}
	etcd_grpc_run(client);
	etcd_http_run_timer(&client->http);
}

void
etcd_call_free(EtcdClient *client)
{
	while (client->hellos != NULL)
		free_hello(client, client->hellos);
	etcd_grpc_free(client);
}
