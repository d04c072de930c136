/*-------------------------------------------------------------------------
 *
 * contact.c
 *	  Errors and the contact with etcd, for etcd_leader_status and for the
 *	  log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "settings/settings.h"
#include "shared/stats.h"

/*
 * A new error is logged.  The same error is logged again only if it has not
 * come for this time.  Room for two of each election and of each endpoint, as
 * one that is forgotten is logged each time.
 */
#define REMEMBERED_ERRORS	(2 * ELECTION_MAX_ELECTIONS + 2 * ELECTION_MAX_ENDPOINTS)
#define SILENCE_MS			60000

/* Without contact for so long after the start, something is wrong. */
#define CONTACT_PATIENCE_MS	3000

typedef struct LoggedError
{
	uint32		hash;			/* of its text */
	int64		heard_ns;		/* when it was heard last; 0: unused */
} LoggedError;

static SharedContact contact;
static bool contact_changed;	/* since it was published */

/* of contact.last_error; an empty name: none */
static ErrorSubject error_subject;
static char error_name[Max(MAXPGPATH, Max(ELECTION_NAME_SIZE, SHARED_ENDPOINT_SIZE))];
static int64 error_heard_ns;	/* when it was heard last */
static char error_endpoint[ETCD_CLIENT_MAX_URL_LEN + 1];	/* whose fault it is; empty: of none */
static int64 awaited_since_ns;	/* 0: contact is not awaited, or was warned of */
static LoggedError logged_errors[REMEMBERED_ERRORS];

const SharedContact *
elector_contact(void)
{
	return &contact;
}

bool
elector_remember_message(const char *message)
{
	uint32		hash = hash_bytes((const unsigned char *) message, (int) strlen(message));
	int64		now_ns = clock_now_ns();
	LoggedError *oldest = &logged_errors[0];
	bool		news;

	for (int i = 0; i < REMEMBERED_ERRORS; i++)
	{
		LoggedError *error = &logged_errors[i];

		if (error->hash == hash && error->heard_ns != 0)
		{
			news = now_ns - error->heard_ns >= SILENCE_MS * NSEC_PER_MSEC;
			error->heard_ns = now_ns;
			return news;
		}
		if (error->heard_ns < oldest->heard_ns)
			oldest = error;
	}
	oldest->hash = hash;
	oldest->heard_ns = now_ns;
	return true;
}

/* What to do about an error, as a HINT; 0 if it says so itself. */
static int
errhint_of_error(const char *message)
{
	const char *hint = etcd_hint(message);

	return hint != NULL ? errhint("%s", hint) : 0;
}

static void
report_error(int elevel, const char *message)
{
	ereport(elevel, (errmsg_internal("%s", message), errhint_of_error(message)));
}

void
elector_note_error(ErrorSubject subject, const char *name, const char *message, int elevel)
{
	error_subject = subject;
	error_endpoint[0] = '\0';
	strlcpy(error_name, name ? name : "", sizeof(error_name));
	error_heard_ns = clock_now_ns();
	strlcpy(contact.last_error, message, sizeof(contact.last_error));
	contact.last_error_at = GetCurrentTimestamp();
	contact_changed = true;
	if (elector_remember_message(message) && elevel != 0)
		report_error(elevel, message);
}

void
elector_note_formatted_error(ErrorSubject subject, const char *name, int elevel,
							 const char *format,...)
{
	char		message[sizeof(contact.last_error)];
	va_list		args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	message[pg_encoding_mbcliplen(PG_UTF8, message, (int) strlen(message), sizeof(message) - 1)] =
		'\0';
	elector_note_error(subject, name, message, elevel);
}

void
elector_clear_error(ErrorSubject subject, const char *name)
{
	if (contact.last_error[0] == '\0' || error_subject != subject ||
		(name != NULL && strcmp(error_name, name) != 0))
		return;
	contact.last_error[0] = '\0';
	contact_changed = true;
}

/* Does nothing have the name of the error's subject any more? */
static bool
is_subject_gone(void)
{
	if (error_name[0] == '\0')
		return false;
	if (error_subject == ABOUT_ELECTION || error_subject == ABOUT_NAME)
		return election_find(elector_core, error_name) < 0;
	if (error_subject != ABOUT_ETCD)
		return false;
	for (int i = 0; i < etcd_client_endpoint_count(elector_client); i++)
	{
		if (strcmp(etcd_client_endpoint_url(elector_client, i), error_name) == 0)
			return false;
	}
	return true;
}

void
elector_clear_old_error(void)
{
	bool		is_old = contact.connected &&
		clock_now_ns() - error_heard_ns >= settings_ttl_s * 1000 * NSEC_PER_MSEC;

	if (is_subject_gone() ||
		(is_old && (error_subject == ABOUT_ETCD || error_subject == ABOUT_ELECTION)))
		elector_clear_error(error_subject, NULL);
}

/* The election that has the key below its prefix; NULL: none. */
static const char *
find_election_of(const char *key)
{
	for (const char *end = strchr(key, '/'); end != NULL; end = strchr(end + 1, '/'))
	{
		const char *name = pnstrdup(key, end - key);

		if (election_find(elector_core, name) >= 0)
			return name;
	}
	return NULL;
}

void
elector_note_endpoint(void)
{
	int			endpoint = etcd_client_endpoint(elector_client);
	const char *url = etcd_client_endpoint_url(elector_client, endpoint);
	EtcdDialect dialect = etcd_client_dialect(elector_client);

	contact_changed |= dialect != contact.dialect;
	contact.dialect = dialect;
	if (strcmp(url, contact.endpoint) == 0)
		return;
	if (contact.endpoint[0] != '\0')
		stats_count(COUNTER_ENDPOINT_SWITCHES, 1);
	strlcpy(contact.endpoint, url, sizeof(contact.endpoint));
	contact_changed = true;
}

/*
 * A failure: for last_error in the words of an administrator.  Loss of contact
 * is logged as such; a refusal is not, as it leaves the contact as it is.
 */
static void
note_failure(ErrorSubject subject, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	const char *url = etcd_client_endpoint_url(elector_client, answer->endpoint);
	const char *reason = answer->message;
	const char *name = subject == ABOUT_ETCD ? url : NULL;
	const char *election;
	const char *advice;
	int			elevel;

	if (answer->outcome != ETCD_REFUSED)
	{
		elector_note_error(ABOUT_ETCD, url, answer->message,
						   contact.connected && etcd_client_endpoint_count(elector_client) > 1 ?
						   LOG : 0);
		return;
	}
	if (subject == ABOUT_NOTHING)
		return;
	if (timing->explained)
	{
		elector_note_error(subject, name, answer->message, WARNING);
		return;
	}
	advice = etcd_advise(answer->code, answer->message);
	if (subject == ABOUT_CHANGES && answer->code == ETCD_CODE_PERMISSION_DENIED)
		advice = "grant the etcd user a role that may read the keys below each prefix in "
			"\"etcd_leader.watched_prefixes\"";
	if (advice)
		reason = psprintf("%s (%s)", answer->message, advice);

	/* these two are a normal part of granting and losing leases */
	if (etcd_says_lease_not_found(answer) || etcd_says_lease_exists(answer))
		elevel = 0;
	else
		elevel = advice != NULL ? WARNING : LOG;
	if (subject == ABOUT_ETCD && timing->key && (election = find_election_of(timing->key)) != NULL)
	{
		subject = ABOUT_ELECTION;
		name = election;
	}
	else if (subject == ABOUT_ETCD && timing->key && !settings_follow_patroni())
		return;					/* its election was dropped meanwhile */
	if (timing->key)
		elector_note_formatted_error(subject, name, elevel,
									 "etcd at \"%s\" refused a request about key \"%s\": %s",
									 url, timing->key, reason);
	else
		elector_note_formatted_error(subject, name, elevel, "etcd at \"%s\" refused a request: %s",
									 url, reason);
}

/* The fault of an endpoint is over when it answers. */
static void
clear_error_of_endpoint(const char *url)
{
	if (error_endpoint[0] != '\0' && strcmp(error_endpoint, url) == 0)
		elector_clear_error(error_subject, NULL);
}

void
elector_note_answer(ErrorSubject subject, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	const char *url = etcd_client_endpoint_url(elector_client, answer->endpoint);

	if (answer->outcome == ETCD_ANSWERED)
	{
		clear_error_of_endpoint(url);
		stats_count_latency(timing->latency_ns);
		contact.last_contact = GetCurrentTimestamp();
		contact_changed = true;
	}
	else
	{
		stats_count(COUNTER_FAILURES, 1);
		if (timing->timed_out)
			stats_count(COUNTER_TIMEOUTS, 1);
		note_failure(subject, answer, timing);
		if (subject != ABOUT_NOTHING &&
			etcd_blames_endpoint(answer->outcome, answer->code, answer->message))
			strlcpy(error_endpoint, url, sizeof(error_endpoint));
	}
	elector_note_endpoint();
}

void
elector_expect_contact(void)
{
	/* without an election nothing is asked */
	awaited_since_ns = contact.connected || settings_election_count() == 0 ? 0 : clock_now_ns();
}

int64
elector_warn_of_no_contact(void)
{
	int64		due_ns = awaited_since_ns + CONTACT_PATIENCE_MS * NSEC_PER_MSEC;

	if (contact.connected)
		awaited_since_ns = 0;
	if (awaited_since_ns == 0)
		return PG_INT64_MAX;
	if (clock_now_ns() < due_ns)
		return due_ns;
	awaited_since_ns = 0;
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("no contact with etcd, so this instance does not lead"),
			 contact.last_error[0] == '\0' ? errdetail("etcd has not answered yet.") :
			 errdetail_internal("%s.", contact.last_error),
			 errhint_of_error(contact.last_error)));
	return PG_INT64_MAX;
}

void
elector_note_connected(bool connected)
{
	contact.connected = connected;
	contact_changed = true;
	if (connected)
		memset(logged_errors, 0, sizeof(logged_errors));
}

void
elector_note_node_name(const char *name)
{
	if (strcmp(contact.node_name, name) != 0)
		elector_clear_error(ABOUT_NAME, NULL);
	strlcpy(contact.node_name, name, sizeof(contact.node_name));
	shared_state_publish_contact(&contact);
}

void
elector_publish_contact(void)
{
	uint64		cluster_id = election_cluster_id(elector_core);
	int64		ttl_ms = election_ttl_ns(elector_core, clock_now_ns()) / NSEC_PER_MSEC;

	contact_changed |= cluster_id != contact.cluster_id || ttl_ms != contact.ttl_ms;
	contact.cluster_id = cluster_id;
	contact.ttl_ms = ttl_ms;
	if (!contact_changed)
		return;
	shared_state_publish_contact(&contact);
	contact_changed = false;
}
