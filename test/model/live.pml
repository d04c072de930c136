/*-------------------------------------------------------------------------
 *
 * live.pml
 *	  N instances.  After the faults there is a leader again and again, and an
 *	  instance that wants to be in the queue is in it again and again.
 *
 * Until `calm` anything may fail: leases lapse, answers and watch events are
 * lost, instances crash for ever, entries time out and are executed later.
 * After that requests are answered, a running instance keeps its lease, and the
 * keys of crashed instances expire; an old entry may still be executed.
 * Instances may leave at any time.  They come back, or stay out, which is
 * resignation without rejoin.  Their lease lives on, for another election.
 * Instance 0 wants to lead: it neither crashes nor stays out, and after `calm`
 * it leaves only when it leads.  Without such an instance there need not be a
 * leader.
 *
 * The model has places and no create revisions, so it needs no bound.  All watch
 * the first key, and no key of a waiter.
 *
 * Checked under weak fairness: a process that can always continue does so.
 *
 *-------------------------------------------------------------------------
 */
#define N			3

bit calm = 0;
bit dead[N];
bit out[N];					/* stays out */
byte place[N];				/* place in etcd's queue, from 1; 0: no key exists */
byte length = 0;			/* of the queue */
bit late[N];				/* an entry that timed out may take effect */
bit known[N];				/* the instance knows of its key */
bit lead[N];
bit told[N];				/* a watch event or a renewal causes a read */

#define SOMEBODY_LEADS	(lead[0] || lead[1] || lead[2])
#define IN_QUEUE		(known[0] && place[0] != 0)

ltl live { [] (calm -> (<> SOMEBODY_LEADS && <> IN_QUEUE)) }

/* The candidates behind move up.  If the first key goes, there is an event, which may be lost. */
inline move_up(i, j)
{
	if
	:: place[i] == 1 && place[j] != 0 ->
		if
		:: told[j] = known[j]
		:: !calm -> skip
		fi
	:: else
	fi;
	if
	:: place[j] > place[i] -> place[j]--
	:: else
	fi
}

inline key_gone(i)
{
	printf("the key of pg%d goes\n", i);
	move_up(i, (i + 1) % N);
	move_up(i, (i + 2) % N);
	place[i] = 0;
	length--
}

inline enter(i)
{
	length++;
	place[i] = length
}

inline forget(i)
{
	lead[i] = 0; known[i] = 0; told[i] = 0
}

proctype Instance(byte i)
{
	do
	:: atomic { !dead[i] && !out[i] && place[i] == 0 && !known[i] ->
		if
		:: printf("pg%d: enters\n", i);
			enter(i); known[i] = 1; told[i] = 1
		:: !calm ->
			printf("pg%d: enters, the answer is lost\n", i);
			enter(i)
		:: !calm ->
			printf("pg%d: entry sent, to be executed later\n", i);
			late[i] = 1
		fi }
	/* another try of the entry finds the key */
	:: atomic { !dead[i] && !out[i] && place[i] != 0 && !known[i] ->
		known[i] = 1; told[i] = 1 }
	:: atomic { !dead[i] && known[i] && told[i] && !lead[i] ->
		told[i] = 0;
		if
		:: place[i] == 0 -> forget(i)
		:: place[i] == 1 ->
			if
			:: printf("pg%d: leads\n", i);
				lead[i] = 1
#ifdef M_ONCE
			:: !calm -> skip			/* the answer is lost, and the read is not repeated */
#else
			:: !calm -> told[i] = 1
#endif
			fi
		:: else
		fi }
#ifndef M_ONCE
	/* every renewal reads again, with or without an event */
	:: atomic { !dead[i] && known[i] && !told[i] && !lead[i] -> told[i] = 1 }
#endif

	/* the leader or a waiter leaves */
	:: atomic { !dead[i] && known[i] && place[i] != 0 && (i != 0 || lead[i] || !calm) ->
		if
		:: skip
		:: i != 0 -> out[i] = 1
		fi;
		printf("pg%d: leaves\n", i);
		forget(i);
		key_gone(i) }
	/* it comes back, or stays out; fairness does not force it */
	:: atomic { !dead[i] && out[i] ->
		if
		:: out[i] = 0
		:: skip
		fi }
	od
}

/* Changes of a key without its candidate. */
proctype Background(byte i)
{
	do
	/* the keys of crashed instances go when their leases end */
	:: atomic { dead[i] && place[i] != 0 -> key_gone(i) }
#ifndef M_NOREAD
	/* an instance that stays out still looks for a key of its own, and deletes it */
	:: atomic { !dead[i] && out[i] && place[i] != 0 -> key_gone(i) }
#endif
	/* late entries are executed, or never */
	:: atomic { late[i] ->
		late[i] = 0;
		if
		:: !dead[i] && place[i] == 0 ->
			printf("pg%d: an entry given up is executed\n", i);
			enter(i);
			/* this is not the key that the instance knew */
			forget(i)
		:: skip
		fi }
	od
}

proctype Faults()
{
	byte i;

	do
	:: atomic { !calm ->
		if
		:: i = 0
		:: i = 1
		:: i = 2
		fi;
		if
		/* the deadline passes */
		:: lead[i] -> lead[i] = 0; told[i] = 1
		/* the key goes with its lease, or an operator deletes it */
		:: !lead[i] && place[i] != 0 -> key_gone(i)
		/* the instance sees that it is gone */
		:: place[i] == 0 && known[i] -> forget(i)
		:: i != 0 ->
			printf("pg%d: dies\n", i);
			dead[i] = 1; out[i] = 0; forget(i)
		:: told[i] -> told[i] = 0
		:: skip
		fi;
		i = 0 }
	:: atomic { !calm ->
		/* every change that the watch has missed is read when it is opened again */
		printf("--- calm\n");
		calm = 1;
		do
		:: i < N ->
			if
			:: place[i] == 0 && known[i] -> forget(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0 }
	:: calm -> break
	od
}

init
{
	atomic {
		run Instance(0); run Instance(1); run Instance(2);
		run Background(0); run Background(1); run Background(2);
		run Faults()
	}
}
