/*-------------------------------------------------------------------------
 *
 * etcd_text.c
 *	  Keys and values of other programs as text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "etcd_text.h"

bool
etcd_is_text(EtcdBytes bytes)
{
	for (size_t i = 0; i < bytes.len; i++)
	{
		unsigned char c = (unsigned char) bytes.data[i];

		if (c < ' ' && c != '\t' && c != '\n' && c != '\r')
			return false;
	}
	return bytes.len <= PG_INT32_MAX &&
		pg_encoding_verifymbstr(PG_UTF8, bytes.data, (int) bytes.len) == (int) bytes.len;
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

/* C0, DEL, and C1: terminals take U+009B for ESC [. */
static bool
is_control(const unsigned char *s)
{
	return s[0] < ' ' || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
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

		if (len > 0 && !is_control((const unsigned char *) text))
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
