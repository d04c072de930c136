/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Keys and values of other programs as text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "base/hidden.h"
#include "text.h"

/* Control characters that text may contain. */
static bool
is_white(char c)
{
	return c == '\t' || c == '\n' || c == '\r';
}

bool
etcd_is_text(EtcdBytes bytes)
{
	const char *end = bytes.data + bytes.len;

	if (bytes.len > PG_INT32_MAX ||
		pg_encoding_verifymbstr(PG_UTF8, bytes.data, (int) bytes.len) != (int) bytes.len)
		return false;
	for (const char *c = bytes.data; c < end; c += pg_encoding_mblen(PG_UTF8, c))
	{
		if (!is_white(*c) && hidden_is_control(utf8_to_unicode((const unsigned char *) c)))
			return false;
	}
	return true;
}

bool
etcd_copy_text(char *buffer, size_t size, EtcdBytes bytes)
{
	size_t		room = size - 1;
	size_t		len;
	size_t		written;

	if (etcd_is_text(bytes))
	{
		len = bytes.len <= room ? bytes.len :
			(size_t) pg_encoding_mbcliplen(PG_UTF8, bytes.data, (int) bytes.len, (int) room);
		memcpy(buffer, bytes.data, len);
		written = len;
	}
	else
	{
		len = Min(bytes.len, room / 2);
		written = hex_encode(bytes.data, len, buffer);
	}
	buffer[written] = '\0';
	return len < bytes.len;
}

char *
etcd_escape_text(const char *text)
{
	int			left = (int) strlen(text);
	StringInfoData escaped;

	initStringInfo(&escaped);
	while (left > 0)
	{
		int			len = pg_encoding_verifymbchar(PG_UTF8, text, left);

		if (len > 0 && !hidden_is(utf8_to_unicode((const unsigned char *) text)))
			appendBinaryStringInfo(&escaped, text, len);
		else
		{
			len = Max(len, 1);
			for (int i = 0; i < len; i++)
				appendStringInfo(&escaped, "\\x%02x", (unsigned char) text[i]);
		}
		text += len;
		left -= len;
	}
	return escaped.data;
}
