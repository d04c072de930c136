/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker that keeps the HTTP server running.
 *
 * It opens the sockets, reads the certificate and forks the server, which
 * inherits both, and the settings.  When the settings are reloaded, a new
 * server is started, and the old one is told to finish when the new one
 * serves.  When the server dies, the sockets stay open, so that clients wait
 * for the next one.
 *
 * The worker itself speaks with nobody.  isolation.c says why there are two
 * processes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "http.h"

PG_MODULE_MAGIC;

/* After something failed: an address, a certificate, a server. */
#define RETRY_MS		1000

/* How long the elector may take to answer a request of the page. */
#define QUEUE_TIMEOUT_MS	1000

typedef struct Server
{
	pid_t		pid;			/* 0: there is none */
	int			control;		/* socket to it */
	bool		ready;
	int64		started_ms;
} Server;

static HttpConfig config;		/* of the newest server, or of the next */
static Server current;
static Server previous;			/* serves until the current one is ready */
static bool start_wanted = false;
static int64 start_due_ms = 0;
static bool start_failed = false;	/* and the log says so */
static bool reloaded = true;	/* and no server was wanted since */
static char tls_error[256] = "";	/* that was logged */

extern PGDLLEXPORT void etcd_leader_http_main(void);

/* ---- the server ------------------------------------------------------------ */

/* Tells a server to finish. reap() waits for its end. */
static void
forget_server(Server *server)
{
	if (server->pid != 0)
		close(server->control);
	memset(server, 0, sizeof(Server));
}

/* The current server goes on, if there is one. */
static void
postpone_start(void)
{
	if (!start_failed)
		ereport(WARNING,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not start the HTTP server of etcd_leader: %m"),
				 errdetail("This will be tried again until it succeeds.")));
	start_failed = true;
	start_due_ms = http_clock_ms() + RETRY_MS;
}

/* Starts a server for `config`.  The one before goes on until this is ready. */
static void
start_server(void)
{
	int			sockets[2];
	pid_t		worker = getpid();
	pid_t		pid;
	sigset_t	all;
	sigset_t	before;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
	{
		postpone_start();
		return;
	}

	/* until the child has handlers of its own */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
	{
		close(sockets[0]);
		forget_server(&current);
		forget_server(&previous);
		http_isolate(worker);
		sigprocmask(SIG_SETMASK, &before, NULL);
		http_serve(&config, sockets[1]);
	}
	if (pid < 0)
		postpone_start();
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(sockets[1]);
	if (pid < 0)
	{
		close(sockets[0]);
		return;
	}
	if (current.ready)
	{
		forget_server(&previous);
		previous = current;
	}
	else
		forget_server(&current);
	current = (Server) {.pid = pid, .control = sockets[0], .started_ms = http_clock_ms()};
	start_wanted = false;
}

/* The current server has died.  The one before it goes on, if there is one. */
static void
server_died(int status)
{
	int64		now_ms = http_clock_ms();
	bool		was_ready = current.ready;
	char	   *how = WIFSIGNALED(status) ?
		psprintf("It was terminated by signal %d: %s.", WTERMSIG(status),
				 pg_strsignal(WTERMSIG(status))) :
		psprintf("It exited with exit code %d.", WEXITSTATUS(status));

	if (was_ready || !start_failed)
		ereport(WARNING,
				(errmsg("the HTTP server of etcd_leader, process %d, died", (int) current.pid),
				 errdetail_internal("%s", how),
				 previous.pid != 0 ? errhint("The previous server continues to run. Correct the "
											 "settings and reload them.") :
				 errhint("It will be started again. No other process is affected.")));
	pfree(how);
	start_failed = !was_ready;

	/* do not restart at once a server that died at once */
	start_due_ms = current.started_ms + RETRY_MS;
	start_due_ms = Max(start_due_ms, now_ms);
	forget_server(&current);
	current = previous;
	memset(&previous, 0, sizeof(previous));
	start_wanted = current.pid == 0;
}

/*
 * Waits for servers that have ended.  The end of a server that was told to
 * finish is not logged.
 */
static void
reap(void)
{
	int			status;
	pid_t		pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
	{
		if (pid == current.pid)
			server_died(status);
		else if (pid == previous.pid)
			forget_server(&previous);
	}
}

/* ---- settings --------------------------------------------------------------- */

static int
count_open(const HttpConfig *of)
{
	int			n = 0;

	for (int i = 0; i < of->nlisteners; i++)
		n += of->listeners[i].fd >= 0;
	return n;
}

static void
free_certificate(HttpConfig *old)
{
	if (old->certificate)
		pfree(old->certificate);
	if (old->key)
	{
		explicit_bzero(old->key, strlen(old->key));
		pfree(old->key);
	}
}

/*
 * Takes the settings over, and has a new server started if one is needed:
 * after a reload, since a server keeps all settings that it began with, and
 * when an address could be opened that could not be before.  If the
 * certificate cannot be used, nothing changes: no server is started without
 * it.  False if this has to be tried again.
 */
static bool
configure(void)
{
	HttpConfig	new = {0};
	const char *error = NULL;

	if (!http_read_certificate(&new, &error))
	{
		if (strncmp(tls_error, error, sizeof(tls_error) - 1) != 0)
			ereport(WARNING,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("could not use the certificate of the HTTP server: %s", error),
					 current.pid != 0 ? errdetail("The server keeps its current settings.") :
					 errdetail("Nothing is served until it can be used.")));
		strlcpy(tls_error, error, sizeof(tls_error));
		free_certificate(&new);
		return false;
	}
	tls_error[0] = '\0';
	http_open_listeners(&config, &new);
	if (reloaded || count_open(&new) > count_open(&config))
	{
		start_wanted = true;
		start_due_ms = 0;
		start_failed = false;
		reloaded = false;
	}
	free_certificate(&config);
	config = new;
	return count_open(&config) == config.nlisteners;
}

static bool
is_wanted(void)
{
	return GetConfigOption("etcd_leader.http_listen", false, false)[0] != '\0' ||
		GetConfigOption("etcd_leader.http_agent_listen", false, false)[0] != '\0';
}

/* ---- the loop ------------------------------------------------------------------ */

static void
handle_child(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

/* Asks etcd for the queue of each election, and passes it to the server. */
static void
send_queues(void)
{
	TimestampTz until = GetCurrentTimestamp() + 2 * QUEUE_TIMEOUT_MS * INT64CONST(1000);
	EtcdLeaderStatus status;

	for (int i = 0; http_api->get_status(i, &status, sizeof(status)); i++)
	{
		HttpQueue	queue = {.kind = HTTP_QUEUE, .election = i, .nplaces = -1};

		if (GetCurrentTimestamp() < until)
			queue.nplaces = http_api->get_candidates(i, queue.places, HTTP_QUEUE_PLACES,
													 sizeof(queue.places[0]), QUEUE_TIMEOUT_MS);
		queue.at = GetCurrentTimestamp();
		(void) send(current.control, &queue, sizeof(queue), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

/* Executes the request of the server. */
static void
serve_control(void)
{
	HttpMessageKind kind;

	while (current.pid != 0 &&
		   recv(current.control, &kind, sizeof(kind), MSG_DONTWAIT) == sizeof(kind))
	{
		if (kind == HTTP_READY)
		{
			current.ready = true;
			start_failed = false;
			forget_server(&previous);
		}
		else if (kind == HTTP_WANT_QUEUES)
			send_queues();
	}
}

/* Sleeps until something has happened, or there is something to try again. */
static void
wait_for_work(bool complete, uint32 wait_event)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	bool		is_open = current.pid != 0;
	long		timeout_ms = complete ? -1 : RETRY_MS;

	if (start_wanted)
		timeout_ms = (long) Max(start_due_ms - http_clock_ms(), 0) + 1;
	if (is_open)
		events |= WL_SOCKET_READABLE;
	if (timeout_ms >= 0)
		events |= WL_TIMEOUT;
	(void) WaitLatchOrSocket(MyLatch, events, is_open ? current.control : PGINVALID_SOCKET,
							 timeout_ms, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

void
etcd_leader_http_main(void)
{
	uint32		wait_event = compat_wait_event("EtcdLeaderHttpMain");
	bool		complete = false;
	MemoryContext turn_context;

	http_load_api();
	turn_context = AllocSetContextCreate(TopMemoryContext, "etcd_leader http",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(turn_context);
	pqsignal(SIGCHLD, handle_child);

	while (!ShutdownRequestPending)
	{
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			complete = false;
			reloaded = true;
		}
		if (!is_wanted())
			proc_exit(0);
		reap();
		if (!complete)
			complete = configure();
		if (start_wanted && start_due_ms <= http_clock_ms())
			start_server();
		wait_for_work(complete, wait_event);
		if (!ShutdownRequestPending)
			serve_control();
		MemoryContextReset(turn_context);
	}
	/* the server ends with this process */
	proc_exit(1);
}
