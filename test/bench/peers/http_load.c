/*
 * Sends requests to a server on loopback all the time, and measures its answers.
 *
 *	 http_load PORT[,PORT] PATH CONNECTIONS SECONDS RATE REUSE
 *
 * CONNECTIONS: the number for all ports together, divided among them.
 * RATE: requests per second of all connections together; 0: as fast as they are
 * answered.  REUSE: 1: a connection is used again; 0: each request has its own.
 * It ends after SECONDS, or on SIGTERM.  Writes "requests per second, median and
 * 99th percentile in microseconds, failures".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 256
#define MAX_SAMPLES 4000000

typedef struct Client
{
	int			port;
	int			fd;				/* -1: none */
	bool		asked;			/* a request is under way */
	bool		sent;			/* false: the connection is not established yet */
	int64_t		began_ns;
	size_t		len;
	char		answer[65536];
} Client;

static Client clients[MAX_CONNECTIONS];
static volatile sig_atomic_t stopped = false;
static uint32_t samples_us[MAX_SAMPLES];
static int	nsamples = 0;
static int	failures = 0;

static int64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* Sends the request; false if that fails. */
static bool
ask(Client *client, const char *request)
{
	client->sent = send(client->fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t) strlen(request);
	return client->sent;
}

/*
 * Begins a request.  It does not wait for the connection.  A server that accepts
 * few at a time may need a second, and the other clients go on meanwhile.
 */
static bool
start(Client *client, const char *request)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(client->port)};
	int			on = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	client->began_ns = now_ns();
	client->len = 0;
	client->asked = true;
	client->sent = false;
	if (client->fd >= 0)
		return ask(client, request);
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(client->fd, (struct sockaddr *) &address, sizeof(address)) == 0)
		return ask(client, request);
	return errno == EINPROGRESS;
}

static void
end(Client *client, bool good, bool reuse)
{
	if (good && nsamples < MAX_SAMPLES)
		samples_us[nsamples++] = (uint32_t) ((now_ns() - client->began_ns) / 1000);
	else if (!good)
		failures++;
	client->asked = false;
	if (!good || !reuse)
	{
		close(client->fd);
		client->fd = -1;
	}
}

/*
 * Reads without waiting; true if the answer is complete.  *closed is set if the
 * connection has ended, or will end because of HTTP/1.0.
 */
static bool
receive(Client *client, bool *closed)
{
	ssize_t		n = recv(client->fd, client->answer + client->len, sizeof(client->answer) - 1 - client->len, 0);
	char	   *body;
	char	   *length;

	*closed = n == 0 || (n < 0 && errno != EAGAIN);
	if (n > 0)
		client->len += n;
	client->answer[client->len] = '\0';
	body = strstr(client->answer, "\r\n\r\n");
	if (body == NULL)
		return false;
	length = strcasestr(client->answer, "\r\nContent-Length:");
	if (length == NULL || length > body)
		return *closed;
	if (client->len < (size_t) (body + 4 - client->answer) + strtoul(length + 17, NULL, 10))
		return false;
	*closed = *closed || strncmp(client->answer, "HTTP/1.0", 8) == 0;
	return true;
}

static int
compare(const void *a, const void *b)
{
	return (*(const uint32_t *) a > *(const uint32_t *) b) - (*(const uint32_t *) a < *(const uint32_t *) b);
}

static void
stop(int signal)
{
	(void) signal;
	stopped = true;
}

int
main(int argc, char **argv)
{
	const char *second = strchr(argv[1], ',');
	int			ports[2] = {atoi(argv[1]), atoi(second ? second + 1 : argv[1])};
	int			connections = atoi(argv[3]);
	double		seconds = atof(argv[4]);
	double		rate = atof(argv[5]);
	bool		reuse = atoi(argv[6]);
	char		request[512];
	int64_t		began = now_ns();
	int64_t		until = began + (int64_t) (seconds * 1e9);
	int64_t		started = 0;

	snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", argv[2], reuse ? "" : "Connection: close\r\n");
	for (int i = 0; i < connections; i++)
	{
		clients[i].port = ports[i % 2];
		clients[i].fd = -1;
	}
	signal(SIGTERM, stop);
	while (!stopped && now_ns() < until)
	{
		struct pollfd fds[MAX_CONNECTIONS];

		for (int i = 0; i < connections; i++)
		{
			bool		due = rate == 0 || started < (now_ns() - began) * rate / 1e9;

			if (!clients[i].asked && due)
			{
				started++;
				if (!start(&clients[i], request))
					end(&clients[i], false, reuse);
			}
			fds[i] = (struct pollfd) {.fd = clients[i].asked ? clients[i].fd : -1, .events = clients[i].sent ? POLLIN : POLLOUT};
		}
		if (poll(fds, connections, 1) <= 0)
			continue;
		for (int i = 0; i < connections; i++)
		{
			bool		closed = false;

			if (fds[i].fd < 0 || fds[i].revents == 0)
				continue;
			if (!clients[i].sent)
			{
				if (!ask(&clients[i], request))
					end(&clients[i], false, reuse);
				continue;
			}
			if (receive(&clients[i], &closed))
				end(&clients[i], true, reuse && !closed);
			else if (closed)
				end(&clients[i], false, reuse);
		}
	}
	seconds = (now_ns() - began) / 1e9;
	qsort(samples_us, nsamples, sizeof(uint32_t), compare);
	printf("%.0f %u %u %d\n", nsamples / seconds, nsamples ? samples_us[nsamples / 2] : 0,
		   nsamples ? samples_us[(int) (nsamples * 0.99)] : 0, failures);
	return 0;
}
