/*-------------------------------------------------------------------------
 *
 * file.c
 *	  Reads etcd_leader.hooks_file.
 *
 * PostgreSQL's own tokenizer of pg_hba.conf makes fields of it.  Before that, a
 * check refuses what the tokenizer would accept or follow: an open quote, lists,
 * and other files.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "storage/fd.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "hooks.h"
#include "settings/settings.h"

#define MIN_TIMEOUT_MS	1000
#define MAX_TIMEOUT_MS	(24 * 60 * 60 * 1000)

enum
{
	FIELD_EVENT, FIELD_ELECTION, FIELD_DATABASE, FIELD_ROLE, FIELD_TIMEOUT, FIELD_COMMAND, NFIELDS
};

/* ---- bytes ------------------------------------------------------------- */

/* What is wrong with an open file; NULL: nothing. */
static const char *
check_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return psprintf("%m");
	if (!S_ISREG(st.st_mode))
		return "it is not a regular file";
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return "it must be owned by the user of the server or by root";
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return "group or others have permission to write it";
	return NULL;
}

/* The content, palloc'd and with a NUL at its end.  NULL and *error: it cannot be had. */
static char *
read_text(const char *path, int *len, const char **error)
{
	char	   *text = palloc(HOOKS_FILE_SIZE + 2);
	int			fd = BasicOpenFile(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | PG_BINARY);

	*error = fd < 0 ? psprintf("%m") : check_file(fd);
	if (*error == NULL && (*len = (int) read(fd, text, HOOKS_FILE_SIZE + 1)) < 0)
		*error = psprintf("%m");
	else if (*error == NULL && *len > HOOKS_FILE_SIZE)
		*error = "it is larger than 64 kB";
	if (fd >= 0)
		close(fd);
	if (*error != NULL)
		return NULL;
	text[*len] = '\0';
	return text;
}

/* Is the end of line at p taken away by a backslash? */
static bool
is_continued(const char *text, const char *p)
{
	while (p > text && p[-1] == '\r')
		p--;
	return p > text && p[-1] == '\\';
}

/* Behind a backslash and the end of line that it takes away; p: there is none. */
static const char *
skip_continuation(const char *p)
{
	const char *end = p + 1 + strspn(p + 1, "\r");

	return *p == '\\' && *end == '\n' ? end + 1 : p;
}

/*
 * Does the first field of the line at p begin with "include" as the tokenizer
 * would have it: without quotes, and without the backslashes that continue a
 * line?
 */
static bool
is_include(const char *p)
{
	static const char include[] = "include";
	const char *next = include;
	bool		in_quote = false;
	bool		was_quote = false;
	bool		has_begun = false;

	for (;; p++)
	{
		const char *end = skip_continuation(p);

		if (end > p)
		{
			p = end - 1;
			continue;
		}
		if (*p == '\0' || *p == '\n')
			return false;
		if (!has_begun && isspace((unsigned char) *p))
			continue;
		has_begun = true;
		if (*p != '"' || was_quote)
		{
			if (*p != *next++)
				return false;
			if (*next == '\0')
				return true;
		}
		/* two quotes in a quoted string are one */
		was_quote = in_quote && *p == '"' && !was_quote;
		if (*p == '"')
			in_quote = !in_quote;
	}
}

/*
 * What is wrong with the text, and in which line; NULL: nothing.  *line is the
 * first physical line of a continued line.
 */
static const char *
check_text(const char *text, int *line)
{
	bool		in_quote = false;
	bool		in_comment = false;
	bool		at_start = true;
	int			nlines = 1;

	*line = 1;
	for (const char *p = text; *p != '\0'; p++)
	{
		if (*p == '\n')
		{
			nlines++;
			if (is_continued(text, p) && in_comment)
				return "a comment must not end with a backslash";
			if (is_continued(text, p))
				continue;
			if (in_quote)
				return "unterminated quoted string";
			in_comment = false;
			at_start = true;
			*line = nlines;
		}
		else if (in_comment || (at_start && isspace((unsigned char) *p)))
			continue;
		else if (at_start && is_include(p))
			return "\"include\" is not supported";
		else if (*p == '"')
			in_quote = !in_quote;
		else if (!in_quote && (*p == ',' || *p == '@'))
			return "lists and \"@\" are not supported outside of quotes";
		else if (!in_quote && *p == '#')
			in_comment = true;
		if (*p != '\n')
			at_start = false;
	}
	return in_quote ? "unterminated quoted string" : NULL;
}

/* ---- lines --------------------------------------------------------------- */

static bool
is_watched(const char *prefix)
{
	List	   *watched = settings_split(settings_watched_prefixes);
	ListCell   *cell;

	foreach(cell, watched)
	{
		if (strncmp(prefix, lfirst(cell), strlen(lfirst(cell))) == 0)
			return true;
	}
	return false;
}

/* The election, or for `change` the prefix.  What is wrong with it; NULL: nothing. */
static const char *
fill_election(Hook *hook, const AuthToken *token)
{
	if (!token->quoted && strcmp(token->string, "all") == 0)
		return NULL;
	if (token->string[0] == '\0')
		return "ELECTION must not be empty";
	if (hook->event == HOOK_CHANGE &&
		(strlen(token->string) >= sizeof(hook->election) || !is_watched(token->string)))
		return psprintf("keys with the prefix \"%s\" are not watched; see "
						"\"etcd_leader.watched_prefixes\"", token->string);
	if (hook->event != HOOK_CHANGE &&
		settings_election_index(token->string, (int) strlen(token->string)) < 0)
		return psprintf("election \"%s\" does not exist", token->string);
	strlcpy(hook->election, token->string, sizeof(hook->election));
	return NULL;
}

static uint64
hash_hook(const Hook *hook, const char *command)
{
	StringInfoData all;

	initStringInfo(&all);
	appendStringInfo(&all, "%d %s%c%s%c%s%c%s", (int) hook->event, hook->election, 0,
					 hook->database, 0, hook->role, 0, command);
	return hash_bytes_extended((unsigned char *) all.data, all.len, 0);
}

/* Makes a hook of the fields.  What is wrong with them; NULL: nothing. */
static const char *
fill_hook(HookSet *set, Hook *hook, List *fields, uint32 *ncommands)
{
	AuthToken  *tokens[NFIELDS];
	const char *error;
	ListCell   *cell;

	if (list_length(fields) != NFIELDS)
		return "a hook has six fields: EVENT ELECTION DATABASE ROLE TIMEOUT \"COMMAND\"";
	foreach(cell, fields)
		tokens[foreach_current_index(cell)] = linitial(lfirst_node(List, cell));

	for (hook->event = 0; hook->event < HOOK_NEVENTS; hook->event++)
	{
		if (strcmp(tokens[FIELD_EVENT]->string, hook_event_name(hook->event)) == 0)
			break;
	}
	if (hook->event == HOOK_NEVENTS)
		return psprintf("unknown event \"%s\"; it is elected, unelected or change",
						tokens[FIELD_EVENT]->string);
	if ((error = fill_election(hook, tokens[FIELD_ELECTION])) != NULL)
		return error;
	if (tokens[FIELD_DATABASE]->string[0] == '\0' ||
		strlcpy(hook->database, tokens[FIELD_DATABASE]->string, NAMEDATALEN) >= NAMEDATALEN ||
		tokens[FIELD_ROLE]->string[0] == '\0' ||
		strlcpy(hook->role, tokens[FIELD_ROLE]->string, NAMEDATALEN) >= NAMEDATALEN)
		return "DATABASE and ROLE must be 1 to 63 bytes long";
	if (!parse_int(tokens[FIELD_TIMEOUT]->string, &hook->timeout_ms, GUC_UNIT_MS, NULL) ||
		hook->timeout_ms < MIN_TIMEOUT_MS || hook->timeout_ms > MAX_TIMEOUT_MS)
		return psprintf("invalid timeout \"%s\"; it is 1s to 1d", tokens[FIELD_TIMEOUT]->string);
	if (!tokens[FIELD_COMMAND]->quoted || tokens[FIELD_COMMAND]->string[0] == '\0')
		return "COMMAND must be in double quotes and not empty";
	hook->command = *ncommands;
	*ncommands += strlcpy(set->commands + *ncommands, tokens[FIELD_COMMAND]->string,
						  sizeof(set->commands) - *ncommands) + 1;
	hook->id = hash_hook(hook, tokens[FIELD_COMMAND]->string);
	if (hooks_find(set, hook->id) != NULL)
		return psprintf("the same hook is in line %d", hooks_find(set, hook->id)->line);
	return NULL;
}

/* Makes hooks of the lines.  What is wrong, and in which line; NULL: nothing. */
static const char *
fill_set(HookSet *set, List *lines, int *line)
{
	uint32		ncommands = 0;
	ListCell   *cell;

	foreach(cell, lines)
	{
		const TokenizedAuthLine *tokenized = lfirst(cell);
		const char *error = tokenized->err_msg;

		*line = tokenized->line_num;
		if (error == NULL && set->nhooks == HOOKS_MAX)
			error = psprintf("there are more than %d hooks", HOOKS_MAX);
		if (error == NULL)
			error = fill_hook(set, &set->hooks[set->nhooks], tokenized->fields, &ncommands);
		if (error != NULL)
			return pstrdup(error);
		set->hooks[set->nhooks++].line = *line;
	}
	return NULL;
}

/* The same for the text of a file. */
static const char *
parse_text(HookSet *set, const char *path, char *text, int len, int *line)
{
	const char *error;
	FILE	   *file;
	FILE	   *tokenizer;
	List	   *lines = NIL;
	int			valid = pg_encoding_verifymbstr(PG_UTF8, text, len);

	if (valid < len)
	{
		*line = 1;
		for (int i = 0; i < valid; i++)
			*line += text[i] == '\n';
		return "invalid UTF-8, or a byte of zero";
	}
	error = check_text(text, line);
	if (error != NULL || len == 0)
		return error;
	file = fmemopen(text, len, "r");
	if (file == NULL)
		return psprintf("%m");
	tokenizer = compat_begin_tokenizing();
	compat_tokenize(path, file, &lines);
	error = fill_set(set, lines, line);
	compat_end_tokenizing(tokenizer);
	fclose(file);
	return error;
}

const char *
hooks_file_read(const char *path, HookSet *set)
{
	int			len = 0;
	int			line = 0;
	const char *error;
	char	   *text;

	if (path[0] == '\0')
		return NULL;
	strlcpy(set->path, path, sizeof(set->path));
	text = read_text(path, &len, &error);
	if (text == NULL)
		return psprintf("could not load hooks file \"%s\": %s", path, error);
	error = parse_text(set, path, text, len, &line);
	return error ? psprintf("line %d of hooks file \"%s\": %s", line, path, error) : NULL;
}
