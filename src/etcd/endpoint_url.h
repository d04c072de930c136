/*-------------------------------------------------------------------------
 *
 * endpoint_url.h
 *	  What an endpoint of etcd may look like in the settings, and its URL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ENDPOINT_URL_H
#define ENDPOINT_URL_H

/*
 * Is it a URL of a host with http or https and without a path, a host and a
 * port, or a URL of a Unix socket?
 */
extern bool endpoint_is_valid(const char *endpoint);

/* Would it be valid without its path? */
extern bool endpoint_has_path(const char *endpoint);

/* Do two endpoints lead to the same server, by whatever spelling? */
extern bool endpoint_is_same(const char *a, const char *b);

/* The URL of an endpoint, palloc'd; a host and a port become one. */
extern char *endpoint_url(const char *endpoint);

/* Does a URL lead to another host, without TLS? */
extern bool endpoint_is_open(const char *url);

#endif							/* ENDPOINT_URL_H */
