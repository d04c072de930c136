/*
 * mutant.c
 *	  Which mutant this process is.
 *
 * MUTANT is its number.  MUTANTS_REACHED names a file with a byte for each mutant, which
 * the process and its children set.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mutant.h"

#define MAX_MUTANTS 16384

static unsigned char nowhere[MAX_MUTANTS];

int			mutant = -1;
unsigned char *mutants_reached = nowhere;

__attribute__((constructor)) static void
read_mutant(void)
{
	const char *number = getenv("MUTANT");
	const char *file = getenv("MUTANTS_REACHED");

	if (number != NULL)
		mutant = atoi(number);
	if (file != NULL)
	{
		int			fd = open(file, O_RDWR);

		if (fd < 0 || ftruncate(fd, MAX_MUTANTS) != 0)
			abort();
		mutants_reached = mmap(NULL, MAX_MUTANTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (mutants_reached == MAP_FAILED)
			abort();
	}
}
