/*-------------------------------------------------------------------------
 *
 * certificate_test.c
 *	  Tests of certificate.c: which fault of a certificate is found, and that
 *	  etcd/errors.c has a hint for it.
 *
 *-------------------------------------------------------------------------
 */
#include <unistd.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/certificate.h"
#include "etcd/api.h"
#include "unit.h"

#define DAY		86400L

typedef struct Pair
{
	X509	   *certificate;
	EVP_PKEY   *key;
} Pair;

static char directory[] = "/tmp/certificate_test.XXXXXX";
static char fault[ETCD_MESSAGE_SIZE];
static Pair root;				/* an authority */
static Pair intermediate;		/* of the root */
static Pair stranger;			/* another authority */

/* ---- making certificates ------------------------------------------------ */

static EVP_PKEY *
make_key(int type, int curve)
{
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(type, NULL);
	EVP_PKEY   *key = NULL;

	assert_int_equal(EVP_PKEY_keygen_init(context), 1);
	if (type == EVP_PKEY_EC)
		assert_int_equal(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, curve), 1);
	assert_int_equal(EVP_PKEY_keygen(context, &key), 1);
	EVP_PKEY_CTX_free(context);
	return key;
}

static void
add_extension(X509 *certificate, int nid, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	assert_non_null(extension);
	assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

/* Valid from and until so many seconds from now; usage, names: NULL: none. */
static Pair
make(const char *name, const Pair *issuer, bool is_authority, const char *usage, const char *names,
	 long from_s, long until_s)
{
	static long serial = 0;
	Pair		pair = {X509_new(), make_key(EVP_PKEY_EC, NID_X9_62_prime256v1)};
	X509	   *c = pair.certificate;

	X509_set_version(c, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(c), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(c), from_s);
	X509_gmtime_adj(X509_getm_notAfter(c), until_s);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC, (const unsigned char *) name, -1, -1, 0);
	X509_set_issuer_name(c, X509_get_subject_name(issuer != NULL ? issuer->certificate : c));
	X509_set_pubkey(c, pair.key);
	if (is_authority)
		add_extension(c, NID_basic_constraints, "critical,CA:TRUE");
	if (usage != NULL)
		add_extension(c, NID_ext_key_usage, usage);
	if (names != NULL)
		add_extension(c, NID_subject_alt_name, names);
	assert_true(X509_sign(c, issuer != NULL ? issuer->key : pair.key, EVP_sha256()) > 0);
	return pair;
}

static void
free_pair(Pair *pair)
{
	X509_free(pair->certificate);
	EVP_PKEY_free(pair->key);
}

static const char *
path(const char *name)
{
	static char paths[4][64];
	static int	next = 0;
	char	   *made = paths[next++ % 4];

	snprintf(made, sizeof(paths[0]), "%s/%s", directory, name);
	return made;
}

static FILE *
open_file(const char *name)
{
	FILE	   *file = fopen(path(name), "w");

	assert_non_null(file);
	return file;
}

/* A file with these two, or with one. */
static void
write_certificates(const char *name, const X509 *first, const X509 *second)
{
	FILE	   *file = open_file(name);

	PEM_write_X509(file, (X509 *) first);
	if (second != NULL)
		PEM_write_X509(file, (X509 *) second);
	fclose(file);
}

static void
write_key(const char *name, EVP_PKEY *key, char *passphrase)
{
	FILE	   *file = open_file(name);

	assert_int_equal(PEM_write_PrivateKey(file, key, passphrase != NULL ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL, passphrase), 1);
	fclose(file);
}

static void
write_text(const char *name, const char *text)
{
	FILE	   *file = open_file(name);

	fputs(text, file);
	fclose(file);
}

static int
set_up(void **state)
{
	assert_non_null(mkdtemp(directory));
	root = make("root", NULL, true, NULL, NULL, -DAY, DAY);
	intermediate = make("intermediate", &root, true, NULL, NULL, -DAY, DAY);
	stranger = make("stranger", NULL, true, NULL, NULL, -DAY, DAY);
	write_certificates("root", root.certificate, NULL);
	write_certificates("stranger", stranger.certificate, NULL);
	return 0;
}

static int
tear_down(void **state)
{
	char		command[128];

	free_pair(&root);
	free_pair(&intermediate);
	free_pair(&stranger);
	snprintf(command, sizeof(command), "rm -r '%s'", directory);
	return system(command);
}

/* ---- faults --------------------------------------------------------------- */

/* The fault of a certificate with its own key; NULL: none. */
static const char *
fault_of(Pair pair)
{
	bool		found;

	write_certificates("cert", pair.certificate, NULL);
	write_key("key", pair.key, NULL);
	free_pair(&pair);
	found = certificate_find_fault(path("cert"), path("key"), fault, sizeof(fault));
	assert_int_equal(ERR_peek_error(), 0);
	return found ? fault : NULL;
}

static void
assert_fault(const char *found, const char *text, const char *hint)
{
	assert_non_null(found);
	if (strncmp(found, text, strlen(text)) != 0)
		fail_msg("\"%s\" does not begin with \"%s\"", found, text);
	assert_non_null(etcd_hint(found));
	assert_non_null(strstr(etcd_hint(found), hint));
}

static void
test_time(void **state)
{
	assert_null(fault_of(make("client", &root, false, "clientAuth", NULL, -DAY, DAY)));
	assert_fault(fault_of(make("client", &root, false, "clientAuth", NULL, DAY, 2 * DAY)),
				 "the certificate is not valid before 2", "clock");
	assert_fault(fault_of(make("client", &root, false, "clientAuth", NULL, -2 * DAY, -DAY)),
				 "the certificate has expired, at 2", "Renew");
}

static void
test_purpose(void **state)
{
	assert_fault(fault_of(make("client", &root, false, "serverAuth", NULL, -DAY, DAY)),
				 "the certificate is not one for TLS clients", "clientAuth");
	assert_null(fault_of(make("client", &root, false, "serverAuth,clientAuth", NULL, -DAY, DAY)));
	assert_null(fault_of(make("client", &root, false, "anyExtendedKeyUsage", NULL, -DAY, DAY)));
	assert_null(fault_of(make("client", &root, false, NULL, NULL, -DAY, DAY)));
}

static const char *
fault_of_files(const char *certificate, const char *key)
{
	bool		found = certificate_find_fault(path(certificate), path(key), fault, sizeof(fault));

	assert_int_equal(ERR_peek_error(), 0);
	return found ? fault : NULL;
}

static void
test_key(void **state)
{
	Pair		client = make("client", &root, false, "clientAuth", NULL, -DAY, DAY);
	EVP_PKEY   *other = make_key(EVP_PKEY_ED25519, 0);

	write_certificates("cert", client.certificate, NULL);
	write_key("other type", other, NULL);
	write_key("same type", root.key, NULL);
	write_key("locked", client.key, "a word");
	write_text("junk", "no PEM\n");
	assert_fault(fault_of_files("cert", "other type"), "the private key does not belong to the certificate", "ssl_key_file");
	assert_fault(fault_of_files("cert", "same type"), "the private key does not belong to the certificate", "ssl_key_file");
	assert_fault(fault_of_files("cert", "locked"), "the private key needs a passphrase", "without a passphrase");
	assert_fault(fault_of_files("cert", "junk"), "the file of the key has no private key in PEM", "ssl_key_file");
	assert_fault(fault_of_files("junk", "same type"), "the file has no certificate in PEM", "ssl_cert_file");
	/* that a file is missing is reported elsewhere */
	assert_null(fault_of_files("cert", "nothing"));
	assert_null(fault_of_files("nothing", "same type"));
	free_pair(&client);
	EVP_PKEY_free(other);
}

/* ---- chains --------------------------------------------------------------- */

static const char *
fault_of_chain(const Pair *client, const Pair *next, const char *authorities)
{
	bool		found;

	write_certificates("chain", client->certificate, next != NULL ? next->certificate : NULL);
	found = certificate_find_fault_of_chain(path("chain"), path(authorities), fault, sizeof(fault));
	assert_int_equal(ERR_peek_error(), 0);
	return found ? fault : NULL;
}

static void
test_chain(void **state)
{
	static const char unknown[] = "no authority in \"etcd_leader.ssl_ca_file\" has signed it";
	Pair		direct = make("client", &root, false, "clientAuth", NULL, -DAY, DAY);
	Pair		indirect = make("client", &intermediate, false, "clientAuth", NULL, -DAY, DAY);
	Pair		late = make("late", &root, true, NULL, NULL, -2 * DAY, -DAY);
	Pair		of_late = make("client", &late, false, "clientAuth", NULL, -DAY, DAY);

	write_certificates("intermediate", intermediate.certificate, NULL);
	assert_null(fault_of_chain(&direct, NULL, "root"));
	assert_null(fault_of_chain(&indirect, &intermediate, "root"));
	assert_null(fault_of_chain(&indirect, NULL, "intermediate"));
	assert_string_equal(fault_of_chain(&direct, NULL, "stranger"), unknown);
	assert_string_equal(fault_of_chain(&indirect, NULL, "root"), unknown);
	assert_string_equal(fault_of_chain(&stranger, NULL, "root"), unknown);
	assert_string_equal(fault_of_chain(&of_late, &late, "root"), "certificate has expired: authority \"/CN=late\"");
	/* nothing is known of what is not there */
	assert_null(fault_of_chain(&direct, NULL, "nothing"));
	free_pair(&direct);
	free_pair(&indirect);
	free_pair(&late);
	free_pair(&of_late);
}

/* ---- names ---------------------------------------------------------------- */

static const char *
names_of(Pair pair)
{
	static char names[128];
	BIO		   *out = BIO_new(BIO_s_mem());
	char	   *pem;
	bool		has_names;

	PEM_write_bio_X509(out, pair.certificate);
	BIO_write(out, "", 1);
	BIO_get_mem_data(out, &pem);
	has_names = certificate_read_names(pem, names, sizeof(names));
	BIO_free(out);
	free_pair(&pair);
	return has_names ? names : NULL;
}

static void
test_names(void **state)
{
	char		names[16];

	assert_string_equal(names_of(make("server", &root, false, NULL, "DNS:etcd1,IP:10.0.0.1", -DAY, DAY)), "DNS:etcd1, IP Address:10.0.0.1");
	assert_null(names_of(make("server", &root, false, NULL, NULL, -DAY, DAY)));
	assert_false(certificate_read_names("junk", names, sizeof(names)));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_purpose),
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
