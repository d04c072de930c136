/*-------------------------------------------------------------------------
 *
 * transport_pipes.c
 *	  Connections of the simulated transport: two pipes each, which keep the
 *	  order of their bytes, and nothing else.
 *
 * What is written is cut and merged at will, arrives late, is held up, or is
 * lost with the connection.  Only noise drops or changes bytes in the middle.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "transport.h"

/* As the number of bytes of an arrival: the end. */
#define THE_END		UINT64_MAX

Link	   *links;

/* ---- bytes --------------------------------------------------------------- */

void
bytes_add(Bytes *bytes, const void *data, size_t len)
{
	if (bytes->start > 0)
	{
		memmove(bytes->data, bytes->data + bytes->start, bytes_left(bytes));
		bytes->end -= bytes->start;
		bytes->start = 0;
	}
	if (len > bytes->size - bytes->end)
	{
		bytes->size = 2 * bytes->end + len;
		bytes->data = realloc(bytes->data, bytes->size);
		if (bytes->data == NULL)
			abort();
	}
	if (len > 0)
		memcpy(bytes->data + bytes->end, data, len);
	bytes->end += len;
}

void
bytes_take(Bytes *bytes, size_t n)
{
	bytes->start += n;
	if (bytes->start == bytes->end)
		bytes->start = bytes->end = 0;
}

void
bytes_free(Bytes *bytes)
{
	free(bytes->data);
	memset(bytes, 0, sizeof(*bytes));
}

/* ---- arrivals ------------------------------------------------------------ */

static void
notify(Link *link)
{
	client_notified(link);
	server_notified(link);
}

static void
arrive(void *subject, uint64_t n)
{
	Pipe	   *pipe = subject;

	if (pipe->is_over)
		return;
	if (n == THE_END)
		pipe->is_over = true;
	else
	{
		bool		breaks = pipe->narrived + n >= pipe->breaks_at;

		if (breaks)
			n = pipe->breaks_at - pipe->narrived;
		pipe->arrived += n;
		pipe->narrived += n;
		if (breaks)
			link_break(pipe->link);
	}
	notify(pipe->link);
}

static void
schedule(Pipe *pipe, uint64_t n, size_t len)
{
	int64_t		when_ns = now_ns + random_between(1, conditions.delay_ns);

	if (when_ns < pipe->held_until_ns)
		when_ns = pipe->held_until_ns;
	if (when_ns < pipe->last_arrival_ns)
		when_ns = pipe->last_arrival_ns;
	if (when_ns != NEVER)
		when_ns += (int64_t) len * conditions.byte_ns;
	pipe->last_arrival_ns = when_ns;
	events_at(when_ns, arrive, pipe, n);
}

/* Drops some bytes, or changes one. */
static size_t
disturb(char *data, size_t len)
{
	size_t		at = (size_t) random_below((int) len);
	size_t		n = 1 + (size_t) random_below(20);

	if (random_chance(5000))
	{
		data[at] = (char) random_next();
		return len;
	}
	if (n > len - at)
		n = len - at;
	memmove(data + at, data + at + n, len - at - n);
	return len - n;
}

size_t
pipe_write(Pipe *pipe, const char *data, size_t len)
{
	size_t		room = conditions.room > bytes_left(&pipe->bytes) ? conditions.room - bytes_left(&pipe->bytes) : 0;
	size_t		taken = len < room ? len : room;
	size_t		kept;

	if (pipe->is_closed || taken == 0)
		return 0;
	if (taken > 1 && random_chance(conditions.parts))
		taken = 1 + (size_t) random_below((int) taken);
	bytes_add(&pipe->bytes, data, taken);
	kept = taken;
	if (!healed && random_chance(conditions.noise))
	{
		kept = disturb(pipe->bytes.data + pipe->bytes.end - taken, taken);
		pipe->bytes.end -= taken - kept;
		pipe->link->is_sick = true;
	}
	pipe->written += kept;
	for (size_t left = kept; left > 0;)
	{
		size_t		n = left > 1 && random_chance(conditions.parts) ? 1 + (size_t) random_below((int) left) : left;

		schedule(pipe, n, n);
		left -= n;
	}
	return taken;
}

size_t
pipe_read(Pipe *pipe, char *buffer, size_t size)
{
	size_t		n = pipe->arrived < size ? pipe->arrived : size;

	if (n > 1 && random_chance(conditions.parts))
		n = 1 + (size_t) random_below((int) (n < 64 ? n : random_chance(5000) ? 64 : n));
	if (n == 0)
		return 0;
	memcpy(buffer, pipe->bytes.data + pipe->bytes.start, n);
	bytes_take(&pipe->bytes, n);
	pipe->arrived -= n;
	pipe->read += n;
	/* there is room for the writer */
	events_after(0, arrive, pipe, 0);
	return n;
}

void
pipe_close(Pipe *pipe)
{
	if (pipe->is_closed)
		return;
	pipe->is_closed = true;
	schedule(pipe, THE_END, 0);
}

/* ---- links --------------------------------------------------------------- */

void
link_break(Link *link)
{
	Pipe	   *both[] = {&link->up, &link->down};
	bool		resets = random_chance(5000);

	link->is_sick = true;
	for (int i = 0; i < 2; i++)
	{
		both[i]->is_closed = both[i]->is_over = true;
		/* a reset costs what was not read, too */
		if (resets)
			both[i]->arrived = 0;
		both[i]->bytes.end = both[i]->bytes.start + both[i]->arrived;
	}
	notify(link);
}

static void
open_link(void *subject, uint64_t good)
{
	Link	   *link = subject;

	client_link_made(link, good);
	if (good)
		server_accept(link);
}

Link *
link_create(int endpoint, int use)
{
	Link	   *link = run_alloc(sizeof(Link));

	link->number = links != NULL ? links->number + 1 : 1;
	link->endpoint = endpoint;
	link->use = use;
	link->up.link = link->down.link = link;
	link->up.breaks_at = link->down.breaks_at = UINT64_MAX;
	link->goaway_at = UINT64_MAX;
	link->goaway_read_ns = link->flooded_since_ns = NEVER;
	link->next = links;
	links = link;
	if (!healed && random_chance(conditions.breaks))
	{
		Pipe	   *pipe = random_chance(5000) ? &link->up : &link->down;

		pipe->breaks_at = 1 + (uint64_t) random_below(random_chance(5000) ? 300 : 6000);
	}
	if (healed || (!random_chance(conditions.unmade) && (endpoint == 0 || !conditions.is_alone)))
		events_after(random_between(1, 2 * conditions.delay_ns), open_link, link, true);
	else if (random_chance(5000))
		events_after(random_between(1, 2 * conditions.delay_ns), open_link, link, false);
	return link;
}

/* One of those that are open; NULL: there is none. */
static Link *
choose_link(void)
{
	Link	   *chosen = NULL;
	int			n = 0;

	for (Link *link = links; link != NULL; link = link->next)
	{
		if (link->exchange != NULL && !link->up.is_closed && random_below(++n) == 0)
			chosen = link;
	}
	return chosen;
}

void
link_hold(void)
{
	Link	   *link = choose_link();
	int64_t		until_ns = now_ns + random_between(10 * MS, 4 * SECOND);

	if (link == NULL)
		return;
	trace("", "link %d is held up", link->number);
	if (link->up.held_until_ns < until_ns && random_chance(7000))
		link->up.held_until_ns = until_ns;
	if (link->down.held_until_ns < until_ns && random_chance(7000))
		link->down.held_until_ns = until_ns;
}

void
link_kill(void)
{
	Link	   *link = choose_link();

	if (link == NULL)
		return;
	trace("", "link %d is dead", link->number);
	link->is_sick = true;
	link->up.held_until_ns = link->down.held_until_ns = NEVER;
}

void
links_free(void)
{
	for (Link *link = links; link != NULL; link = link->next)
	{
		bytes_free(&link->up.bytes);
		bytes_free(&link->down.bytes);
	}
	links = NULL;
}
