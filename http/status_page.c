/*-------------------------------------------------------------------------
 *
 * status_page.c
 *	  A page for people: elections, queues, events.
 *
 * It has no script and needs no other file.  It refreshes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "http.h"

#define EVENTS_SHOWN	20

static const char head[] =
"<!DOCTYPE html>\n"
"<html lang=\"en\">\n"
"<head>\n"
"<meta charset=\"utf-8\">\n"
"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
"<meta http-equiv=\"refresh\" content=\"2\">\n"
"<style>\n"
":root { color-scheme: light dark;\n"
"--line: #8884; --good: #1a7f37; --bad: #cf222e; --dim: #8a8a8a }\n"
"body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1em; max-width: 60em }\n"
"h1 { font-size: 1.3em; margin: 0 } h2 { font-size: 1.05em; margin: 1.6em 0 .3em }\n"
"h1, h2, p { overflow-wrap: break-word } p { margin: .2em 0 }\n"
".dim { color: var(--dim) } .good { color: var(--good) } .bad { color: var(--bad) }\n"
".big { font-size: 1.15em; font-weight: 600 }\n"
"table { border-collapse: collapse; width: 100% }\n"
"td, th { text-align: left; padding: .25em .6em .25em 0; border-bottom: 1px solid var(--line);\n"
"vertical-align: top; overflow-wrap: break-word; max-width: 40vw;\n"
"font-variant-numeric: tabular-nums }\n"
"th { font-weight: 500; color: var(--dim) } .self { font-weight: 600 }\n"
"@media (max-width: 34em) { .wide { display: none } body { padding: .7em } }\n"
"</style>\n";

/* Text of a page. */
static void
append_text(StringInfo out, const char *text)
{
	for (const char *c = http_valid_text(text); *c != '\0'; c++)
	{
		if (strchr("<>&\"'", *c) != NULL)
			appendStringInfo(out, "&#%d;", *c);
		else
			appendStringInfoChar(out, *c);
	}
}

static void
append_cell(StringInfo out, const char *class, const char *text)
{
	appendStringInfo(out, "<td class=\"%s\">", class);
	append_text(out, text);
	appendStringInfoString(out, "</td>");
}

/* Empty for 0. */
static void
append_number_cell(StringInfo out, const char *class, int64 number)
{
	append_cell(out, class, number == 0 ? "" : psprintf(INT64_FORMAT, number));
}

/* "12 s", "5 min", "3 h", "2 d" */
static void
append_ago(StringInfo out, TimestampTz at)
{
	int64		s = (GetCurrentTimestamp() - at) / USECS_PER_SEC;

	if (s < 120)
		appendStringInfo(out, "%d s", (int) Max(s, 0));
	else if (s < 2 * SECS_PER_HOUR)
		appendStringInfo(out, "%d min", (int) (s / SECS_PER_MINUTE));
	else if (s < 2 * SECS_PER_DAY)
		appendStringInfo(out, "%d h", (int) (s / SECS_PER_HOUR));
	else
		appendStringInfo(out, "%d d", (int) (s / SECS_PER_DAY));
}

/* ---- elections ------------------------------------------------------------------ */

static void
append_queue(StringInfo out, const HttpQueue *queue)
{
	if (queue == NULL || queue->nplaces < 0)
	{
		appendStringInfo(out, "<p class=\"dim\">%s</p>\n", queue == NULL ?
						 "The queue is being read." : "etcd did not say who is in the queue.");
		return;
	}
	appendStringInfoString(out, "<table><tr><th>Place</th><th>Node</th><th>Token</th>"
						   "<th class=\"wide\">Key</th></tr>\n");
	for (int i = 0; i < queue->nplaces; i++)
	{
		const EtcdLeaderCandidate *place = &queue->places[i];

		appendStringInfo(out, "<tr class=\"%s\">", place->is_self ? "self" : "");
		append_number_cell(out, "", place->position);
		append_cell(out, "", place->node);
		append_number_cell(out, "", place->create_revision);
		append_cell(out, "wide", place->key);
		appendStringInfoString(out, "</tr>\n");
	}
	appendStringInfoString(out, "</table>\n<p class=\"dim\">Queue read from etcd ");
	append_ago(out, queue->at);
	appendStringInfo(out, " ago%s.</p>\n",
					 queue->nplaces == HTTP_QUEUE_PLACES ? "; the first places" : "");
}

static void
append_election(StringInfo out, const EtcdLeaderStatus *status, const HttpQueue *queue)
{
	appendStringInfoString(out, "<h2>Election ");
	append_text(out, status->election);
	appendStringInfoString(out, "</h2>\n<p class=\"big ");
	if (status->is_leader)
		appendStringInfo(out, "good\">This instance leads.</p>\n<p>For %.1f s at least; the "
						 "fencing token is " INT64_FORMAT ".</p>\n",
						 (double) status->valid_for_us / USECS_PER_SEC, status->fencing_token);
	else if (status->leader[0] != '\0')
	{
		appendStringInfoString(out, "\">");
		append_text(out, status->leader);
		appendStringInfo(out, " leads.</p>\n<p>The fencing token is " INT64_FORMAT ".</p>\n",
						 status->fencing_token);
	}
	else
		appendStringInfoString(out, "bad\">No leader is known.</p>\n");
	appendStringInfo(out, "<p>Role: %s. State: %s.", status->role, status->state);
	if (status->leader_since != 0)
	{
		appendStringInfoChar(out, ' ');
		append_text(out, status->leader);
		appendStringInfoString(out, " has led for ");
		append_ago(out, status->leader_since);
		appendStringInfoChar(out, '.');
	}
	appendStringInfoString(out, "</p>\n");
	append_queue(out, queue);
}

/* ---- the instance ---------------------------------------------------------------- */

static void
append_instance(StringInfo out, const EtcdLeaderStatus *status)
{
	appendStringInfoString(out, "<title>");
	append_text(out, status->node);
	appendStringInfo(out, "%s</title>\n</head>\n<body>\n<h1>", status->is_leader ? ": leader" : "");
	append_text(out, status->node);
	appendStringInfo(out, "</h1>\n<p class=\"dim\">etcd_leader %s, %s, %s</p>\n<p class=\"%s\">",
					 http_api->library_version,
					 RecoveryInProgress() ? "in recovery" : "not in recovery",
					 timestamptz_to_str(GetCurrentTimestamp()),
					 status->connected ? "" : "bad");
	if (status->connected)
	{
		appendStringInfoString(out, "Connected to etcd at ");
		append_text(out, status->endpoint);
	}
	else
		appendStringInfoString(out, "No contact with etcd");
	if (status->last_contact != 0)
	{
		appendStringInfoString(out, "; its last answer came ");
		append_ago(out, status->last_contact);
		appendStringInfoString(out, " ago");
	}
	appendStringInfoString(out, ".</p>\n");
}

/* Nothing if there is none. */
static void
append_problems(StringInfo out)
{
	EtcdLeaderProblem problem;

	if (!http_api->get_problem(0, &problem, sizeof(problem)))
		return;
	appendStringInfoString(out, "<h2>Problems</h2>\n"
						   "<table><tr><th>For</th><th>Severity</th><th>Problem</th>"
						   "<th class=\"wide\">What to do</th></tr>\n");
	for (int i = 0; http_api->get_problem(i, &problem, sizeof(problem)); i++)
	{
		appendStringInfoString(out, "<tr><td>");
		if (problem.since != 0)
			append_ago(out, problem.since);
		appendStringInfo(out, "</td><td class=\"%s\">%s</td>",
						 strcmp(problem.severity, "error") == 0 ? "bad" : "", problem.severity);
		append_cell(out, "", problem.problem);
		append_cell(out, "wide", problem.hint);
		appendStringInfoString(out, "</tr>\n");
	}
	appendStringInfoString(out, "</table>\n");
}

static void
append_events(StringInfo out)
{
	static EtcdLeaderEvent newest[EVENTS_SHOWN];	/* a ring */
	static int64 nread = 0;
	static int64 last = 0;
	EtcdLeaderEvent event;

	/* there may be many thousands: each is read for one page only, and kept */
	while (http_api->get_event(last, &event, sizeof(event)))
	{
		newest[nread++ % EVENTS_SHOWN] = event;
		last = event.seq;
	}

	appendStringInfoString(out, "<h2>Events</h2>\n"
						   "<table><tr><th>Ago</th><th>Event</th><th>Election</th><th>Leader</th>"
						   "<th class=\"wide\">Token</th><th>Reason</th></tr>\n");
	for (int64 i = nread - 1; i >= Max(nread - EVENTS_SHOWN, 0); i--)
	{
		const EtcdLeaderEvent *shown = &newest[i % EVENTS_SHOWN];

		appendStringInfoString(out, "<tr><td>");
		append_ago(out, shown->at);
		appendStringInfo(out, "</td><td>%s</td>", shown->event);
		append_cell(out, "", shown->election);
		append_cell(out, "", shown->leader);
		append_number_cell(out, "wide", shown->fencing_token);
		append_cell(out, "", shown->reason);
		appendStringInfoString(out, "</tr>\n");
	}
	appendStringInfoString(out, "</table>\n");
}

void
http_append_status_page(StringInfo out, HttpSource *source)
{
	EtcdLeaderStatus status = {0};

	source->queues_wanted = true;
	appendStringInfoString(out, head);
	if (http_api->get_status(0, &status, sizeof(status)))
		append_instance(out, &status);
	else
		appendStringInfoString(out, "<title>etcd_leader</title>\n</head>\n<body>\n"
							   "<p>There is no election in the settings.</p>\n");
	append_problems(out);
	for (int i = 0; http_api->get_status(i, &status, sizeof(status)); i++)
		append_election(out, &status, i < HTTP_MAX_QUEUES ? source->queues[i] : NULL);
	append_events(out);
	appendStringInfoString(out, "</body>\n</html>\n");
}
