/*-------------------------------------------------------------------------
 *
 * refusals.h
 *	  Requests that etcd refuses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_REFUSALS_H
#define ELECTOR_REFUSALS_H

#include "etcd/client.h"

/*
 * Counts an answer of etcd, or that there is none, and begins a problem if etcd has
 * refused.  subject: of that problem; NULL: the election of the key.
 */
extern void elector_note_answer(const char *subject, const EtcdAnswer *answer,
								const EtcdTiming *timing);

#endif							/* ELECTOR_REFUSALS_H */
