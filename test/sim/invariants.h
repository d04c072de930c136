/*-------------------------------------------------------------------------
 *
 * invariants.h
 *	  What always holds of the state of the core.
 *
 *-------------------------------------------------------------------------
 */
#ifndef INVARIANTS_H
#define INVARIANTS_H

#include "protocol/election.h"

/*
 * Asserts what holds whenever the core waits for the next input.  The simulator,
 * the fuzzers and the unit tests are built with ELECTION_CHECKED and this.  The
 * extension is not: an elector that is in doubt about itself must not bring down
 * the server.
 */
extern void check_invariants(const ElectionCore *core);

#endif							/* INVARIANTS_H */
