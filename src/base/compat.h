/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between the supported releases of PostgreSQL, 15 to 19.
 *
 * This is the only file that looks at PG_VERSION_NUM.  A file includes it after
 * postgres.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef COMPAT_H
#define COMPAT_H

#if PG_VERSION_NUM < 150000
#error "etcd_leader needs PostgreSQL 15 or later"
#endif

/*
 * A newer release may work.  #warning would not do, since -Werror makes it an
 * error.
 */
#if PG_VERSION_NUM >= 200000
#pragma message "etcd_leader supports PostgreSQL 15 to 19, and nobody has tested this release"
#endif

#include "catalog/pg_database.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "libpq/hba.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "postmaster/bgworker_internals.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/* 17: the number of a backend is a ProcNumber. */
#if PG_VERSION_NUM >= 170000
#include "storage/procnumber.h"
#endif

/* 16: files of authentication can include others. */
#if PG_VERSION_NUM >= 160000
#include "utils/conffiles.h"
#endif

/* 18: wait event sets moved out of storage/latch.h. */
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

/* 18 renamed pg_attribute_noreturn(), and wants it at the beginning of a declaration. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 19: signal handlers have a second argument, so SIG_IGN and SIG_DFL do not fit. */
#if PG_VERSION_NUM < 190000
#define PG_SIG_IGN SIG_IGN
#define PG_SIG_DFL SIG_DFL
#endif

/*
 * 18: a library can declare its name and version for pg_get_loaded_modules().
 */
#if PG_VERSION_NUM >= 180000
#define COMPAT_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "etcd_leader", .version = ETCD_LEADER_VERSION)
#else
#define COMPAT_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/*
 * 19: the server ends a worker with this flag when a statement needs the database
 * of the worker for itself.  Earlier releases have no such flag.
 */
#if PG_VERSION_NUM >= 190000
#define COMPAT_BGWORKER_INTERRUPTIBLE BGWORKER_INTERRUPTIBLE
#else
#define COMPAT_BGWORKER_INTERRUPTIBLE 0
#endif

/*
 * The number of this process, for GetPGProcByNumber() in any process.  Until 16 it
 * is a field of PGPROC, since 17 a variable.
 */
static inline int
compat_my_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/*
 * A wait event with a name of its own.  Before 17 every extension waits as
 * "Extension".  Since 17 all processes have the same number for a name.  The search
 * for the number takes a lock, so the caller keeps the result.
 */
static inline uint32
compat_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	(void) name;
	return PG_WAIT_EXTENSION;
#endif
}

/*
 * A wait event set that lives until the caller frees it.  Until 16 it belongs to a
 * memory context, since 17 to a resource owner or to none.
 */
static inline WaitEventSet *
compat_create_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/*
 * The parameters of ExecutorRun_hook, and the arguments that the hook passes on.
 * 18 removed execute_once.
 */
#if PG_VERSION_NUM >= 180000
#define COMPAT_EXECUTOR_RUN_PARAMS \
	QueryDesc *query_desc, ScanDirection direction, uint64 count
#define COMPAT_EXECUTOR_RUN_ARGS query_desc, direction, count
#else
#define COMPAT_EXECUTOR_RUN_PARAMS \
	QueryDesc *query_desc, ScanDirection direction, uint64 count, bool execute_once
#define COMPAT_EXECUTOR_RUN_ARGS query_desc, direction, count, execute_once
#endif

/* The last parameter of post_parse_analyze_hook, which 19 made constant. */
#if PG_VERSION_NUM >= 190000
typedef const JumbleState CompatJumbleState;
#else
typedef JumbleState CompatJumbleState;
#endif

/* A superuser owns every database.  16 has one check for objects of all kinds. */
static inline bool
compat_is_database_owner(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, role);
#else
	return pg_database_ownercheck(database, role);
#endif
}

/* Runs a portal to its end, at the top level.  18 removed run_once. */
static inline void
compat_portal_run(Portal portal, DestReceiver *receiver)
{
	QueryCompletion completion;

#if PG_VERSION_NUM >= 180000
	(void) PortalRun(portal, FETCH_ALL, true, receiver, receiver, &completion);
#else
	(void) PortalRun(portal, FETCH_ALL, true, true, receiver, receiver, &completion);
#endif
}

/*
 * Memory for the "extra" of a GUC check hook; NULL if memory is out.  guc.c frees
 * the "extra": by free() in 15, by guc_free() since 16.
 */
static inline void *
compat_guc_malloc(size_t size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return malloc(size);
#endif
}

/*
 * The tokenizer of pg_hba.conf, for a file that is open already.  Since 16
 * open_auth_file() makes the memory of all lines, and free_auth_file() frees it.
 * So these functions open and close a file without lines around the work.
 */
static inline FILE *
compat_begin_tokenizing(void)
{
#if PG_VERSION_NUM >= 160000
	char	   *error;
	FILE	   *file = open_auth_file(DEVNULL, LOG, CONF_FILE_START_DEPTH, &error);

	if (file == NULL)
		ereport(ERROR, (errcode_for_file_access(), errmsg_internal("%s", error)));
	return file;
#else
	return NULL;
#endif
}

static inline void
compat_tokenize(const char *path, FILE *file, List **lines)
{
#if PG_VERSION_NUM >= 160000
	tokenize_auth_file(path, file, lines, DEBUG1, CONF_FILE_START_DEPTH);
#else
	(void) tokenize_auth_file(path, file, lines, DEBUG1);
#endif
}

static inline void
compat_end_tokenizing(FILE *tokenizer)
{
#if PG_VERSION_NUM >= 160000
	free_auth_file(tokenizer, CONF_FILE_START_DEPTH);
#else
	(void) tokenizer;
#endif
}

/*
 * All settings that the server knows.  Since 16 they are in a hash table, and the
 * result is a palloc'd copy.
 */
static inline struct config_generic **
compat_guc_variables(int *count)
{
#if PG_VERSION_NUM >= 160000
	return get_guc_variables(count);
#else
	*count = GetNumConfigOptions();
	return get_guc_variables();
#endif
}

/*
 * May the current user call this function?  16 has one check for objects of all
 * kinds.
 */
static inline bool
compat_may_execute(Oid function)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/*
 * The value of a setting as text for set_config_option(), palloc'd; NULL: the setting
 * has no value.  GetConfigOption() would round a real.  19 moved the fields of each
 * type into config_generic.
 */
static inline char *
compat_guc_value(const struct config_generic *setting)
{
	const char *value;

	if (setting->vartype == PGC_REAL)
#if PG_VERSION_NUM >= 190000
		return psprintf("%.17g", *setting->_real.variable);
#else
		return psprintf("%.17g", *((const struct config_real *) setting)->variable);
#endif
#if PG_VERSION_NUM >= 190000
	if (setting->vartype == PGC_STRING && *setting->_string.variable == NULL)
		return NULL;
#else
	if (setting->vartype == PGC_STRING &&
		*((const struct config_string *) setting)->variable == NULL)
		return NULL;
#endif
	value = GetConfigOption(setting->name, true, false);
	return value ? pstrdup(value) : NULL;
}

/*
 * Sets a string setting to NULL.  set_config_option() cannot do that.
 */
static inline void
compat_guc_forget_string(struct config_generic *setting)
{
#if PG_VERSION_NUM >= 190000
	*setting->_string.variable = NULL;
	setting->_string.reset_val = NULL;
#else
	struct config_string *string = (struct config_string *) setting;

	*string->variable = NULL;
	string->reset_val = NULL;
#endif
}

/*
 * Has the postmaster accepted a worker that runs this function?
 * RegisterBackgroundWorker() reports a refusal to the server log only.  The process
 * that registers the worker calls this.  Since 18 the list of workers has links in
 * both directions.
 */
static inline bool
compat_is_worker_registered(const char *function_name)
{
#if PG_VERSION_NUM >= 180000
	dlist_iter	iter;

	dlist_foreach(iter, &BackgroundWorkerList)
	{
		const RegisteredBgWorker *worker = dlist_container(RegisteredBgWorker, rw_lnode, iter.cur);
#else
	slist_iter	iter;

	slist_foreach(iter, &BackgroundWorkerList)
	{
		const RegisteredBgWorker *worker = slist_container(RegisteredBgWorker, rw_lnode, iter.cur);
#endif

		if (strcmp(worker->rw_worker.bgw_function_name, function_name) == 0)
			return true;
	}
	return false;
}

#endif							/* COMPAT_H */
