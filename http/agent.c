/*-------------------------------------------------------------------------
 *
 * agent.c
 *	  HAProxy's agent checks: a line for each connection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/socket.h>
#include <unistd.h>

#include "http.h"

/* The line fits into the socket's empty buffer: this never waits. */
void
http_answer_agent(int fd)
{
	const char *line = http_api->is_leader(NULL) ? "up ready\n" : "down\n";
	char		ignored[1024];

	(void) send(fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
	(void) shutdown(fd, SHUT_WR);

	/*
	 * Data that the client has sent, as "agent-send" does, must not reset the
	 * connection.  It is read once: a client that sends more, without end, is
	 * not to keep others waiting.
	 */
	(void) recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT);
	close(fd);
}
