/*-------------------------------------------------------------------------
 *
 * url.h
 *	  The parts of an endpoint's URL.
 *
 * Not by libcurl's parser: its versions differ about IPv4 addresses and dots at
 * the end of a name, and check hooks use this in the postmaster.
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
	bool		has_port;		/* else the scheme's port is used */
} EtcdUrl;

/*
 * Splits http://HOST[:PORT][/], or the same with https.  The host is a name, an
 * IPv4 address or an IPv6 address in brackets.  An address has one spelling in
 * url->host, whatever it has in the text.  False if the text is anything else.
 *
 * A path is refused.  gRPC has no place for it, so etcd's own clients drop it,
 * and members do not announce one.  Behind a proxy that looks at paths, gRPC
 * and JSON would reach two etcds by one URL.
 */
extern bool etcd_split_url(const char *text, EtcdUrl *url);

/* Do two URLs lead to the same server? */
extern bool etcd_is_same_url(const char *a, const char *b);

/* Is it the loopback of this host? */
extern bool etcd_is_loopback(const EtcdUrl *url);

/*
 * The length of a host without the dot at the end of an absolute name: versions
 * of libcurl differ about it, and no certificate has it.
 */
extern int	etcd_bare_length(const char *host);

/*
 * The authority of HTTP, in a buffer of ETCD_AUTHORITY_SIZE: the host, or that
 * name in its place if it is not NULL, and the port unless it is the scheme's.
 */
#define ETCD_AUTHORITY_SIZE		(ETCD_MAX_HOST_LEN + 8)

extern void etcd_format_authority(const EtcdUrl *url, const char *server_name, char *authority);

/* Is the host of a URL a name, which has to be resolved? */
extern bool etcd_is_name(const char *host);

#endif							/* ETCD_URL_H */
