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

#include "hidden.h"
#include "utf8.h"

/*
 * Converts text.  Hidden characters, other than tab and line ends, become \x and
 * digits if "escapes" is true.
 */
static char *
convert(const char *utf8, bool escapes)
{
	int			encoding = GetDatabaseEncoding();
	int			left = (int) strlen(utf8);
	Oid			conversion = InvalidOid;
	StringInfoData text;

	if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII)
		conversion = FindDefaultConversionProc(PG_UTF8, encoding);

	initStringInfo(&text);
	while (left > 0)
	{
		/* one character, and room for its conversion */
		int			len = pg_encoding_verifymbchar(PG_UTF8, utf8, left);
		unsigned char converted[2 * MAX_CONVERSION_GROWTH * MAX_CONVERSION_GROWTH];

		if (len > 0 && escapes && strchr("\t\n\r", *utf8) == NULL &&
			hidden_is(utf8_to_unicode((const unsigned char *) utf8)))
		{
			for (int i = 0; i < len; i++)
				appendStringInfo(&text, "\\x%02x", (unsigned char) utf8[i]);
		}
		else if (len == 1 || encoding == PG_SQL_ASCII || (len > 1 && encoding == PG_UTF8))
			appendBinaryStringInfo(&text, utf8, Max(len, 1));
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

char *
utf8_to_server(const char *utf8)
{
	return convert(utf8, true);
}

char *
utf8_data_to_server(const char *utf8)
{
	return convert(utf8, false);
}
