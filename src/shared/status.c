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
#include "etcd/text.h"
#include "settings/settings.h"
#include "shared/problems.h"
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
status_raise_no_election(const char *name)
{
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this instance takes part in no election"),
				 errhint("Set \"%s\" to the name of the cluster, the same on all of its instances, "
						 "and reload the configuration.",
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
	/* once more if the slots were given away anew meanwhile */
	while (refresh_slot(index))
	{
		if (shared_state_is_leader(cached->slot, cached->layout))
			return true;
	}
	return false;
}

static int64
read_token(int index, int64 (*token_of) (int slot, uint64 layout))
{
	const CachedSlot *cached;
	int64		token;

	if (index < 0)
		return 0;
	cached = &cached_slots[index];
	(void) refresh_slot(index);
	do
	{
		token = token_of(cached->slot, cached->layout);
	} while (token == 0 && refresh_slot(index));
	return token;
}

int64
status_token(int index)
{
	return read_token(index, shared_state_token);
}

int64
status_held_token(int index)
{
	return read_token(index, shared_state_held_token);
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

/*
 * Is the leader this instance?  Its key may be of an earlier life of the server.
 */
static bool
names_self(const ElectionView *view)
{
	SharedContact contact;

	if (view->leader_revision == view->create_revision)
		return true;
	shared_state_read_contact(&contact);
	return strcmp(view->leader, contact.node_name) == 0;
}

char *
status_leader_for_message(int index)
{
	SharedElection election;
	const char *leader = read_leader(index, &election);

	if (leader == NULL || !shared_state_has_elector() || names_self(&election.view))
		return NULL;
	return utf8_to_server(etcd_escape_text(leader));
}

int
status_errdetail_leader(int index)
{
	const char *leader = status_leader_for_message(index);
	SharedContact contact;

	if (leader)
		return errdetail("The leader is \"%s\".", leader);
	if (!shared_state_has_elector())
		return errdetail("The elector of etcd_leader is not running.");
	shared_state_read_contact(&contact);
	if (contact.connected)
		return errdetail("No leader is known at present.");
	return errdetail("No leader is known at present, as there is no contact with etcd. See the "
					 "view \"%s\".",
					 "etcd_leader_problems");
}

/* This instance and its contact, as readers see them.  There may be no elector. */
static void
read_contact(EtcdLeaderStatus *row)
{
	SharedContact contact;

	shared_state_read_contact(&contact);
	strlcpy(row->node, contact.node_name, sizeof(row->node));
	if (row->node[0] == '\0')
		settings_resolve_node_name(row->node, sizeof(row->node));
	strlcpy(row->endpoint, contact.endpoint, sizeof(row->endpoint));
	row->protocol = etcd_dialect_name(contact.dialect);
	row->cluster_id = contact.cluster_id;
	row->ttl_ms = contact.ttl_ms;
	row->connected = contact.connected && shared_state_has_elector();
	row->last_contact = contact.last_contact;
}

/* The problem that matters most to an election. */
static void
read_problem(EtcdLeaderStatus *row)
{
	static Problems problems;
	const Problem *first;

	problems_read(&problems);
	first = problems_first(&problems, row->election);
	if (first == NULL)
		return;
	strlcpy(row->last_error, first->text, sizeof(row->last_error));
	row->last_error_at = first->since;
}

/* An election that was taken up. */
static void
show_election(const SharedElection *shared, EtcdLeaderStatus *row)
{
	const ElectionView *view = &shared->view;
	int64		now_ns = clock_now_ns();
	bool		holds;

	holds = shared->deadline_ns > now_ns;
	row->is_leader = holds && view->state != ELECTION_DRAINING;
	row->is_draining = holds && !row->is_leader;
	row->valid_for_us = row->is_leader ? (shared->deadline_ns - now_ns) / NSEC_PER_USEC : 0;
	if (shared_state_leader(shared, now_ns) != NULL)
	{
		strlcpy(row->leader, view->leader, sizeof(row->leader));
		row->fencing_token = view->leader_revision;
		row->leader_since = shared->leader_since;
	}

	/* the deadline may have passed without the elector's help */
	row->role = election_role_name(holds ? ELECTION_LEADER :
								   view->role == ELECTION_LEADER ? ELECTION_CANDIDATE : view->role);
	row->lease_id = view->lease;
	strlcpy(row->key, view->key, sizeof(row->key));
	row->create_revision = view->create_revision;
	row->state = election_state_name(view->state);
}

void
status_read_row(int index, EtcdLeaderStatus *row)
{
	SharedElection shared;

	memset(row, 0, sizeof(*row));
	strlcpy(row->election, settings_election_name(index), sizeof(row->election));
	read_contact(row);
	read_problem(row);
	stats_tally(row->election, &row->won, &row->lost);
	row->role = election_role_name(ELECTION_OBSERVER);
	row->state = "starting";
	if (status_read(index, &shared))
		show_election(&shared, row);
	if (!shared_state_has_elector())
		row->state = "elector_not_running";
}

bool
status_is_self(const EtcdLeaderStatus *row, const char *key, const char *node)
{
	return election_is_followed(row->election) ? strcmp(node, row->node) == 0 :
		strcmp(key, row->key) == 0;
}
