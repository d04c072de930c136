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

/* False if something failed; run_verdict() says what. */
extern bool run_seed(uint64_t seed);

/* The table of what etcd has to serve, as Markdown. */
extern void scale_write_table(void);

#endif							/* RUN_H */
