/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text that comes from anybody: names and values in etcd, messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "http.h"

const char *
http_next_character(const char **text, int *len)
{
	const char *character = *text;

	*len = pg_encoding_verifymbchar(PG_UTF8, character, (int) strlen(character));
	*text += Max(*len, 1);
	if (*len >= 1)
		return character;
	*len = 1;
	return "?";
}
