/*-------------------------------------------------------------------------
 *
 * vacate.h
 *	  Ends the workers in a database for a statement that needs it for itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef VACATE_H
#define VACATE_H

/*
 * Called once, at library load in the postmaster: statements that need a
 * database for themselves (DROP DATABASE, ...) get notifiers and hooks out of
 * it.
 */
extern void vacate_install(void);

#endif							/* VACATE_H */
