/*-------------------------------------------------------------------------
 *
 * curl.c
 *	  Where a handle of libcurl connects, and by which TLS.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <openssl/ssl.h>

#include "curl.h"
#include "url.h"

/* A peer that has vanished is noticed after idle + 9 probes, by default. */
#define STREAM_KEEPALIVE_IDLE_S		10L
#define STREAM_KEEPALIVE_INTERVAL_S	3L

#define SET_OPTION(option, value) \
	do { \
		if (curl_easy_setopt(easy, option, value) != CURLE_OK) \
			return false; \
	} while (0)

/* A URL of libcurl's is the server of an endpoint, and the path of a request. */
#define MAX_URL_SIZE	(2 * ETCD_MAX_HOST_LEN + 256)

/*
 * The URL of a Unix socket names the socket alone.  A text that is no URL sets
 * nothing.
 */
bool
etcd_curl_set_url(CURL *easy, const Settings *settings, const char *endpoint, const char *path,
				  CurlTarget *target)
{
	const char *unix_scheme = "unix://";
	const char *unixs_scheme = "unixs://";
	bool		is_unix = strncmp(endpoint, "unix", 4) == 0;
	const char *server;
	char		whole[MAX_URL_SIZE];
	EtcdUrl		url;

	target->settings = settings;
	target->settings_number = settings->number;
	if (strncmp(endpoint, unix_scheme, strlen(unix_scheme)) == 0)
	{
		SET_OPTION(CURLOPT_UNIX_SOCKET_PATH, endpoint + strlen(unix_scheme));
		endpoint = "http://localhost";
	}
	else if (strncmp(endpoint, unixs_scheme, strlen(unixs_scheme)) == 0)
	{
		SET_OPTION(CURLOPT_UNIX_SOCKET_PATH, endpoint + strlen(unixs_scheme));
		endpoint = "https://localhost";
	}
	if (!etcd_split_url(endpoint, &url))
		return true;
	if (!is_unix)
		strcpy(target->host, url.host);
	target->port = url.port;

	server = settings->server_name != NULL ? settings->server_name : url.host;
	snprintf(whole, sizeof(whole), "%s://%.*s:%d%s", url.tls ? "https" : "http",
			 etcd_bare_length(server), server, url.port, path);
	SET_OPTION(CURLOPT_URL, whole);
	target->has_url = true;
	/* a name is connected to by the address that it has */
	return settings->server_name == NULL || target->host[0] == '\0' || etcd_is_name(target->host) ||
		etcd_curl_set_address(easy, target, target->host);
}

bool
etcd_curl_set_address(CURL *easy, CurlTarget *target, const char *address)
{
	char		text[ETCD_MAX_HOST_LEN + 32];

	snprintf(text, sizeof(text), "::%s:%d", address, target->port);
	curl_slist_free_all(target->connect_to);
	target->connect_to = curl_slist_append(NULL, text);
	SET_OPTION(CURLOPT_CONNECT_TO, target->connect_to);
	return target->connect_to != NULL;
}

bool
etcd_curl_set_headers(CURL *easy, const char *const *headers, int nheaders,
					  struct curl_slist **list)
{
	for (int i = 0; i < nheaders; i++)
	{
		struct curl_slist *longer = curl_slist_append(*list, headers[i]);

		if (longer == NULL)
			return false;
		*list = longer;
	}
	SET_OPTION(CURLOPT_HTTPHEADER, *list);
	return true;
}

bool
etcd_curl_set_post(CURL *easy, const char *body, size_t len, curl_write_callback receive, void *arg)
{
	SET_OPTION(CURLOPT_POST, 1L);
	SET_OPTION(CURLOPT_POSTFIELDS, body);
	SET_OPTION(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) len);
	SET_OPTION(CURLOPT_WRITEFUNCTION, receive);
	SET_OPTION(CURLOPT_WRITEDATA, arg);
	SET_OPTION(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	return true;
}

/* As libcurl would open one; but libcurl forgets the error. */
static curl_socket_t
open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	CurlTarget *target = arg;
	int			fd = socket(address->family, address->socktype, address->protocol);

	(void) purpose;
	target->socket_errno = fd < 0 ? errno : 0;
	if (fd < 0)
		return CURL_SOCKET_BAD;
	(void) fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

bool
etcd_curl_set_records(CURL *easy, void *private, char *error, CurlTarget *target)
{
	SET_OPTION(CURLOPT_PRIVATE, private);
	SET_OPTION(CURLOPT_ERRORBUFFER, error);
	SET_OPTION(CURLOPT_OPENSOCKETFUNCTION, open_socket);
	SET_OPTION(CURLOPT_OPENSOCKETDATA, target);
	return true;
}

bool
etcd_curl_describe_socket(char *message, const char *url, const CurlTarget *target)
{
	struct rlimit limit;
	const char *why = strerror(target->socket_errno);

	if (target->socket_errno == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
		etcd_format_message(message, "could not connect to etcd at \"%s\": this process may open "
									 "no more files than %llu (%s)",
							url, (unsigned long long) limit.rlim_cur, why);
	else if (target->socket_errno == ENFILE)
		etcd_format_message(message, "could not connect to etcd at \"%s\": this host may open no "
									 "more files (%s)", url, why);
	else
		return false;
	return true;
}

void
etcd_curl_free_target(CurlTarget *target)
{
	curl_slist_free_all(target->connect_to);
}

bool
etcd_curl_set_tls(CURL *easy, const Settings *settings)
{
	/* the first two are libcurl's defaults, which nothing may depend on */
	SET_OPTION(CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(CURLOPT_SSLVERSION,
			   (long) (settings->tls_1_3 ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2));
	/* see connections.c */
	SET_OPTION(CURLOPT_CERTINFO, 1L);
	/* no session outlives its own connection */
	SET_OPTION(CURLOPT_SSL_SESSIONID_CACHE, 0L);
	if (settings->ca_file != NULL)
	{
		/* and no other authority is trusted */
		SET_OPTION(CURLOPT_CAINFO, settings->ca_file);
		SET_OPTION(CURLOPT_CAPATH, NULL);
	}
	if (settings->cert_file != NULL)
		SET_OPTION(CURLOPT_SSLCERT, settings->cert_file);
	if (settings->key_file != NULL)
	{
		SET_OPTION(CURLOPT_SSLKEY, settings->key_file);
		/* else OpenSSL would ask for one, at a terminal */
		SET_OPTION(CURLOPT_KEYPASSWD, "");
	}
	return true;
}

/* Options that not every version of libcurl has.  False if memory is out. */
static bool
set_newer_options(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	SET_OPTION(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET_OPTION(CURLOPT_PROTOCOLS, (long) (CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	/* files are read for each connection; older versions always do so */
#if LIBCURL_VERSION_NUM >= 0x075700
	SET_OPTION(CURLOPT_CA_CACHE_TIMEOUT, 0L);
#endif
	return true;
}

bool
etcd_curl_set_options(CURL *easy, bool connects, bool is_stream)
{
	/* Nowhere but to the endpoint itself. */
	SET_OPTION(CURLOPT_FOLLOWLOCATION, 0L);
	SET_OPTION(CURLOPT_PROXY, "");

	SET_OPTION(CURLOPT_NOSIGNAL, 1L);
	SET_OPTION(CURLOPT_TCP_NODELAY, 1L);
	if (connects)
		SET_OPTION(CURLOPT_FRESH_CONNECT, 1L);
	if (is_stream)
	{
		SET_OPTION(CURLOPT_TCP_KEEPALIVE, 1L);
		SET_OPTION(CURLOPT_TCP_KEEPIDLE, STREAM_KEEPALIVE_IDLE_S);
		SET_OPTION(CURLOPT_TCP_KEEPINTVL, STREAM_KEEPALIVE_INTERVAL_S);
	}
	return set_newer_options(easy);
}

/*
 * A server that speaks HTTP/2 over TLS wants to hear of it.  libcurl could ask,
 * too, but then it would speak HTTP/2 itself.
 */
static CURLcode
offer_http2(CURL *handle, void *context, void *arg)
{
	static const unsigned char protocols[] = "\x02h2\x08http/1.1";

	(void) handle;
	(void) arg;
	/* what a full socket did not take is offered again from another place */
	(void) SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return SSL_CTX_set_alpn_protos(context, protocols, sizeof(protocols) - 1) == 0 ?
		CURLE_OK : CURLE_OUT_OF_MEMORY;
}

bool
etcd_curl_connect_only(CURL *easy)
{
	SET_OPTION(CURLOPT_CONNECT_ONLY, 1L);
	SET_OPTION(CURLOPT_SSL_ENABLE_ALPN, 0L);
	SET_OPTION(CURLOPT_SSL_CTX_FUNCTION, offer_http2);
	return true;
}

const struct curl_slist *
etcd_curl_certificate(CURL *easy)
{
	struct curl_certinfo *info = NULL;
	long		verdict = X509_V_OK;

	if (curl_easy_getinfo(easy, CURLINFO_CERTINFO, &info) != CURLE_OK || info == NULL ||
		info->num_of_certs < 1)
		return NULL;
	/*
	 * Newer versions of libcurl verify it after they have read it.  It is unspecified if
	 * they have compared the names only.
	 */
	if (curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &verdict) != CURLE_OK ||
		(verdict != X509_V_OK && verdict != X509_V_ERR_UNSPECIFIED))
		return NULL;
	return info->certinfo[0];
}

CURLcode
etcd_curl_classify(CURLcode result, const char *detail)
{
	if ((result == CURLE_RECV_ERROR || result == CURLE_SEND_ERROR) &&
		strstr(detail, " alert ") != NULL)
		return CURLE_SSL_CONNECT_ERROR;
	return result;
}
