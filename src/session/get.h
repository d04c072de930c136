/*-------------------------------------------------------------------------
 *
 * get.h
 *	  etcd_get(): keys below the watched prefixes, page by page.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GET_H
#define GET_H

#include "fmgr.h"

/*
 * May the current user call etcd_get()?  The function that asks is of the same
 * extension, and so of the same schema.
 */
extern bool get_is_allowed(FunctionCallInfo fcinfo);

#endif							/* GET_H */
