/*-------------------------------------------------------------------------
 *
 * server.c
 *	  A member of etcd: it answers unary calls.
 *
 * A write goes to the true leader, and is answered when the member has applied
 * it.  A linearizable read asks the true leader for the index of its log, waits
 * until the member has applied that much, and reads the member's state.  For a
 * keepalive the member first takes the header of the answer.  Then the member
 * that it believes to be the leader renews the lease.
 *
 * A request may still be executed after its client's time-out.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "faults.h"
#include "plan.h"
#include "rights.h"
#include "server.h"

typedef enum CallPhase
{
	CALL_ARRIVED,				/* the member has not begun with it, or is stopped */
	CALL_TO_LEADER,				/* waits for a leader */
	CALL_AT_LEADER,				/* on the way to the leader, or back */
	CALL_APPLY,					/* waits until the member has applied `index` */
	CALL_ENDED
} CallPhase;

typedef struct Call
{
	struct Call *next;			/* next call at the same member */
	int			member;
	uint32_t	boot;
	uint32_t	history;
	const EtcdRequest *request;
	Cause		cause;
	Served	   *account;
	CallPhase	phase;
	bool		answered;
	int64_t		give_up_ns;		/* after that time a write is not tried any more */
	int64_t		index;
	EtcdAnswer	answer;
	CallDone	done;
	void	   *owner;
} Call;

static Call *calls[MAX_MEMBERS];

static void progress(Call *call);

void
server_reset(void)
{
	memset(calls, 0, sizeof(calls));
	rights_reset();
}

/* Does the client only read?  Raft's log may order the read, or not. */
static bool
is_plain_read(const EtcdRequest *request)
{
	return request->kind == ETCD_TXN && request->ncompares == 0;
}

static bool
is_read(const EtcdRequest *request)
{
	if (request->kind != ETCD_TXN)
		return false;
	for (int i = 0; i < request->nsuccess; i++)
	{
		if (request->success[i].kind != ETCD_OP_RANGE)
			return false;
	}
	for (int i = 0; i < request->nfailure; i++)
	{
		if (request->failure[i].kind != ETCD_OP_RANGE)
			return false;
	}
	return true;
}

/* A read that raft's log orders, because it also contains an empty txn. */
static bool
is_ordered_read(const EtcdRequest *request)
{
	return is_plain_read(request) && !etcd_writes(request->success, request->nsuccess);
}

/* Counts a call that was executed.  `fetched` is store_fetched before it. */
static void
count(const Call *call, int64_t fetched)
{
	Served	   *account = call->account;

	if (account == NULL)
		return;
	if (call->request->kind == ETCD_KEEPALIVE)
		account->keepalives++;
	else if (is_read(call->request))
		account->reads++;
	else if (is_ordered_read(call->request))
		account->ordered++;
	else
		account->writes++;
	account->fetched += store_fetched - fetched;
}

static void
answer_now(Call *call, const EtcdAnswer *answer)
{
	if (call->answered)
		return;
	call->answered = true;
	call->done(call->owner, answer);
}

static void
refuse(Call *call, int code, const char *message)
{
	EtcdAnswer	answer = {.outcome = ETCD_REFUSED, .code = code};

	strcpy(answer.message, message);
	answer_now(call, &answer);
}

/* May the client do that?  Otherwise the answer says so. */
static bool
is_allowed(Call *call)
{
	if (call->cause != BY_CLIENT || rights_allow(call->request))
		return true;
	memset(&call->answer, 0, sizeof(call->answer));
	call->answer.outcome = ETCD_REFUSED;
	call->answer.code = ETCD_CODE_PERMISSION_DENIED;
	strcpy(call->answer.message, "etcdserver: permission denied");
	return false;
}

/* The header is completed when the answer is written. */
static void
write_answer(void *subject, uint64_t boot)
{
	Call	   *call = subject;
	EtcdHeader	header;

	if (cluster.members[call->member].boot != boot)
		return;
	if (call->request->kind != ETCD_KEEPALIVE && call->answer.outcome == ETCD_ANSWERED)
	{
		member_header(call->member, &header);
		if (call->request->kind == ETCD_TXN)
			header.revision = call->answer.header.revision;
		call->answer.header = header;
	}
	answer_now(call, &call->answer);
}

static void
finish(Call *call)
{
	call->phase = CALL_ENDED;
	if (random_chance(500))
		events_after(random_between(0, 20 * MS), write_answer, call, call->boot);
	else
		write_answer(call, call->boot);
}

/* ---- at the leader -------------------------------------------------------------- */

static void
come_back(void *subject, uint64_t index)
{
	Call	   *call = subject;

	if (call->history != cluster.history)
		return;
	call->index = (int64_t) index;
	call->phase = CALL_APPLY;
	progress(call);
}

static void
retry(void *subject, uint64_t tag)
{
	Call	   *call = subject;

	if (call->history != cluster.history || call->phase != CALL_AT_LEADER)
		return;
	call->phase = CALL_TO_LEADER;
	progress(call);
}

/* A write, or a read's request for the index, has arrived at the true leader. */
static void
at_leader(void *subject, uint64_t tag)
{
	Call	   *call = subject;
	int64_t		fetched = store_fetched;

	if (call->history != cluster.history)
		return;
	if (!cluster_works() || (is_read(call->request) && call->answered))
	{
		call->phase = CALL_TO_LEADER;
		progress(call);
		return;
	}
	if (is_read(call->request))
	{
		events_after(random_between(0, 2 * MS), come_back, call, store_index());
		return;
	}
	if (is_allowed(call))
	{
		(void) cluster_write(call->request, call->cause, &call->answer);
		count(call, fetched);
	}
	call->index = store_index();
	if (call->request->kind == ETCD_GRANT && call->cause == BY_CLIENT)
		faults_at_grant(cluster.leader, call->member);
	call->phase = CALL_APPLY;
	progress(call);
}

static void
answer_keepalive(void *subject, uint64_t ttl_s)
{
	Call	   *call = subject;

	if (call->history != cluster.history || call->phase == CALL_ENDED)
		return;
	call->answer.ttl_s = (int64_t) ttl_s;
	count(call, store_fetched);
	finish(call);
}

static void
answer_time_to_live(void *subject, uint64_t tag)
{
	Call	   *call = subject;

	if (call->history == cluster.history && call->phase != CALL_ENDED)
		finish(call);
}

/*
 * Answers from the expiry times of a member that believes to be the leader.  It
 * does not verify that.
 */
static void
tell_time_to_live(Call *call, int m)
{
	if (!member_runs(m) || !member_thinks_leader(m))
	{
		events_after(random_between(50 * MS, 500 * MS), retry, call, 0);
		return;
	}
	call->answer.outcome = ETCD_ANSWERED;
	call->answer.lease = call->request->lease;
	call->answer.ttl_s = lessor_time_to_live(m, call->request->lease, &call->answer.granted_ttl_s);
	if (m != call->member)
		faults_at_time_to_live();
	events_after(m == call->member ? 0 : random_between(0, 2 * MS), answer_time_to_live, call, 0);
}

/* A keepalive has arrived at a member that may be the leader. */
static void
renew(void *subject, uint64_t m)
{
	Call	   *call = subject;
	int64_t		ttl_s;

	if (call->history != cluster.history || call->phase != CALL_AT_LEADER)
		return;
	if (call->request->kind == ETCD_TIME_TO_LIVE)
	{
		tell_time_to_live(call, (int) m);
		return;
	}
	if ((int) m == cluster.leader && (int) m != call->member && call->cause == BY_CLIENT)
		faults_at_renewal((int) m, call->request->lease);
	if (!member_runs((int) m) || !member_thinks_leader((int) m) ||
		(plan.ensures_leadership && ((int) m != cluster.leader || !cluster_works())))
	{
		if ((int) m == call->member && member_thinks_leader((int) m))
		{
			call->phase = CALL_ENDED;
			refuse(call, ETCD_CODE_UNKNOWN, "not a primary lessor");
			return;
		}
		events_after(random_between(50 * MS, 500 * MS), retry, call, 0);
		return;
	}
	ttl_s = lessor_renew((int) m, call->request->lease);
	if ((int) m != cluster.leader && tracing)
		trace_line(cluster.members[m].name, "renews lease %llx, though it does not lead any more",
				   (unsigned long long) call->request->lease);
	events_after((int) m == call->member ? 0 : random_between(0, 2 * MS), answer_keepalive, call, ttl_s);
}

/* ---- a call at its member ------------------------------------------------------------ */

static void
go_to_leader(Call *call)
{
	int			m = call->member;
	int			leader = cluster.leader;
	/* the member sends these to the leader that it believes in */
	bool		keepalive = call->request->kind == ETCD_KEEPALIVE ||
		call->request->kind == ETCD_TIME_TO_LIVE;
	int64_t		delay_ns;

	if (keepalive)
		leader = member_thinks_leader(m) ? m : cluster.members[m].believes;
	else if (!cluster_works())
		return;
	if (leader < 0 || !members_connected(m, leader))
	{
		if (keepalive)
		{
			call->phase = CALL_AT_LEADER;
			events_after(random_between(50 * MS, 500 * MS), retry, call, 0);
		}
		return;
	}
	call->phase = CALL_AT_LEADER;
	delay_ns = leader == m ? random_between(0, MS / 10) : random_between(MS / 10, 3 * MS);

	/* a proposal may wait for longer than its client's time-out */
	if (!keepalive && !is_read(call->request) && !is_plain_read(call->request) &&
		call->cause == BY_CLIENT && random_chance(plan.late_writes))
		delay_ns += random_between(0, random_chance(5000) ? SECOND : 8 * SECOND);
	events_after(delay_ns, keepalive ? renew : at_leader, call, keepalive ? leader : 0);
}

static void
progress(Call *call)
{
	Member	   *member = &cluster.members[call->member];

	if (call->boot != member->boot || !member_runs(call->member))
		return;
	if (call->phase == CALL_ARRIVED)
	{
		if (!member_has_leader(call->member))
		{
			call->phase = CALL_ENDED;
			refuse(call, ETCD_CODE_UNAVAILABLE, "etcdserver: no leader");
			return;
		}
		if (call->request->kind == ETCD_KEEPALIVE && !is_allowed(call))
		{
			finish(call);
			return;
		}
		if (call->request->kind == ETCD_KEEPALIVE)
		{
			call->answer.outcome = ETCD_ANSWERED;
			call->answer.lease = call->request->lease;
			member_header(call->member, &call->answer.header);
		}
		call->phase = CALL_TO_LEADER;
		if (is_read(call->request) && now_ns < member->stale_until_ns && random_chance(plan.stale_reads))
		{
			/* the read index was confirmed before the member was stopped (#20418) */
			call->phase = CALL_APPLY;
			call->index = 0;
		}
	}
	if (call->phase == CALL_TO_LEADER)
	{
		if (call->give_up_ns <= now_ns)
			call->phase = CALL_ENDED;
		else if (is_read(call->request) && member_thinks_leader(call->member) &&
				 call->member != cluster.leader && random_chance(5000))
		{
			call->phase = CALL_ENDED;
			refuse(call, ETCD_CODE_UNAVAILABLE, "etcdserver: leader changed");
		}
		else
			go_to_leader(call);
	}
	else if (call->phase == CALL_APPLY && member->applied >= call->index)
	{
		if (is_read(call->request))
		{
			int64_t		fetched = store_fetched;

			if (is_allowed(call))
			{
				store_read(member->applied, call->request, &call->answer);
				count(call, fetched);
			}
		}
		finish(call);
		if (is_plain_read(call->request) && call->cause == BY_CLIENT)
			faults_at_read(call->request);
	}
}

/* ---- called by others ------------------------------------------------------------------- */

static void
time_out(void *subject, uint64_t boot)
{
	Call	   *call = subject;

	if (call->answered || cluster.members[call->member].boot != boot)
		return;
	if (!member_runs(call->member))
	{
		/* a stopped member cannot answer with a time-out */
		events_after(100 * MS, time_out, call, boot);
		return;
	}
	if (random_chance(7000))
		refuse(call, ETCD_CODE_DEADLINE_EXCEEDED, "context deadline exceeded");
	else
		refuse(call, ETCD_CODE_UNAVAILABLE, "etcdserver: request timed out");

	/* A proposal that is under way may still be executed. */
	call->give_up_ns = random_chance(5000) ? now_ns : now_ns + random_between(0, 8 * SECOND);
}

static void
arrive(void *subject, uint64_t tag)
{
	progress(subject);
}

void
server_call(int m, const EtcdRequest *request, int64_t timeout_ns, Cause cause,
			Served *account, CallDone done, void *owner)
{
	Call	   *call = run_alloc(sizeof(Call));

	call->member = m;
	call->boot = cluster.members[m].boot;
	call->history = cluster.history;
	call->request = request;
	call->cause = cause;
	call->account = account;
	call->give_up_ns = NEVER;
	call->done = done;
	call->owner = owner;
	call->next = calls[m];
	calls[m] = call;
	events_after(timeout_ns, time_out, call, call->boot);
	events_after(random_between(0, MS / 5), arrive, call, 0);
}

static void
wake(void *subject, uint64_t boot)
{
	Call	   *call = subject;

	if (boot == call->boot)
		progress(call);
}

/*
 * Continues the calls that wait.  Those that came while the member was stopped
 * are processed in any order.
 */
void
server_wake(int m)
{
	Call	  **link = &calls[m];

	while (*link != NULL)
	{
		Call	   *call = *link;

		if (call->phase == CALL_ENDED)
		{
			*link = call->next;
			continue;
		}
		if (call->phase == CALL_ARRIVED)
			events_after(random_between(0, 20 * MS), wake, call, call->boot);
		else
			progress(call);
		link = &call->next;
	}
}

/* Closes all connections.  A proposal that has left the member goes on. */
void
server_crashed(int m)
{
	for (Call *call = calls[m]; call != NULL; call = call->next)
	{
		if (!call->answered)
		{
			call->answered = true;
			call->done(call->owner, NULL);
		}
	}
	calls[m] = NULL;
}
