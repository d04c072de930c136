/*-------------------------------------------------------------------------
 *
 * define.h
 *	  The definition of the settings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SETTINGS_DEFINE_H
#define SETTINGS_DEFINE_H

/* Called once, at library load in the postmaster. */
extern void settings_define(void);

#endif							/* SETTINGS_DEFINE_H */
