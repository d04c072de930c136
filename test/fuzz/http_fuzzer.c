/*-------------------------------------------------------------------------
 *
 * http_fuzzer.c
 *	  Fuzzes the HTTP server, with the real libmicrohttpd: any bytes of a
 *	  client, and any text from etcd in the answers.
 *
 * Input: a byte with the number of sizes (its lowest 3 bits, so '0' to '7'), a
 * byte with the length of the text, that text, the sizes of the pieces, taken
 * in turn, and the bytes of the client.  Without sizes they arrive in one piece.
 *
 * server.c is included, so that the daemon and the connections are those of the
 * server.  Its loop and its listening sockets are not used.  PostgreSQL's
 * functions that these files use are replaced, and so is the C API, by one with
 * two elections; this instance leads the first.
 *
 *-------------------------------------------------------------------------
 */
#include "../../http/server.c"

#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>

#include "utils/datetime.h"
#include "utils/json.h"

#undef CHECK
#define CHECK(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

#define MAX_SENT		65536
#define NEVENTS			16896
#define LAST_EVENT		INT64CONST(800000000016896)
#define MAX_ANSWER		(4 * 1024 * 1024)

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t fuzz_max_work;

size_t		fuzz_max_work;		/* replay.c sets it; not used here */

static char etcd_text[256];			/* the text that replaces every name from etcd */
static char *received;
static size_t nreceived;

/* ---- replacements of PostgreSQL's functions ------------------------------------ */

MemoryContext TopMemoryContext;
MemoryContext CurrentMemoryContext;

/* Memory of a turn is freed at the end of the turn, as in the server. */
typedef struct Chunk
{
	struct Chunk *next;
	struct Chunk **link;
	size_t		size;
	long double data[];
} Chunk;

static Chunk *chunks;

void *
palloc(Size size)
{
	Chunk	   *chunk = malloc(sizeof(Chunk) + size);

	CHECK(chunk != NULL);
	chunk->size = size;
	chunk->next = chunks;
	chunk->link = &chunks;
	if (chunks)
		chunks->link = &chunk->next;
	chunks = chunk;
	return chunk->data;
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void
pfree(void *pointer)
{
	Chunk	   *chunk = (Chunk *) ((char *) pointer - offsetof(Chunk, data));

	*chunk->link = chunk->next;
	if (chunk->next)
		chunk->next->link = chunk->link;
	free(chunk);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk	   *chunk = (Chunk *) ((char *) pointer - offsetof(Chunk, data));
	void	   *new = palloc(size);

	memcpy(new, pointer, Min(size, chunk->size));
	pfree(pointer);
	return new;
}

char *
pstrdup(const char *in)
{
	return memcpy(palloc(strlen(in) + 1), in, strlen(in) + 1);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	static HttpQueue queue_memory[HTTP_MAX_QUEUES];
	static int	n = 0;

	/* this memory lives as long as the server */
	CHECK(context == TopMemoryContext && size == sizeof(HttpQueue) && n < HTTP_MAX_QUEUES);
	return &queue_memory[n++];
}

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size min, Size init, Size max)
{
	return parent;
}

void
MemoryContextReset(MemoryContext context)
{
	while (chunks)
		pfree(chunks->data);
}

/* A client must not be able to cause an ERROR.  Lower levels go to the log. */
bool
errstart(int elevel, const char *domain)
{
	CHECK(elevel < ERROR);
	return false;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int			errcode_for_socket_access(void) {return 0;}
int			errmsg(const char *format,...) {return 0;}
void		errfinish(const char *file, int line, const char *function) {abort();}
bool		RecoveryInProgress(void) {return false;}
TimestampTz GetCurrentTimestamp(void) {return INT64CONST(800000000000000);}
const char *timestamptz_to_str(TimestampTz at) {return "2025-05-08 00:00:00+00";}

char *
JsonEncodeDateTime(char *buf, Datum value, Oid type, const int *zone)
{
	return strcpy(buf, "2025-05-08T00:00:00+00:00");
}

void
escape_json(StringInfo out, const char *in)
{
	appendStringInfoChar(out, '"');
	for (; *in != '\0'; in++)
	{
		if (*in == '"' || *in == '\\' || (unsigned char) *in < ' ')
			appendStringInfo(out, "\\u%04x", *in);
		else
			appendStringInfoChar(out, *in);
	}
	appendStringInfoChar(out, '"');
}

/* ---- a replacement of the C API --------------------------------------------------- */

static bool
is_leader(const char *election)
{
	return true;
}

static bool
get_status(int index, EtcdLeaderStatus *status, Size size)
{
	if (index > 1)
		return false;
	memset(status, 0, sizeof(*status));
	strlcpy(status->election, index == 0 ? "postgres" : etcd_text, sizeof(status->election));
	strlcpy(status->node, etcd_text, sizeof(status->node));
	strlcpy(status->leader, etcd_text, sizeof(status->leader));
	strlcpy(status->key, etcd_text, sizeof(status->key));
	strlcpy(status->endpoint, etcd_text, sizeof(status->endpoint));
	strlcpy(status->last_error, etcd_text, sizeof(status->last_error));
	status->role = "leader";
	status->state = "leading";
	status->is_leader = index == 0;
	status->fencing_token = 7;
	status->valid_for_us = index == 0 ? 1234567 : 0;
	status->last_contact = status->last_error_at = status->leader_since = GetCurrentTimestamp();
	return true;
}

/* There are many events.  The first page reads all of them, and the others what is new. */
static bool
get_event(int64 after, EtcdLeaderEvent *event, Size size)
{
	static bool all_read;

	if (after == LAST_EVENT)
	{
		all_read = true;
		return false;
	}
	CHECK(!all_read);
	if (after < LAST_EVENT - NEVENTS || after > LAST_EVENT)
		after = LAST_EVENT - NEVENTS;
	memset(event, 0, sizeof(*event));
	event->seq = after + 1;
	event->at = GetCurrentTimestamp();
	event->event = "elected";
	strlcpy(event->election, etcd_text, sizeof(event->election));
	strlcpy(event->leader, etcd_text, sizeof(event->leader));
	strlcpy(event->reason, etcd_text, sizeof(event->reason));
	return true;
}

static void
get_stats(EtcdLeaderStats *stats, Size size)
{
	memset(stats, 0, sizeof(*stats));
	stats->nreasons = 1;
	stats->elections_lost[0].reason = "resigned";
	stats->nbuckets = 1;
	stats->latency_buckets[0].limit_ns = 1000;
}

/* A problem of each severity. */
static bool
get_problem(int index, EtcdLeaderProblem *problem, Size size)
{
	CHECK(size == sizeof(*problem));
	if (index >= 2)
		return false;
	memset(problem, 0, size);
	problem->item = index == 0 ? "etcd" : "rights";
	problem->severity = index == 0 ? "error" : "warning";
	strlcpy(problem->subject, etcd_text, sizeof(problem->subject));
	strlcpy(problem->problem, etcd_text, sizeof(problem->problem));
	strlcpy(problem->hint, etcd_text, sizeof(problem->hint));
	return true;
}

static const EtcdLeaderApi api = {
	.library_version = "1.0",
	.is_leader = is_leader,
	.get_status = get_status,
	.get_event = get_event,
	.get_stats = get_stats,
	.get_problem = get_problem
};

const EtcdLeaderApi *http_api = &api;

/* ---- the server -------------------------------------------------------------------- */

/* The worker's answer to HTTP_WANT_QUEUES. */
static void
send_queue(int worker)
{
	static HttpQueue queue = {.kind = HTTP_QUEUE, .nplaces = 1};
	HttpMessageKind kind;

	if (recv(worker, &kind, sizeof(kind), MSG_DONTWAIT) != sizeof(kind))
		return;
	CHECK(kind == HTTP_WANT_QUEUES);
	strlcpy(queue.places[0].node, etcd_text, sizeof(queue.places[0].node));
	strlcpy(queue.places[0].key, etcd_text, sizeof(queue.places[0].key));
	CHECK(send(worker, &queue, sizeof(queue), MSG_DONTWAIT) == sizeof(queue));
	serve_control();
}

static int
start_server(void)
{
	static HttpConfig without_listeners;
	int			sockets[2];

	if (daemon_handle == NULL)
	{
		config = &without_listeners;
		received = malloc(MAX_ANSWER);
		daemon_handle = start_daemon();
		CHECK(daemon_handle != NULL && received != NULL);
		CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
		control = sockets[0];
		return sockets[1];
	}
	return -1;
}

static int
connect_client(void)
{
	struct sockaddr_storage address = {.ss_family = AF_INET};
	int			sockets[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
	connections_make_room(&address);
	connections_add(sockets[0], &address);
	CHECK(MHD_add_connection(daemon_handle, sockets[0], (struct sockaddr *) &address,
							 sizeof(struct sockaddr_in)) == MHD_YES);
	return sockets[1];
}

/* Runs one turn of the server, and receives; false if the server has closed. */
static bool
take_turn(int client)
{
	ssize_t		n;

	CHECK(MHD_run(daemon_handle) == MHD_YES);
	ask_for_queues();
	MemoryContextReset(TopMemoryContext);
	while ((n = recv(client, received + nreceived, MAX_ANSWER - nreceived, MSG_DONTWAIT)) > 0)
		nreceived += n;
	CHECK(nreceived < MAX_ANSWER);
	return n < 0 && errno == EAGAIN;
}

/* ---- answers ------------------------------------------------------------------------ */

static bool
is_known_code(int code)
{
	static const int codes[] = {100, 200, 400, 404, 405, 408, 411, 413, 414, 417, 431, 494, 501, 503, 505};

	for (size_t i = 0; i < lengthof(codes); i++)
	{
		if (codes[i] == code)
			return true;
	}
	return false;
}

/* Each answer has a valid first line, and a JSON answer is valid JSON. */
static void
check_answers(bool is_head_possible)
{
	char	   *next = received;
	char	   *end = received + nreceived;

	received[nreceived] = '\0';
	while (next < end)
	{
		int			code = 0;
		size_t		len = 0;
		char	   *body = strstr(next, "\r\n\r\n");
		char	   *length = strcasestr(next, "\r\nContent-Length:");
		bool		is_json;
		json_t	   *json;

		CHECK(sscanf(next, "HTTP/1.%*1[01] %d ", &code) == 1 && is_known_code(code));
		if (body == NULL)
			return;				/* the client closed first, so this answer is not complete */
		body += 4;
		if (length != NULL && length < body)
			len = strtoul(length + strlen("\r\nContent-Length:"), NULL, 10);
		is_json = memmem(next, body - next, "application/json", strlen("application/json")) != NULL;
		if (is_head_possible || len > (size_t) (end - body))
			return;				/* the begin of the next answer is unknown */
		/* libmicrohttpd 0.9.75 sometimes writes the head of its own refusals twice */
		if (code == 400)
			return;
		if (is_json && len > 0)
		{
			json = json_loadb(body, len, 0, NULL);
			CHECK(json != NULL);
			json_decref(json);
		}
		next = body + len;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int	worker = -1;
	const uint8_t *sizes;
	const uint8_t *sent;
	size_t		nsizes;
	size_t		text_len;
	size_t		turn_number = 0;
	bool		is_open = true;
	int			client;

	if (size < 2 || size > MAX_SENT)
		return -1;
	nsizes = data[0] & 7;
	text_len = data[1];
	if (size < 2 + text_len + nsizes)
		return -1;
	memcpy(etcd_text, data + 2, text_len);
	etcd_text[text_len] = '\0';
	sizes = data + 2 + text_len;
	sent = sizes + nsizes;
	size -= sent - data;

	if (worker < 0)
		worker = start_server();
	nreceived = 0;
	client = connect_client();
	for (size_t done = 0; done < size && is_open;)
	{
		size_t		n = nsizes > 0 ? (size_t) sizes[turn_number++ % nsizes] + 1 : size;
		ssize_t		taken = send(client, sent + done, n < size - done ? n : size - done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (taken > 0)
			done += taken;
		is_open = take_turn(client) && (taken > 0 || errno == EAGAIN);
		send_queue(worker);
	}
	(void) shutdown(client, SHUT_WR);
	for (int i = 0; i < 100 && is_open; i++)
		is_open = take_turn(client);
	check_answers(memmem(sent, size, "HEAD", 4) != NULL);

	/* the client closes, and the server closes the connection */
	close(client);
	for (int i = 0; i < 100 && connections_count() > 0; i++)
	{
		CHECK(MHD_run(daemon_handle) == MHD_YES);
		MemoryContextReset(TopMemoryContext);
	}
	CHECK(connections_count() == 0);
	return 0;
}
