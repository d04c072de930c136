/*-------------------------------------------------------------------------
 *
 * hook_launcher.h
 *	  Starts the hooks of a database when they are due.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOOK_LAUNCHER_H
#define HOOK_LAUNCHER_H

/*
 * In the notifier of a database: starts the hook launcher if there is none
 * and something for it to do.  Returns the milliseconds until it must be called
 * again, -1 if not before the register of hooks wants a launcher.
 */
extern long hook_launcher_supervise(const char *database, int notifier_slot);

extern PGDLLEXPORT void etcd_leader_hook_launcher_main(Datum main_arg);

#endif							/* HOOK_LAUNCHER_H */
