/*-------------------------------------------------------------------------
 *
 * http_launcher.h
 *	  The start of the HTTP worker: when it is needed, and its library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HTTP_LAUNCHER_H
#define HTTP_LAUNCHER_H

#include "shared/part.h"

/*
 * In the elector: starts the HTTP worker if the settings want it and it is
 * not there.  Returns when it must be called again, on the clock of
 * clock_now_ns(), PG_INT64_MAX if not before a reload.  The worker ends by itself when
 * the settings do not want it any more.
 */
extern int64 http_launcher_supervise(void);

extern const SharedPart http_launcher_part;

extern PGDLLEXPORT void etcd_leader_http_worker_main(Datum main_arg);

#endif							/* HTTP_LAUNCHER_H */
