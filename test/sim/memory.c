/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  Memory that lives as long as the run.  The queue of events, members and
 *	  clients all refer to messages under way, so that no single owner could
 *	  free them.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define CHUNK_SIZE	(256 * 1024)

typedef struct Chunk
{
	struct Chunk *next;
	size_t		used;
	size_t		size;
	char		data[] __attribute__((aligned(16)));
} Chunk;

static Chunk *chunks;

/* Allocates zeroed memory. */
void *
run_alloc(size_t size)
{
	void	   *p;

	size = (size + 15) & ~(size_t) 15;
	if (chunks == NULL || chunks->size - chunks->used < size)
	{
		size_t		room = size > CHUNK_SIZE ? size : CHUNK_SIZE;
		Chunk	   *chunk = malloc(sizeof(Chunk) + room);

		if (chunk == NULL)
			abort();
		chunk->next = chunks;
		chunk->used = 0;
		chunk->size = room;
		chunks = chunk;
	}
	p = chunks->data + chunks->used;
	chunks->used += size;
	memset(p, 0, size);
	return p;
}

/* Copies bytes, and adds a NUL. */
char *
run_copy(const char *data, size_t len)
{
	char	   *copy = run_alloc(len + 1);

	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

void
run_free_all(void)
{
	while (chunks != NULL)
	{
		Chunk	   *next = chunks->next;

		free(chunks);
		chunks = next;
	}
}
