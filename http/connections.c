/*-------------------------------------------------------------------------
 *
 * connections.c
 *	  The connections of HTTP clients, and how many there may be.
 *
 * A connection belongs to libmicrohttpd.  It is shut down here only, which
 * libmicrohttpd takes for the client's end, and closes it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netinet/in.h>

#include "http.h"

typedef struct Connection
{
	int			fd;
	uint64		address;		/* of the client; see address_key() */
	int64		since_ms;		/* it was there, or completed a request */
	bool		shut_down;
} Connection;

static Connection connections[CONNECTIONS_MAX];
static int	count = 0;

/*
 * The address of a client.  Of an IPv6 address only the network counts, since
 * a client can use its whole network.
 */
static uint64
address_key(const struct sockaddr_storage *address)
{
	const struct in6_addr *ip6 = &((const struct sockaddr_in6 *) address)->sin6_addr;
	uint64		key = 0;

	if (address->ss_family == AF_INET)
		memcpy(&key, &((const struct sockaddr_in *) address)->sin_addr, 4);
	else if (IN6_IS_ADDR_V4MAPPED(ip6))
		memcpy(&key, &ip6->s6_addr[12], 4);
	else
		memcpy(&key, ip6->s6_addr, 8);
	return key;
}

static void
shut_down(Connection *connection)
{
	(void) shutdown(connection->fd, SHUT_RDWR);
	connection->shut_down = true;
}

/*
 * The connection that has completed no request for the longest time, of those
 * that are not shut down; NULL: there is none.  *number: how many these are.
 * Only those of one address are looked at, unless that is NULL.
 */
static Connection *
find_oldest(const struct sockaddr_storage *address, int *number)
{
	Connection *oldest = NULL;

	*number = 0;
	for (int i = 0; i < count; i++)
	{
		Connection *connection = &connections[i];

		if (connection->shut_down || (address && connection->address != address_key(address)))
			continue;
		(*number)++;
		if (oldest == NULL || connection->since_ms < oldest->since_ms)
			oldest = connection;
	}
	return oldest;
}

bool
connections_make_room(const struct sockaddr_storage *address)
{
	int			of_address;
	Connection *oldest = find_oldest(address, &of_address);

	if (of_address < CONNECTIONS_PER_ADDRESS)
		return false;
	shut_down(oldest);
	return true;
}

bool
connections_make_any_room(void)
{
	int			number;
	Connection *oldest = find_oldest(NULL, &number);

	/* one that is shut down will be closed at once */
	if (oldest && number == count)
		shut_down(oldest);
	return count > 0;
}

static Connection *
find(int fd)
{
	for (int i = 0; i < count; i++)
	{
		if (connections[i].fd == fd)
			return &connections[i];
	}
	return NULL;
}

void
connections_add(int fd, const struct sockaddr_storage *address)
{
	/* libmicrohttpd does not report a connection that it could not accept */
	connections_remove(fd);
	Assert(count < CONNECTIONS_MAX);
	connections[count++] = (Connection) {
		.fd = fd, .address = address_key(address), .since_ms = http_clock_ms()
	};
}

void
connections_completed(int fd)
{
	Connection *connection = find(fd);

	if (connection)
		connection->since_ms = http_clock_ms();
}

void
connections_remove(int fd)
{
	Connection *connection = find(fd);

	if (connection)
		*connection = connections[--count];
}

int
connections_count(void)
{
	return count;
}

int
connections_expire(void)
{
	int64		now_ms = http_clock_ms();
	int64		next_ms = CONNECTIONS_TIMEOUT_MS;

	for (int i = 0; i < count; i++)
	{
		int64		left_ms = connections[i].since_ms + CONNECTIONS_TIMEOUT_MS - now_ms;

		if (connections[i].shut_down)
			continue;
		if (left_ms <= 0)
			shut_down(&connections[i]);
		else
			next_ms = Min(next_ms, left_ms);
	}
	return count == 0 ? -1 : (int) next_ms;
}
