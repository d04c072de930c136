/*-------------------------------------------------------------------------
 *
 * core.h
 *	  The protocol and the client of etcd, which all files of the elector use.
 *
 * elector.c creates both, and calls all other files.  So the others could not
 * take them from there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_CORE_H
#define ELECTOR_CORE_H

#include "etcd/client.h"
#include "protocol/election.h"

extern ElectionCore *elector_core;
extern EtcdClient *elector_client;

#endif							/* ELECTOR_CORE_H */
