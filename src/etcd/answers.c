/*-------------------------------------------------------------------------
 *
 * answers.c
 *	  The requests of the caller, and what follows from the ends of requests: a
 *	  token is asked for, another endpoint is used, the caller gets the answer.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "answers.h"
#include "auth.h"
#include "client_state.h"
#include "endpoints.h"
#include "request.h"

/* ---- sending --------------------------------------------------------- */

/* May the request be sent twice at the same time?  Only if it changes nothing. */
static bool
may_be_doubled(const EtcdRequest *request)
{
	if (request->kind == ETCD_KEEPALIVE || request->kind == ETCD_TIME_TO_LIVE)
		return true;
	return request->kind == ETCD_TXN && !etcd_writes(request->success, request->nsuccess) &&
		!etcd_writes(request->failure, request->nfailure);
}

/* Acts on a report about a request of the caller. */
static void
receive(EtcdClient *client, const Report *report)
{
	const EtcdClientCallbacks *callbacks = &client->callbacks;
	const EtcdAnswer *answer = &report->answer;

	/* also if it was of another cluster */
	if (answer->header.cluster_id != 0)
		etcd_endpoints_probe(client);
	if (report->blames_endpoint)
		etcd_endpoints_leave(client, answer->endpoint, answer->message);
	if (report->kind == REPORT_GOES_ON)
	{
		callbacks->noticed(callbacks->ctx, answer->message);
		return;
	}
	if (report->late != NULL)
	{
		char		why[ETCD_MESSAGE_SIZE];

		etcd_format_message(why, "no answer from etcd at \"%s\" within %ld ms",
							report->late->url, report->request->timeout_ms / 2);
		if (answer->endpoint >= 0)
			etcd_endpoints_use(client, answer->endpoint, why);
		callbacks->noticed(callbacks->ctx, why);
	}
	report->request->caller(callbacks->ctx, report->request->id, answer, &report->timing);
}

/* The caller gets its answer later: the request was not sent. */
static void
note_unsent(EtcdClient *client, EtcdReceiver caller, uint64_t id, const char *why)
{
	ETCD_CLIENT_ASSERT(client->nunsent < MAX_UNSENT);
	if (client->nunsent < MAX_UNSENT)
		client->unsent[client->nunsent++] = (Unsent) {caller, id, why};
}

static PendingRequest *
send_request(EtcdClient *client, int endpoint, RequestReceiver receiver, EtcdReceiver caller,
			 uint64_t id, const EtcdRequest *request)
{
	PendingRequest *made;

	if (client->nendpoints == 0)
	{
		note_unsent(client, caller, id, "there is no endpoint");
		return NULL;
	}
	etcd_endpoints_identify(client);
	made = etcd_request_send(client, endpoint, request, receiver);
	if (made == NULL)
	{
		note_unsent(client, caller, id, "out of memory");
		return NULL;
	}
	made->caller = caller;
	made->id = id;
	return made;
}

void
etcd_client_send(EtcdClient *client, EtcdReceiver caller, uint64_t id, const EtcdRequest *request)
{
	PendingRequest *made = send_request(client, ENDPOINT_IN_USE, receive, caller, id, request);

	if (made != NULL)
		made->may_be_doubled = may_be_doubled(request);
}

/* ---- delivering ------------------------------------------------------ */

static void
deliver_unsent(EtcdClient *client)
{
	/* leave out those that the callbacks add, or this might never end */
	for (int n = client->nunsent; n > 0; n--)
	{
		Unsent		unsent = client->unsent[0];
		EtcdAnswer	answer = {.outcome = ETCD_NO_ANSWER,.endpoint = -1};
		EtcdTiming	timing = {0};

		client->nunsent--;
		memmove(client->unsent, client->unsent + 1, client->nunsent * sizeof(Unsent));
		etcd_format_message(answer.message, "%s", unsent.why);
		unsent.caller(client->callbacks.ctx, unsent.id, &answer, &timing);
	}
}

/* An attempt waits for a token: it is sent with a newer one, or one is requested. */
static void
supply_token(EtcdClient *client, const Report *report)
{
	int			endpoint = report->answer.endpoint;
	char		why[ETCD_MESSAGE_SIZE];

	if (client->endpoints[endpoint].token_number > report->attempt->token_number)
		etcd_request_send_parked(client, endpoint);
	else if (!etcd_auth_ask(client, endpoint, why))
		etcd_request_deny_parked(client, endpoint, ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED, why);
}

void
etcd_answers_deliver(EtcdClient *client)
{
	Report		report;

	deliver_unsent(client);
	while (etcd_request_next(client, &report))
	{
		if (report.kind == REPORT_WANTS_TOKEN)
			supply_token(client, &report);
		else
			report.request->receive(client, &report);
		etcd_request_done(client, &report);
	}
}
