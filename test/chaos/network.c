/*-------------------------------------------------------------------------
 *
 * network.c
 *	  The network between the hosts of a chaos run.  It forwards packets, and
 *	  loses and delays them by rules.
 *
 * usage: network SEED INTERFACE=ADDRESS ...
 *
 * Each host has a pair of virtual interfaces.  The host uses one; this program
 * reads and writes raw frames on the other.  It delivers a frame to the host
 * with its IPv4 destination address, and ARP to all hosts.  The kernel leaves
 * checksums and segmentation to the interface.  So each frame has a header of
 * the kernel about these (PACKET_VNET_HDR).
 *
 * Standard input has orders, a line each:
 *	  set ID FROM TO PORT LOSS DELAY JITTER		begins a rule
 *	  del ID									ends it
 * FROM and TO are addresses, * is any.  PORT is a TCP port at either end, 0 is
 * any.  LOSS is in a thousand, DELAY and JITTER in microseconds.  All rules that
 * a packet matches apply to it.  Packets of one direction do not overtake each
 * other.  Each order is answered with "ok".
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_HOSTS 32
#define MAX_RULES 256
#define MAX_FRAME (sizeof(struct virtio_net_hdr) + 65536 + 64)
#define MAX_QUEUED 20000		/* frames under way; more are lost */

typedef struct Host
{
	int			socket;
	in_addr_t	address;
} Host;

typedef struct Rule
{
	int			id;				/* 0: the place is free */
	in_addr_t	from;			/* INADDR_ANY: any */
	in_addr_t	to;
	int			port;
	int			loss;
	int64_t		delay_us;
	int64_t		jitter_us;
} Rule;

/* A frame under way; those of one direction form a list, oldest first. */
typedef struct Frame
{
	struct Frame *next;
	int64_t		due_us;
	size_t		len;
	unsigned char data[];
} Frame;

typedef struct Direction
{
	Frame	   *first;
	Frame	   *last;
} Direction;

static Host hosts[MAX_HOSTS];
static int	num_hosts;
static Rule rules[MAX_RULES];
static Direction directions[MAX_HOSTS][MAX_HOSTS];
static int	num_queued;
static uint64_t random_state;

static void
fail(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000;
}

/* splitmix64 */
static uint64_t
draw(uint64_t below)
{
	uint64_t	z = (random_state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % below;
}

static void
add_host(char *argument)
{
	char	   *address = strchr(argument, '=');
	Host	   *host = &hosts[num_hosts++];
	struct sockaddr_ll name = {.sll_family = AF_PACKET,.sll_protocol = htons(ETH_P_ALL)};
	int			on = 1;
	int			size = 4 * 1024 * 1024;

	if (address == NULL || num_hosts > MAX_HOSTS)
		fail("arguments");
	*address++ = '\0';
	host->address = inet_addr(address);
	host->socket = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);
	name.sll_ifindex = if_nametoindex(argument);
	if (host->socket < 0 || name.sll_ifindex == 0 ||
		setsockopt(host->socket, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
		setsockopt(host->socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
		bind(host->socket, (struct sockaddr *) &name, sizeof(name)) != 0)
		fail(argument);
	setsockopt(host->socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static in_addr_t
parse_address(const char *text)
{
	return strcmp(text, "*") == 0 ? INADDR_ANY : inet_addr(text);
}

/* One line of standard input. */
static void
obey(const char *line)
{
	Rule		rule = {0};
	char		from[32];
	char		to[32];
	int			old;

	if (sscanf(line, "set %d %31s %31s %d %d %ld %ld", &rule.id, from, to, &rule.port, &rule.loss,
			   &rule.delay_us, &rule.jitter_us) == 7)
	{
		rule.from = parse_address(from);
		rule.to = parse_address(to);
		old = 0;
	}
	else if (sscanf(line, "del %d", &old) != 1)
	{
		fprintf(stderr, "what is \"%s\"?\n", line);
		exit(1);
	}
	for (int i = 0; i < MAX_RULES; i++)
	{
		if (rules[i].id == old)
		{
			rules[i] = rule;
			break;
		}
	}
	printf("ok\n");
	fflush(stdout);
}

/* Orders may arrive in pieces.  The end of input ends the network. */
static void
read_orders(void)
{
	static char buffer[4096];
	static size_t len;
	ssize_t		n = read(STDIN_FILENO, buffer + len, sizeof(buffer) - 1 - len);
	char	   *end;

	if (n <= 0)
		exit(0);
	len += n;
	buffer[len] = '\0';
	while ((end = strchr(buffer, '\n')) != NULL)
	{
		*end++ = '\0';
		obey(buffer);
		len -= end - buffer;
		memmove(buffer, end, len + 1);
	}
}

static void
deliver(int to, const unsigned char *data, size_t len)
{
	/* a full queue of the interface loses the frame, as in a real network */
	if (write(hosts[to].socket, data, len) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENETDOWN &&
		errno != EINVAL && errno != EMSGSIZE)
		fail("write");
}

/* Does a rule match an IPv4 packet? */
static int
matches(const Rule *rule, const struct iphdr *ip, const uint16_t *ports)
{
	return rule->id != 0 &&
		(rule->from == INADDR_ANY || rule->from == ip->saddr) &&
		(rule->to == INADDR_ANY || rule->to == ip->daddr) &&
		(rule->port == 0 || ntohs(ports[0]) == rule->port || ntohs(ports[1]) == rule->port);
}

/* Applies the rules to a frame, and forwards it. */
static void
forward(int from, const unsigned char *data, size_t len)
{
	const struct ether_header *ether = (const struct ether_header *) (data + sizeof(struct virtio_net_hdr));
	const struct iphdr *ip = (const struct iphdr *) (ether + 1);
	const uint16_t *ports;
	int64_t		delay_us = 0;
	int			to = 0;
	Direction  *direction;
	Frame	   *frame;

	if (len < sizeof(struct virtio_net_hdr) + sizeof(*ether))
		return;
	if (ntohs(ether->ether_type) == ETHERTYPE_ARP)
	{
		for (int i = 0; i < num_hosts; i++)
		{
			if (i != from)
				deliver(i, data, len);
		}
		return;
	}
	if (ntohs(ether->ether_type) != ETHERTYPE_IP ||
		len < sizeof(struct virtio_net_hdr) + sizeof(*ether) + ip->ihl * 4 + 4)
		return;
	while (to < num_hosts && hosts[to].address != ip->daddr)
		to++;
	if (to == num_hosts)
		return;
	ports = (const uint16_t *) ((const unsigned char *) ip + ip->ihl * 4);
	for (int i = 0; i < MAX_RULES; i++)
	{
		if (!matches(&rules[i], ip, ports))
			continue;
		if (rules[i].loss > 0 && draw(1000) < (uint64_t) rules[i].loss)
			return;
		delay_us += rules[i].delay_us;
		if (rules[i].jitter_us > 0)
			delay_us += draw(rules[i].jitter_us);
	}
	direction = &directions[from][to];
	if (delay_us == 0 && direction->first == NULL)
	{
		deliver(to, data, len);
		return;
	}
	if (num_queued >= MAX_QUEUED || (frame = malloc(sizeof(Frame) + len)) == NULL)
		return;
	frame->next = NULL;
	frame->due_us = now_us() + delay_us;
	frame->len = len;
	memcpy(frame->data, data, len);
	if (direction->first == NULL)
		direction->first = frame;
	else
		direction->last->next = frame;
	direction->last = frame;
	num_queued++;
}

/* Delivers the frames that are due; returns the milliseconds until the next, or -1. */
static int
deliver_due(void)
{
	int64_t		now = now_us();
	int64_t		next = INT64_MAX;

	if (num_queued == 0)
		return -1;
	for (int from = 0; from < num_hosts; from++)
	{
		for (int to = 0; to < num_hosts; to++)
		{
			Direction  *direction = &directions[from][to];
			Frame	   *frame;

			while ((frame = direction->first) != NULL && frame->due_us <= now)
			{
				direction->first = frame->next;
				deliver(to, frame->data, frame->len);
				free(frame);
				num_queued--;
			}
			if (frame != NULL && frame->due_us < next)
				next = frame->due_us;
		}
	}
	return next == INT64_MAX ? -1 : (int) ((next - now) / 1000) + 1;
}

int
main(int argc, char **argv)
{
	static unsigned char data[MAX_FRAME];
	struct pollfd fds[MAX_HOSTS + 1];

	if (argc < 2)
		fail("arguments");
	random_state = strtoull(argv[1], NULL, 10);
	for (int i = 2; i < argc; i++)
		add_host(argv[i]);
	fds[num_hosts] = (struct pollfd) {.fd = STDIN_FILENO,.events = POLLIN};
	for (int i = 0; i < num_hosts; i++)
		fds[i] = (struct pollfd) {.fd = hosts[i].socket,.events = POLLIN};
	printf("ok\n");
	fflush(stdout);
	for (;;)
	{
		if (poll(fds, num_hosts + 1, deliver_due()) < 0 && errno != EINTR)
			fail("poll");
		for (int i = 0; i < num_hosts; i++)
		{
			/* a limited number at a time, so that the other hosts get their turn */
			for (int n = 0; n < 64 && fds[i].revents != 0; n++)
			{
				ssize_t		len = read(hosts[i].socket, data, sizeof(data));

				if (len <= 0)
					break;
				forward(i, data, len);
			}
		}
		if (fds[num_hosts].revents != 0)
			read_orders();
	}
}
