/*-------------------------------------------------------------------------
 *
 * routes.c
 *	  What each path answers.
 *
 * Every answer is made at the time of the request, from shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "utils/datetime.h"
#include "utils/json.h"

#include "base/smart_shutdown.h"
#include "http.h"

typedef enum RouteKind
{
	ROUTE_LEADER,				/* 200 where this instance leads */
	ROUTE_PRIMARY,				/* and is not in recovery */
	ROUTE_REPLICA,				/* in recovery */
	ROUTE_READY,				/* unless the server is in a smart shutdown */
	ROUTE_UP,					/* always */
	ROUTE_METRICS,
	ROUTE_PAGE
} RouteKind;

static const struct
{
	const char *path;
	RouteKind	kind;
}			routes[] = {
	{"/leader", ROUTE_LEADER},
	{"/", ROUTE_PRIMARY},
	{"/primary", ROUTE_PRIMARY},
	{"/read-write", ROUTE_PRIMARY},
	{"/replica", ROUTE_REPLICA},
	{"/read-only", ROUTE_UP},
	{"/health", ROUTE_UP},
	{"/liveness", ROUTE_UP},
	{"/readiness", ROUTE_READY},
	{"/metrics", ROUTE_METRICS},
	{"/status", ROUTE_PAGE}
};

#define ALLOWED_METHODS "GET, HEAD, OPTIONS"

/* ---- JSON --------------------------------------------------------------------- */

/* A member of an object; NULL or empty is null. */
static void
add_text(StringInfo json, const char *key, const char *text)
{
	appendStringInfo(json, "%s\"%s\":", json->len > 1 ? "," : "", key);
	if (text == NULL || text[0] == '\0')
		appendStringInfoString(json, "null");
	else
		escape_json(json, http_valid_text(text));
}

static void
add_bool(StringInfo json, const char *key, bool value)
{
	appendStringInfo(json, ",\"%s\":%s", key, value ? "true" : "false");
}

/* 0 is null. */
static void
add_number(StringInfo json, const char *key, int64 number)
{
	if (number == 0)
		appendStringInfo(json, ",\"%s\":null", key);
	else
		appendStringInfo(json, ",\"%s\":" INT64_FORMAT, key, number);
}

/* In UTC; 0 is null. */
static void
add_time(StringInfo json, const char *key, TimestampTz at)
{
	char		text[MAXDATELEN + 1];
	int			utc = 0;

	if (at != 0)
		JsonEncodeDateTime(text, TimestampTzGetDatum(at), TIMESTAMPTZOID, &utc);
	add_text(json, key, at == 0 ? NULL : text);
}

/* As an interval of SQL; 0 is null. */
static void
add_interval(StringInfo json, const char *key, int64 us)
{
	char		text[64];

	int			len;

	len = snprintf(text, sizeof(text), "%02d:%02d:%02d",
				   (int) (us / USECS_PER_HOUR), (int) (us / USECS_PER_MINUTE % 60),
				   (int) (us / USECS_PER_SEC % 60));
	if (us % USECS_PER_SEC != 0)
		snprintf(text + len, sizeof(text) - len, ".%06d", (int) (us % USECS_PER_SEC));
	add_text(json, key, us == 0 ? NULL : text);
}

/* A row of etcd_leader_status, its columns by their names. */
static void
append_status(StringInfo json, const EtcdLeaderStatus *status)
{
	char		lease[17];
	char		cluster[17];

	snprintf(lease, sizeof(lease), "%llx", (unsigned long long) status->lease_id);
	snprintf(cluster, sizeof(cluster), "%llx", (unsigned long long) status->cluster_id);
	appendStringInfoChar(json, '{');
	add_text(json, "election", status->election);
	add_text(json, "node", status->node);
	add_text(json, "role", status->role);
	add_bool(json, "is_leader", status->is_leader);
	add_text(json, "leader", status->leader);
	add_number(json, "fencing_token", status->fencing_token);
	add_time(json, "leader_since", status->leader_since);
	add_interval(json, "valid_for", status->valid_for_us);
	add_text(json, "lease_id", status->lease_id == 0 ? NULL : lease);
	add_text(json, "key", status->key);
	add_number(json, "create_revision", status->create_revision);
	add_text(json, "state", status->state);
	add_interval(json, "ttl", status->ttl_ms * 1000);
	add_text(json, "endpoint", status->endpoint);
	add_text(json, "protocol", status->protocol);
	add_text(json, "cluster_id", status->cluster_id == 0 ? NULL : cluster);
	add_bool(json, "connected", status->connected);
	add_time(json, "last_contact", status->last_contact);
	add_text(json, "last_error", status->last_error);
	add_time(json, "last_error_at", status->last_error_at);
	appendStringInfo(json, ",\"won\":" INT64_FORMAT ",\"lost\":" INT64_FORMAT "}\n", status->won,
					 status->lost);
}

/* ---- answers --------------------------------------------------------------------- */

/* Sends an answer with that body, which is copied. */
static enum MHD_Result
answer(const HttpSource *source, struct MHD_Connection *connection, unsigned int code,
	   const char *type, const StringInfoData *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(body->len, body->data,
																	MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result;

	if (response == NULL)
		return MHD_NO;			/* closes the connection */
	(void) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	(void) MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	(void) MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	(void) MHD_add_response_header(response, "Content-Security-Policy",
								   "default-src 'none'; style-src 'unsafe-inline'");
	(void) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, ALLOWED_METHODS);
	if (source->draining)
		(void) MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	result = MHD_queue_response(connection, code, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result
answer_error(const HttpSource *source, struct MHD_Connection *connection, unsigned int code,
			 const char *error)
{
	StringInfoData body;

	initStringInfo(&body);
	appendStringInfoChar(&body, '{');
	add_text(&body, "error", error);
	appendStringInfoString(&body, "}\n");
	return answer(source, connection, code, "application/json", &body);
}

/* The status of a named election, of the first one for NULL; false if there is none. */
static bool
find_status(const char *name, EtcdLeaderStatus *status)
{
	for (int i = 0; http_api->get_status(i, status, sizeof(*status)); i++)
	{
		if (name == NULL || strcmp(status->election, name) == 0)
			return true;
	}
	return false;
}

/*
 * The status of the answer about an election.  404 is for a leader that accepts
 * no new work: HAProxy keeps its sessions then (http-check disable-on-404).
 */
static unsigned int
status_code(RouteKind kind, const EtcdLeaderStatus *status)
{
	bool		is_stopping = is_in_smart_shutdown();
	bool		is_200;

	if ((kind == ROUTE_LEADER || kind == ROUTE_PRIMARY) &&
		(status->is_draining || (status->is_leader && is_stopping)))
		return MHD_HTTP_NOT_FOUND;
	switch (kind)
	{
		case ROUTE_LEADER:
			is_200 = status->is_leader;
			break;
		case ROUTE_PRIMARY:
			is_200 = status->is_leader && !RecoveryInProgress();
			break;
		case ROUTE_REPLICA:
			is_200 = RecoveryInProgress();
			break;
		case ROUTE_READY:
			is_200 = !is_stopping;
			break;
		default:
			is_200 = true;
			break;
	}
	return is_200 ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static enum MHD_Result
answer_route(HttpSource *source, struct MHD_Connection *connection, RouteKind kind,
			 bool without_body)
{
	const char *name = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "election");
	EtcdLeaderStatus status;
	const char *type = "application/json";
	unsigned int code = MHD_HTTP_OK;
	StringInfoData body;

	initStringInfo(&body);
	switch (kind)
	{
		case ROUTE_METRICS:
			type = "text/plain; version=0.0.4; charset=utf-8";
			http_append_metrics(&body);
			break;
		case ROUTE_PAGE:
			type = "text/html; charset=utf-8";
			http_append_status_page(&body, source);
			break;
		default:
			if (!find_status(name, &status))
			{
				if (name != NULL)
					return answer_error(source, connection, MHD_HTTP_NOT_FOUND,
										"there is no such election");
				memset(&status, 0, sizeof(status)); /* no election at all: nobody leads it */
			}
			code = status_code(kind, &status);
			append_status(&body, &status);
	}
	if (without_body)
		resetStringInfo(&body);
	return answer(source, connection, code, type, &body);
}

enum MHD_Result
http_answer(void *source, struct MHD_Connection *connection, const char *url,
			const char *method, const char *version, const char *upload_data,
			size_t *upload_data_size, void **request)
{
	static int	seen;
	bool		is_options = strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0;

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0 &&
		!is_options)
		return answer_error(source, connection, MHD_HTTP_METHOD_NOT_ALLOWED,
							"the method is not allowed");

	/*
	 * the first call is for the headers only: an answer at this point refuses
	 * the body
	 */
	if (*request == NULL)
	{
		*request = &seen;
		return MHD_YES;
	}
	if (*upload_data_size > 0)
		return MHD_NO;
	for (Size i = 0; i < lengthof(routes); i++)
	{
		if (strcmp(url, routes[i].path) == 0)
			return answer_route(source, connection, routes[i].kind, is_options);
	}
	return answer_error(source, connection, MHD_HTTP_NOT_FOUND, "there is no such path");
}
