/*-------------------------------------------------------------------------
 *
 * tls.c
 *	  What is wrong with TLS, in words.
 *
 * A server that refuses the certificate of its client says little more than
 * that.  The files are on this host, so their fault is looked for here.  What
 * is found goes into the message, which all signals show; errors.c has the
 * hint for it.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "base/certificate.h"
#include "tls.h"

/* ---- the server's certificate -------------------------------------------- */

/* The names in the certificate, if the certificate itself is good. */
static bool
read_names(CURL *easy, char *names, size_t size)
{
	static const char name[] = "Cert:";

	for (const struct curl_slist *line = etcd_curl_certificate(easy); line != NULL;
		 line = line->next)
	{
		if (strncmp(line->data, name, strlen(name)) != 0)
			continue;
		if (!certificate_read_names(line->data + strlen(name), names, size))
			snprintf(names, size, "nobody, as it has no subjectAltName");
		return true;
	}
	return false;
}

/* As OpenSSL calls it. */
static bool
is_authority_unknown(const char *detail)
{
	static const char *const texts[] = {
		"issuer certificate", "self-signed certificate", "self signed certificate",
		"verify the first certificate"
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
	{
		if (strstr(detail, texts[i]) != NULL)
			return true;
	}
	return false;
}

/* If the certificate itself is good, it is about its names. */
static void
describe_server(char *message, CURL *easy, const CurlTarget *target, const Settings *settings,
				const char *url, const char *detail)
{
	char		names[ETCD_MESSAGE_SIZE];
	const char *host = settings != NULL && settings->server_name != NULL ? settings->server_name :
		target->host[0] != '\0' ? target->host : "localhost";

	if (read_names(easy, names, sizeof(names)))
		etcd_format_message(message, "the certificate of etcd at \"%s\" is not valid for \"%s\": "
									 "it names %s", url, host, names);
	else if (is_authority_unknown(detail))
		etcd_format_message(message, "the certificate of etcd at \"%s\" is not valid: %s (the "
									 "authority to trust is \"etcd_leader.ssl_ca_file\")",
							url, detail);
	else
		etcd_format_message(message, "the certificate of etcd at \"%s\" is not valid: %s", url,
							detail);
}

/* ---- the client's certificate -------------------------------------------- */

/* A fault of the files, or else libcurl's words. */
static void
describe_files(char *message, const Settings *settings, const char *detail)
{
	char		fault[ETCD_MESSAGE_SIZE];

	if (settings != NULL && settings->cert_file != NULL && settings->key_file != NULL &&
		certificate_find_fault(settings->cert_file, settings->key_file, fault, sizeof(fault)))
		detail = fault;
	etcd_format_message(message, "could not use the files of \"etcd_leader.ssl_cert_file\" and "
								 "\"etcd_leader.ssl_key_file\": %s", detail);
}

/* The server has refused the client by that alert. */
static void
describe_refusal(char *message, const Settings *settings, const char *url, const char *alert)
{
	char		fault[ETCD_MESSAGE_SIZE];

	if (settings == NULL || settings->cert_file == NULL || settings->key_file == NULL)
	{
		etcd_format_message(message, "etcd at \"%s\" requires a client certificate that it trusts "
									 "(%s)", url, alert);
		return;
	}
	if (!certificate_find_fault(settings->cert_file, settings->key_file, fault, sizeof(fault)) &&
		(settings->ca_file == NULL ||
		 !certificate_find_fault_of_chain(settings->cert_file, settings->ca_file, fault,
										  sizeof(fault))))
		snprintf(fault, sizeof(fault), "this host finds no fault in it");
	etcd_format_message(message, "etcd at \"%s\" does not accept the client certificate (%s): %s",
						url, alert, fault);
}

static void
describe_connection(char *message, const Settings *settings, const char *url, const char *detail)
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
		describe_refusal(message, settings, url, alerts[i]);
		return;
	}
	etcd_format_message(message, "no TLS connection to etcd at \"%s\": %s", url, detail);
}

/* ---- both ---------------------------------------------------------------- */

bool
etcd_tls_describe(char *message, CURL *easy, CURLcode result, const CurlTarget *target,
				  const char *url, const char *detail)
{
	/* the files of other settings are not those that the handle used */
	const Settings *settings = target->settings->number == target->settings_number ?
		target->settings : NULL;

	switch (result)
	{
		case CURLE_PEER_FAILED_VERIFICATION:
			describe_server(message, easy, target, settings, url, detail);
			return true;
		case CURLE_SSL_CACERT_BADFILE:
			etcd_format_message(message,
								"could not use the file of \"etcd_leader.ssl_ca_file\": %s",
								detail);
			return true;
		case CURLE_SSL_CERTPROBLEM:
		case CURLE_BAD_FUNCTION_ARGUMENT:	/* the message of libcurl 8.23 about a bad key */
			describe_files(message, settings, detail);
			return true;
		case CURLE_SSL_CONNECT_ERROR:
			describe_connection(message, settings, url, detail);
			return true;
		default:
			return false;
	}
}
