/*-------------------------------------------------------------------------
 *
 * identity_file.c
 *	  Whether the data directory of this server is a copy.
 *
 * A backup that is restored for a look has the settings of production, and would be a
 * candidate there.  So the server leaves a file in its data directory that says where it
 * runs: the inode of the file, the host, and the path of the directory.  A start compares
 * them.
 *
 * - All are as they were: it is the same server.
 * - The server ended in a clean shutdown, which is its last one, and either the disk or
 *   the host is another one: somebody has moved it.  (Another disk at the same path of
 *   the same host; the same disk on another host.)
 * - It is a standby: somebody made it to follow another server, and may promote it.
 * - The system identifier is another one: pg_createsubscriber has made another database
 *   system of it, whose primary it is.
 * - There is no file: this is the first start, or pg_upgrade made the data directory.
 * - Else it is a copy.
 *
 * A clone of a whole disk that is attached to a host of the same name is not seen.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/ipc.h"

#include "file_mark.h"
#include "identity_file.h"
#include "settings/settings.h"

#define IDENTITY_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/etcd_leader.identity"
#define IDENTITY_FILE_TEMP	IDENTITY_FILE ".tmp"

/* To be changed with the layout of the file. */
#define IDENTITY_MAGIC		UINT64CONST(0x45544c4900000001)

#define HOST_SIZE			256

/* What the file has. */
typedef struct Identity
{
	uint64		magic;
	FileMark	mark;
	char		host[HOST_SIZE];
	char		data_directory[MAXPGPATH];
	pg_crc32c	crc;			/* of all before */
} Identity;

/* The postmaster writes before it has children, and then the elector. */
typedef struct SharedIdentity
{
	pg_atomic_uint32 is_copy;
	char		copied_host[HOST_SIZE];
} SharedIdentity;

static SharedIdentity *shared = NULL;

const SharedPart identity_part = {
	.name = "etcd_leader identity", .size = sizeof(SharedIdentity), .memory = (void **) &shared
};

static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* ---- the file ------------------------------------------------------------- */

/* The identity of this server now, as a file of it has it. */
static bool
make_identity(FILE *file, Identity *identity)
{
	memset(identity, 0, sizeof(Identity));
	identity->magic = IDENTITY_MAGIC;
	(void) gethostname(identity->host, HOST_SIZE - 1);	/* a longer name is cut */
	strlcpy(identity->data_directory, DataDir, MAXPGPATH);
	return file_mark_make(file, &identity->mark);
}

static pg_crc32c
checksum(const Identity *identity)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, identity, offsetof(Identity, crc));
	FIN_CRC32C(crc);
	return crc;
}

static void
write_file(void)
{
	Identity	identity;
	FILE	   *file = AllocateFile(IDENTITY_FILE_TEMP, PG_BINARY_W);
	bool		ok = file != NULL && make_identity(file, &identity);

	if (ok)
	{
		identity.crc = checksum(&identity);
		ok = fwrite(&identity, sizeof(identity), 1, file) == 1;
	}
	if (file != NULL && FreeFile(file) != 0)
		ok = false;
	if (ok)
	{
		(void) durable_rename(IDENTITY_FILE_TEMP, IDENTITY_FILE, LOG);
		return;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", IDENTITY_FILE_TEMP)));
	(void) unlink(IDENTITY_FILE_TEMP);
}

/* False: there is no file, or it cannot be used. */
static bool
read_file(Identity *stored, Identity *own)
{
	FILE	   *file = AllocateFile(IDENTITY_FILE, PG_BINARY_R);
	bool		ok;

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", IDENTITY_FILE)));
		return false;
	}
	ok = fread(stored, sizeof(Identity), 1, file) == 1 && stored->magic == IDENTITY_MAGIC &&
		EQ_CRC32C(stored->crc, checksum(stored)) && make_identity(file, own);
	FreeFile(file);
	if (!ok)
		ereport(LOG,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ignoring file \"%s\", which is damaged or of another version",
						IDENTITY_FILE)));
	return ok;
}

/* ---- the decision ---------------------------------------------------------- */

static bool
is_standby(void)
{
	return access(STANDBY_SIGNAL_FILE, F_OK) == 0;
}

static bool
is_same_server(const Identity *stored, const Identity *own)
{
	bool		same_inode = stored->mark.inode == own->mark.inode;
	bool		same_host = strcmp(stored->host, own->host) == 0;
	bool		same_path = strcmp(stored->data_directory, own->data_directory) == 0;

	if (stored->mark.system_identifier != own->mark.system_identifier)
		return true;
	if (same_inode && same_host)
		return true;
	return file_mark_is_same_shutdown(&stored->mark, &own->mark) &&
		(same_inode || (same_host && same_path));
}

/* An exit callback of the postmaster: the last shutdown is known now. */
static void
note_shutdown(int code, Datum arg)
{
	if (code == 0 && !identity_is_copy())
		write_file();
}

static void
identify(void)
{
	Identity	stored;
	Identity	own;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	if (!IsPostmasterEnvironment)
		return;
	on_shmem_exit(note_shutdown, (Datum) 0);

	if (settings_second_primary == SECOND_PRIMARY_WAIT || is_standby() ||
		!read_file(&stored, &own) || is_same_server(&stored, &own))
	{
		write_file();
		return;
	}
	strlcpy(shared->copied_host, stored.host, HOST_SIZE);
	pg_atomic_write_u32(&shared->is_copy, 1);
	ereport(LOG,
			(errmsg("the data directory of this server is a copy"),
			 errdetail("The copied server ran on host \"%s\" in directory \"%s\".", stored.host,
					   stored.data_directory)));
}

void
identity_file_install(void)
{
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = identify;
}

bool
identity_is_copy(void)
{
	return pg_atomic_read_u32(&shared->is_copy) != 0;
}

const char *
identity_copied_host(void)
{
	return shared->copied_host;
}

void
identity_claim(void)
{
	write_file();
	pg_atomic_write_u32(&shared->is_copy, 0);
}
