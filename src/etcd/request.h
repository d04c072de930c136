/*-------------------------------------------------------------------------
 *
 * request.h
 *	  The life of a request: where it is sent, and how it ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_REQUEST_H
#define ETCD_REQUEST_H

#include "client.h"

/*
 * A request is sent to one endpoint, or to two: each is an Attempt.  The head
 * of request.c has the table of its states.
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
	struct Call *call;			/* NULL: there is none, as of PARKED and DENIED */
	char	   *url;			/* of the endpoint */
	uint64_t	token_number;	/* the token of the endpoint when it was sent */
	bool		was_connected;	/* there was a connection for it, and it was sent */
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
	bool		is_large;		/* its answer may be */
	bool		is_probe;		/* see etcd_client_is_probing() */
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
	EtcdAnswer	answer;			/* its endpoint is the attempt's */
	EtcdTiming	timing;
};

/* For etcd_request_send(): the one in use, when it is known which cluster may be used. */
#define ENDPOINT_IN_USE		(-1)

/* Sends a request to an endpoint.  NULL if memory is out. */
extern PendingRequest *etcd_request_send(EtcdClient *client, int endpoint,
										 const EtcdRequest *request,
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

#endif							/* ETCD_REQUEST_H */
