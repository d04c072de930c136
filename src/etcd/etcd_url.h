/*-------------------------------------------------------------------------
 *
 * etcd_url.h
 *	  The parts of an endpoint's URL.
 *
 * libcurl has a parser of its own from 7.62 on only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_URL_H
#define ETCD_URL_H

#include <stdbool.h>

/* No DNS name is longer. */
#define ETCD_MAX_HOST_LEN		255

typedef struct EtcdUrl
{
	bool		tls;			/* https */
	char		host[ETCD_MAX_HOST_LEN + 1];	/* an IPv6 address in brackets */
	int			port;
	bool		has_port;		/* else it is that of the scheme */
	const char *path;			/* points into the URL: empty, or begins with a slash */
} EtcdUrl;

/*
 * Splits http://HOST[:PORT][/PATH], or the same with https.  The host is a
 * name, an IPv4 address or an IPv6 address in brackets.  False if it is
 * anything else, or if something follows the path.
 */
extern bool etcd_split_url(const char *text, EtcdUrl *url);

/* Do two URLs lead to the same server by the same path? */
extern bool etcd_is_same_url(const char *a, const char *b);

/* Is the host of a URL a name, which has to be resolved? */
extern bool etcd_is_name(const char *host);

#endif							/* ETCD_URL_H */
