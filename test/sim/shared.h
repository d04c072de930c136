/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  The shared memory of an instance, and a client that reads its events.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHARED_H
#define SHARED_H

#include "protocol/election.h"

typedef struct Instance Instance;

/* What the memory is after a start of the server. */
typedef enum SharedStart
{
	SHARED_NEW,					/* all is new, */
	SHARED_RESTORED,			/* but events of before a clean shutdown are there */
	SHARED_AFTER_CRASH			/* the postmaster lives: what is lasting is kept */
} SharedStart;

/* Forgets all of the run before. */
extern void shared_reset(void);

extern void shared_start(const Instance *in, SharedStart how);

/* The server has shut down cleanly. */
extern void shared_save(const Instance *in);

extern void shared_announce(const Instance *in, const ElectionEvent *event);

/* As src/shared/crash_memory.h has them. */
extern void shared_remember(const Instance *in, const ElectionMemory *memory);
extern bool shared_recall(const Instance *in, ElectionMemory *memory);
extern void shared_remember_history(const Instance *in, const ElectionHistory *history);
extern bool shared_recall_history(const Instance *in, ElectionHistory *history);

/* The highest revision that the next elector would know after a crash. */
extern int64_t shared_known_revision(const Instance *in);
extern void shared_set_stay_out(const Instance *in, const char *election, bool stay_out);
extern void shared_set_timelines(const Instance *in, const char *election,
								 const ElectionTimelines *timelines);
extern ElectionTimelines shared_timelines(const Instance *in, const char *election);
extern bool shared_stays_out(const Instance *in, const char *election);

#endif							/* SHARED_H */
