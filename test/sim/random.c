/*-------------------------------------------------------------------------
 *
 * random.c
 *	  The only generator of random numbers: splitmix64.
 *
 *-------------------------------------------------------------------------
 */
#include "sim.h"

static uint64_t state;

/*
 * Seeds are numbered from 1 and must not give related sequences, so the
 * number is scrambled first.
 */
void
random_seed(uint64_t seed)
{
	state = seed * UINT64_C(0xD1342543DE82EF95) + 1;
	(void) random_next();
}

uint64_t
random_next(void)
{
	uint64_t	z = (state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

int
random_below(int n)
{
	return n <= 1 ? 0 : (int) ((random_next() >> 11) % (uint64_t) n);
}

int64_t
random_between(int64_t low, int64_t high)
{
	if (high <= low)
		return low;
	return low + (int64_t) ((random_next() >> 1) % (uint64_t) (high - low + 1));
}

bool
random_chance(int per_myriad)
{
	return per_myriad > 0 && random_below(10000) < per_myriad;
}
