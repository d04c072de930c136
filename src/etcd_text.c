/*-------------------------------------------------------------------------
 *
 * etcd_text.c
 *	  Keys and values of other programs as text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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
