/*-------------------------------------------------------------------------
 *
 * connections.c
 *	  What the connections to the endpoints show: when certificates expire.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>
#include <curl/curl.h>

#include "connections.h"
#include "curl.h"

/*
 * The end of the server's certificate, in Unix time; 0: the handle has made no
 * connection with TLS.
 */
static int64_t
read_end_s(CURL *easy)
{
	static const char name[] = "Expire date:";

	for (const struct curl_slist *line = etcd_curl_certificate(easy); line != NULL;
		 line = line->next)
	{
		if (strncmp(line->data, name, strlen(name)) == 0)
			return (int64_t) curl_getdate(line->data + strlen(name), NULL);
	}
	return 0;
}

const EtcdConnectionFacts *
etcd_connections_find(const EtcdConnections *connections, const char *url)
{
	for (int i = 0; i < connections->n; i++)
	{
		if (strcmp(connections->facts[i].url, url) == 0)
			return &connections->facts[i];
	}
	return NULL;
}

void
etcd_connections_note(EtcdConnections *connections, void *easy, const char *url)
{
	int64_t		end_s = read_end_s(easy);
	EtcdConnectionFacts *facts = (EtcdConnectionFacts *) etcd_connections_find(connections, url);

	if (end_s <= 0 || strlen(url) > ETCD_CLIENT_MAX_URL_LEN)
		return;
	if (facts == NULL)
	{
		/* when the table is full, its last entry is overwritten */
		if (connections->n < ETCD_CLIENT_MAX_ENDPOINTS)
			connections->n++;
		facts = &connections->facts[connections->n - 1];
		memset(facts, 0, sizeof(*facts));
		strcpy(facts->url, url);
	}
	facts->certificate_end_s = end_s;
}
