/*-------------------------------------------------------------------------
 *
 * etcd_clusters_test.c
 *	  Tests of etcd/clusters.c: which etcd cluster may be used.
 *
 *-------------------------------------------------------------------------
 */
#include "base/clock.h"
#include "etcd/clusters.h"
#include "etcd/url.h"
#include "unit.h"

#define A				UINT64_C(0xa)
#define B				UINT64_C(0xb)
#define MAX_ENDPOINTS	4

/* An endpoint in the world: where it is, and its etcd's cluster. */
typedef struct Server
{
	const char *url;
	uint64_t	cluster_id;
} Server;

/* An instance, by what it was told. */
typedef struct Instance
{
	EtcdClient	client;
	Endpoint	endpoints[MAX_ENDPOINTS];
} Instance;

static void
start(Instance *instance, const char *const *urls, int nurls)
{
	memset(instance, 0, sizeof(*instance));
	for (int i = 0; i < nurls; i++)
		instance->endpoints[i].url = (char *) urls[i];
	instance->client.endpoints = instance->endpoints;
	instance->client.nendpoints = nurls;
}

/* The cluster that an instance would enter; 0: none. */
static uint64_t
entered(const Instance *instance)
{
	bool		a = etcd_cluster_is_usable(&instance->client, A);
	bool		b = etcd_cluster_is_usable(&instance->client, B);

	assert_false(a && b);
	return a ? A : b ? B : 0;
}

static void
tell_members(Instance *instance, uint64_t cluster_id, const char *const *urls, int nurls)
{
	EtcdMember	members[MAX_ENDPOINTS] = {0};
	EtcdAnswer	answer = {.header = {.cluster_id = cluster_id},.members = members,.nmembers = nurls};

	for (int i = 0; i < nurls; i++)
	{
		members[i].client_urls = (const char **) &urls[i];
		members[i].nclient_urls = 1;
	}
	etcd_cluster_learn_members(&instance->client, &answer);
}

/*
 * An endpoint answers: it tells its cluster, and the members of that, if these
 * announce URLs by which they are reached.
 */
static void
answer(Instance *instance, int endpoint, const Server *servers, int nservers, bool announces)
{
	const char *urls[MAX_ENDPOINTS];
	uint64_t	cluster_id = 0;
	int			n = 0;

	for (int i = 0; i < nservers; i++)
	{
		if (strcmp(servers[i].url, instance->endpoints[endpoint].url) == 0)
			cluster_id = servers[i].cluster_id;
	}
	for (int i = 0; announces && i < nservers; i++)
	{
		if (servers[i].cluster_id == cluster_id)
			urls[n++] = servers[i].url;
	}
	instance->endpoints[endpoint].state.cluster_id = cluster_id;
	tell_members(instance, cluster_id, urls, n);
}

/* ---- the rule -------------------------------------------------------- */

static const char *const some_urls[MAX_ENDPOINTS] = {
	"http://e1:2379", "http://e2:2379", "http://e3:2379", "http://e4:2379"
};

/* Lists the first n URLs in the order of that number, of n! ones. */
static void
arrange(const char **urls, int n, int order)
{
	int			left[MAX_ENDPOINTS] = {0, 1, 2, 3};

	for (int i = 0; i < n; i++)
	{
		int			pick = order % (n - i);

		order /= n - i;
		urls[i] = some_urls[left[pick]];
		left[pick] = left[n - i - 1];
	}
}

/*
 * Of each list of two to four endpoints of two clusters, in each order, with
 * each set of endpoints down: the clusters that an instance may enter.  There
 * must be one at most, and there must be one if most of the endpoints of the
 * list belong to it and answer.
 */
static void
test_lists(void **state)
{
	static const int norders[] = {1, 1, 2, 6, 24};
	int			nentered = 0;

	for (int n = 2; n <= MAX_ENDPOINTS; n++)
	{
		for (int clusters = 0; clusters < 1 << n; clusters++)
		{
			uint64_t	seen = 0;
			int			na = __builtin_popcount(clusters);
			uint64_t	major = 2 * na > n ? A : 2 * na < n ? B : 0;
			const char *urls[MAX_ENDPOINTS];
			Server		servers[MAX_ENDPOINTS];

			for (int i = 0; i < n; i++)
				servers[i] = (Server) {some_urls[i], clusters & 1 << i ? A : B};
			for (int order = 0; order < norders[n]; order++)
			{
				arrange(urls, n, order);
				for (int up = 0; up < 1 << n; up++)
				{
					for (int announces = 0; announces < 2; announces++)
					{
						Instance	instance;
						int			nmajor = 0;

						start(&instance, urls, n);
						for (int i = 0; i < n; i++)
						{
							if ((up & 1 << i) == 0)
								continue;
							answer(&instance, i, servers, n, announces);
							nmajor += instance.endpoints[i].state.cluster_id == major;
						}
						if (entered(&instance) != 0)
						{
							assert_true(seen == 0 || seen == entered(&instance));
							seen = entered(&instance);
							nentered++;
						}
						if (major != 0 && (announces ? nmajor > 0 : 2 * nmajor > n))
							assert_true(entered(&instance) == major);
						else
							assert_true(entered(&instance) == 0);
					}
				}
			}
			assert_true(seen == major);
		}
	}
	assert_true(nentered > 1000);
}

static void
test_single(void **state)
{
	Server		server = {"http://localhost:2379", A};
	Instance	instance;

	start(&instance, &server.url, 1);
	assert_false(etcd_cluster_is_known(&instance.client));
	assert_false(etcd_client_awaits_cluster(&instance.client));
	answer(&instance, 0, &server, 1, true);
	assert_true(entered(&instance) == A);
}

/* The cluster of the settings, whatever belongs to it. */
static void
test_cluster_id(void **state)
{
	Server		servers[] = {{some_urls[0], A}, {some_urls[1], A}, {some_urls[2], B}};
	Instance	instance;

	start(&instance, some_urls, 3);
	instance.client.settings.cluster_id = B;
	instance.client.kept_cluster_id = A;
	for (int i = 0; i < 3; i++)
		answer(&instance, i, servers, 3, true);
	assert_true(entered(&instance) == B);
	assert_true(etcd_client_foreign_endpoints(&instance.client) == 3);
	assert_int_equal(etcd_find_usable_endpoint(&instance.client, 0), 2);
	instance.client.settings.cluster_id = 0xc;
	assert_true(entered(&instance) == 0);
	assert_true(etcd_client_foreign_endpoints(&instance.client) == 7);
	/* one after the other is asked */
	assert_int_equal(etcd_find_usable_endpoint(&instance.client, 3), 0);
}

/* An instance stays in its cluster until another one may be entered. */
static void
test_kept(void **state)
{
	Server		servers[] = {{some_urls[0], A}, {some_urls[1], B}, {some_urls[2], B}};
	Instance	instance;

	start(&instance, some_urls, 3);
	etcd_client_keep_cluster(&instance.client, A);
	assert_true(entered(&instance) == A);
	answer(&instance, 0, servers, 3, false);
	answer(&instance, 1, servers, 3, false);
	assert_true(entered(&instance) == A);
	assert_true(etcd_client_foreign_endpoints(&instance.client) == 2);
	answer(&instance, 2, servers, 3, false);
	assert_true(entered(&instance) == B);
	assert_true(etcd_client_foreign_endpoints(&instance.client) == 1);
	etcd_client_forget_clusters(&instance.client);
	assert_true(entered(&instance) == A);
	assert_true(etcd_client_foreign_endpoints(&instance.client) == 0);
}

/* An endpoint that tells another cluster than before has all looked at soon. */
static void
test_another_cluster(void **state)
{
	Instance	instance;

	start(&instance, some_urls, 3);
	instance.client.looked_ns = 1;
	etcd_cluster_note(&instance.client, &instance.endpoints[0], A);
	etcd_cluster_note(&instance.client, &instance.endpoints[0], A);
	assert_true(instance.client.look_due_ns == 0);
	etcd_cluster_note(&instance.client, &instance.endpoints[0], B);
	assert_true(instance.client.look_due_ns == 3 * NSEC_PER_SEC + 1);
	assert_true(instance.endpoints[0].state.cluster_id == B);
}

/* A failing endpoint that no member announces: the hint, unless there is a proxy in between. */
static void
test_unannounced(void **state)
{
	const char *const urls[] = {"http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"};
	const char *const members[] = {"http://127.0.0.1:1", "http://127.1:3", "http://127.0.0.1:4"};
	const char *const behind[] = {"http://10.0.0.1:1"};
	char		message[ETCD_MESSAGE_SIZE];
	Instance	instance;

	start(&instance, urls, 3);
	instance.endpoints[0].state.cluster_id = instance.endpoints[2].state.cluster_id = A;
	tell_members(&instance, B, members, 3);
	assert_false(etcd_client_describe_unannounced(&instance.client, 1, message));
	tell_members(&instance, A, members, 3);
	assert_true(etcd_client_describe_unannounced(&instance.client, 1, message));
	assert_string_equal(message, "No member of the cluster announces this URL any more. Remove it from the settings. "
						"The members announce http://127.0.0.1:1, http://127.1:3, http://127.0.0.1:4");
	assert_false(etcd_client_describe_unannounced(&instance.client, 0, message));
	assert_false(etcd_client_describe_unannounced(&instance.client, 2, message));
	tell_members(&instance, A, behind, 1);
	assert_false(etcd_client_describe_unannounced(&instance.client, 1, message));
}

/* What counts as the URL of a member, and what does not. */
static void
test_named(void **state)
{
	static const struct
	{
		const char *url;		/* of the settings */
		const char *announced;
		bool		counts;
	}			cases[] = {
		{"http://e2:2379", "http://e2:2379", true},
		{"http://e2:2379/", "http://E2:2379", true},
		{"https://e2", "https://e2:443/", true},
		{"http://e2:2379", "https://e2:2379", false},
		{"http://e2:2379", "http://e2:2380", false},
		{"http://e2:2379/etcd", "http://e2:2379", false},
		{"http://e2.example.com.:2379", "http://e2.example.com:2379", true},
		{"http://[fd00:0:0:0:0:0:0:9]:2379", "http://[fd00::9]:2379", true},
		{"http://[FD00::9]:2379", "http://[fd00::0009]:2379/", true},
		{"http://[fd00::9]:2379", "http://[fd00::a]:2379", false},
		{"http://[fe80::1%eth0]:2379", "http://[fe80::1%25eth0]:2379", true},
		{"http://[fe80::1%25eth0]:2379", "http://[fe80::1%25eth1]:2379", false},
		{"http://[::ffff:10.0.0.9]:2379", "http://10.0.0.9:2379", true},
		{"http://10.9:2379", "http://10.0.0.9:2379", true},
		{"http://0x0a000009:2379", "http://10.0.0.9:2379", true},
		{"http://10.0.0.9", "http://10.0.0.9:80", true},
		{"http://[0:0:0:0:0:0:0:1]:2379", "http://[0:0:0:0:0:0:0:1]:2379", false},
		{"http://127.1:2379", "http://127.0.0.1:2379", false},
		{"http://localhost.:2379", "http://localhost.:2379", false},
		{"http://localhost:2379", "http://localhost:2379", false},
		{"http://127.0.0.2:2379", "http://127.0.0.2:2379", false},
		{"http://127.example.com:2379", "http://127.example.com:2379", true},
		{"http://[::1]:2379", "http://[::1]:2379", false},
		{"unix:///run/etcd", "unix:///run/etcd", false},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		const char *urls[] = {"http://e1:2379", cases[i].url};
		Instance	instance;

		start(&instance, urls, 2);
		instance.endpoints[0].state.cluster_id = A;
		tell_members(&instance, A, &cases[i].announced, 1);
		assert_true((entered(&instance) == A) == cases[i].counts);
		/* what it says itself counts more */
		instance.endpoints[1].state.cluster_id = B;
		assert_true(entered(&instance) == 0);
	}
}

/* What is a URL of an endpoint, and its host in one spelling. */
static void
test_urls(void **state)
{
	static const struct
	{
		const char *url;
		const char *host;		/* NULL: it is none */
	}			cases[] = {
		{"http://e1", "e1"},
		{"HTTPS://E1:2379/", "E1"},
		{"http://10.0.0.1:2379", "10.0.0.1"},
		{"http://012.1", "10.0.0.1"},
		{"http://[fd00:0:0:0:0:0:0:9]:2379", "[fd00::9]"},
		{"http://[::FFFF:a00:1]", "10.0.0.1"},
		{"http://[fe80::1%eth0]", "[fe80::1%25eth0]"},
		{"http://e1:2379/etcd", NULL},
		{"http://e1:2379//", NULL},
		{"http://e1/?a", NULL},
		{"http://e1:0", NULL},
		{"http://[fd00::9", NULL},
		{"http://[fd00::9%]", NULL},
		{"http://[10.0.0.1]", NULL},
		{"unix:///run/etcd", NULL},
	};

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		EtcdUrl		url;
		bool		good = etcd_split_url(cases[i].url, &url);

		assert_int_equal(good, cases[i].host != NULL);
		if (good)
			assert_string_equal(url.host, cases[i].host);
	}
}

/* An endpoint that two clusters name belongs to neither, until one of them drops it. */
static void
test_named_twice(void **state)
{
	Instance	instance;

	start(&instance, some_urls, 3);
	instance.endpoints[0].state.cluster_id = A;
	instance.endpoints[1].state.cluster_id = B;
	tell_members(&instance, A, &some_urls[2], 1);
	assert_true(entered(&instance) == A);
	tell_members(&instance, B, &some_urls[2], 1);
	assert_true(entered(&instance) == 0);
	tell_members(&instance, A, NULL, 0);
	tell_members(&instance, B, &some_urls[2], 1);
	assert_true(entered(&instance) == B);
	tell_members(&instance, B, NULL, 0);
	assert_true(entered(&instance) == 0);
}

/* After a reload an endpoint is no member of a cluster because of a list that was told before. */
static void
test_forgotten(void **state)
{
	char		message[ETCD_MESSAGE_SIZE];
	Instance	instance;

	start(&instance, some_urls, 3);
	tell_members(&instance, A, some_urls, 2);
	assert_true(entered(&instance) == A);
	tell_members(&instance, A, some_urls, 2);
	assert_true(etcd_client_describe_unannounced(&instance.client, 2, message));
	etcd_client_forget_clusters(&instance.client);
	assert_true(entered(&instance) == 0);
	assert_false(etcd_client_describe_unannounced(&instance.client, 2, message));

	/* nor does it stay a member of two */
	tell_members(&instance, A, some_urls, 2);
	tell_members(&instance, B, some_urls, 2);
	assert_true(entered(&instance) == 0);
	etcd_client_forget_clusters(&instance.client);
	tell_members(&instance, B, some_urls, 2);
	assert_true(entered(&instance) == B);
}

/* Learned members do not count, and are not used if they are of another cluster. */
static void
test_learned(void **state)
{
	Instance	instance;

	start(&instance, some_urls, 4);
	for (int i = 0; i < 4; i++)
	{
		instance.endpoints[i].learned = i > 0;
		instance.endpoints[i].state.cluster_id = i > 0 ? B : A;
	}
	assert_true(entered(&instance) == A);
	assert_true(etcd_client_foreign_endpoints(&instance.client) == 14);
	instance.endpoints[0].state.cluster_id = 0;
	assert_true(entered(&instance) == 0);
}

static void
test_description(void **state)
{
	Instance	instance;
	char		message[ETCD_MESSAGE_SIZE];

	start(&instance, some_urls, 3);
	instance.endpoints[0].state.cluster_id = A;
	etcd_client_describe_foreign(&instance.client, 0, message);
	assert_string_equal(message, "etcd at \"http://e1:2379\" is of cluster a, but 1 of 3 endpoints belongs to it, and more than half must: "
						"etcd at \"http://e2:2379\" has not told its cluster; etcd at \"http://e3:2379\" has not told its cluster");
	strcpy(instance.endpoints[1].state.error, "could not connect to etcd at \"http://e2:2379\": Connection refused");
	instance.endpoints[2].named_by = A;
	instance.endpoints[2].named_twice = true;
	etcd_client_describe_foreign(&instance.client, 0, message);
	assert_string_equal(message, "etcd at \"http://e1:2379\" is of cluster a, but 1 of 3 endpoints belongs to it, and more than half must: "
						"could not connect to etcd at \"http://e2:2379\": Connection refused; etcd at \"http://e3:2379\" is named by two clusters");
	instance.endpoints[2].state.cluster_id = B;
	etcd_client_describe_foreign(&instance.client, 0, message);
	assert_string_equal(message, "etcd at \"http://e1:2379\" is of cluster a, etcd at \"http://e3:2379\" of cluster b");
	instance.client.settings.cluster_id = 0xc;
	etcd_client_describe_foreign(&instance.client, 0, message);
	assert_string_equal(message, "etcd at \"http://e1:2379\" is of cluster a, and not of the one in \"etcd_leader.cluster_id\", c");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_single),
		cmocka_unit_test(test_cluster_id),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_another_cluster),
		cmocka_unit_test(test_unannounced),
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_named_twice),
		cmocka_unit_test(test_forgotten),
		cmocka_unit_test(test_learned),
		cmocka_unit_test(test_description),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
