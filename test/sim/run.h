/*-------------------------------------------------------------------------
 *
 * run.h
 *	  One run, from its seed to its verdict.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RUN_H
#define RUN_H

#include "sim.h"

/*
 * The parts of a run.  run_begin() makes everything that the plan says, without
 * faults.  run_until() lets time go on; it returns false if a check has failed.
 * run_end() shuts all instances down and frees everything except the verdict.
 */
extern void run_begin(void);
extern bool run_until(int64_t until_ns);
extern void run_end(void);

/* Returns false if a check failed; run_verdict() describes it. */
extern bool run_seed(uint64_t seed);

/*
 * A run with a fault of a minority that never ends, see frozen.c.  Returns false
 * if a check failed.
 */
extern bool run_frozen(uint64_t seed);

/* Prints the table of etcd's load as Markdown; false if a check failed. */
extern bool scale_write_table(void);

#endif							/* RUN_H */
