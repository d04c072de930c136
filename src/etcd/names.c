/*-------------------------------------------------------------------------
 *
 * names.c
 *	  The addresses of hosts, looked up without blocking.
 *
 * The C library's resolver blocks, so each lookup has a thread of its own: a
 * name that hangs holds up no other name.  There are MAX_NAMES threads in a
 * process at most.  A thread whose caller is gone goes on until the resolver
 * returns; if its name is wanted again meanwhile, that thread is waited for, and
 * no other one is started.
 *
 * The resolver does not tell how long its results are valid.  Names are
 * looked up again when they are wanted and the result is older than a minute,
 * which is how long libcurl and curl trust one; and sooner when a connection
 * has failed.
 *
 * A thread uses nothing but its own Lookup.  What it shares with the owner of
 * the names is under a mutex that nobody holds while a resolver is called.
 * Nothing that fails in a thread may end the process, which is a server's.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "client.h"
#include "names.h"
#include "url.h"

/* Those of the settings, and as many that were in use before a reload. */
#define MAX_NAMES			(2 * ETCD_CLIENT_MAX_ENDPOINTS)

#define MAX_AGE_NS			(60 * NSEC_PER_SEC)

/* A host that refuses connections is not looked up more often than that. */
#define MIN_INTERVAL_NS		NSEC_PER_SEC

/* A lookup, made by its thread. */
typedef struct Lookup
{
	char		host[ETCD_MAX_HOST_LEN + 1];
	EtcdAddresses addresses;
	int			error;			/* of getaddrinfo() */
	int			os_error;		/* if that is EAI_SYSTEM */

	/* under the mutex */
	struct Lookup *next;		/* in the list of those under way */
	EtcdNames  *names;			/* NULL: nobody wants the result any more */
	bool		has_ended;
} Lookup;

struct EtcdNames
{
	int			fd;				/* eventfd */
	uint64_t	nwanted;
	EtcdName	names[MAX_NAMES];
	Lookup	   *lookups[MAX_NAMES]; /* of each name; NULL: none */
};

/* In the whole process: the lookups under way. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Lookup *lookups_under_way;
static int	nlookups_under_way;

/* ---- in the thread --------------------------------------------------- */

/* The place of an address among others; -1: it is none of them. */
static int
find_address(const EtcdAddresses *addresses, const char *text)
{
	for (int i = 0; i < addresses->n; i++)
	{
		if (strcmp(addresses->text[i], text) == 0)
			return i;
	}
	return -1;
}

/* Adds an address, unless it is there or the list is full. */
static void
add_address(EtcdAddresses *addresses, const struct sockaddr *address)
{
	char		ip[INET6_ADDRSTRLEN];
	char		text[ETCD_ADDRESS_SIZE];
	bool		is_ip6 = address->sa_family == AF_INET6;

	if (is_ip6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *) address)->sin6_addr, ip, sizeof(ip));
	else if (address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *) address)->sin_addr, ip, sizeof(ip));
	else
		return;
	snprintf(text, sizeof(text), is_ip6 ? "[%s]" : "%s", ip);
	if (addresses->n < ETCD_MAX_ADDRESSES && find_address(addresses, text) < 0)
		strcpy(addresses->text[addresses->n++], text);
}

/* A lookup is under way no more.  Under the mutex. */
static void
unlink_lookup(Lookup *lookup)
{
	Lookup	  **link = &lookups_under_way;

	while (*link != lookup)
		link = &(*link)->next;
	*link = lookup->next;
	nlookups_under_way--;
}

static void *
run_lookup(void *arg)
{
	Lookup	   *lookup = arg;
	struct addrinfo hints = {.ai_family = AF_UNSPEC,.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	uint64_t	one = 1;

	lookup->error = getaddrinfo(lookup->host, NULL, &hints, &found);
	lookup->os_error = errno;
	if (lookup->error == 0)
	{
		for (struct addrinfo *a = found; a != NULL; a = a->ai_next)
			add_address(&lookup->addresses, a->ai_addr);
		freeaddrinfo(found);
	}

	pthread_mutex_lock(&mutex);
	unlink_lookup(lookup);
	lookup->has_ended = true;
	if (lookup->names == NULL)
		free(lookup);
	/* if that should fail, the end of the connection's time finds the result */
	else if (write(lookup->names->fd, &one, sizeof(one)) < 0)
		lookup->os_error = errno;
	pthread_mutex_unlock(&mutex);
	return NULL;
}

/* ---- by the owner ---------------------------------------------------- */

bool
etcd_start_thread(void *(*run) (void *arg), void *arg)
{
	pthread_attr_t attributes;
	pthread_t	thread;
	sigset_t	all;
	sigset_t	before;
	bool		started;

	/* no signal may find its handler in there */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	started = pthread_create(&thread, &attributes, run, arg) == 0;
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

EtcdNames *
etcd_names_create(void)
{
	EtcdNames  *names = calloc(1, sizeof(EtcdNames));

	if (names == NULL)
		return NULL;
	names->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (names->fd < 0)
	{
		free(names);
		return NULL;
	}
	return names;
}

void
etcd_names_free(EtcdNames *names)
{
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < MAX_NAMES; i++)
	{
		Lookup	   *lookup = names->lookups[i];

		if (lookup != NULL && lookup->has_ended)
			free(lookup);
		else if (lookup != NULL)
			lookup->names = NULL;
	}
	pthread_mutex_unlock(&mutex);
	close(names->fd);
	free(names);
}

/* A lookup of that host whose caller is gone; NULL: none.  Under the mutex. */
static Lookup *
find_abandoned(const char *host)
{
	for (Lookup *lookup = lookups_under_way; lookup != NULL; lookup = lookup->next)
	{
		if (lookup->names == NULL && strcasecmp(lookup->host, host) == 0)
			return lookup;
	}
	return NULL;
}

/* Starts a thread for a lookup.  NULL if there can be none.  Under the mutex. */
static Lookup *
start_thread(const char *host)
{
	Lookup	   *lookup = nlookups_under_way < MAX_NAMES ? calloc(1, sizeof(Lookup)) : NULL;

	if (lookup == NULL)
		return NULL;
	strcpy(lookup->host, host);
	lookup->next = lookups_under_way;
	lookups_under_way = lookup;
	nlookups_under_way++;
	if (etcd_start_thread(run_lookup, lookup))
		return lookup;
	unlink_lookup(lookup);
	free(lookup);
	return NULL;
}

static void
start_lookup(EtcdNames *names, EtcdName *name)
{
	Lookup	   *lookup;

	name->began_ns = clock_monotonic_ns();
	name->due_ns = name->began_ns + MAX_AGE_NS;
	pthread_mutex_lock(&mutex);
	lookup = find_abandoned(name->host);
	if (lookup == NULL)
		lookup = start_thread(name->host);
	if (lookup != NULL)
		lookup->names = names;
	pthread_mutex_unlock(&mutex);
	name->is_pending = lookup != NULL;
	names->lookups[name - names->names] = lookup;
	if (lookup == NULL)
		etcd_format_message(name->error,
							"could not resolve host \"%s\": no thread can be started for it",
							name->host);
}

/*
 * The place of a host, or else one to use for it: that which was not wanted
 * for the longest time.  NULL if lookups are under way in all of them.
 */
static EtcdName *
find_place(EtcdNames *names, const char *host)
{
	EtcdName   *oldest = NULL;

	for (int i = 0; i < MAX_NAMES; i++)
	{
		EtcdName   *name = &names->names[i];

		if (strcasecmp(name->host, host) == 0)
			return name;
		if (!name->is_pending && (oldest == NULL || name->wanted < oldest->wanted))
			oldest = name;
	}
	return oldest;
}

/* What was known of addresses that are still there is kept. */
static void
take_addresses(EtcdName *name, const EtcdAddresses *addresses)
{
	EtcdName	before = *name;

	name->addresses = *addresses;
	name->good = before.good >= 0 ?
		find_address(addresses, before.addresses.text[before.good]) : -1;
	for (int i = 0; i < addresses->n; i++)
	{
		int			old = find_address(&before.addresses, addresses->text[i]);

		name->failed[i] = old >= 0 ? before.failed[old] : 0;
	}
}

static void
take_result(EtcdName *name, const Lookup *lookup)
{
	name->is_pending = false;
	name->error[0] = '\0';
	if (lookup->addresses.n > 0)
		take_addresses(name, &lookup->addresses);
	else
		etcd_format_message(name->error, "could not resolve host \"%s\": %s", name->host,
							lookup->error == EAI_SYSTEM ? strerror(lookup->os_error) :
							lookup->error != 0 ? gai_strerror(lookup->error) :
							"it has no IP address");
}

const EtcdName *
etcd_names_want(EtcdNames *names, const char *host)
{
	EtcdName   *name = find_place(names, host);

	if (name == NULL)
		return NULL;
	if (strcasecmp(name->host, host) != 0)
	{
		memset(name, 0, sizeof(*name));
		snprintf(name->host, sizeof(name->host), "%s", host);
		name->good = -1;
	}
	name->wanted = ++names->nwanted;
	if (!name->is_pending && (name->addresses.n == 0 || name->due_ns <= clock_monotonic_ns()))
		start_lookup(names, name);
	return name;
}

/* What is known about a host that has addresses; NULL: nothing. */
static EtcdName *
find_known(EtcdNames *names, const char *host)
{
	EtcdName   *name = find_place(names, host);

	return name != NULL && strcasecmp(name->host, host) == 0 && name->addresses.n > 0 ? name : NULL;
}

void
etcd_names_doubt(EtcdNames *names, const char *host)
{
	EtcdName   *name = find_known(names, host);

	if (name == NULL)
		return;
	name->due_ns = name->began_ns + MIN_INTERVAL_NS;
	(void) etcd_names_want(names, host);
}

int
etcd_names_fd(const EtcdNames *names)
{
	return names->fd;
}

void
etcd_names_finish(EtcdNames *names)
{
	uint64_t	count;

	if (read(names->fd, &count, sizeof(count)) < 0)
		count = 0;				/* nothing was written, and yet a lookup may have ended */
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < MAX_NAMES; i++)
	{
		if (names->lookups[i] == NULL || !names->lookups[i]->has_ended)
			continue;
		take_result(&names->names[i], names->lookups[i]);
		free(names->lookups[i]);
		names->lookups[i] = NULL;
	}
	pthread_mutex_unlock(&mutex);
}

/* ---- the addresses of a host, one after the other -------------------- */

/* Is address i to be tried before address j? */
static bool
comes_before(const EtcdName *name, int i, int j)
{
	if (name->failed[i] != name->failed[j])
		return name->failed[i] < name->failed[j];
	if (i == name->good || j == name->good)
		return i == name->good && i != j;
	return i < j;
}

void
etcd_names_plan(const EtcdName *name, EtcdRoute *route)
{
	memset(route, 0, sizeof(*route));
	strcpy(route->host, name->host);
	route->addresses.n = name->addresses.n;
	route->current = -1;
	for (int i = 0; i < name->addresses.n; i++)
	{
		int			place = 0;

		for (int j = 0; j < name->addresses.n; j++)
			place += comes_before(name, j, i);
		strcpy(route->addresses.text[place], name->addresses.text[i]);
		route->nfresh += name->failed[i] == 0;
	}
}

bool
etcd_route_next(EtcdRoute *route, int64_t end_ns)
{
	int64_t		now = clock_monotonic_ns();
	int			nshares = route->nfresh - (route->current + 1);

	if (route->current + 1 >= route->addresses.n || now >= end_ns)
		return false;
	route->current++;
	route->began_ns = now;
	route->until_ns = now + (end_ns - now) / (nshares > 1 ? nshares : 1);
	return true;
}

void
etcd_names_note(EtcdNames *names, const EtcdRoute *route, bool connected)
{
	EtcdName   *name = find_known(names, route->host);
	int			i;

	/* none was tried, or the name is not known any more */
	if (route->current < 0 || name == NULL)
		return;
	i = find_address(&name->addresses, route->addresses.text[route->current]);
	if (i < 0)
		return;
	name->failed[i] = connected ? 0 : ++name->nfailed;
	if (connected)
		name->good = i;
}
