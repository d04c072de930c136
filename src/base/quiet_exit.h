/*-------------------------------------------------------------------------
 *
 * quiet_exit.h
 *	  Background workers that end without a message in the log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef QUIET_EXIT_H
#define QUIET_EXIT_H

/*
 * Called once, at the beginning of a worker that is never restarted by the
 * postmaster: its end by SIGTERM, at an ordinary shutdown for example, is not
 * logged.
 */
extern void quiet_exit_install(void);

/* The same for every end, until this is called with false. */
extern void quiet_exit_always(bool always);

#endif							/* QUIET_EXIT_H */
