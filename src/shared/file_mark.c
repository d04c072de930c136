/*-------------------------------------------------------------------------
 *
 * file_mark.c
 *	  What a file in the data directory says of itself: where it lies, and
 *	  which shutdown of the server it was written at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"

#include "file_mark.h"

bool
file_mark_make(FILE *file, FileMark *mark)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	struct stat st;

	memset(mark, 0, sizeof(FileMark));
	mark->system_identifier = control->system_identifier;
	if (control->state == DB_SHUTDOWNED || control->state == DB_SHUTDOWNED_IN_RECOVERY)
	{
		mark->checkpoint = control->checkPoint;
		mark->shutdown_time = (int64) control->time;
	}
	if (fstat(fileno(file), &st) == 0)
		mark->inode = (uint64) st.st_ino;
	pfree(control);
	return crc_ok && mark->inode != 0;
}

bool
file_mark_is_same_shutdown(const FileMark *stored, const FileMark *own)
{
	return own->checkpoint != 0 && stored->system_identifier == own->system_identifier &&
		stored->checkpoint == own->checkpoint && stored->shutdown_time == own->shutdown_time;
}
