/*-------------------------------------------------------------------------
 *
 * settings_check.h
 *	  What is allowed in each GUC: check hooks, as guc.h describes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SETTINGS_CHECK_H
#define SETTINGS_CHECK_H

#include "utils/guc.h"

extern bool settings_check_endpoints(char **newval, void **extra, GucSource source);

/* The result is an ElectionList in *extra. */
extern bool settings_check_elections(char **newval, void **extra, GucSource source);

/*
 * The elections may change later, or in the same reload: the elector looks at
 * both again.
 */
extern bool settings_check_watched_prefixes(char **newval, void **extra, GucSource source);

extern bool settings_check_discovery_srv(char **newval, void **extra, GucSource source);
extern bool settings_check_name(char **newval, void **extra, GucSource source);
extern bool settings_check_file(char **newval, void **extra, GucSource source);
extern bool settings_check_node_name(char **newval, void **extra, GucSource source);
extern bool settings_check_preferred_nodes(char **newval, void **extra, GucSource source);
extern bool settings_check_databases(char **newval, void **extra, GucSource source);
extern bool settings_check_channel(char **newval, void **extra, GucSource source);
extern bool settings_check_timeout(int *newval, void **extra, GucSource source);
extern bool settings_check_listen(char **newval, void **extra, GucSource source);

/*
 * Leaves in *extra a bool: does the value hold for a role, or for the session,
 * and not for everybody?
 */
extern bool settings_check_require_leadership(char **newval, void **extra, GucSource source);

#endif							/* SETTINGS_CHECK_H */
