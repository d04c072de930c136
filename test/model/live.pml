/*-------------------------------------------------------------------------
 *
 * live.pml
 *	  Two instances: once the faults have ended, somebody leads again and
 *	  again, and nobody is stuck.
 *
 * Until `calm` anything may fail: leases lapse, answers and watch events are
 * lost, instances die for good.  From then on what is sent is answered, a
 * living instance keeps its lease, and the keys of the dead go.  Leaders may
 * still resign at any time, and come again.  Places are counted, create
 * revisions are not, so nothing is bounded.
 *
 * Checked under weak fairness: a process that can always go on does.
 *
 *-------------------------------------------------------------------------
 */
#define N			2

bit calm = 0;
bit dead[N];
byte place[N];				/* in the queue at etcd, from 1; 0: no key stands */
bit known[N];				/* the instance knows of its key */
bit lead[N];
bit told[N];				/* a watch event, or a beat, says: look */

#define OTHER(i)		(1 - (i))
#define SOMEBODY_LEADS	((lead[0] && !dead[0]) || (lead[1] && !dead[1]))

ltl led { [] (calm -> <> SOMEBODY_LEADS) }

/* The key goes; who stands behind it is told, or the event is lost. */
inline key_gone(i)
{
	if
	:: place[OTHER(i)] > place[i] ->
		place[OTHER(i)]--;
		if
		:: told[OTHER(i)] = 1
		:: !calm -> skip
		fi
	:: else
	fi;
	place[i] = 0
}

inline tell_gone(i)
{
	lead[i] = 0; known[i] = 0; told[i] = 0
}

proctype Instance(byte i)
{
	do
	:: atomic { !dead[i] && place[i] == 0 && !known[i] ->
		place[i] = 1 + (place[OTHER(i)] != 0);
		if
		:: known[i] = 1; told[i] = 1
		:: !calm -> skip				/* the answer is lost */
		fi }
	/* another try finds the key */
	:: atomic { !dead[i] && place[i] != 0 && !known[i] -> known[i] = 1; told[i] = 1 }
	:: atomic { !dead[i] && known[i] && told[i] && !lead[i] ->
		told[i] = 0;
		if
		:: place[i] == 0 -> tell_gone(i)
		:: place[i] == 1 ->
			if
			:: lead[i] = 1
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
	:: atomic { !dead[i] && lead[i] ->
		printf("pg%d resigns\n", i);
		key_gone(i);
		tell_gone(i) }
	od
}

/* The keys of the dead go when their leases end. */
proctype Expiry(byte i)
{
	do
	:: atomic { dead[i] && place[i] != 0 -> key_gone(i) }
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
		fi;
		if
		/* the deadline passes */
		:: lead[i] -> lead[i] = 0; told[i] = 1
		/* the key goes with its lease, or by an operator's hand */
		:: !lead[i] && place[i] != 0 -> key_gone(i)
		/* the instance sees that it is gone */
		:: place[i] == 0 && known[i] -> tell_gone(i)
		:: !dead[OTHER(i)] -> dead[i] = 1; lead[i] = 0
		:: told[i] -> told[i] = 0
		:: skip
		fi;
		i = 0 }
	:: atomic { !calm ->
		/* what the watch has missed is read at the latest when it is opened anew */
		calm = 1;
		if
		:: place[0] == 0 && known[0] -> tell_gone(0)
		:: else
		fi;
		if
		:: place[1] == 0 && known[1] -> tell_gone(1)
		:: else
		fi }
	:: calm -> break
	od
}

init
{
	atomic {
		run Instance(0); run Instance(1);
		run Expiry(0); run Expiry(1);
		run Faults()
	}
}
