/*-------------------------------------------------------------------------
 *
 * endpoints.h
 *	  The endpoints, for the log and for a view.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ELECTOR_ENDPOINTS_H
#define ELECTOR_ENDPOINTS_H

/* Tells the log of endpoints that are not used, or too old; of all of them once more. */
extern void elector_check_endpoints(void);
extern void elector_check_endpoints_anew(void);

/* Publishes what has changed of them. */
extern void elector_publish_endpoints(void);

#endif							/* ELECTOR_ENDPOINTS_H */
