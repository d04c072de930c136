/*-------------------------------------------------------------------------
 *
 * leadership.pml
 *	  What the elector publishes of an election, and what readers make of it
 *	  without a lock, in weak memory (memory.pml).
 *
 * One slot, which is given to another election and may be given back.  The
 * elector publishes: it leads under a token, goes on under the same one, drains,
 * does not lead.  It may be killed at any point, and another one begins.  A
 * deadline is the number of its publication, so that it is known whose it is.
 * The clock is the number of the last publication.
 *
 * Checked, for a reader of election 1:
 *	- a deadline is not combined with a token, a name or a view of another
 *	  leadership;
 *	- a call that begins after the elector has withdrawn a leadership does not
 *	  find it;
 *	- the clock is read after the deadline;
 *	- a view is whole, and is that of an election that the slot was given to.
 *
 * What this models: shared/state.c and shared/snapshot.h.  Each barrier there has the
 * label of one here.
 *
 *-------------------------------------------------------------------------
 */
#define OPEN		0
#define DEADLINE	1
#define TOKEN		2
#define LAYOUT		3
#define GENERATION	4
#define COPY		5				/* two of them; whole: the number of its generation */
#define CLOCK		7

#define LOCATIONS	8
#define CORES		2
#define DEPTH		8

#define ELECTOR		0
#define READER		1

/* Each is found: that barrier is missing, or two stores or loads are swapped. */
#define MISTAKES(X) \
	X(WITHDRAW)					/* a call that begins after the withdrawal finds the leadership */ \
	X(COPY_FREE)				/* a copy is overwritten while its generation is still in force */ \
	X(COPY_WHOLE)				/* a generation is in force before its copy is written */ \
	X(LAYOUT_NAMED)				/* a slot is named anew before its snapshot is */ \
	X(TOKEN_STORED)				/* a deadline is there before its token */ \
	X(GENERATION_READ)			/* the copy is older than its generation */ \
	X(COPY_READ)				/* the generation is looked at again before the copy is read */ \
	X(DEADLINE_READ)			/* clock and layout are read before the deadline */ \
	X(TOKEN_READ)				/* the token is read after the deadline alone */ \
	X(VIEW_READ)				/* the token is read before the deadline */ \
	X(WITHDRAW_LAST)			/* the old leadership is withdrawn after the new one is published */ \
	X(GENERATION_FIRST)			/* the generation is stored before the copy */ \
	X(LAYOUT_LATE)				/* the layout becomes odd after the snapshot is replaced */ \
	X(NAMED_FIRST)				/* the layout becomes even before the snapshot is replaced */ \
	X(TOKEN_LAST)				/* the token is stored after the deadline */ \
	X(CLOCK_FIRST)				/* the clock is read before the deadline */ \
	X(TOKEN_LATE)				/* the token is read after the deadline, once */

#include "memory.pml"

/* How often the elector publishes, and names the slot: the layout grows by 2. */
#ifndef PUBLICATIONS
#define PUBLICATIONS	3
#endif
#ifndef MAXLAYOUT
#define MAXLAYOUT		4
#endif
#define LAYOUTS		10
#define NOWHERE		255

/* What is true of each publication, and of each layout. */
byte token_of[PUBLICATIONS + 2];	/* 0: it does not lead */
byte name_of[PUBLICATIONS + 2];
byte election_at[LAYOUTS];
byte withdrawn = 0;					/* all tokens up to this one */
byte number = 0;					/* of publications */

#define withdraw() \
	store(OPEN, 0); \
	may_be_killed(); \
	store(DEADLINE, 0); \
	memory_barrier(WITHDRAW); \
	d_step { withdrawn = token; printf("withdrawn up to token %d\n", token) }

/* The number of a generation is that of the publication. */
#define write_snapshot(what) \
	write_barrier(COPY_FREE); \
	HERE(GENERATION_FIRST, store(COPY + (what & 1), what)); \
	may_be_killed(); \
	write_barrier(COPY_WHOLE); \
	store(GENERATION, what); \
	may_be_killed(); \
	LATER(GENERATION_FIRST, write_barrier(COPY_WHOLE); store(COPY + (what & 1), what))

#define begin_layout_change() \
	store(LAYOUT, layout + 1); \
	may_be_killed()

#define end_layout_change(what) \
	layout = layout + 2; \
	election_at[layout] = what; \
	store(LAYOUT, layout); \
	may_be_killed()

#define withdraw_if_over() \
	if \
	:: leads && (next == 0 || renamed || next != token) -> withdraw(); may_be_killed() \
	:: else \
	fi

/* What the elector does next.  A token is new, or that of a leadership that goes on. */
inline choose()
{
	number++;
	if
	:: name == 0 -> name = 1; renamed = 1
	:: name != 0 && layout < MAXLAYOUT -> name = 3 - name; renamed = 1
	:: name != 0
	fi;
	if
	:: next = 0
	:: leads && !renamed -> next = token
	:: next = token + 1
	fi;
	if
	:: next != 0 -> is_open = 1
	:: is_open = 0
	fi;
	token_of[number] = next;
	name_of[number] = name;
	printf("publication %d: election %d, token %d, open %d\n", number, name, next, is_open)
}

/* The elector is killed, perhaps; what it has stored becomes visible. */
#ifdef KILLED
#define may_be_killed() \
	if \
	:: true \
	:: !killed -> goto dead \
	fi
bit killed = 0;
#else
#define may_be_killed() true
#endif

proctype elector()
{
	byte me = ELECTOR;
	byte name, layout, token, next;
	bit leads, renamed, is_open;

next_one:
	do
	:: atomic {
			number < PUBLICATIONS ->
			choose();
			HERE(WITHDRAW_LAST, withdraw_if_over());
			if
			:: renamed ->
				HERE(LAYOUT_LATE, begin_layout_change());
				LATER(NAMED_FIRST, end_layout_change(name));
				write_snapshot(number);
				LATER(LAYOUT_LATE, begin_layout_change());
				write_barrier(LAYOUT_NAMED);
				HERE(NAMED_FIRST, end_layout_change(name))
			:: else -> write_snapshot(number)
			fi;
			memory[CLOCK] = number;
			if
			:: next != 0 ->
				HERE(TOKEN_LAST, store(TOKEN, next));
				may_be_killed();
				write_barrier(TOKEN_STORED);
				store(DEADLINE, number);
				may_be_killed();
				store(OPEN, (is_open -> number : 0));
				LATER(TOKEN_LAST, write_barrier(TOKEN_STORED); store(TOKEN, next))
			:: else
			fi;
			LATER(WITHDRAW_LAST, withdraw_if_over());
			leads = next != 0;
			if
			:: next != 0 -> token = next
			:: else
			fi;
			next = 0; renamed = 0; is_open = 0
		}
	:: else -> break
	od;
	goto over;

	/* shared_state_begin_elector() */
dead:
	atomic {
		core[me].n == 0 ->
#ifdef KILLED
		killed = 1;
		printf("the elector is killed\n");
#endif
		token = (next > token -> next : token);
		number = memory[GENERATION] + 1;
		layout = (memory[LAYOUT] & 1 -> memory[LAYOUT] - 1 : memory[LAYOUT]);
		name = 0;
		token_of[number] = 0;
		name_of[number] = 0;
		leads = 0; next = 0; renamed = 0; is_open = 0;
		withdraw();
		begin_layout_change();
		write_snapshot(number);
		write_barrier(LAYOUT_NAMED);
		end_layout_change(0);
		goto next_one
	};
over:
	skip
}

/* It is tried again by another call. */
#define read_generation() \
	load_first(GENERATION, view); \
	read_barrier(GENERATION_READ)

#define read_copy() \
	copy = view & 1; \
	if \
	:: copy == 0 -> load(COPY, copy) \
	:: else -> load(COPY + 1, copy) \
	fi; \
	read_barrier(COPY_READ)

#define check_snapshot() \
	load(GENERATION, again); \
	if \
	:: again != view -> goto over \
	:: else -> assert(copy == view) \
	fi

/* is_before(): else it is over */
#define read_deadline(which) \
	HERE(CLOCK_FIRST, load(which, deadline)); \
	LATER(CLOCK_FIRST, load(CLOCK, clock)); \
	read_barrier(DEADLINE_READ)

#define read_clock(which) \
	HERE(CLOCK_FIRST, load(CLOCK, clock)); \
	LATER(CLOCK_FIRST, load(which, deadline)); \
	load(LAYOUT, again); \
	if \
	:: deadline == 0 || again != known -> goto over \
	:: else \
	fi

#define check_deadline() \
	assert(clock >= deadline); \
	assert(name_of[deadline] == 1); \
	assert(token_of[deadline] > gone)

#define check_token() \
	HERE(TOKEN_LATE, load(TOKEN, again)); \
	LATER(TOKEN_LATE, load(TOKEN, token); again = token); \
	if \
	:: again != token -> goto over \
	:: else \
	fi; \
	check_deadline(); \
	assert(token == token_of[deadline]); \
	goto over

#define SNAPSHOT	(BIT(GENERATION) | BIT(COPY) | BIT(COPY + 1))

/* Its client may have seen what the elector did before. */
#define begin(locations) \
	begin_call(locations); \
	gone = withdrawn

/* What is between two barriers is one step: a load may be done early anyway. */
proctype reader()
{
	byte me = READER;
	byte known = NOWHERE;			/* the layout in which the slot was found */
	byte gone, view, copy, again, deadline, clock, token;

	do
	:: atomic { known == NOWHERE -> begin(BIT(LAYOUT) | SNAPSHOT) };
		/* shared_state_find() */
		atomic {
			load_first(LAYOUT, token);
			if
			:: token & 1 -> goto over
			:: else
			fi;
			read_generation()
		};
		atomic { read_copy() };
		atomic {
			check_snapshot();
			load(LAYOUT, again);
			if
			:: again == token && name_of[view] == 1 ->
				assert(election_at[token] == 1);
				known = token
			:: else
			fi;
			goto over
		}
	:: atomic { known != NOWHERE -> begin(BIT(OPEN) | BIT(CLOCK) | BIT(LAYOUT)) };
		/* shared_state_is_leader() */
		atomic { read_deadline(OPEN) };
		atomic { read_clock(OPEN); check_deadline(); goto over }
	:: atomic { known != NOWHERE -> begin(BIT(TOKEN) | BIT(OPEN) | BIT(CLOCK) | BIT(LAYOUT)) };
		/* shared_state_token() */
		atomic { HERE(TOKEN_LATE, load_first(TOKEN, token)); read_barrier(TOKEN_READ) };
		atomic { read_deadline(OPEN) };
		atomic { read_clock(OPEN); check_token() }
	:: atomic { known != NOWHERE -> begin(BIT(TOKEN) | BIT(DEADLINE) | BIT(CLOCK) | BIT(LAYOUT)) };
		/* shared_state_held_token() */
		atomic { HERE(TOKEN_LATE, load_first(TOKEN, token)); read_barrier(TOKEN_READ) };
		atomic { read_deadline(DEADLINE) };
		atomic { read_clock(DEADLINE); check_token() }
	:: atomic { known != NOWHERE -> begin(SNAPSHOT | BIT(TOKEN) | BIT(DEADLINE) | BIT(LAYOUT)) };
		/* shared_state_read() */
		atomic { read_generation() };
		atomic { read_copy() };
		atomic { check_snapshot(); load(DEADLINE, deadline); read_barrier(VIEW_READ) };
		atomic {
			load(TOKEN, token);
			if
			:: token_of[view] == 0 || token != token_of[view] -> deadline = 0
			:: else
			fi;
			load(LAYOUT, again);
			if
			:: again == known ->
				assert(name_of[view] == 1);
				assert(deadline == 0 || (token_of[deadline] == token && name_of[deadline] == 1));
				assert(deadline == 0 || token > gone)
			:: else
			fi;
			goto over
		}
	:: known != NOWHERE -> known = NOWHERE;
over:
		atomic {
			end_call();
			gone = 0; view = 0; copy = 0; again = 0; deadline = 0; clock = 0; token = 0
		}
	od
}

init
{
	atomic {
		c_code { choose_mistake(); };
		run elector();
		run late_stores(ELECTOR);
		run reader();
		run early_loads(READER)
	}
}
