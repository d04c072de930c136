/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  The rows of etcd_leader_check().
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"

#include "utils/builtins.h"

#include "session/rows.h"

/* So long before its end, a certificate should be renewed. */
#define RENEWAL_DAYS	30

void
check_put(FunctionCallInfo fcinfo, const char *item, const char *subject,
		  CheckStatus status, const char *detail, const char *hint)
{
	static const char *const names[] = {"ok", "warning", "error", "unknown"};
	Row			row = {0};

	row_add_value(&row, CStringGetTextDatum(item));
	row_add_text(&row, subject);
	row_add_value(&row, CStringGetTextDatum(names[status]));
	row_add_text(&row, detail);
	row_add_text(&row, hint);
	row_put(fcinfo, &row);
}

void
check_put_certificate(FunctionCallInfo fcinfo, const char *subject, double days, const char *hint)
{
	if (days < 0)
		check_put(fcinfo, "certificate", subject, CHECK_ERROR, "the certificate has expired", hint);
	else
		check_put(fcinfo, "certificate", subject, days < RENEWAL_DAYS ? CHECK_WARNING : CHECK_OK,
				  psprintf("the certificate is valid for %d more days", (int) days),
				  days < RENEWAL_DAYS ? hint : NULL);
}
