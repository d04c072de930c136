/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings of a hook: those of the server, and none of the database or
 *	  of the role.
 *
 * The owner of a database may be another than the role of a hook, which may be
 * a superuser.  By ALTER DATABASE he can change what statements mean and which
 * rows they find: DateStyle, TimeZone, gin_fuzzy_search_limit, and what the next
 * release or another library adds.  So no list of such settings is complete.
 *
 * Before the process connects, it has the settings of the server.  Each setting
 * that a database or a role can have is given the value that it has, as
 * one of a source above these (PGC_S_OVERRIDE).  When PostgreSQL applies the
 * settings of the database and of the role, it checks each, and changes none.
 * What RESET returns to does not change, either.
 *
 * What is left is a parameter that the server does not know yet, because its
 * library is loaded later: a placeholder.  It loses its value.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"

#include "base/compat.h"
#include "hooks.h"

/*
 * What must not depend on the server's own configuration, either, because it
 * changes what the command means or whether it commits.  A setting that this
 * release does not have is left out.
 */
static void
force_settings(void)
{
	static const struct
	{
		const char *name;
		const char *value;
	}			forced[] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"client_encoding", "UTF8"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"},
		{"standard_conforming_strings", "on"},
		{"backslash_quote", "safe_encoding"},
		{"transform_null_equals", "off"},
		{"exit_on_error", "off"},
		{"row_security", "on"},
		{"session_replication_role", "origin"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"idle_session_timeout", "0"},
		{"transaction_timeout", "0"},
		{"max_parallel_workers_per_gather", "0"},
		{"max_parallel_maintenance_workers", "0"},
		{"debug_parallel_query", "off"},
		{"force_parallel_mode", "off"},
		{"etcd_leader.require_leadership_of", ""}
	};

	for (Size i = 0; i < lengthof(forced); i++)
	{
		if (GetConfigOption(forced[i].name, true, false) != NULL)
			SetConfigOption(forced[i].name, forced[i].value, PGC_SUSET, PGC_S_OVERRIDE);
	}
}

void
hook_settings_pin(void)
{
	int			count;
	struct config_generic **settings = compat_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		char	   *value;

		/* ALTER DATABASE and ALTER ROLE can set no other ones */
		if (settings[i]->context != PGC_USERSET && settings[i]->context != PGC_SUSET)
			continue;
		value = compat_guc_value(settings[i]);
		if (value == NULL)
			continue;
		/* by whom it was set: a placeholder may prove to be for the server alone */
		(void) set_config_option(settings[i]->name, value, settings[i]->scontext, PGC_S_OVERRIDE,
								 GUC_ACTION_SET, true, DEBUG1, false);
		pfree(value);
	}
	force_settings();
}

static bool
is_of_database_or_role(GucSource source)
{
	return source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER;
}

void
hook_settings_forget(void)
{
	int			count;
	struct config_generic **settings = compat_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		if (!is_of_database_or_role(settings[i]->source) &&
			!is_of_database_or_role(settings[i]->reset_source))
			continue;
		/* it could not be pinned, though it has a value */
		if (settings[i]->vartype != PGC_STRING)
			elog(ERROR, "the value of \"%s\" that the database or the role has cannot be undone",
				 settings[i]->name);
		compat_guc_forget_string(settings[i]);
	}
}
