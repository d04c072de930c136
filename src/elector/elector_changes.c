/*-------------------------------------------------------------------------
 *
 * elector_changes.c
 *	  Changes of keys below etcd_leader.watched_prefixes, and reads of such
 *	  keys for etcd_get().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector_internal.h"
#include "etcd/etcd_text.h"
#include "protocol/changes.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/mailbox.h"
#include "shared/stats.h"

/* The watch stream of changes, beside that of the protocol. */
#define CHANGES_STREAM		1

static Changes *changes;
static char *prefixes[CHANGES_MAX_PREFIXES];
static int	nprefixes;
static bool events_are_new;		/* nobody has been woken for them yet */

/* The read for etcd_get(); there is one at a time, as there is one place for it. */
static SharedRequest get_request;
static int	get_tries;

/* ---- the way out of changes.c ------------------------------------------------- */

static void
receive(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	elector_note_answer(ABOUT_CHANGES, answer, timing);
	if (answer->outcome == ETCD_ANSWERED)
		elector_clear_error(ABOUT_CHANGES);
	changes_receive(changes, clock_now_ns(), id, answer);
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	stats_count(COUNTER_REQUESTS, 1);
	etcd_client_send(elector.client, receive, id, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	if (nwatches > 0)
		stats_count(COUNTER_WATCH_RESTARTS, 1);
	etcd_client_watch(elector.client, CHANGES_STREAM, watches, nwatches);
}

/* Each change goes into its ring at once, and never to the log. */
static void
port_announce(void *ctx, const EtcdWatchEvent *change)
{
	SharedEvent event;

	memset(&event, 0, sizeof(event));
	event.at = GetCurrentTimestamp();
	event.kind = EVENT_CHANGE;
	strlcpy(event.node, elector.contact.node_name, sizeof(event.node));
	if (change == NULL)
		strlcpy(event.reason, EVENT_REASON_GAP, sizeof(event.reason));
	else
	{
		bool		cut = etcd_copy_text(event.key, sizeof(event.key), change->kv.key);
		bool		binary = !etcd_is_text(change->kv.key);

		event.has_value = !change->is_delete;
		if (event.has_value)
		{
			cut |= etcd_copy_text(event.value, sizeof(event.value), change->kv.value);
			binary |= !etcd_is_text(change->kv.value);
		}
		event.revision = change->kv.mod_revision;
		snprintf(event.reason, sizeof(event.reason), "%s%s%s", binary ? "binary" : "",
				 binary && cut ? ", " : "", cut ? "truncated" : "");
	}
	events_append(&event);
	events_are_new = true;
}

static uint64_t
port_random(void *ctx)
{
	return pg_prng_uint64(&pg_global_prng_state);
}

/* ---- life ---------------------------------------------------------------------- */

void
elector_begin_changes(void)
{
	static const ChangesPort port = {
		.send = port_send,
		.watch = port_watch,
		.announce = port_announce,
		.random = port_random
	};

	changes = changes_create(&port);
	if (changes == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
}

/*
 * The elections may be others than when the prefixes were checked.  Elections
 * go first.
 */
void
elector_configure_changes(void)
{
	List	   *list = settings_split(settings_watched_prefixes);
	ListCell   *cell;

	for (int i = 0; i < nprefixes; i++)
		free(prefixes[i]);
	nprefixes = 0;
	elector_clear_error(ABOUT_CHANGES);
	foreach(cell, list)
	{
		const char *prefix = lfirst(cell);
		const char *election = settings_find_election_within(prefix);

		if (election != NULL)
			elector_note_formatted_error(ABOUT_SETTINGS, true,
										 "\"etcd_leader.watched_prefixes\" is ignored for prefix \"%s\", which has keys of election \"%s\"",
										 prefix, election);
		else if ((prefixes[nprefixes] = strdup(prefix)) != NULL)
			nprefixes++;
	}
	changes_configure(changes, clock_now_ns(), (const char *const *) prefixes, nprefixes,
					  settings_ttl_s * 1000 * NSEC_PER_MSEC / 3);
	list_free(list);
}

void
elector_end_changes(void)
{
	if (changes != NULL)
		changes_configure(changes, clock_now_ns(), NULL, 0, 0);
}

void
elector_tick_changes(void)
{
	changes_tick(changes, clock_now_ns());
}

int64
elector_changes_wakeup_ns(void)
{
	return changes_wakeup_ns(changes);
}

void
elector_wake_for_changes(void)
{
	if (events_are_new)
		events_wake_all();
	events_are_new = false;
}

/* ---- what comes from etcd --------------------------------------------------------- */

void
elector_watched_changes(const EtcdWatchFrame *frame)
{
	/* after a compaction the stream goes on, and a gap says so */
	if (frame->canceled && frame->compact_revision == 0)
		elector_note_error(ABOUT_CHANGES, frame->message[0] != '\0' ? frame->message : "etcd canceled the watch",
						   !frame->lost_token);
	changes_watched(changes, clock_now_ns(), frame);
}

void
elector_changes_ended(EtcdOutcome outcome, const char *why)
{
	/* if etcd is away, the elections log it */
	elector_note_error(outcome == ETCD_GARBAGE ? ABOUT_CHANGES : ABOUT_ETCD, why, outcome == ETCD_GARBAGE);
	changes_watch_ended(changes, clock_now_ns(), outcome);
}

/* ---- etcd_get() ----------------------------------------------------------------------- */

static bool
begins_with(const char *text, size_t len, const char *prefix)
{
	return len >= strlen(prefix) && memcmp(text, prefix, strlen(prefix)) == 0;
}

/*
 * Reads only keys below the watched prefixes, for every caller.  The page
 * holds the requested key, and after it the key with which to begin: the same
 * one, or a later one.
 */
static bool
is_watched(const SharedRequest *request, const char *page)
{
	const char *first = page + request->key_len;

	if (request->first_len < request->key_len || memcmp(first, page, request->key_len) != 0)
		return false;
	for (int i = 0; i < nprefixes; i++)
	{
		if (begins_with(page, request->key_len, prefixes[i]))
			return true;
	}
	return false;
}

static void receive_get(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing);

static void
send_get(void)
{
	const char *page = mailbox_page;
	char	   *end = NULL;
	EtcdOp		range = {.kind = ETCD_OP_RANGE};
	EtcdRequest txn = {.kind = ETCD_TXN, .success = &range, .nsuccess = 1, .is_large = true};

	range.key.data = page + get_request.key_len;
	range.key.len = get_request.first_len;
	if (get_request.prefix)
	{
		/* the key is UTF-8, whose last byte can be increased */
		end = palloc(get_request.key_len);
		memcpy(end, page, get_request.key_len);
		end[get_request.key_len - 1]++;
		range.range_end.data = end;
		range.range_end.len = get_request.key_len;
		range.limit = get_request.limit;
	}
	range.revision = get_request.at_revision;
	get_tries++;
	stats_count(COUNTER_REQUESTS, 1);
	etcd_client_send(elector.client, receive_get, 0, &txn);
	if (end != NULL)
		pfree(end);
}

void
elector_begin_get(int place, const SharedRequest *request)
{
	get_request = *request;
	get_tries = 0;
	if (is_watched(request, mailbox_page))
		send_get();
	else
		mailbox_reply_failure(place, REPLY_NOT_WATCHED, "");
}

/* Appends a key to the page; false if there is no room. */
static bool
put_key(char *page, size_t *len, const EtcdKeyValue *kv)
{
	SharedKeyValue head = {
		.create_revision = kv->create_revision,
		.mod_revision = kv->mod_revision,
		.key_len = kv->key.len,
		.value_len = kv->value.len
	};

	if (kv->key.len > SHARED_PAGE_SIZE || kv->value.len > SHARED_PAGE_SIZE ||
		sizeof(head) + kv->key.len + kv->value.len > SHARED_PAGE_SIZE - *len)
		return false;
	memcpy(page + *len, &head, sizeof(head));
	memcpy(page + *len + sizeof(head), kv->key.data, kv->key.len);
	memcpy(page + *len + sizeof(head) + kv->key.len, kv->value.data, kv->value.len);
	*len += sizeof(head) + kv->key.len + kv->value.len;
	return true;
}

static void
receive_get(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	int			place = MAILBOX_PAGE_PLACE;
	SharedReply *reply;
	const EtcdResult *result;

	elector_note_answer(ABOUT_NOTHING, answer, timing);
	if (!mailbox_is_taken(place))
		return;
	if (answer->outcome != ETCD_ANSWERED || answer->nresults != 1)
	{
		if (etcd_blames_endpoint(answer->outcome, answer->code, answer->message) &&
			get_tries < etcd_client_endpoint_count(elector.client))
			send_get();
		else
			mailbox_reply_failure(place, answer->code == ETCD_CODE_RESOURCE_EXHAUSTED ? REPLY_TOO_LARGE : REPLY_FAILED,
								  answer->message);
		return;
	}
	reply = palloc0(sizeof(SharedReply));
	reply->kind = REPLY_PAGE;
	reply->revision = get_request.at_revision > 0 ? get_request.at_revision : answer->header.revision;
	result = &answer->results[0];
	while (reply->nkeys < result->nkvs && put_key(mailbox_page, &reply->page_len, &result->kvs[reply->nkeys]))
		reply->nkeys++;
	reply->more = reply->nkeys < result->nkvs || (get_request.prefix && result->nkvs >= get_request.limit);
	if (reply->nkeys == 0 && result->nkvs > 0)
		reply->kind = REPLY_TOO_LARGE;
	mailbox_reply(place, reply);
	pfree(reply);
}
