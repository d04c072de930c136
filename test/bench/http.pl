# What HTTP costs: an answer of /leader, and what thousands of them a second do
# to a hand-over.
#
#   make bench PARTS=http      ROUNDS=5
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/lib";
use Bench;
use Bench::Patroni;
use EtcdLeader::Etcd;
use EtcdLeader::Http;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();

my $load  = "$FindBin::RealBin/build/http_load";
my $bench = Bench->new(name => 'http', title => 'HTTP', text => <<'END');
`GET /leader` on the leader and Patroni's on its primary, on the same machine: one client that asks, waits for the answer and
asks again, on one connection or with a new one for each request, as a load balancer's check does; and 16 clients at once. The
client is a program in C on the same two cores. Then the time from `etcd_resign()` to the first 200 of the next leader, asked
each 0.2 ms, beside that of `etcd_is_leader()`, without and with 10,000 requests a second of others to both instances, in turn. These
others run with `nice 19`, since on the same two cores it is the servers' work that is asked for, and not the clients'; how many requests
were answered is measured. Whether the times differ by more than the noise: the two-sided Mann-Whitney test (p), and the median of all
differences.
END
my $rounds = Bench::rounds(5);

my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(pg1 pg2);
my %node = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10, http_listen => "127.0.0.1:$port{$_}" }) } sort keys %port;
$node{pg1}->wait_until_leader;
$node{pg2}->wait_until_candidate;
poll(10, sub { http_code($port{pg1}, '/leader') == 200 && http_code($port{pg2}, '/leader') == 503 }) or die "it does not serve\n";
my $patroni = $bench->try('Patroni', sub { Bench::Patroni->new($etcd, 10) });

# (requests per second, median and 99th percentile in ms)
sub ask
{
	my ($port, $connections, $reuse) = @_;
	my $out = '';
	IPC::Run::run([ $load, $port, '/leader', $connections, 2, 0, $reuse ], '<', \undef, '>', \$out) or die "$load failed\n";
	my ($rate, $median, $p99, $failures) = split ' ', $out;
	die "nothing was answered\n" if $rate == 0;
	die "$failures requests failed\n" if $failures > $rate / 100;
	return ($rate, $median / 1000, $p99 / 1000);
}

my %way = ('a new connection each' => [ 1, 0 ], 'one connection' => [ 1, 1 ], '16 connections' => [ 16, 1 ]);
for my $way (sort keys %way)
{
	my ($connections, $reuse) = @{ $way{$way} };
	my $name    = $way =~ s/ /_/gr;
	my $latency = $bench->table(name => "http_latency_$name", title => "GET /leader, $way: how long it takes", unit => 'ms', ours => 'etcd_leader, median');
	my $rate    = $bench->table(name => "http_rate_$name", title => "GET /leader, $way: how many", unit => 'requests/s', ours => 'etcd_leader', linear => 1);
	my @pairs;
	for my $server ([ 'etcd_leader', $port{pg1} ], $patroni ? [ 'Patroni', ($patroni->roles)[0]{rest} ] : ())
	{
		my ($who, $port) = @$server;
		my $r = Bench::row($rate, $who);
		my ($median, $p99) = map { Bench::row($latency, "$who, $_") } 'median', 'p99';
		push @pairs, [ [ $r, $median, $p99 ], sub { return ask($port, $connections, $reuse) } ];
	}
	$bench->in_turn($rounds, @pairs);
}

# Memory, after all that.
{
	my $table  = $bench->table(name => 'http_memory', title => 'Private memory of the HTTP processes', unit => 'MB');
	my $worker = EtcdLeader::Http::worker_pid($node{pg1});
	for my $process ([ 'worker', $worker ], [ 'server', EtcdLeader::Http::server_pid($worker) ])
	{
		my ($kb) = PostgreSQL::Test::Utils::slurp_file("/proc/$process->[1]/status") =~ /^RssAnon:\s+(\d+)/m;
		Bench::sample(Bench::row($table, $process->[0]), 1, $kb / 1024);
	}
}

# Hand-overs.
sub hand_over
{
	my ($loaded) = @_;
	my ($old, $new) = http_code($port{pg1}, '/leader') == 200 ? qw(pg1 pg2) : qw(pg2 pg1);
	my $log  = PostgreSQL::Test::Utils::tempdir() . '/load';
	my @load = $loaded ? map { EtcdLeader::Util::Process->spawn(name => 'load', log => "$log$_", cmd => [ 'nice', '-n', 19, $load, $_, '/leader', 8, 60, 5000, 1 ]) } values %port : ();
	pause(0.5);
	my $by_http = EtcdLeader::Sampler::by_http('127.0.0.1', $port{$new});
	my $by_sql  = EtcdLeader::Sampler::by_sql($node{$new});
	$_->() for $by_http, $by_sql;
	my $resigner = $node{$old}->connect_db;
	my $began    = now();
	$resigner->do('SELECT etcd_resign()', { pg_async => DBD::Pg::PG_ASYNC() });
	my ($http, $sql);
	while (!$http || !$sql)
	{
		die "nobody leads\n" if now() > $began + 10;
		$sql  //= now() - $began if ($by_sql->())[1];
		$http //= now() - $began if ($by_http->())[1];
		pause(0.0002);
	}
	$resigner->pg_result;
	$_->stop for @load;
	my $answered = 0;
	$answered += (split ' ', $_->output)[0] for @load;
	poll(30, sub { ($node{$old}->try_value('SELECT count(*) FROM etcd_candidates()') // 0) == 2 }) or die "no second candidate\n";
	return (1000 * $sql, 1000 * $http, $loaded ? $answered : ());
}
my $table = $bench->table(name => 'http_hand_over', title => 'A hand-over, by HTTP and by SQL', unit => 'ms');
my @rows  = map { my $load = $_; map { Bench::row($table, "$_, $load") } '`etcd_is_leader()`', '`/leader`' } 'idle', '10,000 requests/s';
my $answered = Bench::row($bench->table(name => 'http_hand_over_load', title => 'Requests of others that were answered meanwhile', unit => 'requests/s', linear => 1), 'both instances');
$bench->in_turn(6 * $rounds, [ [ @rows[ 0, 1 ] ], sub { hand_over(0) } ], [ [ @rows[ 2, 3 ], $answered ], sub { hand_over(1) } ]);
my $p     = $bench->table(name => 'http_hand_over_p', title => 'Do the times differ by more than the noise?', unit => 'p', linear => 1);
my $shift = $bench->table(name => 'http_hand_over_difference', title => 'By how much a hand-over takes longer with 10,000 requests/s', unit => 'ms', linear => 1);
for my $i (0, 1)
{
	my ($name) = $rows[$i]{name} =~ /^(.*), /;
	my @found = Bench::compare($rows[$i], $rows[ $i + 2 ]);
	Bench::sample(Bench::row($p,     $name), 1, $found[0]);
	Bench::sample(Bench::row($shift, $name), 1, $found[1]);
}
$bench->finish;
