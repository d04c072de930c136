/*-------------------------------------------------------------------------
 *
 * shared_state.h
 *	  What the elector publishes and backends read: elections, contact,
 *	  events, counters; and the mailbox through which backends ask it.
 *
 * The elector is the only writer of all but the mailbox.  Readers take no
 * lock and never wait for it: it may be stopped at any instruction.  Nothing
 * process-local (pointer, fd) is in here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHARED_STATE_H
#define SHARED_STATE_H

#include "datatype/timestamp.h"

#include "election.h"

/* ---- life ------------------------------------------------------------ */

/* Called once, at library load in the postmaster: installs the hooks. */
extern void shared_state_install(void);

/* False in a server that has not preloaded the library. */
extern bool shared_state_is_attached(void);

/*
 * The elector begins (withdraws what an earlier one left, fails what its
 * callers wait for) and ends (withdraws everything).  begin stores the
 * number of this process, so that backends can set its latch.
 */
extern void shared_state_begin_elector(void);
extern void shared_state_end_elector(void);

/*
 * For an elector that ends at once: withdraws everything, by plain stores, and
 * leaves shared memory.  All functions can still be called; they read and write
 * memory of this process, take no lock of another, and wake nobody.
 */
extern void shared_state_leave(void);
extern bool shared_state_has_elector(void);

/* CLOCK_BOOTTIME, in nanoseconds: goes on while the host sleeps. */
extern int64 shared_state_clock_ns(void);

/*
 * What came from etcd, in the database's encoding; palloc'd.  Never fails:
 * a byte that is not UTF-8, or a character that the encoding does not have,
 * becomes a question mark.  Needs a transaction.
 */
extern char *shared_state_text(const char *utf8);

/* ---- elections ------------------------------------------------------- */

/*
 * Publishes one slot.  Leadership is gone for every reader when this returns
 * with view->deadline_ns 0.
 */
extern void shared_state_publish(int slot, const ElectionView *view);

/* Leadership of all elections is gone; safe in an exit callback. */
extern void shared_state_withdraw_all(void);

/*
 * The slot of an election, -1 if the elector has not taken it up.  Slots can
 * be given to another election: `layout` (out) has to be passed to the
 * functions below, which say "not leading" when it is out of date.
 */
extern int	shared_state_find(const char *election, uint64 *layout);
extern uint64 shared_state_layout(void);

/* Does this instance lead, now?  One atomic load and one clock read. */
extern bool shared_state_is_leader(int slot, uint64 layout);

/* The token while this instance leads, else 0.  Deadline and token belong together. */
extern int64 shared_state_token(int slot, uint64 layout);

typedef struct SharedElection
{
	ElectionView view;			/* as published */
	TimestampTz leader_since;	/* when this leader was first seen; 0: none */
	TimestampTz problem_since;	/* view.problem: since then; 0: there is none */
	int64		deadline_ns;	/* that readers go by now, 0 if withdrawn; this
								 * instance leads if the clock is below it */
} SharedElection;

/* A consistent copy; false if the slot is free or the layout out of date. */
extern bool shared_state_read(int slot, uint64 layout, SharedElection *election);

/* The leader's name at that time, in UTF-8; NULL: none is known. */
static inline const char *
shared_state_leader(const SharedElection *election, int64 now_ns)
{
	return election->view.has_leader && election->view.leader_until_ns > now_ns ?
		election->view.leader : NULL;
}

/*
 * Elections that this instance has resigned from for good: remembered until
 * the server is started anew, whatever becomes of the elector.  For the
 * elector alone.
 */
extern void shared_state_set_stay_out(const char *election, bool stay_out);
extern bool shared_state_stays_out(const char *election);

/*
 * What the elector has remembered over a crash restart of the server: lives as
 * long as the postmaster, outside of what a restart makes anew, and in no
 * file, so that no copy of the data directory carries it.  NULL erases.
 * recall: false if nothing is remembered.  For the elector alone, and of
 * plain stores, safe at any time.
 */
extern void shared_state_remember(const ElectionMemory *memory);
extern bool shared_state_recall(ElectionMemory *memory);

/* ---- contact with etcd ------------------------------------------------ */

#define SHARED_ENDPOINT_SIZE 256

typedef struct SharedContact
{
	char		node_name[ELECTION_VALUE_SIZE];
	char		endpoint[SHARED_ENDPOINT_SIZE];
	bool		connected;
	TimestampTz last_contact;	/* 0: never */
	char		last_error[2 * ETCD_MESSAGE_SIZE];	/* empty: none */
	TimestampTz last_error_at;
} SharedContact;

extern void shared_state_publish_contact(const SharedContact *contact);
extern void shared_state_read_contact(SharedContact *contact);

/* ---- events ----------------------------------------------------------- */

#define SHARED_EVENTS 512

typedef struct SharedEvent
{
	int64		seq;			/* see below */
	TimestampTz at;
	ElectionEventKind kind;
	char		election[ELECTION_NAME_SIZE];	/* empty: of the instance */
	char		node[ELECTION_VALUE_SIZE];
	bool		has_leader;
	char		leader[ELECTION_VALUE_SIZE];
	int64		leader_revision;
	char		reason[ELECTION_REASON_SIZE];	/* empty: none */
} SharedEvent;

/*
 * Events are numbered by ones, also over a crash restart.  A start of the
 * server begins above every number of the starts before it: at the wall clock,
 * in microseconds since 2000.  So a reader that goes on from the last number
 * it saw can tell by the first number it gets whether it has missed any.  The
 * numbers stay below 2^53 until the year 2285: a double holds them.
 */

/* Sets event->seq, stores the event and wakes those who wait. */
extern void shared_state_append_event(SharedEvent *event);

/* The newest seq, or, before the first event, that from which numbers go on. */
extern int64 shared_state_last_event(void);

/*
 * The newest seq when this server started, or restarted after a crash: none of
 * the events up to it are there.
 */
extern int64 shared_state_start_event(void);

/*
 * The first event with a seq above `after` that is still there.  False: none
 * such.  An `after` above the newest seq is of another server, or of a start
 * before the wall clock was set back, and counts as 0: better an event twice
 * than none.
 */
extern bool shared_state_next_event(int64 after, SharedEvent *event);

/*
 * Waiting for anything that is published: an event, a leadership.  prepare,
 * then check, then sleep, and cancel at the end, as for a condition variable.
 * sleep: false when timeout_ms (-1: none) is over.  Interrupts are served.
 */
extern void shared_state_prepare_to_sleep(void);
extern bool shared_state_sleep(long timeout_ms, uint32 wait_event);
extern void shared_state_cancel_sleep(void);

/*
 * A number that changes whenever something is published that a sleeper may
 * wait for.  wait_for_change returns when it is not `seen` any more, when a
 * leadership of this instance ends at its deadline, when the latch of this
 * process is set (it is reset), or when timeout_ms (-1: none) is over.  True
 * in the first two cases.  Interrupts are served.
 */
extern uint64 shared_state_change_number(void);
extern bool shared_state_wait_for_change(uint64 seen, long timeout_ms, uint32 wait_event);

/* ---- notifiers --------------------------------------------------------- */

/*
 * How far the events are announced in a database, by name, for the elector:
 * the first use of a name begins after event `from`.  *ticket admits one
 * notifier to the slot, and dismisses the one that was admitted before.  -1
 * if there is no room, which may change when a notifier ends.
 */
extern int	shared_state_notifier_slot(const char *database, int64 from, uint64 *ticket);

/* The database of a slot below SETTINGS_MAX_DATABASES, NULL if it has none. */
extern const char *shared_state_notifier_database(int notifier_slot);

/*
 * A database left the settings: its notifier is dismissed, and should it come
 * back, it begins anew.
 */
extern void shared_state_forget_notifier(int notifier_slot);

/* Is this the first elector since the server started, or restarted itself? */
extern bool shared_state_is_first_elector(void);

/*
 * For the notifier: makes the slot its own until the process ends, after the
 * one before has left.  False: it was dismissed meanwhile.  Interrupts are
 * served.
 */
extern bool shared_state_claim_notifier(int notifier_slot, uint64 ticket);

/*
 * For the notifier: waits until there are events to announce.  False if it is
 * dismissed, or barred.  Interrupts are served.
 */
extern bool shared_state_wait_for_events(int notifier_slot, uint64 ticket, uint32 wait_event);

/*
 * For the notifier: waits so long before it tries again, or until it is
 * dismissed, or barred.  Interrupts are served.
 */
extern void shared_state_pause_notifier(int notifier_slot, uint64 ticket, int pause_ms, uint32 wait_event);

/*
 * For backends: a notifier is asked to leave its database, and barred from it
 * until as many calls of unbar have followed.  find: -1, no notifier works
 * there.  wait_for_leave: false if it has not left after timeout_ms; serves
 * interrupts.
 */
extern int	shared_state_find_notifier(const char *database);
extern void shared_state_bar_notifier(int notifier_slot);
extern void shared_state_unbar_notifier(int notifier_slot);
extern bool shared_state_wait_for_leave(int notifier_slot, long timeout_ms);

/* How often a notifier was barred, ever; and whether it is now. */
extern uint64 shared_state_bars(int notifier_slot);
extern bool shared_state_is_barred(int notifier_slot);

/* How many databases have a notifier that is at work. */
extern int	shared_state_notifiers_running(void);

extern int64 shared_state_announced(int notifier_slot);
extern void shared_state_set_announced(int notifier_slot, int64 seq);

/* ---- HTTP worker ------------------------------------------------------- */

/*
 * There is one at most.  claim: makes this process the one, until it ends;
 * false if there is one already.
 */
extern bool shared_state_claim_http(void);
extern bool shared_state_has_http(void);

/* ---- counters ---------------------------------------------------------- */

/* Latencies are counted by buckets; the last one has no limit. */
#define SHARED_LATENCY_BUCKETS 12

typedef enum SharedCounter
{
	COUNTER_REQUESTS,
	COUNTER_FAILURES,
	COUNTER_TIMEOUTS,
	COUNTER_ENDPOINT_SWITCHES,
	COUNTER_LEASES_GRANTED,
	COUNTER_KEEPALIVES,
	COUNTER_WATCH_RESTARTS,
	COUNTER_ELECTIONS_WON,
	COUNTER_NOTIFICATIONS_SENT,
	COUNTER_NOTIFICATIONS_FAILED,
	COUNTER_COMMITS_REFUSED,
	COUNTER_STATEMENTS_CANCELLED,
	COUNTER_LATENCY_NS_SUM,
	COUNTER_LATENCY_NS_MIN,		/* set, not added to; 0: none yet */
	COUNTER_LATENCY_NS_MAX,		/* set, not added to */
	COUNTER_ANSWERS,			/* how many went into the latencies */
	COUNTER_LATENCY_BUCKETS,	/* + bucket */
	COUNTER_ELECTIONS_LOST = COUNTER_LATENCY_BUCKETS + SHARED_LATENCY_BUCKETS + 1,	/* + ElectionReason */
	COUNTER_COUNT = COUNTER_ELECTIONS_LOST + ELECTION_NREASONS
} SharedCounter;

/*
 * The counters live as long as the postmaster: a crash restart does not reset
 * them.  Every process may count, also in a signal handler.
 */
extern void shared_state_count(SharedCounter counter, int64 n);
extern int64 shared_state_counter(SharedCounter counter);
extern int64 shared_state_latency_limit_ns(int bucket);

/* For the elector alone. */
extern void shared_state_count_latency(int64 latency_ns);
extern void shared_state_count_won(const char *election);
extern void shared_state_count_lost(const char *election, ElectionReason reason);

/* How often this instance won and lost that election. */
extern void shared_state_tally(const char *election, int64 *won, int64 *lost);

/* Sets all of these to 0, and when that was. */
extern void shared_state_reset_stats(void);
extern TimestampTz shared_state_stats_reset(void);

/* ---- mailbox ------------------------------------------------------------ */

typedef enum SharedCommand
{
	COMMAND_RESIGN,
	COMMAND_CAMPAIGN,
	COMMAND_PROCLAIM,
	COMMAND_VERIFY,
	COMMAND_CANDIDATES
} SharedCommand;

typedef struct SharedRequest
{
	SharedCommand command;
	char		election[ELECTION_NAME_SIZE];
	bool		rejoin;			/* RESIGN */
	char		value[ELECTION_VALUE_SIZE]; /* PROCLAIM */
	int64		after_revision; /* CANDIDATES: create revision of the last row */
	int64		at_revision;	/* CANDIDATES: 0, or what the first page was read at */
} SharedRequest;

#define SHARED_CANDIDATES_PER_PAGE 32

typedef struct SharedCandidate
{
	int64		create_revision;
	int64		lease;
	bool		has_position;	/* false: a member of Patroni's that does not lead */
	char		key[ELECTION_KEY_SIZE];
	char		node[ELECTION_VALUE_SIZE];
} SharedCandidate;

typedef enum SharedReplyKind
{
	REPLY_ELECTION,				/* see outcome */
	REPLY_CANDIDATES,
	REPLY_FAILED,				/* etcd did not answer, or refused: see error */
	REPLY_UNKNOWN_ELECTION,		/* the elector has not taken it up (yet) */
	REPLY_NO_ELECTOR			/* it is not running, or was restarted meanwhile */
} SharedReplyKind;

typedef struct SharedReply
{
	SharedReplyKind kind;
	ElectionReply outcome;
	char		error[ETCD_MESSAGE_SIZE];
	int64		revision;		/* CANDIDATES: that they were read at */
	bool		more;			/* CANDIDATES: there is a next page */
	int			ncandidates;
	SharedCandidate candidates[SHARED_CANDIDATES_PER_PAGE];
} SharedReply;

/*
 * Backends: puts the request into the mailbox, wakes the elector and waits
 * for its reply.  Waits for a free place too.  Serves interrupts; leaving by
 * an ERROR or by the end of the process frees the place.  False: there was no
 * reply until then, in microseconds of shared_state_clock_ns()'s clock
 * (PG_INT64_MAX: no limit).
 */
extern bool shared_state_ask(const SharedRequest *request, int64 until_us, SharedReply *reply);

/* What is left until then, in ms, for a sleep: -1 without limit, 0 if it is over. */
extern long shared_state_remaining_ms(int64 until_us);

/*
 * The elector: goes through the places from 0 to shared_state_mailbox_size()
 * - 1.  take: true if a request is waiting in it; it is taken then, and must
 * be replied to, or put back to be taken again later.
 */
extern int	shared_state_mailbox_size(void);
extern bool shared_state_take_request(int place, SharedRequest *request);
extern void shared_state_put_back(int place);
extern void shared_state_reply(int place, const SharedReply *reply);

#endif							/* SHARED_STATE_H */
