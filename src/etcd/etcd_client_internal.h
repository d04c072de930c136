/*-------------------------------------------------------------------------
 *
 * etcd_client_internal.h
 *	  The state of an EtcdClient, and what its files offer each other.
 *
 * etcd_client.c		the event loop, and the settings
 * etcd_answers.c		the requests of the caller, and what follows from their ends
 * etcd_endpoints.c		the endpoints, the members of the cluster and their versions
 * etcd_auth.c			users, passwords and tokens
 * etcd_watch.c			the watch streams
 * etcd_request.c		the life of a request
 * etcd_call.c			a message to one endpoint, in the dialect of the settings
 * etcd_gateway.c		the dialect of etcd's JSON gateway
 * etcd_grpc.c			the dialect of gRPC
 * etcd_h2.c			HTTP/2: the only file that knows nghttp2
 * etcd_http.c			POSTs and connections by libcurl
 * etcd_sockets.c		the sockets and the timer to wait for
 * etcd_clusters.c		the clusters of the endpoints, and which may be used
 * etcd_connections.c	what the connections to the endpoints have told
 * etcd_curl.c			where a handle of libcurl connects, and by which TLS
 * etcd_tls.c			what is wrong with TLS, in words
 * etcd_limits.c		how much a server may send that is no part of an answer
 * etcd_names.c			the addresses of hosts
 *
 * A file calls those below it, and never one above it.  etcd_call.c and those
 * below it carry one message to one endpoint and keep what comes back.  Requests and watches
 * report how they ended.  The files above decide which endpoint is in use, ask
 * for tokens and members, and call the caller back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CLIENT_INTERNAL_H
#define ETCD_CLIENT_INTERNAL_H

#include <string.h>
#include <sys/stat.h>

#include "etcd_client.h"
#include "etcd_names.h"

/*
 * The unit tests are built with ETCD_CLIENT_CHECKED.  The extension is not: an
 * elector that is in doubt about itself must not bring down the server.
 */
#ifdef ETCD_CLIENT_CHECKED
#include <assert.h>
#define ETCD_CLIENT_ASSERT(condition)	assert(condition)
#else
#define ETCD_CLIENT_ASSERT(condition)	((void) (condition))
#endif

/* A copy of EtcdClientSettings but for the endpoints; NULL: not set. */
typedef struct Settings
{
	uint64_t	number;			/* counts the calls of etcd_client_configure() */
	long		request_timeout_ms;
	long		connect_timeout_ms;
	char	   *ca_file;
	char	   *cert_file;
	char	   *key_file;
	bool		tls_1_3;
	char	   *server_name;
	char	   *username;
	char	   *password_file;
	EtcdDialect dialect;
	uint64_t	cluster_id;
} Settings;

/* ---- etcd_http.c ----------------------------------------------------- */

/* One POST to one endpoint, and its answer. */
typedef struct Exchange Exchange;

/* What the connections to an endpoint have told. */
typedef struct EtcdConnectionFacts
{
	char		url[ETCD_CLIENT_MAX_URL_LEN + 1];
	int64_t		certificate_end_s;	/* in Unix time; 0: there is none */
	int64_t		round_trip_ns;	/* of the newest connection; 0: there was none */
} EtcdConnectionFacts;

/* libcurl, and the sockets and the timer for which it has to be called. */
typedef struct Http
{
	void	   *multi;			/* CURLM */
	int64_t		timer_ns;		/* when libcurl wants to be called; INT64_MAX: not */
	EtcdSocket *sockets;
	int			nsockets;
	int			sockets_size;
	uint64_t	socket_changes;
	uint64_t	nended;			/* numbers exchanges in the order of their ends */
	Exchange   *idle;			/* to be used again */
	Exchange   *waiting;		/* for the addresses of their hosts, or to connect */
	EtcdNames  *names;
	Exchange   *connections;	/* that are open, see etcd_http_connect() */
	int			nfacts;
	EtcdConnectionFacts facts[ETCD_CLIENT_MAX_ENDPOINTS];
} Http;

/* ---- etcd_sockets.c -------------------------------------------------- */

/* Records what libcurl wants from now on. */
extern void etcd_sockets_record(Http *http);

/*
 * Has a socket waited for; no events: not any more.  Every call counts as a
 * change: a socket that is closed is taken out first, so that its number can
 * only come back as a change.  If there is no memory for one, its exchange runs
 * into a time-out.
 */
extern void etcd_sockets_set(Http *http, int fd, int events);

/* ---- etcd_connections.c ---------------------------------------------- */

/* A handle of libcurl has ended its transfer, or made its connection, to that URL. */
extern void etcd_connections_note(Http *http, void *easy, const char *url);

/* ---- etcd_http.c ----------------------------------------------------- */

/*
 * A message, encoded once.  It may be sent several times, and at the same
 * time.  Its owner frees it after the exchanges that carry it.
 */
typedef struct Payload
{
	EtcdRequestKind kind;		/* not of a watch */
	const char *path;
	char	   *body;
	size_t		len;
} Payload;

/*
 * Upper limit of an answer, and of the incomplete frame at the end of a
 * stream.  The largest answer that elections need is a list of candidates or
 * their keys, some hundred bytes for each.  Values of some hundred kilobytes
 * are no names of nodes; whoever writes them only stops the election, and a
 * server that sends without end only loses its connection.
 *
 * Where values of others are asked for, the other one holds.  A value may be as
 * large as etcd takes it in one request, 1.5 MB by default, and a fragment of a
 * watch response, too; in JSON a value becomes a third more, and an event of
 * 60 bytes up to four times as much.
 */
#define ETCD_MAX_ANSWER_SIZE	(1024 * 1024)
#define ETCD_MAX_LARGE_SIZE		(8 * 1024 * 1024)

/*
 * The minimum time-out of a large answer, whose slowness alone must not be
 * the endpoint's fault.
 */
#define ETCD_LARGE_TIMEOUT_MS	5000

/* Where an exchange goes, and how. */
typedef struct Destination
{
	const char *url;			/* of the endpoint */
	const char *token;			/* NULL: none */
	uint64_t	token_number;	/* see Endpoint */
	int			use;			/* which connection of gRPC: 0: that of requests, or
								 * 1 + the number of the watch stream */
	long		timeout_ms;		/* of a stream: to connect */
	long		connect_timeout_ms;
	bool		is_stream;
	bool		connects;		/* uses no connection that is open already */
	size_t		max_size;		/* of an answer, of a frame */
} Destination;

extern bool etcd_http_init(Http *http);
/* All exchanges must have been released. */
extern void etcd_http_free(Http *http);

/* How many connections may stay open. */
extern void etcd_http_keep_connections(Http *http, int n);

/*
 * Begins an exchange.  Nothing happens before the timer is run, which is due
 * at once.  NULL if memory is out.  Only the payload must outlive it.
 */
extern Exchange *etcd_http_post(Http *http, const Settings *settings, const Destination *destination,
								const Payload *payload, const char *const *headers, int nheaders);

/* Looks up the host of an endpoint, unless its addresses are fresh. */
extern void etcd_http_look_up(Http *http, const char *url);
/*
 * Makes a connection for bytes of the caller's.  It is an exchange that ends
 * with the connection.  destination->timeout_ms is the time to make it.  NULL
 * if memory is out.
 */
extern Exchange *etcd_http_connect(Http *http, const Settings *settings, const Destination *destination);
extern bool etcd_http_is_connected(const Exchange *exchange);

/* May there be bytes to receive, or room for bytes to send? */
extern bool etcd_http_is_readable(const Exchange *exchange);
extern bool etcd_http_is_writeable(const Exchange *exchange);

/* Receives or sends some bytes, and returns how many; 0 also if the connection has ended. */
extern size_t etcd_http_recv(Http *http, Exchange *exchange, char *buffer, size_t size);
extern size_t etcd_http_send(Http *http, Exchange *exchange, const char *data, size_t len);

/* Ends an exchange that takes too long, unless it has ended. */
extern void etcd_http_time_out(Http *http, Exchange *exchange);

/* Frees an exchange, under way or not.  *exchange may be NULL, and becomes NULL. */
extern void etcd_http_release(Http *http, Exchange **exchange);

/* 0 until the exchange has ended; then its place in the order of the ends. */
extern uint64_t etcd_http_ended(const Exchange *exchange);

/* Is a connection up, or was it, through which the message could go? */
extern bool etcd_http_was_connected(const Exchange *exchange);

/* How it ended: without success; because the peer hung up without a byte. */
extern bool etcd_http_failed(const Exchange *exchange);
extern bool etcd_http_got_nothing(const Exchange *exchange);

/* Did it end because the peer sent bytes without end that are no part of an answer? */
extern bool etcd_http_floods(const Exchange *exchange);

/*
 * Returns the kind of failure, and its text in a buffer of ETCD_MESSAGE_SIZE.
 * True if it was a time-out.
 * REFUSED: the answer to a request for values of others is too large, which is
 * not the endpoint's fault.
 */
extern bool etcd_http_describe_failure(const Exchange *exchange, EtcdOutcome *outcome, char *message);

/* The text of a time-out alone, for something that takes that time at most. */
extern void etcd_http_describe_timeout(const Exchange *exchange, long timeout_ms, char *message);

extern const char *etcd_http_url(const Exchange *exchange);
extern long etcd_http_status(const Exchange *exchange);

/* The bytes that have arrived and are not taken yet; never NULL. */
extern const char *etcd_http_data(const Exchange *exchange, size_t *len);

/*
 * Of a stream: the number of leading bytes in which no frame ends.
 */
extern size_t etcd_http_searched(const Exchange *exchange);

/*
 * Of a stream: removes that number of bytes; reports that the rest is not a whole
 * frame.
 */
extern void etcd_http_take(Exchange *exchange, size_t n);
extern void etcd_http_await_more(Http *http, Exchange *exchange);

/* Has anything come since etcd_http_await_more()? */
extern bool etcd_http_has_news(const Exchange *exchange);

/* Stops reading a stream until it is resumed. */
extern void etcd_http_pause(Http *http, Exchange *exchange);
extern void etcd_http_resume(Http *http, Exchange *exchange);

/* When the timer has to be run; INT64_MAX: not. */
extern int64_t etcd_http_due_ns(const Http *http);
extern void etcd_http_run_timer(Http *http);
extern void etcd_http_socket_ready(Http *http, int fd, int events);
/* Waits for any socket, and runs libcurl for all of them. */
extern void etcd_http_wait(Http *http, long timeout_ms);

/* ---- etcd_gateway.c -------------------------------------------------- */

/* False if memory is out; etcd_gateway_free_payload() may follow all the same. */
extern bool etcd_gateway_encode_request(const EtcdRequest *request, Payload *payload);
extern bool etcd_gateway_encode_watches(const EtcdWatch *watches, int nwatches, Payload *payload);
extern void etcd_gateway_free_payload(Payload *payload);

/* Sends a message; as etcd_http_post(). */
extern Exchange *etcd_gateway_start(Http *http, const Settings *settings, const Payload *payload,
									const Destination *destination);

/*
 * Reads the answer of an exchange that has ended.  True if there is none
 * because of a time-out.  etcd_free_answer() must follow.
 */
extern bool etcd_gateway_read_answer(const Exchange *exchange, EtcdRequestKind kind,
									 EtcdAnswer *answer);

typedef enum FrameResult
{
	FRAME_READ,
	FRAME_INCOMPLETE,			/* it is not there in full */
	FRAME_UNREADABLE			/* frame->message says why; none will come any more */
} FrameResult;

/* Takes the next frame of a stream.  After READ, etcd_free_frame() must follow. */
extern FrameResult etcd_gateway_read_frame(Http *http, Exchange *exchange, EtcdWatchFrame *frame);

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE why a stream has ended, and what kind
 * of failure that was: ETCD_GARBAGE or ETCD_NO_ANSWER.
 */
extern EtcdOutcome etcd_gateway_describe_end(const Exchange *exchange, char *message);

/* ---- etcd_grpc.c ----------------------------------------------------- */

/* A request or a watch stream in gRPC. */
typedef struct GrpcCall GrpcCall;

typedef struct Grpc
{
	struct Connection *connections; /* newest first */
	GrpcCall   *calls;			/* oldest first */
} Grpc;

/* Begins a call.  NULL if memory is out. */
extern GrpcCall *etcd_grpc_start(EtcdClient *client, const EtcdRequest *request, const Destination *destination);
extern GrpcCall *etcd_grpc_watch(EtcdClient *client, const EtcdWatch *watches, int nwatches,
								 const Destination *destination);

/*
 * Replaces the watches of a stream.  What the old ones still tell is dropped.
 * False: it takes another stream.
 */
extern bool etcd_grpc_replace_watches(GrpcCall *call, const EtcdWatch *watches, int nwatches,
									  const Destination *destination);

/* As those of an Exchange. */
extern void etcd_grpc_release(EtcdClient *client, GrpcCall **call);
extern void etcd_grpc_time_out(EtcdClient *client, GrpcCall *call);
extern uint64_t etcd_grpc_ended(const GrpcCall *call);
extern bool etcd_grpc_was_connected(const GrpcCall *call);

/* Did it send more frames than it may that nobody waits for? */
extern bool etcd_grpc_floods(const GrpcCall *call);

/* Has the call ended without being looked at?  It may be sent again. */
extern bool etcd_grpc_is_refused(const GrpcCall *call);

/* As those of etcd_gateway.c. */
extern bool etcd_grpc_read_answer(GrpcCall *call, EtcdAnswer *answer);
extern FrameResult etcd_grpc_read_frame(GrpcCall *call, EtcdWatchFrame *frame);
extern EtcdOutcome etcd_grpc_describe_end(const GrpcCall *call, char *message);

/* Is there a frame to read? */
extern bool etcd_grpc_has_news(const GrpcCall *call);

/* Stops receiving much more of a watch stream, or goes on. */
extern void etcd_grpc_pause(GrpcCall *call, bool paused);

/* When etcd_grpc_run() is due, which moves the bytes; INT64_MAX: no time is known. */
extern int64_t etcd_grpc_due_ns(const EtcdClient *client);
extern void etcd_grpc_run(EtcdClient *client);

/* All calls must have been released. */
extern void etcd_grpc_free(EtcdClient *client);

/* ---- etcd_call.c ----------------------------------------------------- */

/* A request or a watch stream at one endpoint, in the dialect of the settings. */
typedef struct Call Call;

/*
 * Begins a call.  A watch stream that lacks a token waits for one.  The call uses the
 * token that the endpoint has when it begins.  The request must outlive the call.
 * NULL if memory is out.
 */
extern Call *etcd_call_send(EtcdClient *client, const EtcdRequest *request, const Destination *destination);
extern Call *etcd_call_watch(EtcdClient *client, const EtcdWatch *watches, int nwatches,
							 const Destination *destination);

/* Replaces the watches of an open stream.  False: that is not possible. */
extern bool etcd_call_replace_watches(EtcdClient *client, Call *call, const EtcdWatch *watches, int nwatches,
									  const Destination *destination);

/* Ends a call that takes too long, unless it has ended. */
extern void etcd_call_time_out(EtcdClient *client, Call *call);

/* Frees a call, under way or not.  *call may be NULL, and becomes NULL. */
extern void etcd_call_release(EtcdClient *client, Call **call);

/* 0 until the call has ended; then its place in the order of the ends. */
extern uint64_t etcd_call_ended(const Call *call);

extern const char *etcd_call_url(const Call *call);

/* Is a connection up, or was it, through which the message could go? */
extern bool etcd_call_was_connected(const Call *call);

/* Did the peer hang up without a byte? */
extern bool etcd_call_got_nothing(const Call *call);

/*
 * Reads the answer of a call that has ended.  True if there is none because of
 * a time-out.  etcd_free_answer() must follow.
 */
extern bool etcd_call_read_answer(Call *call, EtcdAnswer *answer);

/* Takes the next frame of a stream.  After READ, etcd_free_frame() must follow. */
extern FrameResult etcd_call_read_frame(EtcdClient *client, Call *call, EtcdWatchFrame *frame);

/* Has anything come of a stream since etcd_call_read_frame() found no frame? */
extern bool etcd_call_has_news(const Call *call);

/* Stops reading a stream, or goes on. */
extern void etcd_call_pause(EtcdClient *client, Call *call, bool paused);

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE why a stream has ended, and returns
 * what kind of failure that was.
 */
extern EtcdOutcome etcd_call_describe_end(const Call *call, char *message);

/* The endpoint sends without end what nobody waits for: no call begins there for a while. */
extern void etcd_call_shun(EtcdClient *client, const char *url);

/* When etcd_call_run() is due, which sends and receives; INT64_MAX: no time is known. */
extern int64_t etcd_call_due_ns(const EtcdClient *client);
extern void etcd_call_run(EtcdClient *client);

/* All calls must have been released. */
extern void etcd_call_free(EtcdClient *client);

/* ---- etcd_endpoints.c ------------------------------------------------ */

typedef struct Endpoint
{
	char	   *url;
	bool		learned;		/* from the list of members, not from the settings */
	EtcdEndpointState state;
	int64_t		first_failed_ns;	/* since it answered last */
	int64_t		check_due_ns;	/* when it is asked again, after a failure */
	/* see etcd_clusters.c */
	uint64_t	named_by;		/* the cluster whose list of members has it; 0: none */
	bool		named_twice;	/* another one's has it, too */
	bool		unannounced;	/* no member has it, though one has another of the settings */
	bool		is_asked;		/* for its cluster and members */
	/* see etcd_call.c */
	int			nfloods;		/* in succession */
	int64_t		shunned_until_ns;
	/* see etcd_auth.c */
	char	   *token;			/* NULL: none */
	uint64_t	token_number;	/* of this token, or of this lack of one */
} Endpoint;

/* The number of an endpoint in a list by its URL; -1 if it is not there. */
static inline int
etcd_find_endpoint(const Endpoint *endpoints, int n, const char *url)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(endpoints[i].url, url) == 0)
			return i;
	}
	return -1;
}

extern void etcd_endpoints_free(EtcdClient *client);

/* From now on everything goes to that endpoint; all watch streams end. */
extern void etcd_endpoints_use(EtcdClient *client, int endpoint, const char *why);

/* Goes on to the next endpoint that may be used, if this one is in use. */
extern void etcd_endpoints_leave(EtcdClient *client, int endpoint, const char *why);

/* Those of new settings.  False if memory is out: then nothing has changed. */
extern bool etcd_endpoints_configure(EtcdClient *client, const EtcdClientSettings *settings);

/*
 * Asks the endpoints for their cluster and its members, and for a token, if it
 * is time to.
 */
extern void etcd_endpoints_probe(EtcdClient *client);

/* Asks all endpoints, if it is not known which cluster may be used. */
extern void etcd_endpoints_identify(EtcdClient *client);

/*
 * Leaves an endpoint of another cluster, and asks those again that have failed.
 */
extern int64_t etcd_endpoints_due_ns(const EtcdClient *client);
extern void etcd_endpoints_run(EtcdClient *client);

/* ---- etcd_clusters.c ------------------------------------------------- */

/* May that cluster be used? */
extern bool etcd_cluster_is_usable(const EtcdClient *client, uint64_t cluster_id);

/* Is it known which cluster may be used? */
extern bool etcd_cluster_is_known(const EtcdClient *client);

/*
 * The first endpoint, beginning with that one, that is not foreign; that one if
 * all are.
 */
extern int	etcd_find_usable_endpoint(const EtcdClient *client, int first);

/* Says why the cluster that an endpoint belongs to is not used. */
extern void etcd_cluster_describe(const EtcdClient *client, const char *url, uint64_t cluster_id,
								  char *message);

/* An endpoint has told its cluster. */
extern void etcd_cluster_note(EtcdClient *client, Endpoint *endpoint, uint64_t cluster_id);

/*
 * All endpoints are asked for their cluster soon: another one is in use, or one
 * has told another cluster than before.  So the members that were rebuilt as
 * another cluster are noticed together.
 */
extern void etcd_cluster_look_soon(EtcdClient *client);

/* A list of members was told. */
extern void etcd_cluster_learn_members(EtcdClient *client, const EtcdAnswer *answer);

/* ---- etcd_request.c -------------------------------------------------- */

/*
 * A request is sent to one endpoint, or to two: each is an Attempt.  The head
 * of etcd_request.c has the table of its states.
 */
typedef enum AttemptState
{
	ATTEMPT_NONE,				/* there was no need for it so far */
	ATTEMPT_SENT,				/* under way */
	ATTEMPT_PARKED,				/* etcd wants a token: it waits for one */
	ATTEMPT_SENT_AGAIN,			/* under way with that token */
	ATTEMPT_DENIED,				/* it got no token */
	ATTEMPT_FAILED,				/* the endpoint is to blame */
	ATTEMPT_ANSWERED,			/* it decided the result of the request */
	ATTEMPT_DROPPED				/* the other attempt did */
} AttemptState;

#define ATTEMPT_NSTATES		(ATTEMPT_DROPPED + 1)

typedef struct Attempt
{
	AttemptState state;
	Call	   *call;			/* NULL: there is none, as of PARKED and DENIED */
	char	   *url;			/* of the endpoint */
	uint64_t	token_number;	/* the token of the endpoint when it was sent */
	int64_t		sent_ns;		/* for the first time */
	int64_t		deadline_ns;	/* SENT, PARKED, SENT_AGAIN */
	struct
	{
		EtcdOutcome outcome;
		int			code;
		bool		timed_out;
		char		message[ETCD_MESSAGE_SIZE];
	}			denial;			/* DENIED: why */
} Attempt;

#define MAX_ATTEMPTS	2

typedef struct PendingRequest PendingRequest;
typedef struct Report Report;

/* Acts on a report about a request: GOES_ON or ENDED. */
typedef void (*RequestReceiver) (EtcdClient *client, const Report *report);

struct PendingRequest
{
	PendingRequest *next;
	RequestReceiver receive;
	EtcdReceiver caller;		/* of a request of the caller, and its id */
	uint64_t	id;
	EtcdRequest *message;
	char	   *key;			/* the first one in it; may be NULL */
	bool		may_be_doubled; /* it may be sent to a second endpoint */
	bool		any_cluster;	/* the caller gets the answer of any cluster */
	bool		is_large;		/* its answer may be */
	uint64_t	settings_number;	/* when it was made */
	long		timeout_ms;
	long		connect_timeout_ms;
	int64_t		made_ns;
	Attempt		attempts[MAX_ATTEMPTS];
};

typedef enum ReportKind
{
	REPORT_WANTS_TOKEN,			/* the attempt is parked: its endpoint's token is wanted */
	REPORT_GOES_ON,				/* the attempt failed, the other one is open */
	REPORT_ENDED				/* the attempt decided the result of the request */
} ReportKind;

/* What has come of an attempt. */
struct Report
{
	ReportKind	kind;
	PendingRequest *request;
	const Attempt *attempt;
	const Attempt *late;		/* ENDED: the first one, if the second one was faster */
	bool		blames_endpoint;
	EtcdAnswer	answer;			/* its endpoint is that of the attempt */
	EtcdTiming	timing;
};

/* For etcd_request_send(): the one in use, when it is known which cluster may be used. */
#define ENDPOINT_IN_USE		(-1)

/* Sends a request to an endpoint.  NULL if memory is out. */
extern PendingRequest *etcd_request_send(EtcdClient *client, int endpoint, const EtcdRequest *request,
								  RequestReceiver receive);

/* Is such a request under way, made with the settings in force? */
extern bool etcd_request_is_asking(const EtcdClient *client, int endpoint, RequestReceiver receive);

/* The number of an attempt's endpoint; -1: it is not in the list any more. */
extern int	etcd_request_endpoint(const EtcdClient *client, const Attempt *attempt);

/*
 * An endpoint has another token, or needs none: sends the requests again that
 * wait for it.
 */
extern void etcd_request_send_parked(EtcdClient *client, int endpoint);

/* There is no token: requests that wait for one fail with this reason. */
extern void etcd_request_deny_parked(EtcdClient *client, int endpoint, EtcdOutcome outcome,
									 int code, const char *why);

/* Gives everything that is under way a deadline no later than this. */
extern void etcd_request_hurry(EtcdClient *client, int64_t deadline_ns);

/* When etcd_request_run() and _next() are due; INT64_MAX: no time is known. */
extern int64_t etcd_request_due_ns(const EtcdClient *client);

/*
 * Ends attempts that take too long, and sends late requests to a second
 * endpoint.
 */
extern void etcd_request_run(EtcdClient *client);

/*
 * Takes what has come of an attempt; false if there is nothing.
 * etcd_request_done() must follow.  A request that has ended is not in the
 * list any more, and is freed by it.
 */
extern bool etcd_request_next(EtcdClient *client, Report *report);
extern void etcd_request_done(EtcdClient *client, Report *report);

extern void etcd_request_free(EtcdClient *client);

/* ---- etcd_auth.c ----------------------------------------------------- */

typedef struct Auth
{
	uint64_t	ntokens;		/* how many answers about tokens there were */
	int64_t		rejected_ns;	/* when the password was rejected; 0: it was not */
	struct stat rejected_file;	/* the file that it was in */
	char		rejection[ETCD_MESSAGE_SIZE];
} Auth;

/*
 * Requests a token of the endpoint, unless that is under way.  False if that
 * is not possible; then `why` is set.
 */
extern bool etcd_auth_ask(EtcdClient *client, int endpoint, char *why);

/* New settings; same_user: with the user name of those before. */
extern void etcd_auth_configure(EtcdClient *client, bool same_user);

/* ---- etcd_watch.c ---------------------------------------------------- */

/* All streams are on the endpoint in use: when that changes, they end. */
typedef struct Stream
{
	Call	   *call;			/* NULL: the stream is not open */
	int64_t		deadline_ns;	/* to connect; then for the first frame; INT64_MAX: it has come */
	bool		has_connected;
	int			ncreations;		/* frames that may still tell that a watch was created */
	int			nidle;			/* frames of a second that told nothing */
	int64_t		counts_since_ns;
	bool		has_delivered;		/* frames were passed on since it rested last */
	int64_t		rests_until_ns; /* it is not read before; INT64_MAX: it is read */
	bool		end_due;		/* watch_ended() has to be called */
	EtcdOutcome end_outcome;
	char		end_why[ETCD_MESSAGE_SIZE];
} Stream;

/* How many connections stay open.  To be called at the beginning. */
extern void etcd_watch_keep_connections(EtcdClient *client);

/* Ends all streams that are open; watch_ended() is called later. */
extern void etcd_watch_end_all(EtcdClient *client, const char *why);

extern int64_t etcd_watch_due_ns(const EtcdClient *client);
extern void etcd_watch_run(EtcdClient *client);
/* True if the stream has ended, and that is the fault of its endpoint. */
extern bool etcd_watch_deliver_frames(EtcdClient *client, int stream);
extern void etcd_watch_deliver_ends(EtcdClient *client);
extern void etcd_watch_free(EtcdClient *client);

/* ---- etcd_answers.c -------------------------------------------------- */

/* A request that could not be made. */
typedef struct Unsent
{
	EtcdReceiver caller;
	uint64_t	id;
	const char *why;
} Unsent;

/* More than the caller ever has under way at one time. */
#define MAX_UNSENT		1024

/* Makes the callbacks for requests that were not sent, and for answers. */
extern void etcd_answers_deliver(EtcdClient *client);

/* ---- etcd_client.c --------------------------------------------------- */

struct EtcdClient
{
	EtcdClientCallbacks callbacks;
	uint64_t	turn;			/* counts the calls of etcd_client_process() */
	bool		is_running;		/* such a call is under way, or an ERROR has left it */
	Settings	settings;
	Http		http;
	Grpc		grpc;
	Call	   *calls;

	Endpoint   *endpoints;		/* those of the settings first */
	int			nendpoints;
	int			endpoint;		/* in use */
	uint64_t	kept_cluster_id;	/* see etcd_client_keep_cluster() */
	int64_t		probe_due_ns;	/* see etcd_endpoints_probe() */
	int64_t		look_due_ns;	/* see etcd_cluster_look_soon(); 0: not */
	int64_t		looked_ns;
	char		announced[ETCD_MESSAGE_SIZE];	/* the URLs of the members, for people */

	Auth		auth;

	PendingRequest *requests;		/* that are not answered yet; oldest first */
	PendingRequest *reported;		/* has ended, and the caller is called back */
	Unsent		unsent[MAX_UNSENT];
	int			nunsent;

	Stream		streams[ETCD_CLIENT_STREAMS];
};

#endif							/* ETCD_CLIENT_INTERNAL_H */
