/*-------------------------------------------------------------------------
 *
 * file_settings.h
 *	  Mistakes in the files of settings that would stop the next start.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FILE_SETTINGS_H
#define FILE_SETTINGS_H

#include "fmgr.h"

/*
 * Adds a row for each line of the files of settings that PostgreSQL cannot apply.  A change
 * that only waits for a restart is among them.
 */
extern void check_file_settings(FunctionCallInfo fcinfo);

#endif							/* FILE_SETTINGS_H */
