/*-------------------------------------------------------------------------
 *
 * contact.h
 *	  Errors and the contact with etcd, for etcd_leader_status and for the log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_CONTACT_H
#define ELECTOR_CONTACT_H

#include "etcd/client.h"
#include "shared/state.h"

/*
 * The subject of an error.  It decides when the error is over.  Some kinds have a name,
 * and an error is over, too, when nothing has that name any more.
 */
typedef enum ErrorSubject
{
	/* not heard for a TTL, and etcd answers; name: an endpoint's URL, or NULL */
	ABOUT_ETCD,
	ABOUT_ELECTION,				/* the same; name: the election */
	ABOUT_FILE,					/* the file can be used; name: the file */
	ABOUT_SETTINGS,				/* the settings are applied without it */
	ABOUT_DNS,					/* a lookup succeeds */
	/* no other candidate has the name of this instance; name: the election */
	ABOUT_NAME,
	ABOUT_CHANGES,				/* a read of the watched prefixes succeeds */
	ABOUT_NOTHING				/* its caller alone is told of it */
} ErrorSubject;

/* As it will be published next. */
extern const SharedContact *elector_contact(void);

/* Remembers the message of an error.  True if it is new: it was not logged recently. */
extern bool elector_remember_message(const char *message);

/*
 * Remembers an error for etcd_leader_status.last_error.  Logs it at that level
 * (0: not) if it is new: one line for each change, and not for each retry.  What
 * an administrator has to mend is a WARNING.
 */
extern void elector_note_error(ErrorSubject subject, const char *name, const char *message,
							   int elevel);

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

/*
 * The contact is there, or is lost.  When it is back, all errors are new again, and
 * will be logged.
 */
extern void elector_note_connected(bool connected);

/* The name of this instance, for readers at once. */
extern void elector_note_node_name(const char *name);

/*
 * Counts an answer of etcd, or that there is none, and remembers the contact or
 * the error.  The subject is that of a refusal.
 */
extern void elector_note_answer(ErrorSubject subject, const EtcdAnswer *answer,
								const EtcdTiming *timing);

/* At the start and after a reload: etcd is expected to answer in some seconds. */
extern void elector_expect_contact(void);

/*
 * Warns if it has not.  Returns when to call this again, on the clock of clock_now_ns();
 * PG_INT64_MAX: not for that reason.
 */
extern int64 elector_warn_of_no_contact(void);

/* The endpoint in use may be another one. */
extern void elector_note_endpoint(void);

/* For readers, if it has changed. */
extern void elector_publish_contact(void);

#endif							/* ELECTOR_CONTACT_H */
