/*-------------------------------------------------------------------------
 *
 * commands.c
 *	  The functions that ask etcd, through the elector and its mailbox.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "base/clock.h"
#include "base/hidden.h"
#include "base/utf8.h"
#include "commands.h"
#include "fence/fence.h"
#include "rows.h"
#include "settings/settings.h"
#include "shared/fenced.h"
#include "shared/identity_file.h"
#include "shared/mailbox.h"
#include "shared/state.h"
#include "shared/status.h"

PG_FUNCTION_INFO_V1(etcd_verify_leader);
PG_FUNCTION_INFO_V1(etcd_resign);
PG_FUNCTION_INFO_V1(etcd_campaign);
PG_FUNCTION_INFO_V1(etcd_proclaim);
PG_FUNCTION_INFO_V1(etcd_transfer);
PG_FUNCTION_INFO_V1(etcd_candidates);

/*
 * How long to ask etcd whether there is another candidate, at a resignation.
 */
#define SUCCESSOR_TIMEOUT_US	INT64CONST(500000)

static const Oid candidate_columns[] = {
	INT4OID, TEXTOID, BOOLOID, BOOLOID, TEXTOID, TEXTOID, INT8OID
};

/* A request about the election with that index. */
static void
init_request(SharedRequest *request, SharedCommand command, int index)
{
	memset(request, 0, sizeof(SharedRequest));
	request->command = command;
	strlcpy(request->election, settings_election_name(index), ELECTION_NAME_SIZE);
}

/*
 * A request to change something in the election that argument number argno
 * names, and the index of that.  ERROR if Patroni decides who leads; that this server
 * is no copy is for the operator to say.
 */
static int
begin_change(FunctionCallInfo fcinfo, int argno, SharedRequest *request, SharedCommand command)
{
	int			index = arguments_get_election(fcinfo, argno);

	init_request(request, command, index);
	if (election_is_followed(request->election) &&
		!(command == COMMAND_CAMPAIGN && identity_is_copy()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("Patroni decides who leads election \"%s\"",
						utf8_to_server(request->election)),
				 errhint("Use \"patronictl switchover\" or \"patronictl failover\".")));
	return index;
}

void
commands_raise_no_elector(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the elector of etcd_leader is not running"),
			 shared_state_lacks_elector ?
			 errdetail("No background worker slot was free for it when the server started.") :
			 errdetail("It has not been started, or it ended before it could reply."),
			 shared_state_lacks_elector ?
			 errhint("Increase \"%s\" and restart the server.", "max_worker_processes") :
			 errhint("The server log says why.")));
}

/*
 * Sends the command, and turns every reply that is not a result into an ERROR.
 * consequence is a sentence that describes the effect of the command if etcd
 * does not answer; NULL: it has none.  Returns NULL if there was no reply
 * until then, see mailbox_ask().
 */
static SharedReply *
ask(const SharedRequest *request, int64 until_us, const char *consequence)
{
	SharedReply *reply = palloc(sizeof(SharedReply));
	const char *election;
	bool		no_contact;

	if (!mailbox_ask(request, until_us, reply))
		return NULL;

	election = utf8_to_server(request->election);
	no_contact = reply->kind == REPLY_FAILED ||
		(reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_NO_CONTACT);

	if (reply->kind == REPLY_NO_ELECTOR)
		commands_raise_no_elector();
	if (reply->kind == REPLY_UNKNOWN_ELECTION)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("elector does not handle election \"%s\" yet", election),
				 errhint("Try again when its state in \"%s\" has changed.", "etcd_leader_status")));
	if (no_contact)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 reply->error[0] != '\0' ?
				 errmsg("etcd did not confirm the command for election \"%s\": %s",
						election, utf8_to_server(reply->error)) :
				 errmsg("etcd did not confirm the command for election \"%s\"", election),
				 consequence != NULL ? errdetail_internal("%s", consequence) : 0));
	if (reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_NOT_ELIGIBLE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance must not be a candidate of election \"%s\"", election),
				 settings_candidate == CANDIDATE_PRIMARY ?
				 errdetail("\"%s\" is \"primary\", and the server is in recovery.",
						   "etcd_leader.candidate") :
				 errdetail("\"%s\" is \"never\".", "etcd_leader.candidate")));
	if (reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_NOT_CANDIDATE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance is not a candidate of election \"%s\"", election),
				 errhint("\"%s\" shows its state; etcd_campaign() enters the election.",
						 "etcd_leader_status")));
	if (reply->kind == REPLY_ELECTION && reply->outcome == ELECTION_REFUSED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("another primary of this database system leads election \"%s\", or has "
						"led it on a later timeline", election),
				 errhint("If the data of this instance is the right one, call etcd_campaign() "
						 "again.")));
	return reply;
}

/*
 * etcd_verify_leader(election text, timeout interval) returns bigint
 */
Datum
etcd_verify_leader(PG_FUNCTION_ARGS)
{
	int			index = arguments_get_election(fcinfo, 0);
	int64		until_us = arguments_get_timeout(fcinfo, 1);
	SharedRequest request;
	SharedReply *reply = palloc(sizeof(SharedReply));

	init_request(&request, COMMAND_VERIFY, index);
	if (!mailbox_ask(&request, until_us, reply))
	{
		SharedContact contact;

		shared_state_read_contact(&contact);
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("leadership of election \"%s\" could not be verified in time",
						utf8_to_server(request.election)),
				 contact.connected ? errdetail("etcd has not answered.") :
				 contact.last_failure[0] == '\0' ? errdetail("There is no contact with etcd.") :
				 errdetail("There is no contact with etcd: %s",
						   utf8_to_server(contact.last_failure)),
				 errhint("Try again, or connect to the leader.")));
	}
	PG_RETURN_INT64(fence_require(index));
}

/* The lease of this instance's key in that election; 0: there is none. */
static int64
own_lease(int index)
{
	SharedElection election;

	return status_read(index, &election) ? election.view.lease : 0;
}

/*
 * Is the queue empty except for this instance, whose keys are on the previous or
 * the current lease?  False if etcd does not answer soon: nothing depends on it.
 */
static bool
lacks_successor(int index, int64 lease_before)
{
	SharedRequest request;
	SharedReply *reply = palloc(sizeof(SharedReply));
	int64		until_us = clock_now_ns() / NSEC_PER_USEC + SUCCESSOR_TIMEOUT_US;

	init_request(&request, COMMAND_CANDIDATES, index);
	if (!mailbox_ask(&request, until_us, reply) || reply->kind != REPLY_CANDIDATES)
		return false;
	for (int i = 0; i < reply->ncandidates; i++)
	{
		int64		lease = reply->candidates[i].lease;

		if (lease == 0 || (lease != lease_before && lease != own_lease(index)))
			return false;
	}
	return true;
}

static void
notice_no_successor(int index, bool rejoin)
{
	ereport(NOTICE,
			(errmsg("election \"%s\" has no other candidate",
					utf8_to_server(settings_election_name(index))),
			 rejoin ? errdetail("This instance will try to enter the queue again.") :
			 errdetail("Nobody will lead until a candidate enters the election.")));
}

/*
 * Before a drain, which refuses work for as long as it lasts: ERROR if nobody can
 * take over, and this instance would only be elected again.
 */
static bool
look_for_successor(int index, bool rejoin, int64 lease)
{
	if (status_held_token(index) == 0 || !lacks_successor(index, lease))
		return true;
	if (rejoin)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("election \"%s\" has no other candidate",
						utf8_to_server(settings_election_name(index))),
				 errdetail("This instance would refuse work while it drains, and then be elected "
						   "again. It leads on."),
				 errhint("Start another candidate first. To resign nevertheless, pass \"drain => "
						 "'0 s'\" or \"rejoin => false\".")));
	notice_no_successor(index, rejoin);
	return false;
}

/*
 * For how long a hand-over may drain, by the interval in that argument; NULL is
 * etcd_leader.drain_timeout.  A part of a millisecond counts as a whole one,
 * since 0 would not drain.
 */
static int
drain_argument(FunctionCallInfo fcinfo, int argno)
{
	int64		duration_us = arguments_get_duration(fcinfo, argno);

	if (PG_ARGISNULL(argno))
		return settings_drain_timeout_ms;
	if (duration_us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the time to drain must not be negative")));
	return (int) Min(duration_us / 1000 + (duration_us % 1000 != 0), INT_MAX);
}

/* Says for whom a drain of this leader waits: it may take as long as they please. */
static void
notice_waits(const char *election)
{
	uint64		layout;
	int			slot = shared_state_find(election, &layout);
	StringInfoData pids;
	int			n;

	initStringInfo(&pids);
	n = slot >= 0 && shared_state_held_token(slot, layout) != 0 ? fenced_processes(slot, &pids) : 0;
	if (n > 0)
		ereport(NOTICE,
				(errmsg_plural("the hand-over waits for %d transaction that requires leadership",
							   "the hand-over waits for %d transactions that require leadership", n,
							   n),
				 errdetail_plural("The transaction is of the process with PID %s.",
								  "The transactions are of the processes with PIDs %s.", n,
								  pids.data),
				 errhint("\"%s\" shows what they do; pg_terminate_backend() ends them.",
						 "pg_stat_activity")));
}

/* Asks for a hand-over, as ask() does.  A drain does not wait for this transaction. */
static SharedReply *
ask_hand_over(const SharedRequest *request, int64 until_us, const char *consequence)
{
	SharedReply *volatile reply = NULL;

	if (request->drain_ms > 0)
		fence_step_aside(request->election);
	PG_TRY();
	{
		if (request->drain_ms > 0)
			notice_waits(request->election);
		reply = ask(request, until_us, consequence);
	}
	PG_FINALLY();
	{
		fence_step_back();
	}
	PG_END_TRY();
	return reply;
}

/*
 * etcd_resign(election text, rejoin boolean, drain interval) returns boolean
 */
Datum
etcd_resign(PG_FUNCTION_ARGS)
{
	SharedRequest request;
	SharedReply *reply;
	int			index = begin_change(fcinfo, 0, &request, COMMAND_RESIGN);
	int64		lease = own_lease(index);
	bool		has_successor = true;	/* or it is not known yet */

	request.rejoin = PG_ARGISNULL(1) ? true : PG_GETARG_BOOL(1);
	request.drain_ms = drain_argument(fcinfo, 2);
	if (request.drain_ms > 0)
		has_successor = look_for_successor(index, request.rejoin, lease);
	reply = ask_hand_over(&request, PG_INT64_MAX,
						  "Leadership has been withdrawn here. The key will be deleted as soon as "
						  "etcd answers, or expire with its lease.");
	if (reply->outcome == ELECTION_DONE && has_successor && lacks_successor(index, lease))
		notice_no_successor(index, request.rejoin);
	PG_RETURN_BOOL(reply->outcome == ELECTION_DONE);
}

/*
 * etcd_campaign(election text) returns boolean
 */
Datum
etcd_campaign(PG_FUNCTION_ARGS)
{
	SharedRequest request;
	SharedReply *reply;

	(void) begin_change(fcinfo, 0, &request, COMMAND_CAMPAIGN);
	reply = ask(&request, PG_INT64_MAX,
				"The instance will enter the election as soon as etcd answers.");
	PG_RETURN_BOOL(reply->outcome == ELECTION_DONE);
}

/*
 * etcd_proclaim(value text, election text) returns void
 */
Datum
etcd_proclaim(PG_FUNCTION_ARGS)
{
	SharedRequest request;
	char	   *value;
	pg_wchar	hidden;

	(void) begin_change(fcinfo, 1, &request, COMMAND_PROCLAIM);
	value = arguments_get_text(fcinfo, 0, "the value to proclaim");
	if (value[0] == '\0' || strlen(value) >= ELECTION_VALUE_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the value to proclaim must be 1 to %d bytes long",
						ELECTION_VALUE_SIZE - 1)));
	if (hidden_find(value, &hidden))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 hidden_is_control(hidden) ?
				 errmsg("the value to proclaim must not contain control characters") :
				 errmsg("the value to proclaim must not contain the format character U+%04X",
						hidden)));

	strlcpy(request.value, value, ELECTION_VALUE_SIZE);
	(void) ask(&request, PG_INT64_MAX, "The value will be put as soon as etcd answers.");
	PG_RETURN_VOID();
}

/* Raises an ERROR that says why the leader cannot hand over. */
static void
refuse_transfer(const SharedRequest *request, int index, ElectionReply outcome)
{
	const char *election = utf8_to_server(request->election);
	const char *node = utf8_to_server(request->value);

	switch (outcome)
	{
		case ELECTION_NOT_LEADER:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("this instance does not lead election \"%s\"", election),
					 status_errdetail_leader(index),
					 errhint("Call etcd_transfer() on the leader.")));
			break;
		case ELECTION_NO_SUCH_CANDIDATE:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("there is no candidate \"%s\" in election \"%s\"", node, election),
					 errhint("etcd_candidates() shows the queue.")));
			break;
		case ELECTION_AMBIGUOUS_CANDIDATE:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("more than one candidate of election \"%s\" has the name \"%s\"",
							election, node),
					 errhint("Give each instance its own \"%s\".", "etcd_leader.node_name")));
			break;
		case ELECTION_FOREIGN_CANDIDATE:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a candidate of another program is before \"%s\" in election \"%s\"",
							node, election),
					 errdetail("Its key must not be deleted by others: it could lead without one."),
					 errhint("etcd_candidates() shows the queue. Its key does not end with \"%s\".",
							 ELECTION_KEY_SUFFIX)));
			break;
		case ELECTION_TOO_MANY_CANDIDATES:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many candidates are before \"%s\" in election \"%s\"", node,
							election)));
			break;
		default:
			break;
	}
}

/*
 * etcd_transfer(to_node text, election text, timeout interval, drain interval)
 *		returns boolean
 */
Datum
etcd_transfer(PG_FUNCTION_ARGS)
{
	SharedRequest request;
	SharedReply *reply;
	int			index = begin_change(fcinfo, 1, &request, COMMAND_TRANSFER);
	int64		until_us = arguments_get_timeout(fcinfo, 2);
	char	   *node = arguments_get_text(fcinfo, 0, "the node to hand over to");

	request.until_ns = until_us == PG_INT64_MAX ? PG_INT64_MAX : until_us * NSEC_PER_USEC;
	if (strlen(node) >= ELECTION_VALUE_SIZE)
	{
		strlcpy(request.value, node,
				pg_encoding_mbcliplen(PG_UTF8, node, strlen(node), ELECTION_VALUE_SIZE - 1) + 1);
		refuse_transfer(&request, index, ELECTION_NO_SUCH_CANDIDATE);
	}
	strlcpy(request.value, node, ELECTION_VALUE_SIZE);
	request.drain_ms = drain_argument(fcinfo, 3);
	/* the time of the drain does not count */
	if (until_us != PG_INT64_MAX)
		until_us += request.drain_ms * INT64CONST(1000);
	reply = ask_hand_over(&request, until_us,
						  "If leadership has ended here, the hand-over goes on as soon as etcd "
						  "answers.");
	if (reply == NULL)
		PG_RETURN_BOOL(false);
	refuse_transfer(&request, index, reply->outcome);
	PG_RETURN_BOOL(reply->outcome == ELECTION_DONE);
}

/*
 * etcd_candidates(election text) returns table (...): the queue, in order
 */
Datum
etcd_candidates(PG_FUNCTION_ARGS)
{
	int			index = arguments_get_election(fcinfo, 0);
	SharedRequest request;
	SharedReply *reply;
	int32		position = 0;
	Row			row = {0};

	ROWS_BEGIN(candidate_columns);
	init_request(&request, COMMAND_CANDIDATES, index);

	/* page by page, all as of the revision at which the first one was read */
	do
	{
		EtcdLeaderStatus own;

		reply = ask(&request, PG_INT64_MAX, NULL);
		status_read_row(index, &own);

		for (int i = 0; i < reply->ncandidates; i++)
		{
			const SharedCandidate *candidate = &reply->candidates[i];

			if (candidate->has_position)
				position++;
			row_add(&row, Int32GetDatum(position), !candidate->has_position);
			row_add_value(&row, CStringGetTextDatum(utf8_to_server(candidate->node)));
			row_add_value(&row, BoolGetDatum(candidate->has_position && position == 1));
			row_add_value(&row,
						  BoolGetDatum(status_is_self(&own, candidate->key, candidate->node)));
			row_add_text(&row, candidate->key);
			row_add_id(&row, candidate->lease);
			row_add_number(&row, candidate->create_revision);
			row_put(fcinfo, &row);
			request.after_revision = candidate->create_revision;
		}
		request.at_revision = reply->revision;
	} while (reply->more && reply->ncandidates > 0);
	return (Datum) 0;
}
