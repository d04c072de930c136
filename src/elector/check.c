/*-------------------------------------------------------------------------
 *
 * check.c
 *	  etcd_leader_check(): everything is tried anew for the sessions that wait.
 *
 * The tries end by their time-outs.  A session that comes during the tries waits for
 * the next ones, so that what it is told is not older than its call.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "elector/check.h"
#include "elector/core.h"
#include "elector/rights.h"
#include "elector/set_up.h"
#include "shared/mailbox.h"

/* Places of the mailbox, a bit each. */
static uint32 waiting;			/* for the next tries */
static uint32 served;			/* by the tries under way */

void
elector_request_check(int place)
{
	waiting |= UINT32_C(1) << place;
}

static void
reply(uint32 places)
{
	SharedReply *done = palloc0(sizeof(SharedReply));

	done->kind = REPLY_CHECKED;
	for (int place = 0; place < MAILBOX_SIZE; place++)
	{
		if (places & (UINT32_C(1) << place))
			mailbox_reply(place, done);
	}
	pfree(done);
}

/* Frees the places of sessions that do not wait any more. */
static void
forget_abandoned(uint32 *places)
{
	uint32		abandoned = 0;

	for (int place = 0; place < MAILBOX_SIZE; place++)
	{
		if ((*places & (UINT32_C(1) << place)) && mailbox_is_abandoned(place))
			abandoned |= UINT32_C(1) << place;
	}
	*places &= ~abandoned;
	reply(abandoned);
}

bool
elector_serve_checks(void)
{
	if ((served | waiting) == 0)
		return false;
	forget_abandoned(&served);
	forget_abandoned(&waiting);
	if (served != 0 && !etcd_client_is_probing(elector_client) && !elector_is_trying_rights())
	{
		reply(served);
		served = 0;
	}
	if (served != 0 || waiting == 0)
		return false;
	served = waiting;
	waiting = 0;
	etcd_client_probe(elector_client);
	elector_try_rights();
	elector_look_at_files();
	return true;
}
