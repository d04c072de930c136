# The cost of HTTP: the time of an answer of /leader, and memory.
#
#   make bench PARTS=http      ROUNDS=5
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Patroni;
use EtcdLeader::Http;
use IPC::Run ();

my $build = "$FindBin::RealBin/build";
my $bench = Bench->new(name => 'http', title => 'HTTP', text => <<'END');
`GET /leader` on the leader and Patroni's on its primary, on the same machine: one client that asks, waits for the answer and
asks again, on one connection or with a new one for each request, as a load balancer's check does; and 16 clients at once. The
client is a program in C on the same two cores, in a session of its own. Patroni speaks HTTP/1.0, with a connection for each request in
every row. "A fixed answer" is a program that sends the same bytes to everybody: no server can do less.
END
my $rounds = Bench::rounds(5);

my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(pg1 pg2);
my %node = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10, http_listen => "127.0.0.1:$port{$_}" }) } sort keys %port;
$node{pg1}->wait_until_leader;
$node{pg2}->wait_until_candidate;
poll(10, sub { http_code($port{pg1}, '/leader') == 200 && http_code($port{pg2}, '/leader') == 503 }) or die "it does not serve\n";
my $fixed = PostgreSQL::Test::Cluster::get_free_port();
my $fixed_server = EtcdLeader::Util::Process->spawn(name => 'http_answer', log => PostgreSQL::Test::Utils::tempdir() . '/answer',
	cmd => [ 'setsid', "$build/http_answer", $fixed, length((http_get($port{pg1}, '/leader'))[2]) ]);
poll(10, sub { http_code($fixed, '/') == 200 }) or die "http_answer does not answer\n";
my $patroni = $bench->try('Patroni', sub { Bench::Patroni->new($etcd, 10) });

# (requests per second, median and 99th percentile in ms)
sub ask
{
	my ($port, $connections, $reuse) = @_;
	my $out = '';
	IPC::Run::run([ 'setsid', "$build/http_load", $port, '/leader', $connections, 2, 0, $reuse ], '<', \undef, '>', \$out) or die "http_load failed\n";
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
	for my $server ([ 'etcd_leader', $port{pg1} ], [ 'a fixed answer', $fixed ], $patroni ? [ 'Patroni', ($patroni->roles)[0]{rest} ] : ())
	{
		my ($who, $port) = @$server;
		my $r = Bench::row($rate, $who);
		my ($median, $p99) = map { Bench::row($latency, "$who, $_") } 'median', 'p99';
		push @pairs, [ [ $r, $median, $p99 ], sub { return ask($port, $connections, $reuse) } ];
	}
	$bench->in_turn($rounds, @pairs);
}

# Memory after these requests.
{
	my $table  = $bench->table(name => 'http_memory', title => 'Private memory of the HTTP processes', unit => 'MB');
	my $worker = EtcdLeader::Http::worker_pid($node{pg1});
	for my $process ([ 'worker', $worker ], [ 'server', EtcdLeader::Http::server_pid($worker) ])
	{
		my ($kb) = PostgreSQL::Test::Utils::slurp_file("/proc/$process->[1]/status") =~ /^RssAnon:\s+(\d+)/m;
		Bench::sample(Bench::row($table, $process->[0]), 1, $kb / 1024);
	}
}
$fixed_server->stop;
$bench->finish;
