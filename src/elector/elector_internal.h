/*-------------------------------------------------------------------------
 *
 * elector_internal.h
 *	  What the files of the elector share.
 *
 * elector.c			the process, its loop, and what goes in and out of the
 *						protocol
 * elector_contact.c	errors and the contact with etcd, as
 *						etcd_leader_status shows them
 * elector_settings.c	settings and endpoints, for the protocol and the client
 * elector_endpoints.c	endpoints that are not used
 * elector_mailbox.c	requests of backends
 * elector_changes.c	changes of keys of others
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_INTERNAL_H
#define ELECTOR_INTERNAL_H

#include "etcd/etcd_client.h"
#include "etcd/etcd_discovery.h"
#include "protocol/election.h"
#include "shared/shared_state.h"

/*
 * The subject of an error.  It decides when the error is over.  Some kinds have a name,
 * and an error is over, too, when nothing has that name any more.
 */
typedef enum ErrorSubject
{
	ABOUT_ETCD,					/* not heard for a TTL, and etcd answers; name: an endpoint's URL, or NULL */
	ABOUT_ELECTION,				/* the same; name: the election */
	ABOUT_FILE,					/* the file can be used; name: the file */
	ABOUT_SETTINGS,				/* the settings are applied without it */
	ABOUT_DNS,					/* a lookup succeeds */
	ABOUT_NAME,					/* no other candidate has the name of this instance; name: the election */
	ABOUT_CHANGES,				/* a read of the watched prefixes succeeds */
	ABOUT_NOTHING				/* its caller alone is told of it */
} ErrorSubject;

typedef struct Elector
{
	ElectionCore *core;
	EtcdClient *client;
	EtcdDiscovery *discovery;

	/* as they were passed to the core */
	bool		eligible;
	bool		in_recovery;

	SharedContact contact;
	bool		contact_changed;	/* since it was published */
} Elector;

extern Elector elector;

/* ---- elector_trace.c ------------------------------------------------------ */

/* For the log: what was published of a slot.  Call it afterwards. */
extern void elector_trace_state(int slot, const ElectionView *view);

/* An answer that is not used: ElectionPort.drop. */
extern void elector_trace_drop(void *ctx, uint64_t id, const char *election, const char *why);

/* The messages of the protocol. */
extern void elector_trace_request(uint64 id, const EtcdRequest *request);
extern void elector_trace_answer(uint64 id, const EtcdAnswer *answer);
extern void elector_trace_watches(const EtcdWatch *watches, int nwatches);
extern void elector_trace_frame(const EtcdWatchFrame *frame);

/* ---- elector_events.c ----------------------------------------------------- */

/* An event of the protocol: ElectionPort.announce. */
extern void elector_announce(void *ctx, const ElectionEvent *event);

/* Announces what has happened since the last time; is there anything? */
extern void elector_announce_events(void);
extern bool elector_has_events(void);

/* ---- elector_contact.c ---------------------------------------------------- */

/* True if this error was not logged recently.  Remembers it. */
extern bool elector_is_news(const char *message);

/*
 * Remembers an error for etcd_leader_status.last_error.  Logs it at that level
 * (0: not) if it is new: one line for each change, and not for each retry.  What
 * an administrator has to mend is a WARNING.
 */
extern void elector_note_error(ErrorSubject subject, const char *name, const char *message, int elevel);

/*
 * The same with a format; a text that is too long is cut at the end of a
 * character.
 */
extern void elector_note_formatted_error(ErrorSubject subject, const char *name, int elevel,
										 const char *format,...) pg_attribute_printf(4, 5);

/* The errors about that subject are over (NULL: of any name).  Their time stays known. */
extern void elector_clear_error(ErrorSubject subject, const char *name);

/*
 * Forgets an error that is over because nothing has the name of its subject any more, and
 * errors of etcd that are over.  A request that fails is tried again within a second
 * or two, and each renewal asks etcd.  So an error that has not come again for a TTL is
 * over.
 */
extern void elector_clear_old_error(void);

/* All errors are new again, and will be logged. */
extern void elector_forget_errors(void);

/*
 * Counts an answer of etcd, or that there is none, and remembers the contact or
 * the error.  The subject is that of a refusal.
 */
extern void elector_note_answer(ErrorSubject subject, const EtcdAnswer *answer, const EtcdTiming *timing);

/*
 * Warns if there is no contact for some seconds after the start or a reload, and
 * returns when to call it again, on the clock of clock_now_ns(); PG_INT64_MAX:
 * not for that reason.
 */
extern int64 elector_await_contact(void);
extern void elector_await_contact_anew(void);

/* The endpoint in use may be another one. */
extern void elector_note_endpoint(void);

/* For readers, if it has changed. */
extern void elector_publish_contact(void);

/* ---- elector_settings.c ---------------------------------------------------- */

/* May this instance be a candidate now? */
extern bool elector_is_eligible(void);

/* Applies all settings: at the start, and after each reload. */
extern void elector_configure(void);

/* Applies only the settings of the protocol, and a promotion of the server. */
extern void elector_configure_core(void);

/*
 * Members of etcd were learned of that are not in the settings.  One to which
 * the password would go without encryption is a WARNING, once after each
 * reload.
 */
extern void elector_warn_of_members(void);

/*
 * The lease in use may have another TTL than the settings, until its keys are
 * on another one, or it lapses.  The client's time-outs follow it.
 */
extern void elector_follow_ttl(void);

/*
 * Looks up the endpoints when that is due, if they come from DNS.  Returns when
 * that is next, on the clock of clock_now_ns(); PG_INT64_MAX: never.
 */
extern int64 elector_discover(void);

/* A lookup has ended.  One that failed changes nothing. */
extern void elector_finish_discovery(void);

/* ---- elector_endpoints.c --------------------------------------------------- */

/* Tells the log of endpoints that are not used, or too old; of all of them once more. */
extern void elector_check_endpoints(void);
extern void elector_check_endpoints_anew(void);

/* Publishes what has changed of them. */
extern void elector_publish_endpoints(void);

/* ---- elector_mailbox.c ----------------------------------------------------- */

/* Takes the requests of backends. */
extern void elector_serve_mailbox(void);

/* The commands of backends that do not wait any more, if a drain waits for them. */
extern void elector_cancel_abandoned(void);

/* A command of the protocol has ended: ElectionPort.reply. */
extern void elector_reply(void *ctx, uint64_t ticket, ElectionReply outcome);

/* ---- elector_drain.c -------------------------------------------------------- */

/*
 * The drains that are under way; a smart shutdown.  Each returns when to call it
 * again, on the clock of clock_now_ns(); PG_INT64_MAX: not for that reason.
 */
extern int64 elector_serve_drains(void);
extern int64 elector_watch_shutdown(void);

/* ---- elector_changes.c ----------------------------------------------------- */

/* Called once, at the start of the elector; and at its end. */
extern void elector_begin_changes(void);
extern void elector_end_changes(void);

/* Applies the settings of the changes. */
extern void elector_configure_changes(void);

/*
 * Does the work that is due, and returns when there is more (PG_INT64_MAX:
 * never).
 */
extern int64 elector_tick_changes(void);

/* Frames of etcd, and the end of their stream. */
extern void elector_watched_changes(const EtcdWatchFrame *frame);
extern void elector_changes_ended(EtcdOutcome outcome, const char *why);

/* Wakes the processes that wait for events, if there are new ones. */
extern void elector_wake_for_changes(void);

/* Is the key below a watched prefix? */
extern bool elector_watches_key(const char *key, size_t len);

#endif							/* ELECTOR_INTERNAL_H */
