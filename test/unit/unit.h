/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  cmocka, with the headers that it needs before it, and those of most tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_H
#define UNIT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka 2 has stop(), which is a name of tests, */
#undef stop
/* and one of these for signed and one for unsigned numbers, which is as before. */
#ifdef assert_uint_in_range
#undef assert_in_range
#define assert_in_range assert_uint_in_range
#endif

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

#endif							/* UNIT_H */
