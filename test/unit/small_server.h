/*-------------------------------------------------------------------------
 *
 * small_server.h
 *	  The part of a server that all its processes share: errors, the ends of processes,
 *	  shared memory, sleeping and waking, and files.
 *
 * There is one process at a time.  While it sleeps, pg_others() is called, which may be
 * any other process.  The clock is `now_ns`, which the test and a sleep's timeout move.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SMALL_SERVER_H
#define SMALL_SERVER_H

#include "datatype/timestamp.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"

typedef struct PgError
{
	int			level;			/* 0: none */
	int			sqlstate;
	char		message[256];
	char		detail[256];
	char		hint[256];
} PgError;

extern int64 now_ns;
extern TimestampTz pg_wall_clock;
extern PgError pg_error;		/* the last one, also of LOG */
extern void (*pg_end_process) (void);	/* for FATAL; NULL: as for ERROR */

/* Runs a function.  False: it has raised an ERROR, see pg_error. */
extern bool pg_try(void (*function) (void));

/* Has there been a report of that level, with that message?  Forgets it. */
extern bool pg_has_reported(int level, const char *message);

/* ---- processes ------------------------------------------------------------------- */

#define PG_PROCESSES	24

/* From here on this is the process with that number.  Its PID is 100 + number. */
extern void pg_be(int number);

/* Was the latch of that process set?  Resets it. */
extern bool pg_was_woken(int number);

/* Calls what is to be called at the end of a process, the last one first. */
extern void pg_run_exit_callbacks(int code);
extern void pg_end(int code);	/* the same, and forgets it */
extern int	pg_exit_callbacks(void);	/* how many there are */

/* ---- shared memory ---------------------------------------------------------------- */

/* Asks for shared memory and makes it, as the postmaster does.  Memory is of that byte. */
extern void pg_start_memory(int fill);
extern Size pg_requested_memory;
extern bool pg_is_out_of_memory;	/* for allocations that may fail */

/* ---- sleeping ------------------------------------------------------------------- */

/*
 * What others do while a process sleeps whom nobody has woken.  If nobody wakes it then,
 * the time of its timeout is over; a sleep without a timeout fails the test.
 */
extern void (*pg_others) (void);
extern bool pg_is_cancelled;	/* the next look for interrupts is an ERROR */
/* What others do at a moment (moments.h), or at a look at the clock. */
extern void (*pg_at_moment) (void);
extern int	pg_nsleeps;
extern bool pg_is_on_wait_list(int number);

/* ---- files --------------------------------------------------------------------- */

/* What fails, and with which error; 0: nothing. */
extern struct PgFileErrors
{
	int			open_to_read;
	int			open_to_write;
	int			close;
	int			write;			/* the write with that number, because the disk is full */
}			pg_file_errors;
extern int	pg_open_files;

#endif							/* SMALL_SERVER_H */
