/*-------------------------------------------------------------------------
 *
 * hook_elections.c
 *	  The elections that have hooks, as a hook launcher sees them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "hook_elections.h"
#include "hook_register.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/shared_state.h"
#include "shared/status.h"

#define NS_PER_MS	INT64CONST(1000000)

/* How long after its start an instance that does not lead may still be about to lead. */
#define START_GRACE_NS		(1000 * NS_PER_MS)

List	   *hook_elections = NIL;

static int	slot;				/* of the database, in the notifier register */
static int64 began_ns;
static int64 events_seen = 0;	/* the last event that was looked at */
static int64 events_before;		/* what came up to this is dealt with */

void
hook_elections_begin(int notifier_slot)
{
	slot = notifier_slot;
	began_ns = shared_state_clock_ns();
	events_before = hook_register_handled(slot);
	if (events_before == 0)
		events_before = events_last();
}

HookElection *
hook_elections_find(const char *name)
{
	MemoryContext context;
	HookElection *election;
	ListCell   *cell;

	foreach(cell, hook_elections)
	{
		election = lfirst(cell);
		if (strcmp(election->name, name) == 0)
			return election;
	}
	context = MemoryContextSwitchTo(TopMemoryContext);
	election = palloc0(sizeof(HookElection));
	strlcpy(election->name, name, ELECTION_NAME_SIZE);
	election->shown = shared_state_text(name);
	election->starting = hook_register_handled(slot) == 0;
	hook_elections = lappend(hook_elections, election);
	MemoryContextSwitchTo(context);
	return election;
}

/*
 * A leadership has ended, by the state or by an event.  A later report of the
 * same loss is ignored, since tokens increase.
 */
static void
note_loss(HookElection *election, int64 token, int64 seq)
{
	MemoryContext context;
	HookLoss   *loss;
	ListCell   *cell;

	if (token <= election->last_lost && token != 0)
	{
		foreach(cell, election->losses)
		{
			loss = lfirst(cell);
			if (loss->token == token && loss->seq == 0)
				loss->seq = seq;
		}
		return;
	}
	context = MemoryContextSwitchTo(TopMemoryContext);
	loss = palloc(sizeof(HookLoss));
	loss->token = token;
	loss->seq = seq;
	election->losses = lappend(election->losses, loss);
	MemoryContextSwitchTo(context);
	election->last_lost = Max(election->last_lost, token);
	election->lost_at_ns = shared_state_clock_ns();
	election->starting = false;
}

static void
look_at_event(const SharedEvent *event, bool is_handled)
{
	HookElection *election;

	if (event->kind != ELECTION_EVENT_ELECTED && event->kind != ELECTION_EVENT_UNELECTED)
		return;
	election = hook_elections_find(event->election);
	if (event->kind == ELECTION_EVENT_ELECTED)
		election->event_token = event->leader_revision;
	else
	{
		if (is_handled)
			election->last_lost = Max(election->last_lost, election->event_token);
		else
			note_loss(election, election->event_token, event->seq);
		election->event_token = 0;
	}
}

int64
hook_elections_token(const HookElection *election)
{
	return status_token(settings_election_index(election->name, (int) strlen(election->name)));
}

/*
 * Brings the elections up to date.  The state is read after the events.  A
 * loss that the state shows and no event reports yet is noted at once, since
 * the deadline ends a leadership also if there is no elector to report it.
 * Needs a transaction.
 */
void
hook_elections_look(void)
{
	SharedEvent event;
	ListCell   *cell;

	while (events_next_but_changes(events_seen, &event))
	{
		look_at_event(&event, event.seq <= events_before);
		events_seen = event.seq;
	}
	foreach(cell, hook_elections)
	{
		HookElection *election = lfirst(cell);
		int64		token = hook_elections_token(election);

		if (token == election->token)
			continue;
		if (election->token != 0)
			note_loss(election, election->token, 0);
		if (token != 0)
		{
			election->starting = false;
			if (token <= election->last_lost)	/* it was not lost after all */
				election->last_lost = token - 1;
		}
		election->token = token;
	}
}

bool
hook_elections_have_news(void)
{
	SharedEvent event;
	ListCell   *cell;

	if (events_next_but_changes(events_seen, &event))
		return true;
	foreach(cell, hook_elections)
	{
		const HookElection *election = lfirst(cell);

		if (hook_elections_token(election) != election->token)
			return true;
	}
	return false;
}

/* Is it clear, after the start of the server, that this instance does not lead? */
static bool
does_not_lead(const HookElection *election)
{
	SharedElection shared;
	int			index = settings_election_index(election->name, (int) strlen(election->name));

	return shared_state_clock_ns() - began_ns > START_GRACE_NS ||
		(status_read(index, &shared) && shared.view.has_leader && shared.view.role != ELECTION_LEADER &&
		 shared.view.leader_revision != shared.view.create_revision);
}

void
hook_elections_store_handled(void)
{
	int64		handled = events_seen;
	ListCell   *cell;
	ListCell   *loss_cell;

	foreach(cell, hook_elections)
	{
		HookElection *election = lfirst(cell);

		if (election->starting)
			return;
		foreach(loss_cell, election->losses)
		{
			const HookLoss *loss = lfirst(loss_cell);

			if (loss->seq != 0)
				handled = Min(handled, loss->seq - 1);
		}
	}
	hook_register_set_handled(slot, Max(handled, 1));
}

bool
hook_elections_phase(const HookElection *election, TimestampTz start, HookPhase *phase)
{
	memset(phase, 0, sizeof(HookPhase));
	phase->after = start;
	phase->event = HOOK_UNELECTED;
	if (election->losses != NIL)
		phase->token = ((const HookLoss *) linitial(election->losses))->token;
	else if (election->token != 0)
	{
		phase->event = HOOK_ELECTED;
		phase->token = election->token;
	}
	else
		return election->starting && does_not_lead(election);
	return true;
}

void
hook_elections_end_phase(HookElection *election)
{
	if (election->losses != NIL)
	{
		pfree(linitial(election->losses));
		election->losses = list_delete_first(election->losses);
	}
	else
		election->starting = false;
}

int64
hook_elections_settled_ns(void)
{
	return began_ns + START_GRACE_NS;
}
