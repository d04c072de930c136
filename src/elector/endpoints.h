/*-------------------------------------------------------------------------
 *
 * endpoints.h
 *	  The endpoints: what is wrong with them, and their rows for readers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_ENDPOINTS_H
#define ELECTOR_ENDPOINTS_H

/* Begins the problems of the endpoints; once in each turn. */
extern void elector_find_endpoint_problems(void);

/*
 * Begins the problem that a certificate expires soon, or has expired.  where: stands
 * between "the certificate" and the subject.
 */
extern void elector_find_expiry(const char *subject, const char *where, double days,
								const char *hint);

/* Publishes what has changed of them. */
extern void elector_publish_endpoints(void);

#endif							/* ELECTOR_ENDPOINTS_H */
