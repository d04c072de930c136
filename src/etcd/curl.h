/*-------------------------------------------------------------------------
 *
 * curl.h
 *	  Where a handle of libcurl connects, and by which TLS.
 *
 * For http.c.  Those that return a bool are false if memory is out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CURL_H
#define ETCD_CURL_H

#include <curl/curl.h>

#include "settings.h"
#include "url.h"

/* Where a handle connects; all zero at the beginning. */
typedef struct CurlTarget
{
	bool		has_url;		/* else the endpoint's is none */
	char		host[ETCD_MAX_HOST_LEN + 1];	/* empty: it has a Unix socket */
	int			port;
	/* of the client, and their number when this was made */
	const Settings *settings;
	uint64_t	settings_number;
	struct curl_slist *connect_to;	/* NULL: to the host of the URL */
	int			socket_errno;	/* why there was no socket the last time; 0: there was */
} CurlTarget;

/*
 * Sets where the URL of an endpoint leads, and the path of a request.  With a
 * name of the server in the settings, that is who is asked there: in SNI, for
 * the certificate, and in the header.
 */
extern bool etcd_curl_set_url(CURL *easy, const Settings *settings, const char *endpoint,
							  const char *path, CurlTarget *target);

/*
 * Has libcurl connect to one address, IPv6 in brackets, in the place of the one
 * before.  It gets no list: some of its versions stay at the first (curl #11920).
 */
extern bool etcd_curl_set_address(CURL *easy, CurlTarget *target, const char *address);

/* Appends headers to a list, which the caller frees afterwards, and sets it. */
extern bool etcd_curl_set_headers(CURL *easy, const char *const *headers, int nheaders,
								  struct curl_slist **list);

/* The transfer is a POST.  receive(arg) gets the body of the answer. */
extern bool etcd_curl_set_post(CURL *easy, const char *body, size_t len,
							   curl_write_callback receive, void *arg);

/*
 * Sets what belongs to a handle: its owner, a buffer of CURL_ERROR_SIZE for libcurl's
 * message, and its target, which records why there is no socket.
 */
extern bool etcd_curl_set_records(CURL *easy, void *private, char *error, CurlTarget *target);

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE that no descriptor is left for a socket; false
 * if this is not the reason.
 */
extern bool etcd_curl_describe_socket(char *message, const char *url, const CurlTarget *target);

/* Frees what a target holds, after its handle has been used. */
extern void etcd_curl_free_target(CurlTarget *target);

/*
 * What holds for all handles.  connects: no connection is used that is open
 * already; is_stream: it may be silent for long.
 */
extern bool etcd_curl_set_options(CURL *easy, bool connects, bool is_stream);

extern bool etcd_curl_set_tls(CURL *easy, const Settings *settings);

/* Only the connection is made, and HTTP/2 offered over it. */
extern bool etcd_curl_connect_only(CURL *easy);

/*
 * What is known of the server's certificate, a line each.  NULL: the handle has made no
 * connection with TLS, or the certificate is not valid, whatever its names are.
 */
extern const struct curl_slist *etcd_curl_certificate(CURL *easy);

/*
 * A failure, where libcurl has several for one.  In TLS 1.3 a server refuses a
 * certificate after the connection is made.
 */
extern CURLcode etcd_curl_classify(CURLcode result, const char *detail);

#endif							/* ETCD_CURL_H */
