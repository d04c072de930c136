/*-------------------------------------------------------------------------
 *
 * events.c
 *	  True time and the queue of events: a heap ordered by time, and at equal
 *	  times by the order of scheduling.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "sim.h"

typedef struct Event
{
	int64_t		when_ns;
	uint64_t	number;
	EventHandler handler;
	void	   *subject;
	uint64_t	tag;
} Event;

int64_t		now_ns;

static Event *heap;
static size_t nevents;
static size_t room;
static uint64_t next_number;

static bool
is_before(const Event *a, const Event *b)
{
	if (a->when_ns != b->when_ns)
		return a->when_ns < b->when_ns;
	return a->number < b->number;
}

void
events_reset(void)
{
	nevents = 0;
	next_number = 0;
	now_ns = 0;
}

/* An event in the past is due now, after the events that were due before. */
void
events_at(int64_t when_ns, EventHandler handler, void *subject, uint64_t tag)
{
	Event		event = {when_ns, next_number++, handler, subject, tag};
	size_t		i = nevents++;

	if (when_ns == NEVER)
	{
		nevents--;
		return;
	}
	if (event.when_ns < now_ns)
		event.when_ns = now_ns;
	if (nevents > room)
	{
		room = 2 * room + 1024;
		heap = realloc(heap, room * sizeof(Event));
		if (heap == NULL)
			abort();
	}
	while (i > 0 && is_before(&event, &heap[(i - 1) / 2]))
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = event;
}

void
events_after(int64_t delay_ns, EventHandler handler, void *subject, uint64_t tag)
{
	events_at(now_ns + delay_ns, handler, subject, tag);
}

bool
events_step(int64_t until_ns)
{
	Event		first;
	Event		last;
	size_t		i = 0;

	if (nevents == 0 || heap[0].when_ns > until_ns)
	{
		now_ns = until_ns;
		return false;
	}
	first = heap[0];
	last = heap[--nevents];
	for (;;)
	{
		size_t		child = 2 * i + 1;

		if (child >= nevents)
			break;
		if (child + 1 < nevents && is_before(&heap[child + 1], &heap[child]))
			child++;
		if (!is_before(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	if (nevents > 0)
		heap[i] = last;
	now_ns = first.when_ns;
	first.handler(first.subject, first.tag);
	return true;
}
