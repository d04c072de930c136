/*-------------------------------------------------------------------------
 *
 * proto.c
 *	  etcd's v3 answers and watch frames from protobuf, as gRPC has them.
 *
 * The bytes are read by the tables of messages.c.  By protobuf's rules,
 * a field that no table knows is skipped, the last of several equal scalars
 * counts, and a zero is the same as nothing.  What etcd never writes is
 * refused: a known field of another type, a message that is there twice.
 *
 * Each byte is looked at twice for each message that it lies in, as a list is
 * counted before it is read.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <limits.h>

#include "messages.h"

/* The bytes of a message that are not read yet. */
typedef struct Input
{
	const char *data;
	size_t		left;
} Input;

/* A field, as it lies in the bytes. */
typedef struct Item
{
	uint32_t	number;
	WireType	type;
	uint64_t	value;			/* a varint, or the number of bytes */
	Input		bytes;
} Item;

static bool
take_varint(Input *input, uint64_t *value)
{
	*value = 0;
	for (int shift = 0; shift < 64 && input->left > 0; shift += 7)
	{
		uint64_t	byte = (unsigned char) *input->data++;

		input->left--;
		/* of the tenth byte, one bit is left */
		if (shift == 63 && byte > 1)
			return false;
		*value |= (byte & 0x7F) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

/* Takes a field from the front.  False if there is none in these bytes. */
static bool
take_item(Input *input, Item *item)
{
	uint64_t	tag;

	if (!take_varint(input, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
		return false;
	item->number = (uint32_t) (tag >> 3);
	item->type = (WireType) (tag & 7);
	switch (item->type)
	{
		case WIRE_VARINT:
			return take_varint(input, &item->value);
		case WIRE_FIXED64:
			item->value = 8;
			break;
		case WIRE_BYTES:
			if (!take_varint(input, &item->value))
				return false;
			break;
		case WIRE_FIXED32:
			item->value = 4;
			break;
		default:
			return false;
	}
	if (item->value > input->left)
		return false;
	item->bytes.data = input->data;
	item->bytes.left = item->value;
	input->data += item->value;
	input->left -= item->value;
	return true;
}

/* How many fields with that number are in these bytes? */
static size_t
count_items(Input input, uint32_t number)
{
	size_t		n = 0;
	Item		item;

	while (take_item(&input, &item))
	{
		if (item.number == number)
			n++;
	}
	return n;
}

static bool
copy_bytes(Reader *reader, Input bytes, EtcdBytes *target)
{
	char	   *copy = etcd_allocate(reader, bytes.left + 1, 1);

	if (copy == NULL)
		return false;
	memcpy(copy, bytes.data, bytes.left);
	target->data = copy;
	target->len = bytes.left;
	return true;
}

static void read_message(Reader *reader, Input input, const Message *message, void *structure);

/* Reads a field into its structure.  False if it is of the wrong type. */
static bool
read_item(Reader *reader, const Item *item, const Field *field, void *structure)
{
	void	   *target = (char *) structure + field->offset;

	if (item->type != (field->type <= FIELD_EVENT_TYPE ? WIRE_VARINT : WIRE_BYTES))
		return false;
	switch (field->type)
	{
		case FIELD_INT64:
		case FIELD_UINT64:
			*(uint64_t *) target = item->value;
			return true;
		case FIELD_BOOL:
			*(bool *) target = item->value != 0;
			return true;
		case FIELD_EVENT_TYPE:
			*(bool *) target = item->value == 1;
			return item->value <= 1;
		case FIELD_BYTES:
			return copy_bytes(reader, item->bytes, target);
		case FIELD_TEXT:
			etcd_format_message(target, "%.*s", (int) Min(item->value, INT_MAX), item->bytes.data);
			return true;
		case FIELD_STRING:
			return etcd_copy_string(reader, item->bytes.data, item->value, target);
		case FIELD_MESSAGE:
			read_message(reader, item->bytes, field->message, target);
			return true;
		case FIELD_LIST:
			target = etcd_next_item(field, structure);
			if (field->message == NULL)
				return etcd_copy_string(reader, item->bytes.data, item->value, target);
			read_message(reader, item->bytes, field->message, target);
			return true;
	}
	return false;
}

static const Field *
find_field(const Message *message, uint32_t number)
{
	for (int i = 0; i < message->nfields; i++)
	{
		if (message->fields[i].number == number)
			return &message->fields[i];
	}
	return NULL;
}

/*
 * Reads a message into its structure, which is zeroed.  The recursion is as
 * deep as the tables are, whatever came.
 */
static void
read_message(Reader *reader, Input input, const Message *message, void *structure)
{
	uint32_t	present = 0;

	while (input.left > 0 && !reader->failed)
	{
		Input		rest = input;
		Item		item;
		const Field *field;
		uint32_t	bit;

		if (!take_item(&input, &item))
		{
			etcd_fail_reading(reader, "not a message of etcd", "a field is malformed or cut off");
			return;
		}
		field = find_field(message, item.number);
		if (field == NULL)
			continue;
		bit = UINT32_C(1) << (field - message->fields);
		if (field->type == FIELD_LIST)
		{
			if (!(present & bit))
				etcd_allocate_list(reader, field, structure, count_items(rest, field->number));
		}
		else if (field->message != NULL && (present & bit))
			etcd_fail_reading(reader, "member is there twice", field->name);

		if (!reader->failed && !read_item(reader, &item, field, structure))
			etcd_fail_reading(reader, "member is not understood", field->name);
		if (item.value != 0 || field->type >= FIELD_MESSAGE)
			present |= bit;
		else
			present &= ~bit;
	}
	etcd_finish_message(reader, message, structure, present);
}

void
etcd_proto_decode_answer(EtcdRequestKind kind, const char *body, size_t len, EtcdAnswer *answer)
{
	Input		input = {body, len};
	Reader		reader = {0};

	memset(answer, 0, sizeof(*answer));
	read_message(&reader, input, etcd_answer_messages[kind], answer);
	etcd_finish_answer(&reader, kind, answer);
}

void
etcd_proto_decode_frame(const char *body, size_t len, EtcdWatchFrame *frame)
{
	Input		input = {body, len};
	Reader		reader = {0};

	memset(frame, 0, sizeof(*frame));
	read_message(&reader, input, &etcd_frame_message, frame);
	etcd_finish_frame(&reader, frame);
}
