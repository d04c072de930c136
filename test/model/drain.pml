/*-------------------------------------------------------------------------
 *
 * drain.pml
 *	  A planned hand-over that waits for transactions (DRAIN).  Backends and
 *	  the elector share memory without a lock.
 *
 * A backend shows in a mark of its own that it is fenced, and then looks whether
 * the leader takes new work.  The elector first shows that it takes none, and
 * then looks at all marks.  The memory is weak: a store stays in the buffer of
 * its process for as long as it likes, while the process loads what others have
 * stored.  Only a barrier waits for it.  The elector reads the marks one by one.
 *
 * Checked: a hand-over that is not forced finds no fenced transaction ("drain");
 * a transaction that begins while the leader drains is not fenced ("new"); a
 * leader that does not drain takes new work ("on").
 *
 * A statement may consist of two transactions, as VACUUM does.  It is fenced by
 * its first one.
 *
 * What this models: fenced_advertise() and fenced_slots() of fenced.c,
 * requirement_current_token() and make_requirement() of the fence, and hand_over.c.
 *
 * Mistakes: see the `run` script.
 *
 *-------------------------------------------------------------------------
 */
#define N	2				/* backends */

#ifdef ONLY_NEW
#define CHECK_DRAIN(c)	skip
#else
#define CHECK_DRAIN(c)	assert(c)
#endif
#ifdef ONLY_DRAIN
#define CHECK_NEW(c)	skip
#else
#define CHECK_NEW(c)	assert(c)
#endif

/* Each variable that one process stores and others load, and its buffer. */
bit open = 1, open_stored = 1, open_late = 0;
bit mark[N], mark_stored[N], mark_late[N];

/* What is true, which no process can look at. */
bit leading = 1;				/* etcd says so */
bit forced = 0;					/* leadership was lost, or the time of the drain was over */
bit drains = 0;					/* it drains, and its barrier has passed */
byte drain = 0;					/* the number of that drain */
bit fenced[N];

inline store_open(value)
{
	atomic { !open_late; open_stored = value; open_late = 1 }
}

inline store_mark(value)
{
	atomic { !mark_late[i]; mark_stored[i] = value; mark_late[i] = 1 }
}

/* Waits until others see the store.  The label stands at that barrier of the real code, too. */
#define memory_barrier(label, late)	!late

active proctype memory()
{
	do
	:: atomic { open_late -> open = open_stored; open_late = 0 }
	:: atomic { mark_late[0] -> mark[0] = mark_stored[0]; mark_late[0] = 0 }
	:: atomic { mark_late[1] -> mark[1] = mark_stored[1]; mark_late[1] = 0 }
	od
}

active [N] proctype backend()
{
	byte i = _pid - 1;
	bit began_late;				/* it has begun while a drain was under way */
	byte began_drain;

	do
	:: atomic { began_late = drains; began_drain = drain }
#ifndef M_MARK_LATE
		store_mark(1);
#ifndef M_NO_BARRIER
		memory_barrier(FENCED_SHOWN, mark_late[i]);
#endif
#endif
		if
		:: atomic { open ->
				fenced[i] = 1;
				CHECK_NEW(!(began_late && drains && began_drain == drain))
			}
#ifdef M_MARK_LATE
			store_mark(1);
			!mark_late[i];
#endif
			if
			:: skip
			:: skip;			/* VACUUM: one more transaction of the same statement */
#ifdef M_VACUUM
				store_mark(0);
				store_mark(1);
				!mark_late[i]
#endif
			fi;
#ifdef M_CLEAR_EARLY
			store_mark(0);
#endif
			/* the look at the deadline, when it commits */
			atomic {
				CHECK_DRAIN(leading || forced);
				fenced[i] = 0
			}
		:: !open
		fi;
		store_mark(0)
	od
}

/* Has this process been forced to withdraw while transactions were fenced? */
inline withdraw(by_force)
{
	atomic {
		drains = 0;
		leading = 0;
		forced = by_force;
		CHECK_DRAIN(forced || (!fenced[0] && !fenced[1]))
	}
}

active proctype elector()
{
	bit saw;

	do
	:: leading ->
#ifndef ONLY_DRAIN
		assert(open_stored);							/* "on" */
#endif
#if !defined(M_OPEN) && !defined(M_OPEN_LATE)
		store_open(0);
#endif
#ifndef M_NO_BARRIER_ELECTOR
		memory_barrier(OPEN_WITHDRAWN, open_late);
#endif
		atomic { drains = 1; drain = 1 - drain }
		do
		:: saw = mark[0];
			saw = saw || mark[1];
			if
			:: !saw ->
#ifdef M_OPEN_LATE
				store_open(0);
				memory_barrier(OPEN_WITHDRAWN, open_late);
#endif
				withdraw(0);
				break
			:: saw
			fi
		:: atomic { drains = 0 };						/* it was cancelled */
#ifndef M_CANCEL
			store_open(1);
#endif
			break
		:: withdraw(1); break							/* the time is over, or the lease is lost */
		od
	/* elected again, under another token: what is open is refused by its own */
	:: atomic { !leading && !fenced[0] && !fenced[1] -> leading = 1; forced = 0 };
		store_open(1)
	od
}
