/*-------------------------------------------------------------------------
 *
 * lease.pml
 *	  One instance in detail, and etcd.
 *
 * Exclusion (G1) depends on one property: while an instance leads, its key
 * exists in etcd.  Then the candidates behind it are not the first, and only
 * the first leads.  This model checks that property.  One instance is enough,
 * for any number of others.  The keys before its own are not modelled, so any
 * read may show it as the first.  queue.pml checks the other part: an instance
 * leads only if it is the first.
 *
 * Time is counted in ticks.  Clocks run alike and the margin is 0, so that an
 * error of one tick shows.  Times are kept as "ticks left" or "ticks since", so
 * time has no bound; only raft terms and create revisions have.  No event is
 * forced: a request may be executed at once, much later, or never, and its
 * answer may be lost.
 *
 * A lease is a slot, 0 to 2; NONE is no lease.  A mod revision is not a number.
 * `current` means that the known mod revision is that of the key.  When the key
 * is written, all requests that compare its mod revision are removed.
 *
 * Several renewals may be under way at once.  Each has a process of its own here.
 * They are sorted by age, the oldest first, so that two in another order are not
 * another state.
 *
 * READY, with -DREADY: `ended` means that the only key before the own one was
 * deleted.  It has the lease of the own key, as known at that event.  The watch
 * reports the event at any time or never, and reports earlier changes of the own
 * key before it.  The read that makes ready is not modelled.  The instance is ready
 * whenever it waits, which is more often than in the code.
 *
 * Names in lease.c: cur is core->lease (until, curterm: its until_ns,
 * term), fresh is core->fresh, mine is create_revision, final is
 * own.min_create_revision, shown is lease.until_ns while LEADING.
 *
 * Parameters: TTL, MAXTERM, MAXREV; RENEWALS, the most renewals under way; EXT, the
 * ticks that a new leader of etcd adds to each lease; CRASH, the elector may
 * crash and resume (DESIGN 4.10), with REWRITE by a put.  Mistakes M_...: see
 * the `run` script.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL
#define TTL			2
#endif
#ifndef EXT
#define EXT			0
#endif
#ifndef MAXTERM
#define MAXTERM		2
#endif
#ifndef MAXREV
#define MAXREV		2
#endif

#ifndef RENEWALS
#define RENEWALS		1
#endif

#define NONE		3
#define THEIRS		4			/* a lease of another program, which may end at any time */

/* ---- etcd ---------------------------------------------------------------- */

byte term = 1;
byte rev = 0;				/* last create revision */
byte oldterm = 0;			/* term of the deposed leader; 0: there is none */

bit alive[3];				/* the lease exists */
byte left[3];				/* ticks left, as the true leader counts them */
bit known[3];				/* the deposed leader knows it, too */
byte oldleft[3];			/* ticks left, as the deposed leader counts them */
bit doomed[3];				/* a revocation is on its way into the log */

bit stands = 0;				/* the instance's key exists */
byte created = 0;			/* its create revision */
byte hangs = NONE;			/* the lease it is on */

/* ---- the instance ---------------------------------------------------------- */

byte cur = NONE;			/* the lease */
byte curterm = 0;			/* raft term of its grant, as far as known */
byte until = 0;				/* ticks left of its deadline */
byte fresh = NONE;			/* the lease that is to replace it */
bit granted = 0;			/* fresh was granted */
byte freshterm = 0;
byte freshage = 0;			/* ticks since the first send of its grant */
bit moving = 0;				/* a move to it was sent */
bit moved = 0;				/* the move was executed, and is not answered yet */
byte mine = 0;				/* create revision of the own key; 0: none known */
byte final = 0;				/* keys with create revisions up to this are not used */
bit current = 0;			/* the known mod revision is that of the key */
byte shown = 0;				/* ticks of leadership left that readers see */

/* ---- requests under way ------------------------------------------------------- */

bit move[3];				/* a move of the key to that lease; its guard holds */
bit enter = 0;				/* entries under the lease; some may be late */
byte delete = 0;			/* a delete of the key with that create revision */
byte read = 0;				/* a read shows the own key as the first: 1 + its lease */
bit readcurrent = 0;		/* the key was not written since that read */

bit renewal[RENEWALS];			/* under way */
byte renewalage[RENEWALS];		/* ticks since its keepalive was sent */
byte keepterm[RENEWALS];		/* the keepalive's answer: its term; 0: not served */
byte confterm[RENEWALS];		/* the same of the confirming read */
bit confgood[RENEWALS];		/* the read showed the own key, on the lease */

#ifdef READY
/*
 * The key before the own one was deleted: 1 + the lease of the own key, as known
 * from the watch, which has reported all earlier changes, or from the answer to
 * a move.  0: it was not deleted.
 */
byte ended = 0;
#endif

#ifdef CRASH
/* mine, cur, curterm and until are remembered over a crash */
bit down = 0;				/* the elector does not run */
bit unaware = 0;			/* it does not know of the delete under way */
bit searching = 0;			/* it resumed without a key, and looks for one first */
#define UP			(!down)
#define LEAVING		((delete != 0 && !unaware) || searching)
#else
#define UP			(1)
#define LEAVING		(delete != 0)
#endif

#ifdef READY
#define FIRST_BY_EVENT	(ended != 0)
#else
#define FIRST_BY_EVENT	(0)
#endif
#define BELIEVES	(shown > 0)
#define OWN_STANDS	(stands && created == mine)
#define MIN(a, b)	((a) < (b) -> (a) : (b))
#define UNUSED(l)	(cur != (l) && fresh != (l) && hangs != (l) && !move[l])
#define FREE(l)		(!alive[l] && UNUSED(l))

/* ---- mistakes ------------------------------------------------------------------ */

#ifdef M_RECEIPT
#define GIVEN(age)	(TTL)			/* the deadline counts from the answer */
#define TOO_LATE(b)	skip
#else
#define GIVEN(age)	(TTL - (age))
#define TOO_LATE(b)	no_renewal(b)
#endif
#ifdef M_KEEPALIVE
#define RENEWAL_DONE(b)	(keepterm[b] != 0)		/* a keepalive alone extends */
#define KEY_SEEN(b)		(1)
#else
#define RENEWAL_DONE(b)	(keepterm[b] != 0 && confterm[b] != 0)
#define KEY_SEEN(b)		(confgood[b])
#endif
#if defined(M_TERMS)
#define KEEP_COUNTS(b)	(1)				/* the terms do not matter */
#define CONFIRM_COUNTS(b)	(1)
#elif defined(M_OLDLEASE)
#define KEEP_COUNTS(b)	(1)				/* any term, if both answers have it */
#define CONFIRM_COUNTS(b)	(confterm[b] == keepterm[b])
#else
#define KEEP_COUNTS(b)	(keepterm[b] == curterm)
#define CONFIRM_COUNTS(b)	(confterm[b] == curterm)
#endif
#ifdef M_TOGETHER
#define MAY_CONFIRM(b)	(1)
#else
#define MAY_CONFIRM(b)	(keepterm[b] != 0)
#endif
#if RENEWALS == 1
#define NEWEST		0
#elif RENEWALS == 2
#define NEWEST		(renewal[1] -> 1 : 0)
#else
#define NEWEST		(renewal[2] -> 2 : (renewal[1] -> 1 : 0))
#endif
#if defined(M_RENEWALSENT)
#define COUNTED		NEWEST			/* from the sending of the newest renewal, though another is answered */
#elif defined(M_RENEWALMIXED)
#define COUNTED		(keepterm[NEWEST] != 0 -> NEWEST : b)	/* the answer is taken for the newest's */
#else
#define COUNTED		b
#endif
#ifdef M_RENEWALBACK
#define LATER(v)	(1)				/* the last answer counts, even if it lowers the deadline */
#else
#define LATER(v)	((v) > until)
#endif
#ifdef M_RENEWALREFUSED
#define SUSPECT		(suspect)		/* the lease stays in use because an older renewal succeeds */
bit suspect = 0;
#else
#define SUSPECT		(0)
#endif
#ifdef M_READY_LAPSED
#define READY_UNTIL	(TTL)			/* the deadline does not matter */
#else
#define READY_UNTIL	(until)
#endif
#ifdef M_READY_ANYLEASE
#define READY_ON	(1)				/* the lease of the key does not matter */
#else
#define READY_ON	(current -> hangs == cur : ended == 1 + cur)
#endif
#ifdef M_READY_APART
#define TOLD_BEFORE	(1)				/* changes of the own key may be reported later */
#define TOLD_LEASE	cur
#else
#define TOLD_BEFORE	(OWN_STANDS)
#define TOLD_LEASE	hangs
#endif
#ifdef M_READY_OLDMOVE
#define MOVE_HIDES	(current)		/* the answer to a move replaces the result of a later read */
#else
#define MOVE_HIDES	(0)
#endif
#ifdef M_REVIVE
#define NOT_LAPSED	(1)
#else
#define NOT_LAPSED	(until > 0)
#endif
#ifdef M_RENEWALMOVE
#define MAY_RENEW	(1)
#else
#define MAY_RENEW	(!moving)
#endif
#ifdef M_CHECKPOINT
#define PROMOTED	(1)				/* the time left in an earlier checkpoint */
#else
#define PROMOTED	(TTL + EXT)
#endif
#ifdef M_OPERATOR
#define WAITS		(1)				/* an operator may delete the leader's key, too */
#else
#define WAITS		(created != mine || (!BELIEVES && read == 0 && !FIRST_BY_EVENT))
#endif
#ifdef M_ANYLEASE
#define ON_LEASE(l)	(1)				/* the lease of the key does not matter */
#else
#define ON_LEASE(l)	((l) == cur)
#endif
#ifdef M_OLDER
#define NOT_OLDER	(1)				/* a read is used that is older than the known state */
#else
#define NOT_OLDER	(readcurrent || !current)
#endif
#ifdef M_BYNAME
#define DELETES		(1)
#else
#define DELETES		(created == delete)
#endif

/* ---- steps --------------------------------------------------------------------- */

/* Leadership begins or is extended only here. */
inline believe()
{
	if
	:: BELIEVES ->
		printf("  the instance believes: token %d, %d ticks left\n", mine, shown);
		assert(OWN_STANDS)
	:: else
	fi
}

/*
 * A lease on which no key can be put any more has no effect.  The instance
 * revokes it, or it expires.  It is erased at once to save states.
 */
inline tidy(l)
{
	if
	:: UNUSED(l) -> alive[l] = 0; left[l] = 0; known[l] = 0; oldleft[l] = 0; doomed[l] = 0
	:: else
	fi;
	/* a read that showed this lease must not count for the next lease in this slot */
	if
	:: read == 1 + l && cur != l && fresh != l -> no_read()
	:: else
	fi
#ifdef READY
	;
	if
	:: ended == 1 + l && UNUSED(l) -> ended = 1 + THEIRS
	:: else
	fi
#endif
}

inline tidy_all()
{
	tidy(0); tidy(1); tidy(2)
}

inline unready()
{
#ifdef READY
	ended = 0
#else
	skip
#endif
}

/*
 * The instance knows that the key is on the fresh lease.  If the key was put on
 * another lease after the move, and before the wait ended, that is newer.
 */
inline follow_move()
{
#ifdef READY
	if
	:: ended != 0 && (ended != 1 + THEIRS || MOVE_HIDES) -> ended = 1 + fresh
	:: else
	fi
#else
	skip
#endif
}

/* The order of two renewals of one tick does not matter. */
#define PROGRESS(b)	(8 * renewalage[b] + 4 * (keepterm[b] != 0) + 2 * (confterm[b] != 0) + confgood[b])

inline swap_renewals(a, b)
{
	if
	:: renewal[b] && (!renewal[a] || PROGRESS(b) > PROGRESS(a)) ->
		renewal[b] = renewal[a]; renewal[a] = 1;
		x = renewalage[a]; renewalage[a] = renewalage[b]; renewalage[b] = x;
		x = keepterm[a]; keepterm[a] = keepterm[b]; keepterm[b] = x;
		x = confterm[a]; confterm[a] = confterm[b]; confterm[b] = x;
		x = confgood[a]; confgood[a] = confgood[b]; confgood[b] = x;
		x = 0
	:: else
	fi
}

inline sort_renewals()
{
#if RENEWALS == 2
	swap_renewals(0, 1)
#elif RENEWALS == 3
	swap_renewals(0, 1); swap_renewals(1, 2); swap_renewals(0, 1)
#else
	skip
#endif
}

inline no_renewal(b)
{
	renewal[b] = 0; renewalage[b] = 0; keepterm[b] = 0; confterm[b] = 0; confgood[b] = 0
}

/* The answers to the renewals under way do not count any more. */
inline void_renewals()
{
	no_renewal(0)
#if RENEWALS > 1
	; no_renewal(1)
#endif
#if RENEWALS > 2
	; no_renewal(2)
#endif
}

#if RENEWALS == 1
#define NOT_SEEN	confgood[0] = 0
#elif RENEWALS == 2
#define NOT_SEEN	confgood[0] = 0; confgood[1] = 0; sort_renewals()
#else
#define NOT_SEEN	confgood[0] = 0; confgood[1] = 0; confgood[2] = 0; sort_renewals()
#endif

inline no_read()
{
	read = 0; readcurrent = 0
}

inline no_lease()
{
	cur = NONE; curterm = 0; until = 0;
	enter = 0;						/* the next one has another name */
#ifdef M_RENEWALREFUSED
	suspect = 0;
#endif
	void_renewals()
}

inline no_fresh()
{
	fresh = NONE; granted = 0; freshterm = 0; freshage = 0; moving = 0; moved = 0
}

/* Requests that compare the old mod revision cannot take effect any more. */
inline key_written()
{
	current = 0;
	readcurrent = 0;
#ifndef M_NOMOD
	move[0] = 0; move[1] = 0; move[2] = 0
#endif
}

inline key_gone()
{
	if
	:: BELIEVES && OWN_STANDS ->
		printf("the key is gone, the instance believes for %d ticks more\n", shown);
		assert(false)
	:: else
	fi;
	stands = 0; created = 0; hangs = NONE;
	current = 0; readcurrent = 0;
	move[0] = 0; move[1] = 0; move[2] = 0
}

/* A revocation is on its way.  The time left of the lease does not matter any more. */
inline doom(l)
{
	doomed[l] = 1; left[l] = 0; oldleft[l] = 0
}

/* The own key is gone, or not used any more.  Requests under way do not count. */
inline lose_key()
{
	shown = 0;
	if
	:: mine > final -> final = mine
	:: else
	fi;
	mine = 0; current = 0;
	NOT_SEEN;
	no_read();
	unready()
}

inline lease_gone(l)
{
	alive[l] = 0; left[l] = 0; known[l] = 0; oldleft[l] = 0; doomed[l] = 0;
	move[l] = 0;
	if
	:: cur == l -> enter = 0		/* entries fail without the lease */
	:: else
	fi;
	if
	:: stands && hangs == l -> key_gone()
	:: else
	fi
}

/* The fresh lease takes over, with the key on it or without one. */
inline commit_fresh()
{
	cur = fresh; curterm = freshterm;
	until = TTL - freshage;
	if
	:: shown > 0 -> shown = until
	:: else
	fi;
	enter = 0;
#ifdef M_RENEWALREFUSED
	suspect = 0;
#endif
	no_fresh();
	void_renewals()
}

#ifdef CRASH
inline crash()
{
	printf("the elector crashes\n");
	down = 1; shown = 0;
	unaware = (delete != 0);
#ifdef M_CRASHFINAL
	/* the memory still has a key whose delete was sent */
	if
	:: delete != 0 && created == delete -> mine = delete
	:: else
	fi;
#endif
	final = 0; searching = 0;
#if !defined(M_CRASHMOVE) && !defined(REWRITE)
	/* the memory was erased before the move was sent */
	if
	:: moving -> mine = 0; no_lease()
	:: else
	fi;
#endif
	no_fresh(); no_read(); void_renewals(); unready();
	current = 0;
	tidy_all()
}
#endif

#define MAY_MOVE(l)		(mine != 0 && current && OWN_STANDS && hangs != (l) && alive[l] && !move[l])

proctype Instance()
{
	byte l;
	byte x;

	do
	/* -- a fresh lease, and the move of the key to it -- */

	/* the known term may be older than etcd's */
	:: atomic { UP && fresh == NONE && (FREE(0) || FREE(1) || FREE(2)) ->
		if
		:: FREE(0) -> fresh = 0
		:: !FREE(0) && FREE(1) -> fresh = 1
		:: else -> fresh = 2
		fi;
		if
		:: freshterm = term
		:: term > 1 -> freshterm = term - 1
		fi;
		freshage = 0;
		printf("grant of lease %d sent\n", fresh) }
	:: atomic { fresh != NONE && !granted && !alive[fresh] && UP ->
		printf("grant of lease %d executed\n", fresh);
		alive[fresh] = 1; left[fresh] = TTL; granted = 1 }
#ifdef M_RETRY
	/* the grant is sent again with the same ID, and the time counts from then */
	:: atomic { granted && !moving && freshage > 0 && UP ->
		printf("grant of lease %d sent again\n", fresh);
		freshage = 0 }
#endif
	/* the instance gives up the fresh lease: its time is over, or it is refused */
	:: atomic { fresh != NONE && (!granted || !alive[fresh]) && UP ->
		printf("lease %d given up\n", fresh);
		no_fresh();
		tidy_all() }
	:: atomic { granted && mine == 0 && UP ->
		printf("lease %d is the lease\n", fresh);
		commit_fresh();
		tidy_all() }

	/* the deadline is lowered to that of the fresh lease before the move is sent */
	:: atomic { granted && MAY_MOVE(fresh) && UP ->
		printf("move to lease %d sent\n", fresh);
		moving = 1;
#if defined(M_RENEWALVOID)
		no_renewal(NEWEST);			/* the older ones go on */
#elif !defined(M_RENEWALMOVE)
		void_renewals();
#endif
#ifndef M_NOLOWER
		until = MIN(until, TTL - freshage);
		shown = MIN(shown, until);
#endif
		move[fresh] = 1 }
	/* the key is put back from a lease of another program */
	:: atomic { fresh == NONE && cur != NONE && until > 0 && MAY_MOVE(cur) && UP ->
		printf("move back to lease %d sent\n", cur);
		move[cur] = 1 }
	:: atomic { moved && UP ->
		if
		:: mine != 0 ->
			printf("move to lease %d answered\n", fresh);
			follow_move();
			current = (created == mine && hangs == fresh);
			commit_fresh();
			believe()
		:: moved = 0				/* the answer is lost */
		fi;
		tidy_all() }

	/* -- the key -- */

	:: atomic { mine == 0 && !LEAVING && cur != NONE && until > 0 && fresh == NONE && !enter && UP ->
		printf("enter sent\n");
		enter = 1 }
	/*
	 * The answer to an entry, or to a later one, which finds the key.  No entry
	 * is sent while there is a fresh lease, and no move while an entry is under
	 * way.
	 */
	:: atomic { mine == 0 && !LEAVING && !moving && enter && stands && hangs == cur && UP ->
		if
		:: created > final ->
			printf("the key stands, created at %d\n", created);
			mine = created; current = 1
		:: else ->
			printf("an incarnation that is final is deleted again\n");
#ifdef CRASH
			unaware = 0;
#endif
			delete = created
		fi }

	/* any read reads the key's mod revision and its lease */
	:: atomic { mine != 0 && OWN_STANDS && !current && UP ->
		printf("the own key is read\n");
		current = 1 }

	/* -- first in the queue? The answer may be late -- */

	:: atomic { read == 0 && OWN_STANDS && UP &&
		((ON_LEASE(hangs) && !BELIEVES) || (moving && hangs == fresh)) ->
		printf("read served: first, on lease %d\n", hangs);
		read = 1 + hangs; readcurrent = 1 }
	:: atomic { read != 0 && UP ->
		l = read - 1;
		if
		:: printf("read received\n");
			/* a read that is older than the known state of the key is not used */
			if
			:: mine != 0 && NOT_OLDER ->
				current = readcurrent;
				if
				:: l == fresh && moving -> follow_move(); commit_fresh()
				:: else
				fi;
				if
				:: ON_LEASE(l) && until > 0 && !BELIEVES && !SUSPECT -> shown = until; unready()
				:: else
				fi
			:: else
			fi;
			no_read();
			believe()
		:: no_read()
		fi;
		l = 0;
		tidy_all() }

	/* -- the wait ends (READY) -- */

#ifdef READY
	:: atomic { mine != 0 && ended == 0 && TOLD_BEFORE && !BELIEVES && UP ->
		printf("the one before it is deleted\n");
		ended = 1 + TOLD_LEASE }
	:: atomic { mine != 0 && ended != 0 && !BELIEVES && READY_UNTIL > 0 &&
		READY_ON && !SUSPECT && cur != NONE && UP ->
		printf("told that the wait is over\n");
		shown = READY_UNTIL;
		unready();
		believe() }
	/* it is not ready, or is made not ready by a read or by the loss of the watch */
	:: atomic { ended != 0 && UP -> unready() }
#endif

	/* -- it leaves: withdraws leadership, then deletes the key or revokes the lease -- */

	:: atomic { mine != 0 && !LEAVING && UP ->
		printf("withdrawn; delete of %d sent\n", mine);
#ifdef CRASH
		unaware = 0;
#endif
		delete = mine;
		lose_key() }
	:: atomic { delete != 0 && stands && DELETES ->
		printf("a delete is executed\n");
		if
		:: delete = 0
#ifdef M_BYNAME
		:: skip						/* it was sent twice */
#endif
		fi;
		key_gone();
		tidy_all() }
	/* the answer, or a read, shows that the key is gone */
	:: atomic { delete != 0 && !(stands && DELETES) && UP ->
		delete = 0 }
#ifdef M_REUSE
	/* the delete timed out, the key exists, and is used again */
	:: atomic { mine == 0 && delete != 0 && created == delete && UP ->
		printf("the key still stands: believed again\n");
		mine = created; current = 1 }
#endif
#ifdef M_BYNAME
	/* the delete timed out, and a new key is entered beside it */
	:: atomic { mine == 0 && delete != 0 && stands && created > final && hangs == cur && UP ->
		mine = created; current = 1 }
	:: atomic { mine == 0 && delete != 0 && !stands && cur != NONE && until > 0 && UP ->
		enter = 1 }
#endif
	:: atomic { cur != NONE && alive[cur] && !doomed[cur] && UP ->
		printf("withdrawn; revocation of lease %d sent\n", cur);
		doom(cur);
#if defined(M_REVOKED)
		shown = 0;					/* the revocation timed out, and the lease is used again */
		no_read();
		unready()
#elif defined(M_CRASHREVOKE)
		crash()						/* the memory still has the lease */
#else
		lose_key();
		no_lease(); no_fresh();
		tidy_all()
#endif
		}

	/* -- an event or a read shows that the key or the lease is gone -- */

	:: atomic { mine != 0 && !OWN_STANDS && UP ->
		printf("seen that the key is gone\n");
		lose_key() }
	:: atomic { cur != NONE && !alive[cur] && UP ->
		printf("told that lease %d is gone\n", cur);
		if
		:: shown = 0; no_read(); unready()	/* the key may be on another lease */
		:: lose_key()
		fi;
		no_lease();
		tidy_all() }

#ifdef CRASH
	/* -- crash restart: shared memory is new, but the memory in the mapping is kept -- */

	:: atomic { UP -> crash() }

	/*
	 * It resumes without a read.  Every candidate needs a read before it leads,
	 * which shows whether the key exists, on the lease, and is the first.
	 * Without the key, the lease is resumed for other elections.
	 */
	:: atomic { down && cur != NONE && until > 0 ->
		if
#ifdef REWRITE
		/* after this guarded put no earlier move can be executed */
		:: OWN_STANDS && hangs == cur ->
			printf("key written again: resumed: token %d\n", mine);
			key_written();
			current = 1
#else
		:: mine != 0 ->
			printf("resumed: token %d\n", mine)
#endif
		:: printf("resumed without the key\n");
			lose_key();
#ifndef M_CRASHSEARCH
			searching = 1
#endif
		fi;
#ifdef M_CRASHTERM
		curterm = term;				/* the term of the lease is not remembered */
#endif
#ifdef M_CRASHTIME
		until = TTL;				/* the deadline is not remembered */
#endif
		down = 0 }
	:: atomic { down ->
		printf("not resumed\n");
		mine = 0;
		no_lease();
		down = 0;
		tidy_all() }
	/* a key whose delete was sent before the crash, or that is entered late */
	:: atomic { searching && UP && stands ->
		printf("a key is found; delete of %d sent\n", created);
		searching = 0; unaware = 0;
		delete = created;
		final = created }
	:: atomic { searching && UP && !stands ->
		printf("there is no key\n");
		searching = 0; unaware = 0 }
#endif
	od
}

/* ---- the renewal of the lease, with or without a key ------------------------- */

proctype Renewal(byte b)
{
	byte x;

	do
	:: atomic { !renewal[b] && cur != NONE && NOT_LAPSED && MAY_RENEW && UP && (b == 0 || renewal[b - 1]) ->
		printf("renewal sent\n");
		renewal[b] = 1; renewalage[b] = 0 }
	/* it may be answered before a revocation on its way (etcd #14758, #20590) */
	:: atomic { renewal[b] && keepterm[b] == 0 && alive[cur] ->
		printf("keepalive of renewal %d served by etcd's leader\n", b);
		if
		:: !doomed[cur] -> left[cur] = TTL
		:: else
		fi;
		/* the term in its header is that of a member that may lag behind */
		if
		:: keepterm[b] = term
		:: term > 1 -> keepterm[b] = term - 1
		:: term > 2 -> keepterm[b] = term - 2
		fi;
		if
		:: KEEP_COUNTS(b)
		:: else -> no_renewal(b)
		fi;
		sort_renewals() }
	:: atomic { renewal[b] && keepterm[b] == 0 && known[cur] ->
		printf("keepalive of renewal %d served by the deposed leader\n", b);
		if
		:: !doomed[cur] -> oldleft[cur] = TTL
		:: else
		fi;
		keepterm[b] = oldterm;
		if
		:: KEEP_COUNTS(b)
		:: else -> no_renewal(b)
		fi;
		sort_renewals() }
	/*
	 * A member that is behind, or etcd's leader, does not know the lease.  The
	 * instance gives the lease up and revokes it.  The other renewals do not count.
	 */
	:: atomic { renewal[b] && keepterm[b] == 0 && UP ->
		printf("renewal %d refused; revocation of lease %d sent\n", b, cur);
		if
		:: alive[cur] -> doom(cur)
		:: else
		fi;
#ifdef M_RENEWALREFUSED
		if
		:: b > 0 ->
			no_renewal(b);
			sort_renewals();
			shown = 0; no_read(); unready();
			suspect = 1;
			goto done
		:: else
		fi;
#endif
		if
		:: moving -> shown = 0; no_read(); unready()		/* the key may be on the fresh lease */
		:: else -> lose_key()
		fi;
		no_lease();
		tidy_all();
#ifdef M_RENEWALREFUSED
done:
#endif
		skip }
	/* sent after the keepalive's answer; raft's log orders it, so its term is right (ORDERED) */
	:: atomic { renewal[b] && confterm[b] == 0 && MAY_CONFIRM(b) ->
		printf("confirm of renewal %d served\n", b);
		confterm[b] = term;
		confgood[b] = (OWN_STANDS && ON_LEASE(hangs));
		if
		:: CONFIRM_COUNTS(b)
		:: else -> no_renewal(b)
		fi;
		sort_renewals() }
#ifdef M_UNORDERED
	/* the deposed leader executes the read with an old read index (etcd #20418) */
	:: atomic { renewal[b] && confterm[b] == 0 && MAY_CONFIRM(b) && known[cur] ->
		printf("confirm of renewal %d served by the deposed leader\n", b);
		confterm[b] = oldterm;
		confgood[b] = 1;
		if
		:: CONFIRM_COUNTS(b)
		:: else -> no_renewal(b)
		fi;
		sort_renewals() }
#endif
#ifdef M_LEAVING
	/* the same, but only while the key is being deleted: the read does not show it */
	:: atomic { renewal[b] && confterm[b] == 0 && MAY_CONFIRM(b) && known[cur] && LEAVING ->
		printf("confirm of renewal %d served by the deposed leader\n", b);
		confterm[b] = oldterm;
		confgood[b] = 0;
		if
		:: CONFIRM_COUNTS(b)
		:: else -> no_renewal(b)
		fi;
		sort_renewals() }
#endif
	:: atomic { renewal[b] && RENEWAL_DONE(b) && UP ->
		printf("renewal %d answered\n", b);
		if
		:: NOT_LAPSED ->
			x = GIVEN(renewalage[COUNTED]);
			if
			:: LATER(x) ->
				assert(x >= until);			/* no answer lowers the deadline */
				until = x
			:: else
			fi;
			x = 0;
#ifdef M_RENEWALREFUSED
			suspect = 0;
#endif
			if
			:: BELIEVES && KEY_SEEN(b) -> shown = until
			/* the watch has shown a newer state */
			:: BELIEVES && !KEY_SEEN(b) && current && OWN_STANDS && ON_LEASE(hangs) -> shown = until
			:: BELIEVES && !KEY_SEEN(b) && !(current && OWN_STANDS && ON_LEASE(hangs)) ->
				shown = 0; no_read(); unready()
			:: else
			fi
		:: else
		fi;
		no_renewal(b);
		sort_renewals();
		believe() }
	/* the answer is lost */
	:: atomic { renewal[b] -> no_renewal(b); sort_renewals() }
	od
}

/* ---- etcd, and time ----------------------------------------------------------------- */

inline do_lease(l)
{
	if
	:: move[l] && alive[l] && stands ->
		printf("move to lease %d executed\n", l);
		key_written();
		move[l] = 0; hangs = l;
		if
		:: fresh == l && moving -> moved = 1
		:: else						/* the move timed out, or puts the key back */
		fi;
		tidy_all()
	/* the leader, or a deposed leader that wakes up, finds the lease expired */
	:: alive[l] && left[l] == 0 && !doomed[l] ->
		printf("etcd: lease %d has expired\n", l);
		doom(l)
#ifndef NOWOKEN
	:: alive[l] && known[l] && oldleft[l] == 0 && !doomed[l] ->
		printf("etcd: the deposed leader finds lease %d expired\n", l);
		doom(l)
#endif
	:: doomed[l] ->
		printf("etcd: lease %d is revoked\n", l);
		lease_gone(l);
		tidy_all()
	fi
}

#define COUNT(v)	if :: v > 0 -> v-- :: else fi

inline tick(l)
{
	COUNT(left[l]);
	COUNT(oldleft[l])
}

inline grow_older(b)
{
	if
	:: renewal[b] && renewalage[b] + 1 < TTL -> renewalage[b]++
	:: renewal[b] && renewalage[b] + 1 >= TTL -> TOO_LATE(b)
	:: else
	fi
}

inline promote(l)
{
	if
	:: alive[l] && !doomed[l] -> known[l] = 1; oldleft[l] = left[l]; left[l] = PROMOTED
	:: else -> known[l] = alive[l]; oldleft[l] = 0
	fi
}

inline prolong(l)
{
	if
	:: alive[l] && !doomed[l] -> left[l] = PROMOTED
	:: else
	fi
}

proctype Etcd()
{
	byte x;

	do
	:: atomic { printf("--- tick\n");
		COUNT(until);
		/* leadership that has lapsed is withdrawn before anything else */
		if
		:: shown == 1 -> shown = 0; no_read(); unready()
		:: shown > 1 -> shown--
		:: else
		fi;
		tick(0); tick(1); tick(2);
		if
		:: fresh != NONE && freshage + 1 < TTL -> freshage++
		:: fresh != NONE && freshage + 1 >= TTL -> no_fresh(); tidy_all()	/* too old to be used */
		:: else
		fi;
		grow_older(0);
#if RENEWALS > 1
		grow_older(1);
#endif
#if RENEWALS > 2
		grow_older(2);
#endif
		sort_renewals() }
	:: atomic { do_lease(0) }
	:: atomic { do_lease(1) }
	:: atomic { do_lease(2) }
	:: atomic { enter && alive[cur] && !stands && rev < MAXREV ->
		printf("an entry is executed\n");
		rev++; stands = 1; created = rev; hangs = cur; current = 0 }

	/* a new leader extends every lease; its predecessor may not know that it was deposed */
	:: atomic { term < MAXTERM ->
		printf("etcd: new leader\n");
		oldterm = term; term++;
		promote(0); promote(1); promote(2) }
	/* the leader that was deposed before is still stopped */
	:: atomic { term < MAXTERM && oldterm != 0 ->
		printf("etcd: new leader, the older one still sleeps\n");
		term++;
		prolong(0); prolong(1); prolong(2) }

	/* an operator deletes a waiter's key, or puts it on another lease */
	:: atomic { stands && WAITS ->
		printf("an operator deletes the key\n");
		key_gone();
		tidy_all() }
	:: atomic { stands && hangs != THEIRS && WAITS ->
		printf("an operator hangs the key on another lease\n");
		key_written();
		hangs = THEIRS;
		tidy_all() }
	:: atomic { stands && hangs == THEIRS ->
		printf("the other lease ends\n");
		key_gone();
		tidy_all() }
	od
}

init
{
	atomic {
		run Instance(); run Etcd(); run Renewal(0);
#if RENEWALS > 1
		run Renewal(1);
#endif
#if RENEWALS > 2
		run Renewal(2)
#endif
	}
}
