/*-------------------------------------------------------------------------
 *
 * listeners.c
 *	  The sockets at which the HTTP server listens.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "utils/guc.h"
#include "utils/varlena.h"

#include "http.h"

/* Connections that wait to be accepted. */
#define BACKLOG		512

/* An address that is in use for so long is reported. */
#define PATIENCE_MS	500

/*
 * The socket address of "host:port", which the settings have checked.  "*" is
 * every address, of both families where the system has both.
 */
static socklen_t
parse_address(const char *address, bool has_ip6, struct sockaddr_storage *result)
{
	struct sockaddr_in *ip4 = (struct sockaddr_in *) result;
	struct sockaddr_in6 *ip6 = (struct sockaddr_in6 *) result;
	const char *colon = strrchr(address, ':');
	in_port_t	port = htons((uint16) atoi(colon + 1));
	char	   *host = pnstrdup(address, colon - address);

	memset(result, 0, sizeof(*result));
	if (host[0] == '[' || (strcmp(host, "*") == 0 && has_ip6))
	{
		ip6->sin6_family = AF_INET6;
		ip6->sin6_port = port;
		ip6->sin6_addr = in6addr_any;
		if (host[0] == '[')
		{
			host[strlen(host) - 1] = '\0';
			(void) inet_pton(AF_INET6, host + 1, &ip6->sin6_addr);
		}
		pfree(host);
		return sizeof(*ip6);
	}
	ip4->sin_family = AF_INET;
	ip4->sin_port = port;
	if (strcmp(host, "*") == 0)
		ip4->sin_addr.s_addr = htonl(INADDR_ANY);
	else if (strcmp(host, "localhost") == 0)
		ip4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		(void) inet_pton(AF_INET, host, &ip4->sin_addr);
	pfree(host);
	return sizeof(*ip4);
}

/* -1 with errno if it cannot be opened. */
static int
open_socket(const char *address)
{
	struct sockaddr_storage addr;
	socklen_t	len;
	int			on = 1;
	int			save_errno;

	/* as for PostgreSQL's own sockets, IPv6 alone: IPv4 may have its own */
	int			ip6_only = address[0] != '*';
	int			fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool		has_ip6 = fd >= 0;

	len = parse_address(address, has_ip6, &addr);
	if (addr.ss_family == AF_INET)
	{
		if (has_ip6)
			close(fd);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	}
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		(addr.ss_family == AF_INET ||
		 setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &ip6_only, sizeof(ip6_only)) == 0) &&
		bind(fd, (struct sockaddr *) &addr, len) == 0 && listen(fd, BACKLOG) == 0)
		return fd;

	save_errno = errno;
	close(fd);
	errno = save_errno;
	return -1;
}

static const HttpListener *
find_listener(const HttpConfig *config, const HttpListener *wanted)
{
	for (int i = 0; i < config->nlisteners; i++)
	{
		if (strcmp(config->listeners[i].address, wanted->address) == 0 &&
			config->listeners[i].is_agent == wanted->is_agent)
			return &config->listeners[i];
	}
	return NULL;
}

/*
 * An address that is in use is not reported at first.  The previous server may
 * still use it, as a part of another address.
 */
static void
open_listener(HttpListener *listener)
{
	listener->fd = open_socket(listener->address);
	if (listener->fd >= 0)
	{
		ereport(LOG,
				(errmsg(listener->is_agent ? "listening at \"%s\" for agent checks" :
						"listening at \"%s\" for HTTP", listener->address)));
		listener->failed_ms = 0;
		listener->reported = false;
		return;
	}
	if (listener->failed_ms == 0)
		listener->failed_ms = http_clock_ms();
	if (!listener->reported &&
		(errno != EADDRINUSE || http_clock_ms() - listener->failed_ms >= PATIENCE_MS))
	{
		listener->reported = true;
		ereport(WARNING,
				(errcode_for_socket_access(),
				 errmsg("could not listen at \"%s\" (\"%s\"): %m", listener->address,
						listener->is_agent ? "etcd_leader.agent_listen" : "etcd_leader.http_listen"),
				 errdetail("This will be tried again until it succeeds.")));
	}
}

/* Adds the addresses of one setting. */
static void
add_listeners(const HttpConfig *old, HttpConfig *new, const char *setting, bool is_agent)
{
	char	   *raw = pstrdup(GetConfigOption(setting, false, false));
	List	   *addresses;
	ListCell   *cell;

	if (!SplitGUCList(raw, ',', &addresses))
		elog(ERROR, "invalid list in \"%s\"", setting);
	foreach(cell, addresses)
	{
		HttpListener *listener = &new->listeners[new->nlisteners++];
		const HttpListener *before;

		strlcpy(listener->address, lfirst(cell), sizeof(listener->address));
		listener->is_agent = is_agent;
		listener->fd = -1;
		before = find_listener(old, listener);
		if (before)
			*listener = *before;
	}
	list_free(addresses);
	pfree(raw);
}

/* Closes the listeners of `old` that are not wanted in `new`. */
static void
close_listeners(const HttpConfig *old, const HttpConfig *new)
{
	for (int i = 0; i < old->nlisteners; i++)
	{
		if (old->listeners[i].fd >= 0 && find_listener(new, &old->listeners[i]) == NULL)
			close(old->listeners[i].fd);
	}
}

void
http_open_listeners(const HttpConfig *old, HttpConfig *new)
{
	add_listeners(old, new, "etcd_leader.http_listen", false);
	add_listeners(old, new, "etcd_leader.agent_listen", true);

	/* a socket that the settings do not list any more may block a new one */
	close_listeners(old, new);
	for (int i = 0; i < new->nlisteners; i++)
	{
		if (new->listeners[i].fd < 0)
			open_listener(&new->listeners[i]);
	}
}
