/*-------------------------------------------------------------------------
 *
 * follow.pml
 *	  The deadline of an election that follows Patroni.  Patroni's leader key
 *	  exists for as long as the instance leads.
 *
 * There is one key with one create revision, on one lease, and time in ticks.
 * etcd's leader of term 1 is deposed once.  The leader of term 2 extends the
 * lease to its TTL.  The deposed leader may believe for DELUSION ticks that it
 * leads.  Then renewals by Patroni that reach it count only for itself, and its
 * answers have the time to live that it knows.  Answers are late, or never come.
 * An expired lease is revoked at any later time.
 *
 * A member passes an answer on with the term that it knows then.  With RESIDUAL,
 * this may be the new term though the deposed leader has answered, and though
 * the instance knew the new term.  The margin covers that.
 *
 * Parameters: TTL, MARGIN, DELUSION.  Mistakes: see the `run` script.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL
#define TTL			4
#endif
#ifndef MARGIN
#define MARGIN		1
#endif
#ifndef DELUSION
#define DELUSION	2
#endif
#ifndef RESIDUAL
#define RESIDUAL	1
#endif

bit key = 1;				/* it exists */
byte left1 = TTL;			/* ticks left of the lease, as the first leader counts */
byte left2 = 0;				/* the same, as the second leader counts */
byte term = 1;
byte delusion = 0;			/* ticks for which the first still believes that it leads */

byte deadline = 0;			/* ticks for which the instance still leads */
byte known = 1;				/* highest term seen */
byte step = 0;				/* 0 idle, 3 asked for a time to live, 4 and 5 answered, 6 has read */
byte age = 0;				/* ticks since the time to live was asked for */
byte known_then = 0;		/* the term known when the time to live was asked for */
byte told = 0;				/* time to live in the answer */
byte announced_term = 0;
bit seen = 0;				/* the read has shown the key */
byte seen_term = 0;

inline learn(t)
{
	if
	:: known < t -> known = t
	:: else
	fi
}

#ifdef M_TERMS
#define TERMS_ARE_GOOD	1
#else
#ifdef M_KNOWN
#define TERMS_ARE_GOOD	(announced_term == seen_term)
#else
#define TERMS_ARE_GOOD	(announced_term == seen_term && announced_term == known_then)
#endif
#endif

inline conclude()
{
	if
	:: seen && TERMS_ARE_GOOD && told > age + MARGIN -> deadline = told - age - MARGIN
	:: seen && TERMS_ARE_GOOD && told <= age + MARGIN -> deadline = 0
	:: !seen -> deadline = 0
	:: seen && !(TERMS_ARE_GOOD)
	fi;
	assert(deadline == 0 || key);
	step = 0;
	age = 0;
	known_then = 0;
	told = 0;
	announced_term = 0;
	seen = 0;
	seen_term = 0
}

active proctype world()
{
	do
	/* time */
	:: atomic {
		left1 = (left1 > 0 -> left1 - 1 : 0);
		left2 = (left2 > 0 -> left2 - 1 : 0);
		delusion = (delusion > 0 -> delusion - 1 : 0);
		deadline = (deadline > 0 -> deadline - 1 : 0);
		age = (step > 0 && age < TTL -> age + 1 : age)
	}

	/* etcd */
	:: atomic { term == 1 -> term = 2; left2 = TTL; delusion = DELUSION }
	:: atomic { key && (term == 1 -> left1 == 0 : left2 == 0) -> key = 0; assert(deadline == 0) }

	/* Patroni renews the lease */
	:: atomic { key && term == 1 -> left1 = TTL }
	:: atomic { key && term == 2 -> left2 = TTL }
	:: atomic { key && term == 2 && delusion > 0 -> left1 = TTL }

	/* the instance learns the term from another answer */
	:: atomic { known < term -> known = term }

	/* its renewal, which may time out at any time */
#ifdef M_ORDER
	:: atomic { step == 0 -> step = 1; seen = key; seen_term = term; learn(term) }
	:: atomic { step == 1 -> step = 3; age = 0; known_then = known }
#else
	:: atomic { step == 0 -> step = 3; age = 0; known_then = known }
#endif
	:: atomic { step == 3 && term == 1 -> told = left1; announced_term = 1; step = 4 }
	:: atomic { step == 3 && term == 2 -> told = left2; announced_term = 2; step = 4; learn(2) }
	:: atomic { step == 3 && term == 2 && delusion > 0 -> told = left1; announced_term = 1; step = 4 }
	/* a member passes the answer on, and has learned the new term meanwhile */
	:: atomic { step == 3 && term == 2 && delusion > 0 && (RESIDUAL || known_then == 1) ->
		told = left1; announced_term = 2; step = 4; learn(2) }
#ifdef M_RECEIPT
	:: atomic { step == 4 -> step = 5; age = 0 }
#else
	:: atomic { step == 4 -> step = 5 }
#endif
#ifdef M_ORDER
	:: atomic { step == 5 -> conclude() }
#else
	:: atomic { step == 5 -> seen = key; seen_term = term; learn(term); step = 6 }
	:: atomic { step == 6 -> conclude() }
#endif
	:: atomic { step > 0 -> step = 0; age = 0; known_then = 0; told = 0; announced_term = 0; seen = 0; seen_term = 0 }
	od
}
