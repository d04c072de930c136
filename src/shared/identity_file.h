/*-------------------------------------------------------------------------
 *
 * identity_file.h
 *	  Whether the data directory of this server is a copy.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDENTITY_FILE_H
#define IDENTITY_FILE_H

#include "shared/part.h"

/*
 * Called once, at library load in the postmaster, after shared_state_install(): the start
 * of the server reads the file, and its clean shutdown writes it.
 */
extern void identity_file_install(void);

/*
 * Was this server started from a copy of another server's data directory, which is a
 * primary, and which nobody has claimed yet?
 */
extern bool identity_is_copy(void);

/* The host on which the copied server ran. */
extern const char *identity_copied_host(void);

/* This server is no copy from now on.  For the postmaster and the elector alone. */
extern void identity_claim(void);

extern const SharedPart identity_part;

#endif							/* IDENTITY_FILE_H */
