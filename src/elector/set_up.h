/*-------------------------------------------------------------------------
 *
 * set_up.h
 *	  What is wrong with the set-up of this instance: settings, files, elections and
 *	  workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_SET_UP_H
#define ELECTOR_SET_UP_H

/*
 * Begins the problems of the set-up; once in each turn.  Returns when another problem may
 * begin, on the clock of clock_now_ns(); PG_INT64_MAX: no problem begins by time alone.
 * Files are looked at in a later turn, which comes anyway.
 */
extern int64 elector_find_set_up_problems(void);

/* After the start and a reload: the files are looked at again at once. */
extern void elector_look_at_files(void);

/* Another candidate of the election has the name of this instance; key: NULL: none has. */
extern void elector_note_duplicate_name(const char *election, const char *key);

#endif							/* ELECTOR_SET_UP_H */
