/*
 * Many candidates of ours in one process, without PostgreSQL.  They use
 * the protocol and the client of etcd of the extension.  Each candidate has
 * a client and a lease of its own.
 *
 *	 candidates ENDPOINT ELECTION NAME TTL NUMBER [json]
 *
 * Writes a line for each election.  On SIGUSR1 the leader resigns and enters
 * again.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/election.h"
#include "etcd/client.h"

typedef struct Candidate
{
	ElectionCore *core;
	EtcdClient *client;
	bool		leads;
} Candidate;

static volatile sig_atomic_t resign = 0;

static void
handle_signal(int signal)
{
	resign = 1;
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
	bool		led = candidate->leads;

	candidate->leads = view->deadline_ns != 0;
	if (candidate->leads && !led)
		printf("elected\n");
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
	election_receive(((Candidate *) ctx)->core, now_ns(), id, answer);
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
endpoints_changed(void *ctx)
{
}

static void
start(Candidate *candidate, const char *endpoint, const char *election, const char *name, int number, int ttl_s, EtcdDialect dialect)
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
	EtcdClientSettings settings = {
		.endpoints = &endpoint,
		.nendpoints = 1,
		.dialect = dialect,
		.request_timeout_ms = 5000,
		.connect_timeout_ms = 5000
	};
	ElectionConfig *config = calloc(1, sizeof(ElectionConfig));

	candidate->client = etcd_client_create(&callbacks);
	candidate->core = election_create(&port, 1);
	etcd_client_configure(candidate->client, &settings);
	snprintf(config->node_name, sizeof(config->node_name), "%s-%d", name, number);
	config->ttl_s = ttl_s;
	config->safety_margin_ms = -1;
	config->eligible = true;
	config->nendpoints = 1;
	config->nelections = 1;
	snprintf(config->elections[0], sizeof(config->elections[0]), "%s", election);
	election_configure(candidate->core, now_ns(), config);
	free(config);
}

int
main(int argc, char **argv)
{
	int			n = atoi(argv[5]);
	Candidate  *candidates = calloc(n, sizeof(Candidate));
	struct pollfd *fds = NULL;
	int		   *owners = NULL;
	int			capacity = 0;
	int			started = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	srandom(time(NULL));
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR1, handle_signal);
	for (;;)
	{
		long		timeout_ms = 1000;
		int			nfds = 0;

		/* they start one after the other, because a thousand at once would be another test */
		if (started < n)
		{
			start(&candidates[started], argv[1], argv[2], argv[3], started, atoi(argv[4]),
				  argc > 6 && strcmp(argv[6], "json") == 0 ? ETCD_JSON : ETCD_GRPC);
			started++;
			timeout_ms = 1;
		}
		for (int i = 0; i < started; i++)
		{
			Candidate  *candidate = &candidates[i];
			const EtcdSocket *sockets;
			int			nsockets;
			uint64_t	changes;
			int64_t		wakeup_ns;
			long		left_ms;

			if (resign && candidate->leads)
			{
				resign = 0;
				(void) election_resign(candidate->core, now_ns(), 0, true, 0, 1);
			}
			wakeup_ns = election_wakeup_ns(candidate->core);
			if (wakeup_ns <= now_ns())
			{
				election_tick(candidate->core, now_ns());
				wakeup_ns = election_wakeup_ns(candidate->core);
			}
			left_ms = etcd_client_timeout_ms(candidate->client);
			if (left_ms == 0)
			{
				etcd_client_process(candidate->client);
				left_ms = etcd_client_timeout_ms(candidate->client);
			}
			if (left_ms >= 0 && left_ms < timeout_ms)
				timeout_ms = left_ms;
			if (wakeup_ns != INT64_MAX && (wakeup_ns - now_ns()) / 1000000 + 1 < timeout_ms)
				timeout_ms = (wakeup_ns - now_ns()) / 1000000 + 1;
			sockets = etcd_client_sockets(candidate->client, &nsockets, &changes);
			while (nfds + nsockets > capacity)
			{
				capacity = capacity ? 2 * capacity : 64;
				fds = realloc(fds, capacity * sizeof(*fds));
				owners = realloc(owners, capacity * sizeof(*owners));
			}
			for (int s = 0; s < nsockets; s++)
			{
				owners[nfds] = i;
				fds[nfds].fd = sockets[s].fd;
				fds[nfds].events = (sockets[s].events & ETCD_SOCKET_READABLE ? POLLIN : 0) |
					(sockets[s].events & ETCD_SOCKET_WRITEABLE ? POLLOUT : 0);
				fds[nfds++].revents = 0;
			}
		}
		if (poll(fds, nfds, timeout_ms < 0 ? 0 : timeout_ms) <= 0)
			continue;
		for (int f = 0; f < nfds; f++)
		{
			if (fds[f].revents == 0)
				continue;
			etcd_client_socket_ready(candidates[owners[f]].client, fds[f].fd,
									 (fds[f].revents & (POLLIN | POLLHUP | POLLERR) ? ETCD_SOCKET_READABLE : 0) |
									 (fds[f].revents & POLLOUT ? ETCD_SOCKET_WRITEABLE : 0));
			etcd_client_process(candidates[owners[f]].client);
		}
	}
}
