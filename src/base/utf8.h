/*-------------------------------------------------------------------------
 *
 * utf8.h
 *	  Text of etcd, which is UTF-8, in the database's encoding.
 *
 *-------------------------------------------------------------------------
 */
#ifndef UTF8_H
#define UTF8_H

/*
 * Converts text of etcd to the database's encoding; palloc'd.  Never fails: a
 * byte that is not UTF-8, or a character that the encoding does not have,
 * becomes a question mark.  Needs a transaction.
 *
 * What people read has hidden characters (hidden.h) but tab and line ends as \x
 * and two digits for each byte, so that no name looks like another one.  Data
 * of other programs, which programs read, has them as they are.
 */
extern char *utf8_to_server(const char *utf8);
extern char *utf8_data_to_server(const char *utf8);

#endif							/* UTF8_H */
