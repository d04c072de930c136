/*-------------------------------------------------------------------------
 *
 * changes_fuzzer.c
 *	  Fuzzes changes.c in the world of test/sim/changes_sim.c: the input is the
 *	  source of its random numbers.  So it chooses each write and each fault.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "changes_sim.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || run_input(data, size))
		return 0;
	fprintf(stderr, "%s\n", run_verdict());
	abort();
}
