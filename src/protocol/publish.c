/*-------------------------------------------------------------------------
 *
 * publish.c
 *	  What readers are shown of an election, and told.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>

#include "bytes.h"
#include "patroni_cluster.h"
#include "publish.h"

/* Why this instance stays out (SECOND). */
static void
describe_second_primary(const ElectionCore *core, const Election *e, char *problem)
{
	const ElectionTimelines *timelines = &e->rival.timelines;

	if (timelines->leading > core->config.timeline)
		etcd_format_message(problem, "a primary of this database system has led on timeline %"
							PRIu32 ", and this instance is a primary on timeline %" PRIu32,
							timelines->leading, core->config.timeline);
	else
		etcd_format_message(problem, "another primary of this database system led on timeline %"
							PRIu32 " and was alive when this instance was a primary on timeline %"
							PRIu32, timelines->leading, core->config.timeline);
}

void
publish_view(ElectionCore *core, const Election *e)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	copy_string(view.name, e->name, sizeof(view.name));
	view.state = !is_used(e) ? ELECTION_UNUSED : is_draining(e) ? ELECTION_DRAINING : e->state;
	view.role = e->state == ELECTION_LEADING ? ELECTION_LEADER :
		is_candidate(e) ? ELECTION_CANDIDATE : ELECTION_OBSERVER;
	if (e->state == ELECTION_LEADING)
	{
		view.deadline_ns = leadership_deadline_ns(core, e);
		view.token = e->own.create_revision;
	}
	if (e->leader.is_known && e->leader.key.create_revision != 0)
	{
		view.has_leader = true;
		copy_string(view.leader, e->leader.value, sizeof(view.leader));
		view.leader_revision = e->leader.key.create_revision;
		view.leader_until_ns = e->leader.until_ns;
		/* the leader itself knows the leader as long as it leads */
		if (view.leader_until_ns < view.deadline_ns)
			view.leader_until_ns = view.deadline_ns;
	}
	if (is_queued(e))
	{
		copy_string(view.key, e->own.key, sizeof(view.key));
		view.create_revision = e->own.create_revision;
		view.lease = e->own.lease;
	}
	if (e->followed)
		patroni_describe(core, e, &view);
	else if (e->state == ELECTION_SECOND_PRIMARY)
		describe_second_primary(core, e, view.problem);
	core->port.publish(core->port.ctx, slot_of(core, e), &view);
}

void
publish_event(ElectionCore *core, ElectionEventKind kind, const Election *e,
			  bool with_leader, ElectionReason reason, const char *detail)
{
	ElectionEvent event = {.kind = kind, .election = e ? e->name : NULL,
		.reason = reason, .detail = detail};

	if (with_leader)
	{
		event.leader = e->leader.value;
		event.leader_revision = e->leader.key.create_revision;
	}
	core->port.announce(core->port.ctx, &event);
}

void
publish_reply(ElectionCore *core, uint64_t *ticket, ElectionReply result)
{
	uint64_t	t = *ticket;

	*ticket = 0;
	if (t != 0)
		core->port.reply(core->port.ctx, t, result);
}

/* ---- the words ------------------------------------------------------------- */

const char *
election_role_name(ElectionRole role)
{
	static const char *const names[] = {
		[ELECTION_OBSERVER] = "observer",
		[ELECTION_CANDIDATE] = "candidate",
		[ELECTION_LEADER] = "leader"
	};

	return names[role];
}

const char *
election_state_name(ElectionState state)
{
	static const char *const names[] = {
		[ELECTION_UNUSED] = "unused",
		[ELECTION_OBSERVING] = "observing",
		[ELECTION_RESIGNED] = "resigned",
		[ELECTION_SECOND_PRIMARY] = "second_primary",
		[ELECTION_JOINING] = "joining",
		[ELECTION_QUEUED] = "queued",
		[ELECTION_WAITING] = "waiting",
		[ELECTION_LEADING] = "leading",
		[ELECTION_DRAINING] = "draining",
		[ELECTION_HELD_BACK] = "held_back",
		[ELECTION_LEAVING] = "leaving",
		[ELECTION_FOLLOWING] = "following"
	};

	return names[state];
}

const char *
election_event_name(ElectionEventKind kind)
{
	static const char *const names[] = {
		[ELECTION_EVENT_ELECTED] = "elected",
		[ELECTION_EVENT_UNELECTED] = "unelected",
		[ELECTION_EVENT_LEADER] = "leader",
		[ELECTION_EVENT_CONNECTED] = "connected",
		[ELECTION_EVENT_DISCONNECTED] = "disconnected",
		[ELECTION_EVENT_DRAINING] = "draining",
		[ELECTION_EVENT_DRAIN_CANCELLED] = "drain_cancelled"
	};

	return names[kind];
}

const char *
election_reason_name(ElectionReason reason)
{
	static const char *const names[] = {
		[ELECTION_NO_REASON] = NULL,
		[ELECTION_REASON_RESIGNED] = "resigned",
		[ELECTION_REASON_TRANSFERRED] = "transferred",
		[ELECTION_REASON_LEASE_EXPIRED] = "lease_expired",
		[ELECTION_REASON_KEY_DELETED] = "key_deleted",
		[ELECTION_REASON_KEY_CHANGED] = "key_changed",
		[ELECTION_REASON_PERMISSION_DENIED] = "permission_denied",
		[ELECTION_REASON_NOT_ELIGIBLE] = "not_eligible",
		[ELECTION_REASON_DROPPED] = "dropped",
		[ELECTION_REASON_SHUTDOWN] = "shutdown",
		[ELECTION_REASON_HISTORY_CHANGED] = "history_changed",
		[ELECTION_REASON_PROCLAIMED] = "proclaimed",
		[ELECTION_REASON_NO_CONTACT] = "no_contact"
	};

	return names[reason];
}
