/*-------------------------------------------------------------------------
 *
 * transport.h
 *	  Used by every part of the simulation of the transport: the conditions
 *	  of a run, the pipes, the server, and what is known of requests and revisions.
 *
 * transport_sim.c		the caller of the client, the checker, the run
 * transport_server.c	etcd's gRPC server, on sessions of nghttp2
 * transport_proto.c	etcd's messages as the server reads and writes them
 * transport_http.c		the functions of etcd/http.c, on pipes in the place of sockets
 * transport_pipes.c	the pipes, and what goes wrong in them
 *
 *-------------------------------------------------------------------------
 */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include "etcd/client.h"
#include "sim.h"

#define MAX_ENDPOINTS	2
#define NPREFIXES		3
#define MAX_REQUESTS	6000
#define MAX_REVISIONS	20000

/* The leases of requests that have one of their own: this and their number. */
#define OWN_LEASE		1000

/* ---- the conditions of a run --------------------------------------------------- */

/* What the server does with a request. */
typedef enum Fate
{
	FATE_ANSWER,
	FATE_REFUSE,				/* not executed; a status says why */
	FATE_FAIL,					/* executed, but a status says otherwise */
	FATE_REFUSE_STREAM,			/* not executed; RST_STREAM with REFUSED_STREAM */
	FATE_RESET,					/* executed or not; RST_STREAM with another code */
	FATE_NO_TRAILERS,			/* executed; END_STREAM in the place of the status */
	FATE_CUT,					/* the same, in the middle of the message */
	FATE_NO_MESSAGE,			/* executed; success, without a message */
	FATE_GARBAGE,				/* executed; what comes is no message */
	FATE_PAGE,					/* executed or not; a page for people, as of a proxy */
	FATE_SILENCE,				/* executed or not; nothing comes */
	FATE_NO_TOKEN,				/* not executed, as its token is not valid; never drawn */
	NFATES
} Fate;

#define FATE_BIT(fate)	(1u << (fate))

typedef enum Trouble
{
	TROUBLE_NONE,
	TROUBLE_BREAKS,				/* connections break at any byte, or are not made */
	TROUBLE_SILENCE,			/* bytes are held up, or never arrive any more */
	TROUBLE_GOAWAY,				/* servers leave their connections */
	TROUBLE_ENDS,				/* streams end in all the wrong ways */
	TROUBLE_WINDOWS,			/* much data, small windows, slow pipes */
	TROUBLE_WATCHES,			/* watches are replaced all the time */
	TROUBLE_NOISE,				/* bytes are dropped or changed on the way */
	TROUBLE_ALL,				/* all but noise */
	NTROUBLES
} Trouble;

/* Rates are of 10,000, and of faults in a tenth of a second. */
typedef struct Conditions
{
	Trouble		trouble;
	int			nendpoints;
	long		request_timeout_ms;
	long		connect_timeout_ms;
	int			requests;		/* in a tenth of a second */

	/* pipes */
	int64_t		delay_ns;
	int64_t		byte_ns;
	size_t		room;			/* so many bytes are on their way */
	int			parts;			/* of 10,000 reads and writes; they move some of the bytes */
	int			breaks;			/* of 10,000 connections; at some byte */
	int			unmade;			/* of 10,000 connections */
	bool		is_alone;		/* the first endpoint; the other one has never been started */
	int			stalls;
	int			deaths;
	int			noise;			/* of 10,000 writes */

	/* servers */
	int			fates[NFATES];	/* of 10,000 requests */
	bool		has_users;		/* etcd wants tokens */
	int			invalidations;	/* of all tokens */
	int			watch_ends;
	int			watch_cancels;
	int			goaways;
	int			floods;			/* a server sends frames without end on a connection */
	int			pings;
	int			late;			/* of 10,000 requests; they are executed after seconds */
	int			small_frames;	/* of 10,000 DATA frames */
	int			padding;
	int			late_events;	/* of 10,000 cancels of a watch */
	uint32_t	upload_window;
	uint32_t	max_streams;

	/* the caller */
	int			large;			/* of 10,000 requests; their answers may be */
	int			too_large;		/* of 10,000 requests; their answers are */
	int64_t		value_size;		/* the largest of a common answer or change */
	int			rewatches;
	int			closes;			/* of 10,000 frames; the stream is closed when they are told */
	int			reloads;
} Conditions;

extern Conditions conditions;

/* The faults are over: all that begins now goes well. */
extern bool healed;

/* A rule is broken, which noise may have done. */
#define fail_rule(...) \
	do { \
		if (conditions.trouble != TROUBLE_NOISE) \
			fail_run(__VA_ARGS__); \
	} while (0)

/* ---- what is known ------------------------------------------------------- */

/* A request of the caller. */
typedef struct Asked
{
	EtcdRequestKind kind;
	bool		writes;
	int64_t		lease;
	int64_t		size;			/* of the value that it asks for, and of the one it puts */
	int64_t		made_ns;
	int64_t		latest_ns;
	bool		must_succeed;
	bool		has_ended;
	int			nexecuted;
	unsigned	fates;			/* bits: what servers have done with it */
	bool		must_not_run;	/* it was said that it was not executed */
} Asked;

extern Asked asked[MAX_REQUESTS];	/* from 1 */
extern int	nasked;

/* What has happened at a revision.  Each execution has one of its own, also of a read. */
typedef struct Revision
{
	int			request;		/* its number; 0: unknown, or none */
	EtcdRequestKind kind;
	int64_t		lease;
	int64_t		when_ns;
	bool		is_change;
	int			prefix;
	int64_t		size;			/* of the value */
	bool		was_received;
} Revision;

extern Revision history[MAX_REVISIONS];
extern int64_t revision;

extern int64_t history_add(EtcdRequestKind kind, int request, int64_t lease);
extern int64_t next_change(int prefix, int64_t after);

/* The watches that the caller has ever asked for, by number. */
#define MAX_INCARNATIONS	4000

typedef struct Incarnation
{
	int			stream;
	int			prefix;
	int64_t		start_revision;
	int64_t		last_revision;	/* told to the caller */
	int64_t		made_ns;
	bool		is_open;
	bool		created;
	bool		canceled_by_server;
} Incarnation;

extern Incarnation incarnations[MAX_INCARNATIONS];
extern int	nincarnations;
extern int	refused_creates;	/* that no frame has told yet */

/* When a watch, or a request of the client's own, had each fate last; -NEVER: never. */
extern int64_t stray_fates_ns[NFATES];

/* The bytes of a value depend on whose it is. */
#define MAX_VALUE_SIZE	(2 * 1024 * 1024)

extern const char *value_of(int64_t owner);

/* ---- pipes --------------------------------------------------------------- */

typedef struct Bytes
{
	char	   *data;
	size_t		start;
	size_t		end;
	size_t		size;
} Bytes;

extern void bytes_add(Bytes *bytes, const void *data, size_t len);
extern void bytes_take(Bytes *bytes, size_t n);
extern void bytes_free(Bytes *bytes);

static inline size_t
bytes_left(const Bytes *bytes)
{
	return bytes->end - bytes->start;
}

typedef struct Link Link;

/* One direction of a connection. */
typedef struct Pipe
{
	Link	   *link;
	Bytes		bytes;			/* on their way, and arrived */
	size_t		arrived;
	int64_t		last_arrival_ns;
	int64_t		held_until_ns;
	uint64_t	written;		/* in all */
	uint64_t	narrived;
	uint64_t	read;
	uint64_t	breaks_at;		/* the connection breaks at that byte */
	bool		is_closed;		/* nothing is written any more */
	bool		is_over;		/* after the arrived bytes comes the end */
} Pipe;

/* What the client has sent, as frames. */
typedef struct Wire
{
	size_t		preface;
	unsigned char header[9];
	size_t		nheader;
	size_t		payload;		/* bytes of it to come */
	int32_t		last_stream;
	int64_t		pinged_ns;		/* 0: never */
} Wire;

/* A connection. */
struct Link
{
	Link	   *next;
	int			number;			/* from 1: what the client takes for its socket */
	int			endpoint;
	int			use;			/* see Destination */
	Pipe		up;				/* to the server */
	Pipe		down;
	Wire		wire;
	bool		is_sick;		/* bytes were lost in it */
	uint64_t	goaway_at;		/* that byte of the server's completes a GOAWAY */
	int64_t		goaway_read_ns; /* when the client has read it; NEVER */
	bool		floods;			/* frames without end follow the bytes of the pipe */
	int64_t		flooded_since_ns;	/* the client has read some of them; NEVER */
	uint64_t	turn;			/* the client's last turn in which it has read, and how much */
	size_t		turn_size;
	void	   *exchange;		/* of the client; NULL: released */
	void	   *session;		/* of the server */
};

extern Link *links;
extern int64_t goaway_read_ns;	/* the last time that the client has read one; -1: never */

extern Link *link_create(int endpoint, int use);
extern void links_free(void);

/* Returns how many bytes were taken; the writer is told when there is room again. */
extern size_t pipe_write(Pipe *pipe, const char *data, size_t len);

/* Reads what has arrived. */
extern size_t pipe_read(Pipe *pipe, char *buffer, size_t size);

/* No more is written; the reader gets what is on its way, and the end. */
extern void pipe_close(Pipe *pipe);

/* All that is on its way is lost. */
extern void link_break(Link *link);

/* A fault of a random connection. */
extern void link_hold(void);
extern void link_kill(void);

/* transport_http.c: something has happened at the client's end of a link. */
extern void client_notified(Link *link);
extern void client_link_made(Link *link, bool good);

/* transport_sim.c: the client has something to do. */
extern void client_wake(int64_t delay_ns);

/* The number of the client's turns. */
extern uint64_t nclient_turns;

/* ---- the server ---------------------------------------------------------- */

extern void servers_reset(void);
extern void server_accept(Link *link);
extern void server_notified(Link *link);
extern void servers_tick(void);
extern void servers_check_rest(void);
extern void servers_free(void);

#define USERNAME	"elector"
#define PASSWORD	"secret"

/* What a request of the client says. */
typedef struct Wanted
{
	EtcdRequestKind kind;
	int			request;		/* 0: unknown */
	int64_t		lease;
	int64_t		size;
	bool		writes;
} Wanted;

/* What a request on a watch stream says. */
typedef struct WantedWatch
{
	bool		is_cancel;
	int64_t		number;
	int			incarnation;
	int64_t		start_revision;
} WantedWatch;

/* transport_proto.c: false: it is no such message. */
extern bool read_request(const char *path, const char *data, size_t len, Wanted *wanted);
extern bool read_watch_request(const char *data, size_t len, WantedWatch *wanted);

/* A message, with its prefix. */
extern void write_answer(Bytes *out, const Wanted *wanted, int endpoint, int64_t answer_revision);

/* Tokens are those of a member. */
extern int	ntokens;
extern void format_token(char *token, size_t size, int endpoint, int number);

typedef struct WatchReply
{
	int64_t		number;
	int			incarnation;
	bool		created;
	bool		canceled;
	const char *reason;			/* NULL: none */
	int64_t		compact_revision;
	int64_t		revisions[8];	/* of the changes */
	int			nrevisions;
} WatchReply;

extern void write_watch_reply(Bytes *out, const WatchReply *reply, int endpoint);

/* What rare things the seeds must reach. */
#define REACHED(SEEN) \
	SEEN(REACHED_REFUSED_STREAM, "a request whose stream was refused") \
	SEEN(REACHED_BEYOND_GOAWAY, "a stream that a GOAWAY leaves out") \
	SEEN(REACHED_GOAWAY_WATCH, "a watch stream on a connection that goes away") \
	SEEN(REACHED_NO_STATUS, "a request whose stream ended without a status") \
	SEEN(REACHED_PAGE, "an answer that is not of gRPC") \
	SEEN(REACHED_GARBAGE, "a message that cannot be read") \
	SEEN(REACHED_REFUSAL, "a request that was refused by a status") \
	SEEN(REACHED_TIMEOUT, "a request that timed out") \
	SEEN(REACHED_UNSENT, "a request for which no connection was made") \
	SEEN(REACHED_CLOSED, "a request whose connection broke") \
	SEEN(REACHED_TOKEN_REFUSED, "a request that is refused with its second token") \
	SEEN(REACHED_SENT_AGAIN, "a write that is executed after its token was refused") \
	SEEN(REACHED_WATCH_TOKEN, "a watch whose token is refused") \
	SEEN(REACHED_TOO_LARGE, "an answer that is too large") \
	SEEN(REACHED_MAYBE, "a write without an answer that was executed") \
	SEEN(REACHED_NOT_RUN, "a write without an answer that was not executed") \
	SEEN(REACHED_LATE_RUN, "a write that was executed after the client had given it up") \
	SEEN(REACHED_SECOND, "a read that was executed by two members") \
	SEEN(REACHED_REUSED, "a keepalive on a stream that had one before") \
	SEEN(REACHED_RESET, "a stream that the client resets") \
	SEEN(REACHED_LATE_EVENT, "an event of a watch after its cancel") \
	SEEN(REACHED_WATCH_KEPT, "watches that are replaced on an open stream") \
	SEEN(REACHED_WATCH_REFUSED, "a watch that is refused") \
	SEEN(REACHED_FULL_WINDOW, "a stream whose window is full") \
	SEEN(REACHED_FULL_CONNECTION, "a connection with less than half of its window") \
	SEEN(REACHED_FULL_PIPE, "a pipe that takes no more of the client's bytes") \
	SEEN(REACHED_QUEUED, "a stream that waits until another one has ended") \
	SEEN(REACHED_CLIENT_PING, "a PING of the client") \
	SEEN(REACHED_SERVER_PING, "a PING of the server that is answered") \
	SEEN(REACHED_FLOOD, "a request on a connection that is flooded") \
	SEEN(REACHED_NO_MAJORITY, "an answer while the cluster of half of the endpoints is known") \
	SEEN(REACHED_LEFT_ALONE, "a request to an endpoint that has flooded one") \
	SEEN(REACHED_VIOLATION, "a client that finds a violation of HTTP/2")

#define REACHED_NAME(name, text) name,
typedef enum Reached
{
	REACHED(REACHED_NAME)
	NREACHED
} Reached;

extern void reach(Reached what);

#endif							/* TRANSPORT_H */
