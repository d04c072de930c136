/*-------------------------------------------------------------------------
 *
 * client.c
 *	  A client of etcd, which the event loop of its caller drives.
 *
 * A file of the client calls those below it, and never one above it:
 *
 * client.c				the event loop, and the settings
 * answers.c			the requests of the caller, and what follows from their ends
 * endpoints.c			the endpoints, the members of the cluster and their versions
 * auth.c				users, passwords and tokens
 * watch.c				the watch streams
 * request.c			the life of a request
 * clusters.c			the clusters of the endpoints, and which may be used
 * call.c				a message to one endpoint, in the dialect of the settings
 * gateway.c			the dialect of etcd's JSON gateway
 * grpc.c				the dialect of gRPC
 * h2.c					HTTP/2: the only file that knows nghttp2
 * http.c				POSTs and connections by libcurl
 * connections.c		what the connections to the endpoints show
 * sockets.c			the sockets and the timer to wait for
 * tls.c				what is wrong with TLS, in words
 * curl.c				where a handle of libcurl connects, and by which TLS
 * http_limits.c		how much a server may send that is no part of an answer
 * names.c				the addresses of hosts
 *
 * call.c and those below it carry one message to one endpoint and keep what comes
 * back.  Requests and watches report how they ended.  The files above decide which
 * endpoint is in use, ask for tokens and members, and call the caller back.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "answers.h"
#include "auth.h"
#include "call.h"
#include "client_state.h"
#include "endpoints.h"
#include "request.h"
#include "watch.h"

#define DEFAULT_PROBE_INTERVAL_MS	10000

/* ---- settings -------------------------------------------------------- */

static void
free_settings(Settings *settings)
{
	free(settings->ca_file);
	free(settings->cert_file);
	free(settings->key_file);
	free(settings->server_name);
	free(settings->username);
	free(settings->password_file);
	memset(settings, 0, sizeof(*settings));
}

/* A copy of a string; empty is NULL.  False if memory is out. */
static bool
copy_string(char **copy, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return true;
	*copy = strdup(value);
	return *copy != NULL;
}

/* False if memory is out; free_settings() may follow all the same. */
static bool
copy_settings(Settings *copy, const EtcdClientSettings *settings)
{
	memset(copy, 0, sizeof(*copy));
	copy->request_timeout_ms = settings->request_timeout_ms;
	copy->connect_timeout_ms = settings->connect_timeout_ms;
	copy->probe_interval_ms = settings->probe_interval_ms > 0 ?
		settings->probe_interval_ms : DEFAULT_PROBE_INTERVAL_MS;
	copy->tls_1_3 = settings->tls_1_3;
	copy->dialect = settings->dialect;
	copy->cluster_id = settings->cluster_id;
	return copy_string(&copy->ca_file, settings->ca_file) &&
		copy_string(&copy->cert_file, settings->cert_file) &&
		copy_string(&copy->key_file, settings->key_file) &&
		copy_string(&copy->server_name, settings->server_name) &&
		copy_string(&copy->username, settings->username) &&
		copy_string(&copy->password_file, settings->password_file);
}

static bool
is_same_string(const char *a, const char *b)
{
	return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

void
etcd_client_configure(EtcdClient *client, const EtcdClientSettings *settings)
{
	bool		same_user = is_same_string(client->settings.username, settings->username);
	EtcdDialect dialect = client->settings.dialect;
	Settings	copy;

	if (!copy_settings(&copy, settings) || !etcd_endpoints_configure(client, settings))
	{
		free_settings(&copy);
		return;
	}
	copy.number = client->settings.number + 1;
	free_settings(&client->settings);
	client->settings = copy;
	client->probe_due_ns = 0;
	if (copy.dialect != dialect)
		etcd_watch_end_all(client, "the setting \"etcd_leader.protocol\" was changed");
	etcd_auth_configure(client, same_user);
}

/* ---- probes ---------------------------------------------------------- */

/* This does what follows a reload with the same settings. */
void
etcd_client_probe(EtcdClient *client)
{
	/* what is under way has begun before, and tells nothing of now */
	client->settings.number++;
	client->probe_due_ns = 0;
	etcd_auth_configure(client, true);
	etcd_endpoints_probe(client);
	for (PendingRequest *r = client->requests; r != NULL; r = r->next)
		r->is_probe |= r->settings_number == client->settings.number;
}

bool
etcd_client_is_probing(const EtcdClient *client)
{
	for (const PendingRequest *r = client->requests; r != NULL; r = r->next)
	{
		if (r->is_probe)
			return true;
	}
	return false;
}

/* ---- the client ------------------------------------------------------ */

EtcdClient *
etcd_client_create(const EtcdClientCallbacks *callbacks)
{
	EtcdClient *client = calloc(1, sizeof(EtcdClient));

	if (client == NULL)
		return NULL;
	if (!etcd_http_init(&client->http))
	{
		free(client);
		return NULL;
	}
	etcd_grpc_init(&client->grpc, &client->http, &client->settings);
	client->callbacks = *callbacks;
	etcd_watch_keep_connections(client);
	return client;
}

void
etcd_client_free(EtcdClient *client)
{
	if (client == NULL)
		return;
	etcd_watch_free(client);
	etcd_request_free(client);
	etcd_call_free(client);
	etcd_http_free(&client->http);
	etcd_endpoints_free(client);
	free_settings(&client->settings);
	free(client);
}

void
etcd_client_change_endpoint(EtcdClient *client, int endpoint)
{
	etcd_endpoints_leave(client, endpoint, "the endpoint was changed");
}

int
etcd_client_endpoint_count(const EtcdClient *client)
{
	return client->nendpoints;
}

int
etcd_client_endpoint(const EtcdClient *client)
{
	return client->endpoint;
}

const char *
etcd_client_endpoint_url(const EtcdClient *client, int endpoint)
{
	if (endpoint < 0 || endpoint >= client->nendpoints)
		return "";
	return client->endpoints[endpoint].url;
}

bool
etcd_client_endpoint_is_configured(const EtcdClient *client, int endpoint)
{
	return !client->endpoints[endpoint].learned;
}

const EtcdEndpointState *
etcd_client_endpoint_state(const EtcdClient *client, int endpoint)
{
	return &client->endpoints[endpoint].state;
}

EtcdDialect
etcd_client_dialect(const EtcdClient *client)
{
	return client->settings.dialect;
}

static const EtcdConnectionFacts *
find_facts(const EtcdClient *client, int endpoint)
{
	return etcd_connections_find(&client->http.facts, client->endpoints[endpoint].url);
}

int64_t
etcd_client_certificate_end_s(EtcdClient *client, int endpoint)
{
	const EtcdConnectionFacts *facts = find_facts(client, endpoint);

	return facts != NULL ? facts->certificate_end_s : 0;
}

/* ---- the event loop -------------------------------------------------- */

const EtcdSocket *
etcd_client_sockets(const EtcdClient *client, int *nsockets, uint64_t *changes)
{
	*nsockets = client->http.sockets.n;
	*changes = client->http.sockets.changes;
	return client->http.sockets.sockets;
}

long
etcd_client_timeout_ms(const EtcdClient *client)
{
	int64_t		due_ns = etcd_call_due_ns(client);
	int64_t		request_ns = etcd_request_due_ns(client);
	int64_t		watch_ns = etcd_watch_due_ns(client);
	int64_t		endpoints_ns = etcd_endpoints_due_ns(client);
	int64_t		wait_ns;

	if (client->nunsent > 0)
		return 0;
	if (request_ns < due_ns)
		due_ns = request_ns;
	if (watch_ns < due_ns)
		due_ns = watch_ns;
	if (endpoints_ns < due_ns)
		due_ns = endpoints_ns;
	if (due_ns == INT64_MAX)
		return -1;

	/* rounded up, so that it is due when the time is over */
	wait_ns = due_ns - clock_monotonic_ns();
	return wait_ns <= 0 ? 0 : (long) ((wait_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
}

void
etcd_client_socket_ready(EtcdClient *client, int fd, int events)
{
	etcd_http_socket_ready(&client->http, fd, events);
}

static void
deliver_frames(EtcdClient *client, int stream)
{
	if (etcd_watch_deliver_frames(client, stream))
		etcd_endpoints_leave(client, client->endpoint, client->streams[stream].end_why);
}

static void
run_turn(EtcdClient *client)
{
	client->turn++;
	etcd_call_run(client);
	etcd_watch_run(client);
	etcd_endpoints_run(client);
	etcd_request_run(client);

	/* frames first: a hand-over waits for them */
	deliver_frames(client, 0);
	etcd_watch_deliver_ends(client);
	etcd_answers_deliver(client);

	etcd_grpc_answer_pings(&client->grpc);
	/* the requests that these have asked for do not wait for the other streams */
	etcd_call_run(client);
	for (int i = 1; i < ETCD_CLIENT_STREAMS; i++)
		deliver_frames(client, i);
	etcd_watch_deliver_ends(client);

	/* sends the requests that the callbacks have made, in this turn */
	etcd_call_run(client);
}

void
etcd_client_process(EtcdClient *client)
{
	if (client->is_running)
		return;
	client->is_running = true;
	run_turn(client);
	client->is_running = false;
}

void
etcd_client_run_until(EtcdClient *client, long timeout_ms, bool (*done) (void *ctx), void *ctx)
{
	int64_t		start_ns = clock_monotonic_ns();
	int64_t		end_ns = start_ns + timeout_ms * NSEC_PER_MSEC;

	if (client->is_running)
		return;
	/* leave time for another endpoint if this one does not answer */
	if (client->nendpoints > 1)
		etcd_request_hurry(client, start_ns + timeout_ms * NSEC_PER_MSEC / 2);
	for (;;)
	{
		int64_t		left_ms;
		long		wait_ms;

		etcd_client_process(client);
		left_ms = (end_ns - clock_monotonic_ns()) / NSEC_PER_MSEC;
		if (done(ctx) || left_ms <= 0)
			return;
		wait_ms = etcd_client_timeout_ms(client);
		if (wait_ms < 0 || wait_ms > left_ms)
			wait_ms = (long) left_ms;
		etcd_http_wait(&client->http, wait_ms);
	}
}
