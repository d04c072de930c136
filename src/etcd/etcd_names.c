/*-------------------------------------------------------------------------
 *
 * etcd_names.c
 *	  The addresses of hosts, looked up without blocking.
 *
 * The C library's resolver blocks, so each lookup has a thread of its own: a
 * name that hangs holds up no other name.  A name has one lookup at a time,
 * and there are MAX_NAMES names, so there are never more threads.
 *
 * The resolver does not tell how long its results are valid.  Names are
 * looked up again when they are wanted and the result is older than a minute,
 * which is how long libcurl and curl trust one; and sooner when a connection
 * has failed.
 *
 * A thread uses nothing but its own Lookup.  What it shares with the owner of
 * the names is under a mutex that nobody holds while a resolver is called.
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
#include "etcd_client.h"
#include "etcd_names.h"

/* Those of the settings, and as many that were in use before a reload. */
#define MAX_NAMES			(2 * ETCD_CLIENT_MAX_ENDPOINTS)

#define MAX_AGE_NS			(60 * NSEC_PER_SEC)

/* A host that refuses connections is not looked up more often than that. */
#define MIN_INTERVAL_NS		NSEC_PER_SEC

/* A lookup, made by its thread. */
typedef struct Lookup
{
	char		host[ETCD_MAX_HOST_LEN + 1];
	char		addresses[ETCD_MAX_ADDRESSES_LEN];
	int			error;			/* of getaddrinfo() */
	int			os_error;		/* if that is EAI_SYSTEM */

	/* under the mutex */
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

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- in the thread --------------------------------------------------- */

/* Adds an address to a list, unless the list is full. */
static void
add_address(Lookup *lookup, const struct sockaddr *address)
{
	size_t		len = strlen(lookup->addresses);
	char		text[INET6_ADDRSTRLEN];
	bool		is_ip6 = address->sa_family == AF_INET6;

	if (is_ip6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *) address)->sin6_addr, text, sizeof(text));
	else if (address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *) address)->sin_addr, text, sizeof(text));
	else
		return;
	/* a comma and brackets */
	if (len + strlen(text) + 3 < sizeof(lookup->addresses))
		sprintf(lookup->addresses + len, is_ip6 ? "%s[%s]" : "%s%s", len > 0 ? "," : "", text);
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
			add_address(lookup, a->ai_addr);
		freeaddrinfo(found);
	}

	pthread_mutex_lock(&mutex);
	lookup->has_ended = true;
	if (lookup->names == NULL)
		free(lookup);
	else if (write(lookup->names->fd, &one, sizeof(one)) < 0)
		abort();				/* an eventfd takes many a 1 */
	pthread_mutex_unlock(&mutex);
	return NULL;
}

/* ---- by the owner ---------------------------------------------------- */

bool
etcd_run_aside(void *(*run) (void *arg), void *arg)
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

static void
start_lookup(EtcdNames *names, EtcdName *name)
{
	Lookup	   *lookup = calloc(1, sizeof(Lookup));

	name->began_ns = clock_monotonic_ns();
	name->due_ns = name->began_ns + MAX_AGE_NS;
	if (lookup != NULL)
	{
		strcpy(lookup->host, name->host);
		lookup->names = names;
		name->is_pending = etcd_run_aside(run_lookup, lookup);
	}
	if (name->is_pending)
		names->lookups[name - names->names] = lookup;
	else
	{
		free(lookup);
		etcd_format_message(name->error, "could not resolve host \"%s\": a thread cannot be started", name->host);
	}
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
	}
	name->wanted = ++names->nwanted;
	if (!name->is_pending && (name->addresses[0] == '\0' || name->due_ns <= clock_monotonic_ns()))
		start_lookup(names, name);
	return name;
}

void
etcd_names_doubt(EtcdNames *names, const char *host)
{
	EtcdName   *name = find_place(names, host);

	if (name != NULL && strcasecmp(name->host, host) == 0 && name->addresses[0] != '\0')
	{
		name->due_ns = name->began_ns + MIN_INTERVAL_NS;
		(void) etcd_names_want(names, host);
	}
}

int
etcd_names_fd(const EtcdNames *names)
{
	return names->fd;
}

static void
take_result(EtcdName *name, const Lookup *lookup)
{
	name->is_pending = false;
	name->error[0] = '\0';
	if (lookup->addresses[0] != '\0')
		strcpy(name->addresses, lookup->addresses);
	else
		etcd_format_message(name->error, "could not resolve host \"%s\": %s", name->host,
							lookup->error == EAI_SYSTEM ? strerror(lookup->os_error) :
							lookup->error != 0 ? gai_strerror(lookup->error) : "it has no IP address");
}

void
etcd_names_finish(EtcdNames *names)
{
	uint64_t	count;

	if (read(names->fd, &count, sizeof(count)) != sizeof(count))
		return;
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
