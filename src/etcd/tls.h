/*-------------------------------------------------------------------------
 *
 * tls.h
 *	  What is wrong with TLS, in words.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_TLS_H
#define ETCD_TLS_H

#include "curl.h"

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE what is wrong with TLS, or with a
 * certificate of either side.  The result is one of etcd_curl_classify().
 * False: it is not about TLS.
 */
extern bool etcd_tls_describe(char *message, CURL *easy, CURLcode result, const CurlTarget *target,
							  const char *url, const char *detail);

#endif							/* ETCD_TLS_H */
