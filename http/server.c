/*-------------------------------------------------------------------------
 *
 * server.c
 *	  The HTTP server: one event loop, in a process of its own.
 *
 * libmicrohttpd parses requests, speaks TLS, and has no thread here; its
 * epoll descriptor is one of those that the loop waits for.  Connections are
 * accepted by the loop, which so keeps them within their limits.
 *
 * An ERROR in this process has no handler, hence ends it, and the worker
 * starts another.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/smart_shutdown.h"
#include "http.h"

/* Memory of a request: its line, its headers, and the head of the answer. */
#define REQUEST_SIZE		(16 * 1024)

/* More wait for the next turn. */
#define ACCEPTS_PER_TURN	32

/* With no connection to close, how long to wait for descriptors or memory. */
#define NO_RESOURCES_MS		100

/* How long requests under way may take when the server has to finish. */
#define DRAIN_MS			1000

/* The page asks for the queues no more often. */
#define QUEUES_INTERVAL_MS	2000

#define EVENT_DAEMON		HTTP_MAX_LISTENERS
#define EVENT_CONTROL		(HTTP_MAX_LISTENERS + 1)

static struct MHD_Daemon *daemon_handle;
static const HttpConfig *config;
static int	epoll_fd;
static int	control;
static int64 drain_until_ms;	/* while source.draining */
static HttpSource source;

/* ---- what the worker tells ------------------------------------------------- */

static void
send_to_worker(HttpMessageKind kind)
{
	(void) send(control, &kind, sizeof(kind), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Asks the worker for the queues if a page wants them, unless that was of late. */
static void
ask_for_queues(void)
{
	static int64 asked_ms = -QUEUES_INTERVAL_MS;
	int64		now_ms = http_clock_ms();

	if (source.queues_wanted && now_ms - asked_ms >= QUEUES_INTERVAL_MS)
	{
		asked_ms = now_ms;
		send_to_worker(HTTP_WANT_QUEUES);
	}
	source.queues_wanted = false;
}

static void
keep_queue(const HttpQueue *queue)
{
	if (queue->election >= HTTP_MAX_QUEUES)
		return;
	if (source.queues[queue->election] == NULL)
		source.queues[queue->election] = MemoryContextAlloc(TopMemoryContext, sizeof(HttpQueue));
	*source.queues[queue->election] = *queue;
}

/* From now on no connection is accepted, and none goes on for another request. */
static void
begin_to_drain(void)
{
	source.draining = true;
	drain_until_ms = http_clock_ms() + DRAIN_MS;
	close(control);
	for (int i = 0; i < config->nlisteners; i++)
	{
		/* the worker has it open, too: closing does not take it out of the set */
		if (config->listeners[i].fd >= 0)
		{
			(void) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, config->listeners[i].fd, NULL);
			close(config->listeners[i].fd);
		}
	}
}

static void
serve_control(void)
{
	static HttpQueue queue;
	ssize_t		len;

	while ((len = recv(control, &queue, sizeof(queue), MSG_DONTWAIT)) == sizeof(queue))
		keep_queue(&queue);
	if (len == 0)
		begin_to_drain();
}

/* ---- connections ------------------------------------------------------------- */

/* Does the first election drain? */
static bool
is_draining(void)
{
	EtcdLeaderStatus status;

	return http_api->get_status(0, &status, sizeof(status)) && status.is_draining;
}

/*
 * Answers an agent check of HAProxy: says whether this instance leads, and
 * closes the connection.  "drain" keeps the sessions that there are, and sends
 * no new ones.  The line fits into the socket's empty buffer, so this
 * never waits.
 */
static void
answer_agent(int fd)
{
	bool		is_stopping = is_in_smart_shutdown();
	bool		leads = http_api->is_leader(NULL);
	const char *line = leads && !is_stopping ? "up ready\n" :
		leads || is_draining() ? "drain\n" : "down\n";
	char		ignored[1024];

	(void) send(fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
	(void) shutdown(fd, SHUT_WR);

	/*
	 * Data that the client has sent, as "agent-send" does, must not reset the
	 * connection.  It is read once: a client that sends more, without end, is
	 * not to keep others waiting.
	 */
	(void) recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT);
	close(fd);
}

static int
connection_fd(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static void
connection_changed(void *cls, struct MHD_Connection *connection, void **context,
				   enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_CLOSED)
		connections_remove(connection_fd(connection));
}

static void
request_completed(void *cls, struct MHD_Connection *connection, void **request,
				  enum MHD_RequestTerminationCode how)
{
	if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		connections_completed(connection_fd(connection));
}

static void
accept_connections(const HttpListener *listener)
{
	for (int i = 0; i < ACCEPTS_PER_TURN; i++)
	{
		struct sockaddr_storage address;
		socklen_t	len = sizeof(address);
		int			fd;
		bool		is_over_limit;

		if (connections_count() == CONNECTIONS_MAX && !listener->is_agent)
		{
			/*
			 * no connection is accepted before there is room, whatever its
			 * address
			 */
			(void) connections_make_any_room();
			return;
		}
		fd = accept4(listener->fd, (struct sockaddr *) &address, &len,
					 SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
		{
			/* a connection that cannot be accepted stays in the queue */
			if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) &&
				!connections_make_any_room())
				pg_usleep(NO_RESOURCES_MS * 1000L);
			return;
		}
		if (listener->is_agent)
		{
			answer_agent(fd);
			continue;
		}
		is_over_limit = connections_make_room(&address);
		connections_add(fd, &address);
		if (MHD_add_connection(daemon_handle, fd, (struct sockaddr *) &address, len) != MHD_YES)
			connections_remove(fd);
		/* the next turn begins with the close of the one that has made room */
		if (is_over_limit)
			return;
	}
}

/* ---- the loop ------------------------------------------------------------------ */

static void pg_attribute_printf(2, 0)
log_start_failure(void *cls, const char *format, va_list args)
{
	char		message[512];

	/* later messages are about errors of clients */
	if (daemon_handle != NULL)
		return;
	vsnprintf(message, sizeof(message), format, args);
	message[strcspn(message, "\n")] = '\0';
	ereport(LOG,
			(errmsg("libmicrohttpd: %s", message)));
}

static struct MHD_Daemon *
start_daemon(void)
{
	unsigned int flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_KEY, 0, config->key},
		{MHD_OPTION_HTTPS_MEM_CERT, 0, config->certificate},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
		{MHD_OPTION_END, 0, NULL}
	};

	if (config->certificate)
		flags |= MHD_USE_TLS;
	else
		tls[0].option = MHD_OPTION_END;
	return MHD_start_daemon(flags, 0, NULL, NULL,
							http_answer, &source,
							MHD_OPTION_EXTERNAL_LOGGER, log_start_failure, NULL,
							MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) REQUEST_SIZE,
							MHD_OPTION_CONNECTION_LIMIT, (unsigned int) 2 * CONNECTIONS_MAX,
							MHD_OPTION_NOTIFY_CONNECTION, connection_changed, NULL,
							MHD_OPTION_NOTIFY_COMPLETED, request_completed, NULL,
#if MHD_VERSION >= 0x00097205
							MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
#endif
							MHD_OPTION_ARRAY, tls,
							MHD_OPTION_END);
}

static void
watch_fd(int fd, int what)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = what};

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		ereport(FATAL,
				(errcode_for_socket_access(),
				 errmsg("could not add a socket of the HTTP server to epoll: %m")));
}

/* Milliseconds until there is work; -1: never. */
static int
next_timeout_ms(void)
{
	MHD_UNSIGNED_LONG_LONG daemon_ms;
	int			timeout_ms = connections_expire();

	if (MHD_get_timeout(daemon_handle, &daemon_ms) == MHD_YES &&
		(timeout_ms < 0 || daemon_ms < (MHD_UNSIGNED_LONG_LONG) timeout_ms))
		timeout_ms = (int) daemon_ms;
	if (source.draining && (timeout_ms < 0 || timeout_ms > 100))
		timeout_ms = 100;
	return timeout_ms;
}

static void
turn(void)
{
	struct epoll_event events[EVENT_CONTROL + 1];
	int			nevents = epoll_wait(epoll_fd, events, lengthof(events), next_timeout_ms());

	(void) MHD_run(daemon_handle);
	ask_for_queues();
	for (int i = 0; i < nevents; i++)
	{
		if (events[i].data.u32 == EVENT_CONTROL)
			serve_control();
		else if (events[i].data.u32 != EVENT_DAEMON && !source.draining)
			accept_connections(&config->listeners[events[i].data.u32]);
	}
	if (source.draining && (connections_count() == 0 || http_clock_ms() > drain_until_ms))
		_exit(0);
}

void
http_serve(const HttpConfig *server_config, int server_control)
{
	MemoryContext turn_context = AllocSetContextCreate(TopMemoryContext, "etcd_leader http turn",
													   ALLOCSET_DEFAULT_SIZES);

	config = server_config;
	control = server_control;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	daemon_handle = start_daemon();
	if (epoll_fd < 0 || daemon_handle == NULL)
		_exit(1);
	watch_fd(MHD_get_daemon_info(daemon_handle, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, EVENT_DAEMON);
	watch_fd(control, EVENT_CONTROL);
	for (int i = 0; i < config->nlisteners; i++)
	{
		if (config->listeners[i].fd >= 0)
			watch_fd(config->listeners[i].fd, i);
	}
	send_to_worker(HTTP_READY);

	MemoryContextSwitchTo(turn_context);
	for (;;)
	{
		turn();
		MemoryContextReset(turn_context);
	}
}
