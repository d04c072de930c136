/*-------------------------------------------------------------------------
 *
 * memory.pml
 *	  Memory that several processes share, in which stores and loads change
 *	  places.  leadership.pml, ring.pml and handshake.pml include it.
 *
 * A store stays with its process for as long as it likes, and stores to
 * different places become visible in any order.  Then all others see it at the
 * same time, as on ARMv8.  A load may have been done at any time since the last
 * barrier for loads of its process.  An address that was loaded before does not
 * delay it: neither C nor PostgreSQL promises that.  Loads, and stores, of one
 * place keep their order.
 *
 *	read_barrier(LABEL)		loads before it are done before loads after it
 *	write_barrier(LABEL)	stores before it are visible before stores after it
 *	memory_barrier(LABEL)	stores before it are visible before anything after it
 *
 * That is what atomics.h promises, and no more.  A compare-and-exchange is
 * weaker here than atomics.h says: loads after it may be done before others see
 * what it has stored.  That is what gcc makes of it for ARMv8.0.  An addition is
 * a full barrier there as well.
 *
 * A load is never later than a store that follows it in its process.  Where that
 * matters the real code has a compare-and-exchange or a full barrier.
 *
 * Each barrier has a label, which stands at that barrier of the real code, too.
 * A mistake is chosen when the search begins: MISTAKE=LABEL leaves that barrier
 * out, and a mistake of another name is what SWAPPED() says.
 *
 * The including file lists the MISTAKES.  It defines LOCATIONS, CORES and DEPTH, the
 * number of stores of a process that others do not see yet.
 *
 *-------------------------------------------------------------------------
 */
#define AS_NUMBER(name)	MISTAKE_##name,
#define AS_NAME(name)	#name,

c_decl {
	enum { MISTAKE_NONE, MISTAKES(AS_NUMBER) NMISTAKES };

	static int mistake;

	/* Named by the environment. */
	static void choose_mistake(void)
	{
		static const char *const names[] = {"", MISTAKES(AS_NAME)};
		const char *wanted = getenv("MISTAKE") ? getenv("MISTAKE") : "";

		for (mistake = 0; strcmp(names[mistake], wanted) != 0; mistake++)
		{
			if (mistake + 1 == NMISTAKES)
			{
				printf("there is no mistake %s\n", wanted);
				exit(1);
			}
		}
	}
};

#define WITHOUT(label)	c_expr { mistake == MISTAKE_##label }
#define SWAPPED(name)	c_expr { mistake == MISTAKE_##name }

/* A part of the code that stands at one of two places: where it belongs, or later. */
#define HERE(name, code) \
	if \
	:: SWAPPED(name) \
	:: else -> code \
	fi
#define LATER(name, code) \
	if \
	:: SWAPPED(name) -> code \
	:: else \
	fi

typedef Store
{
	byte where;
	byte value;
	bit fenced						/* a write barrier follows it */
};

typedef Core
{
	Store late[DEPTH];				/* not visible yet, in the order of the program */
	byte n;
	byte early[LOCATIONS];			/* what a load takes */
	short loads						/* a bit for each location that the call may still load */
};

byte memory[LOCATIONS];
Core core[CORES];

byte spot;							/* 0 between the steps */

#define BIT(at)	(1 << (at))

#define store(at, what) \
	d_step { \
		core[me].n < DEPTH; \
		core[me].late[core[me].n].where = at; \
		core[me].late[core[me].n].value = what; \
		core[me].n++; \
		printf("%d: stores ", me); printf(#at); printf(" = %d\n", what) \
	}

/*
 * Of a location that the call loads again, and the last time.  The own store is
 * seen before others see it.
 */
#define load_first(at, what) \
	d_step { \
		what = core[me].early[at]; \
		spot = 0; \
		do \
		:: spot < core[me].n -> \
			if \
			:: core[me].late[spot].where == at -> what = core[me].late[spot].value \
			:: else \
			fi; \
			spot++ \
		:: else -> break \
		od; \
		spot = 0; \
		printf("%d: loads ", me); printf(#at); printf(" = %d\n", what) \
	}

#define load(at, what) \
	load_first(at, what); \
	d_step { \
		core[me].loads = core[me].loads & ~BIT(at); \
		core[me].early[at] = 0 \
	}

inline look()
{
	spot = 0;
	do
	:: spot < LOCATIONS ->
		core[me].early[spot] = ((core[me].loads >> spot) & 1 -> memory[spot] : 0);
		spot++
	:: else -> break
	od;
	spot = 0
}

/* A call begins when its client has asked for it, and so does not load earlier. */
#define begin_call(locations) \
	d_step { core[me].loads = locations; look(); printf("%d: begins\n", me) }

#define end_call() \
	d_step { core[me].loads = 0; look() }

#define read_barrier(label) \
	if \
	:: WITHOUT(label) \
	:: else -> d_step { look() } \
	fi
#define write_barrier(label) \
	if \
	:: WITHOUT(label) \
	:: else -> order_stores() \
	fi
#define order_stores() \
	d_step { \
		if \
		:: core[me].n > 0 -> core[me].late[core[me].n - 1].fenced = 1 \
		:: else \
		fi \
	}
#define memory_barrier(label) \
	if \
	:: WITHOUT(label) \
	:: else -> full_barrier() \
	fi
#define full_barrier() \
	d_step { core[me].n == 0; look() }

/* May the store at position k become visible?  None before it is in its way. */
#define PASSES(k, j)	(!core[c].late[j].fenced && core[c].late[j].where != core[c].late[k].where)
#define PASSES_0(k)	true
#define PASSES_1(k)	PASSES_0(k) && PASSES(k, 0)
#define PASSES_2(k)	PASSES_1(k) && PASSES(k, 1)
#define PASSES_3(k)	PASSES_2(k) && PASSES(k, 2)
#define PASSES_4(k)	PASSES_3(k) && PASSES(k, 3)
#define PASSES_5(k)	PASSES_4(k) && PASSES(k, 4)
#define PASSES_6(k)	PASSES_5(k) && PASSES(k, 5)
#define PASSES_7(k)	PASSES_6(k) && PASSES(k, 6)
#define PASSES_8(k)	PASSES_7(k) && PASSES(k, 7)
#define PASSES_9(k)	PASSES_8(k) && PASSES(k, 8)
#define PASSES_10(k)	PASSES_9(k) && PASSES(k, 9)
#define PASSES_11(k)	PASSES_10(k) && PASSES(k, 10)

/* It does.  A barrier behind it goes on to delay what is behind the barrier. */
#define SHOW(k) \
	:: d_step { \
		core[c].n > k && PASSES_##k(k); \
		memory[core[c].late[k].where] = core[c].late[k].value; \
		printf("%d: location %d is %d for all\n", c, core[c].late[k].where, core[c].late[k].value); \
		if \
		:: k > 0 && core[c].late[k].fenced -> core[c].late[(k > 0 -> k - 1 : 0)].fenced = 1 \
		:: else \
		fi; \
		spot = k; \
		do \
		:: spot + 1 < core[c].n -> \
			core[c].late[spot].where = core[c].late[spot + 1].where; \
			core[c].late[spot].value = core[c].late[spot + 1].value; \
			core[c].late[spot].fenced = core[c].late[spot + 1].fenced; \
			spot++ \
		:: else -> break \
		od; \
		core[c].late[spot].where = 0; \
		core[c].late[spot].value = 0; \
		core[c].late[spot].fenced = 0; \
		spot = 0; \
		core[c].n-- \
	}

proctype late_stores(byte c)
{
	do
	SHOW(0)
#if DEPTH > 1
	SHOW(1)
#endif
#if DEPTH > 2
	SHOW(2)
#endif
#if DEPTH > 3
	SHOW(3)
#endif
#if DEPTH > 4
	SHOW(4)
#endif
#if DEPTH > 5
	SHOW(5)
#endif
#if DEPTH > 6
	SHOW(6)
#endif
#if DEPTH > 7
	SHOW(7)
#endif
#if DEPTH > 8
	SHOW(8)
#endif
#if DEPTH > 9
	SHOW(9)
#endif
#if DEPTH > 10
	SHOW(10)
#endif
#if DEPTH > 11
	SHOW(11)
#endif
	od
}

#define LOOK(at) \
	:: d_step { \
		((core[c].loads >> at) & 1) && core[c].early[at] != memory[at]; \
		core[c].early[at] = memory[at]; \
		printf("%d: looks at location %d early\n", c, at) \
	}

proctype early_loads(byte c)
{
	do
	LOOK(0)
	LOOK(1)
	LOOK(2)
	LOOK(3)
#if LOCATIONS > 4
	LOOK(4)
#endif
#if LOCATIONS > 5
	LOOK(5)
#endif
#if LOCATIONS > 6
	LOOK(6)
#endif
#if LOCATIONS > 7
	LOOK(7)
#endif
#if LOCATIONS > 8
	LOOK(8)
#endif
#if LOCATIONS > 9
	LOOK(9)
#endif
#if LOCATIONS > 10
	LOOK(10)
#endif
	od
}
