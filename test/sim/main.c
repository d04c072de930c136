/*-------------------------------------------------------------------------
 *
 * main.c
 *	  The simulator's command line.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "plan.h"
#include "reached.h"
#include "run.h"

/* A process stops after it has shown that many failing seeds. */
#define MAX_SHOWN	20

/* The number of lines of the first failing seed's timeline that are shown. */
#define LINES_SHOWN	60

static bool (*run) (uint64_t seed) = run_seed;

/* ---- what only some of the programs have ------------------------------------- */

__attribute__((weak)) bool
scale_write_table(void)
{
	return false;
}

__attribute__((weak)) bool
run_frozen(uint64_t seed)
{
	return run_seed(seed);
}

__attribute__((weak)) void
reached_begin(void)
{
}

__attribute__((weak)) int
reached_report(void)
{
	return 0;
}

__attribute__((weak)) bool passes_structures;

/* ---- the command line --------------------------------------------------------- */

static void
usage(void)
{
	fprintf(stderr,
			"usage: simulate [option ...]\n"
			"  --seed N          this seed alone\n"
			"  --trace           with the timeline of each seed\n"
			"  --seeds N         seeds 1 to N (default 2000)\n"
			"  --from N          begins with that seed\n"
			"  --list FILE       the seeds in a file, one to a line\n"
			"  --jobs N          in so many processes\n"
			"  --structures      messages pass as they are, not as bytes: the same runs, faster\n"
			"  --expect N        so many of the seeds have to fail\n"
			"  --frozen          with a fault of one member that never ends\n"
			"  --reached         counts the seeds that reach each rare state, and fails if one is not reached\n"
			"  --scale           writes the table of what etcd has to serve\n");
	exit(2);
}

/* What kind of run it is. */
static const char *
kind_of(uint64_t seed)
{
	return run == run_seed ? profile_name((Profile) (seed % NPROFILES)) : "frozen";
}

/* Prints the last lines of a seed's timeline. */
static void
show_timeline(uint64_t seed)
{
	char	   *lines = NULL;
	size_t		len = 0;
	int			nlines = 0;
	const char *from;

	timeline = open_memstream(&lines, &len);
	if (timeline == NULL)
		return;
	tracing = true;
	(void) run(seed);
	tracing = false;
	fclose(timeline);
	timeline = NULL;
	for (from = lines + len; from > lines; from--)
	{
		if (from[-1] == '\n' && nlines++ == LINES_SHOWN)
			break;
	}
	fputs(from, stdout);
	free(lines);
}

/* Prints the verdict of a failing seed, and the timeline of the first one. */
static void
show(uint64_t seed, bool first)
{
	if (first && !tracing)
		show_timeline(seed);
	printf("seed %" PRIu64 " (%s) fails %s\n", seed, kind_of(seed), run_verdict());
	if (!tracing)
		printf("  see all of it with: %s%s --seed %" PRIu64 " --trace\n", program_invocation_name,
			   run == run_seed ? "" : " --frozen", seed);
	fflush(stdout);
}

/* Runs this process's share of the list; returns the exit status of the process. */
static int
run_share(const uint64_t *seeds, int nseeds, int share, int nshares)
{
	int			nfailed = 0;

	for (int i = share; i < nseeds; i += nshares)
	{
		bool		good = run(seeds[i]);

		if (good && (tracing || nseeds == 1))
			printf("seed %" PRIu64 " passes\n", seeds[i]);
		if (good)
			continue;
		nfailed++;
		show(seeds[i], nfailed == 1);
		if (nfailed == MAX_SHOWN)
			break;
	}
	return nfailed > 0;
}

/* Starts a process for each share; returns 0 if no seed has failed, 2 after a crash. */
static int
run_shares(const uint64_t *seeds, int nseeds, int njobs)
{
	int			result = 0;

	fflush(stdout);
	for (int job = 0; job < njobs; job++)
	{
		pid_t		pid = fork();

		/* not _exit(), because the sanitizers look for leaks at exit() */
		if (pid == 0)
			exit(run_share(seeds, nseeds, job, njobs));
		if (pid < 0)
		{
			perror("fork");
			return 2;
		}
	}
	for (int job = 0; job < njobs; job++)
	{
		int			status;

		if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
		{
			printf("a process of the simulator has crashed\n");
			result = 2;
		}
		else if (result < WEXITSTATUS(status))
			result = WEXITSTATUS(status);
	}
	return result;
}

/* The core has a mistake built in.  That many seeds have to find it. */
static int
expect_failures(const uint64_t *seeds, int nseeds, int expected)
{
	char		first[1024] = "";
	int			nfailed = 0;

	for (int i = 0; i < nseeds; i++)
	{
		if (run(seeds[i]))
			continue;
		if (nfailed++ == 0)
			snprintf(first, sizeof(first), ", first by %" PRIu64 " (%s), %s", seeds[i],
					 kind_of(seeds[i]), run_verdict());
		if (nfailed == expected)
		{
			printf("found by %d of %d seeds%s\n", nfailed, i + 1, first);
			return 0;
		}
	}
	printf("found by %d of %d seeds alone%s\n", nfailed, nseeds, first);
	return 1;
}

static int
run_all(const uint64_t *seeds, int nseeds, int njobs)
{
	/* One job runs in this process, so that a debugger sees it. */
	int			result = njobs == 1 ? run_share(seeds, nseeds, 0, 1) : run_shares(seeds, nseeds, njobs);

	if (result > 1)
		return result;
	if (nseeds > 1)
		printf("%d seeds, %s\n", nseeds, result > 0 ? "some failed" : "all pass");
	return result;
}

static uint64_t *
read_list(const char *path, int *n)
{
	FILE	   *file = fopen(path, "r");
	uint64_t   *seeds = NULL;
	char		line[256];

	if (file == NULL)
	{
		perror(path);
		exit(2);
	}
	*n = 0;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		if (line[0] < '0' || line[0] > '9')
			continue;
		seeds = realloc(seeds, (size_t) (*n + 1) * sizeof(uint64_t));
		seeds[(*n)++] = strtoull(line, NULL, 10);
	}
	fclose(file);
	return seeds;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},
		{"trace", no_argument, NULL, 't'},
		{"seeds", required_argument, NULL, 'n'},
		{"from", required_argument, NULL, 'f'},
		{"list", required_argument, NULL, 'l'},
		{"jobs", required_argument, NULL, 'j'},
		{"structures", no_argument, NULL, 'p'},
		{"expect", required_argument, NULL, 'e'},
		{"frozen", no_argument, NULL, 'z'},
		{"reached", no_argument, NULL, 'r'},
		{"scale", no_argument, NULL, 'c'},
		{NULL, 0, NULL, 0}
	};
	uint64_t	from = 1;
	uint64_t   *seeds = NULL;
	int			expected = 0;
	bool		counts_reached = false;
	int			nseeds = 2000;
	int			njobs = 1;
	int			option;
	int			result;

	/* the memory of a run stays for the next one: to give it back took a tenth of the time */
	mallopt(M_MMAP_THRESHOLD, 1 << 24);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	/* a constant seed, so that no hash depends on the machine's random numbers */
	json_object_seed(1);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (option)
		{
			case 's':
				from = strtoull(optarg, NULL, 10);
				nseeds = 1;
				break;
			case 't':
				tracing = true;
				break;
			case 'n':
				nseeds = atoi(optarg);
				break;
			case 'f':
				from = strtoull(optarg, NULL, 10);
				break;
			case 'l':
				seeds = read_list(optarg, &nseeds);
				break;
			case 'j':
				njobs = atoi(optarg);
				break;
			case 'p':
				passes_structures = true;
				break;
			case 'e':
				expected = atoi(optarg);
				break;
			case 'z':
				run = run_frozen;
				break;
			case 'r':
				reached_begin();
				counts_reached = true;
				break;
			case 'c':
				return scale_write_table() ? 0 : 1;
			default:
				usage();
		}
	}
	if (optind != argc || njobs < 1)
		usage();
	if (seeds == NULL)
	{
		seeds = calloc((size_t) nseeds + 1, sizeof(uint64_t));
		for (int i = 0; seeds != NULL && i < nseeds; i++)
			seeds[i] = from + (uint64_t) i;
	}
	result = expected > 0 ? expect_failures(seeds, nseeds, expected) : run_all(seeds, nseeds, njobs);
	if (counts_reached && reached_report() > 0 && result == 0)
		result = 1;
	free(seeds);
	return result;
}
