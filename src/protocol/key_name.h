/*-------------------------------------------------------------------------
 *
 * key_name.h
 *	  The name of a candidate's key, which tells who its owner is.
 *
 * "<election>/<lease in hex>.<system identifier>.<timeline>.pg".  The lease is the one
 * that the key was entered with, as Go's %x writes it.  The system identifier is that
 * of the PostgreSQL database system, and the timeline is the one on which the owner
 * was a primary when it entered; 0: it was in recovery.  Older releases had
 * "<election>/<lease in hex>.pg".
 *
 *-------------------------------------------------------------------------
 */
#ifndef KEY_NAME_H
#define KEY_NAME_H

#include "state.h"

/* What the name of a key tells. */
typedef struct KeyOwner
{
	bool		is_ours;		/* an instance of etcd_leader, in this election */
	char		system_identifier[ELECTION_SYSTEM_ID_SIZE];	/* empty: not told */
	uint32_t	timeline;		/* 0: not told, or in recovery */
} KeyOwner;

/* Makes the name of an own key on that lease, in key. */
extern void key_name_make(const ElectionCore *core, const Election *e, int64_t lease,
						  char key[ELECTION_KEY_SIZE]);

extern KeyOwner key_name_parse(const Election *e, EtcdBytes key);

#endif							/* KEY_NAME_H */
