/*-------------------------------------------------------------------------
 *
 * utf8.c
 *	  Text of etcd, which is UTF-8, in the database's encoding.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "utf8.h"

char *
utf8_to_server(const char *utf8)
{
	int			encoding = GetDatabaseEncoding();
	int			left = (int) strlen(utf8);
	Oid			conversion = InvalidOid;
	StringInfoData text;

	if (encoding == PG_SQL_ASCII)
		return pstrdup(utf8);
	if (encoding != PG_UTF8)
		conversion = FindDefaultConversionProc(PG_UTF8, encoding);

	initStringInfo(&text);
	while (left > 0)
	{
		/* one character; its conversion, with room to spare */
		int			len = pg_encoding_verifymbchar(PG_UTF8, utf8, left);
		unsigned char converted[2 * MAX_CONVERSION_GROWTH * MAX_CONVERSION_GROWTH];

		if (len == 1 || (len > 1 && encoding == PG_UTF8))
			appendBinaryStringInfo(&text, utf8, len);
		else if (len > 1 && OidIsValid(conversion) &&
				 pg_do_encoding_conversion_buf(conversion, PG_UTF8, encoding,
											   (unsigned char *) unconstify(char *, utf8), len,
											   converted, sizeof(converted), true) == len)
			appendStringInfoString(&text, (char *) converted);
		else
			appendStringInfoChar(&text, '?');

		len = Max(len, 1);
		utf8 += len;
		left -= len;
	}
	return text.data;
}
