/*-------------------------------------------------------------------------
 *
 * gateway.h
 *	  etcd's side of the HTTP/JSON gateway: requests from bytes, answers and
 *	  frames to bytes, in the dialect of the run.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GATEWAY_H
#define GATEWAY_H

#include "etcd_api.h"

/*
 * A request that the real gateway would not take, or would take for something
 * else than was meant, fails the run.  What is read lives as long as the run.
 */
extern bool gateway_read_request(const char *path, const char *body, size_t len, EtcdRequest *request);
extern bool gateway_read_watches(const char *body, size_t len, EtcdWatch **watches, int *nwatches);

/* The bytes are malloc'd. */
extern char *gateway_write_answer(EtcdRequestKind kind, const EtcdAnswer *answer,
								  size_t *len, long *http_status);
extern char *gateway_write_frame(const EtcdWatchFrame *frame, size_t *len);

/*
 * A message as it is, in memory of the run, in the place of its bytes.  What is
 * drawn for the bytes is drawn all the same, so that a run is the same run.
 */
extern EtcdRequest *gateway_copy_request(const EtcdRequest *request);
extern EtcdWatch *gateway_copy_watches(const EtcdWatch *watches, int nwatches);
extern EtcdAnswer *gateway_copy_answer(const EtcdAnswer *answer);
extern EtcdWatchFrame *gateway_copy_frame(const EtcdWatchFrame *frame);

/* What a proxy on the way says instead of etcd. */
extern char *gateway_write_garbage(size_t *len, long *http_status);

#endif							/* GATEWAY_H */
