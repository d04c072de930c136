/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *	  Code that the fuzzing harnesses share: memory that is counted and can
 *	  run out, inputs that are programs, and checks of the results of
 *	  the codec.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "etcd/api.h"

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

/* The transport refuses a larger answer or frame. */
#define MAX_ANSWER_SIZE		(1024 * 1024)

/*
 * The most memory that decoding may use, by the length of its input.  jansson
 * needs about 200 bytes for an empty object, which is 3 bytes with its comma.  At
 * the transport's limit this is 128 MiB.
 */
#define MAX_MEMORY(len)		(128 * (len) + 8192)

/* Ends the run like an assertion, and prints the condition. */
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			fuzz_fail(#condition, __FILE__, __LINE__); \
	} while (0)

extern void fuzz_fail(const char *what, const char *file, int line) __attribute__((noreturn));

/*
 * To decode an input of n bytes truncated at every byte takes n * n / 2 bytes of
 * decoding.  If that exceeds this limit, it is truncated at fewer places.  Fuzzing
 * needs speed; a check of the corpus does not.
 */
extern size_t fuzz_max_work;

/* Copies to a buffer of exactly that length, so that every read beyond it is detected. */
extern char *fuzz_copy(const void *data, size_t len);
extern void fuzz_drop(char *copy);

/* ---- memory ---------------------------------------------------------- */

/*
 * Begins to count the allocations of the codec and jansson.  The allocation of
 * the codec with that number (from 1) fails, and so do all later ones; 0: none.
 */
extern void fuzz_watch_memory(size_t fail_at);

/* The number of allocations of the codec since then. */
extern size_t fuzz_allocations(void);

/* Checks that all memory since then was freed, and that it was at most that. */
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

/* Follows every pointer.  Returns a hash of the contents. */
extern uint64_t fuzz_check_answer(const EtcdAnswer *answer);
extern uint64_t fuzz_check_frame(const EtcdWatchFrame *frame);

/* Checks a message that is shown: UTF-8 on one line, NUL-terminated. */
extern void fuzz_check_message(const char *message);

/*
 * Checks that a decoded key can be encoded again, in a request and in a watch, and
 * that etcd's answer with it is decoded to the same key.
 */
extern void fuzz_check_encoding(const EtcdKeyValue *kv);

/* Encodes as base64; fuzz_drop() frees the result. */
extern char *fuzz_base64(EtcdBytes bytes);

extern uint64_t fuzz_hash(uint64_t hash, const void *data, size_t len);

#define FUZZ_HASH_START		UINT64_C(14695981039346656037)

#endif							/* FUZZ_H */
