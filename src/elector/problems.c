/*-------------------------------------------------------------------------
 *
 * problems.c
 *	  The list of what is wrong, as it is made: for readers and for the log.
 *
 * Whoever knows the state of something says here that a problem of it begins or ends.
 * The list is compared with what the log has once in each turn of the elector.  So
 * what begins and ends within a turn is no problem.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "elector/problems.h"
#include "etcd/api.h"

/* A problem in the list, and what the list needs to know of it. */
typedef struct Entry
{
	Problem		problem;
	int64		until_ns;
	bool		is_of_turn;		/* it was begun in this turn */
	bool		is_logged;
	bool		has_other_text; /* than the log has */
	bool		is_judged_anew; /* since a reload */
	bool		has_ended;
} Entry;

static Entry entries[PROBLEMS_MAX];
static int	nentries;
static bool is_changed;			/* since it was published */

static Entry *
find(ProblemItem item, const char *subject)
{
	for (int i = 0; i < nentries; i++)
	{
		if (entries[i].problem.item == item && strcmp(entries[i].problem.subject, subject) == 0)
			return &entries[i];
	}
	return NULL;
}

/* An error takes the place of a warning if there is no other room.  NULL: there is none. */
static Entry *
add(ProblemItem item, const char *subject)
{
	Entry	   *entry = nentries < PROBLEMS_MAX ? &entries[nentries++] : NULL;

	for (int i = 0; i < nentries && entry == NULL && item < PROBLEM_FIRST_WARNING; i++)
	{
		if (entries[i].problem.item >= PROBLEM_FIRST_WARNING)
			entry = &entries[i];
	}
	if (entry == NULL)
		return NULL;
	memset(entry, 0, sizeof(*entry));
	entry->problem.item = item;
	strlcpy(entry->problem.subject, subject, sizeof(entry->problem.subject));
	entry->problem.since = GetCurrentTimestamp();
	return entry;
}

/* True if the text was another one. */
static bool
set_text(char *field, Size size, const char *text)
{
	char		cut[ETCD_LEADER_ERROR_SIZE];

	strlcpy(cut, text, Min(size, sizeof(cut)));
	cut[pg_encoding_mbcliplen(PG_UTF8, cut, (int) strlen(cut), (int) strlen(cut))] = '\0';
	if (strcmp(field, cut) == 0)
		return false;
	strcpy(field, cut);
	is_changed = true;
	return true;
}

void
problem_begin(ProblemItem item, const char *subject, int64 until_ns, const char *hint,
			  const char *format,...)
{
	char		text[2 * ETCD_LEADER_ERROR_SIZE];
	char		key[sizeof(((Problem *) 0)->subject)];
	Entry	   *entry;
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	strlcpy(key, subject, sizeof(key));
	entry = find(item, key);
	if (entry == NULL)
		entry = add(item, key);
	if (entry == NULL)
		return;
	if (hint == NULL)
		hint = etcd_hint(text);
	entry->until_ns = until_ns;
	entry->is_of_turn = true;
	entry->has_ended = false;
	entry->has_other_text |= set_text(entry->problem.text, sizeof(entry->problem.text), text);
	(void) set_text(entry->problem.hint, sizeof(entry->problem.hint), hint != NULL ? hint : "");
}

void
problem_end(ProblemItem item, const char *subject)
{
	Entry	   *entry = find(item, subject);

	if (entry != NULL)
		entry->has_ended = true;
}

void
problem_keep(ProblemItem item, const char *subject)
{
	Entry	   *entry = find(item, subject);

	if (entry != NULL)
		entry->is_of_turn = true;
}

void
problems_note_reload(void)
{
	for (int i = 0; i < nentries; i++)
	{
		entries[i].is_judged_anew = true;
		entries[i].has_other_text = false;
	}
}

bool
problem_is_there(ProblemItem item, const char *subject)
{
	const Entry *entry = find(item, subject);

	return entry != NULL && !entry->has_ended;
}

/* ---- once in each turn ------------------------------------------------------ */

static void
log_begin(const Problem *problem)
{
	ereport(WARNING,
			(errmsg_internal("%s", problem->text),
			 problem->hint[0] != '\0' ? errhint("%s", problem->hint) : 0));
}

static void
log_end(const Problem *problem)
{
	ereport(LOG,
			(errmsg("this problem is over: %s", problem->text)));
}

static void
remove_ended(void)
{
	int			kept = 0;

	for (int i = 0; i < nentries; i++)
	{
		if (!entries[i].has_ended)
		{
			entries[kept++] = entries[i];
			continue;
		}
		if (entries[i].is_logged)
			log_end(&entries[i].problem);
		is_changed = true;
	}
	nentries = kept;
}

/* See Problems. */
static int
compare(const void *a, const void *b)
{
	const Problem *one = a;
	const Problem *other = b;
	bool		one_is_warning = one->item >= PROBLEM_FIRST_WARNING;
	bool		other_is_warning = other->item >= PROBLEM_FIRST_WARNING;

	if (one_is_warning != other_is_warning)
		return one_is_warning ? 1 : -1;
	if (one->since != other->since)
		return one->since < other->since ? 1 : -1;
	return (int) one->item - (int) other->item;
}

static void
publish(void)
{
	static Problems list;

	list.n = nentries;
	for (int i = 0; i < nentries; i++)
		list.problems[i] = entries[i].problem;
	qsort(list.problems, list.n, sizeof(Problem), compare);
	problems_publish(&list);
	is_changed = false;
}

void
problems_refresh(void)
{
	int64		now_ns = clock_now_ns();

	for (int i = 0; i < nentries; i++)
	{
		Entry	   *entry = &entries[i];

		entry->has_ended |= entry->until_ns <= now_ns && !entry->is_of_turn;
		entry->is_of_turn = false;
	}
	remove_ended();
	if (!is_changed)
		return;

	/* readers first: the log may be slow */
	publish();
	for (int i = 0; i < nentries; i++)
	{
		Entry	   *entry = &entries[i];

		if (entry->is_logged && !(entry->is_judged_anew && entry->has_other_text))
			continue;
		log_begin(&entry->problem);
		entry->is_logged = true;
		entry->is_judged_anew = false;
	}
}
