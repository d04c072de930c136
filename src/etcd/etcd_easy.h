/*-------------------------------------------------------------------------
 *
 * etcd_easy.h
 *	  Where a handle of libcurl connects, and by which TLS.
 *
 * For etcd_http.c.  All of these return false if memory is out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_EASY_H
#define ETCD_EASY_H

#include <curl/curl.h>

#include "etcd_client_internal.h"

/*
 * Sets where the URL of an endpoint leads, with that path below it.  *connect_to,
 * which is NULL before, is to be freed after the handle has been used.
 */
extern bool etcd_easy_set_url(CURL *easy, const Settings *settings, const char *endpoint, const char *path,
							  struct curl_slist **connect_to);

extern bool etcd_easy_set_tls(CURL *easy, const Settings *settings);

/* Only the connection is made, and HTTP/2 offered over it. */
extern bool etcd_easy_connect_only(CURL *easy);

#endif							/* ETCD_EASY_H */
