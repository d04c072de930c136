/*-------------------------------------------------------------------------
 *
 * trace.c
 *	  The timeline, and the verdict.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "sim.h"

bool		tracing;
FILE	   *timeline;

static bool failed;
static char verdict[1024];

/* Writes a line of the timeline: true time in seconds, subject, text. */
void
trace_line(const char *who, const char *format,...)
{
	FILE	   *out = timeline ? timeline : stdout;
	va_list		args;

	fprintf(out, "%4" PRId64 ".%06" PRId64 "  %-8s ", now_ns / SECOND, now_ns % SECOND / 1000, who);
	va_start(args, format);
	vfprintf(out, format, args);
	va_end(args);
	putc('\n', out);
}

void
fail_run(const char *format,...)
{
	va_list		args;
	int			n;

	if (failed)
		return;
	failed = true;
	n = snprintf(verdict, sizeof(verdict), "at %" PRId64 ".%06" PRId64 ": ",
				 now_ns / SECOND, now_ns % SECOND / 1000);
	va_start(args, format);
	vsnprintf(verdict + n, sizeof(verdict) - n, format, args);
	va_end(args);
	trace("FAILED", "%s", strchr(verdict, ':') + 2);
}

bool
run_failed(void)
{
	return failed;
}

const char *
run_verdict(void)
{
	return verdict;
}

void
verdict_reset(void)
{
	failed = false;
	verdict[0] = '\0';
}
