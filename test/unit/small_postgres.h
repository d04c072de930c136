/*-------------------------------------------------------------------------
 *
 * small_postgres.h
 *	  The part of a backend that the fence meets: transactions, statements with their
 *	  hooks, errors, interrupts, and the timer.
 *
 * There is one process at a time.  Its clock is `now_ns`, which only the test moves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SMALL_POSTGRES_H
#define SMALL_POSTGRES_H

#include "access/xact.h"
#include "nodes/parsenodes.h"

#include "small_server.h"

typedef enum PgCopy
{
	PG_COPY_FROM_CLIENT,
	PG_COPY_FROM_FILE,
	PG_COPY_TO
} PgCopy;

typedef struct PgStatement
{
	NodeTag		tag;			/* of a utility statement; T_Invalid: the executor runs it */
	int			kind;			/* of a TransactionStmt, or PgCopy */
	void		(*body) (const void *argument);
	const void *argument;
} PgStatement;

/* What the test does at these moments. */
extern void test_look_at_clock(void);
extern void test_begin_transaction(void);
extern void test_before_statement(void);	/* before its hooks; then after them */
extern void test_enter_statement(void);
extern void test_before_commit(void);	/* deferred triggers run */
extern void test_check_commit(bool is_over);	/* before and after the callbacks */
extern void test_commit(void);	/* the wait for a synchronous standby */
extern void test_end_transaction(bool is_committed);

/* A new process, with that kind.  pg_exit() ends it, also within a transaction. */
extern void pg_start(BackendType type);
extern void pg_exit(void);

/*
 * A command of the client.  False: it has failed, see pg_error.  A failure may be the
 * end of the process.
 */
extern bool pg_command(const PgStatement *statement);
extern bool pg_begin(bool read_only);
extern bool pg_commit(void);
extern bool pg_prepare(void);
extern bool pg_rollback(void);
extern bool pg_savepoint(void);
extern bool pg_rollback_to(void);
extern bool pg_set_read_only(bool read_only);

/* Within a statement. */
extern void pg_nested(const PgStatement *statement);
extern bool pg_nested_caught(const PgStatement *statement); /* EXCEPTION of PL/pgSQL */
extern void pg_commit_here(bool commit);	/* or roll back, and go on in the next transaction */
extern void pg_write(void);		/* ERROR if the transaction is READ ONLY */

extern bool pg_is_open(void);	/* a transaction is open, and can commit */
extern bool pg_is_in_block(void);
extern bool pg_is_failed(void); /* in a block; also in a savepoint alone */
extern int	pg_savepoints(void);
extern bool pg_has_written(void);

/* The time has come to this point: runs the timer if it is due. */
extern void pg_run_timer(void);
extern void pg_tick(void);		/* if it is set, due or not */
extern bool pg_timer_is_set(void);
extern int	pg_timer_sets;		/* how often */
extern void pg_wait(uint32 event);	/* 0: it does not wait */
extern void pg_wait_for_client(bool waits); /* within a message */

extern bool pg_is_logical_worker;

#endif							/* SMALL_POSTGRES_H */
