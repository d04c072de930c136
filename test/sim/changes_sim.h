/*-------------------------------------------------------------------------
 *
 * changes_sim.h
 *	  A run of changes.c whose random numbers are the input of a fuzzer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CHANGES_SIM_H
#define CHANGES_SIM_H

#include "sim.h"

/*
 * The faults end with the input.  Returns false if a check failed; run_verdict()
 * describes it.
 */
extern bool run_input(const uint8_t *data, size_t size);

#endif							/* CHANGES_SIM_H */
