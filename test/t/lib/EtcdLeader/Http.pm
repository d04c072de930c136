# A client of the HTTP worker: plain sockets, so that a test decides each byte.
package EtcdLeader::Http;

use strict;
use warnings;

use Exporter 'import';
use IO::Socket::INET;
use Socket qw(SO_RCVBUF SOL_SOCKET);

use EtcdLeader::Util;

our @EXPORT = qw(http_connect http_get http_status http_exchange http_code tls_get);

# A connection; undef if there is none.  from => the client's own address.
sub http_connect
{
	my ($port, %args) = @_;
	return IO::Socket::INET->new(
		PeerAddr => $args{host} // '127.0.0.1', PeerPort => $port, Proto => 'tcp', Timeout => 5,
		($args{from} ? (LocalAddr => $args{from}) : ()));
}

# Sends bytes and reads to the end of the connection, or so long; what came.
sub http_exchange
{
	my ($port, $bytes, %args) = @_;
	my $socket = http_connect($port, %args) // return '';
	my $until  = now() + ($args{timeout} // 5);
	my $answer = '';
	local $SIG{PIPE} = 'IGNORE';
	syswrite $socket, $bytes if length $bytes;
	while ((my $left = $until - now()) > 0)
	{
		my $ready = '';
		vec($ready, fileno $socket, 1) = 1;
		next unless select($ready, undef, undef, $left) > 0;
		my $n = sysread $socket, my $piece, 65536;
		last unless $n;
		$answer .= $piece;
		last if $args{until} && $answer =~ $args{until};
	}
	close $socket;
	return $answer;
}

# A request of its own connection: (status code, headers as text, body); (0) if
# there was no answer.
sub http_get
{
	my ($port, $path, %args) = @_;
	my $method = $args{method} // 'GET';
	my $answer = http_exchange($port, "$method $path HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", %args);
	return $answer =~ m{^HTTP/1\.1 (\d{3}) [^\r]*\r\n(.*?\r\n)\r\n(.*)}s ? ($1, $2, $3) : (0, '', '');
}

# The status code alone.
sub http_code { return (http_get(@_))[0] }

# As http_get(), by curl with TLS and an authority to trust: (status code, body,
# errors, seconds).
sub tls_get
{
	my ($port, $path, $ca, @more) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'curl', '-sS', '--max-time', 5, '--cacert', $ca, @more, '-w', '\n%{http_code} %{time_total}', "https://127.0.0.1:$port$path" ],
		'<', \undef, '>', \$out, '2>', \$err);
	return $out =~ /^(.*)\n(\d{3}) ([\d.]+)$/s ? ($2, $1, $err, $3) : (0, '', $err, 0);
}

# The pid of the worker; of the process that serves, its child.
sub worker_pid
{
	my ($node) = @_;
	return $node->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader http'});
}

# Those of earlier settings come first, as long as they answer requests.
sub server_pids
{
	my ($worker) = @_;
	open my $fh, '<', "/proc/$worker/task/$worker/children" or die "no children of $worker: $!";
	return split ' ', (scalar(<$fh>) // '');
}

sub server_pid
{
	my ($worker) = @_;
	return unless $worker;
	return (server_pids($worker))[-1];
}

1;
