# Servers that send frames of HTTP/2, or HTTP/1, without end.
package EtcdLeader::Flood;

use strict;
use warnings;

use EtcdLeader::Util;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# A frame of HTTP/2.
sub frame
{
	my ($type, $flags, $stream, $payload) = @_;
	return substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags, $stream) . $payload;
}

use constant { DATA => 0, HEADERS => 1, PRIORITY => 2, RST_STREAM => 3, SETTINGS => 4, PUSH_PROMISE => 5, PING => 6, GOAWAY => 7, WINDOW_UPDATE => 8,
	CONTINUATION => 9 };
use constant { ACK => 1, END_HEADERS => 4, PADDED => 8 };

# HPACK: a status of HTTP, without and with the type of gRPC.
sub status { my ($status) = @_; return "\x08\x03$status" }
my $answered = frame(HEADERS, END_HEADERS, 1, status(200) . "\x0f\x10\x10application/grpc");
my $reset    = frame(RST_STREAM, 0, 1, pack 'N', 8);

# name => [the first bytes, the bytes that follow without end].  The first request of a
# client is on stream 1.
our %kinds = (
	'WINDOW_UPDATE of the connection' => [ '', frame(WINDOW_UPDATE, 0, 0, pack 'N', 1) ],
	'WINDOW_UPDATE of a stream'       => [ '', frame(WINDOW_UPDATE, 0, 1, pack 'N', 1) ],
	'PRIORITY'                        => [ '', frame(PRIORITY, 0, 1, pack 'NC', 0, 16) ],
	'RST_STREAM'                      => [ '', $reset ],
	'GOAWAY'                          => [ '', frame(GOAWAY, 0, 0, pack 'NN', 2**31 - 1, 0) ],
	'informational HEADERS'           => [ '', frame(HEADERS, END_HEADERS, 1, status(103)) ],
	'DATA of length 0'                => [ $answered, frame(DATA, 0, 1, '') ],
	'DATA with padding alone'         => [ $answered, frame(DATA, PADDED, 1, "\x04\0\0\0\0") ],
	'DATA of length 0 on a closed stream' => [ $reset, frame(DATA, 0, 1, '') ],
	'DATA on a closed stream'         => [ $reset, frame(DATA, 0, 1, 'x') ],
	'messages that nobody waits for'  => [ $answered, frame(DATA, 0, 1, "\0" x 50) ],
	'answers to no PING'              => [ '', frame(PING, ACK, 0, 'whatever') ],
	'PING'                            => [ '', frame(PING, 0, 0, 'whatever') ],
	'SETTINGS'                        => [ '', frame(SETTINGS, 0, 0, '') ],
	'SETTINGS with changes'           => [ '', frame(SETTINGS, 0, 0, pack 'nNnN', 4, 1000, 4, 70000) ],
	'answers to no SETTINGS'          => [ '', frame(SETTINGS, ACK, 0, '') ],
	'PUSH_PROMISE'                    => [ '', frame(PUSH_PROMISE, END_HEADERS, 1, pack('N', 2) . status(200)) ],
	'CONTINUATION'                    => [ frame(HEADERS, 0, 1, status(200)), frame(CONTINUATION, 0, 1, '') ],
	'PRIORITY_UPDATE'                 => [ '', frame(0x10, 0, 0, pack('N', 1) . 'u=3') ],
	'frames of an unknown type'       => [ '', frame(0xfa, 0, 0, '') ],
	'large frames of an unknown type' => [ '', frame(0xfa, 0, 0, 'x' x 16384) ],
	'headers of HTTP/1'               => [ "HTTP/1.1 200 OK\r\n", "X-Padding: whatever\r\n" ],
	'answers of 100 in HTTP/1'        => [ '', "HTTP/1.1 100 Continue\r\n\r\n" ],
	'trailers of HTTP/1'              => [ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-Padding: whatever\r\n" ],
	'an extension of a chunk in HTTP/1' => [ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", 'x' ],
	'chunks in HTTP/1'                => [ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n" ],
);

# One connection: the bytes that are sent after a request.
sub _flood
{
	my ($client, $kind) = @_;
	my ($first, $unit) = @{ $kinds{$kind} };
	my $block   = $unit x (1 + 65536 / length $unit);
	my $is_http1 = $kind =~ /HTTP\/1/;
	my $got     = '';

	# an HTTP/2 request: the preface, and HEADERS behind SETTINGS and the window
	while ($got !~ /^POST.*\r\n\r\n/s && !($got =~ /^PRI/ && ($is_http1 || length $got > 100)))
	{
		sysread($client, $got, 65536, length $got) or return;
	}
	if ($is_http1 && $got =~ /^PRI/)
	{
		syswrite($client, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
		return;
	}
	$first = frame(SETTINGS, 0, 0, '') . $first unless $is_http1;
	syswrite($client, $first) or return if length $first;
	# parts of a unit must not be lost
	for (my $at = 0;; $at %= length $block)
	{
		$at += syswrite($client, $block, length($block) - $at, $at) || return;
	}
}

# Starts a server that is no etcd; returns its URL and its process.  The code gets each
# connection in a child of its own, so that a slow one holds up no other.
sub serve_connections
{
	my ($name, $code) = @_;
	my $port   = PostgreSQL::Test::Cluster::get_free_port();
	my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 50, ReuseAddr => 1)
	  or die "cannot listen: $!";
	my $process = EtcdLeader::Util::Process->spawn(
		name => "$name server",
		log  => "$PostgreSQL::Test::Utils::log_path/${name}_$port.log",
		code => sub {
			$SIG{PIPE} = 'IGNORE';
			$SIG{CHLD} = 'IGNORE';
			while (1)
			{
				my $client = $listen->accept or next;
				my $pid = fork() // 0;
				next if $pid;
				alarm 60;
				$code->($client);
				POSIX::_exit(0);
			}
		});
	close $listen;
	return ("http://127.0.0.1:$port", $process);
}

# The same, of one of the kinds.
sub serve
{
	my ($kind) = @_;
	return serve_connections('flooding', sub { _flood($_[0], $kind) });
}

1;
