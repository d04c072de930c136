/*-------------------------------------------------------------------------
 *
 * command.c
 *	  Settings, commands and the end of the core.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "hand_over.h"
#include "leadership.h"
#include "lease.h"
#include "patroni.h"
#include "publish.h"
#include "queue.h"
#include "reconcile.h"
#include "rival.h"

/* ---- settings ---------------------------------------------------------------- */

/* The index of an election in the settings; -1: it is not there. */
static int
find_configured(const ElectionConfig *config, const char *name)
{
	for (int i = 0; i < config->nelections; i++)
	{
		if (strcmp(config->elections[i], name) == 0)
			return i;
	}
	return -1;
}

bool
election_resume(ElectionCore *core, int64_t now_ns, const ElectionHistory *history,
				const ElectionMemory *memory)
{
	core->history = *history;
	core->max_revision = history->max_revision;
	core->min_token_exclusive = history->min_token_exclusive;
	if (memory == NULL || memory->nelections > core->max_elections)
		return false;
	core->config.safety_margin_ms = memory->safety_margin_ms;
	if (!lease_resume(core, now_ns, memory))
		return false;
	copy_string(core->config.node_name, memory->node_name, sizeof(core->config.node_name));
	core->cluster_id = memory->cluster_id;
	core->term_seen = memory->term_seen;
	for (int i = 0; i < memory->nelections; i++)
		queue_resume(core, memory, i);
	return true;
}

/* The new settings, which are in core->config, for an election that has a slot. */
static void
configure_election(ElectionCore *core, Election *e, bool first, bool renamed)
{
	int			configured = find_configured(&core->config, e->name);
	bool		was_wanted = e->wanted && !first;

	e->wanted = configured >= 0;
	/* an election that was resumed does not know yet, and one that comes back may not */
	if (e->wanted && !was_wanted)
	{
		e->stay_out = core->config.stay_out[configured];
		e->rival.timelines = core->config.timelines[configured];
	}
	if (renamed && e->commands.proclaim_ticket == 0)
		copy_string(e->own.wanted_value, core->config.node_name, sizeof(e->own.wanted_value));
	if (!e->wanted)
	{
		queue_leave(core, e, ELECTION_REASON_DROPPED);
		/* none if the slot is free by now, or was given away */
		if (e->denials >= MAX_DENIALS)
			queue_deny(core, e);
	}
	else if (!core->config.eligible && is_candidate(e))
		queue_leave(core, e, ELECTION_REASON_NOT_ELIGIBLE);
	else if (first && e->stay_out && is_candidate(e))
		queue_leave(core, e, ELECTION_REASON_RESIGNED);	/* it drained when its elector died */
	else if (core->config.eligible && e->state == ELECTION_OBSERVING)
		queue_begin_without_key(core, e);
	else
		publish_view(core, e);	/* the margin may have changed */
}

void
election_configure(ElectionCore *core, int64_t now_ns, const ElectionConfig *config)
{
	bool		renamed = strcmp(core->config.node_name, config->node_name) != 0;
	bool		other_cluster = renamed ||
		strcmp(core->config.patroni_namespace, config->patroni_namespace) != 0;
	bool		first = core->config.nendpoints == 0;

	if (core->stopping)
		return;
	/* by the margin in force: a new margin revives nothing */
	leadership_expire(core, now_ns);
	core->config = *config;
	lease_configure(core, now_ns);
	/* by the new margin: leadership that has lapsed is not shown again */
	leadership_expire(core, now_ns);
	/* They may be other endpoints now. */
	core->failed_endpoints = 0;
	core->first_failure_ns = 0;
	core->contact_failures = 0;
	core->contact_retry_ns = now_ns;
	for_each_election(core, e)
	{
		configure_election(core, e, first, renamed);
		/* it may have been dropped, and its slot given away */
		if (e->followed)
			patroni_configure(core, now_ns, e, other_cluster);
	}
	queue_take_up_elections(core);
	reconcile(core, now_ns);
}

/* ---- commands ------------------------------------------------------------------ */

/*
 * The election of a command.  Leadership that has run out meanwhile must be
 * withdrawn before: it can be neither drained nor led on.  So the instance leaves
 * before a campaign if it drained to resign.  The same holds for the other elections, as
 * not each command is followed by reconcile().
 */
static Election *
begin_command(ElectionCore *core, int64_t now_ns, int slot)
{
	leadership_expire(core, now_ns);
	for_each_election(core, e)
		drain_carry_out_resignation(core, e);
	return &core->elections[slot];
}

/* Another command takes the place of a drain, or of a transfer; the instance leads. */
static void
end_drain(ElectionCore *core, Election *e)
{
	if (e->transfer.stage == TRANSFER_SURVEYING || e->transfer.stage == TRANSFER_DRAINING)
		transfer_end(core, e, ELECTION_CANCELLED);
	else if (is_draining(e))
		drain_cancel(core, e);
}

bool
election_resign(ElectionCore *core, int64_t now_ns, int slot, bool rejoin, int64_t drain_ns,
				uint64_t ticket)
{
	Election   *e = begin_command(core, now_ns, slot);
	bool		was_in = is_queued(e);

	if (e->commands.resign_ticket != 0 && !is_draining(e))
		return false;
	end_drain(core, e);
	if (!rejoin)
	{
		was_in |= e->state == ELECTION_JOINING || e->state == ELECTION_LEAVING;
		e->stay_out = true;
		if (e->state == ELECTION_OBSERVING || e->state == ELECTION_SECOND_PRIMARY)
			queue_begin_without_key(core, e);
	}
	if (!was_in)
		publish_reply(core, &ticket, ELECTION_NOTHING_TO_DO);
	else if (e->state == ELECTION_LEADING && drain_ns > 0)
	{
		e->commands.resign_ticket = ticket;
		drain_begin(core, now_ns, e, DRAIN_RESIGN, drain_ns);
		reconcile(core, now_ns);
	}
	else
	{
		e->commands.resign_ticket = ticket;
		queue_leave(core, e, ELECTION_REASON_RESIGNED);
		if (!core->connected)
			publish_reply(core, &e->commands.resign_ticket, ELECTION_NO_CONTACT);
		reconcile(core, now_ns);
	}
	return true;
}

bool
election_campaign(ElectionCore *core, int64_t now_ns, int slot, uint64_t ticket)
{
	Election   *e = begin_command(core, now_ns, slot);

	if (e->commands.campaign_ticket != 0)
		return false;
	if (!core->config.eligible || e->followed)
	{
		publish_reply(core, &ticket, ELECTION_NOT_ELIGIBLE);
		return true;
	}
	if (e->state == ELECTION_HELD_BACK)
	{
		/* The operator accepts that tokens may go back. */
		core->min_token_exclusive = 0;
		e->read_wanted = true;
		publish_reply(core, &ticket, ELECTION_DONE);
	}
	else if (is_draining(e))
	{
		end_drain(core, e);
		publish_reply(core, &ticket, ELECTION_DONE);
	}
	else if (is_queued(e))
		publish_reply(core, &ticket, ELECTION_NOTHING_TO_DO);
	else
	{
		if (e->state == ELECTION_SECOND_PRIMARY ||
			(e->state == ELECTION_JOINING && rival_leads(core, e)))
			rival_accept(core, e);
		e->commands.campaign_ticket = ticket;
		e->stay_out = false;
		/* in these two states it will enter without more ado */
		if (e->state != ELECTION_LEAVING && e->state != ELECTION_JOINING)
			queue_begin_without_key(core, e);
		if (!core->connected)
			publish_reply(core, &e->commands.campaign_ticket, ELECTION_NO_CONTACT);
	}
	reconcile(core, now_ns);
	return true;
}

bool
election_proclaim(ElectionCore *core, int64_t now_ns, int slot, const char *value, uint64_t ticket)
{
	Election   *e = begin_command(core, now_ns, slot);

	if (e->commands.proclaim_ticket != 0)
		return false;
	if (!is_queued(e))
		publish_reply(core, &ticket, ELECTION_NOT_CANDIDATE);
	else
	{
		e->commands.proclaim_ticket = ticket;
		copy_string(e->own.wanted_value, value, sizeof(e->own.wanted_value));
		e->commands.proclaim_from_id = core->next_id;	/* a put under way was sent before */
		e->own.must_put_value = true;
		e->retry_ns = 0;
		if (!core->connected)
			publish_reply(core, &e->commands.proclaim_ticket, ELECTION_NO_CONTACT);
		reconcile(core, now_ns);
	}
	return true;
}

bool
election_transfer(ElectionCore *core, int64_t now_ns, int slot, const char *to_node,
				  int64_t until_ns, int64_t drain_ns, uint64_t ticket)
{
	Election   *e = begin_command(core, now_ns, slot);

	if (e->transfer.stage == TRANSFER_SENT || e->transfer.stage == TRANSFER_WATCHING)
		return false;
	if (e->followed || e->state != ELECTION_LEADING)
		publish_reply(core, &ticket, ELECTION_NOT_LEADER);
	else if (strcmp(to_node, e->own.value) == 0)
		publish_reply(core, &ticket, ELECTION_DONE);
	else if (!core->connected)
		publish_reply(core, &ticket, ELECTION_NO_CONTACT);
	else
	{
		end_drain(core, e);
		transfer_begin(e, to_node, until_ns, drain_ns, ticket);
		reconcile(core, now_ns);
	}
	return true;
}

bool
election_verify(ElectionCore *core, int64_t now_ns, int slot, uint64_t ticket)
{
	Election   *e = begin_command(core, now_ns, slot);

	if (e->commands.verify_ticket != 0)
		return false;
	if (!is_used(e))
		publish_reply(core, &ticket, ELECTION_NOTHING_TO_DO);
	else
	{
		e->commands.verify_ticket = ticket;
		e->commands.verify_id = 0;	/* a read that is under way was sent before */
		e->read_wanted = true;
		reconcile(core, now_ns);
	}
	return true;
}

uint32_t
election_draining(const ElectionCore *core)
{
	uint32_t	slots = 0;

	for (const Election *e = core->elections; e < core->elections + core->max_elections; e++)
	{
		if (is_draining(e))
			slots |= slot_bit(core, e);
	}
	return slots;
}

void
election_drained(ElectionCore *core, int64_t now_ns, int slot)
{
	Election   *e = begin_command(core, now_ns, slot);

	if (!is_draining(e) || e->drain.is_over)
		return;
	drain_finish(core, now_ns, e);
	reconcile(core, now_ns);
}

bool
election_cancel(ElectionCore *core, int64_t now_ns, uint64_t ticket)
{
	leadership_expire(core, now_ns);
	for_each_election(core, e)
	{
		if (is_draining(e) && drain_cancel_command(core, e, ticket))
			return true;
	}
	return false;
}

bool
election_stop(ElectionCore *core, int64_t now_ns, ElectionReason reason)
{
	for_each_election(core, e)
		leadership_withdraw(core, e, reason);
	core->stopping = true;
	/* a try at each other endpoint for each of the leases */
	core->shutdown_revocations_left = 3 * (core->config.nendpoints - 1);
	core->port.watch(core->port.ctx, NULL, 0);

	/* Nothing that is still under way matters: the keys go with the leases. */
	memset(core->ops, 0, sizeof(core->ops));
	lease_revoke_all(core, now_ns);
	return !election_stopped(core);
}

bool
election_stopped(const ElectionCore *core)
{
	return core->stopping && !request_is_under_way(core, OP_REVOKE, ALL_SLOTS);
}
