/*-------------------------------------------------------------------------
 *
 * gateway.h
 *	  etcd's side of the HTTP/JSON gateway.  It decodes requests, and encodes
 *	  answers and frames in the dialect of the run.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GATEWAY_H
#define GATEWAY_H

#include "etcd/api.h"

/*
 * Decodes a request.  The run fails if the real gateway would refuse the
 * request or misunderstand it.  The result lives as long as the run.
 */
extern bool gateway_read_request(const char *path, const char *body, size_t len, EtcdRequest *request);
extern bool gateway_read_watches(const char *body, size_t len, EtcdWatch **watches, int *nwatches);

/* Encodes an answer.  The bytes are malloc'd. */
extern char *gateway_write_answer(EtcdRequestKind kind, const EtcdAnswer *answer,
								  size_t *len, long *http_status);
extern char *gateway_write_frame(const EtcdWatchFrame *frame, size_t *len);

/*
 * Copies of messages, for runs that do not encode them.  They live as long as
 * the run.  The same random numbers are drawn as for bytes, so that the run is
 * the same.
 */
extern EtcdRequest *gateway_copy_request(const EtcdRequest *request);
extern EtcdWatch *gateway_copy_watches(const EtcdWatch *watches, int nwatches);
extern EtcdAnswer *gateway_copy_answer(const EtcdAnswer *answer);
extern EtcdWatchFrame *gateway_copy_frame(const EtcdWatchFrame *frame);

/* The error page of a proxy between client and etcd. */
extern char *gateway_write_garbage(size_t *len, long *http_status);

#endif							/* GATEWAY_H */
