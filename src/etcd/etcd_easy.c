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

#define SET_OPTION(option, value) \
	do { \
		if (curl_easy_setopt(easy, option, value) != CURLE_OK) \
			return false; \
	} while (0)

/*
 * The URL of a path below an endpoint's; to be free()d.  NULL if memory is out.
 */
static char *
join_url(const char *base, const char *path)
{
	size_t		len = strlen(base);
	char	   *joined = malloc(len + strlen(path) + 1);

	if (joined == NULL)
		return NULL;
	while (len > 0 && base[len - 1] == '/')
		len--;
	memcpy(joined, base, len);
	strcpy(joined + len, path);
	return joined;
}

/*
 * Connects to the host of the endpoint, but asks it as the server name.  False
 * if memory is out.
 */
static bool
replace_host(CURL *easy, CURLU *url, const char *server_name, struct curl_slist **connect_to)
{
	char	   *host = NULL;
	char	   *port = NULL;
	bool		good;

	good = curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		curl_url_set(url, CURLUPART_HOST, server_name, 0) == CURLUE_OK;
	if (good)
	{
		char		address[1024];

		snprintf(address, sizeof(address), "::%s:%s", host, port);
		*connect_to = curl_slist_append(NULL, address);
		good = *connect_to != NULL && curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *connect_to) == CURLE_OK;
	}
	curl_free(host);
	curl_free(port);
	return good;
}

/* The URL of a Unix socket names the socket alone. */
bool
etcd_easy_set_url(CURL *easy, const Settings *settings, const char *endpoint, const char *path,
				  struct curl_slist **connect_to)
{
	const char *unix_scheme = "unix://";
	const char *unixs_scheme = "unixs://";
	char	   *joined;
	char	   *whole = NULL;
	CURLU	   *url;
	bool		good;

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

	url = curl_url();
	joined = join_url(endpoint, path);
	if (url != NULL && joined != NULL && curl_url_set(url, CURLUPART_URL, joined, 0) == CURLUE_OK)
		good = (settings->server_name == NULL || replace_host(easy, url, settings->server_name, connect_to)) &&
			curl_url_get(url, CURLUPART_URL, &whole, 0) == CURLUE_OK &&
			curl_easy_setopt(easy, CURLOPT_URL, whole) == CURLE_OK;
	else
		/* libcurl reports the error in the URL */
		good = joined != NULL && curl_easy_setopt(easy, CURLOPT_URL, joined) == CURLE_OK;

	curl_free(whole);
	free(joined);
	curl_url_cleanup(url);
	return good;
}

bool
etcd_easy_set_tls(CURL *easy, const Settings *settings)
{
	/* the first two are libcurl's defaults, which nothing may depend on */
	SET_OPTION(CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(CURLOPT_SSLVERSION,
			   (long) (settings->tls_1_3 ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2));
	/* files are read for each connection, and no session outlives its own */
	SET_OPTION(CURLOPT_CA_CACHE_TIMEOUT, 0L);
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
