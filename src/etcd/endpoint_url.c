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

#include "endpoint_url.h"
#include "url.h"

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
		(etcd_split_url(url, &parts) && (has_scheme(endpoint) || parts.has_port));
}

bool
endpoint_has_path(const char *endpoint)
{
	char	   *bare = pstrdup(endpoint);
	char	   *scheme = strstr(bare, "://");
	char	   *path = strchr(scheme != NULL ? scheme + 3 : bare, '/');

	if (path == NULL || strpbrk(path, "?#") != NULL)
		return false;
	*path = '\0';
	return endpoint_is_valid(bare) && !endpoint_is_valid(endpoint);
}

bool
endpoint_is_same(const char *a, const char *b)
{
	return etcd_is_same_url(endpoint_url(a), endpoint_url(b));
}

bool
endpoint_is_open(const char *url)
{
	EtcdUrl		parts;

	return !is_socket_url(url) && etcd_split_url(url, &parts) && !parts.tls &&
		!etcd_is_loopback(&parts);
}
