/*-------------------------------------------------------------------------
 *
 * host.c
 *	  What this host alone can tell of the set-up: files, the client
 *	  certificate, databases, and the time-outs against the latencies so far.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "utils/syscache.h"

#include "base/certificate.h"
#include "base/clock.h"
#include "base/secret_file.h"
#include "settings/settings.h"
#include "shared/stats.h"

/* ---- files ------------------------------------------------------------- */

static void
check_file(FunctionCallInfo fcinfo, const char *setting, const char *file, bool is_secret)
{
	struct stat status;
	const char *fault = NULL;

	if (file[0] == '\0')
		return;
	if (stat(file, &status) != 0 || access(file, R_OK) != 0)
		fault = psprintf("could not access file \"%s\": %m", file);
	else if (is_secret && secret_file_fault(&status) != NULL)
		fault = psprintf("file \"%s\" %s", file, secret_file_fault(&status));
	check_put(fcinfo, "file", setting, fault == NULL ? CHECK_OK : CHECK_ERROR,
			  fault == NULL ? file : fault,
			  fault == NULL ? NULL :
			  "Correct the setting, or the owner and the permissions of the file.");
}

static void
check_certificate(FunctionCallInfo fcinfo)
{
	const char *file = settings_ssl_cert_file;
	char		fault[ETCD_MESSAGE_SIZE];
	double		days;

	if (file[0] == '\0')
		return;
	if (certificate_find_fault(file, settings_key_file(), fault, sizeof(fault)))
		check_put(fcinfo, "certificate", file, CHECK_ERROR, fault, etcd_hint(fault));
	else if (!certificate_read_expiry(file, &days))
		check_put(fcinfo, "certificate", file, CHECK_ERROR, "the file cannot be read",
				  "Correct the setting, or the owner and the permissions of the file.");
	else
		check_put_certificate(fcinfo, file, days,
							  "Renew the certificate. The file is read for each new connection.");
}

/* ---- databases --------------------------------------------------------- */

static void
check_database(FunctionCallInfo fcinfo, const char *name)
{
	Oid			oid = get_database_oid(name, true);
	HeapTuple	tuple = OidIsValid(oid) ? SearchSysCache1(DATABASEOID, ObjectIdGetDatum(oid)) :
		NULL;
	bool		accepts;

	if (!HeapTupleIsValid(tuple))
	{
		check_put(fcinfo, "database", name, CHECK_ERROR, "the database does not exist",
				  "Create it, or remove it from \"etcd_leader.databases\".");
		return;
	}
	accepts = ((Form_pg_database) GETSTRUCT(tuple))->datallowconn;
	ReleaseSysCache(tuple);
	check_put(fcinfo, "database", name, accepts ? CHECK_OK : CHECK_ERROR,
			  accepts ? "the database exists" : "the database does not accept connections",
			  accepts ? NULL :
			  "Allow connections to it, or remove it from \"etcd_leader.databases\".");
}

/* ---- time-outs ---------------------------------------------------------- */

/* A request that takes more than half of its time is near to failing. */
static void
check_latency(FunctionCallInfo fcinfo)
{
	int			ttl_ms = settings_ttl_s * 1000;
	int			timeout_ms = settings_resolve_timeout_ms(settings_request_timeout_ms, ttl_ms);
	bool		cut;
	int			margin_ms = settings_resolve_safety_margin_ms(&cut);
	double		max_ms = stats_counter(COUNTER_LATENCY_NS_MAX) / (double) NSEC_PER_MSEC;
	const char *detail;

	detail = psprintf("TTL %d ms, safety margin %d ms, request time-out %d ms; the slowest answer "
					  "took %.0f ms",
					  ttl_ms, margin_ms, timeout_ms, max_ms);
	if (stats_counter(COUNTER_ANSWERS) == 0)
		check_put(fcinfo, "ttl", NULL, CHECK_UNKNOWN,
				  "etcd has not answered the elector since etcd_leader_stats.stats_reset", NULL);
	else if (cut)
		check_put(fcinfo, "ttl", NULL, CHECK_WARNING, detail,
				  "Set \"etcd_leader.safety_margin\" to less than half of \"etcd_leader.ttl\".");
	else if (timeout_ms * 3 > ttl_ms - margin_ms)
		check_put(fcinfo, "ttl", NULL, CHECK_WARNING, detail,
				  "Fewer than three requests fit into the TTL. Lower "
				  "\"etcd_leader.request_timeout\", or raise \"etcd_leader.ttl\".");
	else if (max_ms * 2 > timeout_ms)
		check_put(fcinfo, "ttl", NULL, CHECK_WARNING, detail,
				  "Find out why etcd or the network was slow, or raise \"etcd_leader.ttl\". "
				  "etcd_leader_stats_reset() begins anew.");
	else
		check_put(fcinfo, "ttl", NULL, CHECK_OK, detail, NULL);
}

void
check_host(FunctionCallInfo fcinfo)
{
	ListCell   *cell;

	check_file(fcinfo, "etcd_leader.ssl_ca_file", settings_ssl_ca_file, false);
	check_file(fcinfo, "etcd_leader.ssl_cert_file", settings_ssl_cert_file, false);
	check_file(fcinfo, "etcd_leader.ssl_key_file", settings_key_file(), true);
	if (settings_username[0] != '\0')
		check_file(fcinfo, "etcd_leader.password_file", settings_password_file, true);
	check_certificate(fcinfo);
	foreach(cell, settings_split(settings_databases))
		check_database(fcinfo, lfirst(cell));
	check_latency(fcinfo);
}
