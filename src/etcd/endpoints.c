/*-------------------------------------------------------------------------
 *
 * endpoints.c
 *	  The endpoints: those of the settings, and those learned from the
 *	  cluster.
 *
 * An endpoint is known by its number in the list.  One is in use: requests
 * and watches go there.  The cluster is asked for its members from time to
 * time; members that are not in the settings become endpoints too, the last
 * ones in the list.
 *
 * Each endpoint is asked for its status regularly.  What is wrong with an
 * endpoint, or with the user, stays so until a try of the same thing has
 * succeeded, which is made again and again.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "auth.h"
#include "client_state.h"
#include "clusters.h"
#include "endpoints.h"
#include "request.h"
#include "url.h"
#include "watch.h"

/* How often the cluster is asked for its members, and for a new token. */
#define PROBE_INTERVAL_MS		300000

/* A list that is being made, with room for max endpoints. */
typedef struct EndpointList
{
	Endpoint   *endpoints;
	int			n;
	int			max;
} EndpointList;

static void
free_list(EndpointList *list)
{
	for (int i = 0; i < list->n; i++)
	{
		free(list->endpoints[i].url);
		free(list->endpoints[i].token);
	}
	free(list->endpoints);
	memset(list, 0, sizeof(*list));
}

static bool
is_in_list(const EndpointList *list, const char *url)
{
	for (int i = 0; i < list->n; i++)
	{
		if (etcd_is_same_url(list->endpoints[i].url, url))
			return true;
	}
	return false;
}

/*
 * Adds an endpoint, unless it is there by whatever spelling or the list is full.
 * False if memory is out.
 */
static bool
add_to_list(EndpointList *list, const char *url, size_t len, bool learned)
{
	char	   *copy;

	if (list->n == list->max)
		return true;
	copy = strndup(url, len);
	if (copy == NULL)
		return false;
	if (is_in_list(list, copy))
	{
		free(copy);
		return true;
	}
	memset(&list->endpoints[list->n], 0, sizeof(Endpoint));
	list->endpoints[list->n].url = copy;
	list->endpoints[list->n].learned = learned;
	list->n++;
	return true;
}

void
etcd_endpoints_free(EtcdClient *client)
{
	EndpointList list = {client->endpoints, client->nendpoints, client->nendpoints};

	free_list(&list);
	client->endpoints = NULL;
	client->nendpoints = 0;
}

/* ---- the endpoint in use --------------------------------------------- */

void
etcd_endpoints_use(EtcdClient *client, int endpoint, const char *why)
{
	if (endpoint == client->endpoint)
		return;
	client->endpoint = endpoint;
	etcd_watch_end_all(client, why);
	etcd_cluster_look_soon(client);
}

void
etcd_endpoints_leave(EtcdClient *client, int endpoint, const char *why)
{
	if (endpoint == client->endpoint)
		etcd_endpoints_use(client, etcd_find_usable_endpoint(client, endpoint + 1), why);
}

/*
 * Names of all endpoints are looked up before they are needed: when DNS hangs,
 * the others can still be used.
 */
static void
look_up_names(EtcdClient *client)
{
	for (int i = 0; i < client->nendpoints; i++)
		etcd_http_look_up(&client->http, client->endpoints[i].url);
}

/* Gives an endpoint all that is known of it by another list. */
static void
keep_endpoint(Endpoint *endpoint, Endpoint *old)
{
	char	   *url = endpoint->url;
	bool		learned = endpoint->learned;

	*endpoint = *old;
	endpoint->url = url;
	endpoint->learned = learned;
	old->token = NULL;
}

/*
 * Installs another list of endpoints and takes ownership of it.  An endpoint
 * that is in both lists keeps its token, and what is known of it.  The endpoint
 * in use stays in use, with its watches, if the new list has it; otherwise the
 * first one is used.
 */
static void
replace_list(EtcdClient *client, EndpointList *list)
{
	EndpointList before = {client->endpoints, client->nendpoints, client->nendpoints};
	int			in_use = -1;

	for (int i = 0; i < before.n; i++)
	{
		Endpoint   *old = &before.endpoints[i];
		int			same = etcd_find_endpoint(list->endpoints, list->n, old->url);

		if (i == client->endpoint)
			in_use = same;
		if (same < 0)
			continue;
		keep_endpoint(&list->endpoints[same], old);
	}
	if (in_use < 0)
		etcd_watch_end_all(client, "the endpoint was removed from the settings");

	client->endpoints = list->endpoints;
	client->nendpoints = list->n;
	client->endpoint = in_use >= 0 ? in_use : 0;
	free_list(&before);
	look_up_names(client);
	etcd_watch_keep_connections(client);
}

/* ---- those of the settings ------------------------------------------- */

/* Are these the endpoints of the settings before? */
static bool
are_same(const EtcdClient *client, const EndpointList *list, const char *server_name)
{
	const char *before = client->settings.server_name;
	int			nconfigured = 0;

	while (nconfigured < client->nendpoints && !client->endpoints[nconfigured].learned)
		nconfigured++;
	if (nconfigured != list->n)
		return false;
	for (int i = 0; i < nconfigured; i++)
	{
		if (strcmp(client->endpoints[i].url, list->endpoints[i].url) != 0)
			return false;
	}
	return strcmp(before != NULL ? before : "", server_name != NULL ? server_name : "") == 0;
}

bool
etcd_endpoints_configure(EtcdClient *client, const EtcdClientSettings *settings)
{
	EndpointList list = {.max = settings->nendpoints};
	bool		good;

	list.endpoints = calloc(settings->nendpoints + 1, sizeof(Endpoint));
	good = list.endpoints != NULL;
	for (int i = 0; good && i < settings->nendpoints; i++)
		good = add_to_list(&list, settings->endpoints[i], strlen(settings->endpoints[i]), false);
	/* the learned members belong to these endpoints only */
	if (good && !are_same(client, &list, settings->server_name))
		replace_list(client, &list);
	else
		free_list(&list);
	return good;
}

/* ---- those that the cluster tells ------------------------------------ */

/* The length of a member's URL, without the slash at its end. */
static size_t
url_length(const char *url)
{
	size_t		len = strlen(url);

	return len > 0 && url[len - 1] == '/' ? len - 1 : len;
}

/* Is it an endpoint of the settings? */
static bool
is_configured(const EtcdClient *client, const char *url)
{
	for (int i = 0; i < client->nendpoints; i++)
	{
		if (!client->endpoints[i].learned && etcd_is_same_url(client->endpoints[i].url, url))
			return true;
	}
	return false;
}

/*
 * Has it the scheme of an endpoint in the settings?  This keeps a connection
 * with TLS from being followed by one without.
 */
static bool
is_scheme_in_use(const EtcdClient *client, const char *url)
{
	size_t		len = strcspn(url, ":");

	for (int i = 0; i < client->nendpoints; i++)
	{
		if (!client->endpoints[i].learned &&
			strncmp(client->endpoints[i].url, url, len + 1) == 0)
			return true;
	}
	return false;
}

/* Does a member announce an endpoint of the settings as its own? */
static bool
is_any_configured(const EtcdClient *client, const EtcdAnswer *answer)
{
	for (int i = 0; i < answer->nmembers; i++)
	{
		for (int j = 0; j < answer->members[i].nclient_urls; j++)
		{
			if (is_configured(client, answer->members[i].client_urls[j]))
				return true;
		}
	}
	return false;
}

/*
 * Adds the URLs of a member.  etcd announces none with a path.  False if memory
 * is out.
 */
static bool
add_member(const EtcdClient *client, const EtcdMember *member, EndpointList *list)
{
	if (member->is_learner)
		return true;
	for (int i = 0; i < member->nclient_urls; i++)
	{
		const char *url = member->client_urls[i];
		EtcdUrl		parts;

		if (strncmp(url, "unix", 4) != 0 && !etcd_split_url(url, &parts))
			continue;
		if (is_scheme_in_use(client, url) && strlen(url) < ETCD_CLIENT_MAX_URL_LEN &&
			!add_to_list(list, url, url_length(url), true))
			return false;
	}
	return true;
}

/*
 * Makes the list of the endpoints of the settings, followed by those of the
 * members.  If no member announces an endpoint of the settings as its own,
 * there is a proxy in between, and the members' URLs may lead elsewhere from
 * this host; then they are left out.  False if memory is out.
 */
static bool
list_members(const EtcdClient *client, const EtcdAnswer *answer, EndpointList *list)
{
	bool		good;

	list->max = ETCD_CLIENT_MAX_ENDPOINTS;
	list->endpoints = calloc(list->max, sizeof(Endpoint));
	good = list->endpoints != NULL;
	for (int i = 0; good && i < client->nendpoints; i++)
	{
		const char *url = client->endpoints[i].url;

		if (!client->endpoints[i].learned)
			good = add_to_list(list, url, strlen(url), false);
	}
	if (!is_any_configured(client, answer))
		return good;
	for (int i = 0; good && i < answer->nmembers; i++)
		good = add_member(client, &answer->members[i], list);
	return good;
}

static bool
is_list_in_use(const EtcdClient *client, const EndpointList *list)
{
	bool		same = list->n == client->nendpoints;

	for (int i = 0; same && i < list->n; i++)
		same = strcmp(list->endpoints[i].url, client->endpoints[i].url) == 0;
	return same;
}

/* The name of the member that answered. */
static void
note_member_name(EtcdEndpointState *state, const EtcdAnswer *answer)
{
	state->member_name[0] = '\0';
	for (int i = 0; i < answer->nmembers; i++)
	{
		const EtcdMember *member = &answer->members[i];

		if (member->id == answer->header.member_id && member->name != NULL)
			etcd_format_message(state->member_name, "%s", member->name);
	}
}

static void
receive_status(EtcdClient *client, const Report *report)
{
	const EtcdAnswer *answer = &report->answer;
	Endpoint   *endpoint;

	if (answer->endpoint < 0)
		return;
	endpoint = &client->endpoints[answer->endpoint];
	endpoint->is_status_asked = false;
	/* with users, etcd may refuse to tell */
	if (answer->outcome != ETCD_ANSWERED)
		return;
	etcd_format_message(endpoint->state.version, "%s", answer->version);
	etcd_describe_alarms(answer, endpoint->state.alarms);
	endpoint->state.is_learner = answer->is_learner;
}

/* Asks an endpoint for its status, on the open connection if there is one. */
static void
ask_status(EtcdClient *client, int i, bool is_probe)
{
	static const EtcdRequest request = {.kind = ETCD_STATUS};
	Endpoint   *endpoint = &client->endpoints[i];
	PendingRequest *made;

	if (endpoint->is_status_asked)
		return;
	endpoint->status_ns = endpoint->state.tried_ns = clock_monotonic_ns();
	made = etcd_request_send(client, i, &request, receive_status);
	if (made == NULL)
		return;
	made->is_probe = is_probe;
	endpoint->is_status_asked = true;
}

static void receive_members(EtcdClient *client, const Report *report);

/*
 * Asks an endpoint for its cluster and the members of that, on a new connection.  So this
 * also shows whether changed certificate files are valid.
 */
static void
ask_endpoint(EtcdClient *client, int i)
{
	static const EtcdRequest request = {.kind = ETCD_LIST_MEMBERS};
	Endpoint   *endpoint = &client->endpoints[i];

	if (!etcd_request_is_asking(client, i, receive_members))
	{
		endpoint->state.tried_ns = clock_monotonic_ns();
		(void) etcd_request_send(client, i, &request, receive_members);
	}
	/* also of an entry that is new in the list */
	endpoint->is_asked = etcd_request_is_asking(client, i, receive_members);
}

/*
 * Remembers whether the new connection of a list of members works.  A refusal has come
 * through it, too, but not the lack of a token, for which nothing may have been sent.
 * One that was too slow once says nothing yet.
 */
static void
note_connection(EtcdClient *client, Endpoint *endpoint, const Report *report)
{
	EtcdEndpointState *state = &endpoint->state;
	const EtcdAnswer *answer = &report->answer;
	bool		has_answered = report->timing.explained ? report->attempt->was_connected :
		answer->outcome == ETCD_ANSWERED || answer->outcome == ETCD_REFUSED;

	if (report->request->settings_number != client->settings.number)
		return;
	if (has_answered)
	{
		state->connect_error[0] = '\0';
		endpoint->nslow_connections = 0;
	}
	else if (!report->timing.explained)
	{
		endpoint->nslow_connections += report->timing.timed_out;
		if (!report->timing.timed_out || endpoint->nslow_connections > 1)
			memcpy(state->connect_error, answer->message, ETCD_MESSAGE_SIZE);
	}
}

static void
receive_members(EtcdClient *client, const Report *report)
{
	const EtcdAnswer *answer = &report->answer;
	EtcdEndpointState *state;
	EndpointList list = {0};

	if (answer->endpoint < 0)
		return;
	state = &client->endpoints[answer->endpoint].state;
	client->endpoints[answer->endpoint].is_asked =
		etcd_request_is_asking(client, answer->endpoint, receive_members);
	note_connection(client, &client->endpoints[answer->endpoint], report);
	if (report->request->is_probe && state->connect_error[0] == '\0')
		ask_status(client, answer->endpoint, true);
	/* before a cluster is entered, any endpoint is as good */
	if (report->blames_endpoint && client->kept_cluster_id == 0)
		etcd_endpoints_leave(client, answer->endpoint, answer->message);
	if (answer->outcome != ETCD_ANSWERED || answer->header.cluster_id == 0)
		return;
	note_member_name(state, answer);
	etcd_cluster_learn_members(client, answer);

	/* with a server name, DNS says which endpoints there are */
	if (client->settings.server_name != NULL ||
		!etcd_cluster_is_usable(client, answer->header.cluster_id))
		return;
	if (!list_members(client, answer, &list) || is_list_in_use(client, &list))
	{
		free_list(&list);
		return;
	}
	replace_list(client, &list);
	for (int i = 0; i < client->nendpoints; i++)
	{
		if (client->endpoints[i].state.answered_ns == 0)
			ask_endpoint(client, i);
	}
	client->callbacks.endpoints_changed(client->callbacks.ctx);
}

void
etcd_endpoints_identify(EtcdClient *client)
{
	/* the answer of a single one tells enough */
	if (client->nendpoints < 2 || etcd_cluster_is_known(client))
		return;
	client->looked_ns = clock_monotonic_ns();
	for (int i = 0; i < client->nendpoints; i++)
		ask_endpoint(client, i);
}

/*
 * When an endpoint is asked for its members because something has failed there; INT64_MAX:
 * not.  At the endpoint in use the requests of the caller show whether they fail, so it is
 * asked soon only if the status alone has failed.
 */
static int64_t
members_due_ns(const EtcdClient *client, int i)
{
	const Endpoint *endpoint = &client->endpoints[i];
	const EtcdEndpointState *state = &endpoint->state;

	if (endpoint->is_asked)
		return INT64_MAX;
	if (state->error[0] != '\0' &&
		(i != client->endpoint || endpoint->failed_need == NEEDS_MEMBER))
		return FAILED_CHECK_MS * NSEC_PER_MSEC +
			(endpoint->failed_ns > state->tried_ns ? endpoint->failed_ns : state->tried_ns);
	if (state->connect_error[0] != '\0' || endpoint->nslow_connections > 0 ||
		endpoint->failed_need == NEEDS_VOTER)
		return state->tried_ns + client->settings.probe_interval_ms * NSEC_PER_MSEC;
	return INT64_MAX;
}

/*
 * When an endpoint is asked for its status.  The first time is after the members, and never
 * before the caller has asked for something.  A spare endpoint that cannot be connected to
 * is asked for its members alone.
 */
static int64_t
status_due_ns(const EtcdClient *client, int i)
{
	const Endpoint *endpoint = &client->endpoints[i];

	if (endpoint->is_asked || endpoint->is_status_asked || endpoint->state.tried_ns == 0 ||
		(i != client->endpoint && endpoint->state.connect_error[0] != '\0'))
		return INT64_MAX;
	if (endpoint->status_ns == 0)
		return 0;
	return endpoint->status_ns + client->settings.probe_interval_ms * NSEC_PER_MSEC;
}

/* When the request for the status needs a turn of its own. */
static int64_t
status_wakeup_ns(const EtcdClient *client, int i)
{
	int64_t		due_ns = status_due_ns(client, i);

	return due_ns == INT64_MAX || due_ns == 0 ? due_ns : due_ns + SLACK_MS * NSEC_PER_MSEC;
}

/*
 * When the endpoint in use is asked for a token again, as etcd refused it, or did not answer.
 * A try at another endpoint does not put this one off.
 */
static int64_t
user_due_ns(const EtcdClient *client)
{
	if ((client->auth.error[0] == '\0' && !client->auth.is_unanswered) || client->nendpoints == 0)
		return INT64_MAX;
	return client->endpoints[client->endpoint].token_tried_ns +
		client->settings.probe_interval_ms * NSEC_PER_MSEC;
}

int64_t
etcd_endpoints_due_ns(const EtcdClient *client)
{
	int64_t		due_ns = user_due_ns(client);

	if (client->look_due_ns != 0 && client->look_due_ns < due_ns)
		due_ns = client->look_due_ns;
	for (int i = 0; i < client->nendpoints; i++)
	{
		if (members_due_ns(client, i) < due_ns)
			due_ns = members_due_ns(client, i);
		if (status_wakeup_ns(client, i) < due_ns)
			due_ns = status_wakeup_ns(client, i);
	}
	return due_ns;
}

void
etcd_endpoints_run(EtcdClient *client)
{
	int64_t		now = clock_monotonic_ns();
	bool		looks = client->look_due_ns != 0 && client->look_due_ns <= now;
	char		why[ETCD_MESSAGE_SIZE];

	if (looks)
	{
		client->look_due_ns = 0;
		client->looked_ns = now;
	}
	for (int i = 0; i < client->nendpoints; i++)
	{
		if (looks || members_due_ns(client, i) <= now)
			ask_endpoint(client, i);
		if (status_due_ns(client, i) <= now)
			ask_status(client, i, false);
	}
	if (user_due_ns(client) <= now)
		(void) etcd_auth_ask(client, client->endpoint, why);
	if (etcd_client_foreign_endpoints(client) & (UINT32_C(1) << client->endpoint))
		etcd_endpoints_leave(client, client->endpoint,
							 "the endpoint is of another cluster than the others");
}

void
etcd_endpoints_probe(EtcdClient *client)
{
	char		why[ETCD_MESSAGE_SIZE];

	if (client->probe_due_ns > clock_monotonic_ns())
		return;
	client->probe_due_ns = clock_monotonic_ns() + PROBE_INTERVAL_MS * NSEC_PER_MSEC;
	look_up_names(client);
	client->looked_ns = clock_monotonic_ns();
	client->look_due_ns = 0;
	for (int i = 0; i < client->nendpoints; i++)
		ask_endpoint(client, i);
	if (client->settings.username != NULL)
		(void) etcd_auth_ask(client, client->endpoint, why);
}
