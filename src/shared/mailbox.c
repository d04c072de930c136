/*-------------------------------------------------------------------------
 *
 * mailbox.c
 *	  How backends ask the elector.
 *
 * The state of a place changes by compare-and-exchange alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"

#include "base/clock.h"
#include "base/compat.h"
#include "mailbox.h"
#include "shared/state.h"

/*
 * COMMAND_VERIFY and COMMAND_TRANSFER must not use the first places.  The
 * elector may keep such requests for long.  They must not block a resignation.
 */
#define MAILBOX_RESERVED 4

/*
 * The states of a place in the mailbox, and which process may change it to
 * which state:
 *
 *	 FREE		anybody: CLAIMED
 *	 CLAIMED	its backend: WAITING, FREE
 *	 WAITING	the elector: TAKEN; its backend, giving up: FREE
 *	 TAKEN		the elector: DONE, WAITING; its backend, giving up: ABANDONED
 *	 DONE		its backend: FREE
 *	 ABANDONED	the elector: FREE
 *
 * The request is written in CLAIMED, the reply in TAKEN or ABANDONED.
 */
typedef enum PlaceState
{
	PLACE_FREE = 0,				/* as all begin */
	PLACE_CLAIMED,
	PLACE_WAITING,
	PLACE_TAKEN,
	PLACE_DONE,
	PLACE_ABANDONED
} PlaceState;

typedef struct MailboxPlace
{
	pg_atomic_uint32 state;
	ConditionVariable replied;
	SharedRequest request;
	SharedReply reply;
} MailboxPlace;

typedef struct Mailbox
{
	ConditionVariable place_freed;	/* for backends that wait for a free place */
	MailboxPlace places[MAILBOX_SIZE];
} Mailbox;

static Mailbox *mailbox = NULL;
char	   *mailbox_page = NULL;

static void
init_mailbox(void)
{
	ConditionVariableInit(&mailbox->place_freed);
	for (int i = 0; i < MAILBOX_SIZE; i++)
		ConditionVariableInit(&mailbox->places[i].replied);
}

const SharedPart mailbox_page_part = {
	.name = "etcd_leader mailbox page", .size = SHARED_PAGE_SIZE, .memory = (void **) &mailbox_page,
	.is_large = true
};

/*
 * Changes the state of a place.  There is no other way to change it.  False if
 * the place was not in state `from`.
 *
 * What was written before is visible before the new state, and what is read
 * afterwards is not older.  Do not rely on more: atomics.h calls this a full
 * barrier, but on ARMv8.0 a load that follows it may be done before others see
 * the new state.
 */
static bool
move_place(MailboxPlace *place, PlaceState from, PlaceState to)
{
	uint32		expected = from;

	return pg_atomic_compare_exchange_u32(&place->state, &expected, to);
}

/* The reply is in the place, which the elector has taken. */
static void
finish_place(MailboxPlace *place)
{
	if (move_place(place, PLACE_TAKEN, PLACE_DONE))
		ConditionVariableBroadcast(&place->replied);
	else if (move_place(place, PLACE_ABANDONED, PLACE_FREE))
		ConditionVariableBroadcast(&mailbox->place_freed);
}

/* There is no elector any more: fails all requests. */
static void
fail_all(void)
{
	for (int i = 0; i < MAILBOX_SIZE; i++)
	{
		MailboxPlace *place = &mailbox->places[i];
		uint32		found;

		(void) move_place(place, PLACE_WAITING, PLACE_TAKEN);
		found = pg_atomic_read_u32(&place->state);
		if (found == PLACE_TAKEN || found == PLACE_ABANDONED)
		{
			place->reply.kind = REPLY_NO_ELECTOR;
			finish_place(place);
		}
	}
	ConditionVariableBroadcast(&mailbox->place_freed);
}

const SharedPart mailbox_part = {
	.name = "etcd_leader mailbox", .size = sizeof(Mailbox), .memory = (void **) &mailbox,
	.init = init_mailbox,
	.elector_begins = fail_all,
	.elector_ends = fail_all
};

/*
 * Claims a free place for that command, waiting for one if need be.  NULL:
 * there is no elector, or the time is over.
 */
static pg_noinline MailboxPlace *
claim_place(SharedCommand command, int64 until_us, uint32 wait_event)
{
	int			first = command == COMMAND_GET ? MAILBOX_PAGE_PLACE :
		command == COMMAND_VERIFY || command == COMMAND_TRANSFER || command == COMMAND_CHECK ?
		MAILBOX_RESERVED : 0;
	int			end = command == COMMAND_GET ? MAILBOX_SIZE : MAILBOX_PAGE_PLACE;
	MailboxPlace *claimed = NULL;
	long		left_ms;

	while (shared_state_has_elector())
	{
		for (int i = first; i < end && claimed == NULL; i++)
		{
			if (move_place(&mailbox->places[i], PLACE_FREE, PLACE_CLAIMED))
				claimed = &mailbox->places[i];
		}
		if (claimed != NULL || (left_ms = clock_remaining_ms(until_us)) == 0)
			break;
		(void) ConditionVariableTimedSleep(&mailbox->place_freed, left_ms, wait_event);
	}
	ConditionVariableCancelSleep();
	return claimed;
}

/*
 * Gives up a place, whatever the state of the request.  It has the form of an
 * exit callback.
 */
static void
leave_place(int code, Datum place_pointer)
{
	MailboxPlace *place = (MailboxPlace *) DatumGetPointer(place_pointer);

	/* the elector may be faster than any one of these */
	while (!move_place(place, PLACE_CLAIMED, PLACE_FREE) &&
		   !move_place(place, PLACE_WAITING, PLACE_FREE) &&
		   !move_place(place, PLACE_DONE, PLACE_FREE))
	{
		/* then the elector frees it */
		if (move_place(place, PLACE_TAKEN, PLACE_ABANDONED))
			return;
	}
	ConditionVariableBroadcast(&mailbox->place_freed);
}

bool
mailbox_ask_page(const SharedRequest *request, int64 until_us, SharedReply *reply, char *page,
				 Size len)
{
	static uint32 wait_event = 0;
	MailboxPlace *place;
	volatile bool done = true;

	if (wait_event == 0)
		wait_event = compat_wait_event("EtcdLeaderRequest");

	place = claim_place(request->command, until_us, wait_event);
	if (place == NULL)
	{
		memset(reply, 0, sizeof(SharedReply));
		reply->kind = REPLY_NO_ELECTOR;
		return !shared_state_has_elector();
	}

	PG_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(place));
	{
		place->request = *request;
		if (len > 0)
			memcpy(mailbox_page, page, len);
		(void) move_place(place, PLACE_CLAIMED, PLACE_WAITING);
		/* before the look at the elector, see shared_state_end_elector() */
		pg_memory_barrier();	/* handshake.pml: REQUEST_WAITS */
		shared_state_wake_elector();

		ConditionVariablePrepareToSleep(&place->replied);
		while (pg_atomic_read_u32(&place->state) != PLACE_DONE)
		{
			long		left_ms;

			/* it may have ended before it could see the request */
			if (!shared_state_has_elector() &&
				move_place(place, PLACE_WAITING, PLACE_CLAIMED))
			{
				place->reply.kind = REPLY_NO_ELECTOR;
				break;
			}
			left_ms = clock_remaining_ms(until_us);
			if (left_ms == 0)
			{
				done = false;
				break;
			}
			(void) ConditionVariableTimedSleep(&place->replied, left_ms, wait_event);
		}
		ConditionVariableCancelSleep();
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(place));

	pg_read_barrier();			/* handshake.pml: REPLY_READ */
	if (done)
		*reply = place->reply;
	if (done && page != NULL && reply->kind == REPLY_PAGE)
		memcpy(page, mailbox_page, reply->page_len);
	leave_place(0, PointerGetDatum(place));
	return done;
}

bool
mailbox_take(int place_number, SharedRequest *request)
{
	MailboxPlace *place = &mailbox->places[place_number];

	if (!move_place(place, PLACE_WAITING, PLACE_TAKEN))
		return false;
	*request = place->request;
	return true;
}

bool
mailbox_is_taken(int place_number)
{
	uint32		found = pg_atomic_read_u32(&mailbox->places[place_number].state);

	return found == PLACE_TAKEN || found == PLACE_ABANDONED;
}

bool
mailbox_is_abandoned(int place_number)
{
	return pg_atomic_read_u32(&mailbox->places[place_number].state) == PLACE_ABANDONED;
}

void
mailbox_put_back(int place_number)
{
	MailboxPlace *place = &mailbox->places[place_number];

	/* unless the backend has given it up */
	if (!move_place(place, PLACE_TAKEN, PLACE_WAITING))
		finish_place(place);
}

void
mailbox_reply(int place_number, const SharedReply *reply)
{
	MailboxPlace *place = &mailbox->places[place_number];

	/* shared_state_end_elector() has replied to everything */
	if (!mailbox_is_taken(place_number))
		return;
	place->reply = *reply;
	finish_place(place);
}

void
mailbox_reply_failure(int place, SharedReplyKind kind, const char *error)
{
	SharedReply *reply = palloc0(sizeof(SharedReply));

	reply->kind = kind;
	strlcpy(reply->error, error, sizeof(reply->error));
	mailbox_reply(place, reply);
	pfree(reply);
}
