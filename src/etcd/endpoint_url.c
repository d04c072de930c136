/*-------------------------------------------------------------------------
 *
 * endpoint_url.c
 *	  What an endpoint of etcd may look like in the settings, and its URL.
 *
 * Check hooks, which run in the postmaster too, use this: nothing of libcurl
 * but its URL parser, which needs no curl_global_init().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <curl/curl.h>

#include "endpoint_url.h"

/* Parts of the URL of a host, palloc'd. */
typedef struct HostUrl
{
	char	   *scheme;			/* "http" or "https" */
	char	   *host;			/* an IPv6 address in brackets */
	char	   *port;			/* NULL: not given */
} HostUrl;

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

/* A part of a URL, palloc'd; NULL if there is none. */
static char *
url_part(CURLU *url, CURLUPart what)
{
	char	   *part = NULL;
	char	   *copy;

	if (curl_url_get(url, what, &part, 0) != CURLUE_OK)
		return NULL;
	copy = pstrdup(part);
	curl_free(part);
	return copy;
}

/*
 * Splits the URL of a host; false if it is none, or has anything behind the
 * path.  This uses libcurl's parser, since libcurl has to understand the URL
 * later.
 */
static bool
split_host_url(const char *endpoint, HostUrl *parts)
{
	CURLU	   *url = curl_url();
	bool		valid = url != NULL && curl_url_set(url, CURLUPART_URL, endpoint, 0) == CURLUE_OK;

	if (valid)
	{
		parts->scheme = url_part(url, CURLUPART_SCHEME);
		parts->host = url_part(url, CURLUPART_HOST);
		parts->port = url_part(url, CURLUPART_PORT);
		valid = parts->scheme != NULL &&
			(strcmp(parts->scheme, "http") == 0 || strcmp(parts->scheme, "https") == 0) &&
			parts->host != NULL && parts->host[0] != '\0' &&
			strpbrk(endpoint, "?#") == NULL;
	}
	curl_url_cleanup(url);
	return valid;
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
	HostUrl		parts;

	return is_socket_url(url) ||
		(split_host_url(url, &parts) &&
		 (has_scheme(endpoint) || (parts.port != NULL && strchr(endpoint, '/') == NULL)));
}

bool
endpoint_is_open(const char *url)
{
	HostUrl		parts;
	struct in_addr ip4;

	if (is_socket_url(url) || !split_host_url(url, &parts) || strcmp(parts.scheme, "http") != 0)
		return false;
	if (pg_strcasecmp(parts.host, "localhost") == 0 || strcmp(parts.host, "[::1]") == 0)
		return false;
	return inet_pton(AF_INET, parts.host, &ip4) != 1 || ntohl(ip4.s_addr) >> 24 != IN_LOOPBACKNET;
}
