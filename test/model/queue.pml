/*-------------------------------------------------------------------------
 *
 * queue.pml
 *	  N instances and their places in the queue: the other part of G1, and G3.
 *
 * lease.pml shows that a key exists until the deadline of its instance.  This
 * model assumes that, and has no time.  `good` means that the deadline has not
 * passed.  While it is set, the known key of the instance is not deleted, except
 * that an operator may delete the key of a waiter.
 *
 * Reads are answered late, or never, or after the instance has left and come
 * back.  Entries take effect though their answers are lost.
 *
 * READY: a read that shows exactly one key before the own one makes the instance ready.  The watch
 * reports, at any time or never, that this key was deleted after the read was
 * executed.  It reports earlier changes of the own key before that.
 *
 * Parameters: N (2 or 3), MAXREV.  Mistakes: see the `run` script.
 *
 *-------------------------------------------------------------------------
 */
#ifndef N
#define N			3
#endif
#ifndef MAXREV
#define MAXREV		5
#endif

byte rev = 0;
byte created[N];			/* create revision of the key in etcd; 0: none */

byte mine[N];				/* create revision of the own key, as the instance knows it */
bit good[N];				/* the deadline has not passed */
bit lead[N];
byte delete[N];				/* a delete of the key with that create revision was sent */
byte read[N];				/* 0: none; result: 1 first, 2 not first, 3 one key before */

byte pred[N];				/* the owner of the key before the own one, as of the read: 1 + number */
bit ready[N];				/* that read was answered, and made it ready */
bit gone[N];				/* that key was deleted after the read was executed */
bit missing[N];				/* the own key was deleted before that key */
#ifdef M_READY_OLDER
bit ever[N];				/* a key of that name was deleted at some time */
#endif

byte token = 0;				/* token of the last leader */
byte owner = N;				/* the last leader */
byte leaders = 0;			/* number of leaders */

#ifdef M_PREDECESSOR
byte before[N];				/* the predecessor, as of the last read */
#endif

#define BEFORE(i, j)	((j) != (i) && created[j] != 0 && created[j] < mine[i])
#if N == 2
#define ANY_BEFORE(i)	(BEFORE(i, 0) || BEFORE(i, 1))
#else
#define ANY_BEFORE(i)	(BEFORE(i, 0) || BEFORE(i, 1) || BEFORE(i, 2))
#endif

#ifdef M_OWN
#define OWN_STANDS(i)	(1)			/* the own key is not read again */
#else
#define OWN_STANDS(i)	(created[i] == mine[i])
#endif

#define AHEAD(i, j)		(BEFORE(i, j) -> 1 : 0)
#if N == 2
#define NAHEAD(i)		(AHEAD(i, 0) + AHEAD(i, 1))
#else
#define NAHEAD(i)		(AHEAD(i, 0) + AHEAD(i, 1) + AHEAD(i, 2))
#endif
#ifdef M_READY_MANY
#define ONE_AHEAD(i)	(NAHEAD(i) > 0)		/* any number of keys may be before the own one */
#else
#define ONE_AHEAD(i)	(NAHEAD(i) == 1)
#endif
#ifdef M_READY_LAPSED
#define READY_GOOD(i)	(1)			/* the deadline does not matter */
#else
#define READY_GOOD(i)	(good[i])
#endif
#ifdef M_READY_APART
#define IN_ORDER(i)		(1)			/* each watch reports its key at its own time */
#else
#define IN_ORDER(i)		(!missing[i])
#endif

inline begin(i)
{
	printf("pg%d leads: token %d\n", i, mine[i]);
	lead[i] = 1;
	leaders++;
#ifndef ONLY_G3
	assert(leaders == 1);												/* G1 */
#endif
#ifndef ONLY_G1
	assert(mine[i] > token || (mine[i] == token && owner == i));		/* G3 */
#endif
	token = mine[i];
	owner = i
}

inline end(i)
{
	if
	:: lead[i] -> lead[i] = 0; leaders--
	:: else
	fi
}

/* The instance is not ready any more. */
inline unready(i)
{
	ready[i] = 0; pred[i] = 0; gone[i] = 0; missing[i] = 0
}

/* Leadership is withdrawn.  Answers to earlier requests do not count. */
inline withdraw(i)
{
	end(i);
#ifndef M_READY_EPOCH
	unready(i);
#endif
#ifndef M_EPOCH
	read[i] = 0
#endif
}

#define TELL_GONE(i, j)	\
	if :: pred[j] == 1 + i && !gone[j] -> gone[j] = 1 :: else fi

/* A key is deleted, which is an event for the instances that watch it. */
inline key_gone(i)
{
	created[i] = 0;
#ifdef M_READY_OLDER
	ever[i] = 1;
#endif
	if
	:: pred[i] != 0 && !gone[i] -> missing[i] = 1
	:: else
	fi;
	TELL_GONE(i, 0);
#if N > 2
	TELL_GONE(i, 2);
#endif
	TELL_GONE(i, 1)
}

/* Prepares to be ready when the read is answered.  Later deletions of the key are reported. */
inline note_pred(i)
{
	unready(i);
	if
	:: BEFORE(i, 0) -> pred[i] = 1
	:: BEFORE(i, 1) -> pred[i] = 2
#if N > 2
	:: BEFORE(i, 2) -> pred[i] = 3
#endif
	fi;
#ifdef M_READY_OLDER
	gone[i] = ever[pred[i] - 1];		/* an earlier event comes late */
#endif
	read[i] = 3
}

proctype Instance(byte i)
{
#ifdef M_PREDECESSOR
	byte k;
#endif

	do
	:: atomic { created[i] == 0 && mine[i] == 0 && delete[i] == 0 && rev < MAXREV ->
		printf("pg%d: entry executed\n", i);
		rev++; created[i] = rev; good[i] = 1 }
	/* the answer to an entry, or to another try, which finds the key */
	:: atomic { created[i] != 0 && mine[i] == 0 && delete[i] == 0 ->
		mine[i] = created[i] }

	:: atomic { mine[i] != 0 && read[i] == 0 && !ready[i] && !lead[i] ->
		if
		:: !OWN_STANDS(i) ->
			printf("pg%d: read: the key is gone\n", i);
			mine[i] = 0
		:: OWN_STANDS(i) && !ANY_BEFORE(i) ->
			printf("pg%d: read served: first\n", i);
			read[i] = 1
		:: OWN_STANDS(i) && ONE_AHEAD(i) ->
			printf("pg%d: read served: one before it\n", i);
			note_pred(i)
		:: else ->
			read[i] = 2
#ifdef M_PREDECESSOR
			;
			before[i] = 0; k = 0;
			do
			:: k < N ->
				if
				:: BEFORE(i, k) && created[k] > before[i] -> before[i] = created[k]
				:: else
				fi;
				k++
			:: else -> break
			od;
			k = 0
#endif
		fi }
	:: atomic { read[i] != 0 && mine[i] != 0 ->
		if
		:: read[i] == 1 && good[i] && !lead[i] -> begin(i)
		:: read[i] == 3 -> ready[i] = 1
		:: else
		fi;
		read[i] = 0 }
	:: atomic { read[i] != 0 -> read[i] = 0; unready(i) }

	/* the event ends the wait; earlier events of the own key have come before it */
	:: atomic { ready[i] && gone[i] && IN_ORDER(i) && mine[i] != 0 && !lead[i] && READY_GOOD(i) ->
		printf("pg%d: the one before it is gone\n", i);
		unready(i);
		begin(i) }
	/* a new read replaces the old one */
#ifdef M_READY_EPOCH
	:: atomic { ready[i] && mine[i] != 0 -> unready(i) }
#else
	:: atomic { ready[i] -> unready(i) }
#endif
#ifdef M_READY_LOST
	/* the watch is lost, and a new one begins with the events from now on */
	:: atomic { ready[i] && missing[i] && !gone[i] -> missing[i] = 0 }
#endif

#ifdef M_PREDECESSOR
	/* it leads because the predecessor is gone */
#define IS_GONE(r)		(created[0] != r && created[1] != r && created[2] != r)
	:: atomic { mine[i] != 0 && before[i] != 0 && !lead[i] && good[i] && IS_GONE(before[i]) ->
		before[i] = 0;
		begin(i) }
#endif

	/* the deadline passes; a move of the key to a fresh lease sets it again */
	:: atomic { good[i] ->
		good[i] = 0;
		if
		:: lead[i] -> withdraw(i)
		:: else
		fi }
	:: atomic { !good[i] && mine[i] != 0 && created[i] == mine[i] -> good[i] = 1 }

	/* it leaves: withdraws, then deletes its key; it comes back when the key is gone */
	:: atomic { mine[i] != 0 && delete[i] == 0 ->
		printf("pg%d: withdrawn, delete of %d sent\n", i, mine[i]);
#ifdef M_ORDER
		read[i] = 0;
		unready(i);
#else
		withdraw(i);
#endif
		delete[i] = mine[i]; mine[i] = 0 }
	:: atomic { delete[i] != 0 ->
		printf("pg%d: delete executed\n", i);
		if
		:: created[i] == delete[i] -> key_gone(i)
		:: else
		fi;
		delete[i] = 0 }
#ifdef M_ORDER
	:: atomic { mine[i] == 0 -> end(i) }
#endif

	/* the lease ends, and the key with it */
	:: atomic { created[i] != 0 && !(good[i] && mine[i] == created[i]) && delete[i] == 0 ->
		printf("etcd: the key of pg%d is gone with its lease\n", i);
		key_gone(i) }
#ifndef NO_OPERATOR
	:: atomic { created[i] != 0 && mine[i] == created[i] && ANY_BEFORE(i) ->
		printf("an operator deletes the key of pg%d, which waits\n", i);
		key_gone(i) }
#endif
	od
}

init
{
	byte i = 0;

	atomic {
		do
		:: i < N -> run Instance(i); i++
		:: else -> break
		od
	}
}
