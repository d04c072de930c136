/*-------------------------------------------------------------------------
 *
 * text.h
 *	  Keys and values of other programs as text.
 *
 * etcd holds bytes.  What is valid UTF-8, without control characters other than
 * tab and line ends, is text; anything else is shown in hex.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_TEXT_H
#define ETCD_TEXT_H

#include "api.h"

extern bool etcd_is_text(EtcdBytes bytes);

/*
 * Copies bytes into a buffer of `size`, as text or in hex, with a NUL.  A
 * value that is too long is cut, text at the end of a character.  True if it
 * was cut.
 */
extern bool etcd_copy_text(char *buffer, size_t size, EtcdBytes bytes);

/*
 * A value for the server log and for messages, palloc'd: the bytes of hidden
 * characters (base/hidden.h), and those that are not UTF-8, are written as \x
 * and two digits.  So a name can begin no line of the log, command no terminal,
 * and look like no other name.
 */
extern char *etcd_escape_text(const char *text);

#endif							/* ETCD_TEXT_H */
