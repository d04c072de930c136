/*-------------------------------------------------------------------------
 *
 * certificate.c
 *	  Certificates: when they expire, which names they have, and their faults.
 *
 * The unit tests use this file without a server.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include <time.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "certificate.h"

/* A callback of OpenSSL.  It refuses to ask for a passphrase, and notes that the key has one. */
static int
refuse_passphrase(char *buffer, int size, int writes, void *arg)
{
	(void) buffer;
	(void) size;
	(void) writes;
	*(bool *) arg = true;
	return -1;
}

/* The first certificate in a file; NULL if there is none. */
static X509 *
read_certificate(const char *file)
{
	FILE	   *in = fopen(file, "r");
	X509	   *certificate = in != NULL ? PEM_read_X509(in, NULL, NULL, NULL) : NULL;

	if (in != NULL)
		fclose(in);
	return certificate;
}

bool
certificate_read_expiry(const char *file, double *days)
{
	X509	   *certificate = read_certificate(file);
	int			whole_days = 0;
	int			seconds = 0;
	bool		known;

	known = certificate != NULL &&
		ASN1_TIME_diff(&whole_days, &seconds, NULL, X509_get0_notAfter(certificate));
	*days = whole_days + seconds / 86400.0;
	X509_free(certificate);
	ERR_clear_error();			/* other callers of OpenSSL would report this error */
	return known;
}

/* ---- faults of a certificate ------------------------------------------- */

static bool
find_fault_of_key(X509 *certificate, const char *key_file, char *fault, size_t size)
{
	FILE	   *in = fopen(key_file, "r");
	bool		is_locked = false;
	EVP_PKEY   *key;
	const char *what = NULL;

	/* the user of the key reports that it cannot read the file */
	if (in == NULL)
		return false;
	key = PEM_read_PrivateKey(in, NULL, refuse_passphrase, &is_locked);
	fclose(in);
	if (is_locked)
		what = "the private key needs a passphrase";
	else if (key == NULL)
		what = "the file of the key has no private key in PEM";
	else if (X509_check_private_key(certificate, key) != 1)
		what = "the private key does not belong to the certificate";
	EVP_PKEY_free(key);
	if (what != NULL)
		snprintf(fault, size, "%s", what);
	return what != NULL;
}

/* Describes a fault by these words and the time after them. */
static void
put_time(char *fault, size_t size, const char *words, const ASN1_TIME *when)
{
	struct tm	tm;
	char		text[32];

	if (ASN1_TIME_to_tm(when, &tm) != 1 ||
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
		strcpy(text, "an unknown time");
	snprintf(fault, size, "%s %s", words, text);
}

static bool
find_fault_of_time(X509 *certificate, char *fault, size_t size)
{
	const ASN1_TIME *from = X509_get0_notBefore(certificate);
	const ASN1_TIME *until = X509_get0_notAfter(certificate);

	if (X509_cmp_time(from, NULL) > 0)
		put_time(fault, size, "the certificate is not valid before", from);
	else if (X509_cmp_time(until, NULL) < 0)
		put_time(fault, size, "the certificate has expired, at", until);
	else
		return false;
	return true;
}

/*
 * etcd accepts certificates that X509_check_purpose() refuses: with any purpose in
 * the extended key usage, and with a key usage without signatures.
 */
static bool
find_fault_of_purpose(X509 *certificate, char *fault, size_t size)
{
	/* all bits are set if the certificate does not limit its usage */
	if (X509_get_extended_key_usage(certificate) & (XKU_SSL_CLIENT | XKU_ANYEKU))
		return false;
	snprintf(fault, size,
			 "the certificate is not one for TLS clients: its extended key usage lacks clientAuth");
	return true;
}

bool
certificate_find_fault(const char *file, const char *key_file, char *fault, size_t size)
{
	FILE	   *in = fopen(file, "r");
	X509	   *certificate;
	bool		found;

	if (in == NULL)
		return false;
	fclose(in);
	certificate = read_certificate(file);
	if (certificate == NULL)
	{
		snprintf(fault, size, "the file has no certificate in PEM");
		found = true;
	}
	else
		found = find_fault_of_key(certificate, key_file, fault, size) ||
			find_fault_of_time(certificate, fault, size) ||
			find_fault_of_purpose(certificate, fault, size);
	X509_free(certificate);
	ERR_clear_error();
	return found;
}

/* ---- the chain of a certificate ----------------------------------------------------------- */

/* All certificates in a file, in the order of the file; NULL: it has none. */
static STACK_OF(X509) *
read_chain(const char *file)
{
	FILE	   *in = fopen(file, "r");
	STACK_OF(X509) *chain = sk_X509_new_null();
	X509	   *certificate;

	while (in != NULL && chain != NULL &&
		   (certificate = PEM_read_X509(in, NULL, NULL, NULL)) != NULL)
	{
		if (sk_X509_push(chain, certificate) == 0)
		{
			X509_free(certificate);
			break;
		}
	}
	if (in != NULL)
		fclose(in);
	if (chain == NULL || sk_X509_num(chain) > 0)
		return chain;
	sk_X509_free(chain);
	return NULL;
}

/* Describes the error of OpenSSL; false if the error is not about the chain. */
static bool
describe_chain(X509_STORE_CTX *context, char *fault, size_t size)
{
	int			error = X509_STORE_CTX_get_error(context);
	X509	   *at = X509_STORE_CTX_get_current_cert(context);
	char		subject[128] = "";

	switch (error)
	{
		case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
		case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
		case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
		case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
		case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
		case X509_V_ERR_CERT_SIGNATURE_FAILURE:
			snprintf(fault, size, "no authority in \"etcd_leader.ssl_ca_file\" has signed it");
			return true;
		default:
			if (X509_STORE_CTX_get_error_depth(context) == 0 || at == NULL)
				return false;
			X509_NAME_oneline(X509_get_subject_name(at), subject, sizeof(subject));
			snprintf(fault, size, "%s: authority \"%s\"",
					 X509_verify_cert_error_string(error), subject);
			return true;
	}
}

bool
certificate_find_fault_of_chain(const char *file, const char *ca_file, char *fault, size_t size)
{
	STACK_OF(X509) *chain = read_chain(file);
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	bool		found = false;

	/* as in libcurl, the file may contain an intermediate authority alone */
	if (chain != NULL && store != NULL && context != NULL &&
		X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) == 1 &&
		X509_STORE_load_locations(store, ca_file, NULL) == 1 &&
		X509_STORE_CTX_init(context, store, sk_X509_value(chain, 0), chain) == 1 &&
		X509_verify_cert(context) != 1)
		found = describe_chain(context, fault, size);
	X509_STORE_CTX_free(context);
	X509_STORE_free(store);
	sk_X509_pop_free(chain, X509_free);
	ERR_clear_error();
	return found;
}

/* ---- the names of a certificate ----------------------------------------------------------- */

bool
certificate_read_names(const char *pem, char *names, size_t size)
{
	BIO		   *in = BIO_new_mem_buf(pem, -1);
	BIO		   *out = BIO_new(BIO_s_mem());
	X509	   *certificate = in != NULL ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL;
	int			at = certificate != NULL ?
		X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) : -1;
	char	   *text = NULL;
	long		len = 0;

	names[0] = '\0';
	if (at >= 0 && out != NULL && X509V3_EXT_print(out, X509_get_ext(certificate, at), 0, 0) == 1)
		len = BIO_get_mem_data(out, &text);
	if (len > 0)
		snprintf(names, size, "%.*s", (int) len, text);
	X509_free(certificate);
	BIO_free(in);
	BIO_free(out);
	ERR_clear_error();
	return names[0] != '\0';
}
