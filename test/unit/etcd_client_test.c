/*-------------------------------------------------------------------------
 *
 * etcd_client_test.c
 *	  Unit tests of etcd/client.c and its files, with a real etcd, and with
 *	  small servers that misbehave.
 *
 * $ETCD names the etcd to use.  All processes end with the test.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "etcd/client.h"
#include "etcd/names.h"
#include "base/secret_file.h"
#include "unit.h"

#define BYTES(literal)	{literal, sizeof(literal) - 1}

#define REQUEST_TIMEOUT_MS	800
#define CONNECT_TIMEOUT_MS	600
#define PATIENCE_MS			60000	/* bound for events that are expected at once */

static int64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void
sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/*
 * Binds a socket to a free port of the loopback, outside of the range that the
 * kernel gives to clients.  Otherwise a client of a closed port could get that
 * port itself, and connect to itself.
 */
static int
bind_somewhere(int *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	do
	{
		*port = 16384 + rand() % 16384;
		address.sin_port = htons(*port);
	} while (bind(fd, (struct sockaddr *) &address, sizeof(address)) != 0);
	return fd;
}

static int
free_port(void)
{
	int			port;

	close(bind_somewhere(&port));
	return port;
}

static int
count_fds(void)
{
	DIR		   *dir = opendir("/proc/self/fd");
	int			n = 0;

	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

/* ---- out of memory --------------------------------------------------- */

extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t n, size_t size);
extern void *__wrap_realloc(void *p, size_t size);
extern char *__wrap_strdup(const char *s);
extern char *__wrap_strndup(const char *s, size_t n);
extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__real_realloc(void *p, size_t size);
extern char *__real_strdup(const char *s);
extern char *__real_strndup(const char *s, size_t n);

/* The number of allocations of the client that succeed; -1: all. */
static int	allocations_left = -1;

static bool
may_allocate(void)
{
	if (allocations_left > 0)
		allocations_left--;
	else if (allocations_left == 0)
		return false;
	return true;
}

void *
__wrap_malloc(size_t size)
{
	return may_allocate() ? __real_malloc(size) : NULL;
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *
__wrap_realloc(void *p, size_t size)
{
	return may_allocate() ? __real_realloc(p, size) : NULL;
}

char *
__wrap_strdup(const char *s)
{
	return may_allocate() ? __real_strdup(s) : NULL;
}

char *
__wrap_strndup(const char *s, size_t n)
{
	return may_allocate() ? __real_strndup(s, n) : NULL;
}

/* ---- a sign that gets lost ------------------------------------------- */

extern ssize_t __wrap_write(int fd, const void *data, size_t len);
extern ssize_t __real_write(int fd, const void *data, size_t len);

static volatile bool writes_fail;

ssize_t
__wrap_write(int fd, const void *data, size_t len)
{
	if (!writes_fail)
		return __real_write(fd, data, len);
	errno = EBADF;
	return -1;
}

/* ---- a real etcd ----------------------------------------------------- */

static pid_t etcd_pid;
static char etcd_dir[] = "/tmp/etcd_client_test.XXXXXX";
static char etcd_url[64];
static uint64_t etcd_cluster_id;
static char closed_url[64];		/* no server listens there */

static int
start_etcd(void **state)
{
	const char *etcd = getenv("ETCD");
	char		peer_url[64];
	char		cluster[128];
	char		data_dir[64];

	(void) state;
	strcpy(etcd_dir, "/tmp/etcd_client_test.XXXXXX");
	assert_non_null(mkdtemp(etcd_dir));
	snprintf(etcd_url, sizeof(etcd_url), "http://127.0.0.1:%d", free_port());
	snprintf(closed_url, sizeof(closed_url), "http://127.0.0.1:%d", free_port());
	snprintf(peer_url, sizeof(peer_url), "http://127.0.0.1:%d", free_port());
	snprintf(cluster, sizeof(cluster), "default=%s", peer_url);
	snprintf(data_dir, sizeof(data_dir), "%s/data", etcd_dir);

	etcd_pid = fork();
	assert_true(etcd_pid >= 0);
	if (etcd_pid == 0)
	{
		int			log;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chdir(etcd_dir) != 0)
			_exit(126);
		log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(log, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		unsetenv("http_proxy");
		execlp(etcd != NULL ? etcd : "etcd", "etcd", "--data-dir", data_dir,
			   "--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url,
			   "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
			   "--initial-cluster", cluster, (char *) NULL);
		_exit(127);
	}
	return 0;
}

static int
stop_etcd(void **state)
{
	char		command[128];

	(void) state;
	kill(etcd_pid, SIGKILL);
	waitpid(etcd_pid, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", etcd_dir);
	return system(command);
}

/* ---- a server that the tests control --------------------------------- */

#define MAX_CONNECTIONS 64

typedef struct Server Server;
typedef void (*Behaviour) (Server *server, int fd);

struct Server
{
	char		url[64];
	int			fd;
	Behaviour	behave;			/* called after a request was read; then the connection is closed */
	const char *text;			/* the text that it sends */
	bool		reads;			/* a request is read first */
	pthread_t	thread;
	pthread_t	threads[MAX_CONNECTIONS];
	int			fds[MAX_CONNECTIONS];
	int			nconnections;
	volatile bool stopping;
	char		request[65536]; /* the last one that does not ask for the members */
	volatile int nrequests;
	volatile bool authenticating;	/* a token was requested */
	int			delay_ms;		/* of an etcd with authentication */
};

typedef struct Connection
{
	Server	   *server;
	int			fd;
} Connection;

static void
send_text(int fd, const char *text, size_t len)
{
	while (len > 0)
	{
		ssize_t		n = send(fd, text, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		text += n;
		len -= n;
	}
}

/* Reads a whole request with its body; false if the client has closed. */
static bool
read_request(Server *server, int fd)
{
	char		text[sizeof(server->request)];
	size_t		len = 0;

	for (;;)
	{
		ssize_t		n = recv(fd, text + len, sizeof(text) - 1 - len, 0);
		char	   *body;
		char	   *length;

		if (n <= 0)
			return false;
		len += n;
		text[len] = '\0';
		body = strstr(text, "\r\n\r\n");
		length = strstr(text, "Content-Length: ");
		if (body != NULL && length != NULL && len >= body + 4 - text + strtoul(length + 16, NULL, 10))
			break;
	}
	if (strstr(text, "/v3/cluster/member/list ") == NULL)
		memcpy(server->request, text, len + 1);
	server->nrequests++;
	return true;
}

static void *
run_connection(void *arg)
{
	Connection	connection = *(Connection *) arg;

	free(arg);
	if (!connection.server->reads || read_request(connection.server, connection.fd))
		connection.server->behave(connection.server, connection.fd);
	shutdown(connection.fd, SHUT_RDWR);
	return NULL;
}

static void *
run_server(void *arg)
{
	Server	   *server = arg;

	while (server->nconnections < MAX_CONNECTIONS)
	{
		int			fd = accept(server->fd, NULL, NULL);
		Connection *connection = malloc(sizeof(Connection));

		if (fd < 0 || server->stopping)
		{
			free(connection);
			if (fd >= 0)
				close(fd);
			break;
		}
		connection->server = server;
		connection->fd = fd;
		server->fds[server->nconnections] = fd;
		pthread_create(&server->threads[server->nconnections++], NULL, run_connection, connection);
	}
	return NULL;
}

static Server *
start_server(Behaviour behave, const char *text)
{
	Server	   *server = calloc(1, sizeof(Server));
	int			port;

	server->fd = bind_somewhere(&port);
	assert_int_equal(listen(server->fd, 64), 0);
	snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", port);
	server->behave = behave;
	server->text = text;
	server->reads = true;
	pthread_create(&server->thread, NULL, run_server, server);
	return server;
}

static void
stop_server(Server *server)
{
	server->stopping = true;
	shutdown(server->fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	for (int i = 0; i < server->nconnections; i++)
	{
		shutdown(server->fds[i], SHUT_RDWR);
		pthread_join(server->threads[i], NULL);
		close(server->fds[i]);
	}
	close(server->fd);
	free(server);
}

/* Waits until the client closes or the server is stopped. */
static void
be_silent(Server *server, int fd)
{
	char		c;

	(void) server;
	while (recv(fd, &c, 1, 0) > 0)
		;
}

static void
send_and_close(Server *server, int fd)
{
	send_text(fd, server->text, strlen(server->text));
}

static void
send_and_stay(Server *server, int fd)
{
	send_text(fd, server->text, strlen(server->text));
	be_silent(server, fd);
}

static void
send_slowly(Server *server, int fd)
{
	send_text(fd, server->text, strlen(server->text));
	while (!server->stopping && send(fd, " ", 1, MSG_NOSIGNAL) == 1)
		sleep_ms(50);
}

static void
send_10_megabytes(Server *server, int fd)
{
	char		block[8192];

	memset(block, ' ', sizeof(block));
	send_text(fd, server->text, strlen(server->text));
	for (int i = 0; i < 1280 && !server->stopping; i++)
		send_text(fd, block, sizeof(block));
	be_silent(server, fd);
}

static void
reset_connection(Server *server, int fd)
{
	struct linger linger = {1, 0};
	int			copy = dup(fd);

	(void) server;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	/* the socket is reset at its last close; until then its number must stay in use */
	dup2(server->fd, fd);
	close(copy);
}

#define REFUSAL(text)	"HTTP/1.1 400 Bad Request\r\n\r\n" text

/*
 * An etcd with authentication.  server->text decides whether it gives a token,
 * refuses it, or is silent.  It does not list the members without a token.
 */
static void
give_token(Server *server, int fd)
{
	static const char refusal[] = REFUSAL("{\"error\":\"etcdserver: user name is empty\",\"code\":3}");
	static const char members[] = "HTTP/1.1 200 OK\r\n\r\n"
		"{\"header\":{\"raft_term\":\"2\"}}";
	static const char grant[] = "HTTP/1.1 200 OK\r\n\r\n"
		"{\"header\":{\"raft_term\":\"2\"},\"ID\":\"5\",\"TTL\":\"9\"}";

	sleep_ms(server->delay_ms);
	if (strstr(server->request, "/v3/auth/authenticate ") != NULL)
	{
		server->authenticating = true;
		send_text(fd, server->text, strlen(server->text));
		if (server->text[0] == '\0')
			be_silent(server, fd);
	}
	else if (strstr(server->request, "\r\nAuthorization: good\r\n") == NULL)
		send_text(fd, refusal, strlen(refusal));
	else if (strstr(server->request, "/v3/lease/grant ") != NULL)
		send_text(fd, grant, strlen(grant));
	else
		send_text(fd, members, strlen(members));
}

/* Answers when this other server has got a request, too. */
static Server *awaited;
static int	nawaited;			/* the number of its requests before */

static void
answer_late(Server *server, int fd)
{
	while (awaited->nrequests == nawaited && !server->stopping)
		sleep_ms(5);
	send_text(fd, server->text, strlen(server->text));
}

/* An etcd with authentication, which accepts the second request without a token. */
static void
want_token(Server *server, int fd)
{
	static const char refusal[] = REFUSAL("{\"error\":\"etcdserver: user name is empty\",\"code\":3}");

	if (strstr(server->request, "/v3/auth/authenticate ") != NULL)
	{
		server->authenticating = true;
		be_silent(server, fd);
	}
	else if (!server->authenticating)
		send_text(fd, refusal, strlen(refusal));
	else
		send_text(fd, server->text, strlen(server->text));
}

/* ---- a resolver ------------------------------------------------------ */

static volatile bool resolver_stuck;
static int	nstuck;				/* threads in it */
static volatile bool resolver_called;
static volatile bool resolver_took_signals;
static volatile bool resolver_hangs;

/* The addresses of etcd.test and of hung.test, which can hang; NULL: it has none. */
static const char *volatile resolved[3];

/*
 * Replaces the C library's resolver, which is called in threads.  Every other
 * name is unknown, and those that end in ".invalid" hang.
 */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	static int	(*real) (const char *, const char *, const struct addrinfo *, struct addrinfo **);
	sigset_t	mask;
	size_t		len = strlen(node);
	bool		hangs = len > 8 && strcmp(node + len - 8, ".invalid") == 0;

	*result = NULL;
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	if (sigismember(&mask, SIGUSR1) != 1 || sigismember(&mask, SIGTERM) != 1)
		resolver_took_signals = true;
	resolver_called = true;
	if (hangs || (resolver_hangs && strcmp(node, "hung.test") == 0))
	{
		__atomic_add_fetch(&nstuck, 1, __ATOMIC_SEQ_CST);
		while (resolver_stuck)
			sleep_ms(5);
		__atomic_sub_fetch(&nstuck, 1, __ATOMIC_SEQ_CST);
	}
	if (hangs || (strncasecmp(node, "etcd.test", 9) != 0 && strcmp(node, "hung.test") != 0))
		return EAI_NONAME;
	real = (int (*) (const char *, const char *, const struct addrinfo *, struct addrinfo **)) dlsym(RTLD_NEXT, "getaddrinfo");
	for (size_t i = 0; i < lengthof(resolved) && resolved[i] != NULL; i++)
	{
		if (real(resolved[i], service, hints, result) != 0)
			return EAI_NONAME;
		result = &(*result)->ai_next;
	}
	return 0;
}

/* The threads that hang go on, and are waited for. */
static void
release_resolver(void)
{
	resolver_stuck = false;
	while (__atomic_load_n(&nstuck, __ATOMIC_SEQ_CST) > 0)
		sleep_ms(5);
	sleep_ms(50);
}

/* ---- a caller of the client ------------------------------------------ */

#define MAX_RECORDS 64

typedef struct Record
{
	uint64_t	id;
	EtcdOutcome outcome;
	int			code;
	char		message[ETCD_MESSAGE_SIZE];
	int			endpoint;
	int			endpoint_in_use;	/* when the answer was passed on */
	uint64_t	cluster_id;
	int64_t		lease;
	int64_t		ttl_s;
	int64_t		granted_ttl_s;
	bool		succeeded;
	int			nresults;
	bool		timed_out;
	bool		endpoint_gone;
	int64_t		latency_ns;
} Record;

typedef struct Frame
{
	int			stream;
	int64_t		watch_id;
	bool		created;
	int			nevents;
	bool		is_delete;
	char		key[32];
	size_t		value_len;
} Frame;

typedef struct Caller
{
	EtcdClient *client;
	Record		answers[MAX_RECORDS];
	int			nanswers;
	Frame		frames[MAX_RECORDS];
	int			nframes;
	char		why[ETCD_MESSAGE_SIZE];
	EtcdOutcome end_outcome;
	int			nends;
	int			ended;			/* bit mask of the streams that have ended */
	int			nchanges;		/* number of changes of the endpoint */
	bool		inside;			/* etcd_client_process() or _run_until() runs */
	void		(*on_answer) (struct Caller *caller);
	void		(*on_frame) (struct Caller *caller);
	void		(*on_end) (struct Caller *caller);
} Caller;

static void
answered(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	Caller	   *caller = ctx;
	Record	   *record = &caller->answers[caller->nanswers];

	assert_true(caller->inside);
	assert_true(caller->nanswers < MAX_RECORDS);
	caller->nanswers++;
	record->id = id;
	record->outcome = answer->outcome;
	record->code = answer->code;
	strcpy(record->message, answer->message);
	record->endpoint = answer->endpoint;
	record->endpoint_in_use = etcd_client_endpoint(caller->client);
	record->cluster_id = answer->header.cluster_id;
	record->lease = answer->lease;
	record->ttl_s = answer->ttl_s;
	record->granted_ttl_s = answer->granted_ttl_s;
	record->succeeded = answer->succeeded;
	record->nresults = answer->nresults;
	record->timed_out = timing->timed_out;
	record->endpoint_gone = timing->endpoint_gone;
	record->latency_ns = timing->latency_ns;
	if (caller->on_answer != NULL)
		caller->on_answer(caller);
}

static void
watched(void *ctx, int stream, const EtcdWatchFrame *frame)
{
	Caller	   *caller = ctx;
	Frame	   *record = &caller->frames[caller->nframes];

	assert_true(caller->inside);
	assert_true(caller->nframes < MAX_RECORDS);
	assert_int_equal(frame->outcome, ETCD_ANSWERED);
	caller->nframes++;
	record->stream = stream;
	record->watch_id = frame->watch_id;
	record->created = frame->created;
	record->nevents = frame->nevents;
	if (frame->nevents > 0)
	{
		record->is_delete = frame->events[0].is_delete;
		snprintf(record->key, sizeof(record->key), "%s", frame->events[0].kv.key.data);
		record->value_len = frame->events[0].kv.value.len;
	}
	if (caller->on_frame != NULL)
		caller->on_frame(caller);
}

static void
watch_ended(void *ctx, int stream, EtcdOutcome outcome, const char *why)
{
	Caller	   *caller = ctx;

	caller->end_outcome = outcome;

	assert_true(caller->inside);
	assert_true(why[0] != '\0');
	snprintf(caller->why, sizeof(caller->why), "%s", why);
	caller->nends++;
	caller->ended |= 1 << stream;
	if (caller->on_end != NULL)
		caller->on_end(caller);
}

static void
noticed(void *ctx, const char *why)
{
	Caller	   *caller = ctx;

	assert_true(caller->inside);
	assert_true(why[0] != '\0');
}

static void
endpoints_changed(void *ctx)
{
	Caller	   *caller = ctx;

	assert_true(caller->inside);
	caller->nchanges++;
}

/* The simple servers here speak JSON; etcd is tried in both dialects. */
static EtcdDialect dialect = ETCD_JSON;

static long request_timeout_ms = REQUEST_TIMEOUT_MS;
static long connect_timeout_ms = CONNECT_TIMEOUT_MS;

/* A test in which no time-out is wanted: a write of etcd takes long on a busy machine. */
static int
be_patient(void **state)
{
	(void) state;
	request_timeout_ms = connect_timeout_ms = PATIENCE_MS / 2;
	return 0;
}

static int
be_impatient(void **state)
{
	(void) state;
	request_timeout_ms = REQUEST_TIMEOUT_MS;
	connect_timeout_ms = CONNECT_TIMEOUT_MS;
	return 0;
}

static void
configure(Caller *caller, const char *first, const char *second)
{
	const char *endpoints[] = {first, second};
	EtcdClientSettings settings = {
		.endpoints = endpoints,
		.nendpoints = second != NULL ? 2 : 1,
		.request_timeout_ms = request_timeout_ms,
		.connect_timeout_ms = connect_timeout_ms,
		.dialect = dialect
	};

	etcd_client_configure(caller->client, &settings);
}

static Caller *
start_caller(const char *first, const char *second)
{
	Caller	   *caller = calloc(1, sizeof(Caller));
	EtcdClientCallbacks callbacks = {watched, watch_ended, noticed, endpoints_changed, caller};

	caller->client = etcd_client_create(&callbacks);
	assert_non_null(caller->client);
	if (first != NULL)
		configure(caller, first, second);
	/* that of two endpoints which is etcd may be used */
	etcd_client_keep_cluster(caller->client, etcd_cluster_id);
	return caller;
}

static void
stop_caller(Caller *caller)
{
	etcd_client_free(caller->client);
	free(caller);
}

/* Turns that waited for a second or longer, and no socket was ready. */
static int	nlong_waits;

/* One turn of an event loop, of at most that many milliseconds. */
static void
turn(Caller *caller, long max_ms)
{
	struct pollfd pollfds[256];
	int			nsockets;
	uint64_t	changes;
	const EtcdSocket *sockets = etcd_client_sockets(caller->client, &nsockets, &changes);
	long		wait_ms = etcd_client_timeout_ms(caller->client);

	assert_true(nsockets <= (int) lengthof(pollfds));
	for (int i = 0; i < nsockets; i++)
	{
		pollfds[i].fd = sockets[i].fd;
		pollfds[i].events = (sockets[i].events & ETCD_SOCKET_READABLE ? POLLIN : 0) |
			(sockets[i].events & ETCD_SOCKET_WRITEABLE ? POLLOUT : 0);
		pollfds[i].revents = 0;
	}
	if (wait_ms < 0 || wait_ms > max_ms)
		wait_ms = max_ms;
	nlong_waits += poll(pollfds, nsockets, (int) wait_ms) == 0 && wait_ms >= 1000;
	for (int i = 0; i < nsockets; i++)
	{
		short		got = pollfds[i].revents;

		if (got != 0)
			etcd_client_socket_ready(caller->client, pollfds[i].fd,
									 (got & POLLIN ? ETCD_SOCKET_READABLE : 0) |
									 (got & POLLOUT ? ETCD_SOCKET_WRITEABLE : 0) |
									 (got & ~(POLLIN | POLLOUT) ? ETCD_SOCKET_ERROR : 0));
	}
	caller->inside = true;
	etcd_client_process(caller->client);
	caller->inside = false;
}

static void
run_for(Caller *caller, long ms)
{
	int64_t		end = now_ms() + ms;

	while (now_ms() < end)
		turn(caller, end - now_ms());
}

#define WAIT_UNTIL(caller, condition) \
	do { \
		int64_t		end_ms_ = now_ms() + PATIENCE_MS; \
		while (!(condition)) \
		{ \
			if (now_ms() > end_ms_) \
				fail_msg("%s did not happen", #condition); \
			turn(caller, 100); \
		} \
	} while (0)

static void
send_grant(Caller *caller, uint64_t id, int64_t lease)
{
	EtcdRequest grant = {.kind = ETCD_GRANT,.lease = lease,.ttl_s = 60};

	etcd_client_send(caller->client, answered, id, &grant);
}

static void
send_lease(Caller *caller, uint64_t id, EtcdRequestKind kind, int64_t lease)
{
	EtcdRequest request = {.kind = kind,.lease = lease};

	etcd_client_send(caller->client, answered, id, &request);
}

static void
send_op(Caller *caller, uint64_t id, EtcdOpKind kind, const char *key)
{
	EtcdOp		ops[] = {
		{.kind = kind,.key = {key, strlen(key)},.value = BYTES("value")},
		{.kind = ETCD_OP_RANGE,.key = {key, strlen(key)}},
	};
	EtcdRequest txn = {.kind = ETCD_TXN,.success = ops,.nsuccess = 2};

	etcd_client_send(caller->client, answered, id, &txn);
}

/* Sends a request, waits, and returns the record of the answer. */
static const Record *
ask_grant(Caller *caller, int64_t lease)
{
	int			before = caller->nanswers;

	send_grant(caller, 1000 + before, lease);
	assert_int_equal(caller->nanswers, before);
	WAIT_UNTIL(caller, caller->nanswers > before);
	assert_int_equal(caller->answers[before].id, 1000 + before);
	return &caller->answers[before];
}

static void
open_watches(Caller *caller, const char *first, const char *second)
{
	EtcdWatch	watches[] = {
		{.watch_id = 11,.key = {first, strlen(first)}},
		{.watch_id = 12,.key = {second != NULL ? second : "", second != NULL ? strlen(second) : 0}},
	};

	etcd_client_watch(caller->client, 0, watches, second != NULL ? 2 : 1);
}

/* ---- tests with a real etcd ------------------------------------------ */

static void
test_etcd_starts(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	int64_t		end = now_ms() + PATIENCE_MS;

	(void) state;
	/* refused if an earlier try was executed after its time-out */
	while (ask_grant(caller, 1)->outcome != ETCD_ANSWERED &&
		   caller->answers[caller->nanswers - 1].outcome != ETCD_REFUSED)
	{
		assert_true(now_ms() < end);
		assert_int_equal(waitpid(etcd_pid, NULL, WNOHANG), 0);
		caller->nanswers = 0;
		sleep_ms(50);
	}
	caller->nanswers = 0;
	send_lease(caller, 2, ETCD_TIME_TO_LIVE, 1);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	etcd_cluster_id = caller->answers[0].cluster_id;
	assert_true(etcd_cluster_id != 0);
	stop_caller(caller);
}

static void
test_requests(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	const Record *answers = caller->answers;

	(void) state;
	send_grant(caller, 1, 777);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	send_grant(caller, 2, 777);
	WAIT_UNTIL(caller, caller->nanswers == 2);
	send_lease(caller, 3, ETCD_KEEPALIVE, 777);
	WAIT_UNTIL(caller, caller->nanswers == 3);
	send_op(caller, 4, ETCD_OP_PUT, "unit/requests");
	WAIT_UNTIL(caller, caller->nanswers == 4);
	send_lease(caller, 5, ETCD_REVOKE, 777);
	WAIT_UNTIL(caller, caller->nanswers == 5);
	send_lease(caller, 6, ETCD_REVOKE, 777);
	WAIT_UNTIL(caller, caller->nanswers == 6);
	send_lease(caller, 7, ETCD_KEEPALIVE, 777);
	WAIT_UNTIL(caller, caller->nanswers == 7);

	for (int i = 0; i < 7; i++)
	{
		bool		refused = i == 1 || i == 5;

		assert_int_equal(answers[i].id, i + 1);
		assert_int_equal(answers[i].endpoint, 0);
		assert_int_equal(answers[i].outcome, refused ? ETCD_REFUSED : ETCD_ANSWERED);
		assert_false(answers[i].timed_out);
		assert_true(answers[i].latency_ns > 0 && answers[i].latency_ns < PATIENCE_MS * INT64_C(1000000));
	}
	assert_int_equal(answers[0].lease, 777);
	assert_int_equal(answers[0].ttl_s, 60);
	assert_int_equal(answers[1].code, ETCD_CODE_FAILED_PRECONDITION);
	assert_int_equal(answers[2].ttl_s, 60);
	assert_true(answers[3].succeeded);
	assert_int_equal(answers[3].nresults, 2);
	assert_int_equal(answers[5].code, ETCD_CODE_NOT_FOUND);
	assert_int_equal(answers[6].ttl_s, 0);
	stop_caller(caller);
}

static void
test_time_to_live(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	const Record *answers = caller->answers;

	(void) state;
	send_grant(caller, 1, 778);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	send_lease(caller, 2, ETCD_TIME_TO_LIVE, 778);
	WAIT_UNTIL(caller, caller->nanswers == 2);
	send_lease(caller, 3, ETCD_REVOKE, 778);
	WAIT_UNTIL(caller, caller->nanswers == 3);
	send_lease(caller, 4, ETCD_TIME_TO_LIVE, 778);
	WAIT_UNTIL(caller, caller->nanswers == 4);
	assert_int_equal(answers[1].outcome, ETCD_ANSWERED);
	assert_int_equal(answers[1].lease, 778);
	assert_in_range(answers[1].ttl_s, 50, 59);
	assert_int_equal(answers[1].granted_ttl_s, 60);
	assert_int_equal(answers[3].outcome, ETCD_ANSWERED);
	assert_int_equal(answers[3].ttl_s, -1);
	assert_int_equal(answers[3].granted_ttl_s, 0);
	stop_caller(caller);
}

/* etcd understands every request that the codec can encode. */
static void
test_txn_meaning(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	EtcdCompare absent = {BYTES("unit/meaning"), ETCD_COMPARE_CREATE_REVISION, 0};
	EtcdCompare changed = {BYTES("unit/meaning"), ETCD_COMPARE_MOD_REVISION, 1};
	EtcdOp		range = {.kind = ETCD_OP_RANGE,.key = BYTES("unit/"),.range_end = BYTES("unit0"),
		.limit = 1,.sort = ETCD_SORT_LAST_CREATED,.min_create_revision = 1,
	.max_create_revision = INT64_MAX};
	EtcdOp		delete = {.kind = ETCD_OP_DELETE,.key = BYTES("unit/meaning")};
	EtcdRequest txn = {.kind = ETCD_TXN,.compares = &absent,.ncompares = 1,
	.success = &range,.nsuccess = 1,.failure = &delete,.nfailure = 1};

	(void) state;
	etcd_client_send(caller->client, answered, 1, &txn);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_int_equal(caller->answers[0].outcome, ETCD_ANSWERED);
	assert_true(caller->answers[0].succeeded);

	txn.compares = &changed;
	etcd_client_send(caller->client, answered, 2, &txn);
	WAIT_UNTIL(caller, caller->nanswers == 2);
	assert_int_equal(caller->answers[1].outcome, ETCD_ANSWERED);
	assert_false(caller->answers[1].succeeded);
	stop_caller(caller);
}

static void
test_many_requests(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	uint64_t	seen = 0;

	(void) state;
	for (int i = 0; i < 30; i++)
		send_lease(caller, i, ETCD_KEEPALIVE, 1);
	WAIT_UNTIL(caller, caller->nanswers == 30);
	for (int i = 0; i < 30; i++)
	{
		assert_int_equal(caller->answers[i].outcome, ETCD_ANSWERED);
		seen |= UINT64_C(1) << caller->answers[i].id;
	}
	assert_true(seen == (UINT64_C(1) << 30) - 1);
	stop_caller(caller);
}

static void
test_watches(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);

	(void) state;
	open_watches(caller, "unit/a", "unit/b");
	WAIT_UNTIL(caller, caller->nframes == 2);
	assert_true(caller->frames[0].created && caller->frames[1].created);

	send_op(caller, 1, ETCD_OP_PUT, "unit/a");
	WAIT_UNTIL(caller, caller->nframes == 3);
	assert_int_equal(caller->frames[2].watch_id, 11);
	assert_int_equal(caller->frames[2].nevents, 1);
	assert_false(caller->frames[2].is_delete);
	assert_string_equal(caller->frames[2].key, "unit/a");

	send_op(caller, 2, ETCD_OP_PUT, "unit/b");
	WAIT_UNTIL(caller, caller->nframes == 4);
	assert_int_equal(caller->frames[3].watch_id, 12);

	send_op(caller, 3, ETCD_OP_DELETE, "unit/b");
	WAIT_UNTIL(caller, caller->nframes == 5);
	assert_int_equal(caller->frames[4].watch_id, 12);
	assert_true(caller->frames[4].is_delete);

	/* the watch is replaced, and the old one passes on nothing more */
	send_op(caller, 4, ETCD_OP_PUT, "unit/a");
	WAIT_UNTIL(caller, caller->nanswers == 4);
	caller->nframes = 0;
	open_watches(caller, "unit/c", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	assert_true(caller->frames[0].created);
	send_op(caller, 5, ETCD_OP_PUT, "unit/a");
	send_op(caller, 6, ETCD_OP_PUT, "unit/b");
	WAIT_UNTIL(caller, caller->nanswers == 6);
	send_op(caller, 7, ETCD_OP_PUT, "unit/c");
	WAIT_UNTIL(caller, caller->nframes == 2);
	assert_string_equal(caller->frames[1].key, "unit/c");

	/* the watch is closed */
	etcd_client_watch(caller->client, 0, NULL, 0);
	send_op(caller, 8, ETCD_OP_PUT, "unit/c");
	WAIT_UNTIL(caller, caller->nanswers == 8);
	run_for(caller, 100);
	assert_int_equal(caller->nframes, 2);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
}

/* Each of two streams has its own events, and is replaced and closed alone. */
static void
test_streams(void **state)
{
	Caller	   *caller = start_caller(etcd_url, closed_url);
	EtcdWatch	watch = {.watch_id = 21,.key = BYTES("unit/b")};

	(void) state;
	open_watches(caller, "unit/a", NULL);
	etcd_client_watch(caller->client, 1, &watch, 1);
	WAIT_UNTIL(caller, caller->nframes == 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(caller->frames[i].watch_id, caller->frames[i].stream == 0 ? 11 : 21);
	assert_true(caller->frames[0].stream != caller->frames[1].stream);

	send_op(caller, 1, ETCD_OP_PUT, "unit/b");
	WAIT_UNTIL(caller, caller->nframes == 3);
	assert_int_equal(caller->frames[2].stream, 1);
	assert_string_equal(caller->frames[2].key, "unit/b");

	/* the first one is replaced and closed, and the other one goes on */
	open_watches(caller, "unit/c", NULL);
	WAIT_UNTIL(caller, caller->nframes == 4);
	assert_int_equal(caller->frames[3].stream, 0);
	etcd_client_watch(caller->client, 0, NULL, 0);
	send_op(caller, 2, ETCD_OP_PUT, "unit/c");
	send_op(caller, 3, ETCD_OP_DELETE, "unit/b");
	WAIT_UNTIL(caller, caller->nframes == 5);
	run_for(caller, 50);
	assert_int_equal(caller->nframes, 5);
	assert_int_equal(caller->frames[4].stream, 1);
	assert_true(caller->frames[4].is_delete);
	assert_int_equal(caller->nends, 0);

	/* all open streams end with their endpoint */
	etcd_client_change_endpoint(caller->client, 0);
	turn(caller, 0);
	assert_int_equal(caller->nends, 1);
	assert_int_equal(caller->ended, 2);
	etcd_client_change_endpoint(caller->client, 1);
	open_watches(caller, "unit/a", NULL);
	etcd_client_watch(caller->client, 1, &watch, 1);
	WAIT_UNTIL(caller, caller->nframes == 7);
	configure(caller, closed_url, NULL);
	turn(caller, 0);
	assert_int_equal(caller->nends, 3);
	assert_int_equal(caller->ended, 3);
	stop_caller(caller);
}

/*
 * Waits until that many of the client's sockets have an event to read, without reading.
 * What HTTP/2 sends beside the events is smaller.
 */
static void
wait_until_readable(Caller *caller, int wanted)
{
	int64_t		end_ms = now_ms() + PATIENCE_MS;
	int			nreadable = 0;

	while (nreadable < wanted)
	{
		int			nsockets;
		uint64_t	changes;
		const EtcdSocket *sockets = etcd_client_sockets(caller->client, &nsockets, &changes);

		if (now_ms() > end_ms)
			fail_msg("%d sockets are readable, not %d", nreadable, wanted);
		nreadable = 0;
		for (int i = 0; i < nsockets; i++)
		{
			int			nbytes = 0;

			nreadable += ioctl(sockets[i].fd, FIONREAD, &nbytes) == 0 && nbytes >= 60;
		}
		sleep_ms(1);
	}
}

static Caller *observer;

/* A frame of stream 0 causes a put, which etcd has before a frame of stream 1 is passed on. */
static void
put_and_observe(Caller *caller)
{
	if (caller->frames[caller->nframes - 1].stream == 0)
		send_op(caller, 2, ETCD_OP_PUT, "unit/follows");
	else
		WAIT_UNTIL(observer, observer->nframes == 2);
}

/* Requests that a frame of stream 0 causes do not wait for the frames of other streams. */
static void
test_first_stream_goes_first(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	Caller	   *writer = start_caller(etcd_url, NULL);
	EtcdWatch	watch = {.watch_id = 21,.key = BYTES("unit/second")};

	(void) state;
	observer = start_caller(etcd_url, NULL);
	open_watches(observer, "unit/follows", NULL);
	WAIT_UNTIL(observer, observer->nframes == 1);
	open_watches(caller, "unit/first", NULL);
	etcd_client_watch(caller->client, 1, &watch, 1);
	WAIT_UNTIL(caller, caller->nframes == 2);
	/* stream 1 is read again */
	run_for(caller, 20);

	/* makes a connection for requests */
	send_op(caller, 1, ETCD_OP_RANGE, "unit/follows");
	WAIT_UNTIL(caller, caller->nanswers == 1);

	send_op(writer, 1, ETCD_OP_PUT, "unit/second");
	send_op(writer, 2, ETCD_OP_PUT, "unit/first");
	WAIT_UNTIL(writer, writer->nanswers == 2);
	wait_until_readable(caller, 2);
	caller->on_frame = put_and_observe;
	turn(caller, 0);
	assert_int_equal(caller->nframes, 4);
	assert_int_equal(caller->frames[2].stream, 0);
	assert_int_equal(caller->frames[3].stream, 1);
	stop_caller(caller);
	stop_caller(writer);
	stop_caller(observer);
}

/* The deletion is an event, too. */
static void
ask_for_key(Caller *caller)
{
	const Frame *frame = &caller->frames[caller->nframes - 1];

	if (frame->nevents > 0 && !frame->is_delete)
		send_op(caller, 50, ETCD_OP_DELETE, "unit/quick");
}

/* A frame, the request that it causes, and the answer follow without delay. */
static void
test_quick(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	Caller	   *writer = start_caller(etcd_url, NULL);

	(void) state;
	open_watches(caller, "unit/quick", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	/* makes a connection for requests */
	send_op(caller, 1, ETCD_OP_RANGE, "unit/quick");
	WAIT_UNTIL(caller, caller->nanswers == 1);
	run_for(caller, 20);

	caller->on_frame = ask_for_key;
	send_op(writer, 1, ETCD_OP_PUT, "unit/quick");
	WAIT_UNTIL(writer, writer->nanswers == 1);
	/* the deletion is sent without another event: only sockets are waited for */
	nlong_waits = 0;
	while (caller->nanswers < 2 && nlong_waits == 0)
		turn(caller, PATIENCE_MS);
	assert_int_equal(nlong_waits, 0);
	assert_int_equal(caller->answers[1].id, 50);
	assert_int_equal(caller->answers[1].outcome, ETCD_ANSWERED);
	stop_caller(caller);
	stop_caller(writer);
}

static void
test_idle(void **state)
{
	Caller	   *caller = start_caller(etcd_url, NULL);
	int64_t		end;
	int			turns = 0;

	(void) state;
	assert_int_equal(etcd_client_timeout_ms(caller->client), -1);
	open_watches(caller, "unit/idle", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	assert_int_equal(ask_grant(caller, 1)->outcome, ETCD_REFUSED);
	/* timers of finished requests expire, such as that to connect */
	run_for(caller, REQUEST_TIMEOUT_MS + 100);
	for (end = now_ms() + 1000; now_ms() < end; turns++)
		turn(caller, end - now_ms());
	assert_true(turns <= 2);
	stop_caller(caller);
}

/* ---- endpoints and settings ------------------------------------------ */

static const char grant_answer[] =
"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
"{\"header\":{\"cluster_id\":\"1\",\"revision\":\"1\",\"raft_term\":\"2\"},\"ID\":\"5\",\"TTL\":\"9\"}";

static const char watch_head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";

#define FRAME(watch_id) \
	"{\"result\":{\"header\":{\"raft_term\":\"2\"},\"watch_id\":\"" watch_id "\"}}"

#define EVENT_FRAME(watch_id) \
	"{\"result\":{\"header\":{\"raft_term\":\"2\"},\"watch_id\":\"" watch_id "\"," \
	"\"events\":[{\"kv\":{\"key\":\"YQ==\",\"mod_revision\":\"7\"}}]}}"

/* Creates watches, and answers no request. */
static void
only_watch(Server *server, int fd)
{
	if (strstr(server->request, "/v3/watch ") != NULL)
	{
		send_text(fd, watch_head, strlen(watch_head));
		send_text(fd, FRAME("1"), strlen(FRAME("1")));
	}
	be_silent(server, fd);
}

static void
test_no_endpoint(void **state)
{
	Caller	   *caller = start_caller(NULL, NULL);
	const Record *answer;

	(void) state;
	answer = ask_grant(caller, 1);
	assert_int_equal(answer->outcome, ETCD_NO_ANSWER);
	assert_int_equal(answer->endpoint, -1);
	assert_false(answer->endpoint_gone);
	open_watches(caller, "a", NULL);
	assert_int_equal(etcd_client_timeout_ms(caller->client), 0);
	turn(caller, 0);
	assert_int_equal(caller->nends, 1);
	assert_string_equal(etcd_client_endpoint_url(caller->client, 0), "");
	stop_caller(caller);
}

static void
test_what_is_sent(void **state)
{
	Server	   *server = start_server(send_and_close, grant_answer);
	char		url[80];
	Caller	   *caller;
	char	   *request = server->request;

	(void) state;
	snprintf(url, sizeof(url), "%s/", server->url);
	caller = start_caller(url, NULL);
	assert_string_equal(etcd_client_endpoint_url(caller->client, 0), url);
	assert_int_equal(ask_grant(caller, 5)->outcome, ETCD_ANSWERED);
	assert_int_equal(strncmp(request, "POST /v3/lease/grant HTTP/1.1\r\n", 31), 0);
	assert_non_null(strstr(request, "\r\nContent-Type: application/json\r\n"));
	assert_non_null(strstr(request, "\r\nGrpc-Metadata-hasleader: true\r\n"));
	assert_non_null(strstr(request, "\r\nGrpc-Timeout: 800m\r\n"));
	assert_null(strstr(request, "Expect"));

	/* an old libcurl may try the connection first that the server has closed */
	for (int i = 1; i <= 3 && strstr(request, "/watch") == NULL; i++)
	{
		open_watches(caller, "a", NULL);
		WAIT_UNTIL(caller, caller->nends == i);
	}
	assert_int_equal(strncmp(request, "POST /v3/watch HTTP/1.1\r\n", 25), 0);
	assert_non_null(strstr(request, "\r\nGrpc-Metadata-hasleader: true\r\n"));
	assert_null(strstr(request, "Grpc-Timeout"));
	assert_null(strstr(request, "Expect"));
	stop_caller(caller);
	stop_server(server);
}

static void
test_change_endpoint(void **state)
{
	Server	   *server = start_server(only_watch, "");
	Caller	   *caller = start_caller(etcd_url, server->url);

	(void) state;
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	etcd_client_change_endpoint(caller->client, 1);
	etcd_client_change_endpoint(caller->client, -1);
	assert_int_equal(etcd_client_endpoint(caller->client), 0);

	open_watches(caller, "unit/a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	etcd_client_change_endpoint(caller->client, 0);
	assert_int_equal(etcd_client_endpoint(caller->client), 1);
	assert_int_equal(caller->nends, 0);
	assert_int_equal(etcd_client_timeout_ms(caller->client), 0);
	turn(caller, 0);
	assert_int_equal(caller->nends, 1);

	/* the end of a stream is not passed on after another watch was opened */
	open_watches(caller, "unit/a", NULL);
	etcd_client_change_endpoint(caller->client, 1);
	open_watches(caller, "unit/a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 2);
	assert_int_equal(caller->nends, 1);

	/* a request that fails ends the watch, unless the request is of an older endpoint */
	etcd_client_change_endpoint(caller->client, 0);
	turn(caller, 0);
	assert_int_equal(caller->nends, 2);
	send_grant(caller, 1, 1);
	send_grant(caller, 2, 1);
	open_watches(caller, "unit/a", NULL);
	WAIT_UNTIL(caller, caller->nanswers == 2);
	assert_int_equal(caller->answers[0].endpoint, 1);
	assert_int_equal(caller->answers[0].endpoint_in_use, 0);
	assert_int_equal(caller->answers[1].endpoint, 1);
	assert_int_equal(caller->answers[1].endpoint_in_use, 0);
	WAIT_UNTIL(caller, caller->nends == 3);
	assert_string_equal(caller->why, caller->answers[0].message);
	stop_caller(caller);
	stop_server(server);
}

/* A single endpoint keeps its watch after a failure, because there is no other. */
static void
test_single_endpoint(void **state)
{
	Server	   *server = start_server(only_watch, "");
	Caller	   *caller = start_caller(server->url, NULL);

	(void) state;
	open_watches(caller, "a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	assert_true(ask_grant(caller, 1)->timed_out);
	etcd_client_change_endpoint(caller->client, 0);
	run_for(caller, 50);
	assert_int_equal(caller->nends, 0);
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	stop_caller(caller);
	stop_server(server);
}

static void
test_configure(void **state)
{
	Server	   *silent = start_server(be_silent, "");
	Caller	   *caller = start_caller(silent->url, etcd_url);

	(void) state;

	/* of a request under way: the number follows the endpoint, or is -1 if that was removed */
	send_grant(caller, 1, 1);
	turn(caller, 0);
	configure(caller, etcd_url, silent->url);
	assert_int_equal(etcd_client_endpoint(caller->client), 1);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_int_equal(caller->answers[0].endpoint, 1);
	assert_int_equal(caller->answers[0].endpoint_in_use, 0);

	etcd_client_change_endpoint(caller->client, 0);
	send_grant(caller, 2, 1);
	turn(caller, 0);
	configure(caller, etcd_url, NULL);
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	WAIT_UNTIL(caller, caller->nanswers == 2);
	assert_int_equal(caller->answers[1].endpoint, -1);
	assert_int_equal(caller->answers[1].endpoint_in_use, 0);
	assert_false(caller->answers[0].endpoint_gone);
	assert_true(caller->answers[1].endpoint_gone);

	/* the watch stays with its endpoint */
	open_watches(caller, "unit/a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	configure(caller, silent->url, etcd_url);
	assert_int_equal(etcd_client_endpoint(caller->client), 1);
	send_op(caller, 3, ETCD_OP_PUT, "unit/a");
	WAIT_UNTIL(caller, caller->nframes == 2);
	assert_int_equal(caller->nends, 0);
	configure(caller, silent->url, NULL);
	turn(caller, 0);
	assert_int_equal(caller->nends, 1);
	stop_caller(caller);
	stop_server(silent);
}

static void
do_everything(Caller *caller)
{
	if (caller->nanswers > 10)
		return;
	etcd_client_change_endpoint(caller->client, etcd_client_endpoint(caller->client));
	configure(caller, etcd_url, closed_url);
	send_grant(caller, 100, 1);
	open_watches(caller, "unit/a", "unit/b");
}

static void
test_reentrant(void **state)
{
	Caller	   *caller = start_caller(closed_url, etcd_url);

	(void) state;
	caller->on_answer = do_everything;
	caller->on_frame = do_everything;
	caller->on_end = do_everything;
	send_grant(caller, 1, 1);
	open_watches(caller, "unit/a", "unit/b");
	WAIT_UNTIL(caller, caller->nanswers > 12);
	stop_caller(caller);
}

static void
test_socket_changes(void **state)
{
	Server	   *server = start_server(send_and_close, grant_answer);
	Caller	   *caller = start_caller(server->url, NULL);
	int			nsockets;
	uint64_t	changes[2];

	(void) state;
	etcd_client_sockets(caller->client, &nsockets, &changes[0]);
	/* that of the resolver's threads is always there, as the first one */
	assert_int_equal(nsockets, 1);
	/* after the first answer the client asks for the members, once */
	ask_grant(caller, 1);
	WAIT_UNTIL(caller, (etcd_client_sockets(caller->client, &nsockets, &changes[0]), nsockets == 1));
	for (int i = 0; i < 3; i++)
	{
		/* each request has a connection of its own, with most versions of libcurl on the same fd */
		for (int j = 0; j < 2; j++)
		{
			int			n = caller->nanswers;

			send_grant(caller, 1, 1);
			while (etcd_client_sockets(caller->client, &nsockets, &changes[j]), nsockets == 1 && caller->nanswers == n)
				turn(caller, 0);
			WAIT_UNTIL(caller, caller->nanswers > n);
		}
		assert_true(changes[0] != changes[1]);
	}
	stop_caller(caller);
	stop_server(server);
}

static bool
has_answer(void *ctx)
{
	return ((Caller *) ctx)->nanswers > 0;
}

static void
run_until(Caller *caller, long ms)
{
	caller->inside = true;
	etcd_client_run_until(caller->client, ms, has_answer, caller);
	caller->inside = false;
}

static void
test_run_until(void **state)
{
	Server	   *server = start_server(be_silent, "");
	Caller	   *caller = start_caller(etcd_url, NULL);
	int64_t		start;

	(void) state;
	open_watches(caller, "unit/a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	send_lease(caller, 1, ETCD_KEEPALIVE, 1);
	start = now_ms();
	run_until(caller, PATIENCE_MS);
	assert_int_equal(caller->nanswers, 1);
	assert_int_equal(caller->answers[0].outcome, ETCD_ANSWERED);
	assert_true(now_ms() - start < PATIENCE_MS / 2);

	/* the time is over before an answer or a failure */
	caller->nanswers = 0;
	configure(caller, server->url, NULL);
	send_lease(caller, 2, ETCD_REVOKE, 1);
	start = now_ms();
	run_until(caller, 100);
	assert_int_equal(caller->nanswers, 0);
	assert_true(now_ms() - start >= 98 && now_ms() - start < REQUEST_TIMEOUT_MS);
	run_until(caller, PATIENCE_MS);
	assert_int_equal(caller->nanswers, 1);
	assert_true(caller->answers[0].timed_out);
	assert_true(now_ms() - start < PATIENCE_MS / 2);

	/* with two endpoints, the client leaves a silent one after half of the time */
	caller->nanswers = 0;
	request_timeout_ms = 2 * REQUEST_TIMEOUT_MS;
	configure(caller, server->url, etcd_url);
	request_timeout_ms = REQUEST_TIMEOUT_MS;
	send_lease(caller, 3, ETCD_REVOKE, 1);
	run_until(caller, 2 * REQUEST_TIMEOUT_MS - 100);
	assert_int_equal(caller->nanswers, 1);
	assert_true(caller->answers[0].timed_out);
	assert_int_equal(caller->answers[0].endpoint_in_use, 1);
	stop_caller(caller);
	stop_server(server);
}

/* ---- hostile servers ------------------------------------------------- */

static const struct
{
	const char *name;
	Behaviour	behave;			/* NULL: no server listens */
	const char *text;
	EtcdOutcome outcome;
	bool		timed_out;
	const char *says;
}			hostile[] = {
	{"refuses", NULL, "", ETCD_NO_ANSWER, false, "could not connect to etcd at \"http://127.0.0.1:"},
	{"refuses", NULL, "", ETCD_NO_ANSWER, false, "Connection refused"},
	{"silent", be_silent, "", ETCD_NO_ANSWER, true, "within 800 ms"},
	{"hangs up", send_and_close, "", ETCD_NO_ANSWER, false, "closed the connection without an answer"},
	{"resets", reset_connection, "", ETCD_NO_ANSWER, false, "no answer from etcd at"},
	{"no HTTP", send_and_close, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", ETCD_GARBAGE, false, NULL},
	{"binary", send_and_close, "\x16\x03\x01\x02\xff\xfe\xc3\r\n\r\n", ETCD_GARBAGE, false, NULL},
	{"half a head", send_and_close, "HTTP/1.1 200 O", ETCD_NO_ANSWER, false, NULL},
	{"half a head, silent", send_and_stay, "HTTP/1.1 200 OK\r\nContent-", ETCD_NO_ANSWER, true, NULL},
	{"no body", send_and_close, "HTTP/1.1 200 OK\r\n\r\n", ETCD_GARBAGE, false, "empty answer"},
	{"text", send_and_close, "HTTP/1.1 200 OK\r\n\r\nhello", ETCD_GARBAGE, false, "hello"},
	{"404", send_and_close, "HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n404 page not found\n",
	ETCD_GARBAGE, false, "gateway is not enabled"},
	{"404 of v2", send_and_close, "HTTP/1.1 404 Not Found\r\n\r\n{\"code\":5,\"message\":\"Not Found\"}",
	ETCD_REFUSED, false, "Not Found"},
	{"503", send_and_close, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
	ETCD_GARBAGE, false, "HTTP status 503"},
	{"unavailable", send_and_close, "HTTP/1.1 503 Service Unavailable\r\n\r\n"
	"{\"code\":14,\"message\":\"etcdserver: no leader\"}", ETCD_REFUSED, false, "no leader"},
	{"redirects", send_and_close, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\n"
	"Content-Length: 0\r\n\r\n", ETCD_GARBAGE, false, "HTTP status 307"},
	{"half a JSON", send_and_close, "HTTP/1.1 200 OK\r\n\r\n{\"header\":{\"clus", ETCD_GARBAGE, false, NULL},
	{"half a length", send_and_close, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":",
	ETCD_NO_ANSWER, false, NULL},
	{"half a chunk", send_and_close, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{\"header\":",
	ETCD_NO_ANSWER, false, NULL},
	{"half, silent", send_and_stay, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":",
	ETCD_NO_ANSWER, true, NULL},
	{"bad chunk", send_and_close, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
	ETCD_NO_ANSWER, false, NULL},
	{"slow", send_slowly, "HTTP/1.1 200 OK\r\n\r\n", ETCD_NO_ANSWER, true, "within 800 ms"},
	{"slow head", send_slowly, "HTTP/1.1 200 OK\r\nX: ", ETCD_NO_ANSWER, true, NULL},
	{"large", send_10_megabytes, "HTTP/1.1 200 OK\r\n\r\n", ETCD_GARBAGE, false, "is larger than 1048576 bytes"},
	{"large, said before", send_10_megabytes, "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n",
	ETCD_GARBAGE, false, "is larger than 1048576 bytes"},
	{"large head", send_10_megabytes, "HTTP/1.1 200 OK\r\nX: ", ETCD_NO_ANSWER, false, NULL},
};

static void
test_hostile_requests(void **state)
{
	int			fds = count_fds();

	(void) state;
	for (size_t i = 0; i < lengthof(hostile); i++)
	{
		Server	   *server = hostile[i].behave != NULL ?
			start_server(hostile[i].behave, hostile[i].text) : NULL;
		Caller	   *caller = start_caller(server != NULL ? server->url : closed_url, etcd_url);
		int64_t		start = now_ms();
		const Record *answer = ask_grant(caller, 1);

		if (answer->outcome != hostile[i].outcome || answer->timed_out != hostile[i].timed_out ||
			(hostile[i].says != NULL && strstr(answer->message, hostile[i].says) == NULL))
			fail_msg("%s: outcome %d, %s", hostile[i].name, answer->outcome, answer->message);
		assert_true(answer->message[0] != '\0');
		/* one time-out is waited for at most */
		assert_true(now_ms() - start < 2 * REQUEST_TIMEOUT_MS);
		assert_int_equal(answer->endpoint, 0);
		assert_int_equal(answer->endpoint_in_use, 1);

		answer = ask_grant(caller, 1);
		assert_int_equal(answer->outcome, ETCD_REFUSED);
		assert_int_equal(answer->code, ETCD_CODE_FAILED_PRECONDITION);
		assert_int_equal(answer->endpoint, 1);
		assert_int_equal(answer->endpoint_in_use, 1);
		stop_caller(caller);
		if (server != NULL)
			stop_server(server);
	}
	assert_int_equal(count_fds(), fds);
}

/* The server's queue of connections is full, so a connection is not even refused. */
static void
test_connect_timeout(void **state)
{
	int			fds[8];
	int			port;
	int			server = bind_somewhere(&port);
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_port = htons(port)};
	char		url[64];
	Caller	   *caller;
	const Record *answer;

	(void) state;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(listen(server, 0), 0);
	for (size_t i = 0; i < lengthof(fds); i++)
	{
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void) connect(fds[i], (struct sockaddr *) &address, sizeof(address));
	}

	snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
	caller = start_caller(url, etcd_url);
	answer = ask_grant(caller, 1);
	assert_int_equal(answer->outcome, ETCD_NO_ANSWER);
	assert_true(answer->timed_out);
	assert_non_null(strstr(answer->message, "could not connect to etcd at"));
	assert_non_null(strstr(answer->message, "within 600 ms"));
	assert_int_equal(answer->endpoint_in_use, 1);
	stop_caller(caller);
	for (size_t i = 0; i < lengthof(fds); i++)
		close(fds[i]);
	close(server);
}

/* Makes a file with a password. */
static const char *
write_password(void)
{
	static char file[sizeof(etcd_dir) + 16];
	int			fd;

	snprintf(file, sizeof(file), "%s/password", etcd_dir);
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(write(fd, "secret\n", 7), 7);
	close(fd);
	return file;
}

/*
 * The user is removed from the settings while a request waits for a token.  The
 * request is then sent without one.
 */
static void
test_user_dropped(void **state)
{
	const char *file = write_password();
	Server	   *server = start_server(want_token, grant_answer);
	Caller	   *caller = start_caller(NULL, NULL);
	const char *endpoints[] = {server->url};
	EtcdClientSettings settings = {
		.endpoints = endpoints,
		.nendpoints = 1,
		.request_timeout_ms = REQUEST_TIMEOUT_MS,
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.username = "somebody",
		.password_file = file,
		.dialect = dialect
	};

	(void) state;
	etcd_client_configure(caller->client, &settings);
	send_grant(caller, 1, 1);
	WAIT_UNTIL(caller, server->authenticating);
	settings.username = NULL;
	etcd_client_configure(caller->client, &settings);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_int_equal(caller->answers[0].outcome, ETCD_ANSWERED);
	stop_caller(caller);
	stop_server(server);
}

/* Sends a request to a server with authentication, with that password file. */
static void
ask_with_user(Server *server, const char *file, EtcdOutcome outcome, const char *says)
{
	Caller	   *caller = start_caller(NULL, NULL);
	const char *endpoints[] = {server->url};
	EtcdClientSettings settings = {
		.endpoints = endpoints,
		.nendpoints = 1,
		.request_timeout_ms = REQUEST_TIMEOUT_MS,
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.username = "somebody",
		.password_file = file,
		.dialect = dialect
	};
	int64_t		start = now_ms();
	const Record *answer;

	etcd_client_configure(caller->client, &settings);
	/* the second request finds a token, or the refusal of one */
	for (int i = 0; i < 2; i++)
	{
		answer = ask_grant(caller, 5);
		if (answer->outcome != outcome || (says != NULL && strstr(answer->message, says) == NULL))
			fail_msg("outcome %d, %s", answer->outcome, answer->message);
	}
	assert_true(now_ms() - start < 5 * REQUEST_TIMEOUT_MS);
	/* answers to the client's own requests are not passed on */
	run_for(caller, 100);
	assert_int_equal(caller->nanswers, 2);
	stop_caller(caller);
}

/* What an etcd with authentication answers to the request for a token. */
static const char good_token[] = "HTTP/1.1 200 OK\r\n\r\n"
	"{\"header\":{\"raft_term\":\"2\"},\"token\":\"good\"}";
static const char bad_token[] = "HTTP/1.1 200 OK\r\n\r\n"
	"{\"header\":{\"raft_term\":\"2\"},\"token\":\"bad\"}";
static const char rejection[] = REFUSAL("{\"error\":\"etcdserver: authentication failed, "
										"invalid user ID or password\",\"code\":3}");

static void
test_tokens(void **state)
{
	const char *file = write_password();
	const struct
	{
		const char *text;		/* of the answer to the request for a token */
		const char *file;
		EtcdOutcome outcome;
		const char *says;
	}			cases[] = {
		{good_token, file, ETCD_ANSWERED, NULL},
		{bad_token, file, ETCD_REFUSED, "user name is empty"},
		{rejection, file, ETCD_REFUSED, "did not give user \"somebody\" a token: etcdserver: authentication failed"},
		{"HTTP/1.1 200 OK\r\n\r\nx", file, ETCD_GARBAGE, "could not understand the answer"},
		{"", file, ETCD_NO_ANSWER, "within 800 ms"},
		{good_token, "/nonexistent", ETCD_REFUSED, "could not open \"/nonexistent\""},
		{good_token, NULL, ETCD_REFUSED, "\"etcd_leader.password_file\" is not"},
	};

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Server	   *server = start_server(give_token, cases[i].text);

		ask_with_user(server, cases[i].file, cases[i].outcome, cases[i].says);
		stop_server(server);
	}
}

/*
 * A password is wrong while the token of the endpoint in use is still good, and is then
 * mended.  The error ends soon, though other endpoints are asked for tokens all the time.
 */
static void
test_password_mended(void **state)
{
	Server	   *used = start_server(give_token, good_token);
	Server	   *others[4];
	Caller	   *caller = start_caller(NULL, NULL);
	const char *endpoints[1 + lengthof(others)] = {used->url};
	EtcdClientSettings settings = {
		.endpoints = endpoints,
		.nendpoints = lengthof(endpoints),
		.request_timeout_ms = REQUEST_TIMEOUT_MS,
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.probe_interval_ms = 500,
		.username = "somebody",
		.password_file = write_password(),
		.dialect = dialect
	};
	int64_t		mended;

	(void) state;
	for (size_t i = 0; i < lengthof(others); i++)
	{
		others[i] = start_server(give_token, bad_token);
		others[i]->delay_ms = 80 * i;
		endpoints[1 + i] = others[i]->url;
	}
	etcd_client_configure(caller->client, &settings);
	assert_int_equal(ask_grant(caller, 5)->outcome, ETCD_ANSWERED);
	used->text = rejection;
	etcd_client_configure(caller->client, &settings);
	etcd_client_probe(caller->client);
	WAIT_UNTIL(caller, strstr(etcd_client_user_error(caller->client), "authentication failed") != NULL);
	used->text = good_token;
	(void) write_password();
	mended = now_ms();
	WAIT_UNTIL(caller, etcd_client_user_error(caller->client)[0] == '\0');
	assert_true(now_ms() - mended < 6 * settings.probe_interval_ms);
	stop_caller(caller);
	for (size_t i = 0; i < lengthof(others); i++)
		stop_server(others[i]);
	stop_server(used);
}

/* Whose files may hold a secret. */
static void
test_secret_files(void **state)
{
	const uid_t own = geteuid();
	const uid_t other = own + 4711;
	const struct
	{
		mode_t		mode;
		uid_t		owner;
		const char *says;
	}			cases[] = {
		{S_IFREG | 0600, own, NULL},
		{S_IFREG | 0400, own, NULL},
		{S_IFREG | 0600, 0, NULL},
		{S_IFREG | 0602, 0, "world access"},
		{S_IFREG | 0604, own, "world access"},
		{S_IFREG | 0600, other, "must be owned"},
		{S_IFDIR | 0700, own, "not a regular file"},
		/* of root, as far as the tests do not run as root */
		{S_IFREG | 0640, 0, own == 0 ? "group or world" : NULL},
		{S_IFREG | 0660, 0, "group or world"},
		{S_IFREG | 0640, own, "group or world"},
	};

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		struct stat file = {.st_mode = cases[i].mode, .st_uid = cases[i].owner};
		const char *fault = secret_file_fault(&file);

		if (cases[i].says == NULL)
			assert_null(fault);
		else
			assert_non_null(strstr(fault, cases[i].says));
	}
}

/* A read whose answer is late is also sent to a second endpoint. */
static void
test_second_endpoint(void **state)
{
	static const char kept[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
		"{\"result\":{\"header\":{\"raft_term\":\"2\"},\"ID\":\"5\",\"TTL\":\"9\"}}";
	Server	   *silent = start_server(be_silent, "");
	Server	   *late = start_server(answer_late, kept);
	Caller	   *caller = start_caller(silent->url, etcd_url);
	const Record *answers = caller->answers;
	int64_t		start = now_ms();

	(void) state;
	/* the second endpoint answers, and is in use then; the watch ends with the first */
	open_watches(caller, "unit/a", NULL);
	send_lease(caller, 1, ETCD_KEEPALIVE, 1);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_true(now_ms() - start >= REQUEST_TIMEOUT_MS / 2);
	/* so it was not too late */
	assert_int_equal(answers[0].outcome, ETCD_ANSWERED);
	assert_int_equal(answers[0].endpoint, 1);
	assert_int_equal(answers[0].endpoint_in_use, 1);
	WAIT_UNTIL(caller, caller->nends == 1);
	assert_non_null(strstr(caller->why, "within 400 ms"));
	run_for(caller, REQUEST_TIMEOUT_MS);
	assert_int_equal(caller->nanswers, 1);

	/* the first endpoint answers at last */
	awaited = silent;
	nawaited = silent->nrequests;
	configure(caller, late->url, silent->url);
	caller->nanswers = 0;
	send_lease(caller, 2, ETCD_KEEPALIVE, 5);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_int_equal(answers[0].ttl_s, 9);
	assert_int_equal(answers[0].endpoint, 0);
	assert_int_equal(answers[0].endpoint_in_use, 0);

	/* no endpoint answers */
	configure(caller, silent->url, closed_url);
	caller->nanswers = 0;
	start = now_ms();
	send_lease(caller, 3, ETCD_TIME_TO_LIVE, 5);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_true(now_ms() - start >= REQUEST_TIMEOUT_MS - 10 && now_ms() - start < 2 * REQUEST_TIMEOUT_MS);
	assert_int_equal(answers[0].outcome, ETCD_NO_ANSWER);
	assert_int_equal(answers[0].endpoint, 0);
	assert_true(answers[0].timed_out);
	run_for(caller, REQUEST_TIMEOUT_MS);
	assert_int_equal(caller->nanswers, 1);
	stop_caller(caller);
	stop_server(late);
	stop_server(silent);
}

/* Invalid endpoints: another protocol, or an unknown name. */
static void
test_bad_urls(void **state)
{
	static const char *const urls[] = {
		"file:///etc/passwd", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://host.invalid:2379",
		"http://127.0.0.1:2379/etcd",
	};

	(void) state;
	for (size_t i = 0; i < lengthof(urls); i++)
	{
		Caller	   *caller = start_caller(urls[i], etcd_url);
		const Record *answer = ask_grant(caller, 1);

		assert_true(answer->outcome == ETCD_NO_ANSWER || answer->outcome == ETCD_GARBAGE);
		assert_non_null(strstr(answer->message, urls[i]));
		assert_int_equal(answer->endpoint_in_use, 1);
		stop_caller(caller);
	}
}

/* Neither a time-out nor the end of the client waits for the resolver. */
static void
test_hung_resolver(void **state)
{
	Caller	   *caller;
	int64_t		start = now_ms();
	const Record *answer;

	(void) state;
	/* the client looks names up at once */
	resolver_stuck = true;
	resolver_called = false;
	caller = start_caller("http://hung.invalid:2379", etcd_url);
	open_watches(caller, "unit/a", NULL);
	answer = ask_grant(caller, 1);
	assert_true(resolver_called);
	assert_false(resolver_took_signals);
	assert_true(answer->timed_out);
	assert_non_null(strstr(answer->message, "could not resolve host \"hung.invalid\" of etcd at \"http://hung.invalid:2379\" within 600 ms"));
	WAIT_UNTIL(caller, caller->nends == 1);
	assert_int_equal(ask_grant(caller, 1)->outcome, ETCD_REFUSED);
	configure(caller, "http://hung.invalid:2379", NULL);
	send_grant(caller, 1, 1);
	turn(caller, 0);
	stop_caller(caller);
	/* the resolver hangs until now */
	assert_true(now_ms() - start < 3 * CONNECT_TIMEOUT_MS);
	release_resolver();
}

/* The URL of etcd under another host; the result is valid until the next call. */
static const char *
url_of(const char *host)
{
	static char url[100];

	snprintf(url, sizeof(url), "http://%s%s", host, strrchr(etcd_url, ':'));
	return url;
}

/* A name has several addresses: the first one that can be reached is used. */
static void
test_names(void **state)
{
	const char *const hosts[] = {"etcd.test", "ETCD.test", "etcd.test."};
	Caller	   *caller;

	(void) state;
	resolved[1] = "127.0.0.1";
	for (size_t i = 0; i < lengthof(hosts); i++)
	{
		resolved[0] = i == 1 ? "127.0.0.99" : "::1";
		caller = start_caller(url_of(hosts[i]), NULL);
		assert_int_equal(ask_grant(caller, 1)->outcome, ETCD_REFUSED);
		stop_caller(caller);
	}

	/* libcurl's own resolver would know it */
	caller = start_caller(url_of("unknown.test"), NULL);
	assert_non_null(strstr(ask_grant(caller, 1)->message, url_of("unknown.test")));
	assert_non_null(strstr(caller->answers[0].message, "could not resolve host \"unknown.test\": "));
	assert_false(caller->answers[0].timed_out);
	stop_caller(caller);
}

/* A host that has moved is found, since its name is looked up after a failure. */
static void
test_host_moves(void **state)
{
	Caller	   *caller;

	(void) state;
	resolved[0] = "127.0.0.99";
	resolved[1] = NULL;
	caller = start_caller(url_of("etcd.test"), NULL);
	assert_int_equal(ask_grant(caller, 1)->outcome, ETCD_NO_ANSWER);
	resolved[0] = "127.0.0.1";
	WAIT_UNTIL(caller, ask_grant(caller, 1)->outcome == ETCD_REFUSED);

	stop_caller(caller);
}

/* A listener that is silent: its queue is full, so that what comes is dropped. */
typedef struct SilentListener
{
	int			fd;
	int			clients[8];
} SilentListener;

static void
start_silent(SilentListener *listener, int family, int port)
{
	struct sockaddr_in ip4 = {.sin_family = AF_INET,.sin_port = htons(port)};
	struct sockaddr_in6 ip6 = {.sin6_family = AF_INET6,.sin6_port = htons(port),.sin6_addr = IN6ADDR_LOOPBACK_INIT};
	const struct sockaddr *address = family == AF_INET ? (struct sockaddr *) &ip4 : (struct sockaddr *) &ip6;
	socklen_t	len = family == AF_INET ? sizeof(ip4) : sizeof(ip6);
	int			one = 1;

	ip4.sin_addr.s_addr = inet_addr("127.0.0.2");
	listener->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (family == AF_INET6)
		setsockopt(listener->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	assert_int_equal(bind(listener->fd, address, len), 0);
	assert_int_equal(listen(listener->fd, 0), 0);
	for (size_t i = 0; i < lengthof(listener->clients); i++)
	{
		listener->clients[i] = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void) connect(listener->clients[i], address, len);
	}
}

static void
stop_silent(SilentListener *listener)
{
	for (size_t i = 0; i < lengthof(listener->clients); i++)
		close(listener->clients[i]);
	close(listener->fd);
}

/*
 * One address of a name is silent, one refuses, and one is etcd's: whatever
 * their order, IPv4 or IPv6, etcd is found.
 */
static void
test_addresses(void **state)
{
	static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	static const char *const addresses[][3] = {
		{"127.0.0.2", "::ffff:127.0.0.99", "127.0.0.1"},
		{"::1", "127.0.0.99", "::ffff:127.0.0.1"},
	};
	SilentListener silent4;
	SilentListener silent6;
	int			port = atoi(strrchr(etcd_url, ':') + 1);

	(void) state;
	start_silent(&silent4, AF_INET, port);
	start_silent(&silent6, AF_INET6, port);
	for (size_t i = 0; i < lengthof(orders) * lengthof(addresses); i++)
	{
		Caller	   *caller;

		for (int j = 0; j < 3; j++)
			resolved[j] = addresses[i % 2][orders[i / 2][j]];
		caller = start_caller(url_of("etcd.test"), NULL);
		WAIT_UNTIL(caller, ask_grant(caller, 1)->outcome == ETCD_REFUSED);
		open_watches(caller, "unit/a", NULL);
		WAIT_UNTIL(caller, caller->nframes > 0 || caller->nends > 0);
		assert_int_equal(caller->nends, 0);
		stop_caller(caller);
	}
	memset((void *) resolved, 0, sizeof(resolved));
	stop_silent(&silent4);
	stop_silent(&silent6);
}

static void
assert_addresses(const EtcdAddresses *addresses, const char *expected)
{
	char		text[ETCD_MAX_ADDRESSES * ETCD_ADDRESS_SIZE] = "";

	for (int i = 0; i < addresses->n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i > 0 ? " " : "", addresses->text[i]);
	assert_string_equal(text, expected);
}

static void
finish_lookup(EtcdNames *names, const EtcdName *name)
{
	for (int i = 0; i < PATIENCE_MS / 10 && name->is_pending; i++)
	{
		sleep_ms(10);
		etcd_names_finish(names);
	}
	assert_false(name->is_pending);
}

/* Addresses are kept while a lookup hangs, and when it fails. */
static void
test_old_addresses(void **state)
{
	EtcdNames  *names = etcd_names_create();
	const EtcdName *name;

	(void) state;
	resolver_stuck = true;
	resolved[0] = "127.0.0.1";
	resolved[1] = NULL;
	name = etcd_names_want(names, "hung.test");
	finish_lookup(names, name);
	assert_false(etcd_names_want(names, "hung.test")->is_pending);

	resolver_hangs = true;
	sleep_ms(1000);
	etcd_names_doubt(names, "hung.test");
	assert_true(etcd_names_want(names, "hung.test")->is_pending);
	assert_addresses(&name->addresses, "127.0.0.1");
	resolver_hangs = false;
	resolved[0] = NULL;
	release_resolver();
	finish_lookup(names, name);
	assert_addresses(&name->addresses, "127.0.0.1");
	assert_non_null(strstr(name->error, "\"hung.test\""));
	etcd_names_free(names);
}

/*
 * Which address of a name is tried first, and for how long.  Of those that have
 * all failed, each gets the whole time, one after the other.
 */
static void
test_routes(void **state)
{
	EtcdNames  *names = etcd_names_create();
	int64_t		second = INT64_C(1000000000);
	const EtcdName *name;
	EtcdRoute	route;

	(void) state;
	resolved[0] = "10.0.0.1";
	resolved[1] = "fd00::9";
	resolved[2] = "10.0.0.3";
	name = etcd_names_want(names, "etcd.test");
	finish_lookup(names, name);
	etcd_names_plan(name, &route);
	assert_addresses(&route.addresses, "10.0.0.1 [fd00::9] 10.0.0.3");
	for (int i = 0; i < 3; i++)
	{
		struct timespec now;
		int64_t		end_ns;

		clock_gettime(CLOCK_MONOTONIC, &now);
		end_ns = now.tv_sec * second + now.tv_nsec + 60 * second;
		assert_true(etcd_route_next(&route, end_ns));
		assert_int_equal(route.current, i);
		assert_true((route.until_ns - route.began_ns) * (3 - i) <= end_ns - route.began_ns);
		assert_true((route.until_ns - route.began_ns) * (3 - i) > end_ns - route.began_ns - second);
		etcd_names_note(names, &route, i == 2);
	}
	assert_false(etcd_route_next(&route, INT64_MAX));

	/* the good one is the first, and may use all the time */
	etcd_names_plan(name, &route);
	assert_addresses(&route.addresses, "10.0.0.3 10.0.0.1 [fd00::9]");
	assert_true(etcd_route_next(&route, INT64_MAX));
	assert_true(route.until_ns == INT64_MAX);
	etcd_names_note(names, &route, false);

	/* all have failed: the oldest failure is the first */
	etcd_names_plan(name, &route);
	assert_addresses(&route.addresses, "10.0.0.1 [fd00::9] 10.0.0.3");
	assert_true(etcd_route_next(&route, INT64_MAX));
	assert_true(route.until_ns == INT64_MAX);
	etcd_names_note(names, &route, false);
	etcd_names_plan(name, &route);
	assert_addresses(&route.addresses, "[fd00::9] 10.0.0.3 10.0.0.1");
	assert_false(etcd_route_next(&route, 0));

	/* a lookup: what is known of an address stays, and another one has not failed */
	resolved[0] = "10.0.0.3";
	resolved[1] = "10.0.0.4";
	resolved[2] = NULL;
	sleep_ms(1000);
	etcd_names_doubt(names, "etcd.test");
	finish_lookup(names, name);
	etcd_names_plan(name, &route);
	assert_addresses(&route.addresses, "10.0.0.4 10.0.0.3");
	etcd_names_free(names);
	resolved[0] = resolved[1] = NULL;
}

/* Lookups that hang are not started again for each caller that comes and goes. */
static void
test_abandoned_lookups(void **state)
{
	(void) state;
	resolver_stuck = true;
	for (int i = 0; i < 200; i++)
	{
		EtcdNames  *names = etcd_names_create();

		/* at first the same two names, then others each time */
		for (int j = 0; j < 2; j++)
		{
			char		host[32];

			snprintf(host, sizeof(host), "%d.invalid", i < 100 ? j : 2 * i + j);
			assert_non_null(etcd_names_want(names, host));
		}
		etcd_names_free(names);
		/* threads that should not be there have the time to begin */
		if (i == 99)
			sleep_ms(200);
		assert_true(__atomic_load_n(&nstuck, __ATOMIC_SEQ_CST) <= (i < 100 ? 2 : 64));
	}
	for (int i = 0; i < PATIENCE_MS / 10 && __atomic_load_n(&nstuck, __ATOMIC_SEQ_CST) < 64; i++)
		sleep_ms(10);
	assert_int_equal(__atomic_load_n(&nstuck, __ATOMIC_SEQ_CST), 64);
	release_resolver();
}

/* Whoever comes after a caller that is gone gets what the lookup finds. */
static void
test_adopted_lookup(void **state)
{
	EtcdNames  *names = etcd_names_create();
	const EtcdName *name;

	(void) state;
	resolver_stuck = resolver_hangs = true;
	resolved[0] = "127.0.0.1";
	assert_true(etcd_names_want(names, "hung.test")->is_pending);
	etcd_names_free(names);
	names = etcd_names_create();
	name = etcd_names_want(names, "HUNG.test");
	assert_true(name->is_pending);
	release_resolver();
	finish_lookup(names, name);
	assert_addresses(&name->addresses, "127.0.0.1");
	etcd_names_free(names);
	resolver_hangs = false;
	resolved[0] = NULL;
}

/* A thread that cannot tell its end ends nothing else, and its result is found later. */
static void
test_lost_sign(void **state)
{
	Caller	   *caller;

	(void) state;
	resolved[0] = "127.0.0.1";
	writes_fail = true;
	caller = start_caller(url_of("etcd.test"), NULL);
	assert_true(ask_grant(caller, 1)->timed_out);
	writes_fail = false;
	WAIT_UNTIL(caller, ask_grant(caller, 1)->outcome == ETCD_REFUSED);
	stop_caller(caller);
	resolved[0] = NULL;
}

/* One name that hangs, or many, hold up no other; and there is a bound. */
static void
test_many_names(void **state)
{
	EtcdNames  *names = etcd_names_create();
	const EtcdName *name;
	char		host[32];
	int			n = 0;

	(void) state;
	resolver_stuck = true;
	resolved[0] = "127.0.0.1";
	resolved[1] = "::1";
	name = etcd_names_want(names, "etcd.test");
	assert_true(name->is_pending);
	while (n == 0 || name != NULL)
	{
		snprintf(host, sizeof(host), "%d.invalid", n++);
		name = etcd_names_want(names, host);
		assert_true(n <= 64);
	}
	/* a second wish starts no second thread; the places are all taken */
	assert_true(etcd_names_want(names, "0.invalid")->is_pending);
	assert_null(etcd_names_want(names, "another.test"));

	name = etcd_names_want(names, "etcd.test");
	finish_lookup(names, name);
	assert_addresses(&name->addresses, "127.0.0.1 [::1]");
	/* now it is the oldest one without a lookup */
	assert_true(etcd_names_want(names, "another.test")->is_pending);
	etcd_names_free(names);
	release_resolver();
}

/* Frames arrive in pieces, or many at once. */
static void
send_frames(Server *server, int fd)
{
	const char	frames[] = FRAME("1") "\n" FRAME("2") "\n  " FRAME("3") FRAME("4");

	send_text(fd, watch_head, strlen(watch_head));
	for (size_t i = 0; i < strlen(frames); i++)
	{
		send_text(fd, frames + i, 1);
		if (i % 16 == 0)
			sleep_ms(1);
	}
	for (int i = 0; i < 2; i++)
		send_text(fd, frames, strlen(frames));
	be_silent(server, fd);
}

static void
test_pieces_of_frames(void **state)
{
	Server	   *server = start_server(send_frames, "");
	Caller	   *caller = start_caller(server->url, NULL);

	(void) state;
	open_watches(caller, "a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 12);
	for (int i = 0; i < 12; i++)
		assert_int_equal(caller->frames[i].watch_id, i % 4 + 1);
	run_for(caller, 50);
	assert_int_equal(caller->nframes, 12);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
	stop_server(server);
}

static void
send_megabytes_of_frames(Server *server, int fd)
{
	send_text(fd, watch_head, strlen(watch_head));
	while (!server->stopping && send(fd, EVENT_FRAME("1") "\n", strlen(EVENT_FRAME("1")) + 1, MSG_NOSIGNAL) > 0)
		;
}

static void
forget_frames(Caller *caller)
{
	caller->nframes = 1;
	caller->answers[0].id++;
}

#define TRICKLE 50

static void
trickle_frames(Server *server, int fd)
{
	send_text(fd, watch_head, strlen(watch_head));
	for (int i = 0; i < TRICKLE; i++)
	{
		send_text(fd, FRAME("1"), strlen(FRAME("1")));
		sleep_ms(1);
	}
	be_silent(server, fd);
}

/* Single frames of other streams than 0 are collected, and passed on several at a time. */
static void
test_second_stream_rests(void **state)
{
	Server	   *server = start_server(trickle_frames, "");
	Caller	   *caller = start_caller(server->url, NULL);
	EtcdWatch	watch = {.watch_id = 1,.key = BYTES("a")};
	int			nreads = 0;
	int64_t		began_ms = 0;

	(void) state;
	etcd_client_watch(caller->client, 1, &watch, 1);
	while (caller->nframes < TRICKLE)
	{
		int			nframes = caller->nframes;

		turn(caller, PATIENCE_MS);
		if (began_ms == 0 && caller->nframes > 0)
			began_ms = now_ms();
		nreads += caller->nframes > nframes;
	}
	/* now_ms() is rounded */
	assert_true(nreads <= (now_ms() - began_ms + 1) / 5 + 1);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
	stop_server(server);
}

/* The size limit is that of a frame, and not of the stream. */
static void
test_long_stream(void **state)
{
	Server	   *server = start_server(send_megabytes_of_frames, "");
	Caller	   *caller = start_caller(server->url, NULL);

	(void) state;
	caller->on_frame = forget_frames;
	open_watches(caller, "a", NULL);
	WAIT_UNTIL(caller, caller->answers[0].id > 50000);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);
	stop_server(server);
}

static void
replace_watch(Caller *caller)
{
	if (caller->nframes == 2)
		open_watches(caller, "unit/a", NULL);
}

static void
close_watch(Caller *caller)
{
	etcd_client_watch(caller->client, 0, NULL, 0);
}

static void
change_to_etcd(Caller *caller)
{
	etcd_client_change_endpoint(caller->client, 0);
}

/* The stream is closed while its frames are passed on.  The rest is dropped. */
static void
test_replaced_while_told(void **state)
{
	Server	   *server = start_server(send_and_stay,
									  "HTTP/1.1 200 OK\r\n\r\n" FRAME("1") FRAME("2") FRAME("3") "x");
	Caller	   *caller = start_caller(server->url, NULL);

	(void) state;
	caller->on_frame = replace_watch;
	open_watches(caller, "a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 5);
	assert_int_equal(caller->frames[2].watch_id, 1);
	WAIT_UNTIL(caller, caller->nends == 1);
	assert_int_equal(server->nrequests, 2);
	stop_caller(caller);

	caller = start_caller(server->url, NULL);
	caller->on_frame = close_watch;
	open_watches(caller, "a", NULL);
	WAIT_UNTIL(caller, caller->nframes == 1);
	run_for(caller, 50);
	assert_int_equal(caller->nframes, 1);
	assert_int_equal(caller->nends, 0);
	stop_caller(caller);

	caller = start_caller(server->url, etcd_url);
	caller->on_frame = change_to_etcd;
	open_watches(caller, "a", NULL);
	WAIT_UNTIL(caller, caller->nends == 1);
	assert_int_equal(caller->nframes, 1);
	assert_int_equal(etcd_client_endpoint(caller->client), 1);
	stop_caller(caller);
	stop_server(server);
}

static const struct
{
	const char *name;
	Behaviour	behave;
	const char *text;
	int			nframes;
	bool		stays;			/* the endpoint stays in use */
	const char *says;
}			hostile_watches[] = {
	{"refuses", NULL, "", 0, false, "Connection refused"},
	{"hangs up", send_and_close, "", 0, false, "closed the connection without an answer"},
	{"not created", send_and_stay, "HTTP/1.1 200 OK\r\n\r\n", 0, false, "has not created the watch within 800 ms"},
	{"never created", be_silent, "", 0, false, "has not created the watch within 800 ms"},
	{"ends", send_and_close, "HTTP/1.1 200 OK\r\n\r\n" FRAME("1"), 1, false, "ended the watch"},
	{"ends in a frame", send_and_close, "HTTP/1.1 200 OK\r\n\r\n" FRAME("1") "{\"resu", 1, false, "ended the watch"},
	{"ends in a chunk", send_and_close, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n"
	FRAME("1"), 1, false, NULL},
	{"garbage", send_and_stay, "HTTP/1.1 200 OK\r\n\r\n" FRAME("1") "garbage", 1, false, "garbage"},
	{"404", send_and_stay, "HTTP/1.1 404 Not Found\r\n\r\n404 page not found\n", 0, false, "404 page not found"},
	{"503", send_and_close, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 0, false, NULL},
	{"v1 error", send_and_stay, "HTTP/1.1 200 OK\r\n\r\n" FRAME("1")
		"{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"etcdserver: no leader\"}}" FRAME("2"),
	1, false, "no leader"},
	{"v2 error", send_and_stay, "HTTP/1.1 200 OK\r\n\r\n"
	"{\"error\":{\"code\":14,\"message\":\"etcdserver: no leader\"}}\n", 0, false, "no leader"},
	{"forbids", send_and_stay, "HTTP/1.1 403 Forbidden\r\n\r\n"
	"{\"code\":7,\"message\":\"etcdserver: permission denied\"}", 0, true, "permission denied"},
	{"large", send_10_megabytes, "HTTP/1.1 200 OK\r\n\r\n" FRAME("1") "{\"result\":", 1, false, "is larger than"},
};

static void
test_hostile_watches(void **state)
{
	int			fds = count_fds();

	(void) state;
	for (size_t i = 0; i < lengthof(hostile_watches); i++)
	{
		Server	   *server = hostile_watches[i].behave != NULL ?
			start_server(hostile_watches[i].behave, hostile_watches[i].text) : NULL;
		Caller	   *caller = start_caller(server != NULL ? server->url : closed_url, etcd_url);

		open_watches(caller, "unit/a", NULL);
		WAIT_UNTIL(caller, caller->nends == 1);
		if (hostile_watches[i].says != NULL && strstr(caller->why, hostile_watches[i].says) == NULL)
			fail_msg("%s: %s", hostile_watches[i].name, caller->why);
		if (caller->nframes != hostile_watches[i].nframes ||
			etcd_client_endpoint(caller->client) != (hostile_watches[i].stays ? 0 : 1))
			fail_msg("%s: %d frames, endpoint %d", hostile_watches[i].name, caller->nframes,
					 etcd_client_endpoint(caller->client));

		if (!hostile_watches[i].stays)
		{
			int			nframes = caller->nframes;

			open_watches(caller, "unit/a", NULL);
			WAIT_UNTIL(caller, caller->nframes == nframes + 1);
		}
		run_for(caller, 20);
		assert_int_equal(caller->nends, 1);
		stop_caller(caller);
		if (server != NULL)
			stop_server(server);
	}
	assert_int_equal(count_fds(), fds);
}

/*
 * Large values of other programs: an answer and a frame of more than a megabyte.
 * A frame beyond the limit ends the stream, and an answer beyond it is an error.
 * But neither counts as a failure of the endpoint.
 */
static void
test_large(void **state)
{
	size_t		size = 1500000;
	char	   *value = malloc(size);
	EtcdOp		put = {.kind = ETCD_OP_PUT,.key = BYTES("unit/large"),.value = {value, size}};
	EtcdOp		range = {.kind = ETCD_OP_RANGE,.key = BYTES("unit/large")};
	/* a write of that size takes long on a busy machine */
	EtcdRequest write = {.kind = ETCD_TXN,.success = &put,.nsuccess = 1,.is_large = true};
	EtcdRequest read = {.kind = ETCD_TXN,.success = &range,.nsuccess = 1,.is_large = true};
	EtcdWatch	watch = {.watch_id = 21,.key = BYTES("unit/large"),.fragment = true,.progress_notify = true};
	Caller	   *caller = start_caller(etcd_url, closed_url);
	Server	   *stream_server = start_server(send_10_megabytes, "HTTP/1.1 200 OK\r\n\r\n" FRAME("1") "{\"result\":");
	Server	   *server = start_server(send_10_megabytes, "HTTP/1.1 200 OK\r\n\r\n");

	(void) state;
	memset(value, 0xff, size);
	etcd_client_watch(caller->client, 1, &watch, 1);
	WAIT_UNTIL(caller, caller->nframes == 1);
	for (int i = 1; i <= 3; i++)
	{
		etcd_client_send(caller->client, answered, i, &write);
		WAIT_UNTIL(caller, caller->nanswers == i && caller->nframes == i + 1);
		assert_int_equal(caller->frames[i].value_len, size);
	}
	etcd_client_send(caller->client, answered, 4, &read);
	WAIT_UNTIL(caller, caller->nanswers == 4);
	assert_int_equal(caller->answers[3].outcome, ETCD_ANSWERED);
	assert_int_equal(caller->nends, 0);

	stop_caller(caller);

	caller = start_caller(stream_server->url, etcd_url);
	etcd_client_watch(caller->client, 1, &watch, 1);
	WAIT_UNTIL(caller, caller->nends == 1);
	assert_int_equal(caller->nframes, 1);
	assert_int_equal(caller->end_outcome, ETCD_GARBAGE);
	assert_non_null(strstr(caller->why, "is larger than 8388608 bytes"));
	assert_int_equal(etcd_client_endpoint(caller->client), 0);

	stop_caller(caller);

	caller = start_caller(server->url, etcd_url);
	etcd_client_send(caller->client, answered, 5, &read);
	WAIT_UNTIL(caller, caller->nanswers == 1);
	assert_int_equal(caller->answers[0].outcome, ETCD_REFUSED);
	assert_int_equal(caller->answers[0].code, ETCD_CODE_RESOURCE_EXHAUSTED);
	assert_int_equal(etcd_client_endpoint(caller->client), 0);
	stop_caller(caller);
	stop_server(server);
	stop_server(stream_server);
	free(value);
}

/*
 * Memory runs out at any place.  Still each request gets one answer, and a
 * stream is open or its end is reported.
 */
static void
test_no_memory(void **state)
{
	int			left = 0;

	(void) state;
	for (int n = 0; left == 0; n++)
	{
		Caller	   *caller = start_caller(etcd_url, closed_url);

		allocations_left = n;
		send_op(caller, 1, ETCD_OP_PUT, "unit/memory");
		open_watches(caller, "unit/memory", NULL);
		run_for(caller, 20);
		configure(caller, etcd_url, NULL);
		left = allocations_left;
		allocations_left = -1;
		WAIT_UNTIL(caller, caller->nanswers == 1 && caller->nframes + caller->nends > 0);
		run_for(caller, 5);
		assert_int_equal(caller->nanswers, 1);
		assert_true(n > 0 || caller->answers[0].outcome == ETCD_NO_ANSWER);
		/* etcd may be slow on a busy machine */
		assert_true(left == 0 || caller->answers[0].timed_out || caller->answers[0].outcome == ETCD_ANSWERED);
		stop_caller(caller);
	}
}

/* The client is freed while requests and streams are under way. */
static void
test_free_amid(void **state)
{
	Server	   *server = start_server(be_silent, "");
	Caller	   *caller = start_caller(server->url, "http://host.invalid:2379");
	int64_t		start;

	(void) state;
	send_grant(caller, 1, 1);
	open_watches(caller, "a", NULL);
	turn(caller, 0);
	etcd_client_change_endpoint(caller->client, 0);
	send_grant(caller, 2, 1);
	open_watches(caller, "a", NULL);
	turn(caller, 0);
	send_grant(caller, 3, 1);
	start = now_ms();
	stop_caller(caller);
	/* no time-out is waited for */
	assert_true(now_ms() - start < CONNECT_TIMEOUT_MS);
	stop_server(server);
	etcd_client_free(NULL);
}

static int
speak_grpc(void **state)
{
	dialect = ETCD_GRPC;
	return start_etcd(state);
}

#define PATIENT(test)	cmocka_unit_test_setup_teardown(test, be_patient, be_impatient)

int
main(void)
{
	/* of etcd itself */
	const struct CMUnitTest etcd_tests[] = {
		cmocka_unit_test(test_etcd_starts),
		PATIENT(test_requests),
		PATIENT(test_time_to_live),
		PATIENT(test_txn_meaning),
		PATIENT(test_many_requests),
		PATIENT(test_watches),
		PATIENT(test_streams),
		PATIENT(test_first_stream_goes_first),
		PATIENT(test_quick),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_no_endpoint),
		cmocka_unit_test(test_configure),
		cmocka_unit_test(test_reentrant),
		cmocka_unit_test(test_socket_changes),
		cmocka_unit_test(test_run_until),
		cmocka_unit_test(test_bad_urls),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_free_amid),
	};
	const struct CMUnitTest server_tests[] = {
		cmocka_unit_test(test_etcd_starts),
		cmocka_unit_test(test_what_is_sent),
		cmocka_unit_test(test_change_endpoint),
		cmocka_unit_test(test_single_endpoint),
		cmocka_unit_test(test_hostile_requests),
		cmocka_unit_test(test_connect_timeout),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_password_mended),
		cmocka_unit_test(test_secret_files),
		cmocka_unit_test(test_user_dropped),
		cmocka_unit_test(test_second_endpoint),
		cmocka_unit_test(test_hung_resolver),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_host_moves),
		cmocka_unit_test(test_old_addresses),
		cmocka_unit_test(test_routes),
		cmocka_unit_test(test_abandoned_lookups),
		cmocka_unit_test(test_adopted_lookup),
		cmocka_unit_test(test_lost_sign),
		cmocka_unit_test(test_many_names),
		cmocka_unit_test(test_pieces_of_frames),
		PATIENT(test_large),
		cmocka_unit_test(test_replaced_while_told),
		cmocka_unit_test(test_second_stream_rests),
		cmocka_unit_test(test_long_stream),
		cmocka_unit_test(test_hostile_watches),
	};

	signal(SIGPIPE, SIG_IGN);
	srand(getpid());
	/* no proxy listens on the discard port, so using it would be noticed */
	setenv("http_proxy", "http://127.0.0.1:9", 1);
	setenv("all_proxy", "http://127.0.0.1:9", 1);
	return cmocka_run_group_tests(etcd_tests, start_etcd, stop_etcd) +
		cmocka_run_group_tests(server_tests, start_etcd, stop_etcd) +
		cmocka_run_group_tests(etcd_tests, speak_grpc, stop_etcd);
}
