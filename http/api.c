/*-------------------------------------------------------------------------
 *
 * api.c
 *	  The C API of etcd_leader, which all that is served comes from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "http.h"

const EtcdLeaderApi *http_api;

void
http_load_api(void)
{
	http_api = etcd_leader_api();
	if (http_api == NULL)
		ereport(FATAL,
				(errmsg("the HTTP library of etcd_leader is of another version than the loaded "
						"library"),
				 errhint("Restart the server to load the installed version.")));
}
