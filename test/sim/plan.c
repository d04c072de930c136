/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  The plan of a run, drawn from its seed before it begins.
 *
 * With all faults at full rate etcd would be away most of the time.  So each run
 * has a profile, in which some faults are frequent and others do not happen.
 * The profile "all" mixes them at lower rates.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "instance.h"
#include "plan.h"

Plan		plan;

const char *
profile_name(Profile profile)
{
	static const char *const names[] = {
		"calm", "network", "partition", "etcd", "woken", "instance", "operator", "restore", "all"
	};

	return names[profile];
}

int
plan_least_ttl_s(void)
{
	return (int) ((3 * plan.election_timeout_ns / 2 + SECOND - 1) / SECOND);
}

int
plan_longest_ttl_s(void)
{
	return plan.ttl_s[0] > plan.ttl_s[1] ? plan.ttl_s[0] : plan.ttl_s[1];
}

int
plan_granted_ttl_s(int asked_s)
{
	int			granted_s = plan.granted_part > 1 ? asked_s / plan.granted_part : asked_s;

	return granted_s > plan_least_ttl_s() ? granted_s : plan_least_ttl_s();
}

static int
one_of(const int *list, int n)
{
	return list[random_below(n)];
}

#define ONE_OF(...) \
	one_of((const int[]) {__VA_ARGS__}, (int) (sizeof((int[]) {__VA_ARGS__}) / sizeof(int)))

/* Commands and other events that are no faults.  Every run has them. */
static void
draw_commands(int rate)
{
	plan.fault[FAULT_RESIGN] = 2 * rate;
	plan.fault[FAULT_CAMPAIGN] = 2 * rate;
	plan.fault[FAULT_PROCLAIM] = rate;
	plan.fault[FAULT_CONFIGURE] = rate / 2;
	plan.fault[FAULT_STOP_INSTANCE] = rate / 4;
	plan.fault[FAULT_OTHER_WRITE] = 2 * rate;
	plan.fault[FAULT_COMPACT] = rate / 2;
	plan.fault[FAULT_FOREIGN] = random_chance(3000) ? rate : 0;
	plan.haste = random_chance(5000) ? random_between(0, 7000) : 0;
}

static void
draw_network(int rate)
{
	plan.loss = random_below(rate);
	plan.slow = random_below(rate);
	plan.slow_ns = random_between(100 * MS, 8 * SECOND);
	plan.repeat = random_below(rate);
	plan.garbage = random_below(rate / 2);
	plan.fault[FAULT_STORM_OF_LOSS] = rate / 20;
}

static void
draw_partitions(int rate)
{
	plan.fault[FAULT_CUT_INSTANCE] = rate;
	plan.fault[FAULT_CUT_LINK] = rate;
	plan.fault[FAULT_CUT_MEMBER] = rate;
}

static void
draw_etcd(int rate)
{
	plan.fault[FAULT_CUT_MEMBER] = rate;
	plan.fault[FAULT_SLOW_MEMBER] = rate;
	plan.fault[FAULT_CRASH_MEMBER] = rate / 2;
	plan.fault[FAULT_PAUSE_MEMBER] = rate;
	plan.fault[FAULT_ELECT] = rate;
}

static void
draw_instance(int rate)
{
	plan.fault[FAULT_PAUSE_INSTANCE] = 2 * rate;
	plan.fault[FAULT_CRASH_INSTANCE] = plan.fault[FAULT_DIE] = rate / 2;
	plan.fault[FAULT_STOP_INSTANCE] = rate / 2;
}

static void
draw_operator(int rate)
{
	plan.fault[FAULT_DELETE_KEY] = rate;
	plan.fault[FAULT_RELEASE_KEY] = rate;
	plan.fault[FAULT_REVOKE_LEASE] = rate;
	plan.fault[FAULT_ROGUE_KEY] = rate / 4;
	plan.fault[FAULT_FOREIGN] = rate;
}

/*
 * The safety margin covers clocks that are slower than etcd's.  The drift never
 * exceeds what the margin covers with any TTL of the run, and often equals it.
 */
static void
draw_clocks(void)
{
	int64_t		ratio_ppm = 1000000;

	plan.margin_ms = random_chance(6000) ? -1 : random_chance(2000) ? 0 :
		(int) random_between(50, 400 * plan.ttl_s[0]);
	for (int i = 0; i < 2; i++)
	{
		int64_t		ttl_ms = 1000 * plan.ttl_s[i];
		int64_t		margin_ms = plan.margin_ms < 0 ? ttl_ms / 10 :
			plan.margin_ms < ttl_ms / 2 ? plan.margin_ms : ttl_ms / 2;

		if (margin_ms * 1000000 / ttl_ms < ratio_ppm)
			ratio_ppm = margin_ms * 1000000 / ttl_ms;
	}
	plan.drift_ppm = random_chance(3000) ? 0 : (int) ratio_ppm;
}

/* Draws changes of the plan that are possible in any profile. */
static void
draw_more(void)
{
	plan.granted_part = random_chance(1500) ? ONE_OF(2, 3, 4) : 0;
	plan.syncs_in_batches = random_chance(5000);
	plan.proclaim_at_grant = random_chance(3000) ? 5000 : 0;
	if (plan.profile != PROFILE_CALM && plan.fault[FAULT_DIE] == 0 && random_chance(3000))
		plan.fault[FAULT_DIE] = (int) random_between(20, 200);
	if (random_chance(400))
	{
		plan.nelections = (int) random_between(4, MAX_ELECTIONS);
		plan.slots = plan.nelections + random_below(2);
	}
	if (random_chance(1000))
		plan.ttl_s[1] = ONE_OF(20, 40, 60);
	if (plan.profile == PROFILE_WOKEN && random_chance(7000))
	{
		plan.stale_reads = (int) random_between(3000, 10000);
		if (random_chance(6000))
		{
			/* an instance that knows only that member learns of no new term */
			plan.nendpoints = 1;
			plan.balanced = false;
			plan.election_timeout_ns = ONE_OF(100, 200, 400) * MS;
			plan.ttl_s[0] = plan.ttl_s[1] = ONE_OF(5, 6, 8, 10);
			plan.granted_part = 0;
			plan.margin_ms = -1;
			plan.stop_at_renewal = plan.stop_at_grant = 0;
			plan.fault[FAULT_PAUSE_MEMBER] = 20;
			plan.fault[FAULT_PAUSE_KNOWN] = (int) random_between(100, 400);
			plan.fault[FAULT_CUT_INSTANCE] = plan.fault[FAULT_CUT_LINK] = plan.fault[FAULT_CONFIGURE] = 0;
		}
	}
	if (plan.profile == PROFILE_CALM && random_chance(3000))
	{
		/* etcd is so slow that a renewal takes longer than the time to the next one */
		plan.ttl_s[1] = plan.ttl_s[0];
		plan.is_slow = true;
		plan.link_delay_ns = random_between(86, 100) * plan.ttl_s[0] * MS;
		plan.link_jitter_ns = 0;
		plan.request_timeout_ms = 1000 * plan.ttl_s[0];
		plan.granted_part = 0;
		plan.nmembers = 1;
		plan.margin_ms = -1;
		draw_commands(4);
		plan.fault[FAULT_FOREIGN] = plan.fault[FAULT_STOP_INSTANCE] = 0;
	}
	/* transfers to a named candidate, with all faults of the profile */
	if (plan.profile != PROFILE_RESTORE && random_chance(4000))
		plan.fault[FAULT_TRANSFER] = (int) random_between(100, 800);
	if (plan.profile != PROFILE_RESTORE && random_chance(2000))
	{
		plan.preferred = ONE_OF(1, 1, 2);
		plan.preferred_delay_ms = (int) random_between(200, 8000);
	}
	if (random_chance(4000))
	{
		plan.drains = ONE_OF(3000, 8000);
		plan.preferred_drain_ms = (int) random_between(0, 8000);
	}
	plan.changes_margins = random_chance(3000);
	if (plan.changes_margins && plan.profile != PROFILE_CALM)
		plan.fault[FAULT_CONFIGURE] += 100;
	plan.has_twins = random_chance(3000);
	plan.foreign_proclaims = random_chance(3000);
	if (plan.stale_reads > 0 && random_chance(6000))
	{
		/* renewals are confirmed while the only key is being deleted */
		plan.ninstances = ONE_OF(1, 1, 2);
		plan.nelections = plan.slots = 1;
		plan.fault[FAULT_RESIGN] = 400;
		plan.late_writes = 6000;
		plan.preferred = 0;
	}
}

/* Hand-overs, also before and after etcd is put back, while much else happens. */
static void
draw_hand_overs(void)
{
	if (random_chance(5000))
		plan.fault[FAULT_TRANSFER] = (int) random_between(200, 1500);
	if (random_chance(4000))
	{
		plan.preferred = ONE_OF(1, 2);
		plan.preferred_delay_ms = (int) random_between(50, 3000);
	}
	if (random_chance(5000))
	{
		plan.drains = ONE_OF(3000, 8000);
		plan.preferred_drain_ms = (int) random_between(0, 3000);
	}
}

/* Many faults at once, and TTLs so short that leadership is lost for many reasons. */
static void
draw_harsh(void)
{
	plan.is_harsh = true;
	draw_hand_overs();
	if (plan.nmembers == 3)
	{
		plan.stale_reads = random_chance(4000) ? (int) random_between(3000, 10000) : plan.stale_reads;
		plan.late_revokes |= random_chance(3000);
		if (random_chance(5000))
			plan.fault[FAULT_ELECT] = (int) random_between(100, 500);
		if (random_chance(3000))
			plan.fault[FAULT_PAUSE_MEMBER] = (int) random_between(50, 150);
	}
	if (random_chance(4000))
		plan.late_writes = (int) random_between(1000, 6000);
	if (random_chance(3000))
	{
		plan.takes_rights = true;
		plan.denies_renewals = random_chance(5000);
	}
	if (random_chance(5000))
	{
		plan.fault[FAULT_CONFIGURE] = (int) random_between(100, 600);
		plan.haste = 7000;
	}
	if (random_chance(4000))
		plan.fault[FAULT_CRASH_INSTANCE] = (int) random_between(50, 200);
	if (random_chance(4000))
	{
		plan.election_timeout_ns = ONE_OF(100, 200) * MS;
		plan.ttl_s[0] = ONE_OF(1, 2);
		plan.ttl_s[1] = ONE_OF(1, 2, 3, 10);
	}
	if (random_chance(3000))
	{
		plan.compaction_hides = true;
		plan.fault[FAULT_COMPACT] = 300;
	}
	if (random_chance(3000))
		plan.dead_streams = 2000;
	if (random_chance(3000))
	{
		plan.link_delay_ns = random_between(MS, 60 * MS);
		plan.link_jitter_ns = random_between(0, 300 * MS);
	}
	if (random_chance(2000))
		plan.touch_at_read = (int) random_between(0, 300);
}

/*
 * Rights to the keys of one election are taken away, which is to cost another one
 * nothing.  Nothing is drawn, so that other seeds are as they were.
 */
static void
plan_rights(uint64_t number)
{
	plan.takes_rights = true;
	plan.denies_renewals = number / 2 % 2 == 1;
	if (plan.nelections == 1 && plan.stale_reads == 0)
	{
		plan.nelections++;
		plan.slots++;
	}
	if (plan.profile != PROFILE_CALM)
		return;
	/* little else happens that would excuse a loss */
	plan.ttl_s[1] = plan.ttl_s[0];
	plan.granted_part = 0;
	plan.fault[FAULT_CONFIGURE] = plan.fault[FAULT_PROCLAIM] = plan.fault[FAULT_FOREIGN] = 0;
	plan.fault[FAULT_STOP_INSTANCE] = plan.fault[FAULT_TRANSFER] = 0;
	plan.fault[FAULT_RESIGN] = plan.fault[FAULT_CAMPAIGN] = 30;
	plan.preferred = 0;
	plan.faults_end_ns += 40 * SECOND;
}

void
plan_draw(uint64_t seed)
{
	memset(&plan, 0, sizeof(plan));
	random_seed(seed);
	plan.seed = seed;
	plan.profile = (Profile) (seed % NPROFILES);

	plan.ninstances = ONE_OF(1, 2, 2, 2, 3, 3, 3, 4, 5);
	plan.nelections = ONE_OF(1, 1, 1, 2, 2, 3);
	plan.slots = plan.nelections + random_below(2);
	plan.nmembers = random_chance(6000) ? 3 : 1;
	plan.nendpoints = ONE_OF(1, 2, 3, 3);
	plan.balanced = random_chance(2000);

	plan.dialect = 1 + random_below(2);
	plan.ensures_leadership = random_chance(4000);
	plan.early_lessor = random_chance(3000);
	plan.pre_vote = random_chance(5000);
	plan.late_revokes = random_chance(5000);
	plan.compaction_hides = random_chance(2000);
	plan.election_timeout_ns = ONE_OF(200, 1000, 1000, 1000, 1000, 2500) * MS;
	plan.late_expiry = ONE_OF(2000, 2000, 6000);
	plan.latest_expiry_ns = SECOND;
	plan.about_ttl = 2000;
	plan.expiry_lateness_ns = random_chance(7000) ? 500 * MS : 0;

	plan.link_delay_ns = random_between(MS / 10, random_chance(2000) ? 40 * MS : 3 * MS);
	plan.link_jitter_ns = random_between(0, random_chance(3500) ? 200 * MS : 5 * MS);
	plan.apply_delay_ns = random_between(0, 5 * MS);

	plan.ttl_s[0] = ONE_OF(2, 3, 3, 4, 5, 6, 10);
	plan.ttl_s[1] = ONE_OF(2, 3, 5, 8);
	plan.request_timeout_ms = random_chance(7000) ? -1 : random_between(100, 3000);
	plan.faults_end_ns = random_between(20, 40) * SECOND;
	draw_commands(random_between(20, 80));

	switch (plan.profile)
	{
		case PROFILE_CALM:
			plan.ttl_s[0] = plan.ttl_s[1] = (int) random_between(12, 30);
			plan.link_delay_ns = random_between(MS / 10, 3 * MS);
			plan.link_jitter_ns = random_between(0, 20 * MS);
			plan.request_timeout_ms = -1;
			plan.compaction_hides = false;
			plan.election_timeout_ns = SECOND;
			draw_commands((int) random_between(100, 400));
			plan.fault[FAULT_FOREIGN] /= 4;
			plan.fault[FAULT_STOP_INSTANCE] /= 4;
			break;
		case PROFILE_NETWORK:
			draw_network(1000);
			if (random_chance(7500))
			{
				/* a command takes effect after it was reversed */
				plan.late_writes = (int) random_between(1000, 5000);
				plan.haste = (int) random_between(3000, 8000);
				plan.fault[FAULT_CONFIGURE] = (int) random_between(50, 300);
			}
			break;
		case PROFILE_PARTITION:
			draw_partitions((int) random_between(50, 200));
			if (random_chance(8000))
			{
				/* contact comes back about when the lease expires */
				plan.fault[FAULT_CUT_INSTANCE] = (int) random_between(100, 300);
				plan.late_expiry = plan.about_ttl = 8000;
				plan.latest_expiry_ns = random_between(SECOND, 4 * SECOND);
			}
			break;
		case PROFILE_ETCD:
			draw_etcd((int) random_between(30, 150));
			if (random_chance(5000))
			{
				/* etcd executes requests after their time-out, while keys are often moved */
				plan.late_writes = (int) random_between(1000, 5000);
				plan.fault[FAULT_ELECT] = (int) random_between(200, 600);
				plan.fault[FAULT_PROCLAIM] = plan.fault[FAULT_CONFIGURE] = (int) random_between(50, 300);
			}
			if (random_chance(5000))
				draw_network(400);
			break;
		case PROFILE_WOKEN:
			plan.nmembers = 3;
			plan.late_revokes = true;
			plan.ensures_leadership = false;
			plan.fault[FAULT_PAUSE_MEMBER] = (int) random_between(50, 150);
			plan.fault[FAULT_CUT_INSTANCE] = plan.fault[FAULT_CUT_LINK] = (int) random_between(0, 150);
			if (random_chance(5000))
				draw_network(200);
			if (random_chance(7500))
			{
				/* requests take so long that etcd's leader can change meanwhile */
				if (random_chance(5000))
					plan.stop_at_renewal = (int) random_between(300, 3000);
				else
					plan.stop_at_grant = (int) random_between(3000, 8000);
				plan.link_delay_ns = random_between(MS, 60 * MS);
				plan.link_jitter_ns = random_between(0, 200 * MS);
				plan.request_timeout_ms = random_between(1000, 3000);
				plan.election_timeout_ns = ONE_OF(100, 200) * MS;
				plan.ttl_s[0] = plan.ttl_s[1] = ONE_OF(6, 8, 10, 15);
				plan.fault[FAULT_PAUSE_MEMBER] = plan.fault[FAULT_CUT_INSTANCE] = plan.fault[FAULT_CUT_LINK] = 0;
				draw_commands(8);
			}
			break;
		case PROFILE_INSTANCE:
			draw_instance((int) random_between(50, 200));
			if (random_chance(5000))
			{
				/* etcd executes requests of before a crash after the restart */
				plan.late_writes = (int) random_between(1000, 5000);
				plan.fault[FAULT_CRASH_INSTANCE] *= 2;
			}
			break;
		case PROFILE_OPERATOR:
			draw_operator((int) random_between(30, 150));
			draw_network(200);
			if (random_chance(5000))
			{
				/* a watch reports a change before the answer of an older read arrives */
				plan.touch_at_read = (int) random_between(100, 1000);
				plan.link_jitter_ns = random_between(10 * MS, 200 * MS);
			}
			break;
		case PROFILE_RESTORE:
			plan.restore_ns = random_between(plan.faults_end_ns / 3, plan.faults_end_ns * 9 / 10);
			plan.fault[FAULT_FOREIGN] = 0;
			plan.fault[FAULT_CRASH_INSTANCE] = random_chance(7000) ? (int) random_between(20, 150) : 0;
			break;
		case PROFILE_ALL:
			draw_network(400);
			draw_partitions(30);
			draw_etcd(30);
			draw_instance(40);
			draw_operator(20);
			break;
		case NPROFILES:
			break;
	}
	draw_more();
	if (plan.profile != PROFILE_CALM && random_chance(2000))
		draw_harsh();
	draw_clocks();
	if (plan.profile != PROFILE_CALM && seed / NPROFILES % 3 == 0 && plan.dead_streams == 0)
		plan.dead_streams = seed / NPROFILES % 2 == 0 ? 1000 : 200;
	if (plan.profile == PROFILE_CALM ? seed / NPROFILES % 2 == 1 && !plan.is_slow :
		plan.profile != PROFILE_RESTORE && seed / NPROFILES % 6 == 5)
		plan_rights(seed / NPROFILES);
	plan.faults_end_ns += 2 * plan_longest_ttl_s() * SECOND;
}
