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
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

#define NS_PER_MS		INT64_C(1000000)

typedef struct Transfer
{
	struct Transfer *next;		/* in the list that it is in */
	CURL	   *easy;
	struct curl_slist *headers;
	char	   *body;			/* of the request */
	char	   *endpoint_url;	/* as configured when it was sent */
	int			endpoint;		/* its number now; -1: not in the list any more */
	uint64_t	id;
	EtcdRequestKind kind;
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

	char	  **endpoints;
	int			nendpoints;
	int			endpoint;		/* in use */
	long		request_timeout_ms;
	long		connect_timeout_ms;

	Transfer   *in_flight;
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
	free(transfer->body);
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

/* False if memory is out. */
static bool
set_options(Transfer *transfer, const char *path, size_t body_len)
{
	size_t		url_len = strlen(transfer->endpoint_url);
	char	   *url = malloc(url_len + strlen(path) + 1);
	CURLcode	url_result;

	if (url == NULL)
		return false;
	while (url_len > 0 && transfer->endpoint_url[url_len - 1] == '/')
		url_len--;
	memcpy(url, transfer->endpoint_url, url_len);
	strcpy(url + url_len, path);
	url_result = curl_easy_setopt(transfer->easy, CURLOPT_URL, url);
	free(url);
	if (url_result != CURLE_OK)
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

	SET_OPTION(CURLOPT_HTTPHEADER, transfer->headers);
	SET_OPTION(CURLOPT_POST, 1L);
	SET_OPTION(CURLOPT_POSTFIELDS, transfer->body);
	SET_OPTION(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) body_len);
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
	if (transfer->is_watch)
	{
		/* leave the connection that is open to the requests: it is warm */
		SET_OPTION(CURLOPT_FRESH_CONNECT, 1L);
		SET_OPTION(CURLOPT_TCP_KEEPALIVE, 1L);
		SET_OPTION(CURLOPT_TCP_KEEPIDLE, WATCH_KEEPALIVE_IDLE_S);
		SET_OPTION(CURLOPT_TCP_KEEPINTVL, WATCH_KEEPALIVE_INTERVAL_S);
	}
	return true;
}

/*
 * Starts a POST to the endpoint in use; nothing is sent before libcurl is
 * called the next time, which its timer asks for at once.  Takes over the
 * body.  NULL if memory is out.
 */
static Transfer *
start_transfer(EtcdClient *client, const char *path, char *body, size_t body_len,
			   bool is_watch)
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
	transfer->is_watch = is_watch;
	transfer->body = body;
	transfer->endpoint = client->endpoint;
	transfer->endpoint_url = strdup(client->endpoints[client->endpoint]);
	transfer->connect_timeout_ms = client->connect_timeout_ms;
	transfer->timeout_ms = is_watch ? client->connect_timeout_ms : client->request_timeout_ms;
	transfer->sent_ns = now_ns();
	transfer->deadline_ns = transfer->sent_ns + transfer->timeout_ms * NS_PER_MS;
	if (body == NULL || transfer->endpoint_url == NULL ||
		!set_options(transfer, path, body_len) ||
		curl_multi_add_handle(client->multi, transfer->easy) != CURLM_OK)
	{
		release_transfer(client, transfer);
		return NULL;
	}
	return transfer;
}

/* Moves a transfer that is at its end to where its end is told from. */
static void
finish_transfer(EtcdClient *client, Transfer *transfer, CURLcode result)
{
	Transfer  **link;

	curl_multi_remove_handle(client->multi, transfer->easy);
	transfer->result = result;
	transfer->done = true;
	transfer->done_ns = now_ns();
	if (transfer->is_watch)
		return;

	link = &client->in_flight;
	while (*link != transfer)
		link = &(*link)->next;
	*link = transfer->next;

	transfer->next = NULL;
	link = &client->done;
	while (*link != NULL)
		link = &(*link)->next;
	*link = transfer;
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

/* Is a connection up, or was it, through which the request could go? */
static bool
was_connected(Transfer *transfer)
{
	curl_off_t	ready_us = 0;

	curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
	return ready_us > 0;
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
	if (client->watch != NULL && !client->watch->done && client->watch->deadline_ns <= now)
	{
		if (was_connected(client->watch))
			client->watch->deadline_ns = INT64_MAX;
		else
			finish_transfer(client, client->watch, CURLE_OPERATION_TIMEDOUT);
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

/* Goes on to the next endpoint if there is one and this one is in use. */
static void
leave_endpoint(EtcdClient *client, int endpoint, const char *why)
{
	if (endpoint != client->endpoint || client->nendpoints < 2)
		return;
	client->endpoint = (client->endpoint + 1) % client->nendpoints;
	end_watch(client, why);
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
			if (was_connected(transfer))
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
		case CURLE_UNSUPPORTED_PROTOCOL:
		case CURLE_WEIRD_SERVER_REPLY:
			answer->outcome = ETCD_GARBAGE;
			/* FALLTHROUGH */
		default:
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

/* Tells the answer of the transfer that was done first. */
static void
tell_answer(EtcdClient *client)
{
	Transfer   *transfer = client->done;
	uint64_t	id = transfer->id;
	EtcdAnswer	answer;
	EtcdTiming	timing = {0};

	timing.latency_ns = transfer->done_ns - transfer->sent_ns;
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
	answer.endpoint = transfer->endpoint;
	if (etcd_blames_endpoint(answer.outcome, answer.code, answer.message))
		leave_endpoint(client, transfer->endpoint, answer.message);

	client->done = transfer->next;
	release_transfer(client, transfer);
	client->callbacks.answered(client->callbacks.ctx, id, &answer, &timing);
	etcd_free_answer(&answer);
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
	return client;
}

static void
free_endpoints(char **endpoints, int nendpoints)
{
	for (int i = 0; i < nendpoints; i++)
		free(endpoints[i]);
	free(endpoints);
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
	free_transfers(client, client->done);
	free_transfers(client, client->idle);
	curl_multi_cleanup(client->multi);
	curl_global_cleanup();
	free_endpoints(client->endpoints, client->nendpoints);
	free(client->sockets);
	free(client);
}

/* The number of an endpoint, by its URL; -1 if it is not in the list. */
static int
find_endpoint(char **endpoints, int nendpoints, const char *url)
{
	for (int i = 0; i < nendpoints; i++)
	{
		if (strcmp(endpoints[i], url) == 0)
			return i;
	}
	return -1;
}

void
etcd_client_configure(EtcdClient *client, const EtcdClientSettings *settings)
{
	int			nendpoints = settings->nendpoints;
	char	  **endpoints = calloc(nendpoints, sizeof(char *));
	int			endpoint = -1;

	if (endpoints == NULL)
		return;
	for (int i = 0; i < nendpoints; i++)
	{
		endpoints[i] = strdup(settings->endpoints[i]);
		if (endpoints[i] == NULL)
		{
			free_endpoints(endpoints, nendpoints);
			return;
		}
	}

	/* what is under way was sent to the same place under another number */
	for (Transfer *t = client->in_flight; t != NULL; t = t->next)
		t->endpoint = find_endpoint(endpoints, nendpoints, t->endpoint_url);
	for (Transfer *t = client->done; t != NULL; t = t->next)
		t->endpoint = find_endpoint(endpoints, nendpoints, t->endpoint_url);

	if (client->nendpoints > 0)
		endpoint = find_endpoint(endpoints, nendpoints,
								 client->endpoints[client->endpoint]);
	if (endpoint >= 0 && client->watch != NULL)
		client->watch->endpoint = endpoint;
	else
		end_watch(client, "the endpoint is not in the settings any more");

	free_endpoints(client->endpoints, client->nendpoints);
	client->endpoints = endpoints;
	client->nendpoints = nendpoints;
	client->endpoint = endpoint >= 0 ? endpoint : 0;
	client->request_timeout_ms = settings->request_timeout_ms;
	client->connect_timeout_ms = settings->connect_timeout_ms;
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

		transfer = start_transfer(client, etcd_request_path(request->kind), body, len, false);
		if (transfer != NULL)
		{
			transfer->id = id;
			transfer->kind = request->kind;
			transfer->next = client->in_flight;
			client->in_flight = transfer;
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

		client->watch = start_transfer(client, ETCD_WATCH_PATH, body, len, true);
		if (client->watch != NULL)
			return;
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
etcd_client_endpoint(const EtcdClient *client)
{
	return client->endpoint;
}

const char *
etcd_client_endpoint_url(const EtcdClient *client, int endpoint)
{
	if (endpoint < 0 || endpoint >= client->nendpoints)
		return "";
	return client->endpoints[endpoint];
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
