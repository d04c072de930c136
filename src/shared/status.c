/*-------------------------------------------------------------------------
 *
 * status.c
 *	  Answers for readers: who leads, under which token, in which state.
 *
 * SQL functions, the fence and the C API all use these functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "etcd/etcd_text.h"
#include "settings/settings.h"
#include "stats.h"
#include "status.h"

/* Where an election is, by its index in etcd_leader.elections. */
typedef struct CachedSlot
{
	uint64		settings_generation;	/* 0: nothing cached */
	uint64		layout;
	int			slot;			/* -1: not taken up */
} CachedSlot;

static CachedSlot cached_slots[ELECTION_MAX_ELECTIONS];

/*
 * Brings the cache of an election up to date.  False if it was up to date
 * already.
 */
static bool
refresh_slot(int index)
{
	CachedSlot *cached = &cached_slots[index];

	if (cached->settings_generation == settings_elections_generation &&
		cached->layout == shared_state_layout())
		return false;

	cached->slot = shared_state_find(settings_election_name(index), &cached->layout);
	cached->settings_generation = settings_elections_generation;
	return true;
}

void
status_report_no_election(const char *name)
{
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance takes part in no election"),
				 errhint("Set \"%s\" to the name of the cluster, the same on all of its instances, and reload the configuration.",
						 "etcd_leader.elections")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("election \"%s\" does not exist", name),
			 errhint("The elections are those listed in \"%s\".", "etcd_leader.elections")));
}

bool
status_leads(int index)
{
	const CachedSlot *cached;

	if (unlikely(index < 0))
		return false;

	/*
	 * A cached slot that is out of date says "not leading", so it is checked
	 * only then.  A name may have another index since the settings changed.
	 */
	cached = &cached_slots[index];
	if (likely(cached->settings_generation == settings_elections_generation) &&
		shared_state_is_leader(cached->slot, cached->layout))
		return true;
	return refresh_slot(index) && shared_state_is_leader(cached->slot, cached->layout);
}

int64
status_token(int index)
{
	const CachedSlot *cached;
	int64		token;

	if (index < 0)
		return 0;
	cached = &cached_slots[index];
	(void) refresh_slot(index);
	do
	{
		token = shared_state_token(cached->slot, cached->layout);
	} while (token == 0 && refresh_slot(index));
	return token;
}

/* Tried again if the slots were given away anew meanwhile. */
bool
status_read(int index, SharedElection *election)
{
	const CachedSlot *cached;

	if (index < 0)
		return false;
	cached = &cached_slots[index];
	(void) refresh_slot(index);
	do
	{
		if (shared_state_read(cached->slot, cached->layout, election))
			return true;
	} while (refresh_slot(index));
	return false;
}

/* The leader's name as it was published, in *election; NULL if it is not known. */
static const char *
read_leader(int index, SharedElection *election)
{
	if (!status_read(index, election))
		return NULL;
	return shared_state_leader(election, clock_now_ns());
}

char *
status_current_leader(int index)
{
	SharedElection election;
	const char *leader = read_leader(index, &election);

	return leader ? utf8_to_server(leader) : NULL;
}

char *
status_leader_for_message(int index)
{
	SharedElection election;
	const char *leader = read_leader(index, &election);

	if (leader == NULL || !shared_state_has_elector() ||
		(election.view.role == ELECTION_LEADER && election.deadline_ns <= clock_now_ns()))
		return NULL;
	return utf8_to_server(etcd_escape_text(leader));
}

/* The contact as readers see it.  There may be no elector. */
static void
read_contact(SharedContact *contact)
{
	shared_state_read_contact(contact);
	if (contact->node_name[0] == '\0')
		settings_resolve_node_name(contact->node_name, sizeof(contact->node_name));
	contact->connected = contact->connected && shared_state_has_elector();
	if (shared_state_lacks_elector)
	{
		strlcpy(contact->last_error, "no background worker slot was free for the elector when the server started: increase \"max_worker_processes\"",
				sizeof(contact->last_error));
		contact->last_error_at = PgStartTime;
	}
}

void
status_read_row(int index, StatusRow *row)
{
	const ElectionView *view = &row->shared.view;
	bool		taken_up;
	int64		now_ns;
	ElectionRole role;

	row->election = settings_election_name(index);
	read_contact(&row->contact);
	stats_tally(row->election, &row->won, &row->lost);
	taken_up = status_read(index, &row->shared);
	if (!taken_up)
		memset(&row->shared, 0, sizeof(row->shared));

	/* an error of this election only comes first */
	if (view->problem[0] != '\0')
	{
		strlcpy(row->contact.last_error, view->problem, sizeof(row->contact.last_error));
		row->contact.last_error_at = row->shared.problem_since;
	}

	now_ns = clock_now_ns();
	row->is_leader = row->shared.deadline_ns > now_ns;
	row->has_leader = shared_state_leader(&row->shared, now_ns) != NULL;
	row->valid_for_us = row->is_leader ? (row->shared.deadline_ns - now_ns) / NSEC_PER_USEC : 0;

	/* the deadline may have passed without the elector's help */
	role = row->is_leader ? ELECTION_LEADER :
		view->role == ELECTION_LEADER ? ELECTION_CANDIDATE : view->role;
	row->role = election_role_name(role);
	if (!shared_state_has_elector())
		row->state = "elector not running";
	else if (!taken_up)
		row->state = "starting";
	else
		row->state = election_state_name(view->state);
}

bool
status_is_self(const StatusRow *row, const char *key, const char *node)
{
	return election_is_followed(row->election) ? strcmp(node, row->contact.node_name) == 0 :
		strcmp(key, row->shared.view.key) == 0;
}
