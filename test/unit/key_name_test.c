/*-------------------------------------------------------------------------
 *
 * key_name_test.c
 *	  Tests of src/protocol/key_name.c: what the name of a key tells of its owner.
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/key_name.h"

/* Who the owner of a key of election "e" is; only len bytes are the key. */
static KeyOwner
owner_of(const char *key, size_t len)
{
	Election	e = {.prefix = "e/"};

	return key_name_parse(&e, (EtcdBytes) {.data = key,.len = len});
}

static void
assert_foreign(const char *key, size_t len)
{
	if (owner_of(key, len).is_ours)
		fail_msg("\"%.*s\" is taken for a key of ours", (int) len, key);
}

static void
assert_ours(const char *key, const char *system_identifier, uint32_t timeline)
{
	KeyOwner	owner = owner_of(key, strlen(key));

	if (!owner.is_ours)
		fail_msg("\"%s\" is not taken for a key of ours", key);
	assert_string_equal(owner.system_identifier, system_identifier);
	assert_int_equal(owner.timeline, timeline);
}

static void
test_ours(void **state)
{
	(void) state;
	assert_ours("e/694d7.pg", "", 0);
	assert_ours("e/7fffffffffffffff.pg", "", 0);
	assert_ours("e/694d7.7423.1.pg", "7423", 1);
	assert_ours("e/694d7.18446744073709551615.4294967295.pg", "18446744073709551615", UINT32_MAX);
	assert_ours("e/694d7.7423.0.pg", "7423", 0);
}

/* Keys of other programs, and what looks like a key of ours. */
static void
test_foreign(void **state)
{
	static const char *const keys[] = {
		"", "e", "e/", "f/694d7.pg", "e/694d7", "e/694D7.pg", "e/.pg", "e/694d7.pgx",
		"e/694d7.p", "e/694d7pg", "e/12345678901234567.pg",
		"e/694d7.7423.pg", "e/694d7..1.pg", "e/694d7.7423..pg", "e/694d7.7423.1",
		"e/694d7.7423.1.pgx", "e/694d7.7423.1.2.pg", "e/694d7.7423x1.pg", "e/694d7.x.1.pg",
		"e/694d7.7423.x.pg", "e/694d7.123456789012345678901.1.pg",
		"e/694d7.7423.4294967296.pg", "e/694d7.7423.99999999999.pg",
	};

	(void) state;
	for (size_t i = 0; i < lengthof(keys); i++)
		assert_foreign(keys[i], strlen(keys[i]));
	assert_foreign("e/6\0.pg", 7);
	assert_foreign("e/694d7\0pg", 10);
}

/* What stands in memory behind the key is not read. */
static void
test_ends(void **state)
{
	static const char key[] = "e/694d7.7423.12.pg";

	(void) state;
	for (size_t len = 0; len < strlen(key); len++)
		assert_foreign(key, len);
	assert_int_equal(owner_of("e/694d7.7423.1.pg2", 17).timeline, 1);
	assert_true(owner_of("e/694d7.pg.7423.1.pg", 10).is_ours);
}

/* What an instance enters is what others read. */
static void
test_make(void **state)
{
	static ElectionCore core;
	Election	e = {.prefix = "e/"};
	char		key[ELECTION_KEY_SIZE];

	(void) state;
	key_name_make(&core, &e, 0x694d7, key);
	assert_string_equal(key, "e/694d7.pg");
	strcpy(core.config.system_identifier, "7423");
	core.config.timeline = 3;
	key_name_make(&core, &e, INT64_MAX, key);
	assert_string_equal(key, "e/7fffffffffffffff.7423.3.pg");
	assert_ours(key, "7423", 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ours),
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_make),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
