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
 * utf8_to_server() is for text that people read.  It writes each byte of a hidden
 * character (hidden.h) as \x and two digits, but keeps tab and line ends.  So no two
 * names look equal.  utf8_data_to_server() is for data that programs read.  It keeps
 * hidden characters.
 */
extern char *utf8_to_server(const char *utf8);
extern char *utf8_data_to_server(const char *utf8);

#endif							/* UTF8_H */
