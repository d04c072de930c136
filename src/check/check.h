/*-------------------------------------------------------------------------
 *
 * check.h
 *	  What the files of etcd_leader_check() offer each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CHECK_H
#define CHECK_H

#include "postgres.h"

#include "fmgr.h"

/* The status of a row. */
typedef enum CheckStatus
{
	CHECK_OK,
	CHECK_WARNING,
	CHECK_ERROR,
	CHECK_UNKNOWN				/* it could not be found out */
} CheckStatus;

/*
 * Adds a row to the result.  Texts are UTF-8, as those of etcd and of the
 * settings; NULL: none.
 */
extern void check_put(FunctionCallInfo fcinfo, const char *item, const char *subject,
					  CheckStatus status, const char *detail, const char *hint);

/*
 * The row of a certificate that expires in that number of days; the hint is for one
 * that does so soon, or has.
 */
extern void check_put_certificate(FunctionCallInfo fcinfo, const char *subject, double days,
								  const char *hint);

/* What this host alone can tell: files, certificate, databases, time-outs. */
extern void check_host(FunctionCallInfo fcinfo);

/*
 * What etcd tells: endpoints and their certificates, cluster, quorum, rights, alarms, versions.
 * until_us: see arguments_get_timeout().
 */
extern void check_etcd(FunctionCallInfo fcinfo, int64 until_us);

#endif							/* CHECK_H */
