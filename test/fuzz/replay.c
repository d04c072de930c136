/*-------------------------------------------------------------------------
 *
 * replay.c
 *	  Runs a harness on the files that are named, without libFuzzer: for
 *	  valgrind, which sees what is read before it was written.
 *
 *-------------------------------------------------------------------------
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
main(int argc, char **argv)
{
	static uint8_t data[2 * MAX_ANSWER_SIZE];

	for (int i = 1; i < argc; i++)
	{
		FILE	   *file = fopen(argv[i], "rb");
		size_t		size;

		if (file == NULL)
		{
			perror(argv[i]);
			return 1;
		}
		size = fread(data, 1, sizeof(data), file);
		fclose(file);
		fprintf(stderr, "%s\n", argv[i]);
		(void) LLVMFuzzerTestOneInput(data, size);
	}
	return 0;
}
