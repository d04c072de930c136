/*-------------------------------------------------------------------------
 *
 * core.c
 *	  The protocol and the client of etcd, which all files of the elector use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "elector/core.h"

ElectionCore *elector_core;
EtcdClient *elector_client;
