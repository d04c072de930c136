/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  Planned hand-overs: the transactions that they wait for, and the smart
 *	  shutdown that asks for one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/smart_shutdown.h"
#include "elector/core.h"
#include "elector/drain.h"
#include "elector/mailbox.h"
#include "settings/settings.h"
#include "shared/fenced.h"

/* How often to look for open transactions, and for the end of callers. */
#define LOOK_INTERVAL_NS		(10 * NSEC_PER_MSEC)

/* How often to look for a smart shutdown without inotify, and during a smart shutdown. */
#define SHUTDOWN_INTERVAL_NS	NSEC_PER_SEC
#define SHUTDOWN_SEEN_NS		(100 * NSEC_PER_MSEC)

/* When the log first names those that a drain waits for; then after twice that, and so on. */
#define FIRST_REPORT_NS			NSEC_PER_SEC

/* For each slot that drains: since when, and when the next line is due. */
typedef struct Wait
{
	int64		since_ns;		/* 0: it waits for nobody */
	int64		report_ns;
} Wait;

static Wait waits[ELECTION_MAX_ELECTIONS];
static int	shutdown_fd = -1;	/* of inotify; -1: there is none */
static int64 next_look_ns;
static bool shutdown_seen;

/* The name of the election in that slot. */
static const char *
election_in(int slot)
{
	for (int i = 0; i < settings_election_count(); i++)
	{
		if (election_find(elector_core, settings_election_name(i)) == slot)
			return settings_election_name(i);
	}
	return "";					/* dropped */
}

/* Whoever may connect can hold a drain for its whole time, so the log names them. */
static void
report_wait(int slot)
{
	Wait	   *wait = &waits[slot];
	int64		now_ns = clock_now_ns();
	StringInfoData pids;
	int			n;

	if (wait->since_ns == 0)
	{
		wait->since_ns = now_ns;
		wait->report_ns = now_ns + FIRST_REPORT_NS;
	}
	if (now_ns < wait->report_ns)
		return;
	wait->report_ns += wait->report_ns - wait->since_ns;
	initStringInfo(&pids);
	n = fenced_processes(slot, &pids);
	if (n > 0)
		ereport(LOG,
				(errmsg_plural("hand-over of election \"%s\" waits for %d transaction",
							   "hand-over of election \"%s\" waits for %d transactions",
							   n, election_in(slot), n),
				 errdetail_plural("The transaction is of the process with PID %s.",
								  "The transactions are of the processes with PIDs %s.",
								  n, pids.data)));
	pfree(pids.data);
}

int64
elector_serve_drains(void)
{
	uint32		waiting;
	uint32		open;

	if (election_draining(elector_core) == 0)
	{
		memset(waits, 0, sizeof(waits));
		return PG_INT64_MAX;
	}
	elector_cancel_abandoned();
	waiting = election_draining(elector_core);
	open = fenced_slots();
	for (int slot = 0; slot < ELECTION_MAX_ELECTIONS; slot++)
	{
		uint32		bit = UINT32_C(1) << slot;

		if ((waiting & open & bit) != 0)
			report_wait(slot);
		else
			waits[slot].since_ns = 0;
		if ((waiting & ~open & bit) != 0)
			election_drained(elector_core, clock_now_ns(), slot);
	}
	return election_draining(elector_core) != 0 ? clock_now_ns() + LOOK_INTERVAL_NS : PG_INT64_MAX;
}

/*
 * Hands over what this instance leads, and stays out.  All drains are over a TTL after
 * the first call, also those that another command has begun meanwhile.
 */
static void
leave_elections(void)
{
	static int64 until_ns = 0;
	int64		now_ns = clock_now_ns();
	bool		is_first = until_ns == 0;
	int64		drain_ns;
	uint32		draining;

	if (is_first)
		until_ns = now_ns + election_ttl_ns(elector_core, now_ns);
	drain_ns = Max(until_ns - now_ns, 0);
	draining = is_first || drain_ns == 0 ? 0 : election_draining(elector_core);
	for (int i = 0; i < settings_election_count(); i++)
	{
		const char *name = settings_election_name(i);
		int			slot = election_find(elector_core, name);

		if (slot >= 0 && !election_is_followed(name) && (draining & UINT32_C(1) << slot) == 0)
			(void) election_resign(elector_core, now_ns, slot, false, drain_ns, 0);
	}
}

/*
 * In a smart shutdown no client can reach the leader any more, but it would lead
 * until the last session has ended.  It hands over instead.
 */
static void
look(int64 now_ns)
{
	next_look_ns = now_ns + SHUTDOWN_INTERVAL_NS;
	if (!is_in_smart_shutdown())
		return;

	/*
	 * A fast shutdown looks the same until its SIGTERM arrives, so the first look
	 * is not enough.  Later ones leave again and again: somebody may cancel it.
	 */
	if (shutdown_seen)
		leave_elections();
	else
		next_look_ns = now_ns + SHUTDOWN_SEEN_NS;
	shutdown_seen = true;
}

/* The number of such descriptors is limited for each user.  Without one, the file is polled. */
void
elector_begin_shutdown_watch(void)
{
	shutdown_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (shutdown_fd >= 0 &&
		inotify_add_watch(shutdown_fd, POSTMASTER_PID_FILE, IN_MODIFY) < 0)
	{
		close(shutdown_fd);
		shutdown_fd = -1;
	}
}

int
elector_shutdown_fd(void)
{
	return shutdown_fd;
}

void
elector_look_for_shutdown(void)
{
	char		buffer[1024];

	while (read(shutdown_fd, buffer, sizeof(buffer)) > 0)
		;
	next_look_ns = 0;
}

int64
elector_watch_shutdown(void)
{
	int64		now_ns = clock_now_ns();

	if (now_ns >= next_look_ns)
		look(now_ns);
	return shutdown_fd >= 0 && !shutdown_seen ? PG_INT64_MAX : next_look_ns;
}
