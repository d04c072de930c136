/*-------------------------------------------------------------------------
 *
 * small_etcd.h
 *	  The simulator's store as an etcd of one member that applies at once, for
 *	  tests that say when a request is executed and when its answer arrives.
 *
 * A key is its newest version in the store (see store.h).  Answers live until
 * small_etcd_end().
 *
 *-------------------------------------------------------------------------
 */
#ifndef SMALL_ETCD_H
#define SMALL_ETCD_H

#include "protocol/election.h"
#include "store.h"

typedef struct SmallEtcd
{
	uint64_t	cluster_id;
	uint64_t	term;
	bool		is_full;		/* refuses grants */
	bool		is_late;		/* does not know any lease that a keepalive names */
	bool		is_busy;		/* refuses all txns */
	const char *denied;			/* the user has no rights to keys that begin so; NULL: to all */
	bool		denies_writes_only;
	bool		denies_leases;	/* renewals of leases that have such a key, and writes on them */
	bool		denies_new_keys;	/* the same, but a lease with such a key is renewed */
	int64_t		most_ttl_s;		/* the greatest TTL that it grants; 0: any */
} SmallEtcd;

extern SmallEtcd etcd;

extern void small_etcd_begin(uint64_t cluster_id, uint64_t term, int64_t revision);
extern void small_etcd_end(void);

/* Executes a request. */
extern void small_etcd_execute(int64_t at_ns, const EtcdRequest *request, EtcdAnswer *answer);

/* A short name for a request of an election. */
extern const char *describe(const EtcdRequest *request);

/* Copies a request.  The core reuses its memory after it has sent a request. */
extern EtcdRequest keep_request(const EtcdRequest *request);

extern EtcdBytes bytes(const char *s);
extern EtcdHeader etcd_header(void);

/* etcd comes to that revision, or falls back to it, without a change of a key. */
extern void set_revision(int64_t revision);

/* etcd is put back to its beginning: there is no key and no lease. */
extern void lose_all(int64_t revision);

/* Keys by create revision, and leases. */
extern int	count_keys(void);
extern const Version *key_at(int i);
extern const char *name_of(const Version *key);
extern const char *value_of(const Version *key);
extern int	count_leases(void);
extern void grant_lease(int64_t at_ns, int64_t id, int64_t ttl_s);
extern void end_lease(int64_t id);

/* Ends the leases that have expired. */
extern void expire_leases(int64_t at_ns);

/* Writes of others.  All operations are at one revision. */
extern void write_ops(const EtcdOp *ops, int n);
extern void put_key(EtcdBytes name, EtcdBytes value, int64_t lease);
extern void delete_key(const Version *key);

/* The event of a change at that revision. */
extern EtcdWatchEvent event_of(const Version *key, bool is_delete, int64_t revision);

#endif							/* SMALL_ETCD_H */
