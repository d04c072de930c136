/*-------------------------------------------------------------------------
 *
 * get.c
 *	  etcd_get(): keys below the watched prefixes, as etcd has them now.
 *
 * The elector reads them page by page, all as of the revision of the first
 * page.  Nobody knows how large values are before they have been read.  So the
 * first page asks for few keys, each next one for more, as long as pages are
 * small, and for fewer if an answer is too large.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "arguments.h"
#include "base/compat.h"
#include "base/utf8.h"
#include "commands.h"
#include "etcd/text.h"
#include "get.h"
#include "rows.h"
#include "shared/mailbox.h"

PG_FUNCTION_INFO_V1(etcd_get);

#define FIRST_LIMIT		16
#define GREATEST_LIMIT	1024

/* A page that is smaller than this lets the next one ask for more. */
#define SMALL_PAGE_SIZE	(SHARED_PAGE_SIZE / 8)

/* The longest key that can be read. etcd itself has no such limit. */
#define MAX_KEY_SIZE	(64 * 1024)

static const Oid get_columns[] = {TEXTOID, TEXTOID, INT8OID, INT8OID};

/* The key argument, in UTF-8. */
static char *
key_argument(FunctionCallInfo fcinfo)
{
	char	   *key = arguments_get_text(fcinfo, 0, "the key to read");

	if (strlen(key) > MAX_KEY_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the key to read must be at most %d bytes long", MAX_KEY_SIZE)));
	return key;
}

/* Converts bytes of etcd to text in the database's encoding, or to hex. */
static Datum
text_datum(const char *data, Size len)
{
	EtcdBytes	bytes = {data, len};
	Size		size = etcd_is_text(bytes) ? len + 1 : 2 * len + 1;
	char	   *buffer = palloc(size);

	(void) etcd_copy_text(buffer, size, bytes);
	return CStringGetTextDatum(utf8_data_to_server(buffer));
}

/*
 * Adds the keys of a page to the result.  The last one is left where the page
 * was, for the next one.
 */
static void
put_keys(FunctionCallInfo fcinfo, const char *page, int nkeys, const char **last, Size *last_len)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "etcd_get row",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller_context = MemoryContextSwitchTo(context);

	for (int i = 0; i < nkeys; i++)
	{
		SharedKeyValue head;
		Row			row = {0};

		memcpy(&head, page, sizeof(head));
		page += sizeof(head);
		row_add_value(&row, text_datum(page, head.key_len));
		row_add_value(&row, text_datum(page + head.key_len, head.value_len));
		row_add_value(&row, Int64GetDatum(head.create_revision));
		row_add_value(&row, Int64GetDatum(head.mod_revision));
		row_put(fcinfo, &row);
		*last = page;
		*last_len = head.key_len;
		page += head.key_len + head.value_len;
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller_context);
	MemoryContextDelete(context);
}

/* Turns every reply that is not a result into an ERROR. */
static void
check_reply(const SharedReply *reply, const char *key)
{
	if (reply->kind == REPLY_NO_ELECTOR)
		commands_raise_no_elector();
	if (reply->kind == REPLY_NOT_WATCHED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("key \"%s\" is not below a watched prefix", utf8_to_server(key)),
				 errhint("The prefixes are those listed in \"%s\".",
						 "etcd_leader.watched_prefixes")));
	if (reply->kind == REPLY_TOO_LARGE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a value below key \"%s\" is too large to be read", utf8_to_server(key)),
				 errdetail("A key and its value must be smaller than %d bytes.",
						   SHARED_PAGE_SIZE)));
	if (reply->kind != REPLY_PAGE)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not read key \"%s\" from etcd: %s", utf8_to_server(key),
						utf8_to_server(reply->error))));
}

bool
get_is_allowed(FunctionCallInfo fcinfo)
{
	static const Oid types[] = {TEXTOID, BOOLOID};
	Oid			namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										   CStringGetDatum("etcd_get"),
										   PointerGetDatum(buildoidvector(types, lengthof(types))),
										   ObjectIdGetDatum(namespace));

	return OidIsValid(function) && compat_may_execute(function);
}

/*
 * etcd_get(key text, prefix boolean) returns setof etcd_leader_key_value
 */
Datum
etcd_get(PG_FUNCTION_ARGS)
{
	SharedRequest request = {.command = COMMAND_GET, .limit = FIRST_LIMIT};
	SharedReply *reply;
	char	   *page;
	char	   *key;

	arguments_require_preloaded();
	ROWS_BEGIN(get_columns);
	key = key_argument(fcinfo);
	reply = palloc(sizeof(SharedReply));
	page = palloc(SHARED_PAGE_SIZE);
	request.prefix = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	request.key_len = request.first_len = strlen(key);
	memcpy(page, key, request.key_len);
	memcpy(page + request.key_len, key, request.key_len);

	for (;;)
	{
		const char *last = key;
		Size		last_len = 0;

		/* keep the request, in case the answer is too large */
		(void) mailbox_ask_page(&request, PG_INT64_MAX, reply, page,
								request.key_len + request.first_len);
		if (reply->kind == REPLY_TOO_LARGE && request.prefix && request.limit > 1)
		{
			request.limit = Max(request.limit / 4, 1);
			continue;
		}
		check_reply(reply, key);
		put_keys(fcinfo, page, reply->nkeys, &last, &last_len);
		if (!reply->more)
			break;

		/* the next key is the last one and a NUL */
		if (request.key_len + last_len + 1 > SHARED_PAGE_SIZE)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a key below \"%s\" is too long to be read", utf8_to_server(key))));
		memmove(page + request.key_len, last, last_len);
		memcpy(page, key, request.key_len);
		page[request.key_len + last_len] = '\0';
		request.first_len = last_len + 1;
		request.at_revision = reply->revision;
		if (reply->page_len < SMALL_PAGE_SIZE)
			request.limit = Min(2 * request.limit, GREATEST_LIMIT);
	}
	return (Datum) 0;
}
