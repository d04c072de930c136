/*-------------------------------------------------------------------------
 *
 * errors.c
 *	  etcd's errors: what they mean, and text for people.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "mb/pg_wchar.h"

#include "base/hidden.h"
#include "api.h"

/*
 * Number of bytes of the UTF-8 character at s, 0 if there is no valid one
 * within the bytes left.
 */
static size_t
utf8_length(const unsigned char *s, size_t left)
{
	size_t		len = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;

	return len <= left && pg_utf8_islegal(s, (int) len) ? len : 0;
}

/*
 * See api.h.  Hidden characters become a space, several in a row one;
 * bytes that are not UTF-8 become a question mark.
 */
void
etcd_format_message(char *message, const char *format,...)
{
	char		raw[4 * ETCD_MESSAGE_SIZE];
	const unsigned char *s = (const unsigned char *) raw;
	const unsigned char *end;
	size_t		len = 0;
	va_list		args;

	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	end = s + strlen(raw);

	while (s < end)
	{
		size_t		n = utf8_length(s, end - s);
		bool		hidden = n > 0 && hidden_is(utf8_to_unicode(s));

		if (len + Max(n, 1) >= ETCD_MESSAGE_SIZE)
			break;
		if (n == 0)
		{
			message[len++] = '?';
			n = 1;
		}
		else if (!hidden)
		{
			memcpy(message + len, s, n);
			len += n;
		}
		else if (len > 0 && message[len - 1] != ' ')
			message[len++] = ' ';
		s += n;
	}
	while (len > 0 && message[len - 1] == ' ')
		len--;
	message[len] = '\0';
}

void
etcd_describe_alarms(const EtcdAnswer *answer, char *message)
{
	char		text[ETCD_MESSAGE_SIZE] = "";
	size_t		len = 0;

	for (int i = 0; i < answer->nerrors && len < sizeof(text); i++)
		len += snprintf(text + len, sizeof(text) - len, "%s%s", len > 0 ? "; " : "",
						answer->errors[i]);
	etcd_format_message(message, "%s", text);
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void
etcd_decode_message(char *message, const char *value, size_t len)
{
	char		decoded[ETCD_MESSAGE_SIZE];
	size_t		n = 0;

	for (size_t i = 0; i < len && n < sizeof(decoded) - 1; i++)
	{
		int			high = value[i] == '%' && i + 2 < len ? hex_digit(value[i + 1]) : -1;
		int			low = high >= 0 ? hex_digit(value[i + 2]) : -1;

		if (low >= 0)
			i += 2;
		decoded[n++] = low >= 0 ? (char) (16 * high + low) : value[i];
	}
	decoded[n] = '\0';
	etcd_format_message(message, "%s", decoded);
}

/* ---- errors ---------------------------------------------------------- */

bool
etcd_blames_endpoint(EtcdOutcome outcome, int code, const char *message)
{
	if (outcome == ETCD_ANSWERED)
		return false;
	if (outcome != ETCD_REFUSED)
		return true;

	switch (code)
	{
		case ETCD_CODE_NOT_FOUND:
			/* of the gateway, not of etcd: it does not know the path */
			return strcmp(message, "Not Found") == 0;
		case ETCD_CODE_INVALID_ARGUMENT:
		case ETCD_CODE_ALREADY_EXISTS:
		case ETCD_CODE_PERMISSION_DENIED:
		case ETCD_CODE_RESOURCE_EXHAUSTED:
		case ETCD_CODE_FAILED_PRECONDITION:
		case ETCD_CODE_OUT_OF_RANGE:
		case ETCD_CODE_UNAUTHENTICATED:
			return false;
		default:

			/*
			 * Unavailable, no leader, deadline exceeded, internal, and the
			 * unknown ones: etcd gives a code to each error that is the
			 * client's, "not a primary lessor" has none.
			 */
			return true;
	}
}

/* The texts are those of etcd's api/v3rpc/rpctypes/error.go. */
bool
etcd_wants_token(EtcdOutcome outcome, int code, const char *message)
{
	if (outcome != ETCD_REFUSED)
		return false;
	return code == ETCD_CODE_UNAUTHENTICATED ||
		(code == ETCD_CODE_INVALID_ARGUMENT &&
		 (strstr(message, "user name is empty") != NULL ||
		  strstr(message, "revision of auth store is old") != NULL));
}

static bool
is_refusal(const EtcdAnswer *answer, EtcdCode code, const char *text)
{
	return answer->outcome == ETCD_REFUSED && answer->code == (int) code &&
		strstr(answer->message, text) != NULL;
}

bool
etcd_says_auth_is_off(const EtcdAnswer *answer)
{
	return is_refusal(answer, ETCD_CODE_FAILED_PRECONDITION, "authentication is not enabled");
}

bool
etcd_says_lease_not_found(const EtcdAnswer *answer)
{
	return is_refusal(answer, ETCD_CODE_NOT_FOUND, "requested lease not found");
}

bool
etcd_says_permission_denied(const EtcdAnswer *answer)
{
	return is_refusal(answer, ETCD_CODE_PERMISSION_DENIED, "permission denied");
}

bool
etcd_says_lease_exists(const EtcdAnswer *answer)
{
	return is_refusal(answer, ETCD_CODE_FAILED_PRECONDITION, "lease already exists");
}

/*
 * The first line whose texts are in the message has the hint.  The texts about
 * certificates come from tls.c, from certificate.c, and from OpenSSL.
 */
static const struct
{
	const char *text;
	const char *detail;		/* NULL: any */
	const char *hint;
}			hints[] = {
	{"the certificate of etcd", "is not valid for",
	"Add the host to the certificate's subjectAltName, as \"DNS:name\" or \"IP:address\", or name "
	"the host in \"etcd_leader.endpoints\" as the certificate does."},
	{"the certificate of etcd", "has expired",
	"Renew the certificate of this member of etcd, or of its authority. If neither has expired, "
	"correct the clock of this host."},
	{"the certificate of etcd", "not yet valid",
	"Correct the clock of this host, or that of the host that has made the certificate, and make "
	"the certificate anew."},
	{"the certificate of etcd", "purpose",
	"Make the certificate of this member of etcd anew, with serverAuth in its extended key usage."},
	{"the certificate of etcd", "the authority to trust",
	"Set \"etcd_leader.ssl_ca_file\" to the certificate of the authority that has signed etcd's. "
	"Intermediate certificates belong into etcd's \"--cert-file\"."},
	{"the certificate is not valid before", NULL,
	"Correct the clock of this host, or that of the host that has made the certificate, and make "
	"the certificate anew."},
	{"the certificate has expired", NULL,
	"Renew the certificate. The file is read for each new connection."},
	{"lacks clientAuth", NULL,
	"Make the certificate anew, with clientAuth in its extended key usage."},
	{"private key does not belong", NULL,
	"Set \"etcd_leader.ssl_key_file\" to the key of the certificate in "
	"\"etcd_leader.ssl_cert_file\"."},
	{"private key needs a passphrase", NULL,
	"Store the key without a passphrase, in a file that only its owner can read."},
	{"has no private key in PEM", NULL,
	"Set \"etcd_leader.ssl_key_file\" to a private key in PEM."},
	{"has no certificate in PEM", NULL,
	"Set \"etcd_leader.ssl_cert_file\" to a certificate in PEM."},
	{"does not accept the client certificate", "no authority in",
	"Have the certificate signed by an authority in etcd's \"--trusted-ca-file\". Intermediate "
	"certificates follow it in the same file."},
	{"does not accept the client certificate", "authority \"",
	"Renew the certificate of this authority."},
	{"does not accept the client certificate", NULL,
	"Check the authorities in etcd's \"--trusted-ca-file\", its \"--client-crl-file\" and "
	"\"--client-cert-allowed-hostname\", and the clocks of both hosts."},
	{"requires a client certificate", NULL,
	"Set \"etcd_leader.ssl_cert_file\" and \"etcd_leader.ssl_key_file\" to a certificate that "
	"etcd's \"--trusted-ca-file\" has signed."},
	{"no TLS connection to etcd", NULL,
	"Check whether this endpoint speaks http: then its URL begins with \"http://\"."},
	{"closed the connection without an answer", "\"http:",
	"If it is a port for TLS, its URL begins with \"https://\". If a proxy in between passes "
	"HTTP/1 alone, set \"etcd_leader.protocol\" to \"json\". Else check whether it is etcd."},
	{"closed the connection without an answer", NULL,
	"Check whether it is etcd, and whether a proxy in between passes gRPC. If it passes HTTP/1 "
	"alone, set \"etcd_leader.protocol\" to \"json\"."},
	{"HTTP request", "HTTPS",
	"It is a port for TLS, so its URL begins with \"https://\"."},
	{"has not created the watch", NULL,
	"Check whether a proxy holds back the answer: turn its buffering off (nginx: \"proxy_buffering "
	"off\"), or let it pass gRPC and set \"etcd_leader.protocol\" to \"grpc\"."},
	{"with bytes that nobody waits for", NULL,
	"Check that this is an endpoint of etcd, and what lies between it and this host."},
	{"may open no more", NULL,
	"Raise the limit of open files for the server (\"ulimit -n\"), or lower "
	"\"max_files_per_process\"."},
	{"no answer in gRPC", "etcd_leader.protocol",
	"If there is a proxy, let it pass gRPC, or set \"etcd_leader.protocol\" to \"json\". If there "
	"is none, check that this is an endpoint of etcd."},
	{"no answer in gRPC", NULL,
	"Check that this is an endpoint of etcd, and what lies between it and this host."},
	{"and more than half must", NULL,
	"Mend the other endpoints, or remove those that are no members any more, or name the cluster "
	"by \"etcd_leader.cluster_id\"."},
	{"is of cluster", NULL,
	"The endpoints must name members of one cluster, the same on all instances. Correct "
	"\"etcd_leader.endpoints\", or set \"etcd_leader.cluster_id\"."},
	{"is also named", NULL,
	"Give each instance its own \"etcd_leader.node_name\"."},
	{ETCD_LEARNER_REFUSAL, NULL,
	"A learner serves no requests: promote it, or take it out of \"etcd_leader.endpoints\"."},
	{"could not resolve host", NULL,
	"Check the name in \"etcd_leader.endpoints\", and DNS."},
	{"could not look up the SRV records", NULL,
	"Check \"etcd_leader.discovery_srv\", and DNS."},
	{"could not connect to etcd", " within ",
	"If the network is slower than that, the time-out is too short: raise \"etcd_leader.ttl\", or "
	"\"etcd_leader.connect_timeout\" if it is set. Else check that etcd runs there, and that a "
	"firewall lets this host connect."},
	{"could not connect to etcd", NULL,
	"Check that etcd runs there, and that a firewall lets this host connect."},
	{"no answer from etcd", " within ",
	"If the network or etcd is slower than that, the time-out is too short: raise "
	"\"etcd_leader.ttl\", or \"etcd_leader.request_timeout\" if it is set. Else check that this is "
	"an endpoint of etcd, and that most members of the cluster run."},
	{"no answer from etcd", NULL,
	"Check that this is an endpoint of etcd, that most members of the cluster run, and the "
	"network."},
	/* of etcd's api/v3rpc/rpctypes/error.go */
	{"etcdserver: permission denied", NULL,
	"Grant etcd's user a role that has the right to these keys."},
	{"etcdserver: user name is empty", NULL,
	"etcd asks for a user: set \"etcd_leader.username\" and \"etcd_leader.password_file\"."},
	{"etcdserver: authentication failed", NULL,
	"Check \"etcd_leader.username\" and \"etcd_leader.password_file\"."},
	{"database space exceeded", NULL,
	"Compact and defragment etcd, then run \"etcdctl alarm disarm\"."},
	{"etcdserver: no leader", NULL,
	"Most members of the etcd cluster must run and reach each other."},
};

const char *
etcd_hint(const char *message)
{
	for (size_t i = 0; i < lengthof(hints); i++)
	{
		if (strstr(message, hints[i].text) != NULL &&
			(hints[i].detail == NULL || strstr(message, hints[i].detail) != NULL))
			return hints[i].hint;
	}
	return NULL;
}
