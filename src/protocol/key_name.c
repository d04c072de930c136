/*-------------------------------------------------------------------------
 *
 * key_name.c
 *	  The name of a candidate's key, which tells who its owner is.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>

#include "key_name.h"

#define MAX_LEASE_DIGITS	16
#define MAX_SYSTEM_DIGITS	20
#define MAX_TIMELINE_DIGITS	10

void
key_name_make(const ElectionCore *core, const Election *e, int64_t lease,
			  char key[ELECTION_KEY_SIZE])
{
	char		owner[ELECTION_SYSTEM_ID_SIZE + MAX_TIMELINE_DIGITS + 4] = "";

	if (core->config.system_identifier[0] != '\0')
		snprintf(owner, sizeof(owner), ".%s.%" PRIu32, core->config.system_identifier,
				 core->config.timeline);
	snprintf(key, ELECTION_KEY_SIZE, "%s%" PRIx64 "%s" ELECTION_KEY_SUFFIX, e->prefix, lease,
			 owner);
}

/* Takes a part of 1 to max of these digits off the key.  Returns its length; 0: it has none. */
static size_t
take_digits(EtcdBytes *key, const char *digits, size_t max)
{
	size_t		len = 0;

	while (len < key->len && key->data[len] != '\0' && strchr(digits, key->data[len]) != NULL)
		len++;
	if (len > max)
		return 0;
	key->data += len;
	key->len -= len;
	return len;
}

static bool
take_text(EtcdBytes *key, const char *text)
{
	size_t		len = strlen(text);

	if (key->len < len || memcmp(key->data, text, len) != 0)
		return false;
	key->data += len;
	key->len -= len;
	return true;
}

/* Takes ".<system identifier>.<timeline>" off the key, into the empty owner. */
static bool
take_owner(EtcdBytes *key, KeyOwner *owner)
{
	static const char digits[] = "0123456789";
	uint64_t	timeline = 0;
	const char *system;
	size_t		len;

	if (!take_text(key, "."))
		return false;
	system = key->data;
	len = take_digits(key, digits, MAX_SYSTEM_DIGITS);
	if (len == 0 || !take_text(key, "."))
		return false;
	memcpy(owner->system_identifier, system, len);
	system = key->data;
	len = take_digits(key, digits, MAX_TIMELINE_DIGITS);
	for (size_t i = 0; i < len; i++)
		timeline = timeline * 10 + (uint64_t) (system[i] - '0');
	owner->timeline = (uint32_t) timeline;
	return len > 0 && timeline <= UINT32_MAX;
}

KeyOwner
key_name_parse(const Election *e, EtcdBytes key)
{
	const KeyOwner foreign = {0};
	KeyOwner	owner = {.is_ours = true};

	if (!take_text(&key, e->prefix) ||
		take_digits(&key, "0123456789abcdef", MAX_LEASE_DIGITS) == 0)
		return foreign;
	if (key.len != strlen(ELECTION_KEY_SUFFIX) && !take_owner(&key, &owner))
		return foreign;
	if (!take_text(&key, ELECTION_KEY_SUFFIX) || key.len != 0)
		return foreign;
	return owner;
}
