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
 * A run, by its parts: what plan says is made, without faults; time goes on
 * until then, or until something is wrong (false); everybody is shut down,
 * and all is forgotten but the verdict.
 */
extern void run_begin(void);
extern bool run_until(int64_t until_ns);
extern void run_end(void);

/* False if something failed; run_verdict() says what. */
extern bool run_seed(uint64_t seed);

/* The table of what etcd has to serve, as Markdown; false if something failed. */
extern bool scale_write_table(void);

#endif							/* RUN_H */
