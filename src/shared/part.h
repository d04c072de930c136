/*-------------------------------------------------------------------------
 *
 * part.h
 *	  A part of the memory that processes share.
 *
 * Each file that keeps something in shared memory describes it by a part, and
 * is the only one that looks into it.  etcd_leader.c lists the parts, and
 * shared/state.c makes them at the start of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHARED_PART_H
#define SHARED_PART_H

typedef struct SharedPart
{
	const char *name;
	Size		size;
	Size		size_per_backend;	/* in addition, for each process that can have transactions */
	void	  **memory;			/* where this process has it */
	/* before others see it, or NULL: all is zero, unless large, also the atomics */
	void		(*init) (void);
	bool		is_lasting;		/* a crash restart does not make it again */
	bool		is_large;		/* megabytes, of which most servers use nothing: not made
								 * zero, so that no page is touched before it is needed */
	/* in the elector: it begins, after the end of an earlier one; it ends */
	void		(*elector_begins) (void);	/* or NULL */
	void		(*elector_ends) (void); /* or NULL */
} SharedPart;

#endif							/* SHARED_PART_H */
