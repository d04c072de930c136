/*-------------------------------------------------------------------------
 *
 * gateway.c
 *	  etcd's JSON gateway: requests and watches as POSTs, and their answers.
 *
 * The rest of the client hands in an EtcdRequest and gets an EtcdAnswer, and
 * knows nothing of JSON, paths and headers.  A transport of another kind has
 * the same functions.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway.h"

/* ---- what is sent ---------------------------------------------------- */

bool
etcd_gateway_encode_request(const EtcdRequest *request, Payload *payload)
{
	payload->kind = request->kind;
	payload->path = etcd_request_path(ETCD_JSON, request->kind);
	payload->body = etcd_encode_request(ETCD_JSON, request, &payload->len);
	return payload->body != NULL;
}

bool
etcd_gateway_encode_watches(const EtcdWatch *watches, int nwatches, Payload *payload)
{
	memset(payload, 0, sizeof(*payload));
	payload->path = ETCD_WATCH_PATH;
	payload->body = etcd_encode_watches(watches, nwatches, &payload->len);
	return payload->body != NULL;
}

void
etcd_gateway_free_payload(Payload *payload)
{
	/* there is a password in it */
	if (payload->body != NULL && payload->kind == ETCD_AUTHENTICATE)
		explicit_bzero(payload->body, payload->len);
	free(payload->body);
	memset(payload, 0, sizeof(*payload));
}

Exchange *
etcd_gateway_start(Http *http, const Settings *settings, const Payload *payload,
				   const Destination *destination)
{
	const char *headers[5];
	char		grpc_timeout[64];
	char	   *token = NULL;
	int			nheaders = 0;
	Exchange   *exchange;

	headers[nheaders++] = "Content-Type: application/json";
	/* The gateway hands "Grpc-Metadata-..." on: refuse without a leader. */
	headers[nheaders++] = "Grpc-Metadata-hasleader: true";
	headers[nheaders++] = "Expect:";

	/*
	 * When the answer begins, Go's server discards the rest of the request's
	 * body, and with it the create_requests after the first.  It does not do
	 * so if the connection is closed afterwards.  The connection of a stream
	 * is closed anyway.
	 */
	if (destination->is_stream)
		headers[nheaders++] = "Connection: close";
	else
	{
		/*
		 * a member that hangs must not execute a request later that this
		 * client has given up
		 */
		snprintf(grpc_timeout, sizeof(grpc_timeout), "Grpc-Timeout: %ldm", destination->timeout_ms);
		headers[nheaders++] = grpc_timeout;
	}
	if (destination->token != NULL)
	{
		if (asprintf(&token, "Authorization: %s", destination->token) < 0)
			return NULL;
		headers[nheaders++] = token;
	}
	exchange = etcd_http_post(http, settings, destination, payload, headers, nheaders);
	free(token);
	return exchange;
}

/* ---- what came ------------------------------------------------------- */

bool
etcd_gateway_read_answer(const Exchange *exchange, EtcdRequestKind kind, EtcdAnswer *answer)
{
	const char *body;
	size_t		len;

	if (etcd_http_failed(exchange))
	{
		bool		timed_out;

		memset(answer, 0, sizeof(*answer));
		timed_out = etcd_http_describe_failure(exchange, &answer->outcome, answer->message);
		if (answer->outcome == ETCD_REFUSED)
			answer->code = ETCD_CODE_RESOURCE_EXHAUSTED;
		return timed_out;
	}
	body = etcd_http_data(exchange, &len);
	etcd_decode_answer(kind, etcd_http_status(exchange), body, len, answer);
	if (answer->outcome == ETCD_GARBAGE)
	{
		char		why[ETCD_MESSAGE_SIZE];

		memcpy(why, answer->message, sizeof(why));
		etcd_format_message(answer->message,
							"could not understand the answer of etcd at \"%s\": %s",
							etcd_http_url(exchange), why);
	}
	return false;
}

/* Less than this is decoded without a look for the end of a frame first. */
#define SMALL_FRAME_SIZE	(64 * 1024)

/*
 * May a frame end in the bytes that have come since the last check?  Each try
 * to decode a frame starts at its beginning, and a large frame comes in many
 * pieces.  etcd writes no white space between its braces.  A server that does
 * only costs more tries.
 */
static bool
may_end_frame(const char *data, size_t searched, size_t len)
{
	if (len <= SMALL_FRAME_SIZE)
		return true;
	for (size_t i = searched; i < len; i++)
	{
		if (data[i] == '}' && (i + 1 == len || strchr(" \t\r\n{", data[i + 1]) != NULL))
			return true;
	}
	return false;
}

FrameResult
etcd_gateway_read_frame(Http *http, Exchange *exchange, EtcdWatchFrame *frame)
{
	const char *data;
	size_t		len;
	ssize_t		n;

	if (!etcd_http_has_news(exchange))
		return FRAME_INCOMPLETE;
	data = etcd_http_data(exchange, &len);
	n = may_end_frame(data, etcd_http_searched(exchange), len) ?
		etcd_decode_frame(data, len, frame) : 0;
	if (n < 0)
		return FRAME_UNREADABLE;
	if (n == 0)
	{
		etcd_http_await_more(http, exchange);
		return FRAME_INCOMPLETE;
	}
	etcd_http_take(exchange, n);
	return FRAME_READ;
}

EtcdOutcome
etcd_gateway_describe_end(const Exchange *exchange, char *message)
{
	EtcdOutcome outcome = ETCD_NO_ANSWER;

	if (etcd_http_failed(exchange))
		(void) etcd_http_describe_failure(exchange, &outcome, message);
	else
		etcd_format_message(message, "etcd at \"%s\" ended the watch", etcd_http_url(exchange));
	return outcome;
}
