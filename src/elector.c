/*-------------------------------------------------------------------------
 *
 * elector.c
 *	  The process that talks to etcd on behalf of the instance: one event
 *	  loop that wires the protocol (election.c), the transport
 *	  (etcd_client.c) and shared memory together.
 *
 * It connects to the shared catalogs only, opens no transaction and takes no
 * heavyweight lock, so that nothing that happens in a database can delay a
 * beat.  NOTIFY, which can be delayed, is the notifiers' job.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "crash_memory.h"
#include "elector.h"
#include "etcd_client.h"
#include "etcd_discovery.h"
#include "events.h"
#include "http_launcher.h"
#include "mailbox.h"
#include "notifier.h"
#include "settings.h"
#include "shared_state.h"
#include "stats.h"

#define NS_PER_MS			INT64CONST(1000000)

#define ELECTOR_FUNCTION	"etcd_leader_elector_main"

/* After a termination or a failure; a second is what bgworkers count in. */
#define RESTART_INTERVAL_S	1

/*
 * How long the end of the process may wait for etcd to confirm that the lease
 * is revoked: an etcd that does not answer makes a shutdown take so much
 * longer, which is to stay well below a second.
 */
#define FAREWELL_MS			700

/*
 * In recovery, and only where no notifier waits for its end (the postmaster's
 * signal for its start is how a promotion is learned of otherwise).
 */
#define PROMOTION_POLL_MS	500

/*
 * The clock by which the wait is timed stops while the host sleeps: what is
 * due when it wakes is done so much later at most.
 */
#define MAX_SLEEP_MS		5000

/*
 * The watch and the requests that are under way at once, most of the time; and
 * what tells of a lookup.
 */
#define LONG_LIVED_FDS		5

/* The watch stream of the protocol. */
#define ELECTIONS_STREAM	0

/*
 * Requests for etcd_candidates() are the elector's own; their ids are told
 * from the protocol's by this bit, the rest is the place in the mailbox.
 */
#define CANDIDATES_ID		(UINT64CONST(1) << 63)

/*
 * One read verifies for all who wait for one.  The protocol's ticket for it is
 * this bit and the election's slot, of any other command it is the place in
 * the mailbox, plus 1.
 */
#define VERIFY_TICKET		(UINT64CONST(1) << 63)

/*
 * A different complaint is logged, the same one again is not, until it was not
 * heard for so long.  Room for two of each election and of each endpoint, as
 * one that is forgotten is logged each time.
 */
#define REMEMBERED_ERRORS	(2 * ELECTION_MAX_ELECTIONS + 2 * ELECTION_MAX_ENDPOINTS)
#define SILENCE_MS			60000

/* Between lookups of the endpoints in DNS: their TTL, within these bounds. */
#define MIN_DISCOVERY_MS	5000
#define MAX_DISCOVERY_MS	3600000

/* And after one that failed. */
#define DISCOVERY_RETRY_MS	10000

StaticAssertDecl(ETCD_CLIENT_MAX_ENDPOINTS <= ELECTION_MAX_ENDPOINTS &&
				 ETCD_CLIENT_MAX_URL_LEN < SHARED_ENDPOINT_SIZE,
				 "endpoints that are learned do not fit");

typedef struct CandidatesRequest
{
	SharedRequest request;
	int			tries;
} CandidatesRequest;

typedef struct LoggedError
{
	uint32		hash;			/* of its text */
	int64		heard_ns;		/* when it was heard last; 0: unused */
} LoggedError;

/* What an error is about, which says when it is over. */
typedef enum ErrorSubject
{
	ABOUT_ETCD,					/* not heard for a TTL, and etcd answers */
	ABOUT_SETTINGS,				/* the settings are applied without it */
	ABOUT_DNS,					/* a lookup succeeds */
	ABOUT_NAME					/* this instance has another name */
} ErrorSubject;

typedef struct Elector
{
	ElectionCore *core;
	EtcdClient *client;
	EtcdDiscovery *discovery;
	EtcdDiscovered discovered;	/* the last that was any good */
	int64		discovery_due_ns;
	bool		eligible;
	bool		in_recovery;	/* as the core was told */
	uint64		grant_id;		/* of the grant that was sent last */

	SharedContact contact;
	bool		contact_changed;
	ErrorSubject error_subject; /* of contact.last_error */
	int64		error_heard_ns; /* when it was heard last */
	SharedEvent events[16];		/* to be announced */
	int			nevents;
	LoggedError logged_errors[REMEMBERED_ERRORS];
	bool		margin_cut;
	int64		timed_ttl_ns;	/* by which the client's time-outs were set */

	CandidatesRequest *candidates;	/* by place in the mailbox */

	/* who waits for a verifying read: places in the mailbox, by slot */
	uint32		to_verify[ELECTION_MAX_ELECTIONS];	/* it is to be sent */
	uint32		verifying[ELECTION_MAX_ELECTIONS];	/* it is under way */

	uint32		wait_event;
	WaitEventSet *wait_set;
	uint64		wait_set_changes;	/* of the sockets that it was made from */
} Elector;

static Elector elector;

/* Set in the postmaster, and inherited by all of its processes. */
static bool lacks_worker_slot = false;

/* Set by SIGQUIT in an immediate shutdown. */
static volatile sig_atomic_t quit_pending = false;

/* ---- errors and contact -------------------------------------------------- */

/* Is it to be logged: was it not heard of late? */
static bool
is_news(const char *message)
{
	uint32		hash = hash_bytes((const unsigned char *) message, (int) strlen(message));
	int64		now_ns = shared_state_clock_ns();
	LoggedError *oldest = &elector.logged_errors[0];
	bool		news;

	for (int i = 0; i < REMEMBERED_ERRORS; i++)
	{
		LoggedError *error = &elector.logged_errors[i];

		if (error->hash == hash && error->heard_ns != 0)
		{
			news = now_ns - error->heard_ns >= SILENCE_MS * NS_PER_MS;
			error->heard_ns = now_ns;
			return news;
		}
		if (error->heard_ns < oldest->heard_ns)
			oldest = error;
	}
	oldest->hash = hash;
	oldest->heard_ns = now_ns;
	return true;
}

/*
 * Remembers an error for etcd_leader_status.last_error, and logs it if it is
 * to be, and is news: a line per change, not per retry.
 */
static void
note_error(ErrorSubject subject, const char *message, bool log)
{
	elector.error_subject = subject;
	elector.error_heard_ns = shared_state_clock_ns();
	strlcpy(elector.contact.last_error, message, sizeof(elector.contact.last_error));
	elector.contact.last_error_at = GetCurrentTimestamp();
	elector.contact_changed = true;
	if (is_news(message) && log)
		ereport(LOG, (errmsg_internal("%s", message)));
}

static void note_formatted_error(ErrorSubject subject, bool log, const char *format,...) pg_attribute_printf(3, 4);

/* The same with a format; what is too long is cut at the end of a character. */
static void
note_formatted_error(ErrorSubject subject, bool log, const char *format,...)
{
	char		message[sizeof(elector.contact.last_error)];
	va_list		args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	message[pg_encoding_mbcliplen(PG_UTF8, message, (int) strlen(message), sizeof(message) - 1)] = '\0';
	note_error(subject, message, log);
}

/* What is said about that subject is over; when it was heard is still known. */
static void
clear_error(ErrorSubject subject)
{
	if (elector.contact.last_error[0] == '\0' || elector.error_subject != subject)
		return;
	elector.contact.last_error[0] = '\0';
	elector.contact_changed = true;
}

/*
 * What fails at etcd is tried again within a second or two, and each beat asks
 * etcd: an error that has not come again for a TTL is over.
 */
static void
clear_old_error(void)
{
	if (elector.contact.connected &&
		shared_state_clock_ns() - elector.error_heard_ns >= settings_ttl_s * 1000 * NS_PER_MS)
		clear_error(ABOUT_ETCD);
}

static void
note_endpoint(void)
{
	const char *url = etcd_client_endpoint_url(elector.client, etcd_client_endpoint(elector.client));

	if (strcmp(url, elector.contact.endpoint) == 0)
		return;
	if (elector.contact.endpoint[0] != '\0')
		stats_count(COUNTER_ENDPOINT_SWITCHES, 1);
	strlcpy(elector.contact.endpoint, url, sizeof(elector.contact.endpoint));
	elector.contact_changed = true;
}

/* ---- the protocol's way out ------------------------------------------------ */

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	stats_count(COUNTER_REQUESTS, 1);
	if (request->kind == ETCD_KEEPALIVE)
		stats_count(COUNTER_KEEPALIVES, 1);
	if (request->kind == ETCD_GRANT)
		elector.grant_id = id;
	etcd_client_send(elector.client, id, request);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	if (nwatches > 0)
		stats_count(COUNTER_WATCH_RESTARTS, 1);
	etcd_client_watch(elector.client, ELECTIONS_STREAM, watches, nwatches);
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	note_formatted_error(ABOUT_ETCD, true, "answer of etcd at \"%s\" cannot be used: %s",
						 etcd_client_endpoint_url(elector.client, endpoint), why);
	etcd_client_change_endpoint(elector.client, endpoint);
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	shared_state_publish(slot, view);
	if (view->problem[0] != '\0' && is_news(view->problem))
		ereport(LOG,
				(errmsg_internal("election \"%s\": %s", view->name, view->problem)));
}

/* Each event goes to the log and into the ring in shared memory. */
static void
announce_event(SharedEvent *event)
{
	switch (event->kind)
	{
		case ELECTION_EVENT_ELECTED:
			ereport(LOG, (errmsg("elected leader of election \"%s\"", event->election),
						  errdetail("The fencing token is %lld.", (long long) event->leader_revision)));
			break;
		case ELECTION_EVENT_UNELECTED:
			ereport(LOG, (errmsg("no longer leader of election \"%s\"", event->election),
						  errdetail("The reason is \"%s\".", event->reason)));
			break;
		case ELECTION_EVENT_LEADER:
			if (event->has_leader)
				ereport(LOG, (errmsg("leader of election \"%s\" is \"%s\"",
									 event->election, event->leader)));
			else
				ereport(LOG, (errmsg("election \"%s\" has no known leader", event->election)));
			break;
		case ELECTION_EVENT_CONNECTED:
			ereport(LOG, (errmsg("connected to etcd at \"%s\"", elector.contact.endpoint)));
			break;
		case ELECTION_EVENT_DISCONNECTED:
			ereport(LOG, (errmsg("lost contact with etcd"),
						  errdetail_internal("%s", event->reason)));
			break;
	}

	/* Who is woken by the event shall see the contact that it speaks of. */
	if (elector.contact_changed)
	{
		shared_state_publish_contact(&elector.contact);
		elector.contact_changed = false;
	}
	events_append(event);
}

/* Announces what has happened since the last time. */
static void
announce_events(void)
{
	for (int i = 0; i < elector.nevents; i++)
		announce_event(&elector.events[i]);
	elector.nevents = 0;
}

/*
 * An event is kept until the requests that follow from it are on their way: a
 * hand-over does not wait for a log, nor for the notifiers that it wakes.
 */
static void
port_announce(void *ctx, const ElectionEvent *event)
{
	SharedEvent *shared;
	const char *reason = election_reason_name(event->reason);

	if (elector.nevents == lengthof(elector.events))
		announce_events();
	shared = &elector.events[elector.nevents++];
	memset(shared, 0, sizeof(*shared));
	shared->at = GetCurrentTimestamp();
	shared->kind = event->kind;
	if (event->election)
		strlcpy(shared->election, event->election, sizeof(shared->election));
	strlcpy(shared->node, elector.contact.node_name, sizeof(shared->node));
	if (event->leader)
	{
		shared->has_leader = true;
		strlcpy(shared->leader, event->leader, sizeof(shared->leader));
		shared->leader_revision = event->leader_revision;
	}
	if (event->detail || reason)
		strlcpy(shared->reason, event->detail ? event->detail : reason, sizeof(shared->reason));

	if (event->kind == ELECTION_EVENT_ELECTED)
		stats_count_won(event->election);
	else if (event->kind == ELECTION_EVENT_UNELECTED)
		stats_count_lost(event->election, event->reason);
	else if (event->kind == ELECTION_EVENT_CONNECTED || event->kind == ELECTION_EVENT_DISCONNECTED)
	{
		elector.contact.connected = event->kind == ELECTION_EVENT_CONNECTED;
		elector.contact_changed = true;
	}
	if (event->kind == ELECTION_EVENT_CONNECTED)
		memset(elector.logged_errors, 0, sizeof(elector.logged_errors));
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply outcome)
{
	SharedReply *reply = palloc0(sizeof(SharedReply));

	/* who is told of the end of a command finds its events */
	announce_events();
	reply->kind = REPLY_ELECTION;
	reply->outcome = outcome;
	if (outcome == ELECTION_NO_CONTACT)
		strlcpy(reply->error, elector.contact.last_error, sizeof(reply->error));
	if (ticket & VERIFY_TICKET)
	{
		uint32	   *places = &elector.verifying[ticket & ~VERIFY_TICKET];

		for (int place = 0; place < mailbox_size(); place++)
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

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	crash_memory_remember(memory);
}

static void
port_find_namesake(void *ctx, const char *election, const char *value)
{
	note_formatted_error(ABOUT_NAME, true,
						 "another candidate of election \"%s\" has the name \"%s\", too: set \"etcd_leader.node_name\" of a copied instance",
						 election, value);
}

static uint64_t
port_random(void *ctx)
{
	uint64_t	random;

	if (!pg_strong_random(&random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random lease ID")));
	return random;
}

/* ---- mailbox ------------------------------------------------------------------ */

static void
reply_failure(int place, SharedReplyKind kind, const char *error)
{
	SharedReply *reply = palloc0(sizeof(SharedReply));

	reply->kind = kind;
	strlcpy(reply->error, error, sizeof(reply->error));
	mailbox_reply(place, reply);
	pfree(reply);
}

/*
 * Asks for a page of an election's queue, in the order of its places; of a
 * followed election for the leader key and a page of the members.
 */
static void
send_candidates_request(int place)
{
	const SharedRequest *request = &elector.candidates[place].request;
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
	elector.candidates[place].tries++;
	stats_count(COUNTER_REQUESTS, 1);
	etcd_client_send(elector.client, CANDIDATES_ID | (uint64) place, &txn);
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
add_members(SharedReply *reply, const EtcdResult *members, const EtcdResult *leaders, bool first_page)
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
receive_candidates(int place, const EtcdAnswer *answer)
{
	CandidatesRequest *pending = &elector.candidates[place];
	bool		followed = election_is_followed(pending->request.election);
	int			limit = followed ? SHARED_CANDIDATES_PER_PAGE - 1 : SHARED_CANDIDATES_PER_PAGE;
	SharedReply *reply;

	if (answer->outcome != ETCD_ANSWERED || answer->nresults != (followed ? 2 : 1))
	{
		if (etcd_blames_endpoint(answer->outcome, answer->code, answer->message) &&
			pending->tries < etcd_client_endpoint_count(elector.client))
			send_candidates_request(place);
		else
			reply_failure(place, REPLY_FAILED, answer->message);
		return;
	}
	reply = palloc0(sizeof(SharedReply));
	reply->kind = REPLY_CANDIDATES;
	reply->revision = pending->request.at_revision > 0 ? pending->request.at_revision :
		answer->header.revision;
	reply->more = answer->results[0].nkvs >= limit;
	if (followed)
		add_members(reply, &answer->results[0], &answer->results[1], pending->request.after_revision == 0);
	else
	{
		for (int i = 0; i < answer->results[0].nkvs && i < limit; i++)
			add_candidate(reply, &answer->results[0].kvs[i], answer->results[0].kvs[i].value, true);
	}
	mailbox_reply(place, reply);
	pfree(reply);
}

static void
serve_mailbox(void)
{
	for (int place = 0; place < mailbox_size(); place++)
	{
		SharedRequest request;
		uint64		ticket = (uint64) place + 1;
		int64		now_ns;
		int			slot;
		bool		taken = true;

		if (!mailbox_take(place, &request))
			continue;
		now_ns = shared_state_clock_ns();
		slot = election_find(elector.core, request.election);
		if (slot < 0)
		{
			reply_failure(place, REPLY_UNKNOWN_ELECTION, "");
			continue;
		}
		switch (request.command)
		{
			case COMMAND_RESIGN:
				taken = election_resign(elector.core, now_ns, slot, request.rejoin, ticket);
				if (taken && !request.rejoin)
					crash_memory_set_stay_out(request.election, true);
				break;
			case COMMAND_CAMPAIGN:
				taken = election_campaign(elector.core, now_ns, slot, ticket);
				if (taken && elector.eligible)
					crash_memory_set_stay_out(request.election, false);
				break;
			case COMMAND_PROCLAIM:
				taken = election_proclaim(elector.core, now_ns, slot, request.value, ticket);
				break;
			case COMMAND_VERIFY:
				elector.to_verify[slot] |= UINT32_C(1) << place;
				break;
			case COMMAND_CANDIDATES:
				elector.candidates[place].request = request;
				elector.candidates[place].tries = 0;
				if (elector.contact.connected)
					send_candidates_request(place);
				else
					reply_failure(place, REPLY_FAILED, elector.contact.last_error);
				break;
		}
		if (!taken)
			mailbox_put_back(place);
	}
	for (int slot = 0; slot < settings_max_elections; slot++)
	{
		if (elector.to_verify[slot] == 0 || elector.verifying[slot] != 0)
			continue;
		elector.verifying[slot] = elector.to_verify[slot];
		elector.to_verify[slot] = 0;
		(void) election_verify(elector.core, shared_state_clock_ns(), slot,
							   VERIFY_TICKET | (uint64) slot);
	}
}

/* ---- what comes from etcd --------------------------------------------------------- */

/*
 * A failure: for last_error in the words of an administrator.  Loss of contact
 * is logged as such; a refusal is not, as it leaves the contact as it is.
 */
static void
note_failure(const EtcdAnswer *answer, const EtcdTiming *timing)
{
	const char *url = etcd_client_endpoint_url(elector.client, answer->endpoint);
	const char *reason = answer->message;
	const char *advice;
	bool		log;

	if (answer->outcome != ETCD_REFUSED)
	{
		note_error(ABOUT_ETCD, answer->message,
				   elector.contact.connected && etcd_client_endpoint_count(elector.client) > 1);
		return;
	}
	if (timing->explained)
	{
		note_error(ABOUT_ETCD, answer->message, true);
		return;
	}
	advice = etcd_advise(answer->code, answer->message);
	if (advice)
		reason = psprintf("%s (%s)", answer->message, advice);

	/* these two are part of how leases are had and lost */
	log = !etcd_says_lease_not_found(answer) && !etcd_says_lease_exists(answer);
	if (timing->key)
		note_formatted_error(ABOUT_ETCD, log, "etcd at \"%s\" refused a request about key \"%s\": %s",
							 url, timing->key, reason);
	else
		note_formatted_error(ABOUT_ETCD, log, "etcd at \"%s\" refused a request: %s", url, reason);
}

static void
client_answered(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	if (answer->outcome == ETCD_ANSWERED)
	{
		stats_count_latency(timing->latency_ns);
		if (id == elector.grant_id)
			stats_count(COUNTER_LEASES_GRANTED, 1);
		elector.contact.last_contact = GetCurrentTimestamp();
		elector.contact_changed = true;
	}
	else
	{
		stats_count(COUNTER_FAILURES, 1);
		if (timing->timed_out)
			stats_count(COUNTER_TIMEOUTS, 1);
		note_failure(answer, timing);
	}
	note_endpoint();
	if (id & CANDIDATES_ID)
		receive_candidates((int) (id & ~CANDIDATES_ID), answer);
	else
		election_receive(elector.core, shared_state_clock_ns(), id, answer);
}

static void
client_noticed(void *ctx, const char *what)
{
	stats_count(COUNTER_FAILURES, 1);
	note_error(ABOUT_ETCD, what, true);
	note_endpoint();
}

static void
client_watched(void *ctx, int stream, const EtcdWatchFrame *frame)
{
	/* that a token has died is mended by the next request, or told of that */
	if ((frame->outcome != ETCD_ANSWERED || frame->canceled) &&
		strstr(frame->message, "invalid auth token") == NULL)
		note_error(ABOUT_ETCD, frame->message[0] != '\0' ? frame->message : "etcd canceled the watch", true);
	election_watched(elector.core, shared_state_clock_ns(), frame);
}

static void
client_watch_ended(void *ctx, int stream, const char *why)
{
	note_error(ABOUT_ETCD, why, false);
	note_endpoint();
	election_watch_ended(elector.core, shared_state_clock_ns());
}

/* ---- settings ------------------------------------------------------------------------ */

static bool
is_eligible(void)
{
	switch ((CandidateMode) settings_candidate)
	{
		case CANDIDATE_NEVER:
			return false;
		case CANDIDATE_ALWAYS:
			return true;
		case CANDIDATE_PRIMARY:
			break;
	}
	return !RecoveryInProgress();
}

/* True if a file of the settings may be read; else says so. */
static bool
check_file_access(const char *setting, const char *file)
{
	if (file[0] == '\0' || access(file, R_OK) == 0)
		return true;
	note_formatted_error(ABOUT_SETTINGS, true, "could not access file \"%s\" (\"%s\"): %s",
						 file, setting, strerror(errno));
	return false;
}

/* The key may be in the file of the certificate. */
static const char *
key_file(void)
{
	return settings_ssl_key_file[0] != '\0' ? settings_ssl_key_file : settings_ssl_cert_file;
}

/*
 * May the private key be used?  Not if others can read it: the rules are those
 * of the server's own (be-secure-common.c).
 */
static bool
check_key_file(void)
{
	const char *file = key_file();
	struct stat key;

	if (file[0] == '\0')
		return true;
	if (!check_file_access("etcd_leader.ssl_key_file", file))
		return false;
	if (stat(file, &key) != 0 || !S_ISREG(key.st_mode))
		note_formatted_error(ABOUT_SETTINGS, true, "private key file \"%s\" (\"etcd_leader.ssl_key_file\") is not a regular file", file);
	else if (key.st_uid != geteuid() && key.st_uid != 0)
		note_formatted_error(ABOUT_SETTINGS, true, "private key file \"%s\" (\"etcd_leader.ssl_key_file\") must be owned by the user that runs the server, or by root", file);
	else if ((key.st_uid == geteuid() && key.st_mode & (S_IRWXG | S_IRWXO)) ||
			 (key.st_uid == 0 && key.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)))
		note_formatted_error(ABOUT_SETTINGS, true, "private key file \"%s\" (\"etcd_leader.ssl_key_file\") has group or world access: its permissions should be u=rw (0600) or less, or u=rw,g=r (0640) if owned by root", file);
	else
		return true;
	return false;
}

/*
 * Must endpoints from DNS be those with TLS?  DNS can be forged.  So it must
 * not decide that a password travels unencrypted, nor that TLS is not used
 * although files for it are set.
 */
static bool
requires_tls(void)
{
	return settings_ssl_ca_file[0] != '\0' || settings_ssl_cert_file[0] != '\0' ||
		settings_username[0] != '\0';
}

/* The records of a domain are all with TLS, or all without. */
static bool
has_tls(const EtcdDiscovered *discovered)
{
	return strncmp(discovered->urls[0], "https:", 6) == 0;
}

/* The endpoints to use, in *urls; their number, 0 if none are known yet. */
static int
resolve_endpoints(const char **urls, const char **server_name)
{
	ListCell   *lc;
	int			nurls = 0;

	*server_name = NULL;
	if (settings_discovery_srv[0] == '\0')
	{
		foreach(lc, settings_endpoint_urls())
			urls[nurls++] = lfirst(lc);
		return nurls;
	}
	if (strcmp(elector.discovered.domain, settings_discovery_srv) != 0 ||
		(requires_tls() && !has_tls(&elector.discovered)))
		return 0;

	/*
	 * DNS can be forged, so it is the domain that a certificate has to be for,
	 * as for etcdctl, and not the host that DNS named.
	 */
	if (has_tls(&elector.discovered))
		*server_name = elector.discovered.domain;
	while (nurls < elector.discovered.nurls)
	{
		urls[nurls] = elector.discovered.urls[nurls];
		nurls++;
	}
	return nurls;
}

static void
configure_client(void)
{
	EtcdClientSettings settings = {0};
	const char *endpoints[ELECTION_MAX_ENDPOINTS];
	bool		has_key = check_key_file();
	int			ttl_ms = settings_ttl_s * 1000;

	/* before the core has settings, it has no TTL */
	elector.timed_ttl_ns = election_ttl_ns(elector.core);
	if (elector.timed_ttl_ns != 0)
		ttl_ms = (int) (elector.timed_ttl_ns / NS_PER_MS);

	(void) check_file_access("etcd_leader.ssl_ca_file", settings_ssl_ca_file);
	(void) check_file_access("etcd_leader.ssl_cert_file", settings_ssl_cert_file);

	settings.endpoints = endpoints;
	settings.nendpoints = resolve_endpoints(endpoints, &settings.server_name);
	if (settings.nendpoints == 0)
		return;					/* those before stay in use meanwhile */
	settings.request_timeout_ms = settings_resolve_request_timeout_ms(ttl_ms);
	settings.connect_timeout_ms = settings_resolve_connect_timeout_ms(ttl_ms);
	settings.ca_file = settings_ssl_ca_file;
	settings.cert_file = has_key ? settings_ssl_cert_file : NULL;
	settings.key_file = has_key ? key_file() : NULL;
	settings.tls_1_3 = settings_ssl_min_protocol_version == SSL_MIN_TLS_1_3;
	settings.username = settings_username;
	settings.password_file = settings_password_file;
	etcd_client_configure(elector.client, &settings);
	note_endpoint();
}

static void
configure_core(void)
{
	ElectionConfig *config = palloc0(sizeof(ElectionConfig));
	bool		cut;

	settings_resolve_node_name(config->node_name, sizeof(config->node_name));
	config->ttl_s = settings_ttl_s;
	config->safety_margin_ms = settings_safety_margin_ms;
	config->eligible = elector.eligible = is_eligible();
	config->in_recovery = elector.in_recovery = RecoveryInProgress();
	snprintf(config->system_identifier, sizeof(config->system_identifier), UINT64_FORMAT, GetSystemIdentifier());
	strlcpy(config->patroni_namespace, settings_patroni_namespace, sizeof(config->patroni_namespace));
	config->nendpoints = etcd_client_endpoint_count(elector.client);
	config->nelections = settings_election_count();
	for (int i = 0; i < config->nelections; i++)
	{
		strlcpy(config->elections[i], settings_election_name(i), ELECTION_NAME_SIZE);
		config->stay_out[i] = crash_memory_stays_out(config->elections[i]);
	}

	(void) settings_resolve_safety_margin_ms(&cut);
	if (cut && !elector.margin_cut)
		ereport(WARNING,
				(errmsg("\"etcd_leader.safety_margin\" leaves less than half of \"etcd_leader.ttl\""),
				 errdetail("A margin of half of the TTL is used.")));
	elector.margin_cut = cut;

	if (strcmp(elector.contact.node_name, config->node_name) != 0)
		clear_error(ABOUT_NAME);
	strlcpy(elector.contact.node_name, config->node_name, sizeof(elector.contact.node_name));
	shared_state_publish_contact(&elector.contact);
	election_configure(elector.core, shared_state_clock_ns(), config);
	pfree(config);
}

/*
 * The lease in use may have another TTL than the settings, until its keys are
 * on another one.  The client's time-outs follow it.
 */
static void
follow_ttl(void)
{
	if (elector.timed_ttl_ns != election_ttl_ns(elector.core))
		configure_client();
}

/* At the start, and after each reload. */
static void
configure(void)
{
	settings_warn();
	elector.discovery_due_ns = 0;
	clear_error(ABOUT_SETTINGS);
	clear_error(ABOUT_DNS);
	configure_client();
	configure_core();
	notifier_configure();
}

/* ---- endpoints from DNS ----------------------------------------------------------------- */

/*
 * Looks the endpoints up when that is due, if they are to be had from DNS.
 * Milliseconds until the next time; -1: never.
 */
static long
discover(void)
{
	int64		now_ns = shared_state_clock_ns();
	bool		tls_only;

	if (settings_discovery_srv[0] == '\0')
		return -1;

	/* once a domain had records with TLS, records without do not count */
	tls_only = requires_tls() ||
		(strcmp(elector.discovered.domain, settings_discovery_srv) == 0 && has_tls(&elector.discovered));
	if (elector.discovery_due_ns <= now_ns)
	{
		(void) etcd_discovery_start(elector.discovery, settings_discovery_srv, tls_only);
		elector.discovery_due_ns = now_ns + DISCOVERY_RETRY_MS * NS_PER_MS;
	}
	return (long) ((elector.discovery_due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static bool
is_same_discovered(const EtcdDiscovered *a, const EtcdDiscovered *b)
{
	if (strcmp(a->domain, b->domain) != 0 || a->nurls != b->nurls)
		return false;
	for (int i = 0; i < a->nurls; i++)
	{
		if (strcmp(a->urls[i], b->urls[i]) != 0)
			return false;
	}
	return true;
}

/* A lookup has ended.  One that failed changes nothing. */
static void
finish_discovery(void)
{
	const EtcdDiscovered *found = etcd_discovery_finish(elector.discovery);
	int64		now_ns = shared_state_clock_ns();

	if (found == NULL || strcmp(found->domain, settings_discovery_srv) != 0)
		return;
	if (found->nurls == 0)
	{
		note_error(ABOUT_DNS, found->error, true);
		elector.discovery_due_ns = now_ns + DISCOVERY_RETRY_MS * NS_PER_MS;
		return;
	}
	clear_error(ABOUT_DNS);

	/* it began before a setting asked for TLS */
	if (requires_tls() && !has_tls(found))
	{
		elector.discovery_due_ns = now_ns;
		return;
	}
	elector.discovery_due_ns = now_ns +
		Min(Max(found->ttl_s * INT64CONST(1000), MIN_DISCOVERY_MS), MAX_DISCOVERY_MS) * NS_PER_MS;

	/*
	 * Whoever is configured begins anew to count which endpoints fail, asks
	 * for members and tokens, and so on: not at each lookup.
	 */
	if (is_same_discovered(found, &elector.discovered))
		return;
	elector.discovered = *found;
	configure_client();
	configure_core();
}

static void
client_endpoints_changed(void *ctx)
{
	note_endpoint();
	configure_core();
}

/* ---- life ------------------------------------------------------------------------------ */

static bool
has_stopped(void *ctx)
{
	return election_stopped(elector.core);
}

/*
 * Whatever ends this process: leadership is withdrawn at once, and the leases
 * are revoked, so that another instance leads in milliseconds.  Nothing of
 * the client is freed: that could wait for a hung resolver.
 */
static void
end_elector(int code, Datum arg)
{
	bool		revoking = election_stop(elector.core, shared_state_clock_ns(),
										 ELECTION_REASON_SHUTDOWN);

	announce_events();
	shared_state_end_elector();
	if (revoking)
		etcd_client_drain(elector.client, FAREWELL_MS, has_stopped, NULL);
}

/*
 * Immediate shutdown: the leases are revoked as well.  Another process may have
 * died while it held a lock in shared memory, for example that of a condition
 * variable.  An answer of etcd would have this process wait for that lock.  So
 * it leaves shared memory first.
 */
static void
quit(void)
{
	if (shared_state_leave() &&
		election_stop(elector.core, shared_state_clock_ns(), ELECTION_REASON_SHUTDOWN))
		etcd_client_drain(elector.client, FAREWELL_MS, has_stopped, NULL);
	_exit(2);
}

/*
 * SIGQUIT.  After a crash of another process nothing here can be trusted, and
 * the instance will be back in a moment: no farewell.
 */
static void
handle_quit(SIGNAL_ARGS)
{
	if (GetQuitSignalReason() != PMQUIT_FOR_STOP)
		_exit(2);
	quit_pending = true;
	SetLatch(MyLatch);
}

/*
 * After a crash of the server: goes on with the lease and the places of the
 * elector before, if it has left anything.
 */
static void
resume(void)
{
	ElectionMemory *memory = palloc(sizeof(ElectionMemory));

	if (crash_memory_recall(memory))
	{
		if (election_resume(elector.core, shared_state_clock_ns(), memory))
			ereport(LOG,
					(errmsg("resuming the lease that was held before the restart")));
		crash_memory_remember(NULL);
	}
	pfree(memory);
}

static void
begin_elector(void)
{
	static const EtcdClientCallbacks callbacks = {
		.answered = client_answered,
		.watched = client_watched,
		.watch_ended = client_watch_ended,
		.noticed = client_noticed,
		.endpoints_changed = client_endpoints_changed
	};
	static const ElectionPort port = {
		.send = port_send,
		.watch = port_watch,
		.change_endpoint = port_change_endpoint,
		.publish = port_publish,
		.announce = port_announce,
		.reply = port_reply,
		.remember = port_remember,
		.find_namesake = port_find_namesake,
		.random = port_random
	};

	for (int i = 0; i < LONG_LIVED_FDS; i++)
	{
		if (!AcquireExternalFD())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("too few file descriptors for the connections to etcd"),
					 errhint("Increase \"max_files_per_process\".")));
	}
	elector.client = etcd_client_create(&callbacks);
	elector.discovery = etcd_discovery_create();
	elector.core = election_create(&port, settings_max_elections);
	if (elector.client == NULL || elector.discovery == NULL || elector.core == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	elector.wait_event = compat_wait_event("EtcdLeaderElectorMain");
	elector.candidates = palloc0(mailbox_size() * sizeof(CandidatesRequest));
	shared_state_begin_elector();
	resume();
	before_shmem_exit(end_elector, 0);
}

/* ---- the loop ---------------------------------------------------------------------------- */

/*
 * The wait set, made anew when the sockets may have changed: an fd cannot be
 * taken out of one.
 */
static void
refresh_wait_set(void)
{
	const EtcdSocket *sockets;
	int			nsockets;
	uint64_t	changes;

	sockets = etcd_client_sockets(elector.client, &nsockets, &changes);
	if (elector.wait_set && elector.wait_set_changes == changes)
		return;
	if (elector.wait_set)
		FreeWaitEventSet(elector.wait_set);
	elector.wait_set = compat_create_wait_event_set(nsockets + 3);
	elector.wait_set_changes = changes;
	AddWaitEventToSet(elector.wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(elector.wait_set, WL_POSTMASTER_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(elector.wait_set, WL_SOCKET_READABLE, etcd_discovery_fd(elector.discovery), NULL, NULL);
	for (int i = 0; i < nsockets; i++)
	{
		uint32		events = 0;

		if (sockets[i].events & ETCD_SOCKET_READABLE)
			events |= WL_SOCKET_READABLE;
		if (sockets[i].events & ETCD_SOCKET_WRITEABLE)
			events |= WL_SOCKET_WRITEABLE;
		if (events != 0)
			AddWaitEventToSet(elector.wait_set, events, sockets[i].fd, NULL, NULL);
	}
}

static long
sooner(long a, long b)
{
	return a < 0 ? b : b < 0 ? a : Min(a, b);
}

/* Milliseconds until the protocol or the client has something to do; -1: never. */
static long
next_timeout_ms(void)
{
	int64		wakeup_ns = election_wakeup_ns(elector.core);
	long		timeout = etcd_client_timeout_ms(elector.client);

	if (wakeup_ns != PG_INT64_MAX)
	{
		int64		left_ns = wakeup_ns - shared_state_clock_ns();

		/* rounded up: waking too early would be for nothing */
		timeout = sooner(timeout, left_ns <= 0 ? 0 : (long) Min((left_ns + NS_PER_MS - 1) / NS_PER_MS, INT_MAX));
	}
	return timeout;
}

/* One turn: waits for something, and does it. */
static void
turn(long timeout_ms)
{
	WaitEvent	events[8];
	int			nevents;

	refresh_wait_set();
	nevents = WaitEventSetWait(elector.wait_set, timeout_ms, events, lengthof(events),
							   elector.wait_event);
	if (quit_pending)
		quit();
	for (int i = 0; i < nevents; i++)
	{
		int			what = 0;

		if (events[i].events & WL_POSTMASTER_DEATH)
			proc_exit(1);
		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (events[i].events & WL_SOCKET_READABLE)
			what |= ETCD_SOCKET_READABLE;
		if (events[i].events & WL_SOCKET_WRITEABLE)
			what |= ETCD_SOCKET_WRITEABLE;
		if (events[i].fd == etcd_discovery_fd(elector.discovery))
			finish_discovery();
		else if (what != 0)
			etcd_client_socket_ready(elector.client, events[i].fd, what);
	}
	etcd_client_process(elector.client);
	announce_events();
}

void
etcd_leader_elector_main(Datum main_arg)
{
	MemoryContext turn_context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGQUIT, handle_quit);
	/* pg_cancel_backend() has nothing to cancel here. */
	pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	turn_context = AllocSetContextCreate(TopMemoryContext, "etcd_leader elector turn",
										 ALLOCSET_DEFAULT_SIZES);
	begin_elector();
	MemoryContextSwitchTo(turn_context);
	configure();

	while (!ShutdownRequestPending)
	{
		long		timeout_ms;

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			configure();
		}
		else if (is_eligible() != elector.eligible || RecoveryInProgress() != elector.in_recovery)
			configure_core();	/* promoted */
		follow_ttl();

		serve_mailbox();
		election_tick(elector.core, shared_state_clock_ns());
		timeout_ms = sooner(sooner(sooner(notifier_supervise(), http_launcher_supervise()), discover()),
							sooner(next_timeout_ms(), MAX_SLEEP_MS));
		if (elector.in_recovery &&
			(settings_candidate == CANDIDATE_PRIMARY || settings_follow_patroni()) &&
			!notifier_awaits_promotion())
			timeout_ms = sooner(timeout_ms, PROMOTION_POLL_MS);
		clear_old_error();
		if (elector.contact_changed)
		{
			shared_state_publish_contact(&elector.contact);
			elector.contact_changed = false;
		}
		turn(elector.nevents > 0 ? 0 : timeout_ms);
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(turn_context);
	}

	/* Not 0, which would tell the postmaster not to start it again. */
	proc_exit(1);
}

void
elector_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = RESTART_INTERVAL_S;
	strlcpy(worker.bgw_library_name, "etcd_leader", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, ELECTOR_FUNCTION, BGW_MAXLEN);
	strlcpy(worker.bgw_name, "etcd_leader elector", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "etcd_leader elector", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);

	/* there are no workers in single-user mode */
	lacks_worker_slot = IsPostmasterEnvironment && !compat_is_worker_registered(ELECTOR_FUNCTION);
	if (lacks_worker_slot)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not register the elector of etcd_leader"),
				 errdetail("There is no free background worker slot. This instance takes part in no election."),
				 errhint("Increase \"%s\" and restart the server.", "max_worker_processes")));
}

bool
elector_lacks_worker_slot(void)
{
	return lacks_worker_slot;
}
