/*-------------------------------------------------------------------------
 *
 * shared_part.h
 *	  A part of the memory that processes share.
 *
 * Each file that keeps something in shared memory describes it by a part, and
 * is the only one that looks into it.  shared_state.c makes them at the start
 * of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHARED_PART_H
#define SHARED_PART_H

typedef struct SharedPart
{
	const char *name;
	Size		(*size) (void);
	void	  **memory;			/* where this process has it */
	void		(*init) (void); /* before others see it; of memory that is
								 * zero, if shared_state.c does not say
								 * otherwise */
} SharedPart;

#endif							/* SHARED_PART_H */
