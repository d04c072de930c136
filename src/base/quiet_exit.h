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
 * Called once, at the beginning of a worker that the postmaster never restarts.
 * The log will not show the end of the worker by SIGTERM, for example at an ordinary
 * shutdown.
 */
extern void quiet_exit_install(void);

/* With true, the log shows no end of the worker, until a call with false. */
extern void quiet_exit_always(bool always);

#endif							/* QUIET_EXIT_H */
