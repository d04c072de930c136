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

/* The same for the revisions of etcd's history.  They are never erased. */
extern void crash_memory_remember_history(const ElectionHistory *history);
extern bool crash_memory_recall_history(ElectionHistory *history);

extern const SharedPart crash_memory_part;

#endif							/* CRASH_MEMORY_H */
