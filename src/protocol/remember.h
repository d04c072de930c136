/*-------------------------------------------------------------------------
 *
 * remember.h
 *	  What the next elector is to know if this one dies (MEMORY, HISTORY).
 *
 *-------------------------------------------------------------------------
 */
#ifndef REMEMBER_H
#define REMEMBER_H

#include "state.h"

/*
 * The record for the time after a crash is erased before a message is sent that
 * changes keys or leases (MEMORY).
 */
extern void remember_nothing(ElectionCore *core);

/* Lets the caller remember the history, if it has changed. */
extern void remember_history(ElectionCore *core);

/*
 * Lets the caller remember the state and the history, if they have changed; or erases
 * the record while the result of something that was sent is not known.
 */
extern void remember_state(ElectionCore *core);

#endif							/* REMEMBER_H */
