/*-------------------------------------------------------------------------
 *
 * second.pml
 *	  Two instances of one database system, and who stays out (SECOND).
 *
 * An instance is a standby, or a primary on a timeline.  Each promotion begins a new
 * timeline.  queue.pml shows who is first in the queue; here a step reads the queue and
 * acts on it at once, but an entry is late: it acts on the read before.
 *
 * Parameters: MAXTL, the timelines; ENTRIES, how many keys there are in all.
 * Mistakes: see the `run` script.
 *
 *-------------------------------------------------------------------------
 */
#ifndef MAXTL
#define MAXTL		3
#endif
#ifndef ENTRIES
#define ENTRIES		4
#endif

byte newest = 1;			/* the newest timeline */
byte entries = 0;

bit up[2];					/* the server runs */
byte tl[2];					/* its timeline; 0: it is a standby */
bit waits[2];				/* etcd_leader.second_primary = wait */

byte key[2];				/* number of its key's entry; 0: none */
byte name[2];				/* the timeline in the name of the key */
bit leads[2];

byte seen[2];				/* the first key, another's, as of the last read; 0: none */
bit has_read[2];			/* there was a read since the start, or since the key was left */
byte proven[2];				/* the entry whose owner was seen alive */

/* what is remembered */
byte leading[2];
byte refused[2];
byte accepted[2];

#define BOUND(i)	(tl[i] != 0 && !waits[i] && accepted[i] != tl[i])
#ifdef M_OLDER
#define IS_LATER(a, b)	((a) < (b))		/* the latest timeline stays out */
#else
#define IS_LATER(a, b)	((a) > (b))
#endif
#define REFUSES(i)	(BOUND(i) && (refused[i] == tl[i] || (leading[i] != 0 && IS_LATER(leading[i], tl[i]))))

#define IS_FIRST(i, j)	(key[j] != 0 && (key[i] == 0 || key[j] < key[i]))

inline check()
{
	assert(!(up[0] && up[1] && REFUSES(0) && REFUSES(1)))	/* never do both stay out */
}

inline learn(i, j)
{
	if
#ifdef M_WAITED
	:: key[j] != 0 && name[j] > leading[i] -> leading[i] = name[j]
#else
	:: IS_FIRST(i, j) && name[j] > leading[i] -> leading[i] = name[j]
#endif
	:: else
	fi
}

inline leave(i)
{
	key[i] = 0; leads[i] = 0; has_read[i] = 0
}

inline forget(i)
{
	leading[i] = 0; refused[i] = 0; accepted[i] = 0; proven[i] = 0
}

proctype instance(byte i)
{
	byte		j = 1 - i;

	do
	/* the server */
	:: atomic { !up[i] && key[i] == 0 -> up[i] = 1; has_read[i] = 0; proven[i] = 0; check() }
	:: atomic { up[i] -> up[i] = 0; leave(i) }				/* a clean stop */
	:: atomic { up[i] -> up[i] = 0; leads[i] = 0; forget(i) }	/* its host is lost */
	:: atomic { !up[i] && key[i] != 0 -> leave(i) }			/* its lease ends */
	:: atomic { up[i] && tl[i] == 0 && newest < MAXTL -> newest++; tl[i] = newest; check() }
	:: atomic { !up[i] && key[i] == 0 && tl[i] != 0 && tl[1 - i] != 0 -> tl[i] = 0 }	/* pg_rewind */
	/* the elector */
	:: atomic { up[i] ->
		seen[i] = (IS_FIRST(i, j) -> key[j] : 0);
		has_read[i] = 1;
		learn(i, j);
		if
		:: key[i] != 0 && !leads[i] && (REFUSES(i) || (BOUND(i) && seen[i] != 0)) -> leave(i)
		:: key[i] != 0 && seen[i] == 0 && !REFUSES(i) ->
			leads[i] = 1;
#ifndef M_UNACCEPTED
			if
			:: leading[i] > tl[i] -> accepted[i] = tl[i]
			:: else
			fi
#endif
		:: else
		fi;
		check() }
	/* the proof takes longer than the other one needs to find that it is the first */
	:: atomic { up[i] && BOUND(i) && seen[i] != 0 && key[j] == seen[i] &&
#ifndef M_DEAD
		up[j] && leads[j] &&
#endif
		key[i] == 0 -> proven[i] = seen[i]; refused[i] = tl[i]; check() }
	:: atomic { up[i] && tl[i] != 0 && key[i] == 0 && has_read[i] && entries < ENTRIES &&
		!REFUSES(i) && !(BOUND(i) && seen[i] != 0) ->
		entries++; key[i] = entries; name[i] = tl[i];
#ifndef M_KEPT
		refused[i] = 0
#endif
		}
	/* the operator */
	:: atomic { up[i] && (REFUSES(i) || seen[i] != 0) && tl[i] != 0 ->
		accepted[i] = tl[i]; refused[i] = 0 }
	:: atomic { up[i] -> waits[i] = !waits[i]; check() }
	od
}

init
{
	atomic {
		tl[0] = 1;
#ifdef COPIES
		tl[1] = 1;
#endif
		run instance(0);
		run instance(1)
	}
}
