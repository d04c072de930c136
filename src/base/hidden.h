/*-------------------------------------------------------------------------
 *
 * hidden.h
 *	  Hidden characters: they are invisible, or change how other text looks.
 *
 * U+202E shows the text after it backwards, U+200B has no width, U+009B
 * commands a terminal.  A name with such a character can look like a different
 * name.  No name of this instance contains a hidden character.  In text from etcd
 * they are escaped where people read it.
 *
 * The ranges are the general categories Cc, Cf, Zl and Zp of Unicode 17.0.
 * PostgreSQL 17 and later have these tables, but only in the server.  This header
 * does not need postgres.h, because the library http and the unit tests use it, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HIDDEN_H
#define HIDDEN_H

#include "mb/pg_wchar.h"

/* Is the character hidden?  All control characters (Cc) are, also line ends and tab. */
static inline bool
hidden_is(pg_wchar c)
{
	static const struct
	{
		pg_wchar	first;
		pg_wchar	last;
	}			ranges[] = {
		{0x0000, 0x001F}, {0x007F, 0x009F}, {0x00AD, 0x00AD}, {0x0600, 0x0605}, {0x061C, 0x061C},
		{0x06DD, 0x06DD}, {0x070F, 0x070F}, {0x0890, 0x0891}, {0x08E2, 0x08E2}, {0x180E, 0x180E},
		{0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x2064}, {0x2066, 0x206F}, {0xFEFF, 0xFEFF},
		{0xFFF9, 0xFFFB}, {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},
		{0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0001, 0xE0001}, {0xE0020, 0xE007F}
	};
	size_t		i = 0;

	while (i < lengthof(ranges) && c > ranges[i].last)
		i++;
	return i < lengthof(ranges) && c >= ranges[i].first;
}

static inline bool
hidden_is_control(pg_wchar c)
{
	return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

/* Finds the first hidden character in valid UTF-8: *c; false: there is none. */
static inline bool
hidden_find(const char *utf8, pg_wchar *c)
{
	for (; *utf8 != '\0'; utf8 += pg_encoding_mblen(PG_UTF8, utf8))
	{
		*c = utf8_to_unicode((const unsigned char *) utf8);
		if (hidden_is(*c))
			return true;
	}
	return false;
}

#endif							/* HIDDEN_H */
