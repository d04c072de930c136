/*-------------------------------------------------------------------------
 *
 * etcd_tls.c
 *	  What is wrong with TLS, in words.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "etcd_tls.h"

static void
describe_connection(char *message, const char *url, const char *detail)
{
	/* as OpenSSL calls the alerts about the certificate of the client */
	static const char *const alerts[] = {
		"alert bad certificate", "alert certificate required", "alert certificate expired",
		"alert certificate unknown", "alert unknown ca", "alert unsupported certificate"
	};

	for (size_t i = 0; i < sizeof(alerts) / sizeof(alerts[0]); i++)
	{
		if (strstr(detail, alerts[i]) == NULL)
			continue;
		etcd_format_message(message, "etcd at \"%s\" requires a client certificate that it trusts (%s)", url, alerts[i]);
		return;
	}
	etcd_format_message(message, "no TLS connection to etcd at \"%s\": %s", url, detail);
}

bool
etcd_tls_describe(char *message, CURLcode result, const char *url, const char *detail)
{
	switch (result)
	{
		case CURLE_PEER_FAILED_VERIFICATION:
			etcd_format_message(message, "the certificate of etcd at \"%s\" is not valid: %s (the authority to trust is \"etcd_leader.ssl_ca_file\")", url, detail);
			return true;
		case CURLE_SSL_CACERT_BADFILE:
			etcd_format_message(message, "could not use the file of \"etcd_leader.ssl_ca_file\": %s", detail);
			return true;
		case CURLE_SSL_CERTPROBLEM:
		case CURLE_BAD_FUNCTION_ARGUMENT:	/* the message of libcurl 8.23 about a bad key */
			etcd_format_message(message, "could not use the files of \"etcd_leader.ssl_cert_file\" and \"etcd_leader.ssl_key_file\": %s", detail);
			return true;
		case CURLE_SSL_CONNECT_ERROR:
			describe_connection(message, url, detail);
			return true;
		default:
			return false;
	}
}
