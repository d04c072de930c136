/*-------------------------------------------------------------------------
 *
 * small_etcd.h
 *	  The keys of an etcd in memory, for the unit tests of the core.
 *
 * A test decides when a request is executed and when its answer arrives.
 * This file only keeps requests, keys and revisions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SMALL_ETCD_H
#define SMALL_ETCD_H

#include "protocol/election.h"

#define MAX_KEYS	200

typedef struct Key
{
	char		key[ELECTION_KEY_SIZE + 64];	/* the names of other programs may be longer than ours */
	char		value[ELECTION_VALUE_SIZE];
	int64_t		create_revision;
	int64_t		mod_revision;
	int64_t		version;
	int64_t		lease;
} Key;

typedef struct SmallEtcd
{
	uint64_t	cluster_id;
	uint64_t	term;
	int64_t		revision;
	Key			keys[MAX_KEYS]; /* in the order of their creation */
	int			nkeys;
} SmallEtcd;

extern SmallEtcd etcd;

/* A short name for a request of an election. */
extern const char *describe(const EtcdRequest *request);

/*
 * Copies a request with everything it points to into room, which is aligned
 * for any type.  The core reuses its memory after it has sent a request.
 */
extern EtcdRequest keep_request(void *room, size_t size, const EtcdRequest *request);

extern EtcdBytes bytes(const char *s);
extern EtcdHeader etcd_header(void);
extern bool in_range(const char *key, EtcdBytes from, EtcdBytes end);
extern Key *find_key(EtcdBytes name);
extern bool holds(const EtcdCompare *compare);

/* These write at the present revision.  The caller begins a new revision. */
extern Key *write_key(EtcdBytes name, EtcdBytes value, int64_t lease);
extern void remove_key(Key *key);

/* Copies the keys of a range, at most n of them, and returns how many. */
extern int	read_keys(const EtcdOp *op, Key *copies, EtcdKeyValue *kvs, int n);

/* The event of a change at that revision.  It points into the key. */
extern EtcdWatchEvent event_of(const Key *key, bool is_delete, int64_t revision);

#endif							/* SMALL_ETCD_H */
