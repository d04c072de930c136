/*-------------------------------------------------------------------------
 *
 * set_up.c
 *	  What is wrong with the set-up of this instance: settings, files, elections and
 *	  workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/certificate.h"
#include "base/clock.h"
#include "base/secret_file.h"
#include "elector/conf_files.h"
#include "elector/contact.h"
#include "elector/core.h"
#include "elector/endpoints.h"
#include "elector/problems.h"
#include "elector/set_up.h"
#include "etcd/text.h"
#include "hooks/hooks.h"
#include "settings/settings.h"
#include "shared/identity_file.h"
#include "shared/notifier_register.h"

/*
 * The least time between looks at the files.  A turn comes every 5 s at least, so this file
 * asks for no turn.
 */
#define LOOK_INTERVAL_MS	5000

/* A worker may be away for so long, as when it is started again. */
#define WORKERS_PATIENCE_MS	10000

/* The files of the settings; those from FIRST_SECRET on are secret. */
#define NFILES			4
#define FIRST_SECRET	2

static const char *const file_settings[NFILES] = {
	"etcd_leader.ssl_ca_file", "etcd_leader.ssl_cert_file", "etcd_leader.ssl_key_file",
	"etcd_leader.password_file"
};

/* What the last look at the files has found; empty: no fault. */
static char file_faults[NFILES][ETCD_MESSAGE_SIZE];
static char certificate_fault[ETCD_MESSAGE_SIZE];
static bool has_expiry;
static double expiry_days;
static int64 look_due_ns;

/* Who else has the name of this instance, by slot; an empty key: nobody. */
static struct
{
	char		election[ELECTION_NAME_SIZE];
	char		node_name[ELECTION_VALUE_SIZE];
	char		key[ELECTION_KEY_SIZE];
}			duplicates[ELECTION_MAX_ELECTIONS];

/* ---- files --------------------------------------------------------------- */

static const char *
file_of(int i)
{
	switch (i)
	{
		case 0:
			return settings_ssl_ca_file;
		case 1:
			return settings_ssl_cert_file;
		case 2:
			return settings_key_file();
		default:
			return settings_username[0] != '\0' ? settings_password_file : "";
	}
}

static void
look_at_file(int i, const char *path)
{
	struct stat status;
	const char *fault;

	file_faults[i][0] = '\0';
	if (path[0] == '\0')
		return;
	if (stat(path, &status) != 0 || access(path, R_OK) != 0)
		etcd_format_message(file_faults[i], "could not access file \"%s\" (\"%s\"): %s",
							path, file_settings[i], strerror(errno));
	else if (i >= FIRST_SECRET && (fault = secret_file_fault(&status)) != NULL)
		etcd_format_message(file_faults[i], "file \"%s\" (\"%s\") %s", path, file_settings[i],
							fault);
}

static void
look_at_files(void)
{
	const char *certificate = settings_ssl_cert_file;
	char		fault[ETCD_MESSAGE_SIZE];

	for (int i = 0; i < NFILES; i++)
		look_at_file(i, file_of(i));
	certificate_fault[0] = '\0';
	has_expiry = certificate[0] != '\0' && certificate_read_expiry(certificate, &expiry_days);
	/* that it has expired is said by its expiry */
	if (certificate[0] != '\0' && !(has_expiry && expiry_days < 0) &&
		certificate_find_fault(certificate, settings_key_file(), fault, sizeof(fault)))
		etcd_format_message(certificate_fault, "%s", fault);
}

static void
find_file_problems(void)
{
	const char *certificate = settings_ssl_cert_file;

	for (int i = 0; i < NFILES; i++)
	{
		if (file_faults[i][0] != '\0')
			problem_begin(PROBLEM_FILE, file_settings[i], PROBLEM_THIS_TURN,
						  "Correct the setting, or the owner and the permissions of the file.",
						  "%s", file_faults[i]);
	}
	if (certificate_fault[0] != '\0')
		problem_begin(PROBLEM_CERTIFICATE, certificate, PROBLEM_THIS_TURN, NULL, "%s",
					  certificate_fault);
	else if (has_expiry)
		elector_find_expiry(certificate, "in", expiry_days,
							"Renew the certificate. The file is read for each new connection.");
}

/* ---- hooks --------------------------------------------------------------- */

/* What is wrong in the file, and with a run, is for those who may read the views of hooks. */
static void
find_hook_problems(void)
{
	const HookSet *set;

	/* without a file, the memory of hooks is not touched */
	if (settings_hooks_file[0] == '\0')
		return;
	set = hooks_current();
	if (hooks_memory->error[0] != '\0')
		problem_begin(PROBLEM_HOOKS_FILE, "", PROBLEM_THIS_TURN,
					  "The view etcd_leader_hooks_file has the error. Correct the file, and reload "
					  "the configuration.",
					  "the file of hooks has a mistake, and is not in force");
	for (int i = 0; i < set->nhooks; i++)
	{
		const Hook *hook = &set->hooks[i];

		if (hook->status == HOOK_FAILED || hook->status == HOOK_CRASHED)
			problem_begin(PROBLEM_HOOK, psprintf("line %d", hook->line), PROBLEM_THIS_TURN,
						  "The view etcd_leader_hooks has the error. The hook is tried again.",
						  "the last run of the hook in line %d of the file of hooks has failed",
						  hook->line);
	}
}

/* ---- settings ------------------------------------------------------------ */

static void
find_setting_problems(void)
{
	const char *read_only = settings_read_only_unless_leader_of;
	const char *user_error = etcd_client_user_error(elector_client);
	bool		cut;

	if (settings_election_count() == 0)
		problem_begin(PROBLEM_ELECTIONS, "", PROBLEM_THIS_TURN,
					  "Set \"etcd_leader.elections\" to the name of the cluster, the same on all "
					  "of its instances, and reload the configuration.",
					  "\"etcd_leader.elections\" is not set, so this instance takes part in no "
					  "election");
	if (read_only[0] != '\0' && settings_election_index(read_only, (int) strlen(read_only)) < 0)
		problem_begin(PROBLEM_SETTINGS, "etcd_leader.read_only_unless_leader_of", PROBLEM_THIS_TURN,
					  "The elections are those listed in \"etcd_leader.elections\".",
					  "\"etcd_leader.read_only_unless_leader_of\" names election \"%s\", which "
					  "does not exist, so sessions on this instance are read-only by default",
					  read_only);
	(void) settings_resolve_safety_margin_ms(&cut);
	if (cut)
		problem_begin(PROBLEM_TTL, "etcd_leader.safety_margin", PROBLEM_THIS_TURN,
					  "Set \"etcd_leader.safety_margin\" to less than half of \"etcd_leader.ttl\".",
					  "\"etcd_leader.safety_margin\" is more than half of \"etcd_leader.ttl\", and "
					  "that half is used");
	else
	{
		int			ttl_ms = settings_ttl_s * 1000;
		int			timeout_ms = settings_resolve_timeout_ms(settings_request_timeout_ms, ttl_ms);
		int			margin_ms = settings_resolve_safety_margin_ms(&cut);

		if ((int64) timeout_ms * 3 > ttl_ms - margin_ms)
			problem_begin(PROBLEM_TTL, "etcd_leader.request_timeout", PROBLEM_THIS_TURN,
						  "Lower \"etcd_leader.request_timeout\", or raise \"etcd_leader.ttl\".",
						  "fewer than three requests fit into the TTL: it is %d ms, the safety "
						  "margin %d ms, and the request time-out %d ms",
						  ttl_ms, margin_ms, timeout_ms);
	}
	if (user_error[0] != '\0')
		problem_begin(PROBLEM_USER, settings_username, PROBLEM_THIS_TURN, NULL, "%s", user_error);
}

/* A restored backup that is never a candidate needs no word about it. */
static void
find_copy_problem(void)
{
	if (identity_is_copy() && (settings_candidate != CANDIDATE_NEVER || settings_follow_patroni()))
		problem_begin(PROBLEM_COPY, "", PROBLEM_THIS_TURN,
					  "If this server takes the place of the other one, call etcd_campaign() on "
					  "it. If not, set \"etcd_leader.candidate\" to \"never\".",
					  "the data directory of this server is a copy of one of host \"%s\", so this "
					  "instance is no candidate",
					  etcd_escape_text(identity_copied_host()));
}

/* ---- elections ------------------------------------------------------------- */

void
elector_note_duplicate_name(const char *election, const char *key)
{
	int			slot = election_find(elector_core, election);

	if (slot < 0)
		return;
	strlcpy(duplicates[slot].election, election, ELECTION_NAME_SIZE);
	strlcpy(duplicates[slot].node_name, elector_contact()->node_name, ELECTION_VALUE_SIZE);
	strlcpy(duplicates[slot].key, key != NULL ? key : "", ELECTION_KEY_SIZE);
}

static void
find_name_problems(void)
{
	for (int i = 0; i < ELECTION_MAX_ELECTIONS; i++)
	{
		const char *election = duplicates[i].election;

		if (duplicates[i].key[0] != '\0' && election_find(elector_core, election) == i &&
			strcmp(duplicates[i].node_name, elector_contact()->node_name) == 0)
			problem_begin(PROBLEM_NODE_NAME, election, PROBLEM_THIS_TURN, NULL,
						  "another candidate of election \"%s\" is also named \"%s\" (its key is "
						  "\"%s\")",
						  election, duplicates[i].node_name, etcd_escape_text(duplicates[i].key));
	}
}

/*
 * The name of this instance leads, and it is not this instance: a standby has the
 * primary's settings, or an earlier life of this instance still has a key.  Such a key
 * is gone after its TTL.
 */
static int64
find_namesake(int slot, const ElectionView *view, int64 now_ns)
{
	static int64 since_ns[ELECTION_MAX_ELECTIONS];
	const char *name = elector_contact()->node_name;
	int64		due_ns;

	if (election_is_followed(view->name) || !view->has_leader || view->create_revision != 0 ||
		strcmp(view->leader, name) != 0)
	{
		since_ns[slot] = 0;
		return PG_INT64_MAX;
	}
	if (since_ns[slot] == 0)
		since_ns[slot] = now_ns;
	due_ns = since_ns[slot] + 2 * settings_ttl_s * NSEC_PER_SEC;
	if (now_ns < due_ns)
		return due_ns;
	problem_begin(PROBLEM_NODE_NAME, view->name, PROBLEM_THIS_TURN, NULL,
				  "the leader of election \"%s\" is also named \"%s\"", view->name, name);
	return PG_INT64_MAX;
}

static int64
find_election_problems(int64 now_ns)
{
	int64		due_ns = PG_INT64_MAX;

	for (int i = 0; i < settings_election_count(); i++)
	{
		const char *name = settings_election_name(i);
		uint64		layout;
		int			slot = shared_state_find(name, &layout);
		SharedElection election;

		if (!shared_state_read(slot, layout, &election))
			continue;
		if (election.view.state == ELECTION_SECOND_PRIMARY)
			problem_begin(PROBLEM_SECOND_PRIMARY, name, PROBLEM_THIS_TURN,
						  "If the data of this instance is the right one, call etcd_campaign() on "
						  "it. If not, make it a standby of the leader with pg_rewind or "
						  "pg_basebackup.",
						  "this instance stays out of election \"%s\": %s", name,
						  election.view.problem);
		else if (election.view.problem[0] != '\0')
			problem_begin(PROBLEM_ELECTION, name, PROBLEM_THIS_TURN, NULL, "election \"%s\": %s",
						  name, election.view.problem);
		if (election.view.state == ELECTION_HELD_BACK)
			problem_begin(PROBLEM_HELD_BACK, name, PROBLEM_THIS_TURN,
						  "If no earlier leader works with its token any more, call "
						  "etcd_campaign() on this instance.",
						  "election \"%s\" is held back: somebody has put etcd back to an earlier "
						  "state, and tokens could repeat",
						  name);
		if (election.view.state == ELECTION_RESIGNED)
			problem_begin(PROBLEM_RESIGNED, name, PROBLEM_THIS_TURN,
						  "Call etcd_campaign() on this instance when it may lead again.",
						  "this instance stays out of election \"%s\" since it has resigned", name);
		due_ns = Min(due_ns, find_namesake(slot, &election.view, now_ns));
	}
	return due_ns;
}

/* ---- workers --------------------------------------------------------------- */

static int64
find_worker_problems(int64 now_ns)
{
	static int64 missing_since_ns = 0;
	int			expected = notifier_register_expected();
	int			running = notifier_register_running();

	if (running >= expected)
	{
		missing_since_ns = 0;
		return PG_INT64_MAX;
	}
	if (missing_since_ns == 0)
		missing_since_ns = now_ns;
	if (now_ns - missing_since_ns < WORKERS_PATIENCE_MS * NSEC_PER_MSEC)
		return missing_since_ns + WORKERS_PATIENCE_MS * NSEC_PER_MSEC;
	problem_begin(PROBLEM_WORKERS, "notifiers", PROBLEM_THIS_TURN,
				  "See the server log, check the databases in \"etcd_leader.notify_databases\", "
				  "and increase \"max_worker_processes\" if it is too small.",
				  "%d of %d notifiers run", running, expected);
	return PG_INT64_MAX;
}

/* ---- all of it --------------------------------------------------------------- */

void
elector_look_at_files(void)
{
	look_due_ns = 0;
}

int64
elector_find_set_up_problems(void)
{
	int64		now_ns = clock_now_ns();

	if (look_due_ns <= now_ns)
	{
		look_at_files();
		elector_look_at_conf_files();
		look_due_ns = now_ns + LOOK_INTERVAL_MS * NSEC_PER_MSEC;
	}
	find_file_problems();
	find_hook_problems();
	find_setting_problems();
	find_copy_problem();
	elector_find_conf_problems();
	find_name_problems();
	return Min(find_election_problems(now_ns), find_worker_problems(now_ns));
}
