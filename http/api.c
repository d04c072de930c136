/*-------------------------------------------------------------------------
 *
 * api.c
 *	  The C API of etcd_leader, which all that is served comes from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "http.h"

const EtcdLeaderApi *http_api;

void
http_load_api(void)
{
	http_api = etcd_leader_api();
	if (http_api == NULL)
		ereport(FATAL,
				(errmsg("the HTTP library of etcd_leader is of another version than the loaded library"),
				 errhint("Restart the server to load the installed version.")));
}

char *
http_valid_text(const char *text)
{
	char	   *valid = pstrdup(text);
	char	   *end = valid + strlen(valid);

	for (char *c = valid; c < end;)
	{
		int			len = pg_encoding_verifymbchar(PG_UTF8, c, (int) (end - c));

		if (len < 1)
			*c = '?';
		c += Max(len, 1);
	}
	return valid;
}
