/*-------------------------------------------------------------------------
 *
 * lease.pml
 *	  One instance in all detail, and etcd.
 *
 * Exclusion (G1) rests on one thing: while an instance believes that it
 * leads, the key that it believes in stands at etcd.  Who stands behind it is
 * then not the first, and who is not the first does not lead.  That is what is
 * checked here, and one instance is enough for it, among however many:
 * whether others stand before it is left open, so any look may find it the
 * first.  queue.pml shows the other half, that being first is concluded
 * rightly.
 *
 * Time is counted in ticks, clocks run alike and the margin is 0, so that an
 * error of one tick shows.  Times are kept as "ticks left" or "ticks since":
 * time has no end, only raft terms and create revisions have.  Nothing is
 * forced to happen: whatever was sent may be executed at once, much later,
 * or never, and its answer may be lost.
 *
 * A lease is a slot, 0 to 2; NONE is no lease.  A mod revision is not a
 * number: `current` says that the one known is that of the key, and what is
 * guarded by it is struck out when the key is written.
 *
 * Names in lease.c: cur is core->lease (until, curterm: its until_ns,
 * term), fresh is core->fresh, mine is create_revision, final is
 * final_revision, shown is lease_until_ns while LEADING.
 *
 * Parameters: TTL, MAXTERM, MAXREV; EXT, what a new leader of etcd adds to
 * each lease; CRASH, the elector may crash and resume (DESIGN 4.10), with
 * REWRITE by a put.  Mistakes to be built in, M_...: see the `run` script.
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

#define NONE		3
#define THEIRS		4			/* a lease of somebody else's, that may end at any time */

/* ---- etcd ---------------------------------------------------------------- */

byte term = 1;
byte rev = 0;				/* last create revision */
byte oldterm = 0;			/* of one leader that was deposed; 0: there is none */

bit alive[3];				/* the lease exists */
byte left[3];				/* ticks left, as the true leader counts them */
bit known[3];				/* the deposed leader knows it, too */
byte oldleft[3];			/* and counts so many ticks */
bit doomed[3];				/* a revocation is on its way into the log */

bit stands = 0;				/* the instance's key */
byte created = 0;			/* its create revision */
byte hangs = NONE;			/* the lease it hangs on */

/* ---- the instance ---------------------------------------------------------- */

byte cur = NONE;			/* the lease */
byte curterm = 0;			/* in which it was granted, as far as was known */
byte until = 0;				/* ticks left of its deadline */
byte fresh = NONE;			/* the lease that is to replace it */
bit granted = 0;			/* it was */
byte freshterm = 0;
byte freshage = 0;			/* ticks since the first send of its grant */
bit moving = 0;				/* a move to it was sent */
bit moved = 0;				/* and executed, and is not yet answered */
byte mine = 0;				/* create revision of the own key; 0: none known */
byte final = 0;				/* incarnations up to this are not believed */
bit current = 0;			/* the mod revision known is that of the key */
byte shown = 0;				/* what readers see: so many ticks of leadership left */

/* ---- what was sent and is not done with ------------------------------------- */

bit move[3];				/* a move of the key to that lease; its guard holds */
bit enter = 0;				/* entries under the lease; some may be late */
byte delete = 0;			/* a delete of that incarnation */
byte look = 0;				/* own key was seen first in the queue: 1 + its lease */
bit lookcurrent = 0;		/* and not been written since */

byte beat = 0;				/* 0 none, 1 under way */
byte beatage = 0;			/* ticks since its keepalive was sent */
byte keepterm = 0;			/* the keepalive's answer: its term; 0: not served */
byte confterm = 0;			/* the confirm's answer */
bit confgood = 0;			/* it showed the own key, on the lease */

#ifdef CRASH
/* over a crash, mine, cur, curterm, until and final are what is remembered */
bit down = 0;				/* the elector is */
bit unaware = 0;			/* it does not know of the delete under way */
#define UP			(!down)
#define LEAVING		(delete != 0 && !unaware)
#else
#define UP			(1)
#define LEAVING		(delete != 0)
#endif

#define BELIEVES	(shown > 0)
#define OWN_STANDS	(stands && created == mine)
#define MIN(a, b)	((a) < (b) -> (a) : (b))
#define UNUSED(l)	(cur != (l) && fresh != (l) && hangs != (l) && !move[l])
#define FREE(l)		(!alive[l] && UNUSED(l))

/* ---- mistakes ------------------------------------------------------------------ */

#ifdef M_RECEIPT
#define GIVEN(age)	(TTL)			/* the deadline counts from the answer */
#define TOO_LATE	skip
#else
#define GIVEN(age)	(TTL - (age))
#define TOO_LATE	no_beat()
#endif
#ifdef M_KEEPALIVE
#define BEAT_DONE	(keepterm != 0)		/* a keepalive alone extends */
#define KEY_SEEN	(1)
#else
#define BEAT_DONE	(keepterm != 0 && confterm != 0)
#define KEY_SEEN	(confgood)
#endif
#if defined(M_TERMS)
#define KEEP_COUNTS	(1)					/* in whatever terms */
#define CONFIRM_COUNTS	(1)
#elif defined(M_OLDLEASE)
#define KEEP_COUNTS	(1)					/* in one term, not the lease's */
#define CONFIRM_COUNTS	(confterm == keepterm)
#else
#define KEEP_COUNTS	(keepterm == curterm)
#define CONFIRM_COUNTS	(confterm == curterm)
#endif
#ifdef M_TOGETHER
#define MAY_CONFIRM	(1)
#else
#define MAY_CONFIRM	(keepterm != 0)
#endif
#ifdef M_REVIVE
#define NOT_LAPSED	(1)
#else
#define NOT_LAPSED	(until > 0)
#endif
#ifdef M_BEATMOVE
#define MAY_BEAT	(1)
#else
#define MAY_BEAT	(!moving)
#endif
#ifdef M_CHECKPOINT
#define PROMOTED	(1)				/* the time left as it was written down earlier */
#else
#define PROMOTED	(TTL + EXT)
#endif
#ifdef M_OPERATOR
#define WAITS		(1)				/* an operator deletes whose key he likes */
#else
#define WAITS		(created != mine || (!BELIEVES && look == 0))
#endif
#ifdef M_ANYLEASE
#define ON_LEASE(l)	(1)				/* whatever lease it hangs on */
#else
#define ON_LEASE(l)	((l) == cur)
#endif
#ifdef M_OLDER
#define NOT_OLDER	(1)				/* a look older than what is known is believed */
#else
#define NOT_OLDER	(lookcurrent || !current)
#endif
#ifdef M_BYNAME
#define DELETES		(1)
#else
#define DELETES		(created == delete)
#endif

/* ---- steps --------------------------------------------------------------------- */

/* Belief can only begin, or grow, here. */
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
 * A lease that nothing can come to hang on any more is as good as gone: the
 * instance revokes it, or it expires.  Erased at once, it costs no states.
 */
inline tidy(l)
{
	if
	:: UNUSED(l) -> alive[l] = 0; left[l] = 0; known[l] = 0; oldleft[l] = 0; doomed[l] = 0
	:: else
	fi;
	/* what was seen on it has no meaning for what comes after it */
	if
	:: look == 1 + l && cur != l && fresh != l -> no_look()
	:: else
	fi
}

inline tidy_all()
{
	tidy(0); tidy(1); tidy(2)
}

inline no_beat()
{
	beat = 0; beatage = 0; keepterm = 0; confterm = 0; confgood = 0
}

inline no_look()
{
	look = 0; lookcurrent = 0
}

inline no_lease()
{
	cur = NONE; curterm = 0; until = 0;
	enter = 0;						/* the next one has another name */
	no_beat()
}

inline no_fresh()
{
	fresh = NONE; granted = 0; freshterm = 0; freshage = 0; moving = 0; moved = 0
}

/* Whatever was guarded by the key as it was cannot take effect any more. */
inline key_written()
{
	current = 0;
	lookcurrent = 0;
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
	current = 0; lookcurrent = 0;
	move[0] = 0; move[1] = 0; move[2] = 0
}

/* A revocation is on its way; for how long the lease would live is of no interest. */
inline doom(l)
{
	doomed[l] = 1; left[l] = 0; oldleft[l] = 0
}

/* The own key is gone, or not believed any more; what was asked is void. */
inline lose_key()
{
	shown = 0;
	if
	:: mine > final -> final = mine
	:: else
	fi;
	mine = 0; current = 0;
	confgood = 0;
	no_look()
}

inline lease_gone(l)
{
	alive[l] = 0; left[l] = 0; known[l] = 0; oldleft[l] = 0; doomed[l] = 0;
	move[l] = 0;
	if
	:: cur == l -> enter = 0		/* they fail: there is no such lease */
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
	no_fresh();
	no_beat()
}

#ifdef CRASH
inline crash()
{
	printf("the elector crashes\n");
	down = 1; shown = 0;
	unaware = (delete != 0);
#ifdef M_CRASHFINAL
	/* a key was not forgotten before its delete was sent */
	if
	:: delete != 0 && created == delete -> mine = delete
	:: else
	fi;
#endif
#ifdef M_CRASHFORGET
	final = 0;
#endif
#if !defined(M_CRASHMOVE) && !defined(REWRITE)
	/* all was erased before the move was sent */
	if
	:: moving -> mine = 0; no_lease()
	:: else
	fi;
#endif
	no_fresh(); no_look(); no_beat();
	current = 0;
	tidy_all()
}
#endif

#define MAY_MOVE(l)		(mine != 0 && current && OWN_STANDS && hangs != (l) && alive[l] && !move[l])

proctype Instance()
{
	byte l;

	do
	/* -- a lease; which, once it is granted, the key is put on -- */

	/* the term known may be older than etcd's */
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
	/* sent again under the same ID, and counted from there */
	:: atomic { granted && !moving && freshage > 0 && UP ->
		printf("grant of lease %d sent again\n", fresh);
		freshage = 0 }
#endif
	/* given up: its time is over, or it is refused */
	:: atomic { fresh != NONE && (!granted || !alive[fresh]) && UP ->
		printf("lease %d given up\n", fresh);
		no_fresh();
		tidy_all() }
	:: atomic { granted && mine == 0 && UP ->
		printf("lease %d is the lease\n", fresh);
		commit_fresh();
		tidy_all() }

	/* what is believed is no more than the fresh one gives, before it is sent */
	:: atomic { granted && MAY_MOVE(fresh) && UP ->
		printf("move to lease %d sent\n", fresh);
		moving = 1;
#ifndef M_BEATMOVE
		no_beat();
#endif
#ifndef M_NOLOWER
		until = MIN(until, TTL - freshage);
		shown = MIN(shown, until);
#endif
		move[fresh] = 1 }
	/* put back from a lease of somebody else's */
	:: atomic { fresh == NONE && cur != NONE && until > 0 && MAY_MOVE(cur) && UP ->
		printf("move back to lease %d sent\n", cur);
		move[cur] = 1 }
	:: atomic { moved && UP ->
		if
		:: mine != 0 ->
			printf("move to lease %d answered\n", fresh);
			current = (created == mine && hangs == fresh);
			commit_fresh();
			believe()
		:: moved = 0				/* lost */
		fi;
		tidy_all() }

	/* -- the key -- */

	:: atomic { mine == 0 && !LEAVING && cur != NONE && until > 0 && fresh == NONE && !enter && UP ->
		printf("enter sent\n");
		enter = 1 }
	/*
	 * Its answer, or that of one sent later, which finds the key.  No entry
	 * is sent while a fresh lease is there, and no move while one is under way.
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

	/* read, by a look of whatever kind: its mod revision, and the lease it hangs on */
	:: atomic { mine != 0 && OWN_STANDS && !current && UP ->
		current = 1 }

	/* -- first in the queue? The answer may be late -- */

	:: atomic { look == 0 && OWN_STANDS && UP &&
		((ON_LEASE(hangs) && !BELIEVES) || (moving && hangs == fresh)) ->
		printf("look served: first, on lease %d\n", hangs);
		look = 1 + hangs; lookcurrent = 1 }
	:: atomic { look != 0 && UP ->
		l = look - 1;
		if
		:: printf("look received\n");
			/* one that is older than what is known of the key is not believed */
			if
			:: mine != 0 && NOT_OLDER ->
				current = lookcurrent;
				if
				:: l == fresh && moving -> commit_fresh()
				:: else
				fi;
				if
				:: ON_LEASE(l) && until > 0 && !BELIEVES -> shown = until
				:: else
				fi
			:: else
			fi;
			no_look();
			believe()
		:: no_look()
		fi;
		l = 0;
		tidy_all() }

	/* -- the beat, with a key or without: it is the lease's -- */

	:: atomic { beat == 0 && cur != NONE && NOT_LAPSED && MAY_BEAT && UP ->
		printf("beat sent\n");
		beat = 1; beatage = 0 }
	/* it may win against a revocation on its way (etcd #14758, #20590) */
	:: atomic { beat == 1 && keepterm == 0 && alive[cur] ->
		printf("keepalive served by etcd's leader\n");
		if
		:: !doomed[cur] -> left[cur] = TTL
		:: else
		fi;
		/* the term in its header is that of a member which may lag behind */
		if
		:: keepterm = term
		:: term > 1 -> keepterm = term - 1
		:: term > 2 -> keepterm = term - 2
		fi;
		if
		:: KEEP_COUNTS
		:: else -> no_beat()
		fi }
	:: atomic { beat == 1 && keepterm == 0 && known[cur] ->
		printf("keepalive served by the deposed leader\n");
		if
		:: !doomed[cur] -> oldleft[cur] = TTL
		:: else
		fi;
		keepterm = oldterm;
		if
		:: KEEP_COUNTS
		:: else -> no_beat()
		fi }
	/* sent when the keepalive is answered; ordered by raft, it tells the true term (ORDERED) */
	:: atomic { beat == 1 && confterm == 0 && MAY_CONFIRM ->
		printf("confirm served\n");
		confterm = term;
		confgood = (OWN_STANDS && ON_LEASE(hangs));
		if
		:: CONFIRM_COUNTS
		:: else -> no_beat()
		fi }
#ifdef M_UNORDERED
	/* a read that the deposed leader serves by a read index of before (etcd #20418) */
	:: atomic { beat == 1 && confterm == 0 && MAY_CONFIRM && known[cur] ->
		printf("confirm served by the deposed leader\n");
		confterm = oldterm;
		confgood = 1;
		if
		:: CONFIRM_COUNTS
		:: else -> no_beat()
		fi }
#endif
	:: atomic { beat == 1 && BEAT_DONE && UP ->
		printf("beat answered\n");
		if
		:: NOT_LAPSED ->
			if
			:: GIVEN(beatage) > until -> until = GIVEN(beatage)
			:: else
			fi;
			if
			:: BELIEVES && KEY_SEEN -> shown = until
			:: else
			fi
		:: else
		fi;
		no_beat();
		believe() }
	:: atomic { beat == 1 -> no_beat() }

	/* -- leaving: withdrawn, then deleted, or the lease is revoked -- */

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
	/* its answer, or a look, says that there is nothing to delete */
	:: atomic { delete != 0 && !(stands && DELETES) && UP ->
		delete = 0 }
#ifdef M_REUSE
	/* the delete timed out, the key still stands: go on with it */
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
		shown = 0;					/* it timed out: the lease is used on */
		no_look()
#elif defined(M_CRASHREVOKE)
		crash()						/* and the lease was not forgotten before */
#else
		lose_key();
		no_lease(); no_fresh();
		tidy_all()
#endif
		}

	/* -- told, or seen, that the key is gone, or the lease -- */

	:: atomic { mine != 0 && !OWN_STANDS && UP ->
		printf("seen that the key is gone\n");
		lose_key() }
	:: atomic { cur != NONE && !alive[cur] && UP ->
		printf("told that lease %d is gone\n", cur);
		if
		:: shown = 0; no_look()		/* the key may be on another one */
		:: lose_key()
		fi;
		no_lease();
		tidy_all() }

#ifdef CRASH
	/* -- crash restart: shared memory is new, what the mapping holds is not -- */

	:: atomic { UP -> crash() }

	/*
	 * Nothing is read for it: whether the key stands, on the lease, and is
	 * the first, is told by the look that every candidate needs before it
	 * leads.  Without the key, it is for the sake of other elections.
	 */
	:: atomic { down && cur != NONE && until > 0 ->
		if
#ifdef REWRITE
		/* a guarded put, after which no move from before can be executed */
		:: OWN_STANDS && hangs == cur ->
			printf("key written again: resumed: token %d\n", mine);
			key_written();
			current = 1
#else
		:: mine != 0 ->
			printf("resumed: token %d\n", mine)
#endif
		:: printf("resumed without the key\n");
			lose_key()
		fi;
#ifdef M_CRASHTERM
		curterm = term;				/* the lease's is not remembered */
#endif
#ifdef M_CRASHTIME
		until = TTL;				/* nor its deadline */
#endif
		down = 0 }
	:: atomic { down ->
		printf("not resumed\n");
		mine = 0;
		no_lease();
		down = 0;
		tidy_all() }
#endif
	od
}

/* ---- etcd's own doings, and time --------------------------------------------------- */

inline do_lease(l)
{
	if
	:: move[l] && alive[l] && stands ->
		printf("move to lease %d executed\n", l);
		key_written();
		move[l] = 0; hangs = l;
		if
		:: fresh == l && moving -> moved = 1
		:: else						/* it was given up, or puts the key back */
		fi;
		tidy_all()
	/* found expired, or by the one that was asleep; and, later, executed */
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
	do
	:: atomic { printf("--- tick\n");
		COUNT(until);
		/* what has lapsed is withdrawn before anything else is looked at */
		if
		:: shown == 1 -> shown = 0; no_look()
		:: shown > 1 -> shown--
		:: else
		fi;
		tick(0); tick(1); tick(2);
		if
		:: fresh != NONE && freshage + 1 < TTL -> freshage++
		:: fresh != NONE && freshage + 1 >= TTL -> no_fresh(); tidy_all()	/* gives nothing any more */
		:: else
		fi;
		if
		:: beat != 0 && beatage + 1 < TTL -> beatage++
		:: beat != 0 && beatage + 1 >= TTL -> TOO_LATE
		:: else
		fi }
	:: atomic { do_lease(0) }
	:: atomic { do_lease(1) }
	:: atomic { do_lease(2) }
	:: atomic { enter && alive[cur] && !stands && rev < MAXREV ->
		printf("an entry is executed\n");
		rev++; stands = 1; created = rev; hangs = cur; current = 0 }

	/* a new leader begins every lease anew; its predecessor may not know */
	:: atomic { term < MAXTERM ->
		printf("etcd: new leader\n");
		oldterm = term; term++;
		promote(0); promote(1); promote(2) }
	/* or one that was deposed before still sleeps */
	:: atomic { term < MAXTERM && oldterm != 0 ->
		printf("etcd: new leader, the older one still sleeps\n");
		term++;
		prolong(0); prolong(1); prolong(2) }

	/* an operator deletes the key of one who waits, or hangs it up elsewhere */
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
	atomic { run Instance(); run Etcd() }
}
