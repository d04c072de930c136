/*-------------------------------------------------------------------------
 *
 * answer_fuzzer.c
 *	  Fuzzes etcd_decode_answer() with any answer to a request.
 *
 * Input: a byte for the kind of the request ('0' to '6' are those
 * of EtcdRequestKind), a byte for the HTTP status ('0' and on are
 * those of the list below), and the body.
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <string.h>

#include "fuzz.h"

static const long statuses[] = {
	200, 404, 400, 503, 500, 401, 403, 412, 0, 302, 204, -1, LONG_MAX, LONG_MIN
};

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Decodes with memory that runs out at that allocation (0: never), and checks
 * the result.
 */
static uint64_t
decode(EtcdRequestKind kind, long status, const uint8_t *data, size_t size,
	   size_t fail_at, EtcdOutcome *outcome, size_t *allocations)
{
	char	   *body = fuzz_copy(data, size);
	EtcdAnswer	answer;
	uint64_t	hash;

	memset(&answer, 0x5A, sizeof(answer));
	fuzz_watch_memory(fail_at);
	etcd_decode_answer(kind, status, body, size, &answer);
	*allocations = fuzz_allocations();

	CHECK(answer.outcome == ETCD_GARBAGE || memchr(body, '\0', size) == NULL);

	/* the answer must not point into the body */
	fuzz_drop(body);
	hash = fuzz_check_answer(&answer);
	*outcome = answer.outcome;
	if (answer.outcome == ETCD_ANSWERED)
	{
		CHECK(status >= 200 && status <= 299);
		CHECK(kind != ETCD_TXN || answer.header.revision > 0);
		CHECK(kind == ETCD_TXN || answer.nresults == 0);
		CHECK((kind == ETCD_AUTHENTICATE) == (answer.token != NULL));
		CHECK(kind == ETCD_LIST_MEMBERS || answer.nmembers == 0);
		CHECK(kind == ETCD_TIME_TO_LIVE || answer.granted_ttl_s == 0);
		CHECK((kind == ETCD_STATUS) == (answer.version != NULL));
		CHECK(kind != ETCD_TIME_TO_LIVE || answer.ttl_s < 0 || answer.granted_ttl_s > 0);
		CHECK(!etcd_blames_endpoint(answer.outcome, answer.code, answer.message));
	}
	else
	{
		bool		blames = etcd_blames_endpoint(answer.outcome, answer.code, answer.message);

		/* these refusals concern the client's own lease, so they do not blame the endpoint */
		CHECK(answer.outcome != ETCD_GARBAGE || blames);
		CHECK(!(etcd_says_lease_not_found(&answer) && blames));
		CHECK(!(etcd_says_lease_exists(&answer) && blames));
	}
	etcd_free_answer(&answer);
	CHECK(answer.memory == NULL && answer.results == NULL && answer.nresults == 0);
	/* a second call does no harm */
	etcd_free_answer(&answer);
	fuzz_check_memory(MAX_MEMORY(size));
	return hash;
}

/*
 * An answer without its last brace is not taken for an answer, and no truncated
 * one is taken for another.
 */
static void
check_cuts(EtcdRequestKind kind, long status, const uint8_t *data, size_t size, uint64_t whole)
{
	size_t		end = size;
	size_t		step = 1 + size * size / (2 * fuzz_max_work);

	while (end > 0 && data[end - 1] != '}')
		end--;
	for (size_t cut = whole % step; cut < size; cut += step)
	{
		EtcdOutcome outcome;
		size_t		ignored;
		uint64_t	hash = decode(kind, status, data, cut, 0, &outcome, &ignored);

		CHECK(cut < end ? outcome == ETCD_GARBAGE : hash == whole);
	}
}

/* Checks the first keys of an answer.  The others are like them. */
static void
check_encoding(EtcdRequestKind kind, long status, const uint8_t *data, size_t size)
{
	EtcdAnswer	answer;

	etcd_decode_answer(kind, status, (const char *) data, size, &answer);
	for (int i = 0; i < answer.nresults && i < 4; i++)
	{
		if (answer.results[i].nkvs > 0)
			fuzz_check_encoding(&answer.results[i].kvs[0]);
	}
	etcd_free_answer(&answer);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	EtcdRequestKind kind;
	long		status;
	EtcdOutcome outcome;
	EtcdOutcome without_memory;
	size_t		allocations;
	size_t		ignored;
	uint64_t	hash;

	if (size < 2 || size - 2 > MAX_ANSWER_SIZE)
		return -1;
	kind = (EtcdRequestKind) ((data[0] & 7) % ETCD_NREQUEST_KINDS);
	status = statuses[(data[1] + lengthof(statuses) - '0' % lengthof(statuses)) % lengthof(statuses)];
	data += 2;
	size -= 2;

	hash = decode(kind, status, data, size, 0, &outcome, &allocations);
	CHECK(decode(kind, status, data, size, 0, &outcome, &ignored) == hash);

	if (outcome != ETCD_GARBAGE)
		check_cuts(kind, status, data, size, hash);
	if (outcome == ETCD_ANSWERED && kind == ETCD_TXN)
		check_encoding(kind, status, data, size);

	/* Without memory the result is the same, or garbage. */
	if (allocations > 0 &&
		decode(kind, status, data, size, 1 + hash % allocations, &without_memory, &ignored) != hash)
		CHECK(without_memory == ETCD_GARBAGE);
	return 0;
}
