/*-------------------------------------------------------------------------
 *
 * mailbox.c
 *	  Requests of backends: commands for the protocol; and the candidates of
 *	  an election, and etcd_get(), which the protocol has no part in.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "elector/changes.h"
#include "elector/check.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/events.h"
#include "elector/mailbox.h"
#include "elector/refusals.h"
#include "elector/settings.h"
#include "settings/settings.h"
#include "shared/crash_memory.h"
#include "shared/mailbox.h"
#include "shared/stats.h"

/*
 * One read serves all backends that wait for a verification.  The protocol's
 * ticket for it is this bit and the election's slot, of any other command it
 * is the place in the mailbox, plus 1.
 */
#define VERIFY_TICKET		(UINT64CONST(1) << 63)

/* A request that etcd is asked about, and not the protocol; by place. */
typedef struct PendingRead
{
	SharedRequest request;
	int			tries;
} PendingRead;

static PendingRead reads[MAILBOX_SIZE];

/*
 * The backends that wait for a verifying read: places in the mailbox, by slot.
 */
static uint32 to_verify[ELECTION_MAX_ELECTIONS];	/* it has to be sent */
static uint32 verifying[ELECTION_MAX_ELECTIONS];	/* it is under way */

static void receive_read(void *ctx, uint64_t id, const EtcdAnswer *answer,
						 const EtcdTiming *timing);

static void
send_txn(int place, const EtcdRequest *txn)
{
	reads[place].tries++;
	stats_count(COUNTER_REQUESTS, 1);
	etcd_client_send(elector_client, receive_read, (uint64) place, txn);
}

/* ---- the candidates of an election ----------------------------------------------- */

/*
 * Asks for a page of an election's queue, in the order of its places; of a
 * followed election for the leader key and a page of the members.
 */
static void
send_candidates_request(int place)
{
	const SharedRequest *request = &reads[place].request;
	bool		followed = election_is_followed(request->election);
	char		patroni_prefix[ELECTION_KEY_SIZE];
	char		leader[ELECTION_KEY_SIZE + 8];
	char		prefix[ELECTION_KEY_SIZE + 8];
	char		prefix_end[ELECTION_KEY_SIZE + 8];
	EtcdOp		ranges[2] = {{.kind = ETCD_OP_RANGE}, {.kind = ETCD_OP_RANGE}};
	EtcdRequest txn = {.kind = ETCD_TXN};

	if (followed)
	{
		election_patroni_prefix(patroni_prefix, settings_patroni_namespace, request->election);
		snprintf(leader, sizeof(leader), "%sleader", patroni_prefix);
		snprintf(prefix, sizeof(prefix), "%smembers/", patroni_prefix);
		snprintf(prefix_end, sizeof(prefix_end), "%smembers0", patroni_prefix);
		ranges[1].key.data = leader;
		ranges[1].key.len = strlen(leader);
		ranges[1].revision = request->at_revision;
	}
	else
	{
		snprintf(prefix, sizeof(prefix), "%s/", request->election);
		snprintf(prefix_end, sizeof(prefix_end), "%s0", request->election);
	}
	ranges[0].key.data = prefix;
	ranges[0].key.len = strlen(prefix);
	ranges[0].range_end.data = prefix_end;
	ranges[0].range_end.len = strlen(prefix_end);
	/* the first row is that of the leader key */
	ranges[0].limit = followed ? SHARED_CANDIDATES_PER_PAGE - 1 : SHARED_CANDIDATES_PER_PAGE;
	ranges[0].sort = ETCD_SORT_FIRST_CREATED;
	ranges[0].min_create_revision = request->after_revision > 0 ? request->after_revision + 1 : 0;
	ranges[0].revision = request->at_revision;
	txn.success = ranges;
	txn.nsuccess = followed ? 2 : 1;
	send_txn(place, &txn);
}

static void
copy_bytes(char *dst, EtcdBytes src, size_t size)
{
	size_t		len = Min(src.len, size - 1);

	memcpy(dst, src.data, len);
	dst[len] = '\0';
}

static void
add_candidate(SharedReply *reply, const EtcdKeyValue *kv, EtcdBytes node, bool has_position)
{
	SharedCandidate *candidate = &reply->candidates[reply->ncandidates++];

	candidate->create_revision = kv->create_revision;
	candidate->lease = kv->lease;
	candidate->has_position = has_position;
	copy_bytes(candidate->key, kv->key, sizeof(candidate->key));
	copy_bytes(candidate->node, node, sizeof(candidate->node));
}

/* The leader, on the first page, and the members that do not lead. */
static void
add_members(SharedReply *reply, const EtcdResult *members, const EtcdResult *leaders,
			bool first_page)
{
	const EtcdKeyValue *leader = leaders->nkvs > 0 ? &leaders->kvs[0] : NULL;

	if (leader && first_page)
		add_candidate(reply, leader, leader->value, true);
	for (int i = 0; i < members->nkvs && reply->ncandidates < SHARED_CANDIDATES_PER_PAGE; i++)
	{
		EtcdBytes	name = members->kvs[i].key;

		for (size_t c = 0; c < members->kvs[i].key.len; c++)
		{
			if (members->kvs[i].key.data[c] == '/')
			{
				name.data = members->kvs[i].key.data + c + 1;
				name.len = members->kvs[i].key.len - c - 1;
			}
		}
		if (leader == NULL || name.len != leader->value.len ||
			memcmp(name.data, leader->value.data, name.len) != 0)
			add_candidate(reply, &members->kvs[i], name, false);
	}
}

static void
make_candidates(const SharedRequest *request, const EtcdAnswer *answer, SharedReply *reply)
{
	const EtcdResult *keys = &answer->results[0];

	reply->kind = REPLY_CANDIDATES;
	if (election_is_followed(request->election))
	{
		reply->more = keys->nkvs >= SHARED_CANDIDATES_PER_PAGE - 1;
		add_members(reply, keys, &answer->results[1], request->after_revision == 0);
		return;
	}
	reply->more = keys->nkvs >= SHARED_CANDIDATES_PER_PAGE;
	for (int i = 0; i < keys->nkvs && i < SHARED_CANDIDATES_PER_PAGE; i++)
		add_candidate(reply, &keys->kvs[i], keys->kvs[i].value, true);
}

/* ---- etcd_get() ----------------------------------------------------------------------- */

/*
 * Reads only keys below the watched prefixes, for every caller.  The page
 * holds the requested key, and after it the key with which to begin: the same
 * one, or a later one.
 */
static bool
may_get(const SharedRequest *request)
{
	return request->first_len >= request->key_len &&
		memcmp(mailbox_page + request->key_len, mailbox_page, request->key_len) == 0 &&
		elector_watches_key(mailbox_page, request->key_len);
}

static void
send_get(void)
{
	const SharedRequest *request = &reads[MAILBOX_PAGE_PLACE].request;
	char	   *end = NULL;
	EtcdOp		range = {.kind = ETCD_OP_RANGE};
	EtcdRequest txn = {.kind = ETCD_TXN, .success = &range, .nsuccess = 1, .is_large = true};

	range.key.data = mailbox_page + request->key_len;
	range.key.len = request->first_len;
	if (request->prefix)
	{
		/* the key is UTF-8, whose last byte can be increased */
		end = palloc(request->key_len);
		memcpy(end, mailbox_page, request->key_len);
		end[request->key_len - 1]++;
		range.range_end.data = end;
		range.range_end.len = request->key_len;
		range.limit = request->limit;
	}
	range.revision = request->at_revision;
	send_txn(MAILBOX_PAGE_PLACE, &txn);
	if (end != NULL)
		pfree(end);
}

/* Appends a key to the page; false if there is no room. */
static bool
put_key(size_t *len, const EtcdKeyValue *kv)
{
	SharedKeyValue head = {
		.create_revision = kv->create_revision,
		.mod_revision = kv->mod_revision,
		.key_len = kv->key.len,
		.value_len = kv->value.len
	};
	char	   *end = mailbox_page + *len;

	if (kv->key.len > SHARED_PAGE_SIZE || kv->value.len > SHARED_PAGE_SIZE ||
		sizeof(head) + kv->key.len + kv->value.len > SHARED_PAGE_SIZE - *len)
		return false;
	memcpy(end, &head, sizeof(head));
	memcpy(end + sizeof(head), kv->key.data, kv->key.len);
	memcpy(end + sizeof(head) + kv->key.len, kv->value.data, kv->value.len);
	*len += sizeof(head) + kv->key.len + kv->value.len;
	return true;
}

static void
make_page(const SharedRequest *request, const EtcdAnswer *answer, SharedReply *reply)
{
	const EtcdResult *keys = &answer->results[0];

	while (reply->nkeys < keys->nkvs && put_key(&reply->page_len, &keys->kvs[reply->nkeys]))
		reply->nkeys++;
	reply->kind = reply->nkeys == 0 && keys->nkvs > 0 ? REPLY_TOO_LARGE : REPLY_PAGE;
	reply->more = reply->nkeys < keys->nkvs || (request->prefix && keys->nkvs >= request->limit);
}

/* ---- both ---------------------------------------------------------------------------------- */

static void
send_read(int place)
{
	if (place == MAILBOX_PAGE_PLACE)
		send_get();
	else
		send_candidates_request(place);
}

static void
receive_read(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	int			place = (int) id;
	const SharedRequest *request = &reads[place].request;
	bool		is_get = place == MAILBOX_PAGE_PLACE;
	int			nresults = !is_get && election_is_followed(request->election) ? 2 : 1;
	SharedReply *reply;

	/* of etcd_get(), the caller alone is told of a refusal */
	if (is_get)
		elector_count_answer(answer, timing);
	else
		elector_note_answer(NULL, answer, timing);
	if (!mailbox_is_taken(place))
		return;
	if (answer->outcome != ETCD_ANSWERED || answer->nresults != nresults)
	{
		if (etcd_blames_endpoint(answer->outcome, answer->code, answer->message) &&
			reads[place].tries < etcd_client_endpoint_count(elector_client))
			send_read(place);
		else
			mailbox_reply_failure(place, is_get && answer->code == ETCD_CODE_RESOURCE_EXHAUSTED ?
								  REPLY_TOO_LARGE : REPLY_FAILED, answer->message);
		return;
	}
	reply = palloc0(sizeof(SharedReply));
	reply->revision = request->at_revision > 0 ? request->at_revision : answer->header.revision;
	if (is_get)
		make_page(request, answer, reply);
	else
		make_candidates(request, answer, reply);
	mailbox_reply(place, reply);
	pfree(reply);
}

static void
begin_read(int place, const SharedRequest *request)
{
	reads[place].request = *request;
	reads[place].tries = 0;
	if (request->command == COMMAND_GET && !may_get(request))
		mailbox_reply_failure(place, REPLY_NOT_WATCHED, "");
	else if (request->command == COMMAND_CANDIDATES && !elector_contact()->connected)
		mailbox_reply_failure(place, REPLY_FAILED, elector_contact()->last_failure);
	else
		send_read(place);
}

/* ---- commands ------------------------------------------------------------------------------ */

/*
 * Executes a command about the election in that slot.  False if the protocol
 * cannot take it yet.
 */
static bool
execute(int place, const SharedRequest *request, int slot)
{
	int64		now_ns = clock_now_ns();
	uint64		ticket = (uint64) place + 1;
	bool		taken = true;

	switch (request->command)
	{
		case COMMAND_RESIGN:
			taken = election_resign(elector_core, now_ns, slot, request->rejoin,
									request->drain_ms * NSEC_PER_MSEC, ticket);
			if (taken && !request->rejoin)
				crash_memory_set_stay_out(request->election, true);
			break;
		case COMMAND_CAMPAIGN:
			if (elector_claim(request->election) && election_is_followed(request->election))
			{
				elector_reply(NULL, ticket, ELECTION_DONE);
				break;
			}
			taken = election_campaign(elector_core, now_ns, slot, ticket);
			if (taken && elector_is_eligible())
				crash_memory_set_stay_out(request->election, false);
			break;
		case COMMAND_PROCLAIM:
			taken = election_proclaim(elector_core, now_ns, slot, request->value, ticket);
			break;
		case COMMAND_TRANSFER:
			taken = election_transfer(elector_core, now_ns, slot, request->value,
									  request->until_ns, request->drain_ms * NSEC_PER_MSEC, ticket);
			break;
		case COMMAND_VERIFY:
			to_verify[slot] |= UINT32_C(1) << place;
			break;
		case COMMAND_CANDIDATES:
			begin_read(place, request);
			break;
		case COMMAND_CHECK:		/* these are of no election */
		case COMMAND_GET:
			break;
	}
	return taken;
}

void
elector_cancel_abandoned(void)
{
	for (int place = 0; place < MAILBOX_SIZE; place++)
	{
		if (mailbox_is_abandoned(place))
			(void) election_cancel(elector_core, clock_now_ns(), (uint64) place + 1);
	}
}

/* Sends the verifying reads that backends wait for, one for each election. */
static void
send_verifications(void)
{
	for (int slot = 0; slot < ELECTION_MAX_ELECTIONS; slot++)
	{
		if (to_verify[slot] == 0 || verifying[slot] != 0)
			continue;
		verifying[slot] = to_verify[slot];
		to_verify[slot] = 0;
		(void) election_verify(elector_core, clock_now_ns(), slot,
							   VERIFY_TICKET | (uint64) slot);
	}
}

void
elector_serve_mailbox(void)
{
	for (int place = 0; place < MAILBOX_SIZE; place++)
	{
		SharedRequest request;
		int			slot;

		if (!mailbox_take(place, &request))
			continue;
		if (request.command == COMMAND_CHECK)
		{
			elector_request_check(place);
			continue;
		}
		if (request.command == COMMAND_GET)
		{
			begin_read(place, &request);
			continue;
		}
		slot = election_find(elector_core, request.election);
		if (slot < 0)
			mailbox_reply_failure(place, REPLY_UNKNOWN_ELECTION, "");
		else if (!execute(place, &request, slot))
			mailbox_put_back(place);
	}
	send_verifications();
}

void
elector_reply(void *ctx, uint64_t ticket, ElectionReply outcome)
{
	SharedReply *reply = palloc0(sizeof(SharedReply));

	/* a backend that gets the reply must find the events of its command */
	elector_announce_events();
	reply->kind = REPLY_ELECTION;
	reply->outcome = outcome;
	if (outcome == ELECTION_NO_CONTACT)
		strlcpy(reply->error, elector_contact()->last_failure, sizeof(reply->error));
	if (ticket & VERIFY_TICKET)
	{
		uint32	   *places = &verifying[ticket & ~VERIFY_TICKET];

		for (int place = 0; place < MAILBOX_SIZE; place++)
		{
			if (*places & (UINT32_C(1) << place))
				mailbox_reply(place, reply);
		}
		*places = 0;
	}
	else
		mailbox_reply((int) ticket - 1, reply);
	pfree(reply);
}
