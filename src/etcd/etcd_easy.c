/*-------------------------------------------------------------------------
 *
 * etcd_easy.c
 *	  Where a handle of libcurl connects, and by which TLS.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ssl.h>

#include "etcd_easy.h"

/* A peer that has vanished is noticed after idle + 9 probes, by default. */
#define STREAM_KEEPALIVE_IDLE_S		10L
#define STREAM_KEEPALIVE_INTERVAL_S	3L

#define SET_OPTION(option, value) \
	do { \
		if (curl_easy_setopt(easy, option, value) != CURLE_OK) \
			return false; \
	} while (0)

/* A URL of libcurl's is that of an endpoint, and the path of a request. */
#define MAX_URL_SIZE	(ETCD_CLIENT_MAX_URL_LEN + ETCD_MAX_HOST_LEN + 256)

/*
 * The length of a host without the dot at the end of an absolute name: versions
 * of libcurl differ about it, and no certificate has it.
 */
static int
bare_length(const char *host)
{
	size_t		len = strlen(host);

	return (int) (len > 0 && host[len - 1] == '.' ? len - 1 : len);
}

/*
 * Connects to the host of the endpoint, but asks it as the server name.  False
 * if memory is out.
 */
static bool
replace_host(CURL *easy, EasyTarget *target)
{
	char		connect_to[ETCD_MAX_HOST_LEN + 32];

	snprintf(connect_to, sizeof(connect_to), "::%.*s:%d", bare_length(target->host), target->host, target->port);
	target->connect_to = curl_slist_append(NULL, connect_to);
	SET_OPTION(CURLOPT_CONNECT_TO, target->connect_to);
	return target->connect_to != NULL;
}

/*
 * The URL of a Unix socket names the socket alone.  A text that is no URL sets
 * nothing.
 */
bool
etcd_easy_set_url(CURL *easy, const Settings *settings, const char *endpoint, const char *path, EasyTarget *target)
{
	const char *unix_scheme = "unix://";
	const char *unixs_scheme = "unixs://";
	bool		is_unix = strncmp(endpoint, "unix", 4) == 0;
	const char *server;
	char		whole[MAX_URL_SIZE];
	EtcdUrl		url;
	size_t		len;

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
	len = strlen(url.path);
	while (len > 0 && url.path[len - 1] == '/')
		len--;
	if (snprintf(whole, sizeof(whole), "%s://%.*s:%d%.*s%s", url.tls ? "https" : "http",
				 bare_length(server), server, url.port, (int) len, url.path, path) >= (int) sizeof(whole))
		return true;
	SET_OPTION(CURLOPT_URL, whole);
	target->has_url = true;
	return settings->server_name == NULL || target->host[0] == '\0' || replace_host(easy, target);
}

bool
etcd_easy_set_addresses(CURL *easy, EasyTarget *target, const EtcdName *name)
{
	char		text[ETCD_MAX_HOST_LEN + ETCD_MAX_ADDRESSES_LEN + 32];

	snprintf(text, sizeof(text), "%.*s:%d:%s", bare_length(name->host), name->host, target->port, name->addresses);
	target->resolved = curl_slist_append(NULL, text);
	SET_OPTION(CURLOPT_RESOLVE, target->resolved);
	return target->resolved != NULL;
}

void
etcd_easy_free_target(EasyTarget *target)
{
	curl_slist_free_all(target->connect_to);
	curl_slist_free_all(target->resolved);
}

bool
etcd_easy_set_tls(CURL *easy, const Settings *settings)
{
	/* the first two are libcurl's defaults, which nothing may depend on */
	SET_OPTION(CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(CURLOPT_SSLVERSION,
			   (long) (settings->tls_1_3 ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2));
	/* see etcd_connections.c */
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
etcd_easy_set_options(CURL *easy, bool connects, bool is_stream)
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
	return SSL_CTX_set_alpn_protos(context, protocols, sizeof(protocols) - 1) == 0 ?
		CURLE_OK : CURLE_OUT_OF_MEMORY;
}

bool
etcd_easy_connect_only(CURL *easy)
{
	SET_OPTION(CURLOPT_CONNECT_ONLY, 1L);
	SET_OPTION(CURLOPT_SSL_ENABLE_ALPN, 0L);
	SET_OPTION(CURLOPT_SSL_CTX_FUNCTION, offer_http2);
	return true;
}

CURLcode
etcd_easy_classify(CURLcode result, const char *detail)
{
	if (result == CURLE_SSL_CACERT)
		return CURLE_PEER_FAILED_VERIFICATION;
	if ((result == CURLE_RECV_ERROR || result == CURLE_SEND_ERROR) && strstr(detail, " alert ") != NULL)
		return CURLE_SSL_CONNECT_ERROR;
	return result;
}
