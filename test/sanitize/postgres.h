/*
 * In the way of PostgreSQL's postgres.h when the library is built for
 * AddressSanitizer.  What the extension allocates in memory contexts would
 * share blocks of malloc() with its neighbours, and nobody would see when it
 * is overrun or used after it was freed.  So each gets a block of its own,
 * which is what contexts do with more than 8 kB, and its end is poisoned.
 */
#include_next "postgres.h"

#ifndef SANITIZE_POSTGRES_H
#define SANITIZE_POSTGRES_H

#include <sanitizer/asan_interface.h>

#define SANITIZE_TAIL	(8192 + 1024)

static inline void *
sanitize_alloc(void *(*alloc) (Size size), Size size)
{
	char	   *block = alloc(size + SANITIZE_TAIL);

	__asan_poison_memory_region(block + size, SANITIZE_TAIL);
	return block;
}

#define palloc(size) sanitize_alloc(palloc, (size))
#define palloc0(size) sanitize_alloc(palloc0, (size))

#endif							/* SANITIZE_POSTGRES_H */
