/*-------------------------------------------------------------------------
 *
 * hook_changes.c
 *	  The hooks of changes, as a hook launcher sees them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "hook_changes.h"
#include "hook_records.h"
#include "hook_runs.h"
#include "shared/events.h"
#include "shared/shared_state.h"

typedef struct Follower
{
	char		name[NAMEDATALEN];
	uint32		version;		/* of the hook */
	int64		position;		/* changes up to this event are worked off */
	bool		needs_gap;		/* but those which a gap stands for */
	int64		failed_seq;		/* the change that has failed last */
	int			tries;
	bool		is_held_up;		/* it could not be started the last time */
} Follower;

/* Follower *; the one that was started last is the last. */
static List *followers = NIL;

static Follower *
find_follower(const char *name)
{
	ListCell   *cell;

	foreach(cell, followers)
	{
		Follower   *follower = lfirst(cell);

		if (strcmp(follower->name, name) == 0)
			return follower;
	}
	return NULL;
}

static DueHook *
find_hook(List *hooks, const char *name)
{
	ListCell   *cell;

	foreach(cell, hooks)
	{
		DueHook    *hook = lfirst(cell);

		if (strcmp(hook->name, name) == 0)
			return hook;
	}
	return NULL;
}

/*
 * A hook that is new here begins with what comes from now on.  What came before
 * is a gap, unless nothing has come: then the elector will tell of a gap itself.
 */
static void
begin_following(Follower *follower, uint32 version)
{
	SharedEvent event;

	follower->version = version;
	follower->position = events_last();
	follower->needs_gap = events_next_change(0, &event);
	follower->failed_seq = 0;
	follower->tries = 0;
}

List *
hook_changes_look(void)
{
	List	   *hooks = hook_records_of_changes();
	MemoryContext context;
	ListCell   *cell;

	foreach(cell, hooks)
	{
		const DueHook *hook = lfirst(cell);
		Follower   *follower = find_follower(hook->name);

		if (follower == NULL)
		{
			context = MemoryContextSwitchTo(TopMemoryContext);
			follower = palloc0(sizeof(Follower));
			strlcpy(follower->name, hook->name, sizeof(follower->name));
			followers = lappend(followers, follower);
			MemoryContextSwitchTo(context);
		}
		if (follower->version != hook->version)
		{
			hook_runs_end(hook->name, "the hook was changed");
			begin_following(follower, hook->version);
		}
		follower->is_held_up = false;
	}
	foreach(cell, followers)
	{
		Follower   *follower = lfirst(cell);

		if (find_hook(hooks, follower->name) != NULL)
			continue;
		pfree(follower);
		followers = foreach_delete_current(followers, cell);
	}
	return hooks;
}

/* Is there something to do for it, which nobody does? */
static bool
is_behind(const Follower *follower)
{
	SharedEvent event;

	return !hook_runs_is_running(follower->name) &&
		(follower->needs_gap || events_next_change(follower->position, &event));
}

bool
hook_changes_have_news(void)
{
	ListCell   *cell;

	foreach(cell, followers)
	{
		const Follower *follower = lfirst(cell);

		if (!follower->is_held_up && hook_runs_due_ns(follower->name, follower->version) <= shared_state_clock_ns() && is_behind(follower))
			return true;
	}
	return false;
}

void
hook_changes_hold_up(void)
{
	ListCell   *cell;

	foreach(cell, followers)
		((Follower *) lfirst(cell))->is_held_up = true;
}

/* False if there is no room for it. */
static bool
start(Follower *follower, DueHook *hook)
{
	static const HookPhase phase = {.event = HOOK_CHANGE};
	MemoryContext context;

	hook->begins_with_gap = follower->needs_gap;
	hook->after = follower->position;
	if (!hook_runs_start(NULL, &phase, hook))
		return false;
	context = MemoryContextSwitchTo(TopMemoryContext);
	followers = lappend(list_delete_ptr(followers, follower), follower);
	MemoryContextSwitchTo(context);
	return true;
}

int64
hook_changes_start_due(List *hooks)
{
	int64		now_ns = shared_state_clock_ns();
	int64		next_ns = PG_INT64_MAX;
	bool		is_full = false;
	List	   *queue = list_copy(followers);
	ListCell   *cell;

	foreach(cell, queue)
	{
		Follower   *follower = lfirst(cell);
		int64		due_ns = hook_runs_due_ns(follower->name, follower->version);

		if (!is_behind(follower))
			continue;
		if (due_ns > now_ns)
			next_ns = Min(next_ns, due_ns);
		else if (is_full || !start(follower, find_hook(hooks, follower->name)))
			follower->is_held_up = is_full = true;
	}
	return next_ns;
}

HookChangesEnd
hook_changes_ended(HookRun *run)
{
	const HookChange *changes = hook_run_changes(run);
	uint32		nsucceeded = pg_atomic_read_u32(&run->nsucceeded);
	Follower   *follower = find_follower(run->name);
	const HookChange *failed;

	if (follower == NULL || follower->version != run->hook_version)
		return HOOK_CHANGES_OUTDATED;
	if (nsucceeded > 0)
	{
		follower->needs_gap = false;
		follower->position = changes[nsucceeded - 1].seq;
	}
	if (pg_atomic_read_u32(&run->nbegun) == nsucceeded)
		return HOOK_CHANGES_GO_ON;
	failed = &changes[nsucceeded];
	follower->tries = failed->seq == follower->failed_seq ? follower->tries + 1 : 1;
	follower->failed_seq = failed->seq;
	if (follower->tries < HOOK_MAX_TRIES || failed->revision == 0)
		return HOOK_CHANGES_GO_ON;
	follower->position = failed->seq;
	follower->needs_gap = true;
	return HOOK_CHANGES_GIVEN_UP;
}
