/*-------------------------------------------------------------------------
 *
 * bytes.h
 *	  Keys and values of etcd, which are bytes, as strings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BYTES_H
#define BYTES_H

#include <string.h>

#include "etcd/api.h"

static inline EtcdBytes
bytes_of(const char *s)
{
	return (EtcdBytes) {s, strlen(s)};
}

static inline bool
is_key(EtcdBytes bytes, const char *key)
{
	return bytes.len == strlen(key) && memcmp(bytes.data, key, bytes.len) == 0;
}

static inline void
copy_string(char *dst, const char *src, size_t size)
{
	size_t		len = strlen(src);

	if (len >= size)
		len = size - 1;
	memcpy(dst, src, len);
	dst[len] = '\0';
}

/*
 * Copies a value of etcd's as a string: up to a NUL, and if it is too long,
 * up to the end of a UTF-8 character.
 */
static inline void
copy_value(char *dst, EtcdBytes value, size_t size)
{
	size_t		len = strnlen(value.data, value.len);

	if (len >= size)
	{
		len = size - 1;
		while (len > 0 && ((unsigned char) value.data[len] & 0xC0) == 0x80)
			len--;
	}
	memcpy(dst, value.data, len);
	dst[len] = '\0';
}

static inline EtcdOp
range_of_key(const char *key)
{
	return (EtcdOp) {.kind = ETCD_OP_RANGE, .key = bytes_of(key)};
}

static inline EtcdOp
put_of_key(const char *key, const char *value, int64_t lease)
{
	return (EtcdOp) {.kind = ETCD_OP_PUT, .key = bytes_of(key), .value = bytes_of(value),
		.lease = lease};
}

static inline EtcdCompare
compare_key(const char *key, EtcdCompareTarget target, int64_t value)
{
	return (EtcdCompare) {.key = bytes_of(key), .target = target, .value = value};
}

#endif							/* BYTES_H */
