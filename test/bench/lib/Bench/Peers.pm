# The peers: candidates of other programs, as processes whose output is read, and a minimal
# client of etcd's gateway.
package Bench::Peers;

use strict;
use warnings;

use EtcdLeader::Etcd;
use EtcdLeader::Util;
use FindBin;

my $build = "$FindBin::RealBin/build";

# The authority of etcd's certificate: then etcdctl and Go speak TLS.
our $ca_file;

sub endpoints { my ($etcd) = @_; return $ca_file ? $etcd->tls_endpoints : $etcd->endpoints }

sub address { return $_[0]->url(0) =~ s{^http://}{}r }

# `etcdctl elect`.  Its lease lives for 60 s; an interrupt ends it.
sub etcdctl
{
	my ($etcd, $election, $name) = @_;
	return Bench::Peer->start({ ETCDCTL_API => 3 }, qr{^\Q$election\E/},
		$ENV{ETCDCTL} // 'etcdctl', '--endpoints=' . endpoints($etcd), ($ca_file ? "--cacert=$ca_file" : ()), 'elect', $election, $name);
}

# Many candidates of ours in one process, without PostgreSQL, by a program of
# test/bench/build.
#   program   => its name (candidates)
#   json      => 1: by way of etcd's gateway
#   endpoints => a comma list (all of etcd)
#   elections => each takes part in so many, ELECTION/0, ELECTION/1, ... (in ELECTION alone)
#   clusters  => they are dealt out to so many clusters, each with its own elections (1)
#   start     => they start one after the other in so many seconds (0: all at once)
sub ours
{
	my ($etcd, $election, $name, $ttl, $number, %args) = @_;
	my $program = "$build/" . ($args{program} // 'candidates');
	-x $program or die "the program of our candidates is not there\n";
	return Bench::Peer->start({}, qr/^elected/, $program, many($etcd, $election, $name, $ttl, $number, %args), ($args{json} ? 'json' : ()));
}

# The arguments of both programs with many candidates.
sub many
{
	my ($etcd, $election, $name, $ttl, $number, %args) = @_;
	return ($args{endpoints} // endpoints($etcd), $election, $name, $ttl, $number // 1, ($args{elections} ? ($args{elections}, $args{clusters} // 1, int(1000 * ($args{start} // 0))) : ()));
}

# npm's etcd-leader, with that many candidates in one process; etcd needs --enable-v2=true.
sub npm
{
	my ($etcd, $election, $name, $ttl, $number) = @_;
	-d "$build/npm/node_modules/etcd-leader" or die "npm's etcd-leader is not there\n";
	return Bench::Peer->start({}, qr/^elected/, 'node', "$build/npm/candidate.js", address($etcd), "/$election", $name, $ttl, $number // 1);
}

# Go's concurrency.Election, with that many candidates in one process, each with a client
# of its own; arguments as for ours().
sub go
{
	my ($etcd, @args) = @_;
	-x "$build/candidate" or die "Go's candidate is not there\n";
	return Bench::Peer->start({ ($ca_file ? (CA_FILE => $ca_file) : ()) }, qr/^elected/, "$build/candidate", many($etcd, @args));
}

# Starts two candidates, and returns { leading, waiting }.  $make->(name) starts one, and
# $queued->() returns the number of keys in the queue.
sub pair
{
	my ($make, $queued) = @_;
	my $leading = $make->('first');
	$leading->wait_until_elected(30) or die "it does not lead\n";
	my $pair = { leading => $leading, waiting => $make->('second') };
	poll(30, sub { $queued->() == 2 }) or die "the second one is no candidate\n";
	return $pair;
}

# The number of candidates of an election, with etcd's API v3 and v2.
sub queued
{
	my ($etcd, $election) = @_;
	my @queue = $etcd->candidates($election);
	return scalar @queue;
}

sub queued_v2
{
	my ($etcd, $election) = @_;
	my $answer = HTTP::Tiny->new(timeout => 5)->get($etcd->url(0) . "/v2/keys/$election");
	return 0 unless $answer->{success};
	return scalar @{ JSON::PP->new->decode($answer->{content})->{node}{nodes} // [] };
}

# The number of requests that etcd has received: messages of gRPC, including those of the
# gateway, and requests to API v2, which counts watches separately.
sub requests
{
	my ($etcd) = @_;
	my $sum = 0;
	$sum += eval { $etcd->metric($_) } // 0
	  for qw(grpc_server_msg_received_total etcd_http_received_total etcd_debugging_store_watch_requests_total);
	return $sum;
}

# ---------------------------------------------------------------------------
# A candidate: a process that writes a line when it is elected.
package Bench::Peer;

use strict;
use warnings;

use EtcdLeader::Util;
use POSIX ();

my %running;
my $owner = $$;

sub start
{
	my ($class, $env, $elected, @command) = @_;
	pipe(my $read, my $write) or die $!;
	my $pid = fork() // die $!;
	if ($pid == 0)
	{
		$SIG{INT} = $SIG{TERM} = $SIG{HUP} = $SIG{ALRM} = 'DEFAULT';
		alarm 0;
		$ENV{$_} = $env->{$_} for keys %$env;
		open STDIN, '<', '/dev/null';
		open STDOUT, '>&', $write;
		open STDERR, '>', '/dev/null';
		{ no warnings 'exec'; exec { $command[0] } @command; }
		POSIX::_exit(127);
	}
	close $write;
	$running{$pid} = 1;
	return bless { pid => $pid, out => $read, buffer => '', elected => $elected }, $class;
}

sub pid { return $_[0]{pid} }

sub signal { my ($self, $signal) = @_; return kill $signal, $self->{pid} }

# Waits for the line that it is elected, and returns the time of the line.  Returns undef
# after that many seconds, or at the end of the process.
sub wait_until_elected
{
	my ($self, $timeout) = @_;
	my $end = now() + $timeout;
	while (1)
	{
		while ($self->{buffer} =~ s/^(.*)\n//)
		{
			my $line = $1;
			# of a program with many candidates: "elected TIME"
			$self->{lines}{$1}++ if $line =~ /^(\w+)/;
			($self->{time}) = $line =~ /([\d.]+)$/;
			$self->{leads} = $line =~ $self->{elected} || ($self->{leads} && $line !~ /^(?:un|error)/);
			return $self->{at} if $line =~ $self->{elected};
		}
		my $left = $end - now();
		my $ready = '';
		vec($ready, fileno($self->{out}), 1) = 1;
		if (select($ready, undef, undef, $left > 0 ? $left : 0) <= 0)
		{
			return if $left <= 0;
			next;
		}
		$self->{at} = now();
		next if sysread($self->{out}, $self->{buffer}, 4096, length $self->{buffer});
		$self->{leads} = 0;
		return;
	}
}

# Waits until that many candidates of it are elected, and returns the times that it has
# written, in Unix time.  Dies after that many seconds.
sub elections
{
	my ($self, $number, $timeout) = @_;
	my $end = now() + $timeout;
	my @times;
	while (@times < $number)
	{
		my $left = $end - now();
		defined $self->wait_until_elected($left > 0 ? $left : 0) or die sprintf "%d of %d were elected in %d s\n", scalar @times, $number, $timeout;
		push @times, $self->{time};
	}
	return @times;
}

# How often one of its candidates was no longer the leader, so far.
sub losses { my ($self) = @_; $self->forget; return $self->{lines}{unelected} // 0 }

# Forgets its output so far.
sub forget
{
	my ($self) = @_;
	1 while defined $self->wait_until_elected(0);
	return;
}

# Does it lead, according to its output so far?
sub leads { my ($self) = @_; $self->forget; return $self->{leads} }

sub stop
{
	my ($self, $signal) = @_;
	return unless delete $running{ $self->{pid} };
	kill $signal // 'KILL', $self->{pid};
	kill 'CONT', $self->{pid};
	waitpid $self->{pid}, 0;
	return;
}

sub DESTROY { local ($?, $!, $@); $_[0]->stop if $$ == $owner }

END
{
	my $status = $?;
	if ($$ == $owner) { kill 'KILL', keys %running; kill 'CONT', keys %running; }
	$? = $status;
}

# ---------------------------------------------------------------------------
# A connection to etcd's gateway that stays open, and sends without delay (TCP_NODELAY).
package Bench::Connection;

use strict;
use warnings;

use IO::Socket::INET;
use JSON::PP ();
use Socket qw(IPPROTO_TCP TCP_NODELAY);

sub new
{
	my ($class, $etcd) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => Bench::Peers::address($etcd)) or die $!;
	setsockopt($socket, IPPROTO_TCP, TCP_NODELAY, 1);
	return bless { socket => $socket, buffer => '' }, $class;
}

sub send_request
{
	my ($self, $path, $body) = @_;
	$body = JSON::PP->new->canonical->encode($body) if ref $body;
	syswrite $self->{socket}, "POST $path HTTP/1.1\r\nHost: etcd\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
	return;
}

# Reads until the buffer matches; removes the match, and returns its groups.
sub take
{
	my ($self, $pattern) = @_;
	while (1)
	{
		return $1 if $self->{buffer} =~ s/^$pattern//s;
		my $ready = '';
		vec($ready, fileno($self->{socket}), 1) = 1;
		select($ready, undef, undef, 10) > 0 or die "etcd does not answer\n";
		sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer}) or die "etcd has closed the connection\n";
	}
}

# Reads the body of an answer; for a stream, the first piece.
sub answer
{
	my ($self) = @_;
	my $head = $self->take(qr/(.*?\r\n\r\n)/s);
	return $self->chunk if $head =~ /^Transfer-Encoding: chunked/mi;
	my ($length) = $head =~ /^Content-Length: (\d+)/mi;
	return $self->take(qr/(.{$length})/s);
}

sub chunk
{
	my ($self) = @_;
	my $length = hex $self->take(qr/([0-9a-f]+)\r\n/i);
	my $chunk = $self->take(qr/(.{$length})\r\n/s);
	return $chunk;
}

sub request { my ($self, @request) = @_; $self->send_request(@request); return $self->answer }

1;
