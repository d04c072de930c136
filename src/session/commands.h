/*-------------------------------------------------------------------------
 *
 * commands.h
 *	  The SQL functions that ask etcd, by the elector and its mailbox.
 *
 *-------------------------------------------------------------------------
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "base/compat.h"

/* ERROR 55000: there is nobody to ask. */
pg_noreturn extern void commands_raise_no_elector(void);

#endif							/* COMMANDS_H */
