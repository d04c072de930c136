/*-------------------------------------------------------------------------
 *
 * requests.h
 *	  The requests under way: how they are started, sent, and tried again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REQUESTS_H
#define REQUESTS_H

#include "state.h"

/*
 * The back-off between two tries of a failed request.  It doubles up to the
 * last value, and has a jitter.
 */
#define BACKOFF_MIN_MS		100
#define BACKOFF_MAX_MS		1000

/*
 * Returns NULL if there are too many; the request is still wanted when others
 * have ended.
 */
extern Op  *request_start(ElectionCore *core, int64_t now_ns, OpKind kind);
extern Op  *request_start_for(ElectionCore *core, int64_t now_ns, OpKind kind, Election *e);

/*
 * The election of a request about one; NULL if its slot belongs to another one
 * now.
 */
extern Election *request_find_election(ElectionCore *core, const Op *op);

/* For the log: that answer is not used; see ElectionPort.drop. */
extern void request_drop_answer(const ElectionCore *core, uint64_t id, const Election *e,
								const char *why);
extern void request_send_txn(ElectionCore *core, const Op *op,
							 const EtcdCompare *compares, int ncompares,
							 const EtcdOp *success, int nsuccess,
							 const EtcdOp *failure, int nfailure);

/*
 * Sends a txn of ranges.  ordered: raft's log orders it (ORDERED).  ops has room
 * for one operation more.
 */
extern void request_send_read(ElectionCore *core, Op *op, EtcdOp *ops, int nops, bool ordered);
extern void request_send_lease(ElectionCore *core, const Op *op, EtcdRequestKind kind,
							   int64_t ttl_s);

/*
 * How long to wait after this number of failures in a row: between half and
 * all of a back-off that doubles.  It counts from the sending of the failed
 * request, because the time without an answer was waiting, too.  A leader has
 * a deadline to meet, and there is only one leader: its urgent back-off ends at
 * an 18th of the TTL.
 */
extern int64_t request_backoff_ns(ElectionCore *core, int failures);
extern int64_t request_urgent_backoff_ns(ElectionCore *core, int failures);

/* Is the request a read of any kind?  Does its txn write nothing? */
extern bool request_is_read(const Op *op);
extern bool request_writes_nothing(const Op *op);

#endif							/* REQUESTS_H */
