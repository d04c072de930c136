/*-------------------------------------------------------------------------
 *
 * work.c
 *	  The work that a leader waits for before a planned hand-over, and what
 *	  must hold of the wait.
 *
 * A drain is announced, and shown: there is no new work from then on.  The last
 * work ends at some time.  The hand-over comes when it has ended, or when the
 * time is over that a command or the settings have allowed, and not later than
 * the command takes then.  One that is cancelled leads on as before.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "plan.h"
#include "work.h"

void
work_asked(Instance *in, int slot, int64_t drain_ns)
{
	Work	   *work = &in->work[slot];

	if (work->greatest_ns == 0 || drain_ns < work->least_ns)
		work->least_ns = drain_ns;
	if (drain_ns > work->greatest_ns)
		work->greatest_ns = drain_ns;
}

/* The last work ends.  tag: the number of the drain, and the slot. */
static void
end_work(void *subject, uint64_t tag)
{
	Instance   *in = subject;
	int			slot = (int) (tag % MAX_SLOTS);
	Work	   *work = &in->work[slot];

	if (!work->draining || work->number != tag / MAX_SLOTS || !in->running || in->stopping)
		return;
	if (in->paused)
	{
		events_after(10 * MS, end_work, in, tag);
		return;
	}
	work->is_over = true;
	instance_drained(in, slot);
}

static void
begin_drain(Instance *in, int slot)
{
	Work	   *work = &in->work[slot];

	if (work->draining || in->views[slot].state != ELECTION_DRAINING)
		fail_run("%s announces a drain of %s that readers do not see, or twice", in->name, in->views[slot].name);
	if (in->config.preferred_drain_ms > 0)
		work_asked(in, slot, in->config.preferred_drain_ms * MS);
	work->draining = true;
	work->number = ++in->ndrains;
	work->began_ns = in->last_clock_ns;
	work->is_over = false;
	work->was_paused = false;
	/* some work never ends */
	if (random_chance(7000))
		events_after(random_chance(2000) ? 0 : random_between(0, 2 * work->greatest_ns), end_work, in,
					 work->number * MAX_SLOTS + (uint64_t) slot);
}

static void
end_drain(Instance *in, int slot, const ElectionEvent *event)
{
	Work	   *work = &in->work[slot];
	int64_t		lasted_ns = in->last_clock_ns - work->began_ns;
	bool		is_planned = event->reason == ELECTION_REASON_RESIGNED || event->reason == ELECTION_REASON_TRANSFERRED;

	if (is_planned && !work->is_over && lasted_ns < work->least_ns)
		fail_run("%s hands over %s, and refuses work that it should wait for", in->name, event->election);
	if (!work->was_paused && !in->paused &&
		lasted_ns > work->greatest_ns + 4 * plan_longest_ttl_s() * SECOND)
		fail_run("%s has drained %s for too long", in->name, event->election);
	if (event->kind == ELECTION_EVENT_DRAIN_CANCELLED)
	{
		if (in->views[slot].state != ELECTION_LEADING)
			fail_run("%s leads %s on, but does not show it", in->name, event->election);
		shared_set_stay_out(in, event->election, false);
		/* the command that has cancelled it may drain, too */
		work->draining = false;
	}
	else
		memset(work, 0, sizeof(*work));
}

void
work_announced(Instance *in, int slot, const ElectionEvent *event)
{
	if (event->kind == ELECTION_EVENT_DRAINING)
		begin_drain(in, slot);
	else if (in->work[slot].draining)
		end_drain(in, slot, event);
	else
		memset(&in->work[slot], 0, sizeof(Work));
}
