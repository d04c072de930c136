/*-------------------------------------------------------------------------
 *
 * certificate.h
 *	  What certificates say: when they expire, whom they name, and what is
 *	  wrong with one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CERTIFICATE_H
#define CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Days until the first certificate in a file in PEM expires, in *days; negative
 * if it has expired.  False if that cannot be read.
 */
extern bool certificate_read_expiry(const char *file, double *days);

/*
 * Looks for a fault of the first certificate in a file, which a client shows,
 * and of its key: does the key belong to it, is it valid now, may a TLS client
 * use it?  A fault is described by a clause.  False: there is none, or a file
 * cannot be opened.
 */
extern bool certificate_find_fault(const char *file, const char *key_file, char *fault, size_t size);

/*
 * The same for its chain, to the authorities in a file.  The server may trust
 * other ones, so this is a fault only of a certificate that was refused.
 */
extern bool certificate_find_fault_of_chain(const char *file, const char *ca_file, char *fault, size_t size);

/*
 * The names of a certificate in PEM, such as "DNS:etcd1, IP Address:10.0.0.1".
 * False: it has none.
 */
extern bool certificate_read_names(const char *pem, char *names, size_t size);

#endif							/* CERTIFICATE_H */
