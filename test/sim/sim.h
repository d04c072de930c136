/*-------------------------------------------------------------------------
 *
 * sim.h
 *	  Used by every part of the simulator: true time, the queue of events,
 *	  random numbers, memory, the timeline and the verdict.
 *
 * One run is a function of its seed alone.  Nothing depends on a clock, an
 * address or the order of a hash table, and all random numbers come from one
 * generator.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MS			INT64_C(1000000)
#define SECOND		INT64_C(1000000000)
#define NEVER		INT64_MAX

/* ---- random.c: the only generator of random numbers ------------------------ */

extern void random_seed(uint64_t seed);

/*
 * From now on random_below() and its like take their numbers from these bytes, as
 * long as there are any.  They are exhausted when all are taken.
 */
extern void random_from(const uint8_t *data, size_t size);
extern bool random_is_exhausted(void);

extern uint64_t random_next(void);

/* 0 to n - 1 */
extern int	random_below(int n);

/* low to high, both included */
extern int64_t random_between(int64_t low, int64_t high);

/* true with a probability of per_myriad / 10,000 */
extern bool random_chance(int per_myriad);

/* ---- events.c: true time and the queue of events ----------------------------- */

typedef void (*EventHandler) (void *subject, uint64_t tag);

/* True time, in nanoseconds since the run began. */
extern int64_t now_ns;

extern void events_reset(void);
extern void events_at(int64_t when_ns, EventHandler handler, void *subject, uint64_t tag);
extern void events_after(int64_t delay_ns, EventHandler handler, void *subject, uint64_t tag);

/* Executes the next event; false if there is none until that time. */
extern bool events_step(int64_t until_ns);

/* ---- memory.c: memory that lives as long as the run ---------------------------- */

extern void *run_alloc(size_t size);
extern char *run_copy(const char *data, size_t len);
extern void run_free_all(void);

/* ---- client.c: how messages pass --------------------------------------------- */

/* Messages pass as structures and not as bytes.  The run is the same, four times as fast. */
extern bool passes_structures;

/* ---- trace.c: the timeline, and the verdict -------------------------------------- */

extern bool tracing;
extern FILE *timeline;			/* where trace() writes; NULL: stdout */

extern void trace_line(const char *who, const char *format,...)
			__attribute__((format(printf, 2, 3)));

#define trace(...) \
	do { \
		if (tracing) \
			trace_line(__VA_ARGS__); \
	} while (0)

/* Ends the run.  The first failure of a run is its verdict. */
extern void fail_run(const char *format,...)
			__attribute__((format(printf, 1, 2)));

extern bool run_failed(void);
extern const char *run_verdict(void);
extern void verdict_reset(void);

#endif							/* SIM_H */
