/*-------------------------------------------------------------------------
 *
 * patroni_test.c
 *	  Unit tests of an election that follows Patroni: one instance, Patroni's
 *	  keys, and an etcd that answers when the test says so.
 *
 *-------------------------------------------------------------------------
 */
#include "small_etcd.h"
#include "unit.h"

#define TTL_S		30
#define MARGIN		(3 * SECOND)	/* a tenth of Patroni's TTL */
#define SYSTEM_ID	"7123456789012345678"
#define MAX_SENT	64

/* Patroni's keys. */
#define LEADER		"/service/batman/leader"
#define CONFIG		"/service/batman/config"
#define INITIALIZE	"/service/batman/initialize"
#define MEMBER		"/service/batman/members/n1"

static int64_t now;

/* What etcd says of every lease. */
static int64_t granted_s;
static int64_t left_s;

/* ---- the instance --------------------------------------------------------------- */

typedef struct Sent
{
	uint64_t	id;				/* 0: answered */
	EtcdRequest request;
} Sent;

static ElectionCore *core;
static ElectionConfig config;
static ElectionView view;
static ElectionView other_view; /* of the second election */
static Sent sent[MAX_SENT];
static int	nsent;
static int	nreads;				/* sent at all */
static int	nquestions;			/* for a time to live */
static int	ndistrusted;
static char events[4096];
static char watched[ELECTION_KEY_SIZE + 8];
static int64_t watched_from;
static bool has_replied;
static ElectionReply replied;

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Sent	   *s = &sent[nsent++];

	assert_true(nsent < MAX_SENT);
	s->id = id;
	s->request = keep_request(request);
	assert_int_equal(request->ncompares, 0);
	nreads += request->kind == ETCD_TXN;
	nquestions += request->kind == ETCD_TIME_TO_LIVE;
	if (request->kind == ETCD_TXN)
		assert_int_equal(request->success[0].key.data[0], '/');
	for (int i = 0; i < request->nsuccess; i++)
		assert_true(request->success[i].kind == ETCD_OP_RANGE ||
					(request->success[i].kind == ETCD_OP_EMPTY_TXN && i == request->nsuccess - 1));
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	watched[0] = '\0';
	if (nwatches > 0)
	{
		memcpy(watched, watches[0].key.data, watches[0].key.len);
		watched[watches[0].key.len] = '\0';
		watched_from = watches[0].start_revision;
	}
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	ndistrusted++;
}

static void
port_publish(void *ctx, int slot, const ElectionView *published)
{
	*(slot == 0 ? &view : &other_view) = *published;
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
	const char *reason = election_reason_name(event->reason);
	size_t		len = strlen(events);

	if (event->kind == ELECTION_EVENT_CONNECTED || event->kind == ELECTION_EVENT_DISCONNECTED)
		return;
	snprintf(events + len, sizeof(events) - len, "%s%s(%s)", len > 0 ? " " : "",
			 election_event_name(event->kind), event->leader ? event->leader : reason ? reason : "");
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply reply)
{
	has_replied = true;
	replied = reply;
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	assert_null(memory);
}

static void
port_remember_history(void *ctx, const ElectionHistory *history)
{
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
	fail();
}

static uint64_t
port_random(void *ctx)
{
	return 0;
}

/* NULL: Patroni deletes the key. */
static void
set_key(const char *key, const char *value, int64_t lease)
{
	if (lease != 0 && store_find_lease(lease) == NULL)
		grant_lease(now, lease, TTL_S);
	if (value != NULL)
		put_key(bytes(key), bytes(value), lease);
	else if (store_find(bytes(key)) != NULL)
		delete_key(store_find(bytes(key)));
}

/* The number of the leader key's newest version. */
static int
leader_version(void)
{
	return store_key(store_intern(bytes(LEADER)))->last_version;
}

/* Sends a version of the leader key on the watch. */
static void
tell_version(int number)
{
	const Version *version = store_version(number);
	EtcdWatchEvent event = event_of(version, version->deleted, version->revision);
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .watch_id = 1, .events = &event, .nevents = 1};

	frame.header = etcd_header();
	frame.header.revision = version->revision;
	assert_string_equal(watched, LEADER);
	election_watched(core, now, &frame);
}

static void
tell(void)
{
	tell_version(leader_version());
}

/* The oldest request that is not answered; NULL if there is none. */
static Sent *
next_sent(void)
{
	for (int i = 0; i < nsent; i++)
	{
		if (sent[i].id != 0)
			return &sent[i];
	}
	nsent = 0;
	return NULL;
}

/* Is the oldest request of that kind? */
static bool
asks(EtcdRequestKind kind)
{
	const Sent *s = next_sent();

	return s != NULL && s->request.kind == kind;
}

/* Answers the oldest request from the state at that entry of the log. */
static void
answer_at(int64_t index)
{
	Sent	   *s = next_sent();
	EtcdAnswer	a = {.outcome = ETCD_ANSWERED};
	uint64_t	id;

	assert_non_null(s);
	id = s->id;
	s->id = 0;
	a.header.revision = store_entry(index)->revision;
	if (s->request.kind == ETCD_TXN)
		store_read(index, &s->request, &a);
	else
	{
		a.lease = s->request.lease;
		a.ttl_s = left_s;
		a.granted_ttl_s = left_s < 0 ? 0 : granted_s;
	}
	a.header.cluster_id = etcd.cluster_id;
	a.header.raft_term = etcd.term;
	election_receive(core, now, id, &a);
}

/* Answers the oldest request. */
static void
answer(void)
{
	answer_at(store_index());
}

static void
answer_with_failure(void)
{
	EtcdAnswer	a = {.outcome = ETCD_NO_ANSWER, .endpoint = 0, .message = "gone"};
	Sent	   *s = next_sent();
	uint64_t	id;

	assert_non_null(s);
	id = s->id;
	s->id = 0;
	election_receive(core, now, id, &a);
}

static void
answer_all(void)
{
	while (next_sent() != NULL)
		answer();
}

/* Lets time pass, and answers at once or not at all. */
static void
run(int64_t duration_ns, bool answers)
{
	int64_t		end = now + duration_ns;

	for (;;)
	{
		while (next_sent() != NULL)
		{
			if (answers)
				answer();
			else
				answer_with_failure();
		}
		if (election_wakeup_ns(core) > end)
			break;
		if (election_wakeup_ns(core) > now)
			now = election_wakeup_ns(core);
		election_tick(core, now);
	}
	now = end;
	election_tick(core, now);
}

static bool
leads(void)
{
	return view.deadline_ns > now;
}

static int
set_up(void **state)
{
	static const ElectionPort port = {
		port_send, port_watch, port_change_endpoint, port_publish, port_announce,
		port_reply, port_remember, port_remember_history, NULL, port_report_duplicate_name, NULL, port_random, NULL
	};

	now = 1000 * SECOND;
	small_etcd_begin(7, 3, 100);
	granted_s = TTL_S;
	left_s = 25;
	set_key(CONFIG, "{\"ttl\": 30}", 0);
	set_key(INITIALIZE, SYSTEM_ID, 0);
	set_key(MEMBER, "{\"role\":\"master\",\"timeline\":1}", 11);
	set_key(LEADER, "n1", 11);

	memset(&config, 0, sizeof(config));
	strcpy(config.node_name, "n1");
	strcpy(config.system_identifier, SYSTEM_ID);
	strcpy(config.patroni_namespace, "/service");
	strcpy(config.elections[0], "patroni:batman");
	config.nelections = 1;
	config.nendpoints = 1;
	config.ttl_s = 10;
	config.safety_margin_ms = -1;
	config.eligible = true;
	config.timeline = 1;

	memset(&view, 0, sizeof(view));
	memset(&other_view, 0, sizeof(other_view));
	nsent = nreads = nquestions = ndistrusted = 0;
	events[0] = '\0';
	watched[0] = '\0';
	core = election_create(&port, 2);
	return 0;
}

static int
tear_down(void **state)
{
	election_free(core);
	small_etcd_end();
	return 0;
}

static void
configure(void)
{
	election_configure(core, now, &config);
}

/* Makes the instance lead, without requests under way, and forgets the events. */
static void
begin_leading(void)
{
	configure();
	answer_all();
	assert_true(leads());
	events[0] = '\0';
}

/* ---- tests ------------------------------------------------------------------------ */

/*
 * A renewal is a read, a request for the time to live, and another read.  The
 * deadline counts from the sending of the second request.
 */
static void
test_renewal(void **state)
{
	int64_t		sent_ns;

	configure();
	assert_true(asks(ETCD_TXN));
	now += 10 * MS;
	answer();
	assert_false(leads());
	assert_int_equal(view.state, ELECTION_FOLLOWING);
	assert_string_equal(view.leader, "n1");
	assert_true(asks(ETCD_TIME_TO_LIVE));
	sent_ns = now;
	now += 10 * MS;
	answer();
	assert_false(leads());
	assert_true(asks(ETCD_TXN));
	now += 10 * MS;
	answer();
	assert_true(leads());
	assert_int_equal(view.state, ELECTION_LEADING);
	assert_int_equal(view.deadline_ns, sent_ns + 25 * SECOND - MARGIN);
	assert_int_equal(view.token, store_find(bytes(LEADER))->create_revision);
	assert_string_equal(view.key, LEADER);
	assert_string_equal(events, "leader(n1) elected(n1)");
	assert_string_equal(watched, LEADER);
	assert_int_equal(watched_from, store_revision() + 1);
	assert_string_equal(view.problem, "");
}

/* Patroni decides who leads, whatever nodes are preferred. */
static void
test_preferred_nodes(void **state)
{
	strcpy(config.preferred_nodes[0], "n2");
	config.npreferred = 1;
	begin_leading();
	run(60 * SECOND, true);
	assert_true(leads());
}

/* There are two requests in a third of Patroni's TTL, and the deadline moves. */
static void
test_pace(void **state)
{
	int			n = 0;

	begin_leading();
	for (int64_t end = now + 60 * SECOND; now < end;)
	{
		now = election_wakeup_ns(core);
		election_tick(core, now);
		while (next_sent() != NULL)
		{
			n++;
			answer();
		}
		assert_true(leads());
	}
	assert_in_range(n, 10, 14);
	assert_string_equal(events, "");
}

/* The deadline is limited by the granted TTL.  The margin is at least a second. */
static void
test_bounds(void **state)
{
	left_s = INT64_C(9223372036);
	granted_s = 6;
	begin_leading();
	assert_int_equal(view.deadline_ns, now + 6 * SECOND - SECOND);
	config.safety_margin_ms = 2000;
	configure();
	answer_all();
	assert_int_equal(view.deadline_ns, now + 6 * SECOND - 2 * SECOND);
	/* the lease is in its last second, so there is no leadership */
	left_s = 0;
	now += SECOND;
	configure();
	answer_all();
	assert_false(leads());
	assert_string_equal(events, "unelected(lease_expired)");
}

/* The key exists before the promotion ends. */
static void
test_recovery(void **state)
{
	config.in_recovery = true;
	configure();
	answer_all();
	assert_false(leads());
	assert_string_equal(view.problem, "");
	now += SECOND;
	config.in_recovery = false;
	configure();
	assert_true(leads());		/* no answer was needed */
	assert_string_equal(events, "leader(n1) elected(n1)");
}

/* A new term between the two answers, or before the first, invalidates the renewal. */
static void
test_terms(void **state)
{
	configure();
	answer();
	answer();					/* the time to live, in the old term */
	etcd.term++;
	answer();
	assert_false(leads());
	assert_true(asks(ETCD_TIME_TO_LIVE));
	etcd.term++;
	answer();					/* the term was not known when this was sent */
	answer();
	assert_false(leads());
	run(SECOND, true);
	assert_true(leads());
}

/* A read that was sent before the answer about the time to live does not confirm it. */
static void
test_order(void **state)
{
	int64_t		deadline;

	begin_leading();
	deadline = view.deadline_ns;
	now += 10 * SECOND;
	election_tick(core, now);
	assert_true(asks(ETCD_TIME_TO_LIVE));
	assert_true(election_verify(core, now, 0, 1));
	assert_int_equal(nsent, 2);
	/* the read is answered first */
	{
		Sent		first = sent[0];

		sent[0] = sent[1];
		sent[1] = first;
	}
	has_replied = false;
	answer();
	assert_true(has_replied && replied == ELECTION_DONE);
	answer();
	assert_int_equal(view.deadline_ns, deadline);
	assert_true(asks(ETCD_TXN));
	answer();
	assert_true(view.deadline_ns > deadline);
}

/* Patroni deletes its key after the answer about the time to live.  The lease lives on. */
static void
test_deleted_between(void **state)
{
	begin_leading();
	now += 10 * SECOND;
	election_tick(core, now);
	answer();
	set_key(LEADER, NULL, 0);
	answer();
	assert_false(leads());
	assert_string_equal(events, "unelected(key_deleted) leader()");
	assert_int_equal(view.has_leader, false);
}

static void
test_watch(void **state)
{
	begin_leading();
	set_key(LEADER, NULL, 0);
	tell();
	assert_false(leads());		/* with no answer */
	answer_all();
	assert_string_equal(events, "unelected(key_deleted) leader()");
	set_key(LEADER, "n2", 12);
	tell();
	answer_all();
	assert_false(leads());
	assert_string_equal(view.leader, "n2");
	assert_string_equal(view.problem, "this server is not in recovery, but Patroni's leader key names \"n2\": is Patroni running here?");
	set_key(LEADER, NULL, 0);
	tell();
	answer_all();
	set_key(LEADER, "n1", 13);
	tell();
	answer_all();
	assert_true(leads());
	assert_int_equal(view.token, store_revision());
}

/* The watch is silent.  The read of the next renewal shows the change. */
static void
test_silent_watch(void **state)
{
	begin_leading();
	set_key(LEADER, NULL, 0);
	set_key(LEADER, "n2", 12);
	run(11 * SECOND, true);
	assert_false(leads());
	assert_string_equal(view.leader, "n2");
	assert_string_equal(events, "unelected(key_deleted) leader(n2)");
}

/* Patroni was restarted, and has another lease.  It counts for one second at first. */
static void
test_patroni_restart(void **state)
{
	int64_t		token;

	begin_leading();
	token = view.token;
	set_key(LEADER, "n1", 99);
	tell();
	assert_true(leads());
	assert_int_equal(view.deadline_ns, now + SECOND);
	answer_all();
	assert_int_equal(view.deadline_ns, now + 25 * SECOND - MARGIN);
	assert_int_equal(view.lease, 99);
	assert_int_equal(view.token, token);
	assert_string_equal(events, "");
	/* if the watch is silent, a read shows the other lease */
	set_key(LEADER, "n1", 98);
	run(11 * SECOND, true);
	assert_int_equal(view.lease, 98);
	assert_string_equal(events, "");
}

/* The key goes to another lease just before the deadline, which does not move forward. */
static void
test_lease_changed_at_deadline(void **state)
{
	int64_t		deadline_ns;

	begin_leading();
	deadline_ns = view.deadline_ns;
	now = deadline_ns - SECOND / 2;
	set_key(LEADER, "n1", 99);
	tell();
	assert_true(leads());
	assert_int_equal(view.deadline_ns, deadline_ns);
}

/* An event is older than the read, or comes once more after a newer one. */
static void
test_old_events(void **state)
{
	int			old;

	set_key(LEADER, "n2", 88);
	old = leader_version();
	set_key(LEADER, "n1", 77);
	begin_leading();
	tell_version(old);
	assert_true(leads());
	assert_null(next_sent());

	set_key(LEADER, "n2", 88);
	tell();
	answer_all();
	assert_string_equal(view.leader, "n2");
	set_key(LEADER, "n3", 99);
	old = leader_version();
	set_key(LEADER, "n4", 66);
	tell();
	assert_string_equal(view.leader, "n4");
	tell_version(old);
	assert_string_equal(view.leader, "n4");
}

/* For that time etcd denies reads.  Returns how many there were. */
static int
deny_reads(int64_t duration_ns)
{
	EtcdAnswer	refusal = {.outcome = ETCD_REFUSED, .code = ETCD_CODE_PERMISSION_DENIED,
	.message = "etcdserver: permission denied"};
	int			nreads = 0;

	set_key(LEADER, "n1", 99);
	tell();
	for (int64_t end = now + duration_ns; now < end; now += MS)
	{
		election_tick(core, now);
		for (Sent *s = next_sent(); s != NULL; s = next_sent())
		{
			uint64_t	id = s->id;

			if (s->request.kind != ETCD_TXN)
			{
				answer();
				continue;
			}
			s->id = 0;
			nreads++;
			election_receive(core, now, id, &refusal);
		}
	}
	return nreads;
}

/*
 * Without the right to read its keys, an election is not followed, and its keys are not
 * watched, because etcd would end the whole stream.  For a moment without rights it is.
 */
static void
test_read_denied(void **state)
{
	begin_leading();
	for (int i = 0; i < 2; i++)
	{
		assert_in_range(deny_reads(70 * MS), 1, 2);
		assert_true(leads());
		assert_string_equal(watched, LEADER);
		run(SECOND, true);
		assert_true(leads());
		assert_string_equal(events, "");
	}
	assert_in_range(deny_reads(2 * SECOND), 3, 8);
	assert_false(leads());
	assert_string_equal(events, "unelected(permission_denied)");
	assert_string_equal(watched, "");
	run(2 * SECOND, true);
	assert_string_equal(watched, LEADER);
	assert_true(leads());
}

/* An answer of before a denied read is not newer than what was known then. */
static void
test_late_answer_after_denial(void **state)
{
	EtcdAnswer	refusal = {.outcome = ETCD_REFUSED, .code = ETCD_CODE_PERMISSION_DENIED,
	.message = "etcdserver: permission denied"};
	int64_t		old_index;
	Sent		late;
	uint64_t	denied_id;
	Sent	   *s;

	set_key(LEADER, "n3", 97);
	configure();
	answer_all();
	set_key(LEADER, "n3", 97);
	tell();
	old_index = store_index();
	while ((s = next_sent())->request.kind != ETCD_TXN)
		answer();
	late = *s;
	s->id = 0;
	set_key(LEADER, "n2", 98);
	assert_true(election_verify(core, now, 0, 1));
	answer_all();
	assert_string_equal(view.leader, "n2");

	/* the next read is denied, and then the first one is answered */
	assert_true(election_verify(core, now, 0, 2));
	s = next_sent();
	assert_int_equal(s->request.kind, ETCD_TXN);
	denied_id = s->id;
	s->id = 0;
	election_receive(core, now, denied_id, &refusal);
	for (int i = 0; i < nsent; i++)
		sent[i].id = 0;
	nsent = 0;
	sent[nsent++] = late;
	answer_at(old_index);
	assert_string_equal(view.leader, "n2");
}

/* The key goes to another lease while contact is lost, and the watch tells it. */
static void
test_lease_changed_without_contact(void **state)
{
	begin_leading();
	for (int i = 1; i <= 2; i++)
	{
		EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .watch_id = i, .created = true};

		frame.header = etcd_header();
		election_watched(core, now, &frame);
	}
	run(12 * SECOND, false);
	set_key(LEADER, "n1", 99);
	tell();
	assert_true(view.deadline_ns <= now + SECOND);
}

/* The settings name another cluster, which has no leader key. */
static void
test_no_leader_elsewhere(void **state)
{
	begin_leading();
	strcpy(config.patroni_namespace, "other");
	configure();
	answer_all();
	assert_false(view.has_leader);
}

/* etcd is another one, which has no leader key. */
static void
test_no_leader_restored(void **state)
{
	set_key(CONFIG, "{}", 0);
	begin_leading();
	etcd.cluster_id++;
	lose_all(17);
	set_key(CONFIG, "{}", 0);
	set_key(INITIALIZE, SYSTEM_ID, 0);
	set_key(MEMBER, "{}", 11);
	run(90 * SECOND, true);
	assert_false(view.has_leader);
}

/* Another etcd has lower revisions than the watch of the former has told. */
static void
test_leader_restored(void **state)
{
	begin_leading();
	set_revision(1000);
	set_key(LEADER, "n1", 99);
	tell();
	answer_all();
	etcd.cluster_id++;
	lose_all(17);
	set_key(INITIALIZE, SYSTEM_ID, 0);
	set_key(MEMBER, "{\"timeline\":1}", 11);
	set_key(LEADER, "n1", 11);
	run(90 * SECOND, true);
	assert_true(leads());
	assert_int_equal(view.token, 20);
}

/*
 * etcd was put back for a moment, and the leader key of its new history has the create
 * revision of the former one.  It is another key, whose token is that revision.
 */
static void
test_token_of_other_history(void **state)
{
	int64_t		token;

	set_key(LEADER, NULL, 0);
	set_key(LEADER, "n2", 12);
	configure();
	answer_all();
	assert_string_equal(view.leader, "n2");
	token = view.leader_revision;
	lose_all(token - 4);
	set_key(INITIALIZE, SYSTEM_ID, 0);
	set_key(MEMBER, "{\"timeline\":1}", 11);
	assert_true(election_verify(core, now, 0, 1));
	answer();					/* etcd's revision went back */
	set_revision(token - 1);
	set_key(LEADER, "n1", 11);
	set_key(LEADER, "n1", 99);
	run(SECOND, true);
	assert_true(leads());
	assert_int_equal(view.token, token);
}

/* A read was sent before the time to live was answered, and is answered after it. */
static void
test_read_sent_before(void **state)
{
	int64_t		deadline;

	begin_leading();
	deadline = view.deadline_ns;
	now += 10 * SECOND;
	election_tick(core, now);
	assert_true(asks(ETCD_TIME_TO_LIVE));
	assert_true(election_verify(core, now, 0, 1));
	assert_int_equal(nsent, 2);
	answer();					/* the time to live */
	assert_int_equal(nsent, 3);
	answer();					/* the older read */
	assert_int_equal(view.deadline_ns, deadline);
	answer();
	assert_true(view.deadline_ns > deadline);
}

/* A read of the keys of another namespace is under way. */
static void
test_read_of_other_cluster(void **state)
{
	configure();
	answer_all();
	assert_true(leads());
	assert_true(election_verify(core, now, 0, 1));
	assert_true(asks(ETCD_TXN));
	strcpy(config.patroni_namespace, "other");
	configure();
	assert_false(leads());
	answer();					/* shows the keys of the former namespace */
	assert_string_equal(view.key, "");
	assert_false(view.has_leader && strcmp(view.leader, "n1") == 0);
}

/* The time to live of the former lease is answered after the key went to another one. */
static void
test_other_lease_told(void **state)
{
	begin_leading();
	now += 10 * SECOND;
	election_tick(core, now);
	assert_true(asks(ETCD_TIME_TO_LIVE));
	set_key(LEADER, "n1", 99);
	tell();
	assert_int_equal(view.deadline_ns, now + SECOND);
	/* about lease 11 */
	answer();
	while (asks(ETCD_TXN))
		answer();
	assert_int_equal(view.deadline_ns, now + SECOND);
}

/* The same, but the time to live was answered before. */
static void
test_other_lease_after_told(void **state)
{
	begin_leading();
	now += 10 * SECOND;
	election_tick(core, now);
	answer();
	assert_true(asks(ETCD_TXN));
	set_key(LEADER, "n1", 99);
	answer();
	assert_true(view.deadline_ns <= now + SECOND);
}

/* A read is older than an event. */
static void
test_read_before_event(void **state)
{
	int64_t		before;

	set_key(LEADER, "n2", 11);
	configure();
	answer_all();
	assert_string_equal(view.leader, "n2");
	assert_true(election_verify(core, now, 0, 1));
	before = store_index();
	set_key(LEADER, NULL, 0);
	tell();
	answer_at(before);
	assert_false(view.has_leader && strcmp(view.leader, "n2") == 0);
}

/* The watch tells a hand-over from n2 to n3 before any read. */
static void
test_old_name_new_revision(void **state)
{
	set_key(LEADER, "n2", 11);
	configure();
	answer_all();
	assert_string_equal(view.leader, "n2");
	set_key(LEADER, NULL, 0);
	tell();
	set_key(LEADER, "n3", 12);
	tell();
	assert_false(view.has_leader && strcmp(view.leader, "n2") == 0);
}

/* etcd was away for longer than the TTL, and the key is the same. */
static void
test_etcd_away(void **state)
{
	int64_t		token;
	int64_t		deadline;

	begin_leading();
	token = view.token;
	deadline = view.deadline_ns;
	run(deadline - now - 1, false);
	assert_true(leads());
	run(60 * SECOND, false);
	assert_false(leads());
	assert_int_equal(view.deadline_ns, 0);
	assert_string_equal(events, "unelected(lease_expired) leader(no_contact)");
	run(SECOND, true);
	assert_true(leads());
	assert_int_equal(view.token, token);
	assert_string_equal(events, "unelected(lease_expired) leader(no_contact) leader(n1) elected(n1)");
}

/* Patroni hangs: its lease is not renewed, and the deadline comes first. */
static void
test_patroni_hangs(void **state)
{
	int64_t		expires;

	begin_leading();
	expires = now + 25 * SECOND;
	while (now < expires)
	{
		left_s = (expires - now) / SECOND;
		run(500 * MS, true);
		assert_true(!leads() || now < expires - SECOND);
	}
	assert_false(leads());
	left_s = -1;
	set_key(LEADER, NULL, 0);
	run(20 * SECOND, true);
	assert_string_equal(view.problem, "this server is not in recovery, but there is no leader key of Patroni: is Patroni running here?");
}

/* The lease is gone, and a read still shows the key. */
static void
test_lease_gone(void **state)
{
	left_s = -1;
	configure();
	run(5 * SECOND, true);
	assert_false(leads());
	left_s = 20;
	run(11 * SECOND, true);
	assert_true(leads());
}

/*
 * The key gets another name, and then ours again, with one create revision.  The
 * mod revision of the last put is the token.
 */
static void
test_overwritten(void **state)
{
	int64_t		token;

	begin_leading();
	set_key(LEADER, "n2", 12);
	tell();
	assert_false(leads());
	set_key(LEADER, "n1", 11);
	tell();
	token = store_revision();
	answer_all();
	assert_true(leads());
	assert_int_equal(view.token, token);
	assert_string_equal(events, "unelected(key_changed) leader(n1) elected(n1)");
	set_key(LEADER, "n1", 13);
	run(60 * SECOND, true);
	assert_int_equal(view.token, token);
	set_key(LEADER, NULL, 0);
	set_key(LEADER, "n1", 11);
	tell();
	answer_all();
	assert_true(leads());
	assert_int_equal(view.token, store_revision());
}

/* This server, a standby until now, is promoted. */
static void
promote(uint32_t timeline)
{
	config.in_recovery = false;
	config.timeline = timeline;
	configure();
	answer_all();
}

static void
begin_in_recovery(void)
{
	config.in_recovery = true;
	config.timeline = 0;
	configure();
	answer_all();
	assert_false(leads());
}

/* Patroni tells the timeline of a promotion in its next loop. */
static void
test_promotion(void **state)
{
	set_key(MEMBER, "{\"role\":\"replica\",\"timeline\":1}", 11);
	begin_in_recovery();
	promote(2);
	assert_false(leads());
	set_key(MEMBER, "{\"role\":\"primary\",\"timeline\":1}", 11);
	run(5 * SECOND, true);
	assert_false(leads());
	assert_string_equal(view.problem, "");
	set_key(MEMBER, "{\"role\":\"primary\",\"timeline\":2}", 11);
	run(1100 * MS, true);
	assert_true(leads());
}

/* A copy of the primary was started as a standby of it, with its name, and is promoted. */
static void
test_copy_is_promoted(void **state)
{
	begin_in_recovery();
	promote(2);
	assert_false(leads());
	run(60 * SECOND, true);
	assert_false(leads());
	assert_string_equal(view.problem, "the Patroni cluster below \"/service/batman/\" has its member \"n1\" on timeline 1, and this server is on timeline 2: is it a copy of that member?");
}

/* Patroni restarts the server, and its key has no timeline meanwhile. */
static void
test_timeline_not_told(void **state)
{
	set_key(MEMBER, "{\"role\":\"master\",\"state\":\"restarting\"}", 11);
	configure();
	answer_all();
	assert_false(leads());
	assert_string_equal(view.problem, "");
	run((TTL_S + 11) * SECOND, true);
	assert_false(leads());
	assert_string_equal(view.problem, "the Patroni cluster below \"/service/batman/\" does not say on which timeline its member \"n1\" is");
	set_key(MEMBER, "{\"role\":\"master\",\"timeline\":1}", 11);
	run(11 * SECOND, true);
	assert_true(leads());
	set_key(MEMBER, "{\"role\":\"master\",\"state\":\"restarting\"}", 11);
	run(30 * SECOND, true);
	assert_true(leads());
}

/* The server knows by itself that it is a copy of the primary. */
static void
test_copy(void **state)
{
	config.is_copy = true;
	config.eligible = false;
	configure();
	run(30 * SECOND, true);
	assert_false(leads());
	assert_string_equal(view.problem, "this server was started from a copy of a data directory, so it need not be the member \"n1\" of the Patroni cluster below \"/service/batman/\"");
	config.is_copy = false;
	configure();
	answer_all();
	assert_true(leads());
}

static void
test_strangers(void **state)
{
	set_key(INITIALIZE, "4711", 0);
	configure();
	answer_all();
	assert_false(leads());
	assert_string_equal(view.problem, "the Patroni cluster below \"/service/batman/\" has the system identifier 4711, and this server " SYSTEM_ID ": check \"etcd_leader.elections\" and \"etcd_leader.patroni_namespace\"");
	set_key(INITIALIZE, "", 0);
	run(11 * SECOND, true);
	assert_string_equal(view.problem, "Patroni has not initialized the cluster below \"/service/batman/\" yet");
	set_key(INITIALIZE, SYSTEM_ID, 0);
	set_key(MEMBER, NULL, 11);
	run(11 * SECOND, true);
	assert_false(leads());
	assert_non_null(strstr(view.problem, "has no member \"n1\""));
	set_key(MEMBER, "{}", 11);
	run(11 * SECOND, true);
	assert_true(leads());
	/* its Patroni has no member key for a while; the instance leads on */
	set_key(MEMBER, NULL, 11);
	run(11 * SECOND, true);
	assert_true(leads());
	set_key(INITIALIZE, "4712", 0);
	run(11 * SECOND, true);
	assert_false(leads());
	assert_string_equal(events, "leader(n1) elected(n1) unelected(not_eligible)");
	while (count_keys() > 0)
		delete_key(key_at(0));
	run(11 * SECOND, true);
	assert_non_null(strstr(view.problem, "etcd has no keys of a Patroni cluster below \"/service/batman/\""));
}

/* Values of Patroni's configuration key. */
static void
test_config(void **state)
{
	static const struct
	{
		const char *value;
		bool		paused;
		bool		failsafe;
	}			cases[] = {
		{"{\"pause\": true}", true, false},
		{"{\"pause\": \"on\"}", true, false},
		{"{\"pause\": 1, \"failsafe_mode\": true}", true, true},
		{NULL, false, false},
		{"{\"failsafe_mode\": true}", false, true},
		{"{\"pause\": false, \"failsafe_mode\": \"off\"}", false, false},
		{"{\"pause\": 0, \"failsafe_mode\": 0}", false, false},
		{"{\"pause\": null}", false, false},
		{"[1]", false, false},
		{"{\"pause\": true", false, false},
		{"", false, false}
	};

	set_key(LEADER, NULL, 0);
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		set_key(CONFIG, cases[i].value, 0);
		configure();
		answer_all();
		run(11 * SECOND, true);
		assert_int_equal(strstr(view.problem, "Patroni is paused") != NULL, cases[i].paused);
		assert_int_equal(strstr(view.problem, "failsafe_mode") != NULL, cases[i].failsafe && !cases[i].paused);
	}
}

/* The problem reports a pause even after contact with etcd is lost. */
static void
test_pause_and_etcd_away(void **state)
{
	set_key(CONFIG, "{\"pause\": true}", 0);
	begin_leading();
	run(60 * SECOND, false);
	assert_false(leads());
	assert_non_null(strstr(view.problem, "Patroni is paused"));
}

static void
test_commands(void **state)
{
	begin_leading();
	has_replied = false;
	assert_true(election_resign(core, now, 0, false, 0, 1));
	assert_true(has_replied && replied == ELECTION_NOTHING_TO_DO);
	has_replied = false;
	assert_true(election_campaign(core, now, 0, 1));
	assert_true(has_replied && replied == ELECTION_NOT_ELIGIBLE);
	has_replied = false;
	assert_true(election_proclaim(core, now, 0, "x", 1));
	assert_true(has_replied && replied == ELECTION_NOT_CANDIDATE);
	has_replied = false;
	assert_true(election_transfer(core, now, 0, "n2", now + SECOND, 0, 1));
	assert_true(has_replied && replied == ELECTION_NOT_LEADER);
	assert_true(leads());
	assert_null(next_sent());
}

static void
test_settings(void **state)
{
	begin_leading();
	strcpy(config.node_name, "n2");
	configure();
	assert_false(leads());
	answer_all();
	assert_false(leads());
	assert_string_equal(events, "unelected(not_eligible)");
	strcpy(config.node_name, "n1");
	configure();
	answer_all();
	assert_true(leads());
	strcpy(config.patroni_namespace, "db/");
	configure();
	assert_false(leads());
	answer_all();
	assert_non_null(strstr(view.problem, "below \"/db/batman/\""));
	/* slashes are handled as in Patroni */
	strcpy(config.patroni_namespace, "//service/");
	configure();
	answer_all();
	assert_true(leads());
	config.nelections = 0;
	configure();
	assert_false(leads());
	assert_int_equal(view.state, ELECTION_UNUSED);
	assert_string_equal(watched, "");
	answer_all();
	config.nelections = 1;
	strcpy(config.elections[0], "patroni:batman/1");
	configure();
	answer_all();
	assert_non_null(strstr(view.problem, "below \"/service/batman/1/\""));
}

/* etcd was put back to an earlier state, which has the key. */
static void
test_restored(void **state)
{
	set_key(CONFIG, "{}", 0);
	begin_leading();
	set_revision(store_revision() - 1);
	etcd.term = 2;
	for (int i = 0; i < 25; i++)
	{
		run(SECOND, true);
		/* a leader of the other history may lead for a TTL, so no new deadline yet */
		assert_true(!leads() || view.deadline_ns <= 1000 * SECOND + 25 * SECOND - MARGIN);
	}
	run(30 * SECOND, true);
	assert_true(leads());
}

static void
test_versions(void **state)
{
	static const char *const old[] = {"2.3.8", "3.3.27", "3.4.0", "3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.5.12-rc.1"};
	static const char *const good[] = {"3.4.31", "3.4.42", "3.5.13", "3.5.30", "3.6.0", "3.6.0-rc.1", "3.7.1", "4.0.0", "", "x", "3", "3.4", "3.4.x"};

	for (size_t i = 0; i < lengthof(old); i++)
		assert_true(election_is_etcd_old(old[i]));
	for (size_t i = 0; i < lengthof(good); i++)
		assert_false(election_is_etcd_old(good[i]));
}

static void
test_stop(void **state)
{
	begin_leading();
	assert_false(election_stop(core, now, ELECTION_REASON_SHUTDOWN));
	assert_false(leads());
	assert_string_equal(events, "unelected(shutdown)");
}

/* ---- what fails, and what is sent ---------------------------------------------------- */

/* There is no answer to that request, or etcd refuses it. */
static void
fail_request(Sent *s, EtcdOutcome outcome, int endpoint, int code)
{
	EtcdAnswer	a = {.outcome = outcome, .endpoint = endpoint, .code = code, .message = "failed"};
	uint64_t	id;

	if (code == ETCD_CODE_PERMISSION_DENIED)
		strcpy(a.message, "etcdserver: permission denied");
	assert_non_null(s);
	id = s->id;
	s->id = 0;
	election_receive(core, now, id, &a);
}

static void
refuse(Sent *s)
{
	fail_request(s, ETCD_REFUSED, 0, ETCD_CODE_RESOURCE_EXHAUSTED);
}

/* The newest request that is not answered. */
static Sent *
last_sent(void)
{
	Sent	   *last = NULL;

	for (int i = 0; i < nsent; i++)
	{
		if (sent[i].id != 0)
			last = &sent[i];
	}
	return last;
}

/* Lets time pass until something is sent.  Returns the time that it took. */
static int64_t
wait_until_sent(void)
{
	int64_t		began_ns = now;

	while (next_sent() == NULL)
	{
		election_tick(core, now += MS);
		assert_true(now < began_ns + 60 * SECOND);
	}
	return now - began_ns;
}

/* For that time, requests of that kind fail at the first endpoint, and others are answered. */
static void
fail_for(int64_t duration_ns, EtcdRequestKind kind, EtcdOutcome outcome)
{
	for (int64_t end = now + duration_ns; now < end; now += MS)
	{
		election_tick(core, now);
		for (Sent *s = next_sent(); s != NULL; s = next_sent())
		{
			assert_true(nreads + nquestions < 1000);
			if (s->request.kind == kind)
				fail_request(s, outcome, 0, ETCD_CODE_RESOURCE_EXHAUSTED);
			else
				answer();
		}
	}
}

/* Two questions fail, one at each endpoint, so contact is lost. */
static void
lose_contact(void)
{
	for (int i = 0; election_connected(core); i++)
	{
		(void) wait_until_sent();
		fail_request(next_sent(), ETCD_NO_ANSWER, i % config.nendpoints, 0);
	}
}

/* The configuration key has a new value, and the watch tells it. */
static void
tell_config(const char *value)
{
	EtcdWatchEvent event;
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .watch_id = 2, .events = &event, .nevents = 1};

	set_key(CONFIG, value, 0);
	event = event_of(store_find(bytes(CONFIG)), false, store_revision());
	frame.header = etcd_header();
	election_watched(core, now, &frame);
}

/* A read that is refused is sent again at the next endpoint, and then less and less often. */
static void
test_read_refused(void **state)
{
	int			before;

	for (int n = 1; n <= 2; n++)
	{
		config.nendpoints = n;
		configure();
		answer_all();
		assert_true(election_verify(core, now, 0, 1));
		refuse(next_sent());
		assert_int_equal(next_sent() != NULL, n == 2);
		if (n == 2)
			refuse(next_sent());
		assert_null(next_sent());
		assert_in_range(wait_until_sent(), 40 * MS, 60 * MS);
		answer_all();
	}
	before = nreads;
	assert_true(election_verify(core, now, 0, 1));
	fail_for(10 * SECOND, ETCD_TXN, ETCD_REFUSED);
	assert_in_range(nreads - before, 15, 60);

	/* one answer, and all of that is forgotten */
	(void) wait_until_sent();
	answer_all();
	config.nendpoints = 1;
	configure();
	answer_all();
	assert_true(election_verify(core, now, 0, 1));
	refuse(next_sent());
	assert_in_range(wait_until_sent(), 40 * MS, 60 * MS);
}

/* A read is refused again and again.  The answer to an earlier one ends that. */
static void
test_answer_beside_refusals(void **state)
{
	begin_leading();
	assert_true(election_verify(core, now, 0, 1));
	tell_config("{}");
	assert_ptr_not_equal(next_sent(), last_sent());
	for (int i = 0; i < 6; i++)
	{
		while (last_sent() == next_sent())
			election_tick(core, now += MS);
		refuse(last_sent());
	}
	assert_ptr_equal(next_sent(), last_sent());
	answer();
	assert_true(asks(ETCD_TXN));
}

/* The stream ends again and again.  The reads that follow wait with it, and never less than before. */
static void
test_reads_wait_for_stream(void **state)
{
	begin_leading();
	assert_true(election_verify(core, now, 0, 1));
	fail_for(2 * SECOND, ETCD_TXN, ETCD_REFUSED);
	(void) wait_until_sent();
	refuse(next_sent());
	assert_null(next_sent());
	election_watch_ended(core, now);
	assert_null(next_sent());

	for (int i = 0; i < 7; i++)
	{
		watched[0] = '\0';
		election_watch_ended(core, now);
		while (watched[0] == '\0')
			run(MS, true);
	}
	assert_null(next_sent());
	election_watch_ended(core, now);
	assert_null(next_sent());
	assert_in_range(wait_until_sent(), 100 * MS, SECOND);
}

/* The third denial of a read ends leadership. */
static void
test_third_denial(void **state)
{
	begin_leading();
	assert_true(election_verify(core, now, 0, 1));
	for (int i = 0; i < 3; i++)
	{
		(void) wait_until_sent();
		assert_true(leads());
		assert_true(asks(ETCD_TXN));
		fail_request(next_sent(), ETCD_REFUSED, 0, ETCD_CODE_PERMISSION_DENIED);
	}
	assert_false(leads());
}

/*
 * A question for the time to live has no answer.  It goes to each endpoint at once, and then
 * waits.  An answer, a new lease, and contact that was lost for a moment end the wait.
 */
static void
test_questions_fail(void **state)
{
	int			before;

	config.nendpoints = 2;
	begin_leading();
	now += 10 * SECOND;
	election_tick(core, now);
	before = nreads;
	fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
	assert_true(asks(ETCD_TIME_TO_LIVE));
	assert_int_equal(nreads, before);
	fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
	assert_true(asks(ETCD_TIME_TO_LIVE));
	fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
	assert_null(next_sent());
	before = nquestions;
	fail_for(5 * SECOND, ETCD_TIME_TO_LIVE, ETCD_NO_ANSWER);
	assert_in_range(nquestions - before, 10, 30);
	assert_true(election_connected(core));
	assert_true(leads());

	/* a new lease */
	(void) wait_until_sent();
	fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
	assert_null(next_sent());
	set_key(LEADER, "n1", 99);
	tell();
	assert_true(asks(ETCD_TIME_TO_LIVE));

	/* an answer */
	answer_all();
	now += 10 * SECOND;
	election_tick(core, now);
	fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
	assert_true(asks(ETCD_TIME_TO_LIVE));
	answer_all();
	assert_true(leads());
}

/* Contact is lost for a moment.  With it, the time to live is asked for at once. */
static void
test_contact_ends_wait(void **state)
{
	for (int has_failed = 0; has_failed < 2; has_failed++)
	{
		tear_down(state);
		set_up(state);
		config.nendpoints = 2;
		begin_leading();
		if (has_failed)
		{
			now += 10 * SECOND;
			fail_for(5 * SECOND, ETCD_TIME_TO_LIVE, ETCD_NO_ANSWER);
			assert_true(leads());
			(void) wait_until_sent();
			fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
			assert_null(next_sent());
		}
		assert_true(election_verify(core, now, 0, 1));
		lose_contact();
		(void) wait_until_sent();
		assert_true(asks(ETCD_TXN));
		answer();
		assert_true(asks(ETCD_TIME_TO_LIVE));
		fail_request(next_sent(), ETCD_NO_ANSWER, 0, 0);
		assert_true(asks(ETCD_TIME_TO_LIVE));
	}
}

/* Each answer is of another term.  The renewal is tried again, but not without end. */
static void
test_terms_change(void **state)
{
	begin_leading();
	nreads = nquestions = 0;
	for (int64_t end = now + 20 * SECOND; now < end; now += MS)
	{
		election_tick(core, now);
		while (next_sent() != NULL)
		{
			assert_true(nreads + nquestions < 1000);
			etcd.term++;
			answer();
		}
	}
	assert_in_range(nquestions, 10, 100);
}

/* An answer of a member that is behind its cluster, or without a term, is not believed. */
static void
test_term_of_answer(void **state)
{
	static const uint64_t terms[] = {0, 2};

	begin_leading();
	for (size_t i = 0; i < lengthof(terms); i++)
	{
		int64_t		deadline_ns = view.deadline_ns;

		now += 10 * SECOND;
		election_tick(core, now);
		assert_true(asks(ETCD_TIME_TO_LIVE));
		etcd.term = terms[i];
		answer();
		assert_int_equal(ndistrusted, i + 1);
		assert_int_equal(view.deadline_ns, deadline_ns);
		etcd.term = 3;
		run(SECOND, true);
		assert_true(view.deadline_ns > deadline_ns);
	}
}

/* One answer shows an earlier state of etcd.  The instance leads on, under the same token. */
static void
test_one_older_answer(void **state)
{
	int64_t		before = store_index();
	int64_t		token;

	set_key(CONFIG, "{}", 0);
	begin_leading();
	token = view.token;
	assert_true(election_verify(core, now, 0, 1));
	answer_at(before);
	assert_int_equal(ndistrusted, 1);
	run(20 * SECOND, true);
	assert_true(leads());
	assert_int_equal(view.token, token);
	assert_string_equal(events, "");
}

/*
 * etcd says that the lease is gone, and the key is there.  So it is not asked again before
 * the next renewal, and the deadline stays.
 */
static void
test_lease_gone_key_there(void **state)
{
	int64_t		deadline_ns;

	begin_leading();
	deadline_ns = view.deadline_ns;
	now += 10 * SECOND;
	election_tick(core, now);
	left_s = -1;
	answer_all();
	nquestions = 0;
	run(5 * SECOND, true);
	assert_int_equal(nquestions, 0);
	assert_true(leads());
	assert_int_equal(view.deadline_ns, deadline_ns);
}

/* Two elections follow two clusters.  Each is told the time to live of its own lease. */
static void
test_two_clusters(void **state)
{
	set_key("/service/robin/initialize", SYSTEM_ID, 0);
	set_key("/service/robin/members/n1", "{\"timeline\":1}", 21);
	set_key("/service/robin/leader", "n1", 21);
	strcpy(config.elections[1], "patroni:robin");
	config.nelections = 2;
	begin_leading();
	assert_true(other_view.deadline_ns > now);
	run(60 * SECOND, true);
	assert_true(leads());
	assert_true(other_view.deadline_ns > now);
}

/* Patroni gives the key up, and takes it again on the same lease: the instance leads again at once. */
static void
test_key_again_on_same_lease(void **state)
{
	begin_leading();
	set_key(LEADER, NULL, 0);
	tell();
	answer_all();
	assert_false(leads());
	set_key(LEADER, "n1", 11);
	tell();
	answer_all();
	assert_true(leads());
	assert_int_equal(view.token, store_revision());
	assert_int_equal(view.create_revision, store_revision());

	/* the watch is silent, and a read shows it */
	set_key(LEADER, NULL, 0);
	set_key(LEADER, "n1", 11);
	assert_true(election_verify(core, now, 0, 1));
	answer_all();
	assert_true(leads());
	assert_int_equal(view.token, store_revision());
}

/* The key comes from another member.  Nobody leads before the new lease was asked for. */
static void
test_key_from_other_member(void **state)
{
	Sent		question;

	set_key(LEADER, "n2", 12);
	configure();
	answer_all();
	run(20 * SECOND, true);
	set_key(LEADER, "n1", 13);
	tell();
	assert_int_equal(nsent, 2);
	question = sent[0];
	sent[0] = sent[1];
	sent[1] = question;
	assert_true(asks(ETCD_TXN));
	answer();
	assert_false(leads());
	answer();
	assert_false(leads());
	answer();
	assert_true(leads());
}

/* A server that went into recovery, and comes back, leads again with the next read. */
static void
test_back_from_recovery(void **state)
{
	begin_leading();
	config.in_recovery = true;
	configure();
	assert_false(leads());
	config.in_recovery = false;
	configure();
	assert_false(leads());
	answer_all();
	assert_true(leads());
	assert_string_equal(events, "unelected(not_eligible) elected(n1)");
}

/* Each answer is used once, by whoever does not lead, too: nothing is read twice. */
static void
test_reads_of_follower(void **state)
{
	set_key(LEADER, "n2", 12);
	configure();
	answer_all();

	/* two reads under way */
	nreads = 0;
	assert_true(election_verify(core, now, 0, 1));
	tell_config("{}");
	answer_all();
	assert_int_equal(nreads, 2);

	/* a read that was sent before the change of the leader, and shows it */
	nreads = 0;
	assert_true(election_verify(core, now, 0, 2));
	set_key(LEADER, "n3", 13);
	tell();
	answer_all();
	assert_int_equal(nreads, 3);	/* the second for the event, the third for the renewal */

	/* the watch tells what a read has shown before */
	set_key(LEADER, "n4", 14);
	assert_true(election_verify(core, now, 0, 3));
	answer_all();
	assert_string_equal(view.leader, "n4");
	nreads = 0;
	tell();
	answer_all();
	assert_int_equal(nreads, 0);
}

/* A read that was void when it was answered is sent again. */
static void
test_void_read(void **state)
{
	begin_leading();
	set_key(INITIALIZE, "4711", 0);
	assert_true(election_verify(core, now, 0, 1));
	tell_config("{}");
	assert_int_equal(nsent, 2);
	answer();
	assert_false(leads());
	answer();
	assert_true(asks(ETCD_TXN));
}

/* A reload while a request is under way sends it no second time. */
static void
test_reload_sends_nothing(void **state)
{
	begin_leading();
	now += 10 * SECOND;
	election_tick(core, now);
	nreads = nquestions = 0;
	configure();
	assert_int_equal(nquestions, 0);
	answer();
	assert_true(asks(ETCD_TXN));
	configure();
	assert_int_equal(nquestions, 0);
	answer_all();

	strcpy(config.patroni_namespace, "other");
	nreads = nquestions = 0;
	configure();
	configure();
	assert_int_equal(nreads, 1);
	assert_int_equal(nquestions, 0);
}

/* ---- the cluster --------------------------------------------------------------------- */

/* While the member is on another timeline, its key is read often, and the lease is renewed. */
static void
test_poll_of_timeline(void **state)
{
	set_key(MEMBER, "{\"timeline\":1}", 11);
	config.timeline = 2;
	configure();
	answer_all();
	nquestions = 0;
	for (int i = 0; i < 20; i++)
	{
		run(100 * MS, true);
		assert_true(election_verify(core, now, 0, i + 1));
		answer_all();
	}
	assert_in_range(nquestions, 7, 11);
	assert_string_equal(view.problem, "");

	/* with the right timeline it is over */
	set_key(MEMBER, "{\"timeline\":2}", 11);
	run(SECOND, true);
	assert_true(leads());
	nquestions = 0;
	run(40 * SECOND, true);
	assert_in_range(nquestions, 3, 5);

	/* the next promotion has its time, too */
	config.timeline = 3;
	configure();
	assert_string_equal(view.problem, "");
	answer_all();
	assert_string_equal(view.problem, "");
}

/* The member of a server that does not lead is not asked for its timeline so often. */
static void
test_timeline_of_follower(void **state)
{
	set_key(LEADER, "n2", 12);
	config.timeline = 2;
	configure();
	answer_all();
	nquestions = 0;
	run(20 * SECOND, true);
	assert_in_range(nquestions, 1, 3);
}

/* A standby has no timeline of its own, so it is no stranger. */
static void
test_standby_is_no_stranger(void **state)
{
	begin_in_recovery();
	nquestions = 0;
	run(90 * SECOND, true);
	assert_string_equal(view.problem, "");
	assert_in_range(nquestions, 8, 10);
}

/* Timelines have 32 bits. */
static void
test_timelines(void **state)
{
	static const struct
	{
		const char *member;
		uint32_t	timeline;
		bool		leads;
	}			cases[] = {
		{"{\"timeline\":1}", 1, true},
		{"{\"timeline\":4294967295}", UINT32_MAX, true},
		{"{\"timeline\":4294967297}", 1, false},
		{"{\"timeline\":-4294967295}", 1, false},
		{"{\"timeline\":\"1\"}", 1, false},
		{"[1]", 1, false},
		{"", 1, false}
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		tear_down(state);
		set_up(state);
		set_key(MEMBER, cases[i].member, 11);
		config.timeline = cases[i].timeline;
		configure();
		answer_all();
		assert_int_equal(leads(), cases[i].leads);
	}
}

/* One of the keys is enough to know that a Patroni cluster is there. */
static void
test_keys_of_cluster(void **state)
{
	static const struct
	{
		const char *key;
		const char *value;
		const char *problem;
	}			cases[] = {
		{LEADER, "n2", "has not initialized the cluster"},
		{CONFIG, "{}", "has not initialized the cluster"},
		{MEMBER, "{}", "has not initialized the cluster"},
		{INITIALIZE, SYSTEM_ID, "has no member \"n1\": set"},
		{"/service/batman/history", "[]", "etcd has no keys of a Patroni cluster"}
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		tear_down(state);
		set_up(state);
		while (count_keys() > 0)
			delete_key(key_at(0));
		set_key(cases[i].key, cases[i].value, 0);
		configure();
		assert_string_equal(view.problem, "");	/* nothing was read yet */
		answer_all();
		assert_non_null(strstr(view.problem, cases[i].problem));
	}
}

/* The key that names the database system is deleted. */
static void
test_initialize_deleted(void **state)
{
	begin_leading();
	set_key(INITIALIZE, NULL, 0);
	run(11 * SECOND, true);
	assert_false(leads());
	assert_non_null(strstr(view.problem, "has not initialized the cluster"));
}

/* The name of the node was left out, and is that of the cluster. */
static void
test_node_has_name_of_scope(void **state)
{
	strcpy(config.node_name, "batman");
	configure();
	answer_all();
	assert_non_null(strstr(view.problem, "has no member \"batman\": that is its scope"));
}

/* Whoever leads has no problem, even if Patroni is paused. */
static void
test_no_problem_of_leader(void **state)
{
	static const char *const values[] = {"{\"pause\": true}", "{\"failsafe_mode\": true}"};

	for (size_t i = 0; i < lengthof(values); i++)
	{
		set_key(CONFIG, values[i], 0);
		configure();
		answer_all();
		run(11 * SECOND, true);
		assert_true(leads());
		assert_string_equal(view.problem, "");
	}
}

/* The settings name another cluster.  Nothing is said about it before it was read. */
static void
test_nothing_said_before_read(void **state)
{
	begin_leading();
	strcpy(config.patroni_namespace, "other");
	configure();
	assert_string_equal(view.problem, "");
	answer_all();
	assert_non_null(strstr(view.problem, "etcd has no keys of a Patroni cluster below \"/other/batman/\""));
}

/*
 * Two elections follow two clusters with different TTLs, and etcd is replaced.  The new one is
 * believed only when the longer TTL is over: until then another instance may lead by the old one.
 */
static void
test_patience_of_longer_ttl(void **state)
{
	left_s = 15;
	set_key("/service/robin/initialize", SYSTEM_ID, 0);
	set_key("/service/robin/leader", "n2", 21);
	strcpy(config.elections[1], "patroni:robin");
	config.nelections = 2;
	configure();
	while (next_sent() != NULL)
	{
		granted_s = next_sent()->request.lease == 21 ? 20 : 60;
		answer();
	}
	assert_true(leads());
	granted_s = 60;
	etcd.cluster_id++;
	run(50 * SECOND, true);
	assert_false(leads());
	run(40 * SECOND, true);
	assert_true(leads());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_renewal, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_preferred_nodes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pace, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_bounds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_recovery, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_terms, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_deleted_between, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_watch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_silent_watch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_patroni_restart, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lease_changed_at_deadline, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lease_changed_without_contact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_old_events, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_denied, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_late_answer_after_denial, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_leader_elsewhere, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_leader_restored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_leader_restored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_token_of_other_history, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_sent_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_of_other_cluster, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_lease_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_lease_after_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_before_event, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_old_name_new_revision, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_etcd_away, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_patroni_hangs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_promotion, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_copy_is_promoted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_timeline_not_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_copy, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lease_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_overwritten, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_strangers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_config, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pause_and_etcd_away, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_commands, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_settings, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_restored, set_up, tear_down),
		cmocka_unit_test(test_versions),
		cmocka_unit_test_setup_teardown(test_read_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_answer_beside_refusals, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reads_wait_for_stream, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_third_denial, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_questions_fail, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_contact_ends_wait, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_terms_change, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_term_of_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_older_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lease_gone_key_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_two_clusters, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_key_again_on_same_lease, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_key_from_other_member, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_back_from_recovery, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reads_of_follower, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_void_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reload_sends_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_poll_of_timeline, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_timeline_of_follower, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_standby_is_no_stranger, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_timelines, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_keys_of_cluster, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_initialize_deleted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_node_has_name_of_scope, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_problem_of_leader, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nothing_said_before_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stop, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_patience_of_longer_ttl, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
