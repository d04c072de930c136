/*-------------------------------------------------------------------------
 *
 * refusals.c
 *	  Requests that etcd refuses.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/problems.h"
#include "elector/refusals.h"
#include "elector/rights.h"
#include "settings/settings.h"

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

/*
 * A refusal is a problem until it has not come for a TTL: a request that fails is tried
 * again within a second or two.  What the endpoint is to blame for is a problem of the
 * contact, or of the endpoint.
 */
static void
note_refusal(const char *subject, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	const char *url = etcd_client_endpoint_url(elector_client, answer->endpoint);
	const char *key = timing->key;

	if (subject == NULL)
	{
		if (key != NULL && !settings_follow_patroni() && find_election_of(key) == NULL)
			return;				/* its election was dropped meanwhile */
		subject = key != NULL ? find_election_of(key) : NULL;
	}
	if (key != NULL && etcd_says_permission_denied(answer) && elector_doubt_rights(key))
		return;
	problem_begin(PROBLEM_REQUEST, subject != NULL ? subject : "",
				  clock_now_ns() + settings_ttl_s * NSEC_PER_SEC, NULL,
				  key != NULL ? "etcd at \"%s\" refused a request about key \"%s\": %s" :
				  "etcd at \"%s\" refused a request%s: %s",
				  url, key != NULL ? key : "", answer->message);
}

void
elector_note_answer(const char *subject, const EtcdAnswer *answer, const EtcdTiming *timing)
{
	elector_count_answer(answer, timing);
	/* a lease that is gone, or there, is a normal part of granting and losing leases */
	if (answer->outcome == ETCD_REFUSED && !timing->explained &&
		!etcd_blames_endpoint(answer->outcome, answer->code, answer->message) &&
		!etcd_says_lease_not_found(answer) && !etcd_says_lease_exists(answer))
		note_refusal(subject, answer, timing);
}
