/*-------------------------------------------------------------------------
 *
 * events.c
 *	  The events of the protocol: they go to the log, and into the ring in
 *	  shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "elector/contact.h"
#include "elector/events.h"
#include "etcd/text.h"
#include "shared/crash_memory.h"
#include "shared/events.h"
#include "shared/stats.h"

static SharedEvent pending_events[16];	/* to be announced */
static int	npending_events;

bool
elector_has_events(void)
{
	return npending_events > 0;
}

/* The reason, and what failed before. */
static int
errdetail_of_loss(const char *reason)
{
	const char *failure = elector_recent_failure();
	bool		has_expired =
		strcmp(reason, election_reason_name(ELECTION_REASON_LEASE_EXPIRED)) == 0;

	return has_expired && failure != NULL ?
		errdetail("The reason is \"%s\": %s.", reason, failure) :
		errdetail("The reason is \"%s\".", reason);
}

/* Each event goes to the log and into the ring in shared memory. */
static void
announce_event(SharedEvent *event)
{
	switch (event->kind)
	{
		case ELECTION_EVENT_DRAINING:
			ereport(LOG, (errmsg("handing over leadership of election \"%s\"", event->election),
						  errdetail("It takes no new work, and waits for the transactions that "
									"require leadership.")));
			break;
		case ELECTION_EVENT_DRAIN_CANCELLED:
			ereport(LOG, (errmsg("leading election \"%s\" as before: the hand-over was cancelled",
								 event->election),
						  errdetail("The fencing token is %lld.",
									(long long) event->leader_revision)));
			break;
		case ELECTION_EVENT_ELECTED:
			ereport(LOG, (errmsg("elected leader of election \"%s\"", event->election),
						  errdetail("The fencing token is %lld.",
									(long long) event->leader_revision)));
			break;
		case ELECTION_EVENT_UNELECTED:
			ereport(LOG, (errmsg("no longer leader of election \"%s\"", event->election),
						  errdetail_of_loss(event->reason)));
			break;
		case ELECTION_EVENT_LEADER:
			if (event->has_leader)
				ereport(LOG, (errmsg("leader of election \"%s\" is \"%s\"",
									 event->election, etcd_escape_text(event->leader))));
			else
				ereport(LOG, (errmsg("election \"%s\" has no known leader", event->election)));
			break;
		case ELECTION_EVENT_CONNECTED:
			ereport(LOG, (errmsg("connected to etcd at \"%s\"", elector_contact()->endpoint)));
			break;
		case ELECTION_EVENT_DISCONNECTED:	/* the log has the problem */
			break;
	}

	/*
	 * A process that is woken by the event must see the contact that the event
	 * reports.
	 */
	elector_publish_contact();
	events_append(event);
	events_wake_all();
}

void
elector_announce_events(void)
{
	for (int i = 0; i < npending_events; i++)
		announce_event(&pending_events[i]);
	npending_events = 0;
}

/*
 * An event is kept until the requests that follow from it are on their way: a
 * hand-over does not wait for a log, nor for the notifiers that it wakes.
 */
void
elector_announce(void *ctx, const ElectionEvent *event)
{
	SharedEvent *shared;
	const char *reason = election_reason_name(event->reason);

	if (npending_events == lengthof(pending_events))
		elector_announce_events();
	shared = &pending_events[npending_events++];
	memset(shared, 0, sizeof(*shared));
	shared->at = GetCurrentTimestamp();
	shared->kind = event->kind;
	if (event->election)
		strlcpy(shared->election, event->election, sizeof(shared->election));
	strlcpy(shared->node, elector_contact()->node_name, sizeof(shared->node));
	if (event->leader)
	{
		shared->has_leader = true;
		strlcpy(shared->leader, event->leader, sizeof(shared->leader));
		shared->leader_revision = event->leader_revision;
	}
	if (event->detail || reason)
		strlcpy(shared->reason, event->detail ? event->detail : reason, sizeof(shared->reason));

	if (event->kind == ELECTION_EVENT_DRAIN_CANCELLED)
		crash_memory_set_stay_out(event->election, false);
	else if (event->kind == ELECTION_EVENT_ELECTED)
		stats_count_won(event->election);
	else if (event->kind == ELECTION_EVENT_DRAINING)
		stats_count(COUNTER_DRAINS, 1);
	else if (event->kind == ELECTION_EVENT_UNELECTED)
		stats_count_lost(event->election, event->reason);
	else if (event->kind == ELECTION_EVENT_CONNECTED || event->kind == ELECTION_EVENT_DISCONNECTED)
		elector_note_connected(event->kind == ELECTION_EVENT_CONNECTED);
}
