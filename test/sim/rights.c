/*-------------------------------------------------------------------------
 *
 * rights.c
 *	  The rights that etcd's user of the instances has to the keys of each
 *	  election (auth.go in etcd).
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "instance.h"
#include "plan.h"
#include "rights.h"
#include "store.h"

static Rights rights[MAX_ELECTIONS];
static int64_t missed_until_ns[MAX_ELECTIONS];	/* NEVER: they are missing now */
static int64_t changed_ns;

void
rights_reset(void)
{
	memset(rights, 0, sizeof(rights));
	memset(missed_until_ns, -1, sizeof(missed_until_ns));
	changed_ns = -1;
}

void
rights_set(int election, Rights new_rights)
{
	missed_until_ns[election] = new_rights == RIGHTS_ALL ? now_ns : NEVER;
	rights[election] = new_rights;
	changed_ns = now_ns;
}

bool
rights_missed_since(int election, int64_t since_ns)
{
	return missed_until_ns[election] >= since_ns;
}

bool
rights_changed_since(int64_t since_ns)
{
	return changed_ns >= since_ns;
}

static Rights
rights_to(EtcdBytes key)
{
	for (int e = 0; e < plan.nelections; e++)
	{
		size_t		len = strlen(election_name(e));

		if (rights[e] != RIGHTS_ALL && key.len > len && memcmp(key.data, election_name(e), len) == 0 && key.data[len] == '/')
			return rights[e];
	}
	return RIGHTS_ALL;
}

/* etcd asks for the rights of both branches of a txn, whichever it executes. */
static bool
allow_ops(const EtcdOp *ops, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (ops[i].kind == ETCD_OP_EMPTY_TXN)
			continue;
		if (rights_to(ops[i].key) > (ops[i].kind == ETCD_OP_RANGE ? RIGHTS_TO_READ : RIGHTS_ALL))
			return false;
	}
	return true;
}

/* May the user write each key on the lease? */
static bool
allow_lease(int64_t lease)
{
	for (int i = 0; i < store_live_count(); i++)
	{
		const Version *version = store_live(i);

		if (version->lease == lease && rights_to(store_key(version->key)->name) != RIGHTS_ALL)
			return false;
	}
	return true;
}

bool
rights_allow(const EtcdRequest *request)
{
	switch (request->kind)
	{
		case ETCD_TXN:
			for (int i = 0; i < request->nsuccess; i++)
			{
				if (request->success[i].kind == ETCD_OP_PUT && !allow_lease(request->success[i].lease))
					return false;
			}
			for (int i = 0; i < request->ncompares; i++)
			{
				if (rights_to(request->compares[i].key) > RIGHTS_TO_READ)
					return false;
			}
			return allow_ops(request->success, request->nsuccess) && allow_ops(request->failure, request->nfailure);
		case ETCD_REVOKE:
			return allow_lease(request->lease);
		case ETCD_KEEPALIVE:
			return !plan.denies_renewals || allow_lease(request->lease);
		default:
			return true;
	}
}

bool
rights_allow_watch(const EtcdWatch *watch)
{
	return rights_to(watch->key) != RIGHTS_NONE;
}
