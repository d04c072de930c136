/*-------------------------------------------------------------------------
 *
 * transfer.pml
 *	  queue.pml with a waiter that leads by an event (READY), and with the
 *	  transfer, which deletes keys of other instances.
 *
 * A waiter with one key before it is ready.  When that key is deleted, it leads
 * without a read.  One watch reports the own key and the predecessor's, in the
 * order of revisions and each revision as a whole, at any later time.
 *
 * A transfer is one txn.  It deletes the own key and the keys between it and the
 * target's.  It compares the create revisions of all these keys and of the
 * target's.  It may be executed at once, late, more than once, or never; also
 * after its sender has timed out, and is in the queue again.
 *
 * The instance FOREIGN, if there is one, is a waiter of Go's
 * concurrency.Election.  It does not read its own key again (etcd #19597).
 *
 * What has to hold: G1 and G3.  A transfer deletes no key of a leader, no key of
 * another program, and only keys between the two.  After it the target is the
 * first.
 *
 * Parameters: N (3 or 4), KEYS, FOREIGN.  Mistakes: see the `run` script.
 *
 *-------------------------------------------------------------------------
 */
#ifndef N
#define N			3
#endif
#ifndef KEYS
#define KEYS		5
#endif
#ifndef FOREIGN
#define FOREIGN		N
#endif

byte rev = 0;				/* of entries only; deletions need no revision */
byte created[N];			/* create revision of the key in etcd; 0: none */

byte mine[N];				/* create revision of the own key, as the instance knows it */
bit good[N];				/* the deadline has not passed */
bit lead[N];
byte delete[N];				/* a delete of the key with that create revision was sent */
byte read[N];				/* 0: none; result: 1 first, 2 not first */
byte ready[N];				/* create revision of the predecessor; 0: not ready */
byte told[N];				/* 1: the predecessor is gone; 2: the own key was gone by then, too */

/* The transfer that was sent last.  It may be executed. */
byte txn_own[N];			/* create revision of the own key; 0: no transfer */
byte txn_target[N];			/* the target */
byte txn_to[N];				/* create revision of the target's key */
byte txn_between[N * N];	/* create revisions of the keys between; 0: none */

byte token = 0;				/* token of the last leader */
byte owner = N;				/* the last leader */
byte leaders = 0;			/* number of leaders */

#define BEFORE(i, j)	((j) != (i) && created[j] != 0 && created[j] < mine[i])
#define OWN_STANDS(i)	(created[i] == mine[i])

#if N == 3
#define ANY_BEFORE(i)	(BEFORE(i, 0) || BEFORE(i, 1) || BEFORE(i, 2))
#define COUNT_BEFORE(i)	(BEFORE(i, 0) + BEFORE(i, 1) + BEFORE(i, 2))
#else
#define ANY_BEFORE(i)	(BEFORE(i, 0) || BEFORE(i, 1) || BEFORE(i, 2) || BEFORE(i, 3))
#define COUNT_BEFORE(i)	(BEFORE(i, 0) + BEFORE(i, 1) + BEFORE(i, 2) + BEFORE(i, 3))
#endif

#ifdef M_TWO_WATCHES
#define OWN_GONE	1					/* another watch reports the own key */
#else
#define OWN_GONE	2
#endif

inline unready(i)
{
	ready[i] = 0;
	told[i] = 0
}

inline begin(i)
{
	printf("pg%d leads: token %d\n", i, mine[i]);
	lead[i] = 1;
	leaders++;
	unready(i);
#if !defined(ONLY_G3) && !defined(ONLY_KEYS)
	assert(leaders == 1);												/* G1 */
#endif
#if !defined(ONLY_G1) && !defined(ONLY_KEYS)
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

/* Leadership is withdrawn.  Answers to earlier requests do not count. */
inline withdraw(i)
{
	end(i);
	read[i] = 0;
	unready(i)
}

/* Keys were deleted at one revision. */
inline tell(w, j)
{
	w = 0;
	do
	:: w < N ->
		j = 0;
		if
		:: ready[w] != 0 && told[w] == 0 ->
			do
			:: j < N && created[j] == ready[w] -> break
			:: j < N && created[j] != ready[w] -> j++
			:: else ->
				told[w] = (OWN_STANDS(w) -> 1 : OWN_GONE);
				break
			od
		:: else
		fi;
		w++
	:: else -> break
	od;
	w = 0; j = 0
}

/* Do the keys in the txn of i still exist with the same create revisions? */
inline compare(i, holds, k)
{
	holds = 1;
#ifndef M_NO_OWN
	holds = holds && created[i] == txn_own[i];
#endif
#ifndef M_NO_TARGET
	holds = holds && created[txn_target[i]] == txn_to[i];
#endif
#ifndef M_NO_GUARD
	k = 0;
	do
	:: k < N ->
		holds = holds && (txn_between[i * N + k] == 0 || created[k] == txn_between[i * N + k]);
		k++
	:: else -> break
	od;
#endif
	k = 0
}

inline execute(i, k, w)
{
	printf("transfer of pg%d to pg%d executed\n", i, txn_target[i]);
	if
	:: created[i] != 0 -> assert(!lead[i]); created[i] = 0
	:: else
	fi;
	k = 0;
	do
	:: k < N ->
		if
		:: txn_between[i * N + k] != 0 && created[k] != 0 ->
			printf("and with it the key %d of pg%d\n", created[k], k);
#if !defined(ONLY_G1) && !defined(ONLY_G3)
			assert(k != FOREIGN && !lead[k] && created[k] > txn_own[i] && created[k] < txn_to[i]);
#endif
			created[k] = 0
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0;
	tell(w, k);
#if !defined(ONLY_G1) && !defined(ONLY_G3)
	do
	:: k < N ->
		assert(created[k] == 0 || created[k] >= txn_to[i]);
		k++
	:: else -> break
	od;
	assert(created[txn_target[i]] == txn_to[i]);
	k = 0
#endif
}

/* The leader reads the queue, withdraws, and sends. */
inline transfer(i, j, foreign, k)
{
	foreign = 0;
	k = 0;
	do
	:: k < N ->
		txn_between[i * N + k] = 0;
		if
		:: k != i && k != j && created[k] > mine[i] && created[k] < created[j] ->
			txn_between[i * N + k] = created[k];
#ifndef M_FOREIGN
			foreign = foreign || k == FOREIGN
#endif
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0;
	if
	:: foreign ->				/* the transfer is refused, and nothing has changed */
		do
		:: k < N -> txn_between[i * N + k] = 0; k++
		:: else -> break
		od;
		txn_own[i] = 0; txn_to[i] = 0; txn_target[i] = 0
	:: else ->
		printf("pg%d: withdrawn, transfer to pg%d sent\n", i, j);
		txn_own[i] = mine[i];
		txn_target[i] = j;
		txn_to[i] = created[j];
		withdraw(i);
		delete[i] = mine[i]; mine[i] = 0
	fi;
	k = 0; foreign = 0
}

proctype Instance(byte i)
{
	byte k, w;
	bit holds;

	do
	:: atomic { created[i] == 0 && mine[i] == 0 && delete[i] == 0 && rev < KEYS ->
		printf("pg%d: entry executed\n", i);
		rev++; created[i] = rev; good[i] = 1 }
	/* the answer to an entry, or to another try, which finds the key */
	:: atomic { created[i] != 0 && mine[i] == 0 && delete[i] == 0 ->
		mine[i] = created[i] }

	:: atomic { mine[i] != 0 && read[i] == 0 && !lead[i] && i != FOREIGN ->
		if
		:: !OWN_STANDS(i) ->
			printf("pg%d: read: the key is gone\n", i);
			mine[i] = 0; unready(i)
		:: OWN_STANDS(i) && !ANY_BEFORE(i) ->
			printf("pg%d: read served: first\n", i);
			read[i] = 1; unready(i)
		:: else ->
			unready(i);
			read[i] = 2;
			if
			:: COUNT_BEFORE(i) == 1 ->
				k = 0;
				do
				:: BEFORE(i, k) -> ready[i] = created[k]; break
				:: else -> k++
				od;
				k = 0;
				printf("pg%d: ready, behind %d\n", i, ready[i])
			:: else
			fi
		fi }
	:: atomic { read[i] != 0 && mine[i] != 0 ->
		if
		:: read[i] == 1 && good[i] && !lead[i] -> begin(i)
		:: else
		fi;
		read[i] = 0 }
	:: atomic { read[i] != 0 -> read[i] = 0 }

	/* the watch reports that the predecessor is gone (READY) */
	:: atomic { told[i] != 0 && mine[i] != 0 && !lead[i] ->
		if
		:: told[i] == 2 ->
			printf("pg%d: told that its own key is gone, too\n", i);
			mine[i] = 0; read[i] = 0; unready(i)
		:: told[i] == 1 && good[i] -> begin(i)
		:: else -> unready(i)
		fi }

	/* Go's waiter leads when no key is before its own */
	:: atomic { i == FOREIGN && mine[i] != 0 && good[i] && !lead[i] && !ANY_BEFORE(i) -> begin(i) }

	/* the deadline passes; a move of the key to a fresh lease sets it again */
	:: atomic { good[i] ->
		good[i] = 0;
		if
		:: lead[i] -> withdraw(i)
		:: else
		fi }
	:: atomic { !good[i] && mine[i] != 0 && created[i] == mine[i] && i != FOREIGN -> good[i] = 1 }

	/* it leaves: withdraws, then deletes its key; it comes back when the key is gone */
	:: atomic { mine[i] != 0 && delete[i] == 0 ->
		printf("pg%d: withdrawn, delete of %d sent\n", i, mine[i]);
		withdraw(i);
		delete[i] = mine[i]; mine[i] = 0 }
	:: atomic { delete[i] != 0 ->
		printf("pg%d: delete executed\n", i);
		if
		:: created[i] == delete[i] -> created[i] = 0; tell(w, k)
		:: else
		fi;
		delete[i] = 0 }

	/* it transfers to the next one, or to the one after it */
	:: atomic { lead[i] && i != FOREIGN && created[(i + 1) % N] > mine[i] ->
		transfer(i, ((i + 1) % N), holds, k) }
	:: atomic { lead[i] && i != FOREIGN && created[(i + 2) % N] > mine[i] ->
		transfer(i, ((i + 2) % N), holds, k) }
	:: atomic { txn_own[i] != 0 ->
		compare(i, holds, k);
		if
		:: holds -> execute(i, k, w)
		:: else
		fi;
		holds = 0 }
	:: atomic { txn_own[i] != 0 ->
		printf("the transfer of pg%d is lost\n", i);
		txn_own[i] = 0; txn_to[i] = 0; txn_target[i] = 0; k = 0;
		do
		:: k < N -> txn_between[i * N + k] = 0; k++
		:: else -> break
		od;
		k = 0 }

	/* the lease ends, and the key with it */
	:: atomic { created[i] != 0 && !(good[i] && mine[i] == created[i]) && delete[i] == 0 ->
		printf("etcd: the key of pg%d is gone with its lease\n", i);
		created[i] = 0; tell(w, k) }
	:: atomic { created[i] != 0 && mine[i] == created[i] && ANY_BEFORE(i) && i != FOREIGN ->
		printf("an operator deletes the key of pg%d, which waits\n", i);
		created[i] = 0; tell(w, k) }
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
