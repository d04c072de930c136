/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings of a client, for the files that it is made of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_SETTINGS_H
#define ETCD_SETTINGS_H

#include "api.h"

/*
 * The client does regular work in the first turn after the work is due.  Mostly a turn
 * comes soon, such as the turn of a renewal.  So the client asks for a turn of its own only
 * when this time has passed.
 */
#define SLACK_MS	500

/* A copy of EtcdClientSettings but for the endpoints; NULL: not set. */
typedef struct Settings
{
	uint64_t	number;			/* counts the calls of etcd_client_configure() and _probe() */
	long		request_timeout_ms;
	long		connect_timeout_ms;
	long		probe_interval_ms;
	char	   *ca_file;
	char	   *cert_file;
	char	   *key_file;
	bool		tls_1_3;
	char	   *server_name;
	char	   *username;
	char	   *password_file;
	EtcdDialect dialect;
	uint64_t	cluster_id;
} Settings;

#endif							/* ETCD_SETTINGS_H */
