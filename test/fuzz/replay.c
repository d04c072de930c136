/*-------------------------------------------------------------------------
 *
 * replay.c
 *	  Runs a harness on the given files without libFuzzer, for compilers
 *	  without it, and for valgrind.
 *
 *-------------------------------------------------------------------------
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
main(int argc, char **argv)
{
	static uint8_t data[2 * MAX_ANSWER_SIZE];

	fuzz_max_work = 4 * 1024 * 1024;
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
		/* an input that takes too long is a finding, too */
		alarm(60);
		(void) LLVMFuzzerTestOneInput(data, size);
	}
	return 0;
}
