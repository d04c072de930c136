/*-------------------------------------------------------------------------
 *
 * attempt.h
 *	  Work of a background worker that is tried again until it succeeds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ATTEMPT_H
#define ATTEMPT_H

typedef struct Attempt
{
	void		(*work) (void *arg);	/* in transactions of its own */
	const char *failed;			/* the message: the database, the error */
	const char *succeeded;		/* after failures; the message: the database */
	char		last_error[256];	/* empty: the last one has succeeded */
} Attempt;

/*
 * Does the work in this database.  False after an ERROR: the transaction is
 * rolled back.  The ERROR is logged if it is another one than the last time; the
 * end of a series is logged, too.
 */
extern bool attempt_run(Attempt *attempt, const char *database, void *arg);

#endif							/* ATTEMPT_H */
