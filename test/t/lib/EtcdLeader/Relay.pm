# A TCP relay between an instance and etcd: what cuts that instance off, and
# no other.  Frozen it is a network that swallows everything; stopped, it is
# a network that refuses.
package EtcdLeader::Relay;

use strict;
use warnings;

use EtcdLeader::Util;
use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;

my $grpc_watch = "\xaf\xc8\x69\x24\xec\x72\x1a\x49\x3f";
my $count   = 0;
my $backlog = 8;
my $delay   = 0.15;

# Relays to a URL of http://host:port.  http2 => 'refused': it answers HTTP/2 in
# HTTP/1, as a proxy that knows nothing else; 'reset': it closes such a connection.
# replace => [what, by]: in etcd's answers, both of one length.
sub new
{
	my ($class, $target, %args) = @_;
	my ($address) = $target =~ m{^http://([^/]+)} or die "not a URL of http: $target";
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => $backlog, ReuseAddr => 1) or die "listen: $!";
	pipe(my $orders, my $control) or die "pipe: $!";
	my $self = bless { port => $listener->sockport, control => $control }, $class;
	$self->{process} = EtcdLeader::Util::Process->spawn(
		name => "relay to $target",
		log  => $PostgreSQL::Test::Utils::log_path . '/' . File::Basename::basename($0, '.pl') . '_relay' . ++$count . '.log',
		code => sub { close $control; relay($listener, $address, $orders, $args{http2} // '', @{ $args{replace} // [] }) });
	close $listener;
	return $self;
}

sub port { return $_[0]{port} }
sub url { return "http://127.0.0.1:$_[0]{port}" }

# Lets nothing through, without a word; and lets it through again.
sub freeze { return $_[0]{process}->freeze }
sub thaw   { return $_[0]{process}->thaw }

# Frozen, and new connections are not even accepted by the kernel: there is no
# place for them in its queue.
sub swallow
{
	my ($self) = @_;
	$self->freeze;
	push @{ $self->{callers} }, IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Blocking => 0)
	  for 0 .. 2 * $backlog;
	return;
}

# From now on nothing of an open watch arrives, while all else does.
sub stall_watches { return $_[0]->order('w') }

# From now on etcd's answers arrive at a byte a second.
sub trickle { return $_[0]->order('t') }

# From now on each byte arrives 150 ms later, in both directions.
sub delay { return $_[0]->order('d') }

# From now on requests that put a key on a lease, or all that read or write keys, do not
# get through; released they do, also those whose senders have gone.  Of JSON
# alone: requests of gRPC share a connection.
sub hold_puts { return $_[0]->order('h') }
sub hold_keys { return $_[0]->order('k') }
sub release   { return $_[0]->order('r') }

# Cuts all connections, and each new one at once; mend() ends that.
sub cut
{
	my ($self) = @_;
	my $cuts = sub { scalar(() = $self->{process}->output =~ /^cut$/mg) };
	my $before = $cuts->();
	$self->order('c');
	poll(10, sub { $cuts->() > $before }) or die 'the relay does not cut';
	return;
}

sub mend { return $_[0]->order('m') }

# How many connections it has relayed so far.
sub connections { return scalar(() = $_[0]{process}->output =~ /^relayed$/mg) }

# How many it has held, so far.
sub held { my $n = () = $_[0]{process}->output =~ /^held$/mg; return $n }

sub order
{
	my ($self, $order) = @_;
	syswrite($self->{control}, $order) == 1 or die "relay: $!";
	return;
}

# In the child.
sub relay
{
	my ($listener, $address, $orders, $http2, $what, $by) = @_;
	my (%peer, %watch, %on, %held, %late, %slow, %is_server, @under_way);
	my $next_byte = 0;
	$SIG{PIPE} = 'IGNORE';
	my $select = IO::Select->new($listener, $orders);
	my $close  = sub {
		my @both = grep { defined } $_[0], $peer{ $_[0] };
		for my $socket (@both)
		{
			$select->remove($socket);
			delete $_->{$socket} for \(%peer, %watch, %held, %late, %slow, %is_server);
			close $socket;
		}
	};
	my $send = sub {
		my ($socket, $data) = @_;
		while (length $data)
		{
			my $n = syswrite($socket, $data);
			return unless $n;
			substr($data, 0, $n) = '';
		}
		return 1;
	};
	while (1)
	{
		my @ready = $select->can_read(@under_way ? 0.005 : 0.1);
		while (@under_way && $under_way[0][0] <= now())
		{
			my (undef, $to, $data) = @{ shift @under_way };
			$close->($to) if $peer{$to} && !$send->($to, $data);
		}
		for my $ready (@ready)
		{
			if ($ready == $orders)
			{
				sysread($orders, my $order, 1) or return;
				$on{$order} = 1;
				if ($order eq 'c')
				{
					$close->($_) for grep { $peer{$_} } $select->handles;
					syswrite(STDOUT, "cut\n");
				}
				$on{c} = 0 if $order eq 'm';
				next unless $order eq 'r';
				@on{qw(h k)} = ();
				for my $kept (values %held) { $send->(@$kept) }
				%held = ();
				next;
			}
			if ($ready == $listener)
			{
				my $client = $listener->accept or next;
				my $server = $on{c} ? undef : IO::Socket::INET->new(PeerAddr => $address);
				if (!$server) { close $client; next; }
				syswrite(STDOUT, "relayed\n");
				@peer{ $client, $server } = ($server, $client);
				$is_server{$server} = 1;
				$select->add($client, $server);
				next;
			}
			my $other = $peer{$ready} or next;
			my $data;
			if (!sysread($ready, $data, 65536))
			{
				# data that the relay holds, or held, outlive their sender
				if ($late{$ready}) { $select->remove($ready) }
				else               { $close->($ready) }
				next;
			}
			$data =~ s/\Q$what\E/$by/g if defined $what && $is_server{$ready};
			if ($http2 && $data =~ /^PRI \* HTTP/)
			{
				$send->($ready, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") if $http2 eq 'refused';
				$close->($ready);
				next;
			}
			# data of etcd for a client that has asked to watch; in gRPC, a part of
			# its path in the Huffman code of HPACK
			$watch{$other} = 1 if $data =~ m{^POST /v3/watch}m || index($data, $grpc_watch) >= 0;
			next if $on{w} && $watch{$ready};
			if ($held{$ready} || ($on{h} && $data =~ /"request_?put":\s*\{[^}]*"lease"/i) || ($on{k} && $data =~ m{^POST /v3/kv/}m))
			{
				syswrite(STDOUT, "held\n") unless $held{$ready};
				$late{$ready} = 1;
				$held{$ready} //= [ $other, '' ];
				$held{$ready}[1] .= $data;
				next;
			}
			if ($on{t} && $is_server{$ready})
			{
				$slow{$other} //= [ $other, '' ];
				$slow{$other}[1] .= $data;
				next;
			}
			if ($on{d})
			{
				push @under_way, [ now() + $delay, $other, $data ];
				next;
			}
			$close->($ready) unless $send->($other, $data);
		}
		next if now() < $next_byte;
		$next_byte = now() + 1;
		for my $slow (values %slow)
		{
			$send->($slow->[0], substr($slow->[1], 0, 1, '')) if length $slow->[1];
		}
	}
}

sub stop { my ($self) = @_; return $self->{process}->stop('KILL') }

1;
