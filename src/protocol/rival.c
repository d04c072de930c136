/*-------------------------------------------------------------------------
 *
 * rival.c
 *	  Other primaries of the same database system (SECOND): what is known of them.
 *
 * Two primaries of one database system have diverged, or are about to.  The names of
 * keys tell which candidates are such primaries.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"
#include "key_name.h"
#include "rival.h"

/* Does the rule hold for this instance, on its timeline? */
static bool
is_bound(const ElectionCore *core, const Election *e)
{
	return core->config.refuses_second && core->config.timeline != 0 &&
		e->rival.timelines.accepted != core->config.timeline;
}

/* The timeline of a leader that is a primary of this database system; 0: it is none. */
static uint32_t
leading_timeline(const ElectionCore *core, const Election *e)
{
	KeyOwner	owner = key_name_parse(e, bytes_of_key(&e->leader.key));

	return e->leader.is_known &&
		strcmp(owner.system_identifier, core->config.system_identifier) == 0 ? owner.timeline : 0;
}

bool
rival_leads(const ElectionCore *core, const Election *e)
{
	return is_bound(core, e) && !is_queue_key(&e->leader.key, bytes_of(e->own.key)) &&
		leading_timeline(core, e) != 0;
}

bool
rival_refuses(const ElectionCore *core, const Election *e)
{
	return is_bound(core, e) && (e->rival.timelines.refused == core->config.timeline ||
								 e->rival.timelines.leading > core->config.timeline);
}

static void
remember(ElectionCore *core, const Election *e)
{
	core->port.remember_timelines(core->port.ctx, e->name, &e->rival.timelines);
}

void
rival_learn_leader(ElectionCore *core, Election *e)
{
	uint32_t	timeline = leading_timeline(core, e);

	if (timeline <= e->rival.timelines.leading)
		return;
	e->rival.timelines.leading = timeline;
	remember(core, e);
}

void
rival_refuse(ElectionCore *core, Election *e)
{
	e->rival.timelines.refused = core->config.timeline;
	remember(core, e);
}

/*
 * By the settings, or by command.  From now on others may see this instance lead, and stay
 * out.  So it must not stay out for what it knew before.
 */
void
rival_note_entry(ElectionCore *core, Election *e)
{
	if (e->rival.timelines.refused == 0)
		return;
	e->rival.timelines.refused = 0;
	remember(core, e);
}

/*
 * A leader on an earlier timeline leads by the setting "wait".  Other primaries stay out
 * meanwhile.  So this instance must not stay out, too, when the setting changes.
 */
void
rival_note_leading(ElectionCore *core, Election *e)
{
	ElectionTimelines *known = &e->rival.timelines;

	if (known->leading <= core->config.timeline ||
		known->accepted == core->config.timeline)
		return;
	known->accepted = core->config.timeline;
	remember(core, e);
}

void
rival_accept(ElectionCore *core, Election *e)
{
	e->rival.timelines.accepted = core->config.timeline;
	remember(core, e);
}
