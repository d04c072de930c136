/*
 * Many candidates of ours in one process, without PostgreSQL.  They use
 * the protocol and the client of etcd of the extension.  Each candidate has
 * a client and a lease of its own, as an instance has.
 *
 *	 candidates ENDPOINTS ELECTION NAME TTL NUMBER [ELECTIONS CLUSTERS START_MS] [json]
 *
 * ENDPOINTS is a comma list.  With ELECTIONS each candidate takes part in so many:
 * ELECTION/0, ELECTION/1 and so on.  The candidates are dealt out to so many CLUSTERS, and
 * each cluster has its own elections.  They start one after the other in START_MS; with 0
 * all at once.  Candidates that start at once renew their leases at the same times later, too,
 * and etcd syncs its log once for many of them.
 *
 * Writes "elected" or "unelected", and the time, for each change of leadership.  On
 * SIGUSR1 one leader resigns in one election and enters again, on SIGUSR2 all leaders
 * do in all elections.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "protocol/election.h"
#include "etcd/client.h"

/* Descriptors are below this: the limit of the bench is less. */
#define MAX_DESCRIPTORS		65536

typedef struct Candidate
{
	ElectionCore *core;
	EtcdClient *client;
	ElectionConfig *config;
	uint32_t	leads;			/* a bit for each slot */
	int64_t		due_ns;			/* when it has to be looked at without an event */
	uint64_t	changes;		/* of its sockets, as they are waited for */
	int		   *fds;
	int			nfds;
} Candidate;

typedef struct Fleet
{
	char	   *endpoints[ELECTION_MAX_ENDPOINTS];
	int			nendpoints;
	const char *election;
	const char *name;
	int			ttl_s;
	int			number;
	int			nelections;		/* 0: the one of that name */
	int			nclusters;
	int			start_ms;
	EtcdDialect dialect;
} Fleet;

static volatile sig_atomic_t resigning = 0;	/* a signal */
static sigset_t no_signals;
static int	epoll_fd;
static Candidate *owners[MAX_DESCRIPTORS];

static void
handle_signal(int signal)
{
	resigning = signal;
}

static int64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* ---- called by the core ---- */

static void answered(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing);

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	etcd_client_send(((Candidate *) ctx)->client, answered, id, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	etcd_client_watch(((Candidate *) ctx)->client, 0, watches, nwatches);
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	etcd_client_change_endpoint(((Candidate *) ctx)->client, endpoint);
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	Candidate  *candidate = ctx;
	uint32_t	bit = UINT32_C(1) << slot;
	bool		leads = view->deadline_ns != 0;
	struct timespec ts;

	if (leads == ((candidate->leads & bit) != 0))
		return;
	candidate->leads ^= bit;
	clock_gettime(CLOCK_REALTIME, &ts);
	printf("%s %ld.%06ld\n", leads ? "elected" : "unelected", (long) ts.tv_sec, ts.tv_nsec / 1000);
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply reply)
{
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
}

static void
port_remember_history(void *ctx, const ElectionHistory *history)
{
	(void) ctx;
	(void) history;
}

static void
port_remember_timelines(void *ctx, const char *election, const ElectionTimelines *timelines)
{
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
}

static void
port_drop(void *ctx, uint64_t id, const char *election, const char *why)
{
}

static uint64_t
port_random(void *ctx)
{
	return (uint64_t) random() << 33 ^ (uint64_t) random() << 11 ^ (uint64_t) random();
}

/* ---- called by the client ---- */

static void
answered(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	Candidate  *candidate = ctx;

	election_ignore_endpoints(candidate->core, etcd_client_foreign_endpoints(candidate->client));
	election_receive(candidate->core, now_ns(), id, answer);
	etcd_client_keep_cluster(candidate->client, election_cluster_id(candidate->core));
}

static void
watched(void *ctx, int stream, const EtcdWatchFrame *frame)
{
	election_watched(((Candidate *) ctx)->core, now_ns(), frame);
}

static void
watch_ended(void *ctx, int stream, EtcdOutcome outcome, const char *why)
{
	election_watch_ended(((Candidate *) ctx)->core, now_ns());
}

static void
noticed(void *ctx, const char *why)
{
}

static void
configure(Candidate *candidate)
{
	candidate->config->nendpoints = etcd_client_endpoint_count(candidate->client);
	election_configure(candidate->core, now_ns(), candidate->config);
}

static void
endpoints_changed(void *ctx)
{
	configure(ctx);
}

/* ---- a candidate ---- */

/* The time-outs and intervals are those of settings.c. */
static void
start(Candidate *candidate, const Fleet *fleet, int number)
{
	EtcdClientCallbacks callbacks = {
		.watched = watched,
		.watch_ended = watch_ended,
		.noticed = noticed,
		.endpoints_changed = endpoints_changed,
		.ctx = candidate
	};
	ElectionPort port = {
		port_send, port_watch, port_change_endpoint, port_publish, port_announce, port_reply,
		port_remember, port_remember_history, port_remember_timelines, port_report_duplicate_name, port_drop, port_random, candidate
	};
	long		ttl_ms = fleet->ttl_s * 1000;
	EtcdClientSettings settings = {
		.endpoints = (const char *const *) fleet->endpoints,
		.nendpoints = fleet->nendpoints,
		.dialect = fleet->dialect,
		.request_timeout_ms = ttl_ms / 9,
		.connect_timeout_ms = ttl_ms / 9,
		.probe_interval_ms = ttl_ms < 5000 ? 5000 : ttl_ms > 20000 ? 20000 : ttl_ms
	};
	ElectionConfig *config = calloc(1, sizeof(ElectionConfig));

	config->nelections = fleet->nelections == 0 ? 1 : fleet->nelections;
	candidate->config = config;
	candidate->client = etcd_client_create(&callbacks);
	candidate->core = election_create(&port, config->nelections);
	etcd_client_configure(candidate->client, &settings);
	snprintf(config->node_name, sizeof(config->node_name), "%s-%d", fleet->name, number);
	config->ttl_s = fleet->ttl_s;
	config->safety_margin_ms = -1;
	config->eligible = true;
	/* each is the primary of a database system of its own, those of other processes, too */
	snprintf(config->system_identifier, sizeof(config->system_identifier), "7%09d%09d", (int) getpid(), number);
	config->timeline = 1;
	config->refuses_second = true;
	for (int i = 0; i < config->nelections; i++)
	{
		if (fleet->nelections == 0)
			snprintf(config->elections[i], ELECTION_NAME_SIZE, "%s", fleet->election);
		else
			snprintf(config->elections[i], ELECTION_NAME_SIZE, "%s/%d", fleet->election,
					 number % fleet->nclusters * fleet->nelections + i);
	}
	configure(candidate);
}

/* Has its sockets waited for, if they are others than before. */
static void
wait_for_sockets(Candidate *candidate)
{
	const EtcdSocket *sockets;
	int			nsockets;
	uint64_t	changes;

	sockets = etcd_client_sockets(candidate->client, &nsockets, &changes);
	if (changes == candidate->changes && candidate->fds != NULL)
		return;
	candidate->changes = changes;
	/* a descriptor that was closed meanwhile is out already, or is that of another candidate */
	for (int i = 0; i < candidate->nfds; i++)
	{
		if (owners[candidate->fds[i]] == candidate)
		{
			(void) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, candidate->fds[i], NULL);
			owners[candidate->fds[i]] = NULL;
		}
	}
	candidate->fds = realloc(candidate->fds, (nsockets + 1) * sizeof(int));
	candidate->nfds = nsockets;
	for (int i = 0; i < nsockets; i++)
	{
		int			fd = sockets[i].fd;
		struct epoll_event event = {
			.events = (sockets[i].events & ETCD_SOCKET_READABLE ? EPOLLIN : 0) |
			(sockets[i].events & ETCD_SOCKET_WRITEABLE ? EPOLLOUT : 0),
			.data.fd = fd
		};

		if (fd >= MAX_DESCRIPTORS)
			abort();
		candidate->fds[i] = fd;
		if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
			(void) epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event);
		owners[fd] = candidate;
	}
}

/* Does what is due, and notes when it has to be looked at again. */
static void
serve(Candidate *candidate)
{
	long		left_ms;

	if (election_wakeup_ns(candidate->core) <= now_ns())
		election_tick(candidate->core, now_ns());
	etcd_client_process(candidate->client);
	candidate->due_ns = election_wakeup_ns(candidate->core);
	left_ms = etcd_client_timeout_ms(candidate->client);
	if (left_ms >= 0 && now_ns() + left_ms * INT64_C(1000000) < candidate->due_ns)
		candidate->due_ns = now_ns() + left_ms * INT64_C(1000000);
	wait_for_sockets(candidate);
}

/* One leader resigns in one election, or all leaders in all. */
static void
resign(Candidate *candidates, const Fleet *fleet, bool all)
{
	for (int i = 0; i < fleet->number; i++)
	{
		for (int slot = 0; slot < candidates[i].config->nelections; slot++)
		{
			if ((candidates[i].leads & UINT32_C(1) << slot) == 0)
				continue;
			(void) election_resign(candidates[i].core, now_ns(), slot, true, 0, 1);
			candidates[i].due_ns = 0;
			if (!all)
				return;
		}
	}
}

/* Waits for events until then at most. */
static void
run(Candidate *candidates, const Fleet *fleet, int64_t until_ns)
{
	struct epoll_event events[256];
	int64_t		began_ns = now_ns();
	int64_t		first_ns = until_ns;
	int64_t		left_ms;
	int			nevents;

	for (int i = 0; i < fleet->number; i++)
	{
		if (candidates[i].due_ns <= began_ns)
			serve(&candidates[i]);
		if (candidates[i].due_ns < first_ns)
			first_ns = candidates[i].due_ns;
	}
	left_ms = first_ns <= now_ns() ? 0 : (first_ns - now_ns()) / 1000000 + 1;
	/* a signal comes while it waits, and not just before */
	nevents = epoll_pwait(epoll_fd, events, 256, left_ms > 1000 ? 1000 : (int) left_ms, &no_signals);
	for (int i = 0; i < nevents; i++)
	{
		Candidate  *candidate = owners[events[i].data.fd];

		if (candidate == NULL)
			continue;
		etcd_client_socket_ready(candidate->client, events[i].data.fd,
								 (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? ETCD_SOCKET_READABLE : 0) |
								 (events[i].events & EPOLLOUT ? ETCD_SOCKET_WRITEABLE : 0));
		serve(candidate);
	}
}

int
main(int argc, char **argv)
{
	Fleet		fleet = {.election = argv[2], .name = argv[3], .ttl_s = atoi(argv[4]), .number = atoi(argv[5]), .nclusters = 1, .dialect = ETCD_GRPC};
	Candidate  *candidates = calloc(fleet.number, sizeof(Candidate));
	sigset_t	signals;
	int64_t		began_ns = now_ns();

	for (char *url = strtok(argv[1], ","); url != NULL && fleet.nendpoints < ELECTION_MAX_ENDPOINTS; url = strtok(NULL, ","))
		fleet.endpoints[fleet.nendpoints++] = url;
	if (strcmp(argv[argc - 1], "json") == 0)
	{
		fleet.dialect = ETCD_JSON;
		argc--;
	}
	if (argc > 6)
		fleet.nelections = atoi(argv[6]);
	if (argc > 8)
	{
		fleet.nclusters = atoi(argv[7]);
		fleet.start_ms = atoi(argv[8]);
	}

	setvbuf(stdout, NULL, _IOLBF, 0);
	srandom(time(NULL) ^ getpid());
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR1, handle_signal);
	signal(SIGUSR2, handle_signal);
	sigemptyset(&no_signals);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGUSR2);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < fleet.number; i++)
	{
		int64_t		next_ns = began_ns + fleet.start_ms * INT64_C(1000000) / fleet.number * (i + 1);

		start(&candidates[i], &fleet, i);
		/* what was started before goes on */
		do
			run(candidates, &(Fleet) {.number = i + 1}, next_ns);
		while (now_ns() < next_ns);
	}
	for (;;)
	{
		if (resigning != 0)
		{
			bool		all = resigning == SIGUSR2;

			resigning = 0;
			resign(candidates, &fleet, all);
		}
		run(candidates, &fleet, INT64_MAX);
	}
}
