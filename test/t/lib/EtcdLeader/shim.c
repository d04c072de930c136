/*-------------------------------------------------------------------------
 *
 * shim.c
 *	  What a test changes of a server's world: LD_PRELOADed, see Shim.pm.
 *
 * The clocks can be stepped, the resolver be hung, background workers be held,
 * and the disk be slow or fail, in all processes of the server at once: they
 * share the file that ETCD_LEADER_SHIM names.
 *
 * Stepping CLOCK_REALTIME is what an operator or NTP does.  CLOCK_BOOTTIME and
 * CLOCK_REALTIME stepped together are a host that slept: CLOCK_MONOTONIC, and
 * whatever waits by it, knows nothing of that.
 *
 * A clock that runs fast or slow is CLOCK_MONOTONIC and CLOCK_BOOTTIME at another
 * rate, and with them the time-outs of epoll_wait(), poll() and timer_settime().
 * The kernel's other timers keep its own rate.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC INT64_C(1000000000)
#define PPM 1000000

typedef struct Control
{
	volatile int64_t wall_ns;	/* added to CLOCK_REALTIME */
	volatile int64_t boot_ns;	/* added to CLOCK_BOOTTIME */
	volatile int64_t hang;		/* names below this domain are not resolved */
	volatile int64_t hold;		/* workers that begin wait before they ignore SIGHUP */
	volatile int64_t sync_ns;	/* fsync() and fdatasync() take so much longer */
	volatile int64_t sync_fails;	/* of so many in a process one fails; 0: none */
	volatile int64_t rate_ppm;	/* the clocks run so much too fast */
	volatile int64_t syncs_struck;	/* how many were late or failed: written here */
} Control;

#define DOMAIN ".hung.test"
#define SYNC_STEP_NS 5000000

static Control *control;
static int	(*real_clock_gettime) (clockid_t, struct timespec *);
static int	(*real_getaddrinfo) (const char *, const char *, const struct addrinfo *, struct addrinfo **);
static int	(*real_sigaction) (int, const struct sigaction *, struct sigaction *);
static int	(*real_fsync) (int);
static int	(*real_fdatasync) (int);
static int	(*real_epoll_wait) (int, struct epoll_event *, int, int);
static int	(*real_poll) (struct pollfd *, nfds_t, int);
static int	(*real_timer_settime) (timer_t, int, const struct itimerspec *, struct itimerspec *);

__attribute__((constructor)) static void
start(void)
{
	const char *path = getenv("ETCD_LEADER_SHIM");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *mapping = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	real_clock_gettime = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	real_getaddrinfo = (int (*) (const char *, const char *, const struct addrinfo *, struct addrinfo **))
		dlsym(RTLD_NEXT, "getaddrinfo");
	real_fsync = (int (*) (int)) dlsym(RTLD_NEXT, "fsync");
	real_fdatasync = (int (*) (int)) dlsym(RTLD_NEXT, "fdatasync");
	real_epoll_wait = (int (*) (int, struct epoll_event *, int, int)) dlsym(RTLD_NEXT, "epoll_wait");
	real_poll = (int (*) (struct pollfd *, nfds_t, int)) dlsym(RTLD_NEXT, "poll");
	real_timer_settime = (int (*) (timer_t, int, const struct itimerspec *, struct itimerspec *))
		dlsym(RTLD_NEXT, "timer_settime");
	if (mapping == MAP_FAILED || real_clock_gettime == NULL || real_getaddrinfo == NULL)
		abort();
	close(fd);
	control = mapping;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int64_t		ns = 0;
	int			result;

	/* the start of AddressSanitizer, which comes first, asks for the time */
	result = real_clock_gettime ? real_clock_gettime(clock, now) : (int) syscall(SYS_clock_gettime, clock, now);
	if (result != 0 || control == NULL)
		return result;
	if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
		ns = control->wall_ns;
	else if (clock == CLOCK_BOOTTIME)
		ns = control->boot_ns;
	if ((clock == CLOCK_BOOTTIME || clock == CLOCK_MONOTONIC) && control->rate_ppm != 0)
		ns += (__int128) (now->tv_sec * NSEC_PER_SEC + now->tv_nsec) * control->rate_ppm / PPM;
	ns += now->tv_nsec;
	now->tv_sec += ns / NSEC_PER_SEC;
	now->tv_nsec = ns % NSEC_PER_SEC;
	if (now->tv_nsec < 0)
	{
		now->tv_nsec += NSEC_PER_SEC;
		now->tv_sec--;
	}
	return 0;
}

/* How long a time of the server's clock is by the kernel's; rounded up. */
static int64_t
kernel_time(int64_t time)
{
	int64_t		rate = control ? PPM + control->rate_ppm : PPM;

	return time <= 0 || rate == PPM ? time : (int64_t) (((__int128) time * PPM + rate - 1) / rate);
}

int
epoll_wait(int epoll_fd, struct epoll_event *events, int max_events, int timeout_ms)
{
	return real_epoll_wait(epoll_fd, events, max_events, (int) kernel_time(timeout_ms));
}

int
poll(struct pollfd *fds, nfds_t nfds, int timeout_ms)
{
	return real_poll(fds, nfds, (int) kernel_time(timeout_ms));
}

/* Only a relative time: nobody here sets another. */
int
timer_settime(timer_t timer, int flags, const struct itimerspec *restrict new, struct itimerspec *restrict old)
{
	struct itimerspec spec = *new;
	struct timespec *const times[] = {&spec.it_value, &spec.it_interval};

	for (int i = 0; i < 2; i++)
	{
		int64_t		ns = kernel_time(times[i]->tv_sec * NSEC_PER_SEC + times[i]->tv_nsec);

		times[i]->tv_sec = ns / NSEC_PER_SEC;
		times[i]->tv_nsec = ns % NSEC_PER_SEC;
	}
	return real_timer_settime(timer, flags, &spec, old);
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	now->tv_sec = ts.tv_sec;
	now->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	if (result)
		*result = ts.tv_sec;
	return ts.tv_sec;
}

/* Names below the domain are this host's. */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	size_t		len = node ? strlen(node) : 0;
	size_t		domain_len = strlen(DOMAIN);

	if (len < domain_len || strcmp(node + len - domain_len, DOMAIN) != 0)
		return real_getaddrinfo(node, service, hints, result);
	while (control->hang)
		usleep(200000);
	return real_getaddrinfo("127.0.0.1", service, hints, result);
}

/* bgworker.c ignores SIGHUP, and so drops a pending SIGHUP, before it calls the function of the worker. */
int
sigaction(int signal, const struct sigaction *restrict new, struct sigaction *restrict old)
{
	/* the start of AddressSanitizer comes first */
	if (real_sigaction == NULL)
		real_sigaction = (int (*) (int, const struct sigaction *, struct sigaction *)) dlsym(RTLD_NEXT, "sigaction");
	while (signal == SIGHUP && new != NULL && new->sa_handler == SIG_IGN && control != NULL && control->hold)
		usleep(10000);
	return real_sigaction(signal, new, old);
}

/* In steps: it ends with the fault. */
static int
sync_file(int fd, int (*real_sync) (int))
{
	static unsigned syncs;
	struct timespec step = {.tv_nsec = SYNC_STEP_NS};

	if (control->sync_ns > 0)
		__atomic_fetch_add(&control->syncs_struck, 1, __ATOMIC_RELAXED);
	for (int64_t slept_ns = 0; slept_ns < control->sync_ns; slept_ns += SYNC_STEP_NS)
		nanosleep(&step, NULL);
	if (control->sync_fails > 0 && ++syncs % control->sync_fails == 0)
	{
		__atomic_fetch_add(&control->syncs_struck, 1, __ATOMIC_RELAXED);
		errno = EIO;
		return -1;
	}
	return real_sync(fd);
}

int
fsync(int fd)
{
	return sync_file(fd, real_fsync);
}

int
fdatasync(int fd)
{
	return sync_file(fd, real_fdatasync);
}
