/*-------------------------------------------------------------------------
 *
 * certificate.c
 *	  When a certificate expires.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "certificate.h"

bool
certificate_read_expiry(const char *file, double *days)
{
	FILE	   *in = fopen(file, "r");
	X509	   *certificate = in != NULL ? PEM_read_X509(in, NULL, NULL, NULL) : NULL;
	int			whole_days = 0;
	int			seconds = 0;
	bool		known;

	known = certificate != NULL && ASN1_TIME_diff(&whole_days, &seconds, NULL, X509_get0_notAfter(certificate));
	*days = whole_days + seconds / 86400.0;
	X509_free(certificate);
	if (in != NULL)
		fclose(in);
	ERR_clear_error();			/* others take what is left there for theirs */
	return known;
}
