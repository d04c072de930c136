/*-------------------------------------------------------------------------
 *
 * url.c
 *	  The parts of an endpoint's URL.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "url.h"

#define ALPHANUMERIC	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#define NAME_CHARS		ALPHANUMERIC "-_."

/*
 * Reads an IPv6 address of that length.  A zone may follow it: fe80::1%25eth0,
 * or with a bare percent sign.  False if it is none.
 */
static bool
read_ip6(const char *text, size_t len, EtcdUrl *url)
{
	char		address[INET6_ADDRSTRLEN];
	size_t		address_len = strcspn(text, "%]");
	const char *zone = text + address_len;
	size_t		zone_len = len - address_len;
	struct in6_addr ip6;

	if (address_len >= sizeof(address) || zone_len == 1 ||
		len > ETCD_MAX_HOST_LEN - INET6_ADDRSTRLEN ||
		strspn(zone, NAME_CHARS "%") != zone_len)
		return false;
	memcpy(address, text, address_len);
	address[address_len] = '\0';
	if (inet_pton(AF_INET6, address, &ip6) != 1)
		return false;
	if (zone_len == 0 && IN6_IS_ADDR_V4MAPPED(&ip6))
		return inet_ntop(AF_INET, &ip6.s6_addr[12], url->host, sizeof(url->host)) != NULL;
	inet_ntop(AF_INET6, &ip6, address, sizeof(address));
	if (zone_len > 3 && strncmp(zone, "%25", 3) == 0)
	{
		zone += 2;
		zone_len -= 2;
	}
	snprintf(url->host, sizeof(url->host), "[%s%s%.*s]", address, zone_len > 0 ? "%25" : "",
			 zone_len > 0 ? (int) zone_len - 1 : 0, zone + 1);
	return true;
}

/*
 * Reads the host at the beginning of a text, and returns what follows; NULL:
 * there is none.  The resolver takes 127.1 and 0x7f000001 for addresses, too.
 */
static const char *
read_host(const char *text, EtcdUrl *url)
{
	struct in_addr ip4;
	size_t		len;

	if (text[0] == '[')
	{
		len = strcspn(text + 1, "]");
		return text[len + 1] == ']' && read_ip6(text + 1, len, url) ? text + len + 2 : NULL;
	}
	len = strspn(text, NAME_CHARS);
	if (len == 0 || len > ETCD_MAX_HOST_LEN)
		return NULL;
	memcpy(url->host, text, len);
	url->host[len] = '\0';
	if (inet_aton(url->host, &ip4) != 0)
		inet_ntop(AF_INET, &ip4, url->host, sizeof(url->host));
	return text + len;
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
	const char *rest;

	url->tls = strncasecmp(text, "https://", 8) == 0;
	if (!url->tls && strncasecmp(text, "http://", 7) != 0)
		return false;
	rest = read_host(strstr(text, "://") + 3, url);
	if (rest != NULL)
		rest = read_port(rest, url);
	return rest != NULL && (rest[0] == '\0' || strcmp(rest, "/") == 0);
}

bool
etcd_is_same_url(const char *a, const char *b)
{
	EtcdUrl		x;
	EtcdUrl		y;

	if (!etcd_split_url(a, &x) || !etcd_split_url(b, &y))
		return strcmp(a, b) == 0;
	return x.tls == y.tls && x.port == y.port &&
		etcd_bare_length(x.host) == etcd_bare_length(y.host) &&
		strncasecmp(x.host, y.host, etcd_bare_length(x.host)) == 0;
}

bool
etcd_is_loopback(const EtcdUrl *url)
{
	return (etcd_bare_length(url->host) == 9 && strncasecmp(url->host, "localhost", 9) == 0) ||
		strcmp(url->host, "[::1]") == 0 ||
		(strncmp(url->host, "127.", 4) == 0 && !etcd_is_name(url->host));
}

int
etcd_bare_length(const char *host)
{
	size_t		len = strlen(host);

	return (int) (len > 0 && host[len - 1] == '.' ? len - 1 : len);
}

void
etcd_format_authority(const EtcdUrl *url, const char *server_name, char *authority)
{
	const char *host = server_name != NULL ? server_name : url->host;
	int			len = etcd_bare_length(host);

	if (len > ETCD_MAX_HOST_LEN)
		len = ETCD_MAX_HOST_LEN;
	if (url->port == (url->tls ? 443 : 80))
		snprintf(authority, ETCD_AUTHORITY_SIZE, "%.*s", len, host);
	else
		snprintf(authority, ETCD_AUTHORITY_SIZE, "%.*s:%d", len, host, url->port);
}

bool
etcd_is_name(const char *host)
{
	struct in_addr ip4;

	return host[0] != '\0' && host[0] != '[' && inet_pton(AF_INET, host, &ip4) != 1;
}
