/*-------------------------------------------------------------------------
 *
 * etcd_url.c
 *	  The parts of an endpoint's URL.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "etcd_url.h"

#define ALPHANUMERIC	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#define NAME_CHARS		ALPHANUMERIC "-_."

/* Is it an IPv6 address?  A zone may follow it: fe80::1%25eth0. */
static bool
is_ip6(const char *text, size_t len)
{
	char		address[INET6_ADDRSTRLEN];
	size_t		address_len = strcspn(text, "%]");
	struct in6_addr ip6;

	if (address_len >= sizeof(address) || len - address_len == 1 ||
		strspn(text + address_len, NAME_CHARS "%") != len - address_len)
		return false;
	memcpy(address, text, address_len);
	address[address_len] = '\0';
	return inet_pton(AF_INET6, address, &ip6) == 1;
}

/* The length of the host at the beginning of a text; 0: there is none. */
static size_t
host_length(const char *text)
{
	size_t		len;

	if (text[0] != '[')
		return strspn(text, NAME_CHARS);
	len = strcspn(text + 1, "]");
	return is_ip6(text + 1, len) && text[len + 1] == ']' ? len + 2 : 0;
}

/* Reads the port, if there is one, and returns what follows; NULL: it is none. */
static const char *
read_port(const char *text, EtcdUrl *url)
{
	size_t		len;

	url->has_port = text[0] == ':';
	url->port = url->tls ? 443 : 80;
	if (!url->has_port)
		return text;
	len = strspn(text + 1, "0123456789");
	if (len < 1 || len > 5)
		return NULL;
	url->port = atoi(text + 1);
	return url->port > 0 && url->port <= 65535 ? text + 1 + len : NULL;
}

bool
etcd_split_url(const char *text, EtcdUrl *url)
{
	const char *host;
	size_t		len;

	url->tls = strncasecmp(text, "https://", 8) == 0;
	if (!url->tls && strncasecmp(text, "http://", 7) != 0)
		return false;
	host = strstr(text, "://") + 3;
	len = host_length(host);
	if (len == 0 || len > ETCD_MAX_HOST_LEN)
		return false;
	memcpy(url->host, host, len);
	url->host[len] = '\0';
	url->path = read_port(host + len, url);
	return url->path != NULL && (url->path[0] == '\0' || url->path[0] == '/') &&
		strpbrk(url->path, "?#") == NULL;
}

/* The length of a path without the slash at its end. */
static size_t
path_length(const char *path)
{
	size_t		len = strlen(path);

	return len > 0 && path[len - 1] == '/' ? len - 1 : len;
}

bool
etcd_is_same_url(const char *a, const char *b)
{
	EtcdUrl		x;
	EtcdUrl		y;

	if (!etcd_split_url(a, &x) || !etcd_split_url(b, &y))
		return strcmp(a, b) == 0;
	return x.tls == y.tls && x.port == y.port && strcasecmp(x.host, y.host) == 0 &&
		path_length(x.path) == path_length(y.path) &&
		strncmp(x.path, y.path, path_length(x.path)) == 0;
}

bool
etcd_is_name(const char *host)
{
	struct in_addr ip4;

	return host[0] != '\0' && host[0] != '[' && inet_pton(AF_INET, host, &ip4) != 1;
}
