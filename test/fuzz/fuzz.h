/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *	  What the fuzzing harnesses share: memory that is counted and can run
 *	  out, inputs that are programs, and checks of what etcd_api.c hands out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "etcd_api.h"

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

/* The transport gives up on an answer, or a frame, that is larger. */
#define MAX_ANSWER_SIZE		(1024 * 1024)

/*
 * What decoding may use at its peak, by the length of what is decoded: an
 * empty object, 3 bytes with its comma, costs jansson about 200.  At the
 * transport's cap this is 128 MiB.
 */
#define MAX_MEMORY(len)		(128 * (len) + 8192)

/* Ends the run like an assertion, and says which of them it was. */
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			fuzz_fail(#condition, __FILE__, __LINE__); \
	} while (0)

extern void fuzz_fail(const char *what, const char *file, int line) __attribute__((noreturn));

/*
 * To cut an input of n bytes at every byte takes n * n / 2 bytes of decoding.
 * Where that is more than this, it is cut at fewer places: fuzzing needs
 * speed, a check of the corpus does not.
 */
extern size_t fuzz_max_work;

/* A copy that has nothing behind it, so that every read beyond it is seen. */
extern char *fuzz_copy(const void *data, size_t len);
extern void fuzz_drop(char *copy);

/* ---- memory ---------------------------------------------------------- */

/*
 * From here on what etcd_api.c and jansson allocate is counted.  Of those of
 * etcd_api.c itself the one with that number (from 1) fails, with all that
 * follow; 0: none does.
 */
extern void fuzz_watch_memory(size_t fail_at);

/* The number of allocations of etcd_api.c since. */
extern size_t fuzz_allocations(void);

/* Nothing is left of what was allocated since, which was at most that. */
extern void fuzz_check_memory(size_t max_bytes);

/* ---- inputs that are programs ----------------------------------------- */

/*
 * The harness reads the input byte by byte.  After the end every byte is 0.
 * choose() returns a number from 0 to n - 1, by one byte.
 */
extern void set_input(const uint8_t *data, size_t size);
extern bool has_input(void);
extern uint8_t take(void);
extern int	choose(int n);

/* ---- checks ---------------------------------------------------------- */

/* Follows every pointer; the result is the same for equal contents. */
extern uint64_t fuzz_check_answer(const EtcdAnswer *answer);
extern uint64_t fuzz_check_frame(const EtcdWatchFrame *frame);

/* Is it fit to be shown: UTF-8 on one line, with an end? */
extern void fuzz_check_message(const char *message);

/*
 * What was read of a key can be told to etcd: it is the same in a request and
 * in a watch, and when etcd tells it again.
 */
extern void fuzz_check_encoding(const EtcdKeyValue *kv);

extern uint64_t fuzz_hash(uint64_t hash, const void *data, size_t len);

#define FUZZ_HASH_START		UINT64_C(14695981039346656037)

#endif							/* FUZZ_H */
