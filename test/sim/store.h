/*-------------------------------------------------------------------------
 *
 * store.h
 *	  What etcd has committed: the log, every version of every key, leases.
 *
 * There is one copy for all members.  Each member has an index up to which it
 * has applied the log, and reads the versions up to that index.
 *
 *-------------------------------------------------------------------------
 */
#ifndef STORE_H
#define STORE_H

#include "etcd/api.h"
#include "sim.h"

#define MAX_MEMBERS		3

/* Who has made a change. */
typedef enum Cause
{
	BY_CLIENT,
	BY_FOREIGN,
	BY_EXPIRY,
	BY_WOKEN_LEADER,
	BY_OPERATOR
} Cause;

typedef struct LogEntry
{
	int64_t		revision;		/* of the store after this entry */
	uint64_t	term;
	int64_t		compacted;		/* lower revisions are compacted */
} LogEntry;

typedef struct StoreKey
{
	EtcdBytes	name;
	int			last_version;	/* -1: none */
	int			next_in_bucket;
} StoreKey;

typedef struct Version
{
	int			key;
	int			previous;		/* previous version of the same key; -1: none */
	int64_t		index;			/* of the log entry */
	int64_t		revision;
	int64_t		create_revision;	/* for a deletion, that of the deleted key */
	int64_t		number;			/* of writes of the key since it was created */
	int64_t		lease;
	bool		deleted;
	EtcdBytes	value;
	Cause		cause;
} Version;

typedef struct StoreLease
{
	int64_t		id;
	int64_t		ttl_s;
	int64_t		granted_index;
	int64_t		revoked_index;	/* 0: it lives */
	int			next_in_bucket;
	/* the expiry time that each member knows, see lessor.c */
	int64_t		expires_ns[MAX_MEMBERS];
	bool		ready[MAX_MEMBERS];
	bool		revoking;		/* a revocation for expiry is proposed */
} StoreLease;

extern void store_reset(void);

/* ---- the log --------------------------------------------------------- */

extern int64_t store_index(void);	/* of the newest entry */
extern const LogEntry *store_entry(int64_t index);
extern int64_t store_revision(void);

/* Appends an empty entry, as an etcd leader does at the start of its term. */
extern void store_append(uint64_t term);
extern void store_compact(uint64_t term, int64_t revision);

/*
 * For tests that need a state, and not the way to it.  The next entry comes to that
 * revision, or falls back to it, without a change of a key.
 */
extern void store_set_revision(uint64_t term, int64_t revision);

/* Puts a key that has this create revision already. */
extern void store_plant(EtcdBytes name, EtcdBytes value, int64_t create_revision, int64_t lease);

/*
 * Executes a write as the next entry of the log.  The answer's header has the
 * revision; its results live as long as the run.
 */
extern void store_write(uint64_t term, const EtcdRequest *request, Cause cause, EtcdAnswer *answer);

/* Puts the store back to its state at that index. */
extern void store_restore(int64_t index);

/* ---- reading ------------------------------------------------------------ */

/*
 * The number of keys that etcd had to fetch to answer ranges, if store_counts
 * is set.  If etcd has to sort, or to filter by revision, it first fetches the
 * whole range, and then applies the limit.
 */
extern bool store_counts;
extern int64_t store_fetched;

/* Executes a txn that only reads, on the state at that index. */
extern void store_read(int64_t index, const EtcdRequest *request, EtcdAnswer *answer);

extern int	store_intern(EtcdBytes name);
extern const StoreKey *store_key(int key);
extern int	store_versions(void);
extern const Version *store_version(int version);

/* The first version of that revision or a later one. */
extern int	store_first_version(int64_t revision);

/* A key as etcd shows it. */
extern void store_set_kv(EtcdKeyValue *kv, const Version *version);

/* The newest version of a key, NULL if it does not exist. */
extern const Version *store_find(EtcdBytes name);

/* The first key in the queue of an election ("prefix/"), NULL if there is none. */
extern const Version *store_first(const char *prefix);

/* The keys that exist, by create revision. */
extern int	store_live_count(void);
extern const Version *store_live(int i);

extern int	store_leases(void);
extern StoreLease *store_lease(int i);
extern StoreLease *store_find_lease(int64_t id);

extern bool bytes_equal(EtcdBytes a, EtcdBytes b);
extern bool bytes_in_range(EtcdBytes name, EtcdBytes from, EtcdBytes end);

/* Called for each change, in the order of the log. */
extern void (*store_changed) (const Version *version);

#endif							/* STORE_H */
