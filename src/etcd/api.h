/*-------------------------------------------------------------------------
 *
 * api.h
 *	  etcd's v3 messages, to and from the JSON of its HTTP gateway, and to and
 *	  from the protobuf of gRPC.
 *
 * Pure: no I/O, no clock, no postgres.h.  The same object is linked into the
 * extension, into the unit tests and into whatever drives the protocol without
 * a network.  Memory is malloc'd, and failures are returned, so that an answer
 * can be decoded where no ERROR may be raised.
 *
 * The messages are those of etcd's api/etcdserverpb/rpc.proto, the JSON is
 * grpc-gateway's: int64 are strings, bytes are base64, fields that are zero
 * are left out.  Two dialects of errors are understood, those of
 * grpc-gateway v1 (etcd 3.4, 3.5) and v2 (etcd 3.6 and Debian's 3.5).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_API_H
#define ETCD_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The gRPC status codes of etcd that are used here. */
typedef enum EtcdCode
{
	ETCD_CODE_OK = 0,
	ETCD_CODE_UNKNOWN = 2,
	ETCD_CODE_INVALID_ARGUMENT = 3,
	ETCD_CODE_DEADLINE_EXCEEDED = 4,
	ETCD_CODE_NOT_FOUND = 5,
	ETCD_CODE_ALREADY_EXISTS = 6,
	ETCD_CODE_PERMISSION_DENIED = 7,
	ETCD_CODE_RESOURCE_EXHAUSTED = 8,
	ETCD_CODE_FAILED_PRECONDITION = 9,
	ETCD_CODE_OUT_OF_RANGE = 11,	/* "required revision has been compacted" */
	ETCD_CODE_UNAVAILABLE = 14,
	ETCD_CODE_UNAUTHENTICATED = 16
} EtcdCode;

/* A key, or the end of a range of keys: bytes, not owned. */
typedef struct EtcdBytes
{
	const char *data;
	size_t		len;
} EtcdBytes;

/* ---- requests -------------------------------------------------------- */

typedef enum EtcdCompareTarget
{
	ETCD_COMPARE_CREATE_REVISION,	/* 0: the key does not exist */
	ETCD_COMPARE_MOD_REVISION
} EtcdCompareTarget;

/* True if the key's target equals the value; no other relation is needed. */
typedef struct EtcdCompare
{
	EtcdBytes	key;
	EtcdCompareTarget target;
	int64_t		value;
} EtcdCompare;

typedef enum EtcdOpKind
{
	ETCD_OP_RANGE,
	ETCD_OP_PUT,
	ETCD_OP_DELETE,

	/*
	 * A nested txn without compares and operations.  It changes nothing, and
	 * needs no right.  But etcd counts a txn that contains it as a write:
	 * raft's log orders the ranges beside it.  It has no key.
	 */
	ETCD_OP_EMPTY_TXN
} EtcdOpKind;

typedef enum EtcdSort
{
	ETCD_SORT_NONE,
	ETCD_SORT_FIRST_CREATED,	/* ascending by create revision */
	ETCD_SORT_LAST_CREATED		/* descending by create revision */
} EtcdSort;

typedef struct EtcdOp
{
	EtcdOpKind	kind;
	EtcdBytes	key;
	EtcdBytes	range_end;		/* RANGE: empty means the single key */
	/* RANGE */
	int64_t		limit;			/* 0: none */
	EtcdSort	sort;
	int64_t		min_create_revision;	/* 0: no filter, as in etcd */
	int64_t		max_create_revision;	/* 0: no filter, as in etcd */
	int64_t		revision;		/* read at this revision; 0: now */
	/* PUT */
	EtcdBytes	value;
	int64_t		lease;
} EtcdOp;

typedef enum EtcdRequestKind
{
	ETCD_GRANT,
	ETCD_KEEPALIVE,
	ETCD_REVOKE,
	ETCD_TXN,
	ETCD_AUTHENTICATE,
	ETCD_LIST_MEMBERS,
	ETCD_TIME_TO_LIVE,
	ETCD_STATUS
} EtcdRequestKind;

#define ETCD_NREQUEST_KINDS (ETCD_STATUS + 1)

/*
 * One unary request.  A transaction without compares always takes the
 * success branch; with at least one range in it, it is linearizable (a
 * transaction of compares alone is not: etcd answers it without a quorum).
 */
typedef struct EtcdRequest
{
	EtcdRequestKind kind;
	int64_t		lease;			/* GRANT, KEEPALIVE, REVOKE, TIME_TO_LIVE */
	int64_t		ttl_s;			/* GRANT */
	const EtcdCompare *compares;	/* TXN */
	int			ncompares;
	const EtcdOp *success;
	int			nsuccess;
	const EtcdOp *failure;
	int			nfailure;

	/*
	 * The answer may be large, as values of others are asked for.  If it is
	 * too large, it counts as REFUSED, RESOURCE_EXHAUSTED.
	 */
	bool		is_large;
	const char *username;		/* AUTHENTICATE; both UTF-8 */
	const char *password;
} EtcdRequest;

/* One watch of a stream; watch_id is chosen by the caller, from 1. */
typedef struct EtcdWatch
{
	int64_t		watch_id;
	EtcdBytes	key;
	EtcdBytes	range_end;		/* empty: the single key */
	int64_t		start_revision; /* the first revision to report */
	bool		fragment;		/* a large response may come in several frames */
	bool		progress_notify;	/* report the position now and then while there are no events */
} EtcdWatch;

/* ---- answers --------------------------------------------------------- */

typedef struct EtcdHeader
{
	uint64_t	cluster_id;
	uint64_t	member_id;
	int64_t		revision;
	uint64_t	raft_term;		/* 0: absent */
} EtcdHeader;

/* Bytes are followed by a NUL that len does not count. */
typedef struct EtcdKeyValue
{
	EtcdBytes	key;
	EtcdBytes	value;
	int64_t		create_revision;
	int64_t		mod_revision;
	int64_t		version;		/* how often it was written since it was created */
	int64_t		lease;			/* 0: none */
} EtcdKeyValue;

/* The result of one operation of a transaction. */
typedef struct EtcdResult
{
	EtcdOpKind	kind;
	int64_t		deleted;		/* DELETE: number of keys */
	EtcdKeyValue *kvs;			/* RANGE */
	int			nkvs;
} EtcdResult;

/* A member of the cluster, as it announces itself. */
typedef struct EtcdMember
{
	uint64_t	id;				/* as in the headers of its answers */
	const char *name;			/* NULL: it was not started yet */
	const char **client_urls;
	int			nclient_urls;
	bool		is_learner;		/* serves no linearizable reads */
} EtcdMember;

typedef enum EtcdOutcome
{
	ETCD_ANSWERED,				/* by etcd, with success */
	ETCD_REFUSED,				/* by etcd, with an error: code, message */
	ETCD_GARBAGE,				/* something answered that is not etcd's message */
	ETCD_NO_ANSWER				/* nothing answered (in time) */
} EtcdOutcome;

#define ETCD_MESSAGE_SIZE 256

typedef struct EtcdAnswer
{
	EtcdOutcome outcome;
	int			code;			/* REFUSED: EtcdCode, or another gRPC code */
	char		message[ETCD_MESSAGE_SIZE]; /* unless ANSWERED: for people, UTF-8 */
	int			endpoint;		/* number of the endpoint that was asked; -1: none,
								 * or not in the list any more; set by the
								 * transport */
	EtcdHeader	header;			/* ANSWERED */
	int64_t		lease;			/* GRANT, KEEPALIVE, TIME_TO_LIVE */
	/*
	 * GRANT, KEEPALIVE: the whole TTL, <= 0: there is no such lease.
	 * TIME_TO_LIVE: the seconds that are left, truncated, so 0 in the last
	 * one; < 0: there is no such lease.
	 */
	int64_t		ttl_s;
	int64_t		granted_ttl_s;	/* TIME_TO_LIVE: the whole TTL; 0: no such lease */
	bool		succeeded;		/* TXN: the compares held */
	EtcdResult *results;		/* TXN: one for each op of the branch taken */
	int			nresults;
	const char *token;			/* AUTHENTICATE */
	const char *version;		/* STATUS: of the member, such as "3.5.13" */
	const char **errors;		/* STATUS: what is wrong there: alarms, no leader */
	int			nerrors;
	bool		is_learner;		/* STATUS: it serves nothing but its status */
	EtcdMember *members;		/* LIST_MEMBERS */
	int			nmembers;
	void	   *memory;			/* owner of the memory that the pointers point to */
} EtcdAnswer;

typedef struct EtcdWatchEvent
{
	bool		is_delete;
	EtcdKeyValue kv;			/* of a DELETE: key and mod_revision alone */
} EtcdWatchEvent;

/* One frame of a watch stream. */
typedef struct EtcdWatchFrame
{
	EtcdOutcome outcome;		/* REFUSED: the stream is at its end */
	int			code;
	char		message[ETCD_MESSAGE_SIZE]; /* unless ANSWERED; or why canceled */
	EtcdHeader	header;
	int64_t		watch_id;		/* -1: the create request was refused */
	bool		created;
	bool		canceled;
	/*
	 * canceled because the token has expired: the next request gets another
	 * one, or reports that there is none
	 */
	bool		lost_token;
	bool		fragment;		/* the next frame goes on with the same response */
	int64_t		compact_revision;	/* canceled: 0, or the oldest revision left */
	EtcdWatchEvent *events;
	int			nevents;
	void	   *memory;
} EtcdWatchFrame;

/* What reading a frame of a stream has come to. */
typedef enum FrameResult
{
	FRAME_READ,
	FRAME_INCOMPLETE,			/* it is not there in full */
	FRAME_UNREADABLE			/* frame->message says why; none will come any more */
} FrameResult;

/* ---- functions ------------------------------------------------------- */

/* The wire protocol of a client: what requests and answers are written in. */
typedef enum EtcdDialect
{
	ETCD_UNKNOWN,				/* there are no settings yet */
	ETCD_JSON,					/* of the HTTP gateway */
	ETCD_GRPC					/* protobuf, without the 5 bytes before a message */
} EtcdDialect;

/* "json", "grpc", or empty. */
extern const char *etcd_dialect_name(EtcdDialect dialect);

/* The path below an endpoint to POST a request to, such as "/v3/kv/txn". */
extern const char *etcd_request_path(EtcdDialect dialect, EtcdRequestKind kind);

#define ETCD_WATCH_PATH "/v3/watch"
#define ETCD_GRPC_WATCH_PATH "/etcdserverpb.Watch/Watch"

/* Can one of these operations change a key? */
extern bool etcd_writes(const EtcdOp *ops, int nops);

/*
 * A request as a message of that dialect, NUL-terminated, to be free()d; its
 * length in *len.  NULL if memory is out.
 */
extern char *etcd_encode_request(EtcdDialect dialect, const EtcdRequest *request, size_t *len);

/*
 * JSON: the body of a watch stream's POST, a create_request for each watch, one
 * after the other.  To be free()d; NULL if memory is out.
 */
extern char *etcd_encode_watches(const EtcdWatch *watches, int nwatches, size_t *len);

/*
 * Protobuf: a WatchRequest that creates or cancels one watch.  To be free()d;
 * NULL if memory is out.
 */
extern char *etcd_proto_encode_create(const EtcdWatch *watch, size_t *len);
extern char *etcd_proto_encode_cancel(int64_t watch_id, size_t *len);

/*
 * A copy of a request and of all that it points to, in one allocation, which
 * etcd_free_request() frees, and wipes the password.  NULL if memory is out.
 */
extern EtcdRequest *etcd_copy_request(const EtcdRequest *request);
extern void etcd_free_request(EtcdRequest *request);

/*
 * JSON: decodes the answer to a request of that kind: the HTTP status and the body.
 * Never fails: an answer that cannot be understood, or for which memory runs
 * out, becomes ETCD_GARBAGE with a message that says why.  *answer need not be
 * initialised; etcd_free_answer() must follow.
 */
extern void etcd_decode_answer(EtcdRequestKind kind, long http_status,
							   const char *body, size_t len, EtcdAnswer *answer);

/*
 * Protobuf: the same for the message of a request that succeeded.  It becomes
 * ETCD_ANSWERED or ETCD_GARBAGE.
 */
extern void etcd_proto_decode_answer(EtcdRequestKind kind, const char *body, size_t len,
									 EtcdAnswer *answer);
extern void etcd_free_answer(EtcdAnswer *answer);

/*
 * JSON: takes the frame at the front of a watch stream's buffer.  Returns the
 * number of bytes it took (white space around it included), 0 if the frame
 * is not there in full yet, -1 if it cannot become a frame any more; then
 * frame->message says why.  After a positive result etcd_free_frame() must
 * follow.
 */
extern ssize_t etcd_decode_frame(const char *buf, size_t len, EtcdWatchFrame *frame);

/*
 * Protobuf: decodes a WatchResponse, which is there in full.  It becomes
 * ETCD_ANSWERED or ETCD_GARBAGE; etcd_free_frame() must follow.
 */
extern void etcd_proto_decode_frame(const char *body, size_t len, EtcdWatchFrame *frame);
extern void etcd_free_frame(EtcdWatchFrame *frame);

/*
 * Is a failure the fault of the member that was asked, so that another member may
 * do better?  (No answer, garbage, unavailable, no leader, deadline exceeded,
 * "not a primary lessor"; not: permission denied, no such lease, no space,
 * ...)
 */
extern bool etcd_blames_endpoint(EtcdOutcome outcome, int code, const char *message);

/*
 * Formats a message for people into a buffer of ETCD_MESSAGE_SIZE: valid
 * UTF-8 on one line, whatever is in the arguments.
 */
extern void etcd_format_message(char *message, const char *format,...)
			__attribute__((format(printf, 2, 3)));

/*
 * The same of the header grpc-message, which is percent-encoded.  Whatever is wrong in it
 * stays as it is.
 */
extern void etcd_decode_message(char *message, const char *value, size_t len);

/*
 * What a member complains of in the answer to STATUS, for people, in a buffer of
 * ETCD_MESSAGE_SIZE; empty: nothing.
 */
extern void etcd_describe_alarms(const EtcdAnswer *answer, char *message);

/*
 * Does a failure ask for a token, or for another token: "user name is empty",
 * "invalid auth token", "revision of auth store is old"?
 */
extern bool etcd_wants_token(EtcdOutcome outcome, int code, const char *message);

/*
 * "authentication is not enabled": there are no tokens, and none are needed.
 */
extern bool etcd_says_auth_is_off(const EtcdAnswer *answer);

/*
 * What an administrator can do about a message of the client's, as a sentence;
 * NULL if there is nothing to say, or the message says it.
 */
extern const char *etcd_hint(const char *message);

/* What a learner answers to all but a request for its status. */
#define ETCD_LEARNER_REFUSAL "rpc not supported for learner"

/* "requested lease not found", of a request that names a lease. */
extern bool etcd_says_lease_not_found(const EtcdAnswer *answer);

/* "permission denied", of a request that names a key without the rights of the user. */
extern bool etcd_says_permission_denied(const EtcdAnswer *answer);

/* "lease already exists", of a grant. */
extern bool etcd_says_lease_exists(const EtcdAnswer *answer);

#endif							/* ETCD_API_H */
