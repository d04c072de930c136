/*-------------------------------------------------------------------------
 *
 * gateway.h
 *	  etcd's JSON gateway: requests and watches as POSTs, and their answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ETCD_GATEWAY_H
#define ETCD_GATEWAY_H

#include "http.h"

/* False if memory is out; etcd_gateway_free_payload() may follow all the same. */
extern bool etcd_gateway_encode_request(const EtcdRequest *request, Payload *payload);
extern bool etcd_gateway_encode_watches(const EtcdWatch *watches, int nwatches, Payload *payload);
extern void etcd_gateway_free_payload(Payload *payload);

/* Sends a message; as etcd_http_post(). */
extern Exchange *etcd_gateway_start(Http *http, const Settings *settings, const Payload *payload,
									const Destination *destination);

/*
 * Reads the answer of an exchange that has ended.  True if there is none
 * because of a time-out.  etcd_free_answer() must follow.
 */
extern bool etcd_gateway_read_answer(const Exchange *exchange, EtcdRequestKind kind,
									 EtcdAnswer *answer);


/* Takes the next frame of a stream.  After READ, etcd_free_frame() must follow. */
extern FrameResult etcd_gateway_read_frame(Http *http, Exchange *exchange, EtcdWatchFrame *frame);

/*
 * Says in a buffer of ETCD_MESSAGE_SIZE why a stream has ended, and what kind
 * of failure that was: ETCD_GARBAGE or ETCD_NO_ANSWER.
 */
extern EtcdOutcome etcd_gateway_describe_end(const Exchange *exchange, char *message);

#endif							/* ETCD_GATEWAY_H */
