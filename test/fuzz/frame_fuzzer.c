/*-------------------------------------------------------------------------
 *
 * frame_fuzzer.c
 *	  Fuzzes etcd_decode_frame() with a stream that arrives in pieces.
 *
 * Input: a byte with the number of sizes (its lowest 3 bits, so '0' to '7'),
 * that many bytes with the sizes of the pieces, taken in turn, and the stream.
 * Without sizes it arrives byte by byte.  The frames must be the same as if all
 * had arrived at once.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "fuzz.h"

/* The result of a stream. */
typedef struct Told
{
	uint64_t	hash;			/* hash of all frames, in order */
	int			nframes;
	bool		ended;			/* there were bytes that cannot become a frame */
	char		message[ETCD_MESSAGE_SIZE]; /* if ended, the reason */
	size_t		left;			/* bytes that are no complete frame yet */
} Told;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes one frame, in a buffer of exactly its length. */
static ssize_t
decode(const uint8_t *data, size_t size, size_t fail_at, uint64_t *hash,
	   char *message, size_t *allocations)
{
	char	   *buf = fuzz_copy(data, size);
	EtcdWatchFrame frame;
	ssize_t		taken;

	memset(&frame, 0x5A, sizeof(frame));
	fuzz_watch_memory(fail_at);
	taken = etcd_decode_frame(buf, size, &frame);
	*allocations = fuzz_allocations();
	fuzz_drop(buf);

	CHECK(taken >= -1 && taken <= (ssize_t) size);
	if (taken > 0)
	{
		*hash = fuzz_check_frame(&frame);
		CHECK(frame.outcome != ETCD_GARBAGE);
		etcd_free_frame(&frame);
		CHECK(frame.memory == NULL && frame.events == NULL && frame.nevents == 0);
	}
	else if (taken < 0)
	{
		CHECK(frame.outcome == ETCD_GARBAGE);
		(void) fuzz_check_frame(&frame);
		memcpy(message, frame.message, ETCD_MESSAGE_SIZE);
	}
	fuzz_check_memory(MAX_MEMORY(size));
	return taken;
}

/* Takes all complete frames from the front of a buffer, as the transport does. */
static size_t
take_frames(const uint8_t *data, size_t size, Told *told)
{
	size_t		taken = 0;

	while (!told->ended)
	{
		size_t		ignored;
		uint64_t	hash = 0;
		ssize_t		n = decode(data + taken, size - taken, 0, &hash, told->message, &ignored);

		if (n == 0)
			break;
		if (n < 0)
			told->ended = true;
		else
		{
			taken += n;
			told->nframes++;
			told->hash = fuzz_hash(told->hash, &hash, sizeof(hash));
		}
	}
	return taken;
}

/* White space belongs to no frame.  It may be taken with a frame, or be left. */
static size_t
without_space(const uint8_t *data, size_t size)
{
	size_t		n = 0;

	while (n < size && memchr(" \t\n\r", data[n], 4) != NULL)
		n++;
	return size - n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *sizes;
	size_t		nsizes;
	size_t		least;
	size_t		turn = 0;
	size_t		start = 0;
	size_t		arrived = 0;
	Told		whole = {.hash = FUZZ_HASH_START};
	Told		pieces = {.hash = FUZZ_HASH_START};
	uint64_t	hash = 0;
	uint64_t	hash_without = 0;
	size_t		allocations;
	size_t		ignored;
	char		message[ETCD_MESSAGE_SIZE];
	ssize_t		taken;

	if (size < 1 || size > MAX_ANSWER_SIZE)
		return -1;
	nsizes = data[0] & 7;
	if (size < 1 + nsizes)
		return -1;
	sizes = data + 1;
	data += 1 + nsizes;
	size -= 1 + nsizes;
	/* each piece causes a decoding of all bytes that have arrived */
	least = size * size / (2 * fuzz_max_work);

	start = take_frames(data, size, &whole);
	whole.left = without_space(data + start, size - start);

	start = 0;
	while (arrived < size && !pieces.ended)
	{
		size_t		n = 1;

		if (nsizes > 0)
			n += sizes[turn++ % nsizes];
		if (n < least)
			n = least;
		arrived += n < size - arrived ? n : size - arrived;
		start += take_frames(data + start, arrived - start, &pieces);
	}
	pieces.left = without_space(data + start, size - start);

	CHECK(pieces.nframes == whole.nframes);
	CHECK(pieces.hash == whole.hash);
	CHECK(pieces.ended == whole.ended);
	CHECK(pieces.left == whole.left);

	/* A message with an excerpt may differ, because less had arrived; others do not. */
	if (whole.ended && strncmp(whole.message, "not a JSON answer", 17) != 0)
		CHECK(strcmp(whole.message, pieces.message) == 0);

	/* Without memory there is no frame, or the same frame. */
	taken = decode(data, size, 0, &hash, message, &allocations);
	if (allocations > 0 && taken > 0 &&
		decode(data, size, 1 + hash % allocations, &hash_without, message, &ignored) > 0)
		CHECK(hash_without == hash);
	return 0;
}
