/*-------------------------------------------------------------------------
 *
 * rival.h
 *	  Other primaries of the same database system (SECOND).
 *
 *-------------------------------------------------------------------------
 */
#ifndef RIVAL_H
#define RIVAL_H

#include "state.h"

/*
 * Another primary of this database system has the first key, as far as is known, and
 * this instance is a primary that must not take its place.
 */
extern bool rival_leads(const ElectionCore *core, const Election *e);

/* This instance is a second primary, and stays out. */
extern bool rival_refuses(const ElectionCore *core, const Election *e);

/* Learns the timeline of the leader that is known. */
extern void rival_learn_leader(ElectionCore *core, Election *e);

/* The leader has been shown to be alive: this instance is a second primary. */
extern void rival_refuse(ElectionCore *core, Election *e);

/* This instance enters the queue. */
extern void rival_note_entry(ElectionCore *core, Election *e);

/* This instance leads. */
extern void rival_note_leading(ElectionCore *core, Election *e);

/* The operator wants this instance to be a candidate for all that. */
extern void rival_accept(ElectionCore *core, Election *e);

#endif							/* RIVAL_H */
