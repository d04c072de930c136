/*-------------------------------------------------------------------------
 *
 * reconcile.c
 *	  Sends what is due, and lets the caller remember the state.
 *
 *-------------------------------------------------------------------------
 */
#include "hand_over.h"
#include "leadership.h"
#include "lease.h"
#include "own_key.h"
#include "patroni.h"
#include "reads.h"
#include "reconcile.h"
#include "remember.h"
#include "rival_lease.h"
#include "watch.h"

/* In tests only. */
#ifdef ELECTION_CHECKED
#include "invariants.h"
#endif

/*
 * A renewal is a keepalive, and a read that confirms it.  The read is sent when
 * the keepalive is answered.  If the lease cannot be kept, or there is none,
 * only a read is sent.  An observer learns as much from it, and it shows that
 * etcd lives.
 */
static void
send_renewal_or_read(ElectionCore *core, int64_t now_ns)
{
	watch_close_if_incomplete(core, now_ns);
	if (!lease_start_renewal(core, now_ns) && !read_send(core, now_ns, true, NULL) &&
		!core->connected)
		(void) patroni_probe(core, now_ns);
}

/*
 * Without contact, only one probe at a time is sent.  It does not wait for the
 * requests that were sent before contact was lost.  They may be at a member
 * that is slow or stopped, and the lease has a deadline.
 */
static void
reconcile_contact(ElectionCore *core, int64_t now_ns)
{
	if (request_find(core, core->probe_id) != NULL ||
		!due_or_wake_at(core, now_ns, core->contact_retry_ns))
		return;
	core->probe_id = core->next_id;
	send_renewal_or_read(core, now_ns);
}

void
reconcile(ElectionCore *core, int64_t now_ns)
{
	if (core->config.nendpoints == 0)
		return;					/* not configured yet */
	core->wakeup_ns = NEVER_NS;
	leadership_expire(core, now_ns);
	drain_reconcile(core, now_ns);
	rival_reconcile(core, now_ns);
	if (!core->connected)
		reconcile_contact(core, now_ns);
	else
	{
		lease_reconcile(core, now_ns);
		own_key_reconcile(core, now_ns);
		transfer_reconcile(core, now_ns);
		patroni_reconcile(core, now_ns);
		read_reconcile(core, now_ns);
		if (due_or_wake_at(core, now_ns, core->renewal_ns))
			send_renewal_or_read(core, now_ns);
		watch_reconcile(core, now_ns);
	}
	leadership_wake_at_end(core);
	remember_state(core);
#ifdef ELECTION_CHECKED
	check_invariants(core);
#endif
}
