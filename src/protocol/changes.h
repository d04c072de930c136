/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Changes of keys of other programs: the puts and deletes below some
 *	  prefixes.  A pure state machine, like election.h.
 *
 * What goes in: the time, prefixes, etcd's answers, frames of a watch stream.
 * What comes out, through ChangesPort: reads, the watches of the stream, the
 * changes.  changes.c says what is promised of them.
 *
 * All times are nanoseconds of one clock that never stops and never jumps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CHANGES_H
#define CHANGES_H

#include "etcd/api.h"

#define CHANGES_MAX_PREFIXES	16
#define CHANGES_PREFIX_SIZE		256 /* with the terminating NUL */

/*
 * The output.  None of these may call back.  Every send() must be followed by
 * one changes_receive() of its id, within a bounded time.
 */
typedef struct ChangesPort
{
	void		(*send) (void *ctx, uint64_t id, const EtcdRequest *request);
	/* replaces the watch stream by one with these; none: closes it */
	void		(*watch) (void *ctx, const EtcdWatch *watches, int nwatches);
	/* a change; NULL: changes may be missing here */
	void		(*announce) (void *ctx, const EtcdWatchEvent *event);
	uint64_t	(*random) (void *ctx);
	void	   *ctx;
} ChangesPort;

typedef struct Changes Changes;

/* Without prefixes: changes_configure() starts it.  NULL if memory is out. */
extern Changes *changes_create(const ChangesPort *port);
extern void changes_free(Changes *changes);

/*
 * The prefixes, none of which is empty or begins with another one, each
 * shorter than CHANGES_PREFIX_SIZE; at most CHANGES_MAX_PREFIXES. Prefixes
 * that were there before keep their positions.  Every interval_ns this checks
 * whether etcd is still the same.
 */
extern void changes_configure(Changes *changes, int64_t now_ns, const char *const *prefixes,
							  int nprefixes, int64_t interval_ns);

/* The answer to the request of that id, or the failure to get one. */
extern void changes_receive(Changes *changes, int64_t now_ns, uint64_t id,
							const EtcdAnswer *answer);

/* A frame of the stream, an ANSWERED one. */
extern void changes_watched(Changes *changes, int64_t now_ns, const EtcdWatchFrame *frame);

/*
 * The stream ended, and was not closed from here.  outcome: that of the last
 * frame.  ETCD_GARBAGE is a frame that cannot be read, now or later.
 */
extern void changes_watch_ended(Changes *changes, int64_t now_ns, EtcdOutcome outcome);

/*
 * Does the work that is due.  Returns when there is more (INT64_MAX: never).
 */
extern void changes_tick(Changes *changes, int64_t now_ns);
extern int64_t changes_wakeup_ns(const Changes *changes);

/*
 * Is the stream open, and have all changes since the last gap been announced?
 */
extern bool changes_is_watching(const Changes *changes);

/*
 * The end of the range of keys that begin with a prefix.  Both have
 * CHANGES_PREFIX_SIZE bytes; the prefix is neither empty nor does it end with
 * 0xff, as no UTF-8 does.
 */
extern void changes_prefix_end(const char *prefix, char *end);

#endif							/* CHANGES_H */
