/*-------------------------------------------------------------------------
 *
 * json.c
 *	  etcd's v3 answers and watch frames from the JSON of its HTTP gateway.
 *
 * They are parsed by jansson and then read by the tables of messages.c.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include <jansson.h>

#include "common/base64.h"

#include "messages.h"

/*
 * A string may hold a NUL (an escaped one), which ends a message for people
 * and is no base64. If two members have the same name, nobody knows which one
 * is meant.  A NUL that is not escaped is never JSON, but jansson skips one
 * behind a number or a literal, so that is looked for here.
 */
#define JSON_FLAGS	(JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES)

/* How much is shown of a body that could not be understood. */
#define EXCERPT_SIZE	100

/*
 * JSON of more than SMALL_SIZE bytes is refused if its values, or its objects and
 * arrays, are smaller on average than these sizes: jansson takes much memory for
 * each of them.  Those that etcd sends are larger, also where many small frames have
 * come at once.
 */
#define SMALL_SIZE			(256 * 1024)
#define BYTES_PER_VALUE		8
#define BYTES_PER_OBJECT	16

/* ---- reading --------------------------------------------------------- */

/*
 * A 64-bit integer.  (A number above 2^63 that is not in a string is no JSON
 * for jansson; no gateway writes them so.)
 */
static bool
parse_int(const json_t *value, bool is_signed, void *target)
{
	if (json_is_integer(value))
	{
		json_int_t	n = json_integer_value(value);

		if (n < 0 && !is_signed)
			return false;
		if (is_signed)
			*(int64_t *) target = n;
		else
			*(uint64_t *) target = n;
		return true;
	}
	if (json_is_string(value))
	{
		const char *s = json_string_value(value);
		const char *digits = s + (is_signed && s[0] == '-');
		size_t		ndigits = strspn(digits, "0123456789");

		/* nothing but digits: strtol() would take white space, too */
		if (ndigits == 0 || digits + ndigits != s + json_string_length(value))
			return false;
		errno = 0;
		if (is_signed)
			*(int64_t *) target = strtoimax(s, NULL, 10);
		else
			*(uint64_t *) target = strtoumax(s, NULL, 10);
		return errno == 0;
	}
	return false;
}

static bool
parse_bytes(Reader *reader, const json_t *value, EtcdBytes *bytes)
{
	size_t		len;
	int			room;
	int			n;
	char	   *data;

	if (!json_is_string(value))
		return false;
	len = json_string_length(value);
	if (len > INT_MAX / 2)
		return false;
	room = pg_b64_dec_len((int) len);
	data = etcd_allocate(reader, room + 1, 1);
	if (data == NULL)
		return false;
	n = pg_b64_decode(json_string_value(value), (int) len, (void *) data, room);
	if (n < 0)
		return false;
	data[n] = '\0';
	bytes->data = data;
	bytes->len = n;
	return true;
}

static bool
parse_string(Reader *reader, const json_t *value, const char **string)
{
	return json_is_string(value) &&
		etcd_copy_string(reader, json_string_value(value), json_string_length(value), string);
}

/* The name of the enum value, or its number; PUT is 0 and DELETE is 1. */
static bool
parse_event_type(const json_t *value, bool *is_delete)
{
	if (json_is_string(value))
	{
		*is_delete = strcmp(json_string_value(value), "DELETE") == 0;
		return *is_delete || strcmp(json_string_value(value), "PUT") == 0;
	}
	*is_delete = json_integer_value(value) == 1;
	return json_is_integer(value) &&
		(*is_delete || json_integer_value(value) == 0);
}

static void read_message(Reader *reader, const json_t *json, const Message *message,
						 void *structure);

/* Reads the items of a list, messages or strings, into an array. */
static bool
read_list(Reader *reader, const json_t *json, const Field *field, void *structure)
{
	size_t		n = json_array_size(json);
	bool		good = json_is_array(json);

	if (n > 0)
		etcd_allocate_list(reader, field, structure, n);
	for (size_t i = 0; i < n && good && !reader->failed; i++)
	{
		const json_t *item = json_array_get(json, i);
		void	   *target = etcd_next_item(field, structure);

		if (field->message == NULL)
			good = parse_string(reader, item, target);
		else
		{
			good = json_is_object(item);
			read_message(reader, item, field->message, target);
		}
	}
	return good;
}

/* Reads a member of a message.  False if it is of the wrong type. */
static bool
read_member(Reader *reader, const json_t *value, const Field *field, void *structure)
{
	void	   *target = (char *) structure + field->offset;

	switch (field->type)
	{
		case FIELD_INT64:
			return parse_int(value, true, target);
		case FIELD_UINT64:
			return parse_int(value, false, target);
		case FIELD_BOOL:
			*(bool *) target = json_is_true(value);
			return json_is_boolean(value);
		case FIELD_BYTES:
			return parse_bytes(reader, value, target);
		case FIELD_TEXT:
			if (json_is_string(value))
				etcd_format_message(target, "%s", json_string_value(value));
			return json_is_string(value);
		case FIELD_STRING:
			return parse_string(reader, value, target);
		case FIELD_EVENT_TYPE:
			return parse_event_type(value, target);
		case FIELD_MESSAGE:
			read_message(reader, value, field->message, target);
			return json_is_object(value);
		case FIELD_LIST:
			return read_list(reader, value, field, structure);
	}
	return false;
}

/*
 * Reads a message into its structure, which is zeroed.  The recursion is as
 * deep as the tables are, whatever came.
 */
static void
read_message(Reader *reader, const json_t *json, const Message *message, void *structure)
{
	uint32_t	present = 0;

	for (int i = 0; i < message->nfields && !reader->failed; i++)
	{
		const Field *field = &message->fields[i];
		const json_t *value = json_object_get(json, field->name);

		if (value == NULL || json_is_null(value))
			continue;
		present |= UINT32_C(1) << i;
		if (!read_member(reader, value, field, structure))
			etcd_fail_reading(reader, "member is not understood", field->name);
	}
	etcd_finish_message(reader, message, structure, present);
}

/*
 * Is it an error of etcd or of its gateway?  All forms of both dialects:
 *	  {"error":"m","message":"m","code":n}			v1
 *	  {"code":n,"message":"m"}						v2
 *	  {"error":{"grpc_code":n,"message":"m",...}}	v1, in a stream
 *	  {"error":{"code":n,"message":"m"}}			v2, in a stream
 */
static bool
read_error(const json_t *root, int *code, char *message)
{
	const json_t *error = json_object_get(root, "error");
	const json_t *number;
	const json_t *text;

	if (json_is_object(error))
		root = error;
	else if (json_string_length(error) == 0 && json_object_get(root, "code") == NULL)
		return false;

	number = json_object_get(root, "grpc_code");
	if (number == NULL)
		number = json_object_get(root, "code");
	*code = ETCD_CODE_UNKNOWN;
	if (json_integer_value(number) > 0 && json_integer_value(number) <= INT_MAX)
		*code = (int) json_integer_value(number);

	text = json_object_get(root, "message");
	if (!json_is_string(text))
		text = error;
	message[0] = '\0';
	if (json_is_string(text))
		etcd_format_message(message, "%s", json_string_value(text));
	if (message[0] == '\0')
		etcd_format_message(message, "error code %d without a message", *code);
	return true;
}

/* Would it take far more memory than bytes? */
static bool
is_dense(const char *buf, size_t len)
{
	size_t		nvalues = 0;
	size_t		nobjects = 0;

	for (size_t i = 0; len > SMALL_SIZE && i < len; i++)
	{
		nvalues += buf[i] == ',';
		nobjects += buf[i] == '{' || buf[i] == '[';
	}
	return nvalues > len / BYTES_PER_VALUE || nobjects > len / BYTES_PER_OBJECT;
}

/* ---- answers --------------------------------------------------------- */

/* Why the body of a unary answer does not come from etcd. */
static void
describe_garbage(char *message, long http_status, const char *body, size_t len)
{
	const char *hint = "";
	int			excerpt = (int) Min(len, EXCERPT_SIZE);

	if (http_status == 404)
		hint = " (no etcd, or its JSON gateway is not enabled)";
	if (http_status / 100 != 2 && len == 0)
		etcd_format_message(message, "HTTP status %ld%s", http_status, hint);
	else if (http_status / 100 != 2)
		etcd_format_message(message, "HTTP status %ld%s: %.*s", http_status, hint,
							excerpt, body);
	else if (len == 0)
		etcd_format_message(message, "empty answer");
	else
		etcd_format_message(message, "not a JSON answer of etcd: %.*s", excerpt, body);
}

void
etcd_decode_answer(EtcdRequestKind kind, long http_status,
				   const char *body, size_t len, EtcdAnswer *answer)
{
	json_t	   *root = NULL;
	const json_t *json;
	Reader		reader = {0};

	memset(answer, 0, sizeof(*answer));
	if (memchr(body, '\0', len) == NULL && !is_dense(body, len))
		root = json_loadb(body, len, JSON_FLAGS, NULL);
	json = root;
	if (read_error(root, &answer->code, answer->message))
	{
		answer->outcome = ETCD_REFUSED;
		json_decref(root);
		return;
	}

	if (kind == ETCD_KEEPALIVE)
		json = json_object_get(root, "result");	/* the first and only message of a stream */
	if (http_status / 100 == 2 && json_is_object(json))
	{
		read_message(&reader, json, etcd_answer_messages[kind], answer);
		etcd_finish_answer(&reader, kind, answer);
	}
	else
	{
		answer->outcome = ETCD_GARBAGE;
		describe_garbage(answer->message, http_status, body, len);
	}
	json_decref(root);
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/*
 * Parses the object at the front of a buffer; its length goes into *taken.
 * NULL if there is none; *incomplete: more bytes may make it one.
 *
 * The buffer ends anywhere, so jansson's complaint about its end may be about
 * the cut alone, also where it does not call it premature: at a literal, an
 * escape or a character of up to 4 bytes that is not there in full.
 */
static json_t *
parse_frame(const char *buf, size_t len, size_t *taken, bool *incomplete)
{
	json_error_t error;
	json_t	   *root;

	*incomplete = false;
	*taken = 0;
	if (buf[0] != '{' || is_dense(buf, len))
		return NULL;
	root = json_loadb(buf, len, JSON_FLAGS | JSON_DISABLE_EOF_CHECK, &error);
	*taken = (size_t) error.position;
	if (memchr(buf, '\0', root != NULL ? *taken : len) != NULL)
	{
		json_decref(root);
		return NULL;
	}
	*incomplete = root == NULL &&
		(json_error_code(&error) == json_error_premature_end_of_input || *taken >= len ||
		 (json_error_code(&error) == json_error_invalid_utf8 && *taken + 4 > len));
	return root;
}

ssize_t
etcd_decode_frame(const char *buf, size_t len, EtcdWatchFrame *frame)
{
	size_t		start = 0;
	size_t		end;
	bool		incomplete;
	json_t	   *root;
	json_t	   *result;
	Reader		reader = {0};

	memset(frame, 0, sizeof(*frame));
	while (start < len && is_space(buf[start]))
		start++;
	if (start == len)
		return 0;
	root = parse_frame(buf + start, len - start, &end, &incomplete);
	if (incomplete)
		return 0;

	result = json_object_get(root, "result");
	if (read_error(root, &frame->code, frame->message))
		frame->outcome = ETCD_REFUSED;
	else if (root == NULL)
	{
		frame->outcome = ETCD_GARBAGE;
		describe_garbage(frame->message, 200, buf + start, len - start);
	}
	else
	{
		if (json_is_object(result))
			read_message(&reader, result, &etcd_frame_message, frame);
		else
			etcd_fail_reading(&reader, "member is missing", "result");
		etcd_finish_frame(&reader, frame);
	}
	json_decref(root);
	if (frame->outcome == ETCD_GARBAGE)
		return -1;

	end += start;
	while (end < len && is_space(buf[end]))
		end++;
	return (ssize_t) end;
}
