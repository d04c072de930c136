/*-------------------------------------------------------------------------
 *
 * client.h
 *	  Transport: etcd's messages over HTTP, by libcurl, without blocking.
 *
 * One EtcdClient talks to one etcd cluster through one endpoint at a time.
 * Answers and frames of another cluster are not passed on: such a request ends
 * with NO_ANSWER.
 * It owns no event loop: the caller waits on its sockets and its timeout, and
 * then calls etcd_client_socket_ready() and etcd_client_process().  Callbacks
 * are made from etcd_client_process() and etcd_client_run_until() alone, never
 * from a libcurl callback and never from the function that sends; they may
 * call any function here but those two and etcd_client_free().
 *
 * A failure is an EtcdAnswer, never an ereport: this file knows nothing of
 * PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CLIENT_H
#define ETCD_CLIENT_H

#include "api.h"

typedef struct EtcdClient EtcdClient;

/* How a unary request went, beside its answer. */
typedef struct EtcdTiming
{
	int64_t		latency_ns;		/* from sending to the answer or failure */
	bool		timed_out;
	bool		explained;		/* the message is in words for an administrator */
	bool		endpoint_gone;	/* the settings have no such endpoint any more */
	const char *key;			/* the first one in the request; NULL: none */
} EtcdTiming;

/*
 * Takes the answer to the request with that id of the caller's, which is freed
 * afterwards.  ctx is EtcdClientCallbacks.ctx.
 */
typedef void (*EtcdReceiver) (void *ctx, uint64_t id, const EtcdAnswer *answer,
							  const EtcdTiming *timing);

typedef struct EtcdClientCallbacks
{
	/* ANSWERED frames alone; any other one is the end of its stream */
	void		(*watched) (void *ctx, int stream, const EtcdWatchFrame *frame);
	/*
	 * once for a stream that was not closed by the caller; GARBAGE: something
	 * came that cannot be read, or is too large; why: for people
	 */
	void		(*watch_ended) (void *ctx, int stream, EtcdOutcome outcome, const char *why);
	/*
	 * a request of etcd_client_send() goes on at another endpoint: the first one
	 * has failed, or is late
	 */
	void		(*noticed) (void *ctx, const char *why);
	/* members were learned of, or forgotten: another number of endpoints */
	void		(*endpoints_changed) (void *ctx);
	void	   *ctx;
} EtcdClientCallbacks;

/* The maximum number of endpoints: those of the settings, and those learned from the cluster. */
#define ETCD_CLIENT_MAX_ENDPOINTS	32

#define ETCD_CLIENT_MAX_URL_LEN		255

/*
 * Watch streams, numbered from 0: each has its own connection.  Frames of a
 * stream with a lower number are passed on first.  Those of stream 0 come
 * before the answers to requests.  The other streams are read at most every
 * 5 ms.
 */
#define ETCD_CLIENT_STREAMS			2

/*
 * All strings are copied; where they may be missing, NULL and empty are the
 * same.  Of the files only their names are kept: the files of TLS are read for
 * each new connection, the file of the password when a token is needed.
 */
typedef struct EtcdClientSettings
{
	/*
	 * http://host:port or https://..., without a path, or
	 * unix:///path/of/socket, unixs:///path/of/socket.  Two spellings of one
	 * are one endpoint.
	 */
	const char *const *endpoints;
	int			nendpoints;		/* at least 1 */
	long		request_timeout_ms; /* of a unary request, connecting included */
	long		connect_timeout_ms;
	long		probe_interval_ms;	/* how often each endpoint is asked for its status;
									 * 0: the client's default */

	const char *ca_file;		/* or else the authorities of the system */
	const char *cert_file;		/* of the client, or none */
	const char *key_file;
	bool		tls_1_3;		/* at least; else TLS 1.2 */
	const char *server_name;	/* that all certificates must have, or else the
								 * host in the URL */

	const char *username;		/* or none */
	const char *password_file;	/* see secret_file.h */

	EtcdDialect dialect;

	uint64_t	cluster_id;		/* the only one that may be used; 0: see clusters.c */
} EtcdClientSettings;

/* What is known of an endpoint. */
typedef struct EtcdEndpointState
{
	uint64_t	cluster_id;		/* in its last answer; 0: unknown */
	bool		down;			/* it has failed twice, some seconds apart */
	/* of the last failure; empty: a request like that has succeeded since */
	char		error[ETCD_MESSAGE_SIZE];

	/*
	 * Why the newest connection failed that was tried with the settings in force; empty:
	 * it worked.  Meanwhile an older connection may still serve.  New settings
	 * leave it as it is until a connection was tried with them.
	 */
	char		connect_error[ETCD_MESSAGE_SIZE];
	int64_t		tried_ns;		/* when it was asked last for its members or its status; 0: never */
	int64_t		answered_ns;	/* when it answered last, with success; 0: never */
	int64_t		latency_ns;		/* of that answer */
	/* of the member that answered, for people; empty: not known */
	char		version[ETCD_MESSAGE_SIZE];
	char		member_name[ETCD_MESSAGE_SIZE];
	/* in its last status: what it complains of, such as an alarm; empty: nothing */
	char		alarms[ETCD_MESSAGE_SIZE];
	bool		is_learner;
} EtcdEndpointState;

typedef enum EtcdSocketEvents
{
	ETCD_SOCKET_READABLE = 1,
	ETCD_SOCKET_WRITEABLE = 2,
	ETCD_SOCKET_ERROR = 4		/* as a result only */
} EtcdSocketEvents;

typedef struct EtcdSocket
{
	int			fd;
	int			events;			/* to wait for, of EtcdSocketEvents */
} EtcdSocket;

/*
 * curl_global_init() is done here, so this must be the first use of libcurl
 * in the process, and must not happen in the postmaster.  The process must
 * ignore SIGPIPE.  NULL if memory is out.  Without settings nothing can be
 * sent.
 */
extern EtcdClient *etcd_client_create(const EtcdClientCallbacks *callbacks);

/*
 * Closes everything, without callbacks.  Does not wait for a hung resolver,
 * whose thread goes on by itself.
 */
extern void etcd_client_free(EtcdClient *client);

/*
 * New settings, in force for all that is sent from now on.  Connections that
 * are open stay so; a new one is made beside them, so that files that cannot
 * be used are noticed now (connect_error).  The endpoint in use is kept, with the watch streams
 * on it, if it is still in the list; else the first one is taken, and the watch
 * streams end (watch_ended).  If memory is out, the settings stay as they are.
 */
extern void etcd_client_configure(EtcdClient *client, const EtcdClientSettings *settings);

/*
 * Sends a request to the endpoint in use.  receive() will be called for it
 * exactly once, within twice the request timeout (of a large one: at
 * least 5 s), with any kind of outcome: a
 * request that only reads may be sent to a second endpoint when half of its
 * time is over, and a request that etcd refuses because it has no valid token
 * is sent again with one.  Before it is known which cluster may be used, it
 * waits until the endpoints have told theirs, or have failed.  When the outcome
 * blames the endpoint, the next one is in use by then, and the watch streams
 * end (watch_ended); a single endpoint keeps them.
 */
extern void etcd_client_send(EtcdClient *client, EtcdReceiver receive, uint64_t id,
							 const EtcdRequest *request);

/*
 * Replaces a watch stream, if it is open, by one with these watches on the
 * endpoint in use; with none, closes it.  No callback is made for the old
 * stream afterwards.  The other streams stay as they are.
 */
extern void etcd_client_watch(EtcdClient *client, int stream, const EtcdWatch *watches,
							  int nwatches);

/*
 * Goes on to the next endpoint if `endpoint` is the one in use.  The watch
 * streams that are open end (watch_ended), since they may be silent for ever.
 */
extern void etcd_client_change_endpoint(EtcdClient *client, int endpoint);

/*
 * Tries anew all that may be wrong with the set-up: each endpoint by a new connection, and
 * then its status; and the user, whose password is read again.  What is wrong by then shows
 * in the state of the endpoints and in etcd_client_user_error(), when the tries have ended.
 * Each of them ends within twice the request timeout.
 */
extern void etcd_client_probe(EtcdClient *client);
extern bool etcd_client_is_probing(const EtcdClient *client);

/*
 * How many endpoints there are: those of the settings, and the learned ones.
 */
extern int	etcd_client_endpoint_count(const EtcdClient *client);

/* The endpoint in use: its number, and its URL as configured. */
extern int	etcd_client_endpoint(const EtcdClient *client);
extern const char *etcd_client_endpoint_url(const EtcdClient *client, int endpoint);

/* Is it an endpoint of the settings, or from DNS, and not a learned one? */
extern bool etcd_client_endpoint_is_configured(const EtcdClient *client, int endpoint);

extern const EtcdEndpointState *etcd_client_endpoint_state(const EtcdClient *client, int endpoint);

/*
 * Why etcd's user has no valid password, in words for an administrator; empty: etcd
 * has given it a token, or none was asked for.  Older tokens may still be good.  New
 * settings leave it as it is until a token was asked for with them.
 */
extern const char *etcd_client_user_error(const EtcdClient *client);

/* When its certificate expires, in Unix time; 0: it has none, or none is known. */
extern int64_t etcd_client_certificate_end_s(EtcdClient *client, int endpoint);

/*
 * The endpoints that are not used because they belong to another etcd cluster,
 * a bit each.  Why one is not, in a buffer of ETCD_MESSAGE_SIZE.
 */
extern uint32_t etcd_client_foreign_endpoints(const EtcdClient *client);
extern void etcd_client_describe_foreign(const EtcdClient *client, int endpoint, char *message);

/*
 * The cluster that the caller's state is about; 0: none.  It is used until the
 * endpoints belong to another cluster.
 */
extern void etcd_client_keep_cluster(EtcdClient *client, uint64_t cluster_id);

/*
 * The cluster that may be used; 0: none is known.  Is it awaited: may an
 * endpoint that was asked still tell?
 */
extern uint64_t etcd_client_usable_cluster(const EtcdClient *client);
extern bool etcd_client_awaits_cluster(const EtcdClient *client);

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE, as a hint, that no member of the cluster
 * announces an endpoint of the settings, and which URLs they announce.  False: one
 * does, or it is not known, or there is a proxy in between.
 */
extern bool etcd_client_describe_unannounced(const EtcdClient *client, int endpoint, char *message);

/* Forgets the clusters of the endpoints, and asks the endpoints anew. */
extern void etcd_client_forget_clusters(EtcdClient *client);

/* The dialect of the settings; UNKNOWN before there are settings. */
extern EtcdDialect etcd_client_dialect(const EtcdClient *client);

/*
 * The sockets to wait on; *changes is a number that differs whenever the set
 * may differ from what an earlier call gave (a closed and reopened fd
 * included), so a wait set is rebuilt only then.
 */
extern const EtcdSocket *etcd_client_sockets(const EtcdClient *client, int *nsockets,
											 uint64_t *changes);

/* Milliseconds until etcd_client_process() is due; -1: not before a socket is ready. */
extern long etcd_client_timeout_ms(const EtcdClient *client);

/* A socket has events (of EtcdSocketEvents). */
extern void etcd_client_socket_ready(EtcdClient *client, int fd, int events);

/*
 * Does the work that is due, and calls back for requests that have ended and
 * frames that have arrived.  Of what a server sends without end, it reads a
 * part.
 *
 * If an ERROR leaves a callback, the caller is in the middle of something.  So
 * the client makes no callback any more, and this function and
 * etcd_client_run_until() do nothing.  It may be freed.
 */
extern void etcd_client_process(EtcdClient *client);

/*
 * For the end of the process: runs the client by itself until done(ctx) is
 * true or the time is up, making callbacks as etcd_client_process() does.
 */
extern void etcd_client_run_until(EtcdClient *client, long timeout_ms,
							  bool (*done) (void *ctx), void *ctx);

#endif							/* ETCD_CLIENT_H */
