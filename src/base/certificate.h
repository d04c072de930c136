/*-------------------------------------------------------------------------
 *
 * certificate.h
 *	  When a certificate expires.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CERTIFICATE_H
#define CERTIFICATE_H

/*
 * Days until the first certificate in a file in PEM expires, in *days; negative
 * if it has expired.  False if that cannot be read.
 */
extern bool certificate_read_expiry(const char *file, double *days);

#endif							/* CERTIFICATE_H */
