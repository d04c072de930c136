/*-------------------------------------------------------------------------
 *
 * conf_files.h
 *	  Lines of the server's files of settings that the server does not accept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_CONF_FILES_H
#define ELECTOR_CONF_FILES_H

/* Reads the files: postgresql.conf, what it includes, and postgresql.auto.conf. */
extern void elector_look_at_conf_files(void);

/* Begins the problems that the last look has found; once in each turn. */
extern void elector_find_conf_problems(void);

#endif							/* ELECTOR_CONF_FILES_H */
