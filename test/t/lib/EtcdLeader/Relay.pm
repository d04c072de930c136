# A TCP relay between an instance and etcd: what cuts that instance off, and
# no other.  Frozen it is a network that swallows everything; stopped, it is
# one that refuses.
package EtcdLeader::Relay;

use strict;
use warnings;

use EtcdLeader::Util;
use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;

my $count = 0;

# Relays to a URL of http://host:port.
sub new
{
	my ($class, $target) = @_;
	my ($address) = $target =~ m{^http://([^/]+)} or die "not a URL of http: $target";
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64, ReuseAddr => 1) or die "listen: $!";
	my $self = bless { url => 'http://127.0.0.1:' . $listener->sockport }, $class;
	$self->{process} = EtcdLeader::Util::Process->spawn(
		name => "relay to $target",
		log  => $PostgreSQL::Test::Utils::log_path . '/' . File::Basename::basename($0, '.pl') . '_relay' . ++$count . '.log',
		code => sub { relay($listener, $address) });
	close $listener;
	return $self;
}

sub url { return $_[0]{url} }

# Lets nothing through, without a word; and lets it through again.
sub freeze { return $_[0]{process}->signal('STOP') }
sub thaw   { return $_[0]{process}->signal('CONT') }

# From now on nothing of an open watch arrives, while all else does.
sub stall_watches { return $_[0]{process}->signal('USR1') }

# Cuts all connections, and each new one at once; mend() ends that.
sub cut
{
	my ($self) = @_;
	my $cuts = sub { scalar(() = $self->{process}->output =~ /^cut$/mg) };
	my $before = $cuts->();
	$self->{process}->signal('USR2');
	poll(10, sub { $cuts->() > $before }) or die 'the relay does not cut';
	return;
}

sub mend { return $_[0]{process}->signal('HUP') }

# How many connections it has relayed so far.
sub connections { return scalar(() = $_[0]{process}->output =~ /^relayed$/mg) }

# In the child.
sub relay
{
	my ($listener, $address) = @_;
	my (%peer, %watch, $stalled);
	my $cut = 0;
	$SIG{USR1} = sub { $stalled = 1 };
	$SIG{USR2} = sub { $cut     = 1 };
	$SIG{HUP}  = sub { $cut     = 0 };
	$SIG{PIPE} = 'IGNORE';
	my $select = IO::Select->new($listener);
	my $close  = sub {
		my @both = grep { defined } $_[0], $peer{ $_[0] };
		for my $socket (@both)
		{
			$select->remove($socket);
			delete $peer{$socket};
			delete $watch{$socket};
			close $socket;
		}
	};
	while (1)
	{
		my @ready = $select->can_read(0.1);
		if ($cut == 1)
		{
			$close->($_) for grep { $peer{$_} } $select->handles;
			syswrite(STDOUT, "cut\n");
			$cut = 2;
		}
		for my $ready (@ready)
		{
			if ($ready == $listener)
			{
				my $client = $listener->accept or next;
				my $server = $cut ? undef : IO::Socket::INET->new(PeerAddr => $address);
				if (!$server) { close $client; next; }
				syswrite(STDOUT, "relayed\n");
				@peer{ $client, $server } = ($server, $client);
				$select->add($client, $server);
				next;
			}
			my $other = $peer{$ready} or next;
			my $data;
			if (!sysread($ready, $data, 65536)) { $close->($ready); next; }
			# what comes from etcd for one who has asked to watch
			$watch{$other} = 1 if $data =~ m{^POST /v3/watch}m;
			next if $stalled && $watch{$ready};
			while (length $data)
			{
				my $n = syswrite($other, $data);
				if (!$n) { $close->($ready); last; }
				substr($data, 0, $n) = '';
			}
		}
	}
}

sub stop { my ($self) = @_; return $self->{process}->stop('KILL') }

1;
