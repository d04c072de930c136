/*-------------------------------------------------------------------------
 *
 * instance.c
 *	  An instance: the elector around the core, and its faults.
 *
 * The elector's process can be stopped anywhere.  If it is stopped between two
 * calls of the core, inputs wait in the inbox.  If it is stopped before a call,
 * the clock was read long ago, see instance_resume().
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"
#include "faults.h"
#include "plan.h"
#include "primaries.h"
#include "reached.h"
#include "store.h"
#include "work.h"

/* The longest time that a shutdown waits for the revocation of its leases. */
#define FAREWELL_NS		(900 * MS)

Instance   *instances;
int			ninstances;

/* The last one follows Patroni. */
static const char *const election_names[MAX_ELECTIONS + 1] = {
	"e", "jobs", "jobs2", "a b/c", "e2", "e 2", "e-e", "x/y/z", "0", "E", "e1", "e10", "e11", "e12",
	"e13", "e14", "patroni:p"
};

const char *
election_name(int e)
{
	return election_names[e];
}

int
election_number(const char *name)
{
	for (int i = 0; i <= MAX_ELECTIONS; i++)
	{
		if (strcmp(election_names[i], name) == 0)
			return i;
	}
	return -1;
}

/* ---- the clock ---------------------------------------------------------------- */

int64_t
instance_clock(const Instance *in)
{
	return in->clock_base_ns + (int64_t) ((__int128) now_ns * in->clock_ppb / SECOND);
}

int64_t
instance_true_time(const Instance *in, int64_t clock_ns)
{
	if (clock_ns == NEVER)
		return NEVER;
	if (clock_ns <= in->clock_base_ns)
		return 0;
	return (int64_t) (((__int128) (clock_ns - in->clock_base_ns) * SECOND + in->clock_ppb - 1) /
					  in->clock_ppb);
}

int64_t
instance_now(Instance *in)
{
	int64_t		clock_ns = instance_clock(in);

	if (in->stale_clock_ns != NEVER)
		clock_ns = in->stale_clock_ns;
	if (clock_ns < in->last_clock_ns)
		clock_ns = in->last_clock_ns;
	in->last_clock_ns = clock_ns;
	return clock_ns;
}

/* As in src/shared/state.c, loads the deadline before it reads the clock. */
bool
instance_leads(const Instance *in, int slot)
{
	return in->views[slot].deadline_ns > instance_clock(in);
}

/* ---- outputs of the core ---------------------------------------------------------- */

/*
 * Does the process die before this output, or is it dead already?  The call of the core
 * goes on to its end, and nothing of it is seen.
 */
static bool
is_dead(Instance *in)
{
	if (!in->is_dead && in->outputs_left > 0 && --in->outputs_left == 0)
	{
		trace(in->name, "dies in the middle of a call");
		in->is_dead = true;
	}
	return in->is_dead;
}

/* Describes a request for the timeline. */
static void
describe(const EtcdRequest *request, char *text, size_t size)
{
	const EtcdOp *op = &request->success[0];
	int			n;

	switch (request->kind)
	{
		case ETCD_GRANT:
			snprintf(text, size, "grant of lease %" PRIx64 ", %" PRId64 " s", request->lease, request->ttl_s);
			return;
		case ETCD_KEEPALIVE:
			snprintf(text, size, "keepalive of lease %" PRIx64, request->lease);
			return;
		case ETCD_REVOKE:
			snprintf(text, size, "revoke of lease %" PRIx64, request->lease);
			return;
		case ETCD_AUTHENTICATE:
		case ETCD_LIST_MEMBERS:
		case ETCD_STATUS:
			abort();			/* only the transport sends these */
		case ETCD_TIME_TO_LIVE:
			snprintf(text, size, "time to live of lease %" PRIx64, request->lease);
			return;
		case ETCD_TXN:
			break;
	}
	if (op->kind == ETCD_OP_RANGE)
		n = snprintf(text, size, "read of");
	else if (op->kind == ETCD_OP_DELETE)
		n = snprintf(text, size, "delete of");
	else
		n = snprintf(text, size, "put on lease %" PRIx64 " of", op->lease);
	for (int i = 0; i < request->nsuccess && n < (int) size; i++)
		n += snprintf(text + n, size - n, " %.*s", (int) request->success[i].key.len,
					  request->success[i].key.data);
	for (int i = 0; i < request->ncompares && n < (int) size; i++)
		n += snprintf(text + n, size - n, "%s%s %" PRId64, i == 0 ? " if " : ", ",
					  request->compares[i].target == ETCD_COMPARE_CREATE_REVISION ? "create" : "mod",
					  request->compares[i].value);
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Instance   *in = ctx;

	if (is_dead(in))
		return;
	if (tracing)
	{
		char		text[512];

		describe(request, text, sizeof(text));
		trace_line(in->name, "sends %" PRIu64 ": %s", id, text);
	}
	checker_sent(in, id, request);
	primaries_sent(in, request);
	client_send(in, id, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	Instance   *in = ctx;

	if (is_dead(in))
		return;
	if (tracing)
	{
		char		text[512] = "nothing";
		int			n = 0;

		for (int i = 0; i < nwatches && n < (int) sizeof(text); i++)
			n += snprintf(text + n, sizeof(text) - n, " %.*s from %" PRId64, (int) watches[i].key.len,
						  watches[i].key.data, watches[i].start_revision);
		trace_line(in->name, "watches %s", text);
	}
	checker_watches(in, watches, nwatches);
	client_watch(in, watches, nwatches);
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	Instance   *in = ctx;

	if (is_dead(in))
		return;
	trace(in->name, "distrusts endpoint %d: %s", endpoint, why);
	checker_distrusted(in);
	client_change_endpoint(in, endpoint);
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	Instance   *in = ctx;
	ElectionView old = in->views[slot];

	if (is_dead(in))
		return;
	in->views[slot] = *view;
	if (memcmp(&old, view, sizeof(old)) == 0)
		return;
	if (tracing)
	{
		if (view->deadline_ns != 0)
			trace_line(in->name, "publishes: leads %s, token %" PRId64 ", for %.6f s", view->name,
					   view->token, (view->deadline_ns - instance_clock(in)) / 1e9);
		else if (old.deadline_ns != 0 || old.state != view->state ||
				 old.leader_revision != view->leader_revision)
			trace_line(in->name, "publishes: %s in %s, leader %s (%" PRId64 ")",
					   election_state_name(view->state), view->name,
					   view->has_leader ? view->leader : "unknown", view->leader_revision);
	}
	checker_published(in, slot, &old);
	primaries_published(in, slot, &old);
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
	Instance   *in = ctx;
	const char *reason = election_reason_name(event->reason);

	if (is_dead(in))
		return;
	trace(in->name, "announces: %s %s %s%s%s", election_event_name(event->kind),
		  event->election ? event->election : "", event->leader ? event->leader : "",
		  reason ? ", " : "", reason ? reason : event->detail ? event->detail : "");
	shared_announce(in, event);
	checker_announced(in, event);
	reached_announced(event);
}

static void
port_reply(void *ctx, uint64_t number, ElectionReply reply)
{
	static const char *const names[] = {"done", "nothing to do", "not eligible", "not a candidate", "refused", "no contact",
		"failed", "not the leader", "no such candidate", "more than one", "a foreign one is before it", "too many are before it", "cancelled"};
	Instance   *in = ctx;
	Ticket	   *ticket = &in->tickets[number % MAX_TICKETS];

	if (is_dead(in))
		return;
	trace(in->name, "replies to command %" PRIu64 ": %s", number, names[reply]);
	if (ticket->kind == TICKET_NONE)
	{
		fail_run("%s: command %" PRIu64 " is answered twice, or was not asked", in->name, number);
		return;
	}
	checker_replied(in, ticket, reply);
	reached_replied(ticket->kind, reply);
	ticket->kind = TICKET_NONE;
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	Instance   *in = ctx;

	if (is_dead(in))
		return;
	in->remembers = memory != NULL;
	shared_remember(in, memory);
}

static void
port_remember_history(void *ctx, const ElectionHistory *history)
{
	Instance   *in = ctx;

	if (!is_dead(in))
		shared_remember_history(in, history);
}

static void
port_remember_timelines(void *ctx, const char *election, const ElectionTimelines *timelines)
{
	Instance   *in = ctx;

	if (is_dead(in))
		return;
	trace(in->name, "knows of %s: timeline %" PRIu32 " has led, refused %" PRIu32 ", accepted %" PRIu32, election,
		  timelines->leading, timelines->refused, timelines->accepted);
	shared_set_timelines(in, election, timelines);
	primaries_remembered(in, election, timelines);
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
	Instance   *in = ctx;

	trace(in->name, "finds %s name in %s: %s", key ? "a duplicate" : "no duplicate", election, key ? key : "");
}

static void
port_drop(void *ctx, uint64_t id, const char *election, const char *why)
{
	Instance   *in = ctx;

	trace(in->name, "drops %s %" PRIu64 " (%s): %s", id == 0 ? "frame" : "answer", id, election ? election : "all", why);
}

static uint64_t
port_random(void *ctx)
{
	return random_next();
}

/* ---- the loop ------------------------------------------------------------------------- */

static void end_life(Instance *in);
static void tick(void *subject, uint64_t number);

/* Ends a process that has died in the call of the core that has just returned. */
static bool
bury(Instance *in)
{
	if (!in->is_dead)
		return false;
	in->is_dead = false;
	faults_died(in);
	return true;
}

/* Called after each call of the core, as in the elector's loop. */
static void
settle(Instance *in)
{
	int64_t		wakeup_ns;

	if (plan.request_timeout_ms < 0)
		in->client.request_timeout_ns = election_ttl_ns(in->core, in->last_clock_ns) / 9;

	while (in->client.stream_end_due)
	{
		in->client.stream_end_due = false;
		election_watch_ended(in->core, instance_now(in));
	}
	if (bury(in))
		return;
	checker_called(in);
	reached_look(in);
	if (in->stopping && election_stopped(in->core))
	{
		end_life(in);
		return;
	}
	wakeup_ns = election_wakeup_ns(in->core);
	if (wakeup_ns != in->timer_ns)
	{
		int64_t		when_ns = instance_true_time(in, wakeup_ns);

		/* the process is scheduled a little later */
		in->timer_ns = wakeup_ns;
		in->timer_number++;
		if (when_ns != NEVER)
			events_at((when_ns < now_ns ? now_ns : when_ns) +
					  random_between(0, random_chance(200) ? 50 * MS : MS), tick, in, in->timer_number);
	}
}

static void
tick(void *subject, uint64_t number)
{
	Instance   *in = subject;
	int64_t		clock_ns;

	if (number != in->timer_number || !in->running || in->paused)
		return;
	clock_ns = instance_now(in);
	in->timer_ns = 0;
	election_tick(in->core, clock_ns);

	/* A core that is due at once again and again would keep a processor busy. */
	if (election_wakeup_ns(in->core) > clock_ns)
		in->idle_ticks = 0;
	else if (++in->idle_ticks > 3)
		fail_run("%s: the core is due again as soon as it was called", in->name);
	settle(in);
}

static void
run_item(Instance *in, const Item *item)
{
	item->handler(item->subject);
	if (in->running)
		settle(in);
}

void
instance_deliver(Instance *in, uint32_t life, void (*handler) (void *subject), void *subject,
				 bool is_timeout)
{
	Item		item = {handler, subject, is_timeout, instance_clock(in)};

	/* the handler frees an input for an earlier life */
	if (!in->paused || life != in->life)
	{
		if (life != in->life || !in->running)
			handler(subject);
		else
			run_item(in, &item);
		return;
	}
	if (in->nitems == in->items_room)
	{
		in->items_room = 2 * in->items_room + 16;
		in->inbox = realloc(in->inbox, in->items_room * sizeof(Item));
		if (in->inbox == NULL)
			abort();
	}
	in->inbox[in->nitems++] = item;
}

/* ---- life --------------------------------------------------------------------------------- */

void
instances_reset(int n)
{
	for (int i = 0; i < ninstances; i++)
	{
		election_free(instances[i].core);
		free(instances[i].inbox);
	}
	free(instances);
	instances = calloc((size_t) n + 1, sizeof(Instance));
	if (instances == NULL)
		abort();
	ninstances = n;
	for (int i = 0; i < n; i++)
	{
		Instance   *in = &instances[i];

		in->number = i;
		snprintf(in->name, sizeof(in->name), "pg%d", i + 1);
		in->clock_base_ns = random_between(SECOND, 1000000 * SECOND);
		in->clock_ppb = SECOND;
		in->stale_clock_ns = NEVER;
		in->next_ticket = 1;
	}
}

void
instance_configure(Instance *in)
{
	int64_t		timeout_ms = plan.request_timeout_ms < 0 ?
		in->config.ttl_s * 1000 / 9 : plan.request_timeout_ms;

	for (int i = 0; i < in->config.nelections; i++)
	{
		in->config.stay_out[i] = shared_stays_out(in, in->config.elections[i]);
		in->config.timelines[i] = shared_timelines(in, in->config.elections[i]);
	}
	primaries_configure(in);
	trace(in->name, "is configured: TTL %d s, %d elections, %s, %d endpoints", in->config.ttl_s,
		  in->config.nelections, in->config.eligible ? "candidate" : "observer", in->config.nendpoints);
	client_configure(in, in->config.nendpoints, timeout_ms * MS);
	checker_stimulus(in);
	in->reason = ELECTION_REASON_DROPPED;
	in->reason_slot = -1;
	election_configure(in->core, instance_now(in), &in->config);
	in->reason = ELECTION_NO_REASON;
	settle(in);
}

void
instance_start(Instance *in)
{
	ElectionPort port = {
		.send = port_send, .watch = port_watch, .change_endpoint = port_change_endpoint,
		.publish = port_publish, .announce = port_announce, .reply = port_reply,
		.remember = port_remember, .remember_history = port_remember_history,
		.remember_timelines = port_remember_timelines,
		.report_duplicate_name = port_report_duplicate_name, .drop = port_drop, .random = port_random, .ctx = in
	};
	ElectionMemory memory;
	ElectionHistory history;
	bool		remembers;

	trace(in->name, "starts%s", in->remembers ? ", and remembers" : "");
	memset(in->views, 0, sizeof(in->views));
	in->life++;
	in->started_ns = now_ns;
	in->running = true;
	in->stopping = false;
	in->paused = false;
	in->stale_clock_ns = NEVER;
	in->outputs_left = 0;
	in->timer_ns = 0;
	memset(in->tickets, 0, sizeof(in->tickets));
	memset(in->work, 0, sizeof(in->work));
	checker_ended(in);
	in->core = election_create(&port, plan.slots);
	if (in->core == NULL)
		abort();
	if (in->next_start != SHARED_AFTER_CRASH)
		in->lineage++;
	shared_start(in, in->next_start);
	primaries_started(in);
	remembers = shared_recall(in, &memory);
	if (shared_recall_history(in, &history))
		(void) election_resume(in->core, instance_now(in), &history, remembers ? &memory : NULL);
	port_remember(in, NULL);
	instance_configure(in);
}

/* The process ends.  Inputs for it have no effect any more. */
static void
end_life(Instance *in)
{
	int			n = in->nitems;

	primaries_ended(in);
	if (in->stopping)
	{
		shared_save(in);
		in->next_start = SHARED_RESTORED;
	}
	in->running = false;
	in->paused = false;
	in->stopping = false;
	in->life++;
	in->timer_number++;
	client_reset(in);
	in->nitems = 0;
	for (int i = 0; i < n; i++)
		in->inbox[i].handler(in->inbox[i].subject);
	election_free(in->core);
	in->core = NULL;
}

static void
end_farewell(void *subject, uint64_t life)
{
	Instance   *in = subject;

	if (in->life == life && in->stopping)
		end_life(in);
}

/* Shuts the instance down cleanly. */
void
instance_stop(Instance *in)
{
	bool		waits;

	trace(in->name, "shuts down");
	in->stopping = true;
	in->reason = ELECTION_REASON_SHUTDOWN;
	in->reason_slot = -1;
	waits = election_stop(in->core, instance_now(in), ELECTION_REASON_SHUTDOWN);
	in->reason = ELECTION_NO_REASON;
	if (bury(in))
		return;
	for (int i = 0; i < plan.slots; i++)
	{
		if (instance_leads(in, i))
			fail_run("%s leads after its shutdown", in->name);
	}
	memset(in->views, 0, sizeof(in->views));
	if (in->remembers)
		fail_run("%s remembers leases that are being revoked", in->name);
	events_after(FAREWELL_NS, end_farewell, in, in->life);
	if (!waits)
		end_life(in);
	else
		settle(in);
}

/*
 * The elector crashes.  Readers of shared memory may survive for a while, and
 * see the last published state.  If the postmaster survives, the memory of
 * leases and keys (src/shared/crash_memory.c) does, too, but nothing else.
 */
void
instance_crash(Instance *in, bool readers_survive, bool keeps_memory)
{
	trace(in->name, "crashes%s%s", readers_survive ? ", its readers do not know" : "",
		  keeps_memory ? ", the postmaster lives" : "");
	in->stopping = false;
	in->next_start = keeps_memory ? SHARED_AFTER_CRASH : SHARED_NEW;
	if (!keeps_memory)
		in->remembers = false;
	if (!readers_survive)
		memset(in->views, 0, sizeof(in->views));
	end_life(in);
}

void
instance_pause(Instance *in)
{
	for (int slot = 0; slot < MAX_SLOTS; slot++)
		in->work[slot].was_paused = true;
	trace(in->name, "is stopped");
	in->paused = true;
}

/*
 * Lets a stopped instance run again.  In half of the cases it had already
 * received the first input when it was stopped, so its clock is that of the
 * receipt.  Mostly it processes answers before time-outs.
 */
void
instance_resume(Instance *in)
{
	Item	   *items = in->inbox;
	int			n = in->nitems;
	bool		in_hands = random_chance(5000);
	bool		answers_first = random_chance(7000);

	trace(in->name, "runs again");
	checker_trouble(in);
	in->paused = false;
	in->inbox = NULL;
	in->nitems = in->items_room = 0;
	checker_stimulus(in);
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < n; i++)
		{
			bool		is_timeout = items[i].is_timeout;

			if (answers_first ? is_timeout != (pass == 1) : pass == 1)
				continue;
			if (!in->running)
			{
				items[i].handler(items[i].subject);
				continue;
			}
			if (in_hands && items[i].arrived_ns >= in->last_clock_ns)
				in->stale_clock_ns = items[i].arrived_ns;
			in_hands = false;
			run_item(in, &items[i]);
			in->stale_clock_ns = NEVER;
		}
	}
	free(items);
	if (in->running)
	{
		in->timer_number++;
		tick(in, in->timer_number);
	}
}

/* ---- commands ------------------------------------------------------------------------------ */

static uint64_t
take_ticket(Instance *in, TicketKind kind, int slot)
{
	uint64_t	number = in->next_ticket++;
	Ticket	   *ticket = &in->tickets[number % MAX_TICKETS];

	if (ticket->kind != TICKET_NONE)
		fail_run("%s: a command was never answered", in->name);
	ticket->kind = kind;
	ticket->slot = slot;
	ticket->since_ns = now_ns;
	ticket->create_revision = in->views[slot].create_revision;
	ticket->held_back = in->views[slot].state == ELECTION_HELD_BACK;
	ticket->was_draining = in->views[slot].state == ELECTION_DRAINING;
	ticket->revision = store_revision();
	ticket->key = run_copy(in->views[slot].key, strlen(in->views[slot].key));
	checker_stimulus(in);
	return number;
}

static void
end_command(Instance *in, uint64_t number, bool taken)
{
	/* a command of that kind is under way; the real elector would try again later */
	if (!taken)
		in->tickets[number % MAX_TICKETS].kind = TICKET_NONE;
	settle(in);
}

void
instance_resign(Instance *in, int slot, bool rejoin, int64_t drain_ns)
{
	uint64_t	number = take_ticket(in, TICKET_RESIGN, slot);
	bool		taken;

	trace(in->name, "command %" PRIu64 ": resign %s%s, drain %.3f s", number, in->views[slot].name,
		  rejoin ? ", rejoin" : "", drain_ns / 1e9);
	work_asked(in, slot, drain_ns);
	in->reason = ELECTION_REASON_RESIGNED;
	in->reason_slot = slot;
	taken = election_resign(in->core, instance_now(in), slot, rejoin, drain_ns, number);
	in->reason = ELECTION_NO_REASON;
	if (taken && !in->is_dead && instance_leads(in, slot) && in->views[slot].state != ELECTION_DRAINING)
		fail_run("%s leads %s after it has resigned", in->name, in->views[slot].name);
	if (taken && !in->is_dead && !rejoin)
		shared_set_stay_out(in, in->views[slot].name, true);
	end_command(in, number, taken);
}

void
instance_campaign(Instance *in, int slot)
{
	uint64_t	number = take_ticket(in, TICKET_CAMPAIGN, slot);
	bool		taken;

	trace(in->name, "command %" PRIu64 ": campaign %s", number, in->views[slot].name);
	taken = election_campaign(in->core, instance_now(in), slot, number);
	if (taken && !in->is_dead && in->config.eligible && in->views[slot].state == ELECTION_DRAINING)
		fail_run("%s drains %s on, though it was told to campaign", in->name, in->views[slot].name);
	if (taken && !in->is_dead && in->config.eligible)
		shared_set_stay_out(in, in->views[slot].name, false);
	end_command(in, number, taken);
}

void
instance_proclaim(Instance *in, int slot, const char *value)
{
	uint64_t	number = take_ticket(in, TICKET_PROCLAIM, slot);
	bool		taken;

	in->tickets[number % MAX_TICKETS].value = run_copy(value, strlen(value));
	trace(in->name, "command %" PRIu64 ": proclaim %s in %s", number, value, in->views[slot].name);
	taken = election_proclaim(in->core, instance_now(in), slot, value, number);
	end_command(in, number, taken);
}

void
instance_verify(Instance *in, int slot)
{
	uint64_t	number = take_ticket(in, TICKET_VERIFY, slot);
	bool		taken;

	trace(in->name, "command %" PRIu64 ": verify %s", number, in->views[slot].name);
	taken = election_verify(in->core, instance_now(in), slot, number);
	end_command(in, number, taken);
}

void
instance_transfer(Instance *in, int slot, const char *to_node, int64_t timeout_ns, int64_t drain_ns)
{
	uint64_t	number = take_ticket(in, TICKET_TRANSFER, slot);
	int64_t		clock_ns = instance_now(in);
	bool		taken;

	in->tickets[number % MAX_TICKETS].value = run_copy(to_node, strlen(to_node));
	trace(in->name, "command %" PRIu64 ": transfer %s to %s, drain %.3f s", number, in->views[slot].name, to_node,
		  drain_ns / 1e9);
	work_asked(in, slot, drain_ns);
	taken = election_transfer(in->core, clock_ns, slot, to_node, clock_ns + timeout_ns, drain_ns, number);
	end_command(in, number, taken);
}

void
instance_cancel(Instance *in, int slot)
{
	for (uint64_t number = in->next_ticket; number-- > 1 && number + MAX_TICKETS > in->next_ticket;)
	{
		const Ticket *ticket = &in->tickets[number % MAX_TICKETS];

		if (ticket->slot != slot || (ticket->kind != TICKET_RESIGN && ticket->kind != TICKET_TRANSFER))
			continue;
		trace(in->name, "command %" PRIu64 " is cancelled", number);
		checker_stimulus(in);
		if (election_cancel(in->core, instance_now(in), number) && !in->is_dead &&
			in->views[slot].state != ELECTION_LEADING)
			fail_run("%s does not lead %s on after a drain was cancelled", in->name, in->views[slot].name);
		settle(in);
		return;
	}
}

void
instance_drained(Instance *in, int slot)
{
	trace(in->name, "has no work in %s any more", in->views[slot].name);
	checker_stimulus(in);
	election_drained(in->core, instance_now(in), slot);
	settle(in);
}
