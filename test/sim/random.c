/*-------------------------------------------------------------------------
 *
 * random.c
 *	  The only generator of random numbers: splitmix64, or first the input of
 *	  a fuzzer.
 *
 *-------------------------------------------------------------------------
 */
#include "sim.h"

static uint64_t state;
static const uint8_t *input;
static size_t input_left;

/*
 * Seeds are numbered from 1 and must not give related sequences, so the
 * number is scrambled first.
 */
void
random_seed(uint64_t seed)
{
	state = seed * UINT64_C(0xD1342543DE82EF95) + 1;
	input = NULL;
	input_left = 0;
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

void
random_from(const uint8_t *data, size_t size)
{
	input = data;
	input_left = size;
}

bool
random_is_exhausted(void)
{
	return input != NULL && input_left == 0;
}

/* A number below n, of one or two bytes of the input. */
static uint64_t
take_below(uint64_t n)
{
	uint64_t	number = *input++;

	if (--input_left == 0 || n <= 256)
		return number % n;
	number = number << 8 | *input++;
	input_left--;
	return n <= 65536 ? number % n : number * (n >> 16);
}

int
random_below(int n)
{
	if (n <= 1)
		return 0;
	return (int) (input_left > 0 ? take_below(n) : (random_next() >> 11) % (uint64_t) n);
}

int64_t
random_between(int64_t low, int64_t high)
{
	uint64_t	n = (uint64_t) (high - low + 1);

	if (high <= low)
		return low;
	return low + (int64_t) (input_left > 0 ? take_below(n) : (random_next() >> 1) % n);
}

bool
random_chance(int per_myriad)
{
	return per_myriad > 0 && random_below(10000) < per_myriad;
}
