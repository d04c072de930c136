/*-------------------------------------------------------------------------
 *
 * election_test.c
 *	  Unit tests of the protocol, with an etcd of one member and virtual time.
 *
 * Each test moves instances, messages and the clock by hand.  So a rare order
 * of messages happens exactly where the test needs it.  The simulator
 * (test/sim) tests random orders.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>

#include "small_etcd.h"
#include "unit.h"

#define TTL_S		5
#define MARGIN		(SECOND / 2)	/* a tenth of the TTL */

#define MAX_INSTANCES	10
#define MAX_MESSAGES	256
#define MAX_EVENTS		4096

static int64_t now;

/* ---- instances and messages ------------------------------------------------ */

typedef struct Message
{
	bool		used;
	bool		executed;
	bool		given_up;		/* the sender has timed out */
	uint64_t	id;
	int64_t		sent_ns;
	EtcdRequest request;
	EtcdAnswer	answer;
} Message;

typedef struct Instance
{
	ElectionCore *core;
	ElectionConfig config;
	ElectionView views[ELECTION_MAX_ELECTIONS];
	Message		messages[MAX_MESSAGES];
	EtcdWatch	watches[3 * ELECTION_MAX_ELECTIONS];
	char		watched[3 * ELECTION_MAX_ELECTIONS][ELECTION_KEY_SIZE];
	int			nwatches;
	bool		watch_silent;
	int			nsent;
	int			nwatched;		/* watches opened, in all streams */
	ElectionReply replied[16];
	bool		has_replied[16];
	bool		remembers;
	ElectionMemory memory;
	ElectionHistory history;
	int			nhistories;		/* so often it was given */
	ElectionTimelines timelines;	/* of the first election */
} Instance;

static Instance instances[MAX_INSTANCES];
static int	ninstances;
static char log_text[MAX_EVENTS][96];
static int	nlogged;
static bool random_is_zero;

static void
note(const char *format,...)
{
	va_list		args;

	assert_true(nlogged < MAX_EVENTS);
	va_start(args, format);
	vsnprintf(log_text[nlogged++], sizeof(log_text[0]), format, args);
	va_end(args);
}

/* Finds the first line of the log with that text, from line `from` on; -1: none. */
static int
find_note(int from, const char *text)
{
	for (int i = from; i < nlogged; i++)
	{
		if (strstr(log_text[i], text))
			return i;
	}
	return -1;
}

static void
port_send(void *ctx, uint64_t id, const EtcdRequest *request)
{
	Instance   *in = ctx;
	Message    *m = NULL;

	for (int i = 0; i < MAX_MESSAGES && m == NULL; i++)
	{
		if (!in->messages[i].used)
			m = &in->messages[i];
	}
	assert_non_null(m);
	memset(m, 0, sizeof(*m));
	m->used = true;
	m->id = id;
	m->sent_ns = now;
	m->request = keep_request(request);
	in->nsent++;
	note("%s sends %s", in->config.node_name, describe(&m->request));
	/* MEMORY: it is erased before, and not after */
	if (strcmp(describe(&m->request), "enter") == 0 || strcmp(describe(&m->request), "delete") == 0)
		assert_false(in->remembers);
	for (int i = 0; i < request->nsuccess; i++)
		assert_true(request->success[i].kind != ETCD_OP_RANGE || request->success[i].key.len > 0);
}

static void
port_watch(void *ctx, const EtcdWatch *watches, int nwatches)
{
	Instance   *in = ctx;

	in->nwatches = nwatches;
	in->nwatched += nwatches;
	for (int i = 0; i < nwatches; i++)
	{
		assert_true(watches[i].key.len > 0);
		in->watches[i] = watches[i];
		memcpy(in->watched[i], watches[i].key.data, watches[i].key.len);
		in->watches[i].key.data = in->watched[i];
	}
}

static void
port_change_endpoint(void *ctx, int endpoint, const char *why)
{
	Instance   *in = ctx;

	note("%s distrusts %d: %s", in->config.node_name, endpoint, why);
}

static void
port_publish(void *ctx, int slot, const ElectionView *view)
{
	Instance   *in = ctx;

	assert_true(view->deadline_ns == 0 || view->deadline_ns > now);
	if (in->views[slot].deadline_ns != 0 && view->deadline_ns == 0)
		note("%s withdraws", in->config.node_name);
	in->views[slot] = *view;
}

static void
port_announce(void *ctx, const ElectionEvent *event)
{
	Instance   *in = ctx;
	const char *reason = election_reason_name(event->reason);

	note("%s: %s %s %s", in->config.node_name, election_event_name(event->kind),
		 event->leader ? event->leader : "-", reason ? reason : "-");
}

static void
port_reply(void *ctx, uint64_t ticket, ElectionReply reply)
{
	Instance   *in = ctx;

	assert_false(in->has_replied[ticket]);
	in->replied[ticket] = reply;
	in->has_replied[ticket] = true;
}

static void
port_remember(void *ctx, const ElectionMemory *memory)
{
	Instance   *in = ctx;

	in->remembers = memory != NULL;
	if (memory)
		in->memory = *memory;
}

static void
port_remember_history(void *ctx, const ElectionHistory *history)
{
	Instance   *in = ctx;

	in->history = *history;
	in->nhistories++;
}

static void
port_remember_timelines(void *ctx, const char *election, const ElectionTimelines *timelines)
{
	Instance   *in = ctx;

	if (strcmp(election, in->config.elections[0]) == 0)
		in->timelines = *timelines;
}

static void
port_report_duplicate_name(void *ctx, const char *election, const char *key)
{
	Instance   *in = ctx;

	note("%s: %s name in %s: %s", in->config.node_name, key ? "duplicate" : "unique", election, key ? key : "-");
}

static void
port_drop(void *ctx, uint64_t id, const char *election, const char *why)
{
	Instance   *in = ctx;

	note("%s drops %s%s%s: %s", in->config.node_name, id == 0 ? "a frame" : "an answer",
		 election ? " for " : "", election ? election : "", why);
}

static uint64_t
port_random(void *ctx)
{
	return random_is_zero ? 0 : random_next();
}

/* ---- etcd ------------------------------------------------------------------------ */

/* Sends an event at that revision on a watch of the instance. */
static void
tell_watch(Instance *in, int w, const Version *key, bool is_delete, int64_t revision)
{
	EtcdWatchEvent event = event_of(key, is_delete, revision);
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .header = etcd_header(), .events = &event, .nevents = 1};

	frame.watch_id = in->watches[w].watch_id;
	election_watched(in->core, now, &frame);
}

static bool
watches_key(const Instance *in, int w, const Version *key)
{
	return bytes_in_range(store_key(key->key)->name, in->watches[w].key, in->watches[w].range_end);
}

/* Sends a change on every open watch that is not silent. */
static void
tell_watches(const Version *key)
{
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];

		if (in->watch_silent || in->core == NULL)
			continue;
		for (int w = 0; w < in->nwatches; w++)
		{
			if (in->watches[w].start_revision > key->revision || !watches_key(in, w, key))
				continue;
			tell_watch(in, w, key, key->deleted, key->revision);
			break;
		}
	}
}

/* Executes a request, and keeps the answer in the message. */
static void
execute(Message *m)
{
	m->executed = true;
	small_etcd_execute(now, &m->request, &m->answer);
}

/*
 * Lets a request of the instance time out.  If it was not executed yet, it may
 * be executed later, unless it is lost.  If it was executed or lost, another
 * message may take its place.
 */
static void
give_up(Instance *in, Message *m, bool lost)
{
	EtcdAnswer	answer = {.outcome = ETCD_NO_ANSWER, .message = "no answer"};
	uint64_t	id = m->id;

	note("%s gives up %s", in->config.node_name, describe(&m->request));
	m->given_up = true;
	m->used = !m->executed && !lost;
	election_receive(in->core, now, id, &answer);
}

/* Executes a request.  The test delivers the answer later than all others. */
static Message
execute_only(Message *m)
{
	execute(m);
	m->used = false;
	return *m;
}

static void
deliver(Instance *in, Message *m)
{
	if (!m->executed)
		execute(m);
	m->used = false;
	if (!m->given_up)
		election_receive(in->core, now, m->id, &m->answer);
}

/* ---- steps of the tests ---------------------------------------------------------- */

static int
setup(void **state)
{
	small_etcd_begin(77, 2, 1);
	store_changed = tell_watches;
	now = 1000 * SECOND;
	random_seed(42);
	ninstances = 0;
	nlogged = 0;
	return 0;
}

static int
teardown(void **state)
{
	for (int i = 0; i < ninstances; i++)
		election_free(instances[i].core);
	memset(instances, 0, sizeof(instances));
	small_etcd_end();
	return 0;
}

static ElectionCore *
new_core(Instance *in)
{
	ElectionPort port = {
		.send = port_send, .watch = port_watch, .change_endpoint = port_change_endpoint,
		.publish = port_publish, .announce = port_announce, .reply = port_reply,
		.remember = port_remember, .remember_history = port_remember_history,
		.remember_timelines = port_remember_timelines, .report_duplicate_name = port_report_duplicate_name,
		.drop = port_drop, .random = port_random, .ctx = in
	};
	ElectionCore *core = election_create(&port, 4);

	assert_non_null(core);
	return core;
}

/* Adds an instance that does not run yet. */
static Instance *
add_instance(const char *name, bool eligible)
{
	Instance   *in = &instances[ninstances++];

	memset(in, 0, sizeof(*in));
	strcpy(in->config.node_name, name);
	in->config.ttl_s = TTL_S;
	in->config.safety_margin_ms = -1;
	in->config.eligible = eligible;
	in->config.nendpoints = 1;
	in->config.nelections = 1;
	strcpy(in->config.elections[0], "e");
	return in;
}

static void
start(Instance *in)
{
	in->core = new_core(in);
	in->config.timelines[0] = in->timelines;
	election_configure(in->core, now, &in->config);
}

static Instance *
start_instance(const char *name, bool eligible)
{
	Instance   *in = add_instance(name, eligible);

	start(in);
	return in;
}

/* The newest message of that kind that is not answered; NULL if there is none. */
static Message *
sent(Instance *in, const char *kind)
{
	Message    *last = NULL;

	for (int i = 0; i < MAX_MESSAGES; i++)
	{
		Message    *m = &in->messages[i];

		if (m->used && !m->given_up && strcmp(describe(&m->request), kind) == 0 &&
			(last == NULL || m->id > last->id))
			last = m;
	}
	return last;
}

/* Answers all messages at once, until no instance sends any more. */
static void
answer_all(void)
{
	bool		moved = true;

	for (int turns = 0; moved; turns++)
	{
		assert_true(turns < 1000);	/* a loop of requests */
		moved = false;
		for (int i = 0; i < ninstances; i++)
		{
			for (int j = 0; j < MAX_MESSAGES; j++)
			{
				Message    *m = &instances[i].messages[j];

				if (m->used && !m->given_up)
				{
					deliver(&instances[i], m);
					moved = true;
				}
			}
		}
	}
}

/* Starts an instance, and answers until it leads, or waits. */
static Instance *
join(const char *name)
{
	Instance   *in = start_instance(name, true);

	answer_all();
	return in;
}

/* The same for one that is not eligible. */
static Instance *
observe(const char *name)
{
	Instance   *in = start_instance(name, false);

	answer_all();
	return in;
}

/* Lets time pass in steps of a millisecond, and answers all messages at once. */
static void
run_for(int64_t ns)
{
	int64_t		end = now + ns;

	while (now < end)
	{
		now += MS;
		expire_leases(now);
		for (int i = 0; i < ninstances; i++)
		{
			if (instances[i].core && election_wakeup_ns(instances[i].core) <= now)
				election_tick(instances[i].core, now);
		}
		answer_all();
	}
}

/* Lets time pass, and answers each message after that delay. */
static void
run_slowly(int64_t ns, int64_t delay_ns)
{
	int64_t		end = now + ns;

	while (now < end)
	{
		now += 10 * MS;
		expire_leases(now);
		for (int i = 0; i < ninstances; i++)
		{
			if (election_wakeup_ns(instances[i].core) <= now)
				election_tick(instances[i].core, now);
			for (int j = 0; j < MAX_MESSAGES; j++)
			{
				Message    *m = &instances[i].messages[j];

				if (m->used && !m->given_up && m->sent_ns + delay_ns <= now)
					deliver(&instances[i], m);
			}
		}
	}
}

/* Lets time pass until that request is sent, and answers all others. */
static Message *
run_until_sent(Instance *in, const char *kind)
{
	for (int64_t end = now + 2 * TTL_S * SECOND; sent(in, kind) == NULL;)
	{
		assert_true(now < end);
		now += MS;
		expire_leases(now);
		election_tick(in->core, now);
		for (int i = 0; i < MAX_MESSAGES; i++)
		{
			Message    *m = &in->messages[i];

			if (m->used && !m->given_up && strcmp(describe(&m->request), kind) != 0)
				deliver(in, m);
		}
	}
	return sent(in, kind);
}

/* Answers until the entry into the last election is sent. */
static Message *
start_entry(Instance *in)
{
	while (sent(in, "enter") == NULL)
		deliver(in, sent(in, "read") ? sent(in, "read") : sent(in, "grant"));
	return sent(in, "enter");
}

/* Begins a new term, and answers until the move to a fresh lease is sent. */
static Message *
start_move(Instance *in)
{
	etcd.term++;
	now = election_wakeup_ns(in->core);
	election_tick(in->core, now);
	deliver(in, sent(in, "keepalive"));
	deliver(in, sent(in, "read"));
	deliver(in, sent(in, "grant"));
	assert_non_null(sent(in, "put"));
	return sent(in, "put");
}

static const Version *
own_key(const Instance *in)
{
	EtcdBytes	name = {in->views[0].key, strlen(in->views[0].key)};

	return store_find(name);
}

static bool
leads(const Instance *in)
{
	return in->views[0].deadline_ns > now;
}

/* ---- tests ------------------------------------------------------------------------ */

static void
test_alone(void **state)
{
	Instance   *a = join("a");

	assert_true(leads(a));
	assert_int_equal(a->views[0].state, ELECTION_LEADING);
	assert_int_equal(a->views[0].token, key_at(0)->create_revision);
	assert_string_equal(a->views[0].leader, "a");
	assert_int_equal(a->views[0].deadline_ns, now + TTL_S * SECOND - MARGIN);
	assert_int_equal(find_note(0, "elected a -"), nlogged - 1);
	run_for(60 * SECOND);
	assert_true(leads(a));
	assert_int_equal(find_note(0, "unelected"), -1);
}

static void
test_idle_requests(void **state)
{
	Instance   *a = start_instance("a", true);
	int			before;

	run_for(20 * SECOND);
	before = a->nsent;
	run_for(50 * SECOND);
	/* two requests in each third of a TTL */
	assert_true(a->nsent - before >= 2 * 29 && a->nsent - before <= 2 * 31);
}

static void
test_handover(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	Instance   *c = join("c");
	int			from;
	int64_t		token;

	token = a->views[0].token;
	assert_true(leads(a) && !leads(b) && !leads(c));
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_string_equal(c->views[0].leader, "a");

	from = nlogged;
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	assert_false(leads(a));
	/* ORDER: leadership is withdrawn before the delete is sent */
	assert_true(find_note(from, "a withdraws") >= 0);
	assert_true(find_note(from, "a withdraws") < find_note(from, "a sends delete"));
	answer_all();
	assert_true(leads(b) && !leads(c) && !leads(a));
	assert_true(b->views[0].token > token);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	run_for(100 * MS);
	assert_string_equal(a->views[0].leader, "b");
	assert_int_equal(a->views[0].state, ELECTION_WAITING);
	assert_true(find_note(from, "a: unelected - resigned") >= 0);
	assert_true(find_note(from, "b: elected b -") >= 0);
	assert_true(find_note(from, "c: leader b -") >= 0);

	/* a is the last in the queue now */
	assert_true(election_resign(b->core, now, 0, false, 0, 1));
	answer_all();
	assert_true(leads(c));
	assert_int_equal(b->views[0].state, ELECTION_RESIGNED);
	run_for(20 * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_RESIGNED);
	assert_true(election_campaign(b->core, now, 0, 2));
	answer_all();
	assert_int_equal(b->replied[2], ELECTION_DONE);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
}

/* An instance that joins is not in the queue: etcd_campaign() waits for its key, or for etcd. */
static void
test_campaign_while_joining(void **state)
{
	Instance   *a = start_instance("a", true);
	int			nsent;

	assert_int_equal(a->views[0].state, ELECTION_JOINING);
	assert_true(election_campaign(a->core, now, 0, 1));
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
	answer_all();
	assert_true(leads(a));

	/* it deletes its key, and will enter again */
	assert_true(election_resign(a->core, now, 0, true, 0, 2));
	assert_true(election_campaign(a->core, now, 0, 3));
	assert_false(a->has_replied[3]);
	run_for(100 * MS);
	assert_true(a->has_replied[3]);
	assert_int_equal(a->replied[3], ELECTION_DONE);
	assert_true(leads(a));
	assert_true(election_campaign(a->core, now, 0, 4));
	assert_int_equal(a->replied[4], ELECTION_NOTHING_TO_DO);

	/* its entry is under way, and nothing else is sent */
	assert_true(election_resign(a->core, now, 0, true, 0, 5));
	nsent = run_until_sent(a, "enter") ? a->nsent : 0;
	assert_true(election_campaign(a->core, now, 0, 6));
	assert_int_equal(a->nsent, nsent);
	answer_all();
	assert_int_equal(a->replied[6], ELECTION_DONE);
}

/* A resignation is refused while another one is under way, and changes nothing then. */
static void
test_resignation_refused(void **state)
{
	Instance   *a = join("a");

	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	assert_false(election_resign(a->core, now, 0, false, 0, 2));
	run_for(SECOND);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_false(a->has_replied[2]);
	assert_true(leads(a));
}

/* The number of requests in a hand-over among ten, between two renewals. */
static void
test_handover_requests(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
	int			before = 0;
	int			after = 0;

	for (int i = 0; i < 10; i++)
		join(names[i]);
	for (int leader = 0; leader < 3; leader++)
	{
		run_for(2 * TTL_S * SECOND / 3);
		before = after = 0;
		for (int i = 0; i < 10; i++)
			before += instances[i].nsent + instances[i].nwatched;
		assert_true(election_resign(instances[leader].core, now, 0, true, 0, 1));
		run_for(200 * MS);
		assert_true(leads(&instances[leader + 1]));
		for (int i = 0; i < 10; i++)
			after += instances[i].nsent + instances[i].nwatched;
		assert_in_range(after - before, 10, 25);
	}
}

/* A renewal reads the known keys by their names.  If one is gone, a read follows. */
static void
test_by_name(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	Instance   *c = join("c");
	Instance   *o = observe("o");
	const EtcdRequest *request;

	now += TTL_S * SECOND / 3;
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];

		election_tick(in->core, now);
		if (sent(in, "keepalive"))
			deliver(in, sent(in, "keepalive"));
		request = &sent(in, "read")->request;
		assert_int_equal(request->nsuccess, in == o ? 1 : in == b ? 3 : 4);
		for (int j = 0; j < request->nsuccess; j++)
			assert_int_equal(request->success[j].range_end.len, in == a && (j == 1 || j == 2) ? 2 : 0);
	}
	answer_all();

	/* no watch reports the deletion of a's key */
	b->watch_silent = c->watch_silent = o->watch_silent = true;
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_false(leads(b));
	run_for(TTL_S * SECOND / 3 + 10 * MS);
	assert_true(leads(b));
	assert_string_equal(c->views[0].leader, "b");
	assert_string_equal(o->views[0].leader, "b");
	assert_int_equal(c->views[0].state, ELECTION_WAITING);
}

/* etcd was put back: a key comes before the first one again. */
static void
put_earlier_key(void)
{
	store_plant(bytes("e/1"), bytes("earlier"), key_at(0)->create_revision - 1, 0);
}

/*
 * A new raft term may be that of an etcd that was put back, where a key comes
 * before the known leader's again.  So the range is read in each new term.
 */
static void
test_by_name_in_new_term(void **state)
{
	Instance   *o;

	join("a");
	o = observe("o");
	run_for(TTL_S * SECOND / 3 + 10 * MS);
	assert_string_equal(o->views[0].leader, "a");

	put_earlier_key();
	run_for(TTL_S * SECOND / 3 + 10 * MS);
	assert_string_equal(o->views[0].leader, "a");
	etcd.term++;
	run_for(TTL_S * SECOND / 3 + 10 * MS);
	assert_string_equal(o->views[0].leader, "earlier");
}

/*
 * The term of an etcd that was put back may be the old one.  If the owner of a
 * known key writes it again, the range is read, too.
 */
static void
test_by_name_written_again(void **state)
{
	for (int i = 0; i < 2; i++)
	{
		Instance   *c;

		teardown(state);
		setup(state);
		join("a");
		join("b");
		c = join("c");
		run_for(TTL_S * SECOND / 3 + 10 * MS);
		assert_string_equal(c->views[0].leader, "a");

		/* the leader's key, or that of the predecessor; no watch tells of it */
		put_earlier_key();
		c->watch_silent = true;
		put_key(bytes(name_of(key_at(1 + i))), key_at(1 + i)->value, key_at(1 + i)->lease);
		run_for(TTL_S * SECOND / 3 + 10 * MS);
		assert_string_equal(c->views[0].leader, "earlier");
	}
}

static bool
is_ordered(const Message *m)
{
	const EtcdOp *last = &m->request.success[m->request.nsuccess - 1];

	return last->kind == ETCD_OP_EMPTY_TXN;
}

/* A read that begins or extends leadership is a proposal; the others only read. */
static void
test_ordered(void **state)
{
	Instance   *a = start_instance("a", true);
	Instance   *b;
	Instance   *c;
	Instance   *o;
	int64_t		revision;

	assert_false(is_ordered(sent(a, "read")));	/* not in the queue yet */
	deliver(a, start_entry(a));
	assert_true(is_ordered(sent(a, "read")));
	answer_all();
	assert_true(leads(a));
	b = join("b");
	c = join("c");
	o = observe("o");
	revision = store_revision();
	now += TTL_S * SECOND / 3;
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *in = &instances[i];

		election_tick(in->core, now);
		if (sent(in, "keepalive"))
			deliver(in, sent(in, "keepalive"));
		assert_int_equal(is_ordered(sent(in, "read")), in != o);
	}
	answer_all();
	assert_int_equal(store_revision(), revision);

	/* an instance that cannot become the first now only reads */
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	deliver(a, sent(a, "revoke"));
	assert_true(is_ordered(sent(b, "read")));
	assert_false(is_ordered(sent(c, "read")));
	assert_false(is_ordered(sent(o, "read")));

	/* b's lease ends, and a mere read that shows c as the first is not enough */
	execute(sent(b, "read"));
	end_lease(b->views[0].lease);
	deliver(c, sent(c, "read"));
	assert_false(leads(c));
	assert_true(is_ordered(sent(c, "read")));
	answer_all();
	assert_true(leads(c));
}

/* a leads, b waits behind a, and c, if n is 3, behind b.  Returns b. */
static Instance *
start_ready(int n)
{
	for (int i = 0; i < n; i++)
	{
		static const char *const names[] = {"a", "b", "c"};

		join(names[i]);
	}
	assert_true(leads(&instances[0]));
	return &instances[1];
}

/* The watch of a waiter reports that the leader's key is gone, although it exists. */
static void
tell_gone(Instance *in, int64_t revision)
{
	const Version *key = own_key(&instances[0]);
	int			w = 0;

	while (w < in->nwatches && !watches_key(in, w, key))
		w++;
	assert_true(w < in->nwatches);
	tell_watch(in, w, key, true, revision);
}

/* The successor leads as soon as the watch reports the deletion, and also sends a read. */
static void
test_ready(void **state)
{
	Instance   *b = start_ready(3);
	Instance   *c = &instances[2];
	int64_t		token = b->views[0].create_revision;

	assert_int_equal(b->views[0].leader_until_ns, now + TTL_S * SECOND);
	assert_true(election_resign(instances[0].core, now, 0, true, 0, 1));
	deliver(&instances[0], sent(&instances[0], "delete"));
	assert_true(leads(b) && !leads(c));
	assert_int_equal(b->views[0].leader_until_ns, b->views[0].deadline_ns);
	assert_int_equal(b->views[0].token, token);
	assert_string_equal(b->views[0].leader, "b");
	assert_true(find_note(0, "b: elected b -") >= 0);
	assert_non_null(sent(b, "read"));
	assert_true(is_ordered(sent(b, "read")));
	answer_all();
	assert_true(leads(b) && !leads(c));
	assert_int_equal(find_note(0, "b: unelected"), -1);
	assert_string_equal(c->views[0].leader, "b");

	/* c is the next */
	run_for(100 * MS);
	assert_true(election_resign(b->core, now, 0, false, 0, 1));
	deliver(b, sent(b, "revoke"));
	assert_true(leads(c));
	answer_all();
	assert_true(leads(c));
}

/* A read that was executed before the event does not count; a later one does. */
static void
test_ready_reads(void **state)
{
	Instance   *b = start_ready(2);
	Message    *read;

	assert_true(election_verify(b->core, now, 0, 1));
	read = sent(b, "read");
	execute(read);
	assert_true(election_resign(instances[0].core, now, 0, false, 0, 2));
	deliver(&instances[0], sent(&instances[0], "revoke"));
	assert_true(leads(b));
	deliver(b, read);
	assert_true(leads(b));
	answer_all();
	assert_true(leads(b));

	/* the event was wrong: a's key exists */
	assert_true(election_campaign(instances[0].core, now, 0, 3));
	answer_all();
	assert_true(election_resign(b->core, now, 0, true, 0, 4));
	answer_all();
	run_for(100 * MS);
	assert_true(leads(&instances[0]) && !leads(b));
	set_revision(store_revision() + 1);
	tell_gone(b, store_revision());
	assert_true(leads(b));
	deliver(b, sent(b, "read"));
	assert_false(leads(b));
	assert_true(find_note(0, "b: unelected - history_changed") >= 0);
	assert_string_equal(b->views[0].leader, "a");
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_string_equal(b->views[0].leader, "a");
}

/* The instance is not ready.  The event does not make it lead before it has read the queue. */
static void
check_not_ready(Instance *in, int64_t revision)
{
	int			from = nlogged;
	char		elected[ELECTION_VALUE_SIZE + 16];

	tell_gone(in, revision);
	assert_int_equal(in->views[0].deadline_ns, 0);
	/* not even for a moment */
	snprintf(elected, sizeof(elected), "%s: elected", in->config.node_name);
	assert_int_equal(find_note(from, elected), -1);
}

static void
test_ready_not_alone(void **state)
{
	(void) start_ready(3);
	check_not_ready(&instances[2], store_revision() + 1);
	assert_non_null(sent(&instances[2], "read"));
}

/* A waiter behind another waiter only reads.  The read may be stale, and makes it ready. */
static void
test_ready_read(void **state)
{
	Instance   *c;

	(void) start_ready(3);
	c = &instances[2];
	assert_true(election_resign(instances[1].core, now, 0, false, 0, 1));
	deliver(&instances[1], sent(&instances[1], "revoke"));
	while (sent(c, "read") == NULL)
	{
		now = election_wakeup_ns(c->core);
		election_tick(c->core, now);
		if (sent(c, "keepalive"))
			deliver(c, sent(c, "keepalive"));
	}
	if (is_ordered(sent(c, "read")))
	{
		/* this is the renewal's read, by the known names; then it reads the queue */
		deliver(c, sent(c, "read"));
		assert_non_null(sent(c, "read"));
	}
	assert_false(is_ordered(sent(c, "read")));
	deliver(c, sent(c, "read"));
	assert_null(sent(c, "read"));
	answer_all();
	tell_gone(c, store_revision() + 1);
	assert_true(leads(c));
}

/* The leader writes its key.  That does not end the wait, and the waiter stays ready. */
static void
test_ready_proclaim(void **state)
{
	Instance   *b = start_ready(2);

	assert_true(election_proclaim(instances[0].core, now, 0, "other", 1));
	answer_all();
	assert_string_equal(b->views[0].leader, "other");
	assert_true(leads(&instances[0]));
	assert_int_equal(find_note(0, "b: elected"), -1);
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

static void
test_ready_older_event(void **state)
{
	Instance   *b = start_ready(2);

	check_not_ready(b, store_revision());
	assert_non_null(sent(b, "read"));
	answer_all();
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

/* The waiter's lease has passed its deadline, before the next renewal notices it. */
static void
test_ready_lapsed(void **state)
{
	Instance   *b = start_ready(2);

	now += TTL_S * SECOND;
	check_not_ready(b, store_revision() + 1);
}

static void
test_ready_lost_watch(void **state)
{
	Instance   *b = start_ready(2);

	b->nwatches = 0;
	election_watch_ended(b->core, now);
	now += SECOND / 2;
	election_tick(b->core, now);
	assert_int_equal(b->nwatches, 1);
	check_not_ready(b, store_revision() + 1);
	answer_all();
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

/*
 * A move that timed out may be executed at any time.  The key then lives as long
 * as the fresh lease, and the deadline is no later.
 */
static void
test_ready_move(void **state)
{
	Instance   *b = start_ready(2);
	Message    *put = start_move(b);
	StoreLease *fresh = store_find_lease(put->request.success[0].lease);

	give_up(b, put, false);
	assert_null(sent(b, "put"));
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
	assert_true(b->views[0].deadline_ns <= fresh->expires_ns[0]);
}

/*
 * Another election was dropped, and its entry may be executed late, so the lease
 * is replaced.  Until then the own key lives on it.
 */
static void
test_ready_tainted(void **state)
{
	Instance   *b = start_ready(2);

	b->config.nelections = 2;
	strcpy(b->config.elections[1], "f");
	election_configure(b->core, now, &b->config);
	answer_all();
	b->config.nelections = 1;
	election_configure(b->core, now, &b->config);
	while (sent(b, "grant") == NULL)
	{
		if (sent(b, "delete"))
			deliver(b, sent(b, "delete"));
		else if (sent(b, "read"))
			deliver(b, sent(b, "read"));
		now += MS;
		election_tick(b->core, now);
	}
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
	assert_true(b->views[0].deadline_ns <= store_find_lease(b->views[0].lease)->expires_ns[0]);
}

/* An operator puts the waiter's key on another lease. */
static void
put_on_other_lease(Instance *b)
{
	EtcdBytes	key = {b->views[0].key, strlen(b->views[0].key)};
	EtcdBytes	value = {"b", 1};

	grant_lease(now, 4711, 100);
	put_key(key, value, 4711);
}

/*
 * The same, but a read shows it before the watch does.  Returns the move that
 * puts the key back.
 */
static Message *
hang_elsewhere(Instance *b)
{
	b->watch_silent = true;
	put_on_other_lease(b);
	b->watch_silent = false;
	assert_true(election_verify(b->core, now, 0, 1));
	deliver(b, sent(b, "read"));
	assert_int_equal(b->views[0].lease, 4711);
	assert_non_null(sent(b, "put"));
	return sent(b, "put");
}

/* The answer to a proclamation shows that the key is on another lease, and the view follows. */
static void
test_shown_lease(void **state)
{
	Instance   *b = start_ready(2);

	b->watch_silent = true;
	put_on_other_lease(b);
	b->watch_silent = false;
	assert_true(election_proclaim(b->core, now, 0, "x", 1));
	deliver(b, sent(b, "put"));
	assert_int_equal(b->views[0].lease, 4711);
}

/* The instance knows that its key is on another lease, and no move is under way. */
static void
test_ready_other_lease(void **state)
{
	Instance   *b = start_ready(2);

	give_up(b, hang_elsewhere(b), true);
	assert_null(sent(b, "put"));
	check_not_ready(b, store_revision() + 1);
}

/* A read shows that the key was put back, before the answer to the move. */
static void
test_ready_put_back(void **state)
{
	Instance   *b = start_ready(2);
	Message    *put = hang_elsewhere(b);

	b->watch_silent = true;
	execute(put);
	b->watch_silent = false;
	assert_true(election_verify(b->core, now, 0, 2));
	deliver(b, sent(b, "read"));
	assert_true(sent(b, "put") == put);
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
	assert_true(b->views[0].deadline_ns <= store_find_lease(b->views[0].lease)->expires_ns[0]);
}

/*
 * A move is executed, and then an operator puts the key on another lease.  A read
 * and the watch show that before the answer to the move comes.  The answer is
 * older than the read.
 */
static void
test_ready_older_move(void **state)
{
	Instance   *b = start_ready(2);
	Message    *put = start_move(b);

	b->watch_silent = true;
	execute(put);
	b->watch_silent = false;
	assert_true(hang_elsewhere(b) == put);
	deliver(b, put);
	check_not_ready(b, store_revision() + 1);
	/* the key is put back on its lease */
	answer_all();
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

/*
 * The same, but only the watch shows it.  The answer to the move comes after the
 * instance was not ready any more, and does not make it ready again.
 */
static void
test_ready_told_move(void **state)
{
	Instance   *b = start_ready(2);
	Message    *put = start_move(b);

	execute(put);
	put_on_other_lease(b);
	check_not_ready(b, store_revision() + 1);
	deliver(b, put);
	check_not_ready(b, store_revision() + 1);
	answer_all();
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

static void
test_ready_left(void **state)
{
	Instance   *b = start_ready(2);

	assert_true(election_resign(b->core, now, 0, true, 0, 1));
	check_not_ready(b, store_revision() + 1);
	answer_all();
	assert_false(leads(b));
	/* it waits behind the leader with a new key, and is ready again */
	run_for(100 * MS);
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

/* A transfer deletes the leader's key and the own key at one revision. */
static void
test_ready_transfer(void **state)
{
	Instance   *b = start_ready(2);
	EtcdWatchEvent events[2];
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .events = events, .nevents = 2};

	assert_int_equal(b->nwatches, 1);
	for (int i = 0; i < 2; i++)
	{
		const Version *key = own_key(&instances[i]);

		events[i] = event_of(key, true, store_revision() + 1);
		assert_true(watches_key(b, 0, key));
	}
	frame.header.cluster_id = etcd.cluster_id;
	frame.header.revision = store_revision() + 1;
	frame.header.raft_term = etcd.term;
	frame.watch_id = b->watches[0].watch_id;
	election_watched(b->core, now, &frame);
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	assert_int_equal(find_note(0, "b: elected"), -1);
}

/* An answer has an older term than before.  etcd may have been put back. */
static void
test_ready_doubt(void **state)
{
	Instance   *b = start_ready(2);

	now += TTL_S * SECOND / 3;
	election_tick(b->core, now);
	deliver(b, sent(b, "keepalive"));
	etcd.term--;
	deliver(b, sent(b, "read"));
	etcd.term++;
	assert_true(find_note(0, "b distrusts") >= 0);
	assert_null(sent(b, "put"));
	check_not_ready(b, store_revision() + 1);
}

/* etcd was put back and is trusted again.  The own key may be of either history. */
static void
test_ready_restored(void **state)
{
	Instance   *b = start_ready(2);
	int64_t		token = b->views[0].create_revision;

	now += TTL_S * SECOND / 3;
	election_tick(b->core, now);
	deliver(b, sent(b, "keepalive"));
	set_revision(store_revision() - 1);
	deliver(b, sent(b, "read"));
	assert_true(find_note(0, "b distrusts") >= 0);
	set_revision(store_revision() + 5);
	run_for(SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(b->views[0].create_revision, token);
	check_not_ready(b, store_revision() + 1);
	answer_all();
	assert_true(election_resign(instances[0].core, now, 0, false, 0, 1));
	run_for(SECOND);
	assert_true(leads(b) && b->views[0].token > token);
}

/*
 * The instance resigns and enters the queue again, and etcd is put back while it
 * does.  Returns the revision that it had seen before.
 */
static int64_t
enter_while_put_back(Instance *in)
{
	int64_t		seen;

	set_revision(store_revision() + 10);
	run_for(2 * TTL_S * SECOND);
	assert_true(election_resign(in->core, now, 0, true, 0, 1));
	deliver(in, sent(in, "delete"));
	set_revision(store_revision() + 10);
	assert_true(election_verify(in->core, now, 0, 2));
	deliver(in, sent(in, "read"));
	while (sent(in, "enter") == NULL)
	{
		answer_all();
		now += MS;
		election_tick(in->core, now);
	}
	seen = store_revision();
	/* the lease exists in that state, too */
	set_revision(store_revision() - 8);
	execute(sent(in, "enter"));
	set_revision(seen + 5);
	give_up(in, sent(in, "enter"), false);
	return seen;
}

/* etcd was put back while the own key was entered: that key is deleted, and another one entered. */
static void
test_ready_reentry(void **state)
{
	Instance   *b = start_ready(2);
	int64_t		seen;

	seen = enter_while_put_back(b);
	run_for(200 * MS);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_true(b->views[0].create_revision > seen);
}

/* etcd has no space: it grants no lease, and executes ordered reads. */
static void
test_no_space(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");

	etcd.is_full = true;
	run_for(20 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(find_note(0, "unelected"), -1);
	end_lease(a->views[0].lease);
	answer_all();
	assert_true(leads(b));
}

/*
 * etcd refuses proposals for a while.  A plain read takes the place of none:
 * leadership ends at the deadline, and begins again with an ordered read.
 */
static void
test_busy(void **state)
{
	Instance   *a = join("a");
	int64_t		deadline_ns;

	join("b");
	deadline_ns = a->views[0].deadline_ns;
	now += TTL_S * SECOND / 3;
	election_tick(a->core, now);
	deliver(a, sent(a, "keepalive"));
	etcd.is_busy = true;
	assert_true(is_ordered(sent(a, "read")));
	deliver(a, sent(a, "read"));
	while (now < deadline_ns)
	{
		now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
		if (sent(a, "keepalive"))
			deliver(a, sent(a, "keepalive"));
		if (sent(a, "read"))
		{
			assert_true(now >= deadline_ns || is_ordered(sent(a, "read")));
			deliver(a, sent(a, "read"));
		}
		assert_true(a->views[0].deadline_ns <= deadline_ns);
	}
	assert_false(leads(a));
	etcd.is_busy = false;
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
}

/* A renewal is confirmed by an ordered read, also while every election is being left. */
static void
test_renewal_while_leaving(void **state)
{
	Instance   *a = join("a");

	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	assert_non_null(sent(a, "delete"));
	now += TTL_S * SECOND / 3;
	election_tick(a->core, now);
	deliver(a, sent(a, "keepalive"));
	assert_true(is_ordered(sent(a, "read")));
}

/*
 * The deletion of the leader's key was missed, and its name exists again: the
 * deletion of that later key is not the end of the wait (etcd #19179).
 */
static void
test_ready_name_again(void **state)
{
	Instance   *b = start_ready(2);
	Version		again = *own_key(&instances[0]);
	int			w = 0;

	while (w < b->nwatches && !watches_key(b, w, &again))
		w++;
	again.create_revision = again.revision = store_revision() + 3;
	tell_watch(b, w, &again, false, store_revision() + 3);
	tell_watch(b, w, &again, true, store_revision() + 4);
	assert_false(leads(b));
	assert_non_null(sent(b, "read"));
}

/* The stream that is open does not watch the own key yet. */
static void
test_ready_other_watch(void **state)
{
	Instance   *b;

	join("a");
	b = observe("b");
	assert_int_equal(b->nwatches, 1);
	assert_int_equal(b->watches[0].range_end.len, 0);
	b->config.eligible = true;
	election_configure(b->core, now, &b->config);
	deliver(b, start_entry(b));
	assert_non_null(sent(b, "read"));
	assert_true(election_verify(b->core, now, 0, 1));
	/* this read makes it ready; as another one is under way, the stream is not opened anew yet */
	deliver(b, sent(b, "read"));
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(b->watches[0].range_end.len, 0);
	check_not_ready(b, store_revision() + 1);
}

/* A candidate that leaves wakes only the waiter behind it. */
static void
test_no_herd(void **state)
{
	Instance   *b;
	Instance   *d;
	int			before;

	join("a");
	b = join("b");
	join("c");
	d = join("d");
	before = d->nsent;
	assert_true(election_resign(b->core, now, 0, false, 0, 1));
	answer_all();
	assert_int_equal(d->nsent, before);
}

/*
 * The deadline counts from the sending.  Only a keepalive and its confirming read
 * move it.
 */
static void
test_renewal(void **state)
{
	Instance   *a = join("a");
	int64_t		deadline;
	int64_t		sent_ns;

	deadline = a->views[0].deadline_ns;
	now = election_wakeup_ns(a->core);
	election_tick(a->core, now);
	sent_ns = now;
	assert_non_null(sent(a, "keepalive"));
	assert_null(sent(a, "read"));
	now += SECOND;
	deliver(a, sent(a, "keepalive"));
	assert_int_equal(a->views[0].deadline_ns, deadline);
	deliver(a, sent(a, "read"));
	assert_int_equal(a->views[0].deadline_ns, sent_ns + TTL_S * SECOND - MARGIN);

	/* only keepalives are answered, until the deadline passes */
	while (leads(a))
	{
		now += 50 * MS;
		election_tick(a->core, now);
		if (sent(a, "keepalive"))
			deliver(a, sent(a, "keepalive"));
		if (sent(a, "read"))
			give_up(a, sent(a, "read"), false);
		assert_true(now < sent_ns + TTL_S * SECOND);
	}
	election_tick(a->core, now);
	assert_true(find_note(0, "a: unelected - lease_expired") >= 0);
}

/* etcd is so slow that a renewal takes longer than the time to the next one. */
static void
test_slow_renewals(void **state)
{
	Instance   *a = join("a");
	int64_t		end;

	for (end = now + 60 * SECOND; now < end;)
	{
		run_slowly(50 * MS, SECOND);
		assert_true(leads(a));
	}
	assert_int_equal(find_note(0, "unelected"), -1);
	assert_int_equal(find_note(0, "disconnected"), -1);

	/* without answers, the number of renewals under way is limited */
	while (leads(a))
	{
		now += 50 * MS;
		election_tick(a->core, now);
	}
	end = 0;
	for (int j = 0; j < MAX_MESSAGES; j++)
		end += a->messages[j].used;
	assert_true(end <= 5);
}

/* Begins two renewals.  Sets their keepalives and the times when they were sent. */
static void
start_renewals(Instance *a, Message *keepalives[2], int64_t sent_ns[2])
{
	answer_all();
	for (int i = 0; i < 2; i++)
	{
		now += TTL_S * SECOND / 3;
		election_tick(a->core, now);
		keepalives[i] = sent(a, "keepalive");
		sent_ns[i] = now;
	}
	assert_true(keepalives[0] != NULL && keepalives[1] != keepalives[0]);
	now += 100 * MS;
}

/* The answer to the older renewal comes last, and does not lower the deadline. */
static void
test_renewals_overtaken(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *keepalives[2];
	int64_t		sent_ns[2];

	start_renewals(a, keepalives, sent_ns);
	for (int i = 1; i >= 0; i--)
	{
		deliver(a, keepalives[i]);
		deliver(a, sent(a, "read"));
		assert_int_equal(a->views[0].deadline_ns, sent_ns[1] + TTL_S * SECOND - MARGIN);
	}
}

/* A read confirms only its own renewal, with the time and the term of that renewal. */
static void
test_renewals_apart(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *keepalives[2];
	Message    *read;
	int64_t		sent_ns[2];

	start_renewals(a, keepalives, sent_ns);
	deliver(a, keepalives[0]);
	read = sent(a, "read");
	execute(read);
	deliver(a, keepalives[1]);
	assert_true(sent(a, "read") != read);
	/* a deposed leader of etcd answered the second keepalive; its read will show that */
	etcd.term++;
	deliver(a, read);
	assert_int_equal(a->views[0].deadline_ns, sent_ns[0] + TTL_S * SECOND - MARGIN);
	deliver(a, sent(a, "read"));
	assert_int_equal(a->views[0].deadline_ns, sent_ns[0] + TTL_S * SECOND - MARGIN);
}

/* The newer renewal is refused, and the lease revoked.  The older one does not count any more. */
static void
test_renewals_refused(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *keepalives[2];
	int64_t		sent_ns[2];
	int64_t		token;
	Message    *read;

	start_renewals(a, keepalives, sent_ns);
	token = a->views[0].token;
	deliver(a, keepalives[0]);
	read = sent(a, "read");
	execute(read);
	/* the member has not applied the grant of the lease */
	execute(keepalives[1]);
	keepalives[1]->answer.ttl_s = 0;
	deliver(a, keepalives[1]);
	assert_false(leads(a));
	assert_non_null(sent(a, "revoke"));
	deliver(a, read);
	while (sent(a, "read"))
		deliver(a, sent(a, "read"));
	assert_false(leads(a));
	run_for(SECOND);
	assert_true(leads(a) && a->views[0].token > token);
}

/* A move to a shorter lease cancels both renewals. */
static void
test_renewals_moved(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *keepalives[2];
	int64_t		sent_ns[2];
	int64_t		deadline;

	start_renewals(a, keepalives, sent_ns);
	deliver(a, keepalives[0]);
	a->config.ttl_s = 2;
	election_configure(a->core, now, &a->config);
	deliver(a, sent(a, "grant"));
	assert_non_null(sent(a, "put"));
	deadline = a->views[0].deadline_ns;
	assert_true(deadline <= now + 2 * SECOND);
	deliver(a, sent(a, "read"));
	deliver(a, keepalives[1]);
	while (sent(a, "read"))
		deliver(a, sent(a, "read"));
	assert_int_equal(a->views[0].deadline_ns, deadline);
	answer_all();
	assert_true(leads(a));
}

/* The watch reports a newer version of the key than the confirming read shows. */
static void
test_confirm_overtaken(void **state)
{
	Instance   *a = join("a");
	int64_t		sent_ns;

	now = election_wakeup_ns(a->core);
	election_tick(a->core, now);
	sent_ns = now;
	deliver(a, sent(a, "keepalive"));
	execute(sent(a, "read"));
	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	execute(sent(a, "put"));
	answer_all();
	assert_string_equal(a->views[0].leader, "other");
	/* the key stands, as is known, and the lease was renewed */
	assert_true(a->views[0].deadline_ns == sent_ns + TTL_S * SECOND - MARGIN);
}

/* A deposed leader of etcd answers the keepalive, and the terms of the answers differ. */
static void
test_term(void **state)
{
	Instance   *a = join("a");
	int64_t		deadline;
	int64_t		token;
	int64_t		lease;
	Message    *keepalive;

	deadline = a->views[0].deadline_ns;
	token = a->views[0].token;
	lease = a->views[0].lease;
	now = election_wakeup_ns(a->core);
	election_tick(a->core, now);
	keepalive = sent(a, "keepalive");
	execute(keepalive);
	etcd.term++;
	deliver(a, keepalive);
	deliver(a, sent(a, "read"));
	assert_int_equal(a->views[0].deadline_ns, deadline);

	/* FRESH: the key moves onto a lease of the new term */
	answer_all();
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	assert_int_not_equal(a->views[0].lease, lease);
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	run_for(10 * SECOND);
	assert_int_equal(count_leases(), 1);	/* the old lease is revoked */
	assert_int_equal(find_note(0, "unelected"), -1);
}

/* GUARD: a move that timed out must not take effect after the next one. */
static void
test_late_move(void **state)
{
	Instance   *a = join("a");
	Message    *late;

	late = start_move(a);
	give_up(a, late, false);
	run_for(3 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	execute(late);
	assert_false(late->answer.outcome == ETCD_ANSWERED && late->answer.succeeded);
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
}

/* The answer to a move is lost.  A read shows that the move took effect. */
static void
test_lost_move(void **state)
{
	Instance   *a = join("a");
	Message    *move;
	int64_t		token;

	token = a->views[0].token;
	move = start_move(a);
	execute(move);
	give_up(a, move, false);
	run_for(2 * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	assert_int_equal(find_note(0, "unelected"), -1);
}

/*
 * The fresh lease is lost, and with it the key.  The first grant and the first
 * move have timed out, and are executed late.  So the watch shows the key on the
 * lease before the answer to the second move says that there is no such lease.
 */
static void
test_lost_fresh_lease(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *grant;
	Message    *move;
	int64_t		token;
	int64_t		fresh;

	a->config.nendpoints = 3;
	election_configure(a->core, now, &a->config);
	answer_all();
	token = a->views[0].token;
	etcd.term++;
	now = election_wakeup_ns(a->core);
	election_tick(a->core, now);
	deliver(a, sent(a, "keepalive"));
	deliver(a, sent(a, "read"));
	grant = sent(a, "grant");
	fresh = grant->request.lease;
	give_up(a, grant, false);
	while (sent(a, "grant") == NULL)
		election_tick(a->core, now += MS);
	assert_true(sent(a, "grant")->request.lease == fresh);
	deliver(a, sent(a, "grant"));
	move = sent(a, "put");
	give_up(a, move, false);
	while (sent(a, "put") == NULL)
		election_tick(a->core, now += MS);
	end_lease(fresh);
	execute(sent(a, "put"));
	execute(grant);
	execute(move);
	assert_true(leads(a));
	assert_true(a->views[0].lease == fresh);
	deliver(a, sent(a, "put"));
	assert_false(leads(a));
	run_for(2 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
	assert_int_equal(count_keys(), 1);
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
}

/* The fresh lease is lost before a key is moved to it.  The old lease stays in use. */
static void
test_lost_fresh_lease_unused(void **state)
{
	Instance   *a = join("a");
	Message    *move;
	int64_t		token;

	token = a->views[0].token;
	move = start_move(a);
	end_lease(move->request.success[0].lease);
	deliver(a, move);
	assert_true(leads(a));
	run_for(2 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	assert_int_equal(find_note(0, "unelected"), -1);
}

/* FINAL: a delete was sent and timed out.  The key exists, but is not used again. */
static void
test_delete_is_final(void **state)
{
	Instance   *a = join("a");
	int64_t		token;

	token = a->views[0].token;
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	while (!a->has_replied[1])
	{
		now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
		if (sent(a, "delete"))
			give_up(a, sent(a, "delete"), false);
	}
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
	for (int i = 0; i < 3000; i++)
	{
		now += MS;
		election_tick(a->core, now);
		answer_all();
		assert_false(leads(a) && a->views[0].token == token);
	}
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
}

/* An entry that timed out takes effect after a resignation.  Its key is deleted. */
static void
test_late_entry(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *late;

	deliver(a, sent(a, "read"));
	deliver(a, sent(a, "grant"));
	late = sent(a, "enter");
	assert_non_null(late);
	a->config.nelections = 2;	/* keeps the lease alive */
	strcpy(a->config.elections[1], "f");
	election_configure(a->core, now, &a->config);
	give_up(a, late, false);
	run_for(2 * SECOND);
	assert_true(leads(a));
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	assert_int_equal(count_keys(), 1);
	execute(late);
	assert_int_equal(count_keys(), 2);
	run_for(4 * SECOND);
	assert_int_equal(count_keys(), 1);
	assert_false(leads(a));
}

/* The answer to an entry is lost.  The key keeps its place before the others. */
static void
test_entry_without_answer(void **state)
{
	Instance   *a = start_instance("a", true);
	Instance   *b;
	Message    *enter;

	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	enter = start_entry(a);
	execute(enter);
	give_up(a, enter, false);
	b = start_instance("b", true);
	(void) start_entry(b);
	deliver(b, sent(b, "enter"));
	assert_true(election_verify(a->core, now, 0, 1));
	deliver(a, sent(a, "read"));	/* a has seen a later revision than that of its key */
	run_for(2 * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, key_at(0)->create_revision);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(find_note(0, "b: elected"), -1);
}

/* A resignation is done when no entry is under way that may still be executed. */
static void
test_resign_in_entry(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter;

	enter = start_entry(a);
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	deliver(a, sent(a, "read"));
	assert_false(a->has_replied[1]);
	execute(enter);
	deliver(a, enter);
	assert_int_equal(count_keys(), 1);
	assert_false(a->has_replied[1]);
	answer_all();
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_int_equal(count_keys(), 0);
}

/* etcd #19597: a waiter whose lease is gone must not lead on its old key. */
static void
test_waiter_lost_lease(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	int64_t		old;

	old = b->views[0].create_revision;
	b->watch_silent = true;
	end_lease(b->views[0].lease);
	b->watch_silent = false;
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	run_for(100 * MS);
	assert_true(leads(b));
	assert_true(b->views[0].token > old);
	assert_int_equal(count_keys(), 1);
	assert_int_equal(b->views[0].token, key_at(0)->create_revision);
}

/*
 * etcd #13675: a member that has not applied the grant answers the keepalive with
 * TTL 0.  The lease lives, and would keep the old key first in the queue.
 */
static void
test_unapplied_grant(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	Message    *keepalive;
	int64_t		lease;
	int			from;

	lease = a->views[0].lease;
	from = nlogged;
	now = election_wakeup_ns(a->core);
	election_tick(a->core, now);
	keepalive = sent(a, "keepalive");
	execute(keepalive);
	keepalive->answer.ttl_s = 0;
	deliver(a, keepalive);
	assert_false(leads(a));
	assert_true(find_note(from, "a sends revoke") > find_note(from, "a withdraws"));
	run_for(100 * MS);
	assert_null(store_find_lease(lease));
	assert_true(leads(b));
	assert_int_equal(a->views[0].state, ELECTION_WAITING);
	assert_int_equal(count_keys(), 2);
}

/* Such a member is not asked for one lease after another: the back-off grows. */
static void
test_late_lessor(void **state)
{
	Instance   *a = start_instance("a", true);
	int			ngrants = 0;

	etcd.most_ttl_s = 1;		/* a keepalive each third of it */
	answer_all();
	etcd.is_late = true;
	run_for(8 * SECOND);
	for (int i = find_note(0, "a sends grant"); i >= 0; i = find_note(i + 1, "a sends grant"))
		ngrants++;
	assert_in_range(ngrants, 3, 12);
	etcd.is_late = false;
	run_for(5 * SECOND);
	assert_true(leads(a));
}

/*
 * A delete that timed out may be executed later.  So its key is not used again,
 * although a read still shows it.
 */
static void
test_key_of_late_delete(void **state)
{
	Instance   *a = join("a");
	int64_t		token = a->views[0].token;
	Message    *late;

	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	late = sent(a, "delete");
	give_up(a, late, false);
	now += TTL_S * SECOND / 3;
	election_tick(a->core, now);
	deliver(a, sent(a, "keepalive"));
	deliver(a, sent(a, "read"));
	assert_int_equal(count_keys(), 1);
	assert_int_equal(a->views[0].state, ELECTION_LEAVING);
	assert_false(a->has_replied[1]);
	execute(late);
	run_for(2 * SECOND);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
}

/* With one endpoint, which may have several members, one failure is no loss of contact. */
static void
test_single_failure(void **state)
{
	Instance   *a = join("a");
	Message    *move;

	now = election_wakeup_ns(a->core);
	election_tick(a->core, now);
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	move = sent(a, "delete");
	now += 10 * MS;
	give_up(a, sent(a, "keepalive"), true);
	/* this one was sent before the failure, so it is no failed retry */
	give_up(a, move, true);
	assert_true(election_connected(a->core));
	assert_false(a->has_replied[1]);
	run_for(2 * SECOND);
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_true(leads(a));
	assert_int_equal(find_note(0, "disconnected"), -1);

	/* the retry fails, too */
	while (sent(a, "keepalive") == NULL)
	{
		now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
	}
	give_up(a, sent(a, "keepalive"), true);
	assert_true(election_connected(a->core));
	while (sent(a, "keepalive") == NULL)
	{
		now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
	}
	assert_true(leads(a));
	give_up(a, sent(a, "keepalive"), true);
	assert_false(election_connected(a->core));
	assert_true(find_note(0, "disconnected") >= 0);
}

/* Without contact, a leader sends a keepalive while older requests are under way. */
static void
test_probe_beside_read(void **state)
{
	Instance   *a = join("a");
	Message    *read;

	assert_true(election_verify(a->core, now, 0, 1));
	read = sent(a, "read");
	assert_non_null(read);
	while (election_connected(a->core))
	{
		now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
		if (sent(a, "keepalive"))
			give_up(a, sent(a, "keepalive"), true);
	}
	assert_true(leads(a));
	assert_true(read->used && !read->given_up);
	assert_null(sent(a, "keepalive"));
	now += TTL_S * SECOND / 18;
	election_tick(a->core, now);
	assert_non_null(sent(a, "keepalive"));

	/* but it sends one probe at a time */
	now += SECOND;
	election_tick(a->core, now);
	give_up(a, read, true);
	assert_null(sent(a, "read"));
	answer_all();
	assert_true(election_connected(a->core));
	assert_true(leads(a));
}

/* Lets all messages except one time out, until contact is lost. */
static void
lose_contact_but(Instance *a, const Message *hanging)
{
	for (int turns = 0; election_connected(a->core); turns++)
	{
		assert_true(turns < 100);
		now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
		for (int i = 0; i < MAX_MESSAGES; i++)
		{
			Message    *m = &a->messages[i];

			if (m != hanging && m->used && !m->given_up)
				give_up(a, m, true);
		}
	}
}

/* When contact is lost again, a new probe does not wait for an old one. */
static void
test_probe_hangs(void **state)
{
	Instance   *a = join("a");
	Message    *read;
	Message    *probe;

	assert_true(election_verify(a->core, now, 0, 1));
	read = sent(a, "read");
	lose_contact_but(a, read);
	now += TTL_S * SECOND / 18;
	election_tick(a->core, now);
	probe = sent(a, "keepalive");
	assert_non_null(probe);
	deliver(a, read);
	assert_true(election_connected(a->core));
	lose_contact_but(a, probe);
	assert_true(leads(a));
	assert_true(probe->used && sent(a, "keepalive") == probe);
	now += TTL_S * SECOND / 18;
	election_tick(a->core, now);
	assert_true(sent(a, "keepalive") != probe);
}

/* The lease in use has a shorter TTL than the settings. */
static void
test_lesser_ttl(void **state)
{
	Instance   *a = join("a");
	int64_t		token;
	int64_t		lease;

	token = a->views[0].token;
	assert_int_equal(election_ttl_ns(a->core, now), TTL_S * SECOND);

	/* the TTL is raised, and etcd grants no lease */
	etcd.is_full = true;
	a->config.ttl_s = 60;
	election_configure(a->core, now, &a->config);
	for (int i = 0; i < 40; i++)
	{
		run_for(SECOND / 2);
		assert_true(leads(a));
	}
	assert_int_equal(election_ttl_ns(a->core, now), TTL_S * SECOND);
	etcd.is_full = false;
	run_for(2 * SECOND);
	assert_true(leads(a));
	assert_int_equal(election_ttl_ns(a->core, now), 60 * SECOND);

	/* etcd grants less than requested */
	etcd.most_ttl_s = 3;
	a->config.ttl_s = 30;
	election_configure(a->core, now, &a->config);
	for (int i = 0; i < 40; i++)
	{
		run_for(SECOND / 2);
		assert_true(leads(a));
	}
	assert_int_equal(election_ttl_ns(a->core, now), 3 * SECOND);

	/* etcd grants less, and the answer to the grant is lost: that lease is used all the same */
	a->config.ttl_s = 40;
	election_configure(a->core, now, &a->config);
	lease = sent(a, "grant")->request.lease;
	execute(sent(a, "grant"));
	give_up(a, sent(a, "grant"), false);
	for (int i = 0; i < 40; i++)
	{
		run_for(SECOND / 2);
		assert_true(leads(a));
		assert_true(a->views[0].deadline_ns <= store_find_lease(key_at(0)->lease)->expires_ns[0]);
	}
	assert_int_equal(a->views[0].lease, lease);
	assert_int_equal(a->views[0].token, token);
	assert_int_equal(find_note(0, "unelected"), -1);
}

/* Leadership that has lapsed is not revived by a smaller margin, and ends with an event. */
static void
test_margin_revives_nothing(void **state)
{
	Instance   *a = start_instance("a", true);

	a->config.safety_margin_ms = 2000;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(leads(a));
	now = a->views[0].deadline_ns + MS;
	a->config.safety_margin_ms = 100;
	election_configure(a->core, now, &a->config);
	assert_false(leads(a));
	assert_true(find_note(0, "a: unelected - lease_expired") >= 0);
}

/* Delivers the answers to reads and keepalives, and no other, for that time. */
static void
renew_for(Instance *in, int64_t time_ns)
{
	Message    *message;

	for (int64_t end = now + time_ns; now < end; now += SECOND / 10)
	{
		election_tick(in->core, now);
		while ((message = sent(in, "read")) != NULL || (message = sent(in, "keepalive")) != NULL)
			deliver(in, message);
	}
}

/*
 * A move to a fresh lease has no answer until that lease is too old.  The move may still be
 * executed.  So a smaller margin does not revive the lease in use, which has been renewed since.
 */
static void
test_margin_after_move(void **state)
{
	Instance   *a = start_instance("a", true);

	a->config.safety_margin_ms = 2000;
	election_configure(a->core, now, &a->config);
	answer_all();
	a->config.ttl_s = TTL_S - 1;
	election_configure(a->core, now, &a->config);
	assert_non_null(sent(a, "grant"));
	renew_for(a, TTL_S * SECOND / 3);
	deliver(a, sent(a, "grant"));
	give_up(a, sent(a, "put"), false);
	assert_true(leads(a));
	while (leads(a))
		renew_for(a, SECOND / 10);
	renew_for(a, SECOND / 10);
	a->config.safety_margin_ms = 100;
	election_configure(a->core, now, &a->config);
	assert_false(leads(a));
	renew_for(a, SECOND);
	assert_false(leads(a));
	answer_all();
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
}

/*
 * A key is moved to a lease with a shorter TTL, and the move may be executed at any time.
 * A greater margin counts for that lease, too.
 */
static void
test_margin_in_move(void **state)
{
	Instance   *a = join("a");
	int64_t		expires_ns;

	a->config.ttl_s = 3;
	election_configure(a->core, now, &a->config);
	expires_ns = now + 3 * SECOND;
	deliver(a, sent(a, "grant"));
	assert_non_null(sent(a, "put"));
	assert_int_equal(a->views[0].deadline_ns, expires_ns - 300 * MS);
	a->config.safety_margin_ms = 1000;
	election_configure(a->core, now, &a->config);
	assert_int_equal(a->views[0].deadline_ns, expires_ns - SECOND);
}

/* A TTL that was raised without contact counts as soon as the lease has lapsed. */
static void
test_ttl_without_lease(void **state)
{
	Instance   *a = join("a");

	a->config.ttl_s = 60;
	election_configure(a->core, now, &a->config);
	assert_true(leads(a));
	assert_int_equal(election_ttl_ns(a->core, now), TTL_S * SECOND);
	while (leads(a))
	{
		assert_int_equal(election_ttl_ns(a->core, now), TTL_S * SECOND);
		now += SECOND / 10;
	}
	assert_int_equal(election_ttl_ns(a->core, now), 60 * SECOND);
	/* less counts at once */
	a->config.ttl_s = 2;
	election_configure(a->core, now, &a->config);
	assert_int_equal(election_ttl_ns(a->core, now), 2 * SECOND);
}

/* Without elections in the settings nothing is sent, and no timer is due at once. */
static void
test_no_elections(void **state)
{
	Instance   *a = join("a");
	int			before;

	assert_true(leads(a));
	a->config.nelections = 0;
	election_configure(a->core, now, &a->config);
	assert_false(leads(a));
	run_for(2 * SECOND);
	assert_int_equal(count_keys(), 0);
	assert_int_equal(count_leases(), 0);
	for (int turn = 0; turn < 2; turn++)
	{
		before = a->nsent;
		for (int i = 0; i < 100; i++)
		{
			now += SECOND / 2;
			election_tick(a->core, now);
			assert_true(election_wakeup_ns(a->core) > now);
		}
		assert_int_equal(a->nsent, before);
		assert_int_equal(a->nwatches, 0);

		/* the same with an instance that starts without elections */
		a->config.nelections = 0;
		if (turn == 0)
		{
			election_free(a->core);
			ninstances = 0;
			nlogged = 0;
			a = start_instance("a", false);
			election_free(a->core);
			a->core = new_core(a);
			memset(a->messages, 0, sizeof(a->messages));
			a->config.eligible = true;
			a->config.nelections = 0;
			election_configure(a->core, now, &a->config);
		}
	}
	assert_false(election_connected(a->core));
	assert_int_equal(find_note(0, "connected"), -1);
	assert_false(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN));
	election_free(a->core);
	a->core = new_core(a);
	election_configure(a->core, now, &a->config);
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(leads(a));
}

/* No deadline depends on a proclamation: a leader's back-off is that of others. */
static void
test_proclaim_not_answered(void **state)
{
	Instance   *a = join("a");
	int64_t		end_ns;
	int			ntries = 0;

	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	for (end_ns = now + 5 * SECOND; now < end_ns; now += 10 * MS)
	{
		Message    *put = sent(a, "put");

		election_tick(a->core, now);
		if (put != NULL)
		{
			ntries++;
			give_up(a, put, true);
		}
		if (sent(a, "keepalive"))
			deliver(a, sent(a, "keepalive"));
		if (sent(a, "read"))
			deliver(a, sent(a, "read"));
	}
	assert_true(leads(a));
	assert_in_range(ntries, 5, 15);
}

/* A read of before a proclamation is answered after it.  The new value stays, for everybody. */
static void
test_proclaim_and_older_read(void **state)
{
	Instance   *a = join("a");
	Instance   *o = observe("o");
	Message    *reads[2];

	for (int i = 0; i < 2; i++)
	{
		assert_true(election_verify(instances[i].core, now, 0, 1));
		reads[i] = sent(&instances[i], "read");
		execute(reads[i]);
	}
	assert_true(election_proclaim(a->core, now, 0, "other", 2));
	deliver(a, sent(a, "put"));
	assert_int_equal(a->replied[2], ELECTION_DONE);
	for (int i = 0; i < 2; i++)
	{
		int			from = nlogged;

		assert_string_equal(instances[i].views[0].leader, "other");
		deliver(&instances[i], reads[i]);
		assert_string_equal(instances[i].views[0].leader, "other");
		assert_int_equal(find_note(from, ": leader"), -1);
	}
	assert_string_equal(o->views[0].leader, "other");
}

/*
 * One watch has reported a change, and another watch has not yet reported an
 * earlier one.  A new stream begins before both changes.
 */
static void
test_watch_start(void **state)
{
	Instance   *a = start_instance("a", true);
	Instance   *b;
	int64_t		revision;
	EtcdBytes	key;
	EtcdBytes	value = {"b", 1};

	answer_all();
	b = join("b");
	assert_int_equal(b->nwatches, 1);
	revision = store_revision();
	b->watch_silent = true;
	end_lease(a->views[0].lease);
	b->watch_silent = false;
	key.data = b->views[0].key;
	key.len = strlen(key.data);
	put_key(key, value, b->views[0].lease);
	assert_int_equal(store_revision(), revision + 2);

	/* the stream ends, and no read is answered before the next one is opened */
	b->nwatches = 0;
	election_watch_ended(b->core, now);
	now += SECOND / 2;
	election_tick(b->core, now);
	assert_int_equal(b->nwatches, 1);
	for (int i = 0; i < b->nwatches; i++)
		assert_true(b->watches[i].start_revision <= revision + 1);
}

/*
 * A renewal asked for the key of an earlier leader, and its answer is newer than
 * the read that showed the present leader.  A new stream begins after that read.
 */
static void
test_watch_start_after_names(void **state)
{
	Instance   *a = join("a");
	Instance   *o;
	Message    *read;
	Message    *renewal;
	int64_t		revision;

	start_instance("b", true);
	o = observe("o");
	assert_string_equal(o->views[0].leader, "a");
	end_lease(a->views[0].lease);
	read = sent(o, "read");
	assert_non_null(read);
	execute(read);
	revision = store_revision();
	now += TTL_S * SECOND / 3;
	election_tick(o->core, now);
	renewal = sent(o, "read");
	assert_ptr_not_equal(renewal, read);

	delete_key(key_at(0));
	deliver(o, read);
	assert_string_equal(o->views[0].leader, "b");
	deliver(o, renewal);
	now += SECOND;
	election_tick(o->core, now);
	assert_int_equal(o->nwatches, 1);
	assert_int_equal(o->watches[0].start_revision, revision + 1);
}

/* etcd confirms these watches of the stream, from 1 on. */
static void
confirm_watches(Instance *in, int n)
{
	for (int i = 1; i <= n; i++)
	{
		EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .header = etcd_header(), .watch_id = i, .created = true};

		election_watched(in->core, now, &frame);
	}
}

/*
 * A stream some of whose watches etcd has not confirmed may be silent.  With the next
 * renewal it is opened anew, and one that is confirmed stays.
 */
static void
test_watch_not_confirmed(void **state)
{
	Instance   *b;
	int			before;

	for (int i = 0; i < 2; i++)
	{
		Instance   *in = add_instance(i == 0 ? "a" : "b", true);

		in->config.nelections = 2;
		strcpy(in->config.elections[1], "f");
		start(in);
		answer_all();
	}
	b = &instances[1];
	for (int nconfirmed = 0; nconfirmed <= 2; nconfirmed++)
	{
		assert_int_equal(b->nwatches, 2);
		confirm_watches(b, nconfirmed);
		before = b->nwatched;
		run_for(2 * TTL_S * SECOND / 3);
		assert_int_equal(b->nwatched > before, nconfirmed < 2);
	}

	/* the next stream has to be confirmed, too */
	election_watch_ended(b->core, now);
	run_for(100 * MS);
	before = b->nwatched;
	run_for(2 * TTL_S * SECOND / 3);
	assert_true(b->nwatched > before);
}

/*
 * The stream ends, and the leader's key is deleted before the next one is opened.  etcd
 * may have compacted that, so a read has to show it, and the next renewal is too late.
 */
static void
test_watch_ended(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");

	run_for(100 * MS);
	b->watch_silent = true;
	end_lease(a->views[0].lease);
	run_for(100 * MS);
	assert_false(leads(b));
	b->nwatches = 0;
	election_watch_ended(b->core, now);
	run_for(100 * MS);
	assert_true(leads(b));
}

/* Somebody deletes the key.  The instance withdraws when the watch reports it, and queues again. */
static void
test_key_deleted(void **state)
{
	Instance   *a = join("a");
	int64_t		token;

	token = a->views[0].token;
	delete_key(key_at(0));
	assert_false(leads(a));
	assert_true(find_note(0, "a: unelected - key_deleted") >= 0);
	answer_all();
	assert_true(leads(a) && a->views[0].token > token);

	/* if the watch is silent, the next renewal shows it */
	a->watch_silent = true;
	token = a->views[0].token;
	delete_key(key_at(0));
	run_for(TTL_S * SECOND / 3 + 10 * MS);
	assert_true(leads(a) && a->views[0].token > token);
}

/* Somebody puts the key on another lease.  The instance leads again when the key is back. */
static void
test_key_changed(void **state)
{
	Instance   *a = start_instance("a", true);
	int64_t		token;
	EtcdBytes	key;
	EtcdBytes	value = {"x", 1};

	answer_all();
	token = a->views[0].token;
	grant_lease(now, 4711, 100);
	key.data = a->views[0].key;
	key.len = strlen(key.data);
	put_key(key, value, 4711);
	assert_false(leads(a));
	assert_true(find_note(0, "a: unelected - key_changed") >= 0);
	answer_all();
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	assert_string_equal(value_of(key_at(0)), "a");
}

/* etcd is away for longer than the TTL, and comes back. */
static void
test_etcd_away(void **state)
{
	Instance   *a = join("a");
	int64_t		deadline;
	int64_t		token;
	int			from;
	int			before;

	token = a->views[0].token;
	deadline = a->views[0].deadline_ns;
	from = nlogged;
	before = a->nsent;
	while (now < deadline + 10 * SECOND)
	{
		now += 10 * MS;
		election_tick(a->core, now);
		for (int j = 0; j < MAX_MESSAGES; j++)
		{
			if (a->messages[j].used && !a->messages[j].given_up)
				give_up(a, &a->messages[j], true);
		}
		assert_true(now < deadline || !leads(a));
	}
	assert_true(a->nsent - before < 60);	/* few requests meanwhile */
	assert_true(find_note(from, "a: disconnected") >= 0);
	assert_true(find_note(from, "a: unelected - lease_expired") > find_note(from, "a: disconnected"));
	assert_true(find_note(from, "a: leader - no_contact") > find_note(from, "a: unelected - lease_expired"));
	assert_false(a->views[0].has_leader);
	from = nlogged;
	expire_leases(now);
	run_for(2 * SECOND);
	assert_true(find_note(from, "a: connected") >= 0);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
}

/* HISTORY: etcd is put back to an earlier state. */
static void
test_history(void **state)
{
	Instance   *a = start_instance("a", true);
	int64_t		token;
	int			from;

	set_revision(1000);
	answer_all();
	token = a->views[0].token;
	from = nlogged;
	lose_all(10);
	etcd.term = 1;
	run_for(4 * TTL_S * SECOND);
	assert_true(find_note(from, "a: unelected - ") >= 0);
	assert_true(find_note(from, "a drops an answer: the member is behind its cluster") >= 0);
	assert_false(leads(a));
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
	set_revision(token + 1);
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
	assert_true(find_note(from, "a: elected a") >= 0);
}

/* An entry has no answer, and then etcd is replaced.  The first key there keeps its place. */
static void
test_entry_before_history(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter;

	set_revision(1000);
	enter = start_entry(a);
	give_up(a, enter, true);
	lose_all(10);
	etcd.cluster_id++;
	run_for(3 * TTL_S * SECOND);
	assert_int_equal(count_keys(), 1);
	assert_int_equal(find_note(0, "a sends delete"), -1);
}

/*
 * Another etcd takes the place of the one that the instance has entered.  An answer of
 * the former that comes late does not make the instance wait for the former again.
 */
static void
test_replaced(void **state)
{
	Instance   *a = join("a");
	Message		late;
	int64_t		replaced = now;

	assert_true(election_verify(a->core, now, 0, 1));
	late = execute_only(sent(a, "read"));
	etcd.cluster_id++;
	lose_all(1000);
	while (election_cluster_id(a->core) != 0)
	{
		now += 10 * MS;
		election_tick(a->core, now);
		for (int i = 0; i < MAX_MESSAGES && election_cluster_id(a->core) != 0; i++)
		{
			if (a->messages[i].used)
				deliver(a, &a->messages[i]);
		}
		assert_true(now < replaced + 3 * TTL_S * SECOND);
	}
	assert_false(leads(a));
	election_receive(a->core, now, late.id, &late.answer);
	run_for(SECOND);
	assert_int_equal(election_cluster_id(a->core), etcd.cluster_id);
	assert_true(leads(a));
}

/* A frame of the watch is of another cluster.  The instance stays in its own, and leads on. */
static void
test_frame_of_other_cluster(void **state)
{
	Instance   *a = join("a");
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .header = etcd_header(), .watch_id = 1};

	frame.header.cluster_id++;
	election_watched(a->core, now, &frame);
	assert_int_equal(election_cluster_id(a->core), etcd.cluster_id);
	run_for(3 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(find_note(0, "unelected"), -1);
}

static void
test_observer(void **state)
{
	Instance   *o = observe("o");
	Instance   *a;

	assert_int_equal(o->views[0].state, ELECTION_OBSERVING);
	assert_false(o->views[0].has_leader);
	assert_int_equal(count_leases(), 0);
	a = join("a");
	assert_true(leads(a));
	assert_string_equal(o->views[0].leader, "a");
	assert_true(election_proclaim(a->core, now, 0, "other", 3));
	answer_all();
	assert_int_equal(a->replied[3], ELECTION_DONE);
	assert_string_equal(o->views[0].leader, "other");
	assert_string_equal(a->views[0].leader, "other");
	assert_true(find_note(0, "o: leader other proclaimed") >= 0);

	o->config.eligible = true;
	election_configure(o->core, now, &o->config);
	answer_all();
	assert_int_equal(o->views[0].state, ELECTION_WAITING);
	a->config.eligible = false;
	election_configure(a->core, now, &a->config);
	assert_false(leads(a));
	answer_all();
	assert_true(leads(o));
	assert_int_equal(a->views[0].state, ELECTION_OBSERVING);
	assert_true(find_note(0, "a: unelected - not_eligible") >= 0);
	assert_int_equal(count_leases(), 1);
}

/* The elector crashes.  A new one begins with the memory of the old one. */
static void
crash(Instance *in)
{
	ElectionPort port = {
		.send = port_send, .watch = port_watch, .change_endpoint = port_change_endpoint,
		.publish = port_publish, .announce = port_announce, .reply = port_reply,
		.remember = port_remember, .remember_history = port_remember_history,
		.remember_timelines = port_remember_timelines, .report_duplicate_name = port_report_duplicate_name,
		.drop = port_drop, .random = port_random, .ctx = in
	};

	election_free(in->core);
	memset(in->messages, 0, sizeof(in->messages));
	memset(in->views, 0, sizeof(in->views));
	in->nwatches = 0;
	in->core = election_create(&port, 4);
	assert_non_null(in->core);
	(void) election_resume(in->core, now, &in->history, in->remembers ? &in->memory : NULL);
	in->remembers = false;
	election_configure(in->core, now, &in->config);
}

/* Somebody has put the key on another lease.  After a crash the instance does not take it for its own. */
static void
test_resume_moved_key(void **state)
{
	Instance   *a = join("a");
	EtcdBytes	value = {"operator", 8};
	EtcdBytes	key;

	assert_true(election_proclaim(a->core, now, 0, "wanted", 1));
	grant_lease(now, 4711, 100);
	key.data = a->views[0].key;
	key.len = strlen(key.data);
	put_key(key, value, 4711);
	deliver(a, sent(a, "read"));
	assert_int_equal(a->views[0].lease, 4711);
	assert_true(a->remembers);
	crash(a);
	assert_int_equal(a->views[0].lease, 4711);
	answer_all();
	assert_true(leads(a));
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	assert_string_equal(value_of(key_at(0)), "wanted");
	assert_string_equal(a->views[0].leader, "wanted");
}

/* MEMORY: after a crash the instance leads with the same token, but not before a read. */
static void
test_resume(void **state)
{
	Instance   *a = join("a");
	Instance   *b;
	Instance   *leader;
	int64_t		token;
	int			from;

	token = a->views[0].token;
	b = join("b");
	assert_true(election_proclaim(a->core, now, 0, "elsewhere", 1));
	answer_all();
	from = nlogged;

	/* soon after: a leads on, and b has not noticed */
	now += SECOND;
	crash(a);
	assert_false(leads(a));
	answer_all();
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	assert_string_equal(a->views[0].leader, "elsewhere");
	assert_int_equal(find_note(from, "b:"), -1);
	assert_int_equal(count_leases(), 2);
	run_for(10 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);

	/* the second in the queue keeps its place */
	crash(b);
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(count_keys(), 2);

	/* after the deadline: a new token */
	now += TTL_S * SECOND;
	crash(a);
	answer_all();
	assert_int_not_equal(a->views[0].token, token);
	run_for(2 * TTL_S * SECOND);

	/* while a deletion is under way the memory is empty */
	leader = leads(a) ? a : b;
	assert_true(leads(leader));
	token = leader->views[0].token;
	assert_true(leader->remembers);
	assert_true(election_resign(leader->core, now, 0, true, 0, 2));
	assert_non_null(sent(leader, "delete"));
	assert_false(leader->remembers);
	crash(leader);
	answer_all();
	assert_int_not_equal(leader->views[0].token, token);
	run_for(2 * TTL_S * SECOND);

	/* the same after a shutdown */
	assert_true(a->remembers);
	(void) election_stop(a->core, now, ELECTION_REASON_SHUTDOWN);
	assert_false(a->remembers);
}

/*
 * Two instances with one name: each reports that once.  An own key from before a
 * crash is not reported.
 */
static void
test_duplicate_name(void **state)
{
	Instance   *a = join("a");
	Instance   *copy;
	int			first;

	memset(&a->memory, 0, sizeof(a->memory));
	a->remembers = false;
	crash(a);
	run_for(4 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(find_note(0, "duplicate name"), -1);

	copy = start_instance("a", true);
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(copy->views[0].state, ELECTION_WAITING);
	first = find_note(0, "a: duplicate name in e: e/");
	assert_true(first >= 0);
	first = find_note(first + 1, "a: duplicate name in e: e/");
	assert_true(first >= 0);
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(find_note(first + 1, "a: duplicate name in e: e/"), -1);
	(void) start_instance("b", true);
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(find_note(0, "b: duplicate name"), -1);

	/* b is the last of the queue now, but the name is still that of two */
	assert_int_equal(find_note(0, "a: unique name"), -1);
}

/* Runs until both instances named "a" say so, or do not any more. */
static void
expect_both(int from, const char *what)
{
	run_for(4 * TTL_S * SECOND);
	from = find_note(from, what);
	assert_true(from >= 0);
	from = find_note(from + 1, what);
	assert_true(from >= 0);
	assert_int_equal(find_note(from + 1, "name in e"), -1);
}

/* Two instances have one name, until one of them is gone, or renamed, or resigns. */
static void
test_duplicate_name_ends(void **state)
{
	Instance   *a = join("a");
	Instance   *copy;
	int			from = nlogged;

	copy = start_instance("a", true);
	expect_both(from, "a: duplicate name in e: e/");
	(void) start_instance("b", true);
	run_for(TTL_S * SECOND);
	from = nlogged;
	(void) election_stop(copy->core, now, ELECTION_REASON_SHUTDOWN);
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(find_note(from, "a: unique name in e") >= 0);

	from = nlogged;
	copy = start_instance("a", true);
	expect_both(from, "a: duplicate name in e: e/");
	from = nlogged;
	strcpy(copy->config.node_name, "c");
	election_configure(copy->core, now, &copy->config);
	expect_both(from, ": unique name in e");

	from = nlogged;
	strcpy(copy->config.node_name, "a");
	election_configure(copy->core, now, &copy->config);
	expect_both(from, "a: duplicate name in e: e/");
	from = nlogged;
	assert_true(election_resign(copy->core, now, 0, false, 0, 1));
	expect_both(from, "a: unique name in e");
}

/* Reads that etcd refuses are not sent again at once. */
static void
test_read_refused(void **state)
{
	Instance   *a = join("a");
	int			before;

	etcd.is_busy = true;
	assert_true(election_verify(a->core, now, 0, 1));
	before = a->nsent;
	run_for(SECOND);
	assert_true(a->nsent - before >= 2 && a->nsent - before < 40);
	etcd.is_busy = false;
	run_for(SECOND);
	assert_true(a->has_replied[1]);
}

/* A key of another program is too long to be kept: the queue is read, not its name. */
static void
test_long_key(void **state)
{
	static char long_name[ELECTION_KEY_SIZE + 40] = "e/";
	EtcdBytes	name = {long_name, sizeof(long_name) - 1};
	EtcdBytes	value = {"x", 1};
	Instance   *a = start_instance("a", true);
	Instance   *b;

	answer_all();
	memset(long_name + 2, 'x', sizeof(long_name) - 3);
	put_key(name, value, 0);
	b = join("b");
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	run_for(3 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_string_equal(b->views[0].leader, "a");
	assert_true(leads(a));

	/* now it leads */
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_false(leads(b));
	run_for(3 * TTL_S * SECOND);
	assert_string_equal(b->views[0].leader, "x");
	delete_key(store_find(name));
	run_for(TTL_S * SECOND);
	assert_true(leads(b));
}

/* EPOCH: the instance enters while the read is under way, so another read has to show the leader. */
static void
test_verify_void(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter = start_entry(a);
	Message    *verifying;

	assert_true(election_verify(a->core, now, 0, 1));
	verifying = sent(a, "read");
	assert_non_null(verifying);
	execute(verifying);
	deliver(a, enter);
	deliver(a, verifying);
	assert_false(a->has_replied[1]);
	answer_all();
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_true(leads(a));
}

/*
 * It leaves while it enters, its key is the first, and is gone again.  It has not led,
 * so it does not announce that.
 */
static void
test_leader_before(void **state)
{
	Instance   *a = join("a");
	Message    *m;

	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	execute(start_entry(a));
	assert_true(election_resign(a->core, now, 1, false, 0, 1));
	while ((m = sent(a, "read")) != NULL)
		deliver(a, m);
	give_up(a, sent(a, "enter"), false);
	while ((m = sent(a, "read")) != NULL)
		deliver(a, m);
	assert_true(a->views[1].has_leader);
	execute(sent(a, "delete"));
	now += TTL_S * SECOND / 3;
	election_tick(a->core, now);
	deliver(a, sent(a, "keepalive"));
	while ((m = sent(a, "read")) != NULL)
		deliver(a, m);
	assert_int_equal(find_note(0, "a: leader a"), -1);
	answer_all();
	assert_int_equal(a->views[1].state, ELECTION_RESIGNED);
}

/* A read that was sent before the command does not verify leadership. */
static void
test_verify(void **state)
{
	Instance   *a = join("a");
	Message    *before;
	Message    *verifying;

	now += TTL_S * SECOND / 3;
	election_tick(a->core, now);
	deliver(a, sent(a, "keepalive"));
	before = sent(a, "read");
	assert_non_null(before);

	assert_true(election_verify(a->core, now, 0, 1));
	verifying = sent(a, "read");
	assert_ptr_not_equal(verifying, before);
	assert_false(election_verify(a->core, now, 0, 2));
	deliver(a, before);
	assert_false(a->has_replied[1]);

	/* after a time-out it is sent again */
	give_up(a, verifying, true);
	now += SECOND;
	election_tick(a->core, now);
	assert_false(a->has_replied[1]);

	/* the result is published before the reply */
	a->watch_silent = true;
	delete_key(own_key(a));
	answer_all();
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_true(find_note(0, "unelected") >= 0);

	/* an election that is dropped meanwhile, and a slot without an election */
	assert_true(election_verify(a->core, now, 0, 3));
	strcpy(a->config.elections[0], "f");
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(a->has_replied[3]);
	assert_true(election_verify(a->core, now, 3, 4));
	assert_int_equal(a->replied[4], ELECTION_NOTHING_TO_DO);
}

/* The read of etcd_verify_leader() fails after a later read was answered.  It is sent again at once. */
static void
test_verify_and_later_read(void **state)
{
	Instance   *o;
	Message    *verifying;

	join("a");
	o = observe("o");
	run_for(100 * MS);
	assert_true(election_verify(o->core, now, 0, 1));
	verifying = sent(o, "read");
	election_watch_ended(o->core, now);
	assert_ptr_not_equal(sent(o, "read"), verifying);
	deliver(o, sent(o, "read"));
	assert_false(o->has_replied[1]);
	give_up(o, verifying, true);
	run_for(200 * MS);
	assert_true(o->has_replied[1]);
	assert_int_equal(o->replied[1], ELECTION_DONE);
}

/* etcd was put back, so a new key has a create revision that was used before. */
static void
test_token_twice(void **state)
{
	Instance   *a = join("a");
	int64_t		token;
	int			from;

	token = a->views[0].token;
	from = nlogged;
	/* to the state just before the entry, without the lease */
	lose_all(token - 1);
	for (int i = 0; i < 5 * 1000; i++)
	{
		run_for(MS);
		assert_true(!leads(a) || find_note(from, "unelected") < 0 || a->views[0].token > token);
	}
	assert_true(find_note(from, "a: unelected - ") >= 0);
	assert_true(leads(a));
}

/*
 * The same for a second entry with the same name.  Its answer is lost, and when
 * its retry is answered, etcd's revision is higher than before the restore.
 */
static void
test_token_of_reentry(void **state)
{
	Instance   *a = join("a");
	int64_t		seen;

	seen = enter_while_put_back(a);
	for (int i = 0; i < 5 * 1000; i++)
	{
		run_for(MS);
		assert_true(!leads(a) || a->views[0].token > seen);
	}
	assert_true(leads(a));
}

/*
 * A key was moved, deleted and entered again under the same name.  Then etcd is
 * put back to the first key, and no watch shows that.  The first key is on a
 * lease that is kept alive, and is neither the first in the queue nor just before
 * the own key.
 */
static void
test_moved_name(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	Instance   *c = join("c");
	Version		first;

	etcd.term++;
	run_for(2 * TTL_S * SECOND);
	first = *own_key(b);
	assert_int_equal(first.lease, b->views[0].lease);
	assert_true(first.revision > first.create_revision);

	assert_true(election_resign(b->core, now, 0, true, 0, 1));
	run_for(SECOND);
	assert_int_equal(count_keys(), 3);
	assert_true(b->views[0].create_revision > first.create_revision);
	delete_key(own_key(b));
	store_plant(store_key(first.key)->name, first.value, first.create_revision, first.lease);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(count_keys(), 3);
	assert_true(leads(a));
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(c->views[0].state, ELECTION_WAITING);
}

/*
 * The same if the instance leaves the election while its key is moved; if the
 * answer to the move is also lost; and if the election is dropped.
 */
static void
test_left_in_move(void **state)
{
	enum
	{
		LEFT, LOST, DROPPED
	};
	Instance   *a = start_instance("a", true);
	int			f;

	a->config.nendpoints = 2;
	a->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	election_configure(a->core, now, &a->config);
	answer_all();
	f = election_find(a->core, "f");
	for (int how = LEFT; how <= DROPPED; how++)
	{
		Message    *move;
		Version		moved;

		move = start_move(a);
		execute(move);
		moved = *own_key(a);
		if (how == DROPPED)
		{
			a->config.nelections = 1;
			election_configure(a->core, now, &a->config);
			deliver(a, sent(a, "delete"));
			assert_int_equal(a->views[f].state, ELECTION_UNUSED);
		}
		else
			assert_true(election_resign(a->core, now, 0, true, 0, 1 + how));
		if (how == LOST)
		{
			deliver(a, sent(a, "delete"));
			give_up(a, move, false);
			/* the key of f is moved before a read shows its lease */
			while (sent(a, "put") == NULL)
			{
				now += MS;
				election_tick(a->core, now);
			}
			deliver(a, sent(a, "put"));
		}
		else
			deliver(a, move);
		run_for(2 * TTL_S * SECOND);
		assert_true(leads(a));
		assert_string_equal(a->views[0].key, name_of(&moved));
		/* DROPPED replaces the lease of the move, because a key may still be put on it */
		assert_int_equal(a->views[0].lease == moved.lease, how != DROPPED);
		assert_int_equal(store_find_lease(moved.lease) != NULL, how != DROPPED);
	}
}

/*
 * An operator deletes the key of the leader and writes it anew, on the same lease.  The
 * leader, whose watch is silent, does not go on under the token of before.
 */
static void
test_key_written_anew(void **state)
{
	Instance   *a = join("a");
	int64_t		token = a->views[0].token;
	Version		old = *own_key(a);

	a->watch_silent = true;
	delete_key(own_key(a));
	put_key(store_key(old.key)->name, old.value, old.lease);
	assert_true(own_key(a)->create_revision > token);
	assert_true(election_verify(a->core, now, 0, 1));
	deliver(a, sent(a, "read"));
	assert_false(leads(a));
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
	assert_int_equal(a->views[0].token, own_key(a)->create_revision);
}

/* Contact is lost without the endpoints that are not used, and not before. */
static void
test_ignored_endpoints(void **state)
{
	Instance   *a = join("a");

	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	for (int ignored = 0; ignored < 2; ignored++)
	{
		election_ignore_endpoints(a->core, ignored ? 2 : 0);
		for (int64_t end = now + SECOND; now < end; now += 10 * MS)
		{
			election_tick(a->core, now);
			for (int i = 0; i < MAX_MESSAGES; i++)
			{
				if (a->messages[i].used && !a->messages[i].given_up)
					give_up(a, &a->messages[i], true);
			}
		}
		assert_int_equal(election_connected(a->core), !ignored);
	}
}

/*
 * The client may stay at an endpoint, because a request that fails at another one is
 * answered by this one.  Without contact, that endpoint is not asked again and again.
 */
static void
test_same_endpoint_fails(void **state)
{
	Instance   *a;
	int			nsent = 0;

	a = start_instance("a", true);
	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	for (int64_t end = now + 10 * SECOND; now < end; now += MS)
	{
		if (election_wakeup_ns(a->core) <= now)
			election_tick(a->core, now);
		for (int i = 0; i < MAX_MESSAGES; i++)
		{
			if (!a->messages[i].used || a->messages[i].given_up)
				continue;
			nsent++;
			give_up(a, &a->messages[i], true);
		}
	}
	assert_in_range(nsent, 10, 30);
}

/*
 * etcd denies a txn if the user has no rights to one of its keys.  An election without
 * rights costs no other one its leadership: not when it is added, not when it is dropped,
 * and not at a start.
 */
static void
test_election_without_rights(void **state)
{
	Instance   *a = join("a");
	int64_t		token;
	int			nreads = 0;
	int			from;

	token = a->views[0].token;
	etcd.denied = "f/";
	a->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	election_configure(a->core, now, &a->config);
	from = nlogged;
	for (int64_t end = now + 3 * TTL_S * SECOND; now < end;)
	{
		run_for(100 * MS);
		assert_true(leads(a));
	}
	assert_int_equal(a->views[0].token, token);
	for (int i = find_note(from, "a sends read"); i >= 0; i = find_note(i + 1, "a sends read"))
		nreads++;
	/* once a second, and with each renewal */
	assert_in_range(nreads, 3 * TTL_S, 2 * 3 * TTL_S + 20);

	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	for (int64_t end = now + 3 * TTL_S * SECOND; now < end;)
	{
		run_for(100 * MS);
		assert_true(leads(a));
	}
	assert_int_equal(a->views[0].token, token);

	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	run_for(3 * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);

	/* with rights, both */
	etcd.denied = NULL;
	run_for(3 * SECOND);
	assert_int_equal(a->views[election_find(a->core, "f")].state, ELECTION_LEADING);
}

/* The same at a start. */
static void
test_start_without_rights(void **state)
{
	Instance   *a;

	etcd.denied = "f/";
	a = start_instance("a", true);
	a->config.nelections = 2;
	strcpy(a->config.elections[1], "e");
	strcpy(a->config.elections[0], "f");
	election_configure(a->core, now, &a->config);
	run_for(3 * TTL_S * SECOND);
	assert_int_equal(a->views[election_find(a->core, "e")].state, ELECTION_LEADING);
}

/* Without rights to any key, the lease is renewed all the same, and then used. */
static void
test_no_rights_at_all(void **state)
{
	Instance   *a;
	int			from;

	a = start_instance("a", true);
	run_for(SECOND);
	etcd.denied = "e/";
	run_for(2 * TTL_S * SECOND);
	assert_false(leads(a));
	from = nlogged;
	run_for(6 * TTL_S * SECOND);
	assert_int_equal(find_note(from, "a sends grant"), -1);
	etcd.denied = NULL;
	run_for(2 * SECOND);
	assert_true(leads(a));
	assert_int_equal(find_note(from, "a sends grant"), -1);
}

/* An instance that leads both e and f. */
static Instance *
lead_two(void)
{
	Instance   *a = start_instance("a", true);

	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	run_for(SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	return a;
}

/*
 * Somebody puts a key back on the lease that it was moved from, and no watch tells of it.
 * The key keeps its place, and the token stays the same.
 */
static void
test_key_on_retired_lease(void **state)
{
	Instance   *a = lead_two();
	Instance   *b = add_instance("b", true);
	int64_t		token = a->views[1].token;
	int64_t		old = a->views[1].lease;
	const Version *key;

	strcpy(b->config.elections[0], "f");
	start(b);
	answer_all();
	a->watch_silent = true;
	deliver(a, start_move(a));
	key = store_find(bytes(a->views[1].key));
	assert_int_not_equal(key->lease, old);
	put_key(store_key(key->key)->name, key->value, old);
	(void) run_until_sent(a, "put");
	if (sent(a, "revoke"))
		deliver(a, sent(a, "revoke"));	/* it comes before the move */
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	assert_int_equal(a->views[1].token, token);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(count_leases(), 2);
}

static bool
exists(const char *prefix)
{
	for (int i = 0; i < count_keys(); i++)
	{
		if (strncmp(name_of(key_at(i)), prefix, strlen(prefix)) == 0)
			return true;
	}
	return false;
}

/* For that time the instance leads the first election, under the same token. */
static void
lead_on(Instance *a, int64_t ns)
{
	int64_t		token = a->views[0].token;

	for (int64_t end = now + ns; now < end;)
	{
		run_for(50 * MS);
		assert_true(leads(a));
		assert_int_equal(a->views[0].token, token);
	}
}

/*
 * The rights to the keys of one election are taken away while an instance leads.  It
 * costs another election nothing, and with the rights the instance leads again.
 */
static void
take_rights(bool is_told)
{
	Instance   *a = lead_two();
	int			from = nlogged;
	int64_t		deadline_ns = a->views[1].deadline_ns;
	int			nsent;

	a->watch_silent = !is_told;
	run_for(election_wakeup_ns(a->core) - now);
	deadline_ns = a->views[1].deadline_ns;
	etcd.denied = "f/";
	for (int64_t end = now + TTL_S * SECOND / 3 + SECOND / 2; now < end;)
	{
		lead_on(a, 10 * MS);
		/* nothing confirms the key, so nothing moves the deadline */
		assert_true(a->views[1].deadline_ns == 0 || a->views[1].deadline_ns == deadline_ns);
	}
	assert_int_equal(a->views[1].deadline_ns, 0);
	assert_true(find_note(from, "a: unelected - permission_denied") >= 0);
	assert_int_equal(find_note(find_note(from, "a: unelected") + 1, "a: unelected"), -1);
	for (int i = 0; i < a->nwatches; i++)
		assert_memory_equal(a->watches[i].key.data, "e/", 2);

	/* the lease that cannot be revoked ends with its TTL, and the key with it */
	lead_on(a, TTL_S * SECOND);
	assert_false(exists("f/"));
	assert_int_equal(count_leases(), 1);
	nsent = a->nsent;
	lead_on(a, 6 * TTL_S * SECOND);
	/* renewals; reads and deletions of f, one of each in half a second at the most */
	assert_in_range(a->nsent - nsent, 6 * 3 * 2, 6 * 3 * 2 + 6 * TTL_S * 4 + 8);

	a->watch_silent = false;
	etcd.denied = NULL;
	lead_on(a, 3 * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	lead_on(a, 3 * TTL_S * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);

	/* all of that again, and in between a moment without rights, which costs nothing */
	from = nlogged;
	run_for(election_wakeup_ns(a->core) - now - 10 * MS);
	etcd.denied = "f/";
	lead_on(a, 100 * MS);
	etcd.denied = NULL;
	lead_on(a, TTL_S * SECOND);
	assert_int_equal(find_note(from, "a: unelected"), -1);
	etcd.denied = "f/";
	lead_on(a, 2 * TTL_S * SECOND);
	assert_false(exists("f/"));
}

static void
test_rights_taken(void **state)
{
	take_rights(true);
}

static void
test_rights_taken_silently(void **state)
{
	take_rights(false);
}

/* A new etcd denies the renewal of a lease with such a key, too. */
static void
test_rights_taken_from_lease(void **state)
{
	etcd.denies_leases = true;
	take_rights(false);
}

/*
 * etcd denies a new key on a lease that has a key without rights, and nothing else tells of
 * the missing right to write that key.  The other election is entered all the same.
 */
static void
test_rights_taken_from_entry(void **state)
{
	Instance   *a = lead_two();

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	etcd.denies_new_keys = true;
	assert_true(election_campaign(a->core, now, 0, 2));
	run_for(2 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->replied[2], ELECTION_DONE);
}

/* The same for a proclamation. */
static void
test_rights_taken_from_value(void **state)
{
	Instance   *a = lead_two();

	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	etcd.denies_new_keys = true;
	assert_true(election_proclaim(a->core, now, 0, "value", 2));
	lead_on(a, 2 * TTL_S * SECOND);
	assert_int_equal(a->replied[2], ELECTION_DONE);
	assert_string_equal(value_of(key_at(0)), "value");
}

/* The rights to one election come back when those to another one are taken. */
static void
test_rights_exchanged(void **state)
{
	Instance   *a = start_instance("a", true);

	etcd.denies_leases = true;
	strcpy(a->config.elections[1], "f");
	strcpy(a->config.elections[2], "g");
	a->config.nelections = 3;
	election_configure(a->core, now, &a->config);
	run_for(SECOND);
	for (int i = 0; i < 6; i++)
	{
		etcd.denied = i % 2 == 0 ? "f/" : "g/";
		lead_on(a, (i + 2) * SECOND);
	}
	etcd.denied = NULL;
	lead_on(a, 3 * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	assert_int_equal(a->views[2].state, ELECTION_LEADING);
}

/* Rights that are missing for a moment cost nothing. */
static void
test_rights_replaced(void **state)
{
	Instance   *a = lead_two();
	int64_t		token = a->views[1].token;

	run_for(election_wakeup_ns(a->core) - now - 10 * MS);
	etcd.denied = "f/";
	lead_on(a, 100 * MS);
	etcd.denied = NULL;
	lead_on(a, 3 * TTL_S * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	assert_int_equal(a->views[1].token, token);
}

/* Denied renewals of a lease that is being replaced are no reason to read anything. */
static void
test_rights_taken_grant_late(void **state)
{
	Instance   *a = lead_two();
	int			from = nlogged;
	int			nreads = 0;

	a->watch_silent = true;
	etcd.denies_leases = true;
	etcd.denied = "f/";
	etcd.is_full = true;
	lead_on(a, TTL_S * SECOND / 2);
	etcd.is_full = false;
	lead_on(a, TTL_S * SECOND / 2);
	for (int i = find_note(from, "a sends read"); i >= 0; i = find_note(i + 1, "a sends read"))
		nreads++;
	assert_in_range(nreads, 8, 14);
}

/* The same for an instance with one election, whose renewals go to other endpoints at once. */
static void
test_rights_replaced_alone(void **state)
{
	Instance   *a = start_instance("a", true);
	int			from;

	a->config.nendpoints = 3;
	election_configure(a->core, now, &a->config);
	run_for(SECOND);
	now = election_wakeup_ns(a->core) - MS;
	from = nlogged;
	etcd.denied = "e/";
	lead_on(a, 20 * MS);
	assert_true(find_note(from, "a sends read") >= 0);
	etcd.denied = NULL;
	lead_on(a, 3 * TTL_S * SECOND);
}

/*
 * An entry whose answer was lost has left a key, and then the rights are taken.  Nobody
 * knows of that key, and it ends with its lease nevertheless.
 */
static void
lose_entry_without_rights(bool denies_leases, bool denies_writes_only)
{
	Instance   *a = start_instance("a", true);
	Message    *m;

	run_for(SECOND);
	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	m = sent(a, "enter");
	execute(m);
	give_up(a, m, false);
	assert_true(exists("f/"));
	etcd.denied = "f/";
	etcd.denies_leases = denies_leases;
	etcd.denies_writes_only = denies_writes_only;
	lead_on(a, 2 * TTL_S * SECOND);
	assert_false(exists("f/"));
	etcd.denied = NULL;
	lead_on(a, 3 * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
}

/* An election without rights that is dropped from the settings does not keep its slot. */
static void
test_dropped_without_rights(void **state)
{
	Instance   *a = start_instance("a", true);

	run_for(SECOND);
	etcd.denied = "f/";
	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	lead_on(a, 3 * TTL_S * SECOND);
	assert_string_equal(a->views[1].name, "f");
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_string_equal(a->views[1].name, "");
	lead_on(a, 3 * TTL_S * SECOND);

	/* it is told so late that the denials follow */
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	answer_all();
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	lead_on(a, 3 * SECOND);
	assert_string_equal(a->views[1].name, "");
}

/* The same with a key, which ends with its lease.  The election may come back meanwhile. */
static void
drop_key_without_rights(bool denies_leases, bool comes_back)
{
	Instance   *a = lead_two();
	int64_t		token = a->views[1].token;

	etcd.denied = "f/";
	etcd.denies_leases = denies_leases;
	assert_true(election_resign(a->core, now, 1, true, 0, 1));
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	lead_on(a, 3 * SECOND);
	assert_true(exists("f/"));
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
	assert_string_equal(a->views[1].name, "");
	if (comes_back)
	{
		a->config.nelections = 2;
		election_configure(a->core, now, &a->config);
	}
	lead_on(a, 2 * TTL_S * SECOND);
	assert_false(exists("f/"));
	if (!comes_back)
		return;
	etcd.denied = NULL;
	lead_on(a, 3 * SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	assert_true(a->views[1].token > token);
}

static void
test_dropped_key_without_rights(void **state)
{
	for (int i = 0; i < 4; i++)
	{
		drop_key_without_rights((i & 1) != 0, (i & 2) != 0);
		teardown(state);
		setup(state);
	}
}

static void
test_entry_without_rights(void **state)
{
	for (int i = 0; i < 4; i++)
	{
		lose_entry_without_rights((i & 1) != 0, (i & 2) != 0);
		teardown(state);
		setup(state);
	}
}

/*
 * The rights are gone, and come back for the time of one more entry.  That entry leaves a
 * key, because its answer was lost, or because the instance has resigned meanwhile.  The
 * key ends with its lease, too.
 */
static void
enter_without_rights_again(bool resigns)
{
	Instance   *a = start_instance("a", true);
	Message    *enter;

	run_for(SECOND);
	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	give_up(a, sent(a, "enter"), true);
	etcd.denied = "f/";
	lead_on(a, 2 * TTL_S * SECOND);
	etcd.denied = NULL;
	enter = run_until_sent(a, "enter");
	execute(enter);
	if (resigns)
	{
		assert_true(election_resign(a->core, now, 1, false, 0, 1));
		deliver(a, enter);
	}
	else
		give_up(a, enter, false);
	assert_true(exists("f/"));
	etcd.denied = "f/";
	lead_on(a, 2 * TTL_S * SECOND);
	assert_false(exists("f/"));
}

static void
test_entry_without_rights_again(void **state)
{
	for (int i = 0; i < 2; i++)
	{
		enter_without_rights_again(i == 1);
		teardown(state);
		setup(state);
	}
}

/* A deletion is denied, and its key is gone with the lease by then.  Nothing is to be replaced. */
static void
test_denied_deletion_late(void **state)
{
	Instance   *a = lead_two();
	Message    *deletion;
	int64_t		lease = a->views[1].lease;
	int			from;

	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	assert_true(election_resign(a->core, now, 1, true, 0, 1));
	lead_on(a, TTL_S * SECOND / 2);
	deletion = run_until_sent(a, "delete");
	execute(deletion);
	end_lease(lease);
	assert_false(exists("f/"));
	from = nlogged;
	assert_true(election_verify(a->core, now, 1, 2));
	deliver(a, sent(a, "read"));
	assert_int_equal(a->views[1].state, ELECTION_JOINING);
	deliver(a, deletion);
	lead_on(a, SECOND / 2);
	assert_int_equal(find_note(from, "a sends grant"), -1);
}

/* A read that was executed before an entry does not show that its key is gone. */
static void
test_absence_before_entry(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter;
	Message    *read;

	run_for(SECOND);
	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	election_configure(a->core, now, &a->config);
	enter = sent(a, "enter");
	if (sent(a, "read"))
		deliver(a, sent(a, "read"));
	assert_true(election_resign(a->core, now, 1, false, 0, 1));
	read = sent(a, "read");
	assert_non_null(read);
	execute(read);
	deliver(a, enter);
	assert_true(exists("f/"));
	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	deliver(a, sent(a, "delete"));
	deliver(a, read);
	assert_false(a->has_replied[1]);
	lead_on(a, 2 * TTL_S * SECOND);
	assert_true(a->has_replied[1]);
	assert_false(exists("f/"));
}

/* A renewal that reads nothing does not hide that etcd was put back. */
static void
test_no_rights_restored(void **state)
{
	Instance   *a = start_instance("a", true);
	int			nsent;

	run_for(SECOND);
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	answer_all();
	set_revision(20);
	etcd.denied = "e/";
	run_for(3 * TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_JOINING);
	set_revision(2);
	etcd.denied = NULL;
	run_for(3 * TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
	nsent = a->nsent;
	run_for(2 * TTL_S * SECOND);
	assert_in_range(a->nsent - nsent, 2 * 2 * 3 - 2, 2 * 2 * 3 + 8);
}

/* Whatever rights are missing, there is a back-off. */
static void
count_requests(bool denies_writes_only, bool denies_leases, int ttl_s, int nendpoints)
{
	Instance   *a = start_instance("a", true);
	int			nsent;

	a->config.ttl_s = ttl_s;
	a->config.nendpoints = nendpoints;
	for (int i = 1; i < 4; i++)
		snprintf(a->config.elections[i], sizeof(a->config.elections[i]), "f/%d", i);
	a->config.nelections = 4;
	election_configure(a->core, now, &a->config);
	run_for(3 * SECOND);
	etcd.denied = "f/";
	etcd.denies_writes_only = denies_writes_only;
	etcd.denies_leases = denies_leases;
	for (int i = 0; i < 2 * ttl_s; i++)
	{
		nsent = a->nsent;
		lead_on(a, SECOND);
		assert_in_range(a->nsent - nsent, 0, 60);
	}
	nsent = a->nsent;
	lead_on(a, 10 * SECOND);
	assert_in_range(a->nsent - nsent, 2, 200);
}

/*
 * The right to enter one election is missing, and the instance leads three others.  It does
 * not read all of them at each try.
 */
static void
test_requests_without_right_to_enter(void **state)
{
	Instance   *a = start_instance("a", true);
	int			nsent;

	for (int i = 1; i < 3; i++)
		snprintf(a->config.elections[i], sizeof(a->config.elections[i]), "g/%d", i);
	a->config.nelections = 3;
	election_configure(a->core, now, &a->config);
	run_for(3 * SECOND);
	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	strcpy(a->config.elections[a->config.nelections++], "f");
	election_configure(a->core, now, &a->config);
	lead_on(a, 10 * SECOND);
	nsent = a->nsent;
	lead_on(a, 30 * SECOND);
	assert_in_range(a->nsent - nsent, 60, 190);
}

static void
test_requests_without_rights(void **state)
{
	for (int i = 0; i < 16; i++)
	{
		count_requests((i & 1) != 0, (i & 2) != 0, (i & 4) != 0 ? 2 : 30, (i & 8) != 0 ? 3 : 1);
		teardown(state);
		setup(state);
	}
}

/* If only the right to write is taken, all is as if the rights were taken from the lease. */
static void
test_right_to_write_taken(void **state)
{
	etcd.denies_writes_only = etcd.denies_leases = true;
	take_rights(false);
}

/* A key that may be read but not deleted ends with its lease. */
static void
test_right_to_read(void **state)
{
	Instance   *a = lead_two();
	int64_t		lease = a->views[0].lease;

	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	assert_true(election_resign(a->core, now, 1, false, 0, 1));
	lead_on(a, TTL_S * SECOND);
	assert_int_not_equal(a->views[0].lease, lease);
	lead_on(a, 2 * TTL_S * SECOND / 3);
	assert_false(exists("f/"));
	assert_int_equal(a->views[1].state, ELECTION_RESIGNED);
	assert_true(a->has_replied[1]);
	lease = a->views[0].lease;
	lead_on(a, 2 * TTL_S * SECOND);
	assert_int_equal(a->views[0].lease, lease);
}

/* An observer watches no key that it may not read: etcd would end the whole stream. */
static void
test_observer_without_rights(void **state)
{
	Instance   *a = lead_two();
	Instance   *b = start_instance("b", false);

	strcpy(b->config.elections[1], "f");
	b->config.nelections = 2;
	election_configure(b->core, now, &b->config);
	run_for(SECOND);
	assert_string_equal(b->views[1].leader, "a");
	etcd.denied = "f/";
	lead_on(a, TTL_S * SECOND / 3 + SECOND / 2);
	for (int i = 0; i < b->nwatches; i++)
		assert_memory_equal(b->watches[i].key.data, "e/", 2);
	assert_int_equal(b->nwatches, 1);
	run_for(TTL_S * SECOND);
	assert_false(b->views[1].has_leader);
	assert_string_equal(b->views[0].leader, "a");
	etcd.denied = NULL;
	lead_on(a, 3 * SECOND);
	assert_string_equal(b->views[1].leader, "a");
	assert_int_equal(b->nwatches, 2);
}

/*
 * A candidate tries to replace its lease, less and less often.  When it leads, it has a
 * deadline, and tries again at once.
 */
static void
test_leader_tries_at_once(void **state)
{
	Instance   *b = join("b");
	Instance   *a;
	int			from;

	a = start_instance("a", true);
	run_for(2 * SECOND);
	assert_true(leads(b));
	etcd.is_full = true;
	etcd.term++;
	run_for(3 * SECOND);
	from = nlogged;
	while (find_note(from, "a sends grant") < 0)
		run_for(MS);
	from = nlogged;
	run_for(100 * MS);
	assert_int_equal(find_note(from, "a sends grant"), -1);
	assert_true(election_resign(b->core, now, 0, false, 0, 1));
	answer_all();
	assert_true(leads(a));
	assert_true(find_note(from, "a sends grant") >= 0);
}

/*
 * A read that was sent before the revocation shows the key of an entry that has
 * timed out.  The instance still knows the name of that key.
 */
static void
test_key_after_revocation(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *late;
	Message    *read;
	Message    *revoke;

	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	late = start_entry(a);
	give_up(a, late, false);
	a->config.eligible = false;
	election_configure(a->core, now, &a->config);
	deliver(a, sent(a, "read"));
	assert_int_equal(a->views[0].state, ELECTION_OBSERVING);
	read = sent(a, "read");
	revoke = sent(a, "revoke");
	assert_non_null(read);
	assert_non_null(revoke);
	execute(late);
	execute(read);
	deliver(a, revoke);
	deliver(a, read);
	assert_int_equal(a->views[0].state, ELECTION_LEAVING);
	assert_non_null(sent(a, "delete"));
	assert_true(sent(a, "delete")->request.success[0].key.len > 0);
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_OBSERVING);
}

/* FINAL: the answer to an entry comes after its key was deleted. */
static void
test_late_answer_of_entry(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter;
	int			f;

	/* a second election keeps the lease in use */
	a->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	election_configure(a->core, now, &a->config);
	enter = start_entry(a);
	execute(enter);
	f = election_find(a->core, "f");
	assert_int_equal(strncmp(enter->request.compares[0].key.data, "f/", 2), 0);
	assert_true(election_resign(a->core, now, f, false, 0, 1));
	deliver(a, sent(a, "read"));
	assert_true(election_campaign(a->core, now, f, 2));
	deliver(a, sent(a, "delete"));
	assert_int_equal(a->views[f].state, ELECTION_JOINING);
	deliver(a, enter);
	assert_int_equal(a->views[f].state, ELECTION_LEAVING);
	assert_false(a->has_replied[2]);
	run_for(SECOND);
	assert_int_equal(a->views[f].state, ELECTION_LEADING);
	assert_int_equal(a->replied[2], ELECTION_DONE);
	assert_int_equal(count_keys(), 2);
}

/* Each event causes a read, even while others are under way.  Only the newest is repeated. */
static void
test_reads_that_hang(void **state)
{
	Instance   *a = join("a");
	Instance   *b;
	Message    *reads[3];
	Version		other;
	int			before;

	b = start_instance("b", true);
	b->config.nendpoints = 2;
	election_configure(b->core, now, &b->config);
	answer_all();
	a->watch_silent = true;
	other = *own_key(a);
	for (int i = 0; i < 3; i++)
	{
		set_revision(store_revision() + 1);
		other.create_revision = other.revision = store_revision();
		tell_watches(&other);
		reads[i] = sent(b, "read");
		assert_non_null(reads[i]);
		assert_true(i == 0 || reads[i] != reads[i - 1]);
	}
	before = b->nsent;
	for (int i = 0; i < 2; i++)
		give_up(b, reads[i], true);
	now += 500 * MS;
	election_tick(b->core, now);
	assert_int_equal(b->nsent, before);
	give_up(b, reads[2], true);
	now += 500 * MS;
	election_tick(b->core, now);
	assert_int_equal(b->nsent, before + 1);
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
}

/* After a crash an election that was resigned stays so, though another resumes the lease. */
static void
test_resume_resigned(void **state)
{
	Instance   *a = start_instance("a", true);

	a->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(election_resign(a->core, now, election_find(a->core, "f"), false, 0, 1));
	answer_all();
	assert_true(a->remembers);
	a->config.stay_out[1] = true;
	crash(a);
	assert_int_equal(a->views[election_find(a->core, "f")].state, ELECTION_LEAVING);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(a->views[election_find(a->core, "e")].state, ELECTION_LEADING);
	assert_int_equal(a->views[election_find(a->core, "f")].state, ELECTION_RESIGNED);
}

/* The same if the first settings after the crash do not name that election, and the next ones do. */
static void
test_resume_resigned_later(void **state)
{
	Instance   *a = lead_two();

	assert_true(election_resign(a->core, now, election_find(a->core, "f"), false, 0, 1));
	answer_all();
	a->config.nelections = 1;
	crash(a);
	a->config.nelections = 2;
	a->config.stay_out[1] = true;
	election_configure(a->core, now, &a->config);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(a->views[election_find(a->core, "f")].state, ELECTION_RESIGNED);
}

/* The deadline passes in a drain, and a command for another election comes first: the instance stays out. */
static void
test_drain_of_other_lapsed(void **state)
{
	Instance   *a = lead_two();

	assert_true(election_resign(a->core, now, 0, false, 10 * TTL_S * SECOND, 1));
	assert_int_equal(a->views[0].state, ELECTION_DRAINING);
	now = a->views[0].deadline_ns + MS;
	assert_true(election_transfer(a->core, now, 1, "b", now + SECOND, 0, 2));
	assert_int_equal(a->views[0].state, ELECTION_LEAVING);
}

/* A put that was sent before the command is not its put: the key may have gone since. */
static void
test_proclaim_again(void **state)
{
	Instance   *a = join("a");
	Message    *put;

	strcpy(a->config.node_name, "other");
	election_configure(a->core, now, &a->config);
	put = sent(a, "put");
	execute(put);
	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	deliver(a, put);
	assert_false(a->has_replied[1]);
	deliver(a, sent(a, "put"));
	assert_int_equal(a->replied[1], ELECTION_DONE);
}

static void
test_settings(void **state)
{
	Instance   *a = join("a");
	int64_t		token;

	token = a->views[0].token;

	/* a shorter TTL: the deadline is lowered at once, the key is moved, the token stays */
	a->config.ttl_s = 2;
	election_configure(a->core, now, &a->config);
	deliver(a, sent(a, "grant"));
	assert_true(a->views[0].deadline_ns <= now + 2 * SECOND - SECOND / 5);
	answer_all();
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	run_for(SECOND);
	assert_int_equal(count_leases(), 1);
	assert_int_equal(store_find_lease(a->views[0].lease)->ttl_s, 2);

	/* other elections: a new lease for all of them, because the old election was dropped */
	a->config.nelections = 4;
	strcpy(a->config.elections[0], "w");
	strcpy(a->config.elections[1], "x");
	strcpy(a->config.elections[2], "y");
	strcpy(a->config.elections[3], "z");
	election_configure(a->core, now, &a->config);
	answer_all();
	run_for(SECOND);
	assert_int_equal(count_keys(), 4);
	assert_int_equal(count_leases(), 1);
	assert_int_equal(election_find(a->core, "e"), -1);
	for (int i = 0; i < 4; i++)
		assert_true(a->views[i].deadline_ns > now);

	/* a new name is put into every key */
	strcpy(a->config.node_name, "b");
	election_configure(a->core, now, &a->config);
	answer_all();
	for (int i = 0; i < count_keys(); i++)
		assert_string_equal(value_of(key_at(i)), "b");
}

/* An observer drops an election for another one.  A read of the former shows nothing of the latter. */
static void
test_read_of_dropped(void **state)
{
	Instance   *o;
	Message    *read;

	join("a");
	o = start_instance("o", false);
	read = sent(o, "read");
	assert_non_null(read);
	execute(read);
	strcpy(o->config.elections[0], "f");
	election_configure(o->core, now, &o->config);
	assert_string_equal(o->views[0].name, "f");
	deliver(o, read);
	assert_false(o->views[0].has_leader);
	answer_all();
	assert_false(o->views[0].has_leader);
	assert_int_equal(find_note(0, "o: leader"), -1);
}

/*
 * The entry of an election is answered after the key was deleted, and another election
 * has the slot by then.  That one is not in its queue yet.
 */
static void
test_entry_of_dropped(void **state)
{
	Instance   *a = add_instance("a", true);
	Message		entry;

	a->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	start(a);
	entry = execute_only(start_entry(a));
	answer_all();
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	while (a->views[1].name[0] != '\0')
		deliver(a, sent(a, "delete") ? sent(a, "delete") : sent(a, "read"));
	assert_int_equal(count_keys(), 1);

	a->config.nelections = 2;
	strcpy(a->config.elections[1], "g");
	election_configure(a->core, now, &a->config);
	assert_string_equal(a->views[1].name, "g");
	assert_true(election_campaign(a->core, now, 1, 1));
	election_receive(a->core, now, entry.id, &entry.answer);
	assert_false(a->has_replied[1]);
	assert_int_equal(a->views[1].state, ELECTION_JOINING);
	assert_int_equal(a->views[1].create_revision, 0);
	run_for(SECOND);
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_int_equal(count_keys(), 2);
	assert_int_equal(a->views[1].token, key_at(1)->create_revision);
}

static void
test_stop(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	int			from;

	assert_false(election_stopped(a->core));
	from = nlogged;
	assert_true(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN));
	assert_false(leads(a));
	assert_true(find_note(from, "a withdraws") < find_note(from, "a sends revoke"));
	answer_all();
	assert_true(election_stopped(a->core));
	assert_true(leads(b));
}

/*
 * An entry is executed late, on a lease that another one has replaced.  At a shutdown its
 * key does not outlive the others.
 */
static void
test_stop_after_move(void **state)
{
	Instance   *a = join("a");
	Instance   *b = add_instance("b", true);
	Message    *enter;

	a->config.nendpoints = 2;
	a->config.nelections = b->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	strcpy(b->config.elections[1], "f");
	election_configure(a->core, now, &a->config);
	enter = sent(a, "enter");
	give_up(a, enter, false);
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	while (sent(a, "put") == NULL)
		deliver(a, sent(a, "read") ? sent(a, "read") : sent(a, "grant"));
	deliver(a, sent(a, "put"));
	execute(enter);
	assert_int_equal(count_keys(), 2);
	start(b);
	answer_all();
	assert_int_equal(b->views[1].state, ELECTION_WAITING);
	assert_true(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN));
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_LEADING);
	assert_int_equal(b->views[1].state, ELECTION_LEADING);
}

/*
 * The endpoint fails at the shutdown.  The revocation goes to another one, but is
 * not tried for ever.
 */
static void
test_shutdown_revocation(void **state)
{
	Instance   *a = start_instance("a", true);
	int			ntries = 0;

	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN));
	give_up(a, sent(a, "revoke"), true);
	assert_false(election_stopped(a->core));
	answer_all();
	assert_true(election_stopped(a->core));
	assert_int_equal(count_leases(), 0);

	a = start_instance("b", true);
	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	answer_all();
	for (assert_true(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN)); !election_stopped(a->core); ntries++)
		give_up(a, sent(a, "revoke"), true);
	assert_true(ntries >= 2 && ntries <= 4);
}

/* etcd is put back to an earlier state while that instance leads: it is held back. */
static Instance *
start_held_back(void)
{
	Instance   *a = start_instance("a", true);

	set_revision(1000);
	answer_all();
	lose_all(10);
	etcd.term = 1;
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
	return a;
}

/* A campaign of an instance that is held back makes it lead. */
static void
test_campaign_held_back(void **state)
{
	Instance   *a = start_held_back();

	assert_true(election_campaign(a->core, now, 0, 1));
	run_for(SECOND);
	assert_true(leads(a));

	/* the operator's word holds after a crash, too */
	crash(a);
	run_for(SECOND);
	assert_true(leads(a));
}

/* It is held back after a crash, too. */
static void
test_held_back_after_crash(void **state)
{
	Instance   *a = start_held_back();

	crash(a);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
}

/* The same if the crash outlasts the lease, so that nothing but the history is left. */
static void
test_held_back_after_long_crash(void **state)
{
	Instance   *a = start_held_back();

	now += 2 * TTL_S * SECOND;
	expire_leases(now);
	crash(a);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
	set_revision(2000);
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > 2000);
}

/* etcd is put back during a crash that outlasts the lease. */
static void
test_restore_during_long_crash(void **state)
{
	Instance   *a = start_instance("a", true);
	int64_t		token;

	set_revision(1000);
	answer_all();
	token = a->views[0].token;
	assert_true(token > 1000);
	lose_all(10);
	now += 2 * TTL_S * SECOND;
	crash(a);
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
	set_revision(token + 1000);
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
}

/* ---- two primaries of one database system --------------------------------------------- */

static Instance *
add_primary(const char *name, const char *system, uint32_t timeline)
{
	Instance   *in = add_instance(name, true);

	strcpy(in->config.system_identifier, system);
	in->config.timeline = timeline;
	in->config.refuses_second = true;
	return in;
}

static Instance *
join_primary(const char *name, const char *system, uint32_t timeline)
{
	Instance   *in = add_primary(name, system, timeline);

	start(in);
	answer_all();
	return in;
}

/* The host is gone. */
static void
lose(Instance *in)
{
	election_free(in->core);
	in->core = NULL;
	memset(in->messages, 0, sizeof(in->messages));
	memset(in->views, 0, sizeof(in->views));
	in->nwatches = 0;
}

/* A clean shutdown: the lease is revoked. */
static void
stop(Instance *in)
{
	election_stop(in->core, now, ELECTION_REASON_SHUTDOWN);
	answer_all();
	lose(in);
}

static void
test_key_tells_owner(void **state)
{
	Instance   *a = join_primary("a", "7000000000000000001", 3);
	char		key[ELECTION_KEY_SIZE];

	snprintf(key, sizeof(key), "e/%" PRIx64 ".7000000000000000001.3.pg", a->views[0].lease);
	assert_string_equal(a->views[0].key, key);
	assert_true(leads(a));
	assert_int_equal(a->timelines.leading, 3);
}

/* A standby is promoted while the primary lives: it never becomes the next leader. */
static void
test_second_primary(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b;

	run_for(SECOND);
	b = join_primary("b", "71", 2);
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	assert_int_equal(count_keys(), 1);
	run_for(TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_non_null(strstr(b->views[0].problem, "timeline 2"));
	assert_int_equal(b->timelines.refused, 2);
	assert_int_equal(b->views[0].role, ELECTION_OBSERVER);

	/* the primary is restarted, the second one, too, and both at once */
	stop(a);
	run_for(10 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_int_equal(count_keys(), 0);
	stop(b);
	start(b);
	run_for(TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	start(a);
	run_for(SECOND);
	assert_true(leads(a));

	/* until it is a standby again; it is promoted, and on another timeline */
	b->config.eligible = false;
	b->config.in_recovery = true;
	b->config.timeline = 0;
	election_configure(b->core, now, &b->config);
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_OBSERVING);
	stop(a);
	b->config.eligible = true;
	b->config.in_recovery = false;
	b->config.timeline = 3;
	election_configure(b->core, now, &b->config);
	answer_all();
	assert_true(leads(b));
}

/* A failover: nobody extends the lease of the dead primary. */
static void
test_promoted_after_loss(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b;
	int64_t		lost_ns;

	run_for(7 * SECOND);
	lose(a);
	lost_ns = now;
	b = join_primary("b", "71", 2);
	while (!leads(b) && now < lost_ns + 2 * TTL_S * SECOND)
		run_for(10 * MS);
	assert_true(leads(b));
	assert_true(now - lost_ns <= TTL_S * SECOND + 10 * MS);
	assert_int_equal(b->timelines.refused, 0);

	/* the old primary comes back, and the new one is restarted */
	start(a);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_non_null(strstr(a->views[0].problem, "has led on timeline 2"));
	stop(b);
	run_for(TTL_S * SECOND);
	assert_int_equal(count_keys(), 0);
	start(b);
	run_for(SECOND);
	assert_true(leads(b));
	stop(b);
	stop(a);
	start(a);
	run_for(TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
}

/* A new leader of etcd extends each lease once. */
static void
test_new_term_is_no_life(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b;
	StoreLease *lease = store_find_lease(a->views[0].lease);

	run_for(SECOND);
	lose(a);
	b = join_primary("b", "71", 2);
	for (int i = 0; i < 5; i++)
	{
		etcd.term++;
		set_revision(store_revision() + 1);
		run_for(1300 * MS);
		lease->expires_ns[0] = now + TTL_S * SECOND;
		run_for(1300 * MS);
		assert_int_equal(lease->revoked_index, 0);
	}
	run_for((TTL_S + 1) * SECOND);
	assert_true(leads(b));
	assert_int_equal(b->timelines.refused, 0);
}

static void
test_other_systems(void **state)
{
	Instance   *a = join_primary("a", "71", 5);
	Instance   *b = join_primary("b", "72", 2);
	Instance   *c = join_primary("c", "", 0);

	run_for(4 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(c->views[0].state, ELECTION_WAITING);
	assert_int_equal(b->timelines.leading, 0);
	stop(a);
	assert_true(leads(b));
	stop(b);
	assert_true(leads(c));
}

/* A standby may lead, and may wait, with candidates of its system. */
static void
test_standbys_are_no_rivals(void **state)
{
	Instance   *a = join_primary("a", "71", 0);
	Instance   *b = join_primary("b", "71", 4);
	Instance   *c = join_primary("c", "71", 0);

	run_for(4 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	stop(a);
	assert_true(leads(b));
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(c->views[0].state, ELECTION_WAITING);
	stop(b);
	assert_true(leads(c));
}

/* The setting "wait", and a leader that was waited for. */
static void
test_second_primary_waits(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b = add_primary("b", "71", 2);

	b->config.refuses_second = false;
	start(b);
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);

	/* the setting changes */
	b->config.refuses_second = true;
	election_configure(b->core, now, &b->config);
	answer_all();
	assert_int_equal(count_keys(), 1);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	b->config.refuses_second = false;
	election_configure(b->core, now, &b->config);
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	stop(a);
	assert_true(leads(b));
}

/*
 * An instance on an older timeline leads by the setting "wait", and the setting changes.  The
 * other one stays out meanwhile, so this one must not stay out after a restart.
 */
static void
test_not_both_stay_out(void **state)
{
	Instance   *b = join_primary("b", "71", 2);
	Instance   *a = add_primary("a", "71", 1);

	start(a);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	stop(b);
	a->config.refuses_second = false;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(leads(a));
	start(b);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	a->config.refuses_second = true;
	election_configure(a->core, now, &a->config);
	run_for(SECOND);
	assert_true(leads(a));
	stop(a);
	start(a);
	run_for(SECOND);
	assert_true(leads(a));
}

/* The same for an instance that was refused, and then entered by the setting "wait". */
static void
test_refused_is_void_after_entry(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b = add_primary("b", "71", 2);

	start(b);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	b->config.refuses_second = false;
	election_configure(b->core, now, &b->config);
	run_for(SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	stop(a);
	assert_true(leads(b));
	start(a);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	b->config.refuses_second = true;
	election_configure(b->core, now, &b->config);
	stop(b);
	start(b);
	run_for(SECOND);
	assert_true(leads(b));
}

/* What only waited has not led. */
static void
test_waiting_does_not_count(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b = add_primary("b", "71", 2);

	b->config.refuses_second = false;
	start(b);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(a->timelines.leading, 1);
	stop(b);
	stop(a);
	start(a);
	answer_all();
	assert_true(leads(a));
}

static void
test_campaign_of_second_primary(void **state)
{
	Instance   *a = join_primary("a", "71", 2);
	Instance   *b = join_primary("b", "71", 1);

	run_for(SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_true(election_campaign(b->core, now, 0, 1));
	answer_all();
	assert_true(b->has_replied[1]);
	assert_int_equal(b->replied[1], ELECTION_DONE);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(b->timelines.accepted, 1);

	/* a restart does not forget it */
	stop(b);
	start(b);
	answer_all();
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	stop(a);
	assert_true(leads(b));

	/* one that had resigned is told */
	start(a);
	answer_all();
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_true(election_resign(a->core, now, 0, false, 0, 2));
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	assert_true(election_campaign(a->core, now, 0, 3));
	answer_all();
	assert_int_equal(a->replied[3], ELECTION_REFUSED);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_true(election_campaign(a->core, now, 0, 4));
	answer_all();
	assert_int_equal(a->replied[4], ELECTION_DONE);
}

/* An own key that is the first one is no other primary's, also while it is held back. */
static void
test_own_key_is_no_rival(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join_primary("b", "72", 1);
	int64_t		create_revision;

	set_revision(1000);
	run_for(TTL_S * SECOND);
	lose_all(10);
	etcd.term = 1;
	lose(a);
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_HELD_BACK);
	create_revision = b->views[0].create_revision;
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_HELD_BACK);
	assert_int_equal(b->views[0].create_revision, create_revision);
	set_revision(2000);
	run_for(4 * TTL_S * SECOND);
	assert_true(leads(b));
}

/* Keys of older releases tell nothing. */
static void
test_old_keys(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join_primary("b", "71", 1);

	strcpy(a->config.system_identifier, "71");
	run_for(4 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	stop(a);
	assert_true(leads(b));
}

/* Without the right to ask, it waits outside. */
static void
test_life_cannot_be_told(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b = join_primary("b", "71", 2);

	etcd.denied = "e/";
	etcd.denies_leases = etcd.denies_writes_only = true;
	run_for(TTL_S * SECOND / 4);
	etcd.denied = NULL;
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	assert_int_equal(count_keys(), 1);
	stop(a);
	answer_all();
	assert_true(leads(b));
}

/* ---- settings and commands ------------------------------------------------------------ */

/* Which elections drain: a bit for each slot. */
static void
test_draining_slots(void **state)
{
	Instance   *a = lead_two();

	assert_int_equal(election_draining(a->core), 0);
	assert_true(election_resign(a->core, now, 1, true, 60 * SECOND, 1));
	assert_int_equal(election_draining(a->core), 2);
	assert_true(election_resign(a->core, now, 0, true, 60 * SECOND, 2));
	assert_int_equal(election_draining(a->core), 3);
	election_drained(a->core, now, 1);
	assert_int_equal(election_draining(a->core), 1);
}

/* A reload that changes nothing sends nothing, on whatever instance. */
static void
test_reload_sends_nothing(void **state)
{
	(void) join("a");
	(void) join("b");
	(void) observe("o");
	for (int i = 0; i < ninstances; i++)
	{
		int			nsent = instances[i].nsent;

		election_configure(instances[i].core, now, &instances[i].config);
		assert_int_equal(instances[i].nsent, nsent);
	}
}

/* The next keepalive fails at that endpoint, or the next read if there is no lease to keep. */
static void
fail_at(Instance *in, int endpoint)
{
	EtcdAnswer	failure = {.outcome = ETCD_NO_ANSWER, .endpoint = endpoint, .message = "gone"};
	Message    *m;

	while ((m = sent(in, "keepalive")) == NULL && (m = sent(in, "read")) == NULL)
	{
		now += MS;
		election_tick(in->core, now);
	}
	m->used = false;
	election_receive(in->core, now, m->id, &failure);
}

/* The endpoints may be others with new settings.  What failed before says nothing of them. */
static void
test_settings_forget_failures(void **state)
{
	Instance   *a = join("a");
	int64_t		asked_ns;

	fail_at(a, 0);
	election_configure(a->core, now, &a->config);
	fail_at(a, 0);
	assert_true(election_connected(a->core));
	fail_at(a, 0);
	assert_false(election_connected(a->core));
	answer_all();

	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	run_for(SECOND);
	fail_at(a, 0);
	election_configure(a->core, now, &a->config);
	fail_at(a, 1);
	fail_at(a, 1);
	assert_true(election_connected(a->core));
	fail_at(a, 0);
	assert_false(election_connected(a->core));

	/* the new ones are asked at once, and again soon */
	for (int i = 0; i < 20; i++)
		fail_at(a, 0);
	assert_false(leads(a));
	assert_null(sent(a, "read"));
	election_configure(a->core, now, &a->config);
	asked_ns = now;
	assert_non_null(sent(a, "read"));
	for (int i = 0; i < 3; i++)
		fail_at(a, i % 2);
	assert_true(now - asked_ns <= 100 * MS);
}

/* An elector that died is not continued after its deadline, whatever the margin is now. */
static void
test_resume_by_its_margin(void **state)
{
	for (int late = 0; late < 2; late++)
	{
		Instance   *a;

		teardown(state);
		setup(state);
		a = start_instance("a", true);
		a->config.safety_margin_ms = 2000;
		election_configure(a->core, now, &a->config);
		answer_all();
		assert_true(a->remembers);
		now = a->views[0].deadline_ns - MS + late * MS;
		a->config.safety_margin_ms = 100;
		crash(a);
		assert_int_equal(a->views[0].state, late ? ELECTION_JOINING : ELECTION_QUEUED);
	}
}

/* A new elector does not believe another etcd, even if that has the same keys. */
static void
test_resume_in_other_cluster(void **state)
{
	Instance   *a = join("a");

	etcd.cluster_id++;
	crash(a);
	for (int64_t end = now + TTL_S * SECOND / 2; now < end;)
	{
		run_for(10 * MS);
		assert_false(leads(a));
	}
}

/* There are fewer slots than the dead elector had elections. */
static void
test_resume_with_fewer_slots(void **state)
{
	Instance   *a = lead_two();

	for (int nslots = 1; nslots <= 2; nslots++)
	{
		ElectionPort port = {.publish = port_publish, .ctx = a};
		ElectionCore *core = election_create(&port, nslots);

		assert_int_equal(election_resume(core, now, &a->history, &a->memory), nslots == 2);
		election_free(core);
	}
}

/* A second primary stays one after a crash of its elector, also if the other one is gone. */
static void
test_resume_second_primary(void **state)
{
	Instance   *a = add_primary("a", "71", 1);
	Instance   *b = add_primary("b", "71", 2);

	strcpy(a->config.elections[1], "f");
	a->config.nelections = 2;
	start(a);
	b->config.refuses_second = false;
	start(b);
	run_for(SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	run_for(SECOND);
	assert_true(leads(b));
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_int_equal(a->views[1].state, ELECTION_LEADING);
	assert_true(a->remembers);
	stop(b);
	a->config.timelines[0] = a->timelines;
	crash(a);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_false(exists("e/"));
	assert_true(exists("f/"));
}

/* Another primary leads, and it is not known yet whether it lives: etcd_campaign() does not wait for that. */
static void
test_campaign_before_life_is_told(void **state)
{
	Instance   *a = join_primary("a", "71", 1);
	Instance   *b = join_primary("b", "71", 2);

	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	assert_true(election_campaign(b->core, now, 0, 1));
	answer_all();
	assert_true(b->has_replied[1]);
	assert_int_equal(b->replied[1], ELECTION_DONE);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(b->timelines.accepted, 2);
	assert_true(leads(a));
}

/* A resignation for good that comes while the key is being deleted waits for that. */
static void
test_resign_while_leaving(void **state)
{
	Instance   *a = join("a");

	a->config.eligible = false;
	election_configure(a->core, now, &a->config);
	assert_int_equal(a->views[0].state, ELECTION_LEAVING);
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	assert_false(a->has_replied[1]);
	answer_all();
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	a->config.eligible = true;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
}

/* A write of the key has failed, and waits for its next try.  etcd_proclaim() does not. */
static void
test_proclaim_after_failure(void **state)
{
	Instance   *a = join("a");

	strcpy(a->config.node_name, "b");
	election_configure(a->core, now, &a->config);
	etcd.is_busy = true;
	deliver(a, sent(a, "put"));
	etcd.is_busy = false;
	assert_null(sent(a, "put"));
	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	assert_non_null(sent(a, "put"));
	answer_all();
	assert_int_equal(a->replied[1], ELECTION_DONE);
}

/* Reads are denied so often that the election is left.  If it is dropped then, its slot is free at once. */
static void
test_dropped_when_denied(void **state)
{
	Instance   *a = lead_two();

	etcd.denied = "f/";
	for (int64_t end = now + TTL_S * SECOND; a->views[1].state == ELECTION_LEADING; run_for(MS))
		assert_true(now < end);
	assert_int_equal(a->views[1].state, ELECTION_LEAVING);
	a->config.nelections = 1;
	election_configure(a->core, now, &a->config);
	assert_string_equal(a->views[1].name, "");
}

/* ---- writes of the own key, and what else fails ---------------------------------------- */

/* etcd answers, and refuses the request. */
static void
refuse(Instance *in, Message *m)
{
	EtcdAnswer	refusal = {.outcome = ETCD_REFUSED, .code = ETCD_CODE_RESOURCE_EXHAUSTED, .message = "busy"};

	assert_non_null(m);
	m->used = false;
	election_receive(in->core, now, m->id, &refusal);
}

/* A candidate's renewals fail, and are tried less often.  When it leads, it renews at once. */
static void
test_leader_renews_at_once(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	Message    *m;

	for (int64_t end = now + 2 * SECOND + SECOND / 2; now < end; now += MS)
	{
		election_tick(b->core, now);
		if ((m = sent(b, "keepalive")) != NULL)
			refuse(b, m);
		answer_all();
	}
	while ((m = sent(b, "keepalive")) == NULL)
		election_tick(b->core, now += MS);
	refuse(b, m);
	assert_null(sent(b, "keepalive"));
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	deliver(a, sent(a, "delete"));
	assert_true(leads(b));
	assert_non_null(sent(b, "keepalive"));
}

/* When leadership has lapsed, a read shows who leads now. */
static void
test_read_after_lapse(void **state)
{
	Instance   *a = join("a");

	now = a->views[0].deadline_ns - MS;
	election_tick(a->core, now);
	assert_non_null(sent(a, "keepalive"));
	assert_null(sent(a, "read"));
	now += MS;
	election_tick(a->core, now);
	assert_false(leads(a));
	assert_non_null(sent(a, "read"));
}

/* A request fails often, and then succeeds.  The next failure waits as short as the first. */
static void
test_failures_are_forgotten(void **state)
{
	static const char *const kinds[] = {"delete", "put", "enter"};

	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		Instance   *a;
		bool		is_put = strcmp(kinds[i], "put") == 0;
		bool		is_enter = strcmp(kinds[i], "enter") == 0;
		const char *next = is_put || is_enter ? "put" : "enter";
		int64_t		failed_ns;

		teardown(state);
		setup(state);
		a = is_enter ? start_instance("a", true) : join("a");
		if (is_put)
			assert_true(election_proclaim(a->core, now, 0, "other", 1));
		else if (!is_enter)
			assert_true(election_resign(a->core, now, 0, true, 0, 1));
		for (int j = 0; j < 6; j++)
			refuse(a, run_until_sent(a, kinds[i]));
		deliver(a, run_until_sent(a, kinds[i]));
		assert_true(is_enter || a->has_replied[1]);
		if (is_put || is_enter)
			assert_true(election_proclaim(a->core, now, 0, "another", 2));
		refuse(a, run_until_sent(a, next));
		failed_ns = now;
		assert_null(sent(a, next));
		(void) run_until_sent(a, next);
		assert_true(now - failed_ns <= 100 * MS);
	}
}

/* An entry that etcd refuses waits a moment, and so does one on a lease that is gone. */
static void
test_entry_refused(void **state)
{
	Instance   *a = start_instance("a", true);
	int64_t		refused_ns;

	refuse(a, start_entry(a));
	refused_ns = now;
	assert_null(sent(a, "enter"));
	(void) run_until_sent(a, "enter");
	assert_in_range(now - refused_ns, 50 * MS, 100 * MS);
	end_lease(sent(a, "enter")->request.success[0].lease);
	deliver(a, sent(a, "enter"));
	answer_all();
	assert_null(sent(a, "enter"));
	run_for(300 * MS);
	assert_true(leads(a));
}

/* A resignation during an entry that has no answer is done as soon as a read shows no key. */
static void
test_resign_in_lost_entry(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter = start_entry(a);

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	deliver(a, sent(a, "read"));
	assert_null(sent(a, "read"));
	a->config.nendpoints = 2;
	election_configure(a->core, now, &a->config);
	give_up(a, enter, true);
	assert_non_null(sent(a, "read"));
	answer_all();
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
}

/* The lease of an entry has ended by the time of its answer.  The key is gone, so it is no key. */
static void
test_entry_on_lost_lease(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter = start_entry(a);
	Message    *m;

	execute(enter);
	end_lease(key_at(0)->lease);
	while ((m = sent(a, "keepalive")) == NULL)
		election_tick(a->core, now += MS);
	deliver(a, m);
	deliver(a, enter);
	assert_int_equal(a->views[0].state, ELECTION_JOINING);
	assert_string_equal(a->views[0].key, "");
	run_for(SECOND);
	assert_true(leads(a));
}

/* The slot of an election that was dropped goes to another one, which enters at once. */
static void
test_slot_given_away(void **state)
{
	Instance   *a = add_instance("a", true);

	a->config.nelections = 4;
	for (int i = 0; i < 4; i++)
		snprintf(a->config.elections[i], ELECTION_NAME_SIZE, "e%d", i);
	start(a);
	answer_all();
	strcpy(a->config.elections[3], "new");
	election_configure(a->core, now, &a->config);
	deliver(a, sent(a, "delete"));
	assert_string_equal(a->views[3].name, "new");
	answer_all();
	assert_int_equal(a->views[3].state, ELECTION_LEADING);
}

/* Only a deletion that is denied is left to the lease. */
static void
test_deletion_refused(void **state)
{
	Instance   *a = lead_two();
	int64_t		lease = a->views[1].lease;

	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	refuse(a, sent(a, "delete"));
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[1].lease, lease);
}

/* The key is deleted before a write of it is executed.  That write ends no resignation. */
static void
test_write_after_deletion(void **state)
{
	for (int is_move = 0; is_move < 2; is_move++)
	{
		Instance   *a;
		Message    *put;
		Message    *delete;

		teardown(state);
		setup(state);
		a = lead_two();
		if (is_move)
			put = start_move(a);
		else
		{
			assert_true(election_proclaim(a->core, now, 0, "other", 1));
			put = sent(a, "put");
		}
		assert_true(election_resign(a->core, now, 0, false, 0, 2));
		delete = sent(a, "delete");
		execute(delete);
		deliver(a, put);
		assert_int_equal(a->views[0].state, ELECTION_LEAVING);
		deliver(a, delete);
		assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
		assert_int_equal(a->replied[2], ELECTION_DONE);
		run_for(TTL_S * SECOND);
		assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
		assert_int_equal(a->views[1].state, ELECTION_LEADING);
	}
}

/*
 * What this instance has written itself is no hand-over: when it leads, it does not write its
 * key once more.  The watch is silent, so the answers alone tell of the writes.
 */
static void
test_own_writes_are_no_receipt(void **state)
{
	for (int kind = 0; kind < 3; kind++)
	{
		Instance   *a;
		Instance   *b;
		int			nwrites;

		teardown(state);
		setup(state);
		a = join("a");
		b = join("b");
		b->watch_silent = true;
		if (kind == 0)
		{
			assert_true(election_proclaim(b->core, now, 0, "other", 1));
			deliver(b, sent(b, "put"));
			assert_true(b->has_replied[1]);
			assert_null(sent(b, "put"));
		}
		else if (kind == 1)
			deliver(b, start_move(b));
		else
		{
			/* somebody puts the key on another lease, and it is moved back */
			grant_lease(now, 4711, 100);
			put_key(bytes(b->views[0].key), bytes("operator"), 4711);
			assert_true(election_verify(b->core, now, 0, 2));
			deliver(b, sent(b, "read"));
			assert_int_equal(b->views[0].lease, 4711);
			deliver(b, sent(b, "put"));
			assert_non_null(sent(b, "read"));
			assert_int_equal(own_key(b)->lease, sent(b, "put") ? sent(b, "put")->request.success[0].lease : own_key(b)->lease);
		}
		answer_all();
		nwrites = own_key(b)->number;
		assert_in_range(nwrites, 2, kind == 2 ? 4 : 2);
		b->watch_silent = false;
		run_for(SECOND);
		assert_true(election_resign(a->core, now, 0, false, 0, 3));
		answer_all();
		assert_true(leads(b));
		assert_int_equal(own_key(b)->number, nwrites);
	}
}

/* Nobody enters on a lease that is being revoked, and its keys need no deletion. */
static void
test_lease_given_up(void **state)
{
	Instance   *a = join("a");
	Message    *revoke;

	a->config.eligible = false;
	election_configure(a->core, now, &a->config);
	revoke = sent(a, "revoke");
	assert_non_null(revoke);
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_OBSERVING);
	assert_int_equal(find_note(0, "a sends delete"), -1);

	a->config.eligible = true;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(leads(a));
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	revoke = sent(a, "revoke");
	assert_non_null(revoke);
	while (sent(a, "read"))
		deliver(a, sent(a, "read"));
	assert_true(election_campaign(a->core, now, 0, 2));
	assert_null(sent(a, "enter"));
	answer_all();
	run_for(SECOND);
	assert_true(leads(a));
	assert_int_equal(a->replied[2], ELECTION_DONE);
}

/* While the lease is given up, no key is put on it: a campaign waits for another lease. */
static void
test_campaign_while_revoking(void **state)
{
	Instance   *a = lead_two();
	Message    *revoke;

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	assert_true(election_resign(a->core, now, 1, false, 0, 2));
	revoke = sent(a, "revoke");
	assert_non_null(revoke);
	assert_true(election_campaign(a->core, now, 0, 3));
	assert_int_equal(a->views[0].state, ELECTION_JOINING);
	(void) run_until_sent(a, "read");
	deliver(a, sent(a, "read"));
	assert_null(sent(a, "enter"));
	deliver(a, revoke);
	answer_all();
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_LEADING);
	assert_int_equal(a->replied[3], ELECTION_DONE);
}

/* Whoever leaves while its entry is under way is out, also if the lease has ended by then. */
static void
test_lease_ends_while_leaving(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter = start_entry(a);
	Message    *m;

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	assert_int_equal(a->views[0].state, ELECTION_LEAVING);
	while ((m = sent(a, "read")) != NULL)
		deliver(a, m);
	execute(enter);
	while ((m = sent(a, "revoke")) == NULL)
		election_tick(a->core, now += MS);
	deliver(a, m);
	deliver(a, enter);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_int_equal(count_keys(), 0);
}

/* Somebody writes the key anew before it is deleted: it is deleted all the same. */
static void
test_deletion_of_another_key(void **state)
{
	Instance   *a = lead_two();
	char		key[sizeof(a->views[0].key)];
	int64_t		lease = a->views[0].lease;
	Message    *delete;

	strcpy(key, a->views[0].key);
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	delete = sent(a, "delete");
	delete_key(strcmp(name_of(key_at(0)), key) == 0 ? key_at(0) : key_at(1));
	put_key(bytes(key), bytes("operator"), lease);
	deliver(a, delete);
	assert_false(a->has_replied[1]);
	assert_non_null(sent(a, "delete"));
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_int_equal(count_keys(), 1);
}

/* etcd_campaign() accepts another primary that leads; without one, it accepts nothing. */
static void
test_campaign_accepts_no_rival(void **state)
{
	Instance   *a = add_primary("a", "71", 2);

	start(a);
	(void) start_entry(a);
	assert_int_equal(a->views[0].state, ELECTION_JOINING);
	assert_true(election_campaign(a->core, now, 0, 1));
	assert_int_equal(a->timelines.accepted, 0);
	answer_all();
	assert_true(leads(a));
	assert_int_equal(a->replied[1], ELECTION_DONE);
}

/* Who resigned for good stays out over reloads, over a time as a standby, and with another etcd. */
static void
test_reload_keeps_out(void **state)
{
	Instance   *a = join("a");

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	election_configure(a->core, now, &a->config);
	for (int eligible = 0; eligible < 2; eligible++)
	{
		a->config.eligible = eligible;
		election_configure(a->core, now, &a->config);
		run_for(SECOND);
		assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	}
	etcd.cluster_id++;
	run_for(3 * TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
	assert_int_equal(count_keys(), 0);
}

/* A leader that resigns is no leader that is lost: there is one event. */
static void
test_resignation_is_one_event(void **state)
{
	Instance   *a = join("a");
	int			from = nlogged;

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	election_tick(a->core, now += MS);
	assert_true(find_note(from, "a: unelected - resigned") >= 0);
	assert_int_equal(find_note(from, "a: leader"), -1);
}

/* ---- single conditions of the queue, the lease and the reads ---------------------------- */

static int
count_notes(int from, const char *text)
{
	int			n = 0;

	for (int i = find_note(from, text); i >= 0; i = find_note(i + 1, text))
		n++;
	return n;
}

/* Lets time pass until that request is sent (NULL: for that time), and answers all but one. */
static Message *
run_without(Instance *in, const Message *kept, const char *kind, int64_t ns)
{
	for (int64_t end = now + ns; now < end;)
	{
		if (kind && sent(in, kind))
			return sent(in, kind);
		now += MS;
		expire_leases(now);
		election_tick(in->core, now);
		for (int i = 0; i < MAX_MESSAGES; i++)
		{
			Message    *m = &in->messages[i];

			if (m->used && !m->given_up && m != kept && (kind == NULL || strcmp(describe(&m->request), kind) != 0))
				deliver(in, m);
		}
	}
	assert_null(kind);
	return NULL;
}

/* The same settings but for the number of endpoints: a request may fail, and contact remains. */
static Instance *
start_with_endpoints(const char *name)
{
	Instance   *in = add_instance(name, true);

	in->config.nendpoints = 3;
	start(in);
	return in;
}

static void
add_election(Instance *in, const char *name)
{
	strcpy(in->config.elections[in->config.nelections++], name);
	election_configure(in->core, now, &in->config);
}

static void
drop_election(Instance *in)
{
	in->config.nelections--;
	election_configure(in->core, now, &in->config);
}

static Message *
sent_revoke(Instance *in, int64_t lease)
{
	for (int i = 0; i < MAX_MESSAGES; i++)
	{
		Message    *m = &in->messages[i];

		if (m->used && !m->given_up && m->request.kind == ETCD_REVOKE && m->request.lease == lease)
			return m;
	}
	return NULL;
}

/* A lease that is given up is not asked for its TTL, whatever etcd says of its grant. */
static void
test_grant_refused_while_revoking(void **state)
{
	Instance   *a = join("a");
	int64_t		lease;

	a->config.ttl_s = 40;
	election_configure(a->core, now, &a->config);
	lease = sent(a, "grant")->request.lease;
	execute(sent(a, "grant"));
	give_up(a, sent(a, "grant"), false);
	for (int i = 0; i < 100 && sent(a, "grant") == NULL; i++)
	{
		now += 10 * MS;
		election_tick(a->core, now);
	}
	assert_non_null(sent(a, "grant"));
	a->config.eligible = false;
	election_configure(a->core, now, &a->config);
	assert_non_null(sent_revoke(a, lease));
	deliver(a, sent(a, "grant"));
	for (int i = 0; i < MAX_MESSAGES; i++)
		assert_false(a->messages[i].used && a->messages[i].request.kind == ETCD_KEEPALIVE && a->messages[i].request.lease == lease);
}

/* Nothing was entered yet: a resignation is done at once, and needs no contact. */
static void
test_resign_before_entry(void **state)
{
	Instance   *a = start_instance("a", true);

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
}

/* An election without a key costs no lease if it is denied, and is gone as soon as it is dropped. */
static void
test_dropped_after_resignation(void **state)
{
	for (int denied = 0; denied < 2; denied++)
	{
		Instance   *a;
		int64_t		lease;

		teardown(state);
		setup(state);
		a = lead_two();
		lease = a->views[0].lease;
		assert_true(election_resign(a->core, now, 1, false, 0, 1));
		answer_all();
		etcd.denied = denied ? "f/" : NULL;
		lead_on(a, 2 * TTL_S * SECOND);
		assert_int_equal(a->views[1].state, ELECTION_RESIGNED);
		assert_int_equal(a->views[0].lease, lease);
		drop_election(a);
		assert_string_equal(a->views[1].name, "");
	}
}

/* The last election is dropped: its lease is revoked, and the key needs no deletion. */
static void
test_dropped_alone(void **state)
{
	Instance   *a = join("a");

	drop_election(a);
	assert_non_null(sent(a, "revoke"));
	assert_null(sent(a, "delete"));
	answer_all();
	assert_int_equal(count_keys(), 0);
	assert_int_equal(count_leases(), 0);
}

/* A resignation whose deletion has no answer yet is not said to be done when rights are missing. */
static void
test_dropped_in_deletion(void **state)
{
	Instance   *a = lead_two();

	etcd.denied = "f/";
	assert_true(election_resign(a->core, now, 1, true, 0, 1));
	drop_election(a);
	(void) run_without(a, sent(a, "delete"), NULL, TTL_S * SECOND);
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
}

/* The same if the key could not be moved to the lease that is revoked, and stands on the one before. */
static void
test_dropped_with_key_on_other_lease(void **state)
{
	Instance   *a = join("a");
	int64_t		lease = a->views[0].lease;

	etcd.term++;
	etcd.denied = "e/";
	deliver(a, run_without(a, NULL, "put", TTL_S * SECOND));
	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	drop_election(a);
	give_up(a, sent(a, "delete"), false);
	(void) run_without(a, NULL, NULL, 2 * SECOND);
	assert_true(exists("e/"));
	assert_int_equal(key_at(0)->lease, lease);
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
}

/*
 * etcd denies the revocation of a lease while the key is on it, and an operator puts the key
 * off the lease.  Without rights the instance cannot see that the key stands, and does not
 * say that it has resigned.
 */
static void
test_dropped_with_key_on_no_lease(void **state)
{
	Instance   *a = join("a");
	Version		old = *own_key(a);

	etcd.denied = "e/";
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	deliver(a, sent(a, "revoke"));
	drop_election(a);
	put_key(store_key(old.key)->name, old.value, 0);
	(void) run_without(a, NULL, NULL, 2 * TTL_S * SECOND);
	assert_true(exists("e/"));
	assert_string_equal(a->views[0].name, "");
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
}

/* An entry is waited for, also without rights and in a dropped election: its key is deleted then. */
static void
test_dropped_in_entry(void **state)
{
	Instance   *a = join("a");
	int			from = nlogged;
	Message    *enter;

	add_election(a, "f");
	enter = start_entry(a);
	execute(enter);
	etcd.denied = "f/";
	(void) run_without(a, enter, NULL, TTL_S * SECOND);
	drop_election(a);
	(void) run_without(a, enter, NULL, TTL_S * SECOND);
	assert_string_equal(a->views[1].name, "f");
	assert_int_equal(count_notes(from, "a sends grant"), 0);
	etcd.denied = NULL;
	deliver(a, enter);
	answer_all();
	assert_string_equal(a->views[1].name, "");
	assert_false(exists("f/"));
}

/* Commands do not wait for rights that are missing.  What they asked for goes on with the rights. */
static void
test_commands_without_rights(void **state)
{
	Instance   *a = lead_two();

	etcd.denied = "f/";
	assert_true(election_resign(a->core, now, 1, true, 0, 1));
	lead_on(a, SECOND);
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
	assert_int_equal(a->views[1].state, ELECTION_LEAVING);
	assert_true(election_campaign(a->core, now, 1, 2));
	lead_on(a, SECOND);
	assert_true(a->has_replied[2]);
	assert_int_equal(a->replied[2], ELECTION_NO_CONTACT);

	/* the key ends with its lease, and still nobody can see that */
	lead_on(a, 2 * TTL_S * SECOND);
	assert_false(exists("f/"));
	assert_true(election_resign(a->core, now, 1, false, 0, 3));
	lead_on(a, SECOND);
	assert_int_equal(a->views[1].state, ELECTION_LEAVING);
	etcd.denied = NULL;
	lead_on(a, SECOND);
	assert_int_equal(a->views[1].state, ELECTION_RESIGNED);
}

/* The key can be read, and not deleted.  The resignation is done when the key has ended with its lease. */
static void
test_resignation_without_right_to_write(void **state)
{
	Instance   *a = lead_two();

	etcd.denied = "f/";
	etcd.denies_writes_only = true;
	assert_true(election_resign(a->core, now, 1, false, 0, 1));
	lead_on(a, 2 * TTL_S * SECOND);
	assert_false(exists("f/"));
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_DONE);
}

/* An election that is entered anew without rights: etcd_campaign() is answered, and enters with them. */
static void
test_campaign_without_rights(void **state)
{
	for (int writes_only = 0; writes_only < 2; writes_only++)
	{
		Instance   *a;

		teardown(state);
		setup(state);
		a = join("a");
		etcd.denied = "f/";
		etcd.denies_writes_only = writes_only;
		add_election(a, "f");
		assert_true(election_campaign(a->core, now, 1, 1));
		lead_on(a, 3 * SECOND);
		assert_true(a->has_replied[1]);
		assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
		etcd.denied = NULL;
		lead_on(a, 3 * SECOND);
		assert_int_equal(a->views[1].state, ELECTION_LEADING);
	}
}

/* etcd_campaign() reads at once, and again soon, whatever was denied before. */
static void
test_campaign_after_denials(void **state)
{
	Instance   *a = lead_two();
	int64_t		denied_ns;

	assert_true(election_resign(a->core, now, 1, false, 0, 1));
	answer_all();
	etcd.denied = "f/";
	lead_on(a, 3 * TTL_S * SECOND);
	assert_null(sent(a, "read"));
	assert_true(election_campaign(a->core, now, 1, 2));
	assert_non_null(sent(a, "read"));
	deliver(a, sent(a, "read"));
	assert_null(sent(a, "read"));
	denied_ns = now;
	(void) run_until_sent(a, "read");
	assert_true(now - denied_ns <= 100 * MS);
}

/* A waiter's key was on another lease for a while, and is back.  The waiter is as ready as before. */
static void
test_ready_put_back_by_others(void **state)
{
	Instance   *b = start_ready(2);
	int64_t		lease = b->views[0].lease;
	Message    *put = hang_elsewhere(b);

	b->watch_silent = true;
	put_key(bytes(b->views[0].key), bytes("b"), lease);
	b->watch_silent = false;
	deliver(b, put);
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

/* A ready waiter stays ready with its renewals, and when its stream is opened anew. */
static void
test_ready_in_new_stream(void **state)
{
	Instance   *b = start_ready(2);

	set_revision(store_revision() + 5);
	run_for(TTL_S * SECOND / 3 + SECOND / 10);
	add_election(b, "f");
	run_for(SECOND / 5);
	assert_true(b->nwatches > 1);
	assert_true(b->watches[0].start_revision >= 5);
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
}

/*
 * Reads of the queue have no answer, and only renewals go on.  So the name of the leader is
 * not known any more.  The wait ends all the same.
 */
static void
test_ready_without_name(void **state)
{
	Instance   *b = start_ready(2);

	b->watch_silent = true;
	assert_true(election_proclaim(instances[0].core, now, 0, "other", 1));
	for (int64_t end = now + 2 * TTL_S * SECOND; now < end;)
	{
		now += MS;
		for (int i = 0; i < 2; i++)
		{
			election_tick(instances[i].core, now);
			for (int j = 0; j < MAX_MESSAGES; j++)
			{
				Message    *m = &instances[i].messages[j];
				bool		is_wide = m->used && m->request.nsuccess > 1 && m->request.success[1].range_end.len > 0;

				if (&instances[i] == b && is_wide)
					m->given_up = true;
				else if (m->used && !m->given_up)
					deliver(&instances[i], m);
			}
		}
	}
	assert_false(b->views[0].has_leader);
	tell_gone(b, store_revision() + 1);
	assert_true(leads(b));
	assert_true(b->views[0].has_leader);
	assert_string_equal(b->views[0].leader, "b");
}

/* The watch reports the own key with another create revision: the key that led is gone. */
static void
test_key_exchanged(void **state)
{
	Instance   *a = join("a");
	char		key[ELECTION_KEY_SIZE];

	strcpy(key, a->views[0].key);
	a->watch_silent = true;
	delete_key(own_key(a));
	a->watch_silent = false;
	put_key(bytes(key), bytes("a"), a->views[0].lease);
	assert_false(leads(a));
	assert_true(find_note(0, "a: unelected - key_deleted") >= 0);
}

/* A read of before a proclamation does not bring the old value back, also without a watch. */
static void
test_proclaim_without_watch(void **state)
{
	Instance   *a = join("a");
	Message    *read;
	int			from;

	a->watch_silent = true;
	assert_true(election_verify(a->core, now, 0, 1));
	read = sent(a, "read");
	execute(read);
	assert_true(election_proclaim(a->core, now, 0, "other", 2));
	deliver(a, sent(a, "put"));
	from = nlogged;
	deliver(a, read);
	assert_string_equal(a->views[0].leader, "other");
	assert_int_equal(find_note(from, ": leader"), -1);
}

/* The first read was executed before a proclamation, and is answered after it: another one follows. */
static void
test_proclaim_before_first_read(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *read;

	deliver(a, start_entry(a));
	read = sent(a, "read");
	execute(read);
	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	deliver(a, sent(a, "put"));
	deliver(a, read);
	assert_false(leads(a));
	assert_non_null(sent(a, "read"));
	deliver(a, sent(a, "read"));
	assert_true(leads(a));
}

/* A key that is entered after the lease was given up has the name of the new lease. */
static void
test_name_after_lease(void **state)
{
	Instance   *a = lead_two();
	char		lease[32];

	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_true(election_resign(a->core, now, 1, false, 0, 2));
	answer_all();
	assert_int_equal(count_leases(), 0);
	assert_true(election_campaign(a->core, now, 0, 3));
	answer_all();
	assert_true(leads(a));
	snprintf(lease, sizeof(lease), "e/%" PRIx64, a->views[0].lease);
	assert_int_equal(strncmp(a->views[0].key, lease, strlen(lease)), 0);
}

/* The leader of another etcd is shown, although the revisions of that etcd are lower. */
static void
test_leader_of_other_history(void **state)
{
	Instance   *o;

	set_revision(1000);
	put_key(bytes("e/x"), bytes("y"), 0);
	o = observe("o");
	assert_string_equal(o->views[0].leader, "y");
	etcd.cluster_id++;
	lose_all(10);
	put_key(bytes("e/x"), bytes("z"), 0);
	run_for(4 * TTL_S * SECOND);
	assert_string_equal(o->views[0].leader, "z");
}

/* A question about the other primary's lease is under way while etcd is replaced.  It is asked again. */
static void
test_rival_of_other_history(void **state)
{
	Instance   *b;

	(void) join_primary("a", "71", 1);
	b = join_primary("b", "71", 2);
	run_until_sent(b, "time to live")->given_up = true;	/* nobody answers it */
	etcd.cluster_id++;
	lose_all(store_revision() + 1000);
	run_for(6 * TTL_S * SECOND);
	assert_true(leads(&instances[0]));
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
}

/* A copy of the primary, on the same timeline, is told that the other one was alive. */
static void
test_copy_of_primary(void **state)
{
	Instance   *b;

	(void) join_primary("a", "71", 1);
	b = join_primary("b", "71", 1);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
	assert_non_null(strstr(b->views[0].problem, "was alive"));
}

/* After a crash the key is written by its remembered revisions, before a read has shown them. */
static void
test_resume_and_write(void **state)
{
	Instance   *a = join("a");

	assert_true(election_proclaim(a->core, now, 0, "one", 1));
	answer_all();
	assert_true(election_proclaim(a->core, now, 0, "two", 2));
	assert_true(a->remembers);
	crash(a);
	deliver(a, sent(a, "keepalive"));
	deliver(a, sent(a, "put"));
	assert_string_equal(value_of(key_at(0)), "two");
}

/* A candidate is held back until etcd's revision is above every token that may have been used. */
static void
test_held_back_until(void **state)
{
	Instance   *a = start_held_back();
	int64_t		token = a->history.min_token_exclusive;

	set_revision(token);
	run_for(TTL_S * SECOND);
	assert_int_equal(a->views[0].state, ELECTION_HELD_BACK);
	set_revision(token + 1);
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_true(a->views[0].token > token);
}

/* A revocation without an answer is tried again, but not at once. */
static void
test_revocation_lost(void **state)
{
	Instance   *a = join("a");

	a->config.eligible = false;
	election_configure(a->core, now, &a->config);
	give_up(a, sent(a, "revoke"), true);
	election_tick(a->core, now);
	assert_null(sent(a, "revoke"));
	run_for(SECOND);
	assert_int_equal(count_leases(), 0);
	assert_int_equal(a->views[0].state, ELECTION_OBSERVING);
}

/* Everything is given up in the middle of a move: both leases are revoked, whichever answer is lost. */
static void
test_revocation_in_move(void **state)
{
	for (int lost = 0; lost < 2; lost++)
	{
		Instance   *a;
		int64_t		leases[2];
		Message    *move;

		teardown(state);
		setup(state);
		a = start_with_endpoints("a");
		answer_all();
		leases[0] = a->views[0].lease;
		move = start_move(a);
		leases[1] = move->request.success[0].lease;
		give_up(a, move, true);
		assert_true(election_resign(a->core, now, 0, false, 0, 1));
		assert_true(election_verify(a->core, now, 0, 2));
		deliver(a, sent(a, "read"));
		give_up(a, sent_revoke(a, leases[lost]), true);
		deliver(a, sent_revoke(a, leases[1 - lost]));
		assert_int_equal(count_leases(), 1);
		run_for(SECOND);
		assert_int_equal(count_leases(), 0);
		assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
		assert_int_equal(a->replied[1], ELECTION_DONE);
	}
}

/* The lease of before is revoked while the entry on the next one is given up: that key is deleted. */
static void
test_revocation_of_other_lease(void **state)
{
	Instance   *a = lead_two();
	int64_t		before = a->views[0].lease;
	Message    *read;
	Message    *enter;

	assert_true(election_resign(a->core, now, 0, true, 0, 1));
	a->config.ttl_s = TTL_S + 1;
	election_configure(a->core, now, &a->config);
	deliver(a, sent(a, "grant"));
	deliver(a, sent(a, "put"));
	deliver(a, sent(a, "delete"));
	assert_int_equal(a->replied[1], ELECTION_DONE);
	now += MS;
	assert_true(election_verify(a->core, now, 1, 3));
	deliver(a, sent(a, "read"));
	now += 100 * MS;
	election_tick(a->core, now);
	enter = sent(a, "enter");
	assert_int_not_equal(enter->request.success[0].lease, before);
	assert_true(election_resign(a->core, now, 0, false, 0, 2));
	read = sent(a, "read");
	execute(read);
	deliver(a, enter);
	deliver(a, sent_revoke(a, before));
	deliver(a, read);
	assert_false(a->has_replied[2]);
	answer_all();
	assert_int_equal(a->replied[2], ELECTION_DONE);
	assert_false(exists("e/"));
}

/* The TTL is the one that etcd has granted, but not more than was asked for. */
static void
test_granted_ttl(void **state)
{
	static const int64_t cases[][2] = {{0, TTL_S}, {3, 3}, {TTL_S, TTL_S}, {9, TTL_S}};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Instance   *a;
		Message    *grant;

		teardown(state);
		setup(state);
		a = start_instance("a", true);
		deliver(a, sent(a, "read"));
		grant = sent(a, "grant");
		execute(grant);
		grant->answer.ttl_s = cases[i][0];
		deliver(a, grant);
		answer_all();
		assert_true(leads(a));
		assert_int_equal(a->views[0].deadline_ns, now + cases[i][1] * (SECOND - SECOND / 10));
		assert_int_equal(count_notes(0, "a sends grant"), 1);
	}
}

/* The ID of a lease is never 0, which would let etcd choose one. */
static void
test_lease_id(void **state)
{
	Instance   *a = start_instance("a", true);

	random_is_zero = true;
	deliver(a, sent(a, "read"));
	random_is_zero = false;
	assert_int_equal(sent(a, "grant")->request.lease, 1);
}

/* Somebody else has a lease of that ID.  It is not used, and nothing is asked of it. */
static void
test_lease_of_others(void **state)
{
	Instance   *a = start_instance("a", true);
	int64_t		lease;

	deliver(a, sent(a, "read"));
	lease = sent(a, "grant")->request.lease;
	grant_lease(now, lease, 100);
	deliver(a, sent(a, "grant"));
	assert_null(sent(a, "keepalive"));
	run_for(SECOND);
	assert_true(leads(a));
	assert_int_not_equal(a->views[0].lease, lease);
}

/* A grant has no answer, and its second try is refused.  Then there is no lease to ask for. */
static void
test_grant_lost_and_refused(void **state)
{
	Instance   *a = start_with_endpoints("a");
	int64_t		lease;

	deliver(a, sent(a, "read"));
	lease = sent(a, "grant")->request.lease;
	give_up(a, sent(a, "grant"), true);
	etcd.is_full = true;
	assert_int_equal(run_until_sent(a, "grant")->request.lease, lease);
	deliver(a, sent(a, "grant"));
	assert_null(sent(a, "keepalive"));
	etcd.is_full = false;
	run_for(SECOND);
	assert_true(leads(a));
}

/* The answer to a move is lost, and a read shows the keys on the fresh lease.  Nothing is written again. */
static void
test_lost_move_is_read(void **state)
{
	Instance   *a = lead_two();
	Message    *move;
	int			from;

	assert_true(election_resign(a->core, now, 1, false, 0, 1));
	answer_all();
	run_for(3 * SECOND);
	move = start_move(a);
	execute(move);
	from = nlogged;
	give_up(a, move, false);
	assert_true(election_verify(a->core, now, 0, 2));
	deliver(a, sent(a, "read"));
	lead_on(a, 2 * SECOND);
	assert_int_equal(count_notes(from, "a sends put"), 0);
}

/* Then nothing is postponed any more: in a new term the next grant is sent at once. */
static void
test_grant_after_lost_move(void **state)
{
	Instance   *a = join("a");
	Message    *move = start_move(a);

	execute(move);
	give_up(a, move, false);
	etcd.term++;
	assert_true(election_verify(a->core, now, 0, 2));
	deliver(a, sent(a, "read"));
	assert_null(sent(a, "put"));
	assert_non_null(sent(a, "grant"));
}

/* The same after the lease has lapsed: the instance leads as soon as reads have shown both. */
static void
test_lost_move_after_lapse(void **state)
{
	Instance   *a = join("a");
	Message    *move;

	now = a->views[0].deadline_ns;
	election_tick(a->core, now);
	assert_false(leads(a));
	move = run_until_sent(a, "put");
	execute(move);
	give_up(a, move, false);
	assert_true(election_verify(a->core, now, 0, 2));
	deliver(a, sent(a, "read"));
	assert_false(leads(a));
	assert_non_null(sent(a, "read"));
	deliver(a, sent(a, "read"));
	assert_true(leads(a));
}

/* The TTL is changed and changed back, while the first grant has no answer. */
static void
test_ttl_and_back(void **state)
{
	for (int lasts = 0; lasts < 2; lasts++)
	{
		Instance   *a;
		int			from;

		teardown(state);
		setup(state);
		a = start_with_endpoints("a");
		answer_all();
		a->config.ttl_s = TTL_S + 1;
		election_configure(a->core, now, &a->config);
		give_up(a, sent(a, "grant"), true);
		a->config.ttl_s = TTL_S;
		election_configure(a->core, now, &a->config);
		if (!lasts)
		{
			/* the grant is tried again soon, so that nothing waits for it */
			assert_true(election_proclaim(a->core, now, 0, "other", 1));
			run_for(SECOND);
			assert_true(a->has_replied[1]);
			continue;
		}
		/* that lease would be too old now, and no other one is wanted */
		from = nlogged;
		now += (TTL_S + 1) * SECOND / 3;
		election_tick(a->core, now);
		answer_all();
		lead_on(a, 2 * SECOND);
		assert_int_equal(count_notes(from, "a sends grant"), 0);
	}
}

/* A fresh lease waits for an entry, whose key keeps its place. */
static void
test_move_after_entry(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *enter = start_entry(a);
	int64_t		token;

	execute(enter);
	token = key_at(0)->create_revision;
	etcd.term++;
	deliver(a, run_without(a, enter, "grant", TTL_S * SECOND));
	deliver(a, enter);
	run_for(SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[0].token, token);
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
}

/* The keys are not moved while one of them is written. */
static void
test_move_after_proclamation(void **state)
{
	Instance   *a = join("a");
	Message    *put;

	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	put = sent(a, "put");
	etcd.term++;
	deliver(a, run_without(a, put, "grant", TTL_S * SECOND));
	assert_true(sent(a, "put") == put);
	deliver(a, put);
	assert_non_null(sent(a, "put"));
	answer_all();
	assert_true(leads(a));
	assert_string_equal(value_of(key_at(0)), "other");
}

/* A lease whose grant is under way is revoked when nobody wants it any more. */
static void
test_resign_before_grant(void **state)
{
	Instance   *a = start_instance("a", true);

	deliver(a, sent(a, "read"));
	execute(sent(a, "grant"));
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	answer_all();
	assert_int_equal(count_leases(), 0);
	assert_int_equal(a->views[0].state, ELECTION_RESIGNED);
}

/* A refusal tells no raft term, so no lease is granted before an answer has told it. */
static void
test_no_grant_without_term(void **state)
{
	Instance   *a = start_instance("a", true);

	refuse(a, sent(a, "read"));
	assert_null(sent(a, "grant"));
	run_for(SECOND);
	assert_true(leads(a));
	assert_int_equal(count_notes(0, "a sends grant"), 1);
}

/* A renewal fails while a later one is under way.  No other one is needed. */
static void
test_older_renewal_fails(void **state)
{
	Instance   *a = start_instance("a", true);
	Message    *keepalives[2];
	int64_t		sent_ns[2];

	start_renewals(a, keepalives, sent_ns);
	refuse(a, keepalives[0]);
	now += 100 * MS;
	election_tick(a->core, now);
	assert_true(sent(a, "keepalive") == keepalives[1]);
}

/* A shorter TTL counts from now on, and not only after the next read. */
static void
test_shorter_interval(void **state)
{
	Instance   *o = add_instance("o", false);
	int			nsent;

	o->config.ttl_s = 60;
	start(o);
	run_for(SECOND);
	o->config.ttl_s = 3;
	election_configure(o->core, now, &o->config);
	nsent = o->nsent;
	run_for(SECOND + SECOND / 10);
	assert_true(o->nsent > nsent);
}

/* With a long TTL, too, a leader tries again within a second. */
static void
test_backoff_of_long_ttl(void **state)
{
	Instance   *a = add_instance("a", true);

	a->config.ttl_s = 60;
	start(a);
	answer_all();
	for (int i = 0; i < 12; i++)
	{
		int64_t		failed_ns = now;

		if (i > 0)
		{
			while (sent(a, "keepalive") == NULL)
				election_tick(a->core, now += MS);
			assert_true(now - failed_ns <= SECOND);
		}
		else
			now = election_wakeup_ns(a->core);
		election_tick(a->core, now);
		refuse(a, sent(a, "keepalive"));
	}
	assert_true(leads(a));
}

/* Renewals and grants fail often, and then succeed.  The next failure waits as short as the first. */
static void
test_lease_failures_are_forgotten(void **state)
{
	static const char *const kinds[] = {"keepalive", "grant"};

	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		Instance   *a;
		int64_t		failed_ns;

		teardown(state);
		setup(state);
		a = join("a");
		a->config.ttl_s = TTL_S + 2 * i;
		election_configure(a->core, now, &a->config);
		for (int j = 0; j < 6; j++)
			refuse(a, run_until_sent(a, kinds[i]));
		deliver(a, run_until_sent(a, kinds[i]));
		answer_all();
		lead_on(a, 3 * SECOND);
		a->config.ttl_s = TTL_S;
		election_configure(a->core, now, &a->config);
		refuse(a, run_until_sent(a, kinds[i]));
		failed_ns = now;
		assert_null(sent(a, kinds[i]));
		(void) run_until_sent(a, kinds[i]);
		assert_true(now - failed_ns <= 100 * MS);
	}
}

/* HISTORY: an instance that leads by a lease with a longer TTL discards the history after that TTL. */
static void
test_history_and_shorter_ttl(void **state)
{
	Instance   *a = join("a");

	a->config.ttl_s = 1;
	election_configure(a->core, now, &a->config);
	assert_true(election_verify(a->core, now, 0, 1));
	etcd.term--;
	deliver(a, sent(a, "read"));
	now += SECOND + MS;
	election_tick(a->core, now);
	deliver(a, sent(a, "read"));
	assert_true(leads(a));
	assert_int_not_equal(election_cluster_id(a->core), 0);
	now += TTL_S * SECOND;
	election_tick(a->core, now);
	deliver(a, sent(a, "read"));
	assert_int_equal(election_cluster_id(a->core), 0);
}

/* HISTORY: while answers put the history in doubt, a move to a fresh lease moves no deadline. */
static void
test_move_in_doubt(void **state)
{
	Instance   *a = join("a");
	int64_t		deadline_ns = a->views[0].deadline_ns;

	now += SECOND;
	a->config.ttl_s = 2 * TTL_S;
	election_configure(a->core, now, &a->config);
	assert_true(election_verify(a->core, now, 0, 1));
	etcd.term--;
	deliver(a, sent(a, "read"));
	deliver(a, sent(a, "grant"));
	deliver(a, sent(a, "put"));
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	assert_true(leads(a));
	assert_int_equal(a->views[0].deadline_ns, deadline_ns);
	etcd.term++;
	answer_all();
	assert_true(a->views[0].deadline_ns > deadline_ns);
}

/* The same with a shorter TTL: the fresh lease ends before the old one. */
static void
test_shorter_move_in_doubt(void **state)
{
	Instance   *a = join("a");

	a->config.ttl_s = 1;
	election_configure(a->core, now, &a->config);
	assert_true(election_verify(a->core, now, 0, 1));
	etcd.term--;
	deliver(a, sent(a, "read"));
	deliver(a, sent(a, "grant"));
	deliver(a, sent(a, "put"));
	assert_int_equal(key_at(0)->lease, a->views[0].lease);
	assert_true(leads(a));
	assert_true(a->views[0].deadline_ns < now + SECOND);
}

/* An instance that does not lead enters with its lease, though the history is in doubt. */
static void
test_entry_in_doubt(void **state)
{
	Instance   *a = start_instance("a", false);

	answer_all();
	assert_true(election_verify(a->core, now, 0, 1));
	etcd.term--;
	deliver(a, sent(a, "read"));
	etcd.term++;
	a->config.eligible = true;
	election_configure(a->core, now, &a->config);
	deliver(a, sent(a, "grant"));
	assert_non_null(sent(a, "enter"));
}

/* HISTORY: a resignation whose deletion has no answer is not done. */
static void
test_resignation_in_other_history(void **state)
{
	Instance   *a = start_instance("a", true);

	a->config.nendpoints = 3;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(election_resign(a->core, now, 0, false, 0, 1));
	assert_true(election_verify(a->core, now, 0, 2));
	etcd.term--;
	deliver(a, sent(a, "read"));
	now += TTL_S * SECOND + MS;
	assert_false(a->has_replied[1]);
	deliver(a, sent(a, "read"));
	assert_int_equal(election_cluster_id(a->core), 0);
	assert_true(a->has_replied[1]);
	assert_int_equal(a->replied[1], ELECTION_NO_CONTACT);
}

/* Nothing is revoked in another etcd that was granted in the one before. */
static void
test_retired_of_other_history(void **state)
{
	Instance   *a = join("a");
	int			from;

	deliver(a, start_move(a));
	assert_true(leads(a));
	assert_null(sent(a, "read"));
	etcd.cluster_id++;
	lose_all(store_revision() + 1000);
	from = nlogged;
	run_for(4 * TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(count_notes(from, "a sends revoke"), 0);
}

/* The successor missed the end of its wait.  One read is enough. */
static void
test_successor_reads_once(void **state)
{
	Instance   *b = start_ready(2);

	b->watch_silent = true;
	assert_true(election_resign(instances[0].core, now, 0, false, 0, 1));
	deliver(&instances[0], sent(&instances[0], "revoke"));
	assert_true(election_verify(b->core, now, 0, 2));
	assert_true(is_ordered(sent(b, "read")));
	deliver(b, sent(b, "read"));
	assert_true(leads(b));
}

/* A renewal is ordered, also if an election was denied and is read alone otherwise. */
static void
test_renewal_beside_denied(void **state)
{
	Instance   *a = lead_two();

	run_for(election_wakeup_ns(a->core) - now - MS);
	etcd.denied = "f/";
	assert_true(election_verify(a->core, now, 1, 1));
	deliver(a, sent(a, "read"));
	while (sent(a, "keepalive") == NULL)
		election_tick(a->core, now += MS);
	deliver(a, sent(a, "keepalive"));
	assert_true(is_ordered(sent(a, "read")));
	etcd.denied = NULL;
}

/* Another key with the own name is counted from when it was entered. */
static void
test_other_duplicate(void **state)
{
	Instance   *a = join("a");

	for (int i = 0; i < 2; i++)
	{
		put_key(bytes("e/x"), bytes("a"), 0);
		run_for(6 * SECOND);
		assert_int_equal(find_note(0, "a: duplicate name"), -1);
		if (i == 0)
			delete_key(store_find(bytes("e/x")));
	}
	run_for(8 * SECOND);
	assert_true(find_note(0, "a: duplicate name in e: e/x") >= 0);
	assert_true(leads(a));
}

/* The watch knows a later write of the leader than a read shows: the places are the same. */
static void
test_names_and_later_write(void **state)
{
	Instance   *b = start_ready(2);
	Message    *read;

	now += TTL_S * SECOND / 3;
	election_tick(b->core, now);
	deliver(b, sent(b, "keepalive"));
	read = sent(b, "read");
	execute(read);
	assert_true(election_proclaim(instances[0].core, now, 0, "other", 1));
	deliver(&instances[0], sent(&instances[0], "put"));
	assert_string_equal(b->views[0].leader, "other");
	deliver(b, read);
	assert_string_equal(b->views[0].leader, "other");
	assert_null(sent(b, "read"));
}

/* A read shows the leader that its key is gone.  It is told once, and no leader after that is invented. */
static void
test_loss_is_one_event(void **state)
{
	Instance   *a = join("a");
	int			from = nlogged;

	a->watch_silent = true;
	delete_key(own_key(a));
	assert_true(election_verify(a->core, now, 0, 1));
	deliver(a, sent(a, "read"));
	assert_int_equal(count_notes(from, "a: unelected - key_deleted"), 1);
	assert_int_equal(count_notes(from, "a: leader"), 0);
}

/* Neither an election without rights nor a renewal that fails delays the reads of others. */
static void
test_reads_beside_failures(void **state)
{
	Instance   *a = lead_two();
	Message    *renewal;

	run_for(election_wakeup_ns(a->core) - now - 100 * MS);
	etcd.denied = "f/";
	assert_true(election_verify(a->core, now, 1, 1));
	deliver(a, sent(a, "read"));
	while (sent(a, "read"))
		deliver(a, sent(a, "read"));
	assert_true(election_verify(a->core, now, 0, 2));
	assert_non_null(sent(a, "read"));
	etcd.denied = NULL;
	answer_all();

	run_for(SECOND);
	assert_true(a->has_replied[1] && a->has_replied[2]);
	(void) run_until_sent(a, "keepalive");
	deliver(a, sent(a, "keepalive"));
	renewal = sent(a, "read");
	assert_true(is_ordered(renewal));
	refuse(a, renewal);
	assert_true(election_verify(a->core, now, 0, 3));
	assert_non_null(sent(a, "read"));
}

/* A read that fails is tried at each other endpoint at once, and then after a while; each time anew. */
static void
test_read_at_each_endpoint(void **state)
{
	for (int n = 1; n <= 3; n += 2)
	{
		Instance   *a;

		teardown(state);
		setup(state);
		a = add_instance("a", true);
		a->config.nendpoints = n;
		start(a);
		answer_all();
		for (int turn = 1; turn <= 2; turn++)
		{
			assert_true(election_verify(a->core, now, 0, turn));
			for (int i = 0; i < n; i++)
			{
				assert_non_null(sent(a, "read"));
				refuse(a, sent(a, "read"));
			}
			assert_null(sent(a, "read"));
			deliver(a, run_until_sent(a, "read"));
			assert_true(a->has_replied[turn]);
		}
	}
}

/* An answer to one read shows that another one need not be put off any longer. */
static void
test_read_answered_beside_failure(void **state)
{
	Instance   *o;
	Message    *first;

	(void) join("a");
	o = observe("o");
	run_for(100 * MS);
	assert_true(election_verify(o->core, now, 0, 1));
	first = sent(o, "read");
	election_watch_ended(o->core, now);
	assert_ptr_not_equal(sent(o, "read"), first);
	refuse(o, first);
	deliver(o, sent(o, "read"));
	assert_false(o->has_replied[1]);
	assert_non_null(sent(o, "read"));
	deliver(o, sent(o, "read"));
	assert_true(o->has_replied[1]);
}

/* MEMORY: a write that changed nothing in the end is remembered like before. */
static void
test_remember_again(void **state)
{
	Instance   *a = join("a");

	add_election(a, "f");
	(void) start_entry(a);
	for (int i = 0; i < 3; i++)
	{
		assert_false(a->remembers);
		refuse(a, sent(a, "enter"));
		assert_true(a->remembers);
		(void) run_until_sent(a, "enter");
	}
}

/* HISTORY: what has not changed is not remembered again. */
static void
test_history_once(void **state)
{
	Instance   *a = join("a");
	int			nhistories = a->nhistories;

	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->nhistories, nhistories);
}

/* ---- contact, doubts and the watch stream ---------------------------------------------- */

/* An observer of an election without candidates sees the first one, also after a reload. */
static void
test_observed_election_exchanged(void **state)
{
	Instance   *o = observe("o");
	Instance   *a = add_instance("a", true);

	assert_int_equal(o->nwatches, 1);
	strcpy(o->config.elections[0], "f");
	election_configure(o->core, now, &o->config);
	answer_all();
	assert_string_equal(o->views[0].name, "f");
	assert_int_equal(o->nwatches, 1);
	assert_memory_equal(o->watches[0].key.data, "f/", 2);
	strcpy(a->config.elections[0], "f");
	start(a);
	answer_all();
	assert_string_equal(o->views[0].leader, "a");
}

/*
 * A request that was not sent, or went to an endpoint that is not used any more, says nothing
 * of the endpoints.  It is tried again and again, in the least time.
 */
static void
test_failure_of_no_endpoint(void **state)
{
	static const int endpoints[] = {-1, 1, 7};

	for (size_t i = 0; i < lengthof(endpoints); i++)
	{
		Instance   *a;
		int			nsent = 0;

		teardown(state);
		setup(state);
		a = start_instance("a", true);
		for (int64_t end = now + 10 * SECOND; now < end; now += MS)
		{
			election_tick(a->core, now);
			if (sent(a, "read") == NULL)
				continue;
			nsent++;
			fail_at(a, endpoints[i]);
		}
		assert_in_range(nsent, 90, 101);
		run_for(SECOND);
		assert_true(leads(a));
	}
}

/* Before the first contact each endpoint is tried at once, and then all of them wait. */
static void
test_endpoints_tried_at_start(void **state)
{
	Instance   *a = add_instance("a", true);

	a->config.nendpoints = 3;
	start(a);
	for (int i = 0; i < 3; i++)
	{
		assert_non_null(sent(a, "read"));
		fail_at(a, i);
		election_tick(a->core, now);
	}
	assert_null(sent(a, "read"));
}

/* One of many endpoints fails, again and again.  Contact is not lost. */
static void
test_many_endpoints(void **state)
{
	Instance   *a = join("a");

	a->config.nendpoints = ELECTION_MAX_ENDPOINTS;
	election_configure(a->core, now, &a->config);
	for (int i = 0; i < 3; i++)
		fail_at(a, 0);
	assert_true(election_connected(a->core));
}

/* An answer ends what was known of failures: the next loss of contact begins anew. */
static void
test_answer_forgets_failures(void **state)
{
	Instance   *o = add_instance("o", false);
	int64_t		failed_ns;

	o->config.nendpoints = 2;
	start(o);
	answer_all();
	fail_at(o, 0);
	answer_all();
	run_for(TTL_S * SECOND);
	fail_at(o, 1);
	fail_at(o, 1);
	assert_true(election_connected(o->core));

	for (int i = 0; i < 20; i++)
		fail_at(o, i % 2);
	assert_false(election_connected(o->core));
	(void) run_until_sent(o, "read");
	answer_all();
	assert_true(election_connected(o->core));
	while (election_connected(o->core))
	{
		fail_at(o, 0);
		fail_at(o, 1);
	}
	failed_ns = now;
	(void) run_until_sent(o, "read");
	assert_true(now - failed_ns <= 100 * MS);
}

/* Loses contact within a short time, and answers the next keepalive or read: contact is back. */
static void
lose_contact_for_a_moment(Instance *in)
{
	int64_t		began_ns = now;
	Message    *m;

	assert_true(election_verify(in->core, now, 0, 15));
	while (election_connected(in->core))
		fail_at(in, 0);
	while ((m = sent(in, "keepalive")) == NULL && (m = sent(in, "read")) == NULL)
		election_tick(in->core, now += MS);
	deliver(in, m);
	assert_true(election_connected(in->core));
	assert_true(now - began_ns < 400 * MS);
}

/* With contact, a grant that was postponed is due at once. */
static void
test_contact_ends_postponed_grant(void **state)
{
	Instance   *a;

	etcd.is_full = true;
	a = start_instance("a", true);
	run_for(5 * SECOND);
	deliver(a, run_until_sent(a, "grant"));
	assert_null(sent(a, "grant"));
	lose_contact_for_a_moment(a);
	assert_non_null(sent(a, "grant"));
}

/* So is an entry. */
static void
test_contact_ends_postponed_entry(void **state)
{
	Instance   *a = start_instance("a", true);

	for (int i = 0; i < 8; i++)
		refuse(a, run_until_sent(a, "enter"));
	assert_null(sent(a, "enter"));
	lose_contact_for_a_moment(a);
	assert_non_null(sent(a, "enter"));
}

/* So is the watch stream. */
static void
test_contact_ends_postponed_stream(void **state)
{
	Instance   *b;

	(void) join("a");
	b = join("b");
	for (int i = 0; i < 8; i++)
	{
		run_for(SECOND);
		assert_int_equal(b->nwatches, 1);
		b->nwatches = 0;
		election_watch_ended(b->core, now);
	}
	while (election_connected(b->core))
		fail_at(b, 0);
	while (sent(b, "keepalive") == NULL)
		election_tick(b->core, now += MS);
	deliver(b, sent(b, "keepalive"));
	deliver(b, sent(b, "read"));
	assert_int_equal(b->nwatches, 1);
}

/* With contact, the places are read, and not the keys by names that may be those of yesterday. */
static void
test_contact_reads_places(void **state)
{
	Instance   *b;

	(void) join("a");
	b = join("b");
	while (election_connected(b->core))
		fail_at(b, 0);
	while (sent(b, "keepalive") == NULL)
		election_tick(b->core, now += MS);
	deliver(b, sent(b, "keepalive"));
	assert_non_null(sent(b, "read"));
	assert_int_equal(sent(b, "read")->request.success[1].range_end.len, 2);
}

/* A read of the places that is under way will show them, or be sent again. */
static void
test_contact_beside_read(void **state)
{
	Instance   *b;
	Message    *read;

	(void) join("a");
	b = join("b");
	assert_true(election_verify(b->core, now, 0, 1));
	read = sent(b, "read");
	lose_contact_but(b, read);
	while (sent(b, "keepalive") == NULL)
		election_tick(b->core, now += MS);
	deliver(b, sent(b, "keepalive"));
	assert_true(read->used && sent(b, "read") != read);
	assert_int_equal(sent(b, "read")->request.success[1].range_end.len, 0);
}

/* A write is denied once.  Its election is read alone, and no other. */
static void
test_write_denied_once(void **state)
{
	Instance   *a = lead_two();
	int			before;

	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	etcd.denied = "e/";
	etcd.denies_writes_only = true;
	before = a->nsent;
	deliver(a, sent(a, "put"));
	assert_int_equal(a->nsent, before + 1);
	assert_int_equal(sent(a, "read")->request.nfailure, 1);
}

/* A write of an earlier key fails while the next one is entered.  It postpones no write of that. */
static void
test_failed_write_of_earlier_key(void **state)
{
	Instance   *a = start_with_endpoints("a");
	Message    *put;

	answer_all();
	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	put = sent(a, "put");
	delete_key(own_key(a));
	assert_int_equal(a->replied[1], ELECTION_NOT_CANDIDATE);
	assert_non_null(sent(a, "enter"));
	give_up(a, put, true);
	deliver(a, sent(a, "enter"));
	strcpy(a->config.node_name, "b");
	election_configure(a->core, now, &a->config);
	assert_non_null(sent(a, "put"));
}

/* The own key is deleted.  Its create revision is told, too, as a proxy or another store may do. */
static void
test_deletion_with_create_revision(void **state)
{
	Instance   *a = join("a");
	EtcdWatchEvent event = event_of(own_key(a), false, store_revision() + 1);
	EtcdWatchFrame frame = {.outcome = ETCD_ANSWERED, .header = etcd_header(), .events = &event, .nevents = 1};

	event.is_delete = true;
	frame.watch_id = a->watches[0].watch_id;
	run_for(SECOND);
	election_watched(a->core, now, &frame);
	assert_false(leads(a));
	assert_int_equal(a->views[0].state, ELECTION_JOINING);
}

/* Contact is back, and a read that was postponed does not wait any more. */
static void
test_contact_ends_postponed_read(void **state)
{
	Instance   *b;
	Message    *read;
	Version		other;

	(void) join("a");
	b = join("b");
	assert_true(election_verify(b->core, now, 0, 1));
	for (int i = 0; i < 8; i++)
		refuse(b, run_until_sent(b, "read"));
	assert_null(sent(b, "read"));
	while (election_connected(b->core))
		fail_at(b, 0);
	while (sent(b, "keepalive") == NULL)
		election_tick(b->core, now += MS);
	deliver(b, sent(b, "keepalive"));
	read = sent(b, "read");
	assert_non_null(read);
	other = *own_key(&instances[0]);
	set_revision(store_revision() + 1);
	other.create_revision = other.revision = store_revision();
	tell_watches(&other);
	assert_true(sent(b, "read") != read);
}

/*
 * Answers of a member that is behind, or says no raft term, are not believed.  A write that
 * was committed is true, whoever reports it.
 */
static void
test_terms_of_answers(void **state)
{
	static const struct
	{
		const char *kind;
		bool		believed;
	}			cases[] = {
		{"read", false},
		{"keepalive", false},
		{"grant", true},
		{"enter", true},
		{"put", true},
		{"delete", true}
	};

	for (size_t i = 0; i < 2 * lengthof(cases); i++)
	{
		const char *kind = cases[i / 2].kind;
		Instance   *a;
		Message    *m;

		teardown(state);
		setup(state);
		a = start_instance("a", true);
		if (strcmp(kind, "grant") == 0)
			deliver(a, sent(a, "read"));
		else if (strcmp(kind, "enter") == 0)
			(void) start_entry(a);
		else
		{
			answer_all();
			if (strcmp(kind, "put") == 0)
				assert_true(election_proclaim(a->core, now, 0, "other", 1));
			else if (strcmp(kind, "delete") == 0)
				assert_true(election_resign(a->core, now, 0, true, 0, 1));
			else if (strcmp(kind, "read") == 0)
				assert_true(election_verify(a->core, now, 0, 1));
		}
		m = run_until_sent(a, kind);
		execute(m);
		m->answer.header.raft_term = i % 2 == 0 ? 0 : 1;
		deliver(a, m);
		assert_int_equal(find_note(0, "a distrusts") < 0, cases[i / 2].believed);
		run_for(SECOND);
		assert_true(leads(a));
	}
}

/* A single answer of another cluster, whose revision is lower, costs nothing. */
static void
test_answer_of_other_cluster(void **state)
{
	Instance   *a = join("a");
	int64_t		lease = a->views[0].lease;
	Message    *read;

	assert_true(election_verify(a->core, now, 0, 1));
	read = sent(a, "read");
	execute(read);
	read->answer.header.cluster_id++;
	read->answer.header.revision = 1;
	deliver(a, read);
	assert_true(find_note(0, "a distrusts") >= 0);
	run_for(TTL_S * SECOND);
	assert_true(leads(a));
	assert_int_equal(a->views[0].lease, lease);
}

/* A doubt ends with a read that is believed, and not with a keepalive. */
static void
test_end_of_doubt(void **state)
{
	for (int with_read = 0; with_read < 2; with_read++)
	{
		Instance   *b;
		Message    *read;

		teardown(state);
		setup(state);
		b = start_ready(2);
		assert_true(election_verify(b->core, now, 0, 1));
		etcd.term--;
		deliver(b, sent(b, "read"));
		etcd.term++;
		while (sent(b, "keepalive") == NULL)
			election_tick(b->core, now += MS);
		deliver(b, sent(b, "keepalive"));
		while ((read = sent(b, "read")) != NULL && with_read)
			deliver(b, read);
		tell_gone(b, store_revision() + 1);
		assert_int_equal(leads(b), with_read);
	}
}

/* With the history, its stream is discarded, too. */
static void
test_no_watch_of_other_history(void **state)
{
	Instance   *a = join("a");

	assert_int_equal(a->nwatches, 1);
	a->watch_silent = true;
	etcd.cluster_id++;
	lose_all(1000);
	while (election_cluster_id(a->core) != 0)
	{
		election_tick(a->core, now += 10 * MS);
		for (int i = 0; i < MAX_MESSAGES && election_cluster_id(a->core) != 0; i++)
		{
			if (a->messages[i].used)
				deliver(a, &a->messages[i]);
		}
	}
	assert_int_equal(a->nwatches, 0);
}

/* Frames that are no event of a watched key: they are ignored, or the stream is opened anew. */
static void
test_odd_frames(void **state)
{
	static const struct
	{
		EtcdOutcome outcome;
		int			watch_id;
		bool		canceled;
		bool		is_ignored;
	}			cases[] = {
		{ETCD_ANSWERED, 0, false, true},
		{ETCD_ANSWERED, 2, false, true},
		{ETCD_ANSWERED, 3, false, true},
		{ETCD_ANSWERED, -1, false, false},
		{ETCD_ANSWERED, 1, true, false},
		{ETCD_REFUSED, 1, false, false}
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Instance   *a;
		EtcdWatchEvent event;
		EtcdWatchFrame frame = {.outcome = cases[i].outcome, .header = etcd_header(), .events = &event};
		int			from;

		teardown(state);
		setup(state);
		a = join("a");
		from = nlogged;
		assert_int_equal(a->nwatches, 1);
		event = event_of(own_key(a), true, store_revision() + 1);
		frame.header = etcd_header();
		frame.watch_id = cases[i].watch_id;
		frame.canceled = cases[i].canceled;
		frame.nevents = cases[i].is_ignored || cases[i].outcome != ETCD_ANSWERED;
		election_watched(a->core, now, &frame);
		assert_int_equal(find_note(from, "a drops a frame") < 0, cases[i].is_ignored);
		assert_int_equal(sent(a, "read") == NULL, cases[i].is_ignored);
		assert_true(leads(a));
		answer_all();
		assert_int_equal(a->nwatches, 1);
		assert_int_equal(find_note(from, "unelected"), -1);
	}
}

/* What still comes of a closed stream changes nothing: without watches, and after the stop. */
static void
test_end_of_closed_stream(void **state)
{
	EtcdWatchFrame canceled = {.outcome = ETCD_ANSWERED, .watch_id = 1, .canceled = true};

	for (int stopped = 0; stopped < 2; stopped++)
	{
		Instance   *a;
		int			before;

		teardown(state);
		setup(state);
		a = start_instance("a", true);
		if (stopped)
		{
			answer_all();
			(void) election_stop(a->core, now, ELECTION_REASON_SHUTDOWN);
		}
		else
			(void) start_entry(a);
		before = a->nsent;
		canceled.header = etcd_header();
		election_watch_ended(a->core, now);
		election_watched(a->core, now, &canceled);
		election_tick(a->core, now);
		now += SECOND / 10;
		election_watch_ended(a->core, now);
		election_watched(a->core, now, &canceled);
		election_tick(a->core, now);
		assert_int_equal(a->nsent, before);
		assert_int_equal(find_note(0, "a drops a frame"), -1);
	}
}

/* A revocation at the shutdown that etcd has answered is not sent again, whatever it says. */
static void
test_shutdown_revocation_refused(void **state)
{
	Instance   *a = add_instance("a", true);

	a->config.nendpoints = 2;
	start(a);
	answer_all();
	end_lease(a->views[0].lease);
	assert_true(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN));
	deliver(a, sent(a, "revoke"));
	assert_null(sent(a, "revoke"));
	assert_true(election_stopped(a->core));
}

/* Nothing is due before there are settings. */
static void
test_not_configured(void **state)
{
	Instance   *a = add_instance("a", true);

	a->core = new_core(a);
	assert_int_equal(election_wakeup_ns(a->core), INT64_MAX);
}

/* ---- the watch stream ---------------------------------------------------------------- */

/* Ends the stream, and lets time pass until there is another one.  Returns the time. */
static int64_t
reopen_after_end(Instance *in)
{
	int64_t		ended_ns = now;

	in->nwatches = 0;
	election_watch_ended(in->core, now);
	answer_all();
	while (in->nwatches == 0)
	{
		run_for(MS);
		assert_true(now < ended_ns + 10 * SECOND);
	}
	confirm_watches(in, in->nwatches);
	return now - ended_ns;
}

/* A stream that ends is opened anew at once, unless it ends again and again. */
static void
test_stream_ends_again(void **state)
{
	Instance   *a = join("a");
	Instance   *o = observe("o");

	assert_true(leads(a));
	run_for(10 * SECOND);
	assert_true(reopen_after_end(o) <= MS);
	for (int i = 0; i < 6; i++)
		(void) reopen_after_end(o);
	assert_true(reopen_after_end(o) >= 500 * MS);
	run_for(5 * SECOND - 10 * MS);
	assert_true(reopen_after_end(o) >= 500 * MS);
	run_for(5 * SECOND);
	assert_true(reopen_after_end(o) <= MS);
}

/* A stream that ends again and again does not keep a candidate from its writes. */
static void
test_write_beside_stream(void **state)
{
	Instance   *a = join("a");

	for (int i = 0; i < 7; i++)
		(void) reopen_after_end(a);
	election_watch_ended(a->core, now);
	strcpy(a->config.node_name, "other");
	election_configure(a->core, now, &a->config);
	assert_non_null(sent(a, "put"));
}

/* The read that shows what a stream has missed waits for as long as the next stream. */
static void
test_reads_wait_for_stream(void **state)
{
	Instance   *o = observe("o");

	for (int i = 0; i < 7; i++)
		(void) reopen_after_end(o);
	assert_null(sent(o, "read"));
	election_watch_ended(o->core, now);
	assert_null(sent(o, "read"));
	run_for(SECOND);
	assert_int_equal(o->nwatches, 1);
}

/* Each instance watches no more keys than it has to. */
static void
test_watched_keys(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");
	Instance   *c = join("c");
	Instance   *o = observe("o");
	Instance   *j;

	assert_int_equal(a->nwatches, 1);
	assert_int_equal(b->nwatches, 1);
	assert_int_equal(c->nwatches, 1);
	assert_int_equal(o->nwatches, 1);
	assert_string_equal(a->watched[0], a->views[0].key);
	assert_string_equal(c->watched[0], a->views[0].key);
	assert_string_equal(o->watched[0], a->views[0].key);
	assert_int_equal(a->watches[0].range_end.len, 0);
	assert_int_equal(c->watches[0].range_end.len, 0);
	assert_int_equal(o->watches[0].range_end.len, 0);

	/* one that cannot enter yet is no observer, and the key that it deletes needs no watch */
	teardown(state);
	setup(state);
	etcd.is_full = true;
	j = join("j");
	run_for(SECOND);
	assert_int_equal(j->views[0].state, ELECTION_JOINING);
	assert_int_equal(j->nwatches, 0);
	etcd.is_full = false;
	run_for(2 * SECOND);
	assert_true(leads(j));
	assert_true(election_resign(j->core, now, 0, true, 0, 1));
	election_tick(j->core, now += SECOND / 5);
	assert_int_equal(j->nwatches, 0);
	run_for(SECOND);
	assert_true(leads(j));
	etcd.is_full = true;
	end_lease(j->views[0].lease);
	run_for(SECOND);
	assert_int_equal(j->views[0].state, ELECTION_JOINING);
	assert_int_equal(j->nwatches, 0);
}

/*
 * One watch covers the own key and the leader's, however their names are ordered: a
 * successor leads as soon as the leader's key is deleted.
 */
static void
test_names_of_leader(void **state)
{
	for (int kind = 0; kind < 4; kind++)
	{
		Instance   *a;
		Instance   *b;
		char		name[ELECTION_KEY_SIZE];

		teardown(state);
		setup(state);
		a = join("a");
		b = join("b");
		strcpy(name, b->views[0].key);
		if (kind == 0)
			strcat(name, "x");
		else if (kind == 1)
			name[strlen(name) - 1] = '\0';
		else
			strcpy(name, kind == 2 ? "e/!" : "e/~");
		/* another program enters behind a, and b behind it */
		delete_key(own_key(b));
		put_key(bytes(name), bytes("x"), 0);
		answer_all();
		stop(a);
		answer_all();
		assert_string_equal(b->views[0].leader, "x");
		assert_int_equal(b->views[0].state, ELECTION_WAITING);
		run_for(100 * MS);
		assert_int_equal(b->nwatches, 1);
		delete_key(store_find(bytes(name)));
		assert_true(leads(b));
	}
}

/* a ends, and its key goes with its lease.  No answer to another instance is delivered. */
static void
end_leader(Instance *a)
{
	assert_true(leads(a));
	assert_true(election_stop(a->core, now, ELECTION_REASON_SHUTDOWN));
	deliver(a, sent(a, "revoke"));
}

/*
 * The read that shows the place comes late, so the own key alone is watched before.  Then
 * both keys are, and the successor is ready.
 */
static void
test_stream_before_place(void **state)
{
	Instance   *b = start_instance("b", true);
	Instance   *a;
	Message    *read;

	(void) start_entry(b);
	while ((read = sent(b, "read")) != NULL)
		deliver(b, read);
	a = start_instance("a", true);
	deliver(a, start_entry(a));
	deliver(a, sent(a, "read"));
	assert_true(leads(a));
	deliver(b, sent(b, "enter"));
	read = sent(b, "read");
	election_tick(b->core, now += 150 * MS);
	assert_int_equal(b->nwatches, 1);
	deliver(b, read);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	answer_all();
	end_leader(a);
	assert_true(leads(b));
}

/*
 * The leader's key and the own one are watched apart, because another answer is awaited
 * that may change the keys.  Then the end of the leader's makes nobody lead before a read.
 */
static void
test_keys_watched_apart(void **state)
{
	Instance   *a = join("a");
	Instance   *b = start_instance("b", true);
	Message    *read;

	deliver(b, start_entry(b));
	read = sent(b, "read");
	election_tick(b->core, now += 150 * MS);
	assert_int_equal(b->nwatches, 2);
	assert_true(election_verify(b->core, now, 0, 1));
	deliver(b, read);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(b->nwatches, 2);
	end_leader(a);
	assert_false(leads(b));
	answer_all();
	assert_true(leads(b));
}

/*
 * The lease was given up and another one taken, all in a moment, so the own key has another
 * name, and the stream watches the former one.  Then nobody is ready.
 */
static void
test_stream_of_former_key(void **state)
{
	Instance   *a = join("a");
	Instance   *b = add_instance("b", true);
	Message    *hanging;
	Message    *m;
	char		former[ELECTION_KEY_SIZE];

	b->config.nelections = 3;
	strcpy(b->config.elections[1], "f");
	strcpy(b->config.elections[2], "g");
	start(b);
	answer_all();
	assert_true(election_resign(b->core, now, 2, false, 0, 1));
	answer_all();
	run_for(SECOND);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	strcpy(former, b->views[0].key);

	/* the keys that are watched may be about to change */
	assert_true(election_verify(b->core, now, 2, 2));
	hanging = sent(b, "read");
	assert_true(election_resign(b->core, now, 0, false, 0, 3));
	deliver(b, sent(b, "delete"));
	assert_int_equal(b->views[0].state, ELECTION_RESIGNED);
	while ((m = sent(b, "read")) != hanging)
		deliver(b, m);
	assert_true(election_resign(b->core, now, 1, false, 0, 4));
	deliver(b, sent(b, "revoke"));
	while ((m = sent(b, "read")) != hanging)
		deliver(b, m);
	assert_true(election_campaign(b->core, now, 0, 5));
	while (b->views[0].state != ELECTION_WAITING)
	{
		m = sent(b, "enter") ? sent(b, "enter") : sent(b, "grant") ? sent(b, "grant") : sent(b, "read");
		assert_ptr_not_equal(m, hanging);
		deliver(b, m);
	}
	assert_string_not_equal(b->views[0].key, former);
	end_leader(a);
	assert_false(leads(b));
	answer_all();
	assert_true(leads(b));
}

/* A successor whose key was entered once more, with the same name, is ready, too. */
static void
test_stream_after_reentry(void **state)
{
	Instance   *a = join("a");
	Instance   *b = join("b");

	delete_key(own_key(b));
	run_for(100 * MS);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	end_leader(a);
	assert_true(leads(b));
}

/* An election comes back, in another place of the settings: its events are its own. */
static void
test_slot_exchanged(void **state)
{
	Instance   *a = add_instance("a", true);
	Instance   *b;

	start(a);
	answer_all();
	etcd.is_full = true;
	b = join("b");
	run_for(SECOND);
	assert_string_equal(b->views[0].leader, "a");
	assert_int_equal(b->nwatches, 1);
	strcpy(b->config.elections[0], "g");
	election_configure(b->core, now, &b->config);
	strcpy(b->config.elections[1], "e");
	b->config.nelections = 2;
	election_configure(b->core, now, &b->config);
	answer_all();
	assert_string_equal(b->views[1].leader, "a");
	assert_true(election_proclaim(a->core, now, 0, "other", 1));
	deliver(a, sent(a, "put"));
	assert_string_equal(b->views[1].leader, "other");
	assert_null(sent(b, "read"));
}

/* While the set of keys is about to change, no stream is opened for the one before. */
static void
test_one_stream_for_a_change(void **state)
{
	Instance   *a = add_instance("a", true);
	Instance   *b = add_instance("b", true);
	Message    *enter;
	int			before;

	a->config.nelections = 2;
	strcpy(a->config.elections[1], "f");
	strcpy(b->config.elections[0], "f");
	start(a);
	answer_all();
	start(b);
	answer_all();
	run_for(SECOND);
	assert_int_equal(b->nwatches, 1);

	/* an entry */
	b->config.nelections = 2;
	strcpy(b->config.elections[1], "e");
	before = b->nwatched;
	election_configure(b->core, now, &b->config);
	enter = sent(b, "enter");
	deliver(b, sent(b, "read"));
	assert_true(enter->used);
	assert_int_equal(b->nwatched, before);
	answer_all();
	assert_int_equal(b->views[1].state, ELECTION_WAITING);
	assert_int_equal(b->nwatched - before, 2);

	/* a resignation, and an entry again */
	before = b->nwatched;
	run_for(100 * MS);
	assert_true(election_resign(b->core, now, 1, true, 0, 1));
	assert_non_null(sent(b, "delete"));
	assert_null(sent(b, "read"));
	assert_int_equal(b->nwatched, before);
	answer_all();
	assert_int_equal(b->nwatched - before, 2);
}

/* The same for the first read of an election that follows Patroni. */
static void
test_one_stream_with_patroni(void **state)
{
	Instance   *o = add_instance("o", false);

	o->config.nelections = 2;
	strcpy(o->config.elections[1], "patroni:batman");
	strcpy(o->config.patroni_namespace, "/service");
	start(o);
	answer_all();
	assert_int_equal(o->nwatches, 3);
	assert_int_equal(o->nwatched, 3);
}

/* A renewal that hangs does not keep a stream from being opened. */
static void
test_stream_beside_renewal(void **state)
{
	Instance   *a = join("a");
	Message    *renewal;

	run_for(10 * SECOND);
	deliver(a, run_until_sent(a, "keepalive"));
	renewal = sent(a, "read");
	a->nwatches = 0;
	election_watch_ended(a->core, now);
	assert_true(sent(a, "read") != renewal);
	deliver(a, sent(a, "read"));
	assert_true(renewal->used);
	assert_int_equal(a->nwatches, 1);
}

/* ---- the life of another primary, answer by answer ------------------------------------- */

/* Answers all messages of the instance but those of that kind. */
static void
answer_but(Instance *in, const char *kind)
{
	for (int i = 0; i < MAX_MESSAGES; i++)
	{
		Message    *m = &in->messages[i];

		if (!m->used || m->given_up || strcmp(describe(&m->request), kind) == 0)
			continue;
		deliver(in, m);
		i = -1;					/* from the beginning: it may have sent more */
	}
}

/* Another primary of the queue, of which there are only the key and the lease: the test answers for it. */
static void
put_rival(const char *key, const char *name, int64_t lease)
{
	if (lease != 0)
		grant_lease(now, lease, 10000);
	put_key(bytes(key), bytes(name), lease);
}

/* Starts a primary that finds another one, and asks about its lease. */
static Instance *
start_asker(uint32_t timeline)
{
	Instance   *b = add_primary("b", "71", timeline);

	start(b);
	run_until_sent(b, "time to live");
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	return b;
}

static void
tell_life_in(Instance *in, Message *m, int64_t ttl_s, uint64_t term)
{
	m->answer = (EtcdAnswer) {
		.outcome = ETCD_ANSWERED, .lease = m->request.lease, .ttl_s = ttl_s,
		.granted_ttl_s = TTL_S, .header = etcd_header()
	};
	m->answer.header.raft_term = term;
	m->executed = true;
	deliver(in, m);
}

/* And answers the read that may follow. */
static void
tell_life(Instance *in, Message *m, int64_t ttl_s)
{
	tell_life_in(in, m, ttl_s, etcd.term);
	answer_but(in, "time to live");
}

/* Answers the next question. */
static void
tell_next_life(Instance *in, int64_t ttl_s)
{
	tell_life(in, run_until_sent(in, "time to live"), ttl_s);
}

/* Two extensions in one raft term are a sign of life, and nothing less. */
static void
test_signs_of_life(void **state)
{
	enum {LOST = -2, GONE = -1, NO_END = INT32_MAX};	/* in the place of seconds */
	static const struct
	{
		bool		is_alive;
		int			n;
		struct
		{
			int			term;
			int			ttl_s;
		}			told[5];
	}			cases[] = {
		{true, 3, {{2, 4}, {2, 4}, {2, 4}}},
		{true, 3, {{2, TTL_S}, {2, TTL_S}, {2, TTL_S}}},
		{true, 5, {{2, 4}, {2, 2}, {2, 4}, {2, 2}, {2, 4}}},
		{true, 4, {{2, 4}, {2, 4}, {2, LOST}, {2, 4}}},
		{true, 5, {{2, 0}, {2, 0}, {2, 0}, {2, 0}, {2, 0}}},
		{false, 2, {{2, 4}, {2, 4}}},
		{false, 5, {{2, 4}, {2, 3}, {2, 2}, {2, 1}, {2, 0}}},
		/* extended once; 0 is told for a second before the end, and for one after it */
		{false, 5, {{2, 2}, {2, 4}, {2, 2}, {2, 0}, {2, 0}}},
		{false, 5, {{2, 0}, {2, GONE}, {2, GONE}, {2, GONE}, {2, GONE}}},
		/* one of the owner, and one of the new leader of etcd */
		{false, 4, {{2, 2}, {3, 4}, {3, 2}, {3, 4}}},
		{false, 4, {{2, 2}, {2, 4}, {3, 4}, {3, 4}}},
		{false, 5, {{2, 2}, {3, NO_END}, {3, NO_END}, {3, NO_END}, {3, NO_END}}},
	};

	for (size_t c = 0; c < lengthof(cases); c++)
	{
		Instance   *b;

		teardown(state);
		setup(state);
		put_rival("e/63.71.1.pg", "a", 0x63);
		b = start_asker(2);
		for (int i = 0; i < cases[c].n; i++)
		{
			Message    *m = run_until_sent(b, "time to live");

			assert_int_equal(b->timelines.refused, 0);
			etcd.term = cases[c].told[i].term;
			if (cases[c].told[i].ttl_s == LOST)
			{
				give_up(b, m, true);
				answer_but(b, "time to live");
			}
			else
				tell_life(b, m, cases[c].told[i].ttl_s);
		}
		assert_int_equal(b->timelines.refused, cases[c].is_alive ? 2 : 0);
		assert_int_equal(b->views[0].state, cases[c].is_alive ? ELECTION_SECOND_PRIMARY : ELECTION_JOINING);
	}
}

/*
 * A member that lags tells an old term: each extension is of a new leader of etcd.  The read
 * that follows shows that, unless it was sent before the last answer.
 */
static void
test_life_in_old_term(void **state)
{
	Instance   *b;
	Message    *question;
	Message    *read;

	put_rival("e/63.71.1.pg", "a", 0x63);
	b = start_asker(2);
	tell_next_life(b, 4);
	tell_next_life(b, 4);
	question = run_until_sent(b, "time to live");
	while (sent(b, "keepalive") == NULL)
	{
		now += MS;
		election_tick(b->core, now);
	}
	deliver(b, sent(b, "keepalive"));
	read = sent(b, "read");
	assert_true(is_ordered(read));
	execute(read);
	now += MS;
	tell_life_in(b, question, 4, 2);
	deliver(b, read);
	assert_int_equal(b->timelines.refused, 0);
	etcd.term = 4;
	assert_true(is_ordered(sent(b, "read")));
	answer_but(b, "time to live");
	assert_int_equal(b->timelines.refused, 0);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(b->timelines.refused, 0);
		tell_next_life(b, 4);
	}
	assert_int_equal(b->timelines.refused, 2);
}

/* A read of one election alone is not ordered, and may be stale: it shows no term. */
static void
test_life_by_stale_read(void **state)
{
	Instance   *b;

	put_rival("e/63.71.1.pg", "a", 0x63);
	b = start_asker(2);
	tell_next_life(b, 4);
	tell_next_life(b, 4);
	tell_life_in(b, run_until_sent(b, "time to live"), 4, etcd.term);
	etcd.denied = "e/";
	deliver(b, sent(b, "read"));
	etcd.denied = NULL;
	assert_false(is_ordered(run_until_sent(b, "read")));
	answer_but(b, "time to live");
	assert_int_equal(b->timelines.refused, 0);
	run_for(TTL_S * SECOND);
	assert_int_equal(b->timelines.refused, 2);
}

/* The lease of a dead primary runs out.  Meanwhile the settings change, and what the margin covers. */
static void
test_no_life_by_other_settings(void **state)
{
	enum {GRANTED_S = 60};
	Instance   *b = add_primary("b", "71", 2);
	int64_t		granted_ns = now;

	(void) state;
	put_rival("e/63.71.1.pg", "a", 0x63);
	b->config.safety_margin_ms = 448;
	start(b);
	for (int i = 0; i < 8; i++)
	{
		Message    *m = run_until_sent(b, "time to live");

		m->answer = (EtcdAnswer) {
			.outcome = ETCD_ANSWERED, .lease = 0x63, .ttl_s = GRANTED_S - (now - granted_ns) / SECOND - 1,
			.granted_ttl_s = GRANTED_S, .header = etcd_header()
		};
		m->executed = true;
		deliver(b, m);
		assert_int_equal(b->timelines.refused, 0);
		b->config.ttl_s = i % 2 == 0 ? 2 : 60;
		election_configure(b->core, now, &b->config);
	}
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
}

/* A primary with two elections, e and f, which is not started yet. */
static Instance *
add_primary_of_two(void)
{
	Instance   *b = add_primary("b", "71", 2);

	strcpy(b->config.elections[b->config.nelections++], "f");
	return b;
}

/* A primary that leads two elections on one lease is asked about once, and the answers count for both. */
static void
test_one_question_for_two_elections(void **state)
{
	Instance   *b = add_primary_of_two();
	int			nquestions = 0;

	(void) state;
	put_rival("e/63.71.1.pg", "a", 0x63);
	put_key(bytes("f/63.71.1.pg"), bytes("a"), 0x63);
	start(b);
	for (; b->views[0].state != ELECTION_SECOND_PRIMARY && nquestions < 5; nquestions++)
	{
		Message    *m = run_until_sent(b, "time to live");

		for (int i = 0; i < MAX_MESSAGES; i++)
		{
			if (&b->messages[i] != m && b->messages[i].used)
				assert_int_not_equal(b->messages[i].request.kind, ETCD_TIME_TO_LIVE);
		}
		tell_life(b, m, 4);
	}
	assert_int_equal(nquestions, 3);
	assert_int_equal(b->views[1].state, ELECTION_SECOND_PRIMARY);
}

/* Two primaries lead one election each: both are asked about at once. */
static void
test_questions_for_two_primaries(void **state)
{
	Instance   *b = add_primary_of_two();
	int			nquestions = 0;

	(void) state;
	put_rival("e/63.71.1.pg", "a", 0x63);
	put_rival("f/62.71.1.pg", "c", 0x62);
	start(b);
	run_until_sent(b, "time to live");
	for (int i = 0; i < MAX_MESSAGES; i++)
		nquestions += b->messages[i].used && b->messages[i].request.kind == ETCD_TIME_TO_LIVE;
	assert_int_equal(nquestions, 2);
}

/*
 * The primary that led both elections leads one of them now.  Its life says nothing of the
 * other one, from which the instance has resigned, and which the next primary leads.
 */
static void
test_life_of_one_of_two_leaders(void **state)
{
	Instance   *b = add_primary_of_two();

	(void) state;
	put_rival("e/63.71.1.pg", "a", 0x63);
	put_key(bytes("f/63.71.1.pg"), bytes("a"), 0x63);
	put_rival("e/62.71.1.pg", "c", 0x62);
	start(b);
	tell_next_life(b, 4);
	assert_true(election_resign(b->core, now, 0, false, 0, 1));
	delete_key(key_at(0));
	answer_but(b, "time to live");
	assert_string_equal(b->views[0].leader, "c");
	tell_next_life(b, 4);
	tell_next_life(b, 4);
	assert_int_equal(b->views[1].state, ELECTION_SECOND_PRIMARY);
	answer_all();
	end_lease(0x62);
	assert_true(election_campaign(b->core, now, 0, 2));
	answer_all();
	assert_true(leads(b));
}

/* Six questions in a TTL for two TTLs, then one in a TTL, until the result is clear. */
static void
test_questions_become_rare(void **state)
{
	Instance   *b = add_primary("b", "71", 2);
	int64_t		asked_ns = 0;

	put_rival("e/63.71.1.pg", "a", 0x63);
	b->config.ttl_s = 60;
	start(b);
	for (int i = 0; i < 16; i++)
	{
		Message    *m;

		while ((m = sent(b, "time to live")) == NULL)
		{
			now += 10 * MS;
			election_tick(b->core, now);
			answer_but(b, "time to live");
		}
		if (i > 0)
			assert_int_equal(m->sent_ns - asked_ns, (i <= 12 ? 10 : 60) * SECOND);
		asked_ns = m->sent_ns;
		tell_life(b, m, -1);
	}
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
}

/* Another primary leads: it is asked about at once, and what the lease of the last one has shown is void. */
static void
test_life_of_next_rival(void **state)
{
	Instance   *b;
	int64_t		lost_ns;

	put_rival("e/63.71.1.pg", "a", 0x63);
	put_rival("e/62.71.1.pg", "c", 0x62);
	b = start_asker(2);
	tell_next_life(b, 1);
	tell_next_life(b, 1);
	delete_key(key_at(0));
	lost_ns = now;
	assert_int_equal(run_until_sent(b, "time to live")->request.lease, 0x62);
	assert_true(now - lost_ns <= 10 * MS);
	tell_next_life(b, 4);
	tell_next_life(b, 4);
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	tell_next_life(b, 4);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
}

/* The same while a question about the last one is under way: its answer tells nothing of the next one. */
static void
test_late_answer_of_last_rival(void **state)
{
	Instance   *b;
	Message    *m;

	put_rival("e/63.71.1.pg", "a", 0x63);
	put_rival("e/62.71.1.pg", "c", 0x62);
	b = start_asker(2);
	m = sent(b, "time to live");
	delete_key(key_at(0));
	answer_but(b, "time to live");
	assert_string_equal(b->views[0].leader, "c");
	tell_life(b, m, 1);
	tell_next_life(b, 4);
	tell_next_life(b, 4);
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	tell_next_life(b, 4);
	assert_int_equal(b->views[0].state, ELECTION_SECOND_PRIMARY);
}

/*
 * The last answer comes when it does not matter any more: the instance has resigned, and another
 * primary leads, or it has entered by the setting "wait".  It is not a second primary later.
 */
static void
test_life_told_too_late(void **state)
{
	for (int waits = 0; waits < 2; waits++)
	{
		Instance   *b;
		Message    *m;

		teardown(state);
		setup(state);
		put_rival("e/63.71.1.pg", "a", 0x63);
		if (!waits)
			put_rival("e/62.71.1.pg", "c", 0x62);
		b = start_asker(2);
		tell_next_life(b, 4);
		tell_next_life(b, 4);
		m = run_until_sent(b, "time to live");
		if (waits)
		{
			b->config.refuses_second = false;
			election_configure(b->core, now, &b->config);
		}
		else
		{
			assert_true(election_resign(b->core, now, 0, false, 0, 1));
			delete_key(key_at(0));
		}
		answer_but(b, "time to live");
		assert_string_equal(b->views[0].leader, waits ? "a" : "c");
		assert_int_equal(b->views[0].state, waits ? ELECTION_WAITING : ELECTION_RESIGNED);
		tell_life(b, m, 4);
		answer_all();
		end_lease(waits ? 0x63 : 0x62);
		if (waits)
		{
			b->config.refuses_second = true;
			election_configure(b->core, now, &b->config);
			stop(b);
			start(b);
		}
		else
			assert_true(election_campaign(b->core, now, 0, 2));
		answer_all();
		assert_true(leads(b));
	}
}

/* Nothing is asked of a key without a lease, and nothing while the instance enters behind any other leader. */
static void
test_nothing_to_ask(void **state)
{
	Instance   *b;

	(void) join_primary("a", "72", 1);
	b = join_primary("b", "71", 2);
	assert_int_equal(b->views[0].state, ELECTION_WAITING);
	assert_int_equal(find_note(0, "time to live"), -1);

	teardown(state);
	setup(state);
	put_rival("e/63.71.1.pg", "a", 0);
	b = join_primary("b", "71", 2);
	run_for(2 * TTL_S * SECOND);
	assert_int_equal(b->views[0].state, ELECTION_JOINING);
	assert_int_equal(find_note(0, "time to live"), -1);
}

/* Without contact only probes are sent. */
static void
test_nothing_asked_without_contact(void **state)
{
	Instance   *b;
	int			from = -1;

	put_rival("e/63.71.1.pg", "a", 0x63);
	b = start_asker(2);
	for (int64_t end = now + TTL_S * SECOND; now < end; now += 10 * MS)
	{
		election_tick(b->core, now);
		for (int i = 0; i < MAX_MESSAGES; i++)
		{
			if (b->messages[i].used && !b->messages[i].given_up)
				give_up(b, &b->messages[i], true);
		}
		if (from < 0 && !election_connected(b->core))
			from = nlogged;
	}
	assert_true(from >= 0);
	assert_true(find_note(from, "b sends read") >= 0);
	assert_int_equal(find_note(from, "b sends time to live"), -1);
}

/* A second primary asks nothing more.  One that is not to be a candidate observes, and comes back as such. */
static void
test_second_primary_observes(void **state)
{
	Instance   *b;
	int			from;

	(void) join_primary("a", "71", 1);
	b = join_primary("b", "71", 2);
	run_for(2 * TTL_S * SECOND);
	from = nlogged;
	for (int i = 0; i < 3; i++)
	{
		b->config.eligible = i != 1;
		election_configure(b->core, now, &b->config);
		run_for(2 * TTL_S * SECOND);
		assert_int_equal(b->views[0].state, i == 1 ? ELECTION_OBSERVING : ELECTION_SECOND_PRIMARY);
	}
	assert_int_equal(find_note(from, "b sends time to live"), -1);
}

/*
 * An old primary waits by the setting "wait" behind a candidate that is no primary.  When the setting
 * changes it leaves the queue, as it has seen a primary lead on a later timeline.
 */
static void
test_old_primary_leaves_queue(void **state)
{
	Instance   *c = join_primary("c", "71", 2);
	Instance   *s = join("s");
	Instance   *a = add_primary("a", "71", 1);

	a->config.refuses_second = false;
	start(a);
	answer_all();
	stop(c);
	run_for(SECOND);
	assert_true(leads(s));
	assert_int_equal(a->views[0].state, ELECTION_WAITING);
	a->config.refuses_second = true;
	election_configure(a->core, now, &a->config);
	run_for(SECOND);
	assert_int_equal(a->views[0].state, ELECTION_SECOND_PRIMARY);
	stop(s);
	run_for(SECOND);
	assert_false(leads(a));
}

/* An empty name names no election, also when slots are free. */
static void
test_empty_name(void **state)
{
	Instance   *a = join("a");

	assert_int_equal(election_find(a->core, "e"), 0);
	assert_int_equal(election_find(a->core, ""), -1);
}

/* With a margin of 0 the leadership lasts as long as the lease. */
static void
test_no_margin(void **state)
{
	Instance   *a = add_instance("a", true);

	a->config.safety_margin_ms = 0;
	start(a);
	answer_all();
	assert_int_equal(a->views[0].deadline_ns, now + TTL_S * SECOND);
}

/* With a shorter TTL the old lease is renewed as often as the new one, while etcd grants none. */
static void
test_shorter_ttl_without_grant(void **state)
{
	Instance   *a = add_instance("a", true);

	a->config.ttl_s = 60;
	start(a);
	answer_all();
	etcd.is_full = true;
	a->config.ttl_s = TTL_S;
	election_configure(a->core, now, &a->config);
	answer_all();
	assert_true(leads(a));
	assert_int_equal(election_ttl_ns(a->core, now), TTL_S * SECOND);
}

int
main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_alone),
		TEST(test_observed_election_exchanged),
		TEST(test_failure_of_no_endpoint),
		TEST(test_endpoints_tried_at_start),
		TEST(test_many_endpoints),
		TEST(test_answer_forgets_failures),
		TEST(test_contact_ends_postponed_grant),
		TEST(test_contact_ends_postponed_entry),
		TEST(test_contact_ends_postponed_stream),
		TEST(test_contact_reads_places),
		TEST(test_contact_beside_read),
		TEST(test_write_denied_once),
		TEST(test_failed_write_of_earlier_key),
		TEST(test_deletion_with_create_revision),
		TEST(test_contact_ends_postponed_read),
		TEST(test_terms_of_answers),
		TEST(test_answer_of_other_cluster),
		TEST(test_end_of_doubt),
		TEST(test_no_watch_of_other_history),
		TEST(test_odd_frames),
		TEST(test_end_of_closed_stream),
		TEST(test_shutdown_revocation_refused),
		TEST(test_not_configured),
		TEST(test_stream_ends_again),
		TEST(test_write_beside_stream),
		TEST(test_reads_wait_for_stream),
		TEST(test_watched_keys),
		TEST(test_names_of_leader),
		TEST(test_stream_before_place),
		TEST(test_keys_watched_apart),
		TEST(test_stream_of_former_key),
		TEST(test_stream_after_reentry),
		TEST(test_slot_exchanged),
		TEST(test_one_stream_for_a_change),
		TEST(test_one_stream_with_patroni),
		TEST(test_stream_beside_renewal),
		TEST(test_grant_refused_while_revoking),
		TEST(test_resign_before_entry),
		TEST(test_dropped_after_resignation),
		TEST(test_dropped_alone),
		TEST(test_dropped_in_deletion),
		TEST(test_commands_without_rights),
		TEST(test_resignation_without_right_to_write),
		TEST(test_campaign_without_rights),
		TEST(test_dropped_with_key_on_other_lease),
		TEST(test_dropped_with_key_on_no_lease),
		TEST(test_dropped_in_entry),
		TEST(test_campaign_after_denials),
		TEST(test_ready_put_back_by_others),
		TEST(test_ready_in_new_stream),
		TEST(test_ready_without_name),
		TEST(test_key_exchanged),
		TEST(test_proclaim_without_watch),
		TEST(test_proclaim_before_first_read),
		TEST(test_name_after_lease),
		TEST(test_leader_of_other_history),
		TEST(test_rival_of_other_history),
		TEST(test_copy_of_primary),
		TEST(test_resume_and_write),
		TEST(test_held_back_until),
		TEST(test_revocation_lost),
		TEST(test_revocation_in_move),
		TEST(test_revocation_of_other_lease),
		TEST(test_granted_ttl),
		TEST(test_lease_id),
		TEST(test_lease_of_others),
		TEST(test_grant_lost_and_refused),
		TEST(test_lost_move_is_read),
		TEST(test_grant_after_lost_move),
		TEST(test_lost_move_after_lapse),
		TEST(test_ttl_and_back),
		TEST(test_move_after_entry),
		TEST(test_move_after_proclamation),
		TEST(test_resign_before_grant),
		TEST(test_no_grant_without_term),
		TEST(test_older_renewal_fails),
		TEST(test_shorter_interval),
		TEST(test_backoff_of_long_ttl),
		TEST(test_lease_failures_are_forgotten),
		TEST(test_retired_of_other_history),
		TEST(test_successor_reads_once),
		TEST(test_renewal_beside_denied),
		TEST(test_other_duplicate),
		TEST(test_names_and_later_write),
		TEST(test_loss_is_one_event),
		TEST(test_reads_beside_failures),
		TEST(test_read_at_each_endpoint),
		TEST(test_read_answered_beside_failure),
		TEST(test_remember_again),
		TEST(test_history_once),
		TEST(test_move_in_doubt),
		TEST(test_shorter_move_in_doubt),
		TEST(test_entry_in_doubt),
		TEST(test_resignation_in_other_history),
		TEST(test_history_and_shorter_ttl),
		TEST(test_key_tells_owner),
		TEST(test_second_primary),
		TEST(test_promoted_after_loss),
		TEST(test_new_term_is_no_life),
		TEST(test_other_systems),
		TEST(test_standbys_are_no_rivals),
		TEST(test_second_primary_waits),
		TEST(test_not_both_stay_out),
		TEST(test_refused_is_void_after_entry),
		TEST(test_waiting_does_not_count),
		TEST(test_campaign_of_second_primary),
		TEST(test_own_key_is_no_rival),
		TEST(test_old_keys),
		TEST(test_life_cannot_be_told),
		TEST(test_draining_slots),
		TEST(test_reload_sends_nothing),
		TEST(test_settings_forget_failures),
		TEST(test_resume_by_its_margin),
		TEST(test_resume_in_other_cluster),
		TEST(test_resume_with_fewer_slots),
		TEST(test_resume_second_primary),
		TEST(test_campaign_before_life_is_told),
		TEST(test_resign_while_leaving),
		TEST(test_proclaim_after_failure),
		TEST(test_dropped_when_denied),
		TEST(test_leader_renews_at_once),
		TEST(test_read_after_lapse),
		TEST(test_failures_are_forgotten),
		TEST(test_entry_refused),
		TEST(test_resign_in_lost_entry),
		TEST(test_entry_on_lost_lease),
		TEST(test_slot_given_away),
		TEST(test_deletion_refused),
		TEST(test_write_after_deletion),
		TEST(test_own_writes_are_no_receipt),
		TEST(test_lease_given_up),
		TEST(test_campaign_while_revoking),
		TEST(test_lease_ends_while_leaving),
		TEST(test_deletion_of_another_key),
		TEST(test_campaign_accepts_no_rival),
		TEST(test_reload_keeps_out),
		TEST(test_resignation_is_one_event),
		TEST(test_ignored_endpoints),
		TEST(test_same_endpoint_fails),
		TEST(test_election_without_rights),
		TEST(test_start_without_rights),
		TEST(test_no_rights_at_all),
		TEST(test_leader_tries_at_once),
		TEST(test_rights_taken),
		TEST(test_rights_taken_silently),
		TEST(test_rights_taken_from_lease),
		TEST(test_rights_taken_from_entry),
		TEST(test_rights_taken_from_value),
		TEST(test_rights_exchanged),
		TEST(test_rights_replaced),
		TEST(test_rights_taken_grant_late),
		TEST(test_right_to_write_taken),
		TEST(test_right_to_read),
		TEST(test_rights_replaced_alone),
		TEST(test_dropped_without_rights),
		TEST(test_dropped_key_without_rights),
		TEST(test_entry_without_rights),
		TEST(test_entry_without_rights_again),
		TEST(test_denied_deletion_late),
		TEST(test_absence_before_entry),
		TEST(test_no_rights_restored),
		TEST(test_requests_without_rights),
		TEST(test_requests_without_right_to_enter),
		TEST(test_key_on_retired_lease),
		TEST(test_observer_without_rights),
		TEST(test_idle_requests),
		TEST(test_handover),
		TEST(test_campaign_while_joining),
		TEST(test_resignation_refused),
		TEST(test_handover_requests),
		TEST(test_by_name),
		TEST(test_by_name_in_new_term),
		TEST(test_by_name_written_again),
		TEST(test_ordered),
		TEST(test_busy),
		TEST(test_renewal_while_leaving),
		TEST(test_ready_name_again),
		TEST(test_ready_other_watch),
		TEST(test_ready),
		TEST(test_ready_reads),
		TEST(test_ready_not_alone),
		TEST(test_ready_read),
		TEST(test_ready_proclaim),
		TEST(test_ready_older_event),
		TEST(test_ready_lapsed),
		TEST(test_ready_lost_watch),
		TEST(test_ready_move),
		TEST(test_ready_tainted),
		TEST(test_ready_other_lease),
		TEST(test_shown_lease),
		TEST(test_ready_put_back),
		TEST(test_ready_older_move),
		TEST(test_ready_told_move),
		TEST(test_ready_left),
		TEST(test_ready_transfer),
		TEST(test_ready_doubt),
		TEST(test_ready_restored),
		TEST(test_ready_reentry),
		TEST(test_no_space),
		TEST(test_no_herd),
		TEST(test_renewal),
		TEST(test_slow_renewals),
		TEST(test_renewals_overtaken),
		TEST(test_renewals_apart),
		TEST(test_renewals_refused),
		TEST(test_renewals_moved),
		TEST(test_confirm_overtaken),
		TEST(test_term),
		TEST(test_late_move),
		TEST(test_lost_move),
		TEST(test_lost_fresh_lease),
		TEST(test_lost_fresh_lease_unused),
		TEST(test_delete_is_final),
		TEST(test_late_entry),
		TEST(test_entry_without_answer),
		TEST(test_resign_in_entry),
		TEST(test_waiter_lost_lease),
		TEST(test_unapplied_grant),
		TEST(test_late_lessor),
		TEST(test_key_of_late_delete),
		TEST(test_single_failure),
		TEST(test_probe_beside_read),
		TEST(test_probe_hangs),
		TEST(test_lesser_ttl),
		TEST(test_margin_revives_nothing),
		TEST(test_margin_after_move),
		TEST(test_margin_in_move),
		TEST(test_ttl_without_lease),
		TEST(test_no_elections),
		TEST(test_proclaim_not_answered),
		TEST(test_proclaim_and_older_read),
		TEST(test_watch_start),
		TEST(test_watch_start_after_names),
		TEST(test_watch_not_confirmed),
		TEST(test_watch_ended),
		TEST(test_key_deleted),
		TEST(test_key_changed),
		TEST(test_etcd_away),
		TEST(test_history),
		TEST(test_entry_before_history),
		TEST(test_replaced),
		TEST(test_frame_of_other_cluster),
		TEST(test_campaign_held_back),
		TEST(test_held_back_after_crash),
		TEST(test_held_back_after_long_crash),
		TEST(test_restore_during_long_crash),
		TEST(test_observer),
		TEST(test_resume),
		TEST(test_resume_moved_key),
		TEST(test_duplicate_name),
		TEST(test_duplicate_name_ends),
		TEST(test_read_refused),
		TEST(test_long_key),
		TEST(test_verify),
		TEST(test_verify_and_later_read),
		TEST(test_verify_void),
		TEST(test_leader_before),
		TEST(test_token_twice),
		TEST(test_token_of_reentry),
		TEST(test_moved_name),
		TEST(test_key_written_anew),
		TEST(test_left_in_move),
		TEST(test_key_after_revocation),
		TEST(test_late_answer_of_entry),
		TEST(test_reads_that_hang),
		TEST(test_resume_resigned),
		TEST(test_resume_resigned_later),
		TEST(test_drain_of_other_lapsed),
		TEST(test_proclaim_again),
		TEST(test_settings),
		TEST(test_read_of_dropped),
		TEST(test_entry_of_dropped),
		TEST(test_stop),
		TEST(test_stop_after_move),
		TEST(test_shutdown_revocation),
		TEST(test_signs_of_life),
		TEST(test_one_question_for_two_elections),
		TEST(test_questions_for_two_primaries),
		TEST(test_life_of_one_of_two_leaders),
		TEST(test_life_in_old_term),
		TEST(test_life_by_stale_read),
		TEST(test_no_life_by_other_settings),
		TEST(test_questions_become_rare),
		TEST(test_life_of_next_rival),
		TEST(test_late_answer_of_last_rival),
		TEST(test_life_told_too_late),
		TEST(test_nothing_to_ask),
		TEST(test_nothing_asked_without_contact),
		TEST(test_second_primary_observes),
		TEST(test_old_primary_leaves_queue),
		TEST(test_empty_name),
		TEST(test_no_margin),
		TEST(test_shorter_ttl_without_grant)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
