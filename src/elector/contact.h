/*-------------------------------------------------------------------------
 *
 * contact.h
 *	  The contact with etcd: answers and failures.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_CONTACT_H
#define ELECTOR_CONTACT_H

#include "etcd/client.h"
#include "shared/state.h"

/* As it will be published next. */
extern const SharedContact *elector_contact(void);

/*
 * Something failed.  It is no problem by itself: the next try may succeed.  It is
 * the reason when contact is lost, or leadership.
 */
extern void elector_note_failure(const char *message);

/* What failed within the last TTL; NULL: nothing. */
extern const char *elector_recent_failure(void);

/* Counts an answer of etcd, or that there is none. */
extern void elector_count_answer(const EtcdAnswer *answer, const EtcdTiming *timing);

/* How long an answer to the protocol took.  Those that are repeatedly slow are a problem. */
extern void elector_note_latency(int64 latency_ns);

/* The contact is there, or is lost. */
extern void elector_note_connected(bool connected);

/*
 * Begins or ends the problem that there is no contact.  At the start, etcd has some
 * seconds to answer.  Returns when to call this again, on the clock of clock_now_ns();
 * PG_INT64_MAX: not for that reason.
 */
extern int64 elector_judge_contact(void);

/* The name of this instance, for readers at once. */
extern void elector_note_node_name(const char *name);

/* The endpoint in use may be another one. */
extern void elector_note_endpoint(void);

/* For readers, if it has changed. */
extern void elector_publish_contact(void);

#endif							/* ELECTOR_CONTACT_H */
