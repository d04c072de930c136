/*-------------------------------------------------------------------------
 *
 * client_state.h
 *	  The state of a client.
 *
 * Each part is changed by the file that its comment names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_CLIENT_STATE_H
#define ETCD_CLIENT_STATE_H

#include <string.h>
#include <sys/stat.h>

#include "client.h"
#include "grpc.h"
#include "http.h"
#include "settings.h"

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

/* How much of etcd a request needs. */
typedef enum EtcdNeed
{
	NEEDS_NOTHING,
	NEEDS_MEMBER,				/* STATUS */
	NEEDS_VOTER,				/* LIST_MEMBERS, which a learner refuses */
	NEEDS_QUORUM				/* all others */
} EtcdNeed;

/* endpoints.c, but for the parts that name another file. */
typedef struct Endpoint
{
	char	   *url;
	bool		learned;		/* from the list of members, not from the settings */
	EtcdEndpointState state;
	bool		is_status_asked;	/* for its status, by the client itself */
	int64_t		status_ns;		/* when it was asked for that last; 0: never */
	/* see note_endpoint() in request.c */
	int64_t		first_failed_ns;	/* since its error began */
	int64_t		failed_ns;		/* the last failure */
	EtcdNeed	failed_need;	/* of all that has failed since then, the most */
	/* see clusters.c */
	uint64_t	named_by;		/* the cluster whose list of members has it; 0: none */
	bool		named_twice;	/* another cluster's list has it, too */
	bool		unannounced;	/* no member has it, though one has another of the settings */
	bool		is_asked;		/* for its cluster and members */
	int			nslow_connections;	/* new ones that have timed out, in succession */
	/* see call.c */
	int			nfloods;		/* in succession */
	int64_t		shunned_until_ns;
	/* see auth.c */
	char	   *token;			/* NULL: none */
	uint64_t	token_number;	/* of this token, or of this lack of one */
	int64_t		token_tried_ns;	/* when it was wanted last; 0: never */
	int64_t		rejected_ns;	/* when the password was rejected; 0: it was not */
	struct stat rejected_file;	/* the file that it was in */
	char		rejection[ETCD_MESSAGE_SIZE];
} Endpoint;

/* The time after which an endpoint that has failed is asked again. */
#define FAILED_CHECK_MS		3000

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

/* auth.c */
typedef struct Auth
{
	uint64_t	ntokens;		/* how many answers about tokens there were */
	bool		is_unanswered;	/* the last try had no answer */
	char		error[ETCD_MESSAGE_SIZE];	/* see etcd_client_user_error() */
} Auth;

/* watch.c.  All streams are on the endpoint in use: when that changes, they end. */
typedef struct Stream
{
	struct Call *call;			/* NULL: the stream is not open */
	int64_t		deadline_ns;	/* to connect, then for the first frame; INT64_MAX: it came */
	bool		has_connected;
	int			ncreations;		/* frames that may still tell that a watch was created */
	int			nidle;			/* frames of a second without news */
	int64_t		counts_since_ns;
	bool		has_delivered;		/* frames were passed on since it rested last */
	int64_t		rests_until_ns; /* it is not read before; INT64_MAX: it is read */
	bool		end_due;		/* watch_ended() has to be called */
	EtcdOutcome end_outcome;
	char		end_why[ETCD_MESSAGE_SIZE];
} Stream;

/* answers.c: a request that could not be made. */
typedef struct Unsent
{
	EtcdReceiver caller;
	uint64_t	id;
	const char *why;
} Unsent;

/* More than the caller ever has under way at one time. */
#define MAX_UNSENT		1024

struct EtcdClient
{
	EtcdClientCallbacks callbacks;
	uint64_t	turn;			/* counts the calls of etcd_client_process() */
	bool		is_running;		/* such a call is under way, or an ERROR has left it */
	Settings	settings;
	Http		http;
	Grpc		grpc;
	struct Call *calls;			/* under way; call.c */

	Endpoint   *endpoints;		/* those of the settings first */
	int			nendpoints;
	int			endpoint;		/* in use */
	uint64_t	kept_cluster_id;	/* see etcd_client_keep_cluster() */
	int64_t		probe_due_ns;	/* see etcd_endpoints_probe() */
	int64_t		look_due_ns;	/* see etcd_cluster_look_soon(); 0: not */
	int64_t		looked_ns;
	char		announced[ETCD_MESSAGE_SIZE];	/* the URLs of the members, for people */

	Auth		auth;

	struct PendingRequest *requests;	/* that are not answered yet; oldest first */
	struct PendingRequest *reported;	/* has ended, and the caller is called back */
	Unsent		unsent[MAX_UNSENT];
	int			nunsent;

	Stream		streams[ETCD_CLIENT_STREAMS];
};

#endif							/* ETCD_CLIENT_STATE_H */
