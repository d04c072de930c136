/*-------------------------------------------------------------------------
 *
 * small_server.c
 *	  The part of a server that all its processes share.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "small_server.h"

extern void pass_moment(void);	/* of moments.h */

#undef ConditionVariableCancelSleep

/* ---- variables of PostgreSQL ------------------------------------------------- */

int			MyProcPid;
int			MaxBackends = PG_PROCESSES;
volatile sig_atomic_t InterruptPending;
volatile uint32 QueryCancelHoldoffCount;
struct Latch *MyLatch;
MemoryContext CurrentMemoryContext;
MemoryContext TopMemoryContext;
LWLockPadded *MainLWLockArray;
sigjmp_buf *PG_exception_stack;
ErrorContextCallback *error_context_stack;
shmem_request_hook_type shmem_request_hook;
shmem_startup_hook_type shmem_startup_hook;

static PGPROC processes[PG_PROCESSES];
static PROC_HDR header = {.allProcs = processes};
PROC_HDR   *ProcGlobal = &header;
PGPROC	   *MyProc;
#if PG_VERSION_NUM >= 170000
ProcNumber	MyProcNumber;
#endif

int64		now_ns;
TimestampTz pg_wall_clock;

TimestampTz
GetCurrentTimestamp(void)
{
	return pg_wall_clock;
}

static void
die(const char *what)
{
	fprintf(stderr, "small_server.c: %s\n", what);
	abort();
}

/* ---- errors ---------------------------------------------------------------------- */

PgError		pg_error;
void		(*pg_end_process) (void);

bool
errstart(int elevel, const char *domain)
{
	memset(&pg_error, 0, sizeof(pg_error));
	pg_error.level = elevel;
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	for (ErrorContextCallback *context = error_context_stack; context; context = context->previous)
		context->callback(context->arg);
	if (pg_error.level < ERROR)
		return;
	QueryCancelHoldoffCount = 0;
	if (pg_error.level > ERROR && pg_end_process)
		pg_end_process();
	pg_re_throw();
}

void
pg_re_throw(void)
{
	if (PG_exception_stack == NULL)
		die(pg_error.message);
	siglongjmp(*PG_exception_stack, 1);
}

void
FlushErrorState(void)
{
	memset(&pg_error, 0, sizeof(pg_error));
}

int
geterrcode(void)
{
	return pg_error.sqlstate;
}

int
errcode(int sqlstate)
{
	return pg_error.sqlstate = sqlstate;
}

int
errcode_for_file_access(void)
{
	return errcode(ERRCODE_IO_ERROR);
}

static int
write_text(char *text, const char *fmt, va_list args)
{
	return vsnprintf(text, sizeof(pg_error.message), fmt, args) >= 0 ? 0 : -1;
}

#define TEXT_FUNCTION(name, member) \
int \
name(const char *fmt,...) \
{ \
	va_list		args; \
\
	va_start(args, fmt); \
	(void) write_text(pg_error.member, fmt, args); \
	va_end(args); \
	return 0; \
}

TEXT_FUNCTION(errmsg, message)
TEXT_FUNCTION(errmsg_internal, message)
TEXT_FUNCTION(errdetail, detail)
TEXT_FUNCTION(errdetail_internal, detail)
TEXT_FUNCTION(errhint, hint)

bool
pg_try(void (*function) (void))
{
	volatile bool done = false;

	PG_TRY();
	{
		function();
		done = true;
	}
	PG_CATCH();
	{
		ConditionVariableCancelSleep();
	}
	PG_END_TRY();
	return done;
}

bool
pg_has_reported(int level, const char *message)
{
	bool		has = pg_error.level == level && strcmp(pg_error.message, message) == 0;

	memset(&pg_error, 0, sizeof(pg_error));
	return has;
}

void
ExceptionalCondition(const char *condition,
#if PG_VERSION_NUM < 160000
					 const char *type,
#endif
					 const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	abort();
}

/* ---- processes ------------------------------------------------------------------- */

static int	me;

void
pg_be(int number)
{
	me = number;
	MyProc = &processes[number];
	MyProcPid = MyProc->pid = 100 + number;
	MyLatch = &MyProc->procLatch;
#if PG_VERSION_NUM >= 170000
	MyProcNumber = number;
#else
	MyProc->pgprocno = number;
#endif
}

bool
pg_was_woken(int number)
{
	bool		was_woken = processes[number].procLatch.is_set;

	processes[number].procLatch.is_set = false;
	return was_woken;
}

typedef struct Callbacks
{
	int			n;
	struct
	{
		pg_on_exit_callback function;
		Datum		arg;
	}			callbacks[8];
} Callbacks;

static Callbacks before_exit;
static Callbacks at_exit;

static void
add_callback(Callbacks *list, pg_on_exit_callback function, Datum arg)
{
	if (list->n == lengthof(list->callbacks))
		die("too many exit callbacks");
	list->callbacks[list->n].function = function;
	list->callbacks[list->n++].arg = arg;
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	add_callback(&before_exit, function, arg);
}

void
on_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	add_callback(&at_exit, function, arg);
}

void
cancel_before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	int			last = before_exit.n - 1;

	if (last < 0 || before_exit.callbacks[last].function != function || before_exit.callbacks[last].arg != arg)
		die("another exit callback is the last one");
	before_exit.n = last;
}

int
pg_exit_callbacks(void)
{
	return before_exit.n + at_exit.n;
}

static void
run_callbacks(const Callbacks *list, int code)
{
	for (int i = list->n - 1; i >= 0; i--)
		list->callbacks[i].function(code, list->callbacks[i].arg);
}

void
pg_run_exit_callbacks(int code)
{
	ConditionVariableCancelSleep();
	run_callbacks(&before_exit, code);
	run_callbacks(&at_exit, code);
}

void
pg_end(int code)
{
	pg_run_exit_callbacks(code);
	before_exit.n = at_exit.n = 0;
}

/* ---- shared memory ---------------------------------------------------------------- */

#define FOREIGN_SIZE	(64 * 1024)

Size		pg_requested_memory;
bool		pg_is_out_of_memory;

static struct
{
	const char *name;
	Size		size;
	char	   *memory;
}			known[32];
static int	fill;
static Size used_memory;
static bool is_locked;

void
RequestAddinShmemSpace(Size size)
{
	pg_requested_memory += size;
}

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	int			i = 0;

	if (!is_locked)
		die("shared memory is made without the lock");
	while (known[i].name && strcmp(known[i].name, name) != 0)
		i++;
	if ((*found = known[i].memory != NULL))
		return known[i].memory;
	known[i].name = name;
	known[i].size = TYPEALIGN(PG_CACHE_LINE_SIZE, size);
	/* before it lies memory of others */
	known[i].memory = aligned_alloc(PG_CACHE_LINE_SIZE, FOREIGN_SIZE + known[i].size);
	memset(known[i].memory, 0x5a, FOREIGN_SIZE);
	known[i].memory += FOREIGN_SIZE;
	memset(known[i].memory, fill, known[i].size);
	used_memory += known[i].size;
	if (pg_requested_memory > 0 && used_memory > pg_requested_memory)
		die("more shared memory is made than was requested");
	return known[i].memory;
}

void
pg_start_memory(int byte)
{
	for (size_t i = 0; i < lengthof(known); i++)
	{
		if (known[i].memory)
			free(known[i].memory - FOREIGN_SIZE);
		known[i].memory = NULL;
	}
	fill = byte;
	pg_requested_memory = used_memory = 0;
	if (shmem_request_hook)
		shmem_request_hook();
	if (shmem_startup_hook)
		shmem_startup_hook();
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	if (is_locked || mode != LW_EXCLUSIVE)
		die("the lock is taken twice, or not alone");
	return is_locked = true;
}

void
LWLockRelease(LWLock *lock)
{
	if (!is_locked)
		die("there is no lock");
	is_locked = false;
}

/* Some releases of libpgcommon have these two. */
__attribute__((weak)) Size
add_size(Size a, Size b)
{
	return a + b;
}

__attribute__((weak)) Size
mul_size(Size a, Size b)
{
	return a * b;
}

/* At the end of a process its memory contexts would free what is left. */
extern const char *__lsan_default_options(void);

const char *
__lsan_default_options(void)
{
	return "detect_leaks=0";
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	if (pg_is_out_of_memory)
		return NULL;
	return (flags & MCXT_ALLOC_ZERO) ? calloc(1, size) : malloc(size);
}

/* ---- sleeping ------------------------------------------------------------------- */

void		(*pg_others) (void);
bool		pg_is_cancelled;
int			pg_nsleeps;
void		(*pg_at_moment) (void);

static struct
{
	ConditionVariable *list;	/* on which it is */
	bool		is_woken;
}			sleepers[PG_PROCESSES];

extern int	__wrap_clock_gettime(clockid_t clock, struct timespec *time);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	if (pg_at_moment)
		pg_at_moment();
	time->tv_sec = now_ns / 1000000000;
	time->tv_nsec = now_ns % 1000000000;
	return 0;
}

void
pass_moment(void)
{
	if (pg_at_moment)
		pg_at_moment();
	pg_memory_barrier();
}

#if PG_VERSION_NUM >= 170000
uint32
WaitEventExtensionNew(const char *name)
{
	return PG_WAIT_EXTENSION + (uint32) strlen(name);
}
#endif

__attribute__((weak)) void
ProcessInterrupts(void)
{
	InterruptPending = false;
	pg_is_cancelled = false;
	ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("canceling statement")));
}

void
SetLatch(struct Latch *latch)
{
	latch->is_set = true;
}

void
ResetLatch(Latch *latch)
{
	latch->is_set = false;
}

static void
let_others_run(uint32 wait_event)
{
	int			sleeper = me;

	if ((wait_event & 0xFF000000) != PG_WAIT_EXTENSION)
		die("a process waits for nothing that has a name");
	pg_nsleeps++;
	if (pg_others)
		pg_others();
	pg_be(sleeper);
	InterruptPending |= pg_is_cancelled;
}

/* Nobody has woken this process. */
static void
wait_for_timeout(long timeout_ms)
{
	if (timeout_ms < 0)
		die("nobody wakes a process, which sleeps for ever");
	now_ns += timeout_ms * INT64CONST(1000000);
}

int
WaitLatch(Latch *latch, int wake_events, long timeout_ms, uint32 wait_event)
{
	if (!latch->is_set)
		let_others_run(wait_event);
	if (latch->is_set)
		return WL_LATCH_SET;
	if ((wake_events & WL_EXIT_ON_PM_DEATH) == 0)
		die("a sleep outlives the postmaster");
	wait_for_timeout((wake_events & WL_TIMEOUT) ? timeout_ms : -1);
	return WL_TIMEOUT;
}

/* Memory of zeros is not enough. */
static void
check_list(const ConditionVariable *cv)
{
	if (cv->wakeup.head == 0)
		die("a condition variable was not initialized");
}

void
ConditionVariableInit(ConditionVariable *cv)
{
	cv->wakeup.head = cv->wakeup.tail = -1;
}

void
ConditionVariablePrepareToSleep(ConditionVariable *cv)
{
	check_list(cv);
	sleepers[me].list = cv;
	sleepers[me].is_woken = false;
}

#if PG_VERSION_NUM >= 160000
bool
ConditionVariableCancelSleep(void)
{
	bool		was_woken = sleepers[me].is_woken;

	sleepers[me].list = NULL;
	return was_woken;
}
#else
void
ConditionVariableCancelSleep(void)
{
	sleepers[me].list = NULL;
}
#endif

bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout_ms, uint32 wait_event)
{
	if (sleepers[me].list != cv)
	{
		ConditionVariablePrepareToSleep(cv);
		return false;
	}
	if (!sleepers[me].is_woken)
		let_others_run(wait_event);
	CHECK_FOR_INTERRUPTS();
	if (sleepers[me].is_woken)
	{
		sleepers[me].is_woken = false;
		return false;
	}
	wait_for_timeout(timeout_ms);
	return true;
}

void
ConditionVariableBroadcast(ConditionVariable *cv)
{
	check_list(cv);
	for (int i = 0; i < PG_PROCESSES; i++)
	{
		if (sleepers[i].list != cv)
			continue;
		sleepers[i].is_woken = true;
		SetLatch(&processes[i].procLatch);
	}
}

bool
pg_is_on_wait_list(int number)
{
	return sleepers[number].list != NULL;
}

/* ---- files --------------------------------------------------------------------- */

struct PgFileErrors pg_file_errors;
int			pg_open_files;

FILE *
AllocateFile(const char *name, const char *mode)
{
	int			error = mode[0] == 'r' ? pg_file_errors.open_to_read : pg_file_errors.open_to_write;
	FILE	   *file;

	if (error != 0)
	{
		errno = error;
		return NULL;
	}
	file = fopen(name, mode);
	pg_open_files += file != NULL;
	return file;
}

extern size_t __real_fwrite(const void *bytes, size_t size, size_t n, FILE *file);
extern size_t __wrap_fwrite(const void *bytes, size_t size, size_t n, FILE *file);

size_t
__wrap_fwrite(const void *bytes, size_t size, size_t n, FILE *file)
{
	if (pg_file_errors.write == 0 || --pg_file_errors.write > 0)
		return __real_fwrite(bytes, size, n, file);
	errno = ENOSPC;
	return 0;
}

int
FreeFile(FILE *file)
{
	int			result = fclose(file);

	pg_open_files--;
	if (pg_file_errors.close == 0)
		return result;
	errno = pg_file_errors.close;
	return EOF;
}

int
durable_rename(const char *old_name, const char *new_name, int level)
{
	if (pg_open_files > 0)
		die("a file is renamed that is not closed");
	if (rename(old_name, new_name) == 0)
		return 0;
	ereport(level, (errcode_for_file_access(), errmsg("could not rename file \"%s\"", old_name)));
	return -1;
}

int
durable_unlink(const char *name, int level)
{
	if (unlink(name) == 0)
		return 0;
	ereport(level, (errcode_for_file_access(), errmsg("could not remove file \"%s\"", name)));
	return -1;
}
