/*-------------------------------------------------------------------------
 *
 * fence_test.c
 *	  The promise of the fence, in random histories of a session.
 *
 * The session runs in small_postgres.c with the real files of the fence, and with the real
 * shared memory of leaderships and of fenced transactions.  Meanwhile leadership is won,
 * lost, renewed, drained, cancelled, or expires, also between any two looks of the fence at
 * the clock.  A model of what was promised watches:
 *
 * - No fenced transaction commits after the deadline of the leadership, nor under
 *	 another token than the one under which it was fenced.
 * - None is refused or cancelled without need.  A cancellation comes in time, as an error
 *	 that says why, and never while a commit waits for a synchronous standby.
 * - A drain waits for exactly the fenced transactions that are open.
 *
 * The model knows the leadership, and what the session has done, but not what the fence has
 * read.  Where leadership changes while the fence looks at it, the model allows both results.
 *
 * A history is made from its number.  HISTORY=N runs that one alone, HISTORIES=N so many.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"

#include "base/clock.h"
#include "fence/decide.h"
#include "fence/fence.h"
#include "settings/settings.h"
#include "shared/fenced.h"
#include "shared/state.h"
#include "shared/stats.h"
#include "shared/status.h"
#include "small_elections.h"
#include "small_postgres.h"
#include "weak_memory.h"

#define NHISTORIES	50000
#define NCOMMANDS	40

#define TTL_NS		(3 * NSEC_PER_SEC)
#define STEP_NS		(50 * NSEC_PER_MSEC)
#define NTOKENS		6

/* ---- chance ------------------------------------------------------------------ */

static uint64 chance;
static int	history;

static int
choose(int n)
{
	chance = chance * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (int) ((chance >> 33) % (uint64) n);
}

static void
violate(const char *what)
{
	fail_msg("history %d, at %.3f s: %s (last error: %s %s)", history, (double) now_ns / 1e9, what,
			 pg_error.message, pg_error.detail);
}

/* ---- what the files need of others --------------------------------------------- */

char	   *settings_require_leadership_of;
bool		settings_requires_by_role;
bool		settings_cancel_on_loss;

void
stats_count(SharedCounter counter, int64 n)
{
}

char *
status_leader_for_message(int index)
{
	return NULL;
}

int
status_errdetail_leader(int index)
{
	return 0;
}

/* ---- the leadership, as it is ---------------------------------------------------- */

static struct
{
	struct
	{
		bool		leads;		/* until the deadline */
		bool		drains;
		int64		token;
		int64		deadline_ns;
		int64		handed_over;	/* the last token that a drain has ended, without force */
	}			elections[NELECTIONS];
	int64		last_token;
	int			nlayouts;
} world;

/* ---- the promise ------------------------------------------------------------------ */

/* Tokens that the fence may have read: more than one if leadership changed meanwhile. */
typedef struct Tokens
{
	int			n;
	int64		tokens[NTOKENS];
} Tokens;

typedef struct Promise
{
	Tokens		call;			/* etcd_require_leader() has returned it; n = 0: none */
	Tokens		setting;		/* that of the first statement under the setting */
	bool		has_kept;		/* the setting has changed after a write */
	bool		could_commit;	/* at the check of the commit: all the time, and ever */
	bool		ever_could;
} Promise;

static struct
{
	Promise		promises[NELECTIONS];
	bool		was_read_only;	/* since the begin of the last statement */
	bool		ever_read_only;
	bool		has_changed;	/* the setting */
	bool		steps_aside;	/* the transaction has asked for a drain */
	bool		is_continued;	/* by the same statement, and has read nothing yet */
	bool		was_broken;		/* at any time */
	bool		commits;		/* the check of the commit is under way */
	int64		broken_since_ns;	/* so that it has to be cancelled; 0: it is not */
} model;

/* Of the process. */
static int	default_setting;
static Tokens bound;			/* in the first election */
static int	looking = -1;		/* the fence reads the leadership of that election */
static int64 continued_token;	/* of a statement that goes on, and reads the setting again */
static int	requiring = -1;		/* etcd_require_leader() of that election runs */
static bool may_fail;
static bool acts;				/* the command needs leadership before it begins */
static bool is_excused;			/* the command may be refused */
static bool is_still;			/* nothing changes within this command */
static bool injects;			/* leadership can change at each look at the clock */
static bool terminated;			/* by an administrator */
static bool was_broken;			/* the model when the last transaction ended */
static bool was_excused;
static bool must_wait[NELECTIONS];	/* a drain, for the last transaction that has ended */
static bool may_wait[NELECTIONS];

static bool
holds(int e, int64 token)
{
	return token != 0 && world.elections[e].leads && token == world.elections[e].token &&
		now_ns < world.elections[e].deadline_ns;
}

static int64
open_token(int e)
{
	return !world.elections[e].drains && holds(e, world.elections[e].token) ? world.elections[e].token : 0;
}

static void
add_token(Tokens *tokens, int64 token)
{
	for (int i = 0; i < tokens->n; i++)
	{
		if (tokens->tokens[i] == token)
			return;
	}
	if (tokens->n < NTOKENS)
		tokens->tokens[tokens->n++] = token;
}

static bool
all_hold(int e, const Tokens *tokens)
{
	for (int i = 0; i < tokens->n; i++)
	{
		if (!holds(e, tokens->tokens[i]))
			return false;
	}
	return true;
}

static bool
any_holds(int e, const Tokens *tokens)
{
	for (int i = 0; i < tokens->n; i++)
	{
		if (holds(e, tokens->tokens[i]))
			return true;
	}
	return tokens->n == 0;
}

static int
setting(void)
{
	return settings_require_leadership_of[0] != '\0' && MyBackendType == B_BACKEND ?
		settings_election_index(settings_require_leadership_of, 0) : -1;
}

/* Does the setting require that election, for the transaction as it is? */
static bool
setting_counts(int e)
{
	const Promise *promise = &model.promises[e];

	return promise->setting.n > 0 && ((setting() == e && (pg_has_written() || acts)) || promise->has_kept);
}

/* Can the transaction commit?  If leadership changed meanwhile: can it at best? */
static bool
is_kept(int e, bool at_best)
{
	const Promise *promise = &model.promises[e];
	bool		(*hold) (int, const Tokens *) = at_best ? any_holds : all_hold;

	return hold(e, &promise->call) && (e > 0 || hold(e, &bound)) &&
		(!setting_counts(e) || hold(e, &promise->setting));
}

/* Is the transaction fenced in that election already, so that a drain lets it go on? */
static bool
is_fenced(int e)
{
	const Promise *promise = &model.promises[e];

	return (promise->call.n > 0 && all_hold(e, &promise->call)) ||
		(promise->setting.n > 0 && looking != e && setting() == e && all_hold(e, &promise->setting)) ||
		(e == 0 && bound.n > 0 && all_hold(e, &bound));
}

/* Called after each change of the world, of the time, and of the transaction. */
static void
look_around(void)
{
	bool		kept = true;

	if (!pg_is_open())
		return;
	/* who is fenced already remains so, also during a drain */
	if (looking >= 0 && !holds(looking, continued_token))
	{
		add_token(&model.promises[looking].setting, open_token(looking));
		/* a token that holds already counts during a drain, too */
		if ((model.promises[looking].call.n > 0 || (looking == 0 && bound.n > 0)) && open_token(looking) == 0)
			add_token(&model.promises[looking].setting, world.elections[looking].token);
	}
	if (requiring >= 0 && open_token(requiring) == 0 && !is_fenced(requiring))
		may_fail = true;
	/* under another token than by an earlier call, or by the setting before it changed */
	if (requiring >= 0 && (!all_hold(requiring, &model.promises[requiring].call) ||
						   (model.has_changed && !all_hold(requiring, &model.promises[requiring].setting))))
		may_fail = true;
	model.was_read_only |= XactReadOnly;
	model.ever_read_only |= XactReadOnly;
	for (int e = 0; e < NELECTIONS; e++)
	{
		if (!is_kept(e, false))
			model.was_broken = true;
		if (!is_kept(e, true))
			kept = false;
		if (model.commits)
		{
			model.promises[e].could_commit &= is_kept(e, false);
			model.promises[e].ever_could |= is_kept(e, true);
		}
		if (model.has_changed && world.elections[e].drains)
			model.was_broken = true;	/* that election may be named anew */
	}
	if (kept)
		model.broken_since_ns = 0;
	else if (model.broken_since_ns == 0)
		model.broken_since_ns = now_ns;
}

/* Must a drain wait for the transaction?  May it? */
static bool
is_waited_for(int e, bool at_least)
{
	const Promise *promise = &model.promises[e];

	if (e == 0 && bound.n > 0)
		return true;
	if (!pg_is_open())
		return false;
	if (promise->call.n > 0)
		return true;
	if (promise->setting.n == 0 || looking == e)
		return !at_least && looking == e;
	if (!at_least)
		return !(promise->setting.n == 1 && promise->setting.tokens[0] == 0) &&
			(!XactReadOnly || pg_savepoints() > 0 || pg_has_written());
	for (int i = 0; i < promise->setting.n; i++)
	{
		if (promise->setting.tokens[i] == 0)
			return false;
	}
	return (!model.was_read_only || pg_has_written()) && !model.has_changed && !model.steps_aside;
}

/* ---- the world -------------------------------------------------------------------- */

static void
publish(int e)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	strlcpy(view.name, election_names[e], sizeof(view.name));
	view.token = world.elections[e].token;
	view.deadline_ns = world.elections[e].leads ? world.elections[e].deadline_ns : 0;
	view.state = !world.elections[e].leads ? ELECTION_WAITING :
		world.elections[e].drains ? ELECTION_DRAINING : ELECTION_LEADING;
	shared_state_publish(e, &view);
	look_around();
}

/* The elector sees for whom the drain waits. */
static void
look_at_drain(int e)
{
	bool		waits;

	is_another_process = true;
	waits = (fenced_slots() & (UINT32_C(1) << e)) != 0;
	is_another_process = false;
	if (!waits && is_waited_for(e, true))
		violate("a drain does not wait for the transaction");
	if (waits && choose(20) > 0)
		return;
	if (!waits && holds(e, world.elections[e].token))
		world.elections[e].handed_over = world.elections[e].token;
	world.elections[e].leads = world.elections[e].drains = false;
	publish(e);
}

static void
change_leadership(int e)
{
	if (!world.elections[e].leads)
	{
		world.elections[e].leads = true;
		world.elections[e].token = ++world.last_token;
		world.elections[e].deadline_ns = now_ns + TTL_NS;
		publish(e);
		return;
	}
	switch (choose(12))
	{
		case 0:
			world.elections[e].leads = world.elections[e].drains = false;
			publish(e);
			break;
		case 1:
		case 2:
		case 3:
			if (world.elections[e].drains)
				look_at_drain(e);
			else
			{
				world.elections[e].drains = true;
				publish(e);
				if (choose(4) > 0)
					look_at_drain(e);
			}
			break;
		case 4:
			if (world.elections[e].drains)
			{
				world.elections[e].drains = false;
				publish(e);
			}
			break;
		case 5:					/* nothing renews it */
			break;
		default:
			world.elections[e].deadline_ns = now_ns + TTL_NS;
			publish(e);
	}
}

/* Another election is taken up, in a slot of its own: the layout changes. */
static void
change_layout(void)
{
	ElectionView view;

	memset(&view, 0, sizeof(view));
	snprintf(view.name, sizeof(view.name), "gamma%d", ++world.nlayouts % 3);
	shared_state_publish(NELECTIONS, &view);
}

static void
change_world(void)
{
	if (choose(10) == 0)
		change_layout();
	else
		change_leadership(choose(NELECTIONS));
}

/* The elector is stopped: nothing is renewed, and no drain ends. */
static bool elector_sleeps;

static void
pass_step(void)
{
	now_ns += STEP_NS;
	weak_barrier();
	look_around();
	pg_run_timer();
	if (choose(elector_sleeps ? 60 : 300) == 0)
		elector_sleeps = !elector_sleeps;
	if (elector_sleeps)
		return;
	for (int e = 0; e < NELECTIONS; e++)
	{
		if (world.elections[e].leads && world.elections[e].deadline_ns < now_ns + TTL_NS / 2 && choose(4) > 0)
		{
			world.elections[e].deadline_ns = now_ns + TTL_NS;
			publish(e);
		}
		if (world.elections[e].drains)
			look_at_drain(e);
		if (!world.elections[e].leads && choose(12) == 0)
			change_leadership(e);
	}
	if (choose(20) == 0)
		change_world();
}

/* A statement waits, and looks for interrupts.  The timer has to cancel it in time. */
static void
wait_in_statement(int nsteps)
{
	while (nsteps-- > 0)
	{
		pass_step();
		if (nsteps == 0 && choose(4) == 0)
			break;				/* nothing looks for interrupts any more */
		if (choose(2000) == 0)
		{
			InterruptPending = ProcDiePending = true;
			terminated = true;
		}
		CHECK_FOR_INTERRUPTS();
		if (settings_cancel_on_loss && model.broken_since_ns != 0 &&
			now_ns - model.broken_since_ns > NSEC_PER_SEC)
			violate("a statement goes on after the loss");
	}
}

void
test_look_at_clock(void)
{
	static bool is_inside;

	if (is_inside || !injects)
		return;
	is_inside = true;
	if (choose(4) == 0)
		change_world();
	if (choose(8) == 0)
		pg_tick();
	is_inside = false;
}

/* ---- the transaction ---------------------------------------------------------------- */

static void
set_require_leadership_of(int e)
{
	settings_require_leadership_of = (char *) election_names[e < 0 ? NELECTIONS : e];
}

void
test_begin_transaction(void)
{
	int			e = setting();

	memset(&model, 0, sizeof(model));
	model.is_continued = fence_state.depth > 0;
	/* a statement goes on: it requires the leadership of now */
	if (model.is_continued && e >= 0)
	{
		if (may_wait[e])
			add_token(&model.promises[e].setting,
					  holds(e, world.elections[e].token) ? world.elections[e].token : 0);
		if (!must_wait[e])
			add_token(&model.promises[e].setting, open_token(e));
	}
	look_around();
}

/* The fence is about to read the setting. */
static void
begin_reading(void)
{
	int			e = setting();

	looking = -1;
	continued_token = 0;
	model.was_read_only = XactReadOnly;
	if (e >= 0 && IsTransactionState())
	{
		Tokens	   *tokens = &model.promises[e].setting;

		/* the transaction of a statement that goes on reads anew, but remains fenced */
		if (model.is_continued && !pg_has_written())
		{
			Tokens		old = *tokens;

			tokens->n = 0;
			for (int i = 0; i < old.n; i++)
			{
				if (!holds(e, old.tokens[i]))
					continue;
				add_token(tokens, old.tokens[i]);
				if (old.n == 1)
					continued_token = old.tokens[i];
			}
			looking = e;
		}
		if (tokens->n == 0)
			looking = e;
		model.is_continued = false;
	}
}

void
test_before_statement(void)
{
	begin_reading();
	injects = !is_still && choose(4) == 0;
	look_around();
}

void
test_enter_statement(void)
{
	injects = false;
	looking = -1;
	look_around();
}

void
test_before_commit(void)
{
	look_around();
	/* the statement has passed the check at its end: other libraries act before the callback */
	for (int e = 0; e < NELECTIONS && fence_state.depth == 0; e++)
	{
		if (!is_kept(e, true))
			violate("other libraries commit without leadership");
	}
	/* deferred triggers */
	if (choose(4) == 0)
		wait_in_statement(choose(40));
}

void
test_check_commit(bool is_over)
{
	if (!is_over)
	{
		begin_reading();		/* there may have been no statement */
		for (int i = 0; i < NELECTIONS; i++)
		{
			model.promises[i].could_commit = true;
			model.promises[i].ever_could = false;
		}
		model.commits = true;
		injects = !is_still && choose(4) == 0;
		look_around();
		return;
	}
	injects = false;
	look_around();
	looking = -1;
	model.commits = false;
	for (int i = 0; i < NELECTIONS; i++)
	{
		if (!model.promises[i].ever_could)
			violate("a fenced transaction commits without its leadership");
	}
}

void
test_commit(void)
{
	for (int n = choose(8) == 0 ? choose(40) : 0; n > 0; n--)
	{
		pass_step();
		pg_tick();
		if (QueryCancelPending || ProcDiePending)
			violate("the wait for a synchronous standby is cancelled");
	}
}

void
test_end_transaction(bool is_committed)
{
	injects = false;
	looking = -1;
	for (int e = 0; e < NELECTIONS; e++)
	{
		must_wait[e] = is_waited_for(e, true);
		may_wait[e] = is_waited_for(e, false);
	}
	was_broken = model.was_broken;
	was_excused = model.ever_read_only || model.has_changed || model.steps_aside;
	memset(&model, 0, sizeof(model));
	set_require_leadership_of(default_setting);
}

/* ---- statements -------------------------------------------------------------------- */

static void
require_leader(int e)
{
	Promise    *promise = &model.promises[e];
	volatile int64 token = 0;

	requiring = e;
	may_fail = false;
	injects = choose(2) == 0;
	look_around();
	PG_TRY();
	{
		token = fence_require(e);
	}
	PG_CATCH();
	{
		injects = false;
		look_around();
		requiring = -1;
		if (!may_fail)
			violate("etcd_require_leader() fails without need");
		model.was_broken = true;	/* that is the need for this error */
		PG_RE_THROW();
	}
	PG_END_TRY();
	injects = false;
	look_around();
	requiring = -1;
	if (token == 0 || token > world.last_token)
		violate("etcd_require_leader() returns no token");
	if (promise->call.n > 0 && promise->call.tokens[0] != token)
		violate("etcd_require_leader() returns two tokens");
	if (token == world.elections[e].handed_over)
		violate("a drain has not waited for etcd_require_leader()");
	promise->call.n = 0;
	add_token(&promise->call, token);
	look_around();
}

static void
write_something(void)
{
	pg_write();
	look_around();
}

/* A part of a statement. */
static void do_part(const void *unused);

static void
do_work(void)
{
	PgStatement nested = {T_Invalid, 0, do_part, NULL};

	switch (choose(8))
	{
		case 0:
		case 1:
			write_something();
			break;
		case 2:
			require_leader(choose(NELECTIONS));
			break;
		case 3:
			wait_in_statement(choose(choose(8) == 0 ? 60 : 4));
			break;
		case 4:
			if (fence_state.depth < 4)
				pg_nested(&nested);
			break;
		case 5:
			if (fence_state.depth < 4)
				(void) pg_nested_caught(&nested);
			look_around();
			break;
		case 6:
			ereport(ERROR, (errcode(ERRCODE_DIVISION_BY_ZERO), errmsg("division by zero")));
			break;
		default:
			break;
	}
}

static void
do_part(const void *unused)
{
	for (int n = choose(3); n > 0; n--)
		do_work();
}

/* DO, CALL, or a statement such as VACUUM, which commits on its way. */
static void
do_stages(const void *unused)
{
	do
	{
		do_work();
		if (!pg_is_in_block() && choose(2) == 0)
			pg_commit_here(choose(4) > 0);
	} while (choose(3) > 0);
}

static void
do_copy(const void *unused)
{
	pg_wait_for_client(true);
	wait_in_statement(choose(60));
	pg_wait_for_client(false);
	if (choose(2) == 0)
		write_something();
}

static void
do_set_local(const void *unused)
{
	int			e = setting();

	/* what was written stays under the leadership that it had */
	if (e >= 0 && model.promises[e].setting.n > 0 && pg_has_written() && any_holds(e, &model.promises[e].setting))
		model.promises[e].has_kept = model.promises[e].setting.n == 1;
	model.has_changed = true;
	set_require_leadership_of(choose(NELECTIONS));
}

/* etcd_resign() with a drain */
static void
do_drain(const void *unused)
{
	int			e = choose(NELECTIONS);

	fence_step_aside(election_names[e]);
	for (int i = 0; i < NELECTIONS; i++)
	{
		if (model.promises[i].call.n > 0)
			violate("a transaction waits for itself");
	}
	if (setting() >= 0 && pg_has_written())
		violate("a transaction that has written waits for itself");
	model.steps_aside = true;
	weak_barrier();
	if (setting() == e && !(e == 0 && bound.n > 0) && (fenced_slots() & (UINT32_C(1) << e)) != 0)
		violate("a drain waits for the transaction that asks for it");
	if (world.elections[e].leads)
	{
		world.elections[e].drains = true;
		publish(e);
		look_at_drain(e);
	}
	fence_step_back();
}

/* CREATE DATABASE */
static void
do_act(const void *unused)
{
	for (int e = 0; e < NELECTIONS; e++)
	{
		if (!is_kept(e, true))
			violate("a statement acts before its commit, without leadership");
	}
	acts = false;
	write_something();
}

static void
commit_prepared(const void *unused)
{
	if (setting() >= 0 && !holds(setting(), world.elections[setting()].token))
		violate("a prepared transaction commits without leadership");
}

/* ---- histories ---------------------------------------------------------------------- */

static void
start_process(void)
{
	bool		is_hook = choose(10) == 0;

	memset(&model, 0, sizeof(model));
	bound.n = 0;
	pg_be(choose(PG_PROCESSES));
	pg_start(is_hook ? B_BG_WORKER : B_BACKEND);
	default_setting = choose(2) == 0 ? choose(NELECTIONS) : -1;
	set_require_leadership_of(default_setting);
	if (is_hook && open_token(0) != 0)
	{
		add_token(&bound, open_token(0));
		fence_bind(election_names[0], bound.tokens[0]);
	}
}

/* The marks for drains, between two commands. */
static void
check_marks(void)
{
	uint32		slots;

	weak_barrier();
	look_around();
	slots = fenced_slots();
	for (int e = 0; e < NELECTIONS; e++)
	{
		bool		waits = (slots & (UINT32_C(1) << e)) != 0;

		if (!waits && is_waited_for(e, true))
			violate("a drain would not wait for the transaction");
		if (waits && !is_waited_for(e, false))
			violate("a drain would wait for nothing");
	}
}

/* A command has failed. */
static void
check_error(void)
{
	const char *token = strstr(pg_error.detail, "token ");
	bool		is_over = pg_error.level > ERROR || !pg_is_open();

	if (pg_error.level > ERROR && !terminated && pg_error.sqlstate != ERRCODE_READ_ONLY_SQL_TRANSACTION)
		violate("the session ends, and the client is not told why");
	if (pg_error.sqlstate == ERRCODE_QUERY_CANCELED)
		violate("the client is not told why its statement is cancelled");
	if (pg_error.sqlstate == ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		violate("there is a limit in the way");
	if (pg_error.sqlstate != ERRCODE_READ_ONLY_SQL_TRANSACTION)
		return;
	if (!is_excused && !(is_over ? was_broken : model.was_broken))
		violate("a transaction is refused without need");
	if (is_over ? was_excused : model.ever_read_only || model.has_changed || model.steps_aside)
		return;
	for (int e = 0; e < NELECTIONS && token; e++)
	{
		if (strstr(pg_error.message, election_names[e]) && atoll(token + 6) == world.elections[e].handed_over)
			violate("a transaction is refused although a drain had to wait for it");
	}
}

static bool
run(NodeTag tag, int kind, void (*body) (const void *))
{
	PgStatement statement = {tag, kind, body, NULL};

	return pg_command(&statement);
}

static bool
prepare(void)
{
	bool		must_fail = !pg_is_failed() && (setting() >= 0 || bound.n > 0);

	for (int e = 0; e < NELECTIONS && pg_is_open(); e++)
		must_fail |= model.promises[e].call.n > 0 && !pg_is_failed();
	if (pg_prepare() && must_fail)
		violate("a fenced transaction is prepared");
	return pg_error.level == 0 || pg_error.sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED;
}

static bool
run_in_block(int command)
{
	switch (command)
	{
		case 0:
		case 1:
		case 2:
			return pg_commit();
		case 3:
			return pg_rollback();
		case 4:
		case 5:
			return pg_is_failed() || pg_savepoints() > 3 || pg_savepoint();
		case 6:
		case 7:
			return pg_savepoints() == 0 || pg_rollback_to();
		case 8:
			return prepare();
		case 9:
			return pg_is_failed() || pg_savepoints() > 0 || pg_set_read_only(choose(3) > 0);
		default:
			return true;
	}
}

/* False: it has failed. */
static bool
run_command(void)
{
	int			command = choose(24);

	if (pg_is_in_block() && (command < 10 || pg_is_failed()))
		return run_in_block(command % 10);
	switch (command)
	{
		case 0:
		case 1:
		case 2:
			return pg_begin(false);
		case 3:
			return pg_begin(true);
		case 4:
		case 5:
			return run(T_DoStmt, 0, do_stages);
		case 6:
			is_still = true;
			is_excused = setting() >= 0 && !holds(setting(), world.elections[setting()].token);
			return run(T_TransactionStmt, TRANS_STMT_COMMIT_PREPARED, commit_prepared);
		case 10:
			return run(T_CopyStmt, 0, do_copy);
		case 11:
			return run(T_VariableSetStmt, 0, pg_is_in_block() && choose(2) == 0 ? do_set_local : do_part);
		case 12:
			return choose(4) > 0 || run(T_Invalid, 0, do_drain) || pg_error.sqlstate == ERRCODE_ACTIVE_SQL_TRANSACTION;
		case 13:
			is_still = acts = true;
			return run(T_CreatedbStmt, 0, do_act);
		case 14:
		case 15:
			for (int n = choose(choose(3) == 0 ? 80 : 10); n > 0; n--)
			{
				pass_step();
				if (QueryCancelPending || ProcDiePending)
					violate("a session that waits for its client is cancelled");
			}
			return true;
		default:
			return run(T_Invalid, 0, do_part);
	}
}

/* Nobody leads. */
static void
begin_history(int number)
{
	history = number;
	chance = (uint64) (number + 1) * UINT64CONST(0x9E3779B97F4A7C15);
	now_ns = (int64) (1 + choose(1000)) * NSEC_PER_SEC;
	elector_sleeps = false;
	settings_cancel_on_loss = choose(4) > 0;
	memset(&world, 0, sizeof(world));
	pg_start_memory(0);
	shared_state_begin_elector();
	change_layout();
	for (int e = 0; e < NELECTIONS; e++)
		publish(e);
}

static void
run_history(int number)
{
	begin_history(number);
	for (int e = 0; e < NELECTIONS; e++)
	{
		if (choose(4) > 0)
			change_leadership(e);
	}
	start_process();
	for (int n = choose(NCOMMANDS); n > 0; n--)
	{
		memset(&pg_error, 0, sizeof(pg_error));
		terminated = is_still = is_excused = acts = false;
		if (!run_command())
			check_error();
		injects = false;
		looking = -1;
		acts = false;
		if (pg_error.level > ERROR)
			bound.n = 0;		/* the process has ended */
		check_marks();
		if (pg_error.level > ERROR || choose(60) == 0)
		{
			pg_exit();
			bound.n = 0;
			check_marks();
			start_process();
		}
	}
	bound.n = 0;
	pg_exit();
	check_marks();
}

static void
test_random_histories(void **unused)
{
	const char *first = getenv("HISTORY");
	const char *n = getenv("HISTORIES");
	int			from = first ? atoi(first) : 0;

	for (int i = from; i < from + (n ? atoi(n) : first ? 1 : NHISTORIES); i++)
		run_history(i);
}

/* Several processes: the drain waits for all, and a message names the first 20. */
static void
test_many_processes(void **unused)
{
	StringInfoData pids;

	pg_start_memory(0);
	for (int i = 0; i < PG_PROCESSES; i++)
	{
		pg_be(i);
		fenced_advertise(i % 2 == 0 ? 1 : 3);
		weak_barrier();
	}
	assert_int_equal(fenced_slots(), 3);
	initStringInfo(&pids);
	assert_int_equal(fenced_processes(2, &pids), 0);
	assert_string_equal(pids.data, "");
	assert_int_equal(fenced_processes(1, &pids), PG_PROCESSES / 2);
	assert_string_equal(pids.data, "101, 103, 105, 107, 109, 111, 113, 115, 117, 119, 121, 123");
	resetStringInfo(&pids);
	assert_int_equal(fenced_processes(0, &pids), PG_PROCESSES);
	assert_string_equal(pids.data, "100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, "
						"114, 115, 116, 117, 118, 119, ...");
	/* each has a place of its own */
	pg_be(1);
	fenced_advertise(1);
	pg_be(0);
	fenced_advertise(0);
	weak_barrier();
	resetStringInfo(&pids);
	assert_int_equal(fenced_processes(1, &pids), PG_PROCESSES / 2 - 1);
	assert_int_equal(fenced_processes(0, &pids), PG_PROCESSES - 1);
	/* the end of a process is not yet noted at its place */
	GetPGProcByNumber(3)->pid = 0;
	resetStringInfo(&pids);
	assert_int_equal(fenced_processes(1, &pids), PG_PROCESSES / 2 - 2);
	assert_string_equal(pids.data, "105, 107, 109, 111, 113, 115, 117, 119, 121, 123");
	pfree(pids.data);
}

/* The renewal comes late, when the timer has already cancelled the statement. */
static void
do_lapse(const void *unused)
{
	(void) fence_require(0);
	is_still = true;
	now_ns += TTL_NS;
	look_around();
	pg_tick();
	world.elections[0].deadline_ns = now_ns + TTL_NS;
	publish(0);
}

/*
 * The cancellation comes at the very end of a statement, which commits.  It must not reach
 * the wait for a synchronous standby, so the commit is refused.
 */
static void
test_cancellation_meets_commit(void **unused)
{
	for (int n = 0; n < 50; n++)
	{
		begin_history(n);
		settings_cancel_on_loss = true;
		change_leadership(0);
		default_setting = -1;
		set_require_leadership_of(-1);
		pg_be(0);
		pg_start(B_BACKEND);
		is_still = true;
		assert_false(run(T_Invalid, 0, do_lapse));
		assert_int_equal(pg_error.sqlstate, ERRCODE_READ_ONLY_SQL_TRANSACTION);
		/* nor does it reach the next statement */
		assert_true(run(T_Invalid, 0, NULL));
		pg_exit();
	}
}

static int
set_up(void **unused)
{
	static const SharedPart *const parts[] = {&shared_state_part, &shared_elections_part, &fenced_part};

	shared_state_install(parts, lengthof(parts));
	fence_install();
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_processes),
		cmocka_unit_test(test_cancellation_meets_commit),
		cmocka_unit_test(test_random_histories),
	};

	return cmocka_run_group_tests_name("fence", tests, set_up, NULL);
}
