/*-------------------------------------------------------------------------
 *
 * lease.pml
 *	  One instance in all detail, etcd, and rivals who take what they can.
 *
 * Exclusion (G1) rests on one thing: while an instance believes, the key
 * that it believes in stands at etcd.  Who stands behind it is then not the
 * first, and who is not the first does not lead.  So one instance is enough
 * here, and the rivals are as bad as may be: as soon as the key is gone one
 * of them leads, and for as long as he likes.  What holds against them holds
 * among any number of instances; queue.pml shows the other half, that being
 * first is concluded rightly.
 *
 * Time is counted in ticks, clocks run alike and the margin is 0, so that an
 * error of one tick shows.  Times are kept as "ticks left" or "ticks since":
 * time has no end, only raft terms and create revisions have.  Nothing is
 * forced to happen: whatever was sent may be executed at once, much later,
 * or never, and its answer may be lost.
 *
 * A lease is a slot, 0 to 2; NONE is no lease.  A mod revision is not counted:
 * what is guarded by it is struck out when the key is written.
 *
 * Parameters: TTL, MAXTERM, MAXREV; EXT, what a new leader of etcd adds to
 * each lease; CRASH, the elector may crash and resume (DESIGN 4.10).
 * Mistakes to be built in: see the `run` script for their names and verdicts.
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

/* ---- etcd ---------------------------------------------------------------- */

byte term = 1;
byte rev = 0;				/* last create revision */

/* one leader of etcd that was deposed: asleep, or not aware of it yet */
byte oldterm = 0;			/* its term; 0: there is none */
byte oldtime = 0;			/* ticks for which it still answers keepalives */

bit alive[3];				/* the lease exists */
byte left[3];				/* ticks left, as the true leader counts them */
bit known[3];				/* the deposed leader knows it, too */
byte oldleft[3];			/* and counts so many ticks */
bit doomed[3];				/* a revocation is on its way into the log */

bit stands = 0;				/* the instance's key */
byte created = 0;			/* its create revision */
byte hangs = NONE;			/* the lease it hangs on */
bit rival = 0;				/* somebody else leads */

/* ---- the instance ---------------------------------------------------------- */

byte cur = NONE;			/* the lease */
byte curterm = 0;			/* in which it was granted, as far as was known */
byte until = 0;				/* ticks left of the deadline */
byte fresh = NONE;			/* the lease that is to replace it */
bit granted = 0;			/* it was */
byte freshterm = 0;
byte freshage = 0;			/* ticks since the first send of its grant */
bit moving = 0;				/* a move to it was sent */
byte mine = 0;				/* create revision of the own key; 0: none known */
byte final = 0;				/* incarnations up to this are not believed */
bit current = 0;			/* the mod revision known is that of the key */
bit lead = 0;				/* what readers see, until the deadline */

/* ---- what was sent and is not done with ------------------------------------- */

bit move[3];				/* a move of the key to that lease; its guard holds */
byte ack = NONE;			/* the move that was executed and not yet answered */
bit enter = 0;				/* entries under the lease; some may be late */
byte delete = 0;			/* a delete of that incarnation */
byte look = 0;				/* own key was seen first in the queue: 1 + its lease */
bit lookcurrent = 0;		/* and not been written since */

byte beat = 0;				/* 0 none, 1 under way */
byte beatage = 0;			/* ticks since its keepalive was sent */
byte keepterm = 0;			/* the keepalive's answer: its term; 0: not served */
byte confterm = 0;			/* the confirm's answer */
bit confgood = 0;			/* it showed the own key, on the lease */
bit confgone = 0;			/* it showed that the own key does not stand */

#ifdef CRASH
bit down = 0;				/* the elector is; what it remembers is in mine, cur, until */
#define UP			(!down)
#else
#define UP			(1)
#endif

#ifndef ONLY_G1
byte token = 0;				/* that was believed in last */
bit others = 0;				/* a rival has led since */
#define REMEMBER	token = mine; others = 0
#define RIVAL_LED	others = 1
#else
#define REMEMBER	skip
#define RIVAL_LED	skip
#endif

#define TRUE_NOW	(lead && until > 0)
#define OWN_STANDS	(stands && created == mine)
#define MIN(a, b)	((a) < (b) -> (a) : (b))
#define UNUSED(l)	(cur != (l) && fresh != (l) && hangs != (l) && !move[l] && ack != (l))
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
#define BEAT_GOOD	(keepterm == curterm)	/* a keepalive alone extends */
#define BEAT_DONE	(keepterm != 0)
#else
#ifdef M_TERMS
#define BEAT_GOOD	(confgood)		/* in whatever terms */
#else
#ifdef M_OLDLEASE
#define BEAT_GOOD	(confgood && keepterm == confterm)	/* in one term, not the lease's */
#else
#define BEAT_GOOD	(confgood && keepterm == curterm && confterm == curterm)
#endif
#endif
#define BEAT_DONE	(keepterm != 0 && confterm != 0)
#endif
#if defined(M_TOGETHER) || defined(M_KEEPALIVE)
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
#define WAITS		(rival)
#endif
#ifdef M_LEASE
#define ON_LEASE	(1)				/* whatever lease it hangs on */
#else
#define ON_LEASE	(hangs == cur)
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
	:: TRUE_NOW ->
		printf("  the instance believes: token %d, %d ticks left\n", mine, until);
		assert(!rival);										/* G1 */
#ifndef ONLY_G1
		assert(mine > token || (mine == token && !others));	/* G3 */
#endif
		REMEMBER
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
	:: look == 1 + l && cur != l && fresh != l -> look = 0; lookcurrent = 0
	:: else
	fi
}

inline tidy_all()
{
	tidy(0); tidy(1); tidy(2)
}

inline no_beat()
{
	beat = 0; beatage = 0; keepterm = 0; confterm = 0; confgood = 0; confgone = 0
}

inline no_look()
{
	look = 0; lookcurrent = 0
}

inline no_fresh()
{
	fresh = NONE; granted = 0; freshterm = 0; freshage = 0; moving = 0
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
	stands = 0; created = 0; hangs = NONE;
	current = 0; lookcurrent = 0;
	move[0] = 0; move[1] = 0; move[2] = 0
}

/* The own key is gone, or not believed any more. */
inline lose_key()
{
	lead = 0;
	if
	:: mine > final -> final = mine
	:: else
	fi;
	mine = 0; current = 0;
	no_look();
	no_beat()
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
	enter = 0;						/* another lease, another name */
	no_fresh();
	no_beat()
}

#define MAY_MOVE(l)		(mine != 0 && current && OWN_STANDS && alive[l] && !move[l] && ack == NONE)

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
#endif
		move[fresh] = 1 }
	/* put back from a lease that was given up meanwhile */
	:: atomic { fresh == NONE && cur != NONE && hangs != cur && until > 0 && MAY_MOVE(cur) && UP ->
		printf("move back to lease %d sent\n", cur);
		move[cur] = 1 }
	:: atomic { ack != NONE && UP ->
		if
		:: printf("move to lease %d answered\n", ack);
			if
			:: mine != 0 && created == mine && hangs == ack -> current = 1
			:: else
			fi;
			if
			:: fresh == ack && mine != 0 ->
				commit_fresh();
				believe()
			:: else
			fi
		:: printf("answer of the move to lease %d lost\n", ack)
		fi;
		ack = NONE;
		tidy_all() }

	/* -- the key -- */

	:: atomic { mine == 0 && delete == 0 && cur != NONE && until > 0 && fresh == NONE && !enter && UP ->
		printf("enter sent\n");
		enter = 1 }
	/*
	 * Its answer, or that of one sent later, which finds the key.  No entry
	 * is sent while a fresh lease is there, and no move while one is under way.
	 */
	:: atomic { mine == 0 && delete == 0 && !moving && enter && stands && hangs == cur && UP ->
		if
		:: created > final ->
			printf("the key stands, created at %d\n", created);
			mine = created; current = 1
		:: else ->
			printf("an incarnation that is final is deleted again\n");
			delete = created
		fi }

	/* -- first in the queue? The answer may be late -- */

	:: atomic { look == 0 && OWN_STANDS && !rival && (!lead || (moving && hangs == fresh)) && UP ->
		printf("look served: first, on lease %d\n", hangs);
		look = 1 + hangs; lookcurrent = 1 }
	:: atomic { look != 0 && UP ->
		l = look - 1;
		if
		:: printf("look received\n");
			/* one that is older than what is known of the key is not believed */
			if
			:: mine != 0 && (lookcurrent || !current) ->
				current = lookcurrent;
				if
				:: l == fresh && moving -> commit_fresh()
				:: else
				fi;
				if
				:: l == cur && until > 0 -> lead = 1
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

	/* -- the beat -- */

	:: atomic { beat == 0 && cur != NONE && mine != 0 && NOT_LAPSED && MAY_BEAT && UP ->
		printf("beat sent\n");
		beat = 1; beatage = 0 }
	:: atomic { beat == 1 && keepterm == 0 && alive[cur] && left[cur] > 0 ->
		printf("keepalive served by etcd's leader\n");
		left[cur] = TTL;
		/* the term in its header is that of a member which may lag behind */
		if
		:: keepterm = term
		:: term > 1 -> keepterm = term - 1
		:: term > 2 -> keepterm = term - 2
		fi }
	:: atomic { beat == 1 && keepterm == 0 && oldtime > 0 && known[cur] && oldleft[cur] > 0 ->
		printf("keepalive served by the deposed leader\n");
		oldleft[cur] = TTL; keepterm = oldterm }
	/* the dead lease is told */
	:: atomic { beat == 1 && keepterm == 0 && !alive[cur] ->
		printf("keepalive says that the lease is gone\n");
		if
		:: moving -> lead = 0; no_beat(); no_look()
		:: else -> lose_key()
		fi;
		cur = NONE; curterm = 0; until = 0; enter = 0;
		tidy_all() }
	/* sent when the keepalive is answered; as a linearizable read, it tells the true term */
	:: atomic { beat == 1 && confterm == 0 && MAY_CONFIRM ->
		printf("confirm served\n");
		confterm = term; confgood = (OWN_STANDS && ON_LEASE); confgone = !OWN_STANDS }
	:: atomic { beat == 1 && BEAT_DONE && UP ->
		printf("beat answered\n");
		if
		:: BEAT_GOOD && NOT_LAPSED ->
			if
			:: GIVEN(beatage) > until -> until = GIVEN(beatage)
			:: else
			fi
		:: else
		fi;
		if
		:: confgone -> lose_key()
		:: else -> no_beat()
		fi;
		believe() }
	:: atomic { beat == 1 -> no_beat() }

	/* -- leaving: withdrawn, then deleted -- */

	:: atomic { mine != 0 && delete == 0 && UP ->
		printf("withdrawn; delete of %d sent\n", mine);
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

	/* -- told, or seen, that the key is gone -- */

	:: atomic { mine != 0 && !OWN_STANDS && UP ->
		printf("seen that the key is gone\n");
		lose_key() }

#ifdef CRASH
	/* -- crash restart: shared memory is new, what the mapping holds is not -- */

	:: atomic { UP ->
		printf("the elector crashes\n");
		down = 1; lead = 0;
#ifndef M_CRASHFINAL
		/* what is remembered was erased before a delete was sent: mine is 0 */
#else
		if
		:: delete != 0 && created == delete -> mine = delete
		:: else
		fi;
#endif
#if !defined(M_CRASHMOVE) && !defined(REWRITE)
		/* and before a move was sent */
		if
		:: moving || ack != NONE -> mine = 0
		:: else
		fi;
#endif
		no_fresh(); no_look(); no_beat();
		current = 0;
		ack = NONE;
		enter = 0;
		tidy_all() }
#ifdef M_CRASHLEASE
#define RESUMES		(OWN_STANDS)
#else
#define RESUMES		(OWN_STANDS && hangs == cur)
#endif
	:: atomic { down && mine != 0 && until > 0 && RESUMES ->
		printf("resumed: token %d\n", mine);
#ifdef REWRITE
		/* by a guarded put, after which no move from before can be executed */
		key_written(); hangs = cur; tidy_all();
#endif
		down = 0; current = 1 }
	:: atomic { down ->
		printf("not resumed\n");
		down = 0; mine = 0; cur = NONE; curterm = 0; until = 0;
		tidy_all() }
#endif
	od
}

/* ---- etcd's own doings, and time --------------------------------------------------- */

inline may_move(l)
{
	if
	:: move[l] && alive[l] && stands ->
		printf("move to lease %d executed\n", l);
		key_written();
		move[l] = 0; hangs = l;
		/* an answer is waited for, unless the move was given up */
		if
		:: (fresh == l || cur == l) && ack == NONE -> ack = l
		:: else
		fi;
		tidy_all()
	/* found expired, or by the one that was asleep; and, later, executed */
	:: alive[l] && left[l] == 0 && !doomed[l] ->
		printf("etcd: lease %d has expired\n", l);
		doomed[l] = 1
#ifndef NOWOKEN
	:: alive[l] && known[l] && oldleft[l] == 0 && !doomed[l] ->
		printf("etcd: the deposed leader finds lease %d expired\n", l);
		doomed[l] = 1
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
	:: alive[l] -> known[l] = 1; oldleft[l] = left[l]; left[l] = PROMOTED
	:: else -> known[l] = 0; oldleft[l] = 0
	fi
}

inline prolong(l)
{
	if
	:: alive[l] -> left[l] = PROMOTED
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
		:: until == 0 && lead -> lead = 0; no_look()
		:: else
		fi;
		tick(0); tick(1); tick(2);
		COUNT(oldtime);
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
	:: atomic { may_move(0) }
	:: atomic { may_move(1) }
	:: atomic { may_move(2) }
	:: atomic { enter && cur != NONE && alive[cur] && !stands && rev < MAXREV ->
		printf("an entry is executed\n");
		rev++; stands = 1; created = rev; hangs = cur; current = 0 }

	/* a new leader begins every lease anew; its predecessor may not know */
	:: atomic { term < MAXTERM ->
		printf("etcd: new leader\n");
		oldterm = term; oldtime = TTL; term++;
		promote(0); promote(1); promote(2) }
	/* or one that was deposed before still sleeps */
	:: atomic { term < MAXTERM && oldterm != 0 ->
		printf("etcd: new leader, the older one still sleeps\n");
		term++;
		prolong(0); prolong(1); prolong(2) }

	/* rivals */
	:: atomic { !stands && !rival ->
		printf("a rival leads\n");
		rival = 1; RIVAL_LED;
		assert(!TRUE_NOW) }										/* G1 */
	:: atomic { rival ->
		printf("the rival is gone\n");
		rival = 0 }
	/* an operator deletes the key of one who waits */
	:: atomic { stands && WAITS ->
		printf("an operator deletes the key\n");
		key_gone();
		tidy_all() }
	od
}

init
{
	atomic { run Instance(); run Etcd() }
}
