/*-------------------------------------------------------------------------
 *
 * transport_sim.c
 *	  Simulates the transport: the client of src/etcd, as it is linked into the
 *	  extension, with etcd's gRPC server at the other ends of simulated pipes.
 *
 * All files of the client run but the three that know libcurl and names:
 * transport_http.c has their functions.  Every byte that the client sends and
 * receives is one of HTTP/2.
 *
 * What has to hold:
 *
 * - Each request ends once, within twice its time.
 * - An answer is that of the request: it tells what was executed for it, since it
 *   was made, and tells it once.
 * - A write is executed once at most, and exactly once if it is answered.  If the
 *   client says that it was not sent, or that its stream was refused, it is never
 *   executed.  How a request ends is what its server has done.
 * - Each watch tells all changes since its revision in order, none twice, until it
 *   ends or is replaced; then nothing.
 * - A keepalive is on a stream alone, and no watch has the number of another one.
 * - No request goes to a connection that has told the client GOAWAY.
 * - Of what a server sends without end, a turn of the client reads a part, and the
 *   connection is left.
 * - Windows are opened again, PINGs answered, and not sent too often.
 * - Where nothing goes wrong, and some time after all faults, each request
 *   succeeds.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "etcd/http.h"
#include "plan.h"
#include "reached.h"
#include "run.h"
#include "transport.h"

#define FAULTS_END_NS	(12 * SECOND)

/* The longest that a dead connection is not noticed: a PING, and its time. */
#define RECOVERY_NS		(16 * SECOND)
#define CALM_NS			(4 * SECOND)
#define REST_NS			(3 * SECOND)

#define TICK_NS			(100 * MS)

/* From an event to the client's turn. */
#define TURN_NS			(5 * MS)

/* So many turns without a byte, a callback or the passing of time are too many. */
#define MAX_IDLE_TURNS	100

#define MAX_WATCHES		3

/* The connection that watch stream 0 has for itself, see Destination. */
#define WATCH_USE		1

/* So old is what comes last through a pipe that was held up. */
#define STRAY_NS		(5 * SECOND)

#define GARBAGE_FATES	(FATE_BIT(FATE_NO_MESSAGE) | FATE_BIT(FATE_GARBAGE) | FATE_BIT(FATE_PAGE))

Conditions	conditions;
bool		healed;
Asked		asked[MAX_REQUESTS];
int			nasked;
Revision	history[MAX_REVISIONS];
int64_t		revision;
Incarnation incarnations[MAX_INCARNATIONS];
int			nincarnations;
int			refused_creates;
int64_t		stray_fates_ns[NFATES];
int64_t		goaway_read_ns;

/* This simulator has no structures. */
bool		passes_structures;

static EtcdClient *client;
static bool at_rest;			/* nothing is asked or changed any more */
static bool is_strict;			/* every request succeeds */
static int64_t turn_due_ns;		/* NEVER: none is planned */
static uint64_t turn_number;
uint64_t	nclient_turns;
static int	nidle;
static int64_t last_turn_ns;
static uint64_t progress;		/* counts callbacks */

/* The watches of a stream: their incarnations. */
static struct
{
	bool		is_open;
	int			watches[MAX_WATCHES];
	int			nwatches;
	int64_t		opened_ns;
}			streams[ETCD_CLIENT_STREAMS];

/* ---- what the seeds reach ---------------------------------------------------- */

#define REACHED_TEXT(name, text) text,
static const char *const reached_texts[NREACHED] = {REACHED(REACHED_TEXT)};
static bool reached[NREACHED];
static uint64_t *nseeds;

void
reach(Reached what)
{
	reached[what] = true;
}

void
reached_begin(void)
{
	nseeds = mmap(NULL, NREACHED * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int
reached_report(void)
{
	int			nmissed = 0;

	for (int i = 0; i < NREACHED; i++)
	{
		printf("%6" PRIu64 "  %s%s\n", nseeds[i], reached_texts[i], nseeds[i] == 0 ? "  NOT REACHED" : "");
		nmissed += nseeds[i] == 0;
	}
	printf("%d states, %d not reached\n", NREACHED, nmissed);
	return nmissed;
}

/* ---- history ----------------------------------------------------------------- */

int64_t
history_add(EtcdRequestKind kind, int request, int64_t lease)
{
	if (revision == MAX_REVISIONS - 1)
	{
		fail_run("too many revisions for the simulator");
		return revision;
	}
	history[++revision] = (Revision) {.request = request,.kind = kind,.lease = lease,.when_ns = now_ns};
	return revision;
}

int64_t
next_change(int prefix, int64_t after)
{
	for (int64_t r = after + 1; r <= revision; r++)
	{
		if (history[r].is_change && history[r].prefix == prefix)
			return r;
	}
	return 0;
}

static int64_t
draw_size(void)
{
	return random_chance(2000) ? 0 : random_between(0, random_chance(8000) ? 100 : conditions.value_size);
}

static void
change_keys(void)
{
	int64_t		changed = history_add(ETCD_TXN, 0, 0);

	history[changed].is_change = true;
	history[changed].prefix = random_below(NPREFIXES);
	history[changed].size = draw_size();
}

/* ---- the client's turn ---------------------------------------------------------- */

static void open_watches(int stream);

static void
check_turn(void)
{
	static uint64_t last_progress;
	uint64_t	moved = progress;

	for (const Link *link = links; link != NULL; link = link->next)
		moved += link->up.written + link->down.read + (uint64_t) link->number;
	nidle = moved == last_progress && now_ns - last_turn_ns < MS ? nidle + 1 : 0;
	last_progress = moved;
	last_turn_ns = now_ns;
	if (nidle > MAX_IDLE_TURNS)
		fail_run("the client is due again and again");
	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		if (!streams[i].is_open && !at_rest && random_chance(3000))
			open_watches(i);
	}
}

static void
turn(void *subject, uint64_t number)
{
	long		timeout_ms;

	(void) subject;
	if (number != turn_number || client == NULL)
		return;
	turn_due_ns = NEVER;
	nclient_turns++;
	etcd_client_socket_ready(client, 0, 0);
	etcd_client_process(client);
	check_turn();
	timeout_ms = etcd_client_timeout_ms(client);
	if (timeout_ms >= 0)
		client_wake(timeout_ms > 0 ? timeout_ms * MS : MS / 100);
}

void
client_wake(int64_t delay_ns)
{
	if (turn_due_ns <= now_ns + delay_ns)
		return;
	turn_due_ns = now_ns + delay_ns;
	events_at(turn_due_ns, turn, NULL, ++turn_number);
}

/* ---- requests --------------------------------------------------------------------- */

static bool
has_kvs(const EtcdAnswer *answer, int number)
{
	const Asked *request = &asked[number];
	const EtcdResult *result = &answer->results[answer->nresults - 1];
	char		key[32];

	if (answer->nresults != 1 + request->writes || result->kind != ETCD_OP_RANGE || result->nkvs != 1 ||
		(request->writes && answer->results[0].kind != ETCD_OP_PUT) || !answer->succeeded)
		return false;
	snprintf(key, sizeof(key), "k%d", number);
	if (strlen(key) != result->kvs[0].key.len || memcmp(key, result->kvs[0].key.data, strlen(key)) != 0 ||
		(int64_t) result->kvs[0].value.len != request->size)
		return false;
	return memcmp(result->kvs[0].value.data, value_of(number), result->kvs[0].value.len) == 0;
}

static void
check_answer(int number, const EtcdAnswer *answer)
{
	const Asked *request = &asked[number];
	int64_t		at = answer->header.revision;
	bool		is_lease = request->kind == ETCD_GRANT || request->kind == ETCD_KEEPALIVE || request->kind == ETCD_TIME_TO_LIVE;
	Revision   *told = &history[at > 0 && at <= revision ? at : 0];

	if (told == history || told->kind != request->kind ||
		(told->request != number && (told->request != 0 || request->lease > OWN_LEASE || request->kind == ETCD_TXN)))
		fail_run("request %d gets an answer from revision %" PRId64 ", which is another one's", number, at);
	else if (told->when_ns < request->made_ns)
		fail_run("request %d gets an answer from revision %" PRId64 ", from before it was made", number, at);
	else if (told->was_received)
		fail_run("request %d gets an answer from revision %" PRId64 ", which was told before", number, at);
	else if (told->request > 0 && request->kind != ETCD_KEEPALIVE && (request->fates & FATE_BIT(FATE_ANSWER)) == 0)
		fail_run("request %d is answered, and no status has said so", number);
	else if (is_lease && (answer->lease != request->lease || answer->ttl_s != 1 + at % 50))
		fail_run("request %d for lease %" PRId64 " gets an answer for lease %" PRId64, number, request->lease, answer->lease);
	else if (request->kind == ETCD_TXN && !has_kvs(answer, number))
		fail_run("request %d gets another value", number);
	else if (request->kind == ETCD_LIST_MEMBERS && answer->nmembers != conditions.nendpoints)
		fail_run("request %d gets %d members", number, answer->nmembers);
	if (request->writes && request->nexecuted != 1)
		fail_run("request %d is answered, and was executed %d times", number, request->nexecuted);
	told->was_received = true;
}

/* It is said that this was not executed. */
static void
check_not_run(int number)
{
	Asked	   *request = &asked[number];

	if (!request->writes)
		return;
	request->must_not_run = true;
	if (request->nexecuted > 0)
		fail_run("request %d was executed, and the client says that it was not", number);
}

/* Has one of these fates befallen a watch, or a request that servers do not know? */
static bool
has_strayed(unsigned fates, int64_t since_ns)
{
	for (int fate = 0; fate < NFATES; fate++)
	{
		if ((fates & FATE_BIT(fate)) && stray_fates_ns[fate] >= since_ns - STRAY_NS)
			return true;
	}
	return false;
}

static void
check_fates(int number, unsigned fates, const char *message)
{
	if ((asked[number].fates & fates) == 0 && !has_strayed(fates, asked[number].made_ns))
		fail_run("request %d ends with \"%s\", and no server did that", number, message);
}

static bool
says(const char *message, const char *text)
{
	return strstr(message, text) != NULL;
}

static void
check_refusal(int number, const char *message)
{
	char		refused[32];
	char		failed[32];

	snprintf(refused, sizeof(refused), "refused %d", number);
	snprintf(failed, sizeof(failed), "failed %d", number);
	/* of its own, or of the request for a token that it waits for */
	if (says(message, "invalid auth token") || says(message, "a token"))
	{
		reach(REACHED_TOKEN_REFUSED);
		check_not_run(number);
		return;
	}
	reach(REACHED_REFUSAL);
	check_fates(number, FATE_BIT(FATE_REFUSE) | FATE_BIT(FATE_FAIL), message);
	if (asked[number].lease <= OWN_LEASE && asked[number].kind != ETCD_TXN)
		return;
	if (strcmp(message, refused) == 0)
		check_not_run(number);
	else if (strcmp(message, failed) != 0)
		fail_run("request %d is refused as \"%s\"", number, message);
}

/* By the text alone the client tells how it ended. */
static void
check_no_answer(int number, const char *message)
{
	const Asked *request = &asked[number];

	/* its answer is not used; the message goes on with why another endpoint tells no cluster */
	if (says(message, "more than half must"))
		reach(REACHED_NO_MAJORITY);
	else if (says(message, "refused the stream"))
	{
		/* those beyond a GOAWAY are not known to servers */
		if (goaway_read_ns < request->made_ns)
			check_fates(number, FATE_BIT(FATE_REFUSE_STREAM), message);
		reach(REACHED_REFUSED_STREAM);
		check_not_run(number);
	}
	else if (says(message, "ended the stream"))
	{
		check_fates(number, FATE_BIT(FATE_RESET) | FATE_BIT(FATE_NO_TRAILERS) | FATE_BIT(FATE_CUT) | FATE_BIT(FATE_PAGE), message);
		reach(REACHED_NO_STATUS);
	}
	else if (says(message, "floods the connection"))
		reach(REACHED_FLOOD);
	else if (says(message, "is left alone"))
	{
		reach(REACHED_LEFT_ALONE);
		check_not_run(number);
	}
	else if (says(message, "could not connect"))
	{
		reach(REACHED_UNSENT);
		check_not_run(number);
	}
	else if (says(message, "no answer from etcd"))
		reach(REACHED_TIMEOUT);
	else if (says(message, "connection closed"))
		reach(REACHED_CLOSED);
	else if (says(message, "no token"))
		check_not_run(number);
	else
		fail_run("request %d ends with \"%s\"", number, message);
	if (request->writes)
		reach(request->nexecuted > 0 ? REACHED_MAYBE : REACHED_NOT_RUN);
}

static void
check_outcome(int number, const EtcdAnswer *answer)
{
	const char *message = answer->message;

	switch (answer->outcome)
	{
		case ETCD_ANSWERED:
			check_answer(number, answer);
			break;
		case ETCD_REFUSED:
			check_refusal(number, message);
			break;
		case ETCD_GARBAGE:
			if (asked[number].size >= ETCD_MAX_ANSWER_SIZE && says(message, "larger than"))
			{
				reach(REACHED_TOO_LARGE);
				break;
			}
			check_fates(number, GARBAGE_FATES, message);
			reach(says(message, "HTTP status") ? REACHED_PAGE : REACHED_GARBAGE);
			break;
		case ETCD_NO_ANSWER:
			check_no_answer(number, message);
			break;
	}
}

static void
receive(void *ctx, uint64_t id, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	int			number = (int) id;

	(void) ctx;
	(void) timing;
	progress++;
	trace("client", "request %d ends: %d \"%s\" revision %" PRId64, number, answer->outcome, answer->message,
		  answer->header.revision);
	if (asked[number].has_ended)
		fail_run("request %d ends twice", number);
	asked[number].has_ended = true;
	if (asked[number].latest_ns < now_ns)
		fail_run("request %d ends %" PRId64 " ms late", number, (now_ns - asked[number].latest_ns) / MS);
	if (asked[number].must_succeed && answer->outcome != ETCD_ANSWERED)
		fail_run("request %d fails without a reason: %s", number, answer->message);
	if (conditions.trouble != TROUBLE_NOISE)
		check_outcome(number, answer);
}

static void
check_ended(void *subject, uint64_t number)
{
	(void) subject;
	if (!asked[number].has_ended)
		fail_run("request %d does not end", (int) number);
}

static void
send_txn(int number, bool is_large)
{
	Asked	   *request = &asked[number];
	EtcdOp		ops[2];
	char		key[32];

	snprintf(key, sizeof(key), "k%d", number);
	memset(ops, 0, sizeof(ops));
	ops[0].kind = ETCD_OP_PUT;
	ops[1].kind = ETCD_OP_RANGE;
	ops[0].key = ops[1].key = (EtcdBytes) {key, strlen(key)};
	/* with a small window, little is sent */
	ops[0].value = (EtcdBytes) {value_of(number), (size_t) (conditions.upload_window < 65535 ? request->size % 200 : request->size)};
	ops[1].limit = request->size;
	etcd_client_send(client, receive, (uint64_t) number, &(EtcdRequest) {
		.kind = ETCD_TXN,.success = request->writes ? ops : ops + 1,.nsuccess = 1 + request->writes,.is_large = is_large
	});
}

static EtcdRequestKind
draw_kind(void)
{
	static const EtcdRequestKind kinds[] = {
		ETCD_TXN, ETCD_TXN, ETCD_TXN, ETCD_TXN, ETCD_TXN, ETCD_KEEPALIVE, ETCD_KEEPALIVE,
		ETCD_GRANT, ETCD_REVOKE, ETCD_TIME_TO_LIVE, ETCD_STATUS, ETCD_LIST_MEMBERS
	};

	/* a list of members is asked for on a new connection, which would hide that an old one is dead */
	return kinds[random_below(healed ? 11 : 12)];
}

static void
ask_something(void)
{
	int			number = ++nasked;
	Asked	   *request = &asked[number];
	bool		is_large = random_chance(conditions.large);
	int64_t		timeout_ms = conditions.request_timeout_ms;

	if (nasked == MAX_REQUESTS)
	{
		nasked--;
		return;
	}
	memset(request, 0, sizeof(*request));
	request->kind = is_large ? ETCD_TXN : draw_kind();
	request->writes = request->kind == ETCD_GRANT || request->kind == ETCD_REVOKE ||
		(request->kind == ETCD_TXN && !is_large && random_chance(5000));
	request->lease = request->kind == ETCD_KEEPALIVE && random_chance(5000) ? 1 + random_below(3) : OWN_LEASE + number;
	request->size = is_large ? random_between(1, 12 * conditions.value_size) : draw_size();
	if (!healed && !is_large && random_chance(conditions.too_large))
		request->size = ETCD_MAX_ANSWER_SIZE;
	request->made_ns = now_ns;
	request->must_succeed = is_strict;
	if (is_large && timeout_ms < ETCD_LARGE_TIMEOUT_MS)
		timeout_ms = ETCD_LARGE_TIMEOUT_MS;
	request->latest_ns = now_ns + 2 * timeout_ms * MS + TURN_NS;
	events_at(request->latest_ns + 1, check_ended, NULL, (uint64_t) number);
	trace("client", "request %d: kind %d, lease %" PRId64 ", %" PRId64 " bytes%s%s", number, request->kind,
		  request->lease, request->size, request->writes ? ", writes" : "", is_large ? ", large" : "");
	if (request->kind == ETCD_TXN)
	{
		request->lease = 0;
		send_txn(number, is_large);
	}
	else if (request->kind == ETCD_STATUS || request->kind == ETCD_LIST_MEMBERS)
	{
		request->lease = 0;
		etcd_client_send(client, receive, (uint64_t) number, &(EtcdRequest) {
			.kind = request->kind
		});
	}
	else
		etcd_client_send(client, receive, (uint64_t) number, &(EtcdRequest) {
			.kind = request->kind,.lease = request->lease,.ttl_s = 10
		});
	client_wake(0);
}

/* ---- watches --------------------------------------------------------------------- */

static void
close_watches(int stream)
{
	for (int i = 0; i < streams[stream].nwatches; i++)
		incarnations[streams[stream].watches[i]].is_open = false;
	streams[stream].nwatches = 0;
	streams[stream].is_open = false;
}

/* Opens a stream, or replaces its watches. */
static void
open_watches(int stream)
{
	EtcdWatch	watches[MAX_WATCHES];
	char		ends[MAX_WATCHES][16];
	static const char *const prefixes[NPREFIXES] = {"a/", "b/", "c/"};
	int			n = 1 + random_below(MAX_WATCHES);

	if (nincarnations + n >= MAX_INCARNATIONS)
		return;
	close_watches(stream);
	memset(watches, 0, sizeof(watches));
	for (int i = 0; i < n; i++)
	{
		Incarnation *made = &incarnations[++nincarnations];

		/* some begin in the past */
		*made = (Incarnation) {.stream = stream,.prefix = random_below(NPREFIXES),.made_ns = now_ns,.is_open = true};
		made->start_revision = random_between(revision > 20 ? revision - 20 : 1, revision + 1);
		made->last_revision = made->start_revision - 1;
		snprintf(ends[i], sizeof(ends[i]), "%c0#%d", 'a' + made->prefix, nincarnations);
		watches[i].watch_id = i + 1;
		watches[i].key = (EtcdBytes) {prefixes[made->prefix], 2};
		watches[i].range_end = (EtcdBytes) {ends[i], strlen(ends[i])};
		watches[i].start_revision = made->start_revision;
		watches[i].fragment = stream > 0;
		streams[stream].watches[i] = nincarnations;
		trace("client", "watch %d of stream %d from %" PRId64, nincarnations, stream, made->start_revision);
	}
	streams[stream].nwatches = n;
	streams[stream].is_open = true;
	streams[stream].opened_ns = now_ns;
	etcd_client_watch(client, stream, watches, n);
	client_wake(0);
}

static void
forget_watches(int stream)
{
	close_watches(stream);
	etcd_client_watch(client, stream, NULL, 0);
	client_wake(0);
}

static void
check_event(int number, const EtcdWatchEvent *event)
{
	Incarnation *watch = &incarnations[number];
	int64_t		at = event->kv.mod_revision;
	EtcdBytes	value = event->kv.value;
	char		owner[16];

	snprintf(owner, sizeof(owner), "%d", number);
	if (value.len < sizeof(owner) || strcmp(value.data + value.len - sizeof(owner), owner) != 0)
		fail_run("watch %d gets an event of another watch", number);
	else if (at != next_change(watch->prefix, watch->last_revision))
		fail_run("watch %d gets revision %" PRId64 " after %" PRId64, number, at, watch->last_revision);
	else if (value.len != history[at].size + sizeof(owner) || memcmp(value.data, value_of(at), history[at].size) != 0)
		fail_run("watch %d gets another value at revision %" PRId64, number, at);
	watch->last_revision = at;
}

static void
check_frame(int number, const EtcdWatchFrame *frame)
{
	Incarnation *watch = &incarnations[number];

	if (!watch->is_open)
		fail_run("watch %d tells something after its end", number);
	else if (frame->created && watch->created)
		fail_run("watch %d is created twice", number);
	else if (!frame->created && !watch->created)
		fail_run("watch %d tells something before it is created", number);
	else if (frame->canceled && !watch->canceled_by_server)
		fail_run("watch %d is canceled, and nobody has done that", number);
	watch->created = true;
	for (int i = 0; i < frame->nevents && !run_failed(); i++)
		check_event(number, &frame->events[i]);
	if (frame->canceled)
		watch->is_open = false;
}

static void
watched(void *ctx, int stream, const EtcdWatchFrame *frame)
{
	(void) ctx;
	progress++;
	trace("client", "stream %d: watch %" PRId64 ", %d events%s%s", stream, frame->watch_id, frame->nevents,
		  frame->created ? ", created" : "", frame->canceled ? ", canceled" : "");
	if (conditions.trouble == TROUBLE_NOISE)
		return;
	if (!streams[stream].is_open)
		fail_run("stream %d tells something after its end", stream);
	else if (frame->watch_id == -1)
	{
		reach(REACHED_WATCH_REFUSED);
		if (refused_creates == 0)
			fail_run("a watch of stream %d is refused, and nobody has done that", stream);
	}
	else if (frame->watch_id < 1 || frame->watch_id > streams[stream].nwatches)
		fail_run("stream %d tells of a watch %" PRId64, stream, frame->watch_id);
	else
		check_frame(streams[stream].watches[frame->watch_id - 1], frame);
	/* as the extension does: a watch that etcd has ended is opened again, with the others */
	if (frame->canceled && !run_failed())
		open_watches(stream);
	else if (!healed && random_chance(conditions.closes))
		forget_watches(stream);
}

static void
watch_ended(void *ctx, int stream, EtcdOutcome outcome, const char *why)
{
	(void) ctx;
	progress++;
	trace("client", "stream %d ends: %d %s", stream, outcome, why);
	if (!streams[stream].is_open)
		fail_run("stream %d ends twice", stream);
	if (outcome == ETCD_GARBAGE && !has_strayed(GARBAGE_FATES, streams[stream].opened_ns))
		fail_rule("stream %d ends with garbage, which nobody has sent: %s", stream, why);
	close_watches(stream);
	client_wake(random_between(MS, 50 * MS));
}

static void
noticed(void *ctx, const char *why)
{
	(void) ctx;
	trace("client", "notices: %s", why);
}

static void
endpoints_changed(void *ctx)
{
	(void) ctx;
	fail_rule("the client has other endpoints");
}

/* All changes were told. */
static void
check_watches(void)
{
	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		if (!streams[i].is_open)
			fail_run("stream %d is not open", i);
		for (int j = 0; j < streams[i].nwatches; j++)
		{
			const Incarnation *watch = &incarnations[streams[i].watches[j]];
			int64_t		missing = next_change(watch->prefix, watch->last_revision);

			if (!watch->created)
				fail_run("watch %d is never created", streams[i].watches[j]);
			else if (missing > 0)
				fail_run("watch %d never gets revision %" PRId64, streams[i].watches[j], missing);
		}
	}
}

/* A connection that is flooded is left at once. */
static void
check_floods(void)
{
	for (const Link *link = links; link != NULL; link = link->next)
	{
		if (link->exchange != NULL && link->flooded_since_ns != NEVER && link->flooded_since_ns + TURN_NS < now_ns)
			fail_rule("link %d is not left while it is flooded", link->number);
	}
}

/*
 * A connection that goes away is left: by watches at once, as they never end by
 * themselves.
 */
static void
check_left(void)
{
	int64_t		requests_ms = conditions.request_timeout_ms < ETCD_LARGE_TIMEOUT_MS ? ETCD_LARGE_TIMEOUT_MS : conditions.request_timeout_ms;

	for (const Link *link = links; link != NULL; link = link->next)
	{
		int64_t		left_by_ns = link->goaway_read_ns;

		if (link->exchange == NULL || link->goaway_read_ns == NEVER)
			continue;
		left_by_ns += link->use == WATCH_USE ? TURN_NS : 2 * requests_ms * MS + TURN_NS;
		if (left_by_ns < now_ns)
			fail_rule("link %d is not left after a GOAWAY", link->number);
	}
}

/* ---- the run ------------------------------------------------------------------------ */

/* A file in memory, since the client reads the password from one. */
static const char *
password_file(void)
{
	static char path[64];

	if (path[0] == '\0')
	{
		int			fd = memfd_create("password", MFD_CLOEXEC);

		if (fd < 0 || fchmod(fd, S_IRUSR) != 0 || write(fd, PASSWORD, strlen(PASSWORD)) < 0)
			abort();
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	return path;
}

static void
configure(void)
{
	static const char *const urls[MAX_ENDPOINTS] = {"http://etcd0:2379", "http://etcd1:2379"};

	etcd_client_configure(client, &(EtcdClientSettings) {
		.endpoints = urls,.nendpoints = conditions.nendpoints,.dialect = ETCD_GRPC,
		.username = conditions.has_users ? USERNAME : NULL,.password_file = password_file(),
		.request_timeout_ms = conditions.request_timeout_ms,.connect_timeout_ms = conditions.connect_timeout_ms
	});
	client_wake(0);
}

static void
meddle(void)
{
	if (random_chance(conditions.stalls))
		link_hold();
	if (random_chance(conditions.deaths))
		link_kill();
	if (random_chance(conditions.reloads))
		configure();
	if (random_chance(conditions.reloads) && conditions.nendpoints > 1)
		etcd_client_change_endpoint(client, etcd_client_endpoint(client));
	for (int i = 0; i < ETCD_CLIENT_STREAMS; i++)
	{
		if (random_chance(conditions.rewatches))
			open_watches(i);
		else if (random_chance(conditions.rewatches / 10))
			forget_watches(i);
	}
}

static void
tick(void *subject, uint64_t tag)
{
	(void) subject;
	(void) tag;
	servers_tick();
	check_left();
	check_floods();
	for (int i = 0; !at_rest && i < 3 && random_chance(conditions.requests); i++)
		ask_something();
	for (int i = 0; !at_rest && i < 3 && random_chance(5000); i++)
		change_keys();
	if (!healed)
		meddle();
	events_after(random_between(1, 2 * TICK_NS), tick, NULL, 0);
}

static void
draw_fates(int rate)
{
	for (int fate = FATE_ANSWER + 1; fate < FATE_NO_TOKEN; fate++)
		conditions.fates[fate] = random_chance(3000) ? 0 : random_below(rate);
}

/* What goes wrong. */
static void
draw_trouble(Trouble trouble)
{
	bool		all = trouble == TROUBLE_ALL;
	int			part = all ? 3 : 1;

	if (trouble == TROUBLE_BREAKS || all)
	{
		conditions.breaks = 5000 / part;
		conditions.unmade = random_chance(5000) ? 0 : 1500 / part;
		conditions.is_alone = random_chance(2000);
	}
	if (trouble == TROUBLE_SILENCE || all)
	{
		conditions.stalls = random_below(800 / part);
		conditions.deaths = random_below(400 / part);
		conditions.late = random_below(2000);
	}
	if (trouble == TROUBLE_GOAWAY || all)
		conditions.goaways = 100 + random_below(600 / part);
	if (trouble == TROUBLE_GOAWAY || all)
		conditions.floods = random_chance(5000) ? 0 : random_below(60);
	if (trouble == TROUBLE_ENDS || all)
	{
		draw_fates(500 / part);
		conditions.watch_ends = random_below(40);
		conditions.watch_cancels = random_below(1000);
	}
	if (trouble == TROUBLE_WINDOWS || (all && random_chance(2000)))
	{
		conditions.value_size = random_between(10000, 150000);
		conditions.delay_ns = random_between(MS, 5 * MS);
		conditions.room = (size_t) random_between(100000, 1000000);
		conditions.large = 500;
		conditions.closes = random_below(2000);
		conditions.too_large = 50;
		conditions.byte_ns = random_between(0, 30);
		conditions.stalls += random_below(500);
		conditions.requests = 8000;
	}
	if (trouble == TROUBLE_WATCHES || all)
	{
		conditions.rewatches = random_between(500, all ? 1000 : 5000);
		conditions.closes = random_below(500);
	}
	if (trouble == TROUBLE_NOISE)
		conditions.noise = random_between(20, 500);
}

static void
draw_conditions(Trouble trouble)
{
	memset(&conditions, 0, sizeof(conditions));
	conditions.trouble = trouble;
	conditions.nendpoints = 1 + random_chance(4000);
	conditions.request_timeout_ms = random_between(300, 1500);
	conditions.connect_timeout_ms = random_between(200, 1000);
	conditions.requests = 5000;
	conditions.delay_ns = random_chance(3000) ? random_between(1, MS) : random_between(MS, 20 * MS);
	conditions.room = (size_t) (conditions.delay_ns < MS ? random_between(100, 2000) : random_between(20000, 300000));
	conditions.parts = random_chance(3000) ? 0 : random_below(random_chance(3000) ? 10000 : 3000);
	conditions.small_frames = random_chance(3000) ? 0 : random_below(3000);
	conditions.padding = random_chance(5000) ? 0 : random_below(5000);
	conditions.pings = random_below(300);
	conditions.late_events = random_below(10000);
	conditions.upload_window = random_chance(3000) ? (uint32_t) random_between(100, 300) : 65535;
	conditions.max_streams = (uint32_t) random_between(8, 60);
	conditions.value_size = conditions.delay_ns < MS || random_chance(8000) ? 1000 : 20000;
	conditions.large = 200;
	conditions.rewatches = 50;
	conditions.has_users = random_chance(3000);
	conditions.invalidations = trouble == TROUBLE_NONE || random_chance(3000) ? 0 : random_below(random_chance(7000) ? 200 : 6000);
	conditions.reloads = random_chance(5000) ? 0 : random_below(200);
	draw_trouble(trouble);
}

static bool
run_on(int64_t duration_ns)
{
	int64_t		until_ns = now_ns + duration_ns;

	while (!run_failed() && events_step(until_ns))
		;
	return !run_failed();
}

static void
begin(uint64_t seed)
{
	static const EtcdClientCallbacks callbacks = {
		.watched = watched,.watch_ended = watch_ended,.noticed = noticed,.endpoints_changed = endpoints_changed
	};

	verdict_reset();
	events_reset();
	random_seed(seed);
	draw_conditions((Trouble) (seed % NTROUBLES));
	memset(streams, 0, sizeof(streams));
	memset(reached, 0, sizeof(reached));
	nasked = nincarnations = refused_creates = nidle = 0;
	revision = 1;
	for (int fate = 0; fate < NFATES; fate++)
		stray_fates_ns[fate] = -NEVER;
	goaway_read_ns = -1;
	healed = at_rest = false;
	is_strict = conditions.trouble == TROUBLE_NONE;
	turn_due_ns = NEVER;
	servers_reset();
	client = etcd_client_create(&callbacks);
	configure();
	open_watches(0);
	open_watches(1);
	events_after(0, tick, NULL, 0);
}

static void
end(void)
{
	etcd_client_free(client);
	client = NULL;
	servers_free();
	links_free();
	run_free_all();
	for (int i = 0; nseeds != NULL && i < NREACHED; i++)
		__atomic_fetch_add(&nseeds[i], reached[i], __ATOMIC_RELAXED);
}

bool
run_seed(uint64_t seed)
{
	begin(seed);
	(void) run_on(FAULTS_END_NS);
	healed = true;
	for (Link *link = links; link != NULL; link = link->next)
	{
		link->up.breaks_at = link->down.breaks_at = UINT64_MAX;
		/* what noise has spoiled is not mended */
		if (conditions.trouble == TROUBLE_NOISE)
			link_break(link);
	}
	(void) run_on(RECOVERY_NS);
	is_strict = true;
	(void) run_on(CALM_NS);
	at_rest = true;
	if (run_on(REST_NS) && conditions.trouble != TROUBLE_NOISE)
	{
		check_watches();
		servers_check_rest();
	}
	end();
	return !run_failed();
}

const char *
profile_name(Profile profile)
{
	static const char *const names[NTROUBLES] = {
		"none", "breaks", "silence", "goaway", "ends", "windows", "watches", "noise", "all"
	};

	_Static_assert((int) NTROUBLES == (int) NPROFILES, "main.c draws the profile of a seed");
	return names[profile];
}

bool
scale_write_table(void)
{
	return false;
}

bool
run_frozen(uint64_t seed)
{
	return run_seed(seed);
}
