/*-------------------------------------------------------------------------
 *
 * endpoint_url.c
 *	  What an endpoint of etcd may look like in the settings, and its URL.
 *
 * Check hooks, which run in the postmaster too, use this.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "endpoint_url.h"
#include "etcd_url.h"

/* Does an endpoint begin with a scheme?  If not, it is a host and a port. */
static bool
has_scheme(const char *endpoint)
{
	return strstr(endpoint, "://") != NULL;
}

char *
endpoint_url(const char *endpoint)
{
	return has_scheme(endpoint) ? pstrdup(endpoint) : psprintf("http://%s", endpoint);
}

/* unix:///path/of/socket, or with TLS unixs:///path/of/socket */
static bool
is_socket_url(const char *endpoint)
{
	return (strncmp(endpoint, "unix:///", 8) == 0 && endpoint[8] != '\0') ||
		(strncmp(endpoint, "unixs:///", 9) == 0 && endpoint[9] != '\0');
}

bool
endpoint_is_valid(const char *endpoint)
{
	const char *url = endpoint_url(endpoint);
	EtcdUrl		parts;

	return is_socket_url(url) ||
		(etcd_split_url(url, &parts) &&
		 (has_scheme(endpoint) || (parts.has_port && parts.path[0] == '\0')));
}

bool
endpoint_is_open(const char *url)
{
	EtcdUrl		parts;
	struct in_addr ip4;

	if (is_socket_url(url) || !etcd_split_url(url, &parts) || parts.tls)
		return false;
	if (pg_strcasecmp(parts.host, "localhost") == 0 || strcmp(parts.host, "[::1]") == 0)
		return false;
	return inet_pton(AF_INET, parts.host, &ip4) != 1 || ntohl(ip4.s_addr) >> 24 != IN_LOOPBACKNET;
}
