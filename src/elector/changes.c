/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Changes of keys below etcd_leader.watched_prefixes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector/changes.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/problems.h"
#include "elector/refusals.h"
#include "etcd/text.h"
#include "protocol/changes.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/stats.h"

/* The subject of problems. */
#define PREFIXES			"etcd_leader.watched_prefixes"

/* The watch stream of changes, beside that of the protocol. */
#define CHANGES_STREAM		1

static Changes *changes;
static char *prefixes[CHANGES_MAX_PREFIXES];
static int	nprefixes;
static bool events_are_new;		/* nobody has been woken for them yet */

/* ---- the way out of changes.c ------------------------------------------------- */

static void
receive(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	elector_note_answer(PREFIXES, answer, timing);
	changes_receive(changes, clock_now_ns(), id, answer);
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	stats_count(COUNTER_REQUESTS, 1);
	etcd_client_send(elector_client, receive, id, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	if (nwatches > 0)
		stats_count(COUNTER_WATCH_RESTARTS, 1);
	etcd_client_watch(elector_client, CHANGES_STREAM, watches, nwatches);
}

/* Each change goes into its ring at once, and never to the log. */
static void
port_announce(void *ctx, const EtcdWatchEvent *change)
{
	SharedEvent event;

	memset(&event, 0, sizeof(event));
	event.at = GetCurrentTimestamp();
	event.kind = EVENT_CHANGE;
	strlcpy(event.node, elector_contact()->node_name, sizeof(event.node));
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
	problem_end(PROBLEM_SETTINGS, PREFIXES);
	foreach(cell, list)
	{
		const char *prefix = lfirst(cell);
		const char *election = settings_find_election_within(prefix);

		if (election != NULL)
			problem_begin(PROBLEM_SETTINGS, PREFIXES, PROBLEM_LASTS,
						  "Watch keys of other programs alone.",
						  "\"etcd_leader.watched_prefixes\" is ignored for prefix \"%s\", which "
						  "has keys of election \"%s\"",
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

int64
elector_tick_changes(void)
{
	changes_tick(changes, clock_now_ns());
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
		elector_note_failure(frame->message[0] != '\0' ? frame->message :
							 "etcd canceled the watch");
	changes_watched(changes, clock_now_ns(), frame);
}

void
elector_changes_ended(EtcdOutcome outcome, const char *why)
{
	elector_note_failure(why);
	changes_watch_ended(changes, clock_now_ns(), outcome);
}

/* ---- etcd_get() ----------------------------------------------------------------------- */

bool
elector_watches_key(const char *key, size_t len)
{
	for (int i = 0; i < nprefixes; i++)
	{
		if (len >= strlen(prefixes[i]) && memcmp(key, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	}
	return false;
}
