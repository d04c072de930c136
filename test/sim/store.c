/*-------------------------------------------------------------------------
 *
 * store.c
 *	  What etcd has committed: the log, every version of every key, leases.
 *
 * Keys and leases are found by hash, and listed in the order in which they
 * were first seen: no result depends on the hash.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define NBUCKETS	4096

/* An array that grows. */
#define GROW(array, n, room) \
	do { \
		if ((n) == (room)) \
		{ \
			(room) = 2 * (room) + 256; \
			(array) = realloc((array), (room) * sizeof(*(array))); \
			if ((array) == NULL) \
				abort(); \
		} \
	} while (0)

static LogEntry *entries;
static int	nentries;
static int	entries_room;

static StoreKey *keys;
static int	nkeys;
static int	keys_room;
static int	key_buckets[NBUCKETS];

static Version *versions;
static int	nversions;
static int	versions_room;

static StoreLease **leases;
static int	nleases;
static int	leases_room;
static int	lease_buckets[NBUCKETS];

/* Keys that exist, by create revision. */
static int *live;
static int	nlive;
static int	live_room;

void		(*store_changed) (const Version *version);

bool		store_counts;
int64_t		store_fetched;

/* The last result of count_range(): the range, the log index, the count. */
static EtcdBytes counted_range;
static int64_t counted_index;
static int64_t counted;

/* ---- bytes -------------------------------------------------------------- */

static int
compare_bytes(EtcdBytes a, EtcdBytes b)
{
	size_t		n = a.len < b.len ? a.len : b.len;
	int			c = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

bool
bytes_equal(EtcdBytes a, EtcdBytes b)
{
	return a.len == b.len && compare_bytes(a, b) == 0;
}

bool
bytes_in_range(EtcdBytes name, EtcdBytes from, EtcdBytes end)
{
	if (end.len == 0)
		return bytes_equal(name, from);
	return compare_bytes(name, from) >= 0 && compare_bytes(name, end) < 0;
}

static int
bucket_of_bytes(EtcdBytes b)
{
	uint64_t	h = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < b.len; i++)
		h = (h ^ (unsigned char) b.data[i]) * UINT64_C(1099511628211);
	return (int) (h % NBUCKETS);
}

static int
bucket_of_lease(int64_t id)
{
	return (int) ((uint64_t) id * UINT64_C(0x9E3779B97F4A7C15) >> 52);
}

/* ---- begin and restore --------------------------------------------------- */

/* Makes a new etcd: revision 1, and an entry 0 that is never read. */
void
store_reset(void)
{
	nentries = nkeys = nversions = nleases = nlive = 0;
	counted_index = -1;
	memset(key_buckets, -1, sizeof(key_buckets));
	memset(lease_buckets, -1, sizeof(lease_buckets));
	GROW(entries, nentries, entries_room);
	memset(&entries[nentries], 0, sizeof(LogEntry));
	entries[nentries++].revision = 1;
}

int64_t
store_index(void)
{
	return nentries - 1;
}

const LogEntry *
store_entry(int64_t index)
{
	return &entries[index];
}

int64_t
store_revision(void)
{
	return entries[nentries - 1].revision;
}

void
store_append(uint64_t term)
{
	LogEntry	entry = entries[nentries - 1];

	entry.term = term;
	GROW(entries, nentries, entries_room);
	entries[nentries++] = entry;
}

void
store_compact(uint64_t term, int64_t revision)
{
	store_append(term);
	if (revision > entries[nentries - 1].compacted)
		entries[nentries - 1].compacted = revision;
}

void
store_set_revision(uint64_t term, int64_t revision)
{
	store_append(term);
	entries[nentries - 1].revision = revision;
}

/* ---- keys and leases ------------------------------------------------------- */

int
store_intern(EtcdBytes name)
{
	int			bucket = bucket_of_bytes(name);
	StoreKey   *key;

	for (int i = key_buckets[bucket]; i >= 0; i = keys[i].next_in_bucket)
	{
		if (bytes_equal(keys[i].name, name))
			return i;
	}
	GROW(keys, nkeys, keys_room);
	key = &keys[nkeys];
	key->name.data = run_copy(name.data, name.len);
	key->name.len = name.len;
	key->last_version = -1;
	key->next_in_bucket = key_buckets[bucket];
	key_buckets[bucket] = nkeys;
	return nkeys++;
}

const StoreKey *
store_key(int key)
{
	return &keys[key];
}

int
store_versions(void)
{
	return nversions;
}

const Version *
store_version(int version)
{
	return &versions[version];
}

int
store_first_version(int64_t revision)
{
	int			low = 0;
	int			high = nversions;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (versions[middle].revision < revision)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static const Version *
newest(int key)
{
	int			v = keys[key].last_version;

	return v >= 0 && !versions[v].deleted ? &versions[v] : NULL;
}

const Version *
store_find(EtcdBytes name)
{
	return newest(store_intern(name));
}

int
store_live_count(void)
{
	return nlive;
}

const Version *
store_live(int i)
{
	return newest(live[i]);
}

const Version *
store_first(const char *prefix)
{
	size_t		len = strlen(prefix);

	for (int i = 0; i < nlive; i++)
	{
		EtcdBytes	name = keys[live[i]].name;

		if (name.len >= len && memcmp(name.data, prefix, len) == 0)
			return newest(live[i]);
	}
	return NULL;
}

int
store_leases(void)
{
	return nleases;
}

StoreLease *
store_lease(int i)
{
	return leases[i];
}

/* Finds a lease; NULL if it does not exist or was revoked. */
StoreLease *
store_find_lease(int64_t id)
{
	for (int i = lease_buckets[bucket_of_lease(id)]; i >= 0; i = leases[i]->next_in_bucket)
	{
		if (leases[i]->id == id && leases[i]->revoked_index == 0)
			return leases[i];
	}
	return NULL;
}

static void
add_lease(int64_t id, int64_t ttl_s)
{
	StoreLease *lease = run_alloc(sizeof(StoreLease));
	int			bucket = bucket_of_lease(id);

	lease->id = id;
	lease->ttl_s = ttl_s;
	lease->granted_index = nentries - 1;
	lease->next_in_bucket = lease_buckets[bucket];
	GROW(leases, nleases, leases_room);
	leases[nleases] = lease;
	lease_buckets[bucket] = nleases++;
}

/* ---- changes ------------------------------------------------------------------ */

static void
add_version(const Version *version)
{
	GROW(versions, nversions, versions_room);
	versions[nversions] = *version;
	versions[nversions].previous = keys[version->key].last_version;
	versions[nversions].index = nentries - 1;
	versions[nversions].revision = entries[nentries - 1].revision;
	keys[version->key].last_version = nversions++;
}

static void
tell_changed(int from)
{
	for (int i = from; i < nversions && store_changed != NULL; i++)
		store_changed(&versions[i]);
}

static void
put_key(EtcdBytes name, EtcdBytes value, int64_t lease, Cause cause)
{
	Version		version = {.key = store_intern(name), .lease = lease, .cause = cause};
	const Version *old = newest(version.key);

	version.value.data = run_copy(value.data, value.len);
	version.value.len = value.len;
	version.create_revision = old ? old->create_revision : entries[nentries - 1].revision;
	version.number = old ? old->number + 1 : 1;
	add_version(&version);
	if (old == NULL)
	{
		GROW(live, nlive, live_room);
		live[nlive++] = version.key;
	}
}

static void
delete_key(int key, Cause cause)
{
	Version		version = {.key = key, .deleted = true, .cause = cause};
	int			i = 0;

	version.create_revision = newest(key)->create_revision;
	version.lease = newest(key)->lease;
	add_version(&version);
	while (live[i] != key)
		i++;
	nlive--;
	memmove(&live[i], &live[i + 1], (nlive - i) * sizeof(int));
}

static int
compare_live(const void *a, const void *b)
{
	int64_t		ca = newest(*(const int *) a)->create_revision;
	int64_t		cb = newest(*(const int *) b)->create_revision;

	return (ca > cb) - (ca < cb);
}

void
store_plant(EtcdBytes name, EtcdBytes value, int64_t create_revision, int64_t lease)
{
	int			key = store_intern(name);

	put_key(name, value, lease, BY_OPERATOR);
	versions[keys[key].last_version].create_revision = create_revision;
	versions[keys[key].last_version].revision = create_revision;
	qsort(live, nlive, sizeof(int), compare_live);
}

static void
refuse(EtcdAnswer *answer, int code, const char *message)
{
	answer->outcome = ETCD_REFUSED;
	answer->code = code;
	strcpy(answer->message, message);
}

/* Deletes the keys of a lease, all in one revision. */
static void
end_lease(StoreLease *lease, Cause cause)
{
	bool		first = true;

	lease->revoked_index = nentries - 1;
	for (int i = 0; i < nlive;)
	{
		if (newest(live[i])->lease != lease->id)
		{
			i++;
			continue;
		}
		if (first)
			entries[nentries - 1].revision++;
		first = false;
		delete_key(live[i], cause);
	}
}

/* ---- ranges ----------------------------------------------------------------------- */

typedef struct Found
{
	const Version *version;
	EtcdSort	sort;
} Found;

static int
compare_found(const void *a, const void *b)
{
	const Found *fa = a;
	const Found *fb = b;
	int64_t		ca = fa->version->create_revision;
	int64_t		cb = fb->version->create_revision;

	switch (fa->sort)
	{
		case ETCD_SORT_FIRST_CREATED:
			return (ca > cb) - (ca < cb);
		case ETCD_SORT_LAST_CREATED:
			return (ca < cb) - (ca > cb);
		case ETCD_SORT_NONE:
			break;
	}
	return compare_bytes(keys[fa->version->key].name, keys[fb->version->key].name);
}

/* The version of a key at an index of the log; NULL if it did not exist. */
static const Version *
version_at(int key, int64_t index)
{
	int			v = keys[key].last_version;

	while (v >= 0 && versions[v].index > index)
		v = versions[v].previous;
	return v >= 0 && !versions[v].deleted ? &versions[v] : NULL;
}

static bool
matches(const EtcdOp *op, const Version *version)
{
	return version != NULL &&
		(op->min_create_revision == 0 || version->create_revision >= op->min_create_revision) &&
		(op->max_create_revision == 0 || version->create_revision <= op->max_create_revision) &&
		bytes_in_range(keys[version->key].name, op->key, op->range_end);
}

/* The number of existing keys that were created at that revision or before. */
static int
live_up_to(int64_t revision)
{
	int			low = 0;
	int			high = nlive;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (newest(live[middle])->create_revision <= revision)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void
store_set_kv(EtcdKeyValue *kv, const Version *version)
{
	kv->key = keys[version->key].name;
	kv->value = version->value;
	kv->create_revision = version->create_revision;
	kv->mod_revision = version->revision;
	kv->version = version->number;
	kv->lease = version->lease;
}

/*
 * The number of keys that etcd fetches for a range.  The last result is kept,
 * because many instances read the same range at the same index.
 */
static int64_t
count_range(int64_t index, const EtcdOp *op)
{
	if (op->range_end.len == 0)
		return version_at(store_intern(op->key), index) != NULL;
	if (counted_index == index && bytes_equal(counted_range, op->key))
		return counted;
	counted_index = index;
	counted_range = op->key;
	counted = 0;
	for (int i = 0; i < nkeys; i++)
		counted += version_at(i, index) != NULL && bytes_in_range(keys[i].name, op->key, op->range_end);
	return counted;
}

/* Was no key deleted after that index of the log? */
static bool
all_still_stand(int64_t index)
{
	for (int i = nversions - 1; i >= 0 && versions[i].index > index; i--)
	{
		if (versions[i].deleted)
			return false;
	}
	return true;
}

/*
 * Reads a range at an index of the log.  If no key was deleted since then, the
 * list of the existing keys is enough, in the order of the request.  Otherwise
 * all keys that ever existed are examined.
 */
static void
read_range(int64_t index, const EtcdOp *op, EtcdResult *result)
{
	static Found *found;
	static int	found_room;
	int			nfound = 0;
	int			limit = op->limit > 0 ? (int) op->limit : INT32_MAX;

	if (store_counts)
		store_fetched += count_range(index, op);
	if (op->range_end.len == 0)
	{
		const Version *version = version_at(store_intern(op->key), index);

		GROW(found, nfound, found_room);
		if (matches(op, version))
			found[nfound++].version = version;
	}
	else if (op->sort != ETCD_SORT_NONE && all_still_stand(index))
	{
		bool		ascending = op->sort == ETCD_SORT_FIRST_CREATED;
		int			n = op->max_create_revision != 0 ? live_up_to(op->max_create_revision) : nlive;

		for (int i = 0; i < n && nfound < limit; i++)
		{
			const Version *version = version_at(live[ascending ? i : n - 1 - i], index);

			GROW(found, nfound, found_room);
			if (matches(op, version))
				found[nfound++].version = version;
		}
	}
	else
	{
		for (int i = 0; i < nkeys; i++)
		{
			const Version *version = version_at(i, index);

			GROW(found, nfound, found_room);
			if (matches(op, version))
			{
				found[nfound].version = version;
				found[nfound++].sort = op->sort;
			}
		}
		qsort(found, nfound, sizeof(Found), compare_found);
	}
	if (nfound > limit)
		nfound = limit;
	result->nkvs = nfound;
	result->kvs = run_alloc((nfound + 1) * sizeof(EtcdKeyValue));
	for (int i = 0; i < nfound; i++)
		store_set_kv(&result->kvs[i], found[i].version);
}

/* ---- requests ------------------------------------------------------------------------ */

static bool
compares_hold(const EtcdRequest *request, int64_t index)
{
	for (int i = 0; i < request->ncompares; i++)
	{
		const EtcdCompare *compare = &request->compares[i];
		const Version *version = version_at(store_intern(compare->key), index);
		int64_t		value = version == NULL ? 0 :
			compare->target == ETCD_COMPARE_CREATE_REVISION ? version->create_revision :
			version->revision;

		if (value != compare->value)
			return false;
	}
	return true;
}

static void
write_txn(const EtcdRequest *request, Cause cause, EtcdAnswer *answer)
{
	const EtcdOp *ops;
	int			nops;
	bool		changes = false;

	answer->succeeded = compares_hold(request, nentries - 1);
	ops = answer->succeeded ? request->success : request->failure;
	nops = answer->succeeded ? request->nsuccess : request->nfailure;
	for (int i = 0; i < nops; i++)
	{
		if (ops[i].kind == ETCD_OP_PUT && ops[i].lease != 0 && store_find_lease(ops[i].lease) == NULL)
		{
			refuse(answer, ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found");
			return;
		}
		changes |= ops[i].kind == ETCD_OP_PUT ||
			(ops[i].kind == ETCD_OP_DELETE && newest(store_intern(ops[i].key)) != NULL);
	}
	if (changes)
		entries[nentries - 1].revision++;
	answer->nresults = nops;
	answer->results = run_alloc((nops + 1) * sizeof(EtcdResult));
	for (int i = 0; i < nops; i++)
	{
		EtcdResult *result = &answer->results[i];

		result->kind = ops[i].kind;
		switch (ops[i].kind)
		{
			case ETCD_OP_PUT:
				put_key(ops[i].key, ops[i].value, ops[i].lease, cause);
				break;
			case ETCD_OP_DELETE:
				{
					int			key = store_intern(ops[i].key);

					if (newest(key) != NULL)
					{
						delete_key(key, cause);
						result->deleted = 1;
					}
					break;
				}
			case ETCD_OP_RANGE:
				read_range(nentries - 1, &ops[i], result);
				break;
			case ETCD_OP_EMPTY_TXN:
				break;
		}
	}
}

void
store_write(uint64_t term, const EtcdRequest *request, Cause cause, EtcdAnswer *answer)
{
	int			from = nversions;
	StoreLease *lease = store_find_lease(request->lease);

	store_append(term);
	memset(answer, 0, sizeof(*answer));
	answer->outcome = ETCD_ANSWERED;
	switch (request->kind)
	{
		case ETCD_GRANT:
			answer->lease = request->lease;
			answer->ttl_s = request->ttl_s;
			if (lease != NULL)
				refuse(answer, ETCD_CODE_FAILED_PRECONDITION, "etcdserver: lease already exists");
			else
				add_lease(request->lease, request->ttl_s);
			break;
		case ETCD_REVOKE:
			if (lease == NULL)
				refuse(answer, ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found");
			else
				end_lease(lease, cause);
			break;
		case ETCD_TXN:
			write_txn(request, cause, answer);
			break;
		case ETCD_KEEPALIVE:
		case ETCD_AUTHENTICATE:
		case ETCD_LIST_MEMBERS:
		case ETCD_STATUS:
		case ETCD_TIME_TO_LIVE:
			abort();			/* these are not in the log */
	}
	answer->header.revision = entries[nentries - 1].revision;
	tell_changed(from);
}

void
store_read(int64_t index, const EtcdRequest *request, EtcdAnswer *answer)
{
	const EtcdOp *ops;

	memset(answer, 0, sizeof(*answer));
	answer->outcome = ETCD_ANSWERED;
	answer->header.revision = entries[index].revision;
	answer->succeeded = compares_hold(request, index);
	ops = answer->succeeded ? request->success : request->failure;
	answer->nresults = answer->succeeded ? request->nsuccess : request->nfailure;
	answer->results = run_alloc((answer->nresults + 1) * sizeof(EtcdResult));
	for (int i = 0; i < answer->nresults; i++)
	{
		answer->results[i].kind = ops[i].kind;
		if (ops[i].kind == ETCD_OP_RANGE)
			read_range(index, &ops[i], &answer->results[i]);
	}
}

void
store_restore(int64_t index)
{
	int			n = 0;

	while (nversions > 0 && versions[nversions - 1].index > index)
	{
		nversions--;
		keys[versions[nversions].key].last_version = versions[nversions].previous;
	}
	nentries = (int) index + 1;
	counted_index = -1;
	for (int i = 0; i < nleases; i++)
	{
		StoreLease *lease = leases[i];

		if (lease->revoked_index > index)
			lease->revoked_index = 0;
		lease->revoking = false;
		if (lease->granted_index <= index)
			leases[n++] = lease;
	}
	nleases = n;
	memset(lease_buckets, -1, sizeof(lease_buckets));
	for (int i = 0; i < nleases; i++)
	{
		int			bucket = bucket_of_lease(leases[i]->id);

		leases[i]->next_in_bucket = lease_buckets[bucket];
		lease_buckets[bucket] = i;
	}
	nlive = 0;
	for (int i = 0; i < nkeys; i++)
	{
		if (newest(i) != NULL)
		{
			GROW(live, nlive, live_room);
			live[nlive++] = i;
		}
	}
	if (nlive > 0)
		qsort(live, nlive, sizeof(int), compare_live);
}
