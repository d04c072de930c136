/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text of other programs, as it can be served.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "http.h"

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
