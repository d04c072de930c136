/*-------------------------------------------------------------------------
 *
 * transport_proto.c
 *	  etcd's messages as its server reads and writes them, from rpc.proto.
 *
 * What the caller asks for is told by fields that mean little to this server: the
 * key of a txn has the number of its request, and the limit of its range is the
 * size of the value to answer with.  The end of a watch's range has the number of
 * the watch, and each of its events, in the value.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "transport.h"

#define CLUSTER_ID	4711

int			ntokens;

const char *
value_of(int64_t owner)
{
	static char bytes[MAX_VALUE_SIZE + 23];

	if (bytes[0] == '\0')
	{
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (char) ('a' + i % 23);
	}
	return bytes + owner * 7 % 23;
}

/* ---- reading --------------------------------------------------------------- */

typedef struct Input
{
	const char *data;
	size_t		left;
} Input;

typedef struct Item
{
	uint64_t	field;
	uint64_t	value;
	Input		bytes;
} Item;

static bool
read_varint(Input *input, uint64_t *value)
{
	*value = 0;
	for (int shift = 0; shift < 64 && input->left > 0; shift += 7)
	{
		unsigned char byte = (unsigned char) *input->data++;

		input->left--;
		*value |= (uint64_t) (byte & 0x7F) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

/* False at the end, or if it is no field; then something is left. */
static bool
read_item(Input *input, Item *item)
{
	Input		rest = *input;
	uint64_t	tag;

	memset(item, 0, sizeof(*item));
	if (!read_varint(&rest, &tag) || ((tag & 7) != 0 && (tag & 7) != 2) || !read_varint(&rest, &item->value))
		return false;
	item->field = tag >> 3;
	if ((tag & 7) == 2)
	{
		if (item->value > rest.left)
			return false;
		item->bytes = (Input) {rest.data, item->value};
		rest.data += item->value;
		rest.left -= item->value;
	}
	*input = rest;
	return true;
}

/* A number in decimal digits that ends the bytes; -1: there is none. */
static int64_t
number_after(Input bytes, char mark)
{
	int64_t		number = 0;
	const char *digits = memchr(bytes.data, mark, bytes.left);

	if (digits++ == NULL || digits == bytes.data + bytes.left)
		return -1;
	for (; digits < bytes.data + bytes.left; digits++)
	{
		if (*digits < '0' || *digits > '9' || number > 1000000)
			return -1;
		number = 10 * number + (*digits - '0');
	}
	return number;
}

/* A put must have arrived as it was sent. */
static bool
read_put(Input input, Wanted *wanted)
{
	Item		item;

	wanted->writes = true;
	while (read_item(&input, &item))
	{
		if (item.field == 1)
			wanted->request = (int) number_after(item.bytes, 'k');
		if (item.field == 2 && memcmp(item.bytes.data, value_of(wanted->request), item.value) != 0)
			return false;
	}
	return input.left == 0;
}

static bool
read_range(Input input, Wanted *wanted)
{
	Item		item;

	while (read_item(&input, &item))
	{
		if (item.field == 1)
			wanted->request = (int) number_after(item.bytes, 'k');
		if (item.field == 3)
			wanted->size = (int64_t) item.value;
	}
	return input.left == 0;
}

/* A RequestOp, of the success branch. */
static bool
read_op(Input input, Wanted *wanted)
{
	Item		item;

	return read_item(&input, &item) && input.left == 0 &&
		(item.field == 1 ? read_range(item.bytes, wanted) : item.field == 2 && read_put(item.bytes, wanted));
}

/* The member with the lease. */
static int
lease_field(EtcdRequestKind kind)
{
	return kind == ETCD_GRANT ? 2 : 1;
}

static bool
is_text(Input bytes, const char *text)
{
	return bytes.left == strlen(text) && memcmp(bytes.data, text, bytes.left) == 0;
}

bool
read_request(const char *path, const char *data, size_t len, Wanted *wanted)
{
	Input		input = {data, len};
	Item		item;
	int			kind = 0;

	memset(wanted, 0, sizeof(*wanted));
	while (kind < ETCD_NREQUEST_KINDS && strcmp(path, etcd_request_path(ETCD_GRPC, kind)) != 0)
		kind++;
	if (kind == ETCD_NREQUEST_KINDS)
		return false;
	wanted->kind = kind;
	while (read_item(&input, &item))
	{
		if (kind == ETCD_TXN && item.field == 2 && !read_op(item.bytes, wanted))
			return false;
		if (kind == ETCD_AUTHENTICATE && !is_text(item.bytes, item.field == 1 ? USERNAME : PASSWORD))
			return false;
		if (kind == ETCD_GRANT || kind == ETCD_KEEPALIVE || kind == ETCD_REVOKE || kind == ETCD_TIME_TO_LIVE)
		{
			if ((int) item.field == lease_field(kind))
				wanted->lease = (int64_t) item.value;
		}
	}
	if (wanted->lease > OWN_LEASE)
		wanted->request = (int) (wanted->lease - OWN_LEASE);
	wanted->writes |= kind == ETCD_GRANT || kind == ETCD_REVOKE;
	return input.left == 0 && wanted->request >= 0 && wanted->request <= nasked &&
		(wanted->request == 0 || asked[wanted->request].kind == wanted->kind);
}

bool
read_watch_request(const char *data, size_t len, WantedWatch *wanted)
{
	Input		input = {data, len};
	Item		item;

	memset(wanted, 0, sizeof(*wanted));
	if (!read_item(&input, &item) || input.left != 0 || item.field == 0 || item.field > 2)
		return false;
	wanted->is_cancel = item.field == 2;
	input = item.bytes;
	while (read_item(&input, &item))
	{
		if (wanted->is_cancel ? item.field == 1 : item.field == 7)
			wanted->number = (int64_t) item.value;
		else if (item.field == 2)
			wanted->incarnation = (int) number_after(item.bytes, '#');
		else if (item.field == 3)
			wanted->start_revision = (int64_t) item.value;
	}
	return input.left == 0 && (wanted->is_cancel || (wanted->incarnation > 0 && wanted->incarnation <= nincarnations));
}

/* ---- writing --------------------------------------------------------------- */

static void
put_varint(Bytes *out, uint64_t value)
{
	char		byte;

	for (; value >= 0x80; value >>= 7)
	{
		byte = (char) (value | 0x80);
		bytes_add(out, &byte, 1);
	}
	byte = (char) value;
	bytes_add(out, &byte, 1);
}

static void
put_number(Bytes *out, int field, uint64_t value)
{
	if (value == 0)
		return;
	put_varint(out, (uint64_t) field << 3);
	put_varint(out, value);
}

static void
put_bytes(Bytes *out, int field, const char *data, size_t len)
{
	put_varint(out, (uint64_t) field << 3 | 2);
	put_varint(out, len);
	bytes_add(out, data, len);
}

/* A message inside, which is freed. */
static void
put_message(Bytes *out, int field, Bytes *inside)
{
	put_bytes(out, field, inside->data + inside->start, bytes_left(inside));
	bytes_free(inside);
}

static void
put_header(Bytes *out, int endpoint, int64_t header_revision)
{
	Bytes		header = {0};

	put_number(&header, 1, CLUSTER_ID);
	put_number(&header, 2, endpoint + 1);
	put_number(&header, 3, header_revision);
	put_number(&header, 4, 2);
	/* a field that later releases may have */
	if (random_chance(1000))
		put_number(&header, 99, 1);
	put_message(out, 1, &header);
}

static void
put_kv(Bytes *out, int field, const char *key, const char *value, size_t size, int64_t mod_revision)
{
	Bytes		kv = {0};

	put_bytes(&kv, 1, key, strlen(key));
	put_number(&kv, 2, mod_revision);
	put_number(&kv, 3, mod_revision);
	put_number(&kv, 4, 1);
	if (size > 0)
		put_bytes(&kv, 5, value, size);
	put_message(out, field, &kv);
}

static void
put_txn_results(Bytes *out, const Wanted *wanted, int endpoint, int64_t answer_revision)
{
	Bytes		range = {0};
	Bytes		op = {0};
	char		key[32];

	if (wanted->writes)
	{
		Bytes		put = {0};

		put_header(&put, endpoint, answer_revision);
		put_message(&op, 2, &put);
		put_message(out, 3, &op);
	}
	snprintf(key, sizeof(key), "k%d", wanted->request);
	put_kv(&range, 2, key, value_of(wanted->request), wanted->size, answer_revision);
	put_number(&range, 4, 1);
	put_message(&op, 1, &range);
	put_message(out, 3, &op);
}

static void
put_members(Bytes *out)
{
	for (int i = 0; i < conditions.nendpoints; i++)
	{
		Bytes		member = {0};
		char		url[32];

		snprintf(url, sizeof(url), "http://etcd%d:2379", i);
		put_number(&member, 1, i + 1);
		/* a member that was never started has no URLs */
		if (i == 0 || healed || !conditions.is_alone)
			put_bytes(&member, 4, url, strlen(url));
		put_message(out, 2, &member);
	}
}

void
format_token(char *token, size_t size, int endpoint, int number)
{
	snprintf(token, size, "token%d.%d", endpoint, number);
}

/* Puts the prefix before what was written since: not compressed, and the length. */
static void
finish(Bytes *out, Bytes *message)
{
	size_t		len = bytes_left(message);
	char		prefix[5] = {0, (char) (len >> 24), (char) (len >> 16), (char) (len >> 8), (char) len};

	bytes_add(out, prefix, sizeof(prefix));
	bytes_add(out, message->data + message->start, len);
	bytes_free(message);
}

void
write_answer(Bytes *out, const Wanted *wanted, int endpoint, int64_t answer_revision)
{
	Bytes		message = {0};
	char		token[32];

	put_header(&message, endpoint, answer_revision);
	switch (wanted->kind)
	{
		case ETCD_TXN:
			put_number(&message, 2, 1);
			put_txn_results(&message, wanted, endpoint, answer_revision);
			break;
		case ETCD_TIME_TO_LIVE:
			put_number(&message, 4, 60);
			/* FALLTHROUGH */
		case ETCD_GRANT:
		case ETCD_KEEPALIVE:
			put_number(&message, 2, wanted->lease);
			put_number(&message, 3, 1 + answer_revision % 50);
			break;
		case ETCD_LIST_MEMBERS:
			put_members(&message);
			break;
		case ETCD_STATUS:
			put_bytes(&message, 2, "3.5.30", 6);
			break;
		case ETCD_AUTHENTICATE:
			format_token(token, sizeof(token), endpoint, ++ntokens);
			put_bytes(&message, 2, token, strlen(token));
			break;
		case ETCD_REVOKE:
			break;
	}
	finish(out, &message);
}

/* The value of an event ends with the number of its watch. */
static void
put_event(Bytes *message, int incarnation, int64_t change)
{
	Bytes		event = {0};
	Bytes		value = {0};
	char		number[16] = "";
	char		key[32];

	snprintf(number, sizeof(number), "%d", incarnation);
	bytes_add(&value, value_of(change), history[change].size);
	bytes_add(&value, number, sizeof(number));
	snprintf(key, sizeof(key), "%c/%" PRId64, 'a' + history[change].prefix, change);
	put_kv(&event, 2, key, value.data, bytes_left(&value), change);
	put_message(message, 11, &event);
	bytes_free(&value);
}

void
write_watch_reply(Bytes *out, const WatchReply *reply, int endpoint)
{
	Bytes		message = {0};

	put_header(&message, endpoint, revision);
	put_number(&message, 2, (uint64_t) reply->number);
	put_number(&message, 3, reply->created);
	put_number(&message, 4, reply->canceled);
	put_number(&message, 5, reply->compact_revision);
	if (reply->reason != NULL)
		put_bytes(&message, 6, reply->reason, strlen(reply->reason));
	for (int i = 0; i < reply->nrevisions; i++)
		put_event(&message, reply->incarnation, reply->revisions[i]);
	finish(out, &message);
}
