/*-------------------------------------------------------------------------
 *
 * discovery.c
 *	  Endpoints from the SRV records of a DNS domain.
 *
 * The C library's resolver blocks, so it is called in a thread, as for
 * the addresses of names.  The thread uses nothing but its own EtcdDiscovery, and
 * nobody else uses that from the start of a lookup until the thread has
 * set has_ended.  Nothing that fails in it may end the process, which is a
 * server's: if the sign of its end is lost, the next lookup is started all the
 * same.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/nameser.h>
#include <limits.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "discovery.h"
#include "names.h"

/* The answer of a DNS server over TCP is no longer. */
#define MAX_DNS_ANSWER	65536

/* Of a host name; an underscore is tolerated. */
#define NAME_CHARACTERS \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

struct EtcdDiscovery
{
	int			fd;				/* eventfd */
	bool		running;		/* its result is not taken yet */
	bool		has_ended;		/* atomic: set by the thread, which uses nothing here afterwards */
	bool		tls_only;
	uint32_t	seed;			/* of the order among equals */
	EtcdDiscovered found;
};

/* An SRV record (RFC 2782). */
typedef struct Record
{
	unsigned	priority;
	double		rank;			/* within the priority: less is first */
	char		url[ETCD_CLIENT_MAX_URL_LEN + 1];
} Record;

/*
 * The place of a target among those of its priority.  The order is drawn at
 * random once for this process; a greater weight makes an early place likelier
 * (Efraimidis and Spirakis's reservoir). It is the same each time, so that a
 * lookup of the same records changes nothing.
 */
static double
rank_target(uint32_t seed, const char *target, unsigned port, unsigned weight)
{
	uint32_t	hash = 2166136261u ^ seed;

	for (; *target != '\0'; target++)
		hash = (hash ^ (unsigned char) *target) * 16777619u;
	hash = (hash ^ port) * 16777619u;
	hash ^= hash >> 15;
	hash *= 2246822519u;
	hash ^= hash >> 13;
	return -log((hash + 1.0) / (UINT32_MAX + 2.0)) / (weight > 0 ? weight : 0.001);
}

static int
compare_records(const void *a, const void *b)
{
	const Record *r = a;
	const Record *s = b;

	if (r->priority != s->priority)
		return r->priority < s->priority ? -1 : 1;
	return r->rank < s->rank ? -1 : r->rank > s->rank;
}

/*
 * Reads the SRV records of an answer.  Their number, at most `size`; the least
 * TTL goes into *ttl_s.
 */
static int
read_records(const unsigned char *answer, int len, uint32_t seed, const char *scheme,
			 Record *records, int size, long *ttl_s)
{
	ns_msg		message;
	int			nrecords = 0;

	if (ns_initparse(answer, len, &message) != 0)
		return 0;
	for (int i = 0; i < ns_msg_count(message, ns_s_an) && nrecords < size; i++)
	{
		Record	   *record = &records[nrecords];
		const unsigned char *data;
		char		target[NS_MAXDNAME];
		unsigned	port;
		ns_rr		rr;

		if (ns_parserr(&message, ns_s_an, i, &rr) != 0 ||
			ns_rr_type(rr) != ns_t_srv || ns_rr_rdlen(rr) < 7)
			continue;
		data = ns_rr_rdata(rr);
		if (ns_name_uncompress(ns_msg_base(message), ns_msg_end(message), data + 6,
							   target, sizeof(target)) < 0)
			continue;
		/*
		 * "." means that there is no such service; other text that is no host
		 * name could change the meaning of a URL
		 */
		if (target[strspn(target, NAME_CHARACTERS)] != '\0' ||
			target[0] == '\0' || strcmp(target, ".") == 0)
			continue;
		port = ns_get16(data + 4);
		if ((size_t) snprintf(record->url, sizeof(record->url), "%s://%s:%u", scheme, target,
							  port) >=
			sizeof(record->url))
			continue;
		record->priority = ns_get16(data);
		record->rank = rank_target(seed, target, port, ns_get16(data + 2));
		if ((long) ns_rr_ttl(rr) < *ttl_s)
			*ttl_s = (long) ns_rr_ttl(rr);
		nrecords++;
	}
	return nrecords;
}

/*
 * Looks up one name.  True if DNS gave an answer, also if the answer is that
 * there are no such records.
 */
static bool
look_up(EtcdDiscovery *discovery, const char *service, const char *scheme)
{
	EtcdDiscovered *found = &discovery->found;
	char		name[NS_MAXDNAME];
	struct __res_state resolver;
	unsigned char *answer;
	Record	   *records;
	int			len;
	int			error;

	memset(&resolver, 0, sizeof(resolver));
	answer = malloc(MAX_DNS_ANSWER);
	records = calloc(ETCD_CLIENT_MAX_ENDPOINTS, sizeof(Record));
	if (answer == NULL || records == NULL || res_ninit(&resolver) != 0)
	{
		free(answer);
		free(records);
		etcd_format_message(found->error, "the resolver cannot be used: out of memory");
		return false;
	}
	snprintf(name, sizeof(name), "%s._tcp.%s", service, found->domain);
	len = res_nquery(&resolver, name, ns_c_in, ns_t_srv, answer, MAX_DNS_ANSWER);
	error = resolver.res_h_errno;
	res_nclose(&resolver);

	if (len >= 0)
	{
		found->ttl_s = LONG_MAX;
		found->nurls = read_records(answer, len < MAX_DNS_ANSWER ? len : MAX_DNS_ANSWER,
									discovery->seed, scheme, records,
									ETCD_CLIENT_MAX_ENDPOINTS, &found->ttl_s);
		qsort(records, found->nurls, sizeof(Record), compare_records);
		for (int i = 0; i < found->nurls; i++)
			memcpy(found->urls[i], records[i].url, sizeof(records[i].url));
	}
	free(answer);
	free(records);

	if (found->nurls > 0)
		return true;
	if (len >= 0 || error == HOST_NOT_FOUND || error == NO_DATA)
	{
		etcd_format_message(found->error, "DNS has no SRV records for \"%s\"", name);
		return true;
	}
	etcd_format_message(found->error, "could not look up the SRV records for \"%s\": %s",
						name, hstrerror(error));
	return false;
}

static void *
run_lookup(void *arg)
{
	EtcdDiscovery *discovery = arg;
	int			fd = discovery->fd;
	uint64_t	one = 1;
	ssize_t		written;

	if (look_up(discovery, "_etcd-client-ssl", "https") &&
		discovery->found.nurls == 0 && !discovery->tls_only)
		(void) look_up(discovery, "_etcd-client", "http");
	__atomic_store_n(&discovery->has_ended, true, __ATOMIC_RELEASE);
	written = write(fd, &one, sizeof(one));
	(void) written;
	return NULL;
}

EtcdDiscovery *
etcd_discovery_create(void)
{
	EtcdDiscovery *discovery = calloc(1, sizeof(EtcdDiscovery));

	if (discovery == NULL)
		return NULL;
	discovery->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (discovery->fd < 0)
	{
		free(discovery);
		return NULL;
	}
	discovery->seed = (uint32_t) getpid() * 2654435761u;
	return discovery;
}

bool
etcd_discovery_start(EtcdDiscovery *discovery, const char *domain, bool tls_only)
{
	if (discovery->running && !__atomic_load_n(&discovery->has_ended, __ATOMIC_ACQUIRE))
		return false;
	discovery->has_ended = false;
	memset(&discovery->found, 0, sizeof(discovery->found));
	snprintf(discovery->found.domain, sizeof(discovery->found.domain), "%s", domain);
	discovery->tls_only = tls_only;
	discovery->running = etcd_start_thread(run_lookup, discovery);
	return discovery->running;
}

int
etcd_discovery_fd(const EtcdDiscovery *discovery)
{
	return discovery->fd;
}

const EtcdDiscovered *
etcd_discovery_finish(EtcdDiscovery *discovery)
{
	uint64_t	count;

	if (read(discovery->fd, &count, sizeof(count)) < 0)
		count = 0;				/* nothing was written, and yet the lookup may have ended */
	if (!discovery->running || !__atomic_load_n(&discovery->has_ended, __ATOMIC_ACQUIRE))
		return NULL;
	discovery->running = false;
	return &discovery->found;
}
