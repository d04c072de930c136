/*-------------------------------------------------------------------------
 *
 * etcd_certificates.c
 *	  When the certificates of the endpoints expire, as their connections told.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>
#include <curl/curl.h>

#include "etcd_client_internal.h"

/* The end of the server's certificate, in Unix time; 0: the handle has made no connection with TLS. */
static int64_t
read_end_s(CURL *easy)
{
	static const char name[] = "Expire date:";
	struct curl_certinfo *info = NULL;

	if (curl_easy_getinfo(easy, CURLINFO_CERTINFO, &info) != CURLE_OK || info == NULL || info->num_of_certs < 1)
		return 0;
	for (const struct curl_slist *line = info->certinfo[0]; line != NULL; line = line->next)
	{
		if (strncmp(line->data, name, strlen(name)) == 0)
			return (int64_t) curl_getdate(line->data + strlen(name), NULL);
	}
	return 0;
}

static EtcdCertificate *
find(Http *http, const char *url)
{
	for (int i = 0; i < http->ncertificates; i++)
	{
		if (strcmp(http->certificates[i].url, url) == 0)
			return &http->certificates[i];
	}
	return NULL;
}

void
etcd_certificates_note(Http *http, void *easy, const char *url)
{
	int64_t		end_s = read_end_s(easy);
	EtcdCertificate *certificate = find(http, url);

	if (end_s <= 0 || strlen(url) > ETCD_CLIENT_MAX_URL_LEN)
		return;
	if (certificate == NULL)
	{
		/* endpoints come and go: the last place is that of the newest ones */
		if (http->ncertificates < ETCD_CLIENT_MAX_ENDPOINTS)
			http->ncertificates++;
		certificate = &http->certificates[http->ncertificates - 1];
		strcpy(certificate->url, url);
	}
	certificate->end_s = end_s;
}

int64_t
etcd_client_certificate_end_s(EtcdClient *client, int endpoint)
{
	const EtcdCertificate *certificate = find(&client->http, client->endpoints[endpoint].url);

	return certificate != NULL ? certificate->end_s : 0;
}
