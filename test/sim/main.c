/*-------------------------------------------------------------------------
 *
 * main.c
 *	  The simulator's command line.
 *
 *-------------------------------------------------------------------------
 */
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "plan.h"
#include "run.h"

/* A process shows so many failing seeds, and then stops. */
#define MAX_SHOWN	20

static void
usage(void)
{
	fprintf(stderr,
			"usage: simulate [option ...]\n"
			"  --seed N          this seed alone\n"
			"  --trace           with its timeline\n"
			"  --seeds N         seeds 1 to N (default 1000)\n"
			"  --from N          begins with that seed\n"
			"  --list FILE       the seeds in a file, one to a line\n"
			"  --jobs N          in so many processes\n"
			"  --strict          what is known and not mended yet counts, too\n"
			"  --expect-failure  one of the seeds has to fail\n"
			"  --break NAME      with the core that has this mistake\n"
			"  --scale           writes the table of what etcd has to serve\n");
	exit(2);
}

/* A failing seed: its timeline, then what is wrong. */
static void
show(uint64_t seed)
{
	char		verdict[1024];

	snprintf(verdict, sizeof(verdict), "%s", run_verdict());
	printf("seed %" PRIu64 " (%s) fails %s\n", seed, profile_name((Profile) (seed % NPROFILES)), verdict);
	printf("  see it with: simulate --seed %" PRIu64 " --trace\n", seed);
	fflush(stdout);
}

static bool
run_one(uint64_t seed, bool with_timeline)
{
	bool		good;

	tracing = with_timeline;
	good = run_seed(seed);
	tracing = false;
	if (!good)
		show(seed);
	else if (with_timeline)
		printf("seed %" PRIu64 " passes\n", seed);
	return good;
}

/* Runs each seed whose number in the list is ours; the exit status of a process. */
static int
run_share(const uint64_t *seeds, int nseeds, int share, int nshares, bool expect_failure)
{
	int			nfailed = 0;
	int			nnoted = 0;

	for (int i = share; i < nseeds; i += nshares)
	{
		bool		good = run_seed(seeds[i]);

		if (run_notes()[0] != '\0' && nnoted++ < 3)
			printf("noted in seed %" PRIu64 ": %s\n", seeds[i], run_notes());
		if (good)
			continue;
		nfailed++;
		if (expect_failure)
		{
			printf("found by seed %" PRIu64 " (%s), %s\n", seeds[i],
				   profile_name((Profile) (seeds[i] % NPROFILES)), run_verdict());
			return 1;
		}
		show(seeds[i]);
		if (nfailed == MAX_SHOWN)
			break;
	}
	return nfailed > 0;
}

static int
run_all(const uint64_t *seeds, int nseeds, int njobs, bool expect_failure)
{
	int			nfailed = 0;

	fflush(stdout);
	for (int job = 0; job < njobs; job++)
	{
		pid_t		pid = fork();

		if (pid == 0)
		{
			int			status = run_share(seeds, nseeds, job, njobs, expect_failure);

			fflush(stdout);
			_exit(status);
		}
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
			nfailed = -njobs;
			continue;
		}
		nfailed += WEXITSTATUS(status) != 0;
	}
	if (nfailed < 0)
		return 2;
	if (expect_failure)
	{
		if (nfailed == 0)
			printf("not found within %d seeds\n", nseeds);
		return nfailed > 0 ? 0 : 1;
	}
	printf("%d seeds, %s\n", nseeds, nfailed > 0 ? "some failed" : "all pass");
	return nfailed > 0 ? 1 : 0;
}

/* A broken core is linked into a binary of its own, beside this one. */
static void
become_broken(char **argv, const char *name)
{
	char		path[4096];
	char		self[4000];
	ssize_t		n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		n = 0;
	self[n] = '\0';
	snprintf(path, sizeof(path), "%s/broken/%s/simulate", dirname(self), name);
	execv(path, argv);
	perror(path);
	exit(2);
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
		{"expect-failure", no_argument, NULL, 'e'},
		{"break", required_argument, NULL, 'b'},
		{"broken", required_argument, NULL, 'b'},
		{"strict", no_argument, NULL, 'x'},
		{"scale", no_argument, NULL, 'c'},
		{NULL, 0, NULL, 0}
	};
	uint64_t	seed = 0;
	uint64_t	from = 1;
	uint64_t   *seeds = NULL;
	bool		with_timeline = false;
	bool		expect_failure = false;
	int			nseeds = 1000;
	int			njobs = 1;
	int			option;
	int			result;

	/* no hash depends on what the machine calls chance */
	json_object_seed(1);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (option)
		{
			case 's':
				seed = strtoull(optarg, NULL, 10);
				break;
			case 't':
				with_timeline = true;
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
			case 'e':
				expect_failure = true;
				break;
			case 'b':
#ifndef BROKEN
				become_broken(argv, optarg);
#endif
				break;
			case 'x':
				strict = true;
				break;
			case 'c':
				scale_write_table();
				return 0;
			default:
				usage();
		}
	}
	if (optind != argc || njobs < 1)
		usage();
	if (seed != 0)
		return run_one(seed, with_timeline) ? 0 : 1;
	if (seeds == NULL)
	{
		seeds = calloc((size_t) nseeds + 1, sizeof(uint64_t));
		for (int i = 0; seeds != NULL && i < nseeds; i++)
			seeds[i] = from + (uint64_t) i;
	}
	result = run_all(seeds, nseeds, njobs, expect_failure);
	free(seeds);
	return result;
}
