/*-------------------------------------------------------------------------
 *
 * handshake.pml
 *	  Short exchanges between two or three processes without a lock, in weak
 *	  memory (memory.pml).
 *
 * A search begins with any one of these:
 *
 *	WOKEN		the number of changes, and what a process that was woken reads
 *	MAILBOX		a backend asks, and the elector ends meanwhile
 *	NOTIFIER	a notifier is dismissed or barred while it begins or ends
 *	HOOK		a run of a hook begins while its database is wanted, and ends
 *	CRASH		the memory of the elector, which is killed
 *	TALLY		the counters of an election are given to another one
 *	TIMER		a transaction is fenced while the timer of its backend looks
 *	WATCH		the timer goes on for the next transaction, or stops
 *
 * What this models: events.c (the number of changes), mailbox.c,
 * notifier_register.c, hooks.c, hooks/run.c, hooks/worker.c, crash_memory.c,
 * stats.c, demands.c, fence.c, and the end of the elector in shared/state.c.
 * Each barrier there has the label of one here.
 *
 *-------------------------------------------------------------------------
 */
#define LOCATIONS	8
#define CORES		3
#define DEPTH		4

/* Each is found: that barrier is missing, or two stores or loads are swapped. */
#define MISTAKES(X) \
	X(CHANGE_SEEN)				/* what a process that was woken reads is older than the change */ \
	X(REQUEST_WAITS)			/* a backend looks for the elector before its request is visible */ \
	X(ELECTOR_ENDED)			/* the elector looks for requests before its end is visible */ \
	X(REPLY_READ)				/* the reply is older than the state of its place */ \
	X(NOTIFIER_FORGOTTEN)		/* the elector gives a slot away, and its notifier is still admitted */ \
	X(NOTIFIER_CLAIMED)			/* a notifier looks for its admission before its claim is visible */ \
	X(NOTIFIER_RELEASED)		/* a notifier stores its mark after the slot is free */ \
	X(RUN_WRITTEN)				/* a crash finds a run that is not written */ \
	X(RUN_SEEN)					/* a signal goes to the process of an older run */ \
	X(RUN_OVER)					/* a run is over before its result is stored */ \
	X(RUN_ENDED)				/* the result of a run is older than its end */ \
	X(HOLD_BEGUN)				/* the runs are looked at before the hold is visible */ \
	X(MEMORY_WRITTEN)			/* the memory is in force before it is written */ \
	X(MEMORY_KEPT)				/* a message is sent before the memory is kept */ \
	X(TALLY_FREED)				/* the counters of the old election are half erased */ \
	X(TALLY_ZEROED)				/* the new election has the counters of the old one */ \
	X(TALLY_FOUND)				/* the counters are older than the name */ \
	X(TALLY_READ)				/* the name is looked at again before the counters are read */ \
	X(DEMAND_WITHDRAWN)			/* the timer sees the demand of the setting while it is replaced */ \
	X(DEMAND_RECORDED)			/* the timer sees a demand before it is recorded */ \
	X(DEMAND_CONTINUED)			/* the same, in the next transaction of a statement */ \
	X(REQUIREMENT_RECORDED)		/* the timer sees a requirement before it is recorded */ \
	X(BINDING_RECORDED)			/* the timer sees the binding of a hook before it is recorded */ \
	X(WAKE_FIRST)				/* processes are woken before the change is stored */ \
	X(REPLY_LATE)				/* the reply is stored after the state of its place */ \
	X(RELEASE_FIRST)			/* a notifier frees its slot before it stores its mark */ \
	X(HOLD_LATE)				/* the runs are looked at before the hold is stored */ \
	X(CURRENT_FIRST)			/* the memory is put in force before it is written */ \
	X(SENT_FIRST)				/* a message is sent before the memory is stored */ \
	X(FORCE_FIRST)				/* a demand counts before it is recorded */ \
	X(COMMIT_FIRST)				/* the timer acts after the commit was allowed */ \
	X(END_LATE)					/* requests are looked for before the end of the elector is stored */ \
	X(FORGOTTEN_LATE)			/* a slot is given away before its ticket is void */ \
	X(CLAIM_LATE)				/* a notifier looks for its admission before it stores its claim */ \
	X(RUN_FIRST)				/* a run has begun before it is written */ \
	X(OVER_FIRST)				/* a run is over before its result is stored */ \
	X(NAME_LATE)				/* the counters are erased before the old name is */ \
	X(NAME_FIRST)				/* the new name is stored before the counters are erased */ \
	X(WITHDRAWN_LATE)			/* a demand is replaced while it counts */ \
	X(CONTINUED_FIRST)			/* the demand of the next transaction counts before it is recorded */ \
	X(REQUIREMENT_FIRST)		/* a requirement counts before it is recorded */ \
	X(BOUND_FIRST)				/* the binding of a hook counts before it is recorded */ \
	X(WANTED_LATE)				/* the timer is looked at before it is wanted, and stops then */

#include "memory.pml"

/* pg_atomic_compare_exchange_u32(); see memory.pml.  What was stored before is visible before. */
#define exchange(at, from, to, done) \
	atomic { \
		!late_of(me, at) && (memory[at] != from || !is_late(at)) -> \
		if \
		:: memory[at] == from -> order_stores(); store(at, to); done = 1 \
		:: else -> done = 0 \
		fi; \
		d_step { look() } \
	}
#define late_in(c, at, j)	(core[c].n > j && core[c].late[j].where == at)
#define late_of(c, at)	(late_in(c, at, 0) || late_in(c, at, 1) || late_in(c, at, 2) || late_in(c, at, 3))
#define is_late(at)		(late_of(0, at) || late_of(1, at) || late_of(2, at))

/* pg_atomic_fetch_add_u32() */
#define add(at, what) \
	atomic { full_barrier(); d_step { memory[at] = memory[at] + what; look() } }

#define compiler_barrier(label) \
	memory_barrier(label)

/* ---- WOKEN --------------------------------------------------------------- */

#define NUMBER	0
#define VALUE	1

byte announced[3];					/* the value before each change of the number */

/* events_wake() */
#define wake() \
	d_step { announced[memory[NUMBER] + 1] = value }; \
	add(NUMBER, 1)

proctype publisher()
{
	byte me = 0, value = 0;

	do
	:: value < 2 ->
		value++;
		LATER(WAKE_FIRST, wake());
		store(VALUE, value);
		HERE(WAKE_FIRST, wake())
	:: else -> break
	od
}

/* events_change_number(), and what the caller looks at then */
proctype sleeper()
{
	byte me = 1, seen, value;

	do
	:: atomic { begin_call(BIT(NUMBER) | BIT(VALUE)) };
		atomic { load_first(NUMBER, seen); read_barrier(CHANGE_SEEN) };
		load_first(VALUE, value);
		assert(value >= announced[seen]);
		end_call()
	od
}

/* ---- MAILBOX ------------------------------------------------------------- */

#define STATE	0
#define REQUEST	1
#define REPLY	2
#define ALIVE	3					/* SharedState.elector */

#define FREE	0
#define CLAIMED	1
#define WAITING	2
#define TAKEN	3
#define DONE	4

#define NO_ELECTOR 9

bit ended = 0;						/* the elector, and others see all it has done */
bit asleep = 0;						/* the backend, until the state changes */

proctype mailbox_elector()
{
	byte me = 0, request;
	bit done;

	begin_call(BIT(REQUEST));
	do
	:: exchange(STATE, WAITING, TAKEN, done);
		if
		:: done ->
			load_first(REQUEST, request);
			HERE(REPLY_LATE, store(REPLY, request));
			exchange(STATE, TAKEN, DONE, done);
			LATER(REPLY_LATE, store(REPLY, request))
		:: else
		fi
	:: break
	od;
	skip;
	/* shared_state_end_elector(), fail_all() */
	HERE(END_LATE, store(ALIVE, 0));
	memory_barrier(ELECTOR_ENDED);
	exchange(STATE, WAITING, TAKEN, done);
	if
	:: done -> store(REPLY, NO_ELECTOR); exchange(STATE, TAKEN, DONE, done)
	:: else
	fi;
	LATER(END_LATE, store(ALIVE, 0));
	atomic { core[me].n == 0 -> ended = 1 }
}

proctype mailbox_backend()
{
	byte me = 1, request, reply, state, alive;
	bit done;

	do
	:: request < 2 ->
		request++;
		begin_call(BIT(STATE) | BIT(ALIVE) | BIT(REPLY));
		exchange(STATE, FREE, CLAIMED, done);
		assert(done);
		store(REQUEST, request);
		exchange(STATE, CLAIMED, WAITING, done);
		memory_barrier(REQUEST_WAITS);
		do
		:: load_first(STATE, state);
			if
			:: state == DONE -> break
			:: else
			fi;
			load_first(ALIVE, alive);
			if
			:: !alive ->
				exchange(STATE, WAITING, CLAIMED, done);
				if
				:: done -> goto given_up
				:: else
				fi
			:: else
			fi;
			/* it sleeps until the elector has replied */
			asleep = 1;
			atomic { memory[STATE] == DONE -> asleep = 0 }
		od;
		read_barrier(REPLY_READ);
		load_first(REPLY, reply);
		assert(reply == request || reply == NO_ELECTOR);
given_up:
		exchange(STATE, DONE, FREE, done);
		if
		:: done
		:: else -> exchange(STATE, CLAIMED, FREE, done); assert(done)
		fi;
		end_call()
	:: else -> break
	od
}

proctype mailbox_monitor()
{
	atomic { ended && asleep && core[0].n == 0 && core[1].n == 0 && memory[STATE] == WAITING -> assert(false) }
}

/* ---- NOTIFIER ------------------------------------------------------------ */

#define TICKET	0
#define CLAIM	1
#define MARK	2					/* announced */
#define BARRED	3

bit works = 0;						/* it is claimed and admitted */
bit given = 0;						/* the slot, to another database */
bit vacated = 0;					/* the database, for a statement */
bit left = 0;

proctype notifier_elector()
{
	byte me = 0, claim;

	begin_call(BIT(CLAIM));
	HERE(FORGOTTEN_LATE, store(TICKET, 0));
	memory_barrier(NOTIFIER_FORGOTTEN);
	do
	:: atomic {
			load_first(CLAIM, claim);
			if
			:: claim == 0 -> assert(!works); given = 1; store(MARK, 9); break
			:: else
			fi
		}
	od;
	LATER(FORGOTTEN_LATE, store(TICKET, 0))
}

proctype notifier_backend()
{
	byte me = 2, claim;

	begin_call(BIT(CLAIM));
	add(BARRED, 1);
	do
	:: atomic {
			load_first(CLAIM, claim);
			if
			:: claim == 0 -> assert(!works); vacated = 1; break
			:: else
			fi
		}
	od
}

proctype notifier()
{
	byte me = 1, ticket, barred;
	bit done;

	begin_call(BIT(TICKET) | BIT(BARRED));
	HERE(CLAIM_LATE, exchange(CLAIM, 0, 1, done));
	memory_barrier(NOTIFIER_CLAIMED);
	atomic { load_first(TICKET, ticket); load_first(BARRED, barred) };
	LATER(CLAIM_LATE, exchange(CLAIM, 0, 1, done));
	atomic {
		if
		:: ticket == 1 && !barred ->
			assert(!given && !vacated);
			works = 1
		:: else
		fi
	};
	if
	:: works -> store(MARK, 5)
	:: else
	fi;
	works = 0;
	LATER(RELEASE_FIRST, store(CLAIM, 0); store(MARK, 5));
	memory_barrier(NOTIFIER_RELEASED);
	HERE(RELEASE_FIRST, store(CLAIM, 0));
	/* what the next notifier finds */
	atomic {
		given && core[0].n == 0 && core[1].n == 0 -> assert(memory[MARK] == 9)
	}
}

/* ---- HOOK ---------------------------------------------------------------- */

#define RUN			0				/* its state */
#define RUN_DATABASE	1
#define RUN_PID		2
#define RUN_STATUS	3
#define HELD		4				/* the database, by hooks_vacate() */

#define STARTING	1
#define RUNNING		2
#define OVER		3

#define OLD			3				/* of the run before */
#define NEW			7

bit forked = 0;
bit connected = 0;

proctype hooks_worker()
{
	byte me = 0, run_state, status;

	begin_call(BIT(RUN) | BIT(RUN_STATUS));
	store(RUN_DATABASE, NEW);
	store(RUN_STATUS, OLD);
	write_barrier(RUN_WRITTEN);
	store(RUN, STARTING);
	/* the postmaster forks the process */
	full_barrier();
	forked = 1;
	do
	:: load_first(RUN, run_state);
		if
		:: run_state == OVER -> break
		:: else
		fi
	od;
	read_barrier(RUN_ENDED);
	load_first(RUN_STATUS, status);
	assert(status == NEW)
}

proctype hook_run()
{
	byte me = 1, held;
	bit done;

	atomic { forked -> begin_call(BIT(HELD)) };
	store(RUN_PID, NEW);
	exchange(RUN, STARTING, RUNNING, done);
	atomic {
		load_first(HELD, held);
		if
		:: held
		:: else -> assert(!vacated); connected = 1
		fi
	};
	connected = 0;
	HERE(OVER_FIRST, store(RUN_STATUS, NEW));
	write_barrier(RUN_OVER);
	store(RUN, OVER);
	LATER(OVER_FIRST, write_barrier(RUN_OVER); store(RUN_STATUS, NEW))
}

/* hooks_vacate() */
proctype hooks_backend()
{
	byte me = 2, run_state, database, process;

	begin_call(BIT(RUN) | BIT(RUN_DATABASE) | BIT(RUN_PID));
	HERE(HOLD_LATE, store(HELD, 1));
	memory_barrier(HOLD_BEGUN);
	do
	:: atomic { load_first(RUN, run_state); read_barrier(RUN_SEEN) };
		atomic {
			load_first(RUN_DATABASE, database);
			load_first(RUN_PID, process);
			if
			:: (run_state != STARTING && run_state != RUNNING) || database != NEW ->
				assert(!connected);
				vacated = 1;
				break
			:: else -> assert(run_state != RUNNING || process == NEW)	/* it gets a signal */
			fi
		}
	od;
	LATER(HOLD_LATE, store(HELD, 1))
}

/* ---- CRASH --------------------------------------------------------------- */

/*
 * A kill is between two instructions, so the order of the processor does not
 * matter, but that of the compiler does: what is late here is lost.
 */
#define CURRENT	4					/* 1 or 2; 0: none */
#define KEPT	4					/* the copies are at 5 and 6 */

byte sent = 0;						/* a message that must not be sent before this is kept */

proctype remembering()
{
	byte me = 0, k = 0;

	do
	:: k < 3 ->
		k++;
		LATER(SENT_FIRST, sent = k);
		HERE(CURRENT_FIRST, store(KEPT + 1 + (k & 1), k));
		write_barrier(MEMORY_WRITTEN);
		store(CURRENT, 1 + (k & 1));
		LATER(CURRENT_FIRST, write_barrier(MEMORY_WRITTEN); store(KEPT + 1 + (k & 1), k));
		memory_barrier(MEMORY_KEPT);
		HERE(SENT_FIRST, sent = k)
	:: else -> break
	od
}

/* start_run() of hooks/worker.c: a crash must not find a run without its hook */
proctype starting()
{
	byte me = 1;

	HERE(RUN_FIRST, store(RUN_DATABASE, NEW));
	write_barrier(RUN_WRITTEN);
	store(RUN_STATUS, STARTING);
	LATER(RUN_FIRST, write_barrier(RUN_WRITTEN); store(RUN_DATABASE, NEW))
}

proctype killer()
{
	atomic {
		assert(memory[RUN_STATUS] == 0 || memory[RUN_DATABASE] == NEW);
		assert(memory[CURRENT] == 0 -> sent == 0 : memory[KEPT + memory[CURRENT]] >= sent && memory[KEPT + memory[CURRENT]] > 0)
	}
}

/* ---- TALLY --------------------------------------------------------------- */

#define NAME	0
#define WON		1
#define LOST	2

proctype counting()
{
	byte me = 0;

	HERE(NAME_LATE, store(NAME, 0));
	LATER(NAME_FIRST, store(NAME, 2));
	write_barrier(TALLY_FREED);
	store(WON, 0);
	store(LOST, 0);
	LATER(NAME_LATE, write_barrier(TALLY_FREED); store(NAME, 0));
	write_barrier(TALLY_ZEROED);
	HERE(NAME_FIRST, store(NAME, 2));
	add(WON, 1)
}

/* stats_tally() */
proctype counter_reader()
{
	byte me = 1, name, again, won, lost;

	begin_call(BIT(NAME) | BIT(WON) | BIT(LOST));
	atomic { load_first(NAME, name); read_barrier(TALLY_FOUND) };
	atomic { load_first(WON, won); load_first(LOST, lost); read_barrier(TALLY_READ) };
	load_first(NAME, again);
	assert(again != name || name != 1 || (won == 5 && lost == 5));
	assert(again != name || name != 2 || (won <= 1 && lost == 0))
}

/* ---- TIMER --------------------------------------------------------------- */

/*
 * The handler of a signal runs between two instructions of its process, so only
 * the order of the compiler matters.  That keeps the order of what is volatile.
 */
#define IN_FORCE	0				/* volatile, as the next three */
#define NREQUIRED	1
#define BOUND		2
#define COMMITTING	3				/* the phase FENCE_CLOSING */
#define DEMAND		4				/* setting_requirement: two words */
#define REQUIRED	6				/* requirements[0] */
#define BINDING		7

bit cancelled = 0;					/* fence_state.sent */
bit committed = 0;

#define is_volatile(j)	(core[me].n > j && core[me].late[j].where < DEMAND)
#define store_volatile(at, what) \
	atomic { \
		!is_volatile(0) && !is_volatile(1) && !is_volatile(2) && !is_volatile(3) -> \
		store(at, what) \
	}

inline record_demand(token)
{
	HERE(WITHDRAWN_LATE, store_volatile(IN_FORCE, 0); compiler_barrier(DEMAND_WITHDRAWN));
	LATER(FORCE_FIRST, store_volatile(IN_FORCE, 1); compiler_barrier(DEMAND_RECORDED));
	store(DEMAND, token);
	store(DEMAND + 1, token);
	LATER(WITHDRAWN_LATE, compiler_barrier(DEMAND_WITHDRAWN); store_volatile(IN_FORCE, 0));
	compiler_barrier(DEMAND_RECORDED);
	HERE(FORCE_FIRST, store_volatile(IN_FORCE, 1))
}

proctype fenced()
{
	byte me = 0;

	LATER(BOUND_FIRST, store_volatile(BOUND, 1));
	store(BINDING, 1);
	compiler_barrier(BINDING_RECORDED);
	HERE(BOUND_FIRST, store_volatile(BOUND, 1));
	record_demand(1);
	record_demand(2);
	LATER(REQUIREMENT_FIRST, store_volatile(NREQUIRED, 1));
	store(REQUIRED, 1);
	compiler_barrier(REQUIREMENT_RECORDED);
	HERE(REQUIREMENT_FIRST, store_volatile(NREQUIRED, 1));
	/* check_commit() */
	HERE(COMMIT_FIRST, store_volatile(COMMITTING, 1));
	atomic {
		!is_volatile(0) && !is_volatile(1) && !is_volatile(2) && !is_volatile(3) ->
		if
		:: !cancelled -> committed = 1
		:: else
		fi
	};
	LATER(COMMIT_FIRST, store_volatile(COMMITTING, 1));
	/* end_transaction(), by PostgreSQL, which the compiler does not look into */
	full_barrier();
	committed = 0;
	store_volatile(NREQUIRED, 0);
	store_volatile(IN_FORCE, 0);
	store_volatile(COMMITTING, 0);
	/* continue_statement() */
	LATER(CONTINUED_FIRST, store_volatile(IN_FORCE, 1));
	store(DEMAND, 3);
	store(DEMAND + 1, 3);
	compiler_barrier(DEMAND_CONTINUED);
	HERE(CONTINUED_FIRST, store_volatile(IN_FORCE, 1))
}

/* watch_leadership() */
proctype timer()
{
	do
	:: atomic {
			!memory[COMMITTING] ->
			assert(!memory[IN_FORCE] || (memory[DEMAND] > 0 && memory[DEMAND] == memory[DEMAND + 1]));
			assert(!memory[NREQUIRED] || memory[REQUIRED] == 1);
			assert(!memory[BOUND] || memory[BINDING] == 1);
			if
			:: cancelled = 1; assert(!committed)
			:: true
			fi
		}
	od
}

/* ---- WATCH --------------------------------------------------------------- */

/* Both are volatile, so they are stored and loaded as the program says. */
bit watching = 0;					/* the timer runs */
bit watch_wanted = 0;				/* the phase is FENCE_WATCHED */

/* start_watching(), end_transaction() */
proctype watched()
{
	do
	:: HERE(WANTED_LATE, watch_wanted = 1);
		if
		:: !watching -> watching = 1; printf("the timer is set\n")
		:: watching -> printf("the timer runs\n")
		fi;
		LATER(WANTED_LATE, watch_wanted = 1);
		assert(watching);
		watch_wanted = 0
	od
}

/* watch_leadership(), the other branch */
proctype tick()
{
	do
	:: atomic { watching && !watch_wanted -> watching = 0; printf("a tick stops the timer\n") }
	od
}

/* -------------------------------------------------------------------------- */

init
{
	atomic {
		c_code { choose_mistake(); };
		run late_stores(0);
		run late_stores(1);
		run late_stores(2);
		run early_loads(0);
		run early_loads(1);
		run early_loads(2);
		if
		:: run publisher(); run sleeper()
		:: memory[ALIVE] = 1;
			run mailbox_elector(); run mailbox_backend(); run mailbox_monitor()
		:: memory[TICKET] = 1;
			run notifier_elector(); run notifier(); run notifier_backend()
		:: memory[RUN_DATABASE] = OLD; memory[RUN_PID] = OLD;
			run hooks_worker(); run hook_run(); run hooks_backend()
		:: run remembering(); run starting(); run killer()
		:: memory[NAME] = 1; memory[WON] = 5; memory[LOST] = 5;
			run counting(); run counter_reader()
		:: run fenced(); run timer()
		:: run watched(); run tick()
		fi
	}
}
