/*-------------------------------------------------------------------------
 *
 * etcd_client.c
 *	  Transport: etcd's messages over HTTP, by libcurl, without blocking.
 *
 * libcurl's callbacks only record: which sockets it waits on, when its timer
 * is due, what bytes came.  Everything that follows from that happens in
 * etcd_client_process(), outside of libcurl, so that the caller's callbacks
 * may use any function here.
 *
 * A request or stream is a Transfer.  It is in one place at a time: in
 * flight, among those done whose answer is to be told, the watch, or idle to
 * be used again.
 *
 * The watch is always on the endpoint in use: when that changes, it ends.
 *
 * What only reads is sent to a second endpoint, too, when the first one is
 * late: the first answer counts, and the other is never told.
 *
 * A request that etcd refuses for want of a token waits for one and is sent
 * again, once.  A token belongs to an endpoint: etcd's simple tokens live in
 * the memory of the members.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "etcd_client.h"

#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87.0 or later is required (CURLOPT_QUICK_EXIT)"
#endif

/*
 * Cap of an answer, and of what has come of a watch stream and is not a whole
 * frame yet.  The largest that is wanted is a list of candidates or the keys
 * of all elections, some hundred bytes for each key.  Values of some hundred
 * kilobytes are not a node's name; whoever puts them there only stops the
 * election, and a server that sends without end only loses its connection.
 */
#define MAX_ANSWER_SIZE		(1024 * 1024)

/* How much of a watch stream is read before its frames are looked at. */
#define MAX_BURST_SIZE		(64 * 1024)

/* A peer that has vanished is noticed after idle + 9 probes, by default. */
#define WATCH_KEEPALIVE_IDLE_S		10L
#define WATCH_KEEPALIVE_INTERVAL_S	3L

/*
 * Kept open: the watch and one for requests, such as a beat's.  More are used
 * for a moment, such as when many elections are entered at once; those to an
 * endpoint that was left are the first to go.
 */
#define MAX_CONNECTIONS		2L

/* How many sends may fail for lack of memory before they are told. */
#define MAX_UNSENT		1024

/*
 * A password that etcd has rejected is not tried again for so long, unless
 * its file changes.
 */
#define REJECTED_PASSWORD_MS	30000

/* How often the cluster is asked for its members, and for a new token. */
#define PROBE_INTERVAL_MS		300000

#define MAX_PASSWORD_LEN	1000

#define NS_PER_MS		INT64_C(1000000)

typedef struct Endpoint
{
	char	   *url;
	bool		learned;		/* of a member, not of the settings */
	char	   *token;			/* NULL: none */
	uint64_t	token_number;	/* of this token, or of this lack of one */
} Endpoint;

typedef struct Transfer
{
	struct Transfer *next;		/* in the list that it is in */
	CURL	   *easy;
	struct curl_slist *headers;
	struct curl_slist *connect_to;
	const char *path;
	char	   *body;			/* of the request */
	size_t		body_len;
	char	   *key;			/* the first one in it; may be NULL */
	char	   *endpoint_url;	/* as configured when it was sent */
	int			endpoint;		/* its number now; -1: not in the list any more */
	uint64_t	id;
	EtcdRequestKind kind;
	bool		reads_only;
	bool		hedged;			/* was sent to a second endpoint, too */
	bool		is_second;		/* or is that */
	struct Transfer *twin;		/* the other one, while both are open */
	bool		sent_again;		/* with a token */
	bool		is_void;		/* for a token: by settings that are no more */
	uint64_t	token_number;	/* of its endpoint when it was sent */
	long		timeout_ms;		/* of the watch: to connect */
	long		connect_timeout_ms;
	int64_t		sent_ns;
	int64_t		deadline_ns;
	int64_t		done_ns;
	CURLcode	result;			/* once it is done */
	bool		done;
	bool		too_large;
	bool		is_watch;
	bool		fresh;			/* watch: bytes came since the last look */
	bool		paused;			/* watch: and it is time for one */
	char	   *data;			/* what came */
	size_t		len;
	size_t		size;
	size_t		taken;			/* watch: bytes of frames that are told */
	char		error[CURL_ERROR_SIZE];
} Transfer;

/* A request that could not be sent. */
typedef struct Unsent
{
	uint64_t	id;
	const char *why;
} Unsent;

struct EtcdClient
{
	EtcdClientCallbacks callbacks;
	CURLM	   *multi;
	int64_t		timer_ns;		/* when libcurl wants to be called; INT64_MAX: not */

	Endpoint   *endpoints;		/* those of the settings first */
	int			nendpoints;
	int			endpoint;		/* in use */
	long		request_timeout_ms;
	long		connect_timeout_ms;
	int64_t		probe_due_ns; /* see probe() */

	/* TLS, see EtcdClientSettings; NULL: not set */
	char	   *ca_file;
	char	   *cert_file;
	char	   *key_file;
	char	   *server_name;
	bool		tls_1_3;

	/* auth; NULL: not set */
	char	   *username;
	char	   *password_file;
	uint64_t	ntokens;		/* so many were had */
	int64_t		rejected_ns;	/* when the password was rejected; 0: it was not */
	struct stat rejected_file;	/* in that file */
	char		rejection[ETCD_MESSAGE_SIZE];

	Transfer   *in_flight;
	Transfer   *parked;			/* wait for a token of their endpoint */
	Transfer   *done;			/* oldest first */
	Transfer   *idle;
	Transfer   *watch;			/* NULL: none is open */
	bool		watch_end_due;	/* watch_ended() is to be called */
	char		watch_end_why[ETCD_MESSAGE_SIZE];
	Unsent		unsent[MAX_UNSENT];
	int			nunsent;

	EtcdSocket *sockets;
	int			nsockets;
	int			sockets_size;
	uint64_t	socket_changes;
};

static int64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 * NS_PER_MS + now.tv_nsec;
}

/* ---- libcurl's callbacks --------------------------------------------- */

/*
 * The set of sockets.  Every call counts as a change: a socket that is closed
 * is taken out first, so that its number can only come back as a change.  If
 * there is no memory for one, its transfer runs into a timeout.
 */
static int
record_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socketp)
{
	EtcdClient *client = arg;
	int			i = 0;

	(void) easy;
	(void) socketp;

	client->socket_changes++;
	while (i < client->nsockets && client->sockets[i].fd != fd)
		i++;

	if (what == CURL_POLL_REMOVE)
	{
		if (i < client->nsockets)
			client->sockets[i] = client->sockets[--client->nsockets];
		return 0;
	}

	if (i == client->sockets_size)
	{
		int			size = 2 * client->sockets_size + 8;
		EtcdSocket *sockets = realloc(client->sockets, size * sizeof(EtcdSocket));

		if (sockets == NULL)
			return 0;
		client->sockets = sockets;
		client->sockets_size = size;
	}
	if (i == client->nsockets)
		client->nsockets++;
	client->sockets[i].fd = fd;
	client->sockets[i].events = 0;
	if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
		client->sockets[i].events |= ETCD_SOCKET_READABLE;
	if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
		client->sockets[i].events |= ETCD_SOCKET_WRITEABLE;
	return 0;
}

static int
record_timer(CURLM *multi, long timeout_ms, void *arg)
{
	EtcdClient *client = arg;

	(void) multi;
	client->timer_ns = timeout_ms < 0 ? INT64_MAX : now_ns() + timeout_ms * NS_PER_MS;
	return 0;
}

/* Less than what was given means: give up this transfer. */
static size_t
record_data(char *data, size_t size, size_t n, void *arg)
{
	Transfer   *transfer = arg;

	n *= size;
	if (n == 0)
		return 0;

	/*
	 * The cap is one of a frame, not of a burst of them, which libcurl would
	 * read for as long as it lasts.
	 */
	if (transfer->is_watch && transfer->fresh && transfer->len > MAX_BURST_SIZE)
	{
		transfer->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	if (n > MAX_ANSWER_SIZE - transfer->len)
	{
		transfer->too_large = true;
		return 0;
	}
	if (n > transfer->size - transfer->len)
	{
		size_t		new_size = 2 * transfer->size + n;
		char	   *new_data = realloc(transfer->data, new_size);

		if (new_data == NULL)
			return 0;
		transfer->data = new_data;
		transfer->size = new_size;
	}
	memcpy(transfer->data + transfer->len, data, n);
	transfer->len += n;
	transfer->fresh = true;
	return n;
}

/* ---- transfers ------------------------------------------------------- */

/*
 * Takes a transfer from libcurl, if it is there, and frees what belongs to
 * this one use of it.
 */
static void
clear_transfer(EtcdClient *client, Transfer *transfer)
{
	CURL	   *easy = transfer->easy;

	curl_multi_remove_handle(client->multi, easy);
	/* it points to the headers and the body */
	curl_easy_reset(easy);
	curl_slist_free_all(transfer->headers);
	curl_slist_free_all(transfer->connect_to);
	if (transfer->body != NULL && transfer->kind == ETCD_AUTHENTICATE)
		explicit_bzero(transfer->body, transfer->body_len);
	free(transfer->body);
	free(transfer->key);
	free(transfer->endpoint_url);
	free(transfer->data);
	memset(transfer, 0, sizeof(*transfer));
	transfer->easy = easy;
}

/* For a transfer that is in no list any more. */
static void
release_transfer(EtcdClient *client, Transfer *transfer)
{
	clear_transfer(client, transfer);
	transfer->next = client->idle;
	client->idle = transfer;
}

static bool
add_header(Transfer *transfer, const char *header)
{
	struct curl_slist *headers = curl_slist_append(transfer->headers, header);

	if (headers == NULL)
		return false;
	transfer->headers = headers;
	return true;
}

#define SET_OPTION(option, value) \
	do { \
		if (curl_easy_setopt(transfer->easy, option, value) != CURLE_OK) \
			return false; \
	} while (0)

/*
 * Where the endpoint's URL leads.  A socket is named by a URL of its own; with
 * a server name, which is what the certificate has to have, that one is asked
 * for at the host of the endpoint.  False if memory is out.
 */
static bool
set_url(EtcdClient *client, Transfer *transfer)
{
	const char *unix_scheme = "unix://";
	const char *unixs_scheme = "unixs://";
	const char *endpoint = transfer->endpoint_url;
	char	   *base = NULL;
	CURLU	   *url;
	char	   *host = NULL;
	char	   *port = NULL;
	char	   *whole = NULL;
	bool		good = false;

	if (strncmp(endpoint, unix_scheme, strlen(unix_scheme)) == 0)
	{
		SET_OPTION(CURLOPT_UNIX_SOCKET_PATH, endpoint + strlen(unix_scheme));
		endpoint = "http://localhost";
	}
	else if (strncmp(endpoint, unixs_scheme, strlen(unixs_scheme)) == 0)
	{
		SET_OPTION(CURLOPT_UNIX_SOCKET_PATH, endpoint + strlen(unixs_scheme));
		endpoint = "https://localhost";
	}

	url = curl_url();
	base = malloc(strlen(endpoint) + strlen(transfer->path) + 1);
	if (url != NULL && base != NULL)
	{
		size_t		len = strlen(endpoint);

		while (len > 0 && endpoint[len - 1] == '/')
			len--;
		memcpy(base, endpoint, len);
		strcpy(base + len, transfer->path);
		good = curl_url_set(url, CURLUPART_URL, base, 0) == CURLUE_OK;
	}
	if (!good)
	{
		/* what is no URL is for libcurl to say */
		good = base != NULL && curl_easy_setopt(transfer->easy, CURLOPT_URL, base) == CURLE_OK;
	}
	else
	{
		if (client->server_name != NULL)
		{
			char		connect_to[1024];

			good = curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
				curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
				curl_url_set(url, CURLUPART_HOST, client->server_name, 0) == CURLUE_OK;
			snprintf(connect_to, sizeof(connect_to), "::%s:%s", good ? host : "", good ? port : "");
			transfer->connect_to = curl_slist_append(NULL, connect_to);
			good = good && transfer->connect_to != NULL &&
				curl_easy_setopt(transfer->easy, CURLOPT_CONNECT_TO, transfer->connect_to) == CURLE_OK;
		}
		good = good && curl_url_get(url, CURLUPART_URL, &whole, 0) == CURLUE_OK &&
			curl_easy_setopt(transfer->easy, CURLOPT_URL, whole) == CURLE_OK;
	}

	curl_free(host);
	curl_free(port);
	curl_free(whole);
	curl_url_cleanup(url);
	free(base);
	return good;
}

/* False if memory is out. */
static bool
set_tls(EtcdClient *client, Transfer *transfer)
{
	/* these are libcurl's defaults, but not to be left to it */
	SET_OPTION(CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(CURLOPT_SSLVERSION,
			   (long) (client->tls_1_3 ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2));
	/* files are read for each connection, and no session outlives its own */
	SET_OPTION(CURLOPT_CA_CACHE_TIMEOUT, 0L);
	SET_OPTION(CURLOPT_SSL_SESSIONID_CACHE, 0L);
	if (client->ca_file != NULL)
	{
		/* and no other authority is trusted */
		SET_OPTION(CURLOPT_CAINFO, client->ca_file);
		SET_OPTION(CURLOPT_CAPATH, NULL);
	}
	if (client->cert_file != NULL)
		SET_OPTION(CURLOPT_SSLCERT, client->cert_file);
	if (client->key_file != NULL)
	{
		SET_OPTION(CURLOPT_SSLKEY, client->key_file);
		/* else OpenSSL would ask for one, at a terminal */
		SET_OPTION(CURLOPT_KEYPASSWD, "");
	}
	return true;
}

/* False if memory is out. */
static bool
set_options(EtcdClient *client, Transfer *transfer)
{
	const Endpoint *endpoint = &client->endpoints[transfer->endpoint];

	if (!set_url(client, transfer) || !set_tls(client, transfer))
		return false;

	/* The gateway hands "Grpc-Metadata-..." on: refuse without a leader. */
	if (!add_header(transfer, "Content-Type: application/json") ||
		!add_header(transfer, "Grpc-Metadata-hasleader: true") ||
		!add_header(transfer, "Expect:"))
		return false;
	if (transfer->is_watch)
	{
		/*
		 * Go's server throws away what it has not read of a request's body
		 * when the answer begins, and with it the create_requests that follow
		 * the first; not on a connection that is closed afterwards, as this
		 * one is anyway.
		 */
		if (!add_header(transfer, "Connection: close"))
			return false;
	}
	else
	{
		char		header[64];

		/* a member that hangs shall not do what was given up here */
		snprintf(header, sizeof(header), "Grpc-Timeout: %ldm", transfer->timeout_ms);
		if (!add_header(transfer, header))
			return false;
	}
	if (endpoint->token != NULL && transfer->kind != ETCD_AUTHENTICATE)
	{
		char	   *header = malloc(strlen("Authorization: ") + strlen(endpoint->token) + 1);
		bool		added;

		if (header == NULL)
			return false;
		strcpy(header, "Authorization: ");
		strcat(header, endpoint->token);
		added = add_header(transfer, header);
		free(header);
		if (!added)
			return false;
	}
	transfer->token_number = endpoint->token_number;

	SET_OPTION(CURLOPT_HTTPHEADER, transfer->headers);
	SET_OPTION(CURLOPT_POST, 1L);
	SET_OPTION(CURLOPT_POSTFIELDS, transfer->body);
	SET_OPTION(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) transfer->body_len);
	SET_OPTION(CURLOPT_WRITEFUNCTION, record_data);
	SET_OPTION(CURLOPT_WRITEDATA, transfer);
	SET_OPTION(CURLOPT_PRIVATE, transfer);
	SET_OPTION(CURLOPT_ERRORBUFFER, transfer->error);

	/* Nowhere but to the endpoint itself. */
	SET_OPTION(CURLOPT_PROTOCOLS_STR, "http,https");
	SET_OPTION(CURLOPT_FOLLOWLOCATION, 0L);
	SET_OPTION(CURLOPT_PROXY, "");
	SET_OPTION(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);

	/* No signals, and no wait for a resolver that hangs. */
	SET_OPTION(CURLOPT_NOSIGNAL, 1L);
	SET_OPTION(CURLOPT_QUICK_EXIT, 1L);

	SET_OPTION(CURLOPT_TCP_NODELAY, 1L);
	/* the total timeout is ours, see run_deadlines() */
	SET_OPTION(CURLOPT_CONNECTTIMEOUT_MS, transfer->connect_timeout_ms);
	/* the connection that is open is left to the requests: it is warm */
	if (transfer->is_watch || transfer->kind == ETCD_LIST_MEMBERS)
		SET_OPTION(CURLOPT_FRESH_CONNECT, 1L);
	if (transfer->is_watch)
	{
		SET_OPTION(CURLOPT_TCP_KEEPALIVE, 1L);
		SET_OPTION(CURLOPT_TCP_KEEPIDLE, WATCH_KEEPALIVE_IDLE_S);
		SET_OPTION(CURLOPT_TCP_KEEPINTVL, WATCH_KEEPALIVE_INTERVAL_S);
	}
	return true;
}

/*
 * Hands a transfer to libcurl; nothing is sent before that is called the next
 * time, which its timer asks for at once.  False if memory is out.
 */
static bool
launch(EtcdClient *client, Transfer *transfer)
{
	return set_options(client, transfer) &&
		curl_multi_add_handle(client->multi, transfer->easy) == CURLM_OK;
}

/*
 * A POST to an endpoint, which launch() is still to be called for.  Takes over
 * the body.  NULL if memory is out.
 */
static Transfer *
make_transfer(EtcdClient *client, int endpoint, const char *path, char *body, size_t body_len)
{
	Transfer   *transfer = client->idle;

	if (transfer != NULL)
		client->idle = transfer->next;
	else
	{
		transfer = calloc(1, sizeof(Transfer));
		if (transfer == NULL)
		{
			free(body);
			return NULL;
		}
		transfer->easy = curl_easy_init();
		if (transfer->easy == NULL)
		{
			free(transfer);
			free(body);
			return NULL;
		}
	}

	transfer->next = NULL;
	transfer->path = path;
	transfer->body = body;
	transfer->body_len = body_len;
	transfer->endpoint = endpoint;
	transfer->endpoint_url = strdup(client->endpoints[endpoint].url);
	transfer->connect_timeout_ms = client->connect_timeout_ms;
	transfer->timeout_ms = client->request_timeout_ms;
	transfer->sent_ns = now_ns();
	transfer->deadline_ns = transfer->sent_ns + transfer->timeout_ms * NS_PER_MS;
	if (body == NULL || transfer->endpoint_url == NULL)
	{
		release_transfer(client, transfer);
		return NULL;
	}
	return transfer;
}

/* Sends a request to an endpoint.  NULL if memory is out. */
static Transfer *
start_request(EtcdClient *client, int endpoint, EtcdRequestKind kind, char *body, size_t body_len)
{
	Transfer   *transfer = make_transfer(client, endpoint, etcd_request_path(kind), body, body_len);

	if (transfer == NULL)
		return NULL;
	transfer->kind = kind;
	if (!launch(client, transfer))
	{
		release_transfer(client, transfer);
		return NULL;
	}
	transfer->next = client->in_flight;
	client->in_flight = transfer;
	return transfer;
}

/* Takes a transfer out of a list; false if it is not in it. */
static bool
unlink_transfer(Transfer **list, Transfer *transfer)
{
	while (*list != NULL && *list != transfer)
		list = &(*list)->next;
	if (*list == NULL)
		return false;
	*list = transfer->next;
	transfer->next = NULL;
	return true;
}

/* Moves a transfer that is at its end to where its end is told from. */
static void
finish_transfer(EtcdClient *client, Transfer *transfer, CURLcode result)
{
	Transfer  **last = &client->done;

	curl_multi_remove_handle(client->multi, transfer->easy);
	transfer->result = result;
	transfer->done = true;
	transfer->done_ns = now_ns();
	if (transfer->is_watch)
		return;

	(void) unlink_transfer(&client->in_flight, transfer);
	while (*last != NULL)
		last = &(*last)->next;
	*last = transfer;
}

/*
 * Lets libcurl act on a socket or its timer.  It starts a thread to resolve
 * a name, which inherits the signal mask: no signal may find its handler in
 * there.
 */
static void
run_curl(EtcdClient *client, curl_socket_t fd, int events)
{
	sigset_t	all;
	sigset_t	before;
	int			running;
	CURLMsg    *info;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	curl_multi_socket_action(client->multi, fd, events, &running);
	pthread_sigmask(SIG_SETMASK, &before, NULL);

	while ((info = curl_multi_info_read(client->multi, &running)) != NULL)
	{
		CURLcode	result = info->data.result;
		char	   *transfer = NULL;

		if (info->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(info->easy_handle, CURLINFO_PRIVATE, &transfer);
		finish_transfer(client, (Transfer *) transfer, result);
	}
}

static void
run_timer(EtcdClient *client)
{
	if (client->timer_ns <= now_ns())
	{
		client->timer_ns = INT64_MAX;
		run_curl(client, CURL_SOCKET_TIMEOUT, 0);
	}
}

/*
 * Is a connection up, or was it, through which the request could go?  There is
 * no address before a name is resolved, while libcurl 8 may have a time by
 * then; a Unix socket has none at all.
 */
static bool
was_connected(Transfer *transfer)
{
	curl_off_t	ready_us = 0;
	char	   *address = NULL;

	curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
	curl_easy_getinfo(transfer->easy, CURLINFO_PRIMARY_IP, &address);
	return ready_us > 0 &&
		((address != NULL && address[0] != '\0') ||
		 strncmp(transfer->endpoint_url, "unix", 4) == 0);
}

/*
 * Ends what took too long.  This is not left to CURLOPT_TIMEOUT_MS: when its
 * timer is met to the microsecond, libcurl (7.88) finds that a last fraction
 * of a millisecond is still left, but has forgotten the timer by then, and
 * the request never ends.  The timer to connect has the same fault, hence the
 * watch is looked at as well.
 */
static void
run_deadlines(EtcdClient *client)
{
	int64_t		now = now_ns();
	Transfer   *next;

	for (Transfer *t = client->in_flight; t != NULL; t = next)
	{
		next = t->next;
		if (t->deadline_ns <= now)
			finish_transfer(client, t, CURLE_OPERATION_TIMEDOUT);
	}
	for (Transfer *t = client->parked; t != NULL; t = next)
	{
		next = t->next;
		if (t->deadline_ns > now)
			continue;
		(void) unlink_transfer(&client->parked, t);
		finish_transfer(client, t, CURLE_OPERATION_TIMEDOUT);
	}
	if (client->watch != NULL && !client->watch->done && client->watch->deadline_ns <= now)
	{
		if (was_connected(client->watch))
			client->watch->deadline_ns = INT64_MAX;
		else
			finish_transfer(client, client->watch, CURLE_OPERATION_TIMEDOUT);
	}
}

/*
 * Sends what is late to the next endpoint as well.  Half of the time-out is
 * late: a member that hangs costs no more than that.
 */
static void
hedge(EtcdClient *client, Transfer *late)
{
	int			endpoint = (late->endpoint + 1) % client->nendpoints;
	char	   *body = malloc(late->body_len + 1);
	Transfer   *twin;

	late->hedged = true;
	if (body == NULL)
		return;
	memcpy(body, late->body, late->body_len + 1);
	twin = start_request(client, endpoint, late->kind, body, late->body_len);
	if (twin == NULL)
		return;
	twin->id = late->id;
	twin->key = late->key != NULL ? strdup(late->key) : NULL;
	twin->reads_only = true;
	twin->is_second = true;
	twin->twin = late;
	late->twin = twin;
}

static bool
may_be_hedged(const EtcdClient *client, const Transfer *transfer)
{
	return transfer->reads_only && !transfer->hedged && !transfer->is_second &&
		transfer->endpoint >= 0 && client->nendpoints > 1;
}

static int64_t
hedge_due_ns(const Transfer *transfer)
{
	return transfer->sent_ns + transfer->timeout_ms * NS_PER_MS / 2;
}

static void
run_hedges(EtcdClient *client)
{
	int64_t		now = now_ns();

	/* those that this adds stand before the one that is looked at */
	for (Transfer *t = client->in_flight; t != NULL; t = t->next)
	{
		if (may_be_hedged(client, t) && hedge_due_ns(t) <= now)
			hedge(client, t);
	}
}

/* ---- endpoints and the end of a watch -------------------------------- */

/*
 * Closes the watch, if one is open; watch_ended() is called from
 * etcd_client_process().
 */
static void
end_watch(EtcdClient *client, const char *why)
{
	Transfer   *transfer = client->watch;

	if (transfer == NULL)
		return;
	client->watch = NULL;
	etcd_format_message(client->watch_end_why, "%s", why);
	client->watch_end_due = true;
	release_transfer(client, transfer);
}

/* From now on everything goes to that endpoint. */
static void
use_endpoint(EtcdClient *client, int endpoint, const char *why)
{
	if (endpoint == client->endpoint)
		return;
	client->endpoint = endpoint;
	end_watch(client, why);
}

/* Goes on to the next endpoint if this one is in use. */
static void
leave_endpoint(EtcdClient *client, int endpoint, const char *why)
{
	if (endpoint == client->endpoint)
		use_endpoint(client, (endpoint + 1) % client->nendpoints, why);
}

static void
free_endpoints(Endpoint *endpoints, int nendpoints)
{
	for (int i = 0; i < nendpoints; i++)
	{
		free(endpoints[i].url);
		free(endpoints[i].token);
	}
	free(endpoints);
}

/* The number of an endpoint, by its URL; -1 if it is not in the list. */
static int
find_endpoint(const Endpoint *endpoints, int nendpoints, const char *url)
{
	for (int i = 0; i < nendpoints; i++)
	{
		if (strcmp(endpoints[i].url, url) == 0)
			return i;
	}
	return -1;
}

/* One more endpoint, if it is not in the list; false if memory is out. */
static bool
add_endpoint(Endpoint *endpoints, int *nendpoints, const char *url, size_t len, bool learned)
{
	Endpoint   *endpoint = &endpoints[*nendpoints];

	memset(endpoint, 0, sizeof(*endpoint));
	endpoint->url = strndup(url, len);
	endpoint->learned = learned;
	if (endpoint->url == NULL)
		return false;
	if (find_endpoint(endpoints, *nendpoints, endpoint->url) >= 0)
		free(endpoint->url);
	else
		(*nendpoints)++;
	return true;
}

/*
 * Another list of endpoints, which is taken over.  What is under way was sent
 * to the same place under another number; the endpoint in use is kept if it is
 * there, with the watch on it and with its token, else the first one is taken.
 */
static void
replace_endpoints(EtcdClient *client, Endpoint *endpoints, int nendpoints)
{
	Transfer   *lists[] = {client->in_flight, client->parked, client->done};
	int			endpoint = -1;

	for (int i = 0; i < 3; i++)
	{
		for (Transfer *t = lists[i]; t != NULL; t = t->next)
			t->endpoint = find_endpoint(endpoints, nendpoints, t->endpoint_url);
	}
	for (int i = 0; i < client->nendpoints; i++)
	{
		int			same = find_endpoint(endpoints, nendpoints, client->endpoints[i].url);

		if (same < 0)
			continue;
		endpoints[same].token = client->endpoints[i].token;
		endpoints[same].token_number = client->endpoints[i].token_number;
		client->endpoints[i].token = NULL;
	}
	if (client->nendpoints > 0)
		endpoint = find_endpoint(endpoints, nendpoints,
								 client->endpoints[client->endpoint].url);
	if (endpoint >= 0 && client->watch != NULL)
		client->watch->endpoint = endpoint;
	else
		end_watch(client, "the endpoint is not in the settings any more");

	free_endpoints(client->endpoints, client->nendpoints);
	client->endpoints = endpoints;
	client->nendpoints = nendpoints;
	client->endpoint = endpoint >= 0 ? endpoint : 0;
}

/*
 * Says in answer->outcome and ->message why a transfer failed.  True if that
 * was for lack of time.
 */
static bool
describe_failure(Transfer *transfer, EtcdAnswer *answer)
{
	const char *url = transfer->endpoint_url;
	char	   *message = answer->message;
	const char *detail = transfer->error;
	long		os_errno = 0;

	memset(answer, 0, sizeof(*answer));
	answer->outcome = ETCD_NO_ANSWER;
	curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &os_errno);
	if (detail[0] == '\0')
		detail = curl_easy_strerror(transfer->result);

	if (transfer->too_large)
	{
		answer->outcome = ETCD_GARBAGE;
		etcd_format_message(message, "answer of etcd at \"%s\" is larger than %d bytes",
							url, MAX_ANSWER_SIZE);
		return false;
	}

	switch (transfer->result)
	{
		case CURLE_OPERATION_TIMEDOUT:
			if (transfer->sent_again && !was_connected(transfer))
				etcd_format_message(message, "no token from etcd at \"%s\" within %ld ms",
									url, transfer->timeout_ms);
			else if (was_connected(transfer))
				etcd_format_message(message, "no answer from etcd at \"%s\" within %ld ms",
									url, transfer->timeout_ms);
			else
				etcd_format_message(message, "could not connect to etcd at \"%s\" within %ld ms",
									url,
									transfer->connect_timeout_ms < transfer->timeout_ms ?
									transfer->connect_timeout_ms : transfer->timeout_ms);
			return true;
		case CURLE_COULDNT_RESOLVE_HOST:
		case CURLE_COULDNT_CONNECT:
			if (os_errno != 0)
				detail = strerror((int) os_errno);
			etcd_format_message(message, "could not connect to etcd at \"%s\": %s",
								url, detail);
			break;
		case CURLE_GOT_NOTHING:
			etcd_format_message(message, "etcd at \"%s\" closed the connection without an answer",
								url);
			break;
		case CURLE_PEER_FAILED_VERIFICATION:
			etcd_format_message(message, "the certificate of etcd at \"%s\" is not valid: %s (the authority to trust is \"etcd_leader.ssl_ca_file\")",
								url, detail);
			break;
		case CURLE_SSL_CACERT_BADFILE:
			etcd_format_message(message, "could not use the file of \"etcd_leader.ssl_ca_file\": %s", detail);
			break;
		case CURLE_SSL_CERTPROBLEM:
		case CURLE_BAD_FUNCTION_ARGUMENT:	/* what libcurl 8.23 says of a bad key */
			etcd_format_message(message, "could not use the files of \"etcd_leader.ssl_cert_file\" and \"etcd_leader.ssl_key_file\": %s", detail);
			break;
		case CURLE_SSL_CONNECT_ERROR:
			etcd_format_message(message, "no TLS connection to etcd at \"%s\": %s", url, detail);
			break;
		default:
			if (transfer->result == CURLE_UNSUPPORTED_PROTOCOL || transfer->result == CURLE_WEIRD_SERVER_REPLY)
				answer->outcome = ETCD_GARBAGE;
			etcd_format_message(message, "no answer from etcd at \"%s\": %s", url, detail);
			break;
	}
	return false;
}

/* ---- telling what came ----------------------------------------------- */

/*
 * Tells the frames that are there, and notices the end of the stream.  The
 * callback may replace or close the watch, which also takes the buffer with
 * the frames that are not told yet: look at it anew after each.
 */
static void
tell_frames(EtcdClient *client)
{
	Transfer   *watch;

	while ((watch = client->watch) != NULL && watch->fresh)
	{
		EtcdWatchFrame frame;
		ssize_t		n = etcd_decode_frame(watch->data + watch->taken,
										  watch->len - watch->taken, &frame);

		if (n == 0)
		{
			watch->len -= watch->taken;
			memmove(watch->data, watch->data + watch->taken, watch->len);
			watch->taken = 0;
			watch->fresh = false;
			if (watch->paused)
			{
				/* calls record_data(), and leaves it to us if that gives up */
				watch->paused = false;
				if (curl_easy_pause(watch->easy, CURLPAUSE_CONT) != CURLE_OK)
					finish_transfer(client, watch, CURLE_WRITE_ERROR);
			}
			break;
		}
		if (n < 0 || frame.outcome != ETCD_ANSWERED)
		{
			int			endpoint = watch->endpoint;
			char		why[ETCD_MESSAGE_SIZE];

			etcd_format_message(why, "etcd at \"%s\" ended the watch: %s",
								watch->endpoint_url, frame.message);
			end_watch(client, why);
			if (etcd_blames_endpoint(frame.outcome, frame.code, frame.message))
				leave_endpoint(client, endpoint, why);
			if (n > 0)
				etcd_free_frame(&frame);
			break;
		}
		watch->taken += n;
		client->callbacks.watched(client->callbacks.ctx, &frame);
		etcd_free_frame(&frame);
	}

	/* Whatever the reason is, another endpoint may keep it open. */
	watch = client->watch;
	if (watch != NULL && watch->done)
	{
		int			endpoint = watch->endpoint;
		EtcdAnswer	answer;

		if (watch->result == CURLE_OK)
			etcd_format_message(answer.message, "etcd at \"%s\" ended the watch",
								watch->endpoint_url);
		else
			describe_failure(watch, &answer);
		end_watch(client, answer.message);
		leave_endpoint(client, endpoint, answer.message);
	}
}

static void
tell_watch_end(EtcdClient *client)
{
	char		why[ETCD_MESSAGE_SIZE];

	if (!client->watch_end_due)
		return;
	/* the callback may open a watch that fails at once, with a why anew */
	client->watch_end_due = false;
	memcpy(why, client->watch_end_why, sizeof(why));
	client->callbacks.watch_ended(client->callbacks.ctx, why);
}

/* ---- auth ------------------------------------------------------------ */

/*
 * Reads the password from its file, without the newline at its end.  False:
 * why says what is wrong with it.
 */
static bool
read_password(EtcdClient *client, char *password, size_t size, struct stat *file, char *why)
{
	const char *path = client->password_file != NULL ? client->password_file : "";
	int			fd = -1;
	ssize_t		len;

	memset(file, 0, sizeof(*file));
	if (path[0] == '\0')
		etcd_format_message(why, "\"etcd_leader.username\" is set, but \"etcd_leader.password_file\" is not");
	else if ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0 || fstat(fd, file) != 0)
		etcd_format_message(why, "could not open \"%s\" (\"etcd_leader.password_file\"): %s", path, strerror(errno));
	else if (!S_ISREG(file->st_mode))
		etcd_format_message(why, "\"%s\" (\"etcd_leader.password_file\") is not a regular file", path);
	else if ((file->st_mode & (S_IRWXG | S_IRWXO)) != 0)
		etcd_format_message(why, "\"%s\" (\"etcd_leader.password_file\") has group or world access: its permissions should be u=rw (0600) or less", path);
	else if ((len = read(fd, password, size)) < 0)
		etcd_format_message(why, "could not read \"%s\" (\"etcd_leader.password_file\"): %s", path, strerror(errno));
	else
	{
		close(fd);
		if (len > 0 && password[len - 1] == '\n')
			len--;
		if (len > 0 && (size_t) len < size && memchr(password, '\0', len) == NULL)
		{
			password[len] = '\0';
			return true;
		}
		explicit_bzero(password, size);
		etcd_format_message(why, "\"%s\" (\"etcd_leader.password_file\") must hold a password of 1 to %zu bytes, and nothing else",
							path, size - 1);
		return false;
	}
	if (fd >= 0)
		close(fd);
	return false;
}

/* Is the password that was rejected still the one in the file? */
static bool
is_still_rejected(EtcdClient *client)
{
	struct stat file;

	if (client->rejected_ns == 0 ||
		now_ns() - client->rejected_ns >= REJECTED_PASSWORD_MS * NS_PER_MS)
		return false;
	if (stat(client->password_file, &file) != 0)
		return true;
	return file.st_ino == client->rejected_file.st_ino &&
		file.st_size == client->rejected_file.st_size &&
		file.st_mtim.tv_sec == client->rejected_file.st_mtim.tv_sec &&
		file.st_mtim.tv_nsec == client->rejected_file.st_mtim.tv_nsec;
}

static bool
is_authenticating(const EtcdClient *client, int endpoint)
{
	const Transfer *lists[] = {client->in_flight, client->done};

	for (int i = 0; i < 2; i++)
	{
		for (const Transfer *t = lists[i]; t != NULL; t = t->next)
		{
			if (t->kind == ETCD_AUTHENTICATE && t->endpoint == endpoint && !t->is_void)
				return true;
		}
	}
	return false;
}

/* Asks for a token.  False: why says why that cannot be. */
static bool
authenticate(EtcdClient *client, int endpoint, char *why)
{
	char		password[MAX_PASSWORD_LEN + 1];
	EtcdRequest request = {.kind = ETCD_AUTHENTICATE, .username = client->username};
	struct stat file;
	char	   *body;
	size_t		len = 0;

	if (is_authenticating(client, endpoint))
		return true;
	if (is_still_rejected(client))
	{
		memcpy(why, client->rejection, ETCD_MESSAGE_SIZE);
		return false;
	}
	if (!read_password(client, password, sizeof(password), &file, why))
		return false;
	client->rejected_ns = 0;
	client->rejected_file = file;
	request.password = password;
	body = etcd_encode_request(&request, &len);
	explicit_bzero(password, sizeof(password));
	if (start_request(client, endpoint, ETCD_AUTHENTICATE, body, len) != NULL)
		return true;
	etcd_format_message(why, "out of memory");
	return false;
}

/* ---- telling answers ------------------------------------------------- */

/*
 * For a transfer that is in no list any more.  Takes over the answer; fills in
 * what is the same for all in timing.
 */
static void
tell(EtcdClient *client, Transfer *transfer, EtcdAnswer *answer, EtcdTiming timing)
{
	uint64_t	id = transfer->id;
	bool		blames = etcd_blames_endpoint(answer->outcome, answer->code, answer->message);
	Transfer   *twin = transfer->twin;
	bool		is_second = transfer->is_second;
	char	   *key = transfer->key;

	timing.latency_ns = now_ns() - transfer->sent_ns;
	timing.key = key;
	answer->endpoint = transfer->endpoint;
	transfer->key = NULL;
	if (blames)
		leave_endpoint(client, answer->endpoint, answer->message);
	release_transfer(client, transfer);

	if (twin != NULL && blames)
	{
		/* the other one may do better */
		twin->twin = NULL;
		client->callbacks.noticed(client->callbacks.ctx, answer->message);
	}
	else
	{
		if (twin != NULL)
		{
			char		late[ETCD_MESSAGE_SIZE];

			etcd_format_message(late, "no answer from etcd at \"%s\" within %ld ms",
								twin->endpoint_url, twin->timeout_ms / 2);
			if (unlink_transfer(&client->in_flight, twin) ||
				unlink_transfer(&client->parked, twin) ||
				unlink_transfer(&client->done, twin))
				release_transfer(client, twin);
			if (is_second && answer->endpoint >= 0)
				use_endpoint(client, answer->endpoint, late);
			if (is_second)
				client->callbacks.noticed(client->callbacks.ctx, late);
		}
		client->callbacks.answered(client->callbacks.ctx, id, answer, &timing);
	}
	free(key);
	etcd_free_answer(answer);
}

/* Tells the transfers that wait for a token of an endpoint that there is none. */
static void
tell_parked(EtcdClient *client, int endpoint, EtcdOutcome outcome, int code, const char *message)
{
	Transfer   *t = client->parked;

	while (t != NULL)
	{
		EtcdAnswer	answer = {.outcome = outcome, .code = code};

		if (t->endpoint != endpoint)
		{
			t = t->next;
			continue;
		}
		etcd_format_message(answer.message, "%s", message);
		(void) unlink_transfer(&client->parked, t);
		tell(client, t, &answer, (EtcdTiming) {.explained = true});
		/* that may have changed the list */
		t = client->parked;
	}
}

/* Sends the transfers that wait for a token of an endpoint again. */
static void
send_parked(EtcdClient *client, int endpoint)
{
	Transfer   *next;

	for (Transfer *t = client->parked; t != NULL; t = next)
	{
		next = t->next;
		if (t->endpoint != endpoint)
			continue;
		(void) unlink_transfer(&client->parked, t);
		t->next = client->in_flight;
		client->in_flight = t;
		if (!launch(client, t))
			finish_transfer(client, t, CURLE_OUT_OF_MEMORY);
	}
}

/*
 * Does this want a token that it can get?  Then it waits for it.  An etcd
 * that closes the connection without a word may mean the token, too (etcd
 * #15256).
 */
static bool
park(EtcdClient *client, Transfer *transfer, const EtcdAnswer *answer)
{
	char		why[ETCD_MESSAGE_SIZE];

	if (client->username == NULL || transfer->endpoint < 0 || transfer->sent_again ||
		transfer->kind == ETCD_AUTHENTICATE ||
		!(etcd_wants_token(answer->outcome, answer->code, answer->message) ||
		  (transfer->result == CURLE_GOT_NOTHING &&
		   client->endpoints[transfer->endpoint].token != NULL)))
		return false;

	/* as it was made, to be sent again */
	curl_easy_reset(transfer->easy);
	curl_slist_free_all(transfer->headers);
	curl_slist_free_all(transfer->connect_to);
	transfer->headers = NULL;
	transfer->connect_to = NULL;
	transfer->len = 0;
	transfer->done = false;
	transfer->error[0] = '\0';
	transfer->sent_again = true;
	transfer->deadline_ns = now_ns() + transfer->timeout_ms * NS_PER_MS;
	transfer->next = client->parked;
	client->parked = transfer;

	if (client->endpoints[transfer->endpoint].token_number > transfer->token_number)
		send_parked(client, transfer->endpoint);	/* there is a newer one */
	else if (!authenticate(client, transfer->endpoint, why))
		tell_parked(client, transfer->endpoint, ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED, why);
	return true;
}

static void
receive_token(EtcdClient *client, Transfer *transfer, EtcdAnswer *answer)
{
	int			endpoint = transfer->endpoint;

	if (endpoint >= 0 && transfer->is_void)
	{
		char		why[ETCD_MESSAGE_SIZE];

		/* once more; without a user nobody waits for it */
		if (client->username != NULL && !authenticate(client, endpoint, why))
			tell_parked(client, endpoint, ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED, why);
	}
	else if (endpoint >= 0 && (answer->outcome == ETCD_ANSWERED || etcd_says_auth_is_off(answer)))
	{
		char	   *token = answer->token != NULL ? strdup(answer->token) : NULL;

		free(client->endpoints[endpoint].token);
		client->endpoints[endpoint].token = token;
		client->endpoints[endpoint].token_number = ++client->ntokens;
		send_parked(client, endpoint);
	}
	else if (endpoint >= 0)
	{
		char		why[ETCD_MESSAGE_SIZE];
		const char *advice = etcd_advise(answer->code, answer->message);

		if (answer->outcome == ETCD_REFUSED)
			etcd_format_message(why, "etcd at \"%s\" gives user \"%s\" no token: %s%s%s%s",
								transfer->endpoint_url, client->username, answer->message,
								advice ? " (" : "", advice ? advice : "", advice ? ")" : "");
		else
			etcd_format_message(why, "%s", answer->message);
		/* "not now" is no reason to wait, a wrong password is */
		if (answer->outcome == ETCD_REFUSED && answer->code == ETCD_CODE_INVALID_ARGUMENT)
		{
			memcpy(client->rejection, why, ETCD_MESSAGE_SIZE);
			client->rejected_ns = now_ns();
		}
		client->callbacks.noticed(client->callbacks.ctx, why);
		tell_parked(client, endpoint, answer->outcome, answer->code, why);
	}
	release_transfer(client, transfer);
	etcd_free_answer(answer);
}

/* ---- members --------------------------------------------------------- */

/*
 * A look at the cluster, that nothing depends on: so it also shows whether
 * files that were changed can be used.
 */
static void
probe(EtcdClient *client)
{
	EtcdRequest request = {.kind = ETCD_LIST_MEMBERS};
	char		why[ETCD_MESSAGE_SIZE];
	size_t		len = 0;
	char	   *body;

	client->probe_due_ns = now_ns() + PROBE_INTERVAL_MS * NS_PER_MS;
	body = etcd_encode_request(&request, &len);
	(void) start_request(client, client->endpoint, ETCD_LIST_MEMBERS, body, len);
	if (client->username != NULL && !authenticate(client, client->endpoint, why))
		client->callbacks.noticed(client->callbacks.ctx, why);
}

/* The length of a member's URL, without the slash at its end. */
static size_t
url_length(const char *url)
{
	size_t		len = strlen(url);

	return len > 0 && url[len - 1] == '/' ? len - 1 : len;
}

/* Is it of the scheme of an endpoint in the settings?  So TLS is never left. */
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

/*
 * Members that are not in the settings are endpoints, too: the last ones.
 * Only, if an endpoint of the settings is what a member announces of itself:
 * else there is a proxy between, and who knows where their URLs lead from
 * here.
 */
static void
receive_members(EtcdClient *client, Transfer *transfer, EtcdAnswer *answer)
{
	Endpoint   *endpoints = NULL;
	int			nendpoints = 0;
	bool		known = false;
	bool		good = answer->outcome == ETCD_ANSWERED;

	if (answer->outcome == ETCD_NO_ANSWER)
		client->callbacks.noticed(client->callbacks.ctx, answer->message);
	/* else DNS says which endpoints there are */
	good = good && client->server_name == NULL;
	release_transfer(client, transfer);
	if (good)
		endpoints = calloc(ETCD_CLIENT_MAX_ENDPOINTS + 1, sizeof(Endpoint));
	good = good && endpoints != NULL;
	for (int i = 0; good && i < client->nendpoints; i++)
	{
		const char *url = client->endpoints[i].url;

		if (!client->endpoints[i].learned)
			good = add_endpoint(endpoints, &nendpoints, url, strlen(url), false);
	}
	for (int i = 0; good && i < answer->nmembers; i++)
	{
		const EtcdMember *member = &answer->members[i];

		for (int j = 0; good && j < member->nclient_urls; j++)
		{
			const char *url = member->client_urls[j];

			for (int k = 0; k < client->nendpoints; k++)
				known |= !client->endpoints[k].learned &&
					url_length(url) == url_length(client->endpoints[k].url) &&
					strncmp(url, client->endpoints[k].url, url_length(url)) == 0;
			if (!member->is_learner && is_scheme_in_use(client, url) &&
				strlen(url) < ETCD_CLIENT_MAX_URL_LEN && nendpoints < ETCD_CLIENT_MAX_ENDPOINTS)
				good = add_endpoint(endpoints, &nendpoints, url, url_length(url), true);
		}
	}
	etcd_free_answer(answer);

	if (good && !known)
	{
		while (nendpoints > 0 && endpoints[nendpoints - 1].learned)
			free(endpoints[--nendpoints].url);
	}
	if (good)
	{
		bool		same = nendpoints == client->nendpoints;

		for (int i = 0; same && i < nendpoints; i++)
			same = strcmp(endpoints[i].url, client->endpoints[i].url) == 0;
		good = !same;
	}
	if (!good)
	{
		free_endpoints(endpoints, nendpoints);
		return;
	}
	replace_endpoints(client, endpoints, nendpoints);
	client->callbacks.endpoints_changed(client->callbacks.ctx);
}

/* ---- what was done --------------------------------------------------- */

/* Tells the answer of the transfer that was done first. */
static void
tell_answer(EtcdClient *client)
{
	Transfer   *transfer = client->done;
	EtcdAnswer	answer;
	EtcdTiming	timing = {0};

	client->done = transfer->next;
	transfer->next = NULL;
	if (transfer->result != CURLE_OK)
		timing.timed_out = describe_failure(transfer, &answer);
	else
	{
		long		http_status = 0;

		curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &http_status);
		etcd_decode_answer(transfer->kind, http_status,
						   transfer->data != NULL ? transfer->data : "",
						   transfer->len, &answer);
		if (answer.outcome == ETCD_GARBAGE)
		{
			char		why[ETCD_MESSAGE_SIZE];

			memcpy(why, answer.message, sizeof(why));
			etcd_format_message(answer.message, "answer of etcd at \"%s\" is not understood: %s",
								transfer->endpoint_url, why);
		}
	}

	if (park(client, transfer, &answer))
		etcd_free_answer(&answer);
	else if (transfer->kind == ETCD_AUTHENTICATE)
		receive_token(client, transfer, &answer);
	else if (transfer->kind == ETCD_LIST_MEMBERS)
		receive_members(client, transfer, &answer);
	else
	{
		if (answer.outcome == ETCD_ANSWERED && client->probe_due_ns <= now_ns())
			probe(client);
		tell(client, transfer, &answer, timing);
	}
}

/* Tells that requests could not be sent, but not those that follow from it. */
static void
tell_unsent(EtcdClient *client)
{
	for (int n = client->nunsent; n > 0; n--)
	{
		Unsent		unsent = client->unsent[0];
		EtcdAnswer	answer = {0};
		EtcdTiming	timing = {0};

		client->nunsent--;
		memmove(client->unsent, client->unsent + 1, client->nunsent * sizeof(Unsent));
		answer.outcome = ETCD_NO_ANSWER;
		answer.endpoint = -1;
		etcd_format_message(answer.message, "%s", unsent.why);
		client->callbacks.answered(client->callbacks.ctx, unsent.id, &answer, &timing);
	}
}

/* ---- functions for the caller ---------------------------------------- */

EtcdClient *
etcd_client_create(const EtcdClientCallbacks *callbacks)
{
	EtcdClient *client;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return NULL;
	client = calloc(1, sizeof(EtcdClient));
	if (client != NULL)
		client->multi = curl_multi_init();
	if (client == NULL || client->multi == NULL)
	{
		free(client);
		curl_global_cleanup();
		return NULL;
	}
	client->callbacks = *callbacks;
	client->timer_ns = INT64_MAX;
	curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, record_socket);
	curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
	curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, record_timer);
	curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
	curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, MAX_CONNECTIONS);
#if LIBCURL_VERSION_NUM >= 0x081400
	/* since 8.20 the resolver's threads belong to the multi handle */
	curl_multi_setopt(client->multi, CURLMOPT_QUICK_EXIT, 1L);
#endif
	return client;
}

static void
free_transfers(EtcdClient *client, Transfer *transfer)
{
	while (transfer != NULL)
	{
		Transfer   *next = transfer->next;

		clear_transfer(client, transfer);
		curl_easy_cleanup(transfer->easy);
		free(transfer);
		transfer = next;
	}
}

void
etcd_client_free(EtcdClient *client)
{
	if (client == NULL)
		return;
	free_transfers(client, client->watch);
	free_transfers(client, client->in_flight);
	free_transfers(client, client->parked);
	free_transfers(client, client->done);
	free_transfers(client, client->idle);
	curl_multi_cleanup(client->multi);
	curl_global_cleanup();
	free_endpoints(client->endpoints, client->nendpoints);
	free(client->ca_file);
	free(client->cert_file);
	free(client->key_file);
	free(client->server_name);
	free(client->username);
	free(client->password_file);
	free(client->sockets);
	free(client);
}

/* Replaces a copy of a string; NULL or empty is NULL.  False if memory is out. */
static bool
copy_setting(char **setting, const char *value)
{
	char	   *copy = NULL;

	if (value != NULL && value[0] != '\0' && (copy = strdup(value)) == NULL)
		return false;
	free(*setting);
	*setting = copy;
	return true;
}

static bool
is_same_setting(const char *setting, const char *value)
{
	return strcmp(setting != NULL ? setting : "", value != NULL ? value : "") == 0;
}

/* Are these the endpoints of the settings before? */
static bool
are_same_endpoints(const EtcdClient *client, const EtcdClientSettings *settings)
{
	int			nconfigured = 0;

	while (nconfigured < client->nendpoints && !client->endpoints[nconfigured].learned)
		nconfigured++;
	if (nconfigured != settings->nendpoints)
		return false;
	for (int i = 0; i < nconfigured; i++)
	{
		if (strcmp(client->endpoints[i].url, settings->endpoints[i]) != 0)
			return false;
	}
	return is_same_setting(client->server_name, settings->server_name);
}

void
etcd_client_configure(EtcdClient *client, const EtcdClientSettings *settings)
{
	bool		same_user = is_same_setting(client->username, settings->username);
	Transfer   *lists[] = {client->in_flight, client->done};

	/* what was learned of the members holds for these endpoints alone */
	if (!are_same_endpoints(client, settings))
	{
		Endpoint   *endpoints = calloc(settings->nendpoints + 1, sizeof(Endpoint));
		int			nendpoints = 0;
		bool		good = endpoints != NULL;

		for (int i = 0; good && i < settings->nendpoints; i++)
			good = add_endpoint(endpoints, &nendpoints, settings->endpoints[i],
								strlen(settings->endpoints[i]), false);
		if (!good)
		{
			free_endpoints(endpoints, nendpoints);
			return;
		}
		replace_endpoints(client, endpoints, nendpoints);
	}
	client->probe_due_ns = 0;

	if (!copy_setting(&client->server_name, settings->server_name) ||
		!copy_setting(&client->ca_file, settings->ca_file) ||
		!copy_setting(&client->cert_file, settings->cert_file) ||
		!copy_setting(&client->key_file, settings->key_file) ||
		!copy_setting(&client->username, settings->username) ||
		!copy_setting(&client->password_file, settings->password_file))
		return;
	client->tls_1_3 = settings->tls_1_3;
	client->request_timeout_ms = settings->request_timeout_ms;
	client->connect_timeout_ms = settings->connect_timeout_ms;
	client->rejected_ns = 0;
	for (int i = 0; i < client->nendpoints && !same_user; i++)
	{
		free(client->endpoints[i].token);
		client->endpoints[i].token = NULL;
	}
	/* a token that is under way may be that of another user, or password */
	for (int i = 0; i < 2; i++)
	{
		for (Transfer *t = lists[i]; t != NULL; t = t->next)
		{
			if (t->kind == ETCD_AUTHENTICATE)
				t->is_void = true;
		}
	}
	for (int i = 0; i < client->nendpoints && client->username == NULL; i++)
		send_parked(client, i);
}

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

/* May it be sent twice, at once?  Then nothing changes by it. */
static bool
reads_only(const EtcdRequest *request)
{
	if (request->kind == ETCD_KEEPALIVE || request->kind == ETCD_TIME_TO_LIVE)
		return true;
	for (int i = 0; i < request->nsuccess; i++)
	{
		if (request->success[i].kind != ETCD_OP_RANGE)
			return false;
	}
	for (int i = 0; i < request->nfailure; i++)
	{
		if (request->failure[i].kind != ETCD_OP_RANGE)
			return false;
	}
	return request->kind == ETCD_TXN;
}

void
etcd_client_send(EtcdClient *client, uint64_t id, const EtcdRequest *request)
{
	const char *why = "there is no endpoint";

	if (client->nendpoints > 0)
	{
		size_t		len = 0;
		char	   *body = etcd_encode_request(request, &len);
		Transfer   *transfer;

		transfer = start_request(client, client->endpoint, request->kind, body, len);
		if (transfer != NULL)
		{
			transfer->id = id;
			transfer->key = copy_key(request);
			transfer->reads_only = reads_only(request);
			return;
		}
		why = "out of memory";
	}
	if (client->nunsent < MAX_UNSENT)
	{
		client->unsent[client->nunsent].id = id;
		client->unsent[client->nunsent].why = why;
		client->nunsent++;
	}
}

void
etcd_client_watch(EtcdClient *client, const EtcdWatch *watches, int nwatches)
{
	const char *why = "there is no endpoint";

	end_watch(client, "");
	client->watch_end_due = false;
	if (nwatches == 0)
		return;

	if (client->nendpoints > 0)
	{
		size_t		len = 0;
		char	   *body = etcd_encode_watches(watches, nwatches, &len);
		Transfer   *watch = make_transfer(client, client->endpoint, ETCD_WATCH_PATH, body, len);

		if (watch != NULL)
		{
			watch->is_watch = true;
			watch->timeout_ms = client->connect_timeout_ms;
			watch->deadline_ns = watch->sent_ns + watch->timeout_ms * NS_PER_MS;
			if (launch(client, watch))
			{
				client->watch = watch;
				return;
			}
			release_transfer(client, watch);
		}
		why = "out of memory";
	}
	etcd_format_message(client->watch_end_why, "%s", why);
	client->watch_end_due = true;
}

void
etcd_client_change_endpoint(EtcdClient *client, int endpoint)
{
	leave_endpoint(client, endpoint, "the endpoint was changed");
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

const EtcdSocket *
etcd_client_sockets(const EtcdClient *client, int *nsockets, uint64_t *changes)
{
	*nsockets = client->nsockets;
	*changes = client->socket_changes;
	return client->sockets;
}

long
etcd_client_timeout_ms(const EtcdClient *client)
{
	int64_t		due_ns = client->timer_ns;
	int64_t		wait_ns;

	if (client->done != NULL || client->nunsent > 0 || client->watch_end_due)
		return 0;
	if (client->watch != NULL && (client->watch->fresh || client->watch->done))
		return 0;

	for (Transfer *t = client->in_flight; t != NULL; t = t->next)
	{
		if (t->deadline_ns < due_ns)
			due_ns = t->deadline_ns;
		if (may_be_hedged(client, t) && hedge_due_ns(t) < due_ns)
			due_ns = hedge_due_ns(t);
	}
	for (Transfer *t = client->parked; t != NULL; t = t->next)
	{
		if (t->deadline_ns < due_ns)
			due_ns = t->deadline_ns;
	}
	if (client->watch != NULL && client->watch->deadline_ns < due_ns)
		due_ns = client->watch->deadline_ns;
	if (due_ns == INT64_MAX)
		return -1;

	/* rounded up, so that it is due when the time is over */
	wait_ns = due_ns - now_ns();
	return wait_ns <= 0 ? 0 : (long) ((wait_ns + NS_PER_MS - 1) / NS_PER_MS);
}

void
etcd_client_socket_ready(EtcdClient *client, int fd, int events)
{
	int			mask = 0;

	if (events & ETCD_SOCKET_READABLE)
		mask |= CURL_CSELECT_IN;
	if (events & ETCD_SOCKET_WRITEABLE)
		mask |= CURL_CSELECT_OUT;
	if (events & ETCD_SOCKET_ERROR)
		mask |= CURL_CSELECT_ERR;
	run_curl(client, fd, mask);
}

void
etcd_client_process(EtcdClient *client)
{
	run_timer(client);
	run_deadlines(client);
	run_hedges(client);

	/* frames first: they are what a hand-over waits for */
	tell_frames(client);
	tell_watch_end(client);
	tell_unsent(client);
	while (client->done != NULL)
		tell_answer(client);
	tell_watch_end(client);

	/* gets what the callbacks sent on its way, without another turn */
	run_timer(client);
}

void
etcd_client_drain(EtcdClient *client, long timeout_ms, bool (*done) (void *ctx), void *ctx)
{
	int64_t		end_ns = now_ns() + timeout_ms * NS_PER_MS;
	int64_t		half_ns = now_ns() + timeout_ms * NS_PER_MS / 2;

	/* what an endpoint does not answer shall have time for another one */
	for (Transfer *t = client->in_flight; t != NULL && client->nendpoints > 1; t = t->next)
	{
		if (t->deadline_ns > half_ns)
			t->deadline_ns = half_ns;
	}
	for (;;)
	{
		int64_t		left_ms;
		long		wait_ms;

		etcd_client_process(client);
		left_ms = (end_ns - now_ns()) / NS_PER_MS;
		if (done(ctx) || left_ms <= 0)
			return;
		wait_ms = etcd_client_timeout_ms(client);
		if (wait_ms < 0 || wait_ms > left_ms)
			wait_ms = (long) left_ms;
		curl_multi_poll(client->multi, NULL, 0, (int) wait_ms, NULL);

		/* libcurl finds out itself what each is ready for; one that moves
		 * within the list meanwhile has its turn in the next round */
		for (int i = 0; i < client->nsockets; i++)
			etcd_client_socket_ready(client, client->sockets[i].fd, 0);
	}
}
