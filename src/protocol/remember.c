/*-------------------------------------------------------------------------
 *
 * remember.c
 *	  What the next elector is to know if this one dies: a record of the lease and the
 *	  own keys, and the history of etcd (MEMORY, HISTORY).
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "remember.h"

/* Before a message is sent that changes keys or leases (MEMORY). */
void
remember_nothing(ElectionCore *core)
{
	if (core->remembered)
		core->port.remember(core->port.ctx, NULL);
	core->remembered = false;
}

/* Lets the caller remember the history, if it has changed. */
void
remember_history(ElectionCore *core)
{
	ElectionHistory history = {core->max_revision, core->min_token_exclusive};

	if (memcmp(&history, &core->history, sizeof(history)) == 0)
		return;
	core->history = history;
	core->port.remember_history(core->port.ctx, &history);
}

static bool
is_transfer_unresolved(const ElectionCore *core)
{
	for_each_election(core, e)
	{
		if (transfer_is_sent(e))
			return true;
	}
	return request_is_under_way(core, OP_TRANSFER, ALL_SLOTS);
}

/*
 * Is the result of everything that was sent about keys and leases known?  A
 * grant under way does not matter: no key is attached to that lease yet.
 */
static bool
may_remember(const ElectionCore *core)
{
	return !lease_is_in_doubt(core) &&
		!request_is_under_way(core, OP_MOVE, ALL_SLOTS) &&
		!request_is_under_way(core, OP_ENTER, ALL_SLOTS) &&
		!request_is_under_way(core, OP_DELETE, ALL_SLOTS) &&
		!is_transfer_unresolved(core);
}

static void
remember_election(const Election *e, ElectionMemory *memory)
{
	int			n = memory->nelections++;

	memset(&memory->elections[n], 0, sizeof(memory->elections[n]));
	copy_string(memory->elections[n].name, e->name, ELECTION_NAME_SIZE);
	copy_string(memory->elections[n].value, e->own.wanted_value, ELECTION_VALUE_SIZE);
	copy_string(memory->elections[n].key, e->own.key, ELECTION_KEY_SIZE);
	if (is_queued(e))
	{
		copy_string(memory->elections[n].key_value, e->own.value, ELECTION_VALUE_SIZE);
		memory->elections[n].create_revision = e->own.create_revision;
		memory->elections[n].mod_revision = e->own.mod_revision;
		memory->elections[n].lease = e->own.lease;
	}
}

/* Lets the caller remember the current state. */
static void
record_state(ElectionCore *core)
{
	ElectionMemory *draft = &core->draft;

	/* they are compared byte by byte, and contain no padding that is not 0 */
	memset(draft, 0, offsetof(ElectionMemory, elections));
	copy_string(draft->node_name, core->config.node_name, sizeof(draft->node_name));
	draft->safety_margin_ms = core->config.safety_margin_ms;
	draft->cluster_id = core->cluster_id;
	draft->term_seen = core->term_seen;
	draft->lease = core->lease;
	for_each_election(core, e)
	{
		if (e->own.key[0] != '\0')
			remember_election(e, draft);
	}
	if (core->remembered && memcmp(draft, &core->memory, election_memory_size(draft)) == 0)
		return;
	memcpy(&core->memory, draft, election_memory_size(draft));
	core->remembered = true;
	core->port.remember(core->port.ctx, &core->memory);
}

void
remember_state(ElectionCore *core)
{
	/* No lease of a history that was discarded is found beside another history. */
	if (!may_remember(core))
		remember_nothing(core);
	remember_history(core);
	if (may_remember(core))
		record_state(core);
}
