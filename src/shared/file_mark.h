/*-------------------------------------------------------------------------
 *
 * file_mark.h
 *	  What a file in the data directory says of itself: where it lies, and
 *	  which shutdown of the server it was written at.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FILE_MARK_H
#define FILE_MARK_H

#include <stdio.h>

/* A mark that was stored, and a new one of the same file, tell what has happened between. */
typedef struct FileMark
{
	uint64		system_identifier;
	/* those of the last clean shutdown; 0: the server did not end in one */
	uint64		checkpoint;
	int64		shutdown_time;
	uint64		inode;			/* of the file */
} FileMark;

/* The mark of an open file now.  False: something cannot be read. */
extern bool file_mark_make(FILE *file, FileMark *mark);

/* Are both marks of one clean shutdown?  Then the server has not been started in between. */
extern bool file_mark_is_same_shutdown(const FileMark *stored, const FileMark *own);

#endif							/* FILE_MARK_H */
