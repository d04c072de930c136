/*-------------------------------------------------------------------------
 *
 * rows.h
 *	  The rows that functions return.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ROWS_H
#define ROWS_H

#include "datatype/timestamp.h"
#include "fmgr.h"

#define ROW_MAX_COLUMNS 24

/* A row under construction; it begins as zero. */
typedef struct Row
{
	int			ncolumns;
	Datum		values[ROW_MAX_COLUMNS];
	bool		nulls[ROW_MAX_COLUMNS];
} Row;

/*
 * Begins the result of a function that returns rows.  ERROR 55000 if the SQL
 * objects are not of this library's version and want other columns.
 */
extern void rows_begin(FunctionCallInfo fcinfo, const Oid *columns, int ncolumns);

#define ROWS_BEGIN(columns) rows_begin(fcinfo, (columns), lengthof(columns))

/* Adds a column: a value, or null; and a value that is never null. */
extern void row_add(Row *row, Datum value, bool is_null);
extern void row_add_value(Row *row, Datum value);

/* Text that came from etcd; NULL or empty is null. */
extern void row_add_text(Row *row, const char *utf8);

/* A number, a time, an interval in microseconds: 0 is null. */
extern void row_add_number(Row *row, int64 number);
extern void row_add_time(Row *row, TimestampTz at);
extern void row_add_interval(Row *row, int64 us);

/* The ID of a lease or of a cluster, hexadecimal; 0 is null. */
extern void row_add_id(Row *row, uint64 id);

/* Hands a row over to the result of a function; it is empty afterwards. */
extern void row_put(FunctionCallInfo fcinfo, Row *row);

#endif							/* ROWS_H */
