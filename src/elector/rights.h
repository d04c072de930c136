/*-------------------------------------------------------------------------
 *
 * rights.h
 *	  What etcd's user may do with the keys of the settings, and whether a key without
 *	  a lease is in the way.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_RIGHTS_H
#define ELECTOR_RIGHTS_H

/* The settings are others: the keys are tried again soon. */
extern void elector_configure_rights(void);

/* Tries all keys now. */
extern void elector_try_rights(void);
extern bool elector_is_trying_rights(void);

/*
 * A request that names that key, among others, was denied: the keys are tried again.  False:
 * the settings do not name it, or a try has just succeeded.
 */
extern bool elector_doubt_rights(const char *key);

/*
 * Begins the problems of rights, and tries the keys again if it is time; once in each
 * turn.  Returns when it is due, on the clock of clock_now_ns().
 */
extern int64 elector_find_rights_problems(void);

#endif							/* ELECTOR_RIGHTS_H */
