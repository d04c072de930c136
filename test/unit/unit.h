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

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

#endif							/* UNIT_H */
