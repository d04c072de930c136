/*-------------------------------------------------------------------------
 *
 * problems.h
 *	  The list of what is wrong, as it is made: for readers and for the log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_PROBLEMS_H
#define ELECTOR_PROBLEMS_H

#include "shared/problems.h"

/* How long a problem lasts, beside a time on the clock of clock_now_ns(). */
#define PROBLEM_LASTS		PG_INT64_MAX	/* until problem_end() */
#define PROBLEM_THIS_TURN	0	/* unless it is begun again in the next turn */

/*
 * There is a problem until then.  One that is there already gets this text, and keeps
 * the time of its beginning.  subject: which one of its item, or ""; hint: NULL: that of
 * etcd_hint().  Text that is too long is cut at the end of a character.
 */
extern void problem_begin(ProblemItem item, const char *subject, int64 until_ns,
						  const char *hint, const char *format,...) pg_attribute_printf(5, 6);

/* It is over. */
extern void problem_end(ProblemItem item, const char *subject);

/*
 * After a reload: a problem that has another text from now on is another mistake, and is
 * logged once more.
 */
extern void problems_note_reload(void);

/* A problem of the turn that is there stays: its subject is being tried again. */
extern void problem_keep(ProblemItem item, const char *subject);

extern bool problem_is_there(ProblemItem item, const char *subject);

/*
 * Ends what is over by itself, writes to the log what has begun and what has ended, and
 * publishes the list if it has changed.  Once in each turn.
 */
extern void problems_refresh(void);

#endif							/* ELECTOR_PROBLEMS_H */
