/*-------------------------------------------------------------------------
 *
 * small_elections.c
 *	  What the fence needs of the settings, the status and the events.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/utf8.h"
#include "settings/settings.h"
#include "shared/events.h"
#include "shared/state.h"
#include "shared/status.h"
#include "small_elections.h"

const char *const election_names[NELECTIONS + 1] = {"alpha", "beta", ""};

const char *
settings_election_name(int index)
{
	if (index < 0 || index > NELECTIONS)
		abort();
	return election_names[index];
}

int
settings_election_index(const char *name, int len)
{
	for (int i = 0; i < NELECTIONS; i++)
	{
		if (strcmp(election_names[i], name) == 0)
			return i;
	}
	return -1;
}

bool
status_leads(int index)
{
	return status_token(index) != 0;
}

int64
status_token(int index)
{
	uint64		layout;
	int			slot;

	if (index < 0)
		return 0;
	slot = shared_state_find(election_names[index], &layout);
	return shared_state_token(slot, layout);
}

char *
utf8_to_server(const char *utf8)
{
	return (char *) utf8;
}

void
events_wake(void)
{
}

void
events_wake_all(void)
{
}
