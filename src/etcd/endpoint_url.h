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
 * Is it a URL of a host with http or https and nothing behind the path, a host
 * and a port, or a URL of a Unix socket?
 */
extern bool endpoint_is_valid(const char *endpoint);

/* The URL of an endpoint, palloc'd; a host and a port become one. */
extern char *endpoint_url(const char *endpoint);

/* Does a URL lead to another host, without TLS? */
extern bool endpoint_is_open(const char *url);

#endif							/* ENDPOINT_URL_H */
