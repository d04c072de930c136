/*-------------------------------------------------------------------------
 *
 * certificate.h
 *	  Certificates: when they expire, which names they have, and their faults.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CERTIFICATE_H
#define CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Days until the first certificate in a file in PEM expires, in *days; negative
 * if it has expired.  False if the file has no certificate that can be read.
 */
extern bool certificate_read_expiry(const char *file, double *days);

/*
 * Looks for a fault of the first certificate in a file, which a client shows to
 * the server, and of its key.  Does the key belong to the certificate?  Is the
 * certificate valid now?  May a TLS client use it?  A clause describes the fault.
 * False: there is no fault, or a file cannot be opened.
 */
extern bool certificate_find_fault(const char *file, const char *key_file,
								   char *fault, size_t size);

/*
 * Looks for a fault of the chain from that certificate to the authorities in a
 * file.  The server may trust other authorities.  So the fault matters only if the
 * server has refused the certificate.
 */
extern bool certificate_find_fault_of_chain(const char *file, const char *ca_file,
											char *fault, size_t size);

/*
 * The names of a certificate in PEM, such as "DNS:etcd1, IP Address:10.0.0.1".
 * False: the certificate has none.
 */
extern bool certificate_read_names(const char *pem, char *names, size_t size);

#endif							/* CERTIFICATE_H */
