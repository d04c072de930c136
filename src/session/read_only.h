/*-------------------------------------------------------------------------
 *
 * read_only.h
 *	  Sessions that are read-only by default while this instance does not
 *	  lead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef READ_ONLY_H
#define READ_ONLY_H

/* Called once, at library load in the postmaster. */
extern void read_only_install(void);

#endif							/* READ_ONLY_H */
