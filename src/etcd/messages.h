/*-------------------------------------------------------------------------
 *
 * messages.h
 *	  What etcd's answers are made of, for the readers of both dialects.
 *
 * A table for each message of rpc.proto says which member goes where.  The
 * readers differ in the bytes alone: json.c finds a member by its name,
 * proto.c by its number.
 *
 * An answer is taken as a whole or not at all: one member of the wrong type
 * makes it garbage.  A member that is not there is zero, except where etcd
 * always sends it and a zero could be mistaken for news.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_MESSAGES_H
#define ETCD_MESSAGES_H

#include "api.h"

/* What a member is in its structure. */
typedef enum FieldType
{
	/* protobuf: WIRE_VARINT */
	FIELD_INT64,
	FIELD_UINT64,
	FIELD_BOOL,
	FIELD_EVENT_TYPE,			/* bool: is it DELETE? */
	/* protobuf: WIRE_BYTES */
	FIELD_BYTES,				/* EtcdBytes */
	FIELD_TEXT,					/* a message for people, ETCD_MESSAGE_SIZE */
	FIELD_STRING,				/* const char *, UTF-8 without a NUL in it */
	/* the same, and not one scalar */
	FIELD_MESSAGE,				/* a message inside */
	FIELD_LIST					/* pointer to messages, or to strings if there is
								 * no message, and an int with their number */
} FieldType;

/* How a field lies in the bytes of protobuf; 3 and 4 are not of proto3. */
typedef enum WireType
{
	WIRE_VARINT = 0,
	WIRE_FIXED64 = 1,
	WIRE_BYTES = 2,				/* a varint with their number comes first */
	WIRE_FIXED32 = 5
} WireType;

#define MAX_VARINT_SIZE		10

typedef struct Message Message;

typedef struct Field
{
	const char *name;			/* in JSON */
	uint32_t	number;			/* in protobuf */
	FieldType	type;
	bool		required;		/* protobuf: and a scalar is not zero */
	size_t		offset;			/* in the structure of the message */
	const Message *message;
	size_t		number_offset;	/* LIST: of the number of items */
} Field;

struct Message
{
	const Field *fields;
	int			nfields;
	size_t		size;			/* of the structure */

	/*
	 * An EtcdResult: exactly one of the fields is there, and its index is the
	 * kind.
	 */
	bool		is_result;
};

/* What the answer to a request of each kind is, and a frame of a watch. */
extern const Message *const etcd_answer_messages[ETCD_NREQUEST_KINDS];
extern const Message etcd_frame_message;

/* An answer that is being read: its memory, and the first problem. */
typedef struct Reader
{
	void	   *memory;
	size_t		size;			/* of the memory */
	bool		failed;
	char		problem[ETCD_MESSAGE_SIZE];
} Reader;

/* Records the first problem, which makes the answer useless. */
extern void etcd_fail_reading(Reader *reader, const char *problem, const char *name);

/* Zeroed memory that lives as long as the answer; NULL if memory is out. */
extern void *etcd_allocate(Reader *reader, size_t n, size_t size);

/* A copy of a string.  False if it is no UTF-8, has a NUL, or memory is out. */
extern bool etcd_copy_string(Reader *reader, const char *data, size_t len, const char **string);

/* Memory for the n > 0 items of a list, which the caller counts. */
extern void etcd_allocate_list(Reader *reader, const Field *field, void *structure, size_t n);

/* The place of the next item of a list. */
extern void *etcd_next_item(const Field *field, void *structure);

/* What follows the last member.  `present` has a bit for each field, by its index. */
extern void etcd_finish_message(Reader *reader, const Message *message, void *structure,
								uint32_t present);
extern void etcd_finish_answer(Reader *reader, EtcdRequestKind kind, EtcdAnswer *answer);
extern void etcd_finish_frame(Reader *reader, EtcdWatchFrame *frame);

#endif							/* ETCD_MESSAGES_H */
