/*-------------------------------------------------------------------------
 *
 * live.pml
 *	  N instances: once the faults have ended, somebody leads again and again,
 *	  and who wants to be in the queue is in it again and again.
 *
 * Until `calm` anything may fail: leases lapse, answers and watch events are
 * lost, instances die for good, entries are given up and take effect later.
 * From then on what is sent is answered, a living instance keeps its lease,
 * and the keys of the dead go; an entry from before may still come.
 * Instances may leave at any time, and come again, or stay out, which is
 * resignation without rejoin; their lease lives on, for another election.
 * Instance 0 stands for one that wants to lead: it neither dies nor stays
 * out, and once it is calm it leaves only when it leads.  Without such a one
 * nobody need lead.
 *
 * Places are counted, create revisions are not, so nothing is bounded.  All
 * watch the first one, and nobody who only waits.
 *
 * Checked under weak fairness: a process that can always go on does.
 *
 *-------------------------------------------------------------------------
 */
#define N			3

bit calm = 0;
bit dead[N];
bit out[N];					/* stays out */
byte place[N];				/* in the queue at etcd, from 1; 0: no key stands */
byte length = 0;			/* of the queue */
bit late[N];				/* an entry that was given up may take effect */
bit known[N];				/* the instance knows of its key */
bit lead[N];
bit told[N];				/* a watch event, or a beat, says: look */

#define SOMEBODY_LEADS	(lead[0] || lead[1] || lead[2])
#define IN_QUEUE		(known[0] && place[0] != 0)

ltl live { [] (calm -> (<> SOMEBODY_LEADS && <> IN_QUEUE)) }

/* Those behind move up.  That the first one goes is told, or the event is lost. */
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
	/* another try finds the key */
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
			:: !calm -> skip			/* lost, and not asked for again */
#else
			:: !calm -> told[i] = 1
#endif
			fi
		:: else
		fi }
#ifndef M_ONCE
	/* every beat reads again, whatever the watch told */
	:: atomic { !dead[i] && known[i] && !told[i] && !lead[i] -> told[i] = 1 }
#endif

	/* leaves: the leader, or one who waits */
	:: atomic { !dead[i] && known[i] && place[i] != 0 && (i != 0 || lead[i] || !calm) ->
		if
		:: skip
		:: i != 0 -> out[i] = 1
		fi;
		printf("pg%d: leaves\n", i);
		forget(i);
		key_gone(i) }
	/* comes again, or not: fairness does not force it to */
	:: atomic { !dead[i] && out[i] ->
		if
		:: out[i] = 0
		:: skip
		fi }
	od
}

/* What becomes of a key without its candidate's doing. */
proctype Background(byte i)
{
	do
	/* the keys of the dead go when their leases end */
	:: atomic { dead[i] && place[i] != 0 -> key_gone(i) }
#ifndef M_NOLOOK
	/* who stays out goes on looking whether a key of its own stands */
	:: atomic { !dead[i] && out[i] && place[i] != 0 -> key_gone(i) }
#endif
	/* late entries come, or never */
	:: atomic { late[i] ->
		late[i] = 0;
		if
		:: !dead[i] && place[i] == 0 ->
			printf("pg%d: an entry given up is executed\n", i);
			enter(i);
			/* not the incarnation that the instance knew */
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
		/* the key goes with its lease, or by an operator's hand */
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
		/* what the watch has missed is read at the latest when it is opened anew */
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
