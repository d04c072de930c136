/*-------------------------------------------------------------------------
 *
 * event_file.h
 *	  The events of elections, over a restart of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef EVENT_FILE_H
#define EVENT_FILE_H

/*
 * Called once, at library load in the postmaster, after shared_state_install():
 * a clean shutdown writes the file, and the next start reads and removes it.
 */
extern void event_file_install(void);

#endif							/* EVENT_FILE_H */
