/*-------------------------------------------------------------------------
 *
 * listeners.c
 *	  The sockets at which the HTTP server listens.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>
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
 * Opens a socket at "host:port", which the settings have checked: there is no
 * name to look up.  "*" is every address, of both families where the system has
 * both.  -1 with errno if it cannot be opened.
 */
static int
open_socket(const char *address)
{
	const char *colon = strrchr(address, ':');
	char	   *host = pnstrdup(address, colon - address);
	bool		is_any = strcmp(host, "*") == 0;
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
							 .ai_socktype = SOCK_STREAM};
	struct addrinfo *info;
	int			on = 1;
	int			ip6_only = !is_any; /* as for PostgreSQL's own sockets: IPv4 may have its own */
	int			fd;
	bool		is_open;
	int			save_errno;

	if (is_any)
		host = "::";
	else if (strcmp(host, "localhost") == 0)
		host = "127.0.0.1";
	else if (host[0] == '[')
		*strchr(++host, ']') = '\0';
	if (getaddrinfo(host, colon + 1, &hints, &info) != 0)
		elog(ERROR, "invalid address \"%s\"", address);

	fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	is_open = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		(info->ai_family == AF_INET ||
		 setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &ip6_only, sizeof(ip6_only)) == 0) &&
		bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
	save_errno = errno;
	if (fd >= 0 && !is_open)
		close(fd);
	freeaddrinfo(info);
	if (fd < 0 && is_any && save_errno == EAFNOSUPPORT)
		return open_socket(psprintf("0.0.0.0%s", colon));
	errno = save_errno;
	return is_open ? fd : -1;
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
						listener->is_agent ? "etcd_leader.http_agent_listen" :
						"etcd_leader.http_listen"),
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

void
http_open_listeners(const HttpConfig *old, HttpConfig *new)
{
	add_listeners(old, new, "etcd_leader.http_listen", false);
	add_listeners(old, new, "etcd_leader.http_agent_listen", true);

	/* a socket that the settings do not list any more may block a new one */
	for (int i = 0; i < old->nlisteners; i++)
	{
		if (old->listeners[i].fd >= 0 && find_listener(new, &old->listeners[i]) == NULL)
			close(old->listeners[i].fd);
	}
	for (int i = 0; i < new->nlisteners; i++)
	{
		if (new->listeners[i].fd < 0)
			open_listener(&new->listeners[i]);
	}
}
