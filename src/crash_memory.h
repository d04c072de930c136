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

#include "election.h"
#include "shared_part.h"

/*
 * Elections that this instance has resigned from for good: remembered until
 * the server is started anew, whatever becomes of the elector.  For the
 * elector alone.
 */
extern void crash_memory_set_stay_out(const char *election, bool stay_out);
extern bool crash_memory_stays_out(const char *election);

/*
 * What the elector has remembered over a crash restart of the server: lives as
 * long as the postmaster, outside of what a restart makes anew, and in no
 * file, so that no copy of the data directory carries it.  NULL erases.
 * recall: false if nothing is remembered.  For the elector alone, and of
 * plain stores, safe at any time.
 */
extern void crash_memory_remember(const ElectionMemory *memory);
extern bool crash_memory_recall(ElectionMemory *memory);

extern const SharedPart crash_memory_part;

#endif							/* CRASH_MEMORY_H */
