/*-------------------------------------------------------------------------
 *
 * request.c
 *	  The life of a request: where it is sent, and how it ends.
 *
 * A request is sent to the endpoint in use, as soon as it is known which cluster
 * may be used, or nobody is left to tell (clusters.c).  If it only reads,
 * and half of its time is over, it is sent to the next endpoint as well.  So it has one
 * attempt or two.  Each attempt is in one state:
 *
 *	state		event				next state
 *	----------	------------------	----------------------------------------
 *	NONE		sent				SENT
 *				not sent			DENIED, FAILED the second one: memory is out
 *	SENT		wants a token		PARKED: the endpoint's token is asked for
 *				answer				ANSWERED
 *				failure				FAILED
 *				overtaken			DROPPED
 *	PARKED		sent				SENT_AGAIN: a token has come
 *				no token			DENIED: none in time, or etcd gives none
 *				overtaken			DROPPED
 *	SENT_AGAIN	as SENT, but a token is not asked for any more
 *	DENIED		answer, failure		as SENT: the caller gets the reason
 *				overtaken			DROPPED
 *
 * FAILED, ANSWERED and DROPPED are the ends.  Any reply of etcd is an answer,
 * including a refusal, but not one of a cluster that may not be used.  A failure
 * is one that is the fault of the endpoint (etcd_blames_endpoint()). A request ends with
 *
 *	- an answer to one attempt; the other attempt is overtaken;
 *	- a failure of one attempt, unless the other one is still open.
 *
 * So there is exactly one end.  It comes in time: an attempt that is sent or
 * parked has a deadline, which is never later than twice the request timeout
 * after the request was made.
 *
 * A token belongs to an endpoint: etcd's simple tokens live in the memory of
 * one member.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "call.h"
#include "client_state.h"
#include "clusters.h"
#include "request.h"

#define STATE_BIT(state)	(1 << (state))

static void
advance(Attempt *attempt, AttemptState next)
{
	/* the states that each one follows */
	static const int before[ATTEMPT_NSTATES] = {
		[ATTEMPT_SENT] = STATE_BIT(ATTEMPT_NONE),
		[ATTEMPT_PARKED] = STATE_BIT(ATTEMPT_SENT),
		[ATTEMPT_SENT_AGAIN] = STATE_BIT(ATTEMPT_PARKED),
		[ATTEMPT_DENIED] = STATE_BIT(ATTEMPT_NONE) | STATE_BIT(ATTEMPT_PARKED),
		[ATTEMPT_FAILED] =
			STATE_BIT(ATTEMPT_NONE) | STATE_BIT(ATTEMPT_SENT) | STATE_BIT(ATTEMPT_SENT_AGAIN) |
		STATE_BIT(ATTEMPT_DENIED),
		[ATTEMPT_ANSWERED] =
			STATE_BIT(ATTEMPT_SENT) | STATE_BIT(ATTEMPT_SENT_AGAIN) | STATE_BIT(ATTEMPT_DENIED),
		[ATTEMPT_DROPPED] =
			STATE_BIT(ATTEMPT_SENT) | STATE_BIT(ATTEMPT_PARKED) | STATE_BIT(ATTEMPT_SENT_AGAIN) |
		STATE_BIT(ATTEMPT_DENIED)
	};

	ETCD_CLIENT_ASSERT(before[next] & STATE_BIT(attempt->state));
	attempt->state = next;
}

static bool
is_under_way(const Attempt *attempt)
{
	return attempt->state == ATTEMPT_SENT || attempt->state == ATTEMPT_SENT_AGAIN;
}

/* May this attempt still decide the result of the request? */
static bool
is_open(const Attempt *attempt)
{
	return is_under_way(attempt) || attempt->state == ATTEMPT_PARKED ||
		attempt->state == ATTEMPT_DENIED;
}

/* Has this attempt a result that has not been processed yet? */
static bool
is_due(const Attempt *attempt)
{
	return attempt->state == ATTEMPT_DENIED ||
		(is_under_way(attempt) && etcd_call_ended(attempt->call) != 0);
}

/* ---- making and freeing ---------------------------------------------- */

/* A copy of the first key in a request; NULL if there is none, or no memory. */
static char *
copy_key(const EtcdRequest *request)
{
	EtcdBytes	key = {NULL, 0};

	if (request->kind != ETCD_TXN)
		return NULL;
	if (request->ncompares > 0)
		key = request->compares[0].key;
	else if (request->nsuccess > 0)
		key = request->success[0].key;
	return key.len > 0 ? strndup(key.data, key.len) : NULL;
}

/* For a request that is not in the list. */
static void
free_request(EtcdClient *client, PendingRequest *request)
{
	for (int i = 0; i < MAX_ATTEMPTS; i++)
	{
		etcd_call_release(client, &request->attempts[i].call);
		free(request->attempts[i].url);
	}
	etcd_free_request(request->message);
	free(request->key);
	free(request);
}

static void
unlink_request(EtcdClient *client, PendingRequest *request)
{
	PendingRequest **link = &client->requests;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	request->next = NULL;
}

/* Sends an attempt.  False if memory is out. */
static bool
launch(EtcdClient *client, PendingRequest *request, Attempt *attempt, int endpoint_number)
{
	const Endpoint *endpoint = &client->endpoints[endpoint_number];
	Destination destination = {
		.url = attempt->url,
		/* a large answer holds up no renewal */
		.use = request->is_large ? ETCD_CLIENT_STREAMS : 0,
		.timeout_ms = request->timeout_ms,
		.connect_timeout_ms = request->connect_timeout_ms,
		/* the caller's requests keep the open connection, which is warm */
		.connects = request->message->kind == ETCD_LIST_MEMBERS,
		.max_size = request->is_large ? ETCD_MAX_LARGE_SIZE : ETCD_MAX_ANSWER_SIZE
	};

	attempt->token_number = endpoint->token_number;
	attempt->call = etcd_call_send(client, request->message, &destination);
	return attempt->call != NULL;
}

/* An attempt has one timeout from now on, but ends with its request. */
static void
set_deadline(const PendingRequest *request, Attempt *attempt, int64_t now)
{
	int64_t		timeout_ns = request->timeout_ms * NSEC_PER_MSEC;
	int64_t		latest_ns = request->made_ns + 2 * timeout_ns;

	attempt->deadline_ns = now + timeout_ns < latest_ns ? now + timeout_ns : latest_ns;
}

/* Begins an attempt at an endpoint.  False if memory is out. */
static bool
start_attempt(EtcdClient *client, PendingRequest *request, Attempt *attempt, int endpoint)
{
	attempt->url = strdup(client->endpoints[endpoint].url);
	attempt->sent_ns = clock_monotonic_ns();
	set_deadline(request, attempt, attempt->sent_ns);
	if (attempt->url == NULL || !launch(client, request, attempt, endpoint))
		return false;
	advance(attempt, ATTEMPT_SENT);
	return true;
}

/* Is it to be sent now?  If not, etcd_request_run() sends it. */
static bool
may_start(const EtcdClient *client, int endpoint)
{
	return endpoint != ENDPOINT_IN_USE || !etcd_client_awaits_cluster(client);
}

PendingRequest *
etcd_request_send(EtcdClient *client, int endpoint, const EtcdRequest *request,
				  RequestReceiver receive)
{
	PendingRequest *made = calloc(1, sizeof(PendingRequest));
	PendingRequest **last = &client->requests;

	if (made == NULL)
		return NULL;
	made->receive = receive;
	made->key = copy_key(request);
	made->settings_number = client->settings.number;
	made->is_large = request->is_large;
	made->timeout_ms = client->settings.request_timeout_ms;
	if (made->is_large && made->timeout_ms < ETCD_LARGE_TIMEOUT_MS)
		made->timeout_ms = ETCD_LARGE_TIMEOUT_MS;
	made->connect_timeout_ms = client->settings.connect_timeout_ms;
	made->made_ns = clock_monotonic_ns();
	made->message = etcd_copy_request(request);
	if (made->message == NULL ||
		(may_start(client, endpoint) &&
		 !start_attempt(client, made, &made->attempts[0],
						endpoint == ENDPOINT_IN_USE ? client->endpoint : endpoint)))
	{
		free_request(client, made);
		return NULL;
	}
	while (*last != NULL)
		last = &(*last)->next;
	*last = made;
	return made;
}

int
etcd_request_endpoint(const EtcdClient *client, const Attempt *attempt)
{
	if (attempt->url == NULL)
		return -1;
	return etcd_find_endpoint(client->endpoints, client->nendpoints, attempt->url);
}

bool
etcd_request_is_asking(const EtcdClient *client, int endpoint, RequestReceiver receive)
{
	for (const PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		if (r->receive == receive && etcd_request_endpoint(client, &r->attempts[0]) == endpoint &&
			r->settings_number == client->settings.number)
			return true;
	}
	return false;
}

void
etcd_request_free(EtcdClient *client)
{
	while (client->requests != NULL)
	{
		PendingRequest *request = client->requests;

		unlink_request(client, request);
		free_request(client, request);
	}
	/* an ERROR has left the callback about its end */
	if (client->reported != NULL)
		free_request(client, client->reported);
}

/* ---- waiting for a token --------------------------------------------- */

static void
deny(Attempt *attempt, EtcdOutcome outcome, int code, const char *why)
{
	advance(attempt, ATTEMPT_DENIED);
	attempt->denial.outcome = outcome;
	attempt->denial.code = code;
	etcd_format_message(attempt->denial.message, "%s", why);
}

/* Does this attempt want a token that it can get? */
static bool
wants_token(const EtcdClient *client, const Report *report)
{
	const Attempt *attempt = report->attempt;
	const EtcdAnswer *answer = &report->answer;

	if (attempt->state != ATTEMPT_SENT || client->settings.username == NULL ||
		answer->endpoint < 0 || report->request->message->kind == ETCD_AUTHENTICATE)
		return false;
	/* Some etcds refuse a bad token by closing the connection (etcd #15256). */
	return etcd_wants_token(answer->outcome, answer->code, answer->message) ||
		(etcd_call_got_nothing(attempt->call) &&
		 client->endpoints[answer->endpoint].token != NULL);
}

/* Is it parked at that endpoint? */
static bool
is_parked_at(const EtcdClient *client, const Attempt *attempt, int endpoint)
{
	return attempt->state == ATTEMPT_PARKED && etcd_request_endpoint(client, attempt) == endpoint;
}

void
etcd_request_send_parked(EtcdClient *client, int endpoint)
{
	for (PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		for (int i = 0; i < MAX_ATTEMPTS; i++)
		{
			Attempt    *attempt = &r->attempts[i];

			if (!is_parked_at(client, attempt, endpoint))
				continue;
			if (launch(client, r, attempt, endpoint))
				advance(attempt, ATTEMPT_SENT_AGAIN);
			else
				deny(attempt, ETCD_NO_ANSWER, 0, "out of memory");
		}
	}
}

void
etcd_request_deny_parked(EtcdClient *client, int endpoint, EtcdOutcome outcome, int code,
						 const char *why)
{
	for (PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		for (int i = 0; i < MAX_ATTEMPTS; i++)
		{
			if (is_parked_at(client, &r->attempts[i], endpoint))
				deny(&r->attempts[i], outcome, code, why);
		}
	}
}

/* ---- time ------------------------------------------------------------ */

void
etcd_request_hurry(EtcdClient *client, int64_t deadline_ns)
{
	for (PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		for (int i = 0; i < MAX_ATTEMPTS; i++)
		{
			if (is_under_way(&r->attempts[i]) && r->attempts[i].deadline_ns > deadline_ns)
				r->attempts[i].deadline_ns = deadline_ns;
		}
	}
}

/*
 * The time until which an unsent request waits, because it is not known which cluster
 * may be used; 0: it does not wait.
 */
static int64_t
held_until_ns(const EtcdClient *client, const PendingRequest *request)
{
	if (!etcd_client_awaits_cluster(client))
		return 0;
	return request->made_ns + request->timeout_ms * NSEC_PER_MSEC;
}

/*
 * When a request has to be sent to a second endpoint; INT64_MAX: never.  It is
 * late after half of its time, so a member that hangs costs no more than that.
 */
static int64_t
second_due_ns(const EtcdClient *client, const PendingRequest *request)
{
	const Attempt *first = &request->attempts[0];
	int			endpoint = etcd_request_endpoint(client, first);

	if (!request->may_be_doubled || !is_under_way(first) || is_due(first) || endpoint < 0 ||
		request->attempts[1].state != ATTEMPT_NONE ||
		etcd_find_usable_endpoint(client, endpoint + 1) == endpoint)
		return INT64_MAX;
	return first->sent_ns + request->timeout_ms * NSEC_PER_MSEC / 2;
}

int64_t
etcd_request_due_ns(const EtcdClient *client)
{
	int64_t		due_ns = INT64_MAX;

	for (const PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		int64_t		second_ns = second_due_ns(client, r);

		if (r->attempts[0].state == ATTEMPT_NONE && held_until_ns(client, r) < due_ns)
			due_ns = held_until_ns(client, r);

		if (second_ns < due_ns)
			due_ns = second_ns;
		for (int i = 0; i < MAX_ATTEMPTS; i++)
		{
			const Attempt *attempt = &r->attempts[i];

			if (is_due(attempt))
				return 0;
			if (is_open(attempt) && attempt->deadline_ns < due_ns)
				due_ns = attempt->deadline_ns;
		}
	}
	return due_ns;
}

static void
run_deadline(EtcdClient *client, const PendingRequest *request, Attempt *attempt, int64_t now)
{
	if (attempt->deadline_ns > now)
		return;
	if (is_under_way(attempt))
		etcd_call_time_out(client, attempt->call);
	else if (attempt->state == ATTEMPT_PARKED)
	{
		char		why[ETCD_MESSAGE_SIZE];

		etcd_format_message(why, "no token from etcd at \"%s\" within %ld ms",
							attempt->url, request->timeout_ms);
		deny(attempt, ETCD_NO_ANSWER, 0, why);
		attempt->denial.timed_out = true;
	}
}

/* Where a second attempt goes. */
static int
next_endpoint(const EtcdClient *client, const Attempt *first)
{
	return etcd_find_usable_endpoint(client, etcd_request_endpoint(client, first) + 1);
}

void
etcd_request_run(EtcdClient *client)
{
	int64_t		now = clock_monotonic_ns();

	for (PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		Attempt    *first = &r->attempts[0];

		for (int i = 0; i < MAX_ATTEMPTS; i++)
			run_deadline(client, r, &r->attempts[i], now);
		if (first->state == ATTEMPT_NONE && held_until_ns(client, r) <= now &&
			!start_attempt(client, r, first, client->endpoint))
			deny(first, ETCD_NO_ANSWER, 0, "out of memory");
		if (second_due_ns(client, r) <= now &&
			!start_attempt(client, r, &r->attempts[1], next_endpoint(client, first)))
			advance(&r->attempts[1], ATTEMPT_FAILED);
	}
}

/* ---- reporting ------------------------------------------------------- */

/*
 * Is attempt a to be processed before attempt b?  Attempts without a token
 * come first, then the others in the order in which they ended.
 */
static bool
comes_before(const Attempt *a, const Attempt *b)
{
	uint64_t	a_ended = a->state == ATTEMPT_DENIED ? 0 : etcd_call_ended(a->call);
	uint64_t	b_ended = b->state == ATTEMPT_DENIED ? 0 : etcd_call_ended(b->call);

	return a_ended < b_ended;
}

/* The attempt to process next; NULL: none. */
static Attempt *
find_due(EtcdClient *client, PendingRequest **request)
{
	Attempt    *due = NULL;

	for (PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		for (int i = 0; i < MAX_ATTEMPTS; i++)
		{
			Attempt    *attempt = &r->attempts[i];

			if (!is_due(attempt) || (due != NULL && !comes_before(attempt, due)))
				continue;
			*request = r;
			due = attempt;
		}
	}
	return due;
}

static EtcdNeed
need_of(EtcdRequestKind kind)
{
	return kind == ETCD_STATUS ? NEEDS_MEMBER :
		kind == ETCD_LIST_MEMBERS ? NEEDS_VOTER : NEEDS_QUORUM;
}

/*
 * An endpoint has answered, or has failed.
 *
 * Its error is over when a request has succeeded that needs as much of etcd as those
 * that have failed.  So the status of a member that is cut off from the others does not
 * hide that requests fail there.  A spare endpoint is asked for no more than its members,
 * so these are enough.
 *
 * A refusal before anything was sent, for the lack of a token, is none of the endpoint.
 * What was sent with older settings says nothing of those in force.
 */
static void
note_endpoint(EtcdClient *client, Endpoint *endpoint, const Report *report)
{
	const EtcdAnswer *answer = &report->answer;
	EtcdEndpointState *state = &endpoint->state;
	int64_t		now = clock_monotonic_ns();
	EtcdNeed	need = need_of(report->request->message->kind);
	bool		is_spare = endpoint != &client->endpoints[client->endpoint];

	if (answer->outcome == ETCD_REFUSED && !report->attempt->was_connected)
		return;
	if (answer->outcome == ETCD_ANSWERED)
	{
		state->answered_ns = now;
		state->latency_ns = now - report->attempt->sent_ns;
		if (answer->header.cluster_id != 0)
			etcd_cluster_note(client, endpoint, answer->header.cluster_id);
	}
	if (!etcd_blames_endpoint(answer->outcome, answer->code, answer->message))
	{
		if (need < endpoint->failed_need && !(is_spare && need == NEEDS_VOTER))
			return;
		state->error[0] = '\0';
		state->down = false;
		endpoint->failed_need = NEEDS_NOTHING;
		return;
	}
	if (need < NEEDS_QUORUM && report->request->settings_number != client->settings.number)
		return;
	if (state->error[0] == '\0')
		endpoint->first_failed_ns = now;
	state->down |= now - endpoint->first_failed_ns >= FAILED_CHECK_MS * NSEC_PER_MSEC / 2;
	memcpy(state->error, answer->message, ETCD_MESSAGE_SIZE);
	endpoint->failed_ns = now;
	if (need > endpoint->failed_need)
		endpoint->failed_need = need;
}

/*
 * The caller does not get what comes from a cluster that may not be used.  A
 * refusal tells no cluster.  One for a lease that is not known says something
 * about the lease only if the endpoint has told its cluster.
 */
static void
drop_foreign(const EtcdClient *client, const Endpoint *endpoint, EtcdAnswer *answer)
{
	uint64_t	cluster_id = answer->outcome == ETCD_ANSWERED ? answer->header.cluster_id :
		endpoint->state.cluster_id;

	if (answer->outcome == ETCD_REFUSED && cluster_id == 0 && client->kept_cluster_id != 0 &&
		etcd_says_lease_not_found(answer))
		etcd_format_message(answer->message, "etcd at \"%s\" has not told its cluster yet",
							endpoint->url);
	else if (cluster_id != 0 && !etcd_cluster_is_usable(client, cluster_id) &&
			 (answer->outcome == ETCD_ANSWERED ||
			  (answer->outcome == ETCD_REFUSED && etcd_cluster_is_known(client))))
		etcd_cluster_describe(client, endpoint->url, cluster_id, answer->message);
	else
		return;
	etcd_free_answer(answer);
	answer->outcome = ETCD_NO_ANSWER;
}

static void
read_result(EtcdClient *client, Attempt *attempt, Report *report)
{
	EtcdAnswer *answer = &report->answer;
	EtcdTiming *timing = &report->timing;

	if (attempt->state == ATTEMPT_DENIED)
	{
		answer->outcome = attempt->denial.outcome;
		answer->code = attempt->denial.code;
		memcpy(answer->message, attempt->denial.message, ETCD_MESSAGE_SIZE);
		timing->timed_out = attempt->denial.timed_out;
		timing->explained = true;
	}
	else
	{
		timing->timed_out = etcd_call_read_answer(attempt->call, answer);
		attempt->was_connected |= etcd_call_was_connected(attempt->call);
	}
	answer->endpoint = etcd_request_endpoint(client, attempt);
	if (answer->endpoint >= 0)
	{
		Endpoint   *endpoint = &client->endpoints[answer->endpoint];

		note_endpoint(client, endpoint, report);
		if (report->request->caller != NULL)
			drop_foreign(client, endpoint, answer);
	}
	timing->endpoint_gone = attempt->url != NULL && answer->endpoint < 0;
	timing->latency_ns = clock_monotonic_ns() - attempt->sent_ns;
	timing->key = report->request->key;
}

/* An attempt is at its end, and with it the request, unless the other one may do better. */
static void
end_attempt(EtcdClient *client, Attempt *attempt, Report *report)
{
	PendingRequest *request = report->request;
	Attempt    *first = &request->attempts[0];
	Attempt    *other = attempt == first ? &request->attempts[1] : first;
	const EtcdAnswer *answer = &report->answer;

	report->blames_endpoint = etcd_blames_endpoint(answer->outcome, answer->code, answer->message);
	advance(attempt, report->blames_endpoint ? ATTEMPT_FAILED : ATTEMPT_ANSWERED);
	if (report->blames_endpoint && is_open(other))
	{
		report->kind = REPORT_GOES_ON;
		return;
	}
	report->kind = REPORT_ENDED;
	if (is_open(other))
	{
		advance(other, ATTEMPT_DROPPED);
		report->late = other == first ? first : NULL;
	}
	unlink_request(client, request);
}

bool
etcd_request_next(EtcdClient *client, Report *report)
{
	Attempt    *attempt;
	bool		wants;

	memset(report, 0, sizeof(*report));
	attempt = find_due(client, &report->request);
	if (attempt == NULL)
		return false;
	report->attempt = attempt;
	read_result(client, attempt, report);
	wants = wants_token(client, report);
	etcd_call_release(client, &attempt->call);
	if (wants)
	{
		report->kind = REPORT_WANTS_TOKEN;
		advance(attempt, ATTEMPT_PARKED);
		set_deadline(report->request, attempt, clock_monotonic_ns());
	}
	else
		end_attempt(client, attempt, report);
	if (report->kind == REPORT_ENDED)
		client->reported = report->request;
	return true;
}

void
etcd_request_done(EtcdClient *client, Report *report)
{
	if (report->kind == REPORT_ENDED)
		free_request(client, report->request);
	client->reported = NULL;
	etcd_free_answer(&report->answer);
}
