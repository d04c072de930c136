/*-------------------------------------------------------------------------
 *
 * trace.c
 *	  What the protocol decides and sends, for the log.
 *
 * DEBUG1: each new state of an election, and each answer that is dropped, with
 * the reason.  DEBUG2: requests, answers, watches and their events.
 *
 * Messages are for developers, and not translated.  While a level is off, a
 * call costs the question whether it is on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "elector/trace.h"
#include "etcd/text.h"

/* As slots were shown last. */
static ElectionState shown[ELECTION_MAX_ELECTIONS];

static const char *const op_names[] = {
	[ETCD_OP_RANGE] = "range",
	[ETCD_OP_PUT] = "put",
	[ETCD_OP_DELETE] = "delete",
	[ETCD_OP_EMPTY_TXN] = "empty txn"
};

/* ---- decisions: DEBUG1 ----------------------------------------------------- */

void
elector_trace_state(int slot, const ElectionView *view)
{
	ElectionState before = shown[slot];

	shown[slot] = view->state;
	if (view->state == before || !message_level_is_interesting(DEBUG1))
		return;
	if (view->state == ELECTION_UNUSED)
		ereport(DEBUG1,
				(errmsg_internal("slot %d of elections: \"%s\" after \"%s\"", slot,
								 election_state_name(view->state), election_state_name(before))));
	else
		ereport(DEBUG1,
				(errmsg_internal("election \"%s\": \"%s\" after \"%s\"", view->name,
								 election_state_name(view->state), election_state_name(before))));
}

void
elector_trace_drop(void *ctx, uint64_t id, const char *election, const char *why)
{
	if (!message_level_is_interesting(DEBUG1))
		return;
	if (id == 0)
		ereport(DEBUG1,
				(errmsg_internal("frame of the watch dropped: %s", why)));
	else if (election == NULL)
		ereport(DEBUG1,
				(errmsg_internal("answer %llu dropped: %s", (unsigned long long) id, why)));
	else
		ereport(DEBUG1,
				(errmsg_internal("election \"%s\": answer %llu dropped: %s", election,
								 (unsigned long long) id, why)));
}

/* ---- messages: DEBUG2 ------------------------------------------------------ */

static void
append_key(StringInfo line, EtcdBytes key)
{
	appendStringInfo(line, " \"%s\"", etcd_escape_text(pnstrdup(key.data, key.len)));
}

static void
append_ops(StringInfo line, const char *when, const EtcdOp *ops, int nops)
{
	for (int i = 0; i < nops; i++)
	{
		appendStringInfo(line, "%s%s", i == 0 ? when : ", ", op_names[ops[i].kind]);
		if (ops[i].kind != ETCD_OP_EMPTY_TXN)
			append_key(line, ops[i].key);
	}
}

void
elector_trace_request(uint64 id, const EtcdRequest *request)
{
	StringInfoData line;

	if (!message_level_is_interesting(DEBUG2))
		return;
	initStringInfo(&line);
	switch (request->kind)
	{
		case ETCD_GRANT:
			appendStringInfo(&line, "grant of lease %llx for %lld s",
							 (unsigned long long) request->lease,
							 (long long) request->ttl_s);
			break;
		case ETCD_KEEPALIVE:
			appendStringInfo(&line, "keepalive of lease %llx", (unsigned long long) request->lease);
			break;
		case ETCD_REVOKE:
			appendStringInfo(&line, "revocation of lease %llx",
							 (unsigned long long) request->lease);
			break;
		case ETCD_TIME_TO_LIVE:
			appendStringInfo(&line, "time to live of lease %llx",
							 (unsigned long long) request->lease);
			break;
		case ETCD_TXN:
			appendStringInfo(&line, "txn with compares: %d", request->ncompares);
			append_ops(&line, "; then ", request->success, request->nsuccess);
			append_ops(&line, "; else ", request->failure, request->nfailure);
			break;
		default:
			appendStringInfo(&line, "kind %d", request->kind);
	}
	ereport(DEBUG2,
			(errmsg_internal("request %llu: %s", (unsigned long long) id, line.data)));
	pfree(line.data);
}

void
elector_trace_answer(uint64 id, const EtcdAnswer *answer)
{
	if (!message_level_is_interesting(DEBUG2))
		return;
	if (answer->outcome == ETCD_ANSWERED)
		ereport(DEBUG2,
				(errmsg_internal("answer %llu: revision %lld, term %llu", (unsigned long long) id,
								 (long long) answer->header.revision,
								 (unsigned long long) answer->header.raft_term)));
	else
		ereport(DEBUG2,
				(errmsg_internal("answer %llu: %s", (unsigned long long) id, answer->message)));
}

void
elector_trace_watches(const EtcdWatch *watches, int nwatches)
{
	StringInfoData line;

	if (!message_level_is_interesting(DEBUG2))
		return;
	initStringInfo(&line);
	for (int i = 0; i < nwatches; i++)
	{
		appendStringInfo(&line, "%s from revision %lld on", i == 0 ? "" : ",",
						 (long long) watches[i].start_revision);
		append_key(&line, watches[i].key);
	}
	ereport(DEBUG2,
			(errmsg_internal("watch:%s", nwatches == 0 ? " none" : line.data)));
	pfree(line.data);
}

void
elector_trace_frame(const EtcdWatchFrame *frame)
{
	if (!message_level_is_interesting(DEBUG2))
		return;
	for (int i = 0; i < frame->nevents; i++)
	{
		const EtcdWatchEvent *event = &frame->events[i];
		StringInfoData line;

		initStringInfo(&line);
		append_key(&line, event->kv.key);
		ereport(DEBUG2,
				(errmsg_internal("watch: %s%s at revision %lld",
								 event->is_delete ? "delete" : "put",
								 line.data, (long long) event->kv.mod_revision)));
		pfree(line.data);
	}
}
