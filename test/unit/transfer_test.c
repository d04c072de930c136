/*-------------------------------------------------------------------------
 *
 * transfer_test.c
 *	  Unit tests of the hand-over to a named candidate: one instance, the keys
 *	  of others, and an etcd that answers when the test says so.
 *
 *-------------------------------------------------------------------------
 */
#include "small_etcd.h"
#include "unit.h"

#define TTL_S		6
#define DELAY		(31 * SECOND)	/* preferred_delay, not a multiple of SURVEYS */
#define SURVEYS		(TTL_S * SECOND / 3)	/* time between two surveys */
#define MAX_BETWEEN	120			/* limit of keys between the own key and the target's */
#define MAX_SENT	32
#define TICKET		5

static int64_t now;

/* ---- the instance, n1 ------------------------------------------------------------ */

typedef struct Sent
{
	uint64_t	id;				/* 0: free */
	EtcdRequest request;
	bool		led;			/* the instance led when it was sent */
} Sent;

static ElectionCore *core;
static ElectionConfig config;
static ElectionView view;
static Sent sent[MAX_SENT];
static int	nsurveys;
static int	ntransfers;
static int	nunknown;			/* events that name no leader */
static char events[4096];
static EtcdWatch watches[8];
static char watched[8][2][ELECTION_KEY_SIZE + 1];	/* key, range_end */
static int	nwatches;
static bool is_watch_silent;
static bool is_remembered;
static ElectionMemory remembered;
static ElectionHistory history;
static int	nreplies;
static ElectionReply replied;
static uint64_t next_random;

static bool
leads(void)
{
	return view.deadline_ns > now;
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Sent	   *s = sent;

	while (s->id != 0)
		assert_true(++s < sent + MAX_SENT);
	s->id = id;
	s->led = leads();
	s->request = keep_request(request);
	assert_true(request->nsuccess <= MAX_BETWEEN + 8);
	nsurveys += strcmp(describe(request), "survey") == 0;
	ntransfers += strcmp(describe(request), "transfer") == 0;
}

static void
port_watch(void *ctx, const EtcdWatch *list, int n)
{
	assert_true(n <= 8);
	nwatches = n;
	for (int i = 0; i < n; i++)
	{
		watches[i] = list[i];
		memcpy(watched[i][0], list[i].key.data, list[i].key.len);
		watches[i].key.data = watched[i][0];
		if (list[i].range_end.len > 0)
			memcpy(watched[i][1], list[i].range_end.data, list[i].range_end.len);
		watches[i].range_end.data = watched[i][1];
	}
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	fail();
}

static void
port_publish(void *ctx, int slot, const ElectionView *published)
{
	assert_int_equal(slot, 0);
	view = *published;
	/* leadership that has lapsed is withdrawn, and never shown */
	assert_true(view.deadline_ns == 0 || view.deadline_ns > now);
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
	const char *reason = election_reason_name(event->reason);
	size_t		len = strlen(events);

	nunknown += event->kind == ELECTION_EVENT_LEADER && event->leader == NULL;
	if (event->kind != ELECTION_EVENT_ELECTED && event->kind != ELECTION_EVENT_UNELECTED &&
		event->kind != ELECTION_EVENT_DRAIN_CANCELLED)
		return;
	snprintf(events + len, sizeof(events) - len, "%s%s(%s)", len > 0 ? " " : "",
			 election_event_name(event->kind), event->leader ? event->leader : reason ? reason : "");
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply reply)
{
	if (ticket != TICKET)
		return;					/* the reply to a resignation */
	nreplies++;
	replied = reply;
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	is_remembered = memory != NULL;
	if (memory)
		memcpy(&remembered, memory, election_memory_size(memory));
}

static void
port_remember_history(void *ctx, const ElectionHistory *known)
{
	history = *known;
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
}

/* Makes different ids of leases, and no jitter. */
static uint64_t
port_random(void *ctx)
{
	return next_random += 0x1000;
}

/* ---- etcd ---------------------------------------------------------------------------- */

static const Version *
key_of(const char *name)
{
	return store_find(bytes(name));
}

static void
execute(const EtcdRequest *request, EtcdAnswer *answer)
{
	small_etcd_execute(now, request, answer);
}

/* Writes of other instances or programs. */
static void
put(const char *key, const char *value)
{
	put_key(bytes(key), bytes(value), 77);
}

static void
delete(const char *key)
{
	delete_key(key_of(key));
}

/* ---- watches and answers ---------------------------------------------------------------- */

/* Sends a watch its events of the next revision; false if there are none. */
static bool
tell_watch(EtcdWatch *watch)
{
	EtcdWatchEvent list[MAX_BETWEEN + 8];
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .watch_id = watch->watch_id, .events = list};
	int64_t		revision = 0;

	for (int i = store_first_version(watch->start_revision); i < store_versions(); i++)
	{
		const Version *version = store_version(i);

		if ((revision != 0 && version->revision != revision) ||
			!bytes_in_range(store_key(version->key)->name, watch->key, watch->range_end))
			continue;
		revision = version->revision;
		list[frame.nevents++] = event_of(version, version->deleted, revision);
	}
	if (revision == 0)
		return false;
	watch->start_revision = revision + 1;
	frame.header = etcd_header();
	election_watched(core, now, &frame);
	return true;
}

static void
tell(void)
{
	for (int i = 0; i < nwatches && !is_watch_silent; i++)
	{
		if (tell_watch(&watches[i]))
			i = -1;				/* there may be a new stream now */
	}
}

/* The oldest request of that kind (NULL: of any kind) that is not answered. */
static Sent *
next_sent(const char *kind)
{
	Sent	   *oldest = NULL;

	for (Sent *s = sent; s < sent + MAX_SENT; s++)
	{
		if (s->id != 0 && (oldest == NULL || s->id < oldest->id) &&
			(kind == NULL || strcmp(describe(&s->request), kind) == 0))
			oldest = s;
	}
	return oldest;
}

static void
answer(Sent *s)
{
	EtcdAnswer	a;
	uint64_t	id = s->id;

	execute(&s->request, &a);
	s->id = 0;
	election_receive(core, now, id, &a);
}

/* A request that was executed, and whose answer arrives later. */
typedef struct Executed
{
	uint64_t	id;
	EtcdAnswer	answer;
} Executed;

static void
execute_only(Sent *s, Executed *e)
{
	e->id = s->id;
	execute(&s->request, &e->answer);
	s->id = 0;
}

/* Lets a request time out.  It may have been executed. */
static void
give_up(Sent *s, bool executed)
{
	EtcdAnswer	a;
	uint64_t	id = s->id;

	if (executed)
		execute(&s->request, &a);
	s->id = 0;
	a = (EtcdAnswer) {.outcome = ETCD_NO_ANSWER, .message = "gone"};
	election_receive(core, now, id, &a);
}

/* etcd answers, and refuses a request. */
static void
refuse(Sent *s)
{
	EtcdAnswer	a = {.outcome = ETCD_REFUSED, .code = ETCD_CODE_RESOURCE_EXHAUSTED,
		.message = "received message larger than max"};
	uint64_t	id = s->id;

	s->id = 0;
	election_receive(core, now, id, &a);
}

/* Answers all requests up to one of that kind, and returns that. */
static Sent *
answer_until(const char *kind)
{
	for (;;)
	{
		Sent	   *s = next_sent(NULL);

		if (s == NULL || (kind && strcmp(describe(&s->request), kind) == 0))
			return s;
		answer(s);
		tell();
	}
}

static void
answer_all(void)
{
	tell();
	(void) answer_until(NULL);
}

/* Lets time pass until a request of that kind is sent, or until `end`. */
static Sent *
run_until(const char *kind, int64_t end)
{
	for (;;)
	{
		Sent	   *s;

		tell();
		s = answer_until(kind);
		if (s)
			return s;
		if (election_wakeup_ns(core) > end)
			break;
		if (election_wakeup_ns(core) > now)
			now = election_wakeup_ns(core);
		election_tick(core, now);
	}
	now = end;
	election_tick(core, now);
	return kind ? answer_until(kind) : NULL;
}

static void
run(int64_t duration_ns)
{
	(void) run_until(NULL, now + duration_ns);
	answer_all();
}

/* ---- setting up -------------------------------------------------------------------------- */

static const ElectionPort port = {
	port_send, port_watch, port_change_endpoint, port_publish, port_announce,
	port_reply, port_remember, port_remember_history, NULL, port_report_duplicate_name, NULL, port_random, NULL
};

static int
set_up(void **state)
{
	small_etcd_begin(7, 3, 100);
	memset(&config, 0, sizeof(config));
	strcpy(config.node_name, "n1");
	strcpy(config.elections[0], "e");
	config.nelections = 1;
	config.nendpoints = 1;
	config.ttl_s = TTL_S;
	config.safety_margin_ms = -1;
	config.eligible = true;
	config.preferred_delay_ms = DELAY / MS;
	memset(&view, 0, sizeof(view));
	memset(sent, 0, sizeof(sent));
	nsurveys = ntransfers = nreplies = nwatches = nunknown = 0;
	is_watch_silent = false;
	events[0] = '\0';
	next_random = 0;
	now = 1000 * SECOND;
	grant_lease(now, 77, 1000);
	core = election_create(&port, 1);
	return 0;
}

static int
tear_down(void **state)
{
	election_free(core);
	small_etcd_end();
	return 0;
}

/* Makes n1 lead, without requests under way.  n2 and n3 wait in this order. */
static void
begin_leading(void)
{
	election_configure(core, now, &config);
	answer_all();
	assert_true(leads());
	events[0] = '\0';
	put("e/b2.pg", "n2");
	put("e/c3.pg", "n3");
	answer_all();
}

static void
transfer(const char *node)
{
	nreplies = 0;
	assert_true(election_transfer(core, now, 0, node, now + 4 * SECOND, 0, TICKET));
}

static void
assert_reply(ElectionReply reply)
{
	assert_int_equal(nreplies, 1);
	assert_int_equal(replied, reply);
}

/* Checks that the command is refused, and that nothing has changed. */
static void
assert_refused(const char *node, ElectionReply reply)
{
	int64_t		revision = store_revision();
	int64_t		token = view.token;
	int			ntransfers_before = ntransfers;

	transfer(node);
	answer_all();
	assert_reply(reply);
	assert_true(leads());
	assert_int_equal(view.token, token);
	assert_string_equal(events, "");
	assert_int_equal(store_revision(), revision);
	assert_int_equal(ntransfers, ntransfers_before);
}

/*
 * A renewal falls between the hand-over and the new entry.  It reads the old key, which
 * is gone, by its name.  That shows no leader, but it does not show that there is none.
 */
static void
test_renewal_before_entry(void **state)
{
	begin_leading();
	now = election_wakeup_ns(core) - MS;
	transfer("n3");
	answer_all();
	assert_string_equal(events, "unelected(transferred)");
	now += MS;
	election_tick(core, now);
	assert_non_null(answer_until("read"));
	run(SECOND);
	assert_true(view.has_leader);
	assert_string_equal(view.leader, "n3");
	assert_int_equal(nunknown, 0);
}

/* ---- tests: refusals ------------------------------------------------------------------------ */

static void
test_not_leader(void **state)
{
	put("e/a1.pg", "n2");
	election_configure(core, now, &config);
	answer_all();
	assert_int_equal(view.state, ELECTION_WAITING);
	put("e/c3.pg", "n3");
	transfer("n3");
	assert_reply(ELECTION_NOT_LEADER);
	/* the same with itself as the target */
	transfer("n1");
	assert_reply(ELECTION_NOT_LEADER);
	assert_null(next_sent(NULL));
	assert_int_equal(nsurveys, 0);
}

static void
test_names(void **state)
{
	begin_leading();
	assert_refused("n9", ELECTION_NO_SUCH_CANDIDATE);
	assert_refused("n", ELECTION_NO_SUCH_CANDIDATE);
	put("e/d4.pg", "n2");
	assert_refused("n2", ELECTION_AMBIGUOUS_CANDIDATE);
	delete("e/d4.pg");
	transfer("n2");
	answer_all();
	assert_string_equal(events, "unelected(transferred)");
}

/* A key between this instance and the target has another form than ours. */
static void
test_foreign_between(void **state)
{
	static const char *const foreign[] = {
		"e/d4", "e/.pg", "e/D4.pg", "e/g4.pg", "e/d4.pgx", "e/d4.pq", "e/0123456789abcdef0.pg", "e/d/4.pg"
	};

	begin_leading();
	for (size_t i = 0; i < lengthof(foreign); i++)
	{
		put(foreign[i], "go");
		put("e/e5.pg", "n5");
		assert_refused("n5", ELECTION_FOREIGN_CANDIDATE);
		delete(foreign[i]);
		delete("e/e5.pg");
	}
	/* such a key behind the target is not touched */
	put("e/d4", "go");
	transfer("n3");
	answer_all();
	assert_string_equal(events, "unelected(transferred)");
	assert_non_null(key_of("e/d4"));
	assert_null(key_of("e/b2.pg"));
}

static void
put_between(int n)
{
	char		key[32];

	for (int i = 0; i < n; i++)
	{
		snprintf(key, sizeof(key), "e/f%03x.pg", i);
		put(key, "n");
	}
}

static void
test_too_many_between(void **state)
{
	begin_leading();
	put_between(MAX_BETWEEN - 1);	/* in addition to n2 and n3 */
	put("e/e5.pg", "n5");
	assert_refused("n5", ELECTION_TOO_MANY_CANDIDATES);
	delete("e/b2.pg");
	transfer("n5");
	answer_all();
	assert_string_equal(events, "unelected(transferred)");
	assert_string_equal(name_of(key_at(0)), "e/e5.pg");
}

static void
test_to_itself(void **state)
{
	begin_leading();
	transfer("n1");
	assert_reply(ELECTION_DONE);
	assert_true(leads());
	assert_string_equal(events, "");
	assert_null(next_sent(NULL));
}

/* The second command takes the place of the first one, until the hand-over has been sent. */
static void
test_twice(void **state)
{
	begin_leading();
	transfer("n2");
	assert_true(election_transfer(core, now, 0, "n3", now + SECOND, 0, TICKET));
	assert_reply(ELECTION_CANCELLED);
	nreplies = 0;
	assert_non_null(answer_until("transfer"));
	assert_false(election_transfer(core, now, 0, "n2", now + SECOND, 0, TICKET));
	answer_all();
	assert_false(election_transfer(core, now, 0, "n2", now + SECOND, 0, TICKET));
	put("e/c3.pg", "n3");
	run(SECOND);
	assert_reply(ELECTION_DONE);
	transfer("n2");
	assert_reply(ELECTION_NOT_LEADER);
}

/* ---- tests: the txn --------------------------------------------------------------------------- */

static void
assert_bytes(EtcdBytes b, const char *expected)
{
	assert_int_equal(b.len, strlen(expected));
	assert_memory_equal(b.data, expected, b.len);
}

static void
assert_survey(const EtcdOp *op, int64_t own_revision)
{
	assert_int_equal(op->kind, ETCD_OP_RANGE);
	assert_bytes(op->key, "e/");
	assert_bytes(op->range_end, "e0");
	assert_int_equal(op->sort, ETCD_SORT_FIRST_CREATED);
	assert_int_equal(op->limit, 1000);
	assert_int_equal(op->min_create_revision, own_revision);
	assert_int_equal(op->revision, 0);
}

static void
assert_compare(const EtcdCompare *compare, const char *key, EtcdCompareTarget target)
{
	const Version *k = key_of(key);

	assert_bytes(compare->key, key);
	assert_int_equal(compare->target, target);
	assert_int_equal(compare->value, target == ETCD_COMPARE_CREATE_REVISION ?
					 k->create_revision : k->revision);
}

static void
assert_delete(const EtcdOp *op, const char *key)
{
	assert_int_equal(op->kind, ETCD_OP_DELETE);
	assert_bytes(op->key, key);
	assert_int_equal(op->range_end.len, 0);
}

static void
test_txn(void **state)
{
	char		own[ELECTION_KEY_SIZE];
	int64_t		own_revision;
	Sent	   *s;

	begin_leading();
	strcpy(own, view.key);
	own_revision = view.token;
	put("e/d4.pg", "n4");
	put("e/c3.pg", "n3");		/* the second write of this key */
	transfer("n3");
	s = answer_until("survey");
	assert_int_equal(s->request.ncompares, 0);
	assert_int_equal(s->request.nsuccess, 1);
	assert_survey(&s->request.success[0], own_revision);
	/* values of other programs may be large: that does not blame the endpoint */
	assert_true(s->request.is_large);
	assert_true(leads());
	s = answer_until("transfer");
	assert_true(s->request.is_large);

	/* ORDER, MEMORY */
	assert_false(s->led);
	assert_string_equal(events, "unelected(transferred)");
	assert_false(is_remembered);

	assert_int_equal(s->request.ncompares, 4);
	assert_compare(&s->request.compares[0], own, ETCD_COMPARE_CREATE_REVISION);
	assert_compare(&s->request.compares[1], "e/b2.pg", ETCD_COMPARE_CREATE_REVISION);
	assert_compare(&s->request.compares[2], "e/c3.pg", ETCD_COMPARE_CREATE_REVISION);
	assert_compare(&s->request.compares[3], "e/c3.pg", ETCD_COMPARE_MOD_REVISION);
	assert_int_equal(s->request.nsuccess, 3);
	assert_delete(&s->request.success[0], own);
	assert_delete(&s->request.success[1], "e/b2.pg");
	assert_int_equal(s->request.success[2].kind, ETCD_OP_PUT);
	assert_bytes(s->request.success[2].key, "e/c3.pg");
	assert_bytes(s->request.success[2].value, "n3");
	assert_int_equal(s->request.success[2].lease, key_of("e/c3.pg")->lease);
	assert_int_equal(s->request.nfailure, 1);
	assert_survey(&s->request.failure[0], own_revision);

	/* the answer shows that the own key is gone; no read is needed */
	answer(s);
	assert_int_equal(view.state, ELECTION_JOINING);

	/* n1 queues again, behind n4 */
	run(SECOND);
	assert_string_equal(value_of(key_at(0)), "n3");
	assert_string_equal(value_of(key_at(1)), "n4");
	assert_string_equal(value_of(key_at(2)), "n1");
	assert_int_equal(count_keys(), 3);
	assert_int_equal(view.state, ELECTION_WAITING);
	assert_true(is_remembered);
}

/*
 * The target is a candidate of another program.  The txn does not write its key,
 * and the transfer does not wait for a receipt.
 */
static void
test_txn_to_foreign(void **state)
{
	Sent	   *s;

	begin_leading();
	delete("e/b2.pg");
	put("e/d4", "go");
	transfer("go");
	s = answer_until("transfer");
	assert_int_equal(s->request.ncompares, 3);
	assert_compare(&s->request.compares[2], "e/d4", ETCD_COMPARE_CREATE_REVISION);
	assert_int_equal(s->request.nsuccess, 2);
	assert_delete(&s->request.success[1], "e/c3.pg");
	run(SECOND);
	assert_reply(ELECTION_DONE);
	assert_int_equal(key_of("e/d4")->number, 1);
}

/* ---- tests: the end of a transfer ---------------------------------------------------------------- */

/* The reply is "done" when the target has written its key after the txn. */
static void
receipt(bool silent)
{
	begin_leading();
	is_watch_silent = silent;
	transfer("n3");
	answer_all();
	run(SECOND);
	assert_string_equal(view.leader, "n3");
	assert_int_equal(key_of("e/c3.pg")->number, 2);
	assert_int_equal(nreplies, 0);
	put("e/c3.pg", "n3");
	if (silent)
		run(SURVEYS);			/* the next renewal sends a read */
	else
		tell();
	assert_reply(ELECTION_DONE);
	assert_string_equal(events, "unelected(transferred)");
}

static void
test_receipt(void **state)
{
	receipt(false);
}

static void
test_receipt_by_read(void **state)
{
	receipt(true);
}

/* The target hangs.  Its key exists, but is not written. */
static void
test_deadline(void **state)
{
	int64_t		start;

	begin_leading();
	start = now;
	transfer("n3");
	run_until(NULL, start + 4 * SECOND - MS);
	assert_int_equal(nreplies, 0);
	run(2 * MS);
	assert_reply(ELECTION_FAILED);
	assert_int_equal(view.state, ELECTION_WAITING);
	/* a later write of the key causes no second reply */
	put("e/c3.pg", "n3");
	run(SECOND);
	assert_int_equal(nreplies, 1);
}

/* The target's lease ends after the txn, and the next candidate leads. */
static void
test_target_dies(void **state)
{
	begin_leading();
	put("e/d4.pg", "n4");
	transfer("n3");
	answer_all();
	delete("e/c3.pg");
	run(SECOND);
	assert_reply(ELECTION_FAILED);
	assert_string_equal(view.leader, "n4");
}

/* The target is gone before the txn is executed.  This instance leads on. */
static void
test_target_gone(void **state)
{
	int64_t		token;

	begin_leading();
	token = view.token;
	transfer("n3");
	assert_non_null(answer_until("transfer"));
	delete("e/c3.pg");
	assert_false(leads());
	answer_all();
	assert_reply(ELECTION_FAILED);
	assert_true(leads());
	assert_int_equal(view.token, token);
	assert_non_null(key_of("e/b2.pg"));
	assert_int_equal(ntransfers, 1);
	assert_string_equal(events, "unelected(transferred) elected(n1)");
	transfer("n2");				/* another command is possible */
	answer_all();
	assert_string_equal(name_of(key_at(0)), "e/b2.pg");
}

/* Another compare fails.  The next txn has the queue as read by the failed one. */
static void
test_queue_changes(void **state)
{
	Sent	   *s;

	begin_leading();
	transfer("n3");
	assert_non_null(answer_until("transfer"));
	delete("e/b2.pg");
	put("e/c3.pg", "n3");
	put("e/b2.pg", "n2");		/* behind the target */
	answer(next_sent("transfer"));
	s = answer_until("transfer");
	assert_false(leads());
	assert_int_equal(s->request.ncompares, 3);
	assert_compare(&s->request.compares[1], "e/c3.pg", ETCD_COMPARE_CREATE_REVISION);
	assert_compare(&s->request.compares[2], "e/c3.pg", ETCD_COMPARE_MOD_REVISION);
	assert_int_equal(s->request.nsuccess, 2);
	answer_all();
	assert_non_null(key_of("e/b2.pg"));
	assert_int_equal(key_of("e/c3.pg")->number, 3);
	run(SECOND);
	assert_int_equal(nreplies, 0);
	put("e/c3.pg", "n3");
	answer_all();
	assert_reply(ELECTION_DONE);
}

/* The txn is executed, and its answer is lost. */
static void
test_answer_lost(void **state)
{
	begin_leading();
	transfer("n3");
	give_up(answer_until("transfer"), true);
	run(SECOND);
	assert_int_equal(nreplies, 0);
	assert_int_equal(ntransfers, 1);
	put("e/c3.pg", "n3");
	answer_all();
	assert_reply(ELECTION_DONE);
	assert_string_equal(events, "unelected(transferred)");
	assert_int_equal(view.state, ELECTION_WAITING);
}

/* A read shows the own key as the first, before the txn is executed. */
static void
test_read_before(void **state)
{
	begin_leading();
	transfer("n3");
	assert_non_null(answer_until("transfer"));
	assert_true(election_verify(core, now, 0, TICKET + 1));
	answer(next_sent("read"));
	assert_string_equal(view.leader, "n1");
	assert_false(leads());
	answer_all();
	run(SECOND);
	assert_int_equal(nreplies, 0);
	put("e/c3.pg", "n3");
	answer_all();
	assert_reply(ELECTION_DONE);
	assert_string_equal(events, "unelected(transferred)");
}

/* The answer comes when this instance has its next key.  It does not concern that key. */
static void
test_answer_late(void **state)
{
	char		own[ELECTION_KEY_SIZE];
	int64_t		create_revision;
	EtcdAnswer	late;
	uint64_t	id;
	Sent	   *s;

	begin_leading();
	transfer("n3");
	s = answer_until("transfer");
	id = s->id;
	execute(&s->request, &late);
	s->id = 0;
	run(SURVEYS);				/* a renewal sends a read */
	assert_int_equal(view.state, ELECTION_WAITING);
	strcpy(own, view.key);
	create_revision = view.create_revision;
	election_receive(core, now, id, &late);
	run(SECOND);
	assert_int_equal(view.state, ELECTION_WAITING);
	assert_int_equal(view.create_revision, create_revision);
	assert_int_equal(key_of(own)->create_revision, create_revision);
	put("e/c3.pg", "n3");
	answer_all();
	assert_reply(ELECTION_DONE);
}

/* The txn times out again and again.  The own key exists, but is not used. */
static void
test_in_doubt(void **state)
{
	char		own[ELECTION_KEY_SIZE];
	int64_t		end = now + 4 * SECOND;
	Sent	   *s;

	begin_leading();
	strcpy(own, view.key);
	transfer("n3");
	while ((s = run_until("transfer", end)) != NULL)
	{
		assert_non_null(key_of(own));
		assert_false(leads());
		assert_false(is_remembered);
		assert_int_equal(nreplies, 0);
		give_up(s, false);
	}
	assert_true(ntransfers > 3);
	assert_reply(ELECTION_FAILED);
	/* a deletion ends the doubt */
	answer_all();
	assert_null(key_of(own));
	assert_string_equal(events, "unelected(transferred)");
	run(SECOND);
	assert_string_equal(view.leader, "n2");
	assert_int_equal(view.state, ELECTION_WAITING);
}

/* After a survey without the own key, a read decides, and no survey is repeated at once. */
static void
test_in_doubt_without_key(void **state)
{
	Sent	   *s;

	begin_leading();
	transfer("n3");
	s = run_until("transfer", now + SECOND);
	assert_non_null(s);
	delete(view.key);
	nsurveys = 0;
	give_up(s, false);
	/* reads have no answer, and the watch is silent */
	for (int64_t end = now + SECOND / 2; now < end; election_tick(core, now))
	{
		while ((s = next_sent("survey")) != NULL)
		{
			assert_true(nsurveys < 20);
			answer(s);
		}
		now = election_wakeup_ns(core) > now ? election_wakeup_ns(core) : now;
	}
	assert_true(nsurveys > 0);
	answer_all();
	run(SECOND);
	assert_string_equal(view.leader, "n2");
}

static void
lose_contact(void)
{
	for (int i = 0; i < 100 && election_connected(core); i++)
	{
		Sent	   *s;

		while ((s = next_sent(NULL)) != NULL)
			give_up(s, false);
		if (election_wakeup_ns(core) > now)
			now = election_wakeup_ns(core);
		election_tick(core, now);
	}
	assert_false(election_connected(core));
}

static void
test_no_contact(void **state)
{
	begin_leading();
	transfer("n3");
	lose_contact();
	assert_reply(ELECTION_NO_CONTACT);
	assert_string_equal(events, "");
	transfer("n3");
	assert_reply(ELECTION_NO_CONTACT);
	answer_all();
	assert_int_equal(ntransfers, 0);
	assert_true(leads());

	/* the transfer was sent, so it goes on after the end of the command */
	transfer("n3");
	assert_non_null(answer_until("transfer"));
	lose_contact();
	assert_reply(ELECTION_NO_CONTACT);
	assert_false(leads());
	assert_false(election_transfer(core, now, 0, "n2", now + SECOND, 0, TICKET));
	run(SECOND);
	assert_string_equal(view.leader, "n3");
	assert_int_equal(nreplies, 1);
}

/* Leadership is lost before the txn is sent. */
static void
test_lost_before(void **state)
{
	char		own[ELECTION_KEY_SIZE];

	begin_leading();
	strcpy(own, view.key);
	transfer("n3");
	delete(own);
	tell();
	assert_reply(ELECTION_FAILED);
	answer_all();
	assert_int_equal(ntransfers, 0);
	assert_string_equal(events, "unelected(key_deleted)");
}

/* The leader deletes its key and writes that of the target, in one transaction. */
static void
receive_from(const char *leader, const char *own, int64_t lease)
{
	EtcdOp		ops[] = {
		{.kind = ETCD_OP_DELETE, .key = bytes(leader)},
		{.kind = ETCD_OP_PUT, .key = bytes(own), .value = bytes("n1"), .lease = lease}
	};

	write_ops(ops, 2);
}

/* This instance is the target.  Another one has written its key, so it writes it once. */
static void
test_target_writes_receipt(void **state)
{
	char		own[ELECTION_KEY_SIZE];
	int64_t		lease;

	put("e/a1.pg", "n2");
	election_configure(core, now, &config);
	answer_all();
	run(SECOND);
	strcpy(own, view.key);
	lease = view.lease;
	assert_int_equal(key_of(own)->number, 1);
	receive_from("e/a1.pg", own, lease);
	run(SECOND);
	assert_true(leads());
	assert_int_equal(key_of(own)->number, 3);
	assert_int_equal(key_of(own)->lease, lease);
}

/* The same, but its server crashes before the write is executed. */
static void
test_receipt_after_crash(void **state)
{
	char		own[ELECTION_KEY_SIZE];
	int64_t		lease;

	put("e/a1.pg", "n2");
	election_configure(core, now, &config);
	answer_all();
	run(SECOND);
	strcpy(own, view.key);
	lease = view.lease;
	receive_from("e/a1.pg", own, lease);
	tell();
	assert_true(leads());
	assert_true(is_remembered);
	election_free(core);
	memset(sent, 0, sizeof(sent));
	core = election_create(&port, 1);
	assert_true(election_resume(core, now, &history, &remembered));
	election_configure(core, now, &config);
	run(SECOND);
	assert_true(leads());
	assert_int_equal(key_of(own)->number, 3);
}

static void
test_no_receipt_without_transfer(void **state)
{
	char		own[ELECTION_KEY_SIZE];

	put("e/a1.pg", "n2");
	election_configure(core, now, &config);
	answer_all();
	strcpy(own, view.key);
	delete("e/a1.pg");
	run(SECOND);
	assert_true(leads());
	assert_int_equal(key_of(own)->number, 1);
}

/* ---- tests: preferred nodes ------------------------------------------------------------------------ */

static void
prefer(const char *first, const char *second, const char *third)
{
	const char *names[] = {first, second, third};

	for (config.npreferred = 0; config.npreferred < 3 && names[config.npreferred]; config.npreferred++)
		strcpy(config.preferred_nodes[config.npreferred], names[config.npreferred]);
}

/* The time at which the next txn is sent.  It is not answered. */
static int64_t
time_of_transfer(void)
{
	assert_non_null(run_until("transfer", now + 10 * DELAY));
	return now;
}

static void
test_preferred(void **state)
{
	int64_t		start = now;
	Sent	   *s;

	prefer("n3", "n1", "n2");
	begin_leading();
	/* the node came after the first survey, so the second one showed it */
	assert_int_equal(time_of_transfer(), start + SURVEYS + DELAY);
	s = next_sent("transfer");
	assert_false(s->led);
	assert_int_equal(view.state, ELECTION_QUEUED);	/* the txn has not timed out yet */
	assert_compare(&s->request.compares[s->request.ncompares - 1], "e/c3.pg", ETCD_COMPARE_MOD_REVISION);
	answer_all();
	run(2 * DELAY);
	assert_string_equal(events, "unelected(transferred)");
	assert_string_equal(view.leader, "n3");
	assert_int_equal(ntransfers, 1);
	assert_int_equal(nreplies, 0);
}

/* A leader that looks for a better node gets a command.  What it read before does not count. */
static void
test_command_during_survey(void **state)
{
	Executed	old;

	prefer("n9", NULL, NULL);
	begin_leading();
	execute_only(run_until("survey", now + 2 * SURVEYS), &old);
	put("e/d4.pg", "n4");
	transfer("n4");
	election_receive(core, now, old.id, &old.answer);
	answer_all();
	run(SECOND);
	assert_false(leads());
	assert_string_equal(events, "unelected(transferred)");
	assert_string_equal(view.leader, "n4");
}

/* The better node leaves and comes back between two surveys.  The delay begins anew. */
static void
test_preferred_comes_and_goes(void **state)
{
	int64_t		back;

	prefer("n3", NULL, NULL);
	begin_leading();
	run(DELAY - SECOND);
	delete("e/c3.pg");
	put("e/c3.pg", "n3");
	back = now;
	assert_in_range(time_of_transfer(), back + DELAY, back + DELAY + SURVEYS);
}

/* This instance leads again while the better node waits.  The delay counts from then. */
static void
test_preferred_not_at_once(void **state)
{
	int64_t		elected;
	int64_t		surveyed;

	prefer("n3", NULL, NULL);
	begin_leading();
	delete("e/b2.pg");
	(void) time_of_transfer();
	answer_all();
	run(SECOND);
	assert_string_equal(view.leader, "n3");
	put("e/d4.pg", "n3");		/* the next key of n3 */
	delete("e/c3.pg");
	answer_all();
	assert_true(leads());
	elected = now;
	surveyed = nsurveys;
	assert_int_equal(time_of_transfer(), elected + DELAY);
	assert_in_range(nsurveys - surveyed, DELAY / SURVEYS - 1, DELAY / SURVEYS + 1);
	assert_int_equal(ntransfers, 2);
}

/* Leadership lapses and comes back while the better node waits.  The delay counts from then. */
static void
test_preferred_after_lapse(void **state)
{
	int64_t		elected;

	prefer("n3", NULL, NULL);
	begin_leading();
	run(DELAY - SECOND);
	lose_contact();
	now += TTL_S * SECOND;
	election_tick(core, now);
	assert_false(leads());
	run(SECOND);
	assert_true(leads());
	assert_string_equal(events, "unelected(lease_expired) elected(n1)");
	elected = now;
	assert_in_range(time_of_transfer(), elected + DELAY - SECOND, elected + DELAY);
}

/* The target is the best node that is possible.  A node without a name in the list is not better. */
static void
test_preferred_rank(void **state)
{
	Sent	   *s;

	prefer("n5", "n3", "n2");
	begin_leading();
	put("e/d4", "go");
	put("e/e5.pg", "n5");
	(void) time_of_transfer();
	s = next_sent("transfer");
	assert_compare(&s->request.compares[s->request.ncompares - 1], "e/c3.pg", ETCD_COMPARE_MOD_REVISION);
}

/* The better node is the first of the queue, and not the last. */
static void
test_preferred_best(void **state)
{
	Sent	   *s;

	prefer("n2", "n3", NULL);
	begin_leading();
	(void) time_of_transfer();
	s = next_sent("transfer");
	assert_compare(&s->request.compares[s->request.ncompares - 1], "e/b2.pg", ETCD_COMPARE_MOD_REVISION);
}

static void
test_preferred_none(void **state)
{
	prefer("n9", "n1", "n2");
	begin_leading();
	run(3 * DELAY);
	assert_true(nsurveys > 0);
	assert_int_equal(ntransfers, 0);
	/* the first node of the list makes no surveys */
	prefer("n1", "n2", "n3");
	election_configure(core, now, &config);
	answer_all();
	nsurveys = 0;
	run(3 * DELAY);
	assert_int_equal(nsurveys + ntransfers, 0);
	/* the list names none of the candidates */
	prefer("n9", NULL, NULL);
	election_configure(core, now, &config);
	run(3 * DELAY);
	assert_int_equal(ntransfers, 0);
	assert_string_equal(events, "");
}

/* A survey that is not answered is not sent again before the next one is due. */
static void
test_preferred_not_answered(void **state)
{
	int64_t		end;
	Sent	   *s;

	prefer("n3", NULL, NULL);
	begin_leading();
	end = now + 10 * SURVEYS;
	nsurveys = 0;
	while ((s = run_until("survey", end)) != NULL)
		give_up(s, false);
	assert_in_range(nsurveys, 9, 11);
	assert_true(leads());
}

/*
 * An operator deletes the own key while a transfer is under way, and that fails.  The
 * watch has told of the deletion, so a read that was executed before it does not make the
 * instance lead.
 */
static void
test_key_deleted_during_transfer(void **state)
{
	Executed	transferred;
	Executed	seen;
	char		key[ELECTION_KEY_SIZE];

	begin_leading();
	strcpy(key, view.key);
	assert_non_null(run_until("keepalive", now + TTL_S * SECOND));
	transfer("n2");
	answer(next_sent("survey"));
	assert_false(leads());
	delete("e/b2.pg");
	answer(next_sent("keepalive"));
	execute_only(next_sent("transfer"), &transferred);
	execute_only(next_sent("read"), &seen);
	delete(key);
	tell();
	election_receive(core, now, transferred.id, &transferred.answer);
	assert_reply(ELECTION_FAILED);
	election_receive(core, now, seen.id, &seen.answer);
	assert_false(leads());
	answer_all();
	assert_int_equal(view.state, ELECTION_WAITING);
	assert_string_equal(events, "unelected(transferred)");
}

/*
 * A command after the deadline, before a tick: the leadership is withdrawn first,
 * and nothing is drained, or led on.
 */
static void
test_command_after_deadline(void **state)
{
	for (int command = 0; command < 5; command++)
	{
		if (command > 0)
		{
			tear_down(state);
			set_up(state);
		}
		begin_leading();
		if (command >= 2)
			assert_true(election_resign(core, now, 0, true, SECOND * 60, TICKET));
		else
			election_tick(core, now);
		now = view.deadline_ns + MS;
		switch (command)
		{
			case 0:
				assert_true(election_resign(core, now, 0, true, SECOND, TICKET));
				break;
			case 1:
				assert_true(election_transfer(core, now, 0, "n2", now + SECOND, SECOND, TICKET));
				break;
			case 2:
				/* it is taken when the first one has been carried out */
				assert_false(election_resign(core, now, 0, true, SECOND, TICKET + 1));
				break;
			case 3:
				assert_true(election_campaign(core, now, 0, TICKET + 1));
				break;
			case 4:
				assert_false(election_cancel(core, now, TICKET));
				break;
		}
		assert_false(leads());
		assert_string_equal(events, "unelected(lease_expired)");
	}
}

/* After etcd_resign(rejoin => false) this instance has no key, so it hands nothing over. */
static void
test_preferred_resigned(void **state)
{
	prefer("n3", "n1", NULL);
	begin_leading();
	run(DELAY - SECOND);
	nsurveys = 0;
	assert_true(election_resign(core, now, 0, false, 0, TICKET + 1));
	run(3 * DELAY);
	assert_int_equal(view.state, ELECTION_RESIGNED);
	assert_int_equal(count_keys(), 2);
	assert_int_equal(nsurveys + ntransfers, 0);
	assert_string_equal(events, "unelected(resigned)");

	/* it leads when it is asked to, and hands over after the delay */
	delete("e/b2.pg");
	assert_true(election_campaign(core, now, 0, TICKET + 1));
	answer_all();
	delete("e/c3.pg");
	answer_all();
	assert_true(leads());
	run(3 * DELAY);
	assert_int_equal(ntransfers, 0);
	put("e/c3.pg", "n3");
	(void) time_of_transfer();
}

/*
 * A preferred node takes over, and its key is gone soon afterwards.  Returns how long it
 * waits in the queue until it is the leader again.
 */
static int64_t
wait_after_failure(int64_t led_ns)
{
	int64_t		back;

	answer_all();
	run(led_ns);
	assert_string_equal(view.leader, "n3");
	delete("e/c3.pg");
	run(SECOND);
	assert_true(leads());
	put("e/c3.pg", "n3");
	back = now;
	return time_of_transfer() - back;
}

/* One that fails twice waits longer, until it leads on. */
static void
test_preferred_fails(void **state)
{
	prefer("n3", "n1", "n2");
	begin_leading();
	delete("e/b2.pg");
	(void) time_of_transfer();
	assert_in_range(wait_after_failure(SECOND), DELAY, DELAY + SURVEYS);
	assert_in_range(wait_after_failure(SECOND), 2 * DELAY, 2 * DELAY + SURVEYS);
	assert_in_range(wait_after_failure(SECOND), 4 * DELAY, 4 * DELAY + SURVEYS);
	assert_in_range(wait_after_failure(DELAY + 3 * TTL_S * SECOND), DELAY, DELAY + SURVEYS);
	assert_in_range(wait_after_failure(SECOND), DELAY, DELAY + SURVEYS);
}

/* ---- drains ------------------------------------------------------------------ */

/* Leads, and drains for a node of that list. */
static void
begin_preferred_drain(const char *first, const char *second)
{
	Sent	   *s;

	prefer(first, second, NULL);
	config.preferred_drain_ms = 20000;
	begin_leading();
	while (view.state != ELECTION_DRAINING && (s = run_until("survey", now + DELAY)) != NULL)
		answer(s);
	assert_int_equal(view.state, ELECTION_DRAINING);
}

/* A drain for a preferred node ends, also if the queue cannot be read any more. */
static void
test_preferred_drain_ends(void **state)
{
	int64_t		end;
	Sent	   *s;

	prefer("n3", NULL, NULL);
	config.preferred_drain_ms = 2000;
	begin_leading();
	while (view.state != ELECTION_DRAINING && (s = run_until("survey", now + DELAY)) != NULL)
		answer(s);
	assert_int_equal(view.state, ELECTION_DRAINING);
	end = now + 2 * SECOND + 2 * TTL_S * SECOND;
	while ((s = run_until("survey", end)) != NULL)
		give_up(s, false);
	assert_true(leads());
	assert_int_equal(view.state, ELECTION_LEADING);
}

/* The same if etcd answers everything else. */
static void
test_preferred_drain_refused(void **state)
{
	int64_t		end;
	Sent	   *s;

	begin_preferred_drain("n3", NULL);
	end = now + config.preferred_drain_ms * MS + 2 * TTL_S * SECOND;
	while ((s = run_until("survey", end)) != NULL)
		refuse(s);
	assert_string_equal(events, "drain_cancelled(n1)");
	assert_int_equal(view.state, ELECTION_LEADING);
}

/* Drains that end without a hand-over become rarer. */
static void
test_preferred_drain_spares(void **state)
{
	int			ndrains = 0;
	int64_t		end;
	bool		was_draining = false;

	prefer("n3", NULL, NULL);
	config.preferred_drain_ms = 100;
	begin_leading();
	for (end = now + 40 * DELAY; now < end;)
	{
		Sent	   *s = run_until("survey", now + SECOND);

		ndrains += view.state == ELECTION_DRAINING && !was_draining;
		was_draining = view.state == ELECTION_DRAINING;
		if (s != NULL && was_draining)
			give_up(s, false);
		else if (s != NULL)
			answer(s);
		ndrains += view.state == ELECTION_DRAINING && !was_draining;
		was_draining = view.state == ELECTION_DRAINING;
	}
	assert_true(leads());
	assert_in_range(ndrains, 2, 7);
}

/* The node leaves while the leader drains for it.  The next node of the list is there. */
static void
test_preferred_drain_next(void **state)
{
	begin_preferred_drain("n3", "n2");
	delete("e/c3.pg");
	run(21 * SECOND);
	assert_false(leads());
	assert_string_equal(view.leader, "n2");
}

/* The settings change while the leader drains: another node, or none. */
static void
test_preferred_drain_settings(void **state)
{
	begin_preferred_drain("n3", NULL);
	prefer("n2", NULL, NULL);
	election_configure(core, now, &config);
	run(21 * SECOND);
	assert_string_equal(view.leader, "n2");
}

static void
test_preferred_drain_settings_late(void **state)
{
	Sent	   *survey;

	begin_preferred_drain("n3", NULL);
	election_drained(core, now, 0);
	survey = next_sent("survey");
	assert_non_null(survey);
	prefer(NULL, NULL, NULL);
	election_configure(core, now, &config);
	answer(survey);
	run(SECOND);
	assert_true(leads());
	assert_int_equal(view.state, ELECTION_LEADING);
}

/* Two candidates have the first name of the list. */
static void
test_preferred_twice(void **state)
{
	prefer("n3", "n2", NULL);
	begin_leading();
	put("e/d4.pg", "n3");
	run(10 * DELAY);
	assert_false(leads());
	assert_string_equal(view.leader, "n3");
}

/* The time of a transfer does not pass while it drains. */
static void
test_transfer_drain_longer(void **state)
{
	begin_leading();
	nreplies = 0;
	assert_true(election_transfer(core, now, 0, "n3", now + 2 * SECOND, 10 * SECOND, TICKET));
	answer_all();
	assert_int_equal(view.state, ELECTION_DRAINING);
	run(8 * SECOND);
	assert_int_equal(view.state, ELECTION_DRAINING);
	election_drained(core, now, 0);
	assert_non_null(run_until("transfer", now + SECOND));
	answer_all();
	run(SECOND);
	assert_false(leads());
	assert_string_equal(view.leader, "n3");
}

/* A drain ends once, so the time of the transfer is longer once. */
static void
test_drained_twice(void **state)
{
	int64_t		end;
	Sent	   *s;

	begin_leading();
	nreplies = 0;
	assert_true(election_transfer(core, now, 0, "n3", now + 2 * SECOND, 10 * SECOND, TICKET));
	answer_all();
	run(8 * SECOND);
	election_drained(core, now, 0);
	election_drained(core, now, 0);
	end = now + 3 * SECOND;
	while ((s = run_until("survey", end)) != NULL)
		refuse(s);
	assert_reply(ELECTION_FAILED);
	assert_true(leads());
}

/* The same for a transfer without a time-out. */
static void
test_transfer_drain_without_timeout(void **state)
{
	begin_leading();
	nreplies = 0;
	assert_true(election_transfer(core, now, 0, "n3", INT64_MAX, 10 * SECOND, TICKET));
	answer_all();
	run(8 * SECOND);
	assert_int_equal(view.state, ELECTION_DRAINING);
	election_drained(core, now, 0);
	answer_all();
	run(SECOND);
	assert_int_equal(nreplies, 0);
	assert_string_equal(view.leader, "n3");
}

/* A drain has one command: the next resignation takes its place, with its own time and wish. */
static void
test_resign_twice(void **state)
{
	begin_leading();
	nreplies = 0;
	assert_true(election_resign(core, now, 0, false, SECOND, TICKET));
	assert_true(election_resign(core, now, 0, true, 5 * SECOND, TICKET + 1));
	assert_reply(ELECTION_CANCELLED);
	run(2 * SECOND);
	assert_int_equal(view.state, ELECTION_DRAINING);
	assert_false(election_cancel(core, now, TICKET));
	election_drained(core, now, 0);
	answer_all();
	run(SECOND);
	assert_int_equal(view.role, ELECTION_CANDIDATE);
	assert_string_equal(events, "drain_cancelled(n1) unelected(resigned)");
}

/*
 * The deadline passes while the instance drains to resign for good.  A campaign that
 * comes before the elector has noticed brings it back.
 */
static void
test_campaign_after_lapsed_drain(void **state)
{
	begin_leading();
	assert_true(election_resign(core, now, 0, false, 60 * SECOND, TICKET));
	assert_int_equal(view.state, ELECTION_DRAINING);
	now = view.deadline_ns + MS;
	assert_true(election_campaign(core, now, 0, TICKET + 1));
	answer_all();
	run(2 * SECOND);
	assert_int_equal(view.role, ELECTION_CANDIDATE);
}

/* So does a hand-over; if its target is not there, the instance leads on. */
static void
test_transfer_instead_of_resign(void **state)
{
	(void) state;
	begin_leading();
	nreplies = 0;
	assert_true(election_resign(core, now, 0, false, 5 * SECOND, TICKET));
	assert_true(election_transfer(core, now, 0, "n2", now + SECOND, 5 * SECOND, TICKET));
	assert_reply(ELECTION_CANCELLED);
	answer_all();
	assert_int_equal(view.state, ELECTION_DRAINING);
	nreplies = 0;
	assert_true(election_transfer(core, now, 0, "n9", now + SECOND, 5 * SECOND, TICKET));
	assert_reply(ELECTION_CANCELLED);
	nreplies = 0;
	answer_all();
	assert_reply(ELECTION_NO_SUCH_CANDIDATE);
	assert_true(leads());
	assert_int_equal(view.state, ELECTION_LEADING);
}

/* A greater margin ends leadership in the middle of a drain, which is not shown again. */
static void
test_margin_while_draining(void **state)
{
	config.safety_margin_ms = 100;
	begin_leading();
	assert_true(election_resign(core, now, 0, true, 20 * SECOND, 1));
	assert_int_equal(view.state, ELECTION_DRAINING);
	now = view.deadline_ns - 200 * MS;
	config.safety_margin_ms = 1000;
	election_configure(core, now, &config);
	assert_false(leads());
	assert_int_not_equal(view.state, ELECTION_DRAINING);
}

/* The command of a drain alone cancels it. */
static void
test_cancel_other_command(void **state)
{
	begin_leading();
	assert_true(election_transfer(core, now, 0, "n3", INT64_MAX, 10 * SECOND, TICKET));
	answer_all();
	assert_false(election_cancel(core, now, TICKET + 1));
	assert_int_equal(view.state, ELECTION_DRAINING);
	assert_true(election_cancel(core, now, TICKET));
	assert_int_equal(view.state, ELECTION_LEADING);
}

/* A drain goes on without contact with etcd, and with other settings. */
static void
test_drain_goes_on(void **state)
{
	begin_leading();
	assert_true(election_resign(core, now, 0, false, 60 * SECOND, TICKET));
	election_configure(core, now, &config);
	assert_int_equal(view.state, ELECTION_DRAINING);
	lose_contact();
	assert_true(leads());
	assert_int_equal(view.state, ELECTION_DRAINING);
}

/* A drain for a preferred node ends as soon as no such node is in the queue, or in the settings. */
static void
test_preferred_drain_for_nobody(void **state)
{
	begin_preferred_drain("n3", NULL);
	delete("e/c3.pg");
	run(SURVEYS + SECOND);
	assert_true(leads());
	assert_int_equal(view.state, ELECTION_LEADING);

	for (int is_over = 0; is_over < 2; is_over++)
	{
		tear_down(state);
		set_up(state);
		begin_preferred_drain("n3", NULL);
		if (is_over)
			election_drained(core, now, 0);
		prefer(NULL, NULL, NULL);
		election_configure(core, now, &config);
		assert_true(leads());
		assert_int_equal(view.state, ELECTION_LEADING);
	}
}

/* When a drain ends, the queue is read at once, whatever became of an earlier read. */
static void
test_preferred_drain_hangs(void **state)
{
	for (int is_refused = 0; is_refused < 2; is_refused++)
	{
		if (is_refused)
		{
			tear_down(state);
			set_up(state);
		}
		begin_preferred_drain("n3", NULL);
		assert_non_null(run_until("survey", now + 2 * SURVEYS));
		if (is_refused)
			refuse(next_sent("survey"));
		else
			next_sent("survey")->id = 0;
		election_drained(core, now, 0);
		assert_non_null(next_sent("survey"));
		answer_all();
		run(SECOND);
		assert_string_equal(view.leader, "n3");
	}
}

/* The drains of an earlier leadership do not count. */
static void
test_preferred_drain_of_before(void **state)
{
	begin_preferred_drain("n3", NULL);
	delete("e/c3.pg");
	run(SURVEYS + SECOND);
	assert_int_equal(view.state, ELECTION_LEADING);
	delete("e/b2.pg");
	delete(view.key);
	run(SECOND);
	assert_true(leads());
	put("e/c3.pg", "n3");
	run(DELAY + SURVEYS);
	assert_int_equal(view.state, ELECTION_DRAINING);
}

/* A node that leads for long has not failed, and does not inherit the failures of another one. */
static void
test_preferred_fails_not_another(void **state)
{
	int64_t		back;

	prefer("n3", "n2", "n1");
	begin_leading();
	delete("e/b2.pg");
	(void) time_of_transfer();
	(void) wait_after_failure(SECOND);
	assert_in_range(wait_after_failure(SECOND), 2 * DELAY, 2 * DELAY + SURVEYS);
	answer_all();
	run(SECOND);
	delete("e/c3.pg");
	run(SECOND);
	assert_true(leads());
	for (int i = 0; i < 2; i++)
	{
		put("e/b2.pg", "n2");
		back = now;
		assert_in_range(time_of_transfer() - back, DELAY, DELAY + SURVEYS);
		answer_all();
		run(DELAY + 3 * TTL_S * SECOND);
		assert_string_equal(view.leader, "n2");
		delete("e/b2.pg");
		run(SECOND);
		assert_true(leads());
	}
}

/* Reads of the queue that are refused become rarer.  The next command begins anew. */
static void
test_survey_refused(void **state)
{
	int64_t		end;
	Sent	   *s;

	begin_leading();
	nreplies = 0;
	assert_true(election_transfer(core, now, 0, "n3", now + 10 * SECOND, 0, TICKET));
	end = now + 4 * SECOND;
	nsurveys = 0;
	while ((s = run_until("survey", end)) != NULL)
		refuse(s);
	assert_in_range(nsurveys, 10, 25);

	refuse(run_until("survey", now + SECOND));
	assert_null(next_sent("survey"));
	assert_true(election_transfer(core, now, 0, "n2", now + 10 * SECOND, 0, TICKET));
	assert_non_null(next_sent("survey"));
	refuse(next_sent("survey"));
	s = run_until("survey", now + 100 * MS);
	assert_non_null(s);

	/* nor do they count for the transaction */
	for (int i = 0; i < 5; i++)
		refuse(run_until("survey", now + SECOND));
	refuse(run_until("transfer", now + SECOND));
	assert_non_null(run_until("survey", now + 100 * MS));
}

/* The result of a hand-over is in doubt, and the instance resigns: the deletion decides. */
static void
test_resign_in_doubt(void **state)
{
	for (int is_asked = 0; is_asked < 2; is_asked++)
	{
		Sent	   *survey = NULL;

		if (is_asked)
		{
			tear_down(state);
			set_up(state);
		}
		begin_leading();
		transfer("n3");
		give_up(answer_until("transfer"), false);
		if (is_asked)
			survey = run_until("survey", now + SECOND);
		assert_true(election_resign(core, now, 0, false, 0, TICKET + 1));
		assert_int_equal(view.state, ELECTION_LEAVING);
		if (is_asked)
			answer(survey);
		nsurveys = 0;
		now += SECOND / 2;
		election_tick(core, now);
		assert_int_equal(nsurveys, 0);
		assert_int_equal(ntransfers, 1);
		answer_all();
		assert_int_equal(view.state, ELECTION_RESIGNED);
		assert_string_equal(name_of(key_at(0)), "e/b2.pg");
	}
}

/* The leader's deletion and a write that puts the own key on another lease come together. */
static void
test_wait_ends_on_other_lease(void **state)
{
	char		own[ELECTION_KEY_SIZE];

	put("e/a1.pg", "n2");
	election_configure(core, now, &config);
	answer_all();
	run(SECOND);
	strcpy(own, view.key);
	receive_from("e/a1.pg", own, 77);
	tell();
	assert_false(leads());
	run(SECOND);
	assert_true(leads());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_not_leader, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_renewal_before_entry, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_foreign_between, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_too_many_between, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_to_itself, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_txn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_txn_to_foreign, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_receipt, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_receipt_by_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_deadline, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_target_dies, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_target_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_queue_changes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_answer_lost, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_answer_late, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_in_doubt, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_in_doubt_without_key, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_contact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lost_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_target_writes_receipt, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_receipt_after_crash, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_receipt_without_transfer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_command_during_survey, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_comes_and_goes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_not_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_after_lapse, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_rank, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_best, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_none, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_not_answered, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_resigned, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_ends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_spares, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_next, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_settings, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_settings_late, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_transfer_drain_longer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_transfer_drain_without_timeout, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_drained_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_resign_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_campaign_after_lapsed_drain, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_transfer_instead_of_resign, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_margin_while_draining, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_key_deleted_during_transfer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_command_after_deadline, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cancel_other_command, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_drain_goes_on, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_for_nobody, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_hangs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_drain_of_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_fails_not_another, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_survey_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_resign_in_doubt, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_wait_ends_on_other_lease, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
