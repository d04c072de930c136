/*-------------------------------------------------------------------------
 *
 * notifier_register.h
 *	  Which databases have a notifier, and how far each has come.
 *
 * Admits one notifier to each database.  What a notifier has announced outlives
 * it, and the elector.
 *
 *-------------------------------------------------------------------------
 */
#ifndef NOTIFIER_REGISTER_H
#define NOTIFIER_REGISTER_H

#include "shared/part.h"

/*
 * How far the events are announced in a database, by name, for the elector:
 * the first use of a name begins after event `from`.  *ticket admits one
 * notifier to the slot, and dismisses the one that was admitted before.  -1
 * if there is no room, which may change when a notifier ends.
 */
extern int	notifier_register_slot(const char *database, int64 from, uint64 *ticket);

/* The database of a slot below SETTINGS_MAX_DATABASES, NULL if it has none. */
extern const char *notifier_register_database(int notifier_slot);

/*
 * A database was removed from the settings: dismisses its notifier.  If the
 * database comes back, it begins anew.
 */
extern void notifier_register_forget(int notifier_slot);

/*
 * For the notifier: makes the slot its own until the process ends, after the
 * one before has left.  False: it was dismissed meanwhile.  Interrupts are
 * served.
 */
extern bool notifier_register_claim(int notifier_slot, uint64 ticket);

/*
 * For the notifier: waits for pause_ms at least, and until there are events to
 * announce; for changes of other keys alone, until changes_due_us on the clock
 * of clock_remaining_ms() as well.  False as soon as it is dismissed, or barred.
 * Interrupts are served.
 */
extern bool notifier_register_wait(int notifier_slot, uint64 ticket, int pause_ms,
								   int64 changes_due_us,
								   uint32 wait_event);

/*
 * For backends: a notifier is asked to leave its database, and barred from it
 * until as many calls of unbar have followed.  find: -1, no notifier works
 * there.  wait_for_leave: false if it has not left after timeout_ms; serves
 * interrupts.
 */
extern int	notifier_register_find(const char *database);
extern void notifier_register_bar(int notifier_slot);
extern void notifier_register_unbar(int notifier_slot);
extern bool notifier_register_wait_for_leave(int notifier_slot, long timeout_ms);

/* How often a notifier was barred, ever; and whether it is now. */
extern uint64 notifier_register_bars(int notifier_slot);
extern bool notifier_register_is_barred(int notifier_slot);

/*
 * How many notifiers there should be, and how many are at work.  A standby
 * cannot NOTIFY.
 */
extern int	notifier_register_expected(void);
extern int	notifier_register_running(void);

extern int64 notifier_register_announced(int notifier_slot);
extern void notifier_register_set_announced(int notifier_slot, int64 seq);

extern const SharedPart notifier_register_part;

#endif							/* NOTIFIER_REGISTER_H */
