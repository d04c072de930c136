# The cost of candidates while nothing happens.
#
#   make bench PARTS=idle      ROUNDS=1 (of IDLE=30 seconds)
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Patroni;
use Bench::Peers;

my $ttl   = 10;
my $idle  = $ENV{IDLE} // 30;
my $bench = Bench->new(name => 'idle', title => 'Idle', text => <<"END");
Two candidates of a kind and nothing else on etcd, one leads and one waits, for $idle s a round; TTL $ttl s (`etcdctl elect`:
60 s, it has no option for that; Patroni: `loop_wait: 1`). Requests are the messages that etcd's gRPC server received and the
requests to its API v2, per second and candidate. Wakeups are voluntary context switches. Memory is the private memory of
the processes: for us, of the elector and the notifier; for a peer, of its one process; for Patroni, without PostgreSQL.
END
my $rounds = Bench::rounds(1);

# (wakeups, seconds of CPU, private memory in MB) of processes so far.
sub usage
{
	my %sum = (wakeups => 0, cpu => 0, memory => 0);
	for my $pid (@_)
	{
		for my $status (glob "/proc/$pid/task/*/status")
		{
			my $text = PostgreSQL::Test::Utils::slurp_file($status);
			$sum{wakeups} += $1 if $text =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
		}
		my @stat = split ' ', PostgreSQL::Test::Utils::slurp_file("/proc/$pid/stat") =~ s/^.*\) //r;
		$sum{cpu} += ($stat[11] + $stat[12]) / 100;
		$sum{memory} += Bench::memory($pid);
	}
	return \%sum;
}

my %table = (
	requests => $bench->table(name => 'idle_requests', title => 'Requests per second and candidate', unit => '1/s', ours => '`etcd_leader`, 1 election', linear => 1),
	wakeups  => $bench->table(name => 'idle_wakeups', title => 'Wakeups per second of a candidate', unit => '1/s', ours => '`etcd_leader`, 1 election'),
	cpu      => $bench->table(name => 'idle_cpu', title => 'CPU of a candidate', unit => '%', linear => 1),
	memory   => $bench->table(name => 'idle_memory', title => 'Private memory of a candidate', unit => 'MB', ours => '`etcd_leader`, 1 election'));

# Measures processes of candidates: [[pid, ...] of each].
sub measure
{
	my ($name, $goals, $etcd, @candidates) = @_;
	my %row = map { $_ => Bench::row($table{$_}, $name, goal => $goals->{$_}) } keys %table;
	# the start is not measured
	pause(3);
	for my $round (1 .. $rounds)
	{
		my $requests = Bench::Peers::requests($etcd);
		my @before   = map { usage(@$_) } @candidates;
		my $began    = now();
		pause($idle);
		my $seconds = now() - $began;
		my @after   = map { usage(@$_) } @candidates;
		Bench::sample($row{requests}, $round, (Bench::Peers::requests($etcd) - $requests) / $seconds / @candidates);
		for my $i (0 .. $#candidates)
		{
			Bench::sample($row{wakeups}, $round, ($after[$i]{wakeups} - $before[$i]{wakeups}) / $seconds);
			Bench::sample($row{cpu}, $round, 100 * ($after[$i]{cpu} - $before[$i]{cpu}) / $seconds);
			Bench::sample($row{memory}, $round, $after[$i]{memory});
		}
	}
	return;
}

# Each kind has an etcd of its own.
for my $elections (1, 16)
{
	my $etcd  = EtcdLeader::Etcd->new;
	my $names = join ',', 'postgres', map { "e$_" } 2 .. $elections;
	my @nodes = map { EtcdLeader::Instance->create("pg$elections$_", etcd => $etcd, settings => { ttl => $ttl, elections => $names }) } 'a', 'b';
	for my $node (@nodes)
	{
		poll(30, sub { $node->value(q{SELECT count(*) FROM etcd_leader_status WHERE state IN ('leading', 'waiting')}) == $elections })
		  or die "not settled\n";
	}
	measure("`etcd_leader`, $elections election" . ($elections > 1 ? 's' : ''), { cpu => '<= 0.1', memory => '<= 6' },
		$etcd, map { [ $_->elector_pid, $_->notifier_pid ] } @nodes);
	$_->stop for @nodes;
}
for (
	[ 'npm `etcd-leader`', sub { Bench::Peers::npm($_[0], 'npm', $_[1], $ttl) }, sub { Bench::Peers::queued_v2($_[0], 'npm') } ],
	[ '`etcdctl elect`', sub { Bench::Peers::etcdctl($_[0], 'rival', $_[1]) }, sub { Bench::Peers::queued($_[0], 'rival') } ],
	[ 'Go `concurrency.Election`', sub { Bench::Peers::go($_[0], 'go', $_[1], $ttl) }, sub { Bench::Peers::queued($_[0], 'go') } ])
{
	my ($name, $start, $queued) = @$_;
	my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
	my $pair = $bench->try($name, sub { Bench::Peers::pair(sub { $start->($etcd, @_) }, sub { $queued->($etcd) }) }) or next;
	measure($name, { requests => '<= 1.0' }, $etcd, map { [ $_->pid ] } values %$pair);
}
{
	my $etcd = EtcdLeader::Etcd->new;
	my $patroni = $bench->try('Patroni', sub { Bench::Patroni->new($etcd, $ttl) });
	measure('Patroni', { requests => '<= 1.0' }, $etcd, map { [ $_->{process}->pid ] } @{ $patroni->{nodes} }) if $patroni;
}
$bench->finish;
