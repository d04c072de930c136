/*-------------------------------------------------------------------------
 *
 * etcd.c
 *	  What etcd tells of the set-up, asked by the session itself.
 *
 * The elector is not needed: it may be just this that does not work.  So the
 * session makes a client of etcd of its own, with the settings of the elector.
 * It asks all endpoints side by side for their status.  When it is known which
 * cluster may be used, it asks one of those that have answered for the rest.
 * Nothing is written: the txns that name keys to write have a compare that
 * is never true, but etcd checks the rights of both branches.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "base/clock.h"
#include "base/compat.h"
#include "etcd/client.h"
#include "protocol/changes.h"
#include "settings/settings.h"
#include "shared/state.h"

/* The sockets of an endpoint at a time: for a request, and for a list of members. */
#define SOCKETS_PER_ENDPOINT	2

/* What has come of a request. */
typedef struct Reply
{
	bool		asked;
	bool		ended;
	EtcdOutcome outcome;
	int			code;
	char		message[ETCD_MESSAGE_SIZE];
	int64		latency_ns;
	/* of an endpoint's status */
	EtcdHeader	header;
	char		version[64];
	char		errors[ETCD_MESSAGE_SIZE];
	bool		is_learner;
	/* of rights: the first key in the order of creation, for people; empty: there is none */
	char		first_key[ETCD_MESSAGE_SIZE];
	bool		first_has_lease;
} Reply;

/* Keys that the elector has to read, or to write, too. */
typedef struct Rights
{
	const char *name;			/* of an election, or a watched prefix */
	bool		writes;
	char		prefix[ELECTION_KEY_SIZE];
	char		prefix_end[ELECTION_KEY_SIZE];
} Rights;

typedef struct Check
{
	FunctionCallInfo fcinfo;
	int64		until_us;		/* see arguments_get_timeout() */
	EtcdClient *client;
	WaitEventSet *wait_set;
	uint64_t	wait_set_changes;	/* of the sockets that it was made from */
	int			nexternal_fds;
	long		elector_timeout_ms; /* of its requests */

	/* the results of the endpoints come first, then quorum, then rights */
	int			nendpoints;
	const char *urls[ETCD_CLIENT_MAX_ENDPOINTS];
	int			nrights;
	Rights	   *rights;
	int			nresults;
	Reply	   *results;
} Check;

/* ---- the client -------------------------------------------------------- */

static void
receive(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	Check	   *check = ctx;
	Reply	   *result = &check->results[id];

	result->ended = true;
	result->outcome = answer->outcome;
	result->code = answer->code;
	memcpy(result->message, answer->message, ETCD_MESSAGE_SIZE);
	result->latency_ns = timing->latency_ns;
	if (answer->outcome != ETCD_ANSWERED)
		return;
	result->header = answer->header;
	result->is_learner = answer->is_learner;
	if (answer->nresults == 1 && answer->results[0].nkvs == 1)
	{
		etcd_format_message(result->first_key, "%s", answer->results[0].kvs[0].key.data);
		result->first_has_lease = answer->results[0].kvs[0].lease != 0;
	}
	if (answer->version != NULL)
		strlcpy(result->version, answer->version, sizeof(result->version));
	for (int i = 0; i < answer->nerrors; i++)
	{
		size_t		len = strlen(result->errors);

		snprintf(result->errors + len, sizeof(result->errors) - len, "%s%s", len > 0 ? "; " : "",
				 answer->errors[i]);
	}
}

static void
ignore_notice(void *ctx, const char *what, bool refused)
{
}

static void
ignore_members(void *ctx)
{
}

/* Waits for something to do for the client. */
static void
sleep_for(Check *check, long timeout_ms)
{
	static uint32 wait_event = 0;
	WaitEvent	events[8];
	const EtcdSocket *sockets;
	int			nsockets;
	int			nevents;
	uint64_t	changes;

	if (wait_event == 0)
		wait_event = compat_wait_event("EtcdLeaderCheck");
	sockets = etcd_client_sockets(check->client, &nsockets, &changes);
	if (check->wait_set == NULL || check->wait_set_changes != changes)
	{
		if (check->wait_set != NULL)
			FreeWaitEventSet(check->wait_set);
		check->wait_set = NULL;
		check->wait_set = compat_create_wait_event_set(nsockets + 2);
		check->wait_set_changes = changes;
		AddWaitEventToSet(check->wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(check->wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
		for (int i = 0; i < nsockets; i++)
		{
			uint32		wanted =
				(sockets[i].events & ETCD_SOCKET_READABLE ? WL_SOCKET_READABLE : 0) |
				(sockets[i].events & ETCD_SOCKET_WRITEABLE ? WL_SOCKET_WRITEABLE : 0);

			if (wanted != 0)
				AddWaitEventToSet(check->wait_set, wanted, sockets[i].fd, NULL, NULL);
		}
	}
	nevents = WaitEventSetWait(check->wait_set, timeout_ms, events, lengthof(events), wait_event);
	for (int i = 0; i < nevents; i++)
	{
		int			what = (events[i].events & WL_SOCKET_READABLE ? ETCD_SOCKET_READABLE : 0) |
			(events[i].events & WL_SOCKET_WRITEABLE ? ETCD_SOCKET_WRITEABLE : 0);

		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		else if (what != 0)
			etcd_client_socket_ready(check->client, events[i].fd, what);
	}
}

/* Has one of the first n results not come yet? */
static bool
is_pending(const Check *check, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (!check->results[i].ended)
			return true;
	}
	return etcd_client_awaits_cluster(check->client) || etcd_client_awaits_members(check->client);
}

/* Runs the client until the first n results have come, or the time is over. */
static void
await_results(Check *check, int n)
{
	long		left_ms;

	while (is_pending(check, n) && (left_ms = clock_remaining_ms(check->until_us)) != 0)
	{
		long		timeout_ms = etcd_client_timeout_ms(check->client);

		if (timeout_ms < 0 || (left_ms > 0 && left_ms < timeout_ms))
			timeout_ms = left_ms;
		sleep_for(check, timeout_ms);
		CHECK_FOR_INTERRUPTS();
		etcd_client_process(check->client);
	}
}

/*
 * The endpoints of the settings.  Of those that DNS names, the session knows
 * only the one that the elector uses.
 */
static void
find_endpoints(Check *check, EtcdClientSettings *settings)
{
	SharedContact contact;
	ListCell   *cell;

	if (settings_discovery_srv[0] == '\0')
	{
		foreach(cell, settings_endpoint_urls())
			check->urls[check->nendpoints++] = lfirst(cell);
	}
	else
	{
		shared_state_read_contact(&contact);
		check_put(check->fcinfo, "endpoint", settings_discovery_srv, CHECK_UNKNOWN,
				  "of the endpoints from DNS, only the one in use is asked", NULL);
		if (contact.endpoint[0] != '\0')
			check->urls[check->nendpoints++] = pstrdup(contact.endpoint);
		if (strncmp(contact.endpoint, "https:", 6) == 0)
			settings->server_name = settings_discovery_srv;
	}
	settings->endpoints = check->urls;
	settings->nendpoints = check->nendpoints;
}

static void
begin_client(Check *check, EtcdClientSettings *settings)
{
	EtcdClientCallbacks callbacks = {
		.noticed = ignore_notice,
		.endpoints_changed = ignore_members,
		.ctx = check
	};
	long		left_ms = clock_remaining_ms(check->until_us);

	/*
	 * More patience than the elector has shows how late an answer is.  A third
	 * is for a token, and a third for the second part.
	 */
	settings_fill_client(settings, settings_ttl_s * 1000);
	check->elector_timeout_ms = settings->request_timeout_ms;
	if (left_ms >= 0)
		settings->request_timeout_ms = settings->connect_timeout_ms = Max(left_ms / 3, 1);

	while (check->nexternal_fds < SOCKETS_PER_ENDPOINT * check->nendpoints + 2)
	{
		if (!AcquireExternalFD())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("too few file descriptors for the connections to etcd"),
					 errhint("Increase \"max_files_per_process\".")));
		check->nexternal_fds++;
	}
	check->client = etcd_client_create(&callbacks);
	if (check->client == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	etcd_client_configure(check->client, settings);
}

/* ---- rows ---------------------------------------------------------------- */

/*
 * What is to be done about a failure; NULL: nothing is known.  The time-out of a
 * message is that of the check, and none of the settings.
 */
static const char *
hint_of(const Reply *result)
{
	char	   *message = pstrdup(result->message);
	char	   *within = strstr(message, " within ");
	const char *hint;
	const char *advice = result->outcome == ETCD_REFUSED ?
		etcd_advise(result->code, result->message) : NULL;

	if (within != NULL)
		*within = '\0';
	hint = etcd_hint(message);
	if (hint != NULL || advice == NULL)
		return hint;
	if (strncmp(advice, "etcd ", 5) == 0)
		return psprintf("%s.", advice);
	return psprintf("%c%s.", pg_toupper((unsigned char) advice[0]), advice + 1);
}

/* A row for a request that has failed, or not ended. */
static void
put_failure(Check *check, const char *item, const char *subject, CheckStatus status,
			const Reply *result)
{
	if (!result->asked)
		check_put(check->fcinfo, item, subject, CHECK_UNKNOWN,
				  "no endpoint has answered that may be asked", NULL);
	else if (!result->ended)
		check_put(check->fcinfo, item, subject, CHECK_UNKNOWN,
				  "no answer within the time-out of etcd_leader_check()",
				  "Call it with a longer time-out.");
	else
		check_put(check->fcinfo, item, subject, status, result->message, hint_of(result));
}

static bool
has_answered(const Reply *result)
{
	return result->ended && result->outcome == ETCD_ANSWERED;
}

/*
 * Why the elector may get no answer in time.  A new connection and a request
 * take two round trips.
 */
static const char *
hint_of_latency(Check *check, int endpoint)
{
	double		round_trip_ms =
		etcd_client_round_trip_ns(check->client, endpoint) / (double) NSEC_PER_MSEC;

	if (2 * round_trip_ms > check->elector_timeout_ms)
		return psprintf("The network takes %.0f ms for a round trip, and the time-out of requests "
						"is %ld ms. Raise \"etcd_leader.ttl\", or \"etcd_leader.request_timeout\" "
						"and \"etcd_leader.connect_timeout\" if they are set.",
						round_trip_ms, check->elector_timeout_ms);
	return psprintf("The time-out of requests is %ld ms. Find out why etcd is slow, or raise "
					"\"etcd_leader.ttl\".",
					check->elector_timeout_ms);
}

static void
put_endpoint(Check *check, int endpoint, const Reply *result)
{
	const char *protocol = etcd_dialect_name(etcd_client_dialect(check->client));
	bool		late = result->latency_ns > check->elector_timeout_ms * NSEC_PER_MSEC;
	const char *hint = NULL;

	if (result->is_learner)
		hint = etcd_hint(ETCD_LEARNER_REFUSAL);
	else if (late)
		hint = hint_of_latency(check, endpoint);
	check_put(check->fcinfo, "endpoint", check->urls[endpoint],
			  hint != NULL ? CHECK_WARNING : CHECK_OK,
			  psprintf("etcd %s, %s, %s %llx of cluster %llx, %.1f ms", result->version, protocol,
					   result->is_learner ? "learner" : "member",
					   (unsigned long long) result->header.member_id,
					   (unsigned long long) result->header.cluster_id,
					   result->latency_ns / (double) NSEC_PER_MSEC), hint);
}

static void
put_endpoints(Check *check)
{
	for (int i = 0; i < check->nendpoints; i++)
	{
		const Reply *result = &check->results[i];
		char		gone[ETCD_MESSAGE_SIZE];

		if (has_answered(result))
			put_endpoint(check, i, result);
		else if (result->ended && etcd_client_describe_unannounced(check->client, i, gone))
			check_put(check->fcinfo, "endpoint", check->urls[i], CHECK_ERROR, result->message,
					  psprintf("%s.", gone));
		else
			put_failure(check, "endpoint", check->urls[i], CHECK_ERROR, result);
	}
}

/* The certificates of the endpoints. */
static void
put_certificates(Check *check)
{
	time_t		now_s = time(NULL);

	for (int i = 0; i < check->nendpoints; i++)
	{
		int64		end_s = etcd_client_certificate_end_s(check->client, i);

		if (end_s != 0)
			check_put_certificate(check->fcinfo, check->urls[i],
								  (end_s - (double) now_s) / SECS_PER_DAY,
								  "Renew the certificate of this member of etcd.");
	}
}

static void
put_cluster(Check *check)
{
	uint64		usable = etcd_client_usable_cluster(check->client);
	int			nmembers = 0;
	int			ntold = 0;
	char		message[ETCD_MESSAGE_SIZE];

	for (int i = 0; i < check->nendpoints; i++)
	{
		uint64		cluster_id = etcd_client_endpoint_state(check->client, i)->cluster_id;

		if (cluster_id == 0)
			continue;
		ntold++;
		if (cluster_id == usable)
		{
			nmembers++;
			continue;
		}
		etcd_client_describe_foreign(check->client, i, message);
		check_put(check->fcinfo, "cluster", check->urls[i], CHECK_ERROR, message,
				  etcd_hint(message));
	}
	if (nmembers > 0)
		check_put(check->fcinfo, "cluster", psprintf("%llx", (unsigned long long) usable), CHECK_OK,
				  psprintf("%d of %d endpoints belong to it", nmembers, check->nendpoints), NULL);
	else if (ntold == 0)
		check_put(check->fcinfo, "cluster", NULL, CHECK_UNKNOWN, "no endpoint has told its cluster",
				  NULL);
}

static const char *
hint_of_alarm(const char *errors)
{
	if (strstr(errors, "NOSPACE") != NULL)
		return "Compact and defragment etcd, then run \"etcdctl alarm disarm\".";
	if (strstr(errors, "CORRUPT") != NULL)
		return "Remove the member whose data differ from the cluster, add it anew, then run "
			"\"etcdctl alarm disarm\".";
	if (strstr(errors, "no leader") != NULL)
		return "Most members of the etcd cluster must run and reach each other.";
	return NULL;
}

static void
put_alarms(Check *check)
{
	bool		answered = false;
	bool		alarmed = false;

	for (int i = 0; i < check->nendpoints; i++)
	{
		const Reply *result = &check->results[i];

		answered |= has_answered(result);
		if (result->errors[0] == '\0')
			continue;
		alarmed = true;
		check_put(check->fcinfo, "alarm", check->urls[i], CHECK_ERROR, result->errors,
				  hint_of_alarm(result->errors));
	}
	if (!answered)
		check_put(check->fcinfo, "alarm", NULL, CHECK_UNKNOWN, "no endpoint has answered", NULL);
	else if (!alarmed)
		check_put(check->fcinfo, "alarm", NULL, CHECK_OK, "no endpoint reports an alarm", NULL);
}

/* What speaks against a version of etcd; NULL: nothing. */
static const char *
fault_of_version(const char *version, const char **hint)
{
	int			major = 0;
	int			minor = 0;
	int			patch = 0;

	*hint = "Update etcd to the newest release of its line.";
	if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) != 3)
		return NULL;
	if (major == 3 && minor < 4)
		return psprintf("etcd %s is older than 3.4, which etcd_leader needs", version);
	if (major == 3 && minor == 5 && patch < 3)
		return psprintf("etcd %s may corrupt its data when a member is killed", version);
	if (settings_follow_patroni() && election_is_etcd_old(version))
		return psprintf("in etcd %s, a pause of etcd's leader may end Patroni's lease", version);
	return NULL;
}

static void
put_versions(Check *check)
{
	const char *known = NULL;
	const char *hint;
	bool		good = true;

	for (int i = 0; i < check->nendpoints; i++)
	{
		const Reply *result = &check->results[i];
		const char *fault;

		if (!has_answered(result))
			continue;
		fault = fault_of_version(result->version, &hint);
		if (fault != NULL)
			check_put(check->fcinfo, "version", check->urls[i], CHECK_WARNING, fault, hint);
		else if (known != NULL && strcmp(known, result->version) != 0)
			check_put(check->fcinfo, "version", check->urls[i], CHECK_WARNING,
					  psprintf("etcd %s, while another endpoint has %s", result->version, known),
					  "Finish the upgrade of etcd.");
		else
		{
			known = result->version;
			continue;
		}
		good = false;
	}
	if (good && known != NULL)
		check_put(check->fcinfo, "version", NULL, CHECK_OK, psprintf("etcd %s", known), NULL);
	else if (good)
		check_put(check->fcinfo, "version", NULL, CHECK_UNKNOWN, "no endpoint has answered", NULL);
}

static void
put_quorum(Check *check)
{
	const Reply *result = &check->results[check->nendpoints];

	if (has_answered(result))
		check_put(check->fcinfo, "quorum", NULL, CHECK_OK,
				  psprintf("most members agree, %.1f ms",
						   result->latency_ns / (double) NSEC_PER_MSEC), NULL);
	else
		put_failure(check, "quorum", NULL, CHECK_ERROR, result);
}

static void
put_rights(Check *check, const Rights *rights, const Reply *result)
{
	const char *subject = rights->name;

	if (has_answered(result))
		check_put(check->fcinfo, "rights", subject, CHECK_OK,
				  psprintf("keys that begin with \"%s\" may be %s", rights->prefix,
						   rights->writes ? "read and written" : "read"), NULL);
	else if (result->ended && result->outcome == ETCD_REFUSED &&
			 result->code == ETCD_CODE_PERMISSION_DENIED)
		check_put(check->fcinfo, "rights", subject, CHECK_ERROR,
				  psprintf("etcd's user may not %s keys that begin with \"%s\"",
						   rights->writes ? "read and write" : "read", rights->prefix),
				  psprintf("With a role of that user, run: etcdctl role grant-permission ROLE "
						   "--prefix=true %s %s",
						   rights->writes ? "readwrite" : "read", rights->prefix));
	else
	{
		/* with the wrong user, or none, it is no question of space or of a quorum */
		bool		is_user = etcd_wants_token(result->outcome, result->code, result->message) ||
			strstr(result->message, "authentication failed") != NULL;

		put_failure(check, "rights", subject, is_user ? CHECK_ERROR : CHECK_UNKNOWN, result);
	}
}

/*
 * The first key of an election is the leader's.  A key without a lease is no
 * candidate's, and stays there until somebody deletes it.
 */
static void
put_queue(Check *check, const Rights *rights, const Reply *result)
{
	const char *key = result->first_key;

	if (!rights->writes || !has_answered(result))
		return;
	if (key[0] == '\0')
		check_put(check->fcinfo, "queue", rights->name, CHECK_OK, "no key is in the queue", NULL);
	else if (result->first_has_lease)
		check_put(check->fcinfo, "queue", rights->name, CHECK_OK,
				  psprintf("the first key is \"%s\"", key), NULL);
	else
		check_put(check->fcinfo, "queue", rights->name, CHECK_ERROR,
				  psprintf("the first key, \"%s\", has no lease, so no instance can lead while it "
						   "exists", key),
				  "No candidate wrote it. If nothing else needs it, delete it by \"etcdctl del\".");
}

/* ---- the requests --------------------------------------------------------- */

static void
add_rights(Check *check, const char *name, const char *prefix, bool writes)
{
	Rights	   *rights = &check->rights[check->nrights++];

	rights->name = name;
	rights->writes = writes;
	strlcpy(rights->prefix, prefix, sizeof(rights->prefix));
	changes_prefix_end(rights->prefix, rights->prefix_end);
}

/* The keys of each election and of each watched prefix. */
static void
list_rights(Check *check)
{
	List	   *prefixes = settings_split(settings_watched_prefixes);
	ListCell   *cell;
	char		prefix[ELECTION_KEY_SIZE];

	check->rights =
		palloc0((settings_election_count() + list_length(prefixes) + 1) * sizeof(Rights));
	for (int i = 0; i < settings_election_count(); i++)
	{
		const char *name = settings_election_name(i);

		if (election_is_followed(name))
			election_patroni_prefix(prefix, settings_patroni_namespace, name);
		else
			snprintf(prefix, sizeof(prefix), "%s/", name);
		add_rights(check, name, prefix, !election_is_followed(name));
	}
	foreach(cell, prefixes)
		add_rights(check, lfirst(cell), lfirst(cell), false);
}

static EtcdBytes
bytes_of(const char *text)
{
	return (EtcdBytes) {text, strlen(text)};
}

static void
ask_one(Check *check, int endpoint, int id, const EtcdRequest *request)
{
	check->results[id].asked = true;
	etcd_client_ask(check->client, endpoint, receive, id, request);
}

static void
ask_for_rights(Check *check, int endpoint, const Rights *rights, int id)
{
	char		key[ELECTION_KEY_SIZE + 16];
	EtcdOp		range = {.kind = ETCD_OP_RANGE,.key = bytes_of(rights->prefix),
	.range_end = bytes_of(rights->prefix_end),.limit = 1,.sort = ETCD_SORT_FIRST_CREATED};
	EtcdOp		put = {.kind = ETCD_OP_PUT};
	EtcdOp		delete = {.kind = ETCD_OP_DELETE};
	EtcdOp		writes[2];
	EtcdCompare never = {.target = ETCD_COMPARE_CREATE_REVISION,.value = 1};
	EtcdRequest request = {.kind = ETCD_TXN,.failure = &range,.nfailure = 1};

	/* no key has the create revision 1: the first write makes revision 2 */
	snprintf(key, sizeof(key), "%setcd_leader", rights->prefix);
	never.key = put.key = bytes_of(key);
	delete.key = bytes_of(rights->prefix);
	writes[0] = put;
	writes[1] = delete;
	request.compares = &never;
	request.ncompares = 1;
	if (rights->writes)
	{
		request.success = writes;
		request.nsuccess = lengthof(writes);
	}
	ask_one(check, endpoint, id, &request);
}

/* An endpoint of the cluster that may be used, and no learner; -1: none has answered. */
static int
find_usable_endpoint(const Check *check)
{
	uint64		usable = etcd_client_usable_cluster(check->client);
	int			endpoint = -1;

	for (int i = 0; i < check->nendpoints; i++)
	{
		const Reply *result = &check->results[i];

		if (!has_answered(result) || result->header.cluster_id != usable || result->is_learner)
			continue;
		/* one that has a complaint is the last choice */
		if (endpoint < 0 ||
			(check->results[endpoint].errors[0] != '\0' && result->errors[0] == '\0'))
			endpoint = i;
	}
	return endpoint;
}

static void
ask(Check *check)
{
	static const EtcdRequest status = {.kind = ETCD_STATUS};
	static const EtcdOp nothing = {.kind = ETCD_OP_EMPTY_TXN};
	static const EtcdRequest ordered = {.kind = ETCD_TXN,.success = &nothing,.nsuccess = 1};
	int			endpoint;

	for (int i = 0; i < check->nendpoints; i++)
		ask_one(check, i, i, &status);
	await_results(check, check->nendpoints);

	endpoint = find_usable_endpoint(check);
	if (endpoint < 0)
		return;
	ask_one(check, endpoint, check->nendpoints, &ordered);
	for (int i = 0; i < check->nrights; i++)
		ask_for_rights(check, endpoint, &check->rights[i], check->nendpoints + 1 + i);
	await_results(check, check->nresults);
}

static void
put_all(Check *check)
{
	put_endpoints(check);
	put_certificates(check);
	put_cluster(check);
	put_quorum(check);
	for (int i = 0; i < check->nrights; i++)
		put_rights(check, &check->rights[i], &check->results[check->nendpoints + 1 + i]);
	for (int i = 0; i < check->nrights; i++)
		put_queue(check, &check->rights[i], &check->results[check->nendpoints + 1 + i]);
	put_alarms(check);
	put_versions(check);
}

void
check_etcd(FunctionCallInfo fcinfo, int64 until_us)
{
	Check	   *check = palloc0(sizeof(Check));
	EtcdClientSettings settings = {0};

	check->fcinfo = fcinfo;
	check->until_us = until_us;
	find_endpoints(check, &settings);
	list_rights(check);
	check->nresults = check->nendpoints + 1 + check->nrights;
	check->results = palloc0(check->nresults * sizeof(Reply));
	if (check->nendpoints == 0)
		return;

	PG_TRY();
	{
		begin_client(check, &settings);
		ask(check);
		put_all(check);
	}
	PG_FINALLY();
	{
		etcd_client_free(check->client);
		if (check->wait_set != NULL)
			FreeWaitEventSet(check->wait_set);
		while (check->nexternal_fds-- > 0)
			ReleaseExternalFD();
	}
	PG_END_TRY();
}
