/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text of other programs, as it can be served.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "base/hidden.h"
#include "http.h"

char *
http_valid_text(const char *text)
{
	int			left = (int) strlen(text);
	StringInfoData valid;

	initStringInfo(&valid);
	while (left > 0)
	{
		int			len = pg_encoding_verifymbchar(PG_UTF8, text, left);

		if (len < 1)
			appendStringInfoChar(&valid, '?');
		else if (!hidden_is(utf8_to_unicode((const unsigned char *) text)))
			appendBinaryStringInfo(&valid, text, len);
		else
		{
			for (int i = 0; i < len; i++)
				appendStringInfo(&valid, "\\x%02x", (unsigned char) text[i]);
		}
		text += Max(len, 1);
		left -= Max(len, 1);
	}
	return valid.data;
}
