/*-------------------------------------------------------------------------
 *
 * small_elections.h
 *	  What the fence needs of the settings, the status and the events: two elections, and
 *	  what the shared memory says of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SMALL_ELECTIONS_H
#define SMALL_ELECTIONS_H

#define ALPHA		0
#define BETA		1
#define NELECTIONS	2

/* Behind the two is an empty name. */
extern const char *const election_names[NELECTIONS + 1];

#endif							/* SMALL_ELECTIONS_H */
