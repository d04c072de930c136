/*-------------------------------------------------------------------------
 *
 * primaries.h
 *	  Instances of one database system, of which several may be primaries.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PRIMARIES_H
#define PRIMARIES_H

#include "instance.h"

extern void primaries_reset(void);

/* Sets the database system of an instance that starts, and its timeline. */
extern void primaries_begin(Instance *in);

/* The instance may have become a standby, or was promoted. */
extern void primaries_configure(Instance *in);

/* Its process starts, as in->next_start says. */
extern void primaries_started(const Instance *in);

/* What the instance does, and when its process ends. */
extern void primaries_sent(const Instance *in, const EtcdRequest *request);
extern void primaries_published(const Instance *in, int slot, const ElectionView *old);
extern void primaries_remembered(const Instance *in, const char *election,
								 const ElectionTimelines *timelines);
/* That key is the first of the election in etcd. */
extern void primaries_first(int e, EtcdBytes key);

extern void primaries_ended(const Instance *in);

/* Does it stay out of the election as a second primary? */
extern bool primaries_stay_out(const Instance *in, const char *election);

/* Faults have ended long ago. */
extern void primaries_recovered(int e);

/* May it give up its place because another primary of its system leads? */
extern bool primaries_may_yield(const Instance *in);

/* May it ask about another primary for longer?  An answer about a TTL of a second shows little. */
extern bool primaries_ask_long(const Instance *in);

#endif							/* PRIMARIES_H */
