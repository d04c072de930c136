/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  Settings and endpoints on their way to the protocol and to the client.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_SETTINGS_H
#define ELECTOR_SETTINGS_H

/* May this instance be a candidate, as the protocol knows it? */
extern bool elector_is_eligible(void);

/* Applies all settings: at the start, and after each reload. */
extern void elector_configure(void);

/* Applies only the settings of the protocol. */
extern void elector_configure_core(void);

/*
 * The operator wants this instance to be a candidate of that election.  True: it was a
 * copy of another server, and is none from now on.
 */
extern bool elector_claim(const char *election);

/* Applies a promotion of the server. */
extern void elector_follow_promotion(void);

/*
 * When to look for a promotion again, on the clock of clock_now_ns(); PG_INT64_MAX: there
 * is none to wait for, or its end of recovery wakes the elector.
 */
extern int64 elector_promotion_wakeup_ns(void);

/*
 * The lease in use may have another TTL than the settings, until its keys are
 * on another one, or it lapses.  The client's time-outs follow it.  And the private key
 * is used as soon as its file may be.
 */
extern void elector_follow_client_settings(void);

/* Called once, at the start of the elector. */
extern void elector_begin_discovery(void);

/* Readable when a lookup has ended. */
extern int elector_discovery_fd(void);

/*
 * Looks up the endpoints when that is due, if they come from DNS.  Returns when
 * that is next, on the clock of clock_now_ns(); PG_INT64_MAX: never.
 */
extern int64 elector_discover(void);

/* A lookup has ended.  One that failed changes nothing. */
extern void elector_finish_discovery(void);

#endif							/* ELECTOR_SETTINGS_H */
