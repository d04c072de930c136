# HTTP with 10,000 clients at once that connect, send nothing, and connect again when
# they are refused.  The server stays within its limits, other clients are served, and
# the elector and SQL are not affected.
#
# There are 20 processes with 500 sockets each, to stay below the usual limit of file
# descriptors, and 200 addresses, because the server allows 64 connections for each.
use EtcdLeader::Test;
use EtcdLeader::Http;
use IO::Poll qw(POLLIN POLLHUP POLLERR);
use IO::Socket::INET;
use POSIX ();

my ($processes, $sockets_each, $addresses) = (20, 500, 200);
my $clients = $processes * $sockets_each;

my $etcd = EtcdLeader::Etcd->new;
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 5, http_listen => "127.0.0.1:$port" });
$node->wait_until_leader;
poll_ok(10, sub { http_code($port, '/leader') == 200 }, 'the server answers');
my $worker = EtcdLeader::Http::worker_pid($node);
my $server = EtcdLeader::Http::server_pid($worker);

sub memory_kb { return slurp_file("/proc/$server/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : die 'no memory' }
sub open_sockets { return scalar grep { (readlink($_) // '') =~ /^socket:/ } glob "/proc/$server/fd/*" }

# The number of the clients' sockets: those with the server's port at the other end, in
# any state except TIME_WAIT, which has no owner.
sub client_sockets
{
	my $hex = sprintf '%04X', $port;
	return scalar grep { /^\s*\d+: \S+ \S+:$hex (?!06)/ } split /\n/, slurp_file('/proc/net/tcp');
}

# Keeps that many sockets open.  Sockets that the server has closed are opened again, 25
# every quarter of a second.
sub crowd
{
	my ($n) = @_;
	my (@sockets, $next);
	my $open = sub {
		my ($i) = @_;
		$sockets[$i] = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Proto => 'tcp', Blocking => 0,
			LocalAddr => '127.0.1.' . (1 + ($n * $sockets_each + $i) % $addresses));
	};
	for my $i (0 .. $sockets_each - 1)
	{
		$open->($i);
		pause(0.001);
	}
	while (1)
	{
		my $poll = IO::Poll->new;
		$poll->mask($_ => POLLIN) for grep { defined } @sockets;
		$poll->poll(0);
		my @gone = grep { !$sockets[$_] || $poll->events($sockets[$_]) & (POLLIN | POLLHUP | POLLERR) } 0 .. $#sockets;
		for my $i (grep { defined } @gone[ 0 .. 24 ])
		{
			close $sockets[$i] if $sockets[$i];
			$open->($i);
		}
		pause(0.25);
	}
}

# Asks for that many seconds; returns the answers, and the seconds of each.
sub ask
{
	my ($seconds, $ask) = @_;
	my (@answers, @took);
	for (my $until = now() + $seconds; now() < $until; pause(0.05))
	{
		my $began = now();
		push @answers, $ask->();
		push @took, now() - $began;
	}
	return (\@answers, [ sort { $a <=> $b } @took ]);
}

my $token  = $node->token;
my $before = memory_kb();
my $events = $node->last_event;
my ($requests, $failures) = map { $node->value("SELECT $_ FROM etcd_leader_stats") } qw(requests failures);
my @crowd = map { my $n = $_; EtcdLeader::Util::Process->spawn(
		name => 'crowd', log => "$PostgreSQL::Test::Utils::log_path/071_crowd.log", code => sub { POSIX::nice(19); crowd($n) }) } 0 .. $processes - 1;
poll_ok(30, sub { client_sockets() > 0.95 * $clients }, "$clients clients are there") or diag(client_sockets());

my ($most, $most_kb) = (0, 0);
my ($codes, $took) = ask(15, sub {
	my ($open, $kb) = (open_sockets(), memory_kb());
	$most    = $open if $open > $most;
	$most_kb = $kb   if $kb > $most_kb;
	return http_code($port, '/leader', from => '127.0.0.1');
});
my $there = client_sockets();
cmp_ok($there, '>', 0.95 * $clients, 'the clients are still connected');
is(scalar(grep { $_ == 200 } @$codes), scalar @$codes, 'another client is served each time');
in_time($took->[ 0.9 * $#$took ], 0.1, 'nine of ten answers come within 100 ms');
cmp_ok($most, '<=', 256 + 15, 'the connections are limited');
cmp_ok($most_kb, '<', $before + 16 * 1024, 'the memory is limited');

my ($answers, $sql) = ask(5, sub { return $node->value('SELECT etcd_is_leader()::int') });
is(scalar(grep { !$_ } @$answers), 0, 'SQL: it leads all the time');
in_time($sql->[ 0.9 * $#$sql ], 0.1, 'SQL: nine of ten answers come within 100 ms');
is($node->token, $token, 'it has led under one token');
is($node->last_event, $events, 'there was no event');
is($node->value('SELECT failures FROM etcd_leader_stats'), $failures, 'no request to etcd has failed');
is(EtcdLeader::Http::server_pid(EtcdLeader::Http::worker_pid($node)), $server, 'the server is the same');
diag(sprintf '%d clients: a request takes %.1f ms (median), %.1f ms (nine of ten), %.1f ms (longest); SQL %.1f ms, %.1f ms; %d sockets, %d kB more',
	$there, (map { 1000 * $_ } $took->[ 0.5 * $#$took ], $took->[ 0.9 * $#$took ], $took->[-1], $sql->[ 0.5 * $#$sql ], $sql->[ 0.9 * $#$sql ]),
	$most, $most_kb - $before);
$_->stop('KILL') for @crowd;
poll_ok(10, sub { open_sockets() < 40 }, 'the connections end with the clients');
done_testing();
