/*
 * mutant.h
 *	  What mutate writes into a source: each mutant is behind mutant_is(its number).
 */
#ifndef MUTANT_H
#define MUTANT_H

#include <stdbool.h>

/* The number of the mutant of this process, from the environment variable MUTANT, or -1. */
extern int	mutant;

/* One byte for each mutant: whether the process has come to its place. */
extern unsigned char *mutants_reached;

static inline bool
mutant_is(int number)
{
	mutants_reached[number] = 1;
	return mutant == number;
}

/* left < right, and with the mutant left <= right.  The other three likewise. */
#define MUTANT_COMPARES(number, left, operator, other, right) \
	({ \
		__typeof__((left) + 0) mutant_left = (left); \
		__typeof__((right) + 0) mutant_right = (right); \
		mutant_is(number) ? mutant_left other mutant_right : mutant_left operator mutant_right; \
	})

#endif							/* MUTANT_H */
