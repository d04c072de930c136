/*-------------------------------------------------------------------------
 *
 * auth.c
 *	  Users of etcd: the password, and the token of each endpoint.
 *
 * A token is requested when etcd refuses a request that has none, and from
 * time to time together with the members of the cluster.  The password is read
 * from its file each time.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/secret_file.h"
#include "auth.h"
#include "client_state.h"
#include "request.h"

/*
 * A password that etcd has rejected is not tried again for this time, unless
 * its file changes.
 */
#define REJECTED_PASSWORD_MS	30000

#define MAX_PASSWORD_LEN	1000

/*
 * Reads the password from the file of the settings, without the newline at its
 * end, and in *file what kind of file that is.  Returns false and sets `why` if
 * that fails.
 */
static bool
read_password(const Settings *settings, char *password, size_t size, struct stat *file, char *why)
{
	const char *path = settings->password_file;
	const char *fault;
	ssize_t		len;
	int			fd;
	bool		good = false;

	if (path == NULL)
	{
		etcd_format_message(why, "\"etcd_leader.username\" is set, but "
								 "\"etcd_leader.password_file\" is not");
		return false;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, file) != 0)
		etcd_format_message(why, "could not open \"%s\" (\"etcd_leader.password_file\"): %s", path,
							strerror(errno));
	else if ((fault = secret_file_fault(file)) != NULL)
		etcd_format_message(why, "\"%s\" (\"etcd_leader.password_file\") %s", path, fault);
	else if ((len = read(fd, password, size)) < 0)
		etcd_format_message(why, "could not read \"%s\" (\"etcd_leader.password_file\"): %s", path,
							strerror(errno));
	else
	{
		if (len > 0 && password[len - 1] == '\n')
			len--;
		good = len > 0 && (size_t) len < size && memchr(password, '\0', len) == NULL;
		if (good)
			password[len] = '\0';
		else
		{
			explicit_bzero(password, size);
			etcd_format_message(why, "\"%s\" (\"etcd_leader.password_file\") must hold a password "
									 "of 1 to %zu bytes, and nothing else",
								path, size - 1);
		}
	}
	if (fd >= 0)
		close(fd);
	return good;
}

/* Is the password that the endpoint has rejected still the one in the file? */
static bool
is_still_rejected(const Endpoint *endpoint, const Settings *settings)
{
	const struct stat *rejected = &endpoint->rejected_file;
	struct stat file;

	if (endpoint->rejected_ns == 0 ||
		clock_monotonic_ns() - endpoint->rejected_ns >= REJECTED_PASSWORD_MS * NSEC_PER_MSEC)
		return false;
	if (stat(settings->password_file, &file) != 0)
		return true;
	return file.st_ino == rejected->st_ino && file.st_size == rejected->st_size &&
		file.st_mtim.tv_sec == rejected->st_mtim.tv_sec &&
		file.st_mtim.tv_nsec == rejected->st_mtim.tv_nsec;
}

static void
replace_token(Endpoint *endpoint, char *token)
{
	free(endpoint->token);
	endpoint->token = token;
}

static void
forget_failure(EtcdClient *client)
{
	client->auth.error[0] = '\0';
	client->auth.is_unanswered = false;
}

/*
 * There is no token; the answer says why.  A spare endpoint may be of another cluster, which
 * does not know the user.
 */
static void
receive_refusal(EtcdClient *client, const Report *report)
{
	const EtcdAnswer *answer = &report->answer;
	Endpoint   *endpoint = &client->endpoints[answer->endpoint];
	char		why[ETCD_MESSAGE_SIZE];

	if (answer->outcome == ETCD_REFUSED)
		etcd_format_message(why, "etcd at \"%s\" did not give user \"%s\" a token: %s",
							report->attempt->url, client->settings.username, answer->message);
	else
		etcd_format_message(why, "%s", answer->message);

	if (report->blames_endpoint)
		client->auth.is_unanswered = true;
	else if (answer->endpoint == client->endpoint)
	{
		memcpy(client->auth.error, why, ETCD_MESSAGE_SIZE);
		client->auth.is_unanswered = false;
	}
	/* after a wrong password wait before the next try; after other errors do not */
	if (answer->outcome == ETCD_REFUSED && answer->code == ETCD_CODE_INVALID_ARGUMENT)
	{
		memcpy(endpoint->rejection, why, ETCD_MESSAGE_SIZE);
		endpoint->rejected_ns = clock_monotonic_ns();
	}
	etcd_request_deny_parked(client, answer->endpoint, answer->outcome, answer->code, why);
}

static void
receive_token(EtcdClient *client, const Report *report)
{
	const EtcdAnswer *answer = &report->answer;
	int			endpoint = answer->endpoint;
	char		why[ETCD_MESSAGE_SIZE];

	if (endpoint < 0)
		return;
	if (report->request->settings_number != client->settings.number)
	{
		/*
		 * The token may belong to another user, or to another password, so ask
		 * once more.  Without a user nobody waits for a token.
		 */
		if (client->settings.username != NULL && !etcd_auth_ask(client, endpoint, why))
			etcd_request_deny_parked(client, endpoint, ETCD_REFUSED, ETCD_CODE_UNAUTHENTICATED,
									 why);
	}
	else if (answer->outcome == ETCD_ANSWERED || etcd_says_auth_is_off(answer))
	{
		char	   *token = answer->token != NULL ? strdup(answer->token) : NULL;

		replace_token(&client->endpoints[endpoint], token);
		client->endpoints[endpoint].token_number = ++client->auth.ntokens;
		client->endpoints[endpoint].rejected_ns = 0;
		if (endpoint == client->endpoint)
			forget_failure(client);
		etcd_request_send_parked(client, endpoint);
	}
	else
		receive_refusal(client, report);
}

bool
etcd_auth_ask(EtcdClient *client, int endpoint, char *why)
{
	char		password[MAX_PASSWORD_LEN + 1];
	EtcdRequest request = {.kind = ETCD_AUTHENTICATE,.username = client->settings.username};
	struct stat file;
	bool		asked;

	client->endpoints[endpoint].token_tried_ns = clock_monotonic_ns();
	if (etcd_request_is_asking(client, endpoint, receive_token))
		return true;
	if (is_still_rejected(&client->endpoints[endpoint], &client->settings))
	{
		memcpy(why, client->endpoints[endpoint].rejection, ETCD_MESSAGE_SIZE);
		return false;
	}
	if (!read_password(&client->settings, password, sizeof(password), &file, why))
	{
		memcpy(client->auth.error, why, ETCD_MESSAGE_SIZE);
		return false;
	}
	client->endpoints[endpoint].rejected_ns = 0;
	client->endpoints[endpoint].rejected_file = file;
	request.password = password;
	asked = etcd_request_send(client, endpoint, &request, receive_token) != NULL;
	explicit_bzero(password, sizeof(password));
	if (!asked)
		etcd_format_message(why, "out of memory");
	return asked;
}

const char *
etcd_client_user_error(const EtcdClient *client)
{
	return client->auth.error;
}

void
etcd_auth_configure(EtcdClient *client, bool same_user)
{
	for (int i = 0; i < client->nendpoints; i++)
		client->endpoints[i].rejected_ns = 0;
	if (client->settings.username == NULL)
		forget_failure(client);
	for (int i = 0; i < client->nendpoints && !same_user; i++)
	{
		replace_token(&client->endpoints[i], NULL);
		client->endpoints[i].token_number = 0;
	}
	for (int i = 0; i < client->nendpoints && client->settings.username == NULL; i++)
		etcd_request_send_parked(client, i);
}
