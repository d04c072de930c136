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
 * Begins the problem that a certificate expires soon, or has expired.  of_what: follows
 * "the certificate".
 */
extern void elector_find_expiry(const char *subject, const char *of_what, double days,
								const char *hint);

/* Publishes what has changed of them. */
extern void elector_publish_endpoints(void);

#endif							/* ELECTOR_ENDPOINTS_H */
