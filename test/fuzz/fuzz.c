/*-------------------------------------------------------------------------
 *
 * fuzz.c
 *	  Code that the fuzzing harnesses share; see fuzz.h.
 *
 * The linker redirects the allocations of the codec to this file (--wrap), and
 * a call of jansson does so for jansson.  LeakSanitizer would report a leak at
 * the end of the run.  The counters show the input that causes it.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "fuzz.h"

#if defined(__SANITIZE_ADDRESS__)	/* gcc */
#define WITH_ADDRESS_SANITIZER
#elif defined(__has_feature)			/* clang, and gcc 14 */
#if __has_feature(address_sanitizer)
#define WITH_ADDRESS_SANITIZER
#endif
#endif
#ifdef WITH_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#define IS_READABLE(data, len)	(__asan_region_is_poisoned((void *) (data), (len)) == NULL)
#else
#define IS_READABLE(data, len)	(true)	/* valgrind checks reads itself */
#endif

size_t		fuzz_max_work = 16 * 1024;

static const uint8_t *input;
static size_t input_left;

static bool watching;
static size_t allocations;
static size_t fail_from;
static size_t live;
static size_t live_bytes;
static size_t peak_bytes;

extern void *__real_calloc(size_t n, size_t size);
extern void *__real_realloc(void *old, size_t size);
extern void __real_free(void *memory);
extern void *__wrap_calloc(size_t n, size_t size);
extern void *__wrap_realloc(void *old, size_t size);
extern void __wrap_free(void *memory);

void
fuzz_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

char *
fuzz_copy(const void *data, size_t len)
{
	char	   *copy = malloc(len > 0 ? len : 1);

	CHECK(copy != NULL);
	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

/* Frees without counting, because the memory is not of the codec. */
void
fuzz_drop(char *copy)
{
	__real_free(copy);
}

/* ---- memory ---------------------------------------------------------- */

static bool
may_allocate(void)
{
	return !watching || ++allocations < fail_from || fail_from == 0;
}

static void *
count(void *memory)
{
	if (watching && memory != NULL)
	{
		live++;
		live_bytes += malloc_usable_size(memory);
		if (live_bytes > peak_bytes)
			peak_bytes = live_bytes;
	}
	return memory;
}

static void
discount(void *memory)
{
	if (watching && memory != NULL)
	{
		CHECK(live > 0);
		live--;
		live_bytes -= malloc_usable_size(memory);
	}
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return may_allocate() ? count(__real_calloc(n, size)) : NULL;
}

void *
__wrap_realloc(void *old, size_t size)
{
	void	   *new;

	if (!may_allocate())
		return NULL;
	discount(old);
	new = __real_realloc(old, size);
	if (new == NULL)
		(void) count(old);
	return count(new);
}

void
__wrap_free(void *memory)
{
	discount(memory);
	__real_free(memory);
}

/*
 * Never fails.  If the buffer of a long string cannot grow, an assertion of
 * jansson 2.14 fails (lex_unget_unsave), which the extension cannot prevent.
 */
static void *
allocate_for_jansson(size_t size)
{
	return count(malloc(size));
}

void
fuzz_watch_memory(size_t fail_at)
{
	json_set_alloc_funcs(allocate_for_jansson, __wrap_free);
	watching = true;
	allocations = 0;
	fail_from = fail_at;
	live = 0;
	live_bytes = 0;
	peak_bytes = 0;
}

size_t
fuzz_allocations(void)
{
	return allocations;
}

void
fuzz_check_memory(size_t max_bytes)
{
	watching = false;
	CHECK(live == 0);
	CHECK(live_bytes == 0);
	CHECK(peak_bytes <= max_bytes);
}

/* ---- inputs that are programs ----------------------------------------- */

void
set_input(const uint8_t *data, size_t size)
{
	input = data;
	input_left = size;
}

bool
has_input(void)
{
	return input_left > 0;
}

uint8_t
take(void)
{
	if (input_left == 0)
		return 0;
	input_left--;
	return *input++;
}

int
choose(int n)
{
	return take() % n;
}

/* ---- checks ---------------------------------------------------------- */

/* FNV-1a */
uint64_t
fuzz_hash(uint64_t hash, const void *data, size_t len)
{
	const unsigned char *s = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ s[i]) * UINT64_C(1099511628211);
	return hash;
}

#define ADD(hash, value)	((hash) = fuzz_hash((hash), &(value), sizeof(value)))

/*
 * The number of bytes of the UTF-8 character at s, which ends with a NUL; 0
 * if there is none.  Written from RFC 3629, not from the codec.
 */
static size_t
character_size(const unsigned char *s)
{
	uint32_t	c;
	size_t		n;

	if (s[0] < 0x80)
		return 1;
	n = (s[0] & 0xE0) == 0xC0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : (s[0] & 0xF8) == 0xF0 ? 4 : 0;
	if (n == 0)
		return 0;
	c = s[0] & (0x7F >> n);
	for (size_t i = 1; i < n; i++)
	{
		if ((s[i] & 0xC0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3F);
	}
	if (c < (n == 2 ? 0x80u : n == 3 ? 0x800u : 0x10000u) || c > 0x10FFFF ||
		(c >= 0xD800 && c <= 0xDFFF))
		return 0;
	return n;
}

void
fuzz_check_message(const char *message)
{
	const unsigned char *s = (const unsigned char *) message;
	size_t		len = strnlen(message, ETCD_MESSAGE_SIZE);

	CHECK(len < ETCD_MESSAGE_SIZE);
	for (size_t i = 0; i < len;)
	{
		size_t		n = character_size(s + i);

		CHECK(n > 0 && i + n <= len);
		CHECK(s[i] >= 0x20 && s[i] != 0x7F);
		CHECK(!(n == 2 && s[i] == 0xC2 && s[i + 1] < 0xA0));
		i += n;
	}
	CHECK(len == 0 || message[len - 1] != ' ');
}

static uint64_t
check_bytes(uint64_t hash, const EtcdBytes *bytes)
{
	ADD(hash, bytes->len);
	/* this holds for absent bytes, too */
	CHECK(bytes->data != NULL);
	CHECK(IS_READABLE(bytes->data, bytes->len + 1));
	CHECK(bytes->data[bytes->len] == '\0');
	return fuzz_hash(hash, bytes->data, bytes->len);
}

static uint64_t
check_kv(uint64_t hash, const EtcdKeyValue *kv)
{
	hash = check_bytes(hash, &kv->key);
	hash = check_bytes(hash, &kv->value);
	ADD(hash, kv->create_revision);
	ADD(hash, kv->mod_revision);
	ADD(hash, kv->version);
	ADD(hash, kv->lease);
	return hash;
}

static uint64_t
check_header(uint64_t hash, const EtcdHeader *header)
{
	ADD(hash, header->cluster_id);
	ADD(hash, header->member_id);
	ADD(hash, header->revision);
	ADD(hash, header->raft_term);
	return hash;
}

uint64_t
fuzz_check_answer(const EtcdAnswer *answer)
{
	uint64_t	hash = FUZZ_HASH_START;

	CHECK(answer->outcome == ETCD_ANSWERED || answer->outcome == ETCD_REFUSED ||
		  answer->outcome == ETCD_GARBAGE);
	fuzz_check_message(answer->message);
	ADD(hash, answer->outcome);
	ADD(hash, answer->code);
	hash = fuzz_hash(hash, answer->message, strlen(answer->message));
	if (answer->outcome != ETCD_ANSWERED)
	{
		CHECK(answer->message[0] != '\0');
		CHECK(answer->results == NULL && answer->nresults == 0 && answer->memory == NULL);
		CHECK(answer->outcome == ETCD_GARBAGE ? answer->code == 0 : answer->code > 0);
		return hash;
	}
	CHECK(answer->code == 0);
	hash = check_header(hash, &answer->header);
	ADD(hash, answer->lease);
	ADD(hash, answer->ttl_s);
	ADD(hash, answer->granted_ttl_s);
	ADD(hash, answer->succeeded);
	ADD(hash, answer->nresults);
	CHECK(answer->nresults >= 0 && (answer->nresults > 0) == (answer->results != NULL));
	CHECK(answer->nresults == 0 || answer->memory != NULL);
	for (int i = 0; i < answer->nresults; i++)
	{
		const EtcdResult *result = &answer->results[i];

		CHECK(result->kind == ETCD_OP_RANGE || result->kind == ETCD_OP_PUT ||
			  result->kind == ETCD_OP_DELETE || result->kind == ETCD_OP_EMPTY_TXN);
		CHECK(result->nkvs >= 0 && (result->nkvs > 0) == (result->kvs != NULL));
		CHECK(result->kind == ETCD_OP_RANGE || result->nkvs == 0);
		CHECK(result->kind == ETCD_OP_DELETE || result->deleted == 0);
		ADD(hash, result->kind);
		ADD(hash, result->deleted);
		ADD(hash, result->nkvs);
		for (int j = 0; j < result->nkvs; j++)
			hash = check_kv(hash, &result->kvs[j]);
	}
	if (answer->token != NULL)
		hash = fuzz_hash(hash, answer->token, strlen(answer->token));
	if (answer->version != NULL)
		hash = fuzz_hash(hash, answer->version, strlen(answer->version));
	ADD(hash, answer->nmembers);
	CHECK(answer->nmembers >= 0 && (answer->nmembers > 0) == (answer->members != NULL));
	for (int i = 0; i < answer->nmembers; i++)
	{
		const EtcdMember *member = &answer->members[i];

		CHECK(member->nclient_urls >= 0 && (member->nclient_urls > 0) == (member->client_urls != NULL));
		ADD(hash, member->is_learner);
		for (int j = 0; j < member->nclient_urls; j++)
			hash = fuzz_hash(hash, member->client_urls[j], strlen(member->client_urls[j]));
	}
	return hash;
}

uint64_t
fuzz_check_frame(const EtcdWatchFrame *frame)
{
	uint64_t	hash = FUZZ_HASH_START;

	CHECK(frame->outcome == ETCD_ANSWERED || frame->outcome == ETCD_REFUSED ||
		  frame->outcome == ETCD_GARBAGE);
	fuzz_check_message(frame->message);
	ADD(hash, frame->outcome);
	ADD(hash, frame->code);
	hash = fuzz_hash(hash, frame->message, strlen(frame->message));
	if (frame->outcome != ETCD_ANSWERED)
	{
		CHECK(frame->message[0] != '\0');
		CHECK(frame->events == NULL && frame->nevents == 0 && frame->memory == NULL);
		CHECK(frame->outcome == ETCD_GARBAGE ? frame->code == 0 : frame->code > 0);
		return hash;
	}
	CHECK(frame->code == 0);
	hash = check_header(hash, &frame->header);
	ADD(hash, frame->watch_id);
	ADD(hash, frame->created);
	ADD(hash, frame->canceled);
	ADD(hash, frame->lost_token);
	ADD(hash, frame->fragment);
	ADD(hash, frame->compact_revision);
	ADD(hash, frame->nevents);
	CHECK(frame->nevents >= 0 && (frame->nevents > 0) == (frame->events != NULL));
	CHECK(frame->nevents == 0 || frame->memory != NULL);
	for (int i = 0; i < frame->nevents; i++)
	{
		ADD(hash, frame->events[i].is_delete);
		hash = check_kv(hash, &frame->events[i].kv);
	}
	return hash;
}

/* ---- encoding -------------------------------------------------------- */

/* Written from RFC 4648, because the encoder uses PostgreSQL's code. */
char *
fuzz_base64(EtcdBytes bytes)
{
	static const char digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char	   *text = malloc(bytes.len / 3 * 4 + 5);
	char	   *end = text;

	CHECK(text != NULL);
	for (size_t i = 0; i < bytes.len; i += 3)
	{
		uint32_t	group = 0;

		for (size_t j = 0; j < 3; j++)
			group = group << 8 | (i + j < bytes.len ? (unsigned char) bytes.data[i + j] : 0);
		*end++ = digits[group >> 18];
		*end++ = digits[group >> 12 & 63];
		*end++ = i + 1 < bytes.len ? digits[group >> 6 & 63] : '=';
		*end++ = i + 2 < bytes.len ? digits[group & 63] : '=';
	}
	*end = '\0';
	return text;
}

static void print(char **text, const char *format,...) __attribute__((format(printf, 2, 3)));

/* Formats a string; fuzz_drop() frees it. */
static void
print(char **text, const char *format,...)
{
	va_list		args;
	int			n;

	va_start(args, format);
	n = vasprintf(text, format, args);
	va_end(args);
	CHECK(n >= 0);
}

/* Without memory the encoder returns NULL and leaks nothing.  JSON is that text. */
static void
check_request(EtcdDialect dialect, const EtcdRequest *request, const char *expected)
{
	size_t		fail_at = 0;
	size_t		len;
	char	   *text;

	do
	{
		fuzz_watch_memory(fail_at);
		text = etcd_encode_request(dialect, request, &len);
		CHECK((text == NULL) == (fail_at > 0));
		CHECK(text == NULL || dialect == ETCD_GRPC || (len == strlen(expected) && memcmp(text, expected, len + 1) == 0));
		if (fail_at == 0)
			fail_at = fuzz_allocations() + 1;
		free(text);
		fuzz_check_memory(SIZE_MAX);
	} while (--fail_at > 0);
}

void
fuzz_check_encoding(const EtcdKeyValue *kv)
{
	EtcdCompare compare = {kv->key, ETCD_COMPARE_CREATE_REVISION, kv->create_revision};
	EtcdOp		put = {.kind = ETCD_OP_PUT, .key = kv->key, .value = kv->value, .lease = kv->lease};
	EtcdOp		range = {.kind = ETCD_OP_RANGE, .key = kv->key, .range_end = kv->value};
	EtcdRequest request = {
		.kind = ETCD_TXN,
		.compares = &compare, .ncompares = 1,
		.success = &put, .nsuccess = 1,
		.failure = &range, .nfailure = 1,
	};
	EtcdWatch	watch = {.watch_id = 1,.key = kv->key,.range_end = kv->value,.start_revision = kv->mod_revision};
	EtcdAnswer	answer;
	const EtcdKeyValue *again;
	char	   *key;
	char	   *value;
	char	   *put_value;
	char	   *range_end;
	char		lease[64] = "";
	char		start[64] = "";
	char	   *expected;
	char	   *text;
	size_t		len;

	/* no request names it */
	if (kv->key.len == 0)
		return;
	key = fuzz_base64(kv->key);
	value = fuzz_base64(kv->value);

	/* empty and zero members are left out */
	print(&put_value, kv->value.len > 0 ? ",\"value\":\"%s\"" : "%s", value);
	print(&range_end, kv->value.len > 0 ? ",\"range_end\":\"%s\"" : "%s", value);
	if (kv->lease != 0)
		snprintf(lease, sizeof(lease), ",\"lease\":\"%" PRId64 "\"", kv->lease);
	if (kv->mod_revision != 0)
		snprintf(start, sizeof(start), ",\"start_revision\":\"%" PRId64 "\"", kv->mod_revision);

	print(&expected,
		  "{\"compare\":[{\"key\":\"%s\",\"result\":\"EQUAL\",\"target\":\"CREATE\","
		  "\"create_revision\":\"%" PRId64 "\"}],"
		  "\"success\":[{\"request_put\":{\"key\":\"%s\"%s%s}}],"
		  "\"failure\":[{\"request_range\":{\"key\":\"%s\"%s}}]}",
		  key, kv->create_revision, key, put_value, lease, key, range_end);
	check_request(ETCD_JSON, &request, expected);
	check_request(ETCD_GRPC, &request, NULL);
	fuzz_drop(expected);

	print(&expected,
		  "{\"create_request\":{\"key\":\"%s\"%s,\"watch_id\":\"1\"%s}}",
		  key, range_end, start);
	text = etcd_encode_watches(&watch, 1, &len);
	CHECK(text != NULL && len == strlen(expected) && strcmp(text, expected) == 0);
	free(text);
	fuzz_drop(expected);

	print(&expected,
		  "{\"header\":{\"revision\":\"1\"},\"responses\":[{\"response_range\":{\"kvs\":["
		  "{\"key\":\"%s\",\"value\":\"%s\",\"create_revision\":\"%" PRId64 "\","
		  "\"mod_revision\":\"%" PRId64 "\"%s}]}}]}",
		  key, value, kv->create_revision, kv->mod_revision, lease);
	etcd_decode_answer(ETCD_TXN, 200, expected, strlen(expected), &answer);
	CHECK(answer.outcome == ETCD_ANSWERED && answer.nresults == 1 && answer.results[0].nkvs == 1);
	again = &answer.results[0].kvs[0];
	CHECK(again->key.len == kv->key.len && memcmp(again->key.data, kv->key.data, kv->key.len) == 0);
	CHECK(again->value.len == kv->value.len &&
		  (kv->value.len == 0 || memcmp(again->value.data, kv->value.data, kv->value.len) == 0));
	CHECK(again->create_revision == kv->create_revision);
	CHECK(again->mod_revision == kv->mod_revision);
	CHECK(again->lease == kv->lease);
	etcd_free_answer(&answer);
	fuzz_drop(expected);

	fuzz_drop(put_value);
	fuzz_drop(range_end);
	fuzz_drop(value);
	fuzz_drop(key);
}
