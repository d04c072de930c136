/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  The shared memory of an instance, and a client that reads its events.
 *
 * The files of src/shared that keep events, their numbers and the memory over a
 * crash are those of the product.  Each instance has memory of its own for them.
 * The client of an instance reads what comes after the last number that it saw,
 * over restarts of all kinds.  By the numbers alone it must know whether it has
 * missed an event: that of the next event is higher by one if, and only if, it
 * has not.  The rings have few places, so events are overrun by later ones all the time.
 *
 * Its choices come from numbers of their own: a seed is the same run with and
 * without it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "instance.h"
#include "plan.h"
#include "reached.h"
#include "shared.h"
#include "shared/crash_memory.h"
#include "shared/events.h"

#define MAX_SHARED	8

/* 2026-01-01, in microseconds since 2000. */
#define WALL_CLOCK_US	INT64CONST(820454400000000)

/* A real server needs that time to start.  Here it takes none. */
#define START_US		1000

/* Sometimes the clock is set back by that time before a start. */
#define SET_BACK_US		INT64CONST(100000000)

static const SharedPart *const parts[] = {
	&event_number_part, &events_part, &elections_ring_part, &changes_ring_part, &crash_memory_part
};

/* What has happened in the order in which it has. */
typedef struct Truth
{
	bool		is_skip;		/* nothing: a number may be skipped here */
	bool		is_gone;		/* a restart has dropped it, or nobody announced it */
	SharedEvent event;
} Truth;

typedef struct Shared
{
	void	   *memory[lengthof(parts)];
	Truth	   *truth;
	int			ntruth;
	int			room;
	/* the client: the last number that it saw, and the next truth */
	int64		after;
	int			next;
	bool		is_set_back;	/* numbers have begun anew, below those of before */
	/* of before a clean shutdown */
	SharedEvent saved[SHARED_EVENTS];
	int			nsaved;
	int64		continue_after;
	struct
	{
		char		election[ELECTION_NAME_SIZE];
		ElectionTimelines timelines;
	}			saved_timelines[CRASH_MEMORY_TIMELINES];
	/* of the elector */
	bool		remembers;
	ElectionMemory remembered;
	bool		knows_history;
	ElectionHistory history;
} Shared;

static Shared *all[MAX_SHARED];
static uint64 choices;
static int64 wall_clock_us;

/* ---- what the files need of a server; nobody sleeps here --------------------- */

TimestampTz
GetCurrentTimestamp(void)
{
	return wall_clock_us + now_ns / 1000;
}

void
ConditionVariableInit(ConditionVariable *cv)
{
}

/* ---- memory ---------------------------------------------------------------- */

/* 0 to n - 1 */
static int
choose(int n)
{
	choices = choices * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (int) ((choices >> 33) % (uint64) n);
}

/* From here on the files use the memory of that instance. */
static Shared *
use(const Instance *in)
{
	Shared	   *shared = all[in->number];

	for (int i = 0; i < (int) lengthof(parts); i++)
		*parts[i]->memory = shared->memory[i];
	return shared;
}

static void
make_part(Shared *shared, int i)
{
	if (shared->memory[i] == NULL)
		shared->memory[i] = calloc(1, parts[i]->size);
	if (shared->memory[i] == NULL)
		abort();
	*parts[i]->memory = shared->memory[i];
	/* the rings may hold anything, as they say themselves, and are large */
	if (parts[i]->size <= 256 * 1024)
		memset(shared->memory[i], 0, parts[i]->size);
	if (parts[i]->init)
		parts[i]->init();
}

void
shared_reset(void)
{
	wall_clock_us = WALL_CLOCK_US;
	choices = (plan.seed + 1) * UINT64CONST(0x9E3779B97F4A7C15);
	for (int i = 0; i < MAX_SHARED; i++)
	{
		if (all[i] == NULL)
			continue;
		all[i]->ntruth = all[i]->next = all[i]->nsaved = 0;
		all[i]->after = all[i]->continue_after = 0;
		all[i]->is_set_back = false;
	}
}

/* ---- the client ------------------------------------------------------------ */

static Truth *
add_truth(Shared *shared)
{
	Truth	   *truth;

	if (shared->ntruth == shared->room)
	{
		shared->room = shared->room == 0 ? 64 : 2 * shared->room;
		shared->truth = realloc(shared->truth, (size_t) shared->room * sizeof(Truth));
		if (shared->truth == NULL)
			abort();
	}
	truth = &shared->truth[shared->ntruth++];
	memset(truth, 0, offsetof(Truth, event));
	truth->event.seq = 0;
	truth->event.kind = -1;
	return truth;
}

static bool
is_same(const SharedEvent *a, const SharedEvent *b)
{
	return a->seq == b->seq && a->at == b->at && a->kind == b->kind && a->has_leader == b->has_leader &&
		a->leader_revision == b->leader_revision && strcmp(a->election, b->election) == 0 &&
		strcmp(a->leader, b->leader) == 0 && strcmp(a->reason, b->reason) == 0 &&
		strcmp(a->key, b->key) == 0 && a->revision == b->revision;
}

static bool
is_change(const SharedEvent *event)
{
	return event->kind == EVENT_CHANGE;
}

/* Nothing can be missed here: no event, or one that nobody can read any more. */
static bool
is_lost(const Truth *truth)
{
	return truth->is_skip || truth->is_gone;
}

/* Have later events of its ring taken the place of that event? */
static bool
is_overrun(const Shared *shared, const Truth *truth)
{
	bool		of_changes = is_change(&truth->event);
	int			nlater = 0;

	for (const Truth *later = truth + 1; later < shared->truth + shared->ntruth; later++)
		nlater += !later->is_skip && later->event.seq != 0 && is_change(&later->event) == of_changes;
	return nlater >= (of_changes ? CHANGES_PLACES : SHARED_EVENTS);
}

/*
 * The client is told of a loss of changes.  The number is that of the last change that
 * is lost, and no event that is there is passed over.
 */
static bool
receive_gap(const Instance *in, Shared *shared, const SharedEvent *gap)
{
	bool		is_there = false;
	int			nmissed = 0;

	for (; shared->next < shared->ntruth; shared->next++)
	{
		const Truth *truth = &shared->truth[shared->next];

		if (is_lost(truth))
			continue;
		if (truth->event.seq > gap->seq)
			break;
		nmissed++;
		is_there |= truth->event.seq == gap->seq && is_change(&truth->event);
		if (!is_change(&truth->event) && !is_overrun(shared, truth))
			fail_run("%s: event %lld is passed over by the gap %lld", in->name, (long long) truth->event.seq,
					 (long long) gap->seq);
	}
	if (!is_there)
		fail_run("%s: the gap %lld is no change that is lost", in->name, (long long) gap->seq);
	reached_event(gap->seq == shared->after + 1, nmissed, false, true, false);
	shared->after = gap->seq;
	return !run_failed();
}

/* The client gets an event.  False: it must not be so. */
static bool
receive(const Instance *in, Shared *shared, const SharedEvent *event)
{
	bool		is_set_back = event->seq <= shared->after && shared->is_set_back;
	bool		follows = event->seq == shared->after + 1;
	int			first = shared->next;
	int			nmissed = 0;

	if (is_set_back)
		shared->is_set_back = false;
	else if (event->seq <= shared->after)
		fail_run("%s: event %lld comes after event %lld", in->name, (long long) event->seq, (long long) shared->after);
	if (is_change(event) && strcmp(event->reason, EVENT_REASON_GAP) == 0)
		return receive_gap(in, shared, event);
	while (shared->next < shared->ntruth &&
		   (shared->truth[shared->next].is_skip || !is_same(&shared->truth[shared->next].event, event)))
	{
		Truth	   *missed = &shared->truth[shared->next++];

		nmissed += !missed->is_skip;
		if (!is_lost(missed) && !event->follows_loss && !is_overrun(shared, missed))
			fail_run("%s: event %lld is not read, though it is there", in->name, (long long) missed->event.seq);
		else if (follows && !missed->is_skip)
			fail_run("%s: a client misses event %lld, and cannot know", in->name, (long long) missed->event.seq);
	}
	if (shared->next == shared->ntruth)
		fail_run("%s: event %lld was never announced so", in->name, (long long) event->seq);
	else if (!follows && !is_set_back && shared->after != 0 && shared->next == first)
		fail_run("%s: no event is missed before %lld, but its number says so", in->name, (long long) event->seq);
	if (shared->after != 0)
		reached_event(follows, nmissed, event->seq <= events_start(), false, is_set_back);
	shared->next++;
	shared->after = event->seq;
	return !run_failed();
}

static void
read_events(const Instance *in)
{
	Shared	   *shared = use(in);
	SharedEvent event;

	/* with wrong numbers the functions below may never return */
	if (run_failed())
		return;
	while (events_next(shared->after, &event) && receive(in, shared, &event))
		;
	for (int i = shared->next; i < shared->ntruth && !run_failed(); i++)
	{
		if (!is_lost(&shared->truth[i]))
			fail_run("%s: event %lld is there, and no event is read", in->name, (long long) shared->truth[i].event.seq);
	}
}

/* ---- life ------------------------------------------------------------------ */

/*
 * A crash drops all events, and nobody announces what it ends.  A clean shutdown
 * drops those of changes.
 */
static void
drop(Shared *shared, bool crash)
{
	for (int i = 0; i < shared->ntruth; i++)
		shared->truth[i].is_gone |= crash || shared->truth[i].event.kind == EVENT_CHANGE;
	if (crash)
		add_truth(shared)->is_gone = true;
	else
		add_truth(shared)->is_skip = true;
}

void
shared_start(const Instance *in, SharedStart how)
{
	Shared	   *shared = all[in->number];

	if (shared == NULL)
		shared = all[in->number] = calloc(1, sizeof(Shared));
	if (shared == NULL)
		abort();
	(void) use(in);
	wall_clock_us += START_US;
	if (how == SHARED_NEW && choose(5) == 0)
		wall_clock_us -= SET_BACK_US;
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		if (how != SHARED_AFTER_CRASH || !parts[i]->is_lasting)
			make_part(shared, i);
	}
	if (how == SHARED_NEW)
		shared->is_set_back = events_last() < shared->after;
	if (how != SHARED_AFTER_CRASH)
		shared->remembers = shared->knows_history = false;
	if (how != SHARED_RESTORED)
		drop(shared, true);
	else
	{
		/* as event_file.c does */
		for (int i = 0; i < shared->nsaved; i++)
			events_restore(&shared->saved[i]);
		events_continue_after(shared->continue_after);
		if (events_last() < shared->continue_after)
			fail_run("%s: numbers begin anew after a clean restart", in->name);
		for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
		{
			if (shared->saved_timelines[i].election[0] != '\0')
				crash_memory_set_timelines(shared->saved_timelines[i].election,
										   &shared->saved_timelines[i].timelines);
		}
	}
	if (choose(2) == 0)
		read_events(in);
}

void
shared_save(const Instance *in)
{
	Shared	   *shared = use(in);
	SharedEvent event;

	if (run_failed())
		return;
	/* as event_file.c does */
	for (int i = 0; i < CRASH_MEMORY_TIMELINES; i++)
	{
		const char *election;

		(void) crash_memory_get_timelines(i, &election, &shared->saved_timelines[i].timelines);
		strlcpy(shared->saved_timelines[i].election, election, ELECTION_NAME_SIZE);
	}
	shared->nsaved = 0;
	shared->continue_after = events_last();
	for (int64 after = 0; events_next_of(EVENTS_BUT_CHANGES, after, &event); after = event.seq)
		shared->saved[shared->nsaved++] = event;
	if (events_last_change() > 0)
	{
		shared->continue_after++;
		drop(shared, false);
	}
}

static void
append(Shared *shared, SharedEvent *event)
{
	event->at = GetCurrentTimestamp();
	events_append(event);
	add_truth(shared)->event = *event;
}

void
shared_announce(const Instance *in, const ElectionEvent *announced)
{
	Shared	   *shared = use(in);
	const char *reason = election_reason_name(announced->reason);
	SharedEvent event = {.kind = announced->kind, .has_leader = announced->leader != NULL};

	if (announced->election)
		strlcpy(event.election, announced->election, sizeof(event.election));
	if (announced->leader)
	{
		strlcpy(event.leader, announced->leader, sizeof(event.leader));
		event.leader_revision = announced->leader_revision;
	}
	if (announced->detail || reason)
		strlcpy(event.reason, announced->detail ? announced->detail : reason, sizeof(event.reason));
	append(shared, &event);

	/* keys of another program change */
	for (int n = choose(4); n > 0; n--)
	{
		SharedEvent change = {.kind = EVENT_CHANGE, .revision = 1 + choose(1000)};

		snprintf(change.key, sizeof(change.key), "key %d", choose(100));
		append(shared, &change);
	}
	if (choose(7) == 0)
		read_events(in);
}

/* ---- the memory over a crash ------------------------------------------------ */

void
shared_remember(const Instance *in, const ElectionMemory *memory)
{
	Shared	   *shared = use(in);

	crash_memory_remember(memory);
	shared->remembers = memory != NULL;
	if (memory)
		memcpy(&shared->remembered, memory, election_memory_size(memory));
}

bool
shared_recall(const Instance *in, ElectionMemory *memory)
{
	Shared	   *shared = use(in);
	bool		recalled = crash_memory_recall(memory);

	if (recalled != shared->remembers ||
		(recalled && memcmp(memory, &shared->remembered, election_memory_size(&shared->remembered)) != 0))
		fail_run("%s does not recall what it remembered last", in->name);
	return recalled;
}

void
shared_remember_history(const Instance *in, const ElectionHistory *history)
{
	Shared	   *shared = use(in);

	crash_memory_remember_history(history);
	shared->knows_history = true;
	shared->history = *history;
}

bool
shared_recall_history(const Instance *in, ElectionHistory *history)
{
	Shared	   *shared = use(in);
	bool		recalled = crash_memory_recall_history(history);

	if (recalled != shared->knows_history ||
		(recalled && memcmp(history, &shared->history, sizeof(*history)) != 0))
		fail_run("%s does not recall the history that it remembered last", in->name);
	return recalled;
}

int64_t
shared_known_revision(const Instance *in)
{
	const Shared *shared = all[in->number];

	if (!shared->knows_history)
		return 0;
	return Max(shared->history.max_revision, shared->history.min_token_exclusive);
}

void
shared_set_stay_out(const Instance *in, const char *election, bool stay_out)
{
	(void) use(in);
	crash_memory_set_stay_out(election, stay_out);
}

bool
shared_stays_out(const Instance *in, const char *election)
{
	(void) use(in);
	return crash_memory_stays_out(election);
}

void
shared_set_timelines(const Instance *in, const char *election, const ElectionTimelines *timelines)
{
	(void) use(in);
	crash_memory_set_timelines(election, timelines);
}

ElectionTimelines
shared_timelines(const Instance *in, const char *election)
{
	(void) use(in);
	return crash_memory_timelines(election);
}
