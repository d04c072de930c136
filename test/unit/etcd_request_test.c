/*-------------------------------------------------------------------------
 *
 * etcd_request_test.c
 *	  Unit tests of etcd/request.c, every transition of an attempt, and of
 *	  etcd/answers.c.
 *
 * The transport, the endpoints, the tokens and the clock are replaced by simple
 * ones that the tests control.
 *
 *-------------------------------------------------------------------------
 */
#include "base/clock.h"
#include "etcd/answers.h"
#include "etcd/auth.h"
#include "etcd/call.h"
#include "etcd/client_state.h"
#include "etcd/clusters.h"
#include "etcd/endpoints.h"
#include "etcd/request.h"
#include "unit.h"

#define BYTES(literal)	{literal, sizeof(literal) - 1}

#define TIMEOUT_MS		1000
#define MS				NSEC_PER_MSEC
#define MAX_ENDPOINTS	3
#define MAX_IDS			200000

extern int	__wrap_clock_gettime(clockid_t clock, struct timespec *now);
extern void *__wrap_calloc(size_t n, size_t size);
extern char *__wrap_strdup(const char *s);
extern void *__real_calloc(size_t n, size_t size);
extern char *__real_strdup(const char *s);

/* ---- the clock and memory -------------------------------------------- */

static int64_t now_ns;
static bool memory_is_out;

int
__wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	now->tv_sec = now_ns / (1000 * MS);
	now->tv_nsec = now_ns % (1000 * MS);
	return 0;
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return memory_is_out ? NULL : __real_calloc(n, size);
}

char *
__wrap_strdup(const char *s)
{
	return memory_is_out ? NULL : __real_strdup(s);
}

/* ---- the transport --------------------------------------------------- */

#define MAX_FLIGHTS		256

struct Call
{
	int			endpoint;
	char		token[16];
	uint64_t	ended;
	bool		timed_out;
	bool		got_nothing;
	EtcdOutcome outcome;
	int			code;
	const char *message;
	uint64_t	cluster_id;
};

static uint64_t answering_cluster; /* whose ID is in the answers */
static Call *flights[MAX_FLIGHTS];	/* oldest first */
static int	nflights;
static uint64_t nended;
static bool start_fails;
static bool is_unsent;			/* what ends has not been sent: there is no token */

Call *
etcd_call_send(EtcdClient *client, const EtcdRequest *request, const Destination *destination)
{
	Call	   *call;
	const char *token;

	assert_non_null(request);
	if (start_fails || memory_is_out)
		return NULL;
	call = calloc(1, sizeof(Call));
	call->endpoint = destination->url[1] - '0';
	token = request->kind != ETCD_AUTHENTICATE ? client->endpoints[call->endpoint].token : NULL;
	if (token != NULL)
		strcpy(call->token, token);
	assert_true(nflights < MAX_FLIGHTS);
	flights[nflights++] = call;
	return call;
}

void
etcd_call_release(EtcdClient *client, Call **call)
{
	int			i = 0;

	if (*call == NULL)
		return;
	while (flights[i] != *call)
		assert_true(++i < nflights);
	memmove(&flights[i], &flights[i + 1], (nflights - i - 1) * sizeof(flights[0]));
	nflights--;
	free(*call);
	*call = NULL;
}

uint64_t
etcd_call_ended(const Call *call)
{
	return call->ended;
}

bool
etcd_call_was_connected(const Call *call)
{
	return !is_unsent;
}

bool
etcd_call_got_nothing(const Call *call)
{
	return call->got_nothing;
}

void
etcd_call_time_out(EtcdClient *client, Call *call)
{
	if (call->ended != 0)
		return;
	call->ended = ++nended;
	call->outcome = ETCD_NO_ANSWER;
	call->message = "time is up";
	call->timed_out = true;
}

bool
etcd_call_read_answer(Call *call, EtcdAnswer *answer)
{
	assert_true(call->ended != 0);
	memset(answer, 0, sizeof(*answer));
	answer->outcome = call->outcome;
	answer->code = call->code;
	answer->header.cluster_id = call->cluster_id;
	if (call->message != NULL)
		strcpy(answer->message, call->message);
	return call->timed_out;
}

/* ---- endpoints and tokens -------------------------------------------- */

static const char *const urls[MAX_ENDPOINTS] = {"e0", "e1", "e2"};
static Endpoint endpoints[MAX_ENDPOINTS];
static bool password_is_missing;
static int	nasked[MAX_ENDPOINTS];	/* how often each was asked for a token */

void
etcd_endpoints_use(EtcdClient *client, int endpoint, const char *why)
{
	assert_in_range(endpoint, 0, client->nendpoints - 1);
	assert_true(why[0] != '\0');
	client->endpoint = endpoint;
}

void
etcd_endpoints_leave(EtcdClient *client, int endpoint, const char *why)
{
	if (endpoint == client->endpoint)
		etcd_endpoints_use(client, (endpoint + 1) % client->nendpoints, why);
}

void
etcd_endpoints_probe(EtcdClient *client)
{
}

void
etcd_endpoints_identify(EtcdClient *client)
{
}

bool
etcd_auth_ask(EtcdClient *client, int endpoint, char *why)
{
	assert_non_null(client->settings.username);
	if (password_is_missing)
	{
		etcd_format_message(why, "no password");
		return false;
	}
	nasked[endpoint]++;
	return true;
}

/* ---- the caller ------------------------------------------------------ */

static EtcdClient client;
static struct
{
	int			n;				/* number of answers */
	int64_t		sent_ns;
} ids[MAX_IDS];
static int	nanswers;
static struct
{
	uint64_t	id;
	EtcdOutcome outcome;
	int			code;
	int			endpoint;
	bool		timed_out;
	bool		explained;
	char		message[ETCD_MESSAGE_SIZE];
} last;
static int	nnotices;
static int	nreceived;			/* answers to the client's own requests */
static EtcdAnswer received;

static void
answered(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	assert_in_range(id, 1, MAX_IDS - 1);
	ids[id].n++;
	nanswers++;
	last.id = id;
	last.outcome = answer->outcome;
	last.code = answer->code;
	last.endpoint = answer->endpoint;
	last.timed_out = timing->timed_out;
	last.explained = timing->explained;
	strcpy(last.message, answer->message);
	assert_true(answer->outcome == ETCD_ANSWERED || answer->message[0] != '\0');
}

static void
noticed(void *ctx, const char *why)
{
	assert_true(why[0] != '\0');
	nnotices++;
}

static void
receive(EtcdClient *c, const Report *report)
{
	assert_ptr_equal(c, &client);
	assert_int_equal(report->kind, REPORT_ENDED);
	assert_non_null(report->request->message);
	assert_non_null(report->attempt->url);
	nreceived++;
	received = report->answer;
}

static int
begin(void **state)
{
	memset(&client, 0, sizeof(client));
	memset(endpoints, 0, sizeof(endpoints));
	memset(ids, 0, sizeof(ids));
	memset(nasked, 0, sizeof(nasked));
	for (int i = 0; i < MAX_ENDPOINTS; i++)
		endpoints[i].url = (char *) urls[i];
	client.endpoints = endpoints;
	client.nendpoints = MAX_ENDPOINTS;
	client.callbacks.noticed = noticed;
	client.settings.request_timeout_ms = TIMEOUT_MS;
	client.settings.connect_timeout_ms = TIMEOUT_MS;
	client.settings.username = "user";
	now_ns = 1000 * MS;
	start_fails = is_unsent = memory_is_out = password_is_missing = false;
	nanswers = nnotices = nreceived = nflights = 0;
	answering_cluster = 0;
	return 0;
}

static int
end(void **state)
{
	etcd_request_free(&client);
	return nflights;
}

static void
send_request(uint64_t id, bool reads)
{
	EtcdOp		op = {.kind = reads ? ETCD_OP_RANGE : ETCD_OP_PUT,.key = BYTES("key")};
	EtcdRequest txn = {.kind = ETCD_TXN,.success = &op,.nsuccess = 1};

	ids[id].sent_ns = now_ns;
	etcd_client_send(&client, answered, id, &txn);
}

/* Does the same as etcd_client_process(). */
static void
process(void)
{
	etcd_request_run(&client);
	etcd_answers_deliver(&client);
}

static void
wait_ms(long ms)
{
	now_ns += ms * MS;
	process();
}

/* Ends the oldest call with that endpoint, and processes the result. */
static void
end_flight(int endpoint, EtcdOutcome outcome, int code, const char *message)
{
	for (int i = 0; i < nflights; i++)
	{
		if (flights[i]->endpoint != endpoint || flights[i]->ended != 0)
			continue;
		flights[i]->ended = ++nended;
		flights[i]->outcome = outcome;
		flights[i]->code = code;
		flights[i]->message = message;
		flights[i]->cluster_id = outcome == ETCD_ANSWERED ? answering_cluster : 0;
		process();
		return;
	}
	fail_msg("nothing is under way to endpoint %d", endpoint);
}

static void
answer(int endpoint)
{
	end_flight(endpoint, ETCD_ANSWERED, 0, NULL);
}

static void
fail_at(int endpoint)
{
	end_flight(endpoint, ETCD_NO_ANSWER, 0, "no answer");
}

static void
want_token(int endpoint)
{
	end_flight(endpoint, ETCD_REFUSED, ETCD_CODE_INVALID_ARGUMENT, "etcdserver: user name is empty");
}

static void
give_token(int endpoint, const char *token)
{
	static uint64_t ntokens;

	endpoints[endpoint].token = (char *) token;
	endpoints[endpoint].token_number = ++ntokens;
	etcd_request_send_parked(&client, endpoint);
	process();
}

static void
deny_token(int endpoint)
{
	etcd_request_deny_parked(&client, endpoint, ETCD_REFUSED, ETCD_CODE_INVALID_ARGUMENT, "wrong password");
}

/* Checks the states of the two attempts of the only request. */
static void
assert_states(AttemptState first, AttemptState second)
{
	assert_non_null(client.requests);
	assert_null(client.requests->next);
	assert_int_equal(client.requests->attempts[0].state, first);
	assert_int_equal(client.requests->attempts[1].state, second);
}

/* Checks that there was one answer, of that endpoint, and that nothing is left. */
static void
assert_end(EtcdOutcome outcome, int endpoint)
{
	assert_int_equal(nanswers, 1);
	assert_int_equal(last.id, 1);
	assert_int_equal(last.outcome, outcome);
	assert_int_equal(last.endpoint, endpoint);
	assert_null(client.requests);
	assert_int_equal(nflights, 0);
	assert_true(etcd_request_due_ns(&client) == INT64_MAX);
	wait_ms(5 * TIMEOUT_MS);
	assert_int_equal(nanswers, 1);
}

/* ---- one attempt ----------------------------------------------------- */

static void
test_answered(void **state)
{
	send_request(1, true);
	assert_states(ATTEMPT_SENT, ATTEMPT_NONE);
	assert_int_equal(nanswers, 0);
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
	assert_int_equal(client.endpoint, 0);
}

/* A refusal that does not blame the endpoint is an answer. */
static void
test_refused(void **state)
{
	send_request(1, false);
	end_flight(0, ETCD_REFUSED, ETCD_CODE_PERMISSION_DENIED, "permission denied");
	assert_end(ETCD_REFUSED, 0);
	assert_int_equal(client.endpoint, 0);
}

static void
test_failed(void **state)
{
	send_request(1, true);
	fail_at(0);
	assert_end(ETCD_NO_ANSWER, 0);
	assert_int_equal(client.endpoint, 1);
	assert_int_equal(nnotices, 0);
}

static void
test_timeout(void **state)
{
	send_request(1, false);
	assert_true(etcd_request_due_ns(&client) == now_ns + TIMEOUT_MS * MS);
	wait_ms(TIMEOUT_MS - 1);
	assert_int_equal(nanswers, 0);
	wait_ms(1);
	assert_end(ETCD_NO_ANSWER, 0);
	assert_true(last.timed_out);
}

static void
test_order(void **state)
{
	for (int i = 1; i <= 3; i++)
		send_request(i, false);
	for (int i = 2; i >= 0; i--)
		flights[i]->ended = ++nended;
	assert_true(etcd_request_due_ns(&client) == 0);
	etcd_answers_deliver(&client);
	assert_int_equal(nanswers, 3);
	assert_int_equal(last.id, 1);
}

/* ---- two attempts ---------------------------------------------------- */

static void
begin_second(void)
{
	send_request(1, true);
	assert_true(etcd_request_due_ns(&client) == now_ns + TIMEOUT_MS / 2 * MS);
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_SENT, ATTEMPT_SENT);
	assert_int_equal(nflights, 2);
}

static void
test_second_answers(void **state)
{
	begin_second();
	answer(1);
	assert_end(ETCD_ANSWERED, 1);
	assert_int_equal(client.endpoint, 1);
	assert_int_equal(nnotices, 1);
}

static void
test_first_answers(void **state)
{
	begin_second();
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
	assert_int_equal(client.endpoint, 0);
	assert_int_equal(nnotices, 0);
}

static void
test_first_fails(void **state)
{
	begin_second();
	fail_at(0);
	assert_states(ATTEMPT_FAILED, ATTEMPT_SENT);
	assert_int_equal(client.endpoint, 1);
	assert_int_equal(nnotices, 1);
	answer(1);
	assert_end(ETCD_ANSWERED, 1);
}

static void
test_second_fails(void **state)
{
	begin_second();
	fail_at(1);
	assert_states(ATTEMPT_SENT, ATTEMPT_FAILED);
	assert_int_equal(client.endpoint, 0);
	wait_ms(1);					/* it is not sent a third time */
	assert_int_equal(nflights, 1);
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
}

static void
test_both_fail(void **state)
{
	begin_second();
	fail_at(0);
	fail_at(1);
	assert_end(ETCD_NO_ANSWER, 1);
	assert_int_equal(client.endpoint, 2);
}

static void
test_both_time_out(void **state)
{
	begin_second();
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_FAILED, ATTEMPT_SENT);
	wait_ms(TIMEOUT_MS / 2);
	assert_end(ETCD_NO_ANSWER, 1);
}

static void
test_no_second(void **state)
{
	send_request(1, false);
	wait_ms(TIMEOUT_MS - 1);
	assert_states(ATTEMPT_SENT, ATTEMPT_NONE);
	client.nendpoints = 1;
	send_request(2, true);
	wait_ms(TIMEOUT_MS - 1);
	assert_states(ATTEMPT_SENT, ATTEMPT_NONE);
}

/* ---- tokens ---------------------------------------------------------- */

static void
test_token(void **state)
{
	send_request(1, true);
	want_token(0);
	assert_states(ATTEMPT_PARKED, ATTEMPT_NONE);
	assert_int_equal(nasked[0], 1);
	assert_int_equal(nflights, 0);
	give_token(1, "other");
	assert_states(ATTEMPT_PARKED, ATTEMPT_NONE);
	give_token(0, "token");
	assert_states(ATTEMPT_SENT_AGAIN, ATTEMPT_NONE);
	assert_string_equal(flights[0]->token, "token");
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
}

/* A token is asked for once; then the refusal is the answer. */
static void
test_token_refused(void **state)
{
	send_request(1, true);
	want_token(0);
	give_token(0, "token");
	want_token(0);
	assert_end(ETCD_REFUSED, 0);
	assert_int_equal(nasked[0], 1);
	assert_false(last.explained);
}

static void
test_sent_again_fails(void **state)
{
	send_request(1, false);
	want_token(0);
	give_token(0, "token");
	fail_at(0);
	assert_end(ETCD_NO_ANSWER, 0);
	assert_int_equal(client.endpoint, 1);
}

static void
test_sent_again_overtaken(void **state)
{
	send_request(1, true);
	want_token(0);
	give_token(0, "token");
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_SENT_AGAIN, ATTEMPT_SENT);
	answer(1);
	assert_end(ETCD_ANSWERED, 1);
}

/* The client has a newer token than the request, so it does not ask for one. */
static void
test_newer_token(void **state)
{
	send_request(1, false);
	give_token(0, "token");
	want_token(0);
	assert_states(ATTEMPT_SENT_AGAIN, ATTEMPT_NONE);
	assert_int_equal(nasked[0], 0);
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
}

static void
test_got_nothing(void **state)
{
	give_token(0, "old");
	send_request(1, false);
	flights[0]->got_nothing = true;
	fail_at(0);
	assert_states(ATTEMPT_PARKED, ATTEMPT_NONE);
	give_token(0, "new");
	flights[0]->got_nothing = true;
	fail_at(0);
	assert_end(ETCD_NO_ANSWER, 0);
}

/* Without a user a request does not wait for a token. */
static void
test_no_user(void **state)
{
	client.settings.username = NULL;
	send_request(1, true);
	want_token(0);
	assert_end(ETCD_REFUSED, 0);
}

static void
test_token_denied(void **state)
{
	send_request(1, true);
	want_token(0);
	deny_token(0);
	assert_states(ATTEMPT_DENIED, ATTEMPT_NONE);
	assert_int_equal(nanswers, 0);
	assert_true(etcd_request_due_ns(&client) == 0);
	process();
	assert_string_equal(last.message, "wrong password");
	assert_true(last.explained);
	assert_end(ETCD_REFUSED, 0);
}

static void
test_no_password(void **state)
{
	password_is_missing = true;
	send_request(1, true);
	want_token(0);
	assert_string_equal(last.message, "no password");
	assert_end(ETCD_REFUSED, 0);
	assert_int_equal(client.endpoint, 0);
}

static void
test_no_token_in_time(void **state)
{
	send_request(1, true);
	wait_ms(TIMEOUT_MS / 4);
	want_token(0);
	assert_true(etcd_request_due_ns(&client) == now_ns + TIMEOUT_MS * MS);
	wait_ms(TIMEOUT_MS - 1);
	assert_states(ATTEMPT_PARKED, ATTEMPT_NONE);
	wait_ms(1);
	assert_non_null(strstr(last.message, "no token"));
	assert_true(last.timed_out);
	assert_end(ETCD_NO_ANSWER, 0);
	assert_int_equal(client.endpoint, 1);
}

/* The second attempt, parked late, does not outlast twice the timeout. */
static void
test_latest_end(void **state)
{
	begin_second();
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_FAILED, ATTEMPT_SENT);
	wait_ms(TIMEOUT_MS / 2 - 1);
	want_token(1);
	assert_states(ATTEMPT_FAILED, ATTEMPT_PARKED);
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_FAILED, ATTEMPT_PARKED);
	wait_ms(1);
	assert_end(ETCD_NO_ANSWER, 1);
}

static void
test_parked_overtaken(void **state)
{
	begin_second();
	want_token(0);
	assert_states(ATTEMPT_PARKED, ATTEMPT_SENT);
	answer(1);
	assert_end(ETCD_ANSWERED, 1);
	give_token(0, "token");
	assert_int_equal(nflights, 0);
}

static void
test_denied_overtaken(void **state)
{
	begin_second();
	want_token(0);
	want_token(1);
	assert_states(ATTEMPT_PARKED, ATTEMPT_PARKED);
	deny_token(0);
	deny_token(1);
	assert_states(ATTEMPT_DENIED, ATTEMPT_DENIED);
	process();
	assert_end(ETCD_REFUSED, 0);
}

/* The first attempt fails because there is no token.  The second one decides. */
static void
test_denied_fails(void **state)
{
	begin_second();
	want_token(0);
	etcd_request_deny_parked(&client, 0, ETCD_NO_ANSWER, 0, "no answer");
	process();
	assert_states(ATTEMPT_FAILED, ATTEMPT_SENT);
	assert_int_equal(client.endpoint, 1);
	answer(1);
	assert_end(ETCD_ANSWERED, 1);
}

/* ---- memory ---------------------------------------------------------- */

static void
test_no_memory(void **state)
{
	memory_is_out = true;
	send_request(1, true);
	assert_int_equal(nanswers, 0);
	assert_int_equal(client.nunsent, 1);
	memory_is_out = false;
	process();
	assert_end(ETCD_NO_ANSWER, -1);
}

static void
test_no_memory_for_second(void **state)
{
	send_request(1, true);
	start_fails = true;
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_SENT, ATTEMPT_FAILED);
	start_fails = false;
	wait_ms(1);
	assert_states(ATTEMPT_SENT, ATTEMPT_FAILED);
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
}

static void
test_no_memory_for_parked(void **state)
{
	send_request(1, true);
	want_token(0);
	start_fails = true;
	give_token(0, "token");
	assert_end(ETCD_NO_ANSWER, 0);
}

/* ---- other tests ------------------------------------------------------ */

/* The caller gets no answer to a request of the client's own. */
static void
test_own(void **state)
{
	EtcdRequest members = {.kind = ETCD_LIST_MEMBERS};
	EtcdRequest authenticate = {.kind = ETCD_AUTHENTICATE,.username = "u",.password = "p"};

	assert_non_null(etcd_request_send(&client, 0, &members, receive));
	assert_true(etcd_request_is_asking(&client, 0, receive));
	assert_false(etcd_request_is_asking(&client, 1, receive));
	client.settings.number++;
	assert_false(etcd_request_is_asking(&client, 0, receive));
	answer(0);
	assert_int_equal(nreceived, 1);
	assert_int_equal(received.outcome, ETCD_ANSWERED);

	/* the request gets no token, or none in time */
	assert_non_null(etcd_request_send(&client, 0, &members, receive));
	want_token(0);
	deny_token(0);
	process();
	assert_int_equal(nreceived, 2);
	assert_int_equal(received.outcome, ETCD_REFUSED);
	assert_non_null(etcd_request_send(&client, 0, &members, receive));
	want_token(0);
	wait_ms(TIMEOUT_MS);
	assert_int_equal(nreceived, 3);
	assert_int_equal(received.outcome, ETCD_NO_ANSWER);

	/* a request for a token is sent without a token */
	give_token(0, "token");
	assert_non_null(etcd_request_send(&client, 0, &authenticate, receive));
	assert_string_equal(flights[0]->token, "");
	want_token(0);
	assert_int_equal(nreceived, 4);
	assert_int_equal(received.outcome, ETCD_REFUSED);

	assert_int_equal(nanswers, 0);
	assert_int_equal(client.endpoint, 0);
	assert_null(client.requests);
}

static void
renumber(int nendpoints, int first, int second)
{
	endpoints[0].url = (char *) urls[first];
	endpoints[1].url = (char *) urls[second];
	client.nendpoints = nendpoints;
	client.endpoint = 0;
}

static void
test_renumber(void **state)
{
	begin_second();
	renumber(2, 1, 0);
	answer(1);
	assert_int_equal(last.endpoint, 0);

	/* the endpoint was removed; an attempt that is parked there times out */
	nanswers = 0;
	send_request(1, true);
	want_token(1);
	renumber(1, 2, 2);
	give_token(0, "token");
	assert_states(ATTEMPT_PARKED, ATTEMPT_NONE);
	wait_ms(TIMEOUT_MS);
	assert_end(ETCD_NO_ANSWER, -1);
}

static void
test_hurry(void **state)
{
	send_request(1, false);
	etcd_request_hurry(&client, now_ns + 10 * MS);
	etcd_request_hurry(&client, now_ns + 20 * MS);
	assert_true(etcd_request_due_ns(&client) == now_ns + 10 * MS);
	wait_ms(10);
	assert_end(ETCD_NO_ANSWER, 0);
}

/* Executes a random event. */
static void
do_something(uint64_t *next_id)
{
	int			endpoint = rand() % MAX_ENDPOINTS;

	switch (rand() % 12)
	{
		case 0:
		case 1:
			memory_is_out = rand() % 20 == 0;
			if (nflights < MAX_FLIGHTS / 2)
				send_request((*next_id)++, rand() % 4 > 0);
			memory_is_out = false;
			break;
		case 2:
			give_token(endpoint, rand() % 4 > 0 ? "token" : NULL);
			break;
		case 3:
			if (rand() % 4 == 0)
				etcd_request_deny_parked(&client, endpoint, ETCD_NO_ANSWER, 0, "no answer");
			else
				deny_token(endpoint);
			break;
		case 4:
			client.settings.username = rand() % 4 > 0 ? "user" : NULL;
			password_is_missing = rand() % 4 == 0;
			start_fails = rand() % 8 == 0;
			break;
		case 5:
			renumber(1 + rand() % MAX_ENDPOINTS, endpoint, (endpoint + 1 + rand() % 2) % MAX_ENDPOINTS);
			break;
		default:
			for (int i = 0; i < nflights; i++)
			{
				static const struct
				{
					EtcdOutcome outcome;
					int			code;
					const char *message;
				}			ends[] = {
					{ETCD_ANSWERED, 0, NULL},
					{ETCD_NO_ANSWER, 0, "no answer"},
					{ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED, "invalid auth token"},
					{ETCD_REFUSED, ETCD_CODE_UNAVAILABLE, "no leader"},
					{ETCD_REFUSED, ETCD_CODE_PERMISSION_DENIED, "permission denied"},
				};
				int			which = rand() % (3 * lengthof(ends));

				if (flights[i]->ended != 0 || which >= (int) lengthof(ends))
					continue;
				flights[i]->ended = ++nended;
				flights[i]->outcome = ends[which].outcome;
				flights[i]->code = ends[which].code;
				flights[i]->message = ends[which].message;
				flights[i]->got_nothing = which == 1 && rand() % 2;
			}
	}
}

/*
 * Random events.  Each request gets exactly one answer, not later than twice the
 * timeout.
 */
static void
test_random(void **state)
{
	uint64_t	next_id = 1;
	uint64_t	oldest = 1;

	srand(1);
	for (int step = 0; step < 200000 && next_id < MAX_IDS; step++)
	{
		int64_t		due_ns = etcd_request_due_ns(&client);

		do_something(&next_id);
		if (rand() % 2 == 0 && due_ns != INT64_MAX && due_ns > now_ns)
			now_ns = due_ns;
		else if (rand() % 4 == 0)
			now_ns += rand() % 50 * MS;
		process();

		while (oldest < next_id && ids[oldest].n > 0)
			oldest++;
		for (uint64_t id = oldest; id < next_id; id++)
		{
			assert_in_range(ids[id].n, 0, 1);
			if (ids[id].n == 0 && now_ns >= ids[id].sent_ns + 2 * TIMEOUT_MS * MS)
				fail_msg("step %d: request %d is not answered", step, (int) id);
		}
	}
	wait_ms(2 * TIMEOUT_MS);
	wait_ms(2 * TIMEOUT_MS);
	assert_null(client.requests);
	assert_int_equal(nflights, 0);
	assert_true(next_id > 10000);
	for (uint64_t id = 1; id < next_id; id++)
		assert_int_equal(ids[id].n, 1);
}

/* ---- clusters -------------------------------------------------------- */

/* Nothing is sent while the endpoints are asked for their clusters. */
static void
test_held(void **state)
{
	endpoints[1].is_asked = endpoints[2].is_asked = true;
	send_request(1, true);
	assert_states(ATTEMPT_NONE, ATTEMPT_NONE);
	wait_ms(TIMEOUT_MS / 2);
	assert_int_equal(nflights, 0);
	assert_true(etcd_request_due_ns(&client) == now_ns + TIMEOUT_MS / 2 * MS);

	/* two of three are known: it goes to the endpoint in use now */
	endpoints[0].state.cluster_id = endpoints[2].state.cluster_id = 7;
	client.endpoint = 2;
	assert_int_equal(etcd_request_due_ns(&client), 0);
	process();
	assert_states(ATTEMPT_SENT, ATTEMPT_NONE);
	answering_cluster = 7;
	answer(2);
	assert_end(ETCD_ANSWERED, 2);
}

/* It waits for its time-out at most, also without memory, and ends once. */
static void
test_held_for_long(void **state)
{
	for (int is_out = 0; is_out < 2; is_out++)
	{
		(void) begin(state);
		endpoints[1].is_asked = true;
		send_request(1, false);
		wait_ms(TIMEOUT_MS - 1);
		assert_int_equal(nflights, 0);
		memory_is_out = is_out;
		wait_ms(1);
		memory_is_out = false;
		if (!is_out)
		{
			assert_int_equal(nflights, 1);
			wait_ms(TIMEOUT_MS);
		}
		assert_int_equal(nanswers, 1);
		assert_int_equal(last.outcome, ETCD_NO_ANSWER);
		assert_int_equal(nflights, 0);
		assert_null(client.requests);
	}
}

/* An answer of a cluster that may not be used is a failure of its endpoint. */
static void
test_foreign(void **state)
{
	client.kept_cluster_id = 7;
	answering_cluster = 8;
	send_request(1, true);
	answer(0);
	assert_end(ETCD_NO_ANSWER, 0);
	assert_non_null(strstr(last.message, "is of cluster 8"));
	assert_int_equal(client.endpoint, 1);
	assert_true(etcd_client_foreign_endpoints(&client) == 1);
}

/* What such an endpoint refuses is no refusal. */
static void
test_foreign_refusal(void **state)
{
	client.kept_cluster_id = 7;
	endpoints[0].state.cluster_id = 8;
	send_request(1, false);
	end_flight(0, ETCD_REFUSED, ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found");
	assert_end(ETCD_NO_ANSWER, 0);
}

/* Of leases only an endpoint knows that has told its cluster; other refusals count. */
static void
test_unknown_lease(void **state)
{
	static const struct
	{
		uint64_t	told;
		int			code;
		const char *message;
		EtcdOutcome outcome;
	}			cases[] = {
		{0, ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found", ETCD_NO_ANSWER},
		{7, ETCD_CODE_NOT_FOUND, "etcdserver: requested lease not found", ETCD_REFUSED},
		{0, ETCD_CODE_PERMISSION_DENIED, "etcdserver: permission denied", ETCD_REFUSED},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		(void) begin(state);
		client.kept_cluster_id = 7;
		endpoints[0].state.cluster_id = cases[i].told;
		send_request(1, false);
		end_flight(0, ETCD_REFUSED, cases[i].code, cases[i].message);
		assert_end(cases[i].outcome, 0);
	}
}

/* The second endpoint is not a foreign one; if there is no other, there is none. */
static void
test_second_is_not_foreign(void **state)
{
	client.kept_cluster_id = 7;
	endpoints[1].state.cluster_id = 8;
	send_request(1, true);
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_SENT, ATTEMPT_SENT);
	assert_int_equal(flights[1]->endpoint, 2);
	answering_cluster = 7;
	answer(0);
	assert_end(ETCD_ANSWERED, 0);

	nanswers = 0;
	endpoints[2].state.cluster_id = 9;
	send_request(1, true);
	wait_ms(TIMEOUT_MS / 2);
	assert_states(ATTEMPT_SENT, ATTEMPT_NONE);
	answer(0);
	assert_end(ETCD_ANSWERED, 0);
}

/* An endpoint is down when it has failed twice, some seconds apart; it is up when it answers. */
static void
test_down(void **state)
{
	const EtcdEndpointState *e = &endpoints[0].state;

	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(e->down, i == 2);
		assert_int_equal(e->error[0] != '\0', i > 0);
		client.endpoint = 0;
		send_request(1, false);
		fail_at(0);
		/* the second one comes at once */
		now_ns += i * 4000 * MS;
		if (i == 0)
		{
			client.endpoint = 0;
			send_request(1, false);
			fail_at(0);
			assert_false(e->down);
			now_ns += 4000 * MS;
		}
	}
	client.endpoint = 0;
	send_request(1, false);
	end_flight(0, ETCD_REFUSED, ETCD_CODE_PERMISSION_DENIED, "permission denied");
	assert_false(e->down);
	assert_int_equal(e->error[0], 0);
}

/* An endpoint that fails is not well because there is no token, and nothing is sent. */
static void
test_down_without_token(void **state)
{
	send_request(1, false);
	fail_at(0);
	client.endpoint = 0;
	password_is_missing = is_unsent = true;
	send_request(2, false);
	end_flight(0, ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED, "there is no token yet");
	assert_int_equal(last.id, 2);
	assert_int_equal(last.outcome, ETCD_REFUSED);
	assert_true(endpoints[0].state.error[0] != '\0');

	/* a refusal that etcd has sent is an answer */
	is_unsent = false;
	send_request(3, false);
	end_flight(0, ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED, "etcdserver: invalid auth token");
	assert_true(endpoints[0].state.error[0] == '\0');
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_answered),
		TEST(test_refused),
		TEST(test_failed),
		TEST(test_timeout),
		TEST(test_order),
		TEST(test_second_answers),
		TEST(test_first_answers),
		TEST(test_first_fails),
		TEST(test_second_fails),
		TEST(test_both_fail),
		TEST(test_both_time_out),
		TEST(test_no_second),
		TEST(test_token),
		TEST(test_token_refused),
		TEST(test_sent_again_fails),
		TEST(test_sent_again_overtaken),
		TEST(test_newer_token),
		TEST(test_got_nothing),
		TEST(test_no_user),
		TEST(test_token_denied),
		TEST(test_no_password),
		TEST(test_no_token_in_time),
		TEST(test_latest_end),
		TEST(test_parked_overtaken),
		TEST(test_denied_overtaken),
		TEST(test_denied_fails),
		TEST(test_no_memory),
		TEST(test_no_memory_for_second),
		TEST(test_no_memory_for_parked),
		TEST(test_own),
		TEST(test_renumber),
		TEST(test_hurry),
		TEST(test_random),
		TEST(test_held),
		TEST(test_held_for_long),
		TEST(test_foreign),
		TEST(test_foreign_refusal),
		TEST(test_unknown_lease),
		TEST(test_second_is_not_foreign),
		TEST(test_down),
		TEST(test_down_without_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
