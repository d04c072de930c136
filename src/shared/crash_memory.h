/*-------------------------------------------------------------------------
 *
 * crash_memory.h
 *	  What the elector remembers over a crash restart of the server.
 *
 * For the elector alone.  Plain stores, safe at any time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CRASH_MEMORY_H
#define CRASH_MEMORY_H

#include "protocol/election.h"
#include "shared/part.h"

/*
 * Elections from which this instance has resigned for good.  They are
 * remembered until the next start of the server, also if the elector is
 * restarted.  Only for the elector.
 */
extern void crash_memory_set_stay_out(const char *election, bool stay_out);
extern bool crash_memory_stays_out(const char *election);

/*
 * Stores and reads the memory of the elector.  It lives as long as the
 * postmaster, outside of the memory that a crash restart initializes again.
 * It is in no file, so that no copy of the data directory carries it.  NULL
 * erases it.  recall: false if nothing is remembered.  Only for the elector.
 * These functions are plain stores and loads, and safe at any time.
 */
extern void crash_memory_remember(const ElectionMemory *memory);
extern bool crash_memory_recall(ElectionMemory *memory);

/*
 * What is known of the primaries of this database system in an election; all 0: nothing.
 * It is remembered over a clean restart of the server, too (event_file.c).  An election
 * for which there is no room is not remembered.
 */
#define CRASH_MEMORY_TIMELINES	(2 * ELECTION_MAX_ELECTIONS)

extern void crash_memory_set_timelines(const char *election, const ElectionTimelines *timelines);
extern ElectionTimelines crash_memory_timelines(const char *election);

/* The place number `index` of CRASH_MEMORY_TIMELINES.  False: it is empty. */
extern bool crash_memory_get_timelines(int index, const char **election,
									   ElectionTimelines *timelines);

/* The same for the revisions of etcd's history.  They are never erased. */
extern void crash_memory_remember_history(const ElectionHistory *history);
extern bool crash_memory_recall_history(ElectionHistory *history);

extern const SharedPart crash_memory_part;

#endif							/* CRASH_MEMORY_H */
