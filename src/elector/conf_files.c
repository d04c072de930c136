/*-------------------------------------------------------------------------
 *
 * conf_files.c
 *	  Lines of the server's files of settings that the server does not accept.
 *
 * A reload logs such a line, and goes on without it.  The next start of the server
 * fails by it.  So each setting of the files is validated as at a start of the server,
 * and not changed.
 *
 * The view pg_file_settings needs a database, which the elector does not have, and
 * shows a change that waits for a restart as an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"

#include "elector/conf_files.h"
#include "elector/problems.h"
#include "etcd/text.h"

/* The first ones are enough to begin with. */
#define MAX_FAULTS			8

/* What the last look has found. */
static struct
{
	char		subject[ETCD_LEADER_NAME_SIZE]; /* a setting; of a line without one: its file */
	char		text[ETCD_LEADER_ERROR_SIZE];
}			faults[MAX_FAULTS];
static int	nfaults;

static const char *
base_name(const char *path)
{
	const char *slash = path != NULL ? last_dir_separator(path) : NULL;

	return slash != NULL ? slash + 1 : path != NULL ? path : "postgresql.conf";
}

static void
add_fault(const ConfigVariable *line, const char *subject, const char *what)
{
	if (nfaults == MAX_FAULTS)
		return;
	strlcpy(faults[nfaults].subject, etcd_escape_text(subject), sizeof(faults[nfaults].subject));
	snprintf(faults[nfaults].text, sizeof(faults[nfaults].text), "line %d of file \"%s\": %s",
			 line->sourceline, etcd_escape_text(base_name(line->filename)), what);
	nfaults++;
}

/* Of several lines for one setting, the server uses the last one. */
static bool
is_overridden(const ConfigVariable *line)
{
	for (const ConfigVariable *later = line->next; later != NULL; later = later->next)
	{
		if (later->name != NULL && pg_strcasecmp(later->name, line->name) == 0)
			return true;
	}
	return false;
}

/* The server has accepted it, though it may not fit to another setting any more. */
static bool
is_in_force(const ConfigVariable *line)
{
	const char *value = GetConfigOption(line->name, true, false);

	return value != NULL && strcmp(value, line->value) == 0;
}

static void
look_at_line(const ConfigVariable *line)
{
	if (line->errmsg != NULL)
		add_fault(line, line->name != NULL ? line->name : base_name(line->filename), line->errmsg);
	else if (line->name == NULL || line->ignore || is_overridden(line) || is_in_force(line))
		return;
	else if (set_config_option(line->name, line->value, PGC_POSTMASTER, PGC_S_FILE,
							   GUC_ACTION_SET, false, DEBUG5, false) == 0)
		add_fault(line, line->name,
				  psprintf(GetConfigOption(line->name, true, false) == NULL ?
						   "unrecognized configuration parameter \"%s\"" :
						   "invalid value for parameter \"%s\"", line->name));
}

void
elector_look_at_conf_files(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "files of settings",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	ConfigVariable *first = NULL;
	ConfigVariable *last = NULL;

	nfaults = 0;
	(void) ParseConfigFile(ConfigFileName, true, NULL, 0, 0, DEBUG5, &first, &last);
	(void) ParseConfigFile(PG_AUTOCONF_FILENAME, false, NULL, 0, 0, DEBUG5, &first, &last);
	for (const ConfigVariable *line = first; line != NULL; line = line->next)
		look_at_line(line);
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

void
elector_find_conf_problems(void)
{
	for (int i = 0; i < nfaults; i++)
		problem_begin(PROBLEM_SETTINGS, faults[i].subject, PROBLEM_THIS_TURN,
					  "Correct the line. The next start of the server may fail by it.",
					  "%s", faults[i].text);
}
