/*-------------------------------------------------------------------------
 *
 * check_rows.c
 *	  The rows of etcd_leader_check().
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"

#include "utils/builtins.h"

#include "session/rows.h"

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
