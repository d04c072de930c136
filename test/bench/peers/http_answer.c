/*
 * Answers every request on loopback with the same text, which is the least that
 * an HTTP server can do.  It measures the cost of the requests themselves.
 *
 *	 http_answer PORT BYTES
 *
 * BYTES: the length of the body.  It ends on SIGTERM.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static char answer[65536];
static size_t answer_len;

/* A request of the load comes in one piece, and has no body. */
static void
serve(int fd)
{
	char		request[4096];

	if (recv(fd, request, sizeof(request), 0) <= 0 ||
		send(fd, answer, answer_len, MSG_NOSIGNAL) != (ssize_t) answer_len)
		close(fd);
}

int
main(int argc, char **argv)
{
	int			body_len = argc == 3 ? atoi(argv[2]) : 0;
	struct sockaddr_in address = {.sin_family = AF_INET};
	int			listener = socket(AF_INET, SOCK_STREAM, 0);
	int			set = epoll_create1(0);
	int			on = 1;
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};

	if (body_len <= 0 || body_len > 60000)
		return 2;
	answer_len = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", body_len);
	memset(answer + answer_len, 'x', body_len);
	answer_len += body_len;
	address.sin_port = htons(atoi(argv[1]));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *) &address, sizeof(address)) != 0 || listen(listener, 64) != 0 ||
		epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) != 0)
	{
		perror(argv[0]);
		return 1;
	}
	for (;;)
	{
		struct epoll_event events[64];
		int			n = epoll_wait(set, events, 64, -1);

		for (int i = 0; i < n; i++)
		{
			if (events[i].data.fd != listener)
			{
				serve(events[i].data.fd);
				continue;
			}
			event.data.fd = accept(listener, NULL, NULL);
			setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
			epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
		}
	}
}
